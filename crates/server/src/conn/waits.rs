//! The answers that a connection waits for: those of pools with a backend, in the order they were asked for.
//!
//! Owns how many may be under way, which of them must wait for which, and their order. Requests are begun by the session,
//! futures are polled by the connection outside of the worker's own state, answers are delivered when all before them
//! are. A connection without any owns nothing of this.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream as _;
use futures_util::stream::FuturesOrdered;

use crate::backend::Later;
use crate::exec::Exec;
use crate::exec::deliver::{Answer, Delivery};

/// Requests of one connection that may be under way together.
const STARTED_MAX: usize = 64;

/// Bytes that they may own together; one alone may own more.
const STARTED_BYTES_MAX: usize = 1024 * 1024;

/// What a request means for others of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It reads these keys, by their hashes.
    Reads(Vec<u64>),
    /// It may change this key.
    Writes(u64),
    /// It may change every key.
    All,
}

impl Claim {
    /// Whether one may begin while the other is under way: their order must not be seen.
    fn meets(&self, other: &Claim) -> bool {
        match (self, other) {
            (Claim::All, _) | (_, Claim::All) => true,
            (Claim::Reads(_), Claim::Reads(_)) => false,
            (Claim::Writes(one), Claim::Writes(other)) => one == other,
            (Claim::Reads(keys), Claim::Writes(key)) | (Claim::Writes(key), Claim::Reads(keys)) => keys.contains(key),
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Waits {
    started: FuturesOrdered<Later<Answer>>,
    /// What they claim and own, in their order.
    claims: VecDeque<(Claim, usize)>,
    /// Bytes they own.
    started_bytes: usize,
    /// Answers that have come, and none before them is missing.
    ready: VecDeque<Answer>,
    /// What is foremost in the command that the next keys belong to.
    delivery: Delivery,
    /// Something was begun that was not polled yet.
    is_unpolled: bool,
}

impl Waits {
    /// Whether a request with `claim` may begin now. `is_tight`: memory is scarce, one at a time has to do.
    pub(crate) fn admits(&self, claim: &Claim, is_tight: bool) -> bool {
        let under_way = self.claims.len() + self.ready.len();
        if under_way == 0 {
            return true;
        }
        !is_tight
            && under_way < STARTED_MAX
            && self.started_bytes < STARTED_BYTES_MAX
            && !self.claims.iter().any(|(other, _)| other.meets(claim))
    }

    /// Takes charge of a request that has begun and owns `bytes`.
    pub(crate) fn push(&mut self, claim: Claim, bytes: usize, answer: Later<Answer>) {
        self.started.push_back(answer);
        self.claims.push_back((claim, bytes));
        self.started_bytes += bytes;
        self.is_unpolled = true;
    }

    /// Takes charge of an answer that only waits for its turn.
    pub(crate) fn push_ready(&mut self, answer: Answer) {
        if self.claims.is_empty() {
            self.ready.push_back(answer);
        } else {
            self.push(Claim::Reads(Vec::new()), answer.owned_bytes(), Box::pin(std::future::ready(answer)));
        }
    }

    /// Takes what has come: whether anything has. Not to be called within `worker::with`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_unpolled = false;
        let before = self.ready.len();
        while let Poll::Ready(Some(answer)) = Pin::new(&mut self.started).poll_next(cx) {
            if let Some((_, bytes)) = self.claims.pop_front() {
                self.started_bytes -= bytes;
            }
            self.ready.push_back(answer);
        }
        self.ready.len() > before
    }

    /// Whether something was begun that was not polled yet.
    pub(crate) fn is_unpolled(&self) -> bool {
        self.is_unpolled
    }

    /// Whether there is an answer to deliver.
    pub(crate) fn has_answers(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.ready.is_empty()
    }

    /// Appends answers to the output, until it is full.
    pub(crate) fn deliver(&mut self, exec: &mut Exec<'_>) {
        while let Some(answer) = self.ready.front() {
            if exec.out.is_full() || !self.delivery.deliver(exec, answer) {
                return;
            }
            self.ready.pop_front();
        }
    }

    /// Memory that is owned for the client.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.started_bytes + self.ready.iter().map(Answer::owned_bytes).sum::<usize>()
    }

    /// Goes on until everything that was begun is over, although nobody waits for the answers any more: a write that is
    /// on its way is not left half seen, and others may wait for a fetch.
    pub(crate) async fn finish(mut self) {
        std::future::poll_fn(|cx| {
            self.poll(cx);
            self.ready.clear();
            if self.claims.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_whose_order_could_be_seen_are_not_under_way_together() {
        let reads = |keys: &[u64]| Claim::Reads(keys.to_vec());
        for (one, other, meets) in [
            (reads(&[1]), reads(&[1]), false),
            (reads(&[1, 2]), Claim::Writes(2), true),
            (reads(&[1, 2]), Claim::Writes(3), false),
            (Claim::Writes(1), Claim::Writes(1), true),
            (Claim::Writes(1), Claim::Writes(2), false),
            (Claim::All, reads(&[]), true),
            (Claim::All, Claim::All, true),
        ] {
            assert_eq!((one.meets(&other), other.meets(&one)), (meets, meets), "{one:?} {other:?}");
        }
    }

    #[test]
    fn as_many_are_under_way_as_may_be_and_one_however_large() {
        let never = || -> Later<Answer> { Box::pin(std::future::pending()) };
        let mut waits = Waits::default();
        assert!(waits.admits(&Claim::Writes(0), true));
        waits.push(Claim::Writes(0), STARTED_BYTES_MAX, never());
        assert!(!waits.admits(&Claim::Writes(1), false));
        let mut waits = Waits::default();
        for key in 0..STARTED_MAX as u64 {
            assert!(waits.admits(&Claim::Writes(key), false));
            waits.push(Claim::Writes(key), 1, never());
            assert!(!waits.admits(&Claim::Writes(u64::MAX), true), "memory is scarce");
        }
        assert!(!waits.admits(&Claim::Writes(u64::MAX), false));
    }
}
