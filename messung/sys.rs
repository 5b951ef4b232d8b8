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

/// `udelay()` of `usecs` microseconds, at most `MAX_UDELAY_MS`, as C calls it where it does not know the request. The
/// detour through a wrapper would cost a few instructions more than a loop in C.
#[cfg(not(target_arch = "arm"))]
#[inline(always)]
pub(crate) fn udelay(usecs: CULong) {
    // SAFETY: `udelay()` has no requirements; too large an argument only makes it inexact.
    unsafe { bindings::__udelay(usecs) }
}

/// `udelay()` of `usecs` microseconds, at most `MAX_UDELAY_MS`. On 32-bit Arm it is a macro.
#[cfg(target_arch = "arm")]
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

/// `ndelay()`, as C calls it where it does not know the request.
#[cfg(not(target_arch = "arm"))]
#[inline(always)]
pub(crate) fn ndelay(nsecs: CULong) {
    // SAFETY: As for `udelay()`.
    unsafe { bindings::__ndelay(nsecs) }
}

/// `ndelay()`, which 32-bit Arm makes of `udelay()`.
#[cfg(target_arch = "arm")]
#[inline(always)]
pub(crate) fn ndelay(nsecs: CULong) {
    // SAFETY: As for `udelay()`.
    unsafe { helpers::messung_ndelay(nsecs) }
}

/// `mdelay()`.
#[inline(always)]
pub(crate) fn mdelay(msecs: CULong) {
    // SAFETY: As for `udelay()`.
    unsafe { helpers::messung_mdelay(msecs) }
}

/// Makes a function that calls C's delay with a constant: the request is chosen when the function is compiled.
macro_rules! constant_delay {
    ($(#[$doc:meta])* $name:ident: $($request:literal => $helper:ident),+) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name<const REQUEST: u32>() {
            // SAFETY: As for `udelay()`.
            unsafe {
                match REQUEST {
                    $($request => helpers::$helper(),)+
                    // `delays` names listed requests only.
                    _ => {}
                }
            }
        }
    };
}

constant_delay! {
    /// `udelay()` of a constant number of microseconds.
    udelay_const:
    1 => messung_udelay_const_1, 2 => messung_udelay_const_2, 5 => messung_udelay_const_5,
    10 => messung_udelay_const_10, 15 => messung_udelay_const_15, 20 => messung_udelay_const_20,
    50 => messung_udelay_const_50, 100 => messung_udelay_const_100,
    500 => messung_udelay_const_500, 1000 => messung_udelay_const_1000
}

constant_delay! {
    /// `ndelay()` of a constant number of nanoseconds.
    ndelay_const:
    100 => messung_ndelay_const_100, 200 => messung_ndelay_const_200,
    500 => messung_ndelay_const_500, 1000 => messung_ndelay_const_1000,
    2000 => messung_ndelay_const_2000, 5000 => messung_ndelay_const_5000,
    10000 => messung_ndelay_const_10000
}

/// `msleep_interruptible()`.
#[inline(always)]
pub(crate) fn msleep_interruptible(msecs: u32) {
    // SAFETY: As for `usleep_range()`.
    unsafe { bindings::msleep_interruptible(msecs) };
}

/// `fsleep()`.
#[inline(always)]
pub(crate) fn fsleep(usecs: CULong) {
    // SAFETY: As for `usleep_range()`.
    unsafe { helpers::messung_fsleep(usecs) }
}

/// C's signed long, which counts ticks.
pub(crate) type CLong = ffi::c_long;

/// `schedule_timeout_uninterruptible()`.
#[inline(always)]
pub(crate) fn schedule_timeout(ticks: CLong) {
    // SAFETY: As for `usleep_range()`.
    unsafe { bindings::schedule_timeout_uninterruptible(ticks) };
}

/// `schedule_hrtimeout()`, uninterruptible and relative.
#[inline(always)]
pub(crate) fn schedule_hrtimeout(nsecs: i64) {
    // SAFETY: As for `usleep_range()`.
    unsafe { helpers::messung_schedule_hrtimeout(nsecs) };
}

/// A timer whose callback, in hard interrupt context, notes when it runs.
pub(crate) struct OneShot(KBox<OneShotState>);

#[repr(C)]
struct OneShotState {
    // First, so that the callback's timer is the state.
    timer: bindings::hrtimer,
    done: bindings::completion,
    fired: u64,
}

impl OneShot {
    /// A timer that was not started yet.
    pub(crate) fn new() -> Result<Self> {
        let mut state = KBox::<OneShotState>::new_uninit(GFP_KERNEL)?;
        let place = state.as_mut_ptr();
        // SAFETY: All three fields are set up here, by the kernel's own functions where they have some; the box never
        // moves its content, and `wait()` does not return while the timer is queued.
        let state = unsafe {
            bindings::hrtimer_setup(
                &raw mut (*place).timer,
                Some(Self::expired),
                bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                bindings::hrtimer_mode_HRTIMER_MODE_REL_HARD,
            );
            helpers::messung_init_completion((&raw mut (*place).done).cast());
            (*place).fired = 0;
            state.assume_init()
        };
        Ok(Self(state))
    }

    /// Starts the timer and sleeps until its callback ran.
    #[inline(always)]
    pub(crate) fn wait(&self, nsecs: i64) {
        let state: *const OneShotState = &*self.0;
        let state = state.cast_mut();
        // SAFETY: The timer is idle: it was never started, or this function waited for it. Nobody else has a
        // reference, since the module's init is single-threaded. It may sleep, as `usleep_range()`.
        unsafe {
            helpers::messung_reinit_completion((&raw mut (*state).done).cast());
            bindings::hrtimer_start_range_ns(
                &raw mut (*state).timer,
                nsecs,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_REL_HARD,
            );
            bindings::wait_for_completion(&raw mut (*state).done);
        }
    }

    /// CLOCK_MONOTONIC at the start of the last callback, in nanoseconds.
    #[inline(always)]
    pub(crate) fn fired(&self) -> u64 {
        // SAFETY: The callback wrote it before it completed what `wait()` waits for; volatile, since the compiler does
        // not see that write.
        unsafe { (&raw const self.0.fired).read_volatile() }
    }

    /// # Safety
    ///
    /// `timer` must be the one inside a live [`OneShotState`].
    unsafe extern "C" fn expired(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let now = ktime_get_ns();
        let state = timer.cast::<OneShotState>();
        // SAFETY: The timer is the state's first field, and the state lives until `wait()` has seen the completion,
        // which is the last thing done with it. Zero is HRTIMER_NORESTART, however a release spells the type.
        unsafe {
            (*state).fired = now;
            bindings::complete(&raw mut (*state).done);
            core::mem::zeroed()
        }
    }
}

impl Drop for OneShot {
    fn drop(&mut self) {
        // SAFETY: The timer was set up. This waits for a callback that has completed `done` but not returned yet.
        unsafe { bindings::hrtimer_cancel(&raw mut self.0.timer) };
    }
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

/// Longest request of `udelay()` in milliseconds.
pub(crate) fn max_udelay_ms() -> u32 {
    // SAFETY: Returns a constant.
    unsafe { helpers::messung_max_udelay_ms() }
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

/// One more than the highest number a CPU may have.
pub(crate) fn nr_cpu_ids() -> u32 {
    // SAFETY: Reads an integer.
    unsafe { helpers::messung_nr_cpu_ids() }
}

/// Whether a CPU is there and online. It may go offline right after.
pub(crate) fn cpu_online(cpu: u32) -> bool {
    // SAFETY: The helper refuses numbers that the mask does not have.
    unsafe { helpers::messung_cpu_online(cpu) != 0 }
}

/// The CPUs that a task may run on.
pub(crate) struct Affinity(KBox<bindings::cpumask_t>);

impl Affinity {
    /// What the calling task has now.
    pub(crate) fn of_current() -> Result<Self> {
        // SAFETY: The current task exists while it runs. Its mask may be changed from outside at the same time, which
        // gives the one or the other.
        let mask = unsafe { (*Task::current_raw()).cpus_mask };
        Ok(Self(KBox::new(mask, GFP_KERNEL)?))
    }

    /// Gives it to the calling task.
    pub(crate) fn apply(&self) -> Result {
        // SAFETY: Acts on the current task, in process context with nothing held; the mask outlives the call.
        to_result(unsafe { bindings::set_cpus_allowed_ptr(Task::current_raw(), &*self.0) })
    }
}

/// Pins the calling task to a CPU that is online.
pub(crate) fn pin_to(cpu: u32) -> Result {
    if !cpu_online(cpu) {
        return Err(EINVAL);
    }
    // SAFETY: The CPU exists. Acts on the current task, in process context with nothing held.
    to_result(unsafe { helpers::messung_set_cpu(cpu) })
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

/// The value of a parameter of `module!`: Linux 7.2 gives a reference to it, and 7.3 itself.
pub(crate) fn parameter<T: Copy>(value: impl core::borrow::Borrow<T>) -> T {
    *value.borrow()
}

/// The `plan=` parameter. `module!` knows no strings, and the kernel's own string parameter refuses more than 1024
/// characters.
mod plan_parameter {
    use super::*;
    use crate::abi::plan::TEXT_MAX;
    use core::cell::UnsafeCell;
    use kernel::module_param::KernelParam;

    /// One character more than a plan may have: a longer one is refused all the same.
    const SIZE: usize = TEXT_MAX + 1;

    /// A copy of the argument, since the kernel frees all arguments before it calls init.
    struct Argument {
        /// `None` where it was not given.
        length: Option<usize>,
        text: [u8; SIZE],
    }

    struct Value(UnsafeCell<Argument>);

    // SAFETY: Written while the kernel parses the parameters, read in init, which comes after that on the same thread.
    unsafe impl Sync for Value {}

    static VALUE: Value = Value(UnsafeCell::new(Argument {
        length: None,
        text: [0; SIZE],
    }));

    static OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(set),
        get: None,
        free: None,
    };

    #[link_section = "__param"]
    // `(compiler)` as in `module!`: a plain `#[used]` gives newer compilers' sections another flag, and modpost sees just one
    // `.modinfo`.
    #[used(compiler)]
    static PARAMETER: KernelParam = KernelParam::new(bindings::kernel_param {
        name: kernel::str::as_char_ptr_in_const_context(c"plan"),
        // Only a parameter in sysfs would need its module.
        mod_: core::ptr::null_mut(),
        ops: &OPS,
        perm: 0,
        level: -1,
        flags: 0,
        __bindgen_anon_1: bindings::kernel_param__bindgen_ty_1 {
            arg: core::ptr::null_mut(),
        },
    });

    #[link_section = ".modinfo"]
    #[used(compiler)]
    static TYPE: [u8; 20] = *b"parmtype=plan:charp\0";
    #[link_section = ".modinfo"]
    #[used(compiler)]
    static DESCRIPTION: [u8; 63] =
        *b"parm=plan:What to measure: function:duration/context*n, or set\0";

    /// # Safety
    ///
    /// `value` must be NUL-terminated.
    unsafe extern "C" fn set(
        value: *const ffi::c_char,
        _parameter: *const bindings::kernel_param,
    ) -> ffi::c_int {
        // SAFETY: The caller's promise.
        let value = unsafe { CStr::from_char_ptr(value) }.to_bytes();
        // SAFETY: See `Value`; nobody else has a reference yet.
        let argument = unsafe { &mut *VALUE.0.get() };
        for (to, from) in argument.text.iter_mut().zip(value) {
            *to = *from;
        }
        argument.length = Some(value.len().min(SIZE));
        0
    }

    /// The parameter's value; `None` where it was not given, `Some(None)` where it is no UTF-8.
    pub(crate) fn get() -> Option<Option<&'static str>> {
        // SAFETY: See `Value`: it is not written any more.
        let argument = unsafe { &*VALUE.0.get() };
        let text = argument.text.get(..argument.length?)?;
        Some(core::str::from_utf8(text).ok())
    }
}

pub(crate) use plan_parameter::get as plan_parameter;
