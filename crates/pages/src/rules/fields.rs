//! Which header fields belong to a connection, and which to the stored response.

use super::directives::{self, Elements};
use super::settings::{Rules, SetCookie};
use super::{UnixSeconds, date};
use http::header::{
    AGE, CONNECTION, DATE, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Fields of one connection (RFC 9110, 7.6.1; RFC 9111, 3.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
const HOP_BY_HOP_NAMES: [&str; 4] = ["http2-settings", "keep-alive", "proxy-connection", "proxy-authentication-info"];

/// Removes what belongs to the connection a message came on, before it is forwarded or stored.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    strip_named(headers, |_| true);
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    for name in HOP_BY_HOP_NAMES {
        headers.remove(name);
    }
}

/// Removes from a request the fields that its `Connection` names, before anything is decided on: the origin will not see
/// them, so they choose no variant and ask for nothing. `Host` is every recipient's (RFC 9110, 7.6.1), and `Upgrade` is
/// looked at yet.
pub fn strip_named_by_client(request: &mut HeaderMap) {
    strip_named(request, |name| *name != HOST && *name != UPGRADE);
}

fn strip_named(headers: &mut HeaderMap, is_stripped: impl Fn(&HeaderName) -> bool) {
    let mut named: Vec<HeaderName> = Vec::new();
    for line in headers.get_all(CONNECTION) {
        let options = Elements::of(line.as_bytes());
        // What nearly every one says, and names no field.
        let options = options.filter(|name| !name.eq_ignore_ascii_case(b"keep-alive") && *name != b"close");
        named.extend(options.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    for name in named.iter().filter(|name| is_stripped(name)) {
        headers.remove(name);
    }
}

/// Fields of requests by which an origin may be made to answer for another host, path or method than the key has.
const UNKEYED: [&str; 23] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-server",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-prefix",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-host",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
    "x-url-scheme",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-wap-profile",
    "x-forwarded-ssl",
    "front-end-https",
    "x-forwarded-protocol",
    "x-scheme",
    "x-http-host-override",
    // Programs behind CGI take it for the proxy to use (CVE-2016-5385).
    "proxy",
];

/// Removes from a request what is no part of the key and yet changes the answer with some origins, before it is
/// forwarded: else one client's answer poisons the cache for all. The listener then sets those that it vouches for
/// (`X-Forwarded-Proto`, `X-Forwarded-For`).
///
/// So is every field whose name has other characters than letters, digits and `-`: to applications behind CGI, WSGI and
/// their like, `X_Forwarded_Host` is `X-Forwarded-Host`, and `Accept_Language` the `Accept-Language` that chose a variant.
pub fn strip_unkeyed(request: &mut HeaderMap) {
    for name in UNKEYED {
        request.remove(name);
    }
    let is_plain = |name: &&HeaderName| name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let ambiguous: Vec<HeaderName> = request.keys().filter(|name| !is_plain(name)).cloned().collect();
    for name in ambiguous {
        request.remove(name);
    }
}

/// The header fields of a response that are stored: without those of the connection, those that `no-cache="…"` and
/// `private="…"` list, cookies unless they are to be kept, and `Age`, which the policy has; with a `Date` (RFC 9110, 6.6.1).
#[must_use]
pub fn stored(response: &HeaderMap, rules: &Rules, answered_at: UnixSeconds) -> HeaderMap {
    let mut headers = response.clone();
    strip_hop_by_hop(&mut headers);
    for name in directives::of_response(response, rules).without {
        headers.remove(name);
    }
    if rules.set_cookie != SetCookie::Keep {
        headers.remove(SET_COOKIE);
    }
    headers.remove(AGE);
    with_date(&mut headers, answered_at);
    headers
}

/// The fields of a response that are not stored and yet are for whoever it answers: those that `no-cache="…"` and
/// `private="…"` list, and cookies that are stripped (RFC 9111, 5.2.2.4 and 5.2.2.7).
#[must_use]
pub fn own(response: &HeaderMap, rules: &Rules) -> HeaderMap {
    let mut through = response.clone();
    strip_hop_by_hop(&mut through);
    let mut names = directives::of_response(response, rules).without;
    if rules.set_cookie != SetCookie::Keep {
        names.push(SET_COOKIE);
    }
    let mut own = HeaderMap::new();
    for name in names {
        if !own.contains_key(&name) {
            through.get_all(&name).iter().for_each(|value| _ = own.append(&name, value.clone()));
        }
    }
    own
}

/// Gives a response that has no usable `Date` the moment it arrived.
pub(super) fn with_date(headers: &mut HeaderMap, answered_at: UnixSeconds) {
    if single(headers, &DATE).and_then(date::parse).is_none()
        && let Ok(now) = HeaderValue::from_str(&date::format(answered_at))
    {
        headers.insert(DATE, now);
    }
}

/// The value of a field that has one line.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    lines.next().is_none().then_some(first.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_fields_that_are_taken_out_are_documented() {
        crate::testing::assert_documented(&super::UNKEYED);
    }
}
