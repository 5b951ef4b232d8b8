// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask`: builds messung.ko, runs it in a virtual machine or on this machine, and reports.

mod event;
mod failure;
mod result;

fn main() {}
