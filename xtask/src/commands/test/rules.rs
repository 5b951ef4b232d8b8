// SPDX-License-Identifier: GPL-2.0

//! Rules of the repository that no compiler knows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::bench::Bench;
use super::harness::{Check, Need, check};

/// What it takes to know the [`files`] of the repository.
pub const GIT: Need = Need::Program(
    &["git", "-c", "safe.directory=*", "rev-parse", "--git-dir"],
    "the files of the repository are known only in a clone, with git",
);

/// The one Rust file of the module that may hold unsafe code. Userland is kept from it by a lint.
const UNSAFE: &str = "messung/sys.rs";

/// Ends of names of files that nobody here wrote: the licence, what tools write, and what was captured.
const DATA: &[&str] = &["LICENSE", ".lock", ".txt", ".log", ".json", ".gz", ".xz"];

/// Folders of data: what a fuzzer made up, and machines whose files look like those of real ones.
const MADE_UP: &[&str] = &["tests/fuzz/", "tests/machines/"];

/// The checks of this file.
pub fn checks() -> Vec<Check> {
    vec![
        check(
            "rule: each source file has its SPDX line",
            &[GIT],
            |bench| {
                each_file(bench, |file| {
                    if file.is_data() || has_spdx(&file.text) {
                        return Vec::new();
                    }
                    vec!["no SPDX line at its top".to_owned()]
                })
            },
        ),
        check(
            "rule: unsafe code is in one place, and explained",
            &[GIT],
            |bench| {
                each_file(bench, |file| {
                    if !file.name.ends_with(".rs") {
                        return Vec::new();
                    }
                    misused_unsafe(&file.text, file.name == UNSAFE)
                })
            },
        ),
        check("rule: no path of this machine", &[GIT], |bench| {
            let home = std::env::var_os("HOME");
            let words = places(&bench.repository, home.as_deref().map(Path::new));
            each_file(bench, |file| found(&file.text, &words))
        }),
        check("rule: no host of an archive", &[GIT], |bench| {
            let words = [["debian", ".org"], ["ubuntu", ".com"]].map(|pieces| pieces.concat());
            each_file(bench, |file| {
                // A captured log names the kernel's maintainers.
                if file.is_data() {
                    return Vec::new();
                }
                found(&file.text, &words)
            })
        }),
        check("rule: nothing is left to be done", &[GIT], |bench| {
            // In pieces, since this file is looked at, too.
            let words = [["TO", "DO"], ["FIX", "ME"]].map(|pieces| pieces.concat());
            each_file(bench, |file| found(&file.text, &words))
        }),
        check(
            "rule: commands in the documents exist",
            &[GIT],
            commands_exist,
        ),
    ]
}

/// A file of the repository.
pub struct File {
    /// Its path in it.
    pub name: String,
    /// What it holds.
    pub text: String,
}

impl File {
    /// Whether nobody here wrote it.
    fn is_data(&self) -> bool {
        let is_in = |folder: &&str| self.name.starts_with(folder);
        MADE_UP.iter().any(is_in) || DATA.iter().any(|end| self.name.ends_with(end))
    }

    /// Whether it is a program for a shell that somebody here wrote.
    pub fn is_script(&self) -> bool {
        !self.is_data() && (self.name.ends_with(".sh") || self.text.starts_with("#!/"))
    }
}

/// The files that are in the repository, or would be with `git add .`.
pub fn files(bench: &Bench<'_>) -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(&bench.repository);
    let names = bench.succeed(git)?.out;
    let mut files = Vec::new();
    for name in names.split_terminator('\0') {
        let path = bench.repository.join(name);
        // One that was deleted, or a link to a folder.
        if !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
        files.push(File {
            name: name.to_owned(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        });
    }
    ensure!(
        !files.is_empty(),
        "git names no file in {}",
        bench.repository.display()
    );
    Ok(files)
}

/// Applies a rule to each file, and fails with all that it finds.
fn each_file(bench: &Bench<'_>, rule: impl Fn(&File) -> Vec<String>) -> Result<String> {
    let files = files(bench)?;
    let problems: Vec<_> = files
        .iter()
        .flat_map(|file| {
            rule(file)
                .into_iter()
                .map(|problem| format!("{}: {problem}", file.name))
        })
        .collect();
    if !problems.is_empty() {
        bail!("{}", problems.join("\n  "));
    }
    Ok(format!("{} files", files.len()))
}

/// Whether the first line, or the one after `#!`, names the licence.
fn has_spdx(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let line = if first.starts_with("#!") {
        lines.next().unwrap_or_default()
    } else {
        first
    };
    line.contains(&["SPDX-License", "-Identifier: GPL-2.0"].concat())
}

/// Lines of Rust with unsafe code that is not allowed, or not explained right above.
fn misused_unsafe(text: &str, allowed: bool) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| has_unsafe(line))
        .filter_map(|(index, line)| {
            let problem = if !allowed {
                "unsafe code belongs into messung/sys.rs"
            } else if !is_explained(&lines[..index]) {
                "unsafe code without a SAFETY comment"
            } else {
                return None;
            };
            Some(format!("line {}: {problem}: {}", index + 1, line.trim()))
        })
        .collect()
}

/// Whether a line has the keyword, outside of comments and strings.
fn has_unsafe(line: &str) -> bool {
    let line = line.replace("\\\"", "");
    let code: String = line.split('"').step_by(2).collect();
    let code = code.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == "unsafe")
}

/// Whether the comment that ends here says why.
fn is_explained(above: &[&str]) -> bool {
    above
        .iter()
        .rev()
        .map(|line| line.trim_start())
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.contains("SAFETY: ") || line.contains("# Safety"))
}

/// The places that no file may name: this repository, where it lies, and the user's home.
fn places(repository: &Path, home: Option<&Path>) -> Vec<String> {
    // Something like `/` or `/src` may well stand for something else.
    let is_telling = |folder: &&Path| folder.components().count() > 2;
    let around = [Some(repository), repository.parent()]
        .into_iter()
        .flatten();
    let home = home.filter(|home| home.components().count() > 1);
    around
        .filter(is_telling)
        .chain(home)
        .map(|folder| format!("{}/", folder.display()))
        .collect()
}

/// Lines with one of the words.
fn found(text: &str, words: &[String]) -> Vec<String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        .map(|(index, line)| format!("line {}: {}", index + 1, line.trim()))
        .collect()
}

/// Each command line in README.md and docs/ is one that this program understands.
fn commands_exist(bench: &Bench<'_>) -> Result<String> {
    let mut count = 0;
    for file in files(bench)? {
        if !file.name.ends_with(".md") {
            continue;
        }
        for command in commands(&file.text) {
            let mut words: Vec<_> = command.split_ascii_whitespace().collect();
            // Parsing goes from left to right: what stands before it must be right.
            words.push("--help");
            bench
                .end_xtask(&words)?
                .exits(0)
                .with_context(|| format!("{}: cargo xtask {command}", file.name))?;
            count += 1;
        }
    }
    ensure!(count > 0, "no document names any command");
    Ok(format!("{count} commands"))
}

/// What stands behind `cargo xtask` in a document, up to the end of that command.
fn commands(text: &str) -> Vec<&str> {
    text.lines()
        .flat_map(|line| line.split("cargo xtask ").skip(1))
        .map(|rest| {
            let end = rest
                .find(['`', '|', '#', '>', '<', ';', '&', '(', ')', ',', '"', '\''])
                .unwrap_or(rest.len());
            let command = &rest[..end];
            // What lies two blanks behind it is a remark.
            command.split("  ").next().unwrap_or_default().trim()
        })
        .filter(|command| !command.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licence_comes_first() {
        let line = ["SPDX-License", "-Identifier: GPL-2.0"].concat();
        assert!(has_spdx(&format!("// {line}\nuse x;\n")));
        assert!(has_spdx(&format!("#!/bin/sh\n# {line}\n")));
        assert!(!has_spdx(&format!("use x;\n// {line}\n")));
        assert!(!has_spdx(""));
    }

    #[test]
    fn unsafe_code_is_found_and_must_be_explained() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(misused_unsafe(bare, true).len(), 1);
        let explained = "// SAFETY: g() asks for nothing.\n#[inline]\nunsafe { g() }\n";
        assert_eq!(misused_unsafe(explained, true), [""; 0]);
        assert_eq!(misused_unsafe(explained, false).len(), 1);
        for line in [
            "// unsafe",
            "let x = \"unsafe\";",
            "#![forbid(unsafe_code)]",
        ] {
            assert!(!has_unsafe(line), "{line}");
        }
    }

    #[test]
    fn places_of_this_machine_are_found() {
        let words = places(Path::new("/srv/builds/clone"), Some(Path::new("/me")));
        let text = "a\ncd /srv/builds/clone/x\n/me/x\n/m\n";
        assert_eq!(found(text, &words).len(), 2);
        // A clone in the root folder must not forbid `/`.
        assert_eq!(places(Path::new("/m"), Some(Path::new("/"))), [""; 0]);
    }

    #[test]
    fn commands_end_where_the_shell_says_so() {
        let text = "\
    cargo xtask vm --json a.json   # measure
`cargo xtask parse - <kern.log` and cargo xtask test | tee log
$ sudo cargo xtask run  inserts it
";
        assert_eq!(
            commands(text),
            ["vm --json a.json", "parse -", "test", "run"]
        );
    }
}
