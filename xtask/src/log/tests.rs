// SPDX-License-Identifier: GPL-2.0

//! Whole logs: those saved in tests/logs, and made-up ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use abi::plan;
use abi::record::{
    Begin, Clocks, Encoder, End, Histogram, Line, Pair, People, PlanText, Row, Worst,
};
use abi::summary::{self, Summary};
use proptest::prelude::*;

use super::assemble::{Assembler, Log};
use super::{stream, unpack};
use crate::result::{Run, State};

/// 2026-11-30 22:00:01 UTC.
const STAMP: u64 = 1_796_076_001_123_456_789;

/// Three rows are enough to lose one.
const PLAN: &str = "udelay:15us/irqoff*5,usleep_range:100us..200us/fifo*5,msleep:24ms*5";

/// Elapsed times of a row.
fn samples(index: u32, measurement: &plan::Measurement) -> impl Iterator<Item = u64> {
    let first = measurement.request + 340 + 1000 * u64::from(index);
    (0..u64::from(measurement.iterations)).map(move |sample| first + 7 * sample)
}

/// A row with [`samples`].
fn row(index: u32, measurement: plan::Measurement) -> Row {
    let mut summary = Summary::default();
    for elapsed in samples(index, &measurement) {
        summary.record(
            elapsed,
            summary::floor(&measurement),
            summary::error(&measurement, elapsed),
        );
    }
    Row {
        index,
        measurement,
        summary,
        cpu_changes: 0,
        involuntary_switches: index,
    }
}

fn rows(plan: &str) -> Vec<Row> {
    plan::rows(plan, 1000)
        .zip(0..)
        .map(|(measurement, index)| row(index, measurement.unwrap()))
        .collect()
}

/// The samples of [`row`] in their buckets.
fn buckets(row: &Row) -> String {
    let mut cells = vec![0; summary::Histogram::CELLS];
    let mut histogram = summary::Histogram::new(&mut cells).unwrap();
    for elapsed in samples(row.index, &row.measurement) {
        histogram.record(summary::error(&row.measurement, elapsed));
    }
    let groups: Vec<_> = histogram
        .filled(false)
        .map(|(bucket, count)| format!("{bucket}:{count}"))
        .collect();
    groups.join(",")
}

/// What the module prints for a run, as far as layout goes.
fn messages(id: u32, stamp: u64, plan: &str, status: &str) -> Vec<String> {
    let rows = rows(plan);
    let count = u32::try_from(rows.len()).unwrap();
    let clocks = |ns| Clocks {
        mono: ns,
        raw: ns,
        boot: ns,
        ticks: ns / 4_000_000,
    };
    let mut encoder = Encoder::new(id, stamp);
    let mut line = Line::default();
    let mut messages = Vec::new();
    let mut keep = |line: &Line| {
        assert!(line.is_whole());
        messages.push(format!("messung: {}", line.as_str()));
    };
    encoder.encode(
        Begin {
            layout: abi::record::VERSION,
            version: "0.1.0",
            release: "7.3.4+deb13-amd64",
            machine: "x86_64",
            hz: 250,
            realtime: 0,
            resolution: 1,
            cpus: 1,
            rows: count,
            iterations: 1000,
            fault: "",
            clocks: clocks(1_000_000_000),
        },
        &mut line,
    );
    keep(&line);
    let (first, second) = plan.split_at(plan.len() / 2);
    for (at, text) in [(0, first), (first.len(), second)] {
        let at = u32::try_from(at).unwrap();
        encoder.encode(PlanText { at, text }, &mut line);
        keep(&line);
    }
    let pair = Pair {
        count: 3,
        shortest: 420,
        highest: 436,
        sum: 1284,
    };
    encoder.encode(pair, &mut line);
    keep(&line);
    for row in &rows {
        let mut people = Line::default();
        assert!(people.append(format_args!("{}", People { row, rows: count })));
        keep(&people);
        encoder.encode(*row, &mut line);
        keep(&line);
        let histogram = Histogram {
            index: row.index,
            side: "late",
            buckets: &buckets(row),
        };
        encoder.encode(histogram, &mut line);
        keep(&line);
        let worst = Worst {
            index: row.index,
            samples: "4:5000:368",
        };
        encoder.encode(worst, &mut line);
        keep(&line);
    }
    encoder.end(
        End {
            status,
            rows: count,
            clocks: clocks(9_000_000_000),
            ..End::default()
        },
        &mut line,
    );
    keep(&line);
    messages
}

fn run(id: u32) -> Vec<String> {
    messages(id, STAMP + u64::from(id), PLAN, "done")
}

/// Lines with a prefix made of their number.
fn prefixed(lines: &[String], prefix: impl Fn(usize) -> String) -> String {
    lines
        .iter()
        .enumerate()
        .map(|(number, line)| format!("{}{line}\n", prefix(number)))
        .collect()
}

fn printk(lines: &[String]) -> String {
    prefixed(lines, |number| format!("[   12.{:06}] ", 345_678 + number))
}

fn read(log: &[u8]) -> Log {
    read_all(&[log])
}

/// Several logs, one after the other.
fn read_all(logs: &[&[u8]]) -> Log {
    let mut assembler = Assembler::default();
    for log in logs {
        assembler.next_log();
        let log = unpack::unpacked(*log).unwrap();
        stream::messages(log, |message| assembler.take(message)).unwrap();
    }
    assembler.finish()
}

/// Other people's lines, some of which mention messung.
const FOREIGN: [&str; 6] = [
    "[   12.000001] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n",
    "[   12.000002] messung: loading out-of-tree module taints kernel.\n",
    "[   12.000003] messung: module verification failed: signature and/or required key missing - tainting kernel\n",
    "Nov 30 22:00:01 host sudo[123]:     root : COMMAND=/usr/bin/grep messung: @00000007 kern.log\n",
    "messung\n",
    "\n",
];

/// The logs in tests/logs that are made up, by name.
fn synthetic() -> BTreeMap<&'static str, Vec<u8>> {
    let one = run(7);
    let two = [run(7), run(8)];
    let text = printk(&one);
    let mut damaged = text.clone().into_bytes();
    let digit = text.find("early=").unwrap() + "early=".len();
    damaged[digit] ^= 1;
    BTreeMap::from([
        (
            "two-runs-interleaved",
            printk(
                &two[0]
                    .iter()
                    .zip(&two[1])
                    .flat_map(|(left, right)| [left.clone(), right.clone()])
                    .collect::<Vec<_>>(),
            )
            .into_bytes(),
        ),
        ("one-run-twice", text.repeat(2).into_bytes()),
        ("cut", {
            let within = text.find(" row index=1 ").unwrap() + 30;
            text.as_bytes()[..within].to_vec()
        }),
        ("dropped", {
            let mut lines = one.clone();
            // The second piece of the plan, and the records of the second row.
            lines.retain(|line| {
                ![" 2 plan ", " 7 row "]
                    .iter()
                    .any(|lost| line.contains(lost))
            });
            printk(&lines).into_bytes()
        }),
        ("first-record-lost", printk(&one[1..]).into_bytes()),
        ("damaged", damaged),
        (
            "foreign-lines",
            text.split_inclusive('\n')
                .zip(FOREIGN.iter().cycle())
                .flat_map(|(line, foreign)| [*foreign, line])
                .collect::<String>()
                .into_bytes(),
        ),
        ("empty", Vec::new()),
        ("garbage", {
            // A generator of the simplest kind, so that the bytes are the same each time.
            let mut state = 1_u32;
            std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .take(4096)
            .collect()
        }),
        (
            "printk-caller",
            prefixed(&one, |number| format!("[   12.{number:06}][  T123] ")).into_bytes(),
        ),
    ])
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/logs")
}

fn saved(name: &str) -> Vec<u8> {
    let path = folder().join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is expected of a log: of each run its id, whether it is complete, the rows that are there (as people count),
/// and a part of each warning.
type Expected = &'static [(u32, bool, &'static [u32], &'static [&'static str])];

const COMPLETE: Expected = &[(7, true, &[1, 2, 3], &[])];

const SYNTHETIC: [(&str, Expected); 10] = [
    (
        "two-runs-interleaved",
        &[(7, true, &[1, 2, 3], &[]), (8, true, &[1, 2, 3], &[])],
    ),
    ("one-run-twice", COMPLETE),
    (
        "cut",
        &[(
            7,
            false,
            &[1],
            &[
                "the log ends before this run does",
                "rows 2 to 3 of 3 are missing",
            ],
        )],
    ),
    (
        "dropped",
        &[(
            7,
            false,
            &[1, 3],
            &[
                "the log lost records 2 and 7 of this run",
                "row 2 of 3 is missing",
            ],
        )],
    ),
    (
        "first-record-lost",
        &[(
            7,
            false,
            &[1, 2, 3],
            &["first record is missing", "lost record 0 of this run"],
        )],
    ),
    (
        "damaged",
        &[(
            7,
            false,
            &[2, 3],
            &[
                "lost record 4 of this run",
                "1 of its records arrived damaged",
                "row 1 of 3 is missing",
            ],
        )],
    ),
    ("foreign-lines", COMPLETE),
    ("empty", &[]),
    ("garbage", &[]),
    ("printk-caller", COMPLETE),
];

const ARTICLE: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

/// The logs in tests/logs that were captured: those of one run, then others.
const CAPTURED: [(&str, Expected); 39] = [
    ("dmesg-T.txt", COMPLETE),
    ("dmesg-colour.txt", COMPLETE),
    ("dmesg-d.txt", COMPLETE),
    ("dmesg-e.txt", COMPLETE),
    ("dmesg-iso.txt", COMPLETE),
    ("dmesg-r.txt", COMPLETE),
    ("dmesg-t.txt", COMPLETE),
    ("dmesg-x.txt", COMPLETE),
    ("dmesg.txt", COMPLETE),
    ("journal-cat.txt", COMPLETE),
    ("journal-export.txt", COMPLETE),
    ("journal-no-hostname.txt", COMPLETE),
    ("journal-short.txt", COMPLETE),
    ("journal-short-delta.txt", COMPLETE),
    ("journal-short-full.txt", COMPLETE),
    ("journal-short-iso.txt", COMPLETE),
    ("journal-short-iso-precise.txt", COMPLETE),
    ("journal-short-monotonic.txt", COMPLETE),
    ("journal-short-precise.txt", COMPLETE),
    ("journal-short-unix.txt", COMPLETE),
    ("journal-verbose.txt", COMPLETE),
    ("journal-with-unit.txt", COMPLETE),
    ("dmesg-json.txt", COMPLETE),
    ("journal-json-pretty.txt", COMPLETE),
    ("journal-json-seq.txt", COMPLETE),
    ("journal-json-sse.txt", COMPLETE),
    ("journal-json.txt", COMPLETE),
    ("kern.log.2.gz", COMPLETE),
    ("kern.log.2.xz", COMPLETE),
    ("kern-5424.log", COMPLETE),
    ("kern-traditional.log", COMPLETE),
    ("kern.log", COMPLETE),
    ("kmsg.txt", COMPLETE),
    ("serial.txt", COMPLETE),
    ("dmesg-article.log", &[(9, true, ARTICLE, &[])]),
    (
        "dmesg-two-runs.log",
        &[(7, true, &[1, 2, 3], &[]), (8, true, &[1, 2, 3], &[])],
    ),
    (
        "dmesg-level-info.txt",
        &[(0, false, &[1, 2, 3], &["the lines for people only"])],
    ),
    (
        "dmesg-killed.log",
        &[(
            10,
            false,
            &[1, 2, 3, 4, 5, 6, 7],
            &["interrupted", "rows 8 to 14 of 14 are missing"],
        )],
    ),
    (
        "dmesg-overrun.log",
        &[(
            11,
            false,
            &[13, 14],
            &[
                "first record is missing",
                "lost records 0 to 38",
                "rows 1 to 12 of 14 are missing",
            ],
        )],
    ),
];

fn check(name: &str, log: &Log, expected: Expected) {
    assert_eq!(log.runs.len(), expected.len(), "{name}: {log:?}");
    assert_eq!(log.damaged, 0, "{name}");
    for (run, (id, complete, rows, warnings)) in log.runs.iter().zip(expected) {
        assert_eq!(run.run.id, *id, "{name}");
        assert_eq!(run.complete, *complete, "{name}: {:?}", run.warnings);
        let there: Vec<_> = run.measurements.iter().map(|row| row.index + 1).collect();
        assert_eq!(there, *rows, "{name}");
        assert_eq!(
            run.warnings.len(),
            warnings.len(),
            "{name}: {:?}",
            run.warnings
        );
        for (warning, part) in run.warnings.iter().zip(*warnings) {
            assert!(warning.contains(part), "{name}: {warning:?}");
        }
    }
}

#[test]
fn made_up_logs_are_those_that_are_saved() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    for (name, bytes) in synthetic() {
        let name = format!("synthetic-{name}.log");
        if update {
            std::fs::write(folder().join(&name), &bytes).unwrap();
        }
        assert!(
            saved(&name) == bytes,
            "tests/logs/{name} differs from what is made up today: run the tests with UPDATE_FIXTURES=1"
        );
    }
}

#[test]
fn each_made_up_log_gives_its_rows_or_a_named_problem() {
    let names: Vec<_> = synthetic().into_keys().collect();
    let mut expected: Vec<_> = SYNTHETIC.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (name, expected) in SYNTHETIC {
        let name = format!("synthetic-{name}.log");
        check(&name, &read(&saved(&name)), expected);
    }
}

#[test]
fn each_captured_log_gives_its_rows_or_a_named_problem() {
    for (name, expected) in CAPTURED {
        check(name, &read(&saved(name)), expected);
    }
}

#[test]
fn every_captured_log_of_a_run_tells_the_same() {
    let first = read(&saved("dmesg.txt")).runs;
    for (name, _) in CAPTURED
        .iter()
        .filter(|(_, expected)| std::ptr::eq(*expected, COMPLETE))
    {
        assert_eq!(read(&saved(name)).runs, first, "{name}");
    }
}

#[test]
fn every_saved_log_is_expected_and_described() {
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let synthetic = SYNTHETIC
        .iter()
        .map(|(name, _)| format!("synthetic-{name}.log"));
    let captured = CAPTURED.iter().map(|(name, _)| (*name).to_owned());
    let mut expected: Vec<_> = synthetic.chain(captured).collect();
    expected.sort_unstable();
    let mut saved: Vec<_> = folder()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    saved.sort_unstable();
    assert_eq!(saved, expected);
    for name in saved {
        assert!(
            readme.contains(&format!("`{name}`")),
            "{name} is not in the README"
        );
    }
}

#[test]
fn a_run_carries_what_its_records_tell() {
    let log = read(printk(&run(7)).as_bytes());
    let [run] = log.runs.as_slice() else {
        panic!("{log:?}")
    };
    let json = serde_json::to_value(run).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "schema": "messung-result/1",
            "tool": {"version": env!("CARGO_PKG_VERSION")},
            "run": {"id": 7, "stamp": STAMP + 7},
            "complete": true,
            "plan": PLAN,
            "environment": {
                "kernel_release": "7.3.4+deb13-amd64", "machine": "x86_64", "hz": 250, "realtime": false,
                "high_res": true, "cpus": 1,
            },
            "instrument": {
                "version": "0.1.0", "pair_ns": {"shortest": 420, "mean": 428, "highest": 436}, "raw_ppm": 0.0,
            },
            "measurements": [
                {
                    "index": 0, "function": "udelay", "requested_ns": 15_000, "context": "irqoff", "iterations": 5,
                    "count": 5, "shortest_ns": 15_340, "mean_ns": 15_354, "highest_ns": 15_368, "stddev_ns": 10,
                    "early": {"count": 0}, "percentiles_ns": {"p50": 15_355},
                    "histogram": {
                        "early": [],
                        "late": [[340, 343, 1], [344, 347, 1], [352, 355, 1], [360, 363, 1], [368, 371, 1]],
                    },
                    "worst": [{"index": 4, "at_ns": 5000, "error_ns": 368}],
                    "cpu_changes": 0, "involuntary_switches": 0, "flags": [],
                    "verdict": {
                        "state": "kept", "promise": "busy-waits for about the request; it may return early",
                        "source": "include/asm-generic/delay.h, kernel/time/test_udelay.c",
                    },
                },
                {
                    "index": 1, "function": "usleep_range", "requested_ns": 100_000, "requested_max_ns": 200_000,
                    "context": "fifo:99", "iterations": 5, "count": 5, "shortest_ns": 101_340, "mean_ns": 101_354,
                    "highest_ns": 101_368, "stddev_ns": 10, "early": {"count": 0},
                    "percentiles_ns": {"p50": 101_359},
                    "histogram": {"early": [], "late": [[1328, 1343, 1], [1344, 1359, 2], [1360, 1375, 2]]},
                    "worst": [{"index": 4, "at_ns": 5000, "error_ns": 368}],
                    "cpu_changes": 0, "involuntary_switches": 1,
                    "verdict": {
                        "state": "kept", "promise": "sleeps at least min and not longer than max",
                        "source": "kernel/time/sleep_timeout.c",
                    },
                    "flags": [],
                },
                {
                    "index": 2, "function": "msleep", "requested_ns": 24_000_000, "context": "normal",
                    "iterations": 5, "count": 5, "shortest_ns": 24_002_340, "mean_ns": 24_002_354,
                    "highest_ns": 24_002_368, "stddev_ns": 10, "early": {"count": 0},
                    "percentiles_ns": {"p50": 24_002_367},
                    "histogram": {"early": [], "late": [[2336, 2367, 4], [2368, 2399, 1]]},
                    "worst": [{"index": 4, "at_ns": 5000, "error_ns": 368}],
                    "cpu_changes": 0, "involuntary_switches": 2,
                    "verdict": {
                        "state": "kept",
                        "promise": "sleeps at least the request, with a slack of one tick but not less than 12.5 %",
                        "source": "kernel/time/sleep_timeout.c",
                    },
                    "flags": [],
                },
            ],
            "disturbances": [],
            "warnings": [],
        })
    );
    assert_eq!(&Run::from_json(&run.to_json()).unwrap(), run);
}

#[test]
fn lines_for_people_carry_the_same_numbers() {
    let records = read(&saved("dmesg.txt"));
    let people = read(&saved("dmesg-level-info.txt"));
    for (record, line) in records.runs[0]
        .measurements
        .iter()
        .zip(&people.runs[0].measurements)
    {
        assert_eq!(
            (record.shortest_ns, record.mean_ns, record.highest_ns),
            (line.shortest_ns, line.mean_ns, line.highest_ns)
        );
        assert_eq!(
            (&record.function, &record.context),
            (&line.function, &line.context)
        );
        assert_eq!(
            (record.requested_ns, record.count),
            (line.requested_ns, line.count)
        );
    }
}

#[test]
fn records_may_be_found_where_order_was_lost() {
    let mut lines = run(7);
    lines.reverse();
    check("reversed", &read(printk(&lines).as_bytes()), COMPLETE);
}

#[test]
fn two_logs_of_one_run_make_it_whole() {
    let whole = read(&saved("kern.log"));
    let lines = saved("dmesg.txt");
    let lines: Vec<_> = lines.split_inclusive(|&byte| byte == b'\n').collect();
    let every = |parity| {
        let of_it = |(number, line): (usize, &&[u8])| (number % 2 == parity).then(|| line.to_vec());
        lines
            .iter()
            .enumerate()
            .filter_map(of_it)
            .flatten()
            .collect::<Vec<u8>>()
    };
    for half in [every(0), every(1)] {
        assert!(!read(&half).runs[0].complete);
    }
    assert_eq!(read_all(&[&every(0), &every(1)]), whole);
    assert_eq!(
        read_all(&[&saved("kern.log"), &saved("journal-json.txt")]),
        whole
    );
    // One of them has the lines for people only.
    let people = saved("dmesg-level-info.txt");
    assert_eq!(read_all(&[&people, &saved("kern.log")]), whole);
    assert_eq!(read_all(&[&people, &people]), read(&people));
}

#[test]
fn a_run_without_records_stands_beside_those_that_have_them() {
    let people = saved("dmesg-level-info.txt");
    let other = saved("dmesg-article.log");
    for logs in [[&people[..], &other[..]], [&other[..], &people[..]]] {
        for log in [read_all(&logs), read(&logs.concat())] {
            let ids: Vec<_> = log.runs.iter().map(|run| run.run.id).collect();
            assert_eq!(ids, [9, 0]);
            assert_eq!(log.runs[1], read(&people).runs[0]);
        }
    }
}

#[test]
fn a_run_that_was_cut_before_its_first_row_is_one_run() {
    let lines = run(7);
    let first = lines
        .iter()
        .position(|line| line.contains("[1/3]"))
        .unwrap();
    let mut log =
        vec!["messung: measuring 3 rows on Linux 7.3.4+deb13-amd64, HZ=250, 1 CPUs".to_owned()];
    log.extend_from_slice(&lines[..=first]);
    let log = read(printk(&log).as_bytes());
    let ids: Vec<_> = log.runs.iter().map(|run| run.run.id).collect();
    assert_eq!(ids, [7]);
}

#[test]
fn a_damaged_copy_of_a_record_does_no_harm() {
    let lines = run(7);
    let log = format!("{}\n{}", &lines[0][..50], printk(&lines));
    check("damaged copy", &read(log.as_bytes()), COMPLETE);
}

#[test]
fn a_sleep_that_ends_with_its_tick_is_not_late() {
    // The histogram alone would leave room for a median beyond the tick.
    for run in read(&saved("dmesg-article.log")).runs {
        for row in run
            .measurements
            .iter()
            .filter(|row| row.function == "msleep")
        {
            let state = row.verdict.as_ref().map(|verdict| verdict.state);
            assert_ne!(state, Some(State::Late), "{row:?}");
        }
    }
}

#[test]
fn damage_of_many_identities_is_counted_in_bounded_memory() {
    let log: String = (0..5000)
        .map(|id| format!("messung: @{id:08x}-0000000000000001 0 begin *00000000\n"))
        .collect();
    let log = read(log.as_bytes());
    assert_eq!((log.runs.len(), log.damaged), (0, 5000));
}

#[test]
fn damage_without_any_run_is_counted() {
    let lines = run(7);
    let log = [&lines[0].as_bytes()[..50], b"\nmessung: @00000007-\xff\n"].concat();
    let log = read(&log);
    assert_eq!((log.runs.len(), log.damaged), (0, 2));
}

#[test]
fn a_record_that_contradicts_another_is_reported() {
    let mut lines = run(7);
    lines.push(messages(7, STAMP + 7, PLAN, "interrupted").pop().unwrap());
    let log = read(printk(&lines).as_bytes());
    assert!(!log.runs[0].complete);
    assert!(log.runs[0].warnings[0].contains("contradict"), "{log:?}");
}

#[test]
fn a_swapped_record_breaks_the_checksum_of_the_run() {
    // Right in itself, but it was another one that the module counted.
    let other = messages(7, STAMP + 7, &PLAN.replace("24ms", "25ms"), "done");
    let mut lines = run(7);
    let row = lines
        .iter()
        .position(|line| line.contains(" row index=2 "))
        .unwrap();
    lines[row] = other[row].clone();
    let log = read(printk(&lines).as_bytes());
    assert!(!log.runs[0].complete);
    assert!(log.runs[0].warnings[0].contains("checksum"), "{log:?}");
}

#[test]
fn a_newer_layout_is_refused_by_name() {
    let newer = Begin {
        layout: 2,
        ..Begin::default()
    };
    let mut line = Line::default();
    Encoder::new(1, 1).encode(newer, &mut line);
    let log = read(format!("messung: {}\n", line.as_str()).as_bytes());
    assert!(log.runs[0].warnings[0].contains("layout 2"), "{log:?}");
}

#[test]
fn what_a_failed_run_says_is_passed_on() {
    let log = read(printk(&messages(7, STAMP, PLAN, "no-memory")).as_bytes());
    assert_eq!(log.runs[0].warnings, ["the run failed: no-memory"]);
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        read(&bytes);
    }

    #[test]
    fn nearly_right_bytes_are_read(at: prop::sample::Index, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut log = printk(&run(7)).into_bytes();
        let at = at.index(log.len());
        let end = (at + bytes.len()).min(log.len());
        log.splice(at..end, bytes);
        let log = read(&log);
        let whole = &read(printk(&run(7)).as_bytes()).runs[0];
        // Whatever happened to the log, what is shown is right.
        for row in log.runs.iter().filter(|run| run.run == whole.run).flat_map(|run| &run.measurements) {
            let mut right = whole.measurements[row.index as usize].clone();
            if row.histogram.is_none() {
                right.histogram = None;
                right.percentiles_ns.clear();
            }
            if row.worst.is_empty() {
                right.worst.clear();
            }
            // Judging takes the first record, the pair and the median.
            if right.verdict != row.verdict {
                right.verdict.clone_from(&row.verdict);
                prop_assert!(!log.runs[0].complete);
            }
            prop_assert_eq!(row, &right);
        }
    }

    #[test]
    fn foreign_lines_change_nothing(foreign in proptest::collection::vec((0_usize..20, "[^\n\r\0@]{0,80}"), 0..30)) {
        let mut lines: Vec<_> = printk(&run(7)).split_inclusive('\n').map(str::to_owned).collect();
        for (at, text) in foreign {
            lines.insert(at.min(lines.len()), format!("{text}\n"));
        }
        let log = read(lines.concat().as_bytes());
        prop_assert_eq!(log, read(printk(&run(7)).as_bytes()));
    }

    #[test]
    fn lost_lines_are_noticed(keep in proptest::collection::vec(any::<bool>(), 14)) {
        let all: Vec<_> = run(7).into_iter().filter(|line| line.contains('@')).collect();
        let mut keep = keep.into_iter().chain(std::iter::repeat(true));
        let lines: Vec<_> = all.iter().filter(|_| keep.next() == Some(true)).cloned().collect();
        let log = read(printk(&lines).as_bytes());
        let complete = log.runs.first().is_some_and(|run| run.complete);
        prop_assert_eq!(complete, lines.len() == all.len());
    }
}
