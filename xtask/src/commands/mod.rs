// SPDX-License-Identifier: GPL-2.0

//! The command line: one file a subcommand, each with its `Options` and its `run`.

mod report;

use crate::ui::Ui;

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
    /// Show results that were saved as JSON
    Report(report::Options),
}

impl Command {
    /// Carries the subcommand out.
    pub fn run(self, ui: &Ui) -> anyhow::Result<()> {
        match self {
            Self::Report(options) => report::run(options, ui),
        }
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
