//! The hashes that keys are placed by.

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
    /// twemproxy's `crc16` (XModem's).
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
