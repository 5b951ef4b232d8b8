// SPDX-License-Identifier: GPL-2.0

//! The user's cache folder: what is in it appears whole or not at all. Who makes something has it alone; those who use what is
//! ready share it, and meanwhile nobody takes that away.
//!
//! Everything in it can be made again, so it can be thrown away at any time.

use std::{
    ffi::OsString,
    fmt, fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    event::Event,
    process::{Env, POLL},
};

/// Ending of what is being made.
const PARTIAL: &str = ".partial";

/// Ending of what is being replaced.
const OLD: &str = ".old";

/// Who may have the cache at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Nobody else: it may be changed.
    Alone,
    /// All who only use what is ready.
    Shared,
}

/// In the chain of an error: something has to be made, and the cache is shared.
#[derive(Debug)]
struct Unmade;

impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cache lacks something, and others are using it")
    }
}

impl std::error::Error for Unmade {}

/// The cache folder, locked for as long as this value lives.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    hold: Hold,
    /// The lock goes with the open file.
    _lock: fs::File,
}

impl Cache {
    /// Locks the user's cache folder to change it, and makes it where it is missing. Waits, and says so, while another messung
    /// has it. What a killed run left half-made is removed.
    ///
    /// # Errors
    ///
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set, the folder cannot be made, or the user interrupts.
    pub fn open(env: &Env<'_>) -> Result<Self> {
        Self::open_at(env, folder()?, Hold::Alone)
    }

    /// What `take` finds ready in the cache, which others may use at the same time. Where something has to be made, `take` gets
    /// the cache alone before that: it then makes what it looks for.
    ///
    /// # Errors
    ///
    /// Those of `take`, and of [`Self::open`].
    pub fn ready<T>(env: &Env<'_>, take: impl FnMut(Self) -> Result<T>) -> Result<T> {
        Self::ready_at(env, &folder()?, take)
    }

    fn ready_at<T>(
        env: &Env<'_>,
        path: &Path,
        mut take: impl FnMut(Self) -> Result<T>,
    ) -> Result<T> {
        loop {
            match take(Self::open_at(env, path.to_owned(), Hold::Shared)?) {
                Err(error) if error.chain().any(|cause| cause.is::<Unmade>()) => {}
                taken => return taken,
            }
            // Between the two locks others may change everything, so what was made is looked for anew.
            drop(take(Self::open_at(env, path.to_owned(), Hold::Alone)?)?);
        }
    }

    fn open_at(env: &Env<'_>, path: PathBuf, hold: Hold) -> Result<Self> {
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the cache folder {}", path.display()))?;
        let name = path.join("lock");
        let lock = fs::File::options()
            .create(true)
            .append(true)
            .open(&name)
            .with_context(|| format!("cannot open {}", name.display()))?;
        let operation = match hold {
            Hold::Alone => FlockOperation::NonBlockingLockExclusive,
            Hold::Shared => FlockOperation::NonBlockingLockShared,
        };
        let mut told = false;
        loop {
            match flock(&lock, operation) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot lock {}", name.display()));
                }
            }
            env.interrupt.check()?;
            if !told {
                env.emit(Event::Note(format!(
                    "another messung is using {}; waiting for it to finish",
                    path.display()
                )));
                told = true;
            }
            thread::sleep(POLL.max(Duration::from_millis(100)));
        }
        let cache = Self {
            path,
            hold,
            _lock: lock,
        };
        if hold == Hold::Alone {
            cache.sweep(2)?;
        }
        Ok(cache)
    }

    /// To be asked before anything is made, and before that is announced.
    ///
    /// # Errors
    ///
    /// Others are using the cache; [`Self::ready`] knows what to do then.
    pub fn may_change(&self) -> Result<()> {
        match self.hold {
            Hold::Alone => Ok(()),
            Hold::Shared => Err(Unmade.into()),
        }
    }

    /// A path below the cache folder.
    pub fn join(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path.join(relative)
    }

    /// Makes a file or folder whole or not at all: `make` fills a path next to the final one (which it has to create), and
    /// only its success puts that into place, instead of what is there now.
    ///
    /// # Errors
    ///
    /// Those of `make`; or the file system refuses.
    pub fn whole<T>(
        &self,
        relative: impl AsRef<Path>,
        make: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        self.may_change()?;
        let target = self.join(relative);
        let partial = with_ending(&target, PARTIAL);
        let old = with_ending(&target, OLD);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        remove_all(&partial)?;
        let made = make(&partial).inspect_err(|_| {
            // The error of `make` says more than one from here; the next run sweeps again.
            let _ = remove_all(&partial);
        })?;
        let place = || -> io::Result<()> {
            if target.symlink_metadata().is_ok() {
                fs::rename(&target, &old)?;
            }
            fs::rename(&partial, &target)
        };
        place().with_context(|| format!("cannot put {} into place", target.display()))?;
        remove_all(&old)?;
        Ok(made)
    }

    /// [`Self::whole`] for a file of known content, unless it is there.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub fn write(&self, relative: impl AsRef<Path>, content: &str) -> Result<()> {
        if fs::read(self.join(&relative)).is_ok_and(|there| there == content.as_bytes()) {
            return Ok(());
        }
        self.whole(relative, |path| {
            fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
        })
    }

    /// A new folder for what is needed only for a while. It goes with the value.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub fn scratch(&self, name: &str) -> Result<Scratch> {
        self.may_change()?;
        // A killed run's is swept like anything half-made.
        let path = self.join(format!("{name}{PARTIAL}"));
        remove_all(&path)?;
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }

    /// Removes everything in the cache, and says how many bytes of disk that frees.
    ///
    /// # Errors
    ///
    /// The file system refuses, or the user interrupts; the next run then goes on with what is left.
    pub fn clean(self, env: &Env<'_>) -> Result<u64> {
        self.may_change()?;
        env.emit(Event::Step(format!("removing {}", self.path.display())));
        let freed = disk_use(&self.path)?;
        // All names change before anything goes: whatever ends this in between, nothing half-removed looks whole.
        let mut old = Vec::new();
        for entry in read_dir(&self.path)? {
            // Another messung may be waiting for this very file.
            if entry.file_name() == "lock" {
                continue;
            }
            let path = entry.path();
            let renamed = with_ending(&path, OLD);
            remove_all(&renamed)?;
            fs::rename(&path, &renamed)
                .with_context(|| format!("cannot rename {}", path.display()))?;
            old.push(renamed);
        }
        for path in old {
            remove_in_parts(&path, 4, env)?;
        }
        Ok(freed)
    }

    /// Removes what a killed run left, down to `depth` levels of folders.
    fn sweep(&self, depth: usize) -> Result<()> {
        fn level(folder: &Path, depth: usize) -> Result<()> {
            for entry in read_dir(folder)? {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.ends_with(PARTIAL) || name.ends_with(OLD) {
                    remove_all(&entry.path())?;
                } else if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    level(&entry.path(), depth - 1)?;
                }
            }
            Ok(())
        }
        level(&self.path, depth)
    }
}

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next run sweeps again.
        let _ = remove_all(&self.0);
    }
}

/// Where the cache is: `$XDG_CACHE_HOME/messung`, else `~/.cache/messung`.
///
/// # Errors
///
/// Neither variable is set.
pub fn folder() -> Result<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    match (absolute("XDG_CACHE_HOME"), absolute("HOME")) {
        (Some(cache), _) => Ok(cache.join("messung")),
        (None, Some(home)) => Ok(home.join(".cache/messung")),
        (None, None) => bail!(
            "neither XDG_CACHE_HOME nor HOME is set to an absolute path; set one to say where the cache shall be"
        ),
    }
}

/// Bytes that the file system of a path has left for us; of one that is not there yet, that of the folder it would be made in.
///
/// # Errors
///
/// The system cannot tell.
pub fn space(path: &Path) -> Result<u64> {
    let there = path.ancestors().find(|path| path.exists());
    let stat = rustix::fs::statvfs(there.unwrap_or(path))
        .with_context(|| format!("cannot tell how much space {} has", path.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Fails unless the file system of `path` has `needed` bytes left for us.
///
/// # Errors
///
/// There is less; the message says what is needed and what is there.
pub fn require_space(path: &Path, needed: u64, what: &str) -> Result<()> {
    let available = space(path)?;
    if available < needed {
        bail!(
            "no space on the disk: {what} needs {} in {}, and {} are available; \
             free some, or set XDG_CACHE_HOME to a folder on a larger disk",
            megabytes(needed),
            path.display(),
            megabytes(available)
        );
    }
    Ok(())
}

/// Bytes for people.
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// Bytes of disk below a path, counting each file once.
///
/// # Errors
///
/// A folder cannot be read.
pub fn disk_use(path: &Path) -> Result<u64> {
    fn level(path: &Path, seen: &mut std::collections::HashSet<u64>) -> Result<u64> {
        let data = path
            .symlink_metadata()
            .with_context(|| format!("cannot look at {}", path.display()))?;
        let mut bytes = 0;
        if data.is_dir() || data.nlink() == 1 || seen.insert(data.ino()) {
            bytes = data.blocks() * 512;
        }
        if data.is_dir() {
            for entry in read_dir(path)? {
                bytes += level(&entry.path(), seen)?;
            }
        }
        Ok(bytes)
    }
    level(path, &mut std::collections::HashSet::new())
}

/// Removes a file or a folder with all it holds, if it is there, even where folders are read-only.
///
/// # Errors
///
/// The file system refuses.
pub fn remove_all(path: &Path) -> Result<()> {
    let Ok(data) = path.symlink_metadata() else {
        return Ok(());
    };
    let remove = || {
        if data.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    };
    match remove() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path);
            remove()
        }
        result => result,
    }
    .with_context(|| format!("cannot remove {}", path.display()))
}

/// [`remove_all`], with a look at whether the user interrupts before each part, down to `depth` levels of folders.
fn remove_in_parts(path: &Path, depth: usize, env: &Env<'_>) -> Result<()> {
    env.interrupt.check()?;
    if depth > 0 && path.symlink_metadata().is_ok_and(|data| data.is_dir()) {
        // A folder that can't be read is the business of `remove_all`.
        for entry in read_dir(path).unwrap_or_default() {
            remove_in_parts(&entry.path(), depth - 1, env)?;
        }
    }
    remove_all(path)
}

/// Makes folders writable for their owner, as far as that goes.
fn make_writable(path: &Path) {
    let is_folder = path.symlink_metadata().is_ok_and(|data| data.is_dir());
    if is_folder && fs::set_permissions(path, fs::Permissions::from_mode(0o700)).is_ok() {
        for entry in read_dir(path).unwrap_or_default() {
            make_writable(&entry.path());
        }
    }
}

/// The entries of a folder.
fn read_dir(path: &Path) -> Result<Vec<fs::DirEntry>> {
    fs::read_dir(path)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read the folder {}", path.display()))
}

/// The path with something at the end of its name.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Collected,
        failure::{Class, Failure},
        process::Interrupt,
    };

    fn with_env<T>(test: impl FnOnce(Env<'_>, &Collected, &Interrupt, &Path) -> T) -> T {
        let sink = Collected::default();
        let interrupt = Interrupt::default();
        let folder = tempfile::tempdir().unwrap();
        let env = Env {
            sink: &sink,
            interrupt: &interrupt,
            slow_factor: 1.0,
        };
        test(env, &sink, &interrupt, folder.path())
    }

    #[test]
    fn what_fails_does_not_appear() {
        with_env(|env, _, _, folder| {
            let cache = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            let result = cache.whole("trees/x", |path| {
                fs::create_dir(path)?;
                fs::write(path.join("half"), "made")?;
                Err::<(), _>(anyhow::anyhow!("the disk broke"))
            });
            assert_eq!(result.unwrap_err().to_string(), "the disk broke");
            assert_eq!(fs::read_dir(cache.join("trees")).unwrap().count(), 0);
        });
    }

    #[test]
    fn what_succeeds_replaces_what_was_there() {
        with_env(|env, _, _, folder| {
            let cache = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            for text in ["one", "two"] {
                cache
                    .whole("k/r", |path| {
                        fs::create_dir(path)?;
                        Ok(fs::write(path.join(text), text)?)
                    })
                    .unwrap();
            }
            let names: Vec<_> = read_dir(&cache.join("k/r")).unwrap();
            assert_eq!(names.len(), 1);
            assert_eq!(names[0].file_name(), "two");
            assert_eq!(fs::read_dir(cache.join("k")).unwrap().count(), 1);
        });
    }

    #[test]
    fn leftovers_of_a_killed_run_go() {
        with_env(|env, _, _, folder| {
            let left = folder.join("c/trees/x.partial/ro");
            fs::create_dir_all(&left).unwrap();
            fs::write(left.join("file"), "").unwrap();
            fs::set_permissions(&left, fs::Permissions::from_mode(0o555)).unwrap();
            let cache = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            assert!(!cache.join("trees/x.partial").exists());
            assert!(cache.join("trees").exists());
        });
    }

    #[test]
    fn a_second_one_waits_and_can_be_interrupted() {
        with_env(|env, sink, interrupt, folder| {
            let first = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            let later = interrupt.clone();
            let raiser = thread::spawn(move || {
                thread::sleep(Duration::from_millis(150));
                later.raise();
            });
            let error = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap_err();
            raiser.join().unwrap();
            assert_eq!(Failure::class_of(&error), Class::Interrupted);
            let events = sink.0.lock().unwrap();
            assert_eq!(events.len(), 1, "told once");
            assert!(matches!(&events[0], Event::Note(text) if text.contains("another messung")));
            drop(first);
        });
    }

    #[test]
    fn those_who_use_it_share_it_and_who_changes_it_waits_for_them() {
        with_env(|env, _, interrupt, folder| {
            // Whoever had to wait is interrupted.
            interrupt.raise();
            let open = |hold| Cache::open_at(&env, folder.join("c"), hold);
            let _users = [open(Hold::Shared).unwrap(), open(Hold::Shared).unwrap()];
            let error = open(Hold::Alone).unwrap_err();
            assert_eq!(Failure::class_of(&error), Class::Interrupted);
        });
    }

    #[test]
    fn what_is_missing_is_made_alone_and_used_together() {
        with_env(|env, _, interrupt, folder| {
            // Whoever had to wait is interrupted.
            interrupt.raise();
            let path = folder.join("c");
            let mut holds = Vec::new();
            let mut take = |cache: Cache| {
                holds.push(cache.hold);
                cache.write("x", "made")?;
                Ok(cache)
            };
            let first = Cache::ready_at(&env, &path, &mut take).unwrap();
            let second = Cache::ready_at(&env, &path, &mut take).unwrap();
            drop((first, second));
            assert_eq!(
                holds,
                [Hold::Shared, Hold::Alone, Hold::Shared, Hold::Shared]
            );
        });
    }

    #[test]
    fn what_others_use_is_not_changed() {
        with_env(|env, _, _, folder| {
            let open = |hold| Cache::open_at(&env, folder.join("c"), hold).unwrap();
            open(Hold::Alone).write("x", "one").unwrap();
            let left = folder.join("c/half.partial");
            fs::write(&left, "").unwrap();
            let cache = open(Hold::Shared);
            cache.write("x", "one").unwrap();
            assert!(cache.write("x", "two").unwrap_err().is::<Unmade>());
            assert!(cache.scratch("y").unwrap_err().is::<Unmade>());
            assert!(cache.clean(&env).unwrap_err().is::<Unmade>());
            assert_eq!(fs::read_to_string(folder.join("c/x")).unwrap(), "one");
            // Sweeping is for who has it alone.
            assert!(left.exists());
        });
    }

    #[test]
    fn clean_says_what_it_frees() {
        with_env(|env, _, _, folder| {
            let cache = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            cache
                .write("rows/amd64.json", &"x".repeat(100_000))
                .unwrap();
            assert!(cache.clean(&env).unwrap() >= 100_000);
            assert!(!folder.join("c/rows").exists());
        });
    }

    #[test]
    fn a_clean_that_is_cut_short_leaves_nothing_that_looks_whole() {
        with_env(|env, _, interrupt, folder| {
            let cache = Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            cache.write("trees/x/usr", "half").unwrap();
            interrupt.raise();
            let error = cache.clean(&env).unwrap_err();
            assert_eq!(Failure::class_of(&error), Class::Interrupted);
            assert!(!folder.join("c/trees").exists());
            assert!(folder.join("c/trees.old").exists());
            // The next run goes on with it.
            let env = Env {
                interrupt: &Interrupt::default(),
                ..env
            };
            Cache::open_at(&env, folder.join("c"), Hold::Alone).unwrap();
            assert!(!folder.join("c/trees.old").exists());
        });
    }

    #[test]
    fn missing_space_is_told_in_numbers() {
        let error = require_space(Path::new("/"), u64::MAX, "the build root").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the build root needs"), "{text}");
        assert!(text.contains("are available"), "{text}");
        require_space(Path::new("/"), 0, "nothing").unwrap();
    }
}
