//! Counters without contention: each worker owns a cache-line-padded block per pool and per listener, adds with a
//! relaxed load and store, and whoever asks sums the blocks. Only the owning worker writes to a block; nothing here
//! locks on the hot path. The tables below are the one place a counter is named; `stats` and the reference page are
//! made from them.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::per_worker::PerWorker;

/// What a counter is called, counted in, and means.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// Its name in `stats pools`, `stats listeners` and `stats workers`; memcached's own name where it has one.
    pub name: &'static str,
    /// What one of it is.
    pub unit: &'static str,
    /// What it counts.
    pub help: &'static str,
}

/// A table of counters.
pub trait Counter: Copy {
    /// Every counter of the table, in the order of its enum.
    const TABLE: &'static [Description];
    /// Its place in the table.
    fn index(self) -> usize;
}

macro_rules! counters {
    ($(#[$doc:meta])* $table:ident { $($variant:ident $name:literal $unit:literal $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $table {
            $(#[doc = $help] $variant,)*
        }

        impl Counter for $table {
            const TABLE: &'static [Description] =
                &[$(Description { name: $name, unit: $unit, help: $help },)*];
            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

counters! {
    /// Counted per pool and worker.
    PoolCounter {
        GetCommands "cmd_get" "keys" "Keys asked for by get, gets, mg and their binary forms, found or not.";
        GetHits "get_hits" "keys" "Keys asked for and found, by commands that do not touch.";
        GetMisses "get_misses" "keys" "Keys asked for and not found.";
        GetExpired "get_expired" "keys" "Keys not found because the item had expired.";
        GetFlushed "get_flushed" "keys" "Keys not found because the item was flushed.";
        GetForgotten "get_forgotten" "keys" "Keys not found because the item's prefix or a tag of it was forgotten.";
        SetCommands "cmd_set" "commands" "Values that arrived to be stored, by any command.";
        TouchCommands "cmd_touch" "keys" "Keys touched by touch, gat, gats and mg with T, found or not.";
        TouchHits "touch_hits" "keys" "Keys touched and found.";
        TouchMisses "touch_misses" "keys" "Keys to be touched and not found.";
        DeleteHits "delete_hits" "keys" "Keys deleted.";
        DeleteMisses "delete_misses" "keys" "Keys to be deleted and not found, or held by another CAS unique.";
        IncrHits "incr_hits" "keys" "Values incremented.";
        IncrMisses "incr_misses" "keys" "Values to be incremented and not found.";
        DecrHits "decr_hits" "keys" "Values decremented.";
        DecrMisses "decr_misses" "keys" "Values to be decremented and not found.";
        CasHits "cas_hits" "keys" "Compare-and-store requests that stored.";
        CasMisses "cas_misses" "keys" "Compare-and-store requests for a key that was not there.";
        CasBadValue "cas_badval" "keys" "Compare-and-store requests whose CAS unique no longer matched.";
        StoreTooLarge "store_too_large" "commands" "Values refused because they exceed the item size limit.";
        OriginRequests "origin_requests" "requests" "Requests sent to web servers behind HTTP listeners.";
        StoreNoMemory "store_no_memory" "commands" "Values refused because no memory was to be had, and pages that passed by for the same reason.";
    }
}

counters! {
    /// Counted per pool with a backend, and worker.
    TierCounter {
        LocalHits "tier_hits" "keys" "Keys asked for and answered by a local copy, without asking the backend.";
        Fetches "tier_fetches" "keys" "Keys looked up in the backend.";
        Coalesced "tier_coalesced" "keys" "Keys asked for that waited for another client's fetch instead of one of their own.";
        Fills "tier_fills" "keys" "Fetches that left a copy.";
        KnownMisses "tier_known_misses" "keys" "Keys asked for that the backend was known to have no item of (miss_ttl).";
        Spoiled "tier_spoiled" "keys" "Fetches whose answer was not kept because the key was changed meanwhile.";
        StaleServed "tier_stale_served" "keys" "Keys answered by a copy whose life was over, because the backend was down (grace).";
        Writes "tier_writes" "commands" "Commands handed on to the backend that may change an item.";
        Failures "tier_failures" "commands" "Keys and commands that the backend refused or did not answer in time.";
    }
}

counters! {
    /// Counted per pool that a page listener serves, and worker: answers, each in one of these, by what the access log calls it.
    PageCounter {
        MemHits "page_mem_hits" "answers" "Pages served from memory, fresh (TCP_MEM_HIT).";
        ImsHits "page_ims_hits" "answers" "304 answered from memory (TCP_IMS_HIT).";
        StaleHits "page_stale_hits" "answers" "Pages served from memory, stale, while refreshed or since the client takes it (TCP_STALE_HIT).";
        Misses "page_misses" "answers" "Pages asked for at the origin and, if they may be, stored (TCP_MISS).";
        Passes "page_passes" "answers" "Requests passed on to the origin whose answer nobody else gets (TCP_MISS).";
        Collapsed "page_collapsed" "answers" "Pages that came with another client's fetch (TCP_CF_MISS).";
        ClientRefreshes "page_client_refreshes" "answers" "Pages asked for at the origin because the client wanted that (TCP_CLIENT_REFRESH_MISS).";
        RefreshedUnmodified "page_refresh_unmodified" "answers" "Stale pages that the origin said still hold (TCP_REFRESH_UNMODIFIED).";
        RefreshedModified "page_refresh_modified" "answers" "Stale pages for which the origin had another (TCP_REFRESH_MODIFIED).";
        RefreshFailed "page_refresh_fail_old" "answers" "Stale pages that were served because the origin failed (TCP_REFRESH_FAIL_OLD).";
        OnlyIfCached "page_offline_hits" "answers" "504 because only what is in memory was wanted, and it was not there (TCP_OFFLINE_HIT).";
        Denied "page_denied" "answers" "Requests refused (TCP_DENIED).";
        Tunnels "page_tunnels" "answers" "Connections handed over to another protocol (TCP_TUNNEL).";
        Others "page_others" "answers" "Requests answered here without a page, purges above all (NONE_NONE).";
    }
}

counters! {
    /// Counted per listener and worker.
    ListenerCounter {
        Opened "total_connections" "connections" "Connections handed to a worker since the start.";
        Closed "closed_connections" "connections" "Connections closed since the start.";
        BytesRead "bytes_read" "bytes" "Bytes received from clients.";
        BytesWritten "bytes_written" "bytes" "Bytes sent to clients.";
        Requests "requests" "commands" "Commands executed, well-formed or not.";
        MetaCommands "cmd_meta" "commands" "me commands (memcached counts no other meta command here).";
        FlushCommands "cmd_flush" "commands" "flush_all commands, refused ones included.";
        ForgetCommands "cmd_forget" "commands" "forget commands and reserved keys, refused ones included.";
        AuthCommands "auth_cmds" "commands" "Authentication attempts.";
        AuthErrors "auth_errors" "commands" "Authentication attempts that failed.";
        IdleKicks "idle_kicks" "connections" "Connections closed because they were idle for too long.";
        StallKicks "stall_kicks" "connections" "Connections closed because they did not read their answers.";
        Yields "conn_yields" "times" "Times a connection had had its share of requests (-R) and others, if any, got their turn.";
        InputRefused "read_buf_oom" "times" "Connections closed because the memory for requests was used up.";
        TlsSessions "ssl_new_sessions" "sessions" "TLS handshakes done, not counting those that went on with an earlier session.";
        TlsHandshakeErrors "ssl_handshake_errors" "connections" "Connections closed because their TLS handshake failed or took too long.";
        TlsProtocolErrors "ssl_proto_errors" "connections" "Connections closed because the client broke the rules of TLS after its handshake.";
        DatagramsDropped "datagrams_dropped" "datagrams" "UDP requests that were malformed or not one datagram.";
    }
}

/// Counters in one line: 128 bytes, because processors fetch cache lines of 64 in pairs.
const LINE_COUNTERS: usize = 16;

/// Some of one worker's counters. Aligned, so that no two workers write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; LINE_COUNTERS]);

/// Lines of the longest table.
const LINES: usize = 2;

/// One worker's counters of one table.
#[derive(Debug, Default)]
struct Block([Line; LINES]);

impl Block {
    #[inline]
    fn cell(&self, index: usize) -> &AtomicU64 {
        &self.0[index / LINE_COUNTERS].0[index % LINE_COUNTERS]
    }
}

/// A table's counters of every worker.
#[derive(Debug)]
pub struct Counters<C: Counter> {
    blocks: PerWorker<Block>,
    /// What the sums were at the last `stats reset`.
    baseline: Mutex<Vec<u64>>,
    table: PhantomData<fn(C)>,
}

impl<C: Counter> Default for Counters<C> {
    fn default() -> Counters<C> {
        const { assert!(C::TABLE.len() <= LINES * LINE_COUNTERS, "the table is longer than its block") };
        let baseline = Mutex::new(vec![0; C::TABLE.len()]);
        Counters { blocks: PerWorker::default(), baseline, table: PhantomData }
    }
}

impl<C: Counter> Counters<C> {
    /// Adds to the counter of thread `writer`, which must be the calling thread's own number.
    #[inline]
    pub fn add(&self, writer: usize, counter: C, n: u64) {
        let cell = self.blocks.of(writer).cell(counter.index());
        // Relaxed, and no read-modify-write: this thread is the only one that writes here.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The sum over all writers since the last reset.
    pub fn sum(&self, counter: C) -> u64 {
        self.sum_at(counter.index())
    }

    /// [`Counters::sum`] of the counter at `index` of the table.
    pub fn sum_at(&self, index: usize) -> u64 {
        let base = self.baseline()[index];
        self.raw(index).saturating_sub(base)
    }

    /// One writer's own count since the start.
    pub fn of_writer(&self, writer: usize, counter: C) -> u64 {
        self.blocks.of(writer).cell(counter.index()).load(Ordering::Relaxed)
    }

    /// Starts counting from zero again, as seen by [`Counters::sum`].
    pub fn reset(&self) {
        for (index, base) in self.baseline().iter_mut().enumerate() {
            *base = self.raw(index);
        }
    }

    /// Takes over what `other` counted, which nobody counts on any more. One thread at a time may call this, and nobody
    /// else may add here.
    fn absorb(&self, other: &Counters<C>) {
        for (writer, block) in other.blocks.iter() {
            for index in 0..C::TABLE.len() {
                let counted = block.cell(index).load(Ordering::Relaxed);
                self.blocks.of(writer).cell(index).fetch_add(counted, Ordering::Relaxed);
            }
        }
        for (base, other) in self.baseline().iter_mut().zip(other.baseline().iter()) {
            *base += other;
        }
    }

    fn baseline(&self) -> MutexGuard<'_, Vec<u64>> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raw(&self, index: usize) -> u64 {
        self.blocks.iter().map(|(_, block)| block.cell(index).load(Ordering::Relaxed)).sum()
    }
}

/// All counters of a table that there ever were: one set for each pool, or each listener. What a set counted that is no
/// longer used goes on being part of the sums.
#[derive(Debug)]
pub(crate) struct Ledger<C: Counter> {
    open: Mutex<Vec<Arc<Counters<C>>>>,
    closed: Counters<C>,
}

impl<C: Counter> Default for Ledger<C> {
    fn default() -> Ledger<C> {
        Ledger { open: Mutex::default(), closed: Counters::default() }
    }
}

impl<C: Counter> Ledger<C> {
    /// Counters that begin at zero.
    pub(crate) fn open(&self) -> Arc<Counters<C>> {
        let counters = Arc::new(Counters::default());
        self.list().push(Arc::clone(&counters));
        counters
    }

    /// Adds up and lets go of the sets that nobody but this ledger knows any more. The control thread calls it.
    pub(crate) fn settle(&self) {
        self.list().retain(|counters| {
            let is_used = Arc::strong_count(counters) > 1;
            if !is_used {
                // Sees what the last who let go of it had counted.
                fence(Ordering::Acquire);
                self.closed.absorb(counters);
            }
            is_used
        });
    }

    /// The sum of a counter over all sets since the last reset.
    pub(crate) fn sum(&self, counter: C) -> u64 {
        self.add_up(|counters| counters.sum(counter))
    }

    /// One writer's own count over all sets, since the start.
    pub(crate) fn of_writer(&self, writer: usize, counter: C) -> u64 {
        self.add_up(|counters| counters.of_writer(writer, counter))
    }

    /// Starts counting from zero again.
    pub(crate) fn reset(&self) {
        self.list().iter().for_each(|counters| counters.reset());
        self.closed.reset();
    }

    fn add_up(&self, count: impl Fn(&Counters<C>) -> u64) -> u64 {
        let list = self.list();
        list.iter().map(|counters| count(counters)).sum::<u64>() + count(&self.closed)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Counters<C>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reference page of the counters, in Markdown, made from the tables.
pub fn reference() -> String {
    let mut page = String::from(
        "# Counters\n\n\
         What `stats pools` and `stats listeners` show, each name with the pool's or listener's in front of it. `stats` \
         adds them up over all pools and listeners, under the same names where memcached has them; what its other \
         numbers mean here is in [memcached.md](memcached.md). `stats workers` shows `curr_connections`, \
         `total_connections`, `requests`, `bytes_read`, `bytes_written` and `conn_yields` of each worker since the \
         start. What pools and listeners counted that a reload removed stays in the sums; a worker too many is shown for \
         as long as it has connections. `stats fleet` shows what the workers' clients count of each server of the \
         fleets behind pools, added up, `stats tables` what is counted of each table ([rows.md](rows.md)); `stats pools` shows besides `tier_backend`, whose copies a pool holds, \
         `tier_changes` and `tier_gaps`, how often its backend told of a change and how often all copies were forgotten \
         because some may have been missed, and `tier_stream`, whether changes are told of now. See [tier.md](tier.md).\n\n\
         This page is made from the tables in `crates/server/src/counters.rs`; a test keeps it current.\n",
    );
    let tables = [
        ("Per pool", PoolCounter::TABLE),
        ("Per pool of a page listener", PageCounter::TABLE),
        ("Per pool with a backend", TierCounter::TABLE),
        ("Per listener", ListenerCounter::TABLE),
    ];
    for (title, table) in tables {
        page += &format!("\n## {title}\n\n| name | counts | what |\n|---|---|---|\n");
        for row in table {
            page += &format!("| `{}` | {} | {} |\n", row.name, row.unit, row.help);
        }
    }
    page += "\n## Per fleet behind a pool, and per server of it\n\nEach name has the fleet's before it, and another fleet's behind that \
             where it is one that the fleet names; a server's counters have its address there: `shared:10.0.0.40:11211:answers`.\n\n\
             | name | counts | what |\n|---|---|---|\n";
    for (name, unit, what) in FLEET {
        page += &format!("| `{name}` | {unit} | {what} |\n");
    }
    page
}

/// What `stats fleet` shows of a fleet, and of each of its servers.
pub const FLEET: &[(&str, &str, &str)] = &[
    ("list_changes", "times", "Another list of servers was used, of fleets whose list is kept elsewhere."),
    ("list_failures", "times", "The source of the list did not answer, or named nothing; the last list stayed."),
    ("list_flaps", "times", "A change was taken back before it was used."),
    (
        "migration_seconds_left",
        "seconds",
        "Until keys come from `migrate_from` no longer, where `migrate_for` says when: 0 once it is over.",
    ),
    ("brought_over", "items", "Items that `migrate_from` or `warm_from` had and this fleet was sent."),
    ("SERVER:state", "", "Up, Down, Probing or Returning: the worst that a worker knows it in."),
    ("SERVER:in_flight", "requests", "Requests that wait for its answer now."),
    ("SERVER:requests", "requests", "Requests sent."),
    ("SERVER:answers", "requests", "Requests answered."),
    ("SERVER:refusals", "requests", "Requests answered with an error."),
    ("SERVER:timeouts", "requests", "Requests not answered in `timeout`."),
    ("SERVER:busy", "requests", "Requests refused because too many waited."),
    ("SERVER:down", "requests", "Requests not sent because it was down."),
    ("SERVER:connects", "connections", "Connections made."),
    ("SERVER:connect_errors", "connections", "Connections that could not be made in `connect_timeout`."),
    ("SERVER:silences", "connections", "Connections given up because nothing came for `read_timeout`."),
    ("SERVER:losses", "connections", "Connections that ended while answers were due."),
    ("SERVER:garbage", "connections", "Connections given up because what came was no answer to what was asked."),
    ("SERVER:ejections", "times", "It was given up after `failure_limit` failures in a row."),
    ("SERVER:bytes_out", "bytes", "Bytes sent."),
    ("SERVER:bytes_in", "bytes", "Bytes received."),
    ("SERVER:latency_mean_us", "microseconds", "What an answer took, on average since the start."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, reference()).expect("docs/counters.md can be written");
        }
        let page = std::fs::read_to_string(&path).expect("docs/counters.md");
        assert!(
            page == reference(),
            "docs/counters.md is out of date: run UPDATE_REFERENCE=1 cargo test -p nuthatch-server counters"
        );
    }

    #[test]
    fn the_sum_is_over_all_writers_and_a_reset_starts_from_zero() {
        let counters: Counters<PoolCounter> = Counters::default();
        for writer in 0..3 {
            counters.add(writer, PoolCounter::GetHits, 5);
        }
        assert_eq!(counters.sum(PoolCounter::GetHits), 15);
        counters.reset();
        assert_eq!(counters.sum(PoolCounter::GetHits), 0);
        counters.add(1, PoolCounter::GetHits, 1);
        assert_eq!(counters.sum(PoolCounter::GetHits), 1);
        assert_eq!(counters.of_writer(1, PoolCounter::GetHits), 6);
    }

    #[test]
    fn what_was_counted_outlives_its_counters() {
        let ledger: Ledger<PoolCounter> = Ledger::default();
        let (kept, left) = (ledger.open(), ledger.open());
        kept.add(0, PoolCounter::GetHits, 1);
        left.add(17, PoolCounter::GetHits, 10);
        left.reset();
        left.add(17, PoolCounter::GetHits, 100);
        drop(left);
        for _ in 0..2 {
            assert_eq!(ledger.sum(PoolCounter::GetHits), 101);
            assert_eq!(ledger.of_writer(17, PoolCounter::GetHits), 110);
            ledger.settle();
        }
        ledger.reset();
        assert_eq!(ledger.sum(PoolCounter::GetHits), 0);
    }

    #[test]
    fn the_tables_name_each_counter_once_and_say_what_it_is() {
        for table in [PoolCounter::TABLE, PageCounter::TABLE, TierCounter::TABLE, ListenerCounter::TABLE] {
            for (at, row) in table.iter().enumerate() {
                assert!(!row.name.is_empty() && !row.unit.is_empty() && row.help.ends_with('.'), "{row:?}");
                assert!(table[..at].iter().all(|other| other.name != row.name), "{} is named twice", row.name);
            }
        }
    }
}
