//! What a site asks of the server it is in: the worker's own handle on the pool, and its clock. Called on workers only.

use std::fmt;
use std::sync::Arc;

use nuthatch_pages::door::ResultCode;
use nuthatch_pages::rules::UnixSeconds;
use nuthatch_pages::{Beyond, Count, House, Ticks};
use nuthatch_store::{Handle, NEVER, Seconds};

use super::fleet::{Fleet, Rest};
use crate::counters::{PageCounter, PoolCounter};
use crate::log::Level;
use crate::pool::Pool;
use crate::worker;

/// A pool with pages.
pub(crate) struct PageHouse {
    pub(crate) pool: Arc<Pool>,
    pub(crate) ticks: Arc<Ticks>,
    /// Of the fleet behind the pool, if there is one.
    pub(crate) rest: Arc<Rest>,
}

impl House for PageHouse {
    fn with_store(&self, use_it: &mut dyn FnMut(&mut Handle, Seconds)) {
        worker::with(|worker| {
            let now = worker.shared.clock.now();
            use_it(&mut worker.handles[self.pool.number], now);
        });
    }

    fn unix_seconds(&self) -> UnixSeconds {
        worker::with(|worker| worker.shared.clock.unix_seconds() as UnixSeconds)
    }

    fn store_seconds(&self, at: UnixSeconds) -> Seconds {
        let epoch = worker::with(|worker| worker.shared.clock.unix_seconds_at(0)) as UnixSeconds;
        at.saturating_sub(epoch).clamp(1, UnixSeconds::from(NEVER)) as Seconds
    }

    fn item_bytes_max(&self) -> usize {
        self.pool.store.item_bytes_max()
    }

    fn memory_bytes(&self) -> usize {
        self.pool.store.memory_limit()
    }

    fn ticks(&self) -> &Arc<Ticks> {
        &self.ticks
    }

    fn count(&self, what: Count, by: u64) {
        let counter = match what {
            Count::Answered(code) => {
                let counter = page_counter(code);
                return worker::with(|worker| self.pool.page_counters.add(worker.number, counter, by));
            }
            Count::Lookup => PoolCounter::GetCommands,
            Count::Hit => PoolCounter::GetHits,
            Count::Miss => PoolCounter::GetMisses,
            Count::Stored => PoolCounter::SetCommands,
            Count::Purged => PoolCounter::DeleteHits,
            Count::PurgedNothing => PoolCounter::DeleteMisses,
            Count::TooLarge => PoolCounter::StoreTooLarge,
            Count::NoRoom => PoolCounter::StoreNoMemory,
            Count::Fetched => PoolCounter::OriginRequests,
        };
        worker::with(|worker| self.pool.counters.add(worker.number, counter, by));
    }

    fn warn(&self, line: fmt::Arguments<'_>) {
        worker::with(|worker| worker.shared.log.line(Level::Warning, line));
    }

    fn beyond(&self) -> Option<Arc<dyn Beyond>> {
        worker::with(|worker| {
            let tier = Arc::clone(worker.live.tiers.of(self.pool.number)?);
            let (worker, rest) = (worker.number, Arc::clone(&self.rest));
            Some(Arc::new(Fleet { tier, worker, rest }) as Arc<dyn Beyond>)
        })
    }
}

/// Where an answer is counted.
fn page_counter(code: ResultCode) -> PageCounter {
    match code {
        ResultCode::MemHit => PageCounter::MemHits,
        ResultCode::ImsHit => PageCounter::ImsHits,
        ResultCode::Miss => PageCounter::Misses,
        ResultCode::MissPass => PageCounter::Passes,
        ResultCode::CollapsedMiss => PageCounter::Collapsed,
        ResultCode::ClientRefreshMiss => PageCounter::ClientRefreshes,
        ResultCode::RefreshUnmodified => PageCounter::RefreshedUnmodified,
        ResultCode::RefreshModified => PageCounter::RefreshedModified,
        ResultCode::RefreshFailOld => PageCounter::RefreshFailed,
        ResultCode::StaleHit => PageCounter::StaleHits,
        ResultCode::Denied => PageCounter::Denied,
        ResultCode::OffHit => PageCounter::OnlyIfCached,
        ResultCode::Tunnel => PageCounter::Tunnels,
        ResultCode::None => PageCounter::Others,
    }
}
