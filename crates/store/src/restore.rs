//! Restoring: the items of a memory file, found by reading its segments.
//!
//! Owns what counts as an item there. It runs before anybody else uses the store. The index is built anew, so neither
//! its shape nor the hash's seed has to be what it was.
//!
//! A server may have been killed at any moment, and every record may be one that was being written. What is taken for
//! an item is sound because of the order in which everything is written (see `head` and `record`):
//!
//! | what may be there | how it is told |
//! |---|---|
//! | a segment that was being opened | its head has no sequence number |
//! | a record whose prefix was being written | it lies beyond the head's `used` |
//! | a record whose value was being written, or that nobody published | it is dead |
//! | an item that was replaced, deleted or evicted | it is dead: that is said before the lock of its shard is given back, hence before anybody is answered |
//! | an item and what replaces it, or its copy, in the middle of that | both are alive: both are dropped, as neither is known to be the newer; the key's shard was locked, so nobody was answered yet |
//! | what was forgotten | a watermark says so, which was noted before anybody was answered |
//! | what was flushed | its segment's number is below the page's bound |
//! | what has expired, also by a clock that was ahead of this one | its expiry is at most the page's last second |
//! | a long record whose other segments are not all there | their heads do not name it (that takes damage: it was alive, so they were) |
//!
//! Nothing that is read is trusted to be what a server wrote: numbers that cannot be are not followed.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use crate::{
    NEVER, Seconds,
    head::SEGMENT_HEADER_BYTES,
    index::{Hash, Place},
    log::Adopted,
    record::{ALIGN, FETCHED, Group, RecordRef},
    segment::Queue,
    store::{Handle, Store},
    sync::{AtomicU32, AtomicU64, Mutex, Ordering},
};

/// How far the reading of a memory file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done_bytes: u64,
    /// Bytes there are.
    pub total_bytes: u64,
}

/// What was found in a memory file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Items the store holds now.
    pub items: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Items left out because their time was over.
    pub expired: u64,
    /// Items left out because their prefix or tag was forgotten.
    pub forgotten: u64,
    /// Items left out because a write was under way when the server was killed.
    pub unfinished: u64,
    /// Segments and records left out because they cannot be what a server wrote.
    pub damaged: u64,
    /// Items evicted because the memory limit is smaller than it was.
    pub evicted: u64,
    /// Why what was in the file was not used at all.
    pub emptied: Option<crate::Emptied>,
}

/// About the least an item takes in the log.
const ITEM_BYTES_LEAST: usize = 8;
/// Segments a thread reads before it looks for more.
const SEGMENTS_AT_ONCE: usize = 16;
/// Records of which the index's memory is brought closer together.
const RECORDS_AT_ONCE: usize = 16;
/// More threads than this find the memory busy.
const THREADS_MAX: usize = 8;

/// The work, shared by the threads that do it.
struct Reading<'s> {
    store: &'s Store,
    /// Segments, in the order they were opened.
    segments: Vec<Adopted>,
    /// For each record that goes on in other segments, by its number in history: those, in order.
    chains: HashMap<u64, Vec<u32>>,
    /// What lives in each segment, by its number.
    tallies: Vec<Tally>,
    /// What had expired by this second is left out.
    now: Seconds,
    next: AtomicUsize,
    expired: AtomicU64,
    forgotten: AtomicU64,
    unfinished: AtomicU64,
    damaged: AtomicU64,
    no_room: AtomicU64,
    /// Keys of which two records were alive; a third would be neither.
    doubled: Mutex<HashSet<Vec<u8>>>,
    is_any_doubled: AtomicBool,
}

/// A record that says it is alive.
struct Alive<'r> {
    place: Place,
    record: RecordRef<'r>,
    /// Bytes of it that lie in other segments.
    rest_bytes: usize,
    hash: Hash,
}

#[derive(Default)]
struct Tally {
    parts: AtomicU32,
    bytes: AtomicU32,
}

impl Store {
    /// Reads what the log's memory holds.
    pub(crate) fn restore(self: &Arc<Store>, now: Seconds, progress: &mut dyn FnMut(Progress)) -> Restored {
        let page = self.log.page();
        let fresh = page.fresh.load(Ordering::Relaxed);
        let now = now.max(page.now.load(Ordering::Relaxed));
        let mut reading = Reading {
            store: self,
            segments: Vec::new(),
            chains: HashMap::new(),
            tallies: (0..fresh).map(|_| Tally::default()).collect(),
            now,
            next: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            no_room: AtomicU64::new(0),
            doubled: Mutex::new(HashSet::new()),
            is_any_doubled: AtomicBool::new(false),
        };
        reading.find_segments(fresh);
        // The number may be wrong, but not by more than there is memory for.
        let items_most = reading.segments.iter().map(|segment| segment.opening.used).sum::<usize>() / ITEM_BYTES_LEAST;
        self.index.reserve((page.items.load(Ordering::Relaxed) as usize).min(items_most));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = threads.min(reading.segments.len() / SEGMENTS_AT_ONCE).max(1);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let (handle, reading) = (self.handle(), &reading);
                scope.spawn(move || while reading.read_some(&handle) {});
            }
            let handle = self.handle();
            let segment_bytes = self.log.segment_bytes() as u64;
            let total_bytes = reading.segments.len() as u64 * segment_bytes;
            while reading.read_some(&handle) {
                let done = reading.next.load(Ordering::Relaxed).min(reading.segments.len()) as u64;
                progress(Progress { done_bytes: done * segment_bytes, total_bytes });
            }
        });
        let mut restored = Restored {
            expired: reading.expired.load(Ordering::Relaxed),
            forgotten: reading.forgotten.load(Ordering::Relaxed),
            unfinished: reading.unfinished.load(Ordering::Relaxed),
            damaged: reading.damaged.load(Ordering::Relaxed),
            evicted: reading.no_room.load(Ordering::Relaxed),
            ..Restored::default()
        };
        reading.adopt(fresh);
        self.forgotten_by_a_start();
        self.fit(now);
        let stats = self.stats();
        restored.evicted += stats.evictions;
        restored.items = stats.items;
        restored.bytes = stats.bytes;
        restored
    }

    /// Evicts what a smaller limit has no room for, also where eviction is off: it cannot be kept.
    fn fit(self: &Arc<Store>, now: Seconds) {
        let handle = self.handle();
        for steps in 0.. {
            self.log.shrink(self.index.bytes(), &self.epochs);
            if self.log.held() <= self.log.allowed(self.index.bytes())
                || !self.evict_some(&mut handle.lane.lock(), &handle.counters, steps, now)
            {
                return;
            }
        }
    }
}

impl Reading<'_> {
    /// Finds the segments that can hold items, and what chains they make.
    fn find_segments(&mut self, fresh: u32) {
        let log = &self.store.log;
        let page = log.page();
        let next_sequence = page.next_sequence.load(Ordering::Relaxed);
        let mut damaged = 0;
        for id in 0..fresh {
            let Some(opening) = log.head(id).read(log.segment_bytes()) else { continue };
            if opening.sequence >= next_sequence {
                damaged += 1;
                continue;
            }
            log.segment(id).adopt(opening.sequence, opening.queue, opening.group, opening.opened);
            self.segments.push(Adopted { id, opening, parts: 0, live_bytes: 0 });
        }
        self.segments.sort_unstable_by_key(|segment| segment.opening.sequence);
        let all = self.segments.len();
        self.segments.dedup_by_key(|segment| segment.opening.sequence);
        self.damaged.store(damaged + (all - self.segments.len()) as u64, Ordering::Relaxed);
        for segment in self.segments.iter().filter(|segment| segment.opening.spilled > 0) {
            self.chains.entry(segment.opening.origin).or_default().push(segment.id);
        }
    }

    /// Reads the next few segments. False: there are no more.
    fn read_some(&self, handle: &Handle) -> bool {
        let first = self.next.fetch_add(SEGMENTS_AT_ONCE, Ordering::Relaxed);
        let last = (first + SEGMENTS_AT_ONCE).min(self.segments.len());
        for at in first..last {
            self.read(&self.segments[at], handle);
        }
        last < self.segments.len()
    }

    /// Reads one segment.
    fn read(&self, segment: &Adopted, handle: &Handle) {
        let log = &self.store.log;
        let opening = &segment.opening;
        if log.is_flushed(log.segment(segment.id)) {
            // The bound stays in the file, so its records need no marks.
            return;
        }
        let mut group = Vec::with_capacity(RECORDS_AT_ONCE);
        let mut offset = SEGMENT_HEADER_BYTES + opening.spilled.next_multiple_of(ALIGN);
        while offset < opening.used {
            let Some(record) = self.store.found(segment.id, offset, opening.used, self) else {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                break;
            };
            let place = log.place(segment.id, offset);
            let bytes = record.record_bytes();
            let first = bytes.min(log.segment_bytes() - offset);
            if offset + first > opening.used {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                break;
            }
            offset += first;
            if record.is_dead() {
                continue;
            }
            let hash = self.store.hash(record.key());
            self.store.index.prefetch(hash);
            group.push(Alive { place, record, rest_bytes: bytes - first, hash });
            if group.len() == RECORDS_AT_ONCE {
                self.take_all(&mut group, opening.group, handle);
            }
        }
        self.take_all(&mut group, opening.group, handle);
    }

    fn take_all(&self, group: &mut Vec<Alive<'_>>, expiry_group: Group, handle: &Handle) {
        for alive in group.drain(..) {
            if !self.take(&alive, expiry_group, handle) {
                // A later start is not to find it either.
                alive.record.die();
            }
        }
    }

    /// Makes a record the item of its key. False: it is none.
    fn take(&self, alive: &Alive<'_>, group: Group, handle: &Handle) -> bool {
        let Alive { place, ref record, rest_bytes, hash } = *alive;
        let store = self.store;
        let expiry = match (group == Group::NEVER, record.expiry_offset()) {
            (true, None) => NEVER,
            (false, None) if group.span == 1 => group.base,
            (false, Some(offset)) if Seconds::from(offset) < group.span => group.base + Seconds::from(offset),
            _ => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        if expiry <= self.now {
            self.expired.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        if store.is_forgotten(store.segment_of(place), *record) {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let Some(chain) = self.chain(place, rest_bytes) else {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let key = record.key();
        let bytes = record.record_bytes();
        let mut shard = store.index.lock(hash);
        if let Some(entry) = shard.find(hash, |place| store.record(place, self).key() == key) {
            let other = store.record(entry.place, self);
            shard.remove(entry);
            other.die();
            self.doubled.lock().insert(key.to_vec());
            self.is_any_doubled.store(true, Ordering::Relaxed);
            self.uncount(entry.place, other.record_bytes(), handle);
            self.unfinished.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        // The shard's lock orders this with the insertion above.
        if self.is_any_doubled.load(Ordering::Relaxed) && self.doubled.lock().contains(key) {
            return false;
        }
        // Counted while the shard is locked: as soon as it is not, the item may be found to be one of two.
        self.count(place, bytes, chain, handle);
        if shard.insert(hash, place, self.rank(place, record)).is_err() {
            self.uncount(place, bytes, handle);
            self.no_room.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The segments in which the last `rest_bytes` of a record lie. `None`: they are not all there.
    fn chain(&self, place: Place, rest_bytes: usize) -> Option<&[u32]> {
        if rest_bytes == 0 {
            return Some(&[]);
        }
        let log = &self.store.log;
        let chain = self.chains.get(&log.history(place))?;
        let mut left = rest_bytes;
        for &id in chain {
            let part = left.min(log.room_bytes());
            if part == 0 || log.head(id).spilled() != part {
                return None;
            }
            left -= part;
        }
        (left == 0).then_some(chain)
    }

    /// Counts an item, and links it to the other segments it lies in.
    fn count(&self, place: Place, bytes: usize, chain: &[u32], handle: &Handle) {
        let log = &self.store.log;
        let mut last = log.segment_of(place);
        for &id in chain {
            log.segment(last).set_next(id);
            log.segment(id).set_spill(Some(place.0));
            last = id;
        }
        log.record_parts(place, bytes, |id, part| {
            let tally = &self.tallies[id as usize];
            tally.parts.fetch_add(1, Ordering::Relaxed);
            tally.bytes.fetch_add(part as u32, Ordering::Relaxed);
        });
        handle.counters.items.add(1);
        handle.counters.total_items.add(1);
        handle.counters.bytes.add(bytes as i64);
    }

    /// Takes an item out of the counts again.
    fn uncount(&self, place: Place, bytes: usize, handle: &Handle) {
        let log = &self.store.log;
        log.record_parts(place, bytes, |id, part| {
            let tally = &self.tallies[id as usize];
            tally.parts.fetch_sub(1, Ordering::Relaxed);
            tally.bytes.fetch_sub(part as u32, Ordering::Relaxed);
            if id != log.segment_of(place) {
                log.segment(id).set_spill(None);
            }
        });
        handle.counters.items.add(-1);
        handle.counters.total_items.add(-1);
        handle.counters.bytes.add(-(bytes as i64));
    }

    /// The rank an item has most likely had: it was hit, as far as can be told, since it lies where it lies.
    fn rank(&self, place: Place, record: &RecordRef<'_>) -> u8 {
        let marks = record.marks();
        let segment = self.store.segment_of(place);
        let hit = marks.has(FETCHED)
            && (segment.queue() == Queue::Probation || self.store.last_access_of(place, marks) > segment.opened());
        u8::from(hit)
    }

    /// Hands the segments to the log.
    fn adopt(mut self, fresh: u32) {
        for segment in &mut self.segments {
            let tally = &mut self.tallies[segment.id as usize];
            segment.parts = *tally.parts.get_mut();
            segment.live_bytes = *tally.bytes.get_mut() as usize;
            if segment.parts > 0 && segment.opening.queue == Queue::Probation {
                let is_end_of_another = self.store.log.segment(segment.id).spill().is_some();
                self.store.policy.sealed(segment.live_bytes, segment.parts - u32::from(is_end_of_another));
            }
        }
        self.segments.retain(|segment| segment.parts > 0);
        let mut is_empty = vec![true; fresh as usize];
        for segment in &self.segments {
            is_empty[segment.id as usize] = false;
        }
        let empty = (0..fresh).filter(|&id| is_empty[id as usize]).collect();
        self.store.log.adopt(&self.segments, empty, fresh);
    }
}
