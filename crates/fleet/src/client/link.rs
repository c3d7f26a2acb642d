//! One connection to one server, shared by all who ask that server: many requests wait for their answers on it at once.
//!
//! Owns the requests that have not been sent, the queue of answers that are due, and what they are waited for by. A request
//! is encoded straight into the buffer that the [driver] sends next, so what many tasks ask at the same
//! time leaves in one write. Nothing here waits or reads a socket. No lock is held while a waker is called.
//!
//! A *generation* is one connection's life. Whoever ends it (the driver on an error, a tick on a deadline) answers all
//! that is due with the error and counts the generation up; the driver of the old one notices and ends, and the next
//! request starts a new one.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::Error;
use super::counters::Counts;
use super::driver::{self, Input};
use super::keys::{KeyQueue, Taker};
use super::request::{Answer, Request, Want, Write};
use super::server::{Identity, Shared};
use super::wire::{self, Expected, Kind, Read};

/// Most keys in one retrieval: enough that a request's own cost is spread, few enough that answers begin to flow.
pub(super) const KEYS_PER_REQUEST: usize = 64;

/// One connection, or the place for one.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    server: Arc<Identity>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    generation: u64,
    /// No further requests are taken, and the connection ends with the last answer.
    draining: bool,
    /// Requests that the driver has not taken yet.
    out: Vec<u8>,
    /// The keys of all retrievals in `queue`.
    keys: KeyQueue,
    /// The slots whose answers are due, in the order in which they will come.
    queue: VecDeque<usize>,
    slots: Slab<Slot>,
    /// The last slot, while its request is at the end of `out` and may have more keys.
    joinable: Option<usize>,
    opaque: u32,
    /// Quiet writes at the end of `out` that have no barrier behind them yet.
    quiet_open: u32,
    /// Quiet writes that went wrong since [`Link::take_quiet_failures`].
    quiet_failures: u64,
    /// Who waits for `out` to be taken.
    room: Vec<Waker>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// Whether it sleeps because there is nothing to send.
    driver_idle: bool,
    /// No slot's deadline is earlier.
    deadline_us: u64,
    /// When something last came to an end here: an answer, or connecting; or when the queue began.
    progress_us: u64,
    /// The last tick saw neither an answer nor a connection in time. It takes two to be sure: answers may be here, unread
    /// because this process, not the server, stood still.
    overdue: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Connecting { since_us: u64 },
    Open,
}

/// A request whose answer is due, or has come and was not taken yet.
#[derive(Debug)]
struct Slot {
    expected: Expected,
    result: Option<Result<Answer, Error>>,
    waker: Option<Waker>,
    /// A [`Call`] waits for the result.
    owned: bool,
    /// The answer is still due.
    queued: bool,
    /// It was asked for before, on a connection that ended.
    is_second: bool,
    sent_us: u64,
    deadline_us: u64,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It could not be made.
    Connect,
    /// The server said nothing for too long.
    Silence,
    /// It was closed or failed.
    Loss,
    /// What came is no answer.
    Garbage,
    /// This side wants no more of it.
    Stop,
}

/// What the driver shall do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Its connection is over.
    Over,
    /// Wait until it is woken.
    Sleep,
    /// Send what it was given.
    Send,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, server: Arc<Identity>) -> Link {
        let state = State {
            phase: Phase::Closed,
            generation: 0,
            draining: false,
            out: Vec::new(),
            keys: KeyQueue::new(server.label.clone()),
            queue: VecDeque::new(),
            slots: Slab::new(),
            joinable: None,
            opaque: 0,
            quiet_open: 0,
            quiet_failures: 0,
            room: Vec::new(),
            driver: None,
            driver_idle: false,
            deadline_us: u64::MAX,
            progress_us: 0,
            overdue: false,
            counts: Counts::default(),
        };
        Link { shared, server, state: Mutex::new(state) }
    }

    pub(super) fn server(&self) -> &Arc<Identity> {
        &self.server
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock panics half-way through a change; a waiter that does takes nobody along.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, whose answer the [`Call`] brings before `deadline_us`, or within an operation's time from now.
    pub(super) fn submit(self: &Arc<Link>, request: &Request<'_>, deadline_us: Option<u64>) -> Result<Call, Error> {
        let mut state = self.lock();
        let (id, deadline_us) = self.enqueue(&mut state, request, deadline_us, true)?;
        self.start(state);
        Ok(Call { link: self.clone(), id: Some(id), deadline_us })
    }

    /// Sends a request whose answer nobody waits for.
    pub(super) fn submit_unowned(self: &Arc<Link>, request: &Request<'_>) {
        let mut state = self.lock();
        // Refused only when the link is full or drains, and then its state will be known without it.
        if self.enqueue(&mut state, request, Some(u64::MAX), false).is_ok() {
            self.start(state);
        }
    }

    /// Asks for a key, whose answer `taker` is told. Keys that are asked for at the same time go in one request.
    /// `second_until_us`: it was asked for before, and this is the time it has.
    pub(super) fn ask(
        self: &Arc<Link>,
        key: &[u8],
        want: Want,
        taker: &Taker,
        second_until_us: Option<u64>,
    ) -> Result<(), Error> {
        let mut guard = self.lock();
        let state = &mut *guard;
        self.check_room(state)?;
        if state.draining {
            return Err(self.stopped());
        }
        let now_us = self.shared.clock.now_us();
        let joined = state.joinable.filter(|&id| {
            let slot = &state.slots[id];
            let (keys, wanted) = slot.expected.to_tell().unwrap_or_default();
            keys < KEYS_PER_REQUEST && wanted == want && slot.sent_us == now_us && second_until_us.is_none()
        });
        if joined.is_none() {
            self.close_quiet_run(state);
        }
        let (out_end, keys_end, opaque) = (state.out.len(), state.keys.end(), state.opaque);
        let spoken = self.shared.spoken();
        let (out, keys) = (&mut state.out, &mut state.keys);
        if let Err(error) = wire::encode_key(spoken, out, keys, (opaque, joined.is_some()), key, want) {
            out.truncate(out_end);
            keys.cut_to(keys_end);
            return Err(error);
        }
        state.opaque = opaque.wrapping_add(1);
        state.keys.takers.push_back(Some(taker.clone()));
        let id = joined.unwrap_or_else(|| {
            state.counts.requests += 1;
            let (id, _) = self.push(state, Expected::told(spoken.1, want, opaque), second_until_us, false);
            state.slots[id].is_second = second_until_us.is_some();
            state.joinable = Some(id).filter(|_| second_until_us.is_none());
            id
        });
        state.slots[id].expected.add_key();
        self.start(guard);
        Ok(())
    }

    fn enqueue(
        &self,
        state: &mut State,
        request: &Request<'_>,
        deadline_us: Option<u64>,
        owned: bool,
    ) -> Result<(usize, u64), Error> {
        self.check_room(state)?;
        if state.draining {
            return Err(self.stopped());
        }
        self.close_quiet_run(state);
        let keys_end = state.keys.end();
        let out_end = state.out.len();
        let opaque = state.opaque;
        let expected = match wire::encode(self.shared.spoken(), &mut state.out, &mut state.keys, opaque, request) {
            Ok(expected) => expected,
            Err(error) => {
                state.out.truncate(out_end);
                state.keys.cut_to(keys_end);
                return Err(error);
            }
        };
        state.opaque = opaque.wrapping_add(expected.opaques());
        state.counts.requests += 1;
        Ok(self.push(state, expected, deadline_us, owned))
    }

    fn push(&self, state: &mut State, expected: Expected, deadline_us: Option<u64>, owned: bool) -> (usize, u64) {
        let now_us = if state.queue.is_empty() {
            state.progress_us = self.shared.clock.look();
            self.shared.wake_ticker();
            state.progress_us
        } else {
            self.shared.clock.now_us()
        };
        let deadline_us = deadline_us.unwrap_or_else(|| now_us + self.shared.limits.timeout_us());
        state.deadline_us = state.deadline_us.min(deadline_us);
        state.joinable = None;
        let (result, waker, queued, is_second) = (None, None, true, false);
        let slot = Slot { expected, result, waker, owned, queued, is_second, sent_us: now_us, deadline_us };
        let id = state.slots.insert(slot);
        state.queue.push_back(id);
        (id, deadline_us)
    }

    fn check_room(&self, state: &mut State) -> Result<(), Error> {
        let limits = &self.shared.limits;
        let waiting = state.slots.len().max(state.keys.takers.len());
        if waiting >= limits.queue_requests_max || state.out.len() >= limits.queue_bytes_max {
            state.counts.busy += 1;
            return Err(Error::Busy { server: self.server.label.clone() });
        }
        Ok(())
    }

    /// Sees to it that what is in `out` is sent.
    fn start(self: &Arc<Link>, mut state: MutexGuard<'_, State>) {
        if state.phase == Phase::Closed {
            state.phase = Phase::Connecting { since_us: self.shared.clock.look() };
            let generation = state.generation;
            drop(state);
            driver::spawn(self.clone(), self.shared.runtime.clone(), generation);
        } else if state.driver_idle {
            state.driver_idle = false;
            let driver = state.driver.take();
            drop(state);
            if let Some(driver) = driver {
                driver.wake();
            }
        }
    }

    /// Sends a write that is answered only if it goes wrong; `false` when there is no room for it, and then `waker` is
    /// called when there is, or at the next tick.
    pub(super) fn submit_quiet(self: &Arc<Link>, write: &Write<'_>, waker: &Waker) -> Result<bool, Error> {
        let mut state = self.lock();
        if state.draining {
            return Err(self.stopped());
        }
        let limits = &self.shared.limits;
        if state.out.len() >= limits.queue_bytes_max || state.slots.len() >= limits.queue_requests_max {
            state.room.push(waker.clone());
            return Ok(false);
        }
        let opaque = state.opaque;
        wire::encode_quiet(self.shared.spoken(), &mut state.out, opaque, write)?;
        state.opaque = opaque.wrapping_add(1);
        state.joinable = None;
        state.quiet_open += 1;
        state.counts.quiet += 1;
        self.start(state);
        Ok(true)
    }

    /// Puts the barrier behind quiet writes, whose answer says that nothing of theirs is still to come.
    fn close_quiet_run(&self, state: &mut State) {
        let writes = std::mem::take(&mut state.quiet_open);
        if writes > 0 {
            let opaque = state.opaque;
            state.opaque = opaque.wrapping_add(1);
            wire::encode_barrier(self.shared.protocol, &mut state.out, opaque);
            self.push(state, Expected::quiet(writes, opaque), Some(u64::MAX), false);
        }
    }

    /// How many quiet writes went wrong since this was last asked.
    pub(super) fn take_quiet_failures(&self) -> u64 {
        std::mem::take(&mut self.lock().quiet_failures)
    }

    /// The connection is there.
    pub(super) fn opened(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            state.phase = Phase::Open;
            state.progress_us = self.shared.clock.look();
            state.counts.connects += 1;
        }
    }

    /// Asks what to send next. The driver sleeps on `waker` unless it is given something in `out`, which is empty.
    pub(super) fn take_out(&self, generation: u64, out: &mut Vec<u8>, waker: &Waker) -> Next {
        let mut state = self.lock();
        if state.generation != generation {
            return Next::Over;
        }
        self.close_quiet_run(&mut state);
        if state.out.is_empty() {
            if state.draining && state.queue.is_empty() {
                drop(state);
                self.end(generation, End::Stop, &self.stopped());
                return Next::Over;
            }
            state.driver_idle = true;
            state.driver = Some(waker.clone());
            return Next::Sleep;
        }
        std::mem::swap(&mut state.out, out);
        state.joinable = None;
        state.counts.bytes_out += out.len() as u64;
        let room = std::mem::take(&mut state.room);
        drop(state);
        room.into_iter().for_each(Waker::wake);
        Next::Send
    }

    /// The driver sleeps until its socket is ready, or `generation` is over.
    pub(super) fn sleep(&self, generation: u64, waker: &Waker) -> Next {
        let mut state = self.lock();
        if state.generation != generation {
            return Next::Over;
        }
        state.driver_idle = false;
        state.driver = Some(waker.clone());
        Next::Sleep
    }

    /// Reads the answers in `input`, and collects who has to be woken for them. False: the connection is over.
    pub(super) fn take_in(&self, generation: u64, input: &mut Input, wakers: &mut Vec<Waker>) -> bool {
        let now_us = self.shared.clock.look();
        let mut guard = self.lock();
        if guard.generation != generation {
            return false;
        }
        let state = &mut *guard;
        state.counts.bytes_in += input.take_received();
        let mut answered = false;
        let broken = loop {
            let bytes = input.bytes();
            if bytes.is_empty() {
                break None;
            }
            let Some(&id) = state.queue.front() else {
                break Some(wire::describe("nothing, since nothing was asked", bytes));
            };
            let slot = &mut state.slots[id];
            match wire::read(self.shared.protocol, &mut slot.expected, &mut state.keys, bytes) {
                Read::Part(used) => input.used(used),
                Read::Done(used, result) => {
                    input.used(used);
                    answered = true;
                    state.queue.pop_front();
                    if let (Some((count, _)), Err(line)) = (slot.expected.to_tell(), &result) {
                        let error = Error::Refused { server: self.server.label.clone(), line: line.clone() };
                        (0..count).for_each(|_| state.keys.tell(Err(&error)));
                    }
                    slot.expected.forget_keys(&mut state.keys);
                    slot.queued = false;
                    if let Kind::Quiet { .. } = slot.expected.kind {
                        let errors = u64::from(slot.expected.errors());
                        state.quiet_failures += errors;
                        state.counts.quiet_failures += errors;
                    } else {
                        state.counts.answered(now_us.saturating_sub(slot.sent_us));
                        state.counts.refusals += u64::from(result.is_err());
                    }
                    if !slot.owned {
                        state.slots.remove(id);
                    } else if slot.result.is_none() {
                        slot.result =
                            Some(result.map_err(|line| Error::Refused { server: self.server.label.clone(), line }));
                        wakers.extend(slot.waker.take());
                    }
                }
                Read::More(need_bytes) => {
                    if need_bytes > self.shared.limits.answer_bytes_max() {
                        let expected = format!("a value of at most {} bytes", self.shared.limits.value_bytes_max);
                        break Some(wire::describe(&expected, bytes));
                    }
                    input.need(need_bytes);
                    break None;
                }
                Read::Broken(seen) => break Some(seen),
            }
        };
        if answered {
            state.progress_us = now_us;
            self.server.health.answered(now_us);
        }
        wakers.append(&mut state.keys.wakers);
        drop(guard);
        if let Some(seen) = broken {
            self.end(generation, End::Garbage, &Error::Garbage { server: self.server.label.clone(), seen });
            return false;
        }
        true
    }

    /// The server closed the connection.
    pub(super) fn closed(&self, generation: u64) {
        let is_due = {
            let mut state = self.lock();
            if state.generation != generation {
                return;
            }
            let is_due = !state.queue.is_empty();
            state.counts.closes += u64::from(!is_due);
            is_due
        };
        let why = if is_due { End::Loss } else { End::Stop };
        self.end(generation, why, &self.lost("closed by the server"));
    }

    /// Ends a connection and answers what is due on it with `error`; nothing when it has ended already.
    pub(super) fn end(&self, generation: u64, why: End, error: &Error) {
        let state = self.lock();
        if state.generation == generation {
            self.end_locked(state, why, error);
        }
    }

    fn end_locked(&self, mut guard: MutexGuard<'_, State>, why: End, error: &Error) {
        let state = &mut *guard;
        let counts = &mut state.counts;
        match why {
            End::Connect => counts.connect_errors += 1,
            End::Silence => counts.silences += 1,
            End::Loss => counts.losses += 1,
            End::Garbage => counts.garbage += 1,
            End::Stop => {}
        }
        let mut wakers = std::mem::take(&mut state.room);
        wakers.extend(state.driver.take());
        let mut quiet_lost = u64::from(std::mem::take(&mut state.quiet_open));
        let mut again = Vec::new();
        for id in state.queue.drain(..) {
            let slot = &mut state.slots[id];
            slot.queued = false;
            if let Some((count, want)) = slot.expected.to_tell() {
                let asks_again = matches!(error, Error::Lost { .. }) && !slot.is_second;
                for _ in 0..count {
                    if asks_again && let Some(Some(taker)) = state.keys.takers.front() {
                        let key = state.keys.front()[slot.expected.namespace_bytes()..].into();
                        again.push(Again { key, want, taker: taker.clone(), until_us: slot.deadline_us });
                        state.keys.takers.pop_front();
                    } else {
                        state.keys.tell(Err(error));
                    }
                    state.keys.pop();
                }
            } else {
                slot.expected.forget_keys(&mut state.keys);
            }
            if let Kind::Quiet { writes } = slot.expected.kind {
                quiet_lost += u64::from(writes);
            }
            if !slot.owned {
                state.slots.remove(id);
            } else if slot.result.is_none() {
                slot.result = Some(Err(error.clone()));
                wakers.extend(slot.waker.take());
            }
        }
        state.counts.quiet_failures += quiet_lost;
        state.quiet_failures += quiet_lost;
        state.generation += 1;
        state.phase = Phase::Closed;
        state.out = Vec::new();
        state.joinable = None;
        state.keys.clear();
        wakers.append(&mut state.keys.wakers);
        state.driver_idle = false;
        state.deadline_us = u64::MAX;
        drop(guard);
        if why != End::Stop {
            self.server.health.failed(self.shared.clock.look());
        }
        wakers.into_iter().for_each(Waker::wake);
        if !again.is_empty() {
            self.shared.ask_again(again, error);
        }
    }

    /// Takes no more requests; the connection ends when the last answer has come.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        state.driver_idle = false;
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Ends the connection now.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.draining = true;
        self.end_locked(state, End::Stop, &self.stopped());
    }

    /// Keeps the deadlines. True while there is something whose time may come.
    pub(super) fn tick(&self, now_us: u64) -> bool {
        let mut guard = self.lock();
        let limits = &self.shared.limits;
        let patience_us = match guard.phase {
            Phase::Connecting { since_us } => since_us.saturating_add(limits.connect_us()),
            Phase::Open if !guard.queue.is_empty() => guard.progress_us.saturating_add(limits.read_us()),
            _ => u64::MAX,
        };
        let was_overdue = std::mem::replace(&mut guard.overdue, now_us >= patience_us);
        if was_overdue && guard.overdue {
            let server = self.server.label.clone();
            if guard.phase == Phase::Open {
                let error = Error::Silent { server, after: limits.read_timeout };
                self.end_locked(guard, End::Silence, &error);
            } else {
                let why = format!("no connection within {} ms", limits.connect_timeout.as_millis()).into();
                self.end_locked(guard, End::Connect, &Error::Connect { server, why });
            }
            return false;
        }
        let mut wakers = std::mem::take(&mut guard.room);
        if now_us >= guard.deadline_us {
            let state = &mut *guard;
            state.deadline_us = u64::MAX;
            let error = Error::Timeout { server: self.server.label.clone(), after: limits.timeout };
            let mut told = 0;
            for &id in &state.queue {
                let slot = &mut state.slots[id];
                let to_tell = slot.expected.to_tell().map(|(count, _)| count);
                let takers_from = told;
                told += to_tell.unwrap_or(0);
                if slot.result.is_some() || !slot.owned && to_tell.is_none() {
                    continue;
                }
                if slot.deadline_us > now_us {
                    state.deadline_us = state.deadline_us.min(slot.deadline_us);
                    continue;
                }
                if let Some(count) = to_tell {
                    state.counts.timeouts += u64::from(state.keys.give_up(takers_from, count, &error));
                    continue;
                }
                state.counts.timeouts += 1;
                slot.result = Some(Err(error.clone()));
                wakers.extend(slot.waker.take());
            }
            wakers.append(&mut state.keys.wakers);
        }
        let is_busy =
            !guard.queue.is_empty() || !guard.out.is_empty() || !matches!(guard.phase, Phase::Open | Phase::Closed);
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
        is_busy
    }

    /// What was counted.
    pub(super) fn counts(&self) -> Counts {
        let state = self.lock();
        Counts { in_flight: state.queue.len() as u64, ..state.counts }
    }

    fn stopped(&self) -> Error {
        Error::Stopped { server: self.server.label.clone() }
    }

    pub(super) fn lost(&self, why: impl ToString) -> Error {
        Error::Lost { server: self.server.label.clone(), why: why.to_string().into() }
    }
}

/// A key that is to be asked for a second time, as its connection ended before the answer: it changes nothing.
pub(super) struct Again {
    pub(super) key: Box<[u8]>,
    pub(super) want: Want,
    pub(super) taker: Taker,
    pub(super) until_us: u64,
}

/// Waits for one answer. Dropping it leaves the answer to nobody.
#[derive(Debug)]
pub(super) struct Call {
    link: Arc<Link>,
    /// `None` once the result was taken.
    id: Option<usize>,
    /// When the answer is an error at the latest.
    pub(super) deadline_us: u64,
}

impl Future for Call {
    type Output = Result<Answer, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id.expect("a call is not polled after its end");
        let mut state = self.link.lock();
        let slot = &mut state.slots[id];
        let Some(result) = slot.result.take() else {
            match &mut slot.waker {
                Some(waker) => waker.clone_from(context.waker()),
                waker => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        };
        if slot.queued {
            slot.owned = false;
        } else {
            state.slots.remove(id);
        }
        drop(state);
        self.id = None;
        Poll::Ready(result)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.link.lock();
        let slot = &mut state.slots[id];
        if slot.queued {
            slot.owned = false;
            slot.waker = None;
        } else {
            state.slots.remove(id);
        }
    }
}
