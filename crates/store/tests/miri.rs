//! A small walk through every path of the store that runs `unsafe` code, sized for Miri (which runs it in `make test`);
//! without Miri it is an ordinary test.

use nuthatch_store::{
    ArithOptions, Config, Cursor, DeleteOptions, Handle, MetaGet, SetMode, SetOptions, SetOutcome, Store,
};

fn whole(handle: &mut Handle, key: &[u8], now: u32) -> Option<Vec<u8>> {
    handle.get(key, now).map(|hit| hit.value().collect::<Vec<_>>().concat())
}

#[test]
fn every_operation_once() {
    let store = Store::new(Config { item_bytes_max: 400_000, handles_hint: 1, ..Config::new(1 << 20) }).unwrap();
    let mut handle = store.handle();
    let options = SetOptions::default();
    handle.set(b"a", b"one", &options, 1);
    handle.set(b"a", b"two", &SetOptions { mode: SetMode::Append, ..options }, 1);
    handle.set(b"a", b"0", &SetOptions { mode: SetMode::Prepend, ..options }, 1);
    assert_eq!(whole(&mut handle, b"a", 1).unwrap(), b"0onetwo");
    let cas = handle.get(b"a", 1).unwrap().cas();
    assert!(handle.touch(b"a", 40, 1));
    assert_eq!(handle.get(b"a", 1).unwrap().cas(), cas);
    handle.set(b"n", b"10", &options, 1);
    handle.arith(b"n", &ArithOptions { delta: 5, ..ArithOptions::default() }, 1);
    assert_eq!(whole(&mut handle, b"n", 1).unwrap(), b"15");
    let won = handle.meta_get(b"v", &MetaGet { vivify: Some(90), ..MetaGet::default() }, 1).won;
    assert!(won);
    handle.delete(b"a", &DeleteOptions { invalidate: true, ..DeleteOptions::default() }, 1);
    // A value over several segments, in one go and in pieces.
    let value = [vec![1u8; 10_000], vec![2; 20_000], vec![3; 7_001]].concat();
    handle.set(b"large", &value, &options, 1);
    assert!(whole(&mut handle, b"large", 1).unwrap() == value);
    let mut reservation = handle.reserve(b"pieces", value.len(), 0, 50, 1).unwrap();
    let mut from = 0;
    while reservation.remaining() > 0 {
        let piece = reservation.next_piece();
        let bytes = piece.len().min(9000);
        piece[..bytes].copy_from_slice(&value[from..from + bytes]);
        reservation.advance(bytes);
        from += bytes;
    }
    assert!(matches!(handle.commit(reservation, &options, 1), SetOutcome::Stored { .. }));
    let held = handle.get(b"pieces", 1).unwrap().hold();
    handle.delete(b"pieces", &DeleteOptions::default(), 1);
    assert!(held.pieces(0).collect::<Vec<_>>().concat() == value);
    drop(held);
    drop(handle.reserve(b"dropped", 20_000, 0, 50, 1).unwrap());
    let mut cursor = Cursor::default();
    let mut keys = 0;
    while handle.scan(&mut cursor, 1, &mut |_| keys += 1) {}
    assert_eq!(keys, 4);
    handle.maintain(100);
    assert!(handle.get(b"v", 100).is_none());
    // Tags and births lie between key and value; a sweep reads sealed segments.
    let tags = store.tags([&b"news"[..], b"user"]).unwrap();
    for round in 0..3 {
        handle.set_tagged(b"bin:tagged", &value, &options, &tags, 100);
        handle.set_tagged(b"bin:tagged", b"+", &SetOptions { mode: SetMode::Append, ..options }, &tags, 100);
        assert!(handle.touch(b"bin:tagged", 5000 + round, 100));
        handle.set(b"bin:other", b"1", &options, 100);
        assert_eq!(whole(&mut handle, b"bin:tagged", 100).unwrap().len(), value.len() + 1);
        store.forget_tag(b"news").unwrap();
        assert!(handle.get(b"bin:tagged", 100).is_none() && handle.get(b"bin:other", 100).is_some());
        store.forget_prefix(b"bin:").unwrap();
        assert!(handle.get(b"bin:other", 100).is_none());
    }
    for now in [300, 301, 302, 303] {
        handle.maintain(now);
    }
    assert_eq!((store.stats().forget_marks, store.stats().forgotten), (0, 6));
    store.flush(303);
    handle.maintain(304);
    assert_eq!(store.stats().items, 0);
}

#[test]
fn eviction_and_compaction_while_another_thread_reads() {
    let store = Store::new(Config { handles_hint: 2, item_bytes_max: 100_000, ..Config::new(1 << 20) }).unwrap();
    let mut handle = store.handle();
    let rounds = if cfg!(miri) { 70u32 } else { 5000 };
    std::thread::scope(|scope| {
        let mut reader = store.handle();
        scope.spawn(move || {
            for n in 0..rounds {
                if let Some(hit) = reader.get(&(n % 60).to_le_bytes(), 1) {
                    let value = hit.value().collect::<Vec<_>>().concat();
                    assert!(value == vec![value[0]; value.len()]);
                }
            }
        });
        for n in 0..rounds {
            let key = (n % 60).to_le_bytes();
            let bytes = if n % 8 == 0 { 40_000 } else { 15_000 };
            handle.set(&key, &vec![n as u8; bytes], &SetOptions::default(), 1);
            handle.get(&key, 1);
        }
    });
    if !cfg!(miri) {
        assert!(store.stats().evictions > 0);
    }
}
