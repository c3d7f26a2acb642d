//! Sections `update304` and `update-head`, and what a cache sends to revalidate.

use super::super::validate::{conditional_request, head_confirms, not_modified, selects, update};
use super::{Cache, Got, NotStored, START, dated};
use crate::testing::headers;
use http::{HeaderMap, StatusCode};

#[test]
fn a_304_updates_all_fields_but_those_of_the_stored_bytes() {
    for (name, old, new, updated) in [
        ("test-header", "1", "2", true),
        ("x-test-header", "1", "2", true),
        ("content-foo", "1", "2", true),
        ("cache-control", "max-age=1", "max-age=3600", true),
        ("content-location", "/foo", "/bar", true),
        ("content-security-policy", "default-src 'self'", "default-src *", true),
        ("content-type", "text/plain", "text/plain;charset=utf-8", true),
        ("etag", "\"abcdef\"", "\"ghijkl\"", true),
        ("expires", "Fri, 01 Jan 2038 01:01:01 GMT", "Mon, 11 Jan 2038 11:11:11 GMT", true),
        ("x-frame-options", "deny", "sameorigin", true),
        ("content-length", "5", "10", false),
        ("content-encoding", "gzip", "br", false),
        ("content-range", "bytes 0-1/5", "bytes 0-2/5", false),
    ] {
        let mut stored = headers(&[(name, old), ("kept", "1")]);
        update(&mut stored, &headers(&[(name, new)]), START);
        assert_eq!(stored[name], if updated { new } else { old }, "{name}");
        assert_eq!(stored["kept"], "1");
    }
}

#[test]
fn a_304_adds_nothing_of_its_connection() {
    let mut stored = headers(&[("a", "1"), ("a", "2"), ("age", "5")]);
    let fresh = [("connection", "x"), ("x", "1"), ("keep-alive", "1"), ("transfer-encoding", "chunked"), ("a", "3")];
    update(&mut stored, &headers(&fresh), START);
    assert_eq!(stored, dated(&[("a", "3"), ("date", "+0")]));
}

#[test]
fn a_confirmed_response_is_fresh_again_and_as_old_as_the_304() {
    let mut cache = Cache::new();
    let response = dated(&[("cache-control", "max-age=10"), ("etag", "\"a\""), ("date", "+0"), ("x", "1")]);
    cache.answer(&HeaderMap::new(), 200, &response, 0).expect("stored");
    cache.now += 20;
    assert_eq!(cache.request(&HeaderMap::new()), Got::ByTag("\"a\"".into()));
    // Without a Date of its own: the stored one must not make it old.
    cache.confirm(&HeaderMap::new(), &headers(&[("etag", "\"a\""), ("age", "4")])).expect("kept");
    assert_eq!(cache.request(&HeaderMap::new()), Got::Cached(200));
    assert_eq!(cache.stored[0].policy.age_seconds(cache.now), 4);
    assert_eq!(
        cache.stored[0].headers,
        dated(&[("cache-control", "max-age=10"), ("etag", "\"a\""), ("date", "+20"), ("x", "1")])
    );
    cache.now += 6;
    assert_eq!(cache.request(&HeaderMap::new()), Got::ByTag("\"a\"".into()));
}

#[test]
fn a_304_may_end_what_is_stored() {
    for (control, reason) in [("no-store", NotStored::NoStore), ("private", NotStored::Private)] {
        let mut cache = Cache::new();
        cache
            .answer(&HeaderMap::new(), 200, &dated(&[("cache-control", "max-age=1"), ("etag", "\"a\"")]), 0)
            .expect("stored");
        assert_eq!(cache.confirm(&HeaderMap::new(), &headers(&[("cache-control", control)])), Err(reason));
    }
}

#[test]
fn a_revalidation_asks_with_what_is_stored_and_not_with_what_the_client_has() {
    let stored = dated(&[("etag", "W/\"a\""), ("last-modified", "-100")]);
    let mut request = headers(&[
        ("abc", "123"),
        ("if-none-match", "\"x\""),
        ("if-match", "\"x\""),
        ("if-range", "\"x\""),
        ("range", "bytes=0-1"),
        ("if-unmodified-since", "x"),
        ("if-modified-since", "x"),
    ]);
    conditional_request(&stored, &mut request);
    assert_eq!(request, dated(&[("abc", "123"), ("if-none-match", "W/\"a\""), ("if-modified-since", "-100")]));
}

#[test]
fn a_304_made_here_has_what_a_cache_needs_and_no_more() {
    let stored = dated(&[
        ("cache-control", "max-age=9"),
        ("content-location", "/a"),
        ("content-length", "5"),
        ("content-type", "text/html"),
        ("date", "+0"),
        ("etag", "\"a\""),
        ("expires", "+9"),
        ("vary", "a"),
        ("vary", "b"),
        ("x", "1"),
    ]);
    let expected = dated(&[
        ("cache-control", "max-age=9"),
        ("content-location", "/a"),
        ("date", "+0"),
        ("etag", "\"a\""),
        ("expires", "+9"),
        ("vary", "a"),
        ("vary", "b"),
    ]);
    assert_eq!(not_modified(&stored), expected);
}

#[test]
fn a_304_is_about_the_stored_response_if_its_validators_are() {
    for (stored, fresh, expected) in [
        (&[("etag", "\"a\"")][..], &[("etag", "\"a\"")][..], true),
        (&[("etag", "\"a\"")], &[("etag", "W/\"a\"")], true),
        (&[("etag", "\"a\"")], &[("etag", "\"b\"")], false),
        (&[("etag", "\"a\"")], &[], true),
        (&[("last-modified", "-9")], &[("etag", "\"b\"")], false),
        (&[("last-modified", "-9")], &[("last-modified", "-9")], true),
        (&[("last-modified", "-9")], &[("last-modified", "-8")], false),
        (&[("etag", "\"a\""), ("last-modified", "-9")], &[("etag", "\"a\""), ("last-modified", "-8")], true),
    ] {
        assert_eq!(selects(&dated(stored), &dated(fresh)), expected, "{stored:?} {fresh:?}");
    }
}

#[test]
fn a_head_confirms_what_has_its_validators_and_length() {
    let stored = headers(&[("etag", "\"a\""), ("content-length", "5")]);
    for (status, fresh, expected) in [
        (200, &[("etag", "\"a\""), ("content-length", "5")][..], true),
        (200, &[], true),
        (200, &[("content-length", "6")], false),
        (200, &[("etag", "\"b\"")], false),
        (404, &[("etag", "\"a\"")], false),
        (410, &[], false),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(head_confirms(&stored, Some(5), status, &headers(fresh)), expected, "{status} {fresh:?}");
    }
    assert!(head_confirms(&stored, None, StatusCode::OK, &headers(&[("content-length", "6")])));
}
