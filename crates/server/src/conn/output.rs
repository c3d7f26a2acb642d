//! What is still to be sent to a client: bytes, and between them values that are sent straight from the store's
//! memory. Encoders append to it, a connection flushes it. It never grows past what one request adds to a full one:
//! the connection stops executing at [`HIGH_WATER_BYTES`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use nuthatch_store::Held;

use super::stream::Stream;

/// With this much unsent, no further request of the connection is executed. One write of 128 KiB costs some 30 µs of
/// copying, beside which the system call itself is nothing; more would only fill the cache.
pub(crate) const HIGH_WATER_BYTES: usize = 128 * 1024;

/// Values above this are not copied but sent from the store's memory. Below it the copy costs less than holding the
/// memory and an extra element in the write.
pub(crate) const COPIED_VALUE_BYTES_MAX: usize = 16 * 1024;

/// Elements in one vectored write; more wait for the next.
const SLICES_MAX: usize = 64;

/// Unsent bytes and values, in order.
#[derive(Default)]
pub(crate) struct Output {
    /// Everything that is not held in the store. Encoders append here.
    pub(crate) bytes: Vec<u8>,
    /// How many of `bytes` are sent.
    sent: usize,
    held: VecDeque<HeldValue>,
    /// Unsent bytes of all of `held`.
    held_bytes: usize,
}

/// A value that follows the byte `at` of [`Output::bytes`].
struct HeldValue {
    at: usize,
    value: Kept,
    sent: usize,
}

/// Who keeps a value's memory.
enum Kept {
    /// A store, and it cannot use it for anything else meanwhile.
    Store(Held),
    /// Everyone who is still to be sent it.
    Shared(Bytes),
}

impl Kept {
    fn value_bytes(&self) -> usize {
        match self {
            Kept::Store(held) => held.value_bytes(),
            Kept::Shared(bytes) => bytes.len(),
        }
    }

    fn pieces(&self, from: usize) -> impl Iterator<Item = &[u8]> {
        let (held, shared) = match self {
            Kept::Store(held) => (Some(held.pieces(from)), None),
            Kept::Shared(bytes) => (None, Some(&bytes[from..]).filter(|rest| !rest.is_empty())),
        };
        held.into_iter().flatten().chain(shared)
    }
}

impl Output {
    /// Nothing to send, with room for `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Output {
        Output { bytes: Vec::with_capacity(capacity), ..Output::default() }
    }

    /// Appends a value without copying it. Its memory stays held until it is sent or the output is dropped.
    pub(crate) fn push_held(&mut self, value: Held) {
        self.push(Kept::Store(value));
    }

    /// Appends a value that others may be sent too: copied when small.
    pub(crate) fn push_shared(&mut self, value: &Bytes) {
        if value.len() <= COPIED_VALUE_BYTES_MAX {
            self.bytes.extend_from_slice(value);
        } else {
            self.push(Kept::Shared(value.clone()));
        }
    }

    fn push(&mut self, value: Kept) {
        self.held_bytes += value.value_bytes();
        self.held.push_back(HeldValue { at: self.bytes.len(), value, sent: 0 });
    }

    /// Unsent bytes, held values included.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.sent + self.held_bytes
    }

    /// Whether memory of a store is kept for what is unsent.
    pub(crate) fn holds_values(&self) -> bool {
        self.held.iter().any(|held| matches!(held.value, Kept::Store(_)))
    }

    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending_bytes() == 0 && self.held.is_empty()
    }

    /// Whether the connection must send before it executes more.
    pub(crate) fn is_full(&self) -> bool {
        self.pending_bytes() >= HIGH_WATER_BYTES
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Takes over what `other` has not sent, leaving it empty. This output must be empty.
    pub(crate) fn take_unsent(&mut self, other: &mut Output) {
        debug_assert!(self.is_empty());
        self.clear();
        self.bytes.extend_from_slice(&other.bytes[other.sent..]);
        for mut value in other.held.drain(..) {
            value.at -= other.sent;
            self.held.push_back(value);
        }
        self.held_bytes = other.held_bytes;
        other.clear();
    }

    /// Bytes of memory of its own this output takes up.
    pub(crate) fn owned_bytes(&self) -> usize {
        let shared = self.held.iter().map(|held| match &held.value {
            Kept::Store(_) => 0,
            Kept::Shared(bytes) => bytes.len(),
        });
        self.bytes.capacity() + shared.sum::<usize>()
    }

    /// Gives back memory that one large reply left behind. The output must be empty.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.capacity() > 4 * HIGH_WATER_BYTES {
            self.bytes.shrink_to(HIGH_WATER_BYTES);
        }
    }

    /// Sends until nothing is left (`Ready`) or the socket takes no more (`Pending`). `written` grows by what was sent.
    pub(crate) fn poll_flush(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        written: &mut u64,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let n = if self.held.is_empty() {
                ready!(stream.poll_write(cx, &self.bytes[self.sent..]))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.slices(&mut slices);
                if count == 0 {
                    // Only empty values are left; there is nothing to write for them.
                    self.advance(0);
                    continue;
                }
                ready!(stream.poll_write_vectored(cx, &slices[..count]))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += n as u64;
            self.advance(n);
        }
        self.clear();
        stream.poll_flush(cx)
    }

    /// Everything unsent as one run of bytes, for transports that cannot write from the store.
    pub(crate) fn flatten(&self) -> Vec<u8> {
        let mut flat = Vec::with_capacity(self.pending_bytes());
        let mut at = self.sent;
        for held in &self.held {
            flat.extend_from_slice(&self.bytes[at..held.at]);
            at = held.at;
            for piece in held.value.pieces(held.sent) {
                flat.extend_from_slice(piece);
            }
        }
        flat.extend_from_slice(&self.bytes[at..]);
        flat
    }

    /// Fills `slices` with what comes next; returns how many.
    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut at = self.sent;
        for held in &self.held {
            if held.at > at {
                if count == SLICES_MAX {
                    return count;
                }
                slices[count] = IoSlice::new(&self.bytes[at..held.at]);
                count += 1;
                at = held.at;
            }
            for piece in held.value.pieces(held.sent) {
                if count == SLICES_MAX {
                    return count;
                }
                slices[count] = IoSlice::new(piece);
                count += 1;
            }
        }
        if at < self.bytes.len() && count < SLICES_MAX {
            slices[count] = IoSlice::new(&self.bytes[at..]);
            count += 1;
        }
        count
    }

    /// Marks the next `n` bytes as sent and lets go of each value as soon as it is sent whole.
    fn advance(&mut self, mut n: usize) {
        while let Some(held) = self.held.front_mut() {
            let before = held.at - self.sent;
            if n < before {
                break;
            }
            n -= before;
            self.sent = held.at;
            let left = held.value.value_bytes() - held.sent;
            if n < left {
                held.sent += n;
                self.held_bytes -= n;
                return;
            }
            n -= left;
            self.held_bytes -= left;
            self.held.pop_front();
        }
        self.sent += n;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use nuthatch_store::{Config, Handle, SetOptions, SetOutcome, Store};
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    use super::*;

    fn hold(handle: &mut Handle, key: &[u8], value: &[u8]) -> Held {
        let stored = handle.set(key, value, &SetOptions::default(), 1);
        assert!(matches!(stored, SetOutcome::Stored { .. }));
        handle.get(key, 1).expect("it was just stored").hold()
    }

    /// Bytes and values of many sizes by turns, some of them empty.
    fn mixed(handle: &mut Handle) -> (Output, Vec<u8>) {
        let mut output = Output::default();
        let mut expected = Vec::new();
        for n in 0..90_usize {
            let bytes = format!("VALUE {n}\r\n").repeat(n % 4);
            output.bytes.extend_from_slice(bytes.as_bytes());
            expected.extend_from_slice(bytes.as_bytes());
            let value = vec![n as u8; [0, 1, 40_000, 17][n % 4] + n];
            let value = if n % 8 == 0 { &[][..] } else { &value[..] };
            output.push_held(hold(handle, format!("key{n}").as_bytes(), value));
            expected.extend_from_slice(value);
        }
        output.bytes.extend_from_slice(b"END\r\n");
        expected.extend_from_slice(b"END\r\n");
        (output, expected)
    }

    #[test]
    fn everything_is_sent_in_order_however_much_the_socket_takes_at_once() {
        let store = Store::new(Config::new(16 << 20)).expect("a store");
        let mut handle = store.handle();
        let (mut output, expected) = mixed(&mut handle);
        assert_eq!(output.pending_bytes(), expected.len());
        assert!(output.flatten() == expected);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().expect("a pair");
            let mut ours = Stream::Unix(ours);
            let reading = tokio::spawn(async move {
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).await.expect("read");
                got
            });
            let mut written = 0;
            // What is not sent at first goes on from an output of its own, as a blocked connection's does.
            let blocked = poll_fn(|cx| Poll::Ready(output.poll_flush(&mut ours, cx, &mut written))).await;
            assert!(blocked.is_pending() && written > 0, "a socket does not take two megabytes at once");
            let mut rest = Output::default();
            rest.take_unsent(&mut output);
            assert_eq!(rest.pending_bytes() as u64 + written, expected.len() as u64);
            assert!(output.is_empty());
            poll_fn(|cx| rest.poll_flush(&mut ours, cx, &mut written)).await.expect("sent");
            assert!(rest.is_empty() && !rest.holds_values());
            drop(ours);
            assert!(reading.await.expect("no panic") == expected);
        });
    }
}
