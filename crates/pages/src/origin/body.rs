//! Bodies on their way: a request's to an origin, and an answer's from it.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::FetchError;
use super::connection::Returning;
use crate::ticks::{Deadline, Ticks};

/// What a request to an origin carries.
#[derive(Debug, Default)]
pub enum RequestBody {
    /// Nothing.
    #[default]
    Empty,
    /// What its client sends, as it arrives.
    Client(Box<ClientBody>),
}

impl RequestBody {
    /// What a client sends; of one that takes too long it fails.
    pub(crate) fn client(body: Incoming, ticks: &Arc<Ticks>) -> RequestBody {
        let progress = Arc::default();
        RequestBody::Client(Box::new(ClientBody { body, ticks: Arc::clone(ticks), pace: Pace::default(), progress }))
    }

    /// How it gets on.
    pub(super) fn progress(&self) -> Arc<Progress> {
        match self {
            RequestBody::Empty => Arc::default(),
            RequestBody::Client(client) => Arc::clone(&client.progress),
        }
    }
}

/// See [`RequestBody::Client`].
#[derive(Debug)]
pub struct ClientBody {
    body: Incoming,
    ticks: Arc<Ticks>,
    pace: Pace,
    progress: Arc<Progress>,
}

/// How a request's body gets on, for who waits for the answer: that may be late because of its client.
#[derive(Debug, Default)]
pub(super) struct Progress {
    has_moved: AtomicBool,
    awaits_client: AtomicBool,
}

impl Progress {
    /// Is it the client that is waited for, or did it send something since this was asked last?
    pub(super) fn excuses(&self) -> bool {
        self.has_moved.swap(false, Ordering::Relaxed) | self.awaits_client.load(Ordering::Relaxed)
    }
}

/// How long a client may let itself be waited for at once, and in all while it sends less than
/// [`BYTES_PER_SECOND_MIN`].
const WAIT_MAX: Duration = Duration::from_secs(30);
const BYTES_PER_SECOND_MIN: u64 = 100;

/// How fast a client sends, not counting the time in which nobody would have taken it.
#[derive(Debug, Default)]
struct Pace {
    bytes: u64,
    waited: Duration,
    since: Option<(Instant, Deadline)>,
}

impl Pace {
    /// It has sent so many bytes, or all.
    fn sent(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes as u64;
        if let Some((since, _)) = self.since.take() {
            self.waited += now.duration_since(since);
        }
    }

    /// It is waited for: is it too slow?
    fn is_too_slow(&mut self, ticks: &Ticks, now: Instant) -> bool {
        let (since, _) = self.since.get_or_insert_with(|| (now, Deadline::after(ticks, WAIT_MAX)));
        let at_once = now.duration_since(*since);
        let waited = self.waited + at_once;
        at_once > WAIT_MAX || waited > WAIT_MAX && self.bytes < waited.as_secs() * BYTES_PER_SECOND_MIN
    }
}

/// A client's body is not to be had.
#[derive(Debug)]
pub enum ClientBodyError {
    /// It broke off.
    Broken(hyper::Error),
    /// It takes too long.
    TooSlow,
}

impl fmt::Display for ClientBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientBodyError::Broken(error) => error.fmt(f),
            ClientBodyError::TooSlow => f.write_str("expected the body faster"),
        }
    }
}

impl std::error::Error for ClientBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientBodyError::Broken(error) => error.source(),
            ClientBodyError::TooSlow => None,
        }
    }
}

impl ClientBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let now = self.ticks.now();
        match &polled {
            Poll::Pending => {
                self.progress.awaits_client.store(true, Ordering::Relaxed);
                if self.pace.is_too_slow(&self.ticks, now) {
                    return Poll::Ready(Some(Err(ClientBodyError::TooSlow)));
                }
                if let Some((_, deadline)) = &mut self.pace.since {
                    // Asked again at each tick.
                    let _ = deadline.has_passed(&self.ticks, cx);
                }
            }
            Poll::Ready(frame) => {
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                self.pace.sent(data.map_or(0, Bytes::len), now);
                self.progress.awaits_client.store(false, Ordering::Relaxed);
                self.progress.has_moved.store(true, Ordering::Relaxed);
            }
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(ClientBodyError::Broken)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            RequestBody::Empty => Poll::Ready(None),
            RequestBody::Client(client) => client.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Client(client) => client.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Client(client) => client.body.size_hint(),
        }
    }
}

/// So much of an answer's body is looked at before its head goes anywhere, and at most one piece more.
const BEGIN_BYTES: u64 = 16 * 1024;

/// An answer's body. It fails when it is not whole or pauses for too long; after its end the connection is idle again.
#[derive(Debug)]
pub struct OriginBody {
    body: Incoming,
    /// What was there when the answer was looked at ([`OriginBody::begin`]).
    begin: VecDeque<Frame<Bytes>>,
    returning: Option<Returning>,
    ticks: Arc<Ticks>,
    pause_max: Duration,
    /// By when more is to come; only while it is waited for, since nobody may have asked.
    deadline: Option<Deadline>,
}

impl OriginBody {
    pub(super) fn new(
        body: Incoming,
        returning: Option<Returning>,
        ticks: &Arc<Ticks>,
        pause_max: Duration,
    ) -> OriginBody {
        let ticks = Arc::clone(ticks);
        let mut body = OriginBody { body, begin: VecDeque::new(), returning, ticks, pause_max, deadline: None };
        body.give_back_at_end();
        body
    }

    /// Looks at what has come of it together with the head, up to [`BEGIN_BYTES`], and waits for nothing: an answer whose
    /// body turns out to be broken by then is none, and nobody has been told anything of it yet.
    pub(super) async fn begin(&mut self) -> Result<(), hyper::Error> {
        let mut has_waited = false;
        while !self.body.is_end_stream() && self.begin_bytes() < BEGIN_BYTES {
            match poll_fn(|cx| Poll::Ready(Pin::new(&mut self.body).poll_frame(cx))).await {
                Poll::Ready(Some(frame)) => {
                    self.begin.push_back(frame?);
                    has_waited = false;
                }
                Poll::Ready(None) => break,
                // The connection reads on when it is asked to, in a task of this thread.
                Poll::Pending if !has_waited => {
                    has_waited = true;
                    tokio::task::yield_now().await;
                }
                Poll::Pending => break,
            }
        }
        self.give_back_at_end();
        Ok(())
    }

    fn begin_bytes(&self) -> u64 {
        self.begin.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum()
    }

    /// Bytes of the whole body, where the head says so. Asked before any of it is taken.
    pub(crate) fn bytes_announced(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(returning) = self.returning.take()
        {
            returning.give_back();
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = FetchError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, FetchError>>> {
        let this = self.get_mut();
        if let Some(frame) = this.begin.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            let deadline = this.deadline.get_or_insert_with(|| Deadline::after(&this.ticks, this.pause_max));
            return match deadline.has_passed(&this.ticks, cx) {
                true => Poll::Ready(Some(Err(FetchError::BetweenBytesTimeout))),
                false => Poll::Pending,
            };
        };
        this.deadline = None;
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                this.give_back_at_end();
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(FetchError::BrokenBody(error))),
            None => {
                if let Some(returning) = this.returning.take() {
                    returning.give_back();
                }
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.begin.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        rest.exact().map_or(rest, |rest| SizeHint::with_exact(rest + self.begin_bytes()))
    }
}

/// Waits for the next piece of data; trailers are passed over.
pub(crate) async fn next_piece(body: &mut OriginBody) -> Option<Result<Bytes, FetchError>> {
    poll_fn(|cx| {
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_trickles_or_stops_is_too_slow_and_who_is_not_asked_is_not() {
        let (begin, ticks) = (Instant::now(), Ticks::default());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut trickles = Pace::default();
        let is_too_slow = (0..60).find(|second| {
            let is_too_slow = trickles.is_too_slow(&ticks, at(*second));
            trickles.sent(50, at(*second + 1));
            is_too_slow
        });
        assert_eq!(is_too_slow, Some(31), "seconds that it had been waited for");
        let mut keeps_up = Pace::default();
        assert!((0..600).all(|second| {
            let is_too_slow = keeps_up.is_too_slow(&ticks, at(second));
            keeps_up.sent(200, at(second + 1));
            !is_too_slow
        }));
        assert!(
            !keeps_up.is_too_slow(&ticks, at(700))
                && !keeps_up.is_too_slow(&ticks, at(730))
                && keeps_up.is_too_slow(&ticks, at(731))
        );
        let mut waits = Pace::default();
        // An origin takes nothing for ten minutes.
        waits.sent(10, at(0));
        waits.sent(10, at(600));
        assert!(
            !waits.is_too_slow(&ticks, at(600))
                && !waits.is_too_slow(&ticks, at(630))
                && waits.is_too_slow(&ticks, at(631))
        );
    }
}
