//! The operators' text commands: flush, forget, memory limit, verbosity, watch, the crawler's and the slabs' and LRU's knobs,
//! shutdown, debugtime.

use std::sync::Arc;

use nuthatch_proto::WireError;
use nuthatch_proto::ascii::{
    Classes, Crawler, DebugTime, FlushAll, Lru, Request, Shutdown, Slabs, WatchClasses, reply,
};

use super::dump::{Dump, Style};
use super::forget::forget;
use super::{Exec, stats};
use crate::counters::ListenerCounter;
use crate::log::Level;
use crate::pool::EvictionReporter;
use crate::settings::VERSION;
use crate::tls;
use crate::watch::{Watcher, kind};

/// How the connection goes on after an operator's command.
pub(crate) enum Verdict {
    /// With the next request.
    Next,
    /// It is closed.
    Close,
    /// It watches from now on.
    Watch(Arc<Watcher>),
    /// A dump is made for it first.
    Dump(Dump),
}

/// Executes a command that is not about one item.
pub(crate) fn execute(exec: &mut Exec<'_>, request: &Request<'_>) -> Verdict {
    let (answer, noreply) = match request {
        Request::Version => {
            reply::version(&mut exec.out.bytes, VERSION);
            return Verdict::Next;
        }
        Request::Stats(command) => {
            stats::text(exec, command);
            return Verdict::Next;
        }
        Request::FlushAll(FlushAll { delay, noreply }) => {
            let flushed = delay
                .map_or_else(|error| refuse_flush(exec).map_or(Err(error), Err), |delay| flush(exec, i64::from(delay)));
            (flushed, *noreply)
        }
        Request::Forget { what, noreply } => (forget(exec, *what, "forget").map(drop), *noreply),
        Request::Verbosity { level, noreply } => {
            exec.shared.log.set_level(*level);
            (Ok(()), *noreply)
        }
        Request::CacheMemlimit { megabytes, noreply } => (cache_memlimit(exec, *megabytes), *noreply),
        Request::Slabs { command, noreply } => (slabs(exec, command), *noreply),
        Request::Lru { command, noreply } => (lru(exec, command), *noreply),
        Request::Crawler { command, noreply } => match crawler(exec, command) {
            Ok(Some(dump)) => return Verdict::Dump(dump),
            Ok(None) => (Ok(()), *noreply),
            Err(error) => (Err(error), *noreply),
        },
        Request::Watch { classes } => match watch(exec, *classes) {
            Ok(watcher) => {
                exec.out.bytes.extend_from_slice(reply::OK);
                return Verdict::Watch(watcher);
            }
            Err(error) => (Err(error), false),
        },
        Request::Shutdown(Shutdown { mode, noreply }) => {
            let allowed = exec.live.settings.shutdown_enabled;
            match if allowed { *mode } else { Err(WireError::ShutdownNotEnabled) } {
                Ok(_) => {
                    // Both modes finish the answers in flight; there is no memory file that only one would save.
                    exec.shared.stop().ask();
                    return Verdict::Close;
                }
                Err(error) => (Err(error), *noreply),
            }
        }
        // There is no flash storage to set anything of, and memcached says yes without one too.
        Request::Extstore(extstore) => (Ok(()), extstore.noreply),
        Request::RefreshCerts { noreply } => {
            refresh_certs(exec, *noreply);
            return Verdict::Next;
        }
        Request::DebugTime { command, noreply } => (debugtime(exec, *command), *noreply),
        _ => (Err(WireError::Error), false),
    };
    if !noreply {
        exec.out.bytes.extend_from_slice(match answer {
            Ok(()) => reply::OK,
            Err(error) => error.as_wire(),
        });
    }
    Verdict::Next
}

/// Reads certificates and keys again. As in memcached, what is wrong with them is answered in words.
fn refresh_certs(exec: &mut Exec<'_>, noreply: bool) {
    let log = &exec.shared.log;
    let refused;
    let answer = match exec.shared.refresh_certificates() {
        Ok(true) => {
            log.line(Level::Warning, format_args!("refresh_certs: certificates are read again"));
            reply::OK
        }
        Ok(false) => tls::NOT_ENABLED,
        Err(error) => {
            log.line(Level::Error, format_args!("refresh_certs: nothing changed: {error}"));
            refused = error.as_wire();
            refused.as_bytes()
        }
    };
    if !noreply {
        exec.out.bytes.extend_from_slice(answer);
    }
}

/// Counts a `flush_all` and says whether it is refused.
fn refuse_flush(exec: &Exec<'_>) -> Option<WireError> {
    exec.count_here(ListenerCounter::FlushCommands);
    (!exec.live.settings.flush_enabled).then_some(WireError::FlushAllNotAllowed)
}

/// Flushes every pool that can be reached from this listener, now or when `delay` (an exptime) comes.
pub(crate) fn flush(exec: &Exec<'_>, delay: i64) -> Result<(), WireError> {
    if let Some(error) = refuse_flush(exec) {
        return Err(error);
    }
    for pool in exec.live.routes.flushed(exec.own_pool) {
        let store = exec.handles[pool].store();
        if let Some(pages) = exec.pages_of(pool) {
            pages.forgetting();
        }
        if delay > 0 {
            // memcached's flush is in force in the second before, so that a delay of 1 is none.
            store.flush_at(exec.shared.clock.expiry(delay).saturating_sub(1), exec.now);
        } else {
            store.flush(exec.now);
        }
    }
    Ok(())
}

/// The least `cache_memlimit` takes, in MiB.
const MEMLIMIT_MEGABYTES_MIN: u32 = 8;
/// Above this, memcached supposes that the client means bytes.
const MEMLIMIT_MEGABYTES_MAX: u32 = 1_000_000_000;

fn cache_memlimit(exec: &Exec<'_>, megabytes: u32) -> Result<(), WireError> {
    if megabytes < MEMLIMIT_MEGABYTES_MIN {
        return Err(WireError::MemlimitTooSmall);
    }
    if megabytes > MEMLIMIT_MEGABYTES_MAX {
        return Err(WireError::MemlimitNotMegabytes);
    }
    let pool = &exec.from.listener.own_pool;
    let bytes = (megabytes as usize).checked_mul(1024 * 1024).ok_or(WireError::MemlimitOutOfBounds)?;
    match pool.store.set_memory_limit(bytes) {
        Ok(()) => {
            exec.shared
                .log
                .line(Level::Warning, format_args!("pool {}: memory limit is now {megabytes} MiB", pool.name));
            Ok(())
        }
        Err(error) => {
            exec.shared.log.line(Level::Warning, format_args!("pool {}: cache_memlimit: {error}", pool.name));
            Err(WireError::MemlimitOutOfBounds)
        }
    }
}

/// Slabs do not exist here, so there is never a page to move: the answers are memcached's for that.
fn slabs(exec: &Exec<'_>, command: &Slabs) -> Result<(), WireError> {
    let mut knobs = exec.shared.knobs();
    match *command {
        Slabs::Reassign(_) if !exec.live.settings.reported.slab_reassign => return Err(WireError::ReassignDisabled),
        Slabs::Reassign(pair) => {
            let (from, to) = pair?;
            return Err(match () {
                () if !(-1..64).contains(&from) || !(0..64).contains(&to) => WireError::BadClassPair,
                () if from == to => WireError::SameClass,
                () => WireError::NoSparePage,
            });
        }
        Slabs::Automove(level) => knobs.slab_automove = u32::from(level),
        Slabs::AutomoveRatio(ratio) => knobs.slab_automove_ratio = ratio,
        Slabs::AutomoveFreeRatio(ratio) => knobs.slab_automove_free_ratio = ratio,
        Slabs::AutomoveWindow(window) => knobs.slab_automove_window = window,
    }
    Ok(())
}

/// The LRU's knobs: kept and shown by `stats settings`; the store's eviction needs none of them.
fn lru(exec: &Exec<'_>, command: &Lru) -> Result<(), WireError> {
    let has_maintainer = exec.live.settings.reported.lru_maintainer;
    let mut knobs = exec.shared.knobs();
    match *command {
        Lru::Tune { hot_percent, warm_percent, hot_factor, warm_factor } => {
            knobs.hot_lru_pct = hot_percent;
            knobs.warm_lru_pct = warm_percent;
            knobs.hot_max_factor = hot_factor;
            knobs.warm_max_factor = warm_factor;
        }
        Lru::Segmented(_) | Lru::TemporaryTtl(_) if !has_maintainer => return Err(WireError::Error),
        Lru::Segmented(segmented) => knobs.lru_segmented = segmented,
        Lru::TemporaryTtl(seconds) => {
            knobs.temp_lru = seconds >= 0;
            if let Ok(seconds) = u32::try_from(seconds) {
                knobs.temporary_ttl = seconds;
            }
        }
    }
    Ok(())
}

fn crawler(exec: &Exec<'_>, command: &Crawler) -> Result<Option<Dump>, WireError> {
    let mut knobs = exec.shared.knobs();
    let is_enabled = if knobs.lru_crawler { Ok(()) } else { Err(WireError::CrawlerDisabled) };
    match *command {
        // memcached cannot start a thread that runs, and says so.
        Crawler::Enable if knobs.lru_crawler => return Err(WireError::CrawlerStart),
        Crawler::Enable => knobs.lru_crawler = true,
        Crawler::Disable => knobs.lru_crawler = false,
        Crawler::Sleep(microseconds) => knobs.lru_crawler_sleep = microseconds,
        Crawler::ToCrawl(items) => knobs.lru_crawler_tocrawl = items,
        Crawler::Crawl(classes) => {
            is_enabled?;
            // Expired items give their memory back of themselves; there is nothing to go looking for.
            classes?;
            knobs.lru_crawler_starts += 1;
        }
        Crawler::Metadump(classes) => {
            is_enabled?;
            let forbidden = (WireError::MetadumpNotAllowed, WireError::PipelinedMetadump);
            knobs.lru_crawler_starts += 1;
            return dump(exec, Style::Metadump, classes, forbidden).map(Some);
        }
        Crawler::Mgdump(classes) => {
            is_enabled?;
            let forbidden = (WireError::KeyDumpNotAllowed, WireError::PipelinedMgdump);
            knobs.lru_crawler_starts += 1;
            return dump(exec, Style::Mgdump, classes, forbidden).map(Some);
        }
    }
    Ok(None)
}

fn dump(
    exec: &Exec<'_>,
    style: Style,
    classes: Result<Classes, WireError>,
    (not_allowed, pipelined): (WireError, WireError),
) -> Result<Dump, WireError> {
    if !exec.live.settings.dump_enabled {
        return Err(not_allowed);
    }
    if !exec.out.is_empty() {
        return Err(pipelined);
    }
    // All items are in class 1; of other classes a dump is empty.
    let pools = match classes? {
        Classes::Some(bits) if bits & (1 << super::CLASS) == 0 => Vec::new(),
        _ => exec.live.routes.reachable(exec.own_pool),
    };
    Ok(Dump::new(style, pools, exec.keep_live()))
}

fn watch(exec: &Exec<'_>, classes: Result<WatchClasses, WireError>) -> Result<Arc<Watcher>, WireError> {
    if !exec.live.settings.watch_enabled {
        return Err(WireError::WatchNotAllowed);
    }
    if !exec.out.is_empty() {
        return Err(WireError::PipelinedWatch);
    }
    let classes = classes?;
    let buffer_bytes = exec.live.settings.buffers.watcher_log_bytes;
    let kinds = kinds_of(classes);
    let watcher = exec.shared.watchers.add(kinds, buffer_bytes).ok_or(WireError::TooManyWatchers)?;
    if kinds & kind::EVICTIONS != 0 {
        EvictionReporter::attach(exec.shared, &exec.live.all_pools());
    }
    Ok(watcher)
}

/// The watcher's kinds of events for a client's classes.
fn kinds_of(classes: WatchClasses) -> u16 {
    let proxy = WatchClasses::PROXYREQS.union(WatchClasses::PROXYEVENTS).union(WatchClasses::PROXYUSER);
    [
        (WatchClasses::FETCHERS, kind::FETCHERS),
        (WatchClasses::MUTATIONS, kind::MUTATIONS),
        (WatchClasses::EVICTIONS, kind::EVICTIONS),
        (WatchClasses::DELETIONS, kind::DELETIONS),
        (WatchClasses::CONNEVENTS, kind::CONNEVENTS),
        (WatchClasses::RAWCMDS, kind::RAWCMDS),
        (WatchClasses::SYSEVENTS, kind::SYSEVENTS),
        (proxy, kind::PROXY),
    ]
    .into_iter()
    .filter(|(class, _)| classes.intersects(*class))
    .fold(0, |kinds, (_, kind)| kinds | kind)
}

fn debugtime(exec: &mut Exec<'_>, command: DebugTime) -> Result<(), WireError> {
    if !exec.live.settings.debug_commands {
        return Err(WireError::Error);
    }
    let clock = &exec.shared.clock;
    match command {
        DebugTime::Pause => clock.pause(),
        DebugTime::Run => clock.resume(),
        DebugTime::Move(seconds) => clock.shift(seconds),
    }
    // What follows in this very poll sees the new time.
    exec.now = clock.now();
    Ok(())
}
