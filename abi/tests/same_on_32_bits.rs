// SPDX-License-Identifier: GPL-2.0

//! Generated input and the fixed checksum of what comes of it. `cargo xtask test` runs this on the machine at hand and as a
//! program for 32-bit Arm: both must come to the same values.

use std::fmt::Write as _;

use abi::decode::{self, Record};
use abi::mechanism;
use abi::num::{self, Dec, Hex, Micros, SignedDec, Wide};
use abi::plan::{self, Measurement, Target};
use abi::record::{Clocks, Crc, Encoder, End, Line, People, Row, Worst};
use abi::summary::{self, Histogram, Outlier, Outliers, BUCKETS};

/// Iterations of what is generated.
const ITERATIONS: u32 = 2000;

/// Numbers without a pattern, the same everywhere (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    /// Numbers of all lengths, from 1 to 64 bits.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> (self.0 & 63)
    }
}

/// The checksum of text as it grows.
#[derive(Default)]
struct Sum(Crc);

impl std::fmt::Write for Sum {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.add(text.as_bytes());
        Ok(())
    }
}

fn measurements() -> Vec<Measurement> {
    let text = format!(
        "{},{},{},msleep:5s,usleep_range:4s..5s,msleep:60s",
        plan::ARTICLE,
        plan::QUICK,
        plan::SWEEP
    );
    plan::rows(&text, ITERATIONS).map(Result::unwrap).collect()
}

/// What a sample may take: most within a millisecond of the request, some far off, some early.
fn elapsed(measurement: &Measurement, numbers: &mut Numbers) -> u64 {
    let late = match numbers.next() & 15 {
        0 => numbers.next() >> 24,
        1 => return measurement.request.saturating_sub(numbers.next() >> 44),
        _ => numbers.next() >> 44,
    };
    measurement.request + late
}

#[test]
fn records_are_the_same() {
    let mut numbers = Numbers(1);
    let mut sum = Sum::default();
    let mut encoder = Encoder::new(7, 0x1234_5678_9abc_def0);
    let mut line = Line::default();
    let rows = measurements();
    for (index, measurement) in (0..).zip(&rows) {
        let mut cells = vec![0; Histogram::CELLS];
        let mut histogram = Histogram::new(&mut cells).unwrap();
        let mut outliers = Outliers::default();
        let mut row = Row {
            index,
            measurement: *measurement,
            ..Row::default()
        };
        let floor = summary::floor(measurement);
        let mut at = 1 << 33;
        for sample in 0..measurement.iterations {
            let elapsed = elapsed(measurement, &mut numbers);
            let error = summary::error(measurement, elapsed);
            row.summary.record(elapsed, floor, error);
            histogram.record(error);
            outliers.record(Outlier { sample, at, error });
            at += elapsed;
        }
        encoder.encode(row, &mut line);
        assert!(line.is_whole());
        assert_eq!(decode::decode(line.as_str()).unwrap().1, Record::Row(row));
        writeln!(sum, "{}", line.as_str()).unwrap();
        writeln!(
            sum,
            "{}",
            People {
                row: &row,
                rows: 200
            }
        )
        .unwrap();
        for early in [true, false] {
            for (bucket, count) in histogram.filled(early) {
                writeln!(sum, "{early} {bucket} {count}").unwrap();
            }
        }
        let list: Vec<_> = outliers
            .iter()
            .map(|outlier| {
                let Outlier { sample, at, error } = outlier;
                format!("{sample}:{}:{}", Dec(*at), SignedDec(*error))
            })
            .collect();
        let samples = &list.join(",");
        encoder.encode(Worst { index, samples }, &mut line);
        writeln!(sum, "{}", line.as_str()).unwrap();
    }
    let clocks = Clocks {
        mono: numbers.next(),
        raw: numbers.next(),
        boot: numbers.next(),
        ticks: numbers.next(),
    };
    let end = End {
        status: "done",
        clocks,
        ..End::default()
    };
    encoder.end(end, &mut line);
    writeln!(sum, "{}", line.as_str()).unwrap();
    assert_eq!(sum.0.sum(), 0x4192_4e39);
}

#[test]
fn a_sleep_beyond_32_bits_of_nanoseconds_is_exact() {
    let measurement = plan::rows("msleep:5s", 3).next().unwrap().unwrap();
    let mut row = Row {
        measurement,
        ..Row::default()
    };
    for elapsed in [5_003_999_999, 5_004_000_000, 5_004_000_004] {
        let error = summary::error(&measurement, elapsed);
        row.summary
            .record(elapsed, summary::floor(&measurement), error);
    }
    assert_eq!(
        People { row: &row, rows: 1 }.to_string(),
        "[1/1] msleep 5 s: shortest: 5003999.999 mean: 5004000.001 highest: 5004000.004 us (3 samples, 0 early)"
    );
}

#[test]
fn arithmetic_is_the_same() {
    let mut numbers = Numbers(2);
    let mut sum = Sum::default();
    for _ in 0..10_000 {
        let (n, d) = (numbers.next(), numbers.next());
        let (quotient, remainder) = num::div(n, d);
        let Wide { high, low } = Wide::square(n).plus(Wide::square(d));
        writeln!(
            sum,
            "{} {} {} {} {} {} {} {}",
            Dec(quotient),
            Dec(remainder),
            Dec(num::div_round(n, d)),
            Hex(high),
            Hex(low),
            Micros(n),
            SignedDec(n as i64),
            plan::Duration(d),
        )
        .unwrap();
        assert_eq!(num::parse_dec(&Dec(n).to_string()), Some(n));
    }
    assert_eq!(sum.0.sum(), 0x8106_b289);
}

#[test]
fn buckets_are_the_same() {
    let mut sum = Sum::default();
    for bucket in 0..BUCKETS {
        let (first, last) = (summary::bucket_start(bucket), summary::bucket_end(bucket));
        assert_eq!(
            (summary::bucket(first), summary::bucket(last)),
            (bucket, bucket)
        );
        writeln!(sum, "{} {}", Dec(first), Dec(last)).unwrap();
    }
    assert_eq!(sum.0.sum(), 0x822b_0c60);
}

#[test]
fn judgements_are_the_same() {
    let mut sum = Sum::default();
    for measurement in measurements() {
        for hz in [100, 250, 300, 1000] {
            let ceiling = mechanism::ceiling(&measurement, hz, 168);
            let documented = mechanism::documented_ceiling(&measurement, hz);
            writeln!(
                sum,
                "{measurement} {hz} {:?} {} {} {}",
                mechanism::mechanism(&measurement, hz),
                Dec(ceiling.unwrap_or(0)),
                Dec(documented.unwrap_or(0)),
                Dec(mechanism::estimate(&measurement, hz, 4)),
            )
            .unwrap();
        }
    }
    let target = Target {
        cpus: 4,
        udelay_max: mechanism::udelay_max("armv7l"),
    };
    for text in ["udelay:3ms", "msleep:99999999999s", "msleep:4294967296ns"] {
        writeln!(sum, "{}", plan::check(text, 1, target).unwrap_err()).unwrap();
    }
    assert_eq!(sum.0.sum(), 0xe81e_e099);
}
