//! What stops a start-up, in one sentence, and what is merely worth saying.

use std::fmt;

/// Why settings cannot be used: one sentence that names where, what and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    sentence: String,
    kind: Kind,
}

/// What went wrong, as far as exit codes tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A flag, option, key or value that is not understood.
    Value,
    /// Values that do not go together or ask for what is not there.
    Combination,
    /// The system would not help: a file that cannot be read, a host name that is not known.
    System,
}

impl Problem {
    pub(super) fn new(kind: Kind, sentence: impl Into<String>) -> Problem {
        Problem { sentence: sentence.into(), kind }
    }

    pub(super) fn value(sentence: impl Into<String>) -> Problem {
        Problem::new(Kind::Value, sentence)
    }

    pub(super) fn combination(sentence: impl Into<String>) -> Problem {
        Problem::new(Kind::Combination, sentence)
    }

    /// The exit status under the name `nuthatch`: 2 for usage, 1 for the system.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            Kind::Value | Kind::Combination => 2,
            Kind::System => 1,
        }
    }

    /// The exit status under the name `memcached`, which exits 1 for a value, 64 (`EX_USAGE`) for a combination and 71
    /// (`EX_OSERR`) for the system.
    pub fn exit_status_memcached(&self) -> u8 {
        match self.kind {
            Kind::Value => 1,
            Kind::Combination => 64,
            Kind::System => 71,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Problem {}

/// Something an operator should know about settings that work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Said whatever the verbosity; otherwise from `-v` on.
    pub always: bool,
    /// One sentence.
    pub text: String,
}
