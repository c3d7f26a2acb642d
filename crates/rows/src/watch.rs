//! Changes that others made to a table, told to those who keep copies of its rows.
//!
//! Own changes are not told: whoever made them knows. They are recognised by the session that made them, or by the number they
//! put into the cas column; where neither can be told, own changes are told as well, which is safe.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::shared::Shared;

/// How many numbers of own changes are remembered until they are heard of.
const STAMPS_MAX: usize = 64 * 1024;
/// How long to wait before the database is asked for its changes again, and up to how long if it says each time that it does not
/// tell.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_REFUSED: Duration = Duration::from_secs(8);

/// News of an own change comes within this time, or is taken for another's.
const OWN_FOR: Duration = Duration::from_secs(5);

/// What happened to a table behind our back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Changes may have been missed; from now on they are told again. Every copy is to be forgotten.
    Gap,
    /// The row with this key was written or taken away.
    Key(Vec<u8>),
    /// Rows were changed, which ones is not known. Every copy is to be forgotten.
    All,
    /// Changes are not heard of from now on, and why. A gap is told when they are again.
    Away(String),
}

/// Why changes cannot be heard of.
#[derive(Debug)]
pub(crate) enum Unheard {
    /// The connection is lost, or none can be made.
    Lost(String),
    /// The database says no: it keeps no log, has no triggers, or gives this user none of them.
    Refused(String),
}

impl From<String> for Unheard {
    fn from(why: String) -> Unheard {
        Unheard::Lost(why)
    }
}

/// How long to wait after this, when `last` is how long was waited before.
fn pause(unheard: &Unheard, last: Duration) -> Duration {
    match unheard {
        Unheard::Lost(_) => PAUSE,
        Unheard::Refused(_) => (last * 2).min(PAUSE_REFUSED),
    }
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
    /// The database's numbers of the sessions that write, and when each was last used.
    sessions: Mutex<Vec<(i64, Instant)>>,
    /// In microseconds and one more; 0: none was seen.
    lag: AtomicI64,
    stamps: Mutex<(HashSet<i64>, VecDeque<i64>)>,
    doubts: Mutex<Doubts>,
    /// Someone takes them.
    keeps_doubts: AtomicBool,
    doubted: Notify,
}

/// What was told and may not be visible yet. Kept where the database tells of changes before that.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    pub(crate) keys: HashSet<Vec<u8>>,
    pub(crate) all: bool,
}

/// More keys than this are as good as all.
const DOUBTS_MAX: usize = 64 * 1024;

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
    pub(crate) fn broke(&self, why: String) {
        self.broken.store(true, Ordering::Release);
        self.tell(&Change::Away(why));
    }

    /// Whether changes are heard of again after they were not.
    pub(crate) fn went_on(&self) -> bool {
        self.broken.swap(false, Ordering::AcqRel)
    }

    /// Whether anyone listens.
    pub(crate) fn anyone(&self) -> bool {
        self.anyone.load(Ordering::Acquire)
    }

    /// A change was heard of that is up to this old.
    pub(crate) fn set_lag(&self, lag: Duration) {
        self.lag.store(i64::try_from(lag.as_micros()).unwrap_or(i64::MAX).saturating_add(1), Ordering::Relaxed);
    }

    /// How old the last change was, at most, that was heard of.
    pub(crate) fn lag(&self) -> Option<Duration> {
        let micros = u64::try_from(self.lag.load(Ordering::Relaxed) - 1).ok()?;
        Some(Duration::from_micros(micros))
    }

    /// An own change is about to be made by this session.
    pub(crate) fn uses_session(&self, session: i64, now: Instant) {
        let mut sessions = self.sessions();
        match sessions.iter_mut().find(|(own, _)| *own == session) {
            Some((_, used)) => *used = now,
            None => sessions.push((session, now)),
        }
    }

    /// No own change will be made by this session any more.
    pub(crate) fn ended_session(&self, session: i64) {
        self.sessions().retain(|(own, _)| *own != session);
    }

    /// Whether it is an own session. One that was not used for long may have ended unnoticed, and its number be another's.
    pub(crate) fn is_own_session(&self, session: i64, now: Instant) -> bool {
        let is_it = |(own, used): &(i64, Instant)| *own == session && now.saturating_duration_since(*used) < OWN_FOR;
        self.sessions().iter().any(is_it)
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<(i64, Instant)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before a change with this number in its cas column can be heard of.
    pub(crate) fn own_stamps(&self, stamps: impl Iterator<Item = i64>) {
        let mut own = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let (set, order) = &mut *own;
        for stamp in stamps {
            set.insert(stamp);
            order.push_back(stamp);
            if order.len() > STAMPS_MAX {
                order.pop_front().map(|oldest| set.remove(&oldest));
            }
        }
    }

    /// How own changes ended is not known: they may be made later than anyone thinks, so none that is heard of from now on is
    /// taken for an own one, and these keys are told of again once that is known.
    pub(crate) fn disown<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        self.forget_own();
        keys.for_each(|key| self.doubt(key));
    }

    /// Changes may have been missed, own ones among them: a number that is still waited for would hide the next change that
    /// leaves it as it is, and a session that has ended meanwhile the changes of whoever has its number now.
    pub(crate) fn forget_own(&self) {
        self.sessions().clear();
        let mut own = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        own.0.clear();
        own.1.clear();
    }

    /// This row may be visible as it was for a while yet.
    pub(crate) fn doubt(&self, key: &[u8]) {
        if !self.keeps_doubts.load(Ordering::Acquire) {
            return;
        }
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        if doubts.keys.len() < DOUBTS_MAX {
            doubts.keys.insert(key.to_vec());
        } else {
            doubts.keys.clear();
            doubts.all = true;
        }
        self.doubted.notify_one();
    }

    /// Doubts are taken from now on; without that there are none.
    pub(crate) fn keep_doubts(&self) {
        self.keeps_doubts.store(true, Ordering::Release);
    }

    /// Any row may be.
    pub(crate) fn doubt_all(&self) {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner).all = true;
        self.doubted.notify_one();
    }

    /// What there are doubts of, once there are any; they are the caller's then.
    pub(crate) async fn doubts(&self) -> Doubts {
        loop {
            let doubts = std::mem::take(&mut *self.doubts.lock().unwrap_or_else(PoisonError::into_inner));
            if doubts.all || !doubts.keys.is_empty() {
                return doubts;
            }
            self.doubted.notified().await;
        }
    }

    /// Whether a change with this number in its cas column is one that was made here. The next one with it is not: someone
    /// changed the row and left the number.
    pub(crate) fn takes_own_stamp(&self, stamp: i64) -> bool {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&stamp)
    }
}

/// A thread that hears of changes by a connection of its own, until the table is closed.
pub(crate) fn run(shared: Arc<Shared>) {
    let mut paused = PAUSE;
    while !shared.closing.is_closed() {
        let unheard = shared.dialect.watch(&shared);
        paused = pause(&unheard, paused);
        let (Unheard::Lost(why) | Unheard::Refused(why)) = unheard;
        shared.counters.gaps.add(1);
        shared.watchers.broke(why);
        shared.closing.wait(paused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_own_while_it_is_used_and_until_changes_may_have_been_missed() {
        let (watchers, now) = (Watchers::default(), Instant::now());
        assert!(!watchers.is_own_session(0, now), "of none that is known");
        watchers.uses_session(7, now);
        watchers.uses_session(9, now);
        assert!(watchers.is_own_session(7, now) && watchers.is_own_session(9, now) && !watchers.is_own_session(8, now));
        watchers.ended_session(9);
        assert!(!watchers.is_own_session(9, now));
        assert!(!watchers.is_own_session(7, now + OWN_FOR), "the number may be another's");
        watchers.uses_session(7, now + OWN_FOR);
        assert!(watchers.is_own_session(7, now + OWN_FOR));
        watchers.forget_own();
        assert!(!watchers.is_own_session(7, now + OWN_FOR));
    }

    #[test]
    fn numbers_of_own_changes_are_known_once_and_until_changes_may_have_been_missed() {
        let watchers = Watchers::default();
        watchers.own_stamps([1, 2, 3].into_iter());
        assert!(watchers.takes_own_stamp(1) && !watchers.takes_own_stamp(1));
        watchers.disown(std::iter::empty());
        assert!(!watchers.takes_own_stamp(2));
        watchers.own_stamps(0..=STAMPS_MAX as i64);
        assert!(!watchers.takes_own_stamp(0) && watchers.takes_own_stamp(1), "the oldest is forgotten");
    }

    #[test]
    fn a_database_that_says_no_is_asked_less_and_less_often_and_one_that_is_lost_soon_again() {
        let no = Unheard::Refused("it keeps no log".to_owned());
        let waits = std::iter::successors(Some(PAUSE), |last| Some(pause(&no, *last)));
        let waits: Vec<u128> = waits.skip(1).take(6).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(pause(&Unheard::Lost("reset".to_owned()), PAUSE_REFUSED), PAUSE);
    }

    #[test]
    fn doubts_are_kept_for_who_takes_them_and_for_nobody_else() {
        let watchers = Watchers::default();
        let kept = |watchers: &Watchers| watchers.doubts.lock().unwrap().keys.len();
        watchers.doubt(b"a");
        assert_eq!(kept(&watchers), 0);
        watchers.keep_doubts();
        watchers.doubt(b"a");
        assert_eq!(kept(&watchers), 1);
    }
}
