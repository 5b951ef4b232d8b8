// SPDX-License-Identifier: GPL-2.0

//! Tells of runs while their log grows: each row when it comes, each run when it ends.

use abi::decode::{self, Record};
use abi::record::People;

use super::assemble::{Assembler, Log};
use super::{people, prefix};
use crate::result::{Identity, Run};

/// What happened.
#[derive(Debug, PartialEq)]
pub enum News {
    /// A row was measured, as the module tells it to people.
    Row(String),
    /// A run ended.
    Run(Box<Run>),
}

/// Takes messages, gives news.
#[derive(Default)]
pub struct Follower {
    assembler: Assembler,
    /// Rows of the plan, where known.
    rows: u32,
    /// Lines that were told since a run ended: a row stands in a line and in a record.
    told: Vec<String>,
}

impl Follower {
    /// What comes from now on is in another log.
    pub fn next_log(&mut self) {
        self.assembler.next_log();
    }

    /// Takes a message, [`prefix::MARKER`] included, and calls `tell` with what it brings.
    pub fn take(&mut self, message: &[u8], tell: &mut impl FnMut(News)) {
        self.assembler.take(message);
        let Some(text) = message
            .strip_prefix(prefix::MARKER)
            .and_then(|text| std::str::from_utf8(text).ok())
        else {
            return;
        };
        if let Ok((envelope, record)) = decode::decode(text) {
            let identity = Identity {
                id: envelope.run,
                stamp: envelope.stamp,
            };
            match record {
                _ if !self.assembler.has(&identity) => {}
                Record::Begin(begin) => self.rows = begin.rows,
                Record::Row(row) => {
                    let rows = self.rows.max(row.index.saturating_add(1));
                    self.tell_row(People { row: &row, rows }.to_string(), tell);
                }
                Record::End(_) => {
                    let runs = self.assembler.take_out(&identity);
                    self.end(runs, tell);
                }
                _ => {}
            }
        } else if people::place(text).is_some() {
            self.tell_row(text.to_owned(), tell);
        } else if people::is_end(text) {
            let runs = self.assembler.take_out_only();
            self.end(runs, tell);
        }
    }

    fn tell_row(&mut self, text: String, tell: &mut impl FnMut(News)) {
        if !self.told.contains(&text) {
            tell(News::Row(text.clone()));
            self.told.push(text);
        }
    }

    fn end(&mut self, runs: impl IntoIterator<Item = Run>, tell: &mut impl FnMut(News)) {
        for run in runs {
            self.told.clear();
            tell(News::Run(Box::new(run)));
        }
    }

    /// The runs that have not ended.
    pub fn finish(self) -> Log {
        self.assembler.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::stream;

    /// What is told of a log, rows in short.
    fn news(log: &str) -> Vec<String> {
        let mut follower = Follower::default();
        let mut all = Vec::new();
        let mut tell = |news| {
            all.push(match news {
                News::Row(text) => text.split(' ').next().unwrap_or_default().to_owned(),
                News::Run(run) => format!("{} {}", run.run.id, run.complete),
            });
        };
        stream::messages(log.as_bytes(), |message| follower.take(message, &mut tell)).unwrap();
        all.extend(
            follower
                .finish()
                .runs
                .iter()
                .map(|run| format!("left {}", run.run.id)),
        );
        all
    }

    fn saved(name: &str) -> String {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/logs");
        std::fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn rows_are_told_as_they_come_and_runs_when_they_end() {
        assert_eq!(
            news(&saved("dmesg.txt")),
            ["[1/3]", "[2/3]", "[3/3]", "7 true"]
        );
        assert_eq!(
            news(&saved("dmesg-two-runs.log")),
            [
                "[1/3]", "[2/3]", "[3/3]", "7 true", "[1/3]", "[2/3]", "[3/3]", "8 true"
            ]
        );
    }

    #[test]
    fn a_row_is_told_whether_its_line_or_its_record_is_there() {
        let of = |keep: &dyn Fn(&str) -> bool| {
            let log = saved("dmesg.txt");
            let lines = log.split_inclusive('\n').filter(|line| keep(line));
            news(&lines.collect::<String>())
        };
        assert_eq!(
            of(&|line| line.contains('@')),
            ["[1/3]", "[2/3]", "[3/3]", "7 true"]
        );
        assert_eq!(
            of(&|line| !line.contains('@')),
            ["[1/3]", "[2/3]", "[3/3]", "0 false"]
        );
        // The line that ends the run stands in for its last record.
        assert_eq!(
            of(&|line| !line.contains(" end records")),
            ["[1/3]", "[2/3]", "[3/3]", "7 false"]
        );
        assert_eq!(
            of(&|line| !line.contains(" end ") && !line.contains("done: ")),
            ["[1/3]", "[2/3]", "[3/3]", "left 7"]
        );
    }

    #[test]
    fn what_ended_does_not_begin_again() {
        let log = saved("dmesg.txt");
        let records: String = log
            .split_inclusive('\n')
            .filter(|line| line.contains('@'))
            .collect();
        assert_eq!(
            news(&format!("{log}{records}")),
            ["[1/3]", "[2/3]", "[3/3]", "7 true"]
        );
    }
}
