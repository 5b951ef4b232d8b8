// SPDX-License-Identifier: GPL-2.0

//! What tables of rows have in common: their look, and the cells that say which row it is.

use comfy_table::{CellAlignment, Table, presets};

use super::numbers;
use crate::result::Measurement;

/// A plain table; a column is its heading, and whether it holds numbers.
pub fn table<R>(columns: &[(&str, bool)], rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item = String>,
{
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(columns.iter().map(|(heading, _)| heading));
    for (column, (_, number)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        if *number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(
        rows.into_iter()
            .map(|row| row.into_iter().collect::<Vec<_>>()),
    );
    let mut lines: Vec<_> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    let width = lines.iter().map(|line| line.chars().count()).max();
    lines.insert(1.min(lines.len()), "-".repeat(width.unwrap_or(0)));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A row of the plan as people count, from 1.
pub fn place(row: &Measurement) -> u64 {
    u64::from(row.index) + 1
}

/// Place, function, request and context of a row.
pub fn identity(row: &Measurement) -> [String; 4] {
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
    ]
}
