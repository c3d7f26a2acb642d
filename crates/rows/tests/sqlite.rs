//! Tables in SQLite.

mod common;

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use common::{World, apply, get, open, value};
use nuthatch_rows::{Database, Done, Op, Settings};
use rusqlite::Connection;
use tempfile::TempDir;

/// One file for all tests: they write at the same time, as clients do.
static WORLD: LazyLock<World> = LazyLock::new(world);

/// A file that nobody else writes to, for who looks whether anybody does.
static WORLD_ALONE: LazyLock<World> = LazyLock::new(world);

fn world() -> World {
    let dir = tempfile::tempdir().expect("a temporary directory").keep();
    let path = dir.join("birds.db");
    let connection = Connection::open(&path).expect("a file");
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).expect("a pragma");
    connection.busy_timeout(Duration::from_secs(20)).expect("a timeout");
    let connection = Mutex::new(connection);
    let sql = move |text: &str| {
        let connection = connection.lock().expect("no test panics here");
        let mut statement = connection.prepare(text).expect("a statement");
        let width = statement.column_count();
        let mut rows = statement.query([]).expect("rows");
        let mut all = String::new();
        while let Some(row) = rows.next().expect("a row") {
            let cells = (0..width).map(|n| match row.get_ref(n).expect("a cell") {
                rusqlite::types::ValueRef::Null => "NULL".to_owned(),
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                other => String::from_utf8_lossy(other.as_bytes().expect("text")).into_owned(),
            });
            all += &(cells.collect::<Vec<_>>().join("\t") + "\n");
        }
        all
    };
    let url = format!("sqlite://{}", path.display());
    World { url, sql: Box::new(sql), bytes: "BLOB", quote: '"' }
}

for_every_database!(&WORLD);

#[test]
fn what_runs_in_this_process_has_no_lane() {
    assert!(open(&WORLD.full()).lane().is_none());
}

fn settings(dir: &TempDir) -> Settings {
    let database = Database::sqlite(&dir.path().join("new/birds.db")).expect("a path");
    let mut settings = Settings::new("birds", database, "birds", &["id"], &["name", "home"]);
    (settings.flags, settings.cas) = (Some("flags".into()), Some("cas".into()));
    settings.expiry = Some("expires".into());
    settings.timeout = Duration::from_secs(20);
    settings
}

#[test]
fn a_file_that_does_not_exist_is_created_with_its_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let table = open(&settings(&dir));
    assert!(matches!(apply(&table, Op::set(b"7", b"Ada|\\N")), Done::Stored { as_sent: true, .. }));
    drop(table);
    assert_eq!(value(&open(&settings(&dir)), b"7").as_deref(), Some("Ada|\\N"), "and is found again");
    assert!(matches!(apply(&open(&settings(&dir)), Op::set(b"any \xff", b"\xfe|")), Done::Stored { .. }));
}

#[test]
fn text_is_text_to_sql() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let table = open(&settings(&dir));
    apply(&table, Op::set(b"7", b"Ada|London"));
    let path = dir.path().join("new/birds.db");
    let connection = Connection::open(path).expect("the file");
    let kind: String =
        connection.query_row("SELECT typeof(name) FROM birds WHERE id = '7'", [], |row| row.get(0)).expect("the row");
    assert_eq!(kind, "text");
    connection.execute("UPDATE birds SET name = 'Grace' WHERE id = '7'", []).expect("an update");
    assert_eq!(get(&table, b"7").expect("there").value, b"Grace|London");
}

#[test]
fn a_lock_that_someone_keeps_is_told_within_the_deadline() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings(&dir);
    settings.timeout = Duration::from_millis(200);
    let table = open(&settings);
    let other = Connection::open(dir.path().join("new/birds.db")).expect("the file");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let why = common::wait(table.apply(Op::set(b"7", b"Ada|"))).unwrap_err().to_string();
    assert!(why.contains("another program keeps it locked"), "{why}");
    assert_eq!(get(&table, b"7"), None, "reads go on");
    other.execute_batch("COMMIT").expect("the lock is given back");
    assert!(matches!(apply(&table, Op::set(b"7", b"Ada|")), Done::Stored { .. }));
}

#[test]
fn changes_by_other_connections_are_told() {
    common::changes_by_sql_are_told_and_own_ones_are_not(&WORLD_ALONE, &WORLD_ALONE.full(), false);
}
