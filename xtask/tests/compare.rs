// SPDX-License-Identifier: GPL-2.0

//! `compare` as a user meets it: what it prints where, and how it exits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(arguments)
        .output()
        .unwrap()
}

fn compare(arguments: &[&Path]) -> (Option<i32>, String, String) {
    let output = run(&[&[Path::new("compare")], arguments].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// A result in `folder`, from a log in tests/logs.
fn result(folder: &Path) -> PathBuf {
    let log =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/logs/synthetic-foreign-lines.log");
    let json = folder.join("a.json");
    let output = run(&[Path::new("parse"), &log, Path::new("--json"), &json]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json
}

/// The same result, with its first row's times multiplied.
fn longer(a: &Path, factor: u64) -> PathBuf {
    let mut value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(a).unwrap()).unwrap();
    let row = &mut value["measurements"][0];
    for key in ["shortest_ns", "mean_ns", "highest_ns"] {
        row[key] = (row[key].as_u64().unwrap() * factor).into();
    }
    let path = a.with_file_name("b.json");
    fs::write(&path, value.to_string()).unwrap();
    path
}

#[test]
fn identical_results_are_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let a = result(folder.path());
    let (status, out, err) = compare(&[&a, &a]);
    assert_eq!(status, Some(0), "{err}");
    assert!(
        out.ends_with("Identical: 3 rows, to the nanosecond.\n"),
        "{out}"
    );
    assert_eq!(err, "");
}

#[test]
fn a_difference_is_named_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let a = result(folder.path());
    let b = longer(&a, 2);
    let (status, out, err) = compare(&[&a, &b]);
    assert_eq!(status, Some(3), "{err}");
    assert!(out.contains(": mean 100.00 % longer, "), "{out}");
    assert!(out.contains("1 of 3 rows differ"), "{out}");
    assert!(err.contains("b.json differs from "), "{err}");
    let (status, _, _) = compare(&[&a, &b, Path::new("--threshold"), Path::new("150")]);
    assert_eq!(status, Some(0));
}

#[test]
fn what_cannot_be_compared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let a = result(folder.path());
    let (status, _, err) = compare(&[&a, Path::new("/nonexistent.json")]);
    assert_eq!(status, Some(1));
    assert!(err.contains("/nonexistent.json"), "{err}");

    let empty = folder.path().join("empty.json");
    let mut value: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&a).unwrap()).unwrap();
    value["measurements"] = serde_json::json!([]);
    fs::write(&empty, value.to_string()).unwrap();
    let (status, out, err) = compare(&[&a, &empty]);
    assert_eq!(status, Some(1), "{out}");
    assert!(err.contains("nothing to compare"), "{err}");

    assert_eq!(compare(&[&a]).0, Some(2));
    assert_eq!(
        compare(&[&a, &a, Path::new("--threshold"), Path::new("x")]).0,
        Some(2)
    );
}
