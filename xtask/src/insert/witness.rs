// SPDX-License-Identifier: GPL-2.0

//! What an insertion came to, on a PC as in a guest: the run in the kernel's log, completed with what the kernel says of itself, and
//! what is wrong.

use super::Ending;
use crate::log::assemble::Assembler;
use crate::log::environment;
use crate::result::Run;

/// Knows how things were before the insertion.
pub struct Witness {
    taint_before: Option<u64>,
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
            taint_before: environment::taint(),
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
            run.environment.taint_before = self.taint_before;
            run.environment.taint_after = environment::taint();
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
