// SPDX-License-Identifier: GPL-2.0

//! What the running kernel says about itself, on a PC as in a guest.

use std::fs;
use std::path::Path;

use crate::result::{Environment, Frequency, Unknown};

/// Adds what the module's log does not tell.
pub fn complete(environment: &mut Environment) {
    let uname = rustix::system::uname();
    let version = uname.version().to_string_lossy();
    let release = uname.release().to_string_lossy().into_owned();
    environment.kernel_release.get_or_insert(release);
    environment.machine.get_or_insert_with(machine);
    environment.preempt = environment.preempt.take().or_else(|| preemption(&version));
    environment.clocksource =
        read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    environment.cmdline = read("/proc/cmdline");
    if environment.cpus.is_none() {
        environment.cpus = cpus();
    }
}

/// The machine, as `uname -m` names it.
pub fn machine() -> String {
    let uname = rustix::system::uname();
    uname.machine().to_string_lossy().into_owned()
}

/// The kernel's taint mask.
pub fn taint() -> Option<u64> {
    read("/proc/sys/kernel/tainted")?.parse().ok()
}

/// Taint that each insertion of ours adds: out of tree, no trusted signature.
pub const TAINT_OF_OURS: u64 = 1 << 12 | 1 << 13;

/// What a kernel's taint mask means, as the letters of the kernel's own document.
pub fn taint_letters(mask: u64) -> String {
    const LETTERS: &str = "PFSRMBUDAWCIOELKXTNJ";
    LETTERS
        .chars()
        .enumerate()
        .filter(|(bit, _)| mask >> bit & 1 == 1)
        .map(|(_, letter)| letter)
        .collect()
}

/// The frequency of each processor, in order; none where the kernel does not set frequencies.
pub fn frequencies() -> Vec<Frequency> {
    frequencies_in(Path::new("/sys/devices/system/cpu"))
}

fn frequencies_in(cpus: &Path) -> Vec<Frequency> {
    let Ok(entries) = fs::read_dir(cpus) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let cpu = entry.file_name().to_str()?.strip_prefix("cpu")?.parse();
            let field = |name| read(entry.path().join("cpufreq").join(name));
            let governor = field("scaling_governor");
            let khz = field("scaling_cur_freq").and_then(|text| text.parse().ok());
            (governor.is_some() || khz.is_some()).then_some(Frequency {
                cpu: cpu.ok()?,
                governor,
                khz,
                unknown: Unknown::new(),
            })
        })
        .collect();
    found.sort_unstable_by_key(|frequency| frequency.cpu);
    found
}

/// The kernel's modules as `/proc/modules` lists them; there is none where the kernel takes no modules.
pub fn modules() -> Option<String> {
    fs::read_to_string("/proc/modules").ok()
}

/// The state of a module in that list: `Live`, `Loading` or `Unloading`.
pub fn module_state<'a>(modules: &'a str, name: &str) -> Option<&'a str> {
    modules.lines().find_map(|line| {
        let mut words = line.split(' ');
        (words.next()? == name)
            .then(|| words.nth(3))
            .map(|state| state.unwrap_or("Live"))
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

/// The board as the firmware names it, on ARM in the device tree, on a PC in its DMI table.
pub fn board() -> Option<String> {
    let of_tree = read("/proc/device-tree/model");
    let of_dmi = || {
        let field = |name| read(format!("/sys/class/dmi/id/{name}"));
        let words: Vec<_> = [field("sys_vendor"), field("product_name")]
            .into_iter()
            .flatten()
            .collect();
        (!words.is_empty()).then(|| words.join(" "))
    };
    of_tree
        .map(|model| model.trim_end_matches('\0').to_owned())
        .or_else(of_dmi)
}

/// How many CPUs are online.
pub fn cpus() -> Option<u32> {
    read("/sys/devices/system/cpu/online").and_then(|list| count(&list))
}

/// CONFIG_HZ in a kernel's configuration; the usual one where that is not at hand. For estimates.
pub fn hz(config: &Path) -> u32 {
    const USUAL: u32 = 250;
    fs::read_to_string(config)
        .ok()
        .and_then(|text| hz_in(&text))
        .unwrap_or(USUAL)
}

fn hz_in(config: &str) -> Option<u32> {
    config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ="))?
        .parse()
        .ok()
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

fn read(path: impl AsRef<Path>) -> Option<String> {
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
    fn frequencies_are_those_of_processors_that_have_some() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("cpu10/cpufreq/scaling_cur_freq", "800000\n"),
            ("cpu2/cpufreq/scaling_governor", "powersave\n"),
            ("cpu2/cpufreq/scaling_cur_freq", "<unknown>\n"),
            ("cpu3/online", "1\n"),
            ("cpufreq/boost", "1\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let frequency = |cpu, governor: Option<&str>, khz| Frequency {
            cpu,
            governor: governor.map(str::to_owned),
            khz,
            unknown: Unknown::new(),
        };
        assert_eq!(
            frequencies_in(folder.path()),
            [
                frequency(2, Some("powersave"), None),
                frequency(10, None, Some(800_000)),
            ]
        );
        assert_eq!(frequencies_in(Path::new("/nonexistent")), []);
    }

    #[test]
    fn taint_has_letters() {
        assert_eq!(taint_letters(0), "");
        assert_eq!(taint_letters(1 << 12 | 1 << 13), "OE");
        assert_eq!(taint_letters(1 << 9), "W");
    }

    #[test]
    fn modules_have_a_state() {
        let modules = "messung 57344 1 - Loading 0x0 (OE+)\nmessung_x 4096 0 - Live 0x0\n";
        assert_eq!(module_state(modules, "messung"), Some("Loading"));
        assert_eq!(module_state(modules, "messung_x"), Some("Live"));
        assert_eq!(module_state(modules, "mess"), None);
    }

    #[test]
    fn ticks_stand_in_the_configuration() {
        assert_eq!(
            hz_in("CONFIG_HZ_100=y\nCONFIG_HZ=100\nCONFIG_X=y\n"),
            Some(100)
        );
        assert_eq!(hz_in("# CONFIG_HZ is not set\n"), None);
        assert_eq!(hz(Path::new("/nonexistent")), 250);
    }

    #[test]
    fn this_machine_has_an_environment() {
        let mut environment = Environment::default();
        complete(&mut environment);
        assert!(environment.kernel_release.is_some());
        assert!(environment.cpus.is_some_and(|cpus| cpus > 0));
    }
}
