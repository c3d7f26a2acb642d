//! Pages of several hosts before one fleet: found by all, forgotten by all, and served when the fleet is away.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::Client;
use common::pages::{Http, pages_of, settings_with};
use nuthatch_fleet::membership::Source;
use nuthatch_fleet::{FleetSettings, Protocol, ServerSpec};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::origin::Origin;
use nuthatch_testkit::{Launch, Spawned};

fn member() -> Spawned {
    Launch::memcached().args(["-m", "64"]).start()
}

/// A host with a page listener in front of `origin`, before a fleet of the servers on `ports`.
fn host(origin: &Origin, ports: &[u16]) -> Running {
    let mut settings = settings_with(pages_of(&[origin]));
    settings.fleets = vec![FleetSettings {
        servers: ports.iter().map(|port| Source::Server(ServerSpec::new("127.0.0.1", *port))).collect(),
        protocol: Protocol::Meta,
        connect_timeout: Duration::from_secs(1),
        read_timeout: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        failure_limit: 100,
        ..FleetSettings::named("shared")
    }];
    settings.pools[0].backend = Some("shared".to_owned());
    settings.pools[0].ttl_max_seconds = 5;
    Server::start(settings).expect("the server starts")
}

/// Every answer is another one, fresh for ten minutes; `/large` is longer than an item of the fleet, `/vary` varies.
fn counting() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let mut lines = vec!["Cache-Control: max-age=600"];
        if request.target == "/vary" {
            lines.push("Vary: X-Way");
        }
        let body = match request.target.as_str() {
            "/large" => format!("{number}:{}", "0123456789".repeat(300_000)),
            _ => format!("{number}:{}", request.field("x-way").unwrap_or_default()),
        };
        // In chunks, so that its client sees its end when it is written to the fleet too.
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        answer.send(format!("HTTP/1.1 200 OK\r\n{lines}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len()));
        answer.send(format!("{body}\r\n0\r\n\r\n"));
    })
}

/// Time passes at this host: what it keeps of the fleet's is over.
fn later(server: &Running, at: u32) {
    Client::connect(server).ask(format!("debugtime {at}\r\n"), "OK\r\n");
}

#[test]
fn a_page_that_one_host_fetched_is_found_by_the_others_and_one_purge_reaches_them_all() {
    let members = [member(), member()];
    let ports: Vec<u16> = members.iter().map(Spawned::port).collect();
    let origin = counting();
    let (one, other) = (host(&origin, &ports), host(&origin, &ports));
    for target in ["/page", "/large", "/vary"] {
        let before = origin.count();
        let first = Http::connect(&one).get(target);
        let found = Http::connect(&other).get(target);
        assert_eq!((found.status, found.cache()), (200, "HIT"), "{target}");
        assert!(found.body == first.body, "{target}");
        assert_eq!(origin.count(), before + 1, "{target}");
        let purged = Http::connect(&one).ask("PURGE", target, &[]);
        assert_eq!(purged.status, 200, "{target}");
    }
    // What the other keeps of its own is over by now.
    later(&other, 20);
    for target in ["/page", "/large", "/vary"] {
        let before = origin.count();
        assert_eq!(Http::connect(&other).get(target).cache(), "MISS", "{target}");
        assert_eq!(origin.count(), before + 1, "{target}");
    }
}

#[test]
fn variants_are_found_by_every_host() {
    let members = [member()];
    let origin = counting();
    let hosts = [host(&origin, &[members[0].port()]), host(&origin, &[members[0].port()])];
    let ask = |host: usize, way: &str| Http::connect(&hosts[host]).ask("GET", "/vary", &[&format!("X-Way: {way}")]);
    assert_eq!((ask(0, "a").text(), ask(1, "b").text()), ("0:a".to_owned(), "1:b".to_owned()));
    for host in 0..2 {
        assert_eq!((ask(host, "a").text(), ask(host, "b").text()), ("0:a".to_owned(), "1:b".to_owned()));
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn what_is_kept_of_the_fleets_is_asked_for_again_and_the_origin_is_not() {
    let members = [member()];
    let origin = counting();
    let server = host(&origin, &[members[0].port()]);
    Http::connect(&server).get("/page");
    let mut fleet = Client::connect_to(([127, 0, 0, 1], members[0].port()).into());
    let before = fleet.number("cmd_get");
    for at in [10, 20, 30] {
        assert_eq!(Http::connect(&server).get("/page").cache(), "HIT");
        later(&server, at);
    }
    assert_eq!(Http::connect(&server).get("/page").text(), "0:");
    // A copy that its own writing left goes as soon as the fleet tells of that.
    assert!(fleet.number("cmd_get") - before >= 3);
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_fleet_that_is_away_costs_nobody_a_page() {
    let members = [member()];
    let origin = counting();
    let server = host(&origin, &[members[0].port()]);
    let mut client = Http::connect(&server);
    assert_eq!(client.get("/page").status, 200);
    drop(members);
    later(&server, 20);
    let again = client.get("/page");
    assert_eq!((again.status, again.text().as_str()), (200, "1:"));
    assert_eq!(client.get("/page").cache(), "HIT");
    assert_eq!(client.ask("PURGE", "/page", &[]).status, 200);
    assert_eq!(client.get("/page").text(), "2:");
}

#[test]
fn a_member_that_does_not_answer_costs_its_timeout_once_and_not_for_each_page() {
    // Nobody accepts, and the kernel answers that somebody listens.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = counting();
    let server = host(&origin, &[silent.local_addr().expect("an address").port()]);
    let mut client = Http::connect(&server);
    let began = std::time::Instant::now();
    for number in 1..=20 {
        assert_eq!(client.get(&format!("/{number}")).status, 200);
    }
    // Asked for each time, and told of each page, it would have cost 40 seconds.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_purge_that_other_hosts_cannot_be_told_of_is_refused() {
    let members = [member()];
    let origin = counting();
    let server = host(&origin, &[members[0].port()]);
    let mut client = Http::connect(&server);
    for lines in [&["Surrogate-Key: a"][..], &["Purge: prefix"]] {
        let reply = client.ask("PURGE", "/", lines);
        assert_eq!(reply.status, 501);
        assert_eq!(reply.text(), "expected a pool without a fleet for a purge by tag or prefix\n");
    }
    client.get("/page");
    assert_eq!(client.ask("PURGE", "/", &["Purge: all"]).status, 200);
    assert_eq!(client.get("/page").text(), "1:");
}

#[test]
fn a_memcached_clients_delete_here_forgets_the_page_everywhere() {
    let members = [member()];
    let origin = counting();
    let server = host(&origin, &[members[0].port()]);
    let mut client = Http::connect(&server);
    client.get("/page");
    Client::connect(&server).ask("delete page:http://a.example/page\r\n", "DELETED\r\n");
    assert_eq!(client.get("/page").text(), "1:");
}
