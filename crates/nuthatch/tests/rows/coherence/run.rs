//! Writers and readers that go on whatever happens, and what they noticed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use nuthatch_testkit::dice::Dice;

use super::history::{End, History, Read, SERVERS, Via};
use super::sql::{Place, Sql};
use crate::servers::{Got, Wire};

const WRITERS: usize = 3;
const READERS: usize = 4;
/// How many keys each writer has at a time.
const KEYS_EACH: usize = 4;

/// Of so many wrongs it is told how they came about.
const STORIES_MAX: usize = 3;

/// A row and what is known of it.
pub(crate) struct Key {
    name: String,
    history: Mutex<History>,
}

impl Key {
    fn with<T>(&self, ask: impl FnOnce(&mut History) -> T) -> T {
        ask(&mut self.history.lock().expect("nobody panics while it is held"))
    }

    fn value(&self, version: usize) -> String {
        format!("{}:{version}", self.name)
    }

    /// The version in a value of this key's.
    fn version(&self, value: &str) -> Result<usize, String> {
        let version = value.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        version.ok_or_else(|| format!("{value:?} was read and never written"))
    }
}

/// What was noticed while one thing happened.
#[derive(Debug)]
pub(crate) struct Tally {
    what: String,
    began: Instant,
    pub(crate) reads: AtomicU64,
    pub(crate) reads_refused: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unknown: AtomicU64,
    /// For how long what was read had been replaced.
    pub(crate) stale: Mutex<Vec<Duration>>,
}

impl Tally {
    fn new(what: &str) -> Tally {
        Tally {
            what: what.to_owned(),
            began: Instant::now(),
            reads: AtomicU64::new(0),
            reads_refused: AtomicU64::new(0),
            written: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            stale: Mutex::default(),
        }
    }
}

/// What all threads share.
pub(crate) struct Run {
    place: Place,
    sockets: [PathBuf; SERVERS],
    /// A copy may be older than what others wrote by this and no more.
    window: Duration,
    /// What was acknowledged to anyone is there for the next who writes, by whichever way.
    at_once: bool,
    /// Keys that are written, by their writers.
    live: RwLock<Vec<Arc<Key>>>,
    all: Mutex<Vec<Arc<Key>>>,
    made: AtomicUsize,
    stop: AtomicBool,
    /// Held for writing, it stands the writers still.
    gate: RwLock<()>,
    tally: RwLock<Arc<Tally>>,
    wrong: Mutex<Vec<String>>,
}

impl Run {
    pub(crate) fn new(place: Place, sockets: [PathBuf; SERVERS], window: Duration, at_once: bool) -> Run {
        Run {
            place,
            sockets,
            window,
            at_once,
            live: RwLock::default(),
            all: Mutex::default(),
            made: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            gate: RwLock::default(),
            tally: RwLock::new(Arc::new(Tally::new("the beginning"))),
            wrong: Mutex::default(),
        }
    }

    /// Writes and reads by many threads while `meanwhile` runs; then asks the database what is there. What was wrong.
    pub(crate) fn go(&self, seed: u64, meanwhile: impl FnOnce()) -> Vec<String> {
        *self.live.write().expect("no thread panics") = (0..WRITERS * KEYS_EACH).map(|_| self.fresh()).collect();
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&self.stop);
            for number in 0..WRITERS {
                scope.spawn(move || self.write(number, Dice::seeded(seed + number as u64)));
            }
            for number in 0..READERS {
                scope.spawn(move || self.read(number, Dice::seeded(seed + 100 + number as u64)));
            }
            meanwhile();
        });
        let mut sql = Sql::new(&self.place);
        for key in self.all.lock().expect("no thread panics").iter() {
            let found =
                sql.get(&key.name).expect("the database is up again").map(|value| key.version(&value)).transpose();
            if let Err(why) = found.and_then(|found| key.with(|history| history.ends_with(found, Instant::now()))) {
                self.wrong(&format!("{}: {why}", key.name));
            }
        }
        std::mem::take(&mut self.wrong.lock().expect("no thread panics"))
    }

    /// From now on something else happens: what is noticed is counted for it.
    pub(crate) fn tally(&self, what: &str) -> Arc<Tally> {
        let tally = Arc::new(Tally::new(what));
        *self.tally.write().expect("no thread panics") = Arc::clone(&tally);
        tally
    }

    /// Stands the writers still and waits until both servers show what the database has; how long that took.
    pub(crate) fn settle(&self) -> Duration {
        let _still = self.gate.write().expect("no thread panics");
        let began = Instant::now();
        let mut sql = Sql::new(&self.place);
        let live = self.live.read().expect("no thread panics").clone();
        let mut wires = self.sockets.each_ref().map(|socket| Wire::new(socket));
        for key in live {
            for (number, wire) in wires.iter_mut().enumerate() {
                loop {
                    // Read each time: a node of a cluster that has just come back may not have it all yet.
                    let there = sql.get(&key.name);
                    let got = wire.get("get", &key.name);
                    let is_there = match (&there, &got) {
                        (Ok(Some(there)), Ok(Got::Value(value, _))) => value == there,
                        (Ok(None), Ok(Got::Nothing)) => true,
                        _ => false,
                    };
                    if is_there {
                        break;
                    }
                    if began.elapsed() > self.window {
                        let which = &key.name;
                        self.wrong(&format!(
                            "{which}: the table has {there:?} and server {number} answers {got:?} for good"
                        ));
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
        began.elapsed()
    }

    /// Something is wrong: what, and what happened at the time.
    fn wrong(&self, what: &str) {
        let now = self.now();
        let during = format!("{what} ({:?} after the beginning of {})", now.began.elapsed(), now.what);
        self.wrong.lock().expect("no thread panics").push(during);
    }

    /// Judges what a client found under a key, and counts it.
    fn judge(&self, key: &Key, client: usize, server: usize, (begun, got, ended): (Instant, &Got, Instant)) {
        let found = match got {
            Got::Value(value, _) => key.version(value).map(Some),
            Got::Nothing => Ok(None),
            Got::Refused(_) => return,
        };
        let read = |found| Read { client, server, found, begun, ended };
        let judged = found.and_then(|found| key.with(|history| history.read(read(found), self.window)));
        match judged {
            Ok(age) => {
                let tally = self.now();
                tally.reads.fetch_add(1, Ordering::Relaxed);
                if age > Duration::ZERO {
                    tally.stale.lock().expect("no thread panics").push(age);
                }
            }
            Err(why) => {
                let tells = self.wrong.lock().expect("no thread panics").len() < STORIES_MAX;
                let story = if tells { key.with(|history| history.story(ended)) } else { String::new() };
                self.wrong(&format!("{}, server {server}: {why}\n{story}", key.name));
            }
        }
    }

    fn now(&self) -> Arc<Tally> {
        Arc::clone(&self.tally.read().expect("no thread panics"))
    }

    fn fresh(&self) -> Arc<Key> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let key = Arc::new(Key { name: format!("bird{number}"), history: Mutex::default() });
        self.all.lock().expect("no thread panics").push(Arc::clone(&key));
        key
    }

    fn write(&self, number: usize, mut dice: Dice) {
        let mut sql = Sql::new(&self.place);
        let mut wires = self.sockets.each_ref().map(|socket| Wire::new(socket));
        while !self.stop.load(Ordering::Relaxed) {
            let open = self.gate.read().expect("no thread panics");
            let slot = number * KEYS_EACH + dice.usize(..KEYS_EACH);
            let key = Arc::clone(&self.live.read().expect("no thread panics")[slot]);
            let end = match dice.usize(..4) {
                0 | 1 => self.write_sql(&key, &mut sql, dice.usize(..10) == 0),
                server => {
                    self.write_wire(&key, server - 2, &mut wires[server - 2], (READERS + number, dice.usize(..10)))
                }
            };
            let tally = self.now();
            let count = match end {
                End::Acknowledged => &tally.written,
                End::Refused => &tally.refused,
                End::Unknown => {
                    // What may still be written by who was not heard of comes behind nothing else.
                    self.live.write().expect("no thread panics")[slot] = self.fresh();
                    &tally.unknown
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
            drop(open);
            let pause = if end == End::Acknowledged { dice.usize(..4) } else { 10 };
            std::thread::sleep(Duration::from_millis(pause as u64));
        }
    }

    fn write_sql(&self, key: &Key, sql: &mut Sql, deletes: bool) -> End {
        let version = key.with(|history| history.begin(deletes, Via::Sql, Instant::now()));
        let value = (!deletes).then(|| key.value(version));
        let end = if sql.put(&key.name, value.as_deref()).is_ok() { End::Acknowledged } else { End::Unknown };
        key.with(|history| history.end(end, Instant::now()));
        end
    }

    fn write_wire(&self, key: &Key, server: usize, wire: &mut Wire, (client, what): (usize, usize)) -> End {
        let name = &key.name;
        let before = key.with(|history| history.newest());
        let seen = match what {
            1..4 => {
                let begun = Instant::now();
                let got = wire.get("gets", name);
                got.iter().for_each(|got| self.judge(key, client, server, (begun, got, Instant::now())));
                match got {
                    Ok(Got::Value(value, Some(unique))) => Some((value, unique)),
                    _ => None,
                }
            }
            _ => None,
        };
        let deletes = what == 0;
        let version = key.with(|history| history.begin(deletes, Via::Server(server), Instant::now()));
        let value = key.value(version);
        let bytes = value.len();
        let request = match (&seen, deletes) {
            (_, true) => format!("delete {name}\r\n"),
            (Some((_, unique)), _) => format!("cas {name} 0 0 {bytes} {unique}\r\n{value}\r\n"),
            (None, _) => format!("set {name} 0 0 {bytes}\r\n{value}\r\n"),
        };
        let answer = wire.ask(&request);
        let end = match answer.as_deref() {
            Ok("STORED" | "DELETED") => End::Acknowledged,
            // A row that is not there is as good as deleted, unless it is on its way to this node of a cluster.
            Ok("NOT_FOUND") if deletes && (self.at_once || !before.1) => End::Acknowledged,
            Ok("EXISTS" | "NOT_FOUND") => End::Refused,
            Ok(refused) if refused.contains("is not known") => End::Unknown,
            Ok(refused) if refused.starts_with("SERVER_ERROR") => End::Refused,
            Ok(other) => {
                self.wrong(&format!("{name}: server {server} answered {other} to a write"));
                End::Unknown
            }
            Err(_) => End::Unknown,
        };
        key.with(|history| history.end(end, Instant::now()));
        match (answer.as_deref(), seen) {
            (Ok("STORED"), Some((value, _))) if value != key.value(before.0) => {
                let newest = before.0;
                self.wrong(&format!(
                    "{name}: server {server} compared and swapped {value} where {newest} was the newest"
                ));
            }
            (Ok("NOT_FOUND"), _) if deletes && before.1 && self.at_once => {
                self.wrong(&format!(
                    "{name}: server {server} found nothing to delete, but version {} is there",
                    before.0
                ));
            }
            (Ok("DELETED"), _) if !before.1 && self.at_once => {
                self.wrong(&format!("{name}: server {server} deleted what had been deleted"));
            }
            _ => {}
        }
        end
    }

    fn read(&self, client: usize, mut dice: Dice) {
        let server = client % SERVERS;
        let mut wire = Wire::new(&self.sockets[server]);
        while !self.stop.load(Ordering::Relaxed) {
            let key = Arc::clone(&self.live.read().expect("no thread panics")[dice.usize(..WRITERS * KEYS_EACH)]);
            let begun = Instant::now();
            match wire.get("get", &key.name) {
                Ok(Got::Refused(_)) | Err(_) => {
                    self.now().reads_refused.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(got) => self.judge(&key, client, server, (begun, &got, Instant::now())),
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// So that no thread goes on when the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
