//! `delete`, `incr`, `decr`, `touch`.

use nuthatch_proto::WireError;
use nuthatch_proto::ascii::{Arith, Delete, Touch, reply};
use nuthatch_store::{ArithOptions, ArithOutcome, DeleteOptions, DeleteOutcome, NEVER};

use super::Exec;
use super::forget::{forget, reserved};
use crate::conn::Output;
use crate::counters::PoolCounter;

/// `delete`.
pub(crate) fn delete(exec: &mut Exec<'_>, request: &Delete<'_>) {
    let outcome = delete_key(exec, request.key, &DeleteOptions::default(), "delete");
    deleted(exec.out, request, outcome);
}

/// Answers `delete`.
pub(crate) fn deleted(out: &mut Output, request: &Delete<'_>, outcome: DeleteOutcome) {
    if !request.noreply {
        out.bytes.extend_from_slice(match outcome {
            DeleteOutcome::Deleted => reply::DELETED,
            _ => reply::NOT_FOUND,
        });
    }
}

/// Deletes or invalidates for any protocol. `command` is memcached's name of the command.
pub(crate) fn delete_key(exec: &mut Exec<'_>, key: &[u8], options: &DeleteOptions, command: &str) -> DeleteOutcome {
    let pool = exec.pool_of(key);
    if let Some(what) = reserved(exec, pool, key) {
        return forget(exec, what, command).map_or(DeleteOutcome::NotFound, |_| DeleteOutcome::Deleted);
    }
    let mut value_bytes = 0;
    if exec.observed {
        exec.observe_lookup(pool, key);
        value_bytes = exec.handles[pool].peek(key, exec.now).map_or(0, |hit| hit.value_bytes());
    }
    if let Some(pages) = exec.pages_of(pool) {
        pages.deleting(key);
    }
    let outcome = exec.handles[pool].delete(key, options, exec.now);
    match outcome {
        // An invalidated item is not deleted; memcached counts nothing for it.
        DeleteOutcome::Deleted if options.invalidate => {}
        DeleteOutcome::Deleted => exec.count(pool, PoolCounter::DeleteHits),
        DeleteOutcome::NotFound | DeleteOutcome::Exists => exec.count(pool, PoolCounter::DeleteMisses),
        DeleteOutcome::NoMemory => {}
    }
    if exec.observed && !options.invalidate {
        exec.observe_delete(key, outcome, command, value_bytes);
    }
    outcome
}

/// `incr` and `decr`.
pub(crate) fn arith(exec: &mut Exec<'_>, request: &Arith<'_>) {
    let options = ArithOptions { decrement: request.decrement, delta: request.delta, ..ArithOptions::default() };
    let outcome = arith_key(exec, request.key, &options);
    counted(exec.out, request, outcome);
}

/// Answers `incr` and `decr`.
pub(crate) fn counted(out: &mut Output, request: &Arith<'_>, outcome: ArithOutcome) {
    if request.noreply {
        return;
    }
    match outcome {
        ArithOutcome::Value { value, .. } => reply::number(&mut out.bytes, value),
        ArithOutcome::NotFound | ArithOutcome::Exists => out.bytes.extend_from_slice(reply::NOT_FOUND),
        ArithOutcome::NonNumeric => out.bytes.extend_from_slice(WireError::NonNumeric.as_wire()),
        ArithOutcome::NoMemory => out.bytes.extend_from_slice(WireError::OutOfMemory.as_wire()),
    }
}

/// Increments or decrements for any protocol.
pub(crate) fn arith_key(exec: &mut Exec<'_>, key: &[u8], options: &ArithOptions) -> ArithOutcome {
    let pool = exec.pool_of(key);
    if !options.decrement
        && let Some(what) = reserved(exec, pool, key)
    {
        return forget(exec, what, "incr").map_or(ArithOutcome::NotFound, |value| ArithOutcome::Value {
            value,
            cas: 0,
            expiry: NEVER,
            fetched_before: false,
            last_access: exec.now,
            created: false,
        });
    }
    if exec.observed {
        exec.observe_lookup(pool, key);
    }
    let outcome = exec.handles[pool].arith(key, options, exec.now);
    let (hits, misses) = if options.decrement {
        (PoolCounter::DecrHits, PoolCounter::DecrMisses)
    } else {
        (PoolCounter::IncrHits, PoolCounter::IncrMisses)
    };
    match outcome {
        // One that was created counts as neither, as in memcached.
        ArithOutcome::Value { created, .. } if !created => exec.count(pool, hits),
        ArithOutcome::NotFound => exec.count(pool, misses),
        _ => {}
    }
    outcome
}

/// `touch`.
pub(crate) fn touch(exec: &mut Exec<'_>, request: &Touch<'_>) {
    let expiry = exec.shared.clock.expiry(i64::from(request.exptime));
    let found = touch_key(exec, request.key, expiry);
    touched(exec.out, request, found);
}

/// Answers `touch`.
pub(crate) fn touched(out: &mut Output, request: &Touch<'_>, found: bool) {
    if !request.noreply {
        out.bytes.extend_from_slice(if found { reply::TOUCHED } else { reply::NOT_FOUND });
    }
}

/// Touches for any protocol.
pub(crate) fn touch_key(exec: &mut Exec<'_>, key: &[u8], expiry: nuthatch_store::Seconds) -> bool {
    let pool = exec.pool_of(key);
    if exec.observed {
        exec.observe_lookup(pool, key);
    }
    let found = exec.handles[pool].touch(key, expiry, exec.now);
    exec.count_touch(pool, found);
    found
}
