//! What an origin is asked: the client's request without what belongs to its connection, and without what could change
//! the answer although it is no part of the key.

use http::header::{ACCEPT_ENCODING, COOKIE, EXPECT, HOST, MAX_FORWARDS, UPGRADE, VIA};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::client::Client;
use super::guard;
use crate::rules::{announce, fields};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What of a request is forwarded as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One client's own answer.
    Private,
    /// An answer that others will get.
    Shared,
    /// The client wants to speak another protocol.
    Upgrade,
}

/// The request to send. `host` and `target` are those that are keyed.
pub(crate) fn request(
    method: &Method,
    headers: &HeaderMap,
    version: Version,
    host: &str,
    target: &str,
    client: &Client,
    purpose: Purpose,
) -> Option<Parts> {
    let mut headers = headers.clone();
    let protocols = headers.get_all(UPGRADE).iter().flat_map(|line| guard::protocols(line.as_bytes()));
    let upgrade = HeaderValue::from_bytes(&protocols.collect::<Vec<_>>().join(&b", "[..]));
    fields::strip_hop_by_hop(&mut headers);
    fields::strip_unkeyed(&mut headers);
    // We say 100 Continue ourselves as soon as the origin's connection takes the body.
    headers.remove(EXPECT);
    if purpose == Purpose::Shared {
        headers.remove(ACCEPT_ENCODING);
    }
    if purpose == Purpose::Upgrade {
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, upgrade.ok()?);
    }
    let host = HeaderValue::from_str(host).ok()?;
    headers.insert(X_FORWARDED_HOST, host.clone());
    headers.insert(HOST, host);
    let scheme = if client.is_tls { "https" } else { "http" };
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    // Of no meaning with other methods (RFC 9110, 7.6.2).
    if *method == Method::OPTIONS
        && let Some(left) = headers.get(MAX_FORWARDS).and_then(|left| left.to_str().ok()?.parse::<u64>().ok())
    {
        headers.insert(MAX_FORWARDS, left.saturating_sub(1).into());
    }
    if let Some(address) = client.address {
        append_element(&mut headers, X_FORWARDED_FOR, &address.to_string());
    }
    append_element(&mut headers, VIA, &announce::via(version, "nuthatch"));
    // HTTP/2 may send a cookie in crumbs (RFC 9113, section 8.2.3).
    if version == Version::HTTP_2 && headers.get_all(COOKIE).iter().nth(1).is_some() {
        let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        let whole = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).ok()?;
        headers.insert(COOKIE, whole);
    }
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = method.clone();
    parts.uri = target.parse::<Uri>().ok()?;
    parts.version = Version::HTTP_11;
    parts.headers = headers;
    Some(parts)
}

/// Appends an element to a list, on one line.
fn append_element(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut line: Vec<u8> = Vec::new();
    for value in headers.get_all(&name) {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(element.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&line) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_part_of_the_key_and_changes_the_answer_is_dropped() {
        let mut headers = HeaderMap::new();
        for name in ["forwarded", "x-original-url", "x-forwarded-proto", "front-end-https", "x-http-method-override"] {
            headers.insert(name, HeaderValue::from_static("evil"));
        }
        headers.insert(HOST, HeaderValue::from_static("A.example:80"));
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("close, x-private"));
        headers.insert("x-private", HeaderValue::from_static("1"));
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("10.0.0.1"));
        headers.insert(VIA, HeaderValue::from_static("1.0 fred"));
        let client = Client::new("192.0.2.7".parse().ok(), false, 80);
        let sent = request(&Method::GET, &headers, Version::HTTP_11, "a.example", "/x?y", &client, Purpose::Private)
            .expect("it can be sent");
        let mut lines: Vec<String> =
            sent.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "host: a.example",
                "via: 1.0 fred, 1.1 nuthatch",
                "x-forwarded-for: 10.0.0.1, 192.0.2.7",
                "x-forwarded-host: a.example",
                "x-forwarded-proto: http",
            ]
        );
        assert_eq!(sent.uri, "/x?y");
    }
}
