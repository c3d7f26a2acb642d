//! The binary protocol: 24-byte headers, big-endian numbers, values without a closing `\r\n`. The server's half and the
//! frame that both halves share.
//!
//! Owns opcodes, status codes, the checks of every length, and the answers' headers. A request is handed out as soon as
//! header, extras and key are there; its value, if it has one, follows in the stream. Source: memcached's
//! `doc/protocol-binary.txt`, and `proto_bin.c` where it is stricter. Where memcached loses count of the stream (extras or
//! values where none belong), the connection is refused and closed here.

mod header;
mod opcode;
pub mod reply;
mod request;

pub use header::{HEADER_BYTES, Header, MAGIC_REQUEST, MAGIC_RESPONSE};
pub use opcode::Opcode;
pub use request::{Arith, Command, Get, Parsed, Refusal, Request, SaslStep, Store, Verb, parse};

/// Longest extras of any request (`incr`: delta, initial value, expiry time).
pub const EXTRAS_BYTES_MAX: usize = 20;

/// Longest body a request may announce: the most that memcached's `-I` can allow.
pub const BODY_BYTES_MAX: u32 = 1 << 30;

/// The expiry time with which `incr` and `decr` do not create what is missing.
pub const EXPTIME_NO_CREATE: u32 = u32::MAX;

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Carried out.
    Success,
    /// There is no such item.
    KeyNotFound,
    /// There is such an item, or it has changed since it was read.
    KeyExists,
    /// The value is larger than items may be.
    TooLarge,
    /// Lengths or arguments that do not belong to the opcode.
    InvalidArguments,
    /// `append` or `prepend` to nothing.
    NotStored,
    /// The value is no number.
    NonNumeric,
    /// Not authenticated, or not allowed.
    AuthError,
    /// Authentication goes on with another step.
    AuthContinue,
    /// No such opcode.
    UnknownCommand,
    /// No memory for the item.
    OutOfMemory,
    /// What is behind the server did not do it. memcached never says so; clients know it from other servers.
    TemporaryFailure,
}

impl Status {
    /// The status with this number, for clients.
    #[must_use]
    pub const fn from_wire(number: u16) -> Option<Status> {
        Some(match number {
            0x00 => Status::Success,
            0x01 => Status::KeyNotFound,
            0x02 => Status::KeyExists,
            0x03 => Status::TooLarge,
            0x04 => Status::InvalidArguments,
            0x05 => Status::NotStored,
            0x06 => Status::NonNumeric,
            0x20 => Status::AuthError,
            0x21 => Status::AuthContinue,
            0x81 => Status::UnknownCommand,
            0x82 => Status::OutOfMemory,
            0x86 => Status::TemporaryFailure,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[must_use]
    pub const fn as_wire(self) -> u16 {
        match self {
            Status::Success => 0x00,
            Status::KeyNotFound => 0x01,
            Status::KeyExists => 0x02,
            Status::TooLarge => 0x03,
            Status::InvalidArguments => 0x04,
            Status::NotStored => 0x05,
            Status::NonNumeric => 0x06,
            Status::AuthError => 0x20,
            Status::AuthContinue => 0x21,
            Status::UnknownCommand => 0x81,
            Status::OutOfMemory => 0x82,
            Status::TemporaryFailure => 0x86,
        }
    }

    /// The text that memcached sends as the body of an answer that says no.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Status::Success | Status::AuthContinue => "",
            Status::KeyNotFound => "Not found",
            Status::KeyExists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::InvalidArguments => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NonNumeric => "Non-numeric server-side value for incr or decr",
            Status::AuthError => "Auth failure.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
            Status::TemporaryFailure => "Temporary failure",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_numbers_go_both_ways() {
        let known: Vec<Status> = (0..=u16::MAX).filter_map(Status::from_wire).collect();
        assert_eq!(known.len(), 12);
        for status in known {
            assert_eq!(Status::from_wire(status.as_wire()), Some(status));
            assert_eq!(status.text().is_empty(), matches!(status, Status::Success | Status::AuthContinue));
        }
    }
}
