//! Jobs that wait for a connection: in their order, bounded in number and in bytes, refused at once when there are too many.
//!
//! Who takes them, when, and how many, is decided elsewhere ([`Queue`](crate::queue::Queue), [`Lane`](crate::Lane)).

use std::collections::VecDeque;

use crate::error::Error;
use crate::shared::Shared;

/// How many jobs may wait for one kind of connection, and how much memory they may own together. One alone may have more.
pub(crate) const WAITING_MAX: usize = 16 * 1024;
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What waits owns memory.
pub(crate) trait Weighs {
    /// How much, in bytes.
    fn bytes(&self) -> usize;
}

/// Why a job was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are too many, or they are too large together.
    Full,
    /// Nobody will take jobs any more.
    Closed,
}

impl Refusal {
    /// What the one who asked is told.
    pub(crate) fn told(self, shared: &Shared) -> Error {
        let place = shared.place();
        match self {
            Refusal::Full => {
                let mebibytes = BYTES_MAX >> 20;
                Error::Full(format!("{place}: {WAITING_MAX} requests or {mebibytes} MiB wait already"))
            }
            Refusal::Closed => Error::Unreachable(format!("{place}: its connections are being closed")),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Waiting<T> {
    jobs: VecDeque<T>,
    bytes: usize,
    max: usize,
    bytes_max: usize,
    is_closed: bool,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting::bounded(WAITING_MAX, BYTES_MAX)
    }
}

impl<T> Waiting<T> {
    pub(crate) fn bounded(max: usize, bytes_max: usize) -> Waiting<T> {
        Waiting { jobs: VecDeque::new(), bytes: 0, max, bytes_max, is_closed: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Nothing more goes in; what is in still comes out.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// All that wait, for whom nothing will be done.
    pub(crate) fn clear(&mut self) -> VecDeque<T> {
        self.bytes = 0;
        std::mem::take(&mut self.jobs)
    }
}

impl<T: Weighs> Waiting<T> {
    /// Puts one in, behind the others.
    pub(crate) fn push(&mut self, job: T) -> Result<(), Refusal> {
        let bytes = job.bytes();
        let is_heavy = self.bytes + bytes > self.bytes_max && !self.jobs.is_empty();
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        if is_heavy || self.jobs.len() >= self.max {
            return Err(Refusal::Full);
        }
        self.bytes += bytes;
        self.jobs.push_back(job);
        Ok(())
    }

    /// The first `most`.
    pub(crate) fn take(&mut self, most: usize) -> Vec<T> {
        let count = self.jobs.len().min(most);
        let taken: Vec<T> = self.jobs.drain(..count).collect();
        self.weighed_out(&taken);
        taken
    }

    /// The first `most` of those that `may` be taken. The others keep their places.
    pub(crate) fn take_those(&mut self, most: usize, may: impl Fn(&T) -> bool) -> Vec<T> {
        let (mut taken, mut passed) = (Vec::with_capacity(most), VecDeque::new());
        while taken.len() < most
            && let Some(job) = self.jobs.pop_front()
        {
            if may(&job) { taken.push(job) } else { passed.push_back(job) }
        }
        passed.append(&mut self.jobs);
        self.jobs = passed;
        self.weighed_out(&taken);
        taken
    }

    fn weighed_out(&mut self, taken: &[T]) {
        self.bytes -= taken.iter().map(T::bytes).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weighs for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    #[test]
    fn bytes_that_wait_are_bounded_and_one_alone_may_have_more() {
        let mut waiting = Waiting::bounded(8, 100);
        waiting.push(101).unwrap();
        assert_eq!(waiting.push(1), Err(Refusal::Full));
        assert_eq!(waiting.take(8), [101]);
        waiting.push(60).unwrap();
        waiting.push(40).unwrap();
        assert_eq!(waiting.push(1), Err(Refusal::Full));
        assert_eq!(waiting.take_those(1, |&job| job == 40), [40]);
        waiting.push(40).unwrap();
        assert_eq!(waiting.clear(), [60, 40]);
        waiting.push(100).unwrap();
    }

    #[test]
    fn what_is_full_or_closed_says_which() {
        let mut waiting = Waiting::bounded(1, 100);
        waiting.push(1).unwrap();
        assert_eq!(waiting.push(2), Err(Refusal::Full));
        waiting.close();
        assert_eq!(waiting.push(2), Err(Refusal::Closed));
        assert_eq!((waiting.len(), waiting.take(8)), (1, vec![1]));
    }

    #[test]
    fn those_that_are_passed_keep_their_places() {
        let mut waiting = Waiting::bounded(8, 100);
        (1..7).for_each(|job| waiting.push(job).unwrap());
        assert_eq!(waiting.take_those(2, |job| job % 2 == 0), [2, 4]);
        assert_eq!(waiting.take(8), [1, 3, 5, 6]);
    }
}
