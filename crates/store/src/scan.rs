//! Walking over all items, for dumps.
//!
//! Shard by shard: the keys of one are noted under its lock and then looked up one by one without it, so that an item
//! that is there all the time is visited exactly once, wherever eviction moves it meanwhile.

use crate::{Seconds, read::Hit, store::Handle};

/// Items visited in one step.
const BATCH: usize = 64;

/// How far a walk has come.
#[derive(Debug, Default)]
pub struct Cursor {
    shard: usize,
    /// Keys of the current shard that were not visited yet: each behind its length.
    keys: Vec<u8>,
    at: usize,
}

impl Handle {
    /// Visits the next few items. False: there are no more.
    pub fn scan(&mut self, cursor: &mut Cursor, now: Seconds, visit: &mut dyn FnMut(&Hit<'_>)) -> bool {
        while cursor.at == cursor.keys.len() {
            let store = &self.store;
            if cursor.shard == store.index.shards() {
                return false;
            }
            cursor.keys.clear();
            cursor.at = 0;
            let shard = store.index.lock_shard(cursor.shard);
            for place in shard.places() {
                let key = store.record(place, &shard).key();
                cursor.keys.push(key.len() as u8);
                cursor.keys.extend_from_slice(key);
            }
            cursor.shard += 1;
        }
        for _ in 0..BATCH {
            let Some(&bytes) = cursor.keys.get(cursor.at) else { break };
            let start = cursor.at + 1;
            cursor.at = start + usize::from(bytes);
            if let Some(hit) = self.peek(&cursor.keys[start..cursor.at], now) {
                visit(&hit);
            }
        }
        true
    }
}
