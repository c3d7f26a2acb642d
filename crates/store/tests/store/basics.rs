//! What each operation promises, one claim a test.

use std::{ops::ControlFlow, sync::Arc};

use nuthatch_store::{
    ArithOptions, ArithOutcome, Config, Cursor, DeleteOptions, DeleteOutcome, Handle, MetaGet, Miss, NEVER, SetMode,
    SetOptions, SetOutcome, Store,
};

use crate::common::{mode, set, value};

fn store() -> Arc<Store> {
    Store::new(Config::new(4 << 20)).unwrap()
}

#[test]
fn a_value_comes_back_byte_for_byte_at_every_size() {
    let store = Store::new(Config::new(8 << 20)).unwrap();
    let mut handle = store.handle();
    for bytes in [0, 1, 100, 255, 256, 1000, 15_000, 16_300, 16_384, 20_000, 65_535, 65_536, 300_000, 1_000_000] {
        let wanted: Vec<u8> = (0..bytes).map(|n| (n * 7 + bytes) as u8).collect();
        let options = SetOptions { flags: bytes as u32, ..SetOptions::default() };
        assert_eq!(handle.set(b"key", &wanted, &options, 1), SetOutcome::Stored { cas: 0 });
        let hit = handle.get(b"key", 1).unwrap();
        assert_eq!(hit.value_bytes(), bytes);
        assert_eq!(hit.flags(), bytes as u32);
        assert_eq!(hit.value().collect::<Vec<_>>().concat(), wanted);
        let held = hit.hold();
        drop(hit);
        assert_eq!(held.pieces(0).collect::<Vec<_>>().concat(), wanted);
        if bytes > 2 {
            assert_eq!(held.pieces(bytes / 2).collect::<Vec<_>>().concat(), wanted[bytes / 2..]);
        }
    }
}

#[test]
fn a_value_that_arrives_in_pieces_is_seen_only_when_committed() {
    let store = Store::new(Config::new(8 << 20)).unwrap();
    let mut handle = store.handle();
    set(&mut handle, b"k", b"old", 1);
    let wanted: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let mut reservation = handle.reserve(b"k", wanted.len(), 9, NEVER, 1).unwrap();
    let mut from = 0;
    while reservation.remaining() > 0 {
        assert_eq!(value(&mut handle, b"k", 1).unwrap(), b"old");
        let piece = reservation.next_piece();
        let bytes = piece.len().min(7000);
        piece[..bytes].copy_from_slice(&wanted[from..from + bytes]);
        reservation.advance(bytes);
        from += bytes;
    }
    assert_eq!(handle.commit(reservation, &SetOptions::default(), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), wanted);
    assert_eq!(handle.get(b"k", 1).unwrap().flags(), 9);
    let reservation = handle.reserve(b"k", 100_000, 0, NEVER, 1).unwrap();
    drop(reservation);
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), wanted);
    let mut reservation = handle.reserve(b"k", 3, 0, NEVER, 1).unwrap();
    assert_eq!(reservation.write(b"abcdef"), 3);
    assert_eq!(handle.commit(reservation, &mode(SetMode::Append), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), [&wanted[..], b"abc"].concat());
}

#[test]
fn add_replace_append_prepend_depend_on_there_being_an_item() {
    let store = store();
    let mut handle = store.handle();
    for absent in [SetMode::Replace, SetMode::Append, SetMode::Prepend] {
        assert_eq!(handle.set(b"k", b"x", &mode(absent), 1), SetOutcome::NotStored);
    }
    assert_eq!(handle.set(b"k", b"b", &mode(SetMode::Add), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(handle.set(b"k", b"c", &mode(SetMode::Add), 1), SetOutcome::NotStored);
    assert_eq!(handle.set(b"k", b"c", &mode(SetMode::Append), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(handle.set(b"k", b"a", &mode(SetMode::Prepend), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), b"abc");
    assert_eq!(handle.set(b"k", b"z", &mode(SetMode::Replace), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), b"z");
    assert_eq!(store.stats().items, 1);
}

#[test]
fn cas_stores_only_over_the_item_it_was_given_for() {
    let store = store();
    let mut handle = store.handle();
    let compare = |cas| SetOptions { compare: Some(cas), ..SetOptions::default() };
    assert_eq!(handle.set(b"k", b"x", &compare(1), 1), SetOutcome::NotFound);
    set(&mut handle, b"k", b"one", 1);
    let cas = handle.get(b"k", 1).unwrap().cas();
    assert_eq!(handle.get(b"k", 1).unwrap().cas(), cas);
    assert!(handle.touch(b"k", 500, 1), "touching moves the item and keeps its CAS unique");
    assert_eq!(handle.get(b"k", 1).unwrap().cas(), cas);
    assert_eq!(handle.set(b"k", b"two", &compare(cas + 1), 1), SetOutcome::Exists);
    assert_eq!(handle.set(b"k", b"two", &compare(cas), 1), SetOutcome::Stored { cas: 0 });
    assert_eq!(handle.set(b"k", b"three", &compare(cas), 1), SetOutcome::Exists);
    let chosen = SetOptions { cas: Some(77), want_cas: true, ..SetOptions::default() };
    assert_eq!(handle.set(b"k", b"four", &chosen, 1), SetOutcome::Stored { cas: 77 });
    let older = SetOptions { invalidate: true, ..compare(70) };
    assert_eq!(handle.set(b"k", b"five", &older, 1), SetOutcome::Stored { cas: 0 });
    assert!(handle.get(b"k", 1).unwrap().stale());
}

#[test]
fn an_item_expires_on_its_second_and_its_memory_comes_back_untouched() {
    let store = store();
    let mut handle = store.handle();
    let expiring = SetOptions { expiry: 15, ..SetOptions::default() };
    for n in 0..10_000u32 {
        handle.set(&n.to_le_bytes(), &[1; 100], &expiring, 10);
        handle.set(&(n + 1_000_000).to_le_bytes(), &[1; 100], &SetOptions::default(), 10);
    }
    assert!(handle.get(&1u32.to_le_bytes(), 14).is_some());
    handle.maintain(14);
    assert_eq!(store.stats().items, 20_000);
    assert!(handle.get(&1u32.to_le_bytes(), 15).is_none());
    assert_eq!(handle.miss_reason(), Miss::Expired);
    handle.maintain(15);
    let stats = store.stats();
    assert_eq!(stats.items, 10_000);
    assert_eq!(stats.reclaimed, 10_000);
    assert_eq!(stats.expired_unfetched, 9_999);
    assert_eq!(
        handle.set(b"dead", b"x", &SetOptions { expiry: 3, ..SetOptions::default() }, 15),
        SetOutcome::Stored { cas: 0 }
    );
    assert!(handle.get(b"dead", 15).is_none());
}

#[test]
fn numbers_count_and_pad_and_wrap_as_memcacheds_do() {
    let store = store();
    let mut handle = store.handle();
    let by = |delta| ArithOptions { delta, ..ArithOptions::default() };
    let minus = |delta| ArithOptions { delta, decrement: true, ..ArithOptions::default() };
    let number = |outcome| match outcome {
        ArithOutcome::Value { value, .. } => value,
        other => panic!("{other:?}"),
    };
    assert_eq!(handle.arith(b"n", &by(1), 1), ArithOutcome::NotFound);
    set(&mut handle, b"n", b"10", 1);
    assert_eq!(number(handle.arith(b"n", &minus(1), 1)), 9);
    assert_eq!(value(&mut handle, b"n", 1).unwrap(), b"9 ");
    assert_eq!(number(handle.arith(b"n", &minus(100), 1)), 0);
    assert_eq!(number(handle.arith(b"n", &by(u64::MAX), 1)), u64::MAX);
    assert_eq!(number(handle.arith(b"n", &by(1), 1)), 0);
    set(&mut handle, b"n", b"x", 1);
    assert_eq!(handle.arith(b"n", &by(1), 1), ArithOutcome::NonNumeric);
    let initial = ArithOptions { initial: Some((7, NEVER)), ..by(1) };
    assert_eq!(number(handle.arith(b"m", &initial, 1)), 7);
    assert_eq!(number(handle.arith(b"m", &initial, 1)), 8);
    assert_eq!(value(&mut handle, b"m", 1).unwrap(), b"8");
}

#[test]
fn a_flush_forgets_what_was_stored_before_it_and_nothing_else() {
    let store = store();
    let mut handle = store.handle();
    let mut other = store.handle();
    set(&mut handle, b"a", b"1", 1);
    set(&mut other, b"b", b"1", 1);
    store.flush(1);
    set(&mut handle, b"c", b"1", 1);
    assert!(handle.get(b"a", 1).is_none());
    assert_eq!(handle.miss_reason(), Miss::Flushed);
    assert!(handle.get(b"b", 1).is_none());
    assert!(handle.get(b"c", 1).is_some());
    assert_eq!(handle.set(b"b", b"2", &mode(SetMode::Add), 1), SetOutcome::Stored { cas: 0 });
    handle.maintain(2);
    assert_eq!(store.stats().items, 2);
    store.flush_at(10, 2);
    set(&mut handle, b"d", b"1", 9);
    assert!(handle.get(b"d", 9).is_some());
    assert!(handle.get(b"d", 10).is_none());
    set(&mut handle, b"e", b"1", 10);
    assert!(handle.get(b"e", 11).is_some());
    // One that is due counts as done before the next replaces it.
    store.flush_at(20, 11);
    store.flush_at(40, 25);
    assert!(handle.get(b"e", 25).is_none());
    // One that is not due is replaced by a flush that is not delayed.
    store.flush(26);
    set(&mut handle, b"f", b"1", 26);
    assert!(handle.get(b"f", 41).is_some());
}

/// What a meta get answered: won, another won before, stale, created.
fn meta(handle: &mut Handle, key: &[u8], options: MetaGet) -> (bool, bool, bool, bool) {
    let got = handle.meta_get(key, &options, 1);
    assert!(got.hit.is_some());
    (got.won, got.token_already_sent, got.stale, got.created)
}

#[test]
fn an_older_value_stored_over_an_invalidated_one_keeps_its_expiry_and_its_winner() {
    let store = store();
    for large in [false, true] {
        let mut handle = store.handle();
        handle.set(b"k", b"v", &SetOptions { cas: Some(10), ..SetOptions::default() }, 1);
        let invalidate = DeleteOptions { invalidate: true, expiry: Some(50), ..DeleteOptions::default() };
        assert_eq!(handle.delete(b"k", &invalidate, 1), DeleteOutcome::Deleted);
        let won = |handle: &mut Handle| handle.meta_get(b"k", &MetaGet::default(), 1).won;
        let older = SetOptions { compare: Some(1), invalidate: true, expiry: 90, ..SetOptions::default() };
        let store_older = |handle: &mut Handle| {
            if large {
                let mut reservation = handle.reserve(b"k", 3, 0, 90, 1).unwrap();
                reservation.write(b"old");
                handle.commit(reservation, &older, 1)
            } else {
                handle.set(b"k", b"old", &older, 1)
            }
        };
        assert!(matches!(store_older(&mut handle), SetOutcome::Stored { .. }));
        assert!(won(&mut handle), "nobody was told to recache it before");
        assert!(matches!(store_older(&mut handle), SetOutcome::Stored { .. }));
        assert_eq!(meta(&mut handle, b"k", MetaGet::default()), (false, true, true, false));
        assert_eq!(handle.get(b"k", 1).unwrap().expiry(), 50);
        let newer = SetOptions { expiry: 90, ..SetOptions::default() };
        assert!(matches!(handle.set(b"k", b"new", &newer, 1), SetOutcome::Stored { .. }));
        assert_eq!(meta(&mut handle, b"k", MetaGet::default()), (false, false, false, false));
        assert_eq!(handle.get(b"k", 1).unwrap().expiry(), 90);
    }
}

#[test]
fn invalidated_items_are_won_by_one_client() {
    let store = store();
    let mut handle = store.handle();
    let vivify = MetaGet { vivify: Some(100), ..MetaGet::default() };
    assert_eq!(meta(&mut handle, b"k", vivify), (true, false, false, true));
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), b"");
    assert_eq!(meta(&mut handle, b"k", vivify), (false, true, false, false));
    set(&mut handle, b"k", b"fresh", 1);
    let cas = handle.get(b"k", 1).unwrap().cas();
    let invalidate = DeleteOptions { invalidate: true, expiry: Some(50), ..DeleteOptions::default() };
    assert_eq!(handle.delete(b"k", &invalidate, 1), DeleteOutcome::Deleted);
    {
        let first = handle.meta_get(b"k", &MetaGet::default(), 1);
        assert!(first.won && first.stale && !first.token_already_sent);
        let hit = first.hit.as_ref().unwrap();
        assert_eq!(hit.value_whole().unwrap(), b"fresh");
        assert_eq!(hit.expiry(), 50);
        assert_ne!(hit.cas(), cas);
    }
    assert_eq!(meta(&mut handle, b"k", MetaGet::default()), (false, true, true, false));
    let drop_value = DeleteOptions { drop_value: true, ..DeleteOptions::default() };
    assert_eq!(handle.delete(b"k", &drop_value, 1), DeleteOutcome::Deleted);
    assert_eq!(value(&mut handle, b"k", 1).unwrap(), b"");
    set(&mut handle, b"r", b"x", 1);
    handle.touch(b"r", 30, 1);
    let recache = MetaGet { recache_below: Some(30), ..MetaGet::default() };
    assert_eq!(meta(&mut handle, b"r", recache), (true, false, false, false));
    assert_eq!(meta(&mut handle, b"r", recache), (false, true, false, false));
}

#[test]
fn without_eviction_a_full_store_refuses_and_loses_nothing() {
    let store = Store::new(Config { evict: false, ..Config::new(2 << 20) }).unwrap();
    let mut handle = store.handle();
    let mut kept = 0u32;
    loop {
        match handle.set(&kept.to_le_bytes(), &[kept as u8; 500], &SetOptions::default(), 1) {
            SetOutcome::Stored { .. } => kept += 1,
            SetOutcome::NoMemory => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(kept > 2500, "{kept} items of 500 bytes in 2 MiB");
    for n in 0..kept {
        assert_eq!(value(&mut handle, &n.to_le_bytes(), 1).unwrap(), [n as u8; 500]);
    }
    for n in 0..kept / 2 {
        assert_eq!(handle.delete(&(2 * n).to_le_bytes(), &DeleteOptions::default(), 1), DeleteOutcome::Deleted);
    }
    let mut again = 0;
    while let SetOutcome::Stored { .. } =
        handle.set(&(again + 1_000_000u32).to_le_bytes(), &[7; 500], &SetOptions::default(), 1)
    {
        again += 1;
    }
    assert!(again > kept * 9 / 20, "half of {kept} were deleted and {again} took their room");
    for n in 0..kept / 2 {
        let n = 2 * n + 1;
        if n < kept {
            assert_eq!(value(&mut handle, &n.to_le_bytes(), 1).unwrap(), [n as u8; 500]);
        }
    }
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn the_budget_holds_everything_and_small_items_cost_at_most_eighteen_bytes_more_than_themselves() {
    for (memory, value_bytes, expiry) in [
        (4usize << 20, 30, NEVER),
        (16 << 20, 30, NEVER),
        (64 << 20, 30, NEVER),
        (64 << 20, 100, NEVER),
        (64 << 20, 30, 4000),
    ] {
        let store = Store::new(Config::new(memory)).unwrap();
        let mut handle = store.handle();
        let options = SetOptions { expiry, ..SetOptions::default() };
        for n in 0..memory / (value_bytes + 10) {
            let key = format!("key:{n:020}");
            handle.set(key.as_bytes(), &vec![b'v'; value_bytes], &options, 1);
            if n % 4096 == 0 {
                let stats = store.stats();
                assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
            }
        }
        let stats = store.stats();
        let overhead = memory as f64 / stats.items as f64 - 24.0 - value_bytes as f64;
        println!("{memory}, values of {value_bytes}: {} items, {overhead:.2} bytes overhead, {stats:?}", stats.items);
        if memory >= 16 << 20 {
            assert!(overhead <= 18.0, "{overhead} bytes of overhead for each item: {stats:?}");
        }
    }
}

#[test]
fn a_walk_visits_every_item_once() {
    let store = store();
    let mut handle = store.handle();
    for n in 0..5000u32 {
        set(&mut handle, &n.to_le_bytes(), b"v", 1);
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = Cursor::default();
    while handle.scan(&mut cursor, 1, &mut |hit| assert!(seen.insert(hit.key().to_vec()))) {}
    assert_eq!(seen.len(), 5000);
}

#[test]
fn memory_follows_the_limit_up_and_down() {
    let store = Store::new(Config { memory_bytes_max: 16 << 20, ..Config::new(8 << 20) }).unwrap();
    let mut handle = store.handle();
    let fill = |handle: &mut Handle| {
        for n in 0..40_000u32 {
            set(handle, &n.to_le_bytes(), &[1; 400], 1);
        }
    };
    fill(&mut handle);
    let first = store.stats().items;
    store.set_memory_limit(16 << 20).unwrap();
    fill(&mut handle);
    assert!(store.stats().items > first * 19 / 10);
    store.set_memory_limit(4 << 20).unwrap();
    handle.maintain(1);
    let stats = store.stats();
    assert!(stats.memory_used <= 4 << 20, "{stats:?}");
    assert!(stats.items > first * 4 / 10);
    assert!(store.set_memory_limit(1 << 30).is_err());
}

#[test]
fn last_access_and_fetched_tell_what_was_before_this_access() {
    let store = store();
    let mut handle = store.handle();
    set(&mut handle, b"k", b"v", 100);
    let hit = handle.peek(b"k", 103).unwrap();
    assert_eq!((hit.fetched_before(), hit.last_access()), (false, 100));
    drop(hit);
    let hit = handle.get(b"k", 103).unwrap();
    assert_eq!((hit.fetched_before(), hit.last_access()), (false, 100));
    drop(hit);
    let hit = handle.get(b"k", 107).unwrap();
    assert_eq!((hit.fetched_before(), hit.last_access()), (true, 103));
    drop(hit);
    set(&mut handle, b"k", b"v", 108);
    assert!(!handle.peek(b"k", 108).unwrap().fetched_before());
}

#[test]
fn whoever_makes_an_item_by_asking_for_it_is_the_first_to_fetch_it() {
    let store = store();
    let mut handle = store.handle();
    let make = |no_bump| MetaGet { vivify: Some(50), no_bump, ..MetaGet::default() };
    let fetched = |handle: &mut Handle, key: &[u8], options: MetaGet| {
        handle.meta_get(key, &options, 1).hit.is_some_and(|hit| hit.fetched_before())
    };
    assert!(!fetched(&mut handle, b"k", make(false)), "it was not there before");
    assert!(fetched(&mut handle, b"k", make(false)));
    assert!(!fetched(&mut handle, b"l", make(true)));
    assert!(!fetched(&mut handle, b"l", make(true)), "that leaves no trace");
}

#[test]
fn several_keys_are_answered_in_the_order_asked_until_the_caller_has_enough() {
    let store = Store::new(Config::new(4 << 20)).expect("4 MiB");
    let mut handle = store.handle();
    for n in 0..40u32 {
        let expiry = if n % 5 == 0 { 10 } else { NEVER };
        let options = SetOptions { expiry, ..SetOptions::default() };
        if n % 3 != 0 {
            handle.set(format!("key{n}").as_bytes(), format!("value{n}").as_bytes(), &options, 1);
        }
    }
    let names: Vec<_> = (0..40).map(|n| format!("key{n}").into_bytes()).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    for (now, enough) in [(1, 40), (1, 17), (1, 16), (10, 40), (10, 1)] {
        let mut seen = Vec::new();
        let done = handle.get_many(&keys, now, |number, found| {
            seen.push((number, found.map(|hit| hit.value().collect::<Vec<_>>().concat())));
            if seen.len() == enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(done, enough);
        let expected: Vec<_> = (0..enough)
            .map(|n| match n {
                _ if n % 3 == 0 => (n, Err(Miss::Absent)),
                _ if n % 5 == 0 && now == 10 => (n, Err(Miss::Expired)),
                _ => (n, Ok(format!("value{n}").into_bytes())),
            })
            .collect();
        assert_eq!(seen, expected);
    }
    assert_eq!(handle.get_many(&[], 1, |_, _| panic!("no key was asked for")), 0);
    assert!(handle.get(b"key1", 1).is_some_and(|hit| hit.fetched_before()), "asking for several fetches them");
}

#[test]
fn item_limit_and_eviction_change_while_running() {
    let store = Store::new(Config { item_bytes_max: 100_000, ..Config::new(4 << 20) }).unwrap();
    let mut handle = store.handle();
    let large = vec![1; 200_000];
    assert_eq!(handle.set(b"large", &large, &SetOptions::default(), 1), SetOutcome::TooLarge);
    store.set_item_limit(300_000).unwrap();
    set(&mut handle, b"large", &large, 1);
    store.set_item_limit(100_000).unwrap();
    assert_eq!(value(&mut handle, b"large", 1).unwrap(), large, "what is there stays");
    let error = store.set_item_limit(3 << 20).unwrap_err().to_string();
    assert_eq!(
        error,
        "an item limit of 3145728 bytes is not possible here: expected 1024 to 2097152 bytes (at most half of the memory)"
    );

    let fill = |handle: &mut Handle| {
        (0..20_000u32)
            .filter(|n| handle.set(&n.to_be_bytes(), &[0; 1000], &SetOptions::default(), 1) == SetOutcome::NoMemory)
            .count()
    };
    assert_eq!(fill(&mut handle), 0);
    store.set_evict(false);
    assert!(fill(&mut handle) > 0);
    store.set_evict(true);
    assert_eq!(fill(&mut handle), 0);
}

#[test]
fn handles_that_come_and_go_keep_the_counts_and_cost_nothing() {
    let store = store();
    for n in 0..100u32 {
        let mut handle = store.handle();
        set(&mut handle, &n.to_be_bytes(), b"x", 1);
    }
    let stats = store.stats();
    assert_eq!((stats.items, stats.total_items), (100, 100));
    assert!(stats.memory_used <= stats.memory_limit);
}
