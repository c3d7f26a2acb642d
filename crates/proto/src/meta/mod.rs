//! Meta commands: `mg`, `ms`, `md`, `ma`, `me` (`mn` has nothing to parse). The server's half.
//!
//! Owns their keys, flags and answers. The flags of a request are kept as they were sent, because answers repeat them in
//! the order of the request. [`ascii::parse`](crate::ascii::parse) is what calls the parsers.

mod flags;
pub mod reply;

pub use flags::Flags;

use crate::scan::Tokens;
use crate::{KEY_BYTES_MAX, WireError, base64};

/// Room for a decoded key: 250 characters of base64 hold 187 bytes.
pub type KeyScratch = [u8; KEY_BYTES_MAX];

/// An empty [`KeyScratch`].
pub const KEY_SCRATCH: KeyScratch = [0; KEY_BYTES_MAX];

/// Key and flags of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    key_token: &'a [u8],
    /// The flags.
    pub flags: Flags<'a>,
}

impl<'a> Meta<'a> {
    /// The key as it was sent, which is base64 when the `b` flag is given. Answers repeat it in this form.
    #[must_use]
    pub const fn key_token(&self) -> &'a [u8] {
        self.key_token
    }

    /// The key as it is stored, 1 to [`KEY_BYTES_MAX`] bytes; `scratch` is written to only when it was sent in base64.
    #[inline]
    #[must_use]
    pub fn key<'k>(&self, scratch: &'k mut KeyScratch) -> &'k [u8]
    where
        'a: 'k,
    {
        key(self.key_token, self.flags.has(b'b'), scratch)
    }
}

/// `ms`; [`MetaSet::body_bytes`] of the stream after the line belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// Key and flags.
    pub meta: Meta<'a>,
    /// Bytes of the value, at most [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
    pub value_bytes: u32,
    /// The `M` flag.
    pub mode: SetMode,
}

impl MetaSet<'_> {
    /// Bytes of value and closing `\r\n`; see [`Store::body_bytes`](crate::ascii::Store::body_bytes). An error about the
    /// value is always answered, `q` or not.
    #[must_use]
    pub const fn body_bytes(&self) -> u32 {
        self.value_bytes + 2
    }
}

/// How `ms` stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SetMode {
    /// `MS` and without `M`: whatever was there.
    #[default]
    Set,
    /// `ME`: if nothing was there.
    Add,
    /// `MA`: behind what was there; with `N` the value alone when nothing was.
    Append,
    /// `MP`: in front of what was there; with `N` the value alone when nothing was.
    Prepend,
    /// `MR`: if something was there.
    Replace,
}

/// `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArith<'a> {
    /// Key and flags. `N` makes a missing item of [`MetaArith::initial`].
    pub meta: Meta<'a>,
    /// The `M` flag: `MD` and `M-` decrement.
    pub decrement: bool,
    /// The `D` flag: by how much, 1 without it.
    pub delta: u64,
    /// The `J` flag: the number a missing item begins with, 0 without it.
    pub initial: u64,
}

/// `me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebug<'a> {
    key_token: &'a [u8],
    binary: bool,
}

impl<'a> MetaDebug<'a> {
    /// The key as it was sent, for the answer.
    #[must_use]
    pub const fn key_token(&self) -> &'a [u8] {
        self.key_token
    }

    /// The key as it is stored.
    #[must_use]
    pub fn key<'k>(&self, scratch: &'k mut KeyScratch) -> &'k [u8]
    where
        'a: 'k,
    {
        key(self.key_token, self.binary, scratch)
    }
}

#[inline]
fn key<'k>(token: &'k [u8], binary: bool, scratch: &'k mut KeyScratch) -> &'k [u8] {
    // What parsed decodes; the token itself only keeps this total.
    if binary { base64::decode(token, scratch).unwrap_or(token) } else { token }
}

/// `mg` and `md`. `None`: ask [`blame`] what is wrong.
//
// An `Option` of a borrowed thing needs no tag, which a `Result` with a one-byte error does; it is what keeps the common
// case in registers.
#[inline]
pub(crate) fn parse_plain(args: &[u8]) -> Option<Meta<'_>> {
    let mut tokens = Tokens::new(args);
    let key_token = tokens.next()?;
    let flags = Flags::parse_for(key_token, tokens.rest(), 2)?;
    flags.opaque_fits().then_some(Meta { key_token, flags })
}

/// What was wrong with an `mg` or `md`.
#[cold]
pub(crate) fn blame(args: &[u8]) -> WireError {
    let mut tokens = Tokens::new(args);
    let Some(key_token) = tokens.next() else { return WireError::BadCommandLineFormat };
    match Flags::parse_for(key_token, tokens.rest(), 2) {
        Some(_) => WireError::OpaqueTooLong,
        None => Flags::blame(key_token, tokens.rest(), 2),
    }
}

pub(crate) fn parse_set<'a>(key_token: &'a [u8], value_bytes: u32, flags: &'a [u8]) -> Result<MetaSet<'a>, WireError> {
    let Some(flags) = Flags::parse_for(key_token, flags, 3) else { return Err(Flags::blame(key_token, flags, 3)) };
    let mode = match flags.mode() {
        None | Some(b'S') => SetMode::Set,
        Some(b'E') => SetMode::Add,
        Some(b'A') => SetMode::Append,
        Some(b'P') => SetMode::Prepend,
        Some(b'R') => SetMode::Replace,
        Some(_) => return Err(WireError::InvalidMetaSetMode),
    };
    if !flags.opaque_fits() {
        return Err(WireError::OpaqueTooLong);
    }
    if flags.has(b'L') && !crate::forget::tags_fit(&flags) {
        return Err(WireError::BadTags);
    }
    Ok(MetaSet { meta: Meta { key_token, flags }, value_bytes, mode })
}

pub(crate) fn parse_arith(args: &[u8]) -> Result<MetaArith<'_>, WireError> {
    let mut tokens = Tokens::new(args);
    let key_token = tokens.next().ok_or(WireError::BadCommandLineFormat)?;
    let raw = tokens.rest();
    let Some(flags) = Flags::parse_for(key_token, raw, 2) else {
        // Memcached has one message for whatever is wrong with key or flags here, but for flags it cannot tell apart.
        return Err(match Flags::unreadable(raw) {
            true => WireError::BadCommandLineFormat,
            false => WireError::InvalidOrDuplicateFlag,
        });
    };
    let decrement = match flags.mode() {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err(WireError::InvalidMetaArithMode),
    };
    if !flags.opaque_fits() {
        return Err(WireError::OpaqueTooLong);
    }
    let (delta, initial) = (flags.delta(), flags.initial());
    Ok(MetaArith { meta: Meta { key_token, flags }, decrement, delta, initial })
}

pub(crate) fn parse_debug(args: &[u8]) -> Result<MetaDebug<'_>, WireError> {
    let mut tokens = Tokens::new(args);
    let key_token = tokens.next().ok_or(WireError::BadCommandLineFormat)?;
    let unreadable = Flags::unreadable(tokens.rest());
    let binary = tokens.next() == Some(b"b");
    if unreadable || key_token.len() > KEY_BYTES_MAX || binary && !base64::is_valid(key_token) {
        return Err(WireError::BadCommandLineFormat);
    }
    Ok(MetaDebug { key_token, binary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii::tests::{refusal, refused, request};
    use crate::ascii::{Parsed, Request, parse};

    fn get(line: &[u8]) -> Meta<'_> {
        let Request::MetaGet(meta) = request(line) else { panic!() };
        meta
    }

    #[test]
    fn keys_are_sent_plain_or_in_base64() {
        let mut scratch = KEY_SCRATCH;
        assert_eq!(get(b"mg foo v\r\n").key(&mut scratch), b"foo");
        let meta = get(b"mg Zm9v b v\r\n");
        assert_eq!((meta.key_token(), meta.key(&mut scratch)), (&b"Zm9v"[..], &b"foo"[..]));
        let meta = get(b"mg AAEgDQo= v b\r\n");
        assert_eq!(meta.key(&mut scratch), b"\x00\x01 \r\n");
        let Request::MetaDebug(debug) = request(b"me Zm9v b\r\n") else { panic!() };
        assert_eq!((debug.key_token(), debug.key(&mut scratch)), (&b"Zm9v"[..], &b"foo"[..]));
        let Request::MetaDebug(debug) = request(b"me foo\r\n") else { panic!() };
        assert_eq!(debug.key(&mut scratch), b"foo");
    }

    #[test]
    fn keys_that_do_not_decode_are_refused() {
        refused(b"mg foo! b v\r\n", WireError::KeyDecoding);
        refused(b"md Zg b\r\n", WireError::KeyDecoding);
        refused(b"ma Zg b\r\n", WireError::InvalidOrDuplicateFlag);
        refused(b"me Zg b\r\n", WireError::BadCommandLineFormat);
        refused(b"me key -1\r\n", WireError::BadCommandLineFormat);
        let refusal = refusal(b"ms Zg 2 b\r\n");
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::KeyDecoding), 4));
    }

    #[test]
    fn keys_have_250_bytes_at_most_in_the_form_sent() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        assert_eq!(get(format!("mg {longest}\r\n").as_bytes()).key(&mut KEY_SCRATCH.clone()).len(), KEY_BYTES_MAX);
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        refused(format!("mg {long} v\r\n").as_bytes(), WireError::BadCommandLineFormat);
        refused(format!("md {long}\r\n").as_bytes(), WireError::BadCommandLineFormat);
        refused(format!("ma {long}\r\n").as_bytes(), WireError::InvalidOrDuplicateFlag);
        refused(format!("me {long}\r\n").as_bytes(), WireError::BadCommandLineFormat);
        let refusal = refusal(format!("ms {long} 2\r\n").as_bytes());
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::BadCommandLineFormat), 4));
    }

    #[test]
    fn commands_without_a_key_are_bad_format() {
        for line in [&b"mg\r\n"[..], b"mg \r\n", b"md\r\n", b"ma\r\n", b"me\r\n", b"ms\r\n"] {
            refused(line, WireError::BadCommandLineFormat);
        }
    }

    #[test]
    fn set_modes() {
        for (flags, mode) in [
            ("", SetMode::Set),
            ("MS", SetMode::Set),
            ("ME", SetMode::Add),
            ("MA", SetMode::Append),
            ("MP", SetMode::Prepend),
            ("MR", SetMode::Replace),
            ("MRx", SetMode::Replace),
        ] {
            let line = format!("ms key 3 {flags}\r\n");
            let Request::MetaSet(set) = request(line.as_bytes()) else { panic!() };
            assert_eq!((set.mode, set.value_bytes, set.body_bytes()), (mode, 3, 5));
            assert_eq!(set.meta.key_token(), b"key");
        }
        for bad in ["M", "MX", "Me"] {
            let refusal = refusal(format!("ms key 3 {bad} q\r\n").as_bytes());
            assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::InvalidMetaSetMode), 5));
            assert_eq!(refusal.reply(), WireError::InvalidMetaSetMode.as_wire(), "errors override quiet");
        }
    }

    #[test]
    fn arithmetic_modes_and_numbers() {
        for (flags, decrement, delta, initial) in [
            ("", false, 1, 0),
            ("MI D5", false, 5, 0),
            ("M+", false, 1, 0),
            ("MD J7 N0", true, 1, 7),
            ("M- D18446744073709551615", true, u64::MAX, 0),
        ] {
            let line = format!("ma key {flags}\r\n");
            let Request::MetaArith(arith) = request(line.as_bytes()) else { panic!() };
            assert_eq!((arith.decrement, arith.delta, arith.initial), (decrement, delta, initial));
        }
        refused(b"ma key MX\r\n", WireError::InvalidMetaArithMode);
        for bad in ["Dx", "D", "Jx", "D18446744073709551616", "v v", "y", "Tx", "D-1"] {
            refused(format!("ma key {bad}\r\n").as_bytes(), WireError::InvalidOrDuplicateFlag);
        }
        refused(b"ma key !\r\n", WireError::BadCommandLineFormat);
    }

    #[test]
    fn an_opaque_has_32_bytes_at_most_with_its_letter() {
        let fits = format!("O{}", "1".repeat(31));
        let too_long = format!("O{}", "1".repeat(32));
        assert_eq!(get(format!("mg key {fits} v\r\n").as_bytes()).flags.token(b'O').unwrap().len(), 31);
        for command in ["mg", "md", "ma"] {
            refused(format!("{command} key {too_long}\r\n").as_bytes(), WireError::OpaqueTooLong);
        }
        let refusal = refusal(format!("ms key 3 {too_long}\r\n").as_bytes());
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::OpaqueTooLong), 5));
    }

    #[test]
    fn twenty_tokens_are_the_most() {
        let letters = "b c f h k l O1 q s t u v E1 N1 R1 T1 I x";
        let line = format!("mg Zm9v {letters}\r\n");
        assert_eq!(line.split_whitespace().count(), 20);
        get(line.as_bytes());
        refused(format!("mg Zm9v {letters} P\r\n").as_bytes(), WireError::TooManyFlags);
        refused(format!("ma Zm9v {letters} P\r\n").as_bytes(), WireError::InvalidOrDuplicateFlag);
        let Parsed::Refused(refusal) = parse(b"ms k 0 b c f h k l O1 q s t u v E1 N1 R1 T1 I x\r\n") else { panic!() };
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::TooManyFlags), 2));
    }
}
