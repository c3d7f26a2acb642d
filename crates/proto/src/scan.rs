//! Finding a byte in a slice, eight bytes at a time, and splitting a line at its spaces.
//!
//! Owns the inner loops of the text parsers. Nothing here looks at what the bytes mean.

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Position of the first `byte` in `hay`.
#[inline]
pub(crate) fn find(byte: u8, hay: &[u8]) -> Option<usize> {
    let pattern = LOW_BITS * u64::from(byte);
    let (words, tail) = hay.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // A byte of `diff` is zero where the word holds `byte`; the lowest set high bit marks the first such byte exactly
        // (borrows only spread upwards), which is why the word is read little-endian.
        let diff = u64::from_le_bytes(*word) ^ pattern;
        let zeros = diff.wrapping_sub(LOW_BITS) & !diff & HIGH_BITS;
        if zeros != 0 {
            return Some(index * 8 + (zeros.trailing_zeros() / 8) as usize);
        }
    }
    tail.iter().position(|&b| b == byte).map(|at| words.len() * 8 + at)
}

/// The space-separated tokens of a line. Runs of spaces count as one; no other byte separates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    #[inline]
    pub(crate) const fn new(line: &'a [u8]) -> Self {
        Tokens { rest: line }
    }

    /// What has not been split yet, without the spaces in front of it.
    #[inline]
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        if rest.is_empty() {
            return None;
        }
        match find(b' ', rest) {
            Some(at) => {
                let (token, rest) = rest.split_at(at);
                self.rest = rest;
                Some(token)
            }
            None => {
                self.rest = &[];
                Some(rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_agrees_with_a_plain_search_at_every_length_and_place() {
        for length in 0..40 {
            for place in 0..=length {
                let mut hay = vec![b'x'; length];
                // Neighbours of the searched byte are what a careless borrow would mistake for it.
                for (i, b) in hay.iter_mut().enumerate() {
                    *b = if i % 2 == 0 { b'\n' + 1 } else { 0x80 | b'\n' };
                }
                if place < length {
                    hay[place] = b'\n';
                }
                assert_eq!(find(b'\n', &hay), hay.iter().position(|&b| b == b'\n'), "{length} {place}");
            }
        }
    }

    #[test]
    fn tokens_split_at_spaces_only() {
        let tokens: Vec<&[u8]> = Tokens::new(b"  a\tb  cc\r d ").collect();
        assert_eq!(tokens, [&b"a\tb"[..], b"cc\r", b"d"]);
        assert_eq!(Tokens::new(b"   ").next(), None);
    }
}
