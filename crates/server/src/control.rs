//! The control thread: accepts connections and hands them to the workers in turn, ticks the clock, lets the stores
//! maintain themselves, and ends the server. No client's bytes are read here.

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nuthatch_proto::WireError;
use nuthatch_store::Handle;
use socket2::{SockRef, Socket};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::log::Level;
use crate::pool::EvictionReporter;
use crate::settings::Address;
use crate::shared::{Listener, Peer, Shared};
use crate::watch::kind;
use crate::worker::{self, Accepted, AcceptedSocket, Message, WorkerHandle};

/// How often a paused accept looks again, when no connection closed meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections accepted from one listener before the others and the clock get their turn.
const ACCEPTED_IN_A_ROW: usize = 64;

/// Serves until the server is asked to stop, then ends the workers. Runs on the control thread.
pub(crate) async fn run(shared: Arc<Shared>, sockets: Vec<(Socket, Arc<Listener>)>, workers: Vec<WorkerHandle>) {
    let inboxes: Arc<[UnboundedSender<Message>]> = workers.iter().map(|worker| worker.inbox.clone()).collect();
    let turn = Arc::new(AtomicUsize::new(0));
    let mut tasks = vec![tokio::spawn(tick(Arc::clone(&shared)))];
    for (socket, listener) in sockets {
        if let Address::Udp(_) = listener.address {
            let inbox = &inboxes[listener.number % inboxes.len()];
            let _ = inbox.send(Message::Datagrams(OwnedFd::from(socket).into(), listener));
            continue;
        }
        match Acceptor::new(socket, &listener.address) {
            Ok(acceptor) => {
                let hand_out = HandOut { inboxes: Arc::clone(&inboxes), turn: Arc::clone(&turn) };
                tasks.push(tokio::spawn(accept(Arc::clone(&shared), listener, acceptor, hand_out)));
            }
            Err(error) => {
                let name = &listener.name;
                shared.log.line(Level::Error, format_args!("cannot serve listener {name}: {error}"));
            }
        }
    }

    while !shared.stop().is_asked() {
        shared.stop().notify.notified().await;
    }
    for task in tasks {
        task.abort();
        // Waiting makes sure that the listening socket is closed before the workers drain.
        let _ = task.await;
    }
    for listener in &shared.listeners {
        if let Address::Unix { path, .. } = &listener.address {
            let _ = std::fs::remove_file(path);
        }
    }
    for worker in &workers {
        let _ = worker.inbox.send(Message::Stop);
    }
    for worker in workers {
        if worker.thread.join().is_err() {
            shared.log.line(Level::Error, format_args!("a worker ended by a panic"));
        }
    }
}

/// Once a second: the clock, then the stores' own work, then connections that have been silent too long.
async fn tick(shared: Arc<Shared>) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let pools = shared.live().pools.clone();
    let mut handles: Vec<Handle> = pools.iter().map(|pool| pool.store.handle()).collect();
    let mut refused = 0;
    loop {
        seconds.tick().await;
        shared.clock.tick();
        let now = shared.clock.now();
        for handle in &mut handles {
            handle.maintain(now);
        }
        let refused_by_now = pools.iter().map(|pool| pool.store.stats().out_of_memory).sum();
        let is_pressed = refused_by_now > std::mem::replace(&mut refused, refused_by_now);
        worker::sweep(&shared, now, shared.live().settings.idle_timeout_seconds, is_pressed);
        if shared.watchers.wants(kind::EVICTIONS) {
            EvictionReporter::attach(&shared, &pools);
        } else {
            // Nobody watches evictions any more: spare the store the telling.
            pools.iter().for_each(|pool| pool.store.set_events(None));
        }
    }
}

/// Gives connections to workers in turn, over all listeners together.
struct HandOut {
    inboxes: Arc<[UnboundedSender<Message>]>,
    turn: Arc<AtomicUsize>,
}

impl HandOut {
    fn give(&self, accepted: Accepted) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // A worker that is gone drops the message, which closes the socket; that happens only while stopping.
        let _ = self.inboxes[turn % self.inboxes.len()].send(Message::Connection(accepted));
    }
}

/// A listening socket on the control thread's runtime.
enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    fn new(socket: Socket, address: &Address) -> io::Result<Acceptor> {
        match address {
            Address::Unix { .. } => UnixListener::from_std(socket.into()).map(Acceptor::Unix),
            _ => TcpListener::from_std(socket.into()).map(Acceptor::Tcp),
        }
    }

    /// The next connection, free of this thread's runtime.
    async fn accept(&self) -> io::Result<(AcceptedSocket, Peer)> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((AcceptedSocket::Tcp(stream.into_std()?), Peer::Internet(address)))
            }
            Acceptor::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((AcceptedSocket::Unix(stream.into_std()?), Peer::Unix))
            }
        }
    }
}

/// Accepts from one listener until aborted.
async fn accept(shared: Arc<Shared>, listener: Arc<Listener>, acceptor: Acceptor, hand_out: HandOut) {
    let mut in_a_row = 0;
    loop {
        let settings = Arc::clone(&shared.live().settings);
        if !settings.connections_max_fast && shared.connections.open() >= settings.connections_max {
            pause(&shared, &listener, "there are as many connections as -c allows").await;
            continue;
        }
        let (socket, peer) = match acceptor.accept().await {
            Ok(accepted) => {
                shared.connections.set_paused(false);
                accepted
            }
            Err(error) if is_out_of_descriptors(&error) => {
                pause(&shared, &listener, &error.to_string()).await;
                continue;
            }
            Err(error) if is_clients_own(&error) => continue,
            Err(error) => {
                let name = &listener.name;
                shared.log.line(Level::Warning, format_args!("accepting on {name}: {error}"));
                sleep(PAUSE).await;
                continue;
            }
        };
        if shared.connections.open() >= settings.connections_max {
            turn_away(&shared, socket);
        } else if let Err(error) = prepare(&socket) {
            shared.log.line(Level::Warning, format_args!("a new connection failed at once: {error}"));
        } else {
            let id = shared.connections.opened();
            hand_out.give(Accepted { id, socket, peer, listener: Arc::clone(&listener) });
        }
        in_a_row += 1;
        if in_a_row % ACCEPTED_IN_A_ROW == 0 {
            yield_now().await;
        }
    }
}

/// Waits until a connection closes, or a moment passes.
async fn pause(shared: &Shared, listener: &Listener, why: &str) {
    let connections = &shared.connections;
    if connections.is_accepting() {
        connections.pauses.fetch_add(1, Ordering::Relaxed);
        connections.set_paused(true);
        shared.log.line(Level::Warning, format_args!("not accepting on {} for now: {why}", listener.name));
    }
    let since = Instant::now();
    let _ = timeout(PAUSE, connections.wait_for_close()).await;
    connections.paused_micros.fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
    // Still paused, until a connection is really accepted: it is one pause however often it looks.
}

/// Tells one client too many so, if it listens, and closes.
fn turn_away(shared: &Shared, socket: AcceptedSocket) {
    shared.connections.reject();
    let answer = WireError::TooManyConnections.as_wire();
    let _ = match socket {
        AcceptedSocket::Tcp(mut stream) => stream.write_all(answer),
        AcceptedSocket::Unix(mut stream) => stream.write_all(answer),
    };
    shared.log.line(Level::Warning, format_args!("turned a connection away: there are as many as -c allows"));
}

/// A keep-alive notices clients that vanished; small answers are not to wait for acknowledgements.
fn prepare(socket: &AcceptedSocket) -> io::Result<()> {
    if let AcceptedSocket::Tcp(stream) = socket {
        stream.set_nodelay(true)?;
        SockRef::from(stream).set_keepalive(true)?;
    }
    Ok(())
}

/// `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`: there is no room for another descriptor now, there may be later.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOMEM: i32 = 12;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOMEM | ENOBUFS))
}

/// The client went away between connecting and being accepted.
fn is_clients_own(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// The descriptor of a listening socket, for `stats conns`.
pub(crate) fn descriptor(socket: &Socket) -> i32 {
    socket.as_raw_fd()
}
