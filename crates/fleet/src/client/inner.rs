//! What the clones of a client share: its list of servers, which may change while calls are under way, and its time. No key is
//! looked at here.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::config::{Config, OnDown, Servers, Ticks};
use super::link::Call;
use super::request::{Answer, Request};
use super::routed::Routes;
use super::server::{Ring, Server, Shared};
use super::{Client, Error};

/// How often a client that keeps its own time looks at its deadlines.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) config: Config,
    ring: RwLock<Ring>,
    pub(super) spare: Option<Ring>,
    /// Servers that left the list and still have answers due.
    leaving: Mutex<Vec<Arc<Server>>>,
    /// What stands between a call and its server, if anything does.
    pub(super) routes: Routes,
    /// False where the servers are another client's, and this is its former list of them.
    owns_servers: bool,
}

impl Inner {
    /// Of a client whose connections live on `runtime`, which also keeps its time if nobody else does.
    pub(super) fn new(config: Config, runtime: Handle) -> Arc<Inner> {
        let shared = Arc::new(Shared::new(&config, runtime.clone()));
        let ring = RwLock::new(Ring::new(&shared, &config.servers, &[]));
        let spare = match &config.on_down {
            OnDown::Spare { servers, .. } => Some(Ring::new(&shared, servers, &[])),
            _ => None,
        };
        let ticks = config.ticks;
        let routes = Routes::new(&config, &shared.clock);
        let inner =
            Arc::new(Inner { shared, config, ring, spare, leaving: Mutex::default(), routes, owns_servers: true });
        let _ = inner.shared.client.set(Arc::downgrade(&inner));
        if ticks == Ticks::Own {
            runtime.spawn(keep_time(Arc::downgrade(&inner), inner.shared.clone()));
        }
        inner
    }

    /// Calls `look` with every server, spare ones included.
    pub(super) fn all<T>(&self, look: impl Fn(&Server) -> T) -> Vec<T> {
        let ring = self.ring();
        let spare = self.spare.iter().flat_map(|ring| &ring.servers);
        ring.servers.iter().chain(spare).map(|server| look(server)).collect()
    }

    /// Tells every server, on each of its connections, so that it comes after what was sent to it before.
    pub(super) async fn tell_all(&self, request: &Request<'_>) -> Result<(), Error> {
        let calls = self.all(|server| server.links().iter().map(|link| link.submit(request, None)).collect::<Vec<_>>());
        let mut first = Ok(());
        for call in calls.into_iter().flatten() {
            first = first.and(finish(call).await.map(drop));
        }
        first
    }

    /// Asks every server the same.
    pub(super) async fn ask_all(&self, request: &Request<'_>) -> Vec<(Arc<str>, Result<Answer, Error>)> {
        let calls = self.all(|server| {
            let call = server.links()[0].submit(request, None);
            (server.identity.label.clone(), call)
        });
        let mut answers = Vec::with_capacity(calls.len());
        for (label, call) in calls {
            answers.push((label, finish(call).await));
        }
        answers
    }

    pub(super) fn set_servers(&self, servers: &Servers) {
        let old = self.replace_ring(servers);
        self.retire(old.servers);
        self.end_migration();
    }

    /// Puts a new list in place of the old, which is handed back with its connections as they are.
    pub(super) fn replace_ring(&self, servers: &Servers) -> Ring {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Ring::new(&self.shared, servers, &ring.servers);
        if let OnDown::Eject = self.config.on_down {
            let out = new.out();
            new.eject(out);
        }
        std::mem::replace(&mut *ring, new)
    }

    /// Lets go of those servers that are not in the list.
    pub(super) fn retire(&self, servers: Vec<Arc<Server>>) {
        let ring = self.ring();
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        for server in servers {
            if !ring.servers.iter().any(|other| Arc::ptr_eq(&server, other)) {
                server.drain();
                leaving.push(server);
            }
        }
        drop((leaving, ring));
        self.shared.wake_ticker();
    }

    /// A client of this one's servers by a former list of them, without anything else of this one's.
    pub(super) fn former(&self, ring: Ring) -> Client {
        let config = Config { source: None, shadow: None, ..self.config.clone() };
        let routes = Routes::new(&config, &self.shared.clock);
        let (shared, ring) = (self.shared.clone(), RwLock::new(ring));
        let inner = Inner { shared, config, ring, spare: None, leaving: Mutex::default(), routes, owns_servers: false };
        Client { inner: Arc::new(inner) }
    }

    pub(super) fn ring(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while there is something whose time may come.
    pub(super) fn tick(&self, now: Instant) -> bool {
        let now_us = self.shared.clock.advance(now);
        let ring = self.ring();
        let spare = self.spare.iter().flat_map(|ring| &ring.servers);
        let mut busy = ring.servers.iter().chain(spare).fold(false, |busy, server| server.tick(now_us) | busy);
        let out = if let OnDown::Eject = self.config.on_down { ring.ejects_others() } else { None };
        drop(ring);
        if let Some(out) = out {
            self.ring.write().unwrap_or_else(PoisonError::into_inner).eject(out);
        }
        busy |= self.tick_routes(now_us);
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|server| server.tick_links(now_us));
        busy |= !leaving.is_empty();
        busy
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owns_servers {
            return;
        }
        self.close_former();
        self.all(|server| server.close());
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|server| server.close());
        self.shared.ticker.notify_one();
    }
}

/// The answer of a request that was sent, or the reason why it was not.
pub(super) async fn finish(call: Result<Call, Error>) -> Result<Answer, Error> {
    call?.await
}

/// Ticks while a client has deadlines to keep, and ends with it.
async fn keep_time(client: Weak<Inner>, shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(inner) = client.upgrade() else { return };
        if inner.tick(Instant::now()) {
            continue;
        }
        shared.ticker_parked.store(true, Ordering::SeqCst);
        // A request that came in between has not seen that nobody keeps its time.
        if inner.tick(Instant::now()) {
            shared.ticker_parked.store(false, Ordering::SeqCst);
            continue;
        }
        drop(inner);
        shared.ticker.notified().await;
    }
}
