//! The commands of operators: `flush_all`, `forget`, `verbosity`, `cache_memlimit`, `shutdown`, `slabs`, `lru`, `lru_crawler`,
//! `watch`, `extstore`, `refresh_certs`, `debugtime`. And what is no command at all.
//!
//! None of them is fast; all of them count their arguments, `noreply` included, exactly as memcached does.

use super::{Args, Outcome, Reject, Request, abbreviates};
use crate::forget::Forget;
use crate::num::{decimal_fraction, loose_u32, strict_i32, strict_i64, strict_u32};
use crate::{KEY_BYTES_MAX, WireError};

/// `flush_all [delay] [noreply]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushAll {
    /// Seconds from now, or UNIX time above 30 days; 0 and below mean now. Check that flushing is allowed (`-F`) first.
    pub delay: Result<i32, WireError>,
    /// No answer is wanted, not even an error.
    pub noreply: bool,
}

/// `shutdown [graceful]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Check that shutting down is allowed (`-A`) first.
    pub mode: Result<ShutdownMode, WireError>,
    /// No answer is wanted, not even an error.
    pub noreply: bool,
}

/// How to shut down. Neither is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// As SIGINT does.
    Now,
    /// As SIGUSR1 does.
    Graceful,
}

/// `slabs reassign|automove …`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slabs {
    /// Move a page from the first class to the second; -1 is any. Check that reassignment is enabled first.
    Reassign(Result<(i32, i32), WireError>),
    /// `slabs automove 0|1|2`.
    Automove(u8),
    /// `slabs automove ratio`.
    AutomoveRatio(f64),
    /// `slabs automove freeratio`.
    AutomoveFreeRatio(f64),
    /// `slabs automove window`, seconds.
    AutomoveWindow(u32),
}

/// `lru tune|mode|temp_ttl …`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lru {
    /// Shares of memory and age factors of the hot and warm queues, already checked against each other.
    Tune {
        /// Share of hot memory.
        hot_percent: u32,
        /// Share of warm memory.
        warm_percent: u32,
        /// Age factor of the hot queue, above 0.
        hot_factor: f64,
        /// Age factor of the warm queue, above 0.
        warm_factor: f64,
    },
    /// `lru mode flat|segmented`; only with the maintainer running, else [`WireError::Error`].
    Segmented(bool),
    /// `lru temp_ttl`, seconds, negative is off; only with the maintainer running, else [`WireError::Error`].
    TemporaryTtl(i32),
}

/// `lru_crawler …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crawler {
    /// Start the crawler.
    Enable,
    /// Stop the crawler.
    Disable,
    /// Pause between items, microseconds, at most a million.
    Sleep(u32),
    /// Most items to look at in one crawl; 0 is all.
    ToCrawl(u32),
    /// Look for expired items. Check that the crawler is enabled before looking at the classes.
    Crawl(Result<Classes, WireError>),
    /// Show every item's metadata. Check that the crawler is enabled and dumps are allowed first.
    Metadump(Result<Classes, WireError>),
    /// Show every key as an `mg` command. Check that the crawler is enabled and dumps are allowed first.
    Mgdump(Result<Classes, WireError>),
}

/// Which slab classes a crawl walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classes {
    /// All of them.
    All,
    /// The hash table instead of the classes.
    Hash,
    /// Bit n is class n.
    Some(u64),
}

/// What a watcher asks to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WatchClasses(u16);

impl WatchClasses {
    /// Every command line, undocumented.
    pub const RAWCMDS: WatchClasses = WatchClasses(1);
    /// Items evicted.
    pub const EVICTIONS: WatchClasses = WatchClasses(1 << 1);
    /// Items looked up; what `watch` alone shows.
    pub const FETCHERS: WatchClasses = WatchClasses(1 << 2);
    /// Items stored.
    pub const MUTATIONS: WatchClasses = WatchClasses(1 << 3);
    /// System events, undocumented.
    pub const SYSEVENTS: WatchClasses = WatchClasses(1 << 4);
    /// Connections opened and closed.
    pub const CONNEVENTS: WatchClasses = WatchClasses(1 << 5);
    /// Requests of the proxy.
    pub const PROXYREQS: WatchClasses = WatchClasses(1 << 6);
    /// Events of the proxy.
    pub const PROXYEVENTS: WatchClasses = WatchClasses(1 << 7);
    /// Messages of the proxy's programs.
    pub const PROXYUSER: WatchClasses = WatchClasses(1 << 8);
    /// Items deleted.
    pub const DELETIONS: WatchClasses = WatchClasses(1 << 9);

    /// Names in the order that decides what an abbreviation means.
    const NAMES: [(&'static [u8], WatchClasses); 10] = [
        (b"rawcmds", Self::RAWCMDS),
        (b"evictions", Self::EVICTIONS),
        (b"fetchers", Self::FETCHERS),
        (b"mutations", Self::MUTATIONS),
        (b"sysevents", Self::SYSEVENTS),
        (b"connevents", Self::CONNEVENTS),
        (b"proxyreqs", Self::PROXYREQS),
        (b"proxyevents", Self::PROXYEVENTS),
        (b"proxyuser", Self::PROXYUSER),
        (b"deletions", Self::DELETIONS),
    ];

    /// Whether any class of `other` is among these.
    #[must_use]
    pub const fn intersects(self, other: WatchClasses) -> bool {
        self.0 & other.0 != 0
    }

    /// These classes and those of `other`.
    #[must_use]
    pub const fn union(self, other: WatchClasses) -> WatchClasses {
        WatchClasses(self.0 | other.0)
    }

    /// The set as a bit mask, so that it fits an atomic.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// `extstore <knob> <value>`, checked: a server without flash storage may simply say `OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extstore<'a> {
    /// The knob's name in full.
    pub knob: &'a [u8],
    /// The number it is set to, as written.
    pub value: &'a [u8],
    /// No answer is wanted.
    pub noreply: bool,
}

/// `debugtime p|r|N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugTime {
    /// Stop the server's clock.
    Pause,
    /// Let it run.
    Run,
    /// Move it by seconds.
    Move(i64),
}

pub(super) fn parse<'a>(args: &Args<'a>) -> Outcome<'a> {
    let noreply = args.noreply();
    let outcome = match args.get(0).unwrap_or_default() {
        b"flush_all" => Ok(Request::FlushAll(FlushAll { delay: delay(args, noreply), noreply })),
        b"forget" => match *args.all() {
            [_, word, name] => forget(word, name, false),
            [_, word, name, b"noreply"] => forget(word, name, true),
            _ => Err(WireError::ForgetUsage),
        },
        b"verbosity" => args
            .get(1)
            .and_then(strict_u32)
            .map(|level| Request::Verbosity { level, noreply })
            .ok_or(WireError::BadCommandLineFormat),
        b"cache_memlimit" => args
            .get(1)
            .and_then(strict_u32)
            .map(|megabytes| Request::CacheMemlimit { megabytes, noreply })
            .ok_or(WireError::Error),
        b"shutdown" => Ok(Request::Shutdown(Shutdown { mode: shutdown(args), noreply })),
        b"slabs" => slabs(args).map(|command| Request::Slabs { command, noreply }),
        b"lru" => lru(args).map(|command| Request::Lru { command, noreply }),
        b"lru_crawler" => crawler(args).map(|command| Request::Crawler { command, noreply }),
        b"extstore" => extstore(args)
            .map(|(knob, value)| Request::Extstore(Extstore { knob, value, noreply }))
            .ok_or(WireError::Error),
        b"refresh_certs" => Ok(Request::RefreshCerts { noreply }),
        b"debugtime" => args
            .get(1)
            .and_then(debugtime)
            .map(|command| Request::DebugTime { command, noreply })
            .ok_or(WireError::Error),
        _ => return Err(unknown(args, noreply)),
    };
    outcome.map_err(|error| Reject::quiet(error, noreply))
}

/// No command. A web browser that found the port (or was led to it) is not talked to at all.
fn unknown(args: &Args<'_>, noreply: bool) -> Reject {
    match args.all() {
        [_, .., last] if last.starts_with(b"HTTP/") => {
            Reject { error: None, noreply: true, swallow_bytes: 0, close: true }
        }
        _ => Reject::quiet(WireError::Error, noreply),
    }
}

fn delay(args: &Args<'_>, noreply: bool) -> Result<i32, WireError> {
    if args.count == 1 + usize::from(noreply) {
        return Ok(0);
    }
    args.get(1).and_then(strict_i32).ok_or(WireError::InvalidExptime)
}

fn forget<'a>(word: &[u8], name: &'a [u8], noreply: bool) -> Result<Request<'a>, WireError> {
    if name.len() > KEY_BYTES_MAX {
        return Err(WireError::BadCommandLineFormat);
    }
    Forget::named(word, name).map(|what| Request::Forget { what, noreply }).ok_or(WireError::ForgetUsage)
}

fn shutdown(args: &Args<'_>) -> Result<ShutdownMode, WireError> {
    match args.all() {
        [_] => Ok(ShutdownMode::Now),
        [_, mode] if abbreviates(mode, b"graceful") => Ok(ShutdownMode::Graceful),
        _ => Err(WireError::InvalidShutdownMode),
    }
}

fn slabs(args: &Args<'_>) -> Result<Slabs, WireError> {
    match *args.all() {
        [_, word, from, to] if abbreviates(word, b"reassign") => {
            let pair = strict_i32(from).zip(strict_i32(to)).ok_or(WireError::BadCommandLineFormat);
            Ok(Slabs::Reassign(pair))
        }
        [_, word, what, ref rest @ ..] if abbreviates(word, b"automove") => automove(what, rest.first().copied()),
        _ => Err(WireError::Error),
    }
}

/// What `slabs automove window` may be.
const AUTOMOVE_WINDOW_SECONDS: std::ops::RangeInclusive<u32> = 3..=1800;

fn automove(what: &[u8], value: Option<&[u8]>) -> Result<Slabs, WireError> {
    if abbreviates(what, b"ratio") {
        return value.and_then(decimal_fraction).map(Slabs::AutomoveRatio).ok_or(WireError::Error);
    }
    if abbreviates(what, b"freeratio") {
        return value.and_then(decimal_fraction).map(Slabs::AutomoveFreeRatio).ok_or(WireError::Error);
    }
    if abbreviates(what, b"window") {
        return match value.and_then(strict_u32) {
            Some(seconds) if AUTOMOVE_WINDOW_SECONDS.contains(&seconds) => Ok(Slabs::AutomoveWindow(seconds)),
            Some(_) => Err(WireError::AutomoveWindow),
            None => Err(WireError::BadCommandLineFormat),
        };
    }
    match strict_u32(what) {
        Some(level @ 0..=2) => Ok(Slabs::Automove(level as u8)),
        Some(_) => Err(WireError::Error),
        None => Err(WireError::BadCommandLineFormat),
    }
}

fn lru(args: &Args<'_>) -> Result<Lru, WireError> {
    match *args.all() {
        [_, word, hot, warm, hot_factor, warm_factor, ..] if abbreviates(word, b"tune") => {
            tune(hot, warm, hot_factor, warm_factor)
        }
        [_, word, mode, ..] if abbreviates(word, b"mode") => {
            if abbreviates(mode, b"flat") {
                Ok(Lru::Segmented(false))
            } else if abbreviates(mode, b"segmented") {
                Ok(Lru::Segmented(true))
            } else {
                Err(WireError::Error)
            }
        }
        [_, word, ttl, ..] if abbreviates(word, b"temp_ttl") => {
            strict_i32(ttl).map(Lru::TemporaryTtl).ok_or(WireError::Error)
        }
        _ => Err(WireError::Error),
    }
}

fn tune(hot: &[u8], warm: &[u8], hot_factor: &[u8], warm_factor: &[u8]) -> Result<Lru, WireError> {
    let (Some(hot_percent), Some(warm_percent), Some(hot_factor), Some(warm_factor)) =
        (strict_u32(hot), strict_u32(warm), decimal_fraction(hot_factor), decimal_fraction(warm_factor))
    else {
        return Err(WireError::Error);
    };
    if hot_percent.saturating_add(warm_percent) > 80 {
        return Err(WireError::HotWarmPercent);
    }
    if hot_factor <= 0.0 || warm_factor <= 0.0 {
        return Err(WireError::HotWarmFactor);
    }
    Ok(Lru::Tune { hot_percent, warm_percent, hot_factor, warm_factor })
}

/// Longest pause between two items of a crawl.
const CRAWLER_SLEEP_MICROSECONDS_MAX: u32 = 1_000_000;

fn crawler(args: &Args<'_>) -> Result<Crawler, WireError> {
    match *args.all() {
        [_, word, classes] if abbreviates(word, b"crawl") => Ok(Crawler::Crawl(match class_list(classes) {
            // Only a dump can walk the hash table.
            Ok(Classes::Hash) => Err(WireError::CrawlerUnknown),
            classes => classes,
        })),
        [_, word, classes] if abbreviates(word, b"metadump") => Ok(Crawler::Metadump(class_list(classes))),
        [_, word, classes] if abbreviates(word, b"mgdump") => Ok(Crawler::Mgdump(class_list(classes))),
        [_, word, count] if abbreviates(word, b"tocrawl") => {
            strict_u32(count).map(Crawler::ToCrawl).ok_or(WireError::BadCommandLineFormat)
        }
        [_, word, pause] if abbreviates(word, b"sleep") => match strict_u32(pause) {
            Some(pause) if pause <= CRAWLER_SLEEP_MICROSECONDS_MAX => Ok(Crawler::Sleep(pause)),
            Some(_) => Err(WireError::CrawlerSleepTooLong),
            None => Err(WireError::BadCommandLineFormat),
        },
        [_, word] if abbreviates(word, b"enable") => Ok(Crawler::Enable),
        [_, word] if abbreviates(word, b"disable") => Ok(Crawler::Disable),
        _ => Err(WireError::Error),
    }
}

fn class_list(token: &[u8]) -> Result<Classes, WireError> {
    match token {
        b"all" => return Ok(Classes::All),
        b"hash" => return Ok(Classes::Hash),
        _ => {}
    }
    let mut bits = 0u64;
    for class in token.split(|&byte| byte == b',').filter(|class| !class.is_empty()) {
        match loose_u32(class) {
            Some(class @ 1..=63) => bits |= 1 << class,
            _ => return Err(WireError::BadClass),
        }
    }
    Ok(Classes::Some(bits))
}

pub(super) fn watch(args: &Args<'_>) -> Result<WatchClasses, WireError> {
    let [_, words @ ..] = args.all() else { return Err(WireError::Error) };
    if words.is_empty() {
        return Ok(WatchClasses::FETCHERS);
    }
    let mut classes = WatchClasses::default();
    for word in words {
        let known = WatchClasses::NAMES.iter().find(|(name, _)| abbreviates(word, name));
        classes = classes.union(known.ok_or(WireError::Error)?.1);
    }
    Ok(classes)
}

/// Slab classes that a memcached can have, and one.
pub(super) const SLAB_CLASSES: u32 = 64;

const EXTSTORE_KNOBS: [&[u8]; 9] = [
    b"item_size",
    b"item_age",
    b"low_ttl",
    b"recache_rate",
    b"compact_under",
    b"drop_under",
    b"max_sleep",
    b"max_frag",
    b"drop_unread",
];

fn extstore<'a>(args: &Args<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let (knob, value) = (args.get(1)?, args.get(2)?);
    // Dead since its work became automatic, but accepted: a class and a count.
    if let Some(limit) = args.get(3)
        && abbreviates(knob, b"free_memchunks")
    {
        let valid = strict_u32(value)? < SLAB_CLASSES && strict_u32(limit).is_some();
        return valid.then_some((knob, value));
    }
    // The order decides what an abbreviation means.
    let name = EXTSTORE_KNOBS.into_iter().find(|name| abbreviates(knob, name))?;
    let valid = if name == b"max_frag" { decimal_fraction(value).is_some() } else { strict_u32(value).is_some() };
    valid.then_some((name, value))
}

fn debugtime(word: &[u8]) -> Option<DebugTime> {
    match word {
        b"p" => Some(DebugTime::Pause),
        b"r" => Some(DebugTime::Run),
        _ => strict_i64(word).map(DebugTime::Move),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refusal, refused, request};
    use super::*;

    #[test]
    fn flush_all_takes_a_delay_and_noreply_in_that_order() {
        for (line, delay, noreply) in [
            (&b"flush_all\r\n"[..], Ok(0), false),
            (b"flush_all noreply\r\n", Ok(0), true),
            (b"flush_all 10\r\n", Ok(10), false),
            (b"flush_all -10 noreply\r\n", Ok(-10), true),
            (b"flush_all x\r\n", Err(WireError::InvalidExptime), false),
            (b"flush_all noreply 0\r\n", Err(WireError::InvalidExptime), false),
            (b"flush_all 2147483648 noreply\r\n", Err(WireError::InvalidExptime), true),
        ] {
            let Request::FlushAll(flush) = request(line) else { panic!() };
            assert_eq!(flush, FlushAll { delay, noreply }, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn verbosity_and_memory_limit_take_a_number() {
        assert!(matches!(request(b"verbosity 2\r\n"), Request::Verbosity { level: 2, noreply: false }));
        assert!(matches!(request(b"verbosity 1 noreply\r\n"), Request::Verbosity { level: 1, noreply: true }));
        refused(b"verbosity\r\n", WireError::BadCommandLineFormat);
        refused(b"verbosity x\r\n", WireError::BadCommandLineFormat);
        assert_eq!(refusal(b"verbosity noreply\r\n").reply(), b"");
        assert!(matches!(request(b"cache_memlimit 64\r\n"), Request::CacheMemlimit { megabytes: 64, noreply: false }));
        refused(b"cache_memlimit\r\n", WireError::Error);
        refused(b"cache_memlimit 4294967296\r\n", WireError::Error);
    }

    #[test]
    fn shutdown_has_two_modes() {
        for (line, mode) in [
            (&b"shutdown\r\n"[..], Ok(ShutdownMode::Now)),
            (b"shutdown graceful\r\n", Ok(ShutdownMode::Graceful)),
            (b"shutdown slowly\r\n", Err(WireError::InvalidShutdownMode)),
            (b"shutdown graceful now\r\n", Err(WireError::InvalidShutdownMode)),
        ] {
            let Request::Shutdown(shutdown) = request(line) else { panic!() };
            assert_eq!(shutdown, Shutdown { mode, noreply: false });
        }
    }

    #[test]
    fn slabs_commands() {
        for (line, expected) in [
            (&b"slabs reassign 1 2\r\n"[..], Slabs::Reassign(Ok((1, 2)))),
            (b"slabs reassign -1 5\r\n", Slabs::Reassign(Ok((-1, 5)))),
            (b"slabs reassign a 5\r\n", Slabs::Reassign(Err(WireError::BadCommandLineFormat))),
            (b"slabs automove 0\r\n", Slabs::Automove(0)),
            (b"slabs automove 2\r\n", Slabs::Automove(2)),
            (b"slabs automove ratio 0.8\r\n", Slabs::AutomoveRatio(0.8)),
            (b"slabs automove freeratio 0.01\r\n", Slabs::AutomoveFreeRatio(0.01)),
            (b"slabs automove window 30\r\n", Slabs::AutomoveWindow(30)),
        ] {
            let Request::Slabs { command, noreply: false } = request(line) else { panic!() };
            assert_eq!(command, expected, "{}", line.escape_ascii());
        }
        for line in [&b"slabs\r\n"[..], b"slabs reassign\r\n", b"slabs reassign 1\r\n", b"slabs automove\r\n"] {
            refused(line, WireError::Error);
        }
        refused(b"slabs automove 3\r\n", WireError::Error);
        refused(b"slabs automove ratio\r\n", WireError::Error);
        refused(b"slabs automove ratio x\r\n", WireError::Error);
        refused(b"slabs automove window x\r\n", WireError::BadCommandLineFormat);
        refused(b"slabs automove x\r\n", WireError::BadCommandLineFormat);
    }

    #[test]
    fn lru_commands() {
        for (line, expected) in [
            (
                &b"lru tune 25 25 0.1 2.0\r\n"[..],
                Lru::Tune { hot_percent: 25, warm_percent: 25, hot_factor: 0.1, warm_factor: 2.0 },
            ),
            (b"lru mode flat\r\n", Lru::Segmented(false)),
            (b"lru mode segmented\r\n", Lru::Segmented(true)),
            (b"lru temp_ttl -1\r\n", Lru::TemporaryTtl(-1)),
        ] {
            let Request::Lru { command, noreply: false } = request(line) else { panic!() };
            assert_eq!(command, expected);
        }
        // CVE-2019-11596 is the third of these.
        for line in [&b"lru\r\n"[..], b"lru tune 1 2 3\r\n", b"lru mode\r\n", b"lru mode x\r\n", b"lru temp_ttl x\r\n"]
        {
            refused(line, WireError::Error);
        }
        refused(b"lru tune 41 40 1 1\r\n", WireError::HotWarmPercent);
        refused(b"lru tune 4294967295 1 1 1\r\n", WireError::HotWarmPercent);
        refused(b"lru tune 10 10 0 1\r\n", WireError::HotWarmFactor);
        refused(b"lru tune 10 10 1 -1\r\n", WireError::HotWarmFactor);
        refused(b"lru tune x 10 1 1\r\n", WireError::Error);
    }

    #[test]
    fn crawler_commands() {
        for (line, expected) in [
            (&b"lru_crawler enable\r\n"[..], Crawler::Enable),
            (b"lru_crawler disable\r\n", Crawler::Disable),
            (b"lru_crawler sleep 1000000\r\n", Crawler::Sleep(1_000_000)),
            (b"lru_crawler tocrawl 0\r\n", Crawler::ToCrawl(0)),
            (b"lru_crawler crawl 1,3\r\n", Crawler::Crawl(Ok(Classes::Some(0b1010)))),
            (b"lru_crawler crawl 64\r\n", Crawler::Crawl(Err(WireError::BadClass))),
            (b"lru_crawler crawl 0\r\n", Crawler::Crawl(Err(WireError::BadClass))),
            (b"lru_crawler metadump all\r\n", Crawler::Metadump(Ok(Classes::All))),
            (b"lru_crawler metadump hash\r\n", Crawler::Metadump(Ok(Classes::Hash))),
            (b"lru_crawler metadump x\r\n", Crawler::Metadump(Err(WireError::BadClass))),
            (b"lru_crawler mgdump all\r\n", Crawler::Mgdump(Ok(Classes::All))),
        ] {
            let Request::Crawler { command, noreply: false } = request(line) else { panic!() };
            assert_eq!(command, expected, "{}", line.escape_ascii());
        }
        refused(b"lru_crawler sleep 1000001\r\n", WireError::CrawlerSleepTooLong);
        refused(b"lru_crawler sleep x\r\n", WireError::BadCommandLineFormat);
        refused(b"lru_crawler tocrawl x\r\n", WireError::BadCommandLineFormat);
        for line in
            [&b"lru_crawler\r\n"[..], b"lru_crawler x\r\n", b"lru_crawler metadump\r\n", b"lru_crawler enable 1\r\n"]
        {
            refused(line, WireError::Error);
        }
    }

    #[test]
    fn watch_classes() {
        fn classes(line: &[u8]) -> Result<WatchClasses, WireError> {
            let Request::Watch { classes } = request(line) else { panic!() };
            classes
        }
        assert_eq!(classes(b"watch\r\n"), Ok(WatchClasses::FETCHERS));
        let both = WatchClasses::MUTATIONS.union(WatchClasses::DELETIONS);
        assert_eq!(classes(b"watch mutations deletions\r\n"), Ok(both));
        assert!(both.intersects(WatchClasses::DELETIONS) && !both.intersects(WatchClasses::FETCHERS));
        assert_eq!(classes(b"watch f\r\n"), Ok(WatchClasses::FETCHERS));
        assert_eq!(classes(b"watch fetchers bogus\r\n"), Err(WireError::Error));
        for (name, class) in WatchClasses::NAMES {
            let line = [b"watch ", name, b"\r\n"].concat();
            assert_eq!(classes(&line), Ok(class));
            assert_eq!(class.bits().count_ones(), 1);
        }
    }

    #[test]
    fn extstore_knobs_take_their_kind_of_number() {
        let Request::Extstore(extstore) = request(b"extstore item_size 512\r\n") else { panic!() };
        assert_eq!(extstore, Extstore { knob: b"item_size", value: b"512", noreply: false });
        assert!(matches!(request(b"extstore max_frag 0.8\r\n"), Request::Extstore(_)));
        assert!(matches!(request(b"extstore free_memchunks 1 2\r\n"), Request::Extstore(_)));
        for line in [&b"extstore\r\n"[..], b"extstore item_size\r\n", b"extstore item_size x\r\n", b"extstore x 1\r\n"]
        {
            refused(line, WireError::Error);
        }
    }

    #[test]
    fn debugtime_stops_starts_and_moves() {
        for (line, expected) in [
            (&b"debugtime p\r\n"[..], DebugTime::Pause),
            (b"debugtime r\r\n", DebugTime::Run),
            (b"debugtime -3600\r\n", DebugTime::Move(-3600)),
        ] {
            let Request::DebugTime { command, noreply: false } = request(line) else { panic!() };
            assert_eq!(command, expected);
        }
        refused(b"debugtime\r\n", WireError::Error);
        refused(b"debugtime x\r\n", WireError::Error);
    }

    #[test]
    fn refresh_certs_parses() {
        assert!(matches!(request(b"refresh_certs noreply\r\n"), Request::RefreshCerts { noreply: true }));
    }

    #[test]
    fn a_leading_space_hides_only_the_everyday_commands() {
        assert!(matches!(request(b" flush_all\r\n"), Request::FlushAll(_)));
        refused(b" version\r\n", WireError::Error);
    }

    #[test]
    fn tokens_past_the_23rd_are_not_looked_at() {
        let line = format!("flush_all 0{} noreply\r\n", " x".repeat(21));
        let Request::FlushAll(flush) = request(line.as_bytes()) else { panic!() };
        assert!(!flush.noreply);
    }
}
