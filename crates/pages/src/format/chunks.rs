//! Values that are longer than the longest item of a fleet's servers: cut into chunks, and a list under the value's key.
//!
//! Chunks and list carry the number of the writing they belong to, so that those of two writers are never joined; a list
//! of which a chunk is gone or another's is a miss.

use super::FormatError;
use super::page::{KIND_CHUNK, KIND_CHUNKS, finish_head, push_prefix, read_prefix};
use super::read::Reader;
use crate::key::{ITEM_PREFIX, push_hex};
use sha2::{Digest, Sha256};

/// So many bytes of a chunk's value are not of the value that was cut.
pub const CHUNK_HEAD_BYTES: usize = 24;

/// More chunks than these are not written, and not asked for when a list names them.
pub const CHUNKS_MAX: u32 = 65_536;

/// The list of a value's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// The length of the value.
    pub value_bytes: u64,
    /// The length of each chunk, but perhaps the last, without its head.
    pub chunk_bytes: u32,
    /// The number of the writing.
    pub generation: u64,
}

impl Chunks {
    /// Cuts a value into chunks of items of at most so many bytes. `generation` must be another one at each writing: a
    /// random number.
    ///
    /// # Errors
    /// It makes more than [`CHUNKS_MAX`] chunks.
    pub fn of(value: &[u8], item_bytes_max: usize, generation: u64) -> Result<Self, FormatError> {
        let chunk_bytes = item_bytes_max.saturating_sub(CHUNK_HEAD_BYTES).clamp(1, u32::MAX as usize) as u32;
        let chunks = Self { value_bytes: value.len() as u64, chunk_bytes, generation };
        match chunks.count() {
            Some(_) => Ok(chunks),
            None => Err(FormatError::DoesNotFit("it makes more than 65,536 chunks")),
        }
    }

    /// Reads the value of a list.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn parse(value: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader { rest: value };
        let prefix = read_prefix(&mut reader)?;
        if prefix.kind != KIND_CHUNKS || prefix.head_bytes != value.len() {
            return Err(FormatError::NotThis("list of a page's chunks"));
        }
        let chunks = Self {
            value_bytes: reader.u64("chunk list")?,
            chunk_bytes: reader.u32("chunk list")?,
            generation: reader.u64("chunk list")?,
        };
        if chunks.chunk_bytes == 0 || chunks.count().is_none() {
            return Err(FormatError::Meaningless("chunk list"));
        }
        if reader.rest.is_empty() { Ok(chunks) } else { Err(FormatError::Long) }
    }

    /// The value of the list, to be stored under the key of the value that was cut, after the chunks.
    ///
    /// # Errors
    /// Never for a list of [`Chunks::of`].
    pub fn list(&self) -> Result<Vec<u8>, FormatError> {
        let mut value = Vec::with_capacity(32);
        push_prefix(&mut value, KIND_CHUNKS, 0);
        value.extend_from_slice(&self.value_bytes.to_be_bytes());
        value.extend_from_slice(&self.chunk_bytes.to_be_bytes());
        value.extend_from_slice(&self.generation.to_be_bytes());
        finish_head(&mut value)
    }

    /// The keys of the chunks, in order: `page:chunk:`, 32 hexadecimal digits of the SHA-256 of the value's key, `:`, 16
    /// of the writing, `:` and the number of the chunk. None when the list names more than [`CHUNKS_MAX`].
    #[must_use]
    pub fn keys(&self, key: &str) -> Vec<String> {
        let mut stem = format!("{ITEM_PREFIX}chunk:");
        push_hex(&mut stem, &Sha256::digest(key.as_bytes())[..16]);
        (0..self.count().unwrap_or(0)).map(|at| format!("{stem}:{:016x}:{at}", self.generation)).collect()
    }

    /// The values of the chunks of the value that was cut, in the order of [`Chunks::keys`].
    ///
    /// # Errors
    /// Never for a list of [`Chunks::of`].
    pub fn cut(&self, value: &[u8]) -> Result<Vec<Vec<u8>>, FormatError> {
        let pieces = value.chunks(self.chunk_bytes.max(1) as usize).enumerate();
        pieces
            .map(|(at, piece)| {
                let mut chunk = Vec::with_capacity(CHUNK_HEAD_BYTES + piece.len());
                push_prefix(&mut chunk, KIND_CHUNK, 0);
                chunk.extend_from_slice(&self.generation.to_be_bytes());
                chunk.extend_from_slice(&u32::try_from(at).unwrap_or(u32::MAX).to_be_bytes());
                let mut chunk = finish_head(&mut chunk)?;
                chunk.extend_from_slice(piece);
                Ok(chunk)
            })
            .collect()
    }

    /// The value, of the values of all its chunks in order.
    ///
    /// # Errors
    /// A chunk is damaged, of another writing, or of another length than the list says.
    pub fn join<'a>(&self, chunks: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, FormatError> {
        let mut value = Vec::new();
        for (at, chunk) in chunks.enumerate() {
            let mut reader = Reader { rest: chunk };
            let prefix = read_prefix(&mut reader)?;
            if prefix.kind != KIND_CHUNK || prefix.head_bytes != CHUNK_HEAD_BYTES {
                return Err(FormatError::NotThis("chunk of a page"));
            }
            let (generation, number) = (reader.u64("chunk")?, reader.u32("chunk")?);
            if generation != self.generation || number as usize != at {
                return Err(FormatError::Meaningless("chunk"));
            }
            let bytes = reader.rest;
            let left = self.value_bytes.saturating_sub(value.len() as u64);
            if bytes.len() as u64 != left.min(u64::from(self.chunk_bytes)) {
                return Err(FormatError::Meaningless("chunk length"));
            }
            value.extend_from_slice(bytes);
        }
        if value.len() as u64 == self.value_bytes { Ok(value) } else { Err(FormatError::Short("chunks")) }
    }

    fn count(&self) -> Option<u32> {
        let count = self.value_bytes.div_ceil(u64::from(self.chunk_bytes.max(1)));
        u32::try_from(count).ok().filter(|&count| count <= CHUNKS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_HEAD_BYTES, Chunks};
    use crate::format::{FormatError, parse};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_cut_into_items_is_joined_again(
            value in proptest::collection::vec(any::<u8>(), 0..3000),
            item_bytes in CHUNK_HEAD_BYTES + 1..500,
            generation in any::<u64>(),
        ) {
            let chunks = Chunks::of(&value, item_bytes, generation).expect("few");
            let list = chunks.list().expect("a list");
            let read = Chunks::parse(&list).expect("a list");
            prop_assert_eq!(read, chunks);
            let cut = read.cut(&value).expect("chunks");
            let keys = read.keys("page:http://a.test/");
            prop_assert_eq!(keys.len(), cut.len());
            prop_assert!(keys.iter().all(|key| key.len() <= 80));
            prop_assert!(cut.iter().all(|chunk| chunk.len() <= item_bytes));
            prop_assert_eq!(read.join(cut.iter().map(Vec::as_slice)).expect("whole"), value);
            if !cut.is_empty() {
                prop_assert!(read.join(cut[1..].iter().map(Vec::as_slice)).is_err());
                let other = Chunks { generation: generation ^ 1, ..read };
                prop_assert!(other.join(cut.iter().map(Vec::as_slice)).is_err());
            }
        }
    }

    #[test]
    fn too_many_chunks_are_neither_written_nor_asked_for() {
        let value = vec![0; 70_000];
        let error = Chunks::of(&value, 1, 0).expect_err("too many").to_string();
        assert_eq!(error, "the page cannot be stored in this form: it makes more than 65,536 chunks");
        let greedy = Chunks { value_bytes: u64::MAX, chunk_bytes: 1, generation: 0 };
        assert!(greedy.keys("page:x").is_empty());
        let list = greedy.list().expect("a list");
        assert!(matches!(Chunks::parse(&list), Err(FormatError::Meaningless("chunk list"))));
        assert!(matches!(parse(&list), Err(FormatError::NotThis("page, but a chunk of one"))));
    }

    #[test]
    fn the_keys_are_those_of_the_document() {
        // printf 'page:x' | sha256sum | cut -c1-32
        let chunks = Chunks { value_bytes: 3, chunk_bytes: 2, generation: 0xabc };
        assert_eq!(chunks.keys("page:x")[1], "page:chunk:fbab83e0faba0b3d44db8dbc77ba44cd:0000000000000abc:1");
    }
}
