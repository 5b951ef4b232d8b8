// SPDX-License-Identifier: GPL-2.0

//! Plans on the command line, for `vm` and `run`: refused with a finger on the place, estimated before they run, and what they may be made of.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use abi::mechanism;
use abi::plan::{self, Cpu, FUNCTIONS, Measurement, Problem, SETS, Target, Title};

use crate::failure::{Class, Failure};

/// Characters of a plan that are shown around a mistake.
const SHOWN: usize = 60;

/// How much a name must be like another one to be suggested, from 0 to 1.
const ALIKE: f64 = 0.75;

/// What is to be measured.
#[derive(clap::Args)]
pub struct PlanOptions {
    /// What to measure: the name of a set, or `function[:duration][/context][@cpu][*iterations],…`
    #[arg(long, value_name = "PLAN", default_value = plan::DEFAULT)]
    plan: String,
    /// Samples of each row that names no number
    #[arg(long, value_name = "N", default_value_t = plan::ITERATIONS_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=plan::ITERATIONS_MAX as i64))]
    iterations: u32,
}

impl PlanOptions {
    /// Refuses what the module would refuse on a machine of that name ([`mechanism::udelay_max`]) with that many CPUs.
    ///
    /// # Errors
    ///
    /// The first mistake, with the place and what may have been meant.
    pub fn check(&self, machine: &str, cpus: u32) -> anyhow::Result<()> {
        let udelay_max = mechanism::udelay_max(machine);
        check(&self.plan, self.iterations, Target { cpus, udelay_max })
    }

    /// The module's parameters, for the run with this id.
    pub fn parameters(&self, id: u32) -> String {
        let Self { plan, iterations } = self;
        format!("iterations={iterations} run={id} plan={plan}")
    }

    /// About how long it takes on a kernel with this HZ.
    pub fn estimate(&self, hz: u32, cpus: u32) -> Duration {
        self.rows(hz, cpus)
            .iter()
            .map(|(_, estimate)| *estimate)
            .sum()
    }

    /// The rows as the module counts them, each with the time that it is about to take.
    pub fn rows(&self, hz: u32, cpus: u32) -> Vec<(String, Duration)> {
        plan::rows(&self.plan, self.iterations)
            .map_while(Result::ok)
            .flat_map(|row| each_cpu(row, cpus))
            .map(|row| {
                let estimate = Duration::from_nanos(mechanism::estimate(&row, hz, cpus));
                (Title(&row).to_string(), estimate)
            })
            .collect()
    }
}

/// A row, or where it is for all CPUs one for each.
fn each_cpu(row: Measurement, cpus: u32) -> Vec<Measurement> {
    match row.cpu {
        Cpu::Any | Cpu::One(_) => vec![row],
        Cpu::All => (0..=u16::MAX)
            .zip(0..cpus)
            .map(|(cpu, _)| Measurement {
                cpu: Cpu::One(cpu),
                ..row
            })
            .collect(),
    }
}

/// An id for a run that no other one has, most likely; 0 is for a module that is loaded by hand.
pub fn random_id() -> u32 {
    // The hasher's keys are random.
    let number = RandomState::new().hash_one(());
    u32::try_from(number >> 32).unwrap_or(1).max(1)
}

/// Refuses a plan as the module would on such a machine.
///
/// # Errors
///
/// The first mistake, with the place and what may have been meant.
fn check(text: &str, iterations: u32, target: Target) -> anyhow::Result<()> {
    let Target { cpus, .. } = target;
    let mistake = if let Some(at) = text.find(char::is_whitespace) {
        // The module's parameters are told apart by spaces.
        Some((at, "a plan has no spaces in it".to_owned(), false))
    } else if let Err(error) = plan::check(text, iterations, target) {
        let unknown = error.problem == Problem::UnknownFunction;
        Some((error.at, error.problem.to_string(), unknown))
    } else {
        absent_cpu(text, cpus).map(|at| {
            let last = cpus.saturating_sub(1);
            let why = format!("there is no such CPU: this machine has {cpus}, the last is {last}");
            (at, why, false)
        })
    };
    let Some((at, why, unknown)) = mistake else {
        return Ok(());
    };
    let mut message = format!(
        "the plan is refused: character {}: {why}\n{}",
        at.saturating_add(1),
        pointed(text, at)
    );
    if unknown {
        message.push_str(&format!("\n{}", suggestion(word_at(text, at))));
    }
    Err(Failure::error(Class::Usage, message))
}

/// The place of the first CPU that a machine with so many of them lacks.
fn absent_cpu(text: &str, cpus: u32) -> Option<usize> {
    let mut start = 0;
    for (item, row) in text.split(',').zip(plan::rows(text, 1)) {
        if let Ok(Cpu::One(cpu)) = row.map(|row| row.cpu) {
            if u32::from(cpu) >= cpus {
                return Some(start + item.find('@').map_or(0, |at| at + 1));
            }
        }
        start += item.len() + 1;
    }
    None
}

/// The part of a plan around a place, and a line below it that points there.
fn pointed(text: &str, at: usize) -> String {
    // Places are counted in bytes; what is shown, in characters, none of which may move the terminal's cursor.
    let before: Vec<_> = text
        .char_indices()
        .take_while(|(place, _)| *place < at)
        .map(|(_, character)| shown(character))
        .collect();
    let from = before.len().saturating_sub(SHOWN / 2);
    let part: String = text.chars().map(shown).skip(from).take(SHOWN).collect();
    let cut_before = if from > 0 { "…" } else { "" };
    let cut_after = if text.chars().count() > from + SHOWN {
        "…"
    } else {
        ""
    };
    let indent = before.len() - from + cut_before.chars().count();
    format!("  {cut_before}{part}{cut_after}\n  {:indent$}^", "")
}

fn shown(character: char) -> char {
    if character.is_control() || character.is_whitespace() {
        ' '
    } else {
        character
    }
}

/// The name that begins at a place.
fn word_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or("");
    rest.split([',', ':', '/', '@', '*']).next().unwrap_or("")
}

/// What may have been meant by a name, or what there is.
fn suggestion(name: &str) -> String {
    let sets = SETS.iter().map(|(name, _)| *name);
    let known: Vec<_> = FUNCTIONS.iter().map(|spec| spec.name).chain(sets).collect();
    let mut near: Vec<_> = known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), *known))
        .filter(|(alike, _)| *alike > ALIKE)
        .collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let near: Vec<_> = near.into_iter().take(3).map(|(_, name)| name).collect();
    if near.is_empty() {
        format!("there are: {}", known.join(", "))
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

/// A duration as people say it: `8 min 4 s`, `12 s`.
pub fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(plan: &str, cpus: u32) -> String {
        let error = options(plan, 1000).check("x86_64", cpus).unwrap_err();
        assert_eq!(Failure::class_of(&error), Class::Usage, "{plan}");
        error.to_string()
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let long = "x".repeat(10_000);
        let rows = vec!["none"; 300].join(",");
        for (plan, why) in [
            ("", "an item is missing"),
            ("usleep_range:15us/irqoff", "sleeps can't run"),
            ("msleep:1ms/preemptoff", "sleeps can't run"),
            ("udelay:50ms", "this function takes 1us to 5ms"),
            ("udelay:15", "a whole number with a unit"),
            ("msleep:0ms", "this function takes 1ms to 60s"),
            ("udelay:15us*0", "iterations are 1 to 1000000"),
            ("udelay:15us*1000001", "iterations are 1 to 1000000"),
            ("udelay:15us@99", "there is no such CPU: this machine has 2"),
            ("udelay:15us@2", "the last is 1"),
            ("udelay:15us@99999", "a CPU is a number below 65536"),
            (&long, "at most 8192 characters"),
            (&rows, "at most 256 rows"),
            ("msleep:1ms, udelay:1us", "no spaces"),
            ("udelay:1us/fifo:100", "a priority is 1 to 99"),
            ("udelay_const:3us", "not one of the constants"),
            ("msleep:1ms..2ms", "a..b is for usleep_range"),
            ("none:1us", "none takes no duration"),
            ("article,none", "stands alone"),
        ] {
            let text = refusal(plan, 2);
            assert!(text.contains(why), "{text}");
        }
        for plan in ["article", "quick", "sweep", "udelay:15us@1", "none@all"] {
            assert!(options(plan, 1000).check("x86_64", 2).is_ok(), "{plan}");
        }
    }

    #[test]
    fn the_machine_bounds_udelay() {
        let plan = options("udelay:5ms", 1);
        assert!(plan.check("aarch64", 4).is_ok());
        let error = plan.check("armv7l", 4).unwrap_err().to_string();
        assert!(error.contains("this function takes 1us to 2ms"), "{error}");
    }

    #[test]
    fn a_caret_points_at_the_place() {
        assert_eq!(
            refusal("udelay:15us,msleep:0ms", 1),
            "the plan is refused: character 20: this function takes 1ms to 60s\n\
             \x20 udelay:15us,msleep:0ms\n\
             \x20                    ^"
        );
        assert_eq!(
            refusal("none,udelay:15us@7*3", 2).lines().last(),
            Some("                   ^")
        );
        // Far into a long plan, with characters of several bytes.
        let plan = format!(
            "{},ü:\u{1b}[2J{}",
            vec!["none"; 20].join(","),
            "y".repeat(99)
        );
        let text = refusal(&plan, 1);
        let lines: Vec<_> = text.lines().collect();
        let column = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().nth(column), Some('ü'));
        assert!(lines[1].chars().count() < 70 && !text.contains('\u{1b}'));
    }

    #[test]
    fn near_names_are_suggested() {
        for (name, meant) in [
            ("udelya:15us", "did you mean udelay or "),
            ("usleep-range:15us", "did you mean usleep_range"),
            ("mslep:1ms", "did you mean msleep or "),
            ("artcle", "did you mean article?"),
            ("xyz:1us", "there are: ndelay, ndelay_const, udelay, "),
        ] {
            let text = refusal(name, 1);
            assert!(text.contains(meant), "{text}");
        }
    }

    fn options(plan: &str, iterations: u32) -> PlanOptions {
        PlanOptions {
            plan: plan.to_owned(),
            iterations,
        }
    }

    #[test]
    fn rows_are_those_of_the_module() {
        let rows = options("udelay:15us/irqoff,none@all*7", 10).rows(250, 3);
        let titles: Vec<_> = rows.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "udelay 15 us, irqoff",
                "none, CPU 0",
                "none, CPU 1",
                "none, CPU 2"
            ]
        );
        assert_eq!(
            options("quick", 10).parameters(7),
            "iterations=10 run=7 plan=quick"
        );
    }

    #[test]
    fn the_article_takes_eight_minutes() {
        let article = options(plan::DEFAULT, 1000).estimate(250, 1);
        // Seen: 483 s of guest time.
        assert!((470..500).contains(&article.as_secs()), "{article:?}");
        assert!(options("sweep", 1_000_000).estimate(250, 1) < Duration::MAX);
        assert_eq!(spoken(Duration::from_millis(483_100)), "8 min 4 s");
        assert_eq!(spoken(Duration::from_millis(20)), "1 s");
        assert_eq!(spoken(Duration::from_secs(7260)), "2 h 1 min");
    }
}
