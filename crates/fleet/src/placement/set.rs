//! A set of servers, by their indices, which needs no allocation.

/// The most servers a fleet can have.
pub const SERVERS_MAX: usize = 1024;

/// Indices below [`SERVERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Set([u64; SERVERS_MAX / 64]);

impl Set {
    /// Whether `index` is in it.
    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    /// Takes `index` in.
    #[inline]
    pub fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        *self == Set::default()
    }
}

impl FromIterator<usize> for Set {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Set {
        let mut set = Set::default();
        indices.into_iter().for_each(|index| set.insert(index));
        set
    }
}
