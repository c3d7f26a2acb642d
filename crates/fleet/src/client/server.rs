//! A server with its links, and a list of servers with the places of keys among them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Error;
use super::clock::{Clock, micros};
use super::config::{Config, Place, ServerAddr, Servers};
use super::counters::{Counts, ServerStats};
use super::health::{Health, Rules, SHARE_ALL};
use super::inner::Inner;
use super::link::{Again, Link};
use super::request::Request;
use crate::Protocol;
use crate::placement::{SERVERS_MAX, Set};

/// What all links of a client share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) protocol: Protocol,
    namespace: Box<[u8]>,
    pub(super) limits: Limits,
    pub(super) runtime: Handle,
    pub(super) ticker: Notify,
    /// Whether the ticker's task sleeps until it is notified.
    pub(super) ticker_parked: AtomicBool,
    /// Whose links these are.
    pub(super) client: OnceLock<Weak<Inner>>,
    connections: usize,
    rules: Rules,
    flush_returning: bool,
}

/// Bounds of everything that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) queue_requests_max: usize,
    pub(super) queue_bytes_max: usize,
    pub(super) value_bytes_max: usize,
}

impl Limits {
    pub(super) fn connect_us(&self) -> u64 {
        micros(self.connect_timeout)
    }

    pub(super) fn read_us(&self) -> u64 {
        micros(self.read_timeout)
    }

    pub(super) fn timeout_us(&self) -> u64 {
        micros(self.timeout)
    }

    /// A value with its line, key and flags.
    pub(super) fn answer_bytes_max(&self) -> usize {
        self.value_bytes_max + nuthatch_proto::client::reply::LINE_BYTES_MAX
    }
}

impl Shared {
    pub(super) fn new(config: &Config, runtime: Handle) -> Shared {
        Shared {
            clock: Clock::new(),
            protocol: config.protocol,
            namespace: config.namespace.as_slice().into(),
            limits: Limits {
                connect_timeout: config.connect_timeout.min(config.timeout),
                // A server that lets every operation run out of time is as silent as one that says nothing.
                read_timeout: config.read_timeout.min(config.timeout),
                timeout: config.timeout,
                queue_requests_max: config.queue_requests_max.max(1),
                queue_bytes_max: config.queue_bytes_max.max(1),
                value_bytes_max: config.value_bytes_max,
            },
            runtime,
            ticker: Notify::new(),
            ticker_parked: AtomicBool::new(false),
            client: OnceLock::new(),
            connections: config.connections.max(1),
            rules: Rules {
                failure_limit: config.failure_limit.max(1),
                retry_us: micros(config.retry_timeout),
                dead_us: micros(config.dead_timeout),
                ramp_us: micros(config.ramp),
            },
            flush_returning: config.flush_returning,
        }
    }

    /// What is spoken, and what stands in front of every key then.
    #[inline]
    pub(super) fn spoken(&self) -> (Protocol, &[u8]) {
        (self.protocol, &self.namespace)
    }

    /// Asks once more for keys whose connection has ended with `error`.
    pub(super) fn ask_again(&self, keys: Vec<Again>, error: &Error) {
        let client = self.client.get().and_then(Weak::upgrade);
        for Again { key, want, taker, until_us } in keys {
            match &client {
                Some(client) => client.ask(&key, want, &taker, Some(until_us)),
                None => taker.tell(Err(error)),
            }
        }
    }

    /// There is a deadline to be kept.
    #[inline]
    pub(super) fn wake_ticker(&self) {
        if self.ticker_parked.load(Ordering::Relaxed) && self.ticker_parked.swap(false, Ordering::SeqCst) {
            self.ticker.notify_one();
        }
    }
}

/// Which server it is, and how it does.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) addr: ServerAddr,
    pub(super) label: Arc<str>,
    pub(super) health: Health,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) identity: Arc<Identity>,
    links: Vec<Arc<Link>>,
    flush_returning: bool,
}

impl Server {
    fn new(shared: &Arc<Shared>, addr: &ServerAddr) -> Arc<Server> {
        let identity = Arc::new(Identity {
            addr: addr.clone(),
            label: addr.to_string().into(),
            health: Health::new(shared.rules),
        });
        let links = (0..shared.connections).map(|_| Arc::new(Link::new(shared.clone(), identity.clone()))).collect();
        Arc::new(Server { identity, links, flush_returning: shared.flush_returning })
    }

    /// The link for a key: always the same, so that its requests stay in order.
    #[inline]
    pub(super) fn link(&self, key: &[u8]) -> &Arc<Link> {
        match self.links.as_slice() {
            [link] => link,
            links => &links[(spread(key) >> 32) as usize % links.len()],
        }
    }

    pub(super) fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    /// Whether the server is asked for this key now.
    #[inline]
    pub(super) fn takes(&self, key: &[u8]) -> bool {
        let share = self.identity.health.share();
        share == SHARE_ALL || share != 0 && (spread(key) as u32) % SHARE_ALL < share
    }

    pub(super) fn down(&self) -> Error {
        self.identity.health.refused.fetch_add(1, Ordering::Relaxed);
        Error::Down { server: self.identity.label.clone() }
    }

    /// Keeps deadlines and probes; true while time has to pass here.
    pub(super) fn tick(&self, now_us: u64) -> bool {
        if self.identity.health.tick(now_us) {
            let probe = if self.flush_returning { Request::Flush { delay: None } } else { Request::Barrier };
            self.links[0].submit_unowned(&probe);
        }
        self.tick_links(now_us) || self.identity.health.waits()
    }

    /// Keeps deadlines; true while there are any.
    pub(super) fn tick_links(&self, now_us: u64) -> bool {
        self.links.iter().fold(false, |busy, link| link.tick(now_us) | busy)
    }

    /// What the mean answer took so far, in microseconds.
    pub(super) fn latency_us(&self) -> u64 {
        let mut counts = Counts::default();
        self.links.iter().for_each(|link| counts.add(&link.counts()));
        counts.latency_us.checked_div(counts.answers).unwrap_or(0)
    }

    pub(super) fn drain(&self) {
        self.links.iter().for_each(|link| link.drain());
    }

    pub(super) fn close(&self) {
        self.links.iter().for_each(|link| link.close());
    }

    pub(super) fn stats(&self) -> ServerStats {
        let mut counts = Counts::default();
        self.links.iter().for_each(|link| counts.add(&link.counts()));
        counts.shown(self.identity.addr.clone(), self.identity.label.clone(), self.identity.health.counts())
    }
}

/// A number that spreads keys evenly, whatever their placement (FNV-1a, then mixed as splitmix64 does).
pub(super) fn spread(key: &[u8]) -> u64 {
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^ (hash >> 31)
}

/// Servers, and which of them keys live on.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) servers: Vec<Arc<Server>>,
    place: Arc<dyn Place>,
    /// Of the whole list, where `place` is without some of it.
    listed: Arc<dyn Place>,
    /// Those that `place` is without.
    ejected: Set,
}

impl Ring {
    /// A ring of these servers; those that `kept` has too keep their links.
    pub(super) fn new(shared: &Arc<Shared>, servers: &Servers, kept: &[Arc<Server>]) -> Ring {
        let server = |addr: &ServerAddr| {
            let same = kept.iter().find(|server| server.identity.addr == *addr);
            same.cloned().unwrap_or_else(|| Server::new(shared, addr))
        };
        let (place, listed) = (servers.place.clone(), servers.place.clone());
        Ring { servers: servers.list.iter().map(server).collect(), place, listed, ejected: Set::default() }
    }

    /// The servers that are asked nothing now.
    pub(super) fn out(&self) -> Set {
        let is_out = |(number, server): (usize, &Arc<Server>)| (server.identity.health.share() == 0).then_some(number);
        self.servers.iter().enumerate().take(SERVERS_MAX).filter_map(is_out).collect()
    }

    /// Those that are to be ejected, if they are others than those that are.
    pub(super) fn ejects_others(&self) -> Option<Set> {
        Some(self.out()).filter(|out| *out != self.ejected)
    }

    /// Places keys without these servers from now on.
    pub(super) fn eject(&mut self, out: Set) {
        let without = if out.is_empty() { None } else { self.listed.without(&out) };
        self.place = without.unwrap_or_else(|| self.listed.clone());
        self.ejected = out;
    }

    /// The key's own server.
    #[inline]
    pub(super) fn first(&self, key: &[u8]) -> Result<&Arc<Server>, Error> {
        match self.servers.as_slice() {
            [server] => Ok(server),
            servers => servers.get(self.place.first(key)).ok_or(Error::NoServers),
        }
    }

    /// The first server in the key's order that takes it now.
    pub(super) fn first_that_takes(&self, key: &[u8]) -> Option<&Arc<Server>> {
        let mut found = None;
        self.place.order(key, &mut |index| {
            found = self.servers.get(index).filter(|server| server.takes(key));
            found.is_none()
        });
        found
    }

    /// The first `count` servers in the key's order that take it now.
    pub(super) fn several(&self, key: &[u8], count: usize) -> Result<Vec<Arc<Server>>, Error> {
        let mut found = Vec::with_capacity(count);
        let mut seen = 0;
        self.place.order(key, &mut |index| {
            seen += 1;
            found.extend(self.servers.get(index).filter(|server| server.takes(key)).cloned());
            seen < count
        });
        if found.is_empty() { Err(self.first(key)?.down()) } else { Ok(found) }
    }
}
