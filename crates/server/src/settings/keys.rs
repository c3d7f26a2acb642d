//! The tables of the configuration file's keys.
//!
//! A key of `[server]` does what the flag of the same meaning does. What later doors will bring is named here too, so that a file
//! written for them is refused with a reason and not as a misspelling.

use std::path::PathBuf;
use std::time::Duration;

use super::draft::{Draft, ListenDraft, PoolDraft, RouteDraft};
use super::flags::{CONNECTIONS_MAX, INT_MAX, ITEM_BYTES_MAX, ITEM_BYTES_MIN, WORKERS_MAX, octal_mode};
use super::knob::{Action, Effect, Knob};
use super::listen::is_tag;
use super::pages::LISTEN_PAGES;
use super::table::Policy;
use super::tls::WRITE_BYTES_MAX;
use super::{ClientCertificate, KeyFormat, MIB, Protocol, ciphers};

/// Tables and arrays of later doors, and what this build lacks for them.
pub(super) static LATER: &[(&str, &str)] = &[("admin", "this build has no admin listener yet")];

/// `[server]`
pub(super) static SERVER: &[Knob<Draft>] = &[
    Knob::<Draft>::new(
        "workers",
        "threads, each with its own event loop (-t)",
        Action::Integer { min: 1, max: WORKERS_MAX, missing: None, set: |d, n| d.settings.workers = n as usize },
    )
    .default("4"),
    Knob::<Draft>::new(
        "connections_max",
        "client connections at once (-c)",
        Action::Integer {
            min: 1,
            max: CONNECTIONS_MAX,
            missing: None,
            set: |d, n| d.settings.connections_max = n as usize,
        },
    )
    .default("1024"),
    Knob::<Draft>::new(
        "connections_max_fast",
        "a connection too many is told so and closed; otherwise accepting waits (-o maxconns_fast)",
        Action::Switch(|d, on| d.settings.connections_max_fast = on),
    )
    .default("true"),
    Knob::<Draft>::new(
        "backlog",
        "connections the kernel may queue before they are accepted (-b)",
        Action::Integer { min: 0, max: INT_MAX, missing: None, set: |d, n| d.settings.backlog = n as u32 },
    )
    .default("1024"),
    Knob::<Draft>::new(
        "requests_per_event",
        "requests of one connection executed before the others get their turn (-R)",
        Action::Integer { min: 1, max: INT_MAX, missing: None, set: |d, n| d.settings.requests_per_event = n as u32 },
    )
    .default("20"),
    Knob::<Draft>::new(
        "idle_timeout",
        "close a connection silent for this long; 0 is never (-o idle_timeout)",
        Action::Seconds(|d, seconds| d.settings.idle_timeout_seconds = seconds),
    )
    .default("0"),
    Knob::<Draft>::new(
        "buffers_max",
        "memory all connections' buffers may take together; 0 is 12 MiB (-o read_buf_mem_limit)",
        Action::Size { unit: 1, min: 0, max: 1 << 40, set: |d, bytes| d.settings.buffers.read_bytes_max = bytes },
    )
    .default("0"),
    Knob::<Draft>::new(
        "watcher_buffer",
        "what may wait for one watcher (-o watcher_logbuf_size)",
        Action::Size {
            unit: 1,
            min: 1024,
            max: 1 << 30,
            set: |d, bytes| d.settings.buffers.watcher_log_bytes = bytes as usize,
        },
    )
    .default("256KiB"),
    Knob::<Draft>::new(
        "verbosity",
        "0 errors, 1 warnings, 2 commands and answers, 3 internal state (-v)",
        Action::Integer { min: 0, max: 3, missing: None, set: |d, n| d.settings.verbosity = n as u8 },
    )
    .default("0"),
    Knob::<Draft>::new("cas", "CAS uniques (-C turns them off)", Action::Switch(|d, on| d.settings.cas_enabled = on))
        .default("true"),
    Knob::<Draft>::new(
        "flush_all",
        "the flush_all command (-F refuses it)",
        Action::Switch(|d, on| d.settings.flush_enabled = on),
    )
    .default("true"),
    Knob::<Draft>::new(
        "dump",
        "commands that list keys (-X refuses them)",
        Action::Switch(|d, on| d.settings.dump_enabled = on),
    )
    .default("true"),
    Knob::<Draft>::new(
        "watch",
        "the watch command (-W refuses it)",
        Action::Switch(|d, on| d.settings.watch_enabled = on),
    )
    .default("true"),
    Knob::<Draft>::new(
        "shutdown",
        "the shutdown command (-A)",
        Action::Switch(|d, on| d.settings.shutdown_enabled = on),
    )
    .default("false"),
    Knob::<Draft>::new(
        "debug_commands",
        "the debugtime command",
        Action::Switch(|d, on| d.settings.debug_commands = on),
    )
    .default("false"),
    Knob::<Draft>::new(
        "stats_detail",
        "count by key prefix from the start (-D)",
        Action::Switch(|d, on| d.settings.detail_enabled = on),
    )
    .default("false"),
    Knob::<Draft>::new(
        "prefix_delimiter",
        "the character that ends a key's prefix, in stats detail and, from the next start on, where a prefix is forgotten (-D)",
        Action::Text {
            expected: "one character",
            set: |d, text| match text.as_bytes() {
                [byte] => {
                    d.settings.prefix_delimiter = *byte;
                    true
                }
                _ => false,
            },
        },
    )
    .default(":"),
    Knob::<Draft>::new(
        "auth_file",
        "clients authenticate as one of the user:password lines in this file; text protocol only (-Y)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.auth_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<Draft>::new(
        "sasl_file",
        "clients authenticate by SASL PLAIN as one of the user:password lines in this file; binary protocol only (-S)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.sasl = true;
                d.settings.sasl_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<Draft>::new(
        "hash_seed",
        "seed of the key hash; random when left out, which is what resists chosen keys",
        Action::Integer { min: 0, max: i64::MAX, missing: None, set: |d, n| d.settings.hash_seed = Some(n as u64) },
    )
    .at_restart(),
    Knob::<Draft>::new(
        "daemonize",
        "run in the background (-d)",
        Action::Switch(|d, on| d.settings.process.daemonize = on),
    )
    .default("false")
    .at_restart(),
    Knob::<Draft>::new(
        "pid_file",
        "where the process id is written while running (-P)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.process.pid_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .at_restart(),
    Knob::<Draft>::new(
        "user",
        "the user to become when started as root (-u)",
        Action::Text {
            expected: "the name of a user",
            set: |d, text| {
                d.settings.process.user = Some(text.to_owned());
                !text.is_empty()
            },
        },
    )
    .at_restart(),
    Knob::<Draft>::new(
        "core_dumps",
        "raise the core file limit (-r)",
        Action::Switch(|d, on| d.settings.process.core_dumps = on),
    )
    .default("false")
    .at_restart(),
    Knob::<Draft>::new(
        "lock_memory",
        "keep all memory in RAM (-k)",
        Action::Switch(|d, on| d.settings.process.lock_memory = on),
    )
    .default("false")
    .at_restart(),
];

/// `[pool.NAME]`
pub(super) static POOL: &[Knob<PoolDraft>] = &[
    Knob::<PoolDraft>::new(
        "memory",
        "memory for items, everything that goes with them included (-m)",
        Action::Size { unit: 1, min: MIB, max: u64::MAX, set: |d, bytes| d.pool.memory_bytes = bytes },
    )
    .default("64MiB"),
    Knob::<PoolDraft>::new(
        "item_max",
        "largest item, key and value together; at most half of the memory (-I)",
        Action::Size {
            unit: 1,
            min: ITEM_BYTES_MIN,
            max: ITEM_BYTES_MAX,
            set: |d, bytes| d.pool.item_bytes_max = bytes as usize,
        },
    )
    .default("1MiB"),
    Knob::<PoolDraft>::new(
        "evict",
        "make room when memory is full; false answers with an error (-M)",
        Action::Switch(|d, on| d.pool.evict = on),
    )
    .default("true"),
    Knob::<PoolDraft>::new(
        "huge_pages",
        "ask the kernel for huge pages (-L)",
        Action::Switch(|d, on| d.pool.huge_pages = on),
    )
    .default("false")
    .at_restart(),
    Knob::<PoolDraft>::new(
        "reserved_keys",
        "delete or incr of nuthatch:forget:prefix:NAME or nuthatch:forget:tag:NAME forgets all items of a prefix or tag (-o reserved_keys)",
        Action::Switch(|d, on| d.pool.reserved_keys = on),
    )
    .default("false"),
    Knob::<PoolDraft>::new(
        "file",
        "keep items in this file, so that they are there after a restart; best on a file system in memory (-e)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.pool.file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .at_restart(),
    Knob::<PoolDraft>::new(
        "backend",
        "the fleet or the table that answers misses and takes writes; the pool then holds copies for a short time",
        Action::Text {
            expected: "the name of a fleet or a table",
            set: |d, text| {
                d.pool.backend = Some(text.to_owned());
                !text.is_empty()
            },
        },
    ),
    Knob::<PoolDraft>::new(
        "ttl_max",
        "how long a copy of a backend's item may live; 0 keeps none",
        Action::Seconds(|d, seconds| d.pool.ttl_max_seconds = seconds),
    )
    .default("5s"),
    Knob::<PoolDraft>::new(
        "grace",
        "how long a copy may be served after its life while the backend is down",
        Action::Seconds(|d, seconds| d.pool.grace_seconds = seconds),
    )
    .default("0"),
    Knob::<PoolDraft>::new(
        "policy",
        "with a table behind it: caching keeps copies, table keeps none, memory leaves the table alone, disabled refuses everything",
        Action::Choice(Policy::NAMES, |d, word| d.pool.policy = Policy::named(word)),
    )
    .default("caching"),
    Knob::<PoolDraft>::new(
        "policy_get",
        "the policy of retrievals, where it is not policy",
        Action::Choice(Policy::NAMES, |d, word| d.pool.policies.get = Some(Policy::named(word))),
    ),
    Knob::<PoolDraft>::new(
        "policy_set",
        "the policy of commands that store, count or touch, where it is not policy",
        Action::Choice(Policy::NAMES, |d, word| d.pool.policies.set = Some(Policy::named(word))),
    ),
    Knob::<PoolDraft>::new(
        "policy_delete",
        "the policy of delete, where it is not policy",
        Action::Choice(Policy::NAMES, |d, word| d.pool.policies.delete = Some(Policy::named(word))),
    ),
    Knob::<PoolDraft>::new(
        "policy_flush",
        "the policy of flush_all, where it is not policy; memory forgets the copies and leaves the rows",
        Action::Choice(Policy::NAMES, |d, word| d.pool.policies.flush = Some(Policy::named(word))),
    ),
    Knob::<PoolDraft>::new(
        "miss_ttl",
        "how long it is remembered that the backend has no item of a key; 0 is not at all; when left out, 100ms with a table and 0 with a fleet",
        Action::Time { min: Duration::ZERO, set: |d, time| d.miss_ttl = Some(time) },
    ),
];

/// `[[listen]]`
pub(super) static LISTEN: &[Knob<ListenDraft>] = &[
    Knob::<ListenDraft>::new(
        "memcached",
        "speak memcached at this address: HOST:PORT, udp:HOST:PORT or unix:PATH; * is every address",
        Action::Text {
            expected: "an address",
            set: |d, text| {
                d.memcached = Some(text.to_owned());
                !text.is_empty()
            },
        },
    ),
    Knob::<ListenDraft>::new(
        "protocol",
        "what is spoken; auto tells text from binary by a connection's first byte (-B)",
        Action::Choice(&["auto", "ascii", "binary"], |d, word| d.protocol = Protocol::named(word)),
    )
    .default("auto")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "mode",
        "permission bits of a UNIX socket, in octal (-a)",
        Action::Text {
            expected: "a string of octal digits from \"0\" to \"777\"",
            set: |d, text| match octal_mode(text) {
                Some(mode) => {
                    d.mode = Some(mode);
                    true
                }
                None => false,
            },
        },
    )
    .default("0700"),
    Knob::<ListenDraft>::new(
        "pool",
        "the pool this listener serves; may be left out when one is called default or there is only one",
        Action::Text {
            expected: "the name of a pool",
            set: |d, text| {
                d.pool = Some(text.to_owned());
                true
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "tag",
        "a name for logs and counters",
        Action::Text {
            expected: "a tag of 1 to 8 bytes",
            set: |d, text| {
                d.tag = Some(text.to_owned());
                is_tag(text)
            },
        },
    ),
    Knob::<ListenDraft>::new(
        "tls",
        "clients speak TLS, as the keys of this table say; TCP only",
        Action::Table { keys: LISTEN_TLS, open: |d| _ = d.tls() },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "http",
        "be an HTTP cache at this address: HOST:PORT or unix:PATH; * is every address",
        Action::Text {
            expected: "an address",
            set: |d, text| {
                d.http = Some(text.to_owned());
                !text.is_empty()
            },
        },
    ),
    Knob::<ListenDraft>::new(
        "htcp",
        "take purges of pages by HTCP (CLR) over UDP at this address: HOST:PORT",
        Action::Text {
            expected: "an address",
            set: |d, text| {
                d.htcp = Some(text.to_owned());
                !text.is_empty()
            },
        },
    ),
    Knob::<ListenDraft>::new(
        "origin",
        "the web site behind an HTTP listener: http://HOST:PORT or https://HOST:PORT, a list of such, or the name of an [origin.NAME]",
        Action::Texts {
            expected: "http://HOST:PORT or https://HOST:PORT, or the name of an [origin.NAME] alone",
            list: |d| &mut d.origin,
            is_right: |_| true,
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "pages",
        "how an HTTP or HTCP listener treats its pages",
        Action::Table { keys: LISTEN_PAGES, open: |d| _ = d.pages() },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new("admin", "serve counters and control at this address", later())
        .effect(Effect::Refused("this build has no admin listeners yet")),
];

/// `tls` of `[[listen]]`. Each acts on the table that was opened.
pub(super) static LISTEN_TLS: &[Knob<ListenDraft>] = &[
    Knob::<ListenDraft>::new(
        "certificate",
        "file of the server's certificate and those that lead to its authority, in PEM (-o ssl_chain_cert)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.tls().certificate = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "key",
        "file of its private key; may be left out when that is in the file of the certificate (-o ssl_key)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.tls().key = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "key_format",
        "what the private key is written in (-o ssl_keyformat)",
        Action::Choice(&["pem", "der"], |d, word| {
            d.tls().key_format = if word == "der" { KeyFormat::Der } else { KeyFormat::Pem };
        }),
    )
    .default("pem")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "client_ca",
        "file of the authorities whose certificates clients may show, in PEM (-o ssl_ca_cert)",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.tls().client_ca = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "client_certificate",
        "whether clients show a certificate: required when left out and client_ca is there, none otherwise (-o ssl_verify_mode)",
        Action::Choice(&["none", "optional", "required"], |d, word| {
            d.tls().client_certificate = Some(match word {
                "none" => ClientCertificate::None,
                "optional" => ClientCertificate::Optional,
                _ => ClientCertificate::Required,
            });
        }),
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "ciphers",
        "cipher suites, in OpenSSL's words, of those that are offered; all of them when left out (-o ssl_ciphers)",
        Action::Text {
            expected: ciphers::EXPECTED,
            set: |d, text| {
                d.tls().ciphers = ciphers::parse(text);
                d.tls().ciphers.is_some()
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "min_version",
        "oldest version spoken (-o ssl_min_version)",
        Action::Choice(&["1.2", "1.3"], |d, word| d.tls().min_version = Some(if word == "1.3" { 3 } else { 2 })),
    )
    .default("1.2")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "session_cache",
        "let clients that come back go on with an earlier session (-o ssl_session_cache)",
        Action::Switch(|d, on| d.tls().session_cache = on),
    )
    .default("false")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "write_buffer",
        "how much of an answer is encrypted and sent at once (-o ssl_wbuf_size)",
        Action::Size {
            unit: 1,
            min: 1024,
            max: WRITE_BYTES_MAX,
            set: |d, bytes| d.tls().write_bytes = Some(bytes as usize),
        },
    )
    .default("16KiB")
    .for_new_connections(),
];

/// `[[route]]`
pub(super) static ROUTE: &[Knob<RouteDraft>] = &[
    Knob::<RouteDraft>::new(
        "prefix",
        "keys that begin with this go to the pool, whatever their listener's is; the longest prefix that fits wins",
        Action::Text {
            expected: "the first bytes of a key",
            set: |d, text| {
                d.prefix = Some(text.to_owned());
                !text.is_empty()
            },
        },
    ),
    Knob::<RouteDraft>::new(
        "pool",
        "the pool they live in",
        Action::Text {
            expected: "the name of a pool",
            set: |d, text| {
                d.pool = Some(text.to_owned());
                true
            },
        },
    ),
];

const fn later<T>() -> Action<T> {
    Action::Text { expected: "nothing yet", set: |_, _| false }
}
