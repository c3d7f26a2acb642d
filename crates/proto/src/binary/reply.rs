//! Answers to binary requests, appended to a caller's buffer.
//!
//! Owns their layout. Whether an answer is sent at all ([`Request::quiet`](super::Request)) and the value itself are the
//! caller's. Each takes the request's header, whose opcode and opaque the answer repeats.

use super::Status;
use super::header::{Header, MAGIC_RESPONSE};

/// The body of a successful last step of an authentication.
pub const AUTHENTICATED: &[u8] = b"Authenticated";

/// Success with nothing to show but the CAS unique (0 where there is none): storage, deletion, flush, quit, no-op.
#[inline]
pub fn success(out: &mut Vec<u8>, request: &Header, cas: u64) {
    header(out, request, Status::Success, 0, 0, 0, cas);
}

/// A hit: header, flags and, when `key` is given, the key. `value_bytes` of value come next.
#[inline]
pub fn value_header(out: &mut Vec<u8>, request: &Header, key: &[u8], flags: u32, value_bytes: usize, cas: u64) {
    header(out, request, Status::Success, 4, key.len(), value_bytes, cas);
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(key);
}

/// Touch, and nothing but the flags to show.
pub fn touched(out: &mut Vec<u8>, request: &Header, flags: u32, cas: u64) {
    value_header(out, request, b"", flags, 0, cas);
}

/// A miss. With a key (`getk`, `gatk`) the body is that key, without one it is the text.
pub fn miss(out: &mut Vec<u8>, request: &Header, key: &[u8]) {
    if key.is_empty() {
        return error(out, request, Status::KeyNotFound);
    }
    header(out, request, Status::KeyNotFound, 0, key.len(), 0, 0);
    out.extend_from_slice(key);
}

/// An answer that says no, with memcached's text as its body.
pub fn error(out: &mut Vec<u8>, request: &Header, status: Status) {
    let text = status.text();
    header(out, request, status, 0, 0, text.len(), 0);
    out.extend_from_slice(text.as_bytes());
}

/// The number after increment and decrement.
pub fn number(out: &mut Vec<u8>, request: &Header, value: u64, cas: u64) {
    header(out, request, Status::Success, 0, 0, 8, cas);
    out.extend_from_slice(&value.to_be_bytes());
}

/// A body and nothing else: version, mechanisms, [`AUTHENTICATED`], and challenges with [`Status::AuthContinue`].
pub fn body(out: &mut Vec<u8>, request: &Header, status: Status, body: &[u8]) {
    header(out, request, status, 0, 0, body.len(), 0);
    out.extend_from_slice(body);
}

/// One counter; an empty name and value end the list.
pub fn stat(out: &mut Vec<u8>, request: &Header, name: &[u8], value: &[u8]) {
    header(out, request, Status::Success, 0, name.len(), value.len(), 0);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

#[inline]
fn header(
    out: &mut Vec<u8>,
    request: &Header,
    status: Status,
    extras_bytes: u8,
    key_bytes: usize,
    value_bytes: usize,
    cas: u64,
) {
    let header = Header {
        magic: MAGIC_RESPONSE,
        opcode: request.opcode,
        key_bytes: key_bytes as u16,
        extras_bytes,
        data_type: 0,
        status: status.as_wire(),
        body_bytes: (usize::from(extras_bytes) + key_bytes + value_bytes) as u32,
        opaque: request.opaque,
        cas,
    };
    out.extend_from_slice(&header.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Header = Header {
        magic: 0x80,
        opcode: 0x0c,
        key_bytes: 3,
        extras_bytes: 0,
        data_type: 0,
        status: 9,
        body_bytes: 3,
        opaque: 0x0102_0304,
        cas: 77,
    };

    fn written(write: impl Fn(&mut Vec<u8>)) -> (Header, Vec<u8>) {
        let mut out = Vec::new();
        write(&mut out);
        let header = Header::read(&out).unwrap();
        assert_eq!((header.magic, header.opcode, header.opaque), (0x81, 0x0c, 0x0102_0304));
        (header, out.split_off(24))
    }

    #[test]
    fn answers_repeat_opcode_and_opaque_and_never_the_requests_cas() {
        let (header, body) = written(|out| success(out, &REQUEST, 5));
        assert_eq!((header.status, header.cas, header.body_bytes, body.len()), (0, 5, 0, 0));
        let (header, body) = written(|out| error(out, &REQUEST, Status::TooLarge));
        assert_eq!((header.status, header.cas, header.body_bytes, &body[..]), (3, 0, 10, &b"Too large."[..]));
    }

    #[test]
    fn hits_show_flags_then_key_and_announce_the_value() {
        let (header, body) = written(|out| value_header(out, &REQUEST, b"key", 0x0a0b_0c0d, 100, 9));
        assert_eq!((header.extras_bytes, header.key_bytes, header.body_bytes, header.cas), (4, 3, 107, 9));
        assert_eq!(body, b"\x0a\x0b\x0c\x0dkey");
        let (header, body) = written(|out| touched(out, &REQUEST, 1, 9));
        assert_eq!((header.extras_bytes, header.key_bytes, header.body_bytes, &body[..]), (4, 0, 4, &[0, 0, 0, 1][..]));
    }

    #[test]
    fn misses_show_the_key_or_the_text() {
        let (header, body) = written(|out| miss(out, &REQUEST, b"key"));
        assert_eq!((header.status, header.key_bytes, header.body_bytes, &body[..]), (1, 3, 3, &b"key"[..]));
        let (header, body) = written(|out| miss(out, &REQUEST, b""));
        assert_eq!((header.status, header.key_bytes, header.body_bytes, &body[..]), (1, 0, 9, &b"Not found"[..]));
    }

    #[test]
    fn numbers_bodies_and_counters() {
        let (header, body) = written(|out| number(out, &REQUEST, u64::MAX - 1, 4));
        assert_eq!((header.body_bytes, header.cas, body), (8, 4, (u64::MAX - 1).to_be_bytes().to_vec()));
        let (header, text) = written(|out| body_of(out, Status::AuthContinue));
        assert_eq!((header.status, header.body_bytes, &text[..]), (0x21, 9, &b"challenge"[..]));
        let (header, body) = written(|out| stat(out, &REQUEST, b"pid", b"123"));
        assert_eq!((header.key_bytes, header.body_bytes, &body[..]), (3, 6, &b"pid123"[..]));
        let (header, _) = written(|out| stat(out, &REQUEST, b"", b""));
        assert_eq!((header.key_bytes, header.body_bytes), (0, 0));
    }

    fn body_of(out: &mut Vec<u8>, status: Status) {
        body(out, &REQUEST, status, b"challenge");
    }
}
