//! The lists behind `stats`. Names and order are memcached 1.6.45's; where a number has no counterpart here, it is 0 or
//! what comes nearest, and the reference page says which.

use std::fmt::Display;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nuthatch_store::{Cursor, Stats};

use super::stats::{Sink, YesNo};
use super::{CLASS, Exec};
use crate::counters::{Counter, ListenerCounter as L, PageCounter, PoolCounter as P, TierCounter};
use crate::settings::{Address, OWN_VERSION, VERSION};
use crate::shared::{Listener, Peer, Registry};
use crate::tier::Tier;

/// `stats`.
pub(crate) fn general(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    process(exec, sink);
    commands(exec, sink);
    memory(exec, sink);
    encryption(exec, sink);
}

/// Only where something speaks TLS, as in memcached.
fn encryption(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let shared = exec.shared;
    let Some(age_seconds) = shared.certificates_age_seconds() else { return };
    if exec.live.settings.reported.tls.session_cache {
        sink.stat("ssl_new_sessions", shared.books.listeners.sum(L::TlsSessions));
    }
    sink.stat("ssl_handshake_errors", shared.books.listeners.sum(L::TlsHandshakeErrors));
    sink.stat("ssl_proto_errors", shared.books.listeners.sum(L::TlsProtocolErrors));
    sink.stat("time_since_server_cert_refresh", age_seconds);
}

fn process(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let (shared, settings) = (exec.shared, &exec.live.settings);
    let connections = &shared.connections;
    sink.stat("pid", std::process::id());
    sink.stat("uptime", shared.clock.uptime_seconds());
    sink.stat("time", shared.clock.unix_seconds());
    sink.stat("version", VERSION);
    sink.stat("libevent", "none");
    sink.stat("pointer_size", usize::BITS);
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    sink.stat("rusage_user", Seconds(usage.as_ref().map(Usage::user_time)));
    sink.stat("rusage_system", Seconds(usage.as_ref().map(Usage::system_time)));
    sink.stat("max_connections", settings.connections_max);
    sink.stat("curr_connections", connections.open());
    sink.stat("total_connections", shared.books.listeners.sum(L::Opened));
    if settings.connections_max_fast {
        sink.stat("rejected_connections", connections.rejected());
    }
    sink.stat("connection_structures", connections.open());
    sink.stat("response_obj_oom", 0);
    sink.stat("response_obj_count", 0);
    sink.stat("response_obj_bytes", 0);
    // One shared buffer per worker, whatever the number of connections.
    sink.stat("read_buf_count", settings.workers);
    sink.stat("read_buf_bytes", settings.workers * crate::worker::INPUT_BYTES + shared.buffers.used());
    sink.stat("read_buf_bytes_free", 0);
    sink.stat("read_buf_oom", shared.books.listeners.sum(L::InputRefused));
    sink.stat("reserved_fds", settings.workers * DESCRIPTORS_PER_WORKER);
}

/// An epoll descriptor, its wake-up and the signal pipe tokio opens.
const DESCRIPTORS_PER_WORKER: usize = 3;

fn commands(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let shared = exec.shared;
    let pool = |counter| shared.books.pools.sum(counter);
    let listener = |counter| shared.books.listeners.sum(counter);
    sink.stat("cmd_get", pool(P::GetCommands));
    sink.stat("cmd_set", pool(P::SetCommands));
    sink.stat("cmd_flush", listener(L::FlushCommands));
    sink.stat("cmd_touch", pool(P::TouchCommands));
    sink.stat("cmd_meta", listener(L::MetaCommands));
    sink.stat("get_hits", pool(P::GetHits));
    for counter in [
        P::GetMisses,
        P::GetExpired,
        P::GetFlushed,
        P::DeleteMisses,
        P::DeleteHits,
        P::IncrMisses,
        P::IncrHits,
        P::DecrMisses,
        P::DecrHits,
        P::CasMisses,
        P::CasHits,
        P::CasBadValue,
        P::TouchHits,
        P::TouchMisses,
        P::StoreTooLarge,
        P::StoreNoMemory,
    ] {
        sink.stat(P::TABLE[counter.index()].name, pool(counter));
    }
    sink.stat("auth_cmds", listener(L::AuthCommands));
    sink.stat("auth_errors", listener(L::AuthErrors));
    if exec.live.settings.idle_timeout_seconds > 0 {
        sink.stat("idle_kicks", listener(L::IdleKicks));
    }
    sink.stat("bytes_read", listener(L::BytesRead));
    sink.stat("bytes_written", listener(L::BytesWritten));
    sink.stat("limit_maxbytes", limit_bytes(exec));
    let connections = &shared.connections;
    sink.stat("accepting_conns", u8::from(connections.is_accepting()));
    sink.stat("listen_disabled_num", connections.pauses.load(Ordering::Relaxed));
    sink.stat("time_in_listen_disabled_us", connections.paused_micros.load(Ordering::Relaxed));
    sink.stat("threads", exec.live.settings.workers);
    sink.stat("conn_yields", listener(L::Yields));
}

fn memory(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let stats = pools_stats(exec);
    sink.stat("hash_power_level", stats.index_slots.max(1).ilog2());
    sink.stat("hash_bytes", stats.index_bytes);
    sink.stat("hash_is_expanding", 0);
    if exec.live.settings.reported.slab_reassign {
        for name in [
            "slab_reassign_rescues",
            "slab_reassign_chunk_rescues",
            "slab_reassign_inline_reclaim",
            "slab_reassign_busy_items",
            "slab_reassign_busy_deletes",
            "slab_reassign_busy_nomem",
        ] {
            sink.stat(name, 0);
        }
        sink.stat("slab_reassign_last_busy_status", "none");
        sink.stat("slab_reassign_running", 0);
        sink.stat("slabs_moved", 0);
    }
    let knobs = exec.shared.knobs().clone();
    if knobs.lru_crawler {
        sink.stat("lru_crawler_running", 0);
        sink.stat("lru_crawler_starts", knobs.lru_crawler_starts);
    }
    if exec.live.settings.reported.lru_maintainer {
        sink.stat("lru_maintainer_juggles", stats.compactions);
    }
    sink.stat("malloc_fails", 0);
    let (lines, sent, skipped) = exec.shared.watchers.totals();
    sink.stat("log_worker_dropped", 0);
    sink.stat("log_worker_written", lines);
    sink.stat("log_watcher_skipped", skipped);
    sink.stat("log_watcher_sent", sent);
    sink.stat("log_watchers", exec.shared.watchers.count());
    sink.stat("unexpected_napi_ids", 0);
    sink.stat("round_robin_fallback", 0);
    sink.stat("bytes", stats.bytes);
    sink.stat("curr_items", stats.items);
    sink.stat("total_items", stats.total_items);
    sink.stat("slab_global_page_pool", stats.segments_free);
    sink.stat("expired_unfetched", stats.expired_unfetched);
    sink.stat("evicted_unfetched", stats.evicted_unfetched);
    let has_maintainer = exec.live.settings.reported.lru_maintainer;
    if has_maintainer {
        sink.stat("evicted_active", stats.evicted_active);
    }
    sink.stat("evictions", stats.evictions);
    sink.stat("reclaimed", stats.reclaimed);
    // What memcached's crawler finds is here found without looking: expired items go in bulk.
    sink.stat("crawler_reclaimed", stats.reclaimed);
    sink.stat("crawler_items_checked", stats.reclaimed);
    sink.stat("lrutail_reflocked", 0);
    if has_maintainer {
        sink.stat("moves_to_cold", 0);
        sink.stat("moves_to_warm", 0);
        // What the log copies on because it is wanted is memcached's move within the LRU.
        sink.stat("moves_within_lru", stats.moved_items);
        sink.stat("direct_reclaims", 0);
        sink.stat("lru_bumps_dropped", 0);
    }
}

/// `stats settings`.
pub(crate) fn settings(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let settings = &exec.live.settings;
    let reported = &settings.reported;
    let knobs = exec.shared.knobs().clone();
    let own = &exec.from.listener.own_pool.store;
    let path = |path: Option<&Path>| path.map_or_else(|| "NULL".to_owned(), |path| path.display().to_string());
    sink.stat("maxbytes", limit_bytes(exec));
    sink.stat("maxconns", settings.connections_max);
    sink.stat("tcpport", reported.tcp_port);
    sink.stat("udpport", reported.udp_port);
    sink.stat("inter", reported.interface.as_deref().unwrap_or("NULL"));
    sink.stat("verbosity", exec.shared.log.level());
    sink.stat("oldest", 0);
    sink.stat("evictions", if own.evicts() { "on" } else { "off" });
    sink.stat("domain_socket", path(reported.domain_socket.as_deref()));
    sink.stat("umask", format_args!("{:o}", reported.unix_mode));
    sink.stat("shutdown_command", YesNo(settings.shutdown_enabled));
    sink.stat("growth_factor", format_args!("{:.2}", reported.growth_factor));
    sink.stat("chunk_size", reported.chunk_size);
    sink.stat("num_threads", settings.workers);
    sink.stat("num_threads_per_udp", settings.workers);
    sink.stat("stat_key_prefix", char::from(exec.shared.prefixes.delimiter()));
    sink.stat("detail_enabled", YesNo(exec.shared.prefixes.is_enabled()));
    sink.stat("reqs_per_event", settings.requests_per_event);
    sink.stat("cas_enabled", YesNo(settings.cas_enabled));
    sink.stat("tcp_backlog", settings.backlog);
    sink.stat("binding_protocol", reported.protocol.reported());
    sink.stat("auth_enabled_sasl", YesNo(settings.sasl_file.is_some()));
    let auth_file = settings.auth_file.as_deref();
    sink.stat("auth_enabled_ascii", auth_file.map_or_else(|| "no".to_owned(), |file| file.display().to_string()));
    sink.stat("item_size_max", own.item_bytes_max());
    sink.stat("maxconns_fast", YesNo(settings.connections_max_fast));
    sink.stat("hashpower_init", reported.hash_power_init);
    sink.stat("slab_reassign", YesNo(reported.slab_reassign));
    sink.stat("slab_automove", knobs.slab_automove);
    sink.stat("slab_automove_ratio", format_args!("{:.2}", knobs.slab_automove_ratio));
    sink.stat("slab_automove_window", knobs.slab_automove_window);
    sink.stat("slab_chunk_max", reported.slab_chunk_bytes_max);
    sink.stat("lru_crawler", YesNo(knobs.lru_crawler));
    sink.stat("lru_crawler_sleep", knobs.lru_crawler_sleep);
    sink.stat("lru_crawler_tocrawl", knobs.lru_crawler_tocrawl);
    sink.stat("tail_repair_time", reported.tail_repair_time);
    sink.stat("flush_enabled", YesNo(settings.flush_enabled));
    sink.stat("dump_enabled", YesNo(settings.dump_enabled));
    sink.stat("hash_algorithm", reported.hash_algorithm.name());
    sink.stat("lru_maintainer_thread", YesNo(reported.lru_maintainer));
    sink.stat("lru_segmented", YesNo(knobs.lru_segmented));
    sink.stat("hot_lru_pct", knobs.hot_lru_pct);
    sink.stat("warm_lru_pct", knobs.warm_lru_pct);
    sink.stat("hot_max_factor", format_args!("{:.2}", knobs.hot_max_factor));
    sink.stat("warm_max_factor", format_args!("{:.2}", knobs.warm_max_factor));
    sink.stat("temp_lru", YesNo(knobs.temp_lru));
    sink.stat("temporary_ttl", knobs.temporary_ttl);
    sink.stat("idle_timeout", settings.idle_timeout_seconds);
    sink.stat("watcher_logbuf_size", settings.buffers.watcher_log_bytes);
    sink.stat("worker_logbuf_size", settings.buffers.worker_log_bytes);
    sink.stat("read_buf_mem_limit", settings.buffers.read_bytes_max);
    sink.stat("track_sizes", YesNo(reported.track_sizes));
    sink.stat("inline_ascii_response", "no");
    sink.stat("slab_automove_freeratio", format_args!("{:.3}", knobs.slab_automove_free_ratio));
    let tls = &reported.tls;
    sink.stat("ssl_enabled", YesNo(tls.enabled));
    // memcached prints these two with C's word for nothing.
    let required = |path: Option<&Path>| path.map_or_else(|| "(null)".to_owned(), |path| path.display().to_string());
    sink.stat("ssl_chain_cert", required(tls.certificate.as_deref()));
    sink.stat("ssl_key", required(tls.key.as_deref()));
    sink.stat("ssl_verify_mode", tls.verify_mode);
    sink.stat("ssl_keyformat", tls.key_format);
    sink.stat("ssl_ciphers", tls.ciphers.as_deref().unwrap_or("NULL"));
    sink.stat("ssl_ca_cert", path(tls.client_ca.as_deref()));
    sink.stat("ssl_wbuf_size", tls.write_bytes);
    sink.stat("ssl_session_cache", YesNo(tls.session_cache));
    sink.stat("ssl_kernel_tls", YesNo(tls.kernel_tls));
    sink.stat("ssl_min_version", tls.min_version.reported());
    sink.stat("num_napi_ids", reported.napi_ids);
    match &exec.from.listener.own_pool.file {
        Some(path) => sink.stat("memory_file", path.display()),
        None => sink.stat("memory_file", "(null)"),
    }
    sink.stat("client_flags_size", size_of::<u32>());
    sink.stat("nuthatch_version", OWN_VERSION);
}

/// Whether there is a class: it stays when its items go, and `stats reset` does not take it from those that are there.
fn has_class(stats: &Stats) -> bool {
    stats.total_items > 0 || stats.items > 0
}

/// `stats items`: everything is in class 1, which is left out while nothing was ever stored.
pub(crate) fn items(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let stats = pools_stats(exec);
    if !has_class(&stats) {
        return;
    }
    let group = format!("items:{CLASS}");
    let maintained = exec.live.settings.reported.lru_maintainer;
    let temporary = exec.shared.knobs().temp_lru;
    let rows: [(&str, u64); 29] = [
        ("number", stats.items),
        ("number_hot", 0),
        ("number_warm", 0),
        ("number_cold", stats.items),
        ("number_temp", 0),
        ("age_hot", 0),
        ("age_warm", 0),
        ("age", 0),
        ("mem_requested", stats.bytes),
        ("evicted", stats.evictions),
        ("evicted_nonzero", 0),
        ("evicted_time", 0),
        ("outofmemory", stats.out_of_memory),
        ("tailrepairs", 0),
        ("reclaimed", stats.reclaimed),
        ("expired_unfetched", stats.expired_unfetched),
        ("evicted_unfetched", stats.evicted_unfetched),
        ("evicted_active", stats.evicted_active),
        ("crawler_reclaimed", stats.reclaimed),
        ("crawler_items_checked", stats.reclaimed),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", stats.moved_items),
        ("direct_reclaims", 0),
        ("hits_to_hot", 0),
        ("hits_to_warm", 0),
        ("hits_to_cold", exec.shared.books.pools.sum(P::GetHits)),
        ("hits_to_temp", 0),
    ];
    for (name, value) in rows {
        let shown = match name {
            "number_temp" => maintained && temporary,
            "number_hot" | "number_warm" | "number_cold" | "age_hot" | "age_warm" | "evicted_active" => maintained,
            name => {
                maintained || !name.starts_with("moves_") && !name.starts_with("hits_") && name != "direct_reclaims"
            }
        };
        if shown {
            sink.stat_of(&group, name, value);
        }
    }
}

/// `stats slabs`: the store's segments as the pages of class 1, its items as the chunks.
pub(crate) fn slabs(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let stats = pools_stats(exec);
    if has_class(&stats) {
        let chunk_bytes = stats.bytes.checked_div(stats.items).unwrap_or(0);
        let pages = stats.segments_total.saturating_sub(stats.segments_free);
        let rows: [(&str, u64); 14] = [
            ("chunk_size", chunk_bytes),
            ("chunks_per_page", (stats.segment_bytes / chunk_bytes.max(1)).max(1)),
            ("total_pages", pages),
            ("total_chunks", stats.items),
            ("used_chunks", stats.items),
            ("free_chunks", 0),
            ("free_chunks_end", 0),
            ("get_hits", exec.shared.books.pools.sum(P::GetHits)),
            ("cmd_set", exec.shared.books.pools.sum(P::SetCommands)),
            ("delete_hits", exec.shared.books.pools.sum(P::DeleteHits)),
            ("incr_hits", exec.shared.books.pools.sum(P::IncrHits)),
            ("decr_hits", exec.shared.books.pools.sum(P::DecrHits)),
            ("cas_hits", exec.shared.books.pools.sum(P::CasHits)),
            ("cas_badval", exec.shared.books.pools.sum(P::CasBadValue)),
        ];
        for (name, value) in rows {
            sink.stat_of(CLASS, name, value);
        }
        sink.stat_of(CLASS, "touch_hits", exec.shared.books.pools.sum(P::TouchHits));
    }
    sink.stat("active_slabs", u8::from(has_class(&stats)));
    sink.stat("total_malloced", stats.memory_used);
}

/// Width of a bucket of `stats sizes`, memcached's.
const SIZE_BUCKET_BYTES: usize = 32;

/// `stats sizes`: how many items of each size, rounded up to 32 bytes. Walks the whole store, and so only when
/// `-o track_sizes` allows it.
pub(crate) fn sizes(exec: &mut Exec<'_>, sink: &mut Sink<'_>) {
    if !exec.live.settings.reported.track_sizes {
        sink.stat("sizes_status", "disabled");
        return;
    }
    let mut buckets = std::collections::BTreeMap::<usize, u64>::new();
    let now = exec.now;
    for handle in exec.handles.iter_mut() {
        let mut cursor = Cursor::default();
        let mut count = |hit: &nuthatch_store::Hit<'_>| {
            *buckets.entry(hit.stored_bytes().next_multiple_of(SIZE_BUCKET_BYTES)).or_default() += 1;
        };
        while handle.scan(&mut cursor, now, &mut count) {}
    }
    for (bytes, items) in buckets {
        sink.stat(bytes.to_string(), items);
    }
}

/// `stats conns`: listeners, then connections.
pub(crate) fn connections(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let shared = exec.shared;
    for listener in &exec.live.listeners {
        sink.stat_of(listener.fd, "addr", Shown(&listener.address));
        sink.stat_of(listener.fd, "state", if is_udp(listener) { "conn_read" } else { "conn_listening" });
        sink.stat_of(listener.fd, "secs_since_last_cmd", shared.clock.uptime_seconds());
    }
    for (_, registry) in shared.registries.iter() {
        registry.for_each(|connection| {
            let fd = connection.fd;
            match connection.peer {
                Peer::Internet(address) => sink.stat_of(fd, "addr", Shown(&Address::Tcp(address))),
                // A client's end of a UNIX socket has no name.
                Peer::Unix => sink.stat_of(fd, "addr", "unix:"),
            }
            sink.stat_of(fd, "listen_addr", Shown(&connection.listener.address));
            // The one that asks is the one that is being executed.
            let is_asking = connection.id == exec.from.id;
            sink.stat_of(fd, "state", if is_asking { "conn_parse_cmd" } else { connection.activity().name() });
            let commanded_at = connection.commanded_at.load(Ordering::Relaxed);
            let silent = if is_asking { 0 } else { exec.now.saturating_sub(commanded_at) };
            sink.stat_of(fd, "secs_since_last_cmd", silent);
        });
    }
}

fn is_udp(listener: &Listener) -> bool {
    matches!(listener.address, Address::Udp(_))
}

/// An address as `stats conns` shows it.
struct Shown<'a>(&'a Address);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = |is_ipv6| if is_ipv6 { "6" } else { "" };
        match self.0 {
            Address::Tcp(address) => write!(f, "tcp{}:{address}", family(address.is_ipv6())),
            Address::Udp(address) => write!(f, "udp{}:{address}", family(address.is_ipv6())),
            Address::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `stats pools`: each pool's counters and memory.
pub(crate) fn pools(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    for pool in exec.live.all_pools() {
        let name = &pool.name;
        for (index, row) in P::TABLE.iter().enumerate() {
            sink.stat_of(name, row.name, pool.counters.sum_at(index));
        }
        if exec.live.serves_pages(&pool) {
            for (index, row) in PageCounter::TABLE.iter().enumerate() {
                sink.stat_of(name, row.name, pool.page_counters.sum_at(index));
            }
        }
        let stats = pool.stats();
        for (row, value) in [
            ("items", stats.items),
            ("bytes", stats.bytes),
            ("total_items", stats.total_items),
            ("evictions", stats.evictions),
            ("expired_unfetched", stats.expired_unfetched),
            ("evicted_unfetched", stats.evicted_unfetched),
            ("evicted_active", stats.evicted_active),
            ("reclaimed", stats.reclaimed),
            ("forgotten", stats.forgotten),
            ("forgotten_prefixes", stats.forget_prefix),
            ("forgotten_tags", stats.forget_tag),
            ("forget_marks", stats.forget_marks),
            ("forget_folded", stats.forget_folded),
            ("out_of_memory", stats.out_of_memory),
            ("memory_limit", stats.memory_limit),
            ("memory_used", stats.memory_used),
            ("index_bytes", stats.index_bytes),
            ("segment_bytes", stats.segment_bytes),
            ("segments_total", stats.segments_total),
            ("segments_free", stats.segments_free),
            ("moved_items", stats.moved_items),
            ("moved_bytes", stats.moved_bytes),
            ("compactions", stats.compactions),
        ] {
            sink.stat_of(name, row, value);
        }
        sink.stat_of(name, "item_size_max", pool.store.item_bytes_max());
        if let Some(tier) = exec.live.tiers.of(pool.number) {
            tier_of_pool(tier, sink);
        }
    }
}

/// `stats fleet`: what backends count, each once, each of their counters under their own name.
pub(crate) fn backends(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let mut told: Vec<&str> = Vec::new();
    for tier in exec.live.tiers.iter() {
        let name = tier.backend.name();
        if told.contains(&name) {
            continue;
        }
        told.push(name);
        // A name of a counter has no blanks.
        let short = short(name);
        tier.backend.counters(&mut |counter, value| sink.stat_of(short, counter, value));
    }
}

/// A backend's name without its kind.
fn short(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(_, short)| short)
}

/// `stats tables`: of each table what its pool counts of its copies, and what it counts itself.
pub(crate) fn tables(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    for tier in exec.live.tiers.iter().filter(|tier| tier.backend.is_table()) {
        let name = short(tier.backend.name());
        for (counter, shown) in [
            (TierCounter::LocalHits, "hits"),
            (TierCounter::Fills, "fills"),
            (TierCounter::Coalesced, "coalesced_misses"),
            (TierCounter::KnownMisses, "known_misses"),
        ] {
            sink.stat_of(name, shown, tier.counters.sum(counter));
        }
        tier.backend.counters(&mut |counter, value| sink.stat_of(name, counter, value));
        sink.stat_of(name, "stream", tier.stream.state());
    }
}

/// What is counted of a pool's tier.
fn tier_of_pool(tier: &Tier, sink: &mut Sink<'_>) {
    let name = &tier.pool_name;
    for (index, row) in TierCounter::TABLE.iter().enumerate() {
        sink.stat_of(name, row.name, tier.counters.sum_at(index));
    }
    sink.stat_of(name, "tier_backend", tier.backend.name());
    sink.stat_of(name, "tier_changes", tier.stream.changes.load(Ordering::Relaxed));
    sink.stat_of(name, "tier_gaps", tier.stream.gaps.load(Ordering::Relaxed));
    sink.stat_of(name, "tier_stream", tier.stream.state());
}

/// `stats listeners`: each listener's counters.
pub(crate) fn listeners(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    for listener in &exec.live.listeners {
        for (index, row) in L::TABLE.iter().enumerate() {
            sink.stat_of(&listener.name, row.name, listener.counters.sum_at(index));
        }
    }
}

/// `stats workers`: connections and traffic of each worker.
pub(crate) fn workers(exec: &Exec<'_>, sink: &mut Sink<'_>) {
    let is_there = |number, registry: &Registry| number < exec.live.settings.workers || registry.len() > 0;
    for (number, registry) in exec.shared.registries.iter().filter(|(number, registry)| is_there(*number, registry)) {
        sink.stat_of(number, "curr_connections", registry.len());
        for counter in [L::Opened, L::Requests, L::BytesRead, L::BytesWritten, L::Yields] {
            let value = exec.shared.books.listeners.of_writer(number, counter);
            sink.stat_of(number, L::TABLE[counter.index()].name, value);
        }
    }
}

/// What all pools may use together, in bytes.
fn limit_bytes(exec: &Exec<'_>) -> u64 {
    exec.live.all_pools().iter().map(|pool| pool.store.memory_limit() as u64).sum()
}

/// The stores' numbers added up, with the totals of those that are gone; the size of segments is the largest one's.
fn pools_stats(exec: &Exec<'_>) -> Stats {
    let mut sum = Stats::default();
    exec.shared.books.stores.lock().unwrap_or_else(PoisonError::into_inner).add_to(&mut sum);
    for stats in exec.live.all_pools().iter().map(|pool| pool.stats()) {
        sum.items += stats.items;
        sum.bytes += stats.bytes;
        sum.total_items += stats.total_items;
        sum.evictions += stats.evictions;
        sum.evicted_unfetched += stats.evicted_unfetched;
        sum.evicted_active += stats.evicted_active;
        sum.expired_unfetched += stats.expired_unfetched;
        sum.reclaimed += stats.reclaimed;
        sum.out_of_memory += stats.out_of_memory;
        sum.memory_used += stats.memory_used;
        sum.index_bytes += stats.index_bytes;
        sum.index_slots += stats.index_slots;
        sum.segment_bytes = sum.segment_bytes.max(stats.segment_bytes);
        sum.segments_total += stats.segments_total;
        sum.segments_free += stats.segments_free;
        sum.moved_items += stats.moved_items;
        sum.moved_bytes += stats.moved_bytes;
        sum.compactions += stats.compactions;
    }
    sum
}

/// Processor time as memcached prints it.
struct Seconds(Option<TimeVal>);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{}.{:06}", time.tv_sec(), time.tv_usec()),
            None => f.write_str("0.000000"),
        }
    }
}
