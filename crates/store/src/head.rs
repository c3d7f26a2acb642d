//! Heads: what a start finds in a memory file besides records, byte by byte.
//!
//! Owns two layouts: the page at the beginning of a file, and the head of each segment. The log keeps both up to date at
//! every moment (also where there is no file, which makes it one way and not two); `file` and `restore` read them. What
//! they mean is decided there.
//!
//! A server can be killed between any two stores, so the order of the stores is the format: a segment's head is torn
//! as long as its sequence number is 0, and a record's prefix is whole when the head's `used` has gone beyond it.
//!
//! This is one of the store's modules with `unsafe` code.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::{
    Seconds,
    arena::{PAGE_BYTES, Region},
    record::{ALIGN, Group},
    segment::Queue,
    watermarks::{Bucket, Watermarks},
};

/// At the start of each segment, so that a start can read the log without an index.
pub(crate) const SEGMENT_HEADER_BYTES: usize = size_of::<SegmentHead>();

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(ALIGN));

/// The first page of a memory file.
#[repr(C)]
pub(crate) struct Page {
    /// [`MAGIC`], written first.
    pub(crate) magic: AtomicU64,
    /// [`LAYOUT`].
    pub(crate) layout: AtomicU32,
    pub(crate) segment_bytes: AtomicU32,
    /// [`RUNNING`] or [`STOPPED`], or 0 while a page is written for the first time.
    pub(crate) state: AtomicU64,
    /// Which start of the machine the file was last used in.
    pub(crate) boot: [AtomicU64; 2],
    /// Which file it is: a copy that was made while a server ran is another one.
    pub(crate) inode: AtomicU64,
    /// The number of the next segment that is opened. Above every one given.
    pub(crate) next_sequence: AtomicU64,
    /// Segments opened before this one hold nothing any more (flush).
    pub(crate) flushed_below: AtomicU64,
    /// The first segment that was never used.
    pub(crate) fresh: AtomicU32,
    /// The second at which a delayed flush takes effect, or `NEVER`.
    pub(crate) flush_at: AtomicU32,
    /// How many items there were of late, so that a start makes room for as many.
    pub(crate) items: AtomicU64,
    /// The last second the store was told: what had expired then stays expired, whatever the clock says later.
    pub(crate) now: AtomicU32,
    /// Buckets of the table of watermarks, which lies behind this page.
    pub(crate) buckets: AtomicU32,
    /// What prefixes and tags are hashed with, here and in records; 0: not chosen yet.
    pub(crate) forget_seed: AtomicU64,
    /// The delimiter that the prefixes in the table end with.
    pub(crate) delimiter: AtomicU32,
}

/// How many buckets a table of watermarks can have. What it takes is a two-thousandth of the memory.
pub(crate) const BUCKETS_MIN: usize = 16;
/// See [`BUCKETS_MIN`].
pub(crate) const BUCKETS_MAX: usize = 4096;

/// The table of watermarks behind a page.
pub(crate) fn watermarks(region: &Region, buckets: usize) -> Watermarks<'_> {
    // SAFETY: the region is a page and so many buckets long (`file`), both aligned to a cache line; its bytes are
    // initialised, any bytes are valid atomic integers, and nobody uses them but through this type.
    Watermarks::new(unsafe { std::slice::from_raw_parts(region.at(PAGE_BYTES).cast::<Bucket>(), buckets) })
}

/// "nuthatch", read as a number: on a machine of another byte order it is another one.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"nuthatch");
/// Counts changes of any layout a file is made of: this page, the segments' heads, the records.
pub(crate) const LAYOUT: u32 = 2;
/// A server uses the file, or was killed while it did.
pub(crate) const RUNNING: u64 = 1;
/// A server was stopped, and everything it wrote is in the file.
pub(crate) const STOPPED: u64 = 2;

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES);

impl Page {
    /// Is a region's first page all zero?
    pub(crate) fn is_blank(region: &Region) -> bool {
        // SAFETY: as below.
        let words = unsafe { &*region.at(0).cast::<[AtomicU64; PAGE_BYTES / 8]>() };
        words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// The page at the start of a region that holds nothing else but the table of watermarks.
    pub(crate) fn of(region: &Region) -> &Page {
        // SAFETY: a region is at least a page long and aligned to it; its bytes are initialised, any bytes are valid
        // atomic integers, and nobody uses them but through this type.
        unsafe { &*region.at(0).cast::<Page>() }
    }
}

/// The head of a segment.
#[repr(C)]
pub(crate) struct SegmentHead {
    /// Which opening this is, over all segments. 0: there is nothing here.
    sequence: AtomicU64,
    /// The number in history of the record whose value goes on at the start of this segment; 0 is none.
    origin: AtomicU64,
    base: AtomicU32,
    span: AtomicU32,
    opened: AtomicU32,
    queue: AtomicU32,
    /// Length of the value that goes on here.
    spilled: AtomicU32,
    /// Bytes from the start to the end of the last record whose prefix is whole. Kept up to date only in a file.
    used: AtomicU32,
}

/// What a head says.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) sequence: u64,
    pub(crate) origin: u64,
    pub(crate) group: Group,
    pub(crate) opened: Seconds,
    pub(crate) queue: Queue,
    pub(crate) spilled: usize,
    pub(crate) used: usize,
}

impl SegmentHead {
    /// The head of the segment that starts at `offset` of a region of segments.
    #[inline]
    pub(crate) fn at(region: &Region, offset: usize) -> &SegmentHead {
        debug_assert!(offset.is_multiple_of(align_of::<SegmentHead>()));
        // SAFETY: segments begin aligned to their size and are longer than a head; its bytes are initialised, any bytes
        // are valid atomic integers, and nobody uses them but through this type.
        unsafe { &*region.at(offset).cast::<SegmentHead>() }
    }

    /// Begins a new life of the segment.
    pub(crate) fn write(&self, opening: &Opening) {
        self.clear();
        self.origin.store(opening.origin, Ordering::Relaxed);
        self.base.store(opening.group.base, Ordering::Relaxed);
        self.span.store(opening.group.span, Ordering::Relaxed);
        self.opened.store(opening.opened, Ordering::Relaxed);
        self.queue.store(opening.queue as u32, Ordering::Relaxed);
        self.spilled.store(opening.spilled as u32, Ordering::Relaxed);
        self.used.store(opening.used as u32, Ordering::Relaxed);
        // Release: with the number, the rest is there.
        self.sequence.store(opening.sequence, Ordering::Release);
    }

    /// Ends its life.
    pub(crate) fn clear(&self) {
        self.sequence.store(0, Ordering::Relaxed);
        // Before anything that is written here next.
        fence(Ordering::Release);
    }

    /// Notes that records lie up to `used`, the last one's prefix included.
    #[inline]
    pub(crate) fn set_used(&self, used: usize) {
        // Release: the prefix is written first.
        self.used.store(used as u32, Ordering::Release);
    }

    /// Notes that what lies beyond `used` is not a record any more.
    pub(crate) fn take_back(&self, used: usize) {
        self.used.store(used as u32, Ordering::Relaxed);
        // Before the bytes are written again.
        fence(Ordering::Release);
    }

    pub(crate) fn spilled(&self) -> usize {
        self.spilled.load(Ordering::Relaxed) as usize
    }

    /// What the head of a segment of `segment_bytes` says; `None` if that cannot be, or nothing.
    pub(crate) fn read(&self, segment_bytes: usize) -> Option<Opening> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let group = Group { base: self.base.load(Ordering::Relaxed), span: self.span.load(Ordering::Relaxed) };
        let queue = match self.queue.load(Ordering::Relaxed) {
            0 => Queue::Probation,
            1 => Queue::Main,
            _ => return None,
        };
        let opening = Opening {
            sequence,
            origin: self.origin.load(Ordering::Relaxed),
            group,
            opened: self.opened.load(Ordering::Relaxed),
            queue,
            spilled: self.spilled(),
            used: self.used.load(Ordering::Relaxed) as usize,
        };
        let starts = SEGMENT_HEADER_BYTES + opening.spilled.next_multiple_of(ALIGN);
        let is_sound = sequence != 0
            && group.is_sound()
            && (opening.spilled == 0) == (opening.origin == 0)
            && opening.used.is_multiple_of(ALIGN)
            && (starts..=segment_bytes).contains(&opening.used);
        is_sound.then_some(opening)
    }
}
