//! Choosing: the keys, values, expiries, numbers and uniques that commands of every protocol are made of.
//!
//! What no two memcacheds answer alike is not chosen. Nothing is said here, and the model is only looked at.

use super::{Conversation, Key};
use crate::model::{Compare, Mode};

impl Conversation<'_> {
    pub(super) fn key(&mut self, text_only: bool) -> Key {
        loop {
            let key = &self.keys[self.dice.usize(..self.keys.len())];
            if key.is_text || !text_only {
                return key.clone();
            }
        }
    }

    /// A key to count at. How long a number may be, spaces behind it included, is not said anywhere.
    pub(super) fn counted_key(&mut self, text_only: bool) -> Key {
        for _ in 0..10 {
            let key = self.key(text_only);
            let held = self.model.peek(&key.bytes, self.now);
            if held.is_none_or(|item| item.value.len() <= 20 || crate::model::number(&item.value).is_none()) {
                return key;
            }
        }
        // Spent dice throw the same key for ever.
        Key { bytes: b"counter".to_vec(), is_text: true }
    }

    pub(super) fn value(&mut self) -> Vec<u8> {
        match self.dice.u8(..20) {
            0..8 => (self.dice.u64(..) >> self.dice.u32(2..64)).to_string().into_bytes(),
            8 if self.scope.is_recent => u64::MAX.to_string().into_bytes(),
            9 => Vec::new(),
            10 => b"VALUE key0 0 1\r\nEND\r\n".to_vec(),
            11 => self.bytes(4000..20_000),
            12 if self.dice.u8(..4) == 0 => self.bytes(100_000..900_000),
            _ => self.bytes(1..300),
        }
    }

    /// Keeps append and prepend below the item limit, beyond which the answers are not the model's.
    pub(super) fn fitting(&mut self, mode: Mode, key: &Key, value: Vec<u8>) -> Vec<u8> {
        let there = self.model.peek(&key.bytes, self.now).map_or(0, |item| item.value.len());
        let fits = !matches!(mode, Mode::Append | Mode::Prepend) || there + value.len() < 900_000;
        if fits { value } else { b"5".to_vec() }
    }

    fn bytes(&mut self, count: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; self.dice.usize(count)];
        self.dice.fill(&mut bytes);
        // The first byte is no digit, so that the value is no number by chance.
        bytes[0] |= 0x80;
        bytes
    }

    pub(super) fn exptime(&mut self) -> i64 {
        match self.dice.u8(..12) {
            0..6 => 0,
            // Short lives only where the clock stands still between two moves.
            6 | 7 if !self.scope.moves_clock => 3000,
            6 | 7 => self.dice.i64(1..60),
            8 => 60 * 60 * 24 * 30,
            9 => self.now + self.dice.i64(1000..100_000),
            10 => self.now - self.dice.i64(1..100_000),
            _ => -1,
        }
    }

    /// In the binary protocol an expiry has no sign: -1 is a moment in the year 2106.
    pub(super) fn binary_exptime(&mut self) -> (u32, i64) {
        let exptime = self.exptime() as u32;
        (exptime, i64::from(exptime))
    }

    /// Times to live for the meta protocol.
    pub(super) fn lives(&self) -> [i64; 4] {
        if self.scope.moves_clock { [0, 30, 300, 3000] } else { [0, 3000, 4000, 5000] }
    }

    pub(super) fn delta(&mut self) -> u64 {
        match self.dice.u8(..5) {
            // memcached 1.6.18 looks for a minus sign in what follows a number of 2^63 or more in its memory, and may find one.
            _ if !self.scope.is_recent => self.dice.u64(..1 << 40),
            0 => u64::MAX,
            1 => self.dice.u64(..),
            _ => self.dice.u64(..200),
        }
    }

    /// A number to send as unique for a key, and how it compares with the item's.
    pub(super) fn unique(&mut self, key: &Key) -> Option<(u64, Compare)> {
        let version = self.model.peek(&key.bytes, self.now).map(|item| item.version);
        let current =
            version.and_then(|version| self.own.get(&version).or_else(|| self.uniques.get(&version)).copied());
        match self.dice.u8(..4) {
            0 => Some((u64::MAX - self.dice.u64(..1000), Compare::Newer)),
            1 => {
                let former = self.former.get(&key.bytes)?;
                let number = former[self.dice.usize(..former.len())];
                // Only when it is known to be below.
                current.filter(|current| number < *current).map(|_| (number, Compare::Older))
            }
            _ => current.map(|number| (number, Compare::Same)),
        }
    }

    /// Remembers a key's unique before it is written, so that it can be sent out of date.
    pub(super) fn retire(&mut self, key: &Key) {
        let Some(version) = self.model.peek(&key.bytes, self.now).map(|item| item.version) else { return };
        if let Some(number) = self.own.get(&version).or_else(|| self.uniques.get(&version)) {
            let former = self.former.entry(key.bytes.clone()).or_default();
            if !former.contains(number) {
                former.push(*number);
            }
        }
    }

    /// memcached stores a counted number anew while an answer that shows the item waits to be sent, and forgets its marks.
    pub(super) fn may_count(&self) -> bool {
        self.scope.is_ours || self.chosen == 0
    }

    pub(super) fn one_in(&mut self, of: u8) -> bool {
        self.dice.u8(..of) == 0
    }
}
