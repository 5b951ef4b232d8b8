// SPDX-License-Identifier: GPL-2.0

//! Writers: each turns a [`Run`] into one format.

use crate::result::Run;

/// A run for a person: what was measured on what, the table, and what stands out.
pub fn report(run: &Run) -> String {
    run.to_json()
}
