//! Binary requests and answers. Every answer carries the opaque of its request, and retrievals ask for the key as well.

use nuthatch_proto::binary::{Opcode, Status};
use nuthatch_proto::client::binary::{self, Reply, Tag};
use nuthatch_proto::client::{self, Step};
use nuthatch_proto::forget::RESERVED;

use super::{Expected, Kind, Read, SoFar, broken, refusal, unexpected, unsupported, write_kind, written};
use crate::client::keys::KeyQueue;
use crate::client::request::{Answer, Arith, Found, Marks, Request, Store, Ttl, Verb, Want, Write};
use crate::client::{Error, Written};

pub(super) fn encode(
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    opaque: u32,
    request: &Request<'_>,
) -> Result<Expected, Error> {
    let tag = Tag { opaque, cas: 0 };
    let bare = |kind| Ok(Expected::new(kind, Want::VALUE, 0, opaque));
    match *request {
        Request::Get { key, want, touch } => {
            get(out, keys, key, touch, opaque)?;
            Ok(Expected::new(Kind::Item, want, 1, opaque))
        }
        Request::Many { keys: asked, want, touch } => {
            for (nth, key) in asked.iter().enumerate() {
                get(out, keys, key, touch, opaque.wrapping_add(nth as u32))?;
            }
            let mut expected = Expected::new(Kind::Items, want, asked.len(), opaque);
            expected.expect_items();
            Ok(expected)
        }
        Request::Write(ref change) => {
            write(out, change, opaque, false)?;
            bare(write_kind(change))
        }
        Request::Meta(_) => unsupported("meta commands", "meta or text"),
        Request::Flush { delay } => {
            match delay {
                None => binary::bare(out, Opcode::Flush, tag),
                Some(delay) => binary::request(out, Opcode::Flush, &delay.to_be_bytes(), b"", b"", tag)?,
            }
            bare(Kind::Flush)
        }
        // The protocol has no such command, and a reserved key for those who know no more.
        Request::Forget(what) => {
            let key = [RESERVED, what.word().as_bytes(), b":", what.name()].concat();
            client::check_key(&key)?;
            binary::keyed(out, Opcode::Delete, &key, tag)?;
            bare(Kind::Forget)
        }
        Request::Version => {
            binary::bare(out, Opcode::Version, tag);
            bare(Kind::Version)
        }
        Request::Stats { argument } => {
            if !argument.is_empty() {
                client::check_key(argument)?;
            }
            binary::keyed(out, Opcode::Stat, argument, tag)?;
            bare(Kind::Stats)
        }
        Request::Barrier => {
            barrier(out, opaque);
            bare(Kind::Barrier)
        }
    }
}

pub(super) fn barrier(out: &mut Vec<u8>, opaque: u32) {
    binary::bare(out, Opcode::Noop, Tag { opaque, cas: 0 });
}

pub(super) fn get(
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    key: &[u8],
    touch: Option<i32>,
    opaque: u32,
) -> Result<(), Error> {
    let tag = Tag { opaque, cas: 0 };
    match touch {
        None => binary::keyed(out, Opcode::GetK, key, tag)?,
        Some(exptime) => binary::touch(out, Opcode::GatK, key, time(exptime), tag)?,
    }
    keys.push(key);
    Ok(())
}

pub(super) fn write(out: &mut Vec<u8>, write: &Write<'_>, opaque: u32, quiet: bool) -> Result<(), Error> {
    let or_quiet = |loud, silent| if quiet { silent } else { loud };
    match *write {
        Write::Store(Store { verb, key, value, flags, exptime, cas }) => {
            let tag = Tag { opaque, cas: cas.unwrap_or(0) };
            let opcode = match verb {
                Verb::Set => or_quiet(Opcode::Set, Opcode::SetQ),
                Verb::Add => or_quiet(Opcode::Add, Opcode::AddQ),
                Verb::Replace => or_quiet(Opcode::Replace, Opcode::ReplaceQ),
                Verb::Append => or_quiet(Opcode::Append, Opcode::AppendQ),
                Verb::Prepend => or_quiet(Opcode::Prepend, Opcode::PrependQ),
            };
            match verb {
                Verb::Append | Verb::Prepend => binary::join(out, opcode, key, value, tag)?,
                _ => binary::store(out, opcode, key, value, (flags, time(exptime)), tag)?,
            }
        }
        Write::Delete { key, cas } => {
            let tag = Tag { opaque, cas: cas.unwrap_or(0) };
            binary::keyed(out, or_quiet(Opcode::Delete, Opcode::DeleteQ), key, tag)?;
        }
        Write::Arith(Arith { key, down, delta, initial }) => {
            let opcode = match down {
                false => or_quiet(Opcode::Increment, Opcode::IncrementQ),
                true => or_quiet(Opcode::Decrement, Opcode::DecrementQ),
            };
            let initial = initial.map(|(initial, exptime)| (initial, time(exptime)));
            binary::arith(out, opcode, key, delta, initial, Tag { opaque, cas: 0 })?;
        }
        // There is no quiet touch, and its quiet kin answers a hit with the value.
        Write::Touch { .. } if quiet => return unsupported("touch without an answer", "text or meta"),
        Write::Touch { key, exptime } => {
            binary::touch(out, Opcode::Touch, key, time(exptime), Tag { opaque, cas: 0 })?;
        }
    }
    Ok(())
}

/// The first moment, in 1970, that is not counted from now.
const LONG_PAST: u32 = 60 * 60 * 24 * 30 + 1;

/// An expiry time as it is sent. This protocol's times have no sign: memcached takes a negative one for a moment in 2106 and
/// keeps what the other protocols have it drop at once.
fn time(exptime: i32) -> u32 {
    u32::try_from(exptime).unwrap_or(LONG_PAST)
}

#[inline]
pub(super) fn read(expected: &mut Expected, keys: &mut KeyQueue, buf: &[u8]) -> Read {
    let (reply, used) = match binary::parse(buf) {
        Step::Done { reply, used } => (reply, used),
        Step::NeedMore { need_bytes } => return Read::More(need_bytes),
        Step::Broken(why) => return broken(why, buf),
    };
    if let Kind::Quiet { writes } = expected.kind {
        return read_quiet(expected, writes, &reply, used, buf);
    }
    if reply.header.opaque != expected.opaque {
        return unexpected("an answer with the number of the request", buf);
    }
    let cas = reply.header.cas;
    let answer = match (expected.kind, reply.status) {
        (Kind::Item | Kind::Items, Some(Status::Success)) => {
            if reply.key != keys.front() {
                return unexpected("the value of the key that was asked for", buf);
            }
            let (value, flags) = (reply.value, reply.flags().unwrap_or(0));
            let cas = if expected.want.cas { cas } else { 0 };
            expected.place(keys, Some(Found { value, flags, cas, ttl: Ttl::Unknown, marks: Marks::default() }));
            return retrieved(expected, used);
        }
        (Kind::Item | Kind::Items, Some(Status::KeyNotFound)) => {
            expected.place(keys, None);
            return retrieved(expected, used);
        }
        // A refusal of one key of many: the others' answers still come.
        (Kind::Items, _) => {
            expected.refuse(keys, words(&reply));
            return retrieved(expected, used);
        }
        (Kind::Stats, Some(Status::Success)) if !reply.key.is_empty() => {
            expected.add_stat(reply.key, reply.value);
            return Read::Part(used);
        }
        (Kind::Stats, Some(Status::Success)) => Ok(expected.stats()),
        (Kind::Version, Some(Status::Success)) => Ok(Answer::Text(String::from_utf8_lossy(reply.value).into())),
        (Kind::Flush | Kind::Forget | Kind::Barrier, Some(Status::Success)) => Ok(Answer::Done),
        // To a server that knows no reserved keys it is a key like any other.
        (Kind::Forget, Some(Status::KeyNotFound)) => refusal(b"NOT_FOUND"),
        (Kind::Arith, Some(Status::Success)) => match reply.number() {
            Some(value) => written(Written::Number { value, cas }),
            None => return unexpected("a number of eight bytes", buf),
        },
        (Kind::Store { .. } | Kind::Delete | Kind::Touch, Some(Status::Success)) => written(Written::Done { cas }),
        (Kind::Store { verb: Verb::Add, compares: false }, Some(Status::KeyExists))
        | (Kind::Store { verb: Verb::Replace, compares: false }, Some(Status::KeyNotFound))
        | (Kind::Store { .. } | Kind::Arith, Some(Status::NotStored)) => written(Written::NotStored),
        (Kind::Store { .. } | Kind::Delete | Kind::Arith, Some(Status::KeyExists)) => written(Written::Exists),
        (Kind::Store { .. } | Kind::Delete | Kind::Arith | Kind::Touch, Some(Status::KeyNotFound)) => {
            written(Written::NotFound)
        }
        _ => refusal(words(&reply)),
    };
    if answer.is_err() {
        expected.so_far = SoFar::Nothing;
    }
    Read::Done(used, answer)
}

fn retrieved(expected: &mut Expected, used: usize) -> Read {
    if expected.keys_left == 0 {
        return Read::Done(used, expected.retrieved());
    }
    expected.opaque = expected.opaque.wrapping_add(1);
    Read::Part(used)
}

/// A quiet write that went wrong, or the barrier behind a run of them, whose number is the last.
fn read_quiet(expected: &mut Expected, writes: u32, reply: &Reply<'_>, used: usize, buf: &[u8]) -> Read {
    if reply.header.opaque == expected.opaque && reply.header.opcode == Opcode::Noop.as_wire() {
        return Read::Done(used, Ok(Answer::Done));
    }
    let before_barrier = expected.opaque.wrapping_sub(reply.header.opaque);
    if reply.status != Some(Status::Success) && (1..=writes).contains(&before_barrier) {
        expected.add_error();
        return Read::Part(used);
    }
    unexpected("an answer with the number of a request", buf)
}

/// What the server says about a refusal; servers leave it out for some.
fn words<'a>(reply: &Reply<'a>) -> &'a [u8] {
    match reply.status {
        _ if !reply.value.is_empty() => reply.value,
        Some(status) => status.text().as_bytes(),
        None => b"a status that is unknown",
    }
}
