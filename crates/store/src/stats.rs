//! Counters: each handle owns a block and adds to it without contention; whoever asks sums the blocks.
//!
//! What never happens here: a decision. Nothing reads a counter to decide what to do.

use crate::store::Miss;
use crate::sync::{AtomicI64, Mutex, Ordering, Padded, fence};
use std::sync::Arc;

/// What one handle has counted. Written by that handle alone.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) items: Count,
    pub(crate) bytes: Count,
    pub(crate) total_items: Count,
    pub(crate) evictions: Count,
    pub(crate) evicted_unfetched: Count,
    pub(crate) evicted_active: Count,
    pub(crate) expired_unfetched: Count,
    pub(crate) reclaimed: Count,
    pub(crate) forgotten: Count,
    pub(crate) out_of_memory: Count,
    pub(crate) moved_items: Count,
    pub(crate) moved_bytes: Count,
    pub(crate) compactions: Count,
}

impl Counters {
    /// Counts an item whose memory is given back because it was not to be shown any more.
    pub(crate) fn gone(&self, why: Miss, fetched: bool) {
        if why == Miss::Forgotten {
            self.forgotten.add(1);
            return;
        }
        self.reclaimed.add(1);
        if !fetched {
            self.expired_unfetched.add(1);
        }
    }
}

/// One number. The owner's additions need no atomic read-modify-write: nobody else writes.
#[derive(Default)]
pub(crate) struct Count(AtomicI64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, amount: i64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The blocks of all handles of a store.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<Vec<Arc<Padded<Counters>>>>);

impl Default for Mutex<Vec<Arc<Padded<Counters>>>> {
    fn default() -> Self {
        Mutex::new(Vec::new())
    }
}

impl Blocks {
    /// A block for a new handle. Blocks stay when handles go, so that nothing counted is lost; a handle that comes
    /// later takes over one that was left.
    pub(crate) fn block(&self) -> Arc<Padded<Counters>> {
        let mut blocks = self.0.lock();
        if let Some(left) = blocks.iter().find(|block| Arc::strong_count(block) == 1) {
            // What the one that left had counted last is to be seen here.
            fence(Ordering::Acquire);
            return Arc::clone(left);
        }
        let block = Arc::new(Padded(Counters::default()));
        blocks.push(Arc::clone(&block));
        block
    }

    fn sum(&self, count: impl Fn(&Counters) -> &Count) -> u64 {
        let sum: i64 = self.0.lock().iter().map(|block| count(block).value()).sum();
        // A sum taken while handles count can miss the first half of "one more here, one less there".
        u64::try_from(sum).unwrap_or(0)
    }

    /// Items held now.
    pub(crate) fn items(&self) -> u64 {
        self.sum(|c| &c.items)
    }

    /// Bytes of the records of all items.
    pub(crate) fn bytes(&self) -> u64 {
        self.sum(|c| &c.bytes)
    }

    /// Fills in what handles count.
    pub(crate) fn fill(&self, stats: &mut Stats) {
        stats.items = self.sum(|c| &c.items);
        stats.bytes = self.sum(|c| &c.bytes);
        stats.total_items = self.sum(|c| &c.total_items);
        stats.evictions = self.sum(|c| &c.evictions);
        stats.evicted_unfetched = self.sum(|c| &c.evicted_unfetched);
        stats.evicted_active = self.sum(|c| &c.evicted_active);
        stats.expired_unfetched = self.sum(|c| &c.expired_unfetched);
        stats.reclaimed = self.sum(|c| &c.reclaimed);
        stats.forgotten = self.sum(|c| &c.forgotten);
        stats.out_of_memory = self.sum(|c| &c.out_of_memory);
        stats.moved_items = self.sum(|c| &c.moved_items);
        stats.moved_bytes = self.sum(|c| &c.moved_bytes);
        stats.compactions = self.sum(|c| &c.compactions);
    }
}

/// The numbers of a store at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Items held now.
    pub items: u64,
    /// Bytes of their records: key, value and header.
    pub bytes: u64,
    /// Items ever stored.
    pub total_items: u64,
    /// Live items dropped to make room.
    pub evictions: u64,
    /// Evicted items that were never fetched.
    pub evicted_unfetched: u64,
    /// Evicted items that were hit more than once since they were stored or last kept.
    pub evicted_active: u64,
    /// Expired items that were never fetched.
    pub expired_unfetched: u64,
    /// Expired items whose memory was given back.
    pub reclaimed: u64,
    /// Items whose memory was given back because their prefix or tag was forgotten.
    pub forgotten: u64,
    /// Prefixes forgotten.
    pub forget_prefix: u64,
    /// Tags forgotten.
    pub forget_tag: u64,
    /// Prefixes and tags forgotten of late, of which items may be left.
    pub forget_marks: u64,
    /// How often, for want of room to note it, more was forgotten than was asked for.
    pub forget_folded: u64,
    /// Writes refused because no room could be made.
    pub out_of_memory: u64,
    /// The budget, in bytes.
    pub memory_limit: u64,
    /// Of it in use: segments that hold memory, index, headers.
    pub memory_used: u64,
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Slots of the index.
    pub index_slots: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments that hold memory.
    pub segments_total: u64,
    /// Segments that are free but hold memory.
    pub segments_free: u64,
    /// Sealed segments in the main queue.
    pub segments_main: u64,
    /// Sealed segments in the probation queue.
    pub segments_probation: u64,
    /// Items that eviction or compaction copied on.
    pub moved_items: u64,
    /// Bytes of them.
    pub moved_bytes: u64,
    /// Segments emptied because they were mostly holes.
    pub compactions: u64,
    /// How often there was no room in the memory file's file system for a segment the budget allows.
    pub file_full: u64,
}
