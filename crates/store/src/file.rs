//! Where a log's segments lie: memory that goes with the process, or a file that stays.
//!
//! Owns the choice of geometry (how large segments are, and how many there can be), and for a memory file whether what
//! is in it can be used. Of files it does no more than set their length, map them and flush the mapping: the caller
//! opens them and keeps other servers from them. It never looks at a record.
//!
//! ```text
//! file   0          4 KiB                 2 MiB
//!        │ page │ watermarks │  (hole)  │ segment 0 │ segment 1 │ ···         only pages in use take up space
//! ```
//!
//! | the page says | at a start |
//! |---|---|
//! | nothing: the file is new | it becomes a memory file |
//! | stopped | its items are read |
//! | running, and the machine was not started since | its server was killed; what it wrote is all there, its items are read |
//! | running, and the machine was started since, or it is a copy | what is in it is not of one moment: the file begins anew |
//! | another layout, or segments too large for the limit | the file begins anew |
//! | something else: it is not a memory file | refused |
//!
//! A machine that stops writes the pages of a file that is not in memory in any order; hence the difference between a
//! server that was killed and one whose machine was.

use std::{fmt, fs::File, io, os::unix::fs::MetadataExt, sync::atomic::Ordering};

use crate::{
    NEVER,
    arena::{PAGE_BYTES, Region},
    head::{self, BUCKETS_MAX, BUCKETS_MIN, LAYOUT, MAGIC, Page, RUNNING, STOPPED},
    store::StoreError,
    watermarks::{Bucket, Watermarks},
};

const SEGMENT_BYTES_MIN: usize = 16 << 10;
const SEGMENT_BYTES_MAX: usize = 256 << 10;
/// A store needs as many: its lanes each hold some open.
const SEGMENTS_MIN: usize = 64;

/// Where segments begin in a file: aligned to huge pages.
const SEGMENTS_AT: usize = 2 << 20;

const _: () = assert!(page_bytes(BUCKETS_MAX) <= SEGMENTS_AT);

/// Bytes of the page and the table of watermarks behind it.
const fn page_bytes(buckets: usize) -> usize {
    PAGE_BYTES + buckets * size_of::<Bucket>()
}

/// The watermarks' buckets for a limit.
fn buckets_for(limit: usize) -> usize {
    (limit / (256 << 10)).next_power_of_two().clamp(BUCKETS_MIN, BUCKETS_MAX)
}

/// A file to keep a store's items in.
#[derive(Debug)]
pub struct MemoryFile {
    /// The file, readable and writable, and no other process's while the store lives. Nobody may make it shorter.
    pub file: File,
    /// What tells this start of the machine from others (Linux: `/proc/sys/kernel/random/boot_id`). Without it only a
    /// file whose server was stopped, and not killed, is used again.
    pub boot: Option<u128>,
}

/// Why a memory file's items were not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Emptied {
    /// Another version, or another kind of machine, wrote it.
    OtherLayout,
    /// Its server was killed, and the machine was started again (or cannot be asked whether it was); or it is a copy that
    /// was made while a server used the file.
    Unfinished,
    /// Its segments are too large for the memory limit.
    TooCoarse {
        /// The least memory limit that would do, in bytes.
        least: usize,
    },
    /// What its first page says cannot be.
    Damaged,
}

impl fmt::Display for Emptied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Emptied::OtherLayout => f.write_str("another version or another kind of machine wrote it"),
            Emptied::Unfinished => {
                f.write_str("its server did not stop before the machine did, or before it was copied")
            }
            Emptied::TooCoarse { least } => {
                write!(f, "it was laid out for more memory, and can be used with a limit of at least {least} bytes")
            }
            Emptied::Damaged => f.write_str("its first page is damaged"),
        }
    }
}

/// The memory of one log.
pub(crate) struct Memory {
    page: Region,
    buckets: usize,
    pub(crate) segments: Region,
    pub(crate) segment_bytes: usize,
    /// Segments there is address space for.
    pub(crate) count_max: usize,
    /// What is written here outlives the store.
    pub(crate) is_kept: bool,
    file: Option<File>,
}

/// A segment's size for a limit. A thousand segments: fine enough that evicting a whole one is close to evicting items,
/// coarse enough that the lock around them is taken once for hundreds of items.
fn segment_bytes_for(limit: usize) -> usize {
    (limit / 1024).next_power_of_two().clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

fn count_for(limit: usize, segment_bytes: usize) -> usize {
    limit / segment_bytes + 1
}

impl Memory {
    /// Memory that goes with the store.
    ///
    /// # Errors
    /// The address space cannot be reserved.
    pub(crate) fn anonymous(limit: usize, limit_max: usize) -> io::Result<Memory> {
        let segment_bytes = segment_bytes_for(limit);
        let count_max = count_for(limit_max.max(limit), segment_bytes);
        let buckets = buckets_for(limit);
        let memory = Memory {
            page: Region::reserve(page_bytes(buckets))?,
            buckets,
            segments: Region::reserve(count_max * segment_bytes)?,
            segment_bytes,
            count_max,
            is_kept: false,
            file: None,
        };
        memory.begin(None);
        Ok(memory)
    }

    /// Memory in a file, with what is in it if that can be used.
    ///
    /// # Errors
    /// The file is not a memory file, or the system refuses it.
    pub(crate) fn of_file(
        file: MemoryFile,
        limit: usize,
        limit_max: usize,
    ) -> Result<(Memory, Option<Emptied>), StoreError> {
        let MemoryFile { file, boot } = file;
        let inode = file.metadata().map_err(StoreError::File)?.ino();
        let found = look(&file, boot, limit)?;
        let (segment_bytes, used, buckets) = match found {
            Found::Kept { segment_bytes, fresh, buckets } => (segment_bytes, fresh, buckets),
            Found::New | Found::Emptied(_) => (segment_bytes_for(limit), 0, buckets_for(limit)),
        };
        let count_max = count_for(limit_max.max(limit), segment_bytes).max(used);
        let is_new = !matches!(found, Found::Kept { .. });
        if is_new {
            file.set_len(0).map_err(StoreError::File)?;
        }
        lengthen(&file, count_for(limit, segment_bytes) * segment_bytes)?;
        let map = |at, bytes| Region::of_file(&file, at, bytes).map_err(StoreError::File);
        let memory = Memory {
            page: map(0, page_bytes(buckets))?,
            buckets,
            segments: map(SEGMENTS_AT, count_max * segment_bytes)?,
            segment_bytes,
            count_max,
            is_kept: true,
            file: Some(file),
        };
        if is_new {
            memory.begin(boot);
        } else {
            memory.set_boot(boot);
        }
        memory.page().inode.store(inode, Ordering::Relaxed);
        memory.page().state.store(RUNNING, Ordering::Release);
        // The mark of a clean stop is gone from the device before anything else changes there.
        memory.page.flush().map_err(StoreError::File)?;
        let emptied = if let Found::Emptied(why) = found { Some(why) } else { None };
        Ok((memory, emptied))
    }

    /// Fills in a page that is all zero.
    fn begin(&self, boot: Option<u128>) {
        let page = self.page();
        page.magic.store(MAGIC, Ordering::Relaxed);
        page.layout.store(LAYOUT, Ordering::Relaxed);
        page.segment_bytes.store(self.segment_bytes as u32, Ordering::Relaxed);
        page.buckets.store(self.buckets as u32, Ordering::Relaxed);
        page.next_sequence.store(1, Ordering::Relaxed);
        page.flush_at.store(NEVER, Ordering::Relaxed);
        self.set_boot(boot);
        // Release: a page that says so has the rest.
        page.state.store(RUNNING, Ordering::Release);
    }

    fn set_boot(&self, boot: Option<u128>) {
        let boot = boot.unwrap_or(0);
        self.page().boot[0].store(boot as u64, Ordering::Relaxed);
        self.page().boot[1].store((boot >> 64) as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn page(&self) -> &Page {
        Page::of(&self.page)
    }

    /// What was forgotten.
    #[inline]
    pub(crate) fn watermarks(&self) -> Watermarks<'_> {
        head::watermarks(&self.page, self.buckets)
    }

    /// Bytes of memory that are not segments.
    pub(crate) fn page_bytes(&self) -> usize {
        page_bytes(self.buckets)
    }

    /// Makes room for segments of so many bytes together.
    ///
    /// # Errors
    /// The system refuses a longer file.
    pub(crate) fn lengthen(&self, limit: usize) -> Result<(), StoreError> {
        match &self.file {
            Some(file) => lengthen(file, count_for(limit, self.segment_bytes) * self.segment_bytes),
            None => Ok(()),
        }
    }

    /// Has everything reach the file, and then says there that it did.
    ///
    /// # Errors
    /// The device would not take it.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.is_kept {
            self.segments.flush()?;
            self.page.flush()?;
            self.page().state.store(STOPPED, Ordering::Release);
            self.page.flush()?;
        }
        Ok(())
    }

    /// A copy of everything there is now, as a crash in this moment would leave it.
    #[cfg(test)]
    #[allow(unsafe_code)]
    pub(crate) fn crashed(&self) -> Memory {
        let copy_of = |region: &Region, reserved: usize, bytes: usize| {
            let copy = Region::reserve(reserved).unwrap();
            // SAFETY: both are `bytes` long, and the tests that call this let nobody else use the store meanwhile.
            unsafe { std::ptr::copy_nonoverlapping(region.at(0), copy.at(0), bytes) };
            copy
        };
        Memory {
            page: copy_of(&self.page, self.page_bytes(), self.page_bytes()),
            segments: copy_of(
                &self.segments,
                self.count_max * self.segment_bytes,
                self.page().fresh.load(Ordering::Relaxed) as usize * self.segment_bytes,
            ),
            file: None,
            ..*self
        }
    }
}

fn lengthen(file: &File, bytes: usize) -> Result<(), StoreError> {
    let wanted = (SEGMENTS_AT + bytes) as u64;
    let is = file.metadata().map_err(StoreError::File)?.len();
    if is < wanted { file.set_len(wanted).map_err(StoreError::File) } else { Ok(()) }
}

/// What a file turns out to be.
enum Found {
    New,
    Kept { segment_bytes: usize, fresh: usize, buckets: usize },
    Emptied(Emptied),
}

/// Looks at a file, and changes nothing.
fn look(file: &File, boot: Option<u128>, limit: usize) -> Result<Found, StoreError> {
    let metadata = file.metadata().map_err(StoreError::File)?;
    let bytes = metadata.len() as usize;
    if !metadata.is_file() || (1..SEGMENTS_AT).contains(&bytes) {
        return Err(StoreError::NotAMemoryFile);
    }
    if bytes == 0 {
        return Ok(Found::New);
    }
    let region = Region::of_file(file, 0, PAGE_BYTES).map_err(StoreError::File)?;
    let page = Page::of(&region);
    match page.magic.load(Ordering::Acquire) {
        MAGIC => {}
        swapped if swapped == MAGIC.swap_bytes() => return Ok(Found::Emptied(Emptied::OtherLayout)),
        0 if Page::is_blank(&region) => return Ok(Found::New),
        _ => return Err(StoreError::NotAMemoryFile),
    }
    let state = page.state.load(Ordering::Acquire);
    if state == 0 {
        // A server was killed while it made the file.
        return Ok(Found::New);
    }
    if page.layout.load(Ordering::Relaxed) != LAYOUT {
        return Ok(Found::Emptied(Emptied::OtherLayout));
    }
    let segment_bytes = page.segment_bytes.load(Ordering::Relaxed) as usize;
    let fresh = page.fresh.load(Ordering::Relaxed) as usize;
    let buckets = page.buckets.load(Ordering::Relaxed) as usize;
    if !segment_bytes.is_power_of_two()
        || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
        || fresh > (bytes - SEGMENTS_AT) / segment_bytes
        || !buckets.is_power_of_two()
        || !(BUCKETS_MIN..=BUCKETS_MAX).contains(&buckets)
        || !(state == RUNNING || state == STOPPED)
    {
        return Ok(Found::Emptied(Emptied::Damaged));
    }
    let is_as_it_was = boot.is_some_and(|boot| {
        boot as u64 == page.boot[0].load(Ordering::Relaxed)
            && (boot >> 64) as u64 == page.boot[1].load(Ordering::Relaxed)
            && metadata.ino() == page.inode.load(Ordering::Relaxed)
    });
    if state == RUNNING && !is_as_it_was {
        return Ok(Found::Emptied(Emptied::Unfinished));
    }
    let least = segment_bytes * SEGMENTS_MIN;
    if limit < least {
        return Ok(Found::Emptied(Emptied::TooCoarse { least }));
    }
    Ok(Found::Kept { segment_bytes, fresh, buckets })
}
