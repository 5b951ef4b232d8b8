// SPDX-License-Identifier: GPL-2.0

//! From any kernel log to runs: [`stream`] finds our lines, [`prefix`] takes off what others put before them,
//! [`assemble`] makes runs of them.

pub mod assemble;
mod distribution;
mod people;
pub mod prefix;
pub mod stream;
mod verdict;

#[cfg(test)]
mod tests;
