// SPDX-License-Identifier: GPL-2.0

//! A CPU that is kept busy for minutes does no harm to the rest of the system.

use std::time::Duration;

use abi::{mechanism, plan};
use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::bench::Bench;
use super::guests::carry_out_in;
use super::harness::{Check, Need, check};
use crate::guest::Task;
use crate::guest::neighbour::INTERVAL;
use crate::insert::Ending;
use crate::vm::accelerator;
use crate::vm::supervisor::Limits;

/// What each check here needs.
const NEEDS: &[Need] = &[Need::Guests, Need::Kernels, Need::Patience];

/// A hundred seconds and more of busy waiting on the second CPU, in the contexts that could harm the rest most.
const PLANS: [&str; 2] = [
    "udelay:100us/irqoff@1*1000000",
    "udelay:100us/fifo@1*1000000",
];

/// CPUs of the guest, and the one that is left alone.
const CPUS: u32 = 2;
const OTHER: u32 = 0;

/// What the kernel says where something does not get its turn: on a CPU, in RCU, or in a sleep that cannot be cut short.
const COMPLAINTS: [&str; 7] = [
    "soft lockup",
    "hard LOCKUP",
    "rcu: INFO:",
    "self-detected stall",
    "hung_task",
    "blocked for more than",
    "WARNING:",
];

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    PLANS
        .iter()
        .map(|plan| {
            check(
                format!("guest: {plan} lets the other CPU work"),
                NEEDS,
                move |bench| endures(bench, plan),
            )
        })
        .collect()
}

fn endures(bench: &Bench<'_>, plan: &str) -> Result<String> {
    let task = Task::Measure {
        parameters: format!("run=1 plan={plan}"),
        signals: Vec::new(),
        neighbour: Some(OTHER),
    };
    let (report, log) = carry_out_in(bench, task, |launcher, kernel| {
        let time = accelerator::choose(launcher, None, CPUS)?;
        Ok((time, Limits::of(time, estimate(plan, kernel.hz())?)))
    })?;
    ensure!(
        report.insertion == Some(Ending::MEASURED) && report.problems.is_empty(),
        "{:?}, {:?}",
        report.insertion,
        report.problems
    );
    let run = report.run.context("nothing was measured")?;
    let [row] = &run.measurements[..] else {
        bail!("one row was expected: {:?}", run.measurements);
    };
    ensure!(
        run.complete && row.count == row.iterations && row.cpu == Some(CPUS - 1),
        "{} of {} samples on CPU {:?}: {:?}",
        row.count,
        row.iterations,
        row.cpu,
        run.warnings
    );
    if let Some(line) = complaint(&log) {
        bail!("the kernel complains: {line:?}");
    }

    let answers = report.answers.context("nobody asked on the other CPU")?;
    let elapsed = Duration::from_millis(answers.elapsed_ms);
    let busy = Duration::from_nanos(row.mean_ns.unwrap_or(0)) * row.count;
    ensure!(
        busy >= Duration::from_secs(90) && elapsed >= busy,
        "its samples take {busy:?}, and the other CPU was asked for {elapsed:?}"
    );
    let due = elapsed.as_millis() / INTERVAL.as_millis();
    ensure!(
        u128::from(answers.count) * 2 >= due,
        "the other CPU gave {} answers in {elapsed:?}, and {due} were due",
        answers.count
    );
    Ok(format!(
        "{} answers in {:.0} s, the slowest after {} ms",
        answers.count,
        elapsed.as_secs_f64(),
        answers.longest_ms
    ))
}

/// How long a plan takes on a kernel with this HZ.
fn estimate(plan: &str, hz: u32) -> Result<Duration> {
    mechanism::estimate_plan(plan, plan::ITERATIONS_DEFAULT, hz, CPUS)
        .map(Duration::from_nanos)
        .map_err(|error| anyhow!("{plan}: {error}"))
}

/// The first line since the insertion in which the kernel finds that something did not get its turn.
fn complaint(log: &str) -> Option<&str> {
    log.lines()
        .skip_while(|line| !line.contains("now measuring"))
        .find(|line| COMPLAINTS.iter().any(|words| line.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found_after_the_insertion_only() {
        let booting = "rcu: INFO: boot\nmessung-init: now measuring\n";
        assert_eq!(complaint(booting), None);
        for line in [
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [init:63]",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "INFO: task init:1 blocked for more than 120 seconds.",
        ] {
            assert_eq!(complaint(&format!("{booting}{line}\n")), Some(line));
        }
    }

    #[test]
    fn the_plans_of_these_checks_take_long() {
        for plan in PLANS {
            assert!(estimate(plan, 250).unwrap() >= Duration::from_secs(100));
        }
    }
}
