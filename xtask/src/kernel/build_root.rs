// SPDX-License-Identifier: GPL-2.0

//! The build root: a Debian tree with exactly the tool chain that built the target kernel, and QEMU.
//!
//! One run of mmdebstrap makes it whole. Its files belong to the caller, so entering it takes no more than a user namespace
//! with one user in it; as root not even that.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::{
    cache::{self, Cache, require_space},
    event::{Event, Unit},
    kernel::{
        archive::{Archive, KEYRING, Suite},
        table::{AMD64, Arch},
    },
    process::{Env, Stream, find_program, tied, tied_group},
};

/// What a tree takes on the disk, with room to spare.
const TREE_BYTES: u64 = 1_600_000_000;

/// What mmdebstrap takes while it makes one: the tree and its packages.
const SCRATCH_BYTES: u64 = 2_000_000_000;

/// What making one takes in all.
pub const BYTES: u64 = TREE_BYTES + SCRATCH_BYTES;

/// Making a tree, slow mirrors included.
pub const TREE_DEADLINE: Duration = Duration::from_secs(1800);

/// A look whether something works at all.
const PROBE_DEADLINE: Duration = Duration::from_secs(60);

/// Hidden: with the value `host`, programs run from `PATH`, and what the cache holds is taken as it is. For tests.
const OVERRIDE: &str = "MESSUNG_BUILD_ROOT";

/// The package with Rust's standard library, which is needed for each architecture that is built for.
const RUST_LIBRARY: &str = "libstd-rust-dev";

/// The packages that are of one version with rustc.
pub const RUST_PACKAGES: &[&str] = &[
    "rustc",
    "cargo",
    RUST_LIBRARY,
    "rust-clippy",
    "rust-src",
    "rustfmt",
];

/// What else building a kernel folder and a module takes. openssl and dwarves are there because their presence is a fact of
/// `.config`: without them olddefconfig would change it.
const PACKAGES: &[&str] = &[
    "bc",
    "bindgen",
    "bison",
    "clang",
    "cpio",
    "dwarves",
    "flex",
    "gcc",
    "kmod",
    "libc6-dev",
    "libclang-dev",
    "libelf-dev",
    "libssl-dev",
    "lld",
    "llvm",
    "make",
    "openssl",
    "perl",
    "python3",
    "xz-utils",
];

/// What nobody needs who only builds: documents, translations, static libraries of LLVM, and of Rust's source all but the
/// library. Options of dpkg; the last one that matches counts, and `*` matches slashes, too.
const LEFT_OUT: &[&str] = &[
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/i18n/*",
    "path-exclude=/usr/lib/llvm-*/lib/*.a",
    "path-exclude=/usr/src/rustc-*",
    "path-include=/usr/src/rustc-*/library/*",
];

/// Folders on which something is mounted inside; they are there from the start.
const MOUNT_POINTS: &[&str] = &["kernel", "messung", "out", "vendor", "target"];

/// What a tree is made of. Two kernels with the same recipe share a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The architecture that it builds for. Its own programs are the host's in any case.
    pub arch: &'static Arch,
    /// Suites, the base first.
    pub suites: Vec<Suite>,
    /// Version of the packages of Rust.
    pub rust: String,
    /// Package of the compiler that built the kernel, such as `gcc-14`.
    pub compiler: String,
}

impl Recipe {
    /// What mmdebstrap is to include.
    fn packages(&self) -> Vec<String> {
        let rust = RUST_PACKAGES
            .iter()
            .map(|name| format!("{name}={}", self.rust));
        let plain = PACKAGES.iter().map(|&name| name.to_owned());
        let own = [
            self.arch.compiler_package(&self.compiler),
            self.arch.qemu_package.to_owned(),
        ];
        rust.chain(plain).chain(own).chain(self.foreign()).collect()
    }

    /// What building for another architecture takes besides.
    fn foreign(&self) -> Vec<String> {
        if !self.arch.is_foreign() {
            return Vec::new();
        }
        let name = self.arch.debian;
        let rust = format!("{RUST_LIBRARY}:{name}={}", self.rust);
        let c = format!("libc6-dev:{name}");
        let others = self.arch.packages.iter().map(|&name| name.to_owned());
        [rust, c].into_iter().chain(others).collect()
    }

    /// The architectures of its packages, its own first.
    fn architectures(&self) -> String {
        if self.arch.is_foreign() {
            format!("{},{}", AMD64.debian, self.arch.debian)
        } else {
            AMD64.debian.to_owned()
        }
    }

    /// Name of the tree's folder: readable, and different for each recipe.
    pub fn name(&self) -> String {
        let suites: Vec<_> = self
            .suites
            .iter()
            .map(|suite| suite.name.as_str())
            .collect();
        let all = [
            self.packages().join(","),
            LEFT_OUT.join(","),
            MOUNT_POINTS.join(","),
            suites.join(","),
        ];
        let hash = hex(&Sha256::digest(all.join("\n")));
        format!("{}-{}-{}", suites[0], self.arch.debian, &hash[..12])
    }
}

/// The arguments of mmdebstrap that make a tree and write it as tar to standard output.
fn mmdebstrap_arguments(recipe: &Recipe, is_root: bool, network: &[String]) -> Vec<String> {
    let mut args = options(
        is_root,
        &recipe.architectures(),
        &recipe.packages(),
        network,
    );
    args.push("--format=tar".to_owned());
    args.extend(target(&recipe.suites, "-"));
    args
}

/// The options of mmdebstrap for whatever is made of such a tree.
pub fn options(
    is_root: bool,
    architectures: &str,
    packages: &[String],
    network: &[String],
) -> Vec<String> {
    let mut args = vec![
        format!("--mode={}", if is_root { "root" } else { "unshare" }),
        "--variant=essential".to_owned(),
        "--verbose".to_owned(),
        format!("--architectures={architectures}"),
        format!("--keyring={KEYRING}"),
        format!("--include={}", packages.join(",")),
        // A tree that did not survive would not be put into place, so nothing is gained by waiting for the disk.
        "--dpkgopt=force-unsafe-io".to_owned(),
        "--aptopt=APT::Install-Recommends \"false\"".to_owned(),
    ];
    args.extend(
        network
            .iter()
            .map(|line| format!("--aptopt={}", line.trim_end_matches(';'))),
    );
    args.extend(LEFT_OUT.iter().map(|option| format!("--dpkgopt={option}")));
    args
}

/// The arguments after them: where mmdebstrap writes to, and where packages come from, the base first.
pub fn target(suites: &[Suite], target: &str) -> Vec<String> {
    let lines = suites.iter().map(|suite| suite.line.trim());
    [suites[0].name.as_str(), target]
        .into_iter()
        .chain(lines)
        .map(str::to_owned)
        .collect()
}

/// A folder or file of the host, seen at a path inside the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// On the host.
    pub from: PathBuf,
    /// Inside, absolute.
    pub to: PathBuf,
}

impl Bind {
    /// Shows `from` of the host as `to` inside.
    pub fn new(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
        }
    }
}

/// A build root that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
    /// [`ENTER`] as a file.
    enter: PathBuf,
    is_root: bool,
}

/// Mounts what is asked for and runs a program inside, as its parent: a program that is process 1 of its namespace would not
/// die of its own signals. The mounts go with the namespace.
const ENTER: &str = r#"# enter ROOT [FROM TO]... -- PROGRAM [ARGUMENT]...
set -eu
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; : >>"$root$2"; fi
    mount --rbind "$1" "$root$2"
    shift 2
done
shift
status=0
chroot "$root" "$@" || status=$?
exit $status
"#;

impl Tree {
    /// The tree of that name in the cache, made or not.
    ///
    /// # Errors
    ///
    /// The script that enters it cannot be written.
    pub fn named(cache: &Cache, name: &str) -> Result<Self> {
        const SCRIPT: &str = "enter";
        cache.write(SCRIPT, ENTER)?;
        Ok(Self {
            root: cache.join("trees").join(name),
            enter: cache.join(SCRIPT),
            is_root: is_root(),
        })
    }

    /// Whether tests have asked to run the host's programs.
    pub fn is_overridden() -> bool {
        std::env::var_os(OVERRIDE).is_some_and(|value| value == "host")
    }

    /// Makes the tree of a recipe, unless the cache has it.
    ///
    /// # Errors
    ///
    /// Namespaces are not to be had, mmdebstrap is missing or fails, the disk is full.
    pub fn ensure(
        env: &Env<'_>,
        cache: &Cache,
        recipe: &Recipe,
        archive: &Archive<'_>,
    ) -> Result<Self> {
        let tree = Self::named(cache, &recipe.name())?;
        if tree.root.exists() {
            return Ok(tree);
        }
        env.emit(Event::Step(format!(
            "making the build root: Debian {} with rustc {} and QEMU",
            recipe.suites[0].name, recipe.rust
        )));
        let scratch = Scratch::new(cache, tree.is_root)?;
        require_tree_space(&cache.join(""), scratch.path())?;
        cache.whole(&tree.root, |path| {
            fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
            let mut make = mmdebstrap(tree.is_root);
            make.env("LC_ALL", "C")
                .env("TMPDIR", scratch.path())
                .args(mmdebstrap_arguments(
                    recipe,
                    tree.is_root,
                    archive.network(),
                ));
            let mut unpack = tied("tar", "KILL");
            unpack
                .env("LC_ALL", "C")
                .args([
                    "--extract",
                    "--file=-",
                    "--no-same-owner",
                    "--exclude=./dev/*",
                ])
                .arg("--directory")
                .arg(path);
            env.pipe(
                make,
                unpack,
                "making the build root",
                Some(TREE_DEADLINE),
                &mut progress(env),
            )?;
            MOUNT_POINTS.iter().try_for_each(|name| {
                let path = path.join(name);
                fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))
            })
        })?;
        Ok(tree)
    }

    /// `unshare` with the namespaces that entering takes, and the fixed environment.
    fn unshare(is_root: bool) -> Command {
        let mut command = tied("unshare", "KILL");
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", "/tmp")
            .env("TERM", "dumb");
        if !is_root {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--"]);
        command
    }

    /// A command that runs a program inside the tree, with `binds` in place. Arguments and variables can be added. Its
    /// environment is a fixed one, so that what is built does not depend on who builds it.
    pub fn command(&self, binds: &[Bind], program: impl AsRef<OsStr>) -> Command {
        if Self::is_overridden() {
            return Command::new(program);
        }
        let mut command = Self::unshare(self.is_root);
        command
            .env("KBUILD_BUILD_USER", "messung")
            .env("KBUILD_BUILD_HOST", "messung")
            .env("KBUILD_BUILD_TIMESTAMP", "2026-01-01 00:00:00 UTC")
            .env("SOURCE_DATE_EPOCH", "1767225600")
            .arg("sh")
            .arg(&self.enter)
            .arg(&self.root);
        for bind in binds {
            command.arg(&bind.from).arg(&bind.to);
        }
        command.arg("--").arg(program);
        command
    }
}

/// Counts packages in what mmdebstrap prints.
#[derive(Default)]
struct Packages {
    set_up: u64,
    to_install: u64,
}

impl Packages {
    /// Done and total, after a line that changes them.
    fn take(&mut self, line: &str) -> Option<(u64, u64)> {
        if line.starts_with("Setting up ") {
            self.set_up += 1;
        } else if let Some((_, rest)) = line.split_once(" upgraded, ") {
            let (count, _) = rest.split_once(" newly installed")?;
            self.to_install += count.parse::<u64>().ok()?;
        } else {
            return None;
        }
        Some((self.set_up, self.to_install.max(self.set_up)))
    }
}

/// Makes progress events of what mmdebstrap prints.
pub fn progress(env: &Env<'_>) -> impl FnMut(Stream, &str) {
    let mut packages = Packages::default();
    move |stream, line| {
        let counted = (stream == Stream::Err).then(|| packages.take(line));
        if let Some((done, total)) = counted.flatten() {
            env.emit(Event::Progress {
                done,
                total: Some(total),
                unit: Unit::Packages,
            });
        }
    }
}

/// Where mmdebstrap puts a tree while it makes it.
pub enum Scratch {
    /// Root's is in the cache, and removed with what a killed mmdebstrap left.
    Own(cache::Scratch),
    /// An ordinary user's has to be where other user ids may go, too: `/var/tmp` or `TMPDIR`, but not `/tmp`, which often is
    /// memory.
    Shared(PathBuf),
}

impl Scratch {
    /// For a run of mmdebstrap.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub fn new(cache: &Cache, is_root: bool) -> Result<Self> {
        if is_root {
            return Ok(Self::Own(cache.scratch("mmdebstrap")?));
        }
        let folder = std::env::var_os("TMPDIR").map(PathBuf::from);
        Ok(Self::Shared(folder.unwrap_or_else(|| "/var/tmp".into())))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Own(scratch) => scratch.path(),
            Self::Shared(path) => path,
        }
    }
}

/// mmdebstrap such that it ends with us. As root it mounts, so it gets namespaces of its own: whatever happens to it, no mount
/// is left on the machine. For an ordinary user it makes such namespaces itself, and cleans up when all of it is told to end.
pub fn mmdebstrap(is_root: bool) -> Command {
    if !is_root {
        return tied_group("mmdebstrap");
    }
    let mut command = tied("unshare", "KILL");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--", "mmdebstrap"]);
    command
}

/// Fails unless there is room for a tree and for its making.
fn require_tree_space(cache: &Path, scratch: &Path) -> Result<()> {
    let device = |path: &Path| path.metadata().ok().map(|data| data.dev());
    if device(cache) == device(scratch) {
        return require_space(cache, BYTES, "making the build root");
    }
    require_space(cache, TREE_BYTES, "the build root")?;
    require_space(scratch, SCRATCH_BYTES, "making the build root")
}

/// Whether we are root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds out whether this machine lets us enter a tree at all, before anything is downloaded.
///
/// # Errors
///
/// It does not; the message says why and what to do.
pub fn ensure_namespaces(env: &Env<'_>) -> Result<()> {
    let is_root = is_root();
    if !is_root && find_program("newuidmap").is_none() {
        bail!(
            "the program newuidmap is missing; install the package uidmap, or run messung as root"
        );
    }
    let mut command = Tree::unshare(is_root);
    command.args([
        "sh",
        "-c",
        "mount -t tmpfs probe /mnt && mount -t proc proc /proc",
    ]);
    env.run(command, "looking for namespaces", Some(PROBE_DEADLINE))
        .map(drop)
        .with_context(|| {
            if is_root {
                "this machine does not let root mount file systems, as in an unprivileged container; \
                 give the container the right to mount (CAP_SYS_ADMIN), or run messung outside of it"
            } else {
                "this machine gives an ordinary user no user namespace to mount in; allow that (sysctl \
                 user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                 kernel.apparmor_restrict_unprivileged_userns=0), or run messung as root"
            }
        })
}

/// The packages, as Debian calls them, that building a tree needs and the host lacks.
pub fn missing_host_tools() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if find_program("mmdebstrap").is_none() {
        missing.push("mmdebstrap");
    }
    if !Path::new(KEYRING).exists() {
        missing.push("debian-archive-keyring");
    }
    missing
}

/// What building a tree needs of the host: installed by apt, after saying so, where we are root on Debian or Ubuntu.
///
/// # Errors
///
/// It is missing and cannot be installed; the message says what to install.
pub fn ensure_host_tools(env: &Env<'_>) -> Result<()> {
    let missing = missing_host_tools();
    if missing.is_empty() {
        return Ok(());
    }
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let names = missing.join(" ");
    if !is_root() || !is_debian_like(&os_release) || find_program("apt-get").is_none() {
        bail!(
            "{} missing; install {} (on Debian or Ubuntu: sudo apt-get install {names})",
            if missing.len() == 1 {
                format!("{names} is")
            } else {
                format!("{} are", missing.join(" and "))
            },
            if missing.len() == 1 { "it" } else { "them" },
        );
    }
    env.emit(Event::Note(format!(
        "installing {names} with apt, since {} missing",
        if missing.len() == 1 {
            "it is"
        } else {
            "they are"
        }
    )));
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(args);
        command
    };
    let install = || {
        let mut command = apt(&["install", "--yes", "--no-install-recommends"]);
        command.args(&missing);
        command
    };
    let label = format!("installing {names}");
    // A machine whose package lists are fresh needs no update; one that has none does.
    if env
        .run(install(), &label, Some(Duration::from_secs(600)))
        .is_ok()
    {
        return Ok(());
    }
    env.run(
        apt(&["update"]),
        "updating apt's lists",
        Some(Duration::from_secs(600)),
    )?;
    env.run(install(), &label, Some(Duration::from_secs(600)))?;
    Ok(())
}

/// Whether this is Debian, Ubuntu, or made from them.
fn is_debian_like(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| {
            line.strip_prefix("ID=")
                .or_else(|| line.strip_prefix("ID_LIKE="))
        })
        .flat_map(|ids| ids.trim_matches('"').split(' '))
        .any(|id| id == "debian" || id == "ubuntu")
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::table::ARMHF;
    use crate::process::shell;

    fn recipe() -> Recipe {
        Recipe {
            arch: &AMD64,
            suites: vec![Suite {
                name: "trixie".into(),
                warning: None,
                line: "deb http://mirror.example/debian trixie main\n".into(),
            }],
            rust: "1.85.1+dfsg1-1".into(),
            compiler: "gcc-14".into(),
        }
    }

    #[test]
    fn each_recipe_has_its_name() {
        let one = recipe();
        assert!(one.name().starts_with("trixie-amd64-"), "{}", one.name());
        assert_eq!(one.name(), recipe().name());
        let mut other = recipe();
        other.rust = "1.97.1+dfsg1-1".into();
        assert_ne!(one.name(), other.name());
        // Where the packages come from does not change what they are.
        other = recipe();
        other.suites[0].line = "deb http://other.example/debian trixie main\n".into();
        assert_eq!(one.name(), other.name());
    }

    #[test]
    fn rust_is_pinned() {
        let args = mmdebstrap_arguments(&recipe(), false, &[]);
        let include = args
            .iter()
            .find(|arg| arg.starts_with("--include="))
            .unwrap();
        assert!(include.contains("rustc=1.85.1+dfsg1-1,"));
        assert!(include.contains(",openssl,"));
        assert!(include.ends_with(",gcc-14,qemu-system-x86"));
        assert_eq!(args[0], "--mode=unshare");
        assert_eq!(
            args.last().unwrap(),
            "deb http://mirror.example/debian trixie main"
        );
    }

    #[test]
    fn what_is_built_for_another_architecture_is_built_by_the_hosts_programs() {
        let recipe = Recipe {
            arch: &ARMHF,
            ..recipe()
        };
        assert!(recipe.name().starts_with("trixie-armhf-"));
        let args = mmdebstrap_arguments(&recipe, false, &[]).join(" ");
        assert!(args.contains("--architectures=amd64,armhf "), "{args}");
        for package in [
            "rustc=1.85.1+dfsg1-1",
            "libstd-rust-dev:armhf=1.85.1+dfsg1-1",
            "libc6-dev:armhf",
            "gcc-14-arm-linux-gnueabihf",
            "qemu-system-arm",
        ] {
            assert!(
                args.contains(&format!(",{package},")) || args.contains(&format!("={package},")),
                "{package}: {args}"
            );
        }
    }

    #[test]
    fn an_ordinary_user_takes_a_user_namespace() {
        let tree = |is_root| Tree {
            root: "/trees/x".into(),
            enter: "/enter".into(),
            is_root,
        };
        let binds = [Bind::new("/home/me/repo", "/messung")];
        let text = shell(&tree(false).command(&binds, "make"));
        assert!(
            text.contains("unshare --user --map-root-user --mount"),
            "{text}"
        );
        assert!(
            text.ends_with("sh /enter /trees/x /home/me/repo /messung -- make"),
            "{text}"
        );
        let text = shell(&tree(true).command(&binds, "make"));
        assert!(text.contains("unshare --mount"), "{text}");
    }

    #[test]
    fn packages_are_counted() {
        let mut packages = Packages::default();
        assert_eq!(packages.take("Get:1 http://mirror.example x"), None);
        assert_eq!(
            packages.take("0 upgraded, 3 newly installed, 0 to remove and 0 not upgraded."),
            Some((0, 3))
        );
        assert_eq!(
            packages.take("Setting up gcc-14 (14.2.0-19) ..."),
            Some((1, 3))
        );
    }

    #[test]
    fn relatives_of_debian_are_known() {
        assert!(is_debian_like("ID=debian\n"));
        assert!(is_debian_like("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like("ID=fedora\n"));
    }
}
