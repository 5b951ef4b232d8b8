// SPDX-License-Identifier: GPL-2.0

//! Who may insert modules, and how one becomes that.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::PROGRAM;
use crate::process::find_program;

/// Capabilities that an insertion takes: CAP_SYS_MODULE for itself, CAP_SYSLOG to read the kernel's log.
const NEEDED: u64 = 1 << 16 | 1 << 34;

/// A program that starts others as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tool {
    /// The usual one.
    Sudo,
    /// The one from OpenBSD.
    Doas,
    /// The one of systemd.
    Run0,
}

impl Tool {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sudo => "sudo",
            Self::Doas => "doas",
            Self::Run0 => "run0",
        }
    }
}

/// Whether this process may insert modules.
pub fn are_there() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has_needed(&status))
}

fn has_needed(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & NEEDED == NEEDED)
}

/// This program, started again through a tool or as it is.
///
/// # Errors
///
/// It cannot find itself, or there is no such tool.
pub fn this_program(tool: Option<Tool>) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let Some(tool) = tool else {
        return Ok(Command::new(program));
    };
    let name = tool.name();
    let path = find_program(name).with_context(|| {
        format!("--sudo={name} needs {name}, which is not installed; there are sudo, doas and run0")
    })?;
    let mut command = Command::new(path);
    command.arg("--").arg(program);
    Ok(command)
}

/// What to do without privileges: a tool for it, or insmod (with the module, if it is to be inserted as it is) and what follows.
pub fn advice(module: Option<&Path>, parameters: &str) -> String {
    if rustix::process::geteuid().is_root() {
        return "this process may not insert modules, though it is root: it lacks CAP_SYS_MODULE or CAP_SYSLOG, as in a container; \
                run it on the machine itself"
            .to_owned();
    }
    let tools = "inserting a module takes root: add --sudo (or --sudo=doas, --sudo=run0)";
    let Some(module) = module else {
        return tools.to_owned();
    };
    // Parameters have no quotes in them, and perhaps a `*`.
    let quoted: Vec<_> = parameters
        .split(' ')
        .map(|parameter| format!("'{parameter}'"))
        .collect();
    format!(
        "{tools}, or type\n  sudo insmod {} {}\n  sudo dmesg | {PROGRAM} parse --run last -",
        module.display(),
        quoted.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read() {
        let status = |mask: &str| format!("Name:\tx\nCapPrm:\t0\nCapEff:\t{mask}\nCapBnd:\t0\n");
        assert!(has_needed(&status("000001ffffffffff")));
        assert!(has_needed(&status("0000000400010000")));
        // A container's.
        assert!(!has_needed(&status("00000000a80425fb")));
        assert!(!has_needed(&status("0000000000000000")));
        assert!(!has_needed("nonsense"));
    }
}
