//! A reload: from the settings in force to others, while everything goes on. Carried out by the control thread.
//!
//! First come the steps that can fail and then change nothing: users are read, new pools made. What follows is said
//! where it cannot be done - an address that is taken, a certificate that cannot be used, a pool that cannot grow as
//! far - and the rest is done. Workers learn of all of it at once, in one [`Live`]; see there.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use crate::auth::Access;
use crate::backend::table;
use crate::backends::Backends;
use crate::clock::Clock;
use crate::control::Control;
use crate::http::sites::Logs;
use crate::http::trust::Trusts;
use crate::log::{Level, Log};
use crate::pool::{Pool, Route, Routes};
use crate::server::{Reloaded, StartError};
use crate::settings::{Bytes, PoolSettings, Reload, Settings, WORKERS_MAX};
use crate::shared::{Books, Live, Shared};
use crate::tls;

impl Control {
    /// Runs with `wanted` from now on. See [`Running::reload`](crate::Running::reload).
    pub(crate) async fn reload(&mut self, wanted: &Settings) -> Result<Reloaded, StartError> {
        let shared = Arc::clone(&self.shared);
        let before = Arc::clone(&shared.live().settings);
        let wanted = Settings { workers: wanted.workers.clamp(1, WORKERS_MAX), ..wanted.clone() };
        let Reload { mut settings, changed, waiting } = before.diff(&wanted);
        let mut outcome = Reloaded { changed, waiting, failed: Vec::new() };
        let access = Access::read(&settings).map_err(StartError::Credentials)?;
        let logs = Logs::open(&settings, &self.logs).map_err(StartError::AccessLog)?;
        let (trusts, failed) = Trusts::read(&settings, &self.trusts).map_err(StartError::Tls)?;
        outcome.failed.extend(failed);
        let pools =
            pools_of(&settings, &shared.live().pools, &self.leaving, &shared.books, &shared.clock, &shared.log)?;
        let before_tiers = shared.live().tiers.clone();
        // Asked before anything is changed: a backend that is not there refuses the reload.
        self.backends.tiers_of(&settings, &pools, &[], &before_tiers, &shared.books)?;

        self.access = self.access.followed_by(access);
        self.logs = logs;
        self.trusts = trusts;
        self.change_pools(&before, &mut settings, &pools, &mut outcome);
        let were = tls::in_force(&shared.live().listeners);
        let tls = shared.tls_of(&settings);
        if tls.iter().flatten().flatten().any(|tls| were.iter().any(|other| Arc::ptr_eq(other, tls)))
            || self.trusts.has_files()
        {
            outcome.changed.push("certificates: read again, for connections from now on".to_owned());
        }
        let rearranged = self.doors.rearrange(&before, &settings, tls, &shared.books).await;
        outcome.changed.extend(rearranged.changed);
        outcome.failed.extend(rearranged.failed);
        for error in rearranged.left_out {
            shared.log.line(Level::Warning, format_args!("{error}; going on without it"));
        }
        change_shared(&shared, &before, &settings);

        let listeners = self.doors.listeners(&pools, &self.access, &self.logs, &self.trusts);
        let leaving = self.leaving.iter().map(Arc::downgrade).collect();
        let routes = routes_of(&settings, &pools);
        let tiers = self.backends.tiers_of(&settings, &pools, &self.leaving, &before_tiers, &shared.books)?;
        self.backends.close_tables(&settings);
        let mut live = Live { settings: Arc::new(settings), pools, leaving, routes, tiers, listeners };
        if let Err(error) = self.crew.resize(&live, live.settings.workers) {
            let (workers, wanted) = (self.crew.wanted(), live.settings.workers);
            outcome.failed.push(format!("workers: {workers} instead of {wanted}: cannot start a thread: {error}"));
            live.settings = Arc::new(Settings { workers, ..Settings::clone(&live.settings) });
        }
        let (changed_fleets, failed) = self.backends.change_fleets(&live.settings);
        outcome.failed.extend(failed);
        // Workers know the pools before anyone is handed to them who needs one.
        self.put_in_force(live.clone());
        Backends::forget_of(&changed_fleets, &live, &shared);
        self.doors.lead(&live.listeners, &shared, &self.crew);
        Ok(outcome)
    }

    /// Has the pools that there were already be as `settings` say, and notes those that leave. Where that cannot be,
    /// `settings` are corrected.
    fn change_pools(
        &mut self,
        before: &Settings,
        settings: &mut Settings,
        pools: &[Arc<Pool>],
        outcome: &mut Reloaded,
    ) {
        let now: HashSet<usize> = pools.iter().map(|pool| pool.number).collect();
        let live = self.shared.live();
        let was_leaving = |pool: &Pool| self.leaving.iter().any(|other| other.number == pool.number);
        for (pool, wanted) in pools.iter().zip(&mut settings.pools) {
            let name = &pool.name;
            match before.pools.iter().find(|older| older.name == *name) {
                Some(older) => change_pool(pool, older, wanted, outcome),
                None if was_leaving(pool) => {
                    let is = PoolSettings {
                        memory_bytes: pool.store.memory_limit() as u64,
                        item_bytes_max: pool.store.item_bytes_max(),
                        evict: pool.store.evicts(),
                        file: pool.file.clone(),
                        ..wanted.clone()
                    };
                    outcome.changed.push(format!("pool.{name}: added again, with the items it still had"));
                    change_pool(pool, &is, wanted, outcome);
                }
                None => outcome.changed.push(format!("pool.{name}: added, {}", Bytes(wanted.memory_bytes))),
            }
        }
        self.leaving.retain(|pool| !now.contains(&pool.number));
        for pool in live.pools.iter().filter(|pool| !now.contains(&pool.number)) {
            let name = &pool.name;
            outcome.changed.push(format!("pool.{name}: removed, its memory goes back when no connection uses it"));
            self.leaving.push(Arc::clone(pool));
        }
    }
}

/// Has `pool`, of which `from` was in force, be as `to` says. Compared is what the sources said and say, so that what
/// `cache_memlimit` changed stays until they say something else.
fn change_pool(pool: &Pool, from: &PoolSettings, to: &mut PoolSettings, outcome: &mut Reloaded) {
    let name = &pool.name;
    let as_usize = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut note = |key: &str, values: (String, String), done: Result<(), nuthatch_store::StoreError>| {
        let phrase = format!("pool.{name}.{key}: {} to {}", values.0, values.1);
        match &done {
            Ok(()) => outcome.changed.push(phrase),
            Err(error) => outcome.waiting.push(format!("{phrase}: {error}")),
        }
        done.is_ok()
    };
    let sizes = |from, to| (Bytes(from).to_string(), Bytes(to).to_string());
    if from.memory_bytes != to.memory_bytes {
        let done = pool.store.set_memory_limit(as_usize(to.memory_bytes));
        if !note("memory", sizes(from.memory_bytes, to.memory_bytes), done) {
            to.memory_bytes = from.memory_bytes;
        }
    }
    if from.item_bytes_max != to.item_bytes_max {
        let done = pool.store.set_item_limit(to.item_bytes_max);
        if !note("item_max", sizes(from.item_bytes_max as u64, to.item_bytes_max as u64), done) {
            to.item_bytes_max = from.item_bytes_max;
        }
    }
    if from.evict != to.evict {
        pool.store.set_evict(to.evict);
        note("evict", (from.evict.to_string(), to.evict.to_string()), Ok(()));
    }
    let seconds = |from, to| (format!("{from} s"), format!("{to} s"));
    if from.policy != to.policy {
        note("policy", (format!("{:?}", from.policy), format!("{:?}", to.policy)), Ok(()));
    }
    if from.backend != to.backend {
        let shown = |name: &Option<String>| name.as_deref().unwrap_or("none").to_owned();
        note("backend", (shown(&from.backend), shown(&to.backend)), Ok(()));
    }
    if from.ttl_max_seconds != to.ttl_max_seconds {
        note("ttl_max", seconds(from.ttl_max_seconds, to.ttl_max_seconds), Ok(()));
    }
    if from.policies != to.policies {
        note("policies", (format!("{:?}", from.policies), format!("{:?}", to.policies)), Ok(()));
    }
    if from.miss_ttl != to.miss_ttl {
        note("miss_ttl", (format!("{:?}", from.miss_ttl), format!("{:?}", to.miss_ttl)), Ok(()));
    }
    if from.grace_seconds != to.grace_seconds {
        note("grace", seconds(from.grace_seconds, to.grace_seconds), Ok(()));
    }
    if from.reserved_keys != to.reserved_keys {
        note("reserved_keys", (from.reserved_keys.to_string(), to.reserved_keys.to_string()), Ok(()));
    }
    if from.huge_pages != to.huge_pages {
        outcome.waiting.push(format!("pool.{name}.huge_pages: {} to {}", from.huge_pages, to.huge_pages));
        to.huge_pages = from.huge_pages;
    }
    if from.file != to.file {
        let shown = |file: &Option<PathBuf>| file.as_ref().map_or("none".to_owned(), |file| file.display().to_string());
        outcome.waiting.push(format!("pool.{name}.file: {} to {}", shown(&from.file), shown(&to.file)));
        to.file = from.file.clone();
    }
}

/// Changes what is in force without a [`Live`]: what commands change too is touched only if the sources say otherwise
/// than before.
fn change_shared(shared: &Shared, before: &Settings, settings: &Settings) {
    if settings.verbosity != before.verbosity {
        shared.log.set_level(u32::from(settings.verbosity));
    }
    if settings.detail_enabled != before.detail_enabled {
        shared.prefixes.enable(settings.detail_enabled);
    }
    if settings.prefix_delimiter != before.prefix_delimiter {
        shared.prefixes.set_delimiter(settings.prefix_delimiter);
    }
    shared.buffers.set_limit(settings);
}

/// The pools of `settings`, in their order: those of `there` and `leaving` by their names, and new ones.
pub(crate) fn pools_of(
    settings: &Settings,
    there: &[Arc<Pool>],
    leaving: &[Arc<Pool>],
    books: &Books,
    clock: &Clock,
    log: &Log,
) -> Result<Vec<Arc<Pool>>, StartError> {
    // The standard library's hasher is seeded by the system's randomness: nobody outside knows which keys collide.
    let seed = settings.hash_seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let pool_of = |wanted: &PoolSettings| match there.iter().chain(leaving).find(|pool| pool.name == wanted.name) {
        Some(pool) => Ok(Arc::clone(pool)),
        None => Pool::new(wanted, settings.workers, seed, settings.prefix_delimiter, books, clock, log).map(Arc::new),
    };
    settings.pools.iter().map(pool_of).collect()
}

/// The routes of `settings`, whose pools are `pools`.
pub(crate) fn routes_of(settings: &Settings, pools: &[Arc<Pool>]) -> Routes {
    let route = |route: &crate::settings::RouteSettings| {
        let (prefix, pool) = (route.prefix.clone(), pools[route.pool].number);
        Route { prefix, pool, table: None }
    };
    // A row goes by its table's name too, on whatever listener.
    let by_table = settings.pools.iter().zip(pools).filter_map(|(wanted, pool)| {
        let name = wanted.backend.as_ref()?;
        let table = settings.tables.iter().find(|table| table.rows.name == *name)?;
        let called = Some(format!("@@{name}").into_bytes());
        Some(Route { prefix: table::prefix(name, &table.delimiter), pool: pool.number, table: called })
    });
    Routes::new(settings.routes.iter().map(route).chain(by_table).collect())
}
