//! Every order in which threads can meet, for the parts that threads share: the index, the epochs, a segment's life.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nuthatch-store --release loom`. Two or three threads and a few steps
//! each: loom tries all their interleavings, and all values that weak memory could show them.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use crate::{
    epoch::Epochs,
    index::{Index, Place},
    record::Group,
    segment::{Queue, Segment},
    watermarks::{self, Bucket, Watermarks},
};

/// What lies at a place: here a cell that says which key's record it is, 0 for none.
struct Memory(Vec<AtomicU64>);

impl Memory {
    fn new(places: usize) -> Memory {
        Memory((0..=places).map(|_| AtomicU64::new(0)).collect())
    }

    fn write(&self, place: u64, key: u64) {
        self.0[place as usize].store(key, Ordering::Relaxed);
    }

    fn holds(&self, place: Place, key: u64) -> bool {
        self.0[place.0 as usize].load(Ordering::Relaxed) == key
    }
}

#[test]
fn a_reader_finds_the_old_record_or_the_new_one_and_never_none() {
    loom::model(|| {
        let index = Arc::new(Index::new(1, 16).unwrap());
        let memory = Arc::new(Memory::new(4));
        let hash = index.hash(0x0012_3456);
        memory.write(1, 7);
        index.lock(hash).insert(hash, Place(1), 0).unwrap();
        let writer = {
            let (index, memory) = (Arc::clone(&index), Arc::clone(&memory));
            thread::spawn(move || {
                memory.write(2, 7);
                let mut shard = index.lock(hash);
                let entry = shard.find(hash, |place| memory.holds(place, 7)).unwrap();
                shard.replace(entry, Place(2), 0);
            })
        };
        let found = index.find(hash, |place| memory.holds(place, 7)).expect("the key is there all the time");
        assert!(found.place == Place(1) || found.place == Place(2));
        found.raise_rank();
        writer.join().unwrap();
        let shard = index.lock(hash);
        assert_eq!(shard.find(hash, |_| true).unwrap().place, Place(2));
    });
}

#[test]
fn a_shard_that_is_laid_out_anew_hides_no_key_from_a_reader() {
    loom::model(|| {
        let index = Arc::new(Index::new(1, 16).unwrap());
        // Eight slots make one bucket; the ninth key makes the shard grow.
        let tag = |key: u64| key.wrapping_mul(0x0055_5555) & 0x00ff_ffff;
        for key in 1..=7u64 {
            let hash = index.hash(tag(key));
            index.lock(hash).insert(hash, Place(key), 0).unwrap();
        }
        let writer = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let hash = index.hash(tag(8));
                index.lock(hash).insert(hash, Place(8), 0).unwrap();
            })
        };
        let hash = index.hash(tag(3));
        let found = index.find(hash, |place| place == Place(3));
        assert!(found.is_some(), "the third key is there all the time");
        writer.join().unwrap();
        for key in 1..=8u64 {
            let hash = index.hash(tag(key));
            assert!(index.find(hash, |place| place == Place(key)).is_some());
        }
    });
}

#[test]
fn writers_of_one_key_leave_one_entry() {
    loom::model(|| {
        let index = Arc::new(Index::new(1, 16).unwrap());
        let hash = index.hash(0x00ab_cdef);
        let writers: Vec<_> = [1u64, 2]
            .into_iter()
            .map(|place| {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    let mut shard = index.lock(hash);
                    match shard.find(hash, |_| true) {
                        Some(entry) => shard.replace(entry, Place(place), 0),
                        None => shard.insert(hash, Place(place), 0).unwrap(),
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(index.lock(hash).places().len(), 1);
    });
}

#[test]
fn memory_a_pinned_reader_found_is_not_used_again() {
    loom::model(|| {
        let epochs = Arc::new(Epochs::new());
        let entry = Arc::new(AtomicU64::new(1));
        let reused = Arc::new(AtomicBool::new(false));
        let reader = {
            let (epochs, entry, reused) = (Arc::clone(&epochs), Arc::clone(&entry), Arc::clone(&reused));
            thread::spawn(move || {
                let reader = epochs.reader();
                let pin = reader.pin(&epochs);
                if entry.load(Ordering::Acquire) == 1 {
                    assert!(!reused.load(Ordering::Relaxed), "the record was reused while a reader looked at it");
                }
                drop(pin);
                epochs.forget(&reader);
            })
        };
        entry.store(0, Ordering::Release);
        let retired = epochs.retire();
        if retired < epochs.safe_below() {
            reused.store(true, Ordering::Relaxed);
        }
        reader.join().unwrap();
        assert!(retired < epochs.safe_below(), "with no reader left the memory is free");
    });
}

#[test]
fn a_segment_whose_last_record_dies_is_claimed_exactly_once() {
    loom::model(|| {
        let segment = Arc::new(Segment::new());
        segment.open(1, Queue::Probation, Group::NEVER, 0);
        let claims = Arc::new(AtomicU64::new(0));
        let deaths: Vec<_> = (0..2)
            .map(|_| {
                let (segment, claims) = (Arc::clone(&segment), Arc::clone(&claims));
                thread::spawn(move || {
                    if segment.part_died(10) {
                        claims.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        if segment.seal(52, 2) {
            claims.fetch_add(1, Ordering::Relaxed);
        }
        for death in deaths {
            death.join().unwrap();
        }
        assert_eq!(claims.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_segment_is_evicted_or_dies_but_not_both() {
    loom::model(|| {
        let segment = Arc::new(Segment::new());
        segment.open(1, Queue::Probation, Group::NEVER, 0);
        segment.begin_pending();
        assert!(!segment.seal(52, 1));
        let claims = Arc::new(AtomicU64::new(0));
        let filler = {
            let (segment, claims) = (Arc::clone(&segment), Arc::clone(&claims));
            thread::spawn(move || {
                // Abandoned: dead, then no longer pending.
                let first = segment.part_died(20);
                let second = segment.end_pending();
                assert!(!(first && second));
                claims.fetch_add(u64::from(first || second), Ordering::Relaxed);
            })
        };
        if segment.claim() {
            claims.fetch_add(1, Ordering::Relaxed);
        }
        filler.join().unwrap();
        assert_eq!(claims.load(Ordering::Relaxed), 1);
    });
}

/// What is forgotten of one hash, beside the number that is given next and the newest watermark, as the log keeps them.
struct Forgetful {
    table: [Bucket; 1],
    next: AtomicU64,
    newest: AtomicU64,
}

impl Forgetful {
    fn new() -> Forgetful {
        Forgetful { table: [Bucket::new()], next: AtomicU64::new(5), newest: AtomicU64::new(0) }
    }

    fn table(&self) -> Watermarks<'_> {
        Watermarks::new(&self.table)
    }

    fn forget(&self, hash: u64) -> u64 {
        let noted = |below| self.newest.store(below, Ordering::Release);
        watermarks::forget(self.table(), &self.next, hash, noted).0
    }

    fn is_forgotten(&self, hash: u64, birth: u64) -> bool {
        birth < self.newest.load(Ordering::Acquire) && birth < self.table().below(hash)
    }

    /// The birth of what is placed now in a segment whose number is `segment`.
    fn birth(&self, hash: u64, segment: u64) -> u64 {
        let watermark = if self.newest.load(Ordering::Acquire) == 0 { 0 } else { self.table().below(hash) };
        if watermark == 0 { segment } else { self.next.load(Ordering::Acquire).max(watermark) }
    }
}

#[test]
fn a_copy_that_meets_a_forgetting_is_forgotten_with_what_it_copies() {
    for opened_now in [false, true] {
        loom::model(move || {
            let all = Arc::new(Forgetful::new());
            // The birth of the record that the index leads to, under its shard's lock; 0: there is none.
            let item = Arc::new(crate::sync::Mutex::new(3u64));
            let copier = {
                let (all, item) = (Arc::clone(&all), Arc::clone(&item));
                thread::spawn(move || {
                    // A new segment takes its number as the log does; an open one has one already.
                    let segment = if opened_now { all.next.load(Ordering::Acquire) } else { 4 };
                    let birth = all.birth(7, segment);
                    let mut record = item.lock();
                    *record = if all.is_forgotten(7, *record) { 0 } else { birth };
                })
            };
            all.forget(7);
            let shown = |record: u64| record != 0 && !all.is_forgotten(7, record);
            assert!(!shown(*item.lock()), "it is shown after it was forgotten");
            copier.join().unwrap();
            assert!(!shown(*item.lock()), "its copy is shown");
            // And what is stored from now on is not forgotten.
            assert!(shown(all.birth(7, 4)));
        });
    }
}

#[test]
fn a_watermark_that_is_folded_is_seen_all_the_time() {
    loom::model(|| {
        let all = Arc::new(Forgetful::new());
        let below = all.forget(1);
        let other = {
            let all = Arc::clone(&all);
            thread::spawn(move || all.forget(2))
        };
        assert!(all.table().below(1) >= below);
        let later = other.join().unwrap();
        assert!(all.table().below(1) >= below && all.table().below(2) == later);
    });
}

#[test]
fn a_watermark_stays_until_nobody_can_have_found_what_it_forgets() {
    loom::model(|| {
        let all = Arc::new(Forgetful::new());
        let epochs = Arc::new(Epochs::new());
        let entry = Arc::new(AtomicU64::new(1));
        let below = all.forget(7);
        let reader = {
            let (all, epochs, entry) = (Arc::clone(&all), Arc::clone(&epochs), Arc::clone(&entry));
            thread::spawn(move || {
                let reader = epochs.reader();
                let pin = reader.pin(&epochs);
                if entry.load(Ordering::Acquire) == 1 {
                    assert!(all.is_forgotten(7, 3), "it is shown after it was forgotten");
                }
                drop(pin);
                epochs.forget(&reader);
            })
        };
        // The sweep.
        entry.store(0, Ordering::Release);
        let over = epochs.retire();
        if over < epochs.safe_below() {
            all.table().clear_upto(below);
        }
        reader.join().unwrap();
    });
}
