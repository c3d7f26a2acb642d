//! The time that deadlines are kept by: microseconds since the client was made, as of the last look.
//!
//! It is looked at when a link wakes up and at each tick, not for each request, and never goes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Clock {
    base: Instant,
    now_us: AtomicU64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock { base: Instant::now(), now_us: AtomicU64::new(0) }
    }

    /// The time as of the last look.
    #[inline]
    pub(super) fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    /// Looks at the time.
    pub(super) fn look(&self) -> u64 {
        self.advance(Instant::now())
    }

    /// A moment, as this clock counts.
    pub(super) fn at_us(&self, moment: Instant) -> u64 {
        micros(moment.saturating_duration_since(self.base))
    }

    /// Says what time it is; the answer is later when someone else has said so.
    pub(super) fn advance(&self, now: Instant) -> u64 {
        let now_us = self.at_us(now);
        self.now_us.fetch_max(now_us, Ordering::Relaxed).max(now_us)
    }
}

/// Whole microseconds; half a million years are the most.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
