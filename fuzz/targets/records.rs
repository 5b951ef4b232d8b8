// SPDX-License-Identifier: GPL-2.0

//! See [`fuzz::fuzzed::records`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::fuzzed::records(bytes));
