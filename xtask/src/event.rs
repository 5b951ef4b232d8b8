// SPDX-License-Identifier: GPL-2.0

//! What a person may watch, as data. Code below the subcommands emits events and never prints; [`crate::ui`] prints.

use std::time::Duration;

/// Something worth showing while work is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step of work begins (`building messung.ko for 7.3.4+deb13-amd64`). It ends with the next step.
    Step(String),
    /// How far the current step is. Bytes, files or samples, as `unit` says.
    Progress {
        /// Done so far.
        done: u64,
        /// All there is, where known.
        total: Option<u64>,
        /// What is counted.
        unit: Unit,
    },
    /// A plan is being carried out in real time.
    AtWork {
        /// The row at work.
        text: String,
        /// What has gone of the time that all of it is expected to take.
        done: Duration,
        /// That time.
        total: Duration,
    },
    /// A row has been measured, as the module tells it to people.
    Row(String),
    /// A command is about to run, ready to paste. Shown with `-v`.
    Command(String),
    /// A line of output of a child or of the guest's console. Shown with `-v`.
    Output(String),
    /// Something the user should know that does not stop the work (told once, also without `-v`).
    Note(String),
    /// Something doubtful that ends up in the result's `warnings` as well.
    Warning(String),
}

/// What a progress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as MB.
    Bytes,
    /// Lines of a build's output.
    Lines,
    /// Rows of a plan.
    Rows,
    /// Packages of a distribution.
    Packages,
}

/// Where events go. Shared by reference; implementations print or collect.
pub trait Sink: Sync {
    /// Takes an event.
    fn emit(&self, event: Event);
}

/// Collects events, for tests.
#[cfg(test)]
#[derive(Default)]
pub struct Collected(pub std::sync::Mutex<Vec<Event>>);

#[cfg(test)]
impl Sink for Collected {
    fn emit(&self, event: Event) {
        self.0
            .lock()
            .expect("no test panics while it holds the lock")
            .push(event);
    }
}
