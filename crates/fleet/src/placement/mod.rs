//! Where a key lives: pure functions of the list of servers, the distribution, the hash and the key.
//!
//! Nothing here opens a connection, looks up a name or knows the time. A lookup allocates nothing.
//!
//! ```
//! use nuthatch_fleet::placement::{Placement, ServerSpec};
//! use nuthatch_fleet::PlacementSettings;
//!
//! let servers = [1, 2, 3].map(|n| ServerSpec::new(&format!("10.0.1.{n}"), 11211));
//! let placement = Placement::new(&PlacementSettings::default(), &servers)?;
//! let lives = placement.server_of(b"greeting");
//! // Where to look when that server is out.
//! let next = placement.candidates(b"greeting").find(|server| *server != lives);
//! assert!(next.is_some());
//! # Ok::<(), nuthatch_fleet::placement::PlacementError>(())
//! ```

mod candidates;
mod distribution;
mod hash;
mod murmur3;
mod ring;
mod score;
mod set;
pub(crate) mod spec;
#[cfg(test)]
mod tests;

use std::fmt;

pub use candidates::Candidates;
pub use distribution::Distribution;
pub use hash::Hash;
pub use set::{SERVERS_MAX, Set};
pub use spec::ServerSpec;
use xxhash_rust::xxh3::xxh3_64;

use crate::PlacementSettings;
use ring::{Labels, Ring};
use score::{Pymemcache, Weighted};

/// The longest key; a namespace counts as a part of it.
const KEY_BYTES_MAX: usize = 250;

/// Where the keys of one list of servers live.
#[derive(Clone, Debug)]
pub struct Placement {
    settings: PlacementSettings,
    servers: Vec<ServerSpec>,
    /// Those that take keys, as indices into `servers`, in the order that counts.
    order: Vec<u16>,
    /// Those that keys are placed without.
    out: Set,
    method: Method,
}

#[derive(Clone, Debug)]
enum Method {
    /// There is one server, and nothing is hashed.
    One,
    /// The hash modulo the length of the list, in which a server may stand more than once.
    Modula(Hash, Vec<u16>),
    Ring(Hash, Ring),
    Dalli(Ring),
    Pymemcache(Pymemcache),
    Jump,
    Weighted(Weighted),
}

/// Why there can be no placement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementError {
    /// The list has no server that takes keys.
    Nobody,
    /// This one is in the list twice.
    Twice(ServerSpec),
    /// The list has this many, which is more than [`SERVERS_MAX`].
    TooMany(usize),
    /// The distribution hashes in its own way, and a hash was chosen.
    Hash(Distribution, Hash),
}

/// What leads a key to its server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explanation {
    /// The server's index in the list.
    pub server: usize,
    /// The key's hash, and what it is called; `None` where nothing is hashed because there is one server.
    pub hash: Option<(&'static str, u64)>,
    /// The point of the ring that it leads to.
    pub point: Option<u32>,
    /// The server's score, by which it wins over the others.
    pub score: Option<f64>,
}

impl Placement {
    /// Of `servers`, in the order in which clients have them. Indices everywhere are indices into it.
    pub fn new(settings: &PlacementSettings, servers: &[ServerSpec]) -> Result<Placement, PlacementError> {
        if let (Some(hash), None) = (settings.hash, settings.distribution.default_hash()) {
            return Err(PlacementError::Hash(settings.distribution, hash));
        }
        if servers.len() > SERVERS_MAX {
            return Err(PlacementError::TooMany(servers.len()));
        }
        for (index, server) in servers.iter().enumerate() {
            if servers[..index].iter().any(|other| other.is_same_server(server)) {
                return Err(PlacementError::Twice(server.clone()));
            }
        }
        let mut order: Vec<u16> =
            (0..servers.len() as u16).filter(|index| servers[usize::from(*index)].weight > 0).collect();
        if order.is_empty() {
            return Err(PlacementError::Nobody);
        }
        if settings.sort_hosts {
            order.sort_by_key(|index| {
                let server = &servers[usize::from(*index)];
                (server.host.as_bytes(), server.port)
            });
        }
        if matches!(settings.distribution, Distribution::Twemproxy | Distribution::TwemproxyModula) {
            // twemproxy has its servers in the order of their names, shorter ones first, whatever the order of its file.
            order.sort_by_cached_key(|index| {
                let name = Labels::Twemproxy.stem(&servers[usize::from(*index)]);
                (name.len(), name)
            });
        }
        let mut placement = Placement {
            settings: settings.clone(),
            servers: servers.to_vec(),
            order,
            out: Set::default(),
            method: Method::One,
        };
        placement.method = placement.method();
        Ok(placement)
    }

    /// The placement of the same list while those in `out` are ejected. As in libmemcached, `modula` is not changed by it, and nothing
    /// is when every server is out; the others compute as if the list were shorter, except that Dalli hashes a key of such a server anew.
    pub fn without(&self, out: &Set) -> Placement {
        let mut placement = Placement { out: *out, ..self.clone() };
        if self.order.iter().all(|index| out.has(usize::from(*index))) {
            placement.out = Set::default();
        }
        placement.method = placement.method();
        placement
    }

    /// The list of servers.
    pub fn servers(&self) -> &[ServerSpec] {
        &self.servers
    }

    /// What the placement is made from.
    pub fn settings(&self) -> &PlacementSettings {
        &self.settings
    }

    /// The index of the server that `key` lives on. For clients' `*_by_key` calls, `key` is the group's key.
    #[inline]
    pub fn server_of(&self, key: &[u8]) -> usize {
        match &self.method {
            Method::Ring(hash, ring) => ring.owner(ring.at_or_after(self.hash32(*hash, key))),
            Method::Modula(hash, turns) => usize::from(turns[self.hash32(*hash, key) as usize % turns.len()]),
            _ => self.candidates(key).next().unwrap_or(0),
        }
    }

    /// The servers to try for `key`, the one it lives on first, each once.
    ///
    /// | distribution | who comes next |
    /// |---|---|
    /// | rings | the owner of the next point that is another's |
    /// | `modula` | the next server of the list |
    /// | Dalli | whom `"0KEY"`, `"1KEY"` … lead to, as Dalli's failover; none after 20 of them |
    /// | `pymemcache`, `rendezvous` | the next highest score |
    /// | `jump` | where the mixed hash leads, then the list from there on |
    pub fn candidates<'a>(&'a self, key: &'a [u8]) -> Candidates<'a> {
        Candidates::new(self, key)
    }

    /// Why `key` lives where it does.
    pub fn explain(&self, key: &[u8]) -> Explanation {
        let server = self.server_of(key);
        let plain = Explanation { server, hash: None, point: None, score: None };
        let hash32 = |hash: Hash| (hash.name(), u64::from(self.hash32(hash, key)));
        match &self.method {
            Method::One => plain,
            Method::Modula(hash, _) => Explanation { hash: Some(hash32(*hash)), ..plain },
            Method::Ring(hash, ring) => {
                let hash = hash32(*hash);
                Explanation { hash: Some(hash), point: Some(ring.point(ring.at_or_after(hash.1 as u32))), ..plain }
            }
            Method::Dalli(ring) => {
                let hash = self.with_hashed(key, crc32fast::hash);
                let point = Some(ring.point(ring.at_or_before(hash)));
                Explanation { hash: Some(("crc32", u64::from(hash))), point, ..plain }
            }
            Method::Pymemcache(scores) => {
                let best = self.with_hashed(key, |key| scores.best(key, &self.out));
                let score = best.map_or(0, |(_, score)| score);
                Explanation { hash: Some(("murmur3_32", u64::from(score))), score: Some(f64::from(score)), ..plain }
            }
            Method::Jump => Explanation { hash: Some(("xxh3", self.hash64(key))), ..plain },
            Method::Weighted(scores) => {
                let hash = self.hash64(key);
                let score = scores.best(hash, &self.out).map(|(_, score)| score);
                Explanation { hash: Some(("xxh3", hash)), score, ..plain }
            }
        }
    }

    /// Those that keys are spread over now, with their indices.
    fn live(&self) -> impl Iterator<Item = (u16, &ServerSpec)> + Clone {
        let live = self.order.iter().filter(|index| !self.out.has(usize::from(**index)));
        live.map(|index| (*index, &self.servers[usize::from(*index)]))
    }

    fn method(&self) -> Method {
        if self.order.len() == 1 {
            return Method::One;
        }
        let hash = self.settings.key_hash().unwrap_or(Hash::OneAtATime);
        let has_weights = self.order.iter().any(|index| self.servers[usize::from(*index)].weight > 1);
        match self.settings.distribution {
            Distribution::Modula => Method::Modula(hash, self.order.clone()),
            Distribution::TwemproxyModula => {
                let turns = |(index, server): (u16, &ServerSpec)| std::iter::repeat_n(index, server.weight as usize);
                Method::Modula(hash, self.live().flat_map(turns).collect())
            }
            Distribution::KetamaWeighted => Method::Ring(hash, self.libmemcached(Labels::Libmemcached, true, hash)),
            Distribution::Ketama => Method::Ring(hash, self.libmemcached(Labels::Libmemcached, has_weights, hash)),
            Distribution::KetamaSpy => Method::Ring(hash, self.libmemcached(Labels::Spy, has_weights, hash)),
            Distribution::Twemproxy => Method::Ring(hash, Ring::weighted(self.live(), Labels::Twemproxy)),
            Distribution::Dalli => {
                // Dalli's ring keeps those that are out.
                Method::Dalli(Ring::dalli(self.order.iter().map(|index| (*index, &self.servers[usize::from(*index)]))))
            }
            Distribution::Pymemcache => Method::Pymemcache(Pymemcache::new(self.live())),
            Distribution::Rendezvous => Method::Weighted(Weighted::new(self.live())),
            Distribution::Jump => Method::Jump,
        }
    }

    fn libmemcached(&self, labels: Labels, is_weighted: bool, hash: Hash) -> Ring {
        match is_weighted {
            true => Ring::weighted(self.live(), labels),
            false => Ring::plain(self.live(), labels, hash),
        }
    }

    /// The key's hash; 0 for one that is too long with its namespace, as in libmemcached.
    #[inline]
    fn hash32(&self, hash: Hash, key: &[u8]) -> u32 {
        self.with_hashed(key, |key| hash.of(key))
    }

    fn hash64(&self, key: &[u8]) -> u64 {
        self.with_hashed(key, xxh3_64)
    }

    /// Hands `f` what is hashed of a key: what stands between the two bytes of `hash_tag`, with the namespace before it if that counts.
    #[inline]
    fn with_hashed<T: Default>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> T {
        let settings = &self.settings;
        let key = settings.hash_tag.map_or(key, |tag| tagged(key, tag));
        // Dalli's keys have their namespace by the time its ring sees them.
        if !settings.hash_with_namespace && settings.distribution != Distribution::Dalli
            || settings.namespace.is_empty()
        {
            return f(key);
        }
        let (before, whole) = (settings.namespace.len(), settings.namespace.len() + key.len());
        if whole > KEY_BYTES_MAX {
            return T::default();
        }
        let mut buffer = [0; KEY_BYTES_MAX];
        buffer[..before].copy_from_slice(&settings.namespace);
        buffer[before..whole].copy_from_slice(key);
        f(&buffer[..whole])
    }
}

/// What stands between the first `open` and the next `close`, or the whole key if nothing does (twemproxy's `server_pool_idx`).
fn tagged(key: &[u8], (open, close): (u8, u8)) -> &[u8] {
    let Some(start) = key.iter().position(|byte| *byte == open) else { return key };
    let inner = &key[start + 1..];
    match inner.iter().position(|byte| *byte == close) {
        None | Some(0) => key,
        Some(end) => &inner[..end],
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::Nobody => f.write_str("servers: expected at least one that takes keys"),
            PlacementError::Twice(server) => write!(f, "servers: expected each once, {server} is listed twice"),
            PlacementError::TooMany(count) => write!(f, "servers: expected at most {SERVERS_MAX}, not {count}"),
            PlacementError::Hash(distribution, hash) => write!(
                f,
                "hash: expected none with distribution {}, which has a hash of its own, not {}",
                distribution.name(),
                hash.name()
            ),
        }
    }
}

impl std::error::Error for PlacementError {}
