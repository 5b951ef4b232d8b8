// SPDX-License-Identifier: GPL-2.0

//! The real-time clock, a second clock inside a guest: its value counts whole seconds, but when it changes tells more.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::clocks::Moment;

/// The clock's time, in seconds.
const FILE: &str = "/sys/class/rtc/rtc0/since_epoch";

/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// A clock that has not changed for so long stands still.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A look at the clock: CLOCK_MONOTONIC before it, what the clock shows, CLOCK_MONOTONIC after it.
type Look = (Duration, u64, Duration);

/// Waits for the clock's next second. None where there is no clock, or it stands still.
pub fn edge() -> Option<Moment> {
    let mut first = true;
    find(|| {
        if !std::mem::take(&mut first) {
            sleep(PAUSE);
        }
        let before = monotonic();
        let seconds = fs::read_to_string(FILE).ok()?.trim().parse().ok()?;
        Some((before, seconds, monotonic()))
    })
}

/// The moment at which the clock's second changed: after a look that showed the old one had begun, and before the next had ended.
fn find(mut look: impl FnMut() -> Option<Look>) -> Option<Moment> {
    let first = look()?;
    let mut last = first;
    while last.2.saturating_sub(first.0) < PATIENCE {
        let next = look()?;
        if next.1 != last.1 {
            let doubt = next.2.saturating_sub(last.0) / 2;
            return Some(Moment {
                monotonic: last.0 + doubt,
                other: Duration::from_secs(next.1),
                doubt,
            });
        }
        last = next;
    }
    None
}

/// CLOCK_MONOTONIC.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // It begins at zero, and nanoseconds are less than a second.
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in looks that each take so many milliseconds, and show the seconds that `show` gives.
    fn found(step: u64, show: impl Fn(u64) -> Option<u64>) -> Option<Moment> {
        let mut now = 0;
        find(|| {
            let before = now;
            now += step;
            let shown = show(now)?;
            Some((
                Duration::from_millis(before),
                shown,
                Duration::from_millis(now),
            ))
        })
    }

    #[test]
    fn an_edge_lies_between_two_looks() {
        // It ticks at 1000.
        let moment = found(30, |now| Some(7 + now / 1000)).unwrap();
        assert_eq!(moment.other, Duration::from_secs(8));
        let off = Duration::from_millis(1000).abs_diff(moment.monotonic);
        assert!(off <= moment.doubt, "{moment:?}");
        assert_eq!(moment.doubt, Duration::from_millis(30));
    }

    #[test]
    fn a_missing_or_stopped_clock_has_no_edge() {
        assert_eq!(found(10, |_| None), None);
        assert_eq!(found(10, |_| Some(7)), None);
        // It vanishes.
        assert_eq!(found(10, |now| (now < 500).then_some(7)), None);
    }
}
