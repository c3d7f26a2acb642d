//! A plain map with memcached's meaning: what any server must answer, and nothing about how.
//!
//! Pure: time is passed in, nothing is read or sent. [`crate::conversation`] turns its outcomes into the bytes of each protocol
//! and compares them with a server's. Sources: memcached's `doc/protocol.txt`, `doc/protocol-binary.txt` and the behaviour of
//! memcached 1.6 where they are silent; the tests run it against a real memcached.

use std::collections::HashMap;

/// A moment, in whole seconds since 1970.
pub type Seconds = i64;

/// Above this an expiry is a moment, below it a duration: 30 days (`doc/protocol.txt`, "Expiration times").
pub const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// Stands for one state of one item; whatever a server calls it, it must call it the same until the item changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: Vec<u8>,
    /// The client's flags.
    pub flags: u32,
    /// When it is gone; `None` is never.
    pub expiry: Option<Seconds>,
    /// Its CAS unique's stand-in.
    pub version: Version,
    /// It was fetched since it was stored.
    pub fetched: bool,
    /// It was invalidated and not replaced yet.
    pub stale: bool,
    /// One client was told to recache it and has not yet.
    pub win_sent: bool,
    stored_at: Seconds,
}

/// The map.
#[derive(Clone, Debug, Default)]
pub struct Model {
    items: HashMap<Vec<u8>, Item>,
    versions: u64,
    flush_at: Option<Seconds>,
    forgets_marks: bool,
}

/// Under which condition a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    Set,
    /// When absent.
    Add,
    /// When present.
    Replace,
    /// After what is there; flags and expiry stay.
    Append,
    /// Before what is there; flags and expiry stay.
    Prepend,
}

/// How a client's CAS unique compares with the item's; the conversation knows the numbers, the model only their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// No unique was sent.
    None,
    /// It is the item's.
    Same,
    /// It is an earlier one of the item's.
    Older,
    /// It was never the item's and is above it.
    Newer,
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Done; the item's new version.
    Yes(Version),
    /// The mode's condition does not hold.
    NotStored,
    /// The unique is another one.
    Exists,
    /// A unique was sent for an absent item.
    NotFound,
}

/// A write.
#[derive(Clone, Debug)]
pub struct Store<'a> {
    /// Its mode.
    pub mode: Mode,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The expiry as sent.
    pub exptime: i64,
    /// The unique sent with it.
    pub compare: Compare,
    /// An older unique stores, but leaves the item stale (`I` of `ms`).
    pub stale_if_older: bool,
    /// Append and prepend store on a miss, with this expiry (`N` of `ms`).
    pub vivify: Option<i64>,
}

impl<'a> Store<'a> {
    /// A plain set that never expires and compares nothing.
    #[must_use]
    pub fn set(key: &'a [u8], value: &'a [u8]) -> Store<'a> {
        let compare = Compare::None;
        Store { mode: Mode::Set, key, value, flags: 0, exptime: 0, compare, stale_if_older: false, vivify: None }
    }
}

/// What counting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The new number and the item's new version.
    Yes(u64, Version),
    /// Nothing is there.
    NotFound,
    /// What is there is no number.
    NonNumeric,
    /// The unique is another one.
    Exists,
}

impl Model {
    /// An empty map.
    ///
    /// A number that outgrows its place is stored anew. `forgets_marks` says whether the item is then forgotten to have been
    /// fetched, to be stale or to have a recache token out, as memcached does; to Nuthatch it is the same item.
    pub fn new(forgets_marks: bool) -> Model {
        Model { forgets_marks, ..Model::default() }
    }

    /// The item under a key, if it is there now. Leaves no trace.
    pub fn peek(&mut self, key: &[u8], now: Seconds) -> Option<&mut Item> {
        if let Some(at) = self.flush_at
            && now >= at
        {
            self.items.retain(|_, item| item.stored_at >= at);
            self.flush_at = None;
        }
        if self.items.get(key).is_some_and(|item| item.expiry.is_some_and(|expiry| expiry <= now)) {
            self.items.remove(key);
        }
        self.items.get_mut(key)
    }

    /// The item under a key as far as the model remembers it, expired or not. For reports.
    pub fn held(&self, key: &[u8]) -> Option<&Item> {
        self.items.get(key)
    }

    /// The item under a key, if it is there now; it counts as fetched from then on.
    pub fn get(&mut self, key: &[u8], now: Seconds) -> Option<Item> {
        let item = self.peek(key, now)?;
        let before = item.clone();
        item.fetched = true;
        Some(before)
    }

    /// Sets the expiry; the item counts as fetched.
    pub fn touch(&mut self, key: &[u8], exptime: i64, now: Seconds) -> Option<Item> {
        let item = self.peek(key, now)?;
        item.fetched = true;
        item.expiry = moment(exptime, now);
        Some(item.clone())
    }

    /// Puts an empty item there, as a recache token's holder (`N` of `mg`).
    pub fn vivify(&mut self, key: &[u8], exptime: i64, now: Seconds) -> &mut Item {
        let version = self.version();
        self.put(key, Vec::new(), 0, moment(exptime, now), version, now);
        self.items.get_mut(key).expect("it was just put there")
    }

    /// Writes a value.
    pub fn store(&mut self, store: &Store<'_>, now: Seconds) -> Stored {
        let old = self.peek(store.key, now).cloned();
        let extends = matches!(store.mode, Mode::Append | Mode::Prepend);
        let Some(old) = old else {
            let expiry = match (store.mode, store.vivify) {
                (Mode::Append | Mode::Prepend, Some(exptime)) => exptime,
                (Mode::Append | Mode::Prepend, None) => return Stored::NotStored,
                (Mode::Set | Mode::Replace, _) if store.compare != Compare::None => return Stored::NotFound,
                (Mode::Replace, _) => return Stored::NotStored,
                (Mode::Set | Mode::Add, _) => store.exptime,
            };
            let version = self.version();
            self.put(store.key, store.value.to_vec(), store.flags, moment(expiry, now), version, now);
            return Stored::Yes(version);
        };

        if store.mode == Mode::Add {
            return Stored::NotStored;
        }
        let stale = match store.compare {
            Compare::None | Compare::Same => false,
            Compare::Older if store.stale_if_older && !extends => true,
            Compare::Older | Compare::Newer => return Stored::Exists,
        };
        let version = self.version();
        match store.mode {
            Mode::Append => {
                self.put(store.key, [&old.value, store.value].concat(), old.flags, old.expiry, version, now)
            }
            Mode::Prepend => {
                self.put(store.key, [store.value, &old.value].concat(), old.flags, old.expiry, version, now)
            }
            _ if stale => {
                // Someone else's newer write is there: this value is served on, but as one to be replaced.
                self.put(store.key, store.value.to_vec(), store.flags, old.expiry, version, now);
                let item = self.items.get_mut(store.key).expect("it was just put there");
                (item.stale, item.win_sent) = (true, old.win_sent);
            }
            _ => self.put(store.key, store.value.to_vec(), store.flags, moment(store.exptime, now), version, now),
        }
        Stored::Yes(version)
    }

    /// Takes an item away. `Err(true)`: the unique is another one; `Err(false)`: nothing is there.
    ///
    /// # Errors
    /// Why nothing was taken away.
    pub fn delete(&mut self, key: &[u8], compare: Compare, now: Seconds) -> Result<(), bool> {
        if self.peek(key, now).is_none() {
            return Err(false);
        }
        if !matches!(compare, Compare::None | Compare::Same) {
            return Err(true);
        }
        self.items.remove(key);
        Ok(())
    }

    /// Marks an item as one to be recached (`I` of `md`), giving it a new version. Errors as [`Model::delete`].
    ///
    /// # Errors
    /// Why nothing was marked.
    pub fn invalidate(&mut self, key: &[u8], compare: Compare, exptime: Option<i64>, now: Seconds) -> Result<(), bool> {
        let version = Version(self.versions + 1);
        let Some(item) = self.peek(key, now) else { return Err(false) };
        if !matches!(compare, Compare::None | Compare::Same) {
            return Err(true);
        }
        if let Some(exptime) = exptime {
            item.expiry = moment(exptime, now);
        }
        (item.stale, item.win_sent, item.version) = (true, false, version);
        self.versions += 1;
        Ok(())
    }

    /// Adds to or subtracts from a decimal number.
    pub fn count(&mut self, key: &[u8], delta: u64, decrement: bool, compare: Compare, now: Seconds) -> Counted {
        let forgets_marks = self.forgets_marks;
        let version = Version(self.versions + 1);
        let Some(item) = self.peek(key, now) else { return Counted::NotFound };
        if !matches!(compare, Compare::None | Compare::Same) {
            return Counted::Exists;
        }
        let Some(old) = number(&item.value) else { return Counted::NonNumeric };
        let new = if decrement { old.saturating_sub(delta) } else { old.wrapping_add(delta) };
        let mut digits = new.to_string().into_bytes();
        if forgets_marks && digits.len() > item.value.len() {
            (item.fetched, item.stale, item.win_sent) = (false, false, false);
        }
        // In place: the length stays, spaces fill it up.
        digits.resize(digits.len().max(item.value.len()), b' ');
        (item.value, item.version) = (digits, version);
        self.versions += 1;
        Counted::Yes(new, version)
    }

    /// Everything is gone, now or after some seconds.
    pub fn flush(&mut self, delay_seconds: i64, now: Seconds) {
        // In force in the second before, so that a delay of one second is none.
        if delay_seconds <= 1 {
            self.items.clear();
            self.flush_at = None;
        } else {
            self.flush_at = Some(now + delay_seconds - 1);
        }
    }

    fn version(&mut self) -> Version {
        self.versions += 1;
        Version(self.versions)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, flags: u32, expiry: Option<Seconds>, version: Version, now: Seconds) {
        let (fetched, stale, win_sent) = (false, false, false);
        let item = Item { value, flags, expiry, version, fetched, stale, win_sent, stored_at: now };
        self.items.insert(key.to_vec(), item);
    }
}

/// The moment that an expiry as sent means: none for 0, the past for a negative one.
pub fn moment(exptime: i64, now: Seconds) -> Option<Seconds> {
    match exptime {
        0 => None,
        ..0 => Some(Seconds::MIN),
        1..=RELATIVE_SECONDS_MAX => Some(now + exptime),
        _ => Some(exptime),
    }
}

/// The number a value stands for: the digits it starts with, when white space (which counting down leaves
/// behind) or nothing follows.
pub fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let ends = value.get(digits).is_none_or(|byte| byte.is_ascii_whitespace());
    if !ends {
        return None;
    }
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(model: &mut Model, key: &[u8], value: &[u8], exptime: i64, now: Seconds) -> Stored {
        let (flags, compare) = (0, Compare::None);
        model.store(&Store { flags, exptime, compare, ..Store::set(key, value) }, now)
    }

    #[test]
    fn item_lives_through_its_last_second() {
        let mut model = Model::default();
        set(&mut model, b"a", b"1", 10, 1000);
        assert!(model.get(b"a", 1009).is_some());
        assert!(model.get(b"a", 1010).is_none());
        assert!(model.get(b"a", 1000).is_none(), "it does not come back");
    }

    #[test]
    fn counting_down_keeps_the_length() {
        let mut model = Model::default();
        set(&mut model, b"n", b"10", 0, 0);
        assert!(matches!(model.count(b"n", 1, true, Compare::None, 0), Counted::Yes(9, _)));
        assert_eq!(model.get(b"n", 0).unwrap().value, b"9 ");
        assert!(matches!(model.count(b"n", 95, false, Compare::None, 0), Counted::Yes(104, _)));
        assert_eq!(model.get(b"n", 0).unwrap().value, b"104");
        set(&mut model, b"n", b"nine", 0, 0);
        assert_eq!(model.count(b"n", 1, false, Compare::None, 0), Counted::NonNumeric);
    }

    #[test]
    fn delayed_flush_takes_what_was_stored_before_its_moment() {
        let mut model = Model::default();
        set(&mut model, b"a", b"1", 0, 0);
        model.flush(10, 0);
        assert!(model.get(b"a", 8).is_some());
        set(&mut model, b"b", b"1", 0, 8);
        assert!(model.get(b"a", 9).is_none() && model.get(b"b", 9).is_none());
    }

    #[test]
    fn every_write_changes_the_version_and_a_touch_does_not() {
        let mut model = Model::default();
        set(&mut model, b"a", b"1", 0, 0);
        let first = model.get(b"a", 0).unwrap().version;
        assert_eq!(model.touch(b"a", 10, 0).unwrap().version, first);
        set(&mut model, b"a", b"1", 0, 0);
        assert_ne!(model.get(b"a", 0).unwrap().version, first);
    }
}
