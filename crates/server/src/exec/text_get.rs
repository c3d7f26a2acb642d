//! `get`, `gets`, `gat`, `gats`: one key at a time or several together. The connection says which keys, because it must
//! be able to stop between two of them when the client does not read.

use std::ops::ControlFlow;

use nuthatch_proto::ascii::reply;
use nuthatch_store::{GROUP_KEYS, Hit, Miss, Seconds};

use super::Exec;
use crate::conn::Output;
use crate::counters::PoolCounter;
use crate::shared::Live;

/// How the keys of one command are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// `gets` and `gats` show the CAS unique.
    pub(crate) with_cas: bool,
    /// `gat` and `gats` set this expiry.
    pub(crate) touch: Option<Seconds>,
}

/// Looks `key` up and appends its `VALUE` block if it is there.
#[inline]
pub(crate) fn one(exec: &mut Exec<'_>, key: &[u8], lookup: Lookup) {
    let pool = exec.pool_of(key);
    let handle = &mut exec.handles[pool];
    let hit = match lookup.touch {
        None => handle.get(key, exec.now),
        Some(expiry) => handle.get_and_touch(key, expiry, exec.now),
    };
    let found = hit.map(|hit| {
        push(exec.out, exec.live, key, &hit, lookup);
        hit.value_bytes()
    });
    if lookup.touch.is_some() {
        exec.count_touch(pool, found.is_some());
    } else {
        exec.count_get(pool, found.is_some());
    }
    if exec.observed {
        exec.observe_get(pool, key, found);
    }
}

/// Looks `keys` up and appends the `VALUE` blocks of those that are there. Answers the key at which it stopped because the
/// output is full; all before it are done.
#[inline]
pub(crate) fn all<'k>(
    exec: &mut Exec<'_>,
    mut keys: impl Iterator<Item = &'k [u8]>,
    lookup: Lookup,
) -> Result<(), &'k [u8]> {
    let Some(first) = keys.next() else { return Ok(()) };
    let second = keys.next();
    if second.is_none() && !exec.out.is_full() {
        one(exec, first, lookup);
        return Ok(());
    }
    if exec.observed || lookup.touch.is_some() {
        for key in [Some(first), second].into_iter().flatten().chain(keys) {
            if exec.out.is_full() {
                return Err(key);
            }
            one(exec, key, lookup);
        }
        return Ok(());
    }
    let mut group: [&[u8]; GROUP_KEYS] = [first; GROUP_KEYS];
    let mut filled = 0;
    let mut pool = exec.pool_of(first);
    for key in [Some(first), second].into_iter().flatten().chain(keys) {
        let other = exec.pool_of(key);
        if filled == GROUP_KEYS || other != pool {
            several(exec, pool, &group[..filled], lookup)?;
            (filled, pool) = (0, other);
        }
        group[filled] = key;
        filled += 1;
    }
    several(exec, pool, &group[..filled], lookup)
}

/// As [`all`], for keys of one pool.
fn several<'k>(exec: &mut Exec<'_>, pool: usize, keys: &[&'k [u8]], lookup: Lookup) -> Result<(), &'k [u8]> {
    if exec.out.is_full() {
        return Err(keys[0]);
    }
    let (mut hits, mut expired, mut flushed, mut forgotten) = (0, 0, 0, 0);
    let Exec { handles, live, out, .. } = exec;
    let done = handles[pool].get_many(keys, exec.now, |number, found| {
        match found {
            Ok(hit) => {
                hits += 1;
                push(out, live, keys[number], &hit, lookup);
            }
            Err(Miss::Expired) => expired += 1,
            Err(Miss::Flushed) => flushed += 1,
            Err(Miss::Forgotten) => forgotten += 1,
            Err(_) => {}
        }
        if out.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let counters = exec.handles.counters(pool);
    for (counter, number) in [
        (PoolCounter::GetCommands, done as u64),
        (PoolCounter::GetHits, hits),
        (PoolCounter::GetMisses, done as u64 - hits),
        (PoolCounter::GetExpired, expired),
        (PoolCounter::GetFlushed, flushed),
        (PoolCounter::GetForgotten, forgotten),
    ] {
        counters.add(exec.worker, counter, number);
    }
    keys.get(done).map_or(Ok(()), |&key| Err(key))
}

/// Appends one `VALUE` block.
#[inline]
pub(crate) fn push(out: &mut Output, live: &Live, key: &[u8], hit: &Hit<'_>, lookup: Lookup) {
    let cas = lookup.with_cas.then(|| Exec::shown_cas(live, hit));
    reply::value_header(&mut out.bytes, key, hit.flags(), hit.value_bytes(), cas);
    Exec::push_value(out, hit);
    out.bytes.extend_from_slice(reply::CRLF);
}
