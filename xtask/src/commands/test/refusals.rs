// SPDX-License-Identifier: GPL-2.0

//! What goes wrong outside of this program must end in a clear message, with nothing half-made left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::bench::{Bench, Ended, Surroundings};
use super::harness::{Check, Need, check};
use super::mirror::{Lie, Mirror};
use crate::kernel::table::TABLE;
use crate::kernel::{self, Options};

/// Where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:9/debian";

/// Mounts a disk of 64 MB on its first argument, and runs the rest.
const SMALL_DISK: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-c",
    r#"mount -t tmpfs -o size=64m messung-test "$XDG_CACHE_HOME" && exec "$@""#,
    "sh",
];

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    use Need::{Kernels, Network, Root};
    vec![
        check("refused: a kernel that is in no table", &[], unknown_kernel),
        check("refused: nothing to parse", &[], no_run),
        check("refused: an archive out of reach", &[Kernels], unreachable),
        check("refused: an index with a wrong hash", &[Kernels], |bench| {
            lying_mirror(bench, Lie::Hash, "is not what the signed index says")
        }),
        check(
            "refused: an index with a wrong signature",
            &[Kernels],
            |bench| lying_mirror(bench, Lie::Signature, "signature is not valid"),
        ),
        check("refused: no space on the disk", &[Root, Kernels], full_disk),
        check("refused: a kernel folder without Rust", &[], no_metadata),
        check(
            "refused: a kernel folder of another rustc",
            &[Kernels],
            other_rustc,
        ),
        check(
            "Ctrl-C while a build root is made",
            &[Network, Kernels],
            interrupted,
        ),
    ]
}

/// Debian's kernel, whatever is running.
const STOCK: &[&str] = &["--kernel", "amd64"];

/// Runs `build` with a cache of its own, under a launcher; it must fail, and leave nothing half-made.
fn refused(bench: &Bench<'_>, launcher: &[&str], arguments: &[&str], code: i32) -> Result<Ended> {
    let cache = bench.folder()?;
    let before = Surroundings::now()?;
    let mut command = bench.xtask_under(launcher, &[&["build"], arguments].concat());
    command.env("XDG_CACHE_HOME", &cache);
    let ended = bench.end(command)?.exits(code)?;
    before.are_unchanged()?;
    nothing_made(&cache)?;
    Ok(ended)
}

/// Requires that a cache holds nothing that was made, and nothing half-made.
fn nothing_made(cache: &Path) -> Result<()> {
    let messung = cache.join("messung");
    for name in ["trees", "kernels", "modules", "rows", "guest"] {
        let left =
            fs::read_dir(messung.join(name)).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(
            !left,
            "something is left in {}",
            messung.join(name).display()
        );
    }
    if let Ok(entries) = fs::read_dir(&messung) {
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_partial = name.to_string_lossy().ends_with(".partial");
            ensure!(!is_partial, "{name:?} is left in {}", messung.display());
        }
    }
    Ok(())
}

fn unknown_kernel(bench: &Bench<'_>) -> Result<String> {
    let mut ended = refused(bench, &[], &["--kernel", "no-such-row"], 2)?.says("no-such-row")?;
    for row in TABLE {
        ended = ended.says(row.name)?;
    }
    let out = bench.folder()?.join("out");
    let mut script = Command::new(bench.repository.join("scripts/qemu-test.sh"));
    script.arg("no-such-row").arg(&out);
    bench.end(script)?.exits(2)?.says("no-such-row")?;
    ensure!(!out.exists(), "qemu-test.sh leaves {}", out.display());
    Ok(String::new())
}

fn no_run(bench: &Bench<'_>) -> Result<String> {
    bench
        .end_xtask(&["parse", "/dev/null"])?
        .exits(1)?
        .says("no run of messung")?;
    bench
        .end_xtask(&["parse", "/nonexistent"])?
        .exits(1)?
        .says("/nonexistent")?;
    Ok(String::new())
}

fn unreachable(bench: &Bench<'_>) -> Result<String> {
    refused(bench, &[], &[STOCK, &["--mirror", NOWHERE]].concat(), 1)?
        .says("cannot be reached")?
        .says("127.0.0.1")?;
    Ok(String::new())
}

fn lying_mirror(bench: &Bench<'_>, lie: Lie, sentence: &str) -> Result<String> {
    // Signed indices are in the cache once a kernel was fetched.
    drop(kernel::prepare(&bench.env, &TABLE[0], &Options::default())?);
    let mirror = Mirror::start(&crate::cache::folder()?, lie)?;
    refused(
        bench,
        &[],
        &[STOCK, &["--mirror", &mirror.url()]].concat(),
        1,
    )?
    .says(sentence)?;
    Ok(String::new())
}

fn full_disk(bench: &Bench<'_>) -> Result<String> {
    refused(bench, SMALL_DISK, STOCK, 1)?
        .says("no space on the disk")?
        .says("XDG_CACHE_HOME")?;
    Ok(String::new())
}

fn no_metadata(bench: &Bench<'_>) -> Result<String> {
    let folder = bench.folder()?;
    for name in ["Makefile", "include/config/auto.conf"] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&folder)).context("cannot make a folder")?;
        fs::write(path, "").context("cannot write a file")?;
    }
    let kdir = folder.to_str().context("an odd path")?;
    refused(bench, &[], &["--kdir", kdir], 1)?
        .says("has no Rust metadata")?
        .says(kdir)?;
    Ok(String::new())
}

fn other_rustc(bench: &Bench<'_>) -> Result<String> {
    let kernel = kernel::prepare(&bench.env, &TABLE[0], &Options::default())?;
    let kdir = kernel.path.join("build");
    let rustc = kernel.info.rustc.clone();
    drop(kernel);
    let folder = bench.folder()?;
    let fake = folder.join("rustc");
    fs::write(&fake, "#!/bin/sh\necho 'rustc 1.0.0 (of another vendor)'\n")
        .and_then(|()| fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)))
        .context("cannot make a program")?;
    let path = format!(
        "PATH={}:{}",
        folder.display(),
        std::env::var("PATH").context("PATH is not set")?
    );
    let kdir = kdir.to_str().context("an odd path")?;
    refused(bench, &["env", &path], &["--kdir", kdir], 1)?
        .says("rustc 1.0.0 (of another vendor)")?
        .says(&rustc)?;
    Ok(String::new())
}

fn interrupted(bench: &Bench<'_>) -> Result<String> {
    let cache = bench.folder()?;
    let before = Surroundings::now()?;
    let mut command = bench.xtask(&[&["build"], STOCK].concat());
    command.env("XDG_CACHE_HOME", &cache);
    let mut running = bench.start(command)?;
    running.signal_after("making the build root", Signal::INT)?;
    let ended = running.end()?;
    before.are_unchanged()?;
    ended.exits(130)?.says("interrupted")?;
    nothing_made(&cache)?;
    Ok(String::new())
}
