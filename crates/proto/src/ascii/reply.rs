//! Answers to text commands, appended to a caller's buffer.
//!
//! Owns the text of every answer that says yes; those that say no are [`WireError`](crate::WireError)s.

use crate::num::push_u64;

/// A storage command was carried out.
pub const STORED: &[u8] = b"STORED\r\n";
/// `add`, `replace`, `append`, `prepend`: what must or must not be there is not or is.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// `cas`: changed since it was read.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such item.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// `delete` did.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// `touch` did.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// An operator's command was carried out.
pub const OK: &[u8] = b"OK\r\n";
/// End of values, statistics and dumps.
pub const END: &[u8] = b"END\r\n";
/// `stats reset` did.
pub const RESET: &[u8] = b"RESET\r\n";
/// End of a line and of a value.
pub const CRLF: &[u8] = b"\r\n";

/// `VALUE <key> <flags> <bytes> [<cas unique>]\r\n`; the value and [`CRLF`] come next.
#[inline]
pub fn value_header(out: &mut Vec<u8>, key: &[u8], flags: u32, value_bytes: usize, cas: Option<u64>) {
    // The longest header: three numbers of at most 10, 20 and 20 digits.
    out.reserve(key.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    push_u64(out, u64::from(flags));
    out.push(b' ');
    push_u64(out, value_bytes as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        push_u64(out, cas);
    }
    out.extend_from_slice(CRLF);
}

/// The new number after `incr` and `decr`.
pub fn number(out: &mut Vec<u8>, value: u64) {
    push_u64(out, value);
    out.extend_from_slice(CRLF);
}

/// `STAT <name> <value>\r\n`.
pub fn stat(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name);
    out.push(b' ');
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}

/// `STAT <name> <number>\r\n`.
pub fn stat_u64(out: &mut Vec<u8>, name: &[u8], value: u64) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name);
    out.push(b' ');
    number(out, value);
}

/// `VERSION <text>\r\n`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(CRLF);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = b"before|".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers_are_appended_byte_for_byte() {
        assert_eq!(written(|out| value_header(out, b"key", 0, 5, None)), "before|VALUE key 0 5\r\n");
        assert_eq!(
            written(|out| value_header(out, b"k", u32::MAX, 0, Some(u64::MAX))),
            "before|VALUE k 4294967295 0 18446744073709551615\r\n"
        );
        assert_eq!(written(|out| number(out, 12)), "before|12\r\n");
        assert_eq!(written(|out| stat(out, b"pid", b"1 2")), "before|STAT pid 1 2\r\n");
        assert_eq!(written(|out| stat_u64(out, b"time", 1234)), "before|STAT time 1234\r\n");
        assert_eq!(written(|out| version(out, "1.6.45")), "before|VERSION 1.6.45\r\n");
    }
}
