//! `touch <key> <exptime> [noreply]`.

use super::{Outcome, Reject, Request, checked_key, is_noreply};
use crate::WireError;
use crate::num::strict_i32;
use crate::scan::Tokens;

/// A new expiry time for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key, 1 to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// Seconds, as the client wrote them.
    pub exptime: i32,
    /// No answer is wanted.
    pub noreply: bool,
}

pub(super) fn parse(args: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(args);
    let (Some(key), Some(exptime)) = (tokens.next(), tokens.next()) else { return Err(Reject::FORMAT) };
    let noreply = is_noreply(tokens.last().unwrap_or(exptime));
    let key = checked_key(key, noreply)?;
    let exptime = strict_i32(exptime).ok_or(Reject::quiet(WireError::InvalidExptime, noreply))?;
    Ok(Request::Touch(Touch { key, exptime, noreply }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refusal, refused, request};
    use super::*;
    use crate::KEY_BYTES_MAX;

    #[test]
    fn expiry_times_are_signed_32_bit() {
        for (line, exptime, noreply) in [
            (&b"touch k 0\r\n"[..], 0, false),
            (b"touch k -2147483648 noreply\r\n", i32::MIN, true),
            (b"touch k 2147483647\r\n", i32::MAX, false),
        ] {
            let Request::Touch(touch) = request(line) else { panic!() };
            assert_eq!(touch, Touch { key: b"k", exptime, noreply });
        }
        for line in [&b"touch k x\r\n"[..], b"touch k 2147483648\r\n", b"touch k +1\r\n", b"touch k 1.5\r\n"] {
            refused(line, WireError::InvalidExptime);
        }
        assert_eq!(refusal(b"touch k x noreply\r\n").reply(), b"");
    }

    #[test]
    fn key_and_time_must_be_there() {
        refused(b"touch\r\n", WireError::BadCommandLineFormat);
        refused(b"touch k\r\n", WireError::BadCommandLineFormat);
        let long = format!("touch {} 1\r\n", "k".repeat(KEY_BYTES_MAX + 1));
        refused(long.as_bytes(), WireError::BadCommandLineFormat);
    }
}
