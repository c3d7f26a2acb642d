//! The control thread: ticks the clock, lets the stores maintain themselves, carries out reloads (`reload`) and ends the
//! server. Connections are accepted on it too (`accept`); no client's bytes are read here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use nuthatch_pages::TICK;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval};

use crate::auth::Access;
use crate::backends::{Backends, Opened};
use crate::crew::Crew;
use crate::doors::Doors;
use crate::http::sites::Logs;
use crate::http::trust::Trusts;
use crate::memory_file;
use crate::pool::{EvictionReporter, Handles, Pool};
use crate::server::{Reloaded, StartError};
use crate::settings::Settings;
use crate::shared::{Live, Shared};
use crate::watch::kind;
use crate::worker;

/// How often backends get to look at their deadlines.
const BACKEND_TICK: Duration = Duration::from_millis(5);

/// What the control thread is asked for.
pub(crate) enum Command {
    /// Run with these settings, whose new tables are open. The answer goes to the sender.
    Reload(Box<Settings>, Vec<Opened>, Sender<Result<Reloaded, StartError>>),
}

/// What the control thread alone owns and changes.
pub(crate) struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) doors: Doors,
    pub(crate) crew: Crew,
    pub(crate) access: Access,
    pub(crate) backends: Backends,
    /// Access logs of HTTP listeners.
    pub(crate) logs: Logs,
    /// What their origins are trusted by.
    pub(crate) trusts: Trusts,
    /// Pools that are in the settings no more, as long as someone uses them.
    pub(crate) leaving: Vec<Arc<Pool>>,
    /// Pools that nobody can use any more, until the workers' handles are gone.
    unused: Vec<Arc<Pool>>,
    handles: Handles,
    /// Whether some pool has a backend, which then wants to be ticked.
    has_backends: bool,
    /// Writes that stores had refused at the last tick.
    refused: u64,
    /// Was it said that a memory file has no room?
    is_full_said: bool,
}

impl Control {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        doors: Doors,
        crew: Crew,
        access: Access,
        backends: Backends,
        logs: Logs,
        trusts: Trusts,
    ) -> Control {
        let mut handles = Handles::default();
        handles.follow(&shared.live());
        let shared = Arc::clone(shared);
        let has_backends = shared.live().tiers.any();
        Control {
            shared,
            doors,
            crew,
            access,
            backends,
            logs,
            trusts,
            leaving: Vec::new(),
            unused: Vec::new(),
            handles,
            has_backends,
            refused: 0,
            is_full_said: false,
        }
    }

    /// Serves until the server is asked to stop, then ends the workers. Runs on the control thread.
    pub(crate) async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        let shared = Arc::clone(&self.shared);
        self.doors.lead(&shared.live().listeners, &shared, &self.crew);
        self.backends.begin_following(&shared.live(), &shared);
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut backend_ticks = interval(BACKEND_TICK);
        backend_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !shared.stop().is_asked() {
            let has_origins = shared.live().listeners.iter().any(|listener| listener.site.is_some());
            tokio::select! {
                biased;
                () = shared.stop().notify.notified() => {}
                _ = ticks.tick(), if has_origins => shared.tick_origins(),
                _ = seconds.tick() => self.tick(),
                _ = backend_ticks.tick(), if self.has_backends => shared.live().tiers.tick_backends(),
                Some(Command::Reload(settings, opened, answer)) = commands.recv() => {
                    self.backends.take(opened);
                    let outcome = self.reload(&settings).await;
                    // Whoever asked may have gone.
                    let _ = answer.send(outcome);
                }
            }
        }
        self.backends.stop();
        // The listening sockets are closed before the workers drain.
        self.doors.close().await;
        stop_crew(&mut self.crew, &shared);
        // A store is closed when nobody has a handle on it any more.
        self.handles = Handles::default();
        self.unused.extend(shared.live().all_pools());
        memory_file::close(&self.unused, shared.clock.now(), &shared.log);
    }

    /// Puts `live` in force, for the workers and everyone else.
    pub(crate) fn put_in_force(&mut self, live: Live) {
        let before = self.shared.live();
        Backends::close_others(&before, &live);
        self.handles.follow(&live);
        self.crew.tell(&live);
        self.has_backends = live.tiers.any();
        let live = Arc::new(live);
        self.shared.replace_live(Arc::clone(&live));
        self.backends.follow(&before, &live, &self.shared);
    }

    /// Once a second: the clock, then the stores' own work, then what nobody uses any more, then connections that have
    /// been silent too long.
    fn tick(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.clock.tick();
        let now = shared.clock.now();
        for handle in self.handles.iter_mut() {
            handle.maintain(now);
        }
        self.let_pools_go();
        self.crew.dismiss_unwanted();
        shared.books.listeners.settle();
        shared.books.pools.settle();
        shared.books.tiers.settle();
        self.backends.tidy(&shared.live(), &shared);

        let live = shared.live();
        let pools = live.all_pools();
        let refused_by_now = pools.iter().map(|pool| pool.store.stats().out_of_memory).sum();
        let is_pressed = refused_by_now > std::mem::replace(&mut self.refused, refused_by_now);
        if !self.is_full_said {
            self.is_full_said = memory_file::say_if_full(&pools, &shared.log);
        }
        worker::sweep(&shared, now, live.settings.idle_timeout_seconds, is_pressed);
        if shared.watchers.wants(kind::EVICTIONS) {
            EvictionReporter::attach(&shared, &pools);
        } else {
            // Nobody watches evictions any more: spare the store the telling.
            pools.iter().for_each(|pool| pool.store.set_events(None));
        }
    }

    /// Gives back the memory of pools that left the settings, once nobody uses them. Two steps, because the workers'
    /// handles can only go when no request can ask for them any more.
    fn let_pools_go(&mut self) {
        let (free, unused) = self.unused.drain(..).partition::<Vec<_>, _>(|pool| Arc::strong_count(&pool.store) == 1);
        self.unused = unused;
        if !free.is_empty() {
            // The kernel takes its time over gigabytes; nobody has to wait for that.
            let shared = Arc::clone(&self.shared);
            let close_and_free = move || memory_file::close(&free, shared.clock.now(), &shared.log);
            let _ = std::thread::Builder::new().name("free".to_owned()).spawn(close_and_free);
        }

        let (unused, leaving) = self.leaving.drain(..).partition::<Vec<_>, _>(|pool| Arc::strong_count(pool) == 1);
        self.leaving = leaving;
        if !unused.is_empty() {
            let mut totals = self.shared.books.stores.lock().unwrap_or_else(PoisonError::into_inner);
            unused.iter().for_each(|pool| totals.take(pool));
            drop(totals);
            self.unused.extend(unused);
            let mut live = Live::clone(&self.shared.live());
            live.leaving = self.leaving.iter().map(Arc::downgrade).collect();
            live.tiers = live.tiers.without(self.unused.iter().map(|pool| pool.number));
            self.put_in_force(live);
        }
    }
}

/// Ends the workers. Who waits for an origin meanwhile still has deadlines.
fn stop_crew(crew: &mut Crew, shared: &Shared) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ticking = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                std::thread::park_timeout(TICK);
                shared.tick_origins();
            }
        });
        crew.stop();
        is_over.store(true, Ordering::Release);
        ticking.thread().unpark();
    });
}
