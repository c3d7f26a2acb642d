//! Which items stay: S3-FIFO's rules, made aware of sizes, and the ghosts they need.
//!
//! Owns the thresholds and the table of ghosts: fingerprints of keys that left probation without a hit. A key that
//! comes back while its ghost is remembered goes to main at once.
//!
//! The rules, with `w` an item's size over the mean size of what was stored of late:
//!
//! * An item leaves probation for main if it was hit `need(w)` times: once, twice above 2 means, three times above 4. A
//!   pass through main takes as many. What is large has to earn the room that several small ones would take.
//! * An item enters main with one hit to its credit if it is smaller than half the mean.
//! * Only items of at most the mean leave a ghost, so that the table remembers those that cost little to keep.
//!
//! Simulated on five traces at 24 and 96 MiB, of the misses that one memcached had: plain S3-FIFO leaves .772 of them,
//! these rules .722; without ghosts .767, with a fixed threshold .775. With items of one size they are plain S3-FIFO.
//! (What is left of memcached 1.6.45's misses in one run with it is in `bench/results`.)
//!
//! What never happens here: touching a record, a segment or the index.

use std::io;

use crate::{
    arena::Table,
    index::RANK_MAX,
    segment::Queue,
    sync::{AtomicU32, AtomicU64, Mutex, Ordering},
};

/// Of the budget, one part in this many is the table of ghosts.
const GHOST_SHARE: usize = 200;
/// Words in a bucket of ghosts: one cache line of 32 fingerprints, the newest in the low bits of the first word.
const WORDS_PER_BUCKET: usize = 8;
const GHOSTS_PER_WORD: usize = 4;
const GHOST_BITS: u32 = 16;

pub(crate) struct Policy {
    ghosts: Table<AtomicU64>,
    buckets: u64,
    /// Bytes of and records begun in the probation segments sealed of late, older ones counting less.
    recent: Mutex<(u64, u64)>,
    /// Their mean, in bytes.
    mean_bytes: AtomicU32,
}

impl Policy {
    /// # Errors
    /// The address space cannot be reserved.
    pub(crate) fn new(memory_bytes: usize) -> io::Result<Policy> {
        let buckets = (memory_bytes / GHOST_SHARE / (WORDS_PER_BUCKET * 8)).max(4);
        Ok(Policy {
            ghosts: Table::new(buckets * WORDS_PER_BUCKET)?,
            buckets: buckets as u64,
            recent: Mutex::new((0, 0)),
            mean_bytes: AtomicU32::new(0),
        })
    }

    /// Memory of the ghosts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets as usize * WORDS_PER_BUCKET * 8
    }

    /// Notes what a probation segment held when it was sealed: bytes, and the records that began in it.
    pub(crate) fn sealed(&self, bytes: usize, records: u32) {
        let mut recent = self.recent.lock();
        // The last 64 segments or so, which is about probation's share of a thousand.
        recent.0 = recent.0 * 63 / 64 + bytes as u64 * 64;
        recent.1 = recent.1 * 63 / 64 + u64::from(records) * 64;
        if let Some(mean) = recent.0.checked_div(recent.1) {
            self.mean_bytes.store(mean.max(1) as u32, Ordering::Relaxed);
        }
    }

    fn mean_bytes(&self) -> usize {
        self.mean_bytes.load(Ordering::Relaxed) as usize
    }

    /// Hits an item has to have had, to stay.
    fn need(&self, record_bytes: usize) -> u8 {
        let mean = self.mean_bytes();
        1 + u8::from(record_bytes > 2 * mean && mean > 0) + u8::from(record_bytes > 4 * mean && mean > 0)
    }

    /// Hits an item starts with in main.
    fn start(&self, record_bytes: usize) -> u8 {
        u8::from(2 * record_bytes < self.mean_bytes())
    }

    /// Where an item of the oldest segment of a queue goes, and with which rank. `None`: it leaves.
    pub(crate) fn keep(&self, from: Queue, rank: u8, record_bytes: usize) -> Option<(Queue, u8)> {
        debug_assert!(rank <= RANK_MAX);
        let need = self.need(record_bytes);
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
        if from == Queue::Probation && record_bytes <= self.mean_bytes() {
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
        let stays = |from, rank, bytes| policy.keep(from, rank, bytes);
        assert_eq!(stays(Queue::Probation, 0, 10), None);
        assert_eq!(stays(Queue::Probation, 1, 100), Some((Queue::Main, 0)));
        assert_eq!(stays(Queue::Probation, 1, 40), Some((Queue::Main, 1)));
        assert_eq!(stays(Queue::Probation, 1, 250), None);
        assert_eq!(stays(Queue::Probation, 2, 250), Some((Queue::Main, 0)));
        assert_eq!(stays(Queue::Probation, 2, 500), None);
        assert_eq!(stays(Queue::Main, 3, 500), Some((Queue::Main, 0)));
        assert_eq!(stays(Queue::Main, 3, 100), Some((Queue::Main, 2)));
        assert_eq!(stays(Queue::Main, 0, 100), None);
    }
}
