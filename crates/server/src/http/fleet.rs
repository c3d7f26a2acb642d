//! A fleet behind a pool of pages, in the words of `nuthatch-pages`: what its backend is asked for by a site. Copies and
//! flights are the site's own; of the tier only the backend and the life of copies are used. A purge asks the fleet even
//! while pages do without it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nuthatch_pages::rules::UnixSeconds;
use nuthatch_pages::{Beyond, BeyondItem, Change, Later, Silent};
use nuthatch_store::SetMode;

use crate::backend::{Arith, Key, Op, Outcome, Refusal, Store};
use crate::tier::Tier;

/// memcached's longest item unless its operator says otherwise.
const ITEM_BYTES_MAX: usize = 1024 * 1024;

/// A failure that takes as long as this has cost a page its time.
const SLOW: Duration = Duration::from_millis(50);

/// For so long pages do without the fleet then.
const REST: Duration = Duration::from_secs(1);

/// See the module. What fails is counted by the backend, and is a miss or not done here.
pub(crate) struct Fleet {
    pub(crate) tier: Arc<Tier>,
    pub(crate) worker: usize,
    pub(crate) rest: Arc<Rest>,
}

/// Until when a pool's pages do without their fleet: a server that does not answer costs one page its timeout, and not each.
#[derive(Default)]
pub(crate) struct Rest(Mutex<Option<Instant>>);

impl Rest {
    fn is_on(&self) -> bool {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *until = until.filter(|until| Instant::now() < *until);
        until.is_some()
    }

    fn failed(&self, asked_at: Instant) {
        let now = Instant::now();
        if now.duration_since(asked_at) >= SLOW {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + REST);
        }
    }
}

impl Beyond for Fleet {
    fn seconds_here(&self) -> u32 {
        // What is kept for no time at all could not be served even once.
        self.tier.seconds_kept().max(1)
    }

    fn item_bytes_max(&self) -> usize {
        ITEM_BYTES_MAX
    }

    fn get(&self, keys: Vec<Vec<u8>>) -> Later<Vec<Result<Option<BeyondItem>, Silent>>> {
        if self.rest.is_on() {
            return Box::pin(std::future::ready(vec![Err(Silent); keys.len()]));
        }
        let keys: Vec<Key> = keys.into_iter().map(Key::from).collect();
        let (asked, asked_at, rest) =
            (self.tier.backend.get(self.worker, keys.clone()), Instant::now(), Arc::clone(&self.rest));
        Box::pin(async move {
            let answers = asked.await;
            if answers.iter().any(Result::is_err) {
                rest.failed(asked_at);
            }
            let mut answers = answers.into_iter();
            let item = |key: Key| match answers.next() {
                // What was marked stale is of no use without whoever marked it.
                Some(Ok(found)) => Ok(found.filter(|item| !item.marks.any()).map(|item| {
                    let (flags, value, cas) = (item.flags, item.value, item.cas);
                    BeyondItem { key: key.into(), flags, value, cas }
                })),
                _ => Err(Silent),
            };
            keys.into_iter().map(item).collect()
        })
    }

    fn put(&self, items: Vec<BeyondItem>, expires_at: UnixSeconds) -> Later<()> {
        let (tier, worker, rest) = (Arc::clone(&self.tier), self.worker, Arc::clone(&self.rest));
        Box::pin(async move {
            if rest.is_on() {
                return;
            }
            let asked_at = Instant::now();
            let Some((last, others)) = items.split_last() else { return };
            let store = |item: &BeyondItem| {
                let BeyondItem { key, flags, value, cas: _ } = item.clone();
                let (mode, compare, exptime) = (SetMode::Set, None, expires_at);
                tier.backend.apply(worker, Op::Store(Store { key: key.into(), mode, compare, flags, exptime, value }))
            };
            // The last leads to the others. One that is not stored is a miss.
            let mut done = join_all(others.iter().map(store)).await;
            done.push(store(last).await);
            if done.iter().any(Result::is_err) {
                rest.failed(asked_at);
            }
        })
    }

    fn change(&self, changes: Vec<(Vec<u8>, Change)>) -> Later<Vec<Result<bool, String>>> {
        let store =
            |key: Key, mode, compare, value| Op::Store(Store { key, mode, compare, flags: 0, exptime: 0, value });
        let ops = changes.into_iter().map(|(key, change)| match change {
            Change::Delete => Op::Delete { key: key.into(), compare: None },
            Change::Add(value) => store(key.into(), SetMode::Add, None, value),
            Change::Set(value) => store(key.into(), SetMode::Set, None, value),
            Change::Replace { value, cas } => store(key.into(), SetMode::Set, Some(cas), value),
        });
        let done = join_all(ops.map(|op| self.tier.backend.apply(self.worker, op)));
        Box::pin(async move {
            let is_done = |outcome| matches!(outcome, Outcome::Deleted | Outcome::Stored { .. });
            done.await.into_iter().map(|done| done.map(is_done).map_err(sentence)).collect()
        })
    }

    fn count(&self, key: Vec<u8>) -> Later<Result<Option<u64>, String>> {
        let (key, decrement, delta) = (key.into(), false, 1);
        let counted = self
            .tier
            .backend
            .apply(self.worker, Op::Arith(Arith { key, decrement, delta, initial: None, compare: None }));
        Box::pin(async move {
            Ok(match counted.await.map_err(sentence)? {
                Outcome::Number { value, .. } => Some(value),
                _ => None,
            })
        })
    }

    fn flush(&self) -> Later<Result<(), String>> {
        let flushed = self.tier.backend.apply(self.worker, Op::Flush { delay: 0 });
        Box::pin(async move { flushed.await.map(drop).map_err(sentence) })
    }
}

fn sentence(refusal: Refusal) -> String {
    refusal.sentence().to_owned()
}
