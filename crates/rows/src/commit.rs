//! Transactions: changes of many clients in one, and what became of each.
//!
//! A transaction that fails because of one row is done again in halves, so that this row fails alone. One whose commit may or may
//! not have happened is never done again. Who gathers the changes, and answers them, is not known here: a thread of the table's
//! ([`crate::writer`]) or a task on the event loop of those who asked ([`crate::lane`]).

use std::sync::Arc;
use std::time::Instant;

use crate::attached::Attached;
use crate::budget::Ticks;
use crate::error::Error;
use crate::layout::Layout;
use crate::link::{Fault, Link};
use crate::op::{Done, Op};
use crate::plan::{Plan, blind};
use crate::settings::Commit;
use crate::shared::{Answer, Shared};

/// How often a transaction is tried again when others were in the way.
const TRIES: usize = 4;

/// A change, and who waits for it.
pub(crate) struct Pending {
    pub(crate) op: Op,
    pub(crate) answer: Answer<Done>,
}

/// A change that is to be answered now.
pub(crate) type Finished = (Answer<Done>, Result<Done, Error>);

/// A connection that changes rows.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    attached: Attached,
    /// A transaction that was answered and not committed yet.
    open: Option<Open>,
}

struct Open {
    until: Instant,
    changes: u64,
}

/// How an attempt failed.
enum Failed {
    /// Some of it does not fit the table as it was seen, and nothing of it was done: the table may be another by now.
    Misfit,
    /// And whether it may have happened all the same.
    Fault { fault: Fault, perhaps: bool },
}

impl Failed {
    /// What was asked would have been the end of the transaction.
    fn at_the_end(fault: Fault) -> Failed {
        let perhaps = matches!(fault, Fault::Lost(_) | Fault::Overdue(_));
        Failed::Fault { fault, perhaps }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Failed {
        Failed::Fault { fault, perhaps: false }
    }
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, ticks: Option<Arc<Ticks>>) -> Committer {
        let attached = Attached::new(Arc::clone(&shared), true, ticks);
        Committer { shared, attached, open: None }
    }

    /// Its connection, for what is no change of some rows.
    pub(crate) fn attached(&mut self) -> &mut Attached {
        &mut self.attached
    }

    /// When the open transaction is to be committed, if there is one.
    pub(crate) fn open_until(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.until)
    }

    /// Makes changes, in their order.
    pub(crate) async fn write(&mut self, changes: Vec<Pending>) -> Vec<Finished> {
        let deadline = Instant::now() + self.shared.settings.timeout;
        let mut finished = Vec::with_capacity(changes.len());
        // The parts that are left, the last of them first.
        let mut parts = vec![changes];
        while let Some(part) = parts.pop() {
            if !part.is_empty()
                && let Some((first, second)) = self.write_part(part, deadline, &mut finished).await
            {
                parts.extend([second, first]);
            }
        }
        finished
    }

    /// Makes changes in one transaction. What is to be done again in two is handed back.
    async fn write_part(
        &mut self,
        changes: Vec<Pending>,
        deadline: Instant,
        finished: &mut Vec<Finished>,
    ) -> Option<(Vec<Pending>, Vec<Pending>)> {
        let mut tries = 0;
        let mut misfits = Misfits::of(&self.shared);
        let error = loop {
            tries += 1;
            let (fault, perhaps) = match self.attempt(&changes, misfits).await {
                Ok(Ok(answers)) => {
                    for (change, answer) in changes.into_iter().zip(answers) {
                        self.shared.counters.failed.add(answer.is_err().into());
                        finished.push((change.answer, answer));
                    }
                    return None;
                }
                Ok(Err(Failed::Misfit)) => {
                    // Those that still do not fit are told so the next time.
                    self.attached.altered().await;
                    misfits = Misfits::Refuse;
                    continue;
                }
                Ok(Err(Failed::Fault { fault, perhaps })) => (fault, perhaps),
                Err(away) => break away,
            };
            let lost = matches!(fault, Fault::Lost(_) | Fault::Overdue(_) | Fault::Unready(_));
            if lost {
                self.open_lost();
            }
            if perhaps {
                self.shared.watchers.disown(changes.iter().map(|change| change.op.key()));
                let error = self.attached.fault(fault);
                break Error::Unknown(format!("whether it was written is not known: {error}"));
            }
            let may_repeat = tries < TRIES && Instant::now() < deadline;
            match fault {
                Fault::Conflict(_) | Fault::Lost(_) if may_repeat => {
                    self.shared.counters.retries.add(1);
                    if lost {
                        self.attached.fault(fault);
                    }
                }
                Fault::Row(_) | Fault::Conflict(_) if changes.len() > 1 => {
                    self.shared.counters.alone.add(changes.len() as u64);
                    let mut first = changes;
                    let second = first.split_off(first.len() / 2);
                    return Some((first, second));
                }
                Fault::Row(_) | Fault::Refused(_) if may_repeat && self.attached.altered().await => {
                    self.shared.counters.retries.add(1);
                }
                fault => break self.attached.fault(fault),
            }
        };
        self.shared.counters.failed.add(changes.len() as u64);
        finished.extend(changes.into_iter().map(|change| (change.answer, Err(error.clone()))));
        None
    }

    /// One transaction. Outside: no connection. Inside: why the transaction failed.
    async fn attempt(
        &mut self,
        changes: &[Pending],
        misfits: Misfits,
    ) -> Result<Result<Vec<Result<Done, Error>>, Failed>, Error> {
        let now = (self.shared.clock)();
        let relaxed = match self.shared.settings.commit {
            Commit::Durable => None,
            Commit::Relaxed(within) => Some(within),
        };
        let (link, layout) = self.attached.mapped().await?;
        let ops: Vec<&Op> = changes.iter().map(|change| &change.op).collect();
        if relaxed.is_none() && self.shared.dialect.upserts(&layout) && blind(ops.iter().copied(), now) {
            let written = upsert(&self.shared, link, &layout, &ops, now, misfits).await;
            return Ok(written.map(|plan| plan.answers));
        }
        if self.open.is_none()
            && let Err(fault) = link.begin().await
        {
            return Ok(Err(fault.into()));
        }
        if relaxed.is_some()
            && let Err(fault) = link.mark().await
        {
            self.undo().await;
            return Ok(Err(fault.into()));
        }
        let plan = match transact(&self.shared, link, &layout, &ops, now, misfits).await {
            Ok(plan) => plan,
            Err(failed) => {
                // What was answered before in the same transaction stays, unless the database has undone all of it.
                let small = matches!(failed, Failed::Misfit | Failed::Fault { fault: Fault::Row(_), .. });
                let may_keep = self.open.is_some() && small;
                if !(may_keep && link.back_to_mark().await.is_ok()) {
                    self.undo().await;
                }
                return Ok(Err(failed));
            }
        };
        match relaxed {
            None => {
                if let Err(failed) = link.commit().await.map_err(Failed::at_the_end) {
                    if matches!(failed, Failed::Fault { perhaps: false, .. }) {
                        self.undo().await;
                    }
                    return Ok(Err(failed));
                }
                count_commit(&self.shared, changes.len() as u64);
            }
            Some(within) => {
                let open = self.open.get_or_insert(Open { until: Instant::now() + within, changes: 0 });
                open.changes += changes.len() as u64;
            }
        }
        Ok(Ok(plan.answers))
    }

    async fn undo(&mut self) {
        self.open_lost();
        let undone = match self.attached.standing() {
            Some(link) => link.rollback().await.is_ok(),
            None => true,
        };
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
    pub(crate) async fn settle(&mut self) {
        let Some(changes) = self.open.as_ref().map(|open| open.changes) else { return };
        let committed = match self.attached.standing() {
            Some(link) => link.commit().await,
            None => Err(Fault::Lost(String::new())),
        };
        match committed {
            Ok(()) => {
                self.open = None;
                count_commit(&self.shared, changes);
            }
            Err(_) => {
                self.shared.watchers.disown(std::iter::empty());
                self.open_lost();
                self.attached.lose();
            }
        }
    }
}

/// What becomes of changes that do not fit the table as it was seen.
#[derive(Clone, Copy)]
enum Misfits {
    /// All is left alone, since the table may be another by now.
    Doubt,
    /// They are refused, and the others made.
    Refuse,
}

impl Misfits {
    fn of(shared: &Shared) -> Misfits {
        if shared.layout.may_doubt() { Misfits::Doubt } else { Misfits::Refuse }
    }

    fn judge(self, plan: Plan) -> Result<Plan, Failed> {
        match self {
            Misfits::Doubt if plan.answers.iter().any(Result::is_err) => Err(Failed::Misfit),
            _ => Ok(plan),
        }
    }
}

fn count_commit(shared: &Shared, changes: u64) {
    shared.counters.commits.add(1);
    shared.counters.changes_committed.add(changes);
}

/// A whole transaction, in one statement, of changes that come to the same whatever is in the table.
async fn upsert(
    shared: &Shared,
    link: &mut dyn Link,
    layout: &Layout,
    ops: &[&Op],
    now: i64,
    misfits: Misfits,
) -> Result<Plan, Failed> {
    let mut plan = misfits.judge(Plan::new(layout, ops.iter().copied(), Vec::new(), now, &shared.stamps))?;
    // In one order, so that two connections lock the same rows in the same order.
    plan.insert.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    note_own(shared, layout, &plan);
    if !plan.insert.is_empty() {
        link.upsert(&plan.insert).await.map_err(Failed::at_the_end)?;
        count_commit(shared, plan.answers.len() as u64);
    }
    Ok(plan)
}

/// All of a transaction but its beginning and its end.
async fn transact(
    shared: &Shared,
    link: &mut dyn Link,
    layout: &Layout,
    ops: &[&Op],
    now: i64,
    misfits: Misfits,
) -> Result<Plan, Failed> {
    let mut keys: Vec<&[u8]> = ops.iter().map(|op| op.key()).collect();
    // In one order, so that two connections lock the same rows in the same order.
    keys.sort_unstable();
    keys.dedup();
    let cells: Vec<_> = keys.into_iter().filter_map(|key| layout.key_cells(key).ok()).collect();
    let found = if cells.is_empty() { Vec::new() } else { link.read(&cells, true).await? };
    let plan = misfits.judge(Plan::new(layout, ops.iter().copied(), found, now, &shared.stamps))?;
    note_own(shared, layout, &plan);
    if !plan.delete.is_empty() {
        link.delete(&plan.delete).await?;
    }
    if !plan.update.is_empty() {
        link.update(&plan.update).await?;
    }
    if !plan.insert.is_empty() {
        link.insert(&plan.insert).await?;
    }
    Ok(plan)
}

/// So that these changes are known for our own when the database tells of them.
fn note_own(shared: &Shared, layout: &Layout, plan: &Plan) {
    if layout.cas.is_some() && shared.watchers.anyone() && shared.watchers.poll().is_none() {
        shared.watchers.own_stamps(plan.insert.iter().chain(&plan.update).map(|row| row.cas));
    }
}
