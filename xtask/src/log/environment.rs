// SPDX-License-Identifier: GPL-2.0

//! What the running kernel says about itself, on a PC as in a guest.

use std::fs;

use crate::result::Environment;

/// Adds what the module's log does not tell.
pub fn complete(environment: &mut Environment) {
    let uname = rustix::system::uname();
    let machine = uname.machine().to_string_lossy().into_owned();
    let version = uname.version().to_string_lossy();
    let release = uname.release().to_string_lossy().into_owned();
    environment.kernel_release.get_or_insert(release);
    environment.machine.get_or_insert(machine);
    environment.preempt = environment.preempt.take().or_else(|| preemption(&version));
    environment.clocksource =
        read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    environment.cmdline = read("/proc/cmdline");
    if environment.cpus.is_none() {
        environment.cpus = read("/sys/devices/system/cpu/online").and_then(|list| count(&list));
    }
}

/// The kernel's taint mask.
pub fn taint() -> Option<u64> {
    read("/proc/sys/kernel/tainted")?.parse().ok()
}

/// Whether `/proc/modules` names a module.
pub fn module_is_loaded(name: &str) -> bool {
    fs::read_to_string("/proc/modules").is_ok_and(|modules| {
        modules
            .lines()
            .any(|line| line.split(' ').next() == Some(name))
    })
}

/// The name of the processor: x86 calls it `model name`, and so does ARM for each core; boards say `Model`.
pub fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    })
}

/// The preemption model that `uname -v` names.
fn preemption(version: &str) -> Option<String> {
    version
        .split_whitespace()
        .find(|word| word.starts_with("PREEMPT"))
        .map(str::to_owned)
}

/// How many numbers a list like `0-2,4` holds.
fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0, |sum: u32, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, cpus) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-2,4,6-7", Some(6)),
            ("", None),
            ("3-0", None),
            ("0-4294967295", None),
        ] {
            assert_eq!(count(list), cpus, "{list}");
        }
    }

    #[test]
    fn preemption_stands_in_the_version() {
        assert_eq!(
            preemption("#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1 (2026-11-15)").as_deref(),
            Some("PREEMPT_DYNAMIC")
        );
        assert_eq!(preemption("#1 SMP Debian"), None);
    }

    #[test]
    fn this_machine_has_an_environment() {
        let mut environment = Environment::default();
        complete(&mut environment);
        assert!(environment.kernel_release.is_some());
        assert!(environment.cpus.is_some_and(|cpus| cpus > 0));
    }
}
