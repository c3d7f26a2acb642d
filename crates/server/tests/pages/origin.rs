//! Stampedes, stale pages, failing origins: what an origin is asked, and what clients get when it misbehaves.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Client, eventually, start};
use crate::http::{Http, Reply, pages_of, request, serve, serve_with, settings_with};
use crate::slow::{HEAD, HPACK_200, frame, h2, head_on};
use nuthatch_server::Running;
use nuthatch_testkit::origin::{Answer, Gate, Origin, Request};

const CLIENTS: usize = 40;

/// As many clients ask for `target` at once; `meanwhile` is done once all have.
fn stampede(server: &Running, target: &str, meanwhile: impl FnOnce()) -> Vec<Reply> {
    let mut clients: Vec<Http> = (0..CLIENTS).map(|_| Http::connect(server)).collect();
    clients.iter_mut().for_each(|client| client.send(request("GET", target, &[])));
    meanwhile();
    clients.iter_mut().map(|client| client.reply(false)).collect()
}

/// Waits until so many requests have looked for a page.
fn lookups(server: &Running, count: u64) {
    let mut cache = Client::connect(server);
    eventually(|| cache.number("cmd_get") >= count);
}

#[test]
fn requests_that_miss_together_cost_the_origin_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_, answer| {
        answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nfirst");
        held.wait();
        answer.send("again");
    });
    let server = serve(&[&origin]);
    let replies = stampede(&server, "/page", || {
        lookups(&server, CLIENTS as u64);
        // The beginning is there while the end is not.
        let mut early = Http::connect(&server);
        early.send(request("GET", "/page", &[]));
        assert_eq!(early.head_of_reply().status, 200);
        gate.open();
    });
    assert!(replies.iter().all(|reply| reply.text() == "firstagain"));
    assert_eq!(origin.count(), 1);
    assert_eq!(Http::connect(&server).get("/page").cache(), "HIT");
}

#[test]
fn an_answer_that_cannot_be_shared_releases_everyone_and_is_remembered() {
    let gate = Gate::default();
    let held = gate.clone();
    let is_first = AtomicBool::new(true);
    let origin = Origin::start(move |_, answer| {
        if is_first.swap(false, Ordering::Relaxed) {
            held.wait();
        }
        answer.reply("200 OK", &["Cache-Control: private"], "mine");
    });
    let server = serve(&[&origin]);
    let replies = stampede(&server, "/page", || {
        lookups(&server, CLIENTS as u64);
        gate.open();
    });
    assert!(replies.iter().all(|reply| reply.text() == "mine" && reply.cache() == "MISS"));
    assert_eq!(origin.count(), CLIENTS, "each has its own");
    // Nobody waits for another's any more.
    Client::connect(&server).ask(
        "get page:http://a.example/page\r\n",
        "VALUE page:http://a.example/page 0 14\r\nnot cacheable\n\r\nEND\r\n",
    );
}

#[test]
fn a_stale_page_is_served_while_one_request_refreshes_it() {
    let gate = Gate::default();
    let held = gate.clone();
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |_, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        if number == 1 {
            held.wait();
        }
        let lines = ["Cache-Control: max-age=10, stale-while-revalidate=100"];
        answer.reply("200 OK", &lines, format!("page {number}"));
    });
    let server = serve(&[&origin]);
    assert_eq!(Http::connect(&server).get("/page").text(), "page 0");
    Client::connect(&server).ask("debugtime 20\r\n", "OK\r\n");
    let replies = stampede(&server, "/page", || {});
    assert!(replies.iter().all(|reply| reply.text() == "page 0" && reply.cache() == "HIT"), "{replies:?}");
    eventually(|| origin.count() == 2);
    gate.open();
    eventually(|| Http::connect(&server).get("/page").text() == "page 1");
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_stale_page_is_served_when_the_origin_fails_and_is_not_when_that_is_forbidden() {
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::clone(&fails);
    let origin = Origin::start(move |request, answer| {
        if is_failing.load(Ordering::Relaxed) {
            return match request.target.as_str() {
                "/reset" => answer.close(),
                _ => answer.reply("503 Service Unavailable", &[], "down"),
            };
        }
        let lines = match request.target.as_str() {
            "/strict" => ["Cache-Control: max-age=10, must-revalidate"],
            _ => ["Cache-Control: max-age=10, stale-if-error=100"],
        };
        answer.reply("200 OK", &lines, "page");
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for target in ["/page", "/reset", "/strict"] {
        assert_eq!(client.get(target).status, 200);
    }
    fails.store(true, Ordering::Relaxed);
    Client::connect(&server).ask("debugtime 20\r\n", "OK\r\n");
    for target in ["/page", "/reset"] {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.text().as_str(), reply.cache()), (200, "page", "HIT"), "{target}");
    }
    assert_eq!(client.get("/strict").status, 503);
    assert_eq!(client.get("/new").status, 503);
}

#[test]
fn what_an_origin_sends_wrong_is_a_clean_failure_and_is_not_stored() {
    let origin = Origin::start(|request, answer| match request.target.as_str() {
        "/short" => {
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100\r\n\r\nonly this");
            answer.close();
        }
        "/chunk" => {
            answer.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            );
            answer.close();
        }
        "/garbage" => {
            answer.send("I am no web server\r\n\r\n");
            answer.close();
        }
        "/silent" => answer.close(),
        // How they end can be understood in two ways, or what they are in none.
        framed if framed.starts_with("/framed-") => {
            let fields = match framed {
                "/framed-twice" => "Content-Length: 15\r\nTransfer-Encoding: chunked",
                "/framed-gzip" => "Transfer-Encoding: gzip, chunked",
                "/framed-compressed" => "Transfer-Encoding: deflate",
                _ => "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            };
            let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{fields}\r\n\r\n");
            answer.send(head + "5\r\nhello\r\n0\r\n\r\n");
            answer.close();
        }
        _ => answer.reply("200 OK", &["Cache-Control: max-age=60"], "fine"),
    });
    let server = serve(&[&origin]);
    for target in ["/short", "/chunk"] {
        for _ in 0..2 {
            Http::connect(&server).expect_cut_short(target);
        }
        assert_eq!(origin.count_of(target), 2, "{target} is not stored");
    }
    let framed = ["/framed-twice", "/framed-gzip", "/framed-compressed", "/framed-repeated"];
    for target in ["/garbage", "/silent"].iter().chain(&framed) {
        let reply = Http::connect(&server).get(target);
        assert_eq!((reply.status, reply.text().as_str()), (502, "the origin cannot be asked\n"), "{target}");
    }
    assert_eq!(Http::connect(&server).get("/fine").text(), "fine");
}

/// Answers with a chunk that is none, in one piece with the head and with as much before it as the target says.
fn break_chunk(request: &Request, answer: &mut Answer<'_>) {
    let keep = if request.target.ends_with("own") { "no-store" } else { "max-age=60" };
    let head = format!("HTTP/1.1 200 OK\r\nCache-Control: {keep}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let begin = match request.target.split('-').nth(1) {
        Some("some") => "5\r\nhello\r\n".to_owned(),
        Some("much") => format!("{:x}\r\n{}\r\n", 40_000, "x".repeat(40_000)),
        _ => String::new(),
    };
    answer.send(format!("{head}{begin}no length\r\nhello\r\n"));
}

#[test]
fn an_answer_whose_body_is_broken_in_what_comes_with_its_head_is_a_502_and_the_connection_goes_on() {
    let broken = Origin::start(break_chunk);
    let server = serve(&[&broken]);
    let mut client = Http::connect(&server);
    for target in ["/chunk", "/chunk", "/chunk-own", "/chunk-some", "/chunk-some-own"] {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.text().as_str()), (502, "the origin cannot be asked\n"), "{target}");
    }
    assert_eq!(client.ask("POST", "/chunk", &["Content-Length: 0"]).status, 502);
    assert_eq!(broken.count(), 6, "nothing of it is stored");
    // Whoever is well is asked in its place.
    let well = Origin::start(|_, answer| answer.reply("200 OK", &["Cache-Control: no-store"], "well"));
    let server = serve(&[&broken, &well]);
    let mut client = Http::connect(&server);
    assert!((0..4).all(|_| client.get("/chunk").text() == "well"));
}

#[test]
fn an_answer_whose_body_is_broken_from_its_first_byte_is_a_502_over_http_2_and_the_connection_goes_on() {
    let is_broken = AtomicBool::new(true);
    let origin = Origin::start(move |request, answer| match is_broken.swap(false, Ordering::Relaxed) {
        true => break_chunk(request, answer),
        false => answer.reply("200 OK", &["Cache-Control: max-age=60"], "page"),
    });
    let server = serve(&[&origin]);
    let stream = h2(&server);
    for (id, status) in [(1, &b"\x48\x82\x6c\x02"[..]), (3, &[HPACK_200])] {
        (&stream).write_all(&frame(1, 5, id, HEAD)).expect("the server reads");
        let head = head_on(&stream, id);
        assert!(head.starts_with(status), "{id}: {head:?}");
    }
}

#[test]
fn a_stale_page_is_served_in_place_of_an_answer_whose_body_is_broken_from_its_first_byte() {
    let is_first = [AtomicBool::new(true), AtomicBool::new(true)];
    let origin = Origin::start(move |request, answer| {
        let (is_first, error) = match request.target.as_str() {
            "/strict" => (&is_first[0], "must-revalidate"),
            _ => (&is_first[1], "stale-if-error=100"),
        };
        if is_first.swap(false, Ordering::Relaxed) {
            return answer.reply("200 OK", &[&format!("Cache-Control: max-age=10, {error}")], "page");
        }
        break_chunk(request, answer);
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    assert_eq!([client.get("/page").status, client.get("/strict").status], [200, 200]);
    Client::connect(&server).ask("debugtime 20\r\n", "OK\r\n");
    let reply = client.get("/page");
    assert_eq!((reply.status, reply.text().as_str(), reply.cache()), (200, "page", "HIT"));
    assert_eq!(client.get("/strict").status, 502);
    assert_eq!(origin.count(), 4);
}

#[test]
fn a_client_is_told_what_had_come_of_an_answer_that_breaks_off() {
    let origin = Origin::start(|request, answer| match request.target.as_str() {
        "/nothing" => {
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\n");
            answer.close();
        }
        _ => break_chunk(request, answer),
    });
    let server = serve(&[&origin]);
    for target in ["/chunk-much", "/chunk-much-own"] {
        let mut client = Http::connect(&server);
        client.send(request("GET", target, &[]));
        let mut told = String::new();
        let _ = client.reader.read_to_string(&mut told);
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && !told.contains("hello"), "{told:.200}");
        assert!(told.matches('x').count() > 10_000 && !told.ends_with("\r\n0\r\n\r\n"), "{}", told.len());
    }
    // An answer there is in any case.
    (0..20).for_each(|_| Http::connect(&server).expect_cut_short("/nothing"));
}

#[test]
fn an_origin_that_hangs_is_given_up() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request, answer| {
        if request.target == "/pause" {
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf");
        }
        held.wait();
    });
    let server = serve_with(&[&origin], |http| {
        http.origin.first_byte_timeout = Duration::from_millis(300);
        http.origin.between_bytes_timeout = Duration::from_millis(300);
    });
    let reply = Http::connect(&server).get("/hang");
    assert_eq!((reply.status, reply.text().as_str()), (504, "the origin did not answer in time\n"));
    let mut client = Http::connect(&server);
    client.send(request("GET", "/pause", &[]));
    let head = client.head_of_reply();
    assert_eq!(client.try_body(&head), None);
    gate.open();
}

#[test]
fn safe_requests_go_to_another_server_and_take_turns() {
    let page = |name: &'static str| {
        move |_: &_, answer: &mut nuthatch_testkit::origin::Answer<'_>| {
            answer.reply("200 OK", &["Cache-Control: no-store"], name);
        }
    };
    let (one, two) = (Origin::start(page("one")), Origin::start(page("two")));
    let dead = Origin::start(|_, answer| answer.close());
    let server = serve(&[&one, &dead, &two]);
    let mut client = Http::connect(&server);
    let names: Vec<String> = (0..12).map(|n| client.get(&format!("/{n}")).text()).collect();
    assert!(names.iter().all(|name| name == "one" || name == "two"), "{names:?}");
    assert!(names.iter().filter(|name| *name == "one").count() >= 3, "{names:?}");
    assert_eq!(dead.count(), 3, "after three failures in a row it is left alone");
    // What is not safe is not repeated.
    let server = serve(&[&dead]);
    let before = dead.count();
    assert_eq!(Http::connect(&server).ask("POST", "/", &["Content-Length: 0"]).status, 502);
    assert_eq!(dead.count(), before + 1);
}

#[test]
fn a_probe_finds_a_server_ill_before_a_client_does() {
    let is_well = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_well);
    let ill = Origin::start(move |request, answer| match request.target.as_str() {
        "/health" if told.load(Ordering::Relaxed) => answer.reply("200 OK", &[], ""),
        "/health" => answer.reply("500 Internal Server Error", &[], ""),
        _ => answer.reply("200 OK", &["Cache-Control: no-store"], "ill"),
    });
    let well = Origin::start(|_, answer| answer.reply("200 OK", &["Cache-Control: no-store"], "well"));
    let mut http = pages_of(&[&ill, &well]);
    http.origin.health_path = Some("/health".to_owned());
    http.origin.health_interval = Duration::from_millis(100);
    let server = start(settings_with(http));
    let mut client = Http::connect(&server);
    eventually(|| (0..6).all(|n| client.get(&format!("/{n}")).text() == "well"));
    is_well.store(true, Ordering::Relaxed);
    eventually(|| client.get("/x").text() == "ill");
}

#[test]
fn a_purge_reaches_what_is_being_fetched() {
    let gate = Gate::default();
    let held = gate.clone();
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |_, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            held.wait();
        }
        answer.reply("200 OK", &["Cache-Control: max-age=60"], format!("page {number}"));
    });
    let server = serve(&[&origin]);
    let mut slow = Http::connect(&server);
    slow.send(request("GET", "/page", &[]));
    eventually(|| origin.count() == 1);
    let mut client = Http::connect(&server);
    assert_eq!(client.ask("PURGE", "/page", &[]).status, 404);
    assert_eq!(client.get("/page").text(), "page 1", "it is asked anew");
    gate.open();
    assert_eq!(slow.reply(false).text(), "page 0");
    let reply = client.get("/page");
    assert_eq!((reply.cache(), reply.text().as_str()), ("HIT", "page 1"), "the older one was not stored");
}

#[test]
fn connections_to_an_origin_that_nobody_asks_any_more_are_given_up() {
    let page = |_: &Request, answer: &mut Answer<'_>| answer.reply("200 OK", &["Cache-Control: no-store"], "page");
    let (old, new) = (Origin::start(page), Origin::start(page));
    let of = |origin: &Origin| {
        let mut http = pages_of(&[origin]);
        http.origin.idle_timeout = Duration::from_secs(1);
        settings_with(http)
    };
    let server = start(of(&old));
    let mut client = Http::connect(&server);
    assert_eq!(client.get("/page").text(), "page");
    assert_eq!(old.connections_open(), 1);
    server.reload(&of(&new)).expect("a reload");
    assert_eq!(Http::connect(&server).get("/page").text(), "page");
    eventually(|| old.connections_open() == 0 && new.connections_open() == 0);
    assert_eq!((old.connections(), new.connections()), (1, 1));
    // Whoever is still there gets another.
    assert_eq!(client.get("/page").text(), "page");
}

#[test]
fn an_origin_that_speaks_another_protocol_without_being_asked_has_not_answered() {
    let origin = Origin::start(|_, answer| answer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n"));
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    assert_eq!(client.get("/page").status, 502);
    assert_eq!(client.ask("DELETE", "/page", &[]).status, 502);
    assert_eq!(client.ask("PURGE", "/page", &[]).status, 404, "and HTTP goes on");
}
