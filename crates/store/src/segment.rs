//! Segments: the life of one fixed-size piece of the log.
//!
//! Owns the phases and the counts that decide them. The log opens and seals segments, whoever removes an index entry
//! reports deaths, eviction claims. Nothing here touches the records themselves.
//!
//! | phase | who may append | who may read records | leaves by |
//! |---|---|---|---|
//! | free | nobody | nobody | `open`, under the log's lock |
//! | open | the lane that holds it | pinned readers | `seal` |
//! | sealed | nobody | pinned readers | `claim`: eviction, expiry, or the death of its last record |
//! | claimed | nobody | pinned readers, and the claimer without a pin | retired: freed when no older pin and no hold is left; or `unclaim` |
//!
//! A *record* counts in every segment that holds a part of it. The opener counts the parts it appends and hands the
//! number over when it seals; deaths are counted as they come. A sealed segment in which all parts are dead is claimed
//! by whoever notices, exactly once: phase, pending records and living parts are one word, so that every change sees
//! the others.

use crate::{
    Seconds,
    record::Group,
    sync::{AtomicU32, AtomicU64, Ordering},
};

const FREE: u64 = 0;
const OPEN: u64 = 1;
const SEALED: u64 = 2;
const CLAIMED: u64 = 3;

/// The life word: phase in the low bits, then records being filled, then parts that live. While a segment is open its
/// parts are not counted yet, only its deaths, so the count starts at a bias that sealing takes off.
const PHASE_MASK: u64 = 0b11;
const PENDING_ONE: u64 = 1 << 2;
const PENDING_MASK: u64 = ((1 << 30) - 1) << 2;
const ALIVE_ONE: u64 = 1 << 32;
const ALIVE_BIAS: u64 = 1 << 62;

/// What may go on in a segment, to one who only looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing: it is free.
    Free,
    /// Open, being filled, or somebody's.
    Busy,
    /// Nothing but deaths: it is sealed, and every record in it is published or dead.
    Settled,
}

/// The two queues of S3-FIFO. New items go to probation; those that were hit there move to main.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Probation = 0,
    Main = 1,
}

/// What is known of one segment. One cache line.
#[repr(align(64))]
pub(crate) struct Segment {
    /// Phase, pending records, living parts.
    life: AtomicU64,
    /// Readers that send a value piece by piece. A retired segment with some is not freed.
    holds: AtomicU32,
    /// Bytes from the start to the end of the last record, set when sealed.
    used: AtomicU32,
    /// Which opening this is, over all segments: never given twice. The history number of every place in it.
    sequence: AtomicU64,
    base: AtomicU32,
    span: AtomicU32,
    opened: AtomicU32,
    /// The segment in which the last record of this one goes on.
    next: AtomicU32,
    /// The place of the record whose value fills the start of this segment, while it lives. 0 is none.
    spill: AtomicU64,
    /// Bytes of dead parts.
    dead_bytes: AtomicU32,
    queue: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Segment>() == 64);

#[cfg(not(loom))]
#[allow(unsafe_code)]
// SAFETY: all fields are atomic integers, for which zero is valid; zero is the free phase.
unsafe impl crate::arena::Zeroed for Segment {}

impl Segment {
    #[cfg(loom)]
    pub(crate) fn new() -> Segment {
        Segment {
            life: AtomicU64::new(FREE),
            holds: AtomicU32::new(0),
            used: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            base: AtomicU32::new(0),
            span: AtomicU32::new(0),
            opened: AtomicU32::new(0),
            next: AtomicU32::new(0),
            spill: AtomicU64::new(0),
            dead_bytes: AtomicU32::new(0),
            queue: AtomicU32::new(0),
        }
    }

    /// Begins a new life. The caller took the segment from the free list.
    pub(crate) fn open(&self, sequence: u64, queue: Queue, group: Group, now: Seconds) {
        debug_assert_eq!(self.life.load(Ordering::Relaxed), FREE);
        self.used.store(0, Ordering::Relaxed);
        self.sequence.store(sequence, Ordering::Relaxed);
        self.base.store(group.base, Ordering::Relaxed);
        self.span.store(group.span, Ordering::Relaxed);
        self.opened.store(now, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.spill.store(0, Ordering::Relaxed);
        self.dead_bytes.store(0, Ordering::Relaxed);
        self.queue.store(queue as u32, Ordering::Relaxed);
        // Release: whoever acts on the phase sees the rest.
        self.life.store(OPEN | ALIVE_BIAS, Ordering::Release);
    }

    /// Notes what a start found of a segment, before its records are looked at. The phase stays free.
    #[cfg(not(loom))]
    pub(crate) fn adopt(&self, sequence: u64, queue: Queue, group: Group, opened: Seconds) {
        self.sequence.store(sequence, Ordering::Relaxed);
        self.base.store(group.base, Ordering::Relaxed);
        self.span.store(group.span, Ordering::Relaxed);
        self.opened.store(opened, Ordering::Relaxed);
        self.queue.store(queue as u32, Ordering::Relaxed);
    }

    /// Makes an adopted segment a sealed one, of which `parts` live.
    #[cfg(not(loom))]
    pub(crate) fn adopted(&self, used: usize, parts: u32, live_bytes: usize) {
        debug_assert_eq!(self.life.load(Ordering::Relaxed), FREE);
        self.used.store(used as u32, Ordering::Relaxed);
        let dead_bytes = used - crate::log::SEGMENT_HEADER_BYTES - live_bytes;
        self.dead_bytes.store(dead_bytes as u32, Ordering::Relaxed);
        self.life.store(SEALED + u64::from(parts) * ALIVE_ONE, Ordering::Release);
    }

    /// Ends appending, after `placed` parts. True: all of it is dead already, and the caller has claimed it.
    pub(crate) fn seal(&self, used: u32, placed: u32) -> bool {
        self.used.store(used, Ordering::Relaxed);
        // From open to sealed, the bias off, the parts on: one step, so that a death before or after it counts.
        let step = (SEALED - OPEN).wrapping_sub(ALIVE_BIAS).wrapping_add(u64::from(placed) * ALIVE_ONE);
        let life = self.life.fetch_add(step, Ordering::AcqRel).wrapping_add(step);
        debug_assert_eq!(life & PHASE_MASK, SEALED);
        self.claim_if_dead(life)
    }

    /// Takes a sealed segment with no pending record for one's own. False: not sealed, pending, or somebody was faster.
    pub(crate) fn claim(&self) -> bool {
        let mut life = self.life.load(Ordering::Acquire);
        while life & PHASE_MASK == SEALED && life & PENDING_MASK == 0 {
            let claimed = life - SEALED + CLAIMED;
            match self.life.compare_exchange_weak(life, claimed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => life = now,
            }
        }
        false
    }

    /// Puts a claimed segment back. True: all of it died meanwhile, and the caller has claimed it again.
    pub(crate) fn unclaim(&self) -> bool {
        let life = self.life.fetch_sub(CLAIMED - SEALED, Ordering::AcqRel) - (CLAIMED - SEALED);
        self.claim_if_dead(life)
    }

    /// Ends the life of a claimed segment whose readers are gone.
    pub(crate) fn free(&self) {
        debug_assert_eq!(self.life.load(Ordering::Relaxed) & PHASE_MASK, CLAIMED);
        self.life.store(FREE, Ordering::Release);
    }

    /// Reports that a record's part of `bytes` is dead. True: it was the last one, and the caller has claimed the
    /// segment.
    pub(crate) fn part_died(&self, bytes: usize) -> bool {
        self.dead_bytes.fetch_add(bytes as u32, Ordering::Relaxed);
        let life = self.life.fetch_sub(ALIVE_ONE, Ordering::AcqRel).wrapping_sub(ALIVE_ONE);
        self.claim_if_dead(life)
    }

    /// A record is about to be filled. Only while open.
    pub(crate) fn begin_pending(&self) {
        self.life.fetch_add(PENDING_ONE, Ordering::AcqRel);
    }

    /// The record is published, or dead. True: the segment is all dead, and the caller has claimed it.
    pub(crate) fn end_pending(&self) -> bool {
        let life = self.life.fetch_sub(PENDING_ONE, Ordering::AcqRel) - PENDING_ONE;
        self.claim_if_dead(life)
    }

    /// Claims the segment if `life`, as the caller has just made it, says sealed, nothing pending, nothing alive. If it
    /// has changed since, somebody else has claimed it: no other change is left to be made.
    fn claim_if_dead(&self, life: u64) -> bool {
        life == SEALED && self.life.compare_exchange(SEALED, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Keeps the segment from being freed. The caller is pinned and found a live record in it.
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn release_hold(&self) {
        self.holds.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn held(&self) -> bool {
        self.holds.load(Ordering::Acquire) != 0
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.life.load(Ordering::Acquire) & PHASE_MASK == SEALED
    }

    /// What may go on in it. Settled, to one who is pinned: it is not used again before the pin is gone.
    pub(crate) fn phase(&self) -> Phase {
        match self.life.load(Ordering::Acquire) {
            life if life & PHASE_MASK == FREE => Phase::Free,
            life if life & PHASE_MASK == SEALED && life & PENDING_MASK == 0 => Phase::Settled,
            _ => Phase::Busy,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.life.load(Ordering::Acquire) & PHASE_MASK == OPEN
    }

    /// Does nothing live in it any more?
    pub(crate) fn is_dead(&self) -> bool {
        self.life.load(Ordering::Acquire) < ALIVE_ONE
    }

    /// Is a piece of a value that begins elsewhere all that lives in a sealed segment?
    pub(crate) fn is_piece(&self) -> bool {
        self.spill().is_some() && self.life.load(Ordering::Relaxed) / ALIVE_ONE == 1
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Bytes of live records, for a sealed segment.
    pub(crate) fn live_bytes(&self) -> usize {
        let dead = self.dead_bytes.load(Ordering::Relaxed) as usize;
        self.used().saturating_sub(crate::log::SEGMENT_HEADER_BYTES + dead)
    }

    pub(crate) fn queue(&self) -> Queue {
        if self.queue.load(Ordering::Relaxed) == Queue::Main as u32 { Queue::Main } else { Queue::Probation }
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn group(&self) -> Group {
        Group { base: self.base.load(Ordering::Relaxed), span: self.span.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn opened(&self) -> Seconds {
        self.opened.load(Ordering::Relaxed)
    }

    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// The place of the live record that fills the start of this segment.
    pub(crate) fn spill(&self) -> Option<u64> {
        let place = self.spill.load(Ordering::Acquire);
        (place != 0).then_some(place)
    }

    pub(crate) fn set_spill(&self, place: Option<u64>) {
        self.spill.store(place.unwrap_or(0), Ordering::Release);
    }
}
