// SPDX-License-Identifier: GPL-2.0

//! The functions under test.

use crate::abi::num;
use crate::abi::plan::Function;
use crate::abi::plan::Measurement;
use crate::abi::plan::MICROSECOND;
use crate::abi::plan::MILLISECOND;
use crate::abi::plan::SECOND;
use crate::clock;
use crate::fault;
use crate::sys;
use kernel::prelude::*;

/// A call with its argument made ready. The loop around it is compiled once for each implementation, since a call
/// through a pointer would cost more than some delays last.
pub(crate) trait Delay {
    /// Waits.
    fn wait(&self);

    /// The time stamp that ends a sample: now, unless the function took it itself.
    #[inline(always)]
    fn end(&self) -> u64 {
        clock::now()
    }
}

/// Something to do with the call that a measurement asks for.
pub(crate) trait Use {
    /// What comes out.
    type Output;
    /// Does it.
    fn with<D: Delay>(self, delay: D) -> Self::Output;
}

/// A function and its arguments.
macro_rules! delay {
    ($name:ident($($argument:ident: $type:ty),*) => $call:expr) => {
        pub(crate) struct $name($($type),*);

        impl Delay for $name {
            #[inline(always)]
            fn wait(&self) {
                let Self($($argument),*) = *self;
                $call
            }
        }
    };
}

delay!(Ndelay(nsecs: sys::CULong) => sys::ndelay(nsecs));
delay!(Udelay(usecs: sys::CULong) => sys::udelay(usecs));
delay!(Mdelay(msecs: sys::CULong) => sys::mdelay(msecs));
delay!(UsleepRange(min: sys::CULong, max: sys::CULong) => sys::usleep_range(min, max));
delay!(Msleep(msecs: u32) => sys::msleep(msecs));
delay!(MsleepInterruptible(msecs: u32) => sys::msleep_interruptible(msecs));
delay!(Fsleep(usecs: sys::CULong) => sys::fsleep(usecs));
delay!(ScheduleTimeout(ticks: sys::CLong) => sys::schedule_timeout(ticks));
delay!(ScheduleHrtimeout(nsecs: i64) => sys::schedule_hrtimeout(nsecs));
delay!(Nothing() => ());

struct UdelayConst<const USECS: u32>;

impl<const USECS: u32> Delay for UdelayConst<USECS> {
    #[inline(always)]
    fn wait(&self) {
        sys::udelay_const::<USECS>();
    }
}

struct NdelayConst<const NSECS: u32>;

impl<const NSECS: u32> Delay for NdelayConst<NSECS> {
    #[inline(always)]
    fn wait(&self) {
        sys::ndelay_const::<NSECS>();
    }
}

struct Hrtimer {
    timer: sys::OneShot,
    nsecs: i64,
}

impl Delay for Hrtimer {
    #[inline(always)]
    fn wait(&self) {
        self.timer.wait(self.nsecs);
    }

    /// The callback's own stamp: what comes after it, waking the task, is not the timer's.
    #[inline(always)]
    fn end(&self) -> u64 {
        self.timer.fired()
    }
}

/// Makes the measurement's call ready and hands it on.
///
/// # Errors
///
/// `EINVAL` for a constant that is not built in, `ENOMEM`.
pub(crate) fn with<U: Use>(measurement: &Measurement, use_: U) -> Result<U::Output> {
    let use_ = fault::Planted(use_);
    let (request, request_max) = fault::altered(measurement);
    let usecs = num::div(request, MICROSECOND).0;
    let msecs = num::div(request, MILLISECOND).0;

    // Requests are at most a minute, which fits a long of 32 bits in microseconds; with nanoseconds only functions
    // that take 64 bits are asked for more than 20 us.
    Ok(match measurement.function {
        Function::Ndelay => use_.with(Ndelay(request as sys::CULong)),
        Function::NdelayConst => match request {
            100 => use_.with(NdelayConst::<100>),
            200 => use_.with(NdelayConst::<200>),
            500 => use_.with(NdelayConst::<500>),
            1000 => use_.with(NdelayConst::<1000>),
            2000 => use_.with(NdelayConst::<2000>),
            5000 => use_.with(NdelayConst::<5000>),
            10_000 => use_.with(NdelayConst::<10000>),
            // Only a planted fault asks for something else.
            _ => use_.with(Ndelay(request as sys::CULong)),
        },
        Function::Udelay => use_.with(Udelay(usecs as sys::CULong)),
        Function::UdelayConst => match usecs {
            1 => use_.with(UdelayConst::<1>),
            2 => use_.with(UdelayConst::<2>),
            5 => use_.with(UdelayConst::<5>),
            10 => use_.with(UdelayConst::<10>),
            15 => use_.with(UdelayConst::<15>),
            20 => use_.with(UdelayConst::<20>),
            50 => use_.with(UdelayConst::<50>),
            100 => use_.with(UdelayConst::<100>),
            500 => use_.with(UdelayConst::<500>),
            1000 => use_.with(UdelayConst::<1000>),
            _ => use_.with(Udelay(usecs as sys::CULong)),
        },
        Function::Mdelay => use_.with(Mdelay(msecs as sys::CULong)),
        Function::UsleepRange => use_.with(UsleepRange(
            usecs as sys::CULong,
            num::div(request_max, MICROSECOND).0 as sys::CULong,
        )),
        Function::Msleep => use_.with(Msleep(msecs as u32)),
        Function::MsleepInterruptible => use_.with(MsleepInterruptible(msecs as u32)),
        Function::Fsleep => use_.with(Fsleep(usecs as sys::CULong)),
        Function::ScheduleTimeout => use_.with(ScheduleTimeout(ticks(request))),
        Function::ScheduleHrtimeout => use_.with(ScheduleHrtimeout(request as i64)),
        Function::Hrtimer => use_.with(Hrtimer {
            timer: sys::OneShot::new()?,
            nsecs: request as i64,
        }),
        Function::None => use_.with(Nothing()),
    })
}

/// A request in ticks, rounded up.
fn ticks(request: u64) -> sys::CLong {
    let (whole, rest) = num::div(request.wrapping_mul(u64::from(sys::hz())), SECOND);
    (whole as sys::CLong).wrapping_add(sys::CLong::from(rest != 0))
}
