// SPDX-License-Identifier: GPL-2.0

//! Reads a log that grows: a pipe to its end, a file until told to stop, also when the file is rotated meanwhile.

use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::stream::Scanner;

/// How often a file is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// Calls `found` with each message that a pipe brings, until it ends or `stop` says so.
///
/// # Errors
///
/// When it cannot be read.
pub fn pipe(
    mut source: impl io::Read + AsFd,
    stop: impl Fn() -> bool,
    mut found: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut scanner = Scanner::default();
    while !stop() {
        if has_more(&source)? && scanner.read(&mut source, &mut found)? == 0 {
            break;
        }
    }
    scanner.finish(&mut found);
    Ok(())
}

/// Waits until there is something to read, or the end of it; not forever, since a signal may ask to stop.
fn has_more(source: &impl AsFd) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: INTERVAL.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Calls `found` with each message in a file, and with those that come to it, until `stop` says so.
///
/// # Errors
///
/// When it cannot be read.
pub fn file(path: &Path, stop: impl Fn() -> bool, mut found: impl FnMut(&[u8])) -> io::Result<()> {
    let mut source = File::open(path)?;
    if source.metadata()?.file_type().is_fifo() {
        return pipe(source, stop, found);
    }
    let mut log = Growing {
        path: path.to_owned(),
        scanner: Scanner::default(),
        position: 0,
    };
    while !stop() {
        log.read(&mut source, &mut found)?;
        match log.rotation(&source)? {
            Rotation::None => thread::sleep(INTERVAL),
            Rotation::Replaced(next) => {
                // Something may have come between.
                log.read(&mut source, &mut found)?;
                log.restart(&mut found);
                source = next;
            }
            Rotation::Emptied => {
                log.restart(&mut found);
                source.rewind()?;
            }
        }
    }
    log.restart(&mut found);
    Ok(())
}

/// How a log was rotated.
enum Rotation {
    None,
    /// It was renamed, and another file has its name.
    Replaced(File),
    /// It was copied, and emptied.
    Emptied,
}

/// A file that grows.
struct Growing {
    path: PathBuf,
    scanner: Scanner,
    position: u64,
}

impl Growing {
    /// Reads to where the file ends now.
    fn read(&mut self, source: &mut File, found: &mut impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            match self.scanner.read(source, found)? {
                0 => return Ok(()),
                read => self.position += read as u64,
            }
        }
    }

    /// Another file begins, so the last line has come.
    fn restart(&mut self, found: &mut impl FnMut(&[u8])) {
        self.scanner.finish(found);
        self.position = 0;
    }

    /// A daemon may write to a renamed file until it is told, so this goes on until another one is there with something in it.
    fn rotation(&self, source: &File) -> io::Result<Rotation> {
        let read = source.metadata()?;
        if read.len() < self.position {
            return Ok(Rotation::Emptied);
        }
        match fs::metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) != (read.dev(), read.ino()) => {
                match File::open(&self.path) {
                    Ok(next) if named.len() > 0 => Ok(Rotation::Replaced(next)),
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(Rotation::None),
                }
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Rotation::None),
        }
    }
}
