// SPDX-License-Identifier: GPL-2.0

//! Real guests: what is measured in them, and what becomes of those that fail.

use std::cell::OnceCell;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;

use super::bench::{Bench, Ended, Surroundings};
use super::delays::all_contexts;
use super::harness::{Check, Need, check};
use crate::guest::{Report, Task};
use crate::insert::Ending;
use crate::kernel::table::{self, TABLE};
use crate::kernel::{Kernel, Options};
use crate::result::{Measurement, Run};
use crate::vm::launch::{self, Guest, Launcher};
use crate::vm::machine::Time;
use crate::vm::supervisor::{Folder, Limits};

/// What each check here needs.
pub const NEEDS: &[Need] = &[Need::Guests, Need::Kernels];

/// What each check here needs whose kernel has to be built.
const LONG: &[Need] = &[Need::Guests, Need::Kernels, Need::Patience];

/// How the article's finding is repeated.
const HZ100: &[&str] = &["--kernel", "hz100-amd64", "--plan", "msleep:24ms*100"];

/// What a kernel says that looks after its memory and its locks.
const DEBUGGED: &[&str] = &[
    "KernelAddressSanitizer initialized",
    "Lock dependency validator",
];

/// Rows of the article's plan.
const ROWS: usize = 14;

/// A warm run, all in all.
const WARM: Duration = Duration::from_secs(60);

/// What `vm` says once the module is being inserted.
const MEASURING: &str = "the guest is measuring";

/// Taint of a module from outside of the tree (bit 12), and without a signature (bit 13).
const TAINT: u64 = 1 << 12 | 1 << 13;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// What `vm` leaves.
pub struct Measured {
    /// Its own end.
    ended: Ended,
    /// The folder with its artefacts.
    folder: PathBuf,
    json: Value,
    /// The result.
    pub run: Run,
}

impl Measured {
    /// What `vm` printed.
    pub fn out(&self) -> &str {
        &self.ended.out
    }

    /// The kernel's log.
    pub fn log(&self) -> Result<String> {
        read(&self.folder.join("kernel.log"))
    }
}

/// A run that several checks look at.
type Shared = Rc<OnceCell<Measured>>;

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    let first = Shared::default();
    let mut checks = Vec::new();
    let mut article = |name: &str, look: fn(&Measured) -> Result<String>| {
        let first = Rc::clone(&first);
        checks.push(check(format!("guest: {name}"), NEEDS, move |bench| {
            look(shared(&first, bench)?)
        }));
    };
    article("the article's rows, complete", all_rows);
    article("udelay(15 us) without interrupts is steady", steady_udelay);
    article(
        "udelay(100 us) comes out short, and is reported",
        short_udelay,
    );
    article("msleep(24 ms) takes 28 ms", |measured| {
        msleep_of_24_takes(28, measured)
    });
    article("usleep_range(110 ms) beats msleep(110 ms)", long_sleeps);
    article("all artefacts for CI are there", artefacts);
    article(
        "CLOCK_MONOTONIC agrees with the real-time clock",
        clocks_agree,
    );
    article("taint gains just what such a module must add", taint);
    article(
        "the kernel's log has no warning, the module is gone",
        no_trace,
    );
    checks.push(check("guest: a second boot measures the same", NEEDS, {
        let first = Rc::clone(&first);
        move |bench| same_again(bench, shared(&first, bench)?)
    }));
    for row in table::stock().skip(1).filter(|row| !row.arch.is_foreign()) {
        checks.push(check(
            format!("guest: {} gives all rows", row.name),
            NEEDS,
            |bench| {
                let arguments = ["--kernel", row.name, "--iterations", "100"];
                all_rows(&measure(bench, &[], &arguments)?)
            },
        ));
    }
    checks.extend([
        check(
            "guest: every function in every context, memory poisoned",
            NEEDS,
            everything_poisoned,
        ),
        check(
            "guest: every function in every context on debug-amd64, no report",
            LONG,
            everything_debugged,
        ),
        check(
            "guest: msleep(24 ms) takes 40 ms on hz100-amd64",
            LONG,
            |bench| msleep_of_24_takes(40, &measure(bench, &[], HZ100)?),
        ),
        check("guest: one that panics", NEEDS, panics),
        check("guest: one that hangs", NEEDS, hangs),
        check(
            "guest: no iterations at all are refused",
            NEEDS,
            no_iterations,
        ),
        check("guest: Ctrl-C", NEEDS, interrupted),
        check("guest: two at once", NEEDS, two_at_once),
    ]);
    checks
}

/// The shared run, made when it is first asked for: as any CI would do it.
fn shared<'a>(first: &'a Shared, bench: &Bench<'_>) -> Result<&'a Measured> {
    if let Some(measured) = first.get() {
        return Ok(measured);
    }
    let folder = bench.folder()?;
    let mut script = Command::new(bench.repository.join("scripts/qemu-test.sh"));
    script.arg(TABLE[0].name).arg(&folder);
    let measured = measured(bench, script, folder)?;
    Ok(first.get_or_init(|| measured))
}

/// Runs `vm`, which must succeed, and reads its result.
pub fn measure(bench: &Bench<'_>, launcher: &[&str], arguments: &[&str]) -> Result<Measured> {
    let folder = bench.folder()?;
    let mut all = vec!["vm", "--output", folder.to_str().context("an odd path")?];
    all.extend(arguments);
    let command = bench.xtask_under(launcher, &all);
    measured(bench, command, folder)
}

/// Runs a command that leaves its artefacts in `folder`.
fn measured(bench: &Bench<'_>, command: Command, folder: PathBuf) -> Result<Measured> {
    let before = Surroundings::now()?;
    let ended = bench.end(command)?.exits(0)?;
    before.are_unchanged()?;
    let text = read(&folder.join("result.json"))?;
    Ok(Measured {
        json: serde_json::from_str(&text)?,
        run: Run::from_json(&text)?,
        ended,
        folder,
    })
}

/// Fails unless `value` lies between the two, ends included.
fn within<T: PartialOrd + Display>(what: &str, value: T, low: T, high: T) -> Result<()> {
    ensure!(
        low <= value && value <= high,
        "{what} is {value}, and must be {low} to {high}"
    );
    Ok(())
}

/// A row's shortest, mean and highest in nanoseconds.
pub fn row(run: &Run, function: &str, requested_ns: u64, context: &str) -> Result<[u64; 3]> {
    let is_meant = |row: &&Measurement| {
        row.function == function && row.requested_ns == requested_ns && row.context == context
    };
    let row = run
        .measurements
        .iter()
        .find(is_meant)
        .with_context(|| format!("no row {function} {requested_ns} ns {context}"))?;
    match (row.shortest_ns, row.mean_ns, row.highest_ns) {
        (Some(shortest), Some(mean), Some(highest)) => Ok([shortest, mean, highest]),
        _ => bail!("the row {function} {requested_ns} ns {context} has no numbers"),
    }
}

/// Requires the article's rows, with all their samples.
pub fn all_rows(measured: &Measured) -> Result<String> {
    let run = &measured.run;
    ensure!(run.complete, "the run is not complete: {:?}", run.warnings);
    within("the number of rows", run.measurements.len(), ROWS, ROWS)?;
    for row in &run.measurements {
        ensure!(
            row.count == row.iterations && row.count > 0,
            "row {} has {} of {} samples",
            row.index,
            row.count,
            row.iterations
        );
    }
    let table = measured.ended.out.lines();
    let shown = table.filter(|line| line.contains("sleep") || line.contains("udelay"));
    ensure!(
        shown.count() >= ROWS,
        "the table lacks rows: {}",
        measured.ended.out
    );
    Ok(run.environment.kernel_release.clone().unwrap_or_default())
}

/// Requires that nothing comes between a delay's time stamps with interrupts off.
pub fn steady_udelay(measured: &Measured) -> Result<String> {
    let [shortest, _, highest] = row(&measured.run, "udelay", 15 * US, "irqoff")?;
    within("its spread in ns", highest - shortest, 0, US)?;
    Ok(format!("{shortest} to {highest} ns"))
}

fn short_udelay(measured: &Measured) -> Result<String> {
    let [_, mean, _] = row(&measured.run, "udelay", 100 * US, "irqoff")?;
    // x86 loses 0.8 % where HZ is no multiple of 4, and the instrument adds about as half as much.
    within("the mean in ns", mean, 99_300, 99_900)?;
    let out = &measured.ended.out;
    ensure!(
        out.contains("udelay(100 us) with interrupts off comes out short"),
        "the report does not say so: {out}"
    );
    Ok(format!("{mean} ns"))
}

fn msleep_of_24_takes(expected_ms: u64, measured: &Measured) -> Result<String> {
    let [_, mean, _] = row(&measured.run, "msleep", 24 * MS, "normal")?;
    let expected = expected_ms * MS;
    within(
        "the mean in ns",
        mean,
        expected - 100 * US,
        expected + 100 * US,
    )?;
    Ok(format!("{mean} ns"))
}

fn long_sleeps(measured: &Measured) -> Result<String> {
    let [_, _, usleep] = row(&measured.run, "usleep_range", 110 * MS, "normal")?;
    let [_, msleep, _] = row(&measured.run, "msleep", 110 * MS, "normal")?;
    within("usleep_range's worst in ns", usleep, 110 * MS, 111 * MS)?;
    within("msleep's mean in ns", msleep, 115 * MS, 117 * MS)?;
    Ok(format!(
        "{} us late at worst, {} us late on average",
        (usleep - 110 * MS) / US,
        (msleep - 110 * MS) / US
    ))
}

fn taint(measured: &Measured) -> Result<String> {
    let environment = &measured.run.environment;
    let (Some(before), Some(after)) = (environment.taint_before, environment.taint_after) else {
        bail!("the result does not tell the taint");
    };
    ensure!(
        before & TAINT == 0 && after == before | TAINT,
        "the taint went from {before} to {after}"
    );
    Ok(format!("{before} to {after}"))
}

fn clocks_agree(measured: &Measured) -> Result<String> {
    let instrument = measured.run.instrument.as_ref();
    let ppm = instrument
        .and_then(|instrument| instrument.rtc_ppm)
        .context("the result does not tell")?;
    within("their difference in ppm", ppm, -100.0, 100.0)?;
    Ok(format!("{ppm:+.1} ppm"))
}

fn artefacts(measured: &Measured) -> Result<String> {
    let file = |name: &str| read(&measured.folder.join(name));
    ensure!(
        file("report.txt")? == measured.ended.out,
        "report.txt is not what was printed"
    );
    for (name, holds) in [
        ("kernel.log", "messung: done: 14 of 14 rows measured"),
        ("console.log", "Linux version "),
        ("commands.txt", "qemu-system-x86_64 "),
    ] {
        let text = file(name)?;
        ensure!(text.contains(holds), "{name} lacks {holds:?}: {text}");
    }
    Ok(String::new())
}

/// Requires that the kernel found nothing to complain of, and that the module is gone.
pub fn no_trace(measured: &Measured) -> Result<String> {
    let log = read(&measured.folder.join("kernel.log"))?;
    let is_bad = |line: &&str| {
        [
            "WARNING:",
            "BUG:",
            "Oops",
            "Call Trace",
            "rcu_preempt self-detected",
            "stalls on CPU",
        ]
        .iter()
        .any(|word| line.contains(word))
    };
    if let Some(line) = log.lines().find(is_bad) {
        bail!("the kernel's log has {line:?}");
    }
    // The guest looks into /proc/modules, and would have made the run an incomplete one.
    ensure!(measured.run.complete, "{:?}", measured.run.warnings);
    Ok(format!("{} lines", log.lines().count()))
}

/// From another boot; with the network cut off and within the time, where this machine lets us see to that.
fn same_again(bench: &Bench<'_>, first: &Measured) -> Result<String> {
    let is_root = bench.missing(Need::Root).is_none();
    let launcher: &[&str] = if is_root { &["unshare", "--net"] } else { &[] };
    let second = measure(bench, launcher, &[])?;
    let (a, b) = (&first.json["measurements"], &second.json["measurements"]);
    ensure!(
        a.as_array().is_some_and(|rows| rows.len() == ROWS),
        "no rows: {a}"
    );
    ensure!(a == b, "measured first {a}, then {b}");
    let seconds = second.ended.elapsed.as_secs_f64();
    ensure!(
        second.ended.elapsed <= WARM,
        "a warm run took {seconds:.1} s, and {} s are allowed",
        WARM.as_secs()
    );
    let network = if is_root {
        "no network"
    } else {
        "not root, so the network was not cut off"
    };
    Ok(format!("{network}, {seconds:.1} s"))
}

/// A stock kernel that fills freed memory shows what reads it: the module once read its plan there.
fn everything_poisoned(bench: &Bench<'_>) -> Result<String> {
    let items = all_contexts();
    let plan = items.join(",");
    let arguments = ["--append", "slab_debug=FZP", "--plan"];
    let measured = measure(bench, &[], &[&arguments[..], &[&plan]].concat())?;
    let rows = measured.run.measurements.len();
    within("the number of rows", rows, items.len(), items.len())?;
    no_trace(&measured)
}

fn everything_debugged(bench: &Bench<'_>) -> Result<String> {
    let items = all_contexts();
    let plan = items.join(",");
    let measured = measure(bench, &[], &["--kernel", "debug-amd64", "--plan", &plan])?;
    let rows = measured.run.measurements.len();
    within("the number of rows", rows, items.len(), items.len())?;
    // A kernel that does not look finds nothing.
    let log = measured.log()?;
    for sign in DEBUGGED {
        ensure!(log.contains(sign), "the kernel's log does not say {sign:?}");
    }
    no_trace(&measured)
}

fn panics(bench: &Bench<'_>) -> Result<String> {
    // Without an init and without a root file system a kernel has nothing else to do.
    let ended = bench.end_xtask(&["vm", "--append", "rdinit=/nonexistent"])?;
    ended.exits(4)?.says("Kernel panic")?;
    Ok(String::new())
}

fn hangs(bench: &Bench<'_>) -> Result<String> {
    // It waits for a disk that never comes.
    let append = "rdinit=/nonexistent root=/dev/nonexistent rootwait";
    let ended = bench.end_xtask(&["vm", "--append", append, "--slow-factor", "0.1"])?;
    ended.exits(5)?.says("timed out")?;
    Ok(String::new())
}

/// Boots the default kernel for a task that the command line does not offer, in virtual time: what its guest tells, and the
/// kernel's log.
pub fn carry_out(bench: &Bench<'_>, task: Task) -> Result<(Report, String)> {
    carry_out_in(bench, task, |launcher, _| {
        let virtual_time = launcher.machine().virtual_time;
        let time = Time::Virtual(virtual_time.context("it has no virtual time")?);
        Ok((time, Limits::of(time, Duration::ZERO)))
    })
}

/// The same in a time, and within the limits, that `choose` names.
pub fn carry_out_in(
    bench: &Bench<'_>,
    task: Task,
    choose: impl FnOnce(&Launcher<'_>, &Kernel) -> Result<(Time, Limits)>,
) -> Result<(Report, String)> {
    let ready = launch::ready(&bench.env, &TABLE[0], &Options::default(), None)?;
    let folder = bench.folder()?;
    let launcher = Launcher::new(bench.env, &ready.kernel, &ready.init)?;
    let (time, limits) = choose(&launcher, &ready.kernel)?;
    let outcome = launcher.boot(
        &Folder::new(&folder),
        Guest {
            time,
            task,
            module: Some(&ready.module),
            append: "",
            limits,
        },
    )?;
    let report = serde_json::from_str(&outcome.received.report)?;
    Ok((report, outcome.received.log))
}

/// The program asks for at least one; the module must not trust that.
fn no_iterations(bench: &Bench<'_>) -> Result<String> {
    bench
        .end_xtask(&["vm", "--iterations", "0"])?
        .exits(2)?
        .says("--iterations")?;
    let (report, log) = carry_out(
        bench,
        Task::Measure {
            parameters: "iterations=0".to_owned(),
            signals: Vec::new(),
            neighbour: None,
        },
    )?;
    let refusal = Some(Ending::Errno(Errno::INVAL.raw_os_error()));
    ensure!(
        report.insertion == refusal && report.run.is_none(),
        "it was not refused: {report:?}"
    );
    let reason = "messung: iterations=0 is refused: it must be 1 to ";
    ensure!(log.contains(reason), "the log does not say why: {log}");
    Ok(String::new())
}

fn interrupted(bench: &Bench<'_>) -> Result<String> {
    let before = Surroundings::now()?;
    let mut running = bench.start(bench.xtask(&["vm"]))?;
    running.signal_after(MEASURING, Signal::INT)?;
    running.end()?.exits(130)?.says("interrupted")?;
    before.are_unchanged()?;
    measure(bench, &[], &["--iterations", "3"]).context("after that")?;
    Ok(String::new())
}

/// A file that must be there.
fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// One begins and ends while another one measures.
fn two_at_once(bench: &Bench<'_>) -> Result<String> {
    let before = Surroundings::now()?;
    let mut long = bench.start(bench.xtask(&["vm", "--plan", "msleep:60s*1000000"]))?;
    long.wait_for(MEASURING)?;
    bench.succeed(bench.xtask(&["vm", "--iterations", "3"]))?;
    long.signal_after(MEASURING, Signal::INT)?;
    long.end()?.exits(130)?;
    before.are_unchanged()?;
    Ok(String::new())
}
