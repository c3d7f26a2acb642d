//! A table as those who serve clients see it: requests go in, futures of their answers come out. Owns the table's threads.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::attached::Attached;
use crate::dialect;
use crate::drive::Drive;
use crate::error::Error;
use crate::lane::Lane;
use crate::layout::Layout;
use crate::op::{Done, Item, Op, Range};
use crate::plan::Stamps;
use crate::queue::Queue;
use crate::reader;
use crate::settings::{Commit, Engine, Settings};
use crate::shared::{Asked, Clock, Closing, Counters, Read, Seen, Shared, Stats, Write};
use crate::waiting::Refusal;
use crate::watch::{self, Listener, Watchers};
use crate::writer::Writer;

/// How often SQLite is asked whether another process wrote.
const POLL: Duration = Duration::from_millis(5);

/// A table behind memcached's words.
///
/// Every request is on its way when its method returns; its future only waits for the answer, on any runtime. Dropping the
/// future does not undo a change. Dropping the table does what is on its way, then ends its threads.
pub struct Table {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Table {
    /// Opens a table without waiting for its database: the mapping is checked when the first connection stands, and until it
    /// fits, every answer is why it does not.
    ///
    /// # Errors
    /// When the settings contradict themselves.
    pub fn open(settings: Settings, clock: Clock) -> Result<Table, Error> {
        let dialect = dialect::of(&settings)?;
        let readers = settings.readers.max(1);
        let watchers = Watchers::default();
        if settings.database.engine() == Engine::Sqlite {
            watchers.set_poll(POLL);
        }
        // Any number will do that another server is unlikely to have.
        let server = u16::try_from(RandomState::new().hash_one(std::process::id()) & 0x3ff).unwrap_or(0);
        let shared = Arc::new(Shared {
            settings,
            dialect,
            clock,
            layout: Seen::default(),
            writes: Queue::default(),
            reads: Queue::default(),
            counters: Counters::default(),
            watchers,
            stamps: Stamps::new(server),
            closing: Closing::default(),
        });
        let table = Table { shared, threads: Mutex::default() };
        let drive = table.drive()?;
        let writer = Writer::new(Arc::clone(&table.shared));
        table.spawn("write", move || writer.run(&drive))?;
        for _ in 0..readers {
            let (drive, shared) = (table.drive()?, Arc::clone(&table.shared));
            table.spawn("read", move || reader::run(&shared, &drive))?;
        }
        Ok(table)
    }

    /// Opens a table and waits until its mapping is checked.
    ///
    /// # Errors
    /// When the database cannot be reached, or the mapping does not fit the table.
    pub fn open_checked(settings: Settings, clock: Clock) -> Result<Table, Error> {
        let table = Table::open(settings, clock)?;
        table.check()?;
        Ok(table)
    }

    /// Waits until the database answered and the mapping is checked.
    ///
    /// # Errors
    /// When the database cannot be reached, or the mapping does not fit the table.
    pub fn check(&self) -> Result<(), Error> {
        let drive = self.drive()?;
        let seen = || drive.wait(async { Attached::new(Arc::clone(&self.shared), false, None).link().await.map(drop) });
        // On a thread of its own, since the caller may be on an event loop.
        let seen = std::thread::scope(|scope| scope.spawn(seen).join());
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn drive(&self) -> Result<Drive, Error> {
        Drive::new().map_err(|why| Error::Settings(format!("table {}: {why}", self.shared.settings.name)))
    }

    fn spawn(&self, does: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let name = &self.shared.settings.name;
        let thread = std::thread::Builder::new().name(format!("{does} {name}")).spawn(body);
        let thread =
            thread.map_err(|error| Error::Settings(format!("table {name}: no thread can be started: {error}")))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// What it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The mapping, once it was checked.
    pub fn layout(&self) -> Option<Arc<Layout>> {
        self.shared.layout.get()
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats()
    }

    /// How old the last change by others was, at most, when it was heard of. None while none was, or where the database does
    /// not tell.
    pub fn stream_lag(&self) -> Option<Duration> {
        self.shared.watchers.lag()
    }

    /// How many requests wait for a connection now.
    pub fn waiting(&self) -> usize {
        self.shared.writes.len() + self.shared.reads.len()
    }

    /// The rows of some keys, in the keys' order; one statement, shared with others who ask at the same time.
    pub fn get_many(&self, keys: Vec<Vec<u8>>) -> Answered<Vec<Option<Item>>> {
        let (answer, answered) = oneshot::channel();
        self.read(Asked::Keys { keys, answer }, answered)
    }

    /// The rows of a range with their keys, in the database's order.
    pub fn range(&self, range: Range) -> Answered<Vec<(Vec<u8>, Item)>> {
        let (answer, answered) = oneshot::channel();
        self.read(Asked::Range { range, answer }, answered)
    }

    /// Makes a change; answered when it is in the database.
    pub fn apply(&self, op: Op) -> Answered<Done> {
        self.shared.counters.changes.add(1);
        let (answer, answered) = oneshot::channel();
        self.write(Write::Change { op, since: Instant::now(), answer }, answered)
    }

    /// A way of its own to the table, for the event loop that is running: no other thread has to wake up for what is asked by it.
    /// None where the database needs a thread that may block, and where changes are answered before their commit.
    pub fn lane(&self) -> Option<Lane> {
        let may = self.shared.dialect.shares_a_thread() && self.shared.settings.commit == Commit::Durable;
        may.then(|| Lane::open(&self.shared))
    }

    /// Deletes every row of the table, in small batches; how many.
    pub fn flush(&self) -> Answered<u64> {
        let (answer, answered) = oneshot::channel();
        self.write(Write::Flush { since: Instant::now(), answer }, answered)
    }

    /// Deletes some expired rows; how many.
    pub fn reap(&self) -> Answered<u64> {
        let (answer, answered) = oneshot::channel();
        self.write(Write::Reap { answer }, answered)
    }

    /// Calls `listener` with every change that others make to the table. The first call is a gap, when changes begin to be
    /// heard of; copies that were made before it may be stale.
    ///
    /// # Errors
    /// When no thread can be started for it.
    pub fn subscribe(&self, listener: Listener) -> Result<(), Error> {
        let first = !self.shared.watchers.anyone();
        self.shared.watchers.add(listener);
        if self.shared.settings.database.engine() == Engine::Sqlite {
            let _ = self.shared.writes.push(Write::Nudge);
        } else if first {
            let shared = Arc::clone(&self.shared);
            self.spawn("watch", move || watch::run(shared))?;
        }
        Ok(())
    }

    fn read<T>(&self, what: Asked, answered: oneshot::Receiver<Result<T, Error>>) -> Answered<T> {
        let taken = self.shared.reads.push(Read { what, since: Instant::now() });
        Answered::of(&self.shared, taken, answered)
    }

    fn write<T>(&self, job: Write, answered: oneshot::Receiver<Result<T, Error>>) -> Answered<T> {
        let taken = self.shared.writes.push(job);
        Answered::of(&self.shared, taken, answered)
    }
}

/// An answer that is on its way.
#[derive(Debug)]
pub struct Answered<T>(Result<oneshot::Receiver<Result<T, Error>>, Option<Error>>);

impl<T> Answered<T> {
    /// That of a job which was taken in, or was not.
    pub(crate) fn of(
        shared: &Shared,
        taken: Result<(), Refusal>,
        answered: oneshot::Receiver<Result<T, Error>>,
    ) -> Answered<T> {
        Answered(taken.map(|()| answered).map_err(|why| Some(why.told(shared))))
    }
}

impl<T> Future for Answered<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = || Error::Unknown("the table was closed before it answered".to_owned());
        match &mut self.0 {
            Ok(answered) => Pin::new(answered).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(ended()))),
            Err(why) => Poll::Ready(Err(why.take().unwrap_or_else(ended))),
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.shared.writes.close();
        self.shared.reads.close();
        self.shared.closing.close();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.shared.place())
    }
}
