//! Compressing, at once or as the body comes in.

use super::Coding;
use std::fmt;
use std::io::{self, Write};

/// A body could not be compressed.
#[derive(Debug)]
#[non_exhaustive]
pub enum EncodeError {
    /// The library refused, which it does for want of memory only.
    Library(Coding, io::Error),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Library(coding, error) = self;
        write!(f, "a body could not be compressed with {}: {error}", coding.token())
    }
}

impl std::error::Error for EncodeError {}

/// Compresses a body that comes in pieces.
pub struct Encoder {
    coding: Coding,
    kind: Kind,
}

enum Kind {
    Identity,
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// For a coding and a level of its scale; a level outside is moved to the nearest in it.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(coding: Coding, level: u32) -> Result<Self, EncodeError> {
        let kind = match coding {
            Coding::Identity => Kind::Identity,
            Coding::Gzip => {
                let level = flate2::Compression::new(level.clamp(1, 9));
                Kind::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
            // 2^22 bytes of window is the largest that every decoder takes.
            Coding::Brotli => {
                Kind::Brotli(Box::new(brotli::CompressorWriter::new(Vec::new(), 4096, level.min(11), 22)))
            }
            Coding::Zstd => {
                let level = i32::try_from(level.clamp(1, 19)).unwrap_or(19);
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), level);
                Kind::Zstd(encoder.map_err(|error| EncodeError::Library(coding, error))?)
            }
        };
        Ok(Self { coding, kind })
    }

    /// Takes a piece of the body, and appends what is ready of the compressed one, perhaps nothing.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let written = match &mut self.kind {
            Kind::Identity => out.write_all(piece),
            Kind::Gzip(encoder) => encoder.write_all(piece).map(|()| out.append(encoder.get_mut())),
            Kind::Brotli(encoder) => encoder.write_all(piece).map(|()| out.append(encoder.get_mut())),
            Kind::Zstd(encoder) => encoder.write_all(piece).map(|()| out.append(encoder.get_mut())),
        };
        written.map_err(|error| EncodeError::Library(self.coding, error))
    }

    /// Appends the end.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let end = match self.kind {
            Kind::Identity => Ok(Vec::new()),
            Kind::Gzip(encoder) => encoder.finish(),
            Kind::Brotli(encoder) => Ok(encoder.into_inner()),
            Kind::Zstd(encoder) => encoder.finish(),
        };
        out.extend_from_slice(&end.map_err(|error| EncodeError::Library(self.coding, error))?);
        Ok(())
    }
}

/// Compresses a whole body.
///
/// # Errors
/// There is no memory for it.
pub fn encode(coding: Coding, level: u32, body: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(body.len() / 4 + 64);
    let mut encoder = Encoder::new(coding, level)?;
    encoder.push(body, &mut out)?;
    encoder.finish(&mut out)?;
    Ok(out)
}
