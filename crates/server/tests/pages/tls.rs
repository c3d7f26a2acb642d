//! TLS between a page listener and its origins: pages come over it as they do without, and a server that is not who it should
//! be gets no request, is one sentence, and leaves clients a stale page or a clean 502.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

use crate::common::tls::{Authority, Identity};
use crate::common::{Client, eventually, start};
use crate::http::{Http, pages_of, request, serve_with, settings_with};
use nuthatch_pages::door::LogFormat;
use nuthatch_server::settings::HttpSettings;
use nuthatch_server::{Running, Server};
use nuthatch_testkit::origin::{Answer, Origin, Request};

const FRESH: &str = "Cache-Control: max-age=60";

/// What a server at 127.0.0.1 shows.
fn identity(authority: &Authority) -> Identity {
    authority.sign("127.0.0.1")
}

/// Answers with the number of bytes that it was sent, and may be stored.
fn counting(request: &Request, answer: &mut Answer<'_>) {
    answer.reply("200 OK", &[FRESH], format!("{} {} {}", request.method, request.target, request.body.len()));
}

/// Trusts `authority`.
fn trusting(authority: &Authority) -> impl FnOnce(&mut HttpSettings) {
    let ca = authority.file("ca.pem");
    move |http| http.origin.tls.ca = Some(ca)
}

#[test]
fn pages_come_over_tls_by_connections_that_are_kept() {
    let authority = Authority::new();
    let origin = authority.origin(&identity(&authority), false, counting);
    let server = serve_with(&[&origin], |http| {
        trusting(&authority)(http);
        http.origin.idle_connections_max = 1;
    });
    let mut client = Http::connect(&server);
    let seen: Vec<String> = (0..3).map(|_| client.get("/page")).map(|reply| reply.text() + reply.cache()).collect();
    assert_eq!(seen, ["GET /page 0MISS", "GET /page 0HIT", "GET /page 0HIT"]);
    // More than a record of TLS, and than a socket takes at once.
    client.send(request("POST", "/page", &["Content-Length: 3000000"]));
    client.send(vec![b'x'; 3_000_000]);
    assert_eq!(client.reply(false).text(), "POST /page 3000000");
    assert_eq!(client.get("/page").cache(), "MISS", "what was posted to is made anew");
    let asked = &origin.requests()[0];
    assert_eq!((asked.field("host"), asked.field("x-forwarded-proto")), (Some("a.example"), Some("http")));
    assert_eq!((origin.count(), origin.connections()), (3, 1));
}

#[test]
fn a_long_body_arrives_whole_and_one_that_breaks_off_is_not_stored() {
    let authority = Authority::new();
    let origin = authority.origin(&identity(&authority), false, |request, answer| match request.target.as_str() {
        "/long" => answer.reply("200 OK", &[FRESH], vec![b'y'; 2_000_000]),
        _ => {
            // Without TLS this would be the whole. Here the end is not announced, and anybody may have cut it off.
            answer.send(format!("HTTP/1.1 200 OK\r\n{FRESH}\r\nConnection: close\r\n\r\nhalf of it"));
            answer.close();
        }
    });
    let server = serve_with(&[&origin], trusting(&authority));
    assert_eq!(Http::connect(&server).get("/long").body.len(), 2_000_000);
    for _ in 0..2 {
        Http::connect(&server).expect_cut_short("/cut");
    }
    assert_eq!(origin.count_of("/cut"), 2);
}

#[test]
fn another_protocol_is_spoken_over_tls() {
    let authority = Authority::new();
    let origin = authority.origin(&identity(&authority), false, |_, answer| {
        answer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        let said = answer.take(5);
        answer.send(said);
        answer.close();
    });
    let server = serve_with(&[&origin], trusting(&authority));
    let mut client = Http::connect(&server);
    let reply = client.ask("GET", "/socket", &["Connection: upgrade", "Upgrade: echo"]);
    assert_eq!((reply.status, reply.field("upgrade")), (101, "echo"));
    client.send("hello");
    let mut echo = [0; 5];
    client.reader.read_exact(&mut echo).expect("an echo");
    assert_eq!(&echo, b"hello");
}

#[test]
fn servers_are_probed_over_tls_and_another_is_asked_for_one_that_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let good = authority.origin(&identity(&authority), false, counting);
    let bad = other.origin(&identity(&other), false, counting);
    let server = serve_with(&[&bad, &good], |http| {
        trusting(&authority)(http);
        http.origin.health_path = Some("/health".to_owned());
    });
    eventually(|| good.count_of("/health") > 0);
    let mut client = Http::connect(&server);
    for n in 0..4 {
        // Nothing of it was sent to the other, so that it need not be safe.
        let target = format!("/{n}");
        client.send(request("POST", &target, &["Content-Length: 4"]));
        client.send("text");
        assert_eq!(client.reply(false).text(), format!("POST {target} 4"));
    }
    assert_eq!(bad.count(), 0);
}

/// What the access log says of a failure.
fn failure(log: &PathBuf) -> String {
    let mut line = String::new();
    eventually(|| {
        line = fs::read_to_string(log).unwrap_or_default();
        line.ends_with('\n')
    });
    let (_, failure) = line.split_once("\"failure\":\"").expect("a failure");
    failure.trim_end().trim_end_matches("\"}").to_owned()
}

#[test]
fn a_server_that_is_not_who_it_should_be_gets_no_request_and_is_one_sentence() {
    let (authority, other) = (Authority::new(), Authority::new());
    let log = authority.file("access.log");
    let expired = authority.sign_with("127.0.0.1", |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let ca = authority.file("ca.pem").display().to_string();
    let serves_plainly = Origin::start_over(
        "https",
        |mut socket| {
            let _ = socket.read(&mut [0; 512]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            Box::new(socket)
        },
        counting,
    );
    let hangs_up = Origin::start_over(
        "https",
        |mut socket| {
            let _ = socket.read(&mut [0; 16 * 1024]);
            let _ = socket.shutdown(std::net::Shutdown::Both);
            Box::new(socket)
        },
        counting,
    );
    let cases = [
        (
            other.origin(&identity(&other), false, counting),
            format!("expected a certificate that an authority in {ca} has signed (tls_ca)"),
        ),
        (
            authority.origin(&authority.sign("wiki.example"), false, counting),
            "expected a certificate for 127.0.0.1 (tls_server_name), not for wiki.example".to_owned(),
        ),
        (
            authority.origin(&expired, false, counting),
            "expected a certificate for 127.0.0.1 that is valid: certificate expired".to_owned(),
        ),
        (serves_plainly, "expected a TLS handshake, what it sends is none".to_owned()),
        (hangs_up, "expected a TLS handshake, it closes the connection instead".to_owned()),
    ];
    for (origin, sentence) in cases {
        let server = serve_with(&[&origin], |http| {
            trusting(&authority)(http);
            http.pages.access_log = Some(log.clone());
            http.pages.log_format = LogFormat::Json;
        });
        let mut client = Http::connect(&server);
        let reply = client.get("/page");
        assert_eq!((reply.status, reply.text().as_str()), (502, "the origin cannot be asked\n"), "{sentence}");
        let said = failure(&log);
        assert!(said.starts_with(&format!("origin {}: {sentence}", origin.url())), "{said}");
        assert_eq!(origin.count(), 0, "{sentence}");
        drop(server);
        fs::remove_file(&log).expect("a log");
    }
}

#[test]
fn a_server_without_an_authority_that_browsers_trust_is_refused_unless_verification_is_switched_off() {
    let authority = Authority::new();
    let origin = authority.origin(&authority.sign("whoever.example"), false, counting);
    let server = serve_with(&[&origin], |_| {});
    assert_eq!(Http::connect(&server).get("/page").status, 502);
    assert_eq!(origin.count(), 0);
    let server = serve_with(&[&origin], |http| http.origin.tls.is_unverified = true);
    assert_eq!(Http::connect(&server).get("/page").text(), "GET /page 0");
}

#[test]
fn a_server_is_told_its_name_and_shown_a_certificate_if_it_asks() {
    let authority = Authority::new();
    authority.install("cache", &authority.sign("cache.internal"));
    let origin = authority.origin(&authority.sign("wiki.internal"), true, counting);
    let named = |http: &mut HttpSettings| {
        trusting(&authority)(http);
        http.origin.tls.server_name = Some("wiki.internal".try_into().expect("a name"));
    };
    let server = serve_with(&[&origin], named);
    assert_eq!(Http::connect(&server).get("/page").status, 502, "it wants to know who asks");
    let server = serve_with(&[&origin], |http| {
        named(http);
        http.origin.tls.certificate = Some(authority.file("cache.pem"));
        http.origin.tls.key = Some(authority.file("cache.key"));
    });
    assert_eq!(Http::connect(&server).get("/page").text(), "GET /page 0");
}

#[test]
fn a_stale_page_is_served_while_its_server_is_not_who_it_should_be_and_a_reload_reads_authorities_again() {
    let (authority, other) = (Authority::new(), Authority::new());
    let origin = authority.origin(&identity(&authority), false, counting);
    let mut http = pages_of(&[&origin]);
    trusting(&authority)(&mut http);
    http.origin.idle_connections_max = 0;
    http.pages.stale_if_error_seconds = 3600;
    let settings = settings_with(http);
    let server = start(settings.clone());
    let mut client = Http::connect(&server);
    assert_eq!(client.get("/page").cache(), "MISS");
    let ours = fs::read(authority.file("ca.pem")).expect("a file");
    let reload = |ca: &[u8]| {
        fs::write(authority.file("ca.pem"), ca).expect("a file");
        server.reload(&settings).expect("a reload")
    };
    let read = reload(&fs::read(other.file("ca.pem")).expect("a file"));
    assert_eq!(read.changed, ["certificates: read again, for connections from now on"]);
    Client::connect(&server).ask("debugtime 100\r\n", "OK\r\n");
    let reply = client.get("/page");
    assert_eq!((reply.status, reply.text().as_str(), reply.cache()), (200, "GET /page 0", "HIT"));
    assert_eq!(client.get("/other").status, 502);
    // What cannot be read leaves all as it was.
    let why = format!("{}: expected certificates in PEM, found none", authority.file("ca.pem").display());
    assert_eq!(reload(b"").failed, [format!("origin site: TLS stays as it was: file of origins' authorities {why}")]);
    assert_eq!(client.get("/other").status, 502);
    assert!(reload(&ours).failed.is_empty());
    assert_eq!(client.get("/other").text(), "GET /other 0");
    assert_eq!(origin.count(), 2);
}

#[test]
fn authorities_that_cannot_be_read_refuse_the_start() {
    let authority = Authority::new();
    let origin = authority.origin(&identity(&authority), false, counting);
    let problem = |http: HttpSettings| -> String {
        let refused: Result<Running, _> = Server::prepare(settings_with(http)).and_then(|prepared| prepared.start());
        refused.map(|_| ()).expect_err("it is refused").to_string()
    };
    let mut http = pages_of(&[&origin]);
    http.origin.tls.ca = Some(authority.file("nowhere.pem"));
    let place = authority.file("nowhere.pem").display().to_string();
    assert_eq!(
        problem(http.clone()),
        format!("file of origins' authorities {place}: No such file or directory (os error 2)")
    );
    trusting(&authority)(&mut http);
    http.origin.tls.certificate = Some(authority.file("server.pem"));
    authority.install("other", &authority.sign("other"));
    http.origin.tls.key = Some(authority.file("other.key"));
    let (certificate, key) = (authority.file("server.pem"), authority.file("other.key"));
    assert_eq!(
        problem(http),
        format!("key file {}: expected the private key of the certificate in {}", key.display(), certificate.display())
    );
}
