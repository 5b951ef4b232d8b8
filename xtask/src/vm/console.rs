// SPDX-License-Identifier: GPL-2.0

//! What the lines of a guest's console tell.

use std::collections::VecDeque;
use std::time::Duration;

use crate::guest::{Phase, announced, stamped};
use crate::log::people;

/// Lines kept for a message.
const TAIL: usize = 25;

/// Lines of a kernel that is in no state to measure anything, and what they mean.
const CRASHES: &[(&str, &str)] = &[
    (
        "rust_kernel: panicked at",
        "Rust code in the kernel panicked",
    ),
    ("Kernel panic - not syncing", "the kernel panicked"),
    ("kernel BUG at", "the kernel hit a BUG"),
    ("BUG: soft lockup", "a CPU was locked up"),
    ("hard LOCKUP", "a CPU was locked up"),
    ("detected stalls on CPUs", "RCU stalled"),
    ("self-detected stall on CPU", "RCU stalled"),
    ("Oops: ", "the kernel hit an Oops"),
    ("BUG: ", "the kernel hit a BUG"),
    (
        "general protection fault",
        "the kernel hit a protection fault",
    ),
];

/// What a line means for the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A phase begins.
    Phase(Phase),
    /// What time it is in the guest, on CLOCK_MONOTONIC.
    Stamp(Duration),
    /// So many of all rows are measured.
    Row(u64, u64),
    /// The kernel has crashed.
    Crash(&'static str),
    /// The kernel warns.
    Warning,
}

/// What a line means, if anything.
pub fn sign(line: &str) -> Option<Sign> {
    if let Some(phase) = announced(line) {
        return Some(Sign::Phase(phase));
    }
    if let Some(stamp) = stamped(line) {
        return Some(Sign::Stamp(stamp));
    }
    if let Some((_, meaning)) = CRASHES.iter().find(|(text, _)| has_words(line, text)) {
        return Some(Sign::Crash(meaning));
    }
    if is_warning(line) {
        return Some(Sign::Warning);
    }
    row(line).map(|(done, total)| Sign::Row(done, total))
}

/// Whether the kernel found itself in a state it should not be in. Linux 7.3 writes `WARNING: FILE:LINE at FUNCTION, CPU#0: …`, older
/// ones `WARNING: CPU: 0 PID: …`; lockdep and RCU have words of their own. Other lines with that word are mere advice.
fn is_warning(line: &str) -> bool {
    line.split_once("WARNING: ").is_some_and(|(_, what)| {
        what.contains("CPU") || what.starts_with("possible ") || what.starts_with("suspicious ")
    })
}

/// Whether a text stands in a line, not as the end of another word.
fn has_words(line: &str, text: &str) -> bool {
    line.match_indices(text)
        .any(|(at, _)| !line[..at].ends_with(char::is_alphanumeric))
}

/// `messung: [2/14] …`
fn row(line: &str) -> Option<(u64, u64)> {
    let (_, message) = line.split_once("messung: ")?;
    people::place(message)
}

/// Everything a console has told so far.
#[derive(Default)]
pub struct Console {
    tail: VecDeque<String>,
    crash: Option<&'static str>,
    warnings: Vec<String>,
}

impl Console {
    /// Takes the next line.
    pub fn take(&mut self, line: &str) -> Option<Sign> {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
        let sign = sign(line);
        match sign {
            // The first one is the cause, the rest are its consequences.
            Some(Sign::Crash(meaning)) => {
                self.crash.get_or_insert(meaning);
            }
            Some(Sign::Warning) if self.warnings.len() < TAIL => {
                self.warnings.push(line.to_owned());
            }
            _ => {}
        }
        sign
    }

    /// How the kernel crashed.
    pub fn crash(&self) -> Option<&'static str> {
        self.crash
    }

    /// Where the kernel warned.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The last lines, as the end of a message.
    pub fn tail(&self) -> String {
        if self.tail.is_empty() {
            return "\nits console stayed empty".to_owned();
        }
        self.tail
            .iter()
            .fold("\nthe console's last lines:".to_owned(), |text, line| {
                text + "\n  " + line
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_read() {
        use Sign::{Crash, Row, Warning};
        for (line, expected) in [
            ("[    0.000000] Linux version 7.3.4", None),
            (
                "[    1.0] messung-init: now measuring",
                Some(Sign::Phase(Phase::Measure)),
            ),
            (
                "[  12.3] messung: [2/14] udelay 15 us, irqoff: shortest: 15.340",
                Some(Row(2, 14)),
            ),
            ("[  12.3] messung: [x/14] udelay", None),
            (
                "[    1.5] Kernel panic - not syncing: VFS: Unable to mount root fs",
                Some(Crash("the kernel panicked")),
            ),
            (
                "[    1.5] Oops: 0000 [#1] SMP",
                Some(Crash("the kernel hit an Oops")),
            ),
            (
                "[    1.5] BUG: kernel NULL pointer dereference, address: 0",
                Some(Crash("the kernel hit a BUG")),
            ),
            (
                "[   28.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
                Some(Crash("a CPU was locked up")),
            ),
            (
                "[   60.0] rcu: INFO: rcu_preempt self-detected stall on CPU",
                Some(Crash("RCU stalled")),
            ),
            (
                "[    3.0] rust_kernel: panicked at messung.rs:7:5:",
                Some(Crash("Rust code in the kernel panicked")),
            ),
            ("[    3.0] WARNING: CPU: 0 PID: 1 at x.c:1", Some(Warning)),
            (
                "[    3.0] WARNING: kernel/time/timer.c:12 at f+0x1/0x2, CPU#0: insmod/1",
                Some(Warning),
            ),
            ("[    3.0] WARNING: suspicious RCU usage", Some(Warning)),
            (
                "[    0.7] Spectre V2 : WARNING: Unprivileged eBPF is enabled",
                None,
            ),
            ("[    0.1] DEBUG: nothing", None),
        ] {
            assert_eq!(sign(line), expected, "{line}");
        }
    }

    #[test]
    fn the_first_crash_is_the_cause() {
        let mut console = Console::default();
        console.take("BUG: kernel NULL pointer dereference");
        console.take("Kernel panic - not syncing: Fatal exception");
        assert_eq!(console.crash(), Some("the kernel hit a BUG"));
        assert!(console.tail().contains("Fatal exception"));
    }
}
