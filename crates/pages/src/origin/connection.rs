//! Connections to origins: made when they are needed, kept while idle by the worker whose tasks run them, and given up
//! when the origin closes them or their time is over.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::body::{OriginBody, RequestBody};
use super::health::ProbeError;
use super::{Early, FetchError, Origins, Server, ServerAddress, probe_request, tls};
use crate::ticks::Ticks;

/// Fields of an answer's head.
const FIELDS_MAX: usize = 200;

/// Bytes of an answer's head, and of what is read of its body at once.
const BUFFER_BYTES_MAX: usize = 256 * 1024;

/// How often a server that closes idle connections just as they are used is asked again on another one.
const STALE_CONNECTIONS_MAX: usize = 8;

type Sender = SendRequest<RequestBody>;

struct Idle {
    sender: Sender,
    since: Instant,
}

thread_local! {
    /// This worker's idle connections, by the server's number; the one that was used last is the last. Of each server that
    /// is in it a task gives up those whose time is over.
    static IDLE: RefCell<HashMap<usize, Vec<Idle>>> = RefCell::default();
}

/// A connection that is in use, and where it goes afterwards.
#[derive(Debug)]
pub(super) struct Returning {
    sender: Sender,
    server: usize,
    idle_max: usize,
    idle_timeout: Duration,
    ticks: Arc<Ticks>,
}

impl Returning {
    /// Keeps it for the next request.
    pub(super) fn give_back(self) {
        let Returning { sender, server, idle_max, idle_timeout, ticks } = self;
        if idle_max == 0 || sender.is_closed() {
            return;
        }
        // A thread that is ending has given its connections up.
        let _ = IDLE.try_with(|all| {
            let mut all = all.borrow_mut();
            let idle = all.entry(server).or_insert_with(|| {
                drop(tokio::spawn(expire(server, idle_timeout, ticks)));
                Vec::new()
            });
            if idle.len() >= idle_max {
                idle.remove(0);
            }
            idle.push(Idle { sender, since: Instant::now() });
        });
    }
}

/// Keeps those that still stand.
fn retain(idle: &mut Vec<Idle>, idle_timeout: Duration) {
    let now = Instant::now();
    idle.retain(|idle| !idle.sender.is_closed() && now.duration_since(idle.since) < idle_timeout);
}

/// Gives up a server's connections whose time is over, until none is left. A server that is asked no more, or is in the
/// settings no more, keeps none.
async fn expire(server: usize, idle_timeout: Duration, ticks: Arc<Ticks>) {
    let mut has_some = true;
    while has_some {
        ticks.sleep(idle_timeout).await;
        has_some = IDLE.with_borrow_mut(|all| {
            let Some(idle) = all.get_mut(&server) else { return false };
            retain(idle, idle_timeout);
            if idle.is_empty() {
                all.remove(&server);
            }
            all.contains_key(&server)
        });
    }
}

/// The idle connection that was used last, if there is one that still stands.
fn take(server: usize, idle_timeout: Duration) -> Option<Sender> {
    IDLE.with_borrow_mut(|all| {
        let idle = all.get_mut(&server)?;
        retain(idle, idle_timeout);
        idle.pop().map(|idle| idle.sender)
    })
}

async fn connect(origins: &Origins, server: &Server) -> Result<Sender, FetchError> {
    let address = &server.address;
    let connecting = async {
        let stream = async {
            let stream = TcpStream::connect((address.host(), address.port())).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = stream.await.map_err(|error| FetchError::Connect(address.clone(), error))?;
        match &server.tls_name {
            None => begin(address, stream).await,
            Some(name) => {
                let stream = tls::shake_hands(origins.trust(), name, stream).await;
                let why = |error| FetchError::Tls(address.clone(), tls::sentence(&error, name, &origins.settings.tls));
                begin(address, stream.map_err(why)?).await
            }
        }
    };
    let in_time = origins.ticks.within(origins.settings.connect_timeout, connecting).await;
    in_time.unwrap_or_else(|| Err(FetchError::ConnectTimeout(address.clone())))
}

/// Speaks HTTP over `stream` from now on.
async fn begin<S>(address: &ServerAddress, stream: S) -> Result<Sender, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = Builder::new()
        .max_headers(FIELDS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| FetchError::Broken(address.clone(), error))?;
    // What goes wrong with it is told to whoever waits for its answer.
    drop(tokio::spawn(async move { drop(connection.with_upgrades().await) }));
    Ok(sender)
}

/// Asks one server. `body` is taken once it begins to be sent; with `can_repeat` it is empty, and the request may be
/// sent again when the connection turns out to have been closed.
pub(super) async fn ask(
    origins: &Origins,
    server: &Server,
    parts: &Parts,
    body: &mut RequestBody,
    can_repeat: bool,
) -> Result<Response<OriginBody>, FetchError> {
    let settings = &origins.settings;
    let is_upgrade = parts.headers.contains_key(UPGRADE);
    for _ in 0..STALE_CONNECTIONS_MAX {
        let idle = take(server.number, settings.idle_timeout);
        let is_reused = idle.is_some();
        let mut sender = match idle {
            Some(mut sender) => match sender.ready().await {
                Ok(()) => sender,
                Err(_) => continue,
            },
            None => connect(origins, server).await?,
        };
        let mut request = Request::from_parts(parts.clone(), std::mem::take(body));
        if let Some(early) = request.extensions_mut().remove::<Early>() {
            hyper::ext::on_informational(&mut request, move |head| early.tell(head.status(), head.headers()));
        }
        // The answer's time begins when all is sent, which is the client's business.
        let progress = request.body().progress();
        let answer = sender.try_send_request(request);
        match origins.ticks.within_unless(settings.first_byte_timeout, || progress.excuses(), answer).await {
            None => return Err(FetchError::FirstByteTimeout(server.address.clone())),
            Some(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS && !is_upgrade => {
                return Err(FetchError::Unasked(server.address.clone()));
            }
            Some(Ok(response)) if !is_framed_once(response.headers()) => {
                return Err(FetchError::Framing(server.address.clone()));
            }
            Some(Ok(response)) => {
                // Of a connection that speaks another protocol from now on, nothing comes back.
                let returning = (response.status() != StatusCode::SWITCHING_PROTOCOLS).then(|| Returning {
                    sender,
                    server: server.number,
                    idle_max: settings.idle_connections_max,
                    idle_timeout: settings.idle_timeout,
                    ticks: Arc::clone(&origins.ticks),
                });
                let pause_max = settings.between_bytes_timeout;
                let mut response = response.map(|body| OriginBody::new(body, returning, &origins.ticks, pause_max));
                let begun = response.body_mut().begin().await;
                return match begun {
                    Ok(()) => Ok(response),
                    Err(error) => Err(FetchError::Broken(server.address.clone(), error)),
                };
            }
            Some(Err(mut error)) => {
                let unsent = error.take_message();
                let was_sent = unsent.is_none();
                if let Some(request) = unsent {
                    *body = request.into_body();
                }
                if is_reused && (!was_sent || can_repeat) {
                    continue;
                }
                let error = error.into_error();
                return Err(match error.is_user() && !can_repeat {
                    true => FetchError::Client(error),
                    false => FetchError::Broken(server.address.clone(), error),
                });
            }
        }
    }
    let closed = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "it closes connections as they are used");
    Err(FetchError::Connect(server.address.clone(), closed))
}

/// Codings of a transfer that change its bytes (RFC 9112, 7.2).
const COMPRESSIONS: [&[u8]; 5] = [b"gzip", b"x-gzip", b"compress", b"x-compress", b"deflate"];

/// Is there one way to understand where an answer ends, and what its body is? Nobody was asked for a coding of the transfer,
/// so none but `chunked` could be undone or handed on, and two lengths are a sign of somebody between (RFC 9112, 6.1 and
/// 6.3). A word that is no coding at all says nothing: such an answer ends with its connection.
fn is_framed_once(headers: &HeaderMap) -> bool {
    let (mut count, mut has_chunked, mut has_compression) = (0, false, false);
    for line in headers.get_all(TRANSFER_ENCODING) {
        for coding in line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            count += 1;
            has_chunked |= coding.eq_ignore_ascii_case(b"chunked");
            has_compression |= COMPRESSIONS.iter().any(|other| coding.eq_ignore_ascii_case(other));
        }
    }
    count == 0 || !has_compression && !(has_chunked && (count > 1 || headers.contains_key(CONTENT_LENGTH)))
}

/// Whether a server answers a request for `path` with success or a redirection, on a connection of its own; if not, why.
pub(super) async fn probe(origins: &Origins, server: &Server, path: &str) -> Result<(), ProbeError> {
    let request = probe_request(&server.address.authority(), path).ok_or(ProbeError::Unaskable)?;
    let asking = async {
        let mut sender = connect(origins, server).await.map_err(ProbeError::Failed)?;
        let broken = |error| ProbeError::Failed(FetchError::Broken(server.address.clone(), error));
        let response = sender.send_request(request.map(|()| RequestBody::Empty)).await.map_err(broken)?;
        match response.status() {
            status if status.is_success() || status.is_redirection() => Ok(()),
            status => Err(ProbeError::Status(status)),
        }
    };
    let time = origins.settings.health_interval.max(MIN_PROBE_TIME);
    origins.ticks.within(time, asking).await.unwrap_or(Err(ProbeError::Late(time)))
}

/// A probe has at least this long.
const MIN_PROBE_TIME: Duration = Duration::from_secs(1);
