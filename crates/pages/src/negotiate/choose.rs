//! Which coding is stored, and which is served.

use super::{Accepted, Coding};
use crate::key::NamePattern;
use crate::rules::directives::{Elements, directives};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue};

/// What a site compresses before it is stored.
#[derive(Clone, Debug)]
pub struct Compression {
    /// With what; [`Coding::Identity`] to compress nothing.
    pub coding: Coding,
    /// How hard, on the coding's own scale (gzip 1 to 9, brotli 0 to 11, zstd 1 to 19).
    pub level: u32,
    /// Smaller bodies are left as they are.
    pub bytes_min: usize,
    /// Media types that are compressed, `*` for any run of characters.
    pub types: Vec<NamePattern>,
}

impl Default for Compression {
    /// gzip at level 6 of texts from 1 KiB on: below that, the answer fits into one packet anyway.
    fn default() -> Self {
        let types = [
            "text/*",
            "application/json",
            "application/*+json",
            "application/javascript",
            "application/xml",
            "application/*+xml",
            "application/manifest+json",
            "application/wasm",
            "application/vnd.ms-fontobject",
            "font/ttf",
            "font/otf",
            "image/svg+xml",
            "image/bmp",
            "image/x-icon",
            "image/vnd.microsoft.icon",
        ];
        Self { coding: Coding::Gzip, level: 6, bytes_min: 1024, types: types.map(NamePattern::new).into() }
    }
}

/// The coding of a response: `None` when it has one that is not known, or several, and must be served as it is.
#[must_use]
pub fn coding_of(response: &HeaderMap) -> Option<Coding> {
    let mut codings =
        response.get_all(CONTENT_ENCODING).iter().flat_map(|line| Elements::of(line.as_bytes())).map(Coding::named);
    match (codings.next(), codings.next()) {
        (None, _) => Some(Coding::Identity),
        (Some(coding), None) => coding,
        (Some(_), Some(_)) => None,
    }
}

/// The coding in which a response that arrived without one is to be stored, if not as it is: its type and size are worth
/// it, it is whole, and its `Cache-Control` has no `no-transform` (RFC 9111, 5.2.2.6). Its `ETag` is then to be weakened
/// ([`weaken_etag`]).
#[must_use]
pub fn to_be_compressed(response: &HeaderMap, body_bytes: usize, settings: &Compression) -> Option<Coding> {
    let kept = settings.coding == Coding::Identity
        || body_bytes < settings.bytes_min
        || coding_of(response) != Some(Coding::Identity)
        || response.contains_key(CONTENT_RANGE)
        || directives(response, &CACHE_CONTROL).any(|directive| directive.is("no-transform"));
    if kept {
        return None;
    }
    let kind = response.get(CONTENT_TYPE)?.as_bytes().split(|&byte| byte == b';').next()?;
    let kind = kind.trim_ascii().to_ascii_lowercase();
    settings.types.iter().any(|pattern| pattern.matches(&kind)).then_some(settings.coding)
}

/// How a stored body becomes what a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// As it is stored, with that `Content-Encoding` if any.
    AsStored,
    /// Undone, without `Content-Encoding` and with a weakened `ETag`.
    Decoded,
}

/// How a body stored in this coding is served. A client that takes neither that nor identity gets identity, which
/// RFC 9110, 12.5.3 prefers to a 406.
#[must_use]
pub fn serve(stored: Coding, accepted: &Accepted) -> Serve {
    if stored == Coding::Identity || accepted.takes(stored) { Serve::AsStored } else { Serve::Decoded }
}

/// Makes the `ETag` a weak one, as it must be when the same one stands for several codings (RFC 9110, 8.8.3.3).
pub fn weaken_etag(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG) else { return };
    if tag.as_bytes().first() == Some(&b'"')
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
    {
        headers.insert(ETAG, weak);
    }
}

/// Says to caches further on that another client may get another coding: adds `Accept-Encoding` to `Vary`.
pub fn add_vary(headers: &mut HeaderMap) {
    let names = headers.get_all(VARY).iter().flat_map(|line| Elements::of(line.as_bytes()));
    let covers = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    if !names.into_iter().any(covers) {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Accepted, Coding, Compression, Serve, add_vary, coding_of, serve, to_be_compressed, weaken_etag};
    use crate::testing::headers;

    #[test]
    fn texts_of_some_size_are_compressed_unless_forbidden() {
        let html = ("content-type", "Text/HTML; charset=utf-8");
        for (response, bytes, expected) in [
            (&[html][..], 2000, true),
            (&[html], 1023, false),
            (&[("content-type", "image/svg+xml")], 2000, true),
            (&[("content-type", "application/atom+xml")], 2000, true),
            (&[("content-type", "image/png")], 2000, false),
            (&[], 2000, false),
            (&[html, ("content-encoding", "br")], 2000, false),
            (&[html, ("content-encoding", "identity")], 2000, true),
            (&[html, ("cache-control", "max-age=1, No-Transform")], 2000, false),
            (&[html, ("content-range", "bytes 0-1999/5000")], 2000, false),
        ] {
            let coding = to_be_compressed(&headers(response), bytes, &Compression::default());
            assert_eq!(coding, expected.then_some(Coding::Gzip), "{response:?} {bytes}");
        }
        let off = Compression { coding: Coding::Identity, ..Compression::default() };
        assert_eq!(to_be_compressed(&headers(&[html]), 2000, &off), None);
    }

    #[test]
    fn the_coding_of_a_response_is_known_or_left_alone() {
        for (lines, expected) in [
            (&[][..], Some(Coding::Identity)),
            (&["gzip"], Some(Coding::Gzip)),
            (&["BR"], Some(Coding::Brotli)),
            (&["zstd"], Some(Coding::Zstd)),
            (&["compress"], None),
            (&["gzip, br"], None),
            (&["gzip", "gzip"], None),
        ] {
            let response = headers(&lines.iter().map(|&line| ("content-encoding", line)).collect::<Vec<_>>());
            assert_eq!(coding_of(&response), expected, "{lines:?}");
        }
    }

    #[test]
    fn who_takes_the_stored_coding_gets_it() {
        for (stored, accept, expected) in [
            (Coding::Gzip, "gzip, br", Serve::AsStored),
            (Coding::Gzip, "gzip;q=0.1, identity", Serve::AsStored),
            (Coding::Gzip, "br", Serve::Decoded),
            (Coding::Gzip, "gzip;q=0", Serve::Decoded),
            (Coding::Zstd, "*", Serve::AsStored),
            (Coding::Brotli, "*;q=0", Serve::Decoded),
            (Coding::Identity, "gzip, identity;q=0", Serve::AsStored),
        ] {
            let accepted = Accepted::of(&headers(&[("accept-encoding", accept)]));
            assert_eq!(serve(stored, &accepted), expected, "{stored:?} {accept}");
        }
    }

    #[test]
    fn a_tag_of_several_codings_is_weak_and_vary_says_why() {
        for (before, after) in [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\""), ("bare", "bare")] {
            let mut response = headers(&[("etag", before)]);
            weaken_etag(&mut response);
            assert_eq!(response, headers(&[("etag", after)]));
        }
        for (before, after) in [
            (&[][..], &["accept-encoding"][..]),
            (&["cookie"], &["cookie", "accept-encoding"]),
            (&["cookie, Accept-Encoding"], &["cookie, Accept-Encoding"]),
            (&["*"], &["*"]),
        ] {
            let vary = |lines: &[&'static str]| headers(&lines.iter().map(|&line| ("vary", line)).collect::<Vec<_>>());
            let mut response = vary(before);
            add_vary(&mut response);
            assert_eq!(response, vary(after));
        }
    }
}
