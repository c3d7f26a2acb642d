//! Starting, reloading and ending a server. Used by the program and by tests in the same process; everything is opened
//! here before the first thread runs, so that a start that cannot succeed changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nuthatch_pages::Ticks;
use nuthatch_store::StoreError;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::auth::{Access, CredentialsError};
use crate::backend::Backend;
use crate::backends::{Backends, open_tables};
use crate::clock::Clock;
use crate::control::{Command, Control};
use crate::crew::Crew;
use crate::doors::Doors;
use crate::http::sites::{AccessLogError, Logs};
use crate::http::trust::Trusts;
use crate::listen::BindError;
use crate::log::{Level, Log};
use crate::memory_file::MemoryFileError;
use crate::reload;
use crate::settings::{Address, Settings, WORKERS_MAX};
use crate::shared::{Books, Live, Shared};
use crate::tier::Tiers;
use crate::tls::{self, ListenerTls, TlsError};

/// A server that has not started.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Opens the listeners, makes the pools and starts the threads.
    ///
    /// # Errors
    /// In a sentence, what could not be opened or read and why. Nothing is left open then.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        Server::prepare(settings)?.start()
    }

    /// Reads certificates and their keys, which may be root's alone, so that the process can become another user before
    /// the server starts.
    ///
    /// # Errors
    /// In a sentence, which file cannot be used and why.
    pub fn prepare(settings: Settings) -> Result<Prepared, StartError> {
        let tls = tls::of_listeners(&settings.listeners, &[]).into_iter().collect::<Result<_, _>>();
        let tls = tls.map_err(StartError::Tls)?;
        let (trusts, _) = Trusts::read(&settings, &Trusts::default()).map_err(StartError::Tls)?;
        Ok(Prepared { settings, tls, trusts, backends: BTreeMap::new() })
    }
}

/// A server whose certificates are read.
pub struct Prepared {
    settings: Settings,
    /// For each listener, in their order.
    tls: Vec<Option<Arc<ListenerTls>>>,
    /// For their origins.
    trusts: Trusts,
    backends: BTreeMap<String, Arc<dyn Backend>>,
}

impl Prepared {
    /// Has pools whose settings name `name` as their backend ask `backend`.
    #[must_use]
    pub fn with_backend(mut self, name: &str, backend: Arc<dyn Backend>) -> Prepared {
        self.backends.insert(name.to_owned(), backend);
        self
    }

    /// Does the rest of [`Server::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(self) -> Result<Running, StartError> {
        let Prepared { settings, tls, trusts, backends } = self;
        let settings = Settings { workers: settings.workers.clamp(1, WORKERS_MAX), ..settings };
        let books = Arc::<Books>::default();
        let access = Access::read(&settings).map_err(StartError::Credentials)?;
        let (clock, log) = (Clock::new(), Log::new(settings.verbosity));
        let ticks = Arc::<Ticks>::default();
        let logs = Logs::open(&settings, &Logs::default()).map_err(StartError::AccessLog)?;
        // The listeners first, as a start that fails for another reason is not to read memory files.
        let (mut doors, left_out) = Doors::open(&settings, tls, &books, &ticks).map_err(StartError::Listener)?;
        let pools = reload::pools_of(&settings, &[], &[], &books, &clock, &log)?;
        let mut backends = Backends::new(backends);
        backends.take(open_tables(&settings, None)?);
        let tiers = backends.tiers_of(&settings, &pools, &[], &Tiers::default(), &books)?;
        let live = Live {
            tiers,
            routes: reload::routes_of(&settings, &pools),
            listeners: doors.listeners(&pools, &access, &logs, &trusts),
            leaving: Vec::new(),
            pools,
            settings: Arc::new(settings),
        };
        let shared = Arc::new(Shared::new(live.clone(), books, ticks, clock, log));
        for error in left_out {
            shared.log.line(Level::Warning, format_args!("{error}; going on without it"));
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let crew = Crew::start(&shared, &live, live.settings.workers).map_err(StartError::Thread)?;
        let (commands, asked) = unbounded_channel();
        let control = Control::new(&shared, doors, crew, access, backends, logs, trusts);
        let run = move || runtime.block_on(control.run(asked));
        let control = std::thread::Builder::new().name("control".to_owned()).spawn(run).map_err(StartError::Thread)?;
        Ok(Running { shared, commands, control: Mutex::new(Some(control)) })
    }
}

/// A server that runs. Dropping it ends it.
pub struct Running {
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    control: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Where it listens, in the order of the settings; ports that the system chose are filled in.
    pub fn addresses(&self) -> Vec<Address> {
        self.shared.live().listeners.iter().map(|listener| listener.address.clone()).collect()
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.shared.live().settings)
    }

    /// Applies everything that can change while running, and reads the files of users and of certificates again. No
    /// connection is closed and no request disturbed: what has begun ends with the settings it began with, and open
    /// connections keep what their listener was when they connected. Returns when new connections are served by the new
    /// settings; open ones follow between two requests. Certificates that cannot be used are those of their listeners and
    /// origins alone, which stay as they were. What came of it are phrases for the operator.
    ///
    /// # Errors
    /// When a file of users is bad, a new pool cannot be made or a mapping does not fit its table: then nothing changes. Likewise when the server has
    /// ended.
    pub fn reload(&self, settings: &Settings) -> Result<Reloaded, StartError> {
        let (answer, answered) = channel();
        let opened = open_tables(settings, Some(&self.settings()))?;
        let command = Command::Reload(Box::new(settings.clone()), opened, answer);
        self.commands.send(command).map_err(|_| StartError::Ended)?;
        answered.recv().map_err(|_| StartError::Ended)?
    }

    /// Asks the server to end: answers in flight are finished, then everything closes. [`Running::wait`] waits for it.
    pub fn stop(&self) {
        self.shared.stop().ask();
    }

    /// Waits until the server has ended, by [`Running::stop`] or a client's `shutdown`.
    pub fn wait(&self) {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(control) = control {
            let _ = control.join();
        }
    }

    /// Whether the server has ended.
    pub fn is_finished(&self) -> bool {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        self.wait();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// What a reload came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// What is different now.
    pub changed: Vec<String>,
    /// What will be different after a restart.
    pub waiting: Vec<String>,
    /// What was tried and could not be done, such as listening on an address that is taken or reading a certificate. A
    /// later reload tries again.
    pub failed: Vec<String>,
}

/// Why a server cannot start, or cannot take new settings.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Listener(BindError),
    /// A file of users and passwords cannot be used.
    Credentials(CredentialsError),
    /// A file of certificates or keys cannot be used.
    Tls(TlsError),
    /// An access log cannot be written.
    AccessLog(AccessLogError),
    /// The pool of this name cannot be made or resized.
    Pool(String, StoreError),
    /// The pool of this name has a memory file that cannot be used.
    MemoryFile(String, MemoryFileError),
    /// The pool of this name has a backend, called that, which there is not.
    Backend(String, String),
    /// The fleet of this name cannot stand behind a pool; what of it, and why.
    Fleet(String, String),
    /// The table of this name cannot be used, and why.
    Table(String, String),
    /// The system does not give a thread or what it needs.
    Thread(io::Error),
    /// The server has ended.
    Ended,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listener(error) => error.fmt(f),
            StartError::Credentials(error) => error.fmt(f),
            StartError::Tls(error) => error.fmt(f),
            StartError::AccessLog(error) => error.fmt(f),
            StartError::Pool(name, error) => write!(f, "pool {name}: {error}"),
            StartError::MemoryFile(name, error) => write!(f, "pool {name}: {error}"),
            StartError::Backend(pool, name) => {
                write!(f, "pool {pool}: expected its backend to be there, there is none called {name}")
            }
            StartError::Fleet(name, why) => write!(f, "fleet.{name}.{why}"),
            StartError::Table(name, why) => write!(f, "table.{name}: {why}"),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            StartError::Ended => f.write_str("the server has ended"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Listener(error) => Some(error),
            StartError::Credentials(error) => Some(error),
            StartError::Tls(error) => Some(error),
            StartError::AccessLog(error) => Some(error),
            StartError::Pool(_, error) => Some(error),
            StartError::MemoryFile(_, error) => Some(error),
            StartError::Thread(error) => Some(error),
            StartError::Backend(..) | StartError::Fleet(..) | StartError::Table(..) | StartError::Ended => None,
        }
    }
}
