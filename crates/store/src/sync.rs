//! The atomics and locks of the store, so that loom can stand in for the standard library's.
//!
//! Every module of the store that synchronises takes its primitives from here and from nowhere else.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex as RawMutex, MutexGuard,
    atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex as RawMutex, MutexGuard,
    atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// A mutex without poisoning: a panic inside the store aborts the program in release builds, and in tests the panic
/// itself is the finding, so a poisoned flag tells nothing more.
#[derive(Debug)]
pub(crate) struct Mutex<T>(RawMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(RawMutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A lock for critical sections of a few dozen instructions. Waiters spin, then yield; unlocking is a plain store,
/// which, other than a mutex's exchange, does not wait until everything written before has reached the cache.
#[derive(Debug)]
pub(crate) struct SpinLock(AtomicU32);

/// Holds a [`SpinLock`].
pub(crate) struct SpinGuard<'l>(&'l AtomicU32);

impl SpinLock {
    pub(crate) fn new() -> SpinLock {
        SpinLock(AtomicU32::new(0))
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        let mut spins = 0;
        // Acquire: sees what the last holder wrote.
        while self.0.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            relax(spins);
            spins += 1;
        }
        SpinGuard(&self.0)
    }
}

impl Drop for SpinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Gives the processor to somebody else while waiting for another thread's short critical section.
pub(crate) fn relax(spins: u32) {
    #[cfg(loom)]
    {
        let _ = spins;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    match spins {
        0..32 => std::hint::spin_loop(),
        32..1000 => std::thread::yield_now(),
        // Whoever we wait for is not running: let it.
        _ => std::thread::sleep(std::time::Duration::from_micros(100)),
    }
}

/// Keeps a value on cache lines of its own (two lines: adjacent lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
