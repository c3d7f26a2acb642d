//! What several tests of the store need.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nuthatch_store::{Handle, SetMode, SetOptions, SetOutcome, Stats, Store};

pub(crate) fn set(handle: &mut Handle, key: &[u8], value: &[u8], now: u32) {
    assert_eq!(handle.set(key, value, &SetOptions::default(), now), SetOutcome::Stored { cas: 0 });
}

pub(crate) fn value(handle: &mut Handle, key: &[u8], now: u32) -> Option<Vec<u8>> {
    handle.get(key, now).map(|hit| hit.value().collect::<Vec<_>>().concat())
}

pub(crate) fn mode(mode: SetMode) -> SetOptions {
    SetOptions { mode, ..SetOptions::default() }
}

/// Has threads do `thread` with a handle and a seed of their own until they are told to stop, and `meanwhile` done again and again,
/// for 2.5 s or `STRESS_SECONDS`. Returns the sum of what the threads return.
pub(crate) fn storm(
    store: &Arc<Store>,
    threads: u64,
    thread: impl Fn(Handle, u64, &AtomicBool) -> u64 + Sync,
    mut meanwhile: impl FnMut(&mut Handle),
) -> u64 {
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|n| n.parse().ok());
    let time = Duration::from_millis(seconds.map_or(if cfg!(miri) { 1 } else { 2500 }, |n: u64| n * 1000));
    let (stop, sum) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 1..=threads {
            let handle = store.handle();
            let (thread, stop, sum) = (&thread, &stop, &sum);
            scope.spawn(move || sum.fetch_add(thread(handle, seed, stop), Ordering::Relaxed));
        }
        let mut handle = store.handle();
        let started = Instant::now();
        while started.elapsed() < time {
            meanwhile(&mut handle);
        }
        stop.store(true, Ordering::Relaxed);
    });
    sum.into_inner()
}

/// All memory comes back: nothing stays pinned, pending or counted.
#[track_caller]
pub(crate) fn gives_all_back(store: &Arc<Store>) -> Stats {
    let mut handle = store.handle();
    store.flush(1_000_000);
    handle.maintain(1_000_001);
    handle.maintain(1_000_002);
    let stats = store.stats();
    assert_eq!((stats.items, stats.bytes), (0, 0), "{stats:?}");
    stats
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One of the numbers below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
