//! Rows read and changed on the event loop of those who ask, over connections of their own: no other thread has to wake up for
//! that, which costs as much as a fast disk's commit.
//!
//! One connection reads. Two change, so that one half of many clients prepares its changes, or reads its answers, while the other half's
//! are committed. Who is alone waits for nobody. While a transaction is under way, another begins once half of those who
//! have been asking lately are there; what they change together is then in as few transactions as keep both connections busy.
//! Changes of one key are made in the order in which they came: none begins while another is under way.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::budget::Ticks;
use crate::commit::{Committer, Pending};
use crate::op::{Done, Item, Op};
use crate::queue::Queue;
use crate::reader;
use crate::shared::{Answer, Asked, Read, Shared};
use crate::table::Answered;
use crate::waiting::{Refusal, WAITING_MAX, Waiting, Weighs};
use crate::writer::CHANGES_MAX;

/// Connections that change rows. Each is made when it is first needed.
const CHANGERS: usize = 2;

/// A way of its own to a table, for one of several event loops: see [`Table::lane`](crate::Table::lane). Dropping it does what is on
/// its way.
pub struct Lane {
    shared: Arc<Shared>,
    crowd: Arc<Crowd>,
    reads: Arc<Queue<Read>>,
    /// The changers', and the reader's.
    ticks: [Arc<Ticks>; CHANGERS + 1],
}

impl Lane {
    /// Begins to serve on the event loop that is running.
    pub(crate) fn open(shared: &Arc<Shared>) -> Lane {
        let crowd = Arc::new(Crowd::default());
        let reads = Arc::new(Queue::default());
        let ticks: [Arc<Ticks>; CHANGERS + 1] = std::array::from_fn(|_| Arc::default());
        for (place, ticks) in ticks[..CHANGERS].iter().enumerate() {
            let end = End { shared: Arc::clone(shared), crowd: Arc::clone(&crowd), is_writing: false };
            tokio::spawn(change(end, place, Arc::clone(ticks)));
        }
        let end = EndOfReads(Arc::clone(&reads));
        let (shared, of_reads) = (Arc::clone(shared), Arc::clone(&ticks[CHANGERS]));
        let lane = Lane { shared: Arc::clone(&shared), crowd, reads, ticks };
        tokio::spawn(async move { reader::serve(&shared, &end.0, of_reads).await });
        lane
    }

    /// The rows of some keys, in the keys' order; one statement, shared with others who ask at the same time.
    pub fn get_many(&self, keys: Vec<Vec<u8>>) -> Answered<Vec<Option<Item>>> {
        let (answer, answered) = oneshot::channel();
        let read = Read { what: Asked::Keys { keys, answer }, since: Instant::now() };
        Answered::of(&self.shared, self.reads.push(read), answered)
    }

    /// Makes a change; answered when it is in the database.
    pub fn apply(&self, op: Op) -> Answered<Done> {
        self.shared.counters.changes.add(1);
        let (answer, answered) = oneshot::channel();
        let change = Change { hash: self.crowd.hasher.hash_one(op.key()), since: Instant::now(), op, answer };
        Answered::of(&self.shared, self.crowd.push(change), answered)
    }

    /// Gives up on statements that are overdue: the event loop is not expected to have timers.
    pub fn tick(&self, now: Instant) {
        self.ticks.iter().for_each(|ticks| ticks.tick(now));
    }

    /// Whether its event loop is gone, and nothing will be done any more.
    pub fn is_over(&self) -> bool {
        self.crowd.lock().waiting.is_closed() || self.reads.is_closed()
    }

    /// How many requests wait for a connection now.
    pub fn waiting(&self) -> usize {
        self.crowd.lock().waiting.len() + self.reads.len()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.crowd.close();
        self.reads.close();
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane({})", self.shared.place())
    }
}

struct Change {
    op: Op,
    hash: u64,
    since: Instant,
    answer: Answer<Done>,
}

impl Weighs for Change {
    fn bytes(&self) -> usize {
        self.op.bytes()
    }
}

/// Those who wait, and those whose changes are under way.
#[derive(Default)]
struct Crowd {
    hasher: RandomState,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    waiting: Waiting<Change>,
    /// Keys of changes that are under way, and how many changes.
    busy: HashSet<u64>,
    under_way: usize,
    /// How many have been asking at once lately.
    lately: usize,
    /// Connections that have nothing to do.
    idle: [Option<Waker>; CHANGERS],
}

impl Inner {
    /// How many changes another transaction would hold, if one may begin.
    fn share(&self) -> usize {
        let half = self.lately.max(self.under_way + self.waiting.len()).div_ceil(2).clamp(1, CHANGES_MAX);
        match self.under_way {
            0 => half.min(self.waiting.len()),
            _ if self.waiting.len() >= half => half,
            _ => 0,
        }
    }

    /// The one to wake, if another transaction may begin.
    fn next(&mut self) -> Option<Waker> {
        if self.share() == 0 { None } else { self.idle.iter_mut().find_map(Option::take) }
    }

    /// Up to `most` changes in their order, but none of a key whose last change is under way, and none that comes after such a one.
    fn take(&mut self, most: usize) -> Vec<Change> {
        let asking = self.under_way + self.waiting.len();
        self.lately = asking.max(self.lately - self.lately / 8);
        let taken = match self.busy.is_empty() {
            true => self.waiting.take(most),
            false => self.waiting.take_those(most, |change| !self.busy.contains(&change.hash)),
        };
        self.busy.extend(taken.iter().map(|change| change.hash));
        self.under_way += taken.len();
        taken
    }
}

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one in.
    fn push(&self, change: Change) -> Result<(), Refusal> {
        let mut inner = self.lock();
        inner.waiting.push(change)?;
        wake(inner);
        Ok(())
    }

    /// The next changes for the connection at this place. None: there will be no more.
    fn poll_take(&self, place: usize, context: &Context<'_>) -> Poll<Option<Vec<Change>>> {
        let mut inner = self.lock();
        let share = inner.share();
        let taken = if share > 0 { inner.take(share) } else { Vec::new() };
        if taken.is_empty() {
            if inner.waiting.is_closed() && inner.waiting.is_empty() {
                return Poll::Ready(None);
            }
            inner.idle[place] = Some(context.waker().clone());
            return Poll::Pending;
        }
        wake(inner);
        Poll::Ready(Some(taken))
    }

    /// These are under way no more.
    fn done(&self, hashes: &[u64]) {
        let mut inner = self.lock();
        inner.under_way -= hashes.len();
        for hash in hashes {
            inner.busy.remove(hash);
        }
        wake(inner);
    }

    /// Nothing more goes in.
    fn close(&self) {
        let mut inner = self.lock();
        inner.waiting.close();
        let idle = std::mem::take(&mut inner.idle);
        drop(inner);
        idle.into_iter().flatten().for_each(Waker::wake);
    }
}

fn wake(mut inner: MutexGuard<'_, Inner>) {
    let next = inner.next();
    drop(inner);
    if let Some(waker) = next {
        waker.wake();
    }
}

/// What is left to be said when a connection's task ends, however it does.
struct End {
    shared: Arc<Shared>,
    crowd: Arc<Crowd>,
    is_writing: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_writing {
            // It may be made, and told of, later.
            self.shared.watchers.disown(std::iter::empty());
            self.shared.watchers.doubt_all();
        }
        self.crowd.close();
        // Nobody is left who would answer them; who waits learns that by the end of the channel.
        let left = self.crowd.lock().waiting.clear();
        drop(left);
    }
}

/// The reader's task has ended, however it did: what is asked from now on is refused, and who waits learns it.
struct EndOfReads(Arc<Queue<Read>>);

impl Drop for EndOfReads {
    fn drop(&mut self) {
        self.0.close();
        let left = self.0.poll_take(&Context::from_waker(Waker::noop()), WAITING_MAX);
        drop(left);
    }
}

/// The task of one connection that changes rows.
async fn change(mut end: End, place: usize, ticks: Arc<Ticks>) {
    let shared = Arc::clone(&end.shared);
    let mut committer = Committer::new(Arc::clone(&shared), Some(ticks));
    while let Some(taken) = std::future::poll_fn(|context| end.crowd.poll_take(place, context)).await {
        let hashes: Vec<u64> = taken.iter().map(|change| change.hash).collect();
        let mut changes = Vec::with_capacity(taken.len());
        for Change { op, since, answer, .. } in taken {
            if since.elapsed() > shared.settings.timeout {
                let _ = answer.send(Err(shared.overdue()));
            } else {
                changes.push(Pending { op, answer });
            }
        }
        end.is_writing = true;
        let finished = committer.write(changes).await;
        end.is_writing = false;
        end.crowd.done(&hashes);
        for (answer, done) in finished {
            let _ = answer.send(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(crowd: &Crowd, key: &str) {
        let (answer, _) = oneshot::channel();
        let change = Change {
            op: Op::set(key.as_bytes(), b"value"),
            hash: crowd.hasher.hash_one(key.as_bytes()),
            since: Instant::now(),
            answer,
        };
        crowd.push(change).unwrap();
    }

    fn take(crowd: &Crowd, place: usize) -> Vec<Change> {
        match crowd.poll_take(place, &Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(taken)) => taken,
            Poll::Ready(None) | Poll::Pending => Vec::new(),
        }
    }

    fn done(crowd: &Crowd, taken: &[Change]) {
        crowd.done(&taken.iter().map(|change| change.hash).collect::<Vec<_>>());
    }

    fn keys(taken: &[Change]) -> Vec<&str> {
        taken.iter().map(|change| std::str::from_utf8(change.op.key()).unwrap()).collect()
    }

    #[test]
    fn one_that_comes_alone_waits_for_nobody() {
        let crowd = Crowd::default();
        for n in 0..3 {
            push(&crowd, &n.to_string());
            let taken = take(&crowd, 0);
            assert_eq!(taken.len(), 1);
            done(&crowd, &taken);
        }
        assert!(take(&crowd, 0).is_empty());
    }

    #[test]
    fn many_are_two_halves_that_are_under_way_at_once() {
        let crowd = Crowd::default();
        (0..32).for_each(|n| push(&crowd, &n.to_string()));
        let (first, second) = (take(&crowd, 0), take(&crowd, 1));
        assert_eq!((first.len(), second.len()), (16, 16));
        done(&crowd, &first);
        // The first half comes again, one after the other; the second is under way meanwhile.
        (0..15).for_each(|n| push(&crowd, &n.to_string()));
        assert!(take(&crowd, 0).is_empty(), "they are fewer than half");
        push(&crowd, "15");
        assert_eq!(take(&crowd, 0).len(), 16);
    }

    #[test]
    fn nobody_is_waited_for_while_nothing_is_under_way() {
        let crowd = Crowd::default();
        (0..32).for_each(|n| push(&crowd, &n.to_string()));
        let (first, second) = (take(&crowd, 0), take(&crowd, 1));
        done(&crowd, &first);
        done(&crowd, &second);
        push(&crowd, "0");
        assert_eq!(take(&crowd, 0).len(), 1);
    }

    #[test]
    fn changes_of_one_key_are_under_way_one_after_the_other_and_keep_their_order() {
        let crowd = Crowd::default();
        for key in ["a", "b", "a", "c", "a"] {
            push(&crowd, key);
        }
        let first = take(&crowd, 0);
        assert_eq!(keys(&first), ["a", "b", "a"], "in one transaction they are in their order");
        push(&crowd, "d");
        push(&crowd, "b");
        let second = take(&crowd, 1);
        assert_eq!(keys(&second), ["c", "d"]);
        assert!(take(&crowd, 0).is_empty());
        done(&crowd, &second);
        assert!(take(&crowd, 0).is_empty(), "the first are under way yet");
        done(&crowd, &first);
        assert_eq!(keys(&take(&crowd, 0)), ["a", "b"]);
    }

    #[test]
    fn what_is_closed_gives_out_what_is_in_it_and_takes_nothing() {
        let crowd = Crowd::default();
        push(&crowd, "a");
        crowd.close();
        let (answer, _) = oneshot::channel();
        let late = Change { op: Op::set(b"b", b""), hash: 1, since: Instant::now(), answer };
        assert_eq!(crowd.push(late), Err(Refusal::Closed));
        let taken = take(&crowd, 0);
        assert_eq!(keys(&taken), ["a"]);
        assert!(matches!(crowd.poll_take(1, &Context::from_waker(Waker::noop())), Poll::Ready(None)));
    }
}
