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
