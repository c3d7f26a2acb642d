//! `watch`: streams of what happens in the server to connections that asked for them.
//!
//! Any thread may emit; with no watcher for a kind of event that costs one relaxed load. Each watcher has a bounded
//! buffer of lines: what does not fit is skipped and counted, and the watcher is told how many lines it missed. An
//! emitter never waits for a watcher.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

/// Kinds of events, as bits of a watcher's mask.
pub(crate) mod kind {
    pub(crate) const FETCHERS: u16 = 1;
    pub(crate) const MUTATIONS: u16 = 2;
    pub(crate) const EVICTIONS: u16 = 4;
    pub(crate) const DELETIONS: u16 = 8;
    pub(crate) const CONNEVENTS: u16 = 16;
    pub(crate) const RAWCMDS: u16 = 32;
    pub(crate) const SYSEVENTS: u16 = 64;
    /// Accepted because memcached accepts them; there is no proxy here to report on.
    pub(crate) const PROXY: u16 = 128;
}

/// Watchers of one server at once, memcached's limit.
pub(crate) const WATCHERS_MAX: usize = 20;

/// All watchers of a server.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The kinds that at least one watcher wants.
    wanted: AtomicU16,
    list: RwLock<Vec<Arc<Watcher>>>,
    lines: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
}

impl Watchers {
    /// Whether anyone watches `kinds`.
    #[inline]
    pub(crate) fn wants(&self, kinds: u16) -> bool {
        // Relaxed: an event around the moment a watcher comes or goes may be missed or built for nobody.
        self.wanted.load(Ordering::Relaxed) & kinds != 0
    }

    /// Sends one event of `kind` to those who watch it. `describe` writes everything after the time and number, as
    /// `name=value` pairs without a line end.
    pub(crate) fn emit(&self, kind: u16, describe: impl FnOnce(&mut String)) {
        if !self.wants(kind) {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = String::with_capacity(192);
        let _ = write!(line, "ts={}.{} gid={number} ", time.as_secs(), time.subsec_micros());
        describe(&mut line);
        line.push('\n');
        for watcher in self.list.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if watcher.kinds & kind != 0 {
                let counter = if watcher.offer(line.as_bytes()) { &self.sent } else { &self.skipped };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Adds a watcher of `kinds` with a buffer of `buffer_bytes`, or `None` when there are too many.
    pub(crate) fn add(&self, kinds: u16, buffer_bytes: usize) -> Option<Arc<Watcher>> {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= WATCHERS_MAX {
            return None;
        }
        let watcher = Arc::new(Watcher { kinds, buffer_bytes, buffer: Mutex::default() });
        list.push(Arc::clone(&watcher));
        self.wanted.store(mask_of(&list), Ordering::Relaxed);
        Some(watcher)
    }

    /// Removes `watcher`; nothing is emitted to it afterwards.
    pub(crate) fn remove(&self, watcher: &Arc<Watcher>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|other| !Arc::ptr_eq(other, watcher));
        self.wanted.store(mask_of(&list), Ordering::Relaxed);
    }

    /// Watchers there are now.
    pub(crate) fn count(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Lines emitted, lines put into watchers' buffers, lines skipped because a buffer was full.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.lines), load(&self.sent), load(&self.skipped))
    }
}

fn mask_of(list: &[Arc<Watcher>]) -> u16 {
    list.iter().fold(0, |mask, watcher| mask | watcher.kinds)
}

/// One connection that watches.
#[derive(Debug)]
pub(crate) struct Watcher {
    kinds: u16,
    buffer_bytes: usize,
    buffer: Mutex<Buffer>,
}

#[derive(Debug, Default)]
struct Buffer {
    lines: Vec<u8>,
    skipped: u64,
    waker: Option<Waker>,
}

impl Watcher {
    /// Moves the waiting lines to the end of `out`, or leaves `waker` to be called when there are some. How many lines
    /// found no room behind them is said at once: no other line may come for a long time.
    pub(crate) fn drain(&self, out: &mut Vec<u8>, waker: &Waker) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.lines.is_empty() && buffer.skipped == 0 {
            buffer.waker = Some(waker.clone());
            return;
        }
        out.append(&mut buffer.lines);
        if buffer.skipped > 0 {
            out.extend_from_slice(format!("skipped={}\n", buffer.skipped).as_bytes());
            buffer.skipped = 0;
        }
    }

    /// Whether the line was taken.
    fn offer(&self, line: &[u8]) -> bool {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        // Once a line was skipped the others wait for the note that says so, to come after it.
        let is_taken = buffer.skipped == 0 && buffer.lines.len() + line.len() <= self.buffer_bytes;
        if is_taken {
            buffer.lines.extend_from_slice(line);
        } else {
            buffer.skipped += 1;
        }
        if let Some(waker) = buffer.waker.take() {
            waker.wake();
        }
        is_taken
    }
}

/// Appends `key` as memcached prints keys in watch lines and dumps: everything but letters, digits and `-._~` as %XX.
pub(crate) fn push_uri_encoded(out: &mut String, key: &[u8]) {
    for &byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(watcher: &Watcher) -> String {
        let mut out = Vec::new();
        watcher.drain(&mut out, Waker::noop());
        String::from_utf8(out).expect("watch lines are text")
    }

    #[test]
    fn only_what_is_watched_is_emitted() {
        let watchers = Watchers::default();
        watchers.emit(kind::FETCHERS, |_| panic!("nobody watches"));
        let watcher = watchers.add(kind::FETCHERS, 1000).expect("the first watcher");
        watchers.emit(kind::MUTATIONS, |_| panic!("nobody watches mutations"));
        watchers.emit(kind::FETCHERS, |line| line.push_str("type=item_get"));
        let line = drained(&watcher);
        assert!(line.starts_with("ts=") && line.ends_with(" gid=1 type=item_get\n"), "{line}");
        watchers.remove(&watcher);
        assert!(!watchers.wants(kind::FETCHERS));
    }

    #[test]
    fn a_watcher_that_does_not_read_is_told_how_much_it_missed() {
        let watchers = Watchers::default();
        let watcher = watchers.add(kind::MUTATIONS, 200).expect("the first watcher");
        for _ in 0..100 {
            watchers.emit(kind::MUTATIONS, |line| line.push_str("type=item_store"));
        }
        let first = drained(&watcher);
        assert!(first.len() <= 200 + "skipped=100\n".len());
        let kept = first.lines().count() - 1;
        assert!(first.ends_with(&format!("item_store\nskipped={}\n", 100 - kept)), "{first}");
        watchers.emit(kind::MUTATIONS, |line| line.push_str("type=item_store"));
        assert!(drained(&watcher).starts_with("ts="));
        assert_eq!(watchers.totals(), (101, kept as u64 + 1, 100 - kept as u64));
    }

    #[test]
    fn there_are_twenty_watchers_at_most() {
        let watchers = Watchers::default();
        let all: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.add(kind::FETCHERS, 10)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(watchers.add(kind::FETCHERS, 10).is_none());
    }

    #[test]
    fn keys_are_printed_without_blanks_or_control_bytes() {
        let mut out = String::new();
        push_uri_encoded(&mut out, b"a b\n%~\xff");
        assert_eq!(out, "a%20b%0A%25~%FF");
    }
}
