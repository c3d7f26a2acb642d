//! A pool with a backend, over the wire, with a backend that does what the test says: order, sharing, refusals, memory.

use std::sync::Arc;

use crate::common::binary::frame;
use crate::common::scripted::Scripted;
use crate::common::{Client, address, eventually, listener, settings, start};
use crate::count;
use nuthatch_server::backend::{Backend, Forget};
use nuthatch_server::settings::{PoolSettings, RouteSettings, Settings};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::conversation::{Scope, hold};
use nuthatch_testkit::spawn;

/// Listener 0 serves a pool behind which `scripted` stands, listener 1 one without; `plain:` keys have none either.
fn backed(ttl_max_seconds: u32, grace_seconds: u32) -> Settings {
    let tiered = PoolSettings {
        backend: Some("scripted".to_owned()),
        ttl_max_seconds,
        grace_seconds,
        ..PoolSettings::named("tiered")
    };
    Settings {
        pools: vec![tiered, PoolSettings::named("plain")],
        listeners: vec![listener(0), listener(1)],
        routes: vec![RouteSettings { prefix: b"plain:".to_vec(), pool: 1 }],
        ..settings()
    }
}

fn start_backed(settings: Settings) -> (Running, Arc<Scripted>) {
    let scripted = Scripted::new();
    let backend: Arc<dyn Backend> = Arc::clone(&scripted) as _;
    let prepared = Server::prepare(settings).expect("settings are good").with_backend("scripted", backend);
    (prepared.start().expect("the server starts"), scripted)
}

#[test]
fn conversations_in_three_protocols_go_as_if_the_backend_were_asked_directly() {
    let (server, _) = start_backed(backed(0, 0));
    for seed in 0..4 {
        let at = spawn::Address::Tcp(address(&server, 0).port());
        let mut client = Client::connect(&server);
        client.ask("flush_all\r\n", "OK\r\n");
        hold(&at, seed, Scope::of_ours(3000));
    }
}

#[test]
fn a_key_that_is_read_again_is_asked_for_once_and_a_write_shows_at_once() {
    let (server, backend) = start_backed(backed(5, 0));
    let (mut one, mut other) = (Client::connect(&server), Client::connect(&server));
    one.ask("get k\r\n", "END\r\n");
    backend.aside("set k 7 0 5\r\nfirst\r\n");
    for client in [&mut one, &mut other] {
        client.ask("get k\r\n", "VALUE k 7 5\r\nfirst\r\nEND\r\n");
        client.ask("mg k v f q Oa k\r\n", "VA 5 f7 Oa kk\r\nfirst\r\n");
    }
    assert_eq!(backend.gets("k"), 2, "a miss, which is not kept, and a hit, which is");
    one.ask("set k 8 0 6\r\nsecond\r\n", "STORED\r\n");
    other.ask("get k\r\n", "VALUE k 8 6\r\nsecond\r\nEND\r\n");
    assert_eq!(backend.gets("k"), 2, "what was stored is known");
    assert_eq!(backend.aside("get k\r\n"), "VALUE k 8 6\r\nsecond\r\nEND\r\n");
    other.ask("append k 0 0 1\r\n!\r\n", "STORED\r\n");
    one.ask("get k\r\n", "VALUE k 8 7\r\nsecond!\r\nEND\r\n");
    one.ask("delete k\r\n", "DELETED\r\n");
    other.ask("get k\r\n", "END\r\n");
    assert_eq!(count(&mut one, "tier_hits"), 4);
    assert_eq!(count(&mut one, "tier_fetches"), 4);
}

#[test]
fn a_copy_lives_for_ttl_max_and_not_longer_than_its_item() {
    let (server, backend) = start_backed(backed(5, 0));
    let mut client = Client::connect(&server);
    client.ask("debugtime p\r\n", "OK\r\n");
    backend.aside("set long 0 0 1\r\n1\r\nset short 0 3 1\r\n1\r\nset last 0 1 1\r\n1\r\n");
    client.ask(
        "get long short last\r\n",
        "VALUE long 0 1\r\n1\r\nVALUE short 0 1\r\n1\r\nVALUE last 0 1\r\n1\r\nEND\r\n",
    );
    backend.aside("set long 0 0 1\r\n2\r\nset short 0 3 1\r\n2\r\nset last 0 1 1\r\n2\r\n");
    client.ask("get last\r\n", "VALUE last 0 1\r\n2\r\nEND\r\n");
    client.ask("debugtime 1\r\n", "OK\r\n");
    client.ask("get short\r\n", "VALUE short 0 1\r\n1\r\nEND\r\n");
    client.ask("debugtime 1\r\n", "OK\r\n");
    client.ask("get short\r\n", "VALUE short 0 1\r\n2\r\nEND\r\n");
    client.ask("debugtime 2\r\n", "OK\r\n");
    client.ask("get long\r\n", "VALUE long 0 1\r\n1\r\nEND\r\n");
    client.ask("debugtime 1\r\n", "OK\r\n");
    client.ask("get long\r\n", "VALUE long 0 1\r\n2\r\nEND\r\n");
}

#[test]
fn a_thousand_clients_that_miss_one_key_cost_one_fetch() {
    let (server, backend) = start_backed(Settings { connections_max: 1100, workers: 3, ..backed(5, 0) });
    let mut clients: Vec<_> = (0..1000).map(|_| Client::connect(&server)).collect();
    backend.aside("set hot 0 0 5\r\nvalue\r\n");
    backend.hold();
    for client in &mut clients {
        client.send("get hot\r\n");
    }
    let mut observer = Client::connect_to(address(&server, 1));
    eventually(|| count(&mut observer, "tier_coalesced") == 999);
    backend.release();
    for client in &mut clients {
        client.expect("VALUE hot 0 5\r\nvalue\r\nEND\r\n");
    }
    assert_eq!(backend.gets("hot"), 1);
    clients[0].ask("get hot\r\n", "VALUE hot 0 5\r\nvalue\r\nEND\r\n");
    assert_eq!(backend.gets("hot"), 1, "it is kept");
}

#[test]
fn a_fetch_that_a_write_has_passed_is_not_kept_and_those_who_wait_see_the_newer_copy() {
    let (server, backend) = start_backed(backed(5, 0));
    let (mut reader, mut writer) = (Client::connect(&server), Client::connect(&server));
    backend.aside("set k 0 0 3\r\nold\r\n");
    backend.hold();
    reader.send("get k\r\n");
    eventually(|| backend.kept_back() == 1);
    writer.send("set k 0 0 3\r\nnew\r\n");
    eventually(|| backend.kept_back() == 2);
    backend.release_one(true);
    writer.expect("STORED\r\n");
    writer.ask("get k\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n");
    backend.release_one(false);
    reader.expect("VALUE k 0 3\r\nnew\r\nEND\r\n");
    reader.ask("get k\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n");
    backend.release();
    assert_eq!(count(&mut reader, "tier_spoiled"), 1);
}

#[test]
fn a_write_leaves_no_copy_that_is_older_than_what_was_read_meanwhile() {
    let (server, backend) = start_backed(backed(5, 0));
    let (mut reader, mut writer) = (Client::connect(&server), Client::connect(&server));
    backend.hold();
    writer.send("set k 0 0 3\r\nour\r\n");
    eventually(|| backend.kept_back() == 1);
    // Another client's, of which nothing has been heard yet.
    backend.aside("set k 0 0 6\r\ntheirs\r\n");
    reader.send("get k\r\n");
    eventually(|| backend.kept_back() == 2);
    backend.release_one(true);
    reader.expect("VALUE k 0 6\r\ntheirs\r\nEND\r\n");
    backend.release();
    writer.expect("STORED\r\n");
    reader.ask("get k\r\n", "VALUE k 0 6\r\ntheirs\r\nEND\r\n");
}

#[test]
fn two_writers_at_once_leave_no_copy_and_the_backend_decides() {
    let (server, backend) = start_backed(backed(5, 0));
    let (mut one, mut other) = (Client::connect(&server), Client::connect(&server));
    backend.hold();
    one.send("set k 0 0 1\r\n1\r\n");
    eventually(|| backend.kept_back() == 1);
    other.send("set k 0 0 1\r\n2\r\n");
    eventually(|| backend.kept_back() == 2);
    backend.release_one(true);
    other.expect("STORED\r\n");
    backend.release();
    one.expect("STORED\r\n");
    for client in [&mut one, &mut other] {
        client.ask("get k\r\n", "VALUE k 0 1\r\n2\r\nEND\r\n");
    }
    assert_eq!(backend.gets("k"), 1);
}

#[test]
fn changes_made_by_others_drop_copies_and_a_gap_drops_all() {
    let (server, backend) = start_backed(backed(500, 0));
    let mut client = Client::connect(&server);
    eventually(|| backend.is_followed());
    backend.tell(|changes| changes.following(true, ""));
    for value in ["1", "2", "3"] {
        backend.aside(&format!("set a 0 0 1\r\n{value}\r\nset b 0 0 1\r\n{value}\r\n"));
        match value {
            "1" => {}
            "2" => backend.tell(|changes| changes.changed(b"a")),
            _ => backend.tell(|changes| changes.gap()),
        }
        let b = if value == "2" { "1" } else { value };
        client.ask("get a b\r\n", format!("VALUE a 0 1\r\n{value}\r\nVALUE b 0 1\r\n{b}\r\nEND\r\n"));
    }
    assert_eq!(client.stat("stats pools", "tiered:tier_stream"), "following");
    assert_eq!((count(&mut client, "tier_changes"), count(&mut client, "tier_gaps")), (1, 1));
    // News of a change passes a fetch as a write does.
    backend.aside("delete a\r\nset a 0 0 1\r\n4\r\n");
    backend.tell(|changes| changes.changed(b"a"));
    backend.hold();
    client.send("get a\r\n");
    eventually(|| backend.kept_back() == 1);
    backend.aside("set a 0 0 1\r\n5\r\n");
    backend.tell(|changes| changes.changed(b"a"));
    backend.release();
    client.expect("VALUE a 0 1\r\n4\r\nEND\r\n");
    client.ask("get a\r\n", "VALUE a 0 1\r\n5\r\nEND\r\n");
}

#[test]
fn requests_of_one_connection_go_on_together_and_are_answered_in_order() {
    let (server, backend) = start_backed(backed(5, 0));
    let mut client = Client::connect(&server);
    for key in ["a", "b", "c"] {
        backend.aside(&format!("set {key} 0 0 1\r\n{key}\r\n"));
    }
    backend.hold();
    client.send("get a\r\nset plain:x 0 0 1\r\nx\r\n");
    eventually(|| backend.kept_back() == 1);
    backend.release();
    client.expect("VALUE a 0 1\r\na\r\nEND\r\nSTORED\r\n");
    backend.hold();
    client.send("get b\r\nget a\r\nset d 0 0 1\r\nd\r\nmg c v\r\ndelete c\r\nversion\r\n");
    // `a` is here, and the deletion of `c` waits for `c` to be read.
    eventually(|| backend.kept_back() == 3);
    backend.release_one(true);
    backend.release_one(true);
    backend.release_one(true);
    client.expect("VALUE b 0 1\r\nb\r\nEND\r\nVALUE a 0 1\r\na\r\nEND\r\nSTORED\r\nVA 1\r\nc\r\n");
    eventually(|| backend.kept_back() == 1);
    backend.release();
    client.expect("DELETED\r\nVERSION ");
    client.read_until("\r\n");
}

#[test]
fn a_pipeline_is_bounded_and_all_of_it_is_answered() {
    let (server, backend) = start_backed(backed(0, 0));
    let mut client = Client::connect(&server);
    backend.hold();
    let (mut requests, mut answers) = (String::new(), String::new());
    for number in 0..500 {
        requests += &format!("set k{number} 0 0 4\r\n{number:04}\r\n");
        answers += "STORED\r\n";
    }
    client.send(&requests);
    eventually(|| backend.kept_back() == 64);
    let mut observer = Client::connect_to(address(&server, 1));
    observer.send("stats conns\r\n");
    assert!(observer.read_until("END\r\n").contains("conn_io_queue"));
    assert_eq!(backend.kept_back(), 64, "no more is begun");
    backend.release();
    client.expect(&answers);
    let keys: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    let values: String = (0..500).map(|number| format!("VALUE k{number} 0 4\r\n{number:04}\r\n")).collect();
    client.ask(format!("get {}\r\n", keys.join(" ")), format!("{values}END\r\n"));
}

#[test]
fn large_values_go_both_ways_and_too_large_ones_take_the_old_along() {
    for ttl_max in [0, 5] {
        let (server, backend) = start_backed(backed(ttl_max, 0));
        let mut client = Client::connect(&server);
        for bytes in [10_000, 200_000, 900_000] {
            let value: String = (0..bytes).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
            client.ask(
                format!("set k 3 0 {bytes}\r\n{value}\r\nget k\r\n"),
                format!("STORED\r\nVALUE k 3 {bytes}\r\n{value}\r\nEND\r\n"),
            );
            client.ask("get k\r\n", format!("VALUE k 3 {bytes}\r\n{value}\r\nEND\r\n"));
            client.ask(format!("ms k {bytes} q\r\n{value}\r\nmn\r\n"), "MN\r\n");
            let mut stored = frame(1, "bin").extras([0; 8]).value(&value).bytes();
            stored.extend(frame(0, "bin").bytes());
            let mut binary = Client::connect(&server);
            binary.send(stored);
            assert_eq!(binary.answer().status, 0);
            assert!(binary.answer().value == value.as_bytes());
        }
        client.ask(format!("set k 0 0 20000\r\n{}??get k2\r\n", "x".repeat(20_000)), "CLIENT_ERROR bad data chunk\r\n");
        client.read_until("\r\n");
        client.ask("mn\r\n", "MN\r\n");
        let large = "x".repeat(1_100_000);
        client.ask(
            format!("add k 0 0 1100000\r\n{large}\r\nget bin2\r\n"),
            "SERVER_ERROR object too large for cache\r\nEND\r\n",
        );
        assert!(backend.aside("mg k s\r\n").starts_with("HD"));
        client.ask(
            format!("set k 0 0 1100000\r\n{large}\r\nget k\r\n"),
            "SERVER_ERROR object too large for cache\r\nEND\r\n",
        );
    }
}

#[test]
fn a_backend_that_is_down_is_said_to_be_and_copies_are_served_within_grace_only() {
    let (server, backend) = start_backed(backed(5, 60));
    let mut client = Client::connect(&server);
    client.ask("debugtime p\r\n", "OK\r\n");
    backend.aside("set k 0 0 1\r\n1\r\nset gone 0 0 1\r\n1\r\n");
    client.ask("get k gone\r\n", "VALUE k 0 1\r\n1\r\nVALUE gone 0 1\r\n1\r\nEND\r\n");
    backend.aside("delete gone\r\n");
    client.ask("debugtime 5\r\n", "OK\r\n");
    client.ask("get gone\r\n", "END\r\n");
    backend.set_down(Some("scripted: 10.0.0.1 does not answer"));
    client.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    client.ask("get gone\r\n", "SERVER_ERROR scripted: 10.0.0.1 does not answer\r\n");
    client.ask("get k other\r\n", "VALUE k 0 1\r\n1\r\nSERVER_ERROR scripted: 10.0.0.1 does not answer\r\n");
    client.ask("mg other v\r\n", "SERVER_ERROR scripted: 10.0.0.1 does not answer\r\n");
    client.ask("set a 0 0 1 noreply\r\n1\r\nincr a 1\r\n", "SERVER_ERROR scripted: 10.0.0.1 does not answer\r\n");
    let mut binary = Client::connect(&server);
    binary.send(frame(0, "other").bytes());
    let answer = binary.answer();
    assert_eq!((answer.status, &answer.value[..]), (0x86, &b"scripted: 10.0.0.1 does not answer"[..]));
    client.ask("debugtime 60\r\n", "OK\r\n");
    client.ask("get k\r\n", "SERVER_ERROR scripted: 10.0.0.1 does not answer\r\n");
    backend.set_down(None);
    client.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    assert_eq!(count(&mut client, "tier_stale_served"), 2);
}

#[test]
fn who_wins_the_right_to_recache_is_the_backends_to_say() {
    let (server, backend) = start_backed(backed(5, 0));
    let (mut one, mut other) = (Client::connect(&server), Client::connect(&server));
    one.ask("mg k v N30\r\n", "VA 0 W\r\n\r\n");
    other.ask("mg k v N30\r\n", "VA 0 Z\r\n\r\n");
    one.ask("ms k 5 T60\r\nvalue\r\n", "HD\r\n");
    other.ask("get k\r\nmg k v t\r\n", "VALUE k 0 5\r\nvalue\r\nEND\r\nVA 5 t60\r\nvalue\r\n");
    one.ask("md k I T30 q Ox\r\nmd k I T30 Ox k\r\n", "HD Ox kk\r\n");
    // A get that cannot be told of it takes the win from nobody, and only one of those who can is told.
    other.ask("get k\r\nget k\r\n", "VALUE k 0 5\r\nvalue\r\nEND\r\nVALUE k 0 5\r\nvalue\r\nEND\r\n");
    other.ask("mg k v\r\n", "VA 5 X W\r\nvalue\r\n");
    one.ask("mg k v\r\n", "VA 5 Z X\r\nvalue\r\n");
    one.ask("mg a2V5 v b k O1\r\nma a2V5 b N0 J5 v k t\r\n", "EN ka2V5 b O1\r\nVA 1 ka2V5 b t-1\r\n5\r\n");
    assert_eq!(backend.aside("get key\r\n"), "VALUE key 0 1\r\n5\r\nEND\r\n");
    one.ask("me nothing\r\n", "EN\r\n");
    one.send("me key\r\n");
    assert!(one.read_until("\r\n").starts_with("ME key exp=-1 la="));
}

#[test]
fn a_flush_reaches_the_backend_and_every_copy() {
    let (server, backend) = start_backed(backed(500, 0));
    let mut client = Client::connect(&server);
    client.ask(
        "set a 0 0 1\r\n1\r\nset plain:a 0 0 1\r\n1\r\nget a plain:a\r\n",
        "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nVALUE plain:a 0 1\r\n1\r\nEND\r\n",
    );
    client.ask("flush_all\r\nget a plain:a\r\n", "OK\r\nEND\r\n");
    assert_eq!(backend.aside("get a\r\n"), "END\r\n");
    let (server, _backend) = start_backed(Settings { flush_enabled: false, ..backed(5, 0) });
    Client::connect(&server).ask("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
}

#[test]
fn what_forgets_reaches_the_backend_and_no_fetch_that_it_passed_is_kept() {
    let (server, backend) = start_backed(backed(500, 0));
    let mut client = Client::connect(&server);
    for forget in ["forget prefix a:", "forget tag t"] {
        backend.aside("ms a:1 1 Lt\r\n1\r\nms a:2 1 Lt\r\n2\r\n");
        client.ask("get a:1\r\n", "VALUE a:1 0 1\r\n1\r\nEND\r\n");
        backend.hold();
        let mut reader = Client::connect(&server);
        reader.send("get a:2\r\n");
        eventually(|| backend.kept_back() == 1);
        client.send(format!("{forget}\r\nget a:1 a:2\r\n"));
        eventually(|| backend.kept_back() == 2);
        backend.release_one(false);
        reader.expect("VALUE a:2 0 1\r\n2\r\nEND\r\n");
        backend.release();
        client.expect("OK\r\nEND\r\n");
    }
    client
        .ask("forget prefix a\r\n", "CLIENT_ERROR a prefix ends with the delimiter, the fourth one at the latest\r\n");
    client.ask("forget prefix a noreply\r\nforget tag t noreply\r\nmn\r\n", "MN\r\n");
    backend.set_down(Some("gone"));
    client.ask("forget tag t\r\n", "SERVER_ERROR gone\r\n");
}

#[test]
fn what_others_forget_takes_the_copies_that_it_may_name_and_no_others() {
    let (server, backend) = start_backed(backed(500, 0));
    let mut client = Client::connect(&server);
    backend.aside("set a:1 0 0 1\r\n1\r\nset b:1 0 0 1\r\n1\r\n");
    let read = |client: &mut Client| {
        client.ask("get a:1 b:1\r\n", "VALUE a:1 0 1\r\n1\r\nVALUE b:1 0 1\r\n1\r\nEND\r\n");
        (backend.gets("a:1"), backend.gets("b:1"))
    };
    assert_eq!(read(&mut client), (1, 1));
    backend.tell(|changes| changes.forgotten(Forget::Prefix(b"a:")));
    assert_eq!(read(&mut client), (2, 1));
    assert_eq!(read(&mut client), (2, 1));
    // A copy does not know its item's tags, and what is a prefix elsewhere may be none here.
    backend.tell(|changes| changes.forgotten(Forget::Tag(b"t")));
    assert_eq!(read(&mut client), (3, 2));
    backend.tell(|changes| changes.forgotten(Forget::Prefix(b"a-")));
    assert_eq!(read(&mut client), (4, 3));
    assert_eq!((count(&mut client, "tier_changes"), count(&mut client, "tier_gaps")), (3, 0));
}

#[test]
fn what_was_asked_is_finished_when_the_client_has_gone_or_the_server_stops() {
    let (server, backend) = start_backed(backed(5, 0));
    backend.hold();
    let mut gone = Client::connect(&server);
    gone.send("set k 0 0 1\r\n1\r\nget other\r\n");
    eventually(|| backend.kept_back() == 2);
    drop(gone);
    let mut waiting = Client::connect(&server);
    waiting.send("get other\r\n");
    let mut observer = Client::connect_to(address(&server, 1));
    eventually(|| count(&mut observer, "tier_coalesced") == 1);
    backend.release();
    waiting.expect("END\r\n");
    waiting.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    // Half-closed: everything is still answered.
    backend.hold();
    waiting.send("get x\r\nget y\r\n");
    waiting.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    eventually(|| backend.kept_back() == 2);
    backend.release();
    waiting.expect("END\r\nEND\r\n");
    waiting.expect_close();
    backend.hold();
    let mut last = Client::connect(&server);
    last.send("get z\r\n");
    eventually(|| backend.kept_back() == 1);
    server.stop();
    backend.release();
    last.expect("END\r\n");
    last.expect_close();
    server.wait();
}

#[test]
fn a_worker_too_many_stays_until_its_answers_have_come() {
    let (server, backend) = start_backed(Settings { workers: 4, ..backed(5, 0) });
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(&server)).collect();
    backend.hold();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("set k{number} 0 0 1\r\n1\r\n"));
    }
    eventually(|| backend.kept_back() == 8);
    drop(clients.drain(4..));
    server
        .reload(&Settings { workers: 1, listeners: server.settings().listeners.clone(), ..backed(5, 0) })
        .expect("it reloads");
    backend.release();
    for client in &mut clients {
        client.expect("STORED\r\n");
    }
    assert_eq!(backend.ops(), 8);
    let mut client = Client::connect(&server);
    for number in 0..8 {
        client.ask(format!("get k{number}\r\n"), format!("VALUE k{number} 0 1\r\n1\r\nEND\r\n"));
    }
}

#[test]
fn a_pool_takes_and_leaves_its_backend_while_running_and_what_has_begun_ends_as_it_began() {
    let (server, backend) = start_backed(backed(500, 0));
    let listeners = server.settings().listeners.clone();
    let mut client = Client::connect(&server);
    client.ask("set k 0 0 4\r\nback\r\nget k\r\n", "STORED\r\nVALUE k 0 4\r\nback\r\nEND\r\n");
    backend.hold();
    client.send("get late\r\nset late2 0 0 1\r\n1\r\n");
    eventually(|| backend.kept_back() == 2);
    let mut without = backed(500, 0);
    without.pools[0].backend = None;
    without.listeners = listeners.clone();
    let reloaded = server.reload(&without).expect("it reloads");
    assert!(reloaded.changed.contains(&"pool.tiered.backend: scripted to none".to_owned()), "{reloaded:?}");
    backend.release();
    client.expect("END\r\nSTORED\r\n");
    let mut other = Client::connect(&server);
    other.ask("get k late2\r\n", "END\r\n");
    other.ask("set k 0 0 4\r\nmine\r\nget k\r\n", "STORED\r\nVALUE k 0 4\r\nmine\r\nEND\r\n");
    let with = Settings { listeners: listeners.clone(), ..backed(500, 0) };
    server.reload(&with).expect("it reloads");
    let mut third = Client::connect(&server);
    third.ask("get k\r\n", "VALUE k 0 4\r\nback\r\nEND\r\n");
    // A pool that leaves stays while its connections use it.
    let mut gone = with.clone();
    gone.pools.remove(0);
    gone.routes.clear();
    gone.listeners = vec![nuthatch_server::settings::ListenerSettings { pool: 0, ..listeners[1].clone() }];
    server.reload(&gone).expect("it reloads");
    third.ask("get k\r\nset k 0 0 3\r\nnew\r\n", "VALUE k 0 4\r\nback\r\nEND\r\nSTORED\r\n");
    assert_eq!(backend.aside("get k\r\n"), "VALUE k 0 3\r\nnew\r\nEND\r\n");
    let mut missing = with;
    missing.pools[0].backend = Some("nobody".to_owned());
    let error = server.reload(&missing).expect_err("there is no such backend");
    assert_eq!(error.to_string(), "pool tiered: expected its backend to be there, there is none called nobody");
}

#[test]
fn requests_that_cannot_wait_are_told_so() {
    let mut over_udp = backed(5, 0);
    let udp = "127.0.0.1:0".parse().expect("an address");
    over_udp.listeners[0].address = nuthatch_server::settings::Address::Udp(udp);
    let (server, _backend) = start_backed(over_udp);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(crate::common::PATIENCE)).expect("a timeout");
    for request in [&b"get k\r\n"[..], b"set k 0 0 1\r\n1\r\n", b"mg k v\r\n"] {
        socket.send_to(&[&[0, 1, 0, 0, 0, 1, 0, 0][..], request].concat(), address(&server, 0)).expect("sent");
        let mut answer = [0; 200];
        let bytes = socket.recv(&mut answer).expect("an answer");
        let expected = "SERVER_ERROR pool tiered has a backend, which a UDP request cannot wait for: expected TCP\r\n";
        assert_eq!(String::from_utf8_lossy(&answer[8..bytes]), expected);
    }
}

#[test]
fn a_server_whose_pool_names_a_backend_that_is_not_there_does_not_start() {
    let error = Server::start(backed(5, 0)).expect_err("there is none");
    assert_eq!(error.to_string(), "pool tiered: expected its backend to be there, there is none called scripted");
    let _ = start;
}
