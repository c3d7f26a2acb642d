//! Tables in MariaDB.

mod common;
#[path = "common/lanes.rs"]
mod lanes;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use common::{World, apply, open, value};
use nuthatch_rows::{Change, Done, Mode, Op};
use nuthatch_testkit::database::Database;
use nuthatch_testkit::{Address, Fault, Faulty};

static SERVER: LazyLock<Database> = LazyLock::new(|| Database::mariadb(&["--log-bin", "--binlog-format=ROW"]));

static WORLD: LazyLock<World> = LazyLock::new(|| World {
    url: SERVER.url(),
    sql: Box::new(|text| SERVER.sql(text)),
    bytes: "LONGBLOB",
    quote: '`',
});

for_every_database!(&WORLD);
for_databases_with_lanes!(&WORLD);

#[test]
fn keys_that_a_collation_takes_as_equal_are_not_mixed_up() {
    let name = WORLD.fresh();
    (WORLD.sql)(&format!("CREATE TABLE {name} (id VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, body TEXT)"));
    let table = open(&WORLD.settings(&name, &["id"], &["body"]));
    apply(&table, Op::set(b"Bird", b"1"));
    assert_eq!(value(&table, b"bird"), None);
    let why = common::wait(table.apply(Op::set(b"bird", b"2"))).unwrap_err().to_string();
    assert!(why.contains("Duplicate entry"), "{why}");
    assert_eq!(value(&table, b"Bird").as_deref(), Some("1"));
    assert!(table.layout().expect("checked").notes().join("").contains("utf8mb4_general_ci"));
}

#[test]
fn a_second_unique_index_never_changes_another_row() {
    let name = WORLD.fresh();
    let bin = WORLD.binary_collation();
    (WORLD.sql)(&format!("CREATE TABLE {name} (id VARCHAR(20) {bin} PRIMARY KEY, mail VARCHAR(50) {bin} UNIQUE)"));
    let table = open(&WORLD.settings(&name, &["id"], &["mail"]));
    apply(&table, Op::set(b"a", b"x@example.org"));
    assert!(common::wait(table.apply(Op::set(b"b", b"x@example.org"))).is_err());
    assert_eq!((value(&table, b"a").as_deref(), value(&table, b"b")), (Some("x@example.org"), None));
}

#[test]
fn rows_that_cannot_be_added_can_be_changed() {
    let name = WORLD.fresh();
    let bin = WORLD.binary_collation();
    (WORLD.sql)(&format!("CREATE TABLE {name} (id VARCHAR(20) {bin} PRIMARY KEY, body TEXT, must INT NOT NULL)"));
    (WORLD.sql)(&format!("INSERT INTO {name} VALUES ('a', 'x', 1), ('b', 'y', 2)"));
    let table = open(&WORLD.settings(&name, &["id"], &["body"]));
    assert!(matches!(apply(&table, Op::set(b"a", b"new")), Done::Stored { .. }));
    let why = common::wait(table.apply(Op::set(b"c", b"new"))).unwrap_err().to_string();
    assert_eq!(
        why,
        format!("no row can be added: must of table {name} is not mapped, takes no NULL and has no default")
    );
    assert_eq!((WORLD.sql)(&format!("SELECT * FROM {name} ORDER BY id")), "a\tnew\t1\nb\ty\t2\n");
}

#[test]
fn a_database_that_is_down_is_told_at_once_and_found_again() {
    let mut server = Database::mariadb(&[]);
    server.sql("CREATE TABLE birds (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT)");
    let world = World { url: server.url(), sql: Box::new(|_| String::new()), bytes: "LONGBLOB", quote: '`' };
    let table = open(&world.settings("birds", &["id"], &["body"]));
    apply(&table, Op::set(b"a", b"1"));
    server.kill();
    let began = Instant::now();
    for _ in 0..20 {
        let why = common::wait(table.apply(Op::set(b"a", b"2"))).unwrap_err();
        assert!(why.to_string().contains("mysql://root@localhost/test"), "{why}");
        assert!(common::wait(table.get_many(vec![b"a".to_vec()])).is_err());
    }
    assert!(began.elapsed() < Duration::from_secs(10), "nobody waits for a server that is not there");
    server.start();
    let deadline = Instant::now() + Duration::from_secs(20);
    while common::wait(table.apply(Op::Store {
        key: b"a".into(),
        mode: Mode::Append,
        compare: None,
        flags: 0,
        expiry: None,
        value: b"!".into(),
        vivify: None,
    }))
    .is_err()
    {
        assert!(Instant::now() < deadline, "it is not found again");
        std::thread::sleep(Duration::from_millis(5));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while common::wait(table.get_many(vec![b"a".to_vec()])).is_err() {
        assert!(Instant::now() < deadline, "readers do not find it again");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(value(&table, b"a").as_deref(), Some("1!"));
}

#[test]
fn changes_by_sql_are_told_by_the_binary_log() {
    common::changes_by_sql_are_told_and_own_ones_are_not(&WORLD, &WORLD.full(), true);
}

/// An own change that was told of while nobody listened would otherwise be waited for, and found in the next change by SQL, which
/// leaves the number in the cas column as it is.
#[test]
fn a_change_by_sql_after_an_own_one_that_was_never_heard_of_is_told() {
    let socket = Address::Unix(SERVER.dir().join("sock"));
    // What asks for the binary log sets this first.
    let mut proxy = Faulty::before(&socket).striking(b"master_heartbeat_period");
    let world = World {
        url: format!("mysql://root@{}/test", proxy.address()),
        sql: Box::new(|text| SERVER.sql(text)),
        bytes: "LONGBLOB",
        quote: '`',
    };
    let settings = world.full();
    let table = open(&settings);
    let heard = common::listen(&table);
    proxy.set(Fault::Hang);
    assert!(matches!(apply(&table, Op::set(b"a", b"own")), Done::Stored { .. }));
    proxy.end_connections();
    proxy.set(Fault::None);
    common::hear(&heard, &Change::Gap);
    (world.sql)(&format!("UPDATE {} SET body = 'theirs' WHERE id = 'a'", settings.table));
    common::hear(&heard, &Change::Key(b"a".into()));
}

/// A server that waits for a replica between writing its binary log and showing the row: what is told meanwhile is told again.
#[test]
fn a_change_that_is_told_before_it_is_visible_is_told_again() {
    let server = Database::mariadb(&[
        "--log-bin",
        "--binlog-format=ROW",
        "--rpl-semi-sync-master-enabled=ON",
        "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
        "--rpl-semi-sync-master-wait-no-slave=ON",
        "--rpl-semi-sync-master-timeout=2000",
    ]);
    server.sql(
        "SET GLOBAL rpl_semi_sync_master_enabled = OFF; \
         CREATE TABLE birds (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT); \
         INSERT INTO birds VALUES ('a', 'old'); SET GLOBAL rpl_semi_sync_master_enabled = ON",
    );
    let world = World { url: server.url(), sql: Box::new(|_| String::new()), bytes: "LONGBLOB", quote: '`' };
    let table = open(&world.settings("birds", &["id"], &["body"]));
    let heard = common::listen(&table);
    let changed = Change::Key(b"a".into());
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| server.sql("UPDATE birds SET body = 'new'"));
        // As a cache does: what it is told of it reads again, and keeps.
        while seen.last().is_none_or(|copy| copy != "new") {
            common::hear(&heard, &changed);
            seen.extend(value(&table, b"a"));
        }
    });
    assert_eq!(seen[0], "old", "this server shows the row after it has told of it");
}

#[test]
fn numbers_without_a_sign_are_told_right() {
    let name = WORLD.fresh();
    (WORLD.sql)(&format!("CREATE TABLE {name} (id INT UNSIGNED PRIMARY KEY, body TEXT)"));
    let table = open(&WORLD.settings(&name, &["id"], &["body"]));
    let heard = common::listen(&table);
    (WORLD.sql)(&format!("INSERT INTO {name} VALUES (4294967295, 'x')"));
    common::hear(&heard, &Change::Key(b"4294967295".into()));
    (WORLD.sql)(&format!("TRUNCATE {name}"));
    common::hear(&heard, &Change::All);
    (WORLD.sql)(&format!("ALTER TABLE {name} ADD COLUMN first INT FIRST"));
    common::hear(&heard, &Change::Gap);
    (WORLD.sql)(&format!("INSERT INTO {name} VALUES (1, 7, 'x')"));
    common::hear(&heard, &Change::Key(b"7".into()));
}

/// A row that changes is in the log as it was and as it is, which together may be more than the server takes from a client.
#[test]
fn large_rows_are_told_and_too_large_ones_are_a_gap_that_is_left_behind() {
    let server = Database::mariadb(&["--log-bin", "--binlog-format=ROW", "--max-allowed-packet=64M"]);
    server.sql("CREATE TABLE birds (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, body LONGBLOB)");
    let world = World { url: server.url(), sql: Box::new(|_| String::new()), bytes: "LONGBLOB", quote: '`' };
    let table = open(&world.settings("birds", &["id"], &["body"]));
    let heard = common::listen(&table);
    let change = |mebibytes: usize, letter: char| {
        server.sql(&format!("REPLACE INTO birds VALUES ('a', REPEAT('{letter}', {mebibytes} * 1024 * 1024))"));
    };
    let away = |told: &[Change]| told.iter().any(|change| matches!(change, Change::Away(_)));
    change(24, 'x');
    change(24, 'y');
    server.sql("INSERT INTO birds VALUES ('b', 'small')");
    let told = common::hear(&heard, &Change::Key(b"b".into()));
    assert!(told.contains(&Change::Key(b"a".into())) && !away(&told), "48 MiB in one event: {told:?}");
    change(44, 'z');
    let told = common::hear(&heard, &Change::Gap);
    assert!(away(&told), "68 MiB in one event: {told:?}");
    server.sql("INSERT INTO birds VALUES ('c', 'small')");
    let told = common::hear(&heard, &Change::Key(b"c".into()));
    assert!(!away(&told), "{told:?}");
    assert_eq!(table.stats().gaps, 1, "what is too large is met once");
}

#[test]
fn the_plugins_mappings_become_settings() {
    let server = Database::mariadb(&[]);
    server.sql(
        "CREATE DATABASE innodb_memcache; USE innodb_memcache; \
         CREATE TABLE containers (name VARCHAR(50) PRIMARY KEY, db_schema VARCHAR(250), db_table VARCHAR(250), \
         key_columns VARCHAR(250), value_columns VARCHAR(250), flags VARCHAR(250), cas_column VARCHAR(250), \
         expire_time_column VARCHAR(250), unique_idx_name_on_key VARCHAR(250)); \
         INSERT INTO containers VALUES ('aaa', 'test', 'demo_test', 'c1', 'c2', 'c3', 'c4', 'c5', 'PRIMARY'), \
         ('desc t', 'shop', 't2', 'id', 'a|b', '0', '0', '0', 'PRIMARY'), \
         ('dotted', 'test', 'a.b.c', 'id', 'v', '0', '0', '0', 'PRIMARY'); \
         CREATE TABLE test.`a.b.c` (id VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, v TEXT); \
         CREATE TABLE cache_policies (policy_name VARCHAR(40) PRIMARY KEY, get_policy VARCHAR(20), \
         set_policy VARCHAR(20), delete_policy VARCHAR(20), flush_policy VARCHAR(20)); \
         INSERT INTO cache_policies VALUES ('cache_policy', 'innodb_only', 'innodb_only', 'innodb_only', 'disabled');",
    );
    let text = nuthatch_rows::import(&nuthatch_rows::Database::new(&server.url()).expect("a URL")).expect("mappings");
    let socket = server.dir().join("sock");
    let socket = socket.display();
    assert_eq!(
        text,
        format!(
            "# Written by `nuthatch rows import` from innodb_memcache.containers.\n\
             # Renamed: \"desc t\" is desc_t here, and its keys are @@desc_t.KEY.\n\n\
             [[listen]]\nmemcached = \"127.0.0.1:11211\"\npool = \"aaa\"\n\n\
             [pool.aaa]\nbackend = \"aaa\"\npolicy = \"table\"\npolicy_flush = \"disabled\"\n\n\
             [table.aaa]\nurl = \"mysql://root@localhost/test?socket={socket}\"\ntable = \"demo_test\"\nkey = \"c1\"\n\
             value = [\"c2\"]\nflags = \"c3\"\ncas = \"c4\"\nexpiry = \"c5\"\n\n\
             [pool.desc_t]\nbackend = \"desc_t\"\npolicy = \"table\"\npolicy_flush = \"disabled\"\n\n\
             [table.desc_t]\nurl = \"mysql://root@localhost/shop?socket={socket}\"\ntable = \"t2\"\nkey = \"id\"\n\
             value = [\"a\", \"b\"]\nformat = \"plain\"\n\n\
             [pool.dotted]\nbackend = \"dotted\"\npolicy = \"table\"\npolicy_flush = \"disabled\"\n\n\
             [table.dotted]\nurl = \"mysql://root@localhost/test?socket={socket}\"\ntable = \"test.a.b.c\"\nkey = \"id\"\n\
             value = [\"v\"]\n"
        )
    );
    let world = World { url: server.url(), sql: Box::new(|_| String::new()), bytes: "LONGBLOB", quote: '`' };
    let table = open(&world.settings("test.a.b.c", &["id"], &["v"]));
    apply(&table, Op::set(b"k", b"1"));
    assert_eq!((value(&table, b"k").as_deref(), server.sql("SELECT * FROM `a.b.c`").trim()), (Some("1"), "k\t1"));
    server.sql("UPDATE innodb_memcache.containers SET db_schema = 'x.y' WHERE name = 'dotted'");
    let why =
        nuthatch_rows::import(&nuthatch_rows::Database::new(&server.url()).expect("a URL")).unwrap_err().to_string();
    assert!(why.contains("expected no dot in db_schema \"x.y\" where db_table \"a.b.c\" has one"), "{why}");
    let missing = nuthatch_rows::Database::new(&WORLD.url).expect("a URL");
    let why = nuthatch_rows::import(&missing).unwrap_err().to_string();
    assert!(why.contains("innodb_memcache"), "{why}");
}
