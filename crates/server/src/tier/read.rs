//! Looking keys up in tiers: a copy that is here, a fetch that is under way, or a fetch of one's own.
//!
//! Owns the lookups of one connection that are not taken yet, in the order in which the client asked. What each comes to
//! lies in the connection's inbox, whoever puts it there: the backend, or another connection whose fetch this one waits
//! for. Nothing here is a future or allocates for a lookup that nobody else can share; lookups begin within the poll of
//! the connection that asks, and its polls land the flights that it leads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;

use nuthatch_store::{Handle, Seconds};
use smallvec::SmallVec;

use super::flights::Joined;
use super::{KEYS_TOGETHER_MAX, Tier, Waiter, item_of};
use crate::backend::inbox::{Answers, Asked, Inbox, Shown, Wants, given_up};
use crate::backend::{Fetched, Marks, Refusal};
use crate::counters::TierCounter;
use crate::exec::Exec;
use crate::settings::{Act, Policy};
use crate::shared::Live;
use crate::worker;

/// Taken keys in front of the buffer are cut off once they are this many bytes, and at least half of it.
const CUT_BYTES: usize = 16 * 1024;

/// What a client can be told of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sees {
    /// The CAS unique.
    pub(crate) cas: bool,
    /// That it has won the right to recache.
    pub(crate) marks: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Reads {
    inbox: Arc<Inbox>,
    /// What was in force when they began: the same for all of them. Keeps the pools, and thereby the worker's handles.
    live: Option<Arc<Live>>,
    lookups: VecDeque<Lookup>,
    /// The ticket of the first.
    first: u64,
    /// Their keys, one after the other.
    keys: Vec<u8>,
    /// Bytes that were cut off in front of them.
    keys_cut: usize,
    /// Empty between polls.
    to_land: Vec<u64>,
}

struct Lookup {
    pool: usize,
    /// Where its key begins among all that there were.
    key_at: usize,
    key_bytes: usize,
    /// The number of the flight that it leads, until it has landed.
    flight: Option<u64>,
    /// The backend was asked, and nothing else is to be done with the answer.
    is_routed: bool,
    asked_at: Seconds,
    sees_marks: bool,
}

impl Lookup {
    fn key<'k>(&self, keys: &'k [u8], keys_cut: usize) -> &'k [u8] {
        &keys[self.key_at - keys_cut..][..self.key_bytes]
    }
}

impl Reads {
    /// Whether lookups may begin beside those under way.
    pub(crate) fn admits(&self, exec: &Exec<'_>) -> bool {
        self.live.as_ref().is_none_or(|live| Arc::ptr_eq(live, exec.kept()))
    }

    /// Whether any key that is being looked up fulfils `is_it`.
    pub(crate) fn any(&self, is_it: impl Fn(&[u8]) -> bool) -> bool {
        self.lookups.iter().any(|lookup| is_it(lookup.key(&self.keys, self.keys_cut)))
    }

    /// Looks `keys` up, each in the pool it lives in.
    pub(crate) fn begin(&mut self, exec: &mut Exec<'_>, keys: &[&[u8]], sees: Sees) {
        let live = Arc::clone(self.live.get_or_insert_with(|| exec.keep_live()));
        if let [key] = keys {
            if let Some((tier, ticket)) = self.look(exec, &live, key, sees) {
                tier.fetch(exec.worker, &[Asked { key, ticket }], sees, &self.inbox);
            }
            return;
        }
        let mut asked: SmallVec<[Asked<'_>; KEYS_TOGETHER_MAX]> = SmallVec::new();
        let mut asked_of: Option<&Arc<Tier>> = None;
        for &key in keys {
            let Some((tier, ticket)) = self.look(exec, &live, key, sees) else { continue };
            if let Some(other) = asked_of.filter(|other| !Arc::ptr_eq(other, tier)) {
                other.fetch(exec.worker, &asked, sees, &self.inbox);
                asked.clear();
            }
            asked_of = Some(tier);
            asked.push(Asked { key, ticket });
        }
        if let Some(tier) = asked_of {
            tier.fetch(exec.worker, &asked, sees, &self.inbox);
        }
    }

    /// Begins one lookup: whom to ask for it, if anyone, and by which ticket.
    #[inline]
    fn look<'l>(
        &mut self,
        exec: &mut Exec<'_>,
        live: &'l Live,
        key: &[u8],
        sees: Sees,
    ) -> Option<(&'l Arc<Tier>, u64)> {
        let pool = exec.pool_of(key);
        let tier = live.tiers.of(pool).filter(|tier| tier.policy(Act::Get) != Policy::Memory);
        let lands = tier.is_some_and(|tier| tier.serves_copies());
        let (key_at, key_bytes) = (self.keys_cut + self.keys.len(), key.len());
        self.keys.extend_from_slice(key);
        let (flight, is_routed, asked_at, sees_marks) = (None, false, exec.now, sees.marks);
        self.lookups.push_back(Lookup { pool, key_at, key_bytes, flight, is_routed, asked_at, sees_marks });
        let lookup = self.lookups.back_mut()?;
        let ticket = self.inbox.lock().expect(lands);
        let Some(tier) = tier else {
            let here = exec.handles[pool].get(key, exec.now).map(|hit| item_of(&hit));
            self.inbox.lock().known(ticket, Ok(here));
            return None;
        };
        if let Some(refusal) = tier.refuses(Act::Get) {
            self.inbox.lock().known(ticket, Err(refusal));
            return None;
        }
        if lands {
            if let Some(copy) = exec.handles[pool].get(key, exec.now)
                && tier.is_fresh(&copy, exec.now)
            {
                self.inbox.lock().known(ticket, Ok(Some(item_of(&copy))));
                tier.count(exec.worker, TierCounter::LocalHits, 1);
                return None;
            }
            if tier.knows_miss(key) {
                self.inbox.lock().known(ticket, Ok(None));
                tier.count(exec.worker, TierCounter::KnownMisses, 1);
                return None;
            }
            // It lands by another's hand, or by this one's: the difference is known before an answer can come.
            let inbox = &self.inbox;
            let waiter = || {
                inbox.lock().waits(ticket);
                Waiter { inbox: Arc::clone(inbox), ticket, sees_marks }
            };
            match tier.flights.join(key, waiter) {
                Joined::Leads(flight) => lookup.flight = Some(flight),
                Joined::Waits => {
                    tier.count(exec.worker, TierCounter::Coalesced, 1);
                    return None;
                }
            }
        } else {
            lookup.is_routed = true;
        }
        tier.count(exec.worker, TierCounter::Fetches, 1);
        Some((tier, ticket))
    }

    /// Lands what has come, and has `context` woken for what comes next. Not to be called within `worker::with`.
    pub(crate) fn poll(&mut self, context: &Context<'_>) {
        self.inbox.lock().watch(context, &mut self.to_land);
        if self.to_land.is_empty() {
            return;
        }
        let mut to_land = std::mem::take(&mut self.to_land);
        worker::with(|worker| {
            let now = worker.shared.clock.now();
            for ticket in to_land.drain(..) {
                let at = (ticket - self.first) as usize;
                let Some(lookup) = self.lookups.get_mut(at) else { continue };
                let key = lookup.key(&self.keys, self.keys_cut);
                let (Some(flight), Some(live)) = (lookup.flight.take(), &self.live) else { continue };
                let Some(tier) = live.tiers.of(lookup.pool) else { continue };
                let Some(fetched) = self.inbox.lock().landing(ticket, tier.backend.name()) else { continue };
                let landing = Landing { tier, key, lookup, now, worker: worker.number };
                let answer = landing.land(&mut worker.handles[lookup.pool], flight, fetched);
                self.inbox.lock().known(ticket, answer);
            }
        });
        self.to_land = to_land;
    }

    /// Where their answers are.
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Hands the first answer to `show`, with its pool's number and its key, if it has come. `answers` are the inbox's.
    #[inline]
    pub(crate) fn take(
        &mut self,
        worker: usize,
        answers: &mut Answers,
        show: impl FnOnce(usize, &[u8], Result<Option<Shown<'_>>, Refusal>),
    ) -> bool {
        let Some(lookup) = self.lookups.front().filter(|_| answers.is_ready()) else { return false };
        let tier = self.live.as_ref().and_then(|live| live.tiers.of(lookup.pool));
        let key = lookup.key(&self.keys, self.keys_cut);
        let mut answer = answers.first(tier.map_or("", |tier| tier.backend.name()));
        if let Some(tier) = tier.filter(|_| lookup.is_routed) {
            match &mut answer {
                Ok(Some(shown)) => {
                    tier.note_length(shown.value.len());
                    if shown.marks.any() {
                        shown.marks = tier.marks_alone(key, shown.cas, shown.marks, lookup.sees_marks);
                    }
                }
                Ok(None) => {}
                Err(_) => tier.count(worker, TierCounter::Failures, 1),
            }
        }
        show(lookup.pool, key, answer);
        answers.pop();
        self.first += 1;
        let taken = lookup.key_at + lookup.key_bytes - self.keys_cut;
        self.lookups.pop_front();
        if self.lookups.is_empty() {
            self.keys.clear();
            self.keys_cut = 0;
            self.live = None;
        } else if taken >= CUT_BYTES && taken * 2 >= self.keys.len() {
            self.keys.drain(..taken);
            self.keys_cut += taken;
        }
        true
    }

    /// Memory of values and keys.
    pub(crate) fn owned_bytes(&self) -> usize {
        if self.lookups.is_empty() { 0 } else { self.keys.len() + self.inbox.lock().owned_bytes() }
    }
}

impl Drop for Reads {
    /// Gives up what has not landed: nobody waits for it for ever.
    fn drop(&mut self) {
        for lookup in &self.lookups {
            let key = lookup.key(&self.keys, self.keys_cut);
            let tier = self.live.as_ref().and_then(|live| live.tiers.of(lookup.pool));
            let (Some(flight), Some(tier)) = (lookup.flight, tier) else { continue };
            drop(tell(tier.flights.land(key, flight, |_| None).waiters, Err(given_up())));
        }
    }
}

impl Tier {
    fn fetch(&self, worker: usize, asked: &[Asked<'_>], sees: Sees, to: &Arc<Inbox>) {
        let is_kept = self.serves_copies();
        let wants = Wants { cas: sees.cas || is_kept, life: is_kept || sees.marks };
        Arc::clone(&self.backend).fetch(worker, asked, wants, to);
    }
}

impl Tier {
    /// The marks of an answer for those who wait for it, of whom one or none understands them: a win of theirs is kept, or
    /// one that is kept is theirs.
    fn marks_alone(&self, key: &[u8], cas: u64, marks: Marks, sees_marks: bool) -> Marks {
        if marks.won && !sees_marks {
            self.wins.put(key, cas);
        } else if marks.sent && sees_marks && self.wins.take(key, Some(cas)) {
            return Marks { won: true, sent: false, ..marks };
        }
        marks
    }
}

/// A flight that is over.
struct Landing<'a> {
    tier: &'a Tier,
    key: &'a [u8],
    lookup: &'a Lookup,
    now: Seconds,
    worker: usize,
}

impl Landing<'_> {
    /// Keeps a copy if that may be, and answers everyone who waits.
    fn land(&self, handle: &mut Handle, flight: u64, mut answer: Fetched) -> Fetched {
        let Landing { tier, key, lookup, now, worker } = *self;
        match &answer {
            Ok(Some(item)) => tier.note_length(item.value.len()),
            Ok(None) => {}
            Err(_) => tier.count(worker, TierCounter::Failures, 1),
        }
        if tier.grace_seconds > 0
            && answer.as_ref().is_err_and(Refusal::is_down)
            && let Some(copy) = handle.peek(key, now)
        {
            answer = Ok(Some(item_of(&copy)));
            tier.count(worker, TierCounter::StaleServed, 1);
            return self.share(tier.flights.land(key, flight, |_| None).waiters, answer);
        }
        let landed = tier.flights.land(key, flight, |may_keep| {
            let found = answer.as_ref().ok()?;
            let brought = found.as_ref().map_or(0, |item| item.cas);
            match found {
                _ if !may_keep => {
                    // It was left after all who wait had asked.
                    if let Some(here) = tier.here(handle, key, now) {
                        answer = here;
                        return None;
                    }
                }
                Some(item) => tier.keep(handle, key, item, lookup.asked_at, now),
                None => {
                    if tier.grace_seconds > 0 {
                        tier.drop_copy(handle, key, now);
                    }
                    tier.note_miss(key);
                }
            }
            Some(brought)
        });
        if landed.may_keep && matches!(answer, Ok(Some(_))) {
            tier.count(worker, TierCounter::Fills, 1);
        }
        if !landed.may_keep {
            tier.count(worker, TierCounter::Spoiled, 1);
        }
        self.share(landed.waiters, answer)
    }

    /// Answers `waiters` with what the one who fetched is answered. Only one of them all is told that it has won: one who
    /// understands it.
    fn share(&self, waiters: Vec<Waiter>, mut answer: Fetched) -> Fetched {
        let own_sees_marks = self.lookup.sees_marks;
        let Ok(Some(item)) = &mut answer else {
            return tell(waiters, answer);
        };
        if !item.marks.any() {
            return tell(waiters, answer);
        }
        let sees_marks = own_sees_marks || waiters.iter().any(|waiter| waiter.sees_marks);
        item.marks = self.tier.marks_alone(self.key, item.cas, item.marks, sees_marks);
        let mut is_to_give = item.marks.won && !own_sees_marks;
        let others = Marks { won: false, sent: item.marks.sent || item.marks.won, ..item.marks };
        for waiter in waiters {
            let wins = is_to_give && waiter.sees_marks;
            is_to_give &= !wins;
            let marks = if wins { item.marks } else { others };
            waiter.inbox.put(waiter.ticket, Ok(Some(crate::backend::Item { marks, ..item.clone() })));
        }
        if !own_sees_marks {
            item.marks = others;
        }
        answer
    }
}

/// Tells everyone the same.
fn tell(waiters: Vec<Waiter>, answer: Fetched) -> Fetched {
    waiters.into_iter().for_each(|waiter| waiter.inbox.put(waiter.ticket, answer.clone()));
    answer
}
