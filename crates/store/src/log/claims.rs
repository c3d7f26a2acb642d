//! Which segments may leave: the oldest of a queue, those that are due, flushed or full of holes. Whoever wants one claims it,
//! and nobody else can; what becomes of its items is decided by who claimed it (`evict`).

#![deny(unsafe_code)]

use super::{Log, Seconds};
use crate::{epoch::Epochs, segment::Queue, sync::Ordering};

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

impl Log {
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

    /// Retires a claimed segment: no index entry leads to it any more.
    pub(crate) fn retire(&self, id: u32, epochs: &Epochs) {
        let queue = self.segment(id).queue();
        let epoch = epochs.retire();
        let mut state = self.state.lock();
        state.sealed[queue as usize] -= 1;
        state.retired.push_back((id, epoch));
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
