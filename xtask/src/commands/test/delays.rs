// SPDX-License-Identifier: GPL-2.0

//! What is measured is right: faults that were planted are found, clean kernels show what docs/numbers.md explains and nothing
//! else, each function runs in each of its contexts, and nonsense is refused by the module alone.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use abi::plan::{self, FUNCTIONS, Function, Kind, Spec};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;

use super::bench::Bench;
use super::guests::{Measured, carry_out, measure, no_trace};
use super::harness::{Check, Need, check};
use crate::compare::{Figure, Pair, THRESHOLD, compare};
use crate::guest::Task;
use crate::insert::Ending;
use crate::kernel::module::Fault;
use crate::result::{Measurement, State};

/// What each check here needs.
const NEEDS: &[Need] = &[Need::Guests, Need::Kernels];

/// The same for those that take minutes.
const LONG: &[Need] = &[Need::Guests, Need::Kernels, Need::Patience];

/// The kernels that run every function: the usual one, the real-time one, an older one.
const KERNELS: [&str; 3] = ["amd64", "rt-amd64", "amd64-7.2"];

/// Clean runs in a row that must show nothing new.
const REPEATS: usize = 20;

/// How long the rows of `sweep` may take in the guest's time.
const SWEEP: Duration = Duration::from_secs(60);

/// Each function where planted faults show; one sample more than a thousand, for the call that is skipped. A fault must survive
/// the grain of its function: 4010 us are two ticks of 4 ms, and 0.6 % less are one; 20 ms and 5 % are a whole millisecond more.
const PLAN: &str = "none*1001,ndelay:10us*1001,ndelay_const:10us*1001,udelay:10us/irqoff*1001,udelay:100us*1001,\
udelay:100us/irqoff*1001,udelay:1ms*1001,udelay_const:100us*1001,mdelay:1ms*1001,mdelay:20ms*50,\
usleep_range:1ms*1001,msleep:1ms*1001,msleep_interruptible:1ms*1001,fsleep:10us*1001,fsleep:1ms*1001,\
fsleep:16ms*1001,schedule_timeout:4010us*1001,schedule_hrtimeout:1ms*1001,hrtimer:1ms*1001";

/// Requests that can be waited for a thousand times longer.
const TINY: &str = "ndelay:1us*5,ndelay_const:1us*5,udelay:1us*5,udelay_const:1us*5,mdelay:1ms*3,usleep_range:10us*5,\
msleep:1ms*5,msleep_interruptible:1ms*5,fsleep:10us*5,schedule_timeout:1ms*5,schedule_hrtimeout:10us*5,hrtimer:10us*5";

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    let clean = Rc::<OnceCell<Measured>>::default();
    for fault in [Fault::Early, Fault::Long, Fault::Skip] {
        let clean = Rc::clone(&clean);
        checks.push(check(finds(fault), NEEDS, move |bench| {
            // The first to need it makes it.
            let clean = match clean.get() {
                Some(clean) => clean,
                None => {
                    let measured = run(bench, "amd64", PLAN, None)?;
                    clean.get_or_init(|| measured)
                }
            };
            planted(bench, fault, clean, PLAN)
        }));
    }
    checks.push(check(finds(Fault::Thousandfold), NEEDS, |bench| {
        let clean = run(bench, "amd64", TINY, None)?;
        planted(bench, Fault::Thousandfold, &clean, TINY)
    }));
    for kernel in KERNELS {
        checks.push(check(
            format!("delays: every function in every context on {kernel}, twice the same"),
            NEEDS,
            move |bench| everything(bench, kernel),
        ));
    }
    checks.extend([
        check(
            "delays: a clock at a wrong rate is found",
            NEEDS,
            wrong_clock,
        ),
        check(
            "delays: nonsense is refused by the module alone",
            NEEDS,
            refusals,
        ),
        check("delays: sweep ends in time, twice the same", LONG, sweep),
        check(
            format!("delays: {REPEATS} clean runs show nothing new"),
            LONG,
            repeated,
        ),
    ]);
    checks
}

/// The name of the check for a fault.
fn finds(fault: Fault) -> String {
    format!("delays: the planted fault {:?} is found", fault.name())
}

/// Runs a plan on a kernel; what is not as it must be in any run is an error.
pub fn run(bench: &Bench<'_>, kernel: &str, plan: &str, fault: Option<Fault>) -> Result<Measured> {
    let mut arguments = vec!["--kernel", kernel, "--plan", plan];
    if let Some(fault) = fault {
        arguments.extend(["--fault", fault.name()]);
    }
    let measured = measure(bench, &[], &arguments)?;
    no_trace(&measured)?;
    let run = &measured.run;
    for row in &run.measurements {
        ensure!(
            row.count == row.iterations,
            "{} has {} of {} samples",
            named(row),
            row.count,
            row.iterations
        );
    }
    ensure!(
        run.fault.as_deref() == fault.map(Fault::name),
        "the result's fault is {:?}",
        run.fault
    );
    Ok(measured)
}

/// Runs a plan twice, in two boots, which must measure the same.
pub fn twice(bench: &Bench<'_>, kernel: &str, plan: &str) -> Result<Measured> {
    let first = run(bench, kernel, plan, None)?;
    let second = run(bench, kernel, plan, None)?;
    same(&first, &second)?;
    Ok(first)
}

/// Requires the same numbers, every nanosecond of them.
fn same(first: &Measured, second: &Measured) -> Result<()> {
    let comparison = compare(&first.run, &second.run, 0.0);
    let differing: Vec<_> = comparison.differing().map(|pair| named(pair.a)).collect();
    ensure!(
        comparison.is_identical(),
        "two runs differ, beyond what can be explained in: {differing:?}"
    );
    Ok(())
}

/// A row as a plan has it: `udelay:15us/irqoff`.
fn named(row: &Measurement) -> String {
    let duration = match row.requested_ns {
        0 => String::new(),
        ns => format!(":{}", plan::Duration(ns)),
    };
    match row.context.as_str() {
        "normal" => format!("{}{duration}", row.function),
        context => format!("{}{duration}/{context}", row.function),
    }
}

/// The fault must be in its rows, in its direction, and nowhere else.
fn planted(bench: &Bench<'_>, fault: Fault, clean: &Measured, plan: &str) -> Result<String> {
    explained(clean)?;
    let faulty = run(bench, "amd64", plan, Some(fault))?;
    let mark = format!("[planted fault: {}]", fault.name());
    let log = faulty.log()?;
    let unmarked = log
        .lines()
        .find(|line| line.contains(" shortest: ") && !line.ends_with(&mark));
    ensure!(unmarked.is_none(), "a line without a mark: {unmarked:?}");
    ensure!(
        faulty.out().contains("TEST BUILD"),
        "the report does not say that it is a test build"
    );

    let comparison = compare(&clean.run, &faulty.run, THRESHOLD);
    ensure!(
        comparison.only_a.is_empty() && comparison.only_b.is_empty(),
        "the runs have different rows"
    );
    let found: BTreeSet<_> = comparison
        .pairs
        .iter()
        .filter(|pair| shows(pair, fault))
        .map(|pair| named(pair.a))
        .collect();
    let expected: BTreeSet<_> = comparison
        .pairs
        .iter()
        .filter(|pair| concerns(fault, pair.a))
        .map(|pair| named(pair.a))
        .collect();
    ensure!(
        found == expected,
        "found in {found:?}, and expected in {expected:?}"
    );
    let elsewhere: Vec<_> = comparison
        .differing()
        .filter(|pair| !concerns(fault, pair.a))
        .map(|pair| named(pair.a))
        .collect();
    ensure!(
        elsewhere.is_empty(),
        "differences in other rows too: {elsewhere:?}"
    );
    Ok(format!(
        "in {} of {} rows",
        found.len(),
        comparison.pairs.len()
    ))
}

/// Whether a row must show the fault.
fn concerns(fault: Fault, row: &Measurement) -> bool {
    let busy = ["ndelay", "ndelay_const", "udelay", "udelay_const", "mdelay"]
        .contains(&row.function.as_str());
    match fault {
        Fault::Early => row.requested_ns >= plan::MILLISECOND,
        // mdelay takes whole milliseconds, so 1.05 is 1.
        Fault::Long => {
            busy && row.requested_ns >= 100 * plan::MICROSECOND
                && !(row.function == "mdelay" && row.requested_ns == plan::MILLISECOND)
        }
        Fault::Thousandfold => row.function != "none",
        Fault::Skip => row.function != "none" && row.count > 1000,
    }
}

/// Whether a row shows the fault, in its direction.
fn shows(pair: &Pair<'_>, fault: Fault) -> bool {
    let shifted = |figure, is: fn(u64, u64) -> bool| {
        pair.differences
            .iter()
            .any(|found| found.figure == figure && is(found.a, found.b))
    };
    let verdict = |row: &Measurement| row.verdict.as_ref().map(|verdict| verdict.state);
    let early = |row: &Measurement| row.early.map_or(0, |early| early.count);
    match fault {
        Fault::Early => {
            shifted(Figure::Mean, |a, b| b < a) && shifted(Figure::Median, |a, b| b < a)
        }
        Fault::Long => shifted(Figure::Mean, |a, b| b > a) && verdict(pair.b) == Some(State::Late),
        Fault::Thousandfold => shifted(Figure::Mean, |a, b| b > 50 * a),
        Fault::Skip => {
            shifted(Figure::Shortest, |a, b| b < a / 2)
                && early(pair.b) > 0
                && verdict(pair.b) == Some(State::Early)
        }
    }
}

/// Findings that docs/numbers.md explains, on x86.
fn is_explained(row: &Measurement, hz: u32) -> bool {
    let Some(verdict) = &row.verdict else {
        return true;
    };
    let short = hz % 4 != 0 && row.requested_ns > 100 * plan::MICROSECOND;
    match (verdict.state, row.function.as_str()) {
        (State::Kept, _) => true,
        (State::Early, "udelay" | "udelay_const" | "mdelay") => short,
        (State::Late, "ndelay" | "ndelay_const") => true,
        // What stamps and calls cost is beyond two pairs and 2 % of so short a request.
        (State::Late, "udelay" | "udelay_const" | "fsleep") => {
            row.requested_ns <= plan::MICROSECOND
        }
        (State::ExceedsDocument, "msleep" | "msleep_interruptible" | "usleep_range" | "fsleep") => {
            true
        }
        _ => false,
    }
}

/// Requires that a clean run shows nothing that docs/numbers.md does not explain.
fn explained(measured: &Measured) -> Result<()> {
    let run = &measured.run;
    let hz = run.environment.hz.context("the result lacks HZ")?;
    let strange: Vec<_> = run
        .measurements
        .iter()
        .filter(|row| !is_explained(row, hz))
        .map(|row| {
            (
                named(row),
                row.verdict.as_ref().map(|verdict| verdict.state),
            )
        })
        .collect();
    ensure!(
        strange.is_empty(),
        "docs/numbers.md does not explain {strange:?}"
    );
    ensure!(
        run.disturbances.is_empty(),
        "disturbed: {:?}",
        run.disturbances
    );
    Ok(())
}

/// Every function in every context that it may run in.
pub fn all_contexts() -> Vec<String> {
    FUNCTIONS
        .iter()
        .flat_map(|spec| {
            let item = format!("{}{}", spec.name, request(spec));
            ["", "/fifo", "/fifo:1", "/irqoff", "/preemptoff"]
                .into_iter()
                .map(move |context| format!("{item}{context}*20"))
        })
        .filter(|item| plan::rows(item, 1).all(|row| row.is_ok()))
        .collect()
}

/// A request that each function takes, its context notwithstanding.
fn request(spec: &Spec) -> &'static str {
    match spec.function {
        Function::None => "",
        Function::Mdelay | Function::Msleep | Function::MsleepInterruptible => ":1ms",
        _ if spec.kind == Kind::Busy => ":10us",
        _ => ":100us",
    }
}

/// Requires a row for each item of a plan.
pub fn has_all(measured: &Measured, items: &[String]) -> Result<()> {
    let rows = measured.run.measurements.len();
    ensure!(rows == items.len(), "{rows} rows of {}", items.len());
    Ok(())
}

fn everything(bench: &Bench<'_>, kernel: &str) -> Result<String> {
    let items = all_contexts();
    let measured = twice(bench, kernel, &items.join(","))?;
    let run = &measured.run;
    has_all(&measured, &items)?;
    explained(&measured)?;
    let none = |row: &&Measurement| row.function == "none" && row.context == "irqoff";
    let none = run
        .measurements
        .iter()
        .find(none)
        .context("no row none/irqoff")?;
    // Cycles turned into nanoseconds are cut, so two stamps may be apart by one more now and then.
    ensure!(
        none.shortest_ns
            .zip(none.highest_ns)
            .is_some_and(|(shortest, highest)| highest - shortest <= 1),
        "none/irqoff costs {:?} to {:?} ns",
        none.shortest_ns,
        none.highest_ns
    );
    Ok(format!(
        "{} rows on {}, none/irqoff costs {} ns each time",
        items.len(),
        run.environment.kernel_release.as_deref().unwrap_or("?"),
        none.shortest_ns.unwrap_or(0)
    ))
}

/// A kernel that is told a wrong frequency of its counter, and kept from finding out. No number of its own shows that.
fn wrong_clock(bench: &Bench<'_>) -> Result<String> {
    // In virtual time it is 1 GHz; what is off by less than 1 % the kernel corrects.
    let append = "tsc=nowatchdog tsc_early_khz=985000";
    let plan = "udelay:50us/irqoff*100";
    let measured = measure(bench, &[], &["--append", append, "--plan", plan])?;
    let instrument = measured.run.instrument.clone().unwrap_or_default();
    let (Some(raw), Some(rtc)) = (instrument.raw_ppm, instrument.rtc_ppm) else {
        bail!("the clocks were not compared: {instrument:?}");
    };
    let expected = (1.0 / 0.985 - 1.0) * 1e6;
    ensure!(
        raw.abs() < 1.0 && (rtc - expected).abs() < 100.0,
        "{raw:.1} ppm against the raw clock and {rtc:.1} against the real-time clock, where 0 and {expected:.1} were expected"
    );
    let warned = |text: &String| text.starts_with("CLOCK_MONOTONIC and the real-time clock differ");
    ensure!(
        measured.run.warnings.iter().any(warned),
        "no warning: {:?}",
        measured.run.warnings
    );
    Ok(format!("{rtc:+.0} ppm against the real-time clock"))
}

fn sweep(bench: &Bench<'_>) -> Result<String> {
    let measured = twice(bench, "amd64", "sweep")?;
    explained(&measured)?;
    let spent: u64 = measured
        .run
        .measurements
        .iter()
        .map(|row| row.mean_ns.unwrap_or(0) * u64::from(row.count))
        .sum();
    let spent = Duration::from_nanos(spent);
    ensure!(spent <= SWEEP, "its samples alone take {spent:?}");
    Ok(format!(
        "{} rows, {:.1} s in their samples",
        measured.run.measurements.len(),
        spent.as_secs_f64()
    ))
}

fn repeated(bench: &Bench<'_>) -> Result<String> {
    let first = run(bench, "amd64", "quick", None)?;
    explained(&first)?;
    for again in 1..REPEATS {
        let next = run(bench, "amd64", "quick", None)?;
        same(&first, &next).with_context(|| format!("run {} of {REPEATS}", again + 1))?;
    }
    Ok(String::new())
}

/// Plans that make no sense, and what the module must say of them.
fn nonsense() -> Vec<(String, &'static str)> {
    let mut plans: Vec<_> = [
        (
            "usleep_range:15us/irqoff",
            "a function that sleeps can't run",
        ),
        ("udelay:50ms", "this function takes 1us to 5ms"),
        ("udelay:15", "a duration is a whole number with a unit"),
        ("msleep:0ms", "this function takes 1ms to 60s"),
        ("udelay:15us*0", "iterations are 1 to 1000000"),
        ("udelay:15us@99", "CPU 99 is not online, of 1 that are"),
        ("udelya:15us", "character 1: no such function"),
        ("none,article", "the name of a set stands alone"),
    ]
    .map(|(plan, why)| (plan.to_owned(), why))
    .into();
    plans.push(("x".repeat(10_000), "at most 8192 characters"));
    plans.push((["none"; 300].join(","), "at most 256 rows"));
    plans
}

/// The program refuses them (see its unit tests) and the module must not trust that.
fn refusals(bench: &Bench<'_>) -> Result<String> {
    let plans = nonsense();
    let (report, log) = carry_out(
        bench,
        Task::Refuse {
            parameters: plans
                .iter()
                .map(|(plan, _)| format!("plan={plan}"))
                .collect(),
        },
    )?;
    ensure!(
        report.refusals.len() == plans.len(),
        "the guest tells of {} insertions: {report:?}",
        report.refusals.len()
    );
    let reasons: Vec<_> = log
        .lines()
        .filter_map(|line| Some(line.split_once("the plan is refused")?.1))
        .collect();
    for (index, ((plan, why), ending)) in plans.iter().zip(&report.refusals).enumerate() {
        let shown = plan.get(..40).unwrap_or(plan);
        ensure!(
            *ending == Ending::Errno(Errno::INVAL.raw_os_error()),
            "{shown}: {}",
            ending.text()
        );
        match reasons.get(index) {
            Some(reason) if reason.contains(why) => {}
            reason => bail!("{shown}: the module says {reason:?}, and not {why:?}; its log: {log}"),
        }
    }
    Ok(format!("{} plans", plans.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plans_of_these_checks_are_plans() {
        let all = all_contexts().join(",");
        // On every machine: 32-bit Arm bounds udelay the most.
        let target = plan::Target {
            cpus: 1,
            udelay_max: abi::mechanism::udelay_max("arm"),
        };
        for text in [PLAN, TINY, all.as_str()] {
            assert!(plan::check(text, 1, target).is_ok(), "{text}");
        }
        for (text, _) in nonsense() {
            let rows: Result<Vec<_>, _> = plan::rows(&text, 1).collect();
            let cpu = rows.is_ok_and(|rows| rows.iter().any(|row| row.cpu != plan::Cpu::Any));
            assert!(cpu || plan::check(&text, 1, target).is_err(), "{text}");
        }
    }

    #[test]
    fn each_function_has_each_of_its_contexts() {
        let items = all_contexts();
        for spec in &FUNCTIONS {
            let of_function = items
                .iter()
                .filter(|item| item.split([':', '/', '*']).next() == Some(spec.name));
            let contexts = if spec.is_atomic() { 5 } else { 3 };
            assert_eq!(of_function.count(), contexts, "{}: {items:?}", spec.name);
        }
    }
}
