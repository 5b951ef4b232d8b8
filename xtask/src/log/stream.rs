// SPDX-License-Identifier: GPL-2.0

//! Finds our messages in any stream of bytes, in bounded memory.
//!
//! A log need not be text: a crash leaves NULs in it, a serial line anything, and it may have no end of line at all.

use std::io::{self, BufRead, BufReader, Read};

use super::prefix;

/// No more than this is held of a line.
const LONGEST: usize = 64 * 1024;

/// No message of ours is longer than this, prefix included.
const MESSAGE: usize = 4 * 1024;

/// A word that each of our lines holds; shorter than the marker, since `grep --color` puts something between.
const WORD: &[u8] = b"messung";

/// Calls `found` with each message of ours, in the order of the stream.
///
/// # Errors
///
/// When the source cannot be read.
pub fn messages(source: impl Read, mut found: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(LONGEST, source);
    let mut line = Vec::with_capacity(LONGEST);
    loop {
        let room = LONGEST - line.len();
        let read = reader
            .by_ref()
            .take(room as u64)
            .read_until(b'\n', &mut line)?;
        if read == 0 || line.ends_with(b"\n") {
            messages_of(&line, &mut found);
            line.clear();
            if read == 0 {
                return Ok(());
            }
        } else if line.len() == LONGEST {
            let complete = line
                .iter()
                .rposition(is_end)
                .map_or(0, |position| position + 1);
            messages_of(&line[..complete], &mut found);
            // What is not complete by now is too long to be ours, but a message may begin near its end.
            line.drain(..complete.max(LONGEST - MESSAGE));
        }
    }
}

/// Calls `found` with the messages in some bytes that end where a line ends.
fn messages_of(bytes: &[u8], found: &mut impl FnMut(&[u8])) {
    if find(bytes, WORD).is_none() {
        return;
    }
    for line in bytes.split(is_end) {
        if let Some(message) = prefix::message(&prefix::without_escapes(line)) {
            found(message);
        }
    }
}

/// What ends a line: NULs stand between lines where a crash cut a log, and serial lines end in all sorts of CR and LF.
fn is_end(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0)
}

/// Where `needle` first stands in `haystack`. Looks for its last byte first, which the standard library does fast
/// also in a debug build.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let last = *needle.last()?;
    let mut seen = 0;
    while seen < haystack.len() {
        // Reading from a slice does not fail.
        seen += (&haystack[seen..]).skip_until(last).ok()?;
        if haystack[..seen].ends_with(needle) {
            return Some(seen - needle.len());
        }
    }
    None
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
        fn find_agrees_with_the_naive_search(haystack in "[abg]{0,40}", needle in "[abg]{1,3}") {
            prop_assert_eq!(find(haystack.as_bytes(), needle.as_bytes()), haystack.find(&needle));
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
