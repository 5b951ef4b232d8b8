// SPDX-License-Identifier: GPL-2.0

//! Starts guests: everything that a boot needs, put together.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::initramfs;
use super::machine::{self, Files, Machine, Time};
use super::supervisor::{Folder, Limits, Outcome, supervise};
use crate::guest::{Orders, Task};
use crate::kernel::build_root::{Bind, Tree};
use crate::kernel::module::{self, Fault, Program};
use crate::kernel::table::Row;
use crate::kernel::{self, Kernel};
use crate::process::Env;

/// Where QEMU in the build root sees the guest's folder.
pub(super) const FOLDER: &str = "/vm";

/// Where QEMU in the build root sees the kernel's folder.
pub(super) const KERNEL: &str = "/kernel";

/// How long QEMU may take to tell its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(30);

/// What guests of one kernel that measure are made of.
pub struct Ready {
    /// The kernel.
    pub kernel: Kernel,
    /// The module for it.
    pub module: PathBuf,
    /// The static xtask.
    pub init: PathBuf,
}

/// Makes all of that ready; in the module a fault is planted, where one is named.
///
/// # Errors
///
/// See [`kernel::ready`], [`module::build`] and [`module::program`].
pub fn ready(
    env: &Env<'_>,
    row: &'static Row,
    options: &kernel::Options,
    fault: Option<Fault>,
) -> Result<Ready> {
    let (kernel, (module, init)) = kernel::ready(env, row, options, |kernel| {
        Ok((
            module::build_with(env, kernel, fault)?,
            module::program(env, kernel, Program::Guest)?,
        ))
    })?;
    Ok(Ready {
        kernel,
        module,
        init,
    })
}

/// Boots guests of one kernel.
pub struct Launcher<'a> {
    env: Env<'a>,
    kernel: &'a Kernel,
    machine: &'static Machine,
    /// The static xtask.
    init: Vec<u8>,
}

/// A guest to boot.
pub struct Guest<'a> {
    /// What passes time in it.
    pub time: Time,
    /// What it is to do.
    pub task: Task,
    /// The module, if its task needs one.
    pub module: Option<&'a Path>,
    /// What the user adds to the kernel's command line.
    pub append: &'a str,
    /// How long it may take.
    pub limits: Limits,
}

impl<'a> Launcher<'a> {
    /// Boots `kernel`, with the static xtask at `init`.
    ///
    /// # Errors
    ///
    /// There is no such machine, or init cannot be read.
    pub fn new(env: Env<'a>, kernel: &'a Kernel, init: &Path) -> Result<Self> {
        Ok(Self {
            env,
            kernel,
            machine: machine::find(kernel.row.machine)?,
            init: fs::read(init).with_context(|| format!("cannot read {}", init.display()))?,
        })
    }

    /// What events, interrupts and deadlines go by.
    pub fn env(&self) -> Env<'a> {
        self.env
    }

    /// The machine that it boots on.
    pub fn machine(&self) -> &'static Machine {
        self.machine
    }

    /// QEMU's version, such as `10.0.13`.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or says something else.
    pub fn qemu_version(&self) -> Result<String> {
        let mut command = self.kernel.tree.command(&[], self.machine.qemu);
        command.arg("--version");
        let text = self.env.output(
            command,
            "asking QEMU for its version",
            Some(VERSION_DEADLINE),
        )?;
        version(&text)
            .with_context(|| format!("{} does not tell its version: {text:?}", self.machine.qemu))
    }

    /// Boots a guest and watches it to its end. Its files stay in `folder`.
    ///
    /// # Errors
    ///
    /// See [`supervise`].
    pub fn boot(&self, folder: &Folder, guest: Guest<'_>) -> Result<Outcome> {
        let Guest {
            time,
            task,
            module,
            append,
            limits,
        } = guest;
        let orders = Orders {
            task,
            line: self.machine.handover.to_owned(),
        };
        let module = module
            .map(|path| fs::read(path).with_context(|| format!("cannot read {}", path.display())))
            .transpose()?;
        let initramfs = initramfs::build(&self.init, module.as_deref(), &orders)?;
        fs::write(folder.initramfs(), initramfs)
            .with_context(|| format!("cannot write {}", folder.initramfs().display()))?;

        let binds = [
            Bind::new(folder.path(), FOLDER),
            Bind::new(&self.kernel.path, KERNEL),
        ];
        let device_tree = self
            .machine
            .device_tree
            .map(|name| seen(&self.kernel.device_tree(name), &binds));
        let arguments = self.machine.arguments(
            time,
            Files {
                vmlinuz: &seen(&self.kernel.vmlinuz(), &binds),
                initramfs: &seen(&folder.initramfs(), &binds),
                console: &seen(&folder.console(), &binds),
                handover: &seen(&folder.handover(), &binds),
                device_tree: device_tree.as_deref(),
            },
            append,
        )?;
        let mut command = self.kernel.tree.command(&binds, self.machine.qemu);
        command.args(arguments);
        supervise(self.env, command, folder, limits, self.machine)
    }
}

/// A path of the host as QEMU sees it.
pub(super) fn seen(path: &Path, binds: &[Bind]) -> PathBuf {
    if Tree::is_overridden() {
        return path.to_owned();
    }
    inside(path, binds)
}

fn inside(path: &Path, binds: &[Bind]) -> PathBuf {
    binds
        .iter()
        .find_map(|bind| Some(bind.to.join(path.strip_prefix(&bind.from).ok()?)))
        .unwrap_or_else(|| path.to_owned())
}

/// The version in `QEMU emulator version 10.0.13 (Debian …)`.
fn version(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("version ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_tells_its_version() {
        let text = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright\n";
        assert_eq!(version(text).as_deref(), Some("10.0.13"));
        assert_eq!(version("no"), None);
    }

    #[test]
    fn paths_are_seen_through_binds() {
        let binds = [Bind::new("/home/a/work", "/vm"), Bind::new("/k", "/kernel")];
        assert_eq!(
            inside(Path::new("/home/a/work/console.log"), &binds),
            Path::new("/vm/console.log")
        );
        assert_eq!(
            inside(Path::new("/k/vmlinuz"), &binds),
            Path::new("/kernel/vmlinuz")
        );
    }
}
