//! Bodies on their way: a request's to an origin, and an answer's from it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

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
    Client(Incoming),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            RequestBody::Empty => Poll::Ready(None),
            RequestBody::Client(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Client(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Client(body) => body.size_hint(),
        }
    }
}

/// An answer's body. It fails when it is not whole or pauses for too long; after its end the connection is idle again.
#[derive(Debug)]
pub struct OriginBody {
    body: Incoming,
    returning: Option<Returning>,
    ticks: Arc<Ticks>,
    pause_max: Duration,
    deadline: Deadline,
}

impl OriginBody {
    pub(super) fn new(
        body: Incoming,
        returning: Option<Returning>,
        ticks: &Arc<Ticks>,
        pause_max: Duration,
    ) -> OriginBody {
        let mut body =
            OriginBody { body, returning, ticks: Arc::clone(ticks), pause_max, deadline: Deadline::after(pause_max) };
        body.give_back_at_end();
        body
    }

    /// Bytes of the whole body, where the head says so.
    pub(crate) fn bytes_announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
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
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            return match this.deadline.has_passed(&this.ticks, cx) {
                true => Poll::Ready(Some(Err(FetchError::BetweenBytesTimeout))),
                false => Poll::Pending,
            };
        };
        this.deadline.set(this.pause_max);
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
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits for the next piece of data; trailers are passed over.
pub(crate) async fn next_piece(body: &mut OriginBody) -> Option<Result<Bytes, FetchError>> {
    std::future::poll_fn(|cx| {
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
