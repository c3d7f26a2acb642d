//! Clients that never pause while a server flips between two configurations.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use nuthatch_server::settings::{Address, Settings};

use super::{at, pools, reload, route, scratch, tcp};
use crate::common::{Client, PATIENCE, own_address, settings, start};

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
