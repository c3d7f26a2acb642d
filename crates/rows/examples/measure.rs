//! How a table compares with the database itself: one client in sequence on SQLite, many at once on MariaDB, records of 250
//! characters, the same durability on both sides.
//!
//! `cargo run --release -p nuthatch-rows --example measure -- [sqlite|mariadb] [RECORDS]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use nuthatch_rows::{Database, Op, Settings, Table};
use nuthatch_testkit::database::Database as Server;
use tokio::task::JoinSet;

const CLIENTS: usize = 32;

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "sqlite".to_owned());
    let records = args.next().map_or(2000, |text| text.parse().expect("a number of records"));
    match what.as_str() {
        "sqlite" => sqlite(records),
        "mariadb" => mariadb(records),
        other => panic!("{other}: expected sqlite or mariadb"),
    }
}

fn body(n: usize) -> String {
    format!("{n:0>250}")
}

fn table(url: &str) -> Table {
    let mut settings = Settings::new("birds", Database::new(url).expect("a URL"), "birds", &["id"], &["body"]);
    settings.timeout = Duration::from_secs(30);
    Table::open_checked(settings, Arc::new(|| 1_800_000_000)).expect("the table is there")
}

fn say(what: &str, records: usize, direct: Duration, rows: Duration) {
    let each = |time: Duration| time.as_secs_f64() * 1e6 / records as f64;
    println!(
        "{what:<28} {:>9.1} us directly, {:>9.1} us by rows, ratio {:.2}",
        each(direct),
        each(rows),
        rows.as_secs_f64() / direct.as_secs_f64()
    );
}

fn timed(body: impl FnOnce()) -> Duration {
    let began = Instant::now();
    body();
    began.elapsed()
}

fn sqlite(records: usize) {
    // Beside the target directory: a file system in memory has no durability to pay for.
    let place = std::env::current_exe().expect("this program").with_file_name("measure-rows");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).expect("a directory");
    let direct = rusqlite::Connection::open(place.join("direct.db")).expect("a file");
    direct.execute_batch("CREATE TABLE birds (id TEXT PRIMARY KEY, body TEXT)").expect("a table");
    let rows = table(&format!("sqlite://{}/rows.db", place.display()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("an event loop");
    let apply = |op| drop(runtime.block_on(rows.apply(op)).expect("an answer"));

    let execute = |text: &str, n: usize, value: usize| {
        let mut statement = direct.prepare_cached(text).expect("a statement");
        statement.execute((body(value), n.to_string())).expect("a row");
    };
    let insert = timed(|| (0..records).for_each(|n| execute("INSERT INTO birds (body, id) VALUES (?, ?)", n, n)));
    let ours = timed(|| (0..records).for_each(|n| apply(Op::set(n.to_string().as_bytes(), body(n).as_bytes()))));
    say("sqlite, 1 client: insert", records, insert, ours);

    let read = timed(|| {
        for n in 0..records * 10 {
            let mut statement = direct.prepare_cached("SELECT body FROM birds WHERE id = ?").expect("a statement");
            let found: String =
                statement.query_row([(n * 7919 % records).to_string()], |row| row.get(0)).expect("the row");
            assert_eq!(found.len(), 250);
        }
    });
    let ours = timed(|| {
        for n in 0..records * 10 {
            let key = (n * 7919 % records).to_string().into_bytes();
            assert!(runtime.block_on(rows.get_many(vec![key])).expect("an answer")[0].is_some());
        }
    });
    say("sqlite, 1 client: read", records * 10, read, ours);

    let update = timed(|| {
        (0..records).for_each(|n| execute("UPDATE birds SET body = ? WHERE id = ?", n * 7919 % records, n + 1));
    });
    let ours = timed(|| {
        (0..records).for_each(|n| {
            apply(Op::set((n * 7919 % records).to_string().as_bytes(), body(n + 1).as_bytes()));
        });
    });
    say("sqlite, 1 client: update", records, update, ours);
    drop(rows);
    let _ = std::fs::remove_dir_all(&place);
}

fn mariadb(records: usize) {
    let server = Server::mariadb(&["--skip-log-bin"]);
    for name in ["birds", "direct"] {
        server.sql(&format!("CREATE TABLE {name} (id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, body VARCHAR(250))"));
    }
    let rows = Arc::new(table(&server.url()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an event loop");
    let url = server.url();
    for (what, clients) in [("mariadb, 1 client: insert", 1), ("mariadb, 32 clients: insert", CLIENTS)] {
        let each = records / clients;
        let direct = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let mut conns = Vec::new();
            for _ in 0..clients {
                conns.push(mysql_async::Conn::from_url(&url).await.expect("a connection"));
            }
            let began = Instant::now();
            for (client, mut conn) in conns.into_iter().enumerate() {
                tasks.spawn(async move {
                    for n in 0..each {
                        let key = format!("{clients}-{client}-{n}");
                        conn.exec_drop("INSERT INTO direct VALUES (?, ?)", (key, body(n))).await.expect("a row");
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
            began.elapsed()
        });
        let ours = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let began = Instant::now();
            for client in 0..clients {
                let rows = Arc::clone(&rows);
                tasks.spawn(async move {
                    for n in 0..each {
                        let key = format!("{clients}-{client}-{n}");
                        rows.apply(Op::set(key.as_bytes(), body(n).as_bytes())).await.expect("an answer");
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
            began.elapsed()
        });
        say(what, each * clients, direct, ours);
        println!("{:<28} {} times the rate", "", (direct.as_secs_f64() / ours.as_secs_f64() * 10.0).round() / 10.0);
    }
    let stats = rows.stats();
    println!("{} changes in {} commits", stats.changes_committed, stats.commits);
}
