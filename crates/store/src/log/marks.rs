//! What of the log was flushed or forgotten: bounds in its history that readers compare a segment or a record with.
//!
//! Owns how the bounds move, and in which order readers see them. What is below one is given back by `evict` and `forget`.

#![deny(unsafe_code)]

use super::Log;
use crate::{
    segment::Segment,
    sync::Ordering,
    watermarks::{self, Watermarks},
};

impl Log {
    /// From now on everything in segments opened so far counts as flushed. The caller has sealed them.
    pub(crate) fn flush(&self) {
        let _state = self.state.lock();
        let below = self.page().next_sequence.load(Ordering::Relaxed);
        self.page().flushed_below.store(below, Ordering::Relaxed);
        // Release: who reads the new bound sees that the open segments were sealed.
        self.flushed_below.fetch_max(below, Ordering::Release);
        self.suspect_below.fetch_max(below, Ordering::Release);
    }

    /// Forgets what of a hash was stored until now. Answers the watermark, and whether more was forgotten for want of room.
    pub(crate) fn forget(&self, hash: u64) -> (u64, bool) {
        let _state = self.state.lock();
        watermarks::forget(self.memory.watermarks(), &self.page().next_sequence, hash, |below| {
            self.newest_watermark.store(below, Ordering::Release);
            self.suspect_below.store(below, Ordering::Release);
        })
    }

    /// Takes out the watermarks up to this one: nothing is left that they forget.
    pub(crate) fn forgotten_upto(&self, upto: u64) {
        let _state = self.state.lock();
        let table = self.memory.watermarks();
        table.clear_upto(upto);
        let newest = table.highest();
        self.newest_watermark.store(newest, Ordering::Relaxed);
        self.suspect_below.store(newest.max(self.flushed_below.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// What was forgotten.
    pub(crate) fn watermarks(&self) -> Watermarks<'_> {
        self.memory.watermarks()
    }

    /// See the field.
    #[inline]
    pub(crate) fn newest_watermark(&self) -> u64 {
        self.newest_watermark.load(Ordering::Acquire)
    }

    /// May what lies in this segment have been flushed or forgotten?
    #[inline]
    pub(crate) fn is_suspect(&self, segment: &Segment) -> bool {
        segment.sequence() < self.suspect_below.load(Ordering::Acquire)
    }

    /// The number in history that a record is born at now.
    #[inline]
    pub(crate) fn birth(&self) -> u64 {
        // Acquire: see `watermarks::forget`.
        self.page().next_sequence.load(Ordering::Acquire)
    }
}
