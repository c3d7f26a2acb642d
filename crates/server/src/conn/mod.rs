//! A connection: moves bytes between a socket and a [`Session`], and bounds what it may own meanwhile.
//!
//! Requests are read into the worker's shared buffer and answers leave from its other one, so an idle connection owns no
//! buffer at all. Only what could not be executed or sent yet is kept, and all connections together keep no more than
//! the buffer budget: over it, the connection that asks for more is closed.
//!
//! Each poll sends what an earlier one could not, then reads and executes until the socket has no more to give or takes
//! no more. It never executes a request while answers wait for the client.
//!
//! Answers of pools with a backend come later ([`waits`]). Their futures are polled before and after, when nothing of the
//! worker is borrowed; the client's next requests go on being read meanwhile. A connection that ends leaves what it has
//! begun to a task of its own.

mod detour;
mod output;
mod session;
mod stream;
mod tls;
mod value;
mod waits;

use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use nuthatch_proto::WireError;

pub(crate) use output::{COPIED_VALUE_BYTES_MAX, Output};
pub(crate) use session::{Pause, Session};
pub(crate) use stream::Stream;
pub(crate) use tls::TlsStream;

use crate::counters::ListenerCounter;
use crate::exec::Exec;
use crate::log::Level;
use crate::shared::{Activity, ConnectionInfo, Kick, Listener, Peer, Shared};
use crate::watch::kind;
use crate::worker::{self, Worker};

/// Bytes read at once while connections own much memory already, so that one that does not read its answers ties up
/// little.
const READ_BYTES_UNDER_PRESSURE: usize = 16 * 1024;

/// Memory behind the end of what is kept of the input that is not worth giving back.
const INPUT_SLACK_BYTES: usize = 4 * 1024;

/// One client, as a task of its worker's runtime.
pub(crate) struct Connection {
    stream: Stream,
    info: Arc<ConnectionInfo>,
    shared: Arc<Shared>,
    /// The worker's number.
    worker: usize,
    session: Session,
    /// Bytes received and not executed, from `input_start` on.
    input: Vec<u8>,
    input_start: usize,
    /// Whether `input` cannot be gone on with before more arrives.
    is_starved: bool,
    /// Whether it cannot be gone on with before answers come.
    is_held_up: bool,
    /// Whether the connection has given up its turn, and is polled again at once.
    has_yielded: bool,
    /// Answers not sent yet.
    output: Output,
    /// Whether `output` waits for the socket, rather than for the connection's next turn.
    is_blocked: bool,
    /// Bytes of the buffer budget this connection has taken.
    charged_bytes: usize,
    /// The connection is to be closed once `output` is sent.
    is_closing: bool,
    has_waker: bool,
    end: End,
}

/// Why a connection ended, as `watch connevents` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Error,
    Normal,
    IdleTimeout,
    Shutdown,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Error => "error",
            End::Normal => "normal",
            End::IdleTimeout => "idle_timeout",
            End::Shutdown => "shutdown",
        }
    }
}

/// Bytes and requests of one poll, counted once at its end.
#[derive(Default)]
struct Traffic {
    read: u64,
    written: u64,
    requests: u64,
}

/// Whether the poll goes on.
enum Turn {
    /// Wait: something will wake the connection.
    Wait,
    /// The connection is over.
    Over(End),
}

impl Connection {
    /// Takes charge of an accepted socket. Counted as open by the control thread already; counted out on drop.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        worker: usize,
        id: u64,
        stream: Stream,
        peer: Peer,
        listener: Arc<Listener>,
    ) -> Connection {
        listener.counters.add(worker, ListenerCounter::Opened, 1);
        let fd = stream.as_raw_fd();
        let info = Arc::new(ConnectionInfo::new(id, fd, peer, listener, shared.clock.now()));
        if stream.is_handshaking() {
            info.set_activity(Activity::Handshaking);
        }
        shared.registries.of(worker).insert(&info);
        shared.log.line(Level::Command, format_args!("<{fd} new client connection from {peer}"));
        shared.watchers.emit(kind::CONNEVENTS, |line| describe_connection(line, "conn_new", &info, None));
        Connection {
            stream,
            session: Session::new(&info.listener.access, true),
            info,
            shared: Arc::clone(shared),
            worker,
            input: Vec::new(),
            input_start: 0,
            is_starved: false,
            is_held_up: false,
            has_yielded: false,
            output: Output::default(),
            is_blocked: false,
            charged_bytes: 0,
            is_closing: false,
            has_waker: false,
            end: End::Normal,
        }
    }

    fn turn(&mut self, worker: &mut Worker, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_waker {
            self.info.set_waker(cx.waker());
            self.has_waker = true;
        }
        let mut traffic = Traffic::default();
        let turn = self.drive(worker, cx, &mut traffic);
        let over = match turn {
            Ok(Turn::Wait) => !self.settle(worker, &traffic),
            Ok(Turn::Over(end)) => {
                self.end = end;
                !(self.waits_to_close(cx) && self.settle(worker, &traffic))
            }
            Err(error) => {
                // Whatever it was - reset, broken pipe - the client is gone. What it did wrong is said.
                if error.kind() == io::ErrorKind::InvalidData {
                    let peer = self.info.peer;
                    self.shared.log.line(Level::Warning, format_args!("closing {peer}: TLS: {error}"));
                }
                self.end = End::Error;
                true
            }
        };
        worker.output.clear();
        worker.output.shrink();
        self.count(&traffic);
        if over { Poll::Ready(()) } else { Poll::Pending }
    }

    fn drive(&mut self, worker: &mut Worker, cx: &mut Context<'_>, traffic: &mut Traffic) -> io::Result<Turn> {
        let is_stopping = match self.info.kicked() {
            Kick::None => false,
            Kick::Stop => true,
            why @ (Kick::Idle | Kick::Stall | Kick::Handshake | Kick::Head) => return Ok(self.kicked(why)),
        };
        let mut turns = worker.live.settings.requests_per_event.max(1);
        self.has_yielded = false;
        if self.is_blocked {
            if self.output.poll_flush(&mut self.stream, cx, &mut traffic.written)?.is_pending() {
                return Ok(Turn::Wait);
            }
            self.is_blocked = false;
            self.release_buffers();
        } else if !self.output.is_empty() {
            worker.output.take_unsent(&mut self.output);
            self.release_buffers();
        }
        loop {
            if self.session.has_answers() {
                self.deliver(worker);
                if self.send(worker, cx, traffic)?.is_pending() {
                    return Ok(Turn::Wait);
                }
                continue;
            }
            if self.is_closing {
                return Ok(if self.session.is_waiting() { self.wait_for_answers() } else { Turn::Over(self.end) });
            }
            if let Some(watcher) = self.session.watcher() {
                watcher.drain(&mut worker.output.bytes, cx.waker());
                if !worker.output.is_empty() {
                    if self.send(worker, cx, traffic)?.is_pending() {
                        return Ok(Turn::Wait);
                    }
                    continue;
                }
            }
            let pause = if self.has_work() {
                self.run_kept(worker, traffic, &mut turns)
            } else if self.is_held_up {
                return Ok(self.wait_for_answers());
            } else {
                match self.read(worker, cx, traffic)? {
                    Poll::Pending if is_stopping && self.session.is_waiting() => return Ok(self.wait_for_answers()),
                    Poll::Pending if is_stopping => return Ok(Turn::Over(End::Shutdown)),
                    Poll::Pending => {
                        self.info.set_activity(match self.stream.is_handshaking() {
                            false => self.session.activity(),
                            true => Activity::Handshaking,
                        });
                        return Ok(Turn::Wait);
                    }
                    Poll::Ready(0) if self.session.is_waiting() => {
                        // Nothing more comes, and what was asked is still answered.
                        self.is_closing = true;
                        self.end = End::Normal;
                        return Ok(self.wait_for_answers());
                    }
                    Poll::Ready(0) => return Ok(Turn::Over(End::Normal)),
                    Poll::Ready(bytes) => self.run_shared(worker, bytes, traffic, &mut turns),
                }
            };
            if pause == Pause::Turn {
                self.info.listener.counters.add(self.worker, ListenerCounter::Yields, 1);
                if worker.shared.registries.of(self.worker).len() > 1 {
                    self.output.take_unsent(&mut worker.output);
                    cx.waker().wake_by_ref();
                    self.has_yielded = true;
                    return Ok(Turn::Wait);
                }
                // Nobody else is here to be kept waiting.
                turns = worker.live.settings.requests_per_event.max(1);
                continue;
            }
            if matches!(pause, Pause::Close | Pause::Fault) {
                self.is_closing = true;
                self.end = if pause == Pause::Fault { End::Error } else { End::Normal };
            }
            if self.send(worker, cx, traffic)?.is_pending() {
                return Ok(Turn::Wait);
            }
        }
    }

    /// Sends the worker's output; what the socket does not take becomes the connection's own.
    fn send(&mut self, worker: &mut Worker, cx: &mut Context<'_>, traffic: &mut Traffic) -> io::Result<Poll<()>> {
        if worker.output.poll_flush(&mut self.stream, cx, &mut traffic.written)?.is_pending() {
            self.output.take_unsent(&mut worker.output);
            self.is_blocked = true;
            // The time to take something runs from the moment it had to wait.
            self.info.progressed_at.store(self.shared.clock.now(), Ordering::Relaxed);
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(()))
    }

    /// Says to the client that nothing more comes. Whether that still has to be sent: who is thrown out is not waited for.
    fn waits_to_close(&mut self, cx: &mut Context<'_>) -> bool {
        if self.stream.poll_close(cx).is_ready() || !matches!(self.info.kicked(), Kick::None | Kick::Stop) {
            return false;
        }
        self.is_closing = true;
        self.is_blocked = true;
        self.info.progressed_at.store(self.shared.clock.now(), Ordering::Relaxed);
        true
    }

    fn wait_for_answers(&self) -> Turn {
        self.info.set_activity(Activity::AwaitingBackend);
        Turn::Wait
    }

    /// Puts answers that have come into the worker's output.
    fn deliver(&mut self, worker: &mut Worker) {
        let Worker { shared, live, number, handles, output, .. } = worker;
        let mut exec = Exec::new(shared, live, handles, *number, output, &self.info);
        self.session.deliver(&mut exec);
        self.is_held_up = false;
    }

    /// Whether there is something to execute without reading first.
    fn has_work(&self) -> bool {
        !self.is_starved && !self.is_held_up && (self.input_start < self.input.len() || self.session.is_busy())
    }

    /// Reads into the store when a large value is arriving, into the shared buffer otherwise. The bytes kept from before
    /// are put in front; the number returned is of all bytes there, 0 at the end of the stream.
    fn read(&mut self, worker: &mut Worker, cx: &mut Context<'_>, traffic: &mut Traffic) -> io::Result<Poll<usize>> {
        if let Some(piece) = self.session.value_piece() {
            let Poll::Ready(bytes) = self.stream.poll_read(cx, piece)? else { return Ok(Poll::Pending) };
            self.session.value_read(bytes);
            traffic.read += bytes as u64;
            self.is_starved = false;
            // There is nothing in the shared buffer, but 0 would mean the end.
            return Ok(Poll::Ready(if bytes == 0 { 0 } else { ALL_IN_STORE }));
        }
        let kept = self.input.len() - self.input_start;
        let is_tight = worker.shared.buffers.is_tight();
        let room = if is_tight { READ_BYTES_UNDER_PRESSURE } else { worker.input.len() };
        let end = (kept + room).min(worker.input.len());
        let Poll::Ready(bytes) = self.stream.poll_read(cx, &mut worker.input[kept..end])? else {
            return Ok(Poll::Pending);
        };
        if bytes == 0 {
            return Ok(Poll::Ready(0));
        }
        traffic.read += bytes as u64;
        worker.input[..kept].copy_from_slice(&self.input[self.input_start..]);
        Ok(Poll::Ready(kept + bytes))
    }

    /// Executes what was just read.
    fn run_shared(&mut self, worker: &mut Worker, bytes: usize, traffic: &mut Traffic, turns: &mut u32) -> Pause {
        let before = *turns;
        let Worker { shared, live, number, handles, input, output, .. } = worker;
        let input = if bytes == ALL_IN_STORE { &[] } else { &input[..bytes] };
        let mut exec = Exec::new(shared, live, handles, *number, output, &self.info);
        let (used, pause) = self.session.run(&mut exec, input, turns);
        traffic.requests += u64::from(before - *turns);
        if before != *turns {
            self.info.commanded_at.store(exec.now, Ordering::Relaxed);
        }
        let rest = &input[used..];
        self.input_start = 0;
        self.input.clear();
        if rest.is_empty() {
            self.input = Vec::new();
        } else {
            self.input.extend_from_slice(rest);
        }
        self.is_starved = pause == Pause::Starved;
        self.is_held_up = pause == Pause::Waiting;
        pause
    }

    /// Executes what was kept from an earlier read.
    fn run_kept(&mut self, worker: &mut Worker, traffic: &mut Traffic, turns: &mut u32) -> Pause {
        let before = *turns;
        let Worker { shared, live, number, handles, output, .. } = worker;
        let mut exec = Exec::new(shared, live, handles, *number, output, &self.info);
        let (used, pause) = self.session.run(&mut exec, &self.input[self.input_start..], turns);
        traffic.requests += u64::from(before - *turns);
        if before != *turns {
            self.info.commanded_at.store(exec.now, Ordering::Relaxed);
        }
        self.input_start += used;
        if self.input_start == self.input.len() {
            self.input = Vec::new();
            self.input_start = 0;
        }
        self.is_starved = pause == Pause::Starved;
        self.is_held_up = pause == Pause::Waiting;
        pause
    }

    /// After a poll that waits: takes account of the memory the connection owns. `false` when there is not that much.
    fn settle(&mut self, worker: &Worker, traffic: &Traffic) -> bool {
        if self.is_blocked {
            let holds = self.output.holds_values();
            self.info.set_activity(if holds { Activity::WritingHeld } else { Activity::Writing });
        }
        if traffic.written > 0 || traffic.read > 0 {
            self.info.progressed_at.store(self.shared.clock.now(), Ordering::Relaxed);
        }
        let kept = self.input.len() - self.input_start;
        if self.input.capacity() > 2 * kept + INPUT_SLACK_BYTES {
            self.input = self.input[self.input_start..].to_vec();
            self.input_start = 0;
        }
        let owned =
            self.input.capacity() + self.output.owned_bytes() + self.stream.owned_bytes() + self.session.owned_bytes();
        if owned == self.charged_bytes {
            return true;
        }
        if worker.shared.buffers.resize(self.charged_bytes, owned) {
            self.charged_bytes = owned;
            return true;
        }
        self.refuse_memory()
    }

    /// The buffer budget is used up: the connection ends, and is told so if it listens.
    #[cold]
    fn refuse_memory(&mut self) -> bool {
        self.end = End::Error;
        self.info.listener.counters.add(self.worker, ListenerCounter::InputRefused, 1);
        let peer = self.info.peer;
        let used = self.shared.buffers.used();
        self.shared.log.line(
            Level::Warning,
            format_args!("closing {peer}: connections own {used} bytes of buffers, the limit is read_buf_mem_limit"),
        );
        if self.output.is_empty() {
            let answer = WireError::OutOfMemoryRequest.as_wire();
            let _ = self.stream.poll_write(&mut Context::from_waker(std::task::Waker::noop()), answer);
        }
        false
    }

    /// Gives the memory of answers that were sent back at once.
    fn release_buffers(&mut self) {
        self.output = Output::default();
    }

    fn kicked(&mut self, why: Kick) -> Turn {
        let (counter, end, what) = match why {
            Kick::Idle => (ListenerCounter::IdleKicks, End::IdleTimeout, "it was idle for too long"),
            Kick::Handshake => (ListenerCounter::TlsHandshakeErrors, End::Error, "its TLS handshake takes too long"),
            _ => (ListenerCounter::StallKicks, End::Error, "it does not read its answers"),
        };
        self.info.listener.counters.add(self.worker, counter, 1);
        let peer = self.info.peer;
        self.shared.log.line(Level::Warning, format_args!("closing {peer}: {what}"));
        Turn::Over(end)
    }

    fn count(&self, traffic: &Traffic) {
        let counters = &self.info.listener.counters;
        if traffic.read > 0 {
            counters.add(self.worker, ListenerCounter::BytesRead, traffic.read);
        }
        if traffic.written > 0 {
            counters.add(self.worker, ListenerCounter::BytesWritten, traffic.written);
        }
        if traffic.requests > 0 {
            counters.add(self.worker, ListenerCounter::Requests, traffic.requests);
        }
    }
}

/// Instead of a number of bytes: they went into the store, none are in the shared buffer.
const ALL_IN_STORE: usize = usize::MAX;

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        connection.session.poll_waits(cx);
        loop {
            if worker::with(|worker| connection.turn(worker, cx)).is_ready() {
                if let Some(waits) = connection.session.leave() {
                    worker::detach(waits.finish());
                }
                return Poll::Ready(());
            }
            let has_answers = connection.session.is_unpolled() && connection.session.poll_waits(cx);
            if !has_answers || connection.has_yielded {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(watcher) = self.session.watcher() {
            self.shared.watchers.remove(watcher);
        }
        let _ = self.shared.buffers.resize(self.charged_bytes, 0);
        self.shared.registries.of(self.worker).remove(self.info.id);
        self.info.listener.counters.add(self.worker, ListenerCounter::Closed, 1);
        let fd = self.info.fd;
        self.shared.log.line(Level::Command, format_args!("<{fd} connection closed."));
        let end = self.end;
        let reason = Some(end.name());
        self.shared.watchers.emit(kind::CONNEVENTS, |line| describe_connection(line, "conn_close", &self.info, reason));
        self.shared.connections.closed();
    }
}

/// One `watch connevents` line.
pub(crate) fn describe_connection(line: &mut String, event: &str, info: &ConnectionInfo, reason: Option<&str>) {
    let _ = match info.peer {
        Peer::Internet(address) => {
            write!(line, "type={event} rip={} rport={} transport=tcp", address.ip(), address.port())
        }
        Peer::Unix => write!(line, "type={event} rip=unix rport=0 transport=local"),
    };
    if let Some(reason) = reason {
        let _ = write!(line, " reason={reason}");
    }
    let _ = write!(line, " cfd={}", info.fd);
}
