//! What the door needs of the server it is built into: the pool, the time, somewhere to complain. The server's side of
//! this is a few lines, and tests bring their own.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use nuthatch_store::{Handle, Seconds};

use crate::door::ResultCode;
use crate::rules::UnixSeconds;
use crate::ticks::Ticks;

/// The server around a door.
pub trait House: Send + Sync + 'static {
    /// Calls `use_it` with this thread's handle on the pool and the current second of the store's clock. Not to be called
    /// from inside itself.
    fn with_store(&self, use_it: &mut dyn FnMut(&mut Handle, Seconds));

    /// The current second.
    fn unix_seconds(&self) -> UnixSeconds;

    /// The second of the store's clock that `at` is, at least 1; what lies too far ahead is `NEVER`.
    fn store_seconds(&self, at: UnixSeconds) -> Seconds;

    /// The largest item of the pool, key and value together.
    fn item_bytes_max(&self) -> usize;

    /// The pool's memory.
    fn memory_bytes(&self) -> usize;

    /// What wakes those who wait for an origin.
    fn ticks(&self) -> &Arc<Ticks>;

    /// Counts `by` more of `what`.
    fn count(&self, what: Count, by: u64);

    /// Something is worth a line in the log, without its end.
    fn warn(&self, line: fmt::Arguments<'_>);

    /// The caches that the pool shares its pages with other hosts by, if there are any.
    fn beyond(&self) -> Option<Arc<dyn Beyond>> {
        None
    }
}

/// What is asked of caches elsewhere is answered later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Caches that several hosts share. Each call ends in the time that their settings name.
pub trait Beyond: Send + Sync {
    /// How long what lies there may be kept here.
    fn seconds_here(&self) -> u32;

    /// The longest item, key and value together.
    fn item_bytes_max(&self) -> usize;

    /// Looks keys up: one answer each, in their order.
    fn get(&self, keys: Vec<Vec<u8>>) -> Later<Vec<Result<Option<BeyondItem>, Silent>>>;

    /// Stores items, one after the other, which expire at that moment. What fails is not done.
    fn put(&self, items: Vec<BeyondItem>, expires_at: UnixSeconds) -> Later<()>;

    /// Changes items, all at once: of each, in their order, whether it was done, or else a sentence why that is not known.
    fn change(&self, changes: Vec<(Vec<u8>, Change)>) -> Later<Vec<Result<bool, String>>>;

    /// Counts an item up by one: its new number; none if it is not there; or a sentence why that is not known.
    fn count(&self, key: Vec<u8>) -> Later<Result<Option<u64>, String>>;

    /// Forgets everything, or else says in a sentence why not all of it.
    fn flush(&self) -> Later<Result<(), String>>;
}

/// Where an item would be, nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

/// What is to become of an item of caches elsewhere. What is stored so does not expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is deleted, if it is there.
    Delete,
    /// It is stored, if it is not there.
    Add(Bytes),
    /// It is stored.
    Set(Bytes),
    /// It is stored over what was read, if that is still there.
    Replace {
        /// The value.
        value: Bytes,
        /// [`BeyondItem::cas`] of what was read.
        cas: u64,
    },
}

/// An item of caches elsewhere.
#[derive(Clone, Debug)]
pub struct BeyondItem {
    /// Its key.
    pub key: Vec<u8>,
    /// Its flags.
    pub flags: u32,
    /// Its value.
    pub value: Bytes,
    /// By which [`Change::Replace`] knows it again; of no meaning where items are stored.
    pub cas: u64,
}

/// What a door counts in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A page was looked for.
    Lookup,
    /// And served from the store, fresh or not.
    Hit,
    /// And was not there, or of no use without the origin.
    Miss,
    /// A response was stored.
    Stored,
    /// A page was purged that was there.
    Purged,
    /// A page was purged that was not there.
    PurgedNothing,
    /// A response was too large to be stored.
    TooLarge,
    /// A response passed by because others that were being fetched took all memory there is for that.
    NoRoom,
    /// A request was sent to an origin.
    Fetched,
    /// A request was answered.
    Answered(ResultCode),
}
