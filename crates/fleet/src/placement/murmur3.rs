//! MurmurHash3 for 32 bits (Austin Appleby, public domain), which can stop between two parts of what is hashed: a server's label is
//! hashed once, each key goes on from there.

/// The hash of some bytes so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Murmur3 {
    hash: u32,
    /// Bytes that fill no word yet, and how many there are.
    rest: [u8; 4],
    length: u32,
}

impl Murmur3 {
    pub(super) fn new(seed: u32) -> Murmur3 {
        Murmur3 { hash: seed, rest: [0; 4], length: 0 }
    }

    pub(super) fn and(mut self, mut bytes: &[u8]) -> Murmur3 {
        let filled = self.length as usize % 4;
        self.length = self.length.wrapping_add(bytes.len() as u32);
        if filled > 0 {
            let taken = bytes.len().min(4 - filled);
            self.rest[filled..filled + taken].copy_from_slice(&bytes[..taken]);
            if filled + taken < 4 {
                return self;
            }
            self.block(self.rest);
            bytes = &bytes[taken..];
        }
        let (blocks, rest) = bytes.as_chunks::<4>();
        for block in blocks {
            self.block(*block);
        }
        self.rest = [0; 4];
        self.rest[..rest.len()].copy_from_slice(rest);
        self
    }

    pub(super) fn finish(self) -> u32 {
        let mut hash = self.hash;
        let filled = self.length as usize % 4;
        if filled > 0 {
            let mut last = [0; 4];
            last[..filled].copy_from_slice(&self.rest[..filled]);
            hash ^= scrambled(last);
        }
        hash ^= self.length;
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        hash ^ (hash >> 16)
    }

    fn block(&mut self, block: [u8; 4]) {
        self.hash = (self.hash ^ scrambled(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
}

fn scrambled(word: [u8; 4]) -> u32 {
    u32::from_le_bytes(word).wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

/// The hash of `bytes` alone.
pub(super) fn hash(bytes: &[u8], seed: u32) -> u32 {
    Murmur3::new(seed).and(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The verification vectors that other implementations share.
        for (bytes, seed, expected) in [
            (&b""[..], 0, 0),
            (b"", 1, 0x514e_28b7),
            (b"", 0xffff_ffff, 0x81f1_6f39),
            (b"\xff\xff\xff\xff", 0, 0x7629_3b50),
            (b"\x21\x43\x65\x87", 0x5082_edee, 0x2362_f9de),
            (b"\x21\x43\x65", 0, 0x7e4a_8634),
            (b"Hello, world!", 0x9747_b28c, 0x2488_4cba),
        ] {
            assert_eq!(hash(bytes, seed), expected, "{bytes:?} {seed:x}");
        }
    }

    #[test]
    fn where_it_stopped_changes_nothing() {
        let bytes = b"10.0.0.1:11211-some key or other";
        for middle in 0..=bytes.len() {
            for second in middle..=bytes.len() {
                let parts = Murmur3::new(7).and(&bytes[..middle]).and(&bytes[middle..second]).and(&bytes[second..]);
                assert_eq!(parts.finish(), hash(bytes, 7), "{middle} {second}");
            }
        }
    }
}
