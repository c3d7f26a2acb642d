//! A visit: one request, from its head to the head of its answer.
//!
//! ```text
//!  refused? ─ PURGE? ─ its page ─ session, method: pass ─ the shelf ─ fresh: HIT
//!                                                            │ stale, absent
//!                                                            ▼
//!                                       join the page's flight: lead (`fetch`) or follow
//! ```
//! A fresh page is answered without a wait and with few allocations ([`Site::answer`] up to the shelf); everything else
//! is in a future of its own, so that the one of each request stays small.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use super::answer::{self, How};
use super::body::PageBody;
use super::client::{Answering, Client};
use super::fetch::{Leading, Led};
use super::flight::{Flight, Joined, Released, VARIANT_MARK};
use super::forward::{self, Purpose};
use super::log::{Asking, Entry, ResultCode};
use super::purge;
use super::shelf::{self, Found, Page};
use super::site::Site;
use crate::house::Count;
use crate::key::{PageUrl, UrlError, Visitor, item_key};
use crate::origin::{Early, FetchError, OriginBody, RequestBody};
use crate::rules::announce::Forward;
use crate::rules::{Asked, Class, Decision, OnError, Policy, classify, fields, invalidate, vary};

/// How often a request whose flight brought something else looks again before it asks for itself.
const LOOKS_MAX: usize = 4;

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
    entry: Option<Box<Entry>>,
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
        let (request, body) = request.into_parts();
        let refused = if request.version == Version::HTTP_2 { None } else { client.begin_request() };
        let entry = self.log.as_ref().map(|log| {
            let url = shown_url(&request, client.is_tls);
            let asking = Asking::new(request.method.as_str(), url, &request.headers);
            Entry::begin(log, client.address, request.version, asking)
        });
        if let Some(why) = refused {
            let status = StatusCode::from_u16(why.status()).unwrap_or(StatusCode::BAD_REQUEST);
            return Ok(self.refuse(client, entry, status, &why));
        }
        let url = match self.url_of(&request, client) {
            Ok(url) => url,
            Err(why) => return Ok(self.refuse(client, entry, StatusCode::BAD_REQUEST, &why)),
        };
        let key = item_key(&url);
        let mut is_private = false;
        let class = match classify(&request.method, &request.headers, &self.settings.rules) {
            Class::Lookup(_) if request.headers.contains_key(UPGRADE) => Class::Pass,
            Class::Lookup(asked) if self.is_private(&request.headers) => {
                is_private = true;
                if asked.only_if_cached { Class::Lookup(asked) } else { Class::Pass }
            }
            class => class,
        };
        let Class::Lookup(asked) = class else {
            let visit = Visit {
                site: Arc::clone(self),
                client: Arc::clone(client),
                request,
                body: Some(body),
                url,
                key,
                entry,
            };
            let reason = if is_private { Forward::Bypass } else { Forward::Method };
            return Err(Box::pin(visit.without_looking(class, reason)));
        };
        self.house.count(Count::Lookup, 1);
        let now = self.house.unix_seconds();
        let found = match is_private {
            true => Found::Nothing,
            false => shelf::find(&*self.house, &key, &request.headers, self.cookies(), now),
        };
        if let Found::Page(page) = found {
            if page.policy.decide(&asked, now) == Decision::Hit {
                let mut how = How::hit(ResultCode::MemHit, page.policy.fresh_until - now);
                let response = answer::of_page(*page, &asked, &request.headers, now);
                if response.status() == StatusCode::NOT_MODIFIED {
                    how.code = ResultCode::ImsHit;
                }
                self.house.count(Count::Hit, 1);
                return Ok(self.finish(client, response, how, entry));
            }
            let visit = Visit {
                site: Arc::clone(self),
                client: Arc::clone(client),
                request,
                body: Some(body),
                url,
                key,
                entry,
            };
            return Err(Box::pin(visit.look(asked, Found::Page(page), 0)));
        }
        let visit =
            Visit { site: Arc::clone(self), client: Arc::clone(client), request, body: Some(body), url, key, entry };
        Err(Box::pin(visit.look(asked, found, 0)))
    }

    /// The page that a request is for.
    fn url_of(&self, request: &Parts, client: &Client) -> Result<PageUrl, UrlError> {
        let uri = &request.uri;
        let rules = &self.settings.urls;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
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
        match request.headers.get(HOST) {
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

impl Visit {
    fn finish(self, response: Response<PageBody>, how: How) -> Response<PageBody> {
        self.site.finish(&self.client, response, how, self.entry)
    }

    /// The request to send. With `is_watched` its client is told what comes before the answer.
    pub(super) fn forwarded(&self, purpose: Purpose, is_watched: bool) -> Option<Parts> {
        let Parts { method, headers, version, .. } = &self.request;
        let (host, target) = (self.url.authority(), self.url.target());
        let mut parts = forward::request(method, headers, *version, host, target, &self.client, purpose)?;
        if purpose == Purpose::Shared && self.site.settings.cookies.is_some() {
            // What all will see is made for someone who is nobody.
            parts.headers.remove(http::header::COOKIE);
        }
        if is_watched && *version == Version::HTTP_11 {
            let client = Arc::clone(&self.client);
            parts.extensions.insert(Early::new(move |head| client.send_early(head)));
        }
        Some(parts)
    }

    /// An origin's answer that is this client's own.
    fn own(&self, response: Response<OriginBody>) -> Response<PageBody> {
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

    fn fail(mut self, status: StatusCode, why: &dyn std::fmt::Display, how: How) -> Response<PageBody> {
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

    async fn without_looking(self, class: Class, reason: Forward) -> Response<PageBody> {
        if self.request.method == "PURGE" {
            return self.purge();
        }
        if self.request.method == Method::CONNECT || self.request.method == Method::TRACE {
            let site = Arc::clone(&self.site);
            let why = "expected another method than CONNECT and TRACE";
            return site.refuse(&self.client, self.entry, StatusCode::METHOD_NOT_ALLOWED, &why);
        }
        if self.request.headers.contains_key(UPGRADE) && self.request.version == Version::HTTP_11 {
            return self.upgrade().await;
        }
        self.pass(class == Class::Unsafe, reason).await
    }

    fn purge(self) -> Response<PageBody> {
        let denied = How::forwarded(ResultCode::Denied, Forward::Method, false);
        if !self.site.may_purge(self.client.address) {
            let why = "its address is none that may purge";
            self.site.house.warn(format_args!("http: refused PURGE {}: {why}", self.url.form()));
            return self.finish(answer::sentence(StatusCode::FORBIDDEN, why), denied);
        }
        let is_soft = purge::is_soft(&self.request.headers);
        let was_there = self.site.purge(&self.url, is_soft);
        let (status, text) = match (was_there, is_soft) {
            (true, false) => (StatusCode::OK, "purged"),
            (true, true) => (StatusCode::OK, "made stale"),
            (false, _) => (StatusCode::NOT_FOUND, "not in the cache"),
        };
        self.finish(answer::sentence(status, text), How::forwarded(ResultCode::None, Forward::Method, false))
    }

    /// Asks the origin for this client alone.
    async fn pass(mut self, is_unsafe: bool, reason: Forward) -> Response<PageBody> {
        let how = How::forwarded(ResultCode::MissPass, reason, false);
        let body = match self.body.take() {
            Some(body) if !hyper::body::Body::is_end_stream(&body) => RequestBody::Client(body),
            _ => RequestBody::Empty,
        };
        let Some(parts) = self.forwarded(Purpose::Private, true) else { return self.unforwardable() };
        self.site.house.count(Count::Fetched, 1);
        match self.site.origins.ask(parts, body, hash_of(&self.key)).await {
            Ok(response) => {
                if is_unsafe {
                    let rules = &self.site.settings.urls;
                    for url in invalidate::targets(&self.url, response.status(), response.headers(), rules) {
                        self.site.purge(&url, false);
                    }
                }
                let response = self.own(response);
                self.finish(response, how)
            }
            Err(error) => self.fail(error.status(), &error, how),
        }
    }

    /// Passes the wish to speak another protocol on, and whatever is spoken then.
    async fn upgrade(mut self) -> Response<PageBody> {
        let how = How::forwarded(ResultCode::Tunnel, Forward::Bypass, false);
        let wanted = self.request.extensions.remove::<OnUpgrade>();
        let parts = self.forwarded(Purpose::Upgrade, false);
        let (Some(parts), Some(wanted)) = (parts, wanted) else {
            self.client.answer_upgrade(false);
            return self.unforwardable();
        };
        self.site.house.count(Count::Fetched, 1);
        match self.site.origins.ask(parts, RequestBody::Empty, hash_of(&self.key)).await {
            Err(error) => {
                self.client.answer_upgrade(false);
                self.fail(error.status(), &error, how)
            }
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
                self.client.answer_upgrade(true);
                self.finish(answer::respond(StatusCode::SWITCHING_PROTOCOLS, headers, PageBody::empty()), how)
            }
            Ok(response) => {
                self.client.answer_upgrade(false);
                let response = self.own(response);
                self.finish(response, How::forwarded(ResultCode::MissPass, Forward::Bypass, false))
            }
        }
    }

    // ---- What is looked for -------------------------------------------------------------------------------------

    async fn look(self, asked: Asked, found: Found, looked: usize) -> Response<PageBody> {
        let now = self.site.house.unix_seconds();
        let decision = match &found {
            Found::Page(page) => page.policy.decide(&asked, now),
            _ => Policy::decide_without(&asked),
        };
        let mut varies = None;
        let (page, why) = match (found, decision) {
            (Found::Page(page), Decision::Hit) => return self.serve(*page, &asked, ResultCode::MemHit),
            (Found::Page(page), Decision::HitStale) => return self.serve(*page, &asked, ResultCode::StaleHit),
            (Found::Page(page), Decision::HitWhileRevalidate) => {
                self.refresh(&page, &asked);
                return self.serve(*page, &asked, ResultCode::StaleHit);
            }
            (_, Decision::GatewayTimeout) => {
                self.site.house.count(Count::Miss, 1);
                let response = answer::sentence(StatusCode::GATEWAY_TIMEOUT, "not in the cache");
                return self.finish(response, How::forwarded(ResultCode::OffHit, Forward::Request, false));
            }
            // What is different for each client may go on being so: nobody waits for another's answer.
            (Found::Marker, _) if asked.range || asked.conditional => return self.miss(Forward::UriMiss).await,
            (Found::Marker, _) => (None, Forward::Bypass),
            (Found::Page(page), _) if asked.no_cache => (Some(page), Forward::Request),
            (Found::Page(page), _) => (Some(page), Forward::Stale),
            (Found::OtherVariants(way), _) => {
                varies = Some(way);
                (None, Forward::VaryMiss)
            }
            (Found::Nothing, _) => (None, Forward::UriMiss),
        };
        // What must not be kept, and what is only a head, is asked for alone.
        if looked >= LOOKS_MAX || asked.no_store || asked.head && page.is_none() {
            return self.miss(why).await;
        }
        match self.fly(&asked, page, varies, why).await {
            Flown::Answered(response) => *response,
            Flown::Alone(visit) => visit.miss(why).await,
            Flown::Again(visit, code) => {
                let site = Arc::clone(&visit.site);
                match shelf::find(
                    &*site.house,
                    &visit.key,
                    &visit.request.headers,
                    site.cookies(),
                    site.house.unix_seconds(),
                ) {
                    // Somebody has just asked the origin: it holds, whatever it would be decided on otherwise.
                    Found::Page(page) => visit.serve(*page, &asked, code),
                    found => Box::pin(visit.look(asked, found, looked + 1)).await,
                }
            }
        }
    }

    /// Asks the origin for this client alone, after looking.
    async fn miss(self, why: Forward) -> Response<PageBody> {
        self.site.house.count(Count::Miss, 1);
        self.pass(false, why).await
    }

    fn serve(self, page: Page, asked: &Asked, code: ResultCode) -> Response<PageBody> {
        let now = self.site.house.unix_seconds();
        self.site.house.count(Count::Hit, 1);
        let how = How::hit(code, page.policy.fresh_until - now);
        let response = answer::of_page(page, asked, &self.request.headers, now);
        self.finish(response, how)
    }

    /// Has a stale page refreshed by a flight of its own, if none is under way.
    fn refresh(&self, page: &Page, asked: &Asked) {
        let varies = vary::fields(&page.headers).filter(|varies| !varies.is_empty());
        let Joined::Lead(leader) = self.site.flights.join(&self.flight_key(varies.as_deref())) else { return };
        if let Some(landed) = self.is_there_by_now(asked) {
            leader.release(landed);
        } else if let Some(leading) = Leading::new(self, leader, *asked, Some(page.clone()), false) {
            drop(tokio::spawn(leading.run(None)));
        }
    }

    /// Whether another flight has brought the answer between our look at the shelf and the beginning of our own flight,
    /// and so ended it.
    fn is_there_by_now(&self, asked: &Asked) -> Option<Released> {
        let now = self.site.house.unix_seconds();
        match shelf::find(&*self.site.house, &self.key, &self.request.headers, self.site.cookies(), now) {
            Found::Page(page) if page.policy.decide(asked, now) == Decision::Hit => Some(Released::Look),
            Found::Marker => Some(Released::Uncacheable),
            _ => None,
        }
    }

    /// What requests for one variant share: the page's key, and the request's fields that are known to matter.
    fn flight_key(&self, varies: Option<&[HeaderName]>) -> Vec<u8> {
        let mut key = self.key.clone().into_bytes();
        if let Some(varies) = varies {
            key.push(VARIANT_MARK);
            key.extend_from_slice(&vary::variant(varies, &self.request.headers, self.site.cookies()));
        }
        key
    }

    /// Joins the flight of this page.
    async fn fly(
        mut self,
        asked: &Asked,
        page: Option<Box<Page>>,
        mut varies: Option<Vec<HeaderName>>,
        why: Forward,
    ) -> Flown {
        if let Some(page) = &page {
            varies = vary::fields(&page.headers).filter(|varies| !varies.is_empty());
        }
        for _ in 0..LOOKS_MAX {
            let key = match why {
                // Nobody else has this key.
                Forward::Bypass => [self.key.as_bytes(), &[VARIANT_MARK], &alone().to_be_bytes()].concat(),
                _ => self.flight_key(varies.as_deref()),
            };
            let (flight, led) = match self.site.flights.join(&key) {
                Joined::Follow(flight) => (flight, None),
                Joined::Lead(leader) => {
                    let landed = if why == Forward::Bypass { None } else { self.is_there_by_now(asked) };
                    if let Some(landed) = landed {
                        leader.release(landed);
                        return match landed {
                            Released::Look => Flown::Again(self, ResultCode::MemHit),
                            _ => Flown::Alone(self),
                        };
                    }
                    let flight = Arc::clone(leader.flight());
                    let Some(leading) = Leading::new(&self, leader, *asked, page.as_deref().cloned(), true) else {
                        return Flown::Alone(self);
                    };
                    let (tell, told) = oneshot::channel();
                    drop(tokio::spawn(leading.run(Some(tell))));
                    (flight, Some(told))
                }
            };
            let is_leader = led.is_some();
            // Who leads is told what only it may know; who follows, and who leads what all may read, reads the flight.
            let outcome = match led {
                None => follow(&flight).await,
                Some(told) => match told.await {
                    Ok(Led::Own(response)) => {
                        if asked.range {
                            // The part that is wanted, instead of a whole that nobody keeps.
                            return Flown::Alone(self);
                        }
                        self.site.house.count(Count::Miss, 1);
                        let response = self.own(*response);
                        let code = if page.is_some() { ResultCode::RefreshModified } else { ResultCode::Miss };
                        let response = self.finish(response, How::forwarded(code, why, false));
                        return Flown::Answered(Box::new(response));
                    }
                    Ok(Led::Failed(error)) => return self.failed(asked, page, &error),
                    Ok(Led::Shared) | Err(_) => follow(&flight).await,
                },
            };
            match outcome {
                Ok((fetched, reader)) => {
                    let variant = vary::variant(&fetched.varies, &self.request.headers, self.site.cookies());
                    if variant != fetched.variant {
                        // It is another's. Those who want this one meet under a key of their own.
                        varies = Some(fetched.varies.clone());
                        continue;
                    }
                    if asked.range && fetched.policy.is_some() {
                        // Parts are cut from the whole.
                        let mut reader = reader;
                        while let Some(Ok(_)) = poll_fn(|cx| reader.poll_piece(cx)).await {}
                        return Flown::Again(self, ResultCode::Miss);
                    }
                    self.site.house.count(Count::Miss, 1);
                    let code = match (is_leader, page.is_some()) {
                        (true, true) => ResultCode::RefreshModified,
                        (true, false) if asked.no_cache => ResultCode::ClientRefreshMiss,
                        (true, false) => ResultCode::Miss,
                        (false, _) => ResultCode::CollapsedMiss,
                    };
                    let how = How::forwarded(code, why, fetched.policy.is_some());
                    let mut headers = fetched.headers.clone();
                    let now = self.site.house.unix_seconds();
                    answer::dated(&mut headers, now);
                    if let Some(policy) = &fetched.policy
                        && policy.age_seconds(now) > 0
                    {
                        headers.insert(http::header::AGE, policy.age_seconds(now).into());
                    }
                    if asked.conditional
                        && crate::rules::validate::evaluate(&self.request.headers, fetched.status, &headers)
                            == crate::rules::validate::Precondition::NotModified
                    {
                        let headers = crate::rules::validate::not_modified(&headers);
                        let response = answer::respond(StatusCode::NOT_MODIFIED, headers, PageBody::empty());
                        return Flown::Answered(Box::new(self.finish(response, how)));
                    }
                    if asked.head {
                        if let Some(bytes) = fetched.bytes {
                            headers.insert(http::header::CONTENT_LENGTH, bytes.into());
                        }
                        let response = answer::respond(fetched.status, headers, PageBody::empty());
                        return Flown::Answered(Box::new(self.finish(response, how)));
                    }
                    let body = PageBody::flight(reader, fetched.bytes);
                    let response = answer::respond(fetched.status, headers, body);
                    return Flown::Answered(Box::new(self.finish(response, how)));
                }
                Err(Released::Look) => return Flown::Again(self, ResultCode::RefreshUnmodified),
                Err(Released::Uncacheable) => return Flown::Alone(self),
                Err(Released::Failed(status)) => {
                    if let Some(served) = self.serve_stale(asked, &page) {
                        return Flown::Answered(Box::new(self.serve(served, asked, ResultCode::RefreshFailOld)));
                    }
                    let why_failed = "the request it waited for failed";
                    let how = How::forwarded(ResultCode::CollapsedMiss, why, false);
                    self.site.house.count(Count::Miss, 1);
                    if let Some(entry) = &mut self.entry {
                        entry.failed(&why_failed);
                    }
                    let response = self.finish(answer::sentence(status, "the origin cannot be asked"), how);
                    return Flown::Answered(Box::new(response));
                }
            }
        }
        Flown::Alone(self)
    }

    /// The stale page, if it may be served now that the origin has failed.
    fn serve_stale(&self, asked: &Asked, page: &Option<Box<Page>>) -> Option<Page> {
        let page = page.as_ref()?;
        let now = self.site.house.unix_seconds();
        (page.policy.on_error(asked, now) == OnError::Serve).then(|| Page::clone(page))
    }

    fn failed(self, asked: &Asked, page: Option<Box<Page>>, error: &FetchError) -> Flown {
        if let Some(stale) = self.serve_stale(asked, &page) {
            self.site.house.warn(format_args!("http: GET {}: {error}; the stale page is served", self.url.form()));
            return Flown::Answered(Box::new(self.serve(stale, asked, ResultCode::RefreshFailOld)));
        }
        self.site.house.count(Count::Miss, 1);
        let how = How::forwarded(ResultCode::Miss, Forward::UriMiss, false);
        let response = self.fail(error.status(), error, how);
        Flown::Answered(Box::new(response))
    }
}

/// What came of joining a flight.
enum Flown {
    Answered(Box<Response<PageBody>>),
    /// The store has something now.
    Again(Visit, ResultCode),
    /// Nothing that can be shared: the request is passed.
    Alone(Visit),
}

async fn follow(flight: &Arc<Flight>) -> Result<(Arc<super::fetched::Fetched>, super::flight::Reader), Released> {
    poll_fn(|cx| flight.poll_head(cx)).await
}

/// A number that is given once.
fn alone() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
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
