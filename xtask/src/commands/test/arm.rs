// SPDX-License-Identifier: GPL-2.0

//! Other architectures: guests of 32-bit and 64-bit Arm, and what must not depend on the width of a machine.

use std::path::Path;

use anyhow::{Result, ensure};

use super::bench::Bench;
use super::delays::{all_contexts, has_all, run, twice};
use super::guests::{all_rows, measure, no_trace, row, steady_udelay};
use super::harness::{Check, Need, check};
use super::userland::tests_pass;
use crate::kernel::{self, Options, module, table};
use crate::result::Run;

const NEEDS: &[Need] = &[Need::Guests, Need::Kernels];
const LONG: &[Need] = &[Need::Guests, Need::Kernels, Need::Patience];

const S: u64 = 1_000_000_000;

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    vec![
        check("arm: abi's tests on 32 bits", &[Need::Kernels], |bench| {
            on_32_bits(bench, &["--package=abi"])
        }),
        check("arm: percentiles on 32 bits", &[Need::Kernels], |bench| {
            // As init in a guest, which computes them, has them.
            let init = ["--package=xtask", "--no-default-features"];
            on_32_bits(bench, &[&init[..], &["log::distribution"]].concat())
        }),
        check("arm: a Raspberry Pi 2 gives all rows", NEEDS, pi),
        check(
            "arm: armmp-virt gives all rows, twice the same",
            NEEDS,
            |bench| article(bench, "armmp-virt", "armv7l"),
        ),
        check("arm: every function in every context", NEEDS, |bench| {
            everything(bench, "armmp-virt")
        }),
        check(
            "arm: sleeps beyond 32 bits of nanoseconds",
            NEEDS,
            long_sleeps,
        ),
        check("arm: udelay beyond 2 ms is refused", &[], too_long),
        check("arm: arm64 gives all rows, twice the same", LONG, |bench| {
            article(bench, "arm64", "aarch64")
        }),
        check(
            "arm: every function in every context of arm64",
            LONG,
            |bench| everything(bench, "arm64"),
        ),
    ]
}

/// Runs tests that are built for 32-bit Arm, by QEMU's emulation of just a program. What they compare with are fixed values,
/// the same as on the machine at hand.
fn on_32_bits(bench: &Bench<'_>, selection: &[&str]) -> Result<String> {
    let kernel = kernel::prepare(&bench.env, table::find("armmp")?, &Options::default())?;
    let target = kernel.row.arch.rust_target;
    let mut test = module::cargo(&bench.env, &kernel, "test")?;
    test.arg(format!("--target={target}"))
        .arg("--config")
        .arg(format!(r#"target.{target}.runner="qemu-arm""#))
        .args(selection);
    tests_pass(bench, test)
}

/// Few samples: it runs in real time, and what it measures says nothing.
fn pi(bench: &Bench<'_>) -> Result<String> {
    let measured = measure(bench, &[], &["--kernel", "armmp", "--iterations", "5"])?;
    no_trace(&measured)?;
    is_of(&measured.run, "raspi2b", "armv7l")?;
    ensure!(
        measured.run.environment.cpus == Some(4),
        "a Pi 2 has 4 CPUs, not {:?}",
        measured.run.environment.cpus
    );
    all_rows(&measured)
}

fn article(bench: &Bench<'_>, kernel: &str, machine: &str) -> Result<String> {
    let measured = twice(bench, kernel, "article")?;
    let release = all_rows(&measured)?;
    is_of(&measured.run, "virt", machine)?;
    let steady = steady_udelay(&measured)?;
    Ok(format!("{release}, udelay(15 us) irqoff {steady}"))
}

/// Whether a result names its machine, as QEMU and as the kernel call it.
fn is_of(run: &Run, platform: &str, environment: &str) -> Result<()> {
    let named = run.platform.as_ref().and_then(|at| at.machine.as_deref());
    ensure!(
        named == Some(platform) && run.environment.machine.as_deref() == Some(environment),
        "the machine is {platform}, {environment}, and the result says {named:?}, {:?}",
        run.environment.machine
    );
    Ok(())
}

fn everything(bench: &Bench<'_>, kernel: &str) -> Result<String> {
    let items = all_contexts();
    let measured = run(bench, kernel, &items.join(","), None)?;
    has_all(&measured, &items)?;
    Ok(format!("{} rows", items.len()))
}

/// 4.3 s are what 32 bits of nanoseconds hold.
fn long_sleeps(bench: &Bench<'_>) -> Result<String> {
    let plan = "msleep:5s*2,usleep_range:5s*2,schedule_hrtimeout:5s*2";
    let measured = measure(bench, &[], &["--kernel", "armmp-virt", "--plan", plan])?;
    let mut shown = Vec::new();
    for (function, most) in [
        // The timer wheel counts a distance of 5 s in steps of 64 ticks.
        ("msleep", S / 3),
        ("usleep_range", S / 1000),
        ("schedule_hrtimeout", S / 1000),
    ] {
        let [shortest, mean, highest] = row(&measured.run, function, 5 * S, "normal")?;
        ensure!(
            5 * S <= shortest && shortest <= mean && mean <= highest && highest <= 5 * S + most,
            "{function} of 5 s took {shortest} to {highest} ns, {mean} ns on average"
        );
        shown.push(format!("{function} {highest} ns"));
    }
    Ok(shown.join(", "))
}

/// By the row's architecture, before anything is fetched.
fn too_long(bench: &Bench<'_>) -> Result<String> {
    let cache = bench.folder()?;
    for kernel in ["armmp", "armmp-virt"] {
        let mut command = bench.xtask(&["vm", "--kernel", kernel, "--plan", "udelay:3ms"]);
        command.env("XDG_CACHE_HOME", &cache);
        bench.end(command)?.exits(2)?.says("takes 1us to 2ms")?;
    }
    ensure!(
        is_empty(&cache),
        "something was fetched into {}",
        cache.display()
    );
    Ok(String::new())
}

fn is_empty(folder: &Path) -> bool {
    folder
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_none())
}
