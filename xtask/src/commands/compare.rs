// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask compare`: tells how two saved results differ.

use std::path::PathBuf;

use crate::compare::{THRESHOLD, compare};
use crate::failure::{Class, Failure};
use crate::ui::Ui;
use crate::writers::comparison;

/// What `compare` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask compare a.json b.json                 is the second run any different?
  cargo xtask compare a.json b.json --threshold 5   only what differs by more than 5 %

Rows are matched by function, request, context and CPU. A difference counts if it is beyond the threshold, and beyond
what the spread of both rows and the instrument explain.

Exit status: 0 no difference, 3 a difference, 1 a result cannot be read or no row is in both, 2 wrong usage.")]
pub struct Options {
    /// The result to compare with
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The result to judge
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Ignore what differs by less than this, in percent of A's figure
    #[arg(long, value_name = "PERCENT", default_value_t = THRESHOLD, value_parser = percent)]
    threshold: f64,
}

/// A threshold.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if (0.0..=1e6).contains(&percent) => Ok(percent),
        _ => Err("a number of percent, 0 or more, is needed".to_owned()),
    }
}

/// Compares, and fails if there is a difference.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options { a, b, threshold } = options;
    let (a_run, b_run) = (super::report::read(&a)?, super::report::read(&b)?);
    let comparison = compare(&a_run, &b_run, threshold);
    let names = [(&a, &a_run), (&b, &b_run)].map(|(path, run)| comparison::Named {
        name: path.display().to_string(),
        run,
    });
    ui.print(&comparison::text(&comparison, &names, threshold))?;
    if comparison.pairs.is_empty() {
        return Err(Failure::error(
            Class::NotMeasured,
            format!(
                "no row is in both {} and {}: there is nothing to compare",
                a.display(),
                b.display()
            ),
        ));
    }
    match comparison.differing().count() {
        0 => Ok(()),
        rows => Err(Failure::error(
            Class::Limit,
            format!(
                "{} differs from {} in {rows} of {} rows",
                b.display(),
                a.display(),
                comparison.pairs.len()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn thresholds_make_sense() {
        assert_eq!(percent("0.5"), Ok(0.5));
        assert_eq!(percent("5 %"), Ok(5.0));
        for text in ["-1", "NaN", "inf", "x", ""] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
