// SPDX-License-Identifier: GPL-2.0

//! What this machine has of all that measuring takes: each prerequisite as a [`Finding`], with the reason and what mends it.
//!
//! Facts are gathered by [`machine`] (files) and [`host`] (programs, rights); what they mean is judged apart from that, by kind:
//! [`insertion`], [`mod@building`], [`guests`].

pub mod building;
pub mod guests;
pub mod host;
pub mod insertion;
pub mod machine;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::{Class, Failure};
use crate::kernel::table::{self, Row};
use crate::process::Env;
use guests::Guests;
use host::Host;
use machine::{Distribution, Machine};

/// Whether a prerequisite is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// This machine does not tell; the reason says why.
    Unknown,
}

/// What a prerequisite is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Building the module for a kernel: `make`, `build`.
    Build,
    /// Inserting it into the running kernel: `run`, insmod.
    Insert,
    /// Measuring in a virtual machine: `vm`.
    Vm,
}

/// A prerequisite, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is looked for.
    pub name: &'static str,
    /// Whether it is there.
    pub state: State,
    /// What was seen.
    pub reason: String,
    /// What mends it, where something is to be mended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What does not work without it; nothing where there is another way.
    pub needed_for: Vec<Way>,
}

impl Finding {
    fn new(name: &'static str, way: Way, state: State, reason: impl Into<String>) -> Self {
        Self {
            name,
            state,
            reason: reason.into(),
            remedy: None,
            needed_for: vec![way],
        }
    }

    fn yes(name: &'static str, way: Way, reason: impl Into<String>) -> Self {
        Self::new(name, way, State::Yes, reason)
    }

    fn no(
        name: &'static str,
        way: Way,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(name, way, State::No, reason)
        }
    }

    fn unknown(name: &'static str, way: Way, reason: impl Into<String>) -> Self {
        Self::new(name, way, State::Unknown, reason)
    }

    /// The same, needed for nothing: there is another way.
    fn optional(self) -> Self {
        Self {
            needed_for: Vec::new(),
            ..self
        }
    }

    /// What is wrong and what to do, in a sentence.
    pub fn sentence(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}: {remedy}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// The first finding that stands in the way of one of those.
pub fn obstacle<'a>(findings: &'a [Finding], ways: &[Way]) -> Option<&'a Finding> {
    findings.iter().find(|finding| {
        finding.state == State::No && finding.needed_for.iter().any(|way| ways.contains(way))
    })
}

/// Fails with the doctor's sentence where something stands in the way.
///
/// # Errors
///
/// See above.
pub fn require(findings: &[Finding], way: Way) -> anyhow::Result<()> {
    match obstacle(findings, &[way]) {
        Some(finding) => Err(Failure::error(Class::NotMeasured, finding.sentence())),
        None => Ok(()),
    }
}

/// How the module for the running kernel is built.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// By make, for that kernel folder.
    Make(PathBuf),
    /// In the build root, for just this release of a row of the table.
    BuildRoot(&'static Row),
}

/// How the module for the running kernel is built: the tools of this machine come first.
///
/// # Errors
///
/// In no way; the doctor's sentence says what to do.
pub fn route(env: &Env<'_>) -> anyhow::Result<Route> {
    let machine = Machine::now();
    let folder = machine.folder();
    let host = Host::now(env, &folder);
    let findings = building::findings(&machine, &folder, &host);
    let modules = insertion::modules(&machine);
    choose(&machine, folder.path, &findings, &modules)
}

fn choose(
    machine: &Machine,
    folder: PathBuf,
    findings: &[Finding],
    modules: &Finding,
) -> anyhow::Result<Route> {
    // For a kernel that takes no modules nothing need be built, and that says more than whatever else is missing.
    require(std::slice::from_ref(modules), Way::Insert)?;
    if obstacle(findings, &[Way::Build]).is_none() {
        return Ok(Route::Make(folder));
    }
    match stock_row(machine) {
        Some(row) => Ok(Route::BuildRoot(row)),
        None => require(findings, Way::Build).map(|()| Route::Make(folder)),
    }
}

/// The row of the table that the running kernel is a release of, where it is Debian's own, on a Debian.
fn stock_row(machine: &Machine) -> Option<&'static Row> {
    (machine.distribution == Distribution::Debian)
        .then(|| table::row_of_release(machine.release()))
        .flatten()
}

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of this format.
    pub schema: &'static str,
    /// The running kernel.
    pub kernel_release: String,
    /// What works.
    pub works: Works,
    /// The prerequisites.
    pub findings: Vec<Finding>,
}

/// Which ways are free of obstacles.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Works {
    /// Building the module.
    pub build: bool,
    /// Inserting it into the running kernel.
    pub insert: bool,
    /// Measuring in a virtual machine.
    pub vm: bool,
}

/// What building with this machine's tools for a kernel folder takes.
pub fn building(env: &Env<'_>, kdir: &Path) -> Vec<Finding> {
    let machine = Machine::now();
    let folder = machine.folder_at(kdir);
    let host = Host::now(env, &folder);
    building::findings(&machine, &folder, &host)
}

/// Examines this machine; with a kernel folder, building for that.
pub fn examine(env: &Env<'_>, kdir: Option<&Path>) -> anyhow::Result<Report> {
    let machine = Machine::now();
    let folder = kdir.map_or_else(|| machine.folder(), |kdir| machine.folder_at(kdir));
    let host = Host::now(env, &folder);
    let guests = Guests::now(env)?;
    Ok(report(&machine, &folder, &host, &guests, kdir.is_none()))
}

/// What the facts mean. The build root helps only where the running kernel is meant.
fn report(
    machine: &Machine,
    folder: &machine::Folder,
    host: &Host,
    guests: &Guests,
    for_running: bool,
) -> Report {
    let mut findings = insertion::findings(machine, host);
    let building = building::findings(machine, folder, host);
    let by_build_root =
        for_running && obstacle(&building, &[Way::Build]).is_some() && stock_row(machine).is_some();
    let guests = guests::findings(guests, machine.distribution, host.is_root);
    if by_build_root {
        findings.extend(building.into_iter().map(Finding::optional));
        findings.extend(guests.into_iter().map(|mut finding| {
            if finding.needed_for.contains(&Way::Vm) {
                finding.needed_for.push(Way::Build);
            }
            finding
        }));
    } else {
        findings.extend(building);
        findings.extend(guests);
    }
    let works = |way| obstacle(&findings, &[way]).is_none();
    Report {
        schema: "messung-doctor/1",
        kernel_release: machine.release().to_owned(),
        works: Works {
            build: works(Way::Build),
            insert: works(Way::Insert),
            vm: works(Way::Vm),
        },
        findings,
    }
}

impl Report {
    /// What decides, in a sentence or two.
    pub fn headline(&self) -> String {
        let release = &self.kernel_release;
        let here = match obstacle(&self.findings, &[Way::Insert, Way::Build]) {
            None => format!(
                "This machine can measure its own kernel, {release}: cargo xtask run --sudo"
            ),
            Some(finding) => capitalised(&finding.sentence()) + ".",
        };
        let vm = match obstacle(&self.findings, &[Way::Vm]) {
            None => "A virtual machine works: cargo xtask vm".to_owned(),
            Some(finding) => format!(
                "A virtual machine does not work yet: {}.",
                finding.sentence()
            ),
        };
        format!("{here}\n{vm}\n")
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
