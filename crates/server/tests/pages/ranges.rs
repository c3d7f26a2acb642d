//! Ranges of pages that are being fetched, from origins that send the whole when they are asked for a range.

use std::io::{Read, Write};

use crate::common::{Client, eventually};
use crate::http::{Http, Reply, request, serve};
use crate::slow::{HEAD, frame, h2, head_on, next_frame};
use nuthatch_testkit::origin::{Answer, Gate, Origin, Request};

const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz";

/// Sends the first ten letters, and the others when `gate` opens.
fn send_alphabet(answer: &mut Answer<'_>, gate: &Gate) {
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Length: 26\r\n\r\n";
    answer.send(format!("{head}{}", &ALPHABET[..10]));
    gate.wait();
    answer.send(&ALPHABET[10..]);
}

/// An origin that knows no ranges, and what holds the rest of its page back.
fn alphabet() -> (Origin, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    (Origin::start(move |_, answer| send_alphabet(answer, &held)), gate)
}

/// A client that has asked for a range, and the head of its answer.
fn ask_for(server: &nuthatch_server::Running, target: &str, lines: &[&str]) -> (Http, Reply) {
    let mut client = Http::connect(server);
    client.send(request("GET", target, lines));
    let head = client.head_of_reply();
    (client, head)
}

#[test]
fn a_range_is_answered_as_its_bytes_arrive_and_the_page_fetched_once_and_stored_whole() {
    let (origin, gate) = alphabet();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for (range, place, text) in [
        ("bytes=0-4", "bytes 0-4/26", "abcde"),
        ("bytes=5-9", "bytes 5-9/26", "fghij"),
        ("bytes=2-2", "bytes 2-2/26", "c"),
    ] {
        let reply = client.ask("GET", "/page", &[&format!("Range: {range}")]);
        assert_eq!((reply.status, reply.field("content-range"), reply.text().as_str()), (206, place, text));
        assert_eq!((reply.field("content-length"), reply.cache()), (text.len().to_string().as_str(), "MISS"));
    }
    let outside = client.ask("GET", "/page", &["Range: bytes=26-"]);
    assert_eq!((outside.status, outside.field("content-range")), (416, "bytes */26"));
    // Those whose bytes are to come have their heads already.
    let mut waiting = Vec::new();
    for (range, place, text) in [
        ("bytes=8-12", "bytes 8-12/26", &ALPHABET[8..13]),
        ("bytes=20-", "bytes 20-25/26", &ALPHABET[20..]),
        ("bytes=-3", "bytes 23-25/26", &ALPHABET[23..]),
        // They overlap: they are one.
        ("bytes=-24,2-2", "bytes 2-25/26", &ALPHABET[2..]),
        ("bytes=0-99", "bytes 0-25/26", ALPHABET),
    ] {
        let (client, head) = ask_for(&server, "/page", &[&format!("Range: {range}")]);
        assert_eq!((head.status, head.field("content-range")), (206, place));
        waiting.push((client, head, text));
    }
    let (client, head) = ask_for(&server, "/page", &[]);
    assert_eq!((head.status, head.field("content-length")), (200, "26"));
    waiting.push((client, head, ALPHABET));
    // One goes.
    drop(ask_for(&server, "/page", &["Range: bytes=9-11"]));
    gate.open();
    for (mut client, head, text) in waiting {
        assert_eq!(client.try_body(&head).as_deref(), Some(text.as_bytes()), "{head:?}");
    }
    let mut client = Http::connect(&server);
    eventually(|| client.get("/page").cache() == "HIT");
    let reply = client.get("/page");
    assert_eq!((reply.text().as_str(), reply.field("content-range"), origin.count()), (ALPHABET, "", 1));
    assert_eq!(Client::connect(&server).number("cmd_set"), 1);
}

#[test]
fn a_range_is_answered_as_its_bytes_arrive_over_http_2() {
    let (origin, gate) = alphabet();
    let server = serve(&[&origin]);
    let stream = h2(&server);
    let head = [HEAD, b"\x72\x09bytes=3-6"].concat();
    (&stream).write_all(&frame(1, 5, 1, &head)).expect("the server reads");
    // 206 in HPACK's static table.
    assert_eq!(head_on(&stream, 1)[0], 0x8a);
    let (mut body, mut is_over) = (Vec::new(), false);
    while !is_over {
        if let (0, flags, 1, payload) = next_frame(&stream) {
            body.extend_from_slice(&payload);
            is_over = flags & 1 == 1;
        }
    }
    assert_eq!(body, b"defg");
    gate.open();
    eventually(|| Http::connect(&server).get("/").cache() == "HIT");
    assert_eq!(origin.count(), 1);
}

#[test]
fn clients_of_ranges_that_go_do_not_end_the_fetch() {
    let (origin, gate) = alphabet();
    let server = serve(&[&origin]);
    let clients = ["bytes=0-1", "bytes=3-12", "bytes=-2"].map(|range| {
        let (client, head) = ask_for(&server, "/page", &[&format!("Range: {range}")]);
        assert_eq!(head.status, 206);
        client
    });
    drop(clients);
    let mut cache = Client::connect(&server);
    gate.open();
    eventually(|| cache.number("cmd_set") == 1);
    assert_eq!((Http::connect(&server).get("/page").text().as_str(), origin.count()), (ALPHABET, 1));
}

#[test]
fn a_range_that_breaks_off_is_no_whole_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_, answer| {
        answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 26\r\n\r\nabcdef");
        held.wait();
        answer.close();
    });
    let server = serve(&[&origin]);
    let (mut cut, head) = ask_for(&server, "/page", &["Range: bytes=4-7"]);
    assert_eq!(head.field("content-range"), "bytes 4-7/26");
    // What had arrived is whole.
    assert_eq!(Http::connect(&server).ask("GET", "/page", &["Range: bytes=4-5"]).text(), "ef");
    gate.open();
    let mut told = Vec::new();
    let _ = cut.reader.read_to_end(&mut told);
    assert_eq!(told, b"ef");
    assert_eq!(Client::connect(&server).number("cmd_set"), 0);
}

#[test]
fn a_range_is_the_same_from_what_arrives_as_from_the_stored_page() {
    let origin = Origin::start(|request: &Request, answer| {
        let text = "All work and no play. ".repeat(100);
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nLast-Modified: Wed, 01 Jan 2020 00:00:00 GMT";
        let kind = if request.target.contains("text") { "text/plain" } else { "image/png" };
        let head = format!("{fields}\r\nContent-Type: {kind}");
        match request.target.contains("chunks") {
            true => answer.send(format!(
                "HTTP/1.1 200 OK\r\n{head}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
                text.len()
            )),
            false if request.target.contains("404") => {
                answer.reply("404 Not Found", &["Cache-Control: max-age=60"], "no page");
            }
            false => answer.reply("200 OK", &head.split("\r\n").collect::<Vec<_>>(), text),
        }
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let cases: [&[&str]; 14] = [
        &["Range: bytes=5-99"],
        &["Range: bytes=-7"],
        &["Range: bytes=2190-"],
        &["Range: bytes=2200-"],
        &["Range: bytes=0-1,2-3"],
        &["Range: bytes=0-1,5-6"],
        &["Range: bytes=9-3"],
        &["Range: lines=0-1"],
        &["Range: bytes=5-99", "If-Range: \"a\""],
        &["Range: bytes=5-99", "If-Range: \"b\""],
        &["Range: bytes=5-99", "If-Range: Wed, 01 Jan 2020 00:00:00 GMT"],
        &["Range: bytes=5-99", "If-None-Match: \"a\""],
        &["Range: bytes=5-99", "If-Match: \"b\""],
        &["Range: bytes=5-99", "If-Match: \"a\""],
    ];
    for kind in ["image", "text", "image-chunks", "text-chunks", "404"] {
        for (number, lines) in cases.iter().enumerate() {
            for coding in ["gzip", "identity"] {
                let target = format!("/{kind}-{number}-{coding}");
                let accept = format!("Accept-Encoding: {coding}");
                let lines: Vec<&str> = lines.iter().copied().chain([accept.as_str()]).collect();
                let first = client.ask("GET", &target, &lines);
                let again = client.ask("GET", &target, &lines);
                let of = |reply: &Reply| {
                    let names = ["content-range", "content-encoding", "content-length", "etag"];
                    let fields = names.map(|name| reply.field(name).to_owned());
                    // Each answer of several ranges has a boundary of its own.
                    let is_many = reply.field("content-type").starts_with("multipart/");
                    (reply.status, fields, if is_many { Vec::new() } else { reply.body.clone() })
                };
                let (first, again) = (of(&first), of(&again));
                // The whole may come before its length is known and before it is compressed.
                let is_same = first == again || (first.0, again.0) == (200, 200);
                assert!(is_same, "{target} {lines:?}: {:?} {:?}", (first.0, first.1), (again.0, again.1));
            }
        }
    }
}

#[test]
fn an_origin_that_knows_ranges_is_asked_for_one_that_has_not_arrived() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request, answer| match request.field("range") {
        Some("bytes=20-") => {
            let lines = ["Cache-Control: max-age=60", "ETag: \"a\"", "Content-Range: bytes 20-25/26"];
            answer.reply("206 Partial Content", &lines, &ALPHABET[20..]);
        }
        _ => send_alphabet(answer, &held),
    });
    let server = serve(&[&origin]);
    let (mut whole, head) = ask_for(&server, "/page", &[]);
    let mut first = vec![0; 10];
    whole.reader.read_exact(&mut first).expect("the first ten letters");
    let mut client = Http::connect(&server);
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=3-6"]).text(), "defg");
    assert_eq!(origin.count(), 1);
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=20-"]).text(), "uvwxyz");
    assert_eq!(origin.count(), 2);
    gate.open();
    let mut rest = vec![0; 16];
    whole.reader.read_exact(&mut rest).expect("the other letters");
    assert_eq!((head.status, [first, rest].concat().as_slice()), (200, ALPHABET.as_bytes()));
}
