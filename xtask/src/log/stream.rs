// SPDX-License-Identifier: GPL-2.0

//! Finds our messages in any stream of bytes, in bounded memory.
//!
//! A log need not be text: a crash leaves NULs in it, a serial line anything, and it may have no end of line at all.
//! Nearly all of a log is not ours: it is searched in large pieces, and only a line that holds our name is looked at.

use std::io::{self, Read};

use memchr::{memchr, memchr3, memmem, memrchr3};

use super::prefix;

/// How much is read at once. No more than this is held of a line.
const LONGEST: usize = 256 * 1024;

/// No message of ours is longer than this, prefix included.
const MESSAGE: usize = 4 * 1024;

/// No message of ours takes more than this as an array of bytes, indented.
const ARRAY: usize = 32 * 1024;

/// A word that each of our lines holds; shorter than the marker, since `grep --color` puts something between.
const WORD: &[u8] = b"messung";

/// What stands before a message that journald writes as an array of bytes. Our name cannot be seen in it.
const KEY: &[u8] = b"MESSAGE\"";

/// What ends a line: NULs stand between lines where a crash cut a log, and serial lines end in all sorts of CR and LF.
const ENDS: [u8; 3] = [b'\n', b'\r', 0];

/// Calls `found` with each message of ours, in the order of the stream.
///
/// # Errors
///
/// When the source cannot be read. What came before has been found.
pub fn messages(mut source: impl Read, mut found: impl FnMut(&[u8])) -> io::Result<()> {
    let mut scanner = Scanner::default();
    let result = loop {
        match scanner.read(&mut source, &mut found) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    scanner.finish(&mut found);
    result
}

/// Finds messages in a stream that comes bit by bit.
pub struct Scanner {
    buffer: Vec<u8>,
    /// How much of the buffer waits for the end of its line.
    pending: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            buffer: vec![0; LONGEST],
            pending: 0,
        }
    }
}

impl Scanner {
    /// Reads once, and calls `found` with the messages whose lines are complete. Gives how many bytes came: 0 at the
    /// end of the source.
    ///
    /// # Errors
    ///
    /// When the source cannot be read.
    pub fn read(
        &mut self,
        source: &mut impl Read,
        found: &mut impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let read = source.read(&mut self.buffer[self.pending..])?;
        let filled = self.pending + read;
        let lines = last_end(&self.buffer[..filled]).unwrap_or(0);
        let open = ARRAY.saturating_sub(filled - lines);
        let mut used = messages_of(&self.buffer[..lines], open, found);
        if used == 0 && filled == self.buffer.len() {
            // What is not complete by now is too long to be ours, but a message may begin near its end.
            used = filled - MESSAGE;
        }
        self.buffer.copy_within(used..filled, 0);
        self.pending = filled - used;
        Ok(read)
    }

    /// Takes what is left as a line: there comes no more.
    pub fn finish(&mut self, found: &mut impl FnMut(&[u8])) {
        messages_of(&self.buffer[..self.pending], 0, found);
        self.pending = 0;
    }
}

/// Where the last line ends that is complete.
fn last_end(bytes: &[u8]) -> Option<usize> {
    let [a, b, c] = ENDS;
    memrchr3(a, b, c, bytes).map(|end| end + 1)
}

/// Calls `found` with the messages in some bytes that end where a line ends. Gives how many bytes are done with: all,
/// but for an array of bytes that goes on, if that begins within the last `open` bytes.
fn messages_of(bytes: &[u8], open: usize, found: &mut impl FnMut(&[u8])) -> usize {
    let mut word = find_from(bytes, 0, WORD);
    let mut key = find_from(bytes, 0, KEY);
    loop {
        match (word, key) {
            (Some(at), key) if key.is_none_or(|key| at < key) => {
                let line = line_around(bytes, at);
                message_of(&bytes[line.clone()], found);
                word = find_from(bytes, line.end, WORD);
            }
            (_, Some(at)) => {
                let after = at + KEY.len();
                match array(&bytes[after..]) {
                    Array::Open if bytes.len() - at <= open => return at,
                    Array::Open | Array::None => {}
                    Array::Of(text) => {
                        for line in text.split(|byte| ENDS.contains(byte)) {
                            message_of(line, found);
                        }
                    }
                }
                key = find_from(bytes, after, KEY);
            }
            _ => return bytes.len(),
        }
    }
}

/// Calls `found` with the message of a line.
fn message_of(line: &[u8], found: &mut impl FnMut(&[u8])) {
    if let Some(message) = prefix::message(&prefix::without_escapes(line)) {
        found(&message);
    }
}

/// The line that holds a place.
fn line_around(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let [a, b, c] = ENDS;
    let end = memchr3(a, b, c, &bytes[at..]).map_or(bytes.len(), |end| at + end);
    last_end(&bytes[..at]).unwrap_or(0)..end
}

/// What follows a key.
enum Array {
    /// Something else than an array of bytes.
    None,
    /// An array without its end.
    Open,
    /// An array of these bytes.
    Of(Vec<u8>),
}

/// Reads an array of bytes, ` : [ 109, 101 ]`.
fn array(bytes: &[u8]) -> Array {
    let Some(numbers) = bytes
        .trim_ascii_start()
        .strip_prefix(b":")
        .and_then(|rest| rest.trim_ascii_start().strip_prefix(b"["))
    else {
        return Array::None;
    };
    let Some(end) = memchr(b']', numbers) else {
        return Array::Open;
    };
    let read = |number: &[u8]| std::str::from_utf8(number.trim_ascii()).ok()?.parse().ok();
    numbers[..end]
        .split(|&byte| byte == b',')
        .map(read)
        .collect::<Option<_>>()
        .map_or(Array::None, Array::Of)
}

fn find_from(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    find(&bytes[from..], needle).map(|at| from + at)
}

/// Where `needle` first stands in `haystack`.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        messages(bytes, |message| {
            all.push(String::from_utf8_lossy(message).into_owned());
        })
        .unwrap();
        all
    }

    #[test]
    fn finds_messages_between_anything() {
        assert_eq!(all(b""), [""; 0]);
        assert_eq!(all(b"messung: a"), ["messung: a"]);
        assert_eq!(
            all(b"x\n[    1.0] messung: a\r\n\0\0\0messung: b\0\xff\xfe\rmessung: c\n\nmessung: d"),
            ["messung: a", "messung: b", "messung: c", "messung: d"]
        );
        assert_eq!(
            all(b"\x1b[01;31m\x1b[Kmessung\x1b[m\x1b[K: [1/14]\n"),
            ["messung: [1/14]"]
        );
    }

    /// A source that gives no more than so many bytes at once.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(buffer.len());
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn arrays_of_bytes_are_read() {
        let numbers = |separator: &str| {
            let numbers: Vec<_> = b"messung: a".iter().map(ToString::to_string).collect();
            numbers.join(separator)
        };
        for log in [
            format!("{{\"MESSAGE\":[{}],\"PRIORITY\":\"7\"}}\n", numbers(",")),
            format!("{{ \"MESSAGE\" : [ {} ] }}\n", numbers(", ")),
            format!(
                "{{\n\t\"MESSAGE\" : [\n\t\t{}\n\t]\n}}\n",
                numbers(",\n\t\t")
            ),
        ] {
            assert_eq!(all(log.as_bytes()), ["messung: a"], "{log}");
            let mut found = 0;
            messages(Slowly(log.as_bytes(), 1), |_| found += 1).unwrap();
            assert_eq!(found, 1, "{log}");
        }
        for log in [
            format!("{{\"MESSAGE\":[{},256]}}\n", numbers(",")),
            format!("{{\"OTHER\":[{}]}}\n", numbers(",")),
            format!("{{\"MESSAGE\":[{}", numbers(",")),
            "\"MESSAGE\"".to_owned(),
        ] {
            assert_eq!(all(log.as_bytes()), [""; 0], "{log}");
        }
        // One that never ends hides nothing of what follows it.
        for numbers in [0, MESSAGE, ARRAY, LONGEST] {
            let open = format!(
                "\"MESSAGE\":[\nmessung: a\n{}\nmessung: b\n",
                "1,".repeat(numbers)
            );
            assert_eq!(
                all(open.as_bytes()),
                ["messung: a", "messung: b"],
                "{numbers}"
            );
        }
    }

    #[test]
    fn lines_of_any_length_hide_nothing() {
        for length in [
            0,
            1,
            MESSAGE,
            LONGEST - 20,
            LONGEST - 10,
            LONGEST - 1,
            LONGEST,
            LONGEST + 1,
            2 * LONGEST,
            2 * LONGEST - MESSAGE,
            5 * LONGEST + 7,
        ] {
            for end in ["\n", "\0", "[    1.000000] "] {
                let mut log = vec![b'x'; length];
                log.extend_from_slice(end.as_bytes());
                log.extend_from_slice(b"messung: a\nmessung: b");
                assert_eq!(all(&log), ["messung: a", "messung: b"], "{length} {end:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_make_the_same_messages(size in 1_usize..200) {
            let log = b"x\n[    1.0] messung: a\r\n\0\0messung: b\xffy\n{\"MESSAGE\":\"messung: c\"}\nmessung: d";
            let mut pieces = Vec::new();
            messages(Slowly(log, size), |message| {
                pieces.push(String::from_utf8_lossy(message).into_owned());
            }).unwrap();
            prop_assert_eq!(pieces, all(log));
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            all(&bytes);
        }

        #[test]
        fn bytes_around_whole_lines_change_nothing(
            before in proptest::collection::vec(any::<u8>(), 0..300),
            after in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let log = [&before, &b"\n[    1.0] messung: a\n"[..], &after].concat();
            prop_assert_eq!(all(&log), ["messung: a"]);
        }
    }
}
