//! The fetch that a flight's leader makes, in a task of its own: it asks the origin, decides once what may be done with
//! the answer, shares it as it arrives, and stores it when it is whole.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::oneshot;

use super::fetched::Fetched;
use super::flight::{Leader, Released};
use super::forward::Purpose;
use super::marks::Begun;
use super::shelf::{self, Page, Put, Written};
use super::site::Site;
use super::visit::{Visit, hash_of};
use super::{parts, tags};
use crate::house::Count;
use crate::negotiate::{self, Coding};
use crate::origin::{FetchError, OriginBody, RequestBody, next_piece};
use crate::rules::{Asked, Exchange, NotStored, OnError, Policy, UnixSeconds, fields, judge, partial, validate, vary};

/// What a leader's own client is told.
pub(super) enum Led {
    /// All may read it: read the flight. These fields are for this client alone.
    Shared(HeaderMap),
    /// This is nobody else's.
    Own(Box<Response<OriginBody>>),
    /// There is none.
    Failed(FetchError),
}

/// What an origin is asked for.
pub(super) enum Wanted {
    /// The page.
    Whole,
    /// Whether this page, which is stale, still holds; otherwise another.
    Confirmation(Page),
    /// The head alone of what is stored, and stale.
    Head(Page),
    /// One range of the page.
    Range(HeaderValue),
    /// What is missing of this part.
    Rest(Page),
}

pub(super) type Tell = Option<oneshot::Sender<Led>>;

/// What a fetch is about, whatever becomes of the client that asked for it.
pub(super) struct Errand {
    pub(super) site: Arc<Site>,
    pub(super) leader: Leader,
    pub(super) key: String,
    target: String,
    pub(super) form: String,
    /// The client's fields, by which variants are told.
    request: HeaderMap,
    asked: Asked,
    /// What lay under the key when it began.
    pub(super) seen: Option<u64>,
    asked_at: UnixSeconds,
    /// What the fleet was told of the page before the origin was asked; none where it is not to be told of it.
    pub(super) begun: Option<Begun>,
}

/// A leader with all it needs.
pub(super) struct Leading {
    errand: Errand,
    parts: Parts,
    wanted: Wanted,
}

impl Leading {
    /// `None` when the request cannot be forwarded.
    pub(super) fn new(
        visit: &Visit,
        leader: Leader,
        asked: Asked,
        wanted: Wanted,
        is_watched: bool,
    ) -> Option<Leading> {
        let mut parts = visit.forwarded(Purpose::Shared, is_watched)?;
        // A head is made of the whole, unless that is here already.
        parts.method = if matches!(wanted, Wanted::Head(_)) { Method::HEAD } else { Method::GET };
        validate::strip_conditions(&mut parts.headers);
        match &wanted {
            Wanted::Whole | Wanted::Head(_) => {}
            Wanted::Confirmation(page) => validate::conditional_request(&page.headers, &mut parts.headers),
            Wanted::Range(range) => _ = parts.headers.insert(RANGE, range.clone()),
            Wanted::Rest(part) => {
                let (held, whole) = part.place()?;
                partial::ask_for_rest(&part.headers, &held, whole, &mut parts.headers).then_some(())?;
            }
        }
        Some(Leading { errand: Errand::new(visit, leader, asked), parts, wanted })
    }

    pub(super) async fn run(self, tell: Tell) {
        let Leading { mut errand, parts, wanted } = self;
        if let Some(beyond) = errand.site.house.beyond() {
            if !matches!(wanted, Wanted::Whole | Wanted::Range(_)) {
                errand.make_ready(&beyond).await;
            } else if errand.bring(&beyond).await {
                errand.leader.release(Released::Look);
                return say(tell, Led::Shared(HeaderMap::new()));
            }
        }
        let Errand { site, form, asked, .. } = &errand;
        site.house.count(Count::Fetched, 1);
        let outcome = site.origins.ask(parts, RequestBody::Empty, hash_of(&errand.key)).await;
        let now = site.house.unix_seconds();
        let response = match outcome {
            Ok(response) => response,
            Err(error) => {
                let status = error.status();
                if tell.is_none() {
                    site.house.warn(format_args!("http: refreshing {form}: {error}"));
                }
                say(tell, Led::Failed(error));
                return errand.leader.release(Released::Failed(status));
            }
        };
        let status = response.status();
        if let Wanted::Confirmation(page) | Wanted::Head(page) = &wanted
            && matches!(status.as_u16(), 500 | 502 | 503 | 504)
            && page.policy.on_error(asked, now) == OnError::Serve
        {
            // Everyone who waits has the stale page, or finds it.
            site.house.warn(format_args!("http: GET {form}: the origin answered {status}; the stale page is served"));
            errand.leader.release(Released::Failed(status));
            return say(tell, Led::Shared(HeaderMap::new()));
        }
        if let Wanted::Range(range) = &wanted
            && status == StatusCode::OK
        {
            errand.leader.widen(range.as_bytes());
        }
        if let Some((errand, response, tell)) = errand.compare(wanted, response, tell, now).await {
            errand.deliver(response, tell, now).await;
        }
    }
}

/// What became of a body that was passed on.
pub(super) enum Passed {
    /// All of it, to be stored.
    Whole(Vec<Bytes>),
    /// It ended after so many bytes, and could not be kept: it was too large, or there was no room beside the others.
    NotKept { bytes: u64 },
    /// It broke off, or nobody read it any more.
    Broken,
}

pub(super) fn say(tell: Tell, led: Led) {
    if let Some(tell) = tell {
        // A client that has gone need not know.
        let _ = tell.send(led);
    }
}

impl Errand {
    pub(super) fn new(visit: &Visit, leader: Leader, asked: Asked) -> Errand {
        Errand {
            site: Arc::clone(&visit.site),
            leader,
            key: visit.key.clone(),
            target: visit.url.target().to_owned(),
            form: visit.url.form().to_owned(),
            request: visit.request.headers.clone(),
            asked,
            seen: shelf::seen(&*visit.site.house, &visit.key),
            asked_at: visit.site.house.unix_seconds(),
            begun: None,
        }
    }

    /// Holds an answer against the page that it is about, if there is one: the answer, if that is not all there is to it.
    async fn compare(
        self,
        wanted: Wanted,
        response: Response<OriginBody>,
        tell: Tell,
        now: UnixSeconds,
    ) -> Option<(Errand, Response<OriginBody>, Tell)> {
        let status = response.status();
        match wanted {
            Wanted::Confirmation(page) if status == StatusCode::NOT_MODIFIED => {
                if validate::selects(&page.headers, response.headers()) {
                    self.still_holds(tell, page, response, now).await;
                    return None;
                }
                // It is about another one than is stored; nobody here has that.
                shelf::purge(&*self.site.house, &self.key, false);
                self.leader.release(Released::Uncacheable);
                say(tell, Led::Shared(HeaderMap::new()));
            }
            Wanted::Head(page) => {
                if validate::head_confirms(&page.headers, Some(page.origin_bytes()), status, response.headers()) {
                    self.still_holds(tell, page, response, now).await;
                    return None;
                }
                // It is out of date, which it was anyway: whoever asks for the page gets another.
                self.leader.release(Released::Uncacheable);
                say(tell, Led::Own(Box::new(response)));
            }
            Wanted::Rest(part) if status != StatusCode::OK => {
                match parts::Completion::new(&part, response, &self.exchange(now), &self.site.settings.rules) {
                    Some(completion) => completion.share(self, tell, now).await,
                    None => {
                        // Its rest is not to be had: the whole is asked for.
                        shelf::purge(&*self.site.house, &self.key, false);
                        self.leader.release(Released::Look);
                        say(tell, Led::Shared(HeaderMap::new()));
                    }
                }
            }
            _ => return Some((self, response, tell)),
        }
        None
    }

    /// Shares an answer and stores it, or leaves it to the leader's client, as it allows.
    async fn deliver(self, response: Response<OriginBody>, tell: Tell, now: UnixSeconds) {
        let site = Arc::clone(&self.site);
        let (status, form) = (response.status(), &self.form);
        let exchange = Exchange { status, response: response.headers(), ..self.exchange(now) };
        let judged = judge(&exchange, &site.settings.rules);
        let tags = self.tags_of(response.headers());
        if tags.is_none() {
            let most = tags::PAGE_TAGS_MAX;
            site.house.warn(format_args!("http: GET {form}: expected at most {most} tags; nothing is stored"));
        }
        let announced = response.body().bytes_announced();
        let is_too_large = announced.is_some_and(|bytes| bytes > site.body_bytes_max());
        let is_to_be_kept = judged.is_ok() && !is_too_large && tags.is_some();
        let has_room = !is_to_be_kept || self.leader.keep(announced.unwrap_or(0) as usize, site.flights_bytes_max());
        let policy = match judged {
            Ok(policy) if is_to_be_kept && has_room => policy,
            judged => {
                let is_response_s = match judged {
                    Ok(_) => status != StatusCode::PARTIAL_CONTENT,
                    // What the next request says may be otherwise.
                    Err(NotStored::RequestNoStore | NotStored::Authorization | NotStored::Part) => false,
                    // That one request was bad says nothing of a page that others were given.
                    Err(NotStored::Status) => self.seen.is_none(),
                    Err(_) => true,
                };
                if is_response_s && has_room && status.as_u16() < 500 && !self.leader.is_spoiled() {
                    let varies = vary::fields(response.headers()).unwrap_or_default();
                    let variant = vary::variant(&varies, &self.request, site.cookies());
                    self.mark_uncacheable(&varies, &variant);
                }
                if is_too_large {
                    site.house.count(Count::TooLarge, 1);
                }
                if !has_room {
                    site.house.count(Count::NoRoom, 1);
                }
                // An origin that fails is not asked again at once by all who have waited for it.
                if status.is_server_error() {
                    self.leader.release(Released::Failed(status));
                } else {
                    self.leader.release(Released::Uncacheable);
                }
                return say(tell, Led::Own(Box::new(response)));
            }
        };
        let (fetched, own, body) = self.begin(response, policy, tags.unwrap_or_default(), now);
        say(tell, Led::Shared(own));
        self.share(&fetched, body).await;
    }

    /// The tags of a response ([`tags::of_response`]).
    pub(super) fn tags_of(&self, headers: &HeaderMap) -> Option<Vec<Vec<u8>>> {
        tags::of_response(headers, &self.form)
    }

    /// The fields of the request.
    pub(super) fn request(&self) -> &HeaderMap {
        &self.request
    }

    /// What the request asks of the cache.
    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// What [`judge`] is told besides the response.
    pub(super) fn exchange(&self, now: UnixSeconds) -> Exchange<'_> {
        Exchange {
            method: &Method::GET,
            target: &self.target,
            asked: &self.asked,
            status: StatusCode::OK,
            response: &self.request,
            asked_at: self.asked_at,
            answered_at: now,
        }
    }

    /// Tells everyone the head of a response that may be stored: it, what is for the leader's client alone, and the body.
    pub(super) fn begin(
        &self,
        response: Response<OriginBody>,
        policy: Policy,
        tags: Vec<Vec<u8>>,
        now: UnixSeconds,
    ) -> (Arc<Fetched>, HeaderMap, OriginBody) {
        let site = &self.site;
        let announced = response.body().bytes_announced();
        let (parts, body) = response.into_parts();
        let own = fields::own(&parts.headers, &site.settings.rules);
        let mut headers = fields::stored(&parts.headers, &site.settings.rules, now);
        // Whoever gets it later may get it in another coding, under the same tag.
        if let Some(bytes) = announced
            && negotiate::to_be_compressed(&headers, bytes as usize, &site.settings.compression).is_some()
        {
            negotiate::weaken_etag(&mut headers);
        }
        headers.remove(http::header::CONTENT_LENGTH);
        let fetched = self.fetched(parts.status, headers, policy, tags, announced);
        self.leader.begin(Arc::clone(&fetched));
        (fetched, own, body)
    }

    /// The head of what the leader's request selects.
    pub(super) fn fetched(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        policy: Policy,
        tags: Vec<Vec<u8>>,
        bytes: Option<u64>,
    ) -> Arc<Fetched> {
        let varies = vary::fields(&headers).unwrap_or_default();
        let variant = vary::variant(&varies, &self.request, self.site.cookies());
        Arc::new(Fetched { status, headers, policy: Some(policy), varies, variant, tags, bytes })
    }

    fn mark_uncacheable(&self, varies: &[http::HeaderName], variant: &[u8]) {
        let for_seconds = self.site.settings.uncacheable_seconds;
        shelf::mark_uncacheable(&*self.site.house, &self.key, self.seen, (varies, variant), for_seconds);
    }

    /// Stores it, unless it was purged since it was asked for; with what is to be written to where others find it.
    pub(super) fn keep(
        &self,
        fetched: &Fetched,
        (coding, plain_bytes): (Coding, Option<u64>),
        pieces: &mut dyn Iterator<Item = &[u8]>,
        body_bytes: usize,
    ) -> Option<Written> {
        let policy = fetched.policy.as_ref()?;
        if self.leader.is_spoiled() {
            return None;
        }
        let (page_key, seen) = (&*self.key, self.seen);
        let put = Put { page_key, fetched, policy, coding, plain_bytes, body_bytes, seen };
        let written = shelf::put(&*self.site.house, &put, pieces)?;
        // A purge that came in between did not find it.
        if self.leader.is_spoiled() {
            shelf::take_back(&*self.site.house, page_key);
            return None;
        }
        written
    }

    /// The origin says that the stored page still holds: it is stored anew with what the answer says (RFC 9111, sections
    /// 4.3.4 and 4.3.5).
    async fn still_holds(mut self, tell: Tell, page: Page, response: Response<OriginBody>, now: UnixSeconds) {
        let site = &self.site;
        let exchange = Exchange { status: page.status, response: response.headers(), ..self.exchange(now) };
        let refreshed = validate::refreshed(&page.headers, &exchange, &site.settings.rules).ok();
        let tags = refreshed.as_ref().and_then(|(_, headers)| self.tags_of(headers));
        let (Some((policy, headers)), Some(tags)) = (refreshed, tags) else {
            // It holds, and may not be kept. Whoever waits asks for themselves.
            shelf::purge(&*site.house, &self.key, false);
            self.leader.release(Released::Uncacheable);
            return say(tell, Led::Shared(HeaderMap::new()));
        };
        let fetched = self.fetched(page.status, headers, policy, tags, None);
        let coding = (page.coding, page.plain_bytes);
        let written = self.keep(&fetched, coding, &mut page.value.pieces(page.body_at), page.body_bytes());
        self.write_through(written).await;
        self.leader.release(Released::Look);
        say(tell, Led::Shared(fields::own(response.headers(), &self.site.settings.rules)));
    }

    /// Passes the body to everyone as it arrives, and stores it at its end.
    pub(super) async fn share(mut self, fetched: &Fetched, body: OriginBody) {
        match self.pass_on(fetched, Vec::new(), body).await {
            Passed::Whole(pieces) => {
                let written = self.store(fetched, &pieces);
                self.write_through(written).await;
            }
            Passed::NotKept { .. } => {}
            // Dropping the leader breaks off what its readers get.
            Passed::Broken => return,
        }
        self.leader.land(true);
    }

    /// Passes a body to everyone, behind `pieces` that were passed on already.
    pub(super) async fn pass_on(&self, fetched: &Fetched, mut pieces: Vec<Bytes>, mut body: OriginBody) -> Passed {
        let (site, leader) = (&self.site, &self.leader);
        let limit = site.body_bytes_max();
        let mut bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut is_kept = true;
        while let Some(piece) = next_piece(&mut body).await {
            let piece = match piece {
                Ok(piece) if piece.is_empty() => continue,
                Ok(piece) => piece,
                Err(error) => {
                    site.house.warn(format_args!("http: GET {}: {error}; nothing is stored", self.form));
                    return Passed::Broken;
                }
            };
            bytes += piece.len() as u64;
            let is_too_large = bytes > limit;
            if is_kept && (is_too_large || !leader.keep(bytes as usize, site.flights_bytes_max())) {
                is_kept = false;
                pieces = Vec::new();
                leader.overflow();
                if is_too_large && fetched.status != StatusCode::PARTIAL_CONTENT {
                    self.mark_uncacheable(&fetched.varies, &fetched.variant);
                }
                site.house.count(if is_too_large { Count::TooLarge } else { Count::NoRoom }, 1);
            }
            if is_kept {
                pieces.push(piece.clone());
            }
            leader.push(piece);
            if !is_kept && !poll_fn(|cx| leader.poll_room(cx)).await {
                // Nobody reads it any more.
                return Passed::Broken;
            }
        }
        if is_kept { Passed::Whole(pieces) } else { Passed::NotKept { bytes } }
    }

    /// Stores a body that has arrived: a whole one, or a part.
    pub(super) fn store(&self, fetched: &Fetched, pieces: &[Bytes]) -> Option<Written> {
        let settings = &self.site.settings;
        let bytes = pieces.iter().map(Bytes::len).sum::<usize>();
        if fetched.status == StatusCode::PARTIAL_CONTENT {
            return parts::store(self, fetched, pieces, &self.request);
        }
        match compressed(&fetched.headers, pieces, bytes, &settings.compression) {
            Some((coding, body)) => {
                let mut headers = fetched.headers.clone();
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
                negotiate::weaken_etag(&mut headers);
                negotiate::add_vary(&mut headers);
                let fetched = Fetched { headers, ..fetched.clone() };
                let mut piece = std::iter::once(&body[..]);
                self.keep(&fetched, (coding, Some(bytes as u64)), &mut piece, body.len())
            }
            None => {
                let coding = negotiate::coding_of(&fetched.headers).unwrap_or_default();
                self.keep(fetched, (coding, None), &mut pieces.iter().map(|piece| &piece[..]), bytes)
            }
        }
    }
}

/// The body as it is to be stored, if that is compressed and the shorter for it.
fn compressed(
    headers: &HeaderMap,
    pieces: &[Bytes],
    bytes: usize,
    settings: &negotiate::Compression,
) -> Option<(Coding, Vec<u8>)> {
    let coding = negotiate::to_be_compressed(headers, bytes, settings)?;
    let mut encoder = negotiate::Encoder::new(coding, settings.level).ok()?;
    let mut body = Vec::with_capacity(bytes / 3);
    for piece in pieces {
        encoder.push(piece, &mut body).ok()?;
    }
    encoder.finish(&mut body).ok()?;
    (body.len() < bytes).then_some((coding, body))
}
