// SPDX-License-Identifier: GPL-2.0

//! Waits until the boot's background work (deferred probes, calibration, freeing of memory) is done: it would disturb the first rows.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long each look takes.
const WINDOW: Duration = Duration::from_secs(1);
/// So many quiet windows in a row count as settled. Some of the boot's work begins ten seconds after it.
const QUIET_WINDOWS: u32 = 12;
/// Then we go on as it is.
const MOST_WINDOWS: u32 = 60;
/// Share of time that may be busy in a quiet window, in percent of all CPUs.
const BUSY_PERCENT: u64 = 2;
/// Switches of context in a quiet window, for each CPU. An idle kernel has some tens.
const SWITCHES: u64 = 150;

/// What the system has done since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    /// Ticks spent idle, over all CPUs.
    idle: u64,
    /// Ticks spent otherwise.
    busy: u64,
    /// Switches of context.
    switches: u64,
    /// Processes made.
    forks: u64,
    /// CPUs.
    cpus: u64,
}

/// What a window showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    busy_percent: u64,
    switches: u64,
    forks: u64,
    cpus: u64,
}

/// What came of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether the system got quiet.
    pub quiet: bool,
    windows: u32,
    last: Window,
}

impl Settled {
    /// In words, with the criterion.
    pub fn text(&self) -> String {
        let Window {
            busy_percent,
            switches,
            forks,
            ..
        } = self.last;
        let state = if self.quiet {
            "settled"
        } else {
            "did not settle"
        };
        format!(
            "{state} within {} s: last busy {busy_percent} %, {switches} context switches and {forks} new processes in a second \
             (quiet is at most {BUSY_PERCENT} %, {SWITCHES} for each CPU, and none, for {QUIET_WINDOWS} s)",
            self.windows
        )
    }
}

/// Waits until the system is quiet, or the patience is at its end.
///
/// # Errors
///
/// `/proc/stat` cannot be read.
pub fn settle() -> Result<Settled> {
    let mut before = look()?;
    let mut quiet_windows = 0;
    let mut windows = 0;
    loop {
        sleep(WINDOW);
        let now = look()?;
        let last = Window::between(before, now);
        before = now;
        windows += 1;
        quiet_windows = if last.is_quiet() {
            quiet_windows + 1
        } else {
            0
        };
        let quiet = quiet_windows >= QUIET_WINDOWS;
        if quiet || windows >= MOST_WINDOWS {
            return Ok(Settled {
                quiet,
                windows,
                last,
            });
        }
    }
}

fn look() -> Result<Activity> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    Activity::parse(&text).context("cannot understand /proc/stat")
}

impl Activity {
    fn parse(stat: &str) -> Option<Self> {
        let mut activity = Self::default();
        for line in stat.lines() {
            let (key, rest) = line.split_once(' ')?;
            match key {
                "cpu" => {
                    let ticks = rest
                        .split_whitespace()
                        .map(str::parse::<u64>)
                        .collect::<Result<Vec<_>, _>>()
                        .ok()?;
                    // user nice system idle iowait irq softirq steal …
                    activity.idle = ticks.get(3)? + ticks.get(4)?;
                    activity.busy = ticks.iter().take(8).sum::<u64>() - activity.idle;
                }
                "ctxt" => activity.switches = rest.trim().parse().ok()?,
                "processes" => activity.forks = rest.trim().parse().ok()?,
                _ if key.starts_with("cpu") => activity.cpus += 1,
                _ => {}
            }
        }
        (activity.cpus > 0).then_some(activity)
    }
}

impl Window {
    fn between(before: Activity, after: Activity) -> Self {
        let idle = after.idle.saturating_sub(before.idle);
        let busy = after.busy.saturating_sub(before.busy);
        Self {
            busy_percent: 100 * busy / (busy + idle).max(1),
            switches: after.switches.saturating_sub(before.switches),
            forks: after.forks.saturating_sub(before.forks),
            cpus: after.cpus,
        }
    }

    fn is_quiet(&self) -> bool {
        self.busy_percent <= BUSY_PERCENT
            && self.switches <= SWITCHES * self.cpus
            && self.forks == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "\
cpu  4 0 111 2262 3 0 1 0 0 0
cpu0 2 0 55 1131 1 0 1 0 0 0
cpu1 2 0 56 1131 2 0 0 0 0 0
intr 5000 1 2 3
ctxt 4321
btime 1767225600
processes 77
procs_running 1
";

    #[test]
    fn reads_what_the_system_has_done() {
        assert_eq!(
            Activity::parse(STAT),
            Some(Activity {
                idle: 2265,
                busy: 116,
                switches: 4321,
                forks: 77,
                cpus: 2,
            })
        );
        assert_eq!(Activity::parse("nonsense\n"), None);
        assert_eq!(Activity::parse("cpu  1 2\n"), None);
    }

    #[test]
    fn work_is_not_quiet() {
        let before = Activity::parse(STAT).unwrap();
        let quiet = Activity {
            idle: before.idle + 199,
            busy: before.busy + 1,
            switches: before.switches + 60,
            ..before
        };
        assert!(Window::between(before, quiet).is_quiet());
        for noisy in [
            Activity {
                busy: before.busy + 10,
                ..quiet
            },
            Activity {
                switches: before.switches + 2 * SWITCHES + 1,
                ..quiet
            },
            Activity {
                forks: before.forks + 1,
                ..quiet
            },
        ] {
            assert!(!Window::between(before, noisy).is_quiet());
        }
    }
}
