// SPDX-License-Identifier: GPL-2.0

//! Somebody who works on another CPU while the module measures, as a person at a shell would: starts a program now and then, and
//! counts the answers.

use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// The hidden subcommand that answers.
pub const SUBCOMMAND: &str = "answer";

/// What it prints.
const ANSWER: &str = "here";

/// Time between an answer and the next question.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// What a neighbour has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// How many came.
    pub count: u32,
    /// How long the neighbour was there, in milliseconds.
    pub elapsed_ms: u64,
    /// The longest time from question to answer, in milliseconds.
    pub longest_ms: u64,
}

/// A neighbour at work.
pub struct Neighbour {
    end: Sender<()>,
    thread: JoinHandle<Result<Answers>>,
}

impl Neighbour {
    /// Begins to ask, on this CPU only.
    pub fn on(cpu: u32) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut cpus = CpuSet::new();
            cpus.set(usize::try_from(cpu)?);
            // What it starts stays there, too.
            sched_setaffinity(None, &cpus)
                .with_context(|| format!("cannot work on CPU {cpu} alone"))?;
            let begin = Instant::now();
            let mut answers = Answers::default();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let asked = Instant::now();
                ask()?;
                answers.count += 1;
                answers.longest_ms = answers.longest_ms.max(millis(asked.elapsed()));
            }
            answers.elapsed_ms = millis(begin.elapsed());
            Ok(answers)
        });
        Self { end, thread }
    }

    /// Ends, and tells.
    ///
    /// # Errors
    ///
    /// A question was not answered.
    pub fn answers(self) -> Result<Answers> {
        // A neighbour that has failed already listens no more.
        let _ = self.end.send(());
        self.thread
            .join()
            .map_err(|_| anyhow!("the neighbour panicked"))?
    }
}

/// Starts a program and waits for what it prints.
fn ask() -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let output = Command::new(program)
        .arg(SUBCOMMAND)
        .output()
        .context("cannot start a program while the module measures")?;
    ensure!(
        output.status.success() && output.stdout.trim_ascii_end() == ANSWER.as_bytes(),
        "a program that was started while the module measured did not answer ({})",
        output.status
    );
    Ok(())
}

/// The program that answers.
pub fn child() -> ExitCode {
    println!("{ANSWER}");
    ExitCode::SUCCESS
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
