// SPDX-License-Identifier: GPL-2.0

//! A PC's firmware with Secure Boot on: Debian's OVMF, with the variables of an owner who lets one kernel boot and trusts one key.
//!
//! On a PC the key would get there by `mokutil --import` and the question that shim asks at the next boot. What shim leaves for
//! the kernel is the variable that is written here at once.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use sha2::{Digest as _, Sha256};

use crate::cache::Cache;
use crate::event::Event;
use crate::kernel::Options;
use crate::kernel::archive::Archive;
use crate::kernel::table::AMD64;
use crate::process::Env;

/// The release that the firmware is taken from, whatever the kernel's.
const SUITE: &str = "trixie";

/// The package.
const PACKAGE: &str = "ovmf";

/// The cache's folder of it.
pub const FOLDER: &str = "firmware";

/// The program, of those in the package the one that knows Secure Boot, and a store that has no variables yet.
const CODE: &str = "OVMF_CODE_4M.secboot.fd";
const STORE: &str = "OVMF_VARS_4M.fd";

/// A firmware, as the two parts of its flash memory.
pub struct Firmware {
    /// Its program.
    pub code: Vec<u8>,
    /// Its variables.
    pub variables: Vec<u8>,
}

/// The firmware that boots just this kernel, and tells it to trust this certificate, in DER, as that of the machine's owner.
/// It is taken from the cache if that has it.
///
/// # Errors
///
/// The archive cannot be reached or refuses, the disk is full, or UEFI cannot boot the kernel.
pub fn ensure(env: &Env<'_>, cache: &Cache, kernel: &Path, certificate: &[u8]) -> Result<Firmware> {
    let folder = cache.join(FOLDER).join(format!("{SUITE}-{PACKAGE}"));
    if !folder.exists() {
        fetch(env, cache, &folder)?;
    }
    let hash = image_hash(&read(kernel)?)
        .with_context(|| format!("UEFI cannot boot {}", kernel.display()))?;
    let variables = variables(&hash, certificate)?;
    Ok(Firmware {
        code: read(&folder.join(CODE))?,
        variables: with_variables(read(&folder.join(STORE))?, &variables)
            .with_context(|| format!("{PACKAGE} has an unknown {STORE}"))?,
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn fetch(env: &Env<'_>, cache: &Cache, folder: &Path) -> Result<()> {
    let archive = Archive::open(*env, cache, AMD64.debian, &Options::default())?;
    let suite = archive.update(SUITE)?.map_err(|why| anyhow!(why))?;
    env.emit(Event::Step(format!("fetching {PACKAGE}")));
    let scratch = cache.scratch(PACKAGE)?;
    let unpacked = archive.unpack_newest(&suite, PACKAGE, scratch.path())?;
    cache.whole(folder, |partial| {
        fs::create_dir(partial).with_context(|| format!("cannot make {}", partial.display()))?;
        [CODE, STORE].iter().try_for_each(|name| {
            let from = unpacked.join("usr/share/OVMF").join(name);
            fs::copy(&from, partial.join(name))
                .map(drop)
                .with_context(|| format!("cannot copy {}", from.display()))
        })
    })
}

/// A name that UEFI gives to something, as it stands in memory.
type Guid = [u8; 16];

/// The name that is written `a-b-c-d`.
const fn guid(a: u32, b: u16, c: u16, d: u64) -> Guid {
    let (a, b, c, d) = (
        a.to_le_bytes(),
        b.to_le_bytes(),
        c.to_le_bytes(),
        d.to_be_bytes(),
    );
    [
        a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6],
        d[7],
    ]
}

/// Whose variables these are: UEFI's own, those that say which images may boot, and shim's.
const GLOBAL: Guid = guid(0x8be4_df61, 0x93ca, 0x11d2, 0xaa0d_00e0_9803_2b8c);
const IMAGES: Guid = guid(0xd719_b2cb, 0x3d3a, 0x4596, 0xa3bc_dad0_0e67_656f);
const SHIM: Guid = guid(0x605d_ab50, 0xe046, 0x4300, 0xabb6_3dd8_10dd_8b23);

/// Kinds of entries in a list of what is trusted.
const X509: Guid = guid(0xa5c0_59a1, 0x94e4, 0x4aa7, 0x87b5_ab15_5c2b_f072);
const SHA256: Guid = guid(0xc1c4_1626, 0x504c, 0x4092, 0xaca9_41f9_3693_4328);

/// What a store of variables with times begins with.
const STORE_KIND: Guid = guid(0xaaf3_2c78, 0x947b, 0x439a, 0xa180_2e14_4ec3_7792);

/// Attributes: kept over a boot, to be read at boot, and by the kernel; changed by who proves that he may.
const KEPT: u32 = 1 | 2 | 4;
const AUTHENTICATED: u32 = 0x20;

/// All variables of the firmware. That there is an owner (`PK`) switches Secure Boot on.
fn variables(kernel_hash: &[u8], certificate: &[u8]) -> Result<Vec<u8>> {
    let owner = list(X509, certificate)?;
    let kernel = list(SHA256, kernel_hash)?;
    Ok([
        variable(GLOBAL, "PK", KEPT | AUTHENTICATED, &owner)?,
        variable(IMAGES, "db", KEPT | AUTHENTICATED, &kernel)?,
        variable(SHIM, "MokListRT", KEPT, &owner)?,
    ]
    .concat())
}

/// `EFI_SIGNATURE_LIST` with one entry, which nobody in particular has made.
fn list(kind: Guid, entry: &[u8]) -> Result<Vec<u8>> {
    const HEADER: u32 = 28;
    const MAKER: Guid = [0; 16];
    let entry = [&MAKER[..], entry].concat();
    let length = length(&entry)?;
    Ok([
        &kind[..],
        &(HEADER + length).to_le_bytes(),
        &0_u32.to_le_bytes(),
        &length.to_le_bytes(),
        &entry,
    ]
    .concat())
}

/// A variable as OVMF keeps it (`AUTHENTICATED_VARIABLE_HEADER`, name, data).
fn variable(owner: Guid, name: &str, attributes: u32, data: &[u8]) -> Result<Vec<u8>> {
    const BEGIN: u16 = 0x55aa;
    const ADDED: u8 = 0x3f;
    // A count, a time and a key's number: of use only to who changes it.
    const UNUSED: [u8; 8 + 16 + 4] = [0; 28];
    let name: Vec<u8> = name
        .encode_utf16()
        .chain([0])
        .flat_map(u16::to_le_bytes)
        .collect();
    let mut bytes = [
        &BEGIN.to_le_bytes()[..],
        &[ADDED, 0],
        &attributes.to_le_bytes(),
        &UNUSED,
        &length(&name)?.to_le_bytes(),
        &length(data)?.to_le_bytes(),
        &owner,
        &name,
        data,
    ]
    .concat();
    bytes.resize(bytes.len().next_multiple_of(4), ERASED);
    Ok(bytes)
}

/// Flash memory on which nothing was written.
const ERASED: u8 = 0xff;

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).context("too long for a variable of UEFI")
}

/// Writes variables into a store that has none.
fn with_variables(mut store: Vec<u8>, variables: &[u8]) -> Result<Vec<u8>> {
    // The store lies in a volume, whose header tells its own length.
    const VOLUME_HEADER_LENGTH: usize = 48;
    // Kind, size, state.
    const STORE_HEADER: usize = 28;
    let header = usize::from(u16::from_le_bytes(field(&store, VOLUME_HEADER_LENGTH)?));
    let kind: Guid = field(&store, header)?;
    ensure!(kind == STORE_KIND, "it is no store of variables");
    let begin = header + STORE_HEADER;
    let place = store
        .get_mut(begin..begin + variables.len())
        .context("the variables do not fit into it")?;
    ensure!(
        place.iter().all(|byte| *byte == ERASED),
        "it has variables already"
    );
    place.copy_from_slice(variables);
    Ok(store)
}

/// What UEFI calls the hash of an image: it leaves out the checksum, and signatures with the place that tells where they are.
fn image_hash(image: &[u8]) -> Result<[u8; 32]> {
    const HEADER_PLACE: usize = 0x3c;
    const PE: [u8; 4] = *b"PE\0\0";
    const PE32_PLUS: u16 = 0x20b;
    let header = usize::try_from(u32::from_le_bytes(field(image, HEADER_PLACE)?))?;
    ensure!(field(image, header)? == PE, "it is no PE image");
    let options = header + 24;
    let kind = u16::from_le_bytes(field(image, options)?);
    ensure!(kind == PE32_PLUS, "it is no PE image of 64 bits");
    let checksum = options + 64;
    let signatures = options + 112 + 4 * 8;
    let signed = match u32::from_le_bytes(field(image, signatures)?) {
        0 => image.len(),
        end => usize::try_from(end)?,
    };
    let part = |from: usize, to: usize| image.get(from..to).context("it is cut off");
    let mut hash = Sha256::new();
    hash.update(part(0, checksum)?);
    hash.update(part(checksum + 4, signatures)?);
    hash.update(part(signatures + 8, signed)?);
    Ok(hash.finalize().into())
}

/// The bytes at a place.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .context("it is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_as_uefi_has_it() {
        assert_eq!(
            guid(0x0403_0201, 0x0605, 0x0807, 0x090a_0b0c_0d0e_0f10),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
        );
    }

    #[test]
    fn a_variable_stands_as_ovmf_keeps_it() {
        let bytes = variable(SHIM, "db", 0x27, &[1, 2, 3]).unwrap();
        assert_eq!(bytes[..8], [0xaa, 0x55, 0x3f, 0, 0x27, 0, 0, 0]);
        assert_eq!(bytes[8..36], [0; 28]);
        assert_eq!(bytes[36..44], [6, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[44..60], SHIM);
        assert_eq!(bytes[60..66], *b"d\0b\0\0\0");
        assert_eq!(bytes[66..], [1, 2, 3, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_list_tells_the_lengths_of_itself_and_its_entry() {
        let bytes = list(X509, &[7; 5]).unwrap();
        assert_eq!(bytes[..16], X509);
        assert_eq!(bytes[16..28], [49, 0, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0]);
        assert_eq!(bytes[28..], [[0; 16].as_slice(), &[7; 5]].concat());
    }

    fn store() -> Vec<u8> {
        let mut store = vec![0; 72];
        store[48] = 72;
        store.extend(STORE_KIND);
        store.extend([0; 12]);
        store.resize(200, ERASED);
        store
    }

    #[test]
    fn variables_stand_behind_the_headers() {
        let bytes = with_variables(store(), &[1, 2, 3, 4]).unwrap();
        assert_eq!(bytes[..100], store()[..100]);
        assert_eq!(bytes[100..105], [1, 2, 3, 4, ERASED]);
        assert_eq!(bytes.len(), 200);
    }

    #[test]
    fn only_an_empty_store_is_written_to() {
        let error = |store, variables| with_variables(store, variables).unwrap_err().to_string();
        assert!(error(Vec::new(), &[]).contains("cut off"));
        assert!(error(vec![0; 200], &[]).contains("no store"));
        assert!(error(store(), &[0; 101]).contains("fit"));
        let full = with_variables(store(), &[1]).unwrap();
        assert!(error(full, &[1]).contains("already"));
    }

    /// An image whose bytes all differ from their neighbours; a signature of three bytes is its end.
    fn image() -> Vec<u8> {
        let mut image: Vec<u8> = (0..=255).cycle().take(600).collect();
        image[0x3c..0x40].copy_from_slice(&128_u32.to_le_bytes());
        image[128..132].copy_from_slice(b"PE\0\0");
        image[152..154].copy_from_slice(&[0x0b, 0x02]);
        image[296..300].copy_from_slice(&597_u32.to_le_bytes());
        image[300..304].copy_from_slice(&3_u32.to_le_bytes());
        image
    }

    #[test]
    fn signatures_and_the_checksum_do_not_count() {
        let hash = image_hash(&image()).unwrap();
        let is_same_without = |place: usize| {
            let mut other = image();
            other[place] ^= 1;
            image_hash(&other).unwrap() == hash
        };
        for place in [216, 219, 300, 303, 597, 599] {
            assert!(is_same_without(place), "byte {place} counts");
        }
        for place in [0, 215, 220, 295, 304, 596] {
            assert!(!is_same_without(place), "byte {place} does not count");
        }
        let mut unsigned = image();
        unsigned[296..304].fill(0);
        unsigned.truncate(597);
        assert_eq!(image_hash(&unsigned).unwrap(), hash);
    }

    #[test]
    fn what_uefi_cannot_boot_is_told() {
        let error = |image: &[u8]| image_hash(image).unwrap_err().to_string();
        assert!(error(b"").contains("cut off"));
        assert!(error(&[0; 600]).contains("no PE image"));
        assert!(error(&image()[..290]).contains("cut off"));
        let mut short = image();
        short[152] = 0;
        assert!(error(&short).contains("64 bits"));
        let mut far = image();
        far[296..300].copy_from_slice(&601_u32.to_le_bytes());
        assert!(error(&far).contains("cut off"));
    }
}
