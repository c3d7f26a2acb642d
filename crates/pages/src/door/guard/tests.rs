//! The guard, shown bytes however they are cut.

use super::*;

/// What becomes of `input` in one piece.
fn whole(input: &[u8]) -> Result<usize, Refusal> {
    let mut guard = Guard::default();
    let mut at = 0;
    loop {
        match guard.check(&input[at..]).map_err(|refused| refused.why)? {
            0 => return Ok(at),
            bytes => at += bytes,
        }
    }
}

/// The same, shown as if it arrived in pieces of `bytes`.
fn in_pieces(input: &[u8], bytes: usize) -> Result<usize, Refusal> {
    let mut guard = Guard::default();
    let (mut passed, mut there) = (0, 0);
    while there < input.len() {
        there = (there + bytes).min(input.len());
        loop {
            match guard.check(&input[passed..there]).map_err(|refused| refused.why)? {
                0 => break,
                bytes => passed += bytes,
            }
        }
    }
    Ok(passed)
}

#[track_caller]
fn refused(input: &str, why: Refusal) {
    for bytes in [1, 2, 3, 7, 1000] {
        assert_eq!(in_pieces(input.as_bytes(), bytes), Err(why), "{input:?} in pieces of {bytes}");
    }
}

#[track_caller]
fn passes(input: &str) {
    for bytes in [1, 2, 3, 7, 1000] {
        assert_eq!(in_pieces(input.as_bytes(), bytes), Ok(input.len()), "{input:?} in pieces of {bytes}");
    }
}

#[test]
fn requests_pass_however_they_are_cut() {
    passes("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    passes("GET / HTTP/1.0\r\n\r\n");
    passes("PURGE http://a/b?c HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    passes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost:a\r\n\r\n");
    passes(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    );
    passes("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn what_two_readers_could_understand_differently_is_refused() {
    for (fields, why) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", Refusal::TwoLengths),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", Refusal::TwoLengths),
        ("Content-Length: 5\r\nContent-Length: 5", Refusal::RepeatedLength),
        ("Content-Length: 5, 5", Refusal::BadLength),
        ("Content-Length: +5", Refusal::BadLength),
        ("Content-Length: 0x5", Refusal::BadLength),
        ("Content-Length:", Refusal::BadLength),
        ("Transfer-Encoding: gzip, chunked", Refusal::UnknownCoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Refusal::UnknownCoding),
        ("Transfer-Encoding: xchunked", Refusal::UnknownCoding),
    ] {
        refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"), why);
    }
    for (head, why) in [
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::CodingInOldVersion),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n y: 2\r\n\r\n", Refusal::Folded),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", Refusal::FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", Refusal::FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n", Refusal::FieldName),
        ("GET / HTTP/1.1\nHost: a\n\n", Refusal::BareLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", Refusal::BareLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", Refusal::BareLineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", Refusal::FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::RepeatedHost),
        ("GET / HTTP/1.1\r\n\r\n", Refusal::NoHost),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::RequestLine),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::RequestLine),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::RequestLine),
        ("GET a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::TargetForm),
        ("GET a/b HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::TargetForm),
        ("GET ?b HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::TargetForm),
        ("GET /<b> HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::TargetByte),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version),
        ("GET /\r\n\r\n", Refusal::RequestLine),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: coffee\r\n\r\n", Refusal::Expectation),
    ] {
        refused(head, why);
    }
}

#[test]
fn chunks_that_are_not_as_announced_are_refused() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, why) in [
        ("5\r\nhelloX\r\n", Refusal::Chunking),
        ("5\nhello\r\n", Refusal::Chunking),
        ("\r\n", Refusal::Chunking),
        ("g\r\n", Refusal::Chunking),
        ("-1\r\n", Refusal::Chunking),
        ("0x5\r\n", Refusal::Chunking),
        ("5 \r\nhello\r\n", Refusal::Chunking),
        ("10000000000000\r\n", Refusal::Chunking),
        ("5;a\nb\r\nhello\r\n", Refusal::Chunking),
        ("5;\0\r\n", Refusal::Chunking),
        ("0\r\nA : b\r\n\r\n", Refusal::FieldName),
        ("0\r\n A: b\r\n\r\n", Refusal::FieldName),
        ("0\r\nA\r\n\r\n", Refusal::BareLineEnd),
        ("0\r\nA: b\n\r\n", Refusal::BareLineEnd),
    ] {
        refused(&format!("{head}{body}"), why);
    }
    refused(&format!("{head}5;{}\r\n", "x".repeat(2000)), Refusal::Chunking);
    refused(&format!("{head}0\r\n{}\r\n", "A: b\r\n".repeat(200)), Refusal::HeadTooLong);
}

#[test]
fn floods_are_refused_before_they_are_whole() {
    let many = "X: y\r\n".repeat(FIELDS_MAX);
    refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), Refusal::TooManyFields);
    let long = "y".repeat(HEAD_BYTES_MAX);
    assert_eq!(whole(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}").as_bytes()), Err(Refusal::HeadTooLong));
    assert_eq!(whole(format!("GET /{long}").as_bytes()), Err(Refusal::TargetTooLong));
    let longer = "y".repeat(TARGET_BYTES_MAX);
    refused(&format!("GET /{longer} HTTP/1.1\r\nHost: a\r\n\r\n"), Refusal::TargetTooLong);
    // TLS and memcached's binary protocol are told at their first byte.
    assert_eq!(whole(b"\x16\x03\x01"), Err(Refusal::RequestLine));
    assert_eq!(whole(b"\x80"), Err(Refusal::RequestLine));
    assert_eq!(whole(&[b'A'; 100]), Err(Refusal::RequestLine));
}

#[test]
fn what_came_before_a_refused_request_passes_and_nothing_after_it() {
    let first = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let both = [&first[..], b"GET / HTTP/1.1\r\n\r\n", first].concat();
    let mut guard = Guard::default();
    assert_eq!(guard.check(&both), Ok(first.len()));
    let refused = Refused { why: Refusal::NoHost, in_head: true };
    assert_eq!(guard.check(&both[first.len()..]), Err(refused));
    assert_eq!(guard.check(first).map_err(|refused| refused.why), Err(Refusal::NoHost));
    assert_eq!(guard.heads(), 1);
}

#[test]
fn a_client_that_changes_the_protocol_is_not_read_before_its_answer() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let bytes = [&head[..], b"\x81\x05hello"].concat();
    for is_tunnel in [true, false] {
        let mut guard = Guard::default();
        assert_eq!(guard.check(&bytes), Ok(head.len()));
        assert_eq!(guard.check(&bytes[head.len()..]), Ok(0));
        guard.upgraded(is_tunnel);
        let expected = if is_tunnel { Ok(7) } else { Err(Refusal::RequestLine) };
        assert_eq!(guard.check(&bytes[head.len()..]).map_err(|refused| refused.why), expected);
    }
}

#[test]
fn what_is_no_wish_for_another_protocol_is_plain_http() {
    for lines in [
        // RFC 9113, section 3.1.
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: H2C, h2\r\n",
        "Connection: Upgrade\r\nUpgrade: \r\n",
        // RFC 9110, section 7.8: Connection has to name it.
        "Upgrade: websocket\r\n",
        "Connection: Upgrade\r\n",
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut guard = Guard::default();
        assert_eq!(guard.check(head.as_bytes()), Ok(head.len()));
        assert!(!guard.is_upgrading(), "{lines}");
    }
    let mut guard = Guard::default();
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, websocket\r\n\r\n";
    assert_eq!(guard.check(head), Ok(head.len()));
    assert!(guard.is_upgrading());
}

#[test]
fn no_bytes_make_it_panic_or_pass_more_than_there_are() {
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    let alphabet = b"GET / HTTP/1.1\r\n\r\nHost:aTransfer-Encoding: chunkedContent-Length: 5;0\0\xff";
    for _ in 0..5000 {
        let bytes: Vec<u8> = (0..next() % 80).map(|_| alphabet[next() % alphabet.len()]).collect();
        let split = 1 + next() % 10;
        assert_eq!(whole(&bytes).is_ok(), in_pieces(&bytes, split).is_ok(), "{bytes:?} in pieces of {split}");
    }
}
