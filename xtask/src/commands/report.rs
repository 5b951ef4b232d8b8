// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask report`: shows saved results.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::result::Run;
use crate::ui::Ui;

/// What `report` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask vm --json a.json      measure, and save the result
  cargo xtask report a.json         show it again
  cargo xtask report a.json b.json  show several, one after the other")]
pub struct Options {
    /// Results, as `--json` wrote them
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
}

/// Shows each result.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options { results } = options;
    let runs = results
        .iter()
        .map(|path| read(path))
        .collect::<anyhow::Result<Vec<_>>>()?;
    super::deliver_all(&runs.iter().collect::<Vec<_>>(), ui)
}

/// Reads the result at `path`.
pub fn read(path: &Path) -> anyhow::Result<Run> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the result {}", path.display()))?;
    Run::from_json(&text).with_context(|| format!("cannot use the result {}", path.display()))
}
