// SPDX-License-Identifier: GPL-2.0

//! See [`fuzz::fuzzed::plan`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::fuzzed::plan(bytes));
