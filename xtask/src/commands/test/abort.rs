// SPDX-License-Identifier: GPL-2.0

//! A run that is killed ends within one sample, reports what it has, and leaves nothing behind.

use std::time::Duration;

use abi::plan;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use super::bench::Bench;
use super::guests::{NEEDS, carry_out};
use super::harness::{Check, check};
use crate::guest::Task;
use crate::log::assemble::Assembler;
use crate::result::Run;

/// What is going on when the signal comes: one row for each context and kind of function.
const PLANS: [&str; 7] = [
    "udelay:100us*1000000",
    "udelay:100us/irqoff*1000000",
    "udelay:100us/preemptoff*1000000",
    "udelay:100us/fifo*1000000",
    "usleep_range:1ms/fifo*1000000",
    "msleep:50ms*10000",
    "hrtimer:1ms*1000000",
];

/// What ends them, one after the other.
const SIGNALS: [Signal; 2] = [Signal::KILL, Signal::INT];

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    PLANS
        .iter()
        .map(|plan| {
            check(
                format!("guest: SIGKILL and SIGINT end {plan}"),
                NEEDS,
                move |bench| killed(bench, plan),
            )
        })
        .collect()
}

fn killed(bench: &Bench<'_>, plan: &str) -> Result<String> {
    let (_, log) = carry_out(
        bench,
        Task::Measure {
            parameters: format!("run=1 plan={plan}"),
            signals: SIGNALS.map(Signal::as_raw).into(),
            neighbour: None,
        },
    )?;
    let runs = runs(&log);
    let Some((next, aborted)) = runs.split_last() else {
        bail!("no run was found in {log}");
    };
    ensure!(
        aborted.len() == SIGNALS.len() && next.complete,
        "one aborted run for each signal, and then a complete one were expected: {runs:?}"
    );
    let mut shown = Vec::new();
    for (run, signal) in aborted.iter().zip(SIGNALS) {
        let count = partial(run)?;
        let elapsed = took(&log, plan, signal)?.as_secs_f64() * 1e3;
        shown.push(format!("{count} samples, gone after {elapsed:.3} ms"));
    }
    for bad in [
        "WARNING:",
        "BUG:",
        "imbalance",
        "scheduling while atomic",
        "rcu:",
    ] {
        ensure!(
            !log.lines()
                .any(|line| after_insertion(&log, line) && line.contains(bad)),
            "the log has {bad:?}: {log}"
        );
    }
    Ok(shown.join("; "))
}

/// How many samples an aborted run reports.
fn partial(run: &Run) -> Result<u32> {
    let [row] = &run.measurements[..] else {
        bail!("one row was expected: {run:?}");
    };
    ensure!(
        !run.complete && 0 < row.count && row.count < row.iterations,
        "a part of its samples was expected: {} of {}",
        row.count,
        row.iterations
    );
    ensure!(
        run.warnings
            .iter()
            .any(|warning| warning.contains("interrupted")),
        "it is not called interrupted: {:?}",
        run.warnings
    );
    Ok(row.count)
}

/// How long an insertion went on after its signal: one sample at most, and what it takes to report and to exit.
fn took(log: &str, plan: &str, signal: Signal) -> Result<Duration> {
    let number = signal.as_raw();
    let sent = stamp(log, &format!("sending signal {number}"))?;
    let ended = stamp(
        log,
        &format!("aborted insertion ended: signal {number} ended the insertion"),
    )?;
    let request = plan::rows(plan, 1)
        .next()
        .and_then(Result::ok)
        .map_or(0, |row| row.request);
    let sample = Duration::from_nanos(request) + Duration::from_millis(20);
    let elapsed = ended.saturating_sub(sent);
    ensure!(elapsed <= sample, "it went on for {elapsed:?}");
    Ok(elapsed)
}

/// The kernel itself speaks of RCU while it boots.
fn after_insertion(log: &str, line: &str) -> bool {
    let begin = log.find("now measuring").unwrap_or(0);
    let at = line.as_ptr() as usize - log.as_ptr() as usize;
    at > begin
}

fn runs(log: &str) -> Vec<Run> {
    let mut assembler = Assembler::default();
    for line in log.lines() {
        if let Some(at) = line.find("messung: ") {
            assembler.take(&line.as_bytes()[at..]);
        }
    }
    assembler.finish().runs
}

/// The kernel's time stamp of the line with `text`.
fn stamp(log: &str, text: &str) -> Result<Duration> {
    let line = log
        .lines()
        .find(|line| line.contains(text))
        .with_context(|| format!("no line has {text:?}"))?;
    let seconds: f64 = line
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']')?.0.trim().parse().ok())
        .with_context(|| format!("no time stamp in {line:?}"))?;
    Ok(Duration::from_secs_f64(seconds))
}
