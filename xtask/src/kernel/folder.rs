// SPDX-License-Identifier: GPL-2.0

//! The kernel folder: stock image, configuration and symbols, the part of the source that modules need, and the output folder
//! that is passed as KDIR, with Rust metadata that Debian does not ship.
//!
//! It is always mounted at [`MOUNTED`], since Kbuild writes absolute paths.

use std::{
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
        table::{Arch, Release, Series},
    },
    process::{Env, Stream, tied},
};

/// Where a kernel folder is seen inside the build root.
pub const MOUNTED: &str = "/kernel";

/// KDIR inside the build root.
pub const KDIR: &str = "/kernel/build";

/// What making a kernel folder takes on the disk, the packages included.
pub const FOLDER_BYTES: u64 = 1_200_000_000;

/// Unpacking packages and source.
const UNPACK_DEADLINE: Duration = Duration::from_secs(600);

/// Making the metadata.
const PREPARE_DEADLINE: Duration = Duration::from_secs(1800);

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
    members.push(format!("{top}/arch/{}", arch.kernel));
    members
}

/// The packages of a release, each `name=version`.
pub fn packages(release: &Release, version: &str) -> Vec<String> {
    let name = &release.name;
    [
        format!("linux-headers-{name}"),
        format!("linux-base-{name}"),
        format!("linux-binary-{name}"),
        format!("linux-source-{}", release.series()),
    ]
    .map(|package| format!("{package}={version}"))
    .to_vec()
}

/// What the packages of a release hold, unpacked.
pub struct Unpacked {
    folder: PathBuf,
    release: String,
    series: Series,
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
        let series = release.series();
        let release = &release.name;
        env.emit(Event::Step(format!("unpacking the kernel {release}")));
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
        let headers = folder.join(format!("x/usr/src/linux-headers-{release}"));
        let config = read(&headers.join(".config"))?;
        let variables = read(&headers.join(".kernelvariables"))?;
        let compiler = compiler(&variables)
            .with_context(|| {
                format!("the headers of {release} do not name the compiler (.kernelvariables)")
            })?
            .to_owned();
        Ok(Self {
            folder: folder.to_owned(),
            release: release.clone(),
            series,
            config,
            compiler,
        })
    }

    /// Makes the kernel folder at a path that does not exist yet.
    ///
    /// # Errors
    ///
    /// A step fails, `.config` changes, or the metadata is not what the kernel needs.
    pub fn build(&self, env: &Env<'_>, tree: &Tree, arch: &Arch, path: &Path) -> Result<()> {
        for name in ["source", "build"] {
            let path = path.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let headers = self
            .folder
            .join(format!("x/usr/src/linux-headers-{}", self.release));
        let modules = self
            .folder
            .join(format!("x/usr/lib/modules/{}", self.release));
        for (from, to) in [
            (modules.join(arch.image), "vmlinuz"),
            (modules.join("config"), "config"),
            (modules.join("System.map"), "System.map"),
            (headers.join(".config"), "build/.config"),
            (headers.join("Module.symvers"), "build/Module.symvers"),
        ] {
            fs::copy(&from, path.join(to))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }

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
            .arg(path.join("source"))
            .args(members(arch, self.series));
        env.run(
            unpack,
            "unpacking the kernel's source",
            Some(UNPACK_DEADLINE),
        )?;

        env.emit(Event::Step(format!(
            "making the Rust metadata of {}",
            self.release
        )));
        let rustc = proof::rustc_text(&self.config)?;
        let make = |targets: &[&str]| {
            let mut command = tree.command(&[Bind::new(path, MOUNTED)], "make");
            command
                .args(["-C", "/kernel/source", "O=/kernel/build"])
                .arg(format!("-j{}", cpus()))
                .arg(format!("KERNELRELEASE={}", self.release))
                .arg(format!("CC={}-{}", arch.gnu, self.compiler))
                .args(targets);
            command
        };
        env.run(
            make(&["olddefconfig"]),
            "reading the configuration",
            Some(PREPARE_DEADLINE),
        )?;
        let mut lines = 0;
        env.watch(
            make(&["modules_prepare"]),
            "making the Rust metadata",
            Some(PREPARE_DEADLINE),
            &mut |stream, _| {
                if stream == Stream::Out {
                    lines += 1;
                    env.emit(Event::Progress {
                        done: lines,
                        total: None,
                        unit: Unit::Lines,
                    });
                }
            },
        )?;

        let after = read(&path.join("build/.config"))?;
        if let Some(changes) = config_changes(&self.config, &after) {
            bail!(
                "the build root is not the one that built {}: the kernel's configuration changed there: {changes}",
                self.release
            );
        }
        proof::metadata_is_of(&path.join("build"), rustc)
    }
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

/// The settings that differ between two configurations, in words; nothing if none does.
fn config_changes(before: &str, after: &str) -> Option<String> {
    let settings = |text: &str| -> std::collections::BTreeSet<String> {
        let is_setting = |line: &&str| line.starts_with("CONFIG_") || line.ends_with(" is not set");
        text.lines().filter(is_setting).map(str::to_owned).collect()
    };
    let (before, after) = (settings(before), settings(after));
    let gone = before.difference(&after).map(|line| format!("-{line}"));
    let come = after.difference(&before).map(|line| format!("+{line}"));
    let all: Vec<_> = gone.chain(come).collect();
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

/// A text file, named where it cannot be read.
fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn all_packages_are_of_one_version() {
        let release = Release::of_headers("linux-headers-7.3.4+deb13-amd64", "amd64").unwrap();
        assert_eq!(
            packages(&release, "7.3.4-1"),
            [
                "linux-headers-7.3.4+deb13-amd64=7.3.4-1",
                "linux-base-7.3.4+deb13-amd64=7.3.4-1",
                "linux-binary-7.3.4+deb13-amd64=7.3.4-1",
                "linux-source-7.3=7.3.4-1",
            ]
        );
    }
}
