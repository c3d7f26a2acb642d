//! `set`, `add`, `replace`, `append`, `prepend`, `cas`: `<key> <flags> <exptime> <bytes> [<cas unique>] [noreply]`,
//! then the value and `\r\n`. And the refusal side of `ms`, whose value follows in the same way.

use super::{Outcome, Reject, Request, is_noreply};
use crate::meta::Flags;
use crate::num::{loose_i32, loose_u32, strict_i32, strict_u64};
use crate::scan::Tokens;
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX, WireError, meta};

/// How a storage command stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Whatever was there.
    Set,
    /// If nothing was there.
    Add,
    /// If something was there.
    Replace,
    /// Behind what was there.
    Append,
    /// In front of what was there.
    Prepend,
    /// If what was there has not changed since it was read.
    Cas,
}

/// A storage command; [`Store::body_bytes`] of the stream after the line belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// How to store.
    pub verb: Verb,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Seconds, as the client wrote them: 0 never, negative at once, up to 30 days from now, above that UNIX time.
    pub exptime: i32,
    /// Bytes of the value, at most [`VALUE_BYTES_MAX`].
    pub value_bytes: u32,
    /// For [`Verb::Cas`] the CAS unique that the item must still have; 0 for the others.
    pub cas: u64,
    /// No answer is wanted, not even an error about the value.
    pub noreply: bool,
}

impl Store<'_> {
    /// Bytes of value and closing `\r\n`. Whatever happens to the command, these are taken off the stream; when they do
    /// not end in `\r\n` the answer is [`WireError::BadDataChunk`].
    #[must_use]
    pub const fn body_bytes(&self) -> u32 {
        self.value_bytes + 2
    }
}

pub(super) fn parse(args: &[u8], verb: Verb) -> Outcome<'_> {
    let mut tokens = Tokens::new(args);
    let (Some(key), Some(flags), Some(exptime), Some(bytes)) =
        (tokens.next(), tokens.next(), tokens.next(), tokens.next())
    else {
        return Err(Reject::FORMAT);
    };
    // Without a length nobody can tell what follows, so what follows is taken for commands.
    let value_bytes = value_bytes(bytes).ok_or(Reject::FORMAT)?;
    let fifth = tokens.next();
    let noreply = tokens.last().or(fifth).is_some_and(is_noreply);
    let cas = if verb == Verb::Cas { fifth.and_then(strict_u64) } else { Some(0) };
    match (loose_u32(flags), loose_i32(exptime), cas) {
        (Some(flags), Some(exptime), Some(cas)) if key.len() <= KEY_BYTES_MAX => {
            Ok(Request::Store(Store { verb, key, flags, exptime, value_bytes, cas, noreply }))
        }
        _ => Err(Reject {
            error: Some(WireError::BadCommandLineFormat),
            noreply,
            swallow_bytes: value_bytes + 2,
            close: false,
        }),
    }
}

pub(super) fn parse_meta(args: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(args);
    let (Some(key), Some(bytes)) = (tokens.next(), tokens.next()) else { return Err(Reject::FORMAT) };
    let value_bytes = value_bytes(bytes).ok_or(Reject::FORMAT)?;
    if Flags::unreadable(tokens.rest()) {
        // memcached gives such a line up before it has looked at the length.
        return Err(Reject::FORMAT);
    }
    meta::parse_set(key, value_bytes, tokens.rest()).map(Request::MetaSet).map_err(|error| Reject {
        error: Some(error),
        noreply: false,
        swallow_bytes: value_bytes + 2,
        close: false,
    })
}

fn value_bytes(token: &[u8]) -> Option<u32> {
    let bytes = u32::try_from(strict_i32(token)?).ok()?;
    (bytes <= VALUE_BYTES_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::Refusal;
    use super::super::tests::{refusal, refused, request};
    use super::*;

    fn store(line: &[u8]) -> Store<'_> {
        let Request::Store(store) = request(line) else { panic!() };
        store
    }

    #[test]
    fn each_verb_reads_its_arguments() {
        for (word, verb) in [
            ("set", Verb::Set),
            ("add", Verb::Add),
            ("replace", Verb::Replace),
            ("append", Verb::Append),
            ("prepend", Verb::Prepend),
        ] {
            let line = format!("{word} key 5 60 7\r\n");
            let expected = Store { verb, key: b"key", flags: 5, exptime: 60, value_bytes: 7, cas: 0, noreply: false };
            assert_eq!(store(line.as_bytes()), expected);
            assert_eq!(expected.body_bytes(), 9);
            let line = format!("{word}  key 5  60 7 noreply\n");
            assert_eq!(store(line.as_bytes()), Store { noreply: true, ..expected });
        }
        let expected =
            Store { verb: Verb::Cas, key: b"k", flags: 0, exptime: -1, value_bytes: 0, cas: u64::MAX, noreply: false };
        assert_eq!(store(b"cas k 0 -1 0 18446744073709551615\r\n"), expected);
        assert_eq!(store(b"cas k 0 -1 0 18446744073709551615 noreply\r\n"), Store { noreply: true, ..expected });
    }

    #[test]
    fn limits_are_inclusive() {
        let key = "k".repeat(KEY_BYTES_MAX);
        let line = format!("set {key} 4294967295 2147483647 2147483645\r\n");
        let store = store(line.as_bytes());
        assert_eq!((store.flags, store.exptime, store.value_bytes), (u32::MAX, i32::MAX, VALUE_BYTES_MAX));
        assert_eq!(store.body_bytes(), i32::MAX as u32);
    }

    #[test]
    fn without_a_length_nothing_is_swallowed() {
        for line in [
            &b"set\r\n"[..],
            b"set k\r\n",
            b"set k 0 0\r\n",
            b"set k 0 0 noreply\r\n",
            b"set k 0 0 -1\r\n",
            b"set k 0 0 -2147483648\r\n",
            b"set k 0 0 2147483646\r\n",
            b"set k 0 0 4294967296\r\n",
            b"set k 0 0 99999999999999999999\r\n",
            b"set k 0 0 1x\r\n",
            b"set k 0 0 x noreply\r\n",
            b"cas k 0 0 x 1\r\n",
            b"ms\r\n",
            b"ms k\r\n",
            b"ms k -1\r\n",
            b"ms k S5\r\n",
            b"ms k 2147483646 q\r\n",
            b"ms k 5 -\r\n",
            b"ms k 5 q +1\r\n",
        ] {
            refused(line, WireError::BadCommandLineFormat);
        }
    }

    #[test]
    fn with_a_length_the_value_is_swallowed() {
        let long = format!("set {} 0 0 5\r\n", "k".repeat(KEY_BYTES_MAX + 1));
        for line in [
            long.as_bytes(),
            b"set k x 0 5\r\n",
            b"set k -1 0 5\r\n",
            b"set k 18446744073709551616 0 5\r\n",
            b"set k 0 x 5\r\n",
            b"set k 0 9223372036854775808 5\r\n",
            b"cas k 0 0 5\r\n",
            b"cas k 0 0 5 x\r\n",
            b"cas k 0 0 5 18446744073709551616\r\n",
            b"cas k 0 0 5 +1\r\n",
        ] {
            let expected = Refusal {
                error: Some(WireError::BadCommandLineFormat),
                noreply: false,
                line_bytes: line.len(),
                swallow_bytes: 7,
                close: false,
            };
            assert_eq!(refusal(line), expected, "{}", line.escape_ascii());
        }
        let quiet = refusal(b"set k x 0 5 noreply\r\n");
        assert_eq!((quiet.noreply, quiet.swallow_bytes, quiet.reply()), (true, 7, &b""[..]));
        let cas = refusal(b"cas k 0 0 5 noreply\r\n");
        assert_eq!((cas.noreply, cas.swallow_bytes), (true, 7));
    }

    #[test]
    fn what_stands_after_the_arguments_is_ignored_as_memcached_does() {
        assert!(!store(b"set k 0 0 1 noreply x\r\n").noreply);
        assert!(store(b"set k 0 0 1 x noreply\r\n").noreply);
    }

    #[test]
    fn a_refused_meta_set_swallows_its_value() {
        let refusal = refusal(b"ms k 5 q q\r\n");
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::DuplicateFlag), 7));
    }
}
