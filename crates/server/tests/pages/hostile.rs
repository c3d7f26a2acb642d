//! Purges by whom they may and may not come from, and requests that are refused: with the right status, nothing stored,
//! and the connection closed.

use std::net::UdpSocket;

use crate::common::{address, eventually, listener, start};
use crate::http::{Http, pages_of, request, serve, serve_with, settings_with};
use nuthatch_server::settings::{Address, HttpSettings, Protocol};
use nuthatch_testkit::origin::Origin;

fn fresh() -> Origin {
    Origin::start(|request, answer| {
        answer.reply("200 OK", &["Cache-Control: max-age=60", "Vary: Accept-Language"], request.target.clone());
    })
}

#[test]
fn purges_come_in_absolute_form_and_pipelined_as_mediawiki_sends_them() {
    let origin = fresh();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for language in ["de", "fr"] {
        client.ask("GET", "/wiki/Main_Page", &[&format!("Accept-Language: {language}")]);
    }
    let mut purger = Http::connect(&server);
    let purge = |path: &str| {
        format!(
            "PURGE http://a.example{path} HTTP/1.1\r\nHost: a.example\r\nConnection: Keep-Alive\r\nProxy-Connection: Keep-Alive\r\n\r\n"
        )
    };
    purger.send([purge("/wiki/Main_Page"), purge("/wiki/Nothing"), purge("/wiki/Main_Page")].concat());
    assert_eq!([0; 3].map(|_| purger.reply(false).status), [200, 404, 404]);
    for language in ["de", "fr"] {
        let reply = client.ask("GET", "/wiki/Main_Page", &[&format!("Accept-Language: {language}")]);
        assert_eq!(reply.cache(), "MISS", "{language}");
    }
}

#[test]
fn a_soft_purge_makes_a_page_stale_and_others_may_not_purge() {
    let origin = Origin::start(|request, answer| match request.field("if-none-match") {
        Some(_) => answer.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n\r\n"),
        None => answer.reply("200 OK", &["Cache-Control: max-age=60", "ETag: \"a\""], "page"),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.get("/page");
    assert_eq!(client.ask("PURGE", "/page", &["Purge: soft"]).text(), "made stale\n");
    assert_eq!(client.get("/page").text(), "page");
    assert!(origin.requests()[1].field("if-none-match").is_some(), "it was asked whether the page still holds");
    assert_eq!((client.get("/page").cache(), origin.count()), ("HIT", 2));

    let server = serve_with(&[&origin], |http| http.pages.purge_from = vec!["10.0.0.0/8".to_owned()]);
    let mut client = Http::connect(&server);
    client.get("/page");
    assert_eq!(client.ask("PURGE", "/page", &[]).status, 403);
    assert_eq!(client.get("/page").cache(), "HIT");
}

#[test]
fn htcp_clears_a_page_with_mediawikis_order_of_bits() {
    let origin = fresh();
    let mut settings = settings_with(pages_of(&[&origin]));
    let mut htcp = listener(0);
    htcp.address = Address::Udp("127.0.0.1:0".parse().expect("an address"));
    htcp.protocol = Protocol::Htcp;
    htcp.http = Some(HttpSettings { origin: Default::default(), pages: Default::default() });
    settings.listeners.push(htcp);
    let server = start(settings);
    let mut client = Http::connect(&server);
    client.get("/page");
    assert_eq!(client.get("/page").cache(), "HIT");
    let url = b"http://a.example/page";
    let mut specifier = b"\0\x04HEAD\0\x15".to_vec();
    specifier.extend_from_slice(url);
    specifier.extend_from_slice(b"\0\x08HTTP/1.0\0\0");
    let data = 10 + specifier.len() as u16;
    let mut packet = (4 + data + 2).to_be_bytes().to_vec();
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(&data.to_be_bytes());
    packet.extend_from_slice(&[4, 0, 9, 9, 9, 9, 0, 0]);
    packet.extend_from_slice(&specifier);
    packet.extend_from_slice(&[0, 2]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for rubbish in [&b""[..], b"\0", &packet[..10], &[0xff; 100]] {
        socket.send_to(rubbish, address(&server, 2)).expect("sent");
    }
    socket.send_to(&packet, address(&server, 2)).expect("sent");
    eventually(|| client.get("/page").cache() == "MISS" || origin.count() == 2);
}

#[test]
fn hostile_requests_are_refused_and_the_connection_is_closed() {
    let origin = fresh();
    let server = serve(&[&origin]);
    let long = "x".repeat(20_000);
    let flood = "X: y\r\n".repeat(101);
    let huge = format!("X: {}\r\n", "y".repeat(70_000));
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n".to_owned(),
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello".to_owned(), 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), 501),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n".to_owned(), 400),
        ("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), 400),
        ("GET a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET /<script> HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{flood}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{huge}\r\n"), 431),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405),
        ("\x16\x03\x01\x02\0\x01\0\x01\u{1}".to_owned(), 400),
    ];
    for (hostile, status) in cases {
        let mut client = Http::connect(&server);
        // One in order before it is answered, one after it is not.
        client.send(format!("{}{hostile}{}", request("GET", "/first", &[]), request("GET", "/smuggled", &[])));
        let shown: String = hostile.chars().take(80).collect();
        assert_eq!(client.reply(false).text(), "/first", "{shown:?}");
        let reply = client.reply(false);
        assert_eq!(reply.status, status, "{shown:?}: {reply:?}");
        client.expect_close();
    }
    assert_eq!(origin.count_of("/smuggled"), 0);
    assert_eq!(origin.count(), origin.count_of("/first"), "none of them came through");
}

#[test]
fn chunks_that_are_not_as_announced_end_the_connection() {
    let origin = fresh();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.send(
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloGET /smuggled HTTP/1.1\r\n\r\n",
    );
    let reply = client.reply(false);
    assert_eq!(reply.status, 400, "{reply:?}");
    client.expect_close();
    assert_eq!(origin.count_of("/smuggled"), 0);
}

#[test]
fn error_pages_and_cookies_are_not_kept() {
    let origin = Origin::start(|request, answer| match request.target.as_str() {
        "/cookie" => answer.reply("200 OK", &["Cache-Control: max-age=60", "Set-Cookie: a=b"], "x"),
        "/400" => answer.reply("400 Bad Request", &["Cache-Control: max-age=60"], "x"),
        _ => answer.reply("500 Internal Server Error", &[], "x"),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for target in ["/cookie", "/400", "/500"] {
        for _ in 0..2 {
            assert_eq!(client.get(target).cache(), "MISS", "{target}");
        }
    }
    assert_eq!(origin.count(), 6);
}

#[test]
fn what_the_origin_is_not_shown_chooses_no_variant() {
    let origin = Origin::start(|request, answer| {
        let language = request.field("accept-language").unwrap_or("none").to_owned();
        let lines = ["Cache-Control: max-age=60", "Vary: Accept-Language"];
        answer.reply("200 OK", &lines, language);
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let hidden = ["Accept-Language: de", "Connection: keep-alive, Accept-Language"];
    assert_eq!(client.ask("GET", "/page", &hidden).text(), "none");
    assert_eq!(client.ask("GET", "/page", &["Accept-Language: de"]).text(), "de", "nobody's page was poisoned");
    let reply = client.ask("GET", "/page", &["Connection: Host"]);
    assert_eq!((reply.text().as_str(), reply.cache()), ("none", "HIT"), "a Host is for all, whatever Connection says");
}

#[test]
fn fields_that_applications_take_for_others_do_not_reach_the_origin() {
    let origin = fresh();
    let server = serve(&[&origin]);
    let lines =
        ["X_Forwarded_Host: evil", "Accept_Language: de", "Transfer_Encoding: chunked", "X.Host: evil", "Proxy: evil"];
    Http::connect(&server).ask("GET", "/page", &lines);
    Http::connect(&server).ask("POST", "/page", &lines);
    for asked in origin.requests() {
        for line in lines {
            let name = line.split(':').next().unwrap_or_default();
            assert_eq!(asked.field(&name.to_ascii_lowercase()), None, "{name} of {}", asked.method);
        }
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_whole_url_needs_no_path_and_an_options_for_this_server_goes_no_further() {
    let origin = fresh();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.send("GET http://a.example?b HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(client.reply(false).text(), "/?b");
    assert_eq!(client.get("/?b").cache(), "HIT");
    for (target, line) in [("*", "X: y"), ("/page", "Max-Forwards: 0")] {
        let reply = client.ask("OPTIONS", target, &[line]);
        assert_eq!((reply.status, reply.text().as_str(), reply.field("content-length")), (200, "", "0"), "{target}");
    }
    assert_eq!(origin.count(), 1);
    client.ask("OPTIONS", "/page", &["Max-Forwards: 7"]);
    assert_eq!(origin.requests()[1].field("max-forwards"), Some("6"));
}

#[test]
fn a_request_that_the_origin_finds_bad_takes_no_page_from_the_others() {
    let origin = Origin::start(|request, answer| match request.field("x-bad") {
        Some(_) => answer.reply("400 Bad Request", &[], "bad"),
        None => answer.reply("200 OK", &["Cache-Control: max-age=60"], "good"),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.get("/page");
    assert_eq!(client.ask("GET", "/page", &["X-Bad: 1", "Cache-Control: no-cache"]).status, 400);
    let reply = client.get("/page");
    assert_eq!((reply.text().as_str(), reply.cache()), ("good", "HIT"));
}
