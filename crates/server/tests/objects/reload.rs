//! Reloads: what changes, for whom, and that nobody who is connected notices.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::{Client, PATIENCE, address, eventually, listener, own_address, settings, start};
use nuthatch_server::settings::{Address, ListenerSettings, PoolSettings, Protocol, RouteSettings, Settings};
use nuthatch_server::{Reloaded, Running};

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("nuthatch-reload-{}-{name}", std::process::id()))
}

fn at(address: Address, pool: usize) -> ListenerSettings {
    ListenerSettings { address, ..listener(pool) }
}

fn tcp(address: SocketAddr, pool: usize) -> ListenerSettings {
    at(Address::Tcp(address), pool)
}

fn pools(names: &[&str]) -> Vec<PoolSettings> {
    names.iter().map(|name| PoolSettings { memory_bytes: 8 << 20, ..PoolSettings::named(name) }).collect()
}

fn route(prefix: &str, pool: usize) -> RouteSettings {
    RouteSettings { prefix: prefix.as_bytes().to_vec(), pool }
}

/// A reload that is known to be good.
#[track_caller]
fn reload(server: &Running, settings: &Settings) -> Reloaded {
    server.reload(settings).expect("a good reload")
}

fn nothing() -> Reloaded {
    Reloaded { changed: vec![], waiting: vec![], failed: vec![] }
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

#[test]
fn the_same_settings_change_nothing() {
    let server = start(settings());
    let before = server.addresses();
    assert_eq!(reload(&server, &settings()), nothing());
    assert_eq!(server.addresses(), before, "a port that the system chose is kept");
    let named = Settings { listeners: vec![tcp(address(&server, 0), 0)], ..settings() };
    assert_eq!(reload(&server, &named), nothing(), "and may be named then");
}

#[test]
fn listeners_come_and_go_and_their_connections_live_on() {
    let (first, second, third) = (own_address(), own_address(), own_address());
    let with = |addresses: &[SocketAddr]| {
        let listeners = addresses.iter().map(|address| tcp(*address, 0)).collect();
        Settings { listeners, ..settings() }
    };
    let server = start(with(&[first, second]));
    let mut kept = Client::connect_to(first);
    let mut left = Client::connect_to(second);
    left.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");

    let reloaded = reload(&server, &with(&[first, third]));
    assert_eq!(
        reloaded.changed,
        [format!("listener {third}: opened"), format!("listener {second}: closed, its connections live on")]
    );
    assert!(is_refused(second));
    assert_eq!(server.addresses(), [Address::Tcp(first), Address::Tcp(third)]);
    for client in [&mut kept, &mut left, &mut Client::connect_to(third), &mut Client::connect_to(first)] {
        client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    }
    assert_eq!(kept.number("total_connections"), 4, "what a listener counted stays in the sums");
    drop(left);
    eventually(|| kept.number("curr_connections") == 1);

    let reloaded = reload(&server, &with(&[first, second]));
    assert_eq!(reloaded.changed.len(), 2, "{reloaded:?}");
    Client::connect_to(second).ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(is_refused(third));
    assert_eq!(kept.number("total_connections"), 5);
    assert_eq!(kept.stat("stats listeners", &format!("{second}:total_connections")), "1");
}

#[test]
fn whoever_the_kernel_has_accepted_is_served_although_the_listener_goes() {
    let (kept, going) = (own_address(), own_address());
    let both = Settings { listeners: vec![tcp(kept, 0), tcp(going, 0)], ..settings() };
    let one = Settings { listeners: vec![tcp(kept, 0)], ..settings() };
    let server = start(both.clone());
    for _ in 0..20 {
        let mut clients: Vec<_> = (0..20).map(|_| Client::connect_to(going)).collect();
        reload(&server, &one);
        for client in &mut clients {
            client.ask("mn\r\n", "MN\r\n");
        }
        reload(&server, &both);
    }
}

#[test]
fn a_changed_listener_is_changed_for_new_connections_only() {
    let place = own_address();
    let first = Settings { listeners: vec![tcp(place, 0)], pools: pools(&["default", "other"]), ..settings() };
    let server = start(first.clone());
    let mut old = Client::connect_to(place);
    old.ask("set a 0 0 3\r\nold\r\n", "STORED\r\n");

    let mut second = first.clone();
    second.listeners[0].pool = 1;
    second.listeners[0].tag = Some("web".to_owned());
    second.backlog = 7;
    let reloaded = reload(&server, &second);
    assert_eq!(
        reloaded.changed,
        [
            "backlog: 1024 to 7".to_owned(),
            format!("listener {place}: pool default to other for new connections"),
            format!("listener {place}: tag none to web"),
        ]
    );
    let mut new = Client::connect_to(place);
    new.ask("get a\r\n", "END\r\n");
    new.ask("set a 0 0 3\r\nnew\r\n", "STORED\r\n");
    old.ask("get a\r\n", "VALUE a 0 3\r\nold\r\nEND\r\n");
    assert_eq!(new.stat("stats listeners", "web:total_connections"), "2");

    let mut third = second.clone();
    third.listeners[0].protocol = Protocol::Binary;
    let reloaded = reload(&server, &third);
    assert_eq!(reloaded.changed, [format!("listener {place}: protocol auto to binary for new connections")]);
    Client::connect_to(place).ask("get a\r\n", "");
    let mut binary = Client::connect_to(place);
    binary.send("get a\r\n");
    binary.expect_close();
    old.ask("get a\r\n", "VALUE a 0 3\r\nold\r\nEND\r\n");
    new.ask("get a\r\n", "VALUE a 0 3\r\nnew\r\nEND\r\n");
}

#[test]
fn a_listener_that_cannot_be_opened_leaves_the_others_and_is_tried_again() {
    let (kept, added, removed) = (own_address(), own_address(), own_address());
    let taken = std::net::TcpListener::bind(own_address()).expect("an address of our own");
    let busy = taken.local_addr().expect("its address");
    let server = start(Settings { listeners: vec![tcp(kept, 0), tcp(removed, 0)], ..settings() });
    let mut client = Client::connect_to(kept);
    let wanted = Settings { listeners: vec![tcp(kept, 0), tcp(busy, 0), tcp(added, 0)], workers: 3, ..settings() };
    let reloaded = reload(&server, &wanted);
    assert_eq!(reloaded.failed.len(), 1);
    assert!(
        reloaded.failed[0].starts_with(&format!("cannot listen on {busy}: Address already in use")),
        "{reloaded:?}"
    );
    assert_eq!(reloaded.changed[0], "workers: 2 to 3");
    assert_eq!(server.addresses(), [Address::Tcp(kept), Address::Tcp(added)]);
    client.ask("mn\r\n", "MN\r\n");
    Client::connect_to(added).ask("mn\r\n", "MN\r\n");
    assert!(is_refused(removed));

    drop(taken);
    let reloaded = reload(&server, &wanted);
    assert_eq!((reloaded.changed, reloaded.failed), (vec![format!("listener {busy}: opened")], vec![]));
    assert_eq!(server.addresses().len(), 3);
    Client::connect_to(busy).ask("mn\r\n", "MN\r\n");
}

#[test]
fn an_address_that_the_old_one_was_in_the_way_of_is_opened() {
    let one = own_address();
    let all: SocketAddr = ([0, 0, 0, 0], one.port()).into();
    let server = start(Settings { listeners: vec![tcp(one, 0)], ..settings() });
    let mut client = Client::connect_to(one);
    let reloaded = reload(&server, &Settings { listeners: vec![tcp(all, 0)], ..settings() });
    assert_eq!(reloaded.failed, Vec::<String>::new());
    assert_eq!(server.addresses(), [Address::Tcp(all)]);
    client.ask("mn\r\n", "MN\r\n");
    Client::connect_to(one).ask("mn\r\n", "MN\r\n");

    let udp = |address| Settings { listeners: vec![tcp(all, 0), at(Address::Udp(address), 0)], ..settings() };
    assert_eq!(reload(&server, &udp(one)).failed, Vec::<String>::new());
    assert_eq!(reload(&server, &udp(all)).failed, Vec::<String>::new());
    assert_eq!(ask_by_udp(one, "mn\r\n"), "MN\r\n");
}

fn ask_by_unix(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    unix_answers(&mut stream);
    stream
}

fn unix_answers(stream: &mut UnixStream) {
    stream.write_all(b"mn\r\n").expect("sent");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"MN\r\n");
}

#[test]
fn unix_sockets_come_and_go_with_their_files() {
    let (first, second) = (scratch("first"), scratch("second"));
    let unix = |path: &Path, mode| at(Address::Unix { path: path.to_path_buf(), mode }, 0);
    let with = |listeners: Vec<ListenerSettings>| Settings { listeners, ..settings() };
    let mode = |path: &Path| std::fs::metadata(path).expect("the socket").permissions().mode() & 0o777;
    let server = start(with(vec![unix(&first, 0o600)]));
    let mut old = ask_by_unix(&first);

    let reloaded = reload(&server, &with(vec![unix(&first, 0o660)]));
    assert_eq!(reloaded.changed, [format!("listener unix:{}: mode 0600 to 0660", first.display())]);
    assert_eq!(mode(&first), 0o660);

    reload(&server, &with(vec![unix(&second, 0o640)]));
    assert!(!first.exists());
    assert_eq!(mode(&second), 0o640);
    ask_by_unix(&second);
    unix_answers(&mut old);

    // Somebody tidied up: the next reload puts the file back.
    std::fs::remove_file(&second).expect("the file");
    reload(&server, &with(vec![unix(&second, 0o640)]));
    ask_by_unix(&second);

    // Somebody else listens there by now: it is theirs.
    std::fs::remove_file(&second).expect("the file");
    let other = UnixListener::bind(&second).expect("the place is free");
    let reloaded = reload(&server, &with(vec![unix(&second, 0o640)]));
    assert!(reloaded.failed[0].ends_with("another server answers there"), "{reloaded:?}");
    drop(server);
    assert!(second.exists());
    drop(other);
    std::fs::remove_file(&second).expect("the file");
    unix_is_closed(&mut old);
}

fn unix_is_closed(stream: &mut UnixStream) {
    assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
}

fn ask_by_udp(to: SocketAddr, request: &str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let datagram = [b"\0\x07\0\0\0\x01\0\0", request.as_bytes()].concat();
    socket.send_to(&datagram, to).expect("sent");
    let mut answer = [0; 2000];
    let bytes = socket.recv(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[8..bytes]).into_owned()
}

#[test]
fn udp_listeners_come_and_go_and_follow_the_workers() {
    let (stream, first, second) = (own_address(), own_address(), own_address());
    let udp = |address, pool| at(Address::Udp(address), pool);
    let base = Settings { pools: pools(&["default", "other"]), workers: 4, ..settings() };
    let with = |udp: Vec<ListenerSettings>, workers| {
        let listeners = [vec![tcp(stream, 0)], udp].concat();
        Settings { listeners, workers, ..base.clone() }
    };
    let server = start(with(vec![udp(first, 0)], 4));
    assert_eq!(ask_by_udp(first, "set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    // The worker that serves it goes; then the pool it leads to is another; then it goes itself.
    reload(&server, &with(vec![udp(first, 0)], 1));
    assert_eq!(ask_by_udp(first, "get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    reload(&server, &with(vec![udp(first, 1), udp(second, 0)], 3));
    eventually(|| ask_by_udp(first, "get a\r\n") == "END\r\n");
    assert_eq!(ask_by_udp(second, "get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    reload(&server, &with(vec![udp(second, 0)], 1));
    eventually(|| UdpSocket::bind(first).is_ok());
    assert_eq!(ask_by_udp(second, "get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
}

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

#[test]
fn a_request_in_flight_ends_in_the_pool_it_began_in() {
    let place = own_address();
    let routed = Settings {
        listeners: vec![tcp(place, 0)],
        pools: pools(&["default", "side"]),
        routes: vec![route("side:", 1)],
        ..settings()
    };
    let plain = Settings { routes: vec![], pools: pools(&["default"]), ..routed.clone() };
    let server = start(routed.clone());
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
    let routed = Settings {
        listeners: vec![tcp(place, 0)],
        pools: pools(&["default", "side"]),
        routes: vec![route("side:", 1)],
        ..settings()
    };
    let server = start(routed.clone());
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
    reload(&server, &Settings { routes: vec![], pools: pools(&["default"]), ..routed });
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

#[test]
fn workers_are_raised_and_lowered_and_their_connections_stay() {
    let with = |workers| Settings { workers, ..settings() };
    let server = start(with(2));
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    let on = |client: &mut Client, worker: usize| {
        client.send("stats workers\r\n");
        let prefix = format!("STAT {worker}:curr_connections ");
        let all = client.read_until("END\r\n");
        all.lines().find_map(|line| line.strip_prefix(&prefix)?.parse::<usize>().ok())
    };
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!(reload(&server, &with(5)).changed, ["workers: 2 to 5"]);
    clients.extend((0..10).map(|_| Client::connect(&server)));
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!(clients[0].number("threads"), 5);
    assert_eq!([0, 1, 2, 3, 4].map(|worker| on(&mut clients[0], worker)), [4, 4, 2, 2, 2].map(Some));

    reload(&server, &with(1));
    assert_eq!(clients[0].number("threads"), 1);
    clients.extend((0..6).map(|_| Client::connect(&server)));
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!([0, 1, 4].map(|worker| on(&mut clients[0], worker)), [10, 4, 2].map(Some), "new ones go to the first");

    // Two are wanted again while they still serve; the others end with their connections.
    reload(&server, &with(3));
    clients.extend((0..3).map(|_| Client::connect(&server)));
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!([0, 1, 2, 3, 4].map(|worker| on(&mut clients[0], worker)), [11, 5, 3, 2, 2].map(Some));
    reload(&server, &with(1));
    let mut last = clients.swap_remove(0);
    drop(clients);
    eventually(|| (1..5).all(|worker| on(&mut last, worker).is_none()));
    let before = last.number("total_connections");
    reload(&server, &with(4));
    let mut others: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut others {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!([1, 2, 3].map(|worker| on(&mut last, worker)), [1, 1, 1].map(Some));
    assert_eq!(last.number("total_connections"), before + 4);
}

/// The threads of this process that have `name`.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

#[test]
fn a_worker_too_many_ends_once_it_has_nothing_to_do() {
    // No other test has as many.
    let with = |workers| Settings { workers, ..settings() };
    let server = start(with(20));
    eventually(|| threads_called("worker-19") == 1);
    reload(&server, &with(19));
    eventually(|| threads_called("worker-19") == 0);
    reload(&server, &with(20));
    eventually(|| threads_called("worker-19") == 1);
}

#[test]
fn passwords_are_asked_of_those_who_connect_after_they_were_demanded() {
    let users = scratch("users");
    std::fs::write(&users, "anna:old\n").expect("a file");
    let place = own_address();
    let open = Settings { listeners: vec![tcp(place, 0)], ..settings() };
    let locked = Settings { auth_file: Some(users.clone()), ..open.clone() };
    let server = start(open.clone());
    let mut early = Client::connect_to(place);
    early.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    reload(&server, &locked);
    let mut later = Client::connect_to(place);
    later.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let mut later = Client::connect_to(place);
    later.ask("set x 0 0 8\r\nanna old\r\n", "STORED\r\n");
    early.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");

    // A password that was taken away is good for nobody, connected or not.
    let mut waiting = Client::connect_to(place);
    std::fs::write(&users, "anna:new\n").expect("a file");
    assert_eq!(reload(&server, &locked), nothing());
    for client in [&mut waiting, &mut Client::connect_to(place)] {
        client.ask("set x 0 0 8\r\nanna old\r\n", "CLIENT_ERROR authentication failure\r\n");
        client.ask("set x 0 0 8\r\nanna new\r\n", "STORED\r\n");
    }
    later.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");

    // Binary with SASL is another matter altogether; text connections that are open go on.
    let sasl = Settings { sasl_file: Some(users.clone()), ..open.clone() };
    reload(&server, &sasl);
    let mut binary = Client::connect_to(place);
    binary.send("get a\r\n");
    binary.expect_close();
    later.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    reload(&server, &open);
    Client::connect_to(place).ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    std::fs::remove_file(users).expect("the file");
}

#[test]
fn what_cannot_be_right_changes_nothing() {
    let users = scratch("bad-users");
    std::fs::write(&users, "nonsense\n").expect("a file");
    let (kept, added) = (own_address(), own_address());
    let first = Settings { listeners: vec![tcp(kept, 0)], ..settings() };
    let server = start(first.clone());
    let mut client = Client::connect_to(kept);
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let next = Settings { listeners: vec![tcp(added, 0)], workers: 4, ..settings() };
    let bad_users = Settings { auth_file: Some(users.clone()), ..next.clone() };
    let error = server.reload(&bad_users).expect_err("a bad file").to_string();
    assert!(error.ends_with("line 1: a line is user:password"), "{error}");
    let tiny = PoolSettings { memory_bytes: 1000, ..PoolSettings::named("tiny") };
    let bad_pool = Settings { pools: vec![PoolSettings::named("default"), tiny], ..next };
    let error = server.reload(&bad_pool).expect_err("a bad pool").to_string();
    assert!(error.starts_with("pool tiny: a memory limit of 1000 bytes is not possible here"), "{error}");
    assert_eq!(*server.settings(), first);
    assert_eq!(server.addresses(), [Address::Tcp(kept)]);
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(is_refused(added));
    std::fs::remove_file(users).expect("the file");
}

#[test]
fn the_number_of_connections_follows() {
    let with = |connections_max, connections_max_fast| Settings { connections_max, connections_max_fast, ..settings() };
    let server = start(with(2, true));
    let mut first = Client::connect(&server);
    let mut second = Client::connect(&server);
    second.ask("mn\r\n", "MN\r\n");
    let mut third = Client::connect(&server);
    third.expect("ERROR Too many open connections\r\n");
    reload(&server, &with(3, true));
    let mut third = Client::connect(&server);
    third.ask("mn\r\n", "MN\r\n");
    reload(&server, &with(1, false));
    for client in [&mut first, &mut second, &mut third] {
        client.ask("mn\r\n", "MN\r\n");
    }
    let mut waiting = Client::connect(&server);
    waiting.send("mn\r\n");
    eventually(|| first.number("accepting_conns") == 0);
    reload(&server, &with(4, false));
    waiting.expect("MN\r\n");
}

#[test]
fn a_server_that_has_ended_takes_no_settings() {
    let server = start(settings());
    server.stop();
    server.wait();
    assert_eq!(server.reload(&settings()).expect_err("it has ended").to_string(), "the server has ended");
}

/// How often the hammer flips between its two configurations.
const FLIPS: usize = 50;

/// Two configurations that differ in everything a reload can change, but agree on where `base` leads.
fn hammer_settings(base: SocketAddr, side: SocketAddr, unix: &Path) -> [Settings; 2] {
    let unix = at(Address::Unix { path: unix.to_path_buf(), mode: 0o600 }, 0);
    let first = Settings {
        listeners: vec![tcp(base, 0), tcp(side, 1), unix],
        pools: pools(&["default", "side"]),
        routes: vec![route("side:", 1)],
        workers: 3,
        ..settings()
    };
    let second = Settings {
        listeners: vec![tcp(base, 1)],
        pools: pools(&["other", "default"]),
        routes: vec![route("side:", 0), route("other:", 0)],
        workers: 1,
        backlog: 99,
        requests_per_event: 3,
        cas_enabled: false,
        ..settings()
    };
    [first, second]
}

/// Asks and verifies until told to stop: keys that stay in one pool are always there, keys whose route changes are either
/// there or not, and whole. Returns how often it asked.
fn hammer(number: usize, mut stream: impl Read + Write, has_ended: &AtomicBool) -> u64 {
    let mut rounds = 0;
    let large = vec![b'a' + number as u8; 60_000];
    let mut answer = Vec::new();
    let mut ask = |request: &[u8], end: &[u8]| {
        stream.write_all(request).expect("the connection is open");
        answer.clear();
        let mut piece = [0; 65_536];
        while !answer.ends_with(end) {
            let bytes = stream.read(&mut piece).expect("an answer comes");
            assert!(bytes > 0, "the connection was closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..bytes]);
        }
        answer.clone()
    };
    while !has_ended.load(Ordering::Relaxed) {
        rounds += 1;
        let own = format!("own-{number}");
        let routed = format!("side:{number}");
        let value = format!("{rounds:08}");
        let pipeline = format!(
            "set {own} 0 0 8\r\n{value}\r\nget {own}\r\nincr {own} 1\r\nset {routed} 0 0 8\r\n{value}\r\nmn\r\n"
        );
        let expected = format!("STORED\r\nVALUE {own} 0 8\r\n{value}\r\nEND\r\n{}\r\nSTORED\r\nMN\r\n", rounds + 1);
        assert_eq!(String::from_utf8_lossy(&ask(pipeline.as_bytes(), b"MN\r\n")), expected);

        let got = ask(format!("get {routed}\r\n").as_bytes(), b"END\r\n");
        let got = String::from_utf8_lossy(&got).into_owned();
        let held = got.strip_prefix(&format!("VALUE {routed} 0 8\r\n")).map(|rest| rest[..8].parse::<u64>());
        assert!(
            got == "END\r\n" || held.is_some_and(|held| held.is_ok_and(|held| held <= rounds)),
            "a value of another: {got}"
        );

        let set = [format!("set big-{number} 0 0 {}\r\n", large.len()).as_bytes(), &large, b"\r\n"].concat();
        let (front, back) = set.split_at(30_000);
        stream_write(&mut ask, front);
        assert_eq!(ask(back, b"\r\n"), b"STORED\r\n");
        let expected =
            [format!("VALUE big-{number} 0 {}\r\n", large.len()).as_bytes(), &large, b"\r\nEND\r\n"].concat();
        assert!(
            ask(format!("get big-{number}\r\n").as_bytes(), b"END\r\n") == expected,
            "a large value came back torn"
        );
    }
    rounds
}

/// Sends without waiting for an answer.
fn stream_write(ask: &mut impl FnMut(&[u8], &[u8]) -> Vec<u8>, bytes: &[u8]) {
    ask(bytes, b"");
}

#[test]
fn fifty_flips_between_two_configurations_lose_no_connection_and_answer_nothing_wrong() {
    let (base, side, unix) = (own_address(), own_address(), scratch("hammer"));
    let configurations = hammer_settings(base, side, &unix);
    let server = start(configurations[0].clone());
    let has_ended = Arc::new(AtomicBool::new(false));
    let ready = Arc::new(Barrier::new(8));
    let spawn = |number: usize| {
        let (has_ended, ready, unix) = (Arc::clone(&has_ended), Arc::clone(&ready), unix.clone());
        std::thread::spawn(move || {
            if number == 6 {
                let stream = UnixStream::connect(unix).expect("the server listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                ready.wait();
                return hammer(number, stream, &has_ended);
            }
            let stream = Client::connect_to(if number < 4 { base } else { side }).stream;
            ready.wait();
            hammer(number, stream, &has_ended)
        })
    };
    let clients: Vec<_> = (0..7).map(spawn).collect();
    ready.wait();
    let mut late = Vec::new();
    for flip in 1..=FLIPS {
        let wanted = &configurations[flip % 2];
        assert_eq!(reload(&server, wanted).failed, Vec::<String>::new());
        assert_eq!(server.addresses().len(), wanted.listeners.len());
        // Somebody new, on a listener that is in both, every now and then.
        let mut client = Client::connect_to(base);
        client.ask("set own-late 0 0 1\r\n1\r\nget own-late\r\n", "STORED\r\nVALUE own-late 0 1\r\n1\r\nEND\r\n");
        if flip % 10 == 0 {
            late.push(client);
        }
    }
    for client in &mut late {
        client.ask("get own-late\r\n", "VALUE own-late 0 1\r\n1\r\nEND\r\n");
    }
    has_ended.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("every answer was right") > 0);
    }
    assert_eq!(late[0].number("rejected_connections"), 0);
}
