// SPDX-License-Identifier: GPL-2.0

//! Inserts a module once: one `finit_module` call, in a child, so that a fatal signal ends the call and not us.
//!
//! `insmod` will not do: when finit_module fails, some try init_module as well, and a module that refuses to stay loaded measures twice.

#[cfg(feature = "report")]
pub mod module_file;
#[cfg(feature = "report")]
pub mod preflight;
#[cfg(feature = "report")]
pub mod privileges;
#[cfg(feature = "report")]
pub mod sign;
#[cfg(feature = "report")]
pub mod step;
pub mod witness;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The hidden subcommand that makes the call: `xtask insert-once MODULE PARAMETERS`.
pub const SUBCOMMAND: &str = "insert-once";

/// What the child prints before the error number.
const ANSWER: &str = "errno ";

/// How the insertion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// finit_module failed with this error number; 0 is success.
    Errno(i32),
    /// The child died by this signal.
    Signal(i32),
}

impl Ending {
    /// The module measured, and then refused to stay, as it always does.
    pub const MEASURED: Self = Self::Errno(Errno::IO.raw_os_error());

    /// In words.
    pub fn text(self) -> String {
        match self {
            Self::Errno(0) => "the module stayed loaded".to_owned(),
            Self::Errno(number) => {
                let error = std::io::Error::from_raw_os_error(number);
                format!("finit_module failed: {error}")
            }
            Self::Signal(number) => format!("signal {number} ended the insertion"),
        }
    }

    /// What is behind it, and what to do. The kernel's own log often says more.
    pub fn remedy(self) -> Option<&'static str> {
        let Self::Errno(number) = self else {
            return None;
        };
        Some(match Errno::from_raw_os_error(number) {
            Errno::PERM => {
                "inserting takes root, outside of containers, and where the kernel is locked down (Secure Boot) a signature by a key that it trusts"
            }
            Errno::NOKEY | Errno::KEYREJECTED => {
                "the kernel takes modules only with a signature by a key that it trusts: see --sign-key, and mokutil for the key"
            }
            Errno::BADMSG => "the module's signature cannot be understood",
            Errno::NOEXEC => "the module was built for another kernel, or its file is damaged",
            Errno::NOENT => {
                "the module needs something that this kernel does not have: it was built for another one"
            }
            Errno::INVAL => "the module refuses its parameters",
            Errno::EXIST => "a module of this name is loaded already: rmmod removes it",
            Errno::BUSY => {
                "another module of this name was being inserted: wait until that has ended"
            }
            Errno::NOMEM => "the kernel had not enough memory for the module",
            _ => return None,
        })
    }
}

/// The child's command. std gives children default signals.
///
/// # Errors
///
/// This program cannot find itself.
pub fn command(module: &Path, parameters: &str) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let mut command = Command::new(program);
    command
        .arg(SUBCOMMAND)
        .arg(module)
        .arg(parameters)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// What a finished child of [`command`] tells.
///
/// # Errors
///
/// The child did not get as far as the call.
pub fn ending(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Result<Ending> {
    if let Some(signal) = status.signal() {
        return Ok(Ending::Signal(signal));
    }
    let answer = std::str::from_utf8(stdout)
        .ok()
        .and_then(|text| text.strip_suffix('\n')?.strip_prefix(ANSWER)?.parse().ok());
    match answer {
        Some(number) => Ok(Ending::Errno(number)),
        None => bail!(
            "the insertion ended before finit_module was called ({status}): {}",
            String::from_utf8_lossy(stderr).trim_end()
        ),
    }
}

/// Inserts a module and waits until that has ended.
///
/// # Errors
///
/// The child cannot be started or did not get as far as the call.
pub fn insert(module: &Path, parameters: &str) -> Result<Ending> {
    let output = command(module, parameters)?
        .output()
        .context("cannot start a child to insert the module")?;
    ending(output.status, &output.stdout, &output.stderr)
}

/// The child: makes the call, prints the error number.
pub fn child(arguments: &[OsString]) -> ExitCode {
    match call(arguments) {
        Ok(number) => {
            println!("{ANSWER}{number}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn call(arguments: &[OsString]) -> Result<i32> {
    let [module, parameters] = arguments else {
        bail!("{SUBCOMMAND} takes a module and its parameters");
    };
    let file = File::open(module)
        .with_context(|| format!("cannot open the module {}", Path::new(module).display()))?;
    let parameters = CString::new(parameters.clone().into_vec())
        .context("the module's parameters hold a NUL byte")?;
    Ok(match rustix::system::finit_module(&file, &parameters, 0) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(
            ending(exited(0), b"errno 5\n", b"").unwrap(),
            Ending::MEASURED
        );
        assert_eq!(
            ending(exited(0), b"errno 0\n", b"").unwrap(),
            Ending::Errno(0)
        );
        assert_eq!(
            ending(ExitStatus::from_raw(9), b"", b"").unwrap(),
            Ending::Signal(9)
        );
        // Half an answer is none.
        for half in [&b"errno 5"[..], b"errno \n", b"", b"5\n"] {
            assert!(ending(exited(0), half, b"").is_err());
        }
        let error = ending(exited(1), b"", b"no such file\n").unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
    }

    #[test]
    fn endings_have_words() {
        assert!(Ending::Errno(8).text().contains("Exec format error"));
        assert!(Ending::Signal(9).text().contains("signal 9"));
    }

    #[test]
    fn refusals_have_a_remedy() {
        for error in [
            Errno::PERM,
            Errno::NOKEY,
            Errno::KEYREJECTED,
            Errno::NOEXEC,
            Errno::INVAL,
            Errno::EXIST,
            Errno::BUSY,
        ] {
            let ending = Ending::Errno(error.raw_os_error());
            assert!(ending.remedy().is_some(), "{}", ending.text());
        }
        assert_eq!(Ending::MEASURED.remedy(), None);
    }

    #[test]
    fn the_child_names_a_missing_module() {
        let error = call(&["/nonexistent/messung.ko".into(), "".into()]).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/messung.ko"));
    }
}
