//! Who reads, a thread of the table's or a task of a lane: what waits when it becomes free is looked up with one statement.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::attached::Attached;
use crate::budget::Ticks;
use crate::cell::Cell;
use crate::drive::Drive;
use crate::error::Error;
use crate::layout::{Layout, Row};
use crate::link::{Bounds, Fault};
use crate::op::{Item, Range};
use crate::plan::item;
use crate::queue::Queue;
use crate::shared::{Answer, Asked, Read, Shared};

/// How many requests are read together at most.
const REQUESTS_MAX: usize = 64;

type Keys = (Vec<Vec<u8>>, Answer<Vec<Option<Item>>>);

pub(crate) fn run(shared: &Arc<Shared>, drive: &Drive) {
    let mut attached = Attached::new(Arc::clone(shared), false, None);
    while let Some(jobs) = shared.reads.take(REQUESTS_MAX, 0, Duration::ZERO, None) {
        drive.wait(answer(shared, &mut attached, jobs));
    }
}

/// As a task.
pub(crate) async fn serve(shared: &Arc<Shared>, reads: &Queue<Read>, ticks: Arc<Ticks>) {
    let mut attached = Attached::new(Arc::clone(shared), false, Some(ticks));
    while let Some(jobs) = std::future::poll_fn(|context| reads.poll_take(context, REQUESTS_MAX)).await {
        answer(shared, &mut attached, jobs).await;
    }
}

/// Answers some requests.
async fn answer(shared: &Shared, attached: &mut Attached, jobs: Vec<Read>) {
    let mut lookups: Vec<Keys> = Vec::new();
    for job in jobs {
        let late = job.since.elapsed() > shared.settings.timeout;
        match job.what {
            // Who asked may have gone meanwhile, and then nobody needs the answer.
            Asked::Keys { answer, .. } if answer.is_closed() => {}
            Asked::Keys { answer, .. } if late => drop(answer.send(Err(shared.overdue()))),
            Asked::Range { answer, .. } if late => drop(answer.send(Err(shared.overdue()))),
            Asked::Keys { keys, answer } => lookups.push((keys, answer)),
            Asked::Range { range, answer } => drop(answer.send(self::range(shared, attached, &range).await)),
        }
    }
    if !lookups.is_empty() {
        look_up(shared, attached, lookups).await;
    }
}

async fn look_up(shared: &Shared, attached: &mut Attached, lookups: Vec<Keys>) {
    let keys = lookups.iter().flat_map(|(keys, _)| keys).collect();
    let found = read(shared, attached, keys).await;
    for (keys, answer) in lookups {
        let items = match &found {
            Ok(found) => Ok(keys.iter().map(|key| found.get(key).cloned()).collect()),
            Err(why) => Err(why.clone()),
        };
        let _ = answer.send(items);
    }
}

async fn read(
    shared: &Shared,
    attached: &mut Attached,
    mut keys: Vec<&Vec<u8>>,
) -> Result<HashMap<Vec<u8>, Item>, Error> {
    keys.sort_unstable();
    keys.dedup();
    shared.counters.keys_read.add(keys.len() as u64);
    let (layout, rows) = again(shared, attached, |layout| {
        // A key that no row can have is not there.
        let cells: Vec<_> = keys.iter().filter_map(|key| layout.key_cells(key).ok()).collect();
        if cells.len() < keys.len() {
            shared.layout.doubt();
        }
        shared.counters.lookups.add(u64::from(!cells.is_empty()));
        Ok(Look::Keys(cells))
    })
    .await?;
    let now = (shared.clock)();
    let found: HashMap<Vec<u8>, Item> = rows
        .iter()
        .filter(|row| !row.expired(now))
        .map(|row| (layout.key_bytes(&row.key), item(&layout, row)))
        .collect();
    shared.counters.rows_found.add(found.len() as u64);
    Ok(found)
}

async fn range(shared: &Shared, attached: &mut Attached, range: &Range) -> Result<Vec<(Vec<u8>, Item)>, Error> {
    shared.counters.ranges.add(1);
    let (layout, rows) = again(shared, attached, |layout| {
        let [column] = &layout.key[..] else {
            return Err(Error::Client(format!("table {}: ranges need a key of one column", shared.settings.name)));
        };
        let bound = |bound: &Option<(Vec<u8>, bool)>| {
            let Some((key, inclusive)) = bound else { return Ok(None) };
            match column.cell(Some(key.clone())) {
                Ok(cell) => Ok(Some((cell, *inclusive))),
                Err(why) => Err(Error::Client(format!("table {}: bound of a range: {why}", shared.settings.name))),
            }
        };
        let (from, to) = (bound(&range.from)?, bound(&range.to)?);
        Ok(Look::Range(Bounds { from, to, limit: range.limit, now: (shared.clock)() }))
    })
    .await?;
    Ok(rows.iter().map(|row| (layout.key_bytes(&row.key), item(&layout, row))).collect())
}

/// What is looked for, as the table has it.
enum Look {
    Keys(Vec<Vec<Cell>>),
    Range(Bounds),
}

/// Reads, and once more on a new connection when the old one turns out to be lost.
async fn again(
    shared: &Shared,
    attached: &mut Attached,
    look: impl Fn(&Layout) -> Result<Look, Error>,
) -> Result<(Arc<Layout>, Vec<Row>), Error> {
    let began = Instant::now();
    loop {
        let link = attached.link().await?;
        let Some(layout) = shared.layout.get() else {
            return Err(Error::Unreachable(format!("{}: it was not seen yet", shared.place())));
        };
        let read = match look(&layout)? {
            Look::Keys(keys) if keys.is_empty() => Ok(Vec::new()),
            Look::Keys(keys) => link.read(&keys, false).await,
            Look::Range(bounds) => link.range(&bounds).await,
        };
        match read {
            Ok(rows) => return Ok((layout, rows)),
            Err(fault) => {
                let (lost, conflict) = (matches!(fault, Fault::Lost(_)), matches!(fault, Fault::Conflict(_)));
                let error = attached.fault(fault);
                if !(lost || conflict) || began.elapsed() > shared.settings.timeout / 2 {
                    return Err(error);
                }
            }
        }
    }
}
