//! Deadlines without timers.
//!
//! A timer armed in a worker would have its event loop set and clear one at every wait. Instead whoever waits for an
//! origin is woken a few times a second, by one tick from outside, and looks at the clock then. Nothing is woken while
//! nobody waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often [`Ticks::tick`] should be called. Deadlines are late by at most this.
pub const TICK: Duration = Duration::from_millis(200);

/// Wakes those who wait. One for each server.
#[derive(Debug, Default)]
pub struct Ticks {
    /// Ticks so far.
    count: AtomicU64,
    /// Seconds by which the time is moved.
    moved: AtomicU32,
    waiting: Mutex<Vec<Waker>>,
}

impl Ticks {
    /// Time has passed: everyone who waits looks at their deadline.
    pub fn tick(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.count.fetch_add(1, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Moves the time that deadlines go by to so many seconds ahead of the machine's, and never back: for tests, which do not
    /// wait for it.
    pub fn move_to(&self, seconds: u32) {
        self.moved.fetch_max(seconds, Ordering::Relaxed);
    }

    /// The time that deadlines go by.
    pub(crate) fn now(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.moved.load(Ordering::Relaxed).into())
    }

    /// Waits for `future`, but no longer than `limit`.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        self.within_unless(limit, || false, future).await
    }

    /// The same, but when the time is over and `is_excused`, it begins anew.
    pub(crate) async fn within_unless<F: Future>(
        &self,
        limit: Duration,
        mut is_excused: impl FnMut() -> bool,
        future: F,
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut deadline = Deadline::after(self, limit);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            while deadline.has_passed(self, cx) {
                if !is_excused() {
                    return Poll::Ready(None);
                }
                deadline.set(self, limit.max(TICK));
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for `time`.
    pub(crate) async fn sleep(&self, time: Duration) {
        let _ = self.within(time, std::future::pending::<()>()).await;
    }
}

/// A moment by which something is to have happened.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    /// The tick that this task is registered for.
    registered: Option<u64>,
}

impl Deadline {
    pub(crate) fn after(ticks: &Ticks, limit: Duration) -> Deadline {
        Deadline { at: ticks.now() + limit, registered: None }
    }

    /// Puts it off.
    fn set(&mut self, ticks: &Ticks, limit: Duration) {
        self.at = ticks.now() + limit;
    }

    /// Has the moment passed? If not, the task is woken to ask again. To be asked of one task only.
    pub(crate) fn has_passed(&mut self, ticks: &Ticks, cx: &Context<'_>) -> bool {
        // The clock is read once a tick, however often the task is polled in between.
        if self.registered == Some(ticks.count.load(Ordering::Acquire)) {
            return false;
        }
        if ticks.now() >= self.at {
            return true;
        }
        let mut waiting = ticks.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(cx.waker().clone());
        self.registered = Some(ticks.count.load(Ordering::Acquire));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_woken_by_ticks_alone_and_registers_once() {
        let ticks = Ticks::default();
        let cx = Context::from_waker(Waker::noop());
        let mut deadline = Deadline::after(&ticks, Duration::from_secs(3600));
        for _ in 0..10 {
            assert!(!deadline.has_passed(&ticks, &cx));
        }
        assert_eq!(ticks.waiting.lock().expect("no panic").len(), 1);
        ticks.tick();
        assert_eq!(ticks.waiting.lock().expect("no panic").len(), 0);
        assert!(!deadline.has_passed(&ticks, &cx));
        ticks.move_to(3600);
        assert!(!deadline.has_passed(&ticks, &cx), "nobody looks before the next tick");
        ticks.tick();
        assert!(deadline.has_passed(&ticks, &cx));
        ticks.move_to(0);
        assert!(deadline.has_passed(&ticks, &cx), "time does not go back");
        deadline.set(&ticks, Duration::ZERO);
        assert!(deadline.has_passed(&ticks, &cx));
    }
}
