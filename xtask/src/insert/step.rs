// SPDX-License-Identifier: GPL-2.0

//! The step of `run` that takes privileges, as a process of its own so that `sudo` can start just this: inserts the module, and
//! passes on what the kernel logs meanwhile. It ends early when its standard input does, so that nobody needs to send signals
//! through `sudo`, and nothing goes on when its starter is gone.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::preflight::System;
use super::{Ending, command, ending};
use crate::log::kmsg;
use crate::process::Interrupt;

/// The hidden subcommand: `xtask insert-and-tell MODULE PARAMETERS`.
pub const SUBCOMMAND: &str = "insert-and-tell";

/// What it tells, one line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// The module is about to be inserted.
    Begun,
    /// The kernel logged this.
    Message(String),
    /// That is all.
    Ended {
        /// How the insertion ended.
        ending: Ending,
        /// How many messages of the kernel came and went unread.
        lost: u64,
    },
    /// It did not come to an insertion.
    Refused(String),
}

impl Told {
    /// Understands a line.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn parse(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).with_context(|| {
            format!(
                "cannot understand what the inserting step says: {:?}",
                String::from_utf8_lossy(line)
            )
        })
    }

    /// Tells it. That nobody listens any more shows at the standard input, too.
    fn tell(&self) {
        let line = serde_json::to_string(self).unwrap_or_default();
        let mut stdout = io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

/// The step.
pub fn child(arguments: &[OsString]) -> ExitCode {
    match insert_and_tell(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Told::Refused(format!("{error:#}")).tell();
            ExitCode::FAILURE
        }
    }
}

fn insert_and_tell(arguments: &[OsString]) -> Result<()> {
    let [module, parameters] = arguments else {
        bail!("{SUBCOMMAND} takes a module and its parameters");
    };
    let parameters = parameters
        .to_str()
        .context("the module's parameters are not UTF-8")?;
    // A signal to all of us ends the insertion alone: there is a report to be read then.
    let interrupt = Interrupt::install()?;
    let mut reader = kmsg::Reader::open()?;
    if !reader.lock()? {
        bail!(
            "another run is measuring on this machine: two at once would measure each other. Wait until it has ended"
        );
    }
    // Once more, as nobody else begins now.
    if let Some(objection) = System::now().objection() {
        bail!(objection);
    }
    // What was logged before is not ours, but its numbers tell how many come next.
    reader.drain()?;

    Told::Begun.tell();
    let child = command(Path::new(module), parameters)?
        .spawn()
        .context("cannot start a child to insert the module")?;
    let mut stopped = false;
    loop {
        // No time limit: whoever wakes up now and then disturbs what is measured.
        let ready = wait(&reader, &child, stopped)?;
        for record in reader.drain()? {
            Told::Message(record.text).tell();
        }
        if ready.ended {
            break;
        }
        if !stopped && (interrupt.is_raised() || ready.stdin && stdin_has_ended()) {
            stopped = true;
            kill_process(Pid::from_child(&child), Signal::INT)
                .context("cannot end the insertion")?;
        }
    }
    let output = child
        .wait_with_output()
        .context("cannot wait for the insertion")?;
    for record in reader.drain()? {
        Told::Message(record.text).tell();
    }
    Told::Ended {
        ending: ending(output.status, &output.stdout, &output.stderr)?,
        lost: reader.lost(),
    }
    .tell();
    Ok(())
}

/// What there is to do.
struct Ready {
    /// Something came from, or happened to, the standard input.
    stdin: bool,
    /// The child has answered or died.
    ended: bool,
}

/// Waits for the kernel's log, the child, or (unless that was seen) the end of the standard input.
fn wait(reader: &kmsg::Reader, child: &std::process::Child, stopped: bool) -> Result<Ready> {
    let answer = child.stdout.as_ref().context("the child has no output")?;
    let stdin = io::stdin();
    let mut watched = vec![
        PollFd::new(answer, PollFlags::IN),
        PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN),
    ];
    if !stopped {
        watched.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
    }
    match poll(&mut watched, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("cannot wait for the insertion"),
    }
    let is_ready = |at: usize| {
        watched
            .get(at)
            .is_some_and(|watched: &PollFd<'_>| !watched.revents().is_empty())
    };
    Ok(Ready {
        ended: is_ready(0),
        stdin: is_ready(2),
    })
}

/// Reads what there is.
fn stdin_has_ended() -> bool {
    let mut bytes = [0; 64];
    matches!(io::stdin().read(&mut bytes), Ok(0) | Err(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_survives_the_pipe() {
        for told in [
            Told::Begun,
            Told::Message("messung: \"a\"\nb ä".to_owned()),
            Told::Ended {
                ending: Ending::Signal(2),
                lost: 3,
            },
            Told::Refused("no".to_owned()),
        ] {
            let line = serde_json::to_string(&told).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Told::parse(line.as_bytes()).unwrap(), told);
        }
        assert!(Told::parse(b"Password:").is_err());
    }
}
