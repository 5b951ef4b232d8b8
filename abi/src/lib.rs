// SPDX-License-Identifier: GPL-2.0

//! What the kernel module and its userland agree on.
//!
//! The module compiles these files too, so they use no allocation, no floats, no `unsafe`, no dependency, and only
//! arithmetic that is safe on 32-bit machines inside a kernel: no division of 64-bit integers, no formatting of them
//! with `{}`. [`num`] has what is needed instead.

#![no_std]
