//! The memcached wire formats, sans-I/O: bytes in, requests out; replies in, bytes out; and the other way round for clients.
//!
//! Owns every byte that memcached clients and servers exchange: text and meta commands ([`ascii`], [`meta`]), the binary
//! protocol ([`binary`]), UDP framing ([`udp`]) and the client's half of all of them ([`client`]). Anyone may call it.
//! What never happens here: no I/O, no clock, no store, no allocation other than growth of a caller's `Vec<u8>`, and no
//! panic whatever the bytes.
//!
//! The sources are memcached's `doc/protocol.txt` and the behaviour of memcached 1.6.45, where the two differ the latter.
#![forbid(unsafe_code)]

pub mod ascii;
mod base64;
pub mod binary;
pub mod client;
mod error;
pub mod forget;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod meta;
mod num;
mod scan;
pub mod udp;

pub use base64::{decode as base64_decode, encode as base64_encode};
pub use error::WireError;
pub use num::{push_i64, push_u64};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Longest key in bytes, in every protocol; of a base64 key both the token and what it decodes to.
pub const KEY_BYTES_MAX: usize = 250;

/// A command line longer than this whose end has not arrived is refused, unless it is a retrieval (see
/// [`ascii::Parsed::LongGet`]).
pub const LINE_BYTES_MAX: usize = 2048;

/// Longest value a command may announce: what fits a signed 32-bit length together with the closing `\r\n`.
pub const VALUE_BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// The two protocols that share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Text and meta commands.
    Ascii,
    /// Binary frames.
    Binary,
}

/// Which protocol a connection speaks, from the first byte it sends: `0x80` opens a binary request, everything else is text.
#[must_use]
pub const fn detect(first_byte: u8) -> Protocol {
    if first_byte == binary::MAGIC_REQUEST { Protocol::Binary } else { Protocol::Ascii }
}
