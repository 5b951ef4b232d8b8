// SPDX-License-Identifier: GPL-2.0

//! `run`, typed at a PC.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::bench::Bench;
use super::pc::{self, AtPc, Start};
use crate::vm::session::Session;

/// What a short run may take.
const MEASURED: Duration = Duration::from_secs(120);

/// A plan that takes minutes, after a row that takes none.
const LONG: &str = "'udelay:15us*10,msleep:50ms*5000'";

/// What there is to see of a run: the module, processes, files that are newer than the mark but for those that it was asked for.
const TRACES: &str = "grep ^messung /proc/modules; pidof xtask; \
    sudo find / -xdev -newer mark -type f -not -name result.json -not -path '/var/log/*' -not -path '/proc/*' -not -path '/sys/*'; \
    sudo find /tmp /var/tmp /dev/shm -newer mark";

/// The checks of this file.
pub fn checks() -> Vec<AtPc> {
    let at = |start, name: &str, look| pc::at(start, format!("run: {name}"), look);
    const PLAIN: Start = Start::Told("");
    vec![
        at(PLAIN, "measures, reports and leaves nothing", measures),
        at(PLAIN, "Ctrl-C ends it with what there is", interrupted),
        at(PLAIN, "it ends when it is killed", killed),
        at(PLAIN, "says what a flood took away", flooded),
        at(PLAIN, "refused at once while another one measures", refused),
        at(PLAIN, "a module for another kernel is refused", misfits),
        at(
            PLAIN,
            "without privileges it says what to type",
            unprivileged,
        ),
        at(
            Start::Told("loglevel=1"),
            "a silent console loses nothing",
            |_, pc| whole(pc, ""),
        ),
        at(
            Start::Told("lockdown=integrity"),
            "lockdown is explained",
            locked,
        ),
    ]
}

/// A short run through sudo, complete.
pub fn whole(pc: &mut Session<'_>, options: &str) -> Result<String> {
    let line = format!("./xtask run --sudo --module messung.ko --plan quick {options}");
    let answer = pc
        .run_within(&line, MEASURED)?
        .exits(0)?
        .says("the plan takes about ")?
        .says("[8/8] fsleep 50 us: shortest: ")?
        .says("plan        quick, ")?;
    ensure!(
        !answer.text.contains("INCOMPLETE"),
        "it is not complete: {answer}"
    );
    Ok(String::new())
}

fn measures(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    // sudo notes that it was used for the first time.
    pc.run("sudo true; touch mark; sleep 0.1")?.exits(0)?;
    whole(pc, "--json result.json")?;
    pc.run("cat result.json")?
        .exits(0)?
        .says("\"kind\": \"host\"")?
        .says("\"complete\": true")?;
    pc.run("./xtask report result.json")?.exits(0)?;
    let traces = pc.run(TRACES)?;
    ensure!(traces.text.is_empty(), "left behind: {traces}");
    Ok(String::new())
}

fn interrupted(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.type_line(&format!(
        "./xtask run --sudo --module messung.ko --plan {LONG}"
    ))?;
    pc.wait_for("[1/2] udelay 15 us: ", MEASURED)?;
    // Let some samples of the next row be taken.
    thread::sleep(Duration::from_secs(2));
    let answer = pc
        .interrupt()?
        .exits(130)?
        .says("[2/2] msleep 50 ms: ")?
        .says("INCOMPLETE")?
        .says("interrupted: the report has what was measured until then")?;
    ensure!(answer.text.contains(" of 5000"), "no part of it: {answer}");
    gone(pc)
}

/// Requires that nothing measures any more.
fn gone(pc: &mut Session<'_>) -> Result<String> {
    let answer = pc.run("grep ^messung /proc/modules || pidof xtask insmod")?;
    ensure!(answer.status != 0, "it goes on: {answer}");
    Ok(String::new())
}

fn killed(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    // Job control would name it; this is only about what stays.
    pc.run(&format!(
        "./xtask run --sudo --module messung.ko --plan {LONG} >out 2>&1 & sleep 3; cat out"
    ))?
    .says("[1/2] udelay 15 us: ")?;
    pc.run("kill -KILL $!; sleep 1")?.exits(0)?;
    gone(pc)?;
    pc.run("sudo dmesg")?
        .exits(0)?
        .says("messung: interrupted: ")?;
    Ok(String::new())
}

/// Whoever reads the log stands still, as on a machine that has no time for it, until the kernel has overwritten the second row.
fn flooded(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    // A frozen process looks to sudo, which watches it, as one that has no time.
    pc.run(
        "./xtask run --sudo --module messung.ko --plan 'udelay:15us*10,msleep:50ms*60' --json flooded.json >out 2>&1 & sleep 2; \
         sudo sh -c 'cd /sys/fs/cgroup; mkdir still; pgrep -o -u root -x xtask >still/cgroup.procs; echo 1 >still/cgroup.freeze; sleep 4; \
         i=0; while [ $i -lt 400 ]; do printf somebody:%700s >/dev/kmsg; i=$((i + 1)); done; echo 0 >still/cgroup.freeze'; wait $!",
    )?
    .exits(1)?;
    let answer = pc
        .run("cat out; rm out; sudo rmdir /sys/fs/cgroup/still")?
        .exits(0)?
        .says("[1/2] udelay 15 us: ")?
        .says("INCOMPLETE")?;
    ensure!(
        answer
            .text
            .contains(" messages of the kernel were overwritten before they could be read")
            && !answer.text.contains("[2/2]"),
        "the second row was to be lost: {answer}"
    );
    pc.run("cat flooded.json; rm flooded.json")?
        .exits(0)?
        .says("\"complete\": false")?;
    gone(pc)
}

fn refused(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    let run = "./xtask run --sudo --module messung.ko --plan quick";
    pc.run(&format!("sudo insmod messung.ko plan={LONG} & sleep 1"))?;
    pc.run_within(run, Duration::from_secs(10))?
        .exits(1)?
        .says("another messung is being inserted right now")?;
    pc.run("sudo pkill insmod; wait; sleep 1")?;
    gone(pc)?;

    let both = pc.run_within(
        &format!("{run} >one 2>&1 & {run} >two 2>&1; echo $?; wait $!; echo $?; tail -n 1 one two"),
        MEASURED,
    )?;
    let ends: Vec<_> = both.text.lines().filter(|line| line.len() == 1).collect();
    ensure!(
        ends == ["0", "1"] || ends == ["1", "0"],
        "one of them was to be refused: {both}"
    );
    both.says("would measure each other")?;
    gone(pc)
}

fn misfits(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    let with = |from: &str, to: &str| {
        format!(
            "sed 's/\\(vermagic=.*\\){from}/\\1{to}/' messung.ko >other.ko; \
             ./xtask run --sudo --module other.ko --plan quick"
        )
    };
    pc.run(&with("amd64 SMP", "amd65 SMP"))?
        .exits(1)?
        .says("was built for Linux 7.")?
        .says("amd65, and 7.")?;
    // Beyond the release only the kernel knows.
    pc.run(&with("SMP preempt", "SMP prxxmpt"))?
        .exits(1)?
        .says("Exec format error")?
        .says("was built for another kernel")?
        .says("version magic")?;
    Ok(String::new())
}

fn unprivileged(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.run("./xtask run --module messung.ko --plan quick")?
        .exits(1)?
        .says("add --sudo")?
        .says("sudo insmod /home/user/messung-")?;
    pc.run("./xtask run --sudo=doas --module messung.ko")?
        .exits(1)?
        .says("doas, which is not installed")?;
    Ok(String::new())
}

fn locked(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.run("./xtask run --sudo --module messung.ko")?
        .exits(1)?
        .says("lockdown=integrity")?
        .says("Secure Boot is off")?;
    Ok(String::new())
}
