// SPDX-License-Identifier: GPL-2.0

//! Virtual machines: what they are made of, how they are watched, and how a result gets out.

#[cfg(feature = "host")]
pub mod accelerator;
#[cfg(feature = "host")]
pub mod busybox;
#[cfg(feature = "host")]
pub mod console;
pub mod handover;
#[cfg(feature = "host")]
pub mod initramfs;
#[cfg(feature = "host")]
pub mod launch;
#[cfg(feature = "report")]
pub mod lines;
#[cfg(feature = "host")]
pub mod machine;
#[cfg(feature = "host")]
pub mod secure_boot;
#[cfg(feature = "host")]
pub mod session;
#[cfg(feature = "host")]
pub mod supervisor;
#[cfg(feature = "host")]
pub mod userland;
