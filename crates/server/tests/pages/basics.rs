//! Pages, end to end: a page listener in front of a scripted origin, and a memcached listener on the same pool.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Client, eventually};
use crate::http::{Http, request, serve, serve_with};
use nuthatch_pages::door::LogFormat;
use nuthatch_pages::negotiate::Coding;
use nuthatch_testkit::origin::{Answer, Origin};

/// Every answer is another one, fresh for a minute.
fn counting() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let body = format!("{} {} {number}", request.method, request.target);
        answer.reply("200 OK", &["Cache-Control: max-age=60", "Content-Type: text/plain"], body);
    })
}

#[test]
fn a_page_is_a_miss_and_then_a_hit_and_the_origin_is_asked_once() {
    let origin = counting();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let miss = client.get("/page?x=1");
    assert_eq!((miss.status, miss.cache(), miss.text().as_str()), (200, "MISS", "GET /page?x=1 1"));
    let hit = client.get("/page?x=1");
    assert_eq!((hit.status, hit.cache(), hit.text().as_str()), (200, "HIT", "GET /page?x=1 1"));
    assert_eq!((hit.field("age"), hit.field("via"), hit.field("content-type")), ("0", "1.1 nuthatch", "text/plain"));
    assert!(!hit.field("date").is_empty());
    assert_eq!(client.get("/page?x=2").text(), "GET /page?x=2 2");
    let head = client.ask("HEAD", "/page?x=1", &[]);
    assert_eq!((head.status, head.cache(), head.field("content-length")), (200, "HIT", "15"));
    assert_eq!(origin.count(), 2);
    assert_eq!(origin.connections(), 1, "its connection is used again");
}

#[test]
fn what_belongs_to_a_connection_stays_there_and_what_is_keyed_is_what_is_forwarded() {
    let origin = counting();
    let server = serve(&[&origin]);
    let lines = [
        "Connection: keep-alive, X-Mine",
        "X-Mine: 1",
        "X-Forwarded-Host: evil.example",
        "X-Original-URL: /admin",
        "X-HTTP-Method-Override: DELETE",
        "X-Forwarded-For: 10.9.8.7",
        "Accept-Encoding: br",
    ];
    let reply = Http::connect(&server).ask("GET", "/a/../%7Euser//x?b=%2f", &lines);
    assert_eq!(reply.status, 200);
    let asked = &origin.requests()[0];
    assert_eq!(asked.target, "/~user//x?b=%2F");
    assert_eq!((asked.field("host"), asked.field("x-forwarded-host")), (Some("a.example"), Some("a.example")));
    assert_eq!(asked.field("x-forwarded-for"), Some("10.9.8.7, 127.0.0.1"));
    assert_eq!((asked.field("x-forwarded-proto"), asked.field("via")), (Some("http"), Some("1.1 nuthatch")));
    for name in ["connection", "x-mine", "x-original-url", "x-http-method-override", "accept-encoding"] {
        assert_eq!(asked.field(name), None, "{name}");
    }
    assert_eq!(Http::connect(&server).get("/~user//x?b=%2F").cache(), "HIT");
}

#[test]
fn pipelined_requests_are_answered_in_order_and_an_old_client_is_served_and_left() {
    let origin = counting();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let targets = ["/a", "/b", "/a", "/b", "/c", "/a"];
    client.send(targets.map(|target| request("GET", target, &[])).concat());
    for target in targets {
        assert!(client.reply(false).text().starts_with(&format!("GET {target} ")), "{target}");
    }
    assert_eq!(origin.count(), 3);
    let mut old = Http::connect(&server);
    old.send("GET /a HTTP/1.0\r\nHost: a.example\r\n\r\n");
    let reply = old.reply(false);
    assert_eq!((reply.status, reply.cache()), (200, "HIT"));
    old.expect_close();
}

#[test]
fn a_page_is_an_item_that_a_memcached_client_sees_and_deletes() {
    let origin = counting();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.get("/page");
    let mut cache = Client::connect(&server);
    cache.ask("add page:http://a.example/page 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    cache.ask("delete page:http://a.example/page\r\n", "DELETED\r\n");
    let again = client.get("/page");
    assert_eq!((again.cache(), again.text().as_str()), ("MISS", "GET /page 2"));
    assert_eq!((cache.number("get_hits"), cache.number("get_misses")), (0, 2));
}

#[test]
fn a_request_body_is_streamed_and_an_unsafe_request_forgets_the_page() {
    let origin = Origin::start(|request, answer| {
        let body = format!("{} {}", request.method, request.body.len());
        answer.reply("200 OK", &["Cache-Control: max-age=60"], body);
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.get("/page");
    assert_eq!(client.get("/page").cache(), "HIT");
    let body = vec![b'x'; 3_000_000];
    client.send(format!("POST /page HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.reply(false).text(), "POST 3000000");
    assert_eq!(client.get("/page").cache(), "MISS");
    client
        .send("POST /other HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head_of_reply().status, 100);
    client.send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.reply(false).text(), "POST 5");
}

/// Answers what it is sent, five bytes at a time.
fn echo(answer: &mut Answer<'_>) {
    answer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    loop {
        let bytes = answer.take(5);
        if bytes.is_empty() {
            return;
        }
        answer.send(bytes);
    }
}

#[test]
fn an_upgraded_connection_ends_when_nothing_passes_for_tunnel_timeout_and_not_before() {
    let origin = Origin::start(|_, answer| echo(answer));
    for (timeout_seconds, ends) in [(600, true), (0, false)] {
        let server = serve_with(&[&origin], |http| http.origin.tunnel_timeout = Duration::from_secs(timeout_seconds));
        let (mut client, mut memcached) = (Http::connect(&server), Client::connect(&server));
        client.send(request("GET", "/socket", &["Connection: Upgrade", "Upgrade: echo"]));
        assert_eq!(client.head_of_reply().status, 101);
        let mut echoed = [0; 5];
        for _ in 0..3 {
            client.send("echo!");
            client.reader.read_exact(&mut echoed).expect("an echo, after 500 seconds of silence");
            memcached.ask("debugtime 500\r\n", "OK\r\n");
        }
        if ends {
            // The echo may be noted after the client has it, and the time was moved.
            eventually(|| {
                memcached.ask("debugtime 700\r\n", "OK\r\n");
                memcached.number("curr_connections") == 1
            });
            client.expect_close();
        } else {
            memcached.ask("debugtime 1000000\r\n", "OK\r\n");
            client.send("still");
            client.reader.read_exact(&mut echoed).expect("it is silent for as long as it likes");
        }
    }
}

#[test]
fn early_hints_and_other_protocols_pass() {
    let origin = Origin::start(|request, answer| match request.target.as_str() {
        "/hints" => {
            answer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
            answer.reply("200 OK", &[], "page");
        }
        _ if request.field("upgrade") == Some("echo") => echo(answer),
        _ => answer.reply("200 OK", &[], "not spoken here"),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.send(request("GET", "/hints", &[]));
    let hints = client.head_of_reply();
    assert_eq!((hints.status, hints.field("link")), (103, "</a.css>; rel=preload"));
    assert_eq!(client.reply(false).text(), "page");

    client.send(request("GET", "/socket", &["Connection: Upgrade", "Upgrade: echo"]));
    client.send("early");
    let switched = client.head_of_reply();
    assert_eq!((switched.status, switched.field("upgrade")), (101, "echo"));
    client.send("\0\u{1}\r\n\r");
    let mut echoed = [0; 10];
    client.reader.read_exact(&mut echoed).expect("an echo");
    assert_eq!(&echoed, b"early\0\x01\r\n\r");

    let mut client = Http::connect(&server);
    let reply = client.ask("GET", "/socket", &["Connection: Upgrade", "Upgrade: other"]);
    assert_eq!((reply.status, reply.text().as_str()), (200, "not spoken here"));
    assert_eq!(client.ask("GET", "/page", &[]).status, 200, "HTTP goes on");
}

#[test]
fn a_wish_for_http_2_or_none_at_all_is_plain_http_and_origins_are_not_told() {
    let origin = Origin::start(|request, answer| {
        let fields = ["connection", "upgrade", "http2-settings"].map(|name| request.field(name).unwrap_or("-"));
        let body = format!("{} {} {}", request.method, request.body.len(), fields.join(" "));
        answer.reply("200 OK", &["Cache-Control: max-age=60"], body);
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let settings = "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA";
    let h2c = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", settings];
    let first = client.ask("GET", "/page", &h2c);
    assert_eq!((first.status, first.text().as_str(), first.cache()), (200, "GET 0 - - -", "MISS"));
    assert_eq!(client.ask("GET", "/page", &h2c).cache(), "HIT");
    assert_eq!(client.ask("GET", "/page", &["Upgrade: websocket"]).cache(), "HIT", "Connection does not name it");
    // With a body it is no wish either, and the body arrives.
    let post = client.ask("POST", "/post", &["Connection: Upgrade", "Upgrade: h2c", settings, "Content-Length: 0"]);
    assert_eq!(post.text(), "POST 0 - - -");
    client.send(request("POST", "/post", &["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 4"]));
    client.send("text");
    assert_eq!(client.reply(false).text(), "POST 4 - - -");
    // What is done here is not done in another protocol, and HTTP goes on after it.
    for method in ["PURGE", "TRACE"] {
        let mut client = Http::connect(&server);
        client.send(request(method, "/page", &["Connection: Upgrade", "Upgrade: websocket"]));
        let status = client.reply(false).status;
        if method == "PURGE" {
            assert_eq!((status, client.get("/page").cache()), (200, "MISS"));
        } else {
            assert_eq!(status, 405);
        }
    }
}

#[test]
fn each_variant_has_its_own_page_and_one_delete_forgets_them_all() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let language = request.field("accept-language").unwrap_or("none");
        let lines = ["Cache-Control: max-age=60", "Vary: Accept-Language"];
        answer.reply("200 OK", &lines, format!("{language} {number}"));
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let mut ask = |language: &str| {
        let reply = client.ask("GET", "/page", &[&format!("Accept-Language: {language}")]);
        (reply.cache().to_owned(), reply.text())
    };
    let pair = |cache: &str, text: &str| (cache.to_owned(), text.to_owned());
    assert_eq!([ask("de"), ask("fr")], [pair("MISS", "de 0"), pair("MISS", "fr 1")]);
    assert_eq!([ask("de"), ask("fr")], [pair("HIT", "de 0"), pair("HIT", "fr 1")]);
    Client::connect(&server).ask("delete page:http://a.example/page\r\n", "DELETED\r\n");
    assert_eq!([ask("fr"), ask("de")], [pair("MISS", "fr 2"), pair("MISS", "de 3")]);
}

#[test]
fn a_stale_page_is_revalidated_and_ranges_and_conditions_are_answered_from_memory() {
    let origin = Origin::start(|request, answer| {
        let lines = ["Cache-Control: max-age=10", "ETag: \"one\""];
        match request.field("if-none-match") {
            Some("\"one\"") => {
                answer.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=10\r\nETag: \"one\"\r\n\r\n")
            }
            _ => answer.reply("200 OK", &lines, "0123456789"),
        }
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=2-4"]).text(), "234");
    assert_eq!(client.ask("GET", "/page", &["If-None-Match: \"one\""]).status, 304);
    let part = client.ask("GET", "/page", &["Range: bytes=-3"]);
    assert_eq!((part.status, part.field("content-range"), part.text().as_str()), (206, "bytes 7-9/10", "789"));
    let parts = client.ask("GET", "/page", &["Range: bytes=0-1,8-9"]);
    assert!(parts.field("content-type").starts_with("multipart/byteranges; boundary="), "{parts:?}");
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=99-"]).status, 416);
    assert_eq!(origin.count(), 1);
    Client::connect(&server).ask("debugtime 20\r\n", "OK\r\n");
    let revalidated = client.get("/page");
    assert_eq!((revalidated.status, revalidated.text().as_str(), origin.count()), (200, "0123456789", 2));
    assert_eq!(client.get("/page").cache(), "HIT");
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_page_that_is_stored_compressed_is_cut_and_judged_alike_for_whoever_does_not_take_that() {
    let text: String = (0..1000).map(|n| format!("{n:03} ")).collect();
    let sent = text.clone();
    let origin = Origin::start(move |_, answer| {
        answer.reply("200 OK", &["Cache-Control: max-age=60", "Content-Type: text/plain", "ETag: \"one\""], &sent);
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.get("/page");
    let plain = client.get("/page");
    assert_eq!((plain.cache(), plain.field("content-encoding"), plain.text() == text), ("HIT", "", true));
    assert_eq!(client.ask("HEAD", "/page", &[]).field("content-length"), "4000");
    let one = client.ask("GET", "/page", &["Range: bytes=4-6"]);
    assert_eq!((one.status, one.field("content-range"), one.text().as_str()), (206, "bytes 4-6/4000", "001"));
    let two = client.ask("GET", "/page", &["Range: bytes=0-2,-4"]);
    assert!(two.status == 206 && two.field("content-type").starts_with("multipart/byteranges"), "{two:?}");
    assert!(two.text().contains("\r\n000\r\n") && two.text().contains("\r\n999 \r\n"), "{}", two.text());
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=4000-"]).status, 416);
    for coding in ["identity", "gzip"] {
        let accept = format!("Accept-Encoding: {coding}");
        assert_eq!(client.ask("GET", "/page", &[&accept, "If-None-Match: W/\"one\""]).status, 304, "{coding}");
        assert_eq!(client.ask("GET", "/page", &[&accept, "If-Match: \"other\""]).status, 412, "{coding}");
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_large_page_is_served_from_all_its_pieces_and_one_past_the_limit_passes_through() {
    let body: Vec<u8> = (0..3_000_000u64).map(|n| ((n * 7919) >> 5) as u8).collect();
    let sent = body.clone();
    let origin = Origin::start(move |request, answer| match request.target.as_str() {
        "/chunked" => {
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in sent.chunks(100_000) {
                answer.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            answer.send("0\r\n\r\n");
        }
        _ => answer.reply("200 OK", &["Cache-Control: max-age=60"], &sent),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for (target, cache) in [("/sized", "MISS"), ("/sized", "HIT"), ("/chunked", "MISS"), ("/chunked", "HIT")] {
        let reply = client.get(target);
        assert_eq!(reply.cache(), cache, "{target}");
        assert!(reply.body == body, "{target} {cache}");
    }
    let server = serve_with(&[&origin], |http| http.pages.page_bytes_max = 1_000_000);
    let mut client = Http::connect(&server);
    for target in ["/sized", "/sized", "/chunked", "/chunked"] {
        let reply = client.get(target);
        assert_eq!(reply.cache(), "MISS", "{target}");
        assert!(reply.body == body, "{target}");
    }
}

#[test]
fn one_compressed_copy_is_served_as_each_client_takes_it() {
    let text = "all work and no play makes a dull page. ".repeat(500);
    let sent = text.clone();
    let origin = Origin::start(move |_, answer| {
        answer.reply("200 OK", &["Cache-Control: max-age=60", "Content-Type: text/html", "ETag: \"a\""], &sent);
    });
    for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
        let server = serve_with(&[&origin], |http| http.pages.compress = coding);
        let mut client = Http::connect(&server);
        assert_eq!(client.get("/page").text(), text);
        let plain = client.get("/page");
        assert_eq!((plain.cache(), plain.text().as_str(), plain.field("content-encoding")), ("HIT", &text[..], ""));
        let accepts = format!("Accept-Encoding: {}", coding.token());
        let packed = client.ask("GET", "/page", &[&accepts]);
        assert_eq!((packed.field("content-encoding"), packed.field("vary")), (coding.token(), "accept-encoding"));
        assert_eq!(packed.field("etag"), "W/\"a\"");
        assert!(packed.body.len() * 5 < text.len(), "{} bytes", packed.body.len());
        let unpacked = nuthatch_pages::negotiate::decode(coding, &packed.body, Default::default());
        assert_eq!(unpacked.expect("it can be undone"), text.as_bytes());
        assert_eq!(client.ask("GET", "/page", &["Range: bytes=0-2"]).text(), "all");
    }
}

#[test]
fn a_session_is_passed_and_no_cookie_of_anybody_reaches_what_all_see() {
    let origin = Origin::start(|request, answer| {
        let cookie = request.field("cookie").unwrap_or("none").to_owned();
        let private = if cookie.contains("sid") { "Cache-Control: private" } else { "Cache-Control: max-age=60" };
        answer.reply("200 OK", &[private, "Vary: Cookie"], cookie);
    });
    let server = serve_with(&[&origin], |http| {
        http.pages.anonymous_only = true;
        http.pages.session_cookies = vec!["sid".to_owned()];
    });
    let mut client = Http::connect(&server);
    let mut ask = |lines: &[&str]| {
        let reply = client.ask("GET", "/page", lines);
        (reply.cache().to_owned(), reply.text())
    };
    let pair = |cache: &str, text: &str| (cache.to_owned(), text.to_owned());
    assert_eq!(ask(&["Cookie: _ga=1; theme=dark"]), pair("MISS", "none"));
    assert_eq!(ask(&["Cookie: theme=light"]), pair("HIT", "none"));
    assert_eq!(ask(&["Cookie: sid=7; theme=dark"]), pair("MISS", "sid=7; theme=dark"));
    assert_eq!(ask(&["Cookie: sid=7; theme=dark"]), pair("MISS", "sid=7; theme=dark"));
    assert_eq!(ask(&["Authorization: Basic x"]), pair("MISS", "none"));
    assert_eq!(ask(&[]), pair("HIT", "none"));
}

#[test]
fn the_access_log_says_how_each_request_was_answered() {
    let origin = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let server = serve_with(&[&origin], |http| {
        http.pages.access_log = Some(path.clone());
        http.pages.log_format = LogFormat::Squid;
    });
    let mut client = Http::connect(&server);
    client.get("/page");
    client.get("/page");
    client.ask("PURGE", "/page", &[]);
    let lines = || -> Vec<String> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect()
    };
    eventually(|| lines().len() == 3);
    assert_eq!(
        lines(),
        [
            "127.0.0.1 TCP_MISS/200 11 GET http://a.example/page - FIRSTUP_PARENT/origin text/plain",
            "127.0.0.1 TCP_MEM_HIT/200 11 GET http://a.example/page - HIER_NONE/- text/plain",
            "127.0.0.1 NONE_NONE/200 7 PURGE http://a.example/page - HIER_NONE/- text/plain",
        ]
    );
}

#[test]
fn a_stopping_server_finishes_its_answers() {
    let gate = nuthatch_testkit::origin::Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_, answer| {
        held.wait();
        answer.reply("200 OK", &[], "late");
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.send(request("GET", "/page", &[]));
    eventually(|| origin.count() == 1);
    server.stop();
    gate.open();
    assert_eq!(client.reply(false).text(), "late");
    client.expect_close();
    server.wait();
}
