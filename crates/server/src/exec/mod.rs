//! Execution: the one place where a decoded request becomes store operations and an encoded answer.
//!
//! The connection calls it with a request borrowed from its input; answers are appended to its output. Nothing here
//! reads or writes a socket, and nothing blocks. One file per protocol and group of commands.

pub(crate) mod admin;
pub(crate) mod binary;
pub(crate) mod deliver;
pub(crate) mod dump;
pub(crate) mod forget;
pub(crate) mod meta;
pub(crate) mod stats;
pub(crate) mod stats_tables;
pub(crate) mod text_get;
pub(crate) mod text_modify;
pub(crate) mod text_store;
pub(crate) mod tiered;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nuthatch_proto::ascii::reply;
use nuthatch_store::{DeleteOutcome, Hit, Miss, NEVER, Seconds, SetMode, SetOutcome};

use crate::conn::{COPIED_VALUE_BYTES_MAX, Output};
use crate::counters::{ListenerCounter, PoolCounter};
use crate::log::{Escaped, Level};
use crate::pool::Handles;
use crate::prefix::Access;
use crate::shared::{ConnectionInfo, Live, NO_TABLE, Shared};
use crate::watch::{kind, push_uri_encoded};

/// Everything a request is executed with.
pub(crate) struct Exec<'w> {
    pub(crate) shared: &'w Arc<Shared>,
    pub(crate) live: &'w Live,
    /// The same, for what has to go on with it in a later poll. No other thread counts the references to it.
    kept: &'w Arc<Live>,
    /// This worker's store handles, by the pools' numbers.
    pub(crate) handles: &'w mut Handles,
    /// This worker's number, by which it counts.
    pub(crate) worker: usize,
    pub(crate) now: Seconds,
    pub(crate) out: &'w mut Output,
    pub(crate) from: &'w ConnectionInfo,
    /// The number of the pool that keys without a route live in.
    pub(crate) own_pool: usize,
    /// Whether anyone watches, logs commands or counts prefixes: looked up once per poll, so that the hot path tests
    /// one flag.
    pub(crate) observed: bool,
    /// Whether some pool has a backend.
    pub(crate) backed: bool,
    /// Whether the client can be answered later.
    pub(crate) can_wait: bool,
}

impl<'w> Exec<'w> {
    /// What is needed to execute requests of `from` now.
    #[inline]
    pub(crate) fn new(
        shared: &'w Arc<Shared>,
        live: &'w Arc<Live>,
        handles: &'w mut Handles,
        worker: usize,
        out: &'w mut Output,
        from: &'w ConnectionInfo,
    ) -> Exec<'w> {
        let (now, observed, backed) = (shared.clock.now(), Self::is_observed(shared), live.tiers.any());
        let own_pool = own_pool(live, from);
        Exec { shared, live, kept: live, handles, worker, now, out, from, own_pool, observed, backed, can_wait: true }
    }
}

impl Exec<'_> {
    /// What is in force, kept for a request that goes on in a later poll.
    pub(crate) fn keep_live(&self) -> Arc<Live> {
        Arc::clone(self.kept)
    }

    /// What [`Exec::keep_live`] keeps.
    pub(crate) fn kept(&self) -> &Arc<Live> {
        self.kept
    }

    /// The same execution, with what was in force when the request began.
    pub(crate) fn under<'a>(&'a mut self, live: &'a Arc<Live>) -> Exec<'a> {
        let Exec { shared, worker, now, from, observed, can_wait, .. } = *self;
        let (handles, out, backed) = (&mut *self.handles, &mut *self.out, live.tiers.any());
        let own_pool = own_pool(live, from);
        Exec { shared, live, kept: live, handles, worker, now, out, from, own_pool, observed, backed, can_wait }
    }

    /// From now on keys of this connection live in the pool of the table called `name`, `@@` with it, unless a route says
    /// otherwise. The answer to `get` of it: where the table is, as the plugin answered. `None` when there is no such table.
    pub(crate) fn choose_table(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let pool = self.live.routes.table(name)?;
        let mut tables = self.live.settings.tables.iter();
        let place = tables.find(|table| name.strip_prefix(b"@@") == Some(table.rows.name.as_bytes()))?.rows.place();
        self.from.table.store(pool, Ordering::Relaxed);
        self.own_pool = pool;
        let mut answer = Vec::new();
        reply::value_header(&mut answer, name, 0, place.len(), None);
        answer.extend_from_slice(place.as_bytes());
        answer.extend_from_slice(reply::CRLF);
        answer.extend_from_slice(reply::END);
        Some(answer)
    }

    /// Whether each command must be told to watchers, the log or the prefix counters.
    pub(crate) fn is_observed(shared: &Shared) -> bool {
        shared.watchers.wants(u16::MAX) || shared.prefixes.is_enabled() || shared.log.shows(Level::Command)
    }

    /// The number of the pool `key` lives in.
    #[inline]
    pub(crate) fn pool_of(&self, key: &[u8]) -> usize {
        self.live.routes.pool_of(key, self.own_pool)
    }

    /// What sites on pool number `pool` share.
    pub(crate) fn pages_of(&self, pool: usize) -> Option<&nuthatch_pages::door::Shared> {
        self.live.pools.iter().find(|candidate| candidate.number == pool).map(|pool| &pool.pages)
    }

    /// Counts for pool number `pool`.
    #[inline]
    pub(crate) fn count(&self, pool: usize, counter: PoolCounter) {
        self.handles.counters(pool).add(self.worker, counter, 1);
    }

    /// Counts for the listener.
    #[inline]
    pub(crate) fn count_here(&self, counter: ListenerCounter) {
        self.from.listener.counters.add(self.worker, counter, 1);
    }

    /// Counts a lookup that did not touch.
    #[inline]
    pub(crate) fn count_get(&self, pool: usize, hit: bool) {
        self.count(pool, PoolCounter::GetCommands);
        if hit {
            self.count(pool, PoolCounter::GetHits);
        } else {
            self.count(pool, PoolCounter::GetMisses);
            match self.handles[pool].miss_reason() {
                Miss::Expired => self.count(pool, PoolCounter::GetExpired),
                Miss::Flushed => self.count(pool, PoolCounter::GetFlushed),
                Miss::Forgotten => self.count(pool, PoolCounter::GetForgotten),
                _ => {}
            }
        }
    }

    /// Counts a lookup that touched.
    pub(crate) fn count_touch(&self, pool: usize, hit: bool) {
        self.count(pool, PoolCounter::TouchCommands);
        self.count(pool, if hit { PoolCounter::TouchHits } else { PoolCounter::TouchMisses });
    }

    /// Counts how a storage command ended.
    pub(crate) fn count_stored(&self, pool: usize, outcome: SetOutcome, compared: bool) {
        match outcome {
            SetOutcome::TooLarge => self.count(pool, PoolCounter::StoreTooLarge),
            SetOutcome::NoMemory => self.count(pool, PoolCounter::StoreNoMemory),
            SetOutcome::Stored { .. } if compared => self.count(pool, PoolCounter::CasHits),
            SetOutcome::Exists => self.count(pool, PoolCounter::CasBadValue),
            SetOutcome::NotFound => self.count(pool, PoolCounter::CasMisses),
            _ => {}
        }
    }

    /// Tells those who observe that `key` was looked up. `value_bytes` is `None` for a miss.
    #[cold]
    pub(crate) fn observe_get(&self, pool: usize, key: &[u8], value_bytes: Option<usize>) {
        if self.shared.prefixes.is_enabled() {
            self.shared.prefixes.record(key, Access::Get { hit: value_bytes.is_some() });
        }
        if value_bytes.is_some() {
            self.shared.log.line(Level::Command, format_args!(">{} sending key {}", self.from.fd, Escaped(key)));
        }
        self.emit_lookup(pool, key, value_bytes);
    }

    fn emit_lookup(&self, pool: usize, key: &[u8], value_bytes: Option<usize>) {
        let fd = self.from.fd;
        self.shared.watchers.emit(kind::FETCHERS, |line| {
            let status = match (value_bytes, self.handles[pool].miss_reason()) {
                (Some(_), _) => "found",
                (None, Miss::Expired) => "expired",
                (None, Miss::Flushed) => "flushed",
                (None, Miss::Forgotten) => "forgotten",
                (None, _) => "not_found",
            };
            line.push_str("type=item_get key=");
            push_uri_encoded(line, key);
            let class = if value_bytes.is_some() { CLASS } else { 0 };
            let _ = write!(line, " status={status} clsid={class} cfd={fd} size={}", value_bytes.unwrap_or(0));
        });
    }

    /// Tells watchers of a lookup that is part of another command: memcached looks up what it is about to change, and
    /// reports it.
    #[cold]
    pub(crate) fn observe_lookup(&mut self, pool: usize, key: &[u8]) {
        if self.shared.watchers.wants(kind::FETCHERS) {
            let found = self.handles[pool].peek(key, self.now).map(|hit| hit.value_bytes());
            self.emit_lookup(pool, key, found);
        }
    }

    /// Tells those who observe that `key` was to be stored.
    #[cold]
    pub(crate) fn observe_store(&self, key: &[u8], stored: &StoreEvent) {
        if self.shared.prefixes.is_enabled() {
            self.shared.prefixes.record(key, Access::Set);
        }
        self.shared.watchers.emit(kind::MUTATIONS, |line| {
            let status = match stored.outcome {
                SetOutcome::Stored { .. } => "stored",
                SetOutcome::NotStored => "not_stored",
                SetOutcome::Exists => "exists",
                SetOutcome::NotFound => "not_found",
                SetOutcome::TooLarge => "too_large",
                SetOutcome::NoMemory => "no_memory",
            };
            line.push_str("type=item_store key=");
            push_uri_encoded(line, key);
            let ttl = if stored.expiry == NEVER { 0 } else { stored.expiry.saturating_sub(self.now) };
            let (command, fd, size) = (stored.command, self.from.fd, stored.value_bytes);
            let _ = write!(line, " status={status} cmd={command} ttl={ttl} clsid={CLASS} cfd={fd} size={size}");
        });
    }

    /// Tells those who observe that `key` was to be deleted. `command` is memcached's name of it.
    #[cold]
    pub(crate) fn observe_delete(&self, key: &[u8], outcome: DeleteOutcome, command: &str, value_bytes: usize) {
        if self.shared.prefixes.is_enabled() {
            self.shared.prefixes.record(key, Access::Delete);
        }
        if outcome == DeleteOutcome::Deleted {
            self.shared.watchers.emit(kind::DELETIONS, |line| {
                line.push_str("type=deleted key=");
                push_uri_encoded(line, key);
                let _ = write!(line, " cmd={command} clsid={CLASS} size={value_bytes}");
            });
        }
    }

    /// Appends `hit`'s value: copied when small, held and sent from the store's memory when large.
    #[inline]
    pub(crate) fn push_value(out: &mut Output, hit: &Hit<'_>) {
        if let Some(value) = hit.value_whole()
            && value.len() <= COPIED_VALUE_BYTES_MAX
        {
            out.bytes.extend_from_slice(value);
        } else {
            Self::push_large_value(out, hit);
        }
    }

    #[cold]
    fn push_large_value(out: &mut Output, hit: &Hit<'_>) {
        if hit.value_bytes() <= COPIED_VALUE_BYTES_MAX {
            for piece in hit.value() {
                out.bytes.extend_from_slice(piece);
            }
        } else {
            out.push_held(hit.hold());
        }
    }

    /// What is shown as an item's CAS unique: 0 when they are disabled (`-C`).
    pub(crate) fn shown_cas(live: &Live, hit: &Hit<'_>) -> u64 {
        if live.settings.cas_enabled { hit.cas() } else { 0 }
    }
}

/// The pool that keys without a route live in: the listener's, or that of the table the client has chosen, while there is such.
fn own_pool(live: &Live, from: &ConnectionInfo) -> usize {
    match from.table.load(Ordering::Relaxed) {
        NO_TABLE => from.listener.pool,
        table if live.routes.leads_to(table) => table,
        _ => from.listener.pool,
    }
}

/// memcached's slab class under which everything is reported: there are none here, so all items are in the first.
pub(crate) const CLASS: u32 = 1;

/// What a storage command did.
pub(crate) struct StoreEvent {
    /// memcached's name of the command.
    pub(crate) command: &'static str,
    pub(crate) outcome: SetOutcome,
    pub(crate) expiry: Seconds,
    pub(crate) value_bytes: usize,
}

/// The name `watch mutations` gives a storage command.
pub(crate) fn command_name(mode: SetMode, compared: bool) -> &'static str {
    match mode {
        _ if compared => "cas",
        SetMode::Set => "set",
        SetMode::Add => "add",
        SetMode::Replace => "replace",
        SetMode::Append => "append",
        SetMode::Prepend => "prepend",
    }
}

/// Seconds left until `expiry`, as the protocols show them: -1 when it never comes.
pub(crate) fn ttl_shown(expiry: Seconds, now: Seconds) -> i64 {
    if expiry == NEVER { -1 } else { i64::from(expiry) - i64::from(now) }
}

/// How a connection goes on after a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next request.
    Next,
    /// It is closed once the answers are sent.
    Close,
}
