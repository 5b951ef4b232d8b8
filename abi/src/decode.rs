// SPDX-License-Identifier: GPL-2.0

//! Reads what [`super::record`] writes, line by line. Putting a run together is the reader's business, since that
//! takes memory.

use super::num;
use super::plan;
use super::plan::Measurement;
use super::record::Begin;
use super::record::Crc;
use super::record::End;
use super::record::Fields;
use super::record::Histogram;
use super::record::Pair;
use super::record::PlanText;
use super::record::Row;
use super::record::Visitor;
use super::record::Worst;
use core::fmt;

/// Which run a record belongs to, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The run's id.
    pub run: u32,
    /// The run's start: CLOCK_REALTIME in nanoseconds.
    pub stamp: u64,
    /// The record's number, from 0.
    pub sequence: u32,
    /// The record's checksum, which its text matches.
    pub sum: u32,
}

/// A record of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// See [`Begin`].
    Begin(Begin<'a>),
    /// See [`PlanText`].
    Plan(PlanText<'a>),
    /// See [`Pair`].
    Pair(Pair),
    /// See [`Row`].
    Row(Row),
    /// See [`Histogram`].
    Histogram(Histogram<'a>),
    /// See [`Worst`].
    Worst(Worst<'a>),
    /// See [`End`].
    End(End<'a>),
    /// A kind that this version does not know; it counts in sequence and checksum all the same.
    Unknown(&'a str),
}

/// Why a line that looks like a record is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is cut or altered: the checksum is missing or differs.
    Checksum,
    /// The checksum is right but the text does not follow the layout.
    Layout,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checksum => "its checksum does not match: it was cut or altered",
            Self::Layout => "its checksum is right but it does not follow the layout",
        })
    }
}

/// Whether a message (with `messung: ` taken off) looks like a record.
pub fn looks_like_record(message: &str) -> bool {
    let mut bytes = message.bytes();
    bytes.next() == Some(b'@') && bytes.take(8).filter(u8::is_ascii_hexdigit).count() == 8
}

/// Reads a record from a message (with `messung: ` taken off). Trailing white space is ignored.
///
/// # Errors
///
/// See [`Damage`].
pub fn decode(message: &str) -> Result<(Envelope, Record<'_>), Damage> {
    let (body, sum) = message
        .trim_ascii_end()
        .rsplit_once(" *")
        .ok_or(Damage::Checksum)?;
    let sum = parse_hex32(sum).ok_or(Damage::Checksum)?;
    let mut crc = Crc::default();
    crc.add(body.as_bytes());
    if crc.sum() != sum {
        return Err(Damage::Checksum);
    }
    layout(body, sum).ok_or(Damage::Layout)
}

fn parse_hex32(digits: &str) -> Option<u32> {
    (digits.len() == 8)
        .then(|| num::parse_hex(digits))
        .flatten()
        .map(|value| value as u32)
}

fn layout(body: &str, sum: u32) -> Option<(Envelope, Record<'_>)> {
    let (identity, rest) = body.strip_prefix('@')?.split_once(' ')?;
    let (run, stamp) = identity.split_once('-')?;
    let (sequence, rest) = rest.split_once(' ')?;
    let (kind, fields) = rest.split_once(' ').unwrap_or((rest, ""));
    let envelope = Envelope {
        run: parse_hex32(run)?,
        stamp: (stamp.len() == 16)
            .then(|| num::parse_hex(stamp))
            .flatten()?,
        sequence: u32::try_from(num::parse_dec(sequence)?).ok()?,
        sum,
    };
    let record = match kind {
        Begin::KIND => Record::Begin(read(fields)?),
        PlanText::KIND => Record::Plan(read(fields)?),
        Pair::KIND => Record::Pair(read(fields)?),
        Row::KIND => Record::Row(read(fields)?),
        Histogram::KIND => Record::Histogram(read(fields)?),
        Worst::KIND => Record::Worst(read(fields)?),
        End::KIND => Record::End(read(fields)?),
        _ => Record::Unknown(kind),
    };
    Some((envelope, record))
}

/// Fills in a record. Keys that it does not know are passed over; one that it misses is an error.
fn read<'a, F: Fields<'a> + Default>(fields: &'a str) -> Option<F> {
    let mut record = F::default();
    let mut read = Read {
        fields,
        whole: true,
    };
    record.visit(&mut read);
    read.whole.then_some(record)
}

struct Read<'a> {
    fields: &'a str,
    whole: bool,
}

impl<'a> Read<'a> {
    fn set<T>(&mut self, key: &str, value: &mut T, parse: impl FnOnce(&'a str) -> Option<T>) {
        let found = self.fields.split(' ').find_map(|field| {
            let (name, text) = field.split_once('=')?;
            (name == key).then_some(text)
        });
        match found.and_then(parse) {
            Some(parsed) => *value = parsed,
            None => self.whole = false,
        }
    }
}

impl<'a> Visitor<'a> for Read<'a> {
    fn u32(&mut self, key: &str, value: &mut u32) {
        self.set(key, value, |text| u32::try_from(num::parse_dec(text)?).ok());
    }

    fn u64(&mut self, key: &str, value: &mut u64) {
        self.set(key, value, num::parse_dec);
    }

    fn i64(&mut self, key: &str, value: &mut i64) {
        self.set(key, value, num::parse_signed_dec);
    }

    fn text(&mut self, key: &str, value: &mut &'a str) {
        self.set(key, value, Some);
    }

    fn row(&mut self, key: &str, value: &mut Measurement) {
        self.set(key, value, |text| {
            let mut rows = plan::rows(text, 1);
            let row = rows.next()?.ok()?;
            rows.next().is_none().then_some(row)
        });
    }
}

/// The `FIRST:SECOND:…` groups of a record's list.
pub fn groups<const N: usize>(list: &str) -> impl Iterator<Item = Option<[&str; N]>> {
    list.split(',')
        .filter(|group| !group.is_empty())
        .map(|group| {
            let mut parts = group.split(':');
            let mut found = [""; N];
            for place in &mut found {
                *place = parts.next()?;
            }
            parts.next().is_none().then_some(found)
        })
}

#[cfg(test)]
mod tests {
    use super::super::num::Wide;
    use super::super::plan::{Context, Cpu, Function};
    use super::super::record::{Clocks, Encoder, Line, LINE_MAX, PIECE_MAX};
    use super::super::summary::Summary;
    use super::*;
    use proptest::prelude::*;

    const LONGEST_NAME: usize = 64;

    prop_compose! {
        fn clocks()(mono: u64, raw: u64, boot: u64, ticks: u64) -> Clocks {
            Clocks { mono, raw, boot, ticks }
        }
    }

    prop_compose! {
        fn row()(
            index: u32, request in 1_u64..60_000, iterations in 1..=plan::ITERATIONS_MAX, count: u32,
            shortest: u64, highest: u64, sum: u64, high: u64, low: u64, early: u32, earliest: i64,
            cpu_changes: u32, involuntary_switches: u32, priority in 1_u8..=99, cpu: u16,
        ) -> Row {
            let request = request * plan::MILLISECOND;
            Row {
                index,
                measurement: Measurement {
                    function: Function::MsleepInterruptible, request, request_max: request,
                    context: Context::Fifo(priority), cpu: Cpu::One(cpu), iterations,
                },
                summary: Summary { count, shortest, highest, sum, squares: Wide { high, low }, early, earliest },
                cpu_changes, involuntary_switches,
            }
        }
    }

    fn round<'a, F: Fields<'a>>(record: F, line: &'a mut Line) -> (Envelope, Record<'a>) {
        Encoder::new(7, 0x1234_5678_9abc_def0).encode(record, line);
        assert!(line.is_whole());
        decode(line.as_str()).unwrap()
    }

    proptest! {
        #[test]
        fn rows_survive(row in row()) {
            let mut line = Line::default();
            let (envelope, record) = round(row, &mut line);
            prop_assert_eq!(record, Record::Row(row));
            prop_assert_eq!((envelope.run, envelope.stamp, envelope.sequence), (7, 0x1234_5678_9abc_def0, 0));
        }

        #[test]
        fn begin_and_end_survive(
            name in "[!-~]{0,64}", hz: u32, clocks in clocks(), records: u32, text in "[!-~]{0,700}"
        ) {
            prop_assert!(name.len() <= LONGEST_NAME && text.len() <= PIECE_MAX);
            let begin = Begin {
                layout: u32::MAX, version: &name, release: &name, machine: &name, hz, realtime: u32::MAX,
                resolution: u32::MAX, cpus: u32::MAX, rows: u32::MAX, iterations: u32::MAX, fault: &name, clocks,
            };
            let mut line = Line::default();
            prop_assert_eq!(round(begin, &mut line).1, Record::Begin(begin));
            let end = End { records, sum: hz, status: &name, rows: hz, clocks };
            let mut line = Line::default();
            prop_assert_eq!(round(end, &mut line).1, Record::End(end));
            let plan = PlanText { at: hz, text: &text };
            let mut line = Line::default();
            prop_assert_eq!(round(plan, &mut line).1, Record::Plan(plan));
            let histogram = Histogram { index: hz, side: "early", buckets: &text };
            let mut line = Line::default();
            prop_assert_eq!(round(histogram, &mut line).1, Record::Histogram(histogram));
            let worst = Worst { index: hz, samples: &text };
            let mut line = Line::default();
            prop_assert_eq!(round(worst, &mut line).1, Record::Worst(worst));
        }

        #[test]
        fn a_flipped_bit_is_noticed(row in row(), at: prop::sample::Index, bit in 0..7) {
            let mut line = Line::default();
            round(row, &mut line);
            let mut bytes = line.as_str().as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                prop_assert!(decode(text).is_err(), "{}", text);
            }
        }

        #[test]
        fn a_cut_is_noticed(row in row(), at: prop::sample::Index) {
            let mut line = Line::default();
            round(row, &mut line);
            let text = line.as_str();
            prop_assert!(decode(&text[..at.index(text.len())]).is_err());
        }

        #[test]
        fn anything_is_read_or_refused(text in "\\PC*") {
            let _ = decode(&text);
            let _ = looks_like_record(&text);
        }
    }

    #[test]
    fn version_is_cargos() {
        assert_eq!(
            super::super::record::MESSUNG_VERSION,
            env!("CARGO_PKG_VERSION")
        );
    }

    #[test]
    fn checksum_is_the_usual_one() {
        let mut crc = Crc::default();
        crc.add(b"123456789");
        assert_eq!(crc.sum(), 0xcbf4_3926);
    }

    #[test]
    fn end_counts_and_sums() {
        let mut encoder = Encoder::new(0, 1);
        let mut line = Line::default();
        let mut sums = Crc::default();
        for at in 0..3 {
            encoder.encode(PlanText { at, text: "x" }, &mut line);
            sums.add_sum(decode(line.as_str()).unwrap().0.sum);
        }
        encoder.end(
            End {
                status: "done",
                ..End::default()
            },
            &mut line,
        );
        let (envelope, record) = decode(line.as_str()).unwrap();
        assert_eq!(envelope.sequence, 3);
        let Record::End(end) = record else {
            panic!("{record:?}")
        };
        assert_eq!((end.records, end.sum, end.status), (3, sums.sum(), "done"));
    }

    #[test]
    fn unknown_kinds_and_keys_pass() {
        let sealed = |body: &str| {
            let mut crc = Crc::default();
            crc.add(body.as_bytes());
            format!("{body} *{:08x}\r\n", crc.sum())
        };
        let text = sealed("@00000007-0000000000000001 3 weather sun=1");
        assert_eq!(decode(&text).unwrap().1, Record::Unknown("weather"));
        let text = sealed("@00000007-0000000000000001 3 plan new=1 at=0 text=none");
        assert_eq!(
            decode(&text).unwrap().1,
            Record::Plan(PlanText {
                at: 0,
                text: "none"
            })
        );
        let text = sealed("@00000007-0000000000000001 3 plan at=0");
        assert_eq!(decode(&text), Err(Damage::Layout));
        assert_eq!(
            decode(&sealed("@7-1 3 plan at=0 text=none")),
            Err(Damage::Layout)
        );
    }

    #[test]
    fn lines_for_people() {
        let measurement = plan::rows("udelay:15us/irqoff", 1000)
            .next()
            .unwrap()
            .unwrap();
        let summary = Summary {
            count: 1000,
            shortest: 15_340,
            highest: 15_341,
            sum: 15_340_000,
            ..Summary::default()
        };
        let row = Row {
            index: 1,
            measurement,
            summary,
            ..Row::default()
        };
        assert_eq!(
            super::super::record::People { row: &row, rows: 14 }.to_string(),
            "[2/14] udelay 15 us, irqoff: shortest: 15.340 mean: 15.340 highest: 15.341 us (1000 samples, 0 early)"
        );
    }

    #[test]
    fn lists_are_groups() {
        let read: Vec<_> = groups::<2>("1:2,3:4").collect();
        assert_eq!(read, [Some(["1", "2"]), Some(["3", "4"])]);
        assert_eq!(groups::<2>("1:2:3").next(), Some(None));
        assert_eq!(groups::<2>("").next(), None);
        const { assert!(LINE_MAX + "messung: \n".len() <= 900) };
    }
}
