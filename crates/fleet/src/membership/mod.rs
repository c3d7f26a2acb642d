//! Who belongs to a fleet: the servers of the file, and those that a name server or etcd names.
//!
//! [`Members::follow`] yields one list after the other on a watch channel. A list is used only when every source has answered once,
//! because keys that are placed by a part of it would be looked for elsewhere when the rest comes. When a source goes away, or answers
//! with nothing or with something that is no server, its last list stays. A list that changes has to stay as it is for a while
//! ([`FleetSettings::settle`]) before it is used. Nothing here opens a connection to a server of the fleet.

mod blend;
mod dns;
mod etcd;
mod source;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::FleetSettings;
use crate::placement::{SERVERS_MAX, ServerSpec};
use blend::Blend;
pub use source::{Source, sources_are_fixed};

/// After a watch that ended by itself, so that an etcd that has none is not asked without end.
const PAUSE: Duration = Duration::from_secs(1);

/// Takes a sentence for the log.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The lists of one fleet. Dropping it ends all that was started for it.
#[derive(Debug)]
pub struct Members {
    lists: watch::Receiver<Arc<Vec<ServerSpec>>>,
    counters: Arc<Counters>,
    /// Aborted when this goes.
    _tasks: JoinSet<()>,
}

/// What happened so far.
#[derive(Debug, Default)]
pub struct Counters {
    changes: AtomicU64,
    failures: AtomicU64,
    flaps: AtomicU64,
}

/// Why a source names no servers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipError {
    /// It cannot be asked, or does not answer as it should.
    Unanswered(Source, String),
    /// It answers that there is no server.
    Empty(Source),
    /// What this key of etcd holds is no server; the sentence ends with what was expected.
    Value(Source, String, String),
    /// Together the sources name this many servers.
    TooMany(usize),
}

/// A source's answer.
type Answer = Result<Vec<ServerSpec>, MembershipError>;

impl Members {
    /// Follows the sources of `settings` from a tokio runtime. `log` is told in a sentence of every change, of the beginning and the
    /// end of every failure.
    pub fn follow(settings: &FleetSettings, log: Log) -> Members {
        let counters = Arc::new(Counters::default());
        let mut tasks = JoinSet::new();
        let (publish, lists) = watch::channel(Arc::new(Vec::new()));
        let blend = Blend::new(settings.servers.len(), settings.settle);
        let (send, answers) = mpsc::channel(16);
        for (index, source) in settings.servers.iter().enumerate() {
            tasks.spawn(ask(index, source.clone(), settings.clone(), send.clone()));
        }
        let name = settings.name.clone();
        let mut keeper =
            Keeper { name, sources: settings.servers.clone(), blend, publish, counters: counters.clone(), log };
        // A list that is all there is known before anybody asks.
        if let Some(servers) = sources_are_fixed(&settings.servers) {
            for (index, server) in servers.into_iter().enumerate() {
                keeper.learn(index, Ok(vec![server]), Instant::now());
            }
        }
        tasks.spawn(keeper.keep(answers));
        Members { lists, counters, _tasks: tasks }
    }

    /// The list in force, and those that follow. It is empty until every source has answered.
    pub fn lists(&self) -> watch::Receiver<Arc<Vec<ServerSpec>>> {
        self.lists.clone()
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Counters {
    /// Lists put in force, the first included.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Answers that could not be used.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Changes that were taken back before they were put in force.
    pub fn flaps(&self) -> u64 {
        self.flaps.load(Ordering::Relaxed)
    }
}

/// The list as its sources have it now.
pub async fn once(settings: &FleetSettings) -> Answer {
    let mut blend = Blend::new(settings.servers.len(), Duration::ZERO);
    for (index, source) in settings.servers.iter().enumerate() {
        let list = match source {
            Source::Server(server) => vec![server.clone()],
            Source::Dns { .. } | Source::Srv { .. } => dns::ask(source, &settings.resolvers).await?,
            Source::Etcd { .. } => etcd::ask(source).await?.servers,
        };
        blend.learn(index, list, Instant::now());
    }
    let list = blend.in_force().map_or_else(Vec::new, |list| list.to_vec());
    if list.len() > SERVERS_MAX { Err(MembershipError::TooMany(list.len())) } else { Ok(list) }
}

/// Asks one source again and again.
async fn ask(index: usize, source: Source, settings: FleetSettings, answers: mpsc::Sender<(usize, Answer)>) {
    loop {
        let answer = match &source {
            Source::Server(_) => return,
            Source::Dns { .. } | Source::Srv { .. } => {
                dns::ask(&source, &settings.resolvers).await.map(|list| (list, None))
            }
            Source::Etcd { .. } => etcd::ask(&source).await.map(|found| (found.servers, Some(found.revision))),
        };
        let (answer, revision) = match answer {
            Ok((list, revision)) => (Ok(list), revision),
            // A list that cannot be used is watched all the same by asking again.
            Err(error) => (Err(error), None),
        };
        // Nobody takes answers any more: the fleet is gone.
        if answers.send((index, answer)).await.is_err() {
            return;
        }
        let Some(revision) = revision else {
            tokio::time::sleep(settings.refresh).await;
            continue;
        };
        // A connection that died without a word is noticed by asking again after a while.
        if let Ok(Err(_)) = tokio::time::timeout(settings.refresh, etcd::changed(&source, revision)).await {
            tokio::time::sleep(PAUSE.min(settings.refresh)).await;
        }
    }
}

/// Puts lists in force.
struct Keeper {
    name: String,
    sources: Vec<Source>,
    blend: Blend,
    publish: watch::Sender<Arc<Vec<ServerSpec>>>,
    counters: Arc<Counters>,
    log: Log,
}

impl Keeper {
    async fn keep(mut self, mut answers: mpsc::Receiver<(usize, Answer)>) {
        // Which sources fail now, so that it is said once.
        let mut failing = vec![false; self.sources.len()];
        loop {
            let due = self.blend.due();
            let settled = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answers.recv() => {
                    let Some((index, answer)) = answer else { return };
                    let was_failing = std::mem::replace(&mut failing[index], answer.is_err());
                    match &answer {
                        Err(error) if !was_failing => self.say(&format!("{error}; its last list stays")),
                        Ok(_) if was_failing => self.say(&format!("{} answers again", self.sources[index])),
                        _ => {}
                    }
                    self.learn(index, answer, Instant::now());
                }
                () = settled => {
                    self.blend.settle(Instant::now());
                    self.put_in_force();
                }
            }
        }
    }

    fn learn(&mut self, index: usize, answer: Answer, now: Instant) {
        match answer {
            Ok(list) => {
                let flapped = self.blend.learn(index, list, now);
                self.counters.flaps.fetch_add(u64::from(flapped), Ordering::Relaxed);
                self.put_in_force();
            }
            Err(_) => _ = self.counters.failures.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Publishes the list that the blend has in force, if it is another.
    fn put_in_force(&mut self) {
        let Some(list) = self.blend.in_force() else { return };
        let before = self.publish.borrow().clone();
        if *before == *list {
            return;
        }
        if list.len() > SERVERS_MAX {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
            self.say(&format!("{}; the last list stays", MembershipError::TooMany(list.len())));
            return;
        }
        self.counters.changes.fetch_add(1, Ordering::Relaxed);
        if !before.is_empty() {
            let names: Vec<String> = list.iter().map(ToString::to_string).collect();
            self.say(&format!("{} servers instead of {}: {}", list.len(), before.len(), names.join(", ")));
        }
        self.publish.send_replace(list);
    }

    fn say(&self, sentence: &str) {
        (self.log)(&format!("fleet {}: {sentence}", self.name));
    }
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipError::Unanswered(source, reason) => write!(f, "{source}: expected a list of servers: {reason}"),
            MembershipError::Empty(source) => write!(f, "{source}: expected a list of servers, it names none"),
            MembershipError::Value(source, key, expected) => write!(f, "{source}: {key}: expected {expected}"),
            MembershipError::TooMany(count) => write!(f, "servers: expected at most {SERVERS_MAX}, not {count}"),
        }
    }
}

impl std::error::Error for MembershipError {}
