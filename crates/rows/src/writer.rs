//! The thread that writes: changes of many clients in one transaction, each answered after its commit.
//!
//! Nobody waits for company. While one transaction commits, the next one's changes gather by themselves; only after a
//! transaction of several, or when others wait already, does the thread wait for a moment for those who were answered, since they
//! are about to ask again: else clients fall into two groups, of which each waits for the other's commit. A
//! transaction that fails because of one row is done again in halves, so that this row fails alone. One whose commit may or
//! may not have happened is never done again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::attached::Attached;
use crate::error::Error;
use crate::layout::Layout;
use crate::link::{Fault, Link};
use crate::op::{Done, Op};
use crate::plan::{Plan, Stamps, blind};
use crate::settings::Commit;
use crate::shared::{Answer, Shared, Write};
use crate::watch::Change;

/// How many changes one transaction holds at most.
const CHANGES_MAX: usize = 256;
/// How many rows one statement of a flush or of the reaper takes away.
const PURGE_ROWS: u32 = 500;
/// How often a transaction is tried again when others were in the way.
const TRIES: usize = 4;

struct Pending {
    op: Op,
    answer: Answer<Done>,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    attached: Attached,
    stamps: Stamps,
    /// A transaction that was answered and not committed yet.
    open: Option<Open>,
    /// How many changes the last round held.
    last: usize,
    reap_at: Option<Instant>,
    look_at: Option<Instant>,
    looked_at: Option<Instant>,
}

struct Open {
    until: Instant,
    changes: u64,
}

/// How an attempt failed, and whether it may have happened all the same.
struct Failed {
    fault: Fault,
    perhaps: bool,
}

impl Failed {
    /// What was asked would have been the end of the transaction.
    fn at_the_end(fault: Fault) -> Failed {
        let perhaps = matches!(fault, Fault::Lost(_) | Fault::Overdue(_));
        Failed { fault, perhaps }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Failed {
        Failed { fault, perhaps: false }
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, server: u16) -> Writer {
        let attached = Attached::new(Arc::clone(&shared), true);
        let reap_at = shared.settings.reap.map(|every| Instant::now() + every);
        Writer {
            shared,
            attached,
            stamps: Stamps::new(server),
            open: None,
            last: 0,
            reap_at,
            look_at: None,
            looked_at: None,
        }
    }

    pub(crate) fn run(mut self) {
        loop {
            let alarm =
                [self.open.as_ref().map(|open| open.until), self.reap_at, self.look_at].into_iter().flatten().min();
            let (most, gather) = (CHANGES_MAX, self.shared.settings.gather);
            // One alone is answered at once when it asks again.
            let again = if self.last > 1 || self.shared.writes.len() > 0 { self.last } else { 0 };
            let Some(jobs) = self.shared.writes.take(most, again, gather, alarm) else {
                self.settle();
                return;
            };
            self.last = jobs.len();
            self.take(jobs);
            self.alarms();
        }
    }

    fn take(&mut self, jobs: Vec<Write>) {
        let mut changes = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job {
                Write::Change { since, answer, .. } if since.elapsed() > self.shared.settings.timeout => {
                    let _ = answer.send(Err(self.shared.overdue()));
                }
                Write::Change { op, answer, .. } => changes.push(Pending { op, answer }),
                Write::Nudge => {}
                Write::Flush { since, answer } => {
                    self.write(std::mem::take(&mut changes));
                    self.settle();
                    let late = since.elapsed() > self.shared.settings.timeout;
                    let flushed = if late { Err(self.shared.overdue()) } else { self.purge(None) };
                    let _ = answer.send(flushed);
                }
                Write::Reap { answer } => {
                    self.write(std::mem::take(&mut changes));
                    self.settle();
                    let now = (self.shared.clock)();
                    let _ = answer.send(self.purge(Some(now)));
                }
            }
        }
        self.write(changes);
    }

    fn write(&mut self, changes: Vec<Pending>) {
        if changes.is_empty() {
            return;
        }
        let deadline = Instant::now() + self.shared.settings.timeout;
        self.write_by(changes, deadline);
    }

    fn write_by(&mut self, changes: Vec<Pending>, deadline: Instant) {
        let mut tries = 0;
        let error = loop {
            tries += 1;
            let failed = match self.attempt(&changes) {
                Ok(Ok(answers)) => {
                    for (change, answer) in changes.into_iter().zip(answers) {
                        self.shared.counters.failed.add(answer.is_err().into());
                        let _ = change.answer.send(answer);
                    }
                    return;
                }
                Ok(Err(failed)) => failed,
                Err(away) => break away,
            };
            let lost = matches!(failed.fault, Fault::Lost(_) | Fault::Overdue(_));
            if lost {
                self.open_lost();
            }
            if failed.perhaps {
                self.shared.watchers.disown(changes.iter().map(|change| change.op.key()));
                let error = self.attached.fault(failed.fault);
                break Error::Unknown(format!("whether it was written is not known: {error}"));
            }
            let may_repeat = tries < TRIES && Instant::now() < deadline;
            match failed.fault {
                Fault::Conflict(_) | Fault::Lost(_) if may_repeat => {
                    self.shared.counters.retries.add(1);
                    if lost {
                        self.attached.fault(failed.fault);
                    }
                }
                Fault::Row(_) | Fault::Conflict(_) if changes.len() > 1 => {
                    self.shared.counters.alone.add(changes.len() as u64);
                    let mut first = changes;
                    let second = first.split_off(first.len() / 2);
                    self.write_by(first, deadline);
                    self.write_by(second, deadline);
                    return;
                }
                fault => break self.attached.fault(fault),
            }
        };
        for change in changes {
            self.shared.counters.failed.add(1);
            let _ = change.answer.send(Err(error.clone()));
        }
    }

    /// One transaction. Outside: no connection. Inside: why the transaction failed.
    fn attempt(&mut self, changes: &[Pending]) -> Result<Result<Vec<Result<Done, Error>>, Failed>, Error> {
        let relaxed = match self.shared.settings.commit {
            Commit::Durable => None,
            Commit::Relaxed(within) => Some(within),
        };
        let now = (self.shared.clock)();
        let link = self.attached.link()?;
        let Some(layout) = self.shared.layout.get() else {
            return Err(Error::Unreachable(format!("{}: it was not seen yet", self.shared.place())));
        };
        let ops = || changes.iter().map(|change| &change.op);
        if relaxed.is_none() && self.shared.dialect.upserts(layout) && blind(ops(), now) {
            let written = upsert(&self.shared, link, layout, ops(), now, &mut self.stamps);
            return Ok(written.map(|plan| plan.answers));
        }
        if self.open.is_none()
            && let Err(fault) = link.begin()
        {
            return Ok(Err(fault.into()));
        }
        if relaxed.is_some()
            && let Err(fault) = link.mark()
        {
            self.undo();
            return Ok(Err(fault.into()));
        }
        let plan = match transact(&self.shared, link, layout, ops(), now, &mut self.stamps) {
            Ok(plan) => plan,
            Err(fault) => {
                // What was answered before in the same transaction stays, unless the database has undone all of it.
                let kept = self.open.is_some() && matches!(fault, Fault::Row(_)) && link.back_to_mark().is_ok();
                if !kept {
                    self.undo();
                }
                return Ok(Err(fault.into()));
            }
        };
        match relaxed {
            None => {
                if let Err(failed) = link.commit().map_err(Failed::at_the_end) {
                    if !failed.perhaps {
                        self.undo();
                    }
                    return Ok(Err(failed));
                }
                count_commit(&self.shared, changes.len());
            }
            Some(within) => {
                let open = self.open.get_or_insert(Open { until: Instant::now() + within, changes: 0 });
                open.changes += changes.len() as u64;
            }
        }
        Ok(Ok(plan.answers))
    }

    fn undo(&mut self) {
        self.open_lost();
        let undone = self.attached.standing().is_none_or(|link| link.rollback().is_ok());
        if !undone {
            self.attached.lose();
        }
    }

    /// The open transaction will not be committed; what was answered in it is lost, which a relaxed table is allowed.
    fn open_lost(&mut self) {
        if let Some(open) = self.open.take() {
            self.shared.counters.lost_relaxed.add(open.changes);
        }
    }

    /// Commits what was answered.
    fn settle(&mut self) {
        let Some(changes) = self.open.as_ref().map(|open| open.changes) else { return };
        let committed = match self.attached.standing() {
            Some(link) => link.commit(),
            None => Err(Fault::Lost(String::new())),
        };
        match committed {
            Ok(()) => {
                self.open = None;
                self.shared.counters.commits.add(1);
                self.shared.counters.changes_committed.add(changes);
            }
            Err(_) => {
                self.shared.watchers.disown(std::iter::empty());
                self.open_lost();
                self.attached.lose();
            }
        }
    }

    fn alarms(&mut self) {
        let now = Instant::now();
        if self.open.as_ref().is_some_and(|open| now >= open.until) {
            self.settle();
        }
        if self.reap_at.is_some_and(|at| now >= at) {
            self.reap_at = self.shared.settings.reap.map(|every| now + every);
            // Without the database nothing is there to be reaped, and those who ask are told.
            let _ = self.reap();
        }
        self.look(now);
    }

    /// Looks whether someone else wrote, where the writer's connection is the one to tell.
    fn look(&mut self, now: Instant) {
        let Some(every) = self.shared.watchers.poll() else { return };
        if self.look_at.is_some_and(|at| now < at) {
            return;
        }
        self.look_at = Some(now + every);
        let looked_at = self.looked_at.replace(now);
        let watchers = &self.shared.watchers;
        let changed = match self.attached.link() {
            Ok(link) => link.foreign_change().map_err(|fault| self.attached.fault(fault)),
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
    fn reap(&mut self) -> Result<u64, Error> {
        if self.shared.layout.get().is_some_and(|layout| layout.expiry.is_none()) {
            return Ok(0);
        }
        self.settle();
        let now = (self.shared.clock)();
        let gone = self.purge_some(Some(now))?;
        self.shared.counters.reaped.add(gone);
        if gone == u64::from(PURGE_ROWS) {
            self.reap_at = Some(Instant::now() + Duration::from_millis(20));
        }
        Ok(gone)
    }

    fn purge(&mut self, expired_by: Option<i64>) -> Result<u64, Error> {
        if expired_by.is_some() {
            return self.reap();
        }
        let mut all = 0;
        loop {
            let gone = self.purge_some(None)?;
            all += gone;
            if gone < u64::from(PURGE_ROWS) {
                return Ok(all);
            }
        }
    }

    fn purge_some(&mut self, expired_by: Option<i64>) -> Result<u64, Error> {
        let purged = self.attached.link()?.purge(PURGE_ROWS, expired_by);
        purged.map_err(|fault| self.attached.fault(fault))
    }
}

fn count_commit(shared: &Shared, changes: usize) {
    shared.counters.commits.add(1);
    shared.counters.changes_committed.add(changes as u64);
}

/// A whole transaction, in one statement, of changes that come to the same whatever is in the table.
fn upsert<'a>(
    shared: &Shared,
    link: &mut dyn Link,
    layout: &Layout,
    ops: impl Iterator<Item = &'a Op>,
    now: i64,
    stamps: &mut Stamps,
) -> Result<Plan, Failed> {
    let plan = Plan::new(layout, ops, Vec::new(), now, stamps);
    note_own(shared, layout, &plan);
    if !plan.insert.is_empty() {
        link.upsert(&plan.insert).map_err(Failed::at_the_end)?;
        count_commit(shared, plan.answers.len());
    }
    Ok(plan)
}

/// All of a transaction but its beginning and its end.
fn transact<'a>(
    shared: &Shared,
    link: &mut dyn Link,
    layout: &Layout,
    ops: impl Iterator<Item = &'a Op> + Clone,
    now: i64,
    stamps: &mut Stamps,
) -> Result<Plan, Fault> {
    let mut keys: Vec<&[u8]> = ops.clone().map(Op::key).collect();
    // In one order, so that two servers lock the same rows in the same order.
    keys.sort_unstable();
    keys.dedup();
    let cells: Vec<_> = keys.into_iter().filter_map(|key| layout.key_cells(key).ok()).collect();
    let found = if cells.is_empty() { Vec::new() } else { link.read(&cells, true)? };
    let plan = Plan::new(layout, ops, found, now, stamps);
    note_own(shared, layout, &plan);
    if !plan.delete.is_empty() {
        link.delete(&plan.delete)?;
    }
    if !plan.update.is_empty() {
        link.update(&plan.update)?;
    }
    if !plan.insert.is_empty() {
        link.insert(&plan.insert)?;
    }
    Ok(plan)
}

/// So that these changes are known for our own when the database tells of them.
fn note_own(shared: &Shared, layout: &Layout, plan: &Plan) {
    if layout.cas.is_some() && shared.watchers.anyone() && shared.watchers.poll().is_none() {
        shared.watchers.own_stamps(plan.insert.iter().chain(&plan.update).map(|row| row.cas));
    }
}
