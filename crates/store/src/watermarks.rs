//! Watermarks: up to where in the log's history everything of a prefix, or with a tag, is forgotten.
//!
//! Owns a table of fixed size from 64-bit hashes to watermarks, and the order in which it is written and read. What a hash
//! is made of, and which records are compared with a watermark, is decided in `forget`.
//!
//! The table is set-associative. A bucket that is full folds its oldest mark into one that all hashes of the bucket share:
//! then more is forgotten than was asked for, of one part in as many as there are buckets, and never less.
//!
//! Readers take no lock; one writer at a time, under the log's lock. A server can be killed between any two stores.
//!
//! | the writer stores, in this order | so that a reader (or a start) in between |
//! |---|---|
//! | the oldest watermark into `folded`, then 0 over the mark, then the new hash, then its watermark | finds what the mark said in one of the two: it reads the mark first, and `folded` last |
//! | the mark, then the number that what is stored from now on gets | who has the number, or a later one, finds the mark |

use crate::sync::{AtomicU64, Ordering};

/// Marks of one bucket.
pub(crate) const BUCKET_MARKS: usize = if cfg!(loom) { 1 } else { 7 };

/// A prefix or tag that was forgotten.
#[repr(C)]
struct Mark {
    /// What was stored before this number in history is forgotten. 0: the mark is free.
    below: AtomicU64,
    hash: AtomicU64,
}

/// Marks of hashes that share bits, two cache lines of them. All zero is an empty one.
#[repr(C)]
pub(crate) struct Bucket {
    marks: [Mark; BUCKET_MARKS],
    /// What was stored before this number is forgotten of every hash of the bucket.
    folded: AtomicU64,
    _spare: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 128);

#[cfg(loom)]
impl Bucket {
    pub(crate) fn new() -> Bucket {
        let free = || Mark { below: AtomicU64::new(0), hash: AtomicU64::new(0) };
        Bucket { marks: std::array::from_fn(|_| free()), folded: AtomicU64::new(0), _spare: AtomicU64::new(0) }
    }
}

/// The table.
#[derive(Clone, Copy)]
pub(crate) struct Watermarks<'t>(&'t [Bucket]);

impl<'t> Watermarks<'t> {
    /// Of a power of two of buckets.
    pub(crate) fn new(buckets: &'t [Bucket]) -> Watermarks<'t> {
        debug_assert!(buckets.len().is_power_of_two());
        Watermarks(buckets)
    }

    fn bucket(&self, hash: u64) -> &'t Bucket {
        &self.0[(hash >> 32) as usize & (self.0.len() - 1)]
    }

    /// What was stored before this number is forgotten; 0: nothing.
    pub(crate) fn below(&self, hash: u64) -> u64 {
        let bucket = self.bucket(hash);
        let mut below = 0;
        for mark in &bucket.marks {
            // Acquire, both: who finds another hash here, or none, finds in `folded` what was here before.
            let is = mark.below.load(Ordering::Acquire);
            if is != 0 && mark.hash.load(Ordering::Acquire) == hash {
                below = below.max(is);
            }
        }
        below.max(bucket.folded.load(Ordering::Relaxed))
    }

    /// Forgets what was stored before `below`, the highest watermark so far. True: for want of room, also of other hashes,
    /// up to an older watermark.
    pub(crate) fn set(&self, hash: u64, below: u64) -> bool {
        let bucket = self.bucket(hash);
        let read = |mark: &Mark| (mark.below.load(Ordering::Relaxed), mark.hash.load(Ordering::Relaxed));
        if let Some(known) = bucket.marks.iter().find(|mark| matches!(read(mark), (1.., is) if is == hash)) {
            known.below.store(below, Ordering::Release);
            return false;
        }
        // A free one has the lowest watermark of all.
        let Some(oldest) = bucket.marks.iter().min_by_key(|mark| read(mark).0) else { return false };
        let (folded, _) = read(oldest);
        if folded != 0 {
            bucket.folded.store(bucket.folded.load(Ordering::Relaxed).max(folded), Ordering::Release);
            oldest.below.store(0, Ordering::Release);
        }
        oldest.hash.store(hash, Ordering::Release);
        oldest.below.store(below, Ordering::Release);
        folded != 0
    }

    /// Takes out the watermarks up to this one, because nothing is left that they forget.
    pub(crate) fn clear_upto(&self, upto: u64) {
        for below in self.all() {
            if below.load(Ordering::Relaxed) <= upto {
                below.store(0, Ordering::Release);
            }
        }
    }

    /// The highest watermark; 0: the table is empty.
    #[cfg(not(loom))]
    pub(crate) fn highest(&self) -> u64 {
        self.all().map(|below| below.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Prefixes and tags in the table.
    #[cfg(not(loom))]
    pub(crate) fn marks(&self) -> usize {
        self.0.iter().flat_map(|bucket| &bucket.marks).filter(|mark| mark.below.load(Ordering::Relaxed) != 0).count()
    }

    fn all(&self) -> impl Iterator<Item = &'t AtomicU64> {
        self.0.iter().flat_map(|bucket| bucket.marks.iter().map(|mark| &mark.below).chain([&bucket.folded]))
    }
}

/// Forgets what of `hash` was stored until now: all that has a number in history below the one answered. `next` is the
/// number that what is stored next gets, at least. One writer at a time. `noted` is told the watermark between the two
/// stores that matter: who has that number as its own sees what it did.
pub(crate) fn forget(table: Watermarks<'_>, next: &AtomicU64, hash: u64, noted: impl FnOnce(u64)) -> (u64, bool) {
    // Numbers given so far are below `next`, but for those that only look at it, which can be equal.
    let below = next.load(Ordering::Relaxed) + 1;
    let folded = table.set(hash, below);
    noted(below);
    // Release: who reads this number, or one given after it, sees the mark.
    next.store(below, Ordering::Release);
    (below, folded)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn table(buckets: usize) -> Vec<Bucket> {
        let bucket = || Bucket {
            marks: std::array::from_fn(|_| Mark { below: AtomicU64::new(0), hash: AtomicU64::new(0) }),
            folded: AtomicU64::new(0),
            _spare: AtomicU64::new(0),
        };
        (0..buckets).map(|_| bucket()).collect()
    }

    #[test]
    fn a_full_bucket_forgets_more_of_its_own_hashes_and_nothing_less() {
        let buckets = table(2);
        let table = Watermarks::new(&buckets);
        let hashes: Vec<u64> = (1..=BUCKET_MARKS as u64 + 2).collect();
        for (n, &hash) in hashes.iter().enumerate() {
            assert_eq!(table.set(hash, 10 * (n as u64 + 1)), n >= BUCKET_MARKS);
        }
        assert_eq!(table.marks(), BUCKET_MARKS);
        for (n, &hash) in hashes.iter().enumerate() {
            // The two oldest were folded.
            assert_eq!(table.below(hash), (10 * (n as u64 + 1)).max(20));
        }
        assert_eq!(table.below(99), 20, "of the same bucket");
        assert_eq!(table.below(1 << 32), 0, "of another");
        assert!(!table.set(hashes[5], 1000), "a hash that is there takes no other mark");
        assert_eq!((table.below(hashes[5]), table.highest(), table.marks()), (1000, 1000, BUCKET_MARKS));
        table.clear_upto(999);
        assert_eq!((table.below(hashes[5]), table.below(99), table.marks()), (1000, 0, 1));
        table.clear_upto(1000);
        assert_eq!(table.highest(), 0);
    }

    #[test]
    fn a_watermark_lies_above_every_number_that_was_given_or_looked_at() {
        let buckets = table(1);
        let next = AtomicU64::new(5);
        let mut noted = 0;
        assert_eq!(forget(Watermarks::new(&buckets), &next, 7, |below| noted = below), (6, false));
        assert_eq!((noted, next.load(Ordering::Relaxed), Watermarks::new(&buckets).below(7)), (6, 6, 6));
    }
}
