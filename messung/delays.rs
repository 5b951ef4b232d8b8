// SPDX-License-Identifier: GPL-2.0

//! The functions under test.

use crate::abi::num;
use crate::abi::plan::Function;
use crate::abi::plan::Measurement;
use crate::abi::plan::MICROSECOND;
use crate::abi::plan::MILLISECOND;
use crate::sys;

/// A call with its argument made ready. The loop around it is compiled once for each implementation, since a call
/// through a pointer would cost more than some delays last.
pub(crate) trait Delay {
    /// Waits.
    fn wait(&self);
}

/// Something to do with the call that a measurement asks for.
pub(crate) trait Use {
    /// What comes out.
    type Output;
    /// Does it.
    fn with<D: Delay>(self, delay: D) -> Self::Output;
}

struct Udelay(sys::CULong);

impl Delay for Udelay {
    #[inline(always)]
    fn wait(&self) {
        sys::udelay(self.0);
    }
}

struct UsleepRange(sys::CULong, sys::CULong);

impl Delay for UsleepRange {
    #[inline(always)]
    fn wait(&self) {
        sys::usleep_range(self.0, self.1);
    }
}

struct Msleep(u32);

impl Delay for Msleep {
    #[inline(always)]
    fn wait(&self) {
        sys::msleep(self.0);
    }
}

struct Nothing;

impl Delay for Nothing {
    #[inline(always)]
    fn wait(&self) {}
}

/// Makes the measurement's call ready and hands it on. `None` where this build does not have the function.
pub(crate) fn with<U: Use>(measurement: &Measurement, use_: U) -> Option<U::Output> {
    // Requests are multiples of the unit, and at most a minute, which fits a long of 32 bits in microseconds.
    let in_units = |request: u64, unit: u64| num::div(request, unit).0;
    let request = measurement.request;
    Some(match measurement.function {
        Function::Udelay => use_.with(Udelay(in_units(request, MICROSECOND) as sys::CULong)),
        Function::UsleepRange => use_.with(UsleepRange(
            in_units(request, MICROSECOND) as sys::CULong,
            in_units(measurement.request_max, MICROSECOND) as sys::CULong,
        )),
        Function::Msleep => use_.with(Msleep(in_units(request, MILLISECOND) as u32)),
        Function::None => use_.with(Nothing),
        _ => return None,
    })
}
