//! One connection to a database, as the writer and the readers of a table see it: the seam between what is the same for every
//! database and what is each one's own.
//!
//! A link belongs to one thread and blocks it. Nothing that a client sent is ever part of a statement's text.

use std::sync::Arc;

use crate::cell::Cell;
use crate::error::Error;
use crate::layout::{Described, Layout, Row};
use crate::shared::Shared;

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// What was written does not suit the table; other rows may.
    Row(String),
    /// Someone else was in the way: a deadlock, a row that appeared meanwhile. To be tried again.
    Conflict(String),
    /// The database refused, whatever the row.
    Refused(String),
    /// It took too long. The link is of no use any more.
    Overdue(String),
    /// The connection is lost.
    Lost(String),
}

impl Fault {
    /// What was the matter, whatever it means.
    pub(crate) fn why(self) -> String {
        match self {
            Fault::Row(why) | Fault::Conflict(why) | Fault::Refused(why) | Fault::Overdue(why) | Fault::Lost(why) => {
                why
            }
        }
    }
}

/// The bounds of a range, as cells of the key column, and whether each belongs to it.
pub(crate) struct Bounds {
    pub(crate) from: Option<(Cell, bool)>,
    pub(crate) to: Option<(Cell, bool)>,
    pub(crate) limit: u32,
    pub(crate) now: i64,
}

/// How to reach a database.
pub(crate) trait Dialect: Send + Sync {
    /// A new connection, within the settings' timeout.
    fn connect(&self, writes: bool) -> Result<Box<dyn Link>, Error>;

    /// Rows whose keys are all new can be written without looking, and none but rows with these keys are touched.
    fn upserts(&self, layout: &Layout) -> bool;

    /// Tells `shared.watchers` of changes until they cannot be heard of any more, or the table is closed; then says why. Never
    /// asked of a database whose writer's connection tells ([`Link::foreign_change`]).
    fn watch(&self, shared: &Shared) -> String;
}

/// A connection. Statements are within a transaction between `begin` and `commit` or `rollback`, else each is one.
pub(crate) trait Link: Send {
    /// What the database says of the table; where the database is ours to create, it is created first.
    fn describe(&mut self) -> Result<Described, Fault>;

    /// What is asked from now on is asked of this mapping.
    fn prepare(&mut self, layout: &Arc<Layout>);

    /// Whether the connection still stands.
    fn check(&mut self) -> Result<(), Fault>;

    /// The rows that have one of these keys, locked against other writers until the transaction ends if `lock`.
    fn read(&mut self, keys: &[Vec<Cell>], lock: bool) -> Result<Vec<Row>, Fault>;

    /// The rows of a range, in order, that are not expired.
    fn range(&mut self, bounds: &Bounds) -> Result<Vec<Row>, Fault>;

    /// Begins a transaction.
    fn begin(&mut self) -> Result<(), Fault>;

    /// Adds rows; a key that exists is a [`Fault::Conflict`].
    fn insert(&mut self, rows: &[Row]) -> Result<(), Fault>;

    /// Changes rows that are there.
    fn update(&mut self, rows: &[Row]) -> Result<(), Fault>;

    /// Adds rows or changes those that are there, in one transaction of its own.
    fn upsert(&mut self, rows: &[Row]) -> Result<(), Fault>;

    /// Takes rows away.
    fn delete(&mut self, keys: &[Vec<Cell>]) -> Result<(), Fault>;

    /// Takes up to `limit` rows away, those that expired by `expired_by` or any; how many.
    fn purge(&mut self, limit: u32, expired_by: Option<i64>) -> Result<u64, Fault>;

    /// Ends the transaction: it is in the database.
    fn commit(&mut self) -> Result<(), Fault>;

    /// Ends the transaction: nothing of it happened.
    fn rollback(&mut self) -> Result<(), Fault>;

    /// Marks a point within the transaction.
    fn mark(&mut self) -> Result<(), Fault>;

    /// Undoes what was done since the mark.
    fn back_to_mark(&mut self) -> Result<(), Fault>;

    /// The database's number of this session, where changes are told with it.
    fn session(&mut self) -> Result<Option<i64>, Fault> {
        Ok(None)
    }

    /// Whether another connection changed anything since this was last asked, where a connection can tell.
    fn foreign_change(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }
}
