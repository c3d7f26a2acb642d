//! Several pools in one server, chosen by listener and by key.

use crate::common::{Client, address, listener, settings, start};
use nuthatch_server::settings::{PoolSettings, RouteSettings, Settings};

/// Listener 0 serves pool `default`, listener 1 pool `other`; keys that begin with `page:` live in `pages`.
fn three_pools() -> Settings {
    Settings {
        pools: ["default", "other", "pages"].map(PoolSettings::named).to_vec(),
        listeners: vec![listener(0), listener(1)],
        routes: vec![RouteSettings { prefix: b"page:".to_vec(), pool: 2 }],
        workers: 4,
        ..settings()
    }
}

#[test]
fn a_listener_has_its_pool_and_a_prefix_has_its_own_everywhere() {
    let server = start(three_pools());
    let mut first = Client::connect(&server);
    let mut second = Client::connect_to(address(&server, 1));
    first.ask("set a 0 0 5\r\nfirst\r\n", "STORED\r\n");
    second.ask("get a\r\n", "END\r\n");
    second.ask("set a 0 0 6\r\nsecond\r\n", "STORED\r\n");
    first.ask("get a\r\n", "VALUE a 0 5\r\nfirst\r\nEND\r\n");
    first.ask("set page:1 0 0 4\r\npage\r\n", "STORED\r\n");
    second.ask("get a page:1\r\n", "VALUE a 0 6\r\nsecond\r\nVALUE page:1 0 4\r\npage\r\nEND\r\n");
    for pool in ["default", "other", "pages"] {
        assert_eq!(first.stat("stats pools", &format!("{pool}:items")), "1");
    }
    assert_eq!(first.stat("stats pools", "other:get_misses"), "1");
    assert_eq!(first.stat("stats pools", "pages:get_hits"), "1");
    assert_eq!(first.number("curr_items"), 3);
    assert_eq!(first.number("limit_maxbytes"), 3 * 64 * 1024 * 1024);
}

#[test]
fn a_flush_reaches_what_its_client_can_reach_and_nothing_else() {
    let server = start(three_pools());
    let mut first = Client::connect(&server);
    let mut second = Client::connect_to(address(&server, 1));
    first.ask("set a 0 0 1\r\n1\r\nset page:1 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
    second.ask("set a 0 0 1\r\n2\r\n", "STORED\r\n");
    first.ask("flush_all\r\n", "OK\r\n");
    first.ask("get a page:1\r\n", "END\r\n");
    second.ask("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n");
    second.send("lru_crawler mgdump all\r\n");
    assert_eq!(second.read_until("EN\r\n"), "mg a\r\nEN\r\n");
}

#[test]
fn forgetting_reaches_what_its_client_can_reach_and_counts_where_it_did() {
    let server = start(three_pools());
    let mut first = Client::connect(&server);
    let mut second = Client::connect_to(address(&server, 1));
    first.ask("set a:1 0 0 1\r\n1\r\nset page:1 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
    second.ask("set a:1 0 0 1\r\n2\r\n", "STORED\r\n");
    first.ask("forget prefix a:\r\nforget prefix page:\r\nforget tag t\r\n", "OK\r\nOK\r\nOK\r\n");
    first.ask("get a:1 page:1\r\n", "END\r\n");
    second.ask("get a:1 page:1\r\n", "VALUE a:1 0 1\r\n2\r\nEND\r\n");
    first.ask("set page:1 0 0 1\r\n1\r\n", "STORED\r\n");
    for (name, value) in [
        ("default:forgotten_prefixes", "2"),
        ("default:forgotten_tags", "1"),
        ("default:forget_marks", "3"),
        ("default:forget_folded", "0"),
        ("default:get_forgotten", "1"),
        ("pages:get_forgotten", "2"),
        ("pages:forgotten", "1"),
        ("other:forgotten_prefixes", "0"),
    ] {
        assert_eq!(first.stat("stats pools", name), value, "{name}");
    }
    let name = address(&server, 0);
    assert_eq!(first.stat("stats listeners", &format!("{name}:cmd_forget")), "3");
    // What was given back without being asked for shows in time.
    first.ask("debugtime 300\r\n", "OK\r\n");
    crate::common::eventually(|| first.stat("stats pools", "default:items") == "0");
    assert_eq!(first.stat("stats pools", "default:forgotten"), "1");
    crate::common::eventually(|| first.stat("stats pools", "default:forget_marks") == "0");
}

#[test]
fn connections_are_spread_evenly_over_workers() {
    let server = start(three_pools());
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    for worker in 0..4 {
        assert_eq!(clients[0].stat("stats workers", &format!("{worker}:curr_connections")), "10");
    }
    let name = address(&server, 0);
    assert_eq!(clients[0].stat("stats listeners", &format!("{name}:total_connections")), "40");
}

#[test]
fn one_retrieval_asks_several_pools_and_answers_in_the_order_asked() {
    let server = start(three_pools());
    let mut client = Client::connect(&server);
    let (mut get, mut expected) = (String::from("get"), String::new());
    // More keys than are looked up together, and more bytes than the output takes before it is sent.
    for n in 0..100 {
        let key = format!("{}{n}", ["page:", "row:", ""][n % 3]);
        let value = n.to_string().repeat(if n % 7 == 0 { 20_000 } else { 3_000 });
        get += &format!(" {key}");
        if n % 4 != 0 {
            client.ask(format!("set {key} {n} 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
            expected += &format!("VALUE {key} {n} {}\r\n{value}\r\n", value.len());
        }
    }
    expected += "END\r\n";
    let before = client.number("cmd_get");
    client.ask(format!("{get}\r\n"), &expected);
    assert_eq!(client.number("cmd_get") - before, 100);
    assert_eq!((client.number("get_hits"), client.number("get_misses")), (75, 25));
}
