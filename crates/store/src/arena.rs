//! Memory: one reserved range of address space, of which only the touched pages cost anything.
//!
//! Owns the mappings. The log and the index use it; nothing else does. It never decides what lies where, and it never
//! looks at a byte: it hands out addresses inside its range, and gives pages back to the system.
//!
//! This is one of the store's modules with `unsafe` code.

#![allow(unsafe_code)]

use std::{fs::File, io, marker::PhantomData, ops::Index, ptr::NonNull};

/// The unit in which the system gives and takes memory. Ranges given back are cut to multiples of it.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Brings the cache line at an address closer, for use soon. A hint: it changes nothing but the time that takes.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch neither reads nor writes as far as the program can tell; any address will do.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// As [`prefetch`], for a line that will be written.
#[inline]
pub(crate) fn prefetch_to_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(at.cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// A range of writable memory: zeroed, or a part of a file. Pages are taken from the system when they are first touched.
///
/// The range itself is never shared as a Rust reference: users make references to the parts they own.
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// Its pages are those of a file.
    is_file: bool,
    #[cfg(not(miri))]
    map: memmap2::MmapRaw,
}

// SAFETY: a `Region` is an address range and the mapping behind it; it hands out raw pointers only, and who uses those
// keeps the rules of the range (see `record` and `log`).
unsafe impl Send for Region {}
// SAFETY: as above; the methods that take `&self` change no Rust-visible state.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` (rounded up to a page) of zeroed memory.
    ///
    /// # Errors
    /// The system refuses the range: no address space, or a limit on it (`ulimit -v`).
    pub(crate) fn reserve(bytes: usize) -> io::Result<Region> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        #[cfg(miri)]
        {
            let layout = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES).map_err(io::Error::other)?;
            // SAFETY: the layout's size is not zero.
            let base = unsafe { std::alloc::alloc_zeroed(layout) };
            let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            Ok(Region { base, bytes, is_file: false })
        }
        #[cfg(not(miri))]
        {
            let map = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
            let map = memmap2::MmapRaw::from(map);
            let base = NonNull::new(map.as_mut_ptr()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            Ok(Region { base, bytes, is_file: false, map })
        }
    }

    /// Maps `bytes` (rounded up to a page) of a file from `offset` on, which is a multiple of [`PAGE_BYTES`]. What lies
    /// beyond the end of the file must not be touched before the file is that long, and nobody may make it shorter.
    ///
    /// # Errors
    /// The system refuses the mapping.
    #[cfg(not(loom))]
    pub(crate) fn of_file(file: &File, offset: usize, bytes: usize) -> io::Result<Region> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        #[cfg(miri)]
        {
            let _ = (file, offset, bytes);
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }
        #[cfg(not(miri))]
        {
            let map = memmap2::MmapOptions::new().offset(offset as u64).len(bytes).map_raw(file)?;
            let base = NonNull::new(map.as_mut_ptr()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            Ok(Region { base, bytes, is_file: true, map })
        }
    }

    /// Has a file system give the pages of a part now, where it still can say no: later it could only end the process.
    /// False: it has none left. (Systems that cannot be asked are trusted.)
    #[cfg(not(loom))]
    pub(crate) fn populate(&self, offset: usize, bytes: usize) -> bool {
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.is_file {
            const ENOMEM: i32 = 12;
            const EFAULT: i32 = 14;
            let populated = self.map.advise_range(memmap2::Advice::PopulateWrite, offset, bytes);
            return !populated.is_err_and(|error| matches!(error.raw_os_error(), Some(ENOMEM | EFAULT)));
        }
        let _ = (offset, bytes);
        true
    }

    /// Has what was written to a file's part reach the file's device. Returns when it has.
    ///
    /// # Errors
    /// The device would not take it.
    #[cfg(not(loom))]
    pub(crate) fn flush(&self) -> io::Result<()> {
        #[cfg(not(miri))]
        if self.is_file {
            return self.map.flush();
        }
        Ok(())
    }

    /// The address of byte `offset`.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        // SAFETY: `offset` lies in the range or one past it; callers compute it from segment and slot numbers, which
        // are bounded by the range's length (asserted in debug builds).
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Gives the whole pages inside `offset..offset + bytes` back to the system; they read as zero afterwards. (A file
    /// system without holes keeps a file's pages as they are.)
    ///
    /// The caller owns that part of the range: nobody reads or writes it during the call.
    pub(crate) fn release(&self, offset: usize, bytes: usize) {
        let start = offset.next_multiple_of(PAGE_BYTES);
        let end = (offset + bytes).min(self.bytes) / PAGE_BYTES * PAGE_BYTES;
        if start >= end {
            return;
        }
        #[cfg(miri)]
        // SAFETY: in range (above), and the caller owns the part.
        unsafe {
            self.at(start).write_bytes(0, end - start);
        }
        #[cfg(not(miri))]
        {
            #[cfg(target_os = "linux")]
            let advice =
                if self.is_file { memmap2::UncheckedAdvice::Remove } else { memmap2::UncheckedAdvice::DontNeed };
            #[cfg(not(target_os = "linux"))]
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: DONTNEED on a private anonymous mapping makes the pages read as zero, REMOVE on a shared one of a
            // file does so by a hole in the file; the range lies inside the mapping, and the caller owns it. A failure
            // leaves the pages as they are, which costs memory and nothing else.
            let _ = unsafe { self.map.unchecked_advise_range(advice, start, end - start) };
        }
    }

    /// Asks for huge pages (or asks for none of them). Advice: a system without them ignores it.
    pub(crate) fn huge_pages(&self, wanted: bool) {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let advice = if wanted { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage };
            let _ = self.map.advise(advice);
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        let _ = wanted;
    }
}

#[cfg(miri)]
impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `reserve` with this layout.
        unsafe {
            std::alloc::dealloc(
                self.base.as_ptr(),
                std::alloc::Layout::from_size_align_unchecked(self.bytes, PAGE_BYTES),
            );
        }
    }
}

/// Types for which memory full of zero bytes is a valid value.
///
/// # Safety
/// All-zero bytes are a valid value of the type, and the type needs no `Drop`.
pub(crate) unsafe trait Zeroed: Sync {}

#[cfg(not(loom))]
// SAFETY: an atomic integer of zero is a valid atomic integer.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}

/// A fixed-length array of atomics in a `Region`: touching an element is what makes its page cost memory.
#[cfg(not(loom))]
pub(crate) struct Table<T: Zeroed> {
    region: Region,
    len: usize,
    of: PhantomData<T>,
}

#[cfg(not(loom))]
impl<T: Zeroed> Table<T> {
    pub(crate) fn new(len: usize) -> io::Result<Table<T>> {
        assert!(align_of::<T>() <= PAGE_BYTES && !std::mem::needs_drop::<T>());
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let region = Region::reserve(bytes)?;
        region.huge_pages(false);
        Ok(Table { region, len, of: PhantomData })
    }

    /// Makes the elements `from..to` zero and gives their whole pages back. Elements on a page shared with others
    /// outside the range must be zero already.
    pub(crate) fn release(&self, from: usize, to: usize) {
        self.region.release(from * size_of::<T>(), (to - from) * size_of::<T>());
    }
}

#[cfg(not(loom))]
impl<T: Zeroed> Table<T> {
    /// The elements of a range. (A reference to these and no others: Miri checks every byte a reference spans.)
    ///
    /// # Panics
    /// When the range reaches beyond the table.
    #[inline]
    pub(crate) fn range(&self, from: usize, len: usize) -> &[T] {
        assert!(from + len <= self.len);
        // SAFETY: in bounds (above); the region was zeroed when mapped, which is a valid value of `T: Zeroed`; page
        // alignment suffices (asserted in `new`); `T` is changed only through its own atomics.
        unsafe { std::slice::from_raw_parts(self.region.at(from * size_of::<T>()).cast::<T>(), len) }
    }

    /// How many elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Under loom the atomics are not plain memory, so the table is a vector.
#[cfg(loom)]
pub(crate) struct Table<T> {
    cells: Vec<T>,
    of: PhantomData<T>,
}

#[cfg(loom)]
impl<T: Default> Table<T> {
    pub(crate) fn new(len: usize) -> io::Result<Table<T>> {
        Ok(Table { cells: (0..len).map(|_| T::default()).collect(), of: PhantomData })
    }

    pub(crate) fn release(&self, _from: usize, _to: usize) {}
}

#[cfg(loom)]
impl<T> Table<T> {
    pub(crate) fn range(&self, from: usize, len: usize) -> &[T] {
        &self.cells[from..from + len]
    }
}

impl<T: Cell> Index<usize> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.range(at, 1)[0]
    }
}

/// What a table can be made of.
#[cfg(not(loom))]
pub(crate) trait Cell: Zeroed {}
#[cfg(not(loom))]
impl<T: Zeroed> Cell for T {}
#[cfg(loom)]
pub(crate) trait Cell {}
#[cfg(loom)]
impl<T> Cell for T {}
