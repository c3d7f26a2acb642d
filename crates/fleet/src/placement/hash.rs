//! The hashes that keys are placed by: 32 bits of a key, as libmemcached's libhashkit and twemproxy compute them.
//!
//! Both are written in C and read keys as `char`, which has a sign on x86: there a byte of 0x80 or more counts with ones above it in
//! `one_at_a_time`, the FNV hashes and the end of `hsieh`. Keys are placed here as on x86; clients on ARM agree for ASCII keys only.

use md5::{Digest, Md5};

use super::murmur3;

/// A hash of libmemcached's and twemproxy's, 32 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// Jenkins' one-at-a-time, libmemcached's default.
    OneAtATime,
    /// The first four bytes of the MD5 digest, little-endian.
    Md5,
    /// Bits 16 to 30 of the CRC-32.
    Crc,
    /// The lower half of the 64-bit FNV-1.
    Fnv1_64,
    /// What libmemcached calls 64-bit FNV-1a: 32 bits throughout, from the lower halves of the 64-bit constants.
    Fnv1a64,
    /// The 32-bit FNV-1.
    Fnv1_32,
    /// The 32-bit FNV-1a.
    Fnv1a32,
    /// Hsieh's SuperFastHash. Debian's libmemcached is built without it.
    Hsieh,
    /// MurmurHash2, seeded by the key's length.
    Murmur,
    /// MurmurHash3 for 32 bits, seeded by the key's length.
    Murmur3,
    /// Jenkins' lookup3 (`hashlittle`) with the initial value 13.
    Jenkins,
    /// twemproxy's `crc16` (XModem's, and what is shifted out of it).
    Crc16,
    /// The whole CRC-32, as twemproxy's `crc32a`.
    Crc32a,
}

impl Hash {
    /// Every hash, in the order of the documentation.
    pub const ALL: [Hash; 13] = [
        Hash::OneAtATime,
        Hash::Md5,
        Hash::Crc,
        Hash::Fnv1_64,
        Hash::Fnv1a64,
        Hash::Fnv1_32,
        Hash::Fnv1a32,
        Hash::Hsieh,
        Hash::Murmur,
        Hash::Murmur3,
        Hash::Jenkins,
        Hash::Crc16,
        Hash::Crc32a,
    ];

    /// The names of [`ALL`](Self::ALL).
    pub const NAMES: [&str; 13] = {
        let mut names = [""; 13];
        let mut index = 0;
        while index < 13 {
            names[index] = Hash::ALL[index].name();
            index += 1;
        }
        names
    };

    /// Its name in the configuration file, which is libmemcached's; `crc16` and `crc32a` are twemproxy's.
    pub const fn name(self) -> &'static str {
        match self {
            Hash::OneAtATime => "one_at_a_time",
            Hash::Md5 => "md5",
            Hash::Crc => "crc",
            Hash::Fnv1_64 => "fnv1_64",
            Hash::Fnv1a64 => "fnv1a_64",
            Hash::Fnv1_32 => "fnv1_32",
            Hash::Fnv1a32 => "fnv1a_32",
            Hash::Hsieh => "hsieh",
            Hash::Murmur => "murmur",
            Hash::Murmur3 => "murmur3",
            Hash::Jenkins => "jenkins",
            Hash::Crc16 => "crc16",
            Hash::Crc32a => "crc32a",
        }
    }

    /// The hash called `name`.
    pub fn named(name: &str) -> Option<Hash> {
        Self::ALL.into_iter().find(|hash| hash.name() == name)
    }
}

impl Hash {
    /// The hash of `key`.
    #[inline]
    pub fn of(self, key: &[u8]) -> u32 {
        match self {
            Hash::OneAtATime => one_at_a_time(key),
            Hash::Md5 => md5_words(key)[0],
            Hash::Crc => (crc32fast::hash(key) >> 16) & 0x7fff,
            Hash::Fnv1_64 => fnv1_64(key),
            Hash::Fnv1a64 => fnv1a_32(key, FNV_64_INIT as u32, FNV_64_PRIME as u32),
            Hash::Fnv1_32 => fnv1_32(key),
            Hash::Fnv1a32 => fnv1a_32(key, FNV_32_INIT, FNV_32_PRIME),
            Hash::Hsieh => hsieh(key),
            Hash::Murmur => murmur2(key),
            Hash::Murmur3 => murmur3::hash(key, length_seed(key)),
            Hash::Jenkins => jenkins(key),
            Hash::Crc16 => crc16(key),
            Hash::Crc32a => crc32fast::hash(key),
        }
    }
}

/// The MD5 digest as four little-endian numbers: the first is a key's hash, all are points of a weighted ring.
pub(super) fn md5_words(bytes: &[u8]) -> [u32; 4] {
    let digest: [u8; 16] = Md5::digest(bytes).into();
    std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| digest[word * 4 + byte])))
}

/// A byte as C's `(uint32_t) key[x]` has it where `char` has a sign.
fn with_sign(byte: u8) -> u32 {
    byte as i8 as u32
}

/// What both murmur hashes of libhashkit begin with.
fn length_seed(key: &[u8]) -> u32 {
    0xdead_beef_u32.wrapping_mul(key.len() as u32)
}

fn one_at_a_time(key: &[u8]) -> u32 {
    let mut value = 0u32;
    for byte in key {
        value = value.wrapping_add(with_sign(*byte));
        value = value.wrapping_add(value << 10);
        value ^= value >> 6;
    }
    value = value.wrapping_add(value << 3);
    value ^= value >> 11;
    value.wrapping_add(value << 15)
}

const FNV_32_INIT: u32 = 0x811c_9dc5;
const FNV_32_PRIME: u32 = 0x0100_0193;
const FNV_64_INIT: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_64_PRIME: u64 = 0x0100_0000_01b3;

fn fnv1_64(key: &[u8]) -> u32 {
    key.iter().fold(FNV_64_INIT, |hash, byte| hash.wrapping_mul(FNV_64_PRIME) ^ (*byte as i8 as u64)) as u32
}

fn fnv1_32(key: &[u8]) -> u32 {
    key.iter().fold(FNV_32_INIT, |hash, byte| hash.wrapping_mul(FNV_32_PRIME) ^ with_sign(*byte))
}

fn fnv1a_32(key: &[u8], init: u32, prime: u32) -> u32 {
    key.iter().fold(init, |hash, byte| (hash ^ with_sign(*byte)).wrapping_mul(prime))
}

fn hsieh(key: &[u8]) -> u32 {
    let half = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut hash = 0u32;
    if key.is_empty() {
        return 0;
    }
    let (blocks, rest) = key.as_chunks::<4>();
    for block in blocks {
        hash = hash.wrapping_add(half(block));
        hash = (hash << 16) ^ (half(&block[2..]) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match rest {
        [_, _, last] => {
            hash = hash.wrapping_add(half(rest));
            hash ^= hash << 16;
            hash ^= with_sign(*last) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [_, _] => {
            hash = hash.wrapping_add(half(rest));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [last] => {
            hash = hash.wrapping_add(u32::from(*last));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = length_seed(key) ^ key.len() as u32;
    let (blocks, rest) = key.as_chunks::<4>();
    for block in blocks {
        let mut word = u32::from_le_bytes(*block).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Bob Jenkins' lookup3, `hashlittle`, of 2006.
fn jenkins(key: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(13);
    let (mut a, mut b, mut c) = (start, start, start);
    if key.is_empty() {
        return c;
    }
    let word = |block: &[u8], index: usize| u32::from_le_bytes(std::array::from_fn(|byte| block[index * 4 + byte]));
    // The last block, full or not, is mixed in another way.
    let mut rest = key;
    while rest.len() > 12 {
        a = a.wrapping_add(word(rest, 0));
        b = b.wrapping_add(word(rest, 1));
        c = c.wrapping_add(word(rest, 2));
        let step = |x: &mut u32, y: u32, z: &mut u32, by: u32| {
            *x = x.wrapping_sub(*z) ^ z.rotate_left(by);
            *z = z.wrapping_add(y);
        };
        step(&mut a, b, &mut c, 4);
        step(&mut b, c, &mut a, 6);
        step(&mut c, a, &mut b, 8);
        step(&mut a, b, &mut c, 16);
        step(&mut b, c, &mut a, 19);
        step(&mut c, a, &mut b, 4);
        rest = &rest[12..];
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    a = a.wrapping_add(word(&last, 0));
    b = b.wrapping_add(word(&last, 1));
    c = c.wrapping_add(word(&last, 2));
    let step = |x: &mut u32, y: u32, by: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(by));
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

/// twemproxy's CRC-16 keeps what is shifted out above the 16 bits.
fn crc16(key: &[u8]) -> u32 {
    key.iter().fold(0u32, |crc, byte| (crc << 8) ^ CRC16[(((crc >> 8) ^ u32::from(*byte)) & 0xff) as usize])
}

/// The table of the polynomial 0x1021.
static CRC16: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc & 0xffff;
        index += 1;
    }
    table
};
