//! The ways keys are spread that fleets are in use with, and their names in the configuration file.

use super::Hash;

/// How a key's hash, or the key, leads to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Distribution {
    /// libmemcached's default: the hash modulo the number of servers. Every change of the list moves nearly all keys.
    Modula,
    /// libmemcached's `MEMCACHED_BEHAVIOR_KETAMA` and `DISTRIBUTION_CONSISTENT`: 100 points for each server by the hash that keys
    /// have as well. A weight above 1 makes the points those of [`KetamaWeighted`](Self::KetamaWeighted), and leaves the keys' hash.
    Ketama,
    /// libmemcached's `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`, php-memcached's `OPT_LIBKETAMA_COMPATIBLE`: 160 points for a server of
    /// mean weight, by MD5.
    #[default]
    KetamaWeighted,
    /// libmemcached's `DISTRIBUTION_CONSISTENT_KETAMA_SPY`, the labels of the Java client spymemcached.
    KetamaSpy,
    /// twemproxy's `ketama`: the weighted ring, over the servers' names where they have any.
    Twemproxy,
    /// twemproxy's `modula`: a server counts as often as it weighs.
    TwemproxyModula,
    /// The ring of the Ruby client Dalli; a key whose server is out is hashed anew.
    Dalli,
    /// The highest score of `murmur3_32("host:port-key")`, as pymemcache's `HashClient`.
    Pymemcache,
    /// Jump consistent hash (Lamping and Veach, 2014): no table, but servers come and go only at the end of the list.
    Jump,
    /// The highest score, in proportion to weights, of the key and the server: XXH3, splitmix64 and `-weight / ln u`.
    Rendezvous,
}

impl Distribution {
    /// Every distribution, in the order of the documentation.
    pub const ALL: [Distribution; 10] = [
        Distribution::KetamaWeighted,
        Distribution::Ketama,
        Distribution::KetamaSpy,
        Distribution::Modula,
        Distribution::Twemproxy,
        Distribution::TwemproxyModula,
        Distribution::Dalli,
        Distribution::Pymemcache,
        Distribution::Jump,
        Distribution::Rendezvous,
    ];

    /// The names of [`ALL`](Self::ALL).
    pub const NAMES: [&str; 10] = {
        let mut names = [""; 10];
        let mut index = 0;
        while index < 10 {
            names[index] = Distribution::ALL[index].name();
            index += 1;
        }
        names
    };

    /// Its name in the configuration file.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Modula => "modula",
            Distribution::Ketama => "ketama",
            Distribution::KetamaWeighted => "ketama_weighted",
            Distribution::KetamaSpy => "ketama_spy",
            Distribution::Twemproxy => "twemproxy",
            Distribution::TwemproxyModula => "twemproxy_modula",
            Distribution::Dalli => "dalli",
            Distribution::Pymemcache => "pymemcache",
            Distribution::Jump => "jump",
            Distribution::Rendezvous => "rendezvous",
        }
    }

    /// The distribution called `name`.
    pub fn named(name: &str) -> Option<Distribution> {
        Self::ALL.into_iter().find(|distribution| distribution.name() == name)
    }

    /// The hash its keys have when none is chosen; `None` where the distribution has a hash of its own and none can be chosen.
    pub const fn default_hash(self) -> Option<Hash> {
        match self {
            Distribution::Modula | Distribution::Ketama | Distribution::KetamaSpy => Some(Hash::OneAtATime),
            Distribution::KetamaWeighted => Some(Hash::Md5),
            Distribution::Twemproxy | Distribution::TwemproxyModula => Some(Hash::Fnv1a64),
            Distribution::Dalli | Distribution::Pymemcache | Distribution::Jump | Distribution::Rendezvous => None,
        }
    }
}
