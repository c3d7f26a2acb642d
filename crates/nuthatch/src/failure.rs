//! Why the program ends early.
//!
//! | status | `nuthatch` | `memcached` |
//! |---|---|---|
//! | a flag or value that is not understood | 2 | 1 |
//! | values that do not go together | 2 | 64 |
//! | a file of users that cannot be used | 1 | 1 |
//! | a file of certificates or keys that cannot be used | 1 | 64 |
//! | an unknown user | 1 | 67 |
//! | the system would not help: a port in use, a file that cannot be read | 1 | 71 |

use std::fmt;

use nuthatch_server::settings::Problem;

/// One sentence and the two exit statuses it has.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    status: u8,
    status_memcached: u8,
}

/// `EX_USAGE`, `EX_NOUSER` and `EX_OSERR` of sysexits.h, which memcached exits with.
const EX_USAGE: u8 = 64;
const EX_NOUSER: u8 = 67;
const EX_OSERR: u8 = 71;

impl Failure {
    /// The command line asks for what there is not.
    pub(crate) fn usage(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 2, status_memcached: 1 }
    }

    /// The system would not help.
    pub(crate) fn system(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 1, status_memcached: EX_OSERR }
    }

    /// A file of users cannot be used.
    pub(crate) fn credentials(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 1, status_memcached: 1 }
    }

    /// A file of certificates or keys cannot be used.
    pub(crate) fn certificates(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 1, status_memcached: EX_USAGE }
    }

    /// The user to become is not there.
    pub(crate) fn no_user(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), status: 1, status_memcached: EX_NOUSER }
    }

    /// The status to exit with under the name the program was started by.
    pub(crate) fn status(&self, as_memcached: bool) -> u8 {
        if as_memcached { self.status_memcached } else { self.status }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure {
            sentence: problem.to_string(),
            status: problem.exit_status(),
            status_memcached: problem.exit_status_memcached(),
        }
    }
}

impl From<nuthatch_bench::Failure> for Failure {
    fn from(failure: nuthatch_bench::Failure) -> Failure {
        Failure { sentence: failure.to_string(), status: failure.status(), status_memcached: failure.status() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
