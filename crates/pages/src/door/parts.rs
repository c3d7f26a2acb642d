//! Parts of pages (206) on the shelf: kept as they come, joined where they touch, and made whole when the whole is asked
//! for (RFC 9111, sections 3.3 and 3.4). What belongs together is told by [`partial`]; here is what becomes of the bytes.

use std::ops::Range;

use bytes::Bytes;
use http::header::{CONTENT_RANGE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use super::fetch::{Errand, Led, Passed, Tell, say};
use super::fetched::Fetched;
use super::shelf::{Found, Page, Written};
use crate::negotiate;
use crate::origin::OriginBody;
use crate::rules::{Exchange, Flags, Policy, UnixSeconds, judge, partial, range, validate};

/// Stores a part that has arrived, together with what is stored of the same representation and touches it.
pub(super) fn store(errand: &Errand, fetched: &Fetched, pieces: &[Bytes], request: &HeaderMap) -> Option<Written> {
    let body = pieces.concat();
    let place = partial::place(&fetched.headers, body.len() as u64)?;
    let joined = if place.is_exact { join(errand, fetched, &place, &body, request) } else { None };
    let (range, headers, body) = joined.unwrap_or_else(|| (place.range.clone(), fetched.headers.clone(), body));
    let is_whole = range == (0..place.whole);
    let mut part = Fetched { headers, ..fetched.clone() };
    if is_whole {
        part.status = StatusCode::OK;
        part.headers.remove(CONTENT_RANGE);
        part.policy = fetched.policy.map(|policy| Policy { flags: policy.flags.without(Flags::PARTIAL), ..policy });
    } else if let Ok(value) = HeaderValue::try_from(range::content_range(&range, place.whole)) {
        part.headers.insert(CONTENT_RANGE, value);
    }
    let coding = negotiate::coding_of(&part.headers).unwrap_or_default();
    errand.keep(&part, (coding, None), &mut std::iter::once(&body[..]), body.len())
}

/// The part with what is stored of the same representation: its place, its fields, its bytes.
fn join(
    errand: &Errand,
    fetched: &Fetched,
    place: &partial::Place,
    body: &[u8],
    request: &HeaderMap,
) -> Option<(Range<u64>, HeaderMap, Vec<u8>)> {
    let now = errand.site.house.unix_seconds();
    let Found::Page(stored) = errand.site.find(&errand.key, request, now) else { return None };
    let (held, whole) = stored.place()?;
    if whole != place.whole || !partial::combinable(&stored.headers, &fetched.headers) {
        return None;
    }
    let (range, body) = partial::join((&held, &body_of(&stored)), (&place.range, body))?;
    if body.len() as u64 > errand.site.body_bytes_max() {
        return None;
    }
    let mut headers = stored.headers.clone();
    validate::update(&mut headers, &fetched.headers, now);
    Some((range, headers, body))
}

fn body_of(page: &Page) -> Vec<u8> {
    let mut body = Vec::with_capacity(page.body_bytes());
    page.value.pieces(page.body_at).for_each(|piece| body.extend_from_slice(piece));
    body
}

/// A stored part and the rest of it, which arrives.
pub(super) struct Completion {
    headers: HeaderMap,
    policy: Policy,
    stored: Bytes,
    /// The stored part is the beginning, and not the end.
    is_beginning: bool,
    whole: u64,
    rest: OriginBody,
}

impl Completion {
    /// `None` when the answer is not the rest of this part.
    pub(super) fn new(
        part: &Page,
        answer: Response<OriginBody>,
        exchange: &Exchange<'_>,
        rules: &crate::rules::Rules,
    ) -> Option<Completion> {
        let (held, whole) = part.place()?;
        let is_beginning = held.start == 0;
        let missing = if is_beginning { held.end..whole } else { 0..held.start };
        let announced = answer.body().bytes_announced();
        if answer.status() != StatusCode::PARTIAL_CONTENT
            || partial::part(answer.headers()) != Some((missing.clone(), whole))
            || announced.is_some_and(|bytes| bytes != missing.end - missing.start)
            || !partial::combinable(&part.headers, answer.headers())
        {
            return None;
        }
        let mut headers = part.headers.clone();
        validate::update(&mut headers, answer.headers(), exchange.answered_at);
        headers.remove(CONTENT_RANGE);
        let policy = judge(&Exchange { status: StatusCode::OK, response: &headers, ..*exchange }, rules).ok()?;
        let stored = Bytes::from(body_of(part));
        Some(Completion { headers, policy, stored, is_beginning, whole, rest: answer.into_body() })
    }

    /// Passes the whole on, and stores it.
    pub(super) async fn share(self, mut errand: Errand, tell: Tell, now: UnixSeconds) {
        let Completion { headers, policy, stored, is_beginning, whole, rest } = self;
        let headers = crate::rules::fields::stored(&headers, &errand.site.settings.rules, now);
        let tags = errand.tags_of(&headers);
        // Whatever has more of them than can be noted could not be purged by them.
        let may_be_kept = tags.is_some();
        let fetched = errand.fetched(StatusCode::OK, headers, policy, tags.unwrap_or_default(), Some(whole));
        errand.leader.begin(std::sync::Arc::clone(&fetched));
        say(tell, Led::Shared(HeaderMap::new()));
        let mut before = Vec::new();
        if is_beginning {
            errand.leader.push(stored.clone());
            before.push(stored.clone());
        }
        let (mut pieces, mut bytes) = match errand.pass_on(&fetched, before, rest).await {
            Passed::Whole(pieces) => {
                let bytes = pieces.iter().map(Bytes::len).sum::<usize>();
                (Some(pieces), bytes as u64)
            }
            Passed::NotKept { bytes } => (None, bytes),
            // Dropping the leader breaks off what its readers get.
            Passed::Broken => return,
        };
        if !is_beginning {
            bytes += stored.len() as u64;
            errand.leader.push(stored.clone());
            pieces.iter_mut().for_each(|pieces| pieces.push(stored.clone()));
        }
        if bytes != whole {
            let form = &errand.form;
            let why = "expected the missing part to be as long as its Content-Range says";
            return errand.site.house.warn(format_args!("http: GET {form}: {why}; nothing is stored"));
        }
        if let Some(pieces) = pieces.filter(|_| may_be_kept) {
            let coding = negotiate::coding_of(&fetched.headers).unwrap_or_default();
            let mut pieces = pieces.iter().map(|piece| &piece[..]);
            let written = errand.keep(&fetched, (coding, None), &mut pieces, bytes as usize);
            errand.write_through(written).await;
        }
        errand.leader.land(true);
    }
}
