//! Pages as they lie where several hosts share them: a number before the page, by which purges are told from what was
//! fetched after them.

use super::FormatError;
use super::page::{KIND_NUMBERED, finish_head, push_prefix, read_prefix};
use super::read::Reader;

/// Bytes before the page.
pub const NUMBERED_HEAD_BYTES: usize = 20;

/// The value of a page with its number.
///
/// # Errors
/// Never.
pub fn encode_numbered(number: u64, page: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut value = Vec::with_capacity(NUMBERED_HEAD_BYTES + page.len());
    push_prefix(&mut value, KIND_NUMBERED, 0);
    value.extend_from_slice(&number.to_be_bytes());
    let mut value = finish_head(&mut value)?;
    value.extend_from_slice(page);
    Ok(value)
}

/// The number of a page; the page begins at [`NUMBERED_HEAD_BYTES`].
///
/// # Errors
/// The value is none of this kind.
pub fn parse_numbered(value: &[u8]) -> Result<u64, FormatError> {
    let mut reader = Reader { rest: value };
    let prefix = read_prefix(&mut reader)?;
    if prefix.kind != KIND_NUMBERED || prefix.head_bytes != NUMBERED_HEAD_BYTES {
        return Err(FormatError::NotThis("page with a number"));
    }
    reader.u64("number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_before_a_page_and_nothing_else_is_taken_for_one() {
        let value = encode_numbered(0x0102_0304_0506_0708, b"page").expect("never fails");
        assert_eq!(value, b"\x8eNHP\x01\x04\0\0\0\0\0\x14\x01\x02\x03\x04\x05\x06\x07\x08page");
        assert_eq!(parse_numbered(&value).expect("a number"), 0x0102_0304_0506_0708);
        assert_eq!(&value[NUMBERED_HEAD_BYTES..], b"page");
        for bytes in 0..NUMBERED_HEAD_BYTES {
            assert!(parse_numbered(&value[..bytes]).is_err(), "{bytes}");
        }
        assert!(parse_numbered(b"\x8eNHP\x01\x00\0\0\0\0\0\x14\x01\x02\x03\x04\x05\x06\x07\x08page").is_err());
        let error = super::super::parse(&value).expect_err("no page alone").to_string();
        assert_eq!(error, "the value is no page, but one with a number");
    }
}
