// SPDX-License-Identifier: GPL-2.0

//! Walks the plan: measures row after row and reports each one when it is done.

use crate::abi::num::Dec;
use crate::abi::num::SignedDec;
use crate::abi::plan;
use crate::abi::plan::Context;
use crate::abi::plan::Cpu;
use crate::abi::plan::Kind;
use crate::abi::plan::Measurement;
use crate::abi::plan::Target;
use crate::abi::record;
use crate::abi::record::Begin;
use crate::abi::record::Encoder;
use crate::abi::record::End;
use crate::abi::record::Fields;
use crate::abi::record::Histogram as HistogramRecord;
use crate::abi::record::Line;
use crate::abi::record::Pair;
use crate::abi::record::People;
use crate::abi::record::Piece;
use crate::abi::record::PlanText;
use crate::abi::record::Row;
use crate::abi::record::Text;
use crate::abi::record::Worst;
use crate::abi::summary;
use crate::abi::summary::Histogram;
use crate::abi::summary::Outlier;
use crate::abi::summary::Outliers;
use crate::clock;
use crate::context::IrqOff;
use crate::context::Open;
use crate::context::Pinned;
use crate::context::Policy;
use crate::context::PreemptOff;
use crate::context::Section;
use crate::delays;
use crate::delays::Delay;
use crate::fault;
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
    // The buffers are too large for some kernels' stacks.
    let mut line = KBox::new(Line::default(), GFP_KERNEL)?;
    let mut cells = KVVec::from_elem(0_u32, Histogram::CELLS, GFP_KERNEL)?;

    let rows = check(text, iterations, &mut line)?;
    let mut report = Report {
        encoder: Encoder::new(id, clock::wall()),
        line,
        rows,
        done: 0,
    };
    report.begin(text, iterations);
    let outcome = report.measure(text, iterations, &mut cells);
    report.end(match outcome {
        Ok(()) => "done",
        Err(error) if error == EINTR => "interrupted",
        Err(_) => "failed",
    });
    outcome
}

/// Checks parameters before anything is measured, and counts the rows. What is refused is logged with its reason.
fn check(text: &str, iterations: u32, line: &mut Line) -> Result<u32> {
    let cpus = sys::num_online_cpus();
    let target = Target {
        cpus,
        udelay_max: u64::from(sys::max_udelay_ms()).wrapping_mul(plan::MILLISECOND),
    };
    let _ = if !(1..=plan::ITERATIONS_MAX).contains(&iterations) {
        write!(
            line,
            "iterations={iterations} is refused: it must be 1 to {}",
            plan::ITERATIONS_MAX
        )
    } else {
        match plan::check(text, iterations, target) {
            Err(error) => write!(line, "the plan is refused at {error}"),
            Ok(rows) => match plan::rows(text, iterations).find_map(missing_cpu) {
                Some(cpu) => write!(
                    line,
                    "the plan is refused: CPU {cpu} is not online, of {cpus} that are"
                ),
                None => return Ok(rows),
            },
        }
    };
    sys::log(Level::Error, line.as_str());
    Err(EINVAL)
}

/// The CPU that a row asks for, if it is not there.
fn missing_cpu(row: Result<Measurement, plan::Error>) -> Option<u16> {
    match row.ok()?.cpu {
        Cpu::One(cpu) if !sys::cpu_online(u32::from(cpu)) => Some(cpu),
        _ => None,
    }
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

    fn begin(&mut self, text: &str, iterations: u32) {
        let cpus = sys::num_online_cpus();
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
            fault: fault::NAME_AND_MARK.0,
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

    fn measure(&mut self, text: &str, iterations: u32, cells: &mut [u32]) -> Result {
        settle()?;
        let pair = measure_pair()?;
        self.record(pair);
        for measurement in plan::rows(text, iterations) {
            // The plan was checked before, so an error can't be.
            let measurement = measurement.map_err(|_| EINVAL)?;
            match measurement.cpu {
                Cpu::All => {
                    for cpu in (0..sys::nr_cpu_ids()).filter(|&cpu| sys::cpu_online(cpu)) {
                        let one = Measurement {
                            cpu: Cpu::One(cpu as u16),
                            ..measurement
                        };
                        self.measure_row(one, cells)?;
                    }
                }
                Cpu::Any | Cpu::One(_) => self.measure_row(measurement, cells)?,
            }
        }
        Ok(())
    }

    fn measure_row(&mut self, measurement: Measurement, cells: &mut [u32]) -> Result {
        settle()?;
        let mut samples = Samples {
            row: Row {
                index: self.done,
                measurement,
                ..Row::default()
            },
            histogram: Histogram::new(cells).ok_or(ENOMEM)?,
            outliers: Outliers::default(),
        };
        let outcome = {
            let _pinned = match measurement.cpu {
                Cpu::One(cpu) => Some(Pinned::to(cpu)?),
                Cpu::Any | Cpu::All => None,
            };
            let _policy = Policy::set(measurement.context)?;
            delays::with(&measurement, &mut samples)
        };
        self.row(&samples);
        outcome?
    }

    fn row(&mut self, samples: &Samples<'_>) {
        let Samples {
            row,
            histogram,
            outliers,
        } = samples;
        self.line.clear();
        let _ = write!(
            self.line,
            "{}{}",
            People {
                row,
                rows: self.rows,
            },
            fault::NAME_AND_MARK.1
        );
        sys::log(Level::Info, self.line.as_str());
        self.record(*row);
        for early in [true, false] {
            self.histogram(row.index, early, histogram);
        }
        let mut list = Piece::default();
        for outlier in outliers.iter() {
            list.append(format_args!(
                "{}{}:{}:{}",
                if list.as_str().is_empty() { "" } else { "," },
                outlier.sample,
                Dec(outlier.at),
                SignedDec(outlier.error)
            ));
        }
        self.record(Worst {
            index: row.index,
            samples: list.as_str(),
        });
        self.done = self.done.wrapping_add(1);
    }

    /// Reports one side of a histogram in as many records as it takes.
    fn histogram(&mut self, index: u32, early: bool, histogram: &Histogram<'_>) {
        let side = if early { "early" } else { "late" };
        let mut list = Piece::default();
        for (bucket, count) in histogram.filled(early) {
            let comma = if list.as_str().is_empty() { "" } else { "," };
            if !list.append(format_args!("{comma}{bucket}:{count}")) {
                self.record(HistogramRecord {
                    index,
                    side,
                    buckets: list.as_str(),
                });
                list.clear();
                list.append(format_args!("{bucket}:{count}"));
            }
        }
        if !list.as_str().is_empty() {
            self.record(HistogramRecord {
                index,
                side,
                buckets: list.as_str(),
            });
        }
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
    let mut pair = Pair {
        shortest: u64::MAX,
        ..Pair::default()
    };
    while pair.count < plan::ITERATIONS_DEFAULT {
        let (_, elapsed) = sample::<_, IrqOff>(&delays::Nothing());
        pair.count = pair.count.wrapping_add(1);
        pair.shortest = pair.shortest.min(elapsed);
        pair.highest = pair.highest.max(elapsed);
        pair.sum = pair.sum.wrapping_add(elapsed);
        between_samples(false)?;
    }
    Ok(pair)
}

/// What a row has come to so far.
struct Samples<'a> {
    row: Row,
    histogram: Histogram<'a>,
    outliers: Outliers,
}

impl delays::Use for &mut Samples<'_> {
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
    /// Takes all samples of the row.
    ///
    /// # Errors
    ///
    /// `EINTR` when a fatal signal came; the sample that it cut is not counted.
    fn take<D: Delay, S: Section>(&mut self, delay: &D) -> Result {
        let measurement = self.row.measurement;
        let floor = summary::floor(&measurement);
        let must_rest = matches!(measurement.context, Context::Fifo(_))
            && matches!(measurement.function.spec().kind, Kind::Busy);
        let switches_before = sys::involuntary_switches();
        let mut cpu = sys::processor_id();
        let mut busy = 0_u64;

        while self.row.summary.count < measurement.iterations {
            let (at, elapsed) = sample::<D, S>(delay);
            if sys::fatal_signal_pending() {
                return Err(EINTR);
            }
            let error = summary::error(&measurement, elapsed);
            self.outliers.record(Outlier {
                sample: self.row.summary.count,
                at,
                error,
            });
            self.histogram.record(error);
            self.row.summary.record(elapsed, floor, error);
            let now_on = sys::processor_id();
            if now_on != cpu {
                cpu = now_on;
                self.row.cpu_changes = self.row.cpu_changes.wrapping_add(1);
            }
            self.row.involuntary_switches =
                sys::involuntary_switches().wrapping_sub(switches_before) as u32;

            busy = busy.wrapping_add(elapsed);
            let rest = must_rest && busy >= FIFO_BUSY_MAX;
            if rest {
                busy = 0;
            }
            between_samples(rest)?;
        }
        Ok(())
    }
}

/// Lets others have the CPU: for a tick at least, or only if they are due.
#[inline(always)]
fn between_samples(rest: bool) -> Result {
    if rest {
        sys::msleep(1);
    } else {
        sys::cond_resched();
    }
    if sys::fatal_signal_pending() {
        return Err(EINTR);
    }
    Ok(())
}

/// One sample: when it started and what it took. Nothing stands between the two stamps but the call.
#[inline(always)]
fn sample<D: Delay, S: Section>(delay: &D) -> (u64, u64) {
    let _section = S::enter();
    let before = clock::now();
    delay.wait();
    let after = delay.end();
    (before, after.wrapping_sub(before))
}
