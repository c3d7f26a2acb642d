//! Looking keys up in tiers: a copy that is here, a fetch that is under way, or a fetch of one's own.
//!
//! What can be done at once is done by [`begin`], within the poll of the connection that asks; the rest is a future that
//! borrows nothing and takes hold of its worker's handles only for moments.

use std::sync::Arc;

use futures_util::future::join_all;
use nuthatch_store::{Handle, Seconds};
use tokio::sync::oneshot;

use super::flights::Joined;
use super::{Tier, Waiter, item_of};
use crate::backend::{Fetched, Key, Later, Marks, Refusal};
use crate::counters::TierCounter;
use crate::exec::Exec;
use crate::settings::{Act, Policy};
use crate::shared::Live;
use crate::worker;

/// One key of a retrieval.
enum Slot {
    /// It is known already.
    Here(Fetched),
    /// Number so many of those that a party fetches.
    Led(usize, usize),
    /// Another fetches it.
    Waits(oneshot::Receiver<Fetched>),
}

/// What one tier is asked for by one retrieval.
struct Party {
    tier: Arc<Tier>,
    asked_at: Seconds,
    /// Each with the number of its flight; none where nothing is shared.
    leads: Vec<(Key, Option<u64>)>,
    sees_marks: bool,
    /// Keeps the pool, and thereby the worker's handle on it.
    live: Arc<Live>,
}

/// Looks `keys` up, each in the pool it lives in; the answers come in their order. `sees_marks`: the client can be told
/// that it has won the right to recache.
pub(crate) fn begin(exec: &mut Exec<'_>, keys: &[Key], sees_marks: bool) -> Later<Vec<Fetched>> {
    let live = exec.keep_live();
    let mut parties: Vec<Party> = Vec::new();
    let mut slots = Vec::with_capacity(keys.len());
    for key in keys {
        let pool = exec.pool_of(key);
        let Some(tier) = live.tiers.of(pool).filter(|tier| tier.policy(Act::Get) != Policy::Memory) else {
            slots.push(Slot::Here(Ok(exec.handles[pool].get(key, exec.now).map(|hit| item_of(&hit)))));
            continue;
        };
        if let Some(refusal) = tier.refuses(Act::Get) {
            slots.push(Slot::Here(Err(refusal)));
            continue;
        }
        if tier.serves_copies()
            && let Some(copy) = exec.handles[pool].get(key, exec.now)
            && tier.is_fresh(&copy, exec.now)
        {
            slots.push(Slot::Here(Ok(Some(item_of(&copy)))));
            tier.count(exec.worker, TierCounter::LocalHits, 1);
            continue;
        }
        let mut number = None;
        if tier.serves_copies() {
            if tier.knows_miss(key) {
                tier.count(exec.worker, TierCounter::KnownMisses, 1);
                slots.push(Slot::Here(Ok(None)));
                continue;
            }
            let (answer, answered) = oneshot::channel();
            match tier.flights.join(key, || Waiter { answer, sees_marks }) {
                Joined::Leads(flight) => number = Some(flight),
                Joined::Waits => {
                    tier.count(exec.worker, TierCounter::Coalesced, 1);
                    slots.push(Slot::Waits(answered));
                    continue;
                }
            }
        }
        tier.count(exec.worker, TierCounter::Fetches, 1);
        let party = parties.iter().position(|party| Arc::ptr_eq(&party.tier, tier)).unwrap_or_else(|| {
            let (tier, live) = (Arc::clone(tier), Arc::clone(&live));
            parties.push(Party { tier, asked_at: exec.now, leads: Vec::new(), sees_marks, live });
            parties.len() - 1
        });
        slots.push(Slot::Led(party, parties[party].leads.len()));
        parties[party].leads.push((key.clone(), number));
    }
    let worker = exec.worker;
    Box::pin(async move {
        let fetched = join_all(parties.into_iter().map(|party| party.fetch(worker))).await;
        let mut answers = Vec::with_capacity(slots.len());
        for slot in slots {
            answers.push(match slot {
                Slot::Here(fetched) => fetched,
                Slot::Led(party, number) => fetched[party][number].clone(),
                Slot::Waits(answer) => answer.await.unwrap_or_else(|_| Err(given_up())),
            });
        }
        answers
    })
}

impl Party {
    async fn fetch(mut self, worker: usize) -> Vec<Fetched> {
        let keys: Vec<Key> = self.leads.iter().map(|(key, _)| key.clone()).collect();
        let asked = self.tier.backend.get(worker, keys);
        let mut answers = asked.await.into_iter();
        worker::with(|worker| {
            let now = worker.shared.clock.now();
            let number = worker.number;
            let handle = &mut worker.handles[self.tier.pool];
            let leads = std::mem::take(&mut self.leads);
            leads.iter().map(|lead| self.land(handle, lead, answers.next(), now, number)).collect()
        })
    }

    /// One key's fetch is over: keeps a copy if that may be, and answers everyone who waits.
    fn land(
        &self,
        handle: &mut Handle,
        (key, flight): &(Key, Option<u64>),
        answer: Option<Fetched>,
        now: Seconds,
        worker: usize,
    ) -> Fetched {
        let tier = &self.tier;
        let name = tier.backend.name();
        let mut answer = answer.unwrap_or_else(|| Err(Refusal::no(format_args!("{name} answered too few keys"))));
        match &answer {
            Ok(Some(item)) => tier.note_length(item.value.len()),
            Ok(None) => {}
            Err(_) => tier.count(worker, TierCounter::Failures, 1),
        }
        let Some(flight) = *flight else { return self.share(key, Vec::new(), answer) };
        if tier.grace_seconds > 0
            && answer.as_ref().is_err_and(Refusal::is_down)
            && let Some(copy) = handle.peek(key, now)
        {
            answer = Ok(Some(item_of(&copy)));
            tier.count(worker, TierCounter::StaleServed, 1);
            return self.share(key, tier.flights.land(key, flight, || {}).waiters, answer);
        }
        let landed = tier.flights.land(key, flight, || match &answer {
            Ok(Some(item)) => tier.keep(handle, key, item, self.asked_at, now),
            Ok(None) => {
                if tier.grace_seconds > 0 {
                    tier.drop_copy(handle, key, now);
                }
                tier.note_miss(key);
            }
            Err(_) => {}
        });
        if landed.may_keep && matches!(answer, Ok(Some(_))) {
            tier.count(worker, TierCounter::Fills, 1);
        }
        if !landed.may_keep {
            tier.count(worker, TierCounter::Spoiled, 1);
        }
        self.share(key, landed.waiters, answer)
    }

    /// Answers `waiters` with what the one who fetched is answered. Only one of them all is told that it has won: one who
    /// understands it.
    fn share(&self, key: &[u8], waiters: Vec<Waiter>, mut answer: Fetched) -> Fetched {
        let Ok(Some(item)) = &mut answer else {
            return tell(waiters, answer);
        };
        if !item.marks.any() {
            return tell(waiters, answer);
        }
        let sees_marks = self.sees_marks || waiters.iter().any(|waiter| waiter.sees_marks);
        if item.marks.won && !sees_marks {
            self.tier.wins.put(key, item.cas);
        } else if item.marks.sent && sees_marks && self.tier.wins.take(key, Some(item.cas)) {
            item.marks = Marks { won: true, sent: false, ..item.marks };
        }
        let mut is_to_give = item.marks.won && !self.sees_marks;
        let others = Marks { won: false, sent: item.marks.sent || item.marks.won, ..item.marks };
        for waiter in waiters {
            let wins = is_to_give && waiter.sees_marks;
            is_to_give &= !wins;
            let marks = if wins { item.marks } else { others };
            // One who has gone does not mind.
            let _ = waiter.answer.send(Ok(Some(crate::backend::Item { marks, ..item.clone() })));
        }
        if !self.sees_marks {
            item.marks = others;
        }
        answer
    }
}

impl Drop for Party {
    /// Gives up what was not fetched: nobody waits for it for ever.
    fn drop(&mut self) {
        for (key, flight) in &self.leads {
            let Some(flight) = flight else { continue };
            for waiter in self.tier.flights.land(key, *flight, || {}).waiters {
                let _ = waiter.answer.send(Err(given_up()));
            }
        }
        // The pool may go now.
        let _ = &self.live;
    }
}

/// Tells everyone the same.
fn tell(waiters: Vec<Waiter>, answer: Fetched) -> Fetched {
    // One who has gone does not mind.
    waiters.into_iter().for_each(|waiter| _ = waiter.answer.send(answer.clone()));
    answer
}

fn given_up() -> Refusal {
    Refusal::down("the worker that fetched the item has ended, expected it to be asked for again")
}
