//! HTTP listeners: connections of theirs on the workers. What is answered is `nuthatch-pages`' business; here are the
//! sockets, the settings made into sites, and the same limits, counters and ends that other connections have.
//!
//! | module | owns |
//! |---|---|
//! | `wire` | a connection's bytes: the guard, deadlines, what is counted |
//! | `house` | what a site asks of the server |
//! | `fleet` | what a site asks of the fleet behind its pool |
//! | `sites` | which listener serves what |
//! | `trust` | who origins are to be |
//! | `htcp` | purges over UDP |

mod fleet;
mod house;
pub(crate) mod htcp;
pub(crate) mod sites;
pub(crate) mod trust;
mod wire;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use nuthatch_pages::door::{Client, Site, guard};

use crate::conn::Stream;
use crate::counters::ListenerCounter;
use crate::log::Level;
use crate::settings::Address;
use crate::shared::{ConnectionInfo, Kick, Listener, Peer, Shared};
use wire::{Opened, Version, Wire};

/// Streams of one HTTP/2 connection at a time.
const H2_STREAMS_MAX: u32 = 100;

/// Streams that a client may reset before they were begun to be answered, and those of its own errors, before its
/// connection is closed (rapid reset, CVE-2023-44487; MadeYouReset, CVE-2025-8671).
const H2_PENDING_RESETS_MAX: usize = 20;
const H2_ERROR_RESETS_MAX: usize = 100;

/// Bytes of a head of HTTP/2, decoded.
const H2_HEAD_BYTES_MAX: u32 = guard::HEAD_BYTES_MAX as u32;

/// Bytes that hyper may keep of an HTTP/1 connection's input: at least a whole head.
const H1_BUFFER_BYTES_MAX: usize = 2 * guard::HEAD_BYTES_MAX;

/// Takes charge of an accepted socket, which the control thread has counted as open.
pub(crate) fn open(
    shared: &Arc<Shared>,
    worker: usize,
    id: u64,
    stream: Stream,
    peer: Peer,
    listener: Arc<Listener>,
    site: Arc<Site>,
) {
    let (address, port) = match (peer, &listener.address) {
        (Peer::Internet(peer), Address::Tcp(own)) => (Some(peer.ip()), own.port()),
        (Peer::Internet(peer), _) => (Some(peer.ip()), 0),
        (Peer::Unix, _) => (None, 0),
    };
    let client = Arc::new(Client::new(address, listener.tls.is_some(), port));
    let opened = Opened::new(shared, worker, id, &stream, peer, listener);
    let wire = Wire::new(stream, opened, Arc::clone(&client), Arc::clone(&site));
    drop(tokio::spawn(serve(wire, client, site)));
}

async fn serve(mut wire: Wire, client: Arc<Client>, site: Arc<Site>) {
    let info = Arc::clone(wire.info());
    let shared = Arc::clone(wire.shared());
    let mut is_woken_by_kicks = false;
    let mut set_waker = |cx: &mut Context<'_>| {
        if !is_woken_by_kicks {
            is_woken_by_kicks = true;
            info.set_waker(cx.waker());
        }
    };
    let version = poll_fn(|cx| {
        set_waker(cx);
        wire.poll_version(cx)
    });
    let version = match version.await {
        Ok(version) => version,
        Err(error) => {
            if error.kind() == ErrorKind::InvalidData {
                shared.log.line(Level::Warning, format_args!("closing {}: HTTP: {error}", info.peer));
            }
            return;
        }
    };
    let counted = Arc::clone(wire.opened());
    let service = service_fn(move |request| {
        counted.count(ListenerCounter::Requests, 1);
        let answer = site.answer(&client, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let outcome = match version {
        Version::Http1 => {
            let mut builder = http1::Builder::new();
            builder.half_close(true).max_buf_size(H1_BUFFER_BYTES_MAX).max_headers(guard::FIELDS_MAX);
            let connection = builder.serve_connection(wire, service).with_upgrades();
            drive(connection, |connection| connection.graceful_shutdown(), &info).await
        }
        Version::Http2 => {
            let mut builder = http2::Builder::new(OnThisWorker);
            builder
                .max_concurrent_streams(H2_STREAMS_MAX)
                .max_pending_accept_reset_streams(H2_PENDING_RESETS_MAX)
                .max_local_error_reset_streams(H2_ERROR_RESETS_MAX)
                .max_header_list_size(H2_HEAD_BYTES_MAX);
            drive(builder.serve_connection(wire, service), |connection| connection.graceful_shutdown(), &info).await
        }
    };
    if let Err(error) = outcome
        && shared.log.shows(Level::Warning)
    {
        complain(&shared, &info, &error);
    }
}

/// Serves until the client leaves, or the sweep or the control thread says so; `finish` has the connection take no more
/// requests.
async fn drive<C>(connection: C, finish: impl Fn(Pin<&mut C>), info: &ConnectionInfo) -> Result<(), hyper::Error>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    poll_fn(|cx| {
        if let Some(over) = attend(info, &mut is_stopping, || finish(connection.as_mut())) {
            return Poll::Ready(over);
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// Says why a connection ended, unless its client has just gone away.
fn complain(shared: &Shared, info: &ConnectionInfo, error: &hyper::Error) {
    let mut line = error.to_string();
    // A client that goes away in the middle of something is no news.
    let mut is_gone = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        is_gone |= error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::TimedOut)
        });
        cause = error.source();
    }
    if !is_gone {
        shared.log.line(Level::Warning, format_args!("closing {}: HTTP: {line}", info.peer));
    }
}

/// Does what the sweep and the control thread ask of a connection: whether it is over.
fn attend(info: &ConnectionInfo, is_stopping: &mut bool, finish: impl FnOnce()) -> Option<Result<(), hyper::Error>> {
    match info.kicked() {
        Kick::None | Kick::Head => None,
        Kick::Stop => {
            if !*is_stopping {
                *is_stopping = true;
                finish();
            }
            None
        }
        // The wire says and counts why.
        Kick::Idle | Kick::Stall | Kick::Handshake => Some(Ok(())),
    }
}

/// Streams are tasks of the worker that has the connection.
#[derive(Clone, Copy)]
struct OnThisWorker;

impl<F> Executor<F> for OnThisWorker
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        drop(tokio::spawn(future));
    }
}
