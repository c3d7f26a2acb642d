//! Requests of pools that have a backend: which they are, and how each begins.
//!
//! A decoded request becomes an [`Op`] or a list of keys, which own what they need; the pool's tier answers it at once,
//! or later by a future. What is then answered is formatted by [`super::deliver`] from the front of the request, which is
//! kept for it. Nothing here waits.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use nuthatch_proto::ascii::{self, Request, Verb};
use nuthatch_proto::binary::{self, Command};
use nuthatch_proto::forget::Forget;
use nuthatch_proto::meta::{KEY_SCRATCH, KeyScratch, Meta, MetaSet, SetMode as MetaMode};
use nuthatch_store::{SetMode, SetOutcome};

use super::deliver::{Answer, Front, Got};
use super::forget::{forget, reserved};
use super::text_get::Lookup;
use super::{Exec, admin, binary as binary_exec, meta as meta_exec, text_get, text_store};
use crate::backend::{self, Done, Fetched, Key, Later, MetaVerb, Op, Outcome, Refusal};
use crate::counters::{PoolCounter, TierCounter};
use crate::settings::{Act, Policy};
use crate::tier::{Tier, write};

/// What a request is about, as far as pools with backends go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// No pool that has one.
    Plain,
    /// One key, or several that are read; the hash of each that matters is in the request.
    Key {
        /// [`hash_of`] the key.
        hash: u64,
        /// Whether it may change.
        writes: bool,
    },
    /// The keys of a retrieval.
    Keys,
    /// All keys.
    All,
}

/// Tells keys of one connection apart. That two share a hash costs one of them a wait.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

impl Exec<'_> {
    /// The tier of the pool `key` lives in.
    pub(crate) fn tier_of(&self, key: &[u8]) -> Option<&Arc<Tier>> {
        self.live.tiers.of(self.pool_of(key))
    }

    /// What `act` on a key is about. With a policy that leaves the backend alone, the pool is one without any.
    fn target(&self, key: &[u8], act: Act) -> Target {
        match self.tier_of(key) {
            Some(tier) if tier.policy(act) != Policy::Memory => {
                Target::Key { hash: hash_of(key), writes: act != Act::Get }
            }
            _ => Target::Plain,
        }
    }

    /// Of a deletion or count, which a reserved key makes a forgetting; counting down does not.
    fn target_unless_reserved(&self, key: &[u8], act: Act, decrement: bool) -> Target {
        match self.forgets(key, decrement) {
            Some(_) => self.target_all(),
            None => self.target(key, act),
        }
    }

    /// What a deletion or count of `key` is to forget.
    fn forgets<'k>(&self, key: &'k [u8], decrement: bool) -> Option<Forget<'k>> {
        reserved(self, self.pool_of(key), key).filter(|_| !decrement)
    }

    /// Whether looking `key` up goes by its tier.
    fn looks_up(&self, key: &[u8]) -> bool {
        self.tier_of(key).is_some_and(|tier| tier.policy(Act::Get) != Policy::Memory)
    }

    fn target_all(&self) -> Target {
        let reachable = self.live.routes.reachable(self.own_pool);
        let is_backed = reachable.into_iter().any(|pool| self.live.tiers.of(pool).is_some());
        if is_backed { Target::All } else { Target::Plain }
    }
}

/// What a text request is about.
pub(crate) fn text_target(exec: &Exec<'_>, request: &Request<'_>) -> Target {
    let mut scratch = KEY_SCRATCH;
    match request {
        Request::Forget { .. } => exec.target_all(),
        Request::Get(get) => {
            let is_backed = |key| match get.touch {
                None => exec.looks_up(key),
                Some(_) => exec.target(key, Act::Set) != Target::Plain,
            };
            if get.keys.iter().any(is_backed) { Target::Keys } else { Target::Plain }
        }
        Request::Store(store) => exec.target(store.key, Act::Set),
        Request::Delete(delete) => exec.target_unless_reserved(delete.key, Act::Delete, false),
        Request::Arith(arith) => exec.target_unless_reserved(arith.key, Act::Set, arith.decrement),
        Request::Touch(touch) => exec.target(touch.key, Act::Set),
        Request::MetaGet(get) => exec.target(get.key(&mut scratch), if get_changes(get) { Act::Set } else { Act::Get }),
        Request::MetaSet(set) => exec.target(set.meta.key(&mut scratch), Act::Set),
        Request::MetaDelete(delete) => exec.target_unless_reserved(delete.key(&mut scratch), Act::Delete, false),
        Request::MetaArith(arith) => {
            exec.target_unless_reserved(arith.meta.key(&mut scratch), Act::Set, arith.decrement)
        }
        Request::MetaDebug(debug) => exec.target(debug.key(&mut scratch), Act::Get),
        Request::FlushAll(flush) if flush.delay.is_ok() && exec.live.settings.flush_enabled => exec.target_all(),
        _ => Target::Plain,
    }
}

/// What a binary request is about.
pub(crate) fn binary_target(exec: &Exec<'_>, request: &binary::Request<'_>) -> Target {
    match &request.command {
        Command::Get(get) => exec.target(get.key, if get.touch.is_some() { Act::Set } else { Act::Get }),
        Command::Store(store) => exec.target(store.key, Act::Set),
        Command::Delete { key } => exec.target_unless_reserved(key, Act::Delete, false),
        Command::Touch { key, .. } => exec.target(key, Act::Set),
        Command::Arith(arith) => exec.target_unless_reserved(arith.key, Act::Set, arith.decrement),
        Command::Flush { .. } if exec.live.settings.flush_enabled => exec.target_all(),
        _ => Target::Plain,
    }
}

/// Whether a meta get may change the item: by touching, by making it, by winning.
fn get_changes(get: &Meta<'_>) -> bool {
    b"TNRE".iter().any(|&letter| get.flags.has(letter))
}

/// Whether a meta command has no flags but those of `known` and those that mean nothing to a backend.
fn says_only(verb: MetaVerb, meta: &Meta<'_>, known: &[u8]) -> bool {
    meta.flags.tokens().all(|token| known.contains(&token[0]) || is_ours(verb, token[0]))
}

/// Flags that concern the client's connection, or nothing. `L` carries the tags of a set, for servers that know them.
fn is_ours(verb: MetaVerb, letter: u8) -> bool {
    matches!(letter, b'q' | b'k' | b'O' | b'b' | b'P') || letter == b'L' && verb != MetaVerb::Set
}

/// The meta command as it is handed on.
fn handed_on(verb: MetaVerb, meta: &Meta<'_>, key: &[u8], value: Bytes) -> Op {
    let mut tokens: Vec<&[u8]> = meta.flags.tokens().filter(|token| !is_ours(verb, token[0])).collect();
    if verb == MetaVerb::Get && !meta.flags.has(b'c') {
        // Whether a win that is kept is this version's. The client is shown what it asked for.
        tokens.push(b"c");
    }
    Op::Meta(backend::Meta { verb, key: key.into(), flags: tokens.join(&b' ').into(), value })
}

/// Answers a retrieval of one key by the copy that is here, if there is one to be served.
pub(crate) fn text_copy(exec: &mut Exec<'_>, key: &[u8], lookup: Lookup) -> bool {
    let pool = exec.pool_of(key);
    let Some(tier) = exec.live.tiers.of(pool).filter(|tier| tier.serves_copies() && lookup.touch.is_none()) else {
        return false;
    };
    let found = match exec.handles[pool].get(key, exec.now) {
        Some(copy) if tier.is_fresh(&copy, exec.now) => {
            text_get::push(exec.out, exec.live, key, &copy, lookup);
            copy.value_bytes()
        }
        _ => return false,
    };
    served(exec, tier, key, found);
    true
}

/// The same for `mg`.
pub(crate) fn meta_copy(exec: &mut Exec<'_>, get: &Meta<'_>) -> bool {
    let mut scratch = KEY_SCRATCH;
    let key = get.key(&mut scratch);
    let pool = exec.pool_of(key);
    let Some(tier) = exec.live.tiers.of(pool).filter(|tier| tier.serves_copies() && is_plain_get(get)) else {
        return false;
    };
    let found = match exec.handles[pool].get(key, exec.now) {
        Some(copy) if tier.is_fresh(&copy, exec.now) => {
            meta_exec::push_copy(exec.out, get, &copy, exec.now, exec.live.settings.cas_enabled);
            copy.value_bytes()
        }
        _ => return false,
    };
    served(exec, tier, key, found);
    true
}

/// The same for the binary protocol.
pub(crate) fn binary_copy(exec: &mut Exec<'_>, request: &binary::Request<'_>) -> bool {
    let Command::Get(get) = &request.command else { return false };
    let pool = exec.pool_of(get.key);
    let Some(tier) = exec.live.tiers.of(pool).filter(|tier| tier.serves_copies() && get.touch.is_none()) else {
        return false;
    };
    let found = match exec.handles[pool].get(get.key, exec.now) {
        Some(copy) if tier.is_fresh(&copy, exec.now) => {
            binary_exec::found(exec.out, exec.live, request, get, &copy);
            copy.value_bytes()
        }
        _ => return false,
    };
    served(exec, tier, get.key, found);
    true
}

fn served(exec: &Exec<'_>, tier: &Tier, key: &[u8], value_bytes: usize) {
    exec.count(tier.pool, PoolCounter::GetCommands);
    exec.count(tier.pool, PoolCounter::GetHits);
    tier.count(exec.worker, TierCounter::LocalHits, 1);
    if exec.observed {
        exec.observe_get(tier.pool, key, Some(value_bytes));
    }
}

/// Begins a retrieval of `keys` that sets their expiry time; `ends` is what their command ends with, where they are the
/// last.
pub(crate) fn start_touches(
    exec: &mut Exec<'_>,
    keys: Vec<Key>,
    with_cas: bool,
    exptime: i64,
    ends: Option<&'static [u8]>,
) -> Later<Answer> {
    let touched: Vec<_> = keys.iter().map(|key| get_and_touch(exec, key, exptime)).collect();
    let front = Front::Items { keys, with_cas, touches: true, ends };
    Box::pin(async move { Answer { front, got: Got::Fetched(join_all(touched).await) } })
}

/// Whether `key` writes a range of its backend's keys.
pub(crate) fn is_range(exec: &Exec<'_>, key: &[u8]) -> bool {
    key.starts_with(b"@")
        && exec.tier_of(key).is_some_and(|tier| {
            !matches!(tier.policy(Act::Get), Policy::Memory | Policy::Disabled) && tier.backend.has_range(key)
        })
}

/// Begins the retrieval of a range, if `key` is one. It stands for the items in it, which are read from the backend and leave
/// no copies.
pub(crate) fn start_range(
    exec: &Exec<'_>,
    key: &[u8],
    with_cas: bool,
    ends: Option<&'static [u8]>,
) -> Option<Later<Answer>> {
    let tier = exec.tier_of(key).filter(|_| is_range(exec, key))?;
    let (ranged, key, live) = (tier.backend.range(exec.worker, key), Key::from(key), exec.keep_live());
    Some(Box::pin(async move {
        let (keys, fetched): (Vec<Key>, Vec<Fetched>) = match ranged.await {
            Ok(items) => items.into_iter().map(|(key, item)| (key, Ok(Some(item)))).unzip(),
            Err(refusal) => (vec![key], vec![Err(refusal)]),
        };
        drop(live);
        Answer { front: Front::Items { keys, with_cas, touches: false, ends }, got: Got::Fetched(fetched) }
    }))
}

/// `get @@NAME`: chooses the table of the connection. The answer, if that is what was asked.
pub(crate) fn choose_table(exec: &mut Exec<'_>, request: &Request<'_>) -> Option<Vec<u8>> {
    let Request::Get(get) = request else { return None };
    let mut keys = get.keys.iter();
    let name = keys.next().filter(|key| key.starts_with(b"@@"))?;
    if keys.next().is_some() || get.touch.is_some() || !exec.can_wait {
        return None;
    }
    exec.choose_table(name)
}

fn get_and_touch(exec: &mut Exec<'_>, key: &[u8], exptime: i64) -> Later<Fetched> {
    let pool = exec.pool_of(key);
    let Some(tier) = exec.live.tiers.of(pool).filter(|tier| tier.policy(Act::Set) != Policy::Memory) else {
        let expiry = exec.shared.clock.expiry(exptime);
        let found = exec.handles[pool].get_and_touch(key, expiry, exec.now).map(|hit| crate::tier::item_of(&hit));
        return Box::pin(std::future::ready(Ok(found)));
    };
    let done = write::begin(exec, tier, Op::GetAndTouch { key: key.into(), exptime });
    Box::pin(async move { fetched_of(done.await) })
}

fn fetched_of(done: Done) -> Fetched {
    match done? {
        Outcome::Item(item) => Ok(Some(item)),
        _ => Ok(None),
    }
}

/// Begins any other text request, of which `front` is the line and `value` what follows it.
pub(crate) fn start_text(
    exec: &mut Exec<'_>,
    request: &Request<'_>,
    front: &[u8],
    value: Bytes,
) -> Option<Later<Answer>> {
    let mut scratch = KEY_SCRATCH;
    if let Some((what, by)) = text_forgets(exec, request, &mut scratch) {
        return Some(start_forget(exec, Front::Text(front.into()), what, by));
    }
    let (key, op) = match request {
        Request::Store(store) => (store.key, text_store_op(store, value)),
        Request::Delete(delete) => (delete.key, Op::Delete { key: delete.key.into(), compare: None }),
        Request::Arith(arith) => {
            let (decrement, delta) = (arith.decrement, arith.delta);
            let key = arith.key.into();
            (arith.key, Op::Arith(backend::Arith { key, decrement, delta, initial: None, compare: None }))
        }
        Request::Touch(touch) => (touch.key, Op::Touch { key: touch.key.into(), exptime: i64::from(touch.exptime) }),
        Request::MetaGet(get) => {
            let key = get.key(&mut scratch);
            (key, handed_on(MetaVerb::Get, get, key, value))
        }
        Request::MetaSet(set) => {
            let key = set.meta.key(&mut scratch);
            (key, meta_set_op(set, key, value))
        }
        Request::MetaDelete(delete) => {
            let key = delete.key(&mut scratch);
            let op = if says_only(MetaVerb::Delete, delete, b"C") {
                Op::Delete { key: key.into(), compare: delete.flags.compare() }
            } else {
                handed_on(MetaVerb::Delete, delete, key, value)
            };
            (key, op)
        }
        Request::MetaArith(arith) => {
            let meta = &arith.meta;
            let key = meta.key(&mut scratch);
            let op = if says_only(MetaVerb::Arith, meta, b"NJDMCcv") {
                Op::Arith(backend::Arith {
                    key: key.into(),
                    decrement: arith.decrement,
                    delta: arith.delta,
                    initial: meta.flags.vivify().map(|exptime| (arith.initial, i64::from(exptime))),
                    compare: meta.flags.compare(),
                })
            } else {
                handed_on(MetaVerb::Arith, meta, key, value)
            };
            (key, op)
        }
        Request::MetaDebug(debug) => {
            let key = debug.key(&mut scratch);
            let meta = backend::Meta { verb: MetaVerb::Debug, key: key.into(), flags: Box::default(), value };
            (key, Op::Meta(meta))
        }
        Request::FlushAll(ascii::FlushAll { delay: Ok(delay), .. }) => {
            return Some(start_flush(exec, Front::Text(front.into()), i64::from(*delay)));
        }
        _ => return None,
    };
    let tier = exec.live.tiers.of(exec.pool_of(key))?;
    let changes =
        !matches!(request, Request::MetaDebug(_)) && !matches!(request, Request::MetaGet(get) if !get_changes(get));
    Some(start_op(exec, tier, Front::Text(front.into()), op, changes))
}

/// Begins a binary request, of which `front` is header, extras and key, and `value` what follows them.
pub(crate) fn start_binary(
    exec: &mut Exec<'_>,
    request: &binary::Request<'_>,
    front: &[u8],
    value: Bytes,
) -> Option<Later<Answer>> {
    let compare = (request.header.cas != 0).then_some(request.header.cas);
    let front = Front::Binary(front.into());
    let forgets = match request.command {
        Command::Delete { key } => exec.forgets(key, false).map(|what| (what, By::Delete("delete"))),
        Command::Arith(arith) => exec.forgets(arith.key, arith.decrement).map(|what| (what, By::Count)),
        _ => None,
    };
    if let Some((what, by)) = forgets {
        return Some(start_forget(exec, front, what, by));
    }
    let (key, op) = match request.command {
        Command::Get(get) => {
            let fetched = get_and_touch(exec, get.key, i64::from(get.touch?));
            return Some(Box::pin(async move { Answer { front, got: Got::Fetched(vec![fetched.await]) } }));
        }
        Command::Touch { key, exptime } => {
            // The answer shows the client's flags.
            let fetched = get_and_touch(exec, key, i64::from(exptime));
            return Some(Box::pin(async move { Answer { front, got: Got::Fetched(vec![fetched.await]) } }));
        }
        Command::Store(store) => {
            let plan = binary_exec::mode(&store, compare.is_some());
            let (flags, exptime) = (store.flags, i64::from(store.exptime));
            let key = store.key.into();
            (store.key, Op::Store(backend::Store { key, mode: plan, compare, flags, exptime, value }))
        }
        Command::Delete { key } => (key, Op::Delete { key: key.into(), compare }),
        Command::Arith(arith) => {
            let initial = arith.initial.map(|(value, exptime)| (value, i64::from(exptime)));
            let (decrement, delta) = (arith.decrement, arith.delta);
            (arith.key, Op::Arith(backend::Arith { key: arith.key.into(), decrement, delta, initial, compare }))
        }
        Command::Flush { delay } => return Some(start_flush(exec, front, i64::from(delay))),
        _ => return None,
    };
    let tier = exec.live.tiers.of(exec.pool_of(key))?;
    Some(start_op(exec, tier, front, op, true))
}

fn start_op(exec: &mut Exec<'_>, tier: &Arc<Tier>, front: Front, op: Op, changes: bool) -> Later<Answer> {
    let done = if changes { write::begin(exec, tier, op) } else { write::ask(exec, tier, op) };
    Box::pin(async move { Answer { front, got: Got::Done(done.await) } })
}

/// A value that is larger than the pool takes is not handed on. As memcached does, what it was to replace goes.
pub(crate) fn start_refused(exec: &mut Exec<'_>, key: &[u8], front: Front, replaces: bool) -> Option<Later<Answer>> {
    let tier = exec.live.tiers.of(exec.pool_of(key))?;
    let got = Got::Done(Ok(Outcome::TooLarge));
    if !replaces {
        return Some(Box::pin(std::future::ready(Answer { front, got })));
    }
    let done = write::begin(exec, tier, Op::Delete { key: key.into(), compare: None });
    Some(Box::pin(async move {
        let got = match done.await {
            Err(refusal) => Got::Done(Err(refusal)),
            Ok(_) => got,
        };
        Answer { front, got }
    }))
}

/// By which command something is forgotten.
#[derive(Clone, Copy)]
enum By {
    Forget,
    /// What watchers are told that it is.
    Delete(&'static str),
    Count,
}

/// What a text request is to forget, if it is.
fn text_forgets<'k>(exec: &Exec<'_>, request: &Request<'k>, scratch: &'k mut KeyScratch) -> Option<(Forget<'k>, By)> {
    match request {
        Request::Forget { what, .. } => Some((*what, By::Forget)),
        Request::Delete(delete) => exec.forgets(delete.key, false).map(|what| (what, By::Delete("delete"))),
        Request::Arith(arith) => exec.forgets(arith.key, arith.decrement).map(|what| (what, By::Count)),
        Request::MetaDelete(delete) => exec.forgets(delete.key(scratch), false).map(|what| (what, By::Delete("md"))),
        Request::MetaArith(arith) => {
            exec.forgets(arith.meta.key(scratch), arith.decrement).map(|what| (what, By::Count))
        }
        _ => None,
    }
}

/// Forgets in every pool that can be reached, and behind it. The number that a count is answered is this server's: it rises
/// with what is forgotten through here.
fn start_forget(exec: &mut Exec<'_>, front: Front, what: Forget<'_>, by: By) -> Later<Answer> {
    let command = match by {
        By::Forget => "forget",
        By::Delete(command) => command,
        By::Count => "incr",
    };
    let number = match forget(exec, what, command) {
        Ok(number) => number,
        Err(error) => {
            let answer = match by {
                By::Forget => Answer { front, got: Got::Refused(error) },
                By::Delete(_) | By::Count => Answer { front, got: Got::Done(Ok(Outcome::NotFound)) },
            };
            return Box::pin(std::future::ready(answer));
        }
    };
    let live = exec.keep_live();
    let mut dones: Vec<Later<Done>> = Vec::new();
    for pool in live.routes.reachable(exec.own_pool) {
        if let Some(tier) = live.tiers.of(pool) {
            dones.push(write::forget(exec, tier, what));
        }
    }
    let outcome = match by {
        By::Forget | By::Delete(_) => Outcome::Forgotten,
        By::Count => Outcome::Number { value: number, cas: None },
    };
    Box::pin(async move {
        let all: Result<Vec<Outcome>, Refusal> = join_all(dones).await.into_iter().collect();
        Answer { front, got: Got::Done(all.map(|_| outcome)) }
    })
}

/// Flushes every pool that can be reached, each backend once.
fn start_flush(exec: &mut Exec<'_>, front: Front, delay: i64) -> Later<Answer> {
    // Counted, and what has no backend flushed.
    let _ = admin::flush(exec, delay);
    let live = exec.keep_live();
    let mut dones: Vec<Later<Done>> = Vec::new();
    for pool in live.routes.flushed(exec.own_pool) {
        if let Some(tier) = live.tiers.of(pool) {
            dones.push(write::flush(exec, tier, delay));
        }
    }
    Box::pin(async move {
        let all: Result<Vec<Outcome>, Refusal> = join_all(dones).await.into_iter().collect();
        Answer { front, got: Got::Done(all.map(|_| Outcome::Flushed)) }
    })
}

fn text_store_op(store: &ascii::Store<'_>, value: Bytes) -> Op {
    let (mode, compare) = text_store::mode(store);
    Op::Store(backend::Store {
        key: store.key.into(),
        mode,
        compare,
        flags: store.flags,
        exptime: i64::from(store.exptime),
        value,
    })
}

fn meta_set_op(set: &MetaSet<'_>, key: &[u8], value: Bytes) -> Op {
    let flags = &set.meta.flags;
    let extends = matches!(set.mode, MetaMode::Append | MetaMode::Prepend);
    if !says_only(MetaVerb::Set, &set.meta, b"TFCcsM") || extends && flags.has(b's') {
        return handed_on(MetaVerb::Set, &set.meta, key, value);
    }
    let (mode, compare) = meta_exec::mode(set);
    let exptime = flags.ttl().map_or(0, i64::from);
    Op::Store(backend::Store { key: key.into(), mode, compare, flags: flags.client_flags(), exptime, value })
}

/// Whether an `mg` asks for nothing but what a copy can show.
pub(crate) fn is_plain_get(get: &Meta<'_>) -> bool {
    says_only(MetaVerb::Get, get, b"vfcs")
}

/// Whether a storage command would leave an older value behind when its own is refused.
pub(crate) fn replaces(request: &Request<'_>) -> bool {
    match request {
        Request::Store(store) => store.verb == Verb::Set,
        Request::MetaSet(_) => true,
        _ => false,
    }
}

/// What an outcome of a storage command is called in the store.
pub(crate) fn set_outcome(outcome: &Outcome) -> Option<SetOutcome> {
    Some(match outcome {
        Outcome::Stored { cas } => SetOutcome::Stored { cas: cas.unwrap_or(0) },
        Outcome::NotStored => SetOutcome::NotStored,
        Outcome::Exists => SetOutcome::Exists,
        Outcome::NotFound => SetOutcome::NotFound,
        Outcome::TooLarge => SetOutcome::TooLarge,
        Outcome::NoMemory => SetOutcome::NoMemory,
        _ => return None,
    })
}

/// Whether a storage command stores over whatever there is, for `binary` requests.
pub(crate) fn binary_replaces(mode: SetMode) -> bool {
    mode == SetMode::Set
}
