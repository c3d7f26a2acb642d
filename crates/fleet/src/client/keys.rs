//! The keys that a link has asked for, in the order in which their answers will come, and who is told of those that are
//! answered one by one.
//!
//! One buffer for all of them: no request allocates for its keys, which are kept only to be compared with the answers', and
//! to be asked for again when the connection ends before those.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use super::Error;
use super::request::{Found, Receiver};

/// Who is told the answer to a key.
#[derive(Clone)]
pub(super) struct Taker {
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) ticket: u64,
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {}", self.ticket)
    }
}

impl Taker {
    /// Tells it, and wakes whoever waits for it. No lock is held.
    pub(super) fn tell(&self, answer: Result<Option<Found<'_>>, &Error>) {
        if let Some(waker) = self.receiver.take(self.ticket, answer) {
            waker.wake();
        }
    }
}

/// A queue of short byte strings in one buffer, with the takers of some.
#[derive(Debug)]
pub(super) struct KeyQueue {
    bytes: Vec<u8>,
    head: usize,
    /// Of the keys that are answered one by one, in their order; `None` once it was told that none will come.
    pub(super) takers: VecDeque<Option<Taker>>,
    /// The server's name, for refusals.
    pub(super) server: Arc<str>,
    /// Who has to be woken for what was told.
    pub(super) wakers: Vec<Waker>,
}

/// Taken keys in front of the buffer are cut off once they are this many bytes, and at least half of it.
const CUT_BYTES: usize = 16 << 10;

impl KeyQueue {
    /// Of what the server of this name is asked.
    pub(super) fn new(server: Arc<str>) -> KeyQueue {
        KeyQueue { bytes: Vec::new(), head: 0, takers: VecDeque::new(), server, wakers: Vec::new() }
    }

    /// Adds a key of at most 255 bytes.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8]) {
        debug_assert!(key.len() <= usize::from(u8::MAX));
        self.bytes.push(key.len() as u8);
        self.bytes.extend_from_slice(key);
    }

    /// The oldest key; empty when there is none.
    #[inline]
    pub(super) fn front(&self) -> &[u8] {
        match self.bytes.get(self.head) {
            Some(&key_bytes) => &self.bytes[self.head + 1..][..usize::from(key_bytes)],
            None => b"",
        }
    }

    /// Takes the oldest key off.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.head += 1 + self.front().len();
        if self.head >= self.bytes.len() {
            self.clear();
        } else if self.head >= CUT_BYTES && self.head * 2 >= self.bytes.len() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }

    /// Tells the first taker.
    #[inline]
    pub(super) fn tell(&mut self, answer: Result<Option<Found<'_>>, &Error>) {
        if let Some(Some(taker)) = self.takers.pop_front() {
            self.wakers.extend(taker.receiver.take(taker.ticket, answer));
        }
    }

    /// Tells `count` takers, from number `from` on, that no answer will come in time: whether there were any. Their places
    /// stay.
    pub(super) fn give_up(&mut self, from: usize, count: usize, error: &Error) -> bool {
        let mut any = false;
        for taker in self.takers.range_mut(from..from + count) {
            if let Some(taker) = taker.take() {
                self.wakers.extend(taker.receiver.take(taker.ticket, Err(error)));
                any = true;
            }
        }
        any
    }

    /// Where the queue ends now, for [`KeyQueue::cut_to`].
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Takes off what was pushed since `end` was asked for.
    pub(super) fn cut_to(&mut self, end: usize) {
        self.bytes.truncate(end);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_leave_in_the_order_they_came_however_long_the_queue_was() {
        let mut queue = KeyQueue::new("s".into());
        let key = |n: usize| vec![b'a' + (n % 26) as u8; n % 251];
        let (mut first, mut next) = (0, 0);
        for round in 0..400 {
            for _ in 0..(round % 7) * 30 {
                queue.push(&key(next));
                next += 1;
            }
            for _ in 0..(round % 5) * 45 {
                if first < next {
                    assert_eq!(queue.front(), key(first));
                    queue.pop();
                    first += 1;
                }
            }
        }
        while first < next {
            assert_eq!(queue.front(), key(first));
            queue.pop();
            first += 1;
        }
        assert_eq!((queue.front(), queue.end()), (&b""[..], 0));
        let end = queue.end();
        queue.push(b"gone");
        queue.cut_to(end);
        assert_eq!(queue.front(), b"");
    }
}
