// SPDX-License-Identifier: GPL-2.0

//! What went wrong, as an exit status.
//!
//! Functions return [`anyhow::Result`]; where the class of a failure matters they put a [`Failure`] into the chain.
//! An error without one means "could not measure".

use std::fmt;

/// A class of failure; the number is the exit status of `xtask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A path, the archive, a refusal to load, no run or an incomplete one.
    NotMeasured = 1,
    /// Wrong usage, judged from the arguments alone.
    Usage = 2,
    /// A limit, baseline or comparison that the user asked for failed.
    Limit = 3,
    /// The kernel under test crashed.
    Crashed = 4,
    /// A deadline passed.
    TimedOut = 5,
    /// The user interrupted.
    Interrupted = 130,
}

impl Class {
    /// The exit status of this class.
    pub fn exit_status(self) -> u8 {
        self as u8
    }
}

/// An error with a class: what failed, with which value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Decides the exit status.
    pub class: Class,
    /// The sentence the user reads.
    pub message: String,
}

impl Failure {
    /// An [`anyhow::Error`] of the given class.
    pub fn error(class: Class, message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self {
            class,
            message: message.into(),
        })
    }

    /// The class of an error: that of the first [`Failure`] in its chain.
    pub fn class_of(error: &anyhow::Error) -> Class {
        error
            .chain()
            .find_map(|cause| cause.downcast_ref::<Self>())
            .map_or(Class::NotMeasured, |failure| failure.class)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_survives_context() {
        let error = Failure::error(Class::Crashed, "the kernel panicked").context("measuring");
        assert_eq!(Failure::class_of(&error), Class::Crashed);
        assert_eq!(
            Failure::class_of(&anyhow::anyhow!("plain")),
            Class::NotMeasured
        );
    }
}
