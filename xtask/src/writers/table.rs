// SPDX-License-Identifier: GPL-2.0

//! The table of rows, plain text.

use comfy_table::{CellAlignment, Table, TableComponent, presets};

use super::numbers;
use crate::result::Measurement;
use crate::result::Run;

/// The columns: heading, and whether it holds numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("#", true),
    ("function", false),
    ("requested", true),
    ("context", false),
    ("shortest us", true),
    ("mean us", true),
    ("highest us", true),
    ("error us", true),
    ("error %", true),
    ("early", true),
    ("samples", true),
];

/// One line a measurement; the error is that of the mean.
pub fn table(run: &Run) -> String {
    if run.measurements.is_empty() {
        return "(no rows)\n".to_owned();
    }
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '-')
        .set_header(COLUMNS.map(|(heading, _)| heading));
    for (column, (_, number)) in table.column_iter_mut().zip(COLUMNS) {
        column.set_padding((0, 2));
        if number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(run.measurements.iter().map(cells));
    let mut text: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    for row in &run.measurements {
        for flag in &row.flags {
            text.push_str(&format!("row {}: {flag}\n", place(row)));
        }
    }
    text
}

/// A row of the plan as people count, from 1.
fn place(row: &Measurement) -> u64 {
    u64::from(row.index) + 1
}

/// The cells of a row. What was not measured is a dash.
fn cells(row: &Measurement) -> [String; COLUMNS.len()] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let us = |ns: Option<u64>| or_dash(ns.map(numbers::us));
    let error = super::error_of_mean(row);
    [
        place(row).to_string(),
        row.function.clone(),
        numbers::range(
            row.requested_ns,
            row.requested_max_ns.unwrap_or(row.requested_ns),
        ),
        match row.cpu {
            Some(cpu) => format!("{} @{cpu}", row.context),
            None => row.context.clone(),
        },
        us(row.shortest_ns),
        us(row.mean_ns),
        us(row.highest_ns),
        or_dash(error.map(numbers::signed_us)),
        or_dash(error.and_then(|error| numbers::percent(error, row.requested_ns))),
        or_dash(row.early.map(|early| early.count.to_string())),
        if row.count == row.iterations {
            row.count.to_string()
        } else {
            format!("{} of {}", row.count, row.iterations)
        },
    ]
}
