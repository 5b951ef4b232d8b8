// SPDX-License-Identifier: GPL-2.0

//! A run that is killed ends within one sample, reports what it has, and leaves nothing behind.

use std::time::Duration;

use abi::plan;
use anyhow::{Context as _, Result, ensure};

use super::bench::Bench;
use super::guests::{NEEDS, carry_out};
use super::harness::{Check, check};
use crate::guest::{Abort, Task};
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

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// When the signal is sent. The row has begun by then.
const AFTER_MS: u64 = 1000;

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    PLANS
        .iter()
        .enumerate()
        .map(|(index, plan)| {
            // Both signals take the same way through the kernel: one each is enough for a context.
            let signal = if index % 2 == 0 { SIGKILL } else { SIGINT };
            check(
                format!("guest: signal {signal} ends {plan}"),
                NEEDS,
                move |bench| killed(bench, plan, signal),
            )
        })
        .collect()
}

fn killed(bench: &Bench<'_>, plan: &str, signal: i32) -> Result<String> {
    let (_, log) = carry_out(
        bench,
        Task::Measure {
            parameters: format!("run=1 plan={plan}"),
            abort: Some(Abort {
                signal,
                after_ms: AFTER_MS,
            }),
            neighbour: None,
        },
    )?;
    let expected = format!("aborted insertion ended: signal {signal} ended the insertion");
    ensure!(log.contains(&expected), "it did not end so: {log}");
    let [aborted, next] = &runs(&log)[..] else {
        anyhow::bail!("two runs were expected in {log}");
    };

    let [row] = &aborted.measurements[..] else {
        anyhow::bail!("one row was expected: {aborted:?}");
    };
    ensure!(
        !aborted.complete && 0 < row.count && row.count < row.iterations,
        "a part of its samples was expected: {} of {}",
        row.count,
        row.iterations
    );
    ensure!(
        aborted
            .warnings
            .iter()
            .any(|warning| warning.contains("interrupted")),
        "it is not called interrupted: {:?}",
        aborted.warnings
    );
    ensure!(
        next.complete,
        "the next run is not complete: {:?}",
        next.warnings
    );

    // Between the two lines lie one sample at most, and what it takes to report and to exit.
    let sent = stamp(&log, "sending signal")?;
    let ended = stamp(&log, "aborted insertion ended")?;
    let request = plan::rows(plan, 1)
        .next()
        .and_then(Result::ok)
        .map_or(0, |row| row.request);
    let sample = Duration::from_nanos(request) + Duration::from_millis(20);
    ensure!(
        ended.saturating_sub(sent) <= sample,
        "it went on for {:?}",
        ended.saturating_sub(sent)
    );
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
    Ok(format!(
        "{} samples, gone after {:.3} ms",
        row.count,
        (ended.saturating_sub(sent)).as_secs_f64() * 1e3
    ))
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
