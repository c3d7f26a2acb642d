//! Memory follows what is asked for: other sizes, other times to live. Each claim is a hit ratio beside that of a store
//! that has known nothing else.

use std::sync::Arc;

use crate::common::Random;
use nuthatch_store::{Config, Handle, SetOptions, Store};

const MEMORY: usize = 24 << 20;

/// One of `keys`, the first much more often than the last.
fn zipf(random: &mut Random, keys: u64) -> u64 {
    // The inverse of the distribution's continuous form for an exponent of 0.9.
    let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let top = (keys as f64).powf(0.1) - 1.0;
    ((at * top + 1.0).powf(10.0) - 1.0) as u64
}

fn key_of(name: &str, n: u64) -> String {
    format!("{name}:{n:012}")
}

/// A cache in front of something: what is not there is fetched and stored.
struct Cache {
    store: Arc<Store>,
    handle: Handle,
    random: Random,
    stored_bytes: usize,
}

impl Cache {
    fn new() -> Cache {
        let store = Store::new(Config::new(MEMORY)).expect("24 MiB");
        let handle = store.handle();
        Cache { store, handle, random: Random(0x2545_f491_4f6c_dd1d), stored_bytes: 0 }
    }

    /// Asks for one key.
    fn ask(&mut self, name: &str, keys: u64, bytes: usize) -> bool {
        let key = key_of(name, zipf(&mut self.random, keys));
        if self.handle.get(key.as_bytes(), 1).is_some() {
            return true;
        }
        self.put(&key, bytes);
        false
    }

    fn put(&mut self, key: &str, bytes: usize) {
        self.handle.set(key.as_bytes(), &vec![b'x'; bytes], &SetOptions::default(), 1);
        self.stored_bytes += key.len() + bytes;
    }

    /// Asks until this many bytes were stored.
    fn fill(&mut self, name: &str, keys: u64, bytes: usize, stored: usize) {
        self.stored_bytes = 0;
        let mut left = 50_000_000;
        while self.stored_bytes < stored && left > 0 {
            self.ask(name, keys, bytes);
            left -= 1;
        }
    }

    /// All of these keys, each put and another asked for, so that main is full of what is wanted.
    fn warmed(name: &str, keys: u64, bytes: usize) -> Cache {
        let mut cache = Cache::new();
        for n in 0..2 * keys {
            cache.put(&key_of(name, n % keys), bytes);
            cache.ask(name, keys, bytes);
        }
        cache
    }

    fn hit_ratio(&mut self, name: &str, keys: u64, bytes: usize) -> f64 {
        let requests = 50_000;
        (0..requests).filter(|_| self.ask(name, keys, bytes)).count() as f64 / f64::from(requests)
    }
}

#[test]
fn memory_follows_a_change_of_sizes() {
    // One and a half times what fits.
    let keys = |bytes: usize| (MEMORY * 3 / 2 / (bytes + 32)) as u64;
    let (small, large) = (("small", keys(200), 200), ("large", keys(8000), 8000));
    let mut cache = Cache::new();
    cache.fill(small.0, small.1, small.2, 2 * MEMORY);
    for now in [large, small] {
        let mut fresh = Cache::new();
        fresh.fill(now.0, now.1, now.2, MEMORY);
        let wanted = fresh.hit_ratio(now.0, now.1, now.2);
        let mut ratios = Vec::new();
        for _ in 0..2 {
            cache.fill(now.0, now.1, now.2, MEMORY);
            ratios.push(cache.hit_ratio(now.0, now.1, now.2) / wanted);
        }
        println!("to {}: {ratios:.3?} of {wanted:.3}", now.0);
        assert!(ratios[0] > 0.93 && ratios[1] > 0.98, "to {}: {ratios:?}", now.0);
    }
}

/// What has expired must not take the room of what lives, in whatever order times to live are mixed.
#[test]
fn expired_items_do_not_crowd_out_live_ones() {
    let mut cache = Cache::new();
    let ttls = [5, 30, 60];
    // What lives for a day fits well; what passes by in the meantime is many times the store.
    let day_items = 20_000;
    let day = |n: u64| format!("day:{n}");
    for n in 0..day_items {
        let options = SetOptions { expiry: 86_400 + 1, ..SetOptions::default() };
        cache.handle.set(day(n).as_bytes(), &[b'd'; 300], &options, 1);
    }
    let mut stored = 0;
    for now in 1..=600u32 {
        cache.handle.maintain(now);
        for _ in 0..150 {
            let ttl = ttls[cache.random.below(3) as usize];
            let key = format!("short:{stored}");
            let options = SetOptions { expiry: now + ttl, ..SetOptions::default() };
            cache.handle.set(key.as_bytes(), &[b's'; 1000], &options, now);
            stored += 1;
        }
    }
    let left = (0..day_items).filter(|&n| cache.handle.get(day(n).as_bytes(), 600).is_some()).count();
    assert!(stored * 1000 > 3 * MEMORY);
    assert_eq!((left as u64, cache.store.stats().evictions), (day_items, 0), "nothing had to leave: what lived fitted");
}

/// Sizes alone do not tell a change from a stream that passes by: of what nobody asks for again, between requests for
/// what was there before.
#[test]
fn a_stream_of_other_sizes_leaves_what_is_wanted_alone() {
    for (wanted_bytes, stream_bytes, streams) in [(200, 8000, 0.3), (8000, 200, 20.0)] {
        let keys = (MEMORY / (wanted_bytes + 32)) as u64;
        let requests = (2 * MEMORY) as f64 / (stream_bytes as f64 * streams);
        let [alone, beside] = [0.0, streams].map(|streams| {
            let mut cache = Cache::warmed("wanted", keys, wanted_bytes);
            let (mut hits, mut streamed) = (0u32, 0u32);
            for request in 0..requests as u32 {
                hits += u32::from(cache.ask("wanted", keys, wanted_bytes));
                while f64::from(streamed) < f64::from(request) * streams {
                    cache.put(&format!("stream:{streamed}"), stream_bytes);
                    streamed += 1;
                }
            }
            f64::from(hits) / requests
        });
        println!("{wanted_bytes} beside {stream_bytes}: {beside:.3}, alone {alone:.3}");
        assert!(beside > 0.88 * alone, "{wanted_bytes} beside {stream_bytes}: {beside}, alone {alone}");
    }
}

/// How bad the extreme can be: so few requests between what is streamed that they may all miss a sample of main.
#[test]
fn a_stream_that_nearly_drowns_the_requests_leaves_what_is_wanted_alone() {
    let (wanted_bytes, stream_bytes) = (200, 8000);
    let keys = (MEMORY / (wanted_bytes + 32)) as u64;
    let alone = Cache::warmed("wanted", keys, wanted_bytes).hit_ratio("wanted", keys, wanted_bytes);
    for streams in [1, 3] {
        let mut cache = Cache::warmed("wanted", keys, wanted_bytes);
        let requests = MEMORY / stream_bytes / streams;
        let mut ratios = Vec::new();
        for cacheful in 0..12 {
            let mut hits = 0;
            for request in 0..requests {
                hits += usize::from(cache.ask("wanted", keys, wanted_bytes));
                for n in 0..streams {
                    cache.put(&format!("stream:{cacheful}:{request}:{n}"), stream_bytes);
                }
            }
            ratios.push(hits as f64 / requests as f64);
        }
        println!("{streams} for each request, cacheful by cacheful: {ratios:.3?}, alone {alone:.3}");
        assert!(
            ratios.iter().all(|ratio| *ratio > 0.88 * alone),
            "{streams} for each request: {ratios:?}, alone {alone}"
        );
    }
}

/// Who loads a table at night asks for nothing meanwhile, and what was wanted by day is wanted again.
#[test]
fn stores_that_nobody_reads_do_not_outlive_what_was_asked_for_before() {
    for (wanted_bytes, night_bytes) in [(200, 8000), (8000, 200)] {
        let keys = (MEMORY / (wanted_bytes + 32)) as u64;
        let mut cache = Cache::warmed("wanted", keys, wanted_bytes);
        let before = cache.hit_ratio("wanted", keys, wanted_bytes);
        for n in 0..MEMORY / night_bytes {
            cache.put(&format!("night:{n}"), night_bytes);
        }
        let hits = (0..1000).filter(|_| cache.ask("wanted", keys, wanted_bytes)).count();
        let after = hits as f64 / 1000.0;
        println!("{wanted_bytes} after a night of {night_bytes}: {after:.3}, before {before:.3}");
        assert!(after > 0.93 * before, "{wanted_bytes} after a night of {night_bytes}: {after}, before {before}");
    }
}

/// A sample of main in which nothing was ever hit says nothing while nothing else is hit either.
#[test]
fn what_was_never_read_is_not_left_behind_by_what_is_not_read_either() {
    for (bytes, night_bytes) in [(200, 8000), (8000, 200)] {
        let keys = (MEMORY * 5 / 4 / (bytes + 32)) as u64;
        let mut cache = Cache::new();
        // Written over and over: ghosts bring it to main.
        for n in 0..4 * keys {
            cache.put(&key_of("stored", n % keys), bytes);
        }
        let there = |cache: &mut Cache| {
            let mut is_there = |n: u64| cache.handle.peek(key_of("stored", n).as_bytes(), 1).is_some();
            (0..keys).filter(|n| is_there(*n)).count() as f64
        };
        let before = there(&mut cache);
        for n in 0..2 * MEMORY / night_bytes {
            cache.put(&format!("night:{n}"), night_bytes);
        }
        let after = there(&mut cache);
        println!("{bytes} after {night_bytes}: {after} of {before} are there to be read later");
        assert!(after > 0.85 * before, "{bytes} after {night_bytes}: {after} of {before}");
    }
}
