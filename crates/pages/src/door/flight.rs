//! Flights: one fetch of a page from its origin, however many clients want it, on whichever workers they are.
//!
//! Who asks first leads: its worker fetches in a task of its own, so that a client that leaves takes nobody's answer
//! along. The others follow: they wait for the head, then read the body as it arrives. What the leader learns from the
//! head decides ([`Leader::begin`]):
//!
//! | the response | who follows | is stored |
//! |---|---|---|
//! | can be stored | whoever its `Vary` selects it for; the others ask again | when it is whole |
//! | cannot be | is released at once, and asks for itself | never |
//! | grows past the limit, or finds no room beside the others | those who are reading, none who comes later | never |
//!
//! Nothing in here fetches, stores or decides on headers. A lock is held for a few instructions and never across a wait.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;

use super::fetched::Fetched;

/// Bytes of a response that cannot be stored which the leader may be ahead of its slowest reader.
pub(crate) const WINDOW_BYTES: usize = 256 * 1024;

const SHARDS: usize = 32;

/// Stands in a flight's key between its page's and what the request's fields make of it. No page's key has it.
pub(crate) const VARIANT_MARK: u8 = b'#';

type ByKey = HashMap<Box<[u8]>, Arc<Flight>>;

/// The flights under way, by key. Those of one page are in one shard.
pub(crate) struct Flights {
    shards: [Mutex<ByKey>; SHARDS],
    hasher: RandomState,
    /// Flights of an older era than this are out of date.
    era: AtomicU64,
    /// How many there are, about.
    count: AtomicUsize,
    /// Bytes of the bodies that they keep whole, until the last reader has gone.
    kept: Arc<AtomicUsize>,
}

/// What joining a flight makes of whoever asked.
pub(crate) enum Joined {
    /// Nobody else fetches this: the caller has to, and to [`Leader::land`].
    Lead(Leader),
    /// Somebody does.
    Follow(Arc<Flight>),
}

impl Flights {
    pub(crate) fn new() -> Arc<Flights> {
        Arc::new(Flights {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            era: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            kept: Arc::default(),
        })
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, ByKey> {
        let page = key.split(|&byte| byte == VARIANT_MARK).next().unwrap_or(key);
        let index = self.hasher.hash_one(page) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the flight of `key`, or begins it.
    pub(crate) fn join(self: &Arc<Flights>, key: &[u8]) -> Joined {
        let era = self.era.load(Ordering::SeqCst);
        let mut shard = self.shard(key);
        if let Some(flight) = shard.get(key).filter(|flight| flight.era == era) {
            return Joined::Follow(Arc::clone(flight));
        }
        let kept_by_all = Arc::clone(&self.kept);
        let flight = Arc::new(Flight {
            state: Mutex::default(),
            spoiled: AtomicBool::new(false),
            ignores_ranges: AtomicBool::new(false),
            era,
            kept_by_all,
        });
        if shard.insert(key.into(), Arc::clone(&flight)).is_none() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        Joined::Lead(Leader { flights: Arc::clone(self), key: key.into(), whole_key: None, flight, has_landed: false })
    }

    /// The flight of `key`, if there is one.
    pub(crate) fn under_way(&self, key: &[u8]) -> Option<Arc<Flight>> {
        let era = self.era.load(Ordering::SeqCst);
        self.shard(key).get(key).filter(|flight| flight.era == era).cloned()
    }

    /// Has `flight`, of a key of the same page, joined by `key` as well, unless that has one: whether it is.
    fn join_by(&self, key: &[u8], flight: &Arc<Flight>) -> bool {
        let mut shard = self.shard(key);
        // Looked at under the lock under which purges take flights away.
        if flight.spoiled.load(Ordering::SeqCst) || flight.era != self.era.load(Ordering::SeqCst) {
            return false;
        }
        if let Some(other) = shard.get(key).filter(|other| other.era == flight.era) {
            other.ignores_ranges.store(true, Ordering::Relaxed);
            return false;
        }
        if shard.insert(key.into(), Arc::clone(flight)).is_none() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        true
    }

    /// What is being fetched of a page, for whatever variant, is out of date: it is not stored, and whoever comes now
    /// asks anew.
    pub(crate) fn spoil_page(&self, page: &[u8]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut shard = self.shard(page);
        let before = shard.len();
        shard.retain(|key, flight| {
            let is_spoiled = key.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest[0] == VARIANT_MARK);
            if is_spoiled {
                flight.spoiled.store(true, Ordering::SeqCst);
            }
            !is_spoiled
        });
        self.count.fetch_sub(before - shard.len(), Ordering::SeqCst);
    }

    /// The same of everything that is being fetched, in constant time.
    pub(crate) fn spoil_everything(&self) {
        self.era.fetch_add(1, Ordering::SeqCst);
    }

    /// Nobody joins `flight` any more.
    fn remove(&self, key: &[u8], flight: &Arc<Flight>) {
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(|other| Arc::ptr_eq(other, flight)) {
            shard.remove(key);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().expect("no panic").len()).sum()
    }
}

/// The right, and the duty, to fetch. Dropped without [`Leader::land`], the flight has failed.
pub(crate) struct Leader {
    flights: Arc<Flights>,
    key: Box<[u8]>,
    /// By which it is joined, too ([`Leader::widen`]).
    whole_key: Option<Box<[u8]>>,
    flight: Arc<Flight>,
    has_landed: bool,
}

impl Leader {
    /// The flight, to read what it brings.
    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Was the page purged since the flight began?
    pub(crate) fn is_spoiled(&self) -> bool {
        self.flight.spoiled.load(Ordering::SeqCst) || self.flights.era.load(Ordering::SeqCst) != self.flight.era
    }

    /// The origin was asked for a range, by which the flight's key ends, and sends the whole: whoever wants that joins.
    pub(crate) fn widen(&mut self, range: &[u8]) {
        self.flight.ignores_ranges.store(true, Ordering::Relaxed);
        let whole_key = self.key.strip_suffix(range).and_then(|key| key.strip_suffix(&[VARIANT_MARK]));
        if let Some(whole_key) = whole_key
            && self.flights.join_by(whole_key, &self.flight)
        {
            self.whole_key = Some(whole_key.into());
        }
    }

    /// Nobody joins any more.
    fn close(&self) {
        for key in [Some(&self.key), self.whole_key.as_ref()].into_iter().flatten() {
            self.flights.remove(key, &self.flight);
        }
    }

    /// The head is there, and the body may be shared.
    pub(crate) fn begin(&self, fetched: Arc<Fetched>) {
        self.flight.change(|state| state.course = Course::Shared(fetched));
    }

    /// The response cannot be shared: everyone asks for themselves.
    pub(crate) fn release(mut self, why: Released) {
        self.close();
        self.flight.change(|state| state.course = Course::Released(why));
        self.has_landed = true;
    }

    /// Whether so many bytes of the body can be kept whole, of which all flights together may keep `bytes_max`. They are
    /// counted from now on.
    pub(crate) fn keep(&self, bytes: usize, bytes_max: usize) -> bool {
        let kept_by_all = &self.flight.kept_by_all;
        let mut state = self.flight.lock();
        let more = bytes.saturating_sub(state.kept);
        if kept_by_all.fetch_add(more, Ordering::Relaxed).saturating_add(more) > bytes_max {
            kept_by_all.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        state.kept += more;
        true
    }

    /// A piece of the body.
    pub(crate) fn push(&self, piece: Bytes) {
        self.flight.change(|state| {
            state.bytes += piece.len();
            state.pieces.push_back(piece);
        });
    }

    /// The response is too large to be kept whole: from now on only who is reading reads it, and what all have read is
    /// given up.
    pub(crate) fn overflow(&self) {
        self.close();
        self.flight.change(|state| {
            self.flight.keep_no_more(state);
            state.is_passing = true;
        });
    }

    /// After [`Leader::overflow`]: ready when the slowest reader is close enough, with whether there is one.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.flight.lock();
        state.give_up();
        if state.readers.is_empty() {
            return Poll::Ready(false);
        }
        if state.bytes - state.given_up_bytes <= WINDOW_BYTES {
            return Poll::Ready(true);
        }
        state.leader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The body has ended, whole or not. Nobody joins any more.
    pub(crate) fn land(mut self, is_whole: bool) {
        self.end(is_whole);
    }

    fn end(&mut self, is_whole: bool) {
        if !self.has_landed {
            self.has_landed = true;
            self.close();
            self.flight.change(|state| {
                // Who has not been given the head yet is told that there is none.
                let is_nothing = match state.course {
                    Course::Waiting => true,
                    Course::Shared(_) => !is_whole && state.bytes == 0,
                    Course::Released(_) => false,
                };
                if is_nothing {
                    state.course = Course::Released(Released::Failed(StatusCode::BAD_GATEWAY));
                }
                state.end = Some(is_whole);
            });
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Why a flight ended without a response to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// It cannot be stored.
    Uncacheable,
    /// There is something in the store now that can be served.
    Look,
    /// The origin could not be asked; the status that says so.
    Failed(StatusCode),
}

/// One fetch.
pub(crate) struct Flight {
    state: Mutex<State>,
    spoiled: AtomicBool,
    /// The origin does not answer with the range that it is asked for.
    ignores_ranges: AtomicBool,
    era: u64,
    /// [`Flights::kept`].
    kept_by_all: Arc<AtomicUsize>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.keep_no_more(&mut self.lock());
    }
}

#[derive(Default)]
struct State {
    course: Course,
    /// The body from `given_up` pieces on.
    pieces: VecDeque<Bytes>,
    given_up: usize,
    /// Bytes of the body so far, and of what was given up.
    bytes: usize,
    given_up_bytes: usize,
    /// What was counted by [`Leader::keep`].
    kept: usize,
    is_passing: bool,
    /// Did it end, and whole?
    end: Option<bool>,
    waiting: Vec<Waker>,
    leader: Option<Waker>,
    /// Which piece each reader reads next, by their numbers.
    readers: HashMap<u64, usize>,
    next_reader: u64,
}

#[derive(Default)]
enum Course {
    #[default]
    Waiting,
    Shared(Arc<Fetched>),
    Released(Released),
}

impl State {
    /// Gives up what every reader has read, if it is not to be stored.
    fn give_up(&mut self) {
        if !self.is_passing {
            return;
        }
        let slowest = self.readers.values().copied().min().unwrap_or(usize::MAX);
        while self.given_up < slowest
            && let Some(piece) = self.pieces.pop_front()
        {
            self.given_up += 1;
            self.given_up_bytes += piece.len();
        }
    }
}

impl Flight {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what it has kept whole out.
    fn keep_no_more(&self, state: &mut State) {
        self.kept_by_all.fetch_sub(std::mem::take(&mut state.kept), Ordering::Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.lock();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Does the origin send the whole when it is asked for a range?
    pub(crate) fn ignores_ranges(&self) -> bool {
        self.ignores_ranges.load(Ordering::Relaxed)
    }

    /// The head of what whoever comes now can read from its beginning, and how many bytes have arrived.
    pub(crate) fn so_far(&self) -> Option<(Arc<Fetched>, u64)> {
        let state = self.lock();
        match &state.course {
            Course::Shared(fetched) if !state.is_passing => Some((Arc::clone(fetched), state.bytes as u64)),
            _ => None,
        }
    }

    /// Waits for the head: the response to read, or why there is none.
    pub(crate) fn poll_head(
        self: &Arc<Flight>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Arc<Fetched>, Reader), Released>> {
        let mut state = self.lock();
        match &state.course {
            Course::Waiting => {
                wait(&mut state.waiting, cx);
                Poll::Pending
            }
            // Its beginning may be gone.
            Course::Shared(_) if state.is_passing => Poll::Ready(Err(Released::Uncacheable)),
            Course::Shared(fetched) => {
                let fetched = Arc::clone(fetched);
                let number = state.next_reader;
                state.next_reader += 1;
                state.readers.insert(number, 0);
                Poll::Ready(Ok((fetched, Reader { flight: Arc::clone(self), number, next: 0 })))
            }
            Course::Released(why) => Poll::Ready(Err(*why)),
        }
    }
}

fn wait(waiting: &mut Vec<Waker>, cx: &Context<'_>) {
    if !waiting.iter().rev().take(4).any(|waker| waker.will_wake(cx.waker())) {
        waiting.push(cx.waker().clone());
    }
}

/// Reads the body of a flight, from its beginning.
pub(crate) struct Reader {
    flight: Arc<Flight>,
    number: u64,
    next: usize,
}

/// The body ended before it was whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Reader {
    /// Reads a flight whose head is there.
    pub(crate) fn of(flight: &Arc<Flight>) -> Option<Reader> {
        let mut cx = Context::from_waker(Waker::noop());
        match flight.poll_head(&mut cx) {
            Poll::Ready(Ok((_, reader))) => Some(reader),
            _ => None,
        }
    }

    /// The next piece; `None` at the end of a whole body.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let mut state = self.flight.lock();
        let index = self.next - state.given_up;
        if let Some(piece) = state.pieces.get(index) {
            let piece = piece.clone();
            self.next += 1;
            state.readers.insert(self.number, self.next);
            if state.is_passing
                && let Some(leader) = state.leader.take()
            {
                drop(state);
                leader.wake();
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        match state.end {
            Some(true) => Poll::Ready(None),
            Some(false) => Poll::Ready(Some(Err(Broken))),
            None => {
                wait(&mut state.waiting, cx);
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.flight.lock();
        state.readers.remove(&self.number);
        let leader = state.leader.take();
        drop(state);
        if let Some(leader) = leader {
            leader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn lead(flights: &Arc<Flights>, key: &[u8]) -> Leader {
        match flights.join(key) {
            Joined::Lead(leader) => leader,
            Joined::Follow(_) => panic!("somebody leads already"),
        }
    }

    fn follow(flights: &Arc<Flights>, key: &[u8]) -> Arc<Flight> {
        match flights.join(key) {
            Joined::Lead(_) => panic!("nobody leads"),
            Joined::Follow(flight) => flight,
        }
    }

    fn reader(flight: &Arc<Flight>) -> Reader {
        match flight.poll_head(&mut cx()) {
            Poll::Ready(Ok((_, reader))) => reader,
            Poll::Ready(Err(why)) => panic!("released: {why:?}"),
            Poll::Pending => panic!("no head yet"),
        }
    }

    fn piece(reader: &mut Reader) -> Option<Poll<Result<Bytes, Broken>>> {
        match reader.poll_piece(&mut cx()) {
            Poll::Ready(Some(piece)) => Some(Poll::Ready(piece)),
            Poll::Ready(None) => None,
            Poll::Pending => Some(Poll::Pending),
        }
    }

    #[test]
    fn whoever_follows_reads_all_of_it_however_late_they_come() {
        let flights = Flights::new();
        let leader = lead(&flights, b"a");
        let flight = follow(&flights, b"a");
        assert!(flight.poll_head(&mut cx()).is_pending());
        leader.begin(Arc::new(Fetched::for_tests()));
        let mut early = reader(&flight);
        assert_eq!(piece(&mut early), Some(Poll::Pending));
        leader.push(Bytes::from_static(b"one"));
        let mut late = reader(&follow(&flights, b"a"));
        leader.push(Bytes::from_static(b"two"));
        leader.land(true);
        assert_eq!(flights.len(), 0);
        for reader in [&mut early, &mut late] {
            assert_eq!(piece(reader), Some(Poll::Ready(Ok(Bytes::from_static(b"one")))));
            assert_eq!(piece(reader), Some(Poll::Ready(Ok(Bytes::from_static(b"two")))));
            assert_eq!(piece(reader), None);
        }
    }

    #[test]
    fn a_leader_that_goes_leaves_nobody_waiting() {
        let flights = Flights::new();
        let leader = lead(&flights, b"a");
        let flight = follow(&flights, b"a");
        drop(leader);
        assert!(matches!(flight.poll_head(&mut cx()), Poll::Ready(Err(Released::Failed(_)))));
        let leader = lead(&flights, b"a");
        leader.begin(Arc::new(Fetched::for_tests()));
        let mut reader = reader(&follow(&flights, b"a"));
        drop(leader);
        assert_eq!(piece(&mut reader), Some(Poll::Ready(Err(Broken))));
        drop(lead(&flights, b"a"));
    }

    #[test]
    fn a_body_that_breaks_off_before_its_first_byte_is_no_answer_for_who_comes_to_its_head_late() {
        let flights = Flights::new();
        for pieces in [0, 1] {
            let leader = lead(&flights, b"a");
            let flight = follow(&flights, b"a");
            leader.begin(Arc::new(Fetched::for_tests()));
            let mut early = reader(&flight);
            (0..pieces).for_each(|_| leader.push(Bytes::from_static(b"one")));
            drop(leader);
            let is_told = matches!(flight.poll_head(&mut cx()), Poll::Ready(Err(Released::Failed(_))));
            assert_eq!(is_told, pieces == 0);
            (0..pieces).for_each(|_| drop(piece(&mut early)));
            assert_eq!(piece(&mut early), Some(Poll::Ready(Err(Broken))));
        }
    }

    #[test]
    fn a_response_that_cannot_be_shared_releases_everyone() {
        let flights = Flights::new();
        let leader = lead(&flights, b"a");
        let flight = follow(&flights, b"a");
        leader.release(Released::Uncacheable);
        assert!(matches!(flight.poll_head(&mut cx()), Poll::Ready(Err(Released::Uncacheable))));
        drop(lead(&flights, b"a"));
    }

    #[test]
    fn a_purged_flight_is_spoiled_and_the_next_one_is_not() {
        let flights = Flights::new();
        let (first, other) = (lead(&flights, b"a"), lead(&flights, b"b"));
        flights.spoil_page(b"a");
        let second = lead(&flights, b"a");
        assert!(first.is_spoiled() && !second.is_spoiled());
        drop(first);
        drop(follow(&flights, b"a"));
        let (variant, longer) = (lead(&flights, b"b#x"), lead(&flights, b"bc"));
        flights.spoil_page(b"b");
        assert!(other.is_spoiled() && variant.is_spoiled() && !longer.is_spoiled() && !second.is_spoiled());
    }

    #[test]
    fn a_range_s_flight_that_brings_the_whole_is_the_whole_s_until_it_ends_unless_there_is_one_or_it_was_purged() {
        let flights = Flights::new();
        let mut of_range = lead(&flights, b"a#bytes=0-1");
        of_range.widen(b"bytes=0-1");
        assert!(Arc::ptr_eq(&follow(&flights, b"a"), of_range.flight()) && of_range.flight().ignores_ranges());
        of_range.land(true);
        assert_eq!((flights.len(), flights.count.load(Ordering::SeqCst)), (0, 0));
        let (whole, mut of_range) = (lead(&flights, b"a"), lead(&flights, b"a#bytes=0-1"));
        of_range.widen(b"bytes=0-1");
        assert!(Arc::ptr_eq(&follow(&flights, b"a"), whole.flight()) && whole.flight().ignores_ranges());
        drop(of_range);
        drop(follow(&flights, b"a"));
        drop(whole);
        for everything in [false, true] {
            let mut of_range = lead(&flights, b"a#bytes=0-1");
            if everything {
                flights.spoil_everything()
            } else {
                flights.spoil_page(b"a")
            }
            of_range.widen(b"bytes=0-1");
            assert!(flights.under_way(b"a").is_none());
        }
        assert_eq!((flights.len(), flights.count.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn everything_is_spoiled_at_once_and_what_comes_later_is_not() {
        let flights = Flights::new();
        let first = lead(&flights, b"a");
        flights.spoil_everything();
        assert!(first.is_spoiled());
        let second = lead(&flights, b"a");
        assert!(!second.is_spoiled());
        drop(first);
        drop(follow(&flights, b"a"));
        drop(second);
        assert_eq!((flights.len(), flights.count.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn what_is_kept_whole_is_counted_until_it_passes_by_or_the_last_reader_has_gone() {
        let flights = Flights::new();
        let [first, second] = [b"a", b"b"].map(|key| {
            let leader = lead(&flights, key);
            leader.begin(Arc::new(Fetched::for_tests()));
            assert!(leader.keep(4, 10) && leader.keep(2, 10));
            leader
        });
        assert!(!second.keep(7, 10) && second.keep(6, 10));
        let reader = reader(second.flight());
        first.overflow();
        assert_eq!(flights.kept.load(Ordering::Relaxed), 6);
        first.land(true);
        second.land(true);
        assert_eq!(flights.kept.load(Ordering::Relaxed), 6, "somebody reads it yet");
        drop(reader);
        assert_eq!(flights.kept.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_large_response_waits_for_its_slowest_reader_and_keeps_no_more_than_a_window() {
        let flights = Flights::new();
        let leader = lead(&flights, b"a");
        leader.begin(Arc::new(Fetched::for_tests()));
        let flight = Arc::clone(leader.flight());
        let (mut quick, mut slow) = (reader(&flight), reader(&flight));
        leader.overflow();
        assert!(matches!(flight.poll_head(&mut cx()), Poll::Ready(Err(Released::Uncacheable))));
        drop(lead(&flights, b"a"));
        let large = Bytes::from(vec![7; WINDOW_BYTES]);
        leader.push(large.clone());
        assert_eq!(leader.poll_room(&mut cx()), Poll::Ready(true));
        leader.push(large.clone());
        assert!(leader.poll_room(&mut cx()).is_pending());
        assert!(matches!(piece(&mut quick), Some(Poll::Ready(Ok(_)))));
        assert!(leader.poll_room(&mut cx()).is_pending());
        assert!(matches!(piece(&mut slow), Some(Poll::Ready(Ok(_)))));
        assert_eq!(leader.poll_room(&mut cx()), Poll::Ready(true));
        assert_eq!(flight.lock().pieces.len(), 1);
        assert!(matches!(piece(&mut quick), Some(Poll::Ready(Ok(_)))));
        drop(slow);
        assert_eq!(leader.poll_room(&mut cx()), Poll::Ready(true));
        assert_eq!(flight.lock().pieces.len(), 0);
        drop(quick);
        assert_eq!(leader.poll_room(&mut cx()), Poll::Ready(false));
    }
}
