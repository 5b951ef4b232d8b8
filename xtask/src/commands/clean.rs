// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask clean`: frees the cache.

use crate::{
    cache::{Cache, megabytes},
    process::{Env, Interrupt},
    ui::Ui,
};

/// What `clean` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask clean    remove build roots, kernels and modules; all of it can be made again")]
pub struct Options {}

/// Removes everything in the cache, and says how much that was.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options {} = options;
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: ui,
        interrupt: &interrupt,
        slow_factor: 1.0,
    };
    let cache = Cache::open(&env)?;
    let folder = cache.join("").display().to_string();
    let freed = cache.clean(&env)?;
    ui.print(&format!("freed {} in {folder}\n", megabytes(freed)))
}
