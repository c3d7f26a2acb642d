//! `[fleet.NAME]`: the table of its keys, and what it has to be as a whole: no server twice, other fleets that are there, keys that
//! go together.

use std::time::Duration;

use nuthatch_fleet::membership::Source;
use nuthatch_fleet::membership::sources_are_fixed;
use nuthatch_fleet::{Distribution, FleetSettings, Hash, OnFailure, Placement, Protocol, ServerSpec};

use super::draft::{Draft, FleetDraft};
use super::flags::INT_MAX;
use super::knob::{Action, Knob};
use super::problem::Problem;

/// What names another fleet.
pub(super) const ANOTHER: &str = "the name of another fleet";

/// `[fleet.NAME]`
pub(super) static KEYS: &[Knob<FleetDraft>] = &[
    Knob::<FleetDraft>::new(
        "servers",
        "who belongs to it: HOST:PORT or unix:PATH, with weight=N and name=WORD after it, or a list kept elsewhere: dns:HOST:PORT, srv:NAME, etcd:http://HOST:PORT/PREFIX",
        Action::List { expected: "a server, such as \"10.0.0.40:11211 weight=2\"", add: add_server },
    ),
    Knob::<FleetDraft>::new(
        "distribution",
        "where keys go; docs/fleet.md says which client and proxy does what",
        Action::Choice(&Distribution::NAMES, |d, word| {
            d.fleet.placement.distribution = Distribution::named(word).unwrap_or_default();
        }),
    )
    .default("ketama_weighted"),
    Knob::<FleetDraft>::new(
        "hash",
        "the hash of keys, where the distribution leaves a choice; its own when left out",
        Action::Choice(&Hash::NAMES, |d, word| d.fleet.placement.hash = Hash::named(word)),
    ),
    Knob::<FleetDraft>::new(
        "namespace",
        "is put before every key",
        Action::Text {
            expected: "1 to 128 bytes without blanks and control characters",
            set: |d, text| {
                d.fleet.placement.namespace = text.as_bytes().to_vec();
                (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte > b' ' && byte != 0x7f)
            },
        },
    ),
    Knob::<FleetDraft>::new(
        "hash_with_namespace",
        "the namespace is hashed with the key (libmemcached's HASH_WITH_PREFIX_KEY)",
        Action::Switch(|d, on| d.fleet.placement.hash_with_namespace = on),
    )
    .default("false"),
    Knob::<FleetDraft>::new(
        "sort_hosts",
        "servers are ordered by host and port first (libmemcached's SORT_HOSTS)",
        Action::Switch(|d, on| d.fleet.placement.sort_hosts = on),
    )
    .default("false"),
    Knob::<FleetDraft>::new(
        "hash_tag",
        "two characters; of a key that has both, only what stands between them is hashed (twemproxy's hash_tag)",
        Action::Text {
            expected: "two characters, such as \"{}\"",
            set: |d, text| match text.as_bytes() {
                [first, last] => {
                    d.fleet.placement.hash_tag = Some((*first, *last));
                    true
                }
                _ => false,
            },
        },
    ),
    Knob::<FleetDraft>::new(
        "refresh",
        "how often names are resolved again, and how long etcd is left alone after it was lost",
        Action::Time { min: Duration::from_millis(100), set: |d, time| d.fleet.refresh = time },
    )
    .default("30s"),
    Knob::<FleetDraft>::new(
        "settle",
        "how long a list that changed has to stay as it is before it is used",
        Action::Time { min: Duration::ZERO, set: |d, time| d.fleet.settle = time },
    )
    .default("2s"),
    Knob::<FleetDraft>::new(
        "resolvers",
        "name servers to ask, ADDRESS:PORT; those of the system when left out",
        Action::List {
            expected: "the address and port of a name server",
            add: |d, text| {
                let address =
                    text.parse().map_err(|_| "the address and port of a name server, such as \"10.0.0.53:53\"")?;
                d.fleet.resolvers.push(address);
                Ok(())
            },
        },
    ),
    Knob::<FleetDraft>::new(
        "protocol",
        "what is spoken with the servers",
        Action::Choice(Protocol::NAMES, |d, word| {
            d.fleet.protocol = Protocol::named(word).unwrap_or_default();
        }),
    )
    .default("text"),
    Knob::<FleetDraft>::new(
        "connections",
        "connections to each server",
        Action::Integer { min: 1, max: 1024, missing: None, set: |d, n| d.fleet.connections = n as usize },
    )
    .default("1"),
    Knob::<FleetDraft>::new(
        "connect_timeout",
        "how long connecting may take",
        Action::Time { min: Duration::from_millis(1), set: |d, time| d.fleet.connect_timeout = time },
    )
    .default("4s"),
    Knob::<FleetDraft>::new(
        "read_timeout",
        "how long a server may say nothing while an answer is awaited",
        Action::Time { min: Duration::from_millis(1), set: |d, time| d.fleet.read_timeout = time },
    )
    .default("5s"),
    Knob::<FleetDraft>::new(
        "timeout",
        "how long an operation may take altogether, tries of other servers included",
        Action::Time { min: Duration::from_millis(1), set: |d, time| d.fleet.timeout = time },
    )
    .default("5s"),
    Knob::<FleetDraft>::new(
        "failure_limit",
        "after how many failures in a row a server is out",
        Action::Integer { min: 1, max: INT_MAX, missing: None, set: |d, n| d.fleet.failure_limit = n as u32 },
    )
    .default("5"),
    Knob::<FleetDraft>::new(
        "retry_timeout",
        "how long after a failed connection the next is tried",
        Action::Time { min: Duration::ZERO, set: |d, time| d.fleet.retry_timeout = time },
    )
    .default("2s"),
    Knob::<FleetDraft>::new(
        "dead_timeout",
        "how long a server that is out stays out; 0 is retry_timeout",
        Action::Time { min: Duration::ZERO, set: |d, time| d.fleet.dead_timeout = time },
    )
    .default("0"),
    Knob::<FleetDraft>::new(
        "auto_eject",
        "keys are placed as if a server that is out were not listed (libmemcached's AUTO_EJECT_HOSTS)",
        Action::Switch(|d, on| d.fleet.auto_eject = on),
    )
    .default("false"),
    Knob::<FleetDraft>::new(
        "on_failure",
        "whose server is out: next asks the one that comes next for the key, spare a spare one, miss none (docs/tier.md)",
        Action::Choice(OnFailure::NAMES, |d, word| d.fleet.on_failure = OnFailure::named(word).unwrap_or_default()),
    )
    .default("miss"),
    Knob::<FleetDraft>::new(
        "spare",
        "servers for the keys of those that are out",
        Action::List { expected: "a server, such as \"10.0.0.50:11211\"", add: add_spare },
    ),
    Knob::<FleetDraft>::new(
        "spare_ttl",
        "how long at most what is stored on a spare server lives",
        Action::Time { min: Duration::from_secs(1), set: |d, time| d.fleet.spare_ttl = time },
    )
    .default("10s"),
    Knob::<FleetDraft>::new(
        "replicas",
        "copies besides the first, on the servers that come next for the key",
        Action::Integer { min: 0, max: 16, missing: None, set: |d, n| d.fleet.replicas = n as usize },
    )
    .default("0"),
    Knob::<FleetDraft>::new(
        "warm_from",
        "the fleet that answers misses while this one is cold",
        Action::Text { expected: ANOTHER, set: |d, text| other(&mut d.fleet.warm_from, text) },
    ),
    Knob::<FleetDraft>::new(
        "shadow",
        "a fleet that is sent the same requests and whose answers are dropped",
        Action::Text { expected: ANOTHER, set: |d, text| other(&mut d.fleet.shadow, text) },
    ),
    Knob::<FleetDraft>::new(
        "shadow_percent",
        "of how many keys in a hundred the shadow is sent the requests, always of the same ones",
        Action::Integer { min: 1, max: 100, missing: None, set: |d, n| d.fleet.shadow_percent = n as u8 },
    )
    .default("100"),
    Knob::<FleetDraft>::new(
        "migrate_from",
        "the fleet that keys come from as they are asked for",
        Action::Text { expected: ANOTHER, set: |d, text| other(&mut d.fleet.migrate_from, text) },
    ),
    Knob::<FleetDraft>::new(
        "migrate_for",
        "how long they do, from the start or reload that began it; 0 is for as long as migrate_from stands here",
        Action::Time { min: Duration::ZERO, set: |d, time| d.fleet.migrate_for = time },
    )
    .default("0"),
];

/// An element of `servers`. The error ends the sentence "expected …".
pub(super) fn add_server(draft: &mut FleetDraft, text: &str) -> Result<(), String> {
    let source = Source::parse(text)?;
    let is_listed = draft.fleet.servers.iter().any(|other| match (other, &source) {
        (Source::Server(other), Source::Server(server)) => other.is_same_server(server),
        (other, source) => other == source,
    });
    if is_listed {
        return Err(format!("each server once, {source} is listed before"));
    }
    draft.fleet.servers.push(source);
    Ok(())
}

/// An element of `spare`. The error ends the sentence "expected …".
pub(super) fn add_spare(draft: &mut FleetDraft, text: &str) -> Result<(), String> {
    let server = ServerSpec::parse(text)?;
    if draft.fleet.spare.iter().any(|other| other.is_same_server(&server)) {
        return Err(format!("each server once, {server} is listed before"));
    }
    draft.fleet.spare.push(server);
    Ok(())
}

/// Takes the name of another fleet; whether it is there is known at the end.
pub(super) fn other(place: &mut Option<String>, name: &str) -> bool {
    *place = Some(name.to_owned());
    !name.is_empty()
}

impl FleetDraft {
    /// A fleet that the file opens at `place`.
    pub(super) fn at(name: &str, place: String) -> FleetDraft {
        FleetDraft { fleet: FleetSettings::named(name), place, key_places: Vec::new() }
    }

    /// A sentence about one of its keys.
    fn problem(&self, key: &str, expected: &str) -> Problem {
        let written = self.key_places.iter().find(|(name, _)| name == key);
        let place = written.map_or(&self.place, |(_, place)| place);
        Problem::value(format!("{place}: fleet.{}.{key}: expected {expected}", self.fleet.name))
    }
}

impl Draft {
    /// The fleets, each checked by itself and against the others.
    pub(super) fn finish_fleets(&self) -> Result<Vec<FleetSettings>, Problem> {
        for draft in &self.fleets {
            self.check_fleet(draft)?;
        }
        Ok(self.fleets.iter().map(|draft| draft.fleet.clone()).collect())
    }

    fn check_fleet(&self, draft: &FleetDraft) -> Result<(), Problem> {
        let fleet = &draft.fleet;
        if fleet.servers.is_empty() {
            return Err(draft.problem("servers", "an array of servers, such as [\"10.0.0.40:11211\"]"));
        }
        if fleet.servers.iter().all(|source| matches!(source, Source::Server(server) if server.weight == 0)) {
            return Err(draft.problem("servers", "a server that takes keys, all have weight=0"));
        }
        let placement = &fleet.placement;
        if placement.hash.is_some() && placement.distribution.default_hash().is_none() {
            let name = placement.distribution.name();
            return Err(
                draft.problem("hash", &format!("no such key with distribution {name}, which has a hash of its own"))
            );
        }
        if placement.hash_with_namespace && placement.namespace.is_empty() {
            return Err(draft.problem("hash_with_namespace", "a namespace with it"));
        }
        if fleet.on_failure == OnFailure::Spare && fleet.spare.is_empty() {
            return Err(draft.problem("on_failure", "the key spare with servers when this is \"spare\""));
        }
        for (key, named) in
            [("warm_from", &fleet.warm_from), ("shadow", &fleet.shadow), ("migrate_from", &fleet.migrate_from)]
        {
            let Some(name) = named else { continue };
            if *name == fleet.name || self.fleets.iter().all(|other| other.fleet.name != *name) {
                let others: Vec<&str> = self.fleets.iter().map(|other| other.fleet.name.as_str()).collect();
                let others: Vec<&str> = others.into_iter().filter(|other| *other != fleet.name).collect();
                let others = if others.is_empty() { "there is none".to_owned() } else { others.join(", ") };
                return Err(draft.problem(key, &format!("{ANOTHER} of the file ({others}), not {name:?}")));
            }
            let names_others = |fleet: &FleetSettings| {
                fleet.warm_from.is_some() || fleet.shadow.is_some() || fleet.migrate_from.is_some()
            };
            if self.fleets.iter().any(|other| other.fleet.name == *name && names_others(&other.fleet)) {
                return Err(draft.problem(key, &format!("a fleet that names no other itself, not {name:?}")));
            }
        }
        if fleet.warm_from.is_some() && fleet.migrate_from.is_some() {
            return Err(draft.problem("migrate_from", "none with warm_from, misses are asked of one other fleet"));
        }
        if fleet.migrate_from.is_none() && !fleet.migrate_for.is_zero() {
            return Err(draft.problem("migrate_for", "migrate_from with it"));
        }
        if fleet.shadow.is_none() && fleet.shadow_percent < 100 {
            return Err(draft.problem("shadow_percent", "shadow with it"));
        }
        // Whatever else keeps keys from being placed.
        let spare = (fleet.on_failure == OnFailure::Spare).then(|| fleet.spare.clone());
        for (key, servers) in [("servers", sources_are_fixed(&fleet.servers)), ("spare", spare)] {
            let Some(Err(error)) = servers.map(|servers| Placement::new(placement, &servers)) else { continue };
            let sentence = error.to_string();
            let expected = sentence.split_once("expected ").map_or(sentence.as_str(), |(_, expected)| expected);
            return Err(draft.problem(key, expected));
        }
        Ok(())
    }
}
