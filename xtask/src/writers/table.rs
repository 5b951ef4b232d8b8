// SPDX-License-Identifier: GPL-2.0

//! The table of rows, plain text.

use super::numbers;
use super::rows::{self, place};
use crate::result::{Measurement, Run, State};

/// A column: heading, whether it holds numbers, and what it shows of a row.
type Column = (&'static str, bool, fn(&Measurement) -> String);

/// What each table shows after which row it is.
const NUMBERS: [Column; 6] = [
    ("shortest us", true, |row| us(row.shortest_ns)),
    ("mean us", true, |row| us(row.mean_ns)),
    ("highest us", true, |row| us(row.highest_ns)),
    ("error us", true, |row| {
        or_dash(super::error_of_mean(row).map(numbers::signed_us))
    }),
    ("error %", true, |row| {
        or_dash(
            super::error_of_mean(row).and_then(|error| numbers::percent(error, row.requested_ns)),
        )
    }),
    ("early", true, |row| {
        or_dash(row.early.map(|early| early.count.to_string()))
    }),
];

/// Where rows have different numbers of samples.
const SAMPLES: Column = ("samples", true, |row| {
    if row.count == row.iterations {
        row.count.to_string()
    } else {
        format!("{} of {}", row.count, row.iterations)
    }
});

/// Where rows were judged.
const VERDICT: Column = ("verdict", false, |row| {
    row.verdict
        .as_ref()
        .map_or("", |verdict| word(verdict.state))
        .to_owned()
});

/// A finding in a word; a kept promise is none.
fn word(state: State) -> &'static str {
    match state {
        State::Kept => "",
        State::Early => "early",
        State::Late => "late",
        State::ExceedsDocument => "> doc",
    }
}

/// One line a measurement; the error is that of the mean.
pub fn table(run: &Run) -> String {
    if run.measurements.is_empty() {
        return "(no rows)\n".to_owned();
    }
    let columns = columns(&run.measurements);
    let headings: Vec<_> = [
        ("#", true),
        ("function", false),
        ("requested", true),
        ("context", false),
    ]
    .into_iter()
    .chain(
        columns
            .iter()
            .map(|(heading, number, _)| (*heading, *number)),
    )
    .collect();
    let mut text = rows::table(
        &headings,
        run.measurements.iter().map(|row| {
            let cells = columns.iter().map(move |(_, _, cell)| cell(row));
            rows::identity(row).into_iter().chain(cells)
        }),
    );
    for row in &run.measurements {
        for flag in &row.flags {
            text.push_str(&format!("row {}: {flag}\n", place(row)));
        }
    }
    text
}

/// The columns that tell something that the header does not: it names the iterations where all rows have the same.
fn columns(rows: &[Measurement]) -> Vec<Column> {
    let iterations = rows.first().map(|row| row.iterations);
    let all_taken = rows
        .iter()
        .all(|row| row.count == row.iterations && Some(row.iterations) == iterations);
    let judged = rows.iter().any(|row| row.verdict.is_some());
    NUMBERS
        .into_iter()
        .chain((!all_taken).then_some(SAMPLES))
        .chain(judged.then_some(VERDICT))
        .collect()
}

/// What was not measured is a dash.
fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn us(ns: Option<u64>) -> String {
    or_dash(ns.map(numbers::us))
}
