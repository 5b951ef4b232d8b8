// SPDX-License-Identifier: GPL-2.0

//! How long does a delay really take? This module measures while it is being loaded, reports through the kernel log,
//! and fails with `EIO` so that it never stays resident.

use kernel::prelude::*;

/// What kernel and userland agree on; decoding is left to userland.
// Public, since only userland uses some of it.
#[path = "abi/src"]
pub mod abi {
    pub mod num;
    pub mod plan;
    pub mod record;
    pub mod summary;
}
#[path = "messung/clock.rs"]
mod clock;
#[path = "messung/context.rs"]
mod context;
#[path = "messung/delays.rs"]
mod delays;
#[path = "messung/fault.rs"]
mod fault;
#[path = "messung/run.rs"]
mod run;
#[path = "messung/sys.rs"]
mod sys;

module! {
    type: Messung,
    name: "messung",
    authors: ["The messung developers"],
    description: "Measures the kernel's delay and sleep functions while being loaded",
    license: "GPL",
    params: {
        iterations: u32 {
            default: 1000,
            description: "Samples of each row, 1 to 1000000",
        },
        run: u32 {
            default: 0,
            description: "Number that names this run in the log",
        },
    },
}

/// Never exists: loading fails on purpose.
struct Messung;

impl kernel::Module for Messung {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        use abi::plan;

        let iterations: u32 = sys::parameter(module_parameters::iterations.value());
        let run: u32 = sys::parameter(module_parameters::run.value());
        let plan = match sys::plan_parameter() {
            None => plan::DEFAULT,
            Some(Some(text)) => text,
            // No plan is written like this, so that it is refused as any other nonsense.
            Some(None) => "?",
        };

        run::run(run, plan, iterations)?;
        Err(EIO)
    }
}
