// SPDX-License-Identifier: GPL-2.0

//! Debian's archive, seen through the host's own apt with a state of its own below the cache: signatures and hashes are
//! checked by apt, no right is needed, and the machine's own package lists stay untouched.
//!
//! A suite is updated alone, so that what is wrong with it is known to be wrong with it, and another one can be tried.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    cache::{Cache, require_space},
    event::{Event, Unit},
    failure::{Class, Failure},
    kernel::{Options, table::Release},
    process::{Env, tied},
};

/// Debian's own keys, from the package debian-archive-keyring.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One update of one suite.
const UPDATE_DEADLINE: Duration = Duration::from_secs(300);

/// All downloads of one thing: those of a kernel are the largest.
const DOWNLOAD_DEADLINE: Duration = Duration::from_secs(1200);

/// Work on what is already here.
const QUERY_DEADLINE: Duration = Duration::from_secs(60);

/// The archive as one mirror shows it for one architecture.
pub struct Archive<'a> {
    env: Env<'a>,
    folder: PathBuf,
    mirror: String,
    strict_dates: bool,
    /// How the machine's own apt reaches the network, as lines of configuration.
    network: Vec<String>,
    /// What came of the suites that were updated: none is fetched twice.
    updated: RefCell<BTreeMap<String, std::result::Result<Suite, String>>>,
}

/// A suite whose index is here and trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// What to say of it in the result.
    pub warning: Option<String>,
    /// Its lines for `sources.list`.
    pub line: String,
}

/// A version of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Debian's version.
    pub version: String,
    /// Its upstream part.
    pub upstream: String,
}

/// Why apt refused a suite or a file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Signed, but past its date.
    Expired(String),
    /// Not signed by Debian, or changed since: apt's sentence, which names the file.
    Signature(String),
    /// Another content than the signed index says: the file.
    Hash(String),
    /// The mirror does not have the suite, or a file that its index names: apt's sentence.
    Missing(String),
    /// The mirror cannot be reached: apt's sentence.
    Unreachable(String),
}

/// An error that speaks against one suite, as opposed to this machine or the whole archive.
#[derive(Debug)]
pub struct Refused(String);

impl Refused {
    /// With a sentence that names the suite and what is wrong.
    pub fn error(why: String) -> anyhow::Error {
        anyhow::Error::new(Self(why))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl<'a> Archive<'a> {
    /// Sets up apt's own world for an architecture. Touches no network.
    ///
    /// # Errors
    ///
    /// apt or Debian's keys are missing, or no mirror is known.
    pub fn open(env: Env<'a>, cache: &Cache, arch: &str, options: &Options) -> Result<Self> {
        let mirror = match &options.mirror {
            Some(mirror) => mirror.trim_end_matches('/').to_owned(),
            None => default_mirror(&env)?,
        };
        // Another mirror is another world: what one of them serves must not be taken for the other's.
        let folder = cache.join(format!("archive/{arch}-{}", slug(&mirror)));
        for name in ["etc/none", "lists/partial", "archives/partial"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let inherited = env.output(
            command(
                "apt-config",
                &["dump", "--format", "%F \"%v\";%n", "Acquire"],
            ),
            "reading apt's configuration",
            Some(QUERY_DEADLINE),
        )?;
        let network = ways_to_network(&inherited);
        let archive = Self {
            env,
            folder,
            mirror,
            strict_dates: options.strict_dates,
            network,
            updated: RefCell::default(),
        };
        archive.write("status", "")?;
        archive.write(
            "apt.conf",
            &configuration(&archive.folder, arch, &archive.network),
        )?;
        Ok(archive)
    }

    /// The mirror in use.
    pub fn mirror(&self) -> &str {
        &self.mirror
    }

    /// How the machine's own apt reaches the network, as lines of configuration.
    pub fn network(&self) -> &[String] {
        &self.network
    }

    /// Fetches the index of a suite. `Err` inside `Ok` is a refusal of just this suite: another one may do.
    ///
    /// # Errors
    ///
    /// The mirror cannot be reached, or apt cannot work at all.
    pub fn update(&self, suite: &str) -> Result<std::result::Result<Suite, String>> {
        let known = self.updated.borrow().get(suite).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let result = self.fetch_index(suite)?;
        let mut updated = self.updated.borrow_mut();
        updated.insert(suite.to_owned(), result.clone());
        Ok(result)
    }

    /// [`Self::update`] for a suite that is not here yet.
    fn fetch_index(&self, suite: &str) -> Result<std::result::Result<Suite, String>> {
        self.env
            .emit(Event::Step(format!("fetching the index of {suite}")));
        // Indices without their compressed packing, and what apt unpacks while it works.
        require_space(&self.folder, 200_000_000, "the archive's index")?;
        let line = |option: &str| {
            format!(
                "deb [signed-by={KEYRING}{option}] {} {suite} main\n",
                self.mirror
            )
        };
        let strict = line("");
        let refusal = match self.try_update(suite, &strict)? {
            Ok(()) => {
                return Ok(Ok(Suite {
                    name: suite.to_owned(),
                    warning: None,
                    line: strict,
                }));
            }
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::Expired(_) if !self.strict_dates => {}
            Refusal::Expired(text) => {
                return Ok(Err(format!(
                    "suite {suite} is refused because of --strict-dates: {text}"
                )));
            }
            Refusal::Unreachable(text) => bail!(
                "the archive cannot be reached: {text}; check the network, or name a mirror with --mirror"
            ),
            Refusal::Signature(text) => {
                return Ok(Err(format!(
                    "suite {suite} is refused, its signature is not valid: {text}"
                )));
            }
            Refusal::Hash(file) => {
                return Ok(Err(format!(
                    "suite {suite} is refused, {file} is not what the signed index says"
                )));
            }
            Refusal::Missing(text) => {
                return Ok(Err(format!(
                    "the mirror does not have suite {suite}, or not all of it: {text}"
                )));
            }
        }
        let lenient = line(" check-valid-until=no");
        match self.try_update(suite, &lenient)? {
            Ok(()) => Ok(Ok(Suite {
                name: suite.to_owned(),
                warning: Some(self.expiry_warning(suite)),
                line: lenient,
            })),
            Err(refusal) => Ok(Err(format!("suite {suite} is refused: {refusal:?}"))),
        }
    }

    /// Runs apt's update for one line of sources.
    fn try_update(&self, suite: &str, line: &str) -> Result<std::result::Result<(), Refusal>> {
        self.write(&format!("etc/{suite}.list"), line)?;
        let mut command = self.apt("apt-get", suite);
        command.args(["update", "-o", "APT::Update::Error-Mode=any"]);
        let mut lines = Vec::new();
        let result = self.env.watch(
            command,
            &format!("fetching the index of {suite}"),
            Some(UPDATE_DEADLINE),
            &mut |_, line| lines.push(line.to_owned()),
        );
        match result {
            Ok(_) => Ok(Ok(())),
            Err(error) if Failure::class_of(&error) == Class::NotMeasured => {
                refusal(&lines).map(Err).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Names the date past which a suite is.
    fn expiry_warning(&self, suite: &str) -> String {
        let ending = format!("_dists_{suite}_InRelease");
        let date = fs::read_dir(self.folder.join("lists"))
            .into_iter()
            .flatten()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().ends_with(&ending))
            .and_then(|entry| fs::read_to_string(entry.path()).ok())
            .and_then(|text| valid_until(&text));
        format!(
            "the index of {suite} is past its date (valid until {}); it is signed, so it is used",
            date.as_deref().unwrap_or("an unknown date")
        )
    }

    /// The releases of a flavour whose headers a suite holds.
    ///
    /// # Errors
    ///
    /// apt cannot read its index.
    pub fn releases(&self, suite: &Suite, flavour: &str) -> Result<Vec<Release>> {
        let mut command = self.apt("apt-cache", &suite.name);
        command.args(["pkgnames", "linux-headers-"]);
        let names = self
            .env
            .output(command, "listing kernels", Some(QUERY_DEADLINE))?;
        Ok(names
            .lines()
            .filter_map(|name| Release::of_headers(name.trim(), flavour))
            .collect())
    }

    /// The versions of a package that a suite holds, newest first.
    ///
    /// # Errors
    ///
    /// apt cannot read its index.
    pub fn versions(&self, suite: &Suite, package: &str) -> Result<Vec<Version>> {
        let mut command = self.apt("apt-cache", &suite.name);
        command.args(["madison", package]);
        let table = self
            .env
            .output(command, "listing versions", Some(QUERY_DEADLINE))?;
        Ok(madison(&table))
    }

    /// Downloads packages of `what`, each `name=version`, into a folder; apt checks their hashes.
    ///
    /// # Errors
    ///
    /// A package is not there, has another hash than its index says (the message names it), or the disk is full.
    pub fn download(
        &self,
        suite: &Suite,
        what: &str,
        packages: &[String],
        folder: &Path,
    ) -> Result<()> {
        let label = format!("downloading {what}");
        let sizes = {
            let mut command = self.apt("apt-get", &suite.name);
            command.args(["download", "--print-uris"]).args(packages);
            self.env
                .output(command, "looking up packages", Some(QUERY_DEADLINE))?
        };
        let sizes: Vec<u64> = sizes.lines().filter_map(uri_size).collect();
        let total: u64 = sizes.iter().sum();
        require_space(folder, total, &label)?;

        let mut command = self.apt("apt-get", &suite.name);
        command
            .args(["download", "-o", "APT::Status-Fd=1"])
            .args(packages)
            .current_dir(folder);
        let mut lines = Vec::new();
        let result =
            self.env
                .watch(command, &label, Some(DOWNLOAD_DEADLINE), &mut |_, line| {
                    match download_percent(line) {
                        Some(percent) => self.env.emit(Event::Progress {
                            done: (total as f64 * percent / 100.0) as u64,
                            total: Some(total),
                            unit: Unit::Bytes,
                        }),
                        None => lines.push(line.to_owned()),
                    }
                });
        match result {
            Ok(_) => Ok(()),
            Err(error) => Err(match refusal(&lines) {
                Some(Refusal::Hash(file)) => Refused::error(format!(
                    "suite {} is refused, {file} is not what the signed index says",
                    suite.name
                )),
                // A mirror may be ahead with the index, or behind with what it names.
                Some(Refusal::Missing(text)) => Refused::error(format!(
                    "suite {} is refused, the mirror does not have what its index names: {text}",
                    suite.name
                )),
                Some(Refusal::Unreachable(text)) => {
                    anyhow!("the archive cannot be reached: {text}")
                }
                _ => error,
            }),
        }
    }

    /// Downloads the newest version of a package into a folder that is for it alone, and unpacks it. Tells where that is.
    ///
    /// # Errors
    ///
    /// The suite has no such package; or see [`Self::download`].
    pub fn unpack_newest(&self, suite: &Suite, package: &str, folder: &Path) -> Result<PathBuf> {
        let version = self
            .versions(suite, package)?
            .into_iter()
            .next()
            .with_context(|| format!("suite {} has no {package}", suite.name))?
            .version;
        self.download(suite, package, &[format!("{package}={version}")], folder)?;
        let deb = fs::read_dir(folder)
            .with_context(|| format!("cannot read {}", folder.display()))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == "deb"))
            .with_context(|| format!("apt downloaded no package {package}"))?;
        let unpacked = folder.join("x");
        let mut unpack = tied("dpkg-deb", "KILL");
        unpack.arg("--extract").arg(deb).arg(&unpacked);
        self.env.run(
            unpack,
            &format!("unpacking {package}"),
            Some(QUERY_DEADLINE),
        )?;
        Ok(unpacked)
    }

    /// A command of apt that sees just this world and one list of sources.
    fn apt(&self, program: &str, list: &str) -> Command {
        let mut command = command(program, &[]);
        command
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .arg("-o")
            .arg(format!(
                "Dir::Etc::sourcelist={}",
                self.folder.join(format!("etc/{list}.list")).display()
            ));
        command
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A command whose output is in English.
fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").args(args);
    command
}

/// apt's configuration: all folders our own, only the ways to the network inherited.
fn configuration(folder: &Path, arch: &str, network: &[String]) -> String {
    let folder = folder.display();
    let mut text = format!(
        r#"Dir "{folder}";
Dir::Etc "{folder}/etc";
Dir::Etc::parts "{folder}/etc/none";
Dir::Etc::sourceparts "{folder}/etc/none";
Dir::Etc::trusted "{KEYRING}";
Dir::Etc::trustedparts "{folder}/etc/none";
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "{folder}";
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Get::List-Cleanup "false";
APT::Sandbox::User "";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::Check-Valid-Until "true";
"#
    );
    for line in network {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The lines of the machine's apt configuration that tell how to reach the network (proxies, authorities).
fn ways_to_network(configuration: &str) -> Vec<String> {
    let prefixes = ["Acquire::http::", "Acquire::https::", "Acquire::ForceIPv"];
    let tells = |line: &&str| prefixes.iter().any(|prefix| line.starts_with(prefix));
    configuration
        .lines()
        .filter(tells)
        .map(str::to_owned)
        .collect()
}

/// The mirror that this machine uses: that of its own apt if it is Debian, else what mmdebstrap would take.
fn default_mirror(env: &Env<'_>) -> Result<String> {
    let targets = env.output(
        command(
            "apt-get",
            &["indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"],
        ),
        "reading apt's configuration",
        Some(QUERY_DEADLINE),
    );
    if let Some(mirror) = targets.ok().and_then(|targets| debian_mirror(&targets)) {
        return Ok(mirror);
    }
    // The hook runs before any network is touched, and its failure ends mmdebstrap right there.
    let hook =
        r#"--setup-hook=cat "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*; exit 1"#;
    let mut lines = Vec::new();
    let result = env.watch(
        command(
            "mmdebstrap",
            &["--variant=custom", hook, "trixie", "/dev/null"],
        ),
        "asking mmdebstrap for its mirror",
        Some(QUERY_DEADLINE),
        &mut |_, line| lines.push(line.to_owned()),
    );
    lines
        .iter()
        .find_map(|line| mirror_of_source(line))
        .ok_or_else(|| match result {
            Err(error) => error.context("no mirror is known; name one with --mirror"),
            Ok(_) => anyhow!("mmdebstrap names no mirror; name one with --mirror"),
        })
}

/// The mirror that would be used, if it answers: its index of Debian's current release is fetched, and thrown away.
///
/// # Errors
///
/// No mirror is known, or it does not answer.
pub fn reach_mirror(env: &Env<'_>) -> Result<String> {
    const HELPER: &str = "/usr/lib/apt/apt-helper";
    let mirror = default_mirror(env)?;
    let folder = tempfile::tempdir().context("cannot make a folder for a download")?;
    let mut command = command(HELPER, &["-o", "Acquire::http::Timeout=10"]);
    command
        .args([
            "-o",
            "Acquire::https::Timeout=10",
            "-o",
            "Acquire::Retries=0",
        ])
        .args(["-o", "APT::Sandbox::User=", "download-file"])
        .arg(format!("{mirror}/dists/stable/InRelease"))
        .arg(folder.path().join("InRelease"));
    env.run(command, "asking the mirror", Some(QUERY_DEADLINE))
        .with_context(|| format!("the mirror {mirror} does not answer"))?;
    Ok(mirror)
}

/// The first repository that is Debian's own.
fn debian_mirror(targets: &str) -> Option<String> {
    targets
        .lines()
        .filter_map(|line| line.strip_suffix(" Debian Debian"))
        .map(|uri| uri.trim_end_matches('/').to_owned())
        .next()
}

/// The mirror in a line of `sources.list`.
fn mirror_of_source(line: &str) -> Option<String> {
    let rest = line.strip_prefix("deb ")?;
    let rest = match rest.trim_start().strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    let uri = rest.split_whitespace().next()?;
    uri.contains("://")
        .then(|| uri.trim_end_matches('/').to_owned())
}

/// Why apt failed, from what it printed.
pub fn refusal(lines: &[String]) -> Option<Refusal> {
    // apt's own sentences name more than what a method told it, which comes before them.
    let is_told = |line: &&String| line.starts_with("E: ") || line.starts_with("W: ");
    let find = |parts: &[&str]| {
        let told = lines.iter().filter(is_told);
        told.chain(lines)
            .map(|line| sentence(line))
            .find(|line| parts.iter().any(|part| line.contains(part)))
    };
    if let Some(line) = find(&["Hash Sum mismatch", "File has unexpected size"]) {
        // "Failed to fetch URL  Hash Sum mismatch", or the short form "Err:4 URL suite/main amd64 Packages".
        let failed = lines.iter().find_map(|line| {
            sentence(line)
                .strip_prefix("Failed to fetch ")?
                .split_whitespace()
                .next()
                .map(str::to_owned)
        });
        return Some(Refusal::Hash(failed.unwrap_or(line)));
    }
    find(&["is expired (invalid since"])
        .map(Refusal::Expired)
        .or_else(|| {
            find(&[
                "GPG error",
                "signatures",
                "is not signed",
                "NOSPLIT",
                "is not valid yet",
            ])
            .map(Refusal::Signature)
        })
        .or_else(|| find(&["does not have a Release file", "404 Not Found"]).map(Refusal::Missing))
        .or_else(|| {
            find(&["Failed to fetch", "Could not resolve", "Could not connect"])
                .map(Refusal::Unreachable)
        })
}

/// A line of apt without its letter and extra blanks.
fn sentence(line: &str) -> String {
    let line = line.trim();
    let line = line
        .strip_prefix("E: ")
        .or_else(|| line.strip_prefix("W: "))
        .unwrap_or(line);
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The date of an InRelease file.
fn valid_until(release: &str) -> Option<String> {
    let mut lines = release.lines();
    lines.find_map(|line| Some(line.strip_prefix("Valid-Until:")?.trim().to_owned()))
}

/// The versions in the output of `apt-cache madison`.
fn madison(table: &str) -> Vec<Version> {
    let mut versions: Vec<Version> = Vec::new();
    for line in table.lines() {
        let mut columns = line.split('|').map(str::trim);
        let (Some(_), Some(version), Some(origin)) =
            (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        if origin.ends_with("Sources") || versions.iter().any(|known| known.version == version) {
            continue;
        }
        versions.push(Version {
            version: version.to_owned(),
            upstream: upstream(version).to_owned(),
        });
    }
    versions
}

/// The upstream part of a Debian version: no epoch, no revision, no repacking.
pub fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(rest, _)| rest);
    version
        .split_once(['+', '~'])
        .map_or(version, |(rest, _)| rest)
}

/// The size in a line of `apt-get download --print-uris`.
fn uri_size(line: &str) -> Option<u64> {
    line.strip_prefix('\'')?
        .split_whitespace()
        .nth(2)?
        .parse()
        .ok()
}

/// How far a download is, from apt's status lines.
fn download_percent(line: &str) -> Option<f64> {
    line.strip_prefix("dlstatus:")?
        .split(':')
        .nth(1)?
        .parse()
        .ok()
}

/// A name for a folder from a URL.
fn slug(url: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    url.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    // What apt 2.6 and 3.0 print; only the host is another one.
    const EXPIRED: &str = "\
Get:3 http://mirror.example/debian sid InRelease [193 kB]
Reading package lists...
E: Release file for http://mirror.example/debian/dists/sid/InRelease is expired (invalid since 24d 14h 0min 5s). Updates for this repository will not be applied.";
    const REFUSED: &str = "\
Err:1 http://127.0.0.1:9/debian trixie InRelease
  Could not connect to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection refused)
Reading package lists...
E: Failed to fetch http://127.0.0.1:9/debian/dists/trixie/InRelease  Could not connect to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection refused)
E: Some index files failed to download. They have been ignored, or old ones used instead.";
    const OFFLINE: &str = "\
Err:1 http://mirror.example/debian trixie-backports InRelease
  Temporary failure resolving 'mirror.example'
Reading package lists...
E: Failed to fetch http://mirror.example/debian/dists/trixie-backports/InRelease  Temporary failure resolving 'mirror.example'
E: Some index files failed to download. They have been ignored, or old ones used instead.";
    const NO_SUITE: &str = "\
Ign:1 http://mirror.example/debian nosuite InRelease
Err:2 http://mirror.example/debian nosuite Release
  404  Not Found [IP: 203.0.113.80 80]
Reading package lists...
E: The repository 'http://mirror.example/debian nosuite Release' does not have a Release file.";
    const NO_PACKAGE: &str = "\
Err:1 http://mirror.example/debian trixie-backports/main armhf linux-base-7.3.4+deb13-armmp armhf 7.3.4-1~bpo13+1
  404  Not Found [IP: 203.0.113.80 80]
E: Failed to fetch http://mirror.example/debian/pool/main/l/linux/linux-base-7.3.4%2bdeb13-armmp_7.3.4-1%7ebpo13%2b1_armhf.deb  404  Not Found [IP: 203.0.113.80 80]";
    const NO_KEY: &str = "\
Get:1 http://mirror.example/debian trixie-backports InRelease [54.0 kB]
Err:1 http://mirror.example/debian trixie-backports InRelease
  The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 6ED0E7B82643E131 NO_PUBKEY 78DBA3BC47EF2265
Reading package lists...
W: GPG error: http://mirror.example/debian trixie-backports InRelease: The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 6ED0E7B82643E131 NO_PUBKEY 78DBA3BC47EF2265
E: The repository 'http://mirror.example/debian trixie-backports InRelease' is not signed.";

    const WRONG_SIZE: &str = "\
Err:2 http://127.0.0.1:8099/debian trixie-backports/main amd64 Packages
  File has unexpected size (7000 != 318296). Mirror sync in progress? [IP: 127.0.0.1 8099]
  Hashes of expected file:
   - Filesize:318296 [weak]
E: Failed to fetch http://127.0.0.1:8099/debian/dists/trixie-backports/main/binary-amd64/by-hash/SHA256/bfaf98fd  File has unexpected size (7000 != 318296). Mirror sync in progress? [IP: 127.0.0.1 8099]
   Hashes of expected file:
E: Some index files failed to download. They have been ignored, or old ones used instead.";

    #[test]
    fn refusals_are_told_apart() {
        let file = "http://127.0.0.1:8099/debian/dists/trixie-backports/main/binary-amd64/by-hash/SHA256/bfaf98fd";
        assert_eq!(
            refusal(&lines(WRONG_SIZE)),
            Some(Refusal::Hash(file.to_owned()))
        );
        let wrong_hash = WRONG_SIZE.replace(
            "File has unexpected size (7000 != 318296). Mirror sync in progress? [IP: 127.0.0.1 8099]",
            "Hash Sum mismatch",
        );
        assert_eq!(
            refusal(&lines(&wrong_hash)),
            Some(Refusal::Hash(file.to_owned()))
        );
        assert!(
            matches!(refusal(&lines(EXPIRED)), Some(Refusal::Expired(text)) if text.contains("dists/sid/InRelease"))
        );
        assert!(
            matches!(refusal(&lines(REFUSED)), Some(Refusal::Unreachable(text)) if text.contains("Connection refused"))
        );
        assert!(
            matches!(refusal(&lines(OFFLINE)), Some(Refusal::Unreachable(text)) if text.contains("mirror.example"))
        );
        assert!(matches!(
            refusal(&lines(NO_SUITE)),
            Some(Refusal::Missing(_))
        ));
        assert!(
            matches!(refusal(&lines(NO_PACKAGE)), Some(Refusal::Missing(text)) if text.contains("_armhf.deb"))
        );
        assert!(
            matches!(refusal(&lines(NO_KEY)), Some(Refusal::Signature(text)) if text.contains("trixie-backports"))
        );
        assert_eq!(refusal(&lines("E: something else")), None);
    }

    #[test]
    fn only_debian_itself_is_a_mirror() {
        let targets = "\
http://mirror.example/debian-security/ Debian Debian-Security
http://other.example/ubuntu/ Ubuntu Ubuntu
http://mirror.example/debian/ Debian Debian
http://mirror.example/debian/ Debian Debian";
        assert_eq!(
            debian_mirror(targets).unwrap(),
            "http://mirror.example/debian"
        );
        assert_eq!(
            debian_mirror("http://other.example/ubuntu/ Ubuntu Ubuntu"),
            None
        );
    }

    #[test]
    fn a_mirror_is_read_from_sources() {
        for line in [
            "deb http://mirror.example/debian trixie main",
            "deb [signed-by=\"/usr/share/keyrings/x.gpg\"] http://mirror.example/debian/ trixie main",
        ] {
            assert_eq!(
                mirror_of_source(line).unwrap(),
                "http://mirror.example/debian"
            );
        }
        assert_eq!(mirror_of_source("I: running setup-hook"), None);
    }

    #[test]
    fn versions_come_from_madison() {
        let table = "     rustc | 1.97.1+dfsg1-1~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages
     rustc | 1.85.1+dfsg1-1+deb13u1 | http://mirror.example/debian trixie/main amd64 Packages
     rustc | 1.85.1+dfsg1-1+deb13u1 | http://mirror.example/debian trixie/main Sources
";
        let versions = madison(table);
        assert_eq!(versions.len(), 2);
        assert_eq!(versions[1].version, "1.85.1+dfsg1-1+deb13u1");
        assert_eq!(versions[1].upstream, "1.85.1");
    }

    #[test]
    fn upstream_versions() {
        for (version, expected) in [
            ("1.85.1+dfsg1-1+deb13u1", "1.85.1"),
            ("1:7.3.4-1~bpo13+1", "7.3.4"),
            ("0.71.1", "0.71.1"),
        ] {
            assert_eq!(upstream(version), expected);
        }
    }

    #[test]
    fn sizes_and_percents() {
        let line = "'http://mirror.example/debian/pool/x.deb' x.deb 166780612 SHA256:703e";
        assert_eq!(uri_size(line), Some(166_780_612));
        assert_eq!(uri_size("W: something"), None);
        assert_eq!(
            download_percent("dlstatus:1:42.5000:Retrieving file 1 of 4"),
            Some(42.5)
        );
        assert_eq!(download_percent("Get:1 http"), None);
    }

    #[test]
    fn dates_of_releases() {
        let text = "Origin: Debian\nValid-Until: Fri, 06 Nov 2026 08:11:34 UTC\nCodename: sid\n";
        assert_eq!(valid_until(text).unwrap(), "Fri, 06 Nov 2026 08:11:34 UTC");
    }

    #[test]
    fn only_ways_to_the_network_are_inherited() {
        let network = ways_to_network(
            "Acquire::Check-Valid-Until \"false\";\nAcquire::http::Proxy \"http://proxy.example:3142\";\n",
        );
        let text = configuration(Path::new("/c"), "amd64", &network);
        assert!(text.contains("Acquire::http::Proxy \"http://proxy.example:3142\";"));
        assert!(!text.contains("Check-Valid-Until \"false\""));
    }
}
