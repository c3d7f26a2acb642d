//! Tiers: a pool in front of its backend.
//!
//! Owns what is kept of the backend's items and for how long, and who asks the backend for what. The pool's store holds
//! *local copies*: each lives for `ttl_max`, or for what was left of its own life if that is less, counted from the second
//! it was asked for. Writes go to the backend first. A tier knows no protocol: requests come as keys and
//! [`Op`](crate::backend::Op)s.
//!
//! | module | owns |
//! |---|---|
//! | [`flights`] | who fetches, who waits, what may be kept |
//! | `misses` | keys that the backend has no item of |
//! | `wins` | rights to recache that nobody could be told of |
//! | [`read`] | looking keys up: here, with another's fetch, or by one's own |
//! | [`mod@write`] | handing an operation on, and the copy it leaves |
//!
//! What never happens: a copy is kept that a change has passed (the flights see to it); a copy is served after its life,
//! unless the backend is down and `grace` allows it; a request is answered as done that the backend did not answer.

#[cfg(test)]
mod explorer;
pub(crate) mod flights;
mod misses;
pub(crate) mod read;
mod wins;
pub(crate) mod write;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use nuthatch_store::{DeleteOptions, Handle, Hit, NEVER, Seconds, SetOptions, Store};

use self::flights::Flights;
use self::misses::Misses;
use self::wins::Wins;
use crate::backend::inbox::Inbox;
use crate::backend::{Backend, Changes, Fetched, Forget, Item, Life, Marks, Refusal};
use crate::counters::{Counters, TierCounter};
use crate::settings::{Act, Policy, PoolSettings};
use crate::shared::Shared;

/// Values are supposed to be this long until some are seen.
const TYPICAL_BYTES_FIRST: u64 = 4 * 1024;

/// What one retrieval should bring at most: with it many large values are asked for a few at a time.
const FETCH_BYTES_AIM: u64 = 1024 * 1024;

/// Keys asked for together at most.
pub(crate) const KEYS_TOGETHER_MAX: usize = 64;

/// One pool's tier. A reload that changes anything of it makes another.
pub(crate) struct Tier {
    /// The pool's number.
    pub(crate) pool: usize,
    pub(crate) pool_name: String,
    pub(crate) backend: Arc<dyn Backend>,
    ttl_max_seconds: Seconds,
    grace_seconds: Seconds,
    /// By [`Act`].
    policies: [Policy; 4],
    flights: Flights<Waiter>,
    misses: Misses,
    wins: Wins,
    pub(crate) counters: Arc<Counters<TierCounter>>,
    /// A running mean of how long values are.
    typical_bytes: AtomicU64,
    /// What was told of changes that others made.
    pub(crate) stream: Stream,
}

/// Who waits for another's fetch.
pub(crate) struct Waiter {
    inbox: Arc<Inbox>,
    ticket: u64,
    /// It speaks the meta protocol: it can be shown that it has won.
    sees_marks: bool,
}

/// How a backend's news of changes goes. Written by the control thread.
#[derive(Default)]
pub(crate) struct Stream {
    is_following: AtomicBool,
    /// Items, prefixes and tags that were said to have changed.
    pub(crate) changes: AtomicU64,
    /// Times everything was forgotten, because changes may have been missed.
    pub(crate) gaps: AtomicU64,
    why: Mutex<String>,
}

impl Stream {
    /// Whether changes are told of now, and if not, why.
    pub(crate) fn state(&self) -> String {
        let state = if self.is_following.load(Ordering::Relaxed) { "following" } else { "none" };
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if why.is_empty() { state.to_owned() } else { format!("{state}: {why}") }
    }
}

impl Tier {
    /// The tier of pool number `pool`, as `settings` say.
    pub(crate) fn new(
        pool: usize,
        settings: &PoolSettings,
        backend: Arc<dyn Backend>,
        counters: Arc<Counters<TierCounter>>,
    ) -> Tier {
        Tier {
            pool,
            pool_name: settings.name.clone(),
            backend,
            ttl_max_seconds: settings.ttl_max_seconds,
            grace_seconds: settings.grace_seconds,
            policies: Act::ALL.map(|act| settings.policy_of(act)),
            flights: Flights::default(),
            misses: Misses::new(settings.miss_ttl),
            wins: Wins::default(),
            counters,
            typical_bytes: AtomicU64::new(TYPICAL_BYTES_FIRST),
            stream: Stream::default(),
        }
    }

    /// Whether it does what `settings` say, with `backend`.
    pub(crate) fn is_as(&self, settings: &PoolSettings, backend: &Arc<dyn Backend>) -> bool {
        Arc::ptr_eq(&self.backend, backend)
            && self.ttl_max_seconds == settings.ttl_max_seconds
            && self.grace_seconds == settings.grace_seconds
            && self.policies == Act::ALL.map(|act| settings.policy_of(act))
            && self.misses.ttl() == settings.miss_ttl
    }

    /// What is done with commands of one kind. With [`Policy::Memory`] they never come here.
    #[inline]
    pub(crate) fn policy(&self, act: Act) -> Policy {
        self.policies[act as usize]
    }

    /// Why commands of one kind are refused, if they are.
    pub(crate) fn refuses(&self, act: Act) -> Option<Refusal> {
        (self.policy(act) == Policy::Disabled)
            .then(|| Refusal::no(format_args!("the policy of pool {} disables this command", self.pool_name)))
    }

    /// Whether a retrieval may be answered by a copy.
    #[inline]
    pub(crate) fn serves_copies(&self) -> bool {
        !self.is_router() && self.policy(Act::Get) == Policy::Caching
    }

    /// How long a copy may live here, in seconds.
    pub(crate) fn seconds_kept(&self) -> Seconds {
        self.ttl_max_seconds
    }

    /// Nothing is kept here and nothing shared: every request goes to the backend.
    pub(crate) fn is_router(&self) -> bool {
        self.ttl_max_seconds == 0
    }

    /// Whether a copy is still to be served while the backend is well.
    #[inline]
    pub(crate) fn is_fresh(&self, copy: &Hit<'_>, now: Seconds) -> bool {
        copy.expiry().saturating_sub(now) > self.grace_seconds
    }

    /// Counts for the worker.
    #[inline]
    pub(crate) fn count(&self, worker: usize, counter: TierCounter, n: u64) {
        self.counters.add(worker, counter, n);
    }

    /// How many keys to ask for together.
    pub(crate) fn fetch_keys_max(&self) -> usize {
        let typical = self.typical_bytes.load(Ordering::Relaxed).max(1);
        (FETCH_BYTES_AIM / typical).clamp(1, KEYS_TOGETHER_MAX as u64) as usize
    }

    fn note_length(&self, bytes: usize) {
        // Two workers at once may lose one of two observations, which a mean survives.
        let mean = self.typical_bytes.load(Ordering::Relaxed);
        self.typical_bytes.store((mean * 7 + bytes as u64) / 8, Ordering::Relaxed);
    }

    /// Until when a copy is kept that was asked for at `asked_at`; `None` when not at all. Seconds of the backend's clock
    /// and of this one begin at different moments: the last of an item's own is not used.
    fn copy_expiry(&self, life: Life, asked_at: Seconds) -> Option<Seconds> {
        let seconds = match life {
            Life::Unknown | Life::Forever => self.ttl_max_seconds,
            Life::Seconds(left) => left.saturating_sub(1).min(self.ttl_max_seconds),
        };
        let expiry = asked_at.saturating_add(seconds).saturating_add(self.grace_seconds);
        (seconds > 0).then_some(expiry.min(NEVER - 1))
    }

    /// Keeps a copy, or drops the one there is where none may be kept. Under the flights' lock.
    fn keep(&self, handle: &mut Handle, key: &[u8], item: &Item, asked_at: Seconds, now: Seconds) {
        match self.copy_expiry(item.life, asked_at) {
            // What others are told to replace is not for anyone to keep.
            Some(expiry) if expiry > now && !item.marks.any() => {
                let options = SetOptions { flags: item.flags, expiry, cas: Some(item.cas), ..SetOptions::default() };
                self.misses.drop_key(key);
                handle.set(key, &item.value, &options, now);
            }
            _ => self.drop_copy(handle, key, now),
        }
    }

    fn drop_copy(&self, handle: &mut Handle, key: &[u8], now: Seconds) {
        self.misses.drop_key(key);
        handle.delete(key, &DeleteOptions::default(), now);
    }

    /// Forgets every copy, and what is being fetched now is not kept either. In constant time.
    pub(crate) fn forget(&self, store: &Store, now: Seconds) -> u64 {
        let spoiled = self.flights.invalidate_all();
        self.misses.forget();
        store.flush(now);
        spoiled
    }

    /// Forgets the copies that `what` may name, and what is being fetched now is not kept either. In constant time. Copies
    /// do not know the tags of their items, hence for a tag they all go; so they do for a prefix that is none here.
    pub(crate) fn forget_named(&self, store: &Store, what: Forget<'_>, now: Seconds) -> u64 {
        let spoiled = self.flights.invalidate_all();
        self.misses.forget();
        match what {
            Forget::Prefix(prefix) if store.forget_prefix(prefix).is_ok() => {}
            _ => store.flush(now),
        }
        spoiled
    }

    /// Whether it is known that there is no item.
    fn knows_miss(&self, key: &[u8]) -> bool {
        !self.misses.ttl().is_zero() && self.misses.knows(key, Instant::now())
    }

    /// What can be answered without the backend: a copy, or that there is no item. Under the flights' lock.
    fn here(&self, handle: &mut Handle, key: &[u8], now: Seconds) -> Option<Fetched> {
        if let Some(copy) = handle.peek(key, now).filter(|copy| self.is_fresh(copy, now)) {
            return Some(Ok(Some(item_of(&copy))));
        }
        self.knows_miss(key).then_some(Ok(None))
    }

    /// Notes that there is no item. Under the flights' lock.
    fn note_miss(&self, key: &[u8]) {
        self.misses.note(key, Instant::now());
    }

    /// Has nothing kept from now on: the pool has another tier, or none.
    pub(crate) fn close(&self) {
        self.flights.close();
    }
}

/// The item that a copy is of.
pub(crate) fn item_of(copy: &Hit<'_>) -> Item {
    Item {
        flags: copy.flags(),
        cas: copy.cas(),
        life: Life::Unknown,
        marks: Marks { won: false, stale: copy.stale(), sent: copy.win_sent() },
        value: match copy.value_whole() {
            Some(value) => Bytes::copy_from_slice(value),
            None => {
                let mut whole = BytesMut::with_capacity(copy.value_bytes());
                copy.value().for_each(|piece| whole.extend_from_slice(piece));
                whole.freeze()
            }
        },
    }
}

/// All tiers, by the pools' numbers.
#[derive(Default, Clone)]
pub(crate) struct Tiers(Vec<Option<Arc<Tier>>>);

impl Tiers {
    /// Those of `tiers`.
    pub(crate) fn new(tiers: impl IntoIterator<Item = Arc<Tier>>) -> Tiers {
        let mut by_number = Vec::new();
        for tier in tiers {
            let number = tier.pool;
            by_number.resize(by_number.len().max(number + 1), None);
            by_number[number] = Some(tier);
        }
        Tiers(by_number)
    }

    /// The tier of pool number `pool`; `None` where the pool has no backend.
    #[inline]
    pub(crate) fn of(&self, pool: usize) -> Option<&Arc<Tier>> {
        self.0.get(pool)?.as_ref()
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Those of other pools than these.
    pub(crate) fn without(&self, gone: impl Iterator<Item = usize>) -> Tiers {
        let gone: Vec<usize> = gone.collect();
        Tiers::new(self.iter().filter(|tier| !gone.contains(&tier.pool)).cloned())
    }

    /// Has backends look at their deadlines.
    pub(crate) fn tick_backends(&self) {
        let backends: Vec<_> = self.iter().map(|tier| &tier.backend).collect();
        for (at, backend) in backends.iter().enumerate() {
            if !backends[..at].iter().any(|other| Arc::ptr_eq(other, backend)) {
                backend.tick();
            }
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tier>> {
        self.0.iter().flatten()
    }
}

/// Drops the copies of one pool as its backend tells of changes. On the control thread.
pub(crate) struct Follower {
    tier: Arc<Tier>,
    handle: Handle,
    shared: Arc<Shared>,
}

impl Follower {
    /// For `tier`, whose pool's store is `store`.
    pub(crate) fn new(tier: &Arc<Tier>, store: &Arc<Store>, shared: &Arc<Shared>) -> Follower {
        Follower { tier: Arc::clone(tier), handle: store.handle(), shared: Arc::clone(shared) }
    }
}

impl Changes for Follower {
    fn changed(&mut self, key: &[u8]) {
        let Follower { tier, handle, shared } = self;
        tier.flights.invalidate(key, || tier.drop_copy(handle, key, shared.clock.now()));
        tier.stream.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn forgotten(&mut self, what: Forget<'_>) {
        self.tier.forget_named(self.handle.store(), what, self.shared.clock.now());
        self.tier.stream.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn gap(&mut self) {
        self.tier.forget(self.handle.store(), self.shared.clock.now());
        self.tier.stream.gaps.fetch_add(1, Ordering::Relaxed);
    }

    fn following(&mut self, is_following: bool, why: &str) {
        let stream = &self.tier.stream;
        why.clone_into(&mut stream.why.lock().unwrap_or_else(PoisonError::into_inner));
        stream.is_following.store(is_following, Ordering::Relaxed);
    }
}
