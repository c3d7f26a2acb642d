//! Memory files: what is the same when a store is opened again, and which files are not used.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use nuthatch_store::{
    Config, DeleteOptions, Emptied, MemoryFile, MetaGet, NEVER, Restored, SetOptions, SetOutcome, Store, StoreError,
};

const NOW: u32 = 1_700_000_000;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("memory")
    }

    fn open(&self, config: Config, boot: Option<u128>) -> (Arc<Store>, Restored) {
        open(&self.path(), config, boot).unwrap()
    }
}

fn open(path: &Path, config: Config, boot: Option<u128>) -> Result<(Arc<Store>, Restored), StoreError> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    Store::open(config, MemoryFile { file, boot }, NOW, &mut |_| {})
}

fn config() -> Config {
    Config::new(8 << 20)
}

/// A file with one item, whose server was stopped or killed.
fn left(place: &Place, boot: Option<u128>, is_closed: bool) {
    let (store, _) = place.open(config(), boot);
    store.handle().set(b"key", b"value", &SetOptions::default(), NOW);
    if is_closed {
        store.close(NOW).unwrap();
    }
}

#[test]
fn an_item_is_what_it_was_in_every_respect() {
    let place = Place::new();
    let (store, restored) = place.open(config(), None);
    assert_eq!(restored, Restored::default(), "a new file is empty");
    let mut handle = store.handle();
    let value: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let options = SetOptions { flags: 0xdead_beef, expiry: NOW + 5000, want_cas: true, ..SetOptions::default() };
    let SetOutcome::Stored { cas } = handle.set(b"all", &value, &options, NOW) else { panic!() };
    handle.set(b"own cas", b"x", &SetOptions { cas: Some(77), ..SetOptions::default() }, NOW);
    handle.set(b"stale", b"x", &SetOptions::default(), NOW);
    handle.delete(b"stale", &DeleteOptions { invalidate: true, ..DeleteOptions::default() }, NOW);
    assert!(handle.meta_get(b"stale", &MetaGet::default(), NOW).won);
    handle.get(b"all", NOW + 90);
    drop(handle);
    assert!(store.close(NOW + 90).is_ok());
    drop(store);

    let (store, restored) = place.open(config(), None);
    assert_eq!((restored.items, restored.emptied), (3, None));
    let mut handle = store.handle();
    let hit = handle.peek(b"all", NOW + 100).unwrap();
    assert!(hit.value().collect::<Vec<_>>().concat() == value);
    assert_eq!((hit.flags(), hit.expiry(), hit.cas()), (0xdead_beef, NOW + 5000, cas));
    assert_eq!((hit.fetched_before(), hit.last_access(), hit.stale()), (true, NOW + 90, false));
    drop(hit);
    let hit = handle.peek(b"own cas", NOW).unwrap();
    assert_eq!((hit.cas(), hit.fetched_before(), hit.expiry()), (77, false, NEVER));
    drop(hit);
    let hit = handle.peek(b"stale", NOW).unwrap();
    assert!(hit.stale() && hit.win_sent());
    drop(hit);
    let stats = store.stats();
    assert_eq!((stats.items, stats.total_items), (3, 3));
    // What it was compared with before holds, and only once.
    let compare = SetOptions { compare: Some(cas), ..SetOptions::default() };
    assert_eq!(handle.set(b"all", b"new", &compare, NOW), SetOutcome::Stored { cas: 0 });
    assert_eq!(handle.set(b"all", b"newer", &compare, NOW), SetOutcome::Exists);
    let SetOutcome::Stored { cas: newer } = handle.set(b"all", b"x", &options, NOW) else { panic!() };
    assert!(newer > cas);
}

#[test]
fn a_file_is_used_again_after_a_stop_always_and_after_a_kill_while_the_machine_ran_on() {
    let unfinished = Some(Emptied::Unfinished);
    for (is_closed, before, after, emptied) in [
        (true, Some(1), Some(2), None),
        (true, None, None, None),
        (false, Some(1), Some(1), None),
        (false, Some(1), Some(1 << 64 | 1), unfinished),
        (false, Some(1), None, unfinished),
        (false, None, None, unfinished),
    ] {
        let place = Place::new();
        left(&place, before, is_closed);
        let (store, restored) = place.open(config(), after);
        assert_eq!(restored.emptied, emptied, "{is_closed} {before:?} {after:?}");
        assert_eq!(store.handle().get(b"key", NOW).is_some(), emptied.is_none());
        drop(store);
        // The mark of the stop was for one start.
        let (_, restored) = place.open(config(), Some(99));
        assert_eq!(restored.emptied, unfinished);
    }
}

#[test]
fn a_copy_of_a_file_in_use_is_not_used_and_one_of_a_closed_file_is() {
    for is_closed in [true, false] {
        let place = Place::new();
        left(&place, Some(1), is_closed);
        let copy = place.0.path().join("copy");
        std::fs::copy(place.path(), &copy).unwrap();
        let (_, restored) = open(&copy, config(), Some(1)).unwrap();
        assert_eq!((restored.items, restored.emptied.is_none()), (u64::from(is_closed), is_closed));
    }
}

#[test]
fn a_file_of_something_else_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    for bytes in [1, 4096, 3 << 20] {
        std::fs::write(place.path(), vec![b'n'; bytes]).unwrap();
        let Err(error) = open(&place.path(), config(), None) else { panic!("{bytes} bytes of letters are opened") };
        assert!(matches!(error, StoreError::NotAMemoryFile));
        assert_eq!(std::fs::read(place.path()).unwrap(), vec![b'n'; bytes]);
    }
    // Space that was set aside for it is fine.
    File::create(place.path()).unwrap().set_len(64 << 20).unwrap();
    assert_eq!(place.open(config(), None).1, Restored::default());
}

#[test]
fn a_file_of_another_layout_or_a_damaged_one_begins_anew() {
    for (at, byte, emptied) in [(8, 99, Emptied::OtherLayout), (12, 1, Emptied::Damaged), (15, 77, Emptied::Damaged)] {
        let place = Place::new();
        left(&place, None, true);
        let mut file = File::options().read(true).write(true).open(place.path()).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[byte]).unwrap();
        let (store, restored) = place.open(config(), None);
        assert_eq!((restored.items, restored.emptied), (0, Some(emptied)));
        let mut handle = store.handle();
        handle.set(b"key", b"new", &SetOptions::default(), NOW);
        assert_eq!(handle.get(b"key", NOW).unwrap().value_whole().unwrap(), b"new");
    }
}

#[test]
fn a_smaller_limit_keeps_what_it_has_room_for_and_a_larger_one_everything() {
    for evict in [true, false] {
        let place = Place::new();
        let config = |megabytes: usize| Config { evict, ..Config::new(megabytes << 20) };
        let (store, _) = place.open(config(32), None);
        let mut handle = store.handle();
        let value = [5; 1000];
        for n in 0..24_000u32 {
            handle.set(&n.to_le_bytes(), &value, &SetOptions::default(), NOW);
        }
        assert_eq!(store.stats().items, 24_000);
        drop(handle);
        store.close(NOW).unwrap();
        drop(store);
        for (megabytes, least) in [(64, 24_000), (16, 12_000), (8, 5000), (32, 5000)] {
            let (store, restored) = place.open(config(megabytes), None);
            let stats = store.stats();
            assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
            assert!(restored.items >= least, "{restored:?} in {megabytes} MiB");
            assert_eq!(restored.emptied, None);
            let mut handle = store.handle();
            let mut found = 0;
            for n in 0..24_000u32 {
                found += u64::from(handle.get(&n.to_le_bytes(), NOW).is_some());
            }
            assert_eq!(found, restored.items);
            let written = handle.set(b"one more", &value, &SetOptions::default(), NOW);
            assert!(written == SetOutcome::Stored { cas: 0 } || !evict);
            handle.delete(b"one more", &DeleteOptions::default(), NOW);
            drop(handle);
            store.close(NOW).unwrap();
        }
        // Segments for 32 MiB are too large for one.
        let (_, restored) = place.open(Config { item_bytes_max: 100_000, ..config(1) }, None);
        assert_eq!(restored.emptied, Some(Emptied::TooCoarse { least: 2 << 20 }));
    }
}

#[test]
fn a_limit_can_be_raised_beyond_the_first_length_of_the_file() {
    let place = Place::new();
    let (store, _) = place.open(Config { memory_bytes_max: 64 << 20, ..config() }, None);
    let mut handle = store.handle();
    store.set_memory_limit(64 << 20).unwrap();
    for n in 0..40_000u32 {
        handle.set(&n.to_le_bytes(), &[1; 1000], &SetOptions::default(), NOW);
    }
    assert_eq!(store.stats().evictions, 0);
    drop(handle);
    store.close(NOW).unwrap();
    drop(store);
    assert_eq!(place.open(Config::new(64 << 20), None).1.items, 40_000);
}

#[test]
fn only_pages_in_use_take_up_space_and_they_are_given_back() {
    // Where holes can be made: not every file system of a temporary directory does that.
    let place = Place(tempfile::tempdir_in("/dev/shm").unwrap());
    let blocks = || std::fs::metadata(place.path()).unwrap().blocks() * 512;
    let (store, _) = place.open(Config::new(64 << 20), None);
    assert!(blocks() < 1 << 20, "{} bytes for nothing", blocks());
    let mut handle = store.handle();
    for n in 0..40_000u32 {
        handle.set(&n.to_le_bytes(), &[1; 1000], &SetOptions::default(), NOW);
    }
    assert!((40_000_000..64 << 20).contains(&blocks()), "{} bytes for 40 MB", blocks());
    store.set_memory_limit(16 << 20).unwrap();
    handle.maintain(NOW);
    assert!(blocks() <= 16 << 20, "{} bytes", blocks());
    for n in 0..40_000u32 {
        handle.delete(&n.to_le_bytes(), &DeleteOptions::default(), NOW);
    }
    drop(handle);
    store.close(NOW).unwrap();
    drop(store);
    place.open(Config::new(64 << 20), None);
    assert!(blocks() < 1 << 20, "{} bytes for nothing", blocks());
}

#[test]
fn a_store_in_use_is_not_closed() {
    let place = Place::new();
    let (store, _) = place.open(config(), None);
    let handle = store.handle();
    assert!(store.close(NOW).is_err());
    drop(handle);
    assert!(store.close(NOW).is_ok());
    drop(store);
    let mut magic = [0; 8];
    File::open(place.path()).unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"nuthatch");
}

#[test]
fn eviction_goes_on_in_the_order_it_had() {
    let place = Place::new();
    let (store, _) = place.open(config(), None);
    let mut handle = store.handle();
    let set = |handle: &mut nuthatch_store::Handle, n: u32| {
        handle.set(&n.to_le_bytes(), &[1; 1000], &SetOptions::default(), NOW);
    };
    for n in 0..6500u32 {
        set(&mut handle, n);
    }
    for n in 0..500u32 {
        handle.get(&n.to_le_bytes(), NOW).unwrap();
    }
    assert_eq!(store.stats().evictions, 0);
    drop(handle);
    store.close(NOW).unwrap();
    drop(store);
    let (store, _) = place.open(config(), None);
    let mut handle = store.handle();
    for n in 10_000..13_000 {
        set(&mut handle, n);
    }
    let mut left = |range: std::ops::Range<u32>| range.filter(|n| handle.peek(&n.to_le_bytes(), NOW).is_some()).count();
    let (hit, old, new) = (left(0..500), left(500..2000), left(5000..6500));
    assert!(hit > 450, "{hit} of 500 that were hit are left");
    assert!(old < 300 && new > 1300, "{old} of the oldest and {new} of the newest 1,500 are left");
}
