// SPDX-License-Identifier: GPL-2.0

//! What stands out, in two or three sentences. Each is computed from the rows and said only when they support it.

use super::numbers::{percent, range, spoken, whole};
use crate::result::{Environment, Measurement, Run};

/// No more sentences than a reader takes in.
const MOST: usize = 3;

/// Differences below a tenth are not worth a sentence that claims one.
const NOTABLE_PERCENT: u64 = 10;

/// The sentences, most surprising first.
pub fn findings(run: &Run) -> Vec<String> {
    let rows = &run.measurements;
    [
        early(rows),
        interrupts_off(rows),
        sleeps(rows, &run.environment),
        priority(rows),
    ]
    .into_iter()
    .flatten()
    .take(MOST)
    .collect()
}

/// A delay that returns before its time: worse than any lateness, since drivers rely on it.
fn early(rows: &[Measurement]) -> Option<String> {
    let early: Vec<_> = rows
        .iter()
        .filter(|row| early_count(row) > 0 || is_short(row))
        .collect();
    let row = *early
        .iter()
        .min_by_key(|row| per_million(row.shortest_ns.unwrap_or(u64::MAX), row.requested_ns))?;
    let (mean, shortest) = (row.mean_ns?, row.shortest_ns?);
    let short = |ns: u64| row.requested_ns.checked_sub(ns);
    let what = if is_short(row) {
        format!(
            "takes {} on average, {} too short",
            spoken(mean),
            share(short(mean)?, row.requested_ns)?
        )
    } else {
        format!("is early by {} at worst", spoken(short(shortest)?))
    };
    let floor = if is_busy(&row.function) {
        "99.5 % of the request"
    } else {
        "the request"
    };
    let others = match early.len() {
        1 => String::new(),
        rows => format!("; {rows} rows come out short, this one most"),
    };
    Some(format!(
        "{} {}: it {what} ({} of {} samples below {floor}{others}).",
        called(row),
        // "Early" is a word with a meaning: below the floor.
        if early_count(row) > 0 {
            "returns too early"
        } else {
            "comes out short"
        },
        early_count(row),
        row.count
    ))
}

/// `0.37 %`.
fn share(part: u64, whole: u64) -> Option<String> {
    let percent = percent(i128::from(part), whole)?;
    Some(format!("{} %", percent.trim_start_matches('+')))
}

/// What interrupts cost a busy wait.
fn interrupts_off(rows: &[Measurement]) -> Option<String> {
    let (on, off) = pairs(rows, |context| context == "irqoff").max_by_key(|(on, off)| {
        per_million(
            on.highest_ns.unwrap_or(0),
            off.highest_ns.unwrap_or(u64::MAX),
        )
    })?;
    let (with, without) = (on.highest_ns?, off.highest_ns?);
    if notably_more(with, without) {
        return Some(format!(
            "{} takes {} at worst; with interrupts off it is {}.",
            called(on),
            spoken(with),
            spoken(without)
        ));
    }
    let effect = if notably_more(without, with) {
        "does not help"
    } else {
        "makes no difference to"
    };
    Some(format!(
        "Turning interrupts off {effect} {} here: {} at worst, against {} with them on.",
        called(on),
        spoken(without),
        spoken(with)
    ))
}

/// What sleeps cost, and which one to take.
fn sleeps(rows: &[Measurement], environment: &Environment) -> Option<String> {
    match (ticks(rows, environment), long_sleeps(rows)) {
        (Some(ticks), Some(long)) => Some(format!("{ticks}; {long}.")),
        (Some(one), None) | (None, Some(one)) => Some(format!("{one}.")),
        (None, None) => None,
    }
}

/// How far sleeps that count in ticks overshoot.
fn ticks(rows: &[Measurement], environment: &Environment) -> Option<String> {
    let row = rows
        .iter()
        .filter(|row| counts_in_ticks(&row.function))
        .filter(|row| {
            row.mean_ns
                .is_some_and(|mean| notably_more(mean, row.requested_ns))
        })
        .max_by_key(|row| per_million(row.mean_ns.unwrap_or(0), row.requested_ns))?;
    let mean = row.mean_ns?;
    let late = mean.checked_sub(row.requested_ns)?;
    let percent = share(late, row.requested_ns)?;
    let grid = match environment.hz {
        Some(hz) if hz > 0 => format!(", on a grid of {} (HZ={hz})", tick(hz)),
        _ => String::new(),
    };
    Some(format!(
        "{} takes {} on average, {} ({percent}) more than asked{grid}",
        called(row),
        spoken(mean),
        spoken(late)
    ))
}

/// The length of a tick; not every HZ divides a second.
fn tick(hz: u32) -> String {
    let ns = 1_000_000_000 / u64::from(hz);
    if ns % 1000 == 0 {
        whole(ns)
    } else {
        spoken(ns)
    }
}

/// Whether the high-resolution sleep is the better one for the same long time too.
fn long_sleeps(rows: &[Measurement]) -> Option<String> {
    let late = |row: &Measurement| row.highest_ns?.checked_sub(row.requested_ns);
    let (fine, coarse) = rows
        .iter()
        .filter(|row| row.function == "usleep_range" && row.context == "normal")
        .filter_map(|fine| {
            let coarse = rows.iter().find(|row| {
                row.function == "msleep"
                    && row.context == fine.context
                    && row.requested_ns == fine.requested_ns
            })?;
            Some((fine, coarse))
        })
        .max_by_key(|(fine, _)| fine.requested_ns)?;
    let (fine_late, coarse_late) = (late(fine)?, late(coarse)?);
    if !notably_more(coarse_late, fine_late) && !notably_more(fine_late, coarse_late) {
        return None;
    }
    let better = if fine_late < coarse_late {
        "usleep_range"
    } else {
        "msleep"
    };
    Some(format!(
        "for {} {better} is the more accurate: usleep_range is at most {} late, msleep {}",
        whole(fine.requested_ns),
        spoken(fine_late),
        spoken(coarse_late)
    ))
}

/// What a real-time priority gains.
fn priority(rows: &[Measurement]) -> Option<String> {
    let (normal, fifo) = pairs(rows, |context| context.starts_with("fifo"))
        .max_by_key(|(normal, _)| normal.requested_ns)?;
    let (before, after) = (normal.mean_ns?, fifo.mean_ns?);
    let gain = if notably_more(before, after) {
        "helps"
    } else if notably_more(after, before) {
        "does not help"
    } else {
        "hardly changes"
    };
    Some(format!(
        "A real-time priority ({}) {gain} {}: {} on average and {} at worst, against {} and {}.",
        fifo.context,
        called(normal),
        spoken(after),
        spoken(fifo.highest_ns?),
        spoken(before),
        spoken(normal.highest_ns?)
    ))
}

/// Rows that differ in their context only: the normal one, and one whose context is `other`.
fn pairs(
    rows: &[Measurement],
    other: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&Measurement, &Measurement)> {
    rows.iter()
        .filter(move |row| other(&row.context))
        .filter_map(|row| {
            let normal = rows.iter().find(|normal| {
                normal.context == "normal"
                    && normal.function == row.function
                    && normal.requested_ns == row.requested_ns
                    && normal.requested_max_ns == row.requested_max_ns
                    && normal.cpu == row.cpu
            })?;
            Some((normal, row))
        })
        .filter(|(normal, row)| normal.highest_ns.is_some() && row.highest_ns.is_some())
}

/// `udelay(15 us)`, `udelay(15 us) with interrupts off`.
fn called(row: &Measurement) -> String {
    let context = match row.context.as_str() {
        "normal" => String::new(),
        "irqoff" => " with interrupts off".to_owned(),
        "preemptoff" => " with preemption off".to_owned(),
        other => format!(" at {other}"),
    };
    let duration = range(
        row.requested_ns,
        row.requested_max_ns.unwrap_or(row.requested_ns),
    );
    format!("{}({duration}){context}", row.function)
}

fn early_count(row: &Measurement) -> u32 {
    row.early.map_or(0, |early| early.count)
}

/// Whether the mean of a busy wait is below its request, if only within the tolerance of the floor: the cost of the
/// time stamps lengthens each sample, so this does not happen by chance.
fn is_short(row: &Measurement) -> bool {
    is_busy(&row.function) && row.mean_ns.is_some_and(|mean| mean < row.requested_ns)
}

fn is_busy(function: &str) -> bool {
    ["ndelay", "udelay", "mdelay"]
        .iter()
        .any(|name| function == *name || function.strip_suffix("_const") == Some(name))
}

fn counts_in_ticks(function: &str) -> bool {
    ["msleep", "msleep_interruptible", "schedule_timeout"].contains(&function)
}

/// Whether `more` exceeds `less` by a tenth and more.
fn notably_more(more: u64, less: u64) -> bool {
    per_million(more, less) >= 1_000_000 + u128::from(NOTABLE_PERCENT) * 10_000
}

/// `part` in millionths of `whole`; of nothing, everything is too much.
fn per_million(part: u64, whole: u64) -> u128 {
    (u128::from(part) * 1_000_000)
        .checked_div(u128::from(whole))
        .unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Early;
    use crate::writers::tests::{article, row};

    #[test]
    fn the_article_on_a_250_hz_kernel() {
        assert_eq!(
            findings(&article()),
            [
                "udelay(100 us) with interrupts off comes out short: it takes 99.628 us on average, 0.37 % too short \
                 (0 of 1000 samples below 99.5 % of the request).",
                "udelay(15 us) takes 2.216 ms at worst; with interrupts off it is 15.340 us.",
                "msleep(10 ms) takes 16.000 ms on average, 6.000 ms (60.00 %) more than asked, on a grid of 4 ms (HZ=250); \
                 for 110 ms usleep_range is the more accurate: usleep_range is at most 728.000 us late, msleep 6.001 ms.",
            ]
        );
    }

    #[test]
    fn no_rows_no_sentences() {
        let mut run = article();
        run.measurements.clear();
        assert_eq!(findings(&run), [""; 0]);
        run.measurements = vec![row(0, "udelay", 15_000, "normal", [15_100, 15_200, 15_300])];
        assert_eq!(findings(&run), [""; 0]);
    }

    #[test]
    fn an_early_sleep_is_told_by_its_worst_sample() {
        let mut slept = row(
            0,
            "msleep",
            10_000_000,
            "normal",
            [8_080_000, 15_000_000, 20_000_000],
        );
        slept.early = Some(Early {
            count: 3,
            worst_ns: Some(-1_920_000),
        });
        assert_eq!(
            early(&[slept]).unwrap(),
            "msleep(10 ms) returns too early: it is early by 1.920 ms at worst (3 of 1000 samples below the request)."
        );
    }

    #[test]
    fn several_early_rows_are_counted() {
        let rows = [
            row(0, "udelay", 15_000, "normal", [14_900, 14_950, 15_000]),
            row(1, "udelay", 100_000, "normal", [99_000, 99_100, 99_200]),
        ];
        let sentence = early(&rows).unwrap();
        assert!(
            sentence.starts_with("udelay(100 us) comes out short"),
            "{sentence}"
        );
        assert!(sentence.contains("2 rows come out short"), "{sentence}");
    }

    #[test]
    fn interrupts_that_cost_nothing_are_not_blamed() {
        let rows = [
            row(0, "udelay", 15_000, "normal", [15_000, 15_100, 15_400]),
            row(1, "udelay", 15_000, "irqoff", [15_000, 15_100, 15_300]),
        ];
        assert!(
            interrupts_off(&rows)
                .unwrap()
                .contains("makes no difference")
        );
    }

    #[test]
    fn a_pair_differs_in_its_context_only() {
        let normal = row(0, "udelay", 15_000, "normal", [15_000, 15_100, 99_000]);
        let mut other = row(1, "udelay", 15_000, "irqoff", [15_000, 15_100, 15_300]);
        assert!(interrupts_off(&[normal.clone(), other.clone()]).is_some());
        other.cpu = Some(1);
        assert_eq!(interrupts_off(&[normal, other]), None);
    }

    #[test]
    fn exact_sleeps_give_no_sentence_on_ticks() {
        let exact = row(
            0,
            "msleep",
            10_000_000,
            "normal",
            [10_000_000, 10_100_000, 10_200_000],
        );
        assert_eq!(ticks(&[exact], &Environment::default()), None);
    }

    #[test]
    fn the_tick_is_told_only_where_known() {
        let slept = [row(
            0,
            "msleep",
            24_000_000,
            "normal",
            [39_000_000, 40_000_000, 40_100_000],
        )];
        let known = Environment {
            hz: Some(100),
            ..Environment::default()
        };
        assert!(
            ticks(&slept, &known)
                .unwrap()
                .ends_with("on a grid of 10 ms (HZ=100)")
        );
        assert!(
            ticks(&slept, &Environment::default())
                .unwrap()
                .ends_with("more than asked")
        );
    }

    #[test]
    fn the_better_long_sleep_is_named() {
        let fine = row(
            0,
            "usleep_range",
            110_000_000,
            "normal",
            [110_018_000, 110_100_000, 110_728_000],
        );
        let coarse = row(
            1,
            "msleep",
            110_000_000,
            "normal",
            [116_000_000, 116_000_000, 116_001_000],
        );
        assert_eq!(
            long_sleeps(&[fine.clone(), coarse.clone()]).unwrap(),
            "for 110 ms usleep_range is the more accurate: usleep_range is at most 728.000 us late, msleep 6.001 ms"
        );
        assert_eq!(long_sleeps(&[fine]), None);
        assert_eq!(long_sleeps(&[coarse]), None);
    }

    #[test]
    fn a_priority_is_judged_by_the_mean() {
        let normal = row(
            0,
            "usleep_range",
            15_000,
            "normal",
            [60_000, 66_000, 155_000],
        );
        let rows = |mean| {
            [
                normal.clone(),
                row(
                    1,
                    "usleep_range",
                    15_000,
                    "fifo:99",
                    [15_000, mean, 140_000],
                ),
            ]
        };
        assert!(priority(&rows(65_000)).unwrap().contains("hardly changes"));
        assert!(priority(&rows(20_000)).unwrap().contains(" helps "));
        assert!(priority(&rows(90_000)).unwrap().contains("does not help"));
    }
}
