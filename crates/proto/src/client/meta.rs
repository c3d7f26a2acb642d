//! Meta requests. A key that text cannot carry is sent in base64 with the `b` flag, without being asked.

use super::{BadRequest, check_coded_key, check_key, check_value, is_text};
use crate::base64;
use crate::num::{push_i64, push_u64};
use crate::scan::Tokens;

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

/// The commands that [`pass`] sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Arith,
    /// `me`.
    Debug,
}

/// A command with another client's flags: `flags` is what stood behind the key (and the length), letters and arguments as
/// they came. With `b` among them the key is sent in base64 even where it need not be, so that it comes back as it was
/// asked for. A value is sent with [`Word::Set`] and nothing else.
pub fn pass(out: &mut Vec<u8>, word: Word, key: &[u8], value: &[u8], flags: &[u8]) -> Result<(), BadRequest> {
    let (word, value) = match word {
        Word::Get => (b"mg ", None),
        Word::Set => (b"ms ", Some(value)),
        Word::Delete => (b"md ", None),
        Word::Arith => (b"ma ", None),
        Word::Debug => (b"me ", None),
    };
    value.map_or(Ok(()), check_value)?;
    let mut asks_base64 = false;
    for token in Tokens::new(flags) {
        asks_base64 |= token == b"b";
        if !token[0].is_ascii_alphabetic() || !is_text(token) {
            return Err(BadRequest::FlagNotText);
        }
    }
    let coded = asks_base64 || !is_text(key);
    begin(out, word, key, value.map(<[u8]>::len), coded)?;
    if coded && !asks_base64 {
        out.extend_from_slice(b" b");
    }
    for token in Tokens::new(flags) {
        out.push(b' ');
        out.extend_from_slice(token);
    }
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
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
    let coded = !is_text(key);
    let good = |flag: &Flag<'_>| match flag {
        Flag::Letter(letter) | Flag::Signed(letter, _) | Flag::Unsigned(letter, _) => letter.is_ascii_alphabetic(),
        Flag::Text(letter, text) => letter.is_ascii_alphabetic() && is_text(text),
    };
    if !flags.iter().all(good) {
        return Err(BadRequest::FlagNotText);
    }
    begin(out, word, key, value_bytes, coded)?;
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

/// A command up to its flags; nothing when the key cannot be sent.
fn begin(
    out: &mut Vec<u8>,
    word: &[u8; 3],
    key: &[u8],
    value_bytes: Option<usize>,
    coded: bool,
) -> Result<(), BadRequest> {
    if coded {
        check_coded_key(key)?
    } else {
        check_key(key)?
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
    fn flags_are_passed_on_as_they_came() {
        assert_eq!(sent(|out| pass(out, Word::Get, b"key", b"", b"v  t Oq k T-1")), b"mg key v t Oq k T-1\r\n");
        assert_eq!(sent(|out| pass(out, Word::Set, b"key", b"abc", b"F5")), b"ms key 3 F5\r\nabc\r\n");
        assert_eq!(sent(|out| pass(out, Word::Delete, b"key", b"", b"b k")), b"md a2V5 b k\r\n");
        assert_eq!(sent(|out| pass(out, Word::Arith, b"a b", b"", b"v")), b"ma YSBi b v\r\n");
        assert_eq!(sent(|out| pass(out, Word::Debug, b"key", b"", b"")), b"me key\r\n");
        let mut out = Vec::new();
        for bad in [&b"v\r\nflush_all"[..], b"5", b"v\0"] {
            assert_eq!(pass(&mut out, Word::Get, b"k", b"", bad), Err(BadRequest::FlagNotText));
        }
        assert_eq!(pass(&mut out, Word::Get, &[b'k'; 188], b"", b"b"), Err(BadRequest::KeyTooLong { key_bytes: 188 }));
        assert!(out.is_empty());
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
