//! Meta requests, and what is peculiar to their answers.
//!
//! Retrievals ask for the key (`k`) and writes for an opaque (`O`), so that each answer that changes or brings something
//! says which request it belongs to.

use bytes::Bytes;
use nuthatch_proto::client::check_text_key;
use nuthatch_proto::client::meta::{self, Flag, Word};
use nuthatch_proto::client::reply::{Code, Meta, Reply};
use nuthatch_proto::meta::KEY_SCRATCH;
use nuthatch_proto::{base64_decode, base64_encode};

use super::{Added, Expected, Kind, Read, refusal, text, unexpected, write_kind};
use crate::client::keys::KeyQueue;
use crate::client::request::{
    Answer, Arith, Found, Marks, MetaAnswer, MetaCode, MetaRequest, Request, Store, Ttl, Verb, Want, Write,
};
use crate::client::{Error, Written};

pub(super) fn encode(
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    opaque: u32,
    request: &Request<'_>,
) -> Result<Expected, Error> {
    match *request {
        Request::Get { key, want, touch } => {
            get(out, keys, key, want, touch)?;
            Ok(Expected::new(Kind::Item, want, 1, opaque))
        }
        Request::Many { keys: asked, want, touch } => {
            asked.iter().try_for_each(|key| get(out, keys, key, want, touch))?;
            let mut expected = Expected::new(Kind::Items, want, asked.len(), opaque);
            expected.expect_items();
            Ok(expected)
        }
        Request::Write(ref change) => {
            write(out, change, opaque, false)?;
            Ok(Expected::new(write_kind(change), Want::VALUE, 0, opaque))
        }
        Request::Barrier => {
            out.extend_from_slice(meta::NOOP);
            Ok(Expected::new(Kind::Barrier, Want::VALUE, 0, opaque))
        }
        Request::Meta(_) | Request::Flush { .. } | Request::Forget(_) | Request::Version | Request::Stats { .. } => {
            text::encode(out, keys, opaque, request)
        }
    }
}

pub(super) fn get(
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    key: &[u8],
    want: Want,
    touch: Option<i32>,
) -> Result<(), Error> {
    let mut flags = [Flag::Letter(b'v'), Flag::Letter(b'f'), Flag::Letter(b'k'), NONE, NONE, NONE];
    let mut count = 3;
    let mut add = |flag| {
        flags[count] = flag;
        count += 1;
    };
    // Before `t`, which shows the time that is left after it.
    if let Some(exptime) = touch {
        add(Flag::Signed(b'T', i64::from(exptime)));
    }
    if want.cas {
        add(Flag::Letter(b'c'));
    }
    if want.ttl {
        add(Flag::Letter(b't'));
    }
    meta::get(out, key, &flags[..count])?;
    keys.push(key);
    Ok(())
}

const NONE: Flag<'_> = Flag::Letter(b'v');

/// Whether an answer shows this key. memcached shows a key in base64, and says so, if it was stored in base64, however it
/// was asked for.
fn shows_key(reply: &Meta<'_>, token: &[u8], key: &[u8]) -> bool {
    if reply.flag(b'b').is_some() { is_base64_of(token, key) } else { token == key }
}

fn is_base64_of(token: &[u8], key: &[u8]) -> bool {
    base64_decode(token, &mut KEY_SCRATCH.clone()).is_some_and(|decoded| decoded == key)
}

pub(super) fn write(out: &mut Vec<u8>, write: &Write<'_>, opaque: u32, quiet: bool) -> Result<(), Error> {
    let mut digits = [0; 10];
    let mut flags = Flags { list: [NONE; 8], count: 0 };
    flags.add(Flag::Text(b'O', decimal(opaque, &mut digits)));
    if quiet {
        flags.add(Flag::Letter(b'q'));
    }
    match *write {
        Write::Store(Store { verb, key, value, flags: client_flags, exptime, cas }) => {
            if !quiet {
                flags.add(Flag::Letter(b'c'));
            }
            if client_flags != 0 {
                flags.add(Flag::Unsigned(b'F', u64::from(client_flags)));
            }
            if exptime != 0 {
                flags.add(Flag::Signed(b'T', i64::from(exptime)));
            }
            let mode: Option<&[u8]> = match verb {
                Verb::Set => None,
                Verb::Add => Some(b"E"),
                Verb::Replace => Some(b"R"),
                Verb::Append => Some(b"A"),
                Verb::Prepend => Some(b"P"),
            };
            if let Some(mode) = mode {
                flags.add(Flag::Text(b'M', mode));
            }
            if let Some(cas) = cas {
                flags.add(Flag::Unsigned(b'C', cas));
            }
            meta::set(out, key, value, flags.as_slice())?;
        }
        Write::Delete { key, cas } => {
            if let Some(cas) = cas {
                flags.add(Flag::Unsigned(b'C', cas));
            }
            meta::delete(out, key, flags.as_slice())?;
        }
        Write::Arith(Arith { key, down, delta, initial }) => {
            if !quiet {
                flags.add(Flag::Letter(b'v'));
                flags.add(Flag::Letter(b'c'));
            }
            flags.add(Flag::Unsigned(b'D', delta));
            if down {
                flags.add(Flag::Text(b'M', b"D"));
            }
            if let Some((initial, exptime)) = initial {
                flags.add(Flag::Unsigned(b'J', initial));
                flags.add(Flag::Signed(b'N', i64::from(exptime)));
            }
            meta::arith(out, key, flags.as_slice())?;
        }
        // A retrieval that brings nothing but sets the expiry time; the only meta command that touches.
        Write::Touch { key, exptime } => {
            flags.add(Flag::Signed(b'T', i64::from(exptime)));
            meta::get(out, key, flags.as_slice())?;
        }
    }
    Ok(())
}

struct Flags<'a> {
    list: [Flag<'a>; 8],
    count: usize,
}

impl<'a> Flags<'a> {
    fn add(&mut self, flag: Flag<'a>) {
        self.list[self.count] = flag;
        self.count += 1;
    }

    fn as_slice(&self) -> &[Flag<'a>] {
        &self.list[..self.count]
    }
}

fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// The answer to `mg` of a retrieval of ours.
pub(super) fn read_get(
    expected: &mut Expected,
    keys: &mut KeyQueue,
    reply: &Meta<'_>,
    used: usize,
    buf: &[u8],
) -> Read {
    match reply.code {
        Code::Va if reply.flag(b'k').is_some_and(|token| shows_key(reply, token, keys.front())) => {
            let ttl = match reply.flag(b't') {
                Some(b"-1") => Ttl::Forever,
                Some(_) => {
                    reply.number(b't').and_then(|left| u32::try_from(left).ok()).map_or(Ttl::Unknown, Ttl::Seconds)
                }
                None => Ttl::Unknown,
            };
            let mut marks = Marks::default();
            for flag in reply.flags() {
                match flag[0] {
                    b'W' => marks.won = true,
                    b'X' => marks.stale = true,
                    b'Z' => marks.sent = true,
                    _ => {}
                }
            }
            let cas = reply.number(b'c');
            if expected.want.cas && cas.is_none() {
                return unexpected("a CAS unique with the value", buf);
            }
            let flags = reply.number(b'f').unwrap_or(0) as u32;
            expected.place(keys, Some(Found { value: reply.value, flags, cas: cas.unwrap_or(0), ttl, marks }));
        }
        Code::En if reply.flag(b'k').is_none_or(|token| shows_key(reply, token, keys.front())) => {
            expected.place(keys, None);
        }
        Code::Va => return unexpected("the value of the key that was asked for", buf),
        _ => return unexpected("the answer to a retrieval", buf),
    }
    retrieved(expected, used)
}

/// After one key's answer.
pub(super) fn retrieved(expected: &mut Expected, used: usize) -> Read {
    if expected.keys_left > 0 { Read::Part(used) } else { Read::Done(used, expected.retrieved()) }
}

/// The answer to a write of ours; `None` when it is none.
pub(super) fn read_write(kind: Kind, opaque: u32, reply: &Meta<'_>) -> Option<Written> {
    // Without an opaque an answer could be another request's; only a miss of `mg`, by which we touch, may come without.
    match reply.number(b'O') {
        Some(number) if number == u64::from(opaque) => {}
        None if kind == Kind::Touch && reply.code == Code::En => {}
        _ => return None,
    }
    let cas = reply.number(b'c').unwrap_or(0);
    match (kind, reply.code) {
        (Kind::Store { .. } | Kind::Delete | Kind::Touch, Code::Hd) => Some(Written::Done { cas }),
        (Kind::Arith, Code::Va) => {
            let digits = std::str::from_utf8(reply.value).ok()?;
            Some(Written::Number { value: digits.trim_end().parse().ok()?, cas })
        }
        (Kind::Store { .. } | Kind::Arith, Code::Ns) => Some(Written::NotStored),
        (Kind::Store { compares: true, .. } | Kind::Delete, Code::Ex) => Some(Written::Exists),
        (Kind::Store { .. } | Kind::Delete | Kind::Arith, Code::Nf) => Some(Written::NotFound),
        (Kind::Touch, Code::En) => Some(Written::NotFound),
        _ => None,
    }
}

/// Another client's request.
pub(super) fn pass(
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    opaque: u32,
    request: &MetaRequest<'_>,
) -> Result<Expected, Error> {
    let MetaRequest { word, key, flags, value } = *request;
    let tokens = || flags.split(|&byte| byte == b' ');
    let shows = |letter: &[u8]| tokens().any(|token| token == letter);
    let is_text = check_text_key(key).is_ok();
    // memcached shows a key that is no text as it is, with whatever ends a line in it, where the item was made by the binary
    // protocol or by `N`. The answer to a request about one says its number instead.
    let asks_number = word != Word::Debug && !is_text && !tokens().any(|token| matches!(token, [b'O', ..] | b"k"));
    let asks_key = word != Word::Debug && !asks_number && !shows(b"k");
    let mut digits = [0; 10];
    let more: [&[u8]; 2] = match (asks_number, asks_key) {
        (true, _) => [b" O", decimal(opaque, &mut digits)],
        (_, true) => [b" k", b""],
        _ => [b"", b""],
    };
    meta::pass(out, word, key, value, &[flags, more[0], more[1]].concat())?;
    let added = Added { key: asks_key, number: asks_number, base64: !is_text && !shows(b"b") };
    keys.push(key);
    Ok(Expected::new(Kind::Meta { word, added }, Want::VALUE, 1, opaque))
}

/// The answer to another client's request.
pub(super) fn read_passed(
    expected: &mut Expected,
    keys: &mut KeyQueue,
    reply: Reply<'_>,
    used: usize,
    buf: &[u8],
) -> Read {
    let Kind::Meta { word, added } = expected.kind else { return unexpected("the answer to a meta command", buf) };
    let answer = match reply {
        Reply::Meta(reply) if word != Word::Debug || reply.code == Code::En => {
            // Only a miss of `mg` may come without its key.
            let is_its = if added.number {
                reply.number(b'O').map(|number| number == u64::from(expected.opaque))
            } else {
                reply.flag(b'k').map(|token| shows_key(&reply, token, keys.front()))
            };
            if !is_its.unwrap_or(reply.code == Code::En) {
                return unexpected("an answer with the key, or the number, of the request", buf);
            }
            let mut bytes = Vec::with_capacity(buf.len().min(64) + reply.value.len());
            for flag in reply.flags() {
                let is_added = match flag {
                    [b'k', ..] => added.key,
                    [b'O', ..] => added.number,
                    _ => flag == b"b" && added.base64,
                };
                if is_added {
                    continue;
                }
                if !bytes.is_empty() {
                    bytes.push(b' ');
                }
                // The key as its client knows it: without the namespace.
                match (flag[0], reply.flag(b'b')) {
                    (b'k', None) => {
                        bytes.push(b'k');
                        bytes.extend_from_slice(&keys.front()[expected.namespace_bytes..]);
                    }
                    (b'k', Some(_)) => {
                        bytes.push(b'k');
                        base64_encode(&mut bytes, &keys.front()[expected.namespace_bytes..]);
                    }
                    _ => bytes.extend_from_slice(flag),
                }
            }
            let flags_bytes = bytes.len();
            bytes.extend_from_slice(reply.value);
            let mut flags = Bytes::from(bytes);
            let value = flags.split_off(flags_bytes);
            let code = match reply.code {
                Code::Va => MetaCode::Va,
                Code::Hd => MetaCode::Hd,
                Code::En => MetaCode::En,
                Code::Ns => MetaCode::Ns,
                Code::Ex => MetaCode::Ex,
                Code::Nf => MetaCode::Nf,
            };
            Ok(Answer::Meta(MetaAnswer { code, flags, value }))
        }
        Reply::Other(line) if word == Word::Debug => {
            let told = line.strip_prefix(b"ME ").unwrap_or_default();
            let (token, rest) = told.split_at(told.iter().position(|&byte| byte == b' ').unwrap_or(told.len()));
            if token != keys.front() && !is_base64_of(token, keys.front()) {
                return unexpected("what me tells about the key", buf);
            }
            let flags = Bytes::copy_from_slice(rest.trim_ascii_start());
            Ok(Answer::Meta(MetaAnswer { code: MetaCode::Me, flags, value: Bytes::new() }))
        }
        Reply::Error(line) => refusal(line),
        _ => return unexpected("the answer to a meta command", buf),
    };
    Read::Done(used, answer)
}
