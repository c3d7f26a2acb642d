//! The meta protocol's get: lookup, touch, vivify and the right to recache, in one step that no other client can split.

use crate::{
    Seconds,
    place::Item,
    read::Hit,
    record::WON,
    store::Handle,
    write::{Condition, Published},
};

/// What a meta get does besides looking up. Letters are the flags of memcached's `doc/protocol.txt`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetaGet {
    /// `T`: the new expiry.
    pub touch: Option<Seconds>,
    /// `N`: on a miss, make an empty item with this expiry and win the right to fill it.
    pub vivify: Option<Seconds>,
    /// `R`: win the right to recache if fewer seconds than this are left.
    pub recache_below: Option<Seconds>,
    /// `R` stands behind `T`: what is left is counted by the new expiry.
    pub recache_after_touch: bool,
    /// Leave no trace of the access.
    pub no_bump: bool,
    /// `E`: the CAS unique of an item that is made.
    pub cas: Option<u64>,
}

/// What a meta get found.
pub struct MetaGetOutcome<'h> {
    /// The item.
    pub hit: Option<Hit<'h>>,
    /// It was made by this (`N`).
    pub created: bool,
    /// `W`: this client has won the right, and the duty, to recache.
    pub won: bool,
    /// `Z`: another client has won it before.
    pub token_already_sent: bool,
    /// `X`: the item was invalidated.
    pub stale: bool,
}

impl Handle {
    /// Looks an item up with the meta protocol's extras.
    pub fn meta_get(&mut self, key: &[u8], options: &MetaGet, now: Seconds) -> MetaGetOutcome<'_> {
        let mut created = false;
        if let Some(expiry) = options.vivify {
            // Look first: nearly always it is there.
            while self.peek(key, now).is_none() {
                match self.vivify(key, expiry, options.cas, now) {
                    Vivified::Made => {
                        created = true;
                        break;
                    }
                    Vivified::Present => {}
                    Vivified::NoMemory => break,
                }
            }
        }
        let counted_by = match options.touch {
            Some(expiry) if options.recache_after_touch => Some(expiry),
            Some(_) if options.recache_below.is_some() => self.peek(key, now).map(|hit| hit.expiry()),
            _ => None,
        };
        let hit = match options.touch {
            Some(expiry) if !created => self.get_touched(key, expiry, !options.no_bump, now),
            _ if options.no_bump => self.peek(key, now),
            _ => self.get(key, now),
        };
        let Some(hit) = hit else {
            return MetaGetOutcome { hit: None, created: false, won: false, token_already_sent: false, stale: false };
        };
        if created {
            return MetaGetOutcome {
                hit: Some(hit),
                created: true,
                won: true,
                token_already_sent: false,
                stale: false,
            };
        }
        let stale = hit.stale();
        let expiry = counted_by.unwrap_or(hit.expiry());
        let due =
            options.recache_below.is_some_and(|below| expiry != crate::NEVER && expiry.saturating_sub(now) < below);
        // Of all that come here at once, the one that sets the mark wins.
        let before = if (stale || due) && !hit.win_sent() { hit.set_marks(WON) } else { hit.win_sent() };
        let won = (stale || due) && !before;
        MetaGetOutcome { won, token_already_sent: before, stale, created: false, hit: Some(hit) }
    }

    fn vivify(&mut self, key: &[u8], expiry: Seconds, cas: Option<u64>, now: Seconds) -> Vivified {
        let Handle { store, reader, lane, counters, .. } = self;
        let (queue, rank) = store.admit(store.raw_hash(key), key.len());
        let mut item = Item::new(key, 0, expiry.max(now.saturating_add(1)), 0, now);
        item.cas = cas;
        item.marks = WON;
        let mut lane = lane.lock();
        let Some(placed) = store.place_copy(&mut lane, counters, queue, &item, now) else {
            counters.out_of_memory.add(1);
            return Vivified::NoMemory;
        };
        let published = {
            let _pin = reader.pin(&store.epochs);
            store.publish(counters, &placed, Condition::None, rank, false, now)
        };
        match published {
            Published::Done { .. } => Vivified::Made,
            Published::Refused(_) => {
                store.abandon(Some(&mut lane), placed);
                Vivified::NoMemory
            }
            Published::Changed | Published::NeedsCas(_) => {
                store.abandon(Some(&mut lane), placed);
                Vivified::Present
            }
        }
    }
}

enum Vivified {
    Made,
    Present,
    NoMemory,
}

impl Hit<'_> {
    /// Sets a mark now; answers whether it was set before.
    fn set_marks(&self, mark: u16) -> bool {
        self.record_ref().set_marks(mark).has(mark)
    }
}
