//! A fleet of memcached servers as a backend.
//!
//! Each worker has a client of its own, whose connections live on that worker's runtime, so that nothing is shared between
//! workers on the way of a request; the control thread ticks them all. Items are fetched in a way that tells how long they
//! have to live wherever the fleet speaks the meta protocol. What a fleet's protocol cannot say is said by a meta command,
//! except to binary fleets.
//!
//! A server that is out is an error here, whatever `on_failure = "miss"` would make of it: only so can the tier tell it
//! from a miss, serve what it still has, and say otherwise whom to blame.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::ThreadId;
use std::time::Instant;

use futures_util::future::join_all;
use nuthatch_fleet::client::{
    self, Client, Error, MetaCode, MetaRequest, Receiver, ServerStats, Ttl, Verb, Want, Word, Write, Written,
};
use nuthatch_fleet::membership::{Log, Members};
use nuthatch_fleet::placement::PlacementError;
use nuthatch_fleet::{FleetSettings, Protocol, ServerSpec};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::inbox::{self, Asked, Inbox, Wants};
use super::parts::{Parts, Step};
use super::stream::{self, Watched};
use super::{
    Arith, Backend, Changes, Done, Fetched, Forget, Item, Key, Later, Life, Marks, Meta, MetaAnswer, MetaVerb, Op,
    Outcome, Refusal, SetMode, Store,
};
use crate::per_worker::PerWorker;

/// See the module.
pub(crate) struct Fleet {
    name: Arc<str>,
    /// What is in force; reloads and lists that are kept elsewhere change it.
    parts: RwLock<Parts>,
    clients: PerWorker<Mutex<Option<Mine>>>,
    /// Whose changes are followed.
    watched: watch::Sender<Watched>,
    listed: Mutex<Vec<Listed>>,
}

/// The clients of the worker that runs on this thread, by the number of their part; the fleet's own is first.
struct Mine {
    thread: ThreadId,
    clients: Vec<(usize, Client)>,
    protocol: Protocol,
}

/// A part's list that is kept elsewhere.
struct Listed {
    part: usize,
    members: Members,
    /// Takes its lists.
    task: AbortHandle,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    /// The fleet that `settings`, one of `all`, describe. Nothing is connected before it is needed.
    pub(crate) fn new(settings: &FleetSettings, all: &[FleetSettings]) -> Result<Arc<Fleet>, PlacementError> {
        let parts = Parts::of(settings, all, None)?;
        Ok(Arc::new(Fleet {
            name: format!("fleet {}", settings.name).into(),
            watched: watch::Sender::new(watched_of(&parts)),
            parts: RwLock::new(parts),
            clients: PerWorker::default(),
            listed: Mutex::default(),
        }))
    }

    /// Has it be as `settings`, one of `all`, say: whether anything is different. Other servers are taken on by the clients
    /// there are; for anything else they are replaced, and answer what they were asked. Where lists are kept elsewhere,
    /// [`Fleet::follow_lists`] is to be called again; until they are told, those that were known stay.
    pub(crate) fn change(&self, settings: &FleetSettings, all: &[FleetSettings]) -> Result<bool, PlacementError> {
        let newer = Parts::of(settings, all, Some(&self.parts()))?;
        if self.parts().are_as(&newer) {
            return Ok(false);
        }
        lock(&self.listed).clear();
        let step = self.parts().step_to(&newer);
        self.put_in_force(newer, &step);
        Ok(true)
    }

    /// Begins to follow the lists that are kept elsewhere, unless they are followed. On the control thread.
    pub(crate) fn follow_lists(self: &Arc<Self>, log: &Log) {
        let mut listed = lock(&self.listed);
        if !listed.is_empty() {
            return;
        }
        for (part, settings) in self.parts().listed_elsewhere() {
            let members = Members::follow(settings, Arc::clone(log));
            let (mut lists, fleet, log) = (members.lists(), Arc::downgrade(self), Arc::clone(log));
            let name = settings.name.clone();
            let task = tokio::spawn(async move {
                loop {
                    let list = Arc::clone(&lists.borrow_and_update());
                    let Some(fleet) = fleet.upgrade() else { return };
                    if !list.is_empty()
                        && let Err(error) = fleet.take(part, &list)
                    {
                        log(&format!("fleet {name}: {error}; its last list stays"));
                    }
                    drop(fleet);
                    if lists.changed().await.is_err() {
                        return;
                    }
                }
            });
            listed.push(Listed { part, members, task: task.abort_handle() });
        }
    }

    /// Ends what [`Fleet::follow_lists`] began.
    pub(crate) fn stop(&self) {
        lock(&self.listed).clear();
    }

    fn take(&self, part: usize, servers: &[ServerSpec]) -> Result<(), PlacementError> {
        let mut newer = self.parts().clone();
        let step = newer.take(part, servers)?;
        self.put_in_force(newer, &step);
        Ok(())
    }

    /// Only the control thread calls this.
    fn put_in_force(&self, newer: Parts, step: &Step) {
        let watched = watched_of(&newer);
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        for (_, mine) in self.clients.iter() {
            let mut mine = lock(mine);
            match (step, &*mine) {
                (Step::Nothing, _) | (_, None) => {}
                (Step::Replace, _) => *mine = None,
                (Step::Servers(lists), Some(Mine { clients, .. })) => {
                    for (part, client) in clients {
                        if let Some((_, servers)) = lists.iter().find(|(of, _)| of == part) {
                            client.set_servers(servers);
                        }
                    }
                }
            }
        }
        *parts = newer;
        drop(parts);
        // Copies of what lives elsewhere by now are forgotten by whoever follows.
        self.watched.send_if_modified(|before| {
            let differs = *before != watched;
            *before = watched;
            differs
        });
    }

    /// The calling worker's client.
    fn client(&self, worker: usize) -> Result<Client, Refusal> {
        let thread = std::thread::current().id();
        // In this order everywhere.
        let parts = self.parts();
        let mut mine = lock(self.clients.of(worker));
        if let Some(Mine { thread: made_on, clients, .. }) = &*mine
            && *made_on == thread
            && let Some((_, client)) = clients.first()
        {
            return Ok(client.clone());
        }
        if let Some(lacking) = parts.lacks() {
            return Err(Refusal::down(format_args!("{}: the servers of fleet {lacking} are not known yet", self.name)));
        }
        // The first request of a worker, or of one that has taken the place of another whose runtime is gone.
        let clients = parts.clients().map_err(|error| refusal(&self.name, &error))?;
        let Some((_, client)) = clients.first().cloned() else { return Err(refusal(&self.name, &Error::NoServers)) };
        *mine = Some(Mine { thread, clients, protocol: parts.settings().protocol });
        Ok(client)
    }

    fn parts(&self) -> RwLockReadGuard<'_, Parts> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request needs.
    fn asking(&self, worker: usize) -> Result<Asking, Refusal> {
        let client = self.client(worker)?;
        let parts = self.parts();
        let (protocol, has_copies) = (parts.settings().protocol, parts.settings().replicas > 0);
        Ok(Asking { client, name: Arc::clone(&self.name), protocol, has_copies })
    }
}

fn watched_of(parts: &Parts) -> Watched {
    Watched { servers: parts.servers(), namespace: parts.settings().placement.namespace.clone() }
}

impl Backend for Fleet {
    fn name(&self) -> &str {
        &self.name
    }

    fn get(&self, worker: usize, keys: Vec<Key>) -> Later<Vec<Fetched>> {
        match self.asking(worker) {
            Ok(asking) => Box::pin(async move { asking.get(&keys).await }),
            Err(refusal) => Box::pin(std::future::ready(vec![Err(refusal); keys.len()])),
        }
    }

    fn fetch(self: Arc<Self>, worker: usize, asked: &[Asked<'_>], wants: Wants, to: &Arc<Inbox>) {
        let by_task = |asked: &[Asked<'_>]| inbox::fetch_by_task(Arc::clone(&self), worker, asked, to);
        let mine = lock(self.clients.of(worker));
        let client = match &*mine {
            Some(Mine { thread, clients, protocol }) if *thread == std::thread::current().id() => {
                clients.first().map(|(_, client)| (client, *protocol)).filter(|(client, _)| client.is_plain())
            }
            _ => None,
        };
        // The first request of a worker, and what takes more than one step.
        let Some((client, protocol)) = client else {
            drop(mine);
            return by_task(asked);
        };
        // An answer to `mg` may come with a win, which is kept by the item's unique when this client cannot be told.
        let is_meta = protocol == Protocol::Meta;
        let want = Want { cas: wants.cas || is_meta, ttl: wants.life && is_meta };
        let receiver: Arc<dyn Receiver> = Arc::clone(to) as Arc<dyn Receiver>;
        for one in asked {
            if protocol == Protocol::Binary || is_text(one.key) {
                client.ask(one.key, want, &receiver, one.ticket);
            } else {
                by_task(&[*one]);
            }
        }
    }

    fn apply(&self, worker: usize, op: Op) -> Later<Done> {
        match self.asking(worker) {
            Ok(asking) => Box::pin(async move { asking.apply(&op).await }),
            Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
        }
    }

    fn follow(self: Arc<Self>, changes: Box<dyn Changes>) -> Option<Later<()>> {
        Some(Box::pin(stream::follow(self.watched.subscribe(), changes)))
    }

    fn tick(&self) {
        let now = Instant::now();
        for (_, mine) in self.clients.iter() {
            // Not under the lock: whoever is overdue is answered by this.
            let clients = lock(mine).as_ref().map(|mine| mine.clients.clone());
            for (_, client) in clients.into_iter().flatten() {
                client.tick(now);
            }
        }
    }

    fn counters(&self, show: &mut dyn FnMut(&str, &dyn fmt::Display)) {
        let parts = self.parts();
        for Listed { part, members, .. } in lock(&self.listed).iter() {
            let (prefix, counters) = (parts.prefix(*part), members.counters());
            for (name, value) in
                [("changes", counters.changes()), ("failures", counters.failures()), ("flaps", counters.flaps())]
            {
                show(&format!("{prefix}list_{name}"), &value);
            }
        }
        if let Some(left) = parts.migration_left() {
            show("migration_seconds_left", &left.as_secs_f64().ceil());
        }
        let mut brought_over = 0;
        let mut all: Vec<(String, ServerStats)> = Vec::new();
        for (_, mine) in self.clients.iter() {
            let clients = lock(mine).as_ref().map(|mine| mine.clients.clone());
            for (part, client) in clients.into_iter().flatten() {
                let prefix = parts.prefix(part);
                brought_over += client.brought_over();
                for stats in client.counters() {
                    match all.iter_mut().find(|(of, sum)| *of == prefix && sum.server == stats.server) {
                        Some((_, sum)) => add(sum, &stats),
                        None => all.push((prefix.clone(), stats)),
                    }
                }
            }
        }
        if parts.has_source() {
            show("brought_over", &brought_over);
        }
        for (prefix, sum) in &all {
            let latency_us = sum.latency_mean().as_micros() as u64;
            for (name, value) in [
                ("in_flight", sum.in_flight),
                ("requests", sum.requests),
                ("answers", sum.answers),
                ("refusals", sum.refusals),
                ("timeouts", sum.timeouts),
                ("busy", sum.busy),
                ("connects", sum.connects),
                ("connect_errors", sum.connect_errors),
                ("silences", sum.silences),
                ("losses", sum.losses),
                ("garbage", sum.garbage),
                ("ejections", sum.ejections),
                ("down", sum.down),
                ("bytes_out", sum.bytes_out),
                ("bytes_in", sum.bytes_in),
                ("latency_mean_us", latency_us),
            ] {
                show(&format!("{prefix}{}:{name}", sum.label), &value);
            }
            show(&format!("{prefix}{}:state", sum.label), &format_args!("{:?}", sum.state));
        }
    }
}

/// Adds one worker's counts to another's. A server counts as being in the worst state that anyone knows it in.
fn add(sum: &mut ServerStats, stats: &ServerStats) {
    for (sum, count) in [
        (&mut sum.in_flight, stats.in_flight),
        (&mut sum.requests, stats.requests),
        (&mut sum.answers, stats.answers),
        (&mut sum.refusals, stats.refusals),
        (&mut sum.timeouts, stats.timeouts),
        (&mut sum.busy, stats.busy),
        (&mut sum.connects, stats.connects),
        (&mut sum.connect_errors, stats.connect_errors),
        (&mut sum.silences, stats.silences),
        (&mut sum.losses, stats.losses),
        (&mut sum.garbage, stats.garbage),
        (&mut sum.ejections, stats.ejections),
        (&mut sum.down, stats.down),
        (&mut sum.bytes_out, stats.bytes_out),
        (&mut sum.bytes_in, stats.bytes_in),
        (&mut sum.latency_us, stats.latency_us),
    ] {
        *sum += count;
    }
    if stats.ejections > 0 && stats.state != client::ServerState::Up {
        sum.state = stats.state;
    }
}

/// A request on its way: everything it needs, borrowed from nobody.
struct Asking {
    client: Client,
    name: Arc<str>,
    protocol: Protocol,
    /// Items are on several servers.
    has_copies: bool,
}

impl Asking {
    fn want(&self) -> Want {
        if self.protocol == Protocol::Meta { Want::ALL } else { Want::CAS }
    }

    /// Whether `key` is better asked for by a meta command.
    fn by_meta(&self, key: &[u8]) -> bool {
        match self.protocol {
            // A meta command as it is goes to the key's own server, and its copies only lose by it.
            Protocol::Meta => !self.has_copies,
            // The text commands cannot carry every key.
            Protocol::Text => !is_text(key),
            Protocol::Binary => false,
        }
    }

    async fn get(&self, keys: &[Key]) -> Vec<Fetched> {
        if keys.iter().any(|key| self.by_meta(key)) {
            return join_all(keys.iter().map(|key| self.get_by_meta(key, b"v f c t"))).await;
        }
        if let [key] = keys {
            return vec![self.fetched(self.client.get(key, self.want()).await)];
        }
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let found = self.client.get_many(&keys, self.want()).await;
        found.into_iter().map(|found| self.fetched(found)).collect()
    }

    async fn get_by_meta(&self, key: &[u8], flags: &[u8]) -> Fetched {
        let answer = self.meta(Word::Get, key, flags, b"").await?;
        if answer.code != MetaCode::Va {
            return Ok(None);
        }
        let flag = |letter: u8| {
            let token = answer.flags.split(|&byte| byte == b' ').find(|token| token.first() == Some(&letter))?;
            std::str::from_utf8(&token[1..]).ok()
        };
        let number = |letter| flag(letter).and_then(|digits| digits.parse::<u64>().ok());
        let life = match flag(b't') {
            None => Life::Unknown,
            Some("-1") => Life::Forever,
            Some(digits) => digits.parse().map_or(Life::Unknown, Life::Seconds),
        };
        let has = |letter| flag(letter).is_some();
        Ok(Some(Item {
            flags: number(b'f').unwrap_or(0) as u32,
            cas: number(b'c').unwrap_or(0),
            life,
            marks: Marks { won: has(b'W'), stale: has(b'X'), sent: has(b'Z') },
            value: answer.value,
        }))
    }

    fn fetched(&self, found: Result<Option<client::Item>, Error>) -> Fetched {
        let found = found.map_err(|error| refusal(&self.name, &error))?;
        Ok(found.map(|item| Item {
            flags: item.flags,
            cas: item.cas,
            life: match item.ttl {
                Ttl::Unknown => Life::Unknown,
                Ttl::Forever => Life::Forever,
                Ttl::Seconds(left) => Life::Seconds(left),
            },
            marks: Marks::default(),
            value: item.value,
        }))
    }

    /// Sends a meta command; a key that text cannot carry goes in base64.
    async fn meta(&self, word: Word, key: &[u8], flags: &[u8], value: &[u8]) -> Result<client::MetaAnswer, Refusal> {
        let coded = (!is_text(key)).then(|| [flags, b" b"].concat());
        let flags = coded.as_deref().unwrap_or(flags);
        let answer = self.client.meta(MetaRequest { word, key, flags, value }).await;
        answer.map_err(|error| refusal(&self.name, &error))
    }

    async fn apply(&self, op: &Op) -> Done {
        let Some(key) = op.key() else {
            return self.apply_to_all(op).await;
        };
        let by_meta = self.by_meta(key);
        let write = match op {
            Op::Store(Store { mode, compare, flags, exptime, value, .. }) => {
                let is_plain_cas = *mode == SetMode::Set;
                if by_meta || self.protocol == Protocol::Text && compare.is_some() && !is_plain_cas {
                    return self.store_by_meta(key, op).await;
                }
                let verb = match mode {
                    SetMode::Set => Verb::Set,
                    SetMode::Add => Verb::Add,
                    SetMode::Replace => Verb::Replace,
                    SetMode::Append => Verb::Append,
                    SetMode::Prepend => Verb::Prepend,
                };
                let exptime = clamped(*exptime);
                Write::Store(client::Store { verb, key, value, flags: *flags, exptime, cas: *compare })
            }
            Op::Delete { compare, .. } => {
                if by_meta || self.protocol == Protocol::Text && compare.is_some() {
                    let flags = compare.map(|cas| format!("C{cas}")).unwrap_or_default();
                    let answer = self.meta(Word::Delete, key, flags.as_bytes(), b"").await?;
                    return Ok(match answer.code {
                        MetaCode::Hd => Outcome::Deleted,
                        MetaCode::Ex => Outcome::Exists,
                        _ => Outcome::NotFound,
                    });
                }
                Write::Delete { key, cas: *compare }
            }
            Op::Arith(arith) => {
                let is_plain = arith.initial.is_none() || self.protocol != Protocol::Text;
                if by_meta || !is_plain || arith.compare.is_some() {
                    return self.count_by_meta(key, arith).await;
                }
                let initial = arith.initial.map(|(value, exptime)| (value, clamped(exptime)));
                Write::Arith(client::Arith { key, down: arith.decrement, delta: arith.delta, initial })
            }
            Op::Touch { exptime, .. } if self.protocol == Protocol::Binary || is_text(key) => {
                Write::Touch { key, exptime: clamped(*exptime) }
            }
            Op::Touch { exptime, .. } => {
                let flags = format!("T{}", clamped(*exptime));
                let answer = self.meta(Word::Get, key, flags.as_bytes(), b"").await?;
                return Ok(if answer.code == MetaCode::Hd { Outcome::Touched } else { Outcome::NotFound });
            }
            Op::GetAndTouch { exptime, .. } => {
                let exptime = clamped(*exptime);
                let found = if by_meta {
                    self.get_by_meta(key, format!("v f c t T{exptime}").as_bytes()).await
                } else {
                    self.fetched(self.client.get_and_touch(key, exptime, self.want()).await)
                };
                return found.map(|found| found.map_or(Outcome::NotFound, Outcome::Item));
            }
            Op::Meta(meta) => return self.pass_on(key, meta).await,
            _ => return Err(self.unknown()),
        };
        self.written(op, self.client.write(write).await)
    }

    /// What is no one key's: every server has a part of it.
    async fn apply_to_all(&self, op: &Op) -> Done {
        let (told, outcome) = match op {
            Op::Flush { delay } => {
                let delay = Some(clamped(*delay)).filter(|delay| *delay > 0);
                (self.client.flush_all(delay).await, Outcome::Flushed)
            }
            Op::ForgetPrefix(prefix) => (self.client.forget(Forget::Prefix(prefix)).await, Outcome::Forgotten),
            Op::ForgetTag(tag) => (self.client.forget(Forget::Tag(tag)).await, Outcome::Forgotten),
            _ => return Err(self.unknown()),
        };
        told.map(|()| outcome).map_err(|error| refusal(&self.name, &error))
    }

    fn unknown(&self) -> Refusal {
        Refusal::no(format_args!("{}: no such operation, expected one that memcached has", self.name))
    }

    fn written(&self, op: &Op, written: Result<Written, Error>) -> Done {
        let told = |cas: u64| (cas != 0).then_some(cas);
        match written {
            Ok(Written::Done { cas }) => Ok(match op {
                Op::Delete { .. } => Outcome::Deleted,
                Op::Touch { .. } => Outcome::Touched,
                _ => Outcome::Stored { cas: told(cas) },
            }),
            Ok(Written::Number { value, cas }) => Ok(Outcome::Number { value, cas: told(cas) }),
            Ok(Written::NotStored) => Ok(Outcome::NotStored),
            Ok(Written::Exists) => Ok(Outcome::Exists),
            Ok(Written::NotFound) => Ok(Outcome::NotFound),
            Err(error) => {
                let word = match op {
                    Op::Store(_) => Word::Set,
                    Op::Arith(_) => Word::Arith,
                    Op::Delete { .. } => Word::Delete,
                    _ => Word::Get,
                };
                said_no(word, &error).ok_or_else(|| refusal(&self.name, &error))
            }
        }
    }

    async fn store_by_meta(&self, key: &[u8], op: &Op) -> Done {
        let Op::Store(Store { mode, compare, flags, exptime, value, .. }) = op else { return Err(self.unknown()) };
        let mode = match mode {
            SetMode::Set => 'S',
            SetMode::Add => 'E',
            SetMode::Replace => 'R',
            SetMode::Append => 'A',
            SetMode::Prepend => 'P',
        };
        let mut said = format!("M{mode} c F{flags} T{}", clamped(*exptime));
        if let Some(cas) = compare {
            said += &format!(" C{cas}");
        }
        let asked = MetaAsk { word: Word::Set, flags: said.as_bytes(), value };
        let answer = match self.meta_done(key, asked).await? {
            Ok(answer) => answer,
            Err(outcome) => return Ok(outcome),
        };
        Ok(match answer.code {
            MetaCode::Hd => Outcome::Stored { cas: cas_of(&answer.flags) },
            MetaCode::Ex => Outcome::Exists,
            MetaCode::Ns => Outcome::NotStored,
            _ => Outcome::NotFound,
        })
    }

    async fn count_by_meta(&self, key: &[u8], arith: &Arith) -> Done {
        let mut said = format!("v c D{} M{}", arith.delta, if arith.decrement { 'D' } else { 'I' });
        if let Some((value, exptime)) = arith.initial {
            said += &format!(" J{value} N{}", clamped(exptime));
        }
        if let Some(cas) = arith.compare {
            said += &format!(" C{cas}");
        }
        let asked = MetaAsk { word: Word::Arith, flags: said.as_bytes(), value: b"" };
        let answer = match self.meta_done(key, asked).await? {
            Ok(answer) => answer,
            Err(outcome) => return Ok(outcome),
        };
        Ok(match answer.code {
            MetaCode::Va => {
                let value = std::str::from_utf8(&answer.value).ok().and_then(|digits| digits.trim().parse().ok());
                let Some(value) = value else { return Err(self.unknown()) };
                Outcome::Number { value, cas: cas_of(&answer.flags) }
            }
            MetaCode::Ex => Outcome::Exists,
            _ => Outcome::NotFound,
        })
    }

    async fn pass_on(&self, key: &[u8], meta: &Meta) -> Done {
        let word = match meta.verb {
            MetaVerb::Get => Word::Get,
            MetaVerb::Set => Word::Set,
            MetaVerb::Delete => Word::Delete,
            MetaVerb::Arith => Word::Arith,
            MetaVerb::Debug => Word::Debug,
        };
        match self.meta_done(key, MetaAsk { word, flags: &meta.flags, value: &meta.value }).await? {
            Ok(answer) => {
                let value = (answer.code == MetaCode::Va).then_some(answer.value);
                let (code, flags) = (*answer.code.as_wire(), answer.flags.to_vec().into());
                Ok(Outcome::Meta(MetaAnswer { code, flags, value }))
            }
            Err(outcome) => Ok(outcome),
        }
    }

    /// As [`Asking::meta`]; the inner error is what the server's refusal is called here.
    async fn meta_done(&self, key: &[u8], asked: MetaAsk<'_>) -> Result<Result<client::MetaAnswer, Outcome>, Refusal> {
        let MetaAsk { word, flags, value } = asked;
        let coded = (!is_text(key)).then(|| [flags, b" b"].concat());
        let flags = coded.as_deref().unwrap_or(flags);
        match self.client.meta(MetaRequest { word, key, flags, value }).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(error) => match said_no(word, &error) {
                Some(outcome) => Ok(Err(outcome)),
                None => Err(refusal(&self.name, &error)),
            },
        }
    }
}

/// A meta command but for its key.
struct MetaAsk<'a> {
    word: Word,
    flags: &'a [u8],
    value: &'a [u8],
}

fn cas_of(flags: &[u8]) -> Option<u64> {
    let token = flags.split(|&byte| byte == b' ').find(|token| token.first() == Some(&b'c'))?;
    std::str::from_utf8(&token[1..]).ok()?.parse().ok().filter(|cas| *cas != 0)
}

/// What a server's refusal of a command that stores or counts means, where it is memcached's own: its line of the text
/// protocol, or words that come with a status of the binary one.
fn said_no(word: Word, error: &Error) -> Option<Outcome> {
    let Error::Refused { line, .. } = error else { return None };
    let says = |whole: &str, words: &str| {
        &**line == whole || !is_error_line(line) && line.to_ascii_lowercase().contains(words)
    };
    match word {
        Word::Set if says("SERVER_ERROR object too large for cache", "too large") => Some(Outcome::TooLarge),
        Word::Set if says("SERVER_ERROR out of memory storing object", "out of memory") => Some(Outcome::NoMemory),
        Word::Arith if says("SERVER_ERROR out of memory", "out of memory") => Some(Outcome::NoMemory),
        Word::Arith if says("CLIENT_ERROR cannot increment or decrement non-numeric value", "non-numeric") => {
            Some(Outcome::NonNumeric)
        }
        _ => None,
    }
}

/// Whether a text client may be answered `line`.
fn is_error_line(line: &str) -> bool {
    ["CLIENT_ERROR ", "SERVER_ERROR "].iter().any(|word| line.starts_with(word))
}

pub(super) fn refusal(name: &str, error: &Error) -> Refusal {
    let sentence = format_args!("{name}: {error}");
    match error {
        Error::Refused { line, .. } if is_error_line(line) => Refusal::said(line, sentence),
        error if error.is_failure() => Refusal::down(sentence),
        _ => Refusal::no(sentence),
    }
}

/// Most protocols know 31 bits of a time.
fn clamped(exptime: i64) -> i32 {
    exptime.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// Whether text commands can carry `key`.
fn is_text(key: &[u8]) -> bool {
    key.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
