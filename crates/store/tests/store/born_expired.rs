//! Items that have expired when they are stored: memcached's clients use them to delete, and count on the answer.

use nuthatch_store::{Config, Miss, SetOptions, SetOutcome, Store};

#[test]
fn what_is_stored_expired_is_never_seen_is_said_to_have_expired_and_gives_its_memory_back() {
    let store = Store::new(Config::new(4 << 20)).unwrap();
    let mut handle = store.handle();
    let now = 100;
    let dead = SetOptions { expiry: 5, ..SetOptions::default() };
    for n in 0..1000 {
        let key = format!("key{n}");
        handle.set(key.as_bytes(), b"live", &SetOptions::default(), now);
        assert!(matches!(handle.set(key.as_bytes(), &[b'x'; 1000], &dead, now), SetOutcome::Stored { .. }));
        assert!(handle.get(key.as_bytes(), now).is_none());
        assert_eq!(handle.miss_reason(), Miss::Expired);
    }
    let mut reservation = handle.reserve(b"large", 100_000, 0, 5, now).unwrap();
    reservation.write(&[b'x'; 100_000]);
    assert!(matches!(handle.commit(reservation, &dead, now), SetOutcome::Stored { .. }));
    assert!(handle.get(b"large", now).is_none());
    assert_eq!(handle.miss_reason(), Miss::Expired);
    for second in 1..=2 {
        handle.maintain(now + second);
    }
    assert_eq!(store.stats().items, 0);
    assert_eq!(store.stats().bytes, 0);
}
