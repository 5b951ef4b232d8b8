// SPDX-License-Identifier: GPL-2.0

//! What the samples of one measurement come to.
//!
//! Every sample counts, in the summary and in the histogram: nothing is dropped, trimmed or smoothed.

use super::num;
use super::num::Wide;
use super::plan::Kind;
use super::plan::Measurement;

/// Running figures of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Samples so far.
    pub count: u32,
    /// Shortest elapsed time in nanoseconds; `u64::MAX` before the first sample.
    pub shortest: u64,
    /// Highest elapsed time.
    pub highest: u64,
    /// Sum of the elapsed times. 1 000 000 samples of an hour each fit.
    pub sum: u64,
    /// Sum of the squared errors.
    pub squares: Wide,
    /// Samples below the floor.
    pub early: u32,
    /// The most negative error of all samples, 0 where none was negative.
    pub earliest: i64,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            count: 0,
            shortest: u64::MAX,
            highest: 0,
            sum: 0,
            squares: Wide { high: 0, low: 0 },
            early: 0,
            earliest: 0,
        }
    }
}

/// The time below which a sample of this measurement is early.
///
/// Busy functions may be 0.5 % short, as the kernel's own test allows (`kernel/time/test_udelay.c`); functions that
/// sleep must not return before the request.
pub fn floor(measurement: &Measurement) -> u64 {
    match measurement.function.spec().kind {
        // Rounded up, so that exactly 99.5 % is not early.
        Kind::Busy => measurement
            .request
            .wrapping_sub(num::div(measurement.request, 200).0),
        _ => measurement.request,
    }
}

/// Measured minus requested, which for usleep_range is its minimum. Times are below 2^63 ns, which is 292 years.
pub fn error(measurement: &Measurement, elapsed: u64) -> i64 {
    (elapsed as i64).wrapping_sub(measurement.request as i64)
}

impl Summary {
    /// Takes a sample: its elapsed time, and what [`floor`] and [`error`] say of it.
    pub fn record(&mut self, elapsed: u64, floor: u64, error: i64) {
        self.count = self.count.wrapping_add(1);
        self.shortest = self.shortest.min(elapsed);
        self.highest = self.highest.max(elapsed);
        self.sum = self.sum.wrapping_add(elapsed);
        self.squares = self.squares.plus(Wide::square(error.unsigned_abs()));
        if elapsed < floor {
            self.early = self.early.wrapping_add(1);
        }
        self.earliest = self.earliest.min(error);
    }

    /// Mean elapsed time, rounded to the nearest nanosecond; 0 without samples.
    pub fn mean(&self) -> u64 {
        num::div_round(self.sum, u64::from(self.count))
    }

    /// The summary of both sets of samples.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        Self {
            count: self.count.wrapping_add(other.count),
            shortest: self.shortest.min(other.shortest),
            highest: self.highest.max(other.highest),
            sum: self.sum.wrapping_add(other.sum),
            squares: self.squares.plus(other.squares),
            early: self.early.wrapping_add(other.early),
            earliest: self.earliest.min(other.earliest),
        }
    }
}

/// Magnitudes below this have a bucket of their own.
const EXACT: u64 = 128;
/// Buckets per doubling above that, so that a bucket is at most 1/64 (1.6 %) wide.
const PER_DOUBLING: usize = 64;
/// Buckets of one side of a histogram: 0 to 127 exactly, then 64 for each doubling up to 2^64.
pub const BUCKETS: usize = 128 + 57 * PER_DOUBLING;

/// The bucket of a magnitude.
pub const fn bucket(magnitude: u64) -> usize {
    if magnitude < EXACT {
        return magnitude as usize;
    }
    // The position of the top bit is 7 to 63; the six bits below it select within the doubling. Shifting by halves
    // keeps 64-bit shifts by a variable out of 32-bit kernels.
    let mut top = 7_usize;
    let mut rest = magnitude;
    while rest >= EXACT << 1 {
        rest >>= 1;
        top = top.wrapping_add(1);
    }
    let within = (rest >> 1) as usize & (PER_DOUBLING - 1);
    top.wrapping_sub(7)
        .wrapping_mul(PER_DOUBLING)
        .wrapping_add(EXACT as usize)
        .wrapping_add(within)
}

/// The first magnitude of a bucket.
pub const fn bucket_start(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let above = bucket.wrapping_sub(EXACT as usize);
    let mut start = ((PER_DOUBLING + above % PER_DOUBLING) as u64) << 1;
    let mut doublings = above / PER_DOUBLING;
    while doublings > 0 {
        start <<= 1;
        doublings = doublings.wrapping_sub(1);
    }
    start
}

/// The last magnitude of a bucket.
pub const fn bucket_end(bucket: usize) -> u64 {
    if bucket.wrapping_add(1) >= BUCKETS {
        u64::MAX
    } else {
        bucket_start(bucket.wrapping_add(1)).wrapping_sub(1)
    }
}

/// Counts of the error of every sample: early on one side, late on the other. The memory is the caller's.
#[derive(Debug)]
pub struct Histogram<'a> {
    early: &'a mut [u32],
    late: &'a mut [u32],
}

impl<'a> Histogram<'a> {
    /// Cells that a histogram takes.
    pub const CELLS: usize = 2 * BUCKETS;

    /// An empty histogram in `cells`, of which there must be [`Self::CELLS`].
    pub fn new(cells: &'a mut [u32]) -> Option<Self> {
        cells.fill(0);
        let (early, late) = cells.split_at_mut_checked(BUCKETS)?;
        (late.len() == BUCKETS).then_some(Self { early, late })
    }

    /// Counts a sample's error. An error of 0 is late by 0.
    pub fn record(&mut self, error: i64) {
        let side = if error < 0 {
            &mut *self.early
        } else {
            &mut *self.late
        };
        if let Some(count) = side.get_mut(bucket(error.unsigned_abs())) {
            *count = count.wrapping_add(1);
        }
    }

    /// The buckets of one side that hold samples, with their counts, in ascending order of magnitude.
    pub fn filled(&self, early: bool) -> impl Iterator<Item = (u32, u32)> + '_ {
        let side: &[u32] = if early { self.early } else { self.late };
        (0_u32..)
            .zip(side)
            .filter(|(_, count)| **count != 0)
            .map(|(bucket, count)| (bucket, *count))
    }
}

/// A sample that stands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlier {
    /// Number of the sample in its row, from 0.
    pub sample: u32,
    /// CLOCK_MONOTONIC at its start, in nanoseconds.
    pub at: u64,
    /// Its error in nanoseconds.
    pub error: i64,
}

/// The samples with the largest errors, early or late; the largest first, of equal ones the earlier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outliers {
    list: [Outlier; 5],
    length: usize,
}

impl Outliers {
    /// Takes a sample into account.
    pub fn record(&mut self, new: Outlier) {
        let mut carried = new;
        let mut inserted = false;
        for kept in self.list.iter_mut().take(self.length) {
            // Once the new one has its place, all behind it move on by one.
            inserted = inserted || carried.error.unsigned_abs() > kept.error.unsigned_abs();
            if inserted {
                core::mem::swap(&mut carried, kept);
            }
        }
        if let Some(free) = self.list.get_mut(self.length) {
            *free = carried;
            self.length = self.length.wrapping_add(1);
        }
    }

    /// The samples.
    pub fn iter(&self) -> impl Iterator<Item = &Outlier> {
        self.list.iter().take(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use proptest::prelude::*;

    fn row(text: &str) -> Measurement {
        plan::rows(text, 1).next().unwrap().unwrap()
    }

    #[test]
    fn floors() {
        assert_eq!(floor(&row("udelay:15us")), 14_925);
        assert_eq!(floor(&row("ndelay:100ns")), 100);
        assert_eq!(floor(&row("msleep:10ms")), 10_000_000);
        assert_eq!(floor(&row("usleep_range:15us..20us")), 15_000);
        assert_eq!(floor(&row("none")), 0);
    }

    #[test]
    fn errors_are_signed() {
        let range = row("usleep_range:15us..20us");
        assert_eq!(error(&range, 14_000), -1000);
        assert_eq!(error(&range, 17_000), 2000);
        assert_eq!(error(&range, 21_000), 6000);
        assert_eq!(error(&row("udelay:1us"), 995), -5);
    }

    #[test]
    fn buckets_tile_the_line() {
        let mut next = 0;
        for index in 0..BUCKETS {
            assert_eq!(bucket_start(index), next, "{index}");
            let end = bucket_end(index);
            assert_eq!(bucket(next), index);
            assert_eq!(bucket(end), index);
            assert!((end - next) as f64 <= 0.02 * next as f64, "{index}");
            next = end.wrapping_add(1);
        }
        assert_eq!(next, 0);
    }

    /// The same on every machine: the tests run on 32-bit ones, too.
    #[test]
    fn every_machine_counts_alike() {
        let row = row("udelay:100us");
        let mut cells = vec![0; Histogram::CELLS];
        let mut histogram = Histogram::new(&mut cells).unwrap();
        let mut summary = Summary::default();
        let mut state = 1_u64;
        for _ in 0..1000 {
            // Knuth's MMIX generator; the shift makes magnitudes of all sizes.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let elapsed = (state >> 12) >> (state % 50);
            let error = error(&row, elapsed);
            histogram.record(error);
            summary.record(elapsed, floor(&row), error);
        }
        let mixed = [true, false]
            .into_iter()
            .flat_map(|early| histogram.filled(early))
            .fold(0_u64, |mixed, (bucket, count)| {
                mixed
                    .wrapping_mul(1_000_003)
                    .wrapping_add(u64::from(bucket) << 20 | u64::from(count))
            });
        let seen = (summary.mean(), summary.squares, summary.early, mixed);
        // As computed with integers of any size.
        let squares = Wide {
            high: 9_727_094_869_768,
            low: 10_835_664_137_984_118_641,
        };
        assert_eq!(
            seen,
            (88_976_323_914_538, squares, 318, 9_092_092_375_524_015_300)
        );
    }

    proptest! {
        #[test]
        fn histogram_drops_nothing(errors in proptest::collection::vec(any::<i64>(), 0..50)) {
            let mut cells = vec![7; Histogram::CELLS];
            let mut histogram = Histogram::new(&mut cells).unwrap();
            for &error in &errors {
                histogram.record(error);
            }
            let side = |early: bool| {
                let mut counts = std::collections::BTreeMap::<u32, u32>::new();
                for error in errors.iter().filter(|&&error| (error < 0) == early) {
                    *counts.entry(bucket(error.unsigned_abs()) as u32).or_default() += 1;
                }
                counts.into_iter().collect::<Vec<_>>()
            };
            prop_assert_eq!(histogram.filled(true).collect::<Vec<_>>(), side(true));
            prop_assert_eq!(histogram.filled(false).collect::<Vec<_>>(), side(false));
        }

        #[test]
        fn outliers_are_the_largest(errors in proptest::collection::vec(-20_i64..20, 0..30)) {
            let mut outliers = Outliers::default();
            let mut all = Vec::new();
            for (sample, &error) in (0..).zip(&errors) {
                let outlier = Outlier { sample, at: 0, error };
                outliers.record(outlier);
                all.push(outlier);
            }
            all.sort_by_key(|outlier| std::cmp::Reverse(outlier.error.unsigned_abs()));
            all.truncate(5);
            prop_assert_eq!(outliers.iter().copied().collect::<Vec<_>>(), all);
        }

        #[test]
        fn agrees_with_the_samples(
            // The largest of which fifty can be added up.
            elapsed in proptest::collection::vec(prop_oneof![Just(0), Just(1), Just((1 << 58) - 1), 0_u64..1 << 58, 0_u64..1 << 40], 1..50),
            at in 0_usize..50,
        ) {
            let row = row("msleep:24ms");
            let summarise = |samples: &[u64]| {
                let mut summary = Summary::default();
                for &sample in samples {
                    summary.record(sample, floor(&row), error(&row, sample));
                }
                summary
            };
            let all = summarise(&elapsed);
            let errors: Vec<i128> = elapsed.iter().map(|&e| e as i128 - 24_000_000).collect();
            let sum: u128 = elapsed.iter().map(|&e| e as u128).sum();
            prop_assert_eq!(all.shortest, *elapsed.iter().min().unwrap());
            prop_assert_eq!(all.highest, *elapsed.iter().max().unwrap());
            prop_assert_eq!(all.mean() as u128, (sum * 2 + elapsed.len() as u128) / (elapsed.len() as u128 * 2));
            prop_assert_eq!(all.early as usize, errors.iter().filter(|&&e| e < 0).count());
            prop_assert_eq!(all.earliest as i128, errors.iter().copied().min().unwrap().min(0));
            let squares = ((all.squares.high as u128) << 64) | all.squares.low as u128;
            prop_assert_eq!(squares, errors.iter().map(|e| (e * e) as u128).sum::<u128>());
            let (left, right) = elapsed.split_at(at.min(elapsed.len()));
            prop_assert_eq!(summarise(left).merged(&summarise(right)), all);
        }
    }
}
