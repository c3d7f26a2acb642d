//! `nuthatch bench records`: records read and written in four ways, the measurement of "Performanse Memcached API pristupa MySQL
//! serveru" (Banja Luka, 2014): a cache alone, a cache beside a database, rows through a cache, and the database alone.
//!
//! Records are inserted, then read at random ten times as often, then updated at random. Each of the three is done in parts,
//! and the ways take turns part by part, so that a machine, or a disk, that is slower for a while is so for all of them. Clients
//! are tasks on one thread: each has one connection to each server it needs and one request under way. Beside the four ways there
//! can be three to hold them against: the database by the texts of statements, as the paper's driver sent them, the database behind
//! a thread that passes bytes on, and a bare round trip.

mod cache;
mod floor;
mod sql;

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use clap::Parser;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use self::cache::Cache;
use self::floor::Floor;
use self::sql::{By, Sql};
use crate::address::Address;
use crate::bins::median;
use crate::failure::Failure;
use crate::flags::number;

/// How records are read and written.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "nuthatch bench records",
    about = "Inserts records, reads them at random and updates them at random: in a database, and in what else is named. Tables\n\
             bench_direct, bench_text, bench_forwarded and bench_aside of the database are dropped and made anew."
)]
pub(crate) struct Settings {
    /// sqlite:///PATH, mysql://USER@HOST/DATABASE or postgres://…, with ?socket=PATH for a UNIX socket
    database: String,
    /// a memcached that has records alone, such as 127.0.0.1:11211
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    objects: Option<Address>,
    /// a memcached beside the database, which clients fill and clear, such as 127.0.0.1:11211
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    aside: Option<Address>,
    /// a server whose keys are rows, such as 127.0.0.1:11211
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    rows: Option<Address>,
    /// the database once more, asked by the texts of statements instead of prepared ones
    #[arg(long)]
    text: bool,
    /// a thread that answers at once, and one that passes bytes on to the database's socket: the least there can be
    #[arg(long)]
    floor: bool,
    /// clients at once
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=1000))]
    clients: u32,
    /// records
    #[arg(short = 'n', long, value_name = "N", default_value = "10000", value_parser = number::<u32>(1..=10_000_000))]
    records: u32,
    /// reads of each record, on average
    #[arg(long, value_name = "N", default_value = "10", value_parser = number::<u32>(1..=1000))]
    reads: u32,
    /// turns that each way takes
    #[arg(long, value_name = "N", default_value = "20", value_parser = number::<u32>(1..=1000))]
    turns: u32,
    /// print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Characters of a record.
pub(crate) const CHARACTERS: usize = 250;

/// What the ways came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Records {
    /// Clients at once.
    pub clients: u32,
    /// Records.
    pub records: u32,
    /// The ways, in the order of the paper's table.
    pub ways: Vec<Way>,
}

/// What one way came to: for each turn, microseconds from its beginning to its end, for each operation in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Way {
    /// `objects`, `aside`, `rows`, `direct`, `text`, `forwarded` or `floor`.
    pub name: String,
    /// Of inserts.
    pub insert_us: Vec<f64>,
    /// Of reads.
    pub read_us: Vec<f64>,
    /// Of updates.
    pub update_us: Vec<f64>,
}

impl Records {
    /// The result as people read it.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} records of {CHARACTERS} characters, clients: {}; microseconds for each, medians\n\n{:<11}{:>12}{:>12}{:>12}\n",
            self.records, self.clients, "", "insert", "read", "update"
        );
        for way in &self.ways {
            let [insert, read, update] = [&way.insert_us, &way.read_us, &way.update_us].map(|all| median(all.clone()));
            let _ = writeln!(text, "{:<11}{insert:>12.1}{read:>12.1}{update:>12.1}", way.name);
        }
        text
    }
}

impl Settings {
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// The ways that are measured.
    fn ways<'a>(&'a self, floor: Option<&'a Floor>, forwarded: Option<&'a str>) -> Vec<Means<'a>> {
        let floor = floor.map(|floor| &floor.address);
        let table = |name, by| Some((&self.database[..], name, by));
        let aside = table("bench_aside", By::Prepared).filter(|_| self.aside.is_some());
        let text = table("bench_text", By::Text).filter(|_| self.text);
        let forwarded = forwarded.map(|url| (url, "bench_forwarded", By::Prepared));
        let ways = [
            Means { name: "objects", cache: self.objects.as_ref(), table: None },
            Means { name: "aside", cache: self.aside.as_ref(), table: aside },
            Means { name: "rows", cache: self.rows.as_ref(), table: None },
            Means { name: "direct", cache: None, table: table("bench_direct", By::Prepared) },
            Means { name: "text", cache: None, table: text },
            Means { name: "forwarded", cache: None, table: forwarded },
            Means { name: "floor", cache: floor, table: None },
        ];
        ways.into_iter().filter(|means| means.cache.is_some() || means.table.is_some()).collect()
    }
}

/// What the clients of one way know of.
struct Means<'a> {
    name: &'static str,
    cache: Option<&'a Address>,
    /// The database's URL, the table in it, and how it is asked.
    table: Option<(&'a str, &'static str, By)>,
}

/// One of the three things that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Insert,
    Read,
    Update,
}

/// A client of one way: a cache, a table, or a cache beside a table.
struct Client {
    cache: Option<Cache>,
    table: Option<Sql>,
}

impl Client {
    async fn do_one(&mut self, act: Act, key: &str, number: u64, version: u64) -> Result<(), Failure> {
        match act {
            Act::Read => self.read(key, number).await,
            Act::Insert | Act::Update => {
                let value = value(number, version);
                if let Some(table) = &mut self.table {
                    if act == Act::Insert {
                        table.insert(key, &value).await?;
                    } else {
                        table.update(key, &value).await?;
                    }
                    // A copy that may be older goes after the write.
                    return match &mut self.cache {
                        Some(cache) => cache.delete(key).await,
                        None => Ok(()),
                    };
                }
                match &mut self.cache {
                    Some(cache) => cache.set(key, &value).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn read(&mut self, key: &str, number: u64) -> Result<(), Failure> {
        let cached = match &mut self.cache {
            Some(cache) => cache.get(key).await?,
            None => None,
        };
        let found = match (cached, &mut self.table) {
            (Some(found), _) => found,
            (None, None) => return Err(Failure::run(format!("bench: expected {key} to be found, it is not there"))),
            (None, Some(table)) => {
                let found = table.read(key).await?;
                if let Some(cache) = &mut self.cache {
                    cache.set(key, &found).await?;
                }
                found
            }
        };
        if is_value(number, &found) {
            return Ok(());
        }
        Err(Failure::run(format!("bench: expected {key} to hold {number} first of {CHARACTERS} characters: {found}")))
    }
}

/// A record: its number and its version, each over half of it.
fn value(number: u64, version: u64) -> String {
    format!("{number:0>half$}{version:0>half$}", half = CHARACTERS / 2)
}

fn is_value(number: u64, found: &str) -> bool {
    found.len() == CHARACTERS && found.get(..CHARACTERS / 2).is_some_and(|half| half.parse() == Ok(number))
}

/// A number that looks random, the same in every run (Steele et al., "Fast splittable pseudorandom number generators").
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Measures every way.
pub(crate) fn run(settings: &Settings) -> Result<Records, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::run(format!("bench: expected an event loop: {error}")))?;
    runtime.block_on(measure(settings))
}

async fn measure(settings: &Settings) -> Result<Records, Failure> {
    let floor = settings.floor.then(Floor::answering).transpose()?;
    let forwarder = if settings.floor { Floor::passing_on(&settings.database)? } else { None };
    let means = settings.ways(floor.as_ref(), forwarder.as_ref().map(|(_, url)| &url[..]));
    for (url, table, by) in means.iter().filter_map(|means| means.table) {
        Sql::connect(url, table, by).await?.make().await?;
    }
    let (mut ways, mut crews) = (Vec::new(), Vec::new());
    for Means { name, cache, table } in means {
        let mut crew = Vec::new();
        for _ in 0..settings.clients {
            let cache = match cache {
                Some(address) => Some(Cache::connect(address).await?),
                None => None,
            };
            let table = match table {
                Some((url, table, by)) => {
                    let mut table = Sql::connect(url, table, by).await?;
                    table.prepare().await?;
                    Some(table)
                }
                None => None,
            };
            crew.push(Client { cache, table });
        }
        crews.push(crew);
        ways.push(Way { name: name.to_owned(), insert_us: Vec::new(), read_us: Vec::new(), update_us: Vec::new() });
    }
    let records = u64::from(settings.records);
    for (act, count) in
        [(Act::Insert, records), (Act::Read, records * u64::from(settings.reads)), (Act::Update, records)]
    {
        let turns = u64::from(settings.turns).min(count);
        for turn in 0..turns {
            let part = (count * turn / turns, count * (turn + 1) / turns);
            // Each turn begins with another.
            for at in 0..crews.len() {
                let at = (at + turn as usize) % crews.len();
                let us = one_turn(settings, &mut crews[at], act, part).await?;
                let way = &mut ways[at];
                match act {
                    Act::Insert => &mut way.insert_us,
                    Act::Read => &mut way.read_us,
                    Act::Update => &mut way.update_us,
                }
                .push(us);
            }
        }
    }
    Ok(Records { clients: settings.clients, records: settings.records, ways })
}

/// Has a crew do operations `from` to `to`: microseconds for each.
async fn one_turn(settings: &Settings, crew: &mut [Client], act: Act, (from, to): (u64, u64)) -> Result<f64, Failure> {
    let next = Cell::new(from);
    let began = Instant::now();
    let clients = crew.iter_mut().map(|client| {
        let next = &next;
        async move {
            while next.get() < to {
                let turn = next.replace(next.get() + 1);
                let number = match act {
                    Act::Insert => turn,
                    Act::Read => mixed(turn) % u64::from(settings.records),
                    Act::Update => mixed(!turn) % u64::from(settings.records),
                };
                let version = if act == Act::Update { turn + 1 } else { 0 };
                client.do_one(act, &format!("{}-{number}", settings.clients), number, version).await?;
            }
            Ok::<_, Failure>(())
        }
    });
    try_join_all(clients).await?;
    Ok(began.elapsed().as_secs_f64() * 1e6 / (to - from) as f64)
}

/// What makes a table of records. Keys are compared as they are written: `collation` says so, where that is not the database's
/// way.
pub(crate) fn table_of(name: &str, collation: &str) -> String {
    format!(
        "CREATE TABLE {name} (id VARCHAR(40) {collation} NOT NULL PRIMARY KEY, body VARCHAR({CHARACTERS}) NOT NULL)"
    )
}

/// The collation of [`table_of`] in MariaDB.
pub(crate) const BINARY: &str = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

/// The URL of an SQLite file.
pub(crate) fn sqlite_url(file: &Path) -> String {
    format!("sqlite://{}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_again() {
        let whole = value(17, 3);
        assert_eq!(whole.len(), CHARACTERS);
        assert!(is_value(17, &whole) && !is_value(3, &whole) && !is_value(17, &whole[1..]));
    }

    #[test]
    fn records_of_a_database_alone_are_measured_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let url = sqlite_url(&dir.path().join("records.db"));
        let words = [&url, "-n", "20", "--turns", "3", "-c", "2", "--text", "--floor"];
        let Ok(crate::flags::Asked::Run(settings)) = crate::flags::parse(words.iter().map(std::ffi::OsString::from))
        else {
            panic!("a command line");
        };
        let records = run(&settings).unwrap();
        assert_eq!(records.ways.iter().map(|way| &way.name[..]).collect::<Vec<_>>(), ["direct", "text", "floor"]);
        assert_eq!((records.ways[0].insert_us.len(), records.ways[0].read_us.len()), (3, 3));
        assert!(records.text().contains("\ndirect "), "{}", records.text());
    }

    #[test]
    fn what_is_no_database_is_said() {
        let words = ["oracle://host/db"].iter().map(std::ffi::OsString::from);
        let Ok(crate::flags::Asked::Run(settings)) = crate::flags::parse(words) else { panic!("a command line") };
        assert_eq!(
            run(&settings).unwrap_err().to_string(),
            "bench: oracle://host/db: expected sqlite:///PATH, mysql://... or postgres://..."
        );
        crate::flags::tests::help_teaches_every_flag::<Settings>(&["sqlite:///tmp/bench.db"]);
    }
}
