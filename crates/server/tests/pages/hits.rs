//! Hits that are answered from bytes to bytes are those that are answered by way of header maps: the same request is sent
//! as a plain one and as one that names an option of its connection, which is none, and the answers are compared.

use std::fs;

use crate::common::{Client, eventually};
use crate::http::{Http, Reply, request, serve_with};
use nuthatch_pages::door::{Announce, LogFormat};
use nuthatch_pages::negotiate::Coding;
use nuthatch_testkit::origin::Origin;

const NOT_PLAIN: &str = "Connection: keep-alive, x-none";

/// Pages of many kinds. Each is fresh for a minute.
fn origin() -> Origin {
    Origin::start(|request, answer| {
        let fresh = "Cache-Control: max-age=60";
        let text = "what a page says, and says again. ".repeat(400);
        match request.target.as_str() {
            "/text" => answer.reply("200 OK", &[fresh, "Content-Type: text/html; charset=utf-8", "ETag: \"a\""], text),
            "/gone" => answer.reply("410 Gone", &[fresh], "gone"),
            "/empty" => answer.reply("200 OK", &[fresh], ""),
            "/moved" => answer.reply("301 Moved Permanently", &[fresh, "Location: /text"], "there"),
            "/odd" => answer.reply("299 Odd", &[fresh], "odd"),
            "/large" => answer.reply("200 OK", &[fresh, "Content-Type: image/png"], "0123456789".repeat(40_000)),
            "/announced" => {
                let lines = [
                    fresh,
                    "Via: 1.0 other",
                    "X-Cache: MISS from other",
                    "Age: 3",
                    "Link: <a>",
                    "Link: <b>",
                    "Cache-Status: other; hit",
                    "X-Empty:",
                ];
                answer.reply("200 OK", &lines, "announced");
            }
            "/varies" => answer.reply("200 OK", &[fresh, "Vary: Accept-Language"], "varies"),
            "/stale" => answer.reply("200 OK", &["Cache-Control: max-age=0, stale-while-revalidate=60"], "stale"),
            _ => answer.reply("404 Not Found", &[fresh], request.target.clone()),
        }
    })
}

/// What of an answer may not differ.
fn compared(reply: &Reply) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let mut fields = reply.fields.clone();
    // A second may have passed.
    fields.iter_mut().filter(|(name, _)| name == "age").for_each(|(_, value)| value.clear());
    fields.iter_mut().filter(|(name, _)| name == "cache-status").for_each(|(_, value)| {
        value.truncate(value.find("ttl=").unwrap_or(value.len()));
    });
    fields.sort();
    (reply.status, fields, reply.body.clone())
}

const TARGETS: [&str; 12] = [
    "/text",
    "/gone",
    "/empty",
    "/moved",
    "/odd",
    "/large",
    "/announced",
    "/varies",
    "/stale",
    "/none?utm_source=x&b=%7e",
    "/a/../text",
    "//text",
];

const ASKED: [&[&str]; 16] = [
    &[],
    &["Accept-Encoding: gzip, br"],
    &["Accept-Encoding: identity"],
    &["Accept-Encoding: br;q=0, gzip;q=0.5"],
    &["Accept-Encoding: gzip;q=0", "Accept-Encoding: *"],
    &["Cookie: _ga=1; theme=dark"],
    &["Cookie: wiki_session=1"],
    &["Cookie: _ga=1", "Cookie: wiki_session=1"],
    &["If-None-Match: \"a\""],
    &["IF-None-Match: W/\"a\""],
    &["Range: bytes=2-5"],
    &["Cache-Control: no-cache"],
    &["Pragma: no-cache"],
    &["Authorization: Basic x"],
    &["Content-Length: 0", "User-Agent: some"],
    &["X-Anything: goes", "Referer: http://b.example/", "Accept-Language: de", "Keep-Alive: 5"],
];

#[test]
fn a_plain_request_is_answered_as_any_other() {
    let origin = origin();
    for coding in [Coding::Identity, Coding::Gzip] {
        for everything in [false, true] {
            let server = serve_with(&[&origin], |http| {
                http.pages.compress = coding;
                http.pages.anonymous_only = true;
                http.pages.presets = vec!["mediawiki".to_owned()];
                http.pages.dropped_parameters = vec!["utm_*".to_owned()];
                if everything {
                    let on = true;
                    http.pages.announce =
                        Announce { x_cache: on, x_cache_lookup: on, served_by: on, cache_status: on, via: on };
                }
            });
            let (mut plain, mut other) = (Http::connect(&server), Http::connect(&server));
            for target in TARGETS {
                other.get(target);
                // The first request may have been joined by a refresh behind it.
                other.get(target);
                for asked in ASKED {
                    // What is not there yet is there now, or never.
                    other.ask("GET", target, asked);
                    let by_bytes = plain.ask("GET", target, asked);
                    let by_maps = other.ask("GET", target, &[asked, &[NOT_PLAIN]].concat());
                    let context = format!("{target} {asked:?} {coding:?}");
                    if target == "/stale" || by_maps.cache() == "MISS" {
                        // What each asks the origin for anew.
                        assert_eq!((by_bytes.status, by_bytes.text()), (by_maps.status, by_maps.text()), "{context}");
                        continue;
                    }
                    assert_eq!(compared(&by_bytes), compared(&by_maps), "{context}");
                }
            }
        }
    }
}

#[test]
fn hits_misses_and_refusals_of_one_connection_are_answered_in_their_order() {
    let origin = origin();
    let server = serve_with(&[&origin], |_| {});
    Http::connect(&server).get("/large");
    let mut client = Http::connect(&server);
    let large = request("GET", "/large", &[]);
    let mut sent = String::new();
    for number in 0..20 {
        sent.push_str(&large);
        sent.push_str(&request("GET", &format!("/miss{number}"), &[]));
        sent.push_str(&request("HEAD", "/large", &[]));
        sent.push_str(&large);
        sent.push_str(&format!("POST /post HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", large.len()));
        // A body that looks like a request.
        sent.push_str(&large);
        sent.push_str(&large);
    }
    sent.push_str("GET /large HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    client.send(sent);
    for number in 0..20 {
        assert_eq!(client.reply(false).body.len(), 400_000);
        assert_eq!(client.reply(false).text(), format!("/miss{number}"));
        assert_eq!(client.reply(true).field("content-length"), "400000");
        assert_eq!(client.reply(false).body.len(), 400_000);
        assert_eq!(client.reply(false).text(), "/post");
        assert_eq!(client.reply(false).body.len(), 400_000);
    }
    assert_eq!(client.reply(false).status, 400);
    client.expect_close();
}

#[test]
fn a_hit_that_arrives_in_parts_and_one_that_is_taken_slowly_are_whole() {
    let origin = origin();
    let server = serve_with(&[&origin], |_| {});
    let mut client = Http::connect(&server);
    let whole = client.get("/large");
    for cut in [1, 4, 20, 30] {
        let asked = request("GET", "/large", &[]);
        client.send(&asked[..cut]);
        // The server has seen the first part when it answers another connection.
        Http::connect(&server).get("/empty");
        client.send(&asked[cut..]);
        assert_eq!(client.reply(false).body, whole.body);
    }
    // More answers than sockets hold; all are asked for before the first is taken.
    client.send(request("GET", "/large", &[]).repeat(50));
    for _ in 0..50 {
        assert_eq!(client.reply(false).body, whole.body);
    }
    drop(client);
    // One that goes away in the middle leaves nothing behind.
    let mut memcached = Client::connect(&server);
    eventually(|| memcached.number("curr_connections") == 1);
    let before = memcached.number("read_buf_bytes");
    let mut client = Http::connect(&server);
    client.send(request("GET", "/large", &[]).repeat(50));
    drop(client);
    eventually(|| memcached.number("curr_connections") == 1);
    assert_eq!(memcached.number("read_buf_bytes"), before);
}

#[test]
fn what_a_memcached_client_writes_under_a_pages_key_ends_no_answers_head() {
    let origin = origin();
    let server = serve_with(&[&origin], |_| {});
    let mut client = Http::connect(&server);
    client.get("/announced");
    assert_eq!(client.get("/announced").cache(), "HIT");
    let key = "page:http://a.example/announced";
    let mut memcached = Client::connect(&server);
    memcached.send(format!("get {key}\r\n"));
    let line = memcached.read_until("\r\n");
    let bytes = line.trim_end().rsplit(' ').next().and_then(|bytes| bytes.parse().ok()).expect("the page's item");
    let mut value = memcached.take(bytes);
    memcached.expect("\r\nEND\r\n");
    let at = value.windows(3).position(|bytes| bytes == b"<a>").expect("a field");
    value[at..at + 3].copy_from_slice(b"\r\nX");
    memcached.send(format!("set {key} 0 0 {bytes}\r\n"));
    memcached.send(value);
    memcached.ask("\r\n", "STORED\r\n");
    let reply = client.get("/announced");
    assert_eq!((reply.status, reply.cache()), (200, "MISS"));
}

#[test]
fn hits_are_in_the_access_log_and_in_the_counters() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let server = serve_with(&[&origin], |http| {
        http.pages.access_log = Some(path.clone());
        http.pages.log_format = LogFormat::Combined;
    });
    let mut client = Http::connect(&server);
    let lines = ["User-Agent: some \"agent\"", "Referer: http://b.example/"];
    for _ in 0..3 {
        client.ask("GET", "/text", &lines);
    }
    let log = || fs::read_to_string(&path).unwrap_or_default();
    eventually(|| log().lines().count() == 3);
    let hit = log().lines().nth(2).unwrap_or_default().to_owned();
    assert!(
        hit.ends_with(
            "\"GET http://a.example/text HTTP/1.1\" 200 13600 \"http://b.example/\" \"some \\x22agent\\x22\" TCP_MEM_HIT:HIER_NONE"
        ),
        "{hit}"
    );
    let mut memcached = Client::connect(&server);
    assert_eq!((memcached.number("cmd_get"), memcached.number("get_hits")), (3, 2));
    // One that is no plain hit is counted and logged in the same way.
    client.ask("GET", "/text", &["If-None-Match: W/\"a\""]);
    client.ask("PURGE", "/text", &[]);
    for (name, expected) in
        [("page_mem_hits", 2), ("page_ims_hits", 1), ("page_misses", 1), ("page_others", 1), ("page_denied", 0)]
    {
        assert_eq!(memcached.stat("stats pools", &format!("default:{name}")), expected.to_string(), "{name}");
    }
}
