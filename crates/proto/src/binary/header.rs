//! The 24 bytes in front of every request and answer.

/// First byte of a request.
pub const MAGIC_REQUEST: u8 = 0x80;
/// First byte of an answer.
pub const MAGIC_RESPONSE: u8 = 0x81;
/// Length of a header.
pub const HEADER_BYTES: usize = 24;

/// A header, of a request or an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC_REQUEST`] or [`MAGIC_RESPONSE`].
    pub magic: u8,
    /// What is asked; answers repeat it.
    pub opcode: u8,
    /// Length of the key.
    pub key_bytes: u16,
    /// Length of the extras.
    pub extras_bytes: u8,
    /// Always 0, never looked at.
    pub data_type: u8,
    /// Status of an answer; of a request the vbucket, which memcached does not look at.
    pub status: u16,
    /// Length of extras, key and value together.
    pub body_bytes: u32,
    /// Whatever the client put there; answers repeat it.
    pub opaque: u32,
    /// CAS unique.
    pub cas: u64,
}

impl Header {
    /// Reads the header at the front of `buf`; `None` when it is shorter than one.
    #[inline]
    #[must_use]
    pub fn read(buf: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = buf.first_chunk()?;
        let [magic, opcode, k0, k1, extras_bytes, data_type, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
        Some(Header {
            magic,
            opcode,
            key_bytes: u16::from_be_bytes([k0, k1]),
            extras_bytes,
            data_type,
            status: u16::from_be_bytes([s0, s1]),
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            cas: u64::from_be_bytes(cas),
        })
    }

    /// The header as it is sent.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.magic;
        bytes[1] = self.opcode;
        bytes[2..4].copy_from_slice(&self.key_bytes.to_be_bytes());
        bytes[4] = self.extras_bytes;
        bytes[5] = self.data_type;
        bytes[6..8].copy_from_slice(&self.status.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.body_bytes.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.cas.to_be_bytes());
        bytes
    }

    /// Length of extras and key together.
    #[must_use]
    pub const fn front_bytes(&self) -> usize {
        self.extras_bytes as usize + self.key_bytes as usize
    }

    /// Length of the value; `None` when extras and key do not fit the body.
    #[must_use]
    pub const fn value_bytes(&self) -> Option<u32> {
        self.body_bytes.checked_sub(self.front_bytes() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_protocol_puts_them() {
        let header = Header {
            magic: 0x80,
            opcode: 0x01,
            key_bytes: 0x0203,
            extras_bytes: 0x04,
            data_type: 0x05,
            status: 0x0607,
            body_bytes: 0x0809_0a0b,
            opaque: 0x0c0d_0e0f,
            cas: 0x1011_1213_1415_1617,
        };
        let mut expected: Vec<u8> = (0..24).collect();
        expected[0] = 0x80;
        assert_eq!(header.to_bytes()[..], expected[..]);
        assert_eq!(Header::read(&expected), Some(header));
        assert_eq!(Header::read(&expected[..23]), None);
    }

    #[test]
    fn a_body_shorter_than_extras_and_key_has_no_value() {
        let header = Header { key_bytes: u16::MAX, extras_bytes: u8::MAX, ..Header::default() };
        assert_eq!(header.front_bytes(), 65_790);
        assert_eq!(header.value_bytes(), None);
        assert_eq!(Header { body_bytes: 65_790, ..header }.value_bytes(), Some(0));
        assert_eq!(Header { body_bytes: u32::MAX, ..header }.value_bytes(), Some(u32::MAX - 65_790));
    }
}
