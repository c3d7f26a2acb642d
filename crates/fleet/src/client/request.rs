//! What can be asked of a fleet, and what it answers. Plain values; the protocols' bytes are `wire`'s.

use std::task::Waker;

use bytes::Bytes;

use super::Error;

pub use nuthatch_proto::client::meta::Word;
pub use nuthatch_proto::forget::Forget;

/// What a retrieval shall bring besides value and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// The CAS unique.
    pub cas: bool,
    /// How long the item has left to live; only the meta protocol tells.
    pub ttl: bool,
}

impl Want {
    /// Value and flags, as `get`.
    pub const VALUE: Want = Want { cas: false, ttl: false };
    /// The CAS unique too, as `gets`.
    pub const CAS: Want = Want { cas: true, ttl: false };
    /// All there is to know.
    pub const ALL: Want = Want { cas: true, ttl: true };
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The value, in memory of its own.
    pub value: Bytes,
    /// The flags its writer gave it.
    pub flags: u32,
    /// The CAS unique; 0 when it was not asked for, or cannot be told because the server that gives it does not answer and
    /// another copy does.
    pub cas: u64,
    /// How long it lives.
    pub ttl: Ttl,
}

/// A hit that has just come, in the memory it was read into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The flags its writer gave it.
    pub flags: u32,
    /// As [`Item::cas`].
    pub cas: u64,
    /// How long it lives.
    pub ttl: Ttl,
    /// What the meta protocol says of recaching it.
    pub marks: Marks,
}

/// The recache flags of an answer to `mg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `W`: who asked has the right to store a new value.
    pub won: bool,
    /// `X`: the item was invalidated.
    pub stale: bool,
    /// `Z`: another has the right already.
    pub sent: bool,
}

impl From<Found<'_>> for Item {
    fn from(found: Found<'_>) -> Item {
        let Found { value, flags, cas, ttl, .. } = found;
        Item { value: Bytes::copy_from_slice(value), flags, cas, ttl }
    }
}

/// Where the answers of [`Client::ask`](super::Client::ask) go.
pub trait Receiver: Send + Sync {
    /// Takes the answer to the key that was asked for with this ticket, once for each; `None` is a miss. Called on any
    /// thread, under a lock of the client's: it neither waits nor asks the client for anything. Whom it hands back is woken
    /// when everything that came at the same time has been taken.
    fn take(&self, ticket: u64, answer: Result<Option<Found<'_>>, &Error>) -> Option<Waker>;
}

/// How long an item has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// It was not asked for, or the protocol does not tell.
    #[default]
    Unknown,
    /// It does not expire.
    Forever,
    /// Seconds.
    Seconds(u32),
}

/// When a store may replace what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// Whatever was there.
    #[default]
    Set,
    /// If nothing was there.
    Add,
    /// If something was there.
    Replace,
    /// Behind what was there.
    Append,
    /// In front of what was there.
    Prepend,
}

/// A store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Store<'a> {
    /// When it may happen.
    pub verb: Verb,
    /// The key: 1 to 250 bytes, in the text protocol without spaces and control characters.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Expiry time as memcached has it: 0 never, negative at once, up to 30 days in seconds from now, above as UNIX time.
    pub exptime: i32,
    /// Only if the item still has this CAS unique; none has 0. The text protocol knows that for [`Verb::Set`] alone.
    pub cas: Option<u64>,
}

/// An increment or decrement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Whether it counts down, which ends at 0.
    pub down: bool,
    /// By how much.
    pub delta: u64,
    /// What a missing item begins with, and its expiry time. The text protocol has no such thing.
    pub initial: Option<(u64, i32)>,
}

/// Anything that changes one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// `set` and its kin.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Only if the item has this CAS unique; not in the text protocol.
        cas: Option<u64>,
    },
    /// `incr` and `decr`.
    Arith(Arith<'a>),
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// Its new expiry time.
        exptime: i32,
    },
}

impl<'a> Write<'a> {
    /// The same write of another key.
    pub(crate) fn with_key<'k>(self, key: &'k [u8]) -> Write<'k>
    where
        'a: 'k,
    {
        match self {
            Write::Store(store) => Write::Store(Store { key, ..store }),
            Write::Delete { cas, .. } => Write::Delete { key, cas },
            Write::Arith(arith) => Write::Arith(Arith { key, ..arith }),
            Write::Touch { exptime, .. } => Write::Touch { key, exptime },
        }
    }

    /// Whether its condition is one that no item meets: to the binary protocol a unique of 0 would be no condition.
    pub(crate) fn never_happens(&self) -> bool {
        matches!(self, Write::Store(Store { cas: Some(0), .. }) | Write::Delete { cas: Some(0), .. })
    }

    /// The key it is about.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Write::Store(Store { key, .. })
            | Write::Delete { key, .. }
            | Write::Arith(Arith { key, .. })
            | Write::Touch { key, .. } => key,
        }
    }
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Stored, deleted or touched.
    Done {
        /// The new CAS unique, from the meta and binary protocols; 0 where it is not told.
        cas: u64,
    },
    /// Counted.
    Number {
        /// To what.
        value: u64,
        /// The new CAS unique, or 0.
        cas: u64,
    },
    /// The condition of add, replace, append or prepend does not hold.
    NotStored,
    /// The CAS unique is another.
    Exists,
    /// There is no such item.
    NotFound,
}

/// A meta command with its flags as another client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// Which command.
    pub word: Word,
    /// The key itself, never its base64; with `b` among the flags it is sent as base64.
    pub key: &'a [u8],
    /// The flags behind key and length, separated by spaces. `q` is the caller's to take off, who then leaves out the
    /// answer.
    pub flags: &'a [u8],
    /// The value, with [`Word::Set`]; else empty.
    pub value: &'a [u8],
}

/// The answer to a meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaAnswer {
    /// Its first word.
    pub code: MetaCode,
    /// The flags as they came, separated by single spaces; with [`MetaCode::Me`] what follows the key.
    pub flags: Bytes,
    /// The value, with [`MetaCode::Va`]; else empty.
    pub value: Bytes,
}

/// First word of a meta answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaCode {
    /// `VA`: a value follows.
    Va,
    /// `HD`: done, or found.
    Hd,
    /// `EN`: nothing found.
    En,
    /// `NS`: not stored.
    Ns,
    /// `EX`: the CAS unique is another.
    Ex,
    /// `NF`: not found.
    Nf,
    /// `ME`: what `me` tells.
    Me,
}

impl MetaCode {
    /// The two letters.
    #[must_use]
    pub const fn as_wire(self) -> &'static [u8; 2] {
        match self {
            MetaCode::Va => b"VA",
            MetaCode::Hd => b"HD",
            MetaCode::En => b"EN",
            MetaCode::Ns => b"NS",
            MetaCode::Ex => b"EX",
            MetaCode::Nf => b"NF",
            MetaCode::Me => b"ME",
        }
    }
}

/// One request to one server, as `wire` encodes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    Get {
        key: &'a [u8],
        want: Want,
        touch: Option<i32>,
    },
    /// Keys that have been checked.
    Many {
        keys: &'a [&'a [u8]],
        want: Want,
        touch: Option<i32>,
    },
    Write(Write<'a>),
    Meta(MetaRequest<'a>),
    Flush {
        delay: Option<i32>,
    },
    Forget(Forget<'a>),
    Version,
    Stats {
        argument: &'a [u8],
    },
    /// Answered after everything before it.
    Barrier,
}

/// What one server answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Item(Option<Item>),
    Items(Vec<Option<Item>>),
    Written(Written),
    Meta(MetaAnswer),
    Text(String),
    Stats(Vec<(Bytes, Bytes)>),
    Done,
}
