// SPDX-License-Identifier: GPL-2.0

//! The doctor on machines that are folders: see tests/machines/README.md.

use std::path::{Path, PathBuf};

use super::guests::Kvm;
use super::*;

/// One of the machines, its kernel's release, and its tools as they should be.
struct Patient {
    machine: Machine,
    host: Host,
}

impl Patient {
    fn new(name: &str, release: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines");
        let machine = Machine::seen_in(&root.join(name), release, "x86_64");
        let folder = machine.folder();
        let config = folder.config.unwrap_or_default();
        let host = Host {
            rustc: crate::kernel::proof::rustc_text(&config)
                .ok()
                .map(str::to_owned),
            bindgen: Some("bindgen 0.72.1".to_owned()),
            libclang: Some(Ok("19.1.7".to_owned())),
            make: Some("GNU Make 4.4.1".to_owned()),
            compiler: building::compiler(&config).map(|compiler| compiler.text.to_owned()),
            linker: building::compiler(&config)
                .and_then(|compiler| compiler.linker)
                .map(|_| "LLD 22.1.0 (compatible with GNU linkers)".to_owned()),
            is_root: false,
            may_insert: false,
            become_root: Some("sudo"),
        };
        Self { machine, host }
    }

    fn building(&self) -> Vec<Finding> {
        building::findings(&self.machine, &self.machine.folder(), &self.host)
    }

    fn insertion(&self) -> Vec<Finding> {
        insertion::findings(&self.machine, &self.host)
    }

    fn route(&self) -> anyhow::Result<Route> {
        choose(
            &self.machine,
            self.machine.folder().path,
            &self.building(),
            &insertion::modules(&self.machine),
        )
    }

    fn report(&self, guests: &Guests) -> Report {
        let folder = self.machine.folder();
        report(&self.machine, &folder, &self.host, guests, true)
    }
}

fn debian() -> Patient {
    Patient::new("debian", "7.3.4+deb13-amd64")
}

fn ubuntu() -> Patient {
    Patient::new("ubuntu", "7.3.0-14-generic")
}

fn fedora() -> Patient {
    Patient::new("fedora", "7.3.5-200.fc44.x86_64")
}

fn arch() -> Patient {
    Patient::new("arch", "7.3.6-arch1-1")
}

fn own_tree() -> Patient {
    Patient::new("own-tree", "7.3.0-rc5-mine")
}

fn clang_tree() -> Patient {
    Patient::new("clang-tree", "7.3.0-rc5-mine")
}

fn no_modules() -> Patient {
    Patient::new("no-modules", "6.18.44")
}

#[test]
fn an_accelerator_is_told_from_a_device_file() {
    let finding = |kvm| {
        let guests = Guests {
            kvm,
            ..guests(true)
        };
        let findings = guests::findings(&guests, Distribution::Debian, true);
        named(&findings, "accelerator").clone()
    };
    let why = || "reasons".to_owned();
    for (kvm, state) in [
        (Kvm::Works("host"), State::Yes),
        (Kvm::Closed(why()), State::No),
        (Kvm::Fails(why()), State::No),
        (Kvm::Untried(why()), State::Unknown),
    ] {
        let finding = finding(kvm.clone());
        assert_eq!(finding.state, state, "{kvm:?}");
        assert!(state == State::Yes || finding.reason.contains("reasons"));
        assert_eq!(finding.remedy.is_none(), state == State::Yes);
        // Virtual time needs none.
        assert_eq!(finding.needed_for, []);
    }
}

/// A machine that can make a build root, or has one.
fn guests(is_ready: bool) -> Guests {
    Guests {
        cache: "/cache".into(),
        is_ready,
        namespaces: Ok(()),
        missing: Vec::new(),
        mirror: Ok("http://mirror.example/debian".to_owned()),
        space: 1 << 40,
        kvm: Kvm::Works("host"),
        has_apt: true,
    }
}

fn named<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
    findings
        .iter()
        .find(|finding| finding.name == name)
        .unwrap_or_else(|| panic!("no finding {name:?}"))
}

fn remedy<'a>(findings: &'a [Finding], name: &str) -> &'a str {
    let finding = named(findings, name);
    assert_eq!(finding.state, State::No, "{finding:?}");
    finding.remedy.as_deref().unwrap_or_default()
}

#[test]
fn every_no_says_what_mends_it() {
    for patient in [
        debian(),
        ubuntu(),
        fedora(),
        arch(),
        own_tree(),
        clang_tree(),
        no_modules(),
    ] {
        let bare = Patient {
            host: Host::default(),
            ..patient
        };
        for finding in bare.insertion().iter().chain(&bare.building()) {
            let mended = finding.remedy.as_ref().is_some_and(|text| !text.is_empty());
            assert!(mended || finding.state != State::No, "{finding:?}");
            assert!(!finding.reason.is_empty(), "{finding:?}");
        }
    }
}

#[test]
fn a_machine_with_metadata_builds_by_itself() {
    for patient in [fedora(), arch(), clang_tree()] {
        let findings = patient.building();
        assert!(
            findings.iter().all(|finding| finding.state == State::Yes),
            "{findings:?}"
        );
        assert_eq!(
            patient.route().unwrap(),
            Route::Make(patient.machine.folder().path)
        );
        let report = patient.report(&guests(false));
        assert!(report.works.build && report.works.insert && report.works.vm);
        assert!(report.headline().contains("cargo xtask run --sudo"));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn debian_builds_in_the_build_root() {
    let patient = debian();
    assert!(remedy(&patient.building(), "Rust metadata").contains("cargo xtask build"));
    let Route::BuildRoot(row) = patient.route().unwrap() else {
        panic!("another route");
    };
    assert_eq!(row.name, "amd64");
    let report = patient.report(&guests(false));
    assert!(report.works.build, "{:?}", report.findings);
    // Then it is the build root that building depends on.
    let unreachable = Guests {
        mirror: Err("the mirror does not answer".to_owned()),
        ..guests(false)
    };
    let report = patient.report(&unreachable);
    assert!(!report.works.build && !report.works.vm && report.works.insert);
    assert!(report.headline().starts_with("The mirror does not answer"));
}

#[test]
fn ubuntu_names_its_package_and_its_signatures() {
    let patient = ubuntu();
    assert_eq!(
        remedy(&patient.building(), "Rust metadata"),
        "sudo apt install linux-lib-rust-7.3.0-14-generic"
    );
    let error = patient.route().unwrap_err().to_string();
    assert!(
        error.contains("no Rust metadata") && error.contains("linux-lib-rust-"),
        "{error}"
    );
    let insertion = patient.insertion();
    assert!(remedy(&insertion, "no lockdown").contains("mokutil"));
    assert!(
        named(&insertion, "unsigned modules")
            .reason
            .contains("Secure Boot is on")
    );
}

#[test]
fn a_tree_of_ones_own_is_prepared() {
    let patient = own_tree();
    let remedy = remedy(&patient.building(), "Rust metadata").to_owned();
    assert!(
        remedy.starts_with("make -C /lib/modules/7.3.0-rc5-mine/build prepare"),
        "{remedy}"
    );
    // Its release is none of Debian's.
    assert!(patient.route().is_err());
}

#[test]
fn a_kernel_without_modules_comes_first() {
    let patient = no_modules();
    let error = patient.route().unwrap_err().to_string();
    assert!(error.starts_with("this kernel takes no modules"), "{error}");
    assert!(error.ends_with("cargo xtask vm"), "{error}");
    let report = patient.report(&guests(true));
    assert!(!report.works.insert && !report.works.build && report.works.vm);
    assert_eq!(report.findings[0].name, "module support");
    let headline = report.headline();
    assert!(
        headline.starts_with("This kernel takes no modules"),
        "{headline}"
    );
    assert!(headline.contains("cargo xtask vm"), "{headline}");
    assert_eq!(named(&report.findings, "no lockdown").state, State::Unknown);
}

#[test]
fn another_rustc_of_the_same_version_will_not_do() {
    for (patient, wanted) in [
        (debian(), "sudo apt install rustc rust-src"),
        (fedora(), "sudo dnf install rust"),
        (own_tree(), "rustup toolchain install 1.97.1"),
    ] {
        let text = patient.host.rustc.clone().unwrap();
        let version = text.split(" (").next().unwrap();
        let other = Patient {
            host: Host {
                rustc: Some(format!("{version} (000000000 2026-01-01)")),
                ..patient.host
            },
            ..patient
        };
        let findings = other.building();
        assert!(
            remedy(&findings, "rustc").starts_with(wanted),
            "{findings:?}"
        );
        let reason = &named(&findings, "rustc").reason;
        assert!(
            reason.contains(&text) && reason.contains("000000000"),
            "{reason}"
        );
    }
}

#[test]
fn what_the_metadata_says_of_rustc_counts_more_than_the_configuration() {
    let patient = fedora();
    let mut folder = patient.machine.folder();
    assert_eq!(folder.rustc, patient.host.rustc);
    folder.rustc = Some("rustc 1.90.0 (x)".to_owned());
    let findings = building::findings(&patient.machine, &folder, &patient.host);
    assert!(
        named(&findings, "rustc")
            .reason
            .contains("rustc 1.90.0 (x)")
    );
    assert_eq!(named(&findings, "rustc").state, State::No);
}

#[test]
fn tools_that_are_missing_or_old_are_named() {
    let patient = arch();
    let host = Host {
        bindgen: Some("bindgen 0.65.1".to_owned()),
        libclang: Some(Ok("14.0.6".to_owned())),
        make: None,
        compiler: None,
        ..patient.host.clone()
    };
    let folder = patient.machine.folder();
    let findings = building::findings(&patient.machine, &folder, &host);
    for (name, install) in [
        ("bindgen", "sudo pacman -S rust-bindgen"),
        ("libclang", "sudo pacman -S clang"),
        ("make", "sudo pacman -S make"),
        ("C compiler", "sudo pacman -S gcc"),
    ] {
        assert!(remedy(&findings, name).starts_with(install), "{findings:?}");
    }
}

#[test]
fn a_kernel_built_by_clang_takes_clang_and_its_linker() {
    let patient = clang_tree();
    let folder = patient.machine.folder();
    let seen = |host: Host| building::findings(&patient.machine, &folder, &host);
    let install = "sudo dnf install clang lld llvm";
    for (host, name, missing) in [
        (
            Host {
                compiler: None,
                ..patient.host.clone()
            },
            "C compiler",
            "and clang is not here",
        ),
        (
            Host {
                linker: None,
                ..patient.host.clone()
            },
            "linker",
            "and ld.lld is not here",
        ),
    ] {
        let findings = seen(host);
        assert_eq!(remedy(&findings, name), install);
        let reason = &named(&findings, name).reason;
        assert!(
            reason.starts_with("the kernel was built by clang version 22.1.0 (Fedora")
                && reason.ends_with(missing),
            "{reason}"
        );
        // Building is refused with just that.
        let obstacle = obstacle(&findings, &[Way::Build]).unwrap();
        assert_eq!(obstacle.name, name);
    }
    // gcc brings its own linker.
    let findings = fedora().building();
    assert!(findings.iter().all(|finding| finding.name != "linker"));
}

#[test]
fn another_compiler_is_told_from_another_revision() {
    let patient = debian();
    let folder = patient.machine.folder();
    let finding = |compiler: &str| {
        let host = Host {
            compiler: Some(compiler.to_owned()),
            ..patient.host.clone()
        };
        let findings = building::findings(&patient.machine, &folder, &host);
        named(&findings, "C compiler").clone()
    };
    let own = patient.host.compiler.as_deref().unwrap();
    let revision = own.replace("14.2.0-19)", "14.2.0-21)");
    let other = own.replace("14.2.0", "14.3.0");
    for (compiler, state, reason, is_mended) in [
        (own, State::Yes, "", false),
        (&revision, State::Yes, "another revision", false),
        (&other, State::Unknown, "another compiler", true),
    ] {
        let finding = finding(compiler);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.reason.starts_with(compiler), "{finding:?}");
        assert!(finding.reason.contains(reason), "{finding:?}");
        assert_eq!(finding.remedy.is_some(), is_mended, "{finding:?}");
        assert_eq!(obstacle(&[finding], &[Way::Build]), None);
    }
}

#[test]
fn a_folder_that_is_none_is_refused() {
    let patient = arch();
    let folder = patient.machine.folder_at(&PathBuf::from("/nowhere"));
    let findings = building::findings(&patient.machine, &folder, &patient.host);
    let obstacle = obstacle(&findings, &[Way::Build]).unwrap();
    assert!(
        obstacle
            .sentence()
            .starts_with("/nowhere is no kernel folder"),
        "{obstacle:?}"
    );
}

#[test]
fn privileges_are_asked_for() {
    let patient = arch();
    let privileges = |host: Host| {
        let findings = insertion::findings(&patient.machine, &host);
        named(&findings, "privileges").clone()
    };
    assert!(
        privileges(patient.host.clone())
            .reason
            .contains("--sudo=sudo")
    );
    let alone = Host {
        become_root: None,
        ..patient.host.clone()
    };
    assert_eq!(privileges(alone.clone()).state, State::No);
    let contained = Host {
        is_root: true,
        ..alone
    };
    assert!(privileges(contained).reason.contains("container"));
}

#[test]
fn a_ready_build_root_needs_no_network() {
    let offline = Guests {
        mirror: Err("no mirror is known".to_owned()),
        missing: vec!["mmdebstrap"],
        space: 0,
        ..guests(true)
    };
    let works = |guests: &Guests| {
        let findings = guests::findings(guests, Distribution::Fedora, false);
        obstacle(&findings, &[Way::Vm]).is_none()
    };
    assert!(works(&offline));
    let none = Guests {
        is_ready: false,
        ..offline
    };
    assert!(!works(&none));
    assert!(!works(&Guests {
        namespaces: Err("no namespaces".to_owned()),
        ..guests(true)
    }));
    // Root on Debian gets the tools installed.
    let bare = Guests {
        missing: vec!["mmdebstrap"],
        ..guests(false)
    };
    let findings = guests::findings(&bare, Distribution::Debian, true);
    assert!(obstacle(&findings, &[Way::Vm]).is_none());
    assert!(!works(&bare));
}

#[test]
fn a_report_is_shown_and_read() {
    let report = debian().report(&guests(false));
    let text = crate::writers::doctor::report(&report);
    assert!(text.starts_with(&report.headline()), "{text}");
    for finding in &report.findings {
        assert!(text.contains(finding.name), "{text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], "messung-doctor/1");
    assert_eq!(json["works"]["insert"], true);
    assert_eq!(json["findings"][0]["state"], "yes");
}
