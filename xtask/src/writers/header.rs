// SPDX-License-Identifier: GPL-2.0

//! What was measured on what: every number stands below it.

use super::numbers;
use crate::result::{
    Environment, Identity, Instrument, Measurement, Platform, PlatformKind, Run, State,
};

/// A line for the run, the plan, the kernel, what ran it, the instrument, and how many rows broke a promise; what is not known is left out.
pub fn header(run: &Run) -> String {
    let lines = [
        ("run", Some(identity(&run.run))),
        ("plan", Some(plan(run))),
        ("kernel", kernel(&run.environment)),
        ("machine", machine(&run.environment, run.platform.as_ref())),
        ("instrument", run.instrument.as_ref().and_then(instrument)),
        ("findings", verdicts(&run.measurements)),
    ];
    lines
        .into_iter()
        .filter_map(|(name, text)| Some(format!("{name:<11} {}\n", text?)))
        .collect()
}

fn identity(run: &Identity) -> String {
    match run.stamp {
        0 => "unknown".to_owned(),
        stamp => format!("{}, started {}", run.id, numbers::utc(stamp)),
    }
}

fn plan(run: &Run) -> String {
    let mut parts = vec![match run.plan.as_str() {
        "" => "unknown".to_owned(),
        plan => plan.to_owned(),
    }];
    parts.extend(iterations(&run.measurements));
    parts.join(", ")
}

/// How many samples a row was to have.
fn iterations(rows: &[Measurement]) -> Option<String> {
    let least = rows.iter().map(|row| row.iterations).min()?;
    let most = rows.iter().map(|row| row.iterations).max()?;
    Some(if least == most {
        format!("{most} iterations each")
    } else {
        format!("{least} to {most} iterations each")
    })
}

fn kernel(environment: &Environment) -> Option<String> {
    let yes_or_no = |value: Option<bool>, yes: &str, no: &str| {
        value.map(|value| if value { yes } else { no }.to_owned())
    };
    join([
        environment.kernel_release.clone(),
        environment.machine.clone(),
        environment.hz.map(|hz| format!("HZ={hz}")),
        environment.preempt.clone(),
        yes_or_no(environment.realtime, "real-time (RT)", "not real-time"),
        yes_or_no(
            environment.high_res,
            "high-resolution timers",
            "no high-resolution timers",
        ),
        environment
            .clocksource
            .as_ref()
            .map(|name| format!("clocksource {name}")),
    ])
}

fn machine(environment: &Environment, platform: Option<&Platform>) -> Option<String> {
    let cpus = environment.cpus.map(|cpus| match cpus {
        1 => "1 CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    });
    let Some(platform) = platform else {
        return cpus;
    };
    join([
        platform.machine.clone(),
        platform.cpu_model.clone(),
        cpus,
        (platform.kind == PlatformKind::Vm).then(|| virtual_machine(platform)),
    ])
}

fn virtual_machine(platform: &Platform) -> String {
    let qemu = platform
        .qemu_version
        .as_ref()
        .map(|version| format!("QEMU {version}"));
    let accelerator = platform.accelerator.as_deref();
    let time = match (platform.virtual_time, accelerator) {
        (true, _) => "virtual time (counted in instructions, so the same on any host)",
        (false, Some("tcg")) => "EMULATED IN REAL TIME: NO MEASURE OF HARDWARE",
        (false, _) => "real time",
    };
    join([
        Some("virtual machine".to_owned()),
        qemu,
        accelerator.map(str::to_uppercase),
        Some(time.to_owned()),
    ])
    .unwrap_or_default()
}

fn instrument(instrument: &Instrument) -> Option<String> {
    let pair = instrument.pair_ns.map(|pair| {
        format!(
            "a pair of time stamps takes {} us ({} to {})",
            numbers::us(pair.mean),
            numbers::us(pair.shortest),
            numbers::us(pair.highest)
        )
    });
    let ppm = |value: Option<f64>, against: &str| {
        value.map(|value| format!("{value:+.1} ppm against {against}"))
    };
    join([
        pair,
        ppm(instrument.raw_ppm, "the raw clock"),
        ppm(instrument.rtc_ppm, "the real-time clock"),
        ppm(instrument.host_ppm, "the host's clock"),
    ])
}

/// How many rows did not keep what their functions promise.
fn verdicts(rows: &[Measurement]) -> Option<String> {
    let judged = |state| {
        let states = rows.iter().filter_map(|row| row.verdict.as_ref());
        states.filter(|verdict| verdict.state == state).count()
    };
    let found = |state, text: &str| match judged(state) {
        0 => None,
        count => Some(format!("{count} {text}")),
    };
    let text = join([
        found(State::Early, "early"),
        found(State::Late, "late by the mechanism"),
        found(State::ExceedsDocument, "beyond the document (> doc)"),
    ])?;
    Some(format!("of {} rows: {text}", rows.len()))
}

fn join<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
