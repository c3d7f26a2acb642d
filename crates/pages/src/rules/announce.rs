//! What a cache says of itself in a response: `Age`, `Via`, `Cache-Status` (RFC 9211), and Squid's `X-Cache`.

use std::fmt::Write;

/// How a request was handled, for `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Served from the store, with the freshness left (negative when stale).
    Hit {
        /// `ttl`, RFC 9211, 2.4.
        ttl_seconds: i64,
    },
    /// Forwarded.
    Forwarded {
        /// Why.
        reason: Forward,
        /// `fwd-status`, the origin's answer.
        status: Option<u16>,
        /// `stored`, RFC 9211, 2.5.
        stored: bool,
        /// `collapsed`, RFC 9211, 2.6.
        collapsed: bool,
    },
}

/// Why a request was forwarded (RFC 9211, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Configured not to handle it.
    Bypass,
    /// Its method's semantics require it.
    Method,
    /// Nothing stored for the URI.
    UriMiss,
    /// Nothing stored for the request's fields.
    VaryMiss,
    /// The request's directives asked for it.
    Request,
    /// What is stored is stale.
    Stale,
    /// Only parts are stored.
    Partial,
}

impl Forward {
    const fn token(self) -> &'static str {
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

/// The value of `Cache-Status` for a cache of this name (a token).
#[must_use]
pub fn cache_status(name: &str, handled: Handled) -> String {
    let mut value = name.to_owned();
    let written = match handled {
        Handled::Hit { ttl_seconds } => write!(value, "; hit; ttl={ttl_seconds}"),
        Handled::Forwarded { reason, status, stored, collapsed } => {
            let _ = write!(value, "; fwd={}", reason.token());
            if let Some(status) = status {
                let _ = write!(value, "; fwd-status={status}");
            }
            value.push_str(if stored { "; stored" } else { "" });
            value.push_str(if collapsed { "; collapsed" } else { "" });
            Ok(())
        }
    };
    debug_assert!(written.is_ok(), "a String takes every write");
    value
}
