// SPDX-License-Identifier: GPL-2.0

//! Reads the lines for people, where a log has nothing else:
//!
//! ```text
//! measuring 14 rows on Linux 7.3.4+deb13-amd64, HZ=250, 1 CPUs
//! [2/14] udelay 15 us, irqoff: shortest: 15.340 mean: 15.340 highest: 15.340 us (1000 samples, 0 early)
//! ```

use abi::num;
use abi::plan::{self, Measurement};

use super::assemble::{asked, this_tool};
use crate::result::{self, Early, Environment, Identity, Run, SCHEMA, Unknown};

/// The line that begins a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heading {
    rows: u32,
    release: String,
    hz: u32,
    cpus: u32,
}

/// The line of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Place in the plan, from 0.
    index: u32,
    /// Rows of the plan.
    rows: u32,
    /// What was measured. The samples taken stand for the iterations, which the line does not tell.
    measurement: Measurement,
    /// Shortest elapsed time in nanoseconds.
    shortest: u64,
    /// Mean elapsed time.
    mean: u64,
    /// Highest elapsed time.
    highest: u64,
    /// Samples taken.
    samples: u32,
    /// Samples below the floor.
    early: u32,
    /// Name of the fault that was planted in a test build.
    fault: Option<String>,
}

/// Which of how many rows a line is about: `[2/14] …` is the second of fourteen.
pub fn place(message: &str) -> Option<(u64, u64)> {
    let (place, _) = message.strip_prefix('[')?.split_once(']')?;
    let (row, rows) = place.split_once('/')?;
    Some((row.parse().ok()?, rows.parse().ok()?))
}

/// Whether a line is the last one of a run: `done: 14 of 14 rows measured; …`.
pub fn is_end(message: &str) -> bool {
    let parse = || {
        let (_, rest) = message.split_once(": ")?;
        let (done, rest) = rest.split_once(" of ")?;
        let (rows, _) = rest.split_once(" rows measured")?;
        number(done).and(number(rows))
    };
    parse().is_some()
}

/// Runs that lines for people make up. Nothing in a line says which run it belongs to, so they must come in order.
#[derive(Debug, Default)]
pub struct Runs {
    runs: Vec<Lines>,
    /// How many logs came before this one.
    log: u32,
}

/// What is there of a run.
#[derive(Debug, Default)]
struct Lines {
    /// The log that it begins in.
    log: u32,
    heading: Option<Heading>,
    /// Whether records of the run follow its heading.
    recorded: bool,
    rows: Vec<Line>,
}

impl Runs {
    /// What comes from now on is in another log.
    pub fn next_log(&mut self) {
        self.log = self.log.saturating_add(1);
    }

    /// The first record of a run comes right after its heading: the lines that follow tell nothing new.
    pub fn records_begin(&mut self) {
        if let Some(run) = self.runs.last_mut().filter(|run| run.rows.is_empty()) {
            run.recorded = true;
        }
    }

    /// Takes a message, `messung: ` taken off. What is no line for people is passed over.
    pub fn take(&mut self, message: &str) {
        if let Some(heading) = heading(message) {
            // The log may have been read twice, or each line be there twice.
            let last = self.runs.last();
            if last.and_then(|run| run.heading.as_ref()) != Some(&heading)
                || last.is_some_and(|run| !run.rows.is_empty())
            {
                self.begin(Some(heading), Vec::new());
            }
        } else if let Some(line) = read(message) {
            self.add(line);
        }
    }

    /// Adds a line to the last run, or begins another: runs count their rows upwards. The same line again is the same
    /// row.
    fn add(&mut self, line: Line) {
        match self.runs.last_mut() {
            Some(run) if run.rows.contains(&line) => {}
            Some(run) if run.goes_on_with(&line) => run.rows.push(line),
            _ => self.begin(None, vec![line]),
        }
    }

    fn begin(&mut self, heading: Option<Heading>, rows: Vec<Line>) {
        self.runs.push(Lines {
            log: self.log,
            heading,
            recorded: false,
            rows,
        });
    }

    /// Forgets runs that records tell of as well: `is_known` says whether a row is among these.
    pub fn forget(&mut self, is_known: impl Fn(&result::Measurement) -> bool) {
        self.runs.retain(|lines| !lines.is_told(&is_known));
    }

    /// The runs of which there are rows, each once. Those that records tell of as well are left out: `is_known` says
    /// whether a row is among these.
    pub fn runs(&self, is_known: impl Fn(&result::Measurement) -> bool) -> Vec<Run> {
        let mut runs: Vec<&Lines> = Vec::new();
        for lines in self.runs.iter().filter(|lines| !lines.rows.is_empty()) {
            if lines.is_told(&is_known) {
                continue;
            }
            let same = runs.iter_mut().find(|other| {
                other.log != lines.log && (other.is_part_of(lines) || lines.is_part_of(other))
            });
            match same {
                Some(other) if other.is_part_of(lines) => *other = lines,
                Some(_) => {}
                None => runs.push(lines),
            }
        }
        runs.into_iter().map(Lines::run).collect()
    }
}

impl Lines {
    fn goes_on_with(&self, line: &Line) -> bool {
        match (self.rows.last(), &self.heading) {
            (Some(last), _) => last.rows == line.rows && last.index < line.index,
            (None, Some(heading)) => heading.rows == line.rows,
            (None, None) => true,
        }
    }

    /// Whether records tell of this run as well.
    fn is_told(&self, is_known: impl Fn(&result::Measurement) -> bool) -> bool {
        self.recorded || self.rows.iter().any(|line| is_known(&line.measurement()))
    }

    /// Whether all that is there of this run is there of another one, too.
    fn is_part_of(&self, other: &Self) -> bool {
        (self.heading.is_none() || self.heading == other.heading)
            && self.rows.iter().all(|line| other.rows.contains(line))
    }

    fn run(&self) -> Run {
        let rows = self.rows.first().map_or(0, |line| line.rows);
        let mut warnings = vec![
            "the log has the lines for people only, no records (they are at debug level): which run this is, and \
             whether all of it is there, is unknown"
                .to_owned(),
        ];
        if self.rows.len() < rows as usize {
            warnings.push(format!("of {rows} rows, {} are there", self.rows.len()));
        }
        let items: Vec<_> = self
            .rows
            .iter()
            .map(|line| line.measurement.to_string())
            .collect();
        Run {
            schema: SCHEMA.to_owned(),
            tool: this_tool(),
            run: Identity { id: 0, stamp: 0 },
            complete: false,
            plan: items.join(","),
            fault: self.rows.iter().find_map(|line| line.fault.clone()),
            environment: self
                .heading
                .as_ref()
                .map_or_else(Environment::default, Heading::environment),
            platform: None,
            instrument: None,
            measurements: self.rows.iter().map(Line::measurement).collect(),
            disturbances: Vec::new(),
            warnings,
            unknown: Unknown::new(),
        }
    }
}

impl Heading {
    fn environment(&self) -> Environment {
        Environment {
            kernel_release: Some(self.release.clone()),
            hz: Some(self.hz),
            cpus: Some(self.cpus),
            ..Environment::default()
        }
    }
}

impl Line {
    fn measurement(&self) -> result::Measurement {
        result::Measurement {
            shortest_ns: Some(self.shortest),
            mean_ns: Some(self.mean),
            highest_ns: Some(self.highest),
            early: Some(Early {
                count: self.early,
                worst_ns: None,
            }),
            ..asked(self.index, &self.measurement, self.samples)
        }
    }
}

/// Reads the line that begins a run.
fn heading(message: &str) -> Option<Heading> {
    let (rows, rest) = message
        .strip_prefix("measuring ")?
        .split_once(" rows on Linux ")?;
    let (release, rest) = rest.split_once(", HZ=")?;
    let (hz, cpus) = rest.split_once(", ")?;
    Some(Heading {
        rows: number(rows)?,
        release: release.to_owned(),
        hz: number(hz)?,
        cpus: number(cpus.trim_end().strip_suffix(" CPUs")?)?,
    })
}

/// Reads the line of a row. Anything else than a whole line with samples is none.
fn read(message: &str) -> Option<Line> {
    let (index, rest) = message.strip_prefix('[')?.split_once('/')?;
    let (rows, rest) = rest.split_once("] ")?;
    let (title, rest) = rest.split_once(": shortest: ")?;
    let (shortest, rest) = rest.split_once(" mean: ")?;
    let (mean, rest) = rest.split_once(" highest: ")?;
    let (highest, rest) = rest.split_once(" us (")?;
    let (samples, rest) = rest.split_once(" samples, ")?;
    let (early, mark) = rest.trim_end().split_once(" early)")?;
    let (index, rows, samples) = (number(index)?, number(rows)?, number(samples)?);
    if index == 0 || index > rows {
        return None;
    }
    Some(Line {
        index: index - 1,
        rows,
        measurement: titled(title, samples)?,
        shortest: micros(shortest)?,
        mean: micros(mean)?,
        highest: micros(highest)?,
        samples,
        early: number(early)?,
        fault: fault(mark)?,
    })
}

/// Reads what [`plan::Title`] writes: `usleep_range 15 us to 20 us, fifo:99, CPU 3`.
fn titled(title: &str, samples: u32) -> Option<Measurement> {
    let mut parts = title.split(", ");
    let what = parts.next()?;
    let (function, duration) = what.split_once(' ').unwrap_or((what, ""));
    let mut item = function.to_owned();
    if !duration.is_empty() {
        item.push(':');
        item.push_str(&duration.replace(" to ", "..").replace(' ', ""));
    }
    for part in parts {
        match part.strip_prefix("CPU ") {
            Some(cpu) => item.push_str(&format!("@{cpu}")),
            None => item.push_str(&format!("/{part}")),
        }
    }
    let mut rows = plan::rows(&item, samples);
    let row = rows.next()?.ok()?;
    rows.next().is_none().then_some(row)
}

/// The fault in the mark that a test build leaves at the end of each line; none in an empty one.
fn fault(mark: &str) -> Option<Option<String>> {
    if mark.is_empty() {
        return Some(None);
    }
    let name = mark.strip_prefix(" [planted fault: ")?.strip_suffix(']')?;
    Some(Some(name.to_owned()))
}

/// Microseconds with three decimals, as nanoseconds.
fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    if part.len() != 3 {
        return None;
    }
    num::parse_dec(whole)?
        .checked_mul(1000)?
        .checked_add(num::parse_dec(part)?)
}

fn number(text: &str) -> Option<u32> {
    u32::try_from(num::parse_dec(text)?).ok()
}

#[cfg(test)]
mod tests {
    use abi::record::{People, Row};
    use abi::summary::Summary;

    use super::*;

    fn row(item: &str, index: u32) -> Row {
        let measurement = plan::rows(item, 1000).next().unwrap().unwrap();
        Row {
            index,
            measurement,
            summary: Summary {
                count: measurement.iterations,
                shortest: 15_340,
                highest: 2_216_120,
                sum: 17_950 * u64::from(measurement.iterations),
                early: 3,
                ..Summary::default()
            },
            ..Row::default()
        }
    }

    #[test]
    fn reads_what_the_module_writes() {
        for item in [
            "udelay:15us",
            "udelay:15us/irqoff",
            "usleep_range:15us..2ms/fifo:99@3*20",
            "none/preemptoff@65535",
            "none",
            "msleep:60s",
        ] {
            let row = row(item, 1);
            let line = read(
                &People {
                    row: &row,
                    rows: 14,
                }
                .to_string(),
            )
            .unwrap();
            assert_eq!(
                line,
                Line {
                    index: 1,
                    rows: 14,
                    measurement: row.measurement,
                    shortest: 15_340,
                    mean: 17_950,
                    highest: 2_216_120,
                    samples: row.measurement.iterations,
                    early: 3,
                    fault: None,
                },
                "{item}"
            );
        }
    }

    #[test]
    fn the_last_line_is_known() {
        assert!(is_end(
            "done: 3 of 3 rows measured; not loading is on purpose"
        ));
        assert!(is_end(
            "interrupted: 7 of 14 rows measured; not loading is on purpose"
        ));
        assert!(!is_end("done"));
        assert!(!is_end("[1/3] udelay 15 us: no samples"));
    }

    #[test]
    fn a_planted_fault_is_seen() {
        let row = row("udelay:15us", 1);
        let line = format!("{} [planted fault: long]", People { row: &row, rows: 2 });
        assert_eq!(read(&line).unwrap().fault.as_deref(), Some("long"));
        assert_eq!(read(&format!("{line} more")), None);
    }

    #[test]
    fn other_lines_are_none() {
        let row = row("udelay:15us", 1);
        let whole = People {
            row: &row,
            rows: 14,
        }
        .to_string();
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), None, "{}", &whole[..end]);
        }
        for other in [
            "loading out-of-tree module taints kernel.",
            "[2/14] udelay 15 us: no samples",
            "[0/14] none: shortest: 0.001 mean: 0.001 highest: 0.001 us (1 samples, 0 early)",
            "[3/2] none: shortest: 0.001 mean: 0.001 highest: 0.001 us (1 samples, 0 early)",
            "[1/2] lunch 1 h: shortest: 0.001 mean: 0.001 highest: 0.001 us (1 samples, 0 early)",
            "[1/2] none: shortest: 0.1 mean: 0.001 highest: 0.001 us (1 samples, 0 early)",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_lower_row_begins_another_run() {
        let line = |index, mean| Line {
            index,
            rows: 3,
            measurement: row("udelay:15us", 0).measurement,
            shortest: 1,
            mean,
            highest: 9,
            samples: 5,
            early: 0,
            fault: None,
        };
        let mut runs = Runs::default();
        for line in [line(0, 2), line(0, 2), line(2, 3), line(1, 4), line(0, 5)] {
            runs.add(line);
        }
        let rows: Vec<_> = runs.runs.into_iter().map(|lines| lines.rows).collect();
        assert_eq!(
            rows,
            [
                vec![line(0, 2), line(2, 3)],
                vec![line(1, 4)],
                vec![line(0, 5)]
            ]
        );
    }

    #[test]
    fn a_heading_begins_a_run_and_tells_the_kernel() {
        let text = "measuring 14 rows on Linux 7.3.4+deb13-amd64, HZ=250, 1 CPUs";
        let row = row("udelay:15us", 1);
        let line = People {
            row: &row,
            rows: 14,
        }
        .to_string();
        let mut runs = Runs::default();
        // A run that was lost but for its heading is none.
        for message in [
            text,
            text,
            &line,
            text,
            &line,
            &line,
            "measuring 14 rows",
            text,
        ] {
            runs.take(message);
        }
        let runs = runs.runs(|_| false);
        assert_eq!(runs.len(), 2);
        for run in runs {
            assert_eq!(
                run.environment.kernel_release.as_deref(),
                Some("7.3.4+deb13-amd64")
            );
            assert_eq!(
                (run.environment.hz, run.environment.cpus),
                (Some(250), Some(1))
            );
            assert_eq!(run.measurements.len(), 1);
        }
    }
}
