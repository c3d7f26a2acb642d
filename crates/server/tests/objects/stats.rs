//! `stats` and its sub-commands: names, order, and that the numbers are true.

use std::time::Instant;

use crate::common::{Client, settings, start};
use nuthatch_server::settings::Settings;

/// The general counters in memcached's order, as the reference gives it. Those that depend on settings are left out.
const GENERAL: &str = "pid uptime time version libevent pointer_size rusage_user rusage_system max_connections \
    curr_connections total_connections rejected_connections connection_structures response_obj_oom response_obj_count \
    response_obj_bytes read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set \
    cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses \
    incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large \
    store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns \
    listen_disabled_num time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding \
    slab_reassign_rescues slab_reassign_chunk_rescues slab_reassign_inline_reclaim slab_reassign_busy_items \
    slab_reassign_busy_deletes slab_reassign_busy_nomem slab_reassign_last_busy_status slab_reassign_running \
    slabs_moved lru_crawler_running lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped \
    log_worker_written log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids round_robin_fallback \
    bytes curr_items total_items slab_global_page_pool expired_unfetched evicted_unfetched evicted_active evictions \
    reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold moves_to_warm moves_within_lru \
    direct_reclaims lru_bumps_dropped";

fn names(client: &mut Client, command: &str) -> Vec<String> {
    client.send(format!("{command}\r\n"));
    let all = client.read_until("END\r\n");
    all.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect()
}

#[test]
fn the_general_counters_are_memcacheds_in_memcacheds_order() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let expected: Vec<_> = GENERAL.split_whitespace().map(str::to_owned).collect();
    assert_eq!(names(&mut client, "stats"), expected);
}

#[test]
fn every_command_counts_where_memcached_counts_it() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("get a none\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    client.ask("mg a\r\nmg none\r\n", "HD\r\nEN\r\n");
    client.ask("touch a 0\r\ntouch none 0\r\n", "TOUCHED\r\nNOT_FOUND\r\n");
    client.ask("gat 0 a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    client.ask("incr a 1\r\nincr none 1\r\n", "2\r\nNOT_FOUND\r\n");
    client.ask("decr a 1\r\ndecr none 1\r\n", "1\r\nNOT_FOUND\r\n");
    client.ask("cas none 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n");
    client.ask("cas a 0 0 1 1\r\nx\r\n", "EXISTS\r\n");
    client.ask("ms a 1 E77\r\n1\r\n", "HD\r\n");
    client.ask("cas a 0 0 1 77\r\nx\r\n", "STORED\r\n");
    client.ask("me a\r\n", "ME a exp=-1 la=0 cas=");
    client.read_until("\r\n");
    client.ask("set e 0 1 1\r\nx\r\n", "STORED\r\n");
    client.ask("debugtime 2\r\nget e\r\n", "OK\r\nEND\r\n");
    client.ask("delete a\r\ndelete a\r\n", "DELETED\r\nNOT_FOUND\r\n");
    client.ask("set big 0 0 3000000 noreply\r\n", "");
    client.send("x".repeat(3_000_000) + "\r\n");
    client.ask("flush_all\r\n", "OK\r\n");
    for (name, value) in [
        ("cmd_get", 5),
        ("get_hits", 2),
        ("get_misses", 3),
        ("get_expired", 1),
        ("cmd_set", 6),
        ("cmd_touch", 3),
        ("touch_hits", 2),
        ("touch_misses", 1),
        ("incr_hits", 1),
        ("incr_misses", 1),
        ("decr_hits", 1),
        ("decr_misses", 1),
        ("cas_misses", 1),
        ("cas_badval", 1),
        ("cas_hits", 1),
        ("delete_hits", 1),
        ("delete_misses", 1),
        ("cmd_meta", 1),
        ("cmd_flush", 1),
        ("store_too_large", 1),
        ("curr_connections", 1),
        ("total_connections", 1),
        ("threads", 2),
        ("max_connections", 1024),
    ] {
        assert_eq!(client.number(name), value, "{name}");
    }
    // The clock's move also sent the control thread to clear away the expired item, which it may be about to do just now.
    let until = Instant::now() + crate::common::PATIENCE;
    while client.number("curr_items") != 0 {
        assert!(Instant::now() < until, "an expired, a deleted and a flushed item are still counted");
    }
    client.ask("stats reset\r\n", "RESET\r\n");
    for name in ["cmd_get", "get_hits", "cmd_set", "total_items", "cas_hits"] {
        assert_eq!(client.number(name), 0, "{name} after a reset");
    }
}

#[test]
fn settings_items_slabs_and_connections_are_described() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    assert_eq!(client.stat("stats settings", "maxbytes"), "67108864");
    assert_eq!(client.stat("stats settings", "item_size_max"), "1048576");
    assert_eq!(client.stat("stats settings", "binding_protocol"), "auto-negotiate");
    assert_eq!(client.stat("stats settings", "cas_enabled"), "yes");
    assert_eq!(client.stat("stats settings", "nuthatch_version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(names(&mut client, "stats items"), [""; 0]);
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    assert_eq!(client.stat("stats items", "items:1:number"), "1");
    assert_eq!(client.stat("stats slabs", "1:used_chunks"), "1");
    assert_eq!(client.stat("stats slabs", "active_slabs"), "1");
    client.ask("stats reset\r\n", "RESET\r\n");
    assert_eq!(client.stat("stats items", "items:1:number"), "1", "items stay, and so does their class");
    assert_eq!(client.stat("stats slabs", "1:used_chunks"), "1");
    assert_eq!(client.stat("stats sizes", "sizes_status"), "disabled");
    client.send("stats conns\r\n");
    let conns = client.read_until("END\r\n");
    assert!(conns.contains(":state conn_listening\r\n") && conns.contains(":state conn_parse_cmd\r\n"), "{conns}");
    let local = client.stream.local_addr().expect("an address");
    assert!(conns.contains(&format!(":addr tcp:{local}\r\n")), "{conns}");
    client.ask("stats nonsense\r\n", "ERROR\r\n");
    client.ask("stats sizes_enable\r\n", "ERROR\r\n");
    client.ask("stats extstore\r\n", "END\r\n");
}

#[test]
fn sizes_are_counted_in_buckets_of_32_bytes_when_they_are_tracked() {
    let mut tracked = settings();
    tracked.reported.track_sizes = true;
    let server = start(tracked);
    let mut client = Client::connect(&server);
    for n in 0..5 {
        client.ask(format!("set k{n} 0 0 100\r\n{}\r\n", "x".repeat(100)), "STORED\r\n");
    }
    assert_eq!(client.stat("stats sizes", "128"), "5");
}

#[test]
fn prefixes_are_counted_on_demand() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("stats detail on\r\n", "OK\r\n");
    client.ask("set user:1 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("get user:1 user:2\r\n", "VALUE user:1 0 1\r\n1\r\nEND\r\n");
    client.ask("delete user:1\r\n", "DELETED\r\n");
    client.ask("stats detail off\r\nget user:1\r\n", "OK\r\nEND\r\n");
    client.ask("stats detail dump\r\n", "PREFIX user get 2 hit 1 set 1 del 1\r\nEND\r\n");
    client.ask("stats detail\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n");
}

#[test]
fn cachedump_lists_items_up_to_a_limit_and_dumps_can_be_forbidden() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 5\r\nhello\r\n", "STORED\r\n");
    client.ask("stats cachedump 1 0\r\n", "ITEM a [5 b; 0 s]\r\nEND\r\n");
    client.ask("stats cachedump 2 0\r\n", "END\r\n");
    client.ask("set b 0 0 5\r\nhello\r\n", "STORED\r\n");
    client.send("stats cachedump 1 1\r\n");
    assert_eq!(client.read_until("END\r\n").lines().count(), 2);
    client.ask("stats cachedump 64 0\r\n", "CLIENT_ERROR Illegal slab id\r\n");

    let server = start(Settings { dump_enabled: false, ..settings() });
    let mut client = Client::connect(&server);
    client.ask("stats cachedump 1 0\r\n", "CLIENT_ERROR stats cachedump not allowed\r\n");
    client.ask("stats detail dump\r\n", "CLIENT_ERROR stats detail not allowed\r\n");
    client.ask("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n");
    client.ask("lru_crawler mgdump all\r\n", "ERROR key dump not allowed\r\n");
}

#[test]
fn dumps_tell_every_key_once() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("set plain 0 100 5\r\nhello\r\n", "STORED\r\n");
    client.ask("ms c3BhIGNl 1 b\r\nx\r\n", "HD\r\n");
    client.send("lru_crawler metadump all\r\n");
    client.expect("OK\r\n");
    let dump = client.read_until("END\r\n");
    assert_eq!(dump.lines().count(), 3);
    assert!(dump.contains("key=spa%20ce exp=-1 la="), "{dump}");
    let plain = dump.lines().find(|line| line.starts_with("key=plain exp=")).expect("the plain key");
    let field = |name: &str| plain.split(&format!(" {name}=")).nth(1).map(|rest| rest.split(' ').next().unwrap_or(""));
    let time = client.number("time");
    assert_eq!(field("exp").and_then(|exp| exp.parse::<u64>().ok()), Some(time + 100));
    assert_eq!(field("fetch"), Some("no"));
    client.send("lru_crawler mgdump hash\r\n");
    let dump = client.read_until("EN\r\n");
    let mut lines: Vec<_> = dump.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["EN", "mg c3BhIGNl b", "mg plain"]);
    client.ask("mn\r\nlru_crawler metadump all\r\n", "MN\r\nERROR cannot pipeline other commands before metadump\r\n");
}
