//! The answers that a connection waits for: those of pools with a backend, in the order they were asked for.
//!
//! Owns how many may be under way, which of them must wait for which, and their order. Lookups lie in [`Reads`], anything
//! else is a future; both are polled by the connection outside of the worker's own state, and answers are delivered when
//! all before them are. A connection that waits for nothing owns nothing of this: what it had is used again by another.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream as _;
use futures_util::stream::FuturesOrdered;

use crate::backend::Later;
use crate::exec::Exec;
use crate::exec::deliver::{Answer, Delivery, Looked};
use crate::exec::tiered;
use crate::tier::read::{Reads, Sees};
use crate::worker;

/// Requests of one connection that may be under way together.
const STARTED_MAX: usize = 64;

/// Bytes that they may own together; one alone may own more.
const STARTED_BYTES_MAX: usize = 1024 * 1024;

/// How many a worker keeps to be used again, beside those in use.
const SPARE_MAX: usize = 64;

/// What a request means for others of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It reads this key, by its hash.
    Reads(u64),
    /// It may change this key, or shows what was done with it.
    Writes(u64),
    /// It may change every key.
    All,
}

impl Claim {
    /// Of a request whose answer depends on what else is asked of the same key.
    pub(crate) fn alone(self) -> Claim {
        match self {
            Claim::Reads(hash) => Claim::Writes(hash),
            claim => claim,
        }
    }

    /// Whether one may begin while the other is under way: their order must not be seen.
    fn meets(self, other: Claim) -> bool {
        match (self, other) {
            (Claim::All, _) | (_, Claim::All) => true,
            (Claim::Reads(_), Claim::Reads(_)) => false,
            (Claim::Writes(one) | Claim::Reads(one), Claim::Writes(other) | Claim::Reads(other)) => one == other,
        }
    }
}

/// One request, in its turn.
enum Entry {
    /// The next of the futures.
    Later { claim: Claim, bytes: usize },
    /// The next `left` lookups.
    Keys { looked: Looked, left: usize, bytes: usize },
    /// Its answer was known at once.
    Said(Box<[u8]>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Waits {
    entries: VecDeque<Entry>,
    reads: Reads,
    started: FuturesOrdered<Later<Answer>>,
    /// What came of `started`, and no answer of theirs before is missing.
    came: VecDeque<Answer>,
    /// Entries that may change something.
    writers: usize,
    /// Bytes that the entries own.
    started_bytes: usize,
    /// What is foremost in the command that the next keys belong to.
    delivery: Delivery,
    /// Something was begun that was not polled yet.
    is_unpolled: bool,
}

thread_local! {
    /// Those that nobody uses, in the boxes that sessions keep them in.
    #[expect(clippy::vec_box, reason = "the box is what is saved")]
    static SPARE: RefCell<Vec<Box<Waits>>> = const { RefCell::new(Vec::new()) };
}

impl Waits {
    /// One without anything.
    pub(crate) fn take() -> Box<Waits> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Gives one that is empty back.
    pub(crate) fn give_back(self: Box<Waits>) {
        debug_assert!(self.is_empty());
        self.reads.inbox().lock().forget_waker();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
    }

    /// Whether a request with `claim` may begin now. `is_tight`: memory is scarce, one at a time has to do.
    pub(crate) fn admits(&self, claim: Claim, is_tight: bool) -> bool {
        self.has_room(is_tight) && !self.entries.iter().any(|entry| self.meets(entry, claim))
    }

    /// The same for lookups of `keys`.
    pub(crate) fn admits_keys(&self, exec: &Exec<'_>, keys: &[&[u8]], is_tight: bool) -> bool {
        let meets = |claim: Claim| keys.iter().any(|key| claim.meets(Claim::Reads(tiered::hash_of(key))));
        let is_free = self.writers == 0
            || !self.entries.iter().any(|entry| matches!(entry, Entry::Later { claim, .. } if meets(*claim)));
        self.has_room(is_tight) && is_free && self.reads.admits(exec)
    }

    fn has_room(&self, is_tight: bool) -> bool {
        self.entries.is_empty()
            || !is_tight && self.entries.len() < STARTED_MAX && self.started_bytes < STARTED_BYTES_MAX
    }

    fn meets(&self, entry: &Entry, claim: Claim) -> bool {
        match (entry, claim) {
            (Entry::Later { claim: other, .. }, claim) => other.meets(claim),
            (Entry::Keys { .. }, Claim::Reads(_)) | (Entry::Said(_), Claim::Reads(_) | Claim::Writes(_)) => false,
            // All lookups are looked at where there is one.
            (Entry::Keys { .. }, Claim::Writes(hash)) => self.reads.any(|key| tiered::hash_of(key) == hash),
            (_, Claim::All) => true,
        }
    }

    /// Takes charge of a request that has begun and owns `bytes`.
    pub(crate) fn push(&mut self, claim: Claim, bytes: usize, answer: Later<Answer>) {
        self.started.push_back(answer);
        self.writers += usize::from(!matches!(claim, Claim::Reads(_)));
        self.enter(Entry::Later { claim, bytes }, bytes);
    }

    /// Looks `keys` up, for an answer as `looked` says.
    pub(crate) fn look_up(&mut self, exec: &mut Exec<'_>, keys: &[&[u8]], sees: Sees, looked: Looked) {
        self.reads.begin(exec, keys, sees);
        let bytes = looked.owned_bytes();
        self.enter(Entry::Keys { looked, left: keys.len(), bytes }, bytes);
    }

    /// Takes charge of an answer that only waits for its turn.
    pub(crate) fn push_said(&mut self, bytes: &[u8]) {
        self.enter(Entry::Said(bytes.into()), bytes.len());
    }

    fn enter(&mut self, entry: Entry, bytes: usize) {
        self.entries.push_back(entry);
        self.started_bytes += bytes;
        self.is_unpolled = true;
    }

    /// Takes what has come: whether there is an answer to deliver. Not to be called within `worker::with`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_unpolled = false;
        while let Poll::Ready(Some(answer)) = Pin::new(&mut self.started).poll_next(cx) {
            self.came.push_back(answer);
        }
        self.reads.poll(cx);
        self.has_answers()
    }

    /// Whether something was begun that was not polled yet.
    pub(crate) fn is_unpolled(&self) -> bool {
        self.is_unpolled
    }

    /// Whether there is an answer to deliver.
    pub(crate) fn has_answers(&self) -> bool {
        match self.entries.front() {
            None => false,
            Some(Entry::Said(_) | Entry::Keys { left: 0, .. }) => true,
            Some(Entry::Later { .. }) => !self.came.is_empty(),
            Some(Entry::Keys { .. }) => self.reads.inbox().lock().is_ready(),
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends answers to the output, until it is full.
    pub(crate) fn deliver(&mut self, exec: &mut Exec<'_>) {
        let inbox = std::sync::Arc::clone(self.reads.inbox());
        let mut answers = inbox.lock();
        let Waits { entries, reads, came, delivery, .. } = self;
        while let Some(entry) = entries.front_mut() {
            if exec.out.is_full() {
                return;
            }
            let bytes = match entry {
                Entry::Said(bytes) => {
                    exec.out.bytes.extend_from_slice(bytes);
                    bytes.len()
                }
                Entry::Later { claim, bytes } => {
                    match came.front() {
                        Some(answer) if delivery.deliver(exec, answer) => came.pop_front(),
                        _ => return,
                    };
                    self.writers -= usize::from(!matches!(claim, Claim::Reads(_)));
                    *bytes
                }
                Entry::Keys { looked, left, bytes } => {
                    while *left > 0 {
                        let is_taken = !exec.out.is_full()
                            && reads.take(exec.worker, &mut answers, |pool, key, answer| {
                                delivery.looked_up(exec, looked, (pool, key), answer);
                            });
                        if !is_taken {
                            return;
                        }
                        *left -= 1;
                    }
                    delivery.end(exec, looked);
                    *bytes
                }
            };
            self.started_bytes -= bytes;
            entries.pop_front();
        }
    }

    /// Memory that is owned for the client.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.started_bytes + self.reads.owned_bytes() + self.came.iter().map(Answer::owned_bytes).sum::<usize>()
    }

    /// Goes on until everything that was begun is over, although nobody waits for the answers any more: a write that is
    /// on its way is not left half seen, and others may wait for a fetch.
    pub(crate) async fn finish(mut self: Box<Self>) {
        let worker = worker::with(|worker| worker.number);
        std::future::poll_fn(|cx| {
            self.poll(cx);
            self.discard(worker);
            if self.entries.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn discard(&mut self, worker: usize) {
        let inbox = std::sync::Arc::clone(self.reads.inbox());
        let mut answers = inbox.lock();
        while let Some(entry) = self.entries.front_mut() {
            match entry {
                Entry::Said(_) => {}
                Entry::Later { .. } => {
                    if self.came.pop_front().is_none() {
                        return;
                    }
                }
                Entry::Keys { left, .. } => {
                    while *left > 0 {
                        if !self.reads.take(worker, &mut answers, |_, _, _| {}) {
                            return;
                        }
                        *left -= 1;
                    }
                }
            }
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_whose_order_could_be_seen_are_not_under_way_together() {
        for (one, other, meets) in [
            (Claim::Reads(1), Claim::Reads(1), false),
            (Claim::Reads(2), Claim::Writes(2), true),
            (Claim::Reads(1), Claim::Writes(3), false),
            (Claim::Writes(1), Claim::Writes(1), true),
            (Claim::Writes(1), Claim::Writes(2), false),
            (Claim::All, Claim::Reads(0), true),
            (Claim::All, Claim::All, true),
        ] {
            assert_eq!((one.meets(other), other.meets(one)), (meets, meets), "{one:?} {other:?}");
        }
    }

    #[test]
    fn as_many_are_under_way_as_may_be_and_one_however_large() {
        let never = || -> Later<Answer> { Box::pin(std::future::pending()) };
        let mut waits = Waits::default();
        assert!(waits.admits(Claim::Writes(0), true));
        waits.push(Claim::Writes(0), STARTED_BYTES_MAX, never());
        assert!(!waits.admits(Claim::Writes(1), false));
        let mut waits = Waits::default();
        for key in 0..STARTED_MAX as u64 {
            assert!(waits.admits(Claim::Writes(key), false));
            waits.push(Claim::Writes(key), 1, never());
            assert!(!waits.admits(Claim::Writes(u64::MAX), true), "memory is scarce");
        }
        assert!(!waits.admits(Claim::Writes(u64::MAX), false));
    }
}
