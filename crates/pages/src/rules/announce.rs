//! What a cache says of itself in a response: `Age` (RFC 9111, 5.1), `Via` (RFC 9110, 7.6.3), `Cache-Status` (RFC 9211),
//! and the `X-Cache` and `X-Cache-Lookup` that readers of Squid's know.

use http::Version;
use std::fmt::Write;

/// How a request was handled, for `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Served from the store without asking the origin first.
    Hit {
        /// `ttl`: the freshness left, negative when it is stale (RFC 9211, 2.5).
        ttl_seconds: i64,
    },
    /// Forwarded to the origin.
    Forwarded {
        /// Why (`fwd`, 2.2).
        reason: Forward,
        /// The origin's answer (`fwd-status`, 2.3), when it is not what the client gets.
        status: Option<u16>,
        /// It was stored (`stored`, 2.6).
        stored: bool,
        /// It was asked for on behalf of others as well (`collapsed`, 2.7).
        collapsed: bool,
    },
    /// Answered by this cache itself, for a reason that its detail names.
    Refused,
}

/// Why a request was forwarded (RFC 9211, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache is configured not to handle it.
    Bypass,
    /// The method's semantics require it.
    Method,
    /// Nothing is stored for the URL.
    UriMiss,
    /// Something is stored for the URL, but for other request fields.
    VaryMiss,
    /// The request's directives ask for it.
    Request,
    /// What is stored is stale.
    Stale,
    /// What is stored has not all that is asked for.
    Partial,
}

impl Forward {
    /// The token of `fwd`.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// The value of `Cache-Status` for this cache, to be put after those of the caches behind it. `name` becomes a token, or a
/// quoted string where it is none; `detail` (2.8) is a token that says more, such as `refresh` or `session`.
#[must_use]
pub fn cache_status(name: &str, handled: Handled, detail: Option<&str>) -> String {
    let mut value = String::with_capacity(64);
    push_name(&mut value, name);
    match handled {
        Handled::Hit { ttl_seconds } => push(&mut value, format_args!("; hit; ttl={ttl_seconds}")),
        Handled::Forwarded { reason, status, stored, collapsed } => {
            push(&mut value, format_args!("; fwd={}", reason.token()));
            if let Some(status) = status {
                push(&mut value, format_args!("; fwd-status={status}"));
            }
            value.push_str(if stored { "; stored" } else { "" });
            value.push_str(if collapsed { "; collapsed" } else { "" });
        }
        Handled::Refused => {}
    }
    if let Some(detail) = detail {
        value.push_str("; detail=");
        push_name(&mut value, detail);
    }
    value
}

/// The value of `Via` that a message received in this version gets, after those of the proxies before it.
#[must_use]
pub fn via(version: Version, name: &str) -> String {
    let protocol = match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    format!("{protocol} {name}")
}

/// The values of `X-Cache` and `X-Cache-Lookup` as Squid has them: what the client got, and whether anything was found
/// when it was looked for.
#[must_use]
pub fn x_cache(name: &str, served_from_store: bool, found: bool) -> (String, String) {
    let word = |hit: bool| if hit { "HIT" } else { "MISS" };
    (format!("{} from {name}", word(served_from_store)), format!("{} from {name}", word(found)))
}

fn push(value: &mut String, text: std::fmt::Arguments<'_>) {
    // A String takes every write.
    let _ = value.write_fmt(text);
}

/// A token of RFC 9651, or a string.
fn push_name(value: &mut String, name: &str) {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'*';
    let further = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
    if name.bytes().next().is_some_and(first) && name.bytes().all(further) {
        value.push_str(name);
        return;
    }
    value.push('"');
    for byte in name.bytes().filter(|byte| (b' '..=b'~').contains(byte)) {
        if byte == b'"' || byte == b'\\' {
            value.push('\\');
        }
        value.push(char::from(byte));
    }
    value.push('"');
}

#[cfg(test)]
mod tests {
    use super::{Forward, Handled, cache_status, via, x_cache};
    use http::Version;

    #[test]
    fn cache_status_is_a_structured_field() {
        let forwarded = |reason| Handled::Forwarded { reason, status: None, stored: false, collapsed: false };
        let all = Handled::Forwarded { reason: Forward::Stale, status: Some(304), stored: true, collapsed: true };
        for (name, handled, detail, expected) in [
            ("nuthatch", Handled::Hit { ttl_seconds: 376 }, None, "nuthatch; hit; ttl=376"),
            ("nuthatch", Handled::Hit { ttl_seconds: -4 }, Some("refresh"), "nuthatch; hit; ttl=-4; detail=refresh"),
            ("n.example:80", forwarded(Forward::UriMiss), None, "n.example:80; fwd=uri-miss"),
            ("nuthatch", forwarded(Forward::VaryMiss), None, "nuthatch; fwd=vary-miss"),
            ("nuthatch", forwarded(Forward::Bypass), Some("session"), "nuthatch; fwd=bypass; detail=session"),
            ("nuthatch", all, None, "nuthatch; fwd=stale; fwd-status=304; stored; collapsed"),
            ("1 \"cache\"", Handled::Refused, Some("only-if-cached"), "\"1 \\\"cache\\\"\"; detail=only-if-cached"),
        ] {
            let value = cache_status(name, handled, detail);
            assert_eq!(value, expected);
            let list: Result<sfv::List, _> = sfv::Parser::new(&value).parse();
            assert!(list.is_ok_and(|list| list.len() == 1), "{value}");
        }
    }

    #[test]
    fn via_names_the_version_that_came_in() {
        assert_eq!(via(Version::HTTP_10, "nuthatch"), "1.0 nuthatch");
        assert_eq!(via(Version::HTTP_11, "nuthatch"), "1.1 nuthatch");
        assert_eq!(via(Version::HTTP_2, "nuthatch"), "2 nuthatch");
    }

    #[test]
    fn x_cache_tells_a_refresh_from_a_miss() {
        assert_eq!(x_cache("n", true, true), ("HIT from n".into(), "HIT from n".into()));
        assert_eq!(x_cache("n", false, true), ("MISS from n".into(), "HIT from n".into()));
    }
}
