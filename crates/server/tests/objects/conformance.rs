//! What memcached's own tests and a comparison with memcached found different. One claim a test, in our own words.

use crate::common::{Client, eventually, settings, start};
use nuthatch_server::settings::Settings;

/// The names of a list of counters, in order.
fn names(client: &mut Client, command: &str) -> Vec<String> {
    client.send(format!("{command}\r\n"));
    let all = client.read_until("END\r\n");
    all.lines().filter_map(|line| Some(line.strip_prefix("STAT ")?.split(' ').next()?.to_owned())).collect()
}

#[test]
fn counters_of_the_lru_maintainer_are_there_only_with_it() {
    let dependent = [
        "evicted_active",
        "moves_to_cold",
        "moves_to_warm",
        "moves_within_lru",
        "direct_reclaims",
        "lru_bumps_dropped",
        "lru_maintainer_juggles",
    ];
    let with = start(settings());
    let mut without = settings();
    without.reported.lru_maintainer = false;
    let without = start(without);
    let (with, without) = (names(&mut Client::connect(&with), "stats"), names(&mut Client::connect(&without), "stats"));
    for name in dependent {
        assert!(with.iter().any(|other| other == name), "{name}");
        assert!(!without.iter().any(|other| other == name), "{name}");
    }
    assert_eq!(with.len(), without.len() + dependent.len());
}

#[test]
fn counters_follow_the_options_that_they_count_for() {
    let mut without = Settings { connections_max_fast: false, ..settings() };
    without.reported.slab_reassign = false;
    without.reported.lru_maintainer = false;
    let mut temporary = settings();
    temporary.reported.temp_lru = true;
    let servers = [start(settings()), start(without), start(temporary)];
    let [plain, without, temporary] = servers.each_ref().map(|server| {
        let mut client = Client::connect(server);
        client.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
        [names(&mut client, "stats"), names(&mut client, "stats items")].concat()
    });
    let optional = |name: &&String| {
        *name == "rejected_connections" || name.starts_with("slab_reassign_") || *name == "slabs_moved"
    };
    assert_eq!(plain.iter().filter(optional).count(), 10);
    assert_eq!(without.iter().filter(optional).count(), 0);
    let of_items = |names: &[String]| names.iter().filter(|name| name.starts_with("items:1:")).count();
    assert_eq!((of_items(&plain), of_items(&without), of_items(&temporary)), (28, 14, 29));
    assert!(temporary.contains(&"items:1:number_temp".to_owned()));
}

#[test]
fn a_key_stored_already_expired_misses_as_expired() {
    let server = start(Settings { ..settings() });
    let mut client = Client::connect(&server);
    // More than 30 days is a date, and this one is long past.
    // What has expired may be given back at any time, and is then a miss like others.
    eventually(|| {
        client.ask("set k 0 2678400 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n");
        client.number("get_expired") > 0
    });
}

#[test]
fn a_crawler_that_runs_cannot_be_started_again() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("lru_crawler enable\r\n", "ERROR failed to start lru crawler thread\r\n");
    client.ask("lru_crawler disable\r\n", "OK\r\n");
    client.ask("lru_crawler disable\r\n", "OK\r\n");
    client.ask("lru_crawler enable\r\n", "OK\r\n");
    client.ask("lru_crawler crawl all\r\n", "OK\r\n");
}
