// SPDX-License-Identifier: GPL-2.0

//! The programs and rights of this machine, as far as they matter to building and inserting.

use std::process::Command;
use std::time::Duration;

use super::building::compiler;
use super::machine::Folder;
use crate::insert::privileges::{self, Tool};
use crate::kernel::build_root::is_root;
use crate::process::{Env, find_program};

/// Asking a program for its version.
const DEADLINE: Duration = Duration::from_secs(60);

/// Ways to become root, the usual one first.
const TOOLS: [Tool; 3] = [Tool::Sudo, Tool::Doas, Tool::Run0];

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// What `rustc --version` says.
    pub rustc: Option<String>,
    /// What `bindgen --version` says.
    pub bindgen: Option<String>,
    /// The version of the libclang that bindgen loads, or what it says instead.
    pub libclang: Option<Result<String, String>>,
    /// What `make --version` says first.
    pub make: Option<String>,
    /// What the compiler of the kernel says of its version first.
    pub compiler: Option<String>,
    /// What the linker that goes with that says of its version first, where it is called besides.
    pub linker: Option<String>,
    /// Whether we are root.
    pub is_root: bool,
    /// Whether this process may insert modules.
    pub may_insert: bool,
    /// What makes us root.
    pub become_root: Option<&'static str>,
}

impl Host {
    /// This one; its compiler is the one that built the kernel of a folder.
    pub fn now(env: &Env<'_>, folder: &Folder) -> Self {
        let version = |program: &str| {
            find_program(program)?;
            let mut command = Command::new(program);
            command.arg("--version");
            let label = format!("asking {program} for its version");
            let text = env.output(command, &label, Some(DEADLINE)).ok()?;
            text.lines().next().map(|line| line.trim().to_owned())
        };
        let bindgen = version("bindgen");
        let compiler = folder.config.as_deref().and_then(compiler);
        Self {
            rustc: version("rustc"),
            libclang: bindgen.as_ref().and_then(|_| libclang(env)),
            bindgen,
            make: version("make"),
            compiler: compiler.and_then(|compiler| version(compiler.program)),
            linker: compiler.and_then(|compiler| version(compiler.linker?)),
            is_root: is_root(),
            may_insert: privileges::are_there(),
            become_root: TOOLS
                .map(Tool::name)
                .into_iter()
                .find(|name| find_program(name).is_some()),
        }
    }
}

/// Asks bindgen for its libclang, as the kernel does: through a message in a header.
fn libclang(env: &Env<'_>) -> Option<Result<String, String>> {
    const HEADER: &str = "#pragma message(\"clang version \" __clang_version__)\n";
    let folder = tempfile::tempdir().ok()?;
    let header = folder.path().join("libclang.h");
    std::fs::write(&header, HEADER).ok()?;
    let mut lines = Vec::new();
    let mut command = Command::new("bindgen");
    command.arg(&header);
    let ended = env.watch(
        command,
        "asking bindgen for its libclang",
        Some(DEADLINE),
        &mut |_, line| lines.push(line.to_owned()),
    );
    if let Some(version) = lines.iter().find_map(|line| clang_version(line)) {
        return Some(Ok(version.to_owned()));
    }
    let said = lines.into_iter().next_back().unwrap_or_default();
    Some(Err(match ended {
        Ok(_) => "bindgen does not name its libclang".to_owned(),
        Err(_) => format!("bindgen finds no libclang that works: {said}"),
    }))
}

/// The number in such a message.
fn clang_version(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("clang version ")?;
    let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
    let version = &rest[..end.unwrap_or(rest.len())];
    (!version.is_empty()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clang_tells_its_version() {
        let line =
            "/tmp/x/libclang.h:1:9: warning: clang version 19.1.7 (3+b1) [-W#pragma-messages]";
        assert_eq!(clang_version(line), Some("19.1.7"));
        assert_eq!(clang_version("clang version x"), None);
        assert_eq!(clang_version("nothing"), None);
    }
}
