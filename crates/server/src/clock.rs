//! The server's clock: whole seconds since the same moment in every process, so that what a memory file says of times
//! means the same after a restart.
//!
//! The machine's time of day is read once, at the start; from then on the clock goes by the monotonic one, so that it
//! makes no jumps. The control thread ticks it once a second, everyone reads it with one relaxed load, and `debugtime`
//! moves or stops it. The store is handed its numbers and never reads a clock of its own. Nothing here sleeps.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nuthatch_store::{NEVER, Seconds};

/// UNIX time of second 0, in September 2020: every time that a client can name in 32 bits is a second of this clock. A
/// machine that believes it is earlier counts from when its server started, as it would know no better after a restart.
const EPOCH_SECONDS: u64 = 1_600_000_000;

/// The least reading of the clock. Second 1 therefore always lies in the past: what is stored with it is dead at once.
const SECONDS_MIN: Seconds = 2;

/// Exptimes above this many seconds are absolute UNIX times (protocol.txt, "Expiration times").
pub(crate) const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// Seconds since the epoch, shared by every thread.
#[derive(Debug)]
pub(crate) struct Clock {
    now: AtomicU32,
    paused: AtomicBool,
    /// Seconds `debugtime N` has added.
    moved_seconds: AtomicI64,
    started: Instant,
    /// The reading when the process started.
    started_at: Seconds,
    /// UNIX time of this clock's second 0.
    epoch_seconds: u64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn new() -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        let epoch_seconds = EPOCH_SECONDS.min(unix.saturating_sub(u64::from(SECONDS_MIN)));
        let started_at = (unix - epoch_seconds).clamp(u64::from(SECONDS_MIN), u64::from(NEVER - 1)) as Seconds;
        Clock {
            now: AtomicU32::new(started_at),
            paused: AtomicBool::new(false),
            moved_seconds: AtomicI64::new(0),
            started: Instant::now(),
            started_at,
            epoch_seconds,
        }
    }

    /// The current second.
    #[inline]
    pub(crate) fn now(&self) -> Seconds {
        // Relaxed: a reader that sees a tick a moment late acts as if its request had arrived a moment earlier.
        self.now.load(Ordering::Relaxed)
    }

    /// Reads the machine's monotonic clock. Called by the control thread about once a second.
    pub(crate) fn tick(&self) {
        if !self.paused.load(Ordering::Relaxed) {
            self.set_now();
        }
    }

    /// Seconds since the process started.
    pub(crate) fn uptime_seconds(&self) -> u32 {
        self.now().saturating_sub(self.started_at)
    }

    /// The UNIX time of the current second.
    pub(crate) fn unix_seconds(&self) -> u64 {
        self.unix_seconds_at(self.now())
    }

    /// The UNIX time of second `at`.
    pub(crate) fn unix_seconds_at(&self, at: Seconds) -> u64 {
        self.epoch_seconds + u64::from(at)
    }

    /// Stops the clock (`debugtime p`).
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    /// Lets the clock run again (`debugtime r`).
    pub(crate) fn resume(&self) {
        self.paused.store(false, Ordering::Relaxed);
        self.set_now();
    }

    /// Moves the clock by `seconds`, back if negative (`debugtime N`). It never goes below its start.
    pub(crate) fn shift(&self, seconds: i64) {
        self.moved_seconds.fetch_add(seconds, Ordering::Relaxed);
        let moved = i64::from(self.now()).saturating_add(seconds);
        self.now.store(self.clamp(moved), Ordering::Relaxed);
    }

    /// The expiry a client's exptime stands for: 0 never, negative already past, at most 30 days relative, above that
    /// an absolute UNIX time (protocol.txt, "Expiration times").
    #[inline]
    pub(crate) fn expiry(&self, exptime: i64) -> Seconds {
        if exptime == 0 {
            NEVER
        } else if exptime < 0 {
            1
        } else if exptime <= RELATIVE_SECONDS_MAX {
            self.now().saturating_add(exptime as u32).min(NEVER - 1)
        } else {
            let since_epoch = exptime.saturating_sub(self.epoch_seconds as i64);
            since_epoch.clamp(1, i64::from(NEVER - 1)) as Seconds
        }
    }

    /// Seconds by which it is ahead of the machine's.
    pub(crate) fn moved_seconds(&self) -> u32 {
        self.moved_seconds.load(Ordering::Relaxed).clamp(0, u32::MAX.into()) as u32
    }

    fn set_now(&self) {
        let elapsed = self.started.elapsed().as_secs() as i64 + i64::from(self.started_at);
        let now = elapsed.saturating_add(self.moved_seconds.load(Ordering::Relaxed));
        self.now.store(self.clamp(now), Ordering::Relaxed);
    }

    /// Into the clock's range; the last second is `NEVER` and is not a time.
    fn clamp(&self, seconds: i64) -> Seconds {
        seconds.clamp(i64::from(self.started_at), i64::from(NEVER - 1)) as Seconds
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_never_expires_and_negative_is_dead_at_once() {
        let clock = Clock::new();
        assert_eq!(clock.expiry(0), NEVER);
        assert!(clock.expiry(-1) < clock.now());
        assert!(clock.expiry(i64::from(i32::MIN)) < clock.now());
    }

    #[test]
    fn thirty_days_is_relative_and_one_second_more_is_absolute() {
        let clock = Clock::new();
        assert_eq!(clock.expiry(RELATIVE_SECONDS_MAX), clock.now() + RELATIVE_SECONDS_MAX as u32);
        assert!(clock.expiry(RELATIVE_SECONDS_MAX + 1) < clock.now(), "30 days after 1970 is long past");
        let tomorrow = clock.unix_seconds() as i64 + 86_400;
        assert_eq!(clock.expiry(tomorrow), clock.now() + 86_400);
        assert_eq!(clock.unix_seconds_at(clock.expiry(i64::from(u32::MAX))), u64::from(u32::MAX));
        assert_eq!(clock.expiry(i64::MAX), NEVER - 1);
    }

    #[test]
    fn a_stopped_clock_moves_only_when_moved() {
        let clock = Clock::new();
        clock.pause();
        let before = clock.now();
        clock.tick();
        assert_eq!(clock.now(), before);
        clock.shift(90);
        clock.shift(10);
        assert_eq!(clock.now(), before + 100);
        clock.resume();
        assert!(clock.now() >= before + 100);
    }

    #[test]
    fn moving_far_back_or_forward_stays_within_the_clock() {
        let clock = Clock::new();
        clock.shift(i64::MIN / 2);
        assert_eq!((clock.now(), clock.uptime_seconds()), (clock.started_at, 0));
        clock.shift(i64::MAX);
        assert_eq!(clock.now(), NEVER - 1);
    }
}
