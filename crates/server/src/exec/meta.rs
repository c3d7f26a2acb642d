//! Meta commands: `mg`, `ms`, `md`, `ma`, `me`.

use nuthatch_proto::WireError;
use nuthatch_proto::forget;
use nuthatch_proto::meta::reply::{self, Code, Item, Recache};
use nuthatch_proto::meta::{KEY_SCRATCH, Meta, MetaArith, MetaDebug, MetaSet, SetMode as MetaMode};
use nuthatch_store::{
    ArithOptions, ArithOutcome, DeleteOptions, DeleteOutcome, Hit, MetaGet, MetaGetOutcome, NEVER, Seconds, SetMode,
    SetOutcome,
};

use super::text_modify::{arith_key, delete_key};
use super::text_store::Plan;
use super::{CLASS, Exec};
use crate::conn::Output;
use crate::counters::ListenerCounter;

/// `mg`.
#[inline]
pub(crate) fn get(exec: &mut Exec<'_>, meta: &Meta<'_>) {
    let mut scratch = KEY_SCRATCH;
    let key = meta.key(&mut scratch);
    let pool = exec.pool_of(key);
    let clock = &exec.shared.clock;
    let expiry = |exptime: i32| clock.expiry(i64::from(exptime));
    let made = Made::by(meta, expiry);
    let old_expiry = old_expiry(exec, pool, key, meta);
    let options = MetaGet {
        touch: meta.flags.ttl().map(expiry),
        vivify: meta.flags.vivify().map(|_| made.expiry),
        recache_below: meta.flags.recache().and_then(|exptime| seconds_from_now(expiry(exptime), exec.now)),
        recache_after_touch: meta.flags.has(b'R')
            && meta.flags.tokens().find(|token| matches!(token[0], b'R' | b'T')).is_some_and(|token| token[0] == b'T'),
        no_bump: meta.flags.has(b'u'),
        cas: meta.flags.new_cas(),
    };
    let MetaGetOutcome { hit, won, token_already_sent, stale, created, .. } =
        exec.handles[pool].meta_get(key, &options, exec.now);
    let recache = Recache { token_already_sent, stale, won };
    let found = hit.map(|hit| {
        let shown_expiry = if created { made.shown } else { old_expiry.unwrap_or_else(|| hit.expiry()) };
        // One that this request made was read by nobody before.
        let fetched = !created && hit.fetched_before();
        let shown = Shown { ttl_seconds: ttl_seconds(shown_expiry, exec.now), fetched, now: exec.now };
        push_hit(exec.out, meta, &hit, recache, &shown, exec.live.settings.cas_enabled);
        hit.value_bytes()
    });
    if created && made.expiry <= exec.now {
        // Made for this answer alone.
        exec.handles[pool].delete(key, &DeleteOptions::default(), exec.now);
    }
    match found {
        Some(_) if options.touch.is_some() => exec.count_touch(pool, true),
        Some(_) => exec.count_get(pool, true),
        None => {
            if !reply::quiet(meta, Code::En) {
                reply::miss(&mut exec.out.bytes, meta);
            }
            exec.count_get(pool, false);
        }
    }
    if exec.observed {
        exec.observe_get(pool, key, found);
    }
}

/// Answers an `mg` that asks for nothing but what a local copy can show.
pub(crate) fn push_copy(out: &mut Output, meta: &Meta<'_>, copy: &Hit<'_>, now: Seconds, cas_enabled: bool) {
    let shown = Shown { ttl_seconds: None, fetched: true, now };
    push_hit(out, meta, copy, Recache::default(), &shown, cas_enabled);
}

#[inline]
fn push_hit(out: &mut Output, meta: &Meta<'_>, hit: &Hit<'_>, recache: Recache, shown: &Shown, cas_enabled: bool) {
    let wants_cas = meta.flags.has(b'c') || meta.flags.compare().is_some();
    let item = Item {
        flags: hit.flags(),
        value_bytes: hit.value_bytes(),
        cas: if wants_cas && cas_enabled { hit.cas() } else { 0 },
        ttl_seconds: shown.ttl_seconds,
        idle_seconds: shown.now.saturating_sub(hit.last_access()),
        fetched: shown.fetched,
    };
    let begin = out.bytes.len();
    reply::hit(&mut out.bytes, meta, &item, recache);
    if meta.flags.has(b'v') {
        if wants_cas && meta.flags.compare() == Some(item.cas) {
            // The client has this very value already: it is told so, and not sent it again.
            let digits = out.bytes[begin + 3..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            out.bytes.splice(begin..begin + 3 + digits, *Code::Hd.as_wire());
        } else {
            Exec::push_value(out, hit);
            out.bytes.extend_from_slice(nuthatch_proto::ascii::reply::CRLF);
        }
    }
}

/// What an answer shows that is not simply the item's.
struct Shown {
    ttl_seconds: Option<u32>,
    fetched: bool,
    now: Seconds,
}

/// An item made by `mg` or `ma` with `N`. memcached carries out the flags in the order they were sent: `T` and `N` set
/// the expiry, the later one wins, and `t` shows what is set by then.
struct Made {
    shown: Seconds,
    expiry: Seconds,
}

impl Made {
    #[inline]
    fn by(meta: &Meta<'_>, expiry: impl Fn(i32) -> Seconds) -> Made {
        let mut made = Made { shown: NEVER, expiry: NEVER };
        if meta.flags.vivify().is_some() {
            for token in meta.flags.tokens() {
                match token[0] {
                    b'N' => made.expiry = meta.flags.vivify().map_or(NEVER, &expiry),
                    b'T' => made.expiry = meta.flags.ttl().map_or(NEVER, &expiry),
                    b't' => made.shown = made.expiry,
                    _ => {}
                }
            }
        }
        made
    }
}

/// The expiry that an item has before `T` changes it, when `t` stands before `T` and so shows that one.
#[inline]
fn old_expiry(exec: &mut Exec<'_>, pool: usize, key: &[u8], meta: &Meta<'_>) -> Option<Seconds> {
    if !meta.flags.has(b't') || !meta.flags.has(b'T') {
        return None;
    }
    let first = meta.flags.tokens().find(|token| matches!(token[0], b't' | b'T'))?;
    if first[0] == b'T' {
        return None;
    }
    exec.handles[pool].peek(key, exec.now).map(|hit| hit.expiry())
}

/// How `ms` stores, and what it compares.
pub(crate) fn mode(set: &MetaSet<'_>) -> (SetMode, Option<u64>) {
    let compare = set.meta.flags.compare();
    match set.mode {
        // A set or replace that compares is memcached's cas.
        MetaMode::Set | MetaMode::Replace if compare.is_some() => (SetMode::Set, compare),
        MetaMode::Set => (SetMode::Set, None),
        MetaMode::Replace => (SetMode::Replace, None),
        MetaMode::Add => (SetMode::Add, None),
        MetaMode::Append => (SetMode::Append, compare),
        MetaMode::Prepend => (SetMode::Prepend, compare),
    }
}

/// The plan of `ms`. Its key is `meta.key()`.
pub(crate) fn plan(exec: &Exec<'_>, set: &MetaSet<'_>, key: &[u8]) -> Plan {
    let flags = &set.meta.flags;
    let expiry = |exptime: Option<i32>| exptime.map_or(NEVER, |exptime| exec.shared.clock.expiry(i64::from(exptime)));
    let (mode, compare) = mode(set);
    let mut plan = Plan::new(exec, key, mode, compare);
    plan.options.flags = flags.client_flags();
    plan.options.expiry = expiry(flags.ttl());
    plan.options.cas = flags.new_cas();
    plan.options.invalidate = flags.has(b'I') && mode == SetMode::Set && compare.is_some();
    plan.options.want_cas = flags.has(b'c');
    if flags.has(b'L') {
        // What the codec let through fits, and of tags that did not an item would have none.
        plan.tags = exec.handles[plan.pool].store().tags(forget::tags(flags)).ok().map(Box::new);
    }
    if matches!(mode, SetMode::Append | SetMode::Prepend) {
        plan.options.vivify = flags.vivify().map(|exptime| expiry(Some(exptime)));
    }
    plan
}

/// Answers `ms`.
pub(crate) fn stored(exec: &mut Exec<'_>, set: &MetaSet<'_>, key: &[u8], plan: &Plan, outcome: SetOutcome) {
    let meta = &set.meta;
    let mut item = Item { value_bytes: set.value_bytes as usize, ..Item::default() };
    let Some(code) = stored_code(outcome) else {
        // Whatever the mode, as in memcached: the client's idea of the value must not live on in an older one.
        exec.handles[plan.pool].refuse_set(key, exec.now);
        exec.out.bytes.extend_from_slice(super::text_store::answer(outcome));
        return;
    };
    if let SetOutcome::Stored { cas } = outcome {
        item.cas = if exec.live.settings.cas_enabled { cas } else { 0 };
        if meta.flags.has(b's') && matches!(plan.options.mode, SetMode::Append | SetMode::Prepend) {
            // The size after appending. Another client may have changed it again by now; then it is that size.
            let hit = exec.handles[plan.pool].peek(key, exec.now);
            item.value_bytes = hit.map_or(item.value_bytes, |hit| hit.value_bytes());
        }
    }
    if !reply::quiet(meta, code) {
        reply::stored(&mut exec.out.bytes, meta, code, &item);
    }
}

/// The code for what became of `ms`; `None` where the answer is an error.
pub(crate) fn stored_code(outcome: SetOutcome) -> Option<Code> {
    match outcome {
        SetOutcome::Stored { .. } => Some(Code::Hd),
        SetOutcome::NotStored => Some(Code::Ns),
        SetOutcome::Exists => Some(Code::Ex),
        SetOutcome::NotFound => Some(Code::Nf),
        SetOutcome::NoMemory | SetOutcome::TooLarge => None,
    }
}

/// `md`.
pub(crate) fn delete(exec: &mut Exec<'_>, meta: &Meta<'_>) {
    let mut scratch = KEY_SCRATCH;
    let key = meta.key(&mut scratch);
    let options = DeleteOptions {
        compare: meta.flags.compare(),
        cas: meta.flags.new_cas(),
        invalidate: meta.flags.has(b'I'),
        // An item without its value is a new one to memcached: it lives for ever unless told otherwise.
        expiry: match meta.flags.ttl() {
            Some(exptime) => Some(exec.shared.clock.expiry(i64::from(exptime))),
            None => meta.flags.has(b'x').then_some(NEVER),
        },
        drop_value: meta.flags.has(b'x'),
    };
    let outcome = delete_key(exec, key, &options, "md");
    deleted(exec.out, meta, outcome);
}

/// Answers `md`.
pub(crate) fn deleted(out: &mut Output, meta: &Meta<'_>, outcome: DeleteOutcome) {
    let code = match outcome {
        DeleteOutcome::Deleted => Code::Hd,
        DeleteOutcome::NotFound => Code::Nf,
        DeleteOutcome::Exists => Code::Ex,
        DeleteOutcome::NoMemory => {
            out.bytes.extend_from_slice(WireError::OutOfMemory.as_wire());
            return;
        }
    };
    if !reply::quiet(meta, code) {
        reply::status(&mut out.bytes, meta, code);
    }
}

/// `ma`.
pub(crate) fn arith(exec: &mut Exec<'_>, request: &MetaArith<'_>) {
    let meta = &request.meta;
    let mut scratch = KEY_SCRATCH;
    let key = meta.key(&mut scratch);
    let clock = &exec.shared.clock;
    let expiry = |exptime: i32| clock.expiry(i64::from(exptime));
    let made = Made::by(meta, expiry);
    let pool = exec.pool_of(key);
    let old_expiry = old_expiry(exec, pool, key, meta);
    let options = ArithOptions {
        decrement: request.decrement,
        delta: request.delta,
        initial: meta.flags.vivify().map(|_| (request.initial, made.expiry)),
        compare: meta.flags.compare(),
        cas: meta.flags.new_cas(),
        touch: meta.flags.ttl().map(expiry),
        want_cas: meta.flags.has(b'c'),
    };
    let outcome = arith_key(exec, key, &options);
    let ttl_seconds = match outcome {
        ArithOutcome::Value { expiry, created, .. } => {
            ttl_seconds(if created { made.shown } else { old_expiry.unwrap_or(expiry) }, exec.now)
        }
        _ => None,
    };
    counted(exec.out, meta, outcome, ttl_seconds, exec.live.settings.cas_enabled);
}

/// Answers `ma`.
pub(crate) fn counted(
    out: &mut Output,
    meta: &Meta<'_>,
    outcome: ArithOutcome,
    ttl_seconds: Option<u32>,
    cas_enabled: bool,
) {
    let error = match outcome {
        ArithOutcome::Value { value, cas, .. } => {
            let item = Item { cas: if cas_enabled { cas } else { 0 }, ttl_seconds, ..Item::default() };
            if !reply::quiet(meta, Code::Hd) {
                reply::counted(&mut out.bytes, meta, value, &item);
            }
            return;
        }
        ArithOutcome::NotFound => return reply::status(&mut out.bytes, meta, Code::Nf),
        ArithOutcome::Exists => return reply::status(&mut out.bytes, meta, Code::Ex),
        ArithOutcome::NonNumeric => WireError::NonNumeric,
        ArithOutcome::NoMemory => WireError::OutOfMemory,
    };
    out.bytes.extend_from_slice(error.as_wire());
}

/// `me`.
pub(crate) fn debug(exec: &mut Exec<'_>, request: &MetaDebug<'_>) {
    exec.count_here(ListenerCounter::MetaCommands);
    let mut scratch = KEY_SCRATCH;
    let key = request.key(&mut scratch);
    let pool = exec.pool_of(key);
    match exec.handles[pool].peek(key, exec.now) {
        None => exec.out.bytes.extend_from_slice(reply::DEBUG_MISS),
        Some(hit) => {
            let item = reply::Debug {
                ttl_seconds: ttl_seconds(hit.expiry(), exec.now),
                idle_seconds: exec.now.saturating_sub(hit.last_access()),
                cas: Exec::shown_cas(exec.live, &hit),
                fetched: hit.fetched_before(),
                class: CLASS,
                stored_bytes: hit.stored_bytes(),
            };
            reply::debug(&mut exec.out.bytes, request, &item);
        }
    }
}

/// Seconds left to live, `None` for ever.
#[inline]
fn ttl_seconds(expiry: Seconds, now: Seconds) -> Option<u32> {
    if expiry == NEVER { None } else { Some(expiry.saturating_sub(now)) }
}

/// `R0` asks for nothing, as an exptime of 0 stands for never.
fn seconds_from_now(expiry: Seconds, now: Seconds) -> Option<Seconds> {
    if expiry == NEVER { None } else { Some(expiry.saturating_sub(now)) }
}
