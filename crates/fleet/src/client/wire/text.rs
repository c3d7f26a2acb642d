//! Text requests, and the answers to text and meta requests, which one parser reads.

use nuthatch_proto::ascii;
use nuthatch_proto::client::reply::{self, Reply};
use nuthatch_proto::client::{Step, check_text_key, text};

use super::{Expected, Kind, Read, SoFar, broken, meta, refusal, unexpected, unsupported, write_kind, written};
use crate::client::keys::KeyQueue;
use crate::client::request::{Answer, Arith, Found, Marks, Request, Store, Ttl, Verb, Want, Write};
use crate::client::{Error, Written};

pub(super) fn encode(
    out: &mut Vec<u8>,
    keys: &mut KeyQueue,
    opaque: u32,
    request: &Request<'_>,
) -> Result<Expected, Error> {
    let bare = |kind| Ok(Expected::new(kind, Want::VALUE, 0, 0));
    match *request {
        Request::Get { key, want, touch } => {
            retrieve(out, &[key], want, touch)?;
            keys.push(key);
            Ok(Expected::new(Kind::Item, want, 1, 0))
        }
        Request::Many { keys: asked, want, touch } => {
            retrieve(out, asked, want, touch)?;
            asked.iter().for_each(|key| keys.push(key));
            let mut expected = Expected::new(Kind::Items, want, asked.len(), 0);
            expected.expect_items();
            Ok(expected)
        }
        Request::Write(ref change) => {
            write(out, change, false)?;
            bare(write_kind(change))
        }
        Request::Meta(ref request) => meta::pass(out, keys, opaque, request),
        Request::Flush { delay } => {
            text::flush_all(out, delay, false);
            bare(Kind::Flush)
        }
        Request::Forget(what) => {
            text::forget(out, what, false)?;
            bare(Kind::Forget)
        }
        Request::Version => {
            out.extend_from_slice(text::VERSION);
            bare(Kind::Version)
        }
        Request::Stats { argument: b"" } => {
            text::stats(out, &[])?;
            bare(Kind::Stats)
        }
        Request::Stats { argument } => {
            text::stats(out, &[argument])?;
            bare(Kind::Stats)
        }
        Request::Barrier => {
            out.extend_from_slice(text::VERSION);
            bare(Kind::Barrier)
        }
    }
}

fn retrieve(out: &mut Vec<u8>, keys: &[&[u8]], want: Want, touch: Option<i32>) -> Result<(), Error> {
    Ok(match (touch, want.cas) {
        (None, false) => text::get(out, keys),
        (None, true) => text::gets(out, keys),
        (Some(exptime), false) => text::gat(out, exptime, keys),
        (Some(exptime), true) => text::gats(out, exptime, keys),
    }?)
}

/// One key of a retrieval; with `joins` behind the line's others.
#[inline]
pub(super) fn key(out: &mut Vec<u8>, keys: &mut KeyQueue, key: &[u8], want: Want, joins: bool) -> Result<(), Error> {
    if joins {
        check_text_key(key)?;
        out.truncate(out.len() - LINE_END.len());
        out.push(b' ');
        out.extend_from_slice(key);
        out.extend_from_slice(LINE_END);
    } else {
        retrieve(out, &[key], want, None)?;
    }
    keys.push(key);
    Ok(())
}

const LINE_END: &[u8] = b"\r\n";

pub(super) fn write(out: &mut Vec<u8>, write: &Write<'_>, noreply: bool) -> Result<(), Error> {
    match *write {
        Write::Store(Store { verb, key, value, flags, exptime, cas }) => {
            let verb = match (verb, cas) {
                (Verb::Set, Some(_)) => ascii::Verb::Cas,
                (_, Some(_)) => {
                    return unsupported("CAS unique with add, replace, append or prepend", "meta or binary");
                }
                (Verb::Set, None) => ascii::Verb::Set,
                (Verb::Add, None) => ascii::Verb::Add,
                (Verb::Replace, None) => ascii::Verb::Replace,
                (Verb::Append, None) => ascii::Verb::Append,
                (Verb::Prepend, None) => ascii::Verb::Prepend,
            };
            let options = text::StoreOptions { flags, exptime, cas: cas.unwrap_or(0), noreply };
            text::store(out, verb, key, value, options)?;
        }
        Write::Delete { key, cas: None } => text::delete(out, key, noreply)?,
        Write::Delete { cas: Some(_), .. } => return unsupported("CAS unique with delete", "meta or binary"),
        Write::Arith(Arith { initial: Some(_), .. }) => return unsupported("initial number", "meta or binary"),
        Write::Arith(Arith { key, down: false, delta, .. }) => text::incr(out, key, delta, noreply)?,
        Write::Arith(Arith { key, down: true, delta, .. }) => text::decr(out, key, delta, noreply)?,
        Write::Touch { key, exptime } => text::touch(out, key, exptime, noreply)?,
    }
    Ok(())
}

/// Reads an answer to a text or meta request; `one_by_one` says that every key of a retrieval is answered by itself.
#[inline]
pub(super) fn read(expected: &mut Expected, keys: &mut KeyQueue, buf: &[u8], one_by_one: bool) -> Read {
    let (reply, used) = match reply::parse(buf) {
        Step::Done { reply, used } => (reply, used),
        Step::NeedMore { need_bytes } => return Read::More(need_bytes),
        Step::Broken(why) => return broken(why, buf),
    };
    let answer = match (expected.kind, reply) {
        (Kind::Item | Kind::Items, Reply::Value(hit)) => {
            // Hits come in the order of the keys, and misses not at all.
            while expected.keys_left > 0 {
                if keys.front() == hit.key {
                    let (value, flags, cas) = (hit.value, hit.flags, hit.cas.unwrap_or(0));
                    let (ttl, marks) = (Ttl::Unknown, Marks::default());
                    expected.place(keys, Some(Found { value, flags, cas, ttl, marks }));
                    return Read::Part(used);
                }
                if expected.kind == Kind::Item {
                    break;
                }
                expected.place(keys, None);
            }
            return unexpected("the value of the key that was asked for", buf);
        }
        (Kind::Item | Kind::Items, Reply::End) => {
            while expected.keys_left > 0 {
                expected.place(keys, None);
            }
            expected.retrieved()
        }
        (Kind::Items, Reply::Error(line)) if one_by_one => {
            expected.refuse(keys, line);
            return meta::retrieved(expected, used);
        }
        (Kind::Item | Kind::Items, Reply::Meta(reply)) => return meta::read_get(expected, keys, &reply, used, buf),
        (Kind::Meta { .. }, reply) => return meta::read_passed(expected, keys, reply, used, buf),
        // Some writes of a quiet run went wrong, and then comes the barrier's answer.
        (Kind::Quiet { .. }, Reply::Version(_) | Reply::Noop) => Ok(Answer::Done),
        (
            Kind::Quiet { writes },
            Reply::Error(_) | Reply::NotStored | Reply::Exists | Reply::NotFound | Reply::Meta(_),
        ) if expected.errors() < writes => {
            expected.add_error();
            return Read::Part(used);
        }
        (Kind::Barrier, Reply::Version(_) | Reply::Noop) => Ok(Answer::Done),
        (Kind::Stats, Reply::Stat { name, value }) => {
            expected.add_stat(name, value);
            return Read::Part(used);
        }
        // `stats reset` and the like.
        (Kind::Stats, Reply::End | Reply::Reset | Reply::Ok) => Ok(expected.stats()),
        (Kind::Version, Reply::Version(version)) => Ok(Answer::Text(String::from_utf8_lossy(version).into())),
        (Kind::Flush | Kind::Forget, Reply::Ok) => Ok(Answer::Done),
        (kind, Reply::Meta(reply)) => match meta::read_write(kind, expected.opaque, &reply) {
            Some(outcome) => written(outcome),
            None => return unexpected("the answer to a write", buf),
        },
        (kind @ (Kind::Store { .. } | Kind::Delete | Kind::Touch | Kind::Arith), reply) => match (kind, reply) {
            (Kind::Store { .. }, Reply::Stored) | (Kind::Delete, Reply::Deleted) | (Kind::Touch, Reply::Touched) => {
                written(Written::Done { cas: 0 })
            }
            (Kind::Arith, Reply::Number(value)) => written(Written::Number { value, cas: 0 }),
            (Kind::Store { .. }, Reply::NotStored) => written(Written::NotStored),
            (Kind::Store { compares: true, .. }, Reply::Exists) => written(Written::Exists),
            (Kind::Store { compares: true, .. }, Reply::NotFound) => written(Written::NotFound),
            (Kind::Delete | Kind::Touch | Kind::Arith, Reply::NotFound) => written(Written::NotFound),
            (_, Reply::Error(line)) => refusal(line),
            _ => return unexpected("the answer to a write", buf),
        },
        (_, Reply::Error(line)) => refusal(line),
        _ => return unexpected(expected_words(expected.kind), buf),
    };
    if answer.is_err() {
        expected.so_far = SoFar::Nothing;
    }
    Read::Done(used, answer)
}

fn expected_words(kind: Kind) -> &'static str {
    match kind {
        Kind::Item | Kind::Items => "the answer to a retrieval",
        Kind::Stats => "statistics",
        Kind::Flush | Kind::Forget => "OK",
        Kind::Version | Kind::Barrier | Kind::Quiet { .. } => "the server's version",
        _ => "the answer to a write",
    }
}
