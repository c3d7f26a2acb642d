//! Clients that take their time or take it back, over HTTP/1 and HTTP/2; and page listeners that a reload changes while they
//! are asked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::tls::{Authority, over};
use crate::common::{Client, PATIENCE, address, eventually, start};
use crate::http::{Http, Reply, pages_of, serve, settings_with};
use nuthatch_server::Running;
use nuthatch_server::settings::{Settings, TlsSettings};
use nuthatch_testkit::origin::{Gate, Origin};
use rustls::ClientConfig;

fn named(name: &'static str) -> Origin {
    Origin::start(move |_, answer| answer.reply("200 OK", &["Cache-Control: no-store"], name))
}

/// Waits until the server has read what was sent on as many connections besides the one that asks.
fn connected(server: &Running, count: u64) {
    let mut client = Client::connect(server);
    eventually(|| client.number("curr_connections") > count);
}

fn later(server: &Running, at: u32) {
    Client::connect(server).ask(format!("debugtime {at}\r\n"), "OK\r\n");
}

#[test]
fn a_head_that_does_not_end_is_answered_408_and_its_connection_closed() {
    let origin = named("page");
    let server = serve(&[&origin]);
    for (number, head) in
        ["", "GET /page HTTP/1.1\r\n", "GET /page HTTP/1.1\r\nHost: a.example\r\nX: "].iter().enumerate()
    {
        let mut client = Http::connect(&server);
        // One that was served already is no better.
        assert_eq!(client.get("/page").text(), "page");
        client.send(head);
        connected(&server, 1);
        later(&server, 100 * (number as u32 + 1));
        if !head.is_empty() {
            assert_eq!(client.head_of_reply().status, 408, "{head:?}");
            continue;
        }
        client.expect_close();
    }
}

#[test]
fn a_body_that_does_not_go_on_ends_its_connection_and_the_others_go_on() {
    let origin = named("page");
    let server = serve(&[&origin]);
    let mut slow = Http::connect(&server);
    slow.send("POST /page HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\nonly this");
    connected(&server, 1);
    later(&server, 200);
    let mut rest = Vec::new();
    // What it is told depends on how far the origin was asked; that it ends does not.
    let _ = slow.reader.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains(" 200 "), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(Http::connect(&server).get("/page").text(), "page");
}

#[test]
fn an_upload_may_take_longer_than_an_answer_to_it() {
    let origin = Origin::start(|request, answer| {
        answer.reply("200 OK", &["Cache-Control: no-store"], request.body.len().to_string());
    });
    let mut http = pages_of(&[&origin]);
    http.origin.first_byte_timeout = Duration::from_secs(1);
    let server = start(settings_with(http));
    let mut slow = Http::connect(&server);
    slow.send("POST /page HTTP/1.1\r\nHost: a.example\r\nContent-Length: 8\r\n\r\nsome");
    eventually(|| origin.connections() == 1);
    // That nothing happens cannot be waited for but by the clock.
    let begin = Instant::now();
    eventually(|| begin.elapsed() > Duration::from_millis(2500));
    slow.send("more");
    assert_eq!(slow.reply(false).text(), "8");
}

#[test]
fn pages_that_are_fetched_and_not_read_take_a_bounded_part_of_memory_and_the_rest_passes_by() {
    let gate = Gate::default();
    let origin = Origin::start({
        let gate = gate.clone();
        move |_, answer| {
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 1000000\r\n\r\n");
            answer.send(vec![b'x'; 999_999]);
            gate.wait();
            answer.send("y");
        }
    });
    let mut settings = settings_with(pages_of(&[&origin]));
    settings.pools[0].memory_bytes = 10 << 20;
    settings.pools[0].item_bytes_max = 2 << 20;
    let server = start(settings);
    // A quarter is two and a half of them.
    let mut clients: Vec<Http> = Vec::new();
    for number in 0..4 {
        let mut client = Http::connect(&server);
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        clients.push(client);
    }
    let mut memcached = Client::connect(&server);
    eventually(|| memcached.number("store_no_memory") == 2);
    gate.open();
    for client in &mut clients {
        let reply = client.reply(false);
        assert_eq!((reply.body.len(), reply.body.last()), (1_000_000, Some(&b'y')));
    }
    eventually(|| memcached.number("cmd_set") == 2);
    drop(clients);
    // And there is room again.
    assert_eq!(Http::connect(&server).get("/another").body.len(), 1_000_000);
    eventually(|| memcached.number("cmd_set") == 3);
    assert_eq!(memcached.number("store_no_memory"), 2);
}

/// The body of a page of this number: no two pages have a piece in common.
fn large_body(page: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 1000 * 7 + page * 83) as u8).collect()
}

#[test]
fn pages_that_outgrow_the_limit_at_once_on_several_workers_reach_all_who_wait_and_hold_up_no_other() {
    const PAGES: usize = 3;
    const CLIENTS: usize = 4;
    const BYTES: usize = 3_000_000;
    let (begin, go_on) = (Gate::default(), Gate::default());
    let origin = Origin::start({
        let (begin, go_on) = (begin.clone(), go_on.clone());
        move |request, answer| {
            let Ok(page) = request.target[1..].parse() else { return answer.reply("200 OK", &[], "small") };
            begin.wait();
            // Nobody knows beforehand how long it becomes.
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\n");
            go_on.wait();
            large_body(page, BYTES).chunks(10_000).for_each(|piece| answer.send(piece));
            answer.close();
        }
    });
    let mut http = pages_of(&[&origin]);
    http.pages.page_bytes_max = 200_000;
    let server = start(Settings { workers: 4, ..settings_with(http) });
    let mut memcached = Client::connect(&server);
    let mut clients: Vec<(usize, Http)> = Vec::new();
    for number in 0..PAGES * CLIENTS {
        let page = number % PAGES;
        let mut client = Http::connect(&server);
        client.send(format!("GET /{page} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        clients.push((page, client));
    }
    eventually(|| origin.count() == PAGES && memcached.number("cmd_get") == (PAGES * CLIENTS) as u64);
    begin.open();
    // Whoever reads by then goes on reading; on a busy machine some would come later, and ask for themselves.
    let mut clients: Vec<_> = clients
        .into_iter()
        .map(|(page, mut client)| {
            let head = client.head_of_reply();
            assert_eq!(head.status, 200);
            (page, client, head)
        })
        .collect();
    go_on.open();
    // The last clients do not read for now. Those of the first page are all that its flight may be held up by.
    let slow = clients.split_off(PAGES * (CLIENTS - 1));
    let (held_up, others): (Vec<_>, Vec<_>) = clients.into_iter().partition(|(page, ..)| *page == 0);
    let (slow_of_first, slow_of_others): (Vec<_>, Vec<_>) = slow.into_iter().partition(|(page, ..)| *page == 0);
    let read = |clients: Vec<(usize, Http, Reply)>| {
        std::thread::scope(|scope| {
            for (page, mut client, head) in clients {
                scope.spawn(move || {
                    let body = client.try_body(&head).unwrap_or_else(|| panic!("/{page} breaks off"));
                    assert!(body == large_body(page, BYTES), "/{page}: {} bytes", body.len());
                });
            }
        });
    };
    read(others.into_iter().chain(slow_of_others).collect());
    assert_eq!(Http::connect(&server).get("/small").text(), "small");
    // One goes without having read anything.
    drop(slow_of_first);
    read(held_up);
    assert_eq!(origin.count(), PAGES + 1, "each was fetched once");
    eventually(|| memcached.number("store_too_large") == PAGES as u64);
    assert_eq!(memcached.number("cmd_set"), 0);
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// `GET http://a.example/` in HPACK: three entries of the static table and a literal.
pub(crate) const HEAD: &[u8] = b"\x82\x84\x86\x41\x09a.example";

pub(crate) fn h2(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(address(server, 1)).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut to = &stream;
    to.write_all(&[PREFACE, &frame(4, 0, 0, b"")].concat()).expect("the server reads");
    stream
}

/// Everything until the server closes.
#[track_caller]
fn until_closed(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => all,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => all,
        Err(error) => panic!("{error}, expecting the server to close"),
    }
}

/// The next frame: its kind, its flags, its stream, its payload.
#[track_caller]
pub(crate) fn next_frame(mut stream: &TcpStream) -> (u8, u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let [a, b, c, kind, flags, stream_id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).expect("a whole frame");
    (kind, flags, u32::from_be_bytes(stream_id), payload)
}

/// The first byte of an answer's head on a stream: its status in HPACK's static table.
#[track_caller]
fn status_on(stream: &TcpStream, id: u32) -> u8 {
    head_on(stream, id)[0]
}

/// An answer's head on a stream.
#[track_caller]
pub(crate) fn head_on(stream: &TcpStream, id: u32) -> Vec<u8> {
    loop {
        match next_frame(stream) {
            (1, _, of, payload) if of == id => return payload,
            (3, _, of, payload) if of == id => panic!("stream {id} is reset: {payload:?}"),
            (7, _, _, payload) => panic!("the connection is given up: {payload:?}"),
            _ => {}
        }
    }
}

pub(crate) const HPACK_200: u8 = 0x88;
const HPACK_400: u8 = 0x8c;

#[test]
fn a_request_over_http_2_names_one_host() {
    let origin = named("page");
    let server = serve(&[&origin]);
    for (host, status) in [(&b"\x66\x09A.example"[..], HPACK_200), (b"\x66\x09b.example", HPACK_400)] {
        let stream = h2(&server);
        (&stream).write_all(&frame(1, 5, 1, &[HEAD, host].concat())).expect("the server reads");
        assert_eq!(status_on(&stream, 1), status, "{host:?}");
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn an_upload_over_http_2_by_a_byte_now_and_then_is_given_up_and_disturbs_nobody() {
    let origin = named("page");
    let server = serve(&[&origin]);
    let stream = h2(&server);
    let send = |frame: Vec<u8>| (&stream).write_all(&frame).expect("the server reads");
    // `POST http://a.example/`, and a body.
    send(frame(1, 4, 1, b"\x83\x84\x86\x41\x09a.example"));
    eventually(|| origin.connections() == 1);
    let mut status = None;
    // All in all two minutes: less than who is silent may take.
    for second in (2..=120).step_by(2) {
        send(frame(0, 0, 1, b"x"));
        send(frame(6, 0, 0, &[second; 8]));
        // It has read the byte when it answers the ping.
        loop {
            match next_frame(&stream) {
                (6, 1, _, payload) if payload == [second; 8] => break,
                (1, _, 1, payload) => status = Some(payload[0]),
                _ => {}
            }
        }
        if status.is_some() {
            break;
        }
        later(&server, 2);
    }
    let status = status.unwrap_or_else(|| status_on(&stream, 1));
    assert_eq!(status, HPACK_400, "{status:#x}");
    assert_eq!(origin.count(), 0, "the origin got no whole request");
    // Another stream of the same connection, and another client.
    send(frame(1, 5, 3, HEAD));
    assert_eq!(status_on(&stream, 3), HPACK_200);
    assert_eq!(Http::connect(&server).get("/page").text(), "page");
    eventually(|| origin.connections_open() < origin.connections());
}

#[test]
fn an_upload_over_http_1_by_a_byte_now_and_then_is_given_up_and_disturbs_nobody() {
    let origin = named("page");
    let server = serve(&[&origin]);
    let mut slow = Http::connect(&server);
    slow.send("POST /page HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000\r\n\r\n");
    eventually(|| origin.connections() == 1);
    for _ in 0..60 {
        // It may be closed before all is sent.
        let _ = slow.reader.get_mut().write_all(b"x");
        later(&server, 2);
    }
    let mut told = Vec::new();
    let _ = slow.reader.read_to_end(&mut told);
    assert!(!String::from_utf8_lossy(&told).contains(" 200 "), "{}", String::from_utf8_lossy(&told));
    assert_eq!(origin.count(), 0, "the origin got no whole request");
    assert_eq!(Http::connect(&server).get("/page").text(), "page");
}

#[test]
fn streams_that_are_reset_faster_than_they_are_answered_end_their_connection() {
    let origin = named("page");
    let server = serve(&[&origin]);
    let stream = h2(&server);
    let mut flood = Vec::new();
    for number in 0..2000 {
        let id = 2 * number + 1;
        flood.extend(frame(1, 5, id, HEAD));
        flood.extend(frame(3, 0, id, &8u32.to_be_bytes()));
    }
    // It may be closed before all is taken.
    let _ = (&stream).write_all(&flood);
    until_closed(&stream);
    assert!(origin.count() < 2000, "{}", origin.count());
    assert_eq!(Http::connect(&server).get("/page").text(), "page");
}

#[test]
fn a_head_of_http_2_that_does_not_end_does_not_keep_its_connection() {
    let origin = named("page");
    let server = serve(&[&origin]);
    let stream = h2(&server);
    // Without the flag that says that the fields end here.
    (&stream).write_all(&frame(1, 1, 1, HEAD)).expect("the server reads");
    connected(&server, 1);
    // Its time may begin after it is counted.
    let mut memcached = Client::connect(&server);
    eventually(|| {
        memcached.ask("debugtime 100\r\n", "OK\r\n");
        memcached.number("curr_connections") == 1
    });
    until_closed(&stream);
    assert_eq!(origin.count(), 0);
}

#[test]
fn a_client_of_http_2_that_only_pings_or_sends_a_head_by_bytes_does_not_keep_its_connection() {
    let origin = named("page");
    let server = serve(&[&origin]);
    let (pings, drips) = (h2(&server), h2(&server));
    connected(&server, 2);
    for second in (10..=80).step_by(10) {
        let _ = (&pings).write_all(&frame(6, 0, 0, b"are you?"));
        // The first bytes of a head that never ends.
        let _ = (&drips).write_all(if second == 10 { &b"\x00\x10\x00\x01\x01\0\0\0\x01"[..] } else { b"\x82" });
        later(&server, second);
    }
    until_closed(&pings);
    until_closed(&drips);
    assert_eq!(origin.count(), 0);
    assert_eq!(Http::connect(&server).get("/page").text(), "page");
}

/// A TLS listener of pages, and a client of it that has agreed on HTTP/2.
fn agreed_on_h2(authority: &Authority, origin: &Origin) -> (Running, Arc<ClientConfig>) {
    let mut settings = settings_with(pages_of(&[origin]));
    settings.listeners[1].tls = Some(TlsSettings { is_http: true, ..authority.tls() });
    let mut client = ClientConfig::clone(&authority.any_client());
    client.alpn_protocols = vec![b"h2".to_vec()];
    (start(settings), Arc::new(client))
}

#[test]
fn who_agrees_on_http_2_and_sends_no_preface_in_time_or_something_else_is_closed() {
    let (authority, origin) = (Authority::new(), named("page"));
    let (server, config) = agreed_on_h2(&authority, &origin);
    let http = |second: u32, begin: &[u8]| {
        let mut client = over(&config, TcpStream::connect(address(&server, 1)).expect("the server listens"));
        client.stream.sock.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        while client.stream.conn.is_handshaking() {
            client.stream.conn.complete_io(&mut client.stream.sock).expect("a handshake");
        }
        assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"h2"[..]));
        if !begin.is_empty() {
            client.send(begin);
        }
        if PREFACE.starts_with(begin) {
            connected(&server, 1);
            // Bytes of the preface do not win time.
            later(&server, second + 6);
            if !begin.is_empty() {
                client.send(&PREFACE[begin.len()..=begin.len()]);
            }
            later(&server, second + 12);
        }
        let mut rest = Vec::new();
        // With an alert or without: nothing is answered, in whatever version.
        let _ = client.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{begin:?}: {}", String::from_utf8_lossy(&rest));
    };
    http(0, b"");
    http(12, &PREFACE[..5]);
    http(24, b"GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n");
    http(24, b"\x16\x03\x01\0\0garbage");
    assert_eq!(origin.count(), 0);
}

#[test]
fn a_reload_changes_where_pages_come_from_under_load_and_no_request_fails() {
    let (old, new) = (named("old"), named("new"));
    let server = start(settings_with(pages_of(&[&old])));
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut client = Http::connect(&server);
                    let first = client.get("/page").text();
                    assert!(["old", "new"].contains(&first.as_str()), "{first}");
                    for _ in 0..5 {
                        // A connection keeps what it began with.
                        assert_eq!(client.get("/page").text(), first);
                    }
                    asked.fetch_add(6, Ordering::Relaxed);
                }
            });
        }
        eventually(|| asked.load(Ordering::Relaxed) > 60);
        let mut settings = Settings::clone(&server.settings());
        settings.listeners[1].http = Some(pages_of(&[&new]));
        server.reload(&settings).expect("it reloads");
        assert_eq!(Http::connect(&server).get("/page").text(), "new");
        let before = asked.load(Ordering::Relaxed);
        eventually(|| asked.load(Ordering::Relaxed) > before + 60);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_reload_keeps_the_pages_that_are_there_and_changes_who_may_purge_them() {
    let origin = Origin::start(|_, answer| answer.reply("200 OK", &["Cache-Control: max-age=60"], "page"));
    let server = start(settings_with(pages_of(&[&origin])));
    assert_eq!(Http::connect(&server).get("/page").cache(), "MISS");
    let mut settings = Settings::clone(&server.settings());
    let http = settings.listeners[1].http.as_mut().expect("pages");
    http.pages.purge_from = vec!["none".to_owned()];
    server.reload(&settings).expect("it reloads");
    let mut client = Http::connect(&server);
    assert_eq!(client.get("/page").cache(), "HIT");
    assert_eq!(client.ask("PURGE", "/page", &[]).status, 403);
    assert_eq!(client.get("/page").cache(), "HIT");
}
