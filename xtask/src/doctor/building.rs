// SPDX-License-Identifier: GPL-2.0

//! What building the module with the tools of this machine takes.

use super::host::Host;
use super::machine::{Distribution, Folder, Machine};
use super::{Finding, Way};
use crate::kernel::proof;
use crate::kernel::table::{self, OLDEST, Series};
use crate::process;

/// The oldest bindgen that Linux 7.2 and 7.3 take, for folders without the kernel's own list.
const BINDGEN: &str = "0.71.1";

/// The oldest libclang that they take.
const LIBCLANG: &str = "17.0.1";

/// All of it, for a kernel folder, in the order in which a build would fail.
pub fn findings(machine: &Machine, folder: &Folder, host: &Host) -> Vec<Finding> {
    let mut findings = vec![
        series(machine, folder),
        rust(machine, folder),
        there(machine, folder),
        metadata(machine, folder),
        rustc(machine, folder, host),
        bindgen(machine, folder, host),
        libclang(machine, host),
        make(machine, host),
        c_compiler(machine, folder, host),
    ];
    findings.extend(linker(machine, folder, host));
    findings
}

/// The release that is built for, where the folder or its place tells.
fn release<'a>(machine: &'a Machine, folder: &'a Folder) -> Option<&'a str> {
    let of_place = folder.path == machine.folder_path();
    let release = folder.release.as_deref();
    release.or_else(|| of_place.then(|| machine.release()))
}

/// Whether a folder is where the running kernel's is, and for that kernel.
fn is_running(machine: &Machine, folder: &Folder) -> bool {
    folder.path == machine.folder_path() && release(machine, folder) == Some(machine.release())
}

fn series(machine: &Machine, folder: &Folder) -> Finding {
    const NAME: &str = "kernel series";
    let Some(release) = release(machine, folder) else {
        return Finding::unknown(
            NAME,
            Way::Build,
            format!("{} does not name its release", folder.path.display()),
        );
    };
    match Series::of(release) {
        Some(series) if series >= OLDEST => {
            Finding::yes(NAME, Way::Build, format!("{release} is of series {series}"))
        }
        Some(_) => Finding::no(
            NAME,
            Way::Build,
            format!("messung needs Linux {OLDEST} or later, and this is {release}"),
            "boot a newer kernel, or measure one in a virtual machine, with cargo xtask vm",
        ),
        None => Finding::unknown(
            NAME,
            Way::Build,
            format!("{release:?} does not begin with a version"),
        ),
    }
}

/// Whether the kernel was built with Rust.
fn rust(machine: &Machine, folder: &Folder) -> Finding {
    const NAME: &str = "CONFIG_RUST";
    let of_folder = folder
        .config
        .as_deref()
        .map(|config| (folder.path.join(".config"), config));
    let of_machine = machine
        .config
        .as_ref()
        .map(|(path, config)| (path.clone(), config.as_str()))
        .filter(|_| is_running(machine, folder));
    let Some((path, config)) = of_folder.or(of_machine) else {
        return Finding::unknown(
            NAME,
            Way::Build,
            "no configuration of this kernel is to be found (/proc/config.gz, /boot/config-*, the kernel folder)",
        );
    };
    match proof::rustc_text(config) {
        Ok(text) => Finding::yes(NAME, Way::Build, format!("built by {text}")),
        Err(_) if proof::config_value(config, "CONFIG_RUST") == Some("y") => {
            Finding::yes(NAME, Way::Build, format!("set in {}", path.display()))
        }
        Err(_) => Finding::no(
            NAME,
            Way::Build,
            format!(
                "the kernel {} is built without Rust (CONFIG_RUST is not set in {}), so no Rust module fits it",
                release(machine, folder).unwrap_or_default(),
                path.display()
            ),
            "boot a kernel with Rust, or measure one in a virtual machine, with cargo xtask vm",
        ),
    }
}

fn there(machine: &Machine, folder: &Folder) -> Finding {
    const NAME: &str = "kernel folder";
    let path = folder.path.display();
    if folder.is_there {
        return Finding::yes(NAME, Way::Build, path.to_string());
    }
    Finding::no(
        NAME,
        Way::Build,
        format!("{path} is no kernel folder: it has no Makefile or no include/config/auto.conf"),
        if is_running(machine, folder) {
            headers(machine)
        } else {
            "name the output folder of a kernel's build, or leave --kdir out".to_owned()
        },
    )
}

/// The command that brings the running kernel's headers.
fn headers(machine: &Machine) -> String {
    let release = machine.release();
    let of_debian = format!("linux-headers-{release}");
    machine.distribution.install([
        &of_debian,
        &format!("kernel-devel-{release}"),
        &arch_headers(machine),
    ])
}

/// Arch's package with the headers of the running kernel.
fn arch_headers(machine: &Machine) -> String {
    let base = machine.pkgbase().unwrap_or_else(|| "linux".to_owned());
    format!("{base}-headers")
}

/// Whether the folder has what the compiler needs to know of the kernel's crates.
fn metadata(machine: &Machine, folder: &Folder) -> Finding {
    const NAME: &str = "Rust metadata";
    if folder.missing.is_empty() {
        return Finding::yes(
            NAME,
            Way::Build,
            format!("in {}/rust", folder.path.display()),
        );
    }
    Finding::no(
        NAME,
        Way::Build,
        format!(
            "{} has no Rust metadata ({})",
            folder.path.display(),
            folder.missing.join(", ")
        ),
        metadata_remedy(machine, folder),
    )
}

/// How a folder gets its metadata.
fn metadata_remedy(machine: &Machine, folder: &Folder) -> String {
    if folder.has_source {
        return format!(
            "make -C {} prepare, with the rustc that built the kernel",
            process::quote(folder.path.as_os_str())
        );
    }
    let release = release(machine, folder).unwrap_or_default();
    match machine.distribution {
        Distribution::Debian if table::row_of_release(release).is_some() => {
            "Debian ships none: cargo xtask build makes it for the running kernel, cargo xtask build --kernel ROW for others"
                .to_owned()
        }
        Distribution::Ubuntu => format!("sudo apt install linux-lib-rust-{release}"),
        Distribution::Fedora | Distribution::Arch if is_running(machine, folder) => format!(
            "{} has it, where the kernel is built with Rust",
            headers(machine)
        ),
        _ => "build the kernel from its source with CONFIG_RUST=y, and name that folder with --kdir; \
              or measure in a virtual machine, with cargo xtask vm"
            .to_owned(),
    }
}

/// Whether rustc is the one that wrote the metadata: another of the same version will not do.
fn rustc(machine: &Machine, folder: &Folder, host: &Host) -> Finding {
    const NAME: &str = "rustc";
    let of_config = || proof::rustc_text(folder.config.as_deref()?).ok();
    let Some(wanted) = folder.rustc.as_deref().or_else(of_config) else {
        return match &host.rustc {
            Some(found) => Finding::unknown(
                NAME,
                Way::Build,
                format!("{found} is there; which one the kernel takes is not to be found"),
            ),
            None => Finding::no(
                NAME,
                Way::Build,
                "there is no rustc in PATH",
                machine.distribution.install(["rustc", "rust", "rust"]),
            ),
        };
    };
    match host.rustc.as_deref() {
        Some(found) if found == wanted => Finding::yes(NAME, Way::Build, found),
        found => Finding::no(
            NAME,
            Way::Build,
            format!(
                "the kernel's crates were compiled by {wanted:?}, and rustc in PATH is {}",
                found.map_or("missing".to_owned(), |found| format!("{found:?}"))
            ),
            rustc_remedy(machine, wanted),
        ),
    }
}

/// How to come by just that rustc. What a distribution built says so, and only that distribution has it.
fn rustc_remedy(machine: &Machine, wanted: &str) -> String {
    let version = proof::rustc_version(wanted).unwrap_or_default();
    let is_distributions = wanted.ends_with(')') && wanted.matches('(').count() > 1;
    if !is_distributions && machine.distribution != Distribution::Arch {
        return format!("rustup toolchain install {version} && rustup override set {version}");
    }
    let series: Vec<_> = version.split('.').take(2).collect();
    let of_debian = match machine.distribution {
        Distribution::Ubuntu => format!("rustc-{} rust-{}-src", series.join("."), series.join(".")),
        _ => "rustc rust-src".to_owned(),
    };
    format!(
        "{}, and put it first in PATH (/usr/bin before rustup's)",
        machine
            .distribution
            .install([&of_debian, "rust rust-src", "rust rust-src"])
    )
}

fn bindgen(machine: &Machine, folder: &Folder, host: &Host) -> Finding {
    const NAME: &str = "bindgen";
    let oldest = folder.bindgen.as_deref().unwrap_or(BINDGEN);
    let install = machine
        .distribution
        .install(["bindgen", "bindgen-cli", "rust-bindgen"]);
    let remedy = format!("{install}, or cargo install --locked bindgen-cli");
    let Some(found) = &host.bindgen else {
        return Finding::no(NAME, Way::Build, "there is no bindgen in PATH", remedy);
    };
    match is_at_least(found, oldest) {
        Some(true) => Finding::yes(NAME, Way::Build, found.clone()),
        Some(false) => Finding::no(
            NAME,
            Way::Build,
            format!("the kernel takes bindgen {oldest} or later, and this is {found}"),
            remedy,
        ),
        None => Finding::unknown(
            NAME,
            Way::Build,
            format!("bindgen calls itself {found:?}; the kernel takes {oldest} or later"),
        ),
    }
}

fn libclang(machine: &Machine, host: &Host) -> Finding {
    const NAME: &str = "libclang";
    let remedy = machine
        .distribution
        .install(["libclang-dev", "clang-devel", "clang"]);
    match &host.libclang {
        None => Finding::unknown(
            NAME,
            Way::Build,
            "only bindgen tells which libclang it loads",
        ),
        Some(Err(why)) => Finding::no(NAME, Way::Build, why.clone(), remedy),
        Some(Ok(found)) if is_at_least(found, LIBCLANG) == Some(false) => Finding::no(
            NAME,
            Way::Build,
            format!("the kernel takes libclang {LIBCLANG} or later, and bindgen loads {found}"),
            remedy,
        ),
        Some(Ok(found)) => Finding::yes(NAME, Way::Build, format!("bindgen loads {found}")),
    }
}

fn make(machine: &Machine, host: &Host) -> Finding {
    const NAME: &str = "make";
    match &host.make {
        Some(found) if found.starts_with("GNU Make") => {
            Finding::yes(NAME, Way::Build, found.clone())
        }
        _ => Finding::no(
            NAME,
            Way::Build,
            "there is no GNU make in PATH",
            machine.distribution.install(["make", "make", "make"]),
        ),
    }
}

/// The compiler that built a kernel, as its configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler<'a> {
    /// What to call.
    pub program: &'a str,
    /// What it says of its version first.
    pub text: &'a str,
    /// The linker that is called besides: gcc brings its own.
    pub linker: Option<&'static str>,
}

impl Compiler<'_> {
    /// The packages that it comes in, as Debian, Fedora and Arch call them.
    fn packages(&self) -> [&str; 3] {
        match self.program.rfind("gcc") {
            // Debian calls gcc-14 x86_64-linux-gnu-gcc-14, in a package of the short name.
            Some(at) => [&self.program[at..], "gcc", "gcc"],
            None if self.linker.is_some() => ["clang lld llvm"; 3],
            None => [self.program, "gcc", "gcc"],
        }
    }
}

/// The compiler that a configuration names.
pub fn compiler(config: &str) -> Option<Compiler<'_>> {
    let text = proof::config_value(config, "CONFIG_CC_VERSION_TEXT")?;
    Some(match proof::config_value(config, "CONFIG_CC_IS_CLANG") {
        // It may put its vendor first. Make is told LLVM=1 then, which means its linker, too.
        Some("y") => Compiler {
            program: "clang",
            text,
            linker: Some("ld.lld"),
        },
        _ => Compiler {
            program: text.split_whitespace().next()?,
            text,
            linker: None,
        },
    })
}

fn c_compiler(machine: &Machine, folder: &Folder, host: &Host) -> Finding {
    const NAME: &str = "C compiler";
    let Some(compiler) = folder.config.as_deref().and_then(compiler) else {
        return Finding::unknown(
            NAME,
            Way::Build,
            "no configuration names the compiler of the kernel",
        );
    };
    let Compiler { program, text, .. } = compiler;
    let install = machine.distribution.install(compiler.packages());
    match host.compiler.as_deref() {
        None => Finding::no(
            NAME,
            Way::Build,
            format!("the kernel was built by {text}, and {program} is not here"),
            install,
        ),
        Some(found) if found == text => Finding::yes(NAME, Way::Build, found),
        Some(found) if version(found).is_some() && version(found) == version(text) => Finding::yes(
            NAME,
            Way::Build,
            format!(
                "{found}; the kernel was built by {text}: Kbuild warns of another revision, and no more comes of it"
            ),
        ),
        Some(found) => Finding {
            remedy: Some(install),
            ..Finding::unknown(
                NAME,
                Way::Build,
                format!(
                    "{found}; the kernel was built by {text}: Kbuild warns of another compiler, and gives it the options that were chosen for that one"
                ),
            )
        },
    }
}

/// The linker, where the compiler that built the kernel takes one of its own kind.
fn linker(machine: &Machine, folder: &Folder, host: &Host) -> Option<Finding> {
    const NAME: &str = "linker";
    let compiler = compiler(folder.config.as_deref()?)?;
    let program = compiler.linker?;
    Some(match &host.linker {
        Some(found) => Finding::yes(NAME, Way::Build, found.clone()),
        None => Finding::no(
            NAME,
            Way::Build,
            format!(
                "the kernel was built by {}, and {program} is not here",
                compiler.text
            ),
            machine.distribution.install(compiler.packages()),
        ),
    })
}

/// Whether the first version in a text is that one or a later one, where there is a version.
fn is_at_least(text: &str, oldest: &str) -> Option<bool> {
    Some(version(text)? >= version(oldest)?)
}

/// The first version in a text, as numbers.
fn version(text: &str) -> Option<Vec<u32>> {
    let word = text
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let end = word.find(|c: char| c != '.' && !c.is_ascii_digit());
    let version = &word[..end.unwrap_or(word.len())];
    version
        .split('.')
        .map(|number| number.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (text, expected) in [
            ("bindgen 0.71.1", Some(true)),
            ("bindgen 0.9.9", Some(false)),
            ("bindgen 0.72.0-dev", Some(true)),
            ("bindgen 1.0", Some(true)),
            ("bindgen", None),
        ] {
            assert_eq!(is_at_least(text, BINDGEN), expected, "{text}");
        }
    }

    #[test]
    fn compilers_are_named_by_the_configuration() {
        let config = "CONFIG_CC_VERSION_TEXT=\"x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0\"\nCONFIG_CC_IS_GCC=y\n";
        let gcc = compiler(config).unwrap();
        assert_eq!(gcc.program, "x86_64-linux-gnu-gcc-14");
        assert_eq!(gcc.linker, None);
        assert_eq!(gcc.packages(), ["gcc-14", "gcc", "gcc"]);
        let config =
            "CONFIG_CC_VERSION_TEXT=\"Debian clang version 19.1.7\"\nCONFIG_CC_IS_CLANG=y\n";
        let clang = compiler(config).unwrap();
        assert_eq!(clang.program, "clang");
        assert_eq!(clang.linker, Some("ld.lld"));
        assert_eq!(clang.packages(), ["clang lld llvm"; 3]);
        assert_eq!(compiler(""), None);
    }
}
