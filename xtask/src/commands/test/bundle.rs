// SPDX-License-Identifier: GPL-2.0

//! Bundles, unpacked on fresh machines that have nothing of ours: a stock kernel, busybox, and the commands of the bundle's page.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::bench::Bench;
use super::guests::NEEDS;
use super::harness::{Check, Need, check};
use crate::kernel::table::{self, Row};
use crate::kernel::{self, Options};
use crate::vm::busybox;
use crate::vm::machine;
use crate::vm::session::{Pc, Session};
use crate::vm::supervisor::Folder;

/// Two runs of the plan `quick`, emulated.
const MEASURED: Duration = Duration::from_secs(180);

/// The kernels whose bundles are tried, beside that of a PC, and what that needs.
const ROWS: &[(&str, &[Need])] = &[("armmp-virt", &[]), ("arm64", &[Need::Patience])];

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    ROWS.iter()
        .map(|(name, needs)| {
            check(
                format!("bundle: {name} is measured by the commands of its page"),
                &[NEEDS, &[Need::Userland], needs].concat(),
                |bench| unpacked(bench, table::find(name)?),
            )
        })
        .collect()
}

fn unpacked(bench: &Bench<'_>, row: &Row) -> Result<String> {
    let folder = bench.folder()?;
    let path = folder.join("bundle.tar.gz");
    let name = path.to_str().context("an odd path")?;
    let bundle = || {
        bench
            .end_xtask(&["bundle", "--kernel", row.name, "--output", name])?
            .exits(0)?
            .says(name)?;
        fs::read(&path).with_context(|| format!("cannot read {name}"))
    };
    let bytes = bundle()?;
    ensure!(bytes == bundle()?, "another bundle of the same differs");

    // Only now: it holds the cache's lock.
    let kernel = kernel::prepare(&bench.env, table::find(row.name)?, &Options::default())?;
    let line = machine::find(row.machine)?.handover;
    let board = Pc {
        userland: &busybox::ensure(&bench.env, &kernel.cache, row.arch)?,
        files: vec![("/home/bundle.tar.gz", 0o644, &bytes)],
        append: &format!("typed={line}"),
        firmware: None,
    };
    let mut board = Session::boot(bench.env, &kernel, &Folder::new(folder), board)?;
    type_its_page(&mut board, &kernel.info.release)?;
    Ok(format!("{} kB", bytes.len() / 1000))
}

fn type_its_page(board: &mut Session<'_>, release: &str) -> Result<()> {
    board.run("tar xzf bundle.tar.gz")?.exits(0)?;
    board.run("cd messung-*")?.exits(0)?;
    board.run("cat README.md")?.exits(0)?.says(release)?;
    board.run("uname -r")?.exits(0)?.says(release)?;
    // A module that was not stripped has a section of that name.
    board.run("grep -c debug_info messung.ko")?.exits(1)?;

    let run = "sudo ./xtask run --module messung.ko --plan quick --json result.json";
    let answer = board
        .run_within(run, MEASURED)?
        .exits(0)?
        .says("[8/8] fsleep 50 us: shortest: ")?
        .says("plan        quick, ")?;
    ensure!(
        !answer.text.contains("WARNING:"),
        "something is doubtful: {answer}"
    );
    board
        .run("./xtask report result.json")?
        .exits(0)?
        .says(release)?;

    board.type_line("sudo insmod messung.ko plan=quick run=9 & tail -f /var/log/kern.log")?;
    // This insmod tries twice. It tells of its failure when it likes, before or after what the log shows.
    let mut shown = String::new();
    for _ in 0..2 {
        shown += &board.wait_for("messung: [1/8] none, irqoff: ", MEASURED)?;
        shown += &board.wait_for("messung: done: 8 of 8 rows measured", MEASURED)?;
    }
    shown += &board.interrupt()?.exits(130)?.text;
    shown += &board.run("wait")?.text;
    ensure!(
        shown.contains("Input/output error"),
        "insmod said no error: {shown}"
    );
    let parse = board
        .run("./xtask parse --run 9 /var/log/kern.log")?
        .exits(0)?;
    let found = parse.text.matches("run         9, started").count();
    ensure!(found == 2, "{found} runs are shown: {parse}");
    Ok(())
}
