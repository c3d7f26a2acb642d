//! Soft purges of many pages at once: what was stored before such a moment and has such a tag is stale.
//!
//! A table of moments by tag, of fixed size. Looking at it costs a page that is newer than all of them one comparison. When
//! it is full, its older half becomes one moment for all pages: more is made stale than was asked for, never less.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nuthatch_store::Seconds;

/// Tags that have a moment of their own.
const MARKS_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct SoftPurges {
    /// The latest of all moments.
    latest: AtomicU32,
    marks: Mutex<Marks>,
    hasher: RandomState,
}

#[derive(Default)]
struct Marks {
    /// What was stored until then is stale, whatever its tags.
    everything: Seconds,
    by_tag: HashMap<u64, Seconds>,
}

impl SoftPurges {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has this tag is stale if it was stored until `now`.
    pub(crate) fn mark(&self, tag: &[u8], now: Seconds) {
        let mut marks = self.marks();
        if marks.by_tag.len() >= MARKS_MAX {
            let mut moments: Vec<Seconds> = marks.by_tag.values().copied().collect();
            let (_, median, _) = moments.select_nth_unstable(MARKS_MAX / 2);
            let median = *median;
            marks.everything = marks.everything.max(median);
            marks.by_tag.retain(|_, moment| *moment > median);
        }
        marks.by_tag.insert(self.hasher.hash_one(tag), now);
        self.latest.fetch_max(now, Ordering::Release);
    }

    /// Everything is stale that was stored until `now`.
    pub(crate) fn mark_everything(&self, now: Seconds) {
        let mut marks = self.marks();
        *marks = Marks { everything: now, by_tag: HashMap::new() };
        self.latest.fetch_max(now, Ordering::Release);
    }

    /// Can what was stored at `stored_at` be stale by one of them? If not, [`SoftPurges::cover`] need not be asked.
    #[inline]
    pub(crate) fn may_cover(&self, stored_at: Seconds) -> bool {
        let latest = self.latest.load(Ordering::Acquire);
        latest > 0 && stored_at <= latest
    }

    /// Is what was stored at `stored_at` with these tags stale? Of the second of a purge nobody knows which came first: it
    /// is.
    pub(crate) fn cover<'t>(&self, stored_at: Seconds, tags: impl IntoIterator<Item = &'t [u8]>) -> bool {
        let marks = self.marks();
        let is_before = |moment: Seconds| moment > 0 && stored_at <= moment;
        is_before(marks.everything)
            || tags
                .into_iter()
                .any(|tag| marks.by_tag.get(&self.hasher.hash_one(tag)).is_some_and(|moment| is_before(*moment)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_until_then_and_has_the_tag_is_covered() {
        let purges = SoftPurges::default();
        assert!(!purges.may_cover(0) && !purges.cover(0, [&b"a"[..]]));
        purges.mark(b"a", 100);
        assert!(purges.may_cover(100) && !purges.may_cover(101));
        assert!(purges.cover(100, [&b"b"[..], b"a"]));
        assert!(!purges.cover(101, [&b"a"[..]]) && !purges.cover(99, [&b"b"[..]]) && !purges.cover(99, []));
        purges.mark_everything(200);
        assert!(purges.cover(200, []) && !purges.cover(201, [&b"a"[..]]));
    }

    #[test]
    fn a_full_table_covers_more_and_never_less() {
        let purges = SoftPurges::default();
        for number in 1..=3 * MARKS_MAX as u32 {
            purges.mark(&number.to_be_bytes(), number);
        }
        assert!(purges.marks().by_tag.len() <= MARKS_MAX);
        for number in 1..=3 * MARKS_MAX as u32 {
            assert!(purges.cover(number, [&number.to_be_bytes()[..]]), "{number}");
        }
        assert!(!purges.cover(3 * MARKS_MAX as u32, [&b"other"[..]]));
    }
}
