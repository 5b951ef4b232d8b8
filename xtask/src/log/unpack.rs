// SPDX-License-Identifier: GPL-2.0

//! Rotated logs are often compressed. What a log is, its first bytes tell, not its name.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use xz4rust::{DICT_SIZE_PROFILE_0, DICT_SIZE_PROFILE_9, XzDecoder, XzError};

/// Magic numbers of what cannot be read here: name, and the program that unpacks it.
const OTHERS: [(&[u8], &str, &str); 4] = [
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    (
        b"LPKSHHRH",
        "journald",
        "journalctl -k -o short-precise --file",
    ),
];

/// What a log holds, unpacked if it is packed with gzip or xz.
///
/// # Errors
///
/// It cannot be read, or is packed with something else. Damage to a packed log shows as an error while the result is
/// read; such an error does not come from the system.
pub fn unpacked<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::new();
    source.by_ref().take(8).read_to_end(&mut first)?;
    if let Some((_, format, program)) = OTHERS.iter().find(|(magic, ..)| first.starts_with(magic)) {
        return Err(elsewhere(format, program));
    }
    let gzip = first.starts_with(b"\x1f\x8b");
    let xz = first.starts_with(b"\xfd7zXZ\0");
    let source = io::Cursor::new(first).chain(source);
    Ok(if gzip {
        Box::new(MultiGzDecoder::new(BufReader::new(source)))
    } else if xz {
        Box::new(Xz::new(BufReader::new(source)))
    } else {
        Box::new(source)
    })
}

/// An error for what another program unpacks.
fn elsewhere(format: &str, program: &str) -> io::Error {
    let why =
        format!("this is a file of {format}: read it with `{program} FILE | cargo xtask parse -`");
    io::Error::new(ErrorKind::Unsupported, why)
}

/// What a file of xz holds: one stream or several, with zeros between them (The .xz File Format 1.2.1, sections 2 and 2.2).
struct Xz<R> {
    source: R,
    decoder: Box<XzDecoder<'static>>,
    is_between_streams: bool,
}

impl<R: BufRead> Xz<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            // As much as xz -9 asks for. A damaged file may ask for anything.
            decoder: XzDecoder::in_heap_with_alloc_dict_size(
                DICT_SIZE_PROFILE_0,
                DICT_SIZE_PROFILE_9,
            ),
            is_between_streams: true,
        }
    }

    /// Goes to the next stream, if there is one.
    fn is_at_stream(&mut self) -> io::Result<bool> {
        while self.is_between_streams {
            let input = self.source.fill_buf()?;
            if input.is_empty() {
                return Ok(false);
            }
            let zeros = input.iter().take_while(|byte| **byte == 0).count();
            self.is_between_streams = zeros == input.len();
            self.source.consume(zeros);
        }
        Ok(true)
    }
}

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        while !output.is_empty() && self.is_at_stream()? {
            let input = self.source.fill_buf()?;
            if input.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let done = self
                .decoder
                .decode(input, output)
                .map_err(|error| match error {
                    XzError::Sha256NotSupported => elsewhere("xz with SHA-256", "xzcat"),
                    error => io::Error::new(ErrorKind::InvalidData, error.to_string()),
                })?;
            self.source.consume(done.input_consumed());
            if done.is_end_of_stream() {
                self.decoder.reset();
                self.is_between_streams = true;
            }
            if done.output_produced() > 0 {
                return Ok(done.output_produced());
            }
            if !done.made_progress() {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// All that can be read, and how it ended.
    fn read(bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let mut text = Vec::new();
        let result = unpacked(bytes).and_then(|mut source| source.read_to_end(&mut text));
        (text, result.map(drop))
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_not_packed_stays_as_it_is() {
        for text in [&b""[..], b"a", b"messung: 123456789", b"\x1f", b"\xfd7zXZ"] {
            let (read, result) = read(text);
            assert_eq!(read, text);
            result.unwrap();
        }
    }

    const XZ: &[u8] = include_bytes!("../../../tests/logs/kern.log.2.xz");

    #[test]
    fn packed_logs_may_be_joined() {
        let log = [gzip(b"first "), gzip(b"second")].concat();
        assert_eq!(read(&log).0, b"first second");

        let (text, result) = read(XZ);
        result.unwrap();
        assert!(text.ends_with(b"\n"));
        for padding in [0, 4, 100_000] {
            let log = [XZ, &vec![0; padding], XZ].concat();
            let (joined, result) = read(&log);
            result.unwrap();
            assert_eq!(joined, [&text[..], &text].concat(), "{padding} zeros");
        }
    }

    #[test]
    fn a_cut_log_gives_what_is_there_and_an_error_of_its_own() {
        let text: Vec<_> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = gzip(&text);
        for length in [12, packed.len() / 2, packed.len() - 1] {
            let (read, result) = read(&packed[..length]);
            assert!(text.starts_with(&read));
            assert!(
                length < 1000 || read.len() > text.len() / 4,
                "{}",
                read.len()
            );
            assert_eq!(result.unwrap_err().raw_os_error(), None);
        }

        let text = read(XZ).0;
        for length in [6, XZ.len() / 2, XZ.len() - 1] {
            let (read, result) = read(&XZ[..length]);
            assert!(text.starts_with(&read));
            assert_eq!(result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_damaged_log_is_not_taken_for_a_whole_one() {
        let text = read(XZ).0;
        for at in 6..XZ.len() {
            let mut log = XZ.to_vec();
            log[at] ^= 0x10;
            let (read, result) = read(&log);
            // Of one byte no reader makes use.
            assert!(result.is_err() || read == text, "byte {at}");
            if let Err(error) = result {
                assert_eq!(error.raw_os_error(), None, "byte {at}");
            }
        }
    }

    #[test]
    fn other_packers_are_named() {
        let error = read(b"\x28\xb5\x2f\xfd....").1.unwrap_err();
        assert!(error.to_string().contains("zstdcat FILE"), "{error}");
        let error = read(b"\xfd7zXZ\0\0\x0a\xe1\xfb\x0c\xa1").1.unwrap_err();
        assert!(error.to_string().contains("`xzcat FILE"), "{error}");
    }
}
