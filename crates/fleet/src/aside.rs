//! Cache-aside: a database read through a fleet of memcached servers, without stampedes and without stale copies.
//!
//! Who misses a key is given a *lease* by its server: the key becomes an empty item whose CAS unique only he knows
//! (`mg` with `N`, memcached's `doc/protocol.txt`, "Meta Get"; the scheme is that of "Scaling Memcache at Facebook", 3.2.1). He
//! reads the database and stores what he found only if the item is still that one. Whoever changes the database deletes the key
//! when the change is committed, so a value that was read before is never stored after. Others who miss meanwhile wait for the
//! value, here or in other processes.
//!
//! What never happens: a value is stored that was read before a change that has been forgotten ([`Aside::forget`]); a key is read
//! from the database twice at a time while its server answers and nobody changes it, unless who reads takes longer than the patience;
//! a failure of the cache is an error of a read.
//!
//! Needs servers that know meta commands: memcached 1.6 or Nuthatch. A change whose process dies between the commit and the
//! deletion is seen when the copy expires, and so is one whose server was away and is asked again with what it had: leave
//! `on_down` at `Error` or `Miss` and restart such servers empty.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{Client, Error, MetaAnswer, MetaCode, MetaRequest, Word};

/// Marks a copy of nothing: that the database has no such row.
const FLAGS_ABSENT: u32 = 0x4e48_0001;

/// How often one who waits for another process looks whether the value is there: first, and at most.
const LOOK_FIRST: Duration = Duration::from_millis(2);
const LOOK_LAST: Duration = Duration::from_millis(50);

/// How copies are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsideSettings {
    /// How long a copy lives, in seconds; the bound on what nobody was told to forget.
    pub ttl_seconds: u32,
    /// How long it is remembered that the database has no such row, in seconds; 0: not at all.
    pub absent_seconds: u32,
    /// How long a lease is good, in seconds: longer than a read of the database takes.
    pub lease_seconds: u32,
    /// How long another's read is waited for, and a deletion is tried again.
    pub patience: Duration,
}

impl Default for AsideSettings {
    /// Five minutes, nothing remembered of absent rows, leases of ten seconds, a second of patience.
    fn default() -> AsideSettings {
        AsideSettings { ttl_seconds: 300, absent_seconds: 0, lease_seconds: 10, patience: Duration::from_secs(1) }
    }
}

/// What an [`Aside`] did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsideStats {
    /// Reads that a copy answered.
    pub hits: u64,
    /// Reads of the database.
    pub loads: u64,
    /// Reads that another's read of the database answered.
    pub shared: u64,
    /// Values that were not stored, because the row was forgotten while they were read.
    pub spoiled: u64,
    /// Times that the cache could not be asked.
    pub failures: u64,
}

/// Why a change did not end well.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeError<T, E> {
    /// The database refused it. The copy is forgotten all the same.
    Write(E),
    /// It is made, but the copy could not be forgotten and may be served until it expires.
    Forget {
        /// What the change came to.
        made: T,
        /// What kept the server from forgetting.
        error: Error,
    },
}

impl<T, E: fmt::Display> fmt::Display for ChangeError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Write(error) => error.fmt(f),
            ChangeError::Forget { error, .. } => {
                write!(f, "the change is made, but its copy cannot be forgotten: {error}")
            }
        }
    }
}

impl<T: fmt::Debug, E: std::error::Error> std::error::Error for ChangeError<T, E> {}

/// What a read of the database that others may share came to; `None`: there is no such row.
type Loaded = Option<Bytes>;

/// A database's rows, read through a fleet. Shared by reference among any number of tasks.
///
/// ```
/// use nuthatch_fleet::aside::{Aside, AsideSettings};
/// use nuthatch_fleet::client::{Client, Config, Modulo, ServerAddr, Servers};
/// # use std::cell::RefCell;
/// # use std::convert::Infallible;
///
/// # let running = nuthatch_testkit::Launch::real_memcached().start();
/// # let list = vec![ServerAddr::tcp("127.0.0.1", running.port())];
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let fleet = Client::new(Config::new(Servers::new(list, Modulo::of)))?;
/// let birds = Aside::new(fleet, AsideSettings::default());
/// # let database = RefCell::new("nuthatch".to_owned());
///
/// // The closure asks the database; it is called on a miss.
/// let name = birds.get(b"bird:7", || async { Ok::<_, Infallible>(Some(database.borrow().clone().into_bytes())) }).await.unwrap();
/// assert_eq!(name.as_deref(), Some(&b"nuthatch"[..]));
///
/// // The closure changes the database, and is done when that is committed.
/// birds.change(b"bird:7", || async { Ok::<_, Infallible>(*database.borrow_mut() = "treecreeper".to_owned()) }).await.unwrap();
/// # Ok::<(), nuthatch_fleet::client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Aside {
    client: Client,
    settings: AsideSettings,
    /// Reads of the database by this process that others wait for.
    flights: Mutex<HashMap<Box<[u8]>, Flight>>,
    numbers: AtomicU64,
    counts: Counts,
}

#[derive(Debug)]
struct Flight {
    number: u64,
    answer: watch::Receiver<Option<Loaded>>,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    loads: AtomicU64,
    shared: AtomicU64,
    spoiled: AtomicU64,
    failures: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How a key stands with its server.
enum Standing {
    /// A copy is there.
    Copy(Loaded),
    /// It is ours to read and store, over the item with this CAS unique.
    Lease(u64),
    /// Another reads it.
    Taken,
    /// The server cannot be asked.
    Away,
}

impl Aside {
    /// Rows read through `client`'s servers.
    #[must_use]
    pub fn new(client: Client, settings: AsideSettings) -> Aside {
        let (flights, numbers, counts) = (Mutex::default(), AtomicU64::new(0), Counts::default());
        Aside { client, settings, flights, numbers, counts }
    }

    /// The row under `key`, from the fleet or by `load`, which asks the database; `None`: there is none. Its value is as new
    /// as the last change that was forgotten before this was called.
    ///
    /// # Errors
    /// Those of `load`. What is wrong with the cache is none: then `load` is asked.
    pub async fn get<E, F>(&self, key: &[u8], load: impl FnOnce() -> F) -> Result<Option<Bytes>, E>
    where
        F: Future<Output = Result<Option<Vec<u8>>, E>>,
    {
        let patient_until = Instant::now() + self.settings.patience;
        let mut look = LOOK_FIRST;
        let lease = loop {
            match self.ask(key).await {
                Standing::Copy(copy) => {
                    count(&self.counts.hits);
                    return Ok(copy);
                }
                Standing::Lease(unique) => break Some(unique),
                Standing::Taken if Instant::now() >= patient_until => break None,
                Standing::Taken => {
                    if let Some(loaded) = self.wait(key, patient_until).await {
                        return Ok(loaded);
                    }
                    // Another process reads it, or what was read here is no longer true.
                    sleep(look).await;
                    look = (look * 2).min(LOOK_LAST);
                }
                Standing::Away => {
                    count(&self.counts.failures);
                    if let Some(loaded) = self.wait(key, patient_until).await {
                        return Ok(loaded);
                    }
                    break None;
                }
            }
        };
        self.load(key, lease, load).await
    }

    /// Changes the database by `write` and forgets the copy, whatever came of the change.
    ///
    /// # Errors
    /// Those of `write`, or what kept the copy from being forgotten.
    pub async fn change<T, E, F>(&self, key: &[u8], write: impl FnOnce() -> F) -> Result<T, ChangeError<T, E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let written = write().await;
        let forgotten = self.forget(key).await;
        match (written, forgotten) {
            (Err(error), _) => Err(ChangeError::Write(error)),
            (Ok(made), Err(error)) => Err(ChangeError::Forget { made, error }),
            (Ok(made), Ok(())) => Ok(made),
        }
    }

    /// Forgets the copy of a row, and what is being read of it now. To be called when a change is committed.
    ///
    /// # Errors
    /// What kept the server from forgetting, after it was tried for as long as the patience lasts.
    pub async fn forget(&self, key: &[u8]) -> Result<(), Error> {
        self.flights().remove(key);
        let until = Instant::now() + self.settings.patience;
        loop {
            match self.client.delete(key).await {
                Ok(_) => return Ok(()),
                Err(error) if !error.is_failure() || Instant::now() >= until => return Err(error),
                Err(_) => sleep(LOOK_LAST).await,
            }
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> AsideStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { hits, loads, shared, spoiled, failures } = &self.counts;
        AsideStats {
            hits: read(hits),
            loads: read(loads),
            shared: read(shared),
            spoiled: read(spoiled),
            failures: read(failures),
        }
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a key up, and asks for the lease if nothing is there.
    async fn ask(&self, key: &[u8]) -> Standing {
        let flags = format!("v f c N{}", self.settings.lease_seconds);
        let request = MetaRequest { word: Word::Get, key, flags: flags.as_bytes(), value: b"" };
        let Ok(answer) = self.client.meta(request).await else { return Standing::Away };
        match (answer.code, flag(&answer, b'c').and_then(number)) {
            (MetaCode::Va, Some(unique)) if flag(&answer, b'W').is_some() => Standing::Lease(unique),
            (MetaCode::Va, _) if flag(&answer, b'Z').is_some() => Standing::Taken,
            (MetaCode::Va, _) if flag(&answer, b'f').and_then(number) == Some(FLAGS_ABSENT.into()) => {
                Standing::Copy(None)
            }
            (MetaCode::Va, _) => Standing::Copy(Some(answer.value)),
            // A server that is down and whose keys are misses gives no lease.
            _ => Standing::Away,
        }
    }

    /// Waits for a read of the database by this process, if there is one, and if it came to what may be shared.
    async fn wait(&self, key: &[u8], until: Instant) -> Option<Loaded> {
        let mut answer = self.flights().get(key).map(|flight| flight.answer.clone())?;
        let loaded = timeout_at(until, answer.wait_for(Option::is_some)).await.ok()?.ok()?.clone();
        if loaded.is_some() {
            count(&self.counts.shared);
        }
        loaded
    }

    /// Reads the database, stores what was found if the lease is still good, and tells those who wait.
    async fn load<E, F>(&self, key: &[u8], lease: Option<u64>, load: impl FnOnce() -> F) -> Result<Option<Bytes>, E>
    where
        F: Future<Output = Result<Option<Vec<u8>>, E>>,
    {
        let (sender, answer) = watch::channel(None);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.flights().insert(key.into(), Flight { number, answer });
        let landing = Landing { aside: self, key, number };
        count(&self.counts.loads);
        let loaded = match load().await {
            Ok(loaded) => loaded.map(Bytes::from),
            Err(error) => {
                landing.end();
                if let Some(unique) = lease {
                    self.give_back(key, unique).await;
                }
                return Err(error);
            }
        };
        let is_true = match lease {
            Some(unique) => self.store(key, &loaded, unique).await,
            None => true,
        };
        // Not if it was forgotten meanwhile: those who wait may have come after that.
        if landing.end() && is_true {
            sender.send_replace(Some(loaded.clone()));
        } else {
            count(&self.counts.spoiled);
        }
        Ok(loaded)
    }

    /// Stores what was read under a lease; whether the lease was good, hence nothing was forgotten since it was given.
    async fn store(&self, key: &[u8], loaded: &Loaded, unique: u64) -> bool {
        let (value, seconds, flags) = match loaded {
            Some(value) => (&value[..], self.settings.ttl_seconds, 0),
            None if self.settings.absent_seconds > 0 => (&b""[..], self.settings.absent_seconds, FLAGS_ABSENT),
            None => return self.give_back(key, unique).await,
        };
        let flags = format!("C{unique} T{seconds} F{flags}");
        let request = MetaRequest { word: Word::Set, key, flags: flags.as_bytes(), value };
        self.client.meta(request).await.is_ok_and(|answer| answer.code == MetaCode::Hd)
    }

    /// Ends a lease, so that the next who misses need not wait; whether it was good.
    async fn give_back(&self, key: &[u8], unique: u64) -> bool {
        let flags = format!("C{unique}");
        let request = MetaRequest { word: Word::Delete, key, flags: flags.as_bytes(), value: b"" };
        self.client.meta(request).await.is_ok_and(|answer| answer.code == MetaCode::Hd)
    }
}

/// Takes a flight out of the table, however its read ends.
struct Landing<'a> {
    aside: &'a Aside,
    key: &'a [u8],
    number: u64,
}

impl Landing<'_> {
    /// Whether it was still there: nothing was forgotten meanwhile.
    fn end(&self) -> bool {
        let mut flights = self.aside.flights();
        let is_there = flights.get(self.key).is_some_and(|flight| flight.number == self.number);
        if is_there {
            flights.remove(self.key);
        }
        is_there
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// What stands behind a letter in an answer's flags.
fn flag(answer: &MetaAnswer, letter: u8) -> Option<&[u8]> {
    answer.flags.split(|byte| *byte == b' ').find_map(|flag| flag.strip_prefix(&[letter]))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
