// SPDX-License-Identifier: GPL-2.0

//! `vm` as a user meets it, with a fake QEMU that replays what a real guest wrote, or misbehaves.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// Finds its two serial files among its arguments, leaves its process id, and does what `FAKE` says.
const QEMU: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then
    echo 'QEMU emulator version 10.0.13 (fake)'
    exit
fi
for word; do
    case $word in
    file:*) if [ -z "$console" ]; then console=${word#file:}; else handover=${word#file:}; fi ;;
    esac
done
echo $$ >"$FOLDER/pid"
boot() { head -n 300 "$GUEST/console.log" >"$console"; }
all() { cat "$GUEST/console.log" >"$console"; }
case $FAKE in
good) all; cat "$GUEST/handover.log" >"$handover" ;;
panic) boot; echo '[    1.5] Kernel panic - not syncing: Attempted to kill init!' >>"$console" ;;
oops) boot; echo '[    1.5] Oops: 0002 [#1] SMP' >>"$console"; sleep 1000 ;;
hang) boot; sleep 1000 ;;
meet)
    boot
    mkdir -p "$FOLDER/met/$$"
    for _ in $(seq 200); do
        case $(echo "$FOLDER"/met/*) in *' '*) all; cat "$GUEST/handover.log" >"$handover"; exit ;; esac
        sleep 0.1
    done
    exit 1
    ;;
stay) all; cat "$GUEST/handover.log" >"$handover"; sleep 1000 ;;
silent) all ;;
flipped) all; sed '20s/stddev_ns/stddeV_ns/' "$GUEST/handover.log" >"$handover" ;;
hole) all; sed 20d "$GUEST/handover.log" >"$handover" ;;
cut) all; head -c 20000 "$GUEST/handover.log" >"$handover" ;;
refuse) echo 'qemu: no such machine' >&2; exit 1 ;;
die) all; cat "$GUEST/handover.log" >"$handover"; kill -ABRT $$ ;;
stuck) echo 'KVM internal error. Suberror: 1' >&2; sleep 1000 ;;
esac
"#;

/// A cache with a kernel that nobody looks at, and the fake QEMU in the path.
struct Place {
    folder: TempDir,
    fake: &'static str,
}

struct Outcome {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Place {
    fn new(fake: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            path
        };
        let release = "7.3.4+deb13-amd64";
        put(
            "cache/messung/rows/amd64.json",
            &format!("{{\"release\": \"{release}\"}}"),
        );
        put(
            &format!("cache/messung/kernels/{release}/info.json"),
            &format!(
                "{{\"release\": \"{release}\", \"series\": \"7.3\", \"suite\": \"a-suite\", \"version\": \"1\", \
                 \"rustc\": \"rustc 1.85.1\", \"mirror\": \"a-mirror\", \"tree\": \"a-tree\"}}"
            ),
        );
        put(&format!("cache/messung/kernels/{release}/vmlinuz"), "");
        put(&format!("cache/messung/modules/{release}/messung.ko"), "");
        put("cache/messung/guest/x86_64-unknown-linux-gnu/xtask", "");
        let qemu = put("bin/qemu-system-x86_64", QEMU);
        fs::set_permissions(qemu, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, fake }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.xtask("vm");
        command.args(arguments);
        command
    }

    fn xtask(&self, subcommand: &str) -> Command {
        let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/guest");
        let path = std::env::var("PATH").unwrap_or_default();
        let work = self.path("work");
        fs::create_dir_all(&work).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .arg(subcommand)
            .env("MESSUNG_BUILD_ROOT", "host")
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("TMPDIR", work)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("FAKE", self.fake)
            .env("FOLDER", self.folder.path())
            .env("GUEST", guest)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let output = self.command(arguments).output().unwrap();
        Outcome {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The fake QEMU's process, once it has started.
    fn qemu(&self) -> Option<Pid> {
        Pid::from_raw(
            fs::read_to_string(self.path("pid"))
                .ok()?
                .trim()
                .parse()
                .ok()?,
        )
    }

    /// Nothing runs on, and nothing is left in the temporary folder.
    fn assert_clean(&self) {
        let qemu = self.qemu().expect("QEMU was started");
        assert!(
            eventually(|| test_kill_process(qemu).is_err()),
            "QEMU still runs"
        );
        let left: Vec<_> = fs::read_dir(self.path("work")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if condition() {
            return true;
        }
        sleep(Duration::from_millis(20));
    }
    false
}

/// Runs a fake to its end, and checks status and message.
fn check(fake: &'static str, arguments: &[&str], status: i32, message: &str) {
    let place = Place::new(fake);
    let outcome = place.run(arguments);
    assert_eq!(outcome.status, Some(status), "{fake}: {}", outcome.stderr);
    assert!(
        outcome.stderr.contains(message),
        "{fake}: {}",
        outcome.stderr
    );
    assert!(
        outcome.stdout.is_empty(),
        "{fake} has no result: {}",
        outcome.stdout
    );
    place.assert_clean();
}

#[test]
fn a_good_run_is_reported_and_kept() {
    let place = Place::new("good");
    let (json, kept) = (place.path("a.json"), place.path("kept"));
    let outcome = place.run(&[
        "--json",
        json.to_str().unwrap(),
        "--output",
        kept.to_str().unwrap(),
    ]);
    assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("msleep           110 ms"),
        "{}",
        outcome.stdout
    );
    let result = fs::read_to_string(&json).unwrap();
    for part in [
        "\"kind\": \"vm\"",
        "\"virtual_time\": true",
        "\"accelerator\": \"tcg\"",
        "\"qemu_version\": \"10.0.13\"",
        "\"complete\": true",
    ] {
        assert!(result.contains(part), "{part} is missing in {result}");
    }
    assert_eq!(
        fs::read_to_string(kept.join("result.json")).unwrap(),
        result
    );
    let log = fs::read_to_string(kept.join("kernel.log")).unwrap();
    assert!(log.contains("] messung: [14/14] msleep 110 ms"), "{log}");
    let commands = fs::read_to_string(kept.join("commands.txt")).unwrap();
    assert!(commands.contains("-icount shift=2,sleep=off"), "{commands}");
    assert!(kept.join("console.log").exists());
    place.assert_clean();
}

#[test]
fn a_panic_is_a_crash() {
    check("panic", &[], 4, "Attempted to kill init!");
}

#[test]
fn an_oops_is_a_crash_though_the_guest_goes_on() {
    check("oops", &["--slow-factor", "0.1"], 4, "Oops: 0002");
}

#[test]
fn a_hang_times_out_and_names_its_phase() {
    check(
        "hang",
        &["--slow-factor", "0.01"],
        5,
        "the guest was booting for more than",
    );
}

#[test]
fn a_guest_without_a_result_has_not_measured() {
    check("silent", &[], 1, "handed nothing over");
}

#[test]
fn a_flipped_byte_is_noticed() {
    check("flipped", &[], 1, "frame 19 fails its checksum");
}

#[test]
fn a_missing_frame_is_noticed() {
    check("hole", &[], 1, "frame 19 is missing");
}

#[test]
fn a_cut_handover_is_noticed() {
    check("cut", &[], 1, "fails its checksum");
}

#[test]
fn qemu_that_refuses_is_quoted() {
    check("refuse", &[], 1, "no such machine");
}

#[test]
fn qemu_that_dies_has_not_measured() {
    check("die", &[], 1, "killed by signal 6");
}

#[test]
fn qemu_that_cannot_go_on_is_not_waited_for() {
    check("stuck", &[], 1, "KVM internal error");
}

#[test]
fn a_guest_that_does_not_power_off_has_measured_all_the_same() {
    let place = Place::new("stay");
    let outcome = place.run(&["--slow-factor", "0.03"]);
    assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("did not power off"),
        "{}",
        outcome.stderr
    );
    place.assert_clean();
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let place = Place::new("hang");
    let json = place.path("a.json");
    let mut child = place
        .command(&["--json", json.to_str().unwrap()])
        .process_group(0)
        .spawn()
        .unwrap();
    assert!(eventually(|| place.qemu().is_some()), "QEMU did not start");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(!json.exists());
    place.assert_clean();
}

#[test]
fn two_measure_at_the_same_time() {
    let place = Place::new("meet");
    let both = [(); 2].map(|()| place.command(&[]).spawn().unwrap());
    for child in both {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
    }
    place.assert_clean();
}

#[test]
fn what_a_guest_runs_from_is_not_cleaned_away() {
    let place = Place::new("hang");
    let mut vm = place.command(&[]).spawn().unwrap();
    assert!(eventually(|| place.qemu().is_some()), "QEMU did not start");
    let told = place.path("clean.log");
    let mut clean = place
        .xtask("clean")
        .stderr(fs::File::create(&told).unwrap())
        .spawn()
        .unwrap();
    let waits = || {
        fs::read_to_string(&told)
            .unwrap()
            .contains("another messung is using")
    };
    assert!(eventually(waits), "clean does not wait");
    let rows = place.path("cache/messung/rows");
    assert!(rows.exists());
    kill_process(Pid::from_child(&vm), Signal::INT).unwrap();
    assert_eq!(vm.wait().unwrap().code(), Some(130));
    assert_eq!(clean.wait().unwrap().code(), Some(0));
    assert!(!rows.exists());
    place.assert_clean();
}

#[test]
fn wrong_usage_is_judged_from_the_arguments_alone() {
    for arguments in [
        &["--iterations", "0"][..],
        &["--iterations", "1000001"],
        &["--kernel", "amiga"],
        &["--plan", "nonsense"],
        &["--cpus", "2"],
        &["--real-time", "--virtual-time"],
        &["--accel", "kvm", "--virtual-time"],
        &["--accel", "xen"],
        &["--slow-factor", "0"],
        &["--append", &"x".repeat(3000)],
    ] {
        let place = Place::new("good");
        let outcome = place.run(arguments);
        assert_eq!(outcome.status, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(place.qemu().is_none(), "{arguments:?} started QEMU");
    }
}
