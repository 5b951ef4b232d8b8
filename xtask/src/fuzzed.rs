// SPDX-License-Identifier: GPL-2.0

//! What must hold for any bytes at all. Fuzzers look for bytes for which it does not (fuzz/README.md tells how), and the tests
//! below run over those they have found interesting so far, in tests/fuzz.

use std::collections::BTreeSet;
use std::io::Read as _;

use abi::plan::{self, Target};
use abi::record::Crc;

use crate::log::assemble::{Assembler, Log};
use crate::log::follow::{Follower, News};
use crate::log::{prefix, stream, unpack};
use crate::result::Run;
use crate::writers;

/// Any log is read, and whatever comes of it can be shown, saved and loaded. Who follows it meets the same runs.
pub fn log(bytes: &[u8]) {
    let runs = read(bytes).runs;
    for run in &runs {
        assert!(!writers::report(run).is_empty());
        let loaded = Run::from_json(&run.to_json()).expect("what was saved can be loaded");
        assert_eq!(loaded.measurements, run.measurements);
    }
    assert_eq!(recorded(&followed(bytes)), recorded(&runs));
}

/// Anything that may be packed is unpacked, as far as it goes.
pub fn packed(bytes: &[u8]) {
    /// A packed log may hold a thousand times as much as it takes.
    const MOST: u64 = 4 << 20;
    if let Ok(log) = unpack::unpacked(bytes) {
        // It may be damaged anywhere.
        let _ = stream::messages(log.take(MOST), |message| assert!(!message.is_empty()));
    }
}

/// Any lines are read as records, too. Each gets a checksum here, which no fuzzer would guess.
pub fn records(bytes: &[u8]) {
    let mut text = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let mut crc = Crc::default();
        crc.add(line);
        text.extend_from_slice(prefix::MARKER);
        text.extend_from_slice(line);
        text.extend_from_slice(format!(" *{:08x}\n", crc.sum()).as_bytes());
    }
    log(&text);
}

/// Any plan is taken apart or refused; each of its rows has a text that means the same row.
pub fn plan(bytes: &[u8]) {
    const TARGET: Target = Target {
        cpus: 4,
        udelay_max: 5 * plan::MILLISECOND,
    };
    const NARROW: Target = Target {
        udelay_max: 2 * plan::MILLISECOND,
        ..TARGET
    };
    let text = String::from_utf8_lossy(bytes);
    let check = |target| plan::check(&text, plan::ITERATIONS_DEFAULT, target);
    let checked = check(TARGET);
    if let Ok(rows) = check(NARROW) {
        assert_eq!(checked, Ok(rows), "{text:?}");
    }
    let mut count = 0;
    for row in plan::rows(&text, plan::ITERATIONS_DEFAULT) {
        let Ok(row) = row else {
            assert!(checked.is_err(), "{text:?} passed the check");
            return;
        };
        count += match row.cpu {
            plan::Cpu::All => TARGET.cpus,
            plan::Cpu::One(_) | plan::Cpu::Any => 1,
        };
        let again: Vec<_> = plan::rows(&row.to_string(), 1).collect();
        assert_eq!(again, [Ok(row)], "{text:?}");
    }
    if let Ok(checked) = checked {
        assert_eq!(checked, count, "{text:?}");
    }
}

fn read(bytes: &[u8]) -> Log {
    let mut assembler = Assembler::default();
    stream::messages(bytes, |message| assembler.take(message))
        .expect("reading from memory does not fail");
    assembler.finish()
}

/// The runs of a log that is followed, as they are told.
fn followed(bytes: &[u8]) -> Vec<Run> {
    let mut follower = Follower::default();
    let mut runs = Vec::new();
    let mut tell = |news| {
        if let News::Run(run) = news {
            runs.push(*run);
        }
    };
    stream::messages(bytes, |message| follower.take(message, &mut tell))
        .expect("reading from memory does not fail");
    runs.extend(follower.finish().runs);
    runs
}

/// Which runs there are records of: lines for people name no run, so they have none.
fn recorded(runs: &[Run]) -> BTreeSet<(u32, u64)> {
    let identities = runs.iter().map(|run| (run.run.id, run.run.stamp));
    identities.filter(|identity| *identity != (0, 0)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Runs over the inputs of a target.
    fn all(target: &str, holds: impl Fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/fuzz")
            .join(target);
        let mut count = 0;
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            holds(&std::fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 50, "{} holds {count} inputs", folder.display());
    }

    #[test]
    fn logs_that_were_found() {
        all("log", super::log);
    }

    #[test]
    fn packed_logs_that_were_found() {
        all("packed", super::packed);
    }

    #[test]
    fn records_that_were_found() {
        all("records", super::records);
    }

    #[test]
    fn plans_that_were_found() {
        all("plan", super::plan);
    }
}
