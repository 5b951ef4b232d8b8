// SPDX-License-Identifier: GPL-2.0

//! How a run travels through the kernel log.
//!
//! For people, one [`People`] line a row. For programs, records, one a line:
//!
//! ```text
//! @RUN-STAMP SEQUENCE KIND key=value … *CHECKSUM
//! ```
//!
//! RUN is the run's id (8 hexadecimal digits), STAMP its start (16, CLOCK_REALTIME in nanoseconds), SEQUENCE counts the
//! records of the run from 0, CHECKSUM is the CRC-32 of everything before ` *`. Values hold no spaces. The [`End`]
//! record tells how many records came before it and the checksum of their checksums, so that no loss goes unnoticed.
//!
//! A record's fields are named once, in its [`Fields::visit`]: encoding and decoding both walk that list.

use super::num::Dec;
use super::num::Hex;
use super::num::Micros;
use super::num::SignedDec;
use super::num::Wide;
use super::plan::Context;
use super::plan::Cpu;
use super::plan::Function;
use super::plan::Measurement;
use super::plan::Title;
use super::summary::Summary;
use core::fmt;
use core::fmt::Write as _;

/// Version of this layout; a decoder refuses a higher one.
pub const VERSION: u32 = 1;

/// Version of messung, which a kernel module can't ask cargo for.
pub const MESSUNG_VERSION: &str = "0.1.0";

/// Longest line in bytes, `messung: ` and newline not counted.
pub const LINE_MAX: usize = 880;

/// Longest piece of text that a record carries in one field.
pub const PIECE_MAX: usize = 700;

/// CRC-32 (IEEE 802.3), four bits at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Self(!0)
    }
}

impl Crc {
    /// Takes more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        const TABLE: [u32; 16] = {
            let mut table = [0_u32; 16];
            let mut index = 0;
            while index < 16 {
                let mut value = index as u32;
                let mut bit = 0;
                while bit < 4 {
                    value = if value & 1 == 1 {
                        (value >> 1) ^ 0xedb8_8320
                    } else {
                        value >> 1
                    };
                    bit += 1;
                }
                table[index] = value;
                index += 1;
            }
            table
        };
        for &byte in bytes {
            self.0 ^= u32::from(byte);
            self.0 = (self.0 >> 4) ^ TABLE[(self.0 & 15) as usize];
            self.0 = (self.0 >> 4) ^ TABLE[(self.0 & 15) as usize];
        }
    }

    /// Takes the checksum of a record, as the [`End`] record sums them up.
    pub fn add_sum(&mut self, sum: u32) {
        self.add(&sum.to_be_bytes());
    }

    /// The checksum so far.
    pub fn sum(self) -> u32 {
        !self.0
    }
}

/// Text of bounded length; what does not fit is cut and remembered as missing.
#[derive(Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    cut: bool,
}

/// A line of the log.
pub type Line = Text<LINE_MAX>;

/// A field of a record.
pub type Piece = Text<PIECE_MAX>;

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
            cut: false,
        }
    }
}

impl<const N: usize> Text<N> {
    /// Empties it.
    pub fn clear(&mut self) {
        self.length = 0;
        self.cut = false;
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.bytes
            .get(..self.length)
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }

    /// Whether nothing was cut.
    pub fn is_whole(&self) -> bool {
        !self.cut
    }

    /// Appends `text` if all of it fits, and tells whether it did.
    pub fn append(&mut self, text: fmt::Arguments<'_>) -> bool {
        let length = self.length;
        if self.write_fmt(text).is_ok() {
            return true;
        }
        self.length = length;
        self.cut = false;
        false
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length.wrapping_add(text.len());
        match self.bytes.get_mut(self.length..end) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                self.length = end;
                Ok(())
            }
            None => {
                self.cut = true;
                Err(fmt::Error)
            }
        }
    }
}

/// Walks the fields of a record, to write them or to fill them in.
pub trait Visitor<'a> {
    /// A 32-bit integer.
    fn u32(&mut self, key: &str, value: &mut u32);
    /// A 64-bit integer.
    fn u64(&mut self, key: &str, value: &mut u64);
    /// A signed 64-bit integer.
    fn i64(&mut self, key: &str, value: &mut i64);
    /// Text without spaces.
    fn text(&mut self, key: &str, value: &mut &'a str);
    /// A row of a plan.
    fn row(&mut self, key: &str, value: &mut Measurement);
}

/// A record: its kind, and its fields in order.
pub trait Fields<'a> {
    /// The word that names the kind.
    const KIND: &'static str;
    /// Shows every field to the visitor.
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V);
}

/// Time stamps of several clocks, taken together at the start and at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub mono: u64,
    /// CLOCK_MONOTONIC_RAW in nanoseconds.
    pub raw: u64,
    /// CLOCK_BOOTTIME in nanoseconds.
    pub boot: u64,
    /// jiffies.
    pub ticks: u64,
}

impl Clocks {
    fn visit<'a, V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u64("mono", &mut self.mono);
        visitor.u64("raw", &mut self.raw);
        visitor.u64("boot", &mut self.boot);
        visitor.u64("ticks", &mut self.ticks);
    }
}

/// The first record: what only the kernel itself, or a bare log, can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin<'a> {
    /// [`VERSION`].
    pub layout: u32,
    /// Version of messung.
    pub version: &'a str,
    /// Kernel release.
    pub release: &'a str,
    /// Machine, as `uname -m` names it.
    pub machine: &'a str,
    /// CONFIG_HZ.
    pub hz: u32,
    /// CONFIG_PREEMPT_RT: 0 or 1.
    pub realtime: u32,
    /// Resolution of hrtimers in nanoseconds: 1, or a tick.
    pub resolution: u32,
    /// Online CPUs.
    pub cpus: u32,
    /// Rows of the plan.
    pub rows: u32,
    /// Iterations of rows that name none.
    pub iterations: u32,
    /// Name of a planted fault; empty but for test builds.
    pub fault: &'a str,
    /// Clocks at the start.
    pub clocks: Clocks,
}

impl<'a> Fields<'a> for Begin<'a> {
    const KIND: &'static str = "begin";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("layout", &mut self.layout);
        visitor.text("version", &mut self.version);
        visitor.text("release", &mut self.release);
        visitor.text("machine", &mut self.machine);
        visitor.u32("hz", &mut self.hz);
        visitor.u32("realtime", &mut self.realtime);
        visitor.u32("resolution", &mut self.resolution);
        visitor.u32("cpus", &mut self.cpus);
        visitor.u32("rows", &mut self.rows);
        visitor.u32("iterations", &mut self.iterations);
        visitor.text("fault", &mut self.fault);
        self.clocks.visit(visitor);
    }
}

/// A piece of the plan's text, at most [`PIECE_MAX`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanText<'a> {
    /// Offset of the piece.
    pub at: u32,
    /// The piece.
    pub text: &'a str,
}

impl<'a> Fields<'a> for PlanText<'a> {
    const KIND: &'static str = "plan";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("at", &mut self.at);
        visitor.text("text", &mut self.text);
    }
}

/// What pairs of time stamps cost with nothing between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Pairs taken.
    pub count: u32,
    /// Shortest in nanoseconds.
    pub shortest: u64,
    /// Highest.
    pub highest: u64,
    /// Sum of all.
    pub sum: u64,
}

impl<'a> Fields<'a> for Pair {
    const KIND: &'static str = "pair";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("count", &mut self.count);
        visitor.u64("shortest", &mut self.shortest);
        visitor.u64("highest", &mut self.highest);
        visitor.u64("sum", &mut self.sum);
    }
}

/// One measured row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Place in the plan, from 0.
    pub index: u32,
    /// What was measured.
    pub measurement: Measurement,
    /// What came out.
    pub summary: Summary,
    /// How often the task was found on another CPU than before.
    pub cpu_changes: u32,
    /// How often the task was made to give its CPU away.
    pub involuntary_switches: u32,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            index: 0,
            measurement: Measurement {
                function: Function::None,
                request: 0,
                request_max: 0,
                context: Context::Normal,
                cpu: Cpu::Any,
                iterations: 0,
            },
            summary: Summary::default(),
            cpu_changes: 0,
            involuntary_switches: 0,
        }
    }
}

impl<'a> Fields<'a> for Row {
    const KIND: &'static str = "row";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("index", &mut self.index);
        visitor.row("item", &mut self.measurement);
        visitor.u32("count", &mut self.summary.count);
        visitor.u64("shortest", &mut self.summary.shortest);
        visitor.u64("highest", &mut self.summary.highest);
        visitor.u64("sum", &mut self.summary.sum);
        let Wide { high, low } = &mut self.summary.squares;
        visitor.u64("squares_high", high);
        visitor.u64("squares_low", low);
        visitor.u32("early", &mut self.summary.early);
        visitor.i64("earliest", &mut self.summary.earliest);
        visitor.u32("cpu_changes", &mut self.cpu_changes);
        visitor.u32("involuntary", &mut self.involuntary_switches);
    }
}

/// Some buckets of a row's histogram of the error, as `BUCKET:COUNT,…` in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram<'a> {
    /// The row's place in the plan.
    pub index: u32,
    /// `early` (negative errors, by magnitude) or `late`.
    pub side: &'a str,
    /// The buckets, see [`super::summary::bucket`].
    pub buckets: &'a str,
}

impl<'a> Fields<'a> for Histogram<'a> {
    const KIND: &'static str = "histogram";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("index", &mut self.index);
        visitor.text("side", &mut self.side);
        visitor.text("buckets", &mut self.buckets);
    }
}

/// A row's samples with the largest errors, as `SAMPLE:AT:ERROR,…`: number of the sample, CLOCK_MONOTONIC at its start,
/// error in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst<'a> {
    /// The row's place in the plan.
    pub index: u32,
    /// The samples.
    pub samples: &'a str,
}

impl<'a> Fields<'a> for Worst<'a> {
    const KIND: &'static str = "worst";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("index", &mut self.index);
        visitor.text("samples", &mut self.samples);
    }
}

/// The last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End<'a> {
    /// Records before this one.
    pub records: u32,
    /// Checksum of their checksums, see [`Crc::add_sum`].
    pub sum: u32,
    /// `done`, `interrupted`, or what failed.
    pub status: &'a str,
    /// Rows reported.
    pub rows: u32,
    /// Clocks at the end.
    pub clocks: Clocks,
}

impl<'a> Fields<'a> for End<'a> {
    const KIND: &'static str = "end";
    fn visit<V: Visitor<'a>>(&mut self, visitor: &mut V) {
        visitor.u32("records", &mut self.records);
        visitor.u32("sum", &mut self.sum);
        visitor.text("status", &mut self.status);
        visitor.u32("rows", &mut self.rows);
        self.clocks.visit(visitor);
    }
}

/// Makes the records of a run, and counts them.
#[derive(Debug)]
pub struct Encoder {
    run: u32,
    stamp: u64,
    sequence: u32,
    sums: Crc,
}

impl Encoder {
    /// For the run with that id, started at `stamp` (CLOCK_REALTIME in nanoseconds).
    pub fn new(run: u32, stamp: u64) -> Self {
        Self {
            run,
            stamp,
            sequence: 0,
            sums: Crc::default(),
        }
    }

    /// Writes a record into `line`. A record that does not fit leaves a gap in the sequence, which a decoder reports.
    pub fn encode<'a, F: Fields<'a>>(&mut self, mut record: F, line: &mut Line) {
        line.clear();
        let _ = write!(
            line,
            "@{:08x}-{} {} {}",
            self.run,
            Hex(self.stamp),
            self.sequence,
            F::KIND
        );
        record.visit(&mut Write(line));
        let mut crc = Crc::default();
        crc.add(line.as_str().as_bytes());
        let _ = write!(line, " *{:08x}", crc.sum());
        self.sequence = self.sequence.wrapping_add(1);
        self.sums.add_sum(crc.sum());
    }

    /// Writes the last record; count and checksum are filled in.
    pub fn end(&mut self, end: End<'_>, line: &mut Line) {
        let end = End {
            records: self.sequence,
            sum: self.sums.sum(),
            ..end
        };
        self.encode(end, line);
    }
}

/// Writes fields as ` key=value`.
struct Write<'l>(&'l mut Line);

impl<'a> Visitor<'a> for Write<'_> {
    fn u32(&mut self, key: &str, value: &mut u32) {
        let _ = write!(self.0, " {key}={value}");
    }

    fn u64(&mut self, key: &str, value: &mut u64) {
        let _ = write!(self.0, " {key}={}", Dec(*value));
    }

    fn i64(&mut self, key: &str, value: &mut i64) {
        let _ = write!(self.0, " {key}={}", SignedDec(*value));
    }

    fn text(&mut self, key: &str, value: &mut &'a str) {
        let _ = write!(self.0, " {key}={value}");
    }

    fn row(&mut self, key: &str, value: &mut Measurement) {
        let _ = write!(self.0, " {key}={value}");
    }
}

/// The line for people:
/// `[2/14] udelay 15 us, irqoff: shortest: 15.340 mean: 15.340 highest: 15.340 us (1000 samples, 0 early)`.
#[derive(Clone, Copy, Debug)]
pub struct People<'a> {
    /// The row.
    pub row: &'a Row,
    /// Rows of the plan.
    pub rows: u32,
}

impl fmt::Display for People<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row {
            index,
            measurement,
            summary,
            ..
        } = self.row;
        write!(
            f,
            "[{}/{}] {}: ",
            index.wrapping_add(1),
            self.rows,
            Title(measurement)
        )?;
        if summary.count == 0 {
            return f.write_str("no samples");
        }
        write!(
            f,
            "shortest: {} mean: {} highest: {} us ({} samples, {} early)",
            Micros(summary.shortest),
            Micros(summary.mean()),
            Micros(summary.highest),
            summary.count,
            summary.early
        )
    }
}
