//! Sections `cc-response`, `cc-request`, `auth`, `other`, `headers`, `conditional`, `method`.

use super::super::{Class, Decision, Exchange, Flags, NotStored, Policy, Rules, SetCookie, classify, fields, judge};
use super::{Cache, Got, Lines, START, after, check_reuse, dated};
use crate::testing::headers;
use http::{HeaderMap, Method, StatusCode};

#[test]
fn what_may_not_be_stored_is_not() {
    for (response, reason) in [
        (&[("cache-control", "private, max-age=3600")][..], NotStored::Private),
        (&[("cache-control", "no-store")], NotStored::NoStore),
        (&[("cache-control", "No-StOrE, max-age=3600")], NotStored::NoStore),
        (&[("cache-control", "max-age=10000, no-store"), ("expires", "+10000"), ("date", "+0")], NotStored::NoStore),
        (&[("cache-control", "private=\"not a name\", max-age=3600")], NotStored::Private),
        (&[("cache-control", "private=, max-age=3600")], NotStored::Private),
        (&[("cache-control", "private =\"a\", max-age=3600")], NotStored::Private),
        (&[("cache-control", "max-age=3600"), ("vary", "*")], NotStored::VaryStar),
        (&[("cache-control", "max-age=3600"), ("vary", "Accept, X-Forwarded-For")], NotStored::VaryStar),
        (&[("cache-control", "max-age=0")], NotStored::Stale),
        (&[("cache-control", "no-cache, max-age=3600")], NotStored::Stale),
        (&[], NotStored::Stale),
    ] {
        let mut cache = Cache::new();
        assert_eq!(cache.answer(&HeaderMap::new(), 200, &dated(response), 0), Err(reason), "{response:?}");
    }
    let mut cache = Cache::new();
    let no_store = headers(&[("cache-control", "no-store")]);
    let fresh = headers(&[("cache-control", "max-age=3600")]);
    assert_eq!(cache.answer(&no_store, 200, &fresh, 0), Err(NotStored::RequestNoStore));
    assert_eq!(cache.answer(&HeaderMap::new(), 304, &fresh, 0), Err(NotStored::Status));
    // no-cache says nothing of freshness, and these statuses are not ones to guess for.
    for response in [&[][..], &[("cache-control", "no-cache"), ("etag", "\"a\"")]] {
        for status in [201, 302, 403, 500] {
            let answer = cache.answer(&HeaderMap::new(), status, &headers(response), 0);
            assert_eq!(answer, Err(NotStored::NoFreshness), "{status} {response:?}");
        }
    }
}

#[test]
fn a_part_is_stored_only_by_who_knows_what_to_do_with_it() {
    let range = headers(&[("range", "bytes=-5")]);
    let part = headers(&[("cache-control", "max-age=3600"), ("content-range", "bytes 5-9/10")]);
    let lost = headers(&[("cache-control", "max-age=3600"), ("content-type", "multipart/byteranges; boundary=x")]);
    for (request, status, response, stored) in [
        (&range, 206, &part, true),
        (&HeaderMap::new(), 206, &part, false),
        (&range, 206, &lost, false),
        (&range, 416, &part, false),
    ] {
        let mut cache = Cache::new();
        let answer = cache.answer(request, status, response, 0);
        assert_eq!(answer, if stored { Ok(()) } else { Err(NotStored::Part) }, "{status} {response:?}");
        assert!(cache.stored.iter().all(|entry| entry.policy.flags.has(Flags::PARTIAL)));
    }
}

#[test]
fn the_answer_to_a_post_is_stored_when_it_says_that_it_is_what_lies_there_and_for_how_long() {
    let urls = crate::key::UrlRules::default();
    let url = crate::key::PageUrl::parse(b"http://a.test/page", &urls).expect("a URL");
    let rules = Rules::default();
    let here = ("content-location", "/page");
    let fresh = ("cache-control", "max-age=60");
    for (method, status, response, stored) in [
        ("POST", 200, &[here, fresh][..], true),
        ("POST", 200, &[("content-location", "http://a.test/page"), fresh], true),
        ("POST", 200, &[("content-location", "/other"), fresh], false),
        ("POST", 200, &[("content-location", "http://b.test/page"), fresh], false),
        ("POST", 200, &[fresh], false),
        ("POST", 200, &[here], false),
        ("POST", 200, &[here, ("cache-control", "max-age=0"), ("etag", "\"a\"")], false),
        ("POST", 200, &[here, ("cache-control", "private, max-age=60")], false),
        ("POST", 404, &[here, fresh], false),
        ("PUT", 200, &[here, fresh], false),
    ] {
        let (method, response) = (method.parse().expect("a method"), headers(response));
        let exchange = Exchange {
            method: &method,
            target: "/page",
            asked: &super::Asked::default(),
            status: StatusCode::from_u16(status).expect("a status"),
            response: &response,
            asked_at: START,
            answered_at: START,
        };
        let policy = super::super::judge_post(&exchange, &url, &urls, &rules);
        assert_eq!(policy.is_some(), stored, "{method} {status} {response:?}");
    }
}

#[test]
fn must_understand_makes_no_store_void_for_known_statuses() {
    let response = [("cache-control", "max-age=3600, no-store, must-understand")];
    assert_eq!(after(0, 200, &response), Got::Cached(200));
    assert_eq!(after(0, 599, &response), Got::Asked);
    let mut cache = Cache::new();
    let alone = dated(&[("cache-control", "max-age=3600, must-understand")]);
    assert_eq!(cache.answer(&HeaderMap::new(), 599, &alone, 0), Err(NotStored::NotUnderstood));
}

#[test]
fn no_cache_is_kept_and_asked_about_every_time() {
    let by_tag = Got::ByTag("\"abcd\"".into());
    for control in ["no-cache", "max-age=10000, No-CaChE", "no-cache=, max-age=10000"] {
        assert_eq!(after(0, 200, &[("cache-control", control), ("etag", "\"abcd\"")]), by_tag, "{control}");
    }
    check_reuse(&[(&[("cache-control", "max-age=10000, no-cache"), ("expires", "+10000"), ("date", "+0")], false)]);
}

#[test]
fn listed_fields_are_left_out_and_the_rest_is_stored() {
    for control in ["no-cache=\"a, b\"", "private=\"A,B\"", "no-cache=\"a\", private=\"b\""] {
        let mut cache = Cache::new();
        let response =
            dated(&[("cache-control", control), ("a", "1"), ("b", "2"), ("c", "3"), ("cache-control", "max-age=3600")]);
        cache.answer(&HeaderMap::new(), 200, &response, 0).expect("stored");
        assert_eq!(cache.request(&HeaderMap::new()), Got::Cached(200), "{control}");
        let stored = &cache.stored[0].headers;
        assert_eq!([stored.get("a"), stored.get("b")], [None, None], "{control}");
        assert_eq!(stored["c"], "3");
    }
}

#[test]
fn fields_of_the_connection_are_not_stored_and_all_others_are() {
    let response = headers(&[
        ("cache-control", "max-age=3600"),
        ("connection", "a, B, keep-alive"),
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "x"),
        ("proxy-authentication-info", "x"),
        ("proxy-authorization", "x"),
        ("proxy-connection", "x"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "x"),
        ("age", "1"),
        ("content-encoding", "gzip"),
        ("content-type", "text/plain"),
        ("set-cookie", "a=b"),
        ("set-cookie", "c=d"),
        ("x-test", "1"),
        ("x-test", "2"),
        ("date", "junk"),
    ]);
    let rules = Rules { set_cookie: SetCookie::Keep, ..Rules::default() };
    let stored = fields::stored(&response, &rules, START);
    let expected = dated(&[
        ("cache-control", "max-age=3600"),
        ("c", "3"),
        ("content-encoding", "gzip"),
        ("content-type", "text/plain"),
        ("set-cookie", "a=b"),
        ("set-cookie", "c=d"),
        ("x-test", "1"),
        ("x-test", "2"),
        ("date", "+0"),
    ]);
    assert_eq!(stored, expected);
}

#[test]
fn cookies_are_stored_only_when_told() {
    let response = headers(&[("cache-control", "max-age=3600"), ("set-cookie", "a=b")]);
    let listed = headers(&[("cache-control", "max-age=3600, no-cache=\"Set-Cookie\""), ("set-cookie", "a=b")]);
    for (setting, response, stored, kept) in [
        (SetCookie::Refuse, &response, Err(NotStored::SetCookie), false),
        (SetCookie::Refuse, &listed, Ok(()), false),
        (SetCookie::Strip, &response, Ok(()), false),
        (SetCookie::Keep, &response, Ok(()), true),
        (SetCookie::Keep, &listed, Ok(()), false),
    ] {
        let mut cache = Cache::new();
        cache.rules.set_cookie = setting;
        assert_eq!(cache.answer(&HeaderMap::new(), 200, response, 0), stored, "{setting:?}");
        if stored.is_ok() {
            assert_eq!(cache.stored[0].headers.contains_key("set-cookie"), kept, "{setting:?}");
        }
    }
}

#[test]
fn must_revalidate_is_reused_while_fresh_and_asked_about_after() {
    let response = [("cache-control", "max-age=2, must-revalidate"), ("etag", "\"abcd\"")];
    assert_eq!(after(1, 200, &response), Got::Cached(200));
    assert_eq!(after(2, 200, &response), Got::ByTag("\"abcd\"".into()));
}

#[test]
fn answers_to_authorization_are_shared_only_with_consent() {
    let request = headers(&[("authorization", "FOO")]);
    for (control, stored) in [
        ("max-age=3600", Err(NotStored::Authorization)),
        ("max-age=3600, public", Ok(())),
        ("max-age=3600, must-revalidate", Ok(())),
        ("s-maxage=3600", Ok(())),
        ("max-age=3600, proxy-revalidate", Err(NotStored::Authorization)),
    ] {
        let mut cache = Cache::new();
        assert_eq!(cache.answer(&request, 200, &headers(&[("cache-control", control)]), 0), stored, "{control}");
        let got = if stored.is_ok() { Got::Cached(200) } else { Got::Asked };
        assert_eq!(cache.request(&HeaderMap::new()), got, "{control}");
    }
}

/// Rows of a response, a request that comes at once, and what becomes of it.
fn check_requests(rows: &[(Lines<'_>, Lines<'_>, Got)]) {
    for (response, request, expected) in rows {
        let mut cache = Cache::new();
        cache.answer(&HeaderMap::new(), 200, &dated(response), 0).expect("stored");
        cache.now += 3;
        assert_eq!(cache.request(&dated(request)), *expected, "{response:?} {request:?}");
    }
}

#[test]
fn requests_are_given_what_they_ask_for() {
    let control = "cache-control";
    let hour: Lines<'_> = &[(control, "max-age=3600"), ("etag", "\"a\"")];
    let by_tag = || Got::ByTag("\"a\"".into());
    check_requests(&[
        (hour, &[(control, "max-age=0")], by_tag()),
        (hour, &[(control, "max-age=1")], by_tag()),
        (hour, &[(control, "max-age=3")], Got::Cached(200)),
        (hour, &[(control, "max-age=x")], by_tag()),
        (hour, &[(control, "max-age=100, max-age=1")], by_tag()),
        (&[(control, "max-age=3600"), ("age", "1800")], &[(control, "max-age=600")], Got::Asked),
        (&[(control, "max-age=1"), ("etag", "\"a\"")], &[(control, "max-stale=1000")], Got::Cached(200)),
        (&[(control, "max-age=1"), ("etag", "\"a\"")], &[(control, "max-stale")], Got::Cached(200)),
        (&[(control, "max-age=1"), ("etag", "\"a\"")], &[(control, "max-stale=x")], by_tag()),
        (&[(control, "max-age=1"), ("etag", "\"a\"")], &[(control, "max-stale=1")], by_tag()),
        (
            &[(control, "max-age=1500"), ("age", "2000"), ("etag", "\"a\"")],
            &[(control, "max-stale=1000")],
            Got::Cached(200),
        ),
        (&[(control, "max-age=1, must-revalidate"), ("etag", "\"a\"")], &[(control, "max-stale")], by_tag()),
        (&[(control, "no-cache"), ("etag", "\"a\"")], &[(control, "max-stale")], by_tag()),
        (&[(control, "s-maxage=1"), ("etag", "\"a\"")], &[(control, "max-stale")], by_tag()),
        (&[(control, "max-age=1500")], &[(control, "min-fresh=2000")], Got::Asked),
        (&[(control, "max-age=1500")], &[(control, "min-fresh=1000")], Got::Cached(200)),
        (&[(control, "max-age=1500"), ("age", "1000")], &[(control, "min-fresh=1000")], Got::Asked),
        (hour, &[(control, "no-cache")], by_tag()),
        (&[(control, "max-age=3600")], &[(control, "no-cache")], Got::Asked),
        (hour, &[("pragma", "no-cache")], by_tag()),
        (hour, &[("pragma", "unrecognised-extension")], Got::Cached(200)),
        (hour, &[("pragma", "no-cache"), (control, "max-age=1000")], Got::Cached(200)),
        (hour, &[(control, "only-if-cached")], Got::Cached(200)),
        (&[(control, "max-age=1"), ("etag", "\"a\"")], &[(control, "only-if-cached")], Got::Timeout),
        (hour, &[(control, "only-if-cached, no-cache")], Got::Timeout),
        (hour, &[(control, "no-store")], Got::Cached(200)),
        (&[(control, "max-age=3600, immutable"), ("etag", "\"a\"")], &[(control, "no-cache")], Got::Cached(200)),
        (&[(control, "max-age=3600, immutable"), ("etag", "\"a\"")], &[(control, "max-age=0")], Got::Cached(200)),
        (&[(control, "max-age=2, immutable"), ("etag", "\"a\"")], &[(control, "max-age=0")], by_tag()),
    ]);
}

#[test]
fn a_date_serves_where_there_is_no_tag() {
    check_requests(&[(
        &[("cache-control", "max-age=3600"), ("last-modified", "-10000"), ("date", "+0")],
        &[("cache-control", "no-cache")],
        Got::ByDate(super::format_date(START - 10_000)),
    )]);
}

#[test]
fn only_if_cached_is_504_when_nothing_is() {
    let cache = Cache::new();
    assert_eq!(cache.request(&headers(&[("cache-control", "only-if-cached")])), Got::Timeout);
    assert_eq!(cache.request(&headers(&[])), Got::Asked);
}

#[test]
fn a_site_may_take_no_orders_from_clients() {
    let mut cache = Cache::new();
    cache.rules.client_directives = false;
    cache.answer(&HeaderMap::new(), 200, &dated(&[("cache-control", "max-age=3600")]), 0).expect("stored");
    for field in [("cache-control", "no-cache"), ("cache-control", "max-age=0"), ("pragma", "no-cache")] {
        assert_eq!(cache.request(&headers(&[field])), Got::Cached(200), "{field:?}");
    }
    let no_store = headers(&[("cache-control", "no-store")]);
    let fresh = headers(&[("cache-control", "max-age=3600")]);
    assert_eq!(cache.answer(&no_store, 200, &fresh, 0), Err(NotStored::RequestNoStore));
}

#[test]
fn preconditions_are_answered_from_what_is_stored() {
    let tagged: &[(&str, &str)] =
        &[("cache-control", "max-age=3600"), ("etag", "\"abcdef\""), ("last-modified", "-5000")];
    let weak: Lines<'_> = &[("cache-control", "max-age=3600"), ("etag", "W/\"abcdef\"")];
    let bare: Lines<'_> = &[("cache-control", "max-age=3600"), ("etag", "abcdef")];
    let dated: Lines<'_> = &[("cache-control", "max-age=3600"), ("last-modified", "-3000"), ("date", "+0")];
    let none: Lines<'_> = &[("cache-control", "max-age=3600"), ("date", "-100")];
    let tags = "if-none-match";
    let since = "if-modified-since";
    for (stored, given, status) in [
        (tagged, "\"abcdef\"", 304),
        (tagged, "W/\"abcdef\"", 304),
        (tagged, "*", 304),
        (tagged, "\"abcdef\", \"1234\", \"5678\"", 304),
        (tagged, "\"1234\",\"abcdef\" , \"5678\"", 304),
        (tagged, "\"12,34\\\", \"abcdef\"", 304),
        (tagged, "\"other\"", 200),
        (tagged, "abcdef", 200),
        (tagged, "\"other, \\\"abcdef\\\"\"", 200),
        (weak, "W/\"abcdef\"", 304),
        (weak, "\"abcdef\"", 304),
        (weak, "w/\"abcdef\"", 200),
        (bare, "abcdef", 304),
        (bare, "\"abcdef\"", 200),
    ] {
        check_requests(&[(stored, &[(tags, given)], Got::Cached(status))]);
    }
    // Without a Last-Modified the Date counts.
    for (stored, given, status) in [
        (dated, "-3000", 304),
        (dated, "-2000", 304),
        (dated, "-4000", 200),
        (dated, "junk", 200),
        (none, "-50", 304),
        (none, "-200", 200),
    ] {
        check_requests(&[(stored, &[(since, given)], Got::Cached(status))]);
    }
    check_requests(&[
        (tagged, &[(tags, "\"1234\", \"5678\""), (tags, "\"abcdef\"")], Got::Cached(304)),
        // If-None-Match goes before If-Modified-Since.
        (tagged, &[(tags, "\"other\""), (since, "-1")], Got::Cached(200)),
        (tagged, &[(tags, "\"abcdef\""), (since, "-9000")], Got::Cached(304)),
        (dated, &[(since, "-2000"), (since, "-2000")], Got::Cached(200)),
        (tagged, &[("if-match", "\"abcdef\"")], Got::Cached(200)),
        (tagged, &[("if-match", "\"other\"")], Got::Cached(412)),
        (weak, &[("if-match", "W/\"abcdef\"")], Got::Cached(412)),
        (tagged, &[("if-match", "*")], Got::Cached(200)),
        (dated, &[("if-unmodified-since", "-2000")], Got::Cached(200)),
        (dated, &[("if-unmodified-since", "-4000")], Got::Cached(412)),
        (tagged, &[("if-match", "\"abcdef\""), (tags, "\"abcdef\"")], Got::Cached(304)),
    ]);
}

#[test]
fn an_old_date_in_the_850_form_is_a_date() {
    let mut cache = Cache::new();
    let response = dated(&[("cache-control", "max-age=3600"), ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]);
    cache.answer(&HeaderMap::new(), 200, &response, 0).expect("stored");
    let request = headers(&[("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")]);
    assert_eq!(cache.request(&request), Got::Cached(304));
}

#[test]
fn a_stored_error_is_not_made_a_304() {
    let mut cache = Cache::new();
    cache
        .answer(&HeaderMap::new(), 404, &dated(&[("cache-control", "max-age=9"), ("etag", "\"a\"")]), 0)
        .expect("stored");
    assert_eq!(cache.request(&headers(&[("if-none-match", "\"a\"")])), Got::Cached(404));
}

#[test]
fn methods_are_looked_up_passed_or_change_things() {
    let rules = Rules::default();
    let class = |method: &str| classify(&method.parse::<Method>().expect("a method"), &HeaderMap::new(), &rules);
    for method in ["GET", "HEAD"] {
        assert!(matches!(class(method), Class::Lookup(asked) if asked.plain() && asked.head == (method == "HEAD")));
    }
    for method in ["OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY"] {
        assert_eq!(class(method), Class::Pass, "{method}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get", "FOO"] {
        assert_eq!(class(method), Class::Unsafe, "{method}");
    }
}

#[test]
fn what_the_key_does_not_have_decides_nothing() {
    let rules = Rules::default();
    for (fields, passed) in [
        (&[][..], false),
        (&[("content-length", "0")], false),
        (&[("content-length", "5")], true),
        (&[("content-length", "x")], true),
        (&[("transfer-encoding", "chunked")], true),
        (&[("upgrade", "websocket")], false),
    ] {
        let class = classify(&Method::GET, &headers(fields), &rules);
        assert_eq!(class == Class::Pass, passed, "{fields:?}");
    }
    let mut request = headers(&[("x-forwarded-host", "evil.test"), ("X-Original-URL", "/admin"), ("accept", "*/*")]);
    fields::strip_unkeyed(&mut request);
    assert_eq!(request, headers(&[("accept", "*/*")]));
}

#[test]
fn only_answers_to_get_are_stored() {
    let rules = Rules::default();
    let response = headers(&[("cache-control", "max-age=3600")]);
    let asked = super::Asked::default();
    for method in [Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS] {
        let exchange = Exchange {
            method: &method,
            target: "/",
            asked: &asked,
            status: StatusCode::OK,
            response: &response,
            asked_at: START,
            answered_at: START,
        };
        assert_eq!(judge(&exchange, &rules), Err(NotStored::Method));
    }
}

#[test]
fn without_anything_stored_the_origin_is_asked() {
    assert_eq!(Policy::decide_without(&super::Asked::default()), Decision::Miss);
}

#[test]
fn a_request_with_cookies_is_answered_alike() {
    let mut cache = Cache::new();
    cache.answer(&HeaderMap::new(), 200, &dated(&[("cache-control", "max-age=9")]), 0).expect("stored");
    assert_eq!(cache.request(&headers(&[("cookie", "a=b")])), Got::Cached(200));
}

#[test]
fn a_reload_is_asked_about_however_young_the_page_is() {
    let mut cache = Cache::new();
    cache.answer(&HeaderMap::new(), 200, &headers(&[("cache-control", "max-age=60")]), 0).expect("stored");
    assert_eq!(cache.request(&headers(&[("cache-control", "max-age=0")])), Got::Asked);
}
