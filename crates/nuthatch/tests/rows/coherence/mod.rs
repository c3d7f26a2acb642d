//! Two Nuthatches before one table: versioned values are written by SQL and through both, and read through both, while processes
//! are killed and paused and news of changes is late. Nothing acknowledged is lost, no copy is older than stated, and how old
//! copies were is printed.
//!
//! The short runs are among the tests; `make coherence` runs the long ones.

mod history;
mod run;
mod sql;

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::Signal;
use nuthatch_testkit::database::Database;
use nuthatch_testkit::galera::Galera;
use nuthatch_testkit::{Address, Fault, Faulty};
use tempfile::TempDir;

use self::run::{Run, Tally};
use self::sql::Place;
use crate::servers::{Nuthatch, signal_all};

/// A copy may be older than what others wrote by this and no more (docs/rows.md, "How old a copy can be").
const WINDOW: Duration = Duration::from_secs(5);

/// What happens while rows are written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    Nothing,
    /// A Nuthatch is killed and started again.
    ServerKilled,
    /// A Nuthatch stands still.
    ServerPaused,
    /// The database is killed and started again.
    DatabaseKilled,
    /// The database stands still.
    DatabasePaused,
    /// The second Nuthatch hears of changes late.
    StreamLate,
    /// The second Nuthatch's connections to the database break.
    StreamCut,
    /// The node of a cluster with this number is killed, and joins again later. The first two are the Nuthatches', SQL goes to the
    /// third.
    NodeKilled(usize),
}

use Happens::{DatabaseKilled, DatabasePaused, NodeKilled, Nothing, ServerKilled, ServerPaused, StreamCut, StreamLate};

/// How long a fault lasts, and how long writers go on before and after it.
struct Pace {
    fault: Duration,
    around: Duration,
}

/// Everything of one run. The database comes last, so that it ends last.
struct World {
    name: &'static str,
    servers: [Nuthatch; 2],
    stream: Option<Faulty>,
    place: Place,
    _dir: TempDir,
    database: Option<Database>,
    galera: Option<Galera>,
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

impl World {
    fn sqlite() -> World {
        let dir = dir();
        let path = dir.path().join("birds.db");
        let sqlite = rusqlite::Connection::open(&path).expect("a file");
        let table = "PRAGMA journal_mode = WAL; CREATE TABLE birds (id TEXT PRIMARY KEY, body TEXT, cas INTEGER NOT NULL DEFAULT 0)";
        sqlite.execute_batch(table).expect("a table");
        let url = format!("sqlite://{}", path.display());
        let servers = ["a", "b"].map(|name| Nuthatch::new(dir.path(), name, &url));
        World {
            name: "SQLite",
            servers,
            stream: None,
            place: Place::Sqlite(path),
            _dir: dir,
            database: None,
            galera: None,
        }
    }

    fn mariadb() -> World {
        let database = Database::mariadb(&["--log-bin", "--binlog-format=ROW"]);
        database.sql(
            "CREATE TABLE birds (id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT, cas BIGINT NOT NULL DEFAULT 0)",
        );
        let socket = database.dir().join("sock");
        // What asks for the binary log sets this first.
        let stream = Faulty::before(&Address::Unix(socket.clone())).striking(b"master_heartbeat_period");
        World::behind(database, stream, "MariaDB", "mysql", Place::Mariadb(socket))
    }

    /// Whose triggers tell of changes, or are not there.
    fn postgres(tells: bool) -> World {
        let database = Database::postgres(&[]);
        database.sql("CREATE TABLE birds (id TEXT PRIMARY KEY, body TEXT, cas BIGINT NOT NULL DEFAULT 0)");
        let socket = database.dir().join(".s.PGSQL.5432");
        let stream = Faulty::before(&Address::Unix(socket)).striking(b"LISTEN ");
        let place = Place::Postgres(database.dir().to_owned());
        let world = World::behind(database, stream, "PostgreSQL", "postgres", place);
        let triggers = if tells { world.servers[0].triggers() } else { String::new() };
        world.database.as_ref().expect("it was given").sql(&triggers);
        world
    }

    /// The first Nuthatch by the database's socket, the second through a proxy that can be late.
    fn behind(database: Database, stream: Faulty, name: &'static str, scheme: &str, place: Place) -> World {
        let dir = dir();
        let late = format!("{scheme}://root@{}/test", stream.address());
        let servers = [("a", database.url()), ("b", late)].map(|(name, url)| Nuthatch::new(dir.path(), name, &url));
        World { name, servers, stream: Some(stream), place, _dir: dir, database: Some(database), galera: None }
    }

    fn galera() -> World {
        let (cluster, dir) = (Galera::start(3), dir());
        cluster.node(0).sql(
            "CREATE TABLE birds (id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT, cas BIGINT NOT NULL DEFAULT 0)",
        );
        // A node that is away takes its news with it while others go on writing, so that this is the bound.
        let server = |(name, node)| Nuthatch::with(dir.path(), name, &cluster.node(node).url(), "3s", "");
        let servers = [("a", 0), ("b", 1)].map(server);
        let place = Place::Mariadb(cluster.node(2).dir().join("sock"));
        World { name: "Galera", servers, stream: None, place, _dir: dir, database: None, galera: Some(cluster) }
    }

    /// Runs through `plan`, prints what was measured, and fails with what was wrong.
    fn check(self, seed: u64, plan: &[Happens], pace: &Pace) {
        let name = self.name;
        let wrong = self.run(seed, plan, pace, WINDOW);
        assert!(
            wrong.is_empty(),
            "{name}: {} wrong, such as\n{}",
            wrong.len(),
            wrong[..wrong.len().min(10)].join("\n")
        );
    }

    /// Runs through `plan` and prints what was measured; what was wrong, where copies may be older than others' writes by `window`.
    fn run(mut self, seed: u64, plan: &[Happens], pace: &Pace, window: Duration) -> Vec<String> {
        self.servers.iter_mut().for_each(Nuthatch::start);
        let sockets = self.servers.each_ref().map(|server| server.socket().to_owned());
        // What a node of a cluster acknowledged may reach the others a moment later.
        let run = Run::new(self.place.clone(), sockets, window, self.galera.is_none());
        run.go(seed, || {
            for (round, happens) in plan.iter().enumerate() {
                let tally = run.tally(&format!("{happens:?}, round {round}"));
                std::thread::sleep(pace.around);
                self.happen(*happens, round % 2, pace.fault);
                std::thread::sleep(pace.around);
                let settled = run.settle();
                println!("{}", line(self.name, *happens, &tally, settled));
            }
        })
    }

    fn happen(&mut self, happens: Happens, server: usize, time: Duration) {
        match happens {
            Nothing => std::thread::sleep(time),
            ServerKilled => {
                self.servers[server].kill();
                self.servers[server].start();
            }
            ServerPaused => {
                self.servers[server].pause();
                std::thread::sleep(time);
                self.servers[server].go_on();
            }
            DatabaseKilled => {
                let Some(database) = &mut self.database else { return };
                database.kill();
                database.start();
            }
            DatabasePaused => {
                let Some(database) = &self.database else { return };
                signal_all(database, Signal::SIGSTOP);
                std::thread::sleep(time);
                signal_all(database, Signal::SIGCONT);
            }
            StreamLate => {
                let Some(stream) = &mut self.stream else { return };
                stream.set(Fault::Delay(time / 2));
                std::thread::sleep(time * 2);
                stream.set(Fault::None);
            }
            NodeKilled(node) => {
                let Some(cluster) = &mut self.galera else { return };
                cluster.kill(node);
                std::thread::sleep(time);
                cluster.rejoin(node);
            }
            StreamCut => {
                if let Some(stream) = &self.stream {
                    stream.end_connections();
                }
            }
        }
    }
}

/// What was measured in one line.
fn line(name: &str, happens: Happens, tally: &Tally, settled: Duration) -> String {
    let mut stale = tally.stale.lock().expect("no thread panics").clone();
    stale.sort_unstable();
    let part = |hundredths: usize| stale.get((stale.len() * hundredths / 100).min(stale.len().saturating_sub(1)));
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    format!(
        "{name:10} {:14} written {:5}, refused {:4}, unknown {:3}; read {:6}, refused {:4}; older than acknowledged {:5}: \
         half by {:.1} ms, 99 of 100 by {:.1} ms, at most {:.1} ms; settled in {:.1} ms",
        format!("{happens:?}"),
        count(&tally.written),
        count(&tally.refused),
        count(&tally.unknown),
        count(&tally.reads),
        count(&tally.reads_refused),
        stale.len(),
        millis(part(50)),
        millis(part(99)),
        millis(stale.last()),
        settled.as_secs_f64() * 1000.0,
    )
}

const SHORT: Pace = Pace { fault: Duration::from_millis(500), around: Duration::from_millis(150) };

const ALL: &[Happens] = &[Nothing, ServerKilled, StreamLate, DatabasePaused, StreamCut, DatabaseKilled, ServerPaused];

const OF_A_FILE: &[Happens] = &[Nothing, ServerKilled, ServerPaused, ServerKilled, Nothing, ServerPaused];

#[test]
fn two_servers_on_one_file_lose_nothing_and_show_nothing_old() {
    World::sqlite().check(1, OF_A_FILE, &SHORT);
}

#[test]
fn two_servers_before_mariadb_lose_nothing_and_show_nothing_old() {
    World::mariadb().check(2, ALL, &SHORT);
}

#[test]
fn two_servers_before_postgresql_lose_nothing_and_show_nothing_old() {
    World::postgres(true).check(3, ALL, &SHORT);
}

/// Without triggers a copy lives for `ttl_max`, an hour: the checker finds that, and says how it came about.
#[test]
fn servers_that_hear_of_no_changes_are_found_to_show_what_is_old() {
    let pace = Pace { fault: Duration::from_secs(1), around: Duration::ZERO };
    let wrong = World::postgres(false).run(4, &[Nothing], &pace, Duration::from_millis(200));
    let old = wrong.iter().find(|wrong| wrong.contains("after it had been replaced")).expect("something is old");
    assert!(old.contains("of Nothing, round 0") && old.contains("is written by Sql"), "{old}");
    assert!(wrong.iter().any(|wrong| wrong.contains("for good")), "no copy is what the table has: {wrong:?}");
}

/// For how many rounds of everything that happens the long runs go on.
fn rounds() -> usize {
    std::env::var("NUTHATCH_COHERENCE_ROUNDS").map_or(20, |rounds| rounds.parse().expect("a number of rounds"))
}

/// So many rounds of `plan`, or of what is asked for by name.
fn for_long(plan: &[Happens], rounds: usize) -> Vec<Happens> {
    let only = std::env::var("NUTHATCH_COHERENCE_ONLY").unwrap_or_default();
    let is_asked_for = |happens: &Happens| format!("{happens:?}").contains(&only);
    plan.iter().copied().filter(is_asked_for).collect::<Vec<_>>().repeat(rounds)
}

const LONG: Pace = Pace { fault: Duration::from_millis(1500), around: Duration::from_millis(300) };

#[test]
#[ignore = "takes a minute, see `make coherence`"]
fn for_long_before_a_galera_cluster_that_loses_nodes() {
    let plan = [Nothing, NodeKilled(2), ServerKilled, NodeKilled(0), ServerPaused, NodeKilled(1)];
    // Each takes as long as ten of the others'.
    World::galera().check(another_seed(), &for_long(&plan, rounds().div_ceil(10)), &LONG);
}

#[test]
#[ignore = "takes minutes, see `make coherence`"]
fn for_long_on_one_file() {
    World::sqlite().check(another_seed(), &for_long(OF_A_FILE, rounds()), &LONG);
}

#[test]
#[ignore = "takes minutes, see `make coherence`"]
fn for_long_before_mariadb() {
    World::mariadb().check(another_seed(), &for_long(ALL, rounds()), &LONG);
}

#[test]
#[ignore = "takes minutes, see `make coherence`"]
fn for_long_before_postgresql() {
    World::postgres(true).check(another_seed(), &for_long(ALL, rounds()), &LONG);
}

/// Another one in every run, and told.
fn another_seed() -> u64 {
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    println!("seed {seed}");
    seed
}
