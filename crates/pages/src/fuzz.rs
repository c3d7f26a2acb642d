//! Fuzz bodies: ordinary functions that take any bytes and panic when a promise is broken.
//!
//! Called by the fuzz targets for long, and by the unit tests below for a short, repeatable while. What they hold the
//! crate to: no panic; what was read is read again the same after it was written; one form of a URL, which is its own
//! form; keys that the memcached protocols carry; no body past its limit; and of the rules, that nothing stale is served
//! as fresh, nothing forbidden is stored, and no range lies outside its whole.

use crate::format::foreign::Form;
use crate::format::{Chunks, Parts, Value, encode_page, encode_variants, head_bytes, parse, parse_head};
use crate::format::{NUMBERED_HEAD_BYTES, encode_numbered, parse_numbered};
use crate::key::{Cookies, KEY_BYTES_MAX, MARKETING, NamePattern, PageUrl, Preset, UrlRules, item_key, variant_key};
use crate::negotiate::{Accepted, Coding, DecodeLimits, Serve, decode, serve, to_be_compressed};
use crate::rules::range::{RANGES_MAX, Selected};
use crate::rules::{Asked, Class, Decision, Exchange, Flags, OnError, Policy, Rules, SetCookie, UnixSeconds};
use crate::rules::{classify, fields, format_date, judge, parse_date, partial, range, validate, vary};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// Values in Nuthatch's own form.
pub fn fuzz_page(data: &[u8]) {
    match parse(data) {
        Ok(Value::Page(page)) => {
            let Ok(headers) = page.headers() else { return };
            let tags: Vec<&[u8]> = page.tags().collect();
            let parts = Parts {
                status: page.status,
                policy: page.policy,
                coding: page.coding,
                plain_bytes: page.plain_bytes,
                variant: page.variant,
                tags: &tags,
                headers: &headers,
            };
            // Another writer may have ordered the fields otherwise, or written names in capitals.
            let again = encode_page(&parts, page.body).expect("it was held by a value");
            let Ok(Value::Page(same)) = parse(&again) else { panic!("{}", again.escape_ascii()) };
            assert_eq!((same.status, same.policy, same.body), (page.status, page.policy, page.body));
            assert_eq!(same.headers().expect("read once"), headers);
            assert_eq!(same.tags().collect::<Vec<_>>(), tags);
            assert_eq!(again.len(), data.len());
        }
        Ok(Value::Variants(sets)) => assert_eq!(encode_variants(&sets).expect("it was held").len(), data.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(bytes) = head_bytes(data)
        && let Some(head) = data.get(..bytes)
    {
        assert_eq!(parse_head(head, data.len() as u64).is_ok(), parse(data).is_ok());
    }
    if let Ok(number) = parse_numbered(data) {
        let page = data.get(NUMBERED_HEAD_BYTES..).expect("its head is there");
        assert_eq!(encode_numbered(number, page).expect("it was held"), data);
    }
    if let Ok(chunks) = Chunks::parse(data) {
        assert_eq!(chunks.list().expect("it was held"), data);
        assert!(chunks.keys("page:x").iter().all(|key| key.len() <= KEY_BYTES_MAX));
        if let Ok(value) = chunks.join(std::iter::once(data)) {
            assert_eq!(value.len() as u64, chunks.value_bytes);
        }
    }
}

/// Values in the forms of other programs. The first byte chooses the form.
pub fn fuzz_foreign(data: &[u8]) {
    let Some((&choice, value)) = data.split_first() else { return };
    let limits = DecodeLimits { bytes_max: 1 << 16, ratio_max: 100 };
    let form = match choice % 3 {
        0 => Form::Raw { gzip_flag: 2, content_type: HeaderValue::from_static("text/html") },
        1 => Form::Srcache { allow_ranges: choice & 4 != 0 },
        _ => Form::Mcpage { bytes_min: usize::from(choice), limits },
    };
    let Ok(page) = form.decode(u32::from(choice >> 6), value) else { return };
    assert!(page.body.len() <= value.len().max(1 << 16));
    if let Ok((flags, again)) = form.encode(&page) {
        let same = form.decode(flags, &again).expect("just written");
        assert_eq!((same.status, same.coding, &same.body), (page.status, page.coding, &page.body));
        let mut kept = page.headers.clone();
        kept.remove("set-cookie");
        fields::strip_hop_by_hop(&mut kept);
        assert!(same.headers.keys().all(|name| kept.contains_key(name)), "{:?} {kept:?}", same.headers);
    }
}

/// URLs: the authority up to the first blank, then the target.
pub fn fuzz_url(data: &[u8]) {
    let dropped = MARKETING.iter().map(|&name| NamePattern::new(name)).collect();
    let all = UrlRules { dropped, sort_query: true, decoded: ":;,!$&'()*+=@/?%".to_owned() };
    for rules in [UrlRules::default(), all] {
        check_url(PageUrl::parse(data, &rules).ok(), &rules);
        if let Some(blank) = data.iter().position(|&byte| byte == b' ') {
            let url = PageUrl::new("https", &data[..blank], &data[blank + 1..], &rules).ok();
            check_url(url.clone(), &rules);
            let base = PageUrl::parse(b"https://a.test:1/b/c?d", &rules).expect("a URL");
            if let Some(same) = base.same_origin(&data[..blank], &rules) {
                assert_eq!((same.scheme(), same.authority()), (base.scheme(), base.authority()));
            }
        }
    }
}

fn check_url(url: Option<PageUrl>, rules: &UrlRules) {
    let Some(url) = url else { return };
    assert!(url.form().bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'), "{}", url.form());
    assert_eq!(url.form(), format!("{}://{}{}", url.scheme(), url.authority(), url.target()));
    assert!(url.target().starts_with('/'));
    let path = url.target().split('?').next().unwrap_or_default();
    assert!(path.split('/').all(|segment| segment != "." && segment != ".."), "{path}");
    assert_eq!(PageUrl::parse(url.form().as_bytes(), rules).as_ref(), Ok(&url), "the form of a form is itself");
    let key = item_key(&url);
    assert!(key.len() <= KEY_BYTES_MAX && key.bytes().all(|byte| byte.is_ascii_graphic()));
    let variant = variant_key(&key, url.form().as_bytes());
    assert!(variant.len() <= KEY_BYTES_MAX && variant != key);
}

/// Bodies in any coding, and `Accept-Encoding`.
pub fn fuzz_coding(data: &[u8]) {
    let limits = DecodeLimits { bytes_max: 1 << 16, ratio_max: 50 };
    for coding in Coding::ALL {
        if let Ok(body) = decode(coding, data, limits) {
            assert!(body.len() as u64 <= limits.bytes_max);
        }
    }
    let headers = header_section(data);
    let accepted = Accepted::of(&headers);
    for coding in Coding::ALL {
        assert!(accepted.weight(coding) <= 1000);
        assert!(serve(coding, &accepted) == Serve::AsStored || !accepted.takes(coding));
    }
    let _ = to_be_compressed(&headers, data.len(), &Default::default());
}

/// A header section of each line that is a field.
fn header_section(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            headers.append(name, value);
        }
    }
    headers
}

/// The rules: a request's header lines, a blank line, and a response's. The first two bytes choose status and settings.
pub fn fuzz_rules(data: &[u8]) {
    const NOW: UnixSeconds = 1_750_000_000;
    let [choice, statuses, rest @ ..] = data else { return };
    let cut = rest.windows(2).position(|bytes| bytes == b"\n\n").unwrap_or(rest.len());
    let (request, response) = (header_section(&rest[..cut]), header_section(&rest[cut..]));
    let rules = Rules {
        set_cookie: [SetCookie::Refuse, SetCookie::Strip, SetCookie::Keep][usize::from(choice % 3)],
        client_directives: choice & 4 == 0,
        grace_seconds: u32::from(choice & 8) * 10,
        stale_if_error_seconds: u32::from(choice & 16) * 10,
        keep_seconds: if choice & 32 == 0 { 0 } else { u32::MAX },
        ttl_max_seconds: if choice & 64 == 0 { 86_400 } else { u32::MAX },
        ..Rules::default()
    };
    let Class::Lookup(asked) = classify(&Method::GET, &request, &rules) else { return };
    let status = StatusCode::from_u16(200 + u16::from(*statuses)).expect("in range");
    let delay = i64::from(choice & 3);
    let exchange = Exchange {
        method: &Method::GET,
        target: "/a?b",
        asked: &asked,
        status,
        response: &response,
        asked_at: NOW - delay,
        answered_at: NOW,
    };
    let stored = fields::stored(&response, &rules, NOW);
    check_stored(&stored, &rules);
    let judged = judge(&exchange, &rules);
    match &judged {
        Ok(policy) => {
            assert!(!asked.no_store && status != StatusCode::NOT_MODIFIED);
            check_policy(policy, &asked, &rules, NOW);
        }
        Err(reason) => assert!(reason.reason().starts_with("not stored: ")),
    }
    if let Some(names) = vary::fields(&response) {
        let cookies = Cookies::new(&[Preset::MediaWiki, Preset::Drupal, Preset::WordPress], &[], &[]);
        let variant = vary::variant(&names, &request, &cookies);
        assert_eq!(variant.iter().filter(|&&byte| byte == b'\n').count(), names.len());
    }
    // Validation with itself always holds, and one's own date is read again.
    let _ = validate::evaluate(&request, status, &stored);
    assert!(validate::selects(&stored, &stored));
    let mut upstream = request.clone();
    validate::conditional_request(&stored, &mut upstream);
    assert!(!upstream.contains_key("range") && !upstream.contains_key("if-range"));
    let refreshed = match validate::refreshed(&stored, &exchange, &rules) {
        Ok((_, headers)) | Err((_, headers)) => headers,
    };
    check_stored(&refreshed, &rules);
    for value in response.values() {
        if let Some(moment) = parse_date(value.as_bytes()) {
            assert_eq!(parse_date(format_date(moment).as_bytes()), Some(moment));
        }
    }
    check_ranges(&request, &response, u64::from(*statuses) * 7);
}

fn check_stored(stored: &HeaderMap, rules: &Rules) {
    for name in ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "age"] {
        assert!(!stored.contains_key(name), "{name}");
    }
    assert!(stored.contains_key("date"));
    assert!(rules.set_cookie == SetCookie::Keep || !stored.contains_key("set-cookie"));
}

fn check_policy(policy: &Policy, asked: &Asked, rules: &Rules, now: UnixSeconds) {
    assert!(policy.born <= now && policy.keep_until > now);
    assert!(policy.fresh_until <= now + i64::from(rules.ttl_max_seconds));
    assert!(policy.while_revalidate_until >= policy.fresh_until && policy.if_error_until >= policy.fresh_until);
    let edges = [policy.fresh_until, policy.while_revalidate_until, policy.if_error_until, policy.keep_until];
    for at in edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]).chain([now]) {
        for asked in [Asked::default(), *asked] {
            let stale = at >= policy.fresh_until;
            match policy.decide(&asked, at) {
                Decision::Hit => assert!(!stale),
                Decision::HitWhileRevalidate => assert!(stale && at < policy.while_revalidate_until),
                Decision::HitStale => {
                    assert!(stale && asked.max_stale_seconds.is_some() && !policy.flags.has(Flags::MUST_REVALIDATE));
                }
                Decision::Revalidate => assert!(policy.flags.has(Flags::VALIDATOR) && !asked.only_if_cached),
                Decision::Miss => assert!(!asked.only_if_cached),
                Decision::GatewayTimeout => assert!(asked.only_if_cached),
            }
            if policy.flags.has(Flags::NO_CACHE) {
                assert_eq!(policy.on_error(&asked, at.max(now)), OnError::Fail);
            }
        }
    }
}

fn check_ranges(request: &HeaderMap, response: &HeaderMap, bytes: u64) {
    let inside = |range: &std::ops::Range<u64>| range.start < range.end && range.end <= bytes;
    match range::select(request, StatusCode::OK, response, bytes) {
        Selected::Whole | Selected::Unsatisfiable => {}
        Selected::One(range) => assert!(inside(&range)),
        Selected::Many(ranges) => {
            assert!((2..=RANGES_MAX).contains(&ranges.len()) && ranges.iter().all(inside));
            assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() < bytes);
        }
    }
    if let Some((held, whole)) = partial::part(response) {
        assert!(held.start < held.end && held.end <= whole);
        if let Some(range) = partial::select(request, response, &held, whole) {
            assert!(held.start <= range.start && range.end <= held.end);
        }
        let mut rest = request.clone();
        let _ = partial::ask_for_rest(response, &held, whole, &mut rest);
    }
}

/// Inputs to begin with, for every body.
#[must_use]
pub fn corpus() -> Vec<Vec<u8>> {
    let mut inputs: Vec<Vec<u8>> = TEXT.iter().map(|text| text.to_vec()).collect();
    let headers = header_section(b"content-type: text/html\netag: \"a\"\nx: 1\nx: 2");
    let policy = Policy {
        born: 1,
        fresh_until: 2,
        while_revalidate_until: 3,
        if_error_until: 4,
        keep_until: 5,
        flags: Flags::default(),
    };
    let parts = Parts {
        status: StatusCode::OK,
        policy,
        coding: Coding::Identity,
        plain_bytes: None,
        variant: b"a:1\n",
        tags: &[b"t"],
        headers: &headers,
    };
    inputs.extend(encode_page(&parts, b"body"));
    inputs.extend(encode_numbered(7, b"page"));
    inputs.extend(encode_variants(&[vec![HeaderName::from_static("a"), HeaderName::from_static("b")]]));
    if let Ok(chunks) = Chunks::of(b"a longer value", 30, 7) {
        inputs.extend(chunks.list());
        inputs.extend(chunks.cut(b"a longer value").into_iter().flatten());
    }
    for coding in Coding::ALL {
        inputs.extend(crate::negotiate::encode(coding, 5, &b"compressed ".repeat(20)));
    }
    inputs
}

const TEXT: &[&[u8]] = &[
    b"\x01HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-A: 1\r\n\r\n<html>",
    b"\x02text/html\0\0\0\x01gzip\0\x01never\0\x01public\0BODY",
    b"\x02text/html\0\xa5\x01\0\0\0BODY",
    b"http://WWW.example.org:80/a/../b//%7e%2f;x?utm_source=a&b=%zz&a[]=1#f",
    b"[2001:DB8::1]:8080 /a/./b/..%2f%2E%2e?b&a",
    b"example.org. //evil/\\..\\%41?%",
    b"../c?d https://a.test:1/",
    b"\0\0cache-control: no-cache, max-age=5\ncookie: wiki_session=1; _ga=2\n\ncache-control: max-age=3600\nvary: cookie, a\netag: \"a\"",
    b"\x05\0if-none-match: W/\"a\", \"b\"\nrange: bytes=0-1,5-,-3\nif-range: \"a\"\n\netag: \"a\"\nexpires: Thu, 18 Aug 2050 02:01:18 GMT\ndate: Sun Nov  6 08:49:37 1994",
    b"\x3d\x06range: bytes=-5\n\ncontent-range: bytes 4-8/10\ncache-control: private=\"a\", s-maxage=9\nset-cookie: a=b\nage: 5, 6",
    b"\x7f\xc8cache-control: max-stale=9, min-fresh=1, only-if-cached, stale-if-error=5\nauthorization: x\n\ncdn-cache-control: max-age=5, stale-while-revalidate=9\nlast-modified: Sunday, 06-Nov-94 08:49:37 GMT\nconnection: x\nx: 1",
    b"\x10\0pragma: no-cache\nif-modified-since: Sun, 06 Nov 1994 08:49:37 GMT\n\ncache-control: must-understand, no-store, immutable, max-age=\"5\"\nvary: *",
    b"accept-encoding: gzip;q=0.5, br, *;q=0, zstd;q=1.001\ncontent-type: text/html\ncontent-encoding: x-gzip",
];

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_testkit::dice::Dice;
    use nuthatch_testkit::hostile::rubbish;

    fn run(body: fn(&[u8]), seed: u64) {
        let corpus = corpus();
        body(b"");
        corpus.iter().for_each(|data| body(data));
        let mut dice = Dice::seeded(seed);
        for _ in 0..10_000 {
            let data = rubbish(&mut dice, &corpus);
            // Rubbish begins with a byte of its own, before which no magic number stays in its place.
            for data in [&data[..], &data[1..]] {
                let outcome = std::panic::catch_unwind(|| body(data));
                assert!(outcome.is_ok(), "{}", data.escape_ascii());
            }
        }
    }

    #[test]
    fn no_value_breaks_the_own_form() {
        run(fuzz_page, 1);
    }

    #[test]
    fn no_value_breaks_the_forms_of_others() {
        run(fuzz_foreign, 2);
    }

    #[test]
    fn no_url_has_two_forms() {
        run(fuzz_url, 3);
    }

    #[test]
    fn no_body_grows_past_its_limit() {
        run(fuzz_coding, 4);
    }

    #[test]
    fn no_header_makes_the_rules_break_their_word() {
        run(fuzz_rules, 5);
    }
}
