// SPDX-License-Identifier: GPL-2.0

//! See [`fuzz::fuzzed::packed`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::fuzzed::packed(bytes));
