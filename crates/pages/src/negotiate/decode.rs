//! Undoing a coding, never past a limit.

use super::Coding;
use std::fmt;
use std::io::{self, Write};

/// How far a body may grow when its coding is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// No further than to so many bytes.
    pub bytes_max: u64,
    /// Past the first MiB, to no more than so many times its compressed length.
    pub ratio_max: u64,
}

impl Default for DecodeLimits {
    /// 64 MiB, 200 times: texts shrink to a tenth, tables of zeros to a fiftieth, bombs to a thousandth.
    fn default() -> Self {
        Self { bytes_max: 64 << 20, ratio_max: 200 }
    }
}

/// Below so many bytes no ratio is looked at.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// The largest window of `zstd` as a content coding, 8 MiB (RFC 9659), as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A body's coding could not be undone.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is not what it is said to be, or its end is missing.
    Malformed(Coding, io::Error),
    /// It grows past the limits.
    Grows(Coding, DecodeLimits),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(coding, error) => {
                write!(f, "a body is not the {} it is said to be: {error}", coding.token())
            }
            Self::Grows(coding, limits) => write!(
                f,
                "a body in {} grows past {} bytes or {} times its length",
                coding.token(),
                limits.bytes_max,
                limits.ratio_max
            ),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Undoes the coding of a body that comes in pieces.
pub struct Decoder {
    coding: Coding,
    limits: DecodeLimits,
    read_bytes: u64,
    kind: Kind,
}

enum Kind {
    Identity(Bounded),
    Gzip(Box<flate2::write::MultiGzDecoder<Bounded>>),
    Brotli(Box<brotli::DecompressorWriter<Bounded>>),
    Zstd(zstd::stream::write::Decoder<'static, Bounded>),
}

/// A buffer that takes no more than it may.
#[derive(Default)]
struct Bounded {
    buffer: Vec<u8>,
    written_bytes: u64,
    allowed_bytes: u64,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let written_bytes = self.written_bytes + piece.len() as u64;
        if written_bytes > self.allowed_bytes {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.written_bytes = written_bytes;
        self.buffer.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Decoder {
    /// For a coding.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(coding: Coding, limits: DecodeLimits) -> Result<Self, DecodeError> {
        let sink = Bounded::default();
        let kind = match coding {
            Coding::Identity => Kind::Identity(sink),
            Coding::Gzip => Kind::Gzip(Box::new(flate2::write::MultiGzDecoder::new(sink))),
            Coding::Brotli => Kind::Brotli(Box::new(brotli::DecompressorWriter::new(sink, 4096))),
            Coding::Zstd => {
                let malformed = |error| DecodeError::Malformed(coding, error);
                let mut decoder = zstd::stream::write::Decoder::new(sink).map_err(malformed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(malformed)?;
                Kind::Zstd(decoder)
            }
        };
        Ok(Self { coding, limits, read_bytes: 0, kind })
    }

    /// Takes a piece, and appends what it contains.
    ///
    /// # Errors
    /// The body is malformed, or grows past its limits; the decoder is then of no further use.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.read_bytes += piece.len() as u64;
        let by_ratio = self.read_bytes.saturating_mul(self.limits.ratio_max).max(RATIO_FREE_BYTES);
        self.sink().allowed_bytes = by_ratio.min(self.limits.bytes_max);
        let written = match &mut self.kind {
            Kind::Identity(sink) => sink.write_all(piece),
            Kind::Gzip(decoder) => decoder.write_all(piece),
            Kind::Brotli(decoder) => decoder.write_all(piece),
            Kind::Zstd(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
        };
        self.check(written)?;
        out.append(&mut self.sink().buffer);
        Ok(())
    }

    /// Appends what is left.
    ///
    /// # Errors
    /// The end is missing, or the body grows past its limits.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let ended = match &mut self.kind {
            Kind::Identity(_) => Ok(()),
            Kind::Gzip(decoder) => decoder.try_finish(),
            Kind::Brotli(decoder) => decoder.close(),
            Kind::Zstd(decoder) => decoder.do_finish(),
        };
        self.check(ended)?;
        out.append(&mut self.sink().buffer);
        Ok(())
    }

    fn sink(&mut self) -> &mut Bounded {
        match &mut self.kind {
            Kind::Identity(sink) => sink,
            Kind::Gzip(decoder) => decoder.get_mut(),
            Kind::Brotli(decoder) => decoder.get_mut(),
            Kind::Zstd(decoder) => decoder.get_mut(),
        }
    }

    fn check(&mut self, result: io::Result<()>) -> Result<(), DecodeError> {
        match result {
            _ if self.sink().full => Err(DecodeError::Grows(self.coding, self.limits)),
            Ok(()) => Ok(()),
            Err(error) => Err(DecodeError::Malformed(self.coding, error)),
        }
    }
}

/// Undoes the coding of a whole body.
///
/// # Errors
/// The body is malformed, or grows past its limits.
pub fn decode(coding: Coding, body: &[u8], limits: DecodeLimits) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    let mut decoder = Decoder::new(coding, limits)?;
    decoder.push(body, &mut out)?;
    decoder.finish(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{Coding, DecodeError, DecodeLimits, Decoder, decode};
    use crate::negotiate::{Encoder, encode};
    use proptest::prelude::*;

    fn pieces(coding: Coding, level: u32, body: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(coding, level).expect("memory");
        body.chunks(step).for_each(|piece| encoder.push(piece, &mut out).expect("memory"));
        encoder.finish(&mut out).expect("memory");
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_compressed_in_any_pieces_is_undone_in_any_pieces(
            body in proptest::collection::vec(0u8..4, 0..5000),
            level in 0u32..20,
            step in 1usize..600,
            read_step in 1usize..200,
        ) {
            for coding in Coding::ALL {
                let compressed = pieces(coding, level, &body, step);
                let mut out = Vec::new();
                let mut decoder = Decoder::new(coding, DecodeLimits::default()).expect("memory");
                for piece in compressed.chunks(read_step) {
                    decoder.push(piece, &mut out).expect("well-formed");
                }
                decoder.finish(&mut out).expect("whole");
                prop_assert_eq!(&out, &body);
                let whole = encode(coding, level, &body).expect("memory");
                prop_assert_eq!(decode(coding, &whole, DecodeLimits::default()).expect("well-formed"), body.clone());
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_goes_off() {
        let zeros = vec![0; 8 << 20];
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let bomb = encode(coding, 9, &zeros).expect("memory");
            assert!(bomb.len() < 16 << 10, "{coding:?}");
            for limits in [
                DecodeLimits { bytes_max: 1 << 20, ratio_max: u64::MAX },
                DecodeLimits { bytes_max: u64::MAX, ratio_max: 200 },
            ] {
                let error = decode(coding, &bomb, limits).expect_err("a bomb");
                assert!(matches!(error, DecodeError::Grows(..)), "{error}");
            }
            let enough = DecodeLimits { bytes_max: 8 << 20, ratio_max: u64::MAX };
            assert_eq!(decode(coding, &bomb, enough).expect("allowed").len(), zeros.len());
        }
    }

    #[test]
    fn a_cut_or_wrong_body_is_malformed() {
        let body: Vec<u8> = (0..3000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let whole = encode(coding, 5, &body).expect("memory");
            for wrong in [&whole[..whole.len() - 3], &whole[..whole.len() / 2], b"plainly not compressed", b"\x1f"] {
                let result = decode(coding, wrong, DecodeLimits::default());
                assert!(matches!(result, Err(DecodeError::Malformed(..))), "{coding:?} {}", wrong.len());
            }
        }
    }

    #[test]
    fn several_gzip_members_are_one_body() {
        let two = [encode(Coding::Gzip, 1, b"one ").expect("memory"), encode(Coding::Gzip, 9, b"two").expect("memory")];
        assert_eq!(decode(Coding::Gzip, &two.concat(), DecodeLimits::default()).expect("well-formed"), b"one two");
    }

    #[test]
    fn errors_name_the_coding_and_the_limit() {
        let limits = DecodeLimits { bytes_max: 5, ratio_max: 2 };
        let error = decode(Coding::Identity, b"123456", limits).expect_err("too long").to_string();
        assert_eq!(error, "a body in identity grows past 5 bytes or 2 times its length");
        let error = decode(Coding::Gzip, b"xxxxxxxxxxxxxxxxxxx", limits).expect_err("no gzip").to_string();
        assert!(error.starts_with("a body is not the gzip it is said to be: "), "{error}");
    }
}
