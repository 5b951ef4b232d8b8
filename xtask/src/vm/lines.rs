// SPDX-License-Identifier: GPL-2.0

//! Lines out of bytes that arrive piece by piece.

/// A longer line is cut: a guest that has gone mad must not fill the memory.
const LONGEST: usize = 64 << 10;

/// Cuts bytes into lines, without their ends (`\n`, `\r\n`).
#[derive(Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes, gives the lines that are complete now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() > LONGEST {
                lines.push(without_end(std::mem::take(&mut self.partial)));
            }
        }
        lines
    }

    /// The last line, if it has no end.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        (!self.partial.is_empty()).then(|| without_end(std::mem::take(&mut self.partial)))
    }
}

fn without_end(mut line: Vec<u8>) -> Vec<u8> {
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    while line.last() == Some(&b'\r') {
        line.pop();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_when_they_are_complete() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"on"), Vec::<Vec<u8>>::new());
        assert_eq!(lines.push(b"e\r\n\ntw"), [b"one".to_vec(), vec![]]);
        assert_eq!(lines.finish(), Some(b"tw".to_vec()));
        assert_eq!(lines.finish(), None);
    }

    #[test]
    fn endless_lines_are_cut() {
        let mut lines = Lines::default();
        let cut = lines.push(&vec![b'x'; 3 * LONGEST]);
        assert_eq!(cut.len(), 1);
        assert_eq!(lines.finish(), None);
    }
}
