// SPDX-License-Identifier: GPL-2.0

//! What the doctor found, for a person: what decides, and the table.

use super::rows;
use crate::doctor::{Finding, Report, State};

/// Headings; none holds numbers.
const COLUMNS: [(&str, bool); 3] = [("prerequisite", false), ("", false), ("why", false)];

/// The verdict, then each prerequisite.
pub fn report(report: &Report) -> String {
    let findings = report.findings.iter().map(cells);
    format!("{}\n{}", report.headline(), rows::table(&COLUMNS, findings))
}

fn cells(finding: &Finding) -> [String; COLUMNS.len()] {
    let state = match finding.state {
        State::Yes => "yes",
        // What is not needed has another way.
        State::No if finding.needed_for.is_empty() => "no, not needed",
        State::No => "NO",
        State::Unknown => "unknown",
    };
    let remedy = finding.remedy.as_ref().map(|remedy| {
        let indented = remedy.replace('\n', "\n   ");
        format!("\n-> {indented}")
    });
    [
        finding.name.to_owned(),
        state.to_owned(),
        finding.reason.clone() + &remedy.unwrap_or_default(),
    ]
}
