// SPDX-License-Identifier: GPL-2.0

//! What checks work with: a scratch folder, children that may fail, this very program as one of them, and a look at what those
//! leave behind.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use super::harness::Need;
use super::pc::Start;
use crate::event::Event;
use crate::process::{self, Env, Group, POLL};
use crate::vm::secure_boot;
use crate::vm::session::Session;
use crate::vm::userland;

/// Past any deadline of the program itself: only a defect gets there.
const DEADLINE: Duration = Duration::from_secs(3600);

/// How long a child's children may take to go once it has gone.
const LINGER: Duration = Duration::from_secs(3);

/// Lines of a child's output that are shown where it did what it should not.
const TAIL: usize = 20;

/// Where checks do their work.
pub struct Bench<'a> {
    /// Events and the interrupt.
    pub env: Env<'a>,
    /// The root of the repository.
    pub repository: PathBuf,
    /// A PC that stays on between checks, and how it was started.
    pub pc: Cell<Option<(Start, Session<'a>)>>,
    quick: bool,
    long: bool,
    program: PathBuf,
    scratch: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    /// A bench with a scratch folder that goes with it.
    ///
    /// # Errors
    ///
    /// The system refuses the folder or to hand orphans to us.
    pub fn new(env: Env<'a>, quick: bool, long: bool) -> Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("messung-test-")
            .tempdir()
            .context("cannot make a temporary folder")?;
        // What a child leaves running becomes our child then, so that it can be seen.
        set_child_subreaper(Some(getpid())).context("cannot become the parent of orphans")?;
        let program = scratch.path().join("xtask");
        let running = std::env::current_exe().context("cannot find this program")?;
        // A copy: cargo may build the program anew while the checks run.
        fs::copy(&running, &program)
            .with_context(|| format!("cannot copy {}", running.display()))?;
        Ok(Self {
            env,
            repository: crate::kernel::module::repository(),
            pc: Cell::default(),
            quick,
            long,
            program,
            scratch,
        })
    }

    /// A new, empty folder.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn folder(&self) -> Result<PathBuf> {
        let folder = tempfile::Builder::new()
            .prefix("")
            .tempdir_in(self.scratch.path())
            .context("cannot make a temporary folder")?;
        Ok(folder.keep())
    }

    /// Why a need is not met, if it is not.
    pub fn missing(&self, need: Need) -> Option<String> {
        match need {
            Need::Guests => self
                .quick
                .then(|| "--quick boots no virtual machine".to_owned()),
            Need::Patience => {
                (!self.long).then(|| "IT TAKES MINUTES: run it with --long".to_owned())
            }
            Need::Network => (!has_network())
                .then(|| "no network: neither a default route nor a proxy".to_owned()),
            Need::Kernels => {
                if !has_network() && !is_cached("kernels") {
                    return Some("no network to fetch a kernel from, and none in the cache".into());
                }
                self.namespaces().err().map(|error| format!("{error:#}"))
            }
            Need::Userland => (!has_network() && !is_cached(userland::FOLDER))
                .then(|| "no network to fetch a userland from, and none in the cache".into()),
            Need::Firmware => (!has_network() && !is_cached(secure_boot::FOLDER))
                .then(|| "no network to fetch a firmware from, and none in the cache".into()),
            Need::Root => {
                (!rustix::process::geteuid().is_root()).then(|| "this needs root".to_owned())
            }
            Need::Program(words, advice) => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).current_dir(&self.repository);
                let found = self.end(command).is_ok_and(|ended| ended.status.success());
                (!found).then(|| format!("`{}` does not run; {advice}", words.join(" ")))
            }
        }
    }

    /// Whether this machine lets us mount in a namespace of our own.
    fn namespaces(&self) -> Result<()> {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "mount", "-t", "tmpfs", "probe", "/mnt"]);
        self.end(command)?
            .exits(0)
            .map(drop)
            .context("this machine does not let us mount in a namespace")
    }

    /// cargo, in the repository.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments).current_dir(&self.repository);
        command
    }

    /// This program.
    pub fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.repository);
        command
    }

    /// This program, started by another one (`unshare --net`, …) if that is not empty.
    pub fn xtask_under(&self, launcher: &[&str], arguments: &[&str]) -> Command {
        let Some((program, rest)) = launcher.split_first() else {
            return self.xtask(arguments);
        };
        let mut command = Command::new(program);
        command
            .args(rest)
            .arg(&self.program)
            .args(arguments)
            .current_dir(&self.repository);
        command
    }

    /// Starts a command.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(&self, mut command: Command) -> Result<Running<'a>> {
        let shown = process::shell(&command);
        self.env.emit(Event::Command(shown.clone()));
        let folder = self.folder()?;
        let file = |name: &str| {
            let path = folder.join(name);
            let file =
                File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
            anyhow::Ok((path, Stdio::from(file)))
        };
        let (out, stdout) = file("out")?;
        let (err, stderr) = file("err")?;
        command.stdout(stdout).stderr(stderr);
        Ok(Running {
            env: self.env,
            group: Group::spawn(command)?,
            start: Instant::now(),
            shown,
            out,
            err,
        })
    }

    /// Runs a command to its end, however it ends.
    ///
    /// # Errors
    ///
    /// It cannot be started, takes far too long, or the user interrupts.
    pub fn end(&self, command: Command) -> Result<Ended> {
        self.start(command)?.end()
    }

    /// Runs a command that has to succeed.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn succeed(&self, command: Command) -> Result<Ended> {
        self.end(command)?.exits(0)
    }

    /// Runs this program to its end; it must leave neither a process nor a mount behind.
    ///
    /// # Errors
    ///
    /// It does, or cannot be run.
    pub fn end_xtask(&self, arguments: &[&str]) -> Result<Ended> {
        let before = Surroundings::now()?;
        let ended = self.end(self.xtask(arguments))?;
        before.are_unchanged()?;
        Ok(ended)
    }
}

/// A command while it runs.
pub struct Running<'a> {
    env: Env<'a>,
    group: Group,
    start: Instant,
    shown: String,
    out: PathBuf,
    err: PathBuf,
}

impl Running<'_> {
    /// Waits until it has ended.
    ///
    /// # Errors
    ///
    /// It takes far too long, or the user interrupts: it is ended then.
    pub fn end(mut self) -> Result<Ended> {
        loop {
            if let Some(ended) = self.try_end()? {
                return Ok(ended);
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until a line of its errors has a text in it, and sends a signal then.
    ///
    /// # Errors
    ///
    /// It ends without saying so.
    pub fn signal_after(&mut self, text: &str, signal: Signal) -> Result<()> {
        self.wait_for(text)?;
        let id = Pid::from_child(self.group.child());
        kill_process(id, signal).context("cannot send a signal")
    }

    /// Waits until a line of its errors has a text in it.
    ///
    /// # Errors
    ///
    /// It ends without saying so.
    pub fn wait_for(&mut self, text: &str) -> Result<()> {
        loop {
            if read(&self.err)?.contains(text) {
                return Ok(());
            }
            if let Some(ended) = self.try_end()? {
                bail!("it never said {text:?}: {ended}");
            }
            thread::sleep(POLL);
        }
    }

    /// How it ended, if it has.
    fn try_end(&mut self) -> Result<Option<Ended>> {
        if let Some(status) = self.group.try_wait()? {
            return Ok(Some(Ended {
                shown: self.shown.clone(),
                status,
                out: read(&self.out)?,
                err: read(&self.err)?,
                elapsed: self.start.elapsed(),
            }));
        }
        if self.env.interrupt.is_raised() || self.start.elapsed() > DEADLINE {
            self.group.end(2 * process::GRACE);
            self.env.interrupt.check()?;
            bail!("{} did not end within {} s", self.shown, DEADLINE.as_secs());
        }
        Ok(None)
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    shown: String,
    /// How.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// How long it took.
    pub elapsed: Duration,
}

impl Ended {
    /// Requires an exit status.
    ///
    /// # Errors
    ///
    /// It is another one.
    pub fn exits(self, code: i32) -> Result<Self> {
        ensure!(
            self.status.code() == Some(code),
            "exit status {code} was expected: {self}"
        );
        Ok(self)
    }

    /// Requires a text in what it printed.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn says(self, text: &str) -> Result<Self> {
        ensure!(
            self.out.contains(text) || self.err.contains(text),
            "{text:?} was expected: {self}"
        );
        Ok(self)
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<_> = self.out.lines().chain(self.err.lines()).collect();
        let last = &lines[lines.len().saturating_sub(TAIL)..];
        // A script among the arguments would hide what matters; -v shows all of it.
        let shown = self.shown.lines().last().unwrap_or_default();
        write!(
            f,
            "`{shown}` ended with {}{}",
            process::status_text(self.status),
            last.iter()
                .map(|line| format!("\n  {line}"))
                .collect::<String>()
        )
    }
}

/// Our children, and mounts that may be ours.
#[derive(Debug)]
pub struct Surroundings {
    children: BTreeSet<(i32, String)>,
    mounts: BTreeSet<String>,
}

impl Surroundings {
    /// As they are now.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn now() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot see the mounts")?;
        Ok(Self {
            children: children()?,
            mounts: mounts
                .lines()
                .filter(|line| is_ours(line))
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Requires that nothing has been added since.
    ///
    /// # Errors
    ///
    /// Something has; a process is killed.
    pub fn are_unchanged(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let now = Self::now()?;
            let processes: Vec<_> = now.children.difference(&self.children).collect();
            let mounts: Vec<_> = now.mounts.difference(&self.mounts).collect();
            if processes.is_empty() && mounts.is_empty() {
                return Ok(());
            }
            if start.elapsed() > LINGER {
                for (id, _) in &processes {
                    if let Some(id) = Pid::from_raw(*id) {
                        let _ = kill_process(id, Signal::KILL);
                    }
                }
                bail!("left behind: processes {processes:?}, mounts {mounts:?}");
            }
            thread::sleep(POLL);
        }
    }
}

/// Number and name of each living child of ours, adopted ones included.
fn children() -> Result<BTreeSet<(i32, String)>> {
    let own = getpid().as_raw_pid();
    Ok(fs::read_dir("/proc")
        .context("cannot see the processes")?
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            // One that goes while we look is none.
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (name, parent) = living(&stat)?;
            (parent == own).then_some((id, name))
        })
        .collect())
}

/// Whether a mount may be this program's doing: in its cache, in a folder of these checks, or where a tree is made. Other
/// people's disks come and go.
fn is_ours(mount: &str) -> bool {
    ["messung", "mmdebstrap"]
        .iter()
        .any(|word| mount.contains(word))
}

/// Name and parent in a line of `/proc/<pid>/stat`, if that process lives.
fn living(stat: &str) -> Option<(String, i32)> {
    let (_, rest) = stat.split_once('(')?;
    // A name may hold brackets and blanks itself.
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    Some((name.to_owned(), fields.next()?.parse().ok()?))
}

/// Whether there may be a network: a default route, or a proxy that is named.
fn has_network() -> bool {
    let routes = |path| fs::read_to_string(path).unwrap_or_default();
    has_default_route(&routes("/proc/net/route"))
        || has_default_route6(&routes("/proc/net/ipv6_route"))
        || ["http_proxy", "https_proxy", "HTTPS_PROXY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Whether `/proc/net/route` has one to anywhere.
fn has_default_route(routes: &str) -> bool {
    routes
        .lines()
        .any(|line| line.split_ascii_whitespace().nth(1) == Some("00000000"))
}

/// Whether `/proc/net/ipv6_route` has one to anywhere that is not the loopback's refusal.
fn has_default_route6(routes: &str) -> bool {
    routes.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.next().is_some_and(|to| to.bytes().all(|b| b == b'0'))
            && words.next() == Some("00")
            && words.last() != Some("lo")
    })
}

/// Whether a folder of the cache holds something.
fn is_cached(name: &str) -> bool {
    crate::cache::folder()
        .and_then(|folder| Ok(fs::read_dir(folder.join(name))?))
        .is_ok_and(|mut entries| entries.next().is_some())
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_processes_are_told_from_dead_ones() {
        assert_eq!(
            living("12 (a (b) c) S 7 12 12 0"),
            Some(("a (b) c".to_owned(), 7))
        );
        assert_eq!(living("12 (x) Z 7 12 12 0"), None);
        assert_eq!(living("garbage"), None);
    }

    #[test]
    fn default_routes_are_seen() {
        let header = "Iface\tDestination\tGateway\n";
        assert!(has_default_route(&format!(
            "{header}eth0\t00000000\t010200C0\t0003\n"
        )));
        assert!(!has_default_route(&format!(
            "{header}eth0\t000200C0\t00000000\t0001\n"
        )));
        let zero = "0".repeat(32);
        let route = |device| format!("{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 {device}\n");
        assert!(!has_default_route6(&route("lo")));
        assert!(has_default_route6(&route("eth0")));
    }
}
