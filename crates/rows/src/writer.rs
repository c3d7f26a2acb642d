//! The thread that writes: it makes the changes of those who have no event loop for it, or whose database is in this process, and
//! does all that is no change of a row.
//!
//! Nobody waits for company. While one transaction commits, the next one's changes gather by themselves; only after a
//! transaction of several, or when others wait already, does the thread wait for a moment for those who were answered, since they
//! are about to ask again: else clients fall into two groups, of which each waits for the other's commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::commit::{Committer, Pending};
use crate::drive::Drive;
use crate::error::Error;
use crate::shared::{Shared, Write};
use crate::watch::Change;

/// How many changes one transaction holds at most.
pub(crate) const CHANGES_MAX: usize = 256;
/// How many rows one statement of a flush or of the reaper takes away.
const PURGE_ROWS: u32 = 500;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    committer: Committer,
    /// How many changes are likely to come at once: those of the last round, and those that waited when it ended.
    crowd: usize,
    reap_at: Option<Instant>,
    look_at: Option<Instant>,
    looked_at: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Writer {
        let committer = Committer::new(Arc::clone(&shared), None);
        let reap_at = shared.settings.reap.map(|every| Instant::now() + every);
        Writer { shared, committer, crowd: 0, reap_at, look_at: None, looked_at: None }
    }

    /// Works until nothing more goes into the queue and nothing is left in it.
    pub(crate) fn run(mut self, drive: &Drive) {
        loop {
            let alarm = [self.committer.open_until(), self.reap_at, self.look_at].into_iter().flatten().min();
            let gather = self.shared.settings.gather;
            let Some(jobs) = self.shared.writes.take(CHANGES_MAX, self.crowd, gather, alarm) else {
                drive.wait(self.committer.settle());
                return;
            };
            drive.wait(async {
                self.take(jobs).await;
                self.alarms().await;
            });
        }
    }

    async fn take(&mut self, jobs: Vec<Write>) {
        let mut changes = Vec::with_capacity(jobs.len());
        self.crowd = 0;
        for job in jobs {
            match job {
                Write::Change { since, answer, .. } if since.elapsed() > self.shared.settings.timeout => {
                    let _ = answer.send(Err(self.shared.overdue()));
                }
                Write::Change { op, answer, .. } => changes.push(Pending { op, answer }),
                Write::Nudge => {}
                Write::Flush { since, answer } => {
                    self.write(std::mem::take(&mut changes)).await;
                    let late = since.elapsed() > self.shared.settings.timeout;
                    let flushed = if late { Err(self.shared.overdue()) } else { self.flush().await };
                    let _ = answer.send(flushed);
                }
                Write::Reap { answer } => {
                    self.write(std::mem::take(&mut changes)).await;
                    let _ = answer.send(self.reap().await);
                }
            }
        }
        self.write(changes).await;
    }

    async fn write(&mut self, changes: Vec<Pending>) {
        let count = changes.len();
        let finished = self.committer.write(changes).await;
        // Before they are answered: who comes again then is one of them. One alone is answered at once when it asks again.
        let waiting = self.shared.writes.len();
        self.crowd = if count > 1 || waiting > 0 { count + waiting } else { 0 };
        for (answer, done) in finished {
            let _ = answer.send(done);
        }
    }

    async fn alarms(&mut self) {
        let now = Instant::now();
        if self.committer.open_until().is_some_and(|until| now >= until) {
            self.committer.settle().await;
        }
        if self.reap_at.is_some_and(|at| now >= at) {
            self.reap_at = self.shared.settings.reap.map(|every| now + every);
            // Without the database nothing is there to be reaped, and those who ask are told.
            let _ = self.reap().await;
        }
        self.look(now).await;
    }

    /// Looks whether someone else wrote, where the writer's connection is the one to tell.
    async fn look(&mut self, now: Instant) {
        let Some(every) = self.shared.watchers.poll() else { return };
        if self.look_at.is_some_and(|at| now < at) {
            return;
        }
        self.look_at = Some(now + every);
        let looked_at = self.looked_at.replace(now);
        let watchers = &self.shared.watchers;
        let attached = self.committer.attached();
        let changed = match attached.link().await {
            Ok(link) => link.foreign_change().await.map_err(|fault| attached.fault(fault)),
            Err(away) => Err(away),
        };
        match changed {
            Ok(changed) => {
                if watchers.went_on() {
                    self.shared.counters.gaps.add(1);
                    watchers.tell(&Change::Gap);
                } else if changed {
                    self.shared.counters.heard.add(1);
                    watchers.set_lag(looked_at.map_or(every, |at| at.elapsed()));
                    watchers.tell(&Change::All);
                }
            }
            Err(why) => watchers.broke(why.to_string()),
        }
    }

    /// One small batch, so that clients wait for little.
    async fn reap(&mut self) -> Result<u64, Error> {
        if self.shared.layout.get().is_some_and(|layout| layout.expiry.is_none()) {
            return Ok(0);
        }
        self.committer.settle().await;
        let now = (self.shared.clock)();
        let gone = self.purge_some(Some(now)).await?;
        self.shared.counters.reaped.add(gone);
        if gone == u64::from(PURGE_ROWS) {
            self.reap_at = Some(Instant::now() + Duration::from_millis(20));
        }
        Ok(gone)
    }

    async fn flush(&mut self) -> Result<u64, Error> {
        self.committer.settle().await;
        let mut all = 0;
        loop {
            let gone = self.purge_some(None).await?;
            all += gone;
            if gone < u64::from(PURGE_ROWS) {
                return Ok(all);
            }
        }
    }

    async fn purge_some(&mut self, expired_by: Option<i64>) -> Result<u64, Error> {
        let attached = self.committer.attached();
        let purged = attached.link().await?.purge(PURGE_ROWS, expired_by).await;
        purged.map_err(|fault| attached.fault(fault))
    }
}
