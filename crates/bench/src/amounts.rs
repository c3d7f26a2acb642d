//! How large keys and values are, and how long items live: fixed, from a range, or drawn from a list.
//!
//! An amount belongs to a key, not to a request: asked twice for the same key it is the same, so whoever checks an answer
//! knows what was stored. Nothing is remembered for it; the amount is computed from the key's number.

use std::fs;

/// A distribution of amounts over keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Amounts {
    /// The same for every key.
    Fixed(u32),
    /// Uniform from the first to the last, both included.
    Range(u32, u32),
    /// One of these, each as likely as it is frequent.
    List(Vec<u32>),
}

impl Amounts {
    /// From the command line: `100`, `100-2000`, `5,60,3600`, or `@FILE` with one amount in each line.
    pub(crate) fn parse(text: &str) -> Result<Amounts, String> {
        if let Some(path) = text.strip_prefix('@') {
            let lines = fs::read_to_string(path).map_err(|error| format!("expected to read {path}: {error}"))?;
            let words = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            return Amounts::list(words).map_err(|problem| format!("{path}: {problem}"));
        }
        if text.contains(',') {
            return Amounts::list(text.split(','));
        }
        match text.split_once('-') {
            None => Ok(Amounts::Fixed(number(text)?)),
            Some((low, high)) => match (number(low)?, number(high)?) {
                (low, high) if low < high => Ok(Amounts::Range(low, high)),
                (low, high) if low == high => Ok(Amounts::Fixed(low)),
                (low, high) => Err(format!("expected a range from low to high, it is {low}-{high}")),
            },
        }
    }

    fn list<'a>(words: impl Iterator<Item = &'a str>) -> Result<Amounts, String> {
        let list = words.map(number).collect::<Result<Vec<u32>, String>>()?;
        if list.is_empty() { Err("expected at least one number".to_owned()) } else { Ok(Amounts::List(list)) }
    }

    /// The amount of the key with this hash.
    #[inline]
    pub(crate) fn of(&self, hash: u64) -> u32 {
        match self {
            Amounts::Fixed(amount) => *amount,
            Amounts::Range(low, high) => low + scaled(hash, u64::from(high - low) + 1) as u32,
            Amounts::List(list) => list[scaled(hash, list.len() as u64) as usize],
        }
    }

    /// The smallest there is.
    pub(crate) fn min(&self) -> u32 {
        match self {
            Amounts::Fixed(amount) | Amounts::Range(amount, _) => *amount,
            Amounts::List(list) => list.iter().copied().min().unwrap_or(0),
        }
    }

    /// The largest there is.
    pub(crate) fn max(&self) -> u32 {
        match self {
            Amounts::Fixed(amount) | Amounts::Range(_, amount) => *amount,
            Amounts::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }
}

impl std::fmt::Display for Amounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Amounts::Fixed(amount) => write!(f, "{amount}"),
            Amounts::Range(low, high) => write!(f, "{low} to {high}"),
            Amounts::List(list) => write!(f, "{} to {} ({} listed)", self.min(), self.max(), list.len()),
        }
    }
}

/// A well mixed hash of a number (the finalizer of SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash brought down to `0..bound` by multiplication.
#[inline]
pub(crate) fn scaled(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

fn number(word: &str) -> Result<u32, String> {
    let word = word.trim();
    word.parse().map_err(|_| format!("expected a number below 4294967296, it is {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_understood_and_stays_in_its_bounds() {
        for (text, low, high) in
            [("7", 7, 7), ("3-5", 3, 5), ("9,2,9", 2, 9), ("4-4", 4, 4), ("0-4294967295", 0, u32::MAX)]
        {
            let amounts = Amounts::parse(text).unwrap();
            assert_eq!((amounts.min(), amounts.max()), (low, high));
            let drawn: Vec<u32> = (0..1000).map(|id| amounts.of(mix(id))).collect();
            assert!(drawn.iter().all(|amount| (low..=high).contains(amount)));
            if high < 10 {
                assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&low), Some(&high)), "{text}");
            }
            assert_eq!(drawn[17], amounts.of(mix(17)), "a key keeps its amount");
        }
    }

    #[test]
    fn a_list_may_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "# sizes\n10\n\n30\n").unwrap();
        let text = format!("@{}", file.path().display());
        assert_eq!(Amounts::parse(&text).unwrap(), Amounts::List(vec![10, 30]));
    }

    #[test]
    fn what_is_no_amount_says_so() {
        assert_eq!(Amounts::parse("x").unwrap_err(), "expected a number below 4294967296, it is \"x\"");
        assert_eq!(Amounts::parse("5-3").unwrap_err(), "expected a range from low to high, it is 5-3");
        assert!(Amounts::parse("@/no/such/file").unwrap_err().starts_with("expected to read /no/such/file: "));
    }
}
