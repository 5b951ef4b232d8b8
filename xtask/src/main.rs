// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask`: builds messung.ko, runs it in a virtual machine or on this machine, and reports.
//!
//! Built three times: for a developer's machine, with the feature `report` alone for a machine that only measures (a board), and
//! with no feature as the init of a guest.

#![allow(
    unreachable_pub,
    reason = "`pub` marks what other modules use; a program exports nothing"
)]
#![cfg_attr(
    not(feature = "host"),
    allow(
        dead_code,
        reason = "a board and a guest use a part of each module only"
    )
)]

#[cfg(feature = "host")]
mod cache;
mod clocks;
#[cfg(feature = "report")]
mod commands;
#[cfg(feature = "report")]
mod compare;
#[cfg(feature = "host")]
mod doctor;
mod event;
mod failure;
#[cfg(all(test, feature = "report"))]
mod fuzzed;
mod guest;
mod insert;
#[cfg(feature = "host")]
mod kernel;
mod log;
#[cfg(feature = "report")]
mod process;
mod result;
#[cfg(feature = "report")]
mod ui;
mod vm;
#[cfg(feature = "report")]
mod writers;

use std::process::ExitCode;

/// How this program is started: by cargo on a developer's machine.
pub const PROGRAM: &str = if cfg!(feature = "host") {
    "cargo xtask"
} else {
    "./xtask"
};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == insert::SUBCOMMAND => return insert::child(rest),
        #[cfg(feature = "report")]
        Some((first, rest)) if first == insert::step::SUBCOMMAND => {
            return insert::step::child(rest);
        }
        Some((first, [])) if first == guest::neighbour::SUBCOMMAND => {
            return guest::neighbour::child();
        }
        _ => {}
    }
    if guest::is_init() {
        return guest::run();
    }
    #[cfg(feature = "report")]
    return command_line();
    #[cfg(not(feature = "report"))]
    ExitCode::FAILURE
}

/// The program as a person types it.
#[cfg(feature = "report")]
fn command_line() -> ExitCode {
    let commands::Arguments { verbose, command } = commands::arguments();
    let ui = ui::Ui::new(verbose);
    let outcome = command.run(&ui);
    ui.rest();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui.error(&error);
            ExitCode::from(failure::Failure::class_of(&error).exit_status())
        }
    }
}
