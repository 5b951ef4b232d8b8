// SPDX-License-Identifier: GPL-2.0

//! Somebody at a PC: lines typed at a login shell on a serial line of a guest, each with a deadline.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::console::Console;
use super::initramfs;
use super::launch::{FOLDER, KERNEL, seen};
use super::lines::Lines;
use super::machine::{self, Accelerator, FirmwareFiles, Time, TypedFiles};
use super::secure_boot::Firmware;
use super::supervisor::{Folder, LAST_WORDS, grown, read_on};
use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::kernel::Kernel;
use crate::kernel::build_root::Bind;
use crate::process::{Env, GRACE, Group, POLL, shell, status_text};

/// From power-on to the first prompt.
const BOOT_DEADLINE: Duration = Duration::from_secs(180);

/// A command that nothing else is said of.
const DEADLINE: Duration = Duration::from_secs(60);

/// The user's folder.
pub const HOME: &str = "/home/user";

/// Characters of the last output that a message shows.
const TAIL: usize = 2000;

/// A PC to boot.
pub struct Pc<'a> {
    /// Its userland, an initramfs.
    pub userland: &'a [u8],
    /// Files over it: path, permissions, content.
    pub files: Vec<(&'a str, u32, &'a [u8])>,
    /// What is added to the kernel's command line.
    pub append: &'a str,
    /// Its firmware with Secure Boot on, where it has one.
    pub firmware: Option<&'a Firmware>,
}

/// A PC that is on. It is switched off when this is dropped.
pub struct Session<'a> {
    env: Env<'a>,
    group: Group,
    keyboard: ChildStdin,
    screen: File,
    /// What the screen has shown and nobody has looked at.
    shown: String,
    folder: Folder,
    console_file: File,
    lines: Lines,
    signs: Console,
    crashed_at: Option<Instant>,
}

/// What came of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The line.
    pub typed: String,
    /// What it printed, errors included.
    pub text: String,
    /// Its exit status.
    pub status: i32,
}

impl<'a> Session<'a> {
    /// Boots a PC on two emulated CPUs, in real time, and waits for its first prompt. Its console stays in `folder`.
    ///
    /// # Errors
    ///
    /// It does not get that far; the message tells how far it got.
    pub fn boot(env: Env<'a>, kernel: &Kernel, folder: &Folder, pc: Pc<'_>) -> Result<Self> {
        let Pc {
            userland,
            files,
            append,
            firmware,
        } = pc;
        let machine = machine::find(match firmware {
            Some(_) => machine::SECURE_BOOT,
            None => kernel.row.machine,
        })?;
        let write = |path: &Path, bytes: &[u8]| {
            fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
        };
        let initramfs = folder.initramfs();
        // The kernel unpacks one archive after the other.
        write(
            &initramfs,
            &[userland, &initramfs::overlay(files)?].concat(),
        )?;
        if let Some(Firmware { code, variables }) = firmware {
            write(&folder.firmware(), code)?;
            write(&folder.variables(), variables)?;
        }
        let binds = [
            Bind::new(folder.path(), FOLDER),
            Bind::new(&kernel.path, KERNEL),
        ];
        let (code, variables) = (
            seen(&folder.firmware(), &binds),
            seen(&folder.variables(), &binds),
        );
        let mut command = kernel.tree.command(&binds, machine.qemu);
        command.args(machine.typed_arguments(
            Time::Real {
                accelerator: Accelerator::Tcg,
                cpu_model: machine.tcg_cpu,
                cpus: 2,
            },
            TypedFiles {
                vmlinuz: &seen(&kernel.vmlinuz(), &binds),
                initramfs: &seen(&initramfs, &binds),
                console: &seen(&folder.console(), &binds),
                firmware: firmware.map(|_| FirmwareFiles {
                    code: &code,
                    variables: &variables,
                }),
            },
            &format!("rdinit=/sbin/init {append}"),
        ));
        let mut session = Self::start(env, command, folder)?;
        session.answer("", BOOT_DEADLINE).context("booting a PC")?;
        // QEMU has read it, and it is large.
        fs::remove_file(&initramfs)
            .with_context(|| format!("cannot remove {}", initramfs.display()))?;
        Ok(session)
    }

    /// Starts QEMU.
    fn start(env: Env<'a>, mut command: Command, folder: &Folder) -> Result<Self> {
        env.interrupt.check()?;
        let (console_file, screen) = (grown(&folder.console())?, grown(&folder.screen())?);
        let output = |path| {
            File::options()
                .append(true)
                .create(true)
                .open(path)
                .context("cannot write what QEMU says")
        };
        command
            .stdout(output(folder.screen())?)
            .stderr(output(folder.qemu_log())?);
        env.emit(Event::Command(shell(&command)));
        let mut group = Group::spawn_reading(command, Stdio::piped())?;
        let keyboard = group
            .child()
            .stdin
            .take()
            .context("QEMU was started without a standard input")?;
        Ok(Self {
            env,
            group,
            keyboard,
            screen,
            shown: String::new(),
            folder: folder.clone(),
            console_file,
            lines: Lines::default(),
            signs: Console::default(),
            crashed_at: None,
        })
    }

    /// The file that receives its console.
    pub fn console(&self) -> PathBuf {
        self.folder.console()
    }

    /// Types a line, and waits for the next prompt.
    ///
    /// # Errors
    ///
    /// There is none within a minute, the kernel crashes, QEMU ends, or the user interrupts.
    pub fn run(&mut self, line: &str) -> Result<Answer> {
        self.run_within(line, DEADLINE)
    }

    /// [`Self::run`] with a deadline of its own.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub fn run_within(&mut self, line: &str, deadline: Duration) -> Result<Answer> {
        self.type_line(line)?;
        self.answer(line, deadline)
    }

    /// Types a line, and does not wait.
    ///
    /// # Errors
    ///
    /// QEMU has gone.
    pub fn type_line(&mut self, line: &str) -> Result<()> {
        self.env.emit(Event::Command(format!("pc$ {line}")));
        self.press(format!("{line}\n").as_bytes())
    }

    /// Types Ctrl-C, and waits for the prompt.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub fn interrupt(&mut self) -> Result<Answer> {
        self.press(b"\x03")?;
        self.answer("Ctrl-C", DEADLINE)
    }

    fn press(&mut self, keys: &[u8]) -> Result<()> {
        self.keyboard
            .write_all(keys)
            .and_then(|()| self.keyboard.flush())
            .context("cannot type at the PC: QEMU has gone")
    }

    /// Waits until the screen shows a text, which does not have to be at its end; gives all up to it.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub fn wait_for(&mut self, text: &str, deadline: Duration) -> Result<String> {
        self.wait(&format!("waiting for {text:?}"), deadline, |shown| {
            let end = shown.find(text)? + text.len();
            Some(shown.drain(..end).collect())
        })
    }

    /// Waits for the prompt after a line.
    fn answer(&mut self, line: &str, deadline: Duration) -> Result<Answer> {
        self.wait(&format!("`{line}`"), deadline, |shown| {
            let (place, status) = prompt(shown)?;
            let text = shown[..place.start].to_owned();
            shown.drain(..place.end);
            Some(Answer {
                typed: line.to_owned(),
                text,
                status,
            })
        })
    }

    /// Waits until `look` finds something on the screen.
    fn wait<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        look: impl Fn(&mut String) -> Option<T>,
    ) -> Result<T> {
        let (start, deadline) = (Instant::now(), self.env.scaled(deadline));
        loop {
            // First whether QEMU has ended, then what it wrote: so nothing is missed.
            let ended = self.group.try_wait()?;
            self.read()?;
            self.env.interrupt.check()?;
            let is_dead = self
                .crashed_at
                .is_some_and(|at| at.elapsed() > self.env.scaled(LAST_WORDS));
            if let (Some(crash), true) = (self.signs.crash(), is_dead || ended.is_some()) {
                return Err(self.failure(Class::Crashed, format!("{crash} during {what}")));
            }
            if let Some(found) = look(&mut self.shown) {
                return Ok(found);
            }
            if let Some(status) = ended {
                let status = status_text(status);
                return Err(self.failure(
                    Class::NotMeasured,
                    format!("QEMU ended ({status}) during {what}"),
                ));
            }
            if start.elapsed() > deadline {
                return Err(self.failure(
                    Class::TimedOut,
                    format!("{what} did not end within {} s", deadline.as_secs()),
                ));
            }
            thread::sleep(POLL);
        }
    }

    /// Takes what screen and console have shown.
    fn read(&mut self) -> Result<()> {
        let shown = read_on(&mut self.screen)?;
        self.shown.push_str(&String::from_utf8_lossy(&shown));
        for line in self.lines.push(&read_on(&mut self.console_file)?) {
            let line = String::from_utf8_lossy(&line);
            self.signs.take(&line);
            if self.signs.crash().is_some() {
                self.crashed_at.get_or_insert_with(Instant::now);
            }
            self.env.emit(Event::Output(line.into_owned()));
        }
        Ok(())
    }

    /// An error that shows what there was to see.
    fn failure(&self, class: Class, why: String) -> anyhow::Error {
        let at = self.shown.len().saturating_sub(TAIL);
        let at = (at..=self.shown.len())
            .find(|at| self.shown.is_char_boundary(*at))
            .unwrap_or(0);
        let shown = &self.shown[at..];
        Failure::error(
            class,
            format!("{why}; the PC showed {shown:?}{}", self.signs.tail()),
        )
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.group.end(GRACE);
    }
}

/// Where the first prompt begins and ends, and the exit status in it. A program in the background may print after it.
fn prompt(shown: &str) -> Option<(Range<usize>, i32)> {
    shown.match_indices("pc[").find_map(|(begin, opening)| {
        let rest = &shown[begin + opening.len()..];
        let (status, _) = rest.split_once("]$ ")?;
        let end = begin + opening.len() + status.len() + "]$ ".len();
        Some((begin..end, status.parse().ok()?))
    })
}

impl Answer {
    /// Requires an exit status.
    ///
    /// # Errors
    ///
    /// It is another one.
    pub fn exits(self, status: i32) -> Result<Self> {
        anyhow::ensure!(
            self.status == status,
            "exit status {status} was expected: {self}"
        );
        Ok(self)
    }

    /// Requires a text in what was printed.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn says(self, text: &str) -> Result<Self> {
        anyhow::ensure!(self.text.contains(text), "{text:?} was expected: {self}");
        Ok(self)
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            typed,
            text,
            status,
        } = self;
        let at = text.len().saturating_sub(TAIL);
        let at = (at..).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        write!(
            f,
            "`{typed}` ended with exit status {status}: {}",
            &text[at..]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Collected;
    use crate::process::Interrupt;

    #[test]
    fn a_prompt_is_told_from_what_is_printed() {
        for (shown, before, status, after) in [
            ("one\ntwo\npc[0]$ ", "one\ntwo\n", 0, ""),
            ("no newlinepc[127]$ ", "no newline", 127, ""),
            ("pc[1]$ ", "", 1, ""),
            (
                "pc[x]$ pc[]$ pc[130]$ late words\n",
                "pc[x]$ pc[]$ ",
                130,
                "late words\n",
            ),
        ] {
            let (place, found) = prompt(shown).unwrap();
            assert_eq!(
                (&shown[..place.start], found, &shown[place.end..]),
                (before, status, after)
            );
        }
        for none in ["", "pc[0]$", "pc[]$ ", "pc[x]$ ", "[0]$ "] {
            assert_eq!(prompt(none), None, "{none:?}");
        }
    }

    /// A session with a program that stands in for QEMU: it reads the keyboard, shows things, and may write to the console.
    fn with_session(script: &str, test: impl FnOnce(&mut Session<'_>)) {
        let (sink, interrupt) = (Collected::default(), Interrupt::default());
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder.path());
        let env = Env {
            sink: &sink,
            interrupt: &interrupt,
            slow_factor: 0.01,
        };
        let folder = Folder::new(folder.path());
        test(&mut Session::start(env, command, &folder).unwrap());
    }

    /// A deadline that a loaded machine keeps, at this factor.
    const LONG: Duration = Duration::from_secs(2000);

    #[test]
    fn lines_are_typed_and_answered() {
        with_session(
            r#"read line; printf "got %s\npc[3]$ late words\n" "$line"; read line; printf "tick\n"; sleep 9"#,
            |session| {
                let answer = session.run_within("hello", LONG).unwrap();
                assert_eq!((answer.text.as_str(), answer.status), ("got hello\n", 3));
                assert!(answer.clone().exits(0).is_err() && answer.says("bye").is_err());
                session.type_line("go").unwrap();
                let shown = session.wait_for("tick", LONG).unwrap();
                assert_eq!(shown, "late words\ntick");
                let error = session.run("more").unwrap_err();
                assert_eq!(Failure::class_of(&error), Class::TimedOut, "{error}");
                assert!(error.to_string().contains("`more` did not end"), "{error}");
            },
        );
    }

    #[test]
    fn a_machine_that_ends_is_no_silence() {
        with_session("exit 7", |session| {
            let error = session.wait_for("x", LONG).unwrap_err();
            assert_eq!(Failure::class_of(&error), Class::NotMeasured, "{error}");
            assert!(error.to_string().contains("exit status 7"), "{error}");
        });
    }

    #[test]
    fn a_crash_is_told_from_a_silence() {
        with_session(
            "sleep 0.2; echo 'Kernel panic - not syncing: x' >>console.log; sleep 9",
            |session| {
                let error = session.wait_for("x", LONG).unwrap_err();
                assert_eq!(Failure::class_of(&error), Class::Crashed, "{error}");
            },
        );
    }
}
