// SPDX-License-Identifier: GPL-2.0

//! The doctor on this very machine, whatever it is.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::bench::Bench;
use super::harness::{Check, check};

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    vec![
        check("doctor: its JSON and its exit status agree", &[], agree),
        check(
            "doctor: what it says of modules is what the kernel says",
            &[],
            modules,
        ),
    ]
}

/// What `doctor --json` prints, and its exit status.
fn examined(bench: &Bench<'_>, arguments: &[&str]) -> Result<(Value, Option<i32>)> {
    let ended = bench.end_xtask(&[&["doctor", "--json"], arguments].concat())?;
    let json = serde_json::from_str(&ended.out)
        .with_context(|| format!("doctor --json printed no JSON: {ended}"))?;
    Ok((json, ended.status.code()))
}

fn agree(bench: &Bench<'_>) -> Result<String> {
    let (json, status) = examined(bench, &[])?;
    ensure!(json["schema"] == "messung-doctor/1", "{}", json["schema"]);
    let findings = json["findings"].as_array().context("no findings")?;
    ensure!(findings.len() > 15, "only {} findings", findings.len());
    for finding in findings {
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        ensure!(
            !text("name").is_empty() && !text("reason").is_empty(),
            "a finding without a reason: {finding}"
        );
        let known = ["yes", "no", "unknown"].contains(&text("state"));
        ensure!(known, "a state that is none: {finding}");
    }
    let works = |way: &str| json["works"][way].as_bool().context("no verdict");
    let here = works("insert")? && works("build")?;
    ensure!(
        status == Some(i32::from(!here)),
        "exit status {status:?}, and measuring here works: {here}"
    );
    for way in ["build", "insert", "vm"] {
        let (_, status) = examined(bench, &["--for", way])?;
        ensure!(
            status == Some(i32::from(!works(way)?)),
            "exit status {status:?} for {way}: {}",
            json["works"]
        );
    }
    Ok(json["works"].to_string())
}

fn modules(bench: &Bench<'_>) -> Result<String> {
    const SENTENCE: &str = "his kernel takes no modules";
    let ended = bench.end_xtask(&["doctor"])?;
    if Path::new("/proc/modules").exists() {
        ensure!(!ended.out.contains(SENTENCE), "it takes modules: {ended}");
        return Ok("it takes modules".to_owned());
    }
    let first = ended.out.lines().next().unwrap_or_default();
    ensure!(
        first.contains(SENTENCE) && first.contains("cargo xtask vm"),
        "the first line is {first:?}"
    );
    bench
        .end_xtask(&["build"])?
        .exits(1)?
        .says(SENTENCE)?
        .says("cargo xtask vm")?;
    Ok("it takes none".to_owned())
}
