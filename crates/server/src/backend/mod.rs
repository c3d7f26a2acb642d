//! Backends: what answers a pool's misses and takes its writes.
//!
//! Owns the words in which a pool's tier asks: an [`Op`] is a request with everything it needs, an
//! [`Outcome`] what became of it, a [`Refusal`] a sentence for the client. They are the same for every protocol that
//! clients speak and for every kind of backend. Nothing here knows local copies, flights or connections; a backend is
//! asked by its pool's tier alone and holds no lock while anyone waits.

pub(crate) mod fleet;
pub mod inbox;
pub(crate) mod parts;
mod stream;
pub mod table;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
pub use nuthatch_proto::forget::Forget;
pub use nuthatch_store::SetMode;

use self::inbox::{Asked, Inbox, Wants};

/// What is asked of a backend is answered later: polled on the thread that asked, outside of anything that is borrowed.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A key, 1 to 250 bytes of any kind.
pub type Key = Box<[u8]>;

/// What one key's lookup came to; `None` is a miss.
pub type Fetched = Result<Option<Item>, Refusal>;

/// What a range of keys came to: its items, in the backend's order.
pub type Ranged = Result<Vec<(Key, Item)>, Refusal>;

/// What an operation came to.
pub type Done = Result<Outcome, Refusal>;

/// A kind of place where the items of a pool come from.
///
/// An answer that does not come is the backend's to give up on: every `Later` must become ready in the time its settings
/// name, with a [`Refusal`] if need be. One that is dropped is not waited for any more.
pub trait Backend: Send + Sync + 'static {
    /// What messages and counters call it, such as `fleet shared`.
    fn name(&self) -> &str;

    /// Looks `keys` up: one answer each, in their order. `worker` is the number of the calling thread, below
    /// [`WORKERS_MAX`](crate::settings::WORKERS_MAX), for backends that keep something for each; a tokio runtime is
    /// running on it.
    fn get(&self, worker: usize, keys: Vec<Key>) -> Later<Vec<Fetched>>;

    /// Looks keys up as [`Backend::get`] does, and has each answer put into an inbox as it comes, perhaps before this
    /// returns. It is called while the worker's state is borrowed. Backends that can do without a task and memory for each
    /// request have their own.
    fn fetch(self: Arc<Self>, worker: usize, asked: &[Asked<'_>], wants: Wants, to: &Arc<Inbox>) {
        _ = wants;
        inbox::fetch_by_task(self, worker, asked, to);
    }

    /// Carries out `op`, of which nothing may be done twice.
    fn apply(&self, worker: usize, op: Op) -> Later<Done>;

    /// Whether `key` writes a range of keys, which [`Backend::range`] then reads.
    fn has_range(&self, key: &[u8]) -> bool {
        _ = key;
        false
    }

    /// The items of the range that `key` writes; asked only if there is one.
    fn range(&self, worker: usize, key: &[u8]) -> Later<Ranged> {
        _ = (worker, key);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Whether it is a table, whose counters `stats tables` shows.
    fn is_table(&self) -> bool {
        false
    }

    /// Tells of changes to items that were made by others, until the end of the pool's use of this backend. It is polled
    /// on the control thread. A backend that learns of none, or not now, leaves it at `None`: copies then live for
    /// `ttl_max` and no longer anyway.
    fn follow(self: Arc<Self>, changes: Box<dyn Changes>) -> Option<Later<()>> {
        drop(changes);
        None
    }

    /// Called every few milliseconds by the control thread: the place to look at deadlines, as workers have no timers.
    fn tick(&self) {}

    /// Shows its counters in `stats fleet`, each under a name of its own; the backend's is put in front.
    fn counters(&self, show: &mut dyn FnMut(&str, &dyn fmt::Display)) {
        _ = show;
    }
}

/// Where a backend tells of changes that others made: one for each pool.
pub trait Changes: Send {
    /// This item was stored, changed or deleted.
    fn changed(&mut self, key: &[u8]);

    /// A prefix or tag was forgotten: copies of what it may name are forgotten, in constant time.
    fn forgotten(&mut self, what: Forget<'_>);

    /// Changes may have been missed, or begin to be told now: every copy is forgotten, in constant time.
    fn gap(&mut self);

    /// Whether changes are told of as they happen; `why` says why not, in a few words.
    fn following(&mut self, is_following: bool, why: &str);
}

/// An item as the backend has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The client's flags.
    pub flags: u32,
    /// The backend's CAS unique; 0 where it has none.
    pub cas: u64,
    /// How long it has still to live.
    pub life: Life,
    /// What the meta protocol's recaching says of it.
    pub marks: Marks,
    /// The value.
    pub value: Bytes,
}

/// How long an item has still to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The backend cannot tell.
    Unknown,
    /// It does not expire.
    Forever,
    /// These many seconds, begun ones counted.
    Seconds(u32),
}

/// The recache flags of an answer to `mg`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// `W`: who is shown this has the right, and the duty, to store a new value.
    pub won: bool,
    /// `X`: the item was invalidated.
    pub stale: bool,
    /// `Z`: another client has the right already.
    pub sent: bool,
}

impl Marks {
    /// Whether there are any.
    pub fn any(self) -> bool {
        self.won || self.stale || self.sent
    }
}

/// A request for one item, or for all of them. Expiry times are a client's: seconds, 0 for never, negative for the past,
/// above 30 days a UNIX time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Store a value.
    Store(Store),
    /// Delete the item.
    Delete {
        /// Which.
        key: Key,
        /// Only if it has this CAS unique.
        compare: Option<u64>,
    },
    /// Count up or down.
    Arith(Arith),
    /// Set the expiry time.
    Touch {
        /// Of which.
        key: Key,
        /// To this.
        exptime: i64,
    },
    /// Set the expiry time, and answer with the item.
    GetAndTouch {
        /// Of which.
        key: Key,
        /// To this.
        exptime: i64,
    },
    /// A meta command that says more than the others can.
    Meta(Meta),
    /// Forget all items whose keys begin with this prefix.
    ForgetPrefix(Box<[u8]>),
    /// Forget all items that were stored with this tag.
    ForgetTag(Box<[u8]>),
    /// Forget everything.
    Flush {
        /// When; 0 is now.
        delay: i64,
    },
}

/// See [`Op::Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Under which key.
    pub key: Key,
    /// Over what, or behind or before it.
    pub mode: SetMode,
    /// Only if the item has this CAS unique; an item that is not there is then [`Outcome::NotFound`].
    pub compare: Option<u64>,
    /// The client's flags.
    pub flags: u32,
    /// The expiry time.
    pub exptime: i64,
    /// The value.
    pub value: Bytes,
}

/// See [`Op::Arith`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arith {
    /// Which item.
    pub key: Key,
    /// Down, not below 0; up wraps.
    pub decrement: bool,
    /// By how much.
    pub delta: u64,
    /// What a missing item begins with, and its expiry time.
    pub initial: Option<(u64, i64)>,
    /// Only if the item has this CAS unique.
    pub compare: Option<u64>,
}

/// A meta command as it is sent on: without the flags that concern the client's own connection (`q`, `k`, `O`, `b`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Which command.
    pub verb: MetaVerb,
    /// The key, decoded.
    pub key: Key,
    /// Its flags as they were sent, each letter with its argument, with one space between two.
    pub flags: Box<[u8]>,
    /// The value of `ms`.
    pub value: Bytes,
}

/// The meta commands about items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arith,
    /// `me`
    Debug,
}

impl Op {
    /// To forget this.
    pub fn forget(what: Forget<'_>) -> Op {
        match what {
            Forget::Prefix(prefix) => Op::ForgetPrefix(prefix.into()),
            Forget::Tag(tag) => Op::ForgetTag(tag.into()),
        }
    }

    /// The key it is about; `None` for all or many of them.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Op::Store(Store { key, .. }) | Op::Arith(Arith { key, .. }) | Op::Meta(Meta { key, .. }) => Some(key),
            Op::Delete { key, .. } | Op::Touch { key, .. } | Op::GetAndTouch { key, .. } => Some(key),
            Op::Flush { .. } | Op::ForgetPrefix(_) | Op::ForgetTag(_) => None,
        }
    }
}

/// What became of an [`Op`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Stored; with the new CAS unique, where the backend tells it.
    Stored {
        /// See above.
        cas: Option<u64>,
    },
    /// Something is there that must not, or is not that must.
    NotStored,
    /// The item has another CAS unique.
    Exists,
    /// There is no such item.
    NotFound,
    /// Deleted.
    Deleted,
    /// Touched.
    Touched,
    /// The number after counting; with the new CAS unique, where the backend tells it.
    Number {
        /// The number.
        value: u64,
        /// See above.
        cas: Option<u64>,
    },
    /// The item there is.
    Item(Item),
    /// The value is no number.
    NonNumeric,
    /// The value is larger than the backend takes.
    TooLarge,
    /// The backend has no memory for it.
    NoMemory,
    /// Everything is forgotten.
    Flushed,
    /// The prefix or tag is.
    Forgotten,
    /// What a meta command was answered.
    Meta(MetaAnswer),
}

/// The answer to a [`Meta`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaAnswer {
    /// `HD`, `VA`, `EN`, `NF`, `NS`, `EX`, or `ME`.
    pub code: [u8; 2],
    /// What follows the code, and the number of bytes after `VA`: flags with one space between two. After `ME` and the
    /// key, everything.
    pub flags: Box<[u8]>,
    /// The value, after `VA`.
    pub value: Option<Bytes>,
}

/// Why a backend did not do what it was asked: the client is answered `SERVER_ERROR` and this sentence, or what the server
/// behind it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    sentence: Arc<str>,
    /// What a text client is answered instead.
    line: Option<Arc<str>>,
    is_down: bool,
}

impl Refusal {
    /// The backend answered, and said no.
    pub fn no(sentence: impl fmt::Display) -> Refusal {
        Refusal { sentence: one_line(&sentence.to_string()), line: None, is_down: false }
    }

    /// A server said no in a `line` of the text protocol, `CLIENT_ERROR …` or `SERVER_ERROR …`, which text clients are
    /// answered as it is: it may be the client that is to blame. The others are answered `sentence`.
    pub fn said(line: &str, sentence: impl fmt::Display) -> Refusal {
        Refusal { line: Some(one_line(line)), ..Refusal::no(sentence) }
    }

    /// The backend, or the part of it that was asked, is not there or did not answer in time. Copies whose life is over
    /// may be served in its place, if the pool's settings say so.
    pub fn down(sentence: impl fmt::Display) -> Refusal {
        Refusal { is_down: true, ..Refusal::no(sentence) }
    }

    /// What was refused by whom, and why.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// The line that a text client is answered if it is not `SERVER_ERROR` and the [sentence](Refusal::sentence).
    pub fn line(&self) -> Option<&str> {
        self.line.as_deref()
    }

    /// Whether it was made by [`Refusal::down`].
    pub fn is_down(&self) -> bool {
        self.is_down
    }
}

/// What would end a line early ends the protocol.
fn one_line(sentence: &str) -> Arc<str> {
    sentence.replace(|character: char| character.is_control(), " ").into()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_whatever_a_server_said() {
        assert_eq!(Refusal::no("it said \"a\r\nb\"").sentence(), "it said \"a  b\"");
        assert_eq!(Refusal::said("CLIENT_ERROR a\rb", "").line(), Some("CLIENT_ERROR a b"));
        assert!(Refusal::down("gone").is_down() && !Refusal::no("no").is_down());
    }
}
