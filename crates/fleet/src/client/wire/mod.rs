//! Requests into bytes and bytes into answers, in the protocol that a fleet speaks.
//!
//! Owns what an answer to each request may look like, and checks that it is the answer to *that* request: by its key where
//! it shows one, else by its opaque where the protocol has them. Whoever reads an answer that fails here must close the
//! connection, since nothing after it can be trusted. No connections here, no clock.

mod binary;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod meta;
mod text;

use std::sync::Arc;

use bytes::Bytes;
use nuthatch_proto::client::{self, BadReply, BadRequest};
use nuthatch_proto::forget::Forget;

use super::keys::KeyQueue;
use super::request::{Answer, Arith, Found, Item, MetaRequest, Request, Store, Verb, Want, Word, Write};
use super::{Error, Written};
use crate::Protocol;

/// What is expected next from a server: the answer to one request, as far as it has come.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) kind: Kind,
    want: Want,
    /// Keys in the key queue whose answers have not come.
    keys_left: u32,
    /// Of the first key.
    opaque: u32,
    /// How much of each key in the queue is the fleet's namespace.
    namespace_bytes: usize,
    /// Each key's answer is told to its taker as it comes.
    is_told: bool,
    so_far: SoFar,
}

/// The request, as far as its answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Item,
    Items,
    Store {
        verb: Verb,
        compares: bool,
    },
    Delete,
    Arith,
    Touch,
    Flush,
    Forget,
    Version,
    Stats,
    Meta {
        word: Word,
        added: Added,
    },
    Barrier,
    /// Writes that are answered only when they go wrong, and the barrier behind them.
    Quiet {
        writes: u32,
    },
}

/// Flags that were added to another client's meta request, and which are taken off its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    key: bool,
    /// An opaque.
    number: bool,
    base64: bool,
}

/// Parts of an answer that has not come whole.
#[derive(Debug)]
enum SoFar {
    Nothing,
    Item(Item),
    Items(Vec<Option<Item>>),
    Stats(Vec<(Bytes, Bytes)>),
    Errors(u32),
    /// The server would not answer for one of the keys, and the answer as a whole is that.
    Refused(Arc<str>),
}

/// What the front of the bytes received is.
#[derive(Debug)]
pub(super) enum Read {
    /// Not a whole answer: at least this many bytes are needed.
    More(usize),
    /// A part of the answer, so many bytes of it; there is more to come.
    Part(usize),
    /// The end of the answer, and what it is; the error is the server's refusal in its own words.
    Done(usize, Result<Answer, Arc<str>>),
    /// Nothing that was asked for.
    Broken(Arc<str>),
}

impl Expected {
    fn new(kind: Kind, want: Want, keys_left: usize, opaque: u32) -> Expected {
        let (keys_left, so_far) = (keys_left as u32, SoFar::Nothing);
        Expected { kind, want, keys_left, opaque, namespace_bytes: 0, is_told: false, so_far }
    }

    /// Keys whose answers are told one by one, none so far.
    pub(super) fn told(namespace: &[u8], want: Want, opaque: u32) -> Expected {
        let namespace_bytes = namespace.len();
        Expected { namespace_bytes, is_told: true, ..Expected::new(Kind::Items, want, 0, opaque) }
    }

    /// Adds a key that is told.
    #[inline]
    pub(super) fn add_key(&mut self) {
        self.keys_left += 1;
    }

    /// The keys whose answers are told and have not come, and how; `None` where answers are not told.
    #[inline]
    pub(super) fn to_tell(&self) -> Option<(usize, Want)> {
        self.is_told.then_some((self.keys_left as usize, self.want))
    }

    /// How much of each key is the fleet's namespace.
    pub(super) fn namespace_bytes(&self) -> usize {
        self.namespace_bytes
    }

    /// A run of quiet writes and its barrier.
    pub(super) fn quiet(writes: u32, opaque: u32) -> Expected {
        Expected::new(Kind::Quiet { writes }, Want::VALUE, 0, opaque)
    }

    /// How many opaques the request has used.
    pub(super) fn opaques(&self) -> u32 {
        self.keys_left.max(1)
    }

    /// Takes the keys of an answer that will not be read to its end off the queue, or those left of one that was.
    pub(super) fn forget_keys(&mut self, keys: &mut KeyQueue) {
        for _ in 0..std::mem::take(&mut self.keys_left) {
            keys.pop();
        }
    }

    /// Puts the item of the key in front of the queue, or its absence, where it belongs.
    #[inline]
    fn place(&mut self, keys: &mut KeyQueue, found: Option<Found<'_>>) {
        keys.pop();
        self.keys_left -= 1;
        match &mut self.so_far {
            _ if self.is_told => keys.tell(Ok(found)),
            SoFar::Items(items) => items.push(found.map(Item::from)),
            SoFar::Refused(_) => {}
            so_far => {
                if let Some(found) = found {
                    *so_far = SoFar::Item(found.into());
                }
            }
        }
    }

    /// Notes that the key in front of the queue was refused, of several that are answered one by one.
    fn refuse(&mut self, keys: &mut KeyQueue, line: &[u8]) {
        let line: Arc<str> = String::from_utf8_lossy(line).into();
        keys.pop();
        self.keys_left -= 1;
        if self.is_told {
            keys.tell(Err(&Error::Refused { server: keys.server.clone(), line }));
        } else {
            self.so_far = SoFar::Refused(line);
        }
    }

    /// What has come of a retrieval.
    fn retrieved(&mut self) -> Result<Answer, Arc<str>> {
        Ok(match std::mem::replace(&mut self.so_far, SoFar::Nothing) {
            SoFar::Item(item) => Answer::Item(Some(item)),
            SoFar::Items(items) => Answer::Items(items),
            SoFar::Refused(line) => return Err(line),
            _ => Answer::Item(None),
        })
    }

    fn expect_items(&mut self) {
        if self.kind == Kind::Items {
            self.so_far = SoFar::Items(Vec::with_capacity(self.keys_left as usize));
        }
    }

    fn add_stat(&mut self, name: &[u8], value: &[u8]) {
        let stat = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        match &mut self.so_far {
            SoFar::Stats(stats) => stats.push(stat),
            so_far => *so_far = SoFar::Stats(vec![stat]),
        }
    }

    fn stats(&mut self) -> Answer {
        match std::mem::replace(&mut self.so_far, SoFar::Nothing) {
            SoFar::Stats(stats) => Answer::Stats(stats),
            _ => Answer::Stats(Vec::new()),
        }
    }

    fn add_error(&mut self) {
        match &mut self.so_far {
            SoFar::Errors(count) => *count += 1,
            so_far => *so_far = SoFar::Errors(1),
        }
    }

    /// How many of a run of quiet writes went wrong.
    pub(super) fn errors(&self) -> u32 {
        if let SoFar::Errors(count) = self.so_far { count } else { 0 }
    }
}

/// Appends a request, whole or not at all, with `namespace` in front of its keys. `opaque` numbers it (and those after it,
/// one for each key).
pub(super) fn encode(
    (protocol, namespace): (Protocol, &[u8]),
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    opaque: u32,
    request: &Request<'_>,
) -> Result<Expected, Error> {
    if namespace.is_empty() {
        return encode_plain(protocol, out, keys, opaque, request);
    }
    let named = |key: &[u8]| [namespace, key].concat();
    let encoded = match *request {
        Request::Get { key, want, touch } => {
            encode_plain(protocol, out, keys, opaque, &Request::Get { key: &named(key), want, touch })
        }
        Request::Many { keys: asked, want, touch } => {
            let asked: Vec<Vec<u8>> = asked.iter().map(|key| named(key)).collect();
            let asked: Vec<&[u8]> = asked.iter().map(Vec::as_slice).collect();
            encode_plain(protocol, out, keys, opaque, &Request::Many { keys: &asked, want, touch })
        }
        Request::Write(write) => {
            encode_plain(protocol, out, keys, opaque, &Request::Write(write.with_key(&named(write.key()))))
        }
        Request::Meta(meta) => {
            let key = named(meta.key);
            encode_plain(protocol, out, keys, opaque, &Request::Meta(MetaRequest { key: &key, ..meta }))
        }
        Request::Forget(Forget::Prefix(prefix)) => {
            encode_plain(protocol, out, keys, opaque, &Request::Forget(Forget::Prefix(&named(prefix))))
        }
        // Tags are a server's, whatever its keys begin with.
        Request::Forget(Forget::Tag(_))
        | Request::Flush { .. }
        | Request::Version
        | Request::Stats { .. }
        | Request::Barrier => encode_plain(protocol, out, keys, opaque, request),
    };
    encoded.map(|expected| Expected { namespace_bytes: namespace.len(), ..expected })
}

fn encode_plain(
    protocol: Protocol,
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    opaque: u32,
    request: &Request<'_>,
) -> Result<Expected, Error> {
    match protocol {
        Protocol::Text => text::encode(out, keys, opaque, request),
        Protocol::Meta => meta::encode(out, keys, opaque, request),
        Protocol::Binary => binary::encode(out, keys, opaque, request),
    }
}

/// Appends one key of a retrieval, whole or not at all, with the namespace in front of it. `joins`: the request in front of
/// it is a retrieval that wants the same and may have more keys.
#[inline]
pub(super) fn encode_key(
    (protocol, namespace): (Protocol, &[u8]),
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    (opaque, joins): (u32, bool),
    key: &[u8],
    want: Want,
) -> Result<(), Error> {
    let named;
    let key = if namespace.is_empty() {
        key
    } else {
        named = [namespace, key].concat();
        &named
    };
    match protocol {
        Protocol::Text => text::key(out, keys, key, want, joins),
        Protocol::Meta => meta::get(out, keys, key, want, None),
        Protocol::Binary => binary::get(out, keys, key, None, opaque),
    }
}

/// Appends a write that is answered only if it goes wrong.
pub(super) fn encode_quiet(
    (protocol, namespace): (Protocol, &[u8]),
    out: &mut Vec<u8>,
    opaque: u32,
    write: &Write<'_>,
) -> Result<(), Error> {
    let named;
    let write = if namespace.is_empty() {
        write
    } else {
        named = [namespace, write.key()].concat();
        &write.with_key(&named)
    };
    match protocol {
        Protocol::Text => text::write(out, write, true),
        Protocol::Meta => meta::write(out, write, opaque, true),
        Protocol::Binary => binary::write(out, write, opaque, true),
    }
}

/// Appends the request whose answer comes after everything that was asked before.
pub(super) fn encode_barrier(protocol: Protocol, out: &mut Vec<u8>, opaque: u32) {
    match protocol {
        // `mn` is unknown to servers and proxies that speak text only.
        Protocol::Text => out.extend_from_slice(client::text::VERSION),
        Protocol::Meta => out.extend_from_slice(client::meta::NOOP),
        Protocol::Binary => binary::barrier(out, opaque),
    }
}

/// Reads what is at the front of `buf` as (a part of) the answer that is `expected`; `keys` begins with its keys.
#[inline]
pub(super) fn read(protocol: Protocol, expected: &mut Expected, keys: &mut KeyQueue, buf: &[u8]) -> Read {
    match protocol {
        Protocol::Text => text::read(expected, keys, buf, false),
        Protocol::Meta => text::read(expected, keys, buf, true),
        Protocol::Binary => binary::read(expected, keys, buf),
    }
}

/// Whether a key can be sent at all.
pub(super) fn check_key((protocol, namespace): (Protocol, &[u8]), key: &[u8]) -> Result<(), BadRequest> {
    let named;
    let key = if namespace.is_empty() {
        key
    } else {
        named = [namespace, key].concat();
        &named
    };
    match protocol {
        Protocol::Text => client::check_text_key(key),
        Protocol::Meta => client::check_meta_key(key),
        Protocol::Binary => client::check_key(key),
    }
}

fn unsupported<T>(what: &'static str, expected: &'static str) -> Result<T, Error> {
    Err(Error::Unsupported { what, expected })
}

/// How many bytes of an unexpected answer are shown.
const SEEN_BYTES: usize = 60;

/// Bytes that were no answer to what was asked.
#[cold]
fn unexpected(expected: &str, buf: &[u8]) -> Read {
    Read::Broken(describe(expected, buf))
}

/// What was seen and what was expected, for the end of "server X sent …".
#[cold]
pub(super) fn describe(expected: &str, buf: &[u8]) -> Arc<str> {
    let seen = &buf[..buf.len().min(SEEN_BYTES)];
    let more = if buf.len() > SEEN_BYTES { "…" } else { "" };
    format!("\"{}{more}\", expected {expected}", seen.escape_ascii()).into()
}

#[cold]
fn broken(why: BadReply, buf: &[u8]) -> Read {
    Read::Broken(format!("\"{}\": {why}", buf[..buf.len().min(SEEN_BYTES)].escape_ascii()).into())
}

fn refusal(line: &[u8]) -> Result<Answer, Arc<str>> {
    Err(String::from_utf8_lossy(line).into())
}

/// The kind of answer that a write has.
fn write_kind(write: &Write<'_>) -> Kind {
    match *write {
        Write::Store(Store { verb, cas, .. }) => Kind::Store { verb, compares: cas.is_some() },
        Write::Delete { .. } => Kind::Delete,
        Write::Arith(Arith { .. }) => Kind::Arith,
        Write::Touch { .. } => Kind::Touch,
    }
}

fn written(written: Written) -> Result<Answer, Arc<str>> {
    Ok(Answer::Written(written))
}
