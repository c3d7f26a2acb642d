//! Purging many pages at once: by tag, by prefix, all of them; hard and softly; and what a purge does to what is being
//! fetched at that moment, by whichever door it comes.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Client, eventually};
use crate::http::{Http, Reply, pages_of, request, serve, serve_with, settings_with};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::origin::{Gate, Origin};

/// Something that purges.
type Purge = Box<dyn Fn(&Running)>;

/// Every answer is another one. What follows `tags=` in the query are its tags.
fn tagged() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let tags = request.target.split("tags=").nth(1).unwrap_or_default().replace('+', " ");
        let tags = format!("Surrogate-Key: {tags}");
        let lines = ["Cache-Control: max-age=600, stale-while-revalidate=600", "ETag: \"x\"", &tags];
        answer.reply("200 OK", &lines, format!("{number}"));
    })
}

#[track_caller]
fn purge(client: &mut Http, target: &str, lines: &[&str]) {
    let reply = client.ask("PURGE", target, lines);
    assert_eq!(reply.status, 200, "{target} {lines:?}: {}", reply.text());
}

/// Which of these pages are in the cache.
fn there(server: &Running, targets: &[&str]) -> Vec<bool> {
    let mut client = Http::connect(server);
    let asked = targets.iter().map(|target| client.ask("GET", target, &["Cache-Control: only-if-cached"]).status);
    asked.map(|status| status == 200).collect()
}

#[test]
fn a_tag_purges_the_pages_that_have_it() {
    let origin = tagged();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let targets = ["/a?tags=node-1+list", "/b?tags=node-2+list", "/c?tags=node-12"];
    targets.iter().for_each(|target| _ = client.get(target));
    purge(&mut client, "/", &["Surrogate-Key: node-1"]);
    assert_eq!(there(&server, &targets), [false, true, true]);
    client.get(targets[0]);
    purge(&mut client, "/", &["Cache-Tag: none, list"]);
    assert_eq!(there(&server, &targets), [false, false, true]);
    client.get(targets[0]);
    Client::connect(&server).ask("forget tag node-1\r\n", "OK\r\n");
    assert_eq!(there(&server, &targets), [false, false, true]);
}

#[test]
fn a_page_with_many_tags_is_purged_by_each_of_them() {
    let origin = tagged();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let names: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let target = format!("/many?tags={}", names.join("+"));
    for name in &names {
        client.get(&target);
        assert_eq!(client.get(&target).cache(), "HIT", "{name}");
        purge(&mut client, "/", &[&format!("xkey: {name}")]);
        assert_eq!(there(&server, &[&target]), [false], "{name}");
    }
    let too_many: Vec<String> = (0..600).map(|number| format!("t{number}")).collect();
    let target = format!("/too-many?tags={}", too_many.join("+"));
    assert_eq!([client.get(&target).status, client.get(&target).status], [200, 200]);
    assert_eq!(there(&server, &[&target]), [false]);
}

#[test]
fn a_prefix_purges_what_lies_below_it_and_nothing_beside() {
    let origin = tagged();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let targets = ["/wiki/", "/wiki/a", "/wiki/b/c?d", "/wikipedia", "/search?q=1", "/search?q=2", "/search"];
    let fill = |client: &mut Http| targets.iter().for_each(|target| _ = client.get(target));
    fill(&mut client);
    purge(&mut client, "/wiki/", &["Purge: prefix"]);
    assert_eq!(there(&server, &targets), [false, false, false, true, true, true, true]);
    fill(&mut client);
    purge(&mut client, "/search?", &["Purge: prefix"]);
    assert_eq!(there(&server, &targets), [true, true, true, true, false, false, true]);
    purge(&mut client, "http://a.example/", &["Purge: prefix"]);
    assert_eq!(there(&server, &targets), [false; 7]);
    let reply = client.ask("PURGE", "/wiki", &["Purge: prefix"]);
    assert_eq!((reply.status, reply.text().contains("expected a prefix that ends with / or ?")), (400, true));
    assert_eq!(client.ask("PURGE", "/wiki", &["Purge: hard"]).status, 400);
}

#[test]
fn everything_is_purged_at_once() {
    let origin = tagged();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let targets = ["/a", "/b?tags=x"];
    targets.iter().for_each(|target| _ = client.get(target));
    purge(&mut client, "/", &["Purge: all"]);
    assert_eq!(there(&server, &targets), [false, false]);
}

/// For how many seconds a page that is kept is fresh yet; none or fewer than none when it is stale.
fn ttl(reply: &Reply) -> i64 {
    let said = reply.field("cache-status").split("ttl=").nth(1).and_then(|rest| rest.split(';').next());
    said.and_then(|ttl| ttl.parse().ok()).unwrap_or_else(|| panic!("no time in {reply:?}"))
}

#[test]
fn a_soft_purge_of_many_makes_them_stale_and_they_are_fresh_again_once_the_origin_was_asked() {
    let ways: [&[&str]; 3] =
        [&["Surrogate-Key: node-1", "Purge: soft"], &["Purge: soft, prefix"], &["Purge: all, soft"]];
    for lines in ways {
        let origin = tagged();
        let server = serve_with(&[&origin], |http| http.pages.announce.cache_status = true);
        let mut client = Http::connect(&server);
        let target = "/a/b?tags=node-1";
        let is_fresh = |reply: &Reply| reply.cache() == "HIT" && ttl(reply) > 0;
        client.get(target);
        assert!(is_fresh(&client.get(target)));
        Client::connect(&server).ask("debugtime 5\r\n", "OK\r\n");
        purge(&mut client, "/a/", lines);
        let stale = client.get(target);
        assert_eq!((stale.cache(), stale.text().as_str()), ("HIT", "0"), "served while it is refreshed: {lines:?}");
        assert!(!is_fresh(&stale), "{stale:?}");
        Client::connect(&server).ask("debugtime 10\r\n", "OK\r\n");
        eventually(|| is_fresh(&client.get(target)));
        assert_ne!(client.get(target).text(), "0");
    }
}

#[test]
fn a_soft_purge_of_many_outlasts_a_restart_and_may_then_cover_more_but_not_what_came_later() {
    let directory = std::env::temp_dir().join(format!("nuthatch-pages-purge-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let origin = tagged();
    let start = || {
        let mut http = pages_of(&[&origin]);
        http.pages.announce.cache_status = true;
        let mut settings = settings_with(http);
        settings.pools[0].file = Some(directory.join("pool"));
        Server::start(settings).expect("the server starts")
    };
    let fresh = |server: &Running, target: &str| {
        let reply = Http::connect(server).get(target);
        assert_eq!(reply.cache(), "HIT", "{target}");
        ttl(&reply) > 0
    };
    let (old, other, new) = ("/a?tags=x", "/b?tags=y", "/c?tags=x");
    {
        let server = start();
        for target in [old, other] {
            Http::connect(&server).get(target);
        }
        assert!(fresh(&server, old) && fresh(&server, other));
    }
    // Without a soft purge a restart leaves pages as they were.
    {
        let server = start();
        assert!(fresh(&server, old) && fresh(&server, other));
        purge(&mut Http::connect(&server), "/", &["xkey: x", "Purge: soft"]);
        eventually(|| {
            // Of the second of the purge nobody knows which came first.
            let reply = Http::connect(&server).ask("GET", new, &["Cache-Control: no-cache"]);
            reply.status == 200 && fresh(&server, new)
        });
        assert!(fresh(&server, other));
    }
    let server = start();
    assert!(!fresh(&server, old) && fresh(&server, new), "of what is older it is not known what it covered");
    drop(server);
    std::fs::remove_dir_all(directory).expect("it is there");
}

#[test]
fn only_those_who_may_purge_purge_many() {
    let origin = tagged();
    let server = serve_with(&[&origin], |http| http.pages.purge_from = vec!["none".to_owned()]);
    let mut client = Http::connect(&server);
    client.get("/a?tags=x");
    for lines in [&["Surrogate-Key: x"][..], &["Purge: prefix"], &["Purge: all"], &["Purge: all, soft"]] {
        assert_eq!(client.ask("PURGE", "/", lines).status, 403, "{lines:?}");
    }
    assert_eq!(there(&server, &["/a?tags=x"]), [true]);
}

#[test]
fn what_is_being_fetched_when_it_is_purged_is_not_kept() {
    let key = "page:http://a.example/page";
    let by_http = |lines: &'static [&'static str]| -> Purge {
        let target = if lines.is_empty() { "/page" } else { "/" };
        Box::new(move |server| _ = Http::connect(server).ask("PURGE", target, lines))
    };
    let by_memcached = |command: String| -> Purge {
        Box::new(move |server| {
            let mut client = Client::connect(server);
            client.send(command.as_bytes());
            client.read_until("\r\n");
        })
    };
    let purges: [(&str, Purge); 8] = [
        ("PURGE", by_http(&[])),
        ("tag", by_http(&["Surrogate-Key: any"])),
        ("prefix", by_http(&["Purge: prefix"])),
        ("all", by_http(&["Purge: all"])),
        ("delete", by_memcached(format!("delete {key}\r\n"))),
        ("md", by_memcached(format!("md {key}\r\n"))),
        ("forget", by_memcached("forget tag any\r\n".to_owned())),
        ("flush_all", by_memcached("flush_all\r\n".to_owned())),
    ];
    for (name, purge) in purges {
        let (gate, count) = (Gate::default(), AtomicUsize::new(0));
        let held = gate.clone();
        let origin = Origin::start(move |_, answer| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\npage";
            answer.send(head);
            if number == 0 {
                held.wait();
            }
            answer.send(number.to_string());
        });
        let server = serve(&[&origin]);
        let mut client = Http::connect(&server);
        client.send(request("GET", "/page", &[]));
        let head = client.head_of_reply();
        purge(&server);
        gate.open();
        assert_eq!(client.try_body(&head).as_deref(), Some(&b"page0"[..]), "{name}: whoever waits gets it");
        assert_eq!(Http::connect(&server).get("/page").text(), "page1", "{name}");
        assert_eq!(Http::connect(&server).get("/page").cache(), "HIT", "{name}");
    }
}

#[test]
fn a_page_that_an_application_stores_meanwhile_is_not_overwritten() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_, answer| {
        // In chunks, so that its client sees its end no sooner than it is stored, or not.
        answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n2\r\npa\r\n");
        held.wait();
        answer.send("2\r\nge\r\n0\r\n\r\n");
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.send(request("GET", "/page", &[]));
    let head = client.head_of_reply();
    Client::connect(&server).ask("set page:http://a.example/page 0 0 4\r\nmine\r\n", "STORED\r\n");
    gate.open();
    assert_eq!(client.try_body(&head).as_deref(), Some(&b"page"[..]));
    Client::connect(&server)
        .ask("get page:http://a.example/page\r\n", "VALUE page:http://a.example/page 0 4\r\nmine\r\nEND\r\n");
}
