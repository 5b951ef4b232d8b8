// SPDX-License-Identifier: GPL-2.0

//! What a check is, how one is run, and how all of them are counted.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::bench::Bench;

/// A check.
pub struct Check {
    /// What it checks; `FILTER` looks here.
    pub name: String,
    /// What it needs of the machine; it is skipped where that is missing.
    pub needs: Vec<Need>,
    /// Checks. What it gives is shown beside its name; may be empty.
    pub run: Function,
}

/// What a check does.
type Function = Box<dyn Fn(&Bench<'_>) -> Result<String>>;

/// A check, its needs as far as they are more than cargo.
pub fn check(
    name: impl Into<String>,
    needs: &[Need],
    run: impl Fn(&Bench<'_>) -> Result<String> + 'static,
) -> Check {
    Check {
        name: name.into(),
        needs: needs.to_vec(),
        run: Box::new(run),
    }
}

/// What a check may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Leave to boot virtual machines: no `--quick`.
    Guests,
    /// Minutes: `--long`.
    Patience,
    /// A kernel in the cache, or a network to fetch one from; and namespaces to build in.
    Kernels,
    /// A PC's userland in the cache, or a network to fetch one from.
    Userland,
    /// A firmware with Secure Boot in the cache, or a network to fetch one from.
    Firmware,
    /// A network.
    Network,
    /// To be root.
    Root,
    /// A program that answers to these arguments, and what to do where it does not.
    Program(&'static [&'static str], &'static str),
}

/// How a check ended.
#[derive(Debug)]
enum Ending {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// A check's name, how it ended, how long it took.
#[derive(Debug)]
pub struct Report {
    name: String,
    ending: Ending,
    elapsed: Duration,
}

/// Runs a check, if its needs are met.
pub fn run(check: &Check, bench: &Bench<'_>) -> Report {
    let start = Instant::now();
    let missing = check.needs.iter().find_map(|need| bench.missing(*need));
    let ending = match missing {
        Some(why) => Ending::Skipped(why),
        None => match (check.run)(bench) {
            Ok(note) => Ending::Passed(note),
            Err(error) => Ending::Failed(
                error
                    .chain()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(": "),
            ),
        },
    };
    Report {
        name: check.name.clone(),
        ending,
        elapsed: start.elapsed(),
    }
}

impl Report {
    /// The line for people and for CI.
    pub fn line(&self) -> String {
        let Self {
            name,
            ending,
            elapsed,
        } = self;
        let seconds = elapsed.as_secs_f64();
        match ending {
            Ending::Passed(note) if note.is_empty() => format!("ok  {name} ({seconds:.1} s)\n"),
            Ending::Passed(note) => format!("ok  {name}: {note} ({seconds:.1} s)\n"),
            Ending::Failed(why) => format!("FAILED {name}: {} ({seconds:.1} s)\n", why.trim_end()),
            Ending::Skipped(why) => format!("skipped {name}: {why}\n"),
        }
    }
}

/// How many checks ended how.
#[derive(Debug, Default)]
pub struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, report: &Report) {
        match report.ending {
            Ending::Passed(_) => self.passed += 1,
            Ending::Failed(_) => self.failed.push(report.name.clone()),
            Ending::Skipped(_) => self.skipped += 1,
        }
    }

    /// The last line.
    pub fn line(&self) -> String {
        let skipped = match self.skipped {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        format!(
            "{} passed, {} failed{skipped}\n",
            self.passed,
            self.failed.len()
        )
    }

    /// Why this is no success, if it is none. That nothing ran is none.
    pub fn verdict(&self) -> Result<(), String> {
        if !self.failed.is_empty() {
            return Err(format!("these checks failed: {}", self.failed.join(", ")));
        }
        if self.passed == 0 {
            return Err("no check ran".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ending: Ending) -> Report {
        Report {
            name: "a name".to_owned(),
            ending,
            elapsed: Duration::from_millis(3210),
        }
    }

    #[test]
    fn each_ending_has_its_line() {
        for (ending, line) in [
            (Ending::Passed(String::new()), "ok  a name (3.2 s)\n"),
            (
                Ending::Passed("7 tests".to_owned()),
                "ok  a name: 7 tests (3.2 s)\n",
            ),
            (
                Ending::Failed("it broke\n  here\n".to_owned()),
                "FAILED a name: it broke\n  here (3.2 s)\n",
            ),
            (
                Ending::Skipped("not root".to_owned()),
                "skipped a name: not root\n",
            ),
        ] {
            assert_eq!(report(ending).line(), line);
        }
    }

    #[test]
    fn failures_and_nothing_at_all_are_no_success() {
        let mut tally = Tally::default();
        assert!(tally.verdict().is_err());
        tally.count(&report(Ending::Skipped(String::new())));
        assert_eq!(tally.line(), "0 passed, 0 failed, 1 skipped\n");
        assert!(tally.verdict().is_err());
        tally.count(&report(Ending::Passed(String::new())));
        assert!(tally.verdict().is_ok());
        tally.count(&report(Ending::Failed(String::new())));
        assert_eq!(tally.line(), "1 passed, 1 failed, 1 skipped\n");
        assert_eq!(tally.verdict().unwrap_err(), "these checks failed: a name");
    }
}
