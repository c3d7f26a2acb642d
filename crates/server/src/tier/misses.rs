//! Keys that the backend was found to have no item of, for a short time: whoever asks for them again meanwhile asks in vain, and
//! the backend is not asked.
//!
//! Noted under the flights' lock, by a fetch that no change has passed, and dropped under it by every change; so what is noted here
//! was so when it was noted, and nothing that is known of has changed it since. Keys are whole: none is taken for another. Bounded:
//! a part that is full forgets.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::Key;

const SHARDS: usize = 16;
/// With keys of 250 bytes some 5 MB at most.
const KEYS_MAX: usize = 1024;

/// See the module.
pub(crate) struct Misses {
    ttl: Duration,
    hasher: RandomState,
    shards: [Mutex<HashMap<Key, Instant>>; SHARDS],
}

impl Misses {
    /// That are known for `ttl`.
    pub(crate) fn new(ttl: Duration) -> Misses {
        Misses { ttl, hasher: RandomState::new(), shards: Default::default() }
    }

    /// How long they are known.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// There is no item of `key`.
    pub(crate) fn note(&self, key: &[u8], now: Instant) {
        if self.ttl.is_zero() {
            return;
        }
        let mut shard = self.shard(key);
        if shard.len() >= KEYS_MAX {
            shard.retain(|_, until| *until > now);
        }
        if shard.len() >= KEYS_MAX {
            shard.clear();
        }
        shard.insert(key.into(), now + self.ttl);
    }

    /// Whether there is still no item of `key`.
    pub(crate) fn knows(&self, key: &[u8], now: Instant) -> bool {
        !self.ttl.is_zero() && self.shard(key).get(key).is_some_and(|until| *until > now)
    }

    /// There may be one now.
    pub(crate) fn drop_key(&self, key: &[u8]) {
        if !self.ttl.is_zero() {
            self.shard(key).remove(key);
        }
    }

    /// There may be items of all keys.
    pub(crate) fn forget(&self) {
        self.shards.iter().for_each(|shard| lock(shard).clear());
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, HashMap<Key, Instant>> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<HashMap<Key, Instant>>) -> MutexGuard<'_, HashMap<Key, Instant>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(100);

    #[test]
    fn a_miss_is_known_for_its_time_and_until_a_change() {
        let (misses, now) = (Misses::new(TTL), Instant::now());
        misses.note(b"a", now);
        misses.note(b"b", now);
        assert!(misses.knows(b"a", now + TTL / 2) && !misses.knows(b"c", now));
        assert!(!misses.knows(b"a", now + TTL));
        misses.drop_key(b"a");
        assert!(!misses.knows(b"a", now) && misses.knows(b"b", now));
        misses.forget();
        assert!(!misses.knows(b"b", now));
    }

    #[test]
    fn without_a_time_nothing_is_known() {
        let (misses, now) = (Misses::new(Duration::ZERO), Instant::now());
        misses.note(b"a", now);
        assert!(!misses.knows(b"a", now));
    }

    #[test]
    fn a_scan_of_absent_keys_is_bounded() {
        let (misses, now) = (Misses::new(TTL), Instant::now());
        for n in 0..SHARDS * KEYS_MAX * 3 {
            misses.note(n.to_string().as_bytes(), now);
        }
        let held: usize = misses.shards.iter().map(|shard| lock(shard).len()).sum();
        assert!(held > 0 && held <= SHARDS * KEYS_MAX, "{held}");
    }
}
