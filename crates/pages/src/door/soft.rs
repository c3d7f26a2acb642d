//! Soft purges of many pages at once: what was stored before such a moment and has such a tag is stale.
//!
//! A table of moments by tag, of fixed size. Looking at it costs a page that is newer than all of them one comparison. When
//! it is full, its older half becomes one moment for all pages: more is made stale than was asked for, never less.
//!
//! Where the pool's items outlast the server, an item has the latest moment. A start makes stale whatever is older; and all
//! there is, if the item has been evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nuthatch_store::{Handle, Seconds, SetOptions};

/// Tags that have a moment of their own.
const MARKS_MAX: usize = 4096;

/// The key of the item that has the latest moment, as text.
const LATEST: &[u8] = b"page:soft-purges";

/// See the module.
#[derive(Default)]
pub(crate) struct SoftPurges {
    /// The latest of all moments.
    latest: AtomicU32,
    /// Whether it is to be known after a restart.
    outlasts: AtomicBool,
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

    /// Since when what was stored at `stored_at` with these tags is stale, if it is. Of the second of a purge nobody knows
    /// which came first: it is.
    pub(crate) fn cover<'t>(&self, stored_at: Seconds, tags: impl IntoIterator<Item = &'t [u8]>) -> Option<Seconds> {
        let marks = self.marks();
        let of_tags = tags.into_iter().filter_map(|tag| marks.by_tag.get(&self.hasher.hash_one(tag)).copied());
        let moments = of_tags.chain([marks.everything]).filter(|moment| *moment > 0 && stored_at <= *moment);
        // From the first of them on.
        moments.min()
    }

    /// From now on what is noted is known after a restart; and what was noted before the one at `opened_at` is known again.
    /// Once only.
    pub(crate) fn outlast(&self, handle: &mut Handle, opened_at: Seconds) {
        if self.outlasts.swap(true, Ordering::SeqCst) {
            return;
        }
        let noted = handle.get(LATEST, opened_at).and_then(|hit| {
            let text: Vec<u8> = hit.value().flatten().copied().collect();
            std::str::from_utf8(&text).ok()?.parse().ok()
        });
        let moment: Seconds = noted.unwrap_or(opened_at.saturating_sub(1));
        if moment > 0 {
            self.mark_everything(moment);
        }
        self.note(handle, opened_at);
    }

    /// Notes the latest moment for a restart, if there will be something then.
    pub(crate) fn note(&self, handle: &mut Handle, now: Seconds) {
        if self.outlasts.load(Ordering::SeqCst) {
            let latest = self.latest.load(Ordering::Acquire).to_string();
            // Without room for it, all is stale after a restart.
            let _ = handle.set(LATEST, latest.as_bytes(), &SetOptions::default(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_until_then_and_has_the_tag_is_covered() {
        let purges = SoftPurges::default();
        assert!(!purges.may_cover(0) && purges.cover(0, [&b"a"[..]]).is_none());
        purges.mark(b"a", 100);
        purges.mark(b"b", 110);
        assert!(purges.may_cover(110) && !purges.may_cover(111));
        assert_eq!(purges.cover(100, [&b"c"[..], b"b", b"a"]), Some(100));
        assert_eq!(purges.cover(101, [&b"c"[..], b"b", b"a"]), Some(110));
        assert_eq!([purges.cover(101, [&b"a"[..]]), purges.cover(99, [&b"c"[..]]), purges.cover(99, [])], [None; 3]);
        purges.mark_everything(200);
        assert_eq!((purges.cover(200, []), purges.cover(201, [&b"a"[..]])), (Some(200), None));
    }

    #[test]
    fn a_full_table_covers_more_and_never_less() {
        let purges = SoftPurges::default();
        for number in 1..=3 * MARKS_MAX as u32 {
            purges.mark(&number.to_be_bytes(), number);
        }
        assert!(purges.marks().by_tag.len() <= MARKS_MAX);
        for number in 1..=3 * MARKS_MAX as u32 {
            assert!(purges.cover(number, [&number.to_be_bytes()[..]]).is_some(), "{number}");
        }
        assert_eq!(purges.cover(3 * MARKS_MAX as u32, [&b"other"[..]]), None);
    }
}
