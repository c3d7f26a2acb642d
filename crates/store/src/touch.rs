//! Touching: another expiry for an item. An item lies among others that expire when it does, so it moves; its CAS
//! unique, marks and rank go with it.

use crate::{
    Seconds,
    forget::Tags,
    place::Item,
    read::Hit,
    record::{KEPT_BY_COPIES, encode_access},
    store::{Handle, Miss, Store},
    write::{Condition, Published, Seen},
};

/// What becomes of an item that is rewritten with a change.
pub(crate) enum Rewritten {
    /// Published; the new CAS unique.
    Done,
    /// There is no such item.
    Absent,
    /// No room for the copy.
    NoMemory,
}

impl Handle {
    /// Sets an item's expiry. False: there is no such item.
    pub fn touch(&mut self, key: &[u8], expiry: Seconds, now: Seconds) -> bool {
        self.get_and_touch(key, expiry, now).is_some()
    }

    /// Sets an item's expiry and answers the item. Its CAS unique stays.
    pub fn get_and_touch(&mut self, key: &[u8], expiry: Seconds, now: Seconds) -> Option<Hit<'_>> {
        self.get_touched(key, expiry, true, now)
    }

    /// [`get_and_touch`](Handle::get_and_touch), and whether that counts as an access.
    pub(crate) fn get_touched(&mut self, key: &[u8], expiry: Seconds, bump: bool, now: Seconds) -> Option<Hit<'_>> {
        self.store.notice_flush(now);
        // Marks before this access belong to the answer, so they are read before anything changes.
        let store = &self.store;
        let hash = store.hash(key);
        let (marks, same) = {
            let _pin = self.reader.pin(&store.epochs);
            match store.look(hash, key, now) {
                Some((seen, record)) => (record.marks(), seen.expiry == expiry),
                None => {
                    self.miss = Miss::Absent;
                    return None;
                }
            }
        };
        if !same && expiry > now {
            match self.rewrite(key, now, KEPT_BY_COPIES, |item| item.expiry = expiry) {
                Rewritten::Done | Rewritten::NoMemory => {}
                Rewritten::Absent => {
                    self.miss = Miss::Absent;
                    return None;
                }
            }
        }
        let Handle { store, reader, counters, .. } = self;
        let pin = reader.pin(&store.epochs);
        let (seen, record) = store.look(hash, key, now)?;
        if bump {
            record.note_access(record.marks(), encode_access(store.segment_of(seen.place).opened(), now));
        }
        if expiry <= now {
            // Shown once more, and gone: the pin keeps the record readable.
            store.remove(counters, key);
        }
        // The record's borrow is tied to the store, which the pin outlives.
        Some(Hit::new(store, Some(pin), seen.place, record, seen.expiry, marks))
    }

    /// Replaces an item by a copy of itself with `change` applied. The value is copied if `item.value_bytes` is left as
    /// it is; set to 0 it is dropped. Marks of `carry` are those of the original at the moment it is replaced.
    pub(crate) fn rewrite(
        &mut self,
        key: &[u8],
        now: Seconds,
        carry: u16,
        change: impl Fn(&mut Item<'_>),
    ) -> Rewritten {
        let Handle { store, reader, lane, counters, .. } = self;
        let store: &Store = store;
        let hash = store.hash(key);
        let mut lane = lane.lock();
        loop {
            let tags;
            let (seen, mut item): (Seen, Item<'_>) = {
                let _pin = reader.pin(&store.epochs);
                let Some((seen, record)) = store.look(hash, key, now) else { return Rewritten::Absent };
                let mut item = store.copy_of(seen.place, &record);
                change(&mut item);
                tags = Tags::of(&record);
                (seen, Item { key, tags: &[], ..item })
            };
            item.last_access = now;
            item.tags = Tags::bytes_of(tags.as_deref());
            let Some(placed) = store.place_copy(&mut lane, counters, seen.queue, &item, now) else {
                return Rewritten::NoMemory;
            };
            let pin = reader.pin(&store.epochs);
            let published = match store.look(hash, key, now) {
                Some((again, record)) if again.place == seen.place && again.sequence == seen.sequence => {
                    if item.value_bytes == record.value_bytes() {
                        store.copy_value_to(again.place, &record, &placed, 0);
                    }
                    let same = Condition::Same { place: seen.place, sequence: seen.sequence, carry };
                    store.publish(counters, &placed, same, 0, false, now)
                }
                _ => Published::Changed,
            };
            drop(pin);
            // A CAS unique that has to be written out is one the next copy carries anyway.
            match store.conclude(&mut lane, placed, published, &mut None) {
                Some(Ok(_)) => {
                    // Not a new item.
                    counters.total_items.add(-1);
                    return Rewritten::Done;
                }
                Some(Err(_)) => return Rewritten::NoMemory,
                None => {}
            }
        }
    }
}
