//! Decimal numbers off and onto the wire.
//!
//! Owns the two number grammars memcached has. The *strict* one, of nearly everything, is digits, with a `-` where negative
//! numbers make sense, and at most as many characters as the type needs; a number that does not fit its type is refused. The
//! *loose* one, of the flags and expiry time of storage commands only, is that of C's `strtol`: a `+` or `-` and any number
//! of digits, cut to 32 bits.

/// Longest decimal of 32 bits, with its sign: `-2147483648`.
const STRICT_32_BYTES_MAX: usize = 11;
/// Longest decimal of 64 bits, with its sign, and one spare as memcached has it.
const STRICT_64_BYTES_MAX: usize = 22;

/// Strict unsigned 32-bit number.
#[inline]
pub(crate) fn strict_u32(token: &[u8]) -> Option<u32> {
    if token.len() > STRICT_32_BYTES_MAX { None } else { u32::try_from(digits(token)?).ok() }
}

/// Strict unsigned 64-bit number.
#[inline]
pub(crate) fn strict_u64(token: &[u8]) -> Option<u64> {
    if token.len() > STRICT_64_BYTES_MAX { None } else { digits(token) }
}

/// Strict signed 32-bit number.
#[inline]
pub(crate) fn strict_i32(token: &[u8]) -> Option<i32> {
    if token.len() > STRICT_32_BYTES_MAX { None } else { i32::try_from(strict_minus(token)?).ok() }
}

/// Strict signed 64-bit number.
pub(crate) fn strict_i64(token: &[u8]) -> Option<i64> {
    if token.len() > STRICT_64_BYTES_MAX { None } else { strict_minus(token) }
}

/// Loose unsigned 64-bit number, cut to 32 bits as memcached does: a client that puts more into its flags is not refused.
#[inline]
pub(crate) fn loose_u32(token: &[u8]) -> Option<u32> {
    Some(digits(token.strip_prefix(b"+").unwrap_or(token))? as u32)
}

/// Loose signed 64-bit number, cut to 32 bits as memcached does: a client that sends a date beyond 2038 is not refused.
#[inline]
pub(crate) fn loose_i32(token: &[u8]) -> Option<i32> {
    let number = match token {
        [b'+', rest @ ..] => i64::try_from(digits(rest)?).ok()?,
        _ => minus(token)?,
    };
    Some(number as i32)
}

/// A finite decimal fraction of at most 31 characters, as memcached copies it into a 32-byte buffer.
pub(crate) fn decimal_fraction(token: &[u8]) -> Option<f64> {
    if token.len() > 31 {
        return None;
    }
    let number: f64 = std::str::from_utf8(token).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// A sign alone is 0, as it is to memcached.
#[inline]
fn strict_minus(token: &[u8]) -> Option<i64> {
    if token == b"-" { Some(0) } else { minus(token) }
}

#[inline]
fn minus(token: &[u8]) -> Option<i64> {
    match token {
        [b'-', rest @ ..] => 0i64.checked_sub_unsigned(digits(rest)?),
        _ => i64::try_from(digits(token)?).ok(),
    }
}

/// One or more digits and nothing else.
#[inline]
fn digits(token: &[u8]) -> Option<u64> {
    if token.is_empty() {
        return None;
    }
    let mut number: u64 = 0;
    // 19 digits always fit 64 bits, so short numbers (all that matter for speed) are not checked for overflow.
    let unchecked = token.len() <= 19;
    for &byte in token {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = if unchecked {
            number * 10 + u64::from(digit)
        } else {
            number.checked_mul(10)?.checked_add(u64::from(digit))?
        };
    }
    Some(number)
}

/// All two-digit numbers in a row, so that two digits cost one division.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Longest decimal of 64 bits.
const U64_BYTES_MAX: usize = 20;

/// Appends `number` in decimal.
#[inline]
pub fn push_u64(out: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        out.push(b'0' + number as u8);
        return;
    }
    let mut digits = [0u8; U64_BYTES_MAX];
    let mut at = U64_BYTES_MAX;
    while number >= 100 {
        let pair = (number % 100) as usize * 2;
        number /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if number >= 10 {
        let pair = number as usize * 2;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `number` in decimal, with a `-` when it is negative.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    push_u64(out, number.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_refused_not_cut() {
        assert_eq!(strict_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(strict_u32(b"4294967296"), None);
        assert_eq!(strict_i32(b"2147483647"), Some(i32::MAX));
        assert_eq!(strict_i32(b"2147483648"), None);
        assert_eq!(strict_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(strict_i32(b"-2147483649"), None);
        assert_eq!(strict_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(strict_i64(b"-9223372036854775809"), None);
        assert_eq!(strict_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(strict_u64(b"18446744073709551616"), None);
        assert_eq!(strict_u64(b"0000000000000000000005"), Some(5));
        assert_eq!(strict_u64(b"00000000000000000000005"), None);
        assert_eq!(loose_u32(b"99999999999999999999999999"), None);
        assert_eq!(loose_i32(b"9223372036854775808"), None);
        assert_eq!(loose_i32(b"-9223372036854775809"), None);
    }

    #[test]
    fn flags_and_expiry_times_beyond_32_bits_are_cut_as_memcached_cuts_them() {
        assert_eq!(loose_u32(b"4294967297"), Some(1));
        assert_eq!(loose_u32(b"18446744073709551615"), Some(u32::MAX));
        assert_eq!(loose_u32(b"18446744073709551616"), None);
        assert_eq!(loose_i32(b"2147483648"), Some(i32::MIN));
        assert_eq!(loose_i32(b"4294967295"), Some(-1));
        assert_eq!(loose_i32(b"+4294967396"), Some(100));
        assert_eq!(loose_i32(b"-2147483649"), Some(i32::MAX));
    }

    #[test]
    fn only_whole_decimal_tokens_are_numbers() {
        for bad in [&b""[..], b"+", b"1a", b"a", b" 1", b"1 ", b"--1", b"0x10", b"1\r", b"\xff"] {
            assert_eq!(strict_u32(bad), None, "{bad:?}");
            assert_eq!(strict_u64(bad), None, "{bad:?}");
            assert_eq!(strict_i32(bad), None, "{bad:?}");
            assert_eq!(loose_u32(bad), None, "{bad:?}");
            assert_eq!(loose_i32(bad), None, "{bad:?}");
        }
        assert_eq!((strict_u32(b"-"), strict_u64(b"-"), loose_u32(b"-"), loose_i32(b"-")), (None, None, None, None));
        assert_eq!((strict_i32(b"-"), strict_i64(b"-")), (Some(0), Some(0)));
        assert_eq!(strict_u32(b"-1"), None);
        assert_eq!((strict_u64(b"-1"), strict_u64(b"+1")), (None, None));
        assert_eq!(loose_u32(b"-1"), None);
        assert_eq!(strict_i32(b"+1"), None);
        assert_eq!(loose_i32(b"+1"), Some(1));
        assert_eq!(loose_u32(b"007"), Some(7));
        assert_eq!(strict_u32(b"000000000007"), None);
    }

    #[test]
    fn fractions_are_finite() {
        assert_eq!(decimal_fraction(b"0.25"), Some(0.25));
        for bad in [&b"inf"[..], b"nan", b"", b"x", b"1e999", b"0.00000000000000000000000000000001"] {
            assert_eq!(decimal_fraction(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn decimals_are_written_as_the_standard_library_writes_them() {
        let mut out = Vec::new();
        let mut number = u64::MAX;
        while number > 0 {
            for n in [number, number - 1, number + u64::from(number != u64::MAX)] {
                out.clear();
                push_u64(&mut out, n);
                assert_eq!(out, n.to_string().into_bytes());
                out.clear();
                push_i64(&mut out, n as i64);
                assert_eq!(out, (n as i64).to_string().into_bytes());
            }
            number /= 10;
        }
    }
}
