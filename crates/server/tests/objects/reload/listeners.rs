//! Listeners that come, go and change, over TCP, UNIX sockets and UDP: who is connected stays so.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nuthatch_server::settings::{Address, ListenerSettings, Protocol, Settings};

use super::{at, is_refused, pools, reload, scratch, tcp};
use crate::common::{Client, PATIENCE, eventually, own_address, settings, start};

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
