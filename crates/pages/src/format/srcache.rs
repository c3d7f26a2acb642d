//! OpenResty's srcache: a response as HTTP/1.1 has it.

use super::FormatError;
use super::foreign::Foreign;
use crate::negotiate::{Coding, coding_of};
use crate::rules::fields::strip_hop_by_hop;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::borrow::Cow;

const FORM: &str = "response in srcache's form";
const ALLOW_RANGES: &str = "x-srcache-allow-ranges";
const FIELDS_MAX: usize = 200;

/// srcache stores no response with a `Content-Encoding`, and hides what belongs to the connection, and cookies.
pub(super) fn encode(page: &Foreign<'_>, allow_ranges: bool) -> Result<Vec<u8>, FormatError> {
    if page.coding != Coding::Identity {
        return Err(FormatError::DoesNotFit("its coding must be identity"));
    }
    let mut headers = page.headers.clone();
    strip_hop_by_hop(&mut headers);
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, SET_COOKIE] {
        headers.remove(name);
    }
    headers.remove(ALLOW_RANGES);
    let reason = page.status.canonical_reason().unwrap_or("Unknown");
    let mut value = format!("HTTP/1.1 {} {reason}\r\n", page.status.as_u16()).into_bytes();
    let mut push = |name: &str, field: &[u8]| {
        value.extend_from_slice(name.as_bytes());
        value.extend_from_slice(b": ");
        value.extend_from_slice(field);
        value.extend_from_slice(b"\r\n");
    };
    for (name, capital) in [(CONTENT_TYPE, "Content-Type"), (LAST_MODIFIED, "Last-Modified")] {
        if let Some(field) = headers.remove(name) {
            push(capital, field.as_bytes());
        }
    }
    if allow_ranges {
        push("X-SRCache-Allow-Ranges", b"1");
    }
    for (name, field) in &headers {
        push(name.as_str(), field.as_bytes());
    }
    value.extend_from_slice(b"\r\n");
    value.extend_from_slice(&page.body);
    Ok(value)
}

pub(super) fn decode(value: &[u8]) -> Result<Foreign<'_>, FormatError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let head_bytes = match response.parse(value) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Err(FormatError::Short("header")),
        Err(_) => return Err(FormatError::NotThis(FORM)),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(FormatError::Meaningless("status"))?;
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for field in response.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| FormatError::NotThis(FORM))?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| FormatError::NotThis(FORM))?;
        headers.append(name, value);
    }
    let coding = coding_of(&headers).ok_or(FormatError::Meaningless("coding"))?;
    strip_hop_by_hop(&mut headers);
    for name in [CONTENT_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers.remove(ALLOW_RANGES);
    Ok(Foreign { status, headers, coding, body: Cow::Borrowed(&value[head_bytes..]) })
}
