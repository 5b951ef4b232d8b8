// SPDX-License-Identifier: GPL-2.0

//! A PC's userland: Debian with systemd, journald, rsyslog and a user who may use sudo, as an initramfs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use sha2::{Digest as _, Sha256};

use crate::cache::{Cache, require_space};
use crate::event::Event;
use crate::kernel::Options;
use crate::kernel::archive::{Archive, Suite};
use crate::kernel::build_root::{
    self, Scratch, TREE_DEADLINE, ensure_host_tools, ensure_namespaces, hex, is_root, mmdebstrap,
    progress,
};
use crate::process::{Env, quote};

/// The release, and Debian's name of the architecture.
const SUITE: &str = "trixie";
const ARCH: &str = "amd64";

/// What a PC has, beside what each Debian has.
const PACKAGES: &[&str] = &[
    "busybox",
    "kmod",
    "libpam-systemd",
    "login",
    "openssl",
    "passwd",
    "procps",
    "rsyslog",
    "sudo",
    "systemd-sysv",
    "util-linux",
];

/// Runs inside, in the end.
const SETUP: &str = include_str!("userland.sh");

/// Where [`SETUP`] leaves the archive.
const ARCHIVE: &str = "/userland.cpio";

/// What mmdebstrap takes while it makes one, with the archive.
const SCRATCH_BYTES: u64 = 600_000_000;

/// The initramfs, made unless the cache has it.
///
/// # Errors
///
/// Namespaces are not to be had, the archive cannot be reached or refuses, mmdebstrap is missing or fails, the disk is full.
pub fn ensure(env: &Env<'_>, cache: &Cache) -> Result<PathBuf> {
    let path = cache.join(FOLDER).join(file_name());
    if path.exists() {
        return Ok(path);
    }
    ensure_namespaces(env)?;
    ensure_host_tools(env)?;
    let archive = Archive::open(*env, cache, ARCH, &Options::default())?;
    let suite = archive.update(SUITE)?.map_err(|why| anyhow!(why))?;
    env.emit(Event::Step(format!("making a PC: Debian {SUITE}")));
    let scratch = Scratch::new(cache, is_root())?;
    require_space(scratch.path(), SCRATCH_BYTES, "making a PC")?;
    cache.whole(&path, |partial| {
        let mut make = mmdebstrap(is_root());
        make.env("LC_ALL", "C")
            .env("TMPDIR", scratch.path())
            .args(arguments(is_root(), suite, archive.network(), partial));
        env.watch(make, "making a PC", Some(TREE_DEADLINE), &mut progress(env))?;
        let is_there = partial.metadata().is_ok_and(|data| data.len() > 0);
        is_there
            .then_some(())
            .with_context(|| format!("mmdebstrap did not write {}", partial.display()))
    })?;
    Ok(path)
}

/// The cache's folder of them.
pub const FOLDER: &str = "userlands";

/// Different for each recipe.
fn file_name() -> String {
    let hash = hex(&Sha256::digest(
        [PACKAGES.join(","), SETUP.to_owned()].join("\n"),
    ));
    format!("{SUITE}-{ARCH}-{}.cpio", &hash[..12])
}

/// The arguments of mmdebstrap.
fn arguments(is_root: bool, suite: Suite, network: &[String], to: &Path) -> Vec<String> {
    let packages: Vec<_> = PACKAGES.iter().map(|name| (*name).to_owned()).collect();
    let mut args = build_root::options(is_root, ARCH, &packages, network);
    args.extend([
        "--format=null".to_owned(),
        // Inside, all owners are what they must be in the end, whoever makes it.
        format!(
            "--customize-hook=chroot \"$1\" sh -eu -c {}",
            quote(SETUP.as_ref())
        ),
        format!(
            "--customize-hook=download {ARCHIVE} {}",
            quote(to.as_os_str())
        ),
    ]);
    args.extend(build_root::target(&[suite], "/dev/null"));
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_leaves_the_tree_whole() {
        let suite = Suite {
            name: SUITE.into(),
            warning: None,
            line: "deb http://mirror.example/debian trixie main\n".into(),
        };
        let args = arguments(false, suite, &[], Path::new("/c/a b.cpio"));
        assert!(args.contains(&"--format=null".to_owned()));
        assert!(
            args.contains(&"--customize-hook=download /userland.cpio '/c/a b.cpio'".to_owned())
        );
        assert_eq!(
            args[args.len() - 3..],
            [
                "trixie",
                "/dev/null",
                "deb http://mirror.example/debian trixie main"
            ]
        );
        assert!(SETUP.contains(ARCHIVE), "{ARCHIVE} is never written");
    }
}
