//! Where random choices come from: a seed, or bytes that a fuzzer hands in.
//!
//! The methods are those of `fastrand::Rng` that the testkit uses. Thrown from bytes, each choice uses up as few of them as it needs,
//! so that a fuzzer's small changes stay small; once they are used up, every choice is the lowest.

use std::ops::{Bound, RangeBounds};

/// A source of choices.
#[derive(Clone, Debug)]
pub enum Dice {
    /// Thrown from a seed, without end.
    Seeded(fastrand::Rng),
    /// Thrown from these bytes, from the position on.
    Bytes(Vec<u8>, usize),
}

impl Dice {
    /// The same seed throws the same dice.
    pub fn seeded(seed: u64) -> Dice {
        Dice::Seeded(fastrand::Rng::with_seed(seed))
    }

    /// The same bytes throw the same dice.
    pub fn bytes(bytes: &[u8]) -> Dice {
        Dice::Bytes(bytes.to_vec(), 0)
    }

    /// Whether the bytes are used up.
    pub fn is_used_up(&self) -> bool {
        match self {
            Dice::Seeded(_) => false,
            Dice::Bytes(bytes, used) => *used >= bytes.len(),
        }
    }

    /// Heads or tails.
    pub fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Puts a slice into random order.
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        for last in (1..slice.len()).rev() {
            slice.swap(self.usize(..=last), last);
        }
    }

    /// Fills a slice.
    pub fn fill(&mut self, slice: &mut [u8]) {
        match self {
            Dice::Seeded(rng) => rng.fill(slice),
            // A fuzzer's bytes are too few to be spent on values, whose insides matter to nobody.
            Dice::Bytes(..) => {
                let start = self.u8(..);
                for (at, byte) in slice.iter_mut().enumerate() {
                    *byte = start.wrapping_add(at as u8).wrapping_mul(167);
                }
            }
        }
    }

    /// A number below `count`, or any for 0.
    fn below(&mut self, count: u64) -> u64 {
        let (bytes, used) = match self {
            Dice::Seeded(rng) => return if count == 0 { rng.u64(..) } else { rng.u64(..count) },
            Dice::Bytes(bytes, used) => (bytes, used),
        };
        let needed = (64 - count.wrapping_sub(1).leading_zeros()).div_ceil(8);
        let mut number = 0u64;
        for _ in 0..needed {
            number = number << 8 | u64::from(bytes.get(*used).copied().unwrap_or(0));
            *used += 1;
        }
        if count == 0 { number } else { number % count }
    }
}

macro_rules! numbers {
    ($($kind:ident)*) => {
        impl Dice {
            $(
                /// A number in a range.
                ///
                /// # Panics
                /// When the range is empty.
                pub fn $kind(&mut self, range: impl RangeBounds<$kind>) -> $kind {
                    let low = match range.start_bound() {
                        Bound::Included(low) => *low,
                        Bound::Excluded(low) => low.checked_add(1).expect("the range is not empty"),
                        Bound::Unbounded => $kind::MIN,
                    };
                    let high = match range.end_bound() {
                        Bound::Included(high) => *high,
                        Bound::Excluded(high) => high.checked_sub(1).expect("the range is not empty"),
                        Bound::Unbounded => $kind::MAX,
                    };
                    assert!(low <= high, "the range is not empty");
                    // All of 64 bits wraps to 0, which `below` takes for any number.
                    let count = (high as u64).wrapping_sub(low as u64).wrapping_add(1);
                    low.wrapping_add(self.below(count) as $kind)
                }
            )*
        }
    };
}

numbers! { u8 u32 u64 i64 usize }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_stay_in_their_range() {
        for mut dice in [Dice::seeded(7), Dice::bytes(&[0xff; 4000])] {
            for _ in 0..200 {
                assert!((3..9).contains(&dice.u8(3..9)));
                assert!(dice.usize(..=4) <= 4);
                assert!((-5..5).contains(&dice.i64(-5..5)));
                assert_eq!(dice.u32(77..78), 77);
                dice.u64(..);
            }
        }
    }

    #[test]
    fn bytes_are_used_sparingly_and_their_end_throws_the_lowest() {
        let mut dice = Dice::bytes(&[1, 2, 3]);
        assert_eq!((dice.u8(..10), dice.u32(..1000)), (1, 515));
        assert!(dice.is_used_up());
        assert_eq!((dice.u8(5..10), dice.bool()), (5, false));
        assert_eq!(Dice::bytes(&[]).u8(4..5), 4);
    }
}
