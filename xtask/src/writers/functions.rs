// SPDX-License-Identifier: GPL-2.0

//! The functions that can be measured, from the table that the parser and the module go by.

use abi::mechanism;
use abi::plan::{Duration, FUNCTIONS, Function, Kind, NDELAY_CONST, OFF_MAX, Spec, UDELAY_CONST};

use super::rows;

/// Headings; none holds numbers.
const COLUMNS: [(&str, bool); 6] = [
    ("function", false),
    ("kind", false),
    ("range", false),
    ("contexts", false),
    ("promise", false),
    ("source", false),
];

/// The table, and what it can't hold.
pub fn functions() -> String {
    let mut text = rows::table(&COLUMNS, FUNCTIONS.iter().map(cells));
    text.push_str(&format!(
        "\nfifo is SCHED_FIFO: fifo:N with N from 1 to 99, fifo alone is fifo:99. irqoff and preemptoff last at most {} a sample.\n",
        Duration(OFF_MAX)
    ));
    text.push_str(&format!(
        "On 32-bit Arm udelay takes at most {}.\n",
        Duration(mechanism::udelay_max("arm"))
    ));
    for (function, constants) in [
        (Function::NdelayConst, &NDELAY_CONST[..]),
        (Function::UdelayConst, &UDELAY_CONST[..]),
    ] {
        let listed: Vec<_> = constants
            .iter()
            .map(|constant| Duration(*constant).to_string())
            .collect();
        text.push_str(&format!(
            "{} knows the constants {}.\n",
            function.spec().name,
            listed.join(" ")
        ));
    }
    text
}

fn cells(spec: &Spec) -> [String; COLUMNS.len()] {
    let range = match spec.kind {
        Kind::Nothing => String::new(),
        _ => format!("{} to {}", Duration(spec.shortest), Duration(spec.longest)),
    };
    let contexts = if spec.is_atomic() {
        "normal fifo irqoff preemptoff"
    } else {
        "normal fifo"
    };
    let promise = match spec.kind {
        Kind::Nothing => "what a pair of time stamps costs",
        _ => mechanism::promise(spec.function),
    };
    [
        spec.name,
        kind(spec.kind),
        &range,
        contexts,
        promise,
        mechanism::source(spec.function),
    ]
    .map(str::to_owned)
}

/// What [`Kind`] means, in short.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Busy => "busy",
        Kind::Hrtimer => "hrtimer",
        Kind::Tick => "tick",
        Kind::Mixed => "by length",
        Kind::Nothing => "nothing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_its_line() {
        let text = functions();
        for spec in &FUNCTIONS {
            let starts = |line: &&str| line.split_whitespace().next() == Some(spec.name);
            let line = text.lines().find(starts).unwrap();
            assert!(line.contains(mechanism::source(spec.function)), "{line}");
            assert_eq!(line.contains("irqoff"), spec.is_atomic(), "{line}");
        }
        assert!(
            text.contains("32-bit Arm udelay takes at most 2ms"),
            "{text}"
        );
        assert!(
            text.contains("udelay_const knows the constants 1us 2us 5us"),
            "{text}"
        );
    }
}
