// SPDX-License-Identifier: GPL-2.0

//! Large logs are read about as fast as grep reads them, in memory that does not grow with them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use abi::record::{Crc, End, Fields as _};
use anyhow::{Context as _, Result, ensure};

use super::bench::Bench;
use super::harness::{Check, Need, check};

const GREP: Need = Need::Program(&["grep", "--version"], "the package grep has it");

/// A run as it was captured, which all runs here are made of.
const CAPTURED: &str = "tests/logs/dmesg-article.log";

const RUNS: u32 = 100;

/// Bytes of log from one run to the next.
const PART: usize = 10_000_000;

/// Both programs are timed in turn, so that whatever else goes on slows down both; the best time of each counts.
const ROUNDS: usize = 10;

/// How much more memory a large log may take than its runs alone.
const SLACK_KB: u64 = 2_000;

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    vec![check(
        "parse: 1 GB is read at half the speed of grep, in constant memory",
        &[Need::Patience, GREP],
        large_log,
    )]
}

fn large_log(bench: &Bench<'_>) -> Result<String> {
    let captured = fs::read_to_string(bench.repository.join(CAPTURED))
        .with_context(|| format!("cannot read {CAPTURED}"))?;
    let folder = bench.folder()?;
    let [large, small] =
        ["synthetic-large.log", "synthetic-runs.log"].map(|name| folder.join(name));
    write(&large, &captured, &foreign(PART - captured.len()))?;
    write(&small, &captured, "")?;

    let grep = || {
        let mut command = Command::new("grep");
        // Its fastest way.
        command
            .env("LC_ALL", "C")
            .args(["-c", "messung"])
            .arg(&large);
        command
    };
    let parse = || {
        let mut command = bench.xtask(&["parse"]);
        command.arg(&large);
        command
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        bench.env.interrupt.check()?;
        let (took, _) = timed(grep())?;
        best[0] = best[0].min(took);
        let (took, report) = timed(parse())?;
        best[1] = best[1].min(took);
        let runs = report
            .lines()
            .filter(|line| line.starts_with("run "))
            .count();
        ensure!(runs == RUNS as usize, "{runs} runs of {RUNS} were found");
    }
    let [grep, parse] = best;

    let (peak, alone) = (peak_kb(bench, &large)?, peak_kb(bench, &small)?);
    let megabytes = fs::metadata(&large)?.len() / 1_000_000;
    fs::remove_file(&large).context("cannot remove what was written")?;
    ensure!(
        parse <= 2 * grep,
        "{megabytes} MB took {parse:.2?}, and grep {grep:.2?}"
    );
    ensure!(
        peak <= alone + SLACK_KB,
        "reading {megabytes} MB took {peak} kB of memory, reading its runs alone {alone} kB"
    );
    Ok(format!(
        "{megabytes} MB with {RUNS} runs in {parse:.2?}, grep {grep:.2?}; {peak} kB of memory, {alone} kB for the runs alone"
    ))
}

/// Writes a log that holds all runs, with other lines before each.
fn write(path: &Path, captured: &str, others: &str) -> Result<()> {
    let write = || {
        let mut log = BufWriter::new(File::create(path)?);
        for id in 1..=RUNS {
            log.write_all(others.as_bytes())?;
            log.write_all(renumbered(captured, id).as_bytes())?;
        }
        log.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The log of a run, as it would be had the run got another id.
fn renumbered(log: &str, id: u32) -> String {
    const MARK: &str = "messung: @";
    let mut sums = Crc::default();
    let mut renumbered = String::with_capacity(log.len());
    for line in log.lines() {
        let record = line
            .split_once(MARK)
            .and_then(|(head, record)| Some((head, record.rsplit_once(" *")?.0)));
        match record {
            Some((head, record)) => {
                let mut words: Vec<_> = record.split(' ').map(str::to_owned).collect();
                if let Some((_, stamp)) = words[0].split_once('-') {
                    words[0] = format!("@{id:08x}-{stamp}");
                }
                if words.get(2).is_some_and(|kind| kind == End::KIND) {
                    for word in words.iter_mut().filter(|word| word.starts_with("sum=")) {
                        *word = format!("sum={}", sums.sum());
                    }
                }
                let record = words.join(" ");
                let mut sum = Crc::default();
                sum.add(record.as_bytes());
                sums.add_sum(sum.sum());
                renumbered.push_str(&format!("{head}messung: {record} *{:08x}\n", sum.sum()));
            }
            None => {
                renumbered.push_str(line);
                renumbered.push('\n');
            }
        }
    }
    renumbered
}

/// Lines of other people, as rsyslog writes them.
fn foreign(length: usize) -> String {
    let mut log = String::with_capacity(length + 300);
    let mut number = 0_u32;
    while log.len() < length {
        let (minute, second) = (number / 60 % 60, number % 60);
        let micros = number.wrapping_mul(7919) % 1_000_000;
        let text = match number % 5 {
            0 => {
                format!("usb 1-{second}: new high-speed USB device number {minute} using xhci_hcd")
            }
            1 => format!(
                "audit: type=1400 audit(1796076001.{second}:{number}): apparmor=\"STATUS\" operation=\"profile_load\" profile=\"unconfined\" name=\"/usr/bin/man\""
            ),
            2 => format!(
                "[UFW BLOCK] IN=eth0 OUT= MAC=52:54:00:12:34:56 SRC=10.0.2.{second} DST=10.0.2.15 LEN=40 TOS=0x00 TTL=64 ID={number} PROTO=TCP"
            ),
            3 => format!("wlan0: send auth to 00:11:22:33:44:{second} (try {minute}/3)"),
            _ => format!(
                "EXT4-fs (sda{second}): mounted filesystem with ordered data mode. Quota mode: none."
            ),
        };
        log.push_str(&format!(
            "2026-11-30T22:{minute:02}:{second:02}.{micros:06}+00:00 host kernel: [{number:5}.{micros:06}] {text}\n"
        ));
        number += 1;
    }
    log
}

/// How long a command takes that has to succeed, and what it prints.
fn timed(mut command: Command) -> Result<(Duration, String)> {
    let start = Instant::now();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    let took = start.elapsed();
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((took, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The most memory that reading a log takes, in kB.
fn peak_kb(bench: &Bench<'_>, log: &Path) -> Result<u64> {
    let mut child = bench
        .xtask(&["parse", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start this program")?;
    let mut stdin = child.stdin.take().context("it has no standard input")?;
    io::copy(&mut File::open(log)?, &mut stdin).context("cannot hand a log to this program")?;
    // It waits for more, so it can still be looked at.
    let mut status = String::new();
    File::open(format!("/proc/{}/status", child.id()))?.read_to_string(&mut status)?;
    drop(stdin);
    let ended = child.wait_with_output()?;
    ensure!(ended.status.success(), "reading {} failed", log.display());
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .context("the kernel does not tell how much memory a process had")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::assemble::Assembler;
    use crate::log::stream;
    use crate::result::Run;

    fn runs(log: &str) -> Vec<Run> {
        let mut assembler = Assembler::default();
        stream::messages(log.as_bytes(), |message| assembler.take(message)).unwrap();
        assembler.finish().runs
    }

    #[test]
    fn a_renumbered_run_differs_in_its_id_only() {
        let captured = include_str!("../../../../tests/logs/dmesg-article.log");
        let [renumbered] = &runs(&renumbered(captured, 0xabc))[..] else {
            panic!("one run was expected");
        };
        let mut expected = runs(captured).remove(0);
        expected.run.id = 0xabc;
        assert!(renumbered.complete, "{:?}", renumbered.warnings);
        assert_eq!(*renumbered, expected);
    }

    #[test]
    fn other_lines_are_others() {
        let others = foreign(100_000);
        assert!((100_000..101_000).contains(&others.len()));
        assert!(!others.contains("messung"));
        assert_eq!(runs(&others), []);
    }
}
