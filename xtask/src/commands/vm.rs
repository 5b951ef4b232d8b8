// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask vm`: measures a stock kernel in a virtual machine, from nothing to the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result};

use super::build::KernelOptions;
use super::plan::{PlanOptions, random_id, spoken};
use crate::clocks;
use crate::event::{Event, Sink};
use crate::failure::{Class, Failure};
use crate::guest::{self, Phase, Report, Task};
use crate::kernel::module::Fault;
use crate::process::{Env, Interrupt};
use crate::result::{Platform, PlatformKind, Run, Unknown};
use crate::ui::Ui;
use crate::vm::accelerator::{self, EMULATED};
use crate::vm::launch::{self, Guest, Launcher, Ready};
use crate::vm::machine::{self, Accelerator, Machine, Time, VirtualTime};
use crate::vm::supervisor::{Folder, Limits, Outcome};
use crate::writers::{functions, json};

/// The id of each run in virtual time: nothing there may differ between two of them.
const VIRTUAL_RUN: u32 = 1;

/// What `vm` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask vm                          the article's fourteen loops, in virtual time
  cargo xtask vm --json a.json            and save the result
  cargo xtask vm --kernel rt-amd64        on Debian's real-time kernel
  cargo xtask vm --plan 'msleep:1ms*100,udelay:10us/irqoff'
  cargo xtask vm --list-functions         what a plan may be made of
  cargo xtask vm --real-time --cpus 4     in real time, with KVM where that works")]
pub struct Options {
    #[command(flatten)]
    kernel: KernelOptions,
    #[command(flatten)]
    plan: PlanOptions,
    /// Save the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// CPUs of the guest, in real time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// Time passes as on the host: how well depends on the host
    #[arg(long, conflicts_with = "virtual_time")]
    real_time: bool,
    /// Time is counted in instructions: the same numbers on any host (the default)
    #[arg(long)]
    virtual_time: bool,
    /// What executes the guest; kvm means real time, and is not replaced by anything else
    #[arg(long, value_enum)]
    accel: Option<Accelerator>,
    /// Add this to the kernel's command line
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        allow_hyphen_values = true
    )]
    append: String,
    /// Only tell what a plan may be made of: functions, their ranges, contexts and promises
    #[arg(long)]
    list_functions: bool,
    /// Measure with a fault planted in the module, to see it found
    #[arg(long, value_enum, hide = true)]
    fault: Option<Fault>,
    /// Keep console.log, kernel.log, result.json and commands.txt in this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// How time passes, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Virtual(VirtualTime),
    Real {
        accelerator: Option<Accelerator>,
        cpus: u32,
    },
}

impl Asked {
    /// CPUs that the guest will have.
    fn cpus(self) -> u32 {
        match self {
            Self::Virtual(_) => 1,
            Self::Real { cpus, .. } => cpus,
        }
    }
}

/// Measures.
pub fn run(options: Options, ui: &Ui) -> Result<()> {
    let Options {
        kernel,
        plan,
        json,
        cpus,
        real_time,
        virtual_time,
        accel,
        append,
        list_functions,
        fault,
        output,
    } = options;
    if list_functions {
        return ui.print(&functions::functions());
    }
    let slow_factor = kernel.slow_factor;
    let (row, options) = kernel.resolve()?;
    let machine = machine::find(row.machine)?;
    let asked = asked(machine, real_time, virtual_time, accel, cpus)?;
    plan.check(row.arch.kernel, asked.cpus())?;
    machine.cmdline(matches!(asked, Asked::Virtual(_)), &append)?;
    let json = json.as_deref().map(json::Output::create).transpose()?;
    let output = output.map(Output::create).transpose()?;

    let recorder = Recorder {
        sink: ui,
        commands: Mutex::default(),
    };
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: &recorder,
        interrupt: &interrupt,
        slow_factor,
    };
    let what = What {
        plan: &plan,
        append: &append,
    };
    let work = tempfile::tempdir().context("cannot make a folder for the guest")?;
    let folder = Folder::new(work.path());
    let measured = launch::ready(&env, row, &options, fault)
        .and_then(|ready| measure(env, &ready, &folder, asked, &what));
    // What there is helps most when something failed.
    if let Some(output) = &output {
        output.keep(&folder, &recorder.commands(), measured.as_ref().ok())?;
    }
    let Measured { run, .. } = measured?;
    super::deliver(&run, json, ui)
}

/// What is measured.
struct What<'a> {
    plan: &'a PlanOptions,
    append: &'a str,
}

/// What came of a guest.
struct Measured {
    run: Run,
    log: String,
}

/// Boots the guest, and completes its result.
fn measure(
    env: Env<'_>,
    ready: &Ready,
    folder: &Folder,
    asked: Asked,
    what: &What<'_>,
) -> Result<Measured> {
    let What { plan, append } = *what;
    let Ready {
        kernel,
        module,
        init,
    } = ready;
    let launcher = Launcher::new(env, kernel, init)?;
    let qemu_version = launcher.qemu_version()?;
    let time = match asked {
        Asked::Virtual(virtual_time) => Time::Virtual(virtual_time),
        Asked::Real { accelerator, cpus } => accelerator::choose(&launcher, accelerator, cpus)?,
    };
    env.emit(Event::Step(format!(
        "booting {} in {}",
        kernel.info.release,
        time_text(time)
    )));
    let estimate = plan.estimate(kernel.hz(), asked.cpus());
    env.emit(Event::Note(format!(
        "the plan takes about {} of the guest's own time",
        spoken(estimate)
    )));
    let id = match time {
        Time::Virtual(_) => VIRTUAL_RUN,
        Time::Real { .. } => random_id(),
    };
    let Outcome {
        received,
        warnings,
        times,
    } = launcher.boot(
        folder,
        Guest {
            time,
            task: Task::Measure {
                parameters: plan.parameters(id),
                signals: Vec::new(),
                neighbour: None,
            },
            module: Some(module),
            append,
            limits: Limits::of(time, estimate),
        },
    )?;
    let report: Report = serde_json::from_str(&received.report).context(
        "cannot understand the guest's report; was its init built from another version?",
    )?;
    let log = received.log;
    let cpu_model = match time.accelerator() {
        Accelerator::Kvm => report.cpu_model.clone(),
        Accelerator::Tcg => None,
    }
    .unwrap_or_else(|| time.cpu_model().to_owned());
    let platform = Platform {
        kind: PlatformKind::Vm,
        accelerator: Some(time.accelerator().name().to_owned()),
        virtual_time: time.is_virtual(),
        cpu_model: Some(cpu_model),
        machine: Some(launcher.machine().qemu_machine.to_owned()),
        qemu_version: Some(qemu_version),
        unknown: Unknown::new(),
    };
    let mut said = kernel.info.warnings.clone();
    if !time.is_virtual() && time.accelerator() == Accelerator::Tcg {
        said.push(EMULATED.to_owned());
    }
    said.extend(warnings);
    // Those of the kernel were told when it was made ready.
    let told = kernel.info.warnings.len();
    for warning in said.iter().skip(told).chain(&report.warnings) {
        env.emit(Event::Warning(warning.clone()));
    }
    let host_ppm = times
        // Virtual time has no rate.
        .filter(|_| !time.is_virtual())
        .and_then(|(begin, end)| clocks::compare(begin, end));
    let run = complete(report, platform, said, &log)?.with_host(host_ppm);
    Ok(Measured { run, log })
}

/// The guest's result with what only the host knows.
fn complete(report: Report, platform: Platform, warnings: Vec<String>, log: &str) -> Result<Run> {
    let Report {
        insertion: _,
        refusals: _,
        answers: _,
        run,
        cpu_model: _,
        problems,
        warnings: of_guest,
    } = report;
    match run {
        Some(run) => {
            let warnings = of_guest.into_iter().chain(warnings).collect();
            Ok(super::complete(run, platform, problems, warnings))
        }
        None => Err(Failure::error(
            Class::NotMeasured,
            format!(
                "the guest measured nothing: {}{}",
                problems.join("; "),
                reasons(log)
            ),
        )),
    }
}

/// The kernel's last lines since the insertion began, as the end of a message.
fn reasons(log: &str) -> String {
    super::kernel_said(
        log.lines()
            .skip_while(|line| guest::announced(line) != Some(Phase::Measure))
            .filter(|line| !guest::is_ours(line)),
    )
}

/// How time is to pass, and whether the options agree on it and the machine can do it.
fn asked(
    machine: &Machine,
    real_time: bool,
    virtual_time: bool,
    accel: Option<Accelerator>,
    cpus: Option<u32>,
) -> Result<Asked> {
    let usage = |text: &str| Err(Failure::error(Class::Usage, text));
    let name = machine.name;
    if accel == Some(Accelerator::Kvm) && machine.kvm_cpus.is_empty() {
        return usage(&format!(
            "KVM executes this machine's own instructions, and {name} has others: leave --accel kvm out"
        ));
    }
    if let (Some(asked), Some(fixed)) = (cpus, machine.cpus) {
        if asked != fixed {
            return usage(&format!("{name} always has {fixed} CPUs: leave --cpus out"));
        }
    }
    if virtual_time && machine.virtual_time.is_none() {
        return usage(&format!(
            "{name} does not get through its boot in virtual time: leave --virtual-time out"
        ));
    }
    let wants_real = real_time || accel == Some(Accelerator::Kvm);
    if wants_real && virtual_time {
        return usage("--accel kvm runs in real time, so it can't be used with --virtual-time");
    }
    match machine.virtual_time.filter(|_| !wants_real) {
        Some(_) if cpus.is_some_and(|cpus| cpus > 1) => {
            usage("virtual time has one CPU: add --real-time to use --cpus")
        }
        Some(virtual_time) => Ok(Asked::Virtual(virtual_time)),
        None => Ok(Asked::Real {
            accelerator: accel,
            cpus: cpus.or(machine.cpus).unwrap_or(1),
        }),
    }
}

fn time_text(time: Time) -> String {
    match time {
        Time::Virtual(_) => "virtual time".to_owned(),
        Time::Real {
            accelerator,
            cpu_model,
            cpus,
        } => format!(
            "real time ({}, -cpu {cpu_model}, CPUs: {cpus})",
            accelerator.name()
        ),
    }
}

/// Passes events on, and keeps the commands.
struct Recorder<'a> {
    sink: &'a dyn Sink,
    commands: Mutex<Vec<String>>,
}

impl Recorder<'_> {
    fn commands(&self) -> Vec<String> {
        self.commands
            .lock()
            .map(|commands| commands.clone())
            .unwrap_or_default()
    }
}

impl Sink for Recorder<'_> {
    fn emit(&self, event: Event) {
        if let (Event::Command(command), Ok(mut commands)) = (&event, self.commands.lock()) {
            commands.push(command.clone());
        }
        self.sink.emit(event);
    }
}

/// The folder for artefacts.
struct Output(PathBuf);

impl Output {
    /// Makes the folder, so that nobody measures and then has no place for the result.
    fn create(path: PathBuf) -> Result<Self> {
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    /// Writes what there is. What an earlier run left under these names goes.
    fn keep(
        &self,
        folder: &Folder,
        commands: &[String],
        measured: Option<&Measured>,
    ) -> Result<()> {
        let commands = commands
            .iter()
            .fold(String::new(), |text, line| text + line + "\n");
        let console = fs::read(folder.console()).ok();
        let handover = fs::read(folder.handover()).ok();
        let qemu = fs::read(folder.qemu_log()).ok();
        let log = measured.map(|measured| measured.log.clone().into_bytes());
        let result = measured.map(|measured| measured.run.to_json().into_bytes());
        for (name, content) in [
            ("commands.txt", Some(commands.into_bytes())),
            ("console.log", console),
            ("handover.log", handover),
            ("qemu.log", qemu),
            ("kernel.log", log),
            ("result.json", result),
        ] {
            self.write(name, content)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, content: Option<Vec<u8>>) -> Result<()> {
        let path: &Path = &self.0.join(name);
        match content {
            Some(content) => fs::write(path, content),
            None if path.exists() => fs::remove_file(path),
            None => Ok(()),
        }
        .with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        use Accelerator::{Kvm, Tcg};
        let real = |accelerator, cpus| Some(Asked::Real { accelerator, cpus });
        let pc = machine::find("pc").unwrap();
        let counted = pc.virtual_time.map(Asked::Virtual);
        for (real_time, virtual_time, accel, cpus, expected) in [
            (false, false, None, None, counted),
            (false, true, Some(Tcg), Some(1), counted),
            (false, false, None, Some(2), None),
            (false, true, None, Some(2), None),
            (false, true, Some(Kvm), None, None),
            (false, false, Some(Kvm), Some(2), real(Some(Kvm), 2)),
            (true, false, Some(Tcg), None, real(Some(Tcg), 1)),
            (true, false, None, Some(4), real(None, 4)),
        ] {
            match asked(pc, real_time, virtual_time, accel, cpus) {
                Ok(asked) => assert_eq!(Some(asked), expected),
                Err(error) => {
                    assert_eq!(expected, None);
                    assert_eq!(Failure::class_of(&error), Class::Usage);
                }
            }
        }
    }

    #[test]
    fn a_board_is_emulated_as_it_is() {
        let board = machine::find("raspi2b").unwrap();
        let real = Asked::Real {
            accelerator: None,
            cpus: 4,
        };
        assert_eq!(asked(board, false, false, None, None).unwrap(), real);
        assert_eq!(asked(board, true, false, None, Some(4)).unwrap(), real);
        for (virtual_time, accel, cpus, reason) in [
            (true, None, None, "virtual time"),
            (false, Some(Accelerator::Kvm), None, "KVM"),
            (false, None, Some(2), "4 CPUs"),
        ] {
            let error = asked(board, false, virtual_time, accel, cpus).unwrap_err();
            assert_eq!(Failure::class_of(&error), Class::Usage);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn the_kernel_is_quoted_when_it_refuses() {
        let log = "<6>[ 0.9] boot\n<6>[ 1.0] messung-init: now measuring\n<3>[ 1.1] messung: Unknown symbol x (err -2)\n";
        let error = complete(
            Report {
                problems: vec!["finit_module failed: No such file".to_owned()],
                ..Report::default()
            },
            Platform {
                kind: PlatformKind::Vm,
                accelerator: None,
                virtual_time: true,
                cpu_model: None,
                machine: None,
                qemu_version: None,
                unknown: Unknown::new(),
            },
            Vec::new(),
            log,
        )
        .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("Unknown symbol") && text.contains("finit_module"),
            "{text}"
        );
        assert!(
            !text.contains("now measuring") && !text.contains("boot"),
            "{text}"
        );
        assert_eq!(Failure::class_of(&error), Class::NotMeasured);
    }
}
