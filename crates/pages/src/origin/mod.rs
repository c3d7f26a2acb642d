//! Origins: the web servers behind a listener, and asking them.
//!
//! Connections belong to the worker that made them: its tasks run them, and a request finds one that is idle without a
//! lock. What all workers share of a server is whether it is thought to be well. Nothing here knows of caching.
//!
//! | module | owns |
//! |---|---|
//! | `address` | what an operator writes for a server |
//! | `connection` | connecting, and a worker's idle connections |
//! | `health` | who is well; the probes |
//! | `early` | what comes before an answer |
//! | `body` | an answer's body, as it arrives |
//! | `tls` | whether a server is who it should be |
//! | this | choosing a server, asking, and asking another |

mod address;
mod body;
mod connection;
mod early;
mod health;
mod tls;

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

pub use address::{ServerAddress, ServerAddressError};
pub(crate) use body::next_piece;
pub use body::{ClientBody, ClientBodyError, OriginBody, RequestBody};
pub(crate) use early::Early;
use health::Health;
pub use tls::OriginTls;

use crate::ticks::Ticks;

/// A web site's servers, as the operator describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginSettings {
    /// For logs.
    pub name: String,
    /// Never empty.
    pub servers: Vec<ServerAddress>,
    /// Who is asked.
    pub balance: Balance,
    /// How long a connection may take to be there.
    pub connect_timeout: Duration,
    /// How long the head of an answer may take.
    pub first_byte_timeout: Duration,
    /// How long an answer's body may pause.
    pub between_bytes_timeout: Duration,
    /// Idle connections that a worker keeps to a server.
    pub idle_connections_max: usize,
    /// How long they are kept.
    pub idle_timeout: Duration,
    /// How long a connection that speaks another protocol may be silent in both directions; zero for ever.
    pub tunnel_timeout: Duration,
    /// Failures in a row after which a server is left alone for [`OriginSettings::fail_time`]; 0 for never.
    pub fails_max: u32,
    /// For how long.
    pub fail_time: Duration,
    /// The path that is asked for to see whether a server is well; none for no such probes.
    pub health_path: Option<String>,
    /// How often.
    pub health_interval: Duration,
    /// Who servers at `https` addresses are to be.
    pub tls: OriginTls,
}

impl Default for OriginSettings {
    fn default() -> OriginSettings {
        OriginSettings {
            name: String::new(),
            servers: Vec::new(),
            balance: Balance::RoundRobin,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            between_bytes_timeout: Duration::from_secs(60),
            idle_connections_max: 32,
            idle_timeout: Duration::from_secs(30),
            tunnel_timeout: Duration::from_secs(3600),
            fails_max: 3,
            fail_time: Duration::from_secs(10),
            health_path: None,
            health_interval: Duration::from_secs(5),
            tls: OriginTls::default(),
        }
    }
}

/// Which of several servers is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// The same one for the same page, as long as it is well (rendezvous hashing).
    Hash,
}

/// The servers of a site.
pub struct Origins {
    settings: OriginSettings,
    servers: Vec<Server>,
    turn: AtomicUsize,
    ticks: Arc<Ticks>,
    /// What new connections are made with.
    trust: Mutex<Arc<ClientConfig>>,
}

/// One of them.
struct Server {
    /// By which workers find its idle connections; no two of a process have the same.
    number: usize,
    address: ServerAddress,
    /// For whom its certificate is to be, where it speaks TLS.
    tls_name: Option<ServerName<'static>>,
    health: Health,
}

/// Why an origin's answer is not to be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// Nobody answers at its address.
    Connect(ServerAddress, std::io::Error),
    /// Who answers there is not who should, or speaks no TLS: in a sentence, what was expected.
    Tls(ServerAddress, String),
    /// Nobody answered there in time.
    ConnectTimeout(ServerAddress),
    /// No head of an answer came in time.
    FirstByteTimeout(ServerAddress),
    /// The body paused for too long.
    BetweenBytesTimeout,
    /// The connection broke, or what came is no HTTP.
    Broken(ServerAddress, hyper::Error),
    /// It speaks another protocol from now on, which nobody asked for.
    Unasked(ServerAddress),
    /// Its answer has a length and chunks, or a coding of the transfer that nobody asked for.
    Framing(ServerAddress),
    /// The body broke off.
    BrokenBody(hyper::Error),
    /// The client broke off its request's body.
    Client(hyper::Error),
}

impl FetchError {
    /// Was anything sent to the server?
    fn was_sent(&self) -> bool {
        !matches!(self, FetchError::Connect(..) | FetchError::Tls(..) | FetchError::ConnectTimeout(_))
    }

    /// The status to answer a client with.
    pub(crate) fn status(&self) -> http::StatusCode {
        match self {
            FetchError::ConnectTimeout(_) | FetchError::FirstByteTimeout(_) | FetchError::BetweenBytesTimeout => {
                http::StatusCode::GATEWAY_TIMEOUT
            }
            FetchError::Client(_) => http::StatusCode::BAD_REQUEST,
            _ => http::StatusCode::BAD_GATEWAY,
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::Connect(server, error) => write!(f, "origin {server}: cannot connect: {error}"),
            FetchError::Tls(server, why) => write!(f, "origin {server}: {why}"),
            FetchError::ConnectTimeout(server) => write!(f, "origin {server}: no connection in time (connect_timeout)"),
            FetchError::FirstByteTimeout(server) => {
                write!(f, "origin {server}: no answer in time (first_byte_timeout)")
            }
            FetchError::BetweenBytesTimeout => {
                f.write_str("origin: its answer paused for too long (between_bytes_timeout)")
            }
            FetchError::Broken(server, error) => {
                write!(f, "origin {server}: expected an HTTP answer: {}", Chain(error))
            }
            FetchError::Unasked(server) => {
                write!(f, "origin {server}: expected 101 only for a request that asks for another protocol")
            }
            FetchError::Framing(server) => {
                write!(
                    f,
                    "origin {server}: expected a Content-Length or the Transfer-Encoding chunked, not both and no other"
                )
            }
            FetchError::BrokenBody(error) => write!(f, "origin: expected the whole body: {}", Chain(error)),
            FetchError::Client(error) => write!(f, "client: expected the whole body: {}", Chain(error)),
        }
    }
}

impl std::error::Error for FetchError {}

/// An error and what caused it, in one line.
struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Origins {
    /// The servers that `settings` name, of which there is at least one; all are thought to be well. Those at `https`
    /// addresses are spoken to as `trust` has it, which was made of [`OriginSettings::tls`].
    pub fn new(settings: OriginSettings, trust: Arc<ClientConfig>, ticks: Arc<Ticks>) -> Arc<Origins> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let own_name = settings.tls.server_name.as_ref();
        let servers = settings.servers.iter().map(|address| Server {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            address: address.clone(),
            tls_name: address.tls_name().map(|name| own_name.unwrap_or(name).clone()),
            health: Health::default(),
        });
        let (servers, turn, trust) = (servers.collect(), AtomicUsize::new(0), Mutex::new(trust));
        Arc::new(Origins { servers, settings, turn, ticks, trust })
    }

    /// Makes connections with `trust` from now on: what the same files say now. Those that there are go on.
    pub fn set_trust(&self, trust: Arc<ClientConfig>) {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = trust;
    }

    fn trust(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.trust.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What they were made of.
    pub fn settings(&self) -> &OriginSettings {
        &self.settings
    }

    /// Asks for the page whose key hashes to `hash`. A safe request without a body that fails is tried once at each of
    /// the other servers; any other is, as long as none of it was sent.
    pub(crate) async fn ask(
        &self,
        parts: Parts,
        mut body: RequestBody,
        hash: u64,
    ) -> Result<Response<OriginBody>, FetchError> {
        let can_repeat = parts.method.is_safe() && matches!(body, RequestBody::Empty);
        let order = self.order(hash);
        let mut last = None;
        for (index, server) in order.iter().map(|index| &self.servers[*index]).enumerate() {
            let is_last = index + 1 == order.len();
            let result = connection::ask(self, server, &parts, &mut body, can_repeat).await;
            match result {
                Ok(response) => {
                    server.health.succeeded();
                    // Whoever is overloaded or half dead says so; another may not be.
                    let is_failing = matches!(response.status().as_u16(), 502..=504);
                    if !is_failing || !can_repeat || is_last {
                        return Ok(response);
                    }
                }
                Err(error) => {
                    if !matches!(error, FetchError::Client(_)) {
                        server.health.failed(self.settings.fails_max, self.settings.fail_time);
                    }
                    if error.was_sent() && !can_repeat {
                        return Err(error);
                    }
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(FetchError::BetweenBytesTimeout))
    }

    /// Everyone, in the order in which they are to be asked: who is well first, then the others, since being thought ill
    /// is better than nobody being asked.
    fn order(&self, hash: u64) -> Vec<usize> {
        let count = self.servers.len();
        let mut order: Vec<usize> = match self.settings.balance {
            _ if count == 1 => vec![0],
            Balance::RoundRobin => {
                let first = self.turn.fetch_add(1, Ordering::Relaxed);
                (0..count).map(|offset| (first + offset) % count).collect()
            }
            Balance::Hash => {
                let hasher = BuildHasherDefault::<DefaultHasher>::default();
                let mut all: Vec<usize> = (0..count).collect();
                all.sort_by_key(|index| std::cmp::Reverse(hasher.hash_one((hash, &self.servers[*index].address))));
                all
            }
        };
        // Stable: the order among those who are well stays.
        order.sort_by_key(|index| !self.servers[*index].health.is_well());
        order
    }

    /// Asks every server for the health path again and again, until dropped. Ends at once where there is none. A server that
    /// is found otherwise than by the last probe is worth a line for `say`.
    pub async fn probe(self: Arc<Origins>, say: impl Fn(fmt::Arguments<'_>)) {
        let Some(path) = self.settings.health_path.as_deref() else { return };
        loop {
            self.probe_once(path, &say).await;
            self.ticks.sleep(self.settings.health_interval).await;
        }
    }

    async fn probe_once(&self, path: &str, say: impl Fn(fmt::Arguments<'_>)) {
        for server in &self.servers {
            let found = connection::probe(self, server, path).await;
            let (is_changed, address) = (server.health.probed(found.is_ok()), &server.address);
            match found {
                _ if !is_changed => {}
                Ok(()) => say(format_args!("http: origin {address} is well again by its health path {path}")),
                Err(why) => say(format_args!(
                    "http: origin {address} is left alone until its health path {path} finds it well: {why}"
                )),
            }
        }
    }

    /// Whether each server is thought to be well, in their order.
    pub fn health(&self) -> impl Iterator<Item = (&ServerAddress, bool)> {
        self.servers.iter().map(|server| (&server.address, server.health.is_well()))
    }
}

/// A request with an empty body to `authority`, for probes.
fn probe_request(authority: &str, path: &str) -> Option<Request<()>> {
    Request::get(path)
        .header(http::header::HOST, authority)
        .header(http::header::USER_AGENT, "nuthatch-probe")
        .body(())
        .ok()
}

#[cfg(test)]
mod tests {
    use nuthatch_testkit::origin::Origin;
    use tokio_rustls::rustls::RootCertStore;
    use tokio_rustls::rustls::crypto::ring;

    use super::*;

    fn origins(balance: Balance) -> Arc<Origins> {
        let servers = ["http://a:1", "http://b:2", "http://c:3"].map(|text| text.parse().expect("an address"));
        origins_by(OriginSettings { servers: servers.to_vec(), balance, ..OriginSettings::default() })
    }

    fn origins_by(settings: OriginSettings) -> Arc<Origins> {
        let trust = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let trust = trust.with_safe_default_protocol_versions().expect("versions");
        let trust = trust.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        Origins::new(settings, Arc::new(trust), Arc::default())
    }

    #[test]
    fn servers_take_turns_and_the_ill_come_last() {
        let origins = origins(Balance::RoundRobin);
        assert_eq!([origins.order(0), origins.order(0)], [vec![0, 1, 2], vec![1, 2, 0]]);
        origins.servers[2].health.failed(1, Duration::from_secs(3600));
        assert_eq!([origins.order(0), origins.order(0)], [vec![0, 1, 2], vec![0, 1, 2]]);
        origins.servers[2].health.succeeded();
        assert_eq!(origins.order(0), [1, 2, 0]);
    }

    #[test]
    fn by_hash_a_page_stays_with_its_server_when_another_goes() {
        let origins = origins(Balance::Hash);
        let before: Vec<usize> = (0..200).map(|hash| origins.order(hash)[0]).collect();
        for server in 0..3 {
            assert!(before.iter().filter(|first| **first == server).count() > 30, "{before:?}");
        }
        origins.servers[1].health.failed(1, Duration::from_secs(3600));
        for (hash, before) in before.iter().enumerate() {
            let now = origins.order(hash as u64)[0];
            assert!(now == *before || *before == 1 && now != 1);
        }
    }

    #[test]
    fn what_probes_find_is_said_when_it_changes_and_why() {
        // The probes' answers, one after the other; the last one stays.
        let answers = ["200 OK", "503 Busy", "503 Busy", "301 Moved", "200 OK", "404 Gone", "200 OK"];
        let count = AtomicUsize::new(0);
        let origin = Origin::start(move |_, answer| {
            let at = count.fetch_add(1, Ordering::Relaxed);
            answer.reply(answers[at.min(answers.len() - 1)], &["Connection: close"], "");
        });
        let settings =
            OriginSettings { servers: vec![origin.url().parse().expect("an address")], ..OriginSettings::default() };
        let (origins, said) = (origins_by(settings), Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..answers.len() + 1 {
                origins.probe_once("/health", |line| said.lock().expect("no panic").push(line.to_string())).await;
            }
        });
        let url = origin.url();
        let (ill, well) =
            ("is left alone until its health path /health finds it well: ", "is well again by its health path /health");
        let why = "expected success or a redirection, it answered";
        let expected = [format!("{ill}{why} 503"), well.to_owned(), format!("{ill}{why} 404"), well.to_owned()];
        assert_eq!(said.into_inner().expect("no panic"), expected.map(|line| format!("http: origin {url} {line}")));
        assert!(origins.health().all(|(_, is_well)| is_well));
    }

    #[test]
    fn a_probe_that_nobody_answers_says_so() {
        let settings = OriginSettings {
            servers: vec!["http://127.0.0.1:1".parse().expect("an address")],
            ..OriginSettings::default()
        };
        let origins = origins_by(settings);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let found = runtime.block_on(connection::probe(&origins, &origins.servers[0], "/health"));
        let why = found.expect_err("nobody listens").to_string();
        assert!(why.starts_with("origin http://127.0.0.1:1: cannot connect: "), "{why}");
    }
}
