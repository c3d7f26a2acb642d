//! Parts of a representation (206), kept until they make the whole (RFC 9111, 3.3 and 3.4; RFC 9110, 15.3.7.3).

use super::fields::single;
use super::range::Selected;
use super::{range, validate};
use http::header::{CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::ops::Range;

/// The part that a 206 with one range carries, of a whole of so many bytes. None for a multipart one, and for those whose
/// length is not known or does not fit.
#[must_use]
pub fn part(response: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let value = std::str::from_utf8(single(response, &CONTENT_RANGE)?).ok()?;
    let (unit, value) = value.trim().split_once(' ')?;
    let (range, whole) = value.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (first, last, whole) = (number(first)?, number(last)?, number(whole)?);
    (unit.eq_ignore_ascii_case("bytes") && first <= last && last < whole).then(|| (first..last + 1, whole))
}

/// Where a 206 whose body has so many bytes lies, and the length of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its bytes of the whole.
    pub range: Range<u64>,
    /// Bytes of the whole.
    pub whole: u64,
    /// Its `Content-Range` is right. One that is not is joined with nothing.
    pub is_exact: bool,
}

/// The place of a part whose body turned out to have so many bytes. Where the body is shorter than `Content-Range` says
/// and said to reach the end, as some origins count who take the last byte for the one behind it, what arrived counts, and
/// its end is the end of the whole. None where both cannot be brought together.
#[must_use]
pub fn place(response: &HeaderMap, body_bytes: u64) -> Option<Place> {
    let (said, whole) = part(response)?;
    let end = said.start.checked_add(body_bytes)?;
    if end == said.end {
        return Some(Place { range: said, whole, is_exact: true });
    }
    let is_short = body_bytes > 0 && end < said.end && said.end == whole;
    is_short.then_some(Place { range: said.start..end, whole: end, is_exact: false })
}

/// What a request's `Range` selects of a stored part (RFC 9111, 3.3): a range of the whole that lies within it, or
/// nothing, and the origin must be asked.
#[must_use]
pub fn select(request: &HeaderMap, stored: &HeaderMap, held: &Range<u64>, whole: u64) -> Option<Range<u64>> {
    match range::select(request, StatusCode::OK, stored, whole) {
        Selected::One(range) if held.start <= range.start && range.end <= held.end => Some(range),
        _ => None,
    }
}

/// Whether two parts are of the same representation: they have the same strong `ETag` (RFC 9111, 3.4).
#[must_use]
pub fn combinable(stored: &HeaderMap, fresh: &HeaderMap) -> bool {
    match (stored.get(ETAG), fresh.get(ETAG)) {
        (Some(stored), Some(fresh)) => validate::strong_match(stored.as_bytes(), fresh.as_bytes()),
        _ => false,
    }
}

/// Turns a request to the origin into one for what is missing of a stored part that lacks its end or its beginning; the
/// whole comes instead when the representation is another by now. Nothing is changed, and `false` said, when the part has
/// no strong `ETag` or lies in the middle.
pub fn ask_for_rest(stored: &HeaderMap, held: &Range<u64>, whole: u64, request: &mut HeaderMap) -> bool {
    let missing = match (held.start, held.end) {
        (0, end) if end < whole => format!("bytes={end}-"),
        (start, end) if end == whole && start > 0 => format!("bytes=0-{}", start - 1),
        _ => return false,
    };
    let (Some(tag), Ok(missing)) = (stored.get(ETAG), HeaderValue::from_str(&missing)) else { return false };
    if !validate::strong_match(tag.as_bytes(), tag.as_bytes()) {
        return false;
    }
    validate::strip_conditions(request);
    request.insert(RANGE, missing);
    request.insert(IF_RANGE, tag.clone());
    true
}

/// Joins a stored part and a fresh one of the same representation ([`combinable`]) that overlap or touch. The bytes of the
/// fresh one count.
#[must_use]
pub fn join(stored: (&Range<u64>, &[u8]), fresh: (&Range<u64>, &[u8])) -> Option<(Range<u64>, Vec<u8>)> {
    let fits = |(range, body): (&Range<u64>, &[u8])| range.end.checked_sub(range.start) == Some(body.len() as u64);
    let (held, new) = (stored.0, fresh.0);
    if !fits(stored) || !fits(fresh) || held.end < new.start || new.end < held.start {
        return None;
    }
    let mut body = Vec::with_capacity(stored.1.len() + fresh.1.len());
    let before = new.start.saturating_sub(held.start).min(stored.1.len() as u64);
    let after = new.end.saturating_sub(held.start).min(stored.1.len() as u64);
    body.extend_from_slice(&stored.1[..before as usize]);
    body.extend_from_slice(fresh.1);
    body.extend_from_slice(&stored.1[after as usize..]);
    Some((held.start.min(new.start)..held.end.max(new.end), body))
}

#[cfg(test)]
mod tests {
    use super::{ask_for_rest, combinable, join, part, select};
    use crate::testing::headers;
    use http::HeaderMap;

    #[test]
    fn a_part_is_known_by_its_content_range() {
        for (value, expected) in [
            ("bytes 4-8/10", Some((4..9, 10))),
            ("Bytes 0-9/10", Some((0..10, 10))),
            ("bytes 4-9/*", None),
            ("bytes */10", None),
            ("bytes 4-10/10", None),
            ("bytes 5-4/10", None),
            ("bytes +4-9/10", None),
            ("lines 4-9/10", None),
            ("", None),
        ] {
            assert_eq!(part(&headers(&[("content-range", value)])), expected, "{value}");
        }
        assert_eq!(part(&headers(&[])), None);
    }

    #[test]
    fn what_arrived_of_a_part_counts_where_its_content_range_counts_wrong() {
        let place = |value: &str, bytes| {
            let place = super::place(&headers(&[("content-range", value)]), bytes);
            place.map(|place| (place.range, place.whole, place.is_exact))
        };
        assert_eq!(place("bytes 4-8/10", 5), Some((4..9, 10, true)));
        assert_eq!(place("bytes 4-9/10", 5), Some((4..9, 9, false)));
        for (value, bytes) in [("bytes 4-8/10", 4), ("bytes 4-9/10", 7), ("bytes 4-9/10", 0), ("bytes 4-9/*", 6)] {
            assert_eq!(place(value, bytes), None, "{value} {bytes}");
        }
    }

    #[test]
    fn a_part_serves_the_ranges_that_lie_within_it() {
        for (range, expected) in [
            ("bytes=-5", Some(5..10)),
            ("bytes=6-8", Some(6..9)),
            ("bytes=6-", Some(6..10)),
            ("bytes=-1", Some(9..10)),
            ("bytes=4-6", None),
            ("bytes=0-1", None),
            ("bytes=5-6,8-9", None),
        ] {
            let request = headers(&[("range", range)]);
            assert_eq!(select(&request, &HeaderMap::new(), &(5..10), 10), expected, "{range}");
        }
        assert_eq!(select(&HeaderMap::new(), &HeaderMap::new(), &(5..10), 10), None);
    }

    #[test]
    fn only_the_same_strong_tag_makes_parts_of_one_representation() {
        for (stored, fresh, expected) in [
            (&[("etag", "\"a\"")][..], &[("etag", "\"a\"")][..], true),
            (&[("etag", "\"a\"")], &[("etag", "\"b\"")], false),
            (&[("etag", "W/\"a\"")], &[("etag", "W/\"a\"")], false),
            (&[], &[], false),
        ] {
            assert_eq!(combinable(&headers(stored), &headers(fresh)), expected, "{stored:?}");
        }
    }

    #[test]
    fn the_rest_is_asked_for_on_condition() {
        let stored = headers(&[("etag", "\"a\"")]);
        for (held, range) in [(0..5, Some("bytes=5-")), (5..10, Some("bytes=0-4")), (3..5, None), (0..10, None)] {
            let mut request = headers(&[("range", "bytes=1-2"), ("if-none-match", "\"x\"")]);
            assert_eq!(ask_for_rest(&stored, &held, 10, &mut request), range.is_some(), "{held:?}");
            if let Some(range) = range {
                assert_eq!(request, headers(&[("range", range), ("if-range", "\"a\"")]));
            }
        }
        let weak = headers(&[("etag", "W/\"a\"")]);
        assert!(!ask_for_rest(&weak, &(0..5), 10, &mut HeaderMap::new()));
    }

    #[test]
    fn parts_that_touch_or_overlap_are_joined() {
        let old = b"abcdefghij";
        let new = b"ABCDEFGHIJ";
        for held in [0..3, 2..6, 4..10, 0..10] {
            for fresh in [0..2, 1..4, 3..7, 6..10, 0..10] {
                let cut = |body: &'static [u8; 10], range: &std::ops::Range<u64>| {
                    &body[range.start as usize..range.end as usize]
                };
                let joined = join((&held, cut(old, &held)), (&fresh, cut(new, &fresh)));
                if held.end < fresh.start || fresh.end < held.start {
                    assert_eq!(joined, None);
                    continue;
                }
                let (range, body) = joined.expect("they touch");
                let expected: Vec<u8> = range
                    .clone()
                    .map(|at| if fresh.contains(&at) { new[at as usize] } else { old[at as usize] })
                    .collect();
                assert_eq!((range, body), (held.start.min(fresh.start)..held.end.max(fresh.end), expected));
            }
        }
        assert_eq!(join((&(0..3), b"ab"), (&(3..4), b"d")), None);
    }
}
