// SPDX-License-Identifier: GPL-2.0

//! The table of kernels that messung can measure, as data, and the choice of a release.

use crate::failure::{Class, Failure};
use anyhow::{Result, bail};

/// The oldest series that messung supports.
pub const OLDEST: Series = Series(7, 2);

/// A kernel series such as 7.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series(pub u32, pub u32);

impl Series {
    /// The series that a release such as `7.3.4+deb13-amd64` begins with.
    pub fn of(release: &str) -> Option<Self> {
        let (major, rest) = release.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let minor = &rest[..end.unwrap_or(rest.len())];
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A suite of Debian's archive that may hold the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Where the kernel's packages come from.
    pub suite: &'static str,
    /// Where the build root comes from: a suite such as backports does not stand alone. The first is the base.
    pub root: &'static [&'static str],
}

/// Facts of a processor architecture.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    /// Debian's name.
    pub debian: &'static str,
    /// The kernel's name: the folder below `arch/`.
    pub kernel: &'static str,
    /// Rust's name of the userland.
    pub rust_target: &'static str,
    /// The prefix of the GNU tools.
    pub gnu: &'static str,
    /// The package with its QEMU.
    pub qemu_package: &'static str,
    /// Name of the kernel image in `linux-binary-*`.
    pub image: &'static str,
    /// Where a build leaves the image; its file name is the target of make.
    pub built_image: &'static str,
    /// The parts of the kernel's source that are its own.
    pub source: &'static [&'static str],
    /// What Kbuild is told so that it builds for it.
    pub make: &'static [&'static str],
    /// What a build root takes besides a compiler to build for it.
    pub packages: &'static [&'static str],
    /// The device trees of its boards that a kernel folder keeps.
    pub device_trees: &'static [&'static str],
}

impl Arch {
    /// Whether build roots, whose programs the machine at hand must execute, are of another architecture.
    pub fn is_foreign(&self) -> bool {
        self.debian != AMD64.debian
    }

    /// The package of a compiler such as `gcc-14` that builds for it.
    pub fn compiler_package(&self, compiler: &str) -> String {
        if self.is_foreign() {
            format!("{compiler}-{}", self.gnu)
        } else {
            compiler.to_owned()
        }
    }
}

/// Where the image of a kernel comes from.
#[derive(Debug, PartialEq, Eq)]
pub enum Origin {
    /// Debian's package, untouched.
    Stock,
    /// Built from the source and by the tools of Debian's kernel. Only what these configuration fragments ask for is in it. Where
    /// they ask for [`CLANG`], clang builds it.
    Built(&'static [&'static str]),
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// What `--kernel` takes.
    pub name: &'static str,
    /// The processor architecture.
    pub arch: &'static Arch,
    /// Debian's flavour: the end of the release. What is built takes source and tools from it.
    pub flavour: &'static str,
    /// Where its image comes from.
    pub origin: Origin,
    /// Suites in order of preference.
    pub sources: &'static [Source],
    /// Series that are known to work.
    pub series: &'static [Series],
    /// The virtual machine that boots it (`vm::machine`).
    pub machine: &'static str,
}

impl Row {
    /// What `uname -r` says in this row's kernel that is, or is built from, a release of Debian.
    pub fn release(&self, debian: &Release) -> String {
        match self.origin {
            Origin::Stock => debian.name.clone(),
            Origin::Built(_) => format!("{}-{}", debian.upstream(), self.name),
        }
    }

    /// What tells Kbuild to take the compiler that built Debian's kernel, such as `gcc-14`, or clang where the row asks for it.
    pub fn compiler_variable(&self, debian: &str) -> String {
        let settings = self.settings().unwrap_or_default();
        if settings.lines().any(|line| line == CLANG) {
            "LLVM=1".to_owned()
        } else {
            format!("CC={}-{debian}", self.arch.gnu)
        }
    }

    /// What is asked of a kernel that is built.
    pub fn settings(&self) -> Option<String> {
        match self.origin {
            Origin::Stock => None,
            Origin::Built(fragments) => Some(fragments.concat()),
        }
    }
}

/// The setting that Kconfig finds to be so where clang is the compiler.
const CLANG: &str = "CONFIG_CC_IS_CLANG=y";

/// A 64-bit PC: also what build roots are made of.
pub const AMD64: Arch = Arch {
    debian: "amd64",
    kernel: "x86",
    rust_target: "x86_64-unknown-linux-gnu",
    gnu: "x86_64-linux-gnu",
    qemu_package: "qemu-system-x86",
    image: "vmlinuz",
    built_image: "arch/x86/boot/bzImage",
    source: &["arch/x86"],
    make: &[],
    packages: &[],
    device_trees: &[],
};

/// ARMv7 with hardware floating point, such as a Raspberry Pi 2.
pub const ARMHF: Arch = Arch {
    debian: "armhf",
    kernel: "arm",
    rust_target: "armv7-unknown-linux-gnueabihf",
    gnu: "arm-linux-gnueabihf",
    qemu_package: "qemu-system-arm",
    image: "vmlinuz",
    built_image: "arch/arm/boot/zImage",
    source: &["arch/arm"],
    make: &["ARCH=arm", "CROSS_COMPILE=arm-linux-gnueabihf-"],
    packages: &["qemu-user"],
    device_trees: &["bcm2836-rpi-2-b.dtb"],
};

/// 64-bit Arm.
pub const ARM64: Arch = Arch {
    debian: "arm64",
    kernel: "arm64",
    rust_target: "aarch64-unknown-linux-gnu",
    gnu: "aarch64-linux-gnu",
    qemu_package: "qemu-system-arm",
    image: "vmlinuz",
    built_image: "arch/arm64/boot/Image",
    // The vDSO for 32-bit programs is that of 32-bit Arm.
    source: &["arch/arm64", "arch/arm/vdso"],
    make: &[
        "ARCH=arm64",
        "CROSS_COMPILE=aarch64-linux-gnu-",
        // Without a 32-bit compiler the configuration would lose its vDSO for 32-bit programs.
        "CROSS_COMPILE_COMPAT=arm-linux-gnueabihf-",
    ],
    packages: &["gcc-arm-linux-gnueabihf"],
    device_trees: &[],
};

/// Debian 13 with backports, Debian 13 itself, and what becomes the next Debian.
const TRIXIE: &[Source] = &[
    Source {
        suite: "trixie-backports",
        root: &["trixie", "trixie-backports"],
    },
    Source {
        suite: "trixie",
        root: &["trixie"],
    },
    Source {
        suite: "sid",
        root: &["sid"],
    },
];

/// Every series that is known to work.
const ALL_SERIES: &[Series] = &[Series(7, 2), Series(7, 3)];

/// What each kernel that is built needs to run a guest.
const BASE: &str = include_str!("configs/base.config");

/// The table. The first row is the default.
pub const TABLE: &[Row] = &[
    Row {
        name: "amd64",
        arch: &AMD64,
        flavour: "amd64",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "pc",
    },
    Row {
        name: "rt-amd64",
        arch: &AMD64,
        flavour: "rt-amd64",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "pc",
    },
    Row {
        name: "cloud-amd64",
        arch: &AMD64,
        flavour: "cloud-amd64",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "pc",
    },
    Row {
        name: "amd64-7.2",
        arch: &AMD64,
        flavour: "amd64",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: &[Series(7, 2)],
        machine: "pc",
    },
    Row {
        name: "armmp",
        arch: &ARMHF,
        flavour: "armmp",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "raspi2b",
    },
    Row {
        name: "armmp-virt",
        arch: &ARMHF,
        flavour: "armmp",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "virt-a7",
    },
    Row {
        name: "arm64",
        arch: &ARM64,
        flavour: "arm64",
        origin: Origin::Stock,
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "virt",
    },
    Row {
        name: "debug-amd64",
        arch: &AMD64,
        flavour: "amd64",
        origin: Origin::Built(&[BASE, include_str!("configs/debug.config")]),
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "pc",
    },
    Row {
        name: "hz100-amd64",
        arch: &AMD64,
        flavour: "amd64",
        origin: Origin::Built(&[BASE, include_str!("configs/hz100.config")]),
        sources: TRIXIE,
        series: ALL_SERIES,
        machine: "pc",
    },
];

/// The rows of Debian's own kernels, which are ready soon: those that all checks cover.
pub fn stock() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(|row| row.origin == Origin::Stock)
}

/// The row of Debian's own kernels that a release is one of, on the architecture that we run on.
pub fn row_of_release(release: &str) -> Option<&'static Row> {
    let headers = format!("linux-headers-{release}");
    stock().find(|row| {
        row.arch.rust_target.starts_with(std::env::consts::ARCH)
            && Release::of_headers(&headers, row.flavour)
                .is_some_and(|release| row.series.contains(&release.series()))
    })
}

/// The row of that name.
///
/// # Errors
///
/// There is none ([`Class::Usage`]); the message lists those that there are.
pub fn find(name: &str) -> Result<&'static Row> {
    TABLE.iter().find(|row| row.name == name).ok_or_else(|| {
        let known: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        Failure::error(
            Class::Usage,
            format!(
                "there is no kernel {name:?} in the table; the known ones are {}",
                known.join(", ")
            ),
        )
    })
}

/// A kernel release of Debian, such as `7.3.4+deb13-amd64`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// Numbers of the upstream version; orders releases.
    numbers: Vec<u32>,
    /// Number of the release candidate; a final release is later than all of them.
    candidate: u32,
    /// All of it, as `uname -r` prints it.
    pub name: String,
}

impl Release {
    /// Reads the release out of `linux-headers-<release>`; nothing if that is of another flavour, or no release.
    pub fn of_headers(package: &str, flavour: &str) -> Option<Self> {
        let name = package.strip_prefix("linux-headers-")?;
        let (version, rest) = name.split_once('-')?;
        if rest != flavour {
            return None;
        }
        let (upstream, _debian) = version.split_once('+')?;
        let (numbers, candidate) = match upstream.split_once("~rc") {
            Some((numbers, candidate)) => (numbers, candidate.parse().ok()?),
            None => (upstream, u32::MAX),
        };
        let numbers: Vec<u32> = numbers
            .split('.')
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        (numbers.len() >= 2).then(|| Self {
            numbers,
            candidate,
            name: name.to_owned(),
        })
    }

    /// The upstream version: what comes before Debian's own part.
    pub fn upstream(&self) -> &str {
        self.name
            .split_once('+')
            .map_or(self.name.as_str(), |(upstream, _)| upstream)
    }

    /// Its series.
    pub fn series(&self) -> Series {
        Series(self.numbers[0], self.numbers[1])
    }
}

/// What a suite offers for a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The newest release of an accepted series.
    Accepted(Release),
    /// Only a series that is newer than all accepted ones.
    Newer(Release),
    /// Only series that are older than all accepted ones.
    Older(Release),
    /// No kernel of this flavour.
    None,
}

/// The best of the releases that a suite holds.
pub fn offer(row: &Row, releases: &[Release]) -> Offer {
    let newest = |wanted: &dyn Fn(Series) -> bool| {
        let fitting = releases.iter().filter(|release| wanted(release.series()));
        fitting.max().cloned()
    };
    let accepts = |series: Series| row.series.contains(&series);
    let beyond = |series: Series| row.series.iter().all(|accepted| series > *accepted);
    newest(&accepts)
        .map(Offer::Accepted)
        .or_else(|| newest(&beyond).map(Offer::Newer))
        .or_else(|| newest(&|_| true).map(Offer::Older))
        .unwrap_or(Offer::None)
}

/// Chooses among the offers of a row's suites, in order of preference: its place and what to warn of.
///
/// # Errors
///
/// Nothing there is new enough.
pub fn choose(row: &Row, offers: &[Offer]) -> Result<(usize, Release, Option<String>)> {
    let find = |wanted: fn(&Offer) -> Option<&Release>| {
        let mut fitting = offers.iter().enumerate();
        fitting.find_map(|(place, offer)| Some((place, wanted(offer)?.clone())))
    };
    let accepted = find(|offer| match offer {
        Offer::Accepted(release) => Some(release),
        _ => None,
    });
    if let Some((place, release)) = accepted {
        return Ok((place, release, None));
    }
    let newer = find(|offer| match offer {
        Offer::Newer(release) => Some(release),
        _ => None,
    });
    if let Some((place, release)) = newer {
        let warning = format!(
            "the archive has no {} kernel of a supported series ({}); trying {}, which is not supported yet",
            row.flavour,
            listed(row.series),
            release.name
        );
        return Ok((place, release, Some(warning)));
    }
    let older = find(|offer| match offer {
        Offer::Older(release) => Some(release),
        _ => None,
    });
    match older {
        Some((_, release)) => bail!(
            "the newest {} kernel in the archive is {}, and messung needs Linux {OLDEST} or later with Rust",
            row.flavour,
            release.name
        ),
        None => bail!(
            "the archive has no kernel of the flavour {} in {}",
            row.flavour,
            row.sources
                .iter()
                .map(|source| source.suite)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// Series in words.
fn listed(series: &[Series]) -> String {
    let names: Vec<_> = series.iter().map(Series::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(names: &[&str], flavour: &str) -> Vec<Release> {
        names
            .iter()
            .filter_map(|name| Release::of_headers(name, flavour))
            .collect()
    }

    const BACKPORTS: &[&str] = &[
        "linux-headers-7.2.11+deb13-amd64",
        "linux-headers-7.2.9+deb13-amd64",
        "linux-headers-7.2.9+deb13-rt-amd64",
        "linux-headers-7.3.4+deb13-amd64",
        "linux-headers-7.3.4+deb13-cloud-amd64",
        "linux-headers-7.3.4+deb13-common",
        "linux-headers-amd64",
    ];

    #[test]
    fn unknown_name_lists_the_known_ones() {
        let error = find("amd46").unwrap_err();
        assert_eq!(Failure::class_of(&error), Class::Usage);
        assert_eq!(
            error.to_string(),
            "there is no kernel \"amd46\" in the table; the known ones are amd64, rt-amd64, cloud-amd64, amd64-7.2, armmp, armmp-virt, arm64, debug-amd64, hz100-amd64"
        );
        assert_eq!(find("rt-amd64").unwrap().flavour, "rt-amd64");
    }

    #[test]
    fn series_are_read_from_releases() {
        assert_eq!(Series::of("7.3.4+deb13-amd64"), Some(Series(7, 3)));
        assert_eq!(Series::of("7.4-rc1"), Some(Series(7, 4)));
        assert_eq!(Series::of("next"), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn releases_of_debian_have_a_row() {
        let name = |release| row_of_release(release).map(|row| row.name);
        assert_eq!(name("7.3.4+deb13-amd64"), Some("amd64"));
        assert_eq!(name("7.3.4+deb13-rt-amd64"), Some("rt-amd64"));
        for release in [
            "7.3.4+deb13-arm64",
            "6.12.1+deb13-amd64",
            "7.3.4-debug-amd64",
            "7.3.4-arch1-1",
        ] {
            assert_eq!(name(release), None, "{release}");
        }
    }

    #[test]
    fn only_the_flavour_counts() {
        let names = |flavour| -> Vec<String> {
            let found = releases(BACKPORTS, flavour);
            found.into_iter().map(|release| release.name).collect()
        };
        assert_eq!(names("rt-amd64"), ["7.2.9+deb13-rt-amd64"]);
        assert_eq!(names("cloud-amd64"), ["7.3.4+deb13-cloud-amd64"]);
        assert_eq!(names("amd64").len(), 3);
    }

    #[test]
    fn what_is_built_has_a_name_of_its_own() {
        let debian = &releases(&["linux-headers-7.3.4+deb13-amd64"], "amd64")[0];
        for (row, expected) in [
            ("amd64", "7.3.4+deb13-amd64"),
            ("debug-amd64", "7.3.4-debug-amd64"),
        ] {
            assert_eq!(find(row).unwrap().release(debian), expected);
        }
    }

    #[test]
    fn fragments_are_lists_of_settings() {
        for row in TABLE {
            let settings = row.settings().unwrap_or_default();
            for line in settings.lines().filter(|line| !line.is_empty()) {
                let is_setting = line.starts_with("CONFIG_") && line.ends_with("=y");
                assert!(is_setting || line.starts_with("# "), "{}: {line}", row.name);
            }
        }
        assert!(
            find("debug-amd64")
                .unwrap()
                .settings()
                .unwrap()
                .contains("CONFIG_RUST=y\n")
        );
        assert_eq!(find("amd64").unwrap().settings(), None);
    }

    #[test]
    fn clang_builds_what_asks_for_it() {
        for (row, expected) in [
            ("amd64", "CC=x86_64-linux-gnu-gcc-14"),
            ("hz100-amd64", "CC=x86_64-linux-gnu-gcc-14"),
            ("debug-amd64", "LLVM=1"),
        ] {
            assert_eq!(find(row).unwrap().compiler_variable("gcc-14"), expected);
        }
    }

    #[test]
    fn newest_accepted_release_wins() {
        let found = releases(BACKPORTS, "amd64");
        for (row, release) in [
            ("amd64", "7.3.4+deb13-amd64"),
            ("amd64-7.2", "7.2.11+deb13-amd64"),
        ] {
            let row = find(row).unwrap();
            let (place, chosen, warning) = choose(row, &[Offer::None, offer(row, &found)]).unwrap();
            assert_eq!((place, chosen.name.as_str()), (1, release));
            assert_eq!(warning, None);
        }
    }

    #[test]
    fn release_candidates_come_before_the_release() {
        let found = releases(
            &[
                "linux-headers-7.3~rc7+deb14-amd64",
                "linux-headers-7.3~rc10+deb14-amd64",
            ],
            "amd64",
        );
        let row = find("amd64").unwrap();
        assert!(matches!(offer(row, &found), Offer::Accepted(r) if r.name.contains("rc10")));
        assert_eq!(found[0].series(), Series(7, 3));
    }

    #[test]
    fn a_newer_series_comes_last_and_with_a_warning() {
        let row = find("amd64").unwrap();
        let newer = offer(
            row,
            &releases(&["linux-headers-7.4.1+deb14-amd64"], "amd64"),
        );
        let accepted = offer(row, &releases(BACKPORTS, "amd64"));
        let (place, _, warning) = choose(row, &[newer.clone(), accepted]).unwrap();
        assert_eq!((place, warning), (1, None));
        let (_, release, warning) = choose(row, &[newer]).unwrap();
        assert_eq!(release.name, "7.4.1+deb14-amd64");
        assert!(warning.unwrap().contains("not supported yet"));
    }

    #[test]
    fn an_older_series_stops() {
        let row = find("amd64").unwrap();
        let older = offer(
            row,
            &releases(&["linux-headers-6.12.107+deb13-amd64"], "amd64"),
        );
        let error = choose(row, &[older]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the newest amd64 kernel in the archive is 6.12.107+deb13-amd64, and messung needs Linux 7.2 or later with Rust"
        );
        let error = choose(row, &[Offer::None]).unwrap_err();
        assert!(error.to_string().contains("trixie-backports, trixie, sid"));
    }
}
