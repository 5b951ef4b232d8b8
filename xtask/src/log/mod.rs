// SPDX-License-Identifier: GPL-2.0

//! From any kernel log to runs: `unpack` undoes compression, [`stream`] finds our lines, [`prefix`] takes off what others put before them,
//! [`assemble`] makes runs of them. `tail` reads a log that grows, `follow` tells of its runs as they come. [`kmsg`] reads the running kernel's log, [`environment`] adds what it does not tell.

pub mod assemble;
mod distribution;
pub mod environment;
#[cfg(feature = "report")]
pub mod follow;
pub mod kmsg;
pub mod people;
pub mod prefix;
pub mod stream;
#[cfg(feature = "report")]
pub mod tail;
#[cfg(feature = "report")]
pub mod unpack;
mod verdict;

#[cfg(all(test, feature = "report"))]
mod tests;
