// SPDX-License-Identifier: GPL-2.0

//! The userland: style, lints, documents, tests.

use std::process::Command;

use anyhow::{Result, ensure};

use super::bench::Bench;
use super::harness::{Check, Need, check};
use super::rules::{File, GIT, files};

const RUSTFMT: Need = Need::Program(
    &["rustfmt", "--version"],
    "rustup component add rustfmt installs it",
);
const CLIPPY: Need = Need::Program(
    &["cargo", "clippy", "--version"],
    "rustup component add clippy installs it",
);
const SHELLCHECK: Need = Need::Program(
    &["shellcheck", "--version"],
    "the package shellcheck has it",
);

/// The program as boards get it, with its tests.
const BOARD: &[&str] = &[
    "--all-targets",
    "--no-default-features",
    "--features=report",
];

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    vec![
        check("format", &[RUSTFMT], format),
        check("clippy of the userland", &[CLIPPY], |bench| {
            clippy(bench, &["--all-targets"])
        }),
        check("clippy of the board's part", &[CLIPPY], |bench| {
            clippy(bench, BOARD)
        }),
        check("clippy of the guest's part", &[CLIPPY], |bench| {
            clippy(bench, &["--no-default-features"])
        }),
        check("rustdoc", &[], rustdoc),
        check("the fuzzers compile", &[], fuzzers),
        check("shellcheck", &[SHELLCHECK, GIT], shellcheck),
        check("cargo test", &[], |bench| cargo_test(bench, &[])),
        check("cargo test of the board's part", &[], |bench| {
            cargo_test(bench, BOARD)
        }),
    ]
}

fn format(bench: &Bench<'_>) -> Result<String> {
    bench.succeed(bench.cargo(&["fmt", "--all", "--check"]))?;
    // The module is not part of the workspace.
    let mut rustfmt = Command::new("rustfmt");
    rustfmt
        .args(["--edition", "2021", "--check", "messung.rs"])
        .current_dir(&bench.repository);
    bench.succeed(rustfmt)?;
    Ok(String::new())
}

fn clippy(bench: &Bench<'_>, selection: &[&str]) -> Result<String> {
    let mut clippy = bench.cargo(&["clippy", "--quiet", "--locked", "--workspace"]);
    clippy.args(selection).args(["--", "-D", "warnings"]);
    bench.succeed(clippy)?;
    Ok(String::new())
}

fn rustdoc(bench: &Bench<'_>) -> Result<String> {
    let mut doc = bench.cargo(&["doc", "--quiet", "--locked", "--workspace", "--no-deps"]);
    doc.arg("--document-private-items")
        .env("RUSTDOCFLAGS", "-D warnings");
    bench.succeed(doc)?;
    Ok(String::new())
}

/// They are a workspace of their own, so nothing else compiles them.
fn fuzzers(bench: &Bench<'_>) -> Result<String> {
    let mut check = bench.cargo(&["check", "--quiet", "--locked", "--manifest-path"]);
    check
        .arg("fuzz/Cargo.toml")
        .arg("--target-dir")
        .arg(bench.folder()?)
        .env("RUSTFLAGS", "-D warnings")
        // Nothing is linked, so libFuzzer needs no C++ compiler.
        .env("CUSTOM_LIBFUZZER_PATH", "none/libfuzzer.a");
    bench.succeed(check)?;
    Ok(String::new())
}

fn shellcheck(bench: &Bench<'_>) -> Result<String> {
    let mut files = files(bench)?;
    files.retain(File::is_script);
    ensure!(!files.is_empty(), "no script is in the repository");
    let mut shellcheck = Command::new("shellcheck");
    shellcheck
        .arg("--")
        .args(files.iter().map(|file| &file.name))
        .current_dir(&bench.repository);
    bench.succeed(shellcheck)?;
    Ok(format!("{} scripts", files.len()))
}

fn cargo_test(bench: &Bench<'_>, selection: &[&str]) -> Result<String> {
    let mut test = bench.cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]);
    test.args(selection);
    tests_pass(bench, test)
}

/// Runs a `cargo test`, which must run tests, all of which must pass.
pub fn tests_pass(bench: &Bench<'_>, command: Command) -> Result<String> {
    let ended = bench.succeed(command)?;
    let Counts { passed, ignored } = counts(&ended.out);
    ensure!(passed > 0, "no test ran: {ended}");
    Ok(format!("{passed} tests passed, {ignored} ignored"))
}

/// What cargo says of the tests that it ran.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    ignored: u32,
}

/// Adds up the results of all test programs.
fn counts(output: &str) -> Counts {
    let mut counts = Counts::default();
    for line in output.lines() {
        let Some(result) = line.strip_prefix("test result: ") else {
            continue;
        };
        let number = |word: &str| {
            result
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u32>().ok())
                .unwrap_or(0)
        };
        counts.passed += number("passed");
        counts.ignored += number("ignored");
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let output = "\
running 2 tests
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";
        assert_eq!(
            counts(output),
            Counts {
                passed: 42,
                ignored: 1
            }
        );
        assert_eq!(counts("nothing"), Counts::default());
    }
}
