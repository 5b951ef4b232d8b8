// SPDX-License-Identifier: GPL-2.0

//! Looks, before anything is inserted, for what would make the kernel refuse or the measurement fail.

use std::fs;
use std::path::Path;

use super::module_file::{ModuleFile, machine_fits, machine_name};
use crate::PROGRAM;
use crate::log::environment;

/// What the running kernel says of modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub machine: String,
    /// `/proc/modules`, if the kernel takes modules at all.
    pub modules: Option<String>,
    /// Whether no module may be inserted until the next boot.
    pub modules_disabled: bool,
    /// `/sys/kernel/security/lockdown`: `none [integrity] confidentiality`.
    pub lockdown: Option<String>,
    /// Whether each module must have a signature.
    pub signatures_enforced: bool,
    /// Whether Secure Boot is on, where that can be told.
    pub secure_boot: Option<bool>,
}

impl System {
    /// As it is now.
    pub fn now() -> Self {
        let uname = rustix::system::uname();
        Self::seen_in(
            Path::new("/"),
            uname.release().to_string_lossy().into_owned(),
            uname.machine().to_string_lossy().into_owned(),
        )
    }

    /// What the files below a root folder say of a kernel.
    pub fn seen_in(root: &Path, release: String, machine: String) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let is = |path: &str, wanted: &str| read(path).is_some_and(|value| value.trim() == wanted);
        Self {
            release,
            machine,
            modules: read("proc/modules"),
            modules_disabled: is("proc/sys/kernel/modules_disabled", "1"),
            lockdown: read("sys/kernel/security/lockdown"),
            signatures_enforced: is("sys/module/module/parameters/sig_enforce", "Y"),
            secure_boot: secure_boot(&root.join("sys/firmware")),
        }
    }

    /// Why no module can be inserted here and now, if so, and what to do.
    pub fn objection(&self) -> Option<String> {
        let Some(modules) = &self.modules else {
            return Some(no_modules(NO_LIST) + INSTEAD);
        };
        if self.modules_disabled {
            return Some(NO_MORE_MODULES.to_owned());
        }
        match environment::module_state(modules, "messung")? {
            "Loading" => Some(
                "another messung is being inserted right now, by insmod or by another run: two at once would measure each other. \
                 Wait until it has ended (`grep messung /proc/modules` shows nothing then)"
                    .to_owned(),
            ),
            _ => Some(
                "a module called messung is loaded, which ours never stays: `sudo rmmod messung` removes it"
                    .to_owned(),
            ),
        }
    }

    /// Why a module does not fit here, if so, and what to do.
    pub fn objection_to(&self, module: &ModuleFile) -> Option<String> {
        let ModuleFile {
            name,
            release,
            elf_machine,
            signed,
        } = module;
        if name != "messung" {
            return Some(format!(
                "this is the module {name:?}, and only messung can be run: it would stay"
            ));
        }
        if !machine_fits(&self.machine, *elf_machine) {
            return Some(format!(
                "the module is for {}, and this machine is {}: build or bundle it for this one",
                machine_name(*elf_machine),
                self.machine
            ));
        }
        if *release != self.release {
            return Some(format!(
                "the module was built for Linux {release}, and {} is running: boot that kernel, or build the module for this one",
                self.release
            ));
        }
        match self.policy() {
            Some(policy) if !signed => Some(format!(
                "{policy}, and the module has none.\n{}",
                self.how_to_sign()
            )),
            _ => None,
        }
    }

    /// What makes this kernel ask for signatures, if it does.
    pub fn policy(&self) -> Option<String> {
        let locked = self.lockdown.as_deref().and_then(selected);
        match locked {
            Some(level) if level != "none" => Some(format!(
                "this kernel takes modules with a signature only (lockdown={level}, as with Secure Boot)"
            )),
            _ if self.signatures_enforced => Some(
                "this kernel takes modules with a signature only (module.sig_enforce=1)".to_owned(),
            ),
            _ => None,
        }
    }

    /// How a module gets a signature that the kernel trusts.
    pub fn how_to_sign(&self) -> String {
        if self.secure_boot == Some(false) {
            return format!(
                "Secure Boot is off, and then the kernel trusts no key of mokutil's: switch it on, or boot without what asks for \
                 signatures (lockdown, module.sig_enforce). A kernel of your own trusts the key in its build folder:
  {PROGRAM} run --sign-key certs/signing_key.pem --sign-cert certs/signing_key.x509 …"
            );
        }
        format!(
            "Make a key once, let the firmware trust it (the next boot asks for the password that mokutil wants), and sign with it:
  {MAKE_KEY}
  sudo mokutil --import MOK.der
  {PROGRAM} run --sign-key MOK.key --sign-cert MOK.der …
or switch Secure Boot off"
        )
    }
}

/// Makes a key and its certificate in the working folder.
pub const MAKE_KEY: &str = "openssl req -new -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=messung/ -keyout MOK.key -outform DER -out MOK.der";

/// Whether Secure Boot is on. Without UEFI there is none; where there is UEFI, its variables may be out of sight.
fn secure_boot(firmware: &Path) -> Option<bool> {
    const VARIABLE: &str = "efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    if firmware.is_dir() && !firmware.join("efi").is_dir() {
        return Some(false);
    }
    // Four bytes of attributes stand before the value.
    let bytes = fs::read(firmware.join(VARIABLE)).ok()?;
    bytes.get(4).map(|value| *value == 1)
}

/// What to say of a kernel without modules, and of how that is known.
pub fn no_modules(reason: &str) -> String {
    format!("this kernel takes no modules ({reason})")
}

/// How that is known most often.
pub const NO_LIST: &str = "there is no /proc/modules";

/// What to do then.
const INSTEAD: &str = if cfg!(feature = "host") {
    ": `cargo xtask vm` measures in a virtual machine"
} else {
    ""
};

/// What to say of a kernel that was told so.
pub const NO_MORE_MODULES: &str =
    "this kernel takes no more modules until the next boot (kernel.modules_disabled=1)";

/// The word in brackets.
pub fn selected(choices: &str) -> Option<&str> {
    let (_, rest) = choices.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> System {
        System {
            release: "7.3.4+deb13-amd64".to_owned(),
            machine: "x86_64".to_owned(),
            modules: Some("loop 45056 0 - Live 0x0000000000000000\n".to_owned()),
            lockdown: Some("[none] integrity confidentiality\n".to_owned()),
            ..System::default()
        }
    }

    fn module() -> ModuleFile {
        ModuleFile {
            name: "messung".to_owned(),
            release: "7.3.4+deb13-amd64".to_owned(),
            elf_machine: 62,
            signed: false,
        }
    }

    #[test]
    fn nothing_is_said_against_a_module_that_fits() {
        assert_eq!(system().objection(), None);
        assert_eq!(system().objection_to(&module()), None);
    }

    #[test]
    fn each_obstacle_has_its_reason() {
        let line = |state| Some(format!("messung 57344 1 - {state} 0x0 (OE+)\n"));
        for (system, reason) in [
            (
                System {
                    modules: None,
                    ..system()
                },
                "takes no modules",
            ),
            (
                System {
                    modules_disabled: true,
                    ..system()
                },
                "modules_disabled",
            ),
            (
                System {
                    modules: line("Loading"),
                    ..system()
                },
                "right now",
            ),
            (
                System {
                    modules: line("Live"),
                    ..system()
                },
                "rmmod",
            ),
        ] {
            let objection = system.objection().unwrap();
            assert!(objection.contains(reason), "{objection}");
        }
    }

    #[test]
    fn each_misfit_has_its_reason() {
        for (module, reason) in [
            (
                ModuleFile {
                    name: "loop".to_owned(),
                    ..module()
                },
                "\"loop\"",
            ),
            (
                ModuleFile {
                    elf_machine: 40,
                    ..module()
                },
                "is for arm, and this machine is x86_64",
            ),
            (
                ModuleFile {
                    release: "7.2.13".to_owned(),
                    ..module()
                },
                "built for Linux 7.2.13, and 7.3.4+deb13-amd64 is running",
            ),
        ] {
            let objection = system().objection_to(&module).unwrap();
            assert!(objection.contains(reason), "{objection}");
        }
    }

    #[test]
    fn a_signature_is_asked_for_where_the_kernel_does() {
        let locked = System {
            lockdown: Some("none [integrity] confidentiality\n".to_owned()),
            ..system()
        };
        let enforced = System {
            signatures_enforced: true,
            ..system()
        };
        let signed = ModuleFile {
            signed: true,
            ..module()
        };
        for (system, policy) in [(locked, "lockdown=integrity"), (enforced, "sig_enforce")] {
            let objection = system.objection_to(&module()).unwrap();
            assert!(
                objection.contains(policy) && objection.contains("mokutil"),
                "{objection}"
            );
            assert_eq!(system.objection_to(&signed), None);
            // Keys of mokutil's are then of no use.
            let without = System {
                secure_boot: Some(false),
                ..system
            };
            let objection = without.objection_to(&module()).unwrap();
            assert!(
                objection.contains(policy) && !objection.contains("--import"),
                "{objection}"
            );
        }
    }

    #[test]
    fn secure_boot_is_what_uefi_says() {
        let folder = tempfile::tempdir().unwrap();
        let firmware = folder.path().join("firmware");
        let is_on = || secure_boot(&firmware);
        assert_eq!(is_on(), None, "out of sight");
        fs::create_dir(&firmware).unwrap();
        assert_eq!(is_on(), Some(false), "no UEFI");
        let variables = firmware.join("efi/efivars");
        fs::create_dir_all(&variables).unwrap();
        assert_eq!(is_on(), None, "no variables");
        let variable = variables.join("SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
        for (value, expected) in [(1, Some(true)), (0, Some(false))] {
            fs::write(&variable, [6, 0, 0, 0, value]).unwrap();
            assert_eq!(is_on(), expected);
        }
    }
}
