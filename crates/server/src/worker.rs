//! A worker: one thread, one tokio `current_thread` runtime, its share of the connections.
//!
//! What a worker's connections share - store handles, the read buffer, the write buffer - lies in a thread-local,
//! because tasks must be `Send` although they never leave their thread. It is borrowed within one poll of one
//! connection and never across a wait. Nothing in here blocks before the server stops, and nothing keeps a timer.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nuthatch_store::Seconds;
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::conn::{Connection, Output, Stream, TlsStream};
use crate::http;
use crate::log::Level;
use crate::pool::Handles;
use crate::shared::{Activity, ConnectionInfo, Kick, Listener, Live, Peer, Shared};
use crate::udp;

/// Bytes one read may bring. Large enough that a pipelining client is drained in one system call, small enough that a
/// worker's buffers stay in the second-level cache.
pub(crate) const INPUT_BYTES: usize = 256 * 1024;

/// Room for answers before the write buffer has to grow.
const OUTPUT_BYTES: usize = 64 * 1024;

/// How long a client may take for its TLS handshake before its connection is closed.
const HANDSHAKE_SECONDS_MAX: u32 = 10;

/// How long a client may take nothing of what waits for it before its connection is closed.
const STALL_SECONDS_MAX: u32 = 30;

/// How long a client may send nothing of a value that memory is reserved for before its connection is closed.
const VALUE_SECONDS_MAX: u32 = 60;

/// The same for those that keep memory of a store, while that store refuses writes for want of memory.
const PRESSED_SECONDS_MAX: u32 = 2;

/// How long a client of HTTP may take for the head of a request, and how long it may ask for nothing between two.
const HEAD_SECONDS_MAX: u32 = 10;
const KEEP_ALIVE_SECONDS_MAX: u32 = 75;

/// How long a client may send nothing of a request's body, or over HTTP/2 neither send nor take anything while it waits:
/// longer than origins are waited for.
const BODY_SECONDS_MAX: u32 = 30;
const STREAMS_SECONDS_MAX: u32 = 150;

/// How long a stopping server waits for clients to take their last answers.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// What a worker's connections share.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) live: Arc<Live>,
    /// Its number, by which it finds its own counters.
    pub(crate) number: usize,
    pub(crate) handles: Handles,
    /// UDP sockets it serves.
    pub(crate) datagram_sockets: usize,
    /// What connections that are gone have left to be finished.
    pub(crate) detached: usize,
    /// Bytes of the connection that is being polled. Means nothing between polls.
    pub(crate) input: Box<[u8]>,
    /// The head of a page that is being sent. Means nothing between polls.
    pub(crate) page_head: Vec<u8>,
    /// Answers of the connection that is being polled. Empty between polls.
    pub(crate) output: Output,
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Calls `f` with this thread's worker.
///
/// # Panics
/// On a thread that is no worker, or from inside `f`.
pub(crate) fn with<R>(f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKER.with_borrow_mut(|worker| f(worker.as_mut().expect("connections are polled by worker threads only")))
}

/// Goes on with `work` when the connection that began it has gone. The worker does not end meanwhile.
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    with(|worker| worker.detached += 1);
    drop(tokio::spawn(async move {
        work.await;
        with(|worker| worker.detached -= 1);
    }));
}

/// A connected socket on its way from the control thread to a worker.
pub(crate) struct Accepted {
    pub(crate) id: u64,
    pub(crate) socket: AcceptedSocket,
    pub(crate) peer: Peer,
    pub(crate) listener: Arc<Listener>,
}

pub(crate) enum AcceptedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// What the control thread tells a worker.
pub(crate) enum Message {
    Connection(Accepted),
    /// Serve this UDP socket until the other end of the channel says so or goes.
    Datagrams(std::net::UdpSocket, Arc<Listener>, watch::Receiver<bool>),
    /// Execute what comes from now on with this. It is this worker's own copy, of which no other counts references.
    Reload(Arc<Live>),
    /// End if nothing is left to serve, and if the post is still in this round.
    EndIfIdle(u32),
    /// Let connections finish, then end.
    Stop,
}

/// Whether a worker is wanted. The control thread dismisses and recalls it; the worker itself leaves once it has nothing
/// to do any more. Rounds are counted, so that a dismissal which was followed by a recall ends nobody.
///
/// | value | means |
/// |---|---|
/// | even | it is wanted |
/// | odd | it is dismissed: no new connections, the ones it has live on |
/// | [`Post::LEFT`] | it has left |
#[derive(Debug, Default)]
pub(crate) struct Post(AtomicU32);

impl Post {
    const LEFT: u32 = u32::MAX;

    /// Dismisses the worker if it is wanted. The round to end in, or `None` when it has left.
    pub(crate) fn dismiss(&self) -> Option<u32> {
        let round = self.0.load(Ordering::Acquire);
        match round {
            Post::LEFT => None,
            round if round % 2 == 1 => Some(round),
            round => {
                // A wanted worker changes nothing here.
                self.0.store(round + 1, Ordering::Release);
                Some(round + 1)
            }
        }
    }

    /// Wants the worker again if it was dismissed. False when it has left.
    pub(crate) fn recall(&self) -> bool {
        let round = self.0.load(Ordering::Acquire);
        round.is_multiple_of(2)
            || round != Post::LEFT
                && self.0.compare_exchange(round, round + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Leaves, if the dismissal of `round` still stands.
    fn leave(&self, round: u32) -> bool {
        self.0.compare_exchange(round, Post::LEFT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A running worker, as the control thread sees it.
pub(crate) struct WorkerHandle {
    pub(crate) inbox: UnboundedSender<Message>,
    pub(crate) post: Arc<Post>,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts worker `number`.
pub(crate) fn start(shared: &Arc<Shared>, live: &Live, number: usize) -> io::Result<WorkerHandle> {
    // No time driver: it would read the clock at every wait.
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (inbox, messages) = unbounded_channel();
    let mut handles = Handles::default();
    handles.follow(live);
    let worker = Worker {
        shared: Arc::clone(shared),
        live: Arc::new(live.clone()),
        number,
        handles,
        datagram_sockets: 0,
        detached: 0,
        input: vec![0; INPUT_BYTES].into_boxed_slice(),
        page_head: Vec::new(),
        output: Output::with_capacity(OUTPUT_BYTES),
    };
    let post = Arc::<Post>::default();
    let run = {
        let post = Arc::clone(&post);
        move || run(worker, runtime, messages, &post)
    };
    let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(run)?;
    Ok(WorkerHandle { inbox, post, thread })
}

fn run(worker: Worker, runtime: Runtime, messages: UnboundedReceiver<Message>, post: &Post) {
    let shared = Arc::clone(&worker.shared);
    let number = worker.number;
    WORKER.with_borrow_mut(|slot| *slot = Some(worker));
    runtime.block_on(async {
        serve(&shared, number, messages, post).await;
    });
    // Ends what did not end by itself; connections give back their buffers and counts as they are dropped.
    drop(runtime);
    WORKER.with_borrow_mut(|slot| *slot = None);
}

async fn serve(shared: &Arc<Shared>, number: usize, mut messages: UnboundedReceiver<Message>, post: &Post) {
    while let Some(message) = messages.recv().await {
        match message {
            Message::Connection(accepted) => open(shared, number, accepted),
            Message::Datagrams(socket, listener, until) => match UdpSocket::from_std(socket) {
                Ok(socket) => {
                    with(|worker| worker.datagram_sockets += 1);
                    match listener.site.clone() {
                        Some(site) => drop(tokio::spawn(http::htcp::serve(socket, listener, site, until))),
                        None => drop(tokio::spawn(udp::serve(socket, listener, until))),
                    }
                }
                Err(error) => {
                    let name = &listener.name;
                    shared.log.line(Level::Error, format_args!("cannot serve listener {name}: {error}"));
                }
            },
            Message::Reload(live) => with(|worker| {
                worker.handles.follow(&live);
                worker.live = live;
            }),
            Message::EndIfIdle(round) => {
                let is_idle = shared.registries.of(number).len() == 0
                    && with(|worker| worker.datagram_sockets == 0 && worker.detached == 0);
                if is_idle && post.leave(round) {
                    break;
                }
            }
            Message::Stop => break,
        }
    }
    drain(shared, number, &mut messages).await;
}

/// Starts serving one accepted connection.
fn open(shared: &Arc<Shared>, number: usize, accepted: Accepted) {
    let Accepted { id, socket, peer, listener } = accepted;
    let stream = match socket {
        AcceptedSocket::Tcp(socket) => TcpStream::from_std(socket).and_then(|socket| match &listener.tls {
            None => Ok(Stream::Tcp(socket)),
            Some(tls) => {
                let stream = TlsStream::new(socket, tls, Arc::clone(&listener.counters), number)?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }),
        AcceptedSocket::Unix(socket) => UnixStream::from_std(socket).map(Stream::Unix),
    };
    match stream {
        Ok(stream) => match listener.site.clone() {
            Some(site) => http::open(shared, number, id, stream, peer, listener, site),
            None => drop(tokio::spawn(Connection::open(shared, number, id, stream, peer, listener))),
        },
        Err(error) => {
            // The socket is closed by now. The usual reason is a limit on descriptors or watches.
            shared.connections.closed();
            shared.log.line(Level::Warning, format_args!("cannot serve {peer}: {error}"));
        }
    }
}

/// Tells every connection to finish and waits until they have, or time is up.
async fn drain(shared: &Arc<Shared>, number: usize, messages: &mut UnboundedReceiver<Message>) {
    // Connections that were accepted before the listeners closed get their chance as well.
    messages.close();
    while let Ok(message) = messages.try_recv() {
        if let Message::Connection(accepted) = message {
            open(shared, number, accepted);
        }
    }
    let registry = shared.registries.of(number);
    registry.for_each(|connection| connection.kick(Kick::Stop));
    let deadline = Instant::now() + DRAIN_TIME_MAX;
    while (registry.len() > 0 || with(|worker| worker.detached > 0)) && Instant::now() < deadline {
        // The control thread waits for this one; deadlines are looked at all the same.
        with(|worker| worker.live.tiers.tick_backends());
        // The connections are polled in between; a worker that is stopping may sleep.
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

/// Closes connections that are idle or do not read their answers. Called once a second by the control thread: a timer
/// in a worker would have the kernel set and clear one at every wait. `is_pressed`: a store has just refused a write for
/// want of memory, so that nobody may keep some who does not use it.
pub(crate) fn sweep(shared: &Shared, now: Seconds, idle_seconds_max: u32, is_pressed: bool) {
    for (_, registry) in shared.registries.iter() {
        registry.for_each(|connection| sweep_one(connection, now, idle_seconds_max, is_pressed));
    }
}

fn sweep_one(connection: &ConnectionInfo, now: Seconds, idle_seconds_max: u32, is_pressed: bool) {
    let silent = |since: &AtomicU32, seconds_max| now.saturating_sub(since.load(Ordering::Relaxed)) > seconds_max;
    let (stall, value) =
        if is_pressed { (PRESSED_SECONDS_MAX, PRESSED_SECONDS_MAX) } else { (STALL_SECONDS_MAX, VALUE_SECONDS_MAX) };
    let tunnel = connection.listener.tunnel_seconds_max();
    let kick = match connection.activity() {
        Activity::Handshaking if silent(&connection.commanded_at, HANDSHAKE_SECONDS_MAX) => Kick::Handshake,
        Activity::Writing if silent(&connection.progressed_at, STALL_SECONDS_MAX) => Kick::Stall,
        Activity::WritingHeld if silent(&connection.progressed_at, stall) => Kick::Stall,
        Activity::ReadingValue if silent(&connection.progressed_at, value) => Kick::Stall,
        Activity::ReadingHead if silent(&connection.commanded_at, HEAD_SECONDS_MAX) => Kick::Head,
        Activity::AwaitingRequest if silent(&connection.commanded_at, KEEP_ALIVE_SECONDS_MAX) => Kick::Idle,
        Activity::ReadingBody if silent(&connection.progressed_at, BODY_SECONDS_MAX) => Kick::Stall,
        Activity::ServingMany if silent(&connection.progressed_at, STREAMS_SECONDS_MAX) => Kick::Stall,
        Activity::Tunnel if tunnel.is_some_and(|most| silent(&connection.progressed_at, most)) => Kick::Idle,
        // Whoever waits for an origin waits as long as that may take.
        Activity::Serving | Activity::ServingMany | Activity::Tunnel => return,
        // A watcher says nothing for as long as it watches, and that is how it should be.
        // Who waits for a backend is answered when that has given up at the latest.
        Activity::Writing | Activity::WritingHeld | Activity::Watching | Activity::AwaitingBackend => return,
        _ if idle_seconds_max > 0 && silent(&connection.commanded_at, idle_seconds_max) => Kick::Idle,
        _ => return,
    };
    connection.kick(kick);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recalled_worker_does_not_leave_by_an_older_dismissal() {
        let post = Post::default();
        let first = post.dismiss().expect("it is there");
        assert_eq!(post.dismiss(), Some(first));
        assert!(post.recall() && post.recall());
        let second = post.dismiss().expect("it is there");
        assert!(!post.leave(first));
        assert!(post.leave(second));
        assert!(!post.recall());
        assert_eq!(post.dismiss(), None);
    }
}
