//! Accepting: from one listening socket each, connections on their way to the workers. Runs on the control thread; no
//! client's bytes are read here.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nuthatch_proto::WireError;
use socket2::{SockRef, Socket};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::crew::HandOut;
use crate::log::Level;
use crate::settings::{Address, Protocol};
use crate::shared::{Listener, Peer, Shared};
use crate::worker::{Accepted, AcceptedSocket};

/// How often a paused accept looks again, when no connection closed meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections accepted from one listener before the others and the clock get their turn.
const ACCEPTED_IN_A_ROW: usize = 64;

/// A listening socket on the control thread's runtime.
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The same without a runtime.
enum Bare {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Acceptor {
    pub(crate) fn new(socket: Socket, address: &Address) -> io::Result<Acceptor> {
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

    fn into_bare(self) -> io::Result<Bare> {
        match self {
            Acceptor::Tcp(listener) => listener.into_std().map(Bare::Tcp),
            Acceptor::Unix(listener) => listener.into_std().map(Bare::Unix),
        }
    }
}

impl Bare {
    /// The next connection that waits; `WouldBlock` when there is none.
    fn accept(&self) -> io::Result<(AcceptedSocket, Peer)> {
        match self {
            Bare::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((AcceptedSocket::Tcp(stream), Peer::Internet(address)))
            }
            Bare::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((AcceptedSocket::Unix(stream), Peer::Unix))
            }
        }
    }
}

/// Accepts until the sender of `leads_to` goes, and then what has connected by that time. Each connection is served by
/// what `leads_to` is at that moment.
pub(crate) async fn accept(
    shared: Arc<Shared>,
    acceptor: Acceptor,
    mut leads_to: watch::Receiver<Arc<Listener>>,
    hand_out: Arc<HandOut>,
) {
    let mut in_a_row = 0;
    while leads_to.has_changed().is_ok() {
        let settings = Arc::clone(&shared.live().settings);
        if !settings.connections_max_fast && shared.connections.open() >= settings.connections_max {
            pause(&shared, &leads_to, "there are as many connections as -c allows").await;
            continue;
        }
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            _ = leads_to.changed() => continue,
        };
        match accepted {
            Ok((socket, peer)) => {
                shared.connections.set_paused(false);
                hand_over(&shared, &hand_out, socket, peer, &leads_to);
            }
            Err(error) if is_out_of_descriptors(&error) => {
                pause(&shared, &leads_to, &error.to_string()).await;
                continue;
            }
            Err(error) if is_clients_own(&error) => continue,
            Err(error) => {
                let name = leads_to.borrow().name.clone();
                shared.log.line(Level::Warning, format_args!("accepting on {name}: {error}"));
                sleep(PAUSE).await;
                continue;
            }
        }
        in_a_row += 1;
        if in_a_row % ACCEPTED_IN_A_ROW == 0 {
            yield_now().await;
        }
    }
    // The kernel has accepted these already; closing the socket would reset them. Its queue is no longer than this, and
    // whoever comes while it is emptied comes too late.
    let queued_max = shared.live().settings.backlog.saturating_add(1);
    let Ok(bare) = acceptor.into_bare() else { return };
    for _ in 0..queued_max {
        match bare.accept() {
            Ok((socket, peer)) => hand_over(&shared, &hand_out, socket, peer, &leads_to),
            Err(error) if is_clients_own(&error) => {}
            Err(_) => return,
        }
    }
}

/// Gives a connection to a worker, or turns it away.
fn hand_over(
    shared: &Shared,
    hand_out: &HandOut,
    socket: AcceptedSocket,
    peer: Peer,
    leads_to: &watch::Receiver<Arc<Listener>>,
) {
    if shared.connections.open() >= shared.live().settings.connections_max {
        turn_away(shared, socket, leads_to.borrow().protocol);
    } else if let Err(error) = prepare(&socket) {
        shared.log.line(Level::Warning, format_args!("a new connection failed at once: {error}"));
    } else {
        let id = shared.connections.opened();
        hand_out.give(Accepted { id, socket, peer, listener: Arc::clone(&leads_to.borrow()) });
    }
}

/// Waits until a connection closes, or a moment passes.
async fn pause(shared: &Shared, leads_to: &watch::Receiver<Arc<Listener>>, why: &str) {
    let connections = &shared.connections;
    if connections.is_accepting() {
        connections.pauses.fetch_add(1, Ordering::Relaxed);
        connections.set_paused(true);
        let name = leads_to.borrow().name.clone();
        shared.log.line(Level::Warning, format_args!("not accepting on {name} for now: {why}"));
    }
    let since = Instant::now();
    let _ = timeout(PAUSE, connections.wait_for_close()).await;
    connections.paused_micros.fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
    // Still paused, until a connection is really accepted: it is one pause however often it looks.
}

/// What a client of HTTP too many is told.
const TOO_MANY_HTTP: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// Tells one client too many so, if it listens, and closes.
fn turn_away(shared: &Shared, socket: AcceptedSocket, protocol: Protocol) {
    shared.connections.reject();
    let answer = match protocol {
        Protocol::Http => TOO_MANY_HTTP,
        _ => WireError::TooManyConnections.as_wire(),
    };
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
