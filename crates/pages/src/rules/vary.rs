//! Choosing among variants (RFC 9111, 4.1).
//!
//! A resource may have any number of them. Each is stored under the secondary key that [`variant`] makes of the request
//! fields that its `Vary` names; two requests with the same one get the same variant. `Accept-Encoding` takes no part:
//! which encoding is served is negotiated from what is stored.

use super::directives::Elements;
use crate::key::Cookies;
use http::header::{ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, VARY};
use http::{HeaderMap, HeaderName};

/// The request fields that a response varies with: lower case, sorted, each once, without `Accept-Encoding`. `None` when
/// it varies with something else (`*`, or the client's address, which the origin is shown in `X-Forwarded-For` and which is
/// in no client's request), or names what is no field name.
#[must_use]
pub fn fields(response: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for line in response.get_all(VARY) {
        for name in Elements::of(line.as_bytes()) {
            if name == b"*" || name.eq_ignore_ascii_case(b"x-forwarded-for") {
                return None;
            }
            names.push(HeaderName::from_bytes(name).ok()?);
        }
    }
    names.retain(|name| name != ACCEPT_ENCODING);
    names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    Some(names)
}

/// The secondary key: for each of the fields, in order, a line `name` when the request has none, or `name:value`, with
/// the value normalised (RFC 9111, 4.1): lines joined, blanks around commas removed, `Accept` and `Accept-Language` in
/// lower case, `Cookie` reduced to what makes a session ([`Cookies::reduced`]). The order of a list stays: it may mean
/// something to the origin.
#[must_use]
pub fn variant(fields: &[HeaderName], request: &HeaderMap, cookies: &Cookies) -> Vec<u8> {
    let mut key = Vec::new();
    for name in fields {
        key.extend_from_slice(name.as_str().as_bytes());
        if name == COOKIE {
            if let Some(reduced) = cookies.reduced(request) {
                key.push(b':');
                key.extend_from_slice(&reduced);
            }
        } else if request.contains_key(name) {
            key.push(b':');
            let value_at = key.len();
            for line in request.get_all(name) {
                for element in Elements::of(line.as_bytes()) {
                    if key.len() > value_at {
                        key.push(b',');
                    }
                    key.extend_from_slice(element);
                }
            }
            if name == ACCEPT || name == ACCEPT_LANGUAGE {
                key[value_at..].make_ascii_lowercase();
            }
        }
        key.push(b'\n');
    }
    key
}
