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
        let all_fit = cells.len() == keys.len();
        Ok(Look { what: What::Keys(cells), all_fit })
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
        let what = What::Range(Bounds { from, to, limit: range.limit, now: (shared.clock)() });
        Ok(Look { what, all_fit: true })
    })
    .await?;
    Ok(rows.iter().map(|row| (layout.key_bytes(&row.key), item(&layout, row))).collect())
}

/// What is looked for, as the table has it.
struct Look {
    what: What,
    /// Nothing that was asked for is left out for what the table is.
    all_fit: bool,
}

enum What {
    Keys(Vec<Vec<Cell>>),
    Range(Bounds),
}

/// Reads, and once more on a new connection when the old one turns out to be lost, or when the table turns out to be another than
/// what was asked for did not fit.
async fn again(
    shared: &Shared,
    attached: &mut Attached,
    look: impl Fn(&Layout) -> Result<Look, Error>,
) -> Result<(Arc<Layout>, Vec<Row>), Error> {
    let began = Instant::now();
    let mut looked = false;
    loop {
        let (_, layout) = attached.mapped().await?;
        let look = look(&layout);
        if !look.as_ref().is_ok_and(|look| look.all_fit)
            && !std::mem::replace(&mut looked, true)
            && attached.altered().await
        {
            continue;
        }
        let what = look?.what;
        // It may have been lost while the table was looked at.
        let Some(link) = attached.standing() else { continue };
        let read = match what {
            What::Keys(keys) if keys.is_empty() => Ok(Vec::new()),
            What::Keys(keys) => {
                shared.counters.lookups.add(1);
                link.read(&keys, false).await
            }
            What::Range(bounds) => link.range(&bounds).await,
        };
        match read {
            Ok(rows) => return Ok((layout, rows)),
            Err(fault) => {
                let lost_or_conflict = matches!(fault, Fault::Lost(_) | Fault::Conflict(_));
                let refused = matches!(fault, Fault::Row(_) | Fault::Refused(_));
                let error = attached.fault(fault);
                let in_time = began.elapsed() <= shared.settings.timeout / 2;
                let refused = refused && in_time && !std::mem::replace(&mut looked, true);
                if !(in_time && lost_or_conflict || refused && attached.altered().await) {
                    return Err(error);
                }
            }
        }
    }
}
