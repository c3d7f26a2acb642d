//! Tables in PostgreSQL.

mod common;
#[path = "common/lanes.rs"]
mod lanes;

use std::sync::LazyLock;

use common::{World, apply, open, value};
use nuthatch_rows::{Change, Done, Op};
use nuthatch_testkit::database::Database;

static SERVER: LazyLock<Database> = LazyLock::new(|| Database::postgres(&[]));

static WORLD: LazyLock<World> =
    LazyLock::new(|| World { url: SERVER.url(), sql: Box::new(|text| SERVER.sql(text)), bytes: "BYTEA", quote: '"' });

for_every_database!(&WORLD);
for_databases_with_lanes!(&WORLD);

#[test]
fn fixed_length_and_small_columns_are_mapped() {
    let name = WORLD.fresh();
    (WORLD.sql)(&format!("CREATE TABLE {name} (id CHAR(8) PRIMARY KEY, a SMALLINT, b CHAR(4), c TEXT)"));
    let table = open(&WORLD.settings(&name, &["id"], &["a", "b", "c"]));
    assert!(matches!(apply(&table, Op::set(b"k", b"-5|ab|long text")), Done::Stored { as_sent: true, .. }));
    assert_eq!(value(&table, b"k").as_deref(), Some("-5|ab|long text"));
    let why = common::wait(table.apply(Op::set(b"k", b"1|ab|\xff"))).unwrap_err().to_string();
    assert_eq!(why, "value of \"k\" for table birds: column c holds text in UTF-8, and \"\\xff\" is none");
}

#[test]
fn a_table_in_another_schema_is_found() {
    (WORLD.sql)("CREATE SCHEMA shop; CREATE TABLE shop.accounts (id TEXT PRIMARY KEY, body TEXT)");
    let table = open(&WORLD.settings("shop.accounts", &["id"], &["body"]));
    apply(&table, Op::set(b"a", b"1"));
    assert_eq!((WORLD.sql)("SELECT body FROM shop.accounts"), "1\n");
}

#[test]
fn changes_by_sql_are_told_by_triggers() {
    let settings = WORLD.full();
    let layout = open(&settings).layout().expect("checked");
    (WORLD.sql)(&nuthatch_rows::triggers(&settings, &layout));
    common::changes_by_sql_are_told_and_own_ones_are_not(&WORLD, &settings, true);
}

#[test]
fn keys_of_several_columns_are_told_as_they_are_asked_for() {
    let name = WORLD.fresh();
    (WORLD.sql)(&format!("CREATE TABLE {name} (shop TEXT, num INT, body TEXT, PRIMARY KEY (shop, num))"));
    let settings = WORLD.settings(&name, &["shop", "num"], &["body"]);
    let table = open(&settings);
    (WORLD.sql)(&nuthatch_rows::triggers(&settings, &table.layout().expect("checked")));
    let heard = common::listen(&table);
    (WORLD.sql)(&format!(r"INSERT INTO {name} VALUES ('a|b\c', 7, 'x')"));
    common::hear(&heard, &Change::Key(br"a\|b\\c|7".into()));
    assert_eq!(value(&table, br"a\|b\\c|7").as_deref(), Some("x"));
    (WORLD.sql)(&format!("TRUNCATE {name}"));
    common::hear(&heard, &Change::All);
}

#[test]
fn of_very_many_rows_changed_at_once_each_is_told_or_a_gap_for_all() {
    let name = WORLD.fresh();
    (WORLD.sql)(&format!("CREATE TABLE {name} (num INT PRIMARY KEY, body TEXT)"));
    let settings = WORLD.settings(&name, &["num"], &["body"]);
    let table = open(&settings);
    (WORLD.sql)(&nuthatch_rows::triggers(&settings, &table.layout().expect("checked")));
    let heard = common::listen(&table);
    (WORLD.sql)(&format!("INSERT INTO {name} SELECT n, 'x' FROM generate_series(1, 20000) n"));
    let mut untold: std::collections::HashSet<Vec<u8>> = (1..=20_000).map(|n: u32| n.to_string().into()).collect();
    while !untold.is_empty() {
        match heard.recv_timeout(std::time::Duration::from_secs(30)).expect("a change is missing") {
            Change::Key(key) => assert!(untold.remove(&key), "{key:?} again"),
            Change::Gap => untold.clear(),
            other => panic!("{other:?}"),
        }
    }
    // And it goes on.
    (WORLD.sql)(&format!("DELETE FROM {name} WHERE num = 7"));
    while heard.recv_timeout(std::time::Duration::from_secs(30)).expect("the deletion") != Change::Key(b"7".into()) {}
}

#[test]
fn a_table_without_triggers_says_that_it_hears_nothing() {
    let table = open(&WORLD.full());
    let (sender, heard) = std::sync::mpsc::channel();
    table.subscribe(Box::new(move |change| drop(sender.send(change.clone())))).expect("a thread");
    let first = heard.recv_timeout(std::time::Duration::from_secs(20)).expect("it says something");
    assert!(matches!(&first, Change::Away(why) if why.contains("`nuthatch rows triggers` writes them")), "{first:?}");
}
