//! Nuthatch's store: a concurrent in-memory cache with one memory budget.
//!
//! It owns memory, index, expiry and eviction. It never reads a clock (every operation is told the second), never sees
//! a protocol, and never opens, reads or writes a file: a memory file ([`Store::open`]) it is handed, and maps.
//!
//! Items are appended to fixed-size segments of a log (Segcache, NSDI 2021); items that expire together share segments,
//! so that a whole segment expires at once; eviction empties the oldest segment of one of two queues (S3-FIFO, SOSP
//! 2023). Readers take no lock: a pin (one store to a cache line of their own) keeps what they look at in place.
//!
//! ```
//! use nuthatch_store::{Config, SetOptions, SetOutcome, Store};
//!
//! let store = Store::new(Config::new(64 << 20)).unwrap();
//! let mut handle = store.handle();
//! let now = 1; // seconds, of whatever clock the caller has
//! let stored = handle.set(b"greeting", b"hello", &SetOptions::default(), now);
//! assert!(matches!(stored, SetOutcome::Stored { .. }));
//! assert_eq!(handle.get(b"greeting", now).unwrap().value_whole(), Some(&b"hello"[..]));
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `arena` | the memory mappings |
//! | `epoch` | when memory may be used again |
//! | `record` | how an item lies in the log |
//! | `segment` | the life of one segment |
//! | `file` | where segments lie: in memory, or in a file that stays |
//! | `head` | what is found there besides records |
//! | `restore` | reading it again |
//! | `watermarks`, `forget` | prefixes and tags that were forgotten |
//! | `log` | which segments are where; lanes; the budget |
//! | `place` | giving a new record its bytes |
//! | `index` | from hash to place |
//! | `policy`, `evict` | who stays; making room; giving back |
//! | `read`, `write`, `arith`, `delete`, `meta`, `touch`, `scan` | the operations |
//! | `stats` | counters |

/// Seconds on the caller's clock.
pub type Seconds = u32;

/// The expiry of an item that does not expire.
pub const NEVER: Seconds = u32::MAX;

/// The most tags of an item.
#[cfg(loom)]
pub(crate) const TAGS_MAX: usize = 8;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

#[cfg(not(loom))]
mod age;
mod arena;
mod epoch;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
mod forget;
#[cfg(not(loom))]
mod head;
mod index;
#[cfg(not(loom))]
mod log;
#[cfg(loom)]
mod log {
    pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;
}
#[cfg(not(loom))]
mod arith;
#[cfg(not(loom))]
mod delete;
#[cfg(not(loom))]
mod evict;
#[cfg(not(loom))]
mod meta;
#[cfg(not(loom))]
mod place;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
mod read;
mod record;
#[cfg(not(loom))]
mod restore;
#[cfg(not(loom))]
mod scan;
mod segment;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod store;
mod sync;
#[cfg(not(loom))]
mod touch;
mod watermarks;
#[cfg(not(loom))]
mod write;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod restore_tests;

#[cfg(not(loom))]
pub use {
    arith::{ArithOptions, ArithOutcome},
    delete::{DeleteOptions, DeleteOutcome},
    file::{Emptied, MemoryFile},
    forget::{FORGET_BYTES_MAX, ForgetError, PREFIX_LEVELS, TAGS_MAX, Tags},
    meta::{MetaGet, MetaGetOutcome},
    read::{GROUP_KEYS, Held, Hit, Pieces, Value},
    restore::{Progress, Restored},
    scan::Cursor,
    stats::Stats,
    store::{
        Config, Events, EvictedItem, Handle, ITEM_BYTES_MAX, ITEM_BYTES_MIN, MEMORY_BYTES_MIN, Miss, Store, StoreError,
    },
    write::{Reservation, SetMode, SetOptions, SetOutcome},
};
