//! Validation (RFC 9111, 4.3; RFC 9110, 13): asking the origin whether a stored response still holds, answering clients
//! who ask the same, and taking over what a 304 says.

use super::directives::Elements;
use super::{date, fields};
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
    EXPIRES, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// What a request's preconditions make of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Answer with it.
    Proceed,
    /// Answer 304 ([`not_modified`]).
    NotModified,
    /// Answer 412.
    Failed,
}

/// Makes a request to the origin conditional on the stored response being out of date: with its `ETag` and its
/// `Last-Modified`. The client's own preconditions and range are removed; they are for the answer made of the result.
pub fn conditional_request(stored: &HeaderMap, request: &mut HeaderMap) {
    strip_conditions(request);
    if let Some(tag) = stored.get(ETAG) {
        request.insert(IF_NONE_MATCH, tag.clone());
    }
    if let Some(modified) = stored.get(LAST_MODIFIED) {
        request.insert(IF_MODIFIED_SINCE, modified.clone());
    }
}

/// Removes preconditions and range, so that the origin's answer is whole and may be stored.
pub fn strip_conditions(request: &mut HeaderMap) {
    for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE] {
        request.remove(name);
    }
}

/// Evaluates a client's preconditions against a stored response, in the order of RFC 9110, 13.2.2. `If-Range` is
/// [`super::range::select`]'s.
#[must_use]
pub fn evaluate(request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> Precondition {
    // RFC 9110, 13.2.1: a condition holds for what would have been a success.
    if !(status.is_success()) {
        return Precondition::Proceed;
    }
    let tag = stored.get(ETAG).map(HeaderValue::as_bytes);
    let modified = stored.get(LAST_MODIFIED).and_then(|value| date::parse(value.as_bytes()));
    let moment = |name: HeaderName| request.get(name).and_then(|value| date::parse(value.as_bytes()));
    if request.contains_key(IF_MATCH) {
        if !any_tag(request, &IF_MATCH, |given| tag.is_some_and(|tag| strong_match(given, tag))) {
            return Precondition::Failed;
        }
    } else if let (Some(since), Some(modified)) = (moment(IF_UNMODIFIED_SINCE), modified)
        && modified > since
    {
        return Precondition::Failed;
    }
    if request.contains_key(IF_NONE_MATCH) {
        if any_tag(request, &IF_NONE_MATCH, |given| tag.is_some_and(|tag| weak_match(given, tag))) {
            return Precondition::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (moment(IF_MODIFIED_SINCE), modified)
        && modified <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// Whether any tag of a list matches; `*` matches whatever is stored.
fn any_tag(request: &HeaderMap, name: &HeaderName, matches: impl Fn(&[u8]) -> bool) -> bool {
    request
        .get_all(name)
        .iter()
        .any(|line| Elements { rest: line.as_bytes() }.any(|given| given == b"*" || matches(given)))
}

/// Both strong and the same bytes (RFC 9110, 8.8.3.2).
pub(super) fn strong_match(one: &[u8], other: &[u8]) -> bool {
    one == other && one.first() == Some(&b'"')
}

/// The same but for weakness (RFC 9110, 8.8.3.2).
fn weak_match(one: &[u8], other: &[u8]) -> bool {
    one.strip_prefix(b"W/").unwrap_or(one) == other.strip_prefix(b"W/").unwrap_or(other)
}

/// The header section of a 304 made from a stored response (RFC 9110, 15.4.5): what a cache needs to update its own.
#[must_use]
pub fn not_modified(stored: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in [CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, LAST_MODIFIED, VARY] {
        for value in stored.get_all(&name) {
            headers.append(&name, value.clone());
        }
    }
    headers
}

/// Takes over the fields of a 304, or of the answer to a HEAD, into a stored header section (RFC 9111, 3.2). A field that
/// it has replaces all lines of that name; what describes the stored bytes stays.
pub fn update(stored: &mut HeaderMap, fresh: &HeaderMap) {
    let mut fresh = fresh.clone();
    fields::strip_hop_by_hop(&mut fresh);
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE] {
        fresh.remove(name);
    }
    let names: Vec<HeaderName> = fresh.keys().cloned().collect();
    for name in names {
        stored.remove(&name);
        for value in fresh.get_all(&name) {
            stored.append(&name, value.clone());
        }
    }
}
