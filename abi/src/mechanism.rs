// SPDX-License-Identifier: GPL-2.0

//! What a function's implementation must yield, what its document promises, and how long a plan takes.
//!
//! Kernel files as of Linux 7.3. Only userland judges, so the module does without this.

use super::num;
use super::plan::{Cpu, Error, Function, Measurement, MICROSECOND, MILLISECOND, SECOND};

/// Length of a tick in nanoseconds. An HZ of 0 counts as 1.
pub const fn tick(hz: u32) -> u64 {
    num::div(SECOND, if hz == 0 { 1 } else { hz as u64 }).0
}

/// Granularity of the timer wheel in ticks for a timer that many ticks away (`LVL_START` and `LVL_GRAN` of
/// kernel/time/timer.c): 1 below 63 ticks, 8 below 504, and so on.
pub const fn wheel_granularity(ticks: u64) -> u64 {
    let mut start = 63;
    let mut granularity = 1;
    // The wheel has 9 levels at HZ above 100, 8 else; a minute needs 5 of them.
    while ticks >= start && granularity < 1 << 24 {
        start <<= 3;
        granularity <<= 3;
    }
    granularity
}

/// How a function comes by the end of its wait, for one request on one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Loops, counting or reading a counter.
    Busy,
    /// A timer of high resolution wakes it.
    Hrtimer,
    /// The timer wheel wakes it.
    Wheel {
        /// The request in ticks, rounded up.
        ticks: u64,
        /// See [`wheel_granularity`].
        granularity: u64,
    },
    /// Nothing is waited for.
    Nothing,
}

/// The mechanism of a measurement. `fsleep()` chooses by the length of the request: see include/linux/delay.h.
pub fn mechanism(measurement: &Measurement, hz: u32) -> Mechanism {
    let wheel = |request: u64| {
        let (whole, rest) = num::div(request, tick(hz));
        let ticks = whole.wrapping_add(u64::from(rest != 0));
        Mechanism::Wheel {
            ticks,
            granularity: wheel_granularity(ticks),
        }
    };
    match measurement.function {
        Function::Ndelay
        | Function::NdelayConst
        | Function::Udelay
        | Function::UdelayConst
        | Function::Mdelay => Mechanism::Busy,
        Function::UsleepRange | Function::ScheduleHrtimeout | Function::Hrtimer => {
            Mechanism::Hrtimer
        }
        Function::Msleep | Function::MsleepInterruptible | Function::ScheduleTimeout => {
            wheel(measurement.request)
        }
        Function::Fsleep if measurement.request <= 10 * MICROSECOND => Mechanism::Busy,
        Function::Fsleep if measurement.request < tick(hz) << 2 => Mechanism::Hrtimer,
        Function::Fsleep => {
            // It goes through msleep() in whole milliseconds, rounded up.
            let (whole, rest) = num::div(measurement.request, MILLISECOND);
            wheel(
                whole
                    .wrapping_add(u64::from(rest != 0))
                    .wrapping_mul(MILLISECOND),
            )
        }
        Function::None => Mechanism::Nothing,
    }
}

/// The longest that half of the samples may take by the mechanism, in nanoseconds; `pair` is what a pair of time stamps
/// costs. `None` where the mechanism sets no ceiling: how fast a task wakes up is the machine's affair.
pub fn ceiling(measurement: &Measurement, hz: u32, pair: u64) -> Option<u64> {
    let instrument = pair.wrapping_mul(2);
    match mechanism(measurement, hz) {
        Mechanism::Busy => Some(
            measurement
                .request
                .wrapping_add(num::div(measurement.request, 50).0)
                .wrapping_add(instrument),
        ),
        Mechanism::Wheel { ticks, granularity } => Some(
            ticks
                .wrapping_add(granularity)
                .wrapping_mul(tick(hz))
                .wrapping_add(instrument),
        ),
        Mechanism::Hrtimer | Mechanism::Nothing => None,
    }
}

/// The longest that the function's document lets it take, in nanoseconds. `None` where the document sets no limit.
pub fn documented_ceiling(measurement: &Measurement, hz: u32) -> Option<u64> {
    let request = measurement.request;
    match measurement.function {
        // The slack is a tick, but not less than 12.5 %.
        Function::Msleep | Function::MsleepInterruptible => {
            Some(request.wrapping_add(tick(hz).max(request >> 3)))
        }
        Function::UsleepRange => Some(measurement.request_max),
        Function::Fsleep => Some(request.wrapping_add(request >> 2)),
        _ => None,
    }
}

/// Longest request of `udelay()` in nanoseconds, on a machine of that name, be it that of `uname -m` or of the folder in the
/// kernel's source: `MAX_UDELAY_MS` in arch/arm/include/asm/delay.h and include/linux/delay.h.
pub fn udelay_max(machine: &str) -> u64 {
    if machine == "arm" || machine.starts_with("armv") {
        2 * MILLISECOND
    } else {
        5 * MILLISECOND
    }
}

/// What a function's document promises, in a sentence.
pub fn promise(function: Function) -> &'static str {
    match function {
        Function::Ndelay
        | Function::NdelayConst
        | Function::Udelay
        | Function::UdelayConst
        | Function::Mdelay => "busy-waits for about the request; it may return early",
        Function::UsleepRange => "sleeps at least min and not longer than max",
        Function::Msleep | Function::MsleepInterruptible => {
            "sleeps at least the request, with a slack of one tick but not less than 12.5 %"
        }
        Function::Fsleep => "sleeps the request with at most 25 % slack",
        Function::ScheduleTimeout | Function::ScheduleHrtimeout => {
            "at least the timeout passes before it returns"
        }
        Function::Hrtimer => "the callback does not run before the expiry",
        Function::None => "nothing",
    }
}

/// Where the promise stands, in the kernel's source.
pub fn source(function: Function) -> &'static str {
    match function {
        Function::Ndelay | Function::NdelayConst | Function::Udelay | Function::UdelayConst => {
            "include/asm-generic/delay.h, kernel/time/test_udelay.c"
        }
        Function::Mdelay | Function::Fsleep => "include/linux/delay.h",
        Function::UsleepRange
        | Function::Msleep
        | Function::MsleepInterruptible
        | Function::ScheduleTimeout
        | Function::ScheduleHrtimeout => "kernel/time/sleep_timeout.c",
        Function::Hrtimer => "kernel/time/hrtimer.c",
        Function::None => "",
    }
}

/// About how long a row takes, in nanoseconds, the pauses between rows included. For progress and deadlines, no
/// measure of anything.
pub fn estimate(measurement: &Measurement, hz: u32, cpus: u32) -> u64 {
    /// What a sample costs besides its request: waking up, bookkeeping.
    const OVERHEAD: u64 = 60 * MICROSECOND;
    /// What comes between two rows.
    const PAUSE: u64 = 70 * MILLISECOND;
    let sample = match mechanism(measurement, hz) {
        Mechanism::Wheel { ticks, granularity } => {
            ticks.wrapping_add(granularity).wrapping_mul(tick(hz))
        }
        Mechanism::Busy | Mechanism::Hrtimer | Mechanism::Nothing => measurement.request_max,
    };
    let rows = if measurement.cpu == Cpu::All {
        u64::from(cpus)
    } else {
        1
    };
    sample
        .wrapping_add(OVERHEAD)
        .wrapping_mul(u64::from(measurement.iterations))
        .wrapping_add(PAUSE)
        .wrapping_mul(rows)
}

/// About how long a plan takes, in nanoseconds: see [`estimate`].
///
/// # Errors
///
/// The first mistake in the text.
pub fn estimate_plan(text: &str, iterations: u32, hz: u32, cpus: u32) -> Result<u64, Error> {
    super::plan::rows(text, iterations).try_fold(0_u64, |sum, row| {
        Ok(sum.saturating_add(estimate(&row?, hz, cpus)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    fn row(text: &str) -> Measurement {
        plan::rows(text, 1000).next().unwrap().unwrap()
    }

    fn ms(text: &str, hz: u32) -> u64 {
        ceiling(&row(text), hz, 0).unwrap() / MILLISECOND
    }

    #[test]
    fn wheel_as_in_the_kernel() {
        for (ticks, granularity) in [
            (1, 1),
            (62, 1),
            (63, 8),
            (503, 8),
            (504, 64),
            (4031, 64),
            (4032, 512),
        ] {
            assert_eq!(wheel_granularity(ticks), granularity, "{ticks}");
        }
    }

    /// As seen on kernels with HZ=250 and HZ=100.
    #[test]
    fn ticks_as_measured() {
        for (request, at_250, at_100) in [
            (10, 16, 20),
            (15, 20, 30),
            (18, 24, 30),
            (24, 28, 40),
            (50, 56, 60),
            (100, 104, 110),
            (110, 116, 120),
        ] {
            let text = format!("msleep:{request}ms");
            assert_eq!((ms(&text, 250), ms(&text, 100)), (at_250, at_100), "{text}");
        }
    }

    #[test]
    fn fsleep_chooses() {
        let of = |text: &str| mechanism(&row(text), 250);
        assert_eq!(of("fsleep:10us"), Mechanism::Busy);
        assert_eq!(of("fsleep:11us"), Mechanism::Hrtimer);
        assert_eq!(of("fsleep:15999us"), Mechanism::Hrtimer);
        assert_eq!(
            of("fsleep:16ms"),
            Mechanism::Wheel {
                ticks: 4,
                granularity: 1
            }
        );
        assert_eq!(
            of("fsleep:16001us"),
            Mechanism::Wheel {
                ticks: 5,
                granularity: 1
            }
        );
    }

    #[test]
    fn documents() {
        let of = |text: &str| documented_ceiling(&row(text), 250);
        assert_eq!(of("msleep:10ms"), Some(14 * MILLISECOND));
        assert_eq!(of("msleep:15ms"), Some(19 * MILLISECOND));
        assert_eq!(of("msleep:18ms"), Some(22 * MILLISECOND));
        assert_eq!(of("msleep:100ms"), Some(112_500_000));
        assert_eq!(of("usleep_range:15us..20us"), Some(20_000));
        assert_eq!(of("udelay:15us"), None);
        assert_eq!(ceiling(&row("udelay:100us"), 250, 150), Some(102_300));
        assert_eq!(ceiling(&row("usleep_range:15us"), 250, 150), None);
    }

    #[test]
    fn udelay_is_bounded() {
        for (machine, ms) in [
            ("x86_64", 5),
            ("x86", 5),
            ("aarch64", 5),
            ("arm64", 5),
            ("arm", 2),
            ("armv7l", 2),
        ] {
            assert_eq!(udelay_max(machine), ms * MILLISECOND, "{machine}");
        }
    }

    #[test]
    fn the_article_takes_eight_minutes() {
        let seconds = estimate_plan("article", 1000, 250, 1).unwrap() / SECOND;
        assert!((470..500).contains(&seconds), "{seconds}");
        assert!(estimate_plan("quick", 1000, 250, 1).unwrap() < 2 * SECOND);
        assert!(estimate_plan("sweep", 1000, 250, 1).unwrap() < 60 * SECOND);
        assert!(estimate_plan("sweep", 1000, 100, 1).unwrap() < 60 * SECOND);
        assert!(estimate_plan("x", 1000, 250, 1).is_err());
    }
}
