//! `incr <key> <delta> [noreply]` and `decr`.

use super::{Outcome, Reject, Request, checked_key, is_noreply};
use crate::WireError;
use crate::num::strict_u64;
use crate::scan::Tokens;

/// An increment or decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key, 1 to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// By how much.
    pub delta: u64,
    /// `decr`.
    pub decrement: bool,
    /// No answer is wanted.
    pub noreply: bool,
}

pub(super) fn parse(args: &[u8], decrement: bool) -> Outcome<'_> {
    let mut tokens = Tokens::new(args);
    let (Some(key), Some(delta)) = (tokens.next(), tokens.next()) else { return Err(Reject::FORMAT) };
    let noreply = is_noreply(tokens.last().unwrap_or(delta));
    let key = checked_key(key, noreply)?;
    let delta = strict_u64(delta).ok_or(Reject::quiet(WireError::InvalidDelta, noreply))?;
    Ok(Request::Arith(Arith { key, delta, decrement, noreply }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refusal, refused, request};
    use super::*;
    use crate::KEY_BYTES_MAX;

    #[test]
    fn deltas_span_64_bits() {
        for (line, expected) in [
            (&b"incr k 1\r\n"[..], Arith { key: b"k", delta: 1, decrement: false, noreply: false }),
            (b"decr k 0 noreply\r\n", Arith { key: b"k", delta: 0, decrement: true, noreply: true }),
            (b"incr k 18446744073709551615\n", Arith { key: b"k", delta: u64::MAX, decrement: false, noreply: false }),
        ] {
            let Request::Arith(arith) = request(line) else { panic!() };
            assert_eq!(arith, expected);
        }
    }

    #[test]
    fn what_is_no_delta_is_refused() {
        for line in [
            &b"incr k x\r\n"[..],
            b"incr k -1\r\n",
            b"incr k +1\r\n",
            b"decr k 18446744073709551616\r\n",
            b"incr k 1x\r\n",
        ] {
            refused(line, WireError::InvalidDelta);
        }
        assert_eq!(refusal(b"incr k x noreply\r\n").reply(), b"");
        assert_eq!(refusal(b"incr k noreply\r\n").reply(), b"");
        for line in [&b"incr\r\n"[..], b"incr k\r\n", b"decr k \r\n"] {
            refused(line, WireError::BadCommandLineFormat);
        }
        let long = format!("incr {} 1\r\n", "k".repeat(KEY_BYTES_MAX + 1));
        refused(long.as_bytes(), WireError::BadCommandLineFormat);
    }
}
