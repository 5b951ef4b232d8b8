// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask parse`: finds runs in a kernel log that somebody saved.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;

use crate::event::{Event, Sink as _};
use crate::failure::{Class, Failure};
use crate::log::assemble::{Assembler, Log};
use crate::log::follow::{Follower, News};
use crate::log::{stream, tail, unpack};
use crate::process::Interrupt;
use crate::result::Run;
use crate::ui::Ui;
use crate::writers::{self, json};

/// What `parse` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask parse /var/log/kern.log            all runs in it
  cargo xtask parse kern.log.1 kern.log          a log that was rotated meanwhile
  dmesg | cargo xtask parse -                    the kernel's own buffer
  cargo xtask parse kern.log.2.gz                a rotated log, as it is
  cargo xtask parse --follow /var/log/kern.log   runs as they come
  journalctl -k -b -1 | cargo xtask parse - --run last --json a.json")]
pub struct Options {
    /// Kernel logs in any usual format, also packed with gzip or xz, oldest first; - is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only the run of this id (the module's run=), or the last one
    #[arg(long, value_name = "ID|last")]
    run: Option<Choice>,
    /// Go on reading the last log while it grows, until Ctrl-C or the end of a pipe: shows rows as they come, and each
    /// run when it ends
    #[arg(long, conflicts_with_all = ["run", "json"])]
    follow: bool,
    /// Save the run as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Which run is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Id(u32),
    Last,
}

impl FromStr for Choice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "last" => Ok(Self::Last),
            id => id.parse().map(Self::Id).map_err(
                |_| "a run is named by its id, a number from 0 to 4294967295, or by `last`",
            ),
        }
    }
}

/// Reads the logs and shows their runs.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options {
        files,
        run,
        follow,
        json,
    } = options;
    if follow {
        return follow_last(&files, ui);
    }
    let json = json.as_deref().map(json::Output::create).transpose()?;
    let mut assembler = Assembler::default();
    for file in &files {
        assembler.next_log();
        read(file, ui, |message| assembler.take(message))?;
    }
    let Log { runs, damaged } = assembler.finish();
    if runs.is_empty() {
        return Err(Failure::error(Class::NotMeasured, no_run(&files, damaged)));
    }
    warn_of_damage(damaged, ui);
    if runs.len() > 1 {
        ui.emit(Event::Note(inventory(&runs)));
    }
    let chosen = choose(&runs, run)?;
    match (json, chosen.as_slice()) {
        (Some(json), [only]) => super::deliver(only, Some(json), ui),
        (Some(_), _) => Err(Failure::error(
            Class::NotMeasured,
            format!(
                "--json saves one run, and these are {}: choose one with --run",
                chosen.len()
            ),
        )),
        (None, chosen) => super::deliver_all(chosen, ui),
    }
}

/// Reads the logs, the last one as long as it grows, and shows each run when it ends.
fn follow_last(files: &[PathBuf], ui: &Ui) -> anyhow::Result<()> {
    let interrupt = Interrupt::install()?;
    let mut follower = Follower::default();
    let mut seen = Seen::default();
    let mut tell = |news| seen.take(news, ui);
    let Some((last, whole)) = files.split_last() else {
        return Ok(());
    };
    for file in whole {
        follower.next_log();
        read(file, ui, |message| follower.take(message, &mut tell))?;
    }
    follower.next_log();
    let stop = || interrupt.is_raised();
    let found = |message: &[u8]| follower.take(message, &mut tell);
    if is_stdin(last) {
        // Without the buffer of the standard library, in which something could wait unseen.
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        stdin.and_then(|stdin| tail::pipe(File::from(stdin), stop, found))
    } else {
        tail::file(last, stop, found)
    }
    .with_context(|| format!("cannot read the log {}", shown(last)))?;
    let Log { runs, damaged } = follower.finish();
    for run in runs {
        tell(News::Run(Box::new(run)));
    }
    warn_of_damage(damaged, ui);
    seen.outcome(|| no_run(files, damaged))
}

/// What has been shown so far of a log that is followed.
#[derive(Default)]
struct Seen {
    runs: usize,
    /// The first thing that went wrong.
    failure: Option<anyhow::Error>,
}

impl Seen {
    fn take(&mut self, news: News, ui: &Ui) {
        match news {
            News::Row(text) => ui.emit(Event::Row(text)),
            News::Run(run) => {
                let between = if self.runs > 0 {
                    ui.print("\n")
                } else {
                    Ok(())
                };
                let shown = between.and_then(|()| super::deliver(&run, None, ui));
                self.runs += 1;
                self.failure = self.failure.take().or(shown.err());
            }
        }
    }

    fn outcome(self, none: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.failure {
            Some(error) => Err(error),
            None if self.runs == 0 => Err(Failure::error(Class::NotMeasured, none())),
            None => Ok(()),
        }
    }
}

fn warn_of_damage(damaged: u32, ui: &Ui) {
    if damaged > 0 {
        ui.emit(Event::Warning(format!(
            "{damaged} lines look like records of a run but are damaged, and belong to none of the runs found"
        )));
    }
}

/// Calls `take` with the messages of a log. If that was damaged when it was packed, a warning says so.
fn read(file: &Path, ui: &Ui, take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let result = if is_stdin(file) {
        unpack::unpacked(io::stdin().lock()).and_then(|log| stream::messages(log, take))
    } else {
        File::open(file)
            .and_then(unpack::unpacked)
            .and_then(|log| stream::messages(log, take))
    };
    match result {
        Err(error) if is_damage(&error) => ui.emit(Event::Warning(format!(
            "the log {} is cut or damaged ({error}): what comes after that was not read",
            shown(file)
        ))),
        result => result.with_context(|| format!("cannot read the log {}", shown(file)))?,
    }
    Ok(())
}

/// Whether a log could be read, but not be unpacked to its end.
fn is_damage(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() != io::ErrorKind::Unsupported
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn shown(file: &Path) -> String {
    if is_stdin(file) {
        "from the standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

/// Why there is nothing to show.
fn no_run(files: &[PathBuf], damaged: u32) -> String {
    let names: Vec<_> = files.iter().map(|file| shown(file)).collect();
    let mut text = format!("no run of messung in the log {}", names.join(", "));
    if damaged > 0 {
        text.push_str(&format!(
            ": {damaged} lines look like its records, but are cut or altered"
        ));
    } else {
        text.push_str(": it must be a kernel log, written after the module was loaded");
    }
    text
}

/// The runs that were found, one a line.
fn inventory(runs: &[Run]) -> String {
    let lines: String = runs
        .iter()
        .map(|run| {
            let complete = if run.complete { "" } else { ", not complete" };
            format!(
                "\n  {}, {} rows{complete}",
                writers::name(run),
                run.measurements.len()
            )
        })
        .collect();
    format!("the log holds {} runs:{lines}", runs.len())
}

/// The runs that are meant; all of them without a choice.
fn choose(runs: &[Run], choice: Option<Choice>) -> anyhow::Result<Vec<&Run>> {
    let chosen: Vec<_> = match choice {
        None => runs.iter().collect(),
        Some(Choice::Last) => runs.last().into_iter().collect(),
        Some(Choice::Id(id)) => runs.iter().filter(|run| run.run.id == id).collect(),
    };
    if let (Some(Choice::Id(id)), []) = (choice, chosen.as_slice()) {
        let ids: Vec<_> = runs.iter().map(|run| run.run.id.to_string()).collect();
        return Err(Failure::error(
            Class::NotMeasured,
            format!("the log holds no run {id}; it holds {}", ids.join(", ")),
        ));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writers::tests::article;

    fn runs() -> Vec<Run> {
        [1, 7, 7]
            .into_iter()
            .map(|id| {
                let mut run = article();
                run.run.id = id;
                run
            })
            .collect()
    }

    #[test]
    fn runs_are_chosen_by_id_or_place() {
        let runs = runs();
        let count = |choice| choose(&runs, choice).unwrap().len();
        assert_eq!(count(None), 3);
        assert_eq!(count(Some(Choice::Last)), 1);
        assert_eq!(count(Some(Choice::Id(7))), 2);
        let error = choose(&runs, Some(Choice::Id(8))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the log holds no run 8; it holds 1, 7, 7"
        );
        assert_eq!("last".parse(), Ok(Choice::Last));
        assert_eq!("12".parse(), Ok(Choice::Id(12)));
        assert!("-1".parse::<Choice>().is_err());
    }

    #[test]
    fn an_inventory_names_each_run() {
        let mut runs = runs();
        runs[1].complete = false;
        assert_eq!(
            inventory(&runs[..2]),
            "the log holds 2 runs:\n  run 1 (started 2026-01-01 00:00:07 UTC), 14 rows\n  \
             run 7 (started 2026-01-01 00:00:07 UTC), 14 rows, not complete"
        );
    }
}
