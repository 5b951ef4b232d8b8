// SPDX-License-Identifier: GPL-2.0

//! What may be measured, and the text that asks for it.
//!
//! ```text
//! plan     = set | item ("," item)*
//! item     = function [":" duration [".." duration]] ["/" context] ["@" cpu] ["*" iterations]
//! duration = digits ("ns" | "us" | "ms" | "s")
//! context  = "normal" | "fifo" [":" priority] | "irqoff" | "preemptoff"
//! cpu      = digits | "all"
//! ```
//!
//! The same parser serves the module parameter, the command line, and each row of a log.

use super::num;
use super::num::Dec;
use core::fmt;

/// Nanoseconds in a microsecond.
pub const MICROSECOND: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Most characters a plan may have.
pub const TEXT_MAX: usize = 8192;
/// Most rows a plan may have, `@all` expanded.
pub const ROWS_MAX: u32 = 256;
/// Most iterations of a row.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// Iterations of a row that names none.
pub const ITERATIONS_DEFAULT: u32 = 1000;
/// The longest a sample may keep interrupts or preemption off.
pub const OFF_MAX: u64 = 5 * MILLISECOND;
/// Highest priority of SCHED_FIFO, the one that `fifo` alone means.
pub const PRIORITY_MAX: u8 = 99;

/// A delay or sleep function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `ndelay()` with a run-time argument.
    Ndelay,
    /// `ndelay()` with a compile-time constant, which is another path in C.
    NdelayConst,
    /// `udelay()` with a run-time argument.
    Udelay,
    /// `udelay()` with a compile-time constant.
    UdelayConst,
    /// `mdelay()`.
    Mdelay,
    /// `usleep_range()`.
    UsleepRange,
    /// `msleep()`.
    Msleep,
    /// `msleep_interruptible()`.
    MsleepInterruptible,
    /// `fsleep()`.
    Fsleep,
    /// `schedule_timeout_uninterruptible()`, the request rounded up to ticks.
    ScheduleTimeout,
    /// `schedule_hrtimeout()`.
    ScheduleHrtimeout,
    /// From a timer's expiry to its callback in hard interrupt context.
    Hrtimer,
    /// Nothing: what a pair of time stamps costs.
    None,
}

/// How a function waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keeps the CPU busy.
    Busy,
    /// Sleeps on a high-resolution timer.
    Hrtimer,
    /// Sleeps on the tick (the timer wheel).
    Tick,
    /// One of the others, by the length of the request.
    Mixed,
    /// Does nothing.
    Nothing,
}

/// One function: the only place that knows its name, kind and range.
#[derive(Debug)]
pub struct Spec {
    /// Which one.
    pub function: Function,
    /// Its name in plans and reports.
    pub name: &'static str,
    /// How it waits.
    pub kind: Kind,
    /// Requests are multiples of this many nanoseconds.
    pub grain: u64,
    /// Shortest request.
    pub shortest: u64,
    /// Longest request. A machine may allow less: see [`Target::udelay_max`].
    pub longest: u64,
}

/// Every function, in the order of [`Function`].
pub static FUNCTIONS: [Spec; 13] = [
    Spec::new(
        Function::Ndelay,
        "ndelay",
        Kind::Busy,
        1,
        1,
        20 * MICROSECOND,
    ),
    Spec::new(
        Function::NdelayConst,
        "ndelay_const",
        Kind::Busy,
        1,
        1,
        20 * MICROSECOND,
    ),
    Spec::new(
        Function::Udelay,
        "udelay",
        Kind::Busy,
        MICROSECOND,
        MICROSECOND,
        5 * MILLISECOND,
    ),
    Spec::new(
        Function::UdelayConst,
        "udelay_const",
        Kind::Busy,
        MICROSECOND,
        MICROSECOND,
        5 * MILLISECOND,
    ),
    Spec::new(
        Function::Mdelay,
        "mdelay",
        Kind::Busy,
        MILLISECOND,
        MILLISECOND,
        100 * MILLISECOND,
    ),
    Spec::new(
        Function::UsleepRange,
        "usleep_range",
        Kind::Hrtimer,
        MICROSECOND,
        MICROSECOND,
        60 * SECOND,
    ),
    Spec::new(
        Function::Msleep,
        "msleep",
        Kind::Tick,
        MILLISECOND,
        MILLISECOND,
        60 * SECOND,
    ),
    Spec::new(
        Function::MsleepInterruptible,
        "msleep_interruptible",
        Kind::Tick,
        MILLISECOND,
        MILLISECOND,
        60 * SECOND,
    ),
    Spec::new(
        Function::Fsleep,
        "fsleep",
        Kind::Mixed,
        MICROSECOND,
        MICROSECOND,
        60 * SECOND,
    ),
    Spec::new(
        Function::ScheduleTimeout,
        "schedule_timeout",
        Kind::Tick,
        MICROSECOND,
        MICROSECOND,
        60 * SECOND,
    ),
    Spec::new(
        Function::ScheduleHrtimeout,
        "schedule_hrtimeout",
        Kind::Hrtimer,
        1,
        MICROSECOND,
        60 * SECOND,
    ),
    Spec::new(
        Function::Hrtimer,
        "hrtimer",
        Kind::Hrtimer,
        1,
        MICROSECOND,
        60 * SECOND,
    ),
    Spec::new(Function::None, "none", Kind::Nothing, 1, 0, 0),
];

/// The requests that `ndelay_const` knows: each is a call of its own in the module.
pub static NDELAY_CONST: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10_000];

/// The requests that `udelay_const` knows, in nanoseconds.
pub static UDELAY_CONST: [u64; 10] = [
    1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 500_000, 1_000_000,
];

impl Spec {
    const fn new(
        function: Function,
        name: &'static str,
        kind: Kind,
        grain: u64,
        shortest: u64,
        longest: u64,
    ) -> Self {
        Self {
            function,
            name,
            kind,
            grain,
            shortest,
            longest,
        }
    }

    /// Longest request where `udelay()` takes at most that many nanoseconds.
    const fn longest(&self, udelay_max: u64) -> u64 {
        match self.function {
            Function::Udelay | Function::UdelayConst if udelay_max < self.longest => udelay_max,
            _ => self.longest,
        }
    }

    /// Whether the function may be called with interrupts or preemption off.
    pub const fn is_atomic(&self) -> bool {
        matches!(self.kind, Kind::Busy | Kind::Nothing)
    }
}

impl Function {
    /// What is known of the function.
    pub fn spec(self) -> &'static Spec {
        // The table has the order of the enumeration; a test holds it to that.
        match FUNCTIONS.get(self as usize) {
            Some(spec) => spec,
            None => &NOTHING,
        }
    }

    /// The function of that name.
    pub fn named(name: &str) -> Option<Self> {
        FUNCTIONS
            .iter()
            .find(|spec| spec.name == name)
            .map(|spec| spec.function)
    }
}

/// Never seen; [`Function::spec`] needs something to return where the compiler can't see the table's order.
static NOTHING: Spec = Spec::new(Function::None, "none", Kind::Nothing, 1, 0, 0);

/// Under what a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// SCHED_OTHER, nice 0, whatever the caller has.
    Normal,
    /// SCHED_FIFO with a priority of 1 to 99.
    Fifo(u8),
    /// Local interrupts off.
    Irqoff,
    /// Preemption off.
    Preemptoff,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("normal"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::Irqoff => f.write_str("irqoff"),
            Self::Preemptoff => f.write_str("preemptoff"),
        }
    }
}

/// A duration in nanoseconds; formats as a plan writes it, in the largest unit that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

impl Duration {
    /// Number and unit, the unit being the largest that divides the duration.
    pub fn parts(self) -> (u64, &'static str) {
        for (length, unit) in [(SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "us")] {
            let (quotient, remainder) = num::div(self.0, length);
            if remainder == 0 && quotient != 0 {
                return (quotient, unit);
            }
        }
        (self.0, "ns")
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = self.parts();
        write!(f, "{}{unit}", Dec(number))
    }
}

/// Where a row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// Wherever the scheduler likes.
    Any,
    /// Pinned to this one.
    One(u16),
    /// One row for each online CPU.
    All,
}

/// One row of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The function under test.
    pub function: Function,
    /// The request in nanoseconds (usleep_range: its minimum).
    pub request: u64,
    /// The upper end of the request; the same but for usleep_range.
    pub request_max: u64,
    /// Under what it is called.
    pub context: Context,
    /// Where it runs.
    pub cpu: Cpu,
    /// Samples to take.
    pub iterations: u32,
}

/// The canonical text of the row, which parses back to it.
impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.spec().name)?;
        if self.function != Function::None {
            write!(f, ":{}", Duration(self.request))?;
            if self.request_max != self.request {
                write!(f, "..{}", Duration(self.request_max))?;
            }
        }
        if self.context != Context::Normal {
            write!(f, "/{}", self.context)?;
        }
        match self.cpu {
            Cpu::Any => {}
            Cpu::One(cpu) => write!(f, "@{cpu}")?,
            Cpu::All => f.write_str("@all")?,
        }
        write!(f, "*{}", self.iterations)
    }
}

/// The row as a person reads it: `udelay 15 us, irqoff`.
#[derive(Clone, Copy, Debug)]
pub struct Title<'a>(pub &'a Measurement);

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.function.spec().name)?;
        if self.0.function != Function::None {
            let (number, unit) = Duration(self.0.request).parts();
            write!(f, " {} {unit}", Dec(number))?;
            if self.0.request_max != self.0.request {
                let (number, unit) = Duration(self.0.request_max).parts();
                write!(f, " to {} {unit}", Dec(number))?;
            }
        }
        if self.0.context != Context::Normal {
            write!(f, ", {}", self.0.context)?;
        }
        if let Cpu::One(cpu) = self.0.cpu {
            write!(f, ", CPU {cpu}")?;
        }
        Ok(())
    }
}

/// The fourteen loops of the article, in its order.
pub const ARTICLE: &str = "udelay:15us,udelay:15us/irqoff,udelay:100us/irqoff,usleep_range:15us,\
usleep_range:15us/fifo,usleep_range:100us/fifo,usleep_range:110ms,\
msleep:10ms,msleep:15ms,msleep:18ms,msleep:24ms,msleep:50ms,msleep:100ms,msleep:110ms";

/// One row a kind of function, in under 2 seconds of waiting.
pub const QUICK: &str = "none/irqoff*100,udelay:15us/irqoff*100,udelay:100us*100,\
usleep_range:100us*100,usleep_range:10ms*10,msleep:1ms*10,msleep:24ms*10,fsleep:50us*100";

/// Each function over its range: one, two, five and ten of each unit, where it changes its ways (10 and 11 us, four ticks
/// of `fsleep()`), and around ticks at the usual HZ of 100, 250 and 1000. Within 60 seconds.
pub const SWEEP: &str =
    "none*200,none/irqoff*200,ndelay:10ns*100,ndelay:100ns*100,ndelay:500ns*100,ndelay:1us*100,\
ndelay:5us*100,ndelay:20us*100,ndelay_const:100ns*100,ndelay_const:1us*100,\
ndelay_const:10us*100,udelay:1us*100,udelay:2us*100,udelay:5us*100,udelay:10us*100,\
udelay:11us*100,udelay:20us*100,udelay:50us*100,udelay:100us*100,udelay:200us*100,\
udelay:500us*100,udelay:1ms*100,udelay:1us/irqoff*100,udelay:10us/irqoff*100,\
udelay:100us/irqoff*100,udelay:1ms/irqoff*100,udelay:2ms*50,udelay_const:1us*100,\
udelay_const:10us*100,udelay_const:100us*100,udelay_const:1ms*100,mdelay:1ms*10,mdelay:2ms*10,\
mdelay:5ms*10,mdelay:10ms*10,mdelay:100ms*2,usleep_range:1us*20,usleep_range:10us*20,\
usleep_range:11us*20,usleep_range:50us*20,usleep_range:100us*20,usleep_range:500us*20,\
usleep_range:1ms*20,usleep_range:3999us*20,usleep_range:4ms*20,usleep_range:4001us*20,\
usleep_range:9999us*20,usleep_range:10ms*20,usleep_range:10001us*20,usleep_range:20ms*20,\
usleep_range:100ms*5,usleep_range:10us/fifo*50,usleep_range:100us/fifo*50,\
usleep_range:1ms/fifo*50,msleep:1ms*10,msleep:2ms*10,msleep:3ms*10,msleep:4ms*10,msleep:5ms*10,\
msleep:7ms*10,msleep:8ms*10,msleep:9ms*10,msleep:10ms*10,msleep:11ms*10,msleep:19ms*10,\
msleep:20ms*10,msleep:21ms*10,msleep:50ms*5,msleep:100ms*5,msleep:1s*2,\
msleep_interruptible:1ms*10,msleep_interruptible:4ms*10,msleep_interruptible:10ms*10,\
msleep_interruptible:20ms*10,fsleep:1us*10,fsleep:10us*10,fsleep:11us*10,fsleep:100us*10,\
fsleep:1ms*10,fsleep:3999us*10,fsleep:4ms*10,fsleep:4001us*10,fsleep:15999us*10,fsleep:16ms*10,\
fsleep:16001us*10,fsleep:39999us*10,fsleep:40ms*10,fsleep:40001us*10,schedule_timeout:1us*10,\
schedule_timeout:1ms*10,schedule_timeout:3999us*10,schedule_timeout:4ms*10,\
schedule_timeout:4001us*10,schedule_timeout:9999us*10,schedule_timeout:10ms*10,\
schedule_timeout:10001us*10,schedule_timeout:40ms*10,schedule_hrtimeout:1us*20,\
schedule_hrtimeout:10us*20,schedule_hrtimeout:100us*20,schedule_hrtimeout:1ms*20,\
schedule_hrtimeout:10ms*20,hrtimer:1us*20,hrtimer:10us*20,hrtimer:100us*20,hrtimer:1ms*20,\
hrtimer:10ms*20";

/// The plan that is carried out when none is named.
pub const DEFAULT: &str = "article";

/// A named plan and its text.
pub static SETS: [(&str, &str); 3] = [("article", ARTICLE), ("quick", QUICK), ("sweep", SWEEP)];

/// The items that a plan's text stands for: those of the set it names, or the text itself.
pub fn expand(text: &str) -> &str {
    SETS.iter()
        .find(|(name, _)| *name == text)
        .map_or(text, |(_, items)| items)
}

/// What is wrong with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset of the place in the text, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// A kind of mistake in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// An empty item.
    Empty,
    /// No function has that name.
    UnknownFunction,
    /// The function needs a duration.
    NoDuration,
    /// The function takes no duration.
    SurplusDuration,
    /// Not a whole number with a unit.
    BadDuration,
    /// The duration is not a multiple of what the function counts in.
    BadGrain(Duration),
    /// The duration is outside the function's range.
    OutOfRange(Duration, Duration),
    /// The function knows only some constants.
    NotListed,
    /// `a..b` is for usleep_range, with a not above b.
    BadRange,
    /// Not a context.
    BadContext,
    /// A priority is 1 to 99.
    BadPriority,
    /// The function sleeps, which it must not in this context.
    Sleeps,
    /// Too long with interrupts or preemption off.
    TooLongOff,
    /// Not a CPU.
    BadCpu,
    /// Iterations are 1 to 1 000 000.
    BadIterations,
    /// Something stands where the item should have ended.
    Trailing,
    /// More than [`TEXT_MAX`] characters.
    TooLong,
    /// More than [`ROWS_MAX`] rows.
    TooManyRows,
    /// A set does not mix with items.
    MixedSet,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an item is missing here"),
            Self::UnknownFunction => f.write_str("no such function"),
            Self::NoDuration => f.write_str("a duration is missing, such as :15us"),
            Self::SurplusDuration => f.write_str("none takes no duration"),
            Self::BadDuration => {
                f.write_str("a duration is a whole number with a unit: 500ns 15us 24ms 1s")
            }
            Self::BadGrain(grain) => write!(f, "this function takes multiples of {grain}"),
            Self::OutOfRange(shortest, longest) => {
                write!(f, "this function takes {shortest} to {longest}")
            }
            Self::NotListed => f.write_str("not one of the constants that are built in"),
            Self::BadRange => f.write_str("a..b is for usleep_range, and a must not be above b"),
            Self::BadContext => {
                f.write_str("a context is normal, fifo, fifo:N, irqoff or preemptoff")
            }
            Self::BadPriority => f.write_str("a priority is 1 to 99"),
            Self::Sleeps => f.write_str("a function that sleeps can't run in this context"),
            Self::TooLongOff => {
                f.write_str("interrupts and preemption stay off for at most 5ms a sample")
            }
            Self::BadCpu => f.write_str("a CPU is a number below 65536, or all"),
            Self::BadIterations => f.write_str("iterations are 1 to 1000000"),
            Self::Trailing => f.write_str("the item should end here, with a comma or the end"),
            Self::TooLong => f.write_str("a plan has at most 8192 characters"),
            Self::TooManyRows => f.write_str("a plan has at most 256 rows"),
            Self::MixedSet => f.write_str("the name of a set stands alone"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 32 bits hold any offset that is not refused for its length, and 64-bit formatting is not for kernels.
        write!(
            f,
            "character {}: {}",
            (self.at as u32).wrapping_add(1),
            self.problem
        )
    }
}

/// The machine that is to carry a plan out, as far as it decides what may be in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// CPUs that are online.
    pub cpus: u32,
    /// Longest request of `udelay()` in nanoseconds: the kernel's `MAX_UDELAY_MS`, which is 2 on 32-bit Arm and 5 elsewhere.
    pub udelay_max: u64,
}

/// The rows of a plan's text, in order. After an error nothing more comes.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    text: &'a str,
    at: Option<usize>,
    iterations: u32,
    udelay_max: u64,
}

/// Reads a plan, whichever machine it is for: `text` as the user gave it, `iterations` for the rows that name none.
pub fn rows(text: &str, iterations: u32) -> Rows<'_> {
    Rows {
        text: expand(text),
        at: Some(0),
        iterations,
        udelay_max: u64::MAX,
    }
}

/// Checks a whole plan for a machine and counts its rows, `@all` counting as one for each of its CPUs.
///
/// # Errors
///
/// The first mistake in the text.
pub fn check(text: &str, iterations: u32, target: Target) -> Result<u32, Error> {
    if text.len() > TEXT_MAX {
        return Err(Error {
            at: TEXT_MAX,
            problem: Problem::TooLong,
        });
    }
    let mut rows = Rows {
        udelay_max: target.udelay_max,
        ..rows(text, iterations)
    };
    let mut count = 0_u32;
    loop {
        let at = rows.at.unwrap_or(0);
        let Some(row) = rows.next() else {
            return Ok(count);
        };
        count = count.saturating_add(if row?.cpu == Cpu::All { target.cpus } else { 1 });
        if count > ROWS_MAX {
            return Err(Error {
                at,
                problem: Problem::TooManyRows,
            });
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Measurement, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        let rest = self.text.get(at..)?;
        let item = match rest.split_once(',') {
            Some((item, _)) => {
                self.at = Some(at.wrapping_add(item.len()).wrapping_add(1));
                item
            }
            None => rest,
        };
        let whole = self.at.is_none() && at == 0;
        let scanner = Scanner {
            item,
            at,
            udelay_max: self.udelay_max,
        };
        let row = scanner.measurement(self.iterations, whole);
        if row.is_err() {
            self.at = None;
        }
        Some(row)
    }
}

/// What is left of an item, and where that stands in the plan.
struct Scanner<'a> {
    item: &'a str,
    at: usize,
    udelay_max: u64,
}

impl<'a> Scanner<'a> {
    fn fail<T>(&self, problem: Problem) -> Result<T, Error> {
        Err(Error {
            at: self.at,
            problem,
        })
    }

    /// Takes everything up to the first of `ends`.
    fn word(&mut self, ends: &[char]) -> &'a str {
        let length = self.item.find(ends).unwrap_or(self.item.len());
        let (word, rest) = self
            .item
            .split_at_checked(length)
            .unwrap_or((self.item, ""));
        self.advance(word.len(), rest);
        word
    }

    /// Takes `sign` if it is next.
    fn sign(&mut self, sign: &str) -> bool {
        match self.item.strip_prefix(sign) {
            Some(rest) => {
                self.advance(sign.len(), rest);
                true
            }
            None => false,
        }
    }

    fn advance(&mut self, length: usize, rest: &'a str) {
        self.at = self.at.wrapping_add(length);
        self.item = rest;
    }

    /// Reads a duration that ends at one of `ends`.
    fn duration(&mut self, ends: &[char]) -> Result<u64, Error> {
        let digits = self
            .item
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.item.len());
        let start = self.at;
        let bad = Err(Error {
            at: start,
            problem: Problem::BadDuration,
        });
        let Some((number, rest)) = self.item.split_at_checked(digits) else {
            return bad;
        };
        self.advance(digits, rest);
        // The `..` of a range ends a duration too.
        let unit = match self.item.split_once("..") {
            Some((unit, _)) if !unit.contains(ends) => {
                let (unit, rest) = self.item.split_at_checked(unit.len()).unwrap_or(("", ""));
                self.advance(unit.len(), rest);
                unit
            }
            _ => self.word(ends),
        };
        let length = match unit {
            "ns" => 1,
            "us" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            _ => return bad,
        };
        match num::parse_dec(number) {
            // Beyond 2^33 only nanoseconds can be in any function's range, and below it nothing overflows.
            Some(number) if length == 1 || number >> 33 == 0 => Ok(number.wrapping_mul(length)),
            Some(_) => Ok(u64::MAX),
            None => bad,
        }
    }

    fn measurement(mut self, iterations: u32, whole: bool) -> Result<Measurement, Error> {
        const AFTER_FUNCTION: &[char] = &[':', '/', '@', '*'];
        const AFTER_DURATION: &[char] = &['/', '@', '*'];

        if self.item.is_empty() {
            return self.fail(Problem::Empty);
        }
        let start = self.at;
        let name = self.word(AFTER_FUNCTION);
        let Some(function) = Function::named(name) else {
            let set = SETS.iter().any(|(set, _)| *set == name);
            return Err(Error {
                at: start,
                problem: if set && !whole {
                    Problem::MixedSet
                } else {
                    Problem::UnknownFunction
                },
            });
        };
        let spec = function.spec();

        let mut request = 0;
        let mut request_max = 0;
        if spec.kind == Kind::Nothing {
            if self.item.starts_with(':') {
                return self.fail(Problem::SurplusDuration);
            }
        } else {
            if !self.sign(":") {
                return self.fail(Problem::NoDuration);
            }
            let at = self.at;
            request = self.duration(AFTER_DURATION)?;
            request_max = request;
            spec.check(request, at, self.udelay_max)?;
            let at = self.at;
            if self.sign("..") {
                let upper_at = self.at;
                request_max = self.duration(AFTER_DURATION)?;
                if function != Function::UsleepRange || request_max < request {
                    return Err(Error {
                        at,
                        problem: Problem::BadRange,
                    });
                }
                spec.check(request_max, upper_at, self.udelay_max)?;
            }
        }

        let mut context = Context::Normal;
        let at = self.at;
        if self.sign("/") {
            context = self.context()?;
            if matches!(context, Context::Irqoff | Context::Preemptoff) {
                let problem = if !spec.is_atomic() {
                    Some(Problem::Sleeps)
                } else if request > OFF_MAX {
                    Some(Problem::TooLongOff)
                } else {
                    None
                };
                if let Some(problem) = problem {
                    return Err(Error { at, problem });
                }
            }
        }

        let mut cpu = Cpu::Any;
        if self.sign("@") {
            let at = self.at;
            cpu = match self.word(&['*']) {
                "all" => Cpu::All,
                digits => match num::parse_dec(digits).map(u16::try_from) {
                    Some(Ok(cpu)) => Cpu::One(cpu),
                    _ => {
                        return Err(Error {
                            at,
                            problem: Problem::BadCpu,
                        })
                    }
                },
            };
        }

        let mut iterations = iterations;
        if self.sign("*") {
            let at = self.at;
            iterations = match num::parse_dec(self.word(&[])) {
                Some(count @ 1..) if count <= u64::from(ITERATIONS_MAX) => count as u32,
                _ => {
                    return Err(Error {
                        at,
                        problem: Problem::BadIterations,
                    })
                }
            };
        }
        if !self.item.is_empty() {
            return self.fail(Problem::Trailing);
        }
        Ok(Measurement {
            function,
            request,
            request_max,
            context,
            cpu,
            iterations,
        })
    }

    fn context(&mut self) -> Result<Context, Error> {
        let at = self.at;
        match self.word(&['@', '*']) {
            "normal" => Ok(Context::Normal),
            "irqoff" => Ok(Context::Irqoff),
            "preemptoff" => Ok(Context::Preemptoff),
            "fifo" => Ok(Context::Fifo(PRIORITY_MAX)),
            word => match word.strip_prefix("fifo:") {
                Some(digits) => match num::parse_dec(digits) {
                    Some(priority @ 1..) if priority <= u64::from(PRIORITY_MAX) => {
                        Ok(Context::Fifo(priority as u8))
                    }
                    _ => Err(Error {
                        at,
                        problem: Problem::BadPriority,
                    }),
                },
                None => Err(Error {
                    at,
                    problem: Problem::BadContext,
                }),
            },
        }
    }
}

impl Spec {
    /// Whether the function takes a request; `at` is where it stands.
    fn check(&self, request: u64, at: usize, udelay_max: u64) -> Result<(), Error> {
        let longest = self.longest(udelay_max);
        let listed: Option<&[u64]> = match self.function {
            Function::NdelayConst => Some(&NDELAY_CONST),
            Function::UdelayConst => Some(&UDELAY_CONST),
            _ => None,
        };
        let problem = if request < self.shortest || request > longest {
            Problem::OutOfRange(Duration(self.shortest), Duration(longest))
        } else if num::div(request, self.grain).1 != 0 {
            Problem::BadGrain(Duration(self.grain))
        } else if listed.is_some_and(|listed| !listed.contains(&request)) {
            Problem::NotListed
        } else {
            return Ok(());
        };
        Err(Error { at, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A PC with so many CPUs.
    const fn pc(cpus: u32) -> Target {
        Target {
            cpus,
            udelay_max: 5 * MILLISECOND,
        }
    }

    fn one(text: &str) -> Result<Measurement, Error> {
        let mut rows = rows(text, 1000);
        let first = rows.next().expect("a plan has at least one row");
        assert!(rows.next().is_none(), "{text:?} has more than one row");
        first
    }

    #[test]
    fn table_has_the_order_of_the_enumeration() {
        for (index, spec) in FUNCTIONS.iter().enumerate() {
            assert_eq!(spec.function as usize, index);
            assert_eq!(Function::named(spec.name), Some(spec.function));
        }
    }

    #[test]
    fn article_is_the_articles() {
        let rows: Vec<_> = rows("article", 1000)
            .map(|row| row.unwrap().to_string())
            .collect();
        assert_eq!(
            rows,
            [
                "udelay:15us*1000",
                "udelay:15us/irqoff*1000",
                "udelay:100us/irqoff*1000",
                "usleep_range:15us*1000",
                "usleep_range:15us/fifo:99*1000",
                "usleep_range:100us/fifo:99*1000",
                "usleep_range:110ms*1000",
                "msleep:10ms*1000",
                "msleep:15ms*1000",
                "msleep:18ms*1000",
                "msleep:24ms*1000",
                "msleep:50ms*1000",
                "msleep:100ms*1000",
                "msleep:110ms*1000",
            ]
        );
        assert_eq!(check("article", 1000, pc(1)), Ok(14));
    }

    #[test]
    fn udelay_is_bounded_by_the_machine() {
        let arm = Target {
            cpus: 4,
            udelay_max: 2 * MILLISECOND,
        };
        for function in ["udelay", "udelay_const"] {
            let text = format!("none,{function}:5ms");
            let at = text.len() - "5ms".len();
            let problem = Problem::OutOfRange(Duration(1000), Duration(2_000_000));
            assert_eq!(check(&text, 1, arm), Err(Error { at, problem }));
        }
        // A log may come from any machine, and no other function is bounded.
        assert_eq!(one("udelay:5ms").unwrap().request, 5_000_000);
        for text in [
            "udelay:2ms",
            "mdelay:5ms",
            "fsleep:5ms",
            "article",
            "quick",
            "sweep",
        ] {
            assert!(check(text, 1000, arm).is_ok(), "{text}");
        }
    }

    #[test]
    fn reads_every_part() {
        let row = one("usleep_range:100us..2ms/fifo:7@3*20").unwrap();
        assert_eq!(
            row,
            Measurement {
                function: Function::UsleepRange,
                request: 100_000,
                request_max: 2_000_000,
                context: Context::Fifo(7),
                cpu: Cpu::One(3),
                iterations: 20,
            }
        );
        assert_eq!(
            Title(&row).to_string(),
            "usleep_range 100 us to 2 ms, fifo:7, CPU 3"
        );
        assert_eq!(Title(&one("none").unwrap()).to_string(), "none");
        assert_eq!(one("none/irqoff@all").unwrap().cpu, Cpu::All);
        assert_eq!(one("udelay:15us/normal").unwrap().context, Context::Normal);
        assert_eq!(one("udelay:1000us").unwrap().to_string(), "udelay:1ms*1000");
    }

    #[test]
    fn refuses_with_the_place() {
        for (text, at, problem) in [
            ("", 0, Problem::Empty),
            ("udelay:15us,", 12, Problem::Empty),
            ("nosuch:1us", 0, Problem::UnknownFunction),
            ("udelay", 6, Problem::NoDuration),
            ("udelay:15", 7, Problem::BadDuration),
            ("udelay:us", 7, Problem::BadDuration),
            ("udelay:1.5us", 7, Problem::BadDuration),
            ("udelay:99999999999999999999s", 7, Problem::BadDuration),
            ("none:1us", 4, Problem::SurplusDuration),
            (
                "udelay:50ms",
                7,
                Problem::OutOfRange(Duration(1000), Duration(5_000_000)),
            ),
            (
                "msleep:0ms",
                7,
                Problem::OutOfRange(Duration(1_000_000), Duration(60_000_000_000)),
            ),
            (
                "msleep:99999999999s",
                7,
                Problem::OutOfRange(Duration(1_000_000), Duration(60_000_000_000)),
            ),
            ("msleep:1500us", 7, Problem::BadGrain(Duration(1_000_000))),
            ("udelay_const:3us", 13, Problem::NotListed),
            ("udelay:1us..2us", 10, Problem::BadRange),
            ("usleep_range:2us..1us", 16, Problem::BadRange),
            ("usleep_range:15us/irqoff", 17, Problem::Sleeps),
            ("mdelay:6ms/preemptoff", 10, Problem::TooLongOff),
            ("udelay:1us/lunch", 11, Problem::BadContext),
            ("udelay:1us/fifo:0", 11, Problem::BadPriority),
            ("udelay:1us/fifo:100", 11, Problem::BadPriority),
            ("udelay:1us@x", 11, Problem::BadCpu),
            ("udelay:1us@65536", 11, Problem::BadCpu),
            ("udelay:1us*0", 11, Problem::BadIterations),
            ("udelay:1us*1000001", 11, Problem::BadIterations),
            ("udelay:1us*5@1", 11, Problem::BadIterations),
            ("article,udelay:1us", 0, Problem::MixedSet),
            ("udelay:1us,article", 11, Problem::MixedSet),
        ] {
            assert_eq!(
                check(text, 1000, pc(2)),
                Err(Error { at, problem }),
                "{text:?}"
            );
        }
        let long = "x".repeat(TEXT_MAX + 1);
        assert_eq!(
            check(&long, 1000, pc(1)).unwrap_err().problem,
            Problem::TooLong
        );
        let rows = vec!["none"; 257].join(",");
        assert_eq!(
            check(&rows, 1000, pc(1)).unwrap_err(),
            Error {
                at: 256 * 5,
                problem: Problem::TooManyRows
            }
        );
        assert_eq!(
            check("none@all", 1000, pc(257)).unwrap_err().problem,
            Problem::TooManyRows
        );
    }

    prop_compose! {
        fn any_measurement()(
            index in 0..FUNCTIONS.len(),
            request: u64,
            extra in 0_u64..1000,
            context in prop_oneof![
                Just(Context::Normal),
                (1_u8..=99).prop_map(Context::Fifo),
                Just(Context::Irqoff),
                Just(Context::Preemptoff),
            ],
            cpu in prop_oneof![Just(Cpu::Any), any::<u16>().prop_map(Cpu::One), Just(Cpu::All)],
            iterations in 1..=ITERATIONS_MAX,
        ) -> Measurement {
            let spec = &FUNCTIONS[index];
            let request = match spec.function {
                Function::None => 0,
                Function::NdelayConst => NDELAY_CONST[request as usize % NDELAY_CONST.len()],
                Function::UdelayConst => UDELAY_CONST[request as usize % UDELAY_CONST.len()],
                _ => (spec.shortest + request % (spec.longest - spec.shortest)) / spec.grain * spec.grain,
            };
            let off = matches!(context, Context::Irqoff | Context::Preemptoff);
            let context = if off && (!spec.is_atomic() || request > OFF_MAX) { Context::Normal } else { context };
            let range = spec.function == Function::UsleepRange;
            let request_max = if range { (request + extra * spec.grain).min(spec.longest) } else { request };
            Measurement { function: spec.function, request, request_max, context, cpu, iterations }
        }
    }

    proptest! {
        #[test]
        fn canonical_text_parses_back(row in any_measurement()) {
            prop_assert_eq!(one(&row.to_string()), Ok(row));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = check(&text, 1000, pc(2));
        }

        #[test]
        fn nearly_right_text_is_read_or_refused(text in "(udelay|msleep|none|usleep_range|é)?[:/@*,.0-9a-z]{0,24}") {
            if let Err(error) = check(&text, 1000, pc(2)) {
                prop_assert!(error.at <= text.len());
            }
        }
    }
}
