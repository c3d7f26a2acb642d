//! Pages of several hosts before one fleet: found by all, forgotten by all, and served when the fleet is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::scripted::Scripted;
use crate::common::{Client, eventually, source};
use crate::http::{Http, pages_of, request, settings_with};
use nuthatch_fleet::{FleetSettings, Protocol};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::origin::{Gate, Origin};
use nuthatch_testkit::{Launch, Spawned};

fn member() -> Spawned {
    Launch::memcached().args(["-m", "64"]).start()
}

/// A host with a page listener in front of `origin`, before a fleet of the servers on `ports`.
fn host(origin: &Origin, ports: &[u16]) -> Running {
    host_by(Protocol::Meta, origin, ports)
}

/// The same with a fleet that is spoken to in this protocol.
fn host_by(protocol: Protocol, origin: &Origin, ports: &[u16]) -> Running {
    let mut settings = settings_with(pages_of(&[origin]));
    settings.fleets = vec![FleetSettings {
        servers: ports.iter().map(|port| source(*port)).collect(),
        protocol,
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

/// Every answer is another one, fresh for ten minutes; `/large` is longer than an item of the fleet, `/vary` varies. What
/// follows `tags=` in the query are its tags.
fn counting() -> Origin {
    held(Gate::default(), usize::MAX)
}

/// The same, of which the answer of this number ends when the gate opens.
fn held(gate: Gate, held: usize) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let tags = request.target.split("tags=").nth(1).unwrap_or_default().replace('+', " ");
        let tags = format!("Surrogate-Key: {tags}");
        let mut lines = vec!["Cache-Control: max-age=600, stale-while-revalidate=600", &tags];
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
        if number == held {
            gate.wait();
        }
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
    let mut fleet = Client::of_port(members[0].port());
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

/// Purges that name many pages, and `/wiki/a?tags=x+y` among them.
const MANY: [&[&str]; 4] = [&["Surrogate-Key: x"], &["xkey: none y"], &["Purge: prefix"], &["Purge: all"]];

/// The page that they name, another one that only the last of them names, and what they are sent to.
const NAMED: &str = "/wiki/a?tags=x+y";
const OTHER: &str = "/other?tags=z";
const SENT_TO: &str = "/wiki/";

#[track_caller]
fn purge(server: &Running, lines: &[&str]) -> String {
    let reply = Http::connect(server).ask("PURGE", SENT_TO, lines);
    assert_eq!(reply.status, 200, "{lines:?}: {}", reply.text());
    reply.text()
}

#[test]
fn many_pages_purged_at_one_host_are_gone_at_the_others_too_and_no_more_than_these() {
    let real = || Launch::real_memcached().args(["-m", "64", "-t", "1"]).start();
    for (protocol, members) in [
        (Protocol::Meta, [member(), member()]),
        (Protocol::Text, [real(), real()]),
        (Protocol::Binary, [member(), member()]),
    ] {
        let ports: Vec<u16> = members.iter().map(Spawned::port).collect();
        let origin = counting();
        let hosts = [(); 2].map(|()| host_by(protocol, &origin, &ports));
        let mut time = 0;
        for lines in MANY {
            for target in [NAMED, OTHER] {
                Http::connect(&hosts[0]).get(target);
                assert_eq!(Http::connect(&hosts[1]).get(target).cache(), "HIT", "{protocol:?} {lines:?} {target}");
            }
            assert_eq!(purge(&hosts[0], lines), "purged\n");
            let before = origin.count();
            assert_eq!(Http::connect(&hosts[0]).get(NAMED).cache(), "MISS", "{protocol:?} {lines:?}");
            // What the other keeps of its own is over by now.
            time += 20;
            later(&hosts[1], time);
            let found = Http::connect(&hosts[1]).get(NAMED);
            assert_eq!((found.cache(), origin.count()), ("HIT", before + 1), "{protocol:?} {lines:?}: the new one");
            assert_eq!(found.text(), Http::connect(&hosts[0]).get(NAMED).text());
            let asked = usize::from(lines == ["Purge: all"]);
            Http::connect(&hosts[1]).get(OTHER);
            assert_eq!(origin.count(), before + 1 + asked, "{protocol:?} {lines:?}");
            later(&hosts[0], time);
        }
    }
}

#[test]
fn a_purge_at_one_host_keeps_what_another_fetches_from_being_shared_or_kept() {
    for lines in MANY.into_iter().chain([&[][..]]) {
        let members = [member()];
        let gate = Gate::default();
        let origin = held(gate.clone(), 0);
        let hosts = [(); 2].map(|()| host(&origin, &[members[0].port()]));
        let mut client = Http::connect(&hosts[1]);
        client.send(request("GET", NAMED, &[]));
        let head = client.head_of_reply();
        let sent_to = if lines.is_empty() { NAMED } else { SENT_TO };
        Http::connect(&hosts[0]).ask("PURGE", sent_to, lines);
        gate.open();
        assert!(client.try_body(&head).is_some(), "{lines:?}: whoever waits gets it");
        for host in &hosts {
            assert_eq!(Http::connect(host).get(NAMED).text(), "1:", "{lines:?}");
        }
        // And what comes later is shared.
        assert_eq!(origin.count(), 2, "{lines:?}");
    }
}

#[test]
fn a_soft_purge_at_one_host_makes_pages_stale_at_the_others_and_the_origin_makes_them_fresh() {
    let ways = MANY.map(|lines| [lines, &["Fastly-Soft-Purge: 1"]].concat()).into_iter();
    for lines in ways.chain([vec!["Purge: soft"]]) {
        let members = [member()];
        let origin = counting();
        let hosts = [(); 2].map(|()| host(&origin, &[members[0].port()]));
        for target in [NAMED, OTHER] {
            Http::connect(&hosts[0]).get(target);
            assert_eq!(Http::connect(&hosts[1]).get(target).cache(), "HIT", "{lines:?}");
        }
        let sent_to = if lines.len() == 1 { NAMED } else { SENT_TO };
        let reply = Http::connect(&hosts[0]).ask("PURGE", sent_to, &lines);
        assert_eq!((reply.status, reply.text().as_str()), (200, "made stale\n"), "{lines:?}");
        later(&hosts[1], 20);
        let stale = Http::connect(&hosts[1]).get(NAMED);
        assert_eq!((stale.cache(), stale.text().as_str()), ("HIT", "0:"), "{lines:?}: while it is refreshed");
        eventually(|| Http::connect(&hosts[1]).get(NAMED).text() != "0:");
        let fresh = Http::connect(&hosts[1]).get(NAMED).text();
        later(&hosts[0], 40);
        assert_eq!(Http::connect(&hosts[0]).get(NAMED).text(), fresh, "{lines:?}: by both");
        if !lines.contains(&"Purge: all") {
            assert_eq!(Http::connect(&hosts[1]).get(OTHER).text(), "1:", "{lines:?}");
        }
    }
}

#[test]
fn a_purge_that_a_server_could_not_be_told_of_says_so_and_is_done_here() {
    let members = [member()];
    let port = members[0].port();
    let origin = counting();
    let server = host(&origin, &[port]);
    Http::connect(&server).get(NAMED);
    drop(members);
    for lines in MANY.into_iter().chain([&["Surrogate-Key: x", "Purge: soft"][..]]) {
        let before = Http::connect(&server).get(NAMED).text();
        assert_eq!(Http::connect(&server).get(NAMED).text(), before, "{lines:?}");
        let said = purge(&server, lines);
        let done = if lines.len() == 2 { "made stale here" } else { "purged here" };
        let server_named = format!("127.0.0.1:{port}");
        assert!(said.starts_with(&format!("{done}; not all of the fleet could be told: fleet shared: ")), "{said}");
        assert!(said.contains(&server_named), "{said}");
        if lines.len() == 1 {
            assert_ne!(Http::connect(&server).get(NAMED).text(), before, "{lines:?}");
        }
    }
}

#[test]
fn a_fleet_that_has_lost_its_marks_has_lost_its_pages_and_nothing_that_was_purged_comes_back() {
    let members = [member()];
    let origin = counting();
    let server = host(&origin, &[members[0].port()]);
    let mut fleet = Client::of_port(members[0].port());
    Http::connect(&server).get(NAMED);
    purge(&server, MANY[0]);
    Http::connect(&server).get(NAMED);
    fleet.send("delete page:purges\r\n");
    assert_eq!(fleet.read_until("\r\n"), "DELETED\r\n");
    // Another life of the count: what was stored before it is of no use where a mark is new, and the marks are replaced.
    for (at, expected) in [(20, "1:"), (40, "1:")] {
        later(&server, at);
        assert_eq!(Http::connect(&server).get(NAMED).text(), expected);
    }
    purge(&server, MANY[0]);
    assert_eq!(Http::connect(&server).get(NAMED).text(), "2:");
    later(&server, 60);
    assert_eq!(Http::connect(&server).get(NAMED).text(), "2:");
    assert_eq!(origin.count(), 3);
}

/// A page pool before a backend of the test's own.
fn scripted_host(origin: &Origin) -> (Running, Arc<Scripted>) {
    let mut settings = settings_with(pages_of(&[origin]));
    settings.pools[0].backend = Some("scripted".to_owned());
    settings.pools[0].ttl_max_seconds = 5;
    let scripted = Scripted::new();
    let prepared = Server::prepare(settings).expect("good settings");
    (prepared.with_backend("scripted", Arc::clone(&scripted) as _).start().expect("the server starts"), scripted)
}

/// The numbers that docs/pages.md says.
#[test]
fn a_new_page_costs_two_round_trips_to_the_fleet_and_its_marks_three_more() {
    let origin = counting();
    let (server, fleet) = scripted_host(&origin);
    let rounds_of = |target: &str| {
        let before = fleet.rounds();
        let answer = Http::connect(&server).get(target).cache().to_owned();
        (answer, fleet.rounds() - before)
    };
    // The first of all makes the count.
    assert_eq!(rounds_of("/a/0").0, "MISS");
    for (target, rounds) in [
        // A look at the fleet; the marks, and whether something was purged meanwhile; a look at the marks; the page.
        ("/a/1", 5),
        ("/b/1", 5),
        // Tags that no page has had, and whether something was purged meanwhile.
        ("/b/2?tags=x+y", 7),
        ("/b/3?tags=y+x", 5),
    ] {
        assert_eq!(rounds_of(target), ("MISS".to_owned(), rounds), "{target}");
    }
    later(&server, 20);
    for (target, rounds) in [("/b/1", 1), ("/b/3?tags=y+x", 2)] {
        assert_eq!(rounds_of(target), ("HIT".to_owned(), rounds), "{target}, of the fleet");
        assert_eq!(rounds_of(target), ("HIT".to_owned(), 0), "{target}, kept here");
    }
}

#[test]
fn an_origin_waits_for_one_look_at_the_fleet_and_not_for_its_marks() {
    let origin = counting();
    let (server, fleet) = scripted_host(&origin);
    Http::connect(&server).get("/page");
    fleet.hold();
    let mut client = Http::connect(&server);
    client.send(request("GET", "/other", &[]));
    eventually(|| fleet.kept_back() == 1);
    assert_eq!(origin.count(), 1);
    fleet.release_one(false);
    // Its marks are being made, and nobody answers.
    eventually(|| origin.count() == 2 && fleet.kept_back() > 0);
    fleet.release();
    assert_eq!(client.reply(false).text(), "1:");
    later(&server, 20);
    assert_eq!((Http::connect(&server).get("/other").cache(), origin.count()), ("HIT", 2), "it is shared all the same");
}

/// Nobody knows what came before: the origin was asked meanwhile.
#[test]
fn a_purge_while_marks_are_made_keeps_the_page_from_being_shared_or_kept() {
    let origin = counting();
    let (server, fleet) = scripted_host(&origin);
    Http::connect(&server).get("/page");
    fleet.hold();
    let mut client = Http::connect(&server);
    client.send(request("GET", "/other", &[]));
    eventually(|| fleet.kept_back() == 1);
    // Another host purges it, when its marks were not there yet.
    assert!(fleet.aside("incr page:purges 1\r\n").ends_with("\r\n"));
    fleet.release();
    assert_eq!(client.reply(false).text(), "1:");
    assert_eq!(Http::connect(&server).get("/other").text(), "2:");
    assert_eq!(Http::connect(&server).get("/other").text(), "2:", "which is kept");
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
