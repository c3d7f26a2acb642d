//! HTTP and HTCP listeners as an operator asks for them: `http`, `htcp`, `origin` and the `pages` table of a
//! `[[listen]]`, and `[origin.NAME]`. Words become numbers and lists here; what they mean is `nuthatch-pages`' business.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_pages::door::{Announce, LogFormat, Network};
use nuthatch_pages::key::Preset;
use nuthatch_pages::negotiate::Coding;
use nuthatch_pages::origin::{Balance, OriginSettings, OriginTls, ServerAddress};
use nuthatch_pages::rules::{Heuristic, RefreshPattern, SetCookie};
use rustls::pki_types::ServerName;

use super::draft::{Draft, ListenDraft, OriginDraft};
use super::knob::{Action, Knob, seconds};
use super::problem::Problem;

/// What an HTTP or HTCP listener serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where pages come from; no servers behind an HTCP listener.
    pub origin: OriginSettings,
    /// Everything else.
    pub pages: PagesSettings,
}

/// The `pages` table of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesSettings {
    /// Requests of sessions are passed, and all others are asked for without cookies.
    pub anonymous_only: bool,
    /// Applications whose session cookies are known.
    pub presets: Vec<String>,
    /// Further cookies that make a session, and cookies that do not count.
    pub session_cookies: Vec<String>,
    /// See above.
    pub ignored_cookies: Vec<String>,
    /// Query parameters that are no part of a page's URL.
    pub dropped_parameters: Vec<String>,
    /// Whether query parameters are sorted.
    pub sort_query: bool,
    /// Reserved characters that are decoded in paths.
    pub decoded: String,
    /// Who may purge; loopback when empty, nobody when it is `none`.
    pub purge_from: Vec<String>,
    /// What texts are compressed with before they are stored.
    pub compress: Coding,
    /// In which codings origins are asked for pages, in order of preference.
    pub accept_encoding: Vec<Coding>,
    /// The form of pages that applications store: `raw`, `srcache` or `mcpage`; none are read without it.
    pub foreign: Option<String>,
    /// What stands before the URL in their keys.
    pub foreign_prefix: String,
    /// The item flag that says that a raw page is gzip; 0 for none.
    pub foreign_gzip_flag: u32,
    /// The `Content-Type` of raw pages.
    pub foreign_type: String,
    /// Longer bodies are not stored.
    pub page_bytes_max: u64,
    /// How long it is remembered that a page cannot be stored.
    pub uncacheable_seconds: u32,
    /// No page is fresh for longer.
    pub ttl_max_seconds: u32,
    /// Stale pages are served for so long while they are refreshed.
    pub grace_seconds: u32,
    /// The same when the origin fails.
    pub stale_if_error_seconds: u32,
    /// Pages that can be revalidated are kept for so long beyond that.
    pub keep_seconds: u32,
    /// `REGEX MIN PERCENT MAX` each; `.` for all others.
    pub refresh_patterns: Vec<String>,
    /// Whether clients' `Cache-Control` counts.
    pub client_directives: bool,
    /// What becomes of responses that set cookies.
    pub set_cookie: SetCookie,
    /// Statuses that are not stored, whatever a response says; those that are about one request when empty, none when it is
    /// `none`.
    pub refused_statuses: Vec<String>,
    /// What answers say of how they came about.
    pub announce: Announce,
    /// The access log.
    pub access_log: Option<PathBuf>,
    /// And its format.
    pub log_format: LogFormat,
}

impl Default for PagesSettings {
    fn default() -> PagesSettings {
        PagesSettings {
            anonymous_only: false,
            presets: Vec::new(),
            session_cookies: Vec::new(),
            ignored_cookies: Vec::new(),
            dropped_parameters: Vec::new(),
            sort_query: false,
            decoded: String::new(),
            purge_from: Vec::new(),
            compress: Coding::Gzip,
            accept_encoding: Vec::new(),
            foreign: None,
            foreign_prefix: "page:".to_owned(),
            foreign_gzip_flag: 0,
            foreign_type: "text/html; charset=utf-8".to_owned(),
            page_bytes_max: PAGE_BYTES_MAX,
            uncacheable_seconds: 120,
            ttl_max_seconds: 365 * 86_400,
            grace_seconds: 0,
            stale_if_error_seconds: 3600,
            keep_seconds: 3600,
            refresh_patterns: Vec::new(),
            client_directives: true,
            set_cookie: SetCookie::Refuse,
            refused_statuses: Vec::new(),
            announce: Announce::default(),
            access_log: None,
            log_format: LogFormat::Squid,
        }
    }
}

/// The longest body that is stored when nothing is said. A pool of pages that says nothing of its items lets them be as
/// long, with room for a head.
const PAGE_BYTES_MAX: u64 = 8 << 20;
pub(super) const PAGE_ITEM_BYTES_MAX: usize = (PAGE_BYTES_MAX as usize) + 64 * 1024;

/// What is wrong with an `[origin.NAME]` as a whole, in words that follow its name.
pub(super) fn origin_problem(settings: &OriginSettings) -> Option<&'static str> {
    let speaks_tls = settings.servers.iter().any(|server| server.tls_name().is_some());
    match &settings.tls {
        _ if settings.servers.is_empty() => Some("expected the key servers with addresses of web servers"),
        tls if !speaks_tls && *tls != OriginTls::default() => {
            Some("expected a server at an https:// address, for which alone keys that begin with tls_ are")
        }
        tls if tls.key.is_some() && tls.certificate.is_none() => Some("expected the key tls_certificate with tls_key"),
        tls if tls.is_unverified && tls.ca.is_some() => {
            Some("expected tls_ca or tls_without_verification, which leaves nothing to check by it")
        }
        _ => None,
    }
}

/// A name of a server, or of an `[origin.NAME]`.
pub(super) fn origin_of(draft: &Draft, words: &[String], place: &str) -> Result<OriginSettings, Problem> {
    let expected = "expected http://HOST:PORT or https://HOST:PORT, a list of such, or the name of an [origin.NAME]";
    match words {
        [] => Err(Problem::value(format!("{place}: listen: {expected} as origin"))),
        [name] if !name.contains("://") => {
            let found = draft.origins.iter().find(|origin| origin.settings.name == *name);
            found.map(|origin| origin.settings.clone()).ok_or_else(|| {
                let named: Vec<&str> = draft.origins.iter().map(|origin| origin.settings.name.as_str()).collect();
                let there = if named.is_empty() { "none is there".to_owned() } else { named.join(", ") };
                Problem::value(format!("{place}: listen.origin: {expected} ({there}), not {name:?}"))
            })
        }
        words => {
            let servers: Result<Vec<ServerAddress>, _> = words.iter().map(|word| word.parse()).collect();
            match servers {
                Ok(servers) => Ok(OriginSettings { name: words.join(", "), servers, ..OriginSettings::default() }),
                Err(_) => Err(Problem::value(format!("{place}: listen.origin: {expected}, not {words:?}"))),
            }
        }
    }
}

/// Takes `REGEX MIN PERCENT MAX` apart, as Squid's `refresh_pattern` has it but with units: `^/img/ 1h 20% 3d`.
pub(crate) fn refresh_pattern(text: &str) -> Option<RefreshPattern> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [expression, min, percent, max] = words[..] else { return None };
    let percent = percent.strip_suffix('%')?.parse().ok()?;
    let heuristic = Heuristic { min_seconds: seconds(min)?, percent, max_seconds: seconds(max)? };
    RefreshPattern::new(expression, heuristic).ok()
}

const CODING: &str = "one of gzip, br and zstd";
const SERVER: &str = "an address of the form http://HOST:PORT or https://HOST:PORT";

/// `pages` of `[[listen]]`. Each acts on the table that was opened.
pub(super) static LISTEN_PAGES: &[Knob<ListenDraft>] = &[
    Knob::<ListenDraft>::new(
        "anonymous",
        "pass requests with a session of these applications, or with Authorization, and ask for all others without cookies",
        Action::Texts {
            expected: "one of mediawiki, drupal, wordpress, and any, which takes every cookie for a session",
            list: |d| {
                d.pages().anonymous_only = true;
                &mut d.pages().presets
            },
            is_right: |text| text == "any" || Preset::named(text).is_some(),
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "session_cookies",
        "further cookies that make a session, with * for any characters",
        Action::Texts {
            expected: "the name of a cookie",
            list: |d| {
                d.pages().anonymous_only = true;
                &mut d.pages().session_cookies
            },
            is_right: |_| true,
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "ignored_cookies",
        "cookies that never count, with * for any characters; those of analytics do not anyway",
        Action::Texts {
            expected: "the name of a cookie",
            list: |d| &mut d.pages().ignored_cookies,
            is_right: |_| true,
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "drop_parameters",
        "query parameters that neither the key nor the origin gets, with * for any characters; marketing is a list of known ones",
        Action::Texts {
            expected: "the name of a query parameter",
            list: |d| &mut d.pages().dropped_parameters,
            is_right: |_| true,
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "sort_query",
        "sort query parameters by name, for key and origin alike",
        Action::Switch(|d, on| d.pages().sort_query = on),
    )
    .default("false")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "decoded",
        "reserved characters that are decoded in paths, for key and origin alike, of :;,!$&'()*+=@",
        Action::Text {
            expected: "some of :;,!$&'()*+=@",
            set: |d, text| {
                d.pages().decoded = text.to_owned();
                text.bytes().all(|byte| b":;,!$&'()*+=@".contains(&byte))
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "purge_from",
        "who may purge: addresses and networks, or none; loopback when left out",
        Action::Texts {
            expected: "an address such as 10.0.0.1, a network such as 10.0.0.0/8, or none",
            list: |d| &mut d.pages().purge_from,
            is_right: |text| text == "none" || text.parse::<Network>().is_ok(),
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "compress",
        "store texts of 1 KiB and more compressed, once, and undo it for clients that do not take it",
        Action::Choice(&["none", "gzip", "br", "zstd"], |d, word| {
            d.pages().compress = Coding::named(word.as_bytes()).unwrap_or_default();
        }),
    )
    .default("gzip")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "accept_encoding",
        "ask origins for pages in these codings, the best first, keep them as they come, and undo them for clients that do not take them; in none when left out",
        Action::List {
            expected: CODING,
            add: |d, text| match Coding::named(text.as_bytes()) {
                Some(coding) if coding != Coding::Identity => {
                    d.pages().accept_encoding.push(coding);
                    Ok(())
                }
                _ => Err(CODING.to_owned()),
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "foreign",
        "serve pages that applications put into the pool, in this form: a body (raw, as nginx and Drupal's memcache_storage have it), a whole HTTP response (srcache), lighttpd's mod_mcpage",
        Action::Choice(&["none", "raw", "srcache", "mcpage"], |d, word| {
            d.pages().foreign = (word != "none").then(|| word.to_owned());
        }),
    )
    .default("none")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "foreign_prefix",
        "what stands before the URL in their keys, such as cache_page-",
        Action::Text {
            expected: "1 to 64 printable characters without a blank",
            set: |d, text| {
                d.pages().foreign_prefix = text.to_owned();
                (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
            },
        },
    )
    .default("page:")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "foreign_gzip_flag",
        "the item flag that says that a raw page is gzip (nginx's memcached_gzip_flag); 0 for none",
        Action::Integer {
            min: 0,
            max: 4_294_967_295,
            missing: None,
            set: |d, flag| d.pages().foreign_gzip_flag = flag as u32,
        },
    )
    .default("0")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "foreign_type",
        "the Content-Type of raw pages",
        Action::Text {
            expected: "a media type",
            set: |d, text| {
                d.pages().foreign_type = text.to_owned();
                !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
            },
        },
    )
    .default("text/html; charset=utf-8")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "page_max",
        "longer bodies pass through and are not stored; the pool's item_max holds too",
        Action::Size { unit: 1, min: 1024, max: 1 << 30, set: |d, bytes| d.pages().page_bytes_max = bytes },
    )
    .default("8MiB")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "uncacheable_for",
        "remember for so long that a page's answers cannot be stored, so that nobody waits for another's",
        Action::Seconds(|d, seconds| d.pages().uncacheable_seconds = seconds),
    )
    .default("120")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "ttl_max",
        "no page is fresh for longer",
        Action::Seconds(|d, seconds| d.pages().ttl_max_seconds = seconds),
    )
    .default("365d")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "grace",
        "serve a stale page for so long while it is refreshed, where the response does not say (stale-while-revalidate)",
        Action::Seconds(|d, seconds| d.pages().grace_seconds = seconds),
    )
    .default("0")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "stale_if_error",
        "serve a stale page for so long when the origin fails, where the response does not say; not what must be revalidated",
        Action::Seconds(|d, seconds| d.pages().stale_if_error_seconds = seconds),
    )
    .default("1h")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "keep",
        "keep a stale page that has a validator for so long beyond grace and stale_if_error, to be revalidated",
        Action::Seconds(|d, seconds| d.pages().keep_seconds = seconds),
    )
    .default("1h")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "refresh_patterns",
        "freshness of responses that state none, as in Squid: \"REGEX MIN PERCENT MAX\" each, the first that matches path and query counts",
        Action::Texts {
            expected: "a pattern such as \"^/images/ 1h 20% 3d\"",
            list: |d| &mut d.pages().refresh_patterns,
            is_right: |text| refresh_pattern(text).is_some(),
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "client_directives",
        "heed Cache-Control and Pragma of requests",
        Action::Switch(|d, on| d.pages().client_directives = on),
    )
    .default("true")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "set_cookie",
        "responses that set cookies are not stored (refuse), stored without them (strip) or with them (keep)",
        Action::Choice(&["refuse", "strip", "keep"], |d, word| {
            d.pages().set_cookie = match word {
                "strip" => SetCookie::Strip,
                "keep" => SetCookie::Keep,
                _ => SetCookie::Refuse,
            };
        }),
    )
    .default("refuse")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "refuse_statuses",
        "answers with these statuses are not stored, not even with explicit freshness; 400, 413 and 431 when left out, which are about something in a request that is no part of the key",
        Action::Texts {
            expected: "a status from 300 to 599, or none",
            list: |d| &mut d.pages().refused_statuses,
            is_right: |text| text == "none" || text.parse().is_ok_and(|status: u16| (300..600).contains(&status)),
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "x_cache",
        "answers say X-Cache: HIT from HOST or MISS, as Squid's do",
        Action::Switch(|d, on| d.pages().announce.x_cache = on),
    )
    .default("true")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "x_cache_lookup",
        "answers say X-Cache-Lookup: HIT from HOST:PORT, as Squid's do",
        Action::Switch(|d, on| d.pages().announce.x_cache_lookup = on),
    )
    .default("false")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "served_by",
        "answers from memory say X-Served-By-memcached: true, as mod_mcpage's do",
        Action::Switch(|d, on| d.pages().announce.served_by = on),
    )
    .default("false")
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "cache_status",
        "answers say Cache-Status (RFC 9211)",
        Action::Switch(|d, on| d.pages().announce.cache_status = on),
    )
    .default("false")
    .for_new_connections(),
    Knob::<ListenDraft>::new("via", "answers say Via", Action::Switch(|d, on| d.pages().announce.via = on))
        .default("true")
        .for_new_connections(),
    Knob::<ListenDraft>::new(
        "access_log",
        "write a line for each request to this file; a reload opens it anew",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.pages().access_log = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<ListenDraft>::new(
        "log_format",
        "how these lines look",
        Action::Choice(&["squid", "combined", "json"], |d, word| {
            d.pages().log_format = match word {
                "combined" => LogFormat::Combined,
                "json" => LogFormat::Json,
                _ => LogFormat::Squid,
            };
        }),
    )
    .default("squid")
    .for_new_connections(),
];

const fn duration(seconds: u32) -> Duration {
    Duration::from_secs(seconds as u64)
}

/// `[origin.NAME]`
pub(super) static ORIGIN: &[Knob<OriginDraft>] = &[
    Knob::<OriginDraft>::new(
        "servers",
        "the web servers",
        Action::List {
            expected: SERVER,
            add: |d, text| {
                d.settings.servers.push(text.parse().map_err(|_| SERVER)?);
                Ok(())
            },
        },
    )
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "balance",
        "who is asked first: one after the other, or the same server for the same page",
        Action::Choice(&["round-robin", "hash"], |d, word| {
            d.settings.balance = if word == "hash" { Balance::Hash } else { Balance::RoundRobin };
        }),
    )
    .default("round-robin")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "connect_timeout",
        "how long a connection may take to be there",
        Action::Seconds(|d, seconds| d.settings.connect_timeout = duration(seconds)),
    )
    .default("5")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "first_byte_timeout",
        "how long the head of an answer may take",
        Action::Seconds(|d, seconds| d.settings.first_byte_timeout = duration(seconds)),
    )
    .default("60")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "between_bytes_timeout",
        "how long an answer may pause",
        Action::Seconds(|d, seconds| d.settings.between_bytes_timeout = duration(seconds)),
    )
    .default("60")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "idle_connections",
        "connections to each server that each worker keeps while nothing is asked",
        Action::Integer {
            min: 0,
            max: 10_000,
            missing: None,
            set: |d, n| d.settings.idle_connections_max = n as usize,
        },
    )
    .default("32")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "idle_timeout",
        "for how long; less than the servers' own time",
        Action::Seconds(|d, seconds| d.settings.idle_timeout = duration(seconds)),
    )
    .default("30")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "tunnel_timeout",
        "how long a connection that speaks another protocol (WebSocket) may be silent in both directions; 0 is for ever",
        Action::Seconds(|d, seconds| d.settings.tunnel_timeout = duration(seconds)),
    )
    .default("3600")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "fails_max",
        "leave a server alone after so many failures in a row; 0 is never",
        Action::Integer { min: 0, max: 1_000_000, missing: None, set: |d, n| d.settings.fails_max = n as u32 },
    )
    .default("3")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "fail_time",
        "for how long",
        Action::Seconds(|d, seconds| d.settings.fail_time = duration(seconds)),
    )
    .default("10")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "health",
        "ask each server for this path now and then: one that answers with an error is left alone until it does not",
        Action::Text {
            expected: "a path that begins with /",
            set: |d, text| {
                d.settings.health_path = Some(text.to_owned());
                text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic())
            },
        },
    )
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "health_interval",
        "how often",
        Action::Seconds(|d, seconds| d.settings.health_interval = duration(seconds.max(1))),
    )
    .default("5")
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "tls_ca",
        "file of the authorities that certificates of https servers are to be from, in PEM; those that browsers trust when left out",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.tls.ca = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "tls_server_name",
        "for whom certificates of https servers are to be, and what these are told (SNI); the host of each address when left out",
        Action::Text {
            expected: "the name of a host",
            set: |d, text| {
                d.settings.tls.server_name = ServerName::try_from(text.to_owned()).ok();
                d.settings.tls.server_name.is_some()
            },
        },
    )
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "tls_certificate",
        "file of the certificate that https servers are shown if they ask, and those that lead to its authority, in PEM",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.tls.certificate = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "tls_key",
        "file of its private key; may be left out when that is in the file of the certificate",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.settings.tls.key = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    )
    .for_new_connections(),
    Knob::<OriginDraft>::new(
        "tls_without_verification",
        "take any certificate of https servers: whoever is between can read and change what they send",
        Action::Switch(|d, on| d.settings.tls.is_unverified = on),
    )
    .default("false")
    .for_new_connections(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refresh_patterns_are_squids_with_units() {
        let pattern = refresh_pattern("^/images/ 1h 20% 3d").expect("a pattern");
        assert_eq!(pattern.heuristic, Heuristic { min_seconds: 3600, percent: 20, max_seconds: 3 * 86_400 });
        for wrong in ["", "^/ 1h 20%", "( 1h 20% 3d", "^/ 1h 20 3d", "^/ 1x 20% 3d", "^/ 1h 20% 3d more"] {
            assert!(refresh_pattern(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_defaults_of_the_tables_are_those_of_the_settings() {
        let mut listen = ListenDraft::default();
        let _ = listen.pages();
        for knob in LISTEN_PAGES.iter().filter(|knob| !knob.default.is_empty()) {
            assert!(knob.set(&mut listen, Some(knob.default)), "{}", knob.name);
        }
        assert_eq!(*listen.pages(), PagesSettings::default());
        let mut origin = OriginDraft::default();
        for knob in ORIGIN.iter().filter(|knob| !knob.default.is_empty()) {
            assert!(knob.set(&mut origin, Some(knob.default)), "{}", knob.name);
        }
        assert_eq!(origin.settings, OriginSettings::default());
    }
}
