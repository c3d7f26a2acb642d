//! Threads that write, read, count, delete and resize at once, in a store too small for them, each reader verifying
//! every byte it gets.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::common::{Random, gives_all_back, storm};
use nuthatch_store::{
    ArithOptions, ArithOutcome, Config, DeleteOptions, Handle, NEVER, SetMode, SetOptions, SetOutcome, Store,
};

/// A value that says which key and version it is of, in every byte.
fn value_of(key: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version.wrapping_mul(0xD1B5_4A32_D192_ED03) | 1);
    let mut value = version.to_le_bytes().to_vec();
    while value.len() < bytes.max(8) {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.truncate(bytes.max(8));
    value
}

fn check(key: u64, value: &[u8]) {
    let version = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, value_of(key, version, value.len()), "key {key}, version {version}: a torn or foreign value");
}

fn one_thread(mut handle: Handle, seed: u64, stop: &AtomicBool, clock: &AtomicU32) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut version = seed << 40;
    let mut verified = 0;
    let mut held = Vec::new();
    let keys = if cfg!(miri) { 20 } else { 4000 };
    while !stop.load(Ordering::Relaxed) {
        let now = clock.load(Ordering::Relaxed);
        let key = random.below(keys).min(random.below(keys));
        let name = format!("key:{key}");
        let name = name.as_bytes();
        version += 1;
        let bytes = match random.below(64) {
            0 => random.below(if cfg!(miri) { 20_000 } else { 120_000 }) as usize,
            1..8 => random.below(8000) as usize,
            _ => random.below(400) as usize,
        };
        let expiry = if random.below(3) == 0 { now + 1 + random.below(90) as u32 } else { NEVER };
        match random.below(20) {
            0 => {
                let names: Vec<_> = (key..key + 20).map(|key| format!("key:{key}").into_bytes()).collect();
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let done = handle.get_many(&names, now, |number, found| {
                    if let Ok(hit) = found {
                        check(key + number as u64, &hit.value().collect::<Vec<_>>().concat());
                        verified += 1;
                    }
                    ControlFlow::Continue(())
                });
                assert_eq!(done, names.len());
            }
            1..8 => {
                if let Some(hit) = handle.get(name, now) {
                    check(key, &hit.value().collect::<Vec<_>>().concat());
                    verified += 1;
                    if held.len() < 2 && random.below(50) == 0 {
                        let held_value = hit.hold();
                        drop(hit);
                        held.push((key, held_value));
                    }
                }
            }
            8..15 => {
                let value = value_of(key, version, bytes);
                let mode = [SetMode::Set, SetMode::Set, SetMode::Add, SetMode::Replace][random.below(4) as usize];
                let options = SetOptions { mode, expiry, ..SetOptions::default() };
                let outcome = handle.set(name, &value, &options, now);
                assert!(!matches!(outcome, SetOutcome::TooLarge | SetOutcome::Exists), "{outcome:?}");
            }
            15 => {
                handle.delete(name, &DeleteOptions::default(), now);
            }
            16 => {
                handle.touch(name, expiry, now);
            }
            17 => {
                let value = value_of(key, version, bytes);
                if let Ok(mut reservation) = handle.reserve(name, value.len(), 0, expiry, now) {
                    let mut from = 0;
                    let abort = random.below(4) == 0;
                    while reservation.remaining() > 0 {
                        let upto = value.len().min(from + 3000);
                        from += reservation.write(&value[from..upto]);
                        if abort && from > value.len() / 2 {
                            break;
                        }
                        std::thread::yield_now();
                    }
                    if reservation.remaining() == 0 {
                        handle.commit(reservation, &SetOptions::default(), now);
                    }
                }
            }
            18 => {
                let seen = handle.get(name, now).map(|hit| (hit.cas(), hit.value_bytes()));
                if let Some((cas, _)) = seen {
                    let value = value_of(key, version, bytes);
                    let options = SetOptions { compare: Some(cas), expiry, ..SetOptions::default() };
                    handle.set(name, &value, &options, now);
                }
            }
            _ => {
                if !held.is_empty() {
                    let (key, value) = held.swap_remove(random.below(held.len() as u64) as usize);
                    check(key, &value.pieces(0).collect::<Vec<_>>().concat());
                    verified += 1;
                }
            }
        }
    }
    verified
}

#[test]
fn every_value_read_in_a_storm_is_whole_and_its_keys_own() {
    let store = Store::new(Config { handles_hint: 4, memory_bytes_max: 6 << 20, ..Config::new(3 << 20) }).unwrap();
    let clock = AtomicU32::new(100);
    let mut round = 0u32;
    let threads = if cfg!(miri) { 2 } else { 4 };
    let thread = |handle, seed, stop: &AtomicBool| one_thread(handle, seed, stop, &clock);
    let verified = storm(&store, threads, thread, |handle| {
        round += 1;
        let now = clock.fetch_add(1, Ordering::Relaxed) + 1;
        if round.is_multiple_of(40) {
            store.set_memory_limit(if round.is_multiple_of(80) { 3 << 20 } else { 6 << 20 }).unwrap();
        }
        if round.is_multiple_of(101) {
            store.flush(now);
        }
        handle.maintain(now);
        std::thread::sleep(Duration::from_millis(5));
    });
    assert!(verified > if cfg!(miri) { 0 } else { 1000 }, "only {verified} values were there to be verified");
    let stats = gives_all_back(&store);
    assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
}

#[test]
fn no_increment_is_lost_and_no_cas_succeeds_twice() {
    let store = Store::new(Config::new(2 << 20)).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let mut handle = store.handle();
    handle.set(b"count", b"0", &SetOptions::default(), 1);
    handle.set(b"list", b"", &SetOptions::default(), 1);
    let wins = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let mut handle = store.handle();
            let wins = Arc::clone(&wins);
            scope.spawn(move || {
                for round in 0..rounds {
                    let by_one = ArithOptions { delta: 1, ..ArithOptions::default() };
                    let outcome = handle.arith(b"count", &by_one, 1);
                    assert!(matches!(outcome, ArithOutcome::Value { .. }), "{outcome:?}");
                    if round % 10 == 0 {
                        let append = SetOptions { mode: SetMode::Append, ..SetOptions::default() };
                        assert_eq!(handle.set(b"list", &[thread], &append, 1), SetOutcome::Stored { cas: 0 });
                    }
                    let seen = handle.get(b"turn", 1).map(|hit| hit.cas());
                    let options = match seen {
                        Some(cas) => SetOptions { compare: Some(cas), ..SetOptions::default() },
                        None => SetOptions { mode: SetMode::Add, ..SetOptions::default() },
                    };
                    if matches!(handle.set(b"turn", b"x", &options, 1), SetOutcome::Stored { .. }) {
                        wins.fetch_add(1, Ordering::Relaxed);
                        let by_one = ArithOptions { delta: 1, initial: Some((1, NEVER)), ..ArithOptions::default() };
                        handle.arith(b"wins", &by_one, 1);
                    }
                }
            });
        }
    });
    let number = |handle: &mut Handle, key: &[u8]| {
        let hit = handle.get(key, 1).unwrap();
        String::from_utf8_lossy(hit.value_whole().unwrap()).trim().parse::<u64>().unwrap()
    };
    assert_eq!(number(&mut handle, b"count"), 3 * rounds);
    assert_eq!(number(&mut handle, b"wins"), wins.load(Ordering::Relaxed));
    let list = handle.get(b"list", 1).unwrap().value().collect::<Vec<_>>().concat();
    for thread in 0..3u8 {
        assert_eq!(list.iter().filter(|&&by| by == thread).count() as u64, rounds.div_ceil(10));
    }
    assert_eq!(store.stats().evictions, 0);
}
