//! The files of `examples/rows/`, run as they are but for paths: from an empty database to a get, and to a change by SQL that is seen.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nuthatch_testkit::database::Database;
use tempfile::TempDir;

use crate::servers::{Got, Nuthatch, Wire};

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/rows").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// An example's server, with these paths and addresses in place of its own.
fn server(dir: &Path, name: &str, instead: &[(&str, &str)]) -> Nuthatch {
    let socket = dir.join("sock");
    let listener = format!("unix:{}", socket.display());
    let mut text = example(&format!("{name}/nuthatch.toml"));
    for (own, here) in instead.iter().chain(&[("127.0.0.1:11211", &*listener)]) {
        assert!(text.contains(own), "{name}: {own} is not in it");
        text = text.replace(own, here);
    }
    let config = dir.join("nuthatch.toml");
    std::fs::write(&config, text).expect("the directory is ours");
    Nuthatch::of(&config, &socket)
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn password(dir: &Path) -> String {
    let path = dir.join("password");
    std::fs::write(&path, "change me\n").expect("the directory is ours");
    path.display().to_string()
}

const ADA: &str = "Ada|ada@example.org";

fn gets(client: &mut Wire, value: &str) {
    assert_eq!(client.get("get", "7").expect("an answer"), Got::Value(value.to_owned(), None));
}

/// What is changed by SQL is seen, and what is set is in the table.
fn lives_with_sql(client: &mut Wire, sql: impl Fn(&str) -> String) {
    gets(client, ADA);
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.stat("stats pools", "accounts:tier_stream").expect("an answer") != "following" {
        assert!(Instant::now() < deadline, "changes by SQL are not heard of");
        std::thread::sleep(Duration::from_millis(5));
    }
    gets(client, ADA);
    sql("UPDATE accounts SET name = 'Grace' WHERE id = '7'");
    while client.get("get", "7").expect("an answer") != Got::Value("Grace|ada@example.org".to_owned(), None) {
        assert!(Instant::now() < deadline, "the change is not seen");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.ask("set 8 5 0 4\r\nBo|b\r\n").expect("an answer"), "STORED");
    assert_eq!(sql("SELECT name, email, flags FROM accounts WHERE id = '8'"), "Bo\tb\t5\n");
}

#[test]
fn the_one_for_sqlite_needs_nothing() {
    let dir = dir();
    let file = format!("sqlite://{}/shop.db", dir.path().display());
    let mut server = server(dir.path(), "sqlite", &[("sqlite:///var/lib/nuthatch/shop.db", &file)]);
    server.start();
    let mut client = Wire::new(server.socket());
    assert_eq!(client.ask(&format!("set 7 0 0 19\r\n{ADA}\r\n")).expect("an answer"), "STORED");
    let shop = rusqlite::Connection::open(dir.path().join("shop.db")).expect("the file is there");
    shop.busy_timeout(Duration::from_secs(10)).expect("a timeout");
    lives_with_sql(&mut client, |text| {
        if !text.starts_with("SELECT") {
            shop.execute_batch(text).expect("a statement");
            return String::new();
        }
        let line = |row: &rusqlite::Row<'_>| {
            Ok(format!("{}\t{}\t{}\n", row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
        };
        shop.query_row(&text.replace("name, email,", "CAST(name AS TEXT), CAST(email AS TEXT),"), [], line)
            .expect("a row")
    });
}

#[test]
fn the_one_for_mariadb_makes_its_table_and_user() {
    let binlog = example("mariadb/binlog.cnf");
    let settings = binlog.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    let args: Vec<String> = settings.map(|line| format!("--{}", line.replace('_', "-"))).collect();
    let database = Database::mariadb(&args.iter().map(String::as_str).collect::<Vec<_>>());
    database.sql(&example("mariadb/setup.sql"));
    let dir = dir();
    let socket = format!("{}/sock", database.dir().display());
    let instead = [("/run/mysqld/mysqld.sock", &*socket), ("/etc/nuthatch/shop.password", &password(dir.path()))];
    let mut server = server(dir.path(), "mariadb", &instead);
    server.start();
    lives_with_sql(&mut Wire::new(server.socket()), |text| database.sql(&text.replace("accounts", "shop.accounts")));
}

#[test]
fn the_one_for_postgresql_makes_its_table_role_and_triggers() {
    let database = Database::postgres(&[]);
    database.sql(&example("postgres/setup.sql"));
    let dir = dir();
    let place = format!("localhost/test?socket={}", database.dir().display());
    let instead = [("127.0.0.1/shop", &*place), ("/etc/nuthatch/shop.password", &password(dir.path()))];
    let mut server = server(dir.path(), "postgres", &instead);
    database.sql(&server.triggers());
    server.start();
    lives_with_sql(&mut Wire::new(server.socket()), |text| database.sql(text));
}
