//! Flights: which keys of a pool are being fetched or written now, and whether what a fetch brings may be kept.
//!
//! A key has at most one fetch that readers may join. Whatever changes the key - a write here, a change that the backend
//! tells of, a flush - *spoils* it: those who wait for it are still answered with what it brings, because they asked
//! before the change was acknowledged, but nobody joins it any more and its answer is not kept. Writers count themselves
//! in and out. A copy may be left by a writer that was alone from its beginning to its end, and by a fetch during which
//! nothing changed; nobody else.
//!
//! Nor is anyone shown something older after something newer. A spoiled fetch may have been read later than one that began
//! after it: so if there is a copy by then, those who wait are answered with that; if not, what it brought is *shown*, and what is
//! under way and may be older is not shown after it: a fetch that readers join is spoiled, and writers leave no copy. A
//! fetch that began after the same had been shown stays, so that fetches do not spoil each other for ever.
//!
//! [`Table`] is the machine, without locks, time or waiting, so that a test can explore every order; [`Flights`] shards
//! it. What is done with the local copies is done under the shard's lock, by closures: a copy is therefore kept before a
//! change is noted, and then dropped by it, or not kept at all.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::Key;

/// Shards of a pool's flights: far more than there are workers, so that two seldom meet.
const SHARDS: usize = 64;

/// What a reader is to do for a key that is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// Fetch it, and say so by [`Flights::land`] with this number.
    Leads(u64),
    /// Wait for another's fetch.
    Waits,
}

/// A fetch that is over.
#[derive(Debug)]
pub(crate) struct Landed<W> {
    /// Everyone who waits for it.
    pub(crate) waiters: Vec<W>,
    /// Whether nothing changed meanwhile.
    pub(crate) may_keep: bool,
}

/// What a fetch brought, as far as it differs from anything else: a CAS unique, or 0 for that there is no item.
pub(crate) type Brought = u64;

/// The flights of some keys.
#[derive(Debug)]
pub(crate) struct Table<W> {
    entries: HashMap<Key, Entry<W>>,
    fetches: u64,
    /// Nothing is kept any more: the tier is another by now.
    is_closed: bool,
}

/// One key that is being fetched or written.
#[derive(Debug)]
struct Entry<W> {
    /// The fetch that readers join.
    open: Option<Fetch<W>>,
    /// Fetches that a change has passed.
    spoiled: Vec<Fetch<W>>,
    writers: u32,
    /// Of the writers under way none may leave a copy: one overlaps another, something else changed the key, or something was
    /// shown that may be newer.
    is_crossed: bool,
    /// What was shown last.
    shown: Option<Brought>,
}

#[derive(Debug)]
struct Fetch<W> {
    number: u64,
    waiters: Vec<W>,
    /// What had been shown before it began: it brings nothing older.
    after: Option<Brought>,
}

impl<W> Entry<W> {
    fn new() -> Entry<W> {
        Entry { open: None, spoiled: Vec::new(), writers: 0, is_crossed: false, shown: None }
    }

    /// Whether a fetch was under way.
    fn spoil(&mut self) -> bool {
        let was_open = self.open.is_some();
        self.spoiled.extend(self.open.take());
        was_open
    }

    fn is_over(&self) -> bool {
        self.open.is_none() && self.spoiled.is_empty() && self.writers == 0
    }
}

impl<W> Default for Table<W> {
    fn default() -> Table<W> {
        Table { entries: HashMap::new(), fetches: 0, is_closed: false }
    }
}

impl<W> Table<W> {
    /// A reader that found no copy of `key`. `waiter` is called when it is to wait.
    pub(crate) fn join(&mut self, key: &[u8], waiter: impl FnOnce() -> W) -> Joined {
        if let Some(Entry { open: Some(fetch), .. }) = self.entries.get_mut(key) {
            fetch.waiters.push(waiter());
            return Joined::Waits;
        }
        self.fetches += 1;
        let number = self.fetches;
        let entry = self.entry(key);
        entry.open = Some(Fetch { number, waiters: Vec::new(), after: entry.shown });
        Joined::Leads(number)
    }

    /// Fetch `number` of `key` is over, however it ended.
    pub(crate) fn land(&mut self, key: &[u8], number: u64) -> Landed<W> {
        let nobody = Landed { waiters: Vec::new(), may_keep: false };
        let Some(entry) = self.entries.get_mut(key) else { return nobody };
        let landed = if entry.open.as_ref().is_some_and(|fetch| fetch.number == number) {
            let waiters = entry.open.take().map(|fetch| fetch.waiters).unwrap_or_default();
            Landed { waiters, may_keep: entry.writers == 0 && !self.is_closed }
        } else if let Some(at) = entry.spoiled.iter().position(|fetch| fetch.number == number) {
            Landed { waiters: entry.spoiled.swap_remove(at).waiters, may_keep: false }
        } else {
            nobody
        };
        self.tidy(key);
        landed
    }

    /// What a fetch brought is not kept, and shown to readers.
    pub(crate) fn show(&mut self, key: &[u8], brought: Brought) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.is_crossed |= entry.writers > 0;
        if entry.open.as_ref().is_some_and(|fetch| fetch.after != Some(brought)) {
            entry.spoil();
        }
        entry.shown = Some(brought);
    }

    /// A writer begins; the copy there is has to go. Whether it spoils a fetch.
    pub(crate) fn begin_write(&mut self, key: &[u8]) -> bool {
        let entry = self.entry(key);
        entry.is_crossed |= entry.writers > 0;
        entry.writers += 1;
        entry.spoil()
    }

    /// A writer is done: whether it may leave a copy, and whether it spoils a fetch that began meanwhile.
    pub(crate) fn end_write(&mut self, key: &[u8]) -> (bool, bool) {
        let Some(entry) = self.entries.get_mut(key) else { return (false, false) };
        entry.writers = entry.writers.saturating_sub(1);
        let spoils = entry.spoil();
        let may_keep = entry.writers == 0 && !entry.is_crossed && !self.is_closed;
        if entry.writers == 0 {
            entry.is_crossed = false;
        }
        self.tidy(key);
        (may_keep, spoils)
    }

    /// Someone else has changed `key`; the copy there is has to go. Whether it spoils a fetch.
    pub(crate) fn invalidate(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        entry.is_crossed |= entry.writers > 0;
        entry.spoil()
    }

    /// Everything may have changed; all copies have to go. How many fetches it spoils.
    pub(crate) fn invalidate_all(&mut self) -> u64 {
        let mut spoiled = 0;
        for entry in self.entries.values_mut() {
            entry.is_crossed |= entry.writers > 0;
            spoiled += u64::from(entry.spoil());
        }
        spoiled
    }

    /// Has nothing kept from now on.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&mut self, key: &[u8]) -> &mut Entry<W> {
        // Two lookups, so that a key is copied only where it is new.
        if !self.entries.contains_key(key) {
            self.entries.insert(key.into(), Entry::new());
        }
        self.entries.get_mut(key).expect("it is there or was just put there")
    }

    fn tidy(&mut self, key: &[u8]) {
        if self.entries.get(key).is_some_and(Entry::is_over) {
            self.entries.remove(key);
        }
    }
}

/// The flights of a pool.
pub(crate) struct Flights<W> {
    shards: Box<[Mutex<Table<W>>]>,
    hasher: RandomState,
}

impl<W> Default for Flights<W> {
    fn default() -> Flights<W> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Flights { shards, hasher: RandomState::new() }
    }
}

impl<W> Flights<W> {
    /// See [`Table::join`].
    pub(crate) fn join(&self, key: &[u8], waiter: impl FnOnce() -> W) -> Joined {
        self.shard(key).join(key, waiter)
    }

    /// See [`Table::land`] and [`Table::show`]; `settle` is told whether a copy may be left, and says what is shown without.
    pub(crate) fn land(&self, key: &[u8], number: u64, settle: impl FnOnce(bool) -> Option<Brought>) -> Landed<W> {
        let mut shard = self.shard(key);
        let landed = shard.land(key, number);
        let shown = settle(landed.may_keep).filter(|_| !landed.may_keep);
        if let Some(brought) = shown {
            shard.show(key, brought);
        }
        landed
    }

    /// See [`Table::begin_write`]; `drop_copy` removes the copy.
    pub(crate) fn begin_write(&self, key: &[u8], drop_copy: impl FnOnce()) -> bool {
        let mut shard = self.shard(key);
        let spoils = shard.begin_write(key);
        drop_copy();
        spoils
    }

    /// See [`Table::end_write`]; `keep` leaves the copy, if that may be. Whether it spoils a fetch.
    pub(crate) fn end_write(&self, key: &[u8], keep: impl FnOnce()) -> bool {
        let mut shard = self.shard(key);
        let (may_keep, spoils) = shard.end_write(key);
        if may_keep {
            keep();
        }
        spoils
    }

    /// See [`Table::invalidate`]; `drop_copy` removes the copy.
    pub(crate) fn invalidate(&self, key: &[u8], drop_copy: impl FnOnce()) -> bool {
        let mut shard = self.shard(key);
        let spoils = shard.invalidate(key);
        drop_copy();
        spoils
    }

    /// See [`Table::invalidate_all`]. The caller forgets all copies afterwards: nothing fetched before this is kept by
    /// then.
    pub(crate) fn invalidate_all(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).invalidate_all()).sum()
    }

    /// See [`Table::close`]. The caller forgets all copies afterwards.
    pub(crate) fn close(&self) {
        self.shards.iter().for_each(|shard| lock(shard).close());
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Table<W>> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}

fn lock<W>(shard: &Mutex<Table<W>>) -> MutexGuard<'_, Table<W>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
