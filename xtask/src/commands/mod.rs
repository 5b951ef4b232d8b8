// SPDX-License-Identifier: GPL-2.0

//! The command line: one file a subcommand, each with its `Options` and its `run`.

mod build;
mod clean;
mod compare;
mod parse;
mod plan;
mod report;
mod test;
mod vm;

use crate::failure::{Class, Failure};
use crate::result::Run;
use crate::ui::Ui;
use crate::writers::{self, json};

/// Measures how long the Linux kernel's delay and sleep functions really take.
#[derive(clap::Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 100
)]
pub struct Arguments {
    /// Show the commands that are run, ready to paste, and what they print
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Build messung.ko for a stock kernel, and prove that it fits
    Build(build::Options),
    /// Tell how two results differ
    Compare(compare::Options),
    /// Remove everything that was downloaded and built
    Clean(clean::Options),
    /// Read a kernel log that holds a run, and report as `vm` does
    Parse(parse::Options),
    /// Show results that were saved as JSON
    Report(report::Options),
    /// Check this repository: style, tests, the module, real virtual machines
    Test(test::Options),
    /// Measure a stock kernel in a virtual machine
    Vm(vm::Options),
}

impl Command {
    /// Carries the subcommand out.
    pub fn run(self, ui: &Ui) -> anyhow::Result<()> {
        match self {
            Self::Build(options) => build::run(options, ui),
            Self::Compare(options) => compare::run(options, ui),
            Self::Clean(options) => clean::run(options, ui),
            Self::Parse(options) => parse::run(options, ui),
            Self::Report(options) => report::run(options, ui),
            Self::Test(options) => test::run(options, ui),
            Self::Vm(options) => vm::run(options, ui),
        }
    }
}

/// Shows a run, saves it where asked, and fails if it is not complete: its rows are worth seeing all the same.
fn deliver(run: &Run, json: Option<json::Output>, ui: &Ui) -> anyhow::Result<()> {
    if let Some(json) = json {
        json.write(run)?;
    }
    deliver_all(&[run], ui)
}

/// Shows runs, and fails if one of them is not complete.
fn deliver_all(runs: &[&Run], ui: &Ui) -> anyhow::Result<()> {
    for (index, run) in runs.iter().enumerate() {
        if index > 0 {
            ui.print("\n")?;
        }
        ui.print(&writers::report(run))?;
    }
    match runs.iter().find(|run| !run.complete) {
        None => Ok(()),
        Some(run) => Err(Failure::error(
            Class::NotMeasured,
            format!(
                "{} is not complete: {}",
                writers::name(run),
                run.warnings
                    .first()
                    .map_or("it does not say why", String::as_str)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_subcommand_ends_its_help_with_examples() {
        let command = super::Arguments::command();
        command.clone().debug_assert();
        for subcommand in command.get_subcommands() {
            let examples = subcommand.get_after_help().map(ToString::to_string);
            assert!(
                examples.is_some_and(|text| text.starts_with("Examples:\n")),
                "{} has no examples",
                subcommand.get_name()
            );
        }
    }
}
