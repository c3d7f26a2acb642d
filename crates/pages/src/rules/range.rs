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
    /// Several parts in the order asked for, as 206 `multipart/byteranges`.
    Many(Vec<Range<u64>>),
    /// None that exists: 416 with [`unsatisfied_range`].
    Unsatisfiable,
}

/// What a request's `Range` and `If-Range` select of a stored 200 of `bytes` length. Everything that is not understood is
/// ignored and the whole is served, as the RFC wants it.
#[must_use]
pub fn select(request: &HeaderMap, status: StatusCode, stored: &HeaderMap, bytes: u64) -> Selected {
    let mut lines = request.get_all(RANGE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return Selected::Whole };
    if status != StatusCode::OK || !if_range(request, stored) {
        return Selected::Whole;
    }
    match parse(line.as_bytes(), bytes) {
        None => Selected::Whole,
        Some(mut ranges) => match ranges.len() {
            0 => Selected::Unsatisfiable,
            1 => Selected::One(ranges.remove(0)),
            _ => Selected::Many(ranges),
        },
    }
}

/// Whether `If-Range` lets a range through (RFC 9110, 13.1.5): the same strong tag, or exactly the same date, strong.
fn if_range(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let Some(condition) = request.get(IF_RANGE).map(HeaderValue::as_bytes) else { return true };
    if condition.starts_with(b"\"") || condition.starts_with(b"W/") {
        return stored.get(ETAG).is_some_and(|tag| validate::strong_match(condition, tag.as_bytes()));
    }
    let moment = |name| stored.get(name).and_then(|value: &HeaderValue| date::parse(value.as_bytes()));
    match (date::parse(condition), moment(LAST_MODIFIED), moment(DATE)) {
        // RFC 9110, 8.8.2.2: strong when the representation was served at least a second after it was modified.
        (Some(condition), Some(modified), Some(served)) => condition == modified && modified < served,
        _ => false,
    }
}

/// The satisfiable ranges of a `bytes` range set; `None` when it is to be ignored.
fn parse(value: &[u8], bytes: u64) -> Option<Vec<Range<u64>>> {
    let unit = value.get(..6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut ranges = Vec::new();
    let mut count = 0;
    for spec in (Elements { rest: &value[6..] }) {
        count += 1;
        if count > RANGES_MAX {
            return None;
        }
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (number(&spec[..dash])?, number(&spec[dash + 1..])?);
        let range = match (first, last) {
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

/// A position, or that there is none; `None` for anything else.
fn number(text: &[u8]) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.iter().all(u8::is_ascii_digit);
    digits.then(|| Some(text.iter().fold(0u64, |sum, d| sum.saturating_mul(10).saturating_add(u64::from(d - b'0')))))
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
