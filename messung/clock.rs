// SPDX-License-Identifier: GPL-2.0

//! Time stamps.

use crate::abi::record::Clocks;
use crate::sys;

/// CLOCK_MONOTONIC in nanoseconds: the clock that samples are taken with.
#[inline(always)]
pub(crate) fn now() -> u64 {
    sys::ktime_get_ns()
}

/// CLOCK_REALTIME in nanoseconds, which tells runs apart.
pub(crate) fn wall() -> u64 {
    sys::ktime_get_real_ns()
}

/// All clocks, read one right after the other.
pub(crate) fn all() -> Clocks {
    Clocks {
        mono: sys::ktime_get_ns(),
        raw: sys::ktime_get_raw_ns(),
        boot: sys::ktime_get_boottime_ns(),
        ticks: sys::get_jiffies_64(),
    }
}
