//! Handing operations on to the backend, and the copies they leave.
//!
//! The copy there is goes before the backend is asked, so that whatever becomes of the operation, or of the client that
//! asked for it, no older copy is left. A new one is kept only after a plain store whose CAS unique the backend told.

use std::sync::Arc;

use nuthatch_store::{Seconds, SetMode, Store as PoolStore};

use super::Tier;
use crate::backend::{Done, Forget, Item, Key, Later, Life, Marks, Meta, MetaAnswer, MetaVerb, Op, Outcome, Store};
use crate::counters::TierCounter;
use crate::exec::Exec;
use crate::settings::{Act, Policy};
use crate::shared::Live;
use crate::worker;

/// A writer of a key, from its beginning to its end.
struct Writer {
    tier: Arc<Tier>,
    key: Key,
    is_over: bool,
    /// Keeps the pool, and thereby the worker's handle on it.
    _live: Arc<Live>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_over {
            self.tier.flights.end_write(&self.key, || {});
        }
    }
}

impl Writer {
    fn end(mut self, keep: Option<(Item, Seconds)>) {
        self.is_over = true;
        let Some((item, asked_at)) = keep else {
            self.tier.flights.end_write(&self.key, || {});
            return;
        };
        worker::with(|worker| {
            let now = worker.shared.clock.now();
            let handle = &mut worker.handles[self.tier.pool];
            self.tier.flights.end_write(&self.key, || self.tier.keep(handle, &self.key, &item, asked_at, now));
        });
    }
}

/// Has `tier`'s backend carry out `op`, which is about one key of the tier's pool and may change it.
pub(crate) fn begin(exec: &mut Exec<'_>, tier: &Arc<Tier>, op: Op) -> Later<Done> {
    let act = act_of(&op);
    if let Some(refusal) = tier.refuses(act) {
        return Box::pin(std::future::ready(Err(refusal)));
    }
    tier.count(exec.worker, TierCounter::Writes, 1);
    let (tier, worker, asked_at) = (Arc::clone(tier), exec.worker, exec.now);
    if let (Some(key), Some(pages)) = (op.key(), exec.pages_of(tier.pool)) {
        pages.deleting(key);
    }
    let Some(key) = op.key().filter(|_| !tier.is_router()).map(Key::from) else { return ask(exec, &tier, op) };
    let handle = &mut exec.handles[tier.pool];
    tier.flights.begin_write(&key, || tier.drop_copy(handle, &key, exec.now));
    let wins = WinOf::of(&op);
    let copy = match &op {
        Op::Store(store) if tier.policy(act) == Policy::Caching => copy_of(exec, store),
        _ => None,
    };
    let writer = Writer { tier: Arc::clone(&tier), key, is_over: false, _live: exec.keep_live() };
    Box::pin(async move {
        let done = tier.backend.apply(worker, op).await;
        count_failure(&tier, worker, &done);
        let keep = match (&done, copy) {
            (Ok(Outcome::Stored { cas: Some(cas) }), Some(copy)) => Some((Item { cas: *cas, ..copy }, asked_at)),
            _ => None,
        };
        writer.end(keep);
        wins.shown(&tier, done)
    })
}

/// Whose policy is an operation's that may change something.
fn act_of(op: &Op) -> Act {
    match op {
        Op::Delete { .. } | Op::Meta(Meta { verb: MetaVerb::Delete, .. }) => Act::Delete,
        Op::Flush { .. } => Act::Flush,
        _ => Act::Set,
    }
}

/// As [`begin`], for what changes nothing.
pub(crate) fn ask(exec: &mut Exec<'_>, tier: &Arc<Tier>, op: Op) -> Later<Done> {
    let refusal = tier.refuses(Act::Get).filter(|_| matches!(op, Op::Meta(_)));
    if let Some(refusal) = refusal {
        return Box::pin(std::future::ready(Err(refusal)));
    }
    let (tier, worker, live) = (Arc::clone(tier), exec.worker, exec.keep_live());
    let wins = WinOf::of(&op);
    Box::pin(async move {
        let done = tier.backend.apply(worker, op).await;
        count_failure(&tier, worker, &done);
        drop(live);
        wins.shown(&tier, done)
    })
}

/// The key of an operation, and which meta command it is: the client of a get can be given a win that is kept for it.
struct WinOf {
    key: Option<Key>,
    verb: Option<MetaVerb>,
}

impl WinOf {
    fn of(op: &Op) -> WinOf {
        let verb = if let Op::Meta(Meta { verb, .. }) = op { Some(*verb) } else { None };
        WinOf { key: op.key().map(Key::from), verb }
    }

    /// Shows the client that it has won, where it would be shown that another has whom nobody could tell. Wins of items
    /// that are others by now are forgotten, and one that this client cannot be shown is kept.
    fn shown(self, tier: &Tier, mut done: Done) -> Done {
        let Some(key) = self.key else { return done };
        let answer = match &mut done {
            Ok(Outcome::Meta(answer)) if self.verb == Some(MetaVerb::Get) => answer,
            Ok(Outcome::Item(item)) => {
                if item.marks.won {
                    tier.wins.put(&key, item.cas);
                }
                return done;
            }
            Ok(Outcome::Number { cas, .. }) => {
                tier.wins.renew(&key, *cas);
                return done;
            }
            Ok(Outcome::Meta(answer)) => {
                let is_done = matches!(&answer.code, b"HD" | b"VA");
                match self.verb {
                    Some(MetaVerb::Arith) if is_done => tier.wins.renew(&key, cas_of(answer)),
                    Some(MetaVerb::Set | MetaVerb::Delete) if is_done => _ = tier.wins.take(&key, None),
                    _ => {}
                }
                return done;
            }
            Ok(Outcome::Stored { .. } | Outcome::Deleted) => {
                tier.wins.take(&key, None);
                return done;
            }
            _ => return done,
        };
        let tokens = || answer.flags.split(|&byte| byte == b' ');
        if !tokens().any(|token| token == b"Z") {
            return done;
        }
        let cas = cas_of(answer);
        if cas.is_some() && tier.wins.take(&key, cas) {
            let others = tokens().filter(|token| *token != b"Z").chain([&b"W"[..]]);
            answer.flags = others.collect::<Vec<_>>().join(&b' ').into();
        }
        done
    }
}

/// The CAS unique that a meta command was answered.
fn cas_of(answer: &MetaAnswer) -> Option<u64> {
    let digits = answer.flags.split(|&byte| byte == b' ').find_map(|token| token.strip_prefix(b"c"))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Has the backend forget everything, and forgets every copy.
pub(crate) fn flush(exec: &mut Exec<'_>, tier: &Arc<Tier>, delay: i64) -> Later<Done> {
    let (tier, worker, live) = (Arc::clone(tier), exec.worker, exec.keep_live());
    if let Some(refusal) = tier.refuses(Act::Flush) {
        return Box::pin(std::future::ready(Err(refusal)));
    }
    let store: Arc<PoolStore> = Arc::clone(exec.handles[tier.pool].store());
    if tier.policy(Act::Flush) == Policy::Memory {
        tier.count(worker, TierCounter::Spoiled, tier.forget(&store, exec.now));
        return Box::pin(std::future::ready(Ok(Outcome::Flushed)));
    }
    tier.count(worker, TierCounter::Spoiled, tier.forget(&store, exec.now));
    Box::pin(async move {
        let done = tier.backend.apply(worker, Op::Flush { delay }).await;
        count_failure(&tier, worker, &done);
        worker::with(|worker| {
            let clock = &worker.shared.clock;
            // What was fetched meanwhile may be older than the backend's flush.
            tier.forget(&store, clock.now());
            if delay > 0 {
                store.flush_at(clock.expiry(delay).saturating_sub(1), clock.now());
            }
        });
        drop(live);
        done
    })
}

/// Has the backend forget a prefix or tag, and forgets the copies of it.
pub(crate) fn forget(exec: &mut Exec<'_>, tier: &Arc<Tier>, what: Forget<'_>) -> Later<Done> {
    let (tier, worker, live) = (Arc::clone(tier), exec.worker, exec.keep_live());
    let store: Arc<PoolStore> = Arc::clone(exec.handles[tier.pool].store());
    let op = Op::forget(what);
    tier.count(worker, TierCounter::Writes, 1);
    tier.count(worker, TierCounter::Spoiled, tier.forget_named(&store, what, exec.now));
    Box::pin(async move {
        let done = tier.backend.apply(worker, op.clone()).await;
        count_failure(&tier, worker, &done);
        let what = match &op {
            Op::ForgetTag(tag) => Forget::Tag(tag),
            Op::ForgetPrefix(prefix) => Forget::Prefix(prefix),
            _ => return done,
        };
        // What was fetched meanwhile may be older.
        worker::with(|worker| tier.forget_named(&store, what, worker.shared.clock.now()));
        drop(live);
        done
    })
}

/// The copy that a plain store may leave.
fn copy_of(exec: &Exec<'_>, store: &Store) -> Option<Item> {
    if !matches!(store.mode, SetMode::Set | SetMode::Add | SetMode::Replace) {
        return None;
    }
    let expiry = exec.shared.clock.expiry(store.exptime);
    let life = match expiry {
        nuthatch_store::NEVER => Life::Forever,
        expiry => Life::Seconds(expiry.saturating_sub(exec.now)),
    };
    Some(Item { flags: store.flags, cas: 0, life, marks: Marks::default(), value: store.value.clone() })
}

fn count_failure(tier: &Tier, worker: usize, done: &Done) {
    if done.is_err() {
        tier.count(worker, TierCounter::Failures, 1);
    }
}
