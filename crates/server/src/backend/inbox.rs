//! Inboxes: where the answers to lookups arrive, of whatever backend, until the connection that asked takes them.
//!
//! Owns the answers of one connection by *tickets*, numbers that are given out in the order in which the connection will
//! want them, and whom to wake. An answer is put in by whoever has it, on any thread, for a moment under the inbox's lock;
//! small values are copied into one buffer, so that an answer costs no memory of its own. Nothing here waits. Who fetches may
//! hold the flights' lock when it takes this one, never the other way round.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use nuthatch_fleet::client::{Error, Found, Receiver, Ttl};

use super::{Backend, Fetched, Item, Key, Life, Marks, Refusal};
use crate::conn::COPIED_VALUE_BYTES_MAX;

/// Values that wait together in the buffer; others have memory of their own.
const VALUES_BYTES_MAX: usize = 128 * 1024;

/// A key that is asked for, and the ticket by which it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its ticket.
    pub ticket: u64,
}

/// What shall be told besides value and flags, where the backend knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// The CAS unique.
    pub cas: bool,
    /// How long the item has to live, and who recaches it.
    pub life: bool,
}

/// See the module.
#[derive(Default)]
pub struct Inbox(Mutex<Answers>);

/// What is in an inbox.
#[derive(Default)]
pub(crate) struct Answers {
    slots: VecDeque<Slot>,
    /// The ticket of the first.
    first: u64,
    /// Small values, one after the other.
    values: Vec<u8>,
    /// Answers whose value is in `values`.
    values_used: usize,
    /// Tickets whose answers have come and have to land.
    to_land: Vec<u64>,
    /// Whoever waits, until it is woken.
    waker: Option<Waker>,
}

struct Slot {
    come: Come,
    /// It is a flight's: the answer is shared, and perhaps kept, before anyone is given it.
    lands: bool,
}

enum Come {
    Nothing,
    Miss,
    /// A hit whose value is in the buffer.
    Here {
        flags: u32,
        cas: u64,
        marks: Marks,
        at: usize,
        value_bytes: usize,
    },
    Item(Item),
    Refused(Refusal),
    /// In a fleet's words.
    Failed(Error),
}

/// A hit as it is shown.
pub(crate) struct Shown<'a> {
    pub(crate) flags: u32,
    pub(crate) cas: u64,
    pub(crate) marks: Marks,
    pub(crate) value: &'a [u8],
    /// The same value, where its memory can be shared.
    pub(crate) shared: Option<&'a Bytes>,
}

impl<'a> From<&'a Item> for Shown<'a> {
    fn from(item: &'a Item) -> Shown<'a> {
        let Item { flags, cas, marks, value, .. } = item;
        Shown { flags: *flags, cas: *cas, marks: *marks, value, shared: Some(value) }
    }
}

impl Inbox {
    /// What is in it, for a moment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an answer in, and wakes whoever waits for it.
    pub(crate) fn put(&self, ticket: u64, fetched: Fetched) {
        let waker = self.lock().put(ticket, Come::of(fetched));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receiver for Inbox {
    fn take(&self, ticket: u64, answer: Result<Option<Found<'_>>, &Error>) -> Option<Waker> {
        let mut answers = self.lock();
        let come = match answer {
            Ok(None) => Come::Miss,
            Ok(Some(found)) => answers.found(ticket, &found),
            Err(error) => Come::Failed(error.clone()),
        };
        answers.put(ticket, come)
    }
}

impl Come {
    fn of(fetched: Fetched) -> Come {
        match fetched {
            Ok(Some(item)) => Come::Item(item),
            Ok(None) => Come::Miss,
            Err(refusal) => Come::Refused(refusal),
        }
    }
}

impl Answers {
    /// Gives out a ticket.
    pub(crate) fn expect(&mut self, lands: bool) -> u64 {
        self.slots.push_back(Slot { come: Come::Nothing, lands });
        self.first + self.slots.len() as u64 - 1
    }

    /// What this ticket's answer is known to be at once.
    pub(crate) fn known(&mut self, ticket: u64, fetched: Fetched) {
        if let Some(slot) = self.slot(ticket) {
            *slot = Slot { come: Come::of(fetched), lands: false };
        }
    }

    /// Another's flight brings this ticket's answer, and lands it.
    pub(crate) fn waits(&mut self, ticket: u64) {
        if let Some(slot) = self.slot(ticket) {
            slot.lands = false;
        }
    }

    fn slot(&mut self, ticket: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(ticket.checked_sub(self.first)?).ok()?)
    }

    fn found(&mut self, ticket: u64, found: &Found<'_>) -> Come {
        let Found { value, flags, cas, ttl, marks } = *found;
        let marks = Marks { won: marks.won, stale: marks.stale, sent: marks.sent };
        let lands = self.slot(ticket).is_some_and(|slot| slot.lands);
        if lands || value.len() > COPIED_VALUE_BYTES_MAX || self.values.len() > VALUES_BYTES_MAX {
            let life = match ttl {
                Ttl::Unknown => Life::Unknown,
                Ttl::Forever => Life::Forever,
                Ttl::Seconds(left) => Life::Seconds(left),
            };
            return Come::Item(Item { flags, cas, life, marks, value: Bytes::copy_from_slice(value) });
        }
        let at = self.values.len();
        self.values.extend_from_slice(value);
        self.values_used += 1;
        Come::Here { flags, cas, marks, at, value_bytes: value.len() }
    }

    /// Who waits is woken for what can be gone on with: the next answer, or one that lands.
    fn put(&mut self, ticket: u64, come: Come) -> Option<Waker> {
        let first = self.first;
        let slot = self.slot(ticket)?;
        slot.come = come;
        if slot.lands {
            self.to_land.push(ticket);
        } else if ticket != first {
            return None;
        }
        self.waker.take()
    }

    /// Whether the first answer can be taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.slots.front().is_some_and(|slot| !slot.lands && !matches!(slot.come, Come::Nothing))
    }

    /// Has `context` woken when there is more to go on with, and takes the tickets that have to land.
    pub(crate) fn watch(&mut self, context: &Context<'_>, to_land: &mut Vec<u64>) {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        to_land.append(&mut self.to_land);
    }

    /// Nobody waits any more.
    pub(crate) fn forget_waker(&mut self) {
        self.waker = None;
    }

    /// The answer of a flight, to be handed back by [`Answers::known`]. `name` is the backend's.
    pub(crate) fn landing(&mut self, ticket: u64, name: &str) -> Option<Fetched> {
        match std::mem::replace(&mut self.slot(ticket)?.come, Come::Nothing) {
            Come::Miss => Some(Ok(None)),
            Come::Item(item) => Some(Ok(Some(item))),
            Come::Refused(refusal) => Some(Err(refusal)),
            Come::Failed(error) => Some(Err(super::fleet::refusal(name, &error))),
            Come::Nothing | Come::Here { .. } => None,
        }
    }

    /// Shows the first answer. `name` is the backend's.
    pub(crate) fn first(&self, name: &str) -> Result<Option<Shown<'_>>, Refusal> {
        match self.slots.front().map(|slot| &slot.come) {
            Some(&Come::Here { flags, cas, marks, at, value_bytes }) => {
                let value = &self.values[at..at + value_bytes];
                Ok(Some(Shown { flags, cas, marks, value, shared: None }))
            }
            Some(Come::Item(item)) => Ok(Some(item.into())),
            Some(Come::Refused(refusal)) => Err(refusal.clone()),
            Some(Come::Failed(error)) => Err(super::fleet::refusal(name, error)),
            Some(Come::Miss | Come::Nothing) | None => Ok(None),
        }
    }

    /// Takes the first answer off.
    pub(crate) fn pop(&mut self) {
        self.first += 1;
        if let Some(Slot { come: Come::Here { .. }, .. }) = self.slots.pop_front() {
            self.values_used -= 1;
            if self.values_used == 0 {
                self.values.clear();
                if self.values.capacity() > VALUES_BYTES_MAX {
                    self.values = Vec::new();
                }
            }
        }
    }

    /// Memory that waits here.
    pub(crate) fn owned_bytes(&self) -> usize {
        let of_slot = |slot: &Slot| match &slot.come {
            Come::Item(item) => item.value.len(),
            _ => 0,
        };
        self.values.len() + self.slots.iter().map(of_slot).sum::<usize>()
    }
}

/// The answer to a ticket that somebody owes. It is given in any case.
struct Owed {
    inbox: Arc<Inbox>,
    ticket: u64,
    is_given: bool,
}

impl Owed {
    fn give(mut self, fetched: Fetched) {
        self.is_given = true;
        self.inbox.put(self.ticket, fetched);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.is_given {
            self.inbox.put(self.ticket, Err(given_up()));
        }
    }
}

/// Why nobody will answer.
pub(crate) fn given_up() -> Refusal {
    Refusal::down("the worker that fetched the item has ended, expected it to be asked for again")
}

/// Has a task look keys up by [`Backend::get`].
pub(super) fn fetch_by_task<B: Backend + ?Sized>(backend: Arc<B>, worker: usize, asked: &[Asked<'_>], to: &Arc<Inbox>) {
    let keys: Vec<Key> = asked.iter().map(|asked| asked.key.into()).collect();
    let owed = |asked: &Asked<'_>| Owed { inbox: Arc::clone(to), ticket: asked.ticket, is_given: false };
    let owed: Vec<Owed> = asked.iter().map(owed).collect();
    drop(tokio::spawn(async move {
        let mut fetched = backend.get(worker, keys).await.into_iter();
        for owed in owed {
            let few = || Err(Refusal::no(format_args!("{} answered too few keys", backend.name())));
            owed.give(fetched.next().unwrap_or_else(few));
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn found(value: &[u8]) -> Found<'_> {
        Found { value, flags: 7, ..Found::default() }
    }

    fn take(inbox: &Inbox, ticket: u64, value: &[u8]) {
        if let Some(waker) = inbox.take(ticket, Ok(Some(found(value)))) {
            waker.wake();
        }
    }

    fn first(inbox: &Inbox) -> Option<Vec<u8>> {
        let mut answers = inbox.lock();
        if !answers.is_ready() {
            return None;
        }
        let value = answers.first("b").expect("no refusal").map(|shown| shown.value.to_vec());
        answers.pop();
        Some(value.unwrap_or_default())
    }

    #[test]
    fn answers_leave_in_the_order_of_their_tickets_and_wake_once() {
        let inbox = Inbox::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let tickets: Vec<u64> = (0..4).map(|_| inbox.lock().expect(false)).collect();
        inbox.lock().watch(&Context::from_waker(&waker), &mut Vec::new());
        take(&inbox, tickets[1], b"one");
        assert_eq!((first(&inbox), woken.0.load(Ordering::Relaxed)), (None, 0), "nothing can be gone on with");
        take(&inbox, tickets[0], b"zero");
        take(&inbox, tickets[2], &[b'x'; COPIED_VALUE_BYTES_MAX + 1]);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(first(&inbox).as_deref(), Some(&b"zero"[..]));
        assert_eq!(first(&inbox).as_deref(), Some(&b"one"[..]));
        assert_eq!(first(&inbox).map(|value| value.len()), Some(COPIED_VALUE_BYTES_MAX + 1));
        assert_eq!(first(&inbox), None);
        inbox.put(tickets[3], Ok(None));
        assert_eq!(first(&inbox), Some(Vec::new()));
        assert_eq!(inbox.lock().owned_bytes(), 0);
    }

    #[test]
    fn the_answer_of_a_flight_is_nobodys_before_it_has_landed() {
        let inbox = Inbox::default();
        let ticket = inbox.lock().expect(true);
        take(&inbox, ticket, b"value");
        assert_eq!(first(&inbox), None);
        let mut to_land = Vec::new();
        inbox.lock().watch(&Context::from_waker(Waker::noop()), &mut to_land);
        assert_eq!(to_land, [ticket]);
        let fetched = inbox.lock().landing(ticket, "b").expect("it came");
        inbox.lock().known(ticket, fetched);
        assert_eq!(first(&inbox).as_deref(), Some(&b"value"[..]));
    }

    #[test]
    fn whoever_owes_an_answer_gives_one() {
        let inbox = Arc::new(Inbox::default());
        let ticket = inbox.lock().expect(false);
        drop(Owed { inbox: Arc::clone(&inbox), ticket, is_given: false });
        assert_eq!(inbox.lock().first("b").err(), Some(given_up()));
    }
}
