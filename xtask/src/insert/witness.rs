// SPDX-License-Identifier: GPL-2.0

//! What an insertion came to, on a PC as in a guest: the run in the kernel's log, completed with what the kernel says of itself, and
//! what is wrong.

use super::Ending;
use crate::log::assemble::Assembler;
use crate::log::environment::{self, TAINT_OF_OURS, taint_letters};
use crate::result::{Frequency, Run};

/// Frequencies that differ by less are not worth a word, in per cent.
const UNEVEN: u64 = 10;

/// Knows how things were before the insertion.
pub struct Witness {
    before: Seen,
}

/// What others may change while the module measures.
#[derive(Default)]
struct Seen {
    taint: Option<u64>,
    frequencies: Vec<Frequency>,
}

/// What came of an insertion.
#[derive(Debug, Default)]
pub struct Testimony {
    /// What was measured.
    pub run: Option<Run>,
    /// What is wrong with that, or why there is nothing.
    pub problems: Vec<String>,
}

impl Witness {
    /// Looks around, before the insertion.
    pub fn new() -> Self {
        Self {
            before: Seen::now(),
        }
    }

    /// Looks around after it. `messages` are the kernel's, `lost` is how many more there were, and the run is that with `id`, or the last one.
    pub fn testify<'a>(
        self,
        messages: impl Iterator<Item = &'a str>,
        id: Option<u32>,
        ending: Ending,
        lost: u64,
    ) -> Testimony {
        let run = find(messages, id).map(|mut run| {
            environment::complete(&mut run.environment);
            let after = Seen::now();
            run.disturbances.extend(changes(&self.before, &after));
            run.environment.taint_before = self.before.taint;
            run.environment.taint_after = after.taint;
            run.environment.frequency_before = self.before.frequencies;
            run.environment.frequency_after = after.frequencies;
            run
        });
        let mut problems = Vec::new();
        // A run that is whole has lost nothing; the messages were other people's.
        if lost > 0 && !run.as_ref().is_some_and(|run| run.complete) {
            problems.push(format!(
                "{lost} messages of the kernel were overwritten before they could be read"
            ));
        }
        if ending != Ending::MEASURED {
            problems.push(ending.text());
        }
        let modules = environment::modules().unwrap_or_default();
        if environment::module_state(&modules, "messung").is_some() {
            problems.push("the module is still loaded".to_owned());
        }
        Testimony { run, problems }
    }
}

impl Seen {
    fn now() -> Self {
        Self {
            taint: environment::taint(),
            frequencies: environment::frequencies(),
        }
    }
}

/// What others have changed, in sentences.
fn changes(before: &Seen, after: &Seen) -> Vec<String> {
    let gained = after.taint.unwrap_or(0) & !before.taint.unwrap_or(0) & !TAINT_OF_OURS;
    let taint = (before.taint.is_some() && gained != 0).then(|| {
        let letters = taint_letters(gained);
        format!("the kernel became tainted during the run ({letters}): see its log")
    });
    let both = || {
        before.frequencies.iter().filter_map(|old| {
            let new = after.frequencies.iter().find(|new| new.cpu == old.cpu)?;
            Some((old, new))
        })
    };
    let governors = both().filter_map(|(old, new)| {
        let (from, to) = (old.governor.as_ref()?, new.governor.as_ref()?);
        (from != to).then(|| {
            let cpu = old.cpu;
            format!(
                "the frequency governor of CPU {cpu} changed from {from} to {to} during the run"
            )
        })
    });
    let uneven: Vec<_> = both()
        .filter_map(|(old, new)| Some((old.cpu, old.khz?, new.khz?)))
        .filter(|&(_, from, to)| {
            from.abs_diff(to).saturating_mul(100) > from.saturating_mul(UNEVEN)
        })
        .collect();
    let frequency = uneven.first().map(|&(cpu, from, to)| {
        let others = match uneven.len() {
            1 => String::new(),
            count => format!(" ({} more changed, too)", count - 1),
        };
        let (from, to) = (from / 1000, to / 1000);
        format!("the frequency of CPU {cpu} changed from {from} to {to} MHz during the run{others}")
    });
    taint
        .into_iter()
        .chain(governors)
        .chain(frequency)
        .collect()
}

fn find<'a>(messages: impl Iterator<Item = &'a str>, id: Option<u32>) -> Option<Run> {
    let mut assembler = Assembler::default();
    for message in messages {
        assembler.take(message.as_bytes());
    }
    let mut runs = assembler.finish().runs;
    match id {
        None => runs.pop(),
        Some(id) => runs.into_iter().find(|run| run.run.id == id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of a run with id 7.
    fn messages() -> Vec<String> {
        let log = include_bytes!("../../../tests/logs/kern.log");
        let mut messages = Vec::new();
        crate::log::stream::messages(&log[..], |message| {
            messages.push(String::from_utf8_lossy(message).into_owned());
        })
        .unwrap();
        messages
    }

    fn testimony(messages: &[String], id: u32, ending: Ending, lost: u64) -> Testimony {
        Witness::new().testify(messages.iter().map(String::as_str), Some(id), ending, lost)
    }

    #[test]
    fn a_whole_run_has_no_problem() {
        let all = messages();
        let Testimony { run, problems } = testimony(&all, 7, Ending::MEASURED, 0);
        assert!(run.is_some_and(|run| run.complete));
        assert_eq!(problems, [""; 0]);
        // What was lost was not ours.
        assert_eq!(testimony(&all, 7, Ending::MEASURED, 5).problems, [""; 0]);
        assert!(testimony(&all, 8, Ending::MEASURED, 0).run.is_none());
    }

    #[test]
    fn what_others_change_is_told() {
        let frequency = |cpu, governor: &str, mhz: u64| Frequency {
            cpu,
            governor: Some(governor.to_owned()),
            khz: Some(mhz * 1000),
            unknown: crate::result::Unknown::new(),
        };
        let seen = |taint, frequencies: &[Frequency]| Seen {
            taint,
            frequencies: frequencies.to_vec(),
        };
        let steady = [
            frequency(0, "powersave", 800),
            frequency(1, "powersave", 800),
        ];
        let before = seen(Some(1), &steady);
        // Less than it takes, our own taint, nothing known before, a processor that went.
        for after in [
            seen(Some(1 | TAINT_OF_OURS), &[frequency(0, "powersave", 880)]),
            Seen::default(),
        ] {
            assert_eq!(changes(&before, &after), [""; 0]);
            assert_eq!(changes(&Seen::default(), &after), [""; 0]);
        }
        let after = [
            frequency(0, "powersave", 3200),
            frequency(1, "performance", 3200),
        ];
        assert_eq!(
            changes(&before, &seen(Some(1 | TAINT_OF_OURS | 1 << 9), &after)),
            [
                "the kernel became tainted during the run (W): see its log",
                "the frequency governor of CPU 1 changed from powersave to performance during the run",
                "the frequency of CPU 0 changed from 800 to 3200 MHz during the run (1 more changed, too)",
            ]
        );
    }

    #[test]
    fn what_is_missing_or_ended_otherwise_is_a_problem() {
        let all = messages();
        let problems = testimony(&all[..4], 7, Ending::Signal(2), 5)
            .problems
            .join("\n");
        assert!(
            problems.contains("5 messages") && problems.contains("signal 2"),
            "{problems}"
        );
    }
}
