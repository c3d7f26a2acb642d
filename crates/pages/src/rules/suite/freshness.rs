//! Sections `cc-freshness`, `expires`, `heuristic`, `age`, `cdn-cache-control`, `status`, `stale`.

use super::super::{Heuristic, OnError, RefreshPattern, Rules};
use super::{Cache, Got, Lines, NotStored, after, check_reuse, dated};
use http::HeaderMap;

#[test]
fn max_age_and_s_maxage_say_how_long() {
    check_reuse(&[
        (&[], false),
        (&[("cache-control", "max-age=3600")], true),
        (&[("cache-control", "max-age=0")], false),
        (&[("cache-control", "max-age=-3600")], false),
        (&[("cache-control", "max-age=2")], false),
        (&[("cache-control", "max-age=2147483648")], true),
        (&[("cache-control", "max-age=99999999999")], true),
        (&[("cache-control", "foobar, max-age=3600")], true),
        (&[("cache-control", "MaX-aGe=3600")], true),
        (&[("cache-control", "s-maxage=3600")], true),
        (&[("cache-control", "max-age=3600, s-maxage=1")], false),
        (&[("cache-control", "s-maxage=1, max-age=3600")], false),
        (&[("cache-control", "max-age=3600"), ("cache-control", "s-maxage=1")], false),
        (&[("cache-control", "max-age=1, s-maxage=3600")], true),
        (&[("cache-control", "s-maxage=0, max-age=3600")], false),
        (&[("cache-control", "max-age=3600, s-maxage=x")], false),
    ]);
}

#[test]
fn max_age_goes_before_expires() {
    check_reuse(&[
        (&[("cache-control", "max-age=3600"), ("expires", "-7200"), ("date", "+0")], true),
        (&[("cache-control", "max-age=3600"), ("expires", "0"), ("date", "+0")], true),
        (&[("cache-control", "max-age=0"), ("expires", "+7200"), ("date", "+0")], false),
        (&[("cache-control", "max-age=x"), ("expires", "+7200"), ("date", "+0")], false),
        (&[("cache-control", "s-maxage=3600"), ("expires", "-7200"), ("date", "+0")], true),
    ]);
}

#[test]
fn expires_counts_from_date() {
    check_reuse(&[
        (&[("expires", "+7200"), ("date", "+0")], true),
        (&[("expires", "-7200"), ("date", "+0")], false),
        (&[("expires", "+0"), ("date", "+0")], false),
        (&[("expires", "+300"), ("date", "+400")], false),
        (&[("expires", "0"), ("date", "+0")], false),
        (&[("date", "foo"), ("expires", "+10")], true),
        (&[("expires", "+10")], true),
        (&[("date", "-10"), ("expires", "+10"), ("age", "25")], false),
        (&[("date", "+10"), ("expires", "+20"), ("age", "15")], false),
        // An age by the dates alone: the origin's clock is behind, or the response was under way for long.
        (&[("date", "-20"), ("expires", "+2")], false),
        (&[("date", "-20"), ("expires", "+20")], true),
    ]);
}

#[test]
fn age_is_taken_off_the_freshness() {
    check_reuse(&[
        (&[("date", "+0"), ("cache-control", "max-age=3600"), ("age", "7200")], false),
        (&[("date", "+0"), ("cache-control", "max-age=3600"), ("age", "1800")], true),
        (&[("date", "-7200"), ("cache-control", "max-age=3600")], false),
    ]);
}

#[test]
fn the_time_that_the_origin_took_is_age() {
    let mut cache = Cache::new();
    let response = dated(&[("cache-control", "max-age=10")]);
    cache.answer(&HeaderMap::new(), 200, &response, 5).expect("stored");
    assert_eq!(cache.stored[0].policy.age_seconds(cache.now), 5);
    cache.now += 4;
    assert_eq!(cache.request(&HeaderMap::new()), Got::Cached(200));
    cache.now += 1;
    assert_eq!(cache.request(&HeaderMap::new()), Got::Asked);
}

#[test]
fn age_is_announced_whatever_freshness_rests_on() {
    for response in [
        &[("expires", "+7200"), ("date", "+0"), ("age", "30")][..],
        &[("cache-control", "max-age=3600"), ("age", "30")],
    ] {
        let mut cache = Cache::new();
        cache.answer(&HeaderMap::new(), 200, &dated(response), 0).expect("stored");
        assert_eq!(cache.stored[0].policy.age_seconds(cache.now + 3), 33);
        assert!(!cache.stored[0].headers.contains_key("age"), "the stored age would be announced as well");
    }
}

#[test]
fn statuses_with_explicit_freshness_are_reused_until_it_ends() {
    for status in [200, 203, 204, 299, 301, 302, 303, 307, 308, 404, 410, 499, 500, 502, 503, 504, 599] {
        let fresh = [("cache-control", "max-age=3600"), ("date", "+0")];
        assert_eq!(after(3, status, &fresh), Got::Cached(status), "{status}");
        assert_eq!(after(3601, status, &fresh), Got::Asked, "{status}");
    }
    // Answers to what is wrong with one request are not for the others: an attacker could take any page away.
    for status in [400, 413, 431] {
        assert_eq!(after(3, status, &[("cache-control", "max-age=3600")]), Got::Asked, "{status}");
    }
}

#[test]
fn statuses_without_explicit_freshness_are_guessed_only_where_the_rfc_says_so() {
    let modified = [("last-modified", "-86400"), ("date", "+0")];
    let by_date = |got: &Got| matches!(got, Got::ByDate(_));
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        assert_eq!(after(3, status, &modified), Got::Cached(status), "{status}");
    }
    for status in [201, 202, 302, 307, 403, 500, 502, 503, 504, 599] {
        assert!(
            !matches!(after(3, status, &modified), Got::Cached(_)) && !by_date(&after(3, status, &modified)),
            "{status}"
        );
    }
    let public = [("last-modified", "-86400"), ("date", "+0"), ("cache-control", "public")];
    assert_eq!(after(3, 599, &public), Got::Cached(599));
}

#[test]
fn the_guess_is_a_part_of_the_time_since_the_last_change() {
    for (knobs, since, fresh) in [
        (Heuristic::default(), 100, 20),
        (Heuristic::default(), 86_400 * 30, 3 * 86_400),
        (Heuristic::default(), 0, 0),
        (Heuristic { min_seconds: 60, percent: 50, max_seconds: 3600 }, 10, 60),
        (Heuristic { min_seconds: 60, percent: 50, max_seconds: 3600 }, 1000, 500),
        (Heuristic { min_seconds: 60, percent: 50, max_seconds: 3600 }, 100_000, 3600),
    ] {
        let mut cache = Cache::new();
        cache.rules = Rules { heuristic: knobs, ..Rules::default() };
        let modified = format!("-{since}");
        let stored = cache.answer(&HeaderMap::new(), 200, &dated(&[("last-modified", &modified), ("date", "+0")]), 0);
        stored.expect("stored: it can be revalidated");
        assert_eq!(cache.stored[0].policy.fresh_until - cache.now, fresh, "{knobs:?} {since}");
    }
}

#[test]
fn the_first_pattern_that_matches_guesses() {
    let always = |seconds| Heuristic { min_seconds: seconds, percent: 0, max_seconds: seconds };
    let pattern = |text, seconds| RefreshPattern::new(text, always(seconds)).expect("an expression");
    let rules = Rules {
        patterns: vec![pattern(r"(?i)\.(png|css)(\?|$)", 10), pattern("^/pa", 20), pattern("page", 30)],
        heuristic: always(40),
        ..Rules::default()
    };
    for (path, seconds) in [("/page", 20), ("/page.PNG?1", 10), ("/a/page", 30), ("/x", 40)] {
        assert_eq!(*rules.heuristic_for(path), always(seconds), "{path}");
    }
    let error = RefreshPattern::new("(", always(1)).expect_err("no expression").to_string();
    assert!(error.starts_with("the refresh pattern \"(\" is no regular expression: "), "{error}");
}

#[test]
fn a_targeted_field_goes_before_all_others() {
    let cdn = "cdn-cache-control";
    check_reuse(&[
        (&[(cdn, "max-age=3600")], true),
        (&[(cdn, "max-age=2147483648")], true),
        (&[(cdn, "max-age=99999999999")], true),
        (&[(cdn, "max-age=3600"), ("age", "7200"), ("date", "+0")], false),
        (&[(cdn, "max-age =100"), ("cache-control", "max-age=1")], false),
        (&[(cdn, "max-age= 100"), ("cache-control", "max-age=1")], false),
        (&[(cdn, "max-age=0")], false),
        (&[(cdn, "max-age=-5"), ("cache-control", "max-age=3600")], false),
        (&[(cdn, "foobar, max-age=3600")], true),
        (&[(cdn, "max-age=3600;x=1")], true),
        (&[(cdn, "max-age=3600"), ("expires", "-7200"), ("date", "+0")], true),
        (&[(cdn, "max-age=3600"), ("expires", "0"), ("date", "+0")], true),
        (&[(cdn, "max-age=0"), ("expires", "+7200"), ("date", "+0")], false),
        (&[(cdn, "public"), ("expires", "+7200"), ("date", "+0")], false),
        (&[(cdn, "max-age=3600"), ("cache-control", "max-age=1")], true),
        (&[(cdn, "max-age=1"), ("cache-control", "max-age=3600")], false),
        (&[(cdn, "private"), ("cache-control", "max-age=3600")], false),
        (&[(cdn, "no-cache"), ("cache-control", "max-age=3600")], false),
        (&[(cdn, "no-store"), ("cache-control", "max-age=3600")], false),
        (&[(cdn, "max-age=3600"), ("cache-control", "no-store")], true),
        (&[(cdn, "max-age=1800"), (cdn, "no-store")], false),
        (&[(cdn, "max-age=3600, no-store=?0")], true),
    ]);
}

#[test]
fn a_targeted_field_that_is_none_is_ignored() {
    let cdn = "cdn-cache-control";
    check_reuse(&[
        (&[(cdn, "max-age=3600, &&&&&"), ("cache-control", "no-store")], false),
        (&[(cdn, "max-age=\"3600\""), ("cache-control", "no-store")], false),
        (&[(cdn, "max-age=3600.0"), ("cache-control", "no-store")], false),
        (&[(cdn, "max-age"), ("cache-control", "no-store")], false),
        (&[(cdn, "MaX-aGe=1"), ("cache-control", "max-age=3600")], true),
        (&[(cdn, ""), ("cache-control", "max-age=3600")], true),
        (&[(cdn, "max-age=(1 2)"), ("cache-control", "max-age=3600")], true),
    ]);
}

/// For how long a response is kept, beyond its arrival.
fn kept_for(rules: impl FnOnce(&mut Rules), fields: Lines<'_>) -> Result<i64, NotStored> {
    let mut cache = Cache::new();
    rules(&mut cache.rules);
    cache.answer(&HeaderMap::new(), 200, &dated(fields), 0)?;
    Ok(cache.stored[0].policy.keep_until - cache.now)
}

#[test]
fn a_stale_response_is_kept_for_as_long_as_it_is_of_use_and_longer_only_if_it_can_be_revalidated() {
    let rules = |rules: &mut Rules| {
        (rules.grace_seconds, rules.stale_if_error_seconds, rules.keep_seconds) = (10, 60, 600);
    };
    for (control, tag, expected) in [
        ("max-age=2", false, Ok(2 + 60)),
        ("max-age=2", true, Ok(2 + 60 + 600)),
        ("max-age=2, stale-while-revalidate=100", false, Ok(2 + 100)),
        ("max-age=2, must-revalidate", false, Ok(2)),
        ("max-age=2, must-revalidate", true, Ok(2 + 600)),
        ("s-maxage=2", false, Ok(2)),
        // What was never fresh is not kept for the site's own sake, and for the origin's is.
        ("max-age=0", false, Err(NotStored::Stale)),
        ("max-age=0", true, Ok(60 + 600)),
        ("max-age=0, stale-if-error=100", false, Ok(100)),
    ] {
        let fields = [("cache-control", control), ("etag", "\"a\"")];
        let fields = if tag { &fields[..] } else { &fields[..1] };
        assert_eq!(kept_for(rules, fields), expected, "{control} {tag}");
    }
}

#[test]
fn an_hour_old_page_is_served_when_the_origin_fails_unless_it_or_the_operator_says_otherwise() {
    let mut cache = Cache::new();
    cache.answer(&HeaderMap::new(), 200, &dated(&[("cache-control", "max-age=2")]), 0).expect("stored");
    cache.now += 3_600;
    assert_eq!(cache.failing(&HeaderMap::new()), OnError::Serve);
    cache.now += 2;
    assert_eq!(cache.failing(&HeaderMap::new()), OnError::Fail);
}

#[test]
fn stale_is_served_on_error_only_where_allowed() {
    for (control, grace, expected) in [
        ("max-age=2", 0, OnError::Fail),
        ("max-age=2", 60, OnError::Serve),
        ("max-age=2, stale-if-error=60", 0, OnError::Serve),
        ("max-age=2, stale-if-error=0", 60, OnError::Fail),
        ("max-age=2, must-revalidate", 60, OnError::Fail),
        ("max-age=2, proxy-revalidate", 60, OnError::Fail),
        ("max-age=2, no-cache", 60, OnError::Fail),
        ("max-age=2, s-maxage=2", 60, OnError::Fail),
        ("max-age=2, stale-if-error=60, must-revalidate", 0, OnError::Fail),
        // What the origin says outright goes before what s-maxage implies.
        ("s-maxage=2, stale-if-error=60", 0, OnError::Serve),
    ] {
        let mut cache = Cache::new();
        cache.rules.stale_if_error_seconds = grace;
        cache
            .answer(&HeaderMap::new(), 200, &dated(&[("cache-control", control), ("etag", "\"a\"")]), 0)
            .expect("stored");
        cache.now += 5;
        assert_eq!(cache.failing(&HeaderMap::new()), expected, "{control} {grace}");
        cache.now += 60;
        assert_eq!(cache.failing(&HeaderMap::new()), OnError::Fail, "{control} {grace}, later");
    }
}

#[test]
fn a_client_may_accept_stale_on_error_where_the_origin_does_not_forbid_it() {
    let wish = dated(&[("cache-control", "stale-if-error=100")]);
    for (control, expected) in [("max-age=2", OnError::Serve), ("max-age=2, must-revalidate", OnError::Fail)] {
        let mut cache = Cache::new();
        cache
            .answer(&HeaderMap::new(), 200, &dated(&[("cache-control", control), ("etag", "\"a\"")]), 0)
            .expect("stored");
        cache.now += 50;
        assert_eq!(cache.failing(&wish), expected, "{control}");
    }
}

#[test]
fn stale_is_served_while_it_is_refreshed_in_its_window() {
    for (control, grace, at_3, at_8) in [
        ("max-age=1, stale-while-revalidate=3600", 0, Got::Refreshing, Got::Refreshing),
        ("max-age=1, stale-while-revalidate=4", 0, Got::Refreshing, Got::ByTag("\"a\"".into())),
        ("max-age=1", 0, Got::ByTag("\"a\"".into()), Got::ByTag("\"a\"".into())),
        ("max-age=1", 4, Got::Refreshing, Got::ByTag("\"a\"".into())),
        ("max-age=1, s-maxage=1", 4, Got::ByTag("\"a\"".into()), Got::ByTag("\"a\"".into())),
        ("s-maxage=1, stale-while-revalidate=4", 0, Got::Refreshing, Got::ByTag("\"a\"".into())),
        ("max-age=1, must-revalidate", 4, Got::ByTag("\"a\"".into()), Got::ByTag("\"a\"".into())),
        ("no-cache, stale-while-revalidate=4", 4, Got::ByTag("\"a\"".into()), Got::ByTag("\"a\"".into())),
    ] {
        let mut cache = Cache::new();
        cache.rules.grace_seconds = grace;
        cache
            .answer(&HeaderMap::new(), 200, &dated(&[("cache-control", control), ("etag", "\"a\"")]), 0)
            .expect("stored");
        for (seconds, got) in [(3, at_3), (5, at_8)] {
            cache.now += seconds;
            assert_eq!(cache.request(&HeaderMap::new()), got, "{control} {grace}");
        }
    }
}

#[test]
fn nothing_is_fresh_for_longer_than_the_site_allows() {
    let mut cache = Cache::new();
    cache.rules.ttl_max_seconds = 5;
    cache.answer(&HeaderMap::new(), 200, &dated(&[("cache-control", "max-age=3600")]), 0).expect("stored");
    assert_eq!(cache.stored[0].policy.fresh_until, cache.now + 5);
}
