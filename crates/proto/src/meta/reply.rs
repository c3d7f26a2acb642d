//! Answers to meta commands, appended to a caller's buffer.
//!
//! Owns their codes and the walk over the request's flags that fills them in. Whether an answer is sent at all
//! ([`quiet`]) and the value itself are the caller's.

use super::{Meta, MetaDebug};
use crate::num::{push_i64, push_u64};

/// The first word of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// `HD`: done, or found and no value wanted.
    Hd,
    /// `EN`: `mg` found nothing.
    En,
    /// `NS`: not stored.
    Ns,
    /// `EX`: the CAS unique is another.
    Ex,
    /// `NF`: not found.
    Nf,
}

impl Code {
    /// The two letters.
    #[must_use]
    pub const fn as_wire(self) -> &'static [u8; 2] {
        match self {
            Code::Hd => b"HD",
            Code::En => b"EN",
            Code::Ns => b"NS",
            Code::Ex => b"EX",
            Code::Nf => b"NF",
        }
    }
}

/// `mn`'s answer.
pub const MN: &[u8] = b"MN\r\n";

/// Whether `q` holds this answer back: it does for `EN` of `mg` and for success (`HD`, and `VA` of `ma`) of `ms`, `md`
/// and `ma`; never for the rest, and never for errors.
#[must_use]
pub const fn quiet(meta: &Meta<'_>, code: Code) -> bool {
    meta.flags.quiet() && matches!(code, Code::Hd | Code::En)
}

/// What an answer can show of an item. Only what the request's flags ask for need be filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// `f`: the client's flags.
    pub flags: u32,
    /// `s`, and the length behind `VA`: bytes of the value.
    pub value_bytes: usize,
    /// `c`: the CAS unique.
    pub cas: u64,
    /// `t`: seconds left to live; `None` is for ever.
    pub ttl_seconds: Option<u32>,
    /// `l`: seconds since the item was last read.
    pub idle_seconds: u32,
    /// `h`: read before.
    pub fetched: bool,
}

/// Whose turn it is to recache, from `mg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recache {
    /// `Z`: another client has been told.
    pub token_already_sent: bool,
    /// `X`: the value is stale.
    pub stale: bool,
    /// `W`: this client is told.
    pub won: bool,
}

/// `mg` found something: `VA <bytes> …\r\n` with `v` (the value and `\r\n` come next) and `HD …\r\n` without.
#[inline]
pub fn hit(out: &mut Vec<u8>, meta: &Meta<'_>, item: &Item, recache: Recache) {
    begin(out, meta, item);
    return_flags(out, meta, item, b"stcflhOk");
    if recache.token_already_sent {
        out.extend_from_slice(b" Z");
    }
    if recache.stale {
        out.extend_from_slice(b" X");
    }
    if recache.won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(b"\r\n");
}

/// `mg` found nothing.
pub fn miss(out: &mut Vec<u8>, meta: &Meta<'_>) {
    status(out, meta, Code::En);
}

/// `ms` was carried out or not; `c` and `s` show the item that was to be stored.
pub fn stored(out: &mut Vec<u8>, meta: &Meta<'_>, code: Code, item: &Item) {
    out.extend_from_slice(code.as_wire());
    return_flags(out, meta, item, b"Okcs");
    out.extend_from_slice(b"\r\n");
}

/// `md`, and `mg` and `ma` that came to nothing: opaque and key are all there is to show.
pub fn status(out: &mut Vec<u8>, meta: &Meta<'_>, code: Code) {
    out.extend_from_slice(code.as_wire());
    return_flags(out, meta, &Item::default(), b"Ok");
    out.extend_from_slice(b"\r\n");
}

/// `ma` counted to `value`: with `v` the number follows as the value. `item.value_bytes` is not looked at.
pub fn counted(out: &mut Vec<u8>, meta: &Meta<'_>, value: u64, item: &Item) {
    let value_bytes = value.checked_ilog10().unwrap_or(0) as usize + 1;
    begin(out, meta, &Item { value_bytes, ..*item });
    return_flags(out, meta, item, b"ctOk");
    out.extend_from_slice(b"\r\n");
    if meta.flags.has(b'v') {
        push_u64(out, value);
        out.extend_from_slice(b"\r\n");
    }
}

/// What `me` tells about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debug {
    /// Seconds left to live; `None` is for ever.
    pub ttl_seconds: Option<u32>,
    /// Seconds since the item was last read.
    pub idle_seconds: u32,
    /// The CAS unique.
    pub cas: u64,
    /// Read before.
    pub fetched: bool,
    /// Memcached's slab class.
    pub class: u32,
    /// Bytes it takes in memory.
    pub stored_bytes: usize,
}

/// `me` found an item.
pub fn debug(out: &mut Vec<u8>, debug: &MetaDebug<'_>, item: &Debug) {
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(debug.key_token());
    out.extend_from_slice(b" exp=");
    push_i64(out, item.ttl_seconds.map_or(-1, i64::from));
    out.extend_from_slice(b" la=");
    push_u64(out, u64::from(item.idle_seconds));
    out.extend_from_slice(b" cas=");
    push_u64(out, item.cas);
    out.extend_from_slice(if item.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    push_u64(out, u64::from(item.class));
    out.extend_from_slice(b" size=");
    push_u64(out, item.stored_bytes as u64);
    out.extend_from_slice(b"\r\n");
}

/// `me` found nothing.
pub const DEBUG_MISS: &[u8] = b"EN\r\n";

#[inline]
fn begin(out: &mut Vec<u8>, meta: &Meta<'_>, item: &Item) {
    if meta.flags.has(b'v') {
        out.extend_from_slice(b"VA ");
        push_u64(out, item.value_bytes as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
}

/// Repeats the request's flags in its order, those of `allowed` that an answer shows.
#[inline]
fn return_flags(out: &mut Vec<u8>, meta: &Meta<'_>, item: &Item, allowed: &[u8]) {
    for token in meta.flags.tokens() {
        let letter = token[0];
        if !allowed.contains(&letter) {
            continue;
        }
        out.extend_from_slice(&[b' ', letter]);
        match letter {
            b's' => push_u64(out, item.value_bytes as u64),
            b't' => push_i64(out, item.ttl_seconds.map_or(-1, i64::from)),
            b'c' => push_u64(out, item.cas),
            b'f' => push_u64(out, u64::from(item.flags)),
            b'l' => push_u64(out, u64::from(item.idle_seconds)),
            b'h' => out.push(b'0' + u8::from(item.fetched)),
            b'k' => {
                out.extend_from_slice(meta.key_token());
                if meta.flags.has(b'b') {
                    out.extend_from_slice(b" b");
                }
            }
            _ => out.extend_from_slice(&token[1..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii::Request;
    use crate::ascii::tests::request;

    const ITEM: Item =
        Item { flags: 7, value_bytes: 5, cas: 99, ttl_seconds: Some(60), idle_seconds: 3, fetched: true };

    fn meta(line: &[u8]) -> Meta<'_> {
        match request(line) {
            Request::MetaGet(meta) | Request::MetaDelete(meta) => meta,
            Request::MetaSet(set) => set.meta,
            Request::MetaArith(arith) => arith.meta,
            other => panic!("{other:?}"),
        }
    }

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn flags_return_in_the_order_of_the_request() {
        let all = meta(b"mg foo t v f Oabc k l h s c q u\r\n");
        assert_eq!(written(|out| hit(out, &all, &ITEM, Recache::default())), "VA 5 t60 f7 Oabc kfoo l3 h1 s5 c99\r\n");
        let plain = meta(b"mg foo\r\n");
        assert_eq!(written(|out| hit(out, &plain, &ITEM, Recache::default())), "HD\r\n");
        let forever = meta(b"mg foo h t\r\n");
        let item = Item { ttl_seconds: None, fetched: false, ..ITEM };
        assert_eq!(written(|out| hit(out, &forever, &item, Recache::default())), "HD h0 t-1\r\n");
    }

    #[test]
    fn recache_flags_come_last() {
        let recache = Recache { token_already_sent: true, stale: true, won: false };
        assert_eq!(written(|out| hit(out, &meta(b"mg foo k\r\n"), &ITEM, recache)), "HD kfoo Z X\r\n");
        let recache = Recache { token_already_sent: false, stale: true, won: true };
        assert_eq!(written(|out| hit(out, &meta(b"mg foo v\r\n"), &ITEM, recache)), "VA 5 X W\r\n");
    }

    #[test]
    fn a_base64_key_returns_as_it_was_sent() {
        assert_eq!(written(|out| miss(out, &meta(b"mg Zm9v b k O1\r\n"))), "EN kZm9v b O1\r\n");
        let both = meta(b"mg Zm9v k b v\r\n");
        assert_eq!(written(|out| hit(out, &both, &ITEM, Recache::default())), "VA 5 kZm9v b\r\n");
    }

    #[test]
    fn storing_and_deleting_repeat_only_what_they_know() {
        let set = meta(b"ms foo 5 T90 c k O9 s f t q\r\n");
        assert_eq!(written(|out| stored(out, &set, Code::Hd, &ITEM)), "HD c99 kfoo O9 s5\r\n");
        assert_eq!(written(|out| stored(out, &set, Code::Ns, &ITEM)), "NS c99 kfoo O9 s5\r\n");
        let delete = meta(b"md foo q k O9 c t\r\n");
        for (code, text) in [(Code::Hd, "HD"), (Code::Nf, "NF"), (Code::Ex, "EX"), (Code::Ns, "NS")] {
            assert_eq!(written(|out| status(out, &delete, code)), format!("{text} kfoo O9\r\n"));
        }
    }

    #[test]
    fn arithmetic_answers_with_the_number_when_asked() {
        let arith = meta(b"ma foo t c O1 k\r\n");
        assert_eq!(written(|out| counted(out, &arith, 10, &ITEM)), "HD t60 c99 O1 kfoo\r\n");
        let arith = meta(b"ma foo v\r\n");
        assert_eq!(written(|out| counted(out, &arith, 0, &ITEM)), "VA 1\r\n0\r\n");
        assert_eq!(written(|out| counted(out, &arith, u64::MAX, &ITEM)), "VA 20\r\n18446744073709551615\r\n");
        let arith = meta(b"ma foo v c\r\n");
        assert_eq!(written(|out| counted(out, &arith, 100, &ITEM)), "VA 3 c99\r\n100\r\n");
    }

    #[test]
    fn quiet_hides_what_is_expected_only() {
        let loud = meta(b"mg foo\r\n");
        let hushed = meta(b"mg foo q\r\n");
        assert!(!quiet(&loud, Code::En));
        for (code, hidden) in
            [(Code::En, true), (Code::Hd, true), (Code::Nf, false), (Code::Ns, false), (Code::Ex, false)]
        {
            assert_eq!(quiet(&hushed, code), hidden);
        }
    }

    #[test]
    fn debug_line() {
        let Request::MetaDebug(request) = request(b"me foo\r\n") else { panic!() };
        let item = Debug { ttl_seconds: None, idle_seconds: 7, cas: 2, fetched: false, class: 1, stored_bytes: 63 };
        assert_eq!(written(|out| debug(out, &request, &item)), "ME foo exp=-1 la=7 cas=2 fetch=no cls=1 size=63\r\n");
        let item = Debug { ttl_seconds: Some(5), fetched: true, ..item };
        assert_eq!(written(|out| debug(out, &request, &item)), "ME foo exp=5 la=7 cas=2 fetch=yes cls=1 size=63\r\n");
    }
}
