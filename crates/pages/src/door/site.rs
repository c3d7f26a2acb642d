//! A site: what a listener serves, made of the settings, and what its requests share. Never changed: a reload makes
//! another, and connections that are open keep theirs.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use nuthatch_store::{Seconds, Store};

use super::flight::Flights;
use super::log::AccessLog;
use super::purge::Network;
use super::soft::SoftPurges;
use crate::format::foreign::Form;
use crate::house::House;
use crate::key::{Cookies, ITEM_PREFIX, UrlRules};
use crate::negotiate::{Coding, Compression};
use crate::origin::Origins;
use crate::rules::Rules;

/// What an operator says of a site.
#[derive(Clone, Debug)]
pub struct SiteSettings {
    /// What may be stored, and for how long.
    pub rules: Rules,
    /// Which URLs are the same page.
    pub urls: UrlRules,
    /// Which cookies make a session. A request with one, or with `Authorization`, is passed to the origin, and all others
    /// are asked for without cookies. Without it, cookies mean what `Vary` says.
    pub cookies: Option<Cookies>,
    /// Who may purge.
    pub purge_from: Vec<Network>,
    /// What answers say of how they came about.
    pub announce: Announce,
    /// What is compressed before it is stored.
    pub compression: Compression,
    /// The `Accept-Encoding` with which origins are asked for what all will see; without it, for no coding.
    pub accept_encoding: Option<HeaderValue>,
    /// Pages of applications that are read besides our own.
    pub foreign: Option<Foreign>,
    /// Longer bodies are passed through and not stored.
    pub page_bytes_max: u64,
    /// For how long it is remembered that a page's answers cannot be stored.
    pub uncacheable_seconds: u32,
}

impl Default for SiteSettings {
    fn default() -> SiteSettings {
        SiteSettings {
            rules: Rules::default(),
            urls: UrlRules::default(),
            cookies: None,
            purge_from: vec![Network::LOOPBACK_4, Network::LOOPBACK_6],
            announce: Announce::default(),
            compression: Compression { coding: Coding::Identity, ..Compression::default() },
            accept_encoding: None,
            foreign: None,
            page_bytes_max: 8 * 1024 * 1024,
            uncacheable_seconds: 120,
        }
    }
}

/// Pages that applications put into the pool themselves.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Their form.
    pub form: Form,
    /// What stands before a URL in their keys; ours is `page:`.
    pub prefix: String,
}

/// Which fields answers carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// `X-Cache: HIT from HOST`, as Squid's.
    pub x_cache: bool,
    /// `X-Cache-Lookup: HIT from HOST:PORT`, as Squid's.
    pub x_cache_lookup: bool,
    /// `X-Served-By-memcached: true` on what came from memory, as mod_mcpage's.
    pub served_by: bool,
    /// `Cache-Status` (RFC 9211).
    pub cache_status: bool,
    /// `Via` (RFC 9110, section 7.6.3).
    pub via: bool,
}

impl Default for Announce {
    fn default() -> Announce {
        Announce { x_cache: true, x_cache_lookup: false, served_by: false, cache_status: false, via: true }
    }
}

/// See the module.
pub struct Site {
    pub(crate) settings: SiteSettings,
    pub(crate) origins: Arc<Origins>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) soft: Arc<SoftPurges>,
    pub(crate) house: Arc<dyn House>,
    pub(crate) log: Option<Arc<AccessLog>>,
}

/// What all sites of one pool share whatever the settings become: which pages are being fetched, and which were made
/// stale together.
#[derive(Clone)]
pub struct Shared {
    flights: Arc<Flights>,
    soft: Arc<SoftPurges>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { flights: Flights::new(), soft: Arc::default() }
    }
}

impl Shared {
    /// The item under `key` is about to be deleted by a client of another door: what is being fetched for it is out of
    /// date. Costs a comparison where it is no page's.
    pub fn deleting(&self, key: &[u8]) {
        if key.starts_with(ITEM_PREFIX.as_bytes()) {
            self.flights.spoil_page(key);
        }
    }

    /// The items of `store` are there after a restart, and were perhaps there before the one at `opened_at`: what soft purges
    /// of many say outlasts them.
    pub fn outlast(&self, store: &Arc<Store>, opened_at: Seconds) {
        self.soft.outlast(&mut store.handle(), opened_at);
    }

    /// Everything, or what nobody can tell by its key, is about to be forgotten: whatever is being fetched is out of date.
    pub fn forgetting(&self) {
        self.flights.spoil_everything();
    }
}

impl Site {
    /// A site on a pool.
    pub fn new(
        settings: SiteSettings,
        origins: Arc<Origins>,
        shared: &Shared,
        house: Arc<dyn House>,
        log: Option<Arc<AccessLog>>,
    ) -> Arc<Site> {
        let Shared { flights, soft } = shared.clone();
        Arc::new(Site { settings, origins, flights, soft, house, log })
    }

    /// Where its pages come from.
    pub fn origins(&self) -> &Arc<Origins> {
        &self.origins
    }

    /// Longest body that is stored. The pool's item holds the head too.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        let item = self.house.item_bytes_max() as u64;
        self.settings.page_bytes_max.min(item.saturating_sub(HEAD_ALLOWANCE_BYTES))
    }

    /// What bodies that are being fetched, or were and are still being read, may take together besides the pool: a quarter of
    /// its memory, or one body if that is more.
    pub(crate) fn flights_bytes_max(&self) -> usize {
        (self.house.memory_bytes() / 4).max(self.body_bytes_max() as usize)
    }

    /// Where the meaning of cookies is not told, each counts for what it is.
    pub(crate) fn cookies(&self) -> &Cookies {
        static LITERAL: std::sync::LazyLock<Cookies> = std::sync::LazyLock::new(Cookies::default);
        self.settings.cookies.as_ref().unwrap_or(&LITERAL)
    }

    pub(crate) fn may_purge(&self, address: Option<IpAddr>) -> bool {
        match address {
            // Whoever reaches a UNIX socket was let in by its mode.
            None => true,
            Some(address) => self.settings.purge_from.iter().any(|network| network.contains(address)),
        }
    }
}

/// What a page's key and head may take of an item.
const HEAD_ALLOWANCE_BYTES: u64 = 16 * 1024;
