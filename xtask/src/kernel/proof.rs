// SPDX-License-Identifier: GPL-2.0

//! What is proven before any boot: that the Rust metadata is the stock kernel's own, and that messung.ko fits into it.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSymbol as _};

/// A value of a kernel configuration, without quotes.
pub fn config_value<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    config.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix('=')?;
        Some(value.trim_matches('"'))
    })
}

/// The rustc that a configuration names.
///
/// # Errors
///
/// The kernel was built without Rust.
pub fn rustc_text(config: &str) -> Result<&str> {
    if config_value(config, "CONFIG_RUST") != Some("y") {
        bail!(
            "this kernel is built without Rust (CONFIG_RUST is not set), so no Rust module fits it"
        );
    }
    config_value(config, "CONFIG_RUSTC_VERSION_TEXT")
        .filter(|text| !text.is_empty())
        .context("the kernel's configuration does not name its rustc (CONFIG_RUSTC_VERSION_TEXT)")
}

/// The number in a text such as `rustc 1.85.1 (4eb161250 2025-03-15)`.
pub fn rustc_version(text: &str) -> Option<&str> {
    text.strip_prefix("rustc ")?.split_whitespace().next()
}

/// The rustc that wrote a crate's metadata: a text that starts with `rustc ` follows the header, its length before it
/// (in seven bits a byte; no rustc has yet named itself in more than 127 letters).
pub fn metadata_rustc(metadata: &[u8]) -> Option<&str> {
    let head = &metadata[..metadata.len().min(512)];
    if !head.starts_with(b"rust") {
        return None;
    }
    let start = head.windows(6).position(|bytes| bytes == b"rustc ")?;
    let length = usize::from(*head.get(start.checked_sub(1)?)?);
    std::str::from_utf8(head.get(start..start + length)?).ok()
}

/// The rustc that wrote the metadata in a kernel folder's output.
///
/// # Errors
///
/// There is no metadata.
pub fn rustc_of_metadata(build: &Path) -> Result<String> {
    let path = build.join("rust/libcore.rmeta");
    let metadata = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    metadata_rustc(&metadata)
        .map(str::to_owned)
        .with_context(|| format!("{} is no Rust metadata", path.display()))
}

/// Proves that the metadata in a kernel folder's output was written by the rustc that built the kernel.
///
/// # Errors
///
/// It was another one (both are named), or there is no metadata.
pub fn metadata_is_of(build: &Path, rustc: &str) -> Result<()> {
    let found = rustc_of_metadata(build)?;
    if found != rustc {
        bail!(
            "the Rust metadata in {} was written by {found:?}, and the kernel was built with {rustc:?}",
            build.display()
        );
    }
    Ok(())
}

/// The names of the symbols that a Module.symvers offers.
pub fn offered_symbols(symvers: &str) -> HashSet<&str> {
    symvers
        .lines()
        .filter_map(|line| line.split('\t').nth(1))
        .collect()
}

/// The undefined symbols of a module.
fn undefined_symbols(file: &object::File<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_undefined()) {
        let name = symbol.name().context("a symbol has no readable name")?;
        if !name.is_empty() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Those of `needed` that `symvers` lacks.
fn missing_symbols(needed: &[String], symvers: &str) -> Vec<String> {
    let offered = offered_symbols(symvers);
    let lacks = |name: &&String| !offered.contains(name.as_str());
    needed.iter().filter(lacks).cloned().collect()
}

/// Whether a symbol of Rust formats integers of 64 or 128 bits. The kernel's core divides them by what panics on a 32-bit
/// machine, and yet all of it links.
fn formats_wide_integers(symbol: &str) -> bool {
    // In a mangled name the path comes first (`core::fmt::num`, for decimals `core::fmt::num::imp`), then the type: x is i64,
    // y u64, n i128, o u128; then the trait, which begins with N.
    let Some((_, rest)) = symbol.split_once("4core3fmt3num") else {
        return false;
    };
    let rest = rest.strip_prefix("3imp").unwrap_or(rest);
    ["xN", "yN", "nN", "oN"]
        .iter()
        .any(|of_type| rest.starts_with(of_type))
}

/// Proves that the kernel offers each symbol that a module needs, and that none of them panics on a machine of its width.
/// Gives their number.
///
/// # Errors
///
/// It does not; the message names what is missing, or what panics.
pub fn module_fits(module: &Path, symvers: &Path) -> Result<usize> {
    let bytes = fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let offered = fs::read_to_string(symvers)
        .with_context(|| format!("cannot read {}", symvers.display()))?;
    let file = object::File::parse(&*bytes)
        .with_context(|| format!("{} is no ELF file", module.display()))?;
    let needed =
        undefined_symbols(&file).with_context(|| format!("reading {}", module.display()))?;
    if needed.is_empty() {
        bail!(
            "{} needs no symbol of the kernel at all, so it is no module",
            module.display()
        );
    }
    let missing = missing_symbols(&needed, &offered);
    if !missing.is_empty() {
        bail!(
            "{} does not fit the kernel, whose Module.symvers lacks {} of {} symbols: {}",
            module.display(),
            missing.len(),
            needed.len(),
            missing.join(", ")
        );
    }
    let wide = needed.iter().find(|name| formats_wide_integers(name));
    if let (Some(name), false) = (wide, file.is_64()) {
        bail!(
            "{} formats integers of 64 bits ({name}), which panics in a 32-bit kernel; abi::num has what can be used",
            module.display()
        );
    }
    Ok(needed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTC: &str = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)";

    fn metadata(rustc: &str) -> Vec<u8> {
        let mut bytes = b"rust\0\0\0\x09U\xff\x10\x03\0\0\0\0".to_vec();
        bytes.push(u8::try_from(rustc.len()).unwrap());
        bytes.extend(rustc.bytes());
        bytes.extend(b"\xc1\0\x0cabort_unwind");
        bytes
    }

    /// A relocatable ELF file with these undefined symbols: header, names, symbols, and three section headers.
    fn module(undefined: &[&str]) -> Vec<u8> {
        let mut names = vec![0_u8];
        let mut symbols = vec![0_u8; 24];
        for name in undefined {
            let at = u32::try_from(names.len()).unwrap();
            symbols.extend(at.to_le_bytes());
            // Global, of no type, in no section.
            symbols.extend([0x10, 0]);
            symbols.extend([0; 18]);
            names.extend(name.bytes());
            names.push(0);
        }
        let (header, sections) = (64, 64 + names.len() + symbols.len());
        let section = |kind: u32, offset: usize, size: usize, link: u32, info: u32, entry: u64| {
            let mut bytes = Vec::new();
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 16]);
            bytes.extend((offset as u64).to_le_bytes());
            bytes.extend((size as u64).to_le_bytes());
            bytes.extend(link.to_le_bytes());
            bytes.extend(info.to_le_bytes());
            bytes.extend(1_u64.to_le_bytes());
            bytes.extend(entry.to_le_bytes());
            bytes
        };
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend([1, 0, 62, 0, 1, 0, 0, 0]);
        file.extend([0; 16]);
        file.extend((sections as u64).to_le_bytes());
        file.extend([0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 64, 0, 3, 0, 1, 0]);
        assert_eq!(file.len(), header);
        file.extend(&names);
        file.extend(&symbols);
        file.extend(section(0, 0, 0, 0, 0, 0));
        file.extend(section(3, header, names.len(), 0, 0, 0));
        file.extend(section(2, header + names.len(), symbols.len(), 1, 1, 24));
        file
    }

    const SYMVERS: &str = "0x00000000\t_printk\tvmlinux\tEXPORT_SYMBOL\t\n0x00000000\tmsleep\tvmlinux\tEXPORT_SYMBOL\t\n";

    #[test]
    fn rustc_is_read_from_the_configuration() {
        let config = format!(
            "CONFIG_RUST=y\nCONFIG_RUSTC_VERSION=108501\nCONFIG_RUSTC_VERSION_TEXT=\"{RUSTC}\"\n"
        );
        assert_eq!(rustc_text(&config).unwrap(), RUSTC);
        assert_eq!(rustc_version(RUSTC), Some("1.85.1"));
        let error = rustc_text("# CONFIG_RUST is not set\n").unwrap_err();
        assert!(error.to_string().contains("without Rust"));
        assert!(rustc_text("CONFIG_RUST=y\n").is_err());
    }

    #[test]
    fn metadata_of_the_same_rustc_passes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("rust")).unwrap();
        fs::write(folder.path().join("rust/libcore.rmeta"), metadata(RUSTC)).unwrap();
        metadata_is_of(folder.path(), RUSTC).unwrap();
    }

    #[test]
    fn metadata_of_another_rustc_names_both() {
        let other = "rustc 1.85.1 (4eb161250 2025-03-15)";
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("rust")).unwrap();
        fs::write(folder.path().join("rust/libcore.rmeta"), metadata(other)).unwrap();
        let text = metadata_is_of(folder.path(), RUSTC)
            .unwrap_err()
            .to_string();
        assert!(text.contains(other) && text.contains(RUSTC), "{text}");
        fs::write(folder.path().join("rust/libcore.rmeta"), b"garbage").unwrap();
        assert!(metadata_is_of(folder.path(), RUSTC).is_err());
        fs::remove_file(folder.path().join("rust/libcore.rmeta")).unwrap();
        let text = format!("{:#}", metadata_is_of(folder.path(), RUSTC).unwrap_err());
        assert!(text.contains("libcore.rmeta"), "{text}");
    }

    #[test]
    fn missing_symbols_are_named() {
        let bytes = module(&["_printk", "msleep", "no_such_thing"]);
        let needed = undefined_symbols(&object::File::parse(&*bytes).unwrap()).unwrap();
        assert_eq!(needed.len(), 3);
        assert_eq!(missing_symbols(&needed, SYMVERS), ["no_such_thing"]);
    }

    /// Names as rustc 1.85.1 and 1.97.1 mangle them.
    #[test]
    fn wide_integers_are_seen_in_names() {
        let integer = |letter: char| {
            format!("_RNvXs8_NtNtNtCsbZfwWpAStWS_4core3fmt3num3imp{letter}NtB9_7Display3fmt")
        };
        for (letter, is_wide) in [
            ('h', false),
            ('t', false),
            ('m', false),
            ('l', false),
            // usize, which has 32 bits there.
            ('j', false),
            ('x', true),
            ('y', true),
            ('n', true),
            ('o', true),
        ] {
            assert_eq!(formats_wide_integers(&integer(letter)), is_wide, "{letter}");
        }
        let debug = "_RNvXsZ_NtNtCsbZfwWpAStWS_4core3fmt3numyNtB5_5Debug3fmt";
        assert!(formats_wide_integers(debug));
        let hex = "_RNvXsu_NtNtCsbZfwWpAStWS_4core3fmt3nummNtB5_8LowerHex3fmt";
        assert!(!formats_wide_integers(hex) && !formats_wide_integers("_printk"));
    }

    #[test]
    fn a_module_is_judged_as_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (ko, symvers) = (
            folder.path().join("m.ko"),
            folder.path().join("Module.symvers"),
        );
        fs::write(&symvers, SYMVERS).unwrap();
        fs::write(&ko, module(&["_printk", "msleep"])).unwrap();
        assert_eq!(module_fits(&ko, &symvers).unwrap(), 2);
        fs::write(&ko, module(&["_printk", "_RNvCs1_6kernel4gone"])).unwrap();
        let text = module_fits(&ko, &symvers).unwrap_err().to_string();
        assert!(
            text.contains("lacks 1 of 2 symbols: _RNvCs1_6kernel4gone"),
            "{text}"
        );
        fs::write(&ko, module(&[])).unwrap();
        assert!(module_fits(&ko, &symvers).is_err());
        fs::write(&ko, "garbage").unwrap();
        assert!(format!("{:#}", module_fits(&ko, &symvers).unwrap_err()).contains("no ELF file"));
    }
}
