//! What an unsafe request makes invalid (RFC 9111, 4.4).

use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, StatusCode};

/// Whether the answer to an unsafe request makes stored responses invalid: a 2xx or 3xx does.
#[must_use]
pub fn invalidates(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// The URI references of `Location` and `Content-Location`, as sent; of those, the ones of the request's own origin are
/// invalid as well as the request's target.
pub fn references(response: &HeaderMap) -> impl Iterator<Item = &str> {
    [LOCATION, CONTENT_LOCATION].into_iter().filter_map(|name| response.get(name)?.to_str().ok())
}
