//! Section `vary`.

use super::super::vary::{fields, variant};
use super::{Cache, Got, Lines, dated};
use crate::key::{Cookies, Preset};
use crate::testing::headers;

/// Stores an answer to `first` that varies with these fields, and asks with `second`.
fn same(vary: &str, first: Lines<'_>, second: Lines<'_>) -> bool {
    let mut cache = Cache::new();
    let response = dated(&[("cache-control", "max-age=5000"), ("vary", vary)]);
    cache.answer(&headers(first), 200, &response, 0).expect("stored");
    cache.request(&headers(second)) == Got::Cached(200)
}

#[test]
fn a_variant_is_for_requests_with_the_same_fields() {
    for (vary, first, second, expected) in [
        ("Foo", &[("foo", "1")][..], &[("foo", "1")][..], true),
        ("Foo", &[("foo", "1")], &[("foo", "2")], false),
        ("Foo", &[], &[("foo", "1")], false),
        ("Foo", &[("foo", "1")], &[], false),
        ("Foo", &[], &[], true),
        ("Foo", &[], &[("foo", "")], false),
        ("Foo", &[("foo", "1"), ("other", "2")], &[("foo", "1"), ("other", "3")], true),
        ("Foo, Bar", &[("foo", "1"), ("bar", "abc")], &[("bar", "abc"), ("foo", "1")], true),
        ("Foo, Bar", &[("foo", "1"), ("bar", "abc")], &[("foo", "2"), ("bar", "abc")], false),
        ("Foo, Bar", &[("foo", "1"), ("bar", "abc")], &[], false),
        ("Foo, Bar, Baz", &[("foo", "1"), ("baz", "7")], &[("foo", "1"), ("baz", "7")], true),
        (
            "Foo, Bar, Baz",
            &[("foo", "1"), ("bar", "a"), ("baz", "7")],
            &[("foo", "1"), ("baz", "7"), ("bar", "b")],
            false,
        ),
        // Lines are joined, and blanks around commas do not count.
        ("Foo", &[("foo", "1, 2")], &[("foo", "1"), ("foo", "2")], true),
        ("Foo", &[("foo", "1,2")], &[("foo", " 1,  2 ")], true),
        ("Foo", &[("foo", "1,2")], &[("foo", "2,1")], false),
        ("Foo", &[("foo", "a")], &[("foo", "A")], false),
        ("Foo", &[("foo", "1\", \"2")], &[("foo", "1\",\"2")], false),
        ("Accept-Language", &[("accept-language", "en, de")], &[("accept-language", "eN,  De")], true),
        // Some origins take the first of those they know: the order stays.
        ("Accept-Language", &[("accept-language", "en, de")], &[("accept-language", "de, en")], false),
        ("Accept-Encoding", &[("accept-encoding", "gzip")], &[("accept-encoding", "br")], true),
        // A value cannot be mistaken for a further field.
        ("a, b", &[("a", "1")], &[("b", "1")], false),
    ] {
        assert_eq!(same(vary, first, second), expected, "{vary}: {first:?} {second:?}");
    }
}

#[test]
fn any_number_of_variants_stay_side_by_side() {
    let mut cache = Cache::new();
    let response = dated(&[("cache-control", "max-age=5000"), ("vary", "foo")]);
    for value in 0..300 {
        cache.answer(&headers(&[("foo", &value.to_string())]), 200, &response, 0).expect("stored");
    }
    assert_eq!(cache.stored.len(), 300);
    assert!((0..300).all(|value| cache.request(&headers(&[("foo", &value.to_string())])) == Got::Cached(200)));
}

#[test]
fn the_fields_of_vary_are_sorted_once_each_and_without_the_encoding() {
    let response = headers(&[("vary", "Foo, accept-encoding,, BAR"), ("vary", "foo")]);
    let names = fields(&response).expect("no star");
    assert_eq!(names, ["bar", "foo"]);
    let request = headers(&[("foo", "x ,y"), ("foo", "z")]);
    assert_eq!(variant(&names, &request, &Cookies::default()), b"bar\nfoo:x,y,z\n");
}

#[test]
fn visitors_without_a_session_share_what_varies_with_cookies() {
    let names = fields(&headers(&[("vary", "Cookie")])).expect("no star");
    let cookies = Cookies::new(&[Preset::MediaWiki], &[], &[]);
    let key = |cookie: &str| variant(&names, &headers(&[("cookie", cookie)]), &cookies);
    let anonymous = variant(&names, &headers(&[]), &cookies);
    assert_eq!(key("_ga=1; GeoIP=DE"), anonymous);
    assert_eq!(key("theme=dark"), anonymous);
    assert_ne!(key("wiki_session=1"), anonymous);
    assert_ne!(key("wiki_session=1"), key("wiki_session=2"));
    assert_eq!(key("wiki_session=1; _ga=1"), key("_ga=2; wiki_session=1"));
}
