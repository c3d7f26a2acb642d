//! Doors: the addresses that are open, each a listening socket and what serves it. Opened before the first thread runs,
//! then owned by the control thread, which rearranges them at a reload. Nothing is accepted here.
//!
//! A door stays open as long as its address is in the settings, whatever else of its listener changes: connections that
//! come later are given the new [`Listener`], and none is refused in between.

use std::sync::Arc;
use std::time::Duration;

use nuthatch_pages::Ticks;
use nuthatch_pages::door::Site;
use socket2::Socket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::accept::{Acceptor, accept};
use crate::auth::Access;
use crate::counters::{Counters, ListenerCounter};
use crate::crew::Crew;
use crate::http::sites::{Logs, Served};
use crate::http::trust::Trusts;
use crate::listen::{self, BindError, Bound, SocketFile, descriptor};
use crate::log::Level;
use crate::pool::Pool;
use crate::settings::{Address, ListenerSettings, Settings, TlsSettings};
use crate::shared::{Books, Listener, Shared};
use crate::tls::{ListenerTls, TlsError};

/// How long the closing of a UDP socket waits for the answers to what has arrived.
const DATAGRAM_PATIENCE: Duration = Duration::from_secs(5);

/// All open addresses, in the order of the settings.
#[derive(Default)]
pub(crate) struct Doors {
    doors: Vec<Door>,
    backlog: u32,
    ticks: Arc<Ticks>,
}

/// One open address.
struct Door {
    /// As it is in the settings; a port of 0 is 0 here.
    wanted: ListenerSettings,
    /// Where it really is.
    address: Address,
    socket: Socket,
    file: Option<SocketFile>,
    /// What clients who come in are served with; made of `wanted`'s settings.
    tls: Option<Arc<ListenerTls>>,
    counters: Arc<Counters<ListenerCounter>>,
    /// What an HTTP or HTCP listener serves, once it is known.
    site: Option<Served>,
    /// Asks the site's servers how they are.
    probes: Option<(Arc<Site>, Probes)>,
    served: Serving,
}

/// A task that ends when it is not wanted any more.
struct Probes(JoinHandle<()>);

impl Drop for Probes {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What serves a door. Dropping the sender ends it, after what has arrived is served.
enum Serving {
    Not,
    /// A task of the control thread accepts.
    Accepting(watch::Sender<Arc<Listener>>, JoinHandle<()>),
    /// A worker answers datagrams, until its sender is true or gone. The last one serves; the others are about to end.
    Datagrams(Vec<watch::Sender<bool>>),
}

/// What became of a rearrangement, in phrases.
#[derive(Default)]
pub(crate) struct Rearranged {
    pub(crate) changed: Vec<String>,
    /// What was asked for and could not be done.
    pub(crate) failed: Vec<String>,
    /// Addresses nobody asked for by itself that could not be opened.
    pub(crate) left_out: Vec<BindError>,
}

impl Doors {
    /// Opens every address of `settings`, or none; `tls` is for each of them, in their order. Says which that nobody
    /// asked for by itself could not be opened.
    pub(crate) fn open(
        settings: &Settings,
        tls: Vec<Option<Arc<ListenerTls>>>,
        books: &Books,
        ticks: &Arc<Ticks>,
    ) -> Result<(Doors, Vec<BindError>), BindError> {
        let mut doors = Doors { doors: Vec::new(), backlog: settings.backlog, ticks: Arc::clone(ticks) };
        let mut left_out = Vec::new();
        for (wanted, tls) in settings.listeners.iter().zip(tls) {
            match Door::open(wanted, tls, doors.doors.iter(), settings.backlog, books) {
                Ok(door) => doors.doors.push(door),
                Err(error) if wanted.required => return Err(error),
                Err(error) => left_out.push(error),
            }
        }
        Ok((doors, left_out))
    }

    /// Opens the addresses of `settings` that are not open and closes those that are not in it. One that cannot be
    /// opened leaves the others as they are, and so does one whose certificates cannot be used: `tls` is for each, in
    /// their order. Who comes in gets what [`Doors::lead`] says. `older` are the settings so far.
    pub(crate) async fn rearrange(
        &mut self,
        older: &Settings,
        settings: &Settings,
        tls: Vec<Result<Option<Arc<ListenerTls>>, TlsError>>,
        books: &Books,
    ) -> Rearranged {
        let mut outcome = Rearranged::default();
        let mut before = std::mem::take(&mut self.doors);
        let mut now: Vec<Option<Door>> = settings.listeners.iter().map(|wanted| take(&mut before, wanted)).collect();
        for ((door, wanted), tls) in now.iter_mut().zip(&settings.listeners).zip(&tls) {
            if let Some(door) = door {
                let (from, to) = (&older.pools[door.wanted.pool].name, &settings.pools[wanted.pool].name);
                if from != to {
                    let address = &door.address;
                    outcome.changed.push(format!("listener {address}: pool {from} to {to} for new connections"));
                }
                door.change(wanted, (settings.backlog != self.backlog).then_some(settings.backlog), &mut outcome);
                door.change_tls(wanted, tls, &mut outcome);
            } else if let Err(error) = tls {
                outcome.failed.push(format!("listener {}: not opened: {error}", wanted.address));
            }
        }
        self.backlog = settings.backlog;
        // What is new is opened before anything is closed; only what is in the way of it makes it wait.
        let mut errors: Vec<Option<BindError>> = settings.listeners.iter().map(|_| None).collect();
        for is_second_try in [false, true] {
            for index in 0..now.len() {
                let (None, Ok(tls)) = (&now[index], &tls[index]) else { continue };
                let wanted = &settings.listeners[index];
                match Door::open(wanted, tls.clone(), now.iter().flatten(), settings.backlog, books) {
                    Ok(door) => {
                        outcome.changed.push(format!("listener {}: opened", door.address));
                        now[index] = Some(door);
                    }
                    Err(error) => errors[index] = Some(error),
                }
            }
            if !is_second_try {
                if before.is_empty() {
                    break;
                }
                let phrase = |door: &Door| format!("listener {}: closed, its connections live on", door.address);
                outcome.changed.extend(before.iter().map(phrase));
                close(std::mem::take(&mut before)).await;
            }
        }
        for ((door, wanted), error) in now.iter().zip(&settings.listeners).zip(errors) {
            match error {
                Some(error) if door.is_none() && wanted.required => outcome.failed.push(error.to_string()),
                Some(error) if door.is_none() => outcome.left_out.push(error),
                _ => {}
            }
        }
        self.doors = now.into_iter().flatten().collect();
        outcome
    }

    /// What clients get who come in from now on. `pools` are in the order of the settings.
    pub(crate) fn listeners(
        &mut self,
        pools: &[Arc<Pool>],
        access: &Access,
        logs: &Logs,
        trusts: &Trusts,
    ) -> Vec<Arc<Listener>> {
        let ticks = &self.ticks;
        let listener = |door: &mut Door| {
            let own_pool = &pools[door.wanted.pool];
            let before = door.site.take();
            door.site = door.wanted.http.as_ref().and_then(|http| {
                let trust = trusts.of(&http.origin.tls)?;
                Some(Served::new(http, own_pool, ticks, logs, trust, before))
            });
            Arc::new(Listener {
                name: door.wanted.tag.clone().unwrap_or_else(|| door.address.to_string()),
                address: door.address.clone(),
                protocol: door.wanted.protocol,
                access: access.clone(),
                pool: own_pool.number,
                own_pool: Arc::clone(own_pool),
                site: door.site.as_ref().map(|served| Arc::clone(&served.site)),
                tls: door.tls.clone(),
                counters: Arc::clone(&door.counters),
                fd: descriptor(&door.socket),
            })
        };
        self.doors.iter_mut().map(listener).collect()
    }

    /// Has every door lead to its listener of `listeners`, which [`Doors::listeners`] made. The workers know the pools
    /// already.
    pub(crate) fn lead(&mut self, listeners: &[Arc<Listener>], shared: &Arc<Shared>, crew: &Crew) {
        for (turn, (door, listener)) in self.doors.iter_mut().zip(listeners).enumerate() {
            if let Err(error) = door.lead(listener, turn, shared, crew) {
                let name = &listener.name;
                shared.log.line(Level::Error, format_args!("cannot serve listener {name}: {error}"));
            }
        }
    }

    /// Closes everything.
    pub(crate) async fn close(self) {
        close(self.doors).await;
    }
}

/// Takes the door of `wanted`'s address out of `doors`, if clients can still find it there. A port that the system chose
/// may be named meanwhile.
fn take(doors: &mut Vec<Door>, wanted: &ListenerSettings) -> Option<Door> {
    let is_at = |door: &Door, address: &Address| match (address, &wanted.address) {
        (Address::Unix { path, .. }, Address::Unix { path: other, .. }) => {
            path == other && door.file.as_ref().is_some_and(SocketFile::is_there)
        }
        (address, other) => address == other,
    };
    let index = doors.iter().position(|door| is_at(door, &door.wanted.address));
    let index = index.or_else(|| doors.iter().position(|door| is_at(door, &door.address)))?;
    Some(doors.remove(index))
}

impl Door {
    fn open<'d>(
        wanted: &ListenerSettings,
        tls: Option<Arc<ListenerTls>>,
        others: impl Iterator<Item = &'d Door>,
        backlog: u32,
        books: &Books,
    ) -> Result<Door, BindError> {
        let mut others = others;
        let shared_port = others.find_map(|door| port_chosen(&door.wanted.address, &door.address));
        let Bound { socket, address, file } = listen::bind(&with_port(&wanted.address, shared_port), as_int(backlog))?;
        Ok(Door {
            wanted: wanted.clone(),
            address,
            socket,
            file,
            tls,
            counters: books.listeners.open(),
            site: None,
            probes: None,
            served: Serving::Not,
        })
    }

    /// Takes over what `wanted` says differently, but for [`Door::change_tls`]. The listener itself follows with
    /// [`Door::lead`].
    fn change(&mut self, wanted: &ListenerSettings, backlog: Option<u32>, outcome: &mut Rearranged) {
        let address = self.address.clone();
        if let Some(backlog) = backlog
            && !matches!(address, Address::Udp(_))
            && let Err(error) = self.socket.listen(as_int(backlog))
        {
            outcome.failed.push(format!("listener {address}: backlog {backlog}: {error}"));
        }
        if let (Address::Unix { mode, .. }, Address::Unix { mode: from, .. }) = (&wanted.address, &self.address)
            && mode != from
            && let Some(file) = &self.file
        {
            match file.set_mode(*mode) {
                Ok(()) => {
                    outcome.changed.push(format!("listener {address}: mode {from:04o} to {mode:04o}"));
                    self.address = wanted.address.clone();
                }
                Err(error) => outcome.failed.push(format!("listener {address}: mode {mode:04o}: {error}")),
            }
        }
        let (from, to) = (self.wanted.protocol, wanted.protocol);
        if from != to {
            let (from, to) = (from.word(), to.word());
            outcome.changed.push(format!("listener {address}: protocol {from} to {to} for new connections"));
        }
        if self.wanted.http != wanted.http {
            outcome.changed.push(format!("listener {address}: pages and origin for new connections"));
        }
        if self.wanted.tag != wanted.tag {
            let shown = |tag: &Option<String>| tag.clone().unwrap_or_else(|| "none".to_owned());
            let (from, to) = (shown(&self.wanted.tag), shown(&wanted.tag));
            outcome.changed.push(format!("listener {address}: tag {from} to {to}"));
        }
        let tls = self.wanted.tls.take();
        self.wanted = ListenerSettings { tls, ..wanted.clone() };
    }

    /// Serves with what was `read` for `wanted`, or as before.
    fn change_tls(
        &mut self,
        wanted: &ListenerSettings,
        read: &Result<Option<Arc<ListenerTls>>, TlsError>,
        outcome: &mut Rearranged,
    ) {
        let address = &self.address;
        match read {
            Ok(tls) => {
                if self.wanted.tls != wanted.tls {
                    let shown =
                        |tls: &Option<TlsSettings>| tls.as_ref().map_or("plain".to_owned(), ToString::to_string);
                    let (from, to) = (shown(&self.wanted.tls), shown(&wanted.tls));
                    let change = if from == to { "other files or rules".to_owned() } else { format!("{from} to {to}") };
                    outcome.changed.push(format!("listener {address}: tls: {change} for new connections"));
                }
                self.wanted.tls.clone_from(&wanted.tls);
                self.tls.clone_from(tls);
            }
            Err(error) => {
                let is = if self.tls.is_some() { "TLS stays as it was" } else { "stays plain" };
                outcome.failed.push(format!("listener {address}: {is}: {error}"));
            }
        }
    }

    fn lead(
        &mut self,
        listener: &Arc<Listener>,
        turn: usize,
        shared: &Arc<Shared>,
        crew: &Crew,
    ) -> std::io::Result<()> {
        if let Some(site) = &listener.site
            && !self.probes.as_ref().is_some_and(|(probed, _)| Arc::ptr_eq(probed, site))
        {
            // One that is gone is not probed any more.
            self.probes = None;
            let (origins, shared) = (Arc::clone(site.origins()), Arc::clone(shared));
            let probe = tokio::spawn(origins.probe(move |line| shared.log.line(Level::Warning, line)));
            self.probes = Some((Arc::clone(site), Probes(probe)));
        }
        match &mut self.served {
            Serving::Accepting(leads_to, _) => {
                leads_to.send_replace(Arc::clone(listener));
            }
            Serving::Datagrams(all) => {
                let next = crew.serve_datagrams(turn, self.socket.try_clone()?.into(), Arc::clone(listener));
                // Who served it so far answers what has arrived and ends; a busy worker may take a while.
                all.retain(|until| !until.is_closed());
                all.iter().for_each(|until| {
                    until.send_replace(true);
                });
                all.push(next);
            }
            Serving::Not => {
                let socket = self.socket.try_clone()?;
                self.served = if let Address::Udp(_) = self.address {
                    Serving::Datagrams(vec![crew.serve_datagrams(turn, socket.into(), Arc::clone(listener))])
                } else {
                    let (leads_to, receiver) = watch::channel(Arc::clone(listener));
                    let acceptor = Acceptor::new(socket, &self.address)?;
                    let task = accept(Arc::clone(shared), acceptor, receiver, Arc::clone(crew.hand_out()));
                    Serving::Accepting(leads_to, tokio::spawn(task))
                };
            }
        }
        Ok(())
    }
}

/// Closes addresses once everyone who has come in is with a worker.
async fn close(doors: Vec<Door>) {
    let end = |door: Door| {
        let Door { socket, file, served, .. } = door;
        // First of all: nobody finds the way to a UNIX socket any more.
        drop(file);
        match served {
            Serving::Accepting(leads_to, task) => {
                drop(leads_to);
                (socket, Some(task), Vec::new())
            }
            Serving::Datagrams(all) => {
                all.iter().for_each(|until| {
                    until.send_replace(true);
                });
                (socket, None, all)
            }
            Serving::Not => (socket, None, Vec::new()),
        }
    };
    // All are told before any is waited for.
    for (socket, task, datagrams) in doors.into_iter().map(end).collect::<Vec<_>>() {
        if let Some(task) = task {
            // It ends of itself; a panic in it has been told by then.
            let _ = task.await;
        }
        for until in datagrams {
            // A worker that is busy for longer than this answers later, and the port is free later.
            let _ = timeout(DATAGRAM_PATIENCE, until.closed()).await;
        }
        drop(socket);
    }
}

/// `listen` takes an `int`.
fn as_int(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
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

fn port_chosen(wanted: &Address, real: &Address) -> Option<u16> {
    match (wanted, real) {
        (Address::Tcp(wanted), Address::Tcp(real)) if wanted.port() == 0 => Some(real.port()),
        _ => None,
    }
}
