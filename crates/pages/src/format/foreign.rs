//! The forms in which other programs keep pages in memcached, both directions.
//!
//! They hold less than a page: no policy, no variants, mostly few headers. A page read from one is good for as long as its
//! item lasts; whoever wrote it set that time.

use super::{FormatError, mcpage, srcache};
use crate::negotiate::{Coding, DecodeLimits};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::borrow::Cow;

/// A form, with what its programs have configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The body and nothing else: nginx's `memcached_pass`, which Drupal's memcache_storage writes for.
    Raw {
        /// nginx's `memcached_gzip_flag`: this bit of an item's flags says that the body is gzip; 0 for none.
        gzip_flag: u32,
        /// The `Content-Type` of pages that are read; nginx takes it from the location.
        content_type: HeaderValue,
    },
    /// A response as HTTP has it: OpenResty's srcache.
    Srcache {
        /// srcache's `srcache_store_ranges`: whether `X-SRCache-Allow-Ranges: 1` is written.
        allow_ranges: bool,
    },
    /// lighttpd's mod_mcpage.
    Mcpage {
        /// `mcpage.memcached-minsize`, but in bytes: longer values are compressed as a whole; 0 for none.
        bytes_min: usize,
        /// How far a compressed value may grow when it is read.
        limits: DecodeLimits,
    },
}

/// A page in a foreign form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its header section, without `Content-Encoding` and `Content-Length`.
    pub headers: HeaderMap,
    /// The coding of the body.
    pub coding: Coding,
    /// The body.
    pub body: Cow<'a, [u8]>,
}

impl Form {
    /// Bodies alone; none when the type is no field value.
    #[must_use]
    pub fn raw(gzip_flag: u32, content_type: &str) -> Option<Form> {
        Some(Form::Raw { gzip_flag, content_type: HeaderValue::from_str(content_type).ok()? })
    }

    /// The item flags and the value for a page.
    ///
    /// # Errors
    /// The form has no room for the page's status or coding; undo the coding first, or do not store it.
    pub fn encode(&self, page: &Foreign<'_>) -> Result<(u32, Vec<u8>), FormatError> {
        match self {
            Self::Raw { .. } | Self::Mcpage { .. } if page.status != StatusCode::OK => {
                Err(FormatError::DoesNotFit("only pages with status 200 can"))
            }
            Self::Raw { gzip_flag, .. } => match page.coding {
                Coding::Identity => Ok((0, page.body.to_vec())),
                Coding::Gzip if *gzip_flag != 0 => Ok((*gzip_flag, page.body.to_vec())),
                _ => Err(FormatError::DoesNotFit("its coding must be identity, or gzip where a gzip flag is set")),
            },
            Self::Srcache { allow_ranges } => Ok((0, srcache::encode(page, *allow_ranges)?)),
            Self::Mcpage { bytes_min, .. } => Ok((0, mcpage::encode(page, *bytes_min)?)),
        }
    }

    /// The page of an item.
    ///
    /// # Errors
    /// The value is none of this form: treat it as a miss.
    pub fn decode<'a>(&self, flags: u32, value: &'a [u8]) -> Result<Foreign<'a>, FormatError> {
        match self {
            Self::Raw { gzip_flag, content_type } => {
                let coding = match flags {
                    0 => Coding::Identity,
                    flags if flags == *gzip_flag => Coding::Gzip,
                    // Set by a client library: a serialised or compressed value, and no page.
                    _ => return Err(FormatError::Meaningless("item flags")),
                };
                let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type.clone())]);
                Ok(Foreign { status: StatusCode::OK, headers, coding, body: Cow::Borrowed(value) })
            }
            Self::Srcache { .. } => srcache::decode(value),
            Self::Mcpage { limits, .. } => mcpage::decode(value, *limits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Coding, DecodeLimits, Foreign, Form, HeaderValue, StatusCode};
    use crate::testing::headers;
    use proptest::prelude::*;
    use std::borrow::Cow;

    fn foreign<'a>(fields: &[(&str, &str)], coding: Coding, body: &'a [u8]) -> Foreign<'a> {
        Foreign { status: StatusCode::OK, headers: headers(fields), coding, body: Cow::Borrowed(body) }
    }

    fn raw() -> Form {
        Form::Raw { gzip_flag: 2, content_type: HeaderValue::from_static("text/html") }
    }

    fn mcpage(bytes_min: usize) -> Form {
        Form::Mcpage { bytes_min, limits: DecodeLimits::default() }
    }

    const SRCACHE: Form = Form::Srcache { allow_ranges: true };

    #[test]
    fn a_raw_page_is_its_body_and_a_flag() {
        let plain = foreign(&[("content-type", "text/html")], Coding::Identity, b"<html>");
        let gzip = foreign(&[("content-type", "text/html")], Coding::Gzip, b"\x1f\x8b...");
        for (page, flags) in [(&plain, 0), (&gzip, 2)] {
            let (written, value) = raw().encode(page).expect("it fits");
            assert_eq!((written, &value[..]), (flags, &page.body[..]));
            assert_eq!(&raw().decode(flags, &value).expect("a page"), page);
        }
        let error = raw().decode(1, b"s:5:\"hello\";").expect_err("serialised").to_string();
        assert_eq!(error, "the stored page's item flags has no meaning");
        let brotli = foreign(&[], Coding::Brotli, b"x");
        let error = raw().encode(&brotli).expect_err("no flag for it").to_string();
        assert!(error.ends_with("its coding must be identity, or gzip where a gzip flag is set"), "{error}");
        let gone = Foreign { status: StatusCode::GONE, ..plain };
        let error = raw().encode(&gone).expect_err("no room for it").to_string();
        assert_eq!(error, "the page cannot be stored in this form: only pages with status 200 can");
    }

    #[test]
    fn a_srcache_page_is_a_response() {
        let fields = [
            ("content-type", "text/html"),
            ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT"),
            ("x-a", "1"),
            ("set-cookie", "a=b"),
            ("connection", "close"),
            ("content-length", "6"),
        ];
        let page = foreign(&fields, Coding::Identity, b"<html>");
        let (flags, value) = SRCACHE.encode(&page).expect("it fits");
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nLast-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\n\
                        X-SRCache-Allow-Ranges: 1\r\nx-a: 1\r\n\r\n<html>";
        assert_eq!((flags, String::from_utf8_lossy(&value)), (0, expected.into()));
        let read = SRCACHE.decode(0, &value).expect("a page");
        assert_eq!(read, foreign(&fields[..3], Coding::Identity, b"<html>"));
    }

    #[test]
    fn a_srcache_page_of_another_writer_is_read() {
        let value = b"HTTP/1.1 404 Not Found\r\nContent-Type:text/plain\r\nContent-Encoding: gzip\r\nDate:\t x \r\n\r\n\r\n\r\nx";
        let page = SRCACHE.decode(7, value).expect("a page");
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        assert_eq!(page.headers, headers(&[("content-type", "text/plain"), ("date", "x")]));
        assert_eq!((page.coding, &page.body[..]), (Coding::Gzip, &b"\r\n\r\nx"[..]));
        for (wrong, why) in [
            (&b"<html>"[..], "the value is no response in srcache's form"),
            (b"", "the stored page ends within its header"),
            (b"HTTP/1.1 200 OK\r\nA: b\r\n", "the stored page ends within its header"),
            (b"HTTP/1.1 099 x\r\n\r\n", "the stored page's status has no meaning"),
            (b"HTTP/1.1 200 OK\r\nA\r\n\r\n", "the value is no response in srcache's form"),
            (b"HTTP/1.1 200 OK\r\nContent-Encoding: compress\r\n\r\n", "the stored page's coding has no meaning"),
        ] {
            assert_eq!(SRCACHE.decode(0, wrong).expect_err("no page").to_string(), why);
        }
    }

    #[test]
    fn a_mcpage_value_is_laid_out_as_the_module_does() {
        let fields = [("content-type", "text/html"), ("expires", "never"), ("cache-control", "public"), ("x", "lost")];
        for (fields, coding, expected) in [
            (&fields[..1], Coding::Identity, &b"text/html\0\0\0\0\0\0BODY"[..]),
            (&fields[..], Coding::Identity, b"text/html\0\0\0\0\x01never\0\x01public\0BODY"),
            (&fields[..2], Coding::Gzip, b"text/html\0\0\0\x01gzip\0\x01never\0\0BODY"),
        ] {
            let page = foreign(fields, coding, b"BODY");
            let (flags, value) = mcpage(0).encode(&page).expect("it fits");
            assert_eq!((flags, value.escape_ascii().to_string()), (0, expected.escape_ascii().to_string()));
            let read = mcpage(0).decode(0, &value).expect("a page");
            assert_eq!(read, foreign(&fields[..fields.len().min(3)], coding, b"BODY"));
        }
        // The byte behind the content type is whatever was in memory, and the page may have come in chunks.
        let read = mcpage(0).decode(0, b"text/html\0\xa5\x01\0\0\0BODY").expect("a page");
        assert_eq!(read, foreign(&fields[..1], Coding::Identity, b"BODY"));
    }

    #[test]
    fn a_long_mcpage_value_is_compressed_as_a_whole() {
        let body = b"BODY".repeat(1000);
        let page = foreign(&[("content-type", "text/html")], Coding::Identity, &body);
        let (_, value) = mcpage(1024).encode(&page).expect("it fits");
        assert!(value.starts_with(b"\x1f\x8b") && value.len() < 200);
        assert_eq!(mcpage(1024).decode(0, &value).expect("a page"), page);
        let tight = Form::Mcpage { bytes_min: 0, limits: DecodeLimits { bytes_max: 1000, ratio_max: 200 } };
        let error = tight.decode(0, &value).expect_err("too long").to_string();
        assert_eq!(
            error,
            "the stored page cannot be read: a body in gzip grows past 1000 bytes or 200 times its length"
        );
        let already = Foreign { coding: Coding::Gzip, ..page };
        let (_, value) = mcpage(1024).encode(&already).expect("it fits");
        assert!(value.starts_with(b"text/html\0"), "not compressed twice");
    }

    #[test]
    fn a_damaged_mcpage_value_is_refused() {
        let whole = b"text/html\0\0\0\x01gzip\0\x01never\0\x01public\0";
        for bytes in 0..whole.len() {
            assert!(mcpage(0).decode(0, &whole[..bytes]).is_err(), "{bytes}");
        }
        for wrong in [
            &b"\0\0\0\0\0\0x"[..],
            b"a\nb\0\0\0\0\0\0x",
            b"text/html\0\0\x02\0\0\0x",
            b"text/html\0\0\0\x01rot13\0\0\0x",
        ] {
            assert!(mcpage(0).decode(0, wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_page_survives_the_forms_that_fit(
            kind in "[a-z]{1,9}/[a-z]{1,9}",
            expires in proptest::option::of("[!-~]{1,20}"),
            control in proptest::option::of("[!-~]{1,20}"),
            gzip in any::<bool>(),
            body in proptest::collection::vec(any::<u8>(), 0..2000),
            bytes_min in 0usize..2000,
        ) {
            let mut fields = vec![("content-type", kind.as_str())];
            fields.extend(expires.as_deref().map(|value| ("expires", value)));
            fields.extend(control.as_deref().map(|value| ("cache-control", value)));
            let coding = if gzip { Coding::Gzip } else { Coding::Identity };
            let page = foreign(&fields, coding, &body);
            let (flags, value) = mcpage(bytes_min).encode(&page).expect("it fits");
            prop_assert_eq!(&mcpage(0).decode(flags, &value).expect("a page"), &page);
            let plain = Foreign { coding: Coding::Identity, ..page };
            let (flags, value) = SRCACHE.encode(&plain).expect("it fits");
            prop_assert_eq!(&SRCACHE.decode(flags, &value).expect("a page"), &plain);
        }
    }
}
