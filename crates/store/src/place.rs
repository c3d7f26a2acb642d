//! Placing: giving a new record its bytes in the log, and writing them.
//!
//! Owns the way from "so many bytes for this queue and expiry" to an unpublished record. The operations and eviction
//! call it with their lane locked and *not pinned*: making room may have to wait until older pins are gone. It never
//! publishes: a placed record is dead to everyone until the caller puts its place into the index.
//!
//! This is one of the store's modules with `unsafe` code.

#![allow(unsafe_code)]

use crate::{
    NEVER, Seconds,
    index::Place,
    log::{Lane, Open, Purpose, SEGMENT_HEADER_BYTES, Take},
    record::{Extras, Group, RecordRef, Spec, encode_access},
    segment::Queue,
    stats::Counters,
    store::Store,
    sync::relax,
};

/// A value this much shorter than a segment is not split: half of it at most is wasted at the segment's end, which is
/// less than one part in a hundred.
const SPLIT_FRACTION: usize = 64;
/// The least part of a split value that is worth beginning at a segment's end.
const SPLIT_BYTES_MIN: usize = 64;

/// Of a record that may follow one of the same size, what is brought closer ahead of time.
const PREFETCH_BYTES_MAX: usize = 512;

/// An item to be written, apart from its value.
#[derive(Clone, Copy)]
pub(crate) struct Item<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) flags: u32,
    pub(crate) expiry: Seconds,
    /// The CAS unique to write out; `None` lets the place be it.
    pub(crate) cas: Option<u64>,
    pub(crate) value_bytes: usize,
    /// Hashes of its tags, one behind the other.
    pub(crate) tags: &'k [u8],
    /// See [`crate::record::KEPT_BY_COPIES`].
    pub(crate) marks: u16,
    pub(crate) last_access: Seconds,
}

impl<'k> Item<'k> {
    pub(crate) fn new(key: &'k [u8], flags: u32, expiry: Seconds, value_bytes: usize, now: Seconds) -> Item<'k> {
        Item { key, flags, expiry, cas: None, value_bytes, tags: &[], marks: 0, last_access: now }
    }

    fn spec<'s>(&self, extras: &'s [u8], group: Group, opened: Seconds) -> Spec<'s>
    where
        'k: 's,
    {
        Spec {
            key: self.key,
            flags: self.flags,
            expiry_offset: if self.expiry == NEVER { None } else { group.offset_of(self.expiry) },
            cas: self.cas,
            extras,
            value_bytes: self.value_bytes,
            marks: self.marks,
            access: encode_access(opened, self.last_access),
        }
    }
}

/// A record that was placed and is not yet published. Exactly one of `publish` and `abandon` (of `Store`) ends it.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) place: Place,
    pub(crate) prefix_bytes: usize,
    pub(crate) record_bytes: usize,
    pub(crate) value_bytes: usize,
    /// Its segments are kept from eviction until it is ended.
    pub(crate) pending: bool,
}

impl Store {
    /// Places a record. `None`: there is no room and none can be made.
    ///
    /// With `pending`, the record may be ended long after the lane is unlocked; without, it must be ended before.
    pub(crate) fn place(
        &self,
        lane: &mut Lane,
        counters: &Counters,
        queue: Queue,
        item: &Item<'_>,
        purpose: Purpose,
        pending: bool,
        now: Seconds,
    ) -> Option<Placed> {
        let group = Group::of(item.expiry, now, self.log.coarser());
        let extras;
        let extras = if item.tags.is_empty() && self.log.newest_watermark() == 0 {
            &[]
        } else {
            extras = self.extras(item);
            extras.bytes()
        };
        let spec = item.spec(extras, group, now);
        let prefix_bytes = spec.prefix_bytes();
        let record_bytes = spec.record_bytes();
        let segment_bytes = self.log.segment_bytes();
        let at = loop {
            if let Some(at) = lane.open.iter().position(|open| open.queue == queue && open.group == group) {
                let open = &lane.open[at];
                let room = segment_bytes - open.used;
                let fits = record_bytes <= room
                    || (record_bytes > segment_bytes / SPLIT_FRACTION && room >= prefix_bytes + SPLIT_BYTES_MIN);
                if fits && !self.log.too_old(open, now) {
                    break at;
                }
                let open = lane.open.remove(at);
                self.seal(&open);
            }
            self.open_one(lane, counters, queue, group, purpose, now)?;
        };
        let open = &mut lane.open[at];
        let id = open.id;
        let offset = open.used;
        let place = self.log.place(id, offset);
        let first = record_bytes.min(segment_bytes - offset);
        let spans = first < record_bytes;
        let pending = pending || spans;
        let spec = item.spec(extras, group, open.opened);
        // SAFETY: the bytes from `used` on belong to the lane that holds the open segment, which the caller has
        // locked; there is room for the prefix (above), and `used` is a multiple of `ALIGN`.
        unsafe { spec.write_prefix(self.log.address(id, offset)) };
        open.used += first;
        open.placed += 1;
        self.log.note_used(open);
        // The next record's bytes, so that writing them does not wait for memory (and with it every lock behind them).
        self.log.prefetch_write(id, open.used, record_bytes.min(PREFETCH_BYTES_MAX));
        let placed = Placed { place, prefix_bytes, record_bytes, value_bytes: item.value_bytes, pending };
        if pending {
            self.log.segment(id).begin_pending();
        }
        if spans && !self.place_rest(lane, counters, at, record_bytes - first, &placed, purpose, now) {
            return None;
        }
        Some(placed)
    }

    /// The extras of a record to be placed: its tags, and its birth if that has to be written out, because the open
    /// segments may be older than what was forgotten of its prefixes and tags.
    #[cold]
    #[inline(never)]
    fn extras(&self, item: &Item<'_>) -> Extras {
        let watermark = if self.log.newest_watermark() == 0 { 0 } else { self.watermark(item.key, item.tags) };
        // Not below the watermark: the number may be just about to be raised.
        let birth = (watermark != 0).then(|| self.log.birth().max(watermark));
        Extras::new(birth, item.tags)
    }

    /// Gives a record that does not fit its segment the segments that follow.
    fn place_rest(
        &self,
        lane: &mut Lane,
        counters: &Counters,
        at: usize,
        rest_bytes: usize,
        placed: &Placed,
        purpose: Purpose,
        now: Seconds,
    ) -> bool {
        // Out of the lane while the chain grows, so that what eviction moves meanwhile is not appended to it.
        let mut last = lane.open.remove(at);
        let (queue, group) = (last.queue, last.group);
        let mut left = rest_bytes;
        let mut chain = vec![last.id];
        while left > 0 {
            let Some(id) = self.obtain(lane, counters, purpose, now) else {
                // The bytes placed so far are dead; the segments stay ordinary ones.
                let done = placed.record_bytes - left;
                self.seal(&last);
                self.end_parts(placed.place, done);
                for id in chain {
                    self.end_pending(id);
                }
                return false;
            };
            let part = left.min(self.log.room_bytes());
            let next = self.log.open(id, queue, group, now, Some((placed.place, part)));
            self.log.segment(id).begin_pending();
            self.log.segment(last.id).set_next(id);
            self.seal(&last);
            chain.push(id);
            last = next;
            left -= part;
        }
        self.shelve(lane, last);
        true
    }

    /// Puts an open segment for queue and group into the lane.
    fn open_one(
        &self,
        lane: &mut Lane,
        counters: &Counters,
        queue: Queue,
        group: Group,
        purpose: Purpose,
        now: Seconds,
    ) -> Option<()> {
        let open = match self.log.take_off_shelf(queue, group) {
            Some(open) => open,
            None => {
                let id = self.obtain(lane, counters, purpose, now)?;
                if lane.open.iter().any(|open| open.queue == queue && open.group == group) {
                    // Eviction, while it made room for us, moved items of the same group.
                    self.log.give_back(id);
                    return Some(());
                }
                self.log.open(id, queue, group, now, None)
            }
        };
        self.shelve(lane, open);
        Some(())
    }

    /// Puts an open segment into the lane; if the lane is full, its oldest goes to the shelf.
    fn shelve(&self, lane: &mut Lane, open: Open) {
        lane.open.push(open);
        if lane.open.len() > self.log.lane_open_max
            && let Some(surplus) = self.log.to_shelf(lane.open.remove(0))
        {
            self.seal(&surplus);
        }
    }

    pub(crate) fn seal(&self, open: &Open) {
        if open.queue == Queue::Probation {
            // The end of a value that began in another segment was counted there.
            let begun = open.placed.saturating_sub(u32::from(self.log.spilled_bytes(open.id) > 0));
            self.policy.sealed(open.used - SEGMENT_HEADER_BYTES, begun);
        }
        if self.log.seal(open) {
            self.log.retire(open.id, &self.epochs);
        }
    }

    /// Gets a segment, making room if it takes that.
    fn obtain(&self, lane: &mut Lane, counters: &Counters, purpose: Purpose, now: Seconds) -> Option<u32> {
        if purpose == Purpose::Write {
            self.keep_compact(lane, counters, now);
        }
        let (mut spins, mut steps) = (0, 0);
        loop {
            match self.log.take(purpose, self.index.bytes(), &self.epochs) {
                Take::Segment(id) => return Some(id),
                // Somebody is pinned. Pins are short, but a thread may be kept from running while it holds one; after
                // some tens of milliseconds live items have to make room instead.
                Take::Soon if spins < 1500 => {
                    relax(spins);
                    spins += 1;
                }
                Take::Soon | Take::Full => {
                    if purpose == Purpose::Move || !self.make_room(lane, counters, steps, now) {
                        return None;
                    }
                    spins = 0;
                    // A segment can be emptied and yet not be free before another thread has reported the last death in
                    // it: let that thread run.
                    relax(steps);
                    steps += 1;
                }
            }
        }
    }

    /// Writes part of the value of a placed record.
    ///
    /// # Panics
    /// When `bytes` reach beyond the value.
    pub(crate) fn write_value(&self, placed: &Placed, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= placed.value_bytes);
        if !placed.pending {
            // One part: the record lies in one segment.
            let at = self.log.address(
                self.log.segment_of(placed.place),
                self.log.offset_of(placed.place) + placed.prefix_bytes + offset,
            );
            // SAFETY: the bytes are those of the value of a record that was placed and not published: ours alone.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.as_ptr(), bytes.len()) };
            return;
        }
        let mut from = 0;
        let mut skip = offset;
        self.log.value_parts(placed.place, placed.prefix_bytes, placed.value_bytes, |id, at, part| {
            if skip >= part {
                skip -= part;
                return true;
            }
            let now = (part - skip).min(bytes.len() - from);
            // SAFETY: as above; `value_parts` stays inside the value.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes[from..].as_ptr(), self.log.address(id, at + skip).as_ptr(), now);
            }
            from += now;
            skip = 0;
            from < bytes.len()
        });
        debug_assert_eq!(from, bytes.len());
    }

    /// The longest piece of a placed record's value from `offset` on that lies in one segment, to be written by the
    /// one who placed it.
    pub(crate) fn value_piece<'p>(&self, placed: &'p mut Placed, offset: usize) -> &'p mut [u8] {
        let mut skip = offset;
        let mut piece: &'p mut [u8] = &mut [];
        self.log.value_parts(placed.place, placed.prefix_bytes, placed.value_bytes, |id, at, part| {
            if skip >= part {
                skip -= part;
                return true;
            }
            // SAFETY: bytes of the value of a record that was placed and not published, so nobody else's; the mutable
            // borrow of `placed` keeps it that way while the slice lives.
            piece = unsafe { std::slice::from_raw_parts_mut(self.log.address(id, at + skip).as_ptr(), part - skip) };
            false
        });
        piece
    }

    /// A record the caller may read for as long as it keeps `proof`: a pin, a shard's lock, a claim, or an unpublished
    /// placement. Every call names one of them; see [`crate::log::Log::record`] for what it has to guarantee.
    #[inline]
    pub(crate) fn record<'p, P>(&self, place: Place, _proof: &'p P) -> RecordRef<'p> {
        // SAFETY: callers pass the pin, the lock or the claim under which they found the place.
        unsafe { self.log.record(place) }
    }

    /// The record that begins at an offset of a segment that nobody appends to, if one can, up to `used`; the proof is
    /// that of one who is alone with the store.
    pub(crate) fn found<'p, P>(&self, id: u32, offset: usize, used: usize, _proof: &'p P) -> Option<RecordRef<'p>> {
        // SAFETY: nobody else uses the store, so nothing is appended and nothing freed.
        unsafe { self.log.found(id, offset, used) }
    }

    /// The part of a record's value at `segment`, `offset`.
    #[inline]
    pub(crate) fn value_part<'p, P>(&self, id: u32, offset: usize, bytes: usize, _proof: &'p P) -> &'p [u8] {
        // SAFETY: as `record`; published values are never written.
        unsafe { std::slice::from_raw_parts(self.log.address(id, offset).as_ptr(), bytes) }
    }

    /// Ends a placed record that will not be published.
    pub(crate) fn abandon(&self, lane: Option<&mut Lane>, placed: Placed) {
        // The last thing its lane placed: take the bytes back.
        if let Some(lane) = lane
            && !placed.pending
            && let Some(open) = lane.open.iter_mut().find(|open| open.id == self.log.segment_of(placed.place))
            && open.used == self.log.offset_of(placed.place) + placed.record_bytes
        {
            open.used -= placed.record_bytes;
            open.placed -= 1;
            self.log.note_taken_back(open);
            return;
        }
        self.record(placed.place, &()).die();
        let ids = if placed.pending { self.pending_segments(&placed) } else { Vec::new() };
        self.end_parts(placed.place, placed.record_bytes);
        for id in ids {
            self.end_pending(id);
        }
    }

    /// Lets the segments of a published record be evicted.
    pub(crate) fn settle(&self, placed: &Placed) {
        if placed.pending {
            for id in self.pending_segments(placed) {
                self.end_pending(id);
            }
        }
    }

    fn pending_segments(&self, placed: &Placed) -> Vec<u32> {
        let mut ids = Vec::new();
        self.log.record_parts(placed.place, placed.record_bytes, |id, _| ids.push(id));
        ids
    }

    fn end_pending(&self, id: u32) {
        if self.log.segment(id).end_pending() {
            self.log.retire(id, &self.epochs);
        }
    }

    /// Reports the parts of a dead record to the segments they lie in.
    pub(crate) fn end_parts(&self, place: Place, record_bytes: usize) {
        let mut first = true;
        self.log.record_parts(place, record_bytes, |id, bytes| {
            let segment = self.log.segment(id);
            if !first {
                segment.set_spill(None);
            }
            first = false;
            if segment.part_died(bytes) {
                self.log.retire(id, &self.epochs);
            }
        });
    }
}
