//! What the door needs of the server it is built into: the pool, the time, somewhere to complain. The server's side of
//! this is a few lines, and tests bring their own.

use std::fmt;
use std::sync::Arc;

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

    /// What wakes those who wait for an origin.
    fn ticks(&self) -> &Arc<Ticks>;

    /// Counts `by` more of `what`.
    fn count(&self, what: Count, by: u64);

    /// Something is worth a line in the log, without its end.
    fn warn(&self, line: fmt::Arguments<'_>);
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
    /// A request was sent to an origin.
    Fetched,
    /// A request was answered.
    Answered(ResultCode),
}
