// SPDX-License-Identifier: GPL-2.0

//! Faults that a test build plants, to show that they are found: `make FAULT=early|long|thousandfold|skip`. In any other
//! build this does nothing, and costs nothing.

use crate::abi::num;
use crate::abi::plan::Kind;
use crate::abi::plan::Measurement;
use crate::abi::plan::MICROSECOND;
use crate::abi::plan::MILLISECOND;
use crate::clock;
use crate::delays::Delay;
use crate::delays::Use;
use core::cell::Cell;

/// Name of the planted fault, empty where there is none, and the mark that it leaves on each line for people.
pub(crate) const NAME_AND_MARK: (&str, &str) = if cfg!(messung_fault = "early") {
    ("early", " [planted fault: early]")
} else if cfg!(messung_fault = "long") {
    ("long", " [planted fault: long]")
} else if cfg!(messung_fault = "thousandfold") {
    ("thousandfold", " [planted fault: thousandfold]")
} else if cfg!(messung_fault = "skip") {
    ("skip", " [planted fault: skip]")
} else {
    ("", "")
};

/// What is really asked of the function: the request and its upper end.
pub(crate) fn altered(measurement: &Measurement) -> (u64, u64) {
    let alter = |request: u64| {
        let busy = matches!(measurement.function.spec().kind, Kind::Busy);
        if cfg!(messung_fault = "early") && request >= MILLISECOND {
            // 0.6 % short.
            request.wrapping_sub(num::div(request.wrapping_mul(6), 1000).0)
        } else if cfg!(messung_fault = "long") && busy && request >= 100 * MICROSECOND {
            // 5 % long.
            request.wrapping_add(num::div(request, 20).0)
        } else if cfg!(messung_fault = "thousandfold") {
            request.wrapping_mul(1000)
        } else {
            request
        }
    };
    (alter(measurement.request), alter(measurement.request_max))
}

/// Uses a delay with the fault that concerns its calls.
pub(crate) struct Planted<U>(pub(crate) U);

impl<U: Use> Use for Planted<U> {
    type Output = U::Output;

    fn with<D: Delay>(self, delay: D) -> U::Output {
        if cfg!(messung_fault = "skip") {
            self.0.with(Skipping {
                delay,
                calls: Cell::new(0),
            })
        } else {
            self.0.with(delay)
        }
    }
}

/// Skips every 1000th call.
struct Skipping<D> {
    delay: D,
    calls: Cell<u32>,
}

impl<D: Delay> Delay for Skipping<D> {
    fn wait(&self) {
        let calls = self.calls.get().wrapping_add(1);
        self.calls.set(calls);
        if calls % 1000 != 0 {
            self.delay.wait();
        }
    }

    fn end(&self) -> u64 {
        if self.calls.get() % 1000 != 0 {
            self.delay.end()
        } else {
            clock::now()
        }
    }
}
