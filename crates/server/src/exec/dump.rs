//! Dumps of all keys: `lru_crawler metadump`, `lru_crawler mgdump`, `stats cachedump`. A dump is made piece by piece, as
//! the client takes it, and keeps nothing but its place in the store.

use std::fmt::Write as _;
use std::sync::Arc;

use nuthatch_proto::ascii::reply;
use nuthatch_proto::base64_encode;
use nuthatch_store::{Cursor, Hit, NEVER, Seconds};

use super::{CLASS, Exec, ttl_shown};
use crate::clock::Clock;
use crate::shared::Live;
use crate::watch::push_uri_encoded;

/// How a dump describes an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `key=... exp=... la=... cas=... fetch=... cls=... size=...`, begins with `OK`, ends with `END`.
    Metadump,
    /// `mg <key>` commands, ends with `EN`.
    Mgdump,
}

/// A dump in progress.
pub(crate) struct Dump {
    style: Style,
    /// Pools still to be dumped, the current one last.
    pools: Vec<usize>,
    cursor: Cursor,
    has_begun: bool,
    /// Keeps the pools.
    _live: Arc<Live>,
}

impl Dump {
    /// A dump of `pools`, which `live` keeps.
    pub(crate) fn new(style: Style, mut pools: Vec<usize>, live: Arc<Live>) -> Dump {
        pools.reverse();
        Dump { style, pools, cursor: Cursor::default(), has_begun: false, _live: live }
    }

    /// Goes on until the output is full or everything is told; `true` at the end.
    pub(crate) fn fill(&mut self, exec: &mut Exec<'_>) -> bool {
        if !self.has_begun {
            self.has_begun = true;
            if self.style == Style::Metadump {
                exec.out.bytes.extend_from_slice(reply::OK);
            }
        }
        let mut line = String::with_capacity(256);
        while let Some(&pool) = self.pools.last() {
            if exec.out.is_full() {
                return false;
            }
            let (style, now, clock, out) = (self.style, exec.now, &exec.shared.clock, &mut exec.out.bytes);
            let cas_enabled = exec.live.settings.cas_enabled;
            let has_more = exec.handles[pool].scan(&mut self.cursor, now, &mut |hit| {
                line.clear();
                match style {
                    Style::Metadump => describe(&mut line, hit, clock, cas_enabled),
                    Style::Mgdump => push_mg(&mut line, hit.key()),
                }
                out.extend_from_slice(line.as_bytes());
            });
            if !has_more {
                self.pools.pop();
                self.cursor = Cursor::default();
            }
        }
        exec.out.bytes.extend_from_slice(match self.style {
            Style::Metadump => reply::END,
            Style::Mgdump => b"EN\r\n",
        });
        true
    }
}

/// One line of a metadump. Times are UNIX times, as memcached prints them.
fn describe(line: &mut String, hit: &Hit<'_>, clock: &Clock, cas_enabled: bool) {
    line.push_str("key=");
    push_uri_encoded(line, hit.key());
    let expiry = if hit.expiry() == NEVER { -1 } else { clock.unix_seconds_at(hit.expiry()) as i64 };
    let last_access = clock.unix_seconds_at(hit.last_access());
    // Keeping every item's unique because of one dump would cost eight bytes each.
    let cas = if cas_enabled { hit.cas_now() } else { 0 };
    let fetched = if hit.fetched_before() { "yes" } else { "no" };
    let size = hit.stored_bytes();
    let _ = writeln!(line, " exp={expiry} la={last_access} cas={cas} fetch={fetched} cls={CLASS} size={size}");
}

/// A command that fetches `key`: in base64 where the key could not stand in a command line.
fn push_mg(line: &mut String, key: &[u8]) {
    match std::str::from_utf8(key) {
        Ok(text) if key.iter().all(|byte| !byte.is_ascii_control() && *byte != b' ') => {
            let _ = write!(line, "mg {text}\r\n");
        }
        _ => {
            let mut encoded = Vec::new();
            base64_encode(&mut encoded, key);
            let _ = write!(line, "mg {} b\r\n", String::from_utf8_lossy(&encoded));
        }
    }
}

/// Bytes of a `stats cachedump` answer, memcached's limit.
const CACHEDUMP_BYTES_MAX: usize = 2 * 1024 * 1024;

/// `stats cachedump <class> <limit>`: `ITEM <key> [<bytes> b; <expiry> s]` lines; a limit of 0 is none.
pub(crate) fn cachedump(exec: &mut Exec<'_>, class: u32, limit: u32) {
    let mut left = if limit == 0 { u32::MAX } else { limit };
    let start = exec.out.bytes.len();
    let pools = if class == CLASS { exec.live.routes.reachable(exec.own_pool) } else { Vec::new() };
    for pool in pools {
        let mut cursor = Cursor::default();
        let (now, clock, out) = (exec.now, &exec.shared.clock, &mut exec.out.bytes);
        let mut has_more = true;
        while has_more && left > 0 && out.len() - start < CACHEDUMP_BYTES_MAX {
            has_more = exec.handles[pool].scan(&mut cursor, now, &mut |hit| {
                if left > 0 && out.len() - start < CACHEDUMP_BYTES_MAX {
                    left -= 1;
                    push_cachedump_line(out, hit, clock, now);
                }
            });
        }
    }
    exec.out.bytes.extend_from_slice(reply::END);
}

fn push_cachedump_line(out: &mut Vec<u8>, hit: &Hit<'_>, clock: &Clock, now: Seconds) {
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(hit.key());
    let expiry = if ttl_shown(hit.expiry(), now) < 0 { 0 } else { clock.unix_seconds_at(hit.expiry()) };
    out.extend_from_slice(format!(" [{} b; {expiry} s]\r\n", hit.value_bytes()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_line_can_hold_are_dumped_in_base64() {
        let mut line = String::new();
        push_mg(&mut line, b"plain");
        push_mg(&mut line, b"with space");
        push_mg(&mut line, b"\xff\x00");
        assert_eq!(line, "mg plain\r\nmg d2l0aCBzcGFjZQ== b\r\nmg /wA= b\r\n");
    }
}
