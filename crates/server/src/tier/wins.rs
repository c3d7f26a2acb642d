//! Wins that nobody could be told of.
//!
//! memcached shows `W` to the first meta get of an item that was invalidated, and takes it from the item. A tier fetches
//! by meta gets also for clients that speak another protocol and know nothing of wins: theirs are kept here, for the next
//! client that is shown that another has won. A win is of one version of an item, which its CAS unique names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::Key;

/// More are not kept: who does not come for them in time goes without.
const WINS_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct Wins {
    by_key: Mutex<HashMap<Key, u64>>,
    /// How many there are, so that nobody takes the lock where there are none.
    count: AtomicUsize,
}

impl Wins {
    /// Keeps the win of `key` with this CAS unique.
    pub(crate) fn put(&self, key: &[u8], cas: u64) {
        let mut by_key = self.lock();
        if by_key.len() >= WINS_MAX {
            by_key.clear();
        }
        by_key.insert(key.into(), cas);
        self.count.store(by_key.len(), Ordering::Relaxed);
    }

    /// Takes the win of `key`, if there is one and, where that is known, of this CAS unique.
    pub(crate) fn take(&self, key: &[u8], cas: Option<u64>) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut by_key = self.lock();
        let is_kept = by_key.remove(key).is_some_and(|kept| cas.is_none_or(|cas| cas == kept));
        self.count.store(by_key.len(), Ordering::Relaxed);
        is_kept
    }

    /// The item of `key` was counted up or down, which leaves its marks and gives it another CAS unique: the win is of that
    /// from now on. One whose unique is not told is forgotten.
    pub(crate) fn renew(&self, key: &[u8], cas: Option<u64>) {
        if self.take(key, None)
            && let Some(cas) = cas
        {
            self.put(key, cas);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_win_is_given_once_and_only_for_its_version() {
        let wins = Wins::default();
        wins.put(b"k", 7);
        assert!(!wins.take(b"other", None));
        assert!(wins.take(b"k", Some(7)));
        assert!(!wins.take(b"k", Some(7)));
        wins.put(b"k", 7);
        assert!(!wins.take(b"k", Some(8)), "the item is another by now");
        assert!(!wins.take(b"k", None));
        wins.renew(b"k", Some(9));
        assert!(!wins.take(b"k", Some(9)), "there was none");
        wins.put(b"k", 7);
        wins.renew(b"k", Some(9));
        assert!(wins.take(b"k", Some(9)));
        wins.put(b"k", 7);
        wins.renew(b"k", None);
        assert!(!wins.take(b"k", None));
        for number in 0..WINS_MAX + 1 {
            wins.put(number.to_string().as_bytes(), 1);
        }
        assert_eq!(wins.lock().len(), 1);
    }
}
