//! The session's half for pools with backends: requests are begun, and their answers wait for their turn.
//!
//! A request that touches such a pool is begun as soon as it is there, unless too much is under way or an earlier one of
//! the same connection is about the same key and either changes it. Whatever else the client asks for is executed when no
//! answer is missing any more. So a client is always answered in its order, and as if its requests had been executed in
//! that order.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use nuthatch_proto::WireError;
use nuthatch_proto::ascii::{self, KeyStep, Parsed, Request, reply};
use nuthatch_proto::binary::{self, Command};
use nuthatch_proto::meta::KEY_SCRATCH;
use smallvec::SmallVec;

use super::session::{BUFFERED_VALUE_BYTES_MAX, Pause, Phase, Session, Step, observe_answer, observe_line};
use super::value::{ValueBuffer, ValueInProgress, ValuePlace};
use super::waits::{Claim, Waits};
use crate::backend::{Key, Later};
use crate::exec::deliver::{self, Answer, Front, Looked};
use crate::exec::text_get::Lookup;
use crate::exec::tiered::{self, Target};
use crate::exec::{Exec, binary as binary_exec};
use crate::log::Level;
use crate::tier::KEYS_TOGETHER_MAX;
use crate::tier::read::Sees;

/// What a storage request is, of whatever protocol.
struct Arriving<'a> {
    key: &'a [u8],
    /// The line, or header, extras and key.
    front: &'a [u8],
    value_bytes: usize,
    binary: bool,
    /// A value that is refused takes the older one along.
    replaces: bool,
}

impl Session {
    /// Whether answers are still to come.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// Whether there is an answer to deliver.
    pub(crate) fn has_answers(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.has_answers())
    }

    /// Takes the answers that have come: whether any have. Not to be called within `worker::with`.
    pub(crate) fn poll_waits(&mut self, cx: &mut Context<'_>) -> bool {
        self.waits.as_mut().is_some_and(|waits| waits.poll(cx))
    }

    /// Whether something was begun that [`Session::poll_waits`] has not seen.
    pub(crate) fn is_unpolled(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.is_unpolled())
    }

    /// Appends answers to the output, until it is full.
    pub(crate) fn deliver(&mut self, exec: &mut Exec<'_>) {
        if let Some(waits) = &mut self.waits {
            waits.deliver(exec);
            if waits.is_empty()
                && let Some(waits) = self.waits.take()
            {
                waits.give_back();
            }
        }
    }

    /// What is under way, when the client has gone.
    pub(crate) fn leave(&mut self) -> Option<Box<Waits>> {
        self.waits.take()
    }

    /// Memory that is owned for the client.
    pub(crate) fn owned_bytes(&self) -> usize {
        let value = match &self.phase {
            Phase::Value(value) => value.place.owned_bytes(),
            _ => 0,
        };
        value + self.waits.as_ref().map_or(0, |waits| waits.owned_bytes())
    }

    fn admits(&self, exec: &Exec<'_>, claim: Claim) -> bool {
        self.waits.as_ref().is_none_or(|waits| waits.admits(claim, exec.shared.buffers.is_tight()))
    }

    fn push(&mut self, claim: Claim, bytes: usize, answer: Option<Later<Answer>>) {
        if let Some(answer) = answer {
            self.waits.get_or_insert_with(Waits::take).push(claim, bytes, answer);
        }
    }

    /// Looks keys up, unless others have to be answered first.
    fn look_up(&mut self, exec: &mut Exec<'_>, keys: &[&[u8]], sees: Sees, looked: impl FnOnce() -> Looked) -> bool {
        let is_tight = exec.shared.buffers.is_tight();
        if self.waits.as_ref().is_some_and(|waits| !waits.admits_keys(exec, keys, is_tight)) {
            return false;
        }
        self.waits.get_or_insert_with(Waits::take).look_up(exec, keys, sees, looked());
        true
    }

    fn say(&mut self, exec: &mut Exec<'_>, bytes: &[u8]) {
        match &mut self.waits {
            None => exec.out.bytes.extend_from_slice(bytes),
            Some(waits) => waits.push_said(bytes),
        }
    }

    /// A text request that may touch a pool with a backend, or that someone observes.
    pub(super) fn text_detour(
        &mut self,
        exec: &mut Exec<'_>,
        request: Request<'_>,
        line_bytes: usize,
        rest: &[u8],
        turns: &mut u32,
    ) -> Step {
        let front = &rest[..line_bytes];
        if exec.backed
            && let Some(answer) = tiered::choose_table(exec, &request)
        {
            self.say(exec, &answer);
            return began(exec, Step::Used(line_bytes), front, turns);
        }
        let target = if exec.backed { tiered::text_target(exec, &request) } else { Target::Plain };
        if target == Target::Plain {
            if self.waits.is_some() {
                return Step::Stop(0, Pause::Waiting);
            }
            *turns -= 1;
            if !exec.observed {
                return self.text_request(exec, request, line_bytes, rest);
            }
            observe_line(exec, front);
            let answered = exec.out.bytes.len();
            let step = self.text_request(exec, request, line_bytes, rest);
            observe_answer(exec, answered);
            return step;
        }
        let mut scratch = KEY_SCRATCH;
        let arriving = |key, value_bytes| {
            let (binary, replaces) = (false, tiered::replaces(&request));
            Arriving { key, front, value_bytes: value_bytes as usize, binary, replaces }
        };
        let arriving = match &request {
            Request::Store(store) => Some(arriving(store.key, store.value_bytes)),
            Request::MetaSet(set) => Some(arriving(set.meta.key(&mut scratch), set.value_bytes)),
            _ => None,
        };
        if !exec.can_wait {
            *turns -= 1;
            return self.refuse(exec, front, arriving.map_or(0, |arriving| arriving.value_bytes + 2));
        }
        if let Some(arriving) = arriving {
            let start = |exec: &mut Exec<'_>, value| tiered::start_text(exec, &request, front, value);
            let step = self.arrive(exec, &arriving, target, rest, start);
            return began(exec, step, front, turns);
        }
        let step = match &request {
            Request::Get(get) => {
                let touch = get.touch.map(|exptime| exec.shared.clock.expiry(i64::from(exptime)));
                let lookup = Lookup { with_cas: get.with_cas, touch };
                self.keys_detour(exec, get.keys.iter(), lookup, get.touch.map_or(0, i64::from), rest, line_bytes)
            }
            Request::MetaGet(get) if self.waits.is_none() && tiered::meta_copy(exec, get) => Step::Used(line_bytes),
            Request::MetaGet(get) if tiered::is_plain_get(get) => {
                let sees = Sees { cas: true, marks: true };
                if self.look_up(exec, &[get.key(&mut scratch)], sees, || Looked::Meta(front.into())) {
                    Step::Used(line_bytes)
                } else {
                    Step::Stop(0, Pause::Waiting)
                }
            }
            _ => {
                // Also of what changes nothing: it may show that its item was read, so that no lookup may pass it.
                let claim = claim_of(target).alone();
                if self.admits(exec, claim) {
                    let answer = tiered::start_text(exec, &request, front, Bytes::new());
                    self.push(claim, line_bytes, answer);
                    Step::Used(line_bytes)
                } else {
                    Step::Stop(0, Pause::Waiting)
                }
            }
        };
        began(exec, step, front, turns)
    }

    /// The keys of a retrieval whose line is there.
    fn keys_detour<'k>(
        &mut self,
        exec: &mut Exec<'_>,
        mut keys: impl Iterator<Item = &'k [u8]>,
        lookup: Lookup,
        exptime: i64,
        rest: &'k [u8],
        line_bytes: usize,
    ) -> Step {
        let Some(first) = keys.next() else { return Step::Used(line_bytes) };
        let mut next = keys.next();
        if next.is_none() && self.waits.is_none() && tiered::text_copy(exec, first, lookup) {
            exec.out.bytes.extend_from_slice(reply::END);
            return Step::Used(line_bytes);
        }
        let mut together: SmallVec<[&[u8]; KEYS_TOGETHER_MAX]> = SmallVec::new();
        let together = if next.is_none() {
            &[first][..]
        } else {
            let keys_max = keys_max(exec, first, lookup);
            together.push(first);
            while let Some(key) = next
                && together.len() < keys_max
            {
                together.push(key);
                next = keys.next();
            }
            &together
        };
        let ends = next.is_none().then_some(reply::END);
        if !self.begin_keys(exec, together, lookup, exptime, ends) {
            return Step::Stop(0, Pause::Waiting);
        }
        match next {
            None => Step::Used(line_bytes),
            Some(key) => {
                self.go_on_with_keys(exec.keep_live(), lookup, exptime);
                Step::Used(key.as_ptr().addr() - rest.as_ptr().addr())
            }
        }
    }

    /// More keys of a retrieval, as many as are there and may be looked up together.
    pub(super) fn detour_keys(&mut self, exec: &mut Exec<'_>, rest: &[u8]) -> Step {
        let Phase::Keys(state) = &self.phase else { return Step::Used(0) };
        let (live, lookup, exptime, checked) = (Arc::clone(&state.live), state.lookup, state.exptime, state.checked);
        let mut line = state.keys;
        let mut exec = exec.under(&live);
        let mut together: SmallVec<[&[u8]; KEYS_TOGETHER_MAX]> = SmallVec::new();
        let (mut at, mut keys_most) = (0, 1);
        let mut ends = None;
        while together.len() < keys_most {
            match line.next(&rest[at..]) {
                KeyStep::Key { key, used } => {
                    if together.is_empty() {
                        keys_most = keys_max(&exec, key, lookup);
                    }
                    together.push(key);
                    at += used;
                }
                KeyStep::NeedMore { used } => {
                    at += used;
                    break;
                }
                KeyStep::Finished { used, error } => {
                    at += used;
                    ends = Some(match error {
                        Some(error) if !checked => error.as_wire(),
                        _ => reply::END,
                    });
                    break;
                }
            }
        }
        let is_starved = together.is_empty() && ends.is_none();
        if !is_starved && !self.begin_keys(&mut exec, &together, lookup, exptime, ends) {
            return Step::Stop(0, Pause::Waiting);
        }
        match &mut self.phase {
            phase if ends.is_some() => *phase = Phase::Text,
            Phase::Keys(state) => state.keys = line,
            _ => {}
        }
        if is_starved { Step::Stop(at, Pause::Starved) } else { Step::Used(at) }
    }

    /// Begins a retrieval of `keys`, unless others have to be answered first.
    fn begin_keys(
        &mut self,
        exec: &mut Exec<'_>,
        keys: &[&[u8]],
        lookup: Lookup,
        exptime: i64,
        ends: Option<&'static [u8]>,
    ) -> bool {
        let with_cas = lookup.with_cas;
        if lookup.touch.is_none() {
            if keys.iter().any(|key| tiered::is_range(exec, key)) {
                return self.begin_ranges(exec, keys, with_cas, ends);
            }
            let sees = Sees { cas: with_cas, marks: false };
            return self.look_up(exec, keys, sees, || Looked::Keys { with_cas, ends });
        }
        if !self.admits(exec, Claim::All) {
            return false;
        }
        let keys: Vec<Key> = keys.iter().map(|&key| key.into()).collect();
        let bytes = keys.iter().map(|key| key.len()).sum();
        let answer = tiered::start_touches(exec, keys, with_cas, exptime, ends);
        self.push(Claim::All, bytes, Some(answer));
        true
    }

    /// Begins a retrieval of which some keys are ranges, when nothing is under way: what was written before may be in them.
    fn begin_ranges(
        &mut self,
        exec: &mut Exec<'_>,
        keys: &[&[u8]],
        with_cas: bool,
        ends: Option<&'static [u8]>,
    ) -> bool {
        if !self.admits(exec, Claim::All) {
            return false;
        }
        let waits = self.waits.get_or_insert_with(Waits::take);
        for (number, &key) in keys.iter().enumerate() {
            let ends = ends.filter(|_| number + 1 == keys.len());
            match tiered::start_range(exec, key, with_cas, ends) {
                Some(answer) => waits.push(Claim::All, key.len(), answer),
                None => {
                    let sees = Sees { cas: with_cas, marks: false };
                    waits.look_up(exec, &[key], sees, Looked::Keys { with_cas, ends });
                }
            }
        }
        true
    }

    /// A storage request, with as much of its value as is there.
    fn arrive(
        &mut self,
        exec: &mut Exec<'_>,
        arriving: &Arriving<'_>,
        target: Target,
        rest: &[u8],
        start: impl FnOnce(&mut Exec<'_>, Bytes) -> Option<Later<Answer>>,
    ) -> Step {
        let &Arriving { key, front, value_bytes, binary, replaces } = arriving;
        let claim = claim_of(target);
        let end_bytes = if binary { 0 } else { reply::CRLF.len() };
        let item_bytes_max = exec.handles[exec.pool_of(key)].store().item_bytes_max();
        if key.len() + value_bytes > item_bytes_max {
            if !self.admits(exec, claim) {
                return Step::Stop(0, Pause::Waiting);
            }
            let kept = if binary { Front::Binary(front.into()) } else { Front::Text(front.into()) };
            let answer = tiered::start_refused(exec, key, kept, replaces);
            self.push(claim, front.len(), answer);
            self.swallow((value_bytes + end_bytes) as u64, binary);
            return Step::Used(front.len());
        }
        let Some(body) = rest[front.len()..].get(..value_bytes + end_bytes) else {
            if value_bytes <= BUFFERED_VALUE_BYTES_MAX {
                self.awaits_value = true;
                return Step::Stop(0, Pause::Starved);
            }
            let mut buffer = ValueBuffer::new(value_bytes);
            let used = front.len() + buffer.write(&rest[front.len()..]);
            let (front, place) = (front.into(), ValuePlace::Memory(buffer));
            let live = exec.keep_live();
            self.phase = Phase::Value(Box::new(ValueInProgress { front, place, value_bytes, binary, live }));
            return Step::Used(used);
        };
        let (value, end) = body.split_at(value_bytes);
        if !binary && end != reply::CRLF {
            self.refuse_chunk(exec, front);
        } else if self.admits(exec, claim) {
            let answer = start(exec, Bytes::copy_from_slice(value));
            self.push(claim, front.len() + value_bytes, answer);
        } else {
            return Step::Stop(0, Pause::Waiting);
        }
        Step::Used(front.len() + body.len())
    }

    /// A value does not end where its line said.
    fn refuse_chunk(&mut self, exec: &mut Exec<'_>, front: &[u8]) {
        let is_hushed = match ascii::parse(front) {
            Parsed::Request { request: Request::Store(store), .. } => store.noreply,
            _ => false,
        };
        if !is_hushed {
            self.say(exec, WireError::BadDataChunk.as_wire());
        }
    }

    /// A large value is there, and `end` behind it.
    pub(super) fn detour_value(&mut self, exec: &mut Exec<'_>, end: &[u8]) -> Step {
        let Phase::Value(value) = &self.phase else { return Step::Used(0) };
        let live = Arc::clone(&value.live);
        let mut exec = exec.under(&live);
        if !value.binary && end != reply::CRLF {
            if let Some(value) = self.take_value() {
                self.refuse_chunk(&mut exec, &value.front);
            }
            return Step::Used(end.len());
        }
        let target = match front_of(value) {
            Some(Whole::Text(request)) => tiered::text_target(&exec, &request),
            Some(Whole::Binary(request)) => tiered::binary_target(&exec, &request),
            None => Target::Plain,
        };
        let claim = claim_of(target);
        if !self.admits(&exec, claim) {
            return Step::Stop(0, Pause::Waiting);
        }
        let Some(mut value) = self.take_value() else { return Step::Used(0) };
        let bytes = value.place.take_bytes();
        let answer = match front_of(&value) {
            Some(Whole::Text(request)) => tiered::start_text(&mut exec, &request, &value.front, bytes),
            Some(Whole::Binary(request)) => tiered::start_binary(&mut exec, &request, &value.front, bytes),
            None => None,
        };
        self.push(claim, value.front.len() + value.value_bytes, answer);
        Step::Used(end.len())
    }

    /// A binary request that may touch a pool with a backend; `None` when it touches none and may be executed.
    pub(super) fn binary_detour(
        &mut self,
        exec: &mut Exec<'_>,
        request: &binary::Request<'_>,
        rest: &[u8],
        turns: &mut u32,
    ) -> Option<Step> {
        let target = tiered::binary_target(exec, request);
        if target == Target::Plain {
            return self.waits.is_some().then_some(Step::Stop(0, Pause::Waiting));
        }
        let front = &rest[..request.front_bytes];
        if !exec.can_wait {
            *turns -= 1;
            let refusal = deliver::cannot_wait(&exec.from.listener.own_pool.name);
            let status = binary::Status::TemporaryFailure;
            binary::reply::body(&mut exec.out.bytes, &request.header, status, refusal.sentence().as_bytes());
            self.swallow(u64::from(request.value_bytes), true);
            return Some(Step::Used(front.len()));
        }
        let step = if let Command::Store(store) = &request.command {
            let arriving = Arriving {
                key: store.key,
                front,
                value_bytes: request.value_bytes as usize,
                binary: true,
                replaces: tiered::binary_replaces(binary_exec::mode(store, request.header.cas != 0)),
            };
            let start = |exec: &mut Exec<'_>, value| tiered::start_binary(exec, request, front, value);
            self.arrive(exec, &arriving, target, rest, start)
        } else if self.waits.is_none() && tiered::binary_copy(exec, request) {
            Step::Used(front.len())
        } else if let Command::Get(get) = &request.command
            && get.touch.is_none()
        {
            let sees = Sees { cas: true, marks: false };
            if self.look_up(exec, &[get.key], sees, || Looked::Binary(front.into())) {
                Step::Used(front.len())
            } else {
                Step::Stop(0, Pause::Waiting)
            }
        } else {
            let claim = claim_of(target);
            if self.admits(exec, claim) {
                let answer = tiered::start_binary(exec, request, front, Bytes::new());
                self.push(claim, front.len(), answer);
                Step::Used(front.len())
            } else {
                Step::Stop(0, Pause::Waiting)
            }
        };
        if matches!(step, Step::Used(_)) {
            *turns -= 1;
            if exec.observed {
                exec.shared.log.line(Level::Command, format_args!("<{} {:?}", exec.from.fd, request.header));
            }
        }
        Some(step)
    }

    /// Tells a client that cannot wait.
    fn refuse(&mut self, exec: &mut Exec<'_>, front: &[u8], body_bytes: usize) -> Step {
        deliver::push_refusal(exec.out, &deliver::cannot_wait(&exec.from.listener.own_pool.name));
        self.swallow(body_bytes as u64, false);
        Step::Used(front.len())
    }
}

/// Counts a text request, and tells those who observe of it, once it has begun.
fn began(exec: &Exec<'_>, step: Step, front: &[u8], turns: &mut u32) -> Step {
    if matches!(step, Step::Used(_)) {
        *turns -= 1;
        if exec.observed {
            observe_line(exec, front);
        }
    }
    step
}

/// How many keys, of which `first` is one, are looked up together.
fn keys_max(exec: &Exec<'_>, first: &[u8], lookup: Lookup) -> usize {
    match exec.tier_of(first) {
        // Each is an operation of its own.
        _ if lookup.touch.is_some() => 16,
        Some(tier) => tier.fetch_keys_max(),
        None => 16,
    }
}

fn claim_of(target: Target) -> Claim {
    match target {
        Target::Key { hash, writes: true } => Claim::Writes(hash),
        Target::Key { hash, writes: false } => Claim::Reads(hash),
        Target::Plain | Target::Keys | Target::All => Claim::All,
    }
}

/// The request that a large value belongs to.
enum Whole<'a> {
    Text(Request<'a>),
    Binary(binary::Request<'a>),
}

fn front_of(value: &ValueInProgress) -> Option<Whole<'_>> {
    if value.binary {
        match binary::parse(&value.front) {
            binary::Parsed::Request(request) => Some(Whole::Binary(request)),
            _ => None,
        }
    } else {
        match ascii::parse(&value.front) {
            Parsed::Request { request, .. } => Some(Whole::Text(request)),
            _ => None,
        }
    }
}
