// SPDX-License-Identifier: GPL-2.0

//! What the targets run: `fuzzed.rs` of xtask, which is a program and no library, so its files are compiled here too.

#![allow(dead_code, reason = "xtask uses the rest")]

#[path = "../xtask/src/clocks.rs"]
mod clocks;
#[path = "../xtask/src/compare.rs"]
mod compare;
#[path = "../xtask/src/fuzzed.rs"]
pub mod fuzzed;
#[path = "../xtask/src/log/mod.rs"]
mod log;
#[path = "../xtask/src/result.rs"]
mod result;
#[path = "../xtask/src/writers/mod.rs"]
mod writers;
