//! `watch`: what is told to whom.

use crate::common::{Client, eventually, settings, start};
use nuthatch_server::Running;
use nuthatch_server::settings::Settings;

fn watcher(server: &Running, classes: &str) -> Client {
    let mut watcher = Client::connect(server);
    watcher.ask(format!("watch {classes}\r\n"), "OK\r\n");
    watcher
}

/// The next line, from its type on.
#[track_caller]
fn event(watcher: &mut Client) -> String {
    let line = watcher.read_until("\n");
    let (stamp, event) = line.split_once(" type=").expect("a type");
    assert!(stamp.starts_with("ts=") && stamp.contains(" gid="), "{line}");
    format!("type={}", event.trim_end())
}

#[test]
fn fetches_mutations_and_deletions_are_told_as_memcached_tells_them() {
    let server = start(settings());
    let mut all = watcher(&server, "fetchers mutations deletions");
    let mut client = Client::connect(&server);
    client.ask("get a b\r\n", "END\r\n");
    assert!(event(&mut all).starts_with("type=item_get key=a status=not_found clsid=0 cfd="));
    assert!(event(&mut all).starts_with("type=item_get key=b status=not_found"));
    client.ask("set sp%ce 0 100 5\r\nhello\r\n", "STORED\r\n");
    // memcached looks up what it stores over, and tells that too.
    assert!(event(&mut all).starts_with("type=item_get key=sp%25ce status=not_found"));
    let stored = event(&mut all);
    assert!(stored.starts_with("type=item_store key=sp%25ce status=stored cmd=set ttl=100 clsid=1 cfd="), "{stored}");
    assert!(stored.ends_with(" size=5"), "{stored}");
    client.ask("mg sp%ce\r\n", "HD\r\n");
    let found = event(&mut all);
    assert!(
        found.starts_with("type=item_get key=sp%25ce status=found clsid=1") && found.ends_with("size=5"),
        "{found}"
    );
    client.ask("delete sp%ce\r\n", "DELETED\r\n");
    assert!(event(&mut all).starts_with("type=item_get key=sp%25ce status=found"));
    assert!(event(&mut all).starts_with("type=deleted key=sp%25ce cmd=delete clsid=1 size=5"));
    client.ask("set e 0 1 1\r\nx\r\n", "STORED\r\n");
    client.ask("debugtime 2\r\nget e\r\n", "OK\r\nEND\r\n");
    let (mut last, mut lines) = (String::new(), 0);
    while !last.contains("status=expired") && lines < 4 {
        last = event(&mut all);
        lines += 1;
    }
    assert!(last.starts_with("type=item_get key=e status=expired"), "{last}");
}

#[test]
fn connections_are_told_as_they_come_and_go_and_why() {
    let server = start(settings());
    let mut watcher = watcher(&server, "connevents");
    let mut client = Client::connect(&server);
    let port = client.stream.local_addr().expect("an address").port();
    let opened = event(&mut watcher);
    assert!(opened.starts_with(&format!("type=conn_new rip=127.0.0.1 rport={port} transport=tcp cfd=")), "{opened}");
    client.send("quit\r\n");
    let closed = event(&mut watcher);
    assert!(closed.contains(&format!("type=conn_close rip=127.0.0.1 rport={port} transport=tcp reason=normal cfd=")));
    let mut client = Client::connect(&server);
    event(&mut watcher);
    client.send("GET / HTTP/1.1\r\n");
    assert!(event(&mut watcher).contains("reason=error"));
}

#[test]
fn evictions_are_told() {
    let mut small = settings();
    small.pools[0].memory_bytes = 4 << 20;
    let server = start(small);
    let mut watcher = watcher(&server, "evictions");
    let mut client = Client::connect(&server);
    let value = "x".repeat(1000);
    for n in 0..8000 {
        client.send(format!("set key{n} 0 0 1000 noreply\r\n{value}\r\n"));
    }
    let line = event(&mut watcher);
    assert!(
        line.starts_with("type=eviction key=key") && line.contains(" fetch=no ttl=-1 la=0 clsid=1 size=1000"),
        "{line}"
    );
}

#[test]
fn a_watcher_that_does_not_read_misses_lines_and_is_told_how_many() {
    let mut tight = settings();
    tight.buffers.watcher_log_bytes = 4000;
    let server = start(tight);
    let mut slow = watcher(&server, "fetchers");
    let mut client = Client::connect(&server);
    let batch = "get nothing-that-is-here\r\n".repeat(5000);
    for _ in 0..40 {
        client.ask(&batch, "END\r\n".repeat(5000));
    }
    assert!(client.number("log_watcher_skipped") > 0);
    let skipped = loop {
        let line = slow.read_until("\n");
        if let Some(count) = line.strip_prefix("skipped=") {
            break count.trim().parse::<u64>().expect("a count");
        }
        client.send("get again\r\n");
        client.expect("END\r\n");
    };
    assert!(skipped > 0);
}

#[test]
fn watching_is_refused_in_memcacheds_words() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("watch nonsense\r\n", "ERROR\r\n");
    client.ask("mn\r\nwatch\r\n", "MN\r\nERROR cannot pipeline other commands before watch\r\n");
    let mut watchers: Vec<_> = (0..20).map(|_| watcher(&server, "")).collect();
    client.ask("watch\r\n", "WATCHER_TOO_MANY log watcher limit reached\r\n");
    assert_eq!(client.number("log_watchers"), 20);
    watchers.clear();
    eventually(|| client.number("log_watchers") == 0);

    let server = start(Settings { watch_enabled: false, ..settings() });
    Client::connect(&server).ask("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
}

#[test]
fn forgetting_is_told_so_that_copies_elsewhere_can_be_dropped() {
    let mut settings = settings();
    settings.pools[0].reserved_keys = true;
    let server = start(settings);
    let mut watcher = watcher(&server, "deletions");
    let mut client = Client::connect(&server);
    client.ask("forget prefix a%b:\r\n", "OK\r\n");
    let told = event(&mut watcher);
    assert!(told.starts_with("type=forget prefix=a%25b%3A cmd=forget cfd="), "{told}");
    client.ask(
        "forget prefix none\r\n",
        "CLIENT_ERROR a prefix ends with the delimiter, the fourth one at the latest\r\n",
    );
    client.ask("forget tag news\r\n", "OK\r\n");
    assert!(event(&mut watcher).starts_with("type=forget tag=news cmd=forget cfd="));
    client.ask("delete nuthatch:forget:tag:news\r\n", "DELETED\r\n");
    assert!(event(&mut watcher).starts_with("type=forget tag=news cmd=delete cfd="));
    client.ask("md nuthatch:forget:prefix:a:\r\n", "HD\r\n");
    assert!(event(&mut watcher).starts_with("type=forget prefix=a%3A cmd=md cfd="));
}
