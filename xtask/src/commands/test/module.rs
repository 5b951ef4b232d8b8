// SPDX-License-Identifier: GPL-2.0

//! The module, built by make as a person does it, for each kernel of the table; and the userland with the oldest rustc.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::bench::{Bench, Ended};
use super::harness::{Check, Need, check};
use crate::kernel::build_root::Bind;
use crate::kernel::folder::{KDIR, MOUNTED};
use crate::kernel::table::{self, ARM64, Row, TABLE};
use crate::kernel::{self, Kernel, Options, module, proof};

/// Where the sources are seen inside the build root.
const SOURCES: &str = "/messung";

/// Where outputs go there.
const OUT: &str = "/out";

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for row in kernels() {
        let needs = needs(row);
        checks.push(check(
            format!("module: make for {} says nothing", row.name),
            needs,
            |bench| make(bench, row),
        ));
        checks.push(check(
            format!("module: clippy for {}", row.name),
            needs,
            |bench| clippy(bench, row),
        ));
    }
    checks.push(check(
        "userland builds with the oldest rustc",
        &[Need::Kernels],
        oldest_rustc,
    ));
    checks
}

/// A row for each kernel: two machines may boot the same.
fn kernels() -> Vec<&'static Row> {
    let mut rows: Vec<&Row> = Vec::new();
    for row in table::stock() {
        let is_same = |other: &&Row| other.flavour == row.flavour && other.series == row.series;
        if !rows.iter().any(is_same) {
            rows.push(row);
        }
    }
    rows
}

/// 64-bit Arm takes a build root of its own, and shows little that the others do not.
fn needs(row: &Row) -> &'static [Need] {
    if row.arch == &ARM64 {
        &[Need::Kernels, Need::Patience]
    } else {
        &[Need::Kernels]
    }
}

/// A kernel that is ready. As long as it is held, no other messung gets on.
fn kernel(bench: &Bench<'_>, row: &'static Row) -> Result<Kernel> {
    kernel::prepare(&bench.env, row, &Options::default())
}

/// A copy of what the module is made of, without what a build left there.
fn sources(bench: &Bench<'_>) -> Result<PathBuf> {
    let folder = bench.folder()?;
    for file in super::rules::files(bench)? {
        let is_source = module::MODULE_SOURCES
            .iter()
            .any(|source| Path::new(&file.name).starts_with(source));
        if is_source {
            let path = folder.join(&file.name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).context("cannot make a folder")?;
            }
            std::fs::write(&path, &file.text).context("cannot write a file")?;
        }
    }
    Ok(folder)
}

/// What README.md tells a person to do: the module appears beside its sources, and `clean` takes away all that was made.
fn make(bench: &Bench<'_>, row: &'static Row) -> Result<String> {
    let kernel = kernel(bench, row)?;
    let folder = sources(bench)?;
    let before = names(&folder)?;
    let binds = [
        Bind::new(&kernel.path, MOUNTED),
        Bind::new(&folder, SOURCES),
    ];
    let make = |target: &[&str]| {
        let mut make = kernel.tree.command(&binds, "make");
        make.args(["-C", SOURCES, &format!("KDIR={KDIR}")])
            .args(row.arch.make)
            .args(target);
        make
    };
    says_nothing(&bench.succeed(make(&[]))?)?;
    let symbols = proof::module_fits(
        &folder.join("messung.ko"),
        &kernel.path.join("build/Module.symvers"),
    )?;
    says_nothing(&bench.succeed(make(&["clean"]))?)?;
    let after = names(&folder)?;
    ensure!(
        before == after,
        "make clean left {:?}",
        after
            .iter()
            .filter(|name| !before.contains(name))
            .collect::<Vec<_>>()
    );
    Ok(format!("{}, {symbols} symbols", kernel.info.release))
}

fn clippy(bench: &Bench<'_>, row: &'static Row) -> Result<String> {
    let kernel = kernel(bench, row)?;
    let (folder, out) = (sources(bench)?, bench.folder()?);
    let binds = [
        Bind::new(&kernel.path, MOUNTED),
        Bind::new(&folder, SOURCES),
        Bind::new(&out, OUT),
    ];
    let mut make = kernel.tree.command(&binds, "make");
    make.args(["-C", SOURCES, "CLIPPY=1"])
        .args([format!("KDIR={KDIR}"), format!("MO={OUT}")])
        .args(row.arch.make);
    let ended = bench.succeed(make)?.says("CLIPPY")?;
    says_nothing(&ended)?;
    Ok(String::new())
}

fn oldest_rustc(bench: &Bench<'_>) -> Result<String> {
    let kernel = kernel(bench, &TABLE[0])?;
    let mut rustc = kernel.tree.command(&[], "rustc");
    rustc.arg("--version");
    let version = bench.succeed(rustc)?;
    let mut check = module::cargo(&bench.env, &kernel, "check")?;
    check.args(["--quiet", "--workspace"]);
    let ended = bench.succeed(check)?;
    ensure!(ended.err.is_empty(), "it has warnings: {ended}");
    Ok(version.out.trim().to_owned())
}

/// Requires that a build printed nothing but what it is doing.
fn says_nothing(ended: &Ended) -> Result<()> {
    ensure!(ended.err.is_empty(), "it printed errors: {ended}");
    match ended.out.lines().find(|line| !is_progress(line)) {
        Some(line) => Err(anyhow::anyhow!("make printed {line:?}: {ended}")),
        None => Ok(()),
    }
}

/// Whether a line of Kbuild's output tells just what is done: `  RUSTC [M] x.o`, a folder, or the call of Kbuild itself.
fn is_progress(line: &str) -> bool {
    let is_folder = line.starts_with("make") && line.contains("ing directory '");
    let is_call = line.starts_with("make -C ");
    let is_step = line.strip_prefix("  ").is_some_and(|step| {
        step.split(' ')
            .next()
            .is_some_and(|word| word.len() > 1 && word.bytes().all(|b| b.is_ascii_uppercase()))
    });
    is_folder || is_call || is_step
}

/// The paths of all files below a folder.
fn names(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).context("cannot read a folder")? {
        let path = entry.context("cannot read a folder")?.path();
        if path.is_dir() {
            names.extend(self::names(&path)?);
        } else {
            names.push(path);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::is_progress;

    #[test]
    fn only_steps_and_folders_are_progress() {
        for line in [
            "make[1]: Entering directory '/kernel/build'",
            "make -C /kernel/build M=/messung modules",
            "  RUSTC [M] messung_rs.o",
            "  MODPOST Module.symvers",
            "  CC [M]  messung/helpers.o",
        ] {
            assert!(is_progress(line), "{line}");
        }
        for line in [
            "",
            "warning: the compiler differs from the one used to build the kernel",
            "  You are using:           gcc-14",
            "Skipping BTF generation for messung.ko due to unavailability of vmlinux",
            "messung.o: warning: objtool: x",
        ] {
            assert!(!is_progress(line), "{line}");
        }
    }
}
