// SPDX-License-Identifier: GPL-2.0

//! Makes runs of messages, and says what is missing.
//!
//! Records tell by themselves which run they belong to and where in it, so order, repetition and what stands between
//! them do not matter. A log without them (the debug level was filtered out) still has the lines for people.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use abi::decode::{self, Envelope, Record};
use abi::num::{self, Wide};
use abi::record::{self, Begin, Clocks, Crc, End, Pair, Row};
use abi::summary::Summary;

use super::distribution::{self, Counts};
use super::verdict;
use super::{people, prefix};
use crate::result::{
    Early, Environment, Identity, Instrument, Measurement, Outlier, Run, SCHEMA, Spread, Tool,
    Unknown,
};

/// What a log came to.
#[derive(Debug, Default, PartialEq)]
pub struct Log {
    /// The runs, in the order in which they begin.
    pub runs: Vec<Run>,
    /// Lines that look like a record but are damaged and belong to none of the runs.
    pub damaged: u32,
}

/// Takes messages, gives runs.
#[derive(Default)]
pub struct Assembler {
    parts: Vec<Parts>,
    /// Runs that were taken out already.
    ended: BTreeSet<(u32, u64)>,
    people: people::Runs,
    damaged: Damaged,
}

/// How many damaged records there were, by the identity that can still be read of them. However many identities a
/// damaged log makes up, only some are kept.
#[derive(Default)]
struct Damaged {
    of: BTreeMap<(u32, u64), u32>,
    others: u32,
}

impl Damaged {
    const MOST: usize = 1000;

    fn add(&mut self, identity: Option<Identity>) {
        let room = self.of.len() < Self::MOST;
        let count = match identity.map(|identity| (identity.id, identity.stamp)) {
            Some(key) if room || self.of.contains_key(&key) => self.of.entry(key).or_default(),
            _ => &mut self.others,
        };
        *count = count.saturating_add(1);
    }

    /// Takes out those of a run.
    fn take(&mut self, identity: &Identity) -> u32 {
        self.of
            .remove(&(identity.id, identity.stamp))
            .unwrap_or_default()
    }

    /// All that are left.
    fn left(&self) -> u32 {
        self.of
            .values()
            .fold(self.others, |sum, count| sum.saturating_add(*count))
    }
}

/// What arrived of a run.
struct Parts {
    identity: Identity,
    /// Checksums of the records, by sequence number.
    sums: BTreeMap<u32, u32>,
    /// Records that contradict an earlier one of the same number.
    contradictions: u32,
    start: Option<Start>,
    plan: BTreeMap<u32, String>,
    pair: Option<Pair>,
    rows: BTreeMap<u32, Row>,
    counts: BTreeMap<u32, Counts>,
    outliers: BTreeMap<u32, Vec<Outlier>>,
    finish: Option<Finish>,
}

/// A [`Begin`] that outlives its line.
struct Start {
    layout: u32,
    version: String,
    environment: Environment,
    rows: u32,
    fault: String,
    clocks: Clocks,
}

/// An [`End`] that outlives its line.
struct Finish {
    records: u32,
    sum: u32,
    status: String,
    rows: u32,
    clocks: Clocks,
}

impl Assembler {
    /// What comes from now on is in another log. Both may tell of the same runs, and each may have lost other parts.
    pub fn next_log(&mut self) {
        self.people.next_log();
    }

    /// Takes a message, [`prefix::MARKER`] included. What is not ours is passed over.
    pub fn take(&mut self, message: &[u8]) {
        let Some(message) = message.strip_prefix(prefix::MARKER) else {
            return;
        };
        match std::str::from_utf8(message) {
            Ok(text) if decode::looks_like_record(text) => match decode::decode(text) {
                Ok((envelope, record)) => {
                    if matches!(record, Record::Begin(_)) {
                        self.people.records_begin();
                    }
                    if !self.ended.contains(&(envelope.run, envelope.stamp)) {
                        self.parts(&envelope).take(&envelope, &record);
                    }
                }
                Err(_) => self.damaged.add(identity(text)),
            },
            Ok(text) => self.people.take(text),
            Err(_) if message.starts_with(b"@") => {
                self.damaged
                    .add(identity(&String::from_utf8_lossy(message)));
            }
            Err(_) => {}
        }
    }

    /// The parts that a record belongs to. It is most likely the run met last.
    fn parts(&mut self, envelope: &Envelope) -> &mut Parts {
        let identity = Identity {
            id: envelope.run,
            stamp: envelope.stamp,
        };
        let known = self
            .parts
            .iter()
            .rposition(|parts| parts.identity == identity);
        let at = known.unwrap_or_else(|| {
            self.parts.push(Parts::new(identity));
            self.parts.len() - 1
        });
        &mut self.parts[at]
    }

    /// Whether there are records of a run that was not taken out.
    pub fn has(&self, identity: &Identity) -> bool {
        self.parts.iter().any(|parts| parts.identity == *identity)
    }

    /// Takes a run out of which there are records. What else may come of it is passed over.
    pub fn take_out(&mut self, identity: &Identity) -> Option<Run> {
        let at = self
            .parts
            .iter()
            .position(|parts| parts.identity == *identity)?;
        let run = self.parts.remove(at).run(self.damaged.take(identity));
        self.ended.insert((identity.id, identity.stamp));
        self.people
            .forget(|line| run.measurements.iter().any(|row| is_line_of(line, row)));
        Some(run)
    }

    /// Takes out a run that ended without a record to say so: what is there, if records of no more than one run are.
    pub fn take_out_only(&mut self) -> Vec<Run> {
        match self.parts.as_slice() {
            [] => {
                let runs = self.people.runs(|_| false);
                self.people.forget(|_| true);
                runs
            }
            [only] => self.take_out(&only.identity.clone()).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// All runs.
    pub fn finish(self) -> Log {
        let Self {
            parts,
            ended: _,
            people,
            mut damaged,
        } = self;
        let mut runs: Vec<_> = parts
            .iter()
            .map(|parts| parts.run(damaged.take(&parts.identity)))
            .collect();
        let told = people.runs(|line| {
            runs.iter()
                .flat_map(|run| &run.measurements)
                .any(|row| is_line_of(line, row))
        });
        runs.extend(told);
        Log {
            runs,
            damaged: damaged.left(),
        }
    }
}

/// Whether a line for people tells of a row.
fn is_line_of(line: &Measurement, row: &Measurement) -> bool {
    line.index == row.index
        && (line.shortest_ns, line.mean_ns, line.highest_ns)
            == (row.shortest_ns, row.mean_ns, row.highest_ns)
        && line.count == row.count
        && (&line.function, line.requested_ns, &line.context, line.cpu)
            == (&row.function, row.requested_ns, &row.context, row.cpu)
}

/// The identity at the head of a damaged record, which may itself be what is damaged.
fn identity(text: &str) -> Option<Identity> {
    let (run, stamp) = text.strip_prefix('@')?.split_once(' ')?.0.split_once('-')?;
    Some(Identity {
        id: u32::try_from(num::parse_hex(run)?).ok()?,
        stamp: num::parse_hex(stamp)?,
    })
}

impl Parts {
    fn new(identity: Identity) -> Self {
        Self {
            identity,
            sums: BTreeMap::new(),
            contradictions: 0,
            start: None,
            plan: BTreeMap::new(),
            pair: None,
            rows: BTreeMap::new(),
            counts: BTreeMap::new(),
            outliers: BTreeMap::new(),
            finish: None,
        }
    }

    fn take(&mut self, envelope: &Envelope, record: &Record<'_>) {
        if let Some(sum) = self.sums.get(&envelope.sequence) {
            // The same log read twice is one log.
            if *sum != envelope.sum {
                self.contradictions = self.contradictions.saturating_add(1);
            }
            return;
        }
        self.sums.insert(envelope.sequence, envelope.sum);
        match record {
            Record::Begin(begin) => self.start = Some(Start::of(begin)),
            Record::Plan(piece) => {
                self.plan.insert(piece.at, piece.text.to_owned());
            }
            Record::Pair(pair) => self.pair = Some(*pair),
            Record::Row(row) => {
                self.rows.insert(row.index, *row);
            }
            Record::Histogram(part) => self.counts.entry(part.index).or_default().add(part),
            Record::Worst(worst) => {
                self.outliers
                    .insert(worst.index, distribution::outliers(worst));
            }
            Record::End(end) => self.finish = Some(Finish::of(end)),
            Record::Unknown(_) => {}
        }
    }

    fn run(&self, damaged: u32) -> Run {
        let mut problems = self.problems(damaged);
        let complete = problems.is_empty();
        let start = self.start.as_ref();
        let instrument = self.instrument();
        let mut disturbances = Vec::new();
        if let Some((start, finish)) = start.zip(self.finish.as_ref()) {
            let raw_ppm = instrument
                .as_ref()
                .and_then(|instrument| instrument.raw_ppm);
            let hz = start.environment.hz.unwrap_or(0);
            let warnings;
            (disturbances, warnings) = verdict::clocks(&start.clocks, &finish.clocks, hz, raw_ppm);
            problems.extend(warnings);
        }
        Run {
            schema: SCHEMA.to_owned(),
            tool: this_tool(),
            run: self.identity.clone(),
            complete,
            plan: self.plan_text(),
            fault: start
                .map(|start| start.fault.clone())
                .filter(|fault| !fault.is_empty()),
            environment: start.map_or_else(Environment::default, |start| start.environment.clone()),
            platform: None,
            instrument,
            measurements: self
                .rows
                .values()
                .map(|row| self.measurement(row))
                .collect(),
            disturbances,
            warnings: problems,
            unknown: Unknown::new(),
        }
    }

    /// A row with all that arrived about it. A histogram is there whole or not at all.
    fn measurement(&self, row: &Row) -> Measurement {
        let counts = self
            .counts
            .get(&row.index)
            .filter(|counts| counts.is_whole(&row.summary));
        let hz = self.start.as_ref().and_then(|start| start.environment.hz);
        let pair = self
            .pair
            .map_or(0, |pair| num::div_round(pair.sum, u64::from(pair.count)));
        Measurement {
            verdict: hz.and_then(|hz| {
                let median =
                    counts.and_then(|counts| counts.least_median(&row.measurement, &row.summary));
                verdict::verdict(&row.measurement, &row.summary, median, hz, pair)
            }),
            flags: flags(row),
            percentiles_ns: counts
                .map(|counts| counts.percentiles(&row.measurement, &row.summary))
                .unwrap_or_default(),
            histogram: counts.map(Counts::histogram),
            worst: self.outliers.get(&row.index).cloned().unwrap_or_default(),
            ..measurement(row)
        }
    }

    /// The plan as the module got it; where pieces of it are missing, what the rows tell.
    fn plan_text(&self) -> String {
        let mut text = String::new();
        for (&at, piece) in &self.plan {
            if usize::try_from(at) != Ok(text.len()) {
                text.clear();
                break;
            }
            text.push_str(piece);
        }
        if text.is_empty() {
            text = self
                .rows
                .values()
                .map(|row| row.measurement.to_string())
                .collect::<Vec<_>>()
                .join(",");
        }
        text
    }

    fn instrument(&self) -> Option<Instrument> {
        let start = self.start.as_ref();
        let raw_ppm = start.zip(self.finish.as_ref()).and_then(|(start, finish)| {
            ppm(
                finish.clocks.mono.checked_sub(start.clocks.mono)?,
                finish.clocks.raw.checked_sub(start.clocks.raw)?,
            )
        });
        let instrument = Instrument {
            version: start.map(|start| start.version.clone()),
            pair_ns: self.pair.filter(|pair| pair.count > 0).map(|pair| Spread {
                shortest: pair.shortest,
                mean: num::div_round(pair.sum, u64::from(pair.count)),
                highest: pair.highest,
            }),
            raw_ppm,
            ..Instrument::default()
        };
        (instrument != Instrument::default()).then_some(instrument)
    }

    /// Why this run is not complete, in sentences; nothing where it is.
    fn problems(&self, damaged: u32) -> Vec<String> {
        let mut problems = Vec::new();
        match &self.start {
            None => problems.push(
                "the run's first record is missing: which kernel it measured is unknown".to_owned(),
            ),
            Some(start) if start.layout > record::VERSION => problems.push(format!(
                "the module writes layout {}, which is newer than this program's {}: build both from one version",
                start.layout,
                record::VERSION
            )),
            Some(_) => {}
        }
        let last = self.sums.keys().next_back().copied().unwrap_or(0);
        let expected = self.finish.as_ref().map_or(last, |finish| finish.records);
        let lost = gaps(self.sums.keys().copied(), expected);
        if let Some(text) = named("record", &lost) {
            problems.push(format!("the log lost {text} of this run"));
        }
        if damaged > 0 && !problems.is_empty() {
            problems.push(format!(
                "{damaged} of its records arrived damaged: cut, or altered on the way"
            ));
        }
        if self.contradictions > 0 {
            problems.push(format!(
                "{} records contradict others of this run: two logs are mixed up",
                self.contradictions
            ));
        }
        match &self.finish {
            None => problems
                .push("the log ends before this run does: its last record is missing".to_owned()),
            Some(finish) => {
                if lost.is_empty() && self.sum_of_sums(finish.records) != finish.sum {
                    problems.push(
                        "the run's checksum does not match its records: some were altered"
                            .to_owned(),
                    );
                }
                match finish.status.as_str() {
                    "done" => {}
                    "interrupted" => {
                        problems
                            .push("the run was interrupted before its plan was done".to_owned());
                    }
                    other => problems.push(format!("the run failed: {other}")),
                }
            }
        }
        let rows = self
            .start
            .as_ref()
            .map(|start| start.rows)
            .or(self.finish.as_ref().map(|finish| finish.rows));
        if let Some(rows) = rows {
            // People count from 1.
            let absent: Vec<_> = gaps(self.rows.keys().copied(), rows)
                .into_iter()
                .map(|gap| u64::from(*gap.start()) + 1..=u64::from(*gap.end()) + 1)
                .collect();
            if let Some(text) = named("row", &absent) {
                let verb = if is_one(&absent) { "is" } else { "are" };
                problems.push(format!("{text} of {rows} {verb} missing"));
            }
        }
        problems
    }

    /// The checksum of the checksums of the first `records` records.
    fn sum_of_sums(&self, records: u32) -> u32 {
        let mut crc = Crc::default();
        for (_, &sum) in self.sums.range(..records) {
            crc.add_sum(sum);
        }
        crc.sum()
    }
}

impl Start {
    fn of(begin: &Begin<'_>) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let tick = 1_000_000_000_u32.checked_div(begin.hz);
        Self {
            layout: begin.layout,
            version: begin.version.to_owned(),
            environment: Environment {
                kernel_release: text(begin.release),
                machine: text(begin.machine),
                hz: Some(begin.hz),
                realtime: Some(begin.realtime != 0),
                high_res: tick.map(|tick| begin.resolution < tick),
                cpus: Some(begin.cpus),
                ..Environment::default()
            },
            rows: begin.rows,
            fault: begin.fault.to_owned(),
            clocks: begin.clocks,
        }
    }
}

impl Finish {
    fn of(end: &End<'_>) -> Self {
        Self {
            records: end.records,
            sum: end.sum,
            status: end.status.to_owned(),
            rows: end.rows,
            clocks: end.clocks,
        }
    }
}

/// A row as the result has it.
fn measurement(row: &Row) -> Measurement {
    let Row {
        index,
        measurement,
        summary,
        cpu_changes,
        involuntary_switches,
    } = row;
    let sampled = |value: u64| (summary.count > 0).then_some(value);
    Measurement {
        shortest_ns: sampled(summary.shortest),
        mean_ns: sampled(summary.mean()),
        highest_ns: sampled(summary.highest),
        stddev_ns: standard_deviation(summary, measurement),
        early: (summary.count > 0).then_some(Early {
            count: summary.early,
            worst_ns: (summary.early > 0).then_some(summary.earliest),
        }),
        cpu_changes: Some(*cpu_changes),
        involuntary_switches: Some(*involuntary_switches),
        ..asked(*index, measurement, summary.count)
    }
}

/// Doubts about a row.
fn flags(row: &Row) -> Vec<String> {
    let pinned = matches!(row.measurement.cpu, abi::plan::Cpu::One(_));
    if pinned && row.cpu_changes > 0 {
        vec![format!(
            "the task was pinned, yet found on another CPU {} times",
            row.cpu_changes
        )]
    } else {
        Vec::new()
    }
}

/// A row with nothing but its request.
pub(super) fn asked(index: u32, asked: &abi::plan::Measurement, count: u32) -> Measurement {
    Measurement {
        index,
        function: asked.function.spec().name.to_owned(),
        requested_ns: asked.request,
        requested_max_ns: (asked.function == abi::plan::Function::UsleepRange)
            .then_some(asked.request_max),
        context: asked.context.to_string(),
        cpu: match asked.cpu {
            abi::plan::Cpu::One(cpu) => Some(cpu.into()),
            abi::plan::Cpu::Any | abi::plan::Cpu::All => None,
        },
        iterations: asked.iterations,
        count,
        shortest_ns: None,
        mean_ns: None,
        highest_ns: None,
        stddev_ns: None,
        early: None,
        percentiles_ns: BTreeMap::new(),
        histogram: None,
        worst: Vec::new(),
        cpu_changes: None,
        involuntary_switches: None,
        verdict: None,
        flags: Vec::new(),
        unknown: Unknown::new(),
    }
}

/// The standard deviation of all samples, exactly and rounded, from the sum of the squared errors:
/// n²σ² = nΣe² − (Σe)².
fn standard_deviation(summary: &Summary, measurement: &abi::plan::Measurement) -> Option<u64> {
    if summary.count == 0 {
        return None;
    }
    let count = u128::from(summary.count);
    let Wide { high, low } = summary.squares;
    let squares = (u128::from(high) << 64) | u128::from(low);
    let errors = u128::from(summary.sum).abs_diff(count * u128::from(measurement.request));
    let scaled = count
        .checked_mul(squares)?
        .checked_sub(errors.checked_mul(errors)?)?;
    // Twice the root rounds better than the root.
    let twice = scaled.checked_mul(4)?.isqrt();
    u64::try_from((twice + count) / (2 * count)).ok()
}

/// How much faster `measured` went than `reference`, in parts per million.
fn ppm(measured: u64, reference: u64) -> Option<f64> {
    if reference == 0 {
        return None;
    }
    let difference = measured as f64 - reference as f64;
    Some(difference / reference as f64 * 1e6)
}

/// This program, as the writer of a result.
pub(super) fn this_tool() -> Tool {
    Tool {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        unknown: Unknown::new(),
    }
}

/// The numbers from 0 up to but not including `end` that do not stand in `present`, which ascends.
fn gaps(present: impl Iterator<Item = u32>, end: u32) -> Vec<RangeInclusive<u32>> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for number in present.take_while(|&number| number < end) {
        if number > next {
            gaps.push(next..=number - 1);
        }
        next = number + 1;
    }
    if next < end {
        gaps.push(next..=end - 1);
    }
    gaps
}

/// `row 2`, or `rows 2, 4 and 5 to 7`; the first few, where there are many. None where there are none.
fn named<T: PartialEq + std::fmt::Display>(
    thing: &str,
    ranges: &[RangeInclusive<T>],
) -> Option<String> {
    const MOST: usize = 8;
    let mut texts: Vec<_> = ranges
        .iter()
        .take(MOST)
        .map(|range| {
            if range.start() == range.end() {
                range.start().to_string()
            } else {
                format!("{} to {}", range.start(), range.end())
            }
        })
        .collect();
    if ranges.len() > MOST {
        texts.push("more".to_owned());
    }
    let last = texts.pop()?;
    let numbers = if texts.is_empty() {
        last
    } else {
        format!("{} and {last}", texts.join(", "))
    };
    let plural = if is_one(ranges) { "" } else { "s" };
    Some(format!("{thing}{plural} {numbers}"))
}

/// Whether ranges hold one number in all.
fn is_one<T: PartialEq>(ranges: &[RangeInclusive<T>]) -> bool {
    matches!(ranges, [only] if only.start() == only.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_named() {
        let named = |ranges: &[RangeInclusive<u32>]| named("row", ranges);
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[2..=2]).as_deref(), Some("row 2"));
        assert_eq!(named(&[2..=3]).as_deref(), Some("rows 2 to 3"));
        assert_eq!(
            named(&[2..=2, 4..=4, 6..=9]).as_deref(),
            Some("rows 2, 4 and 6 to 9")
        );
        let many: Vec<_> = (0..20).map(|number| 2 * number..=2 * number).collect();
        assert_eq!(
            named(&many).as_deref(),
            Some("rows 0, 2, 4, 6, 8, 10, 12, 14 and more")
        );
    }
}
