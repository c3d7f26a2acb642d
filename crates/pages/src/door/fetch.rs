//! The fetch that a flight's leader makes, in a task of its own: it asks the origin, decides once what may be done with
//! the answer, shares it as it arrives, and stores it when it is whole.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::oneshot;

use super::fetched::Fetched;
use super::flight::{Leader, Released};
use super::forward::Purpose;
use super::shelf::{self, Page};
use super::site::Site;
use super::visit::{Visit, hash_of};
use crate::house::Count;
use crate::negotiate::{self, Coding};
use crate::origin::{FetchError, OriginBody, RequestBody, next_piece};
use crate::rules::{Asked, Exchange, NotStored, OnError, UnixSeconds, fields, judge, validate, vary};

/// What a leader's own client is told.
pub(super) enum Led {
    /// All may read it: read the flight.
    Shared,
    /// This is nobody else's.
    Own(Box<Response<OriginBody>>),
    /// There is none.
    Failed(FetchError),
}

type Tell = Option<oneshot::Sender<Led>>;

/// A leader with all it needs, whatever becomes of its client.
pub(super) struct Leading {
    site: Arc<Site>,
    leader: Leader,
    key: String,
    target: String,
    form: String,
    /// The client's fields, by which variants are told.
    request: HeaderMap,
    asked: Asked,
    parts: Parts,
    /// What is stored, and stale.
    page: Option<Page>,
}

impl Leading {
    /// `None` when the request cannot be forwarded.
    pub(super) fn new(
        visit: &Visit,
        leader: Leader,
        asked: Asked,
        page: Option<Page>,
        is_watched: bool,
    ) -> Option<Leading> {
        let mut parts = visit.forwarded(Purpose::Shared, is_watched)?;
        // A head is made of the whole.
        parts.method = Method::GET;
        match &page {
            Some(page) => validate::conditional_request(&page.headers, &mut parts.headers),
            None => validate::strip_conditions(&mut parts.headers),
        }
        Some(Leading {
            site: Arc::clone(&visit.site),
            leader,
            key: visit.key.clone(),
            target: visit.url.target().to_owned(),
            form: visit.url.form().to_owned(),
            request: visit.request.headers.clone(),
            asked,
            parts,
            page,
        })
    }

    pub(super) async fn run(self, tell: Tell) {
        let Leading { site, leader, key, target, form, request, asked, parts, page } = self;
        let asked_at = site.house.unix_seconds();
        site.house.count(Count::Fetched, 1);
        let outcome = site.origins.ask(parts, RequestBody::Empty, hash_of(&key)).await;
        let now = site.house.unix_seconds();
        let response = match outcome {
            Ok(response) => response,
            Err(error) => {
                let status = error.status();
                if tell.is_none() {
                    site.house.warn(format_args!("http: refreshing {form}: {error}"));
                }
                say(tell, Led::Failed(error));
                return leader.release(Released::Failed(status));
            }
        };
        if response.status() == StatusCode::NOT_MODIFIED
            && let Some(page) = page
        {
            if !validate::selects(&page.headers, response.headers()) {
                // It is about another one than is stored; nobody here has that.
                shelf::purge(&*site.house, &key, false);
                leader.release(Released::Uncacheable);
                return say(tell, Led::Shared);
            }
            let exchange = Judging { asked: &asked, target: &target, asked_at, now };
            return still_holds(&site, leader, tell, &key, &request, page, &response, &exchange);
        }
        if let Some(page) = &page
            && matches!(response.status().as_u16(), 500 | 502 | 503 | 504)
            && page.policy.on_error(&asked, now) == OnError::Serve
        {
            // Everyone who waits has the stale page, or finds it.
            let status = response.status();
            site.house.warn(format_args!("http: GET {form}: the origin answered {status}; the stale page is served"));
            leader.release(Released::Failed(status));
            return say(tell, Led::Shared);
        }
        let judged = judge(
            &Exchange {
                method: &Method::GET,
                target: &target,
                asked: &asked,
                status: response.status(),
                response: response.headers(),
                asked_at,
                answered_at: now,
            },
            &site.settings.rules,
        );
        let announced = response.body().bytes_announced();
        let is_too_large = announced.is_some_and(|bytes| bytes > site.body_bytes_max());
        let policy = match judged {
            Ok(policy) if !is_too_large => policy,
            judged => {
                let is_response_s = match judged {
                    Ok(_) => true,
                    // What the next request says may be otherwise.
                    Err(NotStored::RequestNoStore | NotStored::Authorization | NotStored::Method) => false,
                    Err(_) => true,
                };
                if is_response_s && response.status().as_u16() < 500 && !leader.is_spoiled() {
                    let varies = vary::fields(response.headers()).unwrap_or_default();
                    let variant = vary::variant(&varies, &request, site.cookies());
                    let for_seconds = site.settings.uncacheable_seconds;
                    shelf::mark_uncacheable(&*site.house, &key, &varies, &variant, for_seconds);
                }
                if is_too_large {
                    site.house.count(Count::TooLarge, 1);
                }
                // An origin that fails is not asked again at once by all who have waited for it.
                if response.status().is_server_error() {
                    leader.release(Released::Failed(response.status()));
                } else {
                    leader.release(Released::Uncacheable);
                }
                return say(tell, Led::Own(Box::new(response)));
            }
        };
        let (parts, body) = response.into_parts();
        let varies = vary::fields(&parts.headers).unwrap_or_default();
        let mut headers = fields::stored(&parts.headers, &site.settings.rules, now);
        // Whoever gets it later may get it in another coding, under the same tag.
        if let Some(bytes) = announced
            && negotiate::to_be_compressed(&headers, bytes as usize, &site.settings.compression).is_some()
        {
            negotiate::weaken_etag(&mut headers);
        }
        headers.remove(http::header::CONTENT_LENGTH);
        let fetched = Arc::new(Fetched {
            status: parts.status,
            headers,
            policy: Some(policy),
            variant: vary::variant(&varies, &request, site.cookies()),
            varies,
            bytes: announced,
        });
        leader.begin(Arc::clone(&fetched));
        say(tell, Led::Shared);
        share(&site, leader, &key, &form, &fetched, body).await;
    }
}

fn say(tell: Tell, led: Led) {
    if let Some(tell) = tell {
        // A client that has gone need not know.
        let _ = tell.send(led);
    }
}

/// What [`judge`] is told besides the response.
struct Judging<'a> {
    asked: &'a Asked,
    target: &'a str,
    asked_at: UnixSeconds,
    now: UnixSeconds,
}

/// The origin says that the stored page still holds: it is stored anew with what the 304 says (RFC 9111, section 4.3.4).
fn still_holds(
    site: &Site,
    leader: Leader,
    tell: Tell,
    key: &str,
    request: &HeaderMap,
    page: Page,
    response: &Response<OriginBody>,
    judging: &Judging<'_>,
) {
    let Page { status, headers, value, body_at, coding, .. } = page;
    let exchange = Exchange {
        method: &Method::GET,
        target: judging.target,
        asked: judging.asked,
        status,
        response: response.headers(),
        asked_at: judging.asked_at,
        answered_at: judging.now,
    };
    let (policy, headers) = match validate::refreshed(&headers, &exchange, &site.settings.rules) {
        Ok(refreshed) => refreshed,
        Err(_) => {
            // It holds, and may not be kept. Whoever waits asks for themselves.
            shelf::purge(&*site.house, key, false);
            leader.release(Released::Uncacheable);
            return say(tell, Led::Shared);
        }
    };
    let varies = vary::fields(&headers).unwrap_or_default();
    let variant = vary::variant(&varies, request, site.cookies());
    let fetched = Fetched { status, headers, policy: Some(policy), varies, variant, bytes: None };
    if !leader.is_spoiled() {
        let bytes = value.value_bytes() - body_at;
        shelf::put(&*site.house, key, &fetched, &policy, (coding, None), &mut value.pieces(body_at), bytes);
    }
    leader.release(Released::Look);
    say(tell, Led::Shared);
}

/// Passes the body to everyone as it arrives, and stores it at its end.
async fn share(site: &Site, leader: Leader, key: &str, form: &str, fetched: &Fetched, mut body: OriginBody) {
    let limit = site.body_bytes_max();
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut bytes = 0;
    let mut is_kept = true;
    while let Some(piece) = next_piece(&mut body).await {
        let piece = match piece {
            Ok(piece) if piece.is_empty() => continue,
            Ok(piece) => piece,
            Err(error) => {
                // Dropping the leader breaks off what its readers get; nothing is stored.
                return site.house.warn(format_args!("http: GET {form}: {error}; nothing is stored"));
            }
        };
        bytes += piece.len() as u64;
        if is_kept && bytes > limit {
            is_kept = false;
            pieces = Vec::new();
            leader.overflow();
            let for_seconds = site.settings.uncacheable_seconds;
            shelf::mark_uncacheable(&*site.house, key, &fetched.varies, &fetched.variant, for_seconds);
            site.house.count(Count::TooLarge, 1);
        }
        if is_kept {
            pieces.push(piece.clone());
        }
        leader.push(piece);
        if !is_kept && !poll_fn(|cx| leader.poll_room(cx)).await {
            // Nobody reads it any more.
            return;
        }
    }
    if is_kept
        && !leader.is_spoiled()
        && let Some(policy) = &fetched.policy
    {
        let plain_bytes = Some(bytes);
        match compressed(&fetched.headers, &pieces, bytes as usize, &site.settings.compression) {
            Some((coding, body)) => {
                let mut headers = fetched.headers.clone();
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
                negotiate::weaken_etag(&mut headers);
                negotiate::add_vary(&mut headers);
                let (status, varies, variant) = (fetched.status, fetched.varies.clone(), fetched.variant.clone());
                let fetched = Fetched { status, headers, policy: None, varies, variant, bytes: None };
                let mut piece = std::iter::once(&body[..]);
                shelf::put(&*site.house, key, &fetched, policy, (coding, plain_bytes), &mut piece, body.len());
            }
            None => {
                let coding = negotiate::coding_of(&fetched.headers).unwrap_or_default();
                let mut pieces = pieces.iter().map(|piece| &piece[..]);
                shelf::put(&*site.house, key, fetched, policy, (coding, None), &mut pieces, bytes as usize);
            }
        }
    }
    leader.land(true);
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
