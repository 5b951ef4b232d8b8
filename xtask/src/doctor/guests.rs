// SPDX-License-Identifier: GPL-2.0

//! What measuring in a virtual machine takes: a build root, and what makes one. What the cache has need not be made again.

use std::path::PathBuf;

use anyhow::Result;

use super::machine::Distribution;
use super::{Finding, Way};
use crate::cache::{self, megabytes};
use crate::kernel::module::{self, Program};
use crate::kernel::{self, Options, archive, build_root, folder, table};
use crate::process::{Env, find_program};
use crate::vm::accelerator;
use crate::vm::launch::Launcher;

/// What there is.
#[derive(Clone, Debug)]
pub struct Guests {
    /// The cache.
    pub cache: PathBuf,
    /// Whether it has a kernel with its build root.
    pub is_ready: bool,
    /// Whether namespaces can be entered, else why not.
    pub namespaces: std::result::Result<(), String>,
    /// Programs and files that are missing, as Debian calls their packages.
    pub missing: Vec<&'static str>,
    /// The mirror that answers, else why none does.
    pub mirror: std::result::Result<String, String>,
    /// Bytes of the disk that are left for us.
    pub space: u64,
    /// Whether KVM runs guests here.
    pub kvm: Kvm,
    /// Whether apt-get could install what is missing.
    pub has_apt: bool,
}

/// What is known of KVM.
#[derive(Clone, Debug)]
pub enum Kvm {
    /// A guest ran, on this CPU model.
    Works(&'static str),
    /// `/dev/kvm` cannot be opened, and why.
    Closed(String),
    /// It can, but no guest ran, and why.
    Fails(String),
    /// No guest could be tried, and why.
    Untried(String),
}

impl Kvm {
    /// Tries it with a guest, if the cache has what that takes.
    fn now(env: &Env<'_>, has_kernel: bool) -> Self {
        if let Err(why) = accelerator::open_kvm() {
            return Self::Closed(why);
        }
        if !has_kernel {
            return Self::Untried("no kernel has been made ready yet".to_owned());
        }
        match Self::trial(env) {
            Ok(Ok(cpu_model)) => Self::Works(cpu_model),
            Ok(Err(failures)) => Self::Fails(failures.join("; ")),
            Err(error) => Self::Untried(format!("{error:#}")),
        }
    }

    fn trial(env: &Env<'_>) -> Result<std::result::Result<&'static str, Vec<String>>> {
        let row = &table::TABLE[0];
        let (kernel, init) = kernel::ready(env, row, &Options::default(), |kernel| {
            module::program(env, kernel, Program::Guest)
        })?;
        accelerator::find_kvm(&Launcher::new(*env, &kernel, &init)?)
    }
}

impl Guests {
    /// As it is now.
    ///
    /// # Errors
    ///
    /// There is no place for a cache, or the user interrupts.
    pub fn now(env: &Env<'_>) -> Result<Self> {
        let cache = cache::folder()?;
        let in_words = |error: anyhow::Error| format!("{error:#}");
        let mut missing = build_root::missing_host_tools();
        let has_apt = find_program("apt-get").is_some();
        if !has_apt {
            missing.push("apt");
        }
        let is_ready = kernel::is_in_cache(&cache, &table::TABLE[0]);
        let guests = Self {
            is_ready,
            namespaces: build_root::ensure_namespaces(env).map_err(in_words),
            mirror: archive::reach_mirror(env).map_err(in_words),
            space: cache::space(&cache)?,
            kvm: Kvm::now(env, is_ready),
            missing,
            has_apt,
            cache,
        };
        env.interrupt.check()?;
        Ok(guests)
    }
}

/// All of it.
pub fn findings(guests: &Guests, distribution: Distribution, is_root: bool) -> Vec<Finding> {
    let making = [
        tools(guests, distribution, is_root),
        mirror(guests),
        space(guests),
    ];
    let mut findings = vec![build_root(guests), namespaces(guests)];
    findings.extend(making.into_iter().map(|finding| {
        if guests.is_ready {
            finding.optional()
        } else {
            finding
        }
    }));
    findings.extend([qemu(guests), accelerator(guests)]);
    findings
}

fn build_root(guests: &Guests) -> Finding {
    const NAME: &str = "build root";
    let cache = guests.cache.display();
    if guests.is_ready {
        Finding::yes(NAME, Way::Vm, format!("in {cache}"))
    } else {
        Finding::no(
            NAME,
            Way::Vm,
            format!("{cache} has none yet"),
            "cargo xtask vm and cargo xtask build make it",
        )
        .optional()
    }
}

fn namespaces(guests: &Guests) -> Finding {
    const NAME: &str = "namespaces";
    match &guests.namespaces {
        Ok(()) => Finding::yes(NAME, Way::Vm, "a build root can be entered"),
        Err(why) => Finding {
            // The reason says what to do.
            remedy: None,
            ..Finding::no(NAME, Way::Vm, why.clone(), "")
        },
    }
}

fn tools(guests: &Guests, distribution: Distribution, is_root: bool) -> Finding {
    const NAME: &str = "mmdebstrap";
    if guests.missing.is_empty() {
        return Finding::yes(NAME, Way::Vm, "it is here, with Debian's keys");
    }
    let names = guests.missing.join(" ");
    let finding = Finding::no(
        NAME,
        Way::Vm,
        format!("making a build root takes {names}"),
        distribution.install([&names, &names, &names]),
    );
    let installs_itself = is_root
        && guests.has_apt
        && matches!(distribution, Distribution::Debian | Distribution::Ubuntu);
    if installs_itself {
        // cargo xtask vm does that, after saying so.
        finding.optional()
    } else {
        finding
    }
}

fn mirror(guests: &Guests) -> Finding {
    const NAME: &str = "mirror";
    match &guests.mirror {
        Ok(mirror) => Finding::yes(NAME, Way::Vm, format!("{mirror} answers")),
        Err(why) => Finding::no(
            NAME,
            Way::Vm,
            why.clone(),
            "check the network, or name a mirror: cargo xtask vm --mirror URL",
        ),
    }
}

fn space(guests: &Guests) -> Finding {
    const NAME: &str = "disk";
    let needed = build_root::BYTES + folder::bytes(&table::TABLE[0]);
    let reason = format!(
        "{} are available for {}, and a build root with a kernel takes {} while it is made",
        megabytes(guests.space),
        guests.cache.display(),
        megabytes(needed)
    );
    if guests.space >= needed {
        Finding::yes(NAME, Way::Vm, reason)
    } else {
        Finding::no(
            NAME,
            Way::Vm,
            reason,
            "cargo xtask clean, or set XDG_CACHE_HOME to a folder on a larger disk",
        )
    }
}

fn qemu(guests: &Guests) -> Finding {
    const NAME: &str = "QEMU";
    if guests.is_ready {
        Finding::yes(NAME, Way::Vm, "in the build root")
    } else {
        Finding::no(
            NAME,
            Way::Vm,
            "it comes with the build root",
            "cargo xtask vm",
        )
        .optional()
    }
}

fn accelerator(guests: &Guests) -> Finding {
    const NAME: &str = "accelerator";
    match &guests.kvm {
        Kvm::Works(cpu_model) => Finding::yes(
            NAME,
            Way::Vm,
            format!("KVM works, with -cpu {cpu_model}: a guest ran up to its init"),
        ),
        Kvm::Closed(why) => Finding::no(
            NAME,
            Way::Vm,
            format!("{why}, so real time is emulated; virtual time needs no accelerator"),
            "for real time: switch virtualization on in the firmware, and join the group kvm",
        ),
        Kvm::Fails(why) => Finding::no(
            NAME,
            Way::Vm,
            format!("KVM does not work, so real time is emulated; virtual time needs no accelerator ({why})"),
            "for real time: a machine whose processor, or whose own host, offers all that KVM asks for",
        ),
        Kvm::Untried(why) => Finding {
            remedy: Some("cargo xtask vm --real-time --plan quick tries it".to_owned()),
            ..Finding::unknown(
                NAME,
                Way::Vm,
                format!("/dev/kvm opens, but only a guest that runs tells whether KVM works, and {why}; virtual time needs no accelerator"),
            )
        },
    }
    .optional()
}
