// SPDX-License-Identifier: GPL-2.0

//! Rotated logs are often compressed. What a log is, its first bytes tell, not its name.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

/// More than any preset of xz asks for to read its files; a damaged file may ask for anything.
const MOST_MEMORY_KB: u32 = 128 * 1024;

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
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "this is a file of {format}: read it with `{program} FILE | cargo xtask parse -`"
            ),
        ));
    }
    let gzip = first.starts_with(b"\x1f\x8b");
    let xz = first.starts_with(b"\xfd7zXZ\0");
    let source = io::Cursor::new(first).chain(source);
    Ok(if gzip {
        Box::new(MultiGzDecoder::new(BufReader::new(source)))
    } else if xz {
        let source = BufReader::new(source);
        Box::new(XzReader::new_mem_limit(source, true, MOST_MEMORY_KB))
    } else {
        Box::new(source)
    })
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

    #[test]
    fn packed_logs_may_be_joined() {
        let log = [gzip(b"first "), gzip(b"second")].concat();
        assert_eq!(read(&log).0, b"first second");
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
    }

    #[test]
    fn other_packers_are_named() {
        let error = read(b"\x28\xb5\x2f\xfd....").1.unwrap_err();
        assert!(error.to_string().contains("zstdcat FILE"), "{error}");
    }
}
