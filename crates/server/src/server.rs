//! Starting, reloading and ending a server. Used by the program and by tests in the same process; everything is opened
//! here before the first thread runs, so that a start that cannot succeed changes nothing.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nuthatch_store::StoreError;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedSender;

use crate::auth::{Credentials, CredentialsError};
use crate::control;
use crate::counters::Counters;
use crate::listen::{self, BindError, Bound};
use crate::log::Level;
use crate::pool::{Pool, Route, Routes};
use crate::settings::{Address, ListenerSettings, Settings};
use crate::shared::{Listener, Live, Shared};
use crate::worker::{self, Message};

/// A server that has not started.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Opens the listeners, makes the pools and starts the threads.
    ///
    /// # Errors
    /// In a sentence, what could not be opened or read and why. Nothing is left open then.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        let live = live(&Arc::new(settings), None)?;
        let settings = Arc::clone(&live.settings);
        let (sockets, left_out) = open_listeners(&settings)?;
        let listeners = sockets.iter().map(|(_, listener)| Arc::clone(listener)).collect();
        let shared = Arc::new(Shared::new(live, listeners));
        for error in left_out {
            shared.log.line(Level::Warning, format_args!("{error}; going on without it"));
        }
        let live = shared.live();
        let mut workers = Vec::with_capacity(settings.workers);
        for number in 0..settings.workers {
            workers.push(worker::start(&shared, &live, number).map_err(StartError::Thread)?);
        }
        let inboxes = workers.iter().map(|worker| worker.inbox.clone()).collect();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let control = {
            let shared = Arc::clone(&shared);
            let run = move || runtime.block_on(control::run(shared, sockets, workers));
            std::thread::Builder::new().name("control".to_owned()).spawn(run).map_err(StartError::Thread)?
        };
        Ok(Running { shared, inboxes, control: Mutex::new(Some(control)) })
    }
}

/// A server that runs. Dropping it ends it.
pub struct Running {
    shared: Arc<Shared>,
    inboxes: Vec<UnboundedSender<Message>>,
    control: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Where it listens, in the order of the settings; ports that the system chose are filled in.
    pub fn addresses(&self) -> Vec<Address> {
        self.shared.listeners.iter().map(|listener| listener.address.clone()).collect()
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.shared.live().settings)
    }

    /// Applies what can be changed while running, without closing a connection, and reads the credential files again.
    /// Returns what was changed and what waits for a restart, as sentences for the operator.
    ///
    /// # Errors
    /// When a credentials file is bad or a pool cannot have the memory it is given; what was in force stays in force.
    pub fn reload(&self, settings: &Settings) -> Result<Reloaded, StartError> {
        let old = self.shared.live();
        let reload = old.settings.diff(settings);
        let new = Arc::new(live(&Arc::new(reload.settings), Some(&old.pools))?);
        for (pool, wanted) in new.pools.iter().zip(&new.settings.pools) {
            let bytes = usize::try_from(wanted.memory_bytes).unwrap_or(usize::MAX);
            if pool.store.memory_limit() != bytes {
                pool.store.set_memory_limit(bytes).map_err(|error| StartError::Pool(pool.name.clone(), error))?;
            }
        }
        if new.settings.verbosity != old.settings.verbosity {
            self.shared.log.set_level(u32::from(new.settings.verbosity));
        }
        self.shared.buffers.set_limit(&new.settings);
        self.shared.replace_live(Arc::clone(&new));
        for inbox in &self.inboxes {
            // A worker that is gone needs no settings.
            let _ = inbox.send(Message::Reload(Arc::clone(&new)));
        }
        Ok(Reloaded { changed: reload.changed, waiting: reload.waiting })
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
}

/// Why a server cannot start, or cannot take new settings.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Listener(BindError),
    /// A file of users and passwords cannot be used.
    Credentials(CredentialsError),
    /// The pool of this name cannot be made or resized.
    Pool(String, StoreError),
    /// The system does not give a thread or what it needs.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listener(error) => error.fmt(f),
            StartError::Credentials(error) => error.fmt(f),
            StartError::Pool(name, error) => write!(f, "pool {name}: {error}"),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Listener(error) => Some(error),
            StartError::Credentials(error) => Some(error),
            StartError::Pool(_, error) => Some(error),
            StartError::Thread(error) => Some(error),
        }
    }
}

/// What `settings` put in force, with `pools` if there are some already.
fn live(settings: &Arc<Settings>, pools: Option<&[Arc<Pool>]>) -> Result<Live, StartError> {
    let credentials = |path: Option<&Path>| {
        let read = path.map(Credentials::read).transpose();
        read.map(|credentials| credentials.map(Arc::new)).map_err(StartError::Credentials)
    };
    let pools = match pools {
        Some(pools) => pools.to_vec(),
        None => new_pools(settings)?,
    };
    let route = |route: &crate::settings::RouteSettings| Route { prefix: route.prefix.clone(), pool: route.pool };
    Ok(Live {
        settings: Arc::clone(settings),
        pools,
        routes: Routes::new(settings.routes.iter().map(route).collect()),
        text_credentials: credentials(settings.auth_file.as_deref())?,
        sasl_credentials: credentials(settings.sasl_file.as_deref())?,
    })
}

fn new_pools(settings: &Settings) -> Result<Vec<Arc<Pool>>, StartError> {
    // The standard library's hasher is seeded by the system's randomness: nobody outside knows which keys collide.
    let seed = settings.hash_seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let make = |pool: &crate::settings::PoolSettings| {
        let made = Pool::new(pool, settings.workers, seed);
        made.map(Arc::new).map_err(|error| StartError::Pool(pool.name.clone(), error))
    };
    settings.pools.iter().map(make).collect()
}

/// Sockets with their listeners.
type Open = Vec<(socket2::Socket, Arc<Listener>)>;

/// Opens every listener, and says which that nobody asked for by itself could not be opened.
fn open_listeners(settings: &Settings) -> Result<(Open, Vec<BindError>), StartError> {
    let mut open = Open::new();
    let mut left_out = Vec::new();
    let mut shared_port = None;
    for wanted in &settings.listeners {
        let backlog = i32::try_from(settings.backlog).unwrap_or(i32::MAX);
        match listen::bind(&with_port(&wanted.address, shared_port), backlog) {
            Ok(bound) => {
                shared_port = shared_port.or(port_chosen(&wanted.address, &bound));
                open.push(listener(open.len(), wanted, bound, settings.workers));
            }
            Err(error) if wanted.required => return Err(StartError::Listener(error)),
            Err(error) => left_out.push(error),
        }
    }
    Ok((open, left_out))
}

/// A second address of a free port is listened on at the port that the first was given, so that `localhost` is one
/// server whichever address it turns out to be.
fn with_port(address: &Address, port: Option<u16>) -> Address {
    match (address, port) {
        (Address::Tcp(tcp), Some(port)) if tcp.port() == 0 && tcp.is_ipv6() && tcp.ip().is_loopback() => {
            Address::Tcp((tcp.ip(), port).into())
        }
        _ => address.clone(),
    }
}

fn port_chosen(wanted: &Address, bound: &Bound) -> Option<u16> {
    match (wanted, &bound.address) {
        (Address::Tcp(wanted), Address::Tcp(real)) if wanted.port() == 0 => Some(real.port()),
        _ => None,
    }
}

fn listener(
    number: usize,
    wanted: &ListenerSettings,
    bound: Bound,
    workers: usize,
) -> (socket2::Socket, Arc<Listener>) {
    let Bound { socket, address } = bound;
    let listener = Listener {
        number,
        name: wanted.tag.clone().unwrap_or_else(|| address.to_string()),
        fd: control::descriptor(&socket),
        address,
        protocol: wanted.protocol,
        pool: wanted.pool,
        counters: Counters::new(workers),
    };
    (socket, Arc::new(listener))
}
