//! Pages that applications put into the pool themselves, as their items say.

use crate::common::Client;
use crate::http::{Http, serve_with};
use nuthatch_pages::negotiate::{Coding, Encoder};
use nuthatch_server::Running;
use nuthatch_testkit::origin::Origin;

fn origin() -> Origin {
    Origin::start(|_, answer| answer.reply("200 OK", &["Cache-Control: no-store"], "origin"))
}

fn set(server: &Running, key: &str, flags: u32, value: &[u8]) {
    let head = format!("set {key} {flags} 100 {}\r\n", value.len());
    Client::connect(server).ask([head.as_bytes(), value, b"\r\n"].concat(), "STORED\r\n");
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut gzip = Vec::new();
    let mut encoder = Encoder::new(Coding::Gzip, 6).expect("an encoder");
    encoder.push(plain, &mut gzip).expect("it compresses");
    encoder.finish(&mut gzip).expect("it compresses");
    gzip
}

#[test]
fn a_raw_page_is_served_until_it_is_deleted_and_gzip_is_undone() {
    let origin = origin();
    let server = serve_with(&[&origin], |http| {
        http.pages.foreign = Some("raw".to_owned());
        http.pages.foreign_gzip_flag = 2;
    });
    let mut client = Http::connect(&server);
    set(&server, "page:http://a.example/raw", 0, b"<p>raw</p>");
    let raw = client.get("/raw");
    assert_eq!((raw.status, raw.cache(), raw.text().as_str()), (200, "HIT", "<p>raw</p>"));
    assert_eq!(raw.field("content-type"), "text/html; charset=utf-8");
    assert_eq!(client.ask("GET", "/raw", &["Range: bytes=3-5"]).text(), "raw");
    let gzip = gzip(b"<p>gzip</p>");
    set(&server, "page:http://a.example/gzip", 2, &gzip);
    assert_eq!(client.get("/gzip").text(), "<p>gzip</p>");
    let coded = client.ask("GET", "/gzip", &["Accept-Encoding: gzip"]);
    assert_eq!((coded.field("content-encoding"), coded.body == gzip), ("gzip", true));
    // A client library has serialised it.
    set(&server, "page:http://a.example/php", 4, b"a:0:{}");
    assert_eq!(client.get("/php").text(), "origin");
    Client::connect(&server).ask("delete page:http://a.example/raw\r\n", "DELETED\r\n");
    assert_eq!(client.get("/raw").text(), "origin");
    set(&server, "page:http://a.example/large", 0, "x".repeat(900_000).as_bytes());
    assert_eq!(client.get("/large").body.len(), 900_000);
}

#[test]
fn drupals_keys_have_another_prefix() {
    let origin = origin();
    let server = serve_with(&[&origin], |http| {
        http.pages.foreign = Some("raw".to_owned());
        http.pages.foreign_prefix = "site-cache_page-".to_owned();
    });
    set(&server, "site-cache_page-http://a.example/node/7", 0, b"node 7");
    let mut client = Http::connect(&server);
    assert_eq!((client.get("/node/7").cache(), client.get("/node/7").text().as_str()), ("HIT", "node 7"));
    assert_eq!(client.get("/node/8").text(), "origin");
}

#[test]
fn a_whole_response_and_lighttpds_form_keep_their_status_and_fields() {
    let origin = origin();
    for (form, value, status, kind) in [
        (
            "srcache",
            &b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nX-A: 1\r\n\r\npage"[..],
            404,
            "text/plain",
        ),
        ("mcpage", &b"text/plain\0\0\0\0\0\0page"[..], 200, "text/plain"),
    ] {
        let server = serve_with(&[&origin], |http| http.pages.foreign = Some(form.to_owned()));
        set(&server, "page:http://a.example/page", 0, value);
        let reply = Http::connect(&server).get("/page");
        assert_eq!((reply.status, reply.cache(), reply.text().as_str()), (status, "HIT", "page"), "{form}");
        assert_eq!(reply.field("content-type"), kind, "{form}");
    }
}

#[test]
fn a_page_that_lighttpd_compressed_as_a_whole_is_served_as_any_other_and_a_bomb_is_none() {
    let origin = origin();
    let server = serve_with(&[&origin], |http| {
        http.pages.foreign = Some("mcpage".to_owned());
        http.pages.page_bytes_max = 1 << 20;
    });
    let body = "0123456789".repeat(1000);
    let whole = gzip(&[b"text/plain\0\0\0\0\0\0", body.as_bytes()].concat());
    set(&server, "page:http://a.example/page", 0, &whole);
    let mut client = Http::connect(&server);
    for accepted in ["gzip", "identity"] {
        let reply = client.ask("GET", "/page", &[&format!("Accept-Encoding: {accepted}")]);
        assert_eq!((reply.status, reply.cache(), reply.field("content-encoding")), (200, "HIT", ""), "{accepted}");
        assert_eq!((reply.text() == body, reply.field("content-type")), (true, "text/plain"), "{accepted}");
    }
    let part = client.ask("GET", "/page", &["Range: bytes=9-12"]);
    assert_eq!((part.status, part.text().as_str(), part.field("content-range")), (206, "9012", "bytes 9-12/10000"));
    let head = client.ask("HEAD", "/page", &[]);
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, "10000", 0));
    // A client that wants it anew gets the origin's, which may not be stored: the application's stays.
    assert_eq!(client.ask("GET", "/page", &["Cache-Control: no-cache"]).text(), "origin");
    assert_eq!(client.get("/page").cache(), "HIT");
    let bomb = gzip(&[&b"text/plain\0\0\0\0\0\0"[..], &vec![b'x'; 2 << 20]].concat());
    set(&server, "page:http://a.example/bomb", 0, &bomb);
    assert_eq!(client.get("/bomb").text(), "origin");
}

#[test]
fn without_the_setting_such_an_item_is_no_page() {
    let origin = origin();
    let server = serve_with(&[&origin], |_| {});
    set(&server, "page:http://a.example/page", 0, b"raw");
    assert_eq!(Http::connect(&server).get("/page").text(), "origin");
}
