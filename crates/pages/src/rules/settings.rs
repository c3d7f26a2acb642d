//! What a site decides about its cache. Built once from the configuration, read only.

use http::{HeaderName, StatusCode};
use regex_lite::Regex;
use std::fmt;

/// The settings of the rules.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Freshness of responses that state none, by path; the first that matches counts (Squid's `refresh_pattern`).
    pub patterns: Vec<RefreshPattern>,
    /// Freshness of responses that state none and match no pattern.
    pub heuristic: Heuristic,
    /// Targeted fields in the order in which they are looked for (RFC 9213, 2.2), before `Cache-Control`.
    pub targeted: Vec<HeaderName>,
    /// No response is fresh for longer, in seconds.
    pub ttl_max_seconds: u32,
    /// Grace: responses that neither say nor forbid it are served stale for so long while they are refreshed.
    pub grace_seconds: u32,
    /// Responses that neither say nor forbid it are served stale for so long when the origin fails.
    pub stale_if_error_seconds: u32,
    /// Stale responses with a validator are kept for so long after they may be served stale, to be revalidated.
    pub keep_seconds: u32,
    /// Whether `Cache-Control` and `Pragma` of requests have effect (RFC 9111 leaves it to the cache).
    pub client_directives: bool,
    /// What becomes of responses with `Set-Cookie`.
    pub set_cookie: SetCookie,
    /// Never stored, whatever the response says: answers to something in a request that is not part of the key, by
    /// which one client would take a page from all (cache-poisoned denial of service).
    pub refused_statuses: Vec<StatusCode>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            patterns: Vec::new(),
            heuristic: Heuristic::default(),
            targeted: vec![HeaderName::from_static("cdn-cache-control")],
            ttl_max_seconds: 365 * 86_400,
            grace_seconds: 0,
            stale_if_error_seconds: 3_600,
            keep_seconds: 3_600,
            client_directives: true,
            set_cookie: SetCookie::Refuse,
            refused_statuses: vec![
                StatusCode::BAD_REQUEST,
                StatusCode::PAYLOAD_TOO_LARGE,
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ],
        }
    }
}

impl Rules {
    /// Statuses by their numbers; what is none is left out.
    #[must_use]
    pub fn statuses(numbers: impl IntoIterator<Item = u16>) -> Vec<StatusCode> {
        numbers.into_iter().filter_map(|number| StatusCode::from_u16(number).ok()).collect()
    }

    /// The heuristic for a path (with query).
    #[must_use]
    pub fn heuristic_for(&self, path: &str) -> &Heuristic {
        self.patterns
            .iter()
            .find(|pattern| pattern.regex.is_match(path))
            .map_or(&self.heuristic, |pattern| &pattern.heuristic)
    }
}

/// What becomes of a response that sets cookies and does not take them out of caching itself by
/// `no-cache="set-cookie"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// It is not stored.
    #[default]
    Refuse,
    /// It is stored without them; whoever asked first has them.
    Strip,
    /// It is stored with them (RFC 9111, 7.3 allows it): everyone gets the same.
    Keep,
}

/// How long a response that does not say so is fresh (RFC 9111, 4.2.2): `percent` of the time since it was last
/// modified, at least `min` and at most `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// Fresh for at least so long, also without a `Last-Modified`; 0 for not at all then.
    pub min_seconds: u32,
    /// Of the time between `Last-Modified` and `Date`.
    pub percent: u32,
    /// Fresh for no longer.
    pub max_seconds: u32,
}

impl Default for Heuristic {
    /// Squid's `refresh_pattern . 0 20% 4320`.
    fn default() -> Self {
        Self { min_seconds: 0, percent: 20, max_seconds: 3 * 86_400 }
    }
}

/// A heuristic for the paths that a regular expression finds something in.
#[derive(Clone, Debug)]
pub struct RefreshPattern {
    regex: Regex,
    /// What holds for them.
    pub heuristic: Heuristic,
}

impl RefreshPattern {
    /// # Errors
    /// The expression is none.
    pub fn new(expression: &str, heuristic: Heuristic) -> Result<Self, PatternError> {
        match Regex::new(expression) {
            Ok(regex) => Ok(Self { regex, heuristic }),
            Err(reason) => Err(PatternError { expression: expression.to_owned(), reason: reason.to_string() }),
        }
    }
}

/// A refresh pattern is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    expression: String,
    reason: String,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the refresh pattern {:?} is no regular expression: {}", self.expression, self.reason)
    }
}

impl std::error::Error for PatternError {}
