// SPDX-License-Identifier: GPL-2.0

//! Signed modules: that ours are signed as the kernel's are, and what kernels that ask for signatures say to them.

use std::path::Path;

use anyhow::{Result, ensure};

use super::bench::Bench;
use super::harness::{Check, Need, check};
use super::pc::{self, AtPc, Start, read};
use super::run::whole;
use crate::insert::preflight::MAKE_KEY;
use crate::insert::sign::{Signer, signed_copy};
use crate::kernel::build_root::{Bind, hex};
use crate::kernel::folder::{KDIR, MOUNTED};
use crate::kernel::table::TABLE;
use crate::kernel::{self, Kernel, Options, module};
use crate::vm::secure_boot::{self, Firmware};
use crate::vm::session::Session;

const OPENSSL: Need = Need::Program(&["openssl", "version"], "the package openssl has it");

/// Signs with the key of the PC's owner, and with one that is made in the working folder.
const BY_OWNER: &str = "--sign-key ~/MOK.key --sign-cert ~/MOK.der";
const BY_STRANGER: &str = "--sign-key MOK.key --sign-cert MOK.der";

/// The checks that need no PC.
pub fn checks() -> Vec<Check> {
    vec![check(
        "sign: the kernel's own sign-file makes the same module",
        &[Need::Kernels, OPENSSL],
        same_as_sign_file,
    )]
}

/// The checks at a PC.
pub fn at_pc() -> Vec<AtPc> {
    let at = |start, name: &str, look| pc::at(start, format!("sign: {name}"), look);
    vec![
        at(Start::SecureBoot, "Secure Boot is explained", |_, pc| {
            unsigned(pc, &["lockdown=integrity", "mokutil --import"])
        }),
        at(
            Start::SecureBoot,
            "a module signed by the owner of the PC measures",
            |_, pc| whole(pc, BY_OWNER),
        ),
        at(
            Start::SecureBoot,
            "a key that the PC does not trust is explained",
            |_, pc| by_stranger(pc, &["Key was rejected", "unavailable key"]),
        ),
        at(
            Start::Told("lockdown=integrity"),
            "a key that a locked kernel does not trust is explained",
            |_, pc| by_stranger(pc, &["Operation not permitted", "Lockdown: "]),
        ),
        // What is switched on here nobody can switch off again: it is the last check at its PC.
        at(
            Start::Told("loglevel=1"),
            "a kernel that enforces signatures is explained",
            enforced,
        ),
    ]
}

/// The module as it is.
fn unsigned(pc: &mut Session<'_>, reasons: &[&str]) -> Result<String> {
    refused(pc, "", reasons)
}

/// The signature is sound, only nobody told the kernel of its key: so says the kernel.
fn by_stranger(pc: &mut Session<'_>, reasons: &[&str]) -> Result<String> {
    pc.run(MAKE_KEY)?.exits(0)?;
    let trust = "a signature by a key that it trusts";
    refused(pc, BY_STRANGER, &[&[trust], reasons].concat())
}

fn refused(pc: &mut Session<'_>, options: &str, reasons: &[&str]) -> Result<String> {
    let line = format!("./xtask run --sudo --module messung.ko --plan quick {options}");
    let answer = pc.run(&line)?.exits(1)?;
    reasons
        .iter()
        .try_fold(answer, |answer, reason| answer.says(reason))?;
    Ok(String::new())
}

fn enforced(_: &Bench<'_>, pc: &mut Session<'_>) -> Result<String> {
    pc.run("echo 1 | sudo tee /sys/module/module/parameters/sig_enforce")?
        .exits(0)?;
    unsigned(pc, &["sig_enforce=1", "Secure Boot is off"])
}

/// RSA signatures have no chance in them.
fn same_as_sign_file(bench: &Bench<'_>) -> Result<String> {
    let kernel = kernel::prepare(&bench.env, &TABLE[0], &Options::default())?;
    let built = module::build(&bench.env, &kernel)?;
    let (folder, ours) = (bench.folder()?, bench.folder()?);
    let plain = folder.join("plain.ko");
    std::fs::copy(built, &plain)?;
    in_build_root(
        bench,
        &kernel,
        &folder,
        &format!(
            "{MAKE_KEY} && {KDIR}/scripts/sign-file sha512 MOK.key MOK.der plain.ko signed.ko"
        ),
    )?;
    let signer = Signer {
        key: &folder.join("MOK.key"),
        certificate: &folder.join("MOK.der"),
    };
    let ours = read(&signed_copy(&bench.env, &plain, signer, &ours)?)?;
    let theirs = read(&folder.join("signed.ko"))?;
    let length = read(&plain)?.len();
    ensure!(theirs.len() > length, "sign-file added nothing");
    ensure!(
        ours == theirs,
        "behind the module sign-file has {}, and we have {}",
        hex(&theirs[length..]),
        hex(&ours[length..]),
    );
    Ok(format!("{} bytes", theirs.len() - length))
}

/// Runs a line of the shell with the kernel's tools, in a folder.
fn in_build_root(bench: &Bench<'_>, kernel: &Kernel, folder: &Path, line: &str) -> Result<()> {
    let binds = [Bind::new(folder, "/out"), Bind::new(&kernel.path, MOUNTED)];
    let mut command = kernel.tree.command(&binds, "sh");
    command.args(["-c", &format!("cd /out && {line}")]);
    bench.succeed(command).map(drop)
}

/// Who has let a PC's firmware trust a key.
pub struct Owner {
    /// The key.
    pub key: Vec<u8>,
    /// Its certificate.
    pub certificate: Vec<u8>,
    /// The firmware, which boots just that kernel.
    pub firmware: Firmware,
}

impl Owner {
    /// An owner with a key of his own, of a PC with that kernel.
    ///
    /// # Errors
    ///
    /// The key cannot be made, or the firmware is not to be had.
    pub fn new(bench: &Bench<'_>, kernel: &Kernel) -> Result<Self> {
        let folder = bench.folder()?;
        in_build_root(bench, kernel, &folder, MAKE_KEY)?;
        let certificate = read(&folder.join("MOK.der"))?;
        let firmware =
            secure_boot::ensure(&bench.env, &kernel.cache, &kernel.vmlinuz(), &certificate)?;
        Ok(Self {
            key: read(&folder.join("MOK.key"))?,
            certificate,
            firmware,
        })
    }
}
