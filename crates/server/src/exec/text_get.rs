//! `get`, `gets`, `gat`, `gats`: one key at a time; the connection walks the keys, because it must be able to stop
//! between two of them when the client does not read.

use nuthatch_proto::ascii::reply;
use nuthatch_store::Seconds;

use super::Exec;

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
        let cas = lookup.with_cas.then(|| Exec::shown_cas(exec.live, &hit));
        let value_bytes = hit.value_bytes();
        reply::value_header(&mut exec.out.bytes, key, hit.flags(), value_bytes, cas);
        Exec::push_value(exec.out, &hit);
        exec.out.bytes.extend_from_slice(reply::CRLF);
        value_bytes
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
