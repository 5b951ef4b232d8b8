// SPDX-License-Identifier: GPL-2.0

//! Walks the plan: measures row after row and reports each one when it is done.

use crate::abi::plan;
use crate::abi::plan::Context;
use crate::abi::plan::Kind;
use crate::abi::plan::Measurement;
use crate::abi::record;
use crate::abi::record::Begin;
use crate::abi::record::Encoder;
use crate::abi::record::End;
use crate::abi::record::Fields;
use crate::abi::record::Line;
use crate::abi::record::Pair;
use crate::abi::record::People;
use crate::abi::record::PlanText;
use crate::abi::record::Row;
use crate::abi::record::Text;
use crate::abi::summary;
use crate::clock;
use crate::context::IrqOff;
use crate::context::Open;
use crate::context::Policy;
use crate::context::PreemptOff;
use crate::context::Section;
use crate::delays;
use crate::delays::Delay;
use crate::sys;
use crate::sys::Level;
use core::fmt::Write as _;
use kernel::prelude::*;

/// How long the log is left alone after lines were written, so that consoles and readers are done with them.
const SETTLE_MS: u32 = 50;

/// Busy work under SCHED_FIFO after which the CPU is left to others for a tick.
const FIFO_BUSY_MAX: u64 = 50 * plan::MILLISECOND;

/// Measures a plan and reports it.
///
/// # Errors
///
/// `EINVAL` for a plan or parameter that makes no sense (the log says why), `EINTR` when a fatal signal ended it.
pub(crate) fn run(id: u32, text: &str, iterations: u32) -> Result {
    // The buffer is too large for some kernels' stacks.
    let mut line = KBox::new(Line::default(), GFP_KERNEL)?;

    if !(1..=plan::ITERATIONS_MAX).contains(&iterations) {
        let _ = write!(
            line,
            "iterations={iterations} is refused: it must be 1 to {}",
            plan::ITERATIONS_MAX
        );
        sys::log(Level::Error, line.as_str());
        return Err(EINVAL);
    }
    let cpus = sys::num_online_cpus();
    let rows = plan::check(text, iterations, cpus).map_err(|error| {
        let _ = write!(line, "the plan is refused at {error}");
        sys::log(Level::Error, line.as_str());
        EINVAL
    })?;

    let mut report = Report {
        encoder: Encoder::new(id, clock::wall()),
        line,
        rows,
        done: 0,
    };
    report.begin(text, iterations, cpus);
    let outcome = report.measure(text, iterations);
    report.end(match outcome {
        Ok(()) => "done",
        Err(error) if error == EINTR => "interrupted",
        Err(_) => "failed",
    });
    outcome
}

/// The report of a run while it grows.
struct Report {
    encoder: Encoder,
    line: KBox<Line>,
    rows: u32,
    done: u32,
}

impl Report {
    /// Logs a record.
    fn record<'a, F: Fields<'a>>(&mut self, record: F) {
        self.encoder.encode(record, &mut self.line);
        sys::log(Level::Debug, self.line.as_str());
    }

    fn begin(&mut self, text: &str, iterations: u32, cpus: u32) {
        self.line.clear();
        let _ = write!(
            self.line,
            "measuring {} rows on Linux {}, HZ={}, {} CPUs",
            self.rows,
            sys::release(),
            sys::hz(),
            cpus
        );
        sys::log(Level::Info, self.line.as_str());
        self.record(Begin {
            layout: record::VERSION,
            version: record::MESSUNG_VERSION,
            release: sys::release(),
            machine: sys::machine(),
            hz: sys::hz(),
            realtime: u32::from(cfg!(CONFIG_PREEMPT_RT)),
            resolution: sys::hrtimer_resolution(),
            cpus,
            rows: self.rows,
            iterations,
            fault: "",
            clocks: clock::all(),
        });
        let mut at = 0;
        let mut rest = text;
        while !rest.is_empty() {
            // Plans are ASCII, or they would have been refused.
            let (piece, tail) = rest
                .split_at_checked(record::PIECE_MAX)
                .unwrap_or((rest, ""));
            self.record(PlanText { at, text: piece });
            at = at.wrapping_add(piece.len() as u32);
            rest = tail;
        }
    }

    fn measure(&mut self, text: &str, iterations: u32) -> Result {
        settle()?;
        let pair = measure_pair()?;
        self.record(pair);
        for measurement in plan::rows(text, iterations) {
            // The plan was checked before, so an error can't be.
            let Ok(measurement) = measurement else {
                return Err(EINVAL);
            };
            settle()?;
            let mut row = Row {
                index: self.done,
                measurement,
                ..Row::default()
            };
            let outcome = {
                let _policy = Policy::set(measurement.context)?;
                take_samples(&mut row)
            };
            self.row(&row);
            outcome?;
        }
        Ok(())
    }

    fn row(&mut self, row: &Row) {
        self.line.clear();
        let _ = write!(
            self.line,
            "{}",
            People {
                row,
                rows: self.rows,
            }
        );
        sys::log(Level::Info, self.line.as_str());
        self.record(*row);
        self.done = self.done.wrapping_add(1);
    }

    fn end(&mut self, status: &'static str) {
        let end = End {
            status,
            rows: self.done,
            clocks: clock::all(),
            ..End::default()
        };
        self.encoder.end(end, &mut self.line);
        sys::log(Level::Debug, self.line.as_str());
        let mut text = Text::<80>::default();
        let _ = write!(
            text,
            "{status}: {} of {} rows measured; not loading is on purpose",
            self.done, self.rows
        );
        sys::log(Level::Info, text.as_str());
    }
}

/// Waits until what was logged has left for consoles and readers.
fn settle() -> Result {
    sys::msleep(SETTLE_MS);
    if sys::fatal_signal_pending() {
        return Err(EINTR);
    }
    Ok(())
}

/// What a pair of time stamps costs, with interrupts off.
fn measure_pair() -> Result<Pair> {
    let mut row = Row {
        measurement: Measurement {
            context: Context::Irqoff,
            iterations: plan::ITERATIONS_DEFAULT,
            ..Row::default().measurement
        },
        ..Row::default()
    };
    take_samples(&mut row)?;
    Ok(Pair {
        count: row.summary.count,
        shortest: row.summary.shortest,
        highest: row.summary.highest,
        sum: row.summary.sum,
    })
}

/// Takes the samples of a row.
fn take_samples(row: &mut Row) -> Result {
    let measurement = row.measurement;
    delays::with(&measurement, Samples { row }).unwrap_or(Err(EOPNOTSUPP))
}

struct Samples<'a> {
    row: &'a mut Row,
}

impl delays::Use for Samples<'_> {
    type Output = Result;

    fn with<D: Delay>(self, delay: D) -> Result {
        match self.row.measurement.context {
            Context::Normal | Context::Fifo(_) => self.take::<D, Open>(&delay),
            Context::Irqoff => self.take::<D, IrqOff>(&delay),
            Context::Preemptoff => self.take::<D, PreemptOff>(&delay),
        }
    }
}

impl Samples<'_> {
    fn take<D: Delay, S: Section>(self, delay: &D) -> Result {
        let Row {
            measurement,
            summary,
            cpu_changes,
            involuntary_switches,
            ..
        } = self.row;
        let floor = summary::floor(measurement);
        let must_rest = matches!(measurement.context, Context::Fifo(_))
            && matches!(measurement.function.spec().kind, Kind::Busy);
        let switches_before = sys::involuntary_switches();
        let mut cpu = sys::processor_id();
        let mut worked = 0_u64;
        let mut left = measurement.iterations;

        while left > 0 {
            let elapsed = sample::<D, S>(delay);
            if sys::fatal_signal_pending() {
                return Err(EINTR);
            }
            summary.record(elapsed, floor, summary::error(measurement, elapsed));
            let now_on = sys::processor_id();
            if now_on != cpu {
                cpu = now_on;
                *cpu_changes = cpu_changes.wrapping_add(1);
            }
            *involuntary_switches =
                sys::involuntary_switches().wrapping_sub(switches_before) as u32;
            left = left.wrapping_sub(1);

            worked = worked.wrapping_add(elapsed);
            if must_rest && worked >= FIFO_BUSY_MAX {
                worked = 0;
                sys::msleep(1);
            } else {
                sys::cond_resched();
            }
        }
        Ok(())
    }
}

/// One sample: nothing stands between the two stamps but the call.
#[inline(always)]
fn sample<D: Delay, S: Section>(delay: &D) -> u64 {
    let _section = S::enter();
    let before = clock::now();
    delay.wait();
    let after = clock::now();
    after.wrapping_sub(before)
}
