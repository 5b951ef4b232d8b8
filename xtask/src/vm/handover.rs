// SPDX-License-Identifier: GPL-2.0

//! How a guest hands documents to the host over a serial line, so that neither a lost byte nor an early power-off goes unnoticed.
//!
//! A document is cut into frames, one a line: `messung-frame NUMBER DOCUMENT LENGTH CHECKSUM PAYLOAD`. Numbers run over all
//! frames from 0; the length is that of the payload as it stands there; the checksum covers all but itself and the mark. The
//! payload is a piece of the document, with what is not printable escaped. The last frame is of the document `end` and
//! holds the length and the checksum of all documents together. Frames can be told from other lines, so one line can carry a console as well.

use std::io::{self, Write};

/// What a frame's line holds before its number.
const MARK: &str = "messung-frame ";

/// Bytes of a document in one frame.
const CHUNK: usize = 512;

/// The document that ends a handover.
const END: &str = "end";

/// What is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// A [`crate::guest::Report`] as JSON.
    Report,
    /// The kernel's log.
    Log,
}

impl Document {
    const fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Log => "log",
        }
    }
}

/// Writes documents and the end mark. The caller drains the line.
///
/// # Errors
///
/// The line refuses them.
pub fn write(documents: &[(Document, &[u8])], line: &mut impl Write) -> io::Result<()> {
    let mut number = 0;
    let mut total = Total::default();
    for (document, bytes) in documents {
        for chunk in bytes.chunks(CHUNK) {
            line.write_all(frame(number, document.name(), &escape(chunk)).as_bytes())?;
            total.add(chunk);
            number += 1;
        }
    }
    line.write_all(frame(number, END, &total.text()).as_bytes())
}

/// Whether a line is a frame, whole or not.
#[cfg(feature = "host")]
pub fn is_frame(line: &str) -> bool {
    line.starts_with(MARK)
}

/// The line of a frame.
fn frame(number: u32, document: &str, payload: &str) -> String {
    let length = payload.len();
    let checksum = frame_checksum(number, document, payload);
    format!("{MARK}{number} {document} {length} {checksum:08x} {payload}\n")
}

/// The checksum of a frame.
fn frame_checksum(number: u32, document: &str, payload: &str) -> u32 {
    let mut checksum = Crc32::new();
    checksum.update(format!("{number} {document} {} ", payload.len()).as_bytes());
    checksum.update(payload.as_bytes());
    checksum.value()
}

/// Length and checksum of all documents.
struct Total {
    bytes: u64,
    checksum: Crc32,
}

impl Default for Total {
    fn default() -> Self {
        Self {
            bytes: 0,
            checksum: Crc32::new(),
        }
    }
}

impl Total {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.checksum.update(chunk);
    }

    fn text(&self) -> String {
        format!("{} {:08x}", self.bytes, self.checksum.value())
    }
}

/// Printable ASCII as it is, all else as `\xNN`. Spaces are kept, since a frame's length tells how many there are.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str(r"\n"),
            b'\\' => text.push_str(r"\\"),
            b' '..=b'~' => text.push(byte.into()),
            _ => text.push_str(&format!(r"\x{byte:02x}")),
        }
    }
    text
}

/// CRC-32 as in Ethernet and zip: no single burst of up to 32 bits goes unnoticed.
struct Crc32(u32);

impl Crc32 {
    const fn new() -> Self {
        Self(!0)
    }

    fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 ^= u32::from(byte);
            for _ in 0..8 {
                let carry = self.0 & 1;
                self.0 = (self.0 >> 1) ^ (0xedb8_8320 & carry.wrapping_neg());
            }
        }
    }

    const fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(feature = "host")]
pub use receive::{Received, Receiver};

#[cfg(feature = "host")]
mod receive {
    use anyhow::{Result, bail, ensure};

    use super::{Document, END, MARK, Total, frame_checksum};
    use crate::vm::lines::Lines;

    /// No guest has this much to say; a broken one must not fill the memory.
    const MAX_BYTES: u64 = 256 << 20;

    /// Everything that was handed over, checked.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Received {
        /// The guest's report.
        pub report: String,
        /// The kernel's log.
        pub log: String,
    }

    /// Takes what arrives over the line, piece by piece.
    #[derive(Default)]
    pub struct Receiver {
        lines: Lines,
        next: u32,
        total: Total,
        report: Vec<u8>,
        log: Vec<u8>,
        end: Option<String>,
        /// The first thing that was wrong.
        problem: Option<String>,
    }

    impl Receiver {
        /// Takes the next bytes of the line.
        pub fn push(&mut self, bytes: &[u8]) {
            for line in self.lines.push(bytes) {
                self.take(&line);
            }
        }

        /// Whether the end mark has arrived.
        pub fn has_ended(&self) -> bool {
            self.end.is_some()
        }

        /// The documents, if all of them arrived as they were sent.
        ///
        /// # Errors
        ///
        /// Names the first frame that is damaged or missing.
        pub fn finish(mut self) -> Result<Received> {
            if let Some(rest) = self.lines.finish() {
                self.take(&rest);
            }
            if let Some(problem) = self.problem {
                bail!("what the guest handed over is damaged: {problem}");
            }
            let Some(end) = self.end else {
                if self.next == 0 {
                    bail!("the guest handed nothing over");
                }
                bail!(
                    "the guest's handover stops after {} frames, before its end mark",
                    self.next
                );
            };
            ensure!(
                end == self.total.text(),
                "what the guest handed over is damaged: length and checksum of all should be {end}, and are {}",
                self.total.text()
            );
            Ok(Received {
                report: text(self.report, "report")?,
                log: text(self.log, "log")?,
            })
        }

        /// Takes a line; one that is no frame is somebody else's.
        fn take(&mut self, line: &[u8]) {
            let Some(at) = find(line, MARK.as_bytes()) else {
                return;
            };
            if let Err(problem) = self.take_frame(&line[at + MARK.len()..]) {
                self.problem.get_or_insert_with(|| problem.to_string());
                // Go on behind the hole: an end mark shall still end the wait.
                self.next += 1;
            }
        }

        fn take_frame(&mut self, frame: &[u8]) -> Result<()> {
            let next = self.next;
            let Some((number, document, payload)) = parse(frame) else {
                bail!("frame {next} fails its checksum");
            };
            if number != next {
                self.next = number;
                self.problem.get_or_insert_with(|| {
                    if number > next {
                        format!("frame {next} is missing (the next one to arrive was {number})")
                    } else {
                        format!("frame {number} came again where {next} was due")
                    }
                });
            }
            self.next += 1;
            if document == END {
                self.end = Some(payload.to_owned());
                return Ok(());
            }
            let bytes = unescape(payload);
            self.total.add(&bytes);
            if self.total.bytes > MAX_BYTES {
                bail!("it is larger than {} MiB", MAX_BYTES >> 20);
            }
            if document == Document::Report.name() {
                self.report.extend(bytes);
            } else if document == Document::Log.name() {
                self.log.extend(bytes);
            } else {
                self.problem
                    .get_or_insert_with(|| format!("it holds an unknown document, {document:?}"));
            }
            Ok(())
        }
    }

    /// A frame's number, document and payload, if length and checksum hold.
    fn parse(frame: &[u8]) -> Option<(u32, &str, &str)> {
        let frame = std::str::from_utf8(frame).ok()?;
        let mut words = frame.splitn(5, ' ');
        let number = words.next()?.parse().ok()?;
        let document = words.next()?;
        let length: usize = words.next()?.parse().ok()?;
        let checksum = u32::from_str_radix(words.next()?, 16).ok()?;
        let payload = words.next()?;
        (payload.len() == length && checksum == frame_checksum(number, document, payload))
            .then_some((number, document, payload))
    }

    /// Undoes [`super::escape`]. The checksum has vouched for the text.
    fn unescape(text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('n') {
                bytes.push(b'\n');
                rest = after;
            } else if let Some((Some(byte), after)) = rest
                .strip_prefix('x')
                .and_then(|hex| hex.split_at_checked(2))
                .map(|(hex, after)| (u8::from_str_radix(hex, 16).ok(), after))
            {
                bytes.push(byte);
                rest = after;
            } else {
                bytes.push(b'\\');
                rest = rest.strip_prefix('\\').unwrap_or(rest);
            }
        }
        bytes.extend_from_slice(rest.as_bytes());
        bytes
    }

    fn text(bytes: Vec<u8>, what: &str) -> Result<String> {
        String::from_utf8(bytes)
            .map_err(|_| anyhow::anyhow!("the {what} that the guest handed over is not UTF-8"))
    }

    fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
        text.windows(wanted.len()).position(|place| place == wanted)
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;

        use super::*;
        use crate::vm::handover::{Crc32, escape, write};

        fn sent(report: &[u8], log: &[u8]) -> Vec<u8> {
            let mut line = Vec::new();
            write(
                &[(Document::Report, report), (Document::Log, log)],
                &mut line,
            )
            .unwrap();
            line
        }

        fn receive(line: &[u8]) -> Result<Received> {
            let mut receiver = Receiver::default();
            receiver.push(line);
            receiver.finish()
        }

        #[test]
        fn checksum_is_the_usual_one() {
            let mut checksum = Crc32::new();
            checksum.update(b"123456789");
            assert_eq!(checksum.value(), 0xcbf4_3926);
        }

        #[test]
        fn arrives_among_console_lines() {
            let mut line = b"[    0.5] booting\r\n".to_vec();
            let frames = String::from_utf8(sent(b"{}\n", b"<6>one\n<6>two \\x\n")).unwrap();
            for frame in frames.lines() {
                line.extend(format!("[    1.0] {frame}\r\nother\r\n").bytes());
            }
            let received = receive(&line).unwrap();
            assert_eq!(received.report, "{}\n");
            assert_eq!(received.log, "<6>one\n<6>two \\x\n");
        }

        #[test]
        fn says_what_is_missing() {
            let line = sent(&[b'a'; 2000], b"log");
            let text = String::from_utf8(line).unwrap();
            let without = |gone: &str| {
                text.lines()
                    .filter(|line| !line.starts_with(gone))
                    .fold(String::new(), |all, line| all + line + "\n")
            };
            for (gone, message) in [
                ("messung-frame 1 ", "frame 1 is missing"),
                ("messung-frame 5 ", "stops after 5 frames"),
                ("messung-frame", "nothing over"),
            ] {
                let error = receive(without(gone).as_bytes()).unwrap_err().to_string();
                assert!(error.contains(message), "{error}");
            }
        }

        #[test]
        fn an_end_mark_behind_a_hole_ends_the_wait() {
            let text = String::from_utf8(sent(&[b'a'; 2000], b"log")).unwrap();
            let mut receiver = Receiver::default();
            receiver.push(text.replacen("aaaa", "aaba", 1).as_bytes());
            assert!(receiver.has_ended());
            let error = receiver.finish().unwrap_err().to_string();
            assert!(error.contains("frame 0 fails its checksum"), "{error}");
        }

        proptest! {
            #[test]
            fn any_bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
                prop_assert_eq!(unescape(&escape(&bytes)), bytes);
            }

            #[test]
            fn text_arrives_however_it_is_cut(text in "\\PC*", piece in 1usize..100) {
                let line = sent(b"report", text.as_bytes());
                let mut receiver = Receiver::default();
                line.chunks(piece).for_each(|piece| receiver.push(piece));
                prop_assert!(receiver.has_ended());
                prop_assert_eq!(receiver.finish().unwrap().log, text);
            }

            #[test]
            fn no_flipped_bit_goes_unnoticed(place in any::<prop::sample::Index>(), bit in 0u8..8) {
                let mut line = sent(b"report", b"some kernel log\n");
                let place = place.index(line.len());
                line[place] ^= 1 << bit;
                // The last line end is nobody's loss.
                prop_assume!(place + 1 != line.len());
                // Hexadecimal letters mean the same in both cases.
                prop_assume!(bit != 5 || !line[place].is_ascii_hexdigit());
                prop_assert!(receive(&line).is_err());
            }
        }
    }
}
