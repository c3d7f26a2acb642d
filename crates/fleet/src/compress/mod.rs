//! Values compressed as clients compress them, so that both sides read each other's.
//!
//! | written as by | flags that say so | what is stored |
//! |---|---|---|
//! | php-memcached | 0x10, with 0x20 for zlib, 0x40 for fastlz | the length, four bytes, little-endian; then the compressed value |
//! | pylibmc, pymemcache's `CompressedSerde` | 0x08 | a zlib stream |
//! | Dalli | 0x02 | a zlib stream |
//!
//! php-memcached's zstd, which came with 3.3, is refused: nothing proves how it writes flag and length.
//!
//! The other flags, which say how the client serialises, are left as they are. A value that grows past a limit while it is expanded is
//! given up then, whatever its length claims.

mod fastlz;

use std::fmt;
use std::io::Read;

use flate2::read::{ZlibDecoder, ZlibEncoder};

use crate::Compression;

/// php-memcached's flags, four bits up.
const PHP_COMPRESSED: u32 = 0x10;
const PHP_ZLIB: u32 = 0x20;
const PHP_FASTLZ: u32 = 0x40;
/// pylibmc's and pymemcache's.
const PYTHON_COMPRESSED: u32 = 0x08;
/// Dalli's.
const DALLI_COMPRESSED: u32 = 0x02;

/// Why a value cannot be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompressError {
    /// It would be larger than this many bytes.
    TooLarge(usize),
    /// It is not what its flags say.
    Damaged(&'static str),
}

/// Compresses `value` into `out`, which is emptied first, and returns its flags. `None` when it goes as it is: it has fewer than `min`
/// bytes, would not get smaller, or is compressed already.
pub fn encode(how: Compression, min: usize, value: &[u8], flags: u32, out: &mut Vec<u8>) -> Option<u32> {
    out.clear();
    if value.len() < min || is_compressed(how, flags) {
        return None;
    }
    let length = u32::try_from(value.len()).ok()?;
    let mark = match how {
        Compression::None => return None,
        Compression::PhpZlib => PHP_COMPRESSED | PHP_ZLIB,
        Compression::PhpFastlz => PHP_COMPRESSED | PHP_FASTLZ,
        Compression::Pylibmc | Compression::Pymemcache => PYTHON_COMPRESSED,
        Compression::Dalli => DALLI_COMPRESSED,
    };
    if mark & PHP_COMPRESSED != 0 {
        out.extend_from_slice(&length.to_le_bytes());
    }
    match how {
        Compression::PhpFastlz => fastlz::compress(value, out),
        // Reading from memory and writing to it does not fail.
        _ => _ = ZlibEncoder::new(value, flate2::Compression::default()).read_to_end(out).ok()?,
    }
    (out.len() < value.len()).then_some(flags | mark)
}

/// Expands `value` into `out`, which is emptied first, to at most `max` bytes, and returns the flags without those of compression. `None`
/// when they do not say that it is compressed.
pub fn decode(
    how: Compression,
    max: usize,
    value: &[u8],
    flags: u32,
    out: &mut Vec<u8>,
) -> Result<Option<u32>, CompressError> {
    out.clear();
    if !is_compressed(how, flags) {
        return Ok(None);
    }
    match how {
        Compression::None => return Ok(None),
        Compression::Pylibmc | Compression::Pymemcache => {
            bounded(ZlibDecoder::new(value), max, out, "expected a zlib stream")?;
            return Ok(Some(flags & !PYTHON_COMPRESSED));
        }
        Compression::Dalli => {
            bounded(ZlibDecoder::new(value), max, out, "expected a zlib stream")?;
            return Ok(Some(flags & !DALLI_COMPRESSED));
        }
        Compression::PhpZlib | Compression::PhpFastlz => {}
    }
    // Either of php-memcached's is read, whichever is written: a fleet's clients may differ in it.
    let (length, packed) =
        value.split_first_chunk().ok_or(CompressError::Damaged("expected a length of four bytes"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > max {
        return Err(CompressError::TooLarge(max));
    }
    match flags & (PHP_ZLIB | PHP_FASTLZ) {
        PHP_ZLIB => bounded(ZlibDecoder::new(packed), length, out, "expected a zlib stream")?,
        PHP_FASTLZ => fastlz::expand(packed, length, out)?,
        _ => return Err(CompressError::Damaged("expected one of zlib and fastlz in the flags")),
    }
    if out.len() != length {
        return Err(CompressError::Damaged("expected as many bytes as the length says"));
    }
    Ok(Some(flags & !(PHP_COMPRESSED | PHP_ZLIB | PHP_FASTLZ)))
}

fn is_compressed(how: Compression, flags: u32) -> bool {
    let mark = match how {
        Compression::None => 0,
        Compression::PhpZlib | Compression::PhpFastlz => PHP_COMPRESSED,
        Compression::Pylibmc | Compression::Pymemcache => PYTHON_COMPRESSED,
        Compression::Dalli => DALLI_COMPRESSED,
    };
    flags & mark != 0
}

/// Reads at most `max` bytes into `out`; one more is an error.
fn bounded(reader: impl Read, max: usize, out: &mut Vec<u8>, expected: &'static str) -> Result<(), CompressError> {
    let read = reader.take(max as u64 + 1).read_to_end(out);
    match read {
        Ok(_) if out.len() <= max => Ok(()),
        Ok(_) => Err(CompressError::TooLarge(max)),
        Err(_) => Err(CompressError::Damaged(expected)),
    }
}

impl fmt::Display for CompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompressError::TooLarge(max) => {
                write!(f, "a compressed value: expected at most {max} bytes when it is expanded")
            }
            CompressError::Damaged(expected) => write!(f, "a compressed value: {expected}"),
        }
    }
}

impl std::error::Error for CompressError {}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 5] = [
        Compression::PhpZlib,
        Compression::PhpFastlz,
        Compression::Pylibmc,
        Compression::Pymemcache,
        Compression::Dalli,
    ];

    fn text(lines: usize) -> Vec<u8> {
        (0..lines).flat_map(|n| format!("line {} of {lines}\n", n * n % 9973).into_bytes()).collect()
    }

    #[test]
    fn what_is_compressed_is_smaller_and_expands_to_what_it_was() {
        let (mut packed, mut expanded) = (Vec::new(), Vec::new());
        for how in ALL {
            for value in [text(20), text(300), text(20_000), vec![7; 100_000], vec![7; 300]] {
                let flags = encode(how, 100, &value, 0x0100_0001, &mut packed).unwrap_or_else(|| panic!("{how:?}"));
                assert!(packed.len() < value.len() && flags != 0x0100_0001, "{how:?}");
                let found = decode(how, value.len(), &packed, flags, &mut expanded);
                assert_eq!((found, &expanded), (Ok(Some(0x0100_0001)), &value), "{how:?}");
            }
        }
    }

    #[test]
    fn what_would_not_get_smaller_or_is_small_goes_as_it_is() {
        let mut out = Vec::new();
        let noise: Vec<u8> =
            (0..3000u32).map(|n| (n.wrapping_mul(0x9e37_79b9) ^ n.wrapping_mul(n) << 7) as u8).collect();
        for how in ALL {
            assert_eq!(encode(how, 100, &text(3), 0, &mut out), None, "{how:?}");
            if let Some(flags) = encode(how, 100, &noise, 0, &mut out) {
                assert!(out.len() < noise.len() && flags != 0, "{how:?}");
            }
            assert_eq!(encode(how, 1, b"abcdefghijk", 0, &mut out), None, "{how:?}");
            assert_eq!(decode(how, 100, b"plain", 1, &mut out), Ok(None), "{how:?}");
        }
        assert_eq!(encode(Compression::None, 1, &text(300), 0, &mut out), None);
        assert_eq!(
            encode(Compression::PhpZlib, 1, &text(300), PHP_COMPRESSED | PHP_FASTLZ, &mut out),
            None,
            "it is already"
        );
    }

    #[test]
    fn a_bomb_is_given_up_at_the_limit() {
        let (mut packed, mut out) = (Vec::new(), Vec::new());
        for how in ALL {
            let flags = encode(how, 1, &vec![0; 4 << 20], 0, &mut packed).unwrap();
            assert_eq!(
                decode(how, 1 << 20, &packed, flags, &mut out),
                Err(CompressError::TooLarge(1 << 20)),
                "{how:?}"
            );
            assert!(out.capacity() <= 4 << 20, "{how:?}: {}", out.capacity());
            if flags & PHP_COMPRESSED != 0 {
                // A length that lies does not help it.
                packed[..4].copy_from_slice(&1000u32.to_le_bytes());
                assert!(decode(how, 1 << 20, &packed, flags, &mut out).is_err(), "{how:?}");
                assert!(out.len() <= 1001, "{how:?}: {}", out.len());
            }
        }
    }

    #[test]
    fn damage_is_an_error_and_never_more_than_the_limit() {
        let (mut packed, mut out) = (Vec::new(), Vec::new());
        let value = text(300);
        for how in ALL {
            let flags = encode(how, 1, &value, 0, &mut packed).unwrap();
            for cut in 0..packed.len().min(40) {
                assert!(decode(how, 10_000, &packed[..cut], flags, &mut out).is_err(), "{how:?}: {cut}");
            }
            for at in 0..packed.len() {
                for with in [0, 0x1f, 0x3f, 0xff] {
                    let mut damaged = packed.clone();
                    damaged[at] = with;
                    let _ = decode(how, 10_000, &damaged, flags, &mut out);
                    assert!(out.len() <= 10_001, "{how:?}");
                }
            }
        }
        // 0x80 is its zstd's.
        for flags in [PHP_COMPRESSED, PHP_COMPRESSED | 0x80] {
            let error = decode(Compression::PhpZlib, 9, b"\x05\0\0\0abc", flags, &mut out).unwrap_err();
            assert_eq!(error.to_string(), "a compressed value: expected one of zlib and fastlz in the flags");
        }
    }
}
