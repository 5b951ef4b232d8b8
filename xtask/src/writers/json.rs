// SPDX-License-Identifier: GPL-2.0

//! A result as a file: whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::NamedTempFile;

use crate::result::Run;

/// A path that a result will be written to. Made before the measurement, so that nobody waits for a path that cannot be written.
pub struct Output {
    /// As the user named it.
    path: PathBuf,
    place: Place,
}

enum Place {
    /// A new file, which replaces what stands at `target` once it is whole.
    Beside {
        file: NamedTempFile,
        target: PathBuf,
    },
    /// Something that must stay what it is: a device, a pipe.
    There(File),
}

impl Output {
    /// Makes sure that `path` can be written. Nothing appears there yet.
    ///
    /// # Errors
    ///
    /// A folder that is missing or cannot be written, a path that is a folder.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let place = place(path)
            .with_context(|| format!("cannot write the result to {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            place,
        })
    }

    /// Writes `run`.
    ///
    /// # Errors
    ///
    /// A full disk, mostly. What stood at the path before stays.
    pub fn write(self, run: &Run) -> anyhow::Result<()> {
        self.write_bytes(run.to_json().as_bytes())
    }

    /// Writes something else that is to be whole or not at all.
    ///
    /// # Errors
    ///
    /// See [`Self::write`].
    pub fn write_bytes(self, bytes: &[u8]) -> anyhow::Result<()> {
        let Self { path, place } = self;
        write(place, bytes)
            .with_context(|| format!("cannot write the result to {}", path.display()))
    }
}

fn place(path: &Path) -> anyhow::Result<Place> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => anyhow::bail!("this is a folder: name a file in it"),
        Ok(metadata) if !metadata.is_file() => {
            return Ok(Place::There(File::options().write(true).open(path)?));
        }
        // Replacing a file that refuses to be written would surprise its owner.
        Ok(_) => drop(File::options().write(true).open(path)?),
        Err(_) => {}
    }
    // A link stays a link: what it points to is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = match target.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => anyhow::bail!("this names no file"),
    };
    anyhow::ensure!(folder.is_dir(), "there is no folder {}", folder.display());
    let file = tempfile::Builder::new()
        .prefix(".messung-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        // Its own words name a file that nobody asked for.
        .map_err(|error| io::Error::from(error.kind()))
        .with_context(|| format!("cannot make a file in {}", folder.display()))?;
    Ok(Place::Beside { file, target })
}

fn write(place: Place, text: &[u8]) -> anyhow::Result<()> {
    match place {
        Place::There(mut file) => file.write_all(text)?,
        Place::Beside { mut file, target } => {
            file.write_all(text)?;
            file.as_file().sync_all()?;
            file.persist(target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writers::tests::article;

    #[test]
    fn a_result_appears_whole_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let output = Output::create(&path).unwrap();
        assert!(!path.exists());
        output.write(&article()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(Run::from_json(&text).unwrap(), article());
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn an_unused_output_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        drop(Output::create(&folder.path().join("a.json")).unwrap());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.json"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Output::create(&link).unwrap().write(&article()).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert!(std::fs::read_to_string(&file).unwrap().starts_with('{'));
    }

    #[test]
    fn devices_are_written_in_place() {
        Output::create(Path::new("/dev/null"))
            .unwrap()
            .write(&article())
            .unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = Output::create(Path::new("/nonexistent/a.json"));
        let error = format!("{:#}", error.err().unwrap());
        assert!(error.ends_with("no folder /nonexistent"), "{error}");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        for path in ["/nonexistent/a.json", "/", "/proc/a.json"] {
            let error = Output::create(Path::new(path)).err().unwrap();
            assert!(error.to_string().contains(path), "{error:#}");
            let whole = format!("{error:#}");
            assert!(!whole.contains(".messung-"), "{whole}");
        }
    }
}
