// SPDX-License-Identifier: GPL-2.0

//! Writers: each turns a [`Run`] into one format.

pub mod comparison;
#[cfg(feature = "host")]
pub mod doctor;
mod findings;
pub mod functions;
mod header;
pub mod json;
mod numbers;
mod rows;
mod table;

use crate::result::{Measurement, Run};

/// A run for a person: what was measured on what, what to beware of, the table, and what stands out.
pub fn report(run: &Run) -> String {
    let mut text = header::header(run);
    for doubt in doubts(run) {
        text.push_str(&doubt);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&table::table(run));
    let findings = findings::findings(run);
    if !findings.is_empty() {
        text.push('\n');
    }
    for finding in findings {
        text.push_str(&finding);
        text.push('\n');
    }
    text
}

/// Measured minus requested, of the mean.
fn error_of_mean(row: &Measurement) -> Option<i128> {
    Some(i128::from(row.mean_ns?) - i128::from(row.requested_ns))
}

/// A run in half a sentence: `run 7 (started 2026-11-30 22:00:01 UTC)`.
pub fn name(run: &Run) -> String {
    match run.run.stamp {
        0 => "a run of unknown start".to_owned(),
        stamp => format!("run {} (started {})", run.run.id, numbers::utc(stamp)),
    }
}

/// What a reader must know before the numbers.
fn doubts(run: &Run) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Some(fault) = &run.fault {
        doubts.push(format!(
            "TEST BUILD: the fault {fault:?} is planted, the numbers are wrong on purpose"
        ));
    }
    if !run.complete {
        doubts.push("INCOMPLETE: some of this run is missing, or not known to be there".to_owned());
    }
    doubts.extend(
        run.warnings
            .iter()
            .map(|warning| format!("WARNING: {warning}")),
    );
    doubts.extend(
        run.disturbances
            .iter()
            .map(|disturbance| format!("DISTURBED: {disturbance}")),
    );
    doubts
}

#[cfg(test)]
pub mod tests;
