//! What a client's bytes mean: the protocol spoken, the request being received, and what happens with each.
//!
//! A session is fed bytes and appends answers to an [`Exec`]'s output; it owns no socket and no buffer, so that TCP,
//! UNIX and UDP clients are served by the same code. It never waits: it says what it needs and is called again.
//!
//! | phase | bytes are | ends when |
//! |---|---|---|
//! | `Detect` | looked at | the first byte is there |
//! | `Text`, `Binary` | requests | the client leaves |
//! | `Keys` | keys of one retrieval | its line ends |
//! | `Value` | one large value, read into the store, or into memory for a backend | value (and line end) are there |
//! | `Swallow` | thrown away | the refused value is over |
//! | `Dump` | left alone | the dump is made |
//! | `Watch` | thrown away | the client leaves |
//!
//! Requests of pools with a backend begin here and are answered later: their answers wait in [`Waits`], and whatever
//! else the client asks for is executed when all of them are there. That half of the session is in [`super::detour`].

use std::sync::Arc;

use nuthatch_proto::ascii::{self, KeyStep, KeysContinuation, Parsed, Request, auth, reply};
use nuthatch_proto::binary::{self, Command};
use nuthatch_proto::meta::{KEY_SCRATCH, MetaSet};
use nuthatch_proto::{Protocol, WireError, detect};
use nuthatch_store::{Reservation, SetOutcome};

use super::value::{ValueInProgress, ValuePlace};
use super::waits::Waits;
use crate::auth::Access;
use crate::counters::ListenerCounter;
use crate::exec::admin::{self, Verdict};
use crate::exec::dump::Dump;
use crate::exec::text_get::{self, Lookup};
use crate::exec::text_store::{self, Plan};
use crate::exec::{Exec, Flow, binary as binary_exec, meta, text_modify};
use crate::log::{Escaped, Level};
use crate::settings;
use crate::shared::{Activity, Live};
use crate::watch::{Watcher, kind, push_uri_encoded};

/// Values up to this size that have not arrived whole are waited for in the connection's own buffer; larger ones are
/// read into the store. Reserving memory costs more than copying a few KiB.
pub(super) const BUFFERED_VALUE_BYTES_MAX: usize = 8 * 1024;

/// Longest SASL challenge: PLAIN carries three tokens of 256 bytes and two separators.
const SASL_BYTES_MAX: u32 = 1024;

/// One client's protocol state.
pub(crate) struct Session {
    pub(super) phase: Phase,
    /// The client has to say who it is first.
    locked: bool,
    /// A request is there whose small value has not arrived whole.
    pub(super) awaits_value: bool,
    /// Answers that are still to come.
    pub(super) waits: Option<Box<Waits>>,
    /// Whether the client can be answered later.
    can_wait: bool,
}

pub(super) enum Phase {
    Detect,
    Text,
    Binary,
    Keys(KeysInProgress),
    Value(Box<ValueInProgress>),
    Swallow { bytes: u64, binary: bool },
    Dump(Box<Dump>),
    Watch(Arc<Watcher>),
}

/// A retrieval whose keys are taken as they arrive, or that waits for the client to take the answers so far.
pub(super) struct KeysInProgress {
    /// What was in force when it began: all its keys are routed alike.
    pub(super) live: Arc<Live>,
    pub(super) keys: KeysContinuation,
    pub(super) lookup: Lookup,
    /// The line had arrived whole and its keys were checked; what remains is sure to be good.
    pub(super) checked: bool,
    /// The expiry time as the client said it, where it is to be set.
    pub(super) exptime: i64,
}

/// Why [`Session::run`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// More bytes are needed.
    Starved,
    /// The output is full: send it first.
    Full,
    /// Enough requests for one turn; there are more.
    Turn,
    /// Answers have to come first.
    Waiting,
    /// Send what there is, then close: the client asked for it.
    Close,
    /// Send what there is, then close: what the client said cannot be gone on from.
    Fault,
}

/// What one step of the session came to.
pub(super) enum Step {
    /// These many bytes are done with.
    Used(usize),
    /// These many bytes are done with, and nothing more can be done now.
    Stop(usize, Pause),
}

impl Session {
    /// A client that has said nothing yet, where `access` decides who is served. `can_wait`: it can be answered later.
    pub(crate) fn new(access: &Access, can_wait: bool) -> Session {
        Session { phase: Phase::Detect, locked: access.is_locked(), awaits_value: false, waits: None, can_wait }
    }

    /// What the client is doing, for `stats conns`, unless it is writing.
    pub(crate) fn activity(&self) -> Activity {
        match self.phase {
            Phase::Value(_) => Activity::ReadingValue,
            Phase::Swallow { .. } => Activity::Swallowing,
            Phase::Watch(_) => Activity::Watching,
            _ if self.awaits_value => Activity::AwaitingValue,
            _ if self.waits.is_some() => Activity::AwaitingBackend,
            _ => Activity::Reading,
        }
    }

    /// Whether there is something to do without any more bytes.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.phase {
            Phase::Dump(_) => true,
            // Whole already, it waits for other answers.
            Phase::Value(value) => value.binary && value.place.remaining() == 0,
            _ => false,
        }
    }

    /// Where bytes of a large value go, when the next bytes are that.
    pub(crate) fn value_piece(&mut self) -> Option<&mut [u8]> {
        match &mut self.phase {
            Phase::Value(value) if value.place.remaining() > 0 => Some(value.place.next_piece()),
            _ => None,
        }
    }

    /// Notes that `bytes` were read into [`Session::value_piece`].
    pub(crate) fn value_read(&mut self, bytes: usize) {
        if let Phase::Value(value) = &mut self.phase {
            value.place.advance(bytes);
        }
    }

    /// The watcher, once the client watches.
    pub(crate) fn watcher(&self) -> Option<&Arc<Watcher>> {
        match &self.phase {
            Phase::Watch(watcher) => Some(watcher),
            _ => None,
        }
    }

    /// Executes what is in `input`: how many bytes are done with, and why it stopped. `turns` is how many requests may
    /// be executed before others get their turn; it is counted down.
    pub(crate) fn run(&mut self, exec: &mut Exec<'_>, input: &[u8], turns: &mut u32) -> (usize, Pause) {
        let mut at = 0;
        self.awaits_value = false;
        exec.backed |= self.waits.is_some();
        exec.can_wait = self.can_wait;
        loop {
            if exec.out.is_full() {
                return (at, Pause::Full);
            }
            let rest = &input[at..];
            let step = match &mut self.phase {
                Phase::Text | Phase::Binary | Phase::Detect if rest.is_empty() => return (at, Pause::Starved),
                Phase::Text | Phase::Binary if *turns == 0 => return (at, Pause::Turn),
                Phase::Text => self.text(exec, rest, turns),
                Phase::Binary => self.binary(exec, rest, turns),
                Phase::Detect => self.detect(exec, rest[0]),
                Phase::Keys(_) => self.keys(exec, rest),
                Phase::Value(_) => self.value(exec, rest),
                Phase::Swallow { bytes, binary } => {
                    let taken = rest.len().min(usize::try_from(*bytes).unwrap_or(usize::MAX));
                    *bytes -= taken as u64;
                    if *bytes == 0 {
                        self.phase = if *binary { Phase::Binary } else { Phase::Text };
                        Step::Used(taken)
                    } else {
                        Step::Stop(taken, Pause::Starved)
                    }
                }
                Phase::Dump(dump) => {
                    if dump.fill(exec) {
                        self.phase = Phase::Text;
                    }
                    Step::Used(0)
                }
                Phase::Watch(_) => return (input.len(), Pause::Starved),
            };
            match step {
                Step::Used(bytes) => at += bytes,
                Step::Stop(bytes, pause) => return (at + bytes, pause),
            }
        }
    }

    fn detect(&mut self, exec: &Exec<'_>, first_byte: u8) -> Step {
        let listener = &exec.from.listener;
        let spoken = match (&listener.access, listener.protocol) {
            (Access::Text(_), _) | (Access::Open, settings::Protocol::Ascii) => Protocol::Ascii,
            (Access::Sasl(_), _) | (Access::Open, settings::Protocol::Binary) => Protocol::Binary,
            // Listeners of pages have connections of their own.
            (Access::Open, settings::Protocol::Auto | settings::Protocol::Http | settings::Protocol::Htcp) => {
                detect(first_byte)
            }
        };
        self.phase = match spoken {
            Protocol::Ascii => Phase::Text,
            Protocol::Binary => Phase::Binary,
        };
        Step::Used(0)
    }

    #[inline]
    fn text(&mut self, exec: &mut Exec<'_>, rest: &[u8], turns: &mut u32) -> Step {
        if self.locked {
            return self.authenticate(exec, rest, turns);
        }
        match ascii::parse(rest) {
            Parsed::Incomplete => Step::Stop(0, Pause::Starved),
            Parsed::Request { request, line_bytes } => {
                if exec.backed | exec.observed {
                    return self.text_detour(exec, request, line_bytes, rest, turns);
                }
                *turns -= 1;
                self.text_request(exec, request, line_bytes, rest)
            }
            _ if self.waits.is_some() => Step::Stop(0, Pause::Waiting),
            Parsed::LongGet { keys, line_bytes } => {
                *turns -= 1;
                let touch = keys.touch().map(|exptime| exec.shared.clock.expiry(i64::from(exptime)));
                let lookup = Lookup { with_cas: keys.with_cas(), touch };
                let exptime = keys.touch().map_or(0, i64::from);
                let live = exec.keep_live();
                self.phase = Phase::Keys(KeysInProgress { live, keys, lookup, checked: false, exptime });
                Step::Used(line_bytes)
            }
            Parsed::Refused(refusal) => {
                *turns -= 1;
                if exec.observed {
                    observe_line(exec, &rest[..refusal.line_bytes]);
                }
                exec.out.bytes.extend_from_slice(refusal.reply());
                if exec.observed && !refusal.reply().is_empty() {
                    observe_answer(exec, exec.out.bytes.len() - refusal.reply().len());
                }
                if refusal.close {
                    return Step::Stop(refusal.line_bytes, Pause::Fault);
                }
                self.swallow(u64::from(refusal.swallow_bytes), false);
                Step::Used(refusal.line_bytes)
            }
        }
    }

    #[inline]
    pub(super) fn text_request(
        &mut self,
        exec: &mut Exec<'_>,
        request: Request<'_>,
        line_bytes: usize,
        rest: &[u8],
    ) -> Step {
        match request {
            Request::Get(get) => {
                let touch = get.touch.map(|exptime| exec.shared.clock.expiry(i64::from(exptime)));
                let lookup = Lookup { with_cas: get.with_cas, touch };
                if let Err(key) = text_get::all(exec, get.keys.iter(), lookup) {
                    return self.suspend_keys(exec.keep_live(), lookup, rest, key);
                }
                exec.out.bytes.extend_from_slice(reply::END);
            }
            Request::Store(store) => {
                let plan = text_store::plan(exec, &store);
                let Some(body) = rest[line_bytes..].get(..store.body_bytes() as usize) else {
                    let answer = |exec: &mut Exec<'_>, outcome| {
                        if !store.noreply {
                            exec.out.bytes.extend_from_slice(text_store::answer(outcome));
                        }
                    };
                    let front = (rest, line_bytes);
                    return self.begin_value(exec, store.key, plan, front, store.value_bytes, answer);
                };
                let (value, end) = body.split_at(store.value_bytes as usize);
                let answer = if end == reply::CRLF {
                    text_store::answer(text_store::store_whole(exec, store.key, value, &plan))
                } else {
                    WireError::BadDataChunk.as_wire()
                };
                if !store.noreply {
                    exec.out.bytes.extend_from_slice(answer);
                }
                return Step::Used(line_bytes + body.len());
            }
            Request::MetaGet(get) => meta::get(exec, &get),
            Request::MetaSet(set) => {
                let mut scratch = KEY_SCRATCH;
                let key = set.meta.key(&mut scratch);
                let plan = meta::plan(exec, &set, key);
                let Some(body) = rest[line_bytes..].get(..set.body_bytes() as usize) else {
                    let again = plan.clone();
                    let answer = |exec: &mut Exec<'_>, outcome| meta::stored(exec, &set, key, &again, outcome);
                    return self.begin_value(exec, key, plan, (rest, line_bytes), set.value_bytes, answer);
                };
                let (value, end) = body.split_at(set.value_bytes as usize);
                if end == reply::CRLF {
                    let outcome = text_store::store_whole(exec, key, value, &plan);
                    meta::stored(exec, &set, key, &plan, outcome);
                } else {
                    exec.out.bytes.extend_from_slice(WireError::BadDataChunk.as_wire());
                }
                return Step::Used(line_bytes + body.len());
            }
            Request::MetaDelete(delete) => meta::delete(exec, &delete),
            Request::MetaArith(arith) => meta::arith(exec, &arith),
            Request::MetaNoop => exec.out.bytes.extend_from_slice(nuthatch_proto::meta::reply::MN),
            Request::MetaDebug(debug) => meta::debug(exec, &debug),
            Request::Delete(delete) => text_modify::delete(exec, &delete),
            Request::Arith(arith) => text_modify::arith(exec, &arith),
            Request::Touch(touch) => text_modify::touch(exec, &touch),
            Request::Quit => return Step::Stop(line_bytes, Pause::Close),
            request => match admin::execute(exec, &request) {
                Verdict::Next => {}
                Verdict::Close => return Step::Stop(line_bytes, Pause::Close),
                Verdict::Watch(watcher) => self.phase = Phase::Watch(watcher),
                Verdict::Dump(dump) => self.phase = Phase::Dump(Box::new(dump)),
            },
        }
        Step::Used(line_bytes)
    }

    /// Stops a retrieval before `key`, which lies in `rest`, until its first answers are sent.
    #[cold]
    pub(super) fn suspend_keys(&mut self, live: Arc<Live>, lookup: Lookup, rest: &[u8], key: &[u8]) -> Step {
        let used = key.as_ptr().addr() - rest.as_ptr().addr();
        self.go_on_with_keys(live, lookup, 0);
        Step::Stop(used, Pause::Full)
    }

    /// What follows are the rest of a retrieval's keys, which were checked.
    pub(super) fn go_on_with_keys(&mut self, live: Arc<Live>, lookup: Lookup, exptime: i64) {
        // The continuation is told nothing of the command: how to look up is kept beside it.
        if let Some((keys, _)) = KeysContinuation::start(b"get ") {
            self.phase = Phase::Keys(KeysInProgress { live, keys, lookup, checked: true, exptime });
        }
    }

    fn keys(&mut self, exec: &mut Exec<'_>, rest: &[u8]) -> Step {
        let Phase::Keys(state) = &mut self.phase else { return Step::Used(0) };
        if exec.backed | state.live.tiers.any() {
            return self.detour_keys(exec, rest);
        }
        match state.keys.next(rest) {
            KeyStep::Key { key, used } => {
                text_get::one(&mut exec.under(&state.live), key, state.lookup);
                Step::Used(used)
            }
            KeyStep::NeedMore { used } => Step::Stop(used, Pause::Starved),
            KeyStep::Finished { used, error } => {
                exec.out.bytes.extend_from_slice(match error {
                    Some(error) if !state.checked => error.as_wire(),
                    _ => reply::END,
                });
                self.phase = Phase::Text;
                Step::Used(used)
            }
        }
    }

    /// Goes on with a storage request whose value has not arrived whole: waits for a small one, reads a large one into
    /// the store. `front` is the input and how many bytes of it stand before the value.
    fn begin_value(
        &mut self,
        exec: &mut Exec<'_>,
        key: &[u8],
        plan: Plan,
        (input, front_bytes): (&[u8], usize),
        value_bytes: u32,
        answer: impl FnOnce(&mut Exec<'_>, SetOutcome),
    ) -> Step {
        let value_bytes = value_bytes as usize;
        if value_bytes <= BUFFERED_VALUE_BYTES_MAX {
            self.awaits_value = true;
            return Step::Stop(0, Pause::Starved);
        }
        let binary = matches!(self.phase, Phase::Binary);
        match text_store::reserve(exec, key, value_bytes, &plan) {
            Ok(mut reservation) => {
                let used = front_bytes + reservation.write(&input[front_bytes..]);
                let front = input[..front_bytes].into();
                let place = ValuePlace::Store(plan, reservation);
                let live = exec.keep_live();
                self.phase = Phase::Value(Box::new(ValueInProgress { front, place, value_bytes, binary, live }));
                Step::Used(used)
            }
            Err(outcome) => {
                answer(exec, outcome);
                self.swallow(value_bytes as u64 + if binary { 0 } else { 2 }, binary);
                Step::Used(front_bytes)
            }
        }
    }

    fn value(&mut self, exec: &mut Exec<'_>, rest: &[u8]) -> Step {
        let Phase::Value(value) = &mut self.phase else { return Step::Used(0) };
        if value.place.remaining() > 0 {
            let used = value.place.write(rest);
            return if rest.is_empty() { Step::Stop(0, Pause::Starved) } else { Step::Used(used) };
        }
        let end_bytes = if value.binary { 0 } else { reply::CRLF.len() };
        let Some(end) = rest.get(..end_bytes) else { return Step::Stop(0, Pause::Starved) };
        if matches!(value.place, ValuePlace::Memory(_)) {
            return self.detour_value(exec, end);
        }
        if let Some(value) = self.take_value() {
            finish_value(exec, value, end);
        }
        Step::Used(end_bytes)
    }

    /// Takes the value that has arrived; requests follow.
    pub(super) fn take_value(&mut self) -> Option<ValueInProgress> {
        let Phase::Value(value) = &self.phase else { return None };
        let next = if value.binary { Phase::Binary } else { Phase::Text };
        match std::mem::replace(&mut self.phase, next) {
            Phase::Value(value) => Some(*value),
            _ => None,
        }
    }

    #[inline]
    fn binary(&mut self, exec: &mut Exec<'_>, rest: &[u8], turns: &mut u32) -> Step {
        let request = match binary::parse(rest) {
            binary::Parsed::Incomplete { .. } => return Step::Stop(0, Pause::Starved),
            binary::Parsed::Refused(_) if self.waits.is_some() => return Step::Stop(0, Pause::Waiting),
            binary::Parsed::Refused(refusal) => {
                *turns -= 1;
                if let Some(status) = refusal.status {
                    binary::reply::error(&mut exec.out.bytes, &refusal.header, status);
                }
                if refusal.close {
                    return Step::Stop(rest.len(), Pause::Fault);
                }
                let used = refusal.swallow_bytes.min(rest.len());
                self.swallow((refusal.swallow_bytes - used) as u64, true);
                return Step::Used(used);
            }
            binary::Parsed::Request(request) => request,
        };
        if exec.backed
            && !self.locked
            && let Some(step) = self.binary_detour(exec, &request, rest, turns)
        {
            return step;
        }
        if exec.observed {
            exec.shared.log.line(Level::Command, format_args!("<{} {:?}", exec.from.fd, request.header));
        }
        *turns -= 1;
        if self.locked && !binary_exec::is_open_to_all(&request) {
            binary::reply::error(&mut exec.out.bytes, &request.header, binary::Status::AuthError);
            return Step::Stop(rest.len(), Pause::Fault);
        }
        let front_bytes = request.front_bytes;
        match request.command {
            Command::Store(store) => {
                let plan = binary_exec::plan(exec, &request, &store);
                let Some(value) = rest[front_bytes..].get(..request.value_bytes as usize) else {
                    let answer = |exec: &mut Exec<'_>, outcome| binary_exec::stored(exec, &request, &store, outcome);
                    return self.begin_value(exec, store.key, plan, (rest, front_bytes), request.value_bytes, answer);
                };
                let outcome = text_store::store_whole(exec, store.key, value, &plan);
                binary_exec::stored(exec, &request, &store, outcome);
                Step::Used(front_bytes + value.len())
            }
            Command::Sasl { mechanism, .. } => {
                // A new attempt ends whatever an earlier one had won.
                self.locked = exec.from.listener.access.is_locked();
                if request.value_bytes > SASL_BYTES_MAX {
                    binary::reply::error(&mut exec.out.bytes, &request.header, binary::Status::InvalidArguments);
                    self.swallow(u64::from(request.value_bytes), true);
                    return Step::Used(front_bytes);
                }
                let Some(challenge) = rest[front_bytes..].get(..request.value_bytes as usize) else {
                    return Step::Stop(0, Pause::Starved);
                };
                if binary_exec::authenticate(exec, &request, mechanism, challenge) {
                    self.locked = false;
                }
                Step::Used(front_bytes + challenge.len())
            }
            _ => match binary_exec::execute(exec, &request) {
                Flow::Next => Step::Used(front_bytes),
                Flow::Close => Step::Stop(front_bytes, Pause::Close),
            },
        }
    }

    pub(super) fn swallow(&mut self, bytes: u64, binary: bool) {
        if bytes > 0 {
            self.phase = Phase::Swallow { bytes, binary };
        }
    }

    /// Text authentication (`-Y`): nothing else is understood before it.
    fn authenticate(&mut self, exec: &mut Exec<'_>, rest: &[u8], turns: &mut u32) -> Step {
        let (user, password, used) = match auth::parse(rest) {
            auth::Parsed::Incomplete => return Step::Stop(0, Pause::Starved),
            auth::Parsed::Refused(refusal) => {
                *turns -= 1;
                exec.out.bytes.extend_from_slice(refusal.reply());
                let used = refusal.line_bytes;
                return if refusal.close { Step::Stop(used, Pause::Fault) } else { Step::Used(used) };
            }
            auth::Parsed::Credentials { user, password, used } => (user, password, used),
        };
        *turns -= 1;
        exec.count_here(ListenerCounter::AuthCommands);
        let is_known = match &exec.from.listener.access {
            Access::Text(credentials) => credentials.check(user, password),
            _ => false,
        };
        self.locked = !is_known;
        exec.out.bytes.extend_from_slice(if is_known {
            reply::STORED
        } else {
            exec.count_here(ListenerCounter::AuthErrors);
            WireError::AuthenticationFailure.as_wire()
        });
        Step::Used(used)
    }
}

/// Stores a large value that is there, if it ended as it should, and answers.
fn finish_value(exec: &mut Exec<'_>, value: ValueInProgress, end: &[u8]) {
    let ValueInProgress { front, place, value_bytes, binary, live: _live } = value;
    let ValuePlace::Store(plan, reservation) = place else { return };
    if binary {
        if let binary::Parsed::Request(request) = binary::parse(&front)
            && let Command::Store(store) = request.command
        {
            let outcome = text_store::commit(exec, store.key, reservation, &plan, value_bytes);
            binary_exec::stored(exec, &request, &store, outcome);
        }
        return;
    }
    let Parsed::Request { request, .. } = ascii::parse(&front) else { return };
    let is_whole = end == reply::CRLF;
    match request {
        Request::Store(store) => {
            let answer = if is_whole {
                text_store::answer(text_store::commit(exec, store.key, reservation, &plan, value_bytes))
            } else {
                WireError::BadDataChunk.as_wire()
            };
            if !store.noreply {
                exec.out.bytes.extend_from_slice(answer);
            }
        }
        Request::MetaSet(set) if is_whole => finish_meta_set(exec, &set, reservation, &plan),
        _ => exec.out.bytes.extend_from_slice(WireError::BadDataChunk.as_wire()),
    }
}

fn finish_meta_set(exec: &mut Exec<'_>, set: &MetaSet<'_>, reservation: Reservation, plan: &Plan) {
    let mut scratch = KEY_SCRATCH;
    let key = set.meta.key(&mut scratch);
    let outcome = text_store::commit(exec, key, reservation, plan, set.value_bytes as usize);
    meta::stored(exec, set, key, plan, outcome);
}

/// Tells those who observe what a client said.
#[cold]
pub(super) fn observe_line(exec: &Exec<'_>, line: &[u8]) {
    let line = line.trim_ascii_end();
    let fd = exec.from.fd;
    exec.shared.log.line(Level::Command, format_args!("<{fd} {}", Escaped(line)));
    exec.shared.watchers.emit(kind::RAWCMDS, |text| {
        text.push_str(&format!("type=rawcmd cfd={fd} cmd="));
        push_uri_encoded(text, &line[..line.len().min(512)]);
    });
}

/// Logs the first line of what was answered since the output had `answered` bytes.
#[cold]
pub(super) fn observe_answer(exec: &Exec<'_>, answered: usize) {
    let answer = &exec.out.bytes[answered..];
    if exec.shared.log.shows(Level::Command) && !answer.is_empty() {
        let line = answer.split(|&byte| byte == b'\r').next().unwrap_or(answer);
        exec.shared.log.line(Level::Command, format_args!(">{} {}", exec.from.fd, Escaped(line)));
    }
}
