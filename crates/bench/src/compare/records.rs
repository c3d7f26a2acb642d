//! Records of a database in the four ways of the Banja Luka paper (see [`mod@crate::records`]), on each database there is, beside the
//! database by the texts of statements, the database behind a thread that passes bytes on, and a bare round trip.
//!
//! The databases are started here, each with its default durability, on UNIX sockets, and so is everything else: no way is slower
//! for going over a network that another does not take.

use std::fs;
use std::path::Path;

use nuthatch_testkit::database::Database;

use super::Settings;
use super::contenders::{Contenders, Place, Server, Start, Who};
use super::measure::{Bench, Rounds};
use super::write::{Bar, Chart, Row, Table};
use crate::address::Address;
use crate::failure::Failure;
use crate::launch::{Launched, Scratch};
use crate::records::{BINARY, CHARACTERS, Records, Way, sqlite_url, table_of};

const RECORDS: u32 = 10_000;
const RECORDS_LONG: u32 = 100_000;
const CLIENTS: u32 = 32;
/// How many turns each way takes: many where commits are waited for one by one, since a disk can be forty times slower from one second
/// to the next; fewer where the beginning and the end of a turn, with not all clients at work, are to weigh little.
const TURNS_ALONE: u32 = 200;
const TURNS: u32 = 20;

/// What a read of a cached row may take, beside one of the database and beside one of a cache alone.
const READ_BAR: f64 = 0.25;
const OBJECT_BAR: f64 = 1.25;
/// What a write of a row may take, beside one of the database.
const WRITE_BAR: f64 = 1.0;
/// The same of inserts by many clients, where their commits can be shared: three times the rate.
const SHARED_BAR: f64 = 1.0 / 3.0;

/// In the order of the table.
const WAYS: [Who; 7] = [Who::Objects, Who::Aside, Who::Rows, Who::Direct, Who::Text, Who::Forwarded, Who::Floor];

const ENGINES: [&str; 3] = ["sqlite", "mariadb", "postgres"];

/// The name of a database.
pub(super) fn engine(text: &str) -> Result<String, String> {
    match ENGINES.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected some of {}", ENGINES.join(","))),
    }
}

fn is_wanted(settings: &Settings, bench: &Bench, name: &str, is_installed: bool) -> bool {
    let is_wanted = settings.databases.is_empty() || settings.databases.iter().any(|wanted| wanted == name);
    if is_wanted && !is_installed {
        bench.say(&format!("rows: {name} left out, it is not installed"));
    }
    is_wanted && is_installed
}

pub(super) fn sqlite(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    if !is_wanted(settings, bench, "sqlite", true) {
        return Ok(None);
    }
    let scratch = Scratch::new()?;
    // Files of their own: the mode of its journal belongs to a file, and the database alone has SQLite's default one.
    let (ours, theirs) = (scratch.path().join("rows.db"), scratch.path().join("direct.db"));
    let said = "SQLite: the database alone has the journal that is its default, with a commit of several synchronisations; through \
                Nuthatch the same durability is had of a write-ahead log and one. Without Nuthatch, records are read in the client's \
                own process, where no cache in another can be as quick.";
    let chart = chart("rows-sqlite");
    on(settings, contenders, bench, ("SQLite", chart), said, &sqlite_url(&ours), &sqlite_url(&theirs)).map(Some)
}

pub(super) fn mariadb(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    if !is_wanted(settings, bench, "mariadb", Database::has_mariadb()) {
        return Ok(None);
    }
    let server = Database::mariadb(&["--innodb-buffer-pool-size=256M"]);
    server.sql(&table_of("bench_rows", BINARY));
    let said = format!(
        "MariaDB {}, with its default durability: each commit is on the disk.",
        server.sql("SELECT VERSION()").trim()
    );
    on(settings, contenders, bench, ("MariaDB", chart("rows-mariadb")), &said, &server.url(), &server.url()).map(Some)
}

pub(super) fn postgres(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    if !is_wanted(settings, bench, "postgres", Database::has_postgres()) {
        return Ok(None);
    }
    // Four ways connect each client: more than the hundred connections that are its default.
    let server = Database::postgres(&["-c", "shared_buffers=256MB", "-c", "max_connections=200"]);
    server.sql(&table_of("bench_rows", ""));
    let version = server.sql("SHOW server_version");
    let said = format!("PostgreSQL {}, with its default durability: each commit is on the disk.", version.trim());
    on(settings, contenders, bench, ("PostgreSQL", chart("rows-postgres")), &said, &server.url(), &server.url())
        .map(Some)
}

fn chart(name: &'static str) -> Chart {
    Chart { name, caption: ": microseconds for each, less is better" }
}

/// What serves rows, and its configuration file.
fn rows_server(contenders: &Contenders, url: &str) -> Result<Server, Failure> {
    let scratch = Scratch::new()?;
    let address = scratch.socket("sock");
    let file = scratch.path().join("rows.toml");
    fs::write(&file, configuration(&address, url))
        .map_err(|error| Failure::run(format!("bench: expected to write {}: {error}", file.display())))?;
    let words = [contenders.nuthatch(), Path::new("serve"), Path::new("--config"), &file];
    let launched = Launched::start(words.iter().map(|word| word.display().to_string()).collect(), address)?;
    Ok(Server::new(launched, scratch))
}

fn configuration(address: &Address, url: &str) -> String {
    format!(
        "[server]\nworkers = 1\n\n[pool.records]\nmemory = \"256MiB\"\nbackend = \"records\"\nttl_max = \"1h\"\n\n[table.records]\n\
         url = \"{url}\"\ntable = \"bench_rows\"\nkey = \"id\"\nvalue = \"body\"\ntimeout = \"20s\"\n\n[[listen]]\n\
         memcached = \"{address}\"\npool = \"records\"\n"
    )
}

fn on(
    settings: &Settings,
    contenders: &Contenders,
    bench: &Bench,
    (name, chart): (&str, Chart),
    said: &str,
    rows_url: &str,
    url: &str,
) -> Result<Table, Failure> {
    let start = Start { place: Place::Anywhere, memory_mib: 256, is_unix: true, workers: 1 };
    let objects = contenders.start(Who::Nuthatch, start)?;
    let aside = contenders.start(Who::Memcached, start)?;
    let rows = rows_server(contenders, rows_url)?;
    let mut table = Table::new(
        &format!("Records in {name}"),
        &format!(
            "Microseconds for each record of {CHARACTERS} characters, from the beginning of a turn to its end by the number of its \
             operations: inserted, read at random ten times as often, updated at random; by one client in sequence, and by {CLIENTS}. \
             S1 is a Nuthatch that has the records alone, S2 a memcached beside the database that clients fill and clear, S3 a \
             Nuthatch whose keys are rows, S4 the database alone, by prepared statements of the driver made for it, and by the texts of statements, \
             which is what the driver of the paper sent. S4 forwarded is the database alone behind a thread that passes bytes on and does nothing \
             else: nothing that stands between a client and its database can take less. The round trip is one to a thread that answers the same \
             bytes and does nothing else: no cache in another process can take less. {said} The ways take turns, {TURNS_ALONE} each by one client and {TURNS} by {CLIENTS}.\n\n`rows.toml`:\n\n```toml\n{}```",
            configuration(&Address::Unix("SOCKET".into()), "URL")
        ),
        WAYS.into_iter().filter(|&who| who != Who::Forwarded || !url.starts_with("sqlite:")).collect(),
    );
    table.chart = Some(chart);
    table.compared = (Who::Rows, Who::Direct);
    table.command(contenders.shown(Who::Nuthatch, start));
    table.command(contenders.shown(Who::Memcached, start));
    table.command("nuthatch serve --config rows.toml".to_owned());
    let records = [RECORDS, RECORDS_LONG].map(|records| (records / settings.shrink).max(CLIENTS));
    let sizes = if settings.long { &records[..] } else { &records[..1] };
    for &records in sizes {
        for clients in [1, CLIENTS] {
            bench.say(&format!("rows: {name}, {records} records, clients: {clients}"));
            let turns = if clients == 1 { TURNS_ALONE } else { TURNS };
            let words = |objects: &str, aside: &str, rows: &str, url: &str| {
                let line = format!(
                    "records -n {records} -c {clients} --turns {turns} --objects {objects} --aside {aside} --rows {rows} --text --floor {url}"
                );
                line.split(' ').map(str::to_owned).collect::<Vec<_>>()
            };
            let address = |server: &Server| server.launched.address.to_string();
            let measured: Records =
                bench.run(Place::Anywhere, &words(&address(&objects), &address(&aside), &address(&rows), url))?;
            table.command(format!("nuthatch bench {}", words("SOCKET1", "SOCKET2", "SOCKET3", "URL").join(" ")));
            add(&mut table, &measured, name);
        }
    }
    Ok(table)
}

/// Adds what was measured, and what it should be.
fn add(table: &mut Table, measured: &Records, database: &str) {
    let whose = |name: &str| match name {
        "objects" => Who::Objects,
        "aside" => Who::Aside,
        "rows" => Who::Rows,
        "text" => Who::Text,
        "forwarded" => Who::Forwarded,
        "floor" => Who::Floor,
        _ => Who::Direct,
    };
    let alone = measured.clients == 1;
    let of = if alone { "1 client" } else { "32 clients" };
    let mut add = |act: &str, pick: fn(&Way) -> &Vec<f64>, ratios: &[(Who, Who, Option<f64>)]| {
        let samples =
            || measured.ways.iter().map(|way| Rounds { who: whose(&way.name), rounds: pick(way).clone() }).collect();
        for &(who, to, bar) in ratios {
            let mut row = Row::new(&format!("{act}, {of}, {} records", measured.records), 1, samples());
            row.bar = bar.map(Bar::AtMost);
            if (who, to) != table.compared {
                row.name = format!("{}: {} / {}", row.name, who.word(), to.word());
                row.compared = Some((who, to));
                row.charted = false;
            }
            table.rows.push(row);
        }
    };
    let both = |bar| [(Who::Rows, Who::Direct, bar), (Who::Rows, Who::Text, bar)];
    let written = alone.then_some(WRITE_BAR);
    // What anything before the database would add, and what Nuthatch does beyond it.
    let is_forwarded = alone && measured.ways.iter().any(|way| way.name == "forwarded");
    let least = [(Who::Rows, Who::Forwarded, None), (Who::Forwarded, Who::Direct, None)];
    let least = least.into_iter().filter(|_| is_forwarded);
    let writes = |bar| both(bar).into_iter().chain(least.clone()).collect::<Vec<_>>();
    add(
        "insert",
        |way| &way.insert_us,
        &writes(if database == "MariaDB" && !alone { Some(SHARED_BAR) } else { written }),
    );
    let read = alone.then_some(READ_BAR);
    let floor = [(Who::Rows, Who::Objects, alone.then_some(OBJECT_BAR)), (Who::Floor, Who::Direct, None)];
    add("read", |way| &way.read_us, &[&both(read)[..], &floor].concat());
    add("update", |way| &way.update_us, &writes(written));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_act_is_held_against_its_bar() {
        let way = |name: &str, us: f64| Way {
            name: name.to_owned(),
            insert_us: vec![us],
            read_us: vec![us],
            update_us: vec![us],
        };
        let ways = [
            ("objects", 20.0),
            ("aside", 120.0),
            ("rows", 24.0),
            ("direct", 100.0),
            ("forwarded", 120.0),
            ("floor", 15.0),
        ]
        .map(|(name, us)| way(name, us));
        let ways = ways.to_vec();
        let mut table = Table::new("t", "", WAYS.to_vec());
        table.compared = (Who::Rows, Who::Direct);
        for clients in [1, 32] {
            add(&mut table, &Records { clients, records: 7, ways: ways.clone() }, "MariaDB");
        }
        let bars: Vec<_> = table.rows.iter().map(|row| row.bar).collect();
        let [one, quarter, object, third] = [1.0, 0.25, 1.25, 1.0 / 3.0].map(|bar| Some(Bar::AtMost(bar)));
        assert_eq!(bars[..12], [one, one, None, None, quarter, quarter, object, None, one, one, None, None]);
        assert_eq!(bars[12..], [third, third, None, None, None, None, None, None]);
        assert_eq!((table.rows[0].compared, table.rows[1].compared), (None, Some((Who::Rows, Who::Text))));
        assert_eq!(table.rows[2].name, "insert, 1 client, 7 records: S3 rows / S4 forwarded");
        assert_eq!(table.rows[3].compared, Some((Who::Forwarded, Who::Direct)));
        assert_eq!(table.rows[6].name, "read, 1 client, 7 records: S3 rows / S1 objects");
    }

    #[test]
    fn databases_are_chosen_by_name() {
        assert_eq!(engine("sqlite"), Ok("sqlite".to_owned()));
        assert_eq!(engine("oracle"), Err("expected some of sqlite,mariadb,postgres".to_owned()));
    }
}
