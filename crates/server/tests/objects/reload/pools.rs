//! Pools that come, go and change, the routes that lead to them, and what is in flight meanwhile.

use std::io::Read;
use std::net::SocketAddr;

use nuthatch_server::settings::{PoolSettings, Settings};

use super::{nothing, pools, reload, route, scratch, tcp};
use crate::common::{Client, eventually, own_address, settings, start};

#[test]
fn pools_come_and_go_and_a_connection_keeps_the_one_it_has() {
    let (main, side) = (own_address(), own_address());
    let one = Settings { listeners: vec![tcp(main, 0)], pools: pools(&["default"]), ..settings() };
    let two = Settings {
        // The places of the pools differ, too.
        pools: pools(&["side", "default"]),
        listeners: vec![tcp(main, 1), tcp(side, 0)],
        routes: vec![route("side:", 0)],
        ..settings()
    };
    let server = start(one.clone());
    let mut client = Client::connect_to(main);
    client.ask("set side:a 0 0 4\r\nmain\r\nset b 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");

    let reloaded = reload(&server, &two);
    assert_eq!(
        reloaded.changed,
        ["routes".to_owned(), "pool.side: added, 8 MiB".to_owned(), format!("listener {side}: opened")]
    );
    let mut beside = Client::connect_to(side);
    beside.ask("set side:a 0 0 4\r\nside\r\n", "STORED\r\n");
    eventually(|| {
        client.send("get side:a b\r\n");
        client.read_until("END\r\n") == "VALUE side:a 0 4\r\nside\r\nVALUE b 0 1\r\n1\r\nEND\r\n"
    });
    assert_eq!(client.number("limit_maxbytes"), 16 << 20);
    let sets = client.number("cmd_set");

    let reloaded = reload(&server, &one);
    assert!(
        reloaded.changed.contains(&"pool.side: removed, its memory goes back when no connection uses it".to_owned()),
        "{reloaded:?}"
    );
    eventually(|| {
        client.send("get side:a\r\n");
        client.read_until("END\r\n") == "VALUE side:a 0 4\r\nmain\r\nEND\r\n"
    });
    beside.ask("get side:a\r\n", "VALUE side:a 0 4\r\nside\r\nEND\r\n");
    beside.ask("set side:c 0 0 1\r\nc\r\n", "STORED\r\n");
    assert_eq!(client.number("limit_maxbytes"), 16 << 20, "it is there for as long as it is used");

    // Asked for again while it is still there, it is the same.
    reload(&server, &two);
    eventually(|| {
        client.send("get side:c\r\n");
        client.read_until("END\r\n") == "VALUE side:c 0 1\r\nc\r\nEND\r\n"
    });
    reload(&server, &one);
    drop(beside);
    eventually(|| client.number("limit_maxbytes") == 8 << 20);
    client.send("stats pools\r\n");
    assert!(!client.read_until("END\r\n").contains("side:"));
    assert_eq!(client.number("cmd_set"), sets + 1, "what a pool counted stays in the sums");
    assert!(client.number("total_items") >= 4);

    reload(&server, &two);
    Client::connect_to(side).ask("get side:c\r\n", "END\r\n");
}

#[test]
fn a_pool_with_a_memory_file_comes_back_with_its_items() {
    let (main, file) = (own_address(), scratch("memory"));
    let one = Settings { listeners: vec![tcp(main, 0)], pools: pools(&["default"]), ..settings() };
    let mut two = Settings { pools: pools(&["default", "kept"]), routes: vec![route("kept:", 1)], ..one.clone() };
    two.pools[1].file = Some(file.clone());
    let server = start(one.clone());
    let mut client = Client::connect_to(main);
    let answered_by_file = |client: &mut Client, is_there: bool| {
        client.send("get kept:a\r\n");
        client.read_until("END\r\n").contains("from the file") == is_there
    };
    reload(&server, &two);
    eventually(|| {
        client.send("set kept:a 0 0 13\r\nfrom the file\r\n");
        client.read_until("\r\n");
        // The worker has the route once the pool has the item.
        client.stat("stats pools", "kept:items") == "1"
    });
    reload(&server, &one);
    eventually(|| answered_by_file(&mut client, false));
    // It is closed, and its memory given back; then another one is made of the file. Before that the file is in use.
    eventually(|| client.number("limit_maxbytes") == 8 << 20);
    eventually(|| server.reload(&two).is_ok());
    eventually(|| answered_by_file(&mut client, true));

    two.pools[1].file = None;
    let reloaded = reload(&server, &two);
    assert_eq!(reloaded.waiting, [format!("pool.kept.file: {} to none", file.display())]);
    assert!(answered_by_file(&mut client, true));
    drop(server);
    let _ = std::fs::remove_file(file);
}

/// A pool `side` for the keys that say so, and none.
fn with_and_without_side(place: SocketAddr) -> [Settings; 2] {
    let plain = Settings { listeners: vec![tcp(place, 0)], pools: pools(&["default"]), ..settings() };
    let routed = Settings { pools: pools(&["default", "side"]), routes: vec![route("side:", 1)], ..plain.clone() };
    [routed, plain]
}

#[test]
fn a_request_in_flight_ends_in_the_pool_it_began_in() {
    let place = own_address();
    let [routed, plain] = with_and_without_side(place);
    let server = start(routed);
    let mut witness = Client::connect_to(place);
    let value = "v".repeat(400_000);
    let mut setter = Client::connect_to(place);
    setter.send(format!("set side:big 0 0 {}\r\n{}", value.len(), &value[..100_000]));
    // The worker has taken the first part.
    eventually(|| {
        witness.send("stats conns\r\n");
        witness.read_until("END\r\n").contains("conn_nread")
    });

    // Keys of a retrieval whose answers are not taken yet.
    let mut getter = Client::connect_to(place);
    for n in 0..8 {
        witness.ask(format!("set side:{n} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    let keys: Vec<String> = (0..8).cycle().take(100).map(|n| format!("side:{n}")).collect();
    getter.send(format!("get {}\r\n", keys.join(" ")));
    eventually(|| {
        witness.send("stats conns\r\n");
        witness.read_until("END\r\n").contains("conn_mwrite")
    });

    reload(&server, &plain);
    eventually(|| {
        witness.send("get side:1\r\n");
        witness.read_until("END\r\n") == "END\r\n"
    });
    setter.send(&value[100_000..]);
    setter.ask("\r\n", "STORED\r\n");
    setter.ask("get side:big\r\n", "END\r\n");
    for key in &keys {
        getter.expect(format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len()));
    }
    getter.ask("get side:1\r\n", "END\r\nEND\r\n");
    assert!(witness.number("limit_maxbytes") >= 8 << 20);
    eventually(|| witness.number("limit_maxbytes") == 8 << 20);
}

#[test]
fn a_dump_in_flight_ends_although_its_pool_went() {
    let place = own_address();
    let [routed, plain] = with_and_without_side(place);
    let server = start(routed);
    let mut witness = Client::connect_to(place);
    let items = 40_000;
    for n in 0..items {
        witness.send(format!("set side:{}{n} 0 0 1 noreply\r\n1\r\n", "x".repeat(100)));
    }
    witness.ask("mn\r\n", "MN\r\n");
    let held = witness.number("curr_items");
    let mut dumper = Client::connect_to(place);
    dumper.send("lru_crawler mgdump all\r\n");
    eventually(|| {
        witness.send("stats conns\r\n");
        witness.read_until("END\r\n").contains("conn_mwrite")
    });
    reload(&server, &plain);
    let mut dumped = Vec::new();
    while !dumped.ends_with(b"EN\r\n") {
        let mut piece = [0; 65_536];
        let bytes = dumper.stream.read(&mut piece).expect("the dump goes on");
        assert!(bytes > 0, "closed after {} bytes", dumped.len());
        dumped.extend_from_slice(&piece[..bytes]);
    }
    assert_eq!(dumped.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"mg side:")).count() as u64, held);
    eventually(|| witness.number("limit_maxbytes") == 8 << 20);
}

#[test]
fn reserved_keys_come_and_go_for_those_who_are_connected() {
    let with = |reserved_keys| {
        let pool = PoolSettings { reserved_keys, ..PoolSettings::named("default") };
        Settings { pools: vec![pool], ..settings() }
    };
    let server = start(with(false));
    let mut client = Client::connect(&server);
    client.ask("set a:1 0 0 1\r\n1\r\ndelete nuthatch:forget:prefix:a:\r\n", "STORED\r\nNOT_FOUND\r\n");
    client.ask("get a:1\r\n", "VALUE a:1 0 1\r\n1\r\nEND\r\n");
    assert_eq!(reload(&server, &with(true)).changed, ["pool.default.reserved_keys: false to true"]);
    client.ask("delete nuthatch:forget:prefix:a:\r\nget a:1\r\n", "DELETED\r\nEND\r\n");
    assert_eq!(reload(&server, &with(false)).changed, ["pool.default.reserved_keys: true to false"]);
    client.ask("delete nuthatch:forget:prefix:a:\r\n", "NOT_FOUND\r\n");
}

#[test]
fn limits_of_a_pool_follow_and_what_cannot_is_named() {
    let with = |memory_bytes, item_bytes_max, evict| {
        let pool = PoolSettings { memory_bytes, item_bytes_max, evict, ..PoolSettings::named("default") };
        Settings { pools: vec![pool], ..settings() }
    };
    let server = start(with(8 << 20, 1 << 20, true));
    let mut client = Client::connect(&server);
    let reloaded = reload(&server, &with(16 << 20, 4000, false));
    assert_eq!(
        reloaded.changed,
        [
            "pool.default.memory: 8 MiB to 16 MiB",
            "pool.default.item_max: 1 MiB to 4000 bytes",
            "pool.default.evict: true to false"
        ]
    );
    assert_eq!(client.number("limit_maxbytes"), 16 << 20);
    assert_eq!(client.stat("stats settings", "item_size_max"), "4000");
    assert_eq!(client.stat("stats settings", "evictions"), "off");
    client.ask(format!("set a 0 0 5000\r\n{}\r\n", "x".repeat(5000)), "SERVER_ERROR object too large for cache\r\n");
    for n in 0..6000 {
        client.send(format!("set {n} 0 0 3000 noreply\r\n{}\r\n", "x".repeat(3000)));
    }
    client.ask("mn\r\n", "MN\r\n");
    assert!(client.number("store_no_memory") > 0);
    assert_eq!(client.number("evictions"), 0);

    let mut far = with(1 << 40, 4000, false);
    far.pools[0].huge_pages = true;
    far.hash_seed = Some(5);
    let reloaded = reload(&server, &far);
    assert_eq!(reloaded.changed, Vec::<String>::new());
    assert_eq!(reloaded.waiting.len(), 3);
    assert_eq!(reloaded.waiting[0], "hash_seed: None to Some(5)");
    assert!(
        reloaded.waiting[1].starts_with("pool.default.memory: 16 MiB to 1024 GiB: a memory limit of"),
        "{reloaded:?}"
    );
    assert_eq!(reloaded.waiting[2], "pool.default.huge_pages: false to true");
    assert_eq!(client.number("limit_maxbytes"), 16 << 20);
    assert_eq!(server.settings().pools[0].memory_bytes, 16 << 20);
    assert_eq!(reload(&server, &far).waiting.len(), 3, "it is named for as long as it waits");
}

#[test]
fn what_a_command_changed_stays_until_the_settings_say_something_else() {
    let with = |memory_bytes| {
        let pool = PoolSettings { memory_bytes, ..PoolSettings::named("default") };
        Settings { pools: vec![pool], ..settings() }
    };
    let server = start(with(16 << 20));
    let mut client = Client::connect(&server);
    client.ask("cache_memlimit 32\r\nstats detail on\r\n", "OK\r\nOK\r\n");
    assert_eq!(reload(&server, &with(16 << 20)), nothing());
    assert_eq!(client.number("limit_maxbytes"), 32 << 20);
    assert_eq!(client.stat("stats settings", "detail_enabled"), "yes");
    reload(&server, &with(24 << 20));
    assert_eq!(client.number("limit_maxbytes"), 24 << 20);
    let prefixed = Settings { prefix_delimiter: b'/', ..with(24 << 20) };
    reload(&server, &prefixed);
    client.ask("set a/b 0 0 1\r\n1\r\nstats detail dump\r\n", "STORED\r\nPREFIX a get 0 hit 0 set 1 del 0\r\nEND\r\n");
}
