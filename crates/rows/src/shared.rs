//! What the threads of one table share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::error::Error;
use crate::layout::{Described, Layout};
use crate::link::{Dialect, Fault};
use crate::op::{Done, Item, Op, Range};
use crate::plan::Stamps;
use crate::queue::Queue;
use crate::settings::Settings;
use crate::waiting::Weighs;
use crate::watch::Watchers;

/// The second it is, since 1970. Given by whoever opens a table.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) dialect: Box<dyn Dialect>,
    pub(crate) clock: Clock,
    /// Once the table was seen.
    pub(crate) layout: Seen,
    pub(crate) writes: Queue<Write>,
    pub(crate) reads: Queue<Read>,
    pub(crate) counters: Counters,
    pub(crate) watchers: Watchers,
    /// Numbers for the cas column.
    pub(crate) stamps: Stamps,
    pub(crate) closing: Closing,
}

/// The mapping on the table as it was last seen, and whether that may be another by now: someone may have altered the table.
#[derive(Default)]
pub(crate) struct Seen {
    layout: RwLock<Option<Arc<Layout>>>,
    doubted: AtomicBool,
    doubted_at: Mutex<Option<Instant>>,
}

/// How long a table that was looked at again is not looked at again: a client may send what does not fit as often as it likes.
const DOUBTS_EVERY: Duration = Duration::from_secs(1);

impl Seen {
    pub(crate) fn get(&self) -> Option<Arc<Layout>> {
        self.layout.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The mapping is this one, from now on if it is another than it was.
    fn set(&self, layout: Layout) -> Arc<Layout> {
        let mut seen = self.layout.write().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some(same) if **same == layout => Arc::clone(same),
            _ => Arc::clone(seen.insert(Arc::new(layout))),
        }
    }

    /// Whether a refusal would have the table looked at: it was not for a while.
    pub(crate) fn may_doubt(&self) -> bool {
        self.doubted_at.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|at| at.elapsed() > DOUBTS_EVERY)
    }

    /// Something was refused: the table is looked at before it is asked again.
    pub(crate) fn doubt(&self) {
        let mut at = self.doubted_at.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none_or(|at| at.elapsed() > DOUBTS_EVERY) {
            *at = Some(Instant::now());
            self.doubted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the caller is to look.
    pub(crate) fn take_doubt(&self) -> bool {
        self.doubted.load(Ordering::Relaxed) && self.doubted.swap(false, Ordering::Relaxed)
    }
}

/// Whether the table is being closed, for threads that wait for other things than its queues.
#[derive(Default)]
pub(crate) struct Closing {
    closed: Mutex<bool>,
    changed: Condvar,
    notify: Notify,
}

impl Closing {
    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        self.notify.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for it, up to `time`.
    pub(crate) fn wait(&self, time: Duration) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.changed.wait_timeout_while(closed, time, |closed| !*closed);
    }

    /// Waits for it; one thread may.
    pub(crate) async fn closed(&self) {
        self.notify.notified().await;
    }
}

pub(crate) type Answer<T> = oneshot::Sender<Result<T, Error>>;

/// What the writer is asked.
pub(crate) enum Write {
    Change {
        op: Op,
        since: Instant,
        answer: Answer<Done>,
    },
    /// Nothing: the writer is to look at its alarms.
    Nudge,
    /// Every row is to go.
    Flush {
        since: Instant,
        answer: Answer<u64>,
    },
    /// Some expired rows are to go.
    Reap {
        answer: Answer<u64>,
    },
}

impl Weighs for Write {
    fn bytes(&self) -> usize {
        match self {
            Write::Change { op, .. } => op.bytes(),
            Write::Nudge | Write::Flush { .. } | Write::Reap { .. } => 0,
        }
    }
}

/// What the readers are asked.
pub(crate) struct Read {
    pub(crate) what: Asked,
    pub(crate) since: Instant,
}

pub(crate) enum Asked {
    Keys { keys: Vec<Vec<u8>>, answer: Answer<Vec<Option<Item>>> },
    Range { range: Range, answer: Answer<Vec<(Vec<u8>, Item)>> },
}

impl Weighs for Read {
    fn bytes(&self) -> usize {
        match &self.what {
            Asked::Keys { keys, .. } => keys.iter().map(Vec::len).sum(),
            Asked::Range { .. } => 0,
        }
    }
}

impl Shared {
    /// The table in its database, for sentences.
    pub(crate) fn place(&self) -> String {
        format!("table {} in {}", self.settings.table, self.settings.database)
    }

    /// The mapping on a table that is as described.
    pub(crate) fn fit(&self, described: &Described) -> Result<Arc<Layout>, Error> {
        Ok(self.layout.set(Layout::new(&self.settings, described)?))
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        let place = self.place();
        match fault {
            Fault::Row(why) => Error::Row(format!("{place}: {why}")),
            Fault::Conflict(why) => Error::Refused(format!("{place}: others were in the way each time: {why}")),
            Fault::Refused(why) => Error::Refused(format!("{place}: {why}")),
            Fault::Overdue(why) => Error::Overdue(format!("{place}: {why}")),
            Fault::Lost(why) | Fault::Unready(why) => Error::Unreachable(format!("{place}: {why}")),
        }
    }

    pub(crate) fn overdue(&self) -> Error {
        Error::Overdue(format!("{}: it is too busy to begin within {:?}", self.place(), self.settings.timeout))
    }
}

/// A number that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        /// What a table did since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn stats(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }

        impl Stats {
            /// Every number with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Keys asked for.
    keys_read,
    /// Of those, rows found.
    rows_found,
    /// Statements that looked rows up.
    lookups,
    /// Range reads.
    ranges,
    /// Changes asked for.
    changes,
    /// Transactions committed.
    commits,
    /// Changes in those.
    changes_committed,
    /// Transactions tried again because others were in the way.
    retries,
    /// Changes tried alone after a transaction failed.
    alone,
    /// Changes that failed.
    failed,
    /// Changes answered before their commit that the commit lost.
    lost_relaxed,
    /// Expired rows deleted.
    reaped,
    /// Connections made.
    connected,
    /// Connections lost.
    lost,
    /// Changes by others that were heard of.
    heard,
    /// Times when changes by others may have been missed.
    gaps,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_refused_has_the_table_looked_at_once_in_a_while() {
        let seen = Seen::default();
        assert!(seen.may_doubt() && !seen.take_doubt());
        seen.doubt();
        seen.doubt();
        assert!(seen.take_doubt() && !seen.take_doubt() && !seen.may_doubt());
        seen.doubt();
        assert!(!seen.take_doubt(), "it was looked at just now");
        *seen.doubted_at.lock().unwrap() = Instant::now().checked_sub(DOUBTS_EVERY * 2);
        assert!(seen.may_doubt());
        seen.doubt();
        assert!(seen.take_doubt());
    }
}
