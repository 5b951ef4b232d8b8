// SPDX-License-Identifier: GPL-2.0

//! What the kernel module and its userland agree on: what may be measured, what a measurement yields, and how that
//! travels through the kernel log.
//!
//! The module compiles these files too (all but [`decode`] and [`mechanism`]), so they use no allocation, no floats, no `unsafe`, no
//! dependency, and only arithmetic that is safe on 32-bit machines inside a kernel: no division of 64-bit integers, no
//! formatting of them with `{}`, nothing that can panic. [`num`] has what is needed instead.

#![cfg_attr(not(test), no_std)]

pub mod decode;
pub mod mechanism;
pub mod num;
pub mod plan;
pub mod record;
pub mod summary;
