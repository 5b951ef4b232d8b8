// SPDX-License-Identifier: GPL-2.0

//! The smallest userland that somebody can type at, for any architecture: Debian's static busybox as an initramfs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

use super::initramfs;
use super::userland::FOLDER;
use crate::cache::Cache;
use crate::event::Event;
use crate::kernel::Options;
use crate::kernel::archive::Archive;
use crate::kernel::table::Arch;
use crate::process::Env;

/// The release that it is taken from, whatever the kernel's.
const SUITE: &str = "trixie";

/// The package.
const PACKAGE: &str = "busybox-static";

/// What runs first.
const INIT: &str = include_str!("busybox.sh");

/// Where that looks for things.
const FOLDERS: &[&str] = &[
    "/bin", "/dev", "/etc", "/proc", "/home", "/sbin", "/sys", "/tmp", "/var", "/var/log",
];

/// The initramfs. The program is taken from the cache if that has it.
///
/// # Errors
///
/// The archive cannot be reached or refuses, or the disk is full.
pub fn ensure(env: &Env<'_>, cache: &Cache, arch: &Arch) -> Result<Vec<u8>> {
    let file = cache
        .join(FOLDER)
        .join(format!("{SUITE}-{}-busybox", arch.debian));
    if !file.exists() {
        fetch(env, cache, arch, &file)?;
    }
    let program = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    initramfs::userland(
        FOLDERS,
        [
            ("/bin/busybox", 0o755, &program[..]),
            ("/sbin/init", 0o755, INIT.as_bytes()),
        ],
    )
}

fn fetch(env: &Env<'_>, cache: &Cache, arch: &Arch, file: &Path) -> Result<()> {
    let archive = Archive::open(*env, cache, arch.debian, &Options::default())?;
    let suite = archive.update(SUITE)?.map_err(|why| anyhow!(why))?;
    env.emit(Event::Step(format!(
        "fetching {PACKAGE} for {}",
        arch.debian
    )));
    let scratch = cache.scratch("busybox")?;
    let unpacked = archive.unpack_newest(&suite, PACKAGE, scratch.path())?;
    let program = ["bin", "usr/bin"]
        .iter()
        .map(|place| unpacked.join(place).join("busybox"))
        .find(|path| path.is_file())
        .with_context(|| format!("the package {PACKAGE} has no busybox in it"))?;
    cache.whole(file, |partial| {
        fs::copy(&program, partial)
            .map(drop)
            .with_context(|| format!("cannot copy {}", program.display()))
    })
}
