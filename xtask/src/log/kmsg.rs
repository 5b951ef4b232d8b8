// SPDX-License-Identifier: GPL-2.0

//! The kernel's log as `/dev/kmsg` gives it: one record a read, with a sequence number, so that a loss shows.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// Longer than any record (the kernel's own limit is 2048 bytes since Linux 6.4, 8192 before).
const RECORD_BYTES: usize = 16 << 10;

/// A message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Level and facility, as in `<6>`.
    pub priority: u32,
    /// Counts all messages since boot.
    pub sequence: u64,
    /// When, in microseconds of the kernel's log clock.
    pub microseconds: u64,
    /// The message; it may hold line ends.
    pub text: String,
}

impl Record {
    /// Takes a record apart: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];TEXT`, then lines of properties that begin with a space.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let record = String::from_utf8_lossy(bytes);
        let (head, rest) = record.split_once(';')?;
        let mut fields = head.split(',');
        Some(Self {
            priority: fields.next()?.parse().ok()?,
            sequence: fields.next()?.parse().ok()?,
            microseconds: fields.next()?.parse().ok()?,
            text: unescape(rest.split('\n').next()?),
        })
    }

    /// As `dmesg --raw` writes it, each line of the message with the prefix of its own.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let seconds = self.microseconds / 1_000_000;
        let fraction = self.microseconds % 1_000_000;
        self.text
            .split('\n')
            .map(move |line| format!("<{}>[{seconds:5}.{fraction:06}] {line}", self.priority))
    }
}

/// Undoes the kernel's escapes, `\xNN` for what is not printable. What is not UTF-8 then is replaced.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(r"\x") {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let byte = rest
            .get(at + 2..at + 4)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let (bytes_taken, length) = byte.map_or((b'\\', 1), |byte| (byte, 4));
        bytes.push(bytes_taken);
        rest = &rest[at + length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads `/dev/kmsg` from the oldest message that is still there.
pub struct Reader {
    file: File,
    expected: Option<u64>,
    lost: u64,
}

impl Reader {
    /// Opens the log.
    ///
    /// # Errors
    ///
    /// There is no `/dev/kmsg`, or we may not read it.
    pub fn open() -> Result<Self> {
        let file = rustix::fs::open(
            "/dev/kmsg",
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(File::from)
        .context("cannot open /dev/kmsg to read the kernel's log")?;
        Ok(Self {
            file,
            expected: None,
            lost: 0,
        })
    }

    /// Keeps others who ask so from reading along, as long as this lives: who inserts the module does. Gives whether nobody else had done
    /// it before.
    ///
    /// # Errors
    ///
    /// The system knows no such locks.
    pub fn lock(&self) -> Result<bool> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error).context("cannot lock /dev/kmsg"),
        }
    }

    /// All messages up to now.
    ///
    /// # Errors
    ///
    /// The log cannot be read.
    pub fn drain(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut buffer = vec![0; RECORD_BYTES];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(records),
                Ok(length) => {
                    if let Some(record) = Record::parse(&buffer[..length]) {
                        self.lost += gap(self.expected, record.sequence);
                        self.expected = Some(record.sequence + 1);
                        records.push(record);
                    }
                }
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::AGAIN) => return Ok(records),
                    // Messages were overwritten before we came; the sequence numbers will tell how many.
                    Some(Errno::PIPE | Errno::INTR) => {}
                    _ => return Err(error).context("cannot read the kernel's log from /dev/kmsg"),
                },
            }
        }
    }

    /// Messages that were overwritten before they could be read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// To wait for the next message.
impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How many messages lie between the expected one and the one that came.
fn gap(expected: Option<u64>, came: u64) -> u64 {
    expected.map_or(0, |expected| came.saturating_sub(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_records_apart() {
        let record = Record::parse(
            b"6,339,5140900,-,caller=T1;messung: hello; you\n SUBSYSTEM=acpi\n DEVICE=+acpi:1\n",
        )
        .unwrap();
        assert_eq!(
            record,
            Record {
                priority: 6,
                sequence: 339,
                microseconds: 5_140_900,
                text: "messung: hello; you".to_owned(),
            }
        );
        assert_eq!(
            record.lines().collect::<Vec<_>>(),
            ["<6>[    5.140900] messung: hello; you"]
        );
    }

    #[test]
    fn escapes_are_undone() {
        for (escaped, text) in [
            (r"a\x0ab", "a\nb"),
            (r"\x5c\xc3\xa4", "\\ä"),
            (r"\x", r"\x"),
            (r"\xzz\x4", r"\xzz\x4"),
            (r"\x1ä", r"\x1ä"),
        ] {
            assert_eq!(unescape(escaped), text);
        }
    }

    #[test]
    fn each_line_of_a_message_gets_a_prefix() {
        let record = Record::parse(br"4,1,1000002,-;one\x0atwo").unwrap();
        assert_eq!(
            record.lines().collect::<Vec<_>>(),
            ["<4>[    1.000002] one", "<4>[    1.000002] two"]
        );
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [
            &b""[..],
            b"6,1,2",
            b"x,1,2,-;a",
            b"6,-1,2,-;a",
            b"\xff\xff;",
        ] {
            assert_eq!(Record::parse(bytes), None);
        }
    }

    #[test]
    fn gaps_are_counted() {
        assert_eq!(gap(None, 100), 0);
        assert_eq!(gap(Some(100), 100), 0);
        assert_eq!(gap(Some(100), 103), 3);
        assert_eq!(gap(Some(100), 5), 0);
    }
}
