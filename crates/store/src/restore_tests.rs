//! What a crash can leave that no test from outside can bring about: states between two stores of one operation, and
//! memory that no server wrote.

use std::sync::Arc;

use proptest::prelude::*;

use crate::{
    Config, DeleteOptions, Handle, NEVER, Restored, SetOptions, Store,
    file::Memory,
    log::{Purpose, SEGMENT_HEADER_BYTES},
    place::Item,
    segment::Queue,
    sync::Ordering,
};

const NOW: u32 = 5000;

fn config() -> Config {
    Config { item_bytes_max: 300_000, handles_hint: 1, ..Config::new(1 << 20) }
}

/// A store whose memory a later one can be made of.
fn kept() -> Arc<Store> {
    Store::assemble(config(), |limit, limit_max| {
        let mut memory = Memory::anonymous(limit, limit_max)?;
        memory.is_kept = true;
        Ok(memory)
    })
    .unwrap()
}

fn restored(memory: Memory) -> (Handle, Restored) {
    let config = Config { hash_seed: 99, ..config() };
    let store = Store::assemble(config, |_, _| Ok(memory)).unwrap();
    let restored = store.restore(NOW, &mut |_| {});
    (store.handle(), restored)
}

fn value_at(handle: &mut Handle, key: &[u8]) -> Option<Vec<u8>> {
    handle.get(key, NOW).map(|hit| hit.value().collect::<Vec<_>>().concat())
}

fn set(handle: &mut Handle, key: &[u8], value: &[u8]) {
    handle.set(key, value, &SetOptions::default(), NOW);
}

/// Places a record and declares it alive, as a write does just before it enters the index.
fn half_published(handle: &mut Handle, key: &[u8], value: &[u8]) {
    let store = Arc::clone(handle.store());
    let item = Item::new(key, 0, NEVER, value.len(), NOW);
    let placed = store
        .place(&mut handle.lane.lock(), &handle.counters, Queue::Probation, &item, Purpose::Write, false, NOW)
        .unwrap();
    store.write_value(&placed, 0, value);
    store.record(placed.place, &()).come_alive(0);
}

#[test]
fn of_two_records_of_a_key_that_are_alive_neither_is_shown_now_or_later() {
    let store = kept();
    let mut handle = store.handle();
    set(&mut handle, b"other", b"stays");
    for value in [&[7; 20][..], &[8; 50_000]] {
        set(&mut handle, b"key", value);
        half_published(&mut handle, b"key", &[9; 30]);
        half_published(&mut handle, b"long", &[1; 40_000]);
        half_published(&mut handle, b"long", &[2; 40_000]);
        set(&mut handle, b"behind the end of that", &[6]);
        let (mut second, found) = restored(store.crashed());
        assert_eq!((found.items, found.unfinished, found.damaged), (2, 2, 0));
        assert_eq!(value_at(&mut second, b"other").unwrap(), b"stays");
        let log = &second.store().log;
        assert!((0..log.page().fresh.load(Ordering::Relaxed)).all(|id| log.segment(id).spill().is_none()));
        let (mut third, found) = restored(second.store().crashed());
        assert_eq!((found.items, found.unfinished, found.damaged), (2, 0, 0));
        for handle in [&mut second, &mut third] {
            assert_eq!(value_at(handle, b"key"), None);
            assert_eq!(value_at(handle, b"long"), None);
            set(handle, b"key", &[3; 60_000]);
            assert_eq!(value_at(handle, b"key").unwrap(), [3; 60_000]);
            handle.delete(b"key", &DeleteOptions::default(), NOW);
            handle.delete(b"other", &DeleteOptions::default(), NOW);
            handle.delete(b"behind the end of that", &DeleteOptions::default(), NOW);
            handle.maintain(NOW + 1000);
            assert_eq!((handle.store().stats().items, handle.store().stats().segments_probation), (0, 0));
        }
        // Three of them are damage rather than a crash, and no better.
        half_published(&mut handle, b"key", &[4; 30]);
        let (mut second, found) = restored(store.crashed());
        assert_eq!((value_at(&mut second, b"key"), found.items), (None, 2));
    }
}

#[test]
fn what_was_taken_back_or_never_finished_is_no_record() {
    let store = kept();
    let mut handle = store.handle();
    set(&mut handle, b"before", b"1");
    // Alive by mistake, so that only the head keeps it from being found.
    let item = Item::new(b"taken back", 0, NEVER, 100, NOW);
    let placed = store
        .place(&mut handle.lane.lock(), &handle.counters, Queue::Probation, &item, Purpose::Write, false, NOW)
        .unwrap();
    store.record(placed.place, &()).come_alive(0);
    store.abandon(Some(&mut handle.lane.lock()), placed);
    let (mut second, found) = restored(store.crashed());
    assert_eq!((found.items, found.damaged), (1, 0));
    assert_eq!(value_at(&mut second, b"taken back"), None);
    // What is written over its bytes begins with other lengths than those that lie there.
    for n in 0..20u8 {
        set(&mut handle, &vec![n; usize::from(n) + 1], &vec![n; usize::from(n) * 3]);
        let (mut second, found) = restored(store.crashed());
        assert_eq!((found.items, found.damaged), (u64::from(n) + 2, 0));
        assert_eq!(value_at(&mut second, &vec![n; usize::from(n) + 1]).unwrap(), vec![n; usize::from(n) * 3]);
    }
}

#[test]
fn a_segment_whose_head_is_being_written_is_empty_and_its_memory_is_used_again() {
    let store = kept();
    let mut handle = store.handle();
    set(&mut handle, b"key", b"value");
    let first = (0..4).find(|&id| store.log.head(id).read(store.log.segment_bytes()).is_some()).unwrap();
    let memory = store.crashed();
    let head = crate::head::SegmentHead::at(&memory.segments, first as usize * memory.segment_bytes);
    head.clear();
    let (mut second, found) = restored(memory);
    assert_eq!((found.items, found.damaged, second.store().stats().segments_total), (0, 0, 0));
    set(&mut second, b"key", b"new");
    assert_eq!(value_at(&mut second, b"key").unwrap(), b"new");
}

#[test]
fn a_long_value_without_all_of_its_segments_is_left_out() {
    let store = kept();
    let mut handle = store.handle();
    set(&mut handle, b"long", &[5; 50_000]);
    let fresh = store.log.page().fresh.load(Ordering::Relaxed);
    let bytes = store.log.segment_bytes();
    let spilled = |id: &u32| store.log.head(*id).read(bytes).is_some_and(|opening| opening.spilled > 0);
    let chain: Vec<u32> = (0..fresh).filter(spilled).collect();
    assert!(chain.len() >= 3);
    for id in chain {
        let memory = store.crashed();
        crate::head::SegmentHead::at(&memory.segments, id as usize * bytes).clear();
        let (mut second, found) = restored(memory);
        assert_eq!((found.items, found.damaged), (0, 1));
        assert_eq!(value_at(&mut second, b"long"), None);
    }
}

#[test]
fn a_flush_is_not_undone_by_a_crash() {
    let store = kept();
    let mut handle = store.handle();
    set(&mut handle, b"old", b"1");
    store.flush(NOW);
    set(&mut handle, b"new", b"2");
    let (mut second, found) = restored(store.crashed());
    assert_eq!((found.items, value_at(&mut second, b"old")), (1, None));
    assert_eq!(value_at(&mut second, b"new").unwrap(), b"2");
    // One that is due later is due there as well.
    store.flush_at(NOW + 10, NOW);
    let (mut second, found) = restored(store.crashed());
    assert_eq!(found.items, 1);
    assert!(second.get(b"new", NOW + 9).is_some());
    assert!(second.get(b"new", NOW + 10).is_none());
    let (mut third, _) = restored(second.store().crashed());
    assert!(third.get(b"new", NOW).is_none());
    set(&mut third, b"new", b"3");
    assert!(third.get(b"new", NOW + 20).is_some(), "it was done once");
}

#[test]
fn what_was_forgotten_stays_forgotten_after_a_crash_also_by_a_start_with_another_delimiter() {
    let store = kept();
    let mut handle = store.handle();
    set(&mut handle, b"bin:old", b"1");
    set(&mut handle, b"long:old", &[1; 50_000]);
    let tags = store.tags([&b"news"[..]]).unwrap();
    handle.set_tagged(b"tagged", b"1", &SetOptions::default(), &tags, NOW);
    for (name, is_tag) in [(&b"bin:"[..], false), (b"long:", false), (b"news", true)] {
        let number = if is_tag { store.forget_tag(name) } else { store.forget_prefix(name) }.unwrap();
        assert_eq!(store.log.page().next_sequence.load(Ordering::Relaxed), number);
    }
    set(&mut handle, b"bin:new", b"2");
    handle.set_tagged(b"tagged too", b"2", &SetOptions::default(), &tags, NOW);
    // Killed before the number was raised that is given next.
    store.forget_prefix(b"bin:").unwrap();
    set(&mut handle, b"bin:newer", b"3");
    store.forget_prefix(b"unanswered:").unwrap();
    let memory = store.crashed();
    memory.page().next_sequence.fetch_sub(1, Ordering::Relaxed);

    let config = Config { hash_seed: 99, prefix_delimiter: b'-', ..config() };
    let second = Store::assemble(config, |_, _| Ok(memory)).unwrap();
    let found = second.restore(NOW, &mut |_| {});
    assert_eq!((found.items, found.forgotten, found.damaged), (2, 4, 0), "{found:?}");
    assert!(
        second.log.page().next_sequence.load(Ordering::Relaxed)
            >= store.log.page().next_sequence.load(Ordering::Relaxed)
    );
    let mut handle = second.handle();
    assert_eq!(value_at(&mut handle, b"bin:newer").unwrap(), b"3");
    assert_eq!((second.stats().forget_marks, second.log.watermarks().highest()), (0, 0));
    set(&mut handle, b"unanswered:k", b"4");
    assert!(handle.get(b"unanswered:k", NOW).is_some());
    // From now on another delimiter; tags are what they were.
    set(&mut handle, b"bin-k", b"5");
    assert!(second.forget_prefix(b"bin:").is_err());
    second.forget_prefix(b"bin-").unwrap();
    let (mut third, found) = restored(second.crashed());
    assert_eq!((found.items, found.forgotten), (3, 1));
    third.store().forget_tag(b"news").unwrap();
    assert_eq!(value_at(&mut third, b"tagged too"), None);
    assert_eq!(value_at(&mut third, b"bin:newer").unwrap(), b"3");
}

#[test]
fn what_had_expired_stays_expired_when_the_clock_is_behind() {
    let store = kept();
    let mut handle = store.handle();
    for (key, expiry) in [(b"a", NOW + 10), (b"b", NOW + 500)] {
        handle.set(key, b"value", &SetOptions { expiry, ..SetOptions::default() }, NOW);
    }
    store.log.page().now.store(NOW + 10, Ordering::Relaxed);
    let (mut second, found) = restored(store.crashed());
    assert_eq!((found.items, found.expired), (1, 1));
    assert!(second.get(b"a", NOW).is_none() && second.get(b"b", NOW).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 300 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn damaged_segments_are_read_without_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<u8>()), 1..60),
        sizes in prop::collection::vec(0usize..30_000, 5..40),
    ) {
        let store = kept();
        let mut handle = store.handle();
        for (n, &bytes) in sizes.iter().enumerate() {
            let expiry = if n % 3 == 0 { NEVER } else { NOW + n as u32 * 50 };
            let key = n.to_string().into_bytes();
            handle.set(&key, &vec![n as u8; bytes], &SetOptions { expiry, ..SetOptions::default() }, NOW);
        }
        let memory = store.crashed();
        let used = store.log.page().fresh.load(Ordering::Relaxed) as usize * memory.segment_bytes;
        for (at, in_head, byte) in damage {
            let at = at.index(used);
            let at = if in_head { at / memory.segment_bytes * memory.segment_bytes + at % SEGMENT_HEADER_BYTES } else { at };
            write_byte(&memory, at, byte);
        }
        let (mut second, _) = restored(memory);
        for n in 0..sizes.len() {
            value_at(&mut second, n.to_string().as_bytes());
        }
        for n in 0..if cfg!(miri) { 20 } else { 200 } {
            set(&mut second, format!("after-{}", n % 50).as_bytes(), &vec![1; n * 100]);
            second.maintain(NOW + n as u32);
        }
        let stats = second.store().stats();
        assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
    }
}

#[allow(unsafe_code)]
fn write_byte(memory: &Memory, at: usize, byte: u8) {
    // SAFETY: inside the copy, which nobody uses yet.
    unsafe { memory.segments.at(at).write(byte) };
}
