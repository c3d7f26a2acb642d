//! Byte ranges of a stored whole (RFC 9110, 14).

use super::directives::Elements;
use super::{date, validate};
use http::header::{DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::ops::Range;

/// More ranges than these in one request are ignored, and the whole is served (RFC 9110, 14.2 and 17.15).
pub const RANGES_MAX: usize = 200;

/// What of a representation is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// All of it, as 200.
    Whole,
    /// One part, as 206 with [`content_range`].
    One(Range<u64>),
    /// Several parts that neither overlap nor touch, as 206 with the parts of [`Multipart`].
    Many(Vec<Range<u64>>),
    /// None that exists: 416 with [`unsatisfied_range`].
    Unsatisfiable,
}

/// What a request's `Range` and `If-Range` select of a stored 200 whose body, in the encoding that is served, has so many
/// bytes. What is not understood is ignored and the whole is served, as the RFC wants it.
///
/// Ranges that overlap or touch are joined, so that no request makes an answer longer than the whole; the parts stand in
/// the order in which the first of each was asked for.
#[must_use]
pub fn select(request: &HeaderMap, status: StatusCode, stored: &HeaderMap, bytes: u64) -> Selected {
    let mut lines = request.get_all(RANGE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return Selected::Whole };
    if status != StatusCode::OK || !if_range(request, stored) {
        return Selected::Whole;
    }
    let Some(ranges) = parse(line.as_bytes(), bytes) else { return Selected::Whole };
    let mut ranges = coalesce(ranges);
    match ranges.len() {
        0 => Selected::Unsatisfiable,
        1 => Selected::One(ranges.remove(0)),
        _ => Selected::Many(ranges),
    }
}

/// The one range that a request asks for, to be asked of the origin as it is. None for several, for what is no range of
/// bytes, and under a condition: who asks for such gets it from the whole.
#[must_use]
pub fn single(request: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = request.get_all(RANGE).iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let is_one = parse(line.as_bytes(), u64::MAX).is_some_and(|ranges| ranges.len() == 1);
    (is_one && !request.contains_key(IF_RANGE)).then_some(line)
}

/// Whether `If-Range` lets a range through (RFC 9110, 13.1.5): the same strong tag, or exactly the same date, strong.
fn if_range(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let Some(condition) = request.get(IF_RANGE).map(HeaderValue::as_bytes) else { return true };
    if condition.starts_with(b"\"") || condition.starts_with(b"W/") {
        return stored.get(ETAG).is_some_and(|tag| validate::strong_match(condition, tag.as_bytes()));
    }
    let moment = |name| stored.get(name).and_then(|value: &HeaderValue| date::parse(value.as_bytes()));
    match (date::parse(condition), moment(LAST_MODIFIED), moment(DATE)) {
        // RFC 9110, 8.8.2.2: strong when it was served at least a second after it was modified.
        (Some(condition), Some(modified), Some(served)) => condition == modified && modified < served,
        _ => false,
    }
}

/// The satisfiable ranges of a `bytes` range set; `None` when it is to be ignored.
fn parse(value: &[u8], bytes: u64) -> Option<Vec<Range<u64>>> {
    let (unit, set) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut ranges = Vec::new();
    let mut count = 0;
    for spec in Elements::of(set) {
        count += 1;
        if count > RANGES_MAX {
            return None;
        }
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        let range = match (position(&spec[..dash])?, position(&spec[dash + 1..])?) {
            (None, None) => return None,
            (None, Some(suffix)) => bytes.saturating_sub(suffix)..bytes,
            (Some(first), None) => first..bytes,
            (Some(first), Some(last)) if last < first => return None,
            (Some(first), Some(last)) => first..last.saturating_add(1).min(bytes),
        };
        if range.start < range.end {
            ranges.push(range);
        }
    }
    (count > 0).then_some(ranges)
}

/// A position, or that none is given; `None` for what is neither.
fn position(text: &[u8]) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    text.iter().all(u8::is_ascii_digit).then(|| Some(text.iter().fold(0, add)))
}

/// Joins ranges that overlap or touch. At most [`RANGES_MAX`] of them come here.
fn coalesce(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<(usize, Range<u64>)> = ranges.into_iter().enumerate().collect();
    sorted.sort_by_key(|(_, range)| range.start);
    let mut joined: Vec<(usize, Range<u64>)> = Vec::with_capacity(sorted.len());
    for (asked, range) in sorted {
        match joined.last_mut() {
            Some((first_asked, last)) if range.start <= last.end => {
                last.end = last.end.max(range.end);
                *first_asked = (*first_asked).min(asked);
            }
            _ => joined.push((asked, range)),
        }
    }
    joined.sort_by_key(|(asked, _)| *asked);
    joined.into_iter().map(|(_, range)| range).collect()
}

/// `Content-Range` of a part.
#[must_use]
pub fn content_range(range: &Range<u64>, bytes: u64) -> String {
    format!("bytes {}-{}/{bytes}", range.start, range.end.saturating_sub(1))
}

/// `Content-Range` of a 416.
#[must_use]
pub fn unsatisfied_range(bytes: u64) -> String {
    format!("bytes */{bytes}")
}

/// The framing of a 206 `multipart/byteranges` (RFC 9110, 14.6): before each part its head, after the last the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// For each part the bytes before it, and which part.
    pub parts: Vec<(Vec<u8>, Range<u64>)>,
    /// The bytes after the last part.
    pub end: Vec<u8>,
    /// The `Content-Type` of the answer.
    pub content_type: String,
    /// The `Content-Length` of the answer.
    pub bytes: u64,
}

impl Multipart {
    /// The framing of these parts of a representation of so many bytes. The boundary must not occur in it: `seed` should
    /// be a number that nobody can foresee.
    #[must_use]
    pub fn new(ranges: &[Range<u64>], bytes: u64, content_type: Option<&HeaderValue>, seed: u64) -> Self {
        let boundary = format!("nuthatch-{seed:016x}");
        let mut parts = Vec::with_capacity(ranges.len());
        let mut length = 0;
        for range in ranges {
            let mut head = format!("\r\n--{boundary}\r\n").into_bytes();
            if let Some(content_type) = content_type {
                head.extend_from_slice(b"Content-Type: ");
                head.extend_from_slice(content_type.as_bytes());
                head.extend_from_slice(b"\r\n");
            }
            head.extend_from_slice(format!("Content-Range: {}\r\n\r\n", content_range(range, bytes)).as_bytes());
            length += head.len() as u64 + (range.end - range.start);
            parts.push((head, range.clone()));
        }
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        Self { bytes: length + end.len() as u64, parts, end, content_type }
    }
}

#[cfg(test)]
mod tests {
    use super::{Multipart, RANGES_MAX, Selected, select};
    use crate::testing::headers;
    use http::{HeaderMap, HeaderValue, StatusCode};

    fn of_ten(range: &str) -> Selected {
        select(&headers(&[("range", range)]), StatusCode::OK, &HeaderMap::new(), 10)
    }

    #[test]
    fn one_range_selects_what_there_is_of_it() {
        for (range, part) in [
            ("bytes=0-1", 0..2),
            ("bytes=1-", 1..10),
            ("bytes=-1", 9..10),
            ("bytes=-20", 0..10),
            ("bytes=5-99", 5..10),
            ("BYTES=9-9", 9..10),
            ("bytes= 2-3 , ", 2..4),
            ("bytes=0-99999999999999999999999", 0..10),
            ("bytes=20-30, 0-0", 0..1),
            ("bytes=0-3,2-5", 0..6),
            ("bytes=4-5,0-3", 0..6),
        ] {
            assert_eq!(of_ten(range), Selected::One(part), "{range}");
        }
    }

    #[test]
    fn one_range_without_a_condition_is_asked_of_the_origin_as_it_is() {
        for (fields, is_single) in [
            (&[("range", "bytes=1-2")][..], true),
            (&[("range", "bytes=-5")], true),
            (&[("range", "bytes=5-")], true),
            (&[("range", "bytes=1-2,4-5")], false),
            (&[("range", "lines=1-2")], false),
            (&[("range", "bytes=2-1")], false),
            (&[("range", "bytes=1-2"), ("range", "bytes=4-5")], false),
            (&[("range", "bytes=1-2"), ("if-range", "\"a\"")], false),
            (&[], false),
        ] {
            assert_eq!(super::single(&headers(fields)).is_some(), is_single, "{fields:?}");
        }
    }

    #[test]
    fn several_ranges_stand_in_the_order_asked_for_and_joined() {
        assert_eq!(of_ten("bytes=8-9,0-0"), Selected::Many(vec![8..10, 0..1]));
        assert_eq!(of_ten("bytes=8-9,0-0,1-2,-1"), Selected::Many(vec![8..10, 0..3]));
    }

    #[test]
    fn ranges_past_the_end_are_unsatisfiable() {
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=20-, 30-40"] {
            assert_eq!(of_ten(range), Selected::Unsatisfiable, "{range}");
        }
        let empty = select(&headers(&[("range", "bytes=-5")]), StatusCode::OK, &HeaderMap::new(), 0);
        assert_eq!(empty, Selected::Unsatisfiable);
    }

    #[test]
    fn what_is_not_understood_selects_the_whole() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "lines=0-1",
            "bytes=a-b",
            "bytes=1-0",
            "bytes=-",
            "bytes=0-1,x",
            "bytes=--1",
            "bytes=0-1-2",
            "bytes=1",
            "bytes:0-1",
            "bytes=0x0-1",
        ] {
            assert_eq!(of_ten(range), Selected::Whole, "{range}");
        }
        let two = headers(&[("range", "bytes=0-1"), ("range", "bytes=2-3")]);
        assert_eq!(select(&two, StatusCode::OK, &HeaderMap::new(), 10), Selected::Whole);
        let one = headers(&[("range", "bytes=0-1")]);
        assert_eq!(select(&one, StatusCode::NOT_FOUND, &HeaderMap::new(), 10), Selected::Whole);
    }

    #[test]
    fn more_ranges_than_the_limit_select_the_whole() {
        let set = |count: usize| {
            format!("bytes={}", (0..count).map(|at| format!("{0}-{0}", at * 2)).collect::<Vec<_>>().join(","))
        };
        let select = |count| select(&headers(&[("range", &set(count))]), StatusCode::OK, &HeaderMap::new(), 1 << 20);
        assert!(matches!(select(RANGES_MAX), Selected::Many(ranges) if ranges.len() == RANGES_MAX));
        assert_eq!(select(RANGES_MAX + 1), Selected::Whole);
    }

    #[test]
    fn a_condition_must_hold_strongly() {
        let modified = "Wed, 01 Jan 2020 00:00:00 GMT";
        let stored = [("etag", "\"a\""), ("last-modified", modified), ("date", "Thu, 02 Jan 2020 00:00:00 GMT")];
        for (condition, stored, holds) in [
            ("\"a\"", &stored[..], true),
            ("\"b\"", &stored[..], false),
            ("W/\"a\"", &[("etag", "W/\"a\"")][..], false),
            (modified, &stored[..], true),
            ("Wed, 01 Jan 2020 00:00:01 GMT", &stored[..], false),
            (modified, &[("last-modified", modified), ("date", modified)][..], false),
            (modified, &[("date", modified)][..], false),
            ("junk", &stored[..], false),
        ] {
            let request = headers(&[("range", "bytes=0-1"), ("if-range", condition)]);
            let selected = select(&request, StatusCode::OK, &headers(stored), 10);
            assert_eq!(selected == Selected::One(0..2), holds, "{condition} {stored:?}");
        }
    }

    #[test]
    fn the_parts_of_a_multipart_add_up_to_its_length() {
        let body = b"0123456789";
        let multipart = Multipart::new(&[8..10, 0..3], 10, Some(&HeaderValue::from_static("text/plain")), 7);
        let mut sent = Vec::new();
        for (head, range) in &multipart.parts {
            sent.extend_from_slice(head);
            sent.extend_from_slice(&body[range.start as usize..range.end as usize]);
        }
        sent.extend_from_slice(&multipart.end);
        assert_eq!(sent.len() as u64, multipart.bytes);
        assert_eq!(multipart.content_type, "multipart/byteranges; boundary=nuthatch-0000000000000007");
        let expected = "\r\n--nuthatch-0000000000000007\r\nContent-Type: text/plain\r\nContent-Range: bytes 8-9/10\r\n\r\n89\
                        \r\n--nuthatch-0000000000000007\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-2/10\r\n\r\n012\
                        \r\n--nuthatch-0000000000000007--\r\n";
        assert_eq!(String::from_utf8_lossy(&sent), expected);
    }
}
