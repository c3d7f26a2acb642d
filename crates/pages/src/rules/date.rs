//! HTTP-dates (RFC 9110, 5.6.7): the three forms a recipient must understand, and the one it sends.

use super::UnixSeconds;
use std::time::{Duration, UNIX_EPOCH};

/// The moment that an HTTP-date names, or nothing when it names none. IMF-fixdate, RFC 850 and asctime forms.
#[must_use]
pub fn parse(value: &[u8]) -> Option<UnixSeconds> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let time = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The moment in IMF-fixdate form, 29 bytes. Years outside 1970 to 9999 are moved to the nearest of them.
#[must_use]
pub fn format(time: UnixSeconds) -> String {
    // 9999-12-31T23:59:59Z, beyond which the form has no room.
    let seconds = time.clamp(0, 253_402_300_799).unsigned_abs();
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}
