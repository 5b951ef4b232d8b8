// SPDX-License-Identifier: GPL-2.0

//! The kernel's C side: the only file with `unsafe`, raw bindings, or knowledge of kernel versions.

use core::marker::PhantomData;
use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi;
use kernel::prelude::*;
use kernel::task::Task;

/// Declarations of `helpers.h`, made by bindgen.
#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    reason = "generated code"
)]
mod helpers {
    use kernel::ffi;
    include!(env!("MESSUNG_BINDINGS"));
}

/// C's unsigned long, which delays take.
pub(crate) type CULong = ffi::c_ulong;

/// `udelay()` of `usecs` microseconds, at most `MAX_UDELAY_MS`.
#[inline(always)]
pub(crate) fn udelay(usecs: CULong) {
    // SAFETY: `udelay()` has no requirements; too large an argument only makes it inexact.
    unsafe { helpers::messung_udelay(usecs) }
}

/// `usleep_range()`, uninterruptible as the C macro is.
#[inline(always)]
pub(crate) fn usleep_range(min: CULong, max: CULong) {
    // SAFETY: The module's init runs in process context with nothing held, so it may sleep; plans that sleep with
    // interrupts or preemption off are refused before they run.
    unsafe { bindings::usleep_range_state(min, max, bindings::TASK_UNINTERRUPTIBLE) }
}

/// `msleep()`.
#[inline(always)]
pub(crate) fn msleep(msecs: u32) {
    // SAFETY: As for `usleep_range()`.
    unsafe { bindings::msleep(msecs) }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline(always)]
pub(crate) fn ktime_get_ns() -> u64 {
    // SAFETY: `ktime_get()` has no requirements once timekeeping runs, which it does long before modules load.
    (unsafe { bindings::ktime_get() }) as u64
}

/// CLOCK_MONOTONIC_RAW in nanoseconds.
pub(crate) fn ktime_get_raw_ns() -> u64 {
    // SAFETY: As for `ktime_get()`.
    unsafe { helpers::messung_ktime_get_raw_ns() }
}

/// CLOCK_REALTIME in nanoseconds.
pub(crate) fn ktime_get_real_ns() -> u64 {
    // SAFETY: As for `ktime_get()`.
    unsafe { helpers::messung_ktime_get_real_ns() }
}

/// CLOCK_BOOTTIME in nanoseconds.
pub(crate) fn ktime_get_boottime_ns() -> u64 {
    // SAFETY: As for `ktime_get()`.
    unsafe { helpers::messung_ktime_get_boottime_ns() }
}

/// Ticks since boot, of 1/[`hz`] s.
pub(crate) fn get_jiffies_64() -> u64 {
    // SAFETY: No requirements.
    unsafe { helpers::messung_get_jiffies_64() }
}

/// CONFIG_HZ.
pub(crate) fn hz() -> u32 {
    // SAFETY: Returns a constant.
    unsafe { helpers::messung_hz() }
}

/// Resolution of hrtimers in nanoseconds: 1, or a tick.
pub(crate) fn hrtimer_resolution() -> u32 {
    // SAFETY: Reads an integer that is exported for reading.
    unsafe { helpers::messung_hrtimer_resolution() }
}

/// Number of online CPUs.
pub(crate) fn num_online_cpus() -> u32 {
    // SAFETY: Reads a counter.
    unsafe { helpers::messung_num_online_cpus() }
}

/// The CPU that this runs on, for this moment.
#[inline(always)]
pub(crate) fn processor_id() -> u32 {
    // SAFETY: The raw variant may be called anywhere; its result is a hint.
    unsafe { helpers::messung_raw_smp_processor_id() }
}

/// The kernel's release, as `uname -r` says it.
pub(crate) fn release() -> &'static str {
    // SAFETY: A NUL-terminated array inside `init_uts_ns`, which lives for ever and whose release never changes.
    unsafe { text(helpers::messung_utsname_release()) }
}

/// The machine, as `uname -m` says it.
pub(crate) fn machine() -> &'static str {
    // SAFETY: As for `release()`.
    unsafe { text(helpers::messung_utsname_machine()) }
}

/// # Safety
///
/// `text` must point to a NUL-terminated string that lives for ever and does not change.
unsafe fn text(text: *const ffi::c_char) -> &'static str {
    // SAFETY: The caller's promise is what is needed here.
    unsafe { CStr::from_char_ptr(text) }.to_str().unwrap_or("?")
}

/// Lets others run if they are due.
#[inline(always)]
pub(crate) fn cond_resched() {
    // SAFETY: Nothing is held and interrupts are on wherever this is called: between samples.
    unsafe { helpers::messung_cond_resched() }
}

/// Whether the calling task is about to be killed.
#[inline(always)]
pub(crate) fn fatal_signal_pending() -> bool {
    // SAFETY: Looks at the current task only.
    unsafe { helpers::messung_fatal_signal_pending() != 0 }
}

/// How often the calling task was made to give its CPU away.
pub(crate) fn involuntary_switches() -> u64 {
    // SAFETY: The current task exists while it runs, and only it changes this counter, in schedule().
    (unsafe { (*Task::current_raw()).nivcsw }) as u64
}

/// Proof that interrupts were switched off on this CPU, and how they were before. It must be restored on the same CPU
/// and thread, so it is not [`Send`].
pub(crate) struct IrqFlags(CULong, PhantomData<*mut ()>);

/// Switches local interrupts off.
#[inline(always)]
pub(crate) fn local_irq_save() -> IrqFlags {
    // SAFETY: Interrupts may be switched off anywhere; what is returned is the only way to switch them on again.
    IrqFlags(unsafe { helpers::messung_local_irq_save() }, PhantomData)
}

/// Switches them on again, if they were on.
#[inline(always)]
pub(crate) fn local_irq_restore(flags: &IrqFlags) {
    // SAFETY: The flags come from `local_irq_save()` on this CPU, since nothing in between can sleep.
    unsafe { helpers::messung_local_irq_restore(flags.0) }
}

/// Proof that preemption was switched off once.
pub(crate) struct PreemptCount(PhantomData<*mut ()>);

/// Switches preemption off.
#[inline(always)]
pub(crate) fn preempt_disable() -> PreemptCount {
    // SAFETY: It nests, and may be called anywhere.
    unsafe { helpers::messung_preempt_disable() };
    PreemptCount(PhantomData)
}

/// Switches it on again.
#[inline(always)]
pub(crate) fn preempt_enable(_proof: &PreemptCount) {
    // SAFETY: The proof tells that it was switched off by this thread.
    unsafe { helpers::messung_preempt_enable() }
}

/// What `sched_setattr()` sets.
#[derive(Clone, Copy)]
pub(crate) struct Scheduling {
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Scheduling {
    /// SCHED_OTHER with nice 0.
    pub(crate) const NORMAL: Self = Self {
        policy: bindings::SCHED_NORMAL,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };

    /// SCHED_FIFO.
    pub(crate) fn fifo(priority: u8) -> Self {
        Self {
            policy: bindings::SCHED_FIFO,
            priority: u32::from(priority),
            ..Self::NORMAL
        }
    }

    /// What the calling task has now.
    pub(crate) fn of_current() -> Self {
        /// `DEFAULT_PRIO` of linux/sched/prio.h: the static priority of nice 0.
        const NICE_0: i32 = 120;

        // SAFETY: The current task exists while it runs.
        let task = unsafe { &*Task::current_raw() };
        let is_deadline = task.policy == bindings::SCHED_DEADLINE;
        let of_deadline = |value: u64| if is_deadline { value } else { 0 };
        let reset_on_fork = if task.sched_reset_on_fork() != 0 {
            u64::from(bindings::SCHED_FLAG_RESET_ON_FORK)
        } else {
            0
        };
        Self {
            policy: task.policy,
            flags: reset_on_fork | of_deadline(u64::from(task.dl.flags)),
            nice: task.static_prio.wrapping_sub(NICE_0),
            priority: task.rt_priority,
            // For the fair policies the runtime is the slice the task asked for, if it did.
            runtime: if is_deadline {
                task.dl.dl_runtime
            } else if task.se.custom_slice != 0 {
                task.se.slice
            } else {
                0
            },
            deadline: of_deadline(task.dl.dl_deadline),
            period: of_deadline(task.dl.dl_period),
        }
    }

    /// Gives it to the calling task.
    pub(crate) fn apply(&self) -> Result {
        // SAFETY: Acts on the current task, in process context with nothing held.
        to_result(unsafe {
            helpers::messung_sched_setattr(
                self.policy,
                self.flags,
                self.nice,
                self.priority,
                self.runtime,
                self.deadline,
                self.period,
            )
        })
    }
}

/// Importance of a line in the log.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    /// For people, who asked for something that can't be.
    Error,
    /// For people, who should doubt something.
    Warning,
    /// For people.
    Info,
    /// For programs.
    Debug,
}

/// Logs a line, `messung: ` before it. `pr_debug!` would need dynamic debugging to be switched on.
pub(crate) fn log(level: Level, line: &str) {
    let format: &CStr = match level {
        Level::Error => c"\x013messung: %.*s\n",
        Level::Warning => c"\x014messung: %.*s\n",
        Level::Info => c"\x016messung: %.*s\n",
        Level::Debug => c"\x017messung: %.*s\n",
    };
    // SAFETY: The format asks for a length and a pointer to as many bytes, and gets both; lines are far shorter than an
    // int can count.
    unsafe {
        bindings::_printk(
            format.as_char_ptr().cast(),
            line.len() as ffi::c_int,
            line.as_ptr(),
        )
    };
}
