//! `set`, `add`, `replace`, `append`, `prepend`, `cas`: with the value at hand, or with a value that will be read
//! straight into the store.

use nuthatch_proto::WireError;
use nuthatch_proto::ascii::{Store, Verb, reply};
use nuthatch_store::{Reservation, Seconds, SetMode, SetOptions, SetOutcome, Tags};

use super::{Exec, StoreEvent, command_name};
use crate::counters::PoolCounter;

/// What the store is to do for one storage command of any protocol, and where.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) pool: usize,
    pub(crate) options: SetOptions,
    /// Hardly any item has some.
    pub(crate) tags: Option<Box<Tags>>,
    /// Whether the client gave a CAS unique to compare, whatever became of it.
    pub(crate) compares: bool,
    /// With CAS disabled an item has no unique to compare; then a comparison is "is it there".
    pub(crate) absent_is_not_found: bool,
}

impl Plan {
    /// A plan that stores `mode`, comparing with `compare`.
    pub(crate) fn new(exec: &Exec<'_>, key: &[u8], mode: SetMode, compare: Option<u64>) -> Plan {
        let options = SetOptions { mode, compare, ..SetOptions::default() };
        let mut plan = Plan {
            pool: exec.pool_of(key),
            options,
            tags: None,
            compares: compare.is_some(),
            absent_is_not_found: false,
        };
        if plan.compares && !exec.live.settings.cas_enabled {
            plan.options.compare = None;
            if mode == SetMode::Set {
                plan.options.mode = SetMode::Replace;
                plan.absent_is_not_found = true;
            }
        }
        plan
    }

    /// The name `watch` gives the command.
    fn command(&self) -> &'static str {
        let mode = self.options.mode;
        command_name(mode, self.compares && matches!(mode, SetMode::Set | SetMode::Replace))
    }

    fn corrected(&self, outcome: SetOutcome) -> SetOutcome {
        match outcome {
            SetOutcome::NotStored if self.absent_is_not_found => SetOutcome::NotFound,
            outcome => outcome,
        }
    }
}

/// Stores a value that is at hand.
#[inline]
pub(crate) fn store_whole(exec: &mut Exec<'_>, key: &[u8], value: &[u8], plan: &Plan) -> SetOutcome {
    if exec.observed {
        exec.observe_lookup(plan.pool, key);
    }
    let handle = &mut exec.handles[plan.pool];
    let outcome = match &plan.tags {
        None => handle.set(key, value, &plan.options, exec.now),
        Some(tags) => handle.set_tagged(key, value, &plan.options, tags, exec.now),
    };
    concluded(exec, key, value.len(), plan, outcome)
}

/// Makes room for a value that has still to arrive. The error is final; the value must then be swallowed.
pub(crate) fn reserve(
    exec: &mut Exec<'_>,
    key: &[u8],
    value_bytes: usize,
    plan: &Plan,
) -> Result<Reservation, SetOutcome> {
    let (flags, expiry) = (plan.options.flags, plan.options.expiry);
    let tags = plan.tags.as_deref().unwrap_or(&Tags::NONE);
    let reserved = exec.handles[plan.pool].reserve_tagged(key, value_bytes, flags, expiry, tags, exec.now);
    reserved.map_err(|outcome| {
        if plan.options.mode == SetMode::Set {
            // No stale value may stay behind a set that was refused.
            exec.handles[plan.pool].refuse_set(key, exec.now);
        }
        concluded(exec, key, value_bytes, plan, outcome)
    })
}

/// Stores a value that was read into `reservation`.
pub(crate) fn commit(
    exec: &mut Exec<'_>,
    key: &[u8],
    reservation: Reservation,
    plan: &Plan,
    bytes: usize,
) -> SetOutcome {
    if exec.observed {
        exec.observe_lookup(plan.pool, key);
    }
    let outcome = exec.handles[plan.pool].commit(reservation, &plan.options, exec.now);
    concluded(exec, key, bytes, plan, outcome)
}

#[inline]
fn concluded(exec: &Exec<'_>, key: &[u8], value_bytes: usize, plan: &Plan, outcome: SetOutcome) -> SetOutcome {
    let outcome = plan.corrected(outcome);
    if !matches!(outcome, SetOutcome::TooLarge | SetOutcome::NoMemory) {
        exec.count(plan.pool, PoolCounter::SetCommands);
    }
    exec.count_stored(plan.pool, outcome, plan.compares);
    if exec.observed {
        let expiry: Seconds = plan.options.expiry;
        exec.observe_store(key, &StoreEvent { command: plan.command(), outcome, expiry, value_bytes });
    }
    outcome
}

/// How a text command stores, and what it compares.
#[inline]
pub(crate) fn mode(store: &Store<'_>) -> (SetMode, Option<u64>) {
    match store.verb {
        Verb::Set => (SetMode::Set, None),
        Verb::Add => (SetMode::Add, None),
        Verb::Replace => (SetMode::Replace, None),
        Verb::Append => (SetMode::Append, None),
        Verb::Prepend => (SetMode::Prepend, None),
        Verb::Cas => (SetMode::Set, Some(store.cas)),
    }
}

/// The plan of a text command.
#[inline]
pub(crate) fn plan(exec: &Exec<'_>, store: &Store<'_>) -> Plan {
    let (mode, compare) = mode(store);
    let mut plan = Plan::new(exec, store.key, mode, compare);
    plan.options.flags = store.flags;
    plan.options.expiry = exec.shared.clock.expiry(i64::from(store.exptime));
    plan
}

/// The answer to a text storage command.
pub(crate) fn answer(outcome: SetOutcome) -> &'static [u8] {
    match outcome {
        SetOutcome::Stored { .. } => reply::STORED,
        SetOutcome::NotStored => reply::NOT_STORED,
        SetOutcome::Exists => reply::EXISTS,
        SetOutcome::NotFound => reply::NOT_FOUND,
        SetOutcome::NoMemory => WireError::OutOfMemoryStoring.as_wire(),
        SetOutcome::TooLarge => WireError::TooLarge.as_wire(),
    }
}
