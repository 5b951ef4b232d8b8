// SPDX-License-Identifier: GPL-2.0

//! Reads the lines for people:
//! `[2/14] udelay 15 us, irqoff: shortest: 15.340 mean: 15.340 highest: 15.340 us (1000 samples, 0 early)`.

use abi::num;
use abi::plan::{self, Measurement};

/// What such a line carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Place in the plan, from 0.
    pub index: u32,
    /// Rows of the plan.
    pub rows: u32,
    /// What was measured. The samples taken stand for the iterations, which the line does not tell.
    pub measurement: Measurement,
    /// Shortest elapsed time in nanoseconds.
    pub shortest: u64,
    /// Mean elapsed time.
    pub mean: u64,
    /// Highest elapsed time.
    pub highest: u64,
    /// Samples taken.
    pub samples: u32,
    /// Samples below the floor.
    pub early: u32,
    /// Name of the fault that was planted in a test build.
    pub fault: Option<String>,
}

/// Reads a message, `messung: ` taken off. Anything else than a whole line with samples is none.
pub fn read(message: &str) -> Option<Line> {
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

/// Adds a line to the last run, or begins another: runs count their rows upwards. The same line again is the same row.
pub fn add(runs: &mut Vec<Vec<Line>>, line: Line) {
    if runs.last().is_some_and(|run| run.contains(&line)) {
        return;
    }
    match runs.last_mut() {
        Some(run)
            if run
                .last()
                .is_some_and(|last| last.rows == line.rows && last.index < line.index) =>
        {
            run.push(line);
        }
        _ => runs.push(vec![line]),
    }
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
        let mut runs = Vec::new();
        for line in [line(0, 2), line(0, 2), line(2, 3), line(1, 4), line(0, 5)] {
            add(&mut runs, line);
        }
        assert_eq!(
            runs,
            [
                vec![line(0, 2), line(2, 3)],
                vec![line(1, 4)],
                vec![line(0, 5)]
            ]
        );
    }
}
