// SPDX-License-Identifier: GPL-2.0

//! The kernel folder: image, configuration and symbols, the part of the source that modules need, and the output folder that is
//! passed as KDIR, with Rust metadata that Debian does not ship.
//!
//! Image and symbols come out of Debian's packages, or are built from Debian's source by the same tools; all else is the same.
//!
//! It is always mounted at [`MOUNTED`], since Kbuild writes absolute paths.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cache::remove_all,
    event::{Event, Unit},
    kernel::{
        build_root::{Bind, Tree},
        proof,
        table::{Arch, Origin, Release, Row, Series},
    },
    process::{Env, Stream, tied},
};

/// Where a kernel folder is seen inside the build root.
pub const MOUNTED: &str = "/kernel";

/// KDIR inside the build root.
pub const KDIR: &str = "/kernel/build";

/// What making a kernel folder takes on the disk, the packages included.
pub const fn bytes(row: &Row) -> u64 {
    match row.origin {
        Origin::Stock => 1_200_000_000,
        // With all of the source.
        Origin::Built(_) => 3_500_000_000,
    }
}

/// Unpacking packages and source.
const UNPACK_DEADLINE: Duration = Duration::from_secs(600);

/// Making the metadata.
const PREPARE_DEADLINE: Duration = Duration::from_secs(1800);

/// Building a small kernel: minutes on a common machine.
const BUILD_DEADLINE: Duration = Duration::from_secs(5400);

/// What of the kernel's source a module's build or `modules_prepare` reads; the rest (drivers, file systems, …) would take
/// 1.6 GB. Patterns of tar: `*` matches slashes, and a folder brings all that is below it.
fn members(arch: &Arch, series: Series) -> Vec<String> {
    let top = format!("linux-source-{series}");
    let names = [
        "Kconfig*",
        "Makefile*",
        "Kbuild*",
        "include",
        "init",
        "kernel",
        "lib/vdso",
        "rust",
        "scripts",
        "security/*.h",
        "drivers/android",
        "drivers/base/*.h",
        "tools/arch",
        "tools/bpf/resolve_btfids",
        "tools/build",
        "tools/include",
        "tools/lib",
        "tools/objtool",
        "tools/scripts",
        ".clippy.toml",
        ".rustfmt.toml",
        "COPYING",
    ];
    let everywhere = ["Kconfig", "Makefile", "Kbuild"].map(|name| format!("{top}/*/{name}*"));
    let mut members: Vec<String> = names.iter().map(|name| format!("{top}/{name}")).collect();
    members.extend(everywhere);
    members.extend(arch.source.iter().map(|part| format!("{top}/{part}")));
    // Every architecture's list of system calls is compared with that of x86. What is asked for twice tar does not find.
    if arch.is_foreign() {
        members.push(format!("{top}/arch/x86/entry/syscalls/syscall_32.tbl"));
    }
    members
}

/// The packages of a release that a row takes, each `name=version`.
pub fn packages(row: &Row, release: &Release, version: &str) -> Vec<String> {
    let name = &release.name;
    let mut packages = vec![
        format!("linux-headers-{name}"),
        format!("linux-source-{}", release.series()),
    ];
    if row.origin == Origin::Stock {
        packages.push(format!("linux-base-{name}"));
        packages.push(format!("linux-binary-{name}"));
    }
    packages
        .iter()
        .map(|package| format!("{package}={version}"))
        .collect()
}

/// What the packages of a release hold, unpacked.
pub struct Unpacked {
    folder: PathBuf,
    release: Release,
    /// `.config`.
    pub config: String,
    /// The compiler that built the kernel, such as `gcc-14`.
    pub compiler: String,
}

impl Unpacked {
    /// Unpacks all packages in a folder, into that folder.
    ///
    /// # Errors
    ///
    /// A package is damaged, or the disk is full.
    pub fn new(env: &Env<'_>, folder: &Path, release: &Release) -> Result<Self> {
        let name = &release.name;
        env.emit(Event::Step(format!("unpacking the kernel {name}")));
        for entry in fs::read_dir(folder)
            .with_context(|| format!("cannot read {}", folder.display()))?
            .flatten()
        {
            let deb = entry.path();
            if deb.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = tied("dpkg-deb", "KILL");
                unpack.arg("--extract").arg(&deb).arg(folder.join("x"));
                let label = format!("unpacking {}", entry.file_name().to_string_lossy());
                env.run(unpack, &label, Some(UNPACK_DEADLINE))?;
                remove_all(&deb)?;
            }
        }
        let headers = folder.join(format!("x/usr/src/linux-headers-{name}"));
        let config = read(&headers.join(".config"))?;
        let variables = read(&headers.join(".kernelvariables"))?;
        let compiler = compiler(&variables)
            .with_context(|| {
                format!("the headers of {name} do not name the compiler (.kernelvariables)")
            })?
            .to_owned();
        Ok(Self {
            folder: folder.to_owned(),
            release: release.clone(),
            config,
            compiler,
        })
    }

    /// Makes the kernel folder at a path that does not exist yet.
    ///
    /// # Errors
    ///
    /// A step fails, the configuration is not what it has to be, or the metadata is not what the kernel needs.
    pub fn build(&self, env: &Env<'_>, tree: &Tree, row: &Row, path: &Path) -> Result<()> {
        let source = path.join("source");
        make_folder(&source)?;
        make_folder(&path.join("build"))?;
        self.unpack_source(env, &source, &members(row.arch, self.release.series()))?;
        let make = Make {
            env,
            tree,
            binds: vec![Bind::new(path, MOUNTED)],
            variables: [
                format!("KERNELRELEASE={}", row.release(&self.release)),
                row.compiler_variable(&self.compiler),
            ]
            .into_iter()
            .chain(row.arch.make.iter().map(|&variable| variable.to_owned()))
            .collect(),
        };
        match row.settings() {
            None => self.complete(&make, row.arch, path)?,
            Some(settings) => self.build_image(make, row, &settings, path)?,
        }
        let rustc = proof::rustc_text(&self.config)?;
        proof::metadata_is_of(&path.join("build"), rustc)
    }

    /// Adds what the packages hold, and the metadata.
    fn complete(&self, make: &Make<'_>, arch: &Arch, path: &Path) -> Result<()> {
        let release = &self.release.name;
        let headers = self
            .folder
            .join(format!("x/usr/src/linux-headers-{release}"));
        let modules = self.folder.join(format!("x/usr/lib/modules/{release}"));
        for (from, to) in [
            (modules.join(arch.image), "vmlinuz"),
            (modules.join("config"), "config"),
            (modules.join("System.map"), "System.map"),
            (headers.join(".config"), "build/.config"),
            (headers.join("Module.symvers"), "build/Module.symvers"),
        ] {
            copy(&from, &path.join(to))?;
        }
        for name in arch.device_trees {
            let to = path.join("dtb");
            make_folder(&to)?;
            copy(&modules.join("dtb").join(name), &to.join(name))?;
        }
        make.env.emit(Event::Step(format!(
            "making the Rust metadata of {release}"
        )));
        make.run(
            &["olddefconfig"],
            "reading the configuration",
            PREPARE_DEADLINE,
        )?;
        make.run(
            &["modules_prepare"],
            "making the Rust metadata",
            PREPARE_DEADLINE,
        )?;
        let after = read(&path.join("build/.config"))?;
        if let Some(changes) = config_changes(&self.config, &after) {
            bail!(
                "the build root is not the one that built {release}: the kernel's configuration changed there: {changes}"
            );
        }
        Ok(())
    }

    /// Builds the image, and with it symbols and metadata.
    fn build_image(
        &self,
        mut make: Make<'_>,
        row: &Row,
        settings: &str,
        path: &Path,
    ) -> Result<()> {
        let all = self.folder.join("all");
        make_folder(&all)?;
        self.unpack_source(make.env, &all, &[])?;
        // Only while the image is built: modules do with less of the source, and are told the same path.
        make.binds
            .push(Bind::new(&all, Path::new(MOUNTED).join("source")));

        make.env.emit(Event::Step(format!(
            "building the kernel {} (about 10 minutes on two processors)",
            row.release(&self.release)
        )));
        let wanted = path.join("wanted");
        fs::write(&wanted, settings)
            .with_context(|| format!("cannot write {}", wanted.display()))?;
        make.run(
            &["KCONFIG_ALLCONFIG=/kernel/wanted", "allnoconfig"],
            "configuring the kernel",
            PREPARE_DEADLINE,
        )?;
        let config = read(&path.join("build/.config"))?;
        if let Some(lost) = lost_settings(settings, &config) {
            bail!(
                "the kernel {} cannot be built as the row {} asks: the build root or its source do not take {lost}",
                self.release.name,
                row.name
            );
        }
        let image = Path::new(row.arch.built_image);
        let target = image.file_name().unwrap_or_default().to_string_lossy();
        make.run(&[&target, "modules"], "building the kernel", BUILD_DEADLINE)?;

        let build = path.join("build");
        copy(&build.join(image), &path.join("vmlinuz"))?;
        copy(&build.join(".config"), &path.join("config"))?;
        copy(&build.join("System.map"), &path.join("System.map"))?;
        remove_objects(&build)
    }

    /// Unpacks members of the source, or all of it.
    fn unpack_source(&self, env: &Env<'_>, to: &Path, members: &[String]) -> Result<()> {
        let mut unpack = tied("tar", "KILL");
        unpack
            .env("LC_ALL", "C")
            .args([
                "--extract",
                "--xz",
                "--strip-components=1",
                "--wildcards",
                "--no-same-owner",
            ])
            .arg("--file")
            .arg(source_archive(&self.folder.join("x/usr/src"))?)
            .arg("--directory")
            .arg(to)
            .args(members);
        env.run(
            unpack,
            "unpacking the kernel's source",
            Some(UNPACK_DEADLINE),
        )
        .map(drop)
    }
}

/// Kbuild in a kernel folder.
struct Make<'a> {
    env: &'a Env<'a>,
    tree: &'a Tree,
    binds: Vec<Bind>,
    variables: Vec<String>,
}

impl Make<'_> {
    /// Makes targets; what is printed is counted.
    fn run(&self, targets: &[&str], label: &str, deadline: Duration) -> Result<()> {
        let mut command = self.tree.command(&self.binds, "make");
        command
            .args(["-C", "/kernel/source", "O=/kernel/build"])
            .arg(format!("-j{}", cpus()))
            .args(&self.variables)
            .args(targets);
        let mut lines = 0;
        self.env
            .watch(command, label, Some(deadline), &mut |stream, _| {
                if stream == Stream::Out {
                    lines += 1;
                    self.env.emit(Event::Progress {
                        done: lines,
                        total: None,
                        unit: Unit::Lines,
                    });
                }
            })
            .map(drop)
    }
}

/// Removes what was linked into the image, which no module's build looks at.
fn remove_objects(build: &Path) -> Result<()> {
    for entry in fs::read_dir(build)
        .with_context(|| format!("cannot read {}", build.display()))?
        .flatten()
    {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_objects(&path)?;
        } else if name.ends_with(".o") || name.ends_with(".a") || name.contains("vmlinux") {
            remove_all(&path)?;
        }
    }
    Ok(())
}

/// The compiler in `.kernelvariables`: the last word of `CC = … $(CROSS_COMPILE)gcc-14`.
fn compiler(variables: &str) -> Option<&str> {
    let mut lines = variables.lines();
    let value = lines.find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim().trim_start_matches("override").trim() == "CC").then_some(value)
    })?;
    let word = value.split_whitespace().last()?;
    let name = word.rsplit_once(')').map_or(word, |(_, name)| name);
    name.starts_with("gcc-").then_some(name)
}

/// The settings of a configuration, a line each.
fn settings(config: &str) -> BTreeSet<&str> {
    let is_setting = |line: &&str| line.starts_with("CONFIG_") || line.ends_with(" is not set");
    config.lines().filter(is_setting).collect()
}

/// The settings that differ between two configurations, in words; nothing if none does.
fn config_changes(before: &str, after: &str) -> Option<String> {
    // In a suite that moves on, the compiler's package may be a revision older or newer than what built the kernel. Its
    // version counts, and stands in CONFIG_GCC_VERSION as well; nothing of its name gets into a module.
    let same_compiler = compiler_version(before) == compiler_version(after);
    let counts = |line: &&&str| !(same_compiler && line.starts_with(&format!("{COMPILER_TEXT}=")));
    let (before, after) = (settings(before), settings(after));
    let gone = before.difference(&after).filter(counts);
    let come = after.difference(&before).filter(counts);
    let gone = gone.map(|line| format!("-{line}"));
    let come = come.map(|line| format!("+{line}"));
    in_words(&gone.chain(come).collect::<Vec<_>>())
}

/// The setting that names the compiler: `gcc-14 (Debian 14.2.0-19) 14.2.0`.
const COMPILER_TEXT: &str = "CONFIG_CC_VERSION_TEXT";

/// The compiler of a configuration without the revision of its package.
fn compiler_version(config: &str) -> Option<(&str, &str)> {
    let text = proof::config_value(config, COMPILER_TEXT)?;
    let (name, rest) = text.split_once(' ')?;
    Some((name, rest.rsplit(' ').next()?))
}

/// The settings that were wanted and are not in a configuration, in words; nothing if all are.
fn lost_settings(wanted: &str, config: &str) -> Option<String> {
    let (wanted, config) = (settings(wanted), settings(config));
    let lost = wanted.difference(&config).map(|&line| line.to_owned());
    in_words(&lost.collect::<Vec<_>>())
}

/// The first of some settings, and the number of the others; nothing if there are none.
fn in_words(all: &[String]) -> Option<String> {
    let some = all.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => None,
        1..=8 => Some(some),
        more => Some(format!("{some} and {} more", more - 8)),
    }
}

/// The archive of the source in a folder.
fn source_archive(folder: &Path) -> Result<PathBuf> {
    fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-source-") && name.ends_with(".tar.xz")
        })
        .with_context(|| format!("the kernel's source is not in {}", folder.display()))
}

/// Processors to build with.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Makes a folder and those it is in.
fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
}

/// Copies a file, named where that fails.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {}", from.display()))
}

/// A text file, named where it cannot be read.
fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::table;

    #[test]
    fn the_compiler_is_read_from_the_headers() {
        let variables = "override ARCH = x86\nCCACHE = ccache\nCC = $(if $(DEBIAN_KERNEL_USE_CCACHE),$(CCACHE)) $(CROSS_COMPILE)gcc-14\noverride CROSS_COMPILE = x86_64-linux-gnu-\n";
        assert_eq!(compiler(variables), Some("gcc-14"));
        assert_eq!(
            compiler("override CC = $(CROSS_COMPILE)gcc-15\n"),
            Some("gcc-15")
        );
        assert_eq!(compiler("CCACHE = ccache\n"), None);
        assert_eq!(compiler("CC = clang\n"), None);
    }

    #[test]
    fn no_member_of_the_source_is_asked_for_twice() {
        for arch in [&table::AMD64, &table::ARMHF, &table::ARM64] {
            let members = members(arch, Series(7, 3));
            for member in &members {
                let holds_it = |other: &&String| member.starts_with(&format!("{other}/"));
                assert_eq!(members.iter().find(holds_it), None, "{member}");
            }
        }
    }

    #[test]
    fn changed_settings_are_named() {
        let before = "# Linux 7.3.4\nCONFIG_RUST=y\nCONFIG_A=y\n";
        assert_eq!(
            config_changes(before, "# Other\nCONFIG_A=y\nCONFIG_RUST=y\n"),
            None
        );
        assert_eq!(
            config_changes(before, "# CONFIG_RUST is not set\nCONFIG_A=y\n").unwrap(),
            "-CONFIG_RUST=y, +# CONFIG_RUST is not set"
        );
    }

    #[test]
    fn another_revision_of_the_compilers_package_is_no_change() {
        let with = |revision: &str, version: &str| {
            format!("CONFIG_CC_VERSION_TEXT=\"gcc-16 (Debian {revision}) {version}\"\n")
        };
        let before = with("16.2.0-4", "16.2.0");
        assert_eq!(config_changes(&before, &with("16.2.0-3", "16.2.0")), None);
        for other in [with("16.3.0-1", "16.3.0"), String::new()] {
            let changes = config_changes(&before, &other).unwrap();
            assert!(changes.contains("-CONFIG_CC_VERSION_TEXT"), "{changes}");
        }
    }

    #[test]
    fn lost_settings_are_named() {
        let wanted = "# Why\nCONFIG_RUST=y\nCONFIG_HZ_100=y\n";
        assert_eq!(
            lost_settings(wanted, "CONFIG_A=y\nCONFIG_HZ_100=y\nCONFIG_RUST=y\n"),
            None
        );
        assert_eq!(
            lost_settings(wanted, "# CONFIG_RUST is not set\nCONFIG_HZ_100=y\n").unwrap(),
            "CONFIG_RUST=y"
        );
    }

    #[test]
    fn objects_of_the_image_go_and_tools_stay() {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path();
        fs::create_dir_all(build.join("kernel")).unwrap();
        fs::create_dir_all(build.join("rust")).unwrap();
        let gone = ["vmlinux", ".tmp_vmlinux1", "kernel/fork.o", "built-in.a"];
        let kept = ["Module.symvers", "rust/libcore.rmeta", "rust/libmacros.so"];
        for name in gone.iter().chain(&kept) {
            fs::write(build.join(name), "").unwrap();
        }
        remove_objects(build).unwrap();
        assert!(gone.iter().all(|name| !build.join(name).exists()));
        assert!(kept.iter().all(|name| build.join(name).exists()));
    }

    #[test]
    fn all_packages_are_of_one_version() {
        let release = Release::of_headers("linux-headers-7.3.4+deb13-amd64", "amd64").unwrap();
        let packages =
            |row: &str| packages(table::find(row).unwrap(), &release, "7.3.4-1").join(" ");
        assert_eq!(
            packages("amd64"),
            "linux-headers-7.3.4+deb13-amd64=7.3.4-1 linux-source-7.3=7.3.4-1 \
             linux-base-7.3.4+deb13-amd64=7.3.4-1 linux-binary-7.3.4+deb13-amd64=7.3.4-1"
        );
        assert_eq!(
            packages("debug-amd64"),
            "linux-headers-7.3.4+deb13-amd64=7.3.4-1 linux-source-7.3=7.3.4-1"
        );
    }
}
