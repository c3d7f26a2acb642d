//! Which items stay: S3-FIFO's rules, made aware of sizes, and the ghosts they need.
//!
//! Owns the thresholds and the table of ghosts: fingerprints of keys that left probation without a hit. A key that
//! comes back while its ghost is remembered goes to main at once.
//!
//! The rules, with `w` an item's size over the mean size of what was stored of late:
//!
//! * Room is paid for in hits: a pass through main costs `w` of them, at least an eighth, at most three, and fractions
//!   are paid by chance. What is small stays for several passes on one hit.
//! * An item leaves probation for main if it was hit once, and `w` times if that is more.
//! * An item enters main with one hit to its credit if it is smaller than a quarter of the mean.
//! * Only items of at most the mean leave a ghost, so that the table remembers those that cost little to keep.
//! * What is small beside all that was stored of late, and not beside what main held when it was last passed, pays at
//!   least half of what it would by that; where main's mean is a sixth of what is stored now, what is small pays three hits;
//!   and so does everything in a main that was left behind (`age`).
//!
//! Measured on five traces at 24 and 96 MiB, of the misses of a memcached 1.6.45: with room at one hit up to twice the
//! mean, two up to four times and three beyond .833 are left, with these rules .791 (`bench/results` has a run side by
//! side). With items of one size both are plain S3-FIFO.
//!
//! What never happens here: touching a record, a segment or the index.

use std::io;
use std::ops::RangeInclusive;

use crate::{
    arena::Table,
    index::RANK_MAX,
    segment::Queue,
    sync::{AtomicU32, AtomicU64, Mutex, Ordering},
};

/// Of the budget, one part in this many is the table of ghosts.
const GHOST_SHARE: usize = 200;
/// What one hit pays, in the unit of the cost of room.
const HIT: u64 = 16;
/// The least that a pass through main costs: an eighth of a hit.
const COST_MIN: u64 = HIT / 8;
/// The most: what is asked for all the time can pay it, however large it is.
const COST_MAX: u64 = HIT * RANK_MAX as u64;
/// Means that differ by this factor are of another size.
const ANOTHER_SIZE: u64 = 6;

/// Words in a bucket of ghosts: one cache line of 32 fingerprints, the newest in the low bits of the first word.
const WORDS_PER_BUCKET: usize = 8;
const GHOSTS_PER_WORD: usize = 4;
const GHOST_BITS: u32 = 16;

pub(crate) struct Policy {
    ghosts: Table<AtomicU64>,
    buckets: u64,
    /// Of the probation segments sealed of late: what is stored now.
    stored: Mean,
    /// Of the items that eviction found in main's segments of late.
    main: Mean,
    sealed: AtomicU64,
}

/// A mean size of records, older ones counting less.
struct Mean {
    /// Bytes and records, each times 64.
    recent: Mutex<(u64, u64)>,
    /// One over the other, in bytes. 0: not known yet.
    bytes: AtomicU32,
}

impl Mean {
    fn new() -> Mean {
        Mean { recent: Mutex::new((0, 0)), bytes: AtomicU32::new(0) }
    }

    /// Takes a segment's records into account.
    fn take(&self, bytes: usize, records: u32) {
        let mut recent = self.recent.lock();
        // The last 64 segments or so, which is about probation's share of a thousand.
        recent.0 = recent.0 * 63 / 64 + bytes as u64 * 64;
        recent.1 = recent.1 * 63 / 64 + u64::from(records) * 64;
        if let Some(mean) = recent.0.checked_div(recent.1) {
            self.bytes.store(mean.max(1) as u32, Ordering::Relaxed);
        }
    }

    fn forget(&self) {
        *self.recent.lock() = (0, 0);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        u64::from(self.bytes.load(Ordering::Relaxed))
    }
}

impl Policy {
    /// # Errors
    /// The address space cannot be reserved.
    pub(crate) fn new(memory_bytes: usize) -> io::Result<Policy> {
        let buckets = (memory_bytes / GHOST_SHARE / (WORDS_PER_BUCKET * 8)).max(4);
        Ok(Policy {
            ghosts: Table::new(buckets * WORDS_PER_BUCKET)?,
            buckets: buckets as u64,
            stored: Mean::new(),
            main: Mean::new(),
            sealed: AtomicU64::new(0),
        })
    }

    /// Memory of the ghosts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets as usize * WORDS_PER_BUCKET * 8
    }

    /// Notes what a probation segment held when it was sealed: bytes, and the records that began in it.
    pub(crate) fn sealed(&self, bytes: usize, records: u32) {
        self.stored.take(bytes, records);
        self.sealed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the live records that a segment of main held when it was emptied.
    pub(crate) fn passed(&self, bytes: usize, records: u32) {
        self.main.take(bytes, records);
    }

    /// Segments of probation sealed so far.
    pub(crate) fn sealed_segments(&self) -> u64 {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Whether what main held when it was last passed is about as large as what is stored now. `None`: not known yet.
    pub(crate) fn is_of_one_size(&self) -> Option<bool> {
        let (stored, main) = (self.stored.bytes(), self.main.bytes());
        (stored > 0 && main > 0).then(|| self.sizes_now().contains(&main))
    }

    /// The sizes of records that are of one size with what is stored now.
    pub(crate) fn sizes_now(&self) -> RangeInclusive<u64> {
        let stored = self.stored.bytes();
        stored / ANOTHER_SIZE..=stored * ANOTHER_SIZE
    }

    /// What main held is gone.
    pub(crate) fn forget_main(&self) {
        self.main.forget();
    }

    /// What staying costs, in sixteenths of a hit.
    fn cost(&self, from: Queue, record_bytes: u64, is_left_behind: bool) -> u64 {
        let stored = self.stored.bytes();
        let by_stored = (HIT * record_bytes).checked_div(stored).unwrap_or(HIT);
        match (from, self.main.bytes()) {
            (Queue::Probation, _) => by_stored.clamp(HIT, COST_MAX),
            (Queue::Main, 0) => by_stored.clamp(COST_MIN, COST_MAX),
            (Queue::Main, _) if is_left_behind => COST_MAX,
            (Queue::Main, main) if stored > ANOTHER_SIZE * main && record_bytes < stored => COST_MAX,
            (Queue::Main, main) => {
                let by_main = HIT / 2 * record_bytes / main;
                by_stored.clamp(by_main.clamp(COST_MIN, HIT), COST_MAX)
            }
        }
    }

    /// Hits an item starts with in main.
    fn start(&self, record_bytes: usize) -> u8 {
        u8::from(4 * (record_bytes as u64) < self.stored.bytes())
    }

    /// Where an item of the oldest segment of a queue goes, and with which rank. `None`: it leaves. `place` is where it
    /// was, which is another one each time: chance comes from it. `is_left_behind`: main is full of what nobody asks for.
    pub(crate) fn keep(
        &self,
        from: Queue,
        rank: u8,
        record_bytes: usize,
        place: u64,
        is_left_behind: bool,
    ) -> Option<(Queue, u8)> {
        debug_assert!(rank <= RANK_MAX);
        let cost = self.cost(from, record_bytes as u64, is_left_behind);
        // Fibonacci hashing (Knuth, volume 3, 6.4): neighbouring places fall far apart.
        let chance = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - HIT.ilog2());
        let need = (cost / HIT) as u8 + u8::from(chance < cost % HIT);
        match from {
            _ if rank < need => None,
            Queue::Probation => Some((Queue::Main, self.start(record_bytes))),
            Queue::Main => Some((Queue::Main, rank - need)),
        }
    }

    /// Where a new item begins, and with which rank. `items` is about how many the store holds.
    pub(crate) fn admit(&self, hash: u64, record_bytes: usize, items: usize) -> (Queue, u8) {
        if self.forget_ghost(hash, items) { (Queue::Main, self.start(record_bytes)) } else { (Queue::Probation, 0) }
    }

    /// An item was evicted.
    pub(crate) fn evicted(&self, from: Queue, hash: u64, record_bytes: usize) {
        if from == Queue::Probation && record_bytes as u64 <= self.stored.bytes() {
            self.remember_ghost(hash);
        }
    }

    /// A key's bucket and fingerprint (never 0: that is an empty place).
    fn ghost_of(&self, hash: u64) -> (&[AtomicU64], u64) {
        let bucket = ((hash >> 32) * self.buckets) >> 32;
        let fingerprint = (hash & ((1 << GHOST_BITS) - 1)).max(1);
        (self.ghosts.range(bucket as usize * WORDS_PER_BUCKET, WORDS_PER_BUCKET), fingerprint)
    }

    /// Puts a ghost in front of its bucket; the last one falls out. Two threads that do so at once can lose or double a
    /// ghost, which costs a miss at most.
    fn remember_ghost(&self, hash: u64) {
        let (words, fingerprint) = self.ghost_of(hash);
        let mut carry = fingerprint;
        for word in words {
            let seen = word.load(Ordering::Relaxed);
            word.store(seen << GHOST_BITS | carry, Ordering::Relaxed);
            carry = seen >> (64 - GHOST_BITS);
        }
    }

    /// Was this key's ghost remembered? It is not any more. Ghosts live until about as many items were evicted as the
    /// store holds: a longer memory lets in what would not stay.
    fn forget_ghost(&self, hash: u64, items: usize) -> bool {
        const ONES: u64 = u64::MAX / ((1 << GHOST_BITS) - 1);
        let (words, fingerprint) = self.ghost_of(hash);
        let life = items.div_ceil(self.buckets as usize).clamp(1, WORDS_PER_BUCKET * GHOSTS_PER_WORD);
        for (n, word) in words[..life.div_ceil(GHOSTS_PER_WORD)].iter().enumerate() {
            let seen = word.load(Ordering::Relaxed);
            // The lowest of the four that is equal leaves the lowest top bit. (Those above it may be false.)
            let differences = seen ^ (fingerprint * ONES);
            let equal = differences.wrapping_sub(ONES) & !differences & (ONES << (GHOST_BITS - 1));
            if equal != 0 {
                let place = equal.trailing_zeros() / GHOST_BITS;
                if n * GHOSTS_PER_WORD + place as usize >= life {
                    return false;
                }
                word.store(seen & !(((1 << GHOST_BITS) - 1) << (place * GHOST_BITS)), Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        let mixed = (n ^ n >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 32).wrapping_mul(0x94D0_49BB_1331_11EB)
    }

    #[test]
    fn a_ghost_is_remembered_once_and_until_a_cacheful_was_evicted() {
        let policy = Policy::new(1 << 20).unwrap();
        policy.sealed(10_000, 100);
        assert_eq!(policy.admit(hash(1), 100, 1000).0, Queue::Probation);
        policy.evicted(Queue::Probation, hash(1), 100);
        policy.evicted(Queue::Main, hash(2), 100);
        assert_eq!(policy.admit(hash(2), 100, 1000).0, Queue::Probation, "what leaves main leaves no ghost");
        assert_eq!(policy.admit(hash(1), 100, 1000).0, Queue::Main);
        assert_eq!(policy.admit(hash(1), 100, 1000).0, Queue::Probation);
        policy.evicted(Queue::Probation, hash(3), 101);
        assert_eq!(policy.admit(hash(3), 101, 1000).0, Queue::Probation, "what is large leaves no ghost");
        policy.evicted(Queue::Probation, hash(4), 100);
        for n in 0..3000 {
            policy.evicted(Queue::Probation, hash(100 + n), 100);
        }
        assert_eq!(policy.admit(hash(4), 100, 1000).0, Queue::Probation);
        assert_eq!(policy.admit(hash(3099), 100, 1000).0, Queue::Main);
    }

    #[test]
    fn what_is_large_has_to_earn_its_room() {
        let policy = Policy::new(1 << 20).unwrap();
        for _ in 0..1000 {
            policy.sealed(10_000, 100);
        }
        let stays = |from, rank, bytes| {
            (0..160).filter_map(|place| policy.keep(from, rank, bytes, place, false)).collect::<Vec<_>>()
        };
        let always = |queue, rank| vec![(queue, rank); 160];
        for (from, rank, bytes) in [
            (Queue::Probation, 0, 10),
            (Queue::Probation, 1, 250),
            (Queue::Probation, 2, 400),
            (Queue::Main, 0, 100),
            (Queue::Main, 2, 400),
        ] {
            assert!(stays(from, rank, bytes).len() < 160, "{rank} hits do not pay for {bytes} bytes every time");
        }
        assert_eq!(stays(Queue::Probation, 0, 10), [], "nothing leaves probation for nothing");
        assert_eq!(stays(Queue::Probation, 2, 400), []);
        assert_eq!(stays(Queue::Main, 2, 400), []);
        assert_eq!(stays(Queue::Main, 3, 10_000), always(Queue::Main, 0), "what is asked for all the time stays");
        assert_eq!(stays(Queue::Probation, 1, 100), always(Queue::Main, 0));
        assert_eq!(stays(Queue::Probation, 1, 20), always(Queue::Main, 1));
        assert_eq!(stays(Queue::Probation, 2, 200), always(Queue::Main, 0));
        assert_eq!(stays(Queue::Main, 3, 300), always(Queue::Main, 0));
        assert_eq!(stays(Queue::Main, 3, 100), always(Queue::Main, 2));
    }

    #[test]
    fn fractions_of_a_hit_are_paid_by_chance() {
        let policy = Policy::new(1 << 20).unwrap();
        policy.sealed(10_000, 100);
        for (bytes, sixteenths) in [(100, 16), (50, 8), (25, 4), (1, 2)] {
            let left = (0..16_000).filter(|&place| policy.keep(Queue::Main, 0, bytes, place, false).is_none()).count();
            assert!(left.abs_diff(1000 * sixteenths) < 100, "{bytes} of 100 bytes: {left} of 16000 had to pay");
        }
    }

    #[test]
    fn what_main_is_full_of_pays_when_much_larger_items_come() {
        let policy = Policy::new(1 << 20).unwrap();
        policy.sealed(1_000_000, 100);
        policy.passed(10_000, 100);
        assert_eq!(policy.keep(Queue::Main, 2, 100, 1, false), None);
        assert_eq!(policy.keep(Queue::Main, 3, 100, 1, false), Some((Queue::Main, 0)));
        policy.passed(1_000_000, 200);
        assert!((0..160).any(|place| policy.keep(Queue::Main, 0, 100, place, false).is_some()));
        assert_eq!(policy.keep(Queue::Main, 2, 10_000, 1, true), None, "what was left behind, whatever its size");
    }
}
