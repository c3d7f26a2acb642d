//! Which keys there are, how they are spelled, what is stored under them, and in which order they are asked for.
//!
//! A key is a number; its name, its value and its lifetime follow from it and the seed, so nothing is remembered for each.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use crate::amounts::{Amounts, mix, scaled};

/// Where in the pattern a value may begin. Small, so that the pattern stays in the nearest cache for small values.
const OFFSETS: u64 = 8192;

/// The names of keys.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    /// A prefix and the number, padded with zeros to the key's length.
    Numbered {
        /// What every key begins with.
        prefix: Vec<u8>,
        /// Lengths of keys, prefix included.
        key_bytes: Amounts,
    },
    /// Names from a file: `bytes[ends[id - 1]..ends[id]]`.
    Listed {
        /// All names, one after the other.
        bytes: Vec<u8>,
        /// Where each ends.
        ends: Vec<u32>,
    },
}

/// Lengths of values.
#[derive(Clone, Debug)]
pub(crate) enum Sizes {
    /// Drawn by the key's number.
    Drawn(Amounts),
    /// The length under each key's number.
    Each(Vec<u32>),
}

/// Keys and what belongs to them.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    names: Names,
    value_bytes: Sizes,
    ttl_seconds: Amounts,
    seed: u64,
    pattern: Vec<u8>,
}

impl Keys {
    /// `value_bytes_max` is the longest value there will be.
    pub(crate) fn new(names: Names, value_bytes: Sizes, ttl_seconds: Amounts, value_bytes_max: u32, seed: u64) -> Keys {
        let mut rng = SmallRng::seed_from_u64(mix(seed));
        let mut pattern = vec![0; OFFSETS as usize + value_bytes_max as usize];
        rng.fill(pattern.as_mut_slice());
        Keys { names, value_bytes, ttl_seconds, seed, pattern }
    }

    /// Appends a key's name.
    #[inline]
    pub(crate) fn push_name(&self, out: &mut Vec<u8>, id: u32) {
        match &self.names {
            Names::Numbered { prefix, key_bytes } => {
                let start = out.len();
                let end = start + key_bytes.of(mix(self.seed ^ (u64::from(id) << 20))) as usize;
                out.extend_from_slice(prefix);
                out.resize(end, b'0');
                let mut rest = id;
                for digit in out[start + prefix.len()..].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                    if rest == 0 {
                        break;
                    }
                }
            }
            Names::Listed { bytes, ends } => {
                let start = id.checked_sub(1).map_or(0, |before| ends[before as usize]);
                out.extend_from_slice(&bytes[start as usize..ends[id as usize] as usize]);
            }
        }
    }

    /// Length of a key's value.
    #[inline]
    pub(crate) fn value_bytes(&self, id: u32) -> u32 {
        match &self.value_bytes {
            Sizes::Drawn(amounts) => amounts.of(mix(self.seed ^ u64::from(id))),
            Sizes::Each(sizes) => sizes[id as usize],
        }
    }

    /// From now on the key's value has this length, where lengths are kept for each key.
    #[inline]
    pub(crate) fn set_value_bytes(&mut self, id: u32, value_bytes: u32) {
        if let Sizes::Each(sizes) = &mut self.value_bytes {
            sizes[id as usize] = value_bytes;
        }
    }

    /// A key's value.
    #[inline]
    pub(crate) fn value(&self, id: u32) -> &[u8] {
        let value_bytes = self.value_bytes(id);
        let start = scaled(mix(!self.seed ^ u64::from(id)), OFFSETS) as usize;
        &self.pattern[start..start + value_bytes as usize]
    }

    /// Seconds that a key's item lives, 0 for ever.
    #[inline]
    pub(crate) fn ttl_seconds(&self, id: u32) -> u32 {
        self.ttl_seconds.of(mix(self.seed.rotate_left(32) ^ u64::from(id)))
    }
}

/// In which order keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// Each key as likely as any other.
    Uniform,
    /// By Zipf's law with this exponent: the n-th most popular key has the weight n^-s.
    Zipf(f64),
    /// One after the other.
    Sequential,
}

/// Chooses keys for one connection.
pub(crate) struct Chooser {
    keys: u32,
    rng: SmallRng,
    order: Choose,
}

enum Choose {
    Uniform,
    Zipf { zipf: Zipf<f64>, step: u64 },
    Sequential { next: u32, first: u32, end: u32 },
}

impl Chooser {
    /// For connection `lane` of `lanes`. Connections that go in sequence share the keys out between them.
    pub(crate) fn new(order: Order, keys: u32, seed: u64, lane: u32, lanes: u32) -> Chooser {
        let order = match order {
            Order::Uniform => Choose::Uniform,
            Order::Zipf(exponent) => {
                let zipf = Zipf::new(f64::from(keys), exponent).expect("the settings checked keys and exponent");
                Choose::Zipf { zipf, step: coprime(u64::from(keys)) }
            }
            Order::Sequential => {
                let (first, end) = share(keys, lane, lanes);
                Choose::Sequential { next: first, first, end }
            }
        };
        let rng = SmallRng::seed_from_u64(mix(seed) ^ mix(u64::from(lane)));
        Chooser { keys, rng, order }
    }

    /// The next key.
    #[inline]
    pub(crate) fn key(&mut self) -> u32 {
        match &mut self.order {
            Choose::Uniform => scaled(self.rng.random(), u64::from(self.keys)) as u32,
            Choose::Zipf { zipf, step } => {
                let rank = zipf.sample(&mut self.rng) as u64 - 1;
                // Popular keys are spread over all numbers, lest they lie together in the order they were stored in.
                (rank.min(u64::from(self.keys) - 1) * *step % u64::from(self.keys)) as u32
            }
            Choose::Sequential { next, first, end } => {
                let key = *next;
                *next = if key + 1 >= *end { *first } else { key + 1 };
                key
            }
        }
    }

    /// Evenly from `0..bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        scaled(self.rng.random(), u64::from(bound)) as u32
    }

    /// Time until the next arrival of a Poisson process, as a multiple of the mean.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.rng.random::<f64>()).ln()
    }
}

/// The part of `0..count` that belongs to `lane` of `lanes`; never empty, so with more lanes than keys some share one.
pub(crate) fn share(count: u32, lane: u32, lanes: u32) -> (u32, u32) {
    let at = |lane: u32| (u64::from(count) * u64::from(lane) / u64::from(lanes)) as u32;
    let first = at(lane).min(count - 1);
    (first, at(lane + 1).max(first + 1))
}

/// A number that shares no factor with `count`, so that its multiples modulo `count` meet every number once.
fn coprime(count: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // From the golden section on: neighbours in rank land far apart.
    let start = (count as f64 * 0.618) as u64 | 1;
    (start..).find(|&step| gcd(step, count) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(key_bytes: &str, value_bytes: &str) -> Keys {
        let names = Names::Numbered { prefix: b"key:".to_vec(), key_bytes: Amounts::parse(key_bytes).unwrap() };
        let value_bytes = Amounts::parse(value_bytes).unwrap();
        let max = value_bytes.max();
        Keys::new(names, Sizes::Drawn(value_bytes), Amounts::Fixed(0), max, 1)
    }

    fn name(keys: &Keys, id: u32) -> Vec<u8> {
        let mut out = b"before ".to_vec();
        keys.push_name(&mut out, id);
        out[7..].to_vec()
    }

    #[test]
    fn names_are_padded_to_their_length_and_differ() {
        assert_eq!(name(&numbered("16", "1"), 42), b"key:000000000042");
        assert_eq!(name(&numbered("5", "1"), 7), b"key:7");
        let keys = numbered("10-30", "1");
        let names: std::collections::HashSet<_> = (0..5000).map(|id| name(&keys, id)).collect();
        assert_eq!(names.len(), 5000);
        assert!(names.iter().all(|name| (10..=30).contains(&name.len())));
        let listed = Names::Listed { bytes: b"onetwothree".to_vec(), ends: vec![3, 6, 11] };
        let keys = Keys::new(listed, Sizes::Each(vec![1, 2, 3]), Amounts::Fixed(0), 3, 1);
        assert_eq!((name(&keys, 0), name(&keys, 2)), (b"one".to_vec(), b"three".to_vec()));
    }

    #[test]
    fn values_belong_to_their_keys() {
        let keys = numbered("16", "20-2000");
        assert_eq!(keys.value(5), keys.value(5));
        assert!((0..100).all(|id| (20..=2000).contains(&keys.value(id).len())));
        assert_ne!(keys.value(5)[..20], keys.value(6)[..20]);
        let mut sized = Keys { value_bytes: Sizes::Each(vec![3; 10]), ..keys };
        assert_eq!(sized.value(5).len(), 3);
        sized.set_value_bytes(5, 30);
        assert_eq!((sized.value(5).len(), sized.value(6).len()), (30, 3));
    }

    #[test]
    fn uniform_choice_meets_every_key_about_as_often() {
        let mut chooser = Chooser::new(Order::Uniform, 10, 1, 0, 1);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[chooser.key() as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipf_choice_follows_the_law() {
        let mut chooser = Chooser::new(Order::Zipf(1.0), 1000, 1, 0, 1);
        let mut counts = vec![0u32; 1000];
        (0..100_000).for_each(|_| counts[chooser.key() as usize] += 1);
        assert!(counts.iter().filter(|&&count| count > 0).count() > 950, "nearly every key is met");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The weights' sum is the 1000th harmonic number, 7.485.
        for (rank, share) in [(1.0, 0.1336), (2.0, 0.0668), (10.0, 0.01336)] {
            let seen = f64::from(counts[rank as usize - 1]) / 100_000.0;
            assert!((seen - share).abs() < share * 0.15, "rank {rank}: {seen}, expected {share}");
        }
    }

    #[test]
    fn sequential_choices_share_the_keys_out() {
        let mut seen = Vec::new();
        for lane in 0..3 {
            let mut chooser = Chooser::new(Order::Sequential, 10, 1, lane, 3);
            let (first, end) = share(10, lane, 3);
            seen.extend((first..end).map(|_| chooser.key()));
            assert_eq!(chooser.key(), first, "it begins anew");
        }
        assert_eq!(seen, (0..10).collect::<Vec<u32>>());
        assert_eq!(share(2, 4, 5), (1, 2), "more connections than keys share keys");
    }

    #[test]
    fn the_same_seed_chooses_the_same_keys() {
        let draw = |seed, lane| {
            let mut chooser = Chooser::new(Order::Zipf(0.9), 1000, seed, lane, 2);
            (0..50).map(|_| chooser.key()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
    }
}
