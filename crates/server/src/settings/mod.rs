//! Settings: everything an operator can say about a server, checked and resolved before anything is opened.
//!
//! This module owns the flags, the `-o` options, the configuration file and the tables that describe them (`knobs`). The program
//! builds a [`Settings`] here and hands it to the server, which only reads it. Nothing here opens a listener, starts a thread or
//! changes the process; the one thing looked up outside is a host name given to `-l`.
//!
//! | step | what happens |
//! |---|---|
//! | parse | flags and file fill a draft; each value is checked on its own |
//! | finish | values are checked against each other, listeners get addresses and pools |
//! | run | the server reads the `Settings`; what a reload may change is told by [`Settings::diff`] |

mod args;
mod ciphers;
mod draft;
mod extended;
mod file;
mod flags;
mod fleet;
mod keys;
mod knob;
mod listen;
pub(crate) mod pages;
pub mod port_file;
mod problem;
pub mod reference;
mod reload;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod tls;

pub use ciphers::Ciphers;
pub use draft::Asked;
pub use knob::Bytes;
pub use nuthatch_fleet::FleetSettings;
pub use pages::{HttpSettings, PagesSettings};
pub use problem::{Note, Problem};
pub use reload::Reload;
pub use sources::{Loaded, Sources};
pub use table::{Act, Policies, Policy, TableSettings};
pub use tls::{ClientCertificate, KeyFormat, ReportedTls, TlsSettings, TlsVersion};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The memcached release whose behaviour is offered: what the `version` command and the `version` counter answer, and the second
/// word of `-V` under the name `memcached`.
///
/// Nothing but three numbers: clients decide by them what they may use, and many know no other form. Perl's `version->parse`,
/// Python's `packaging.version` and `int()` of each part fail at anything behind them.
pub const VERSION: &str = "1.6.45";

/// Nuthatch's own version: `nuthatch_version` of `stats settings`.
pub const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// memcached's port.
pub const PORT_DEFAULT: u16 = 11211;

/// The most workers a server has. More help no machine; each costs a stack and its buffers.
pub const WORKERS_MAX: usize = 1024;

/// One MiB, the unit of `-m`.
pub const MIB: u64 = 1024 * 1024;

/// A whole server, ready to be started. `Default` is memcached's defaults, on loopback only.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The memory budgets; never empty. Listeners and routes name them by index.
    pub pools: Vec<PoolSettings>,
    /// What is listened on, in the order it was said.
    pub listeners: Vec<ListenerSettings>,
    /// Memcached servers that pools may stand in front of, in the order of the file.
    pub fleets: Vec<FleetSettings>,
    /// SQL tables that pools may stand in front of, in the order of the file.
    pub tables: Vec<TableSettings>,
    /// Key prefixes that go to a pool of their own, whatever the listener says; longest prefix first.
    pub routes: Vec<RouteSettings>,

    /// `-t`: threads, each with one event loop.
    pub workers: usize,
    /// `-c`: client connections at once.
    pub connections_max: usize,
    /// `-o maxconns_fast`: a connection too many is told so and closed; otherwise accepting pauses.
    pub connections_max_fast: bool,
    /// `-b`: the kernel's queue of connections not yet accepted.
    pub backlog: u32,
    /// `-R`: requests executed for one connection before the others get their turn.
    pub requests_per_event: u32,
    /// `-o idle_timeout`: a connection silent for this long is closed; 0 is never.
    pub idle_timeout_seconds: u32,
    /// `-v`: 0 errors only, 1 warnings, 2 commands and answers, 3 internal state.
    pub verbosity: u8,

    /// False with `-C`: no CAS unique is shown, and comparing one never matches.
    pub cas_enabled: bool,
    /// False with `-F`: `flush_all` is refused.
    pub flush_enabled: bool,
    /// False with `-X`: `stats cachedump` and `lru_crawler metadump` and `mgdump` are refused.
    pub dump_enabled: bool,
    /// False with `-W`: `watch` is refused.
    pub watch_enabled: bool,
    /// True with `-A`: the `shutdown` command works.
    pub shutdown_enabled: bool,
    /// `-D`: the byte that ends a key's prefix in `stats detail`.
    pub prefix_delimiter: u8,
    /// Whether per-prefix counting (`stats detail`) is on from the start; `-D` turns it on.
    pub detail_enabled: bool,
    /// Whether `debugtime` is there: `--debug-commands`, or the program's name is `memcached-debug`.
    pub debug_commands: bool,

    /// `-Y`: a file of `user:password` lines; text connections must authenticate and binary is not spoken.
    pub auth_file: Option<PathBuf>,
    /// `-S`: binary connections must authenticate by SASL PLAIN, and text is not spoken. The file is `user:password` lines,
    /// named by `MEMCACHED_SASL_PWDB`.
    pub sasl_file: Option<PathBuf>,

    /// Limits on what connections and watchers may hold.
    pub buffers: BufferSettings,
    /// The seed of the key hash; `None` draws a random one at start, which is what resists chosen keys.
    pub hash_seed: Option<u64>,
    /// What concerns the process and not the server: the program carries it out.
    pub process: ProcessSettings,
    /// What `stats settings` reports besides, as it was given.
    pub reported: ReportedSettings,
}

/// One memory budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// How listeners, routes and counters name it.
    pub name: String,
    /// `-m`: index, segments and headers together, in bytes.
    pub memory_bytes: u64,
    /// `-I`: the largest item, in bytes; 1 KiB to 1 GiB and at most half of the memory.
    pub item_bytes_max: usize,
    /// False with `-M`: a full pool refuses instead of evicting.
    pub evict: bool,
    /// `-L`: ask the kernel for huge pages.
    pub huge_pages: bool,
    /// Deleting or incrementing a key of `nuthatch:forget:` forgets a prefix or a tag.
    pub reserved_keys: bool,
    /// `-e`: the file that keeps its items over a restart.
    pub file: Option<PathBuf>,
    /// What answers its misses and takes its writes, by its name; the pool then holds copies.
    pub backend: Option<String>,
    /// How long a copy may live, in seconds; 0: none is kept.
    pub ttl_max_seconds: u32,
    /// How long it may be served after its life while the backend is down, in seconds.
    pub grace_seconds: u32,
    /// What it does with its memory, when its backend is a table.
    pub policy: Policy,
    /// The same of single kinds of commands, where it is another.
    pub policies: Policies,
    /// How long it is remembered that the backend has no item of a key; 0: not at all.
    pub miss_ttl: Duration,
}

/// One address that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Where.
    pub address: Address,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Index into [`Settings::pools`].
    pub pool: usize,
    /// The tag of `-l tag[name]:…`, for logs and counters.
    pub tag: Option<String>,
    /// `-Z`: clients speak TLS; TCP only.
    pub tls: Option<TlsSettings>,
    /// What an HTTP or HTCP listener serves; none of another.
    pub http: Option<HttpSettings>,
    /// False for an address nobody asked for by itself (the IPv6 loopback of a bare start, the second address of a host name): if
    /// the machine cannot listen there, the server starts without it.
    pub required: bool,
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address; port 0 is any free port.
    Tcp(SocketAddr),
    /// A UDP address; port 0 is any free port.
    Udp(SocketAddr),
    /// A UNIX stream socket.
    Unix {
        /// The socket's path. A socket left there by a server that is gone is replaced.
        path: PathBuf,
        /// The permission bits of the socket, e.g. `0o700`.
        mode: u32,
    },
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Text or binary, told by each connection's first byte.
    Auto,
    /// Text (and meta) only.
    Ascii,
    /// Binary only.
    Binary,
    /// HTTP/1 and HTTP/2: pages.
    Http,
    /// HTCP: purges of pages.
    Htcp,
}

/// Keys with a prefix that live in a pool of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// The keys' first bytes; not empty.
    pub prefix: Vec<u8>,
    /// Index into [`Settings::pools`].
    pub pool: usize,
}

/// Limits on buffers, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSettings {
    /// `-o read_buf_mem_limit`: what all connections' read and response buffers may hold together; 0 is no limit.
    pub read_bytes_max: u64,
    /// `-o watcher_logbuf_size`: what may wait for one watcher.
    pub watcher_log_bytes: usize,
    /// `-o worker_logbuf_size`: what one worker may have logged that no watcher was sent yet.
    pub worker_log_bytes: usize,
}

/// What is done to the process before the server starts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProcessSettings {
    /// `-d`: run in the background.
    pub daemonize: bool,
    /// `-P`: where the process id is written while the server runs.
    pub pid_file: Option<PathBuf>,
    /// `-u`: the user to become when started as root.
    pub user: Option<String>,
    /// `-r`: raise the core file limit.
    pub core_dumps: bool,
    /// `-k`: keep all memory in RAM.
    pub lock_memory: bool,
    /// `MEMCACHED_PORT_FILENAME`: where the bound ports are written (see [`port_file`]).
    pub port_file: Option<PathBuf>,
}

/// Values that `stats settings` shows. Those without an effect here are kept as they were given, so that what is reported is what
/// was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedSettings {
    /// `-p` as given: -1 is any free port, 0 is none.
    pub tcp_port: i32,
    /// `-U` as given.
    pub udp_port: i32,
    /// `-l` as given; `None` is shown as `NULL`.
    pub interface: Option<String>,
    /// `-s`; `None` is shown as `NULL`.
    pub domain_socket: Option<PathBuf>,
    /// `-a`: shown in octal.
    pub unix_mode: u32,
    /// `-B`, for listeners that say nothing themselves.
    pub protocol: Protocol,
    /// `-f`
    pub growth_factor: f64,
    /// `-n`
    pub chunk_size: u32,
    /// `-o hashpower`; 0 is the default.
    pub hash_power_init: u32,
    /// `-o no_hashexpand` turns it off.
    pub hash_expand: bool,
    /// `-o hash_algorithm`
    pub hash_algorithm: HashAlgorithm,
    /// `-o slab_reassign`
    pub slab_reassign: bool,
    /// `-o slab_automove`
    pub slab_automove: u32,
    /// `-o slab_automove_ratio`
    pub slab_automove_ratio: f64,
    /// `-o slab_automove_window`
    pub slab_automove_window: u32,
    /// `-o slab_automove_freeratio`
    pub slab_automove_free_ratio: f64,
    /// `-o slab_chunk_max`, in bytes.
    pub slab_chunk_bytes_max: u32,
    /// `-o slab_sizes`
    pub slab_sizes: Option<String>,
    /// `-o lru_crawler`
    pub lru_crawler: bool,
    /// `-o lru_crawler_sleep`, in microseconds.
    pub lru_crawler_sleep: u32,
    /// `-o lru_crawler_tocrawl`
    pub lru_crawler_tocrawl: u32,
    /// `-o lru_maintainer`
    pub lru_maintainer: bool,
    /// Whether memcached would run its segmented LRU.
    pub lru_segmented: bool,
    /// `-o hot_lru_pct`
    pub hot_lru_pct: u32,
    /// `-o warm_lru_pct`
    pub warm_lru_pct: u32,
    /// `-o hot_max_factor`
    pub hot_max_factor: f64,
    /// `-o warm_max_factor`
    pub warm_max_factor: f64,
    /// Whether `-o temporary_ttl` was given.
    pub temp_lru: bool,
    /// `-o temporary_ttl`, in seconds.
    pub temporary_ttl: u32,
    /// `-o tail_repair_time`, in seconds.
    pub tail_repair_time: u32,
    /// `-o track_sizes`
    pub track_sizes: bool,
    /// `-o inline_ascii_resp`: always shown as `no`.
    pub inline_ascii_response: bool,
    /// `-N`
    pub napi_ids: u32,
    /// `-Z` and `-o ssl_*`
    pub tls: ReportedTls,
}

/// A key hash of memcached's. Nuthatch hashes with its own; the name is kept to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// `jenkins`
    Jenkins,
    /// `murmur3`
    Murmur3,
    /// `xxh3`
    Xxh3,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pools: vec![PoolSettings::named("default")],
            listeners: loopback(PORT_DEFAULT, Address::Tcp, Protocol::Auto),
            fleets: Vec::new(),
            tables: Vec::new(),
            routes: Vec::new(),
            workers: 4,
            connections_max: 1024,
            connections_max_fast: true,
            backlog: 1024,
            requests_per_event: 20,
            idle_timeout_seconds: 0,
            verbosity: 0,
            cas_enabled: true,
            flush_enabled: true,
            dump_enabled: true,
            watch_enabled: true,
            shutdown_enabled: false,
            prefix_delimiter: b':',
            detail_enabled: false,
            debug_commands: false,
            auth_file: None,
            sasl_file: None,
            buffers: BufferSettings::default(),
            hash_seed: None,
            process: ProcessSettings::default(),
            reported: ReportedSettings::default(),
        }
    }
}

impl PoolSettings {
    /// A pool with memcached's defaults: 64 MiB, items to 1 MiB, evicting.
    pub fn named(name: &str) -> PoolSettings {
        PoolSettings {
            name: name.to_owned(),
            memory_bytes: 64 * MIB,
            item_bytes_max: MIB as usize,
            evict: true,
            huge_pages: false,
            reserved_keys: false,
            file: None,
            backend: None,
            ttl_max_seconds: 5,
            grace_seconds: 0,
            policy: Policy::default(),
            policies: Policies::default(),
            miss_ttl: Duration::ZERO,
        }
    }
}

impl Default for BufferSettings {
    fn default() -> BufferSettings {
        BufferSettings { read_bytes_max: 0, watcher_log_bytes: 256 * 1024, worker_log_bytes: 64 * 1024 }
    }
}

impl Default for ReportedSettings {
    fn default() -> ReportedSettings {
        ReportedSettings {
            tcp_port: i32::from(PORT_DEFAULT),
            udp_port: 0,
            interface: None,
            domain_socket: None,
            unix_mode: 0o700,
            protocol: Protocol::Auto,
            growth_factor: 1.25,
            chunk_size: 48,
            hash_power_init: 0,
            hash_expand: true,
            hash_algorithm: HashAlgorithm::Murmur3,
            slab_reassign: true,
            slab_automove: 1,
            slab_automove_ratio: 0.8,
            slab_automove_window: 10,
            slab_automove_free_ratio: 0.01,
            slab_chunk_bytes_max: 512 * 1024,
            slab_sizes: None,
            lru_crawler: true,
            lru_crawler_sleep: 100,
            lru_crawler_tocrawl: 0,
            lru_maintainer: true,
            lru_segmented: true,
            hot_lru_pct: 20,
            warm_lru_pct: 40,
            hot_max_factor: 0.2,
            warm_max_factor: 2.0,
            temp_lru: false,
            temporary_ttl: 61,
            tail_repair_time: 0,
            track_sizes: false,
            inline_ascii_response: false,
            napi_ids: 0,
            tls: ReportedTls::default(),
        }
    }
}

impl Address {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) | Address::Udp(address) => address.ip().is_loopback(),
            Address::Unix { .. } => true,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Udp(address) => write!(f, "udp:{address}"),
            Address::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Protocol {
    /// The protocol called `word` on the command line and in the file.
    fn named(word: &str) -> Option<Protocol> {
        [Protocol::Auto, Protocol::Ascii, Protocol::Binary].into_iter().find(|protocol| protocol.word() == word)
    }

    /// Its name on the command line and in the file.
    pub fn word(self) -> &'static str {
        match self {
            Protocol::Auto => "auto",
            Protocol::Ascii => "ascii",
            Protocol::Binary => "binary",
            Protocol::Http => "http",
            Protocol::Htcp => "htcp",
        }
    }

    /// The name `stats settings` shows as `binding_protocol`.
    pub fn reported(self) -> &'static str {
        match self {
            Protocol::Auto => "auto-negotiate",
            Protocol::Ascii => "ascii",
            Protocol::Binary => "binary",
            Protocol::Http => "http",
            Protocol::Htcp => "htcp",
        }
    }
}

impl HashAlgorithm {
    /// The name `-o hash_algorithm` takes and `stats settings` shows.
    pub fn name(self) -> &'static str {
        match self {
            HashAlgorithm::Jenkins => "jenkins",
            HashAlgorithm::Murmur3 => "murmur3",
            HashAlgorithm::Xxh3 => "xxh3",
        }
    }
}

/// The listeners of a start that names no address: 127.0.0.1, and ::1 where the machine has it, since a client told `localhost`
/// may try either first.
fn loopback(port: u16, kind: fn(SocketAddr) -> Address, protocol: Protocol) -> Vec<ListenerSettings> {
    [(IpAddr::V4(Ipv4Addr::LOCALHOST), true), (IpAddr::V6(Ipv6Addr::LOCALHOST), false)]
        .into_iter()
        .map(|(ip, required)| ListenerSettings {
            address: kind(SocketAddr::new(ip, port)),
            protocol,
            pool: 0,
            tag: None,
            tls: None,
            http: None,
            required,
        })
        .collect()
}
