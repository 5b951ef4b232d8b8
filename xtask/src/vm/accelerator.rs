// SPDX-License-Identifier: GPL-2.0

//! Finds out what can execute a guest in real time. That `/dev/kvm` opens says little: only a guest that really ran tells.

use anyhow::{Context as _, Result};

use super::launch::{Guest, Launcher};
use super::machine::{Accelerator, Time};
use super::supervisor::{Folder, Limits};
use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::guest::Task;

/// What a result from emulated real time carries.
pub const EMULATED: &str =
    "real time under emulation: this is no measure of any hardware, and differs from run to run";

/// Chooses how real time is kept: as asked for, or the best that works.
///
/// # Errors
///
/// KVM was asked for and does not work, the user interrupts, or the trial's folder cannot be made.
pub fn choose(launcher: &Launcher<'_>, asked: Option<Accelerator>, cpus: u32) -> Result<Time> {
    let env = launcher.env();
    let machine = launcher.machine();
    let emulated = Time::Real {
        accelerator: Accelerator::Tcg,
        cpu_model: machine.tcg_cpu,
        cpus,
    };
    if asked == Some(Accelerator::Tcg) || machine.kvm_cpus.is_empty() {
        return Ok(emulated);
    }
    let failures = match find_kvm(launcher)? {
        Ok(cpu_model) => {
            env.emit(Event::Note(format!(
                "KVM works with -cpu {cpu_model}: a guest ran up to its init"
            )));
            return Ok(Time::Real {
                accelerator: Accelerator::Kvm,
                cpu_model,
                cpus,
            });
        }
        Err(failures) => failures,
    };
    for failure in &failures {
        env.emit(Event::Note(format!("KVM does not work: {failure}")));
    }
    if asked == Some(Accelerator::Kvm) {
        return Err(Failure::error(
            Class::NotMeasured,
            format!("KVM does not work here: {}", failures.join("; ")),
        ));
    }
    env.emit(Event::Note(format!(
        "KVM does not work here, so QEMU emulates the processor (tcg, -cpu {})",
        machine.tcg_cpu
    )));
    Ok(emulated)
}

/// Tries KVM with each CPU model, by booting a guest into its init: the model that it works with, else what went wrong with each.
///
/// # Errors
///
/// The user interrupts, or the trial's folder cannot be made.
pub fn find_kvm(launcher: &Launcher<'_>) -> Result<std::result::Result<&'static str, Vec<String>>> {
    launcher.env().emit(Event::Step("trying KVM".to_owned()));
    if let Err(why) = open_kvm() {
        return Ok(Err(vec![why]));
    }
    let mut failures = Vec::new();
    for cpu_model in launcher.machine().kvm_cpus {
        let time = Time::Real {
            accelerator: Accelerator::Kvm,
            cpu_model,
            cpus: 1,
        };
        match try_once(launcher, time) {
            Ok(()) => return Ok(Ok(cpu_model)),
            Err(error) if Failure::class_of(&error) == Class::Interrupted => return Err(error),
            Err(error) => failures.push(format!("with -cpu {cpu_model}, {}", reason(&error))),
        }
    }
    Ok(Err(failures))
}

/// Whether this process may ask for KVM, else why not. It says little of whether KVM works.
pub fn open_kvm() -> std::result::Result<(), String> {
    std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .map(drop)
        .map_err(|error| format!("/dev/kvm cannot be opened ({error})"))
}

/// Boots a guest that only shows that it runs.
fn try_once(launcher: &Launcher<'_>, time: Time) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for a trial")?;
    let guest = Guest {
        time,
        task: Task::Probe,
        module: None,
        append: "",
        limits: Limits::trial(),
    };
    launcher.boot(&Folder::new(folder.path()), guest).map(drop)
}

/// What an error of a trial comes down to: its first line, and the first that QEMU said which is no mere warning.
fn reason(error: &anyhow::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let said = lines
        .skip_while(|line| *line != "QEMU said:")
        .skip(1)
        .find(|line| !line.contains("warning:"));
    match said {
        Some(said) => format!("{first}: {}", said.trim()),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short() {
        let error = anyhow::anyhow!(
            "QEMU failed (killed by signal 6) while the guest was booting\nQEMU said:\n  qemu: warning: odd\n  error: failed to set MSR\n  more\nits console stayed empty"
        );
        assert_eq!(
            reason(&error),
            "QEMU failed (killed by signal 6) while the guest was booting: error: failed to set MSR"
        );
        assert_eq!(reason(&anyhow::anyhow!("timed out\nmore")), "timed out");
    }
}
