//! Why a benchmark ends early: one sentence and an exit status.

use std::fmt;

/// What went wrong, in one sentence that names what, where and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    sentence: String,
    status: u8,
}

impl Failure {
    /// The command line asks for what there is not: exit status 2.
    pub(crate) fn usage(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 2 }
    }

    /// The server or the system would not play along, or answers were wrong: exit status 1.
    pub(crate) fn run(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 1 }
    }

    /// The status to exit with.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}
