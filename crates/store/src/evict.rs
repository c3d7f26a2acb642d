//! Eviction: making room, and giving back what expired, was flushed or forgotten.
//!
//! Owns the choice of the segment that goes and of the items that stay. It is S3-FIFO (Yang et al., SOSP 2023) over
//! segments: probation and main are queues of segments, the oldest of one of them is emptied, and what was hit since is
//! copied on to main. A segment that is mostly holes is emptied first, without dropping anything. What is kept and finds no
//! room for its copy, a value of many segments in a small store, stays, and its segment goes to the queue's end.
//!
//! Called with the caller's lane locked and the caller not pinned. It never waits for another lane.

use crate::{
    Seconds,
    index::{Entry, Locked, Place},
    log::{Claim, Lane, Purpose, SEGMENT_HEADER_BYTES},
    place::Item,
    record::{CAS_SEEN, FETCHED, RecordRef},
    segment::Queue,
    stats::Counters,
    store::{EvictedItem, Miss, Store},
};

/// Probation's share of the segments, in parts of 64: S3-FIFO's tenth.
const PROBATION_SHARE: usize = 6;
const SHARE_DENOMINATOR: usize = 64;

/// A segment with at most this part of its bytes alive (in 64ths) is compacted rather than another one evicted.
const SPARSE: usize = 40;
/// Segments looked at for that.
const SPARSE_SAMPLES: usize = 8;
/// Without eviction anything that gives back a sixteenth of a segment is worth copying the rest.
const SPARSE_WITHOUT_EVICTION: usize = 60;

/// A store may hold this many times the bytes of its items in segments before it fills their holes; below the minimum
/// it does not matter.
const LOOSE: usize = 3;
const LOOSE_BYTES_MIN: usize = 4 << 20;

/// Steps towards a free segment for which values of many segments are spared that eviction has no room to copy. Enough to
/// pass over a few of them; a store that holds nothing else has to let one go.
const PATIENT_STEPS: u32 = 32;

/// What is kept of a segment that is emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// What S3-FIFO keeps; where it is, if there is no room for its copy.
    Hit,
    /// What S3-FIFO keeps, if there is room for its copy.
    HitIfRoom,
    /// Everything that has not expired.
    All,
}

impl Store {
    /// Makes at least a step towards a free segment. False: nothing can be done. `steps` is how many have not led to one
    /// so far: at first, what was hit and has no room for its copy stays where it is, but not for ever.
    pub(crate) fn make_room(&self, lane: &mut Lane, counters: &Counters, steps: u32, now: Seconds) -> bool {
        if self.reclaim_due(counters, now) {
            return true;
        }
        let room = self.log.room_bytes();
        if !self.evicts() {
            // Look again only when something died since the last look found nothing.
            let deaths = self.deaths();
            if self.packed_at(deaths) {
                return false;
            }
            return match self.log.claim_sparse(usize::MAX, room * SPARSE_WITHOUT_EVICTION / 64) {
                Some(id) => self.empty(id, Keep::All, lane, counters, now),
                None => {
                    self.set_packed_at(deaths);
                    false
                }
            };
        }
        self.evict_some(lane, counters, steps, now)
    }

    /// Makes a step towards a free segment at the cost of items.
    pub(crate) fn evict_some(&self, lane: &mut Lane, counters: &Counters, steps: u32, now: Seconds) -> bool {
        let room = self.log.room_bytes();
        // A sparse segment can hold the beginning of a long record, and there may be no place for all of that.
        if let Some(id) = self.log.claim_sparse(SPARSE_SAMPLES, room * SPARSE / 64)
            && self.empty(id, Keep::All, lane, counters, now)
        {
            return true;
        }
        let census = self.log.census();
        self.heed_age(&census);
        let [probation, main] = census.sealed;
        let is_full = probation * SHARE_DENOMINATOR > census.held * PROBATION_SHARE;
        let first = if is_full && !self.age.is_left_behind() || main == 0 {
            [Queue::Probation, Queue::Main]
        } else {
            [Queue::Main, Queue::Probation]
        };
        for queue in first {
            if let Some(id) = self.log.claim_oldest(queue) {
                let keep = if steps < PATIENT_STEPS { Keep::Hit } else { Keep::HitIfRoom };
                return self.empty(id, keep, lane, counters, now);
            }
        }
        false
    }

    /// Before another segment is taken: where most of the memory in use is holes, empties a segment that is nearly all
    /// holes instead of spreading further over a budget that is not needed. Keeps what is written over and over close
    /// together, and the resident memory close to what is held.
    pub(crate) fn keep_compact(&self, lane: &mut Lane, counters: &Counters, now: Seconds) {
        let room = self.log.room_bytes();
        let held = self.log.held() * room;
        if held > LOOSE_BYTES_MIN
            && held / LOOSE > self.bytes() as usize
            && let Some(id) = self.log.claim_sparse(SPARSE_SAMPLES, room / 4)
        {
            self.empty(id, Keep::All, lane, counters, now);
        }
    }

    /// Gives back the segments whose items have all expired. True: there were some.
    pub(crate) fn reclaim_due(&self, counters: &Counters, now: Seconds) -> bool {
        let mut some = false;
        for (id, sequence) in self.log.due(now) {
            match self.log.claim_known(id, sequence) {
                Claim::Ours => {
                    self.empty_of_dead(id, counters);
                    some = true;
                }
                // Open in some lane, being filled, or with the end of a record in it that begins elsewhere: later.
                Claim::Later => self.log.due_again(now.saturating_add(1), id, sequence),
                Claim::Gone => {}
            }
        }
        some
    }

    /// Gives back the segments that were flushed.
    pub(crate) fn reclaim_flushed(&self, counters: &Counters) {
        for (id, sequence) in self.log.flushed() {
            if let Claim::Ours = self.log.claim_known(id, sequence) {
                self.empty_of_dead(id, counters);
            }
        }
    }

    /// Empties a claimed segment of which every item has expired or was flushed.
    fn empty_of_dead(&self, id: u32, counters: &Counters) {
        self.each_record(id, |place, record| {
            let hash = self.hash(record.key());
            let mut shard = self.index.lock(hash);
            if let Some(entry) = shard.find(hash, |candidate| candidate == place) {
                self.drop_gone(&mut shard, entry, &record, Miss::Expired, counters);
            }
        });
        self.log.retire(id, &self.epochs);
    }

    /// Empties a claimed segment, or as much of it as can be. False: what had to be kept found no place; the segment is
    /// back in its queue.
    fn empty(&self, id: u32, keep: Keep, lane: &mut Lane, counters: &Counters, now: Seconds) -> bool {
        let from = self.log.segment(id).queue();
        let mut stuck = false;
        let is_left_behind = self.age.is_left_behind();
        let (mut seen_bytes, mut seen_records) = (0, 0);
        let sizes_now = self.policy.sizes_now();
        let (mut seen_now, mut hit_now) = (0, 0);
        self.each_record(id, |place, record| {
            if stuck {
                return;
            }
            let hash = self.hash(record.key());
            let mut shard = self.index.lock(hash);
            let Some(entry) = shard.find(hash, |candidate| candidate == place) else { return };
            if let Err(miss) = self.visible(place, &record, now) {
                self.drop_gone(&mut shard, entry, &record, miss, counters);
                return;
            }
            seen_bytes += record.record_bytes();
            seen_records += 1;
            if sizes_now.contains(&(record.record_bytes() as u64)) {
                seen_now += 1;
                hit_now += u64::from(entry.rank > 0);
            }
            let kept = match keep {
                Keep::All => Some((from, entry.rank)),
                Keep::Hit | Keep::HitIfRoom => {
                    self.policy.keep(from, entry.rank, record.record_bytes(), place.0, is_left_behind)
                }
            };
            let Some((queue, rank)) = kept else {
                self.drop_evicted(&mut shard, entry, &record, from, counters);
                return;
            };
            drop(shard);
            if self.move_on(lane, counters, place, &record, queue, rank, now) {
                return;
            }
            if keep == Keep::All {
                stuck = true;
                return;
            }
            let mut shard = self.index.lock(hash);
            let Some(entry) = shard.find(hash, |candidate| candidate == place) else { return };
            if keep == Keep::Hit {
                shard.replace(entry, place, rank);
            } else {
                self.drop_evicted(&mut shard, entry, &record, from, counters);
            }
        });
        match from {
            _ if keep == Keep::All => {}
            Queue::Probation => self.probation_passed(seen_now, hit_now),
            Queue::Main => {
                self.policy.passed(seen_bytes, seen_records);
                self.main_passed();
            }
        }
        if keep == Keep::All && !stuck {
            counters.compactions.add(1);
        }
        // What stays, the end of a live value, or a record of which somebody else is just reporting the death.
        self.put_back(id);
        !stuck
    }

    /// Puts a claimed segment back, or retires it if nothing in it lives.
    pub(crate) fn put_back(&self, id: u32) {
        if self.log.segment(id).is_dead() || self.log.unclaim(id) {
            self.log.retire(id, &self.epochs);
        }
    }

    /// Copies a record of a claimed segment to a queue's end. True: done, or it died meanwhile.
    pub(crate) fn move_on(
        &self,
        lane: &mut Lane,
        counters: &Counters,
        place: Place,
        record: &RecordRef<'_>,
        queue: Queue,
        rank: u8,
        now: Seconds,
    ) -> bool {
        let hash = self.hash(record.key());
        loop {
            let item = self.copy_of(place, record);
            let Some(placed) = self.place(lane, counters, queue, &item, Purpose::Move, false, now) else {
                return false;
            };
            let mut shard = self.index.lock(hash);
            let Some(entry) = shard.find(hash, |candidate| candidate == place) else {
                drop(shard);
                self.abandon(Some(lane), placed);
                return true;
            };
            // Forgotten since it was looked at, and the copy's birth may be a later one.
            if self.is_forgotten(self.segment_of(place), *record) {
                self.drop_gone(&mut shard, entry, record, Miss::Forgotten, counters);
                drop(shard);
                self.abandon(Some(lane), placed);
                return true;
            }
            let marks = record.marks();
            if marks.has(CAS_SEEN) && item.cas.is_none() {
                // Shown to a client since the copy was sized: it has to be written out after all.
                drop(shard);
                self.abandon(Some(lane), placed);
                continue;
            }
            // Under the lock, because only that keeps the record alive: the segments in which its value goes on are
            // not claimed, and would be freed and used again when it died.
            self.copy_value_to(place, record, &placed, 0);
            self.record(placed.place, &shard).come_alive(marks.kept_by_copies());
            shard.replace(entry, placed.place, rank);
            record.die();
            self.end_parts(place, record.record_bytes());
            drop(shard);
            self.settle(&placed);
            counters.moved_items.add(1);
            counters.moved_bytes.add(placed.record_bytes as i64);
            // A copy can be a little larger or smaller: another expiry group, a CAS unique of its own.
            counters.bytes.add(placed.record_bytes as i64 - record.record_bytes() as i64);
            return true;
        }
    }

    /// What a copy of a record is to be made of, apart from its value.
    pub(crate) fn copy_of<'r>(&self, place: Place, record: &RecordRef<'r>) -> Item<'r> {
        let marks = record.marks();
        let cas = record.cas().or_else(|| marks.has(CAS_SEEN).then(|| self.log.history(place)));
        Item {
            key: record.key(),
            flags: record.flags(),
            expiry: self.expiry_of(place, record),
            cas,
            value_bytes: record.value_bytes(),
            tags: record.tags(),
            marks: marks.kept_by_copies(),
            last_access: self.last_access_of(place, marks),
        }
    }

    /// Calls `visit` for each record of a segment that is not dead. The caller claimed it, or found it sealed while pinned.
    pub(crate) fn each_record(&self, id: u32, mut visit: impl FnMut(Place, RecordRef<'_>)) {
        let used = self.log.segment(id).used();
        let mut offset = SEGMENT_HEADER_BYTES + self.log.spilled_bytes(id).next_multiple_of(crate::record::ALIGN);
        while offset < used {
            let place = self.log.place(id, offset);
            let record = self.record(place, &id);
            offset += record.record_bytes();
            if !record.is_dead() {
                visit(place, record);
            }
        }
    }

    /// Removes an item that has expired or was flushed or forgotten.
    pub(crate) fn drop_gone(
        &self,
        shard: &mut Locked<'_>,
        entry: Entry,
        record: &RecordRef<'_>,
        why: Miss,
        counters: &Counters,
    ) {
        counters.gone(why, record.marks().has(FETCHED));
        self.bury(shard, entry, record, counters);
    }

    fn drop_evicted(
        &self,
        shard: &mut Locked<'_>,
        entry: Entry,
        record: &RecordRef<'_>,
        from: Queue,
        counters: &Counters,
    ) {
        let marks = record.marks();
        counters.evictions.add(1);
        if !marks.has(FETCHED) {
            counters.evicted_unfetched.add(1);
        }
        if entry.rank > 1 {
            counters.evicted_active.add(1);
        }
        self.policy.evicted(from, self.raw_hash(record.key()), record.record_bytes());
        if let Some(events) = self.events() {
            events.evicted(&EvictedItem {
                key: record.key(),
                fetched: marks.has(FETCHED),
                active: entry.rank > 1,
                expiry: self.expiry_of(entry.place, record),
                last_access: self.last_access_of(entry.place, marks),
                value_bytes: record.value_bytes(),
            });
        }
        self.bury(shard, entry, record, counters);
    }

    /// Removes an item from the index and declares its record dead. The caller is pinned, or claimed the record's
    /// segment.
    pub(crate) fn bury(&self, shard: &mut Locked<'_>, entry: Entry, record: &RecordRef<'_>, counters: &Counters) {
        let bytes = record.record_bytes();
        shard.remove(entry);
        record.die();
        self.end_parts(entry.place, bytes);
        self.note_death();
        counters.items.add(-1);
        counters.bytes.add(-(bytes as i64));
    }
}
