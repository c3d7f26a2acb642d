//! The table of `-o` options: memcached's whole set, and what only Nuthatch has.
//!
//! Most tune mechanisms that a log-structured store does not have (slab classes, LRU queues, a hash table that grows): those are
//! checked as memcached checks them, reported by `stats settings`, and said to be without effect at `-v`.

use std::path::PathBuf;

use super::draft::Draft;
use super::flags::{Group, INT_MAX};
use super::knob::{Action, Effect, Knob};
use super::tls::WRITE_BYTES_MAX;
use super::{ClientCertificate, HashAlgorithm, KeyFormat, ciphers};

type Opt = Knob<Draft>;

/// Every option.
pub(super) static EXTENDED: &[Group<Draft>] = &[
    Group { title: "Connections", knobs: CONNECTIONS },
    Group { title: "Index", knobs: INDEX },
    Group { title: "LRU", knobs: LRU },
    Group { title: "Slabs", knobs: SLABS },
    Group { title: "TLS", knobs: TLS },
    Group { title: "External storage", knobs: EXTSTORE },
    Group { title: "Proxy", knobs: PROXY },
    Group { title: "Process", knobs: PROCESS },
    Group { title: "Not memcached's", knobs: OWN },
];

const U32_MAX: i64 = u32::MAX as i64;
/// A buffer of this size would be a mistake for bytes; 1 GiB is far above any use.
const LOG_BYTES_MAX: u64 = 1 << 30;

const CONNECTIONS: &[Opt] = &[
    Opt::new(
        "maxconns_fast",
        "a connection over -c is told so and closed; otherwise accepting waits",
        Action::Switch(|d, _| d.settings.connections_max_fast = true),
    )
    .default("on"),
    Opt::new(
        "no_maxconns_fast",
        "accepting waits while there are -c connections",
        Action::Switch(|d, _| d.settings.connections_max_fast = false),
    ),
    Opt::new(
        "idle_timeout",
        "close a connection silent for so many seconds; 0 is never",
        Action::Integer { min: 0, max: INT_MAX, missing: None, set: |d, n| d.settings.idle_timeout_seconds = n as u32 },
    )
    .takes("<seconds>")
    .default("0"),
    Opt::new(
        "read_buf_mem_limit",
        "memory all connections' buffers may take together, in megabytes; 0 is 12 megabytes",
        Action::Size { unit: 1 << 20, min: 0, max: 1 << 40, set: |d, bytes| d.settings.buffers.read_bytes_max = bytes },
    )
    .takes("<megabytes>")
    .default("0"),
    Opt::new(
        "watcher_logbuf_size",
        "what may wait for one watcher, in kilobytes",
        Action::Size {
            unit: 1024,
            min: 1024,
            max: LOG_BYTES_MAX,
            set: |d, bytes| d.settings.buffers.watcher_log_bytes = bytes as usize,
        },
    )
    .takes("<kilobytes>")
    .default("256"),
    Opt::new(
        "worker_logbuf_size",
        "what one worker may have logged that no watcher was sent yet, in kilobytes; here events go to the watchers' buffers at once",
        Action::Size {
            unit: 1024,
            min: 1024,
            max: LOG_BYTES_MAX,
            set: |d, bytes| d.settings.buffers.worker_log_bytes = bytes as usize,
        },
    )
    .takes("<kilobytes>")
    .default("64")
    .effect(Effect::Nothing),
    Opt::new(
        "resp_obj_mem_limit",
        "memory for response objects; memcached itself dropped it for read_buf_mem_limit",
        Action::Text { expected: "a size in megabytes", set: |_, _| true },
    )
    .takes("<megabytes>")
    .effect(Effect::Nothing),
    Opt::new(
        "inline_ascii_resp",
        "answers kept in text form beside items; memcached itself dropped it",
        Action::Switch(|_, _| {}),
    )
    .effect(Effect::Nothing),
    Opt::new("no_inline_ascii_resp", "the default", Action::Switch(|_, _| {})).effect(Effect::Nothing),
    Opt::new(
        "sock_cookie_id",
        "a mark on listening sockets for a firewall",
        Action::Integer { min: 0, max: U32_MAX, missing: None, set: |_, _| {} },
    )
    .takes("<id>")
    .effect(Effect::Unmet("sockets are not marked, so a firewall rule that matches the mark does not match")),
];

const INDEX: &[Opt] = &[
    Opt::new(
        "hashpower",
        "initial size of the hash table; the index is sized by -m",
        Action::Integer { min: 12, max: 32, missing: None, set: |d, n| d.settings.reported.hash_power_init = n as u32 },
    )
    .takes("<power>")
    .default("16")
    .effect(Effect::Nothing),
    Opt::new(
        "no_hashexpand",
        "never grow the hash table; the index is sized by -m and does not grow",
        Action::Switch(|d, _| d.settings.reported.hash_expand = false),
    )
    .effect(Effect::Nothing),
    Opt::new(
        "hash_algorithm",
        "the hash of keys; a seeded one of Nuthatch's own is used",
        Action::Choice(&["jenkins", "murmur3", "xxh3"], |d, word| {
            d.settings.reported.hash_algorithm = match word {
                "jenkins" => HashAlgorithm::Jenkins,
                "xxh3" => HashAlgorithm::Xxh3,
                _ => HashAlgorithm::Murmur3,
            }
        }),
    )
    .takes("<name>")
    .default("murmur3")
    .effect(Effect::Nothing),
    Opt::new(
        "track_sizes",
        "allow stats sizes, which walks every item when it is asked",
        Action::Switch(|d, _| d.settings.reported.track_sizes = true),
    ),
];

const LRU: &[Opt] = &[
    Opt::new(
        "lru_crawler",
        "look for expired items in the background; expired memory comes back by whole segments",
        Action::Switch(|d, _| d.settings.reported.lru_crawler = true),
    )
    .default("on")
    .effect(Effect::Nothing),
    Opt::new(
        "no_lru_crawler",
        "no such background work",
        Action::Switch(|d, _| d.settings.reported.lru_crawler = false),
    )
    .effect(Effect::Nothing),
    Opt::new(
        "lru_crawler_sleep",
        "microseconds between two crawled items",
        Action::Integer {
            min: 0,
            max: 1_000_000,
            missing: None,
            set: |d, n| d.settings.reported.lru_crawler_sleep = n as u32,
        },
    )
    .takes("<microseconds>")
    .default("100")
    .effect(Effect::Nothing),
    Opt::new(
        "lru_crawler_tocrawl",
        "items crawled per slab class and run; 0 is all",
        Action::Integer {
            min: 0,
            max: U32_MAX,
            missing: None,
            set: |d, n| d.settings.reported.lru_crawler_tocrawl = n as u32,
        },
    )
    .takes("<num>")
    .default("0")
    .effect(Effect::Nothing),
    Opt::new(
        "lru_maintainer",
        "move items between LRU queues in the background; eviction here keeps queues of segments",
        Action::Switch(|d, _| {
            d.settings.reported.lru_maintainer = true;
            d.settings.reported.lru_segmented = true;
        }),
    )
    .default("on")
    .effect(Effect::Nothing),
    Opt::new(
        "no_lru_maintainer",
        "no such background work",
        Action::Switch(|d, _| {
            d.settings.reported.lru_maintainer = false;
            d.settings.reported.lru_segmented = false;
        }),
    )
    .effect(Effect::Nothing),
    Opt::new(
        "hot_lru_pct",
        "share of memory for the hot queue",
        Action::Integer { min: 1, max: 79, missing: None, set: |d, n| d.settings.reported.hot_lru_pct = n as u32 },
    )
    .takes("<percent>")
    .default("20")
    .effect(Effect::Nothing),
    Opt::new(
        "warm_lru_pct",
        "share of memory for the warm queue",
        Action::Integer { min: 1, max: 79, missing: None, set: |d, n| d.settings.reported.warm_lru_pct = n as u32 },
    )
    .takes("<percent>")
    .default("40")
    .effect(Effect::Nothing),
    Opt::new(
        "hot_max_factor",
        "age at which items leave the hot queue",
        Action::Real { above: 0.0, below: f64::INFINITY, set: |d, x| d.settings.reported.hot_max_factor = x },
    )
    .takes("<factor>")
    .default("0.2")
    .effect(Effect::Nothing),
    Opt::new(
        "warm_max_factor",
        "age at which items leave the warm queue",
        Action::Real { above: 0.0, below: f64::INFINITY, set: |d, x| d.settings.reported.warm_max_factor = x },
    )
    .takes("<factor>")
    .default("2.0")
    .effect(Effect::Nothing),
    Opt::new(
        "temporary_ttl",
        "items that live shorter than this get a queue of their own",
        Action::Integer {
            min: 0,
            max: U32_MAX,
            missing: None,
            set: |d, n| {
                d.settings.reported.temp_lru = true;
                d.settings.reported.temporary_ttl = n as u32;
            },
        },
    )
    .takes("<seconds>")
    .default("61")
    .effect(Effect::Nothing),
    Opt::new(
        "tail_repair_time",
        "age at which an item that seems stuck is freed; items cannot get stuck here",
        Action::Integer {
            min: 10,
            max: INT_MAX,
            missing: None,
            set: |d, n| d.settings.reported.tail_repair_time = n as u32,
        },
    )
    .takes("<seconds>")
    .effect(Effect::Nothing),
];

const SLABS: &[Opt] = &[
    Opt::new(
        "slab_reassign",
        "move memory between slab classes; there are none",
        Action::Switch(|d, _| d.settings.reported.slab_reassign = true),
    )
    .default("on")
    .effect(Effect::Nothing),
    Opt::new("no_slab_reassign", "no such moves", Action::Switch(|d, _| d.settings.reported.slab_reassign = false))
        .effect(Effect::Nothing),
    Opt::new(
        "slab_automove",
        "how eagerly memory is moved between slab classes",
        Action::Integer { min: 0, max: 2, missing: Some(1), set: |d, n| d.settings.reported.slab_automove = n as u32 },
    )
    .takes("<level>")
    .default("1")
    .effect(Effect::Nothing),
    Opt::new("no_slab_automove", "no such moves", Action::Switch(|d, _| d.settings.reported.slab_automove = 0))
        .effect(Effect::Nothing),
    Opt::new(
        "slab_automove_ratio",
        "difference in age that makes memory move",
        Action::Real { above: 0.0, below: 1.0, set: |d, x| d.settings.reported.slab_automove_ratio = x },
    )
    .takes("<ratio>")
    .default("0.8")
    .effect(Effect::Nothing),
    Opt::new(
        "slab_automove_window",
        "seconds looked back when moving memory",
        Action::Integer {
            min: 3,
            max: INT_MAX,
            missing: None,
            set: |d, n| d.settings.reported.slab_automove_window = n as u32,
        },
    )
    .takes("<seconds>")
    .default("10")
    .effect(Effect::Nothing),
    Opt::new(
        "slab_automove_freeratio",
        "share of memory kept free",
        Action::Real { above: 0.0, below: 1.0, set: |d, x| d.settings.reported.slab_automove_free_ratio = x },
    )
    .takes("<ratio>")
    .default("0.01")
    .effect(Effect::Nothing),
    Opt::new(
        "slab_sizes",
        "sizes of the slab classes, rising, separated by dashes",
        Action::Text {
            expected: "sizes in bytes, each more than 8 above the one before, separated by dashes",
            set: |d, text| {
                d.settings.reported.slab_sizes = Some(text.to_owned());
                are_slab_sizes(text)
            },
        },
    )
    .takes("<sizes>")
    .effect(Effect::Nothing),
    Opt::new(
        "slab_chunk_max",
        "largest chunk, in kilobytes (above 1024 in bytes, as older releases took it); a large item lies in one piece or in whole \
         segments here",
        Action::Integer {
            min: 1,
            max: 1024 * 1024,
            missing: None,
            set: |d, n| {
                d.settings.reported.slab_chunk_bytes_max = if n <= 1024 { n as u32 * 1024 } else { n as u32 };
                d.slab_chunk_given = true;
            },
        },
    )
    .takes("<kilobytes>")
    .default("512")
    .effect(Effect::Nothing),
    Opt::new(
        "no_chunked_items",
        "no items in several chunks; memcached itself dropped it",
        Action::Switch(|d, _| d.settings.reported.slab_chunk_bytes_max = 1024 * 1024),
    )
    .effect(Effect::Nothing),
];

const TLS: &[Opt] = &[
    Opt::new(
        "ssl_chain_cert",
        "the server's certificate and those that lead to its authority, in PEM",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.tls.certificate = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .takes("<file>"),
    Opt::new(
        "ssl_key",
        "its private key, if that is not in the file of ssl_chain_cert",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.tls.key = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .takes("<file>"),
    Opt::new(
        "ssl_keyformat",
        "what the private key is written in: 1 is PEM, 2 is DER",
        Action::Integer {
            min: 1,
            max: 2,
            missing: None,
            set: |d, n| d.tls.key_format = if n == 2 { KeyFormat::Der } else { KeyFormat::Pem },
        },
    )
    .takes("<num>")
    .default("1"),
    Opt::new(
        "ssl_verify_mode",
        "whether clients show a certificate: 0 no, 1 if they like, 2 and 3 they have to",
        Action::Integer {
            min: 0,
            max: 3,
            missing: None,
            set: |d, n| {
                d.tls.verifies_once = n == 3;
                d.tls.client_certificate = Some(match n {
                    0 => ClientCertificate::None,
                    1 => ClientCertificate::Optional,
                    _ => ClientCertificate::Required,
                });
            },
        },
    )
    .takes("<num>")
    .default("0"),
    Opt::new(
        "ssl_ciphers",
        "cipher suites, in OpenSSL's words, of those that are offered; see docs/memcached.md",
        Action::Text {
            expected: ciphers::EXPECTED,
            set: |d, text| {
                d.tls.ciphers = ciphers::parse(text);
                d.tls.ciphers.is_some()
            },
        },
    )
    .takes("<list>"),
    Opt::new(
        "ssl_ca_cert",
        "the authorities whose certificates clients may show, in PEM",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.tls.client_ca = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .takes("<file>"),
    Opt::new(
        "ssl_wbuf_size",
        "how much of an answer is encrypted and sent at once, in kilobytes",
        Action::Size {
            unit: 1024,
            min: 1024,
            max: WRITE_BYTES_MAX,
            set: |d, bytes| d.tls.write_bytes = Some(bytes as usize),
        },
    )
    .takes("<kilobytes>")
    .default("16"),
    Opt::new(
        "ssl_session_cache",
        "let clients that come back go on with an earlier session",
        Action::Switch(|d, _| d.tls.session_cache = true),
    ),
    Opt::new(
        "ssl_kernel_tls",
        "encrypt in the kernel; it is done in the server here",
        Action::Switch(|d, _| d.tls.kernel_tls = true),
    )
    .effect(Effect::Nothing),
    Opt::new(
        "ssl_min_version",
        "oldest version spoken: 0 TLS 1.0, 1 TLS 1.1, 2 TLS 1.2, 3 TLS 1.3; here 0 and 1 are 2",
        Action::Integer { min: 0, max: 3, missing: None, set: |d, n| d.tls.min_version = Some(n as u8) },
    )
    .takes("<num>")
    .default("2"),
];

/// Memory options count, the path decides: without `ext_path` memcached has no external storage either.
const EXTSTORE: &[Opt] = &[
    Opt::new(
        "ext_path",
        "a file for items that do not fit in memory",
        Action::Text { expected: "file:size", set: |_, text| !text.is_empty() },
    )
    .takes("<file:size>")
    .effect(Effect::Refused("this build has no external storage, and the cache would be smaller than it was sized for"))
    .hidden(),
    extstore("ext_page_size", "<megabytes>"),
    extstore("ext_wbuf_size", "<megabytes>"),
    extstore("ext_threads", "<num>"),
    extstore("ext_io_depth", "<num>"),
    extstore("ext_item_size", "<bytes>"),
    extstore("ext_item_age", "<seconds>"),
    extstore("ext_low_ttl", "<seconds>"),
    Opt::new("ext_drop_unread", "acts only with ext_path", Action::Switch(|_, _| {})).effect(Effect::Nothing).hidden(),
    extstore("ext_recache_rate", "<num>"),
    extstore("ext_compact_under", "<pages>"),
    extstore("ext_drop_under", "<pages>"),
    extstore("ext_max_frag", "<ratio>"),
    extstore("ext_max_sleep", "<microseconds>"),
];

const PROXY: &[Opt] = &[
    Opt::new(
        "proxy_config",
        "run as a proxy, with this Lua file",
        Action::Text { expected: "the path of a file", set: |_, text| !text.is_empty() },
    )
    .takes("<file>")
    .effect(Effect::Refused("this build has no proxy, and requests would not reach the servers behind it"))
    .hidden(),
    Opt::new(
        "proxy_arg",
        "acts only with proxy_config",
        Action::Text { expected: "text", set: |_, text| !text.is_empty() },
    )
    .takes("<text>")
    .effect(Effect::Nothing)
    .hidden(),
    Opt::new("proxy_uring", "acts only with proxy_config", Action::Switch(|_, _| {})).effect(Effect::Nothing).hidden(),
    Opt::new("proxy_memprofile", "acts only with proxy_config", Action::Switch(|_, _| {}))
        .effect(Effect::Nothing)
        .hidden(),
];

const OWN: &[Opt] = &[Opt::new(
    "reserved_keys",
    "delete or incr of nuthatch:forget:prefix:NAME or nuthatch:forget:tag:NAME forgets all items of a prefix or tag",
    Action::Switch(|d, _| d.reserved_keys = Some(true)),
)];

const PROCESS: &[Opt] = &[
    Opt::new("modern", "future defaults; memcached has none at present", Action::Switch(|_, _| {}))
        .effect(Effect::Nothing),
    Opt::new(
        "no_modern",
        "memcached 1.4's defaults: no_maxconns_fast, and reported values",
        Action::Switch(|d, _| {
            d.settings.connections_max_fast = false;
            let reported = &mut d.settings.reported;
            reported.slab_reassign = false;
            reported.slab_automove = 0;
            reported.lru_segmented = false;
            reported.lru_crawler = false;
            reported.lru_maintainer = false;
            reported.hash_algorithm = HashAlgorithm::Jenkins;
            if !d.slab_chunk_given {
                reported.slab_chunk_bytes_max = 1024 * 1024;
            }
        }),
    ),
    Opt::new("drop_privileges", "confine the process to the system calls it needs", Action::Switch(|_, _| {}))
        .effect(Effect::Unmet("there is no system call filter here; systemd's SystemCallFilter= can set one"))
        .hidden(),
    Opt::new("no_drop_privileges", "the default", Action::Switch(|_, _| {})).effect(Effect::Nothing).hidden(),
    Opt::new("relaxed_privileges", "a wider system call filter, for tests", Action::Switch(|_, _| {}))
        .effect(Effect::Nothing)
        .hidden(),
];

/// An option of memcached's external storage, which is refused as a whole at `ext_path`.
const fn extstore(name: &'static str, metavar: &'static str) -> Opt {
    needs_other(name, metavar, "acts only with ext_path")
}

const fn needs_other(name: &'static str, metavar: &'static str, about: &'static str) -> Opt {
    Opt::new(name, about, Action::Text { expected: "a value", set: |_, text| !text.is_empty() })
        .takes(metavar)
        .effect(Effect::Nothing)
        .hidden()
}

/// Finds an option.
pub(super) fn by_name(name: &str) -> Option<&'static Knob<Draft>> {
    all().find(|knob| knob.name == name)
}

/// Every option, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Knob<Draft>> {
    EXTENDED.iter().flat_map(|group| group.knobs)
}

/// memcached's rule for `slab_sizes`: rising by more than its alignment of 8, and at most 62 of them. The bounds that follow from
/// `-n` and `slab_chunk_max` are left out, since neither exists here.
fn are_slab_sizes(text: &str) -> bool {
    let mut last = 0_u32;
    let mut count = 0;
    for part in text.split('-') {
        match part.parse::<u32>() {
            Ok(size) if size > last.saturating_add(8) => last = size,
            _ => return false,
        }
        count += 1;
    }
    count <= 62
}
