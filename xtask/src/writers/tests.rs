// SPDX-License-Identifier: GPL-2.0

//! A run with the article's rows, and what a person sees of it.

use std::collections::BTreeMap;

use super::*;
use crate::result::{
    Early, Environment, Identity, Instrument, Measurement, Platform, PlatformKind, SCHEMA, Spread,
    State, Tool, Unknown, Verdict,
};

/// A row of 1000 samples with the given shortest, mean and highest.
pub fn row(
    index: u32,
    function: &str,
    requested_ns: u64,
    context: &str,
    [shortest, mean, highest]: [u64; 3],
) -> Measurement {
    Measurement {
        index,
        function: function.to_owned(),
        requested_ns,
        requested_max_ns: (function == "usleep_range").then_some(requested_ns),
        context: context.to_owned(),
        cpu: None,
        iterations: 1000,
        count: 1000,
        shortest_ns: Some(shortest),
        mean_ns: Some(mean),
        highest_ns: Some(highest),
        stddev_ns: None,
        early: Some(Early {
            count: 0,
            worst_ns: None,
        }),
        percentiles_ns: BTreeMap::new(),
        histogram: None,
        worst: Vec::new(),
        cpu_changes: None,
        involuntary_switches: None,
        verdict: None,
        flags: Vec::new(),
        unknown: Unknown::new(),
    }
}

/// The article's plan as a 250 Hz kernel carries it out.
pub fn article() -> Run {
    let us = |value: u64| value * 1000;
    Run {
        schema: SCHEMA.to_owned(),
        tool: Tool {
            version: "0.1.0".to_owned(),
            unknown: Unknown::new(),
        },
        run: Identity {
            id: 7,
            stamp: 1_767_225_607_123_456_789,
        },
        complete: true,
        plan: "article".to_owned(),
        fault: None,
        environment: Environment {
            kernel_release: Some("7.3.4+deb13-amd64".to_owned()),
            machine: Some("x86_64".to_owned()),
            hz: Some(250),
            preempt: Some("PREEMPT_DYNAMIC".to_owned()),
            realtime: Some(false),
            high_res: Some(true),
            clocksource: Some("tsc".to_owned()),
            cpus: Some(1),
            ..Environment::default()
        },
        platform: Some(Platform {
            kind: PlatformKind::Vm,
            accelerator: Some("tcg".to_owned()),
            virtual_time: true,
            cpu_model: None,
            machine: Some("q35".to_owned()),
            qemu_version: Some("10.0.2".to_owned()),
            unknown: Unknown::new(),
        }),
        instrument: Some(Instrument {
            pair_ns: Some(Spread {
                shortest: 420,
                mean: 428,
                highest: 436,
            }),
            ..Instrument::default()
        }),
        measurements: vec![
            row(0, "udelay", us(15), "normal", [15_340, 17_950, 2_216_120]),
            row(1, "udelay", us(15), "irqoff", [15_340, 15_340, 15_340]),
            row(2, "udelay", us(100), "irqoff", [99_628, 99_628, 99_628]),
            row(
                3,
                "usleep_range",
                us(15),
                "normal",
                [19_000, 66_000, 155_000],
            ),
            row(
                4,
                "usleep_range",
                us(15),
                "fifo:99",
                [18_000, 65_000, 140_000],
            ),
            row(
                5,
                "usleep_range",
                us(100),
                "fifo:99",
                [103_000, 110_000, 180_000],
            ),
            row(
                6,
                "usleep_range",
                us(110_000),
                "normal",
                [us(110_018), us(110_100), us(110_728)],
            ),
            row(
                7,
                "msleep",
                us(10_000),
                "normal",
                [us(15_998), us(16_000), us(16_001)],
            ),
            row(
                8,
                "msleep",
                us(15_000),
                "normal",
                [us(19_998), us(20_000), us(20_001)],
            ),
            row(
                9,
                "msleep",
                us(18_000),
                "normal",
                [us(23_998), us(24_000), us(24_001)],
            ),
            row(
                10,
                "msleep",
                us(24_000),
                "normal",
                [us(27_998), us(28_000), us(28_001)],
            ),
            row(
                11,
                "msleep",
                us(50_000),
                "normal",
                [us(55_998), us(56_000), us(56_001)],
            ),
            row(
                12,
                "msleep",
                us(100_000),
                "normal",
                [us(103_998), us(104_000), us(104_001)],
            ),
            row(
                13,
                "msleep",
                us(110_000),
                "normal",
                [us(115_998), us(116_000), us(116_001)],
            ),
        ],
        disturbances: Vec::new(),
        warnings: Vec::new(),
        unknown: Unknown::new(),
    }
}

#[test]
fn the_report_of_the_article() {
    let expected = include_str!("../../../tests/reports/article.txt");
    let got = report(&article());
    assert!(got == expected, "got:\n{got}\nexpected:\n{expected}");
}

#[test]
fn doubts_stand_above_the_table() {
    let mut run = article();
    run.complete = false;
    run.fault = Some("slow".to_owned());
    run.warnings.push("2 records are missing".to_owned());
    run.disturbances.push("the host slept".to_owned());
    run.measurements[0]
        .flags
        .push("moved between CPUs".to_owned());
    run.measurements[1].count = 20;
    run.measurements[2].mean_ns = None;
    let report = report(&run);
    let at = |text: &str| {
        report
            .find(text)
            .unwrap_or_else(|| panic!("no {text:?} in\n{report}"))
    };
    assert!(at("TEST BUILD") < at("INCOMPLETE"));
    assert!(at("INCOMPLETE") < at("WARNING: 2 records are missing"));
    assert!(at("DISTURBED: the host slept") < at("function"));
    at("row 1: moved between CPUs");
    at("20 of 1000");
}

#[test]
fn emulation_in_real_time_is_no_measure_of_hardware() {
    let mut run = article();
    let label = "NO MEASURE OF HARDWARE";
    assert!(!report(&run).contains(label));
    if let Some(platform) = &mut run.platform {
        platform.virtual_time = false;
    }
    assert!(report(&run).contains(label));
    if let Some(platform) = &mut run.platform {
        platform.accelerator = Some("kvm".to_owned());
    }
    assert!(!report(&run).contains(label));
}

#[test]
fn a_bare_log_has_a_report_too() {
    let mut run = article();
    run.environment = Environment::default();
    run.platform = None;
    run.instrument = None;
    run.run = Identity { id: 0, stamp: 0 };
    run.plan.clear();
    run.measurements.clear();
    assert_eq!(
        report(&run),
        "run         unknown\nplan        unknown\n\n(no rows)\n"
    );
}

#[test]
fn verdicts_stand_in_the_last_column_and_are_counted() {
    let mut run = article();
    let verdict = |state| Verdict {
        state,
        promise: "sleeps".to_owned(),
        source: "a file".to_owned(),
    };
    for row in &mut run.measurements {
        row.verdict = Some(verdict(State::Kept));
    }
    let kept = report(&run);
    assert!(!kept.contains("findings"), "{kept}");
    run.measurements[2].verdict = Some(verdict(State::Early));
    run.measurements[3].verdict = Some(verdict(State::ExceedsDocument));
    run.measurements[4].verdict = Some(verdict(State::Late));
    let report = report(&run);
    let counts =
        "findings    of 14 rows: 1 early, 1 late by the mechanism, 1 beyond the document (> doc)\n";
    assert!(report.contains(counts), "{report}");
    let last = |line: usize| {
        report
            .lines()
            .nth(7 + line)
            .and_then(|line| line.split("  ").last())
    };
    assert_eq!(last(0), Some("verdict"));
    assert_eq!(last(4), Some("early"));
    assert_eq!(last(5), Some("> doc"));
    assert_eq!(last(6), Some("late"));
}
