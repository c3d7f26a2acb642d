//! Calls of which more than one server has a part: several copies of an item, another fleet that has what this one lacks,
//! another that is sent the same.
//!
//! A client that has none of these never comes here. Every step's time is what is left of the whole call's.
//!
//! What is brought over (a copy put back, an item of another fleet) could be older than a write that passed it. Within
//! one client that never happens: a write leaves a mark under the key's lock in [`Recent`] as it is sent, what was read
//! before the mark is not put anywhere, and what was put before it is in front of the write on the same connection.
//! Between clients it can: they know nothing of each other's writes, and an item lives on for the time it had left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;

use super::Error;
use super::clock::{Clock, micros};
use super::config::{Config, ReadFrom, Role, Servers, Source};
use super::inner::Inner;
use super::link::Call;
use super::ops::Client;
use super::request::{
    Answer, Item, MetaAnswer, MetaCode, MetaRequest, Request, Store, Ttl, Verb, Want, Word, Write, Written,
};
use super::server::{Server, spread};
use super::single::{RELATIVE_SECONDS_MAX, written};

/// What stands between a client's calls and one server.
#[derive(Debug)]
pub(super) struct Routes {
    /// Nothing does.
    plain: AtomicBool,
    source: RwLock<Option<Arc<Active>>>,
    recent: Recent,
    /// Items that were sent on to be added here.
    brought_over: AtomicU64,
}

/// A source that is in use.
#[derive(Debug)]
struct Active {
    client: Client,
    role: Role,
    /// When it is forgotten.
    until_us: u64,
    /// It is this client's own former list of servers.
    is_former: bool,
}

impl Routes {
    pub(super) fn new(config: &Config, clock: &Clock) -> Routes {
        let source = config.source.as_ref().map(|source| Arc::new(Active::new(source, clock.now_us())));
        let plain = config.replicas == 0 && config.shadow.is_none() && source.is_none();
        let (plain, source) = (AtomicBool::new(plain), RwLock::new(source));
        Routes { plain, source, recent: Recent::default(), brought_over: AtomicU64::new(0) }
    }

    /// Items that another fleet had and this one has been sent since.
    pub(super) fn brought_over(&self) -> u64 {
        self.brought_over.load(Ordering::Relaxed)
    }

    fn source(&self) -> Option<Arc<Active>> {
        self.source.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_source(&self, config: &Config, source: Option<Active>) -> Option<Arc<Active>> {
        let plain = config.replicas == 0 && config.shadow.is_none() && source.is_none();
        let mut place = self.source.write().unwrap_or_else(PoisonError::into_inner);
        self.plain.store(plain, Ordering::Relaxed);
        std::mem::replace(&mut *place, source.map(Arc::new))
    }
}

impl Active {
    fn new(source: &Source, now_us: u64) -> Active {
        let until_us = match source.role {
            Role::Warm => u64::MAX,
            Role::Migrate(time) => now_us.saturating_add(micros(time)),
        };
        Active { client: source.client.clone(), role: source.role, until_us, is_former: false }
    }
}

/// How many keys' locks there are; keys that share one only make each other's items be brought over another time.
const RECENT_LOCKS: usize = 1024;

/// When keys were last written to, by count of all writes.
#[derive(Debug)]
struct Recent {
    count: AtomicU64,
    marks: Vec<Mutex<u64>>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { count: AtomicU64::new(0), marks: (0..RECENT_LOCKS).map(|_| Mutex::new(0)).collect() }
    }
}

impl Recent {
    /// The writes so far.
    fn now(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    fn lock(&self, key: &[u8]) -> MutexGuard<'_, u64> {
        self.marks[spread(key) as usize % RECENT_LOCKS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `send`, which sends a write, or begins to.
    fn marked<T>(&self, key: &[u8], send: impl FnOnce() -> T) -> T {
        let mut mark = self.lock(key);
        *mark = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        send()
    }

    /// As [`Recent::marked`], for a request about keys that are not named, which is sent once this returns.
    fn mark_all(&self) {
        let now = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        // What is put somewhere under one of these locks is on its way before the lock is had.
        self.marks.iter().for_each(|mark| *mark.lock().unwrap_or_else(PoisonError::into_inner) = now);
    }

    /// Does `send`, which sends what was read at `then`, unless the key has been written to since.
    fn unless_marked<T>(&self, key: &[u8], then: u64, send: impl FnOnce() -> T) -> Option<T> {
        let mark = self.lock(key);
        (*mark <= then).then(send)
    }
}

impl Inner {
    pub(super) fn is_plain(&self) -> bool {
        self.routes.plain.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) async fn get(&self, key: &[u8], want: Want, touch: Option<i32>) -> Result<Option<Item>, Error> {
        if self.is_plain() {
            return self.retrieve(key, want, touch, None).await;
        }
        Box::pin(self.get_routed(key, want, touch)).await
    }

    pub(super) async fn get_many(
        &self,
        keys: &[&[u8]],
        want: Want,
        touch: Option<i32>,
    ) -> Vec<Result<Option<Item>, Error>> {
        if self.is_plain() {
            return self.retrieve_many(keys, want, touch).await;
        }
        join_all(keys.iter().map(|key| Box::pin(self.get_routed(key, want, touch)))).await
    }

    #[inline]
    pub(super) async fn change(&self, write: Write<'_>) -> Result<Written, Error> {
        if self.is_plain() {
            return self.write(write, None).await;
        }
        Box::pin(self.change_routed(write)).await
    }

    pub(super) async fn change_behind(&self, write: Write<'_>) -> Result<(), Error> {
        if self.is_plain() {
            return self.write_behind(write).await;
        }
        Box::pin(self.change_routed(write)).await.map(drop)
    }

    pub(super) async fn pass(&self, request: MetaRequest<'_>) -> Result<MetaAnswer, Error> {
        if self.is_plain() {
            return self.meta(request).await;
        }
        Box::pin(self.pass_routed(request)).await
    }

    /// The latest at which a call that begins now ends, by this client's time limit.
    fn end(&self) -> Instant {
        Instant::now() + self.shared.limits.timeout
    }

    fn until(&self, end: Instant) -> Option<u64> {
        Some(self.shared.clock.at_us(end))
    }

    async fn get_routed(&self, key: &[u8], want: Want, touch: Option<i32>) -> Result<Option<Item>, Error> {
        let end = self.end();
        self.shadow(key, &Request::Get { key, want, touch });
        let then = self.routes.recent.now();
        let found = self.get_copy(key, want, touch, end).await?;
        if found.is_some() {
            return Ok(found);
        }
        let Some((item, fill)) = self.bring_over(key, then, touch, end).await else { return Ok(None) };
        if want.cas {
            // The unique is this fleet's to give.
            let _ = written(fill).await;
            return self.get_copy(key, want, touch, end).await;
        }
        Ok(Some(item))
    }

    /// Reads the copies of an item until one is found, and puts it back where it was missing.
    async fn get_copy(&self, key: &[u8], want: Want, touch: Option<i32>, end: Instant) -> Result<Option<Item>, Error> {
        let deadline_us = self.until(end);
        if self.config.replicas == 0 {
            return self.retrieve(key, want, touch, deadline_us).await;
        }
        let then = self.routes.recent.now();
        let mut servers = match self.copies(key) {
            Ok(servers) => servers,
            Err(_) => return self.retrieve(key, want, touch, deadline_us).await,
        };
        if self.config.read_from == ReadFrom::Nearest && !want.cas {
            servers.sort_by_cached_key(|server| server.latency_us());
        }
        let mut missed: Vec<&Arc<Server>> = Vec::new();
        let mut failure = None;
        for (nth, server) in servers.iter().enumerate() {
            let asked = Want { ttl: want.ttl || nth > 0, ..want };
            let call = server.link(key).submit(&Request::Get { key, want: asked, touch }, deadline_us);
            let answer = match call {
                Ok(call) => call.await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(Answer::Item(Some(mut item))) => {
                    let put_back = self.put_back(key, &item, touch, then, &missed, deadline_us);
                    if want.cas && nth > 0 {
                        // The unique is the first server's to give. While that one cannot, there is none.
                        let is_missing_there = missed.first().is_some_and(|first| Arc::ptr_eq(first, &servers[0]));
                        if !is_missing_there {
                            item.cas = 0;
                            return Ok(Some(item));
                        }
                        for fill in put_back {
                            let _ = written(fill).await;
                        }
                        let call = servers[0].link(key).submit(&Request::Get { key, want, touch }, deadline_us)?;
                        return match call.await? {
                            Answer::Item(item) => Ok(item),
                            _ => Ok(None),
                        };
                    }
                    if let Some(exptime) = touch {
                        for other in servers.iter().filter(|other| !Arc::ptr_eq(other, server)) {
                            drop(other.link(key).submit(&Request::Write(Write::Touch { key, exptime }), deadline_us));
                        }
                    }
                    return Ok(Some(item));
                }
                Ok(_) => missed.push(server),
                Err(error) if error.is_failure() => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match failure {
            Some(failure) if missed.is_empty() => self.miss_or(failure),
            _ => Ok(None),
        }
    }

    /// The servers that have a copy and are up, the key's own first.
    fn copies(&self, key: &[u8]) -> Result<Vec<Arc<Server>>, Error> {
        self.ring().several(key, self.config.replicas + 1)
    }

    fn put_back(
        &self,
        key: &[u8],
        item: &Item,
        touch: Option<i32>,
        then: u64,
        missed: &[&Arc<Server>],
        deadline_us: Option<u64>,
    ) -> Vec<Call> {
        let Some(exptime) = touch.or_else(|| self.left(item.ttl)) else { return Vec::new() };
        let add = Store { verb: Verb::Add, key, value: &item.value, flags: item.flags, exptime, cas: None };
        let send =
            |server: &&Arc<Server>| server.link(key).submit(&Request::Write(Write::Store(add)), deadline_us).ok();
        let fills = self.routes.recent.unless_marked(key, then, || missed.iter().filter_map(send).collect());
        fills.unwrap_or_default()
    }

    /// The expiry time of an item that has this long left; `None` when it has nothing left.
    fn left(&self, ttl: Ttl) -> Option<i32> {
        let seconds = match ttl {
            Ttl::Forever => return Some(0),
            Ttl::Seconds(0) => return None,
            Ttl::Seconds(seconds) => seconds,
            Ttl::Unknown => self.config.fill_seconds.max(1),
        };
        let relative = i32::try_from(seconds).ok().filter(|seconds| *seconds <= RELATIVE_SECONDS_MAX);
        Some(relative.unwrap_or_else(|| {
            // Longer than thirty days is a date to memcached.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i32::try_from(now.as_secs().saturating_add(u64::from(seconds))).unwrap_or(i32::MAX)
        }))
    }

    /// What the source has under a key that is missing here, sent to be added here.
    async fn bring_over(&self, key: &[u8], then: u64, touch: Option<i32>, end: Instant) -> Option<(Item, Call)> {
        let source = self.source_of(key)?;
        let other = &source.client.inner;
        // That the source cannot answer is no worse than that it has nothing.
        let item = other.get_copy(key, Want { cas: false, ttl: true }, None, end).await.ok()??;
        let exptime = touch.or_else(|| self.left(item.ttl))?;
        let add = Store { verb: Verb::Add, key, value: &item.value, flags: item.flags, exptime, cas: None };
        let send = || self.start(key, &Request::Write(Write::Store(add)), self.until(end));
        let fill = self.routes.recent.unless_marked(key, then, send)?.ok()?;
        self.routes.brought_over.fetch_add(1, Ordering::Relaxed);
        Some((item, fill))
    }

    /// The source, where the key's server is not the same in both.
    fn source_of(&self, key: &[u8]) -> Option<Arc<Active>> {
        let source = self.routes.source()?;
        let is_same = match (self.ring().first(key), source.client.inner.ring().first(key)) {
            (Ok(here), Ok(there)) => here.identity.addr == there.identity.addr,
            _ => false,
        };
        (!is_same).then_some(source)
    }

    async fn change_routed(&self, write: Write<'_>) -> Result<Written, Error> {
        self.check_value(&write)?;
        let end = self.end();
        let key = write.key();
        self.shadow(key, &Request::Write(write));
        let source = self.source_of(key);
        let Some(source) = source else { return self.write_copies(write, end).await };
        let other = &source.client.inner;
        let delete = Write::Delete { key, cas: None };
        match (write, source.role) {
            (Write::Delete { cas: None, .. }, _) => {
                // There first: who reads here in between still finds it here.
                self.routes.recent.marked(key, || ());
                let there = other.write(delete, other.until(end)).await?;
                let here = self.write_copies(write, end).await?;
                Ok(if here == Written::NotFound { there } else { here })
            }
            (_, Role::Warm) => self.write_copies(write, end).await,
            (Write::Store(Store { verb: Verb::Set, cas: None, .. }), Role::Migrate(_)) => {
                let here = self.write_copies(write, end).await;
                // What the old server makes of it does not matter to what is stored here.
                let _ = other.write(write, other.until(end)).await;
                here
            }
            (_, Role::Migrate(_)) => {
                let then = self.routes.recent.now();
                if self.get_copy(key, Want::VALUE, None, end).await?.is_none()
                    && let Some((_, fill)) = self.bring_over(key, then, None, end).await
                {
                    let _ = written(fill).await;
                }
                let here = self.write_copies(write, end).await;
                if matches!(here, Ok(Written::Done { .. } | Written::Number { .. })) {
                    let _ = other.write(delete, other.until(end)).await;
                }
                here
            }
        }
    }

    /// Carries out a write on every copy.
    async fn write_copies(&self, write: Write<'_>, end: Instant) -> Result<Written, Error> {
        let key = write.key();
        let deadline_us = self.until(end);
        let recent = &self.routes.recent;
        let servers = match self.config.replicas {
            0 => Vec::new(),
            // With all of them down it goes where the keys of such servers go.
            _ => self.copies(key).unwrap_or_default(),
        };
        let Some((first, others)) = servers.split_first() else {
            return written(recent.marked(key, || self.start(key, &Request::Write(write), deadline_us))?).await;
        };
        let send = |servers: &[Arc<Server>], write: Write<'_>| -> Vec<Result<Call, Error>> {
            let submit = |server: &Arc<Server>| server.link(key).submit(&Request::Write(write), deadline_us);
            recent.marked(key, || servers.iter().map(submit).collect())
        };
        // What the first decides, the others are told: the value where it is known, else that theirs is out of date.
        let told = match write {
            Write::Store(Store { verb: Verb::Set, cas: None, .. })
            | Write::Delete { cas: None, .. }
            | Write::Touch { .. } => None,
            Write::Store(store @ Store { verb: Verb::Set | Verb::Add | Verb::Replace, .. }) => {
                Some(Write::Store(Store { verb: Verb::Set, cas: None, ..store }))
            }
            _ => Some(Write::Delete { key, cas: None }),
        };
        let (outcome, calls) = match told {
            None => (None, send(&servers, write)),
            Some(told) => {
                let outcome = finish_all(send(std::slice::from_ref(first), write)).await?;
                if !matches!(outcome, Written::Done { .. } | Written::Number { .. }) {
                    return Ok(outcome);
                }
                (Some(outcome), send(others, told))
            }
        };
        if calls.is_empty() {
            return Ok(outcome.unwrap_or(Written::NotFound));
        }
        let rest = finish_all(calls).await?;
        Ok(outcome.unwrap_or(rest))
    }

    /// Has everything or much be gone: from the fleet that keys come from first, so that nothing is brought over again, and
    /// then from here. The first failure is answered, and everyone else is told all the same.
    pub(super) async fn empty(&self, request: &Request<'_>) -> Result<(), Error> {
        if self.is_plain() {
            return self.tell_all(request).await;
        }
        // A fleet that others go on using is told what is out of date, and not to forget everything.
        let is_told = |role| matches!((role, request), (Role::Migrate(_), _) | (Role::Warm, Request::Forget(_)));
        let there = match self.routes.source().filter(|source| is_told(source.role)) {
            Some(source) => source.client.inner.tell_all(request).await,
            None => Ok(()),
        };
        self.routes.recent.mark_all();
        let here = self.tell_all(request).await;
        here.and(there)
    }

    async fn pass_routed(&self, request: MetaRequest<'_>) -> Result<MetaAnswer, Error> {
        let end = self.end();
        let MetaRequest { word, key, .. } = request;
        self.shadow(key, &Request::Meta(request));
        let changes = !matches!(word, Word::Get | Word::Debug);
        let source = self.source_of(key);
        let delete = Write::Delete { key, cas: None };
        if changes {
            self.routes.recent.marked(key, || ());
            if let Some(source) = &source
                && word == Word::Delete
            {
                source.client.inner.write(delete, source.client.inner.until(end)).await?;
            }
        }
        let then = self.routes.recent.now();
        let mut answer = self.meta(request).await?;
        if matches!(answer.code, MetaCode::En | MetaCode::Nf)
            && word != Word::Delete
            && let Some((_, fill)) = self.bring_over(key, then, None, end).await
        {
            let _ = written(fill).await;
            answer = self.meta(request).await?;
        }
        if changes && matches!(answer.code, MetaCode::Hd | MetaCode::Va) {
            let copies = if self.config.replicas == 0 { Vec::new() } else { self.copies(key).unwrap_or_default() };
            let calls =
                copies.iter().skip(1).map(|server| server.link(key).submit(&Request::Write(delete), self.until(end)));
            let calls: Vec<_> = calls.collect();
            if !calls.is_empty() {
                finish_all(calls).await?;
            }
            if let Some(source) = source
                && source.role != Role::Warm
                && word != Word::Delete
            {
                let _ = source.client.inner.write(delete, source.client.inner.until(end)).await;
            }
        }
        Ok(answer)
    }

    /// Sends the same to the shadow, if the key is one of those it gets.
    fn shadow(&self, key: &[u8], request: &Request<'_>) {
        let Some(shadow) = &self.config.shadow else { return };
        let place = (spread(key) >> 11) as f64 / (1_u64 << 53) as f64;
        if place < shadow.share {
            // Dropped, the call leaves its answer to nobody.
            drop(shadow.client.inner.start(key, request, None));
        }
    }

    pub(super) fn migrate(&self, servers: &Servers, time: Duration) -> Result<(), Error> {
        self.end_migration();
        let former = self.replace_ring(servers);
        let source = Active {
            client: self.former(former),
            role: Role::Migrate(time),
            until_us: self.shared.clock.look().saturating_add(micros(time)),
            is_former: true,
        };
        self.routes.set_source(&self.config, Some(source));
        self.shared.wake_ticker();
        Ok(())
    }

    /// Forgets the source, if it is one to be left behind; another that was configured is in its place again.
    pub(super) fn end_migration(&self) {
        let is_migration = |source: &Arc<Active>| matches!(source.role, Role::Migrate(_));
        let Some(ended) = self.routes.source().filter(is_migration) else { return };
        let warm = self.config.source.as_ref().filter(|source| source.role == Role::Warm);
        self.routes.set_source(&self.config, warm.map(|source| Active::new(source, 0)));
        if ended.is_former {
            let servers = ended.client.inner.ring().servers.clone();
            self.retire(servers);
        }
    }

    /// Keeps the former servers' deadlines, and the migration's own; true while there is one.
    pub(super) fn tick_routes(&self, now_us: u64) -> bool {
        let Some(source) = self.routes.source() else { return false };
        if source.is_former {
            // Those that stayed in the list have had this tick: a second one would find overdue what the first gave time.
            let here = self.ring();
            for server in &source.client.inner.ring().servers {
                if !here.servers.iter().any(|other| Arc::ptr_eq(server, other)) {
                    server.tick(now_us);
                }
            }
        }
        if now_us >= source.until_us {
            self.end_migration();
        }
        source.until_us != u64::MAX
    }

    /// Ends the connections to servers that only a migration still knows.
    pub(super) fn close_former(&self) {
        if let Some(source) = self.routes.source().filter(|source| source.is_former) {
            source.client.inner.ring().servers.iter().for_each(|server| server.close());
        }
    }
}

/// The best outcome of a write on several servers: one that carried it out before one that had nothing to do.
async fn finish_all(calls: Vec<Result<Call, Error>>) -> Result<Written, Error> {
    let mut best = None;
    let mut failure = None;
    for call in calls {
        let outcome = match call {
            Ok(call) => written(call).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(done @ (Written::Done { .. } | Written::Number { .. })) => best = best.filter(is_done).or(Some(done)),
            Ok(other) => best = best.or(Some(other)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match (failure, best) {
        (Some(failure), _) => Err(failure),
        (None, best) => Ok(best.unwrap_or(Written::NotFound)),
    }
}

fn is_done(outcome: &Written) -> bool {
    matches!(outcome, Written::Done { .. } | Written::Number { .. })
}
