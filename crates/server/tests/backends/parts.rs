//! What stands behind a pool besides the servers of the file: lists that are kept elsewhere, and other fleets.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Client, eventually, listener, own_address, records, server_at, settings, start, two_addresses};
use crate::follow;
use nuthatch_fleet::membership::Source;
use nuthatch_fleet::{FleetSettings, OnFailure, Protocol, ServerSpec};
use nuthatch_server::settings::{Address, PoolSettings, Settings};
use nuthatch_testkit::NameServer;
use nuthatch_testkit::name_server::A;

fn fixed(address: SocketAddr) -> Source {
    Source::Server(ServerSpec::new(&address.ip().to_string(), address.port()))
}

fn fleet(name: &str, servers: Vec<Source>) -> FleetSettings {
    FleetSettings {
        servers,
        protocol: Protocol::Meta,
        timeout: Duration::from_secs(5),
        failure_limit: 1,
        retry_timeout: Duration::from_millis(200),
        ..FleetSettings::named(name)
    }
}

/// A pool before the first of `fleets`.
fn before(fleets: Vec<FleetSettings>, ttl_max_seconds: u32) -> Settings {
    let backend = Some(fleets[0].name.clone());
    let pool = PoolSettings { backend, ttl_max_seconds, ..PoolSettings::named("tiered") };
    Settings { pools: vec![pool], fleets, listeners: vec![listener(0)], ..settings() }
}

fn answer(client: &mut Client, request: &str, end: &str) -> String {
    client.send(request);
    client.read_until(end)
}

#[test]
fn a_running_fleet_and_its_streams_follow_a_list_that_a_name_server_keeps() {
    let addresses = two_addresses();
    let servers = addresses.map(server_at);
    let names = NameServer::start();
    let list = FleetSettings {
        resolvers: vec![names.address()],
        refresh: Duration::from_millis(100),
        settle: Duration::ZERO,
        ..fleet("shared", vec![Source::parse(&format!("dns:cache.example:{}", addresses[0].port())).expect("a source")])
    };
    let first = before(vec![list], 600);
    let server = start(first.clone());
    let mut client = Client::connect(&server);
    let refused = answer(&mut client, "set k 0 0 1\r\n1\r\n", "\r\n");
    assert_eq!(refused, "SERVER_ERROR fleet shared: the servers of fleet shared are not known yet\r\n");
    names.put("cache.example", A, records(&addresses[..1]));
    eventually(|| answer(&mut client, "set k 0 0 1\r\n1\r\n", "\r\n") == "STORED\r\n");
    let mut direct = [0, 1].map(|index| Client::connect(&servers[index]));
    direct[0].ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");

    names.put("cache.example", A, records(&addresses[1..]));
    eventually(|| answer(&mut client, "get k\r\n", "END\r\n") == "END\r\n");
    client.ask("set k 0 0 1\r\n2\r\n", "STORED\r\n");
    direct[1].ask("get k\r\n", "VALUE k 0 1\r\n2\r\nEND\r\n");
    follow(&mut client);
    client.ask("get k\r\n", "VALUE k 0 1\r\n2\r\nEND\r\n");
    direct[1].ask("set k 0 0 1\r\n3\r\n", "STORED\r\n");
    eventually(|| answer(&mut client, "get k\r\n", "END\r\n") == "VALUE k 0 1\r\n3\r\nEND\r\n");
    assert_eq!(client.stat("stats fleet", "shared:list_changes"), "2");

    // A source that goes away leaves its last list.
    let failures = |client: &mut Client| -> u64 { client.stat("stats fleet", "shared:list_failures").parse().unwrap() };
    let before = failures(&mut client);
    names.clear();
    eventually(|| failures(&mut client) > before + 1);
    client.ask("set k 0 0 1\r\n4\r\n", "STORED\r\n");
    direct[1].ask("get k\r\n", "VALUE k 0 1\r\n4\r\nEND\r\n");

    // Other sources are a reload away.
    let mut second = Settings { listeners: server.settings().listeners.clone(), ..first };
    second.fleets[0].servers = vec![fixed(addresses[0])];
    let reloaded = server.reload(&second).expect("it reloads");
    assert!(reloaded.failed.is_empty(), "{reloaded:?}");
    eventually(|| answer(&mut client, "get k\r\n", "END\r\n") == "VALUE k 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_pool_asks_the_other_fleets_that_its_own_names() {
    let servers = [(); 3].map(|()| server_at(own_address()));
    let at = |index: usize| match servers[index].addresses()[0] {
        Address::Tcp(address) => address,
        _ => panic!("it listens on TCP"),
    };
    let mut direct = [0, 1, 2].map(|index| Client::connect(&servers[index]));
    let mut shared = fleet("shared", vec![fixed(at(0))]);
    shared.placement.namespace = b"n:".to_vec();
    let others = ["old", "shadow"].into_iter().zip([1, 2]).map(|(name, index)| {
        let mut other = fleet(name, vec![fixed(at(index))]);
        other.placement.namespace = b"n:".to_vec();
        other
    });
    let others: Vec<_> = others.collect();
    for migrates in [false, true] {
        let name = Some("old".to_owned());
        let own = FleetSettings {
            warm_from: name.clone().filter(|_| !migrates),
            migrate_from: name.filter(|_| migrates),
            shadow: Some("shadow".to_owned()),
            ..shared.clone()
        };
        let fleets = [own].into_iter().chain(others.clone()).collect();
        let server = start(before(fleets, 0));
        let mut client = Client::connect(&server);
        direct[1].ask("set n:k 5 0 3\r\nold\r\n", "STORED\r\n");
        client.ask("get k\r\n", "VALUE k 5 3\r\nold\r\nEND\r\n");
        direct[0].ask("get n:k\r\n", "VALUE n:k 5 3\r\nold\r\nEND\r\n");
        client.ask("set k 0 0 3\r\nnew\r\n", "STORED\r\n");
        eventually(|| answer(&mut direct[2], "get n:k\r\n", "END\r\n") == "VALUE n:k 0 3\r\nnew\r\nEND\r\n");
        // A key in base64 has the namespace in front of it as well.
        client.ask("ms YSBi 1 b\r\nx\r\nmg YSBi b v k\r\n", "HD\r\nVA 1 kYSBi b\r\nx\r\n");
        direct[0].ask("mg bjphIGI= b v\r\n", "VA 1\r\nx\r\n");
        client.ask("delete k\r\n", "DELETED\r\n");
        direct[1].ask("get n:k\r\n", "END\r\n");
        assert!(client.stat("stats fleet", &format!("shared:shadow:{}:state", at(2))) == "Up");
        assert_eq!(client.stat("stats fleet", "shared:brought_over"), "1");
    }
}

#[test]
fn a_migration_ends_when_the_file_says_and_counts_down_to_it() {
    let servers = [(); 2].map(|()| server_at(own_address()));
    let at = |index: usize| match servers[index].addresses()[0] {
        Address::Tcp(address) => address,
        _ => panic!("it listens on TCP"),
    };
    let mut old = Client::connect(&servers[1]);
    for (time, is_over) in [(Duration::from_secs(3600), false), (Duration::from_millis(1), true)] {
        let own = FleetSettings {
            migrate_from: Some("old".to_owned()),
            migrate_for: time,
            ..fleet("shared", vec![fixed(at(0))])
        };
        let server = start(before(vec![own, fleet("old", vec![fixed(at(1))])], 0));
        let mut client = Client::connect(&server);
        let left = |client: &mut Client| -> u64 {
            client.stat("stats fleet", "shared:migration_seconds_left").parse().expect("a number")
        };
        if is_over {
            eventually(|| left(&mut client) == 0);
        } else {
            assert!((3000..=3600).contains(&left(&mut client)));
        }
        old.ask("set k 0 0 3\r\nold\r\n", "STORED\r\n");
        client.ask("get k\r\n", if is_over { "END\r\n" } else { "VALUE k 0 3\r\nold\r\nEND\r\n" });
        client.ask("delete k\r\n", if is_over { "NOT_FOUND\r\n" } else { "DELETED\r\n" });
    }
}

#[test]
fn what_stats_fleet_shows_is_in_the_reference() {
    let servers = [(); 2].map(|()| server_at(own_address()));
    let at = |index: usize| match servers[index].addresses()[0] {
        Address::Tcp(address) => address,
        _ => panic!("it listens on TCP"),
    };
    let names = NameServer::start();
    names.put("cache.example", A, records(&[at(0)]));
    let own = FleetSettings {
        resolvers: vec![names.address()],
        settle: Duration::ZERO,
        migrate_from: Some("old".to_owned()),
        migrate_for: Duration::from_secs(3600),
        ..fleet("shared", vec![Source::parse(&format!("dns:cache.example:{}", at(0).port())).expect("a source")])
    };
    let server = start(before(vec![own, fleet("old", vec![fixed(at(1))])], 0));
    let mut client = Client::connect(&server);
    eventually(|| answer(&mut client, "set k 0 0 1\r\n1\r\n", "\r\n") == "STORED\r\n");
    let told = answer(&mut client, "stats fleet\r\n", "END\r\n");
    let names = told.lines().filter_map(|line| line.strip_prefix("STAT shared:")?.split(' ').next());
    let server_names = [format!("{}:", at(0)), format!("old:{}:", at(1))];
    let mut shown: Vec<String> = names
        .map(|name| match server_names.iter().find_map(|server| name.strip_prefix(server.as_str())) {
            Some(name) => format!("SERVER:{name}"),
            None => name.to_owned(),
        })
        .collect();
    shown.sort();
    shown.dedup();
    let mut documented: Vec<&str> = nuthatch_server::counters::FLEET.iter().map(|(name, ..)| *name).collect();
    documented.sort_unstable();
    assert_eq!(shown, documented);
}

#[test]
fn copies_and_other_servers_take_over_from_one_that_is_out() {
    let [one, other, spare] = [(); 3].map(|()| own_address());
    for (replicas, auto_eject, on_failure) in
        [(1, false, OnFailure::Next), (0, true, OnFailure::Miss), (0, false, OnFailure::Spare)]
    {
        let mut servers = vec![server_at(one), server_at(other)];
        let _spare = server_at(spare);
        let own = FleetSettings {
            replicas,
            auto_eject,
            on_failure,
            spare: vec![ServerSpec::new(&spare.ip().to_string(), spare.port())],
            ..fleet("shared", vec![fixed(one), fixed(other)])
        };
        let server = start(before(vec![own], 0));
        let mut client = Client::connect(&server);
        for number in 0..20 {
            client.ask(format!("set k{number} 0 0 1\r\n1\r\n"), "STORED\r\n");
        }
        drop(servers.pop());
        for number in 0..20 {
            eventually(|| {
                let told = answer(&mut client, &format!("mg k{number} v\r\n"), "\r\n");
                match (told.as_str(), replicas) {
                    ("VA 1\r\n", _) => {
                        client.expect("1\r\n");
                        true
                    }
                    (told, 0) => told == "EN\r\n",
                    _ => false,
                }
            });
            eventually(|| answer(&mut client, &format!("set k{number} 0 0 1\r\n2\r\n"), "\r\n") == "STORED\r\n");
        }
    }
}
