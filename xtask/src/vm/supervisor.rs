// SPDX-License-Identifier: GPL-2.0

//! Watches a running guest: its phases, each with a deadline, its console, and what it hands over.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::console::{Console, Sign};
use super::handover::{self, Received, Receiver};
use super::lines::Lines;
use super::machine::{Accelerator, Machine, Time};
use crate::clocks::Moment;
use crate::event::{Event, Unit};
use crate::failure::{Class, Failure};
use crate::guest::Phase;
use crate::process::{Env, GRACE, Group, POLL, shell, status_text};

/// What a crashed kernel may still say before it is ended.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// QEMU says so when the guest can't go on, and then waits for somebody to look at it.
const STUCK: &str = "KVM internal error";

/// The folder of a guest on the host.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder that exists.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The initramfs.
    pub fn initramfs(&self) -> PathBuf {
        self.0.join("initramfs")
    }

    /// The firmware's program.
    pub fn firmware(&self) -> PathBuf {
        self.0.join("firmware")
    }

    /// The firmware's variables.
    pub fn variables(&self) -> PathBuf {
        self.0.join("variables")
    }

    /// What the console showed.
    pub fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    /// What was handed over, as it came.
    pub fn handover(&self) -> PathBuf {
        self.0.join("handover")
    }

    /// What was shown to somebody who types at the guest.
    pub fn screen(&self) -> PathBuf {
        self.0.join("screen.log")
    }

    /// What QEMU itself said.
    pub fn qemu_log(&self) -> PathBuf {
        self.0.join("qemu.log")
    }
}

/// How long each phase may take, before `--slow-factor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits([Duration; Phase::ALL.len()]);

impl Limits {
    /// The limits of a guest whose plan takes `estimate` in its own time.
    pub fn of(time: Time, estimate: Duration) -> Self {
        let boot = match time {
            Time::Real {
                accelerator: Accelerator::Kvm,
                ..
            } => 60,
            _ => 180,
        };
        let measure = match time {
            // Idle time takes none, but a busy loop is emulated instruction by instruction, several times slower than its own
            // time on a loaded host. Rather too long than too short.
            Time::Virtual(_) => Duration::from_secs(180) + 4 * estimate,
            Time::Real { .. } => Duration::from_secs(60) + 2 * estimate,
        };
        let seconds = Duration::from_secs;
        Self([
            seconds(boot),
            seconds(150),
            measure,
            seconds(90),
            seconds(30),
        ])
    }

    /// The limits of a trial.
    pub fn trial() -> Self {
        Self([Duration::from_secs(15); Phase::ALL.len()])
    }

    fn of_phase(&self, phase: Phase) -> Duration {
        self.0[phase as usize]
    }
}

/// What a guest left.
#[derive(Debug)]
pub struct Outcome {
    /// The documents, checked.
    pub received: Received,
    /// What a reader of the result should know.
    pub warnings: Vec<String>,
    /// The first and the last time that the guest told, on this machine's clock as well.
    pub times: Option<(Moment, Moment)>,
}

/// Runs a guest to its end. `command` starts QEMU, which writes to the files of `folder`; `machine` is what it is
/// of.
///
/// # Errors
///
/// The kernel crashed, a phase took too long, the user interrupted, QEMU failed, or the handover is missing or damaged. QEMU is
/// gone in each case.
pub fn supervise(
    env: Env<'_>,
    mut command: Command,
    folder: &Folder,
    limits: Limits,
    machine: &Machine,
) -> Result<Outcome> {
    env.interrupt.check()?;
    let mut console_file = grown(&folder.console())?;
    let mut handover_file = if machine.has_one_line() {
        grown(&folder.console())?
    } else {
        grown(&folder.handover())?
    };
    let mut said_file = grown(&folder.qemu_log())?;
    let mut said = String::new();
    let output = || {
        File::options()
            .append(true)
            .open(folder.qemu_log())
            .context("cannot write the log of QEMU")
    };
    command.stdout(output()?).stderr(output()?);
    env.emit(Event::Command(shell(&command)));
    let mut watch = Watch {
        env,
        lines: Lines::default(),
        console: Console::default(),
        receiver: Receiver::default(),
        phase: Phase::Boot,
        since: Instant::now(),
        crashed_at: None,
        began: Instant::now(),
        looks: [Duration::ZERO; 2],
        times: None,
    };
    let mut group = Group::spawn(command)?;
    let end = loop {
        // First whether it has ended, then what it wrote: so nothing is missed.
        let ended = group.try_wait()?;
        watch.looks = [watch.looks[1], watch.began.elapsed()];
        watch.console(&read_on(&mut console_file)?);
        watch.receiver.push(&read_on(&mut handover_file)?);
        if let Some(status) = ended {
            break End::Exited(status);
        }
        said.push_str(&String::from_utf8_lossy(&read_on(&mut said_file)?));
        let stuck = said.contains(STUCK).then_some(End::Stuck);
        if let Some(end) = stuck.or_else(|| watch.should_end(limits, machine.powers_off)) {
            group.end(env.scaled(GRACE).min(GRACE));
            watch.console(&read_on(&mut console_file)?);
            break end;
        }
        thread::sleep(POLL);
    };
    watch.finish_console();
    said.push_str(&String::from_utf8_lossy(&read_on(&mut said_file)?));
    let Watch {
        console,
        receiver,
        phase,
        times,
        ..
    } = watch;
    let (received, warnings) = judge(end, phase, &console, receiver, said.trim_end())?;
    Ok(Outcome {
        received,
        warnings,
        times,
    })
}

/// How the watch came to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// QEMU ended.
    Exited(ExitStatus),
    /// The kernel had crashed, and QEMU was ended.
    Crashed,
    /// All is handed over, and QEMU was ended since the guest cannot or did not do that.
    Complete {
        /// Whether the guest should have ended the machine.
        late: bool,
    },
    /// The phase took longer than this.
    TimedOut(Duration),
    /// QEMU could not go on.
    Stuck,
    /// By the user.
    Interrupted,
}

/// The state of a watch.
struct Watch<'a> {
    env: Env<'a>,
    lines: Lines,
    console: Console,
    receiver: Receiver,
    phase: Phase,
    /// When the phase began.
    since: Instant,
    crashed_at: Option<Instant>,
    /// When the watch began, on whose time the rest is.
    began: Instant,
    /// The last two looks at the console, the earlier first.
    looks: [Duration; 2],
    times: Option<(Moment, Moment)>,
}

impl Watch<'_> {
    /// Takes what the console showed.
    fn console(&mut self, bytes: &[u8]) {
        for line in self.lines.push(bytes) {
            self.line(&line);
        }
    }

    /// Takes a last line without an end.
    fn finish_console(&mut self) {
        if let Some(line) = self.lines.finish() {
            self.line(&line);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if handover::is_frame(&line) {
            // Console and handover share the line: what the frame holds was said before.
            return;
        }
        match self.console.take(&line) {
            Some(Sign::Phase(phase)) => {
                self.phase = phase;
                self.since = Instant::now();
                self.env
                    .emit(Event::Step(format!("the guest is {}", phase.name())));
            }
            Some(Sign::Stamp(monotonic)) => self.time(monotonic),
            Some(Sign::Row(done, total)) => self.env.emit(Event::Progress {
                done,
                total: Some(total),
                unit: Unit::Rows,
            }),
            Some(Sign::Crash(_)) => {
                self.crashed_at.get_or_insert_with(Instant::now);
            }
            Some(Sign::Warning) | None => {}
        }
        self.env.emit(Event::Output(line.into_owned()));
    }

    /// Takes a time that the guest told: since the look before this one.
    fn time(&mut self, monotonic: Duration) {
        let now = Moment::seen(monotonic, self.looks[0], self.began.elapsed());
        let (begin, _) = *self.times.get_or_insert((now, now));
        self.times = Some((begin, now));
    }

    /// Whether QEMU must be ended, and why.
    fn should_end(&self, limits: Limits, powers_off: bool) -> Option<End> {
        let limit = self.env.scaled(limits.of_phase(self.phase));
        let is_over = self.since.elapsed() > limit;
        if self.env.interrupt.is_raised() {
            Some(End::Interrupted)
        } else if self
            .crashed_at
            .is_some_and(|at| at.elapsed() > self.env.scaled(LAST_WORDS))
        {
            Some(End::Crashed)
        } else if self.receiver.has_ended() && (is_over || !powers_off) {
            Some(End::Complete { late: powers_off })
        } else if is_over {
            Some(End::TimedOut(limit))
        } else {
            None
        }
    }
}

/// What came of it. A crash outranks everything but the user; QEMU's failure outranks what is missing because of it.
fn judge(
    end: End,
    phase: Phase,
    console: &Console,
    receiver: Receiver,
    qemu_said: &str,
) -> Result<(Received, Vec<String>)> {
    let during = phase.name();
    let qemu_said = if qemu_said.is_empty() {
        String::new()
    } else {
        format!("\nQEMU said:\n  {}", qemu_said.replace('\n', "\n  "))
    };
    if let End::Interrupted = end {
        return Err(Failure::error(
            Class::Interrupted,
            format!("interrupted while the guest was {during}"),
        ));
    }
    if let Some(crash) = console.crash() {
        return Err(Failure::error(
            Class::Crashed,
            format!("{crash} while the guest was {during}{}", console.tail()),
        ));
    }
    let mut warnings = Vec::new();
    for line in console.warnings() {
        warnings.push(format!("the kernel warned: {}", line.trim()));
    }
    match end {
        End::TimedOut(limit) => {
            return Err(Failure::error(
                Class::TimedOut,
                format!(
                    "timed out: the guest was {during} for more than {:.1} s (--slow-factor raises that){}{qemu_said}",
                    limit.as_secs_f64(),
                    console.tail()
                ),
            ));
        }
        End::Exited(status) if !status.success() => {
            return Err(Failure::error(
                Class::NotMeasured,
                format!(
                    "QEMU failed ({}) while the guest was {during}{qemu_said}{}",
                    status_text(status),
                    console.tail()
                ),
            ));
        }
        End::Stuck => {
            return Err(Failure::error(
                Class::NotMeasured,
                format!(
                    "QEMU could not go on while the guest was {during}{qemu_said}{}",
                    console.tail()
                ),
            ));
        }
        End::Complete { late: true } => {
            warnings.push("the guest did not power off, and was ended".to_owned());
        }
        End::Exited(_) | End::Complete { late: false } | End::Crashed | End::Interrupted => {}
    }
    let received = receiver.finish().map_err(|error| {
        Failure::error(
            Class::NotMeasured,
            format!(
                "no result: {error} (the guest was {during} when the machine ended){qemu_said}{}",
                console.tail()
            ),
        )
    })?;
    Ok((received, warnings))
}

/// A file that somebody else will write, opened for reading. It is empty, whatever was there before.
pub(super) fn grown(path: &Path) -> Result<File> {
    File::create(path)
        .and_then(|_| File::open(path))
        .with_context(|| format!("cannot create {}", path.display()))
}

/// What has been written since the last time.
pub(super) fn read_on(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .context("cannot read what the guest wrote")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::vm::handover::{self, Document};
    use crate::vm::machine;

    fn complete() -> Receiver {
        let mut line = Vec::new();
        handover::write(&[(Document::Report, b"{}")], &mut line).unwrap();
        let mut receiver = Receiver::default();
        receiver.push(&line);
        receiver
    }

    fn class(end: End, console: &[&str], receiver: Receiver) -> Option<Class> {
        let mut told = Console::default();
        for line in console {
            told.take(line);
        }
        judge(end, Phase::Measure, &told, receiver, "")
            .err()
            .map(|error| Failure::class_of(&error))
    }

    fn exited(raw: i32) -> End {
        End::Exited(ExitStatus::from_raw(raw))
    }

    #[test]
    fn outcomes_are_told_apart() {
        let panic = ["Kernel panic - not syncing: no"];
        let limit = End::TimedOut(Duration::from_secs(1));
        let late = End::Complete { late: true };
        for (end, console, receiver, expected) in [
            (exited(0), &[][..], complete(), None),
            (late, &[], complete(), None),
            (
                exited(0),
                &[],
                Receiver::default(),
                Some(Class::NotMeasured),
            ),
            (exited(256), &[], complete(), Some(Class::NotMeasured)),
            (exited(6), &[], complete(), Some(Class::NotMeasured)),
            (End::Stuck, &[], complete(), Some(Class::NotMeasured)),
            (exited(0), &panic, complete(), Some(Class::Crashed)),
            (
                End::Crashed,
                &panic,
                Receiver::default(),
                Some(Class::Crashed),
            ),
            (limit, &panic, Receiver::default(), Some(Class::Crashed)),
            (limit, &[], Receiver::default(), Some(Class::TimedOut)),
            (
                End::Interrupted,
                &panic,
                complete(),
                Some(Class::Interrupted),
            ),
        ] {
            assert_eq!(class(end, console, receiver), expected, "{end:?}");
        }
    }

    #[test]
    fn warnings_of_the_kernel_are_kept() {
        let mut console = Console::default();
        console.take("[    3.0] WARNING: CPU: 0 PID: 1 at x.c:1");
        let (_, warnings) = judge(exited(0), Phase::PowerOff, &console, complete(), "").unwrap();
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn qemu_is_quoted() {
        let error = judge(
            exited(256),
            Phase::Boot,
            &Console::default(),
            Receiver::default(),
            "invalid accelerator kvm",
        )
        .unwrap_err()
        .to_string();
        for part in ["exit status 1", "booting", "invalid accelerator kvm"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn limits_grow_with_the_plan() {
        let long = Duration::from_secs(500);
        let real = Time::Real {
            accelerator: Accelerator::Tcg,
            cpu_model: "max",
            cpus: 1,
        };
        let virtual_time = machine::find("pc").unwrap().virtual_time.unwrap();
        for time in [Time::Virtual(virtual_time), real] {
            assert!(Limits::of(time, long).of_phase(Phase::Measure) > long);
        }
    }
}
