//! Forgetting a prefix or a tag through pools before fleets: on every server, on every host, in each protocol.

use std::time::Duration;

use crate::common::binary::frame;
use crate::common::{Client, eventually, listener, settings, source, start};
use crate::{count, follow};
use nuthatch_fleet::{FleetSettings, Protocol};
use nuthatch_server::Running;
use nuthatch_server::settings::{PoolSettings, Settings};
use nuthatch_testkit::{Launch, Spawned};

/// A server of a fleet that can forget, also by reserved keys.
fn nuthatch() -> Spawned {
    Launch::memcached().args(["-m", "64", "-o", "reserved_keys"]).start()
}

fn fleet(name: &str, servers: &[&Spawned], protocol: Protocol) -> FleetSettings {
    FleetSettings {
        servers: servers.iter().map(|server| source(server.port())).collect(),
        protocol,
        timeout: Duration::from_secs(10),
        ..FleetSettings::named(name)
    }
}

/// A host whose pool stands before the first of `fleets`, and has reserved keys.
fn host(fleets: Vec<FleetSettings>) -> Running {
    let pool = PoolSettings {
        backend: Some(fleets[0].name.clone()),
        ttl_max_seconds: 600,
        reserved_keys: true,
        ..PoolSettings::named("tiered")
    };
    start(Settings { pools: vec![pool], fleets, listeners: vec![listener(0)], ..settings() })
}

fn direct(server: &Spawned) -> Client {
    Client::of_port(server.port())
}

/// A host's client, once the host is told of changes by all servers.
fn client_of(host: &Running) -> Client {
    let mut client = Client::connect(host);
    follow(&mut client);
    client
}

/// The keys that are still there, of those that `keys` name.
fn found(client: &mut Client, keys: &str) -> usize {
    client.send(format!("get {keys}\r\n"));
    client.read_until("END\r\n").matches("VALUE ").count()
}

#[test]
fn a_prefix_is_forgotten_on_every_server_and_on_other_hosts_nothing_else_is() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let servers = [nuthatch(), nuthatch()];
        let hosts = [(); 2].map(|()| host(vec![fleet("shared", &servers.each_ref(), protocol)]));
        let [mut one, mut other] = hosts.each_ref().map(client_of);
        let keys: Vec<String> = (0..20).map(|number| format!("a:{number}")).collect();
        for key in keys.iter().map(String::as_str).chain(["b:1", "b:2"]) {
            one.ask(format!("set {key} 0 0 1\r\n1\r\n"), "STORED\r\n");
        }
        let keys = keys.join(" ");
        eventually(|| count(&mut other, "tier_changes") >= 22);
        assert_eq!((found(&mut other, &keys), found(&mut other, "b:1 b:2")), (20, 2));
        let (gaps, changes) = (count(&mut other, "tier_gaps"), count(&mut other, "tier_changes"));
        one.ask("forget prefix a:\r\n", "OK\r\n");
        assert_eq!(found(&mut one, &keys), 0);
        for server in &servers {
            assert_eq!(found(&mut direct(server), &keys), 0);
        }
        eventually(|| count(&mut other, "tier_changes") >= changes + 2);
        assert_eq!(found(&mut other, &keys), 0);
        let fetches = count(&mut other, "tier_fetches");
        assert_eq!(found(&mut other, "b:1 b:2"), 2);
        assert_eq!((count(&mut other, "tier_fetches"), count(&mut other, "tier_gaps")), (fetches, gaps));
        // What is stored afterwards is there.
        one.ask("set a:1 0 0 1\r\n2\r\nget a:1\r\n", "STORED\r\nVALUE a:1 0 1\r\n2\r\nEND\r\n");
    }
}

#[test]
fn reserved_keys_forget_through_a_pool_in_every_protocol_of_the_client() {
    let servers = [nuthatch(), nuthatch()];
    let host = host(vec![fleet("shared", &servers.each_ref(), Protocol::Meta)]);
    let mut client = Client::connect(&host);
    let mut last = 0;
    let prefix = "nuthatch:forget:prefix:a:";
    let mut increment = vec![0; 20];
    increment[7] = 1;
    for way in 0..6 {
        client.ask("set a:1 0 0 1\r\n1\r\nset a:2 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
        match way {
            0 => client.ask(format!("delete {prefix}\r\n"), "DELETED\r\n"),
            1 => client.ask(format!("md {prefix} q\r\nma {prefix} q\r\nmn\r\n"), "MN\r\n"),
            2 | 3 => {
                client.send(format!("incr {prefix} 1\r\n"));
                let number: u64 = client.read_until("\r\n").trim_end().parse().expect("a number");
                assert!(number > last, "{number} after {last}");
                last = number;
            }
            // A connection speaks what its first byte says.
            4 => assert_eq!(Client::connect(&host).call(&frame(0x04, prefix)).status, 0),
            _ => assert_eq!(Client::connect(&host).call(&frame(0x05, prefix).extras(&increment)).status, 0),
        }
        for server in &servers {
            assert_eq!(found(&mut direct(server), "a:1 a:2"), 0, "way {way}");
        }
        client.ask("get a:1 a:2\r\n", "END\r\n");
    }
    // Counting down is none of them, and this prefix is none.
    client.ask(format!("decr {prefix} 1\r\n"), "NOT_FOUND\r\n");
    client.ask("delete nuthatch:forget:prefix:a\r\n", "NOT_FOUND\r\n");
}

#[test]
fn tags_are_handed_on_and_forgotten_everywhere() {
    let servers = [nuthatch(), nuthatch()];
    let hosts = [(); 2].map(|()| host(vec![fleet("shared", &servers.each_ref(), Protocol::Meta)]));
    let [mut one, mut other] = hosts.each_ref().map(client_of);
    for number in 0..10 {
        one.ask(format!("ms k{number} 1 Lt,u c\r\n1\r\n").replace(" c", ""), "HD\r\n");
    }
    one.ask("set plain 0 0 1\r\n1\r\n", "STORED\r\n");
    let keys = "k0 k1 k2 k3 k4 k5 k6 k7 k8 k9";
    assert_eq!(found(&mut other, keys), 10);
    one.ask("forget tag t\r\n", "OK\r\n");
    assert_eq!((found(&mut one, keys), found(&mut one, "plain")), (0, 1));
    eventually(|| found(&mut other, keys) == 0);
    // What could not be forgotten later is not stored.
    let binary = host(vec![fleet("shared", &servers.each_ref(), Protocol::Binary)]);
    let refused =
        "SERVER_ERROR fleet shared: the fleet's protocol has no meta commands, expected one that has: meta or text\r\n";
    Client::connect(&binary).ask("ms k 1 Lt\r\n1\r\n", refused);
}

#[test]
fn a_server_that_cannot_forget_is_named_and_the_others_forget() {
    let (able, unable) = (nuthatch(), Launch::real_memcached().args(["-t", "1"]).start());
    for (protocol, said) in [(Protocol::Text, "ERROR"), (Protocol::Meta, "ERROR"), (Protocol::Binary, "NOT_FOUND")] {
        let host = host(vec![fleet("shared", &[&able, &unable], protocol)]);
        let mut client = Client::connect(&host);
        direct(&able).ask("set a:1 0 0 1\r\n1\r\n", "STORED\r\n");
        let sentence = format!(
            "SERVER_ERROR fleet shared: server 127.0.0.1:{} cannot forget a prefix or tag: it answered {said}, expected it \
             to be a Nuthatch\r\n",
            unable.port()
        );
        client.ask("forget prefix a:\r\n", &sentence);
        assert_eq!(found(&mut direct(&able), "a:1"), 0);
        client.ask("forget prefix a: noreply\r\nmn\r\n", "MN\r\n");
        client.ask("delete nuthatch:forget:prefix:a:\r\n", &sentence);
        let answer = Client::connect(&host).call(&frame(0x04, "nuthatch:forget:prefix:a:"));
        assert_eq!((answer.status, format!("SERVER_ERROR {}\r\n", answer.text())), (0x86, sentence));
    }
}

#[test]
fn a_fleet_s_namespace_stands_before_a_prefix_too() {
    let server = nuthatch();
    let mut shared = fleet("shared", &[&server], Protocol::Meta);
    shared.placement.namespace = b"n:".to_vec();
    let hosts = [(); 2].map(|()| host(vec![shared.clone()]));
    let [mut one, mut other] = hosts.each_ref().map(client_of);
    let mut direct = direct(&server);
    direct.ask("set a:1 0 0 1\r\n1\r\n", "STORED\r\n");
    one.ask("set a:1 0 0 1\r\n2\r\nforget prefix a:\r\nget a:1\r\n", "STORED\r\nOK\r\nEND\r\n");
    direct.ask("get a:1 n:a:1\r\n", "VALUE a:1 0 1\r\n1\r\nEND\r\n");
    // A prefix of the server's that all of the fleet's keys have.
    one.ask("set b:1 0 0 1\r\n2\r\n", "STORED\r\n");
    assert_eq!(found(&mut other, "b:1"), 1);
    direct.ask("forget prefix n:\r\n", "OK\r\n");
    eventually(|| found(&mut one, "b:1") + found(&mut other, "b:1") == 0);
}

#[test]
fn a_fleet_that_keys_come_from_forgets_too() {
    for migrates in [true, false] {
        let (old, new) = (nuthatch(), nuthatch());
        let name = Some("old".to_owned());
        let own = FleetSettings {
            migrate_from: name.clone().filter(|_| migrates),
            warm_from: name.filter(|_| !migrates),
            ..fleet("shared", &[&new], Protocol::Meta)
        };
        let host = host(vec![own, fleet("old", &[&old], Protocol::Meta)]);
        let mut client = Client::connect(&host);
        let mut direct = direct(&old);
        direct.ask("set a:1 0 0 1\r\n1\r\n", "STORED\r\n");
        client.ask("get a:1\r\n", "VALUE a:1 0 1\r\n1\r\nEND\r\n");
        client.ask("forget prefix a:\r\nget a:1\r\n", "OK\r\nEND\r\n");
        // A fleet that is left behind is emptied too. One that others go on using is not theirs to empty.
        direct.ask("set a:2 0 0 1\r\n1\r\n", "STORED\r\n");
        client.ask("flush_all\r\n", "OK\r\n");
        assert_eq!(found(&mut direct, "a:2"), usize::from(!migrates));
    }
}
