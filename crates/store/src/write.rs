//! Writing whole items: set, add, replace, append, prepend, cas, and values that arrive in pieces.
//!
//! Every write goes the same way: look (without a lock), place the new record, and publish it under the shard's lock if
//! what was seen is still so; otherwise begin again. Nothing is ever changed in place, so a reader has either the old
//! record or the new one.

use std::sync::Arc;

use crate::{
    Seconds,
    forget::Tags,
    index::{Hash, Place},
    log::{Lane, Purpose},
    place::{Item, Placed},
    record::{CAS_SEEN, RecordRef, STALE, WON},
    segment::Queue,
    stats::Counters,
    store::{Handle, Store},
};

/// What is to happen when there is, or is not, an item already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetMode {
    /// Store in any case.
    #[default]
    Set,
    /// Store only a new item.
    Add,
    /// Store only over an item.
    Replace,
    /// Put the value behind that of an item.
    Append,
    /// Put the value before that of an item.
    Prepend,
}

/// How an item is stored.
#[derive(Clone, Copy, Debug)]
pub struct SetOptions {
    /// See [`SetMode`].
    pub mode: SetMode,
    /// The client's flags. Append and prepend keep the item's own.
    pub flags: u32,
    /// When it expires: an absolute second, or [`NEVER`](crate::NEVER). Append and prepend keep the item's own.
    pub expiry: Seconds,
    /// Store only if the item has this CAS unique.
    pub compare: Option<u64>,
    /// The new CAS unique, instead of one the store chooses.
    pub cas: Option<u64>,
    /// With `compare`: store also if the item's CAS unique is higher, and mark it stale (meta protocol, `I`). It then keeps
    /// the expiry of the item it replaces, and whether a client was told to recache that.
    pub invalidate: bool,
    /// Append and prepend: store the value as a new item with this expiry if there is none.
    pub vivify: Option<Seconds>,
    /// Will the new CAS unique be shown to a client?
    pub want_cas: bool,
}

impl Default for SetOptions {
    fn default() -> Self {
        SetOptions {
            mode: SetMode::Set,
            flags: 0,
            expiry: crate::NEVER,
            compare: None,
            cas: None,
            invalidate: false,
            vivify: None,
            want_cas: false,
        }
    }
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetOutcome {
    /// Stored; with the new CAS unique if it was wanted, else 0.
    Stored {
        /// See [`SetOptions::want_cas`].
        cas: u64,
    },
    /// Add found an item, or replace, append or prepend found none; or there is no room for what append or prepend would make.
    NotStored,
    /// The item has another CAS unique.
    Exists,
    /// A CAS unique was to be compared, and there is no item.
    NotFound,
    /// No room could be made. A plain set has removed the old item, so that nothing outdated is served.
    NoMemory,
    /// Larger than the item limit. A plain set has removed the old item.
    TooLarge,
}

/// What a look without a lock saw of a key's item.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) place: Place,
    pub(crate) sequence: u64,
    pub(crate) queue: Queue,
    pub(crate) cas: u64,
    pub(crate) expiry: Seconds,
}

/// What publishing came to.
pub(crate) enum Published {
    Done {
        cas: u64,
    },
    Refused(SetOutcome),
    /// The item is not the one that was looked at any more.
    Changed,
    /// The record's place gives a CAS unique below one a client has seen of this key: place it anew with this one.
    NeedsCas(u64),
}

/// What publishing has to check.
#[derive(Clone, Copy)]
pub(crate) enum Condition<'o> {
    /// The rules of a write.
    Options(&'o SetOptions),
    /// The item is still this one, whose marks of `carry` the new one takes over as they are by then.
    Same { place: Place, sequence: u64, carry: u16 },
    /// There is still none.
    None,
}

/// Decides a write from the CAS unique of the item there is. `Ok(true)`: store, and mark the new item stale.
fn judge(options: &SetOptions, present: Option<u64>) -> Result<bool, SetOutcome> {
    use SetMode::{Add, Append, Prepend, Replace, Set};
    match (present, options.mode) {
        (Some(_), Add) => Err(SetOutcome::NotStored),
        (Some(cas), _) => match options.compare {
            Some(wanted) if wanted == cas => Ok(false),
            Some(wanted) if options.invalidate && wanted < cas && matches!(options.mode, Set | Replace) => Ok(true),
            Some(_) => Err(SetOutcome::Exists),
            None => Ok(false),
        },
        (None, Set | Replace) if options.compare.is_some() => Err(SetOutcome::NotFound),
        (None, Set | Add) => Ok(false),
        (None, Append | Prepend) if options.vivify.is_some() => Ok(false),
        (None, Replace | Append | Prepend) => Err(SetOutcome::NotStored),
    }
}

/// The answer to a write that was done.
fn stored(options: &SetOptions, cas: u64) -> SetOutcome {
    SetOutcome::Stored { cas: if options.want_cas { cas } else { 0 } }
}

impl Store {
    /// Where a new item begins, and with which rank.
    pub(crate) fn admit(&self, raw_hash: u64, bytes: usize) -> (Queue, u8) {
        self.policy.admit(raw_hash, bytes, self.index.entries_about())
    }

    /// Looks without a lock. The caller is pinned and stays so while it uses the record.
    pub(crate) fn look<'p>(&'p self, hash: Hash, key: &[u8], now: Seconds) -> Option<(Seen, RecordRef<'p>)> {
        let mut record = None;
        let found = self.index.find(hash, |place| {
            self.log.prefetch_read(place);
            let candidate = self.record(place, self);
            record = Some(candidate);
            candidate.key() == key
        })?;
        let record = record?;
        let expiry = self.visible(found.place, &record, now).ok()?;
        let segment = self.segment_of(found.place);
        let seen = Seen {
            place: found.place,
            sequence: segment.sequence(),
            queue: segment.queue(),
            cas: record.cas().unwrap_or_else(|| self.log.history(found.place)),
            expiry,
        };
        Some((seen, record))
    }

    /// Makes a placed record the item of its key, if `condition` holds. The caller is pinned. A record that is not
    /// published stays the caller's to abandon. A key that has no item yet starts with `rank`.
    pub(crate) fn publish(
        &self,
        counters: &Counters,
        placed: &Placed,
        condition: Condition<'_>,
        rank: u8,
        want_cas: bool,
        now: Seconds,
    ) -> Published {
        let new = self.record(placed.place, placed);
        let key = new.key();
        let raw_hash = self.raw_hash(key);
        let hash = self.index.hash(raw_hash);
        let mut shard = self.index.lock(hash);
        let entry = shard.find(hash, |place| self.record(place, self).key() == key);
        let old = entry.map(|entry| (entry, self.record(entry.place, self)));
        let miss = old.and_then(|(entry, record)| self.visible(entry.place, &record, now).err());
        let present = old.filter(|_| miss.is_none());
        // Forgotten before it was there: what is decided here would have to come before that, and what it is decided on
        // may come after it.
        if self.log.newest_watermark() != 0 && self.is_forgotten(self.segment_of(placed.place), new) {
            return Published::Changed;
        }
        let cas_of = |place: Place, record: &RecordRef<'_>| record.cas().unwrap_or_else(|| self.log.history(place));
        let present_cas = present.map(|(entry, record)| cas_of(entry.place, &record));
        match condition {
            Condition::Options(options) => match judge(options, present_cas) {
                Err(outcome) => return Published::Refused(outcome),
                // It has to be placed with the old item's expiry, so it has to be looked at first.
                Ok(true) => return Published::Changed,
                Ok(false) => {}
            },
            Condition::Same { place, sequence, .. } => {
                if !present
                    .is_some_and(|(entry, _)| entry.place == place && self.segment_of(place).sequence() == sequence)
                {
                    return Published::Changed;
                }
            }
            Condition::None => {
                if present.is_some() {
                    return Published::Changed;
                }
            }
        }
        let cas = cas_of(placed.place, &new);
        if let (Some((_, record)), Some(old_cas)) = (present, present_cas)
            && new.cas().is_none()
            && cas <= old_cas
            && record.marks().has(CAS_SEEN)
        {
            return Published::NeedsCas(self.fresh_cas());
        }
        let mut marks = if want_cas { CAS_SEEN } else { 0 };
        if let (Condition::Same { carry, .. }, Some((_, record))) = (condition, present) {
            let carried = record.marks().kept_by_copies() & carry;
            if carried & CAS_SEEN != 0 && new.cas().is_none() {
                // Shown to a client since the copy was sized: it has to be written out after all.
                return Published::Changed;
            }
            marks |= carried;
        }
        // In this order, and all under the lock: a crash in between leaves two records alive, of which a start drops both.
        new.come_alive(marks);
        match old {
            Some((entry, record)) => {
                shard.replace(entry, placed.place, if present.is_some() { entry.rank } else { rank });
                record.die();
            }
            None => {
                if shard.insert(hash, placed.place, rank).is_err() {
                    return Published::Refused(SetOutcome::NoMemory);
                }
            }
        }
        drop(shard);
        if let Some((entry, record)) = old {
            // The pin keeps the old record where it is, so the shard need not stay locked for its end.
            if let Some(miss) = miss {
                counters.gone(miss, record.marks().has(crate::record::FETCHED));
            }
            let bytes = record.record_bytes();
            self.end_parts(entry.place, bytes);
            self.note_death();
            counters.items.add(-1);
            counters.bytes.add(-(bytes as i64));
        }
        counters.items.add(1);
        counters.total_items.add(1);
        counters.bytes.add(placed.record_bytes as i64);
        self.settle(placed);
        Published::Done { cas }
    }

    /// Ends a placed record by what publishing it came to: with the CAS unique of the item, or with why there is none.
    /// `None`: it was abandoned, and the write begins again, with the CAS unique in `cas` if one has to be written out.
    pub(crate) fn conclude(
        &self,
        lane: &mut Lane,
        placed: Placed,
        published: Published,
        cas: &mut Option<u64>,
    ) -> Option<Result<u64, SetOutcome>> {
        match published {
            Published::Done { cas } => return Some(Ok(cas)),
            Published::Refused(outcome) => {
                self.abandon(Some(lane), placed);
                return Some(Err(outcome));
            }
            Published::NeedsCas(fresh) => *cas = Some(fresh),
            Published::Changed => {}
        }
        self.abandon(Some(lane), placed);
        None
    }

    /// Removes the item of a key, if there is one, whatever it is. The caller is pinned.
    pub(crate) fn remove(&self, counters: &Counters, key: &[u8]) {
        let hash = self.hash(key);
        let mut shard = self.index.lock(hash);
        if let Some(entry) = shard.find(hash, |place| self.record(place, self).key() == key) {
            let record = self.record(entry.place, self);
            self.bury(&mut shard, entry, &record, counters);
        }
    }
}

impl Handle {
    /// Stores an item, or does not, as `options` say.
    #[inline]
    pub fn set(&mut self, key: &[u8], value: &[u8], options: &SetOptions, now: Seconds) -> SetOutcome {
        self.set_with(key, value, options, &[], now)
    }

    /// See [`Handle::set_tagged`].
    pub(crate) fn set_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: &SetOptions,
        tags: &[u8],
        now: Seconds,
    ) -> SetOutcome {
        self.store.notice_flush(now);
        if matches!(options.mode, SetMode::Append | SetMode::Prepend) {
            return self.extend(key, options, tags, now, value.len(), &|store, placed, at| {
                store.write_value(placed, at, value);
            });
        }
        self.put(key, value.len(), options, tags, now, &|store, placed| store.write_value(placed, 0, value))
    }

    /// The ordinary way of a write, with the value filled in by `fill`.
    fn put(
        &mut self,
        key: &[u8],
        value_bytes: usize,
        options: &SetOptions,
        tags: &[u8],
        now: Seconds,
        fill: &dyn Fn(&Store, &Placed),
    ) -> SetOutcome {
        if self.too_large(key, value_bytes) {
            return self.refuse(key, options, SetOutcome::TooLarge);
        }
        let Handle { store, reader, lane, counters, .. } = self;
        let raw_hash = store.raw_hash(key);
        let hash = store.index.hash(raw_hash);
        let mut item = Item::new(key, options.flags, options.expiry, value_bytes, now);
        item.cas = options.cas;
        item.tags = tags;
        let mut lane = lane.lock();
        loop {
            let seen = {
                let _pin = reader.pin(&store.epochs);
                store.look(hash, key, now).map(|(seen, _)| seen)
            };
            let stays_stale = match judge(options, seen.map(|seen| seen.cas)) {
                Err(outcome) => return outcome,
                Ok(stale) => seen.filter(|_| stale),
            };
            let condition = match stays_stale {
                // A value older than what the client knew: it may be served, but only for as long as the old one.
                Some(old) => {
                    (item.expiry, item.marks) = (old.expiry, STALE);
                    Condition::Same { place: old.place, sequence: old.sequence, carry: WON }
                }
                None => {
                    (item.expiry, item.marks) = (options.expiry, 0);
                    Condition::Options(options)
                }
            };
            // One that has expired already is stored all the same: whoever asks is told why it is not there, and its
            // memory comes back with the next second's.
            item.expiry = item.expiry.max(now);
            let (queue, rank) = match seen {
                Some(seen) => (seen.queue, 0),
                None => store.admit(raw_hash, key.len() + value_bytes),
            };
            let Some(placed) = store.place(&mut lane, counters, queue, &item, Purpose::Write, false, now) else {
                counters.out_of_memory.add(1);
                drop(lane);
                return self.refuse(key, options, SetOutcome::NoMemory);
            };
            fill(store, &placed);
            let pin = reader.pin(&store.epochs);
            let published = store.publish(counters, &placed, condition, rank, options.want_cas, now);
            drop(pin);
            if let Some(outcome) = store.conclude(&mut lane, placed, published, &mut item.cas) {
                return outcome.map_or_else(|refused| refused, |cas| stored(options, cas));
            }
        }
    }

    /// Append and prepend: a new record of both values. `fill` writes the added bytes at an offset.
    fn extend(
        &mut self,
        key: &[u8],
        options: &SetOptions,
        tags: &[u8],
        now: Seconds,
        added: usize,
        fill: &dyn Fn(&Store, &Placed, usize),
    ) -> SetOutcome {
        if self.too_large(key, added) {
            return SetOutcome::TooLarge;
        }
        let mut cas = options.cas;
        loop {
            let Handle { store, reader, .. } = self;
            let hash = store.hash(key);
            let (seen, old_bytes, flags, old_tags) = {
                let _pin = reader.pin(&store.epochs);
                match store.look(hash, key, now) {
                    Some((seen, record)) => (Some(seen), record.value_bytes(), record.flags(), Tags::of(&record)),
                    None => (None, 0, options.flags, None),
                }
            };
            if let Err(outcome) = judge(options, seen.map(|seen| seen.cas)) {
                return outcome;
            }
            let Some(seen) = seen else {
                // Nothing to extend: the value becomes an item of its own.
                let expiry = options.vivify.unwrap_or(options.expiry);
                let add = SetOptions { mode: SetMode::Add, expiry, compare: None, ..*options };
                match self.put(key, added, &add, tags, now, &|store, placed| fill(store, placed, 0)) {
                    SetOutcome::NotStored => continue,
                    outcome => return outcome,
                }
            };
            // What cannot be made leaves the item as it is.
            if self.too_large(key, old_bytes + added) {
                return SetOutcome::NotStored;
            }
            let Handle { store, reader, lane, counters, .. } = self;
            let mut lane = lane.lock();
            let mut item = Item::new(key, flags, seen.expiry, old_bytes + added, now);
            item.cas = cas;
            item.tags = Tags::bytes_of(old_tags.as_deref());
            let Some(placed) = store.place(&mut lane, counters, seen.queue, &item, Purpose::Write, false, now) else {
                counters.out_of_memory.add(1);
                return SetOutcome::NotStored;
            };
            let (old_at, added_at) = if options.mode == SetMode::Append { (0, old_bytes) } else { (added, 0) };
            fill(store, &placed, added_at);
            let pin = reader.pin(&store.epochs);
            let published = match store.look(hash, key, now) {
                Some((again, record)) if again.place == seen.place && again.sequence == seen.sequence => {
                    store.copy_value_to(again.place, &record, &placed, old_at);
                    let same = Condition::Same { place: seen.place, sequence: seen.sequence, carry: 0 };
                    store.publish(counters, &placed, same, 0, options.want_cas, now)
                }
                _ => Published::Changed,
            };
            drop(pin);
            if let Some(outcome) = store.conclude(&mut lane, placed, published, &mut cas) {
                return outcome.map_or_else(|refused| refused, |cas| stored(options, cas));
            }
        }
    }

    /// A write that cannot be done. A plain set leaves nothing outdated behind.
    fn refuse(&mut self, key: &[u8], options: &SetOptions, outcome: SetOutcome) -> SetOutcome {
        if options.mode == SetMode::Set {
            let _pin = self.reader.pin(&self.store.epochs);
            self.store.remove(&self.counters, key);
        }
        outcome
    }

    /// For a set whose value was refused before it arrived: removes the old item, so that nothing outdated is served.
    pub fn refuse_set(&mut self, key: &[u8], now: Seconds) {
        self.store.notice_flush(now);
        self.refuse(key, &SetOptions::default(), SetOutcome::TooLarge);
    }

    /// Gives a value that arrives in pieces its place in memory.
    ///
    /// # Errors
    /// [`SetOutcome::TooLarge`] or [`SetOutcome::NoMemory`]; the old item, if any, is untouched.
    pub fn reserve(
        &mut self,
        key: &[u8],
        value_bytes: usize,
        flags: u32,
        expiry: Seconds,
        now: Seconds,
    ) -> Result<Reservation, SetOutcome> {
        self.reserve_tagged(key, value_bytes, flags, expiry, &Tags::NONE, now)
    }

    /// [`Handle::reserve`] for an item with tags; see [`Handle::set_tagged`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve_tagged(
        &mut self,
        key: &[u8],
        value_bytes: usize,
        flags: u32,
        expiry: Seconds,
        tags: &Tags,
        now: Seconds,
    ) -> Result<Reservation, SetOutcome> {
        self.store.notice_flush(now);
        if self.too_large(key, value_bytes) {
            return Err(SetOutcome::TooLarge);
        }
        let Handle { store, reader, lane, counters, .. } = self;
        let raw_hash = store.raw_hash(key);
        let seen = {
            let _pin = reader.pin(&store.epochs);
            store.look(store.index.hash(raw_hash), key, now).map(|(seen, _)| seen)
        };
        let (queue, rank) = match seen {
            Some(seen) => (seen.queue, 0),
            None => store.admit(raw_hash, key.len() + value_bytes),
        };
        // One that has expired already needs a group too: the first second that is left.
        let expiry_placed = expiry.max(now.saturating_add(1));
        let mut item = Item::new(key, flags, expiry_placed, value_bytes, now);
        item.tags = tags.bytes();
        match store.place(&mut lane.lock(), counters, queue, &item, Purpose::Write, true, now) {
            Some(placed) => {
                Ok(Reservation { store: Arc::clone(store), placed: Some(placed), filled: 0, flags, expiry, rank })
            }
            None => {
                counters.out_of_memory.add(1);
                Err(SetOutcome::NoMemory)
            }
        }
    }

    /// Stores a reservation that was filled, or does not, as `options` say. Its flags and expiry are those it was
    /// reserved with.
    ///
    /// # Panics
    /// When the reservation is not full, or belongs to another store.
    pub fn commit(&mut self, mut reservation: Reservation, options: &SetOptions, now: Seconds) -> SetOutcome {
        assert!(Arc::ptr_eq(&reservation.store, &self.store), "a reservation is committed to the store it was made by");
        assert_eq!(reservation.remaining(), 0, "a reservation is committed when it is full");
        let Some(placed) = reservation.placed else { return SetOutcome::NoMemory };
        self.store.notice_flush(now);
        let options = SetOptions { flags: reservation.flags, expiry: reservation.expiry, ..*options };
        let store = Arc::clone(&self.store);
        let record = store.record(placed.place, &placed);
        let (key, tags) = (record.key(), record.tags());
        let plain = !matches!(options.mode, SetMode::Append | SetMode::Prepend)
            && options.cas.is_none()
            && store.visible(placed.place, &record, now).is_ok()
            && options.expiry > now;
        if plain {
            let published = {
                let _pin = self.reader.pin(&store.epochs);
                let condition = Condition::Options(&options);
                store.publish(&self.counters, &placed, condition, reservation.rank, options.want_cas, now)
            };
            match published {
                Published::Done { cas } => {
                    reservation.placed = None;
                    return stored(&options, cas);
                }
                Published::Refused(outcome) => return outcome,
                // Below: written anew, with a CAS unique of its own.
                Published::NeedsCas(_) | Published::Changed => {}
            }
        }
        // What cannot be published as it lies: its value goes into another record.
        if matches!(options.mode, SetMode::Append | SetMode::Prepend) {
            return self.extend(key, &options, tags, now, placed.value_bytes, &|store, to, at| {
                store.copy_value_to(placed.place, &record, to, at);
            });
        }
        self.put(key, placed.value_bytes, &options, tags, now, &|store, to| {
            store.copy_value_to(placed.place, &record, to, 0);
        })
        // Dropping the reservation abandons its record.
    }
}

/// Memory for a value that arrives in pieces. Dropping it gives the memory back and changes nothing.
pub struct Reservation {
    store: Arc<Store>,
    placed: Option<Placed>,
    filled: usize,
    flags: u32,
    expiry: Seconds,
    /// The rank a new item starts with.
    rank: u8,
}

impl Reservation {
    /// Bytes still to come.
    pub fn remaining(&self) -> usize {
        self.placed.map_or(0, |placed| placed.value_bytes) - self.filled
    }

    /// Where the next bytes go; empty when full. Call [`advance`](Reservation::advance) with how many were written.
    pub fn next_piece(&mut self) -> &mut [u8] {
        let filled = self.filled;
        match &mut self.placed {
            Some(placed) if filled < placed.value_bytes => self.store.value_piece(placed, filled),
            _ => &mut [],
        }
    }

    /// Notes that the next `bytes` bytes are there.
    ///
    /// # Panics
    /// When that is more than remain.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.remaining(), "no more than the value");
        self.filled += bytes;
    }

    /// Takes as much of `bytes` as belongs to the value; answers how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.remaining());
        if let Some(placed) = &self.placed {
            self.store.write_value(placed, self.filled, &bytes[..taken]);
        }
        self.filled += taken;
        taken
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(placed) = self.placed.take() {
            self.store.abandon(None, placed);
        }
    }
}

impl Store {
    /// The value of a record the caller may read, as one.
    pub(crate) fn value_bytes_of(&self, place: Place, record: &RecordRef<'_>) -> Vec<u8> {
        let mut value = Vec::with_capacity(record.value_bytes());
        self.log.value_parts(place, record.prefix_bytes(), record.value_bytes(), |id, at, bytes| {
            value.extend_from_slice(self.value_part(id, at, bytes, record));
            true
        });
        value
    }

    /// Copies the value of a record the caller may read to an offset of the value of one it has placed.
    pub(crate) fn copy_value_to(&self, place: Place, record: &RecordRef<'_>, placed: &Placed, to: usize) {
        let mut offset = to;
        self.log.value_parts(place, record.prefix_bytes(), record.value_bytes(), |id, at, bytes| {
            self.write_value(placed, offset, self.value_part(id, at, bytes, record));
            offset += bytes;
            true
        });
    }

    /// Places a copy of a record elsewhere, with `change` applied to what it is made of.
    pub(crate) fn place_copy(
        &self,
        lane: &mut Lane,
        counters: &Counters,
        queue: Queue,
        item: &Item<'_>,
        now: Seconds,
    ) -> Option<Placed> {
        self.place(lane, counters, queue, item, Purpose::Write, false, now)
            .or_else(|| self.place(lane, counters, queue, item, Purpose::Move, false, now))
    }
}
