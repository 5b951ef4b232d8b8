// SPDX-License-Identifier: GPL-2.0

//! The machines that QEMU can be: one row of data each, and small functions that return groups of arguments.

use std::ffi::OsString;
use std::path::Path;

use crate::failure::{Class, Failure};

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// Its name in a row of the table of kernels.
    pub name: &'static str,
    /// QEMU's program for its architecture.
    pub qemu: &'static str,
    /// QEMU's name for it.
    pub qemu_machine: &'static str,
    /// Options of the machine itself.
    pub options: &'static [&'static str],
    /// How its time can be counted in instructions, if it gets through a boot that way.
    pub virtual_time: Option<VirtualTime>,
    /// CPU models worth a trial under KVM, best first. None where the host's processor is of another architecture.
    pub kvm_cpus: &'static [&'static str],
    /// The CPU model for emulated real time.
    pub tcg_cpu: &'static str,
    /// Other arguments that belong to the machine.
    pub extra: &'static [&'static str],
    /// How many CPUs it has, where that cannot be chosen.
    pub cpus: Option<u32>,
    /// The board's own device tree, where QEMU does not make one.
    pub device_tree: Option<&'static str>,
    /// MiB of memory.
    pub memory_mib: u32,
    /// The console, as the kernel names it.
    pub console: &'static str,
    /// The line for the handover; the console's own where there is only one.
    pub handover: &'static str,
    /// The longest command line its kernel takes.
    pub cmdline_limit: usize,
    /// Whether the guest can switch it off. If not, it is ended once the handover is complete.
    pub powers_off: bool,
}

/// How a machine counts time in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualTime {
    /// An instruction takes two to this many nanoseconds: about what a host's emulation keeps up with.
    pub icount_shift: u32,
    /// The CPU model, without sources of randomness.
    pub cpu: &'static str,
    /// Whether QEMU records the run. Recording, though nobody wants the record, keeps QEMU's two threads apart: else one of them
    /// now and then lets idle time pass before the other has accounted for what the guest has just executed, and a few samples
    /// differ by some nanoseconds between two runs, the more the busier the host is.
    pub recorded: bool,
}

/// The PC that QEMU is by itself.
const PC: Machine = Machine {
    name: "pc",
    qemu: "qemu-system-x86_64",
    qemu_machine: "pc",
    options: &[],
    virtual_time: Some(VirtualTime {
        icount_shift: 2,
        cpu: "max,-rdrand,-rdseed",
        recorded: true,
    }),
    // `-arch-capabilities`: some hosts offer that feature and then fail to set its register.
    kvm_cpus: &["host", "host,-arch-capabilities", "qemu64"],
    tcg_cpu: "max",
    extra: &["-nic", "none", "-vga", "none"],
    cpus: None,
    device_tree: None,
    memory_mib: 512,
    console: "ttyS0",
    handover: "/dev/ttyS1",
    cmdline_limit: 2048,
    powers_off: true,
};

/// The PC that boots by a firmware with Secure Boot on.
pub const SECURE_BOOT: &str = "pc-secure-boot";

/// All machines.
const MACHINES: &[Machine] = &[
    PC,
    // Its firmware keeps the variables of Secure Boot where only code in the CPU's management mode can write.
    Machine {
        name: SECURE_BOOT,
        qemu_machine: "q35",
        options: &["smm=on"],
        // The firmware still has the initramfs, too, when the kernel decides how much may be unpacked: half of what is free.
        memory_mib: 1024,
        ..PC
    },
    // A Raspberry Pi 2, version 1.1. In virtual time it does not get through its boot.
    Machine {
        name: "raspi2b",
        qemu: "qemu-system-arm",
        qemu_machine: "raspi2b",
        options: &[],
        virtual_time: None,
        kvm_cpus: &[],
        tcg_cpu: "cortex-a7",
        extra: &[],
        cpus: Some(4),
        device_tree: Some("bcm2836-rpi-2-b.dtb"),
        memory_mib: 1024,
        console: "ttyAMA0",
        // The board's device tree knows no second line.
        handover: "/dev/ttyAMA0",
        cmdline_limit: 1024,
        // Its watchdog, which would do that, has a driver that is a module.
        powers_off: false,
    },
    // The Pi's processor in a machine of QEMU's own.
    Machine {
        name: "virt-a7",
        qemu: "qemu-system-arm",
        qemu_machine: "virt",
        // Seeds in the device tree would differ from boot to boot. Without LPAE the kernel reaches no high memory.
        options: &["highmem=off", "dtb-randomness=off"],
        virtual_time: Some(VirtualTime {
            icount_shift: 3,
            cpu: "cortex-a7",
            // QEMU 11 fails an assertion of its own when it records this machine.
            recorded: false,
        }),
        kvm_cpus: &[],
        tcg_cpu: "cortex-a7",
        extra: &["-nic", "none"],
        cpus: None,
        device_tree: None,
        memory_mib: 512,
        console: "ttyAMA0",
        handover: "/dev/ttyAMA1",
        cmdline_limit: 1024,
        powers_off: true,
    },
    Machine {
        name: "virt",
        qemu: "qemu-system-aarch64",
        qemu_machine: "virt",
        options: &["dtb-randomness=off"],
        virtual_time: Some(VirtualTime {
            icount_shift: 2,
            cpu: "cortex-a72",
            recorded: true,
        }),
        kvm_cpus: &[],
        tcg_cpu: "cortex-a72",
        extra: &["-nic", "none"],
        cpus: None,
        device_tree: None,
        memory_mib: 512,
        console: "ttyAMA0",
        handover: "/dev/ttyAMA1",
        cmdline_limit: 2048,
        powers_off: true,
    },
];

/// The machine of a name.
///
/// # Errors
///
/// There is none; the message lists those there are.
pub fn find(name: &str) -> anyhow::Result<&'static Machine> {
    MACHINES
        .iter()
        .find(|machine| machine.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = MACHINES.iter().map(|machine| machine.name).collect();
            anyhow::anyhow!(
                "no machine is called {name:?}; there are {}",
                known.join(", ")
            )
        })
}

/// What passes time in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Counted in instructions: the same numbers on any host.
    Virtual(VirtualTime),
    /// The host's.
    Real {
        /// What executes instructions.
        accelerator: Accelerator,
        /// The CPU model.
        cpu_model: &'static str,
        /// How many CPUs.
        cpus: u32,
    },
}

impl Time {
    /// What executes instructions.
    pub const fn accelerator(self) -> Accelerator {
        match self {
            Self::Virtual(_) => Accelerator::Tcg,
            Self::Real { accelerator, .. } => accelerator,
        }
    }

    /// The CPU model that QEMU is told.
    pub const fn cpu_model(self) -> &'static str {
        match self {
            Self::Virtual(virtual_time) => virtual_time.cpu,
            Self::Real { cpu_model, .. } => cpu_model,
        }
    }

    /// Whether it is counted in instructions.
    pub const fn is_virtual(self) -> bool {
        matches!(self, Self::Virtual(_))
    }
}

/// What executes a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's emulation.
    Tcg,
}

impl Accelerator {
    /// QEMU's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// The files of a guest, as QEMU sees them.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The kernel.
    pub vmlinuz: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// Receives the console.
    pub console: &'a Path,
    /// Receives the handover, where that has a line of its own.
    pub handover: &'a Path,
    /// The board's device tree, where it takes one.
    pub device_tree: Option<&'a Path>,
}

/// The files of a guest that somebody types at, as QEMU sees them.
#[derive(Clone, Copy, Debug)]
pub struct TypedFiles<'a> {
    /// The kernel.
    pub vmlinuz: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// Receives the console.
    pub console: &'a Path,
    /// The firmware, where it is not QEMU's own.
    pub firmware: Option<FirmwareFiles<'a>>,
}

/// A firmware's flash memory, as QEMU sees it.
#[derive(Clone, Copy, Debug)]
pub struct FirmwareFiles<'a> {
    /// Its program.
    pub code: &'a Path,
    /// Its variables.
    pub variables: &'a Path,
}

impl Machine {
    /// Whether console and handover share a line.
    pub fn has_one_line(&self) -> bool {
        self.handover.strip_prefix("/dev/") == Some(self.console)
    }

    /// All arguments of QEMU.
    ///
    /// # Errors
    ///
    /// The kernel's command line is too long.
    pub fn arguments(
        &self,
        time: Time,
        files: Files<'_>,
        append: &str,
    ) -> anyhow::Result<Vec<OsString>> {
        let cmdline = self.cmdline(time.is_virtual(), append)?;
        Ok([
            self.hardware(),
            pace(time),
            headless(),
            serial(files.console),
            if self.has_one_line() {
                Vec::new()
            } else {
                serial(files.handover)
            },
            kernel(files.vmlinuz, files.initramfs, &cmdline),
            files.device_tree.map(device_tree).unwrap_or_default(),
        ]
        .concat())
    }

    fn hardware(&self) -> Vec<OsString> {
        let machine = [&[self.qemu_machine], self.options].concat().join(",");
        let mut arguments = words(&["-M", &machine, "-m"]);
        arguments.push(format!("{}M", self.memory_mib).into());
        arguments.extend(words(self.extra));
        arguments
    }

    /// All arguments of QEMU for a guest that somebody types at: one of a distribution, in real time, whose second serial line
    /// is QEMU's own standard input and output.
    pub fn typed_arguments(
        &self,
        time: Time,
        files: TypedFiles<'_>,
        append: &str,
    ) -> Vec<OsString> {
        let cmdline = format!("{} {append}", self.boot_words().join(" "));
        [
            self.hardware(),
            pace(time),
            headless(),
            serial(files.console),
            words(&[
                "-chardev",
                "stdio,id=typed,signal=off",
                "-serial",
                "chardev:typed",
            ]),
            files.firmware.map(firmware).unwrap_or_default(),
            kernel(files.vmlinuz, files.initramfs, &cmdline),
        ]
        .concat()
    }

    /// What every guest is told.
    fn boot_words(&self) -> Vec<String> {
        vec![
            format!("console={}", self.console),
            // What a guest writes to the kernel's log must not fall to a rate limit.
            "printk.devkmsg=on".to_owned(),
            // A dead kernel ends the machine, at once.
            "panic=-1".to_owned(),
            "oops=panic".to_owned(),
        ]
    }

    /// The kernel's command line.
    ///
    /// # Errors
    ///
    /// It is longer than the kernel takes ([`Class::Usage`]).
    pub fn cmdline(&self, is_virtual: bool, append: &str) -> anyhow::Result<String> {
        let mut words = self.boot_words();
        words.extend([
            // Messages for people go to the console, records do not: they would take long.
            "loglevel=7".to_owned(),
            "log_buf_len=4M".to_owned(),
        ]);
        if is_virtual {
            words.extend(["nokaslr".to_owned(), "norandmaps".to_owned()]);
        }
        if !append.is_empty() {
            words.push(append.to_owned());
        }
        let cmdline = words.join(" ");
        // The kernel cuts a longer one, and counts a final NUL.
        if cmdline.len() >= self.cmdline_limit {
            return Err(Failure::error(
                Class::Usage,
                format!(
                    "the kernel's command line has {} characters, and machine {} takes {} at most: shorten --append",
                    cmdline.len(),
                    self.name,
                    self.cmdline_limit - 1
                ),
            ));
        }
        Ok(cmdline)
    }
}

/// What passes time, and how.
fn pace(time: Time) -> Vec<OsString> {
    let cpu_model = time.cpu_model();
    match time {
        Time::Virtual(VirtualTime {
            icount_shift,
            recorded,
            cpu: _,
        }) => {
            let mut icount = format!("shift={icount_shift},sleep=off");
            if recorded {
                icount.push_str(",rr=record,rrfile=/dev/null");
            }
            words(&[
                "-accel",
                "tcg",
                "-smp",
                "1",
                "-icount",
                &icount,
                // The clock starts at a fixed date and runs with the instructions.
                "-rtc",
                "base=2026-01-01,clock=vm",
                "-cpu",
                cpu_model,
                "-seed",
                "1",
            ])
        }
        Time::Real {
            accelerator, cpus, ..
        } => words(&[
            "-accel",
            accelerator.name(),
            "-smp",
            &cpus.to_string(),
            "-cpu",
            cpu_model,
        ]),
    }
}

/// No window, no monitor, no devices that nobody asked for; a reboot ends the machine.
fn headless() -> Vec<OsString> {
    words(&[
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-monitor",
        "none",
        "-no-reboot",
    ])
}

/// A serial line that is written to a file: nothing can flow from the host to the guest.
fn serial(file: &Path) -> Vec<OsString> {
    let mut backend = OsString::from("file:");
    backend.push(file);
    vec!["-serial".into(), backend]
}

fn kernel(vmlinuz: &Path, initramfs: &Path, cmdline: &str) -> Vec<OsString> {
    vec![
        "-kernel".into(),
        vmlinuz.into(),
        "-initrd".into(),
        initramfs.into(),
        "-append".into(),
        cmdline.into(),
    ]
}

/// The first flash memory is the program's, the second that of its variables.
fn firmware(files: FirmwareFiles<'_>) -> Vec<OsString> {
    let FirmwareFiles { code, variables } = files;
    [(code, ",readonly=on"), (variables, "")]
        .into_iter()
        .flat_map(|(file, option)| {
            let mut drive = OsString::from(format!("if=pflash,format=raw{option},file="));
            drive.push(file);
            ["-drive".into(), drive]
        })
        .collect()
}

fn device_tree(file: &Path) -> Vec<OsString> {
    vec!["-dtb".into(), file.into()]
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn arguments(time: Time) -> Vec<String> {
        arguments_of("pc", time)
    }

    fn arguments_of(machine: &str, time: Time) -> Vec<String> {
        let machine = find(machine).unwrap();
        let files = Files {
            vmlinuz: Path::new("/boot/vmlinuz"),
            initramfs: Path::new("/w/initramfs"),
            console: Path::new("/w/console.log"),
            handover: Path::new("/w/handover"),
            device_tree: machine.device_tree.map(Path::new),
        };
        machine
            .arguments(time, files, "quiet")
            .unwrap()
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    fn virtual_time(machine: &str) -> Time {
        Time::Virtual(find(machine).unwrap().virtual_time.unwrap())
    }

    #[test]
    fn virtual_time_leaves_nothing_to_chance() {
        let line = arguments(virtual_time("pc")).join(" ");
        for group in [
            "-accel tcg -smp 1 -icount shift=2,sleep=off,rr=record,rrfile=/dev/null -rtc base=2026-01-01,clock=vm -cpu max,-rdrand,-rdseed -seed 1",
            "-nic none",
            "-serial file:/w/console.log -serial file:/w/handover",
            "nokaslr norandmaps quiet",
        ] {
            assert!(line.contains(group), "{group} is not in {line}");
        }
    }

    #[test]
    fn real_time_takes_what_was_found() {
        let line = arguments(Time::Real {
            accelerator: Accelerator::Kvm,
            cpu_model: "host",
            cpus: 4,
        })
        .join(" ");
        assert!(line.contains("-accel kvm -smp 4 -cpu host"), "{line}");
        assert!(
            !line.contains("icount") && !line.contains("nokaslr"),
            "{line}"
        );
    }

    #[test]
    fn a_board_has_its_device_tree_and_one_line() {
        let line = arguments_of(
            "raspi2b",
            Time::Real {
                accelerator: Accelerator::Tcg,
                cpu_model: "cortex-a7",
                cpus: 4,
            },
        )
        .join(" ");
        assert!(line.contains("-M raspi2b -m 1024M"), "{line}");
        assert!(line.ends_with("-dtb bcm2836-rpi-2-b.dtb"), "{line}");
        assert!(!line.contains("/w/handover"), "{line}");
        let line = arguments_of("virt-a7", virtual_time("virt-a7")).join(" ");
        assert!(
            line.contains("-M virt,highmem=off,dtb-randomness=off "),
            "{line}"
        );
        assert!(line.contains("-icount shift=3,"), "{line}");
        assert!(line.contains("-serial file:/w/handover"), "{line}");
    }

    #[test]
    fn a_firmware_is_flash_memory() {
        let files = TypedFiles {
            vmlinuz: Path::new("/boot/vmlinuz"),
            initramfs: Path::new("/w/initramfs"),
            console: Path::new("/w/console.log"),
            firmware: Some(FirmwareFiles {
                code: Path::new("/w/code"),
                variables: Path::new("/w/variables"),
            }),
        };
        let time = Time::Real {
            accelerator: Accelerator::Tcg,
            cpu_model: "max",
            cpus: 2,
        };
        let line = find(SECURE_BOOT)
            .unwrap()
            .typed_arguments(time, files, "")
            .join(OsStr::new(" "));
        let line = line.into_string().unwrap();
        assert!(line.contains("-M q35,smm=on "), "{line}");
        assert!(
            line.contains(
                "-drive if=pflash,format=raw,readonly=on,file=/w/code -drive if=pflash,format=raw,file=/w/variables "
            ),
            "{line}"
        );
    }

    #[test]
    fn a_long_command_line_is_refused() {
        let error = find("pc")
            .unwrap()
            .cmdline(true, &"x".repeat(2048))
            .unwrap_err();
        assert_eq!(Failure::class_of(&error), Class::Usage);
        assert!(error.to_string().contains("2047"), "{error}");
    }

    #[test]
    fn unknown_machines_are_named() {
        let error = find("mac").unwrap_err().to_string();
        assert!(error.contains("\"mac\"") && error.contains("pc"), "{error}");
    }
}
