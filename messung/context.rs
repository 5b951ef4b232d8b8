// SPDX-License-Identifier: GPL-2.0

//! Under what a function is called. Whatever is changed here, a guard restores.

use crate::abi::plan::Context;
use crate::sys;
use kernel::prelude::*;

/// What is switched off around a sample and the time stamps that enclose it.
pub(crate) trait Section {
    /// Enters the section; dropping the guard leaves it.
    fn enter() -> Self;
}

/// Nothing is switched off.
pub(crate) struct Open;

impl Section for Open {
    #[inline(always)]
    fn enter() -> Self {
        Self
    }
}

/// Local interrupts are off.
pub(crate) struct IrqOff(sys::IrqFlags);

impl Section for IrqOff {
    #[inline(always)]
    fn enter() -> Self {
        Self(sys::local_irq_save())
    }
}

impl Drop for IrqOff {
    #[inline(always)]
    fn drop(&mut self) {
        sys::local_irq_restore(&self.0);
    }
}

/// Preemption is off.
pub(crate) struct PreemptOff(sys::PreemptCount);

impl Section for PreemptOff {
    #[inline(always)]
    fn enter() -> Self {
        Self(sys::preempt_disable())
    }
}

impl Drop for PreemptOff {
    #[inline(always)]
    fn drop(&mut self) {
        sys::preempt_enable(&self.0);
    }
}

/// The CPUs that the calling task may run on while a row is measured; dropping it restores the caller's own.
pub(crate) struct Pinned {
    callers: sys::Affinity,
}

impl Pinned {
    /// Pins the calling task to a CPU.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the CPU is not online.
    pub(crate) fn to(cpu: u16) -> Result<Self> {
        let guard = Self {
            callers: sys::Affinity::of_current()?,
        };
        sys::pin_to(u32::from(cpu))?;
        Ok(guard)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Fails where all of the caller's CPUs went offline meanwhile.
        if self.callers.apply().is_err() {
            sys::log(
                sys::Level::Warning,
                "the caller's CPU affinity could not be restored",
            );
        }
    }
}

/// The policy of the calling task while a row is measured; dropping it restores the caller's own.
pub(crate) struct Policy {
    callers: sys::Scheduling,
}

impl Policy {
    /// Sets the policy that a context asks for: SCHED_FIFO, or SCHED_OTHER with nice 0.
    pub(crate) fn set(context: Context) -> Result<Self> {
        let guard = Self {
            callers: sys::Scheduling::of_current(),
        };
        match context {
            Context::Fifo(priority) => sys::Scheduling::fifo(priority),
            Context::Normal | Context::Irqoff | Context::Preemptoff => sys::Scheduling::NORMAL,
        }
        .apply()?;
        Ok(guard)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        // Only SCHED_DEADLINE can fail: its bandwidth may be gone meanwhile.
        if self.callers.apply().is_err() {
            sys::log(
                sys::Level::Warning,
                "the caller's scheduling policy could not be restored",
            );
        }
    }
}
