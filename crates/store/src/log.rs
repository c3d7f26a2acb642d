//! The log: segments, the lanes that append to them, and the list of those that are free.
//!
//! Owns the address range, the segments' phases in time (which are free, open, in which queue, retired) and the budget.
//! Only `place` appends and only `evict` chooses what leaves; this module gives and takes whole segments. It never
//! looks into the index. Which segments may leave is in `claims`, what was flushed and forgotten in `marks`.
//!
//! * A *lane* belongs to one handle. It holds a few open segments (one for each queue and expiry group it writes to),
//!   so that writers share nothing while they append. The lane's lock is taken by its handle for each write and by
//!   others only to seal what lies open too long; lock order: lane, then shard, then `State`.
//! * The *shelf* keeps open segments that a lane has no room for; any lane that needs the same queue and group takes
//!   them from there, so that a store with many different expiry times does not hold a segment for each in each lane.
//! * A value that does not fit its segment goes on in the next of the chain: a record never wastes a segment's tail, and
//!   a value larger than a segment is nothing special.
//!
//! This is one of the store's modules with `unsafe` code.

#![allow(unsafe_code)]

mod claims;
mod marks;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ptr::NonNull,
    sync::atomic::fence,
};

use crate::{
    Seconds,
    arena::{self, Table},
    epoch::Epochs,
    file::Memory,
    head::{Opening, Page, SegmentHead},
    index::Place,
    record::{ACCESS_EXACT_SECONDS, ALIGN, Group, RecordRef},
    segment::{Queue, Segment},
    store::StoreError,
    sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering},
};

pub(crate) use self::claims::Claim;
pub(crate) use crate::head::SEGMENT_HEADER_BYTES;

/// Cache lines of a record that are fetched ahead of its reading; the processor itself goes on from there.
const READ_AHEAD_LINES: usize = 3;

/// An open segment is sealed at this age, so that the last access of what is written to it later stays exact to the
/// second (see `record::encode_access`).
const OPEN_SECONDS_MAX: Seconds = ACCESS_EXACT_SECONDS;

/// Expiry groups get at most 2^6 times as wide: a minute's worth in one.
const COARSER_MAX: u32 = 6;

/// A segment that records are being appended to.
pub(crate) struct Open {
    pub(crate) id: u32,
    /// Where the next record goes.
    pub(crate) used: usize,
    /// Parts of records appended so far.
    pub(crate) placed: u32,
    pub(crate) queue: Queue,
    pub(crate) group: Group,
    pub(crate) opened: Seconds,
}

/// The open segments of one handle.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) open: Vec<Open>,
}

/// The segments of one store.
pub(crate) struct Log {
    memory: Memory,
    segments: Table<Segment>,
    shift: u32,
    state: Mutex<State>,
    /// The budget, in bytes; changed by `set_memory_limit`.
    limit: AtomicUsize,
    /// Of the budget, what is neither segments nor index.
    fixed_bytes: usize,
    /// Segments opened before this one hold nothing any more (flush).
    flushed_below: AtomicU64,
    /// The highest watermark of what was forgotten of late (see `watermarks`); 0: nothing was.
    newest_watermark: AtomicU64,
    /// The higher of these two: what lies in segments opened before this one is looked at closely.
    suspect_below: AtomicU64,
    /// Of those that were flushed, segments opened before this one have been given back.
    reclaimed_below: AtomicU64,
    /// No more segments than this can hold memory, whatever the budget: the file system was full. Forgotten once a
    /// second.
    held_max: AtomicUsize,
    /// How often it was full.
    file_full: AtomicU64,
    /// Segments kept back so that what eviction moves always finds room.
    reserve: usize,
    pub(crate) lane_open_max: usize,
    shelf_max: usize,
    /// How much wider than usual expiry groups are, as a power of two. Rises when more groups are written to than
    /// segments can be kept open for, so that a small store with many expiry times does not fill up with segments that
    /// hold little; falls again when few are open.
    coarser: AtomicU32,
}

/// Which segments are where. Short critical sections only; taken once for each segment filled, not for each item.
struct State {
    free: Vec<u32>,
    /// Segments whose memory was given back to the system.
    released: Vec<u32>,
    /// The first segment that was never used.
    fresh: u32,
    /// Segments that hold memory: open, sealed, claimed, retired or free.
    held: usize,
    retired: VecDeque<(u32, u64)>,
    queues: [VecDeque<(u32, u64)>; 2],
    /// Sealed segments in each queue, without those that died since.
    sealed: [usize; 2],
    shelf: Vec<Open>,
    deadlines: BTreeMap<Seconds, Vec<(u32, u64)>>,
    /// State of the generator that picks candidates for compaction.
    pick: u64,
}

/// What asking for a segment came to.
pub(crate) enum Take {
    Segment(u32),
    /// Some are on their way back from readers: ask again in a moment.
    Soon,
    /// Make room first.
    Full,
}

/// Why a segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    /// To move on what eviction keeps: may use the reserve.
    Move,
}

/// A segment that a start found in a memory file, and what of it lives.
pub(crate) struct Adopted {
    pub(crate) id: u32,
    pub(crate) opening: Opening,
    pub(crate) parts: u32,
    pub(crate) live_bytes: usize,
}

/// Numbers of the log, for counters.
pub(crate) struct Census {
    pub(crate) held: usize,
    pub(crate) free: usize,
    pub(crate) sealed: [usize; 2],
}

impl Log {
    /// # Errors
    /// The address space cannot be reserved.
    pub(crate) fn new(memory: Memory, limit: usize, fixed_bytes: usize, lanes: usize) -> io::Result<Log> {
        let count = limit / memory.segment_bytes;
        let lanes = lanes.max(1);
        let page = memory.page();
        let flushed_below = page.flushed_below.load(Ordering::Relaxed);
        let newest_watermark = memory.watermarks().highest();
        // A server may have been killed after it noted what it forgot and before it raised the number.
        page.next_sequence.fetch_max(newest_watermark, Ordering::Relaxed);
        let fixed_bytes = fixed_bytes + memory.page_bytes();
        Ok(Log {
            segments: Table::new(memory.count_max)?,
            shift: memory.segment_bytes.trailing_zeros(),
            memory,
            state: Mutex::new(State {
                free: Vec::new(),
                released: Vec::new(),
                fresh: 0,
                held: 0,
                retired: VecDeque::new(),
                queues: [VecDeque::new(), VecDeque::new()],
                sealed: [0; 2],
                shelf: Vec::new(),
                deadlines: BTreeMap::new(),
                pick: 0x9E37_79B9_7F4A_7C15,
            }),
            limit: AtomicUsize::new(limit),
            fixed_bytes,
            flushed_below: AtomicU64::new(flushed_below),
            newest_watermark: AtomicU64::new(newest_watermark),
            suspect_below: AtomicU64::new(flushed_below.max(newest_watermark)),
            reclaimed_below: AtomicU64::new(flushed_below),
            held_max: AtomicUsize::new(usize::MAX),
            file_full: AtomicU64::new(0),
            reserve: 2 + lanes.min(count / 512),
            lane_open_max: (count / (lanes * 32)).clamp(2, 8),
            shelf_max: (count / 8).max(4),
            coarser: AtomicU32::new(0),
        })
    }

    pub(crate) fn huge_pages(&self) {
        self.memory.segments.huge_pages(true);
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        1 << self.shift
    }

    /// Bytes of records a segment can hold.
    pub(crate) fn room_bytes(&self) -> usize {
        self.segment_bytes() - SEGMENT_HEADER_BYTES
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// The most the limit can be raised to.
    pub(crate) fn limit_max(&self) -> usize {
        (self.segments.len() - 1) * self.segment_bytes()
    }

    /// # Errors
    /// The system refuses a longer file.
    pub(crate) fn set_limit(&self, limit: usize) -> Result<(), StoreError> {
        self.memory.lengthen(limit)?;
        self.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }

    /// What is kept of the log as a whole.
    pub(crate) fn page(&self) -> &Page {
        self.memory.page()
    }

    /// The head of a segment.
    #[inline]
    pub(crate) fn head(&self, id: u32) -> &SegmentHead {
        SegmentHead::at(&self.memory.segments, (id as usize) << self.shift)
    }

    /// Notes how far an open segment is filled, where that is to be found later. (Elsewhere it costs a cache line that
    /// is otherwise not touched.)
    #[inline]
    pub(crate) fn note_used(&self, open: &Open) {
        if self.memory.is_kept {
            self.head(open.id).set_used(open.used);
        }
    }

    /// Notes that the end of an open segment was taken back.
    pub(crate) fn note_taken_back(&self, open: &Open) {
        if self.memory.is_kept {
            self.head(open.id).take_back(open.used);
        }
    }

    /// Leaves the memory for the next start.
    ///
    /// # Errors
    /// The device would not take it.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.memory.close()
    }

    /// How often the file system had no room for a segment.
    pub(crate) fn file_full(&self) -> u64 {
        self.file_full.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Segments the budget allows next to an index of `index_bytes`.
    pub(crate) fn allowed(&self, index_bytes: usize) -> usize {
        let left = self.limit().saturating_sub(index_bytes + self.fixed_bytes);
        let held_max = self.held_max.load(Ordering::Relaxed).min(self.segments.len());
        (left / (self.segment_bytes() + size_of::<Segment>())).min(held_max)
    }

    pub(crate) fn fixed_bytes(&self) -> usize {
        self.fixed_bytes
    }

    pub(crate) fn segment(&self, id: u32) -> &Segment {
        &self.segments[id as usize]
    }

    /// The segment a place lies in.
    #[inline]
    pub(crate) fn segment_of(&self, place: Place) -> u32 {
        ((place.0 * ALIGN as u64) >> self.shift) as u32
    }

    #[inline]
    pub(crate) fn offset_of(&self, place: Place) -> usize {
        (place.0 as usize * ALIGN) & (self.segment_bytes() - 1)
    }

    #[inline]
    pub(crate) fn place(&self, id: u32, offset: usize) -> Place {
        Place((((id as usize) << self.shift) + offset) as u64 / ALIGN as u64)
    }

    /// The number of a place in the history of the log, which is never given twice: the CAS unique of a record that
    /// has none of its own. Never 0.
    #[inline]
    pub(crate) fn history(&self, place: Place) -> u64 {
        self.segment(self.segment_of(place)).sequence() << (self.shift - ALIGN.trailing_zeros())
            | (self.offset_of(place) / ALIGN) as u64
    }

    /// Was what lies in this segment flushed?
    #[inline]
    pub(crate) fn is_flushed(&self, segment: &Segment) -> bool {
        segment.sequence() < self.flushed_below.load(Ordering::Acquire)
    }

    /// The address of a place.
    #[inline]
    pub(crate) fn address(&self, id: u32, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.segment_bytes());
        let at = self.memory.segments.at(((id as usize) << self.shift) + offset);
        // SAFETY: an address inside a mapping, or one past it, is not null.
        unsafe { NonNull::new_unchecked(at) }
    }

    /// Brings bytes that will be written soon closer. A hint: it changes nothing but the time they take.
    #[inline]
    pub(crate) fn prefetch_write(&self, id: u32, offset: usize, bytes: usize) {
        let end = (offset + bytes).min(self.segment_bytes());
        for at in (offset..end).step_by(64) {
            arena::prefetch_to_write(self.address(id, at).as_ptr());
        }
    }

    /// Brings what reading the record at a place touches closer: what is known of its segment, and its first lines.
    #[inline]
    pub(crate) fn prefetch_read(&self, place: Place) {
        let id = self.segment_of(place);
        arena::prefetch(std::ptr::from_ref(self.segment(id)).cast());
        let at = self.address(id, self.offset_of(place)).as_ptr();
        for line in 0..READ_AHEAD_LINES {
            arena::prefetch(at.wrapping_add(line * 64));
        }
    }

    /// The record at a place.
    ///
    /// # Safety
    /// A record lies at the place, and for as long as `'r` its segment is not freed: the caller is pinned since before
    /// it found the place in the index, or holds the lock of the shard that leads there, or claimed the segment, or
    /// placed the record itself and has not published or abandoned it.
    #[inline]
    pub(crate) unsafe fn record<'r>(&self, place: Place) -> RecordRef<'r> {
        // SAFETY: `place` writes a record's prefix before it hands its place out; appended bytes are never written
        // again while the segment lives (segments are freed only as `segment` says), which the caller vouches for.
        unsafe { RecordRef::new(self.address(self.segment_of(place), self.offset_of(place))) }
    }

    /// Where the parts of a record's value lie: calls `part` with segment, offset and length until all
    /// `value_bytes` are named or it answers false. The condition of [`Log::record`] holds for the place.
    pub(crate) fn value_parts(
        &self,
        place: Place,
        prefix_bytes: usize,
        value_bytes: usize,
        mut part: impl FnMut(u32, usize, usize) -> bool,
    ) {
        let mut id = self.segment_of(place);
        let mut offset = self.offset_of(place) + prefix_bytes;
        let mut left = value_bytes;
        while left > 0 {
            let bytes = left.min(self.segment_bytes() - offset);
            if bytes > 0 && !part(id, offset, bytes) {
                return;
            }
            left -= bytes;
            if left > 0 {
                id = self.segment(id).next();
                offset = SEGMENT_HEADER_BYTES;
            }
        }
    }

    /// The segments a record lies in, with the bytes it takes in each.
    pub(crate) fn record_parts(&self, place: Place, record_bytes: usize, mut part: impl FnMut(u32, usize)) {
        let mut id = self.segment_of(place);
        let mut left = record_bytes;
        let mut room = self.segment_bytes() - self.offset_of(place);
        loop {
            let bytes = left.min(room);
            left -= bytes;
            // Read on before the part is reported: reporting may free the segment.
            let next = self.segment(id).next();
            part(id, bytes);
            if left == 0 {
                return;
            }
            id = next;
            room = self.room_bytes();
        }
    }

    /// Takes a segment, or says what to do to get one.
    pub(crate) fn take(&self, purpose: Purpose, index_bytes: usize, epochs: &Epochs) -> Take {
        let allowed = self.allowed(index_bytes);
        let state = &mut *self.state.lock();
        self.collect(state, epochs);
        self.release_surplus(state, allowed);
        let available = state.free.len() + allowed.saturating_sub(state.held);
        let kept_back = if purpose == Purpose::Write { self.reserve } else { 0 };
        if available > kept_back {
            if let Some(id) = state.free.pop() {
                return Take::Segment(id);
            }
            let id = state.released.pop().unwrap_or_else(|| {
                state.fresh += 1;
                self.page().fresh.store(state.fresh, Ordering::Release);
                state.fresh - 1
            });
            state.held += 1;
            return if self.populate(state, id) { Take::Segment(id) } else { Take::Full };
        }
        let returning = state.retired.iter().filter(|(id, _)| !self.segment(*id).held()).count();
        // A move waits for any that returns; a write would rather make room than wait for readers, up to a point.
        if returning > if purpose == Purpose::Move { 0 } else { 4 } { Take::Soon } else { Take::Full }
    }

    /// Makes sure that a segment has memory. False: the file system is full, and the segment is where it was.
    fn populate(&self, state: &mut State, id: u32) -> bool {
        let (start, bytes) = ((id as usize) << self.shift, self.segment_bytes());
        let populated = self.memory.segments.populate(start, bytes);
        if !populated {
            self.memory.segments.release(start, bytes);
            state.released.push(id);
            state.held -= 1;
            self.held_max.store(state.held, Ordering::Relaxed);
            self.file_full.fetch_add(1, Ordering::Relaxed);
        }
        populated
    }

    /// Gives free segments beyond the budget back to the system.
    pub(crate) fn shrink(&self, index_bytes: usize, epochs: &Epochs) {
        let allowed = self.allowed(index_bytes);
        let state = &mut *self.state.lock();
        self.collect(state, epochs);
        self.release_surplus(state, allowed);
    }

    fn release_surplus(&self, state: &mut State, allowed: usize) {
        while state.held > allowed
            && let Some(id) = state.free.pop()
        {
            self.memory.segments.release((id as usize) << self.shift, self.segment_bytes());
            state.released.push(id);
            state.held -= 1;
        }
    }

    /// A number in the history of the log that belongs to no place.
    pub(crate) fn fresh_history(&self) -> u64 {
        let state = self.state.lock();
        self.next_sequence(&state) << (self.shift - ALIGN.trailing_zeros())
    }

    /// A number for an opening. It is taken in the memory that stays before it is used.
    fn next_sequence(&self, _state: &State) -> u64 {
        self.page().next_sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Frees retired segments that no reader can see any more.
    fn collect(&self, state: &mut State, epochs: &Epochs) {
        if state.retired.is_empty() {
            return;
        }
        let safe = epochs.safe_below();
        let free = &mut state.free;
        state.retired.retain(|&(id, epoch)| {
            let segment = &self.segments[id as usize];
            let keep = epoch >= safe || segment.held();
            if !keep {
                segment.free();
                free.push(id);
            }
            keep
        });
    }

    /// Opens a segment that was taken.
    pub(crate) fn open(
        &self,
        id: u32,
        queue: Queue,
        group: Group,
        now: Seconds,
        spill: Option<(Place, usize)>,
    ) -> Open {
        let sequence = {
            let mut state = self.state.lock();
            let sequence = self.next_sequence(&state);
            // Before the head says that it was used.
            fence(Ordering::Release);
            if group != Group::NEVER {
                state.deadlines.entry(group.deadline()).or_default().push((id, sequence));
            }
            sequence
        };
        let segment = self.segment(id);
        segment.open(sequence, queue, group, now);
        let spilled = spill.map_or(0, |(_, bytes)| bytes);
        let used = SEGMENT_HEADER_BYTES + spilled.next_multiple_of(ALIGN);
        let origin = spill.map_or(0, |(place, _)| self.history(place));
        self.head(id).write(&Opening { sequence, origin, group, opened: now, queue, spilled, used });
        if let Some((place, _)) = spill {
            segment.set_spill(Some(place.0));
        }
        Open { id, used, placed: u32::from(spill.is_some()), queue, group, opened: now }
    }

    /// Seals an open segment and queues it for eviction. True: it is all dead, and the caller has claimed it.
    #[must_use]
    pub(crate) fn seal(&self, open: &Open) -> bool {
        let segment = self.segment(open.id);
        let sequence = segment.sequence();
        // Under the lock: whoever finds the entry finds the segment sealed.
        let mut state = self.state.lock();
        state.queues[open.queue as usize].push_back((open.id, sequence));
        state.sealed[open.queue as usize] += 1;
        segment.seal(open.used as u32, open.placed)
    }

    /// Gives back a segment that was taken and not opened.
    pub(crate) fn give_back(&self, id: u32) {
        self.state.lock().free.push(id);
    }

    /// Length of the value that goes on at the start of a segment. The caller claimed the segment, or appends to it.
    pub(crate) fn spilled_bytes(&self, id: u32) -> usize {
        self.head(id).spilled()
    }

    /// Takes an open segment off the shelf.
    pub(crate) fn take_off_shelf(&self, queue: Queue, group: Group) -> Option<Open> {
        let mut state = self.state.lock();
        let at = state.shelf.iter().position(|open| open.queue == queue && open.group == group)?;
        Some(state.shelf.swap_remove(at))
    }

    /// Puts an open segment on the shelf; gives back one to be sealed when the shelf is full.
    #[must_use]
    pub(crate) fn to_shelf(&self, open: Open) -> Option<Open> {
        let mut state = self.state.lock();
        state.shelf.push(open);
        if state.shelf.len() <= self.shelf_max {
            return None;
        }
        let coarser = self.coarser();
        if coarser < COARSER_MAX {
            self.coarser.store(coarser + 1, Ordering::Relaxed);
        }
        Some(state.shelf.remove(0))
    }

    /// See the field.
    #[inline]
    pub(crate) fn coarser(&self) -> u32 {
        self.coarser.load(Ordering::Relaxed)
    }

    /// Lets groups be finer again when there is room for more of them. Once a second.
    pub(crate) fn refine(&self) {
        self.held_max.store(usize::MAX, Ordering::Relaxed);
        let state = self.state.lock();
        let coarser = self.coarser();
        if coarser > 0 && state.shelf.len() < self.shelf_max / 4 {
            self.coarser.store(coarser - 1, Ordering::Relaxed);
        }
    }

    /// Takes from a lane (or from the shelf, for `None`) what should not stay open at `now`.
    pub(crate) fn overdue(&self, lane: Option<&mut Lane>, now: Seconds, all: bool) -> Vec<Open> {
        let is_due = |open: &mut Open| {
            all || open.group.deadline() <= now || now.saturating_sub(open.opened) >= OPEN_SECONDS_MAX
        };
        match lane {
            Some(lane) => lane.open.extract_if(.., is_due).collect(),
            None => self.state.lock().shelf.extract_if(.., is_due).collect(),
        }
    }

    /// Is a segment too old to append to?
    #[inline]
    pub(crate) fn too_old(&self, open: &Open, now: Seconds) -> bool {
        now.saturating_sub(open.opened) >= OPEN_SECONDS_MAX
    }

    /// Segments that hold memory.
    pub(crate) fn held(&self) -> usize {
        self.state.lock().held
    }

    /// Takes over what a start found: segments that hold something, in the order they were opened, and those below
    /// `fresh` that hold nothing, whose memory is given back.
    pub(crate) fn adopt(&self, kept: &[Adopted], empty: Vec<u32>, fresh: u32) {
        let state = &mut *self.state.lock();
        for adopted in kept {
            let Adopted { id, opening, .. } = *adopted;
            state.queues[opening.queue as usize].push_back((id, opening.sequence));
            state.sealed[opening.queue as usize] += 1;
            if opening.group != Group::NEVER {
                state.deadlines.entry(opening.group.deadline()).or_default().push((id, opening.sequence));
            }
            self.segment(id).adopted(opening.used, adopted.parts, adopted.live_bytes);
        }
        for &id in &empty {
            // Cleared as well, for file systems that make no holes.
            self.head(id).clear();
            self.memory.segments.release((id as usize) << self.shift, self.segment_bytes());
        }
        state.held = kept.len();
        state.released = empty;
        state.fresh = fresh;
    }

    /// The record that begins at an offset of a segment, if one can, up to `used`.
    ///
    /// # Safety
    /// Nobody appends to the segment, and it is not freed, for as long as `'r`.
    pub(crate) unsafe fn found<'r>(&self, id: u32, offset: usize, used: usize) -> Option<RecordRef<'r>> {
        debug_assert!(offset.is_multiple_of(ALIGN) && offset <= used && used <= self.segment_bytes());
        // SAFETY: in the segment, all bytes of which are initialised; the caller keeps the rest.
        unsafe { RecordRef::found(self.address(id, offset), used - offset) }
    }

    pub(crate) fn census(&self) -> Census {
        let state = self.state.lock();
        Census { held: state.held, free: state.free.len(), sealed: state.sealed }
    }
}
