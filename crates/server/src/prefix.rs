//! `stats detail`: gets, hits, sets and deletes per key prefix. Off unless `-D` or `stats detail on` asks for it, and
//! then a lock per command, as in memcached. The number of prefixes is bounded: clients choose the keys.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// Prefixes counted at most; further ones are not counted. 8,192 of 250 bytes are 2 MiB.
const PREFIXES_MAX: usize = 8192;

/// What a command did to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Get { hit: bool },
    Set,
    Delete,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// Tallies by prefix.
#[derive(Debug)]
pub(crate) struct PrefixStats {
    delimiter: AtomicU8,
    enabled: AtomicBool,
    tallies: Mutex<BTreeMap<Box<[u8]>, Tally>>,
}

impl PrefixStats {
    /// Tallies by what stands before the first `delimiter` of a key.
    pub(crate) fn new(delimiter: u8, enabled: bool) -> PrefixStats {
        PrefixStats {
            delimiter: AtomicU8::new(delimiter),
            enabled: AtomicBool::new(enabled),
            tallies: Mutex::default(),
        }
    }

    /// Whether commands are counted.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// `stats detail on|off`.
    pub(crate) fn enable(&self, on: bool) {
        self.enabled.store(on, Ordering::Relaxed);
    }

    /// The delimiter in force.
    pub(crate) fn delimiter(&self) -> u8 {
        self.delimiter.load(Ordering::Relaxed)
    }

    /// Tallies by another delimiter from now on, from zero: one prefix would not mean the same before and after.
    pub(crate) fn set_delimiter(&self, delimiter: u8) {
        self.delimiter.store(delimiter, Ordering::Relaxed);
        self.reset();
    }

    /// Counts one access. Keys without the delimiter are not counted.
    pub(crate) fn record(&self, key: &[u8], access: Access) {
        let delimiter = self.delimiter();
        let Some(end) = key.iter().position(|&byte| byte == delimiter) else { return };
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = &key[..end];
        if !tallies.contains_key(prefix) {
            if tallies.len() >= PREFIXES_MAX {
                return;
            }
            tallies.insert(prefix.into(), Tally::default());
        }
        let Some(tally) = tallies.get_mut(prefix) else { return };
        match access {
            Access::Get { hit } => {
                tally.gets += 1;
                tally.hits += u64::from(hit);
            }
            Access::Set => tally.sets += 1,
            Access::Delete => tally.deletes += 1,
        }
    }

    /// Forgets all tallies (`stats reset`).
    pub(crate) fn reset(&self) {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Appends the answer to `stats detail dump`.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) {
        for (prefix, tally) in self.tallies.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            let Tally { gets, hits, sets, deletes } = tally;
            let _ = write!(out, " get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
        out.extend_from_slice(b"END\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_tallied_by_prefix() {
        let stats = PrefixStats::new(b':', true);
        stats.record(b"user:1", Access::Set);
        stats.record(b"user:1", Access::Get { hit: true });
        stats.record(b"user:2", Access::Get { hit: false });
        stats.record(b"page:1", Access::Delete);
        stats.record(b"no delimiter", Access::Set);
        let mut out = Vec::new();
        stats.dump(&mut out);
        let expected = "PREFIX page get 0 hit 0 set 0 del 1\r\nPREFIX user get 2 hit 1 set 1 del 0\r\nEND\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn a_client_that_makes_up_prefixes_does_not_grow_the_server() {
        let stats = PrefixStats::new(b':', true);
        for n in 0..3 * PREFIXES_MAX {
            stats.record(format!("{n}:key").as_bytes(), Access::Set);
        }
        let mut out = Vec::new();
        stats.dump(&mut out);
        assert_eq!(out.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"PREFIX")).count(), PREFIXES_MAX);
    }
}
