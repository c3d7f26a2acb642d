//! One connection to a database, as the writer and the readers of a table see it: the seam between what is the same for every
//! database and what is each one's own.
//!
//! A link belongs to one task, on the event loop on which it was made; SQLite's blocks its thread, which is then one of its own.
//! Nothing that a client sent is ever part of a statement's text.

use std::sync::Arc;

use async_trait::async_trait;

use crate::budget::Ticks;
use crate::cell::Cell;
use crate::error::Error;
use crate::layout::{Described, Layout, Row};
use crate::shared::Shared;
use crate::watch::Unheard;

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
    /// The database does nothing now, and has not done this: a node that has lost its cluster.
    Unready(String),
}

impl Fault {
    /// What was the matter, whatever it means.
    pub(crate) fn why(self) -> String {
        match self {
            Fault::Row(why)
            | Fault::Conflict(why)
            | Fault::Refused(why)
            | Fault::Overdue(why)
            | Fault::Lost(why)
            | Fault::Unready(why) => why,
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
#[async_trait]
pub(crate) trait Dialect: Send + Sync {
    /// A new connection, within the settings' timeout. Its deadlines are those of `ticks`, or the runtime's timers'.
    async fn connect(&self, ticks: Option<&Arc<Ticks>>) -> Result<Box<dyn Link>, Error>;

    /// Whether its links leave their thread to others while they wait.
    fn shares_a_thread(&self) -> bool;

    /// Rows whose keys are all new can be written without looking, and none but rows with these keys are touched.
    fn upserts(&self, layout: &Layout) -> bool;

    /// Tells `shared.watchers` of changes until they cannot be heard of any more, or the table is closed; then says why. Never
    /// asked of a database whose writer's connection tells ([`Link::foreign_change`]).
    fn watch(&self, shared: &Shared) -> Unheard;
}

/// A connection. Statements are within a transaction between `begin` and `commit` or `rollback`, else each is one.
#[async_trait]
pub(crate) trait Link: Send {
    /// What the database says of the table; where the database is ours to create, it is created first.
    async fn describe(&mut self) -> Result<Described, Fault>;

    /// What is asked from now on is asked of this mapping.
    fn prepare(&mut self, layout: &Arc<Layout>);

    /// Whether the connection still stands.
    async fn check(&mut self) -> Result<(), Fault>;

    /// The rows that have one of these keys, locked against other writers until the transaction ends if `lock`.
    async fn read(&mut self, keys: &[Vec<Cell>], lock: bool) -> Result<Vec<Row>, Fault>;

    /// The rows of a range, in order, that are not expired.
    async fn range(&mut self, bounds: &Bounds) -> Result<Vec<Row>, Fault>;

    /// Begins a transaction.
    async fn begin(&mut self) -> Result<(), Fault>;

    /// Adds rows; a key that exists is a [`Fault::Conflict`].
    async fn insert(&mut self, rows: &[Row]) -> Result<(), Fault>;

    /// Changes rows that are there.
    async fn update(&mut self, rows: &[Row]) -> Result<(), Fault>;

    /// Adds rows or changes those that are there, in one transaction of its own.
    async fn upsert(&mut self, rows: &[Row]) -> Result<(), Fault>;

    /// Takes rows away.
    async fn delete(&mut self, keys: &[Vec<Cell>]) -> Result<(), Fault>;

    /// Takes up to `limit` rows away, those that expired by `expired_by` or any; how many.
    async fn purge(&mut self, limit: u32, expired_by: Option<i64>) -> Result<u64, Fault>;

    /// Ends the transaction: it is in the database.
    async fn commit(&mut self) -> Result<(), Fault>;

    /// Ends the transaction: nothing of it happened.
    async fn rollback(&mut self) -> Result<(), Fault>;

    /// Marks a point within the transaction.
    async fn mark(&mut self) -> Result<(), Fault>;

    /// Undoes what was done since the mark.
    async fn back_to_mark(&mut self) -> Result<(), Fault>;

    /// The database's number of this session, where changes are told with it.
    async fn session(&mut self) -> Result<Option<i64>, Fault> {
        Ok(None)
    }

    /// Whether another connection changed anything since this was last asked, where a connection can tell.
    async fn foreign_change(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }
}
