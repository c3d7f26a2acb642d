//! The calls of a client: to which server each goes, and what happens when that one cannot be asked.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;

use super::Error;
use super::config::{Config, OnDown, Servers, Ticks};
use super::counters::ServerStats;
use super::keys::Taker;
use super::link::{Call, KEYS_PER_REQUEST, Link};
use super::request::{
    Answer, Arith, Forget, Found, Item, Marks, MetaAnswer, MetaRequest, Receiver, Request, Store, Verb, Want, Word,
    Write, Written,
};
use super::routed::Routes;
use super::server::{Ring, Server, Shared};
use super::wire;

/// How often a client that keeps its own time looks at its deadlines.
const TICK: Duration = Duration::from_millis(10);

/// Expiry times above this many seconds are dates (memcached's `REALTIME_MAXDELTA`).
pub(super) const RELATIVE_SECONDS_MAX: i32 = 60 * 60 * 24 * 30;

/// A fleet of memcached servers as one. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) config: Config,
    ring: RwLock<Ring>,
    spare: Option<Ring>,
    /// Servers that left the list and still have answers due.
    leaving: Mutex<Vec<Arc<Server>>>,
    /// What stands between a call and its server, if anything does.
    pub(super) routes: Routes,
    /// False where the servers are another client's, and this is its former list of them.
    owns_servers: bool,
}

impl Client {
    /// A client whose connections live on the tokio runtime this is called in. Nothing is connected before it is needed.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside a tokio runtime.
    pub fn new(config: Config) -> Result<Client, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let shared = Arc::new(Shared::new(&config, runtime.clone()));
        let ring = RwLock::new(Ring::new(&shared, &config.servers, &[]));
        let spare = match &config.on_down {
            OnDown::Spare { servers, .. } => Some(Ring::new(&shared, servers, &[])),
            _ => None,
        };
        let ticks = config.ticks;
        let routes = Routes::new(&config, &shared.clock);
        let inner =
            Arc::new(Inner { shared, config, ring, spare, leaving: Mutex::default(), routes, owns_servers: true });
        let _ = inner.shared.client.set(Arc::downgrade(&inner));
        if ticks == Ticks::Own {
            runtime.spawn(keep_time(Arc::downgrade(&inner), inner.shared.clone()));
        }
        Ok(Client { inner })
    }

    /// The item under a key, if there is one.
    ///
    /// # Errors
    /// What kept the server from answering.
    pub async fn get(&self, key: &[u8], want: Want) -> Result<Option<Item>, Error> {
        self.inner.get(key, want, None).await
    }

    /// The item under a key, whose expiry time is set to `exptime`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_and_touch(&self, key: &[u8], exptime: i32, want: Want) -> Result<Option<Item>, Error> {
        self.inner.get(key, want, Some(exptime)).await
    }

    /// Asks for the item under a key as [`Client::get`] does, and has the answer told to `receiver` with `ticket`, perhaps
    /// before this returns. Nothing is allocated for it: this is for programs that have many gets under way and know by
    /// themselves whose each is. Keys of one server that are asked for at the same time are one request to it. Where there
    /// are copies or another fleet, it is a task.
    pub fn ask(&self, key: &[u8], want: Want, receiver: &Arc<dyn Receiver>, ticket: u64) {
        let taker = Taker { receiver: receiver.clone(), ticket };
        if self.inner.is_plain() {
            return self.inner.ask(key, want, &taker, None);
        }
        let owed = Owed(Some(taker));
        let (client, key) = (self.clone(), key.to_vec());
        drop(self.inner.shared.runtime.spawn(async move {
            let found = client.inner.get(&key, want, None).await;
            owed.tell(found);
        }));
    }

    /// Whether an item has one place only, and nobody else is asked or told: what [`Client::ask`] sends is then all that is
    /// sent for it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.inner.is_plain()
    }

    /// The items under several keys, from all their servers at the same time. The answer at each position is that of the
    /// key at the same position; one server's failure is an error for its own keys only.
    pub async fn get_many(&self, keys: &[&[u8]], want: Want) -> Vec<Result<Option<Item>, Error>> {
        self.inner.get_many(keys, want, None).await
    }

    /// As [`Client::get_many`], and the items' expiry time is set to `exptime`.
    pub async fn get_many_and_touch(
        &self,
        keys: &[&[u8]],
        exptime: i32,
        want: Want,
    ) -> Vec<Result<Option<Item>, Error>> {
        self.inner.get_many(keys, want, Some(exptime)).await
    }

    /// Carries out a write.
    ///
    /// # Errors
    /// What kept the server from answering; see [`Error`] for what is known of the item then.
    pub async fn write(&self, write: Write<'_>) -> Result<Written, Error> {
        if write.never_happens() {
            return Ok(Written::Exists);
        }
        self.inner.change(write).await
    }

    /// Stores whatever was there; see [`Store`] for `exptime`.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn set(&self, key: &[u8], value: &[u8], flags: u32, exptime: i32) -> Result<(), Error> {
        self.write(Write::Store(Store { key, value, flags, exptime, ..Store::default() })).await.map(drop)
    }

    /// Stores if nothing was there; false: something was.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn add(&self, key: &[u8], value: &[u8], flags: u32, exptime: i32) -> Result<bool, Error> {
        let store = Store { verb: Verb::Add, key, value, flags, exptime, cas: None };
        Ok(matches!(self.write(Write::Store(store)).await?, Written::Done { .. }))
    }

    /// Stores if the item still has this CAS unique.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn cas(&self, key: &[u8], value: &[u8], flags: u32, exptime: i32, cas: u64) -> Result<Written, Error> {
        let store = Store { verb: Verb::Set, key, value, flags, exptime, cas: Some(cas) };
        self.write(Write::Store(store)).await
    }

    /// Removes an item; false: there was none.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(matches!(self.write(Write::Delete { key, cas: None }).await?, Written::Done { .. }))
    }

    /// Counts up; `None`: there is no such item.
    ///
    /// # Errors
    /// As [`Client::write`]; [`Error::Refused`] when the item is no number.
    pub async fn incr(&self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.count(Arith { key, delta, ..Arith::default() }).await
    }

    /// Counts down, to 0 at the least; `None`: there is no such item.
    ///
    /// # Errors
    /// As [`Client::incr`].
    pub async fn decr(&self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.count(Arith { key, delta, down: true, ..Arith::default() }).await
    }

    async fn count(&self, arith: Arith<'_>) -> Result<Option<u64>, Error> {
        match self.write(Write::Arith(arith)).await? {
            Written::Number { value, .. } => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Sets an item's expiry time; false: there is no such item.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn touch(&self, key: &[u8], exptime: i32) -> Result<bool, Error> {
        Ok(matches!(self.write(Write::Touch { key, exptime }).await?, Written::Done { .. }))
    }

    /// Carries out another client's meta command, its flags as they came. In text fleets too; not in binary ones.
    ///
    /// # Errors
    /// As [`Client::get`] and [`Client::write`]; [`Error::Unsupported`] with the binary protocol.
    pub async fn meta(&self, request: MetaRequest<'_>) -> Result<MetaAnswer, Error> {
        self.inner.pass(request).await
    }

    /// Takes a write that is sent without waiting for an answer: it returns as soon as there is room for it, and what
    /// became of it [`Client::flush`] tells for all of them together. Writes of one key keep their order, reads and
    /// awaited writes of that key included. Where there are copies or another fleet, it does wait.
    ///
    /// # Errors
    /// The caller's own, [`Error::Down`], and [`Error::Timeout`] when there was no room for as long as an operation may
    /// take.
    pub async fn write_behind(&self, write: Write<'_>) -> Result<(), Error> {
        if write.never_happens() {
            return Ok(());
        }
        self.inner.change_behind(write).await
    }

    /// Waits until every server has carried out what [`Client::write_behind`] took. Returns how many of these writes
    /// since the last call went wrong: conditions that did not hold, refusals, and all that were under way when a
    /// connection ended (of those it is not known).
    ///
    /// # Errors
    /// The first that kept a server from answering.
    pub async fn flush(&self) -> Result<u64, Error> {
        let links: Vec<Arc<Link>> = self.inner.all(|server| server.links().to_vec()).into_iter().flatten().collect();
        let busy = links.iter().filter(|link| link.counts().quiet > 0);
        let calls: Vec<_> = busy.map(|link| link.submit(&Request::Barrier, None)).collect();
        let mut result = Ok(());
        for call in calls {
            if let Err(error) = finish(call).await {
                result = result.and(Err(error));
            }
        }
        let failures = links.iter().map(|link| link.take_quiet_failures()).sum();
        result.map(|()| failures)
    }

    /// Empties every server, after `delay` seconds if there is one; a fleet that keys are taken over from too.
    ///
    /// # Errors
    /// The first server's that could not; the others are emptied all the same.
    pub async fn flush_all(&self, delay: Option<i32>) -> Result<(), Error> {
        self.inner.empty(&Request::Flush { delay }).await
    }

    /// Has every server forget a prefix or tag, each in constant time; another fleet that answers misses too. The namespace
    /// stands before a prefix as before a key, and not before a tag.
    ///
    /// # Errors
    /// The first server's that could not, [`Error::CannotForget`] of one that is no Nuthatch; the others forget all the same.
    pub async fn forget(&self, what: Forget<'_>) -> Result<(), Error> {
        match self.inner.empty(&Request::Forget(what)).await {
            Err(Error::Refused { server, line }) if ["ERROR", "NOT_FOUND"].contains(&&*line) => {
                Err(Error::CannotForget { server, line })
            }
            told => told,
        }
    }

    /// What each server says its version is, by the server's name.
    pub async fn version(&self) -> Vec<(Arc<str>, Result<String, Error>)> {
        let answers = self.inner.ask_all(&Request::Version).await;
        let text = |answer| if let Answer::Text(text) = answer { text } else { String::new() };
        answers.into_iter().map(|(label, answer)| (label, answer.map(text))).collect()
    }

    /// What each server's `stats` tells, by the server's name; `argument` is empty for the general counters.
    pub async fn stats(&self, argument: &[u8]) -> Vec<(Arc<str>, Result<Vec<(Bytes, Bytes)>, Error>)> {
        let answers = self.inner.ask_all(&Request::Stats { argument }).await;
        let stats = |answer| if let Answer::Stats(stats) = answer { stats } else { Vec::new() };
        answers.into_iter().map(|(label, answer)| (label, answer.map(stats))).collect()
    }

    /// What this client has counted about each server.
    #[must_use]
    pub fn counters(&self) -> Vec<ServerStats> {
        self.inner.all(|server| server.stats())
    }

    /// How many items another fleet had that were put here: by [`Config::source`] or [`Client::migrate`].
    #[must_use]
    pub fn brought_over(&self) -> u64 {
        self.inner.routes.brought_over()
    }

    /// Changes the list of servers. Those that stay keep their connections; those that go answer what they were asked, and
    /// are asked nothing more. Which keys move is the placement's matter alone.
    pub fn set_servers(&self, servers: &Servers) {
        self.inner.set_servers(servers);
    }

    /// Changes the list of servers without a storm of misses: for so long, keys that move are asked of their old server
    /// when the new one does not have them, and are put there. See [`Role::Migrate`](super::Role::Migrate). A migration
    /// that is under way is over.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn migrate(&self, servers: &Servers, time: Duration) -> Result<(), Error> {
        self.inner.migrate(servers, time)
    }

    /// Says what time it is: whatever is overdue is answered with an error before this returns. With [`Ticks::Caller`] it
    /// has to be called every few milliseconds, from any thread.
    pub fn tick(&self, now: Instant) {
        self.inner.tick(now);
    }
}

impl Inner {
    /// Calls `look` with every server, spare ones included.
    pub(super) fn all<T>(&self, look: impl Fn(&Server) -> T) -> Vec<T> {
        let ring = self.ring();
        let spare = self.spare.iter().flat_map(|ring| &ring.servers);
        ring.servers.iter().chain(spare).map(|server| look(server)).collect()
    }

    /// Which server is asked for a key, and whether it is a spare one.
    #[inline]
    fn pick<'r>(&'r self, ring: &'r Ring, key: &[u8]) -> Result<(&'r Arc<Server>, bool), Error> {
        let server = ring.first(key)?;
        if server.takes(key) { Ok((server, false)) } else { self.pick_other(ring, key, server) }
    }

    #[cold]
    fn pick_other<'r>(
        &'r self,
        ring: &'r Ring,
        key: &[u8],
        server: &Arc<Server>,
    ) -> Result<(&'r Arc<Server>, bool), Error> {
        let other = match self.config.on_down {
            OnDown::Error | OnDown::Miss => None,
            // Until a tick sees that it is out, and for the keys that it does not have back yet, the next stands in.
            OnDown::Next | OnDown::Eject => ring.first_that_takes(key).map(|server| (server, false)),
            OnDown::Spare { .. } => {
                let spare = self.spare.as_ref().and_then(|spare| spare.first_that_takes(key));
                spare.map(|server| (server, true))
            }
        };
        other.ok_or_else(|| server.down())
    }

    /// Sends a request to the server of its key.
    #[inline]
    pub(super) fn start(&self, key: &[u8], request: &Request<'_>, deadline_us: Option<u64>) -> Result<Call, Error> {
        let ring = self.ring();
        let (server, is_spare) = self.pick(&ring, key)?;
        let link = server.link(key);
        match *request {
            Request::Write(write) if is_spare => link.submit(&Request::Write(self.shortened(write)), deadline_us),
            _ => link.submit(request, deadline_us),
        }
    }

    /// Sends one key of a retrieval to its server; `second_until_us` as in [`Link::ask`]. Whatever comes of it is told.
    pub(super) fn ask(&self, key: &[u8], want: Want, taker: &Taker, second_until_us: Option<u64>) {
        let asked = {
            let ring = self.ring();
            self.pick(&ring, key).and_then(|(server, _)| server.link(key).ask(key, want, taker, second_until_us))
        };
        if let Err(error) = asked {
            match self.miss_or(error) {
                Ok(_) => taker.tell(Ok(None)),
                Err(error) => taker.tell(Err(&error)),
            }
        }
    }

    /// The write with an expiry time that a spare server may keep.
    fn shortened<'a>(&self, write: Write<'a>) -> Write<'a> {
        let OnDown::Spare { ttl_seconds_max, .. } = self.config.on_down else { return write };
        let longest = i32::try_from(ttl_seconds_max).unwrap_or(i32::MAX).clamp(1, RELATIVE_SECONDS_MAX);
        // A date becomes the longest that is allowed: to know whether it comes earlier would take the servers' clock.
        let shorten = |exptime| if (1..longest).contains(&exptime) || exptime < 0 { exptime } else { longest };
        match write {
            Write::Store(store) => Write::Store(Store { exptime: shorten(store.exptime), ..store }),
            Write::Touch { key, exptime } => Write::Touch { key, exptime: shorten(exptime) },
            Write::Arith(arith) => {
                let initial = arith.initial.map(|(initial, exptime)| (initial, shorten(exptime)));
                Write::Arith(Arith { initial, ..arith })
            }
            Write::Delete { .. } => write,
        }
    }

    /// A read's answer. When the connection turns out to have ended, as it does when a server was restarted, the read is
    /// tried once more: it changes nothing.
    async fn read(&self, key: &[u8], request: &Request<'_>, deadline_us: Option<u64>) -> Result<Answer, Error> {
        let mut call = self.start(key, request, deadline_us)?;
        match (&mut call).await {
            Err(Error::Lost { .. }) => self.start(key, request, Some(call.deadline_us))?.await,
            answer => answer,
        }
    }

    pub(super) async fn retrieve(
        &self,
        key: &[u8],
        want: Want,
        touch: Option<i32>,
        deadline_us: Option<u64>,
    ) -> Result<Option<Item>, Error> {
        match self.read(key, &Request::Get { key, want, touch }, deadline_us).await {
            Ok(Answer::Item(item)) => Ok(item),
            Ok(answer) => unreachable!("a retrieval is not answered with {answer:?}"),
            Err(error) => self.miss_or(error),
        }
    }

    /// What a failed read is to the caller.
    pub(super) fn miss_or(&self, error: Error) -> Result<Option<Item>, Error> {
        match (&self.config.on_down, error) {
            (OnDown::Miss, Error::Down { .. }) => Ok(None),
            (_, error) => Err(error),
        }
    }

    pub(super) async fn retrieve_many(
        &self,
        keys: &[&[u8]],
        want: Want,
        touch: Option<i32>,
    ) -> Vec<Result<Option<Item>, Error>> {
        let mut results: Vec<Result<Option<Item>, Error>> = vec![Ok(None); keys.len()];
        let all: Vec<u32> = (0..keys.len() as u32).collect();
        let groups = self.start_many(keys, &all, &mut results, want, touch, None);
        let mut again = Vec::new();
        let mut deadline_us = u64::MAX;
        for (positions, mut call) in groups {
            match (&mut call).await {
                Err(Error::Lost { .. }) => {
                    again.extend(positions);
                    deadline_us = deadline_us.min(call.deadline_us);
                }
                answer => self.deal_out(&positions, answer, &mut results),
            }
        }
        if !again.is_empty() {
            for (positions, call) in self.start_many(keys, &again, &mut results, want, touch, Some(deadline_us)) {
                self.deal_out(&positions, call.await, &mut results);
            }
        }
        results
    }

    /// Sends the keys at these positions to their servers. What cannot be sent is an error in `results`.
    fn start_many(
        &self,
        keys: &[&[u8]],
        positions: &[u32],
        results: &mut [Result<Option<Item>, Error>],
        want: Want,
        touch: Option<i32>,
        deadline_us: Option<u64>,
    ) -> Vec<(Vec<u32>, Call)> {
        let ring = self.ring();
        let mut groups: Vec<(&Arc<Link>, Vec<u32>)> = Vec::new();
        for &position in positions {
            let key = keys[position as usize];
            let picked = wire::check_key(self.shared.spoken(), key).map_err(Error::Request);
            match picked.and_then(|()| self.pick(&ring, key)) {
                Ok((server, _)) => {
                    let link = server.link(key);
                    match groups.iter_mut().find(|(other, _)| Arc::ptr_eq(other, link)) {
                        Some((_, positions)) => positions.push(position),
                        None => groups.push((link, vec![position])),
                    }
                }
                Err(error) => results[position as usize] = self.miss_or(error),
            }
        }
        let mut calls = Vec::with_capacity(groups.len());
        let mut asked: Vec<&[u8]> = Vec::with_capacity(KEYS_PER_REQUEST);
        for (link, positions) in groups {
            for positions in positions.chunks(KEYS_PER_REQUEST) {
                asked.clear();
                asked.extend(positions.iter().map(|&position| keys[position as usize]));
                match link.submit(&Request::Many { keys: &asked, want, touch }, deadline_us) {
                    Ok(call) => calls.push((positions.to_vec(), call)),
                    Err(error) => self.deal_out(positions, Err(error), results),
                }
            }
        }
        calls
    }

    fn deal_out(&self, positions: &[u32], answer: Result<Answer, Error>, results: &mut [Result<Option<Item>, Error>]) {
        match answer {
            Ok(Answer::Items(items)) => {
                for (&position, item) in positions.iter().zip(items) {
                    results[position as usize] = Ok(item);
                }
            }
            Ok(answer) => unreachable!("a retrieval of several keys is not answered with {answer:?}"),
            Err(error) => {
                for &position in positions {
                    results[position as usize] = self.miss_or(error.clone());
                }
            }
        }
    }

    pub(super) async fn write(&self, write: Write<'_>, deadline_us: Option<u64>) -> Result<Written, Error> {
        self.check_value(&write)?;
        written(self.start(write.key(), &Request::Write(write), deadline_us)?).await
    }

    pub(super) fn check_value(&self, write: &Write<'_>) -> Result<(), Error> {
        let value_bytes_max = self.shared.limits.value_bytes_max;
        match write {
            Write::Store(Store { value, .. }) if value.len() > value_bytes_max => {
                Err(Error::ValueTooLong { value_bytes: value.len(), value_bytes_max })
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn meta(&self, request: MetaRequest<'_>) -> Result<MetaAnswer, Error> {
        let value_bytes_max = self.shared.limits.value_bytes_max;
        if request.value.len() > value_bytes_max {
            return Err(Error::ValueTooLong { value_bytes: request.value.len(), value_bytes_max });
        }
        // `mg` with N or T, and all the rest, change something.
        let changes = request.word != Word::Get && request.word != Word::Debug;
        let answer = if changes {
            self.start(request.key, &Request::Meta(request), None)?.await?
        } else {
            self.read(request.key, &Request::Meta(request), None).await?
        };
        match answer {
            Answer::Meta(answer) => Ok(answer),
            answer => unreachable!("a meta command is not answered with {answer:?}"),
        }
    }

    pub(super) async fn write_behind(&self, write: Write<'_>) -> Result<(), Error> {
        self.check_value(&write)?;
        let mut deadline_us = None;
        poll_fn(|context| {
            let ring = self.ring();
            let (server, is_spare) = self.pick(&ring, write.key())?;
            let write = if is_spare { self.shortened(write) } else { write };
            let taken = server.link(write.key()).submit_quiet(&write, context.waker())?;
            if taken {
                return Poll::Ready(Ok(()));
            }
            let now_us = self.shared.clock.look();
            if now_us >= *deadline_us.get_or_insert(now_us + self.shared.limits.timeout_us()) {
                let server = server.identity.label.clone();
                return Poll::Ready(Err(Error::Timeout { server, after: self.shared.limits.timeout }));
            }
            Poll::Pending
        })
        .await
    }

    /// Tells every server, on each of its connections, so that it comes after what was sent to it before.
    pub(super) async fn tell_all(&self, request: &Request<'_>) -> Result<(), Error> {
        let calls = self.all(|server| server.links().iter().map(|link| link.submit(request, None)).collect::<Vec<_>>());
        let mut first = Ok(());
        for call in calls.into_iter().flatten() {
            first = first.and(finish(call).await.map(drop));
        }
        first
    }

    /// Asks every server the same.
    async fn ask_all(&self, request: &Request<'_>) -> Vec<(Arc<str>, Result<Answer, Error>)> {
        let calls = self.all(|server| {
            let call = server.links()[0].submit(request, None);
            (server.identity.label.clone(), call)
        });
        let mut answers = Vec::with_capacity(calls.len());
        for (label, call) in calls {
            answers.push((label, finish(call).await));
        }
        answers
    }

    fn set_servers(&self, servers: &Servers) {
        let old = self.replace_ring(servers);
        self.retire(old.servers);
        self.end_migration();
    }

    /// Puts a new list in place of the old, which is handed back with its connections as they are.
    pub(super) fn replace_ring(&self, servers: &Servers) -> Ring {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Ring::new(&self.shared, servers, &ring.servers);
        if let OnDown::Eject = self.config.on_down {
            let out = new.out();
            new.eject(out);
        }
        std::mem::replace(&mut *ring, new)
    }

    /// Lets go of those servers that are not in the list.
    pub(super) fn retire(&self, servers: Vec<Arc<Server>>) {
        let ring = self.ring();
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        for server in servers {
            if !ring.servers.iter().any(|other| Arc::ptr_eq(&server, other)) {
                server.drain();
                leaving.push(server);
            }
        }
        drop((leaving, ring));
        self.shared.wake_ticker();
    }

    /// A client of this one's servers by a former list of them, without anything else of this one's.
    pub(super) fn former(&self, ring: Ring) -> Client {
        let config = Config { source: None, shadow: None, ..self.config.clone() };
        let routes = Routes::new(&config, &self.shared.clock);
        let (shared, ring) = (self.shared.clone(), RwLock::new(ring));
        let inner = Inner { shared, config, ring, spare: None, leaving: Mutex::default(), routes, owns_servers: false };
        Client { inner: Arc::new(inner) }
    }

    pub(super) fn ring(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while there is something whose time may come.
    fn tick(&self, now: Instant) -> bool {
        let now_us = self.shared.clock.advance(now);
        let ring = self.ring();
        let spare = self.spare.iter().flat_map(|ring| &ring.servers);
        let mut busy = ring.servers.iter().chain(spare).fold(false, |busy, server| server.tick(now_us) | busy);
        let out = if let OnDown::Eject = self.config.on_down { ring.ejects_others() } else { None };
        drop(ring);
        if let Some(out) = out {
            self.ring.write().unwrap_or_else(PoisonError::into_inner).eject(out);
        }
        busy |= self.tick_routes(now_us);
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|server| server.tick_links(now_us));
        busy |= !leaving.is_empty();
        busy
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owns_servers {
            return;
        }
        self.close_former();
        self.all(|server| server.close());
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|server| server.close());
        self.shared.ticker.notify_one();
    }
}

/// An answer that somebody is told in any case: when its task ends with the runtime, that.
struct Owed(Option<Taker>);

impl Owed {
    fn tell(mut self, found: Result<Option<Item>, Error>) {
        let Some(taker) = self.0.take() else { return };
        match &found {
            Ok(Some(Item { value, flags, cas, ttl })) => {
                let (flags, cas, ttl, marks) = (*flags, *cas, *ttl, Marks::default());
                taker.tell(Ok(Some(Found { value, flags, cas, ttl, marks })));
            }
            Ok(None) => taker.tell(Ok(None)),
            Err(error) => taker.tell(Err(error)),
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(taker) = &self.0 {
            taker.tell(Err(&Error::Stopped { server: "of the fleet".into() }));
        }
    }
}

/// How a write went.
pub(super) async fn written(call: Call) -> Result<Written, Error> {
    match call.await? {
        Answer::Written(written) => Ok(written),
        answer => unreachable!("a write is not answered with {answer:?}"),
    }
}

/// The answer of a request that was sent, or the reason why it was not.
async fn finish(call: Result<Call, Error>) -> Result<Answer, Error> {
    call?.await
}

/// Ticks while a client has deadlines to keep, and ends with it.
async fn keep_time(client: Weak<Inner>, shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(inner) = client.upgrade() else { return };
        if inner.tick(Instant::now()) {
            continue;
        }
        shared.ticker_parked.store(true, Ordering::SeqCst);
        // A request that came in between has not seen that nobody keeps its time.
        if inner.tick(Instant::now()) {
            shared.ticker_parked.store(false, Ordering::SeqCst);
            continue;
        }
        drop(inner);
        shared.ticker.notified().await;
    }
}
