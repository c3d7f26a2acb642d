//! Taking bytes off the front of a value.

use super::FormatError;

/// What is left of a value.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(FormatError::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(FormatError::Short(what))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, FormatError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, FormatError> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_be_bytes)
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, FormatError> {
        self.array(what).map(i64::from_be_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Bytes behind their length in two bytes.
    pub(super) fn short_bytes(&mut self, what: &'static str) -> Result<&'a [u8], FormatError> {
        let bytes = self.u16(what)?;
        self.take(usize::from(bytes), what)
    }

    /// Bytes up to a NUL, which is taken off as well.
    pub(super) fn until_nul(&mut self, what: &'static str) -> Result<&'a [u8], FormatError> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(FormatError::Short(what))?;
        let (taken, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(taken)
    }
}
