// SPDX-License-Identifier: GPL-2.0

//! A mirror of Debian's archive on this machine that lies: it serves the signed indices that the cache holds, and tampers with
//! them or with what they name.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// How a mirror lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The index is genuine; each file that it names has the right size and the wrong content.
    Hash,
    /// The index was changed after it was signed.
    Signature,
}

/// A mirror, for as long as this program runs.
pub struct Mirror {
    address: SocketAddr,
}

impl Mirror {
    /// Starts a mirror with the indices from a cache.
    ///
    /// # Errors
    ///
    /// The cache holds none, or the system refuses a port.
    pub fn start(cache: &Path, lie: Lie) -> Result<Self> {
        let mut indices = BTreeMap::new();
        collect(&cache.join("archive"), &mut indices)?;
        ensure!(!indices.is_empty(), "the cache holds no signed index");
        if lie == Lie::Signature {
            indices
                .values_mut()
                .for_each(|index| *index = tampered(index));
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let indices = Arc::new(indices);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let indices = Arc::clone(&indices);
                // A client that goes away is its own matter.
                thread::spawn(move || drop(serve(stream, &indices)));
            }
        });
        Ok(Self { address })
    }

    /// What `--mirror` takes.
    pub fn url(&self) -> String {
        format!("http://{}/debian", self.address)
    }
}

/// The signed indices below a folder, by suite.
fn collect(folder: &Path, indices: &mut BTreeMap<String, String>) -> Result<()> {
    let cannot = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            // What apt is in the middle of.
            if name != "partial" {
                collect(&path, indices)?;
            }
        } else if let Some(suite) = suite(&name) {
            let text = std::fs::read_to_string(&path).with_context(cannot)?;
            indices.insert(suite.to_owned(), text);
        }
    }
    Ok(())
}

/// The suite whose index apt keeps under a name such as `mirror_debian_dists_sid_InRelease`.
fn suite(name: &str) -> Option<&str> {
    let (_, suite) = name.strip_suffix("_InRelease")?.rsplit_once("_dists_")?;
    Some(suite)
}

/// An index with a change that leaves its form alone.
fn tampered(index: &str) -> String {
    index.replacen("Origin: Debian", "Origin: Nobody", 1)
}

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
enum Answer<'a> {
    Index(&'a str),
    /// As many bytes of nothing.
    Nothing(u64),
    Missing,
}

/// Looks a path such as `/debian/dists/sid/InRelease` up.
fn answer<'a>(path: &str, indices: &'a BTreeMap<String, String>) -> Answer<'a> {
    let Some((_, rest)) = path.split_once("/dists/") else {
        return Answer::Missing;
    };
    let Some((suite, file)) = rest.split_once('/') else {
        return Answer::Missing;
    };
    let Some(index) = indices.get(suite) else {
        return Answer::Missing;
    };
    if file == "InRelease" {
        return Answer::Index(index);
    }
    let hash = file.rsplit_once("/by-hash/SHA256/").map(|(_, hash)| hash);
    size(index, file, hash).map_or(Answer::Missing, Answer::Nothing)
}

/// The size that an index says a file has, by its hash if that is known, else by its name.
fn size(index: &str, file: &str, hash: Option<&str>) -> Option<u64> {
    index.lines().find_map(|line| {
        let mut words = line.strip_prefix(' ')?.split_ascii_whitespace();
        let (sum, size, name) = (words.next()?, words.next()?, words.next()?);
        let is_meant = match hash {
            Some(hash) => sum == hash,
            None => name == file,
        };
        is_meant.then(|| size.parse().ok())?
    })
}

/// Answers the requests of one client.
fn serve(stream: TcpStream, indices: &BTreeMap<String, String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        // Until the blank line that ends a request.
        while line.trim_end() != "" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        line.clear();
        let head = |status: &str, length: u64| {
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n")
        };
        match answer(&path, indices) {
            Answer::Index(text) => {
                write!(writer, "{}{text}", head("200 OK", text.len() as u64))?;
            }
            Answer::Nothing(size) => {
                write!(writer, "{}", head("200 OK", size))?;
                std::io::copy(&mut std::io::repeat(0).take(size), &mut writer)?;
            }
            Answer::Missing => write!(writer, "{}", head("404 Not Found", 0))?,
        }
        writer.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "\
Origin: Debian
SHA256:
 aa11 1234 main/binary-amd64/Packages
 bb22    99 main/binary-amd64/Packages.xz
";

    #[test]
    fn files_have_the_size_that_the_index_says() {
        let indices = BTreeMap::from([("sid".to_owned(), INDEX.to_owned())]);
        let ask = |path| answer(path, &indices);
        assert_eq!(ask("/debian/dists/sid/InRelease"), Answer::Index(INDEX));
        assert_eq!(
            ask("/debian/dists/sid/main/binary-amd64/by-hash/SHA256/bb22"),
            Answer::Nothing(99)
        );
        assert_eq!(
            ask("/debian/dists/sid/main/binary-amd64/Packages"),
            Answer::Nothing(1234)
        );
        for path in ["/", "/debian/dists/sid/x", "/debian/dists/no/InRelease"] {
            assert_eq!(ask(path), Answer::Missing, "{path}");
        }
    }

    #[test]
    fn suites_are_known_by_their_files() {
        assert_eq!(
            suite("m_debian_dists_trixie-backports_InRelease"),
            Some("trixie-backports")
        );
        assert_eq!(suite("m_debian_dists_sid_main_binary-amd64_Packages"), None);
        assert_ne!(tampered(INDEX), INDEX);
    }
}
