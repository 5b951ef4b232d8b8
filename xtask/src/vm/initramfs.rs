// SPDX-License-Identifier: GPL-2.0

//! The guest's file system: init, the module, its orders. The same input gives the same bytes.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use cpio::newc::{self, Builder, ModeFileType};

use crate::guest::{INIT, MODULE, ORDERS, Orders};

/// A file of the archive.
struct Entry<'a> {
    path: &'a str,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Directory,
    /// A character device, by its numbers.
    Device(u32, u32),
    File {
        permissions: u32,
        content: &'a [u8],
    },
}

/// An archive with a static `xtask` as its init. A guest that is only to show that it boots needs no module.
///
/// # Errors
///
/// A file is larger than the format allows (4 GiB).
pub fn build(init: &[u8], module: Option<&[u8]>, orders: &Orders) -> Result<Vec<u8>> {
    let orders = serde_json::to_vec(orders).context("cannot write the guest's orders as JSON")?;
    let directory = |path| Entry {
        path,
        kind: Kind::Directory,
    };
    let mut entries = vec![
        directory("/dev"),
        console(),
        directory("/proc"),
        directory("/sys"),
        file((INIT, 0o755, init)),
        file((ORDERS, 0o644, &orders)),
    ];
    entries.extend(module.map(|module| file((MODULE, 0o644, module))));
    archive(&entries)
}

/// An archive of folders, `/dev` among them, and of files in them: path, permissions, content.
///
/// # Errors
///
/// A file is larger than the format allows (4 GiB).
pub fn userland<'a>(
    folders: &'a [&'a str],
    files: impl IntoIterator<Item = (&'a str, u32, &'a [u8])>,
) -> Result<Vec<u8>> {
    let folders = folders.iter().map(|path| Entry {
        path,
        kind: Kind::Directory,
    });
    let entries: Vec<_> = folders
        .chain([console()])
        .chain(files.into_iter().map(file))
        .collect();
    archive(&entries)
}

/// The kernel opens it as init's standard input and outputs before anything is mounted.
fn console() -> Entry<'static> {
    Entry {
        path: "/dev/console",
        kind: Kind::Device(5, 1),
    }
}

fn file<'a>((path, permissions, content): (&'a str, u32, &'a [u8])) -> Entry<'a> {
    Entry {
        path,
        kind: Kind::File {
            permissions,
            content,
        },
    }
}

/// An archive of files that are unpacked over another one: path, permissions, content. Their folders must be there.
///
/// # Errors
///
/// A file is larger than the format allows (4 GiB).
pub fn overlay<'a>(files: impl IntoIterator<Item = (&'a str, u32, &'a [u8])>) -> Result<Vec<u8>> {
    archive(&files.into_iter().map(file).collect::<Vec<_>>())
}

/// The entries as a newc archive: numbered in their order, owned by root, made at the beginning of time.
fn archive(entries: &[Entry<'_>]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        let Entry { path, kind } = entry;
        let builder = Builder::new(path.trim_start_matches('/'))
            .ino(number)
            .uid(0)
            .gid(0)
            .mtime(0)
            .nlink(1);
        let (builder, content) = match *kind {
            Kind::Directory => (
                builder
                    .mode(0o755)
                    .nlink(2)
                    .set_mode_file_type(ModeFileType::Directory),
                &[][..],
            ),
            Kind::Device(major, minor) => (
                builder
                    .mode(0o600)
                    .rdev_major(major)
                    .rdev_minor(minor)
                    .set_mode_file_type(ModeFileType::Char),
                &[][..],
            ),
            Kind::File {
                permissions,
                content,
            } => (
                builder
                    .mode(permissions)
                    .set_mode_file_type(ModeFileType::Regular),
                content,
            ),
        };
        let size = u32::try_from(content.len())
            .with_context(|| format!("{path} is too large for an initramfs"))?;
        let mut writer = builder.write(&mut bytes, size);
        writer
            .write_all(content)
            .and_then(|()| writer.finish().map(drop))
            .with_context(|| format!("cannot add {path} to the initramfs"))?;
    }
    newc::trailer(&mut bytes).context("cannot end the initramfs")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Task;

    fn orders() -> Orders {
        Orders {
            task: Task::Probe,
            line: "/dev/ttyS1".to_owned(),
        }
    }

    #[test]
    fn holds_what_a_guest_needs_in_a_fixed_order() {
        let bytes = build(b"\x7fELF", Some(b"module"), &orders()).unwrap();
        let mut rest = &bytes[..];
        let mut names = Vec::new();
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            assert_eq!(reader.entry().mtime(), 0);
            names.push((reader.entry().name().to_owned(), reader.entry().mode()));
            rest = reader.finish().unwrap();
        }
        let expected = [
            ("dev", 0o040_755),
            ("dev/console", 0o020_600),
            ("proc", 0o040_755),
            ("sys", 0o040_755),
            ("init", 0o100_755),
            ("orders.json", 0o100_644),
            ("messung.ko", 0o100_644),
        ];
        assert_eq!(names, expected.map(|(name, mode)| (name.to_owned(), mode)));
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        let build = || build(b"init", Some(b"module"), &orders()).unwrap();
        assert_eq!(build(), build());
    }
}
