// SPDX-License-Identifier: GPL-2.0

//! `parse` and `report` as a user meets them: what they print where, and how they exit.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The path of a log in tests/logs.
fn log(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/logs")
        .join(name)
        .display()
        .to_string()
}

struct Outcome {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn outcome(output: Output) -> Outcome {
    Outcome {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(arguments: &[&str]) -> Outcome {
    outcome(xtask(arguments).output().unwrap())
}

/// Rows of the table: lines that begin with a number.
fn rows(report: &str) -> usize {
    report
        .lines()
        .filter(|line| {
            line.split_whitespace()
                .next()
                .is_some_and(|word| word.parse::<u32>().is_ok())
        })
        .count()
}

#[test]
fn a_complete_run_is_reported_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("a.json").display().to_string();
    let parsed = run(&[
        "parse",
        &log("synthetic-foreign-lines.log"),
        "--json",
        &json,
    ]);
    assert_eq!(parsed.status, Some(0), "{}", parsed.stderr);
    assert_eq!(rows(&parsed.stdout), 3, "{}", parsed.stdout);
    assert_eq!(parsed.stderr, "");
    let reported = run(&["report", &json]);
    assert_eq!(reported.status, Some(0));
    assert_eq!(reported.stdout, parsed.stdout);
}

#[test]
fn the_standard_input_is_a_log_too() {
    let mut command = xtask(&["parse", "-"]);
    command.stdin(fs::File::open(log("serial.txt")).unwrap());
    let parsed = outcome(command.output().unwrap());
    assert_eq!(parsed.status, Some(0));
    assert_eq!(rows(&parsed.stdout), 3);
}

#[test]
fn several_runs_are_listed_and_one_can_be_chosen() {
    let two = log("synthetic-two-runs-interleaved.log");
    let all = run(&["parse", &two]);
    assert_eq!(all.status, Some(0));
    assert_eq!(rows(&all.stdout), 6);
    assert!(
        all.stderr.contains("the log holds 2 runs"),
        "{}",
        all.stderr
    );
    for choice in ["8", "last"] {
        let one = run(&["parse", &two, "--run", choice]);
        assert_eq!(rows(&one.stdout), 3);
        assert!(one.stdout.contains("run         8,"), "{}", one.stdout);
    }
    let absent = run(&["parse", &two, "--run", "9"]);
    assert_eq!(absent.status, Some(1));
    assert!(
        absent
            .stderr
            .contains("the log holds no run 9; it holds 7, 8"),
        "{}",
        absent.stderr
    );
    assert_eq!(run(&["parse", &two, "--run", "first"]).status, Some(2));
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("a.json").display().to_string();
    let saved = run(&["parse", &two, "--json", &json]);
    assert_eq!(saved.status, Some(1));
    assert!(
        saved.stderr.contains("choose one with --run"),
        "{}",
        saved.stderr
    );
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_log_in_two_files_is_one_log() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(log("dmesg-two-runs.log")).unwrap();
    let middle = whole.len() / 4
        + whole[whole.len() / 4..]
            .iter()
            .position(|&b| b == b'\n')
            .unwrap()
        + 1;
    let parts: Vec<_> = [&whole[..middle], &whole[middle..]]
        .into_iter()
        .enumerate()
        .map(|(number, part)| {
            let path = folder.path().join(number.to_string());
            fs::write(&path, part).unwrap();
            path.display().to_string()
        })
        .collect();
    let parsed = run(&["parse", &parts[0], &parts[1]]);
    assert_eq!(parsed.status, Some(0), "{}", parsed.stderr);
    assert_eq!(rows(&parsed.stdout), 6);
}

/// After this time it is clear that nothing comes any more.
const HANGS: Duration = Duration::from_secs(60);

/// A `parse --follow` at work.
struct Following {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Following {
    fn of(arguments: &[&str], stdin: Stdio) -> Self {
        let mut child = xtask(&[&["parse", "--follow"], arguments].concat())
            .stdin(stdin)
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// Waits for the next row, and gives its place.
    fn row(&mut self) -> String {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec {
            tv_sec: HANGS.as_secs().try_into().unwrap(),
            tv_nsec: 0,
        };
        if !self.stderr.buffer().contains(&b'\n') {
            let mut fds = [PollFd::new(self.stderr.get_ref(), PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no row comes");
        }
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.split(' ').next().unwrap().to_owned()
    }

    fn interrupt(&self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    }

    fn end(mut self) -> Outcome {
        let mut outcome = Outcome {
            status: None,
            stdout: String::new(),
            stderr: String::new(),
        };
        let stdout = self.child.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut outcome.stdout).unwrap();
        self.stderr.read_to_string(&mut outcome.stderr).unwrap();
        outcome.status = self.child.wait().unwrap().code();
        outcome
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A log in two parts, each of which ends within a row's records.
fn halves(name: &str, mark: &str) -> (Vec<u8>, Vec<u8>) {
    let text = fs::read_to_string(log(name)).unwrap();
    let at = text.find(mark).unwrap();
    let (first, second) = text.split_at(at);
    (first.into(), second.into())
}

#[test]
fn rows_of_a_pipe_are_shown_as_they_come() {
    let mut following = Following::of(&["-"], Stdio::piped());
    let mut stdin = following.child.stdin.take().unwrap();
    let (first, second) = halves("dmesg-two-runs.log", "[2/3]");
    stdin.write_all(&first).unwrap();
    // The rest is not there yet.
    assert_eq!(following.row(), "[1/3]");
    stdin.write_all(&second).unwrap();
    let places: Vec<_> = (0..5).map(|_| following.row()).collect();
    assert_eq!(places, ["[2/3]", "[3/3]", "[1/3]", "[2/3]", "[3/3]"]);
    drop(stdin);
    let ended = following.end();
    assert_eq!(ended.status, Some(0));
    assert_eq!(
        ended.stdout,
        run(&["parse", &log("dmesg-two-runs.log")]).stdout
    );
}

#[test]
fn a_file_is_followed_through_rotation_until_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kern.log");
    let (first, second) = halves("kern.log", "[2/3]");
    let (second, third) = {
        let at = second.len() / 2;
        (second[..at].to_vec(), second[at..].to_vec())
    };
    for copied in [false, true] {
        fs::write(&path, &first).unwrap();
        let mut following = Following::of(&[&path.display().to_string()], Stdio::null());
        assert_eq!(following.row(), "[1/3]");
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&second).unwrap();
        assert_eq!(following.row(), "[2/3]");
        if copied {
            // A line that was cut in two by the rotation would be lost in any log.
            file.write_all(&third[..third.len() / 2]).unwrap();
            wait_until_read(&following.child, &file);
            file.set_len(0).unwrap();
            file.write_all(&third).unwrap();
        } else {
            fs::rename(&path, folder.path().join("kern.log.1")).unwrap();
            // The daemon does not know yet.
            file.write_all(&third[..third.len() / 2]).unwrap();
            fs::write(&path, &third).unwrap();
        }
        assert_eq!(following.row(), "[3/3]", "{copied}");
        wait_until_read(&following.child, &fs::File::open(&path).unwrap());
        following.interrupt();
        let ended = following.end();
        assert_eq!(ended.status, Some(0), "{}", ended.stdout);
        assert_eq!(ended.stdout, run(&["parse", &log("kern.log")]).stdout);
    }
}

/// Waits until a process has read a file to its end.
fn wait_until_read(child: &Child, file: &fs::File) {
    use std::os::unix::fs::MetadataExt as _;
    let file = file.metadata().unwrap();
    let folder = PathBuf::from(format!("/proc/{}", child.id()));
    let begin = Instant::now();
    while begin.elapsed() < HANGS {
        let position = folder
            .join("fd")
            .read_dir()
            .unwrap()
            .flatten()
            .find_map(|entry| {
                let open = fs::metadata(entry.path()).ok()?;
                if (open.dev(), open.ino()) != (file.dev(), file.ino()) {
                    return None;
                }
                let info =
                    fs::read_to_string(folder.join("fdinfo").join(entry.file_name())).ok()?;
                let position = info.lines().find_map(|line| line.strip_prefix("pos:"))?;
                position.trim().parse::<u64>().ok()
            });
        if position == Some(file.len()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the log is not read to its end");
}

#[test]
fn what_was_followed_decides_the_status() {
    let (first, _) = halves("kern.log", "[3/3]");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kern.log").display().to_string();
    fs::write(&path, first).unwrap();
    let mut following = Following::of(&[&log("dmesg-two-runs.log"), &path], Stdio::null());
    let places: Vec<_> = (0..8).map(|_| following.row()).collect();
    assert_eq!(places[6..], ["[1/3]", "[2/3]"]);
    following.interrupt();
    let ended = following.end();
    assert_eq!(ended.status, Some(1));
    assert_eq!(rows(&ended.stdout), 3 + 3 + 2, "{}", ended.stdout);
    let ended = Following::of(&["-"], Stdio::null()).end();
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(1), ""));
    for arguments in [["--run", "last"], ["--json", "a.json"]] {
        let refused = Following::of(&[&arguments[..], &["-"]].concat(), Stdio::null());
        assert_eq!(refused.end().status, Some(2));
    }
}

#[test]
fn packed_logs_are_read_whatever_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let plain = run(&["parse", &log("kern.log")]);
    for name in ["kern.log.2.gz", "kern.log.2.xz"] {
        let renamed = folder.path().join("kern.log");
        fs::copy(log(name), &renamed).unwrap();
        let parsed = run(&["parse", &renamed.display().to_string()]);
        assert_eq!((parsed.status, parsed.stderr.as_str()), (Some(0), ""));
        assert_eq!(parsed.stdout, plain.stdout, "{name}");
        let mut command = xtask(&["parse", "-"]);
        command.stdin(fs::File::open(log(name)).unwrap());
        assert_eq!(outcome(command.output().unwrap()).stdout, plain.stdout);
    }
}

#[test]
fn of_a_cut_packed_log_what_is_there_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut").display().to_string();
    for (name, share) in [("kern.log.2.gz", 90), ("kern.log.2.xz", 60)] {
        let whole = fs::read(log(name)).unwrap();
        fs::write(&cut, &whole[..whole.len() * share / 100]).unwrap();
        let parsed = run(&["parse", &cut]);
        assert_eq!(parsed.status, Some(1), "{name}");
        assert!(
            parsed.stderr.contains("is cut or damaged"),
            "{name}: {}",
            parsed.stderr
        );
        if name.ends_with("gz") {
            assert!(parsed.stdout.contains("INCOMPLETE"), "{}", parsed.stdout);
            assert!(rows(&parsed.stdout) > 0, "{}", parsed.stdout);
        }
    }
    // What has its last byte damaged has all of its runs.
    let mut whole = fs::read(log("kern.log.2.gz")).unwrap();
    *whole.last_mut().unwrap() ^= 1;
    fs::write(&cut, &whole).unwrap();
    let parsed = run(&["parse", &cut]);
    assert_eq!(parsed.status, Some(0), "{}", parsed.stderr);
    assert!(parsed.stderr.contains("warning: "), "{}", parsed.stderr);
    fs::write(&cut, b"\x28\xb5\x2f\xfd").unwrap();
    let refused = run(&["parse", &cut]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.stderr.contains("zstdcat"), "{}", refused.stderr);
}

#[test]
fn an_incomplete_run_shows_its_rows_and_fails() {
    for (name, count, part) in [
        ("synthetic-cut.log", 1, "the log ends before this run does"),
        ("synthetic-dropped.log", 2, "the log lost records 2 and 7"),
        ("synthetic-damaged.log", 2, "arrived damaged"),
        ("dmesg-killed.log", 7, "interrupted"),
        ("dmesg-level-info.txt", 3, "lines for people only"),
    ] {
        let parsed = run(&["parse", &log(name)]);
        assert_eq!(parsed.status, Some(1), "{name}");
        assert_eq!(rows(&parsed.stdout), count, "{name}: {}", parsed.stdout);
        assert!(
            parsed.stdout.contains("INCOMPLETE"),
            "{name}: {}",
            parsed.stdout
        );
        assert!(parsed.stdout.contains(part), "{name}: {}", parsed.stdout);
        assert!(
            parsed.stderr.contains("error: "),
            "{name}: {}",
            parsed.stderr
        );
        assert!(
            parsed.stderr.contains("is not complete"),
            "{name}: {}",
            parsed.stderr
        );
    }
}

#[test]
fn no_run_is_a_failure() {
    for name in ["synthetic-empty.log", "synthetic-garbage.log"] {
        let parsed = run(&["parse", &log(name)]);
        assert_eq!(parsed.status, Some(1), "{name}");
        assert_eq!(parsed.stdout, "", "{name}");
        assert!(
            parsed.stderr.contains("no run of messung"),
            "{name}: {}",
            parsed.stderr
        );
    }
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let complete = log("serial.txt");
    for (arguments, status, part) in [
        (
            &["parse", "/nonexistent/kern.log"][..],
            1,
            "/nonexistent/kern.log",
        ),
        (&["parse", "/"], 1, "cannot read the log /"),
        (
            &["parse", &complete, "--json", "/nonexistent/a.json"],
            1,
            "/nonexistent/a.json",
        ),
        (&["parse", &complete, "--json", "/"], 1, "folder"),
        (&["report", &complete], 1, "not JSON"),
        (&["parse"], 2, "FILE"),
        (&["nonsense"], 2, "nonsense"),
        (&[], 2, "Usage"),
    ] {
        let refused = run(arguments);
        assert_eq!(
            refused.status,
            Some(status),
            "{arguments:?}: {}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains(part),
            "{arguments:?}: {}",
            refused.stderr
        );
        assert_eq!(refused.stdout, "", "{arguments:?}");
    }
}

#[test]
fn results_that_are_none_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    for (text, part) in [
        ("{\"schema\": \"messung-result/2\"}", "messung-result/2"),
        ("{}", "no \"schema\""),
        (
            "{\"schema\": \"messung-result/1\"}",
            "does not follow its schema",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let refused = run(&["report", &path.display().to_string()]);
        assert_eq!(refused.status, Some(1));
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
}

#[test]
fn unknown_keys_of_a_result_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json").display().to_string();
    run(&["parse", &log("serial.txt"), "--json", &path]);
    let text = fs::read_to_string(&path).unwrap();
    let with_more = text.replacen('{', "{\n  \"weather\": \"fine\",", 1);
    fs::write(&path, with_more).unwrap();
    assert_eq!(run(&["report", &path]).status, Some(0));
}

#[test]
fn help_and_version_are_no_failures() {
    for arguments in [&["--help"][..], &["--version"], &["parse", "--help"]] {
        let help = run(arguments);
        assert_eq!(help.status, Some(0));
        assert!(!help.stdout.is_empty());
        assert_eq!(help.stderr, "");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = xtask(&["parse", &log("serial.txt")]).spawn().unwrap();
    drop(child.stdout.take());
    let finished = outcome(child.wait_with_output().unwrap());
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_hundred_megabytes_are_read_in_bounded_memory() {
    const MEGABYTE: usize = 1_000_000;
    const LIMIT_KB: u64 = 30_000;
    let other = other_log();
    let one_run = fs::read(log("synthetic-foreign-lines.log")).unwrap();
    let mut child = xtask(&["parse", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for part in 0..100 {
        assert_eq!(other.len(), MEGABYTE);
        stdin.write_all(&other).unwrap();
        if part == 50 {
            stdin.write_all(&one_run).unwrap();
        }
    }
    // It waits for more here, so its peak can be read; what is in the pipe yet is 64 KiB at most.
    let peak = peak_kb(child.id());
    drop(stdin);
    let parsed = outcome(child.wait_with_output().unwrap());
    assert_eq!(parsed.status, Some(0), "{}", parsed.stderr);
    assert_eq!(rows(&parsed.stdout), 3);
    assert!(peak < LIMIT_KB, "{peak} kB of memory");
}

/// A megabyte of a log as servers write it, and one endless line in it.
fn other_log() -> Vec<u8> {
    let mut log = vec![b'x'; 300_000];
    log.push(b'\n');
    let line = b"Nov 30 22:00:01 host kernel: [   12.345678] usb 1-1: New USB device messung found, idVendor=1d6b\n";
    while log.len() < 1_000_000 {
        log.extend_from_slice(line);
    }
    log.truncate(1_000_000);
    log
}

/// The most memory that a process had so far.
fn peak_kb(id: u32) -> u64 {
    let status = PathBuf::from(format!("/proc/{id}/status"));
    let file = BufReader::new(fs::File::open(status).unwrap());
    let line = file
        .lines()
        .map(Result::unwrap)
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
