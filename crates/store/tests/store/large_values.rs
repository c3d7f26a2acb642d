//! Values that fill several segments, in a store that is full of them.

use nuthatch_store::{Config, NEVER, SetOptions, SetOutcome, Store};

#[test]
fn an_evicting_store_always_finds_room_for_a_value_within_the_limit() {
    const LIMIT: usize = 1 << 20;
    let store = Store::new(Config { item_bytes_max: LIMIT, ..Config::new(48 << 20) }).unwrap();
    let mut handle = store.handle();
    let value = vec![b'x'; LIMIT];
    let mut pick = 1u64;
    for n in 0..1500 {
        pick = pick.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Equal sizes first, then rising ones, then any: each leaves other holes behind.
        let bytes = match n {
            0..100 => 573_440,
            100..500 => 200_000 + (n - 100) * 2048,
            _ => (pick >> 33) as usize % (LIMIT - 100),
        };
        let key = format!("key{}", pick >> 55);
        let outcome = if n % 2 == 0 {
            match handle.reserve(key.as_bytes(), bytes, 0, NEVER, 1) {
                Ok(mut reservation) => {
                    reservation.write(&value[..bytes]);
                    handle.commit(reservation, &SetOptions::default(), 1)
                }
                Err(outcome) => outcome,
            }
        } else {
            handle.set(key.as_bytes(), &value[..bytes], &SetOptions::default(), 1)
        };
        assert!(matches!(outcome, SetOutcome::Stored { .. }), "value {n} of {bytes} bytes: {outcome:?}");
        if n % 3 == 0 {
            assert_eq!(handle.get(key.as_bytes(), 1).map(|hit| hit.value_bytes()), Some(bytes));
        }
    }
}

/// A value of several segments has no room for its copy in a small store whose free segments are few.
#[test]
fn a_large_value_that_is_read_all_the_time_stays_in_a_small_store() {
    for value_bytes in [1_000, 20_000, 66_560, 300_000] {
        let store = Store::new(Config::new(6 << 20)).expect("6 MiB");
        let mut handle = store.handle();
        let canary = vec![b'c'; value_bytes];
        let options = SetOptions::default();
        assert!(matches!(handle.set(b"canary", &canary, &options, 1), SetOutcome::Stored { .. }));
        for n in 0..1000 {
            let hit = handle.get(b"canary", 1).unwrap_or_else(|| panic!("{value_bytes} bytes are gone after {n} sets"));
            assert!(hit.value().flatten().all(|&byte| byte == b'c'));
            drop(hit);
            let key = format!("key{n}");
            assert!(matches!(handle.set(key.as_bytes(), &vec![b'x'; 66_560], &options, 1), SetOutcome::Stored { .. }));
        }
        assert!(store.stats().evictions > 500);
    }
}

#[test]
fn a_small_store_full_of_large_values_that_are_read_all_the_time_takes_new_ones() {
    let store = Store::new(Config::new(6 << 20)).expect("6 MiB");
    let mut handle = store.handle();
    let value = vec![b'x'; 300_000];
    for n in 0..300 {
        for old in 0..n {
            for _ in 0..4 {
                handle.get(format!("key{old}").as_bytes(), 1);
            }
        }
        let stored = handle.set(format!("key{n}").as_bytes(), &value, &SetOptions::default(), 1);
        assert!(matches!(stored, SetOutcome::Stored { .. }), "key{n}: {stored:?}");
    }
}
