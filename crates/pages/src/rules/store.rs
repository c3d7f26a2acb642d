//! May a response be stored, and for what until when (RFC 9111, 3 and 4.2)? Asked once, when it arrives.

use super::directives::{Lifetime, ResponseDirectives};
use super::fields::single;
use super::policy::{Flags, Policy};
use super::request::Asked;
use super::settings::{Rules, SetCookie};
use super::{UnixSeconds, date, directives, partial, vary};
use crate::key::{PageUrl, UrlRules};
use http::header::{AGE, CONTENT_LOCATION, DATE, ETAG, EXPIRES, LAST_MODIFIED, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};

/// A request that was forwarded, and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The client's method.
    pub method: &'a Method,
    /// Path and query, for the patterns of [`Rules::patterns`].
    pub target: &'a str,
    /// What [`super::classify`] made of the request.
    pub asked: &'a Asked,
    /// The answer's final status.
    pub status: StatusCode,
    /// The answer's header section as the origin sent it.
    pub response: &'a HeaderMap,
    /// When the request was sent to the origin.
    pub asked_at: UnixSeconds,
    /// When the header section had arrived.
    pub answered_at: UnixSeconds,
}

/// Why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStored {
    /// Not the answer to a `GET`.
    Method,
    /// A status that is never stored: 1xx, 304 (see [`super::validate::update`]), or one of [`Rules::refused_statuses`].
    Status,
    /// A 206 whose place in the whole is not known, or that was not asked for; a 416.
    Part,
    /// The request had `no-store`.
    RequestNoStore,
    /// The response has `no-store`.
    NoStore,
    /// The response has `private`.
    Private,
    /// The request had `Authorization`, and the response does not say that it is for all.
    Authorization,
    /// The response sets cookies.
    SetCookie,
    /// `Vary: *`, or by the client's address: it answers no other request.
    VaryStar,
    /// `must-understand`, and what the status means for caching is not known here.
    NotUnderstood,
    /// It says nothing of its freshness, and its status is not one to guess for.
    NoFreshness,
    /// It is stale already and cannot be revalidated.
    Stale,
}

impl NotStored {
    /// One sentence for the log.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Method => "not stored: the answer to a method other than GET",
            Self::Status => "not stored: a response of this status is not",
            Self::Part => "not stored: a part that is not of one known place, or that there is no such part",
            Self::RequestNoStore => "not stored: the request's Cache-Control has no-store",
            Self::NoStore => "not stored: the response's Cache-Control has no-store",
            Self::Private => "not stored: the response's Cache-Control has private",
            Self::Authorization => {
                "not stored: the request has an Authorization, and the response neither public, s-maxage nor must-revalidate"
            }
            Self::SetCookie => "not stored: the response has a Set-Cookie",
            Self::VaryStar => "not stored: the response has Vary: *, or X-Forwarded-For in it",
            Self::NotUnderstood => "not stored: must-understand with a status that is not known",
            Self::NoFreshness => "not stored: the response says nothing of its freshness",
            Self::Stale => "not stored: the response is stale and has neither ETag nor Last-Modified",
        }
    }
}

/// Decides whether a response may be stored, and computes its policy.
///
/// # Errors
/// It may not, and why.
pub fn judge(exchange: &Exchange<'_>, rules: &Rules) -> Result<Policy, NotStored> {
    let Exchange { method, asked, status, response, .. } = *exchange;
    if method != Method::GET {
        return Err(NotStored::Method);
    }
    if status.is_informational() || status == StatusCode::NOT_MODIFIED || rules.refused_statuses.contains(&status) {
        return Err(NotStored::Status);
    }
    // A part whose place is not known, or that nobody asked for, would be taken for the whole; that there is no such part
    // is said to one request.
    if status == StatusCode::PARTIAL_CONTENT && !(asked.range && partial::part(response).is_some())
        || status == StatusCode::RANGE_NOT_SATISFIABLE
    {
        return Err(NotStored::Part);
    }
    let said = directives::of_response(response, rules);
    if said.must_understand && !understood(status) {
        return Err(NotStored::NotUnderstood);
    }
    if asked.no_store {
        return Err(NotStored::RequestNoStore);
    }
    if said.no_store && !said.must_understand {
        return Err(NotStored::NoStore);
    }
    if said.private {
        return Err(NotStored::Private);
    }
    // RFC 9111, 3.5.
    if asked.authorization && !(said.public || said.must_revalidate || said.s_maxage.is_some()) {
        return Err(NotStored::Authorization);
    }
    if rules.set_cookie == SetCookie::Refuse && response.contains_key(SET_COOKIE) && !said.without.contains(&SET_COOKIE)
    {
        return Err(NotStored::SetCookie);
    }
    if vary::fields(response).is_none() {
        return Err(NotStored::VaryStar);
    }
    let policy = policy(exchange, &said, rules)?;
    // One that would be kept although nothing but a client's leave would let it be served is of no use from the start.
    match policy.is_of_use_at(exchange.answered_at) {
        true => Ok(policy),
        false => Err(NotStored::Stale),
    }
}

/// Decides whether the answer to a `POST` may be stored for those who ask for the same URL by `GET`: it says itself that it
/// is what lies there (`Content-Location`), and for how long it is fresh (RFC 9110, 9.3.3).
#[must_use]
pub fn judge_post(exchange: &Exchange<'_>, url: &PageUrl, urls: &UrlRules, rules: &Rules) -> Option<Policy> {
    let named = single(exchange.response, &CONTENT_LOCATION)?;
    if exchange.method != Method::POST
        || exchange.status != StatusCode::OK
        || url.same_origin(named, urls).as_ref() != Some(url)
    {
        return None;
    }
    let policy = judge(&Exchange { method: &Method::GET, ..*exchange }, rules).ok()?;
    (!policy.flags.has(Flags::HEURISTIC) && policy.fresh_until > exchange.answered_at).then_some(policy)
}

fn policy(exchange: &Exchange<'_>, said: &ResponseDirectives, rules: &Rules) -> Result<Policy, NotStored> {
    let Exchange { status, response, asked_at, answered_at, .. } = *exchange;
    let date = single(response, &DATE).and_then(date::parse).unwrap_or(answered_at);
    // RFC 9111, 4.2.3.
    let apparent_age = (answered_at - date).max(0);
    let corrected_age = age_value(response) + (answered_at - asked_at).max(0);
    let born = answered_at - apparent_age.max(corrected_age);

    let explicit = said.lifetime().or_else(|| expires_lifetime(response, said, date));
    let heuristic = explicit.is_none();
    let lifetime = match explicit {
        Some(Lifetime::Seconds(seconds)) => i64::from(seconds),
        Some(Lifetime::Invalid) => 0,
        None if guessed(status) || said.public => heuristic_lifetime(exchange, rules, date),
        None => return Err(NotStored::NoFreshness),
    };
    let fresh_until = match said.no_cache {
        true => born,
        false => (born + lifetime).min(answered_at + i64::from(rules.ttl_max_seconds)),
    };

    // What the origin says outright of serving stale goes before what s-maxage implies of it; must-revalidate and
    // no-cache go before both.
    let forbidden = said.no_cache || said.must_revalidate || said.proxy_revalidate;
    let validator = response.contains_key(ETAG) || response.contains_key(LAST_MODIFIED);
    // What was never fresh, and cannot become so, is not kept for the site's own sake.
    let is_worth_it = validator || fresh_until > answered_at;
    let stale_until = |stated: Option<u32>, unstated: u32| {
        let seconds = match stated {
            _ if forbidden => 0,
            Some(seconds) => seconds,
            None if said.s_maxage.is_some() || !is_worth_it => 0,
            None => unstated,
        };
        fresh_until + i64::from(seconds)
    };
    let while_revalidate_until = stale_until(said.stale_while_revalidate, rules.grace_seconds);
    let if_error_until = stale_until(said.stale_if_error, rules.stale_if_error_seconds);

    let of_use_until = fresh_until.max(while_revalidate_until).max(if_error_until);
    // Without a validator it cannot be made fresh again: once it may not be served stale either, it only takes room.
    let keep_until = match validator {
        true => of_use_until.max(answered_at) + i64::from(rules.keep_seconds),
        false => of_use_until,
    };
    let flags = Flags::default()
        .with(Flags::NO_CACHE, said.no_cache)
        .with(Flags::MUST_REVALIDATE, forbidden || said.s_maxage.is_some())
        .with(Flags::HEURISTIC, heuristic)
        .with(Flags::IMMUTABLE, said.immutable)
        .with(Flags::VALIDATOR, validator)
        .with(Flags::AUTHORIZATION, exchange.asked.authorization)
        .with(Flags::PARTIAL, status == StatusCode::PARTIAL_CONTENT);
    Ok(Policy { born, fresh_until, while_revalidate_until, if_error_until, keep_until, flags })
}

/// `Expires` minus `Date` (RFC 9111, 4.2.1); an invalid one has passed (5.3), and with several lines so has each.
fn expires_lifetime(response: &HeaderMap, said: &ResponseDirectives, date: UnixSeconds) -> Option<Lifetime> {
    if said.targeted || !response.contains_key(EXPIRES) {
        return None;
    }
    let Some(expires) = single(response, &EXPIRES).and_then(date::parse) else { return Some(Lifetime::Invalid) };
    let seconds = (expires - date).clamp(0, i64::from(directives::DELTA_SECONDS_MAX));
    Some(Lifetime::Seconds(u32::try_from(seconds).unwrap_or(directives::DELTA_SECONDS_MAX)))
}

fn heuristic_lifetime(exchange: &Exchange<'_>, rules: &Rules, date: UnixSeconds) -> i64 {
    let knobs = rules.heuristic_for(exchange.target);
    let unchanged = single(exchange.response, &LAST_MODIFIED)
        .and_then(date::parse)
        .map_or(0, |modified| (date - modified).max(0).saturating_mul(i64::from(knobs.percent)) / 100);
    unchanged.min(i64::from(knobs.max_seconds)).max(i64::from(knobs.min_seconds))
}

/// Statuses of which a cache may guess the freshness (RFC 9110, 15.1).
fn guessed(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses whose meaning for a cache is known here: all of RFC 9110 but those that ask for something first.
fn understood(status: StatusCode) -> bool {
    guessed(status) || matches!(status.as_u16(), 302 | 303 | 307 | 400 | 403 | 451 | 500 | 502 | 503 | 504)
}

/// The first value of `Age`, without parameters; 0 when it is no number (RFC 9111, 5.1).
fn age_value(response: &HeaderMap) -> i64 {
    response
        .get(AGE)
        .and_then(|value| directives::Elements::of(value.as_bytes()).next())
        .and_then(|value| value.split(|&byte| byte == b';').next())
        .and_then(|value| directives::delta_seconds(value.trim_ascii()))
        .map_or(0, i64::from)
}
