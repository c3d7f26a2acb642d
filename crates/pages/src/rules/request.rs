//! What a request asks of the cache (RFC 9111, 4 and 5.2.1).

use super::directives::{delta_seconds, directives};
use super::settings::Rules;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, PRAGMA, RANGE, TRANSFER_ENCODING,
};
use http::{HeaderMap, Method};

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Look for a stored response; ask the origin without one.
    Lookup(Asked),
    /// Forward, answer, keep nothing, and change nothing that is kept: a safe method that is not cached.
    Pass,
    /// Forward, answer, keep nothing; a non-error answer makes what is stored invalid (RFC 9111, 4.4).
    Unsafe,
}

/// What a `GET` or `HEAD` asks for. [`Asked::plain`] ones are decided on by the policy's integers alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `HEAD`.
    pub head: bool,
    /// Any of `no_cache` to `max_stale_seconds` is set: [`super::Policy::decide`] takes the slow branch.
    pub directives: bool,
    /// `no-cache`, or `Pragma: no-cache` without `Cache-Control`.
    pub no_cache: bool,
    /// `no-store`: the answer is not kept.
    pub no_store: bool,
    /// `only-if-cached`: the origin is not asked.
    pub only_if_cached: bool,
    /// `max-age`: no older response.
    pub max_age_seconds: Option<u32>,
    /// `min-fresh`: fresh for so much longer.
    pub min_fresh_seconds: u32,
    /// `max-stale`: expired for no longer; `u32::MAX` when any staleness will do.
    pub max_stale_seconds: Option<u32>,
    /// `stale-if-error` (RFC 5861, 4).
    pub stale_if_error_seconds: Option<u32>,
    /// Has an `Authorization`: its answer is not kept without consent.
    pub authorization: bool,
    /// Has a `Range`: [`super::range::select`] is for it.
    pub range: bool,
    /// Has a precondition: [`super::validate::evaluate`] is for it.
    pub conditional: bool,
}

impl Asked {
    /// Neither directives nor range nor precondition: the whole response, if it is fresh.
    #[must_use]
    pub fn plain(&self) -> bool {
        !(self.directives || self.range || self.conditional)
    }
}

/// Says what is to be done with a request.
///
/// A `GET` with a body is passed on: the body is no part of the key, and an origin that looks at it would let one client
/// choose what the others get. Whether one wants to speak another protocol is the connection's business.
#[must_use]
pub fn classify(method: &Method, headers: &HeaderMap, rules: &Rules) -> Class {
    match *method {
        Method::GET | Method::HEAD if has_body(headers) => Class::Pass,
        Method::GET | Method::HEAD => Class::Lookup(asked(method, headers, rules)),
        Method::OPTIONS | Method::TRACE => Class::Pass,
        // The other safe methods of the IANA registry (RFC 9110, 9.2.1 and 18.2). One that nobody knows may change
        // anything.
        _ if ["PROPFIND", "REPORT", "SEARCH", "QUERY", "PRI"].contains(&method.as_str()) => Class::Pass,
        _ => Class::Unsafe,
    }
}

/// RFC 9112, 6.3: by `Transfer-Encoding` or a `Content-Length` other than 0.
fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get_all(CONTENT_LENGTH).iter().any(|length| length.as_bytes().iter().any(|&byte| byte != b'0'))
}

/// What a request of this method asks of the cache, whether it is looked up or not.
#[must_use]
pub fn asked(method: &Method, headers: &HeaderMap, rules: &Rules) -> Asked {
    let mut asked = Asked {
        head: method == Method::HEAD,
        authorization: headers.contains_key(AUTHORIZATION),
        // RFC 9110, 14.2: Range is defined for GET only.
        range: method == Method::GET && headers.contains_key(RANGE),
        conditional: [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE, IF_RANGE]
            .iter()
            .any(|name| headers.contains_key(name)),
        ..Asked::default()
    };
    if rules.client_directives {
        read_directives(&mut asked, headers);
    } else {
        // Not a matter of what the client prefers to be answered, but of what may be kept of it.
        asked.no_store = directives(headers, &CACHE_CONTROL).any(|directive| directive.is("no-store"));
    }
    asked
}

fn read_directives(asked: &mut Asked, headers: &HeaderMap) {
    for directive in directives(headers, &CACHE_CONTROL) {
        let seconds = directive.argument.as_deref().and_then(delta_seconds);
        if directive.is("no-cache") {
            asked.no_cache = true;
        } else if directive.is("no-store") {
            asked.no_store = true;
        } else if directive.is("only-if-cached") {
            asked.only_if_cached = true;
        } else if directive.is("max-age") {
            // What is no number is taken for the strictest that can have been meant.
            let seconds = seconds.unwrap_or(0);
            asked.max_age_seconds = Some(asked.max_age_seconds.map_or(seconds, |other| other.min(seconds)));
        } else if directive.is("min-fresh") {
            asked.min_fresh_seconds = asked.min_fresh_seconds.max(seconds.unwrap_or(0));
        } else if directive.is("max-stale") {
            let seconds = if directive.argument.is_none() { Some(u32::MAX) } else { seconds };
            asked.max_stale_seconds = seconds.or(asked.max_stale_seconds);
        } else if directive.is("stale-if-error") {
            asked.stale_if_error_seconds = seconds.or(asked.stale_if_error_seconds);
        }
    }
    if !headers.contains_key(CACHE_CONTROL) {
        asked.no_cache |= directives(headers, &PRAGMA).any(|directive| directive.is("no-cache"));
    }
    asked.directives = asked.no_cache
        || asked.only_if_cached
        || asked.max_age_seconds.is_some()
        || asked.min_fresh_seconds > 0
        || asked.max_stale_seconds.is_some()
        || asked.stale_if_error_seconds.is_some();
}
