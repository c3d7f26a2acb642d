//! What all threads of one server share: the clock, the log, the connections' registry, what a reload may change.
//!
//! Everything here is read on hot paths by one relaxed load or not at all; locks are taken by administration and when
//! a connection opens or closes. No request is executed here.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::Waker;

use nuthatch_pages::Ticks;
use nuthatch_pages::door::Site;
use tokio::sync::Notify;

use crate::auth::Access;
use crate::clock::Clock;
use crate::counters::{Counters, Ledger, ListenerCounter, PoolCounter, TierCounter};
use crate::log::Log;
use crate::per_worker::PerWorker;
use crate::pool::{Pool, Routes, Totals};
use crate::prefix::PrefixStats;
use crate::settings::{Address, Protocol, Settings};
use crate::tier::Tiers;
use crate::tls::{self, ListenerTls, TlsError};
use crate::watch::Watchers;

/// What all connections' own buffers may take up together when the settings name no limit. It is what remains of the
/// 24 MiB a server may use beyond its pools once threads and 1,000 idle connections have theirs.
const OWNED_BYTES_MAX_DEFAULT: usize = 12 * 1024 * 1024;

/// One server.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) log: Log,
    pub(crate) watchers: Watchers,
    pub(crate) prefixes: PrefixStats,
    pub(crate) registries: PerWorker<Registry>,
    pub(crate) connections: Connections,
    pub(crate) buffers: BufferBudget,
    pub(crate) knobs: Mutex<Knobs>,
    pub(crate) books: Arc<Books>,
    /// Wakes those who wait for an origin.
    pub(crate) ticks: Arc<Ticks>,
    /// When the files of certificates were last read, all of them. Locked while they are read, so that no older file
    /// replaces a newer one.
    certificates_read_at: Mutex<u32>,
    /// What a reload replaces. Workers keep a copy of their own.
    live: RwLock<Arc<Live>>,
    stop: Stop,
}

/// What was counted, also by pools and listeners that are gone.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) listeners: Ledger<ListenerCounter>,
    pub(crate) pools: Ledger<PoolCounter>,
    pub(crate) tiers: Ledger<TierCounter>,
    /// Pools that there ever were.
    pub(crate) pool_numbers: AtomicUsize,
    /// Of stores that are gone.
    pub(crate) stores: Mutex<Totals>,
}

/// What is in force: never changed, only replaced as a whole. A worker is sent its copy in its inbox and takes it
/// between two polls, so whatever is executed in one poll is executed with one of these, and without a lock. What goes
/// on across polls - a dump, a value that is arriving - keeps the one it began with, and thereby its pools.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) settings: Arc<Settings>,
    /// In the order of the settings.
    pub(crate) pools: Vec<Arc<Pool>>,
    /// Pools that are in the settings no more and still used by connections. Whoever uses one has an `Arc` elsewhere.
    pub(crate) leaving: Vec<Weak<Pool>>,
    pub(crate) routes: Routes,
    /// Of pools that have a backend.
    pub(crate) tiers: Tiers,
    /// Those that are open, in the order of the settings.
    pub(crate) listeners: Vec<Arc<Listener>>,
}

impl Live {
    /// Is a pool one that a page listener serves?
    pub(crate) fn serves_pages(&self, pool: &Pool) -> bool {
        let listeners = self.settings.listeners.iter().filter(|listener| listener.http.is_some());
        listeners.into_iter().any(|listener| self.pools.get(listener.pool).is_some_and(|own| own.number == pool.number))
    }

    /// Every pool there is, also those that are leaving.
    pub(crate) fn all_pools(&self) -> Vec<Arc<Pool>> {
        self.pools.iter().cloned().chain(self.leaving.iter().filter_map(Weak::upgrade)).collect()
    }
}

impl Shared {
    /// The state of a server that is about to start.
    pub(crate) fn new(live: Live, books: Arc<Books>, ticks: Arc<Ticks>, clock: Clock, log: Log) -> Shared {
        let settings = Arc::clone(&live.settings);
        Shared {
            certificates_read_at: Mutex::new(clock.now()),
            clock,
            log,
            watchers: Watchers::default(),
            prefixes: PrefixStats::new(settings.prefix_delimiter, settings.detail_enabled),
            registries: PerWorker::default(),
            connections: Connections::default(),
            buffers: BufferBudget::new(&settings),
            knobs: Mutex::new(Knobs::new(&settings)),
            books,
            ticks,
            live: RwLock::new(Arc::new(live)),
            stop: Stop::default(),
        }
    }

    /// What is in force now. Workers use their own copy instead.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts `live` in force; the caller tells the workers.
    pub(crate) fn replace_live(&self, live: Arc<Live>) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
    }

    /// The settings that memcached has and that commands may change.
    pub(crate) fn knobs(&self) -> MutexGuard<'_, Knobs> {
        self.knobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for an origin. What `debugtime` has moved is their time too.
    pub(crate) fn tick_origins(&self) {
        self.ticks.move_to(self.clock.moved_seconds());
        self.ticks.tick();
    }

    /// Asks the control thread to end the server.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    fn certificates_read_at(&self) -> MutexGuard<'_, u32> {
        self.certificates_read_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads certificates and keys again, for the connections from now on: whether there are any. An error leaves all
    /// as it was.
    pub(crate) fn refresh_certificates(&self) -> Result<bool, TlsError> {
        let mut read_at = self.certificates_read_at();
        let in_force = tls::in_force(&self.live().listeners);
        if in_force.is_empty() {
            return Ok(false);
        }
        tls::refresh(&in_force)?;
        *read_at = self.clock.now();
        Ok(true)
    }

    /// The same for a reload: how each listener of `settings` is served from now on. What is in force already and
    /// cannot be read stays as it was.
    pub(crate) fn tls_of(&self, settings: &Settings) -> Vec<Result<Option<Arc<ListenerTls>>, TlsError>> {
        let mut read_at = self.certificates_read_at();
        let read = tls::of_listeners(&settings.listeners, &tls::in_force(&self.live().listeners));
        if read.iter().all(Result::is_ok) {
            *read_at = self.clock.now();
        }
        read
    }

    /// Seconds since the certificates in force were read; `None` where nothing speaks TLS.
    pub(crate) fn certificates_age_seconds(&self) -> Option<u32> {
        let speaks = self.live().listeners.iter().any(|listener| listener.tls.is_some());
        speaks.then(|| self.clock.now().saturating_sub(*self.certificates_read_at()))
    }
}

/// The request to end the server, from a signal or a `shutdown` command.
#[derive(Default)]
pub(crate) struct Stop {
    asked: AtomicBool,
    pub(crate) notify: Notify,
}

impl Stop {
    /// Ends the server: answers in flight are finished, then everything closes.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Whether the server is ending.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

/// What a client that connects to an address gets. Never changed, but for the certificates in `tls`: after a reload new
/// connections are given a new one, and older ones keep theirs.
pub(crate) struct Listener {
    /// What it is called in logs and counters.
    pub(crate) name: String,
    /// Where it really listens.
    pub(crate) address: Address,
    pub(crate) protocol: Protocol,
    /// Who may use it.
    pub(crate) access: Access,
    /// The number of the pool of keys that no route sends elsewhere.
    pub(crate) pool: usize,
    /// That pool. It is there for as long as a connection of this listener is.
    pub(crate) own_pool: Arc<Pool>,
    /// What an HTTP or HTCP listener serves.
    pub(crate) site: Option<Arc<Site>>,
    /// Whether and how clients speak TLS.
    pub(crate) tls: Option<Arc<ListenerTls>>,
    /// The address's: they go on when the listener is changed.
    pub(crate) counters: Arc<Counters<ListenerCounter>>,
    /// The descriptor, for `stats conns`.
    pub(crate) fd: RawFd,
}

impl Listener {
    /// How long connections of its clients that speak another protocol with an origin may be silent.
    pub(crate) fn tunnel_seconds_max(&self) -> Option<u32> {
        let most = self.site.as_ref()?.origins().settings().tunnel_timeout.as_secs();
        u32::try_from(most).ok().filter(|most| *most > 0)
    }
}

/// Client connections of the whole server.
#[derive(Default)]
pub(crate) struct Connections {
    open: AtomicUsize,
    rejected: AtomicU64,
    /// Times accepting was paused, and for how long in all.
    pub(crate) pauses: AtomicU64,
    pub(crate) paused_micros: AtomicU64,
    paused: AtomicBool,
    closed: Notify,
    next_id: AtomicU64,
}

impl Connections {
    /// Client connections open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections turned away because there were too many.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Counts one in and numbers it. Only the control thread calls this.
    pub(crate) fn opened(&self) -> u64 {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts one out, and wakes a paused control thread.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        if self.paused.load(Ordering::Acquire) {
            self.closed.notify_one();
        }
    }

    /// Counts one turned away.
    pub(crate) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether new connections are accepted now.
    pub(crate) fn is_accepting(&self) -> bool {
        !self.paused.load(Ordering::Relaxed)
    }

    /// Says that accepting is paused, or not any more.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    /// Waits for the next connection to close, while paused.
    pub(crate) async fn wait_for_close(&self) {
        self.closed.notified().await;
    }
}

/// Why a connection is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kick {
    None = 0,
    /// It was idle for longer than the settings allow.
    Idle = 1,
    /// It did not read its answers.
    Stall = 2,
    /// The server stops: finish what has arrived, then close.
    Stop = 3,
    /// It did not come to the end of its TLS handshake.
    Handshake = 4,
    /// It did not come to the end of a request's head; it is told so.
    Head = 5,
}

/// What a connection is doing, as `stats conns` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    Reading = 0,
    ReadingValue = 1,
    Swallowing = 2,
    Writing = 3,
    Watching = 4,
    /// A small value is arriving; no memory is reserved for it.
    AwaitingValue = 5,
    /// Writing, and keeping memory of a store for it.
    WritingHeld = 6,
    /// Agreeing on keys; no command was read yet.
    Handshaking = 7,
    /// Waiting for what a backend answers.
    AwaitingBackend = 8,
    /// HTTP: between two requests, or before the first.
    AwaitingRequest = 9,
    /// HTTP: part of a request's head is there.
    ReadingHead = 10,
    /// HTTP: part of a request's body is there.
    ReadingBody = 11,
    /// HTTP: an answer is being made, by an origin perhaps.
    Serving = 12,
    /// HTTP/2: several may be.
    ServingMany = 13,
    /// Another protocol, between the client and an origin.
    Tunnel = 14,
}

impl Activity {
    /// memcached's name of the state.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Activity::Reading | Activity::Handshaking | Activity::AwaitingRequest | Activity::ReadingHead => {
                "conn_read"
            }
            Activity::ReadingValue | Activity::AwaitingValue | Activity::ReadingBody => "conn_nread",
            Activity::Serving | Activity::ServingMany | Activity::Tunnel => "conn_waiting",
            Activity::Swallowing => "conn_swallow",
            Activity::Writing | Activity::WritingHeld => "conn_mwrite",
            Activity::Watching => "conn_watch",
            Activity::AwaitingBackend => "conn_io_queue",
        }
    }

    fn from_u8(value: u8) -> Activity {
        const ALL: [Activity; 15] = [
            Activity::Reading,
            Activity::ReadingValue,
            Activity::Swallowing,
            Activity::Writing,
            Activity::Watching,
            Activity::AwaitingValue,
            Activity::WritingHeld,
            Activity::Handshaking,
            Activity::AwaitingBackend,
            Activity::AwaitingRequest,
            Activity::ReadingHead,
            Activity::ReadingBody,
            Activity::Serving,
            Activity::ServingMany,
            Activity::Tunnel,
        ];
        ALL.get(usize::from(value)).copied().unwrap_or(Activity::Reading)
    }
}

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Internet(SocketAddr),
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Internet(address) => write!(f, "tcp:{address}"),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

/// No pool has this number.
pub(crate) const NO_TABLE: usize = usize::MAX;

/// What others may see of a connection. Written by its worker, read by `stats conns` and the worker's sweep.
pub(crate) struct ConnectionInfo {
    pub(crate) id: u64,
    pub(crate) fd: RawFd,
    pub(crate) peer: Peer,
    pub(crate) listener: Arc<Listener>,
    /// The number of the pool whose table the client has chosen by `get @@NAME`; [`NO_TABLE`] while it has not.
    pub(crate) table: AtomicUsize,
    activity: AtomicU8,
    kick: AtomicU8,
    /// When it last sent a command.
    pub(crate) commanded_at: AtomicU32,
    /// When it last took bytes we wanted to send.
    pub(crate) progressed_at: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl ConnectionInfo {
    pub(crate) fn new(id: u64, fd: RawFd, peer: Peer, listener: Arc<Listener>, now: u32) -> ConnectionInfo {
        ConnectionInfo {
            id,
            fd,
            peer,
            listener,
            table: AtomicUsize::new(NO_TABLE),
            activity: AtomicU8::new(Activity::Reading as u8),
            kick: AtomicU8::new(Kick::None as u8),
            commanded_at: AtomicU32::new(now),
            progressed_at: AtomicU32::new(now),
            waker: Mutex::new(None),
        }
    }

    pub(crate) fn activity(&self) -> Activity {
        Activity::from_u8(self.activity.load(Ordering::Relaxed))
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        self.activity.store(activity as u8, Ordering::Relaxed);
    }

    /// Whether and why the connection is to end.
    pub(crate) fn kicked(&self) -> Kick {
        match self.kick.load(Ordering::Relaxed) {
            1 => Kick::Idle,
            2 => Kick::Stall,
            3 => Kick::Stop,
            4 => Kick::Handshake,
            5 => Kick::Head,
            _ => Kick::None,
        }
    }

    /// Asks the connection to end and wakes it.
    pub(crate) fn kick(&self, why: Kick) {
        self.kick.store(why as u8, Ordering::Relaxed);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }

    /// How [`ConnectionInfo::kick`] wakes the connection; a task's waker stays good for its life.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }
}

/// One worker's connections.
#[derive(Default)]
pub(crate) struct Registry {
    connections: Mutex<HashMap<u64, Arc<ConnectionInfo>>>,
    count: AtomicUsize,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<ConnectionInfo>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, info: &Arc<ConnectionInfo>) {
        self.lock().insert(info.id, Arc::clone(info));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: u64) {
        if self.lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Connections there are, without taking the lock.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Calls `visit` with each connection, in no order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<ConnectionInfo>)) {
        self.lock().values().for_each(&mut visit);
    }
}

/// How much memory connections may own together: requests that have not arrived whole, answers that were not taken.
pub(crate) struct BufferBudget {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl BufferBudget {
    fn new(settings: &Settings) -> BufferBudget {
        let budget = BufferBudget { used: AtomicUsize::new(0), limit: AtomicUsize::new(0) };
        budget.set_limit(settings);
        budget
    }

    /// Takes the limit from `settings`.
    pub(crate) fn set_limit(&self, settings: &Settings) {
        let limit = match settings.buffers.read_bytes_max {
            0 => OWNED_BYTES_MAX_DEFAULT,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes owned by connections now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Changes a connection's share from `from` to `to` bytes, unless that is more than there is.
    pub(crate) fn resize(&self, from: usize, to: usize) -> bool {
        if to <= from {
            self.used.fetch_sub(from - to, Ordering::Relaxed);
            return true;
        }
        let more = to - from;
        let before = self.used.fetch_add(more, Ordering::Relaxed);
        if before + more > self.limit.load(Ordering::Relaxed) {
            self.used.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Whether more than half of it is used: connections then take less at a time.
    pub(crate) fn is_tight(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed) / 2
    }
}

/// memcached's run-time settings that have nothing to act on here. They are kept so that what is set is what `stats
/// settings` shows.
#[derive(Debug, Clone)]
pub(crate) struct Knobs {
    pub(crate) lru_crawler: bool,
    pub(crate) lru_crawler_sleep: u32,
    pub(crate) lru_crawler_tocrawl: u32,
    pub(crate) lru_crawler_starts: u64,
    pub(crate) slab_automove: u32,
    pub(crate) slab_automove_ratio: f64,
    pub(crate) slab_automove_free_ratio: f64,
    pub(crate) slab_automove_window: u32,
    pub(crate) hot_lru_pct: u32,
    pub(crate) warm_lru_pct: u32,
    pub(crate) hot_max_factor: f64,
    pub(crate) warm_max_factor: f64,
    pub(crate) lru_segmented: bool,
    pub(crate) temp_lru: bool,
    pub(crate) temporary_ttl: u32,
}

impl Knobs {
    fn new(settings: &Settings) -> Knobs {
        let reported = &settings.reported;
        Knobs {
            lru_crawler: reported.lru_crawler,
            lru_crawler_sleep: reported.lru_crawler_sleep,
            lru_crawler_tocrawl: reported.lru_crawler_tocrawl,
            lru_crawler_starts: 0,
            slab_automove: reported.slab_automove,
            slab_automove_ratio: reported.slab_automove_ratio,
            slab_automove_free_ratio: reported.slab_automove_free_ratio,
            slab_automove_window: reported.slab_automove_window,
            hot_lru_pct: reported.hot_lru_pct,
            warm_lru_pct: reported.warm_lru_pct,
            hot_max_factor: reported.hot_max_factor,
            warm_max_factor: reported.warm_max_factor,
            lru_segmented: reported.lru_segmented,
            temp_lru: reported.temp_lru,
            temporary_ttl: reported.temporary_ttl,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_refused_past_the_budget_and_given_back() {
        let mut settings = Settings::default();
        settings.buffers.read_bytes_max = 1000;
        let budget = BufferBudget::new(&settings);
        assert!(budget.resize(0, 600));
        assert!(!budget.resize(0, 600));
        assert_eq!(budget.used(), 600);
        assert!(budget.resize(600, 100));
        assert!(budget.resize(0, 600));
        assert_eq!(budget.used(), 700);
    }
}
