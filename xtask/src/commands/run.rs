// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask run`: measures the running kernel of this machine.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::plan::{self, PlanOptions, spoken};
use crate::event::{Event, Sink as _};
use crate::failure::{Class, Failure};
use crate::insert::Ending;
use crate::insert::module_file::ModuleFile;
use crate::insert::preflight::System;
use crate::insert::privileges::{self, Tool};
use crate::insert::sign::{Signer, signed_copy};
use crate::insert::step::{self, Told};
use crate::insert::witness::{Testimony, Witness};
use crate::log::environment::{self, TAINT_OF_OURS, taint_letters};
use crate::log::{people, prefix};
use crate::process::{Env, Interrupt, shell, status_text};
use crate::result::{Platform, PlatformKind, Run, Unknown};
use crate::ui::Ui;
use crate::vm::lines::Lines;
use crate::writers::json;

/// How often a bar may move. Whatever wakes up disturbs what is measured, so seldom.
const TICK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// What a plan may take beyond twice its estimate.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kernel's last messages that are kept for an error.
const SHOWN: usize = 5;

/// What `run` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask run --sudo --module messung.ko                the article's fourteen loops; only inserting is done as root
  cargo xtask run --sudo --module messung.ko --plan quick --json a.json
  cargo xtask run --sudo --module messung.ko --sign-key MOK.key --sign-cert MOK.der

Ctrl-C ends the measurement after the sample at work; what was measured is reported, the exit status is 130.")]
pub struct Options {
    #[command(flatten)]
    plan: PlanOptions,
    /// Save the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The module; without it one is built for the running kernel, where that is possible
    #[arg(long, value_name = "FILE", required = cfg!(not(feature = "host")))]
    module: Option<PathBuf>,
    /// Insert as root, through sudo, doas or run0
    #[arg(long, value_name = "TOOL", value_enum, hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "sudo")]
    sudo: Option<Tool>,
    /// Sign a copy of the module with this key, and insert that
    #[arg(long, value_name = "FILE", requires = "sign_cert")]
    sign_key: Option<PathBuf>,
    /// The key's certificate
    #[arg(long, value_name = "FILE", requires = "sign_key")]
    sign_cert: Option<PathBuf>,
}

/// Measures.
pub fn run(options: Options, ui: &Ui) -> Result<()> {
    let Options {
        plan,
        json,
        module,
        sudo,
        sign_key,
        sign_cert,
    } = options;
    let cpus = environment::cpus().unwrap_or(1);
    plan.check(&environment::machine(), cpus)?;
    let json = json.as_deref().map(json::Output::create).transpose()?;
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: ui,
        interrupt: &interrupt,
        slow_factor: 1.0,
    };

    let system = System::now();
    refuse_if(system.objection())?;
    let module = match module {
        Some(module) => module,
        None => build(&env)?,
    };
    let module = module
        .canonicalize()
        .with_context(|| format!("cannot find the module {}", module.display()))?;
    let signer = sign_key
        .as_deref()
        .zip(sign_cert.as_deref())
        .map(|(key, certificate)| Signer { key, certificate });
    // Goes with what is in it.
    let folder;
    let module = match signer {
        Some(signer) => {
            folder = tempfile::tempdir().context("cannot make a folder for a signed module")?;
            signed_copy(&env, &module, signer, folder.path())?
        }
        None => module,
    };
    refuse_if(system.objection_to(&ModuleFile::read(&module)?))
        .with_context(|| format!("{} cannot be inserted here", module.display()))?;
    let id = plan::random_id();
    let parameters = plan.parameters(id);
    let tool = if privileges::are_there() {
        None
    } else if sudo.is_none() {
        // A signed copy goes with us.
        let stays = signer.is_none().then_some(module.as_path());
        bail!(privileges::advice(stays, &parameters));
    } else {
        sudo
    };
    let mut command = privileges::this_program(tool)?;
    command.arg(step::SUBCOMMAND).arg(&module).arg(&parameters);

    let progress = Progress::new(&plan, &system, cpus);
    let warnings = warnings();
    for warning in &warnings {
        ui.emit(Event::Warning(warning.clone()));
    }
    tell_what_comes(ui, &module, tool, &progress);
    // sudo may ask for a password.
    ui.rest();
    let witness = Witness::new();
    let heard = follow(&env, command, progress)?;
    ui.rest();
    let timed_out = heard.timed_out;
    let (run, ending) = match judge(heard, witness, id, warnings) {
        Ok(judged) => judged,
        // Before the first sample, perhaps.
        Err(error) => return interrupt.check().and(Err(error)),
    };
    let delivered = super::deliver(&run, json, ui);
    if timed_out {
        return Err(Failure::error(
            Class::TimedOut,
            "the plan took more than twice its estimate, and was ended: the report has what was measured until then",
        ));
    }
    // Ctrl-C may have reached the insertion and not yet us.
    if interrupt.is_raised() || matches!(ending, Ending::Signal(_)) {
        return Err(Failure::error(
            Class::Interrupted,
            "interrupted: the report has what was measured until then",
        ));
    }
    delivered
}

/// The module for the running kernel.
#[cfg(feature = "host")]
fn build(env: &Env<'_>) -> Result<PathBuf> {
    super::build::for_running_kernel(env, Default::default())
}

/// A board builds nothing; clap asks for `--module` there.
#[cfg(not(feature = "host"))]
fn build(_env: &Env<'_>) -> Result<PathBuf> {
    bail!("--module is missing")
}

fn refuse_if(objection: Option<String>) -> Result<()> {
    match objection {
        Some(objection) => Err(Failure::error(Class::NotMeasured, objection)),
        None => Ok(()),
    }
}

/// What a reader of the result should know of this kernel.
fn warnings() -> Vec<String> {
    let taint = taint_letters(environment::taint().unwrap_or(0) & !TAINT_OF_OURS);
    if taint.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "the kernel was tainted before ({taint}): see its document on tainted kernels"
    )]
}

/// Says what is about to happen.
fn tell_what_comes(ui: &Ui, module: &Path, tool: Option<Tool>, progress: &Progress) {
    let through = tool.map_or(String::new(), |tool| {
        format!(" as root, through {}", tool.name())
    });
    ui.emit(Event::Step(format!(
        "inserting {} once{through}",
        module.display()
    )));
    ui.emit(Event::Note(format!(
        "the plan takes about {}; Ctrl-C ends it early, and nothing stays loaded",
        spoken(progress.total())
    )));
}

/// What the inserting step has told.
#[derive(Debug, Default)]
struct Heard {
    begun: bool,
    /// The module's messages.
    messages: Vec<String>,
    /// The last ones of anybody.
    last: VecDeque<String>,
    /// How the insertion ended, and how many messages were lost.
    end: Option<(Ending, u64)>,
    refusal: Option<String>,
    timed_out: bool,
}

impl Heard {
    /// Takes a line, and shows what is worth it.
    fn take(&mut self, told: Told, progress: &mut Progress, env: &Env<'_>) {
        match told {
            Told::Begun => {
                self.begun = true;
                progress.begin();
            }
            Told::Message(message) => {
                let ours = message.as_bytes().strip_prefix(prefix::MARKER);
                let row = ours
                    .and_then(|text| std::str::from_utf8(text).ok())
                    .and_then(|text| Some((text, people::place(text)?)));
                match row {
                    Some((text, (place, _))) => {
                        env.emit(Event::Row(text.to_owned()));
                        progress.done(place);
                    }
                    None => env.emit(Event::Output(message.clone())),
                }
                if ours.is_some() {
                    self.messages.push(message.clone());
                }
                // Others may say a lot meanwhile.
                if self.last.len() == SHOWN {
                    self.last.pop_front();
                }
                self.last.push_back(message);
            }
            Told::Ended { ending, lost } => self.end = Some((ending, lost)),
            Told::Refused(why) => self.refusal = Some(why),
        }
    }
}

/// Runs the inserting step to its end. It is told to end the insertion when the user interrupts or far too much time has passed.
///
/// # Errors
///
/// It did not come to an insertion.
fn follow(env: &Env<'_>, mut command: Command, mut progress: Progress) -> Result<Heard> {
    let shown = shell(&command);
    env.emit(Event::Command(shown.clone()));
    // Not in a group of its own: sudo wants to ask for a password at this terminal.
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {shown}"))?;
    let output = child.stdout.take().context("a child without an output")?;
    let mut output = File::from(OwnedFd::from(output));
    let mut lines = Lines::default();
    let mut heard = Heard::default();
    let deadline = env.scaled(PATIENCE + 2 * progress.total());
    while let Some(bytes) = read_some(&mut output)? {
        for line in lines.push(&bytes) {
            heard.take(Told::parse(&line)?, &mut progress, env);
        }
        if let Some(event) = progress.event() {
            env.emit(event);
        }
        heard.timed_out |= progress.elapsed() > deadline;
        if (heard.timed_out || env.interrupt.is_raised()) && child.stdin.take().is_some() {
            // The pipe is closed now, and that is the word.
            env.emit(Event::Note(
                "ending the measurement after the sample at work".to_owned(),
            ));
        }
    }
    let status = child.wait().context("cannot wait for the inserting step")?;
    if heard.end.is_none() {
        env.interrupt.check()?;
        return Err(Failure::error(
            Class::NotMeasured,
            no_end(&heard, status, &shown),
        ));
    }
    Ok(heard)
}

/// Why the step ended without an insertion.
fn no_end(heard: &Heard, status: ExitStatus, shown: &str) -> String {
    match &heard.refusal {
        Some(why) => why.clone(),
        None if heard.begun => format!(
            "the inserting step died ({}) before the insertion ended; the command was\n  {shown}",
            status_text(status)
        ),
        None => format!(
            "nothing was inserted: this failed ({})\n  {shown}",
            status_text(status)
        ),
    }
}

/// What came within a tick or until a signal; nothing at all at the end.
fn read_some(output: &mut File) -> Result<Option<Vec<u8>>> {
    let mut watched = [PollFd::new(output, PollFlags::IN)];
    match poll(&mut watched, Some(&TICK)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Some(Vec::new())),
        Ok(_) => {}
        Err(error) => return Err(error).context("cannot wait for the inserting step"),
    }
    let mut bytes = vec![0; 64 << 10];
    let length = output
        .read(&mut bytes)
        .context("cannot read what the inserting step tells")?;
    bytes.truncate(length);
    Ok((length > 0).then_some(bytes))
}

/// What was measured, and how the insertion ended.
///
/// # Errors
///
/// Nothing was.
fn judge(heard: Heard, witness: Witness, id: u32, warnings: Vec<String>) -> Result<(Run, Ending)> {
    let (ending, lost) = heard.end.context("the insertion has no end")?;
    let messages = heard.messages.iter().map(String::as_str);
    let Testimony { run, problems } = witness.testify(messages, Some(id), ending, lost);
    match run {
        Some(run) => Ok((super::complete(run, platform(), problems, warnings), ending)),
        None => Err(nothing(
            ending,
            &problems,
            heard.last.iter().map(String::as_str),
        )),
    }
}

/// Why there is nothing to report.
fn nothing<'a>(
    ending: Ending,
    problems: &[String],
    messages: impl Iterator<Item = &'a str>,
) -> anyhow::Error {
    let mut text = "nothing was measured".to_owned();
    if !problems.is_empty() {
        text.push_str(&format!(": {}", problems.join("; ")));
    }
    if let Some(remedy) = ending.remedy() {
        text.push_str(&format!(": {remedy}"));
    }
    text.push_str(&super::kernel_said(messages));
    Failure::error(Class::NotMeasured, text)
}

/// This machine.
fn platform() -> Platform {
    Platform {
        kind: PlatformKind::Host,
        accelerator: None,
        virtual_time: false,
        cpu_model: environment::cpu_model(),
        machine: environment::board(),
        qemu_version: None,
        unknown: Unknown::new(),
    }
}

/// How far a plan is, by the estimates of its rows.
struct Progress {
    rows: Vec<(String, Duration)>,
    done: usize,
    begun: Option<Instant>,
    /// When the row at work began.
    since: Instant,
}

impl Progress {
    fn new(plan: &PlanOptions, system: &System, cpus: u32) -> Self {
        let hz = environment::hz(&Path::new("/boot").join(format!("config-{}", system.release)));
        Self {
            rows: plan.rows(hz, cpus),
            done: 0,
            begun: None,
            since: Instant::now(),
        }
    }

    /// What all rows take.
    fn total(&self) -> Duration {
        self.rows.iter().map(|(_, estimate)| *estimate).sum()
    }

    fn begin(&mut self) {
        self.since = Instant::now();
        self.begun = Some(self.since);
    }

    /// The row at that place, counted from 1, has been measured.
    fn done(&mut self, place: u64) {
        self.done = usize::try_from(place).unwrap_or(usize::MAX);
        self.since = Instant::now();
    }

    /// Since the beginning.
    fn elapsed(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// What a bar shows, while a row is at work.
    fn event(&self) -> Option<Event> {
        self.begun?;
        self.at(self.since.elapsed())
    }

    /// The same, that long after the row at work began.
    fn at(&self, elapsed: Duration) -> Option<Event> {
        let (title, estimate) = self.rows.get(self.done)?;
        let before: Duration = self.rows[..self.done].iter().map(|row| row.1).sum();
        // A row that takes longer than expected waits at its end.
        let done = before + elapsed.min(*estimate);
        let total = self.total();
        Some(Event::AtWork {
            text: format!(
                "[{}/{}] {title}, {} left",
                self.done + 1,
                self.rows.len(),
                spoken(total - done)
            ),
            done,
            total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        let row = |title: &str, seconds| (title.to_owned(), Duration::from_secs(seconds));
        Progress {
            rows: vec![row("udelay 15 us", 10), row("msleep 10 ms", 20)],
            done: 0,
            begun: None,
            since: Instant::now(),
        }
    }

    fn seconds(event: Option<Event>) -> (u64, String) {
        match event {
            Some(Event::AtWork { text, done, total }) => {
                assert_eq!(total.as_secs(), 30);
                (done.as_secs(), text)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bar_shows_the_row_at_work_and_the_time_left() {
        let mut progress = progress();
        assert_eq!(progress.event(), None);
        progress.begin();
        let second = Duration::from_secs(1);
        assert_eq!(
            seconds(progress.at(4 * second)),
            (4, "[1/2] udelay 15 us, 26 s left".to_owned())
        );
        // Late, but it does not run over.
        assert_eq!(seconds(progress.at(99 * second)).0, 10);
        progress.done(1);
        assert_eq!(
            seconds(progress.at(5 * second)),
            (15, "[2/2] msleep 10 ms, 15 s left".to_owned())
        );
        progress.done(2);
        assert_eq!(progress.at(second), None);
    }

    #[test]
    fn why_there_is_nothing_is_said() {
        let messages = ["x: y", "messung: version magic 'a'"];
        let ending = Ending::Errno(8);
        let error = nothing(ending, &[ending.text()], messages.into_iter());
        let text = error.to_string();
        for part in ["Exec format error", "another kernel", "version magic"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(Failure::class_of(&error), Class::NotMeasured);
    }

    #[test]
    fn a_step_that_dies_is_told_from_one_that_refuses() {
        use std::os::unix::process::ExitStatusExt as _;
        let status = ExitStatus::from_raw(9);
        let mut heard = Heard::default();
        assert!(no_end(&heard, status, "sudo x").starts_with("nothing was inserted"));
        heard.begun = true;
        assert!(no_end(&heard, status, "sudo x").contains("killed by signal 9"));
        heard.refusal = Some("no".to_owned());
        assert_eq!(no_end(&heard, status, "sudo x"), "no");
    }
}
