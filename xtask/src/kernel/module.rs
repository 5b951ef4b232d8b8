// SPDX-License-Identifier: GPL-2.0

//! What is built from this repository inside the build root: messung.ko for a kernel, and the static `xtask` for guests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use object::Object as _;
use sha2::{Digest as _, Sha256};

use crate::{
    cache::{Cache, remove_all},
    doctor::{self, Way},
    event::{Event, Unit},
    kernel::{
        Kernel,
        build_root::{Bind, Tree, hex},
        folder::{KDIR, MOUNTED, cpus},
        proof,
    },
    process::{Env, Stream},
};

/// Where the repository is seen inside the build root.
const REPOSITORY: &str = "/messung";

/// Where outputs go there.
const OUT: &str = "/out";

/// Building the module.
const MODULE_DEADLINE: Duration = Duration::from_secs(600);

/// Building a static xtask.
const PROGRAM_DEADLINE: Duration = Duration::from_secs(1200);

/// What the module is made of.
pub const MODULE_SOURCES: &[&str] = &["messung.rs", "messung", "abi/src", "Kbuild", "Makefile"];

/// What a static xtask is made of.
const PROGRAM_SOURCES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "abi",
    "xtask/Cargo.toml",
    "xtask/src",
];

/// A fault that a test build plants, to see it found: see messung/fault.rs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// Requests of 1 ms and more are 0.6 % short.
    Early,
    /// Busy functions are 5 % long from 100 us on.
    Long,
    /// Requests are 1000 times too long.
    Thousandfold,
    /// Every 1000th call is left out.
    Skip,
}

impl Fault {
    /// As the Makefile takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Long => "long",
            Self::Thousandfold => "thousandfold",
            Self::Skip => "skip",
        }
    }
}

/// The root of the repository: the one that cargo runs us from, else the one that this program was built from.
pub fn repository() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or(xtask.clone(), Path::to_owned)
}

/// Builds messung.ko for a kernel, unless the cache has the one of these sources, and proves that it fits.
///
/// # Errors
///
/// It does not build, not without a warning, or needs what the kernel lacks.
pub fn build(env: &Env<'_>, kernel: &Kernel) -> Result<PathBuf> {
    build_with(env, kernel, None)
}

/// The same, with a fault planted where one is named: each has an output folder of its own.
///
/// # Errors
///
/// See [`build`].
pub fn build_with(env: &Env<'_>, kernel: &Kernel, fault: Option<Fault>) -> Result<PathBuf> {
    let release = &kernel.info.release;
    let (name, of_what) = match fault {
        None => (release.clone(), String::new()),
        Some(fault) => (
            format!("{release}-fault-{}", fault.name()),
            format!(" with the planted fault {:?}", fault.name()),
        ),
    };
    let folder = Path::new("modules").join(name);
    let module = kernel.cache.join(&folder).join("messung.ko");
    if Tree::is_overridden() {
        return Ok(module);
    }
    let repository = repository();
    let of_kernel = [
        release.as_str(),
        &kernel.info.version,
        &kernel.info.tree,
        kernel.info.settings.as_deref().unwrap_or_default(),
    ]
    .join(" ");
    let hash = hash_of(&repository, MODULE_SOURCES, &of_kernel)?;
    if is_of(&kernel.cache.join(&folder), &hash) {
        return Ok(module);
    }
    kernel.cache.may_change()?;
    env.emit(Event::Step(format!(
        "building messung.ko for {release}{of_what}"
    )));
    kernel.cache.whole(&folder, |path| {
        fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
        let binds = [
            Bind::new(&kernel.path, MOUNTED),
            Bind::new(&repository, REPOSITORY),
            Bind::new(path, OUT),
        ];
        let mut make = kernel.tree.command(&binds, "make");
        make.args(["-C", REPOSITORY])
            .arg(format!("-j{}", cpus()))
            .arg(format!("KDIR={KDIR}"))
            .arg(format!("MO={OUT}"))
            .args(kernel.row.arch.make)
            .args(fault.map(|fault| format!("FAULT={}", fault.name())));
        run_without_warnings(env, make, "building messung.ko")?;
        let built = path.join("messung.ko");
        proof::module_fits(&built, &kernel.path.join("build/Module.symvers"))?;
        mark(path, &hash)
    })?;
    Ok(module)
}

/// A module of a kernel without what only a debugger reads, which is nine tenths of it: as the kernel's own
/// `INSTALL_MOD_STRIP=1` leaves it. It is proven to fit once more.
///
/// # Errors
///
/// The build root's strip fails, or the file system refuses.
pub fn stripped(env: &Env<'_>, kernel: &Kernel, module: &Path) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the module")?;
    let path = folder.path().join("messung.ko");
    fs::copy(module, &path).with_context(|| format!("cannot copy {}", module.display()))?;
    let binds = [Bind::new(folder.path(), OUT)];
    let program = format!("{}-strip", kernel.row.arch.gnu);
    let mut strip = kernel.tree.command(&binds, program);
    strip.args(["--strip-debug", &format!("{OUT}/messung.ko")]);
    env.run(strip, "stripping messung.ko", Some(MODULE_DEADLINE))?;
    proof::module_fits(&path, &kernel.path.join("build/Module.symvers"))?;
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Builds messung.ko with the host's own tools for a kernel folder of the user's.
///
/// # Errors
///
/// The folder is none, has no Rust metadata, or that of another rustc than the host's; or the module does not build.
pub fn build_for_folder(env: &Env<'_>, kdir: &Path) -> Result<PathBuf> {
    let kdir = kdir
        .canonicalize()
        .with_context(|| format!("cannot find the kernel folder {}", kdir.display()))?;
    doctor::require(&doctor::building(env, &kdir), Way::Build)?;
    let cache = Cache::open(env)?;
    let repository = repository();
    let name = hex(&Sha256::digest(kdir.as_os_str().as_encoded_bytes()));
    let folder = Path::new("modules").join(format!("kdir-{}", &name[..12]));
    env.emit(Event::Step(format!(
        "building messung.ko for {}",
        kdir.display()
    )));
    // Kbuild writes the output's path into what it makes, so it is made where it stays.
    let out = cache.join(&folder);
    remove_all(&out)?;
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut make = Command::new("make");
    make.env("LC_ALL", "C")
        .arg("-C")
        .arg(&repository)
        .arg(format!("-j{}", cpus()))
        .arg(format!("KDIR={}", kdir.display()))
        .arg(format!("MO={}", out.display()));
    run_without_warnings(env, make, "building messung.ko")?;
    let module = out.join("messung.ko");
    proof::module_fits(&module, &kdir.join("Module.symvers"))?;
    Ok(module)
}

/// Runs a build; a warning or a notice in what it prints is an error.
pub fn run_without_warnings(env: &Env<'_>, command: Command, label: &str) -> Result<()> {
    let mut warning = None;
    let mut lines = 0;
    env.watch(command, label, Some(MODULE_DEADLINE), &mut |_, line| {
        lines += 1;
        env.emit(Event::Progress {
            done: lines,
            total: None,
            unit: Unit::Lines,
        });
        if let Some(what) = other_tool(line) {
            env.emit(Event::Warning(what.to_owned()));
        } else if warning.is_none() && is_warning(line) {
            warning = Some(line.to_owned());
        }
    })?;
    match warning {
        Some(line) => bail!("{label} printed a warning, and it must print none: {line}"),
        None => Ok(()),
    }
}

/// What Kbuild says of any other revision of a tool than the kernel's, before it goes on. Whether the module fits is proven
/// in other ways.
fn other_tool(line: &str) -> Option<&str> {
    let what = line.strip_prefix("warning: ")?;
    what.ends_with(" differs from the one used to build the kernel")
        .then_some(what)
}

/// Whether a line of a build's output tells of something that is not quite right.
fn is_warning(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["warning", "notice", "skipping"]
        .iter()
        .any(|word| line.contains(word))
}

/// The static `xtask` for a kernel's machine: which of its parts are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// What the init of a guest needs.
    Guest,
    /// The command line of a machine that measures itself.
    Board,
}

impl Program {
    /// The features of the package that it is built with.
    fn features(self) -> &'static str {
        match self {
            Self::Guest => "",
            Self::Board => "report",
        }
    }

    /// For whom it is; also the name of its folder in the cache.
    fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Board => "board",
        }
    }
}

/// Builds a static `xtask` for a kernel's architecture, unless the cache has the one of these sources.
///
/// # Errors
///
/// cargo cannot fetch the sources of its dependencies, it does not build, or is not static.
pub fn program(env: &Env<'_>, kernel: &Kernel, program: Program) -> Result<PathBuf> {
    let arch = kernel.row.arch;
    let folder = Path::new(program.name()).join(arch.rust_target);
    let path = kernel.cache.join(&folder).join("xtask");
    if Tree::is_overridden() {
        return Ok(path);
    }
    let repository = repository();
    let hash = hash_of(&repository, PROGRAM_SOURCES, &kernel.info.tree)?;
    if is_of(&kernel.cache.join(&folder), &hash) {
        return Ok(path);
    }
    let mut cargo = cargo(env, kernel, "build")?;
    let label = format!("building the xtask for a {}", program.name());
    env.emit(Event::Step(label.clone()));
    cargo
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .args([
            "--package=xtask",
            "--no-default-features",
            "--features",
            program.features(),
            "--profile=guest",
        ])
        .arg(format!("--target={}", arch.rust_target));
    let mut lines = 0;
    env.watch(cargo, &label, Some(PROGRAM_DEADLINE), &mut |stream, _| {
        if stream == Stream::Err {
            lines += 1;
            env.emit(Event::Progress {
                done: lines,
                total: None,
                unit: Unit::Lines,
            });
        }
    })?;
    let built = target_folder(kernel)
        .join(arch.rust_target)
        .join("guest/xtask");
    let bytes = fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    if !is_static(&bytes)? {
        bail!(
            "the xtask for a {} is not linked statically: {}",
            program.name(),
            built.display()
        );
    }
    kernel.cache.whole(&folder, |path| {
        fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
        // Keeps the mode, so it stays executable.
        fs::copy(&built, path.join("xtask"))
            .with_context(|| format!("cannot copy {}", built.display()))?;
        mark(path, &hash)
    })?;
    Ok(path)
}

/// A subcommand of cargo inside the build root, with this repository and the sources of its dependencies. Arguments can be added.
///
/// # Errors
///
/// The host's cargo cannot fetch those sources.
pub fn cargo(env: &Env<'_>, kernel: &Kernel, subcommand: &str) -> Result<Command> {
    let repository = repository();
    kernel.cache.may_change()?;
    let vendored = vendor(env, kernel, &repository)?;
    let target = target_folder(kernel);
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    let binds = [
        Bind::new(&repository, REPOSITORY),
        Bind::new(&vendored, "/vendor"),
        Bind::new(&target, "/target"),
    ];
    let mut cargo = kernel.tree.command(&binds, "cargo");
    cargo
        .env("CARGO_HOME", "/tmp/cargo")
        .env("CARGO_TARGET_DIR", "/target")
        .envs(linker(kernel)?)
        .args([subcommand, "--offline", "--locked"])
        .args(["--manifest-path", "/messung/Cargo.toml"])
        .args(["--config", r#"source.crates-io.replace-with="vendored""#])
        .args(["--config", r#"source.vendored.directory="/vendor""#]);
    Ok(cargo)
}

/// The variable that names the linker of a foreign architecture: the compiler of the kernel, which the build root has.
fn linker(kernel: &Kernel) -> Result<Option<(String, String)>> {
    let arch = kernel.row.arch;
    if !arch.is_foreign() {
        return Ok(None);
    }
    let config = kernel.path.join("build/.config");
    let text =
        fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
    let compiler = proof::config_value(&text, "CONFIG_CC_VERSION_TEXT")
        .and_then(|version| version.split_whitespace().next())
        .with_context(|| format!("{} does not name the compiler", config.display()))?;
    let target = arch.rust_target.to_uppercase().replace('-', "_");
    Ok(Some((
        format!("CARGO_TARGET_{target}_LINKER"),
        compiler.to_owned(),
    )))
}

/// Where cargo's intermediate results are.
fn target_folder(kernel: &Kernel) -> PathBuf {
    kernel.cache.join("target").join(&kernel.info.tree)
}

/// The sources of all dependencies, fetched by the host's cargo: it knows the machine's proxies and authorities.
fn vendor(env: &Env<'_>, kernel: &Kernel, repository: &Path) -> Result<PathBuf> {
    let lock = fs::read(repository.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let folder = Path::new("vendor").join(&hex(&Sha256::digest(&lock))[..12]);
    let path = kernel.cache.join(&folder);
    if path.is_dir() {
        return Ok(path);
    }
    env.emit(Event::Step(
        "fetching the sources of dependencies".to_owned(),
    ));
    kernel.cache.whole(&folder, |path| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(["vendor", "--locked", "--versioned-dirs", "--manifest-path"])
            .arg(repository.join("Cargo.toml"))
            .arg(path);
        env.run(
            command,
            "fetching the sources of dependencies",
            Some(PROGRAM_DEADLINE),
        )
        .map(drop)
    })?;
    Ok(path)
}

/// Whether a program needs no loader.
fn is_static(program: &[u8]) -> Result<bool> {
    let file = object::File::parse(program).context("this is no ELF file")?;
    Ok(file.section_by_name(".interp").is_none())
}

/// Hash of files, folders with all they hold, their names, and of what else decides.
fn hash_of(repository: &Path, sources: &[&str], other: &str) -> Result<String> {
    let mut files = Vec::new();
    for source in sources {
        collect(&repository.join(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    hash.update(other);
    for file in files {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(repository).unwrap_or(&file);
        // Lengths keep names and contents apart.
        hash.update(format!("\n{} {}\n", name.display(), content.len()));
        hash.update(content);
    }
    Ok(hex(&hash.finalize()))
}

/// All files below a path, but not what builds leave in the source (`make` by hand does).
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot = || format!("cannot read {}", path.display());
    if !path.symlink_metadata().with_context(cannot)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(cannot)? {
        let entry = entry.with_context(cannot)?.path();
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        let is_output = name.starts_with('.') || name.ends_with(".o") || name.ends_with(".ko");
        if !is_output {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

/// Notes in a folder what it was made from.
fn mark(folder: &Path, hash: &str) -> Result<()> {
    let path = folder.join("sources.sha256");
    fs::write(&path, hash).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether a folder was made from just this.
fn is_of(folder: &Path, hash: &str) -> bool {
    fs::read_to_string(folder.join("sources.sha256")).is_ok_and(|found| found == hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_notices_are_seen() {
        for line in [
            "warning: unused variable: `x`",
            "WARNING: modpost: missing MODULE_DESCRIPTION()",
            "messung.o: warning: objtool: unexpected end of section",
            "Skipping BTF generation for messung.ko due to unavailability of vmlinux",
        ] {
            assert!(is_warning(line), "{line}");
        }
        assert!(!is_warning("  RUSTC [M] messung_rs.o"));
    }

    #[test]
    fn another_compiler_does_not_end_a_build() {
        let build = |line: &str| {
            let sink = crate::event::Collected::default();
            let env = Env {
                sink: &sink,
                interrupt: &crate::process::Interrupt::default(),
                slow_factor: 1.0,
            };
            let mut command = Command::new("echo");
            command.arg(line);
            let result = run_without_warnings(&env, command, "building");
            let events = sink.0.lock().unwrap();
            let warned = events
                .iter()
                .any(|event| matches!(event, Event::Warning(_)));
            (result.is_ok(), warned)
        };
        let other = "warning: the compiler differs from the one used to build the kernel";
        assert_eq!(build(other), (true, true));
        assert_eq!(build("warning: unused variable"), (false, false));
        assert_eq!(build("  CC [M] messung.o"), (true, false));
    }

    #[test]
    fn hashes_follow_contents_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::create_dir(file("messung")).unwrap();
        fs::write(file("messung/a.rs"), "a").unwrap();
        let hash = || hash_of(folder.path(), &["messung"], "7.3.4").unwrap();
        let first = hash();
        fs::write(file("messung/a.o"), "made by hand").unwrap();
        assert_eq!(hash(), first);
        fs::write(file("messung/a.rs"), "b").unwrap();
        assert_ne!(hash(), first);
        fs::write(file("messung/a.rs"), "a").unwrap();
        fs::rename(file("messung/a.rs"), file("messung/b.rs")).unwrap();
        assert_ne!(hash(), first);
        assert!(hash_of(folder.path(), &["nothing"], "").is_err());
    }

    /// Needs a network or a cache, and minutes.
    #[test]
    #[ignore = "makes a real build root"]
    fn programs_are_built_for_the_default_kernel() {
        let sink = crate::event::Collected::default();
        let interrupt = crate::process::Interrupt::default();
        let env = Env {
            sink: &sink,
            interrupt: &interrupt,
            slow_factor: 1.0,
        };
        let row = &crate::kernel::table::TABLE[0];
        let kernel = crate::kernel::prepare(&env, row, &Default::default()).unwrap();
        for which in [Program::Guest, Program::Board] {
            let built = program(&env, &kernel, which).unwrap();
            assert!(is_static(&fs::read(&built).unwrap()).unwrap());
            // Nothing is built twice.
            let steps = sink.0.lock().unwrap().len();
            program(&env, &kernel, which).unwrap();
            assert_eq!(sink.0.lock().unwrap().len(), steps);
        }
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own).unwrap());
        assert!(is_static(b"garbage").is_err());
    }
}
