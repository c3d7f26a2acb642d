//! The calls of a client, for programs: what can be asked of a fleet, and what is said when it is not answered. Where a call goes is
//! decided behind it, in `single` for one server and in `routed` for several.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;

use super::Error;
use super::config::{Config, Servers};
use super::counters::ServerStats;
use super::inner::{Inner, finish};
use super::keys::Taker;
use super::link::Link;
use super::request::{
    Answer, Arith, Forget, Found, Item, Marks, MetaAnswer, MetaRequest, Receiver, Request, Store, Verb, Want, Write,
    Written,
};

/// A fleet of memcached servers as one. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
}

impl Client {
    /// A client whose connections live on the tokio runtime this is called in. Nothing is connected before it is needed.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside a tokio runtime.
    pub fn new(config: Config) -> Result<Client, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        Ok(Client { inner: Inner::new(config, runtime) })
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

    /// Says what time it is: whatever is overdue is answered with an error before this returns. With
    /// [`Ticks::Caller`](super::Ticks::Caller) it has to be called every few milliseconds, from any thread.
    pub fn tick(&self, now: Instant) {
        self.inner.tick(now);
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
