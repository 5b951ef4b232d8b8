// SPDX-License-Identifier: GPL-2.0

//! A row's histogram and outliers, put together from their records, and the percentiles that follow from them.

use std::collections::BTreeMap;

use abi::decode;
use abi::num;
use abi::plan::Measurement;
use abi::record;
use abi::summary::{self, Summary};

use crate::result::{Histogram, Outlier};

/// Percentiles worth telling: name, and samples of 10 000 at or below it.
const PERCENTILES: [(&str, u64); 5] = [
    ("p50", 5_000),
    ("p90", 9_000),
    ("p99", 9_900),
    ("p99.9", 9_990),
    ("p99.99", 9_999),
];

/// Beyond a percentile other than the median, at least this many samples must lie: fewer say nothing.
const BEYOND: u64 = 10;

/// Counts of a row's errors by bucket of magnitude, as far as they arrived.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    early: BTreeMap<usize, u32>,
    late: BTreeMap<usize, u32>,
}

impl Counts {
    /// Adds a record's buckets. What does not follow the layout is left out; the sum then tells.
    pub fn add(&mut self, record: &record::Histogram<'_>) {
        let side = match record.side {
            "early" => &mut self.early,
            "late" => &mut self.late,
            _ => return,
        };
        for group in decode::groups::<2>(record.buckets) {
            let parsed = group.and_then(|[bucket, count]| {
                let bucket = usize::try_from(num::parse_dec(bucket)?).ok()?;
                let count = u32::try_from(num::parse_dec(count)?).ok()?;
                (bucket < summary::BUCKETS).then_some((bucket, count))
            });
            if let Some((bucket, count)) = parsed {
                side.insert(bucket, count);
            }
        }
    }

    /// Samples counted.
    fn sum(&self) -> u64 {
        let counts = self.early.values().chain(self.late.values());
        counts.map(|&count| u64::from(count)).sum()
    }

    /// Whether these are the counts of all samples of `summary`.
    pub fn is_whole(&self, summary: &Summary) -> bool {
        self.sum() == u64::from(summary.count)
    }

    /// As the result has it.
    pub fn histogram(&self) -> Histogram {
        let side = |counts: &BTreeMap<usize, u32>| {
            counts
                .iter()
                .map(|(&bucket, &count)| {
                    (
                        summary::bucket_start(bucket),
                        summary::bucket_end(bucket),
                        count,
                    )
                })
                .collect()
        };
        Histogram {
            early: side(&self.early),
            late: side(&self.late),
        }
    }

    /// Percentiles of the elapsed time, by nearest rank: the upper end of the bucket that holds the sample, within what
    /// was measured. None where a part of the histogram is missing.
    pub fn percentiles(
        &self,
        measurement: &Measurement,
        summary: &Summary,
    ) -> BTreeMap<String, u64> {
        if !self.is_whole(summary) {
            return BTreeMap::new();
        }
        let count = u64::from(summary.count);
        PERCENTILES
            .into_iter()
            .filter_map(|(name, share)| {
                let rank = (count * share).div_ceil(10_000);
                if rank == 0 || (name != "p50" && count - rank < BEYOND) {
                    return None;
                }
                let (_, most) = self.at_rank(measurement.request, rank)?;
                Some((name.to_owned(), most.min(summary.highest)))
            })
            .collect()
    }

    /// The least that the median can be, by nearest rank. None without samples, or where a part is missing.
    pub fn least_median(&self, measurement: &Measurement, summary: &Summary) -> Option<u64> {
        if !self.is_whole(summary) {
            return None;
        }
        let rank = u64::from(summary.count).div_ceil(2);
        let (least, _) = self.at_rank(measurement.request, rank)?;
        Some(least.max(summary.shortest))
    }

    /// The least and the most that the sample of that rank, counted from 1, can have taken.
    fn at_rank(&self, request: u64, rank: u64) -> Option<(u64, u64)> {
        // The earliest have the largest magnitude.
        let early = self.early.iter().rev().map(|(&bucket, &count)| {
            let least = request.saturating_sub(summary::bucket_end(bucket));
            let most = request.saturating_sub(summary::bucket_start(bucket));
            (least, most, count)
        });
        let late = self.late.iter().map(|(&bucket, &count)| {
            let least = request.saturating_add(summary::bucket_start(bucket));
            let most = request.saturating_add(summary::bucket_end(bucket));
            (least, most, count)
        });
        let mut seen = 0;
        early
            .chain(late)
            .find(|(_, _, count)| {
                seen += u64::from(*count);
                seen >= rank
            })
            .map(|(least, most, _)| (least, most))
    }
}

/// The samples of a record of outliers. What does not follow the layout is left out.
pub fn outliers(record: &record::Worst<'_>) -> Vec<Outlier> {
    decode::groups::<3>(record.samples)
        .filter_map(|group| {
            let [sample, at, error] = group?;
            Some(Outlier {
                index: u32::try_from(num::parse_dec(sample)?).ok()?,
                at_ns: num::parse_dec(at)?,
                error_ns: num::parse_signed_dec(error)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use abi::plan;
    use proptest::prelude::*;

    use super::*;

    fn row(item: &str) -> Measurement {
        plan::rows(item, 1000).next().unwrap().unwrap()
    }

    /// What the module makes of samples, by way of the records.
    fn counted(measurement: &Measurement, samples: &[u64]) -> (Counts, Summary) {
        let mut cells = vec![0; summary::Histogram::CELLS];
        let mut histogram = summary::Histogram::new(&mut cells).unwrap();
        let mut all = Summary::default();
        for &elapsed in samples {
            let error = summary::error(measurement, elapsed);
            histogram.record(error);
            all.record(elapsed, summary::floor(measurement), error);
        }
        let mut counts = Counts::default();
        for (side, early) in [("early", true), ("late", false)] {
            // A record of its own for each bucket is allowed too.
            for (bucket, count) in histogram.filled(early) {
                counts.add(&record::Histogram {
                    index: 0,
                    side,
                    buckets: &format!("{bucket}:{count}"),
                });
            }
        }
        (counts, all)
    }

    /// On machines of 64 and of 32 bits alike: `cargo xtask test` runs this on both.
    #[test]
    fn percentiles_are_the_same_on_32_bits() {
        let measurement = row("msleep:5s");
        let mut state = 1_u64;
        let samples: Vec<_> = (0..100_000)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                4_999_999_000 + (state >> 40) * (state >> 44) / (1 << 20)
            })
            .collect();
        let (counts, all) = counted(&measurement, &samples);
        let percentiles: Vec<_> = counts
            .percentiles(&measurement, &all)
            .into_iter()
            .map(|(name, elapsed)| format!("{name} {elapsed}"))
            .collect();
        assert_eq!(
            percentiles,
            [
                "p50 5004161535",
                "p90 5013631487",
                "p99 5016515071",
                "p99.9 5016775842",
                "p99.99 5016775842"
            ]
        );
    }

    #[test]
    fn percentiles_need_samples_beyond() {
        let measurement = row("msleep:10ms");
        let names = |count: u64| {
            let samples: Vec<_> = (0..count).map(|n| 10_000_000 + n).collect();
            let (counts, all) = counted(&measurement, &samples);
            let percentiles = counts.percentiles(&measurement, &all);
            percentiles.into_keys().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(0), "");
        assert_eq!(names(1), "p50");
        assert_eq!(names(99), "p50");
        assert_eq!(names(100), "p50 p90");
        assert_eq!(names(1000), "p50 p90 p99");
        assert_eq!(names(10_000), "p50 p90 p99 p99.9");
        assert_eq!(names(100_000), "p50 p90 p99 p99.9 p99.99");
    }

    #[test]
    fn a_lost_record_leaves_no_percentiles() {
        let measurement = row("msleep:10ms");
        let (mut counts, all) = counted(&measurement, &[9_000_000, 11_000_000]);
        assert!(counts.is_whole(&all));
        counts.early.clear();
        assert!(!counts.is_whole(&all));
        assert!(counts.percentiles(&measurement, &all).is_empty());
    }

    #[test]
    fn nonsense_is_left_out() {
        let mut counts = Counts::default();
        for (side, buckets) in [
            ("up", "1:1"),
            ("late", "x:1,1:x,1,999999:1,3:2"),
            ("early", ""),
        ] {
            counts.add(&record::Histogram {
                index: 0,
                side,
                buckets,
            });
        }
        assert_eq!(counts.histogram().late, [(3, 3, 2)]);
        assert!(counts.histogram().early.is_empty());
        let list = record::Worst {
            index: 0,
            samples: "1:2:-3,4:5,6:7:x",
        };
        assert_eq!(
            outliers(&list),
            [Outlier {
                index: 1,
                at_ns: 2,
                error_ns: -3
            }]
        );
    }

    /// Any sample that a clock can give, and often those that are special.
    fn sample() -> impl Strategy<Value = u64> {
        const LARGEST: u64 = i64::MAX as u64;
        prop_oneof![
            Just(0),
            Just(1),
            Just(LARGEST),
            0..=LARGEST,
            9_000_000_u64..40_000_000,
            0_u64..400,
        ]
    }

    proptest! {
        #[test]
        fn percentiles_agree_with_the_samples(
            mut samples in proptest::collection::vec(sample(), 1..300),
            item in proptest::sample::select(vec!["none", "udelay:1us", "msleep:10ms", "msleep:60s"]),
        ) {
            let measurement = row(item);
            let (counts, all) = counted(&measurement, &samples);
            samples.sort_unstable();
            // 2 % of the error.
            let is_near = |a: u64, b: u64| {
                u128::from(a.abs_diff(b)) * 50 <= u128::from(b.abs_diff(measurement.request))
            };
            let median = samples[(samples.len() - 1) / 2];
            let least = counts.least_median(&measurement, &all).unwrap();
            prop_assert!(least <= median && is_near(least, median), "{} {}", least, median);
            for (name, elapsed) in counts.percentiles(&measurement, &all) {
                let share = PERCENTILES.iter().find(|(known, _)| *known == name).unwrap().1;
                let rank = (samples.len() * share as usize).div_ceil(10_000);
                let exact = samples[rank - 1];
                prop_assert!(elapsed >= exact, "{} {} {}", name, elapsed, exact);
                prop_assert!(is_near(elapsed, exact), "{} {} {}", name, elapsed, exact);
            }
        }
    }
}
