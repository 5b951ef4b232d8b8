// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask doctor`: what this machine has and lacks for measuring.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::doctor::{self, Way};
use crate::event::{Event, Sink as _};
use crate::failure::{Class, Failure};
use crate::process::{Env, Interrupt};
use crate::ui::Ui;
use crate::writers;

/// What `doctor` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask doctor                      what measuring here takes, and what mends it
  cargo xtask doctor --for vm             succeed where cargo xtask vm can work
  cargo xtask doctor --kdir ~/linux/out   look at a kernel folder of your own
  cargo xtask doctor --json               the same for programs

The exit status is 1 where a prerequisite is missing, that is: \"no\", of what --for names. Without --for that is building the
module for the running kernel and inserting it; a machine that can only run virtual machines so has status 1. What is
unknown, or not needed since there is another way, is no failure.")]
pub struct Options {
    /// What the exit status is about
    #[arg(long = "for", value_name = "WAY", value_enum)]
    way: Option<Way>,
    /// A kernel folder, instead of that of the running kernel
    #[arg(long, value_name = "DIR")]
    kdir: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Examines, shows, and judges.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options { way, kdir, json } = options;
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: ui,
        interrupt: &interrupt,
        slow_factor: 1.0,
    };
    let kdir = kdir
        .map(|kdir| {
            std::path::absolute(&kdir)
                .with_context(|| format!("cannot find the kernel folder {}", kdir.display()))
        })
        .transpose()?;
    ui.emit(Event::Step("looking at this machine".to_owned()));
    let report = doctor::examine(&env, kdir.as_deref())?;
    ui.rest();
    if json {
        let text = serde_json::to_string_pretty(&report).context("cannot write JSON")?;
        ui.print(&(text + "\n"))?;
    } else {
        ui.print(&writers::doctor::report(&report))?;
    }
    let ways = way.map_or(vec![Way::Insert, Way::Build], |way| vec![way]);
    match doctor::obstacle(&report.findings, &ways) {
        None => Ok(()),
        Some(finding) => Err(Failure::error(
            Class::NotMeasured,
            format!("{} is missing: {}", finding.name, finding.reason),
        )),
    }
}
