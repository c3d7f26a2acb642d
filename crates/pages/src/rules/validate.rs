//! Validation (RFC 9111, 4.3; RFC 9110, 13): asking the origin whether a stored response still holds, answering clients
//! who ask the same, and taking over what a 304 or the answer to a HEAD says.

use super::directives::Elements;
use super::fields::{self, single};
use super::policy::Policy;
use super::settings::Rules;
use super::store::{Exchange, NotStored, judge};
use super::{UnixSeconds, date};
use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, DATE, ETAG, EXPIRES,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
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
/// `Last-Modified` (RFC 9111, 4.3.1). The client's own preconditions and range are removed; they are for the answer made
/// of the result.
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
    // RFC 9110, 13.2.1: a condition is about what would have been a success.
    if !status.is_success() {
        return Precondition::Proceed;
    }
    let tag = stored.get(ETAG).map(HeaderValue::as_bytes);
    // RFC 9111, 4.3.2: without a Last-Modified, the Date.
    let modified = moment(stored, &LAST_MODIFIED);
    if request.contains_key(IF_MATCH) {
        if !any_tag(request, &IF_MATCH, |given| tag.is_some_and(|tag| strong_match(given, tag))) {
            return Precondition::Failed;
        }
    } else if let (Some(since), Some(modified)) = (moment(request, &IF_UNMODIFIED_SINCE), modified)
        && modified > since
    {
        return Precondition::Failed;
    }
    if request.contains_key(IF_NONE_MATCH) {
        if any_tag(request, &IF_NONE_MATCH, |given| tag.is_some_and(|tag| weak_match(given, tag))) {
            return Precondition::NotModified;
        }
    } else if let (Some(since), Some(modified)) =
        (moment(request, &IF_MODIFIED_SINCE), modified.or_else(|| moment(stored, &DATE)))
        && modified <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// The moment of a field that has one line with a date; others are ignored (RFC 9110, 13.1.3).
fn moment(headers: &HeaderMap, name: &HeaderName) -> Option<UnixSeconds> {
    single(headers, name).and_then(date::parse)
}

/// Whether any tag of a list matches; `*` matches whatever is stored.
fn any_tag(request: &HeaderMap, name: &HeaderName, matches: impl Fn(&[u8]) -> bool) -> bool {
    request
        .get_all(name)
        .iter()
        .any(|line| Elements::of_tags(line.as_bytes()).any(|given| given == b"*" || matches(given)))
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

/// Whether a 304 is about this stored response (RFC 9111, 4.3.4): validators that it names must be the stored ones; with
/// none it is the answer to the question that was asked.
#[must_use]
pub fn selects(stored: &HeaderMap, fresh: &HeaderMap) -> bool {
    let same = |name: &HeaderName, matches: fn(&[u8], &[u8]) -> bool| match (fresh.get(name), stored.get(name)) {
        (Some(fresh), Some(stored)) => Some(matches(fresh.as_bytes(), stored.as_bytes())),
        (Some(_), None) => Some(false),
        (None, _) => None,
    };
    let dates: fn(&[u8], &[u8]) -> bool = |one, other| one == other || date::parse(one) == date::parse(other);
    same(&ETAG, weak_match).or_else(|| same(&LAST_MODIFIED, dates)).unwrap_or(true)
}

/// Takes over the fields of a 304, or of the answer to a HEAD, into a stored header section (RFC 9111, 3.2). A field that
/// it has replaces all lines of that name. What describes the stored bytes (`Content-Encoding`, `Content-Length`,
/// `Content-Range`) and what belongs to the connection stays out; `Age` and `Date` become those of the new answer, which
/// [`judge`] needs.
pub fn update(stored: &mut HeaderMap, fresh: &HeaderMap, answered_at: UnixSeconds) {
    let mut fresh = fresh.clone();
    fields::strip_hop_by_hop(&mut fresh);
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE] {
        fresh.remove(name);
    }
    fields::with_date(&mut fresh, answered_at);
    stored.remove(AGE);
    let names: Vec<HeaderName> = fresh.keys().cloned().collect();
    for name in names {
        stored.remove(&name);
        for value in fresh.get_all(&name) {
            stored.append(&name, value.clone());
        }
    }
}

/// A stored response that a 304 has confirmed: its new policy and header section.
///
/// `exchange` is that of the revalidation, but with the stored response's status and method GET; `exchange.response` is
/// the 304's header section.
///
/// # Errors
/// The response may not be kept any longer; it is served to the client that asked, and forgotten.
pub fn refreshed(
    stored: &HeaderMap,
    exchange: &Exchange<'_>,
    rules: &Rules,
) -> Result<(Policy, HeaderMap), (NotStored, HeaderMap)> {
    let mut merged = stored.clone();
    update(&mut merged, exchange.response, exchange.answered_at);
    let policy = judge(&Exchange { response: &merged, ..*exchange }, rules);
    let headers = fields::stored(&merged, rules, exchange.answered_at);
    policy.map(|policy| (policy, headers.clone())).map_err(|reason| (reason, headers))
}

/// Whether the answer to a HEAD confirms a stored response, which is then updated by it ([`refreshed`]), or shows that it
/// is out of date (RFC 9111, 4.3.5): validators and length that it names must be the stored ones. `stored_bytes` is the
/// length of the body as the origin sent it, when that is known.
#[must_use]
pub fn head_confirms(stored: &HeaderMap, stored_bytes: Option<u64>, status: StatusCode, fresh: &HeaderMap) -> bool {
    let length = fresh.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    status == StatusCode::OK
        && selects(stored, fresh)
        && (length.is_none() || stored_bytes.is_none() || length == stored_bytes)
}
