//! A fleet behind a pool of pages, in the words of `nuthatch-pages`: what its backend is asked for by a site. Copies and
//! flights are the site's own; of the tier only the backend and the life of copies are used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nuthatch_pages::rules::UnixSeconds;
use nuthatch_pages::{Beyond, BeyondItem, Later};
use nuthatch_store::SetMode;

use crate::backend::{Key, Op, Outcome, Store};
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

    fn get(&self, keys: Vec<Vec<u8>>) -> Later<Vec<Option<BeyondItem>>> {
        if self.rest.is_on() {
            return Box::pin(async move { keys.iter().map(|_| None).collect() });
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
                Some(Ok(Some(item))) if !item.marks.any() => {
                    Some(BeyondItem { key: key.into(), flags: item.flags, value: item.value })
                }
                _ => None,
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
                let BeyondItem { key, flags, value } = item.clone();
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

    fn delete(&self, key: Vec<u8>) -> Later<bool> {
        let deleted = self.tier.backend.apply(self.worker, Op::Delete { key: key.into(), compare: None });
        Box::pin(async move { matches!(deleted.await, Ok(Outcome::Deleted)) })
    }

    fn flush(&self) -> Later<()> {
        let flushed = self.tier.backend.apply(self.worker, Op::Flush { delay: 0 });
        Box::pin(async move { drop(flushed.await) })
    }
}
