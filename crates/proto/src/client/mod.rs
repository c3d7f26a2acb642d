//! The client's half: requests out, answers in.
//!
//! Owns what a client may send (keys and values that no server could mistake for something else) and the reading of
//! answers, complete or in part. For the load generator, the tests and whoever else talks to memcached servers. No
//! connections here: bytes are appended to a `Vec<u8>` and read from a slice.
//!
//! ```
//! use nuthatch_proto::client::{Step, reply, text};
//! let mut out = Vec::new();
//! text::get(&mut out, &[b"key"])?;
//! assert_eq!(out, b"get key\r\n");
//! let Step::Done { reply: reply::Reply::Value(hit), used: 19 } = reply::parse(b"VALUE key 0 2\r\nhi\r\nEND\r\n") else {
//!     panic!()
//! };
//! assert_eq!(hit.value, b"hi");
//! # Ok::<(), nuthatch_proto::client::BadRequest>(())
//! ```

pub mod binary;
pub mod meta;
pub mod reply;
pub mod text;

use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// What the front of a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Not a whole answer yet: read more, until the buffer has at least this many bytes, and call again.
    NeedMore {
        /// Bytes needed from the front of the buffer; more may turn out to be.
        need_bytes: usize,
    },
    /// An answer.
    Done {
        /// The answer.
        reply: T,
        /// Bytes of the buffer that it took.
        used: usize,
    },
    /// What the server sent is no answer, so nothing after it can be trusted: close the connection.
    Broken(BadReply),
}

/// Why a request is not sent. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRequest {
    /// The key is empty.
    KeyEmpty,
    /// The key has more than 250 bytes (or 187 that need base64).
    KeyTooLong {
        /// Length of the key.
        key_bytes: usize,
    },
    /// The key has a space or control character, which text commands cannot carry.
    KeyNotText,
    /// The value does not fit the protocol's lengths.
    ValueTooLong {
        /// Length of the value.
        value_bytes: usize,
    },
    /// A flag is no letter, or its argument has a space or control character.
    FlagNotText,
}

impl std::fmt::Display for BadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadRequest::KeyEmpty => f.write_str("the key is empty, expected 1 to 250 bytes"),
            BadRequest::KeyTooLong { key_bytes } => {
                write!(f, "the key has {key_bytes} bytes, expected at most 250, or 187 if it must be sent in base64")
            }
            BadRequest::KeyNotText => {
                f.write_str("the key has a space or control character, expected none in a text command")
            }
            BadRequest::ValueTooLong { value_bytes } => {
                write!(f, "the value has {value_bytes} bytes, expected at most {VALUE_BYTES_MAX}")
            }
            BadRequest::FlagNotText => {
                f.write_str("a flag is not a letter with an argument free of spaces and control characters")
            }
        }
    }
}

impl std::error::Error for BadRequest {}

/// Why bytes of a server are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadReply {
    /// A line that does not end.
    LineTooLong,
    /// A line whose first word promises more than it holds.
    Line,
    /// A value that does not end in `\r\n`.
    ValueEnd,
    /// A frame that does not begin as an answer.
    Magic,
    /// A frame whose lengths contradict each other.
    Lengths,
}

impl std::fmt::Display for BadReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BadReply::LineTooLong => "the server's line does not end, expected at most 8192 bytes",
            BadReply::Line => "the server's line is cut short or has a number that is none",
            BadReply::ValueEnd => "the server's value does not end in \\r\\n",
            BadReply::Magic => "the server's frame does not begin with 0x81",
            BadReply::Lengths => "the server's frame has a body shorter than its extras and key",
        })
    }
}

impl std::error::Error for BadReply {}

/// A key that text commands can carry.
pub fn check_text_key(key: &[u8]) -> Result<(), BadRequest> {
    check_key(key)?;
    if is_text(key) { Ok(()) } else { Err(BadRequest::KeyNotText) }
}

/// A key that some protocol can carry: the binary one carries all of them.
pub fn check_key(key: &[u8]) -> Result<(), BadRequest> {
    match key.len() {
        0 => Err(BadRequest::KeyEmpty),
        1..=KEY_BYTES_MAX => Ok(()),
        key_bytes => Err(BadRequest::KeyTooLong { key_bytes }),
    }
}

/// A key that meta commands can carry, in base64 if need be.
pub fn check_meta_key(key: &[u8]) -> Result<(), BadRequest> {
    if is_text(key) { check_key(key) } else { check_coded_key(key) }
}

/// A key that fits in base64: every three bytes of it are four there, which have to fit where a key fits.
fn check_coded_key(key: &[u8]) -> Result<(), BadRequest> {
    check_key(key)?;
    let key_bytes = key.len();
    if key_bytes.div_ceil(3) * 4 > KEY_BYTES_MAX { Err(BadRequest::KeyTooLong { key_bytes }) } else { Ok(()) }
}

fn check_value(value: &[u8]) -> Result<(), BadRequest> {
    let value_bytes = value.len();
    if value_bytes > VALUE_BYTES_MAX as usize { Err(BadRequest::ValueTooLong { value_bytes }) } else { Ok(()) }
}

/// Free of spaces and control characters. What is above ASCII is the client's own matter.
fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What `write` appends to an empty buffer.
    pub(crate) fn sent(write: impl Fn(&mut Vec<u8>) -> Result<(), BadRequest>) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        out
    }

    #[test]
    fn keys_that_could_be_mistaken_are_not_sent() {
        assert_eq!(check_text_key(b""), Err(BadRequest::KeyEmpty));
        assert_eq!(check_text_key(&[b'k'; 251]), Err(BadRequest::KeyTooLong { key_bytes: 251 }));
        for bad in [&b"a b"[..], b"a\r\nflush_all", b"\0", b"\x7f", b"a\tb"] {
            assert_eq!(check_text_key(bad), Err(BadRequest::KeyNotText));
            assert_eq!(check_key(bad), Ok(()));
        }
        assert_eq!(check_text_key("sch\u{f6}n".as_bytes()), Ok(()));
        assert_eq!(check_text_key(&[b'k'; 250]), Ok(()));
    }

    #[test]
    fn errors_are_sentences_that_say_what_was_expected() {
        assert_eq!(
            BadRequest::KeyTooLong { key_bytes: 300 }.to_string(),
            "the key has 300 bytes, expected at most 250, or 187 if it must be sent in base64"
        );
        assert_eq!(BadRequest::KeyEmpty.to_string(), "the key is empty, expected 1 to 250 bytes");
        assert_eq!(BadReply::Magic.to_string(), "the server's frame does not begin with 0x81");
    }
}
