//! What a client is told when it is made. Plain values with defaults; nothing here does anything.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::Protocol;
use crate::placement::Set;

/// Where a server listens. Two servers of one fleet are the same server when these are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerAddr {
    /// A name or an address (an IPv6 address without brackets), looked up at each connect, and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// The path of a UNIX stream socket.
    Unix(PathBuf),
}

impl ServerAddr {
    /// A TCP server.
    pub fn tcp(host: &str, port: u16) -> ServerAddr {
        ServerAddr::Tcp { host: host.to_owned(), port }
    }

    /// A UNIX socket.
    pub fn unix(path: impl Into<PathBuf>) -> ServerAddr {
        ServerAddr::Unix(path.into())
    }
}

/// `host:port`, an IPv6 address in brackets, or `unix:` and the path.
impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddr::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            ServerAddr::Tcp { host, port } => write!(f, "{host}:{port}"),
            ServerAddr::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Where keys live: which of `n` servers, numbered as in the list, is asked for a key.
pub trait Place: Send + Sync + fmt::Debug {
    /// The key's own server.
    fn first(&self, key: &[u8]) -> usize;

    /// Hands the key's servers to `visit`, its own first, each once, until `visit` answers false or all have had their turn.
    fn order(&self, key: &[u8], visit: &mut dyn FnMut(usize) -> bool);

    /// Where keys live while those in `out` are not counted, for [`OnDown::Eject`]; `None` where that is what [`Place::order`]
    /// says anyway. Numbers stay those of the whole list.
    fn without(&self, out: &Set) -> Option<Arc<dyn Place>> {
        let _ = out;
        None
    }
}

/// A list of servers and where keys live among them.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The servers.
    pub list: Vec<ServerAddr>,
    /// Numbers below `list.len()` for every key.
    pub place: Arc<dyn Place>,
}

/// What becomes of the keys of a server that is down.
#[derive(Clone, Debug, Default)]
pub enum OnDown {
    /// Every operation is [`Error::Down`](super::Error::Down).
    #[default]
    Error,
    /// Reads are misses, writes [`Error::Down`](super::Error::Down): a program behind a cache goes on without it.
    Miss,
    /// The server that comes next for the key has it meanwhile.
    Next,
    /// Keys are placed as if the server were not in the list, those of other servers too where that moves them: what
    /// libmemcached's clients with `AUTO_EJECT_HOSTS` and other proxies do, so that all of them go on finding the same items.
    /// With the whole list down, everything is [`Error::Down`](super::Error::Down).
    Eject,
    /// Spare servers (mcrouter's gutter) have it meanwhile, for a short time at most, so that what they know is not long
    /// out of date when the server comes and goes.
    Spare {
        /// The spare servers.
        servers: Servers,
        /// The longest that anything stored there lives, in seconds.
        ttl_seconds_max: u32,
    },
}

/// Which copy of an item is read first, where there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// That of the key's own server.
    #[default]
    First,
    /// That of the server whose answers took least time so far.
    Nearest,
}

/// Another fleet that has what this one lacks.
#[derive(Clone, Debug)]
pub struct Source {
    /// The other fleet. With the meta protocol it tells how long items have left; with the others see
    /// [`Config::fill_seconds`].
    pub client: Client,
    /// What it is to this one.
    pub role: Role,
}

/// What another fleet is to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It goes on being used by others, as another site's fleet: it is asked for what is missing here, and is told of
    /// deletes, but not of what is stored.
    Warm,
    /// It is left behind: besides, it is told of stores, and a write that depends on what is there takes the item along
    /// first. After this time it is forgotten.
    Migrate(Duration),
}

/// Another fleet that is sent the same requests, and whose answers nobody waits for.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// The other fleet.
    pub client: Client,
    /// The share of keys whose requests it gets, from 0 to 1: always those of the same keys.
    pub share: f64,
}

/// Who moves the clock that deadlines are kept by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ticks {
    /// A task of the client's own; it sleeps while nothing is under way.
    #[default]
    Own,
    /// The program calls [`Client::tick`](super::Client::tick) every few milliseconds, from any thread.
    Caller,
}

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The servers.
    pub servers: Servers,
    /// What is spoken with them.
    pub protocol: Protocol,
    /// What is put in front of every key that is sent, and taken off those that come back. Keys are placed without it, unless
    /// their placement puts it in front itself.
    pub namespace: Vec<u8>,
    /// Connections to each server. One carries some millions of requests a second; what a key's requests have to keep is
    /// their order, so a key always uses the same one.
    pub connections: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a server may answer nothing while an answer is due, before its connection is given up.
    pub read_timeout: Duration,
    /// How long an operation may take altogether, second tries included.
    pub timeout: Duration,
    /// After how many failed connections in a row a server is down. A connection fails when it cannot be made, ends while
    /// answers are due, is silent for `read_timeout`, or brings what is no answer.
    pub failure_limit: u32,
    /// How long a server that is down is left alone before it is probed. Doubles with each probe in vain, and a random
    /// quarter more or less keeps clients apart.
    pub retry_timeout: Duration,
    /// The longest such pause.
    pub dead_timeout: Duration,
    /// How long a server that is back takes to get all its keys again: a probe first, then a share of the keys that grows
    /// from a sixteenth to all of them, always the same keys first. Zero: all at once.
    pub ramp: Duration,
    /// What becomes of the keys of a server that is down.
    pub on_down: OnDown,
    /// Whether a server that was down is told `flush_all` before it is asked again, so that nothing it kept while keys were
    /// written elsewhere is ever seen. It empties the server for all its clients.
    pub flush_returning: bool,
    /// How many requests may wait for answers on one connection; one more is [`Error::Busy`](super::Error::Busy) at once.
    pub queue_requests_max: usize,
    /// How many bytes of requests may wait to be sent on one connection, likewise.
    pub queue_bytes_max: usize,
    /// The longest value that is sent or accepted.
    pub value_bytes_max: usize,
    /// Who calls [`Client::tick`](super::Client::tick).
    pub ticks: Ticks,
    /// Copies besides the first, on the servers that come next for the key. Every store and delete goes to all of them that
    /// are up, and fails when one of them fails; a read that finds nothing, or fails, goes to the next, and what that has
    /// is put back where it was missing. Writes that depend on what is there are the first server's to decide, and so are
    /// CAS uniques. Two writers at a time may leave copies that differ.
    pub replicas: usize,
    /// Which copy is read first.
    pub read_from: ReadFrom,
    /// The fleet that answers misses. What it has is put here with `add` and the time it has left.
    pub source: Option<Source>,
    /// The fleet that is sent the same.
    pub shadow: Option<Shadow>,
    /// How long what was put back or brought over lives, where the protocol did not tell how long it had left.
    pub fill_seconds: u32,
}

impl Config {
    /// Text, one connection to each server, and times for servers in the same building.
    pub fn new(servers: Servers) -> Config {
        Config {
            servers,
            protocol: Protocol::Text,
            namespace: Vec::new(),
            connections: 1,
            connect_timeout: Duration::from_millis(500),
            read_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
            failure_limit: 3,
            retry_timeout: Duration::from_secs(1),
            dead_timeout: Duration::from_secs(30),
            ramp: Duration::from_secs(10),
            on_down: OnDown::Error,
            flush_returning: false,
            queue_requests_max: 16_384,
            queue_bytes_max: 16 << 20,
            value_bytes_max: 128 << 20,
            ticks: Ticks::Own,
            replicas: 0,
            read_from: ReadFrom::First,
            source: None,
            shadow: None,
            fill_seconds: 300,
        }
    }
}
