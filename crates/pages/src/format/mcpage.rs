//! lighttpd's mod_mcpage: three header fields and the body, as the module lays out its strings in memory.
//!
//! ```text
//! content type, NUL │ any byte │ chunked 0/1 │ encoded 0/1 │ [coding, NUL] │ expires 0/1 │ [Expires, NUL]
//!                   │ cache-control 0/1 │ [Cache-Control, NUL] │ body
//! ```

use super::FormatError;
use super::foreign::Foreign;
use super::read::Reader;
use crate::negotiate::{self, Coding, DecodeLimits};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, EXPIRES};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::borrow::Cow;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(super) fn encode(page: &Foreign<'_>, bytes_min: usize) -> Result<Vec<u8>, FormatError> {
    let field = |name: HeaderName| page.headers.get(name).map(HeaderValue::as_bytes);
    // The module stores nothing that has none.
    let kind = field(CONTENT_TYPE).filter(|kind| !kind.is_empty());
    let kind = kind.ok_or(FormatError::DoesNotFit("it has no Content-Type"))?;
    let mut value = Vec::with_capacity(page.body.len() + 128);
    value.extend_from_slice(kind);
    value.extend_from_slice(&[0, 0, 0]);
    let coding = (page.coding != Coding::Identity).then(|| page.coding.token().as_bytes());
    for text in [coding, field(EXPIRES), field(CACHE_CONTROL)] {
        match text {
            Some(text) if !text.is_empty() => {
                value.push(1);
                value.extend_from_slice(text);
                value.push(0);
            }
            _ => value.push(0),
        }
    }
    value.extend_from_slice(&page.body);
    if coding.is_none() && bytes_min > 0 && value.len() > bytes_min {
        value = negotiate::encode(Coding::Gzip, 6, &value).map_err(FormatError::Compression)?;
    }
    Ok(value)
}

pub(super) fn decode(value: &[u8], limits: DecodeLimits) -> Result<Foreign<'_>, FormatError> {
    if value.starts_with(&GZIP_MAGIC) {
        let plain = negotiate::decode(Coding::Gzip, value, limits).map_err(FormatError::Coding)?;
        let (page, body_bytes) = decode_plain(&plain)?;
        let body = Cow::Owned(plain[plain.len() - body_bytes..].to_vec());
        return Ok(Foreign { body, ..page });
    }
    let (page, body_bytes) = decode_plain(value)?;
    Ok(Foreign { body: Cow::Borrowed(&value[value.len() - body_bytes..]), ..page })
}

/// The page without its body, and how many bytes at the value's end are that.
fn decode_plain(value: &[u8]) -> Result<(Foreign<'static>, usize), FormatError> {
    let mut reader = Reader { rest: value };
    let mut headers = HeaderMap::new();
    insert(&mut headers, CONTENT_TYPE, reader.until_nul("content type")?)?;
    reader.u8("content type")?;
    flag(&mut reader, "chunked byte")?;
    let coding = if flag(&mut reader, "encoded byte")? {
        Coding::named(reader.until_nul("coding")?).ok_or(FormatError::Meaningless("coding"))?
    } else {
        Coding::Identity
    };
    for (name, what) in [(EXPIRES, "Expires"), (CACHE_CONTROL, "Cache-Control")] {
        if flag(&mut reader, what)? {
            insert(&mut headers, name, reader.until_nul(what)?)?;
        }
    }
    let page = Foreign { status: StatusCode::OK, headers, coding, body: Cow::Borrowed(&[]) };
    Ok((page, reader.rest.len()))
}

fn flag(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, FormatError> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FormatError::Meaningless(what)),
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) -> Result<(), FormatError> {
    if value.is_empty() {
        return Err(FormatError::Meaningless("header value"));
    }
    headers.insert(name, HeaderValue::from_bytes(value).map_err(|_| FormatError::Meaningless("header value"))?);
    Ok(())
}
