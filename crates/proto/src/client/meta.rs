//! Meta requests. A key that text cannot carry is sent in base64 with the `b` flag, without being asked.

use super::{BadRequest, check_key, check_value, is_text};
use crate::num::{push_i64, push_u64};
use crate::{KEY_BYTES_MAX, base64};

/// A flag and its argument. [`Flags`](crate::meta::Flags) says what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag<'a> {
    /// A letter alone: `v`, `q`, `k`…
    Letter(u8),
    /// A letter and an expiry time or other signed number: `T30`, `N0`, `R10`.
    Signed(u8, i64),
    /// A letter and an unsigned number: `C5`, `E6`, `F0`, `D1`, `J0`.
    Unsigned(u8, u64),
    /// A letter and text: `Oabc`, `MS`.
    Text(u8, &'a [u8]),
}

/// `mg`.
pub fn get(out: &mut Vec<u8>, key: &[u8], flags: &[Flag<'_>]) -> Result<(), BadRequest> {
    line(out, b"mg ", key, None, flags)
}

/// `ms`.
pub fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8], flags: &[Flag<'_>]) -> Result<(), BadRequest> {
    check_value(value)?;
    line(out, b"ms ", key, Some(value.len()), flags)?;
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// `md`.
pub fn delete(out: &mut Vec<u8>, key: &[u8], flags: &[Flag<'_>]) -> Result<(), BadRequest> {
    line(out, b"md ", key, None, flags)
}

/// `ma`.
pub fn arith(out: &mut Vec<u8>, key: &[u8], flags: &[Flag<'_>]) -> Result<(), BadRequest> {
    line(out, b"ma ", key, None, flags)
}

/// `me`.
pub fn debug(out: &mut Vec<u8>, key: &[u8]) -> Result<(), BadRequest> {
    line(out, b"me ", key, None, &[])
}

/// `mn`, whose answer ends a series of quiet requests.
pub const NOOP: &[u8] = b"mn\r\n";

fn line(
    out: &mut Vec<u8>,
    word: &[u8; 3],
    key: &[u8],
    value_bytes: Option<usize>,
    flags: &[Flag<'_>],
) -> Result<(), BadRequest> {
    check_key(key)?;
    let coded = !is_text(key);
    // Every three bytes of key are four of base64, which has to fit where a key fits.
    if coded && key.len().div_ceil(3) * 4 > KEY_BYTES_MAX {
        return Err(BadRequest::KeyTooLong { key_bytes: key.len() });
    }
    let good = |flag: &Flag<'_>| match flag {
        Flag::Letter(letter) | Flag::Signed(letter, _) | Flag::Unsigned(letter, _) => letter.is_ascii_alphabetic(),
        Flag::Text(letter, text) => letter.is_ascii_alphabetic() && is_text(text),
    };
    if !flags.iter().all(good) {
        return Err(BadRequest::FlagNotText);
    }
    out.extend_from_slice(word);
    if coded {
        base64::encode(out, key);
    } else {
        out.extend_from_slice(key);
    }
    if let Some(value_bytes) = value_bytes {
        out.push(b' ');
        push_u64(out, value_bytes as u64);
    }
    if coded {
        out.extend_from_slice(b" b");
    }
    for flag in flags {
        out.push(b' ');
        match *flag {
            Flag::Letter(letter) => out.push(letter),
            Flag::Signed(letter, number) => {
                out.push(letter);
                push_i64(out, number);
            }
            Flag::Unsigned(letter, number) => {
                out.push(letter);
                push_u64(out, number);
            }
            Flag::Text(letter, text) => {
                out.push(letter);
                out.extend_from_slice(text);
            }
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii::Request;
    use crate::ascii::tests::request;
    use crate::client::tests::sent;
    use crate::meta::{KEY_SCRATCH, SetMode};

    #[test]
    fn every_command_arrives_as_it_was_meant() {
        let flags =
            [Flag::Letter(b'v'), Flag::Signed(b'T', -1), Flag::Text(b'O', b"abc"), Flag::Unsigned(b'E', u64::MAX)];
        for key in [&b"key"[..], b"with space", b"\0\r\n\xff"] {
            let mut scratch = KEY_SCRATCH;
            let line = sent(|out| get(out, key, &flags));
            let Request::MetaGet(got) = request(&line) else { panic!() };
            assert_eq!(got.key(&mut scratch), key);
            assert_eq!((got.flags.ttl(), got.flags.new_cas()), (Some(-1), Some(u64::MAX)));
            assert_eq!(got.flags.token(b'O'), Some(&b"abc"[..]));

            let bytes = sent(|out| set(out, key, b"value", &[Flag::Text(b'M', b"P"), Flag::Unsigned(b'F', 7)]));
            let line_bytes = bytes.len() - 7;
            assert_eq!(bytes[line_bytes..], *b"value\r\n");
            let Request::MetaSet(got) = request(&bytes[..line_bytes]) else { panic!() };
            assert_eq!(got.meta.key(&mut scratch), key);
            assert_eq!((got.mode, got.value_bytes, got.meta.flags.client_flags()), (SetMode::Prepend, 5, 7));

            let line = sent(|out| delete(out, key, &[Flag::Letter(b'I'), Flag::Signed(b'T', 30)]));
            let Request::MetaDelete(got) = request(&line) else { panic!() };
            assert_eq!((got.key(&mut scratch), got.flags.has(b'I')), (key, true));

            let line = sent(|out| arith(out, key, &[Flag::Unsigned(b'D', 5), Flag::Text(b'M', b"D")]));
            let Request::MetaArith(got) = request(&line) else { panic!() };
            assert_eq!((got.meta.key(&mut scratch), got.decrement, got.delta), (key, true, 5));

            let line = sent(|out| debug(out, key));
            let Request::MetaDebug(got) = request(&line) else { panic!() };
            assert_eq!(got.key(&mut scratch), key);
        }
        assert!(matches!(request(NOOP), Request::MetaNoop));
    }

    #[test]
    fn what_cannot_be_sent_leaves_nothing_behind() {
        let mut out = Vec::new();
        assert_eq!(get(&mut out, b"", &[]), Err(BadRequest::KeyEmpty));
        assert_eq!(get(&mut out, &[b' '; 187], &[]), Err(BadRequest::KeyTooLong { key_bytes: 187 }));
        assert_eq!(get(&mut out, b"k", &[Flag::Text(b'O', b"a b")]), Err(BadRequest::FlagNotText));
        assert_eq!(get(&mut out, b"k", &[Flag::Letter(b' ')]), Err(BadRequest::FlagNotText));
        assert!(out.is_empty());
    }
}
