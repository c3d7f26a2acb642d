//! A visit that looks for its page: what of it is here, who asks the origin for what, and the answer made of the result.
//!
//! ```text
//!  the shelf ─ of use: served (a stale page perhaps while it is refreshed; of a part the range it holds)
//!      │ not
//!      ▼
//!  join the page's flight: lead (`fetch`) or follow ─ shared: read it as it arrives
//!                                                   ─ something is on the shelf now: look again
//!                                                   ─ nothing that can be shared: pass
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{AGE, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::sync::oneshot;

use super::answer::{self, How};
use super::body::PageBody;
use super::fetch::{Leading, Led, Wanted};
use super::fetched::Fetched;
use super::flight::{Flight, Joined, Reader, Released, VARIANT_MARK};
use super::log::ResultCode;
use super::shelf::{Found, Page};
use super::visit::{Visit, append};
use crate::house::Count;
use crate::negotiate::{self, Accepted, Coding};
use crate::origin::{FetchError, OriginBody};
use crate::rules::announce::Forward;
use crate::rules::range::Selected;
use crate::rules::validate::{self, Precondition};
use crate::rules::{Asked, Decision, OnError, Policy, UnixSeconds, partial, range, vary};

/// How often a request whose flight brought something else looks again before it asks for itself.
const LOOKS_MAX: usize = 4;

/// What there is of what is asked for.
enum Base {
    Nothing,
    /// A page that is stale.
    Stale(Box<Page>),
    /// A part that is fresh.
    Part(Box<Page>),
}

impl Visit {
    pub(super) async fn look(self, asked: Asked, found: Found, looked: usize) -> Response<PageBody> {
        let now = self.site.house.unix_seconds();
        let (found, mut base) = match found {
            Found::Page(part) if !part.is_whole() => match self.begin_with_part(part, &asked, now) {
                Ok((response, how)) => return self.finish(response, how),
                Err(base) => (Found::Nothing, base),
            },
            found => (found, Base::Nothing),
        };
        let decision = match &found {
            Found::Page(page) => page.policy.decide(&asked, now),
            _ => Policy::decide_without(&asked),
        };
        let mut varies = None;
        let why = match (found, decision) {
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
            (Found::Marker, _) => Forward::Bypass,
            (Found::Page(page), _) => {
                // One that an application has compressed as a whole cannot be stored anew as it is.
                if page.inflated.is_none() {
                    base = Base::Stale(page);
                }
                if asked.no_cache { Forward::Request } else { Forward::Stale }
            }
            (Found::OtherVariants(way), _) => {
                varies = Some(way);
                Forward::VaryMiss
            }
            (Found::Nothing, _) => Forward::UriMiss,
        };
        self.look_beyond(asked, base, varies, why, looked).await
    }

    /// The range that is asked for, of a part that is fresh, or else what the part is to the whole.
    fn begin_with_part(
        &self,
        part: Box<Page>,
        asked: &Asked,
        now: UnixSeconds,
    ) -> Result<(Response<PageBody>, How), Base> {
        if !matches!(part.policy.decide(asked, now), Decision::Hit | Decision::HitStale) {
            return Err(Base::Nothing);
        }
        let Some(response) = self.of_part(&part, asked) else { return Err(Base::Part(part)) };
        self.site.house.count(Count::Hit, 1);
        Ok((response, How::hit(ResultCode::MemHit, part.policy.fresh_until - now)))
    }

    /// Has the origin asked, by the page's flight if others may have its answer.
    async fn look_beyond(
        self,
        asked: Asked,
        base: Base,
        varies: Option<Vec<HeaderName>>,
        why: Forward,
        looked: usize,
    ) -> Response<PageBody> {
        // What must not be kept, and what is only a head, is asked for alone.
        let is_only_a_head = asked.head && !matches!(base, Base::Stale(_));
        if looked >= LOOKS_MAX || asked.no_store || is_only_a_head {
            return self.miss(why).await;
        }
        match self.fly(&asked, base, varies, why).await {
            Flown::Answered(response) => *response,
            Flown::Alone(visit) => visit.miss(why).await,
            Flown::Again(visit, code) => {
                match visit.site.find(&visit.key, &visit.request.headers, visit.site.house.unix_seconds()) {
                    // Somebody has just asked the origin: it holds, whatever it would be decided on otherwise.
                    Found::Page(page) if page.is_whole() => visit.serve(*page, &asked, code),
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

    /// The range that is asked for, if a stored part holds it and the client takes the part's coding.
    fn of_part(&self, part: &Page, asked: &Asked) -> Option<Response<PageBody>> {
        let headers = &self.request.headers;
        let (held, whole) = part.place()?;
        if !asked.range
            || asked.conditional
            || part.coding != Coding::Identity && !Accepted::of(headers).takes(part.coding)
        {
            return None;
        }
        let selected = partial::select(headers, &part.headers, &held, whole)?;
        Some(answer::of_part(part, &selected, (held.start, whole), self.site.house.unix_seconds()))
    }

    /// Whether the client takes the coding of this response. One that is not known goes to whoever asked, as it is.
    fn takes_coding_of(&self, headers: &HeaderMap) -> bool {
        match negotiate::coding_of(headers) {
            None | Some(Coding::Identity) => true,
            Some(coding) => Accepted::of(&self.request.headers).takes(coding),
        }
    }

    /// Has a stale page refreshed by a flight of its own, if none is under way.
    fn refresh(&self, page: &Page, asked: &Asked) {
        let varies = vary::fields(&page.headers).filter(|varies| !varies.is_empty());
        let Joined::Lead(leader) = self.site.flights.join(&self.flight_key(varies.as_deref(), None)) else { return };
        if let Some(landed) = self.is_there_by_now(asked) {
            leader.release(landed);
        } else if let Some(leading) = Leading::new(self, leader, *asked, Wanted::Confirmation(page.clone()), false) {
            drop(tokio::spawn(leading.run(None)));
        }
    }

    /// Whether another flight has brought the answer between our look at the shelf and the beginning of our own flight,
    /// and so ended it.
    fn is_there_by_now(&self, asked: &Asked) -> Option<Released> {
        let now = self.site.house.unix_seconds();
        match self.site.find(&self.key, &self.request.headers, now) {
            Found::Page(page) if page.policy.decide(asked, now) == Decision::Hit => {
                (page.is_whole() || self.of_part(&page, asked).is_some()).then_some(Released::Look)
            }
            Found::Marker => Some(Released::Uncacheable),
            _ => None,
        }
    }

    /// What requests for one thing share: the page's key, the request's fields that are known to matter, and which part of
    /// the page is wanted.
    pub(super) fn flight_key(&self, varies: Option<&[HeaderName]>, part: Option<&[u8]>) -> Vec<u8> {
        let mut key = self.key.clone().into_bytes();
        if let Some(varies) = varies {
            key.push(VARIANT_MARK);
            key.extend_from_slice(&vary::variant(varies, &self.request.headers, self.site.cookies()));
        }
        if let Some(part) = part {
            key.push(VARIANT_MARK);
            key.extend_from_slice(part);
        }
        key
    }

    /// Joins the flight of this page, or of the part of it that is wanted.
    async fn fly(self, asked: &Asked, base: Base, mut varies: Option<Vec<HeaderName>>, why: Forward) -> Flown {
        if let Base::Stale(page) | Base::Part(page) = &base {
            varies = vary::fields(&page.headers).filter(|varies| !varies.is_empty());
        }
        // Under a condition, parts are cut from the whole.
        let range = match &base {
            Base::Stale(_) => None,
            _ if asked.conditional || !asked.range => None,
            _ => range::single(&self.request.headers).cloned(),
        };
        for _ in 0..LOOKS_MAX {
            let (wanted, part) = self.wanted(asked, &base, range.as_ref());
            let key = match why {
                // Nobody else has this key.
                Forward::Bypass => [self.key.as_bytes(), &[VARIANT_MARK], &alone().to_be_bytes()].concat(),
                _ => self.flight_key(varies.as_deref(), part),
            };
            let of_whole = part.and_then(|_| self.flight_with(&self.flight_key(varies.as_deref(), None)));
            let aboard = match of_whole {
                Some(flight) => Ok((flight, None)),
                None => self.board(&key, asked, wanted, why == Forward::Bypass),
            };
            let (flight, led) = match aboard {
                Ok(aboard) => aboard,
                Err(Released::Look) => return Flown::Again(self, ResultCode::MemHit),
                Err(_) => return Flown::Alone(self),
            };
            let is_leader = led.is_some();
            let own = match listen(led).await {
                Led::Shared(own) => own,
                Led::Own(response) => {
                    let is_other_part = asked.range && range.is_none();
                    return self.answered_alone(*response, is_other_part, &base, why);
                }
                Led::Failed(error) => return self.failed(asked, &base, &error),
            };
            match follow(&flight).await {
                Ok((fetched, reader)) => {
                    let variant = vary::variant(&fetched.varies, &self.request.headers, self.site.cookies());
                    if variant != fetched.variant {
                        // It is another's. Those who want this one meet under a key of their own.
                        varies = Some(fetched.varies.clone());
                        continue;
                    }
                    let code = match (is_leader, &base) {
                        (true, Base::Stale(_)) => ResultCode::RefreshModified,
                        (true, _) if asked.no_cache => ResultCode::ClientRefreshMiss,
                        (true, _) => ResultCode::Miss,
                        (false, _) => ResultCode::CollapsedMiss,
                    };
                    return self
                        .landed(asked, &fetched, reader, own, How::forwarded(code, why, fetched.policy.is_some()))
                        .await;
                }
                Err(Released::Look) => return Flown::Again(self, ResultCode::RefreshUnmodified),
                Err(Released::Uncacheable) => return Flown::Alone(self),
                Err(Released::Failed(status)) => return self.failed_with_another(asked, &base, status, why),
            }
        }
        Flown::Alone(self)
    }

    /// Answers with what the origin said to this client alone, unless that is another part, or in another coding, than it
    /// takes and nobody keeps.
    fn answered_alone(self, response: Response<OriginBody>, is_other_part: bool, base: &Base, why: Forward) -> Flown {
        if is_other_part || !self.takes_coding_of(response.headers()) {
            return Flown::Alone(self);
        }
        self.site.house.count(Count::Miss, 1);
        let response = self.own(response);
        let code = if matches!(base, Base::Stale(_)) { ResultCode::RefreshModified } else { ResultCode::Miss };
        Flown::Answered(Box::new(self.finish(response, How::forwarded(code, why, false))))
    }

    /// Answers with what a flight brings, or has it looked for when it is whole.
    async fn landed(self, asked: &Asked, fetched: &Fetched, mut reader: Reader, own: HeaderMap, how: How) -> Flown {
        if fetched.policy.is_some() && self.needs_whole(asked, fetched) {
            while let Some(Ok(_)) = poll_fn(|cx| reader.poll_piece(cx)).await {}
            return Flown::Again(self, ResultCode::Miss);
        }
        self.site.house.count(Count::Miss, 1);
        let response = self.of_flight(asked, fetched, reader, own);
        Flown::Answered(Box::new(self.finish(response, how)))
    }

    /// Is what is asked for made of the whole, when that is here? A coding is undone then and several ranges are cut, and one
    /// of what has no length before, or of what is compressed then for a client that takes it so: its bytes are others.
    fn needs_whole(&self, asked: &Asked, fetched: &Fetched) -> bool {
        let Fetched { status, headers, bytes, .. } = fetched;
        if !self.takes_coding_of(headers) {
            return true;
        }
        if !asked.range || *status == StatusCode::PARTIAL_CONTENT {
            return false;
        }
        match range::select(&self.request.headers, *status, headers, bytes.unwrap_or(u64::MAX)) {
            Selected::Whole => false,
            Selected::Many(_) => true,
            Selected::One(_) | Selected::Unsatisfiable => bytes.is_none_or(|bytes| {
                negotiate::to_be_compressed(headers, bytes as usize, &self.site.settings.compression)
                    .is_some_and(|coding| Accepted::of(&self.request.headers).takes(coding))
            }),
        }
    }

    /// The flight of the whole page that brings a range no later than the origin would if it were asked for it: as much of
    /// it has arrived, or the origin ignores ranges.
    fn flight_with(&self, key: &[u8]) -> Option<Arc<Flight>> {
        let flight = self.site.flights.under_way(key)?;
        let (fetched, arrived) = flight.so_far()?;
        let begins_by_now =
            || match range::select(&self.request.headers, fetched.status, &fetched.headers, fetched.bytes?) {
                Selected::One(range) => (range.start <= arrived).then_some(()),
                _ => None,
            };
        (flight.ignores_ranges() || begins_by_now().is_some()).then_some(flight)
    }

    /// Joins the flight of `key`, or begins it and has it led by a task of its own, which tells what only its client may
    /// know. None is begun for what is here by now, unless nobody else has this key, nor for what cannot be forwarded.
    fn board(&self, key: &[u8], asked: &Asked, wanted: Wanted, is_own_key: bool) -> Result<Aboard, Released> {
        let leader = match self.site.flights.join(key) {
            Joined::Follow(flight) => return Ok((flight, None)),
            Joined::Lead(leader) => leader,
        };
        if !is_own_key && let Some(landed) = self.is_there_by_now(asked) {
            leader.release(landed);
            return Err(landed);
        }
        let flight = Arc::clone(leader.flight());
        let leading = Leading::new(self, leader, *asked, wanted, true).ok_or(Released::Uncacheable)?;
        let (tell, told) = oneshot::channel();
        drop(tokio::spawn(leading.run(Some(tell))));
        Ok((flight, Some(told)))
    }

    /// What the origin is to be asked for, and how that is told from other things wanted of the same page.
    fn wanted<'r>(&self, asked: &Asked, base: &Base, range: Option<&'r HeaderValue>) -> (Wanted, Option<&'r [u8]>) {
        match (base, range) {
            (Base::Stale(page), _) if asked.head => (Wanted::Head(Page::clone(page)), Some(b"HEAD")),
            (Base::Stale(page), _) => (Wanted::Confirmation(Page::clone(page)), None),
            (_, Some(range)) => (Wanted::Range(range.clone()), Some(range.as_bytes())),
            (Base::Part(part), None) if can_be_completed(part) => (Wanted::Rest(Page::clone(part)), None),
            _ => (Wanted::Whole, None),
        }
    }

    /// What a flight brings, as this client asked for it.
    fn of_flight(&self, asked: &Asked, fetched: &Fetched, reader: Reader, own: HeaderMap) -> Response<PageBody> {
        let mut headers = fetched.headers.clone();
        let now = self.site.house.unix_seconds();
        append(&mut headers, own);
        answer::dated(&mut headers, now);
        if let Some(policy) = &fetched.policy
            && policy.age_seconds(now) > 0
        {
            headers.insert(AGE, policy.age_seconds(now).into());
        }
        if asked.conditional {
            match validate::evaluate(&self.request.headers, fetched.status, &headers) {
                Precondition::Proceed => {}
                Precondition::NotModified => {
                    let headers = validate::not_modified(&headers);
                    return answer::respond(StatusCode::NOT_MODIFIED, headers, PageBody::empty());
                }
                Precondition::Failed => return answer::precondition_failed(),
            }
        }
        if asked.head {
            if let Some(bytes) = fetched.bytes {
                headers.insert(CONTENT_LENGTH, bytes.into());
            }
            return answer::respond(fetched.status, headers, PageBody::empty());
        }
        if let Some(bytes) = fetched.bytes
            && asked.range
        {
            match range::select(&self.request.headers, fetched.status, &headers, bytes) {
                Selected::One(range) => {
                    return answer::of_range(headers, &range, bytes, PageBody::flight_range(reader, &range));
                }
                Selected::Unsatisfiable => return answer::unsatisfiable(bytes),
                Selected::Whole | Selected::Many(_) => {}
            }
        }
        answer::respond(fetched.status, headers, PageBody::flight(reader, fetched.bytes))
    }

    /// The stale page, if it may be served now that the origin has failed.
    fn serve_stale(&self, asked: &Asked, base: &Base) -> Option<Page> {
        let Base::Stale(page) = base else { return None };
        let now = self.site.house.unix_seconds();
        (page.policy.on_error(asked, now) == OnError::Serve).then(|| Page::clone(page))
    }

    /// The request that this one waited for has failed.
    fn failed_with_another(mut self, asked: &Asked, base: &Base, status: StatusCode, why: Forward) -> Flown {
        if let Some(served) = self.serve_stale(asked, base) {
            return Flown::Answered(Box::new(self.serve(served, asked, ResultCode::RefreshFailOld)));
        }
        self.site.house.count(Count::Miss, 1);
        if let Some(entry) = &mut self.entry {
            entry.failed(&"the request it waited for failed");
        }
        let how = How::forwarded(ResultCode::CollapsedMiss, why, false);
        Flown::Answered(Box::new(self.finish(answer::sentence(status, "the origin cannot be asked"), how)))
    }

    fn failed(self, asked: &Asked, base: &Base, error: &FetchError) -> Flown {
        if let Some(stale) = self.serve_stale(asked, base) {
            self.site.house.warn(format_args!("http: GET {}: {error}; the stale page is served", self.url.form()));
            return Flown::Answered(Box::new(self.serve(stale, asked, ResultCode::RefreshFailOld)));
        }
        self.site.house.count(Count::Miss, 1);
        let how = How::forwarded(ResultCode::Miss, Forward::UriMiss, false);
        let response = self.fail(error.status(), error, how);
        Flown::Answered(Box::new(response))
    }
}

/// Can the rest of a part be asked for?
fn can_be_completed(part: &Page) -> bool {
    let mut request = HeaderMap::new();
    part.place().is_some_and(|(held, whole)| partial::ask_for_rest(&part.headers, &held, whole, &mut request))
}

/// A flight, and where its leader's client is told what nobody else may know.
type Aboard = (Arc<Flight>, Option<oneshot::Receiver<Led>>);

/// What came of joining a flight.
enum Flown {
    Answered(Box<Response<PageBody>>),
    /// The store has something now.
    Again(Visit, ResultCode),
    /// Nothing that can be shared: the request is passed.
    Alone(Visit),
}

/// What a client is to make of a flight: who leads is told what only it may know, who follows reads what is for all.
async fn listen(led: Option<oneshot::Receiver<Led>>) -> Led {
    let all_may_read = || Led::Shared(HeaderMap::new());
    match led {
        None => all_may_read(),
        Some(told) => told.await.unwrap_or_else(|_| all_may_read()),
    }
}

async fn follow(flight: &Arc<Flight>) -> Result<(Arc<Fetched>, Reader), Released> {
    poll_fn(|cx| flight.poll_head(cx)).await
}

/// A number that is given once.
fn alone() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
