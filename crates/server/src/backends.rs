//! The backends there are, and the tiers before them. Owned by the control thread: made at the start, changed by reloads,
//! ticked while there are any, followed where they tell of changes. No request passes here.

use std::collections::BTreeMap;
use std::sync::Arc;

use nuthatch_fleet::membership::Log;
use tokio::task::AbortHandle;

use crate::backend::Backend;
use crate::backend::fleet::Fleet;
use crate::backend::table::{Disabled, TableBackend};
use crate::log::Level;
use crate::pool::Pool;
use crate::server::StartError;
use crate::settings::{Policy, PoolSettings, Settings, TableSettings};
use crate::shared::{Books, Live, Shared};
use crate::tier::{Follower, Tier, Tiers};

/// See the module.
#[derive(Default)]
pub(crate) struct Backends {
    /// By name. Those of programs that start a server in their own process; the settings know nothing of them.
    given: BTreeMap<String, Arc<dyn Backend>>,
    /// Those of the settings that some pool has, now or in what leaves.
    fleets: BTreeMap<String, Arc<Fleet>>,
    /// Those of the settings that a pool has, as they were opened.
    tables: BTreeMap<String, Opened>,
    /// Tables that no pool has any more, until nobody uses them.
    closing: Vec<Arc<TableBackend>>,
    /// What a pool with `policy = "disabled"` has.
    disabled: Arc<Disabled>,
    followed: Vec<Followed>,
    /// Pools whose tier is another since the last tick of the clock. Workers take the change over one by one, so that what
    /// the last of them did under the older one is forgotten once more.
    changed: Vec<Arc<Pool>>,
}

/// A table that was opened, and how.
pub(crate) type Opened = (TableSettings, Arc<TableBackend>);

/// The tables behind pools of `settings` that commands go to.
fn tables_of(settings: &Settings) -> impl Iterator<Item = &TableSettings> {
    settings.tables.iter().filter(|table| {
        let is_of = |pool: &PoolSettings| pool.backend.as_ref() == Some(&table.rows.name) && pool.asks_backend();
        settings.pools.iter().any(is_of)
    })
}

/// Opens the tables that `settings` need and `before` had not, or otherwise. This waits for databases: it is done by whoever starts
/// the server or asks for a reload, and not on the control thread.
///
/// # Errors
/// When a mapping does not fit its table.
pub(crate) fn open_tables(settings: &Settings, before: Option<&Settings>) -> Result<Vec<Opened>, StartError> {
    let is_open = |table: &&TableSettings| before.is_some_and(|before| tables_of(before).any(|other| other == *table));
    tables_of(settings)
        .filter(|table| !is_open(table))
        .map(|table| match TableBackend::open(table) {
            Ok(backend) => Ok((table.clone(), backend)),
            Err(error) => Err(StartError::Table(table.rows.name.clone(), error.to_string())),
        })
        .collect()
}

/// A tier whose backend is asked to tell of changes.
struct Followed {
    tier: Arc<Tier>,
    /// `None` where the backend tells of none.
    task: Option<AbortHandle>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Backends {
    /// Those that are `given` by the program.
    pub(crate) fn new(given: BTreeMap<String, Arc<dyn Backend>>) -> Backends {
        Backends { given, ..Backends::default() }
    }

    /// Takes tables that [`open_tables`] has opened.
    pub(crate) fn take(&mut self, opened: Vec<Opened>) {
        for (settings, backend) in opened {
            let older = self.tables.insert(settings.rows.name.clone(), (settings, backend));
            self.closing.extend(older.map(|(_, backend)| backend));
        }
    }

    /// The tiers of `pools`, which are those of `settings` in their order, and of `leaving`. What is as it was `before`
    /// stays.
    pub(crate) fn tiers_of(
        &mut self,
        settings: &Settings,
        pools: &[Arc<Pool>],
        leaving: &[Arc<Pool>],
        before: &Tiers,
        books: &Books,
    ) -> Result<Tiers, StartError> {
        let mut tiers: Vec<Arc<Tier>> = leaving.iter().filter_map(|pool| before.of(pool.number).cloned()).collect();
        for (pool, wanted) in pools.iter().zip(&settings.pools) {
            let Some(name) = &wanted.backend else { continue };
            let backend = match wanted.asks_backend() {
                false if wanted.is_all(Policy::Memory) => continue,
                false => &(Arc::clone(&self.disabled) as Arc<dyn Backend>),
                true => &self.backend_of(wanted, name, settings)?,
            };
            let older = before.of(pool.number);
            tiers.push(match older {
                Some(older) if older.is_as(wanted, backend) => Arc::clone(older),
                _ => {
                    let counters = older.map_or_else(|| books.tiers.open(), |older| Arc::clone(&older.counters));
                    Arc::new(Tier::new(pool.number, wanted, Arc::clone(backend), counters))
                }
            });
        }
        Ok(Tiers::new(tiers))
    }

    /// The backend called `name`: one that was given, or a fleet or a table, which is made when the first pool asks for it.
    fn backend_of(
        &mut self,
        wanted: &PoolSettings,
        name: &str,
        settings: &Settings,
    ) -> Result<Arc<dyn Backend>, StartError> {
        if let Some(given) = self.given.get(name) {
            return Ok(Arc::clone(given));
        }
        if let Some(wanted) = settings.fleets.iter().find(|fleet| fleet.name == name) {
            if let Some(fleet) = self.fleets.get(name) {
                return Ok(Arc::clone(fleet) as _);
            }
            let fleet = Fleet::new(wanted, &settings.fleets)
                .map_err(|error| StartError::Fleet(name.to_owned(), error.to_string()))?;
            self.fleets.insert(name.to_owned(), Arc::clone(&fleet));
            return Ok(fleet as _);
        }
        let table = settings.tables.iter().find(|table| table.rows.name == name);
        let table = table.ok_or_else(|| StartError::Backend(wanted.name.clone(), name.to_owned()))?;
        if let Some((opened, backend)) = self.tables.get(name)
            && opened == table
        {
            return Ok(Arc::clone(backend) as _);
        }
        let backend =
            TableBackend::unchecked(table).map_err(|error| StartError::Table(name.to_owned(), error.to_string()))?;
        let backend = Arc::new(backend);
        self.take(vec![(table.clone(), Arc::clone(&backend))]);
        Ok(backend as _)
    }

    /// Has fleets be as `settings` say, as far as they can be: what changed, and what could not. Copies of what lives
    /// elsewhere by now are forgotten by the caller, by [`Backends::forget_of`].
    pub(crate) fn change_fleets(&mut self, settings: &Settings) -> (Vec<String>, Vec<String>) {
        let (mut changed, mut failed) = (Vec::new(), Vec::new());
        self.fleets.retain(|name, _| settings.fleets.iter().any(|fleet| fleet.name == *name));
        for wanted in &settings.fleets {
            let name = &wanted.name;
            let Some(fleet) = self.fleets.get(name) else { continue };
            match fleet.change(wanted, &settings.fleets) {
                Ok(true) => changed.push(name.clone()),
                Ok(false) => {}
                Err(error) => failed.push(format!("fleet.{name}.{error}; it stays as it was")),
            }
        }
        (changed, failed)
    }

    /// Forgets all copies of pools before these fleets.
    pub(crate) fn forget_of(fleets: &[String], live: &Live, shared: &Shared) {
        for pool in &live.pools {
            let is_of = live.settings.pools.iter().any(|settings| {
                settings.name == pool.name && settings.backend.as_ref().is_some_and(|name| fleets.contains(name))
            });
            if is_of {
                forget(pool, live, shared);
            }
        }
    }

    /// Lets go of tables that no pool of `settings` has any more. Each ends with its last request.
    pub(crate) fn close_tables(&mut self, settings: &Settings) {
        let wanted: Vec<&String> = tables_of(settings).map(|table| &table.rows.name).collect();
        let gone = self.tables.extract_if(.., |name, _| !wanted.contains(&name));
        self.closing.extend(gone.map(|(_, (_, backend))| backend));
    }

    /// To be called before `live` replaces `before`: what is no longer in it keeps nothing from now on.
    pub(crate) fn close_others(before: &Live, live: &Live) {
        for tier in before.tiers.iter().filter(|tier| !is_in(tier, live)) {
            tier.close();
        }
    }

    /// To be called once `live` has replaced `before`: pools whose tier is another forget what they hold, and the
    /// backends of new tiers are asked to tell of changes. On the control thread.
    pub(crate) fn follow(&mut self, before: &Live, live: &Live, shared: &Arc<Shared>) {
        for pool in live.all_pools() {
            let was_there = before.all_pools().iter().any(|older| older.number == pool.number);
            let same = match (before.tiers.of(pool.number), live.tiers.of(pool.number)) {
                (None, None) => true,
                (Some(older), Some(newer)) => Arc::ptr_eq(older, newer),
                _ => false,
            };
            if was_there && !same {
                forget(&pool, live, shared);
                self.changed.push(pool);
            }
        }
        self.begin_following(live, shared);
    }

    /// Has the backends of tiers that are not followed tell of changes, and no others, and fleets follow their lists.
    pub(crate) fn begin_following(&mut self, live: &Live, shared: &Arc<Shared>) {
        let weak = Arc::downgrade(shared);
        let log: Log = Arc::new(move |sentence| {
            if let Some(shared) = weak.upgrade() {
                shared.log.line(Level::Warning, format_args!("{sentence}"));
            }
        });
        for fleet in self.fleets.values() {
            fleet.follow_lists(&log);
        }
        self.followed.retain(|followed| is_in(&followed.tier, live));
        for tier in live.tiers.iter() {
            if self.followed.iter().any(|followed| Arc::ptr_eq(&followed.tier, tier)) {
                continue;
            }
            let Some(pool) = live.all_pools().into_iter().find(|pool| pool.number == tier.pool) else { continue };
            let changes = Box::new(Follower::new(tier, &pool.store, shared));
            let task = Arc::clone(&tier.backend).follow(changes).map(|task| tokio::spawn(task).abort_handle());
            self.followed.push(Followed { tier: Arc::clone(tier), task });
        }
    }

    /// Once a second.
    pub(crate) fn tidy(&mut self, live: &Live, shared: &Arc<Shared>) {
        for pool in self.changed.drain(..) {
            forget(&pool, live, shared);
        }
        // A table ends with what it has begun, which may take the time of a statement.
        for table in self.closing.extract_if(.., |table| Arc::strong_count(table) == 1) {
            let name = table.name().to_owned();
            let closing = std::thread::Builder::new().name(format!("close {name}")).spawn(move || drop(table));
            if let Err(error) = closing {
                shared.log.line(Level::Warning, format_args!("{name}: no thread to close it on: {error}"));
            }
        }
    }

    /// Ends what goes on beside requests.
    pub(crate) fn stop(&mut self) {
        self.followed.clear();
        self.changed.clear();
        self.fleets.values().for_each(|fleet| fleet.stop());
    }
}

fn is_in(tier: &Arc<Tier>, live: &Live) -> bool {
    live.tiers.of(tier.pool).is_some_and(|other| Arc::ptr_eq(other, tier))
}

fn forget(pool: &Pool, live: &Live, shared: &Shared) {
    let now = shared.clock.now();
    match live.tiers.of(pool.number) {
        Some(tier) => _ = tier.forget(&pool.store, now),
        None => pool.store.flush(now),
    }
}
