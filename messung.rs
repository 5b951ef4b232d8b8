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
        use core::borrow::Borrow as _;

        // `value()` gives a reference in Linux 7.2 and the value itself from 7.3 on.
        let iterations: u32 = *module_parameters::iterations.value().borrow();
        let run: u32 = *module_parameters::run.value().borrow();

        run::run(run, "article", iterations)?;
        Err(EIO)
    }
}
