//! The expectations of the published HTTP cache test suite (<https://github.com/http-tests/cache-tests>), in our own
//! words, held against the rules alone: a cache of one resource, made of nothing but the rules and a clock that is moved.
//!
//! A comment behind a row says where this cache, among the ways that the RFC leaves open, takes the careful one.

mod freshness;
mod parsing;
mod reuse;
mod updating;
mod varying;

use super::validate::{self, Precondition};
use super::{Asked, Class, Decision, Exchange, NotStored, OnError, Policy, Rules, SetCookie, UnixSeconds, vary};
use super::{classify, fields, format_date, judge};
use crate::key::Cookies;
use crate::testing::headers;
use http::{HeaderMap, HeaderName, Method, StatusCode};

/// Header lines, as rows of tables have them.
type Lines<'a> = &'a [(&'a str, &'a str)];

/// When every test begins.
const START: UnixSeconds = 1_750_000_000;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    /// Answered from the store, with this status: 200 and the like, 304, 412.
    Cached(u16),
    /// Answered from the store and stale, while it is refreshed.
    Refreshing,
    /// The origin was asked anew.
    Asked,
    /// The origin was asked by this tag.
    ByTag(String),
    /// The origin was asked by this date.
    ByDate(String),
    /// 504.
    Timeout,
}

/// A cache of one resource.
struct Cache {
    rules: Rules,
    cookies: Cookies,
    now: UnixSeconds,
    vary: Vec<HeaderName>,
    stored: Vec<Entry>,
}

struct Entry {
    variant: Vec<u8>,
    status: StatusCode,
    headers: HeaderMap,
    policy: Policy,
}

impl Cache {
    fn new() -> Self {
        let rules = Rules { set_cookie: SetCookie::Keep, ..Rules::default() };
        Self { rules, cookies: Cookies::default(), now: START, vary: Vec::new(), stored: Vec::new() }
    }

    fn asked(&self, request: &HeaderMap) -> Asked {
        let Class::Lookup(asked) = classify(&Method::GET, request, &self.rules) else { panic!("a GET is looked up") };
        asked
    }

    fn find(&self, request: &HeaderMap) -> Option<&Entry> {
        let variant = vary::variant(&self.vary, request, &self.cookies);
        self.stored.iter().find(|entry| entry.variant == variant)
    }

    /// The origin's answer to a request, which took `delay` seconds to come.
    fn answer(&mut self, request: &HeaderMap, status: u16, response: &HeaderMap, delay: i64) -> Result<(), NotStored> {
        let asked = self.asked(request);
        let asked_at = self.now;
        self.now += delay;
        let status = StatusCode::from_u16(status).expect("a status");
        let target = "/page";
        let (method, answered_at) = (&Method::GET, self.now);
        let exchange = Exchange { method, target, asked: &asked, status, response, asked_at, answered_at };
        let policy = judge(&exchange, &self.rules)?;
        let names = vary::fields(response).expect("judged already");
        if names != self.vary {
            self.stored.clear();
            self.vary = names;
        }
        let variant = vary::variant(&self.vary, request, &self.cookies);
        self.stored.retain(|entry| entry.variant != variant);
        let headers = fields::stored(response, &self.rules, answered_at);
        self.stored.push(Entry { variant, status, headers, policy });
        Ok(())
    }

    /// A 304 to a revalidation.
    fn confirm(&mut self, request: &HeaderMap, response: &HeaderMap) -> Result<(), NotStored> {
        let asked = self.asked(request);
        let entry = self.find(request).expect("something to confirm");
        let exchange = Exchange {
            method: &Method::GET,
            target: "/page",
            asked: &asked,
            status: entry.status,
            response,
            asked_at: self.now,
            answered_at: self.now,
        };
        let (policy, headers) =
            validate::refreshed(&entry.headers, &exchange, &self.rules).map_err(|(reason, _)| reason)?;
        let variant = vary::variant(&self.vary, request, &self.cookies);
        let entry = self.stored.iter_mut().find(|entry| entry.variant == variant).expect("found before");
        (entry.policy, entry.headers) = (policy, headers);
        Ok(())
    }

    fn request(&self, request: &HeaderMap) -> Got {
        let asked = self.asked(request);
        let Some(entry) = self.find(request) else {
            return match Policy::decide_without(&asked) {
                Decision::GatewayTimeout => Got::Timeout,
                _ => Got::Asked,
            };
        };
        match entry.policy.decide(&asked, self.now) {
            Decision::Hit | Decision::HitStale => {
                Got::Cached(match validate::evaluate(request, entry.status, &entry.headers) {
                    Precondition::Proceed => entry.status.as_u16(),
                    Precondition::NotModified => 304,
                    Precondition::Failed => 412,
                })
            }
            Decision::HitWhileRevalidate => Got::Refreshing,
            Decision::Miss => Got::Asked,
            Decision::GatewayTimeout => Got::Timeout,
            Decision::Revalidate => {
                let mut upstream = request.clone();
                validate::conditional_request(&entry.headers, &mut upstream);
                let text =
                    |name: &str| upstream.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into());
                text("if-none-match")
                    .map(Got::ByTag)
                    .or_else(|| text("if-modified-since").map(Got::ByDate))
                    .expect("a revalidation has a condition")
            }
        }
    }

    /// What a client gets when the origin fails.
    fn failing(&self, request: &HeaderMap) -> OnError {
        let asked = self.asked(request);
        self.find(request).map_or(OnError::Fail, |entry| entry.policy.on_error(&asked, self.now))
    }
}

/// A header section of which some values are dates: `+100` and `-100` are seconds from [`START`].
fn dated(fields: Lines<'_>) -> HeaderMap {
    let dates = ["date", "expires", "last-modified", "if-modified-since", "if-unmodified-since"];
    let dated: Vec<(&str, String)> = fields
        .iter()
        .map(|&(name, value)| match value.parse::<i64>() {
            Ok(offset) if dates.contains(&name) && value.starts_with(['+', '-']) => (name, format_date(START + offset)),
            _ => (name, value.to_owned()),
        })
        .collect();
    headers(&dated.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}

/// What becomes of a plain request that comes `wait` seconds after this response was stored, if it was.
fn after(wait: i64, status: u16, response: Lines<'_>) -> Got {
    let mut cache = Cache::new();
    // Whether it was stored or not, what the client gets counts.
    let _ = cache.answer(&HeaderMap::new(), status, &dated(response), 0);
    cache.now += wait;
    cache.request(&HeaderMap::new())
}

/// Rows of a response and whether it is reused three seconds later.
fn check_reuse(rows: &[(Lines<'_>, bool)]) {
    for (response, reused) in rows {
        let got = after(3, 200, response);
        assert_eq!(matches!(got, Got::Cached(200)), *reused, "{response:?}: {got:?}");
    }
}
