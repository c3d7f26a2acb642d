//! What can be said about a fleet. The server's settings read it from `[fleet.NAME]`; nothing here does anything.

use std::net::SocketAddr;
use std::time::Duration;

use crate::membership::Source;
use crate::placement::{Distribution, Hash, ServerSpec};

/// A fleet, checked. Times and limits are libmemcached's when nothing is said.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSettings {
    /// How pools and other fleets name it.
    pub name: String,
    /// Where the list of servers comes from; never empty, and no server is in it twice.
    pub servers: Vec<Source>,
    /// Where keys go.
    pub placement: PlacementSettings,
    /// How often names are resolved again, and how long after it was lost a connection to etcd is tried anew.
    pub refresh: Duration,
    /// How long a changed list has to stay as it is before it is used.
    pub settle: Duration,
    /// Name servers to ask; those of the system when empty.
    pub resolvers: Vec<SocketAddr>,
    /// What is spoken with the servers.
    pub protocol: Protocol,
    /// Connections to each server.
    pub connections: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a server may say nothing while an answer is awaited.
    pub read_timeout: Duration,
    /// How long an operation may take altogether, other servers' tries included.
    pub timeout: Duration,
    /// After how many failures in a row a server is out.
    pub failure_limit: u32,
    /// How long after a failed connection the next is tried.
    pub retry_timeout: Duration,
    /// How long a server that is out stays out; as long as `retry_timeout` when zero.
    pub dead_timeout: Duration,
    /// Whether keys of a server that is out are placed as if it were not in the list.
    pub auto_eject: bool,
    /// What becomes of an operation whose server is out.
    pub on_failure: OnFailure,
    /// Servers for keys whose own are out, with `on_failure = "spare"`.
    pub spare: Vec<ServerSpec>,
    /// How long what is stored there lives at most.
    pub spare_ttl: Duration,
    /// Copies besides the first, on the servers that come next.
    pub replicas: usize,
    /// The fleet that answers misses while this one is cold.
    pub warm_from: Option<String>,
    /// The fleet that is sent the same requests, and whose answers are dropped.
    pub shadow: Option<String>,
    /// Of how many keys in a hundred it is sent the requests.
    pub shadow_percent: u8,
    /// The fleet that keys come from, one by one, as they are asked for.
    pub migrate_from: Option<String>,
    /// How long, from when it was begun; zero is for as long as it is configured.
    pub migrate_for: Duration,
}

/// Where keys go.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PlacementSettings {
    /// How a hash leads to a server.
    pub distribution: Distribution,
    /// The hash of keys; `None` is the distribution's own.
    pub hash: Option<Hash>,
    /// What is put before every key (`MEMCACHED_CALLBACK_NAMESPACE`, php's `OPT_PREFIX_KEY`).
    pub namespace: Vec<u8>,
    /// Whether the namespace is part of what is hashed (`MEMCACHED_BEHAVIOR_HASH_WITH_PREFIX_KEY`).
    pub hash_with_namespace: bool,
    /// Whether servers are ordered by host and port first (`MEMCACHED_BEHAVIOR_SORT_HOSTS`).
    pub sort_hosts: bool,
    /// Only what stands between these two bytes is hashed, where a key has both (twemproxy's `hash_tag`).
    pub hash_tag: Option<(u8, u8)>,
}

/// What is spoken with the servers of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The text commands, which every server has.
    #[default]
    Text,
    /// The meta commands of memcached 1.6.
    Meta,
    /// The binary protocol.
    Binary,
}

/// What becomes of an operation whose server is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The server that comes next for the key takes it.
    Next,
    /// A spare server takes it, for a short time.
    Spare,
    /// It is a miss, or not stored.
    #[default]
    Miss,
}

/// Whose way of compressing values is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// Values go as they are.
    #[default]
    None,
    /// php-memcached's, by zlib.
    PhpZlib,
    /// php-memcached's, by fastlz.
    PhpFastlz,
    /// pylibmc's.
    Pylibmc,
    /// pymemcache's `CompressedSerde`.
    Pymemcache,
    /// Dalli's.
    Dalli,
}

impl FleetSettings {
    /// A fleet that nothing was said about yet; `servers` is still empty.
    pub fn named(name: &str) -> FleetSettings {
        FleetSettings {
            name: name.to_owned(),
            servers: Vec::new(),
            placement: PlacementSettings::default(),
            refresh: Duration::from_secs(30),
            settle: Duration::from_secs(2),
            resolvers: Vec::new(),
            protocol: Protocol::Text,
            connections: 1,
            connect_timeout: Duration::from_secs(4),
            read_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            failure_limit: 5,
            retry_timeout: Duration::from_secs(2),
            dead_timeout: Duration::ZERO,
            auto_eject: false,
            on_failure: OnFailure::Miss,
            spare: Vec::new(),
            spare_ttl: Duration::from_secs(10),
            replicas: 0,
            warm_from: None,
            shadow: None,
            shadow_percent: 100,
            migrate_from: None,
            migrate_for: Duration::ZERO,
        }
    }
}

impl PlacementSettings {
    /// The hash of keys, `None` where the distribution hashes in its own way.
    pub fn key_hash(&self) -> Option<Hash> {
        self.distribution.default_hash().map(|default| self.hash.unwrap_or(default))
    }
}

macro_rules! words {
    ($($type:ident: $($variant:ident $word:literal),+;)+) => {$(
        impl $type {
            /// The words for it in the configuration file.
            pub const NAMES: &[&str] = &[$($word),+];

            /// Its word in the configuration file.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }

            /// What `word` stands for.
            pub fn named(word: &str) -> Option<$type> {
                match word { $($word => Some($type::$variant),)+ _ => None }
            }
        }
    )+};
}

words! {
    Protocol: Text "text", Meta "meta", Binary "binary";
    OnFailure: Next "next", Spare "spare", Miss "miss";
    Compression: None "none", PhpZlib "php_zlib", PhpFastlz "php_fastlz", Pylibmc "pylibmc",
        Pymemcache "pymemcache", Dalli "dalli";
}
