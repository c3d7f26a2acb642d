//! The log: segments, the lanes that append to them, and the list of those that are free.
//!
//! Owns the address range, the segments' phases in time (which are free, open, in which queue, retired) and the budget.
//! Only `place` appends and only `evict` chooses what leaves; this module gives and takes whole segments. It never
//! looks into the index.
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

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ptr::NonNull,
};

use crate::{
    Seconds,
    arena::{self, Region, Table},
    epoch::Epochs,
    index::Place,
    record::{ACCESS_EXACT_SECONDS, ALIGN, Group, RecordRef},
    segment::{Queue, Segment},
    sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering},
};

/// At the start of each segment, so that a later start can read the log without an index: sequence number, expiry
/// group, opening second, queue, length of the value that goes on here.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 32;

const SEGMENT_BYTES_MIN: usize = 16 << 10;
const SEGMENT_BYTES_MAX: usize = 256 << 10;

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
    region: Region,
    segments: Table<Segment>,
    shift: u32,
    state: Mutex<State>,
    /// The budget, in bytes; changed by `set_memory_limit`.
    limit: AtomicUsize,
    /// Of the budget, what is neither segments nor index.
    fixed_bytes: usize,
    /// Segments opened before this one hold nothing any more (flush).
    flushed_below: AtomicU64,
    /// Of those, segments opened before this one have been given back.
    reclaimed_below: AtomicU64,
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
    next_sequence: u64,
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

/// What claiming a certain segment came to.
pub(crate) enum Claim {
    /// Claimed.
    Ours,
    /// Not now: open, being filled, somebody else's, or the end of a live record that begins elsewhere lies in it. (A
    /// segment is never freed before that record: its death is counted here.)
    Later,
    /// It has been freed since.
    Gone,
}

/// Why a segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    /// To move on what eviction keeps: may use the reserve.
    Move,
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
    pub(crate) fn new(limit: usize, limit_max: usize, fixed_bytes: usize, lanes: usize) -> io::Result<Log> {
        // A thousand segments: fine enough that evicting a whole one is close to evicting items, coarse enough that
        // the lock around them is taken once for hundreds of items.
        let segment_bytes = (limit / 1024).next_power_of_two().clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let count = limit / segment_bytes;
        let count_max = limit_max.max(limit) / segment_bytes + 1;
        let region = Region::reserve(count_max * segment_bytes)?;
        let lanes = lanes.max(1);
        Ok(Log {
            region,
            segments: Table::new(count_max)?,
            shift: segment_bytes.trailing_zeros(),
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
                next_sequence: 1,
                pick: 0x9E37_79B9_7F4A_7C15,
            }),
            limit: AtomicUsize::new(limit),
            fixed_bytes,
            flushed_below: AtomicU64::new(0),
            reclaimed_below: AtomicU64::new(0),
            reserve: 2 + lanes.min(count / 512),
            lane_open_max: (count / (lanes * 32)).clamp(2, 8),
            shelf_max: (count / 8).max(4),
            coarser: AtomicU32::new(0),
        })
    }

    pub(crate) fn huge_pages(&self) {
        self.region.huge_pages(true);
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

    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Segments the budget allows next to an index of `index_bytes`.
    pub(crate) fn allowed(&self, index_bytes: usize) -> usize {
        let left = self.limit().saturating_sub(index_bytes + self.fixed_bytes);
        (left / (self.segment_bytes() + size_of::<Segment>())).min(self.segments.len())
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
        let at = self.region.at(((id as usize) << self.shift) + offset);
        // SAFETY: an address inside a mapping, or one past it, is not null.
        unsafe { NonNull::new_unchecked(at) }
    }

    /// Brings bytes that will be written soon closer. A hint: it changes nothing but the time they take.
    #[inline]
    pub(crate) fn prefetch_write(&self, id: u32, offset: usize, bytes: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let end = (offset + bytes).min(self.segment_bytes());
            let mut at = offset;
            while at < end {
                // SAFETY: a prefetch reads and writes nothing; any address will do.
                unsafe {
                    std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(
                        self.address(id, at).as_ptr().cast::<i8>(),
                    );
                }
                at += 64;
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (id, offset, bytes);
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
            let id = match state.free.pop() {
                Some(id) => id,
                None => {
                    state.held += 1;
                    state.released.pop().unwrap_or_else(|| {
                        state.fresh += 1;
                        state.fresh - 1
                    })
                }
            };
            return Take::Segment(id);
        }
        let returning = state.retired.iter().filter(|(id, _)| !self.segment(*id).held()).count();
        // A move waits for any that returns; a write would rather make room than wait for readers, up to a point.
        if returning > if purpose == Purpose::Move { 0 } else { 4 } { Take::Soon } else { Take::Full }
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
            self.region.release((id as usize) << self.shift, self.segment_bytes());
            state.released.push(id);
            state.held -= 1;
        }
    }

    /// A number in the history of the log that belongs to no place.
    pub(crate) fn fresh_history(&self) -> u64 {
        let mut state = self.state.lock();
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        sequence << (self.shift - ALIGN.trailing_zeros())
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
            let sequence = state.next_sequence;
            state.next_sequence += 1;
            if group != Group::NEVER {
                state.deadlines.entry(group.deadline()).or_default().push((id, sequence));
            }
            sequence
        };
        let segment = self.segment(id);
        segment.open(sequence, queue, group, now);
        let mut header = [0u8; SEGMENT_HEADER_BYTES];
        header[..8].copy_from_slice(&sequence.to_le_bytes());
        header[8..12].copy_from_slice(&group.base.to_le_bytes());
        header[12..16].copy_from_slice(&group.span.to_le_bytes());
        header[16..20].copy_from_slice(&now.to_le_bytes());
        header[20..24].copy_from_slice(&(queue as u32).to_le_bytes());
        let spilled = spill.map_or(0, |(_, bytes)| bytes);
        header[24..28].copy_from_slice(&(spilled as u32).to_le_bytes());
        // SAFETY: the segment was free, so nobody reads it, and it is ours until it is sealed; the header lies at its
        // start.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), self.address(id, 0).as_ptr(), SEGMENT_HEADER_BYTES);
        }
        if let Some((place, _)) = spill {
            segment.set_spill(Some(place.0));
        }
        let used = SEGMENT_HEADER_BYTES + spilled.next_multiple_of(ALIGN);
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

    /// Retires a claimed segment: no index entry leads to it any more.
    pub(crate) fn retire(&self, id: u32, epochs: &Epochs) {
        let queue = self.segment(id).queue();
        let epoch = epochs.retire();
        let mut state = self.state.lock();
        state.sealed[queue as usize] -= 1;
        state.retired.push_back((id, epoch));
    }

    /// Gives back a segment that was taken and not opened.
    pub(crate) fn give_back(&self, id: u32) {
        self.state.lock().free.push(id);
    }

    /// Length of the value that goes on at the start of a segment. The caller claimed the segment, or appends to it.
    pub(crate) fn spilled_bytes(&self, id: u32) -> usize {
        // SAFETY: `open` wrote the header, and nobody writes it again before the segment is freed.
        let bytes = unsafe { self.address(id, 24).cast::<u32>().read() };
        u32::from_le(bytes) as usize
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

    /// Segments whose items have all expired at `now`, with their sequence numbers, in the order they were opened.
    pub(crate) fn due(&self, now: Seconds) -> Vec<(u32, u64)> {
        let mut state = self.state.lock();
        let later = state.deadlines.split_off(&now.saturating_add(1));
        let due = std::mem::replace(&mut state.deadlines, later);
        due.into_values().flatten().collect()
    }

    /// Looks at a due segment again at `at`.
    pub(crate) fn due_again(&self, at: Seconds, id: u32, sequence: u64) {
        self.state.lock().deadlines.entry(at).or_default().push((id, sequence));
    }

    /// From now on everything in segments opened so far counts as flushed. The caller has sealed them.
    pub(crate) fn flush(&self) {
        let state = self.state.lock();
        // Release: who reads the new bound sees that the open segments were sealed.
        self.flushed_below.fetch_max(state.next_sequence, Ordering::Release);
    }

    /// Sealed segments that were flushed, oldest first.
    pub(crate) fn flushed(&self) -> Vec<(u32, u64)> {
        let below = self.flushed_below.load(Ordering::Acquire);
        if below == self.reclaimed_below.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let state = self.state.lock();
        let mut flushed: Vec<_> = state
            .queues
            .iter()
            .flatten()
            .copied()
            .filter(|&(id, sequence)| sequence < below && self.segment(id).sequence() == sequence)
            .collect();
        if flushed.is_empty() {
            // All gone: do not look again before the next flush. (Those being filled are queued too, and come up again.)
            self.reclaimed_below.store(below, Ordering::Relaxed);
        }
        flushed.sort_unstable_by_key(|&(_, sequence)| sequence);
        flushed
    }

    /// Claims a segment if it still has this sequence number.
    pub(crate) fn claim_known(&self, id: u32, sequence: u64) -> Claim {
        // Under the lock no segment is sealed, so one that has the number now cannot be another's before it is claimed.
        let _state = self.state.lock();
        let segment = self.segment(id);
        if segment.sequence() != sequence || !(segment.is_sealed() || segment.is_open()) {
            Claim::Gone
        } else if segment.spill().is_none() && segment.claim() {
            Claim::Ours
        } else {
            Claim::Later
        }
    }

    /// Claims the oldest segment of a queue that can be claimed. The end of a live record that begins elsewhere may lie in
    /// it.
    pub(crate) fn claim_oldest(&self, queue: Queue) -> Option<u32> {
        let state = &mut *self.state.lock();
        let entries = &mut state.queues[queue as usize];
        for _ in 0..entries.len() {
            let (id, sequence) = entries.pop_front()?;
            let segment = self.segment(id);
            if segment.sequence() != sequence || !segment.is_sealed() {
                // It died or was freed since; its entry stayed behind. (A claimed one that is put back comes with a
                // new entry.)
                continue;
            }
            // One that holds nothing but a piece of a live value is freed where that value begins.
            if !segment.is_piece() && segment.claim() {
                return Some(id);
            }
            // Being filled, or somebody else's: later.
            entries.push_back((id, sequence));
        }
        None
    }

    /// Puts a claimed segment back at its queue's end. True: all of it died meanwhile, and the caller has claimed it again.
    #[must_use]
    pub(crate) fn unclaim(&self, id: u32) -> bool {
        let segment = self.segment(id);
        let queue = segment.queue();
        let mut state = self.state.lock();
        state.queues[queue as usize].push_back((id, segment.sequence()));
        segment.unclaim()
    }

    /// Claims a segment with holes: the one with the fewest live bytes of `samples` picked at random, if that is below
    /// `live_bytes_max`.
    pub(crate) fn claim_sparse(&self, samples: usize, live_bytes_max: usize) -> Option<u32> {
        let state = &mut *self.state.lock();
        let mut best: Option<(usize, u32)> = None;
        let exhaustive = samples >= state.fresh as usize;
        for n in 0..samples.min(state.fresh as usize) {
            let id = if exhaustive {
                n as u32
            } else {
                state.pick = state.pick.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state.pick >> 33) % u64::from(state.fresh)) as u32
            };
            let segment = self.segment(id);
            if segment.is_sealed() && segment.spill().is_none() {
                let live = segment.live_bytes();
                if live <= live_bytes_max && best.is_none_or(|(least, _)| live < least) {
                    best = Some((live, id));
                }
            }
        }
        let (_, id) = best?;
        self.segment(id).claim().then_some(id)
    }

    /// Segments that hold memory.
    pub(crate) fn held(&self) -> usize {
        self.state.lock().held
    }

    pub(crate) fn census(&self) -> Census {
        let state = self.state.lock();
        Census { held: state.held, free: state.free.len(), sealed: state.sealed }
    }

    /// Drops entries of segments that died from queues that hold too many of them.
    pub(crate) fn tidy(&self) {
        let state = &mut *self.state.lock();
        for queue in &mut state.queues {
            if queue.len() > 2 * self.segments.len().min(state.fresh as usize) + 64 {
                queue.retain(|&(id, sequence)| {
                    let segment = &self.segments[id as usize];
                    segment.sequence() == sequence && segment.is_sealed()
                });
            }
        }
    }
}
