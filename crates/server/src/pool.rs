//! Pools: named memory budgets, each a store and its counters, the routes by which a key finds its pool, and a thread's
//! handles on all of them. Made by the server at start-up and on reload. No protocol is known here.

use std::fmt::Write as _;
use std::ops::{Index, IndexMut};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nuthatch_store::{Config, Events, EvictedItem, Handle, Seconds, Stats, Store};

use crate::clock::Clock;
use crate::counters::{Counters, PageCounter, PoolCounter};
use crate::exec::{CLASS, ttl_shown};
use crate::log::Log;
use crate::memory_file;
use crate::server::StartError;
use crate::settings::PoolSettings;
use crate::shared::{Books, Live, Shared};
use crate::watch::{kind, push_uri_encoded};

/// A named memory budget.
pub(crate) struct Pool {
    /// By which everything else names it. Never given twice, so a number that is kept never leads to another pool.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) store: Arc<Store>,
    pub(crate) counters: Arc<Counters<PoolCounter>>,
    /// What its pages were answered with.
    pub(crate) page_counters: Counters<PageCounter>,
    /// Where its items stay over a restart.
    pub(crate) file: Option<PathBuf>,
    /// When it was opened.
    opened_at: Seconds,
    /// Which of its pages are being fetched.
    pub(crate) pages: nuthatch_pages::door::Shared,
    /// The store's running totals at the last `stats reset`.
    baseline: Mutex<Stats>,
}

impl Pool {
    /// A pool as `settings` say, for `workers` threads; with the items of its memory file, if it has one.
    pub(crate) fn new(
        settings: &PoolSettings,
        workers: usize,
        hash_seed: u64,
        prefix_delimiter: u8,
        books: &Books,
        clock: &Clock,
        log: &Log,
    ) -> Result<Pool, StartError> {
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
            prefix_delimiter,
        };
        let opened_at = clock.now();
        let store = match &settings.file {
            Some(path) => memory_file::open(path, &settings.name, config, opened_at, log)
                .map_err(|error| StartError::MemoryFile(settings.name.clone(), error))?,
            None => Store::new(config).map_err(|error| StartError::Pool(settings.name.clone(), error))?,
        };
        Ok(Pool {
            number: books.pool_numbers.fetch_add(1, Ordering::Relaxed),
            name: settings.name.clone(),
            store,
            counters: books.pools.open(),
            page_counters: Counters::default(),
            file: settings.file.clone(),
            opened_at,
            pages: nuthatch_pages::door::Shared::default(),
            baseline: Mutex::default(),
        })
    }

    /// Pages are served from it, from now on at the latest.
    pub(crate) fn serve_pages(&self) {
        if self.file.is_some() {
            self.pages.outlast(&self.store, self.opened_at);
        }
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

    /// Starts the store's totals from zero, and what its pages were answered with.
    pub(crate) fn reset(&self) {
        self.page_counters.reset();
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.store.stats();
    }
}

/// Running totals of stores that are gone; nothing else of them is left to tell.
#[derive(Default)]
pub(crate) struct Totals(Stats);

impl Totals {
    /// Notes those of a pool that is going.
    pub(crate) fn take(&mut self, pool: &Pool) {
        self.add_to_stats(&mut pool.stats(), |total, of_pool| *total += *of_pool);
    }

    /// Adds them to the sum over the pools there are.
    pub(crate) fn add_to(&mut self, sum: &mut Stats) {
        self.add_to_stats(sum, |total, sum| *sum += *total);
    }

    /// Forgets them (`stats reset`).
    pub(crate) fn reset(&mut self) {
        *self = Totals::default();
    }

    fn add_to_stats(&mut self, other: &mut Stats, add: impl Fn(&mut u64, &mut u64)) {
        totals(&mut self.0).into_iter().zip(totals(other)).for_each(|(total, other)| add(total, other));
    }
}

/// One thread's handles on the stores of all pools, by the pools' numbers.
#[derive(Default)]
pub(crate) struct Handles(Vec<Option<OnPool>>);

struct OnPool {
    handle: Handle,
    counters: Arc<Counters<PoolCounter>>,
}

impl Handles {
    /// Gets a handle on every pool of `live`, and lets go of those on pools that are not in it any more.
    pub(crate) fn follow(&mut self, live: &Live) {
        let pools = live.all_pools();
        let end = pools.iter().map(|pool| pool.number + 1).max().unwrap_or(0);
        self.0.resize_with(end.max(self.0.len()), || None);
        for (number, place) in self.0.iter_mut().enumerate() {
            match pools.iter().find(|pool| pool.number == number) {
                None => *place = None,
                Some(pool) if place.is_none() => {
                    *place = Some(OnPool { handle: pool.store.handle(), counters: Arc::clone(&pool.counters) });
                }
                Some(_) => {}
            }
        }
    }

    /// The counters of pool number `pool`.
    #[inline]
    pub(crate) fn counters(&self, pool: usize) -> &Counters<PoolCounter> {
        &self.on(pool).counters
    }

    /// All of them, in the order of the pools' numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Handle> {
        self.0.iter_mut().flatten().map(|on_pool| &mut on_pool.handle)
    }

    #[inline]
    fn on(&self, pool: usize) -> &OnPool {
        self.0[pool].as_ref().expect(NOT_LEFT)
    }
}

/// Why every number that is used has its handle: who uses one keeps the pool, and handles are kept for as long as that.
const NOT_LEFT: &str = "a pool stays for as long as anyone uses it";

impl Index<usize> for Handles {
    type Output = Handle;

    #[inline]
    fn index(&self, pool: usize) -> &Handle {
        &self.on(pool).handle
    }
}

impl IndexMut<usize> for Handles {
    #[inline]
    fn index_mut(&mut self, pool: usize) -> &mut Handle {
        &mut self.0[pool].as_mut().expect(NOT_LEFT).handle
    }
}

/// How many times its first size a pool's memory may become by `cache_memlimit` or a reload. Only address space is
/// reserved for it.
const MEMORY_GROWTH_MAX: usize = 8;

/// What any pool may grow to, however small it began.
const MEMORY_BYTES_MAX_LEAST: usize = 1 << 30;

/// The numbers that only ever grow.
fn totals(stats: &mut Stats) -> [&mut u64; 13] {
    [
        &mut stats.total_items,
        &mut stats.evictions,
        &mut stats.evicted_unfetched,
        &mut stats.evicted_active,
        &mut stats.expired_unfetched,
        &mut stats.reclaimed,
        &mut stats.forgotten,
        &mut stats.forget_prefix,
        &mut stats.forget_tag,
        &mut stats.forget_folded,
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

/// Keys that begin with `prefix` live in the pool with number `pool`, whatever the listener. The pool is one of the
/// settings', so whoever keeps the routes' [`Live`] keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) prefix: Vec<u8>,
    pub(crate) pool: usize,
    /// It is no route of the settings: rows of a table may be called so. The table's name, `@@` with it.
    pub(crate) table: Option<Vec<u8>>,
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

    /// The pool whose table is chosen by `name`, `@@` with it.
    pub(crate) fn table(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().find(|route| route.table.as_deref() == Some(name)).map(|route| route.pool)
    }

    /// Whether any keys live in `pool` by a route.
    pub(crate) fn leads_to(&self, pool: usize) -> bool {
        self.0.iter().any(|route| route.pool == pool)
    }

    /// Every pool that can be reached from a listener of pool `own`, which comes first. Commands about everything
    /// (dumps, `forget`) act on these.
    pub(crate) fn reachable(&self, own: usize) -> Vec<usize> {
        self.behind(own, |_| true)
    }

    /// The pools that `flush_all` at a listener of pool `own` empties. That a table's rows can be named from anywhere is no reason
    /// to delete them all from anywhere.
    pub(crate) fn flushed(&self, own: usize) -> Vec<usize> {
        self.behind(own, |route| route.table.is_none())
    }

    fn behind(&self, own: usize, counts: impl Fn(&Route) -> bool) -> Vec<usize> {
        let mut pools = vec![own];
        for route in self.0.iter().filter(|route| counts(route)) {
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
        let route = |prefix: &str, pool| Route { prefix: prefix.as_bytes().to_vec(), pool, table: None };
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
    fn a_table_is_chosen_by_its_name() {
        let table = Some(b"@@birds".to_vec());
        let routes = Routes::new(vec![Route { prefix: b"@@birds!".to_vec(), pool: 4, table }]);
        assert_eq!((routes.table(b"@@birds"), routes.table(b"@@bird")), (Some(4), None));
        assert!(routes.leads_to(4) && !routes.leads_to(0));
        assert_eq!((routes.reachable(0), routes.flushed(0), routes.flushed(4)), (vec![0, 4], vec![0], vec![4]));
    }

    #[test]
    fn a_listener_reaches_its_own_pool_and_the_routed_ones_once_each() {
        assert_eq!(routes().reachable(0), [0, 2, 1]);
        assert_eq!(routes().reachable(1), [1, 2]);
    }
}
