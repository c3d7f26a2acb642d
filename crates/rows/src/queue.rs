//! Requests on their way to the threads that own connections. Bounded; whoever finds it full is told so at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue between many who ask and a few who do. Only one who takes alone may gather.
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
    max: usize,
}

struct Inner<T> {
    waiting: VecDeque<T>,
    closed: bool,
    /// Who takes is woken when this many are there, and not by each of them.
    wanted: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(max: usize) -> Queue<T> {
        Queue {
            inner: Mutex::new(Inner { waiting: VecDeque::new(), closed: false, wanted: 1 }),
            arrived: Condvar::new(),
            max,
        }
    }

    /// Puts one in; back comes what does not go in.
    pub(crate) fn push(&self, job: T) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.closed || inner.waiting.len() >= self.max {
            return Err(job);
        }
        inner.waiting.push_back(job);
        let is_enough = inner.waiting.len() >= inner.wanted;
        drop(inner);
        if is_enough {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits for the first until `idle` is over, then takes up to `most`. If `expected` more than one are likely, waits for up
    /// to `gather` until that many are there. None: closed and empty. Empty: idle.
    pub(crate) fn take(&self, most: usize, expected: usize, gather: Duration, idle: Option<Instant>) -> Option<Vec<T>> {
        let mut inner = self.lock();
        while inner.waiting.is_empty() {
            if inner.closed {
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
        let until = Instant::now() + gather;
        while inner.waiting.len() < expected.min(most) && !inner.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner.wanted = expected.min(most);
            inner = self.arrived.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
            inner.wanted = 1;
        }
        let count = inner.waiting.len().min(most);
        Some(inner.waiting.drain(..count).collect())
    }

    /// Nothing more goes in; what is in still comes out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
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
    use super::*;

    #[test]
    fn one_that_comes_alone_does_not_wait() {
        let queue = Queue::new(8);
        queue.push(1).unwrap();
        let long = Duration::from_secs(3600);
        assert_eq!(queue.take(8, 1, long, None), Some(vec![1]));
        for n in 0..3 {
            queue.push(n).unwrap();
        }
        assert_eq!(queue.take(8, 3, long, None), Some(vec![0, 1, 2]), "as many as were expected are there");
    }

    #[test]
    fn a_full_or_closed_queue_gives_back() {
        let queue = Queue::new(1);
        queue.push(1).unwrap();
        assert_eq!(queue.push(2), Err(2));
        queue.close();
        assert_eq!(queue.take(8, 5, Duration::from_secs(3600), None), Some(vec![1]));
        assert_eq!(queue.take(8, 1, Duration::ZERO, None), None);
        assert_eq!(queue.push(3), Err(3));
    }
}
