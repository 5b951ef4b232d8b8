// SPDX-License-Identifier: GPL-2.0

//! Children: each in a process group of its own, watched, with a deadline, and gone when we are interrupted.
//!
//! [`Env`] is what every step below the subcommands carries: where events go, whether the user has interrupted, and the factor
//! that scales deadlines. [`Env::run`] runs a child to its end; [`Group`] is a child that is watched by other means.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::{
    event::{Event, Sink},
    failure::{Class, Failure},
};

/// How often a waiting loop looks at the clock, the child and the interrupt.
pub const POLL: Duration = Duration::from_millis(20);

/// How long children may take to end by themselves after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(3);

/// Lines of output kept for an error message.
const TAIL: usize = 20;

/// A longer line is cut into pieces: binary garbage must not fill the memory.
const LINE_BYTES: usize = 16 * 1024;

/// Whether the user has asked us to stop (Ctrl-C, SIGTERM, a closed terminal).
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    ///
    /// The system refuses a handler.
    pub fn install() -> Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupt.0.clone())
                .with_context(|| format!("cannot catch signal {signal}"))?;
        }
        Ok(interrupt)
    }

    /// Whether the user has interrupted.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error of class [`Class::Interrupted`] once the user has interrupted.
    ///
    /// # Errors
    ///
    /// See above.
    pub fn check(&self) -> Result<()> {
        if self.is_raised() {
            return Err(Failure::error(Class::Interrupted, "interrupted"));
        }
        Ok(())
    }

    /// As if the user had interrupted.
    #[cfg(test)]
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A command whose program gets `signal` when the thread that started it ends, even when we are killed: a group is ended by us,
/// but nobody ends it after a SIGKILL or a crash of ours.
///
/// `setpriv` is part of util-linux, as `unshare` is; without it the program is merely not tied.
pub fn tied(program: &str, signal: &str) -> Command {
    let Some(setpriv) = find_program("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", signal, "--", program]);
    command
}

/// Like [`tied`] with SIGTERM, for a program that cleans up but needs all of its processes to be told: the whole group is.
pub fn tied_group(program: &str) -> Command {
    const TELL_ALL: &str = r#"trap 'trap "" TERM; kill -TERM 0' TERM; "$@" & wait $! || { status=$?; wait; exit $status; }"#;
    let mut command = tied("sh", "TERM");
    command.args(["-c", TELL_ALL, "sh", program]);
    command
}

/// Where a program is in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A child that leads a process group of its own. The whole group is killed when this is dropped.
#[derive(Debug)]
pub struct Group {
    child: Child,
    id: Pid,
    ended: Option<ExitStatus>,
}

impl Group {
    /// Starts a command with an empty standard input; where its output goes is the command's own matter.
    ///
    /// # Errors
    ///
    /// The program cannot be started; the message names it.
    pub fn spawn(command: Command) -> Result<Self> {
        Self::spawn_reading(command, Stdio::null())
    }

    /// The same with a given standard input.
    ///
    /// # Errors
    ///
    /// See [`Self::spawn`].
    pub fn spawn_reading(mut command: Command, stdin: Stdio) -> Result<Self> {
        // Its own group: a terminal's Ctrl-C reaches us alone, and we end the children in order.
        let child = command
            .stdin(stdin)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let id = Pid::from_child(&child);
        Ok(Self {
            child,
            id,
            ended: None,
        })
    }

    /// The leader, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How the leader ended, if it has. What it left behind in its group is killed then.
    ///
    /// # Errors
    ///
    /// The system cannot tell.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().context("cannot wait for a child")?;
            if self.ended.is_some() {
                // While a member lives the number of the group is not given away; if none lives this finds nobody.
                let _ = kill_process_group(self.id, Signal::KILL);
            }
        }
        Ok(self.ended)
    }

    /// Ends the whole group: SIGTERM, and SIGKILL for what is still there after `grace`.
    pub fn end(&mut self, grace: Duration) {
        if self.ended.is_some() {
            return;
        }
        let _ = kill_process_group(self.id, Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < grace {
            // Only reaping shows whether the rest of the group has gone, too.
            if let Ok(Some(status)) = self.child.try_wait() {
                self.ended = Some(status);
            }
            if self.ended.is_some() && test_kill_process_group(self.id).is_err() {
                return;
            }
            thread::sleep(POLL);
        }
        let _ = kill_process_group(self.id, Signal::KILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process_group(self.id, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Which of a child's outputs a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a child that succeeded leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The last lines of its output and errors, in the order in which they came.
    pub tail: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What every step of work carries.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Where events go.
    pub sink: &'a dyn Sink,
    /// Whether the user has interrupted.
    pub interrupt: &'a Interrupt,
    /// Scales every deadline (`--slow-factor`).
    pub slow_factor: f64,
}

impl Env<'_> {
    /// Emits an event.
    pub fn emit(&self, event: Event) {
        self.sink.emit(event);
    }

    /// A deadline, scaled.
    pub fn scaled(&self, deadline: Duration) -> Duration {
        // Saturates: a factor that makes no sense must not panic.
        Duration::try_from_secs_f64(deadline.as_secs_f64() * self.slow_factor)
            .unwrap_or(Duration::MAX)
    }

    /// Runs a child to its end. Its lines become events; it has to succeed, in time.
    ///
    /// # Errors
    ///
    /// It cannot be started, fails, dies by a signal ([`Class::NotMeasured`]), passes its deadline ([`Class::TimedOut`]) or the
    /// user interrupts ([`Class::Interrupted`]). In each case it is gone, with all it started. `label` names the phase.
    pub fn run(
        &self,
        command: Command,
        label: &str,
        deadline: Option<Duration>,
    ) -> Result<Finished> {
        self.watch(command, label, deadline, &mut |_, _| {})
    }

    /// Like [`Self::run`], and gives all of the child's standard output.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub fn output(
        &self,
        command: Command,
        label: &str,
        deadline: Option<Duration>,
    ) -> Result<String> {
        let mut text = String::new();
        self.watch(command, label, deadline, &mut |stream, line| {
            if stream == Stream::Out {
                text.push_str(line);
                text.push('\n');
            }
        })?;
        Ok(text)
    }

    /// Like [`Self::run`], and shows each line to `observer`.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub fn watch(
        &self,
        command: Command,
        label: &str,
        deadline: Option<Duration>,
        observer: &mut dyn FnMut(Stream, &str),
    ) -> Result<Finished> {
        self.supervise(vec![command], label, deadline, observer)
    }

    /// Runs `producer | consumer`; both have to succeed.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub fn pipe(
        &self,
        producer: Command,
        consumer: Command,
        label: &str,
        deadline: Option<Duration>,
        observer: &mut dyn FnMut(Stream, &str),
    ) -> Result<Finished> {
        self.supervise(vec![producer, consumer], label, deadline, observer)
    }

    /// The children of a pipeline, from start to end.
    fn supervise(
        &self,
        commands: Vec<Command>,
        label: &str,
        deadline: Option<Duration>,
        observer: &mut dyn FnMut(Stream, &str),
    ) -> Result<Finished> {
        self.interrupt.check()?;
        let shown = commands.iter().map(shell).collect::<Vec<_>>().join(" | ");
        self.emit(Event::Command(shown.clone()));
        let start = Instant::now();
        let deadline = deadline.map(|deadline| self.scaled(deadline));
        let (sender, lines) = mpsc::channel();
        let mut groups =
            start_pipeline(commands, &sender).with_context(|| format!("{label}: {shown}"))?;
        drop(sender);

        let mut tail = VecDeque::new();
        let mut ended_at = None;
        loop {
            match lines.recv_timeout(POLL) {
                Ok((stream, line)) => {
                    observer(stream, &line);
                    if tail.len() == TAIL {
                        tail.pop_front();
                    }
                    tail.push_back(line.clone());
                    self.emit(Event::Output(line));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if ended_at.is_some() {
                        break;
                    }
                    thread::sleep(POLL);
                }
            }
            if ended_at.is_none() && all_ended(&mut groups)? {
                ended_at = Some(Instant::now());
            }
            // A stranger that inherited the pipe (a daemon) must not keep us.
            if ended_at.is_some_and(|at: Instant| at.elapsed() > Duration::from_secs(2)) {
                break;
            }
            if self.interrupt.is_raised() && ended_at.is_none() {
                groups.iter_mut().for_each(|group| group.end(GRACE));
                return Err(Failure::error(
                    Class::Interrupted,
                    format!("interrupted while {label}"),
                ));
            }
            if ended_at.is_none() && deadline.is_some_and(|deadline| start.elapsed() > deadline) {
                groups.iter_mut().for_each(|group| group.end(GRACE));
                return Err(Failure::error(
                    Class::TimedOut,
                    format!(
                        "{label} did not end within {} s (--slow-factor raises this); the command was\n  {shown}{}",
                        deadline.unwrap_or_default().as_secs(),
                        last_lines(&tail)
                    ),
                ));
            }
        }

        // The consumer's failure comes first: a producer then merely dies of a broken pipe.
        for group in groups.iter_mut().rev() {
            let failed = group.try_wait()?.filter(|status| !status.success());
            if let Some(status) = failed {
                return Err(Failure::error(
                    Class::NotMeasured,
                    failure_text(label, status, &shown, &tail),
                ));
            }
        }
        Ok(Finished {
            tail: tail.into(),
            elapsed: start.elapsed(),
        })
    }
}

/// Starts the commands, each reading what the one before it writes.
fn start_pipeline(commands: Vec<Command>, sender: &Sender<(Stream, String)>) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    let mut stdin = Stdio::null();
    let count = commands.len();
    for (place, mut command) in commands.into_iter().enumerate() {
        let mut next = Stdio::null();
        if place + 1 == count {
            command.stdout(Stdio::piped());
        } else {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .context("cannot make a pipe")?;
            command.stdout(Stdio::from(write));
            next = Stdio::from(read);
        }
        command.stderr(Stdio::piped());
        let mut group = Group::spawn_reading(command, std::mem::replace(&mut stdin, next))?;
        if let Some(out) = group.child().stdout.take() {
            forward(out, Stream::Out, sender.clone());
        }
        if let Some(err) = group.child().stderr.take() {
            forward(err, Stream::Err, sender.clone());
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Whether each leader has ended.
fn all_ended(groups: &mut [Group]) -> Result<bool> {
    let mut all = true;
    for group in groups {
        all &= group.try_wait()?.is_some();
    }
    Ok(all)
}

/// Sends the lines of an output from a thread of its own, which ends with the output.
fn forward(output: impl Read + Send + 'static, stream: Stream, sender: Sender<(Stream, String)>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        while let Ok(Some(line)) = read_line(&mut output) {
            if sender.send((stream, line)).is_err() {
                break;
            }
        }
    });
}

/// The next line without its end, at most [`LINE_BYTES`] long; whatever is not UTF-8 is replaced.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    input
        .by_ref()
        .take(LINE_BYTES as u64)
        .read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        bytes.pop();
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// What to say of a child that failed.
fn failure_text(label: &str, status: ExitStatus, shown: &str, tail: &VecDeque<String>) -> String {
    let mut text = format!("{label} failed ({})", status_text(status));
    if tail.iter().any(|line| is_out_of_space(line)) {
        text.push_str(": no space is left on the disk");
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "; the command was\n  {shown}{}", last_lines(tail));
    text
}

/// Whether a line of a child says that the disk is full. (For unshare the same error means a limit on namespaces.)
fn is_out_of_space(line: &str) -> bool {
    if line.starts_with("unshare:") {
        return false;
    }
    line.contains("No space left on device") || line.contains("Disk quota exceeded")
}

/// The last lines, as the end of a message.
fn last_lines(tail: &VecDeque<String>) -> String {
    if tail.is_empty() {
        return "\nand it printed nothing".to_owned();
    }
    tail.iter()
        .fold("\nits last lines:".to_owned(), |text, line| {
            text + "\n  " + line
        })
}

/// A status in words.
pub fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A command as one would type it: directory, variables, program and arguments, quoted.
pub fn shell(command: &Command) -> String {
    let mut words = Vec::new();
    if let Some(dir) = command.get_current_dir() {
        words.push(format!("cd {} &&", quote(dir.as_os_str())));
    }
    for (name, value) in command.get_envs() {
        let name = name.to_string_lossy();
        words.push(match value {
            Some(value) => format!("{name}={}", quote(value)),
            None => format!("{name}="),
        });
    }
    words.push(quote(command.get_program()));
    words.extend(command.get_args().map(quote));
    words.join(" ")
}

/// A word for a POSIX shell, quoted only where it has to be.
pub fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Collected;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn with_env<T>(test: impl FnOnce(Env<'_>, &Collected, &Interrupt) -> T) -> T {
        let sink = Collected::default();
        let interrupt = Interrupt::default();
        let env = Env {
            sink: &sink,
            interrupt: &interrupt,
            slow_factor: 1.0,
        };
        test(env, &sink, &interrupt)
    }

    /// A number of seconds that only one test of this run has, to look for its `sleep` among the processes.
    fn seconds(test: u32) -> String {
        format!("{test}.{}", std::process::id())
    }

    fn is_sleeping(seconds: &str) -> bool {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line == format!("sleep\0{seconds}\0").into_bytes())
        })
    }

    /// Whether that `sleep` goes, if not at once: a busy machine takes its time even for SIGKILL.
    fn goes(seconds: &str) -> bool {
        (0..200).any(|_| {
            thread::sleep(Duration::from_millis(10));
            !is_sleeping(seconds)
        })
    }

    #[test]
    fn quotes_what_a_shell_would_change() {
        for (word, quoted) in [
            ("plain-1.0", "plain-1.0"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("M=/messung", "M=/messung"),
        ] {
            assert_eq!(quote(OsStr::new(word)), quoted);
        }
    }

    #[test]
    fn shows_a_command_ready_to_paste() {
        let mut command = Command::new("make");
        command
            .arg("all now")
            .env("LC_ALL", "C")
            .current_dir("/x y");
        assert_eq!(shell(&command), "cd '/x y' && LC_ALL=C make 'all now'");
    }

    #[test]
    fn output_is_streamed_and_kept() {
        with_env(|env, sink, _| {
            let text = env
                .output(sh("echo one; echo two >&2; printf three"), "talking", None)
                .unwrap();
            assert_eq!(text, "one\nthree\n");
            let events = sink.0.lock().unwrap();
            assert!(matches!(&events[0], Event::Command(c) if c.starts_with("sh -c ")));
            assert!(events.contains(&Event::Output("two".into())));
        });
    }

    #[test]
    fn failure_names_status_command_and_last_lines() {
        with_env(|env, _, _| {
            let error = env
                .run(sh("seq 100; exit 7"), "counting", None)
                .unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("counting failed (exit status 7)"),
                "{text}"
            );
            assert!(text.contains("sh -c 'seq 100; exit 7'"), "{text}");
            assert!(text.contains("\n  81\n"), "{text}");
            assert!(!text.contains("\n  80\n"), "{text}");
        });
    }

    #[test]
    fn death_by_signal_is_no_success() {
        with_env(|env, _, _| {
            let error = env.run(sh("kill -9 $$"), "dying", None).unwrap_err();
            assert!(error.to_string().contains("killed by signal 9"), "{error}");
            assert_eq!(Failure::class_of(&error), Class::NotMeasured);
        });
    }

    #[test]
    fn full_disk_is_named() {
        with_env(|env, _, _| {
            let error = env
                .run(
                    sh("echo 'tar: x: Cannot write: No space left on device' >&2; exit 2"),
                    "unpacking",
                    None,
                )
                .unwrap_err();
            assert!(error.to_string().contains("no space is left"), "{error}");
        });
    }

    #[test]
    fn deadline_ends_the_whole_group() {
        with_env(|env, _, _| {
            let error = env
                .run(
                    // A child that ignores SIGTERM would only be slow to test; one that does not is enough here.
                    sh(&format!("sleep {0} & sleep {0}", seconds(1000))),
                    "sleeping",
                    Some(Duration::from_millis(100)),
                )
                .unwrap_err();
            assert_eq!(Failure::class_of(&error), Class::TimedOut);
            assert!(error.to_string().starts_with("sleeping did not end"));
            assert!(goes(&seconds(1000)));
        });
    }

    #[test]
    fn interrupt_ends_the_whole_group() {
        with_env(|env, _, interrupt| {
            let later = interrupt.clone();
            let raiser = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                later.raise();
            });
            let error = env
                .run(
                    sh(&format!("sleep {0} | sleep {0}", seconds(1001))),
                    "sleeping",
                    None,
                )
                .unwrap_err();
            raiser.join().unwrap();
            assert_eq!(Failure::class_of(&error), Class::Interrupted);
            assert!(goes(&seconds(1001)));
            assert!(env.run(sh("true"), "nothing", None).is_err());
        });
    }

    #[test]
    fn a_group_that_ignores_sigterm_is_killed() {
        let mut group = Group::spawn(sh(&format!(
            "trap '' TERM; while :; do sleep {0}; done",
            seconds(1002)
        )))
        .unwrap();
        thread::sleep(Duration::from_millis(100));
        group.end(Duration::from_millis(200));
        let status = group.try_wait().unwrap().unwrap();
        assert_eq!(status_text(status), "killed by signal 9");
        assert!(goes(&seconds(1002)));
    }

    #[test]
    fn a_tied_program_ends_with_the_thread_that_started_it() {
        let started = thread::spawn(|| {
            let mut command = tied("sleep", "KILL");
            command.arg(seconds(1005));
            let group = Group::spawn(command).unwrap();
            thread::sleep(Duration::from_millis(200));
            group
        });
        let mut group = started.join().unwrap();
        if find_program("setpriv").is_some() {
            thread::sleep(Duration::from_millis(200));
            let status = group.try_wait().unwrap().unwrap();
            assert_eq!(status_text(status), "killed by signal 9");
        }
    }

    #[test]
    fn a_tied_group_is_told_as_a_whole() {
        let started = thread::spawn(|| {
            let mut command = tied_group("sh");
            command.args(["-c", &format!("sleep {0}; sleep {0}", seconds(1006))]);
            let group = Group::spawn(command).unwrap();
            thread::sleep(Duration::from_millis(200));
            group
        });
        let group = started.join().unwrap();
        if find_program("setpriv").is_some() {
            assert!(goes(&seconds(1006)));
        }
        drop(group);
        with_env(|env, _, _| {
            let mut command = tied_group("sh");
            command.args(["-c", "exit 7"]);
            let error = env.run(command, "failing", None).unwrap_err();
            assert!(error.to_string().contains("exit status 7"), "{error}");
            let mut command = tied_group("echo");
            command.arg("a b");
            assert_eq!(env.output(command, "talking", None).unwrap(), "a b\n");
        });
    }

    #[test]
    fn dropping_a_group_kills_it() {
        let group = Group::spawn(sh(&format!("sleep {0}; :", seconds(1003)))).unwrap();
        thread::sleep(Duration::from_millis(100));
        assert!(is_sleeping(&seconds(1003)));
        drop(group);
        thread::sleep(Duration::from_millis(50));
        assert!(goes(&seconds(1003)));
    }

    #[test]
    fn what_a_child_leaves_behind_goes_with_it() {
        with_env(|env, _, _| {
            env.run(
                sh(&format!("sleep {0} & exit 0", seconds(1004))),
                "leaving",
                None,
            )
            .unwrap();
            thread::sleep(Duration::from_millis(50));
            assert!(goes(&seconds(1004)));
        });
    }

    #[test]
    fn a_pipe_joins_two_children() {
        with_env(|env, _, _| {
            let mut seen = Vec::new();
            env.pipe(
                sh("echo through"),
                sh("tr a-z A-Z"),
                "piping",
                None,
                &mut |_, line| seen.push(line.to_owned()),
            )
            .unwrap();
            assert_eq!(seen, ["THROUGH"]);
            let error = env
                .pipe(sh("exit 3"), sh("cat"), "piping", None, &mut |_, _| {})
                .unwrap_err();
            assert!(error.to_string().contains("exit status 3"), "{error}");
        });
    }

    #[test]
    fn unknown_program_is_named() {
        with_env(|env, _, _| {
            let error = env
                .run(Command::new("no-such-program"), "trying", None)
                .unwrap_err();
            assert!(format!("{error:#}").contains("cannot start no-such-program"));
        });
    }

    #[test]
    fn long_lines_are_cut() {
        let mut input = io::Cursor::new(vec![b'x'; LINE_BYTES + 5]);
        assert_eq!(read_line(&mut input).unwrap().unwrap().len(), LINE_BYTES);
        assert_eq!(read_line(&mut input).unwrap().unwrap(), "xxxxx");
        assert_eq!(read_line(&mut input).unwrap(), None);
    }

    #[test]
    fn the_factor_scales_deadlines() {
        with_env(|mut env, _, _| {
            env.slow_factor = 2.5;
            assert_eq!(env.scaled(Duration::from_secs(4)), Duration::from_secs(10));
            env.slow_factor = f64::NAN;
            assert_eq!(env.scaled(Duration::from_secs(4)), Duration::MAX);
        });
    }
}
