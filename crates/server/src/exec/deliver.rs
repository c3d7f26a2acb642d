//! Answers of pools that have a backend, once they have come: from what was asked and what came of it to bytes.
//!
//! A request is kept as the bytes it came in and decoded a second time here, so that each protocol's answer is made in
//! one way from one thing. Requests are counted here, as it is known how they ended.

use nuthatch_proto::WireError;
use nuthatch_proto::ascii::{self, Parsed, Request, reply};
use nuthatch_proto::binary::{self, Command, Status};
use nuthatch_proto::meta::reply::{self as meta_reply, Code};
use nuthatch_proto::meta::{KEY_SCRATCH, Meta, MetaSet};
use nuthatch_store::{ArithOutcome, DeleteOutcome, NEVER, SetOutcome};
use smallvec::SmallVec;

use super::tiered::set_outcome;
use super::{Exec, StoreEvent, binary as binary_exec, command_name, meta as meta_exec, text_modify, text_store};
use crate::backend::inbox::Shown;
use crate::backend::{Done, Fetched, Item, Key, MetaAnswer, Outcome, Refusal};
use crate::conn::Output;
use crate::counters::PoolCounter;

/// What was asked and what came of it.
pub(crate) struct Answer {
    pub(crate) front: Front,
    pub(crate) got: Got,
}

/// What was asked, as far as its answer needs it.
pub(crate) enum Front {
    /// Keys of a text retrieval that sets their expiry time, or those in a range.
    Items {
        keys: Vec<Key>,
        with_cas: bool,
        touches: bool,
        /// What their command ends with, where they are the last.
        ends: Option<&'static [u8]>,
    },
    /// The line of a text request.
    Text(Box<[u8]>),
    /// Header, extras and key of a binary one.
    Binary(Box<[u8]>),
}

/// What lookups were asked by.
pub(crate) enum Looked {
    /// Keys of a text retrieval.
    Keys {
        with_cas: bool,
        /// What their command ends with, where they are the last.
        ends: Option<&'static [u8]>,
    },
    /// The line of an `mg`.
    Meta(Asked),
    /// Header, extras and key of a binary get.
    Binary(Asked),
}

/// The bytes of one lookup's request: with a key of usual length they are kept where the lookup is, in no memory of their own.
type Asked = SmallVec<[u8; 64]>;

impl Looked {
    /// Memory it takes.
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Looked::Keys { .. } => 0,
            Looked::Meta(front) | Looked::Binary(front) => front.len(),
        }
    }
}

/// What came of it.
pub(crate) enum Got {
    Fetched(Vec<Fetched>),
    Done(Done),
    /// A protocol's own no.
    Refused(WireError),
}

impl Answer {
    /// Memory it takes.
    pub(crate) fn owned_bytes(&self) -> usize {
        let front = match &self.front {
            Front::Items { keys, .. } => keys.iter().map(|key| key.len()).sum(),
            Front::Text(bytes) | Front::Binary(bytes) => bytes.len(),
        };
        let of_item = |item: &Item| item.value.len() + size_of::<Item>();
        front
            + match &self.got {
                Got::Refused(_) => 0,
                Got::Fetched(all) => all.iter().flatten().flatten().map(of_item).sum(),
                Got::Done(Ok(Outcome::Item(item))) => of_item(item),
                Got::Done(Ok(Outcome::Meta(MetaAnswer { value: Some(value), .. }))) => value.len(),
                Got::Done(_) => 0,
            }
    }
}

/// How far the answers of one connection are delivered.
#[derive(Default)]
pub(crate) struct Delivery {
    /// Keys of the foremost answer that are done with.
    keys_done: usize,
    /// What the retrieval under way could not have: answered in place of `END`.
    failure: Option<Refusal>,
}

impl Delivery {
    /// Appends `answer` to the output: whether all of it. If not, the output is to be sent first.
    pub(crate) fn deliver(&mut self, exec: &mut Exec<'_>, answer: &Answer) -> bool {
        match (&answer.front, &answer.got) {
            (Front::Items { keys, with_cas, touches, ends }, Got::Fetched(fetched)) => {
                let rest = keys.iter().zip(fetched).skip(self.keys_done);
                for (key, fetched) in rest {
                    if exec.out.is_full() {
                        return false;
                    }
                    self.keys_done += 1;
                    let at = (exec.pool_of(key), &key[..]);
                    count_lookup(exec, at, fetched.as_ref().ok().and_then(Option::as_ref).map(bytes_of), *touches);
                    match fetched {
                        Ok(Some(item)) => push_text(exec, key, &item.into(), *with_cas),
                        Ok(None) => {}
                        Err(refusal) => self.failure = Some(refusal.clone()),
                    }
                }
                self.keys_done = 0;
                self.end_keys(exec, *ends);
            }
            (Front::Text(line), got) => {
                if let Parsed::Request { request, .. } = ascii::parse(line) {
                    text(exec, &request, got);
                }
            }
            (Front::Binary(front), got) => {
                if let binary::Parsed::Request(request) = binary::parse(front) {
                    answer_binary(exec, &request, got);
                }
            }
            (Front::Items { .. }, _) => {}
        }
        true
    }

    /// Appends the answer to one lookup in the pool of this number.
    #[inline]
    pub(crate) fn looked_up(
        &mut self,
        exec: &mut Exec<'_>,
        looked: &Looked,
        at: (usize, &[u8]),
        answer: Result<Option<Shown<'_>>, Refusal>,
    ) {
        count_lookup(exec, at, answer.as_ref().ok().and_then(Option::as_ref).map(|shown| shown.value.len()), false);
        match looked {
            Looked::Keys { with_cas, .. } => match answer {
                Ok(Some(shown)) => push_text(exec, at.1, &shown, *with_cas),
                Ok(None) => {}
                Err(refusal) => self.failure = Some(refusal),
            },
            Looked::Meta(line) => {
                if let Parsed::Request { request: Request::MetaGet(get), .. } = ascii::parse(line) {
                    meta_get(exec, &get, answer);
                }
            }
            Looked::Binary(front) => {
                if let binary::Parsed::Request(request) = binary::parse(front) {
                    binary_found(exec, &request, answer);
                }
            }
        }
    }

    /// Ends what [`Delivery::looked_up`] was called for.
    #[inline]
    pub(crate) fn end(&mut self, exec: &mut Exec<'_>, looked: &Looked) {
        if let Looked::Keys { ends, .. } = looked {
            self.end_keys(exec, *ends);
        }
    }

    fn end_keys(&mut self, exec: &mut Exec<'_>, ends: Option<&'static [u8]>) {
        if let Some(end) = ends {
            match self.failure.take() {
                None => exec.out.bytes.extend_from_slice(end),
                Some(refusal) => push_refusal(exec.out, &refusal),
            }
        }
    }
}

fn bytes_of(item: &Item) -> usize {
    item.value.len()
}

/// The line that a server behind a backend refused with, or `SERVER_ERROR` and a sentence.
pub(crate) fn push_refusal(out: &mut Output, refusal: &Refusal) {
    if let Some(line) = refusal.line() {
        out.bytes.extend_from_slice(line.as_bytes());
    } else {
        out.bytes.extend_from_slice(b"SERVER_ERROR ");
        out.bytes.extend_from_slice(refusal.sentence().as_bytes());
    }
    out.bytes.extend_from_slice(reply::CRLF);
}

/// Counts a lookup in a pool, and tells those who observe of it.
#[inline]
fn count_lookup(exec: &Exec<'_>, (pool, key): (usize, &[u8]), value_bytes: Option<usize>, touches: bool) {
    let is_hit = value_bytes.is_some();
    if touches {
        exec.count_touch(pool, is_hit);
    } else {
        exec.count(pool, PoolCounter::GetCommands);
        exec.count(pool, if is_hit { PoolCounter::GetHits } else { PoolCounter::GetMisses });
    }
    if exec.observed {
        exec.observe_get(pool, key, value_bytes);
    }
}

fn shown_cas(exec: &Exec<'_>, cas: Option<u64>) -> u64 {
    if exec.live.settings.cas_enabled { cas.unwrap_or(0) } else { 0 }
}

#[inline]
fn push_text(exec: &mut Exec<'_>, key: &[u8], shown: &Shown<'_>, with_cas: bool) {
    let cas = with_cas.then(|| shown_cas(exec, Some(shown.cas)));
    reply::value_header(&mut exec.out.bytes, key, shown.flags, shown.value.len(), cas);
    push_value(exec.out, shown);
    exec.out.bytes.extend_from_slice(reply::CRLF);
}

#[inline]
fn push_value(out: &mut Output, shown: &Shown<'_>) {
    match shown.shared {
        Some(value) => out.push_shared(value),
        None => out.bytes.extend_from_slice(shown.value),
    }
}

/// Answers a text request other than a retrieval.
fn text(exec: &mut Exec<'_>, request: &Request<'_>, got: &Got) {
    let mut scratch = KEY_SCRATCH;
    let done = match (request, got) {
        (Request::Forget { noreply, .. }, Got::Refused(error)) => {
            if !noreply {
                exec.out.bytes.extend_from_slice(error.as_wire());
            }
            return;
        }
        (_, Got::Done(done)) => done,
        _ => return,
    };
    let is_hushed = match request {
        Request::Store(store) => store.noreply,
        Request::Delete(delete) => delete.noreply,
        Request::Arith(arith) => arith.noreply,
        Request::Touch(touch) => touch.noreply,
        Request::FlushAll(flush) => flush.noreply,
        Request::Forget { noreply, .. } => *noreply,
        _ => false,
    };
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(refusal) if !is_hushed => return push_refusal(exec.out, refusal),
        Err(_) => return,
    };
    match (request, outcome) {
        (Request::Store(store), outcome) => {
            let Some(outcome) = set_outcome(outcome) else { return unexpected(exec) };
            let (mode, compare) = text_store::mode(store);
            let event = StoreEvent {
                command: command_name(mode, compare.is_some()),
                outcome,
                expiry: exec.shared.clock.expiry(i64::from(store.exptime)),
                value_bytes: store.value_bytes as usize,
            };
            note_stored(exec, store.key, &event, compare.is_some());
            if !store.noreply {
                exec.out.bytes.extend_from_slice(text_store::answer(outcome));
            }
        }
        (Request::Forget { noreply, .. }, Outcome::Forgotten) => {
            if !noreply {
                exec.out.bytes.extend_from_slice(reply::OK);
            }
        }
        (Request::Delete(delete), Outcome::Forgotten) => {
            text_modify::deleted(exec.out, delete, DeleteOutcome::Deleted);
        }
        (Request::MetaDelete(meta), Outcome::Forgotten) => meta_exec::deleted(exec.out, meta, DeleteOutcome::Deleted),
        (Request::Delete(delete), outcome) => {
            let Some(outcome) = delete_outcome(outcome) else { return unexpected(exec) };
            note_deleted(exec, delete.key, outcome, "delete");
            text_modify::deleted(exec.out, delete, outcome);
        }
        (Request::Arith(arith), outcome) => {
            let Some(outcome) = arith_outcome(outcome) else { return unexpected(exec) };
            note_counted(exec, arith.key, outcome, arith.decrement);
            text_modify::counted(exec.out, arith, outcome);
        }
        (Request::Touch(touch), Outcome::Touched | Outcome::NotFound) => {
            let found = *outcome == Outcome::Touched;
            exec.count_touch(exec.pool_of(touch.key), found);
            text_modify::touched(exec.out, touch, found);
        }
        (Request::FlushAll(flush), Outcome::Flushed) => {
            if !flush.noreply {
                exec.out.bytes.extend_from_slice(reply::OK);
            }
        }
        (Request::MetaSet(set), outcome) => meta_set(exec, set, outcome),
        (Request::MetaDelete(meta), Outcome::Meta(answer)) => push_meta(exec.out, meta, answer, b"Ok", b"HD"),
        (Request::MetaDelete(meta), outcome) => {
            let Some(outcome) = delete_outcome(outcome) else { return unexpected(exec) };
            note_deleted(exec, meta.key(&mut scratch), outcome, "md");
            meta_exec::deleted(exec.out, meta, outcome);
        }
        (Request::MetaArith(arith), Outcome::Meta(answer)) => {
            push_meta(exec.out, &arith.meta, answer, b"ctOk", b"HDVA");
        }
        (Request::MetaArith(arith), outcome) => {
            let Some(outcome) = arith_outcome(outcome) else { return unexpected(exec) };
            note_counted(exec, arith.meta.key(&mut scratch), outcome, arith.decrement);
            let cas_enabled = exec.live.settings.cas_enabled;
            meta_exec::counted(exec.out, &arith.meta, outcome, None, cas_enabled);
        }
        (Request::MetaGet(get), Outcome::Meta(answer)) => {
            let pool = exec.pool_of(get.key(&mut scratch));
            let is_hit = answer.code != *b"EN";
            if get.flags.has(b'T') && is_hit {
                exec.count_touch(pool, true);
            } else {
                exec.count(pool, PoolCounter::GetCommands);
                exec.count(pool, if is_hit { PoolCounter::GetHits } else { PoolCounter::GetMisses });
            }
            push_meta(exec.out, get, answer, b"stcflhOk", b"EN");
        }
        (Request::MetaDebug(debug), Outcome::Meta(answer)) => {
            if answer.code == *b"ME" {
                exec.out.bytes.extend_from_slice(b"ME ");
                exec.out.bytes.extend_from_slice(debug.key_token());
                exec.out.bytes.push(b' ');
                exec.out.bytes.extend_from_slice(&answer.flags);
                exec.out.bytes.extend_from_slice(reply::CRLF);
            } else {
                exec.out.bytes.extend_from_slice(meta_reply::DEBUG_MISS);
            }
        }
        _ => unexpected(exec),
    }
}

/// A backend that answers something else than what it was asked is not believed.
fn unexpected(exec: &mut Exec<'_>) {
    push_refusal(exec.out, &Refusal::no("the backend's answer does not belong to the request"));
}

fn meta_get(exec: &mut Exec<'_>, get: &Meta<'_>, answer: Result<Option<Shown<'_>>, Refusal>) {
    match answer {
        Err(refusal) => push_refusal(exec.out, &refusal),
        Ok(None) if meta_reply::quiet(get, Code::En) => {}
        Ok(None) => meta_reply::miss(&mut exec.out.bytes, get),
        Ok(Some(item)) => {
            let recache = meta_reply::Recache {
                token_already_sent: item.marks.sent,
                stale: item.marks.stale,
                won: item.marks.won,
            };
            let shown = meta_reply::Item {
                flags: item.flags,
                value_bytes: item.value.len(),
                cas: shown_cas(exec, Some(item.cas)),
                ..meta_reply::Item::default()
            };
            meta_reply::hit(&mut exec.out.bytes, get, &shown, recache);
            if get.flags.has(b'v') {
                push_value(exec.out, &item);
                exec.out.bytes.extend_from_slice(reply::CRLF);
            }
        }
    }
}

fn meta_set(exec: &mut Exec<'_>, set: &MetaSet<'_>, outcome: &Outcome) {
    let mut scratch = KEY_SCRATCH;
    let meta = &set.meta;
    if let Outcome::Meta(answer) = outcome {
        return push_meta(exec.out, meta, answer, b"Okcs", b"HD");
    }
    let Some(outcome) = set_outcome(outcome) else { return unexpected(exec) };
    let (mode, compare) = meta_exec::mode(set);
    let event = StoreEvent {
        command: command_name(mode, compare.is_some()),
        outcome,
        expiry: meta.flags.ttl().map_or(NEVER, |exptime| exec.shared.clock.expiry(i64::from(exptime))),
        value_bytes: set.value_bytes as usize,
    };
    note_stored(exec, meta.key(&mut scratch), &event, compare.is_some());
    let Some(code) = meta_exec::stored_code(outcome) else {
        exec.out.bytes.extend_from_slice(text_store::answer(outcome));
        return;
    };
    let cas = match outcome {
        SetOutcome::Stored { cas } => shown_cas(exec, Some(cas)),
        _ => 0,
    };
    let item = meta_reply::Item { value_bytes: set.value_bytes as usize, cas, ..meta_reply::Item::default() };
    if !meta_reply::quiet(meta, code) {
        meta_reply::stored(&mut exec.out.bytes, meta, code, &item);
    }
}

/// Appends what a backend answered to a meta command: its own flags in the order of the client's request, with the
/// client's key and opaque among them, and what it says of recaching. With `q`, codes in `hushed` are not answered.
fn push_meta(out: &mut Output, meta: &Meta<'_>, answer: &MetaAnswer, shown: &[u8], hushed: &[u8]) {
    if meta.flags.quiet() && hushed.chunks(2).any(|code| *code == answer.code) {
        return;
    }
    out.bytes.extend_from_slice(&answer.code);
    if let Some(value) = &answer.value {
        out.bytes.extend_from_slice(format!(" {}", value.len()).as_bytes());
    }
    let said = || answer.flags.split(|&byte| byte == b' ').filter(|token| !token.is_empty());
    for token in meta.flags.tokens().filter(|token| shown.contains(&token[0])) {
        let token = match token[0] {
            b'O' => token,
            b'k' => {
                out.bytes.extend_from_slice(b" k");
                out.bytes.extend_from_slice(meta.key_token());
                if meta.flags.has(b'b') {
                    out.bytes.extend_from_slice(b" b");
                }
                continue;
            }
            letter => match said().find(|said| said[0] == letter) {
                Some(said) => said,
                None => continue,
            },
        };
        out.bytes.push(b' ');
        out.bytes.extend_from_slice(token);
    }
    for token in said().filter(|token| matches!(token[0], b'W' | b'X' | b'Z')) {
        out.bytes.push(b' ');
        out.bytes.extend_from_slice(token);
    }
    out.bytes.extend_from_slice(reply::CRLF);
    if let Some(value) = &answer.value {
        out.push_shared(value);
        out.bytes.extend_from_slice(reply::CRLF);
    }
}

fn answer_binary(exec: &mut Exec<'_>, request: &binary::Request<'_>, got: &Got) {
    let header = &request.header;
    let refusal = match got {
        Got::Fetched(fetched) => {
            let Some(fetched) = fetched.first() else { return };
            let key = match &request.command {
                Command::Get(get) => get.key,
                Command::Touch { key, .. } => key,
                _ => return,
            };
            let shown = fetched.as_ref().map(|item| item.as_ref().map(Shown::from)).map_err(Refusal::clone);
            let value_bytes = shown.as_ref().ok().and_then(Option::as_ref).map(|shown| shown.value.len());
            count_lookup(exec, (exec.pool_of(key), key), value_bytes, true);
            return binary_found(exec, request, shown);
        }
        Got::Done(Err(refusal)) => refusal.clone(),
        Got::Done(Ok(outcome)) => match binary_done(exec, request, outcome) {
            Some(()) => return,
            None => Refusal::no("the backend's answer does not belong to the request"),
        },
        Got::Refused(_) => return,
    };
    binary_refused(exec, header, &refusal);
}

fn binary_refused(exec: &mut Exec<'_>, header: &binary::Header, refusal: &Refusal) {
    binary::reply::body(&mut exec.out.bytes, header, Status::TemporaryFailure, refusal.sentence().as_bytes());
}

fn binary_found(exec: &mut Exec<'_>, request: &binary::Request<'_>, answer: Result<Option<Shown<'_>>, Refusal>) {
    let (key, with_key, is_touch_only) = match &request.command {
        Command::Get(get) => (get.key, get.with_key, false),
        Command::Touch { key, .. } => (*key, false, true),
        _ => return,
    };
    let header = &request.header;
    let shown_key = if with_key { key } else { &[] };
    match answer {
        Err(refusal) => binary_refused(exec, header, &refusal),
        Ok(None) if request.quiet => {}
        Ok(None) => binary::reply::miss(&mut exec.out.bytes, header, shown_key),
        Ok(Some(item)) => {
            let cas = shown_cas(exec, Some(item.cas));
            if is_touch_only {
                binary::reply::touched(&mut exec.out.bytes, header, item.flags, cas);
            } else {
                let out = &mut exec.out.bytes;
                binary::reply::value_header(out, header, shown_key, item.flags, item.value.len(), cas);
                push_value(exec.out, &item);
            }
        }
    }
}

fn binary_done(exec: &mut Exec<'_>, request: &binary::Request<'_>, outcome: &Outcome) -> Option<()> {
    let compares = request.header.cas != 0;
    match &request.command {
        Command::Store(store) => {
            let outcome = match set_outcome(outcome)? {
                SetOutcome::Stored { cas } => SetOutcome::Stored { cas: shown_cas(exec, Some(cas)) },
                outcome => outcome,
            };
            let event = StoreEvent {
                command: command_name(binary_exec::mode(store, compares), compares),
                outcome,
                expiry: exec.shared.clock.expiry(i64::from(store.exptime)),
                value_bytes: request.value_bytes as usize,
            };
            note_stored(exec, store.key, &event, compares);
            binary_exec::stored(exec, request, store, outcome);
        }
        Command::Delete { .. } if *outcome == Outcome::Forgotten => {
            binary_exec::deleted(exec.out, request, DeleteOutcome::Deleted);
        }
        Command::Delete { key } => {
            let outcome = delete_outcome(outcome)?;
            note_deleted(exec, key, outcome, "delete");
            binary_exec::deleted(exec.out, request, outcome);
        }
        Command::Arith(arith) => {
            let outcome = match arith_outcome(outcome)? {
                ArithOutcome::Value { value, cas, .. } => number(value, shown_cas(exec, Some(cas))),
                outcome => outcome,
            };
            note_counted(exec, arith.key, outcome, arith.decrement);
            binary_exec::counted(exec.out, request, outcome);
        }
        Command::Flush { .. } if *outcome == Outcome::Flushed => {
            if !request.quiet {
                binary::reply::success(&mut exec.out.bytes, &request.header, 0);
            }
        }
        _ => return None,
    }
    Some(())
}

fn note_stored(exec: &Exec<'_>, key: &[u8], event: &StoreEvent, compared: bool) {
    let pool = exec.pool_of(key);
    if !matches!(event.outcome, SetOutcome::TooLarge | SetOutcome::NoMemory) {
        exec.count(pool, PoolCounter::SetCommands);
    }
    exec.count_stored(pool, event.outcome, compared);
    if exec.observed {
        exec.observe_store(key, event);
    }
}

fn note_deleted(exec: &Exec<'_>, key: &[u8], outcome: DeleteOutcome, command: &str) {
    let is_deleted = outcome == DeleteOutcome::Deleted;
    exec.count(exec.pool_of(key), if is_deleted { PoolCounter::DeleteHits } else { PoolCounter::DeleteMisses });
    if exec.observed {
        exec.observe_delete(key, outcome, command, 0);
    }
}

fn note_counted(exec: &Exec<'_>, key: &[u8], outcome: ArithOutcome, decrement: bool) {
    let (hits, misses) = if decrement {
        (PoolCounter::DecrHits, PoolCounter::DecrMisses)
    } else {
        (PoolCounter::IncrHits, PoolCounter::IncrMisses)
    };
    match outcome {
        ArithOutcome::Value { .. } => exec.count(exec.pool_of(key), hits),
        ArithOutcome::NotFound => exec.count(exec.pool_of(key), misses),
        _ => {}
    }
}

fn delete_outcome(outcome: &Outcome) -> Option<DeleteOutcome> {
    Some(match outcome {
        Outcome::Deleted => DeleteOutcome::Deleted,
        Outcome::NotFound => DeleteOutcome::NotFound,
        Outcome::Exists => DeleteOutcome::Exists,
        Outcome::NoMemory => DeleteOutcome::NoMemory,
        // A value that was refused as too large took the older one along.
        _ => return None,
    })
}

fn arith_outcome(outcome: &Outcome) -> Option<ArithOutcome> {
    Some(match outcome {
        Outcome::Number { value, cas } => number(*value, cas.unwrap_or(0)),
        Outcome::NotFound => ArithOutcome::NotFound,
        Outcome::Exists => ArithOutcome::Exists,
        Outcome::NonNumeric => ArithOutcome::NonNumeric,
        Outcome::NoMemory => ArithOutcome::NoMemory,
        _ => return None,
    })
}

fn number(value: u64, cas: u64) -> ArithOutcome {
    ArithOutcome::Value { value, cas, expiry: NEVER, fetched_before: false, last_access: 0, created: false }
}

/// Text of what a UDP request is told.
pub(crate) fn cannot_wait(pool: &str) -> Refusal {
    Refusal::no(format_args!("pool {pool} has a backend, which a UDP request cannot wait for: expected TCP"))
}
