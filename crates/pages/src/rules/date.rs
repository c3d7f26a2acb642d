//! HTTP-dates (RFC 9110, 5.6.7): the three forms a recipient must understand, and the one it sends.

use super::UnixSeconds;
use std::time::{Duration, UNIX_EPOCH};

/// 9999-12-31T23:59:59Z, beyond which no form has room.
const LATEST: UnixSeconds = 253_402_300_799;

const MONTHS: [&[u8]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
const DAYS: [&[u8]; 7] = [b"monday", b"tuesday", b"wednesday", b"thursday", b"friday", b"saturday", b"sunday"];

/// The moment that an HTTP-date names: IMF-fixdate, and the RFC 850 and asctime forms that only old senders use.
///
/// Names of days, months and `GMT` are understood in any case, and which day of the week it is said to be does not
/// matter: senders get both wrong. Everything else must be of the form: a zone other than GMT, a missing comma or a second
/// blank make it no date, and what expires then has expired (RFC 9111, 5.3). Two digits are a year from 1970 to 2069.
#[must_use]
pub fn parse(value: &[u8]) -> Option<UnixSeconds> {
    let value = value.trim_ascii().to_ascii_lowercase();
    let date = if let Some(comma) = value.iter().position(|&byte| byte == b',') {
        let rest = value[comma + 1..].strip_prefix(b" ")?.strip_suffix(b" gmt")?;
        if comma == 3 { fixdate(&value[..3], rest) } else { rfc850(&value[..comma], rest) }
    } else {
        asctime(&value)
    }?;
    date.moment()
}

struct Date<'a> {
    day: &'a [u8],
    month: &'a [u8],
    year: u32,
    time: &'a [u8],
}

/// `06 nov 1994 08:49:37`
fn fixdate<'a>(name: &[u8], rest: &'a [u8]) -> Option<Date<'a>> {
    let [d1, d2, b' ', _, _, _, b' ', y1, y2, y3, y4, b' ', ..] = rest else { return None };
    DAYS.iter().any(|day| &day[..3] == name).then_some(())?;
    d1.is_ascii_digit().then_some(())?;
    d2.is_ascii_digit().then_some(())?;
    Some(Date { day: &rest[..2], month: &rest[3..6], year: number(&[*y1, *y2, *y3, *y4])?, time: &rest[12..] })
}

/// `06-nov-94 08:49:37`
fn rfc850<'a>(name: &[u8], rest: &'a [u8]) -> Option<Date<'a>> {
    let [_, _, b'-', _, _, _, b'-', y1, y2, b' ', ..] = rest else { return None };
    DAYS.contains(&name).then_some(())?;
    let year = number(&[*y1, *y2])?;
    let year = if year < 70 { 2000 + year } else { 1900 + year };
    Some(Date { day: &rest[..2], month: &rest[3..6], year, time: &rest[10..] })
}

/// `sun nov  6 08:49:37 1994`
fn asctime(value: &[u8]) -> Option<Date<'_>> {
    let (front, year) = value.split_at_checked(20)?;
    let [_, _, _, b' ', _, _, _, b' ', _, _, b' ', .., b' '] = front else { return None };
    DAYS.iter().any(|day| day[..3] == front[..3]).then_some(())?;
    let day = front[8..10].strip_prefix(b" ").unwrap_or(&front[8..10]);
    Some(Date {
        day,
        month: &front[4..7],
        year: (year.len() == 4).then(|| number(year)).flatten()?,
        time: &front[11..19],
    })
}

impl Date<'_> {
    fn moment(&self) -> Option<UnixSeconds> {
        let [h1, h2, b':', m1, m2, b':', s1, s2] = self.time else { return None };
        let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
        let month = MONTHS.iter().position(|month| *month == self.month)?;
        let (day, year) = (number(self.day)?, self.year);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        // RFC 9110 has room for a leap second.
        if year < 1970 || !(1..=lengths[month]).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let before = year - 1;
        let leap_days = before / 4 - before / 100 + before / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
        let days = (year - 1970) * 365 + leap_days + lengths[..month].iter().sum::<u32>() + day - 1;
        Some(i64::from(days) * 86_400 + i64::from(hour * 3600 + minute * 60 + second))
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all.then(|| digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

/// The moment in IMF-fixdate form, 29 bytes. Moments before 1970 and after 9999 are moved to the nearest that it has.
#[must_use]
pub fn format(time: UnixSeconds) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.clamp(0, LATEST).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::{LATEST, format, parse};

    #[test]
    fn the_three_forms_in_any_case_name_a_moment() {
        let moment = Some(784_111_777);
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "SUN, 06 nov 1994 08:49:37 gMt",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(parse(text.as_bytes()), moment, "{text}");
        }
        assert_eq!(parse(b"Thursday, 18-Aug-50 02:01:18 GMT"), parse(b"Thu, 18 Aug 2050 02:01:18 GMT"));
        assert_eq!(parse(b"Thu Aug 18 02:01:18 2050"), parse(b"Thu, 18 Aug 2050 02:01:18 GMT"));
        assert_eq!(parse(b"Thu Aug  8 02:01:18 2050"), parse(b"Mon, 08 Aug 2050 02:01:18 GMT"));
        assert!(parse(b"Sun, 21 Nov 2286 04:46:39 GMT").is_some());
    }

    #[test]
    fn what_is_not_quite_a_date_is_none() {
        for text in [
            "",
            "0",
            "-1",
            "foo",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 2050 24:01:18 GMT",
            "Thu, 32 Aug 2050 02:01:18 GMT",
            "Tue, 29 Feb 2050 02:01:18 GMT",
            "Foo, 18 Aug 2050 02:01:18 GMT",
            "Thu Aug 18 02:01:18 20500",
            "Thu, 18 Aug 1950 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT\u{e9}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_moment_is_written_so_that_it_is_read_again() {
        let days = (0..4000).map(|n| n * 733 * 86_400 + 86_399).take_while(|&moment| moment < LATEST);
        for moment in [0, 1, 784_111_777, 4_102_444_800, LATEST].into_iter().chain(days) {
            assert_eq!(parse(format(moment).as_bytes()), Some(moment));
            assert_eq!(format(moment).len(), 29);
        }
        assert_eq!((format(-5), format(i64::MAX)), (format(0), format(LATEST)));
    }
}
