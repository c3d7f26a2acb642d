//! The binary protocol's requests.

use nuthatch_proto::binary::{Command, Get, Opcode, Request, Status, Store, Verb, reply};
use nuthatch_store::{ArithOptions, ArithOutcome, DeleteOptions, DeleteOutcome, Hit, SetMode, SetOutcome};

use super::text_modify::{arith_key, delete_key};
use super::text_store::Plan;
use super::{Exec, Flow, admin, stats};
use crate::auth::Access;
use crate::conn::Output;
use crate::counters::ListenerCounter;
use crate::settings::VERSION;
use crate::shared::Live;

/// Whether a request is carried out for those who have not authenticated.
pub(crate) fn is_open_to_all(request: &Request<'_>) -> bool {
    matches!(request.command, Command::SaslListMechs | Command::Sasl { .. } | Command::Version)
}

/// How a storage request stores.
pub(crate) fn mode(store: &Store<'_>, compares: bool) -> SetMode {
    match store.verb {
        // With a CAS unique each of these is a compare-and-store, even an add.
        Verb::Set | Verb::Add | Verb::Replace if compares => SetMode::Set,
        Verb::Set => SetMode::Set,
        Verb::Add => SetMode::Add,
        Verb::Replace => SetMode::Replace,
        Verb::Append => SetMode::Append,
        Verb::Prepend => SetMode::Prepend,
    }
}

/// The plan of a storage request.
pub(crate) fn plan(exec: &Exec<'_>, request: &Request<'_>, store: &Store<'_>) -> Plan {
    let compare = (request.header.cas != 0).then_some(request.header.cas);
    let mut plan = Plan::new(exec, store.key, mode(store, compare.is_some()), compare);
    plan.options.flags = store.flags;
    plan.options.expiry = exec.shared.clock.expiry(exptime(store.exptime));
    plan.options.want_cas = !request.quiet && exec.live.settings.cas_enabled;
    plan
}

/// Answers a storage request.
pub(crate) fn stored(exec: &mut Exec<'_>, request: &Request<'_>, store: &Store<'_>, outcome: SetOutcome) {
    let out = &mut exec.out.bytes;
    let status = match outcome {
        SetOutcome::Stored { cas } => {
            if !request.quiet {
                reply::success(out, &request.header, cas);
            }
            return;
        }
        SetOutcome::Exists => Status::KeyExists,
        SetOutcome::NotFound => Status::KeyNotFound,
        SetOutcome::NotStored => match store.verb {
            Verb::Add => Status::KeyExists,
            Verb::Replace => Status::KeyNotFound,
            _ => Status::NotStored,
        },
        SetOutcome::TooLarge => Status::TooLarge,
        SetOutcome::NoMemory => Status::OutOfMemory,
    };
    reply::error(out, &request.header, status);
}

/// Executes a request without a value.
#[inline]
pub(crate) fn execute(exec: &mut Exec<'_>, request: &Request<'_>) -> Flow {
    let header = &request.header;
    match request.command {
        Command::Get(get) => lookup(exec, request, &get, false),
        Command::Touch { key, exptime } => {
            lookup(exec, request, &Get { key, with_key: false, touch: Some(exptime) }, true);
        }
        Command::Delete { key } => delete(exec, request, key),
        Command::Arith(arith) => {
            let options = ArithOptions {
                decrement: arith.decrement,
                delta: arith.delta,
                initial: arith.initial.map(|(value, at)| (value, exec.shared.clock.expiry(exptime(at)))),
                compare: (header.cas != 0).then_some(header.cas),
                want_cas: !request.quiet && exec.live.settings.cas_enabled,
                ..ArithOptions::default()
            };
            count(exec, request, arith.key, &options);
        }
        Command::Flush { delay } => match admin::flush(exec, exptime(delay)) {
            Ok(()) if request.quiet => {}
            Ok(()) => reply::success(&mut exec.out.bytes, header, 0),
            Err(_) => reply::error(&mut exec.out.bytes, header, Status::AuthError),
        },
        Command::Quit => {
            if !request.quiet {
                reply::success(&mut exec.out.bytes, header, 0);
            }
            return Flow::Close;
        }
        Command::Noop => reply::success(&mut exec.out.bytes, header, 0),
        Command::Version => reply::body(&mut exec.out.bytes, header, Status::Success, VERSION.as_bytes()),
        Command::Stat { key } => stats::binary(exec, header, key),
        Command::SaslListMechs if matches!(exec.from.listener.access, Access::Sasl(_)) => {
            reply::body(&mut exec.out.bytes, header, Status::Success, b"PLAIN");
        }
        Command::SaslListMechs | Command::Sasl { .. } | Command::Store(_) => {
            reply::error(&mut exec.out.bytes, header, Status::UnknownCommand);
        }
    }
    Flow::Next
}

/// Get, get-and-touch, touch.
#[inline]
fn lookup(exec: &mut Exec<'_>, request: &Request<'_>, get: &Get<'_>, is_touch_only: bool) {
    let header = &request.header;
    let key = get.key;
    let pool = exec.pool_of(key);
    let handle = &mut exec.handles[pool];
    let hit = match get.touch {
        None => handle.get(key, exec.now),
        Some(at) => handle.get_and_touch(key, exec.shared.clock.expiry(exptime(at)), exec.now),
    };
    let found = hit.map(|hit| {
        if is_touch_only {
            reply::touched(&mut exec.out.bytes, header, hit.flags(), Exec::shown_cas(exec.live, &hit));
        } else {
            found(exec.out, exec.live, request, get, &hit);
        }
        hit.value_bytes()
    });
    if found.is_none() && !request.quiet {
        reply::miss(&mut exec.out.bytes, header, if get.with_key { key } else { &[] });
    }
    if get.touch.is_some() {
        exec.count_touch(pool, found.is_some());
    } else {
        exec.count_get(pool, found.is_some());
    }
    if exec.observed {
        exec.observe_get(pool, key, found);
    }
}

/// Answers a retrieval that found something.
#[inline]
pub(crate) fn found(out: &mut Output, live: &Live, request: &Request<'_>, get: &Get<'_>, hit: &Hit<'_>) {
    let shown_key = if get.with_key { get.key } else { &[] };
    let cas = Exec::shown_cas(live, hit);
    reply::value_header(&mut out.bytes, &request.header, shown_key, hit.flags(), hit.value_bytes(), cas);
    Exec::push_value(out, hit);
}

fn delete(exec: &mut Exec<'_>, request: &Request<'_>, key: &[u8]) {
    let header = &request.header;
    let options = DeleteOptions { compare: (header.cas != 0).then_some(header.cas), ..DeleteOptions::default() };
    let outcome = delete_key(exec, key, &options, "delete");
    deleted(exec.out, request, outcome);
}

/// Answers a deletion.
pub(crate) fn deleted(out: &mut Output, request: &Request<'_>, outcome: DeleteOutcome) {
    let (out, header) = (&mut out.bytes, &request.header);
    match outcome {
        DeleteOutcome::Deleted if request.quiet => {}
        DeleteOutcome::Deleted => reply::success(out, header, 0),
        DeleteOutcome::NotFound => reply::error(out, header, Status::KeyNotFound),
        DeleteOutcome::Exists => reply::error(out, header, Status::KeyExists),
        DeleteOutcome::NoMemory => reply::error(out, header, Status::OutOfMemory),
    }
}

fn count(exec: &mut Exec<'_>, request: &Request<'_>, key: &[u8], options: &ArithOptions) {
    let outcome = arith_key(exec, key, options);
    counted(exec.out, request, outcome);
}

/// Answers an increment or decrement.
pub(crate) fn counted(out: &mut Output, request: &Request<'_>, outcome: ArithOutcome) {
    let (out, header) = (&mut out.bytes, &request.header);
    match outcome {
        ArithOutcome::Value { .. } if request.quiet => {}
        ArithOutcome::Value { value, cas, .. } => reply::number(out, header, value, cas),
        ArithOutcome::NotFound => reply::error(out, header, Status::KeyNotFound),
        ArithOutcome::Exists => reply::error(out, header, Status::KeyExists),
        ArithOutcome::NonNumeric => reply::error(out, header, Status::NonNumeric),
        ArithOutcome::NoMemory => reply::error(out, header, Status::OutOfMemory),
    }
}

/// One step of SASL; PLAIN needs no other. `true` when the client has proved who it is.
pub(crate) fn authenticate(exec: &mut Exec<'_>, request: &Request<'_>, mechanism: &[u8], challenge: &[u8]) -> bool {
    let header = &request.header;
    let Access::Sasl(credentials) = &exec.from.listener.access else {
        reply::error(&mut exec.out.bytes, header, Status::UnknownCommand);
        return false;
    };
    exec.count_here(ListenerCounter::AuthCommands);
    let is_first = header.opcode == Opcode::SaslAuth.as_wire();
    let is_known = is_first
        && mechanism == b"PLAIN"
        && plain(challenge).is_some_and(|(user, password)| credentials.check(user, password));
    if is_known {
        reply::body(&mut exec.out.bytes, header, Status::Success, reply::AUTHENTICATED);
    } else {
        exec.count_here(ListenerCounter::AuthErrors);
        reply::error(&mut exec.out.bytes, header, Status::AuthError);
    }
    is_known
}

/// User and password of a PLAIN message (RFC 4616): `[authzid] NUL authcid NUL passwd`. Who to act as makes no
/// difference here and is not looked at.
fn plain(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.splitn(3, |&byte| byte == 0);
    let (_, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    (!user.is_empty()).then_some((user, password))
}

/// memcached reads the 32 bits of an expiry time as unsigned here, other than in its text protocols: nothing is negative.
fn exptime(wire: u32) -> i64 {
    i64::from(wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_messages_carry_two_tokens_after_an_identity() {
        assert_eq!(plain(b"\0anna\0secret"), Some((&b"anna"[..], &b"secret"[..])));
        assert_eq!(plain(b"root\0anna\0a\0b"), Some((&b"anna"[..], &b"a\0b"[..])));
        assert_eq!(plain(b"\0anna\0"), Some((&b"anna"[..], &b""[..])));
        for broken in [&b""[..], b"anna", b"\0anna", b"\0\0secret"] {
            assert_eq!(plain(broken), None);
        }
    }
}
