// SPDX-License-Identifier: GPL-2.0

//! What a module's file says of itself: for which kernel it was built, and whether it is signed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::log::stream::find;

/// What ends a file that has a signature.
pub const SIGNATURE_MARK: &[u8] = b"~Module signature appended~\n";

/// A module, as far as it matters whether it can be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// Its name in the kernel.
    pub name: String,
    /// The release that it was built for, the first word of its vermagic.
    pub release: String,
    /// ELF's number for its architecture.
    pub elf_machine: u16,
    /// Whether a signature is appended.
    pub signed: bool,
}

impl ModuleFile {
    /// Reads a module.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no kernel module; compressed ones are none here.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes =
            fs::read(path).with_context(|| format!("cannot read the module {}", path.display()))?;
        Self::parse(&bytes).with_context(|| {
            format!(
                "{} is no kernel module: it must be an ELF file with a vermagic, such as messung.ko, uncompressed",
                path.display()
            )
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let ident = bytes.strip_prefix(b"\x7fELF")?;
        let machine = <[u8; 2]>::try_from(bytes.get(18..20)?).ok()?;
        Some(Self {
            name: information(bytes, "name")?.to_owned(),
            release: information(bytes, "vermagic")?
                .split_whitespace()
                .next()?
                .to_owned(),
            // The second byte of the identification tells the order of bytes.
            elf_machine: match ident.get(1)? {
                2 => u16::from_be_bytes(machine),
                _ => u16::from_le_bytes(machine),
            },
            signed: bytes.ends_with(SIGNATURE_MARK),
        })
    }
}

/// A value of the section `.modinfo`, which is `key=value` strings, each ended by a NUL.
fn information<'a>(bytes: &'a [u8], key: &str) -> Option<&'a str> {
    let marker = format!("\0{key}=");
    let rest = &bytes[find(bytes, marker.as_bytes())? + marker.len()..];
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// The name of an architecture as `uname -m` gives it, of those that Linux takes Rust modules on.
pub fn machine_name(elf_machine: u16) -> String {
    match elf_machine {
        3 => "i686".to_owned(),
        40 => "arm".to_owned(),
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("the architecture with ELF's number {other}"),
    }
}

/// Whether a kernel that calls its machine so takes modules of that architecture.
pub fn machine_fits(uname: &str, elf_machine: u16) -> bool {
    match elf_machine {
        // armv6l, armv7l, …
        40 => uname.starts_with("arm"),
        _ => uname == machine_name(elf_machine),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// As much of a module as is looked at.
    pub fn module(release: &str, elf_machine: u16, signed: bool) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(elf_machine.to_le_bytes());
        bytes.extend(
            format!("\0license=GPL\0vermagic={release} SMP mod_unload \0name=messung\0").bytes(),
        );
        if signed {
            bytes.extend(SIGNATURE_MARK);
        }
        bytes
    }

    #[test]
    fn modules_say_what_they_are_for() {
        assert_eq!(
            ModuleFile::parse(&module("7.3.4+deb13-amd64", 62, true)),
            Some(ModuleFile {
                name: "messung".to_owned(),
                release: "7.3.4+deb13-amd64".to_owned(),
                elf_machine: 62,
                signed: true,
            })
        );
        assert_eq!(
            ModuleFile::parse(&module("7.3.4", 40, false)).map(|module| module.signed),
            Some(false)
        );
        for bytes in [
            &b""[..],
            b"\x7fELF",
            b"\xfd7zXZ\0",
            &module("7.3.4", 62, false)[..40],
        ] {
            assert_eq!(ModuleFile::parse(bytes), None);
        }
    }

    #[test]
    fn a_file_that_is_no_module_is_named() {
        let error = ModuleFile::read(&std::env::current_exe().unwrap()).unwrap_err();
        assert!(error.to_string().contains("is no kernel module"), "{error}");
        let error = ModuleFile::read(Path::new("/nonexistent/messung.ko")).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/messung.ko"),
            "{error}"
        );
    }

    #[test]
    fn architectures_are_told_apart() {
        for (uname, elf_machine, fits) in [
            ("x86_64", 62, true),
            ("armv7l", 40, true),
            ("aarch64", 40, false),
            ("aarch64", 183, true),
            ("x86_64", 183, false),
        ] {
            assert_eq!(machine_fits(uname, elf_machine), fits, "{uname}");
        }
    }
}
