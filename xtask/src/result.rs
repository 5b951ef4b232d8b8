// SPDX-License-Identifier: GPL-2.0

//! The model of a run, `messung-result/1`: the one thing that every writer reads. `docs/result.md` describes it for users.
//!
//! Nanoseconds are integers. What was not measured is absent, never 0. Unknown keys survive reading and writing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clocks;

/// The schema that this program writes. Another major number is refused by [`Run::from_json`].
pub const SCHEMA: &str = "messung-result/1";

/// Keys that this version does not know, kept as they are.
pub type Unknown = Map<String, Value>;

/// One load of the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who wrote this.
    pub tool: Tool,
    /// Which run this is.
    pub run: Identity,
    /// Whether all that the module reported arrived, and the plan was carried out to its end.
    pub complete: bool,
    /// Canonical text of the plan, as far as it is known.
    pub plan: String,
    /// Only from a test build with a planted fault: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The kernel that was measured.
    pub environment: Environment,
    /// The hardware, real or emulated, under that kernel. Absent when only a log was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// The instrument's own figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrument: Option<Instrument>,
    /// One entry a row of the plan, in order.
    pub measurements: Vec<Measurement>,
    /// What disturbed the run, where it can be seen.
    #[serde(default)]
    pub disturbances: Vec<String>,
    /// What a reader should know before trusting the numbers.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The program that wrote a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Version of messung.
    pub version: String,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The `run=` parameter, 0 when inserted by hand.
    pub id: u32,
    /// CLOCK_REALTIME in nanoseconds when the run started.
    pub stamp: u64,
}

/// The kernel and how it was set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// `uname -r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// `uname -m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// CONFIG_HZ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hz: Option<u32>,
    /// The preemption model as `uname -v` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt: Option<String>,
    /// CONFIG_PREEMPT_RT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<bool>,
    /// Whether hrtimers have a resolution finer than a tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_res: Option<bool>,
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocksource: Option<String>,
    /// Online CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// `/proc/cmdline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,
    /// `/proc/sys/kernel/tainted` before the module was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint_before: Option<u64>,
    /// The same after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint_after: Option<u64>,
    /// The processors' frequencies before the module was loaded, where the kernel sets them (cpufreq).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frequency_before: Vec<Frequency>,
    /// The same after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frequency_after: Vec<Frequency>,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A processor's frequency, as its cpufreq driver tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequency {
    /// The processor's number.
    pub cpu: u32,
    /// The governor that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The frequency in kHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub khz: Option<u64>,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What ran the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// A machine, or a virtual one.
    pub kind: PlatformKind,
    /// `tcg` or `kvm`, for a virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Whether time was counted in instructions.
    #[serde(default)]
    pub virtual_time: bool,
    /// The processor's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// The board: QEMU's machine, or what the device tree or DMI says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Version of QEMU, for a virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_version: Option<String>,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A real or a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformKind {
    /// The kernel ran on the machine itself.
    Host,
    /// The kernel ran in a virtual machine.
    Vm,
}

/// What the instrument says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instrument {
    /// Version of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Cost of a pair of time stamps with nothing between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair_ns: Option<Spread>,
    /// CLOCK_MONOTONIC against CLOCK_MONOTONIC_RAW over the run, in parts per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_ppm: Option<f64>,
    /// In a guest: CLOCK_MONOTONIC against the seconds of the real-time clock, in parts per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtc_ppm: Option<f64>,
    /// In a guest in real time: CLOCK_MONOTONIC against the host's, in parts per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ppm: Option<f64>,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Shortest, mean and highest of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The smallest value.
    pub shortest: u64,
    /// The arithmetic mean, rounded to the nearest.
    pub mean: u64,
    /// The largest value.
    pub highest: u64,
}

/// One row of the plan and what came out. `docs/result.md` tells what each key means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Place in the plan, from 0.
    pub index: u32,
    /// Name of the kernel function.
    pub function: String,
    /// The request (usleep_range: its minimum).
    pub requested_ns: u64,
    /// usleep_range's maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_max_ns: Option<u64>,
    /// `normal`, `fifo:99`, `irqoff` or `preemptoff`.
    pub context: String,
    /// The CPU the row was pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Samples asked for.
    pub iterations: u32,
    /// Samples taken.
    pub count: u32,
    /// Shortest elapsed time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortest_ns: Option<u64>,
    /// Mean elapsed time, rounded to the nearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<u64>,
    /// Highest elapsed time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_ns: Option<u64>,
    /// Standard deviation of the elapsed time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev_ns: Option<u64>,
    /// Samples below the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Early>,
    /// Percentiles of the elapsed time by name (`p50`, `p99.9`), those that the samples are enough for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentiles_ns: BTreeMap<String, u64>,
    /// Histogram of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Histogram>,
    /// The samples with the largest errors, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<Outlier>,
    /// How often the task was found on another CPU than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_changes: Option<u32>,
    /// How often the task was made to give its CPU away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub involuntary_switches: Option<u32>,
    /// Whether the function kept its promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Doubts about this row.
    #[serde(default)]
    pub flags: Vec<String>,
    /// See [`Unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Samples that returned before the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Early {
    /// How many.
    pub count: u32,
    /// Error of the earliest one (negative), absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_ns: Option<i64>,
}

/// What a row comes to, by the floor and the mechanism of its function: see `docs/numbers.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The finding.
    pub state: State,
    /// What the function's document promises.
    pub promise: String,
    /// Where it does, in the kernel's source.
    pub source: String,
}

/// The finding about a row, the worst that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing to be said.
    Kept,
    /// A sample was below the floor.
    Early,
    /// The median is beyond what the mechanism must yield.
    Late,
    /// The median is beyond what the document promises, though not beyond the mechanism.
    ExceedsDocument,
}

/// Counts of samples by their error: its least and most magnitude in nanoseconds, and how many samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Negative errors.
    pub early: Vec<(u64, u64, u32)>,
    /// The others.
    pub late: Vec<(u64, u64, u32)>,
}

/// A sample that stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlier {
    /// Number of the sample in its row, from 0.
    pub index: u32,
    /// CLOCK_MONOTONIC at its start.
    pub at_ns: u64,
    /// Its error.
    pub error_ns: i64,
}

impl Run {
    /// With what comparing CLOCK_MONOTONIC with the real-time clock gave, and a warning if that is much.
    pub fn with_rtc(mut self, ppm: Option<f64>) -> Self {
        if ppm.is_some() {
            self.instrument.get_or_insert_default().rtc_ppm = ppm;
        }
        self.warnings.extend(clocks::warning(
            "the real-time clock",
            ppm,
            "one of them runs at a wrong rate, and if it is the first, so do all numbers",
        ));
        self
    }

    /// The same for the clock of the host of a guest.
    pub fn with_host(mut self, ppm: Option<f64>) -> Self {
        if ppm.is_some() {
            self.instrument.get_or_insert_default().host_ppm = ppm;
        }
        self.warnings.extend(clocks::warning(
            "the host's clock",
            ppm,
            "time in the guest does not pass as outside",
        ));
        self
    }

    /// Reads a result.
    ///
    /// # Errors
    ///
    /// Text that is not JSON, another schema (named in the message), or a missing key.
    pub fn from_json(text: &str) -> anyhow::Result<Self> {
        use anyhow::{Context as _, bail};
        let value: Value = serde_json::from_str(text).context("this is not JSON")?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => bail!(
                "this is a result of schema {other:?}; this version of messung reads {SCHEMA:?}"
            ),
            None => bail!("this is JSON, but no result of messung: it has no \"schema\""),
        }
        serde_json::from_value(value).context("this result does not follow its schema")
    }

    /// Writes a result, pretty-printed, with a final newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a Run has string keys and finite numbers only");
        text.push('\n');
        text
    }
}
