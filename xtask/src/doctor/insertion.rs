// SPDX-License-Identifier: GPL-2.0

//! What inserting the module into the running kernel takes.

use super::host::Host;
use super::machine::Machine;
use super::{Finding, Way};
use crate::insert::preflight::{NO_LIST, NO_MORE_MODULES, no_modules, selected};

/// All of it, what matters most first.
pub fn findings(machine: &Machine, host: &Host) -> Vec<Finding> {
    vec![
        modules(machine),
        lockdown(machine),
        signatures(machine),
        other_run(machine),
        privileges(host),
    ]
}

/// Whether the kernel takes modules at all.
pub fn modules(machine: &Machine) -> Finding {
    const NAME: &str = "module support";
    let system = &machine.system;
    let mut against = Vec::new();
    if let (Some("n"), Some((path, _))) = (machine.setting("CONFIG_MODULES"), &machine.config) {
        against.push(format!("CONFIG_MODULES is not set in {}", path.display()));
    }
    if system.modules.is_none() {
        against.push(NO_LIST.to_owned());
    }
    if machine.inserts == Some(false) {
        against.push("it has no finit_module()".to_owned());
    }
    if !against.is_empty() {
        return Finding::no(
            NAME,
            Way::Insert,
            no_modules(&against.join(", ")),
            "measure in a virtual machine, with cargo xtask vm",
        );
    }
    if system.modules_disabled {
        return Finding::no(NAME, Way::Insert, NO_MORE_MODULES, "sudo reboot");
    }
    Finding::yes(NAME, Way::Insert, "the kernel takes modules")
}

fn lockdown(machine: &Machine) -> Finding {
    const NAME: &str = "no lockdown";
    match machine.system.lockdown.as_deref().map(selected) {
        Some(Some("none")) => Finding::yes(NAME, Way::Insert, "lockdown=none"),
        Some(Some(level)) => Finding::no(
            NAME,
            Way::Insert,
            format!("lockdown={level}: the kernel refuses modules without a trusted signature"),
            machine.system.how_to_sign(),
        ),
        Some(None) => Finding::unknown(
            NAME,
            Way::Insert,
            "/sys/kernel/security/lockdown is not understood",
        ),
        None if machine.setting("CONFIG_SECURITY_LOCKDOWN_LSM") == Some("n") => {
            Finding::yes(NAME, Way::Insert, "the kernel is built without lockdown")
        }
        None => Finding {
            remedy: Some("sudo mount -t securityfs securityfs /sys/kernel/security".to_owned()),
            ..Finding::unknown(
                NAME,
                Way::Insert,
                "there is no /sys/kernel/security/lockdown: securityfs is not mounted, or lockdown not in use",
            )
        },
    }
}

fn signatures(machine: &Machine) -> Finding {
    const NAME: &str = "unsigned modules";
    let boot = match machine.system.secure_boot {
        Some(true) => "; Secure Boot is on",
        Some(false) => "; Secure Boot is off",
        None => "",
    };
    let forced = machine.setting("CONFIG_MODULE_SIG_FORCE") == Some("y");
    if forced || machine.system.signatures_enforced {
        let why = if forced {
            "CONFIG_MODULE_SIG_FORCE=y"
        } else {
            "module.sig_enforce=1"
        };
        return Finding::no(
            NAME,
            Way::Insert,
            format!("the kernel takes modules with a trusted signature only ({why}){boot}"),
            machine.system.how_to_sign(),
        );
    }
    Finding::yes(
        NAME,
        Way::Insert,
        format!("no signature is asked for{boot}"),
    )
}

/// Whether nothing of ours is there or being inserted.
fn other_run(machine: &Machine) -> Finding {
    const NAME: &str = "no other run";
    let system = &machine.system;
    // What else there is to object has findings of its own.
    let others = system.modules.is_none() || system.modules_disabled;
    match system.objection().filter(|_| !others) {
        Some(objection) => Finding::no(
            NAME,
            Way::Insert,
            objection,
            "look again with `grep messung /proc/modules`",
        ),
        None => Finding::yes(NAME, Way::Insert, "no module messung is loaded"),
    }
}

fn privileges(host: &Host) -> Finding {
    const NAME: &str = "privileges";
    match (host.may_insert, host.become_root) {
        (true, _) => Finding::yes(NAME, Way::Insert, "this process may insert modules"),
        (false, Some(tool)) if !host.is_root => Finding::yes(
            NAME,
            Way::Insert,
            format!("through {tool}: cargo xtask run --sudo={tool}"),
        ),
        (false, _) if host.is_root => Finding::no(
            NAME,
            Way::Insert,
            "this process is root and may not insert modules: it lacks CAP_SYS_MODULE or CAP_SYSLOG, as in a container",
            "run it on the machine itself",
        ),
        (false, _) => Finding::no(
            NAME,
            Way::Insert,
            "this process is not root, and neither sudo, doas nor run0 is there",
            "su --command 'cargo xtask run'",
        ),
    }
}
