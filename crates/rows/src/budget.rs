//! How long a statement may take, and who looks at the clock: a timer of the runtime that it runs on, or, where there is none,
//! whoever ticks.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::link::Fault;

/// The deadline of a task on a runtime without timers.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    until: Mutex<Option<Instant>>,
    passed: Notify,
}

impl Ticks {
    /// Ends what should have ended by `now`.
    pub(crate) fn tick(&self, now: Instant) {
        let passed = self.until().take_if(|until| *until <= now);
        if passed.is_some() {
            self.passed.notify_one();
        }
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn within<T>(&self, time: Duration, statement: impl Future<Output = T>) -> Option<T> {
        let mut statement = pin!(statement);
        *self.until() = Some(Instant::now() + time);
        loop {
            tokio::select! {
                biased;
                done = &mut statement => {
                    *self.until() = None;
                    return Some(done);
                }
                // A word that came too late for the one before means nothing to this one.
                () = self.passed.notified() => if self.until().is_none() {
                    return None;
                },
            }
        }
    }
}

/// The time of one statement.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    time: Duration,
    ticks: Option<Arc<Ticks>>,
}

impl Budget {
    /// By the runtime's timer, or by these ticks.
    pub(crate) fn new(time: Duration, ticks: Option<&Arc<Ticks>>) -> Budget {
        Budget { time, ticks: ticks.cloned() }
    }

    /// Waits for one statement.
    pub(crate) async fn within<T>(&self, statement: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let done = match &self.ticks {
            Some(ticks) => ticks.within(self.time, statement).await,
            None => tokio::time::timeout(self.time, statement).await.ok(),
        };
        done.unwrap_or_else(|| Err(Fault::Overdue(format!("no answer within {:?}", self.time))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::{Context, Poll, Waker};

    use super::*;

    const TIME: Duration = Duration::from_secs(5);

    fn polled<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
        std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_ticked_ends_when_its_time_is_over_and_not_before() {
        let ticks = Arc::new(Ticks::default());
        let budget = Budget::new(TIME, Some(&ticks));
        let mut statement = Box::pin(budget.within(pending::<Result<(), Fault>>()));
        assert!(polled(&mut statement).is_pending());
        ticks.tick(Instant::now());
        assert!(polled(&mut statement).is_pending());
        ticks.tick(Instant::now() + TIME);
        assert!(matches!(polled(&mut statement), Poll::Ready(Err(Fault::Overdue(_)))));
    }

    #[test]
    fn a_tick_that_comes_too_late_does_not_end_the_next() {
        let ticks = Arc::new(Ticks::default());
        let budget = Budget::new(TIME, Some(&ticks));
        *ticks.until() = Some(Instant::now());
        ticks.tick(Instant::now());
        let mut statement = Box::pin(budget.within(pending::<Result<(), Fault>>()));
        assert!(polled(&mut statement).is_pending());
        assert!(polled(&mut statement).is_pending());
        drop(statement);
        let mut statement = Box::pin(budget.within(ready(Ok(7))));
        assert!(matches!(polled(&mut statement), Poll::Ready(Ok(7))));
        assert!(ticks.until().is_none());
    }
}
