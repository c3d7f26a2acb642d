//! What must hold on every database, as functions of a [`World`]; each database's test file calls all of them by
//! [`for_every_database`].

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nuthatch_rows::{Change, Clock, Commit, Database, Done, Error, Format, Item, Mode, Op, Range, Settings, Table};
use nuthatch_testkit::dice::Dice;
use nuthatch_testkit::model::{Compare, Counted, Model, Store, Stored};

mod described;
pub(crate) use described::*;

/// One database and how its tables are written.
pub(crate) struct World {
    /// Where it is.
    pub(crate) url: String,
    /// Runs statements; rows come back a line each, tabs between columns.
    pub(crate) sql: Box<dyn Fn(&str) -> String + Send + Sync>,
    /// The name of a column type for any bytes.
    pub(crate) bytes: &'static str,
    /// What is around a name.
    pub(crate) quote: char,
}

/// The second that every test begins in.
pub(crate) const NOW: i64 = 1_800_000_000;

/// A clock that stands still until it is moved.
#[derive(Clone)]
pub(crate) struct Hand(Arc<AtomicI64>);

impl Hand {
    pub(crate) fn new() -> Hand {
        Hand(Arc::new(AtomicI64::new(NOW)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let hand = Arc::clone(&self.0);
        Arc::new(move || hand.load(Ordering::Relaxed))
    }

    pub(crate) fn forward(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waits for one answer.
pub(crate) fn wait<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("an event loop").block_on(answer)
}

static TABLES: AtomicUsize = AtomicUsize::new(0);

impl World {
    /// A name no other test has.
    pub(crate) fn fresh(&self) -> String {
        format!("birds_{}", TABLES.fetch_add(1, Ordering::Relaxed))
    }

    /// A table with all columns a mapping can have, and settings for it.
    pub(crate) fn full(&self) -> Settings {
        let name = self.fresh();
        (self.sql)(&format!(
            "CREATE TABLE {name} (id VARCHAR(250) {} NOT NULL PRIMARY KEY, body {}, flags BIGINT NOT NULL DEFAULT 0, \
             cas BIGINT NOT NULL DEFAULT 0, expires BIGINT)",
            self.binary_collation(),
            self.bytes
        ));
        let mut settings = self.settings(&name, &["id"], &["body"]);
        (settings.flags, settings.cas) = (Some("flags".into()), Some("cas".into()));
        settings.expiry = Some("expires".into());
        settings
    }

    pub(crate) fn settings(&self, table: &str, key: &[&str], value: &[&str]) -> Settings {
        let mut settings = Settings::new("birds", Database::new(&self.url).expect("a URL"), table, key, value);
        // Machines that run tests are busy.
        settings.timeout = Duration::from_secs(20);
        settings
    }

    pub(crate) fn binary_collation(&self) -> &'static str {
        if self.quote == '`' { "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" } else { "" }
    }

    fn ask(&self, text: &str) -> String {
        (self.sql)(text).trim_end().to_owned()
    }
}

pub(crate) fn open(settings: &Settings) -> Table {
    Table::open_checked(settings.clone(), Hand::new().clock()).expect("the mapping fits")
}

pub(crate) fn get(table: &Table, key: &[u8]) -> Option<Item> {
    wait(table.get_many(vec![key.to_vec()])).expect("an answer").remove(0)
}

pub(crate) fn apply(table: &Table, op: Op) -> Done {
    wait(table.apply(op)).expect("an answer")
}

pub(crate) fn value(table: &Table, key: &[u8]) -> Option<String> {
    get(table, key).map(|item| String::from_utf8(item.value).expect("text"))
}

pub(crate) fn store(key: &[u8], mode: Mode, value: &[u8]) -> Op {
    Op::Store { key: key.to_vec(), mode, compare: None, flags: 0, expiry: None, value: value.to_vec(), vivify: None }
}

/// Random commands, and what memcached would answer.
pub(crate) fn commands_mean_what_they_mean_to_memcached(world: &World) {
    let hand = Hand::new();
    let table = Table::open_checked(world.full(), hand.clock()).expect("the mapping fits");
    let mut model = Model::new(false);
    let mut dice = Dice::seeded(11);
    // By key: the unique the table gave out for the model's version.
    let mut seen: Vec<(Vec<u8>, u64)> = Vec::new();
    for step in 0..600 {
        if dice.u32(..20) == 0 {
            hand.forward(1 + i64::from(dice.u32(..5)));
        }
        let now = hand.now();
        let key = format!("key{}", dice.u32(..5)).into_bytes();
        let expiry = [None, None, Some(now + 3), Some(now - 1)][dice.u32(..4) as usize];
        let exptime = expiry.unwrap_or(0);
        let bytes = match dice.u32(..4) {
            0 => dice.u32(..1000).to_string().into_bytes(),
            1 => vec![0, 255, b'\'', b'"', b'\\', b'`', 10, 13],
            2 => Vec::new(),
            _ => b"nuthatch".to_vec(),
        };
        let held = get(&table, &key);
        let (compare, unique) = match (dice.u32(..3), &held) {
            (0, Some(item)) => (Compare::Same, Some(item.unique)),
            (1, Some(item)) => (Compare::Newer, Some(item.unique ^ 1)),
            _ => (Compare::None, None),
        };
        let context = || format!("step {step}, key {}", key.escape_ascii());
        match dice.u32(..8) {
            0..4 => {
                use nuthatch_testkit::model::Mode as Meant;
                let (mode, meant) = [
                    (Mode::Set, Meant::Set),
                    (Mode::Add, Meant::Add),
                    (Mode::Replace, Meant::Replace),
                    (Mode::Append, Meant::Append),
                    (Mode::Prepend, Meant::Prepend),
                ][dice.u32(..5) as usize];
                let flags = dice.u32(..);
                let op = Op::Store {
                    key: key.clone(),
                    mode,
                    compare: unique,
                    flags,
                    expiry,
                    value: bytes.clone(),
                    vivify: None,
                };
                let expected =
                    model.store(&Store { mode: meant, flags, exptime, compare, ..Store::set(&key, &bytes) }, now);
                let done = apply(&table, op);
                match (expected, &done) {
                    (Stored::Yes(_), Done::Stored { unique, as_sent }) => {
                        assert!(*as_sent, "{}", context());
                        assert!(!seen.contains(&(key.clone(), *unique)), "{}: a unique repeats", context());
                        seen.push((key.clone(), *unique));
                    }
                    (Stored::NotStored, Done::NotStored)
                    | (Stored::Exists, Done::Exists)
                    | (Stored::NotFound, Done::NotFound) => {}
                    (expected, done) => panic!("{}: {mode:?} came to {done:?}, not {expected:?}", context()),
                }
            }
            4 => {
                let expected = model.delete(&key, compare, now);
                let done = apply(&table, Op::Delete { key: key.clone(), compare: unique });
                let meant = match expected {
                    Ok(()) => Done::Deleted,
                    Err(true) => Done::Exists,
                    Err(false) => Done::NotFound,
                };
                assert_eq!(done, meant, "{}", context());
            }
            5 => {
                let (delta, down) = (u64::from(dice.u32(..700)), dice.u32(..2) == 0);
                let expected = model.count(&key, delta, down, compare, now);
                let op = Op::Arith { key: key.clone(), delta, down, compare: unique, initial: None, touch: None };
                match (expected, apply(&table, op)) {
                    (Counted::Yes(meant, _), Done::Counted { number, .. }) => {
                        assert_eq!(number, meant, "{}", context());
                        // memcached fills a shorter number up with spaces; a column holds the number.
                        let item = model.peek(&key, now).expect("it was counted");
                        item.value = number.to_string().into_bytes();
                    }
                    (Counted::NotFound, Done::NotFound)
                    | (Counted::NonNumeric, Done::NonNumeric)
                    | (Counted::Exists, Done::Exists) => {}
                    (expected, done) => panic!("{}: counting came to {done:?}, not {expected:?}", context()),
                }
            }
            6 => {
                let expected = model.touch(&key, exptime, now);
                match (expected, apply(&table, Op::Touch { key: key.clone(), expiry })) {
                    (Some(meant), Done::Touched(item)) => assert_eq!(item.value, meant.value, "{}", context()),
                    (None, Done::NotFound) => {}
                    (expected, done) => panic!("{}: a touch came to {done:?}, not {expected:?}", context()),
                }
            }
            _ => {}
        }
        let expected = model.peek(&key, now).map(|item| (item.value.clone(), item.flags, item.expiry));
        let found = get(&table, &key).map(|item| (item.value, item.flags, item.expiry));
        assert_eq!(found, expected, "{}", context());
    }
}

/// SQL writes are seen at once and change the unique, though they know nothing of the cas column.
pub(crate) fn a_row_that_sql_changes_has_another_unique(world: &World) {
    let settings = world.full();
    let table = open(&settings);
    apply(&table, Op::set(b"a", b"old"));
    let before = get(&table, b"a").expect("stored").unique;
    world.ask(&format!("UPDATE {} SET flags = 7 WHERE id = 'a'", settings.table));
    let item = get(&table, b"a").expect("there");
    assert_eq!(item.flags, 7);
    assert_ne!(item.unique, before);
    let mut op = store(b"a", Mode::Set, b"new");
    if let Op::Store { compare, .. } = &mut op {
        *compare = Some(before);
    }
    assert_eq!(apply(&table, op), Done::Exists);
    world.ask(&format!("DELETE FROM {}", settings.table));
    assert_eq!(get(&table, b"a"), None);
    world.ask(&format!("INSERT INTO {} (id, body, expires) VALUES ('b', 'by sql', 0)", settings.table));
    assert_eq!(value(&table, b"b").as_deref(), Some("by sql"), "an expiry of 0 is none");
}

/// A value that comes again after others is not the same version, within a run and over a restart.
pub(crate) fn a_unique_does_not_come_again(world: &World) {
    let settings = world.full();
    let mut uniques = Vec::new();
    for _ in 0..3 {
        let table = open(&settings);
        for value in [b"one", b"two"] {
            apply(&table, Op::set(b"a", value));
            uniques.push(get(&table, b"a").expect("stored").unique);
        }
    }
    let all = uniques.len();
    uniques.sort_unstable();
    uniques.dedup();
    assert_eq!(uniques.len(), all);
}

/// Two servers and SQL itself count one number up; nothing is lost.
pub(crate) fn counting_is_atomic_against_other_servers_and_sql(world: &World) {
    let settings = world.full();
    let tables = [open(&settings), open(&settings)];
    apply(&tables[0], Op::set(b"n", b"0"));
    let number = if world.quote == '`' { "CAST(body AS UNSIGNED)" } else { "CAST(CAST(body AS TEXT) AS INTEGER)" };
    let number = if world.bytes == "BYTEA" { "convert_from(body, 'UTF8')::int" } else { number };
    let text = match world.bytes {
        "BYTEA" => format!("convert_to(({number} + 1)::text, 'UTF8')"),
        _ if world.quote == '`' => format!("CAST({number} + 1 AS CHAR)"),
        _ => format!("CAST({number} + 1 AS TEXT)"),
    };
    std::thread::scope(|scope| {
        for table in &tables {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..15 {
                        let count = Op::Arith {
                            key: b"n".into(),
                            delta: 1,
                            down: false,
                            compare: None,
                            initial: None,
                            touch: None,
                        };
                        assert!(matches!(apply(table, count), Done::Counted { .. }));
                    }
                });
            }
        }
        scope.spawn(|| {
            for _ in 0..5 {
                (world.sql)(&format!("UPDATE {} SET body = {text} WHERE id = 'n'", settings.table));
            }
        });
    });
    assert_eq!(value(&tables[0], b"n").as_deref(), Some("125"));
}

/// Of clients that add the same key at once, exactly one does, whichever server it asks.
pub(crate) fn one_of_many_adds_wins(world: &World) {
    let settings = world.full();
    let tables = [open(&settings), open(&settings)];
    for round in 0..10 {
        let key = format!("k{round}");
        let all: Vec<Done> = std::thread::scope(|scope| {
            let adds = (0..6).map(|n| {
                let (table, key) = (&tables[n % 2], key.as_bytes());
                scope.spawn(move || apply(table, store(key, Mode::Add, n.to_string().as_bytes())))
            });
            let adds: Vec<_> = adds.collect();
            adds.into_iter().map(|add| add.join().expect("an answer")).collect()
        });
        let stored = all.iter().filter(|done| matches!(done, Done::Stored { .. })).count();
        assert_eq!((stored, all.len()), (1, 6), "{all:?}");
    }
}

/// Changes that arrive together share transactions, and every one of them is there afterwards.
pub(crate) fn clients_share_commits_and_lose_nothing(world: &World) {
    let settings = world.full();
    let table = open(&settings);
    let answers: Vec<_> =
        (0..200).map(|n: u32| table.apply(Op::set(format!("k{n}").as_bytes(), &n.to_be_bytes()))).collect();
    for answer in answers {
        assert!(matches!(wait(answer), Ok(Done::Stored { as_sent: true, .. })));
    }
    let keys = (0..200).map(|n| format!("k{n}").into_bytes()).collect();
    let items = wait(table.get_many(keys)).expect("an answer");
    for (n, item) in (0u32..).zip(items) {
        assert_eq!(item.expect("stored").value, n.to_be_bytes());
    }
    let stats = table.stats();
    assert_eq!(stats.changes_committed, 200);
    assert!(stats.commits < 100, "{} commits for 200 changes", stats.commits);
    assert_eq!(stats.lookups, 1, "one statement for all keys");
}

/// Values that together are more than a database takes in one statement are stored all the same, each of them.
pub(crate) fn large_values_of_many_clients_are_stored(world: &World) {
    let table = open(&world.full());
    let value = |n: u8| vec![n; 1_000_000];
    let key = |n: u8| format!("k{n}").into_bytes();
    let answers: Vec<_> = (0..24).map(|n| table.apply(Op::set(&key(n), &value(n)))).collect();
    for answer in answers {
        let stored = wait(answer);
        assert!(matches!(stored, Ok(Done::Stored { as_sent: true, .. })), "{stored:?}");
    }
    for n in 0..24 {
        assert!(get(&table, &key(n)).expect("stored").value == value(n), "value {n} is another");
    }
}

/// A row that the database refuses fails alone; its neighbours in the transaction are stored.
pub(crate) fn a_bad_row_fails_alone(world: &World) {
    let name = world.fresh();
    (world.sql)(&format!(
        "CREATE TABLE {name} (id VARCHAR(20) {} NOT NULL PRIMARY KEY, n INTEGER NOT NULL CHECK (n < 100))",
        world.binary_collation()
    ));
    let table = open(&world.settings(&name, &["id"], &["n"]));
    for add in [false, true] {
        let answers: Vec<_> = (0..40)
            .map(|n: u32| {
                let number = if n == 17 { 1000 } else { n };
                let mode = if add { Mode::Add } else { Mode::Set };
                (n, table.apply(store(format!("{add}{n}").as_bytes(), mode, number.to_string().as_bytes())))
            })
            .collect();
        for (n, answer) in answers {
            match wait(answer) {
                Ok(Done::Stored { .. }) => assert_ne!(n, 17),
                Err(Error::Row(why)) => assert!(n == 17 && why.starts_with(&format!("table {name} in ")), "{n}: {why}"),
                other => panic!("{n}: {other:?}"),
            }
        }
    }
    assert_eq!(world.ask(&format!("SELECT COUNT(*) FROM {name}")), "78");
}

/// Keys and values are never part of a statement, and any name can be a column.
pub(crate) fn nothing_sent_becomes_sql(world: &World) {
    let (name, quote) = (world.fresh(), world.quote);
    let column = "odd` \"name\"; --".to_owned();
    let quoted = if quote == '`' { column.replace('`', "``") } else { column.replace('"', "\"\"") };
    (world.sql)(&format!(
        "CREATE TABLE {name} ({quote}{quoted}{quote} VARCHAR(200) {} NOT NULL PRIMARY KEY, {quote}select{quote} {})",
        world.binary_collation(),
        world.bytes
    ));
    let table = open(&world.settings(&name, &[&column], &["select"]));
    for text in ["' OR '1'='1", "\"; DROP TABLE x; --", "`", "\\'", "%", "_", "$1", "?", ":name", "/*", "--", "{}"] {
        assert_eq!(get(&table, text.as_bytes()), None, "{text}");
        assert!(matches!(apply(&table, store(text.as_bytes(), Mode::Add, text.as_bytes())), Done::Stored { .. }));
        assert_eq!(value(&table, text.as_bytes()).as_deref(), Some(text));
        assert_eq!(apply(&table, Op::Delete { key: text.into(), compare: None }), Done::Deleted);
    }
    assert_eq!(world.ask(&format!("SELECT COUNT(*) FROM {name}")), "0");
}

/// Several columns in one value, several in one key, NULL and empty fields kept.
pub(crate) fn several_columns_are_one_value_and_one_key(world: &World) {
    let name = world.fresh();
    let collation = world.binary_collation();
    (world.sql)(&format!(
        "CREATE TABLE {name} (shop VARCHAR(20) {collation} NOT NULL, num INTEGER NOT NULL, a VARCHAR(50), b VARCHAR(50), c INTEGER, \
         PRIMARY KEY (shop, num))"
    ));
    let mut settings = world.settings(&name, &["shop", "num"], &["a", "b", "c"]);
    let table = open(&settings);
    for (key, joined) in [("x|1", "one||3"), ("x|2", "\\N|a\\|b|\\N"), ("y\\|z|-3", "C:\\\\dir|é|0")] {
        assert!(matches!(
            apply(&table, Op::set(key.as_bytes(), joined.as_bytes())),
            Done::Stored { as_sent: true, .. }
        ));
        assert_eq!(value(&table, key.as_bytes()).as_deref(), Some(joined));
        assert!(matches!(apply(&table, store(key.as_bytes(), Mode::Replace, joined.as_bytes())), Done::Stored { .. }));
    }
    assert_eq!(world.ask(&format!("SELECT b FROM {name} WHERE shop = 'x' AND num = 1 AND b IS NOT NULL")), "");
    assert_eq!(world.ask(&format!("SELECT COUNT(*) FROM {name} WHERE a IS NULL AND b = 'a|b' AND c IS NULL")), "1");
    let keys = vec![b"x|2".to_vec(), b"y\\|z|-3".to_vec(), b"x|9".to_vec(), b"x".to_vec(), b"x|01".to_vec()];
    let found = wait(table.get_many(keys)).expect("an answer");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false, false]);
    assert_eq!(apply(&table, Op::Delete { key: b"x|2".into(), compare: None }), Done::Deleted);

    let refused = |key: &str, value: &str| wait(table.apply(Op::set(key.as_bytes(), value.as_bytes()))).unwrap_err();
    assert_eq!(
        refused("x|1", "a|b").to_string(),
        "value of \"x|1\" for table birds: expected 3 fields with | between them, not 2"
    );
    assert_eq!(refused("x|01", "a|b|1").to_string(), "key \"x|01\" of table birds: the same row is written \"x|1\"");
    let long = refused("x|1", "a|b|10000000000000000000").to_string();
    assert!(long.starts_with("value of \"x|1\" for table birds: column c holds whole numbers from -"), "{long}");

    settings.format = Format::Json;
    let table = open(&settings);
    assert_eq!(value(&table, b"x|1").as_deref(), Some(r#"{"a":"one","b":"","c":3}"#));
    apply(&table, Op::set(b"x|1", br#"{"c": 4, "b": null}"#));
    assert_eq!(value(&table, b"x|1").as_deref(), Some(r#"{"a":null,"b":null,"c":4}"#));
}

/// What a column cannot hold is refused with a sentence, never cut.
pub(crate) fn what_does_not_fit_is_refused_and_not_cut(world: &World) {
    let name = world.fresh();
    (world.sql)(&format!(
        "CREATE TABLE {name} (id VARCHAR(5) {} NOT NULL PRIMARY KEY, body VARCHAR(5))",
        world.binary_collation()
    ));
    let table = open(&world.settings(&name, &["id"], &["body"]));
    let refused = |key: &str, value: &[u8]| wait(table.apply(Op::set(key.as_bytes(), value))).unwrap_err().to_string();
    assert_eq!(refused("a", b"123456"), "value of \"a\" for table birds: column body holds up to 5 characters, not 6");
    assert_eq!(refused("123456", b"a"), "key \"123456\" of table birds: column id holds up to 5 characters, not 6");
    assert_eq!(get(&table, b"123456"), None, "no row can have it");
    assert!(matches!(apply(&table, Op::set(b"a", b"12345")), Done::Stored { as_sent: true, .. }));
    let append = wait(table.apply(store(b"a", Mode::Append, b"6"))).unwrap_err().to_string();
    assert_eq!(append, "value of \"a\" for table birds: column body holds up to 5 characters, not 6");
    assert_eq!(value(&table, b"a").as_deref(), Some("12345"));
}

/// Integer keys, and ranges of them, with limits.
pub(crate) fn ranges_are_read_in_the_order_of_the_key(world: &World) {
    let name = world.fresh();
    (world.sql)(&format!("CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, body VARCHAR(20), expires BIGINT)"));
    let mut settings = world.settings(&name, &["id"], &["body"]);
    settings.expiry = Some("expires".into());
    let table = open(&settings);
    for n in 1..=20 {
        let mut op = Op::set(n.to_string().as_bytes(), format!("v{n}").as_bytes());
        if let Op::Store { expiry, .. } = &mut op {
            *expiry = (n == 12).then_some(NOW + 1);
        }
        apply(&table, op);
    }
    world.ask(&format!("UPDATE {name} SET expires = {NOW} WHERE id = 13"));
    let bound = |n: i32, inclusive| Some((n.to_string().into_bytes(), inclusive));
    let keys = |from, to, limit| {
        let rows = wait(table.range(Range { from, to, limit })).expect("an answer");
        rows.into_iter().map(|(key, _)| String::from_utf8(key).expect("digits")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(bound(9, false), None, 3), "10 11 12");
    assert_eq!(keys(bound(11, true), bound(15, false), 10), "11 12 14", "13 is expired");
    assert_eq!(keys(None, bound(3, true), 10), "1 2 3");
    assert_eq!(keys(None, None, 2), "1 2");
    let why = wait(table.range(Range { from: bound(1, true), to: Some((b"x".into(), true)), limit: 1 })).unwrap_err();
    assert!(matches!(why, Error::Client(_)), "{why}");
    assert_eq!(wait(table.get_many(vec![b"07".to_vec(), b"7".to_vec()])).unwrap()[0], None, "one row has one key");
}

/// Expired rows are deleted by the reaper only, flushed ones by a flush only.
pub(crate) fn expired_rows_are_reaped_and_a_flush_empties(world: &World) {
    let settings = world.full();
    let (hand, count) = (Hand::new(), || world.ask(&format!("SELECT COUNT(*) FROM {}", settings.table)));
    let table = Table::open_checked(settings.clone(), hand.clock()).expect("the mapping fits");
    for n in 0..30 {
        let mut op = Op::set(format!("k{n}").as_bytes(), b"v");
        if let Op::Store { expiry, .. } = &mut op {
            *expiry = (n % 2 == 0).then_some(NOW + 5);
        }
        apply(&table, op);
    }
    hand.forward(5);
    assert_eq!(get(&table, b"k0"), None);
    assert_eq!(count(), "30");
    assert_eq!(wait(table.reap()), Ok(15));
    assert_eq!((count().as_str(), table.stats().reaped), ("15", 15));
    assert_eq!(wait(table.flush()), Ok(15));
    assert_eq!(count(), "0");
}

/// A table of a key and a value alone works, and says what it gives up.
pub(crate) fn a_table_without_further_columns_works(world: &World) {
    let name = world.fresh();
    (world.sql)(&format!(
        "CREATE TABLE {name} (id VARCHAR(20) {} NOT NULL PRIMARY KEY, body {}, born INTEGER)",
        world.binary_collation(),
        world.bytes
    ));
    let table = open(&world.settings(&name, &["id"], &["body"]));
    world.ask(&format!("INSERT INTO {name} (id, born) VALUES ('null', 1)"));
    assert_eq!(value(&table, b"null").as_deref(), Some(""), "NULL is read as an empty value");
    assert!(matches!(apply(&table, Op::Touch { key: b"null".into(), expiry: Some(NOW + 9) }), Done::Touched(_)));
    assert_eq!(
        world.ask(&format!("SELECT COUNT(*) FROM {name} WHERE body IS NULL AND born = 1")),
        "1",
        "and stays NULL"
    );
    apply(&table, Op::set(b"a", b"1"));
    let first = get(&table, b"a").expect("stored");
    assert_eq!((first.flags, first.expiry), (0, None));
    apply(&table, Op::set(b"a", b"2"));
    assert_ne!(get(&table, b"a").expect("stored").unique, first.unique);
    let notes = table.layout().expect("it was checked").notes().join("\n");
    for what in ["without a flags column", "without a cas column", "without an expiry column"] {
        assert!(notes.contains(what), "{notes}");
    }
    apply(&table, Op::set(b"null", b"now"));
    assert_eq!(world.ask(&format!("SELECT born FROM {name} WHERE id = 'null'")), "1", "other columns are left alone");
}

/// A relaxed table answers before the commit, commits within its time, and undoes nothing it answered for a bad row.
pub(crate) fn a_relaxed_table_commits_within_its_time(world: &World) {
    let mut settings = world.full();
    settings.commit = Commit::Relaxed(Duration::from_millis(30));
    let table = open(&settings);
    for n in 0..50 {
        let key = format!("k{n}");
        assert!(matches!(apply(&table, Op::set(key.as_bytes(), b"v")), Done::Stored { .. }));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.ask(&format!("SELECT COUNT(*) FROM {}", settings.table)) != "50" {
        assert!(Instant::now() < deadline, "it was never committed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(table.stats().commits < 50);
    drop(table);
    let table = open(&settings);
    apply(&table, Op::set(b"last", b"v"));
    drop(table);
    assert_eq!(
        world.ask(&format!("SELECT COUNT(*) FROM {} WHERE id = 'last'", settings.table)),
        "1",
        "closing commits"
    );
}

/// What a table tells from now on; the gap with which it begins has been told.
pub(crate) fn listen(table: &Table) -> Receiver<Change> {
    let (sender, heard) = mpsc::channel();
    table.subscribe(Box::new(move |change| drop(sender.send(change.clone())))).expect("a thread");
    hear(&heard, &Change::Gap);
    heard
}

/// Waits until `change` is told; what was told before it.
pub(crate) fn hear(heard: &Receiver<Change>, change: &Change) -> Vec<Change> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = Vec::new();
    loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(next) if next == *change => return before,
            Ok(next) => before.push(next),
            Err(_) => panic!("{change:?} is not told, only {before:?}"),
        }
    }
}

/// Rows that SQL writes are told, by key where the database can; rows that the table itself writes are not.
pub(crate) fn changes_by_sql_are_told_and_own_ones_are_not(world: &World, settings: &Settings, by_key: bool) {
    let table = open(settings);
    let name = &settings.table;
    let heard = listen(&table);
    let key = |key: &str| if by_key { Change::Key(key.as_bytes().to_vec()) } else { Change::All };
    for own in ["own1", "own2", "both"] {
        apply(&table, Op::set(own.as_bytes(), b"v"));
    }
    world.ask(&format!("INSERT INTO {name} (id, body) VALUES ('theirs', 'v')"));
    assert_eq!(hear(&heard, &key("theirs")), [], "own changes are not told");
    world.ask(&format!("UPDATE {name} SET flags = 3 WHERE id = 'both'"));
    // MySQL tells of a change once more when it is visible.
    let before = hear(&heard, &key("both"));
    let own: Vec<_> = before.into_iter().filter(|change| *change != key("theirs")).collect();
    assert_eq!(own, [], "the number in the cas column is ours, the change is not");
    let other = open(settings);
    apply(&other, Op::set(b"other", b"v"));
    hear(&heard, &key("other"));
    world.ask(&format!("DELETE FROM {name} WHERE id = 'theirs'"));
    hear(&heard, &key("theirs"));
    let stats = table.stats();
    assert!(stats.heard >= 4, "{stats:?}");
}

/// One test for each of the above.
#[macro_export]
macro_rules! for_every_database {
    ($world:expr => $($name:ident)*) => {
        $(#[test]
        fn $name() {
            common::$name($world);
        })*
    };
    ($world:expr) => {
        for_every_database! { $world =>
            commands_mean_what_they_mean_to_memcached
            a_row_that_sql_changes_has_another_unique
            a_unique_does_not_come_again
            counting_is_atomic_against_other_servers_and_sql
            one_of_many_adds_wins
            clients_share_commits_and_lose_nothing
            large_values_of_many_clients_are_stored
            a_bad_row_fails_alone
            nothing_sent_becomes_sql
            several_columns_are_one_value_and_one_key
            a_mapping_that_does_not_fit_is_one_sentence
            a_generated_column_is_read_and_never_written
            a_table_that_was_altered_is_another_for_the_first_request_that_did_not_fit
            what_does_not_fit_is_refused_and_not_cut
            ranges_are_read_in_the_order_of_the_key
            expired_rows_are_reaped_and_a_flush_empties
            a_table_without_further_columns_works
            a_relaxed_table_commits_within_its_time
        }
    };
}
