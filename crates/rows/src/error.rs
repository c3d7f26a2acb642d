//! Why a table did not answer. Each is one sentence that names the one to blame.

use std::fmt;

/// Why a table did not answer, or could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The settings contradict themselves or cannot be read.
    Settings(String),
    /// The mapping does not fit the real table.
    Mapping(String),
    /// The client's key or value does not fit its columns.
    Client(String),
    /// The database refused this row.
    Row(String),
    /// The database refused, whatever the row.
    Refused(String),
    /// The database cannot be reached.
    Unreachable(String),
    /// The database took too long, and the write was not begun or was undone.
    Overdue(String),
    /// The connection was lost between a write and its commit: it may be there or not.
    Unknown(String),
    /// More requests wait than may.
    Full(String),
}

impl Error {
    /// Whether another request of the client would have been answered.
    pub fn is_clients(&self) -> bool {
        matches!(self, Error::Client(_) | Error::Row(_))
    }

    /// Whether the database is away, so that older copies may be served meanwhile.
    pub fn is_outage(&self) -> bool {
        matches!(self, Error::Unreachable(_) | Error::Overdue(_) | Error::Full(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Settings(sentence)
            | Error::Mapping(sentence)
            | Error::Client(sentence)
            | Error::Row(sentence)
            | Error::Refused(sentence)
            | Error::Unreachable(sentence)
            | Error::Overdue(sentence)
            | Error::Unknown(sentence)
            | Error::Full(sentence) => f.write_str(&one_line(sentence)),
        }
    }
}

impl std::error::Error for Error {}

/// Databases answer in several lines; a protocol has one.
fn one_line(text: &str) -> String {
    text.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
