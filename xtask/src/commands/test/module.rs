// SPDX-License-Identifier: GPL-2.0

//! The module, built by make as a person does it, for each kernel of the table; and the userland with the oldest rustc.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
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
        "module: make installs, and helps editors",
        &[Need::Kernels],
        targets,
    ));
    checks.push(check(
        "module: make passes the kernel's tools, or others",
        &[],
        tools,
    ));
    checks.push(check(
        "module: make says which tools cannot build for a kernel",
        &[],
        wrong_tools,
    ));
    checks.push(check(
        "module: make says what a kernel folder lacks",
        &[],
        make_refuses,
    ));
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

/// What else kernel developers expect of make.
fn targets(bench: &Bench<'_>) -> Result<String> {
    let kernel = kernel(bench, &TABLE[0])?;
    let (folder, out) = (sources(bench)?, bench.folder()?);
    let binds = [
        Bind::new(&kernel.path, MOUNTED),
        Bind::new(&folder, SOURCES),
        Bind::new(&out, OUT),
    ];
    let make = |arguments: &[&str]| {
        let mut make = kernel.tree.command(&binds, "make");
        make.args(["-C", SOURCES]).args(arguments);
        bench.succeed(make)
    };
    let kdir = format!("KDIR={KDIR}");
    let help = make(&["help"])?;
    for word in [
        "modules_install",
        "clean",
        "rust-analyzer",
        "KDIR=",
        "LLVM=1",
        "O=",
        "/lib/modules/",
    ] {
        ensure!(help.out.contains(word), "no {word} in make help: {help}");
    }
    // A source tree with its output elsewhere, named from where make is called.
    says_nothing(&make(&[
        &format!("KDIR={MOUNTED}/source"),
        "O=../kernel/build",
    ])?)?;

    // Without a System.map, as in headers, it warns that it leaves depmod out.
    make(&[&kdir, "modules_install", &format!("INSTALL_MOD_PATH={OUT}")])?.says("INSTALL")?;
    let installed = format!("lib/modules/{}/updates/messung.ko", kernel.info.release);
    ensure!(
        names(&out)?
            .iter()
            .any(|name| name.to_string_lossy().contains(&installed)),
        "{installed} is not among {:?}",
        names(&out)?
    );

    says_nothing(&make(&[&kdir, "rust-analyzer"])?)?;
    let text = std::fs::read_to_string(folder.join("rust-project.json"))
        .context("make rust-analyzer made no rust-project.json")?;
    let project: serde_json::Value = serde_json::from_str(&text).context("it is no JSON")?;
    let crates = project["crates"].as_array().context("it has no crates")?;
    let ours = crates
        .iter()
        .find(|one| one["display_name"] == "messung")
        .context("it does not know messung")?;
    let bindings = ours["env"]["MESSUNG_BINDINGS"].as_str().unwrap_or_default();
    ensure!(
        bindings.ends_with("/messung/bindings.rs"),
        "no bindings in {ours}"
    );
    let uses_kernel = ours["deps"]
        .as_array()
        .is_some_and(|deps| deps.iter().any(|dep| dep["name"] == "kernel"));
    ensure!(uses_kernel, "no kernel crate in {ours}");
    Ok(format!("{} crates", crates.len()))
}

/// A kernel folder that says which tools make was given, and beside it programs that stand for them.
struct FakeKernel {
    folder: PathBuf,
    programs: PathBuf,
}

impl FakeKernel {
    fn new(bench: &Bench<'_>) -> Result<Self> {
        let fake = Self {
            folder: bench.folder()?,
            programs: bench.folder()?,
        };
        fake.write("Makefile", "modules:\n\t@echo CC=$(CC) LLVM=$(LLVM).\n")?;
        std::fs::create_dir(fake.folder.join("rust")).context("cannot make a folder")?;
        fake.write("rust/libcore.rmeta", "rust\0\0\x0drustc 1.0 (x)\0")?;
        for (name, version) in [
            ("gcc", "gcc (another one) 99"),
            ("clang", "clang version 99"),
            ("ld.lld", "LLD 99"),
        ] {
            let path = fake.programs.join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho '{version}'\n"))
                .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o755)))
                .context("cannot write a program")?;
        }
        Ok(fake)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.folder.join(name), text).context("cannot write a file")
    }

    /// Runs make for a kernel with this configuration.
    fn make(&self, bench: &Bench<'_>, config: &str, named: Option<&str>) -> Result<Ended> {
        self.write(".config", config)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.programs.clone()).chain(std::env::split_paths(&path));
        let mut make = std::process::Command::new("make");
        // A program that prints its arguments, so that these are its version.
        make.args([
            format!("KDIR={}", self.folder.display()),
            "RUSTC=echo 'rustc 1.0 (x)' #".to_owned(),
        ])
        .args(named)
        .env("PATH", std::env::join_paths(all).context("an odd PATH")?)
        // Kbuild does not look at it.
        .env("CC", "environment")
        .env_remove("LLVM")
        .env_remove("MAKEFLAGS")
        .current_dir(&bench.repository);
        bench.end(make)
    }
}

const GCC: &str =
    "CONFIG_RUST=y\nCONFIG_CC_IS_GCC=y\nCONFIG_CC_VERSION_TEXT=\"gcc (another one) 99\"\n";
const CLANG: &str =
    "CONFIG_RUST=y\nCONFIG_CC_IS_CLANG=y\nCONFIG_CC_VERSION_TEXT=\"clang version 99\"\n";

/// The tools that a kernel was built with are passed to Kbuild, unless other ones are named.
fn tools(bench: &Bench<'_>) -> Result<String> {
    let fake = FakeKernel::new(bench)?;
    for (config, named, passed) in [
        (GCC, None, "CC=gcc LLVM=."),
        (GCC, Some("CC=other"), "CC=other LLVM=."),
        (CLANG, None, "LLVM=1."),
        (CLANG, Some("LLVM=1"), "LLVM=1."),
        (CLANG, Some("CC=clang"), "CC=clang LLVM=."),
    ] {
        fake.make(bench, config, named)?
            .exits(0)?
            .says(passed)
            .with_context(|| format!("with {config:?} and {named:?}"))?;
    }
    Ok(String::new())
}

/// Tools that cannot build for a kernel are named in one sentence, and what to do.
fn wrong_tools(bench: &Bench<'_>) -> Result<String> {
    let fake = FakeKernel::new(bench)?;
    for (config, named, sentence) in [
        (
            GCC,
            "LLVM=1",
            "was built by gcc, whose options clang does not know: leave LLVM=1 out",
        ),
        (GCC, "CC=clang", "leave CC=clang out"),
        (
            CLANG,
            "CC=gcc",
            "was built by clang, and CC=gcc is none: add LLVM=1",
        ),
        (
            CLANG,
            "LLVM=-0",
            "LLVM=-0 does not find clang-0 ld.lld-0: `cargo xtask doctor`",
        ),
        (
            CLANG,
            "LLVM=/none/",
            "LLVM=/none/ does not find /none/clang /none/ld.lld",
        ),
    ] {
        let ended = fake.make(bench, config, Some(named))?;
        let ended = ended.exits(2)?.says(sentence)?;
        let lines = ended.err.lines().count();
        ensure!(lines == 1 && ended.out.is_empty(), "it says more: {ended}");
    }
    Ok(String::new())
}

/// One sentence comes before all that Kbuild and rustc would say.
fn make_refuses(bench: &Bench<'_>) -> Result<String> {
    let folder = bench.folder()?;
    let refused = |sentence: &str| {
        let mut make = std::process::Command::new("make");
        make.arg(format!("KDIR={}", folder.display()))
            .current_dir(&bench.repository);
        let ended = bench.end(make)?.exits(2)?.says(sentence)?;
        let lines = ended.err.lines().count();
        ensure!(lines == 1 && ended.out.is_empty(), "it says more: {ended}");
        ended.says("cargo xtask")
    };
    refused("is no kernel folder")?;
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(&folder);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .context("cannot write a file")
    };
    write("Makefile", b"$(error Kbuild was called)\n")?;
    write(".config", b"# CONFIG_RUST is not set\n")?;
    refused("built without Rust")?;
    // As in the headers of Debian.
    write(".config", b"CONFIG_RUST=y\n")?;
    refused("has no Rust metadata")?;
    write(
        "rust/libcore.rmeta",
        b"rust\0\0\0\x09\x10rustc 1.0 (other)\xc1\0",
    )?;
    refused("rustc 1.0 (other)")?;
    Ok(String::new())
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
