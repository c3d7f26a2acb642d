//! Requests out and answers in, in whichever protocol, as cheaply as can be.
//!
//! What is sent is spelled here straight into the connection's buffer, without the checks that a client for strangers' keys
//! needs (`nuthatch_proto::client`); a test holds the two to the same bytes. An answer is first compared with the one that is
//! expected, which is nearly always what came, and only then parsed. Nothing here allocates per request.

mod answers;
mod requests;

use std::collections::VecDeque;

/// What the server is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `get`, `set`, `delete`.
    Text,
    /// `mg`, `ms`, `md`.
    Meta,
    /// Binary frames.
    Binary,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A retrieval of one or several keys.
    Get,
    /// A set of one key.
    Set,
    /// A deletion of one key.
    Delete,
}

/// A request whose answer has not come, or not wholly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// What it is.
    pub(crate) kind: Kind,
    /// How many keys it asked for.
    pub(crate) width: u32,
    /// How many of its keys are not answered yet.
    pub(crate) left: u32,
    /// When it was meant to be sent, in nanoseconds of the run's clock.
    pub(crate) started_ns: u64,
}

/// What came of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Requests answered.
    pub(crate) requests: u64,
    /// Keys asked for by gets.
    pub(crate) gets: u64,
    /// Keys found.
    pub(crate) hits: u64,
    /// Bytes of the values found.
    pub(crate) hit_bytes: u64,
    /// Keys set.
    pub(crate) sets: u64,
    /// Keys deleted, found or not.
    pub(crate) deletes: u64,
    /// Deletes that found their key.
    pub(crate) deleted: u64,
    /// Answers that were errors.
    pub(crate) errors: u64,
    /// Values that were not what had been stored; counted with `--verify`.
    pub(crate) wrong: u64,
    /// The first error or wrong value.
    pub(crate) first_problem: Option<String>,
}

impl Tally {
    /// Takes another's counts in.
    pub(crate) fn add(&mut self, other: Tally) {
        self.requests += other.requests;
        self.gets += other.gets;
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.sets += other.sets;
        self.deletes += other.deletes;
        self.deleted += other.deleted;
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.first_problem = self.first_problem.take().or(other.first_problem);
    }

    /// Keys asked for, stored or deleted.
    pub(crate) fn keys(&self) -> u64 {
        self.gets + self.sets + self.deletes
    }

    #[cold]
    fn error(&mut self, text: &[u8]) {
        self.errors += 1;
        self.first_problem.get_or_insert_with(|| format!("the server answered {}", text.escape_ascii()));
    }

    #[cold]
    fn wrong(&mut self, name: &[u8], why: &str) {
        self.wrong += 1;
        self.first_problem.get_or_insert_with(|| format!("key {}: {why}", name.escape_ascii()));
    }
}

/// Where reading an answer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The buffer needs at least this many bytes.
    Need(usize),
    /// This many bytes were a part of the answer; more of it comes.
    Part(usize),
    /// This many bytes were the answer's end.
    Done(usize),
    /// What came is no answer.
    Broken(String),
}

/// How requests are spelled and answers are understood.
pub(crate) struct Codec {
    protocol: Protocol,
    verify: bool,
    scratch: Vec<u8>,
}

/// Where an answer's keys are looked up and what came of them is written down.
pub(crate) struct Reading<'a> {
    /// Keys asked for, in the order of the requests; the first `left` are the current request's.
    pub(crate) ids: &'a mut VecDeque<u32>,
    /// Counts.
    pub(crate) tally: &'a mut Tally,
    /// Keys that were not found, for whoever wants to store them.
    pub(crate) missed: Option<&'a mut Vec<u32>>,
}

impl Codec {
    pub(crate) fn new(protocol: Protocol, verify: bool) -> Codec {
        Codec { protocol, verify, scratch: Vec::with_capacity(512) }
    }
}
