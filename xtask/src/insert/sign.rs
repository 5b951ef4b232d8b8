// SPDX-License-Identifier: GPL-2.0

//! Signs a copy of a module as the kernel's own scripts/sign-file does: a detached CMS signature made by openssl, and a trailer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::module_file::SIGNATURE_MARK;
use crate::process::{Env, find_program};

/// Signing, with time to type a password.
const DEADLINE: Duration = Duration::from_secs(120);

/// Who signs.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'a> {
    /// The private key.
    pub key: &'a Path,
    /// Its certificate, which the kernel trusts.
    pub certificate: &'a Path,
}

/// Makes a signed copy of a module in `folder`.
///
/// # Errors
///
/// There is no openssl, key and certificate cannot be used, or the module is signed already.
pub fn signed_copy(
    env: &Env<'_>,
    module: &Path,
    signer: Signer<'_>,
    folder: &Path,
) -> Result<PathBuf> {
    let Signer { key, certificate } = signer;
    let mut bytes =
        fs::read(module).with_context(|| format!("cannot read the module {}", module.display()))?;
    if bytes.ends_with(SIGNATURE_MARK) {
        bail!(
            "{} has a signature already: leave --sign-key and --sign-cert out",
            module.display()
        );
    }
    let openssl = find_program("openssl")
        .context("signing takes openssl: install the package of that name")?;
    let signature = folder.join("signature");
    let mut command = Command::new(openssl);
    command
        .args([
            "cms", "-sign", "-binary", "-outform", "DER", "-md", "sha512",
        ])
        // The kernel wants neither signed attributes nor the certificate itself.
        .args(["-noattr", "-nocerts", "-nosmimecap", "-inkey"])
        .arg(key)
        .arg("-signer")
        .arg(certificate)
        .arg("-in")
        .arg(module)
        .arg("-out")
        .arg(&signature);
    env.run(command, "signing the module", Some(DEADLINE))?;
    let signature =
        fs::read(&signature).with_context(|| format!("cannot read {}", signature.display()))?;
    bytes.extend(&signature);
    bytes.extend(trailer(signature.len())?);
    let copy = folder.join("messung.ko");
    fs::write(&copy, bytes).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}

/// The kernel's `struct module_signature`, of which only the kind and the length are used, and the mark.
fn trailer(length: usize) -> Result<Vec<u8>> {
    const PKCS7: u8 = 2;
    let length = u32::try_from(length).context("the signature is too long")?;
    let mut bytes = vec![0, 0, PKCS7, 0, 0, 0, 0, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend(SIGNATURE_MARK);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trailer_is_the_kernels() {
        let bytes = trailer(0x0102).unwrap();
        assert_eq!(bytes[..12], [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(&bytes[12..], SIGNATURE_MARK);
    }
}
