//! Content codings (RFC 9110, 8.4 and 12.5.3): one is stored, whoever accepts it gets it as it is, and for the others it
//! is undone.
//!
//! A page is stored in one coding only, so `Accept-Encoding` multiplies nothing. The origin is asked with
//! [`UPSTREAM_ACCEPT`], whatever the client sent. What never happens here: a body that is undone past a limit.

mod accept;
mod choose;
mod decode;
mod encode;

pub use accept::Accepted;
pub use choose::{Compression, Serve, add_vary, coding_of, serve, to_be_compressed, weaken_etag};
pub use decode::{DecodeError, DecodeLimits, Decoder, decode};
pub use encode::{EncodeError, Encoder, encode};

/// What the origin is asked with: nearly every client takes gzip, so what comes can be served as it is, and everything
/// that reads pages from memcached knows it.
pub const UPSTREAM_ACCEPT: &str = "gzip";

/// The content codings that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Coding {
    /// None.
    #[default]
    Identity,
    /// `gzip` (RFC 1952), also called `x-gzip`.
    Gzip,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878, windows of RFC 9659).
    Zstd,
}

impl Coding {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Gzip, Self::Brotli, Self::Zstd];

    /// Its name in `Content-Encoding`.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// The coding of this name, in any case.
    #[must_use]
    pub fn named(token: &[u8]) -> Option<Self> {
        if token.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| token.eq_ignore_ascii_case(coding.token().as_bytes()))
    }

    /// The `Accept-Encoding` for these, each a little less wanted than the one before; none for none.
    #[must_use]
    pub fn list(codings: &[Self]) -> Option<http::HeaderValue> {
        let weighted = codings.iter().enumerate().map(|(at, coding)| match at {
            0 => coding.token().to_owned(),
            _ => format!("{};q=0.{}", coding.token(), 10 - at.min(9)),
        });
        let list = weighted.collect::<Vec<_>>().join(", ");
        http::HeaderValue::try_from(list).ok().filter(|_| !codings.is_empty())
    }
}
