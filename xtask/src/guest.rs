// SPDX-License-Identifier: GPL-2.0

//! Init inside a virtual machine: waits until the boot's own work has settled, inserts the module, hands report and log to the
//! host, and ends the machine.
//!
//! In virtual time everything here must happen the same way in each boot: no randomness, and no word from the host but
//! [`Orders`], which are part of the initramfs.

pub mod neighbour;
mod rtc;
mod settle;

use std::any::Any;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal};
use rustix::system::{RebootCommand, reboot};
use rustix::termios::{self, OptionalActions};
use serde::{Deserialize, Serialize};

use crate::clocks;
use crate::insert::witness::{Testimony, Witness};
use crate::insert::{self, Ending};
use crate::log::environment;
use crate::log::kmsg::{self, Record};
use crate::result::Run;
use crate::vm::handover::{self, Document};
use neighbour::{Answers, Neighbour};

/// Where this program stands in the initramfs.
pub const INIT: &str = "/init";
/// Where the module stands in the initramfs.
pub const MODULE: &str = "/messung.ko";
/// Where the [`Orders`] stand in the initramfs.
pub const ORDERS: &str = "/orders.json";

/// What the host wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// What to do.
    pub task: Task,
    /// The line for the handover (`/dev/ttyS1`).
    pub line: String,
}

/// What a guest is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Show that instructions run up to here, and end.
    Probe,
    /// Insert the module with these parameters.
    Measure {
        /// As on insmod's command line.
        parameters: String,
        /// For tests: numbers of signals, each of which ends one such insertion; then the module is inserted once more.
        #[serde(default)]
        signals: Vec<i32>,
        /// For tests: somebody else works on this CPU meanwhile.
        #[serde(default)]
        neighbour: Option<u32>,
    },
    /// Insert the module with each of these in turn, all of which it should refuse.
    Refuse {
        /// As for [`Task::Measure`].
        parameters: Vec<String>,
    },
}

/// When an insertion is sent its signal. Its first row has begun by then.
const ABORT_AFTER: Duration = Duration::from_secs(1);

/// What is measured after aborted runs, to see that nothing is left of them.
const AFTERWARDS: &str = "run=2 iterations=20 plan=quick";

/// What a guest has to say, besides the kernel's log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How the insertion ended, if it came to one.
    pub insertion: Option<Ending>,
    /// How the insertions of [`Task::Refuse`] ended.
    #[serde(default)]
    pub refusals: Vec<Ending>,
    /// What the neighbour of [`Task::Measure`] saw.
    #[serde(default)]
    pub answers: Option<Answers>,
    /// What was measured.
    pub run: Option<Run>,
    /// The processor, as the guest sees it.
    pub cpu_model: Option<String>,
    /// What is wrong with that, or why there is nothing.
    pub problems: Vec<String>,
    /// What a reader of the result should know.
    pub warnings: Vec<String>,
}

/// Where a guest is. It tells so on its console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The kernel boots; no mark, it is where a guest begins.
    Boot,
    /// Waiting until the boot's background work is done.
    Settle,
    /// The module is being inserted.
    Measure,
    /// Documents go to the host.
    HandOver,
    /// The machine ends.
    PowerOff,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 5] = [
        Self::Boot,
        Self::Settle,
        Self::Measure,
        Self::HandOver,
        Self::PowerOff,
    ];

    /// In words, as in "timed out while …".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boot => "booting",
            Self::Settle => "settling after the boot",
            Self::Measure => "measuring",
            Self::HandOver => "handing the result over",
            Self::PowerOff => "powering off",
        }
    }
}

/// What a line of ours in the kernel's log begins with.
const SAYS: &str = "messung-init: ";
/// What a mark of a phase begins with.
const MARK: &str = "now ";
/// What a stamp of CLOCK_MONOTONIC begins with, for the host to compare with its own clock.
const STAMP: &str = "monotonic ns ";

/// The phase that a line of the console announces.
pub fn announced(line: &str) -> Option<Phase> {
    let (_, said) = line.split_once(SAYS)?;
    let name = said.strip_prefix(MARK)?.trim_end();
    Phase::ALL.into_iter().find(|phase| phase.name() == name)
}

/// The guest's CLOCK_MONOTONIC, if a line of the console tells it.
pub fn stamped(line: &str) -> Option<Duration> {
    let (_, said) = line.split_once(SAYS)?;
    let ns = said.strip_prefix(STAMP)?.trim_end().parse().ok()?;
    Some(Duration::from_nanos(ns))
}

/// Whether a line of the kernel's log is from a guest's init.
pub fn is_ours(line: &str) -> bool {
    line.contains(SAYS)
}

/// Whether this process is the init of a guest.
pub fn is_init() -> bool {
    std::process::id() == 1
}

/// The guest's life. Never returns: the kernel would panic.
pub fn run() -> ExitCode {
    let outcome = match std::panic::catch_unwind(live) {
        Ok(outcome) => outcome,
        Err(panic) => Err(anyhow::anyhow!("panic: {}", panic_text(&*panic))),
    };
    if let Err(error) = outcome {
        say(&format!("failed: {error:#}"));
    }
    announce(Phase::PowerOff);
    // Where the machine can't be switched off, the host ends it.
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn live() -> Result<()> {
    mount_all()?;
    let orders = fs::read_to_string(ORDERS).with_context(|| format!("cannot read {ORDERS}"))?;
    let Orders { task, line } =
        serde_json::from_str(&orders).with_context(|| format!("cannot understand {ORDERS}"))?;
    if task == Task::Probe {
        announce(Phase::HandOver);
        return hand_over(&line, &Report::default(), "");
    }
    let (report, log) = match std::panic::catch_unwind(|| carry_out(&task)) {
        Ok(done) => done,
        Err(panic) => {
            let mut report = Report::default();
            report.problems.push(format!(
                "the guest's init panicked: {}",
                panic_text(&*panic)
            ));
            (report, String::new())
        }
    };
    announce(Phase::HandOver);
    hand_over(&line, &report, &log)
}

/// Settles and does what is asked. Whatever goes wrong is in the report; the kernel's log is handed over in any case.
fn carry_out(task: &Task) -> (Report, String) {
    let mut report = Report {
        cpu_model: environment::cpu_model(),
        ..Report::default()
    };
    let mut records = Vec::new();
    let outcome = match task {
        Task::Probe => Ok(()),
        Task::Measure {
            parameters,
            signals,
            neighbour,
        } => try_measure(parameters, signals, *neighbour, &mut report, &mut records),
        Task::Refuse { parameters } => try_refuse(parameters, &mut report, &mut records),
    };
    if let Err(error) = outcome {
        report.problems.push(format!("{error:#}"));
    }
    let log: String = lines(&records).map(|line| line + "\n").collect();
    (report, log)
}

/// Inserts the module in vain, again and again.
fn try_refuse(parameters: &[String], report: &mut Report, records: &mut Vec<Record>) -> Result<()> {
    let mut reader = kmsg::Reader::open()?;
    announce(Phase::Measure);
    for parameters in parameters {
        let ending = insert::insert(Path::new(MODULE), parameters)?;
        report.refusals.push(ending);
    }
    records.extend(reader.drain()?);
    Ok(())
}

fn try_measure(
    parameters: &str,
    signals: &[i32],
    neighbour: Option<u32>,
    report: &mut Report,
    records: &mut Vec<Record>,
) -> Result<()> {
    // The log is read before and after, not meanwhile: a reader that wakes up at each message would disturb what is measured. The kernel's
    // buffer is made large enough (`log_buf_len=`), and what did not fit would show as a gap.
    let mut reader = kmsg::Reader::open()?;
    announce(Phase::Settle);
    // The clocks are compared from here on: the longer, the more certain, and whatever the looks at them disturb settles.
    let begin = rtc::edge();
    stamp();
    let settled = settle::settle()?;
    say(&settled.text());
    if !settled.quiet {
        report.warnings.push(settled.text());
    }
    records.extend(reader.drain()?);
    let witness = Witness::new();

    announce(Phase::Measure);
    let module = Path::new(MODULE);
    let neighbour = neighbour.map(Neighbour::on);
    for signal in signals {
        let ending = insert_and_abort(module, parameters, *signal)?;
        say(&format!("aborted insertion ended: {}", ending.text()));
    }
    let parameters = if signals.is_empty() {
        parameters
    } else {
        AFTERWARDS
    };
    let ending = insert::insert(module, parameters)?;
    report.answers = neighbour.map(Neighbour::answers).transpose()?;
    report.insertion = Some(ending);
    say(&format!("insertion ended: {}", ending.text()));
    stamp();

    records.extend(reader.drain()?);
    let messages = records.iter().map(|record| record.text.as_str());
    let Testimony { run, problems } = witness.testify(messages, None, ending, reader.lost());
    let rtc_ppm = begin
        .and_then(|begin| Some((begin, rtc::edge()?)))
        .and_then(|(begin, end)| clocks::compare(begin, end));
    report.run = run.map(|run| run.with_rtc(rtc_ppm));
    report.problems.extend(problems);
    Ok(())
}

/// Inserts the module, and sends the child a signal after a while.
fn insert_and_abort(module: &Path, parameters: &str, number: i32) -> Result<Ending> {
    let mut child = insert::command(module, parameters)?
        .spawn()
        .context("cannot start a child to insert the module")?;
    std::thread::sleep(ABORT_AFTER);
    let signal =
        Signal::from_named_raw(number).with_context(|| format!("there is no signal {number}"))?;
    say(&format!("sending signal {number}"));
    rustix::process::kill_process(Pid::from_child(&child), signal)
        .context("cannot send the insertion a signal")?;
    // What it prints is less than a pipe holds.
    let status = child.wait().context("cannot wait for the insertion")?;
    if !status.success() {
        return insert::ending(status, b"", b"");
    }
    let output = child.wait_with_output()?;
    insert::ending(status, &output.stdout, &output.stderr)
}

fn lines(records: &[Record]) -> impl Iterator<Item = String> + '_ {
    records.iter().flat_map(Record::lines)
}

/// Sends report and log to the host, and waits until the last byte has left.
fn hand_over(line: &str, report: &Report, log: &str) -> Result<()> {
    let report = serde_json::to_vec(report).context("cannot write the report as JSON")?;
    let mut file = rustix::fs::open(
        line,
        // It must not become the terminal that controls us.
        OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map(File::from)
    .with_context(|| format!("cannot open {line} to hand over the result"))?;
    let mut settings =
        termios::tcgetattr(&file).with_context(|| format!("{line} is no serial line"))?;
    settings.make_raw();
    termios::tcsetattr(&file, OptionalActions::Now, &settings)
        .with_context(|| format!("cannot set {line} up"))?;
    let _quiet = Quiet::on(line);
    let mut frames = Vec::new();
    handover::write(
        &[(Document::Report, &report), (Document::Log, log.as_bytes())],
        &mut frames,
    )
    .and_then(|()| file.write_all(&frames))
    .with_context(|| format!("cannot hand the result over on {line}"))?;
    termios::tcdrain(&file).with_context(|| format!("cannot drain {line}"))
}

/// Keeps the kernel's messages off a console that is handed over on: one of them within a frame would damage it.
struct Quiet(Option<String>);

impl Quiet {
    /// The levels of messages; the first is the console's.
    const LEVELS: &str = "/proc/sys/kernel/printk";

    fn on(line: &str) -> Self {
        let console = fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
        let is_shared = console
            .split_whitespace()
            .any(|name| line.strip_prefix("/dev/") == Some(name));
        let before = is_shared
            .then(|| fs::read_to_string(Self::LEVELS).ok())
            .flatten();
        if before.is_some() {
            // Where this fails a checksum will tell.
            let _ = fs::write(Self::LEVELS, "1");
        }
        Self(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(Self::LEVELS, before);
        }
    }
}

/// The file systems that everything else needs.
fn mount_all() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        match mount(kind, target, kind, MountFlags::empty(), None) {
            // devtmpfs may be there already.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot mount {kind} on {target}"));
            }
        }
    }
    Ok(())
}

/// Tells the host which phase begins.
fn announce(phase: Phase) {
    say(&format!("{MARK}{}", phase.name()));
}

/// How long what was said before may take to leave on the console.
const CONSOLE: Duration = Duration::from_millis(100);

/// Tells the host what time it is here.
fn stamp() {
    // The line must not wait for others, or it would arrive late.
    std::thread::sleep(CONSOLE);
    say(&format!("{STAMP}{}", rtc::monotonic().as_nanos()));
}

/// A line in the kernel's log, and so on the console. Where that fails the console must do.
fn say(text: &str) {
    let written = File::options()
        .write(true)
        .open("/dev/kmsg")
        // One write is one message; 6 is KERN_INFO.
        .and_then(|mut kmsg| kmsg.write_all(format!("<6>{SAYS}{text}\n").as_bytes()));
    if written.is_err() {
        println!("{SAYS}{text}");
    }
}

/// What a panic said.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_read_from_the_console() {
        for phase in Phase::ALL {
            let line = format!("[    3.141592] {SAYS}{MARK}{}\r", phase.name());
            assert_eq!(announced(&line), Some(phase));
        }
        assert_eq!(announced("[ 1.0] messung-init: insertion ended"), None);
        assert_eq!(announced("now measuring"), None);
    }

    #[test]
    fn stamps_are_read_from_the_console() {
        let line = |text: &str| format!("[    3.141592] {SAYS}{STAMP}{text}\r");
        let stamp = Duration::new(3, 141_000_000);
        assert_eq!(stamped(&line("3141000000")), Some(stamp));
        assert_eq!(stamped(&line("31410x")), None);
        assert_eq!(stamped("[ 1.0] messung-init: insertion ended"), None);
    }

    #[test]
    fn orders_survive_json() {
        for task in [
            Task::Probe,
            Task::Measure {
                parameters: "iterations=5 plan=\"a b\"".to_owned(),
                signals: vec![9, 2],
                neighbour: Some(0),
            },
        ] {
            let orders = Orders {
                task,
                line: "/dev/ttyS1".to_owned(),
            };
            let text = serde_json::to_string(&orders).unwrap();
            assert_eq!(serde_json::from_str::<Orders>(&text).unwrap(), orders);
        }
    }
}
