// SPDX-License-Identifier: GPL-2.0

//! How CLOCK_MONOTONIC, which samples are taken with, compares with another clock.

use std::time::Duration;

/// Clocks that differ by more than this are worth a warning, in parts per million.
const WARN: f64 = 500.0;

/// A comparison that may be off by more than this says nothing, in parts per million.
const DOUBT: f64 = 200.0;

/// A moment on CLOCK_MONOTONIC and on another clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// On CLOCK_MONOTONIC.
    pub monotonic: Duration,
    /// On the other one.
    pub other: Duration,
    /// How far the two may be apart.
    pub doubt: Duration,
}

impl Moment {
    /// What CLOCK_MONOTONIC showed while the other clock went from `since` to `until`.
    pub fn seen(monotonic: Duration, since: Duration, until: Duration) -> Self {
        let doubt = until.saturating_sub(since) / 2;
        Self {
            monotonic,
            other: since + doubt,
            doubt,
        }
    }
}

/// How much CLOCK_MONOTONIC ran faster than the other clock between two moments, in parts per million. None where that is less
/// certain than a warning needs.
pub fn compare(begin: Moment, end: Moment) -> Option<f64> {
    let monotonic = end.monotonic.checked_sub(begin.monotonic)?.as_secs_f64();
    let other = end.other.checked_sub(begin.other)?.as_secs_f64();
    let doubt = (begin.doubt + end.doubt).as_secs_f64();
    (other > 0.0 && doubt / other * 1e6 <= DOUBT).then(|| (monotonic - other) / other * 1e6)
}

/// What a reader must know of two clocks that differ by so much, if it is much. `what` tells what that means.
pub fn warning(other: &str, ppm: Option<f64>, what: &str) -> Option<String> {
    let ppm = ppm.filter(|ppm| ppm.abs() > WARN)?;
    Some(format!(
        "CLOCK_MONOTONIC and {other} differ by {ppm:.0} ppm: {what}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(monotonic_us: u64, other_us: u64, doubt_us: u64) -> Moment {
        Moment {
            monotonic: Duration::from_micros(monotonic_us),
            other: Duration::from_micros(other_us),
            doubt: Duration::from_micros(doubt_us),
        }
    }

    #[test]
    fn a_faster_clock_is_positive() {
        let begin = moment(5_000_000, 1_000_000, 0);
        for (monotonic, other, expected) in [
            (15_000_000, 11_000_000, 0.0),
            (15_006_000, 11_000_000, 600.0),
            (14_994_000, 11_000_000, -600.0),
        ] {
            let ppm = compare(begin, moment(monotonic, other, 0)).unwrap();
            assert!((ppm - expected).abs() < 1e-6, "{ppm}");
        }
    }

    #[test]
    fn a_moment_lies_in_the_middle() {
        let at = Duration::from_millis;
        let seen = Moment::seen(at(7), at(100), at(120));
        assert_eq!(seen, moment(7_000, 110_000, 10_000));
    }

    #[test]
    fn what_is_not_certain_is_absent() {
        let begin = moment(0, 0, 600);
        assert!(compare(begin, moment(6_000_000, 6_000_000, 600)).is_some());
        assert_eq!(compare(begin, moment(5_999_000, 5_999_000, 600)), None);
        // No time has passed, or it went backwards.
        assert_eq!(compare(begin, begin), None);
        assert_eq!(compare(moment(9, 9, 0), moment(10, 8, 0)), None);
    }

    #[test]
    fn a_warning_names_both_clocks() {
        for ppm in [None, Some(0.0), Some(500.0), Some(-500.0)] {
            assert_eq!(warning("the host's clock", ppm, "no"), None);
        }
        assert_eq!(
            warning("the host's clock", Some(-501.2), "one of them is wrong").unwrap(),
            "CLOCK_MONOTONIC and the host's clock differ by -501 ppm: one of them is wrong"
        );
    }
}
