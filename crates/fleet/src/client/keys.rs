//! The keys that a link has asked for, in the order in which their answers will come.
//!
//! One buffer for all of them: no request allocates for its keys, which are kept only to be compared with the answers'.

/// A queue of short byte strings in one buffer.
#[derive(Debug, Default)]
pub(super) struct KeyQueue {
    bytes: Vec<u8>,
    head: usize,
}

/// Taken keys in front of the buffer are cut off once they are this many bytes, and at least half of it.
const CUT_BYTES: usize = 16 << 10;

impl KeyQueue {
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
        let mut queue = KeyQueue::default();
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
