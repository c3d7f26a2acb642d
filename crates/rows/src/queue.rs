//! Requests on their way to the threads, or the tasks, that own connections: who takes what waits, and who is woken when.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::waiting::{Refusal, Waiting, Weighs};

/// A queue between many who ask and a few who do: threads, of which only one who takes alone may gather, or one task.
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
}

struct Inner<T> {
    waiting: Waiting<T>,
    /// Who takes is woken when this many are there, and not by each of them.
    wanted: usize,
    /// The task that takes, while there is nothing to be taken.
    idle: Option<Waker>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        let inner = Inner { waiting: Waiting::default(), wanted: 1, idle: None };
        Queue { inner: Mutex::new(inner), arrived: Condvar::new() }
    }
}

impl<T: Weighs> Queue<T> {
    /// Puts one in.
    pub(crate) fn push(&self, job: T) -> Result<(), Refusal> {
        let mut inner = self.lock();
        inner.waiting.push(job)?;
        let (is_enough, idle) = (inner.waiting.len() >= inner.wanted, inner.idle.take());
        drop(inner);
        match idle {
            Some(task) => task.wake(),
            None if is_enough => self.arrived.notify_one(),
            None => {}
        }
        Ok(())
    }

    /// Up to `most` for a task, once there are any. None: closed and empty.
    pub(crate) fn poll_take(&self, context: &Context<'_>, most: usize) -> Poll<Option<Vec<T>>> {
        let mut inner = self.lock();
        if !inner.waiting.is_empty() {
            return Poll::Ready(Some(inner.waiting.take(most)));
        }
        if inner.waiting.is_closed() {
            return Poll::Ready(None);
        }
        inner.idle = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits for the first until `idle` is over, then for up to `gather` until as many are there as are `expected`, and takes up
    /// to `most`. None: closed and empty. Empty: idle.
    pub(crate) fn take(&self, most: usize, expected: usize, gather: Duration, idle: Option<Instant>) -> Option<Vec<T>> {
        let mut inner = self.lock();
        let expected = expected.min(most);
        let asked_at = Instant::now();
        while inner.waiting.is_empty() {
            if inner.waiting.is_closed() {
                return None;
            }
            match idle.map(|until| until.saturating_duration_since(Instant::now())) {
                None => inner = self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Some(Vec::new()),
                Some(left) => {
                    inner = self.arrived.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        // Who has not come by now does something else.
        let gather = if asked_at.elapsed() > gather { Duration::ZERO } else { gather };
        let until = Instant::now() + gather;
        while inner.waiting.len() < expected && !inner.waiting.is_closed() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner.wanted = expected;
            inner = self.arrived.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
            inner.wanted = 1;
        }
        Some(inner.waiting.take(most))
    }

    /// Nothing more goes in; what is in still comes out.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.waiting.close();
        let idle = inner.idle.take();
        drop(inner);
        if let Some(task) = idle {
            task.wake();
        }
        self.arrived.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().waiting.is_closed()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_that_comes_alone_does_not_wait() {
        let queue = Queue::default();
        queue.push(1).unwrap();
        assert_eq!(queue.take(8, 0, LONG, None), Some(vec![1]));
    }

    #[test]
    fn as_many_are_waited_for_as_are_expected() {
        let queue = Queue::default();
        for n in 0..3 {
            queue.push(n).unwrap();
        }
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take(8, 5, LONG, None));
            for n in 3..5 {
                queue.push(n).unwrap();
            }
            assert_eq!(taken.join().unwrap(), Some(vec![0, 1, 2, 3, 4]));
        });
        queue.push(5).unwrap();
        assert_eq!(queue.take(1, 7, LONG, None), Some(vec![5]));
    }

    #[test]
    fn a_task_is_woken_by_what_comes_and_by_the_end() {
        let queue = Queue::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        assert!(queue.poll_take(&context, 2).is_pending());
        (1..4).for_each(|n| queue.push(n).unwrap());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(queue.poll_take(&context, 2), Poll::Ready(Some(vec![1, 2])));
        assert_eq!(queue.poll_take(&context, 2), Poll::Ready(Some(vec![3])));
        assert!(queue.poll_take(&context, 2).is_pending());
        queue.close();
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert_eq!(queue.poll_take(&context, 2), Poll::Ready(None));
    }

    #[test]
    fn a_closed_queue_gives_out_what_is_in_it_and_takes_nothing() {
        let queue = Queue::default();
        queue.push(1).unwrap();
        queue.close();
        assert_eq!(queue.take(8, 5, LONG, None), Some(vec![1]));
        assert_eq!(queue.take(8, 0, Duration::ZERO, None), None);
        assert_eq!(queue.push(3), Err(Refusal::Closed));
    }
}
