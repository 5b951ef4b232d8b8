// SPDX-License-Identifier: GPL-2.0

//! The kernel under test: chosen from the table, fetched from Debian, and made ready for a Rust module.

pub mod archive;
pub mod build_root;
pub mod folder;
pub mod module;
pub mod proof;
pub mod table;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    cache::{Cache, require_space},
    event::Event,
    failure::{Class, Failure},
    log::environment,
    process::Env,
};
use archive::{Archive, Refused, Suite};
use build_root::{RUST_PACKAGES, Recipe, Tree, hex};
use folder::Unpacked;
use table::{Offer, Release, Row};

/// How a kernel is fetched.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where Debian's archive is, instead of where this machine has it.
    pub mirror: Option<String>,
    /// Refuse an index that is past its date.
    pub strict_dates: bool,
    /// Look for a newer release.
    pub refresh: bool,
    /// Just this release, whatever is newer.
    pub release: Option<String>,
}

/// What is known of a kernel folder; `info.json` in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// `uname -r`.
    pub release: String,
    /// Such as `7.3`.
    pub series: String,
    /// The suite it came from.
    pub suite: String,
    /// Version of its packages.
    pub version: String,
    /// The rustc that built it, as `CONFIG_RUSTC_VERSION_TEXT` names it.
    pub rustc: String,
    /// The mirror it came from.
    pub mirror: String,
    /// Folder of the build root below `trees/`.
    pub tree: String,
    /// Hash of the settings that it was built with, where it was built and not unpacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// What to say in each result.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Which release a row is, since it was last looked up; `rows/<row>.json`.
#[derive(Serialize, Deserialize)]
struct Pinned {
    release: String,
}

/// A kernel that is ready. Holds the lock of the cache, so that nobody removes or replaces it meanwhile.
#[derive(Debug)]
pub struct Kernel {
    /// Its row of the table.
    pub row: &'static Row,
    /// What is known of it.
    pub info: Info,
    /// Its folder on the host.
    pub path: PathBuf,
    /// Its build root.
    pub tree: Tree,
    /// Where all of this is.
    pub cache: Cache,
}

impl Kernel {
    /// The image that boots.
    pub fn vmlinuz(&self) -> PathBuf {
        self.path.join("vmlinuz")
    }

    /// A device tree of its packages.
    pub fn device_tree(&self, name: &str) -> PathBuf {
        self.path.join("dtb").join(name)
    }

    /// Its CONFIG_HZ; the usual one where its configuration is not at hand. For estimates.
    pub fn hz(&self) -> u32 {
        environment::hz(&self.path.join("build/.config"))
    }

    /// Tells what is doubtful about it.
    fn warn(&self, env: &Env<'_>) {
        for warning in &self.info.warnings {
            env.emit(Event::Warning(warning.clone()));
        }
    }
}

/// Makes the kernel of a row ready, with the cache to itself as long as that is held. What the cache has is taken from there, and
/// no network is touched then.
///
/// # Errors
///
/// The archive has no such kernel or cannot be reached, the build root cannot be made, a proof fails, or the user interrupts.
pub fn prepare(env: &Env<'_>, row: &'static Row, options: &Options) -> Result<Kernel> {
    let kernel = in_cache(env, Cache::open(env)?, row, options)?;
    kernel.warn(env);
    Ok(kernel)
}

/// The same, with what `build` builds for the kernel; others may use the cache at the same time then, but not change it.
///
/// # Errors
///
/// See [`prepare`], and those of `build`.
pub fn ready<T>(
    env: &Env<'_>,
    row: &'static Row,
    options: &Options,
    build: impl Fn(&Kernel) -> Result<T>,
) -> Result<(Kernel, T)> {
    let mut options = options.clone();
    let mut warned = false;
    Cache::ready(env, |cache| {
        let kernel = in_cache(env, cache, row, &options)?;
        // It has been looked for.
        options.refresh = false;
        if !warned {
            kernel.warn(env);
            warned = true;
        }
        let built = build(&kernel)?;
        Ok((kernel, built))
    })
}

/// The kernel of a row, made where the cache lacks it.
fn in_cache(env: &Env<'_>, cache: Cache, row: &'static Row, options: &Options) -> Result<Kernel> {
    let wanted = options.release.as_deref();
    let cached = cached(&cache.join(""), row, wanted).filter(|_| !options.refresh);
    if let Some(info) = cached {
        return kernel(cache, row, info);
    }
    if Tree::is_overridden() {
        bail!("the cache holds no kernel {}", row.name);
    }
    cache.may_change()?;
    build_root::ensure_namespaces(env)?;
    build_root::ensure_host_tools(env)?;
    let archive = Archive::open(*env, &cache, row.arch.debian, options)?;
    let info = fetch(env, &cache, &archive, row, wanted)?;
    if wanted.is_none() {
        let pinned = Pinned {
            release: info.release.clone(),
        };
        cache.write(row_file(row), &json(&pinned)?)?;
    }
    kernel(cache, row, info)
}

/// Puts together what is ready.
fn kernel(cache: Cache, row: &'static Row, info: Info) -> Result<Kernel> {
    Ok(Kernel {
        row,
        path: cache.join(kernel_folder(&info.release)),
        tree: Tree::named(&cache, &info.tree)?,
        info,
        cache,
    })
}

/// The kernel that a cache folder has for a row, or for just that release of it, if it has all of it.
fn cached(cache: &Path, row: &Row, release: Option<&str>) -> Option<Info> {
    let pinned = || read_json::<Pinned>(&cache.join(row_file(row))).map(|pinned| pinned.release);
    let release = release.map(str::to_owned).or_else(pinned)?;
    let info: Info = read_json(&cache.join(kernel_folder(&release)).join("info.json"))?;
    let is_whole = is_up_to_date(cache, row, &info) || Tree::is_overridden();
    is_whole.then_some(info)
}

/// Whether a cache folder has all of a row's kernel. It may be gone again at once: nothing is locked.
pub fn is_in_cache(cache: &Path, row: &Row) -> bool {
    cached(cache, row, None).is_some()
}

/// Whether a kernel was built as its row asks for now, if it was built, and its build root is there.
fn is_up_to_date(cache: &Path, row: &Row, info: &Info) -> bool {
    info.settings == settings_hash(row) && cache.join(format!("trees/{}", info.tree)).is_dir()
}

/// Names the settings of a kernel that is built.
fn settings_hash(row: &Row) -> Option<String> {
    Some(hex(&Sha256::digest(row.settings()?)))
}

/// Looks for the best release in the row's suites, in order, and makes all that is missing for it.
fn fetch(
    env: &Env<'_>,
    cache: &Cache,
    archive: &Archive<'_>,
    row: &'static Row,
    wanted: Option<&str>,
) -> Result<Info> {
    let mut looked = Looked {
        wanted,
        ..Looked::default()
    };
    // Most often the first suite will do, and the others need not be looked at.
    for source in row.sources {
        looked.look(archive, row, source)?;
        if !matches!(looked.offers.last(), Some(Offer::Accepted(_))) {
            continue;
        }
        match looked.attempt(env, cache, archive, row) {
            Ok(info) => return Ok(info),
            Err(error) if Failure::class_of(&error) != Class::NotMeasured => return Err(error),
            Err(error) => {
                let is_last = row.sources.last() == Some(source);
                if is_last || !is_refusal(&error) {
                    return Err(error);
                }
                looked.refuse(format!("{error:#}"));
            }
        }
    }
    looked.attempt(env, cache, archive, row)
}

/// Whether an error speaks against one suite, not against the machine: the next suite may do.
fn is_refusal(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Refused>())
}

/// What has been seen of a row's suites so far.
#[derive(Default)]
struct Looked<'a> {
    /// Just this release, where one is wanted.
    wanted: Option<&'a str>,
    offers: Vec<Offer>,
    /// The kernel's suite and those of its build root, where all of them are usable.
    suites: Vec<Option<(Suite, Vec<Suite>)>>,
    warnings: Vec<String>,
}

impl Looked<'_> {
    /// Looks at one more of a row's suites.
    fn look(&mut self, archive: &Archive<'_>, row: &Row, source: &table::Source) -> Result<()> {
        let mut root = Vec::new();
        for name in source.root {
            match archive.update(name)? {
                Ok(suite) => root.push(suite),
                Err(why) => {
                    self.offers.push(Offer::None);
                    self.suites.push(None);
                    self.warnings.push(why);
                    return Ok(());
                }
            }
        }
        let suite = root
            .iter()
            .find(|suite| suite.name == source.suite)
            .cloned()
            .with_context(|| format!("the table names {} without its root", source.suite))?;
        let mut releases = archive.releases(&suite, row.flavour)?;
        releases.retain(|release| self.wanted.is_none_or(|wanted| release.name == wanted));
        self.offers.push(table::offer(row, &releases));
        self.suites.push(Some((suite, root)));
        Ok(())
    }

    /// Never again offers the suite that was looked at last, and says why.
    fn refuse(&mut self, why: String) {
        self.warnings.push(why);
        if let Some(last) = self.offers.last_mut() {
            *last = Offer::None;
        }
    }

    /// Makes the best of what has been offered.
    fn attempt(
        &self,
        env: &Env<'_>,
        cache: &Cache,
        archive: &Archive<'_>,
        row: &'static Row,
    ) -> Result<Info> {
        let (place, release, warning) = table::choose(row, &self.offers).map_err(|error| {
            let error = match self.wanted {
                Some(wanted) => error.context(format!(
                    "Debian's archive does not have the kernel {wanted}: upgrade, and boot the kernel that comes with that"
                )),
                None => error,
            };
            // What was refused explains why nothing was found.
            self.warnings
                .iter()
                .fold(error, |error, why| error.context(why.clone()))
        })?;
        let (suite, root) = self.suites[place]
            .as_ref()
            .context("a suite that was refused was chosen")?;
        let mut warnings = self.warnings.clone();
        warnings.extend(root.iter().filter_map(|suite| suite.warning.clone()));
        warnings.extend(warning.clone());
        make(env, cache, archive, row, &release, suite, root, warnings).with_context(|| {
            if warning.is_some() {
                format!("the kernel {} is not supported yet", release.name)
            } else {
                format!("making the kernel {} ready", release.name)
            }
        })
    }
}

/// Makes the kernel folder and the build root of a release, unless the cache has them.
#[allow(
    clippy::too_many_arguments,
    reason = "all of it is decided by the caller, and nothing twice"
)]
fn make(
    env: &Env<'_>,
    cache: &Cache,
    archive: &Archive<'_>,
    row: &Row,
    release: &Release,
    suite: &Suite,
    root: &[Suite],
    warnings: Vec<String>,
) -> Result<Info> {
    let headers = format!("linux-headers-{}", release.name);
    let version = archive
        .versions(suite, &headers)?
        .into_iter()
        .next()
        .with_context(|| format!("suite {} has no version of {headers}", suite.name))?
        .version;
    let name = row.release(release);
    let folder = kernel_folder(&name);
    let here = read_json::<Info>(&cache.join(&folder).join("info.json"))
        .filter(|info| info.version == version && is_up_to_date(&cache.join(""), row, info));
    if let Some(info) = here {
        return Ok(info);
    }

    require_space(&cache.join(""), folder::bytes(row), "the kernel folder")?;
    let downloads = cache.scratch("downloads")?;
    env.emit(Event::Step(format!(
        "downloading the kernel {}",
        release.name
    )));
    archive.download(
        suite,
        "the kernel",
        &folder::packages(row, release, &version),
        downloads.path(),
    )?;
    let unpacked = Unpacked::new(env, downloads.path(), release)?;
    let rustc = proof::rustc_text(&unpacked.config)?.to_owned();

    let recipe = Recipe {
        arch: row.arch,
        suites: root.to_vec(),
        rust: rust_package_version(archive, root, &rustc)?,
        compiler: unpacked.compiler.clone(),
    };
    let tree = Tree::ensure(env, cache, &recipe, archive)?;
    let info = Info {
        release: name,
        series: release.series().to_string(),
        suite: suite.name.clone(),
        version,
        rustc,
        mirror: archive.mirror().to_owned(),
        tree: recipe.name(),
        settings: settings_hash(row),
        warnings,
    };
    cache.whole(&folder, |path| {
        unpacked.build(env, &tree, row, path)?;
        let info_file = path.join("info.json");
        fs::write(&info_file, json(&info)?)
            .with_context(|| format!("cannot write {}", info_file.display()))
    })?;
    Ok(info)
}

/// The version of Debian's Rust packages that is the rustc of the kernel.
fn rust_package_version(archive: &Archive<'_>, root: &[Suite], rustc: &str) -> Result<String> {
    let wanted = proof::rustc_version(rustc)
        .with_context(|| format!("the kernel names its rustc in an unknown way: {rustc:?}"))?;
    let mut seen = Vec::new();
    for suite in root {
        for version in archive.versions(suite, RUST_PACKAGES[0])? {
            if version.upstream == wanted {
                return Ok(version.version);
            }
            seen.push(format!("{} in {}", version.upstream, suite.name));
        }
    }
    let last = root.last().map_or("", |suite| suite.name.as_str());
    Err(Refused::error(format!(
        "suite {last} does not have the rustc {wanted} that built its kernel; it has {}",
        seen.join(", ")
    )))
}

fn row_file(row: &Row) -> PathBuf {
    Path::new("rows").join(format!("{}.json", row.name))
}

fn kernel_folder(release: &str) -> PathBuf {
    Path::new("kernels").join(release)
}

fn json(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n")
}

/// A JSON file, if it is there and whole. One that is not is made again.
fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}
