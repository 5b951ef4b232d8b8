// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask bundle`: one archive with all that a real machine needs to measure a stock kernel.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use super::build::KernelOptions;
use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::kernel::module::{self, Program};
use crate::kernel::table::{Origin, Row};
use crate::kernel::{self, Info};
use crate::process::{Env, Interrupt};
use crate::ui::Ui;
use crate::writers::json;

/// The page that goes with it.
const PAGE: &str = include_str!("bundle/README.md");

/// What `bundle` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bundle                        for a PC with Debian's newest supported kernel
  cargo xtask bundle --kernel armmp         for a Raspberry Pi 2
  cargo xtask bundle --output pc.tar.gz     under another name

The archive holds messung.ko, a static xtask, and a page that says how to use them; its path is printed to standard output.")]
pub struct Options {
    #[command(flatten)]
    kernel: KernelOptions,
    /// The archive, instead of messung-RELEASE.tar.gz in this folder
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Builds what is in the archive, writes it, and prints where it is.
pub fn run(options: Options, ui: &Ui) -> Result<()> {
    let Options { kernel, output } = options;
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: ui,
        interrupt: &interrupt,
        slow_factor: kernel.slow_factor,
    };
    let (row, options) = kernel.resolve()?;
    refuse_built(row)?;
    let kernel = kernel::prepare(&env, row, &options)?;
    let path = output.unwrap_or_else(|| PathBuf::from(name(&kernel.info) + ".tar.gz"));
    let output = json::Output::create(&path)?;
    let read =
        |path: PathBuf| fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
    let module = module::stripped(&env, &kernel, &module::build(&env, &kernel)?)?;
    let program = read(module::program(&env, &kernel, Program::Board)?)?;
    let licence = read(module::repository().join("LICENSE"))?;
    env.emit(Event::Step(format!("writing {}", path.display())));
    let archive = archive(
        &name(&kernel.info),
        &[
            ("LICENSE", 0o644, &licence),
            ("README.md", 0o644, page(row, &kernel.info).as_bytes()),
            ("messung.ko", 0o644, &module),
            ("xtask", 0o755, &program),
        ],
    )?;
    output.write_bytes(&archive)?;
    ui.print(&format!("{}\n", path.display()))
}

/// A kernel that nobody can install is of no use on a real machine.
fn refuse_built(row: &Row) -> Result<()> {
    match row.origin {
        Origin::Stock => Ok(()),
        Origin::Built(_) => Err(Failure::error(
            Class::Usage,
            format!(
                "the kernel {} is built here for virtual machines and has no drivers: a bundle is for a kernel that Debian ships",
                row.name
            ),
        )),
    }
}

/// The folder in the archive, and the archive itself.
fn name(info: &Info) -> String {
    format!("messung-{}", info.release)
}

/// The page for a kernel.
fn page(row: &Row, info: &Info) -> String {
    PAGE.replace("{release}", &info.release)
        .replace("{architecture}", row.arch.debian)
        .replace("{suite}", &info.suite)
        .replace("{row}", row.name)
}

/// A compressed archive of a folder with these files: name, permissions, content. The same input gives the same bytes.
fn archive(folder: &str, files: &[(&str, u32, &[u8])]) -> Result<Vec<u8>> {
    // It writes no time of its own; which system it was made on would be written.
    const UNKNOWN_SYSTEM: u8 = 255;
    let gzip = GzBuilder::new()
        .operating_system(UNKNOWN_SYSTEM)
        .write(Vec::new(), Compression::best());
    let mut tar = tar::Builder::new(gzip);
    for (name, permissions, content) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(*permissions);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, format!("{folder}/{name}"), *content)
            .with_context(|| format!("cannot add {name} to the archive"))?;
    }
    tar.into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .context("cannot end the archive")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::kernel::table;

    fn info() -> Info {
        Info {
            release: "7.3.4+deb13-armmp".to_owned(),
            series: "7.3".to_owned(),
            suite: "a-suite".to_owned(),
            version: "1".to_owned(),
            rustc: "rustc 1.85.1".to_owned(),
            mirror: "a-mirror".to_owned(),
            tree: "a-tree".to_owned(),
            settings: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_page_is_for_one_kernel() {
        let row = &table::TABLE[0];
        let page = page(row, &info());
        assert!(!page.contains('{'), "{page}");
        assert!(
            page.contains("apt install -t a-suite linux-image-7.3.4+deb13-armmp"),
            "{page}"
        );
    }

    #[test]
    fn an_archive_unpacks_to_what_went_in_and_is_the_same_each_time() {
        let files: [(&str, u32, &[u8]); 2] = [("a.ko", 0o644, b"module"), ("x", 0o755, b"program")];
        let bytes = archive("messung-1", &files).unwrap();
        assert_eq!(bytes, archive("messung-1", &files).unwrap());
        let mut unpacked = tar::Archive::new(GzDecoder::new(&bytes[..]));
        let mut found = Vec::new();
        for entry in unpacked.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0));
            let path = entry.path().unwrap().display().to_string();
            found.push((path, header.mode().unwrap(), content));
        }
        let expected = [
            ("messung-1/a.ko", 0o644, "module"),
            ("messung-1/x", 0o755, "program"),
        ];
        assert_eq!(
            found,
            expected.map(|(path, mode, content)| (path.to_owned(), mode, content.to_owned()))
        );
    }

    #[test]
    fn a_kernel_that_is_built_has_no_bundle() {
        for row in table::TABLE {
            let is_stock = row.origin == Origin::Stock;
            assert_eq!(refuse_built(row).is_ok(), is_stock, "{}", row.name);
        }
    }
}
