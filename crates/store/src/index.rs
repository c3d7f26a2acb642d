//! The index: from the hash of a key to the place of its record.
//!
//! Owns the slots and who may change them. The log, the operations and eviction use it; it never looks at a record
//! (whoever asks says by a closure whether a place holds the key), never allocates a record and never decides what is
//! evicted.
//!
//! # Shape
//! The hash's top bits choose a *shard*; a shard is an array of buckets of one cache line, eight slots each. A key may
//! live in two buckets, both computed from the 24 hash bits kept in the slot itself, so that a shard can be laid out
//! anew for any number of buckets without reading one record. Two choices and eight slots fill a shard to 95 %; it then
//! grows by a thirty-second, so that the index costs 8.4 to 8.7 bytes an item at every size instead of swinging two-fold
//! as a table that doubles.
//!
//! ```text
//! slot  63                         26 25  24 23                    0
//!       | place (in units of 2 bytes) | rank |  hash bits          |     0 = empty
//! ```
//!
//! # Who may do what
//! | who | holds | may |
//! |---|---|---|
//! | reader | a pin | load slots, raise a slot's rank by compare-and-swap |
//! | writer | the shard's lock | store slots; move them while `version` is odd |
//!
//! A reader that finds nothing checks that no slot moved meanwhile, and looks again if one did.

use std::io;

use crate::{
    arena::{self, PAGE_BYTES, Table},
    sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, Padded, SpinGuard, SpinLock, fence},
};

const SLOTS_PER_BUCKET: usize = 8;
const BUCKET_BYTES: usize = SLOTS_PER_BUCKET * 8;
/// Buckets of one page: shards grow and shrink by whole pages, which is what the system counts.
const BUCKETS_PER_PAGE: usize = PAGE_BYTES / BUCKET_BYTES;

const TAG_BITS: u32 = 24;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const RANK_SHIFT: u32 = TAG_BITS;
const RANK_MASK: u64 = 0b11 << RANK_SHIFT;
const PLACE_SHIFT: u32 = TAG_BITS + 2;
/// Places an index can tell apart: 2^38 units of 2 bytes are a pool of 512 GiB.
pub(crate) const PLACE_BITS: u32 = 64 - PLACE_SHIFT;
/// The highest rank: two bits count the hits since an item was stored or last kept by eviction.
pub(crate) const RANK_MAX: u8 = 3;

/// A shard grows when more than 61/64 of its slots are used …
const FULL_NUMERATOR: usize = 61;
/// … and shrinks when fewer than 44/64 are.
const SPARSE_NUMERATOR: usize = 44;
const LOAD_DENOMINATOR: usize = 64;

/// Where a record lies: its offset in the log's address range, in units of two bytes. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(pub(crate) u64);

/// What one slot says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u64);

impl Slot {
    fn new(place: Place, rank: u8, tag: u64) -> Slot {
        debug_assert!(place.0 != 0 && place.0 >> PLACE_BITS == 0);
        Slot(place.0 << PLACE_SHIFT | u64::from(rank) << RANK_SHIFT | tag)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn place(self) -> Place {
        Place(self.0 >> PLACE_SHIFT)
    }

    fn rank(self) -> u8 {
        ((self.0 & RANK_MASK) >> RANK_SHIFT) as u8
    }

    fn tag(self) -> u64 {
        self.0 & TAG_MASK
    }
}

/// One key's hash, cut into what the index needs of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hash {
    shard: usize,
    tag: u64,
}

/// An entry a reader found: the place, the rank, and the slot to raise the rank in.
pub(crate) struct Found<'i> {
    pub(crate) place: Place,
    pub(crate) rank: u8,
    slot: &'i AtomicU64,
    seen: Slot,
}

impl Found<'_> {
    /// Counts a hit, at most up to [`RANK_MAX`]; then nothing is written any more. A hit that loses a race is not
    /// counted.
    #[inline]
    pub(crate) fn raise_rank(&self) {
        if self.rank < RANK_MAX {
            let raised = Slot::new(self.place, self.rank + 1, self.seen.tag());
            // Relaxed: the rank orders nothing. A slot that changed meanwhile makes it fail, which is right: the place
            // cannot come back while the caller is pinned.
            let _ = self.slot.compare_exchange(self.seen.0, raised.0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// What readers of a shard look at; writers change it only when slots move.
struct Layout {
    /// Odd while slots move.
    version: AtomicU32,
    buckets: AtomicU32,
}

/// What only writers look at.
struct Writer {
    lock: SpinLock,
    /// Slots in use. Read and written with the lock held.
    used: AtomicUsize,
}

struct Shard {
    layout: Padded<Layout>,
    writer: Padded<Writer>,
}

/// The index of one store.
pub(crate) struct Index {
    shards: Box<[Shard]>,
    shard_shift: u32,
    /// Slots of all shards: shard `n` owns `n * stride ..`.
    slots: Table<AtomicU64>,
    /// Slots reserved for each shard (address space, not memory).
    stride: usize,
    /// Memory the shards use now, in bytes.
    bytes: AtomicUsize,
}

/// A shard locked by a writer.
pub(crate) struct Locked<'i> {
    index: &'i Index,
    shard: usize,
    _lock: SpinGuard<'i>,
}

/// A slot a writer found. Valid while the shard stays locked and nothing is inserted.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    slot: usize,
    pub(crate) place: Place,
    pub(crate) rank: u8,
}

impl Index {
    /// An index for about `items` items now, which may grow to `items_max`.
    ///
    /// # Errors
    /// The address space cannot be reserved.
    pub(crate) fn new(items: usize, items_max: usize) -> io::Result<Index> {
        // About 16,384 slots a shard when full: laying one out anew takes a hundred microseconds, a page of slots is a
        // thirty-second of it, and 13 of the 24 hash bits are left to tell the keys of a bucket apart.
        let shards = (items / 16384).next_power_of_two().clamp(if cfg!(loom) { 1 } else { 16 }, 1 << 16);
        let buckets_max = if cfg!(loom) {
            16
        } else {
            (items_max.div_ceil(shards) * 9 / 8 / SLOTS_PER_BUCKET).next_multiple_of(BUCKETS_PER_PAGE)
                + 2 * BUCKETS_PER_PAGE
        };
        let stride = buckets_max * SLOTS_PER_BUCKET;
        let slots = Table::new(shards * stride)?;
        let buckets = if cfg!(loom) { 1 } else { BUCKETS_PER_PAGE };
        let shard_list = (0..shards)
            .map(|_| Shard {
                layout: Padded(Layout { version: AtomicU32::new(0), buckets: AtomicU32::new(buckets as u32) }),
                writer: Padded(Writer { lock: SpinLock::new(), used: AtomicUsize::new(0) }),
            })
            .collect();
        Ok(Index {
            shards: shard_list,
            shard_shift: 64 - shards.trailing_zeros(),
            slots,
            stride,
            bytes: AtomicUsize::new(shards * (buckets * BUCKET_BYTES + size_of::<Shard>())),
        })
    }

    /// Lays empty shards out for most of `items` entries at once, instead of by one thirty-second after the other. For
    /// the rest they grow as always, so that they end no larger than they would without this.
    #[cfg(not(loom))]
    pub(crate) fn reserve(&self, items: usize) {
        let slots = items / 16 * 15 / self.shards.len() * LOAD_DENOMINATOR / FULL_NUMERATOR;
        let buckets = slots / SLOTS_PER_BUCKET / BUCKETS_PER_PAGE * BUCKETS_PER_PAGE;
        let buckets = buckets.min(self.stride / SLOTS_PER_BUCKET);
        for shard in 0..self.shards.len() {
            let mut shard = self.lock_shard(shard);
            if buckets > shard.buckets() {
                shard.lay_out(buckets);
            }
        }
    }

    /// Memory in use, in bytes: slots of all shards and their headers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Slots in all shards.
    pub(crate) fn slots_total(&self) -> usize {
        (self.bytes() - self.shards.len() * size_of::<Shard>()) / 8
    }

    /// About as many entries as there are: what the slots hold at their usual load.
    pub(crate) fn entries_about(&self) -> usize {
        self.slots_total() / 64 * 57
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(crate) fn hash(&self, hash: u64) -> Hash {
        let shard = if self.shard_shift == 64 { 0 } else { (hash >> self.shard_shift) as usize };
        Hash { shard, tag: hash & TAG_MASK }
    }

    /// Brings the buckets a key may live in closer.
    #[inline]
    pub(crate) fn prefetch(&self, hash: Hash) {
        let buckets = self.shards[hash.shard].layout.buckets.load(Ordering::Relaxed) as usize;
        let (first, second) = bucket_pair(hash.tag, buckets);
        arena::prefetch(std::ptr::from_ref(self.bucket(hash, first)).cast());
        arena::prefetch(std::ptr::from_ref(self.bucket(hash, second)).cast());
    }

    /// The place of the first slot that may be the key's, for bringing that closer; it may be another's or gone.
    #[inline]
    pub(crate) fn guess(&self, hash: Hash) -> Option<Place> {
        let buckets = self.shards[hash.shard].layout.buckets.load(Ordering::Relaxed) as usize;
        let (first, second) = bucket_pair(hash.tag, buckets);
        let slots = self.bucket(hash, first).iter().chain(self.bucket(hash, second));
        let mut seen = slots.map(|slot| Slot(slot.load(Ordering::Relaxed)));
        seen.find(|slot| slot.tag() == hash.tag && !slot.is_empty()).map(Slot::place)
    }

    #[inline]
    fn bucket(&self, hash: Hash, bucket: usize) -> &[AtomicU64] {
        self.slots.range(hash.shard * self.stride + bucket * SLOTS_PER_BUCKET, SLOTS_PER_BUCKET)
    }

    /// Finds the entry for which `is_key` holds, without a lock. The caller is pinned, so that the places handed to
    /// `is_key` stay what they are.
    #[inline]
    pub(crate) fn find(&self, hash: Hash, mut is_key: impl FnMut(Place) -> bool) -> Option<Found<'_>> {
        let shard = &self.shards[hash.shard];
        loop {
            let version = shard.layout.version.load(Ordering::Acquire);
            if version & 1 == 1 {
                // Slots are moving; whoever moves them holds the lock.
                drop(shard.writer.lock.lock());
                continue;
            }
            let buckets = shard.layout.buckets.load(Ordering::Relaxed) as usize;
            let (first, second) = bucket_pair(hash.tag, buckets);
            let second = self.bucket(hash, second);
            arena::prefetch(std::ptr::from_ref(second).cast());
            for bucket in [self.bucket(hash, first), second] {
                for slot in bucket {
                    // Acquire: the record was written before its place was stored.
                    let seen = Slot(slot.load(Ordering::Acquire));
                    if seen.tag() == hash.tag && !seen.is_empty() && is_key(seen.place()) {
                        return Some(Found { place: seen.place(), rank: seen.rank(), slot, seen });
                    }
                }
            }
            // Nothing there; unless a slot moved from where we had yet to look to where we had looked already.
            fence(Ordering::Acquire);
            if shard.layout.version.load(Ordering::Relaxed) == version {
                return None;
            }
        }
    }

    #[inline]
    pub(crate) fn lock(&self, hash: Hash) -> Locked<'_> {
        self.lock_shard(hash.shard)
    }

    pub(crate) fn lock_shard(&self, shard: usize) -> Locked<'_> {
        Locked { index: self, shard, _lock: self.shards[shard].writer.lock.lock() }
    }
}

/// The two buckets in which a tag may live. Both follow from the tag alone.
#[inline]
fn bucket_pair(tag: u64, buckets: usize) -> (usize, usize) {
    let scale = |bits: u64| ((bits * buckets as u64) >> TAG_BITS) as usize;
    let first = scale(tag);
    // An odd multiplier permutes the 24 bits; the shift lets the high bits, which chose the first bucket, matter too.
    let mixed = (tag ^ (tag >> 11)).wrapping_mul(0x9E_37_79) & TAG_MASK;
    let second = scale(mixed);
    if first == second { (first, if second + 1 == buckets { 0 } else { second + 1 }) } else { (first, second) }
}

/// The bucket a tag may live in besides this one.
fn other_bucket(tag: u64, bucket: usize, buckets: usize) -> usize {
    let (first, second) = bucket_pair(tag, buckets);
    if first == bucket { second } else { first }
}

impl<'i> Locked<'i> {
    fn slot(&self, slot: usize) -> &'i AtomicU64 {
        &self.index.slots[self.shard * self.index.stride + slot]
    }

    fn load(&self, slot: usize) -> Slot {
        Slot(self.slot(slot).load(Ordering::Relaxed))
    }

    fn store(&self, slot: usize, value: Slot) {
        // Release: the record behind a new place is written before readers can find it. A reader's compare-and-swap
        // of the rank comes before this store, and is overwritten, or after it, and fails. loom lets a
        // compare-and-swap succeed on a value that was overwritten already, so it is shown a swap.
        #[cfg(loom)]
        self.slot(slot).swap(value.0, Ordering::AcqRel);
        #[cfg(not(loom))]
        self.slot(slot).store(value.0, Ordering::Release);
    }

    /// Changes the number of slots in use; answers what it is now.
    fn add_used(&self, change: isize) -> usize {
        let used = &self.index.shards[self.shard].writer.used;
        let now = used.load(Ordering::Relaxed).wrapping_add_signed(change);
        used.store(now, Ordering::Relaxed);
        now
    }

    fn buckets(&self) -> usize {
        self.index.shards[self.shard].layout.buckets.load(Ordering::Relaxed) as usize
    }

    /// Finds the entry for which `is_key` holds. Places stay what they are while the shard is locked.
    #[inline]
    pub(crate) fn find(&self, hash: Hash, mut is_key: impl FnMut(Place) -> bool) -> Option<Entry> {
        let (first, second) = bucket_pair(hash.tag, self.buckets());
        for bucket in [first, second] {
            for slot in bucket * SLOTS_PER_BUCKET..(bucket + 1) * SLOTS_PER_BUCKET {
                let seen = self.load(slot);
                if seen.tag() == hash.tag && !seen.is_empty() && is_key(seen.place()) {
                    return Some(Entry { slot, place: seen.place(), rank: seen.rank() });
                }
            }
        }
        None
    }

    /// Puts a record's new place into an entry. Readers see either place.
    #[inline]
    pub(crate) fn replace(&mut self, entry: Entry, place: Place, rank: u8) {
        let tag = self.load(entry.slot).tag();
        self.store(entry.slot, Slot::new(place, rank, tag));
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, entry: Entry) {
        self.store(entry.slot, Slot(0));
        let used = self.add_used(-1);
        let buckets = self.buckets();
        if used * LOAD_DENOMINATOR < buckets * SLOTS_PER_BUCKET * SPARSE_NUMERATOR && buckets > BUCKETS_PER_PAGE {
            // To 7/8 full, so that the next item does not make it grow again.
            let wanted = (used * 8 / 7).div_ceil(SLOTS_PER_BUCKET).next_multiple_of(BUCKETS_PER_PAGE);
            if wanted.max(BUCKETS_PER_PAGE) < buckets {
                self.lay_out(wanted.max(BUCKETS_PER_PAGE));
            }
        }
    }

    /// Inserts an entry for a key that has none.
    ///
    /// # Errors
    /// The shard is as large as its address space allows.
    pub(crate) fn insert(&mut self, hash: Hash, place: Place, rank: u8) -> Result<(), IndexFull> {
        let slots = self.buckets() * SLOTS_PER_BUCKET;
        if (self.add_used(0) + 1) * LOAD_DENOMINATOR > slots * FULL_NUMERATOR {
            self.grow();
        }
        let value = Slot::new(place, rank, hash.tag);
        while !self.try_insert(value) {
            if !self.grow() {
                return Err(IndexFull);
            }
        }
        self.add_used(1);
        Ok(())
    }

    /// The places of all entries of this shard.
    pub(crate) fn places(&self) -> Vec<Place> {
        (0..self.buckets() * SLOTS_PER_BUCKET)
            .map(|slot| self.load(slot))
            .filter(|slot| !slot.is_empty())
            .map(Slot::place)
            .collect()
    }

    fn free_slot(&self, bucket: usize) -> (usize, Option<usize>) {
        let mut free = None;
        let mut count = 0;
        for slot in bucket * SLOTS_PER_BUCKET..(bucket + 1) * SLOTS_PER_BUCKET {
            if self.load(slot).is_empty() {
                count += 1;
                free = free.or(Some(slot));
            }
        }
        (count, free)
    }

    fn try_insert(&mut self, value: Slot) -> bool {
        let buckets = self.buckets();
        let (first, second) = bucket_pair(value.tag(), buckets);
        let (first_free, first_slot) = self.free_slot(first);
        let (second_free, second_slot) = self.free_slot(second);
        // The emptier of the two, which is what keeps the fullest bucket from overflowing early.
        let chosen = if second_free > first_free { second_slot } else { first_slot };
        if let Some(slot) = chosen {
            self.store(slot, value);
            return true;
        }
        // Both full: one of the sixteen may have room in its other bucket, or one of those in its other …
        for bucket in [first, second] {
            for slot in bucket * SLOTS_PER_BUCKET..(bucket + 1) * SLOTS_PER_BUCKET {
                let other = other_bucket(self.load(slot).tag(), bucket, buckets);
                if let (_, Some(free)) = self.free_slot(other) {
                    self.shift(&[slot, free], value);
                    return true;
                }
            }
        }
        for bucket in [first, second] {
            for slot in bucket * SLOTS_PER_BUCKET..(bucket + 1) * SLOTS_PER_BUCKET {
                let next = other_bucket(self.load(slot).tag(), bucket, buckets);
                if next == first || next == second {
                    continue;
                }
                for through in next * SLOTS_PER_BUCKET..(next + 1) * SLOTS_PER_BUCKET {
                    let other = other_bucket(self.load(through).tag(), next, buckets);
                    if let (_, Some(free)) = self.free_slot(other) {
                        self.shift(&[slot, through, free], value);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Moves each slot of a path to the next one, the last of which is free, and puts `value` into the first.
    fn shift(&mut self, path: &[usize], value: Slot) {
        self.moving(|shard| {
            for at in (0..path.len() - 1).rev() {
                // Read now: a reader may have raised its rank. One that does so between the two is not counted.
                let resident = shard.load(path[at]);
                shard.store(path[at + 1], resident);
            }
            shard.store(path[0], value);
        });
    }

    /// Runs `change` while readers that find nothing know that they have to look again.
    fn moving(&mut self, change: impl FnOnce(&mut Self)) {
        let version = &self.index.shards[self.shard].layout.version;
        let before = version.load(Ordering::Relaxed);
        version.store(before.wrapping_add(1), Ordering::Relaxed);
        // The odd version is visible before any slot that moves. (A release fence: a reader that sees a moved slot,
        // by its acquire load, sees the odd version in its second look.)
        fence(Ordering::Release);
        change(self);
        version.store(before.wrapping_add(2), Ordering::Release);
    }

    fn grow(&mut self) -> bool {
        let buckets = self.buckets();
        let max = self.index.stride / SLOTS_PER_BUCKET;
        let wanted = if cfg!(loom) {
            (buckets + 1).min(max)
        } else {
            (buckets + (buckets / 32).max(1)).next_multiple_of(BUCKETS_PER_PAGE).min(max)
        };
        if wanted <= buckets {
            return false;
        }
        self.lay_out(wanted);
        true
    }

    /// Lays the shard out anew for `buckets` buckets, or as many more as it takes.
    fn lay_out(&mut self, buckets: usize) {
        let before = self.buckets();
        let max = self.index.stride / SLOTS_PER_BUCKET;
        self.moving(|shard| {
            let all: Vec<Slot> =
                (0..before * SLOTS_PER_BUCKET).map(|slot| shard.load(slot)).filter(|slot| !slot.is_empty()).collect();
            let mut buckets = buckets;
            let mut cleared = before;
            'fits: loop {
                for slot in 0..cleared.max(buckets) * SLOTS_PER_BUCKET {
                    shard.store(slot, Slot(0));
                }
                cleared = buckets;
                let layout = &shard.index.shards[shard.shard].layout;
                layout.buckets.store(buckets as u32, Ordering::Relaxed);
                for &slot in &all {
                    if !shard.settle(slot) {
                        // Cannot happen for the size it came from: that one held them all.
                        buckets = if buckets < before { before } else { (buckets + buckets / 16 + 1).min(max) };
                        continue 'fits;
                    }
                }
                break;
            }
            if buckets < before {
                let base = shard.shard * shard.index.stride;
                shard.index.slots.release(base + buckets * SLOTS_PER_BUCKET, base + before * SLOTS_PER_BUCKET);
                shard.index.bytes.fetch_sub((before - buckets) * BUCKET_BYTES, Ordering::Relaxed);
            } else {
                shard.index.bytes.fetch_add((buckets - before) * BUCKET_BYTES, Ordering::Relaxed);
            }
        });
    }

    /// `try_insert` for a slot that is being laid out: the version is odd already.
    fn settle(&mut self, value: Slot) -> bool {
        let mut value = value;
        let mut bucket_from = usize::MAX;
        // A short random walk; 7/8 full needs hardly any.
        for step in 0..64 {
            let (first, second) = bucket_pair(value.tag(), self.buckets());
            let (first_free, first_slot) = self.free_slot(first);
            let (second_free, second_slot) = self.free_slot(second);
            let chosen = if second_free > first_free { second_slot } else { first_slot };
            if let Some(slot) = chosen {
                self.store(slot, value);
                return true;
            }
            let bucket = if first == bucket_from { second } else { first };
            let slot = bucket * SLOTS_PER_BUCKET + (value.tag() as usize + step) % SLOTS_PER_BUCKET;
            let resident = self.load(slot);
            self.store(slot, value);
            value = resident;
            bucket_from = bucket;
        }
        false
    }
}

/// A shard can grow no further: the pool holds more items than its address space was reserved for.
#[derive(Debug)]
pub(crate) struct IndexFull;
