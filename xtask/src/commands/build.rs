// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask build`: makes a kernel ready and builds messung.ko for it.

use std::path::PathBuf;

use crate::{
    doctor::{self, Route, machine::Machine},
    kernel::{self, module, table},
    process::{Env, Interrupt},
    ui::Ui,
};

/// Which kernel, and how it is fetched. Shared with `vm`.
#[derive(clap::Args)]
pub struct KernelOptions {
    /// The row of the table of kernels; amd64 where none is named, but `build` takes the running kernel
    #[arg(long, value_name = "ROW")]
    pub kernel: Option<String>,
    /// Debian's archive, instead of the mirror that this machine uses
    #[arg(long, value_name = "URL", value_parser = mirror)]
    pub mirror: Option<String>,
    /// Refuse an index of the archive that is past its date
    #[arg(long)]
    pub strict_dates: bool,
    /// Look for a newer release of the kernel
    #[arg(long)]
    pub refresh: bool,
    /// Multiply all deadlines, for slow machines
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub slow_factor: f64,
}

impl KernelOptions {
    /// The row, and the options of [`kernel::prepare`].
    ///
    /// # Errors
    ///
    /// There is no such row.
    pub fn resolve(self) -> anyhow::Result<(&'static table::Row, kernel::Options)> {
        let Self {
            kernel,
            mirror,
            strict_dates,
            refresh,
            slow_factor: _,
        } = self;
        let options = kernel::Options {
            mirror,
            strict_dates,
            refresh,
            release: None,
        };
        let row = match kernel {
            Some(name) => table::find(&name)?,
            None => &table::TABLE[0],
        };
        Ok((row, options))
    }
}

/// A factor for deadlines.
fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.01..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 0.01 to 1000 is needed".to_owned()),
    }
}

/// The URL of an archive. It becomes a word of apt's list of sources, so it must be one.
fn mirror(text: &str) -> Result<String, String> {
    let is_url = ["http://", "https://", "file:/"]
        .iter()
        .any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    let is_word = text
        .chars()
        .all(|c| c.is_ascii_graphic() && !matches!(c, '[' | ']' | '#'));
    if is_url && is_word {
        Ok(text.to_owned())
    } else {
        Err("a URL is needed that begins with http://, https:// or file:/".to_owned())
    }
}

/// What `build` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask build                       for the running kernel
  cargo xtask build --kernel amd64        for Debian's newest supported kernel
  cargo xtask build --kernel rt-amd64     for its real-time flavour
  cargo xtask build --kdir ~/linux/out    for a kernel folder of your own, with your own tools

The path of messung.ko is printed to standard output.")]
pub struct Options {
    #[command(flatten)]
    kernel: KernelOptions,
    /// A kernel folder of your own with Rust metadata; it is built for with the tools in PATH
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kernel", "mirror", "strict_dates", "refresh"])]
    kdir: Option<PathBuf>,
}

/// Builds, and prints where the module is.
pub fn run(options: Options, ui: &Ui) -> anyhow::Result<()> {
    let Options { kernel, kdir } = options;
    let interrupt = Interrupt::install()?;
    let env = Env {
        sink: ui,
        interrupt: &interrupt,
        slow_factor: kernel.slow_factor,
    };
    let module = match kdir {
        Some(kdir) => module::build_for_folder(&env, &kdir)?,
        None if kernel.kernel.is_none() => for_running_kernel(&env, kernel.resolve()?.1)?,
        None => {
            let (row, options) = kernel.resolve()?;
            for_row(&env, row, &options)?
        }
    };
    ui.print(&format!("{}\n", module.display()))
}

/// Builds for the running kernel: with this machine's tools where they fit, else in the build root, where the kernel is Debian's.
///
/// # Errors
///
/// Neither can be; or it does not build.
pub fn for_running_kernel(env: &Env<'_>, options: kernel::Options) -> anyhow::Result<PathBuf> {
    match doctor::route(env)? {
        Route::Make(kdir) => module::build_for_folder(env, &kdir),
        Route::BuildRoot(row) => {
            let release = Some(Machine::now().system.release);
            let options = kernel::Options { release, ..options };
            for_row(env, row, &options)
        }
    }
}

/// Builds in the build root.
fn for_row(
    env: &Env<'_>,
    row: &'static table::Row,
    options: &kernel::Options,
) -> anyhow::Result<PathBuf> {
    let (_, module) = kernel::ready(env, row, options, |kernel| module::build(env, kernel))?;
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::{factor, mirror};

    #[test]
    fn factors_make_sense() {
        assert_eq!(factor("2.5"), Ok(2.5));
        for text in ["0", "-1", "NaN", "inf", "x"] {
            assert!(factor(text).is_err(), "{text}");
        }
    }

    #[test]
    fn mirrors_are_urls() {
        assert!(mirror("http://mirror.example/debian").is_ok());
        assert!(mirror("file:/srv/mirror").is_ok());
        for text in [
            "nonsense",
            "",
            "http://",
            "http://a b",
            "[trusted=yes] http://a",
            "http://a\ndeb",
        ] {
            assert!(mirror(text).is_err(), "{text:?}");
        }
    }
}
