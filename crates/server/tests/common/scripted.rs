//! A backend in the test's own process: a second server without sockets behind it, and levers on its answers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use nuthatch_proto::client::meta::{self, Flag};
use nuthatch_proto::client::reply::{self, Code, Reply};
use nuthatch_proto::client::{Step, text};
use nuthatch_server::backend::{
    Arith, Backend, Changes, Done, Fetched, Forget, Item, Key, Later, Life, Marks, Meta, MetaAnswer, MetaVerb, Op,
    Outcome, Refusal, SetMode, Store,
};
use nuthatch_server::loopback::Loopback;
use tokio::sync::oneshot;

/// See the module.
pub(crate) struct Scripted {
    state: Mutex<State>,
}

struct State {
    server: Loopback,
    /// Answers are made at once and kept back until they are let go.
    holds: bool,
    kept_back: VecDeque<oneshot::Sender<()>>,
    /// Why nothing is answered.
    down: Option<String>,
    /// How often each key was looked up.
    gets: HashMap<Vec<u8>, u64>,
    ops: u64,
    /// Round trips: each look-up of keys, and operations that were asked for between two of them.
    rounds: u64,
    is_round_of_ops: bool,
    changes: Option<Box<dyn Changes>>,
}

impl Scripted {
    pub(crate) fn new() -> Arc<Scripted> {
        let server = Loopback::new(64 << 20);
        let (kept_back, gets) = (VecDeque::new(), HashMap::new());
        let (down, changes, is_round_of_ops) = (None, None, false);
        let state = State { server, holds: false, kept_back, down, gets, ops: 0, rounds: 0, is_round_of_ops, changes };
        Arc::new(Scripted { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// Keeps back the answers to what is asked from now on. It is carried out all the same.
    pub(crate) fn hold(&self) {
        self.state().holds = true;
    }

    /// Lets go of everything, and keeps nothing back from now on.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        state.holds = false;
        state.kept_back.drain(..).for_each(|answer| _ = answer.send(()));
    }

    /// Lets go of one answer: the oldest that is kept back, or the newest.
    pub(crate) fn release_one(&self, newest: bool) {
        let mut state = self.state();
        let answer = if newest { state.kept_back.pop_back() } else { state.kept_back.pop_front() };
        let _ = answer.expect("an answer is kept back").send(());
    }

    /// How many answers are kept back.
    pub(crate) fn kept_back(&self) -> usize {
        self.state().kept_back.len()
    }

    /// Refuses everything from now on with this sentence, or nothing.
    pub(crate) fn set_down(&self, why: Option<&str>) {
        self.state().down = why.map(str::to_owned);
    }

    /// How often `key` was looked up.
    pub(crate) fn gets(&self, key: &str) -> u64 {
        self.state().gets.get(key.as_bytes()).copied().unwrap_or(0)
    }

    /// Operations carried out.
    pub(crate) fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Round trips that its clients waited for, one client after the other.
    pub(crate) fn rounds(&self) -> u64 {
        self.state().rounds
    }

    /// Says something to the server behind, as another of its clients would.
    pub(crate) fn aside(&self, request: &str) -> String {
        String::from_utf8_lossy(&self.state().server.answers(request.as_bytes())).into_owned()
    }

    /// Tells of changes.
    pub(crate) fn tell(&self, tell: impl FnOnce(&mut dyn Changes)) {
        tell(&mut **self.state().changes.as_mut().expect("the server follows"));
    }

    /// Whether the server listens to changes by now.
    pub(crate) fn is_followed(&self) -> bool {
        self.state().changes.is_some()
    }

    /// Makes an answer now, to be given when it is let go.
    fn answer<T: Send + 'static>(
        &self,
        refuse: impl FnOnce(Refusal) -> T,
        make: impl FnOnce(&mut State) -> T,
    ) -> Later<T> {
        let mut state = self.state();
        let answer = match &state.down {
            Some(why) => refuse(Refusal::down(why)),
            None => make(&mut state),
        };
        if !state.holds {
            return Box::pin(async move { answer });
        }
        let (let_go, held) = oneshot::channel();
        state.kept_back.push_back(let_go);
        Box::pin(async move {
            let _ = held.await;
            answer
        })
    }
}

impl Backend for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn get(&self, _: usize, keys: Vec<Key>) -> Later<Vec<Fetched>> {
        let count = keys.len();
        self.answer(
            |refusal| vec![Err(refusal); count],
            |state| {
                state.rounds += 1;
                state.is_round_of_ops = false;
                let look_up = |key: &Key| {
                    *state.gets.entry(key.to_vec()).or_default() += 1;
                    let mut request = Vec::new();
                    let flags = [b'f', b'c', b't', b'v'].map(Flag::Letter);
                    meta::get(&mut request, key, &flags).expect("a key");
                    item(&state.server.answers(&request))
                };
                keys.iter().map(look_up).collect()
            },
        )
    }

    fn apply(&self, _: usize, op: Op) -> Later<Done> {
        self.answer(Err, |state| {
            state.ops += 1;
            state.rounds += u64::from(!std::mem::replace(&mut state.is_round_of_ops, true));
            carry_out(&mut state.server, &op)
        })
    }

    fn follow(self: Arc<Self>, changes: Box<dyn Changes>) -> Option<Later<()>> {
        self.state().changes = Some(changes);
        None
    }
}

/// Meta requests know 31 bits of a time, binary ones 32.
fn clamped(exptime: i64) -> i64 {
    exptime.min(i64::from(i32::MAX))
}

fn parse(answer: &[u8]) -> Reply<'_> {
    match reply::parse(answer) {
        Step::Done { reply, used } if used == answer.len() => reply,
        other => panic!("{other:?} of {:?}", String::from_utf8_lossy(answer)),
    }
}

fn marks(meta: &reply::Meta<'_>) -> Marks {
    let has = |letter| meta.flag(letter).is_some();
    Marks { won: has(b'W'), stale: has(b'X'), sent: has(b'Z') }
}

fn life(meta: &reply::Meta<'_>) -> Life {
    match meta.flag(b't') {
        None => Life::Unknown,
        Some(b"-1") => Life::Forever,
        Some(_) => Life::Seconds(meta.number(b't').expect("a number") as u32),
    }
}

fn item(answer: &[u8]) -> Fetched {
    match parse(answer) {
        Reply::Meta(meta) if meta.code == Code::Va => Ok(Some(Item {
            flags: meta.number(b'f').unwrap_or(0) as u32,
            cas: meta.number(b'c').unwrap_or(0),
            life: life(&meta),
            marks: marks(&meta),
            value: meta.value.to_vec().into(),
        })),
        Reply::Meta(_) => Ok(None),
        other => Err(Refusal::no(format_args!("{other:?}"))),
    }
}

fn carry_out(server: &mut Loopback, op: &Op) -> Done {
    let mut request = Vec::new();
    let compare = |compare: &Option<u64>| compare.map(|cas| Flag::Unsigned(b'C', cas));
    match op {
        Op::Store(Store { key, mode, compare: cas, flags, exptime, value }) => {
            let mode: &[u8] = match mode {
                SetMode::Set => b"S",
                SetMode::Add => b"E",
                SetMode::Replace => b"R",
                SetMode::Append => b"A",
                SetMode::Prepend => b"P",
            };
            let mut said = vec![Flag::Text(b'M', mode), Flag::Letter(b'c'), Flag::Unsigned(b'F', u64::from(*flags))];
            said.push(Flag::Signed(b'T', clamped(*exptime)));
            said.extend(compare(cas));
            meta::set(&mut request, key, value, &said).expect("a store");
        }
        Op::Delete { key, compare: cas } => {
            meta::delete(&mut request, key, &compare(cas).into_iter().collect::<Vec<_>>()).expect("a deletion");
        }
        Op::Arith(Arith { key, decrement, delta, initial, compare: cas }) => {
            let mut said = vec![Flag::Letter(b'v'), Flag::Letter(b'c'), Flag::Unsigned(b'D', *delta)];
            said.push(Flag::Text(b'M', if *decrement { b"D" } else { b"I" }));
            if let Some((value, exptime)) = initial {
                said.extend([Flag::Unsigned(b'J', *value), Flag::Signed(b'N', clamped(*exptime))]);
            }
            said.extend(compare(cas));
            meta::arith(&mut request, key, &said).expect("a count");
        }
        Op::Touch { key, exptime } if key.iter().all(|&byte| byte > b' ' && byte != 0x7f) => {
            text::touch(&mut request, key, clamped(*exptime) as i32, false).expect("a touch");
        }
        Op::Touch { key, exptime } => {
            meta::get(&mut request, key, &[Flag::Signed(b'T', clamped(*exptime))]).expect("a touch");
        }
        Op::GetAndTouch { key, exptime } => {
            let mut said = [b'f', b'c', b'v'].map(Flag::Letter).to_vec();
            said.push(Flag::Signed(b'T', clamped(*exptime)));
            meta::get(&mut request, key, &said).expect("a touch");
            return item(&server.answers(&request)).map(|item| item.map_or(Outcome::NotFound, Outcome::Item));
        }
        Op::Meta(meta) => return carry_out_meta(server, meta),
        Op::Flush { delay } => text::flush_all(
            &mut request,
            Some(i32::try_from(*delay).expect("a delay")).filter(|delay| *delay > 0),
            false,
        ),
        Op::ForgetPrefix(prefix) => text::forget(&mut request, Forget::Prefix(prefix), false).expect("a prefix"),
        Op::ForgetTag(tag) => text::forget(&mut request, Forget::Tag(tag), false).expect("a tag"),
        other => return Err(Refusal::no(format_args!("{other:?}"))),
    }
    let answer = server.answers(&request);
    Ok(match (op, parse(&answer)) {
        (Op::Flush { .. }, Reply::Ok) => Outcome::Flushed,
        (Op::ForgetPrefix(_) | Op::ForgetTag(_), Reply::Ok) => Outcome::Forgotten,
        (_, Reply::Error(line)) if line.ends_with(b"object too large for cache") => Outcome::TooLarge,
        (_, Reply::Error(line)) if line.ends_with(b"non-numeric value") => Outcome::NonNumeric,
        (_, Reply::Error(line)) => return Err(Refusal::no(String::from_utf8_lossy(line))),
        (Op::Touch { .. }, Reply::Touched) => Outcome::Touched,
        (Op::Touch { .. }, Reply::NotFound) => Outcome::NotFound,
        (Op::Touch { .. }, Reply::Meta(meta)) if meta.code == Code::Hd => Outcome::Touched,
        (_, Reply::Meta(meta)) => match meta.code {
            Code::Va => Outcome::Number {
                value: std::str::from_utf8(meta.value).expect("digits").parse().expect("a number"),
                cas: meta.number(b'c'),
            },
            Code::Hd if matches!(op, Op::Delete { .. }) => Outcome::Deleted,
            Code::Hd => Outcome::Stored { cas: meta.number(b'c') },
            Code::Ns => Outcome::NotStored,
            Code::Ex => Outcome::Exists,
            Code::En | Code::Nf => Outcome::NotFound,
        },
        (_, other) => panic!("{other:?}"),
    })
}

fn carry_out_meta(server: &mut Loopback, meta: &Meta) -> Done {
    let flags: Vec<Flag<'_>> = meta
        .flags
        .split(|&byte| byte == b' ')
        .filter(|flag| !flag.is_empty())
        .map(|flag| if flag.len() == 1 { Flag::Letter(flag[0]) } else { Flag::Text(flag[0], &flag[1..]) })
        .collect();
    let mut request = Vec::new();
    match meta.verb {
        MetaVerb::Get => nuthatch_proto::client::meta::get(&mut request, &meta.key, &flags),
        MetaVerb::Set => nuthatch_proto::client::meta::set(&mut request, &meta.key, &meta.value, &flags),
        MetaVerb::Delete => nuthatch_proto::client::meta::delete(&mut request, &meta.key, &flags),
        MetaVerb::Arith => nuthatch_proto::client::meta::arith(&mut request, &meta.key, &flags),
        MetaVerb::Debug => nuthatch_proto::client::meta::debug(&mut request, &meta.key),
    }
    .expect("a meta command");
    let answer = server.answers(&request);
    if let Some(rest) = answer.strip_prefix(b"ME ") {
        let rest = rest.splitn(2, |&byte| byte == b' ').nth(1).unwrap_or_default();
        let flags = rest.trim_ascii_end().into();
        return Ok(Outcome::Meta(MetaAnswer { code: *b"ME", flags, value: None }));
    }
    match parse(&answer) {
        Reply::Meta(said) => {
            let code = match said.code {
                Code::Va => b"VA",
                Code::Hd => b"HD",
                Code::En => b"EN",
                Code::Ns => b"NS",
                Code::Ex => b"EX",
                Code::Nf => b"NF",
            };
            let flags = said.flags().collect::<Vec<_>>().join(&b' ').into();
            let value = (said.code == Code::Va).then(|| said.value.to_vec().into());
            Ok(Outcome::Meta(MetaAnswer { code: *code, flags, value }))
        }
        Reply::Error(line) if line.ends_with(b"non-numeric value") => Ok(Outcome::NonNumeric),
        Reply::Error(line) if line.ends_with(b"object too large for cache") => Ok(Outcome::TooLarge),
        Reply::Error(line) => Err(Refusal::no(String::from_utf8_lossy(line))),
        other => panic!("{other:?}"),
    }
}
