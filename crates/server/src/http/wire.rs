//! The wire: a client's bytes on their way to hyper and back. Every byte of HTTP/1 passes the guard first; here it is
//! seen, too, whether a client takes too long, so that no connection needs a timer.
//!
//! What a client sends is read into the worker's shared buffer, like any other connection's. Kept are only a head that is
//! not whole and what hyper did not take at once, and both count against the buffer budget.

use std::borrow::Borrow;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use nuthatch_pages::door::guard::{Guard, Refusal, Refused};
use nuthatch_pages::door::{Client, RenderedHit, Site, Upgrade};

use crate::conn::{Stream, describe_connection};
use crate::counters::ListenerCounter;
use crate::log::Level;
use crate::shared::{Activity, ConnectionInfo, Kick, Listener, Peer, Shared};
use crate::watch::kind;
use crate::worker;

/// What opens a connection of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read of a client that was refused, so that it can read why before the connection is reset.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// A connection's entry in the books; dropped, it is struck out.
pub(super) struct Opened {
    info: Arc<ConnectionInfo>,
    shared: Arc<Shared>,
    worker: usize,
}

impl Opened {
    pub(super) fn new(
        shared: &Arc<Shared>,
        worker: usize,
        id: u64,
        stream: &Stream,
        peer: Peer,
        listener: Arc<Listener>,
    ) -> Arc<Opened> {
        use std::os::fd::AsRawFd;
        let fd = stream.as_raw_fd();
        let info = Arc::new(ConnectionInfo::new(id, fd, peer, listener, shared.clock.now()));
        let opened = Arc::new(Opened { info, shared: Arc::clone(shared), worker });
        opened.count(ListenerCounter::Opened, 1);
        shared.registries.of(worker).insert(&opened.info);
        shared.log.line(Level::Command, format_args!("<{fd} new client connection from {peer}"));
        shared.watchers.emit(kind::CONNEVENTS, |line| describe_connection(line, "conn_new", &opened.info, None));
        opened
    }

    pub(super) fn count(&self, counter: ListenerCounter, by: u64) {
        self.info.listener.counters.add(self.worker, counter, by);
    }

    fn now(&self) -> u32 {
        self.shared.clock.now()
    }

    /// The client takes nothing more for now. Its time to take something runs from the moment that it had to be waited for.
    fn note_blocked(&self) {
        if self.info.activity() != Activity::WritingHeld {
            self.info.progressed_at.store(self.now(), Ordering::Relaxed);
            self.info.set_activity(Activity::WritingHeld);
        }
    }

    /// Notes what the connection does. What a client is waited for has its time from here on, whatever else arrives: with
    /// HTTP/2 that may be pings, or a head byte by byte.
    fn begin(&self, activity: Activity) {
        let is_timed = matches!(activity, Activity::ReadingHead | Activity::AwaitingRequest);
        if is_timed && self.info.activity() != activity {
            self.info.commanded_at.store(self.now(), Ordering::Relaxed);
        }
        self.info.set_activity(activity);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let peer = self.info.peer;
        let what = match self.info.kicked() {
            Kick::Idle if self.info.activity() == Activity::Tunnel => {
                let why = "nothing passed through its upgraded connection in either direction (tunnel_timeout)";
                Some((ListenerCounter::IdleKicks, "idle_timeout", why))
            }
            Kick::Idle => Some((ListenerCounter::IdleKicks, "idle_timeout", "it was idle for too long")),
            Kick::Handshake => Some((ListenerCounter::TlsHandshakeErrors, "error", "its TLS handshake takes too long")),
            Kick::Stall => Some((ListenerCounter::StallKicks, "error", "it neither reads nor sends")),
            Kick::Head => Some((ListenerCounter::StallKicks, "error", "the head of its request takes too long")),
            Kick::None | Kick::Stop => None,
        };
        if let Some((counter, _, why)) = what {
            self.count(counter, 1);
            self.shared.log.line(Level::Warning, format_args!("closing {peer}: {why}"));
        }
        self.shared.registries.of(self.worker).remove(self.info.id);
        self.count(ListenerCounter::Closed, 1);
        let fd = self.info.fd;
        self.shared.log.line(Level::Command, format_args!("<{fd} connection closed."));
        let reason = what.map_or("normal", |(_, reason, _)| reason);
        self.shared
            .watchers
            .emit(kind::CONNEVENTS, |line| describe_connection(line, "conn_close", &self.info, Some(reason)));
        self.shared.connections.closed();
    }
}

/// The answer to a plain request on its way, which hyper knows nothing of.
struct Sending<H> {
    head: H,
    head_at: usize,
    body: RenderedHit,
}

/// Most pieces of an answer that one write takes.
const SLICES_MAX: usize = 16;

impl<H: Borrow<Vec<u8>>> Sending<H> {
    /// Sends as much as the socket takes.
    fn poll(&mut self, stream: &mut Stream, opened: &Opened, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let head = &self.head.borrow()[self.head_at..];
            let body_at = usize::from(!head.is_empty());
            slices[0] = IoSlice::new(head);
            let filled = body_at + self.body.slices(&mut slices[body_at..]);
            if filled == 0 {
                return stream.poll_flush(cx);
            }
            let sent = ready!(stream.poll_write_vectored(cx, &slices[..filled]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            opened.count(ListenerCounter::BytesWritten, sent as u64);
            opened.info.progressed_at.store(opened.now(), Ordering::Relaxed);
            let of_head = sent.min(head.len());
            self.head_at += of_head;
            self.body.advance(sent - of_head);
        }
    }
}

/// See the module.
pub(super) struct Wire {
    stream: Stream,
    opened: Arc<Opened>,
    client: Arc<Client>,
    site: Arc<Site>,
    /// Hyper has nothing to read and nothing to send: it waits for a request.
    is_quiet: bool,
    /// A hit that the client has not taken yet.
    sending: Option<Box<Sending<Vec<u8>>>>,
    /// None for HTTP/2, which has its own framing.
    guard: Option<Guard>,
    /// Received, and not through the guard; the first bytes are looked at with those that come next.
    raw: Vec<u8>,
    /// Through the guard, and not taken yet, from `passed_at` on.
    passed: Vec<u8>,
    passed_at: usize,
    /// To be sent before anything else.
    early: Vec<u8>,
    /// Nothing is read any more: the client was refused, or sends no more.
    is_deaf: bool,
    is_refused: bool,
    lingered_bytes: usize,
    charged_bytes: usize,
    /// Whom the sweep wakes while another protocol is spoken.
    tunnel_waker: Option<Waker>,
}

impl Wire {
    pub(super) fn new(stream: Stream, opened: Arc<Opened>, client: Arc<Client>, site: Arc<Site>) -> Wire {
        let activity = if stream.is_handshaking() { Activity::Handshaking } else { Activity::AwaitingRequest };
        opened.info.set_activity(activity);
        Wire {
            stream,
            opened,
            client,
            site,
            is_quiet: true,
            sending: None,
            guard: Some(Guard::default()),
            raw: Vec::new(),
            passed: Vec::new(),
            passed_at: 0,
            early: Vec::new(),
            is_deaf: false,
            is_refused: false,
            lingered_bytes: 0,
            charged_bytes: 0,
            tunnel_waker: None,
        }
    }

    pub(super) fn info(&self) -> &Arc<ConnectionInfo> {
        &self.opened.info
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.opened.shared
    }

    pub(super) fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    /// Waits until it is clear what the client speaks: what was agreed on with it, or else what it begins with. What has
    /// arrived by then is kept for who reads it.
    pub(super) fn poll_version(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Version>> {
        loop {
            if !matches!(self.opened.info.kicked(), Kick::None | Kick::Stop) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let begin = &self.raw[..self.raw.len().min(PREFACE.len())];
            let is_other = self.is_deaf || !PREFACE.starts_with(begin);
            match self.stream.agreed() {
                Some(b"h2") if is_other && !begin.is_empty() => {
                    let why = "expected the preface of HTTP/2, which was agreed on (ALPN)";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                Some(b"http/1.1") => return Poll::Ready(Ok(Version::Http1)),
                _ if is_other => return Poll::Ready(Ok(Version::Http1)),
                _ => {}
            }
            if begin.len() == PREFACE.len() {
                self.guard = None;
                self.is_quiet = false;
                self.passed = std::mem::take(&mut self.raw);
                return Poll::Ready(Ok(Version::Http2));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if self.opened.info.kicked() == Kick::Stop && self.raw.is_empty() {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                    }
                    self.note_waiting();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads what is there behind `raw`. With HTTP/1, what passes the guard goes to `passed`.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Wire { stream, raw, .. } = self;
        let read = worker::with(|worker| {
            let read = ready!(stream.poll_read(cx, &mut worker.input[..]));
            Poll::Ready(read.inspect(|bytes| raw.extend_from_slice(&worker.input[..*bytes])))
        });
        let bytes = ready!(read)?;
        self.noted_traffic(ListenerCounter::BytesRead, bytes);
        if bytes == 0 {
            self.is_deaf = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what is there past the guard straight into `buffer`: what nearly every read comes to, and costs no memory.
    /// Plain requests for pages that are there are answered on the way, while hyper has nothing to do. `None` when
    /// something has to be kept, which is in `raw` then, or nothing is there.
    fn poll_straight(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBufCursor<'_>) -> Option<Poll<io::Result<()>>> {
        self.guard.as_ref()?;
        // Taken, because answers need the worker.
        let mut input = worker::with(|worker| std::mem::take(&mut worker.input));
        let read = self.stream.poll_read(cx, &mut input);
        let done = match read {
            Poll::Pending => {
                self.note_waiting();
                Some(self.charge().map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending))
            }
            Poll::Ready(Err(error)) => Some(Poll::Ready(Err(error))),
            Poll::Ready(Ok(0)) => {
                self.is_deaf = true;
                Some(Poll::Ready(Ok(())))
            }
            Poll::Ready(Ok(bytes)) => {
                self.noted_traffic(ListenerCounter::BytesRead, bytes);
                match self.answer_hits(cx, &input[..bytes]) {
                    Ok(answered) => self.pass_straight(&input[answered..bytes], buffer),
                    Err(error) => Some(Poll::Ready(Err(error))),
                }
            }
        };
        worker::with(|worker| worker.input = input);
        done
    }

    /// Passes on what of `input` the guard lets pass and fits; the rest is kept. `None` when that is all of it.
    fn pass_straight(&mut self, input: &[u8], buffer: &mut ReadBufCursor<'_>) -> Option<Poll<io::Result<()>>> {
        let guard = self.guard.as_mut()?;
        if self.sending.is_some() {
            // What follows an answer waits until that is sent.
            self.raw.extend_from_slice(input);
            return None;
        }
        let fits = &input[..input.len().min(buffer.remaining())];
        // What is refused is looked at again, by who refuses.
        let passed = if guard.is_upgrading() { 0 } else { guard.try_check(fits) };
        buffer.put_slice(&fits[..passed]);
        self.raw.extend_from_slice(&input[passed..]);
        if passed == 0 {
            return None;
        }
        note_upgrade(&self.client, guard);
        self.is_quiet = false;
        self.opened.info.commanded_at.store(self.opened.now(), Ordering::Relaxed);
        Some(Poll::Ready(self.charge()))
    }

    /// Answers the plain requests for pages that are there that `input` begins with, as long as hyper has nothing to do
    /// and the client takes the answers: how many bytes they have.
    fn answer_hits(&mut self, cx: &mut Context<'_>, input: &[u8]) -> io::Result<usize> {
        if !self.is_quiet {
            return Ok(0);
        }
        let mut head = worker::with(|worker| std::mem::take(&mut worker.page_head));
        let mut answered = 0;
        let mut sent = Ok(());
        while self.sending.is_none()
            && sent.is_ok()
            && let Some(guard) = &mut self.guard
            && let Some(bytes) = guard.whole_head(&input[answered..])
            && let Some(hit) = self.site.hit(&self.client, &input[answered..answered + bytes], &mut head)
        {
            guard.answered();
            answered += bytes;
            self.opened.count(ListenerCounter::Requests, 1);
            self.opened.info.commanded_at.store(self.opened.now(), Ordering::Relaxed);
            let mut sending = Sending { head: &mut head, head_at: 0, body: hit };
            match sending.poll(&mut self.stream, &self.opened, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => sent = Err(error),
                Poll::Pending => {
                    let Sending { head, head_at, body } = sending;
                    self.sending = Some(Box::new(Sending { head: head.split_off(head_at), head_at: 0, body }));
                    self.opened.note_blocked();
                }
            }
        }
        worker::with(|worker| worker.page_head = head);
        sent.map(|()| answered)
    }

    /// Sends the rest of a hit.
    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(Ok(())) };
        let outcome = sending.poll(&mut self.stream, &self.opened, cx);
        if outcome.is_ready() {
            self.sending = None;
            self.opened.begin(Activity::AwaitingRequest);
        }
        outcome
    }

    /// Notes, when hyper has sent all that it had, whether it waits for a request.
    fn note_quiet(&mut self) {
        self.is_quiet = self.guard.as_ref().is_some_and(|guard| {
            guard.is_between()
                && guard.heads() == self.client.requests()
                && self.passed.is_empty()
                && !self.client.is_busy()
        });
    }

    fn noted_traffic(&mut self, counter: ListenerCounter, bytes: usize) {
        self.opened.count(counter, bytes as u64);
        self.opened.info.progressed_at.store(self.opened.now(), Ordering::Relaxed);
        if self.opened.info.activity() == Activity::ReadingBody {
            // Whoever takes it may take a while, and the client is waited for only when more is wanted of it.
            self.opened.info.set_activity(Activity::Serving);
        }
    }

    /// Notes what the connection does while nothing arrives, for the sweep.
    fn note_waiting(&mut self) {
        let activity = match &self.guard {
            _ if self.stream.is_handshaking() => Activity::Handshaking,
            None if self.client.is_busy() => Activity::ServingMany,
            None => Activity::AwaitingRequest,
            Some(guard) if guard.is_tunnel() => Activity::Tunnel,
            Some(guard) if guard.is_in_body() => Activity::ReadingBody,
            Some(_) if self.client.is_busy() => Activity::Serving,
            // The preface of HTTP/2 is due as soon as that is agreed on.
            Some(_) if self.stream.agreed() == Some(b"h2") => Activity::ReadingHead,
            // Of a version that is not clear yet the guard has seen nothing.
            Some(guard) if guard.is_in_head() || !self.raw.is_empty() => Activity::ReadingHead,
            Some(_) => Activity::AwaitingRequest,
        };
        self.opened.begin(activity);
    }

    /// Notes which task reads what another protocol says, for the sweep: from some read on it is no longer the connection's.
    fn note_reader(&mut self, cx: &Context<'_>) {
        if self.guard.as_ref().is_some_and(Guard::is_tunnel)
            && self.tunnel_waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker()))
        {
            self.tunnel_waker = Some(cx.waker().clone());
            self.opened.info.set_waker(cx.waker());
        }
    }

    /// What may be read now, from the guard. `Ok(false)`: more has to arrive, or an answer to be sent.
    fn pass(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.is_quiet && !self.raw.is_empty() && self.opened.info.kicked() != Kick::Head {
            let mut raw = std::mem::take(&mut self.raw);
            let answered = self.answer_hits(cx, &raw)?;
            raw.drain(..answered);
            self.raw = if raw.is_empty() { Vec::new() } else { raw };
            if self.sending.is_some() {
                return Ok(false);
            }
        }
        if self.passes()? {
            self.is_quiet = false;
            return Ok(true);
        }
        Ok(false)
    }

    /// The same without answers.
    fn passes(&mut self) -> io::Result<bool> {
        let Some(guard) = &mut self.guard else {
            self.passed = std::mem::take(&mut self.raw);
            self.passed_at = 0;
            return Ok(!self.passed.is_empty());
        };
        if guard.is_upgrading() {
            match self.client.take_upgrade() {
                Upgrade::Open => return Ok(false),
                answer => guard.upgraded(answer == Upgrade::Granted),
            }
        }
        let checked = match self.opened.info.kicked() {
            Kick::Head => Err(Refused { why: Refusal::HeadTooSlow, in_head: true }),
            _ if self.raw.is_empty() => return Ok(false),
            _ => guard.check(&self.raw),
        };
        match checked {
            Ok(0) => Ok(false),
            Ok(bytes) => {
                note_upgrade(&self.client, guard);
                self.passed_at = 0;
                if bytes == self.raw.len() {
                    self.passed = std::mem::take(&mut self.raw);
                } else {
                    self.passed = self.raw[..bytes].to_vec();
                    self.raw.drain(..bytes);
                }
                self.opened.info.commanded_at.store(self.opened.now(), Ordering::Relaxed);
                Ok(true)
            }
            Err(Refused { why, in_head }) => {
                let number = guard.heads();
                self.is_deaf = true;
                self.is_refused = true;
                self.raw = Vec::new();
                if !in_head {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why.to_string()));
                }
                self.client.refuse(number, why);
                self.passed = Client::REFUSED.to_vec();
                self.passed_at = 0;
                Ok(true)
            }
        }
    }

    /// Takes account of what is kept.
    fn charge(&mut self) -> io::Result<()> {
        let sending = self.sending.as_ref().map_or(0, |sending| sending.head.capacity());
        let kept = self.raw.capacity() + self.passed.capacity() + self.early.capacity();
        let owned = kept + sending + self.stream.owned_bytes();
        if owned == self.charged_bytes {
            return Ok(());
        }
        if self.opened.shared.buffers.resize(self.charged_bytes, owned) {
            self.charged_bytes = owned;
            return Ok(());
        }
        self.opened.count(ListenerCounter::InputRefused, 1);
        let (peer, used) = (self.opened.info.peer, self.opened.shared.buffers.used());
        self.opened.shared.log.line(
            Level::Warning,
            format_args!("closing {peer}: connections own {used} bytes of buffers, the limit is read_buf_mem_limit"),
        );
        Err(io::ErrorKind::OutOfMemory.into())
    }

    /// Sends what goes before everything else.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sending(cx))?;
        if let Some(early) = self.client.take_early() {
            self.early.extend_from_slice(&early);
        }
        while !self.early.is_empty() {
            let written = ready!(self.stream.poll_write(cx, &self.early))?;
            self.early.drain(..written);
            self.noted_traffic(ListenerCounter::BytesWritten, written);
        }
        Poll::Ready(Ok(()))
    }

    /// What a write came to.
    fn wrote(&mut self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match outcome {
            Poll::Ready(Ok(bytes)) => {
                self.noted_traffic(ListenerCounter::BytesWritten, bytes);
                if self.opened.info.activity() == Activity::WritingHeld {
                    self.opened.info.set_activity(Activity::Serving);
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => {
                self.opened.note_blocked();
                Poll::Pending
            }
            error => error,
        }
    }
}

/// Tells who answers that the last request that passed asks for another protocol, if it does.
fn note_upgrade(client: &Client, guard: &Guard) {
    if guard.is_upgrading() {
        client.ask_for_upgrade(guard.heads() - 1);
    }
}

impl Read for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.note_reader(cx);
        loop {
            if this.passed_at < this.passed.len() {
                let rest = &this.passed[this.passed_at..];
                let bytes = rest.len().min(buffer.remaining());
                buffer.put_slice(&rest[..bytes]);
                this.passed_at += bytes;
                if this.passed_at == this.passed.len() {
                    this.passed = Vec::new();
                    this.passed_at = 0;
                }
                this.charge()?;
                return Poll::Ready(Ok(()));
            }
            if this.is_refused {
                // Nothing that comes after it is a request.
                return Poll::Pending;
            }
            // Nobody is read from who does not take his answers.
            let sending = this.poll_sending(cx);
            if sending.is_pending() {
                this.charge()?;
            }
            match this.opened.info.kicked() {
                Kick::None | Kick::Stop | Kick::Head => {}
                _ => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            }
            ready!(sending)?;
            if this.pass(cx)? {
                continue;
            }
            if this.sending.is_some() {
                continue;
            }
            if this.is_deaf {
                return Poll::Ready(Ok(()));
            }
            if this.guard.as_ref().is_some_and(Guard::is_upgrading) {
                // Read on when it is answered, which polls this again.
                this.opened.info.set_activity(Activity::Serving);
                return Poll::Pending;
            }
            let is_first = this.raw.is_empty();
            if is_first && let Some(passed) = this.poll_straight(cx, &mut buffer) {
                return passed;
            }
            if is_first && (!this.raw.is_empty() || this.is_quiet) {
                continue;
            }
            let filled = this.poll_fill(cx);
            if filled.is_pending() {
                this.note_waiting();
                this.charge()?;
            }
            ready!(filled)?;
        }
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_early(cx))?;
        let outcome = this.stream.poll_write(cx, bytes);
        this.wrote(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_early(cx))?;
        let outcome = this.stream.poll_write_vectored(cx, slices);
        this.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_early(cx))?;
        this.note_quiet();
        this.stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_quiet = false;
        ready!(this.poll_sending(cx))?;
        ready!(this.stream.poll_close(cx));
        this.stream.shutdown_write()?;
        if !this.is_refused {
            return Poll::Ready(Ok(()));
        }
        // A reset would overtake the answer: what the client still sends is read and forgotten, up to a limit that the
        // sweep sets in time.
        this.opened.info.set_activity(Activity::ReadingBody);
        loop {
            let read = worker::with(|worker| this.stream.poll_read(cx, &mut worker.input[..]));
            match ready!(read) {
                Ok(bytes @ 1..) if this.lingered_bytes < LINGER_BYTES_MAX => this.lingered_bytes += bytes,
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.opened.shared.buffers.resize(self.charged_bytes, 0);
    }
}
