//! Parts of pages, end to end: asked for as parts, kept, joined, completed; and what a HEAD, a POST and fields that are one
//! client's own do to what is kept.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::Client;
use crate::http::{Http, serve, serve_with};
use nuthatch_pages::negotiate::{Coding, Encoder};
use nuthatch_pages::rules::SetCookie;
use nuthatch_testkit::origin::{Answer, Origin, Request};

const BODY: &str = "0123456789";

/// Answers as a web server does that has `BODY` with this `ETag`: with the range that is asked for, if its `If-Range` holds.
fn answer_ranges(request: &Request, answer: &mut Answer<'_>, tag: &str) {
    let tag_line = format!("ETag: {tag}");
    let lines = ["Cache-Control: max-age=60", &tag_line];
    let condition = request.field("if-range");
    let range = request.field("range").filter(|_| condition.is_none_or(|condition| condition == tag));
    let Some((first, last)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return answer.reply("200 OK", &lines, BODY);
    };
    let bytes = BODY.len();
    let (start, end) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Err(_), Ok(suffix)) => (bytes - suffix.min(bytes), bytes),
        (Ok(first), last) => (first, last.map_or(bytes, |last| (last + 1).min(bytes))),
        _ => (0, bytes),
    };
    let place = format!("Content-Range: bytes {start}-{}/{bytes}", end - 1);
    answer.reply("206 Partial Content", &[lines[0], lines[1], &place], &BODY[start..end]);
}

fn ranges() -> Origin {
    Origin::start(|request, answer| answer_ranges(request, answer, "\"a\""))
}

#[test]
fn a_part_is_asked_for_as_a_part_and_serves_the_ranges_that_it_holds() {
    let origin = ranges();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let miss = client.ask("GET", "/page", &["Range: bytes=-6"]);
    assert_eq!((miss.status, miss.cache(), miss.text().as_str()), (206, "MISS", "456789"));
    assert_eq!(origin.requests()[0].field("range"), Some("bytes=-6"));
    for (range, place, text) in [
        ("bytes=-6", "bytes 4-9/10", "456789"),
        ("bytes=5-6", "bytes 5-6/10", "56"),
        ("bytes=8-", "bytes 8-9/10", "89"),
        ("bytes=-1", "bytes 9-9/10", "9"),
    ] {
        let hit = client.ask("GET", "/page", &[&format!("Range: {range}")]);
        assert_eq!((hit.status, hit.cache(), hit.field("content-range")), (206, "HIT", place), "{range}");
        assert_eq!((hit.text().as_str(), hit.field("age")), (text, "0"), "{range}");
    }
    assert_eq!(origin.count(), 1);
    let outside = client.ask("GET", "/page", &["Range: bytes=0-1", "Cache-Control: only-if-cached"]);
    assert_eq!(outside.status, 504);
}

#[test]
fn parts_that_touch_are_joined_and_make_the_whole() {
    let origin = ranges();
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for (range, text) in [("bytes=0-2", "012"), ("bytes=2-5", "2345"), ("bytes=6-9", "6789")] {
        let miss = client.ask("GET", "/page", &[&format!("Range: {range}")]);
        assert_eq!((miss.status, miss.cache(), miss.text().as_str()), (206, "MISS", text), "{range}");
        // Over the seam of what is joined by now.
        let end = range.split('-').next_back().expect("an end");
        let hit = client.ask("GET", "/page", &[&format!("Range: bytes=1-{end}")]);
        assert_eq!((hit.status, hit.cache()), (206, "HIT"), "{range}");
        assert_eq!(hit.text(), BODY[1..=end.parse().expect("a number")]);
    }
    let whole = client.get("/page");
    assert_eq!((whole.status, whole.cache(), whole.text().as_str()), (200, "HIT", BODY));
    assert_eq!((origin.count(), whole.field("content-range")), (3, ""));
}

#[test]
fn only_the_rest_of_a_part_is_asked_for_when_the_whole_is_wanted() {
    for (range, rest) in [("bytes=0-3", "bytes=4-"), ("bytes=4-", "bytes=0-3")] {
        let origin = ranges();
        let server = serve(&[&origin]);
        let mut client = Http::connect(&server);
        client.ask("GET", "/page", &[&format!("Range: {range}")]);
        let whole = client.get("/page");
        assert_eq!((whole.status, whole.text().as_str(), whole.field("content-length")), (200, BODY, "10"), "{range}");
        assert_eq!(origin.requests()[1].field("range"), Some(rest));
        assert_eq!(origin.requests()[1].field("if-range"), Some("\"a\""));
        assert_eq!(client.get("/page").cache(), "HIT");
        assert_eq!(origin.count(), 2);
    }
}

#[test]
fn a_part_of_what_has_changed_or_has_no_strong_tag_is_joined_with_nothing() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        match request.target.as_str() {
            "/weak" => answer_ranges(request, answer, "W/\"a\""),
            _ => answer_ranges(request, answer, &format!("\"{number}\"")),
        }
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for target in ["/changing", "/weak"] {
        client.ask("GET", target, &["Range: bytes=0-3"]);
        client.ask("GET", target, &["Range: bytes=4-5"]);
        let again = client.ask("GET", target, &["Range: bytes=0-3"]);
        assert_eq!((again.status, again.cache()), (206, "MISS"), "{target}: the later part is what is kept");
        assert_eq!(client.get(target).text(), BODY);
        assert_eq!(client.get(target).cache(), "HIT", "{target}");
    }
    assert!(origin.requests().iter().all(|request| request.target != "/weak" || request.field("if-range").is_none()));
}

#[test]
fn a_rest_that_does_not_fit_is_not_joined() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request, answer| match count.fetch_add(1, Ordering::Relaxed) {
        0 => answer_ranges(request, answer, "\"a\""),
        // Asked for 4-9.
        1 => {
            let lines = ["Cache-Control: max-age=60", "ETag: \"a\"", "Content-Range: bytes 5-9/10"];
            answer.reply("206 Partial Content", &lines, "56789");
        }
        _ => answer.reply("200 OK", &["Cache-Control: max-age=60"], "whole"),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.ask("GET", "/page", &["Range: bytes=0-3"]);
    assert_eq!(client.get("/page").text(), "whole");
    assert_eq!(client.get("/page").cache(), "HIT");
    assert_eq!(origin.count(), 3);
}

#[test]
fn a_part_whose_rest_has_too_many_tags_is_made_whole_for_who_asks_and_not_kept() {
    let tags: Vec<String> = (0..600).map(|number| format!("t{number}")).collect();
    let tags = format!("Surrogate-Key: {}", tags.join(" "));
    let origin = Origin::start(move |request, answer| {
        let lines = ["Cache-Control: max-age=60", "ETag: \"a\""];
        match request.field("range") {
            Some("bytes=0-4") => {
                answer.reply("206 Partial Content", &[lines[0], lines[1], "Content-Range: bytes 0-4/10"], &BODY[..5]);
            }
            _ => answer.reply(
                "206 Partial Content",
                &[lines[0], lines[1], &tags, "Content-Range: bytes 5-9/10"],
                &BODY[5..],
            ),
        }
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.ask("GET", "/page", &["Range: bytes=0-4"]);
    for asked in [2, 3] {
        assert_eq!((client.get("/page").text().as_str(), origin.count()), (BODY, asked));
    }
}

#[test]
fn what_is_said_of_one_range_is_not_kept_for_the_page() {
    let origin = Origin::start(|request, answer| match request.field("range") {
        Some(_) => answer.reply("416 Range Not Satisfiable", &["Cache-Control: max-age=60"], "no such bytes"),
        None => answer.reply("200 OK", &["Cache-Control: max-age=60"], BODY),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    let refused = client.ask("GET", "/page", &["Range: bytes=50-60"]);
    assert_eq!((refused.status, refused.text().as_str()), (416, "no such bytes"));
    assert_eq!((client.get("/page").status, client.get("/page").cache()), (200, "HIT"));
    // And now the whole is here.
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=2-3"]).text(), "23");
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_part_whose_content_range_counts_wrong_is_served_by_what_arrived_and_joined_with_nothing() {
    let origin = Origin::start(|request, answer| {
        let place = if request.field("range") == Some("bytes=-5") { "bytes 4-9/10" } else { "bytes 0-3/10" };
        let text = if place == "bytes 4-9/10" { "01234" } else { "wxyz" };
        let place = format!("Content-Range: {place}");
        answer.reply("206 Partial Content", &["Cache-Control: max-age=60", "ETag: \"a\"", &place], text);
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.ask("GET", "/page", &["Range: bytes=-5"]);
    for (range, text) in [("bytes=-5", "01234"), ("bytes=6-8", "234"), ("bytes=6-", "234"), ("bytes=-1", "4")] {
        let hit = client.ask("GET", "/page", &[&format!("Range: {range}")]);
        assert_eq!((hit.status, hit.cache(), hit.text().as_str()), (206, "HIT", text), "{range}");
    }
    client.ask("GET", "/page", &["Range: bytes=0-3"]);
    assert_eq!(client.ask("GET", "/page", &["Range: bytes=2-5"]).cache(), "MISS");
}

#[test]
fn a_head_freshens_the_stale_page_that_it_confirms_and_leaves_another_alone() {
    let origin = Origin::start(|request, answer| match (request.method.as_str(), request.target.as_str()) {
        ("GET", _) => answer.reply("200 OK", &["Cache-Control: max-age=10", "X-Kept: 1", "X-New: 1"], "page"),
        ("HEAD", "/same") => {
            answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nX-New: 2\r\nContent-Length: 4\r\n\r\n");
        }
        _ => answer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 5\r\n\r\n"),
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    client.get("/same");
    client.get("/other");
    Client::connect(&server).ask("debugtime 20\r\n", "OK\r\n");
    let head = client.ask("HEAD", "/same", &[]);
    assert_eq!((head.status, head.field("x-kept"), head.field("x-new")), (200, "1", "2"));
    let page = client.get("/same");
    assert_eq!((page.cache(), page.text().as_str(), page.field("x-new")), ("HIT", "page", "2"));
    assert_eq!(client.ask("HEAD", "/other", &[]).field("content-length"), "5");
    assert_eq!(client.get("/other").cache(), "MISS");
    assert_eq!(origin.requests().iter().filter(|request| request.method == "HEAD").count(), 2);
}

#[test]
fn the_answer_to_a_post_that_says_it_is_the_page_is_the_page() {
    let origin = Origin::start(|request, answer| {
        let here = format!("Content-Location: {}", request.target);
        let lines = match request.target.as_str() {
            "/kept" => ["Cache-Control: max-age=60", &here],
            _ => ["Cache-Control: max-age=60", "Content-Location: /elsewhere"],
        };
        answer.reply("200 OK", &lines, format!("{} {}", request.method, request.body.len()));
    });
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    for target in ["/kept", "/not-kept"] {
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc"));
        assert_eq!(client.reply(false).text(), "POST 3");
    }
    let kept = client.get("/kept");
    assert_eq!((kept.cache(), kept.text().as_str()), ("HIT", "POST 3"));
    assert_eq!(client.get("/not-kept").text(), "GET 0");
}

#[test]
fn fields_of_one_clients_own_reach_that_client_and_nobody_else() {
    let origin = Origin::start(|_, answer| {
        let lines = ["Cache-Control: max-age=60, no-cache=\"x-own\"", "X-Own: 1", "X-All: 2", "Set-Cookie: id=7"];
        answer.reply("200 OK", &lines, "page");
    });
    let server = serve_with(&[&origin], |http| http.pages.set_cookie = SetCookie::Strip);
    let mut client = Http::connect(&server);
    let first = client.get("/page");
    assert_eq!((first.field("x-own"), first.field("x-all"), first.field("set-cookie")), ("1", "2", "id=7"));
    let second = client.get("/page");
    assert_eq!((second.cache(), second.field("x-all")), ("HIT", "2"));
    assert_eq!((second.field("x-own"), second.field("set-cookie")), ("", ""));
}

#[test]
fn whoever_waits_along_gets_no_cookie_of_the_one_who_asked() {
    let gate = nuthatch_testkit::origin::Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |_, answer| {
        held.wait();
        answer.reply("200 OK", &["Cache-Control: max-age=60", "Set-Cookie: id=7"], "page");
    });
    let server = serve_with(&[&origin], |http| http.pages.set_cookie = SetCookie::Strip);
    let mut clients: Vec<Http> = (0..8).map(|_| Http::connect(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(crate::http::request("GET", "/page", &[])));
    let mut cache = Client::connect(&server);
    crate::common::eventually(|| cache.number("cmd_get") >= 8);
    gate.open();
    let cookies =
        clients.iter_mut().map(|client| client.reply(false)).filter(|reply| reply.field("set-cookie") == "id=7");
    let cookies = cookies.count();
    assert_eq!((cookies, origin.count()), (1, 1));
}

#[test]
fn a_status_is_kept_out_or_let_in_by_setting() {
    let origin = Origin::start(|_, answer| answer.reply("400 Bad Request", &["Cache-Control: max-age=60"], "no"));
    let server = serve(&[&origin]);
    let mut client = Http::connect(&server);
    assert_eq!([client.get("/page").status, client.get("/page").status], [400, 400]);
    assert_eq!(origin.count(), 2);
    let server = serve_with(&[&origin], |http| http.pages.refused_statuses = vec!["none".to_owned()]);
    let mut client = Http::connect(&server);
    assert_eq!([client.get("/page").cache().to_owned(), client.get("/page").cache().to_owned()], ["MISS", "HIT"]);
}

#[test]
fn an_origin_that_compresses_is_asked_to_and_each_client_gets_what_it_takes() {
    let (text, mut gzip) = ("hello ".repeat(100), Vec::new());
    let mut encoder = Encoder::new(Coding::Gzip, 6).expect("an encoder");
    encoder.push(text.as_bytes(), &mut gzip).expect("it compresses");
    encoder.finish(&mut gzip).expect("it compresses");
    let origin = Origin::start(move |request, answer| {
        let lines = match request.target.as_str() {
            "/own" => ["Cache-Control: private", "Content-Encoding: gzip"],
            _ => ["Cache-Control: max-age=60", "Content-Encoding: gzip"],
        };
        match request.field("accept-encoding").is_some_and(|codings| codings.contains("gzip")) {
            true => answer.reply("200 OK", &lines, &gzip),
            false => answer.reply("200 OK", &lines[..1], "hello ".repeat(100)),
        }
    });
    let codings = vec![Coding::Brotli, Coding::Gzip];
    let server = serve_with(&[&origin], |http| http.pages.accept_encoding = codings);
    let mut client = Http::connect(&server);
    for target in ["/page", "/page", "/own"] {
        let plain = client.get(target);
        assert_eq!((plain.field("content-encoding"), plain.text() == text), ("", true), "{target}");
        let coded = client.ask("GET", target, &["Accept-Encoding: gzip"]);
        assert_eq!((coded.field("content-encoding"), coded.body.starts_with(b"\x1f\x8b")), ("gzip", true), "{target}");
    }
    assert_eq!(origin.requests()[0].field("accept-encoding"), Some("br, gzip;q=0.9"));
    assert_eq!(origin.count_of("/page"), 1);
}
