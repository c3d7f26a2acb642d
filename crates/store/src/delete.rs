//! Deleting, and marking stale instead.

use crate::{
    Seconds,
    record::{FETCHED, STALE, WON},
    store::Handle,
    touch::Rewritten,
};

/// How an item is deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions {
    /// Only if the item has this CAS unique.
    pub compare: Option<u64>,
    /// With `invalidate` or `drop_value`: the new CAS unique, instead of one the store chooses.
    pub cas: Option<u64>,
    /// Do not delete: mark stale, let the next client win the right to recache, and give a new CAS unique.
    pub invalidate: bool,
    /// With `invalidate` or `drop_value`: the new expiry.
    pub expiry: Option<Seconds>,
    /// Do not delete: drop the value, the client's flags and what is remembered of the item, and keep the rest.
    pub drop_value: bool,
}

/// What became of a deletion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteOutcome {
    /// Deleted, or changed as asked.
    Deleted,
    /// There is no such item.
    NotFound,
    /// The item has another CAS unique.
    Exists,
    /// No room for the changed copy.
    NoMemory,
}

impl Handle {
    /// Deletes an item, or changes it as `options` say.
    pub fn delete(&mut self, key: &[u8], options: &DeleteOptions, now: Seconds) -> DeleteOutcome {
        self.store.notice_flush(now);
        if options.invalidate || options.drop_value {
            return self.invalidate(key, options, now);
        }
        let store = &*self.store;
        let _pin = self.reader.pin(&store.epochs);
        let hash = store.hash(key);
        let mut shard = store.index.lock(hash);
        let Some(entry) = shard.find(hash, |place| store.record(place, store).key() == key) else {
            return DeleteOutcome::NotFound;
        };
        let record = store.record(entry.place, store);
        if let Err(miss) = store.visible(entry.place, &record, now) {
            store.drop_gone(&mut shard, entry, &record, miss, &self.counters);
            return DeleteOutcome::NotFound;
        }
        if let Some(wanted) = options.compare
            && record.cas().unwrap_or_else(|| store.log.history(entry.place)) != wanted
        {
            return DeleteOutcome::Exists;
        }
        store.bury(&mut shard, entry, &record, &self.counters);
        DeleteOutcome::Deleted
    }

    fn invalidate(&mut self, key: &[u8], options: &DeleteOptions, now: Seconds) -> DeleteOutcome {
        // A fresh CAS unique either way: who holds the old one must not be able to store with it.
        let cas = options.cas.unwrap_or_else(|| self.store.fresh_cas());
        loop {
            if let Some(wanted) = options.compare {
                let store = &*self.store;
                let _pin = self.reader.pin(&store.epochs);
                match store.look(store.hash(key), key, now) {
                    None => return DeleteOutcome::NotFound,
                    Some((seen, _)) if seen.cas != wanted => return DeleteOutcome::Exists,
                    Some(_) => {}
                }
            }
            let changed = std::cell::Cell::new(false);
            let done = self.rewrite(key, now, 0, |item| {
                // The copy carries a CAS unique only if it was shown; one that is to be compared was.
                changed.set(options.compare.is_some_and(|wanted| item.cas.is_some_and(|is| is != wanted)));
                if changed.get() {
                    return;
                }
                item.cas = Some(cas);
                if let Some(expiry) = options.expiry {
                    item.expiry = expiry.max(now.saturating_add(1));
                }
                if options.drop_value {
                    item.value_bytes = 0;
                    item.flags = 0;
                    item.marks &= !(FETCHED | STALE | WON);
                }
                if options.invalidate {
                    item.marks = (item.marks | STALE) & !WON;
                }
            });
            match done {
                Rewritten::Absent => return DeleteOutcome::NotFound,
                Rewritten::NoMemory => return DeleteOutcome::NoMemory,
                Rewritten::Done if changed.get() => {}
                Rewritten::Done => break,
            }
        }
        if options.expiry.is_some_and(|expiry| expiry <= now) {
            let _pin = self.reader.pin(&self.store.epochs);
            self.store.remove(&self.counters, key);
        }
        DeleteOutcome::Deleted
    }
}
