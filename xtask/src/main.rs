// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask`: builds messung.ko, runs it in a virtual machine or on this machine, and reports.
//!
//! Built twice: for a developer's machine, and (without the feature `host`) as the init of a guest.

#![allow(
    unreachable_pub,
    reason = "`pub` marks what other modules use; a program exports nothing"
)]
#![cfg_attr(
    not(feature = "host"),
    allow(dead_code, reason = "a guest uses a part of each module only")
)]

#[cfg(feature = "host")]
mod cache;
#[cfg(feature = "host")]
mod commands;
#[cfg(feature = "host")]
mod compare;
mod event;
mod failure;
mod guest;
mod insert;
#[cfg(feature = "host")]
mod kernel;
mod log;
#[cfg(feature = "host")]
mod process;
mod result;
mod ui;
mod vm;
#[cfg(feature = "host")]
mod writers;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == insert::SUBCOMMAND)
    {
        return insert::child(&arguments.collect::<Vec<_>>());
    }
    if guest::is_init() {
        return guest::run();
    }
    #[cfg(feature = "host")]
    return host();
    #[cfg(not(feature = "host"))]
    ExitCode::FAILURE
}

/// The program on a developer's machine.
#[cfg(feature = "host")]
fn host() -> ExitCode {
    let commands::Arguments { verbose, command } = clap::Parser::parse();
    let ui = ui::Ui::new(verbose);
    let outcome = command.run(&ui);
    ui.finish();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui.error(&error);
            ExitCode::from(failure::Failure::class_of(&error).exit_status())
        }
    }
}
