//! Authentication over text: a `set` of any key whose value is `user password`.
//!
//! Owns the only thing that a connection may say before it has authenticated. Source: `doc/protocol.txt`,
//! "Authentication".

use super::{Args, Refusal};
use crate::num::strict_u32;
use crate::{LINE_BYTES_MAX, WireError, scan};

/// Longest `user password`.
pub const TOKEN_BYTES_MAX: usize = 16_384;

/// A line that is shorter, its `\r` included, closes the connection.
const LINE_BYTES_MIN: usize = 6;

/// What the front of a buffer holds while a connection has not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not all of it: read more and call again. Never waits for more than [`LINE_BYTES_MAX`] and [`TOKEN_BYTES_MAX`].
    Incomplete,
    /// Who it is. Answer `STORED` or [`WireError::AuthenticationFailure`].
    Credentials {
        /// What stands before the first space.
        user: &'a [u8],
        /// What stands after it.
        password: &'a [u8],
        /// Bytes of line and value, to be taken off the buffer.
        used: usize,
    },
    /// Something else. Take [`Refusal::line_bytes`] off the buffer, which here include the value where one was read.
    Refused(Refusal),
}

/// Parses an authentication request at the front of `buf`.
#[must_use]
pub fn parse(buf: &[u8]) -> Parsed<'_> {
    let Some(end) = scan::find(b'\n', buf) else {
        if buf.len() <= LINE_BYTES_MAX {
            return Parsed::Incomplete;
        }
        return refused(None, buf.len(), true);
    };
    let line_bytes = end + 1;
    if end < LINE_BYTES_MIN {
        // Nobody who may come in says this, and whoever sends nothing but line ends is not worth an answer to each.
        return refused(None, line_bytes, true);
    }
    let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
    let token_bytes = match Args::new(line).all() {
        [_, _, _, _, bytes, ..] if line.starts_with(b"set") => strict_u32(bytes),
        _ => None,
    };
    let Some(token_bytes) = token_bytes else { return refused(Some(WireError::Unauthenticated), line_bytes, false) };
    let token_bytes = token_bytes as usize;
    if token_bytes > TOKEN_BYTES_MAX {
        // The value is not read: what comes of it is taken for commands, which are refused one by one.
        return refused(Some(WireError::AuthTokenTooLong), line_bytes, false);
    }
    let used = line_bytes + token_bytes + 2;
    let Some(body) = buf.get(line_bytes..used) else { return Parsed::Incomplete };
    let Some(token) = body.strip_suffix(b"\r\n") else {
        return refused(Some(WireError::BadAuthTermination), used, false);
    };
    match scan::find(b' ', token) {
        Some(at) => Parsed::Credentials { user: &token[..at], password: &token[at + 1..], used },
        None => refused(Some(WireError::BadAuthToken), used, false),
    }
}

fn refused(error: Option<WireError>, line_bytes: usize, close: bool) -> Parsed<'static> {
    Parsed::Refused(Refusal { error, noreply: false, line_bytes, swallow_bytes: 0, close })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(buf: &[u8]) -> (Option<WireError>, usize, bool) {
        let Parsed::Refused(refusal) = parse(buf) else { panic!("{}", buf.escape_ascii()) };
        (refusal.error, refusal.line_bytes, refusal.close)
    }

    #[test]
    fn credentials_come_as_the_value_of_any_set() {
        let whole = b"set any 0 0 9\r\nuser pass\r\nget k\r\n";
        let expected = Parsed::Credentials { user: b"user", password: b"pass", used: 26 };
        assert_eq!(parse(whole), expected);
        for cut in 0..26 {
            assert_eq!(parse(&whole[..cut]), Parsed::Incomplete);
        }
        let spaced = parse(b"set any 0 0 11\nuser pa ss \r\n");
        assert_eq!(spaced, Parsed::Credentials { user: b"user", password: b"pa ss ", used: 28 });
    }

    #[test]
    fn everything_else_is_unauthenticated_and_taken_line_by_line() {
        for line in [
            &b"get k\r\n"[..],
            b"      \r\n",
            b"mn noop\r\n",
            b"set k 0 0\r\n",
            b"set k 0 0 -1\r\n",
            b"set k 0 0 x\r\n",
            b"ms k 5\r\n",
            b"add k 0 0 5\r\n",
        ] {
            assert_eq!(refusal(line), (Some(WireError::Unauthenticated), line.len(), false));
        }
    }

    #[test]
    fn lines_too_short_to_let_anyone_in_close() {
        for line in [&b"\n"[..], b"\r\n", b"mn\r\n", b"quit\n"] {
            assert_eq!(refusal(line), (None, line.len(), true));
        }
        assert_eq!(refusal(b"quit\r\n"), (None, 6, true));
        assert_eq!(refusal(b"quit 1\n"), (Some(WireError::Unauthenticated), 7, false));
    }

    #[test]
    fn bad_tokens_have_their_own_words() {
        assert_eq!(refusal(b"set k 0 0 4\r\nuser\r\n"), (Some(WireError::BadAuthToken), 19, false));
        assert_eq!(refusal(b"set k 0 0 0\r\n\r\n"), (Some(WireError::BadAuthToken), 15, false));
        assert_eq!(refusal(b"set k 0 0 4\r\nuser pass"), (Some(WireError::BadAuthTermination), 19, false));
        assert_eq!(refusal(b"set k 0 0 16385\r\n"), (Some(WireError::AuthTokenTooLong), 17, false));
        assert_eq!(refusal(b"set k 0 0 4294967295\r\n"), (Some(WireError::AuthTokenTooLong), 22, false));
        assert_eq!(parse(b"set k 0 0 16384\r\n"), Parsed::Incomplete);
        assert_eq!(refusal(&[b'x'; LINE_BYTES_MAX + 1]), (None, LINE_BYTES_MAX + 1, true));
    }
}
