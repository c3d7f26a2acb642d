//! Epochs: when may memory that readers could still be looking at be used again?
//!
//! A reader pins before it looks into the index and unpins when it has let go of the record. Memory whose last index
//! entry is gone is *retired* with the number of the epoch it was retired in; it is free once no reader is pinned in
//! that epoch or an earlier one. Each reader writes its own cache line and nothing shared.
//!
//! | who | does | and relies on |
//! |---|---|---|
//! | reader | stores the epoch in its slot, full fence, reads the index | the fence: either the collector sees the slot, or the reader sees the entry gone |
//! | writer | removes the last index entry, then `retire` | the increment is a release: who pins the new epoch sees the removal |
//! | collector | full fence, reads all slots | as the reader |
//!
//! What never happens here: waiting. Whoever needs memory looks again later.

use std::sync::Arc;

use crate::sync::{AtomicU64, Mutex, Ordering, Padded, fence};

/// The epochs of one store.
pub(crate) struct Epochs {
    /// The current epoch. Starts at 1: a slot of 0 means "not pinned".
    current: Padded<AtomicU64>,
    slots: Mutex<Vec<Arc<Padded<AtomicU64>>>>,
}

/// One reader's place among the epochs. Belongs to one thread at a time.
pub(crate) struct Reader {
    slot: Arc<Padded<AtomicU64>>,
}

/// While it lives, nothing retired after it was made is used again.
pub(crate) struct Pin<'r> {
    slot: &'r AtomicU64,
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs { current: Padded(AtomicU64::new(1)), slots: Mutex::new(Vec::new()) }
    }

    pub(crate) fn reader(&self) -> Reader {
        let slot = Arc::new(Padded(AtomicU64::new(0)));
        self.slots.lock().push(Arc::clone(&slot));
        Reader { slot }
    }

    pub(crate) fn forget(&self, reader: &Reader) {
        self.slots.lock().retain(|slot| !Arc::ptr_eq(slot, &reader.slot));
    }

    /// The epoch in which what was just removed from the index counts as retired.
    pub(crate) fn retire(&self) -> u64 {
        // Release: who later pins the incremented epoch sees the removal. The fence orders the removal before the
        // collector's reading of the slots.
        let epoch = self.current.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        epoch
    }

    /// Everything retired in an epoch below the answer is free.
    pub(crate) fn safe_below(&self) -> u64 {
        fence(Ordering::SeqCst);
        let current = self.current.load(Ordering::Acquire);
        let slots = self.slots.lock();
        let mut safe = current;
        for slot in slots.iter() {
            let pinned = slot.load(Ordering::Acquire);
            if pinned != 0 {
                safe = safe.min(pinned);
            }
        }
        safe
    }
}

impl Reader {
    /// Pins the current epoch. One pin at a time for each reader.
    #[inline]
    pub(crate) fn pin(&self, epochs: &Epochs) -> Pin<'_> {
        debug_assert_eq!(self.slot.load(Ordering::Relaxed), 0, "a reader pins once at a time");
        let epoch = epochs.current.load(Ordering::Acquire);
        // On x86 an exchange is a full fence and cheaper than a store with an `mfence` behind it; the fence below then
        // orders the compiler only, and elsewhere does the work itself.
        #[cfg(target_arch = "x86_64")]
        {
            self.slot.swap(epoch, Ordering::SeqCst);
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }
        #[cfg(any(not(target_arch = "x86_64"), loom, miri))]
        {
            self.slot.store(epoch, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        Pin { slot: &self.slot.0 }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(0, Ordering::Release);
    }
}
