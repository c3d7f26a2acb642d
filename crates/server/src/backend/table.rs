//! A SQL table behind a pool: a backend's words turned into [`nuthatch_rows`]' and back.
//!
//! Owns what the two mean differently (expiry times, meta flags, the second name `@@TABLE.KEY` of a row's key) and nothing of
//! tables themselves. A row has no recache marks, so meta commands that need them are refused with a sentence.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use nuthatch_rows as rows;
use nuthatch_rows::{Change, Lane, Table};

use super::{
    Arith, Backend, Changes, Done, Fetched, Item, Key, Later, Life, Marks, Meta, MetaAnswer, MetaVerb, Op, Outcome,
    Ranged, Refusal, Store,
};
use crate::per_worker::PerWorker;
use crate::settings::TableSettings;

/// Asks a table's database whether it is there and the mapping fits; what the mapping gives up.
///
/// # Errors
/// Why it does not, or cannot be told.
pub fn check(settings: &TableSettings) -> Result<Vec<String>, rows::Error> {
    let table = Table::open_checked(settings.rows.clone(), Arc::new(now))?;
    Ok(table.layout().map(|layout| layout.notes().to_vec()).unwrap_or_default())
}

/// SQL that makes a table's database tell of changes by others, or a sentence that says what it needs instead.
///
/// # Errors
/// When the database cannot be asked for the table's columns.
pub fn triggers(settings: &TableSettings) -> Result<String, rows::Error> {
    let table = Table::open_checked(settings.rows.clone(), Arc::new(now))?;
    let layout = table.layout().ok_or_else(|| rows::Error::Settings("the table was not seen".to_owned()))?;
    Ok(match settings.rows.database.engine() {
        rows::Engine::Postgres => rows::triggers(&settings.rows, &layout),
        rows::Engine::Mysql => {
            "-- MySQL and MariaDB tell of changes by their binary log: set log_bin, and grant the user\n\
             -- REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR). No trigger is needed.\n"
                .to_owned()
        }
        rows::Engine::Sqlite => {
            "-- SQLite tells of changes by every connection to the file. No trigger is needed.\n".to_owned()
        }
    })
}

/// What stands behind a pool that is switched off.
#[derive(Debug, Default)]
pub(crate) struct Disabled;

const DISABLED: &str = "this pool is disabled";

impl Backend for Disabled {
    fn name(&self) -> &str {
        "disabled"
    }

    fn get(&self, _worker: usize, keys: Vec<Key>) -> Later<Vec<Fetched>> {
        Box::pin(async move { keys.iter().map(|_| Err(Refusal::no(DISABLED))).collect() })
    }

    fn apply(&self, _worker: usize, _op: Op) -> Later<Done> {
        Box::pin(async { Err(Refusal::no(DISABLED)) })
    }
}

/// Above this an expiry time is a moment, below it a duration: 30 days (memcached's `doc/protocol.txt`).
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// A table behind a pool.
pub struct TableBackend {
    name: String,
    table: Table,
    /// What clients may put before a key: `@@NAME.`, or with another delimiter.
    prefix: Vec<u8>,
    flush: bool,
    range_max: u32,
    names: Arc<Names>,
    /// How many workers have connections of their own, and those.
    lanes_max: usize,
    lanes: PerWorker<Mutex<Option<Lane>>>,
}

/// Rows go by two names each, and whoever keeps copies has to hear of both.
#[derive(Default)]
struct Names {
    /// Anyone has used the longer one.
    both: AtomicBool,
    told: Mutex<Told>,
}

/// Who is told of changes. A reload may give a table another who keeps copies.
#[derive(Default)]
struct Told {
    /// With its number, counted from 1.
    who: Option<(u64, Box<dyn Changes>)>,
    numbers: u64,
    /// Whether changes are heard of, or why not, once that is known.
    stands: Option<Result<(), String>>,
}

impl Told {
    /// Says how it stands, and that all may have changed if changes are heard of from now on.
    fn stands(&mut self) {
        let (Some((_, who)), Some(stands)) = (&mut self.who, &self.stands) else { return };
        match stands {
            Ok(()) => {
                who.following(true, "");
                who.gap();
            }
            Err(why) => who.following(false, why),
        }
    }
}

impl Names {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, tell: impl FnOnce(&mut dyn Changes)) {
        if let Some((_, who)) = &mut self.told().who {
            tell(&mut **who);
        }
    }

    /// Changes are heard of from now on, or not.
    fn stands(&self, stands: Result<(), String>) {
        let mut told = self.told();
        told.stands = Some(stands);
        told.stands();
    }
}

impl TableBackend {
    /// `table` as the backend called `name`; `flush` allows `flush_all` to delete every row.
    pub fn new(name: &str, table: Table, flush: bool) -> TableBackend {
        TableBackend {
            name: format!("table {name}"),
            table,
            prefix: prefix(name, DELIMITER),
            flush,
            range_max: RANGE_MAX,
            names: Arc::new(Names::default()),
            lanes_max: LANES_MAX,
            lanes: PerWorker::default(),
        }
    }

    /// As `settings` say, without a word to the database yet.
    ///
    /// # Errors
    /// When the settings contradict themselves.
    pub(crate) fn unchecked(settings: &TableSettings) -> Result<TableBackend, rows::Error> {
        let table = Table::open(settings.rows.clone(), Arc::new(now))?;
        let backend = TableBackend::new(&settings.rows.name, table, settings.flush);
        let prefix = prefix(&settings.rows.name, &settings.delimiter);
        Ok(TableBackend { prefix, range_max: settings.range_max, lanes_max: settings.lanes, ..backend })
    }

    /// Opens a table of the settings, which takes up to half of its `timeout`. A database that is away is no reason not to: it is
    /// asked again, and until it answers, every answer is why it does not.
    ///
    /// # Errors
    /// When the mapping does not fit the real table.
    pub fn open(settings: &TableSettings) -> Result<Arc<TableBackend>, rows::Error> {
        let backend = TableBackend::unchecked(settings)?;
        match backend.table.check() {
            Err(error) if !error.is_outage() => Err(error),
            _ => Ok(Arc::new(backend)),
        }
    }

    /// The key of the row, and whether it was given by its longer name.
    fn key<'k>(&self, key: &'k [u8]) -> (&'k [u8], bool) {
        match key.strip_prefix(&self.prefix[..]) {
            Some(rest) => {
                self.names.both.store(true, Ordering::Relaxed);
                (rest, true)
            }
            None => (key, false),
        }
    }

    /// Copies under the other name of a row that is about to be changed, or was.
    fn other_name(&self, key: &[u8], longer: bool) -> Option<Vec<u8>> {
        self.names.both.load(Ordering::Relaxed).then(|| match longer {
            true => key.to_vec(),
            false => [&self.prefix, key].concat(),
        })
    }

    /// Has the table tell of changes, for as long as it is open.
    fn listen(&self) {
        let (names, prefix) = (Arc::clone(&self.names), self.prefix.clone());
        let listened = self.table.subscribe(Box::new(move |change| match change {
            Change::Key(key) => names.tell(|changes| {
                changes.changed(key);
                if names.both.load(Ordering::Relaxed) {
                    changes.changed(&[&prefix[..], key].concat());
                }
            }),
            Change::Gap => names.stands(Ok(())),
            Change::Away(why) => names.stands(Err(why.clone())),
            _ => names.tell(|changes| changes.gap()),
        }));
        if let Err(error) = listened {
            self.names.stands(Err(error.to_string()));
        }
    }

    /// Calls `ask` with the calling worker's own connections, if it may have some.
    fn with_lane<T>(&self, worker: usize, ask: impl FnOnce(Option<&Lane>) -> T) -> T {
        if worker >= self.lanes_max {
            return ask(None);
        }
        let mut lane = self.lanes.of(worker).lock().unwrap_or_else(PoisonError::into_inner);
        // One whose worker has gone was another's of the same number.
        if lane.as_ref().is_none_or(Lane::is_over) {
            *lane = self.table.lane();
        }
        ask(lane.as_ref())
    }

    fn lanes(&self) -> impl Iterator<Item = MutexGuard<'_, Option<Lane>>> {
        self.lanes.iter().map(|(_, lane)| lane.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, worker: usize, key: &[u8], op: impl FnOnce(Vec<u8>) -> rows::Op, answer: Answer) -> Later<Done> {
        let (key, longer) = self.key(key);
        if !longer && names_a_table(key) {
            // It was meant for another table than this one.
            let shown = key[..key.len().min(40)].escape_ascii();
            let refusal = Refusal::no(format_args!("{}: no table has keys such as {shown}", self.name));
            return Box::pin(async { Err(refusal) });
        }
        let (names, other) = (Arc::clone(&self.names), self.other_name(key, longer));
        let op = op(key.to_vec());
        let changed = self.with_lane(worker, |lane| match lane {
            Some(lane) => lane.apply(op),
            None => self.table.apply(op),
        });
        Box::pin(async move {
            let done = changed.await;
            if let Some(other) = other {
                names.tell(|changes| changes.changed(&other));
            }
            match done {
                Ok(done) => answer(done),
                Err(error) => Err(refusal(&error)),
            }
        })
    }
}

/// How many workers have connections of their own, unless the settings say so.
const LANES_MAX: usize = 4;

/// What stands between a table's name and a key, unless the settings say so.
const DELIMITER: &str = ".";

/// How many rows a range brings, unless the settings say so.
const RANGE_MAX: u32 = 1000;

/// The range that `key` writes: `@>`, `@>=`, `@<` or `@<=` and a bound, or one of each direction behind each other.
fn range_of(key: &[u8]) -> Option<rows::Range> {
    let mut range = rows::Range::default();
    let mut rest = key;
    while !rest.is_empty() {
        let (is_lower, behind) = match rest {
            [b'@', b'>', behind @ ..] => (true, behind),
            [b'@', b'<', behind @ ..] => (false, behind),
            _ => return None,
        };
        let (inclusive, behind) = behind.strip_prefix(b"=").map_or((false, behind), |behind| (true, behind));
        let end = behind.windows(2).position(|two| two == b"@>" || two == b"@<").unwrap_or(behind.len());
        let (bound, next) = behind.split_at(end);
        let side = if is_lower { &mut range.from } else { &mut range.to };
        if bound.is_empty() || side.replace((bound.to_vec(), inclusive)).is_some() {
            return None;
        }
        rest = next;
    }
    (range.from.is_some() || range.to.is_some()).then_some(range)
}

/// What is put before a key to name its table.
pub(crate) fn prefix(name: &str, delimiter: &str) -> Vec<u8> {
    format!("@@{name}{delimiter}").into_bytes()
}

/// Whether a key is written as if it named its table: `@@NAME.KEY`, whatever stands for the dot.
fn names_a_table(key: &[u8]) -> bool {
    let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let behind = key.strip_prefix(b"@@").and_then(|rest| rest.iter().position(|byte| !is_of_names(byte)));
    behind.is_some_and(|at| at > 0)
}

type Answer = Box<dyn FnOnce(rows::Done) -> Done + Send>;

fn plain(done: rows::Done) -> Done {
    Ok(match done {
        // A copy of what was sent would not be what the row holds.
        rows::Done::Stored { unique, as_sent } => Outcome::Stored { cas: as_sent.then_some(unique) },
        rows::Done::NotStored => Outcome::NotStored,
        rows::Done::Exists => Outcome::Exists,
        rows::Done::NotFound => Outcome::NotFound,
        rows::Done::Deleted => Outcome::Deleted,
        rows::Done::Counted { number, unique, .. } => Outcome::Number { value: number, cas: Some(unique) },
        rows::Done::NonNumeric => Outcome::NonNumeric,
        rows::Done::Touched(_) => Outcome::Touched,
    })
}

fn refusal(error: &rows::Error) -> Refusal {
    if error.is_outage() { Refusal::down(error) } else { Refusal::no(error) }
}

impl Backend for TableBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn get(&self, worker: usize, keys: Vec<Key>) -> Later<Vec<Fetched>> {
        let count = keys.len();
        let keys = keys.iter().map(|key| self.key(key).0.to_vec()).collect();
        let found = self.with_lane(worker, |lane| match lane {
            Some(lane) => lane.get_many(keys),
            None => self.table.get_many(keys),
        });
        Box::pin(async move {
            match found.await {
                Ok(items) => {
                    let now = now();
                    items.into_iter().map(|found| Ok(found.map(|found| item(found, now)))).collect()
                }
                Err(error) => vec![Err(refusal(&error)); count],
            }
        })
    }

    fn apply(&self, worker: usize, op: Op) -> Later<Done> {
        match op {
            Op::Store(Store { key, mode, compare, flags, exptime, value }) => {
                let (expiry, value) = (moment(exptime), value.to_vec());
                let op = |key| rows::Op::Store { key, mode, compare, flags, expiry, value, vivify: None };
                self.change(worker, &key, op, Box::new(plain))
            }
            Op::Delete { key, compare } => {
                self.change(worker, &key, |key| rows::Op::Delete { key, compare }, Box::new(plain))
            }
            Op::Arith(Arith { key, decrement, delta, initial, compare }) => {
                let initial = initial.map(|(number, exptime)| (number, moment(exptime)));
                let op = |key| rows::Op::Arith { key, delta, down: decrement, compare, initial, touch: None };
                self.change(worker, &key, op, Box::new(plain))
            }
            Op::Touch { key, exptime } => {
                self.change(worker, &key, |key| rows::Op::Touch { key, expiry: moment(exptime) }, Box::new(plain))
            }
            Op::GetAndTouch { key, exptime } => {
                let answer = |done| match done {
                    rows::Done::Touched(found) => Ok(Outcome::Item(item(found, now()))),
                    other => plain(other),
                };
                self.change(worker, &key, |key| rows::Op::Touch { key, expiry: moment(exptime) }, Box::new(answer))
            }
            Op::Meta(meta) => self.meta(worker, &meta),
            // Rows have no prefixes and tags of their own. The copies of them have, and those are the tier's to forget.
            Op::ForgetPrefix(_) | Op::ForgetTag(_) => Box::pin(async { Ok(Outcome::Forgotten) }),
            Op::Flush { delay } => {
                let refused = match (self.flush, delay) {
                    (false, _) => Some("flush_all would delete every row and is not allowed, see its key flush"),
                    (true, 1..) => Some("flush_all of rows takes no delay"),
                    _ => None,
                };
                if let Some(why) = refused {
                    let refusal = Refusal::no(format_args!("{}: {why}", self.name));
                    return Box::pin(async { Err(refusal) });
                }
                let flushed = self.table.flush();
                Box::pin(async { flushed.await.map(|_| Outcome::Flushed).map_err(|error| refusal(&error)) })
            }
        }
    }

    fn has_range(&self, key: &[u8]) -> bool {
        self.range_max > 0 && range_of(key.strip_prefix(&self.prefix[..]).unwrap_or(key)).is_some()
    }

    fn range(&self, _worker: usize, key: &[u8]) -> Later<Ranged> {
        // Rows are named as the range was.
        let (asked, prefix) = match key.strip_prefix(&self.prefix[..]) {
            Some(asked) => (asked, self.prefix.clone()),
            None => (key, Vec::new()),
        };
        let Some(range) = range_of(asked) else { return Box::pin(std::future::ready(Ok(Vec::new()))) };
        let ranged = self.table.range(rows::Range { limit: self.range_max, ..range });
        Box::pin(async move {
            let found = ranged.await.map_err(|error| refusal(&error))?;
            let now = now();
            Ok(found.into_iter().map(|(key, found)| ([&prefix[..], &key].concat().into(), item(found, now))).collect())
        })
    }

    fn is_table(&self) -> bool {
        true
    }

    fn follow(self: Arc<Self>, changes: Box<dyn Changes>) -> Option<Later<()>> {
        let number = {
            let mut told = self.names.told();
            told.numbers += 1;
            told.who = Some((told.numbers, changes));
            told.stands();
            told.numbers
        };
        if number == 1 {
            self.listen();
        }
        // Whoever is told ends with the pool's use of this table.
        let until = Until(Arc::clone(&self.names), number);
        Some(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(until);
        }))
    }

    fn tick(&self) {
        let now = Instant::now();
        self.lanes().for_each(|lane| lane.iter().for_each(|lane| lane.tick(now)));
    }

    fn counters(&self, show: &mut dyn FnMut(&str, &dyn fmt::Display)) {
        let stats = self.table.stats();
        for (name, number) in stats.each() {
            show(name, &number);
        }
        let each = stats.changes_committed as f64 / stats.commits.max(1) as f64;
        show("changes_per_commit", &format_args!("{each:.2}"));
        let waiting = self.lanes().flat_map(|lane| lane.as_ref().map(Lane::waiting)).sum::<usize>();
        show("waiting", &(self.table.waiting() + waiting));
        match self.table.stream_lag() {
            Some(lag) => show("stream_lag_ms", &lag.as_millis()),
            None => show("stream_lag_ms", &"unknown"),
        }
    }
}

/// Ends the telling of changes to the one with this number.
struct Until(Arc<Names>, u64);

impl Drop for Until {
    fn drop(&mut self) {
        self.0.told().who.take_if(|(number, _)| *number == self.1);
    }
}

impl TableBackend {
    /// Meta commands with flags that the plain ones have no place for.
    fn meta(&self, worker: usize, meta: &Meta) -> Later<Done> {
        let asked = MetaAsked::read(&meta.flags);
        let refuse = |why: &dyn fmt::Display| -> Later<Done> {
            let refusal = Refusal::no(format_args!("{}: {why}", self.name));
            Box::pin(async { Err(refusal) })
        };
        let known: &[u8] = match meta.verb {
            MetaVerb::Get => b"vfcstT",
            // Tags are a copy's, and what forgets one forgets all copies.
            MetaVerb::Set => b"FTCcsMNL",
            MetaVerb::Delete => b"C",
            MetaVerb::Arith => b"NJDTMCcvt",
            MetaVerb::Debug => return refuse(&"me tells of items in memory, rows are none"),
        };
        if let Some(letter) = asked.letters().find(|letter| !known.contains(letter)) {
            return refuse(&format_args!("meta flag {} means nothing to a row", char::from(letter).escape_default()));
        }
        let wanted: Vec<u8> = asked.letters().collect();
        match meta.verb {
            MetaVerb::Get => {
                let expiry = moment(asked.signed(b'T').unwrap_or(0));
                let answer = move |done| match done {
                    rows::Done::Touched(found) => meta_item(&wanted, found),
                    _ => meta_answer(b"EN", Vec::new(), None),
                };
                self.change(worker, &meta.key, |key| rows::Op::Touch { key, expiry }, Box::new(answer))
            }
            MetaVerb::Set => self.meta_set(worker, meta, &asked).unwrap_or_else(|why| refuse(&why)),
            MetaVerb::Delete => {
                let compare = asked.number(b'C');
                let answer = |done: rows::Done| meta_answer(code(&done), Vec::new(), None);
                self.change(worker, &meta.key, |key| rows::Op::Delete { key, compare }, Box::new(answer))
            }
            MetaVerb::Arith => {
                let initial = asked.signed(b'N').map(|exptime| (asked.number(b'J').unwrap_or(0), moment(exptime)));
                let down = asked.text(b'M').is_some_and(|mode| matches!(mode, b"D" | b"d" | b"-"));
                let (delta, touch) = (asked.number(b'D').unwrap_or(1), asked.signed(b'T').map(moment));
                let compare = asked.number(b'C');
                let op = |key| rows::Op::Arith { key, delta, down, compare, initial, touch };
                let answer = move |done| match done {
                    rows::Done::Counted { number, unique, expiry } => {
                        let value = number.to_string().into_bytes();
                        meta_item(&wanted, rows::Item { value, flags: 0, unique, expiry })
                    }
                    rows::Done::NonNumeric => Ok(Outcome::NonNumeric),
                    other => meta_answer(code(&other), Vec::new(), None),
                };
                self.change(worker, &meta.key, op, Box::new(answer))
            }
            MetaVerb::Debug => refuse(&"me tells of items in memory, rows are none"),
        }
    }

    fn meta_set(&self, worker: usize, meta: &Meta, asked: &MetaAsked<'_>) -> Result<Later<Done>, &'static str> {
        let mode = match asked.text(b'M').and_then(|mode| mode.first().map(u8::to_ascii_uppercase)) {
            None | Some(b'S') => rows::Mode::Set,
            Some(b'E') => rows::Mode::Add,
            Some(b'R') => rows::Mode::Replace,
            Some(b'A') => rows::Mode::Append,
            Some(b'P') => rows::Mode::Prepend,
            Some(_) => return Err("expected ms with a mode of S, E, R, A or P"),
        };
        let (compare, value) = (asked.number(b'C'), meta.value.to_vec());
        let flags = asked.number(b'F').and_then(|flags| u32::try_from(flags).ok()).unwrap_or(0);
        let expiry = moment(asked.signed(b'T').unwrap_or(0));
        let vivify = asked.signed(b'N').map(moment);
        let (wanted, bytes): (Vec<u8>, usize) = (asked.letters().collect(), meta.value.len());
        let answer = move |done| match done {
            rows::Done::Stored { unique, .. } => {
                let flags = wanted.iter().filter_map(|letter| match letter {
                    b'c' => Some(format!("c{unique}")),
                    b's' => Some(format!("s{bytes}")),
                    _ => None,
                });
                meta_answer(b"HD", flags.collect(), None)
            }
            other => meta_answer(code(&other), Vec::new(), None),
        };
        let op = |key| rows::Op::Store { key, mode, compare, flags, expiry, value, vivify };
        Ok(self.change(worker, &meta.key, op, Box::new(answer)))
    }
}

/// The flags of a meta command.
struct MetaAsked<'a>(Vec<&'a [u8]>);

impl<'a> MetaAsked<'a> {
    fn read(flags: &'a [u8]) -> MetaAsked<'a> {
        MetaAsked(flags.split(|byte| *byte == b' ').filter(|token| !token.is_empty()).collect())
    }

    fn letters(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(|token| token[0])
    }

    fn text(&self, letter: u8) -> Option<&'a [u8]> {
        self.0.iter().find_map(|token| token.strip_prefix(&[letter]))
    }

    fn number(&self, letter: u8) -> Option<u64> {
        std::str::from_utf8(self.text(letter)?).ok()?.parse().ok()
    }

    fn signed(&self, letter: u8) -> Option<i64> {
        std::str::from_utf8(self.text(letter)?).ok()?.parse().ok()
    }
}

/// What a meta command asked to be shown of an item, in the order it asked.
fn shown(wanted: &[u8], found: &rows::Item, now: i64) -> Vec<String> {
    let one = |letter: &u8| match letter {
        b'f' => Some(format!("f{}", found.flags)),
        b'c' => Some(format!("c{}", found.unique)),
        b's' => Some(format!("s{}", found.value.len())),
        b't' => Some(found.expiry.map_or("t-1".to_owned(), |expiry| format!("t{}", (expiry - now).max(0)))),
        _ => None,
    };
    wanted.iter().filter_map(one).collect()
}

/// An item as a meta command asked for it.
fn meta_item(wanted: &[u8], found: rows::Item) -> Done {
    let flags = shown(wanted, &found, now());
    match wanted.contains(&b'v') {
        true => meta_answer(b"VA", flags, Some(found.value.into())),
        false => meta_answer(b"HD", flags, None),
    }
}

fn meta_answer(code: &[u8; 2], flags: Vec<String>, value: Option<Bytes>) -> Done {
    Ok(Outcome::Meta(MetaAnswer { code: *code, flags: flags.join(" ").into_bytes().into(), value }))
}

fn code(done: &rows::Done) -> &'static [u8; 2] {
    match done {
        rows::Done::NotStored => b"NS",
        rows::Done::Exists => b"EX",
        rows::Done::NotFound => b"NF",
        _ => b"HD",
    }
}

fn item(found: rows::Item, now: i64) -> Item {
    let life = match found.expiry {
        None => Life::Forever,
        Some(expiry) => Life::Seconds(u32::try_from((expiry - now).max(0)).unwrap_or(u32::MAX)),
    };
    Item { flags: found.flags, cas: found.unique, life, marks: Marks::default(), value: found.value.into() }
}

/// The second it is, since 1970: what tables hold is compared with other programs' clocks.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// The moment that a client's expiry time means: none for 0, the past for a negative one.
fn moment(exptime: i64) -> Option<i64> {
    match exptime {
        0 => None,
        ..0 => Some(1),
        1..=RELATIVE_SECONDS_MAX => Some(now() + exptime),
        _ => Some(exptime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_as_the_plugin_s_was() {
        let bound = |key: &str, inclusive| Some((key.as_bytes().to_vec(), inclusive));
        let range = |from, to| Some(rows::Range { from, to, limit: 0 });
        assert_eq!(range_of(b"@>B"), range(bound("B", false), None));
        assert_eq!(range_of(b"@<=M"), range(None, bound("M", true)));
        assert_eq!(range_of(b"@>=B@<M"), range(bound("B", true), bound("M", false)));
        assert_eq!(range_of(b"@<M@>a@b"), range(bound("a@b", false), bound("M", false)));
        for none in ["@>", "@>=", "@>a@>b", "@", "a@>b", "", "@@t.@>a", "@>a@<"] {
            assert_eq!(range_of(none.as_bytes()), None, "{none}");
        }
    }
}
