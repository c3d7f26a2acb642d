//! Pools: named memory budgets, each a store and its counters, and the routes by which a key finds its pool.
//! Made by the server at start-up and on reload; workers keep one store handle per pool. No protocol is known here.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nuthatch_store::{Config, Events, EvictedItem, Stats, Store, StoreError};

use crate::counters::{Counters, PoolCounter};
use crate::exec::{CLASS, ttl_shown};
use crate::settings::PoolSettings;
use crate::shared::Shared;
use crate::watch::{kind, push_uri_encoded};

/// A named memory budget.
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) store: Arc<Store>,
    pub(crate) counters: Counters<PoolCounter>,
    /// The store's running totals at the last `stats reset`.
    baseline: Mutex<Stats>,
}

impl Pool {
    /// A pool as `settings` say, for `workers` threads.
    pub(crate) fn new(settings: &PoolSettings, workers: usize, hash_seed: u64) -> Result<Pool, StoreError> {
        let memory_bytes = usize::try_from(settings.memory_bytes).unwrap_or(usize::MAX);
        let config = Config {
            memory_bytes,
            memory_bytes_max: memory_bytes.saturating_mul(MEMORY_GROWTH_MAX).max(MEMORY_BYTES_MAX_LEAST),
            item_bytes_max: settings.item_bytes_max,
            evict: settings.evict,
            // The control thread has a handle too.
            handles_hint: workers + 1,
            hash_seed,
            huge_pages: settings.huge_pages,
        };
        Ok(Pool {
            name: settings.name.clone(),
            store: Store::new(config)?,
            counters: Counters::new(workers),
            baseline: Mutex::default(),
        })
    }

    /// The store's numbers, its running totals counted from the last reset.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.store.stats();
        let base = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        for (value, base) in totals(&mut stats).into_iter().zip(totals(&mut base.clone())) {
            *value = value.saturating_sub(*base);
        }
        stats
    }

    /// Starts all totals from zero.
    pub(crate) fn reset(&self) {
        self.counters.reset();
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.store.stats();
    }
}

/// How many times its first size a pool's memory may become by `cache_memlimit` or a reload. Only address space is
/// reserved for it.
const MEMORY_GROWTH_MAX: usize = 8;

/// What any pool may grow to, however small it began.
const MEMORY_BYTES_MAX_LEAST: usize = 1 << 30;

/// The numbers that only ever grow.
fn totals(stats: &mut Stats) -> [&mut u64; 9] {
    [
        &mut stats.total_items,
        &mut stats.evictions,
        &mut stats.evicted_unfetched,
        &mut stats.evicted_active,
        &mut stats.expired_unfetched,
        &mut stats.reclaimed,
        &mut stats.out_of_memory,
        &mut stats.moved_items,
        &mut stats.moved_bytes,
    ]
}

/// Tells watchers of evictions. The store calls it while it evicts: it formats a line and returns.
pub(crate) struct EvictionReporter {
    shared: Weak<Shared>,
}

impl EvictionReporter {
    /// Has every pool of `pools` report; the control thread detaches it when nobody watches any more.
    pub(crate) fn attach(shared: &Arc<Shared>, pools: &[Arc<Pool>]) {
        let reporter: Arc<dyn Events> = Arc::new(EvictionReporter { shared: Arc::downgrade(shared) });
        for pool in pools {
            pool.store.set_events(Some(Arc::clone(&reporter)));
        }
    }
}

impl Events for EvictionReporter {
    fn evicted(&self, item: &EvictedItem<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let now = shared.clock.now();
        shared.watchers.emit(kind::EVICTIONS, |line| {
            line.push_str("type=eviction key=");
            push_uri_encoded(line, item.key);
            let fetched = if item.fetched { "yes" } else { "no" };
            let (ttl, idle) = (ttl_shown(item.expiry, now), now.saturating_sub(item.last_access));
            let size = item.value_bytes;
            let _ = write!(line, " fetch={fetched} ttl={ttl} la={idle} clsid={CLASS} size={size}");
        });
    }
}

/// Keys that begin with `prefix` live in the pool with number `pool`, whatever the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) prefix: Vec<u8>,
    pub(crate) pool: usize,
}

/// All routes, the longest prefix first.
#[derive(Debug, Default, Clone)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// Routes that are tried from the longest prefix to the shortest.
    pub(crate) fn new(mut routes: Vec<Route>) -> Routes {
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        Routes(routes)
    }

    /// The pool `key` lives in when it arrives at a listener of pool `otherwise`.
    #[inline]
    pub(crate) fn pool_of(&self, key: &[u8], otherwise: usize) -> usize {
        if self.0.is_empty() {
            return otherwise;
        }
        self.0.iter().find(|route| key.starts_with(&route.prefix)).map_or(otherwise, |route| route.pool)
    }

    /// Every pool that can be reached from a listener of pool `own`, which comes first. Commands about everything
    /// (`flush_all`, dumps) act on these.
    pub(crate) fn reachable(&self, own: usize) -> Vec<usize> {
        let mut pools = vec![own];
        for route in &self.0 {
            if !pools.contains(&route.pool) {
                pools.push(route.pool);
            }
        }
        pools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let route = |prefix: &str, pool| Route { prefix: prefix.as_bytes().to_vec(), pool };
        Routes::new(vec![route("page:", 1), route("page:big:", 2), route("img:", 1)])
    }

    #[test]
    fn the_longest_matching_prefix_decides() {
        assert_eq!(routes().pool_of(b"page:big:1", 0), 2);
        assert_eq!(routes().pool_of(b"page:1", 0), 1);
        assert_eq!(routes().pool_of(b"user:1", 0), 0);
        assert_eq!(Routes::default().pool_of(b"page:1", 7), 7);
    }

    #[test]
    fn a_listener_reaches_its_own_pool_and_the_routed_ones_once_each() {
        assert_eq!(routes().reachable(0), [0, 2, 1]);
        assert_eq!(routes().reachable(1), [1, 2]);
    }
}
