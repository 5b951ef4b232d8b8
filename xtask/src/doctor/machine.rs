// SPDX-License-Identifier: GPL-2.0

//! A machine as its files show it: the distribution, the running kernel's configuration, kernel folders. All of it is looked for
//! below a root folder, so that tests can show other machines.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::insert::preflight::System;
use crate::kernel::proof;

/// Links that are followed in one path; the kernel's own limit.
const LINKS: usize = 40;

/// Where distributions keep the configuration of a kernel; `{}` is its release. The first one that is there counts: the running
/// kernel's own word, where it has it.
const CONFIGS: &[&str] = &[
    "/proc/config.gz",
    "/boot/config-{}",
    "/lib/modules/{}/config",
    "/usr/lib/modules/{}/config",
    "/lib/modules/{}/build/.config",
];

/// A distribution, as far as its advice differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Headers without Rust metadata; it is made in the build root.
    Debian,
    /// Metadata in `linux-lib-rust-*`.
    Ubuntu,
    /// Metadata in `kernel-devel`.
    Fedora,
    /// Metadata in `linux-headers` and its relatives.
    Arch,
    /// Anything else.
    Other,
}

impl Distribution {
    /// Reads os-release: its own name counts first, then those of its relatives.
    fn of(os_release: &str) -> Self {
        let value = |key: &str| {
            let mut lines = os_release.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches('"').to_owned()
        };
        let names = value("ID") + " " + &value("ID_LIKE");
        let known = names.split_whitespace().find_map(|name| match name {
            "debian" => Some(Self::Debian),
            "ubuntu" => Some(Self::Ubuntu),
            "fedora" | "rhel" => Some(Self::Fedora),
            "arch" => Some(Self::Arch),
            _ => None,
        });
        known.unwrap_or(Self::Other)
    }

    /// The command that installs a package, named as Debian, Fedora and Arch call it.
    pub fn install(self, [debian, fedora, arch]: [&str; 3]) -> String {
        match self {
            Self::Debian | Self::Ubuntu => format!("sudo apt install {debian}"),
            Self::Fedora => format!("sudo dnf install {fedora}"),
            Self::Arch => format!("sudo pacman -S {arch}"),
            Self::Other => format!("install {debian}, as Debian calls it"),
        }
    }
}

/// A machine, seen from a root folder.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    /// What the running kernel says of modules.
    pub system: System,
    /// Whether the kernel has the call that inserts modules, where that was tried.
    pub inserts: Option<bool>,
    /// Its distribution.
    pub distribution: Distribution,
    /// The running kernel's configuration, and where it is.
    pub config: Option<(PathBuf, String)>,
}

impl Machine {
    /// This one.
    pub fn now() -> Self {
        let System {
            release, machine, ..
        } = System::now();
        Self {
            inserts: has_finit_module(),
            ..Self::seen_in(Path::new("/"), &release, &machine)
        }
    }

    /// A machine whose files are below a folder, with a kernel that calls itself and its hardware so.
    pub fn seen_in(root: &Path, release: &str, machine: &str) -> Self {
        let read = |path: &str| fs::read_to_string(resolve(root, Path::new(path))).ok();
        let os_release = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
        let config = CONFIGS.iter().find_map(|pattern| {
            let path = pattern.replace("{}", release);
            let text = configuration(&resolve(root, Path::new(&path)))?;
            Some((PathBuf::from(path), text))
        });
        Self {
            root: root.to_owned(),
            system: System::seen_in(root, release.to_owned(), machine.to_owned()),
            inserts: None,
            distribution: Distribution::of(&os_release.unwrap_or_default()),
            config,
        }
    }

    /// A setting of the running kernel, where its configuration is known: its value, `n` where it is not set.
    pub fn setting(&self, name: &str) -> Option<&str> {
        let (_, config) = self.config.as_ref()?;
        Some(proof::config_value(config, name).unwrap_or("n"))
    }

    /// The release of the running kernel.
    pub fn release(&self) -> &str {
        &self.system.release
    }

    /// The package that the running kernel came in, which Arch notes beside its modules.
    pub fn pkgbase(&self) -> Option<String> {
        let path = format!("/lib/modules/{}/pkgbase", self.release());
        let text = fs::read_to_string(resolve(&self.root, Path::new(&path))).ok()?;
        Some(text.trim().to_owned())
    }

    /// The kernel folder of the running kernel, there or not.
    pub fn folder(&self) -> Folder {
        self.folder_at(&self.folder_path())
    }

    /// Where that is looked for.
    pub fn folder_path(&self) -> PathBuf {
        Path::new("/lib/modules").join(self.release()).join("build")
    }

    /// The kernel folder at a path, there or not.
    pub fn folder_at(&self, path: &Path) -> Folder {
        let seen = |name: &str| resolve(&self.root, &path.join(name));
        let has = |name: &str| seen(name).exists();
        let text = |name: &str| fs::read_to_string(seen(name)).ok();
        let metadata = [
            "rust/libcore.rmeta",
            "rust/libkernel.rmeta",
            "rust/libmacros.so",
        ];
        Folder {
            path: path.to_owned(),
            is_there: has("Makefile") && has("include/config/auto.conf"),
            release: text("include/config/kernel.release").map(|text| text.trim().to_owned()),
            config: text(".config"),
            missing: metadata.into_iter().filter(|name| !has(name)).collect(),
            rustc: fs::read(seen("rust/libcore.rmeta"))
                .ok()
                .and_then(|bytes| proof::metadata_rustc(&bytes).map(str::to_owned)),
            has_source: has("rust/Makefile") || has("source/rust/Makefile"),
            bindgen: text("scripts/min-tool-version.sh")
                .or_else(|| text("source/scripts/min-tool-version.sh"))
                .and_then(|script| minimum(&script, "bindgen").map(str::to_owned)),
        }
    }
}

/// A kernel folder, as far as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is looked for.
    pub path: PathBuf,
    /// Whether it is one at all.
    pub is_there: bool,
    /// The release that it is for.
    pub release: Option<String>,
    /// Its configuration.
    pub config: Option<String>,
    /// What of the Rust metadata is not there.
    pub missing: Vec<&'static str>,
    /// The rustc that wrote the metadata.
    pub rustc: Option<String>,
    /// Whether the kernel's source is at hand, as in a tree of one's own.
    pub has_source: bool,
    /// The oldest bindgen that the kernel takes.
    pub bindgen: Option<String>,
}

/// The oldest version of a tool in the kernel's own list, a shell script: the word behind `echo` behind `tool)`.
fn minimum<'a>(script: &'a str, tool: &str) -> Option<&'a str> {
    let label = format!("{tool})");
    let mut lines = script.lines().map(str::trim);
    lines.find(|line| *line == label)?;
    lines.next()?.strip_prefix("echo ")
}

/// A configuration, compressed or not.
fn configuration(path: &Path) -> Option<String> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return fs::read_to_string(path).ok();
    }
    if !path.exists() {
        return None;
    }
    let output = Command::new("gzip").arg("-cd").arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

/// Where a path leads below a root folder: links are followed as if that were the root. What is not there stays as it is.
fn resolve(root: &Path, path: &Path) -> PathBuf {
    let parts = |path: &Path| -> VecDeque<OsString> {
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        names.collect()
    };
    let (mut at, mut left, mut links) = (root.to_owned(), parts(path), 0);
    while let Some(part) = left.pop_front() {
        if part == ".." {
            if at != root {
                at.pop();
            }
            continue;
        }
        let next = at.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < LINKS => {
                links += 1;
                if target.is_absolute() {
                    at = root.to_owned();
                }
                let mut all = parts(&target);
                all.append(&mut left);
                left = all;
            }
            _ => at = next,
        }
    }
    at
}

/// Whether the kernel has finit_module(), asked with a file that is no module: where it is missing that does not matter.
fn has_finit_module() -> Option<bool> {
    let nothing = fs::File::open("/dev/null").ok()?;
    let answer = rustix::system::finit_module(&nothing, c"", 0);
    Some(answer != Err(rustix::io::Errno::NOSYS))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn relatives_of_distributions_are_known() {
        for (text, expected) in [
            ("ID=debian\n", Distribution::Debian),
            (
                "NAME=\"x\"\nID=ubuntu\nID_LIKE=debian\n",
                Distribution::Ubuntu,
            ),
            (
                "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                Distribution::Ubuntu,
            ),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                Distribution::Fedora,
            ),
            ("ID=manjaro\nID_LIKE=arch\n", Distribution::Arch),
            ("ID=void\n", Distribution::Other),
            ("", Distribution::Other),
        ] {
            assert_eq!(Distribution::of(text), expected, "{text}");
        }
    }

    #[test]
    fn the_kernels_minimum_is_read() {
        let script =
            "case \"$1\" in\nrustc)\n\techo 1.85.0\n\t;;\nbindgen)\n\techo 0.71.1\n\t;;\n*)\n";
        assert_eq!(minimum(script, "bindgen"), Some("0.71.1"));
        assert_eq!(minimum(script, "pahole"), None);
    }

    #[test]
    fn links_stay_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("usr/src/headers")).unwrap();
        fs::create_dir_all(root.join("lib/modules/7.3")).unwrap();
        symlink("/usr/src/headers", root.join("lib/modules/7.3/build")).unwrap();
        symlink("../rust", root.join("usr/src/headers/rust")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let leads = |path: &str| resolve(root, Path::new(path));
        assert_eq!(
            leads("/lib/modules/7.3/build/rust/x"),
            root.join("usr/src/rust/x")
        );
        assert_eq!(leads("/../../etc"), root.join("etc"));
        // Ends, wherever.
        leads("/loop/x");
    }

    #[test]
    fn configurations_may_be_compressed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let path = folder.path().join("proc/config");
        fs::write(&path, "CONFIG_RUST=y\n").unwrap();
        let status = Command::new("gzip").arg(&path).status().unwrap();
        assert!(status.success());
        let machine = Machine::seen_in(folder.path(), "7.3.4", "x86_64");
        assert_eq!(machine.setting("CONFIG_RUST"), Some("y"));
        assert_eq!(machine.setting("CONFIG_MODULES"), Some("n"));
        assert_eq!(machine.config.unwrap().0, Path::new("/proc/config.gz"));
    }
}
