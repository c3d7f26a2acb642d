//! Answers: a stored page as one client asked for it, and what every answer says of itself.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{
    AGE, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, HeaderValue,
    VIA,
};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use nuthatch_store::Held;

use super::body::{PageBody, Part};
use super::log::ResultCode;
use super::shelf::Page;
use super::site::Announce;
use crate::negotiate::{self, Accepted, Coding, DecodeLimits, Decoder};
use crate::rules::announce::{Forward, Handled, cache_status};
use crate::rules::range::{self, Multipart, Selected};
use crate::rules::validate::{self, Precondition};
use crate::rules::{Asked, UnixSeconds};

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
const X_CACHE_LOOKUP: HeaderName = HeaderName::from_static("x-cache-lookup");
const X_SERVED_BY: HeaderName = HeaderName::from_static("x-served-by-memcached");
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What is announced, made once so that an answer copies nothing. Leaked: it lives as long as the process.
static HIT: LazyLock<&'static str> = LazyLock::new(|| format!("HIT from {}", host_name()).leak());
static MISS: LazyLock<&'static str> = LazyLock::new(|| format!("MISS from {}", host_name()).leak());

/// What this machine calls itself, where that can stand in a field.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c)).collect();
    if name.is_empty() { "nuthatch".to_owned() } else { name }
}

/// How an answer came about, for who reads it and for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) code: ResultCode,
    /// Why the origin was asked, if it was.
    pub(crate) forward: Option<Forward>,
    pub(crate) is_stored: bool,
    pub(crate) ttl_seconds: i64,
}

impl How {
    /// Served from memory.
    pub(crate) fn hit(code: ResultCode, ttl_seconds: i64) -> How {
        How { code, forward: None, is_stored: false, ttl_seconds }
    }

    /// Asked for.
    pub(crate) fn forwarded(code: ResultCode, reason: Forward, is_stored: bool) -> How {
        How { code, forward: Some(reason), is_stored, ttl_seconds: 0 }
    }
}

/// How a field comes to an answer's others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adding {
    /// In place of one of that name.
    InPlace,
    /// Behind those of that name.
    Behind,
}

/// Has an answer say how it came about.
pub(crate) fn announce(announce: Announce, how: How, port: u16, status: StatusCode, headers: &mut HeaderMap) {
    announced(announce, how, port, status, &mut |adding, name, value| {
        match adding {
            Adding::InPlace => drop(headers.insert(name, value)),
            Adding::Behind => drop(headers.append(name, value)),
        };
    });
}

/// What an answer says of how it came about.
pub(crate) fn announced(
    announce: Announce,
    how: How,
    port: u16,
    status: StatusCode,
    add: &mut dyn FnMut(Adding, HeaderName, HeaderValue),
) {
    let is_hit = how.code.is_hit();
    if announce.x_cache {
        add(Adding::InPlace, X_CACHE, HeaderValue::from_static(if is_hit { &HIT } else { &MISS }));
    }
    if announce.x_cache_lookup {
        let line = format!("{}:{port}", if is_hit { *HIT } else { *MISS });
        if let Ok(value) = HeaderValue::try_from(line) {
            add(Adding::InPlace, X_CACHE_LOOKUP, value);
        }
    }
    if announce.served_by && is_hit {
        add(Adding::InPlace, X_SERVED_BY, HeaderValue::from_static("true"));
    }
    if announce.cache_status {
        let handled = match how.forward {
            None => Handled::Hit { ttl_seconds: how.ttl_seconds },
            Some(reason) => Handled::Forwarded {
                reason,
                status: Some(status.as_u16()),
                stored: how.is_stored,
                collapsed: how.code == ResultCode::CollapsedMiss,
            },
        };
        if let Ok(value) = HeaderValue::try_from(cache_status("nuthatch", handled, None)) {
            add(Adding::Behind, CACHE_STATUS, value);
        }
    }
    if announce.via {
        // The protocol that the response came by: ours with origins is HTTP/1.1.
        add(Adding::Behind, VIA, HeaderValue::from_static("1.1 nuthatch"));
    }
}

/// A stored page's body as its client takes it.
enum Whole {
    /// As it is stored, from this byte of the value on.
    Stored(Arc<Held>, usize),
    /// Without its coding, or what an application has compressed as a whole.
    Apart(Bytes),
}

impl Whole {
    fn bytes(&self) -> u64 {
        match self {
            Whole::Stored(value, body_at) => (value.value_bytes() - body_at) as u64,
            Whole::Apart(bytes) => bytes.len() as u64,
        }
    }

    fn part(&self, range: &Range<u64>) -> Part {
        let (start, end) = (range.start as usize, range.end as usize);
        match self {
            Whole::Stored(value, body_at) => Part::Page(body_at + start..body_at + end, Arc::clone(value)),
            Whole::Apart(bytes) => Part::Bytes(bytes.slice(start..end)),
        }
    }

    fn body(&self, range: &Range<u64>) -> PageBody {
        match self.part(range) {
            Part::Page(range, value) => PageBody::page(value, range.start, range.end),
            Part::Bytes(bytes) => PageBody::bytes(bytes),
        }
    }
}

/// What a stored page is answered with: as its client asked for it.
pub(crate) fn of_page(page: Page, asked: &Asked, request: &HeaderMap, now: UnixSeconds) -> Response<PageBody> {
    let Page { status, mut headers, policy, coding, value, body_at, inflated, .. } = page;
    let takes_coding = inflated.is_some() || coding == Coding::Identity || Accepted::of(request).takes(coding);
    if !takes_coding {
        headers.remove(CONTENT_ENCODING);
        negotiate::weaken_etag(&mut headers);
        negotiate::add_vary(&mut headers);
    }
    headers.insert(AGE, HeaderValue::from(policy.age_seconds(now)));
    if asked.conditional {
        match validate::evaluate(request, status, &headers) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                let mut not_modified = validate::not_modified(&headers);
                not_modified.insert(AGE, HeaderValue::from(policy.age_seconds(now)));
                return respond(StatusCode::NOT_MODIFIED, not_modified, PageBody::empty());
            }
            Precondition::Failed => return precondition_failed(),
        }
    }
    let whole = match inflated {
        Some(bytes) => Whole::Apart(bytes),
        None if takes_coding => Whole::Stored(value, body_at),
        None => match undone(coding, value.pieces(body_at)) {
            Some(bytes) => Whole::Apart(bytes),
            None => return sentence(StatusCode::BAD_GATEWAY, "the stored page cannot be decoded"),
        },
    };
    let bytes = whole.bytes();
    if asked.head {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        return respond(status, headers, PageBody::empty());
    }
    if asked.range {
        return ranged(&whole, request, status, headers);
    }
    respond(status, headers, whole.body(&(0..bytes)))
}

/// The ranges of a page that a request asks for.
fn ranged(whole: &Whole, request: &HeaderMap, status: StatusCode, mut headers: HeaderMap) -> Response<PageBody> {
    let bytes = whole.bytes();
    match range::select(request, status, &headers, bytes) {
        Selected::Whole => respond(status, headers, whole.body(&(0..bytes))),
        Selected::One(part) => of_range(headers, &part, bytes, whole.body(&part)),
        Selected::Many(parts) => {
            let framing = Multipart::new(&parts, bytes, headers.get(CONTENT_TYPE), seed());
            if let Ok(value) = HeaderValue::try_from(framing.content_type.as_str()) {
                headers.insert(CONTENT_TYPE, value);
            }
            let pieces =
                framing.parts.into_iter().flat_map(|(head, range)| [Part::Bytes(head.into()), whole.part(&range)]);
            let body = pieces.chain([Part::Bytes(framing.end.into())]).collect();
            respond(StatusCode::PARTIAL_CONTENT, headers, PageBody::parts(body))
        }
        Selected::Unsatisfiable => unsatisfiable(bytes),
    }
}

pub(crate) fn precondition_failed() -> Response<PageBody> {
    sentence(StatusCode::PRECONDITION_FAILED, "the precondition does not hold")
}

/// A body without its coding, if it can be undone within the limits.
fn undone<'a>(coding: Coding, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Bytes> {
    let mut body = Vec::new();
    let mut decoder = Decoder::new(coding, DecodeLimits::default()).ok()?;
    for piece in pieces {
        decoder.push(piece, &mut body).ok()?;
    }
    decoder.finish(&mut body).ok()?;
    Some(body.into())
}

/// A range of a stored part, whose first byte is `held_from` of the whole.
pub(crate) fn of_part(
    page: &Page,
    selected: &Range<u64>,
    (held_from, whole): (u64, u64),
    now: UnixSeconds,
) -> Response<PageBody> {
    let mut headers = page.headers.clone();
    headers.insert(AGE, HeaderValue::from(page.policy.age_seconds(now)));
    let at = |position: u64| page.body_at + (position - held_from) as usize;
    let body = PageBody::page(Arc::clone(&page.value), at(selected.start), at(selected.end));
    of_range(headers, selected, whole, body)
}

/// One range of a whole of so many bytes.
pub(crate) fn of_range(mut headers: HeaderMap, range: &Range<u64>, whole: u64, body: PageBody) -> Response<PageBody> {
    if let Ok(value) = HeaderValue::try_from(range::content_range(range, whole)) {
        headers.insert(CONTENT_RANGE, value);
    }
    respond(StatusCode::PARTIAL_CONTENT, headers, body)
}

/// The answer for ranges of a whole of so many bytes that all lie behind its end.
pub(crate) fn unsatisfiable(bytes: u64) -> Response<PageBody> {
    let mut response = sentence(StatusCode::RANGE_NOT_SATISFIABLE, "there are no such bytes");
    if let Ok(value) = HeaderValue::try_from(range::unsatisfied_range(bytes)) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}

/// A number that nobody can foresee.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// An answer of our own: one sentence.
pub(crate) fn sentence(status: StatusCode, text: &str) -> Response<PageBody> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    respond(status, headers, PageBody::bytes(Bytes::from(format!("{text}\n"))))
}

/// The same, and nothing after it on this connection.
pub(crate) fn last_sentence(status: StatusCode, text: &str) -> Response<PageBody> {
    let mut response = sentence(status, text);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// An answer; its length is told by its body.
pub(crate) fn respond(status: StatusCode, headers: HeaderMap, body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A response without a date has that of its arrival (RFC 9110, section 6.6.1).
pub(crate) fn dated(headers: &mut HeaderMap, now: UnixSeconds) {
    if !headers.contains_key(DATE)
        && let Ok(value) = HeaderValue::try_from(crate::rules::format_date(now))
    {
        headers.insert(DATE, value);
    }
}
