//! Sections `cc-parse`, `expires-parse`, `age-parse`, `vary-parse`, `pragma`.

use super::check_reuse;

#[test]
fn of_several_max_ages_the_first_counts() {
    check_reuse(&[
        (&[("cache-control", "max-age=1800, max-age=1")], true),
        (&[("cache-control", "max-age=1800"), ("cache-control", "max-age=1")], true),
        (&[("cache-control", "max-age=1, max-age=1800")], false),
        (&[("cache-control", "max-age=1"), ("cache-control", "max-age=1800")], false),
        // Unless one of them is nonsense: then nobody knows what was meant.
        (&[("cache-control", "max-age=1800, max-age=x")], false),
        (&[("cache-control", "max-age=x, max-age=1800")], false),
    ]);
}

#[test]
fn what_stands_in_a_quoted_string_is_no_directive() {
    check_reuse(&[
        (&[("cache-control", "extension=\"max-age=3600\", max-age=1")], false),
        (&[("cache-control", "max-age=1, extension=\"max-age=3600\"")], false),
        (&[("cache-control", "extension=\"a, max-age=3600\", max-age=1")], false),
        (&[("cache-control", "extension=\"a, \\\", no-store\", max-age=3600")], true),
        (&[("cache-control", "max-age=3600, extension=\"no-store")], true),
    ]);
}

#[test]
fn only_digits_make_a_number() {
    check_reuse(&[
        (&[("cache-control", "max-age=\"3600\"")], true),
        (&[("cache-control", "max-age=003600")], true),
        (&[("cache-control", "max-age='3600'")], false),
        (&[("cache-control", "max-age =3600")], false),
        (&[("cache-control", "max-age= 3600")], false),
        (&[("cache-control", "max-age=3600.0")], false),
        (&[("cache-control", "max-age=3600.5")], false),
        (&[("cache-control", "max-age=a3600")], false),
        (&[("cache-control", "max-age=3600a")], false),
        (&[("cache-control", "max-age=+3600")], false),
        (&[("cache-control", "max-age=")], false),
        (&[("cache-control", "max-age")], false),
        (&[("cache-control", "=3600, max-age=3600")], true),
        (&[("cache-control", ", ,\tmax-age=3600 ,,")], true),
        (&[("cache-control", "max-age=3600;public")], false),
    ]);
}

#[test]
fn an_expires_that_is_no_date_has_passed() {
    check_reuse(&[
        (&[("expires", "Tue, 19 Jan 2038 14:14:08 GMT"), ("date", "+0")], true),
        (&[("expires", "Sun, 21 Nov 2286 04:46:39 GMT"), ("date", "+0")], true),
        (&[("expires", "Thursday, 18-Aug-50 02:01:18 GMT"), ("date", "+0")], true),
        (&[("expires", "Thu Aug  8 02:01:18 2050"), ("date", "+0")], true),
        (&[("expires", "THU, 18 Aug 2050 02:01:18 GMT"), ("date", "+0")], true),
        (&[("expires", "Thu, 18 AUG 2050 02:01:18 GMT"), ("date", "+0")], true),
        (&[("expires", "Thu, 18 Aug 2050 02:01:18 gMT"), ("date", "+0")], true),
        (&[("expires", "Thu, 18 Aug 2050 02:01:18 UTC"), ("date", "+0")], false),
        (&[("expires", "Thu, 18 Aug 2050 02:01:18 AEST"), ("date", "+0")], false),
        (&[("expires", "Thu, 18 Aug 50 02:01:18 GMT"), ("date", "+0")], false),
        (&[("expires", "Thu 18 Aug 2050 02:01:18 GMT"), ("date", "+0")], false),
        (&[("expires", "Thu, 18  Aug  2050 02:01:18 GMT"), ("date", "+0")], false),
        (&[("expires", "Thu, 18-Aug-2050 02:01:18 GMT"), ("date", "+0")], false),
        (&[("expires", "Thu, 18 Aug 2050 02.01.18 GMT"), ("date", "+0")], false),
        (&[("expires", "Thu, 18 Aug 2050 2:01:18 GMT"), ("date", "+0")], false),
        (
            &[
                ("expires", "Thu, 18 Aug 2050 02:01:18 GMT"),
                ("expires", "Thu, 18 Aug 2050 02:01:19 GMT"),
                ("date", "+0"),
            ],
            false,
        ),
    ]);
}

#[test]
fn the_first_age_counts_if_it_is_a_number() {
    let rows = [
        (&["abc"][..], true),
        (&["-7200"], true),
        (&["7200.0"], true),
        (&["2147483647"], false),
        (&["2147483648"], false),
        (&["2147483649"], false),
        (&["99999999999999999999"], false),
        (&["7200, 0"], false),
        (&["0, 7200"], true),
        (&["7200", "0"], false),
        (&["0", "7200"], true),
        (&["0, 0"], true),
        (&["0", "0"], true),
        (&["7200;foo=bar"], false),
        (&["7200;foo=111"], false),
    ];
    for (ages, reused) in rows {
        let mut response = vec![("date", "+0"), ("cache-control", "max-age=3600")];
        response.extend(ages.iter().map(|&age| ("age", age)));
        check_reuse(&[(&response, reused)]);
    }
}

#[test]
fn a_star_anywhere_in_vary_is_a_star() {
    for lines in [&["*"][..], &["*, *"], &["*", "*"], &[", *"], &["", "*"], &["*, foo"], &["foo, *"], &["foo bar"]] {
        let mut response = vec![("date", "+0"), ("cache-control", "max-age=5000"), ("last-modified", "-3000")];
        response.extend(lines.iter().map(|&line| ("vary", line)));
        check_reuse(&[(&response, false)]);
    }
}

#[test]
fn pragma_in_a_response_means_nothing() {
    check_reuse(&[
        (&[("cache-control", "max-age=3600"), ("pragma", "no-cache")], true),
        (&[("last-modified", "-10000"), ("date", "+0"), ("pragma", "no-cache")], true),
        (&[("cache-control", "max-age=3600"), ("pragma", "unrecognised-extension")], true),
    ]);
}
