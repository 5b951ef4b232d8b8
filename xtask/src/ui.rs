// SPDX-License-Identifier: GPL-2.0

//! The one place that prints. Results go to stdout, all else to stderr.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::time::Instant;

use crate::event::{Event, Sink};

/// Prints events: one line a step, with the time since the start, and a bar below it where stderr is a terminal.
pub struct Ui {
    verbose: bool,
    colour: bool,
    started: Instant,
    bar: bar::Bar,
}

impl Ui {
    /// Prints to this process's stdout and stderr; with `verbose` also commands and their output.
    pub fn new(verbose: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            verbose,
            colour: terminal && may_colour(std::env::var_os("NO_COLOR").as_deref()),
            started: Instant::now(),
            bar: bar::Bar::new(terminal),
        }
    }

    /// Prints a result to stdout. A reader that went away (`| head`) is no error.
    pub fn print(&self, text: &str) -> anyhow::Result<()> {
        self.bar.suspend(|| {
            let mut stdout = io::stdout().lock();
            match stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush())
            {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    Err(anyhow::Error::new(error).context("cannot write to the standard output"))
                }
                _ => Ok(()),
            }
        })
    }

    /// Prints an error and its causes.
    pub fn error(&self, error: &anyhow::Error) {
        let causes: String = error
            .chain()
            .skip(1)
            .map(|cause| format!("\n  cause: {cause}"))
            .collect();
        self.line(&format!("{} {error}{causes}", self.label("error:", RED)));
    }

    /// Takes the bar away, until the next step or row: somebody else has the terminal, or all is done.
    pub fn rest(&self) {
        self.bar.clear();
    }

    /// A line on stderr. Nobody can be told when that fails.
    fn line(&self, text: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{text}");
        });
    }

    fn label(&self, text: &str, colour: &str) -> String {
        if self.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Sink for Ui {
    fn emit(&self, event: Event) {
        match event {
            Event::Step(text) => {
                self.line(&step_line(self.started.elapsed().as_secs_f64(), &text));
                self.bar.step();
            }
            Event::Progress { done, total, unit } => self.bar.progress(done, total, unit),
            Event::AtWork { text, done, total } => self.bar.at_work(text, done, total),
            Event::Row(text) => self.line(&text),
            Event::Command(text) if self.verbose => {
                self.line(&format!("{} {text}", self.label("$", BOLD)));
            }
            Event::Output(text) if self.verbose => self.line(&text),
            Event::Command(_) | Event::Output(_) => {}
            Event::Note(text) => self.line(&format!("{} {text}", self.label("note:", BOLD))),
            Event::Warning(text) => {
                self.line(&format!("{} {text}", self.label("warning:", YELLOW)));
            }
        }
    }
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";

/// Whether colours are welcome, given the value of `NO_COLOR` (<https://no-color.org>: any value but an empty one).
fn may_colour(no_color: Option<&std::ffi::OsStr>) -> bool {
    no_color.is_none_or(std::ffi::OsStr::is_empty)
}

/// A step with the seconds since the start.
fn step_line(seconds: f64, text: &str) -> String {
    format!("[{seconds:6.1} s] {text}")
}

mod bar {
    use std::time::Duration;

    use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

    use crate::event::Unit;

    /// What moves below the last line of a terminal; nothing where stderr is none, or before the first step.
    pub(super) struct Bar {
        bar: ProgressBar,
        terminal: bool,
    }

    impl Bar {
        pub(super) fn new(terminal: bool) -> Self {
            Self {
                bar: ProgressBar::hidden(),
                terminal,
            }
        }

        pub(super) fn step(&self) {
            // Not before its style is set, or it shows another one for a moment.
            self.bar.set_style(style("{spinner} {elapsed}"));
            self.bar.unset_length();
            self.bar.reset();
            self.show();
            if self.terminal {
                self.bar.enable_steady_tick(Duration::from_millis(200));
            }
        }

        fn show(&self) {
            if self.terminal && self.bar.is_hidden() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        }

        pub(super) fn progress(&self, done: u64, total: Option<u64>, unit: Unit) {
            match total {
                Some(total) => self.bar.set_length(total),
                None => self.bar.unset_length(),
            }
            self.bar.set_style(style(&template(total.is_some(), unit)));
            self.bar.set_position(done);
        }

        /// It moves only when told to: what redraws it by itself would disturb what is measured.
        pub(super) fn at_work(&self, text: String, done: Duration, total: Duration) {
            let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            self.bar.disable_steady_tick();
            self.bar.set_style(style(AT_WORK));
            self.bar.set_length(milliseconds(total));
            self.bar.set_message(text);
            self.bar.set_position(milliseconds(done));
            self.show();
        }

        pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
            self.bar.suspend(print)
        }

        pub(super) fn clear(&self) {
            self.bar.finish_and_clear();
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            self.bar.reset();
        }
    }

    /// indicatif's template for a plan that is carried out.
    const AT_WORK: &str = "[{bar:30}] {wide_msg}";

    /// indicatif's template for a unit.
    fn template(total_known: bool, unit: Unit) -> String {
        let (position, total, unit) = match unit {
            Unit::Bytes => ("{decimal_bytes}", "{decimal_total_bytes}", ""),
            Unit::Lines => ("{human_pos}", "{human_len}", " lines"),
            Unit::Rows => ("{human_pos}", "{human_len}", " rows"),
            Unit::Packages => ("{human_pos}", "{human_len}", " packages"),
        };
        if total_known {
            format!("{{spinner}} {{elapsed}} [{{bar:30}}] {position} of {total}{unit}")
        } else {
            format!("{{spinner}} {{elapsed}} {position}{unit}")
        }
    }

    fn style(template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_template_is_one() {
            assert!(ProgressStyle::with_template(AT_WORK).is_ok());
            for unit in [Unit::Bytes, Unit::Lines, Unit::Rows, Unit::Packages] {
                for total_known in [false, true] {
                    let template = template(total_known, unit);
                    assert!(
                        ProgressStyle::with_template(&template).is_ok(),
                        "{template}"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn no_color_forbids_colour_unless_empty() {
        assert!(may_colour(None));
        assert!(may_colour(Some(OsStr::new(""))));
        assert!(!may_colour(Some(OsStr::new("1"))));
    }

    #[test]
    fn a_step_tells_the_time() {
        assert_eq!(step_line(12.34, "booting"), "[  12.3 s] booting");
    }
}
