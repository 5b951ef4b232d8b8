// SPDX-License-Identifier: GPL-2.0

//! A PC as the README has it: a Debian with systemd, journald and rsyslog on the stock kernel, at which the documented commands
//! are typed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::bench::{Bench, Ended};
use super::harness::{Check, Need, check};
use super::memory;
use super::sign::Owner;
use crate::kernel::table::TABLE;
use crate::kernel::{self, Options};
use crate::vm::session::{HOME, Pc, Session};
use crate::vm::supervisor::Folder;
use crate::vm::userland;

/// Rows of the plan `quick`.
const QUICK_ROWS: usize = 8;

/// How long its run may take to get into all logs.
const LOGGED: Duration = Duration::from_secs(120);

/// What one insertion of [`INSERTIONS_PLAN`] may take, and a flooded run of a few seconds.
const ONE_INSERTION: Duration = Duration::from_secs(3);
const FLOODED: Duration = Duration::from_secs(300);

/// Touches all that the module changes: policy, CPU, interrupts.
const INSERTIONS_PLAN: &str = "none/fifo@1*1,udelay:1us/irqoff*1";

/// How a PC is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// Its kernel is told this.
    Told(&'static str),
    /// By a firmware with Secure Boot on that trusts the owner's key, which is in the user's folder.
    SecureBoot,
}

/// A check at a PC, and how that is started.
pub type AtPc = (Start, Check);

/// What is done at a PC.
pub type Look = fn(&Bench<'_>, &mut Session<'_>) -> Result<String>;

/// A check at a PC.
pub fn at(start: Start, name: impl Into<String>, look: Look) -> AtPc {
    at_with(start, name, &[], look)
}

/// A check at a PC that needs more than that.
fn at_with(start: Start, name: impl Into<String>, needs: &[Need], look: Look) -> AtPc {
    const PC: &[Need] = &[Need::Guests, Need::Kernels, Need::Userland];
    let firmware = match start {
        Start::Told(_) => &[][..],
        Start::SecureBoot => &[Need::Firmware],
    };
    let run = move |bench: &Bench<'_>| at_pc(bench, start, look);
    (start, check(name, &[PC, firmware, needs].concat(), run))
}

/// All checks at a PC, those of one boot together.
pub fn checks() -> Vec<Check> {
    let mut checks = own();
    checks.extend(super::run::checks());
    checks.extend(super::sign::at_pc());
    checks.sort_by_key(|(start, _)| *start);
    checks.into_iter().map(|(_, check)| check).collect()
}

/// The checks of this file.
fn own() -> Vec<AtPc> {
    let at = |start, name: &str, look| at(start, format!("pc: {name}"), look);
    const PLAIN: Start = Start::Told("");
    vec![
        at(
            PLAIN,
            "sudo insmod messung.ko, and every log tells the same",
            every_log,
        ),
        at(PLAIN, "the bundle measures as its page says", bundle),
        at(PLAIN, "tail -f shows a run as it comes", followed),
        at(PLAIN, "parse follows what tail -f shows", parsed_live),
        at(PLAIN, "parse follows a log that is rotated", rotated),
        at(PLAIN, "busybox insmod measures twice", busybox),
        at(PLAIN, "a flooded log is called incomplete", flooded),
        at(PLAIN, "100 insertions leave nothing", |_, pc| {
            insertions(pc, 100)
        }),
        at_with(
            PLAIN,
            "pc: 1000 insertions leave nothing",
            &[Need::Patience],
            |_, pc| insertions(pc, 1000),
        ),
        at(
            Start::Told("loglevel=1"),
            "a silent console loses nothing",
            silent,
        ),
        at(
            Start::Told("lockdown=integrity"),
            "lockdown refuses insmod",
            locked,
        ),
    ]
}

/// Does something at a PC that was started so: one that is on, or a new one. One at which something failed is switched off.
fn at_pc(bench: &Bench<'_>, start: Start, look: Look) -> Result<String> {
    // Whatever is not put back is switched off.
    let on = bench.pc.take().filter(|(started, _)| *started == start);
    let mut pc = match on {
        Some((_, pc)) => pc,
        None => boot(bench, start)?,
    };
    let note = look(bench, &mut pc)?;
    bench.pc.set(Some((start, pc)));
    Ok(note)
}

/// Boots a PC to which somebody has copied a bundle, and unpacks that.
fn boot<'a>(bench: &Bench<'a>, start: Start) -> Result<Session<'a>> {
    let folder = bench.folder()?;
    let bundle = folder.join("bundle.tar.gz");
    let bundle_name = bundle.to_str().context("an odd path")?;
    bench
        .end_xtask(&["bundle", "--kernel", TABLE[0].name, "--output", bundle_name])?
        .exits(0)?;
    let kernel = kernel::prepare(&bench.env, &TABLE[0], &Options::default())?;
    let userland = read(&userland::ensure(&bench.env, &kernel.cache)?)?;
    let bundle = read(&bundle)?;
    let mut files = vec![("bundle.tar.gz", &bundle)];
    let (append, owner) = match start {
        Start::Told(append) => (append, None),
        Start::SecureBoot => ("", Some(Owner::new(bench, &kernel)?)),
    };
    if let Some(owner) = &owner {
        files.extend([("MOK.key", &owner.key), ("MOK.der", &owner.certificate)]);
    }
    let files: Vec<_> = files
        .into_iter()
        .map(|(name, content)| (format!("{HOME}/{name}"), content))
        .collect();
    let pc = Pc {
        userland: &userland,
        files: files
            .iter()
            .map(|(path, content)| (&path[..], 0o644, &content[..]))
            .collect(),
        append,
        firmware: owner.as_ref().map(|owner| &owner.firmware),
    };
    let mut pc = Session::boot(bench.env, &kernel, &Folder::new(folder), pc)?;
    pc.run("tar xf bundle.tar.gz && cd messung-*/")?.exits(0)?;
    Ok(pc)
}

/// All of a file.
///
/// # Errors
///
/// It cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Inserts the module with `parameters`, and waits until rsyslog and journald have all of it.
fn insert(pc: &mut Session<'_>, insmod: &str, parameters: &str) -> Result<()> {
    pc.run(&format!("sudo {insmod} messung.ko {parameters}"))?
        .says("Input/output error")?;
    settle(pc)
}

/// Waits until the last record in the kernel's log is in the others.
fn settle(pc: &mut Session<'_>) -> Result<()> {
    pc.run_within(
        "last=$(sudo dmesg -t | grep -o 'messung: @.*' | tail -n 1); for log in /var/log/kern*.log; do \
         until grep -qF \"$last\" $log; do sleep 0.1; done; done",
        LOGGED,
    )?
    .exits(0)?;
    pc.run("sudo journalctl --sync")?.exits(0)?;
    Ok(())
}

/// A log that a command prints.
struct Log {
    name: String,
    text: String,
}

/// What the commands print that show the kernel's log, and the console.
fn logs(pc: &mut Session<'_>) -> Result<Vec<Log>> {
    let formats = pc.run("journalctl -o help")?.exits(0)?.text;
    let mut commands: Vec<_> = [
        "cat /var/log/kern.log",
        "cat /var/log/kern-traditional.log",
        "cat /var/log/kern-5424.log",
        "sudo dmesg",
        "sudo dmesg -T",
        "sudo dmesg --json",
        "sudo dmesg -r",
        "sudo dmesg -x",
        "sudo busybox dmesg",
        // It ends where it would have to wait for more, and then says so.
        "sudo dd if=/dev/kmsg bs=8192 iflag=nonblock 2>/dev/null || true",
    ]
    .map(str::to_owned)
    .into();
    commands.extend(
        formats
            .lines()
            .map(|format| format!("journalctl -k -o {format}")),
    );
    let mut logs = Vec::new();
    for command in commands {
        let text = pc.run(&command)?.exits(0)?.text;
        logs.push(Log {
            name: command,
            text,
        });
    }
    logs.push(Log {
        name: "the console".to_owned(),
        text: String::from_utf8_lossy(&read(&pc.console())?).into_owned(),
    });
    Ok(logs)
}

/// Reads a log with `parse`, whose result, if there is one, is the second of what this gives.
fn parse(bench: &Bench<'_>, text: &str, arguments: &[&str]) -> Result<(Ended, Option<Value>)> {
    let folder = bench.folder()?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (log, json) = (path("log"), path("result.json"));
    fs::write(&log, text).context("cannot write a log")?;
    let fixed = ["parse", &log, "--json", &json];
    let ended = bench.end(bench.xtask(&[&fixed[..], arguments].concat()))?;
    let value = fs::read_to_string(&json)
        .ok()
        .map(|text| serde_json::from_str(&text))
        .transpose()?;
    Ok((ended, value))
}

/// The last run in a log, which must be complete.
fn last_run(bench: &Bench<'_>, log: &Log) -> Result<Value> {
    let (ended, value) = parse(bench, &log.text, &["--run", "last"])?;
    ended.exits(0).with_context(|| log.name.clone())?;
    value.with_context(|| format!("{} gave no result", log.name))
}

/// Requires the same run in each log, complete.
fn same_run(bench: &Bench<'_>, logs: &[Log]) -> Result<Value> {
    let (first, others) = logs.split_first().context("no logs")?;
    let run = last_run(bench, first)?;
    for other in others {
        let found = last_run(bench, other)?;
        ensure!(
            found == run,
            "{} gives {found}, and {} gives {run}",
            other.name,
            first.name
        );
    }
    Ok(run)
}

fn rows(run: &Value) -> usize {
    run["measurements"].as_array().map_or(0, Vec::len)
}

fn every_log(bench: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    // The console shall have the records, too.
    pc.run("sudo dmesg -n 8")?.exits(0)?;
    pc.run("sudo insmod messung.ko plan=quick")?
        .exits(1)?
        .says("could not insert module messung.ko: Input/output error")?;
    settle(pc)?;
    pc.run("sudo dmesg -n 4")?.exits(0)?;
    let logs = logs(pc)?;
    let run = same_run(bench, &logs)?;
    ensure!(rows(&run) == QUICK_ROWS, "rows are missing: {run}");
    Ok(format!("{} logs", logs.len()))
}

/// What the bundle's page says.
fn bundle(bench: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.run("sudo ./xtask run --module messung.ko --plan quick --json result.json")?
        .exits(0)?
        .says("fsleep")?;
    let measured: Value = json(pc, "cat result.json")?;
    ensure!(
        measured["complete"] == true && rows(&measured) == QUICK_ROWS,
        "run gave {measured}"
    );
    pc.run("./xtask report result.json")?
        .exits(0)?
        .says("fsleep")?;
    settle(pc)?;
    pc.run("./xtask parse /var/log/kern.log --run last --json parsed.json")?
        .exits(0)?;
    let parsed = json(pc, "cat parsed.json")?;
    let log = Log {
        name: "kern.log".to_owned(),
        text: pc.run("cat /var/log/kern.log")?.exits(0)?.text,
    };
    let here = last_run(bench, &log)?;
    ensure!(parsed == here, "parsed there {parsed}, and here {here}");
    // The log knows what was measured, the program that inserted the module where.
    for key in ["run", "plan", "measurements", "complete"] {
        ensure!(
            measured[key] == parsed[key],
            "{key}: run gives {}, parse gives {}",
            measured[key],
            parsed[key]
        );
    }
    // It belongs to root; the next check saves its own.
    pc.run("sudo rm result.json parsed.json")?.exits(0)?;
    nothing_loaded(pc)
}

/// What a command prints, as JSON.
fn json(pc: &mut Session<'_>, command: &str) -> Result<Value> {
    let text = pc.run(command)?.exits(0)?.text;
    serde_json::from_str(&text).with_context(|| format!("`{command}` printed {text:?}"))
}

fn nothing_loaded(pc: &mut Session<'_>) -> Result<String> {
    pc.run("grep messung /proc/modules")?.exits(1)?;
    Ok(String::new())
}

fn followed(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.type_line("sudo insmod messung.ko run=42 plan=quick & tail -f /var/log/kern.log")?;
    pc.wait_for("messung: @0000002a-", LOGGED)?;
    pc.wait_for("messung: done: 8 of 8 rows measured", LOGGED)?;
    pc.interrupt()?.exits(130)?;
    pc.run("wait")?;
    Ok(String::new())
}

fn parsed_live(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.type_line(
        "sudo insmod messung.ko run=43 plan=quick & tail -f /var/log/kern.log | ./xtask parse --follow -",
    )?;
    pc.wait_for("run         43, started", LOGGED)?;
    pc.wait_for("fsleep", LOGGED)?;
    pc.interrupt()?;
    pc.run("wait")?;
    Ok(String::new())
}

fn rotated(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.run("./xtask parse --follow /var/log/kern.log >followed.txt 2>&1 & follower=$!")?;
    insert(pc, "insmod", "run=44 'plan=udelay:15us*10'")?;
    // What logrotate does.
    pc.run("sudo mv /var/log/kern.log /var/log/kern.log.1 && sudo systemctl kill -s HUP rsyslog")?
        .exits(0)?;
    insert(pc, "insmod", "run=45 'plan=udelay:15us*10'")?;
    for run in [44, 45] {
        pc.run_within(
            &format!("until grep -q 'run         {run}, started' followed.txt; do sleep 0.1; done"),
            LOGGED,
        )?;
    }
    pc.run("kill -INT $follower; wait")?;
    Ok(String::new())
}

/// When finit_module fails, busybox tries init_module as well.
fn busybox(bench: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    insert(pc, "busybox insmod", "run=2 'plan=udelay:15us*10'")?;
    for command in ["cat /var/log/kern.log", "sudo dmesg", "journalctl -k"] {
        let text = pc.run(command)?.exits(0)?.text;
        let folder = bench.folder()?;
        let log = folder.join("log");
        fs::write(&log, text).context("cannot write a log")?;
        let log = log.to_str().context("an odd path")?;
        let ended = bench
            .end(bench.xtask(&["parse", log, "--run", "2"]))?
            .exits(0)?;
        let found = ended.out.matches("run         2, started").count();
        ensure!(found == 2, "{command} shows {found} runs: {ended}");
    }
    Ok(String::new())
}

/// Other people's lines, as long as the run goes on, push its beginning out of the kernel's buffer, which holds 180 of them. There
/// are pauses, since insmod outlives the run by what it takes to remove the module, and the run's end must not be pushed out.
fn flooded(bench: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.run_within(
        "sudo insmod messung.ko run=3 'plan=udelay:15us*10,msleep:50ms*100' & sleep 1; \
         sudo sh -c 'line=$(printf somebody:%700s); while pidof insmod >/dev/null; do \
         i=0; while [ $i -lt 20 ]; do echo \"$line\" >/dev/kmsg; i=$((i + 1)); done; sleep 0.1; done'; wait",
        FLOODED,
    )?
    .says("Input/output error")?;
    let log = pc.run("sudo dmesg")?.exits(0)?.text;
    let foreign = log.matches("somebody:").count();
    ensure!(foreign > 0, "nobody wrote to the log");
    let (ended, run) = parse(bench, &log, &["--run", "last"])?;
    ended
        .exits(1)?
        .says("INCOMPLETE")?
        .says("first record is missing")?
        .says("is not complete")?;
    let run = run.context("parse gave no result")?;
    ensure!(
        run["complete"] == false && run["measurements"][0]["index"] == 1,
        "the second row alone was expected: {run}"
    );
    Ok(format!("{foreign} foreign lines"))
}

/// What [`insertions`] must leave as it was: each a command, and what it tells of.
const KEPT: &[(&str, &str)] = &[
    ("the shell's policy", "chrt -p $$"),
    ("the shell's CPUs", "taskset -p $$"),
    // Workers come and go as there is work.
    ("tasks", "ps -e -o comm= | grep -v '^kworker/' | sort"),
    ("modules", "cat /proc/modules; ls /sys/module"),
    (
        "files",
        "sudo find / /run /tmp /dev /dev/shm -xdev -not -path '/proc/*' -not -path '/sys/*' \
         -not -path '*/log/journal/*' | sort | cksum",
    ),
];

fn insertions(pc: &mut Session<'_>, count: u32) -> Result<String> {
    let repeat = |count: u32| {
        format!(
            "sudo sh -c 'chrt -p $$; taskset -p $$; i=0; while [ $i -lt {count} ]; do \
             insmod messung.ko {INSERTIONS_PLAN}; i=$((i + 1)); done 2>&1 | sort | uniq -c; chrt -p $$; taskset -p $$'",
            INSERTIONS_PLAN = format_args!("plan={INSERTIONS_PLAN}"),
        )
    };
    // What is made once, on first use, is there then.
    pc.run(&repeat(5))?.exits(0)?;
    let mut before = Vec::new();
    for (_, command) in KEPT {
        before.push(pc.run(command)?.exits(0)?.text);
    }
    let memory = memory::look(pc)?;
    let answer = pc
        .run_within(&repeat(count), count * ONE_INSERTION)?
        .exits(0)?
        .says(&format!(
            "{count} insmod: ERROR: could not insert module messung.ko: Input/output error"
        ))?;
    let lines: Vec<_> = answer.text.lines().collect();
    ensure!(
        lines.len() > 4 && lines[..4] == lines[lines.len() - 4..],
        "the policy of the shell that inserted was changed: {answer}"
    );
    let note = memory::look(pc)?.compare(&memory, count)?;
    for ((what, command), before) in KEPT.iter().zip(before) {
        let after = pc.run(command)?.exits(0)?.text;
        ensure!(
            after == before,
            "{what} changed: before {before}, after {after}"
        );
    }
    Ok(note)
}

/// Levels decide what the console shows, not what the log holds.
fn silent(bench: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    insert(pc, "insmod", "plan=quick")?;
    let console = String::from_utf8_lossy(&read(&pc.console())?).into_owned();
    ensure!(
        !console.contains("messung: "),
        "the console shows messages at loglevel=1: {console}"
    );
    let mut logs = logs(pc)?;
    logs.pop();
    same_run(bench, &logs)?;
    Ok(format!("{} logs", logs.len()))
}

fn locked(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    let answer = pc.run("sudo insmod messung.ko plan=quick")?.exits(1)?;
    ensure!(
        !answer.text.contains("Input/output error"),
        "it was not refused: {answer}"
    );
    pc.run("sudo dmesg")?
        .exits(0)?
        .says("Lockdown: insmod: unsigned module loading is restricted")?;
    nothing_loaded(pc)?;
    Ok(answer.text.trim().to_owned())
}
