// SPDX-License-Identifier: GPL-2.0

//! Whether a row kept what its function promises, and whether something disturbed the run.

use abi::mechanism;
use abi::plan::{Function, Measurement};
use abi::record::Clocks;
use abi::summary::Summary;

use crate::clocks;
use crate::result::{State, Verdict};

/// Judges a row: `median` is the least that its median can be, without which only an early row can be told, and `pair`
/// what a pair of time stamps costs. None where nothing was promised or sampled.
pub fn verdict(
    measurement: &Measurement,
    summary: &Summary,
    median: Option<u64>,
    hz: u32,
    pair: u64,
) -> Option<Verdict> {
    if summary.count == 0 || measurement.function == Function::None {
        return None;
    }
    let above = |ceiling: Option<u64>| {
        ceiling
            .zip(median)
            .is_some_and(|(ceiling, median)| median > ceiling)
    };
    let state = if summary.early > 0 {
        State::Early
    } else if above(mechanism::ceiling(measurement, hz, pair)) {
        State::Late
    } else if above(mechanism::documented_ceiling(measurement, hz)) {
        State::ExceedsDocument
    } else {
        State::Kept
    };
    Some(Verdict {
        state,
        promise: mechanism::promise(measurement.function).to_owned(),
        source: mechanism::source(measurement.function).to_owned(),
    })
}

/// What the clocks at both ends of a run tell: what disturbed it, and what to warn of.
pub fn clocks(
    start: &Clocks,
    end: &Clocks,
    hz: u32,
    raw_ppm: Option<f64>,
) -> (Vec<String>, Vec<String>) {
    let mut disturbances = Vec::new();
    let mono = end.mono.wrapping_sub(start.mono);
    let boot = end.boot.wrapping_sub(start.boot);
    // The two are read one after the other, so they differ a little even on a machine that never slept.
    let asleep = boot.saturating_sub(mono);
    if asleep > 1_000_000 {
        disturbances.push(format!(
            "the machine was suspended for {:.3} s during the run (CLOCK_BOOTTIME against CLOCK_MONOTONIC)",
            asleep as f64 / 1e9
        ));
    }
    let expected = mono / mechanism::tick(hz).max(1);
    let counted = end.ticks.wrapping_sub(start.ticks);
    // One tick at each end may or may not have come.
    let lost = expected.saturating_sub(counted.saturating_add(2));
    if lost > 0 {
        disturbances.push(format!(
            "{lost} of {expected} ticks were lost during the run (jiffies against CLOCK_MONOTONIC)"
        ));
    }
    let bent = clocks::warning("CLOCK_MONOTONIC_RAW", raw_ppm, "NTP or PTP bends the clock");
    (disturbances, bent.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str, samples: &[u64], median: u64) -> Option<State> {
        let row = abi::plan::rows(text, 1).next().unwrap().unwrap();
        let mut summary = Summary::default();
        for &sample in samples {
            let error = abi::summary::error(&row, sample);
            summary.record(sample, abi::summary::floor(&row), error);
        }
        verdict(&row, &summary, Some(median), 250, 168).map(|verdict| verdict.state)
    }

    #[test]
    fn judges_by_floor_and_mechanism() {
        assert_eq!(state("udelay:100us", &[99_560], 99_560), Some(State::Kept));
        assert_eq!(state("udelay:1ms", &[992_360], 992_360), Some(State::Early));
        assert_eq!(
            state("udelay:100us", &[105_000], 105_000),
            Some(State::Late)
        );
        assert_eq!(
            state("msleep:24ms", &[27_999_000], 27_999_000),
            Some(State::Kept)
        );
        assert_eq!(
            state("msleep:24ms", &[23_999_999], 23_999_999),
            Some(State::Early)
        );
        assert_eq!(
            state("msleep:24ms", &[32_000_000], 32_000_000),
            Some(State::Late)
        );
        assert_eq!(
            state("msleep:10ms", &[15_999_000], 15_999_000),
            Some(State::ExceedsDocument)
        );
        assert_eq!(
            state("usleep_range:15us", &[33_000], 33_000),
            Some(State::ExceedsDocument)
        );
        assert_eq!(
            state("usleep_range:15us..50us", &[33_000], 33_000),
            Some(State::Kept)
        );
        assert_eq!(
            state("hrtimer:15us", &[15_000_000], 15_000_000),
            Some(State::Kept)
        );
        assert_eq!(state("none", &[168], 168), None);
    }

    #[test]
    fn clocks_tell() {
        let start = Clocks {
            mono: 0,
            raw: 0,
            boot: 100,
            ticks: 7,
        };
        let end = Clocks {
            mono: 10_000_000_000,
            raw: 0,
            boot: 10_000_000_480,
            ticks: 2507,
        };
        assert_eq!(clocks(&start, &end, 250, Some(499.0)), (vec![], vec![]));
        let (disturbances, warnings) = clocks(
            &start,
            &Clocks {
                boot: 12_500_000_100,
                ticks: 2400,
                ..end
            },
            250,
            Some(-501.0),
        );
        assert_eq!(
            disturbances,
            [
                "the machine was suspended for 2.500 s during the run (CLOCK_BOOTTIME against CLOCK_MONOTONIC)",
                "105 of 2500 ticks were lost during the run (jiffies against CLOCK_MONOTONIC)"
            ]
        );
        assert!(warnings[0].contains("-501 ppm"));
    }
}
