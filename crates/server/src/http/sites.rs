//! Which HTTP and HTCP listener serves what: the settings made into sites. A reload makes those anew whose settings are
//! others, and keeps the rest, with what they know of their origins' health.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nuthatch_pages::Ticks;
use nuthatch_pages::door::{AccessLog, Foreign, Network, Site, SiteSettings};
use nuthatch_pages::format::foreign::Form;
use nuthatch_pages::key::{Cookies, MARKETING, NamePattern, Preset, UrlRules};
use nuthatch_pages::negotiate::{Coding, Compression, DecodeLimits};
use nuthatch_pages::origin::Origins;
use nuthatch_pages::rules::Rules;
use rustls::ClientConfig;

use super::house::PageHouse;
use crate::pool::Pool;
use crate::settings::pages::refresh_pattern;
use crate::settings::{HttpSettings, PagesSettings, Settings};

/// A site of one listener, and what it was made of.
pub(crate) struct Served {
    settings: HttpSettings,
    pool: usize,
    pub(crate) site: Arc<Site>,
}

/// The access logs that are open, by their path. Listeners that name the same file share it.
#[derive(Clone, Default)]
pub(crate) struct Logs(HashMap<PathBuf, Arc<AccessLog>>);

impl Logs {
    /// Those that `settings` name: the ones that are open already are told that their file may be another.
    pub(crate) fn open(settings: &Settings, before: &Logs) -> Result<Logs, AccessLogError> {
        let mut logs = HashMap::new();
        for pages in settings.listeners.iter().filter_map(|listener| listener.http.as_ref()).map(|http| &http.pages) {
            let Some(path) = &pages.access_log else { continue };
            if logs.contains_key(path) {
                continue;
            }
            let log = match before.0.get(path).filter(|log| log.target().1 == pages.log_format) {
                Some(log) => {
                    log.reopen();
                    Arc::clone(log)
                }
                None => AccessLog::open(path, pages.log_format)
                    .map_err(|error| AccessLogError { path: path.clone(), error: Arc::new(error) })?,
            };
            logs.insert(path.clone(), log);
        }
        Ok(Logs(logs))
    }

    fn of(&self, path: Option<&Path>) -> Option<Arc<AccessLog>> {
        self.0.get(path?).cloned()
    }
}

/// An access log cannot be opened.
#[derive(Clone, Debug)]
pub struct AccessLogError {
    path: PathBuf,
    error: Arc<std::io::Error>,
}

impl fmt::Display for AccessLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write the access log {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for AccessLogError {}

impl Served {
    /// The site for `settings` on `pool`: `before`, if it is still the one, which trusts its origins as `trust` has it from
    /// now on.
    pub(crate) fn new(
        settings: &HttpSettings,
        pool: &Arc<Pool>,
        ticks: &Arc<Ticks>,
        logs: &Logs,
        trust: Arc<ClientConfig>,
        before: Option<Served>,
    ) -> Served {
        let log = logs.of(settings.pages.access_log.as_deref());
        if let Some(before) = before
            && before.settings == *settings
            && before.pool == pool.number
        {
            before.site.origins().set_trust(trust);
            return before;
        }
        pool.serve_pages();
        let house = Arc::new(PageHouse { pool: Arc::clone(pool), ticks: Arc::clone(ticks), rest: Arc::default() });
        let origins = Origins::new(settings.origin.clone(), trust, Arc::clone(ticks));
        let site = Site::new(site_settings(&settings.pages), origins, &pool.pages, house, log);
        Served { settings: settings.clone(), pool: pool.number, site }
    }
}

/// What stands before the body of a page of mod_mcpage's.
const MCPAGE_HEAD_BYTES_MAX: u64 = 64 * 1024;

/// The form and the keys of applications' pages.
fn foreign(pages: &PagesSettings) -> Option<Foreign> {
    let form = match pages.foreign.as_deref()? {
        "srcache" => Form::Srcache { allow_ranges: false },
        "mcpage" => {
            let bytes_max = pages.page_bytes_max.saturating_add(MCPAGE_HEAD_BYTES_MAX);
            Form::Mcpage { bytes_min: 0, limits: DecodeLimits { bytes_max, ..DecodeLimits::default() } }
        }
        _ => Form::raw(pages.foreign_gzip_flag, &pages.foreign_type)?,
    };
    Some(Foreign { form, prefix: pages.foreign_prefix.clone() })
}

fn site_settings(pages: &PagesSettings) -> SiteSettings {
    let sessions: Vec<&str> = pages.session_cookies.iter().map(String::as_str).collect();
    let ignored: Vec<&str> = pages.ignored_cookies.iter().map(String::as_str).collect();
    let presets: Vec<Preset> = pages.presets.iter().filter_map(|name| Preset::named(name)).collect();
    let is_any = pages.presets.iter().any(|name| name == "any");
    let sessions = if is_any { vec!["*"] } else { sessions };
    let dropped = pages.dropped_parameters.iter().flat_map(|word| match word.as_str() {
        "marketing" => MARKETING.iter().map(|name| NamePattern::new(*name)).collect(),
        word => vec![NamePattern::new(word)],
    });
    SiteSettings {
        rules: Rules {
            patterns: pages.refresh_patterns.iter().filter_map(|text| refresh_pattern(text)).collect(),
            ttl_max_seconds: pages.ttl_max_seconds,
            grace_seconds: pages.grace_seconds,
            stale_if_error_seconds: pages.stale_if_error_seconds,
            keep_seconds: pages.keep_seconds,
            client_directives: pages.client_directives,
            set_cookie: pages.set_cookie,
            refused_statuses: match &pages.refused_statuses[..] {
                [] => Rules::default().refused_statuses,
                listed => Rules::statuses(listed.iter().filter_map(|text| text.parse().ok())),
            },
            ..Rules::default()
        },
        urls: UrlRules { dropped: dropped.collect(), sort_query: pages.sort_query, decoded: pages.decoded.clone() },
        cookies: pages.anonymous_only.then(|| Cookies::new(&presets, &sessions, &ignored)),
        purge_from: match &pages.purge_from[..] {
            [] => vec![Network::LOOPBACK_4, Network::LOOPBACK_6],
            listed => listed.iter().filter_map(|text| text.parse().ok()).collect(),
        },
        announce: pages.announce,
        compression: Compression { coding: pages.compress, ..Compression::default() },
        foreign: foreign(pages),
        accept_encoding: Coding::list(&pages.accept_encoding),
        page_bytes_max: pages.page_bytes_max,
        uncacheable_seconds: pages.uncacheable_seconds,
    }
}
