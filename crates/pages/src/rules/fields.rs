//! Which header fields belong to a connection, and which to the stored response.

use super::directives::{self, Elements};
use super::settings::{Rules, SetCookie};
use http::header::{
    CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// Fields of one connection (RFC 9110, 7.6.1; RFC 9111, 3.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
const HOP_BY_HOP_NAMES: [&str; 3] = ["keep-alive", "proxy-connection", "proxy-authentication-info"];

/// Removes what belongs to the connection a message came on, before it is forwarded or stored.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let mut named: Vec<HeaderName> = Vec::new();
    for line in headers.get_all(CONNECTION) {
        named.extend(Elements { rest: line.as_bytes() }.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP_NAMES {
        headers.remove(name);
    }
}

/// The header fields of a response that are stored: without those of the connection, those that `no-cache="…"` and
/// `private="…"` list, and cookies unless they are to be kept.
#[must_use]
pub fn stored(response: &HeaderMap, rules: &Rules) -> HeaderMap {
    let mut headers = response.clone();
    strip_hop_by_hop(&mut headers);
    for name in directives::of_response(response, rules).without {
        headers.remove(name);
    }
    if rules.set_cookie != SetCookie::Keep {
        headers.remove(SET_COOKIE);
    }
    headers
}
