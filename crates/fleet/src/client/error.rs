//! What goes wrong between a program and its servers. One sentence each, and the one to blame is named.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nuthatch_proto::client::BadRequest;

/// Why an operation came to nothing. It is not known whether a write that ends in [`Error::Lost`], [`Error::Silent`] or
/// [`Error::Timeout`] was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The caller's: the key, value or flag cannot be sent. Nothing was.
    Request(BadRequest),
    /// The caller's: the value is longer than this client sends.
    ValueTooLong {
        /// Its length.
        value_bytes: usize,
        /// The most that is sent.
        value_bytes_max: usize,
    },
    /// The caller's: the protocol that this fleet speaks has no such request.
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// What would have to be spoken.
        expected: &'static str,
    },
    /// The fleet has no servers.
    NoServers,
    /// The server is slower than what is asked of it: as many requests as may wait for it do.
    Busy {
        /// Which.
        server: Arc<str>,
    },
    /// The server failed too often and is given time.
    Down {
        /// Which.
        server: Arc<str>,
    },
    /// No connection to the server.
    Connect {
        /// Which.
        server: Arc<str>,
        /// What the operating system said.
        why: Arc<str>,
    },
    /// The connection ended before the answer came.
    Lost {
        /// To which.
        server: Arc<str>,
        /// What the operating system said.
        why: Arc<str>,
    },
    /// The server answered nothing for so long that its connection was given up.
    Silent {
        /// Which.
        server: Arc<str>,
        /// How long.
        after: Duration,
    },
    /// The answer did not come within the time a whole operation may take.
    Timeout {
        /// Whose.
        server: Arc<str>,
        /// How long.
        after: Duration,
    },
    /// What came is no answer to what was asked; the connection was given up.
    Garbage {
        /// Whose.
        server: Arc<str>,
        /// The front of it, escaped, and what was expected.
        seen: Arc<str>,
    },
    /// The server says it will not.
    Refused {
        /// Which.
        server: Arc<str>,
        /// Its line or the text of its status: `SERVER_ERROR …`.
        line: Arc<str>,
    },
    /// The server knows no prefixes and tags: it is a memcached, or a Nuthatch that is spoken to in the binary protocol and
    /// whose reserved keys are off.
    CannotForget {
        /// Which.
        server: Arc<str>,
        /// What it answered.
        line: Arc<str>,
    },
    /// The runtime that this client was made in has ended, or the server has left the fleet meanwhile.
    Stopped {
        /// Which.
        server: Arc<str>,
    },
    /// [`Client::new`](super::Client::new) was called outside a tokio runtime.
    NoRuntime,
}

impl Error {
    /// The server to blame, if it is one.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        match self {
            Error::Busy { server }
            | Error::Down { server }
            | Error::Connect { server, .. }
            | Error::Lost { server, .. }
            | Error::Silent { server, .. }
            | Error::Timeout { server, .. }
            | Error::Garbage { server, .. }
            | Error::Refused { server, .. }
            | Error::CannotForget { server, .. }
            | Error::Stopped { server } => Some(server),
            _ => None,
        }
    }

    /// Whether another server might do: everything but the caller's own errors and a server's clear refusal.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.server().is_some() && !matches!(self, Error::Refused { .. } | Error::CannotForget { .. })
    }
}

impl From<BadRequest> for Error {
    fn from(error: BadRequest) -> Error {
        Error::Request(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Request(error) => error.fmt(f),
            Error::ValueTooLong { value_bytes, value_bytes_max } => {
                write!(f, "the value has {value_bytes} bytes, expected at most {value_bytes_max}")
            }
            Error::Unsupported { what, expected } => {
                write!(f, "the fleet's protocol has no {what}, expected one that has: {expected}")
            }
            Error::NoServers => f.write_str("the fleet has no servers, expected at least one"),
            Error::Busy { server } => write!(f, "server {server} has all the requests waiting that may wait for it"),
            Error::Down { server } => write!(f, "server {server} has failed too often and is not asked for now"),
            Error::Connect { server, why } => write!(f, "server {server} cannot be connected to: {why}"),
            Error::Lost { server, why } => write!(f, "server {server} ended the connection before it answered: {why}"),
            Error::Silent { server, after } => {
                write!(f, "server {server} answered nothing within {} ms", after.as_millis())
            }
            Error::Timeout { server, after } => {
                write!(f, "server {server} did not answer within the {} ms of an operation", after.as_millis())
            }
            Error::Garbage { server, seen } => write!(f, "server {server} sent {seen}"),
            Error::Refused { server, line } => write!(f, "server {server} refused: {line}"),
            Error::CannotForget { server, line } => {
                write!(
                    f,
                    "server {server} cannot forget a prefix or tag: it answered {line}, expected it to be a Nuthatch"
                )
            }
            Error::Stopped { server } => write!(f, "server {server} is no longer asked by this client"),
            Error::NoRuntime => f.write_str("a client has to be made inside a tokio runtime"),
        }
    }
}

impl std::error::Error for Error {}
