// SPDX-License-Identifier: GPL-2.0

//! What a kernel holds of memory, and whether that grew.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};

use crate::vm::session::Session;

/// Gives back what may be given back: clean caches, and what allocators keep for later.
const SHRINK: &str = "sudo sh -c 'sync; echo 3 >/proc/sys/vm/drop_caches; for cache in /sys/kernel/slab/*/shrink; do echo 1 >$cache; done'";

/// What the kernel takes for itself, as `/proc/meminfo` names it.
const KINDS: [&str; 4] = ["Slab", "VmallocUsed", "Percpu", "KernelStack"];

/// So many KiB each of [`KINDS`] may grow. Two idle minutes were seen to change them by up to 330 KiB either way. One page for
/// each of 1000 insertions would be 4000.
const TOLERANCE_KIB: i64 = 1000;

/// So many objects each slab cache may grow at least: each CPU keeps up to 60 of each for later, which no shrinking takes
/// away, and which count as in use.
const TOLERANCE_OBJECTS: i64 = 250;

/// A cache that grows with the logs, which are files in memory on this PC.
const PAGES_OF_FILES: &str = "radix_tree_node";

/// What a kernel holds.
pub struct Memory {
    /// KiB of each of [`KINDS`].
    kinds: BTreeMap<String, i64>,
    /// Objects in each slab cache.
    objects: BTreeMap<String, i64>,
}

/// Looks at a PC's memory.
///
/// # Errors
///
/// It does not tell.
pub fn look(pc: &mut Session<'_>) -> Result<Memory> {
    pc.run(SHRINK)?.exits(0)?;
    let meminfo = pc.run("cat /proc/meminfo")?.exits(0)?.text;
    let slabinfo = pc.run("sudo cat /proc/slabinfo")?.exits(0)?.text;
    Memory::read(&meminfo, &slabinfo)
}

impl Memory {
    fn read(meminfo: &str, slabinfo: &str) -> Result<Self> {
        let kinds: BTreeMap<_, _> = meminfo
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.split_once(':')?;
                let kib = rest.split_whitespace().next()?.parse().ok()?;
                KINDS.contains(&name).then(|| (name.to_owned(), kib))
            })
            .collect();
        ensure!(
            kinds.len() == KINDS.len(),
            "not all of {KINDS:?} are in {meminfo}"
        );
        let objects: BTreeMap<_, _> = slabinfo
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
            })
            .collect();
        ensure!(!objects.is_empty(), "no slab caches in {slabinfo}");
        Ok(Self { kinds, objects })
    }

    /// Requires that nothing grew by what `count` insertions would make it grow if they kept something; says what did most.
    ///
    /// # Errors
    ///
    /// Something did.
    pub fn compare(&self, before: &Self, count: u32) -> Result<String> {
        let mut note = Vec::new();
        for (name, kib) in &self.kinds {
            let grown = kib - before.kinds[name];
            if grown > TOLERANCE_KIB {
                bail!(
                    "{name} grew by {grown} KiB in {count} insertions, from {} KiB",
                    kib - grown
                );
            }
            note.push(format!("{name} {grown:+} KiB"));
        }
        // One object for each insertion must not pass.
        let limit = TOLERANCE_OBJECTS.max(i64::from(count) / 2);
        let grown = |(name, objects): (&String, &i64)| {
            (
                objects - before.objects.get(name).unwrap_or(&0),
                name.clone(),
            )
        };
        let (most, name) = self
            .objects
            .iter()
            .map(grown)
            .filter(|(_, name)| name != PAGES_OF_FILES)
            .max()
            .context("no slab caches")?;
        ensure!(
            most <= limit,
            "the slab cache {name} grew by {most} objects in {count} insertions"
        );
        note.push(format!("{name} {most:+} objects"));
        Ok(note.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(slab_kib: i64, objects: i64) -> Memory {
        let meminfo = format!(
            "MemTotal: 9 kB\nSlab:           {slab_kib} kB\nVmallocUsed:  5800 kB\nPercpu: 672 kB\nKernelStack: 1200 kB\n"
        );
        let slabinfo = format!(
            "slabinfo - version: 2.1\n# name            <active_objs> <num_objs>\nkmalloc-64 {objects} 5000 64 64 1 : tunables\n\
             radix_tree_node {} 1 1\n",
            objects * objects
        );
        Memory::read(&meminfo, &slabinfo).unwrap()
    }

    #[test]
    fn noise_is_told_from_growth() {
        let before = memory(18_000, 3_000);
        let note = memory(18_100, 3_120).compare(&before, 1000).unwrap();
        assert!(
            note.ends_with("Slab +100 KiB, VmallocUsed +0 KiB, kmalloc-64 +120 objects"),
            "{note}"
        );
        assert!(memory(17_000, 2_000).compare(&before, 1000).is_ok());
        let error = memory(22_000, 3_000).compare(&before, 1000).unwrap_err();
        assert!(
            error.to_string().contains("Slab grew by 4000 KiB"),
            "{error}"
        );
        let error = memory(18_000, 4_000).compare(&before, 1000).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("kmalloc-64 grew by 1000 objects"),
            "{error}"
        );
        // Of so few nothing can be told.
        assert!(memory(18_000, 3_100).compare(&before, 100).is_ok());
    }

    #[test]
    fn silence_is_no_memory() {
        assert!(Memory::read("", "kmalloc-64 1 1").is_err());
        assert!(
            Memory::read(
                "Slab: 1 kB\nVmallocUsed: 1 kB\nPercpu: 1 kB\nKernelStack: 1 kB\n",
                ""
            )
            .is_err()
        );
    }
}
