// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask test`: all that this repository promises, checked on this machine.
//!
//! The checks are data ([`Check`]): a name, what it needs of the machine, a function. They run one after the other, and go on
//! after a failure.

mod abort;
mod arm;
mod bench;
mod bundle;
mod delays;
mod doctor;
mod endurance;
mod guests;
mod harness;
mod memory;
mod mirror;
mod module;
mod pc;
mod refusals;
mod rules;
mod run;
mod sign;
mod speed;
mod userland;

use crate::event::{Event, Sink as _};
use crate::failure::{Class, Failure};
use crate::process::{Env, Interrupt};
use crate::ui::Ui;
use bench::Bench;
use harness::{Check, Tally};

/// What `test` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test              everything but what takes many minutes
  cargo xtask test --quick      all but the virtual machines
  cargo xtask test --long       even what takes many minutes
  cargo xtask test clippy       the checks with this word in their names")]
pub struct Options {
    /// Leave out what boots virtual machines
    #[arg(long)]
    quick: bool,
    /// Also what takes many minutes
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Only the checks with this in their names
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
}

/// All checks, the quick ones first.
fn checks() -> Vec<Check> {
    [
        userland::checks(),
        speed::checks(),
        rules::checks(),
        module::checks(),
        doctor::checks(),
        refusals::checks(),
        guests::checks(),
        delays::checks(),
        abort::checks(),
        endurance::checks(),
        arm::checks(),
        bundle::checks(),
        sign::checks(),
        // The last one leaves a machine running.
        pc::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Runs the checks, and fails unless there were some and all passed.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options {
        quick,
        long,
        filter,
    } = options;
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: ui,
        interrupt: &interrupt,
        slow_factor: 1.0,
    };
    let bench = Bench::new(env, quick, long)?;
    let mut tally = Tally::default();
    for check in checks() {
        if filter
            .as_ref()
            .is_some_and(|filter| !check.name.contains(filter))
        {
            continue;
        }
        ui.emit(Event::Step(check.name.clone()));
        let report = harness::run(&check, &bench);
        // Whatever failed meanwhile, it failed because of that.
        interrupt.check()?;
        ui.print(&report.line())?;
        tally.count(&report);
    }
    ui.print(&tally.line())?;
    tally
        .verdict()
        .map_err(|why| Failure::error(Class::NotMeasured, why))
}
