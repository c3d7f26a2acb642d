//! Nuthatch's own form. `docs/pages-formats.md` has the table of its bytes; all numbers are big-endian.

use super::FormatError;
use super::read::Reader;
use crate::negotiate::Coding;
use crate::rules::{Flags, Policy};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// What every value begins with. No text, no gzip and no HTTP begins like this.
pub const MAGIC: [u8; 4] = *b"\x8ENHP";

/// The version of the form that is written, and the only one that is read.
pub const VERSION: u8 = 1;

const KIND_PAGE: u8 = 0;
const KIND_VARIANTS: u8 = 1;
pub(super) const KIND_CHUNKS: u8 = 2;
pub(super) const KIND_CHUNK: u8 = 3;
pub(super) const KIND_NUMBERED: u8 = 4;

/// `plain_bytes` of a page for which it is not known.
const UNKNOWN_BYTES: u64 = u64::MAX;

/// What a value holds.
#[derive(Debug)]
pub enum Value<'a> {
    /// A page.
    Page(Page<'a>),
    /// The response varies: which request fields choose a variant. Each set of field names is one way in which responses
    /// of this URL have varied, newest first; a variant is looked for by each.
    Variants(Vec<Vec<HeaderName>>),
}

/// A stored page, in the value it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Its status.
    pub status: StatusCode,
    /// What may be done with it until when.
    pub policy: Policy,
    /// The coding of the body as it is stored.
    pub coding: Coding,
    /// The length of the body without its coding, when that is known.
    pub plain_bytes: Option<u64>,
    /// The secondary key ([`crate::rules::vary::variant`]) of the request it answers; empty when it does not vary.
    pub variant: &'a [u8],
    tags: Lists<'a>,
    headers: Lists<'a>,
    /// The body as it is stored.
    pub body: &'a [u8],
}

/// Runs of counted bytes that have been walked through once.
#[derive(Clone, Copy, Debug)]
struct Lists<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Lists<'a> {
    /// Takes so many times `each` counted runs off a value.
    fn take(reader: &mut Reader<'a>, each: usize, what: &'static str) -> Result<Self, FormatError> {
        let count = usize::from(reader.u16(what)?);
        let from = reader.rest;
        for _ in 0..count * each {
            reader.short_bytes(what)?;
        }
        Ok(Self { count, bytes: &from[..from.len() - reader.rest.len()] })
    }

    fn runs(self) -> impl Iterator<Item = &'a [u8]> {
        let mut reader = Reader { rest: self.bytes };
        std::iter::from_fn(move || reader.short_bytes("list").ok())
    }
}

impl<'a> Page<'a> {
    /// How many tags it has.
    pub fn tag_count(&self) -> usize {
        self.tags.count
    }

    /// Its tags: what else can be forgotten together with it.
    pub fn tags(&self) -> impl Iterator<Item = &'a [u8]> {
        self.tags.runs()
    }

    /// Its header fields, name in lower case and value, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut runs = self.headers.runs();
        std::iter::from_fn(move || Some((runs.next()?, runs.next()?)))
    }

    /// Its header section.
    ///
    /// # Errors
    /// A name or a value is none that HTTP has.
    pub fn headers(&self) -> Result<HeaderMap, FormatError> {
        let mut headers = HeaderMap::with_capacity(self.headers.count);
        for (name, value) in self.fields() {
            let name = HeaderName::from_bytes(name).map_err(|_| FormatError::Meaningless("header name"))?;
            let value = HeaderValue::from_bytes(value).map_err(|_| FormatError::Meaningless("header value"))?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

/// What a stored page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Its status.
    pub status: StatusCode,
    /// What may be done with it until when.
    pub policy: Policy,
    /// The coding of the body.
    pub coding: Coding,
    /// The length of the body without its coding, when that is known.
    pub plain_bytes: Option<u64>,
    /// The secondary key of the request it answers; empty when it does not vary.
    pub variant: &'a [u8],
    /// What else it can be forgotten by.
    pub tags: &'a [&'a [u8]],
    /// Its header section, without what [`crate::rules::fields::stored`] takes out.
    pub headers: &'a HeaderMap,
}

/// The value of a page.
///
/// # Errors
/// More than 65,535 fields or tags, or one of them, or the secondary key, is longer than 65,535 bytes.
pub fn encode_page(parts: &Parts<'_>, body: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut value = page_head(parts, body.len() as u64)?;
    value.extend_from_slice(body);
    Ok(value)
}

/// The value of a page up to its body, which has so many bytes: for bodies that are not in one piece.
///
/// # Errors
/// As [`encode_page`].
pub fn page_head(parts: &Parts<'_>, body_bytes: u64) -> Result<Vec<u8>, FormatError> {
    let mut value = Vec::with_capacity(256 + parts.headers.len() * 48);
    push_prefix(&mut value, KIND_PAGE, parts.coding as u8);
    value.extend_from_slice(&parts.status.as_u16().to_be_bytes());
    value.extend_from_slice(&parts.policy.flags.0.to_be_bytes());
    let Policy { born, fresh_until, while_revalidate_until, if_error_until, keep_until, .. } = parts.policy;
    for moment in [born, fresh_until, while_revalidate_until, if_error_until, keep_until] {
        value.extend_from_slice(&moment.to_be_bytes());
    }
    value.extend_from_slice(&body_bytes.to_be_bytes());
    value.extend_from_slice(&parts.plain_bytes.unwrap_or(UNKNOWN_BYTES).to_be_bytes());
    push_bytes(&mut value, parts.variant, "its secondary key is longer than 65,535 bytes")?;
    push_count(&mut value, parts.tags.len(), "it has more than 65,535 tags")?;
    for tag in parts.tags {
        push_bytes(&mut value, tag, "a tag is longer than 65,535 bytes")?;
    }
    push_count(&mut value, parts.headers.len(), "it has more than 65,535 header fields")?;
    for (name, field) in parts.headers {
        push_bytes(&mut value, name.as_str().as_bytes(), "a header name is longer than 65,535 bytes")?;
        push_bytes(&mut value, field.as_bytes(), "a header value is longer than 65,535 bytes")?;
    }
    finish_head(&mut value)
}

/// The value that stands under a page's key when its responses vary.
///
/// # Errors
/// More than 65,535 sets or names.
pub fn encode_variants(sets: &[Vec<HeaderName>]) -> Result<Vec<u8>, FormatError> {
    let mut value = Vec::with_capacity(64);
    push_prefix(&mut value, KIND_VARIANTS, 0);
    push_count(&mut value, sets.len(), "it has more than 65,535 ways to vary")?;
    for names in sets {
        push_count(&mut value, names.len(), "it varies with more than 65,535 fields")?;
        for name in names {
            push_bytes(&mut value, name.as_str().as_bytes(), "a header name is longer than 65,535 bytes")?;
        }
    }
    finish_head(&mut value)
}

/// Reads a value. Everything but the body is checked; nothing is copied.
///
/// # Errors
/// It is no page or variants of this form and version, or damaged.
pub fn parse(value: &[u8]) -> Result<Value<'_>, FormatError> {
    let mut reader = Reader { rest: value };
    let mut parsed = read_head(&mut reader, value.len() as u64)?;
    if let Value::Page(page) = &mut parsed {
        page.body = reader.rest;
    }
    Ok(parsed)
}

/// Where the body of a value begins that begins with these bytes; at least 12 of them are needed.
///
/// # Errors
/// It is none of this form and version.
pub fn head_bytes(value: &[u8]) -> Result<usize, FormatError> {
    Ok(read_prefix(&mut Reader { rest: value })?.head_bytes)
}

/// Reads the head of a value that is not in one piece: its first [`head_bytes`], and the length of the whole. The page's
/// body is empty.
///
/// # Errors
/// As [`parse`].
pub fn parse_head(head: &[u8], value_bytes: u64) -> Result<Value<'_>, FormatError> {
    let mut reader = Reader { rest: head };
    let parsed = read_head(&mut reader, value_bytes)?;
    if reader.rest.is_empty() { Ok(parsed) } else { Err(FormatError::Long) }
}

/// What every value begins with.
pub(super) struct Prefix {
    pub(super) kind: u8,
    coding: u8,
    pub(super) head_bytes: usize,
}

pub(super) fn read_prefix(reader: &mut Reader<'_>) -> Result<Prefix, FormatError> {
    if reader.array("head").ok() != Some(MAGIC) {
        return Err(FormatError::NotThis("page of Nuthatch's"));
    }
    match reader.u8("version")? {
        VERSION => {}
        other => return Err(FormatError::Version(other)),
    }
    let (kind, coding) = (reader.u8("kind")?, reader.u8("coding")?);
    if reader.u8("reserved byte")? != 0 {
        return Err(FormatError::Meaningless("reserved byte"));
    }
    if kind > KIND_NUMBERED {
        return Err(FormatError::Meaningless("kind"));
    }
    if kind != KIND_PAGE && coding != 0 {
        return Err(FormatError::Meaningless("coding"));
    }
    Ok(Prefix { kind, coding, head_bytes: reader.u32("head length")? as usize })
}

/// Reads a head, leaving the body, and checks the lengths in it against each other and the value's.
fn read_head<'a>(reader: &mut Reader<'a>, value_bytes: u64) -> Result<Value<'a>, FormatError> {
    let before = reader.rest.len();
    let prefix = read_prefix(reader)?;
    let (parsed, body_bytes) = match prefix.kind {
        KIND_PAGE => {
            let (page, body_bytes) = read_page(reader, prefix.coding)?;
            (Value::Page(page), body_bytes)
        }
        KIND_VARIANTS => (Value::Variants(read_variants(reader)?), 0),
        KIND_NUMBERED => return Err(FormatError::NotThis("page, but one with a number")),
        _ => return Err(FormatError::NotThis("page, but a chunk of one")),
    };
    let head_bytes = before - reader.rest.len();
    if prefix.head_bytes != head_bytes {
        return Err(FormatError::Meaningless("head length"));
    }
    match value_bytes.checked_sub(head_bytes as u64) {
        Some(rest) if rest == body_bytes => Ok(parsed),
        Some(rest) if rest > body_bytes => Err(FormatError::Long),
        _ => Err(FormatError::Short("body")),
    }
}

/// A page without its body, and that one's length.
fn read_page<'a>(reader: &mut Reader<'a>, coding: u8) -> Result<(Page<'a>, u64), FormatError> {
    let coding = Coding::ALL.into_iter().find(|known| *known as u8 == coding);
    let coding = coding.ok_or(FormatError::Meaningless("coding"))?;
    let status = StatusCode::from_u16(reader.u16("status")?).map_err(|_| FormatError::Meaningless("status"))?;
    let flags = Flags(reader.u16("flags")?);
    let mut moment = || reader.i64("policy");
    let policy = Policy {
        born: moment()?,
        fresh_until: moment()?,
        while_revalidate_until: moment()?,
        if_error_until: moment()?,
        keep_until: moment()?,
        flags,
    };
    let body_bytes = reader.u64("body length")?;
    let plain_bytes = Some(reader.u64("plain length")?).filter(|&bytes| bytes != UNKNOWN_BYTES);
    let variant = reader.short_bytes("secondary key")?;
    let tags = Lists::take(reader, 1, "tags")?;
    let headers = Lists::take(reader, 2, "header")?;
    Ok((Page { status, policy, coding, plain_bytes, variant, tags, headers, body: &[] }, body_bytes))
}

fn read_variants(reader: &mut Reader<'_>) -> Result<Vec<Vec<HeaderName>>, FormatError> {
    let mut sets = Vec::new();
    for _ in 0..reader.u16("ways to vary")? {
        let mut names = Vec::new();
        for _ in 0..reader.u16("field names")? {
            let name = reader.short_bytes("field names")?;
            names.push(HeaderName::from_bytes(name).map_err(|_| FormatError::Meaningless("field name"))?);
        }
        sets.push(names);
    }
    Ok(sets)
}

pub(super) fn push_prefix(value: &mut Vec<u8>, kind: u8, coding: u8) {
    value.extend_from_slice(&MAGIC);
    value.extend_from_slice(&[VERSION, kind, coding, 0]);
    // The head's length, when it is known.
    value.extend_from_slice(&[0; 4]);
}

pub(super) fn finish_head(value: &mut Vec<u8>) -> Result<Vec<u8>, FormatError> {
    let bytes = u32::try_from(value.len()).map_err(|_| FormatError::DoesNotFit("its head is longer than 4 GiB"))?;
    value[8..12].copy_from_slice(&bytes.to_be_bytes());
    Ok(std::mem::take(value))
}

fn push_count(value: &mut Vec<u8>, count: usize, why: &'static str) -> Result<(), FormatError> {
    let count = u16::try_from(count).map_err(|_| FormatError::DoesNotFit(why))?;
    value.extend_from_slice(&count.to_be_bytes());
    Ok(())
}

fn push_bytes(value: &mut Vec<u8>, bytes: &[u8], why: &'static str) -> Result<(), FormatError> {
    push_count(value, bytes.len(), why)?;
    value.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Coding, Flags, FormatError, Page, Parts, Policy, Value};
    use super::{encode_page, encode_variants, head_bytes, parse, parse_head};
    use crate::testing::headers;
    use http::{HeaderName, StatusCode};
    use proptest::prelude::*;

    fn page(value: &[u8]) -> Page<'_> {
        match parse(value) {
            Ok(Value::Page(page)) => page,
            other => panic!("{other:?}"),
        }
    }

    fn sample() -> Vec<u8> {
        let policy = Policy {
            born: 1,
            fresh_until: 2,
            while_revalidate_until: 3,
            if_error_until: 4,
            keep_until: -5,
            flags: Flags::HEURISTIC,
        };
        let headers = headers(&[("etag", "\"a\""), ("x", "1"), ("x", "2")]);
        let parts = Parts {
            status: StatusCode::OK,
            policy,
            coding: Coding::Gzip,
            plain_bytes: Some(9),
            variant: b"foo:1\n",
            tags: &[b"t1", b""],
            headers: &headers,
        };
        encode_page(&parts, b"body").expect("it fits")
    }

    /// The table of `docs/pages-formats.md`, byte for byte: other programs rely on it.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        let mut expected = b"\x8ENHP\x01\x00\x01\x00".to_vec();
        expected.extend_from_slice(&114u32.to_be_bytes());
        expected.extend_from_slice(b"\x00\xC8\x00\x04");
        for moment in [1i64, 2, 3, 4, -5] {
            expected.extend_from_slice(&moment.to_be_bytes());
        }
        expected.extend_from_slice(&4u64.to_be_bytes());
        expected.extend_from_slice(&9u64.to_be_bytes());
        expected.extend_from_slice(b"\x00\x06foo:1\n");
        expected.extend_from_slice(b"\x00\x02\x00\x02t1\x00\x00");
        expected.extend_from_slice(b"\x00\x03\x00\x04etag\x00\x03\"a\"\x00\x01x\x00\x011\x00\x01x\x00\x012");
        let head_bytes = expected.len() as u32;
        expected[8..12].copy_from_slice(&head_bytes.to_be_bytes());
        expected.extend_from_slice(b"body");
        assert_eq!(sample().escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let value = sample();
        let page = page(&value);
        assert_eq!((page.status, page.coding, page.plain_bytes), (StatusCode::OK, Coding::Gzip, Some(9)));
        assert_eq!((page.variant, page.body, page.policy.keep_until), (&b"foo:1\n"[..], &b"body"[..], -5));
        assert_eq!(page.tags().collect::<Vec<_>>(), [&b"t1"[..], b""]);
        assert_eq!(page.headers().expect("a header"), headers(&[("etag", "\"a\""), ("x", "1"), ("x", "2")]));
    }

    #[test]
    fn the_ways_to_vary_are_read_as_they_were_written() {
        let sets = vec![vec![HeaderName::from_static("foo"), HeaderName::from_static("bar")], vec![]];
        let value = encode_variants(&sets).expect("it fits");
        assert!(matches!(parse(&value), Ok(Value::Variants(read)) if read == sets));
    }

    #[test]
    fn a_damaged_value_is_refused_with_a_reason() {
        let whole = sample();
        let with = |at: usize, byte: u8| {
            let mut value = whole.clone();
            value[at] = byte;
            parse(&value).expect_err("damaged").to_string()
        };
        assert_eq!(with(0, b'<'), "the value is no page of Nuthatch's");
        assert_eq!(with(4, 2), "the stored page is of version 2, this program knows 1");
        assert_eq!(with(5, 9), "the stored page's kind has no meaning");
        assert_eq!(with(6, 4), "the stored page's coding has no meaning");
        assert_eq!(with(7, 1), "the stored page's reserved byte has no meaning");
        assert_eq!(with(11, 0), "the stored page's head length has no meaning");
        assert_eq!(with(12, 0xff), "the stored page's status has no meaning");
        assert_eq!(with(63, 5), "the stored page ends within its body");
        assert_eq!(with(63, 3), "the stored page goes on behind its end");
        for bytes in 0..whole.len() {
            assert!(matches!(parse(&whole[..bytes]), Err(FormatError::Short(_) | FormatError::NotThis(_))), "{bytes}");
        }
        let longer = [&whole[..], b"x"].concat();
        assert!(matches!(parse(&longer), Err(FormatError::Long)));
    }

    #[test]
    fn a_head_is_read_without_the_body() {
        let whole = sample();
        let bytes = head_bytes(&whole[..12]).expect("a prefix");
        assert_eq!(&whole[bytes..], b"body");
        let Ok(Value::Page(read)) = parse_head(&whole[..bytes], whole.len() as u64) else { panic!("a page") };
        assert_eq!((read.policy, read.body), (page(&whole).policy, &b""[..]));
        assert!(matches!(parse_head(&whole[..bytes], whole.len() as u64 - 1), Err(FormatError::Short("body"))));
        assert!(matches!(parse_head(&whole[..bytes], whole.len() as u64 + 1), Err(FormatError::Long)));
        assert!(matches!(parse_head(&whole, whole.len() as u64), Err(FormatError::Long)));
        assert!(head_bytes(&whole[..11]).is_err());
    }

    #[test]
    fn what_is_too_long_does_not_fit() {
        let long = "v".repeat(65_536);
        let headers = headers(&[("x", &long)]);
        let value = sample();
        let Page { status, policy, coding, .. } = page(&value);
        let parts = Parts { status, policy, coding, plain_bytes: None, variant: b"", tags: &[], headers: &headers };
        let error = encode_page(&parts, b"").expect_err("too long").to_string();
        assert_eq!(error, "the page cannot be stored in this form: a header value is longer than 65,535 bytes");
    }

    proptest! {
        #[test]
        fn any_page_survives(
            status in 100u16..1000,
            moments in any::<[i64; 5]>(),
            flags in any::<u16>(),
            coding in 0usize..4,
            plain in proptest::option::of(0..u64::MAX),
            variant in proptest::collection::vec(any::<u8>(), 0..50),
            tags in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9),
            fields in proptest::collection::vec(("[a-z-]{1,12}", "[ -~\u{a0}-\u{ff}]{0,40}"), 0..20),
            body in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let fields: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let headers = headers(&fields);
            let tags: Vec<&[u8]> = tags.iter().map(Vec::as_slice).collect();
            let [born, fresh_until, while_revalidate_until, if_error_until, keep_until] = moments;
            let policy =
                Policy { born, fresh_until, while_revalidate_until, if_error_until, keep_until, flags: Flags(flags) };
            let status = StatusCode::from_u16(status).expect("in range");
            let parts = Parts {
                status, policy, coding: Coding::ALL[coding], plain_bytes: plain, variant: &variant, tags: &tags,
                headers: &headers,
            };
            let value = encode_page(&parts, &body).expect("it fits");
            let page = page(&value);
            prop_assert_eq!(page.status, status);
            prop_assert_eq!(page.policy, policy);
            prop_assert_eq!(page.coding, Coding::ALL[coding]);
            prop_assert_eq!(page.plain_bytes, plain);
            prop_assert_eq!(page.variant, &variant[..]);
            prop_assert_eq!(page.tags().collect::<Vec<_>>(), tags);
            prop_assert_eq!(page.headers().expect("a header"), headers);
            prop_assert_eq!(page.body, &body[..]);
        }
    }
}
