//! Forgetting a prefix or a tag: what is gone, from when on, what stays, and what it costs.

use std::{
    sync::{
        RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::common::{Random, gives_all_back, mode, set, storm, value};
use nuthatch_store::{
    ArithOptions, ArithOutcome, Config, Cursor, DeleteOptions, DeleteOutcome, Handle, MetaGet, Miss, NEVER, SetMode,
    SetOptions, SetOutcome, Store,
};

/// Maintains until all that was forgotten is given back, second by second, and answers when that was.
fn swept(handle: &mut Handle, mut now: u32) -> u32 {
    while handle.store().stats().forget_marks > 0 {
        now += 1;
        handle.maintain(now);
        assert!(now < 2000, "segments that are open are sealed after two minutes");
    }
    now
}

#[test]
fn a_forgotten_prefix_is_gone_for_every_operation_and_what_is_stored_later_is_not() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    for round in 0..3 {
        for key in [&b"bin:a"[..], b"bin:b", b"bin:c", b"bin:n", b"bin:", b"bin:deep:er", b"bin", b"binx:a", b"x:bin:a"]
        {
            set(&mut handle, key, b"1", 1);
        }
        set(&mut handle, b"bin:long", &[1; 100_000], 1);
        let cas = handle.get(b"bin:c", 1).unwrap().cas();
        let number = store.forget_prefix(b"bin:").unwrap();
        assert!(store.forget_prefix(b"other:").unwrap() > number);

        assert_eq!((value(&mut handle, b"bin:a", 1), handle.miss_reason()), (None, Miss::Forgotten));
        assert!(value(&mut handle, b"bin:long", 1).is_none() && handle.peek(b"bin:", 1).is_none());
        let compare = SetOptions { compare: Some(cas), ..SetOptions::default() };
        assert_eq!(handle.set(b"bin:c", b"2", &compare, 1), SetOutcome::NotFound);
        assert_eq!(handle.arith(b"bin:n", &ArithOptions::default(), 1), ArithOutcome::NotFound);
        assert!(!handle.touch(b"bin:n", 50, 1));
        for refused in [SetMode::Replace, SetMode::Append, SetMode::Prepend] {
            assert_eq!(handle.set(b"bin:a", b"2", &mode(refused), 1), SetOutcome::NotStored);
        }
        assert_eq!(handle.delete(b"bin:b", &DeleteOptions::default(), 1), DeleteOutcome::NotFound);
        let invalidate = DeleteOptions { invalidate: true, ..DeleteOptions::default() };
        assert_eq!(handle.delete(b"bin:deep:er", &invalidate, 1), DeleteOutcome::NotFound);
        let mut cursor = Cursor::default();
        let mut seen = Vec::new();
        while handle.scan(&mut cursor, 1, &mut |hit| seen.push(hit.key().to_vec())) {}
        seen.sort();
        assert_eq!(seen, [&b"bin"[..], b"binx:a", b"x:bin:a"], "round {round}");

        // Into the very segments that were open.
        assert!(matches!(handle.set(b"bin:a", b"3", &mode(SetMode::Add), 1), SetOutcome::Stored { .. }));
        let made = ArithOptions { initial: Some((7, NEVER)), ..ArithOptions::default() };
        assert!(matches!(handle.arith(b"bin:n", &made, 1), ArithOutcome::Value { created: true, .. }));
        assert!(handle.meta_get(b"bin:c", &MetaGet { vivify: Some(90), ..MetaGet::default() }, 1).won);
        handle.set(b"bin:a", b"+", &mode(SetMode::Append), 1);
        assert!(handle.touch(b"bin:a", 500, 1));
        assert_eq!(value(&mut handle, b"bin:a", 1).unwrap(), b"3+");
        assert_eq!(value(&mut handle, b"bin:n", 1).unwrap(), b"7");
        assert!(handle.get(b"bin:c", 1).is_some());
    }
}

#[test]
fn a_prefix_that_ends_later_takes_only_its_own() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    let keys = [&b"a:1"[..], b"a:b:1", b"a:b:c:1", b"a:b:c:d:1", b"a:b:c:d:e:1", b"a:x:1"];
    for (prefix, left) in [(&b"a:b:c:d:"[..], 4), (b"a:b:c:", 3), (b"a:b:", 2), (b"a:", 0)] {
        for key in keys {
            set(&mut handle, key, b"v", 1);
        }
        store.forget_prefix(prefix).unwrap();
        let found = keys.iter().filter(|key| handle.get(key, 1).is_some()).count();
        assert_eq!(found, left, "{}", prefix.escape_ascii());
    }
}

#[test]
fn tags_stay_with_an_item_through_whatever_changes_it() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    let news = store.tags([&b"news"[..], b"user-7"]).unwrap();
    type Change = fn(&mut Handle);
    let changes: [(&str, Change); 7] = [
        ("nothing", |_| {}),
        ("append", |handle| _ = handle.set(b"k", b"1", &mode(SetMode::Append), 1)),
        ("prepend", |handle| _ = handle.set(b"k", &[b'1'; 50_000], &mode(SetMode::Prepend), 1)),
        ("incr", |handle| _ = handle.arith(b"k", &ArithOptions { delta: 90, ..ArithOptions::default() }, 1)),
        ("touch", |handle| _ = handle.touch(b"k", 5000, 1)),
        ("invalidate", |handle| {
            handle.delete(b"k", &DeleteOptions { invalidate: true, ..DeleteOptions::default() }, 1);
        }),
        ("drop the value", |handle| {
            handle.delete(b"k", &DeleteOptions { drop_value: true, ..DeleteOptions::default() }, 1);
        }),
    ];
    for tag in [&b"news"[..], b"user-7"] {
        for (name, change) in changes {
            handle.set_tagged(b"k", b"10", &SetOptions::default(), &news, 1);
            change(&mut handle);
            store.forget_prefix(b"news:").unwrap();
            store.forget_tag(b"new").unwrap();
            assert!(handle.get(b"k", 1).is_some(), "{name}: neither is its tag");
            store.forget_tag(tag).unwrap();
            assert_eq!((value(&mut handle, b"k", 1), handle.miss_reason()), (None, Miss::Forgotten), "{name}");
        }
    }
    // In pieces, and what a plain set stores over it has none.
    let mut reservation = handle.reserve_tagged(b"k", 40_000, 0, NEVER, &news, 1).unwrap();
    reservation.write(&[1; 40_000]);
    handle.commit(reservation, &SetOptions::default(), 1);
    store.forget_tag(b"news").unwrap();
    assert!(handle.get(b"k", 1).is_none());
    handle.set_tagged(b"k", b"10", &SetOptions::default(), &news, 1);
    set(&mut handle, b"k", b"11", 1);
    store.forget_tag(b"news").unwrap();
    assert!(handle.get(b"k", 1).is_some());
}

#[test]
fn a_value_on_its_way_when_its_prefix_is_forgotten_is_stored_when_it_is_there() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    for bytes in [10, 60_000] {
        let mut reservation = handle.reserve(b"bin:k", bytes, 0, NEVER, 1).unwrap();
        store.forget_prefix(b"bin:").unwrap();
        reservation.write(&vec![1; bytes]);
        assert_eq!(handle.commit(reservation, &SetOptions::default(), 1), SetOutcome::Stored { cas: 0 });
        assert_eq!(value(&mut handle, b"bin:k", 1).unwrap(), vec![1; bytes]);
        // A sweep may not take the watermark out before such a value is there or given up.
        let reservation = handle.reserve(b"bin:k", bytes, 0, NEVER, 1).unwrap();
        store.forget_prefix(b"bin:").unwrap();
        for now in 2..200 {
            handle.maintain(now);
        }
        assert!(store.stats().forget_marks > 0);
        drop(reservation);
        swept(&mut handle, 200);
        assert!(handle.get(b"bin:k", 500).is_none());
    }
}

#[test]
fn memory_and_counts_come_back_and_the_table_is_empty_again() {
    let store = Store::new(Config::new(32 << 20)).unwrap();
    let mut handle = store.handle();
    let count = if cfg!(miri) { 500 } else { 100_000 };
    for n in 0..count {
        set(&mut handle, format!("bin:{n}").as_bytes(), &[1; 100], 1);
        set(&mut handle, format!("other:{n}").as_bytes(), &[1; 10], 1);
    }
    let before = store.stats();
    store.forget_prefix(b"bin:").unwrap();
    store.forget_tag(b"nobody's").unwrap();
    let stats = store.stats();
    assert_eq!((stats.forget_prefix, stats.forget_tag, stats.forget_marks, stats.items), (1, 1, 2, 2 * count));
    swept(&mut handle, 1);
    let stats = store.stats();
    assert_eq!((stats.items, stats.forgotten, stats.evictions, stats.reclaimed), (count, count, 0, 0));
    assert!(stats.bytes < before.bytes / 3, "{stats:?}");
    for n in 0..count {
        assert!(handle.get(format!("bin:{n}").as_bytes(), 500).is_none());
        assert!(handle.get(format!("other:{n}").as_bytes(), 500).is_some());
        // And the holes are filled again: nothing has to go for what comes.
        set(&mut handle, format!("new:{n}").as_bytes(), &[2; 100], 500);
    }
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn eviction_keeps_nothing_that_was_forgotten() {
    let store = Store::new(Config::new(2 << 20)).unwrap();
    let mut handle = store.handle();
    let mut random = Random(7);
    for round in 0..if cfg!(miri) { 2 } else { 20 } {
        for n in 0..400 {
            let key = format!("bin:{n}");
            handle.set(key.as_bytes(), &vec![round; random.below(3000) as usize], &SetOptions::default(), 1);
            handle.get(key.as_bytes(), 1);
            handle.get(key.as_bytes(), 1);
        }
        store.forget_prefix(b"bin:").unwrap();
        for n in 0..if cfg!(miri) { 100 } else { 3000 } {
            handle.set(format!("fill:{n}").as_bytes(), &[0; 900], &SetOptions::default(), 1);
            assert!(handle.get(format!("bin:{}", n % 400).as_bytes(), 1).is_none());
        }
    }
}

#[test]
fn more_prefixes_than_there_is_room_for_are_forgotten_all_the_same() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    let name = |n: u32| format!("p{n}:k").into_bytes();
    for n in 0..1000 {
        set(&mut handle, &name(n), b"v", 1);
    }
    for n in 0..500 {
        store.forget_prefix(format!("p{n}:").as_bytes()).unwrap();
        assert!(handle.get(&name(n), 1).is_none());
    }
    let stats = store.stats();
    assert!(stats.forget_folded > 0 && stats.forget_marks <= 112, "{stats:?}");
    assert!((0..500).all(|n| handle.get(&name(n), 1).is_none()));
    // For want of room more was, but only of what was there by then.
    for n in 0..1000 {
        set(&mut handle, &name(n), b"w", 1);
        assert!(handle.get(&name(n), 1).is_some());
    }
    swept(&mut handle, 1);
    assert!((0..1000).all(|n| handle.get(&name(n), 500).is_some()));
}

#[test]
fn a_flush_and_a_forgetting_do_not_undo_each_other() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    set(&mut handle, b"bin:a", b"1", 1);
    set(&mut handle, b"b", b"1", 1);
    store.forget_prefix(b"bin:").unwrap();
    store.flush(1);
    assert_eq!((value(&mut handle, b"b", 1), handle.miss_reason()), (None, Miss::Flushed));
    set(&mut handle, b"bin:a", b"2", 1);
    set(&mut handle, b"b", b"2", 1);
    let now = swept(&mut handle, 1);
    assert!(handle.get(b"bin:a", now).is_some() && handle.get(b"b", now).is_some());
    store.forget_prefix(b"bin:").unwrap();
    assert!(handle.get(b"bin:a", now).is_none() && handle.get(b"b", now).is_some());
}

/// A prefix (or tag) that is forgotten again and again. A value begins with the generation it was stored in; who stores one
/// keeps the generation from changing meanwhile, who copies, reads or changes does not.
#[derive(Default)]
struct Generation {
    now: RwLock<u64>,
    /// What was stored in an earlier one was forgotten, and that was answered.
    answered: AtomicU64,
}

fn one_thread(mut handle: Handle, seed: u64, generations: &[Generation], stop: &AtomicBool) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut read = 0;
    while !stop.load(Ordering::Relaxed) {
        let group = random.below(generations.len() as u64) as usize;
        let generation = &generations[group];
        let n = random.below(60);
        // Half of them by prefix, half by tag.
        let (key, tags) = if group.is_multiple_of(2) {
            (format!("group-{group}:{n}"), nuthatch_store::Tags::NONE)
        } else {
            (format!("{n} of {group}"), handle.store().tags([format!("tag-{group}").as_bytes()]).unwrap())
        };
        let key = key.as_bytes();
        let bytes = if random.below(50) == 0 { random.below(60_000) } else { random.below(600) } as usize;
        let expiry = if random.below(4) == 0 { 100 + random.below(5000) as u32 } else { NEVER };
        match random.below(10) {
            0..3 => {
                let now = generation.now.read().unwrap();
                let mut value = now.to_le_bytes().to_vec();
                value.resize(8 + bytes, 7);
                let options = SetOptions { expiry, ..SetOptions::default() };
                handle.set_tagged(key, &value, &options, &tags, 1);
            }
            3 => {
                handle.touch(key, expiry, 1);
            }
            4 => {
                handle.set_tagged(key, &[9; 40], &mode(SetMode::Append), &tags, 1);
            }
            _ => {
                let floor = generation.answered.load(Ordering::Acquire);
                if let Some(hit) = handle.get(key, 1) {
                    let value = hit.value().collect::<Vec<_>>().concat();
                    let stored = u64::from_le_bytes(value[..8].try_into().unwrap());
                    assert!(stored >= floor, "{}: {stored} after {floor} was answered", key.escape_ascii());
                    read += 1;
                }
            }
        }
    }
    read
}

#[test]
fn what_was_forgotten_never_comes_back_in_a_storm_of_copies() {
    // Too small for all of it; a third of the buckets' marks are folded.
    let store = Store::new(Config { handles_hint: 4, ..Config::new(3 << 20) }).unwrap();
    let generations: Vec<_> = (0..if cfg!(miri) { 2 } else { 150 }).map(|_| Generation::default()).collect();
    let threads = if cfg!(miri) { 1 } else { 3 };
    let mut random = Random(99);
    let thread = |handle, seed, stop: &AtomicBool| one_thread(handle, seed, &generations, stop);
    let read = storm(&store, threads, thread, |handle| {
        let group = random.below(generations.len() as u64) as usize;
        let generation = &generations[group];
        let next = {
            let mut now = generation.now.write().unwrap();
            *now += 1;
            // While nobody stores, but everybody copies.
            if group.is_multiple_of(2) {
                store.forget_prefix(format!("group-{group}:").as_bytes()).unwrap();
            } else {
                store.forget_tag(format!("tag-{group}").as_bytes()).unwrap();
            }
            *now
        };
        generation.answered.store(next, Ordering::Release);
        if random.below(20) == 0 {
            handle.maintain(1);
        }
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let stats = store.stats();
    println!("{read} values read, {stats:?}");
    assert!(read > if cfg!(miri) { 0 } else { 500 });
    if !cfg!(miri) {
        assert!(stats.moved_items > 100 && stats.forgotten > 100, "{stats:?}");
    }
    gives_all_back(&store);
}
