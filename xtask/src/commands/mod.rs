// SPDX-License-Identifier: GPL-2.0

//! The command line: one file a subcommand, each with its `Options` and its `run`.

#[cfg(feature = "host")]
mod build;
#[cfg(feature = "host")]
mod bundle;
#[cfg(feature = "host")]
mod clean;
mod compare;
#[cfg(feature = "host")]
mod doctor;
mod parse;
mod plan;
mod report;
mod run;
#[cfg(feature = "host")]
mod test;
#[cfg(feature = "host")]
mod vm;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::PROGRAM;
use crate::failure::{Class, Failure};
use crate::result::{Platform, Run};
use crate::ui::Ui;
use crate::writers::{self, json};

/// The command line, understood; else the program ends with help or a reason.
pub fn arguments() -> Arguments {
    let matches = command().get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// All subcommands, with examples that can be typed here; they are written for a developer's machine.
fn command() -> clap::Command {
    Arguments::command().mut_subcommands(|subcommand| {
        let examples = subcommand
            .get_after_help()
            .map(|text| text.to_string().replace("cargo xtask", PROGRAM));
        match examples {
            Some(examples) => subcommand.after_help(examples),
            None => subcommand,
        }
    })
}

/// Measures how long the Linux kernel's delay and sleep functions really take.
#[derive(clap::Parser)]
#[command(
    name = "xtask",
    bin_name = PROGRAM,
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
    #[cfg(feature = "host")]
    /// Build messung.ko for a stock kernel, and prove that it fits
    Build(build::Options),
    /// Pack what a real machine needs to measure a stock kernel
    #[cfg(feature = "host")]
    Bundle(bundle::Options),
    /// Tell how two results differ
    Compare(compare::Options),
    #[cfg(feature = "host")]
    /// Remove everything that was downloaded and built
    Clean(clean::Options),
    #[cfg(feature = "host")]
    /// Tell what this machine has and lacks for measuring, and what mends it
    Doctor(doctor::Options),
    /// Read a kernel log that holds a run, and report as `vm` does
    Parse(parse::Options),
    /// Show results that were saved as JSON
    Report(report::Options),
    /// Measure the running kernel of this machine
    Run(run::Options),
    #[cfg(feature = "host")]
    /// Check this repository: style, tests, the module, real virtual machines
    Test(test::Options),
    #[cfg(feature = "host")]
    /// Measure a stock kernel in a virtual machine
    Vm(vm::Options),
}

impl Command {
    /// Carries the subcommand out.
    pub fn run(self, ui: &Ui) -> anyhow::Result<()> {
        match self {
            #[cfg(feature = "host")]
            Self::Build(options) => build::run(options, ui),
            #[cfg(feature = "host")]
            Self::Bundle(options) => bundle::run(options, ui),
            Self::Compare(options) => compare::run(options, ui),
            #[cfg(feature = "host")]
            Self::Clean(options) => clean::run(options, ui),
            #[cfg(feature = "host")]
            Self::Doctor(options) => doctor::run(options, ui),
            Self::Parse(options) => parse::run(options, ui),
            Self::Report(options) => report::run(options, ui),
            Self::Run(options) => run::run(options, ui),
            #[cfg(feature = "host")]
            Self::Test(options) => test::run(options, ui),
            #[cfg(feature = "host")]
            Self::Vm(options) => vm::run(options, ui),
        }
    }
}

/// A run with what its log does not tell. What makes it incomplete comes first among its warnings.
fn complete(mut run: Run, platform: Platform, problems: Vec<String>, warnings: Vec<String>) -> Run {
    run.platform = Some(platform);
    run.complete &= problems.is_empty();
    run.warnings = problems
        .into_iter()
        .chain(run.warnings)
        .chain(warnings)
        .collect();
    run
}

/// The last of the kernel's messages, as the end of an error.
fn kernel_said<'a>(messages: impl Iterator<Item = &'a str>) -> String {
    let messages: Vec<_> = messages.collect();
    let last = &messages[messages.len().saturating_sub(5)..];
    if last.is_empty() {
        return String::new();
    }
    last.iter()
        .fold("\nthe kernel said:".to_owned(), |text, line| {
            text + "\n  " + line
        })
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
    #[test]
    fn every_subcommand_ends_its_help_with_examples() {
        let command = super::command();
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
