//! Tables in PostgreSQL.

mod common;

use std::sync::LazyLock;

use common::{World, apply, open, value};
use nuthatch_rows::{Done, Op};
use nuthatch_testkit::database::Database;

static SERVER: LazyLock<Database> = LazyLock::new(|| Database::postgres(&[]));

static WORLD: LazyLock<World> =
    LazyLock::new(|| World { url: SERVER.url(), sql: Box::new(|text| SERVER.sql(text)), bytes: "BYTEA", quote: '"' });

for_every_database!(&WORLD);

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
