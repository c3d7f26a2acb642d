//! `[fleet.NAME]`: what is read, and the sentences for what is not.

use std::time::Duration;

use nuthatch_fleet::membership::Source;
use nuthatch_fleet::{Distribution, Hash, OnFailure, Protocol, ServerSpec};

use super::{File, Settings, defaults, file_problem, walk};
use crate::backend::parts::Parts;
use crate::settings::draft::FleetDraft;
use crate::settings::knob::Action;
use crate::settings::{FleetSettings, fleet};

#[test]
fn every_key_of_a_fleet_is_taken_and_refuses_a_bad_value() {
    walk("fleet.a", fleet::KEYS, |line| {
        let servers = if line.starts_with("servers") { "" } else { "servers = [\"b\"]\n" };
        let namespace = if line.starts_with("hash_with") { "namespace = \"n\"\n" } else { "" };
        let other = match line.split(' ').next() {
            Some("shadow_percent") => "shadow = \"x\"\n",
            Some("migrate_for") => "migrate_from = \"x\"\n",
            _ => "",
        };
        format!("[fleet.a]\n{line}\n{servers}{namespace}{other}[fleet.x]\nservers = [\"b\"]\n")
    });
}

#[test]
fn every_default_in_the_table_of_fleets_is_the_default_in_force() {
    let mut text = "[fleet.a]\nservers = [\"b\"]\n".to_owned();
    defaults(fleet::KEYS, &mut text);
    let of_fleet = FleetSettings { servers: vec![Source::parse("b").unwrap()], ..FleetSettings::named("a") };
    let expected = Settings { fleets: vec![of_fleet], ..Settings::default() };
    assert_eq!(File::new("fleet-defaults", &text).load(&[]), expected);
}

/// Keys about lists that are kept elsewhere are membership's, and change nothing about clients.
#[test]
fn every_key_of_a_fleet_reaches_the_clients_of_a_pool_before_it() {
    let base = || {
        let mut draft = FleetDraft::at("a", String::new());
        for servers in ["servers", "spare"] {
            let knob = fleet::KEYS.iter().find(|knob| knob.name == servers).expect("there is such a key");
            for name in ["b:1", "c:2 weight=3"] {
                match &knob.action {
                    Action::List { add, .. } => add(&mut draft, name).expect("a server"),
                    _ => panic!("{servers} is no list"),
                }
            }
        }
        draft.fleet.placement.namespace = b"n:".to_vec();
        draft.fleet.on_failure = OnFailure::Spare;
        (draft.fleet.shadow, draft.fleet.migrate_from) = (Some("other".to_owned()), Some("other".to_owned()));
        draft.fleet
    };
    let other = FleetSettings { name: "other".to_owned(), ..base() };
    let shown = |fleet: &FleetSettings| {
        Parts::of(fleet, &[fleet.clone(), other.clone()], None).expect("servers that can be placed").shown()
    };
    let elsewhere = ["refresh", "settle", "resolvers"];
    for knob in fleet::KEYS.iter().filter(|knob| !elsewhere.contains(&knob.name)) {
        let candidates = ["other", "true", "{}", "7", "7s", "d:9", "ketama", "crc", "meta", "next"];
        let differing = candidates.iter().find_map(|value| {
            let mut draft = FleetDraft::at("a", String::new());
            draft.fleet = base();
            let taken = match &knob.action {
                Action::List { add, .. } => add(&mut draft, value).is_ok(),
                _ => knob.set(&mut draft, Some(value)),
            };
            (taken && draft.fleet != base() && Parts::of(&draft.fleet, &[], None).is_ok()).then_some(draft.fleet)
        });
        let differing = differing.unwrap_or_else(|| panic!("no other value of {}", knob.name));
        assert!(shown(&differing) != shown(&base()), "{} changes nothing", knob.name);
    }
}

#[test]
fn a_fleet_is_what_its_keys_say() {
    let text = r#"
[fleet.shared]
servers = [
    "10.0.0.40",
    "10.0.0.41:11311 weight=2 name=second",
    "unix:/run/m.sock",
    "dns:cache.example",
    "srv:_memcached._tcp.example",
    "etcd:http://127.0.0.1:2379/caches",
]
distribution = "ketama"
hash = "crc"
namespace = "n:"
hash_with_namespace = true
sort_hosts = true
hash_tag = "{}"
refresh = "5s"
settle = "250ms"
resolvers = ["127.0.0.1:5353", "[::1]:53"]
protocol = "meta"
connections = 4
connect_timeout = "100ms"
read_timeout = 1
timeout = "2s"
failure_limit = 2
retry_timeout = "1m"
dead_timeout = "30s"
auto_eject = true
on_failure = "spare"
spare = ["10.0.0.50:11211"]
spare_ttl = "20s"
replicas = 1
warm_from = "old"
shadow = "old"
shadow_percent = 5

[fleet.old]
servers = ["10.0.1.40"]
"#;
    let settings = File::new("fleet-keys", text).load(&[]);
    assert_eq!(settings.fleets.len(), 2);
    let fleet = &settings.fleets[0];
    assert_eq!(fleet.name, "shared");
    assert_eq!(fleet.servers[0], Source::Server(ServerSpec::new("10.0.0.40", 11211)));
    assert_eq!(fleet.servers[1], Source::Server(ServerSpec::new("10.0.0.41", 11311).weighing(2).named("second")));
    assert_eq!(fleet.servers[2], Source::Server(ServerSpec::new("/run/m.sock", 0)));
    assert_eq!(fleet.servers.len(), 6);
    let placement = &fleet.placement;
    assert_eq!((placement.distribution, placement.hash), (Distribution::Ketama, Some(Hash::Crc)));
    assert_eq!((&placement.namespace[..], placement.hash_with_namespace), (&b"n:"[..], true));
    assert_eq!((placement.sort_hosts, placement.hash_tag), (true, Some((b'{', b'}'))));
    assert_eq!((fleet.refresh, fleet.settle), (Duration::from_secs(5), Duration::from_millis(250)));
    assert_eq!(fleet.resolvers, ["127.0.0.1:5353".parse().unwrap(), "[::1]:53".parse().unwrap()]);
    assert_eq!((fleet.protocol, fleet.connections), (Protocol::Meta, 4));
    let times = [fleet.connect_timeout, fleet.read_timeout, fleet.timeout, fleet.retry_timeout, fleet.dead_timeout];
    assert_eq!(times.map(|time| time.as_millis()), [100, 1000, 2000, 60_000, 30_000]);
    assert_eq!((fleet.failure_limit, fleet.auto_eject, fleet.on_failure), (2, true, OnFailure::Spare));
    assert_eq!((&fleet.spare[..], fleet.spare_ttl.as_secs()), (&[ServerSpec::new("10.0.0.50", 11211)][..], 20));
    assert_eq!((fleet.replicas, fleet.shadow_percent), (1, 5));
    for named in [&fleet.warm_from, &fleet.shadow] {
        assert_eq!(named.as_deref(), Some("old"));
    }
}

#[test]
fn what_is_wrong_with_a_fleet_is_named_with_its_line() {
    for (name, text, sentence) in [
        (
            "none",
            "[fleet.a]\n",
            "n.toml:1: fleet.a.servers: expected an array of servers, such as [\"10.0.0.40:11211\"]",
        ),
        (
            "empty",
            "[fleet.a]\nservers = []\n",
            "n.toml:2: fleet.a.servers: expected an array of strings, each a server, such as \"10.0.0.40:11211 weight=2\", not []",
        ),
        (
            "number",
            "[fleet.a]\nservers = [1]\n",
            "n.toml:2: fleet.a.servers: expected a server, such as \"10.0.0.40:11211 weight=2\", not 1",
        ),
        (
            "port",
            "[fleet.a]\nservers = [\n  \"a\",\n  \"b:70000\"]\n",
            "n.toml:4: fleet.a.servers: expected a port from 1 to 65535 after b:, not \"b:70000\"",
        ),
        (
            "twice",
            "[fleet.a]\nservers = [\"b weight=2\",\n\"b:11211\"]\n",
            "n.toml:3: fleet.a.servers: expected each server once, b:11211 is listed before, not \"b:11211\"",
        ),
        (
            "spare-twice",
            "[fleet.a]\nservers = [\"b\"]\nspare = [\"c\", \"c:11211\"]\n",
            "n.toml:3: fleet.a.spare: expected each server once, c:11211 is listed before, not \"c:11211\"",
        ),
        (
            "weightless",
            "[fleet.a]\nservers = [\"b weight=0\"]\n",
            "n.toml:2: fleet.a.servers: expected a server that takes keys, all have weight=0",
        ),
        (
            "hash",
            "[fleet.a]\nservers = [\"b\"]\ndistribution = \"dalli\"\nhash = \"md5\"\n",
            "n.toml:4: fleet.a.hash: expected no such key with distribution dalli, which has a hash of its own",
        ),
        (
            "namespace",
            "[fleet.a]\nservers = [\"b\"]\nhash_with_namespace = true\n",
            "n.toml:3: fleet.a.hash_with_namespace: expected a namespace with it",
        ),
        (
            "spare",
            "[fleet.a]\nservers = [\"b\"]\non_failure = \"spare\"\n",
            "n.toml:3: fleet.a.on_failure: expected the key spare with servers when this is \"spare\"",
        ),
        (
            "other",
            "[fleet.a]\nservers = [\"b\"]\nshadow = \"a\"\n[fleet.c]\nservers = [\"b\"]\n",
            "n.toml:3: fleet.a.shadow: expected the name of another fleet of the file (c), not \"a\"",
        ),
        (
            "alone",
            "[fleet.a]\nservers = [\"b\"]\nwarm_from = \"c\"\n",
            "n.toml:3: fleet.a.warm_from: expected the name of another fleet of the file (there is none), not \"c\"",
        ),
        (
            "chain",
            "[fleet.a]\nservers = [\"b\"]\nshadow = \"c\"\n[fleet.c]\nservers = [\"b\"]\nshadow = \"a\"\n",
            "n.toml:3: fleet.a.shadow: expected a fleet that names no other itself, not \"c\"",
        ),
        (
            "both",
            "[fleet.a]\nservers = [\"b\"]\nwarm_from = \"c\"\nmigrate_from = \"c\"\n[fleet.c]\nservers = [\"b\"]\n",
            "n.toml:4: fleet.a.migrate_from: expected none with warm_from, misses are asked of one other fleet",
        ),
        (
            "migrate for",
            "[fleet.a]\nservers = [\"b\"]\nmigrate_for = \"1h\"\n",
            "n.toml:3: fleet.a.migrate_for: expected migrate_from with it",
        ),
        (
            "shadow percent",
            "[fleet.a]\nservers = [\"b\"]\nshadow_percent = 10\n",
            "n.toml:3: fleet.a.shadow_percent: expected shadow with it",
        ),
        (
            "spare-weightless",
            "[fleet.a]\nservers = [\"b\"]\non_failure = \"spare\"\nspare = [\"c weight=0\"]\n",
            "n.toml:4: fleet.a.spare: expected at least one that takes keys",
        ),
        (
            "resolver",
            "[fleet.a]\nservers = [\"b\"]\nresolvers = [\"ns1\"]\n",
            "n.toml:3: fleet.a.resolvers: expected the address and port of a name server, such as \"10.0.0.53:53\", not \"ns1\"",
        ),
        (
            "time",
            "[fleet.a]\nservers = [\"b\"]\nrefresh = \"10ms\"\n",
            "n.toml:3: fleet.a.refresh: expected a time from 100ms up, such as 250ms, 4s, 5m or a number of seconds, not \"10ms\"",
        ),
        ("name", "[fleet.\"a b\"]\n", "n.toml:1: fleet.a b: expected a name of 1 to 64 letters, digits, - and _"),
    ] {
        assert_eq!(file_problem(&format!("fleet-{name}"), text), sentence);
    }
}

#[test]
fn a_pool_before_a_fleet_is_told_what_it_cannot_be() {
    let fleet = "[fleet.a]\nservers = [\"b\"]\n";
    let pool = "[pool.default]\nbackend = \"a\"\n";
    let settings = File::new("backed", &format!("{fleet}{pool}ttl_max = \"2s\"\ngrace = 60\n")).load(&[]);
    let pool_settings = &settings.pools[0];
    assert_eq!(pool_settings.backend.as_deref(), Some("a"));
    assert_eq!((pool_settings.ttl_max_seconds, pool_settings.grace_seconds), (2, 60));
    for (name, text, sentence) in [
        (
            "missing",
            "[pool.default]\nbackend = \"c\"\n".to_owned() + fleet,
            "n.toml:1: pool.default.backend: expected the name of a fleet or a table of the file (a), not \"c\"",
        ),
        (
            "file",
            format!("{pool}file = \"/x\"\n{fleet}"),
            "n.toml:1: pool.default.file: expected none with a backend, whose copies would be out of date after a restart",
        ),
        (
            "pages",
            format!(
                "{pool}[table.a]\nurl = \"sqlite:///a.db\"\nkey = \"k\"\nvalue = \"v\"\n\
                 [[listen]]\nhttp = \"127.0.0.1:0\"\norigin = \"http://127.0.0.1:1\"\n"
            ),
            "127.0.0.1:0: expected a pool for pages that is before a fleet or alone, default is before a table",
        ),
    ] {
        assert_eq!(file_problem(&format!("backed-{name}"), &text), sentence);
    }
}
