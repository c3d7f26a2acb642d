//! Choosing among variants (RFC 9111, 4.1).
//!
//! A resource may have any number of them. Each is stored under the secondary key that [`variant`] makes of the request
//! fields that its `Vary` names; two requests with the same one get the same variant. `Accept-Encoding` takes no part:
//! which encoding is served is negotiated from what is stored.

use super::directives::Elements;
use http::header::{ACCEPT_ENCODING, VARY};
use http::{HeaderMap, HeaderName};

/// The request fields that a response varies with: lower case, sorted, each once, without `Accept-Encoding`. `None` when
/// it varies with something else (`*`), or names what is no field name.
#[must_use]
pub fn fields(response: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for line in response.get_all(VARY) {
        for name in (Elements { rest: line.as_bytes() }) {
            if name == b"*" {
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
