// SPDX-License-Identifier: GPL-2.0

//! A comparison of two results for a person: what was compared, the table, and each finding in a sentence.

use super::numbers::{percent, spoken};
use super::{name, rows};
use crate::compare::{Comparison, Difference, Figure, Pair, median_of};
use crate::result::{Measurement, Run};

/// A result and where it came from.
pub struct Named<'a> {
    /// The file's name.
    pub name: String,
    /// The result.
    pub run: &'a Run,
}

/// Columns of the table: heading, and whether it holds numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("#", true),
    ("function", false),
    ("requested", true),
    ("context", false),
    ("mean A us", true),
    ("mean B us", true),
    ("mean %", true),
    ("median %", true),
    ("shortest %", true),
    ("early A, B", true),
    ("differs", false),
];

/// The whole text.
pub fn text(comparison: &Comparison<'_>, [a, b]: &[Named<'_>; 2], threshold: f64) -> String {
    let mut text = format!("A           {}\nB           {}\n", source(a), source(b));
    for caution in &comparison.cautions {
        text.push_str(&format!("WARNING: {caution}\n"));
    }
    if !comparison.pairs.is_empty() {
        text.push('\n');
        text.push_str(&rows::table(&COLUMNS, comparison.pairs.iter().map(cells)));
    }
    text.push('\n');
    for (which, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for row in only {
            text.push_str(&format!("only in {which}: {}\n", title(row)));
        }
    }
    for pair in comparison.differing() {
        text.push_str(&sentence(pair));
        text.push('\n');
    }
    text.push_str(&summary(comparison, threshold));
    text.push('\n');
    text
}

/// `a.json: run 7 (started …), 7.3.4+deb13-amd64`.
fn source(named: &Named<'_>) -> String {
    let Named { name: file, run } = named;
    let mut text = format!("{file}: {}", name(run));
    if let Some(release) = &run.environment.kernel_release {
        text.push_str(&format!(", {release}"));
    }
    if let Some(fault) = &run.fault {
        text.push_str(&format!(", TEST BUILD with the planted fault {fault:?}"));
    }
    text
}

/// What it all comes to.
fn summary(comparison: &Comparison<'_>, threshold: f64) -> String {
    let rows = comparison.pairs.len();
    if rows == 0 {
        return "No row is in both.".to_owned();
    }
    if comparison.is_identical() {
        return format!("Identical: {rows} rows, to the nanosecond.");
    }
    let beyond = format!("beyond {threshold} % and what spread and instrument explain");
    match comparison.differing().count() {
        0 => format!("No difference: {rows} rows compared, none is {beyond}."),
        differing => format!("{differing} of {rows} rows differ {beyond}."),
    }
}

fn cells(pair: &Pair<'_>) -> [String; COLUMNS.len()] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let us = |ns: Option<u64>| or_dash(ns.map(super::numbers::us));
    let change = |get: fn(&Measurement) -> Option<u64>| {
        or_dash(get(pair.a).zip(get(pair.b)).and_then(|(a, b)| change(a, b)))
    };
    let early = |row: &Measurement| or_dash(row.early.map(|early| early.count.to_string()));
    let [place, function, requested, context] = rows::identity(pair.a);
    [
        place,
        function,
        requested,
        context,
        us(pair.a.mean_ns),
        us(pair.b.mean_ns),
        change(|row| row.mean_ns),
        change(median_of),
        change(|row| row.shortest_ns),
        format!("{}, {}", early(pair.a), early(pair.b)),
        pair.differences
            .iter()
            .map(|difference| figure(difference.figure))
            .collect::<Vec<_>>()
            .join(", "),
    ]
}

/// `udelay 15 us, irqoff: mean 0.60 % shorter (…, 12.1 standard deviations), 3 samples early instead of none`.
fn sentence(pair: &Pair<'_>) -> String {
    let parts: Vec<_> = pair
        .differences
        .iter()
        .map(|difference| part(difference, pair))
        .collect();
    format!("{}: {}", title(pair.a), parts.join("; "))
}

fn part(difference: &Difference, pair: &Pair<'_>) -> String {
    let Difference { figure: what, a, b } = *difference;
    if what == Figure::Early {
        return format!(
            "{b} of {} samples early instead of {a} of {}",
            pair.b.count, pair.a.count
        );
    }
    let direction = if b < a { "shorter" } else { "longer" };
    let share = change(a, b).map_or(String::new(), |percent| {
        format!(" {} %", percent.trim_start_matches(['+', '-']))
    });
    let effect = match pair.effect {
        Some(effect) if what == Figure::Mean => {
            format!(", {:.1} standard deviations", effect.abs())
        }
        _ => String::new(),
    };
    format!(
        "{}{share} {direction}, {} instead of {}{effect}",
        figure(what),
        spoken(b),
        spoken(a)
    )
}

/// The change from `a` to `b` in percent.
fn change(a: u64, b: u64) -> Option<String> {
    percent(i128::from(b) - i128::from(a), a)
}

fn figure(figure: Figure) -> &'static str {
    match figure {
        Figure::Mean => "mean",
        Figure::Median => "median",
        Figure::Shortest => "shortest",
        Figure::Early => "early",
    }
}

/// The row in a sentence: `udelay 15 us, irqoff`.
fn title(row: &Measurement) -> String {
    let [_, function, requested, context] = rows::identity(row);
    [function, requested, context]
        .iter()
        .filter(|part| !part.is_empty() && part.as_str() != "normal")
        .enumerate()
        .fold(String::new(), |text, (index, part)| match index {
            0 => part.clone(),
            1 if row.requested_ns != 0 => format!("{text} {part}"),
            _ => format!("{text}, {part}"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{THRESHOLD, compare};
    use crate::result::Early;
    use crate::writers::tests::article;

    fn shown(a: &Run, b: &Run) -> String {
        let named = |name: &str, run| Named {
            name: name.to_owned(),
            run,
        };
        text(
            &compare(a, b, THRESHOLD),
            &[named("a.json", a), named("b.json", b)],
            THRESHOLD,
        )
    }

    #[test]
    fn identical_results_say_so() {
        let run = article();
        assert!(shown(&run, &run).ends_with("\n\nIdentical: 14 rows, to the nanosecond.\n"));
    }

    #[test]
    fn differences_are_told_in_a_sentence_each() {
        let mut a = article();
        for row in &mut a.measurements {
            row.stddev_ns = Some(0);
        }
        let mut b = a.clone();
        b.fault = Some("early".to_owned());
        b.measurements.remove(13);
        let row = &mut b.measurements[1];
        row.mean_ns = Some(15_240);
        row.stddev_ns = Some(100);
        row.shortest_ns = Some(15_000);
        row.early = Some(Early {
            count: 30,
            worst_ns: None,
        });
        let got = shown(&a, &b);
        let expected = "
WARNING: different planted faults: none known and early
";
        assert!(got.contains(expected), "{got}");
        let end = "
only in A: msleep 110 ms
udelay 15 us, irqoff: mean 0.65 % shorter, 15.240 us instead of 15.340 us, 1.4 standard deviations; shortest 2.22 % shorter, \
15.000 us instead of 15.340 us; early 30 of 1000
1 of 13 rows differ beyond 0.3 % and what spread and instrument explain.
";
        let end = end.replace(
            "early 30 of 1000",
            "30 of 1000 samples early instead of 0 of 1000",
        );
        assert!(got.ends_with(&end), "{got}");
    }

    #[test]
    fn nothing_in_common_is_told() {
        let a = article();
        let mut b = article();
        b.measurements.clear();
        assert!(shown(&a, &b).ends_with("only in A: msleep 110 ms\nNo row is in both.\n"));
    }
}
