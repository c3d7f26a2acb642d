//! A visit: one request, from its head to the head of its answer, as far as nothing is looked for but what can be served at
//! once ([`super::look`] goes on).
//!
//! ```text
//!  refused? ─ PURGE? ─ its page ─ session, method: pass ─ the shelf ─ fresh: HIT
//!                                                            │ stale, absent
//!                                                            ▼
//!                                       join the page's flight: lead (`fetch`) or follow
//! ```
//! A fresh page is answered without a wait and with few allocations ([`Site::answer`] up to the shelf); everything else
//! is in a future of its own, so that the one of each request stays small.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, MAX_FORWARDS, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::answer::{self, How};
use super::body::PageBody;
use super::client::{Answering, Begun, Client, Upgrading};
use super::fetch::Errand;
use super::flight::{Joined, Reader};
use super::forward::{self, Purpose};
use super::log::{Asking, Entry, ResultCode};
use super::marks::{Target, Told};
use super::purge::{Wanted, What};
use super::shelf::Found;
use super::site::Site;
use crate::house::Count;
use crate::key::{PageUrl, UrlError, Visitor, item_key};
use crate::origin::{Early, OriginBody, RequestBody};
use crate::rules::announce::Forward;
use crate::rules::{Class, Decision, Exchange, UnixSeconds, asked, classify, fields, invalidate, judge_post, vary};

/// What [`Site::answer`] makes of a request: an answer that is there, or is awaited.
pub struct Answered {
    answering: Option<Answering>,
    state: State,
}

enum State {
    Ready(Option<Response<PageBody>>),
    Later(Later),
}

impl Future for Answered {
    type Output = Response<PageBody>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<PageBody>> {
        let this = self.get_mut();
        let response = match &mut this.state {
            State::Ready(response) => response.take(),
            State::Later(later) => Some(ready!(later.as_mut().poll(cx))),
        };
        // Polled after its end it waits for ever, which a future may.
        let (Some(response), Some(answering)) = (response, this.answering.take()) else { return Poll::Pending };
        Poll::Ready(response.map(|body| body.of(answering)))
    }
}

/// An answer that takes its time. Boxed, so that the future of an answer at once stays small.
type Later = Pin<Box<dyn Future<Output = Response<PageBody>> + Send>>;

/// A request on its way to its answer.
pub(super) struct Visit {
    pub(super) site: Arc<Site>,
    pub(super) client: Arc<Client>,
    pub(super) request: Parts,
    /// Gone once it is on its way.
    body: Option<Incoming>,
    pub(super) url: PageUrl,
    pub(super) key: String,
    pub(super) entry: Option<Box<Entry>>,
    /// Its client would rather speak another protocol.
    upgrading: Option<Upgrading>,
}

impl Site {
    /// Answers a request, at once where nothing has to be waited for. No other thread's counts of references are touched
    /// then.
    pub fn answer(self: &Arc<Site>, client: &Arc<Client>, request: Request<Incoming>) -> Answered {
        let answering = Some(Answering::begin(client));
        match self.quickly(client, request) {
            Ok(response) => Answered { answering, state: State::Ready(Some(response)) },
            Err(later) => Answered { answering, state: State::Later(later) },
        }
    }

    /// Answers at once, or says what to wait for.
    fn quickly(
        self: &Arc<Site>,
        client: &Arc<Client>,
        request: Request<Incoming>,
    ) -> Result<Response<PageBody>, Later> {
        let (mut request, body) = request.into_parts();
        fields::strip_named_by_client(&mut request.headers);
        let begun = if request.version == Version::HTTP_2 { Begun::Plain } else { client.begin_request() };
        let entry = self.log.as_ref().map(|log| {
            let url = shown_url(&request, client.is_tls);
            let asking = Asking::new(request.method.as_str(), url, &request.headers);
            Entry::begin(log, client.address, request.version, asking)
        });
        let upgrading = match begun {
            Begun::Refused(why) => {
                let status = StatusCode::from_u16(why.status()).unwrap_or(StatusCode::BAD_REQUEST);
                return Ok(self.refuse(client, entry, status, &why));
            }
            Begun::Upgrading(upgrading) => Some(upgrading),
            Begun::Plain => None,
        };
        if request.method == Method::OPTIONS && is_for_us(&request) {
            let response = answer::respond(StatusCode::OK, HeaderMap::new(), PageBody::empty());
            let how = How::forwarded(ResultCode::None, Forward::Method, false);
            return Ok(self.finish(client, response, how, entry));
        }
        let url = match self.url_of(&request, client) {
            Ok(url) => url,
            Err(why) => return Ok(self.refuse(client, entry, StatusCode::BAD_REQUEST, &why)),
        };
        let key = item_key(&url);
        let mut is_private = false;
        let class = match classify(&request.method, &request.headers, &self.settings.rules) {
            Class::Lookup(_) if upgrading.is_some() => Class::Pass,
            Class::Lookup(asked) if self.is_private(&request.headers) => {
                is_private = true;
                if asked.only_if_cached { Class::Lookup(asked) } else { Class::Pass }
            }
            class => class,
        };
        let Class::Lookup(asked) = class else {
            let visit = Visit { upgrading, ..Visit::new(self, client, (request, body), url, key, entry) };
            let reason = if is_private { Forward::Bypass } else { Forward::Method };
            return Err(Box::pin(visit.without_looking(class, reason)));
        };
        self.house.count(Count::Lookup, 1);
        let now = self.house.unix_seconds();
        let found = match is_private {
            true => Found::Nothing,
            false => self.find(&key, &request.headers, now),
        };
        let found = match found {
            Found::Page(page) if page.is_whole() && page.policy.decide(&asked, now) == Decision::Hit => {
                let mut how = How::hit(ResultCode::MemHit, page.policy.fresh_until - now);
                let response = answer::of_page(*page, &asked, &request.headers, now);
                if response.status() == StatusCode::NOT_MODIFIED {
                    how.code = ResultCode::ImsHit;
                }
                self.house.count(Count::Hit, 1);
                return Ok(self.finish(client, response, how, entry));
            }
            found => found,
        };
        let visit = Visit::new(self, client, (request, body), url, key, entry);
        Err(Box::pin(visit.look(asked, found, 0)))
    }

    /// The page that a request is for.
    fn url_of(&self, request: &Parts, client: &Client) -> Result<PageUrl, UrlError> {
        let uri = &request.uri;
        let rules = &self.settings.urls;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        // A whole URL may have a query and no path: http://host?query.
        let target = if target.starts_with('?') { &format!("/{target}") } else { target };
        let mut hosts = request.headers.get_all(HOST).iter();
        let host = hosts.next();
        // The guard sees to it that HTTP/1 has one. HTTP/2 has :authority, of which Host is no more than a copy (RFC 9113,
        // section 8.3.1).
        if request.version == Version::HTTP_2 {
            let named = uri.authority().map(|authority| authority.as_str().as_bytes());
            let named = named.or_else(|| host.map(HeaderValue::as_bytes)).unwrap_or_default();
            if host.iter().copied().chain(hosts).any(|host| !host.as_bytes().eq_ignore_ascii_case(named)) {
                return Err(UrlError::Hosts);
            }
        }
        // In absolute form the host is the target's, whatever Host says (RFC 9112, section 3.2.2).
        if let Some(authority) = uri.authority() {
            let scheme = match request.version {
                Version::HTTP_2 if client.is_tls => "https",
                Version::HTTP_2 => "http",
                _ => uri.scheme_str().unwrap_or("http"),
            };
            return PageUrl::new(scheme, authority.as_str().as_bytes(), target.as_bytes(), rules);
        }
        let scheme = if client.is_tls { "https" } else { "http" };
        match host {
            Some(host) => PageUrl::new(scheme, host.as_bytes(), target.as_bytes(), rules),
            // HTTP/1.0 need not name one.
            None => PageUrl::new(scheme, b"localhost", target.as_bytes(), rules),
        }
    }

    /// Does a request belong to a session, so that nobody else may see its answer?
    fn is_private(&self, headers: &HeaderMap) -> bool {
        self.settings
            .cookies
            .as_ref()
            .is_some_and(|cookies| headers.contains_key(AUTHORIZATION) || cookies.visitor(headers) == Visitor::Session)
    }

    /// Answers with a refusal, and ends the connection.
    fn refuse(
        &self,
        client: &Client,
        mut entry: Option<Box<Entry>>,
        status: StatusCode,
        why: &dyn std::fmt::Display,
    ) -> Response<PageBody> {
        match client.address {
            Some(address) => self.house.warn(format_args!("http: refused a request of {address}: {why}")),
            None => self.house.warn(format_args!("http: refused a request: {why}")),
        }
        if let Some(entry) = &mut entry {
            entry.failed(why);
        }
        let response = answer::last_sentence(status, &why.to_string());
        self.finish(client, response, How::forwarded(ResultCode::Denied, Forward::Bypass, false), entry)
    }

    /// Has an answer say how it came about, and the log too.
    pub(super) fn finish(
        &self,
        client: &Client,
        mut response: Response<PageBody>,
        how: How,
        entry: Option<Box<Entry>>,
    ) -> Response<PageBody> {
        let status = response.status();
        self.house.count(Count::Answered(how.code), 1);
        if let Some(mut entry) = entry {
            let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            entry.answered(status.as_u16(), how.code, content_type);
            response = response.map(|body| body.logged(entry));
        }
        if !matches!(how.code, ResultCode::Denied | ResultCode::None) {
            answer::announce(self.settings.announce, how, client.port, status, response.headers_mut());
        }
        response
    }
}

/// Is an `OPTIONS` about this server (`*`), or to go no further (RFC 9110, 9.3.7 and 7.6.2)?
fn is_for_us(request: &Parts) -> bool {
    request.uri.path() == "*" || request.headers.get(MAX_FORWARDS).is_some_and(|left| left == "0")
}

impl Visit {
    fn new(
        site: &Arc<Site>,
        client: &Arc<Client>,
        (request, body): (Parts, Incoming),
        url: PageUrl,
        key: String,
        entry: Option<Box<Entry>>,
    ) -> Visit {
        let (site, client) = (Arc::clone(site), Arc::clone(client));
        Visit { site, client, request, body: Some(body), url, key, entry, upgrading: None }
    }

    pub(super) fn finish(self, response: Response<PageBody>, how: How) -> Response<PageBody> {
        self.site.finish(&self.client, response, how, self.entry)
    }

    /// The request to send. With `is_watched` its client is told what comes before the answer.
    pub(super) fn forwarded(&self, purpose: Purpose, is_watched: bool) -> Option<Parts> {
        let Parts { method, headers, version, .. } = &self.request;
        let (host, target) = (self.url.authority(), self.url.target());
        let mut parts = forward::request(method, headers, *version, host, target, &self.client, purpose)?;
        if let (Purpose::Shared, Some(codings)) = (purpose, &self.site.settings.accept_encoding) {
            parts.headers.insert(ACCEPT_ENCODING, codings.clone());
        }
        if purpose == Purpose::Shared && self.site.settings.cookies.is_some() {
            // What all will see is made for someone who is nobody.
            parts.headers.remove(COOKIE);
        }
        if is_watched && *version == Version::HTTP_11 {
            let client = Arc::clone(&self.client);
            parts.extensions.insert(Early::new(move |head| client.send_early(head)));
        }
        Some(parts)
    }

    /// An origin's answer that is this client's own.
    pub(super) fn own(&self, response: Response<OriginBody>) -> Response<PageBody> {
        let (mut parts, body) = response.into_parts();
        fields::strip_hop_by_hop(&mut parts.headers);
        answer::dated(&mut parts.headers, self.site.house.unix_seconds());
        let body = if self.request.method == Method::HEAD { PageBody::empty() } else { PageBody::origin(body) };
        answer::respond(parts.status, parts.headers, body)
    }

    fn unforwardable(self) -> Response<PageBody> {
        let site = Arc::clone(&self.site);
        site.refuse(&self.client, self.entry, StatusCode::BAD_REQUEST, &"expected fields that can be forwarded")
    }

    pub(super) fn fail(mut self, status: StatusCode, why: &dyn std::fmt::Display, how: How) -> Response<PageBody> {
        self.site.house.warn(format_args!("http: {} {}: {why}", self.request.method, self.url.form()));
        if let Some(entry) = &mut self.entry {
            entry.failed(why);
        }
        let text = match status {
            StatusCode::GATEWAY_TIMEOUT => "the origin did not answer in time",
            StatusCode::BAD_REQUEST => "the request broke off",
            _ => "the origin cannot be asked",
        };
        self.finish(answer::sentence(status, text), how)
    }

    // ---- What is not looked for ---------------------------------------------------------------------------------

    async fn without_looking(mut self, class: Class, reason: Forward) -> Response<PageBody> {
        if self.request.method == "PURGE" {
            return self.purge().await;
        }
        if self.request.method == Method::CONNECT || self.request.method == Method::TRACE {
            let site = Arc::clone(&self.site);
            let why = "expected another method than CONNECT and TRACE";
            return site.refuse(&self.client, self.entry, StatusCode::METHOD_NOT_ALLOWED, &why);
        }
        if let Some(upgrading) = self.upgrading.take() {
            return self.upgrade(upgrading).await;
        }
        self.pass(class == Class::Unsafe, reason).await
    }

    async fn purge(self) -> Response<PageBody> {
        let denied = How::forwarded(ResultCode::Denied, Forward::Method, false);
        if !self.site.may_purge(self.client.address) {
            let why = "its address is none that may purge";
            self.site.house.warn(format_args!("http: refused PURGE {}: {why}", self.url.form()));
            return self.finish(answer::sentence(StatusCode::FORBIDDEN, why), denied);
        }
        let Some(Wanted { what, is_soft }) = Wanted::of(&self.request.headers) else {
            let why = "expected soft, prefix or all in the field Purge";
            return self.finish(answer::sentence(StatusCode::BAD_REQUEST, why), denied);
        };
        let purging = match what {
            What::Page => self.site.purge_page(&self.url, is_soft),
            What::Prefix => {
                let is_query = self.request.uri.path_and_query().is_some_and(|target| target.as_str().ends_with('?'));
                let Some(purging) = self.site.purge_prefix(&self.url, is_query, is_soft) else {
                    let why = "expected a prefix that ends with / or ?, at most eight directories deep";
                    return self.finish(answer::sentence(StatusCode::BAD_REQUEST, why), denied);
                };
                purging
            }
            What::Tags(tags) => self.site.purge(Target::Tags(tags), is_soft),
            What::Everything => self.site.purge(Target::Everything, is_soft),
        };
        let told = purging.everywhere().await;
        let done = if is_soft { "made stale" } else { "purged" };
        let (status, text) = match told {
            Told { untold: Some(why), .. } => {
                (StatusCode::OK, format!("{done} here; not all of the fleet could be told: {why}"))
            }
            Told { was_there: true, .. } => (StatusCode::OK, done.to_owned()),
            _ => (StatusCode::NOT_FOUND, "not in the cache".to_owned()),
        };
        self.finish(answer::sentence(status, &text), How::forwarded(ResultCode::None, Forward::Method, false))
    }

    /// Asks the origin for this client alone.
    pub(super) async fn pass(mut self, is_unsafe: bool, reason: Forward) -> Response<PageBody> {
        let how = How::forwarded(ResultCode::MissPass, reason, false);
        let body = match self.body.take() {
            Some(body) if !hyper::body::Body::is_end_stream(&body) => {
                RequestBody::client(body, self.site.house.ticks())
            }
            _ => RequestBody::Empty,
        };
        let Some(parts) = self.forwarded(Purpose::Private, true) else { return self.unforwardable() };
        self.site.house.count(Count::Fetched, 1);
        let asked_at = self.site.house.unix_seconds();
        match self.site.origins.ask(parts, body, hash_of(&self.key)).await {
            Ok(response) => {
                if is_unsafe {
                    let rules = &self.site.settings.urls;
                    for url in invalidate::targets(&self.url, response.status(), response.headers(), rules) {
                        self.site.purge_page(&url, false).everywhere().await;
                    }
                    return match self.keep_answer(response, asked_at) {
                        Ok(response) => self.finish(response, How { is_stored: true, ..how }),
                        Err(response) => {
                            let response = self.own(*response);
                            self.finish(response, how)
                        }
                    };
                }
                let response = self.own(response);
                self.finish(response, how)
            }
            Err(error) => self.fail(error.status(), &error, how),
        }
    }

    /// The answer to a `POST`, stored for those who ask for the same page by `GET`, if that may be; else as it is.
    fn keep_answer(
        &self,
        response: Response<OriginBody>,
        asked_at: UnixSeconds,
    ) -> Result<Response<PageBody>, Box<Response<OriginBody>>> {
        let Site { settings, house, flights, .. } = &*self.site;
        let headers = &self.request.headers;
        let asked = asked(&self.request.method, headers, &settings.rules);
        let (now, target, method) = (house.unix_seconds(), self.url.target(), &self.request.method);
        let (status, answer) = (response.status(), response.headers());
        let exchange = Exchange { method, target, asked: &asked, status, response: answer, asked_at, answered_at: now };
        // Of a visitor who may be somebody nothing is kept where sites say who is nobody.
        let is_somebodys = settings.cookies.is_some() && (headers.contains_key(COOKIE) || asked.authorization);
        let is_too_large = response.body().bytes_announced().is_none_or(|bytes| bytes > self.site.body_bytes_max());
        let policy = match judge_post(&exchange, &self.url, &settings.urls, &settings.rules) {
            Some(policy) if !is_somebodys && !is_too_large => policy,
            _ => return Err(Box::new(response)),
        };
        let varies = vary::fields(answer).filter(|varies| !varies.is_empty());
        let Joined::Lead(leader) = flights.join(&self.flight_key(varies.as_deref(), None)) else {
            return Err(Box::new(response));
        };
        let flight = Arc::clone(leader.flight());
        let errand = Errand::new(self, leader, asked);
        let Some(tags) = errand.tags_of(response.headers()) else { return Err(Box::new(response)) };
        let (fetched, own, body) = errand.begin(response, policy, tags, now);
        let mut headers = fetched.headers.clone();
        append(&mut headers, own);
        let bytes = fetched.bytes;
        drop(tokio::spawn(async move { errand.share(&fetched, body).await }));
        let body = Reader::of(&flight).map_or_else(PageBody::empty, |reader| PageBody::flight(reader, bytes));
        Ok(answer::respond(status, headers, body))
    }

    /// Passes the wish to speak another protocol on, and whatever is spoken then.
    async fn upgrade(mut self, upgrading: Upgrading) -> Response<PageBody> {
        let how = How::forwarded(ResultCode::Tunnel, Forward::Bypass, false);
        let wanted = self.request.extensions.remove::<OnUpgrade>();
        let parts = self.forwarded(Purpose::Upgrade, false);
        let (Some(parts), Some(wanted)) = (parts, wanted) else { return self.unforwardable() };
        self.site.house.count(Count::Fetched, 1);
        match self.site.origins.ask(parts, RequestBody::Empty, hash_of(&self.key)).await {
            Err(error) => self.fail(error.status(), &error, how),
            Ok(mut response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let theirs = response.extensions_mut().remove::<OnUpgrade>();
                let protocol = response.headers().get(UPGRADE).cloned();
                let mut headers = std::mem::take(response.headers_mut());
                fields::strip_hop_by_hop(&mut headers);
                headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("upgrade"));
                if let Some(protocol) = protocol {
                    headers.insert(UPGRADE, protocol);
                }
                if let Some(theirs) = theirs {
                    drop(tokio::spawn(tunnel(wanted, theirs)));
                }
                upgrading.grant();
                self.finish(answer::respond(StatusCode::SWITCHING_PROTOCOLS, headers, PageBody::empty()), how)
            }
            Ok(response) => {
                let response = self.own(response);
                self.finish(response, How::forwarded(ResultCode::MissPass, Forward::Bypass, false))
            }
        }
    }
}

/// Adds fields to others.
pub(super) fn append(headers: &mut HeaderMap, more: HeaderMap) {
    let mut last = None;
    for (name, value) in more {
        last = name.or(last);
        if let Some(name) = &last {
            headers.append(name, value);
        }
    }
}

/// Copies between both until one ends.
async fn tunnel(ours: OnUpgrade, theirs: OnUpgrade) {
    let (Ok(ours), Ok(theirs)) = (ours.await, theirs.await) else { return };
    let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
    // How it ends is between the two of them.
    let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
}

/// By what a page's server is chosen.
pub(super) fn hash_of(key: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

/// A request's URL for the log.
fn shown_url(request: &Parts, is_tls: bool) -> String {
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = match (request.uri.authority(), request.headers.get(HOST)) {
        (Some(authority), _) => super::log::shown(authority.as_str().as_bytes()),
        (None, Some(host)) => super::log::shown(host.as_bytes()),
        (None, None) => return super::log::shown(target.as_bytes()),
    };
    format!("{}://{authority}{}", if is_tls { "https" } else { "http" }, super::log::shown(target.as_bytes()))
}
