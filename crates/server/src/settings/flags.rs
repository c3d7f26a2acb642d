//! The table of command-line flags: memcached's letters and long names, with memcached's meaning, and the two of Nuthatch's own.
//!
//! Order is that of `--help`. What a flag without an effect is for in memcached is said all the same, so that an operator who finds
//! it in a unit file knows what to expect.

use std::path::PathBuf;

use super::WORKERS_MAX as WORKERS_MOST;
use super::draft::{Asked, Draft};
use super::knob::{Action, Effect, Knob};
use super::{MIB, Protocol};

/// Knobs under a heading.
pub(super) struct Group<T: 'static> {
    /// The heading in help and reference.
    pub(super) title: &'static str,
    /// The knobs, in order.
    pub(super) knobs: &'static [Knob<T>],
}

/// Largest item, memcached's.
pub(super) const ITEM_BYTES_MAX: u64 = 1024 * MIB;
/// Smallest `-I`, memcached's.
pub(super) const ITEM_BYTES_MIN: u64 = 1024;
/// See [`WORKERS_MOST`].
pub(super) const WORKERS_MAX: i64 = WORKERS_MOST as i64;
/// The most file descriptors Linux gives a process (`fs.nr_open`'s default).
pub(super) const CONNECTIONS_MAX: i64 = 1 << 20;
/// `listen` takes an `int`.
pub(super) const INT_MAX: i64 = i32::MAX as i64;

type Flag = Knob<Draft>;

/// Every flag.
pub(super) static FLAGS: &[Group<Draft>] = &[
    Group { title: "Network", knobs: NETWORK },
    Group { title: "Memory", knobs: MEMORY },
    Group { title: "Commands", knobs: COMMANDS },
    Group { title: "Access", knobs: ACCESS },
    Group { title: "Process", knobs: PROCESS },
];

const NETWORK: &[Flag] = &[
    Flag::new(
        "listen",
        "addresses to listen on, separated by commas: [notls:|btls:|mtls:][proto[ascii|binary|auto]:][tag[NAME]:]HOST[:PORT]; * is every address",
        Action::Text {
            expected: "addresses separated by commas",
            set: |d, text| {
                d.interfaces.push(text.to_owned());
                !text.is_empty()
            },
        },
    )
    .short('l')
    .takes("<addr>")
    .default("127.0.0.1,::1"),
    Flag::new(
        "port",
        "TCP port for addresses that name none; -1 is any free port, 0 no TCP",
        Action::Integer { min: -1, max: 65535, missing: None, set: |d, n| d.tcp_port = Some(n as i32) },
    )
    .short('p')
    .takes("<num>")
    .default("11211"),
    Flag::new(
        "udp-port",
        "UDP port; -1 is any free port, 0 no UDP; given without -p it is the TCP port too",
        Action::Integer { min: -1, max: 65535, missing: None, set: |d, n| d.udp_port = Some(n as i32) },
    )
    .short('U')
    .takes("<num>")
    .default("0"),
    Flag::new(
        "unix-socket",
        "listen on this UNIX socket instead of the network",
        Action::Text {
            expected: "the path of a socket, at most 107 bytes",
            set: |d, text| {
                d.socket = Some(PathBuf::from(text));
                is_socket_path(text)
            },
        },
    )
    .short('s')
    .takes("<file>"),
    Flag::new(
        "unix-mask",
        "permission bits of the UNIX socket, in octal",
        Action::Text {
            expected: "an octal number from 0 to 777",
            set: |d, text| match octal_mode(text) {
                Some(mode) => {
                    d.unix_mode = Some(mode);
                    true
                }
                None => false,
            },
        },
    )
    .short('a')
    .takes("<mask>")
    .default("700"),
    Flag::new(
        "protocol",
        "what is spoken where an address does not say; auto tells text from binary by a connection's first byte",
        Action::Choice(&["auto", "ascii", "binary"], |d, word| d.protocol = Protocol::named(word)),
    )
    .short('B')
    .takes("<name>")
    .default("auto"),
    Flag::new(
        "conn-limit",
        "client connections at once",
        Action::Integer {
            min: 1,
            max: CONNECTIONS_MAX,
            missing: None,
            set: |d, n| d.settings.connections_max = n as usize,
        },
    )
    .short('c')
    .takes("<num>")
    .default("1024"),
    Flag::new(
        "listen-backlog",
        "connections the kernel may queue before they are accepted",
        Action::Integer { min: 0, max: INT_MAX, missing: None, set: |d, n| d.settings.backlog = n as u32 },
    )
    .short('b')
    .takes("<num>")
    .default("1024"),
    Flag::new(
        "max-reqs-per-event",
        "requests of one connection executed before the others get their turn",
        Action::Integer { min: 1, max: INT_MAX, missing: None, set: |d, n| d.settings.requests_per_event = n as u32 },
    )
    .short('R')
    .takes("<num>")
    .default("20"),
    Flag::new(
        "threads",
        "workers, each a thread with its own event loop",
        Action::Integer { min: 1, max: WORKERS_MAX, missing: None, set: |d, n| d.settings.workers = n as usize },
    )
    .short('t')
    .takes("<num>")
    .default("4"),
    Flag::new(
        "napi-ids",
        "threads by the network card's queue; connections are spread evenly over the workers whatever their queue",
        Action::Integer { min: 1, max: INT_MAX, missing: None, set: |d, n| d.settings.reported.napi_ids = n as u32 },
    )
    .short('N')
    .takes("<num>")
    .effect(Effect::Nothing),
];

const MEMORY: &[Flag] = &[
    Flag::new(
        "memory-limit",
        "memory for items, everything that goes with them included",
        Action::Size { unit: MIB, min: MIB, max: u64::MAX, set: |d, bytes| d.memory_bytes = Some(bytes) },
    )
    .short('m')
    .takes("<num>")
    .default("64"),
    Flag::new(
        "disable-evictions",
        "answer with an error when memory is full, instead of evicting",
        Action::Switch(|d, _| d.evict = Some(false)),
    )
    .short('M'),
    Flag::new(
        "max-item-size",
        "largest item, key and value together; at most half of -m",
        Action::Size {
            unit: 1,
            min: ITEM_BYTES_MIN,
            max: ITEM_BYTES_MAX,
            set: |d, bytes| d.item_bytes_max = Some(bytes as usize),
        },
    )
    .short('I')
    .takes("<size>")
    .default("1m"),
    Flag::new("enable-largepages", "ask the kernel for huge pages", Action::Switch(|d, _| d.huge_pages = Some(true)))
        .short('L'),
    Flag::new("lock-memory", "keep all memory in RAM", Action::Switch(|d, _| d.settings.process.lock_memory = true))
        .short('k'),
    Flag::new(
        "slab-growth-factor",
        "growth from one slab class to the next; items lie in a log here, in no slab classes",
        Action::Real { above: 1.0, below: f64::INFINITY, set: |d, x| d.settings.reported.growth_factor = x },
    )
    .short('f')
    .takes("<num>")
    .default("1.25")
    .effect(Effect::Nothing),
    Flag::new(
        "slab-min-size",
        "smallest slab chunk; items lie in a log here, in no chunks",
        Action::Integer { min: 1, max: INT_MAX, missing: None, set: |d, n| d.settings.reported.chunk_size = n as u32 },
    )
    .short('n')
    .takes("<bytes>")
    .default("48")
    .effect(Effect::Nothing),
    Flag::new(
        "memory-file",
        "keep items in this file, so that they are there after a restart; best on a file system in memory",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.memory_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .short('e')
    .takes("<file>"),
];

const COMMANDS: &[Flag] = &[
    Flag::new("disable-cas", "no CAS uniques", Action::Switch(|d, _| d.settings.cas_enabled = false)).short('C'),
    Flag::new("disable-flush-all", "refuse flush_all", Action::Switch(|d, _| d.settings.flush_enabled = false))
        .short('F'),
    Flag::new(
        "disable-dumping",
        "refuse stats cachedump, stats detail, lru_crawler metadump and mgdump",
        Action::Switch(|d, _| d.settings.dump_enabled = false),
    )
    .short('X'),
    Flag::new("disable-watch", "refuse watch", Action::Switch(|d, _| d.settings.watch_enabled = false)).short('W'),
    Flag::new(
        "enable-shutdown",
        "allow the shutdown command",
        Action::Switch(|d, _| d.settings.shutdown_enabled = true),
    )
    .short('A'),
    Flag::new(
        "prefix-delimiter",
        "count by key prefix from the start (stats detail); the prefix ends at this character",
        Action::Text {
            expected: "a character",
            set: |d, text| match text.as_bytes().first() {
                Some(&byte) => {
                    d.settings.prefix_delimiter = byte;
                    d.settings.detail_enabled = true;
                    true
                }
                None => false,
            },
        },
    )
    .short('D')
    .takes("<char>")
    .default(":"),
    Flag::new(
        "debug-commands",
        "allow debugtime, which moves the server's clock; implied by the name memcached-debug",
        Action::Switch(|d, _| d.settings.debug_commands = true),
    )
    .hidden(),
];

const ACCESS: &[Flag] = &[
    Flag::new(
        "auth-file",
        "clients authenticate as one of the user:password lines in this file; text protocol only",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.auth_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .short('Y')
    .takes("<file>"),
    Flag::new(
        "enable-sasl",
        "clients authenticate by SASL PLAIN as one of the user:password lines in the file that MEMCACHED_SASL_PWDB names; binary protocol only",
        Action::Switch(|d, _| d.sasl = true),
    )
    .short('S')
    .hidden(),
    Flag::new(
        "enable-ssl",
        "clients speak TLS at every TCP address that does not say notls: in -l; the certificate is -o ssl_chain_cert's",
        Action::Switch(|d, _| d.tls_enabled = true),
    )
    .short('Z'),
];

const PROCESS: &[Flag] = &[
    Flag::new(
        "config",
        "read this file first; flags given besides override it",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.config = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .takes("<file>")
    .hidden(),
    Flag::new("daemon", "run in the background", Action::Switch(|d, _| d.settings.process.daemonize = true)).short('d'),
    Flag::new(
        "pidfile",
        "write the process id to this file while running",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.process.pid_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .short('P')
    .takes("<file>"),
    Flag::new(
        "user",
        "become this user, when started as root",
        Action::Text {
            expected: "the name of a user",
            set: |d, text| {
                d.settings.process.user = Some(text.to_owned());
                !text.is_empty()
            },
        },
    )
    .short('u')
    .takes("<user>"),
    Flag::new(
        "enable-coredumps",
        "raise the core file limit",
        Action::Switch(|d, _| d.settings.process.core_dumps = true),
    )
    .short('r'),
    Flag::new(
        "verbose",
        "say more on standard error: -v warnings, -vv commands and answers, -vvv internal state",
        Action::Integer {
            min: 0,
            max: 3,
            missing: Some(-1),
            set: |d, n| {
                let level = if n < 0 { i64::from(d.settings.verbosity) + 1 } else { n };
                d.settings.verbosity = level.min(3) as u8;
            },
        },
    )
    .short('v')
    .default("0"),
    Flag::new(
        "extended",
        "further options, separated by commas; see below",
        Action::Text {
            expected: "options separated by commas",
            set: |d, text| {
                d.extended.push(text.to_owned());
                true
            },
        },
    )
    .short('o')
    .takes("<options>"),
    Flag::new("help", "print this and exit", Action::Switch(|d, _| d.asked = Some(Asked::Help))).short('h'),
    Flag::new("version", "print the version and exit", Action::Switch(|d, _| d.asked = Some(Asked::Version)))
        .short('V'),
    Flag::new("license", "print the licence and exit", Action::Switch(|d, _| d.asked = Some(Asked::License)))
        .short('i'),
];

/// Finds a flag by its letter.
pub(super) fn by_letter(letter: char) -> Option<&'static Knob<Draft>> {
    all().find(|knob| knob.short == Some(letter))
}

/// Finds a flag by its long name.
pub(super) fn by_name(name: &str) -> Option<&'static Knob<Draft>> {
    // memcached's help says --napi_ids and its parser --napi-ids: both are taken.
    all().find(|knob| knob.name == name || (name == "napi_ids" && knob.name == "napi-ids"))
}

/// Every flag, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Knob<Draft>> {
    FLAGS.iter().flat_map(|group| group.knobs)
}

/// Permission bits in octal.
pub(super) fn octal_mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777)
}

/// Whether `text` fits the kernel's 108 bytes for a socket's path and its closing zero.
pub(super) fn is_socket_path(text: &str) -> bool {
    (1..=107).contains(&text.len()) && !text.contains('\0')
}
