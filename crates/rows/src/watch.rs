//! Changes that others made to a table, told to those who keep copies of its rows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What happened to a table behind our back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Changes may have been missed; from now on they are told again. Every copy is to be forgotten.
    Gap,
    /// The row with this key was written or taken away.
    Key(Vec<u8>),
    /// Rows were changed, which ones is not known. Every copy is to be forgotten.
    All,
}

/// Called with each change, from a thread of the table's; to be quick.
pub type Listener = Box<dyn Fn(&Change) + Send + Sync>;

/// Those who listen.
#[derive(Default)]
pub(crate) struct Watchers {
    listeners: Mutex<Vec<Listener>>,
    anyone: AtomicBool,
    /// The writer's connection tells, and how often it is asked.
    poll: Mutex<Option<Duration>>,
    broken: AtomicBool,
}

impl Watchers {
    pub(crate) fn add(&self, listener: Listener) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        self.broken.store(true, Ordering::Release);
        self.anyone.store(true, Ordering::Release);
    }

    pub(crate) fn tell(&self, change: &Change) {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
    }

    pub(crate) fn set_poll(&self, every: Duration) {
        *self.poll.lock().unwrap_or_else(PoisonError::into_inner) = Some(every);
    }

    /// How often the writer's connection is to be asked, if it is.
    pub(crate) fn poll(&self) -> Option<Duration> {
        if !self.anyone.load(Ordering::Acquire) {
            return None;
        }
        *self.poll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes cannot be heard of now.
    pub(crate) fn broke(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether changes are heard of again after they were not.
    pub(crate) fn went_on(&self) -> bool {
        self.broken.swap(false, Ordering::AcqRel)
    }
}
