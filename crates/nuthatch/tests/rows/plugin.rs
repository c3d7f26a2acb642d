//! Whoever leaves MySQL's InnoDB memcached plugin finds what he had: what the plugin's own tests (`mysql-test/suite/memcached` of
//! MySQL 5.6 to 8.0) claim, asked of a Nuthatch that `nuthatch rows import` configured from the plugin's tables. Where the plugin
//! lost, mixed up or made up data, the claim is what is right, and says so.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nuthatch_testkit::database::Database;
use tempfile::TempDir;

use crate::servers::{Got, Nuthatch, Wire};

/// The database that the plugin was in.
static MARIADB: LazyLock<Database> = LazyLock::new(|| Database::mariadb(&[]));

/// One at a time fills the plugin's tables, which are the whole server's.
static PLUGIN: Mutex<()> = Mutex::new(());

const INNODB_ONLY: [&str; 4] = ["innodb_only"; 4];

/// What `nuthatch rows import` prints for these rows of `containers`, without the schema, `config_options` and policies.
fn import(schema: &str, containers: &[[&str; 8]], options: &[(&str, &str)], policies: [&str; 4]) -> String {
    let _alone = PLUGIN.lock().unwrap_or_else(PoisonError::into_inner);
    let [get, set, delete, flush] = policies;
    let mut text = format!(
        "DROP DATABASE IF EXISTS innodb_memcache; CREATE DATABASE innodb_memcache CHARACTER SET utf8mb4; USE innodb_memcache; \
         CREATE TABLE cache_policies (policy_name VARCHAR(40) PRIMARY KEY, get_policy ENUM('innodb_only','cache_only','caching','disabled') NOT NULL, \
         set_policy VARCHAR(20) NOT NULL, delete_policy VARCHAR(20) NOT NULL, flush_policy VARCHAR(20) NOT NULL); \
         INSERT INTO cache_policies VALUES ('cache_policy', '{get}', '{set}', '{delete}', '{flush}'); \
         CREATE TABLE config_options (name VARCHAR(50) NOT NULL PRIMARY KEY, value VARCHAR(50)); \
         CREATE TABLE containers (name VARCHAR(50) NOT NULL PRIMARY KEY, db_schema VARCHAR(250) NOT NULL, \
         db_table VARCHAR(250) NOT NULL, key_columns VARCHAR(250) NOT NULL, value_columns VARCHAR(250), \
         flags VARCHAR(250) NOT NULL DEFAULT '0', cas_column VARCHAR(250), expire_time_column VARCHAR(250), \
         unique_idx_name_on_key VARCHAR(250) NOT NULL);\n"
    );
    for (name, value) in options {
        text.push_str(&format!("INSERT INTO config_options VALUES ('{name}', '{value}');\n"));
    }
    for [name, table, key, value, flags, cas, expiry, index] in containers {
        let value = if *value == "NULL" { "NULL".to_owned() } else { format!("'{value}'") };
        text.push_str(&format!(
            "INSERT INTO containers VALUES ('{name}', '{schema}', '{table}', '{key}', {value}, '{flags}', '{cas}', '{expiry}', '{index}');\n"
        ));
    }
    MARIADB.sql(&text);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    let said = command.args(["rows", "import", &MARIADB.url()]).output().expect("the program can be run");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text")
}

/// A server that has taken the plugin's place.
struct Moved {
    schema: &'static str,
    client: Wire,
    server: Nuthatch,
    _dir: TempDir,
}

impl Moved {
    /// After `sql` in a database called `schema`.
    fn new(schema: &'static str, sql: &str, containers: &[[&str; 8]], options: &[(&str, &str)]) -> Moved {
        MARIADB.sql(&format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4; USE {schema}; {sql}"));
        Moved::serving(schema, &import(schema, containers, options, INNODB_ONLY))
    }

    fn serving(schema: &'static str, text: &str) -> Moved {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut server = Nuthatch::of(dir.path(), schema, text);
        let (fits, said) = server.check();
        assert!(fits, "{said}\n{text}");
        server.start();
        Moved { schema, client: Wire::new(server.socket()), server, _dir: dir }
    }

    fn sql(&self, text: &str) -> String {
        MARIADB.sql(&format!("USE {}; {text}", self.schema)).trim_end().to_owned()
    }

    /// A client that has asked nothing yet.
    fn reconnect(&mut self) {
        self.client = Wire::new(self.server.socket());
    }

    #[track_caller]
    fn gets(&mut self, key: &str, value: &str) {
        assert_eq!(self.client.get("get", key).expect("an answer"), Got::Value(value.to_owned(), None), "{key}");
    }

    #[track_caller]
    fn misses(&mut self, key: &str) {
        assert_eq!(self.client.get("get", key).expect("an answer"), Got::Nothing, "{key}");
    }

    /// The answer to a storage command whose flags are 3.
    fn store(&mut self, command: &str, key: &str, expiry: i64, value: &str) -> String {
        let request = format!("{command} {key} 3 {expiry} {}\r\n{value}\r\n", value.len());
        self.client.ask(&request).expect("an answer")
    }

    #[track_caller]
    fn stores(&mut self, command: &str, key: &str, value: &str) {
        assert_eq!(self.store(command, key, 0, value), "STORED", "{command} {key}");
    }

    #[track_caller]
    fn asks(&mut self, request: &str, answer: &str) {
        assert_eq!(self.client.ask(&format!("{request}\r\n")).expect("an answer"), answer, "{request}");
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One row of `containers` with the columns that the plugin's tests mostly have.
fn usual<'a>(name: &'a str, table: &'a str, value: &'a str) -> [&'a str; 8] {
    [name, table, "id", value, "f", "c", "e", "PRIMARY"]
}

const USUAL: &str = "f INT, c BIGINT UNSIGNED, e INT, PRIMARY KEY (id)";

#[test]
fn several_columns_are_one_value_as_the_plugin_showed_it() {
    let mut at = Moved::new(
        "fields",
        &format!(
            "CREATE TABLE birds (id VARCHAR(32), name VARCHAR(40), place CHAR(20), ring VARCHAR(200), note TEXT, {USUAL}) CHARSET utf8mb3; \
             INSERT INTO birds (id, name, place, ring, note) VALUES ('a', 'Kleiber', NULL, '1', NULL), \
             ('b', NULL, NULL, NULL, 'Gehölz'), ('c', 'C:\\\\\\\\x', 'Süd', '3', 'n');"
        ),
        &[usual("birds", "birds", "name,place;ring|note")],
        &[("separator", "|")],
    );
    // NULL is empty wherever it stands, and nothing is escaped.
    at.gets("a", "Kleiber||1|");
    at.gets("b", "|||Gehölz");
    at.gets("c", "C:\\\\x|Süd|3|n");
    at.misses("d");
    // What is left out or is empty becomes NULL; the plugin let fields after an empty one slip into its place.
    at.stores("set", "d", "Meise|Ost");
    at.gets("d", "Meise|Ost||");
    at.stores("add", "e", "Star|||Juni");
    at.gets("e", "Star|||Juni");
    assert_eq!(at.store("add", "e", 0, "|"), "NOT_STORED");
    at.stores("replace", "e", "|Nord");
    at.gets("e", "|Nord||");
    assert_eq!(at.sql("SELECT COUNT(*) FROM birds WHERE name IS NULL AND place = 'Nord' AND ring IS NULL"), "1");
    assert_eq!(at.sql("SELECT COUNT(*) FROM birds WHERE id = 'd' AND ring IS NULL AND note IS NULL"), "1");
    assert_eq!(at.store("replace", "f", 0, "x|y"), "NOT_STORED");
    at.asks("delete e", "DELETED");
    at.asks("delete e", "NOT_FOUND");
    // Whoever reads and writes the same changes nothing.
    at.stores("set", "b", "|||Gehölz");
    at.gets("b", "|||Gehölz");
    assert_eq!(at.sql("SELECT COUNT(*) FROM birds WHERE id = 'b' AND name IS NULL AND note = 'Gehölz'"), "1");
    // The plugin dropped what was too much.
    let refused = at.store("set", "a", 0, "a|b|c|d|e");
    assert!(refused.ends_with("expected up to 4 fields with | between them, not 5"), "{refused}");
    at.gets("a", "Kleiber||1|");
    at.stores("set", "Ü", "Ümlaut|ä|ö|ü");
    at.gets("Ü", "Ümlaut|ä|ö|ü");
    let long = at.store("set", &"k".repeat(33), 0, "x");
    assert!(long.contains("up to 32 characters, not 33"), "{long}");
}

#[test]
fn a_separator_may_be_any_text() {
    for (schema, separator) in [("sep_plus", "+++"), ("sep_umlaut", "ü"), ("sep_digit", "0"), ("sep_comma", ",")] {
        let mut at = Moved::new(
            schema,
            &format!(
                "CREATE TABLE t (id VARCHAR(9), a VARCHAR(40), b VARCHAR(40), d VARCHAR(40), {USUAL}); \
                 INSERT INTO t (id, a, b, d) VALUES ('a', 'x', 'y', 'z'), ('n', NULL, NULL, 'z');"
            ),
            &[usual("t", "t", "a,\n     b,\n\td")],
            &[("separator", separator)],
        );
        at.gets("a", &["x", "y", "z"].join(separator));
        at.gets("n", &["", "", "z"].join(separator));
        at.stores("set", "b", &["1", "2", "3"].join(separator));
        at.gets("b", &["1", "2", "3"].join(separator));
        assert_eq!(at.sql("SELECT CONCAT(a, b, d) FROM t WHERE id = 'b'"), "123");
    }
}

#[test]
fn a_table_is_chosen_by_name_and_the_default_mapping_serves_the_rest() {
    for (schema, delimiter) in [("names_dot", "."), ("names_other", "!")] {
        let table = |name: &str, town: &str| {
            format!(
                "CREATE TABLE {name} (id VARCHAR(32), town VARCHAR(99), part VARCHAR(99), {USUAL}); \
                 INSERT INTO {name} (id, town, part) VALUES ('d', '{town}', 'West'), ('h', '{name}', 'Nord');"
            )
        };
        let mut at = Moved::new(
            schema,
            &[table("t1", "Dachau"), table("t2", "Dorsten"), table("t3", "Detmold")].concat(),
            &[usual("aaa", "t1", "town,part"), usual("bbb", "t2", "town"), usual("default", "t3", "town,part")],
            &[("separator", "|"), ("table_map_delimiter", delimiter)],
        );
        let key = |name: &str, key: &str| format!("@@{name}{delimiter}{key}");
        at.gets("d", "Detmold|West");
        at.gets(&key("aaa", "d"), "Dachau|West");
        at.gets("@@bbb", &format!("{schema}/t2"));
        at.gets("d", "Dorsten");
        at.gets("h", "t2");
        at.stores("set", &key("aaa", "e"), "Essen|Mitte");
        at.gets(&key("aaa", "e"), "Essen|Mitte");
        at.misses("e");
        // The plugin's delete did not know names, and took the row of the table chosen last.
        at.asks(&format!("delete {}", key("aaa", "d")), "DELETED");
        at.gets("d", "Dorsten");
        // A name that is none chooses nothing, and nothing is written elsewhere instead.
        at.misses("@@none");
        at.misses(&key("none", "d"));
        let refused = at.store("set", &key("none", "d"), 0, "lost");
        assert!(
            refused.starts_with("SERVER_ERROR ") && refused.contains("no table has keys such as @@none"),
            "{refused}"
        );
        at.gets("d", "Dorsten");
        // flush_all deletes the rows of the table that is chosen.
        at.asks("flush_all", "OK");
        assert_eq!(at.sql("SELECT COUNT(*) FROM t2"), "0");
        assert_eq!(at.sql("SELECT (SELECT COUNT(*) FROM t1) + (SELECT COUNT(*) FROM t3)"), "4");
        at.reconnect();
        at.gets("d", "Detmold|West");
        at.stores("set", "e", "Erfurt|Ost");
        assert_eq!(at.sql("SELECT town FROM t3 WHERE id = 'e'"), "Erfurt");
    }
    // Without a mapping called default, the one with the least name is it.
    let text = import("names_dot", &[usual("b", "t3", "town"), usual("a", "t1", "town")], &[], INNODB_ONLY);
    assert!(text.contains("[[listen]]\nmemcached = \"127.0.0.1:11211\"\npool = \"a\"\n"), "{text}");
}

#[test]
fn many_keys_are_read_at_once_from_several_tables() {
    let mut at = Moved::new(
        "many",
        &format!(
            "CREATE TABLE t1 (id VARCHAR(32), v VARCHAR(99), {USUAL}); CREATE TABLE t2 LIKE t1; \
             INSERT INTO t1 (id, v) VALUES ('a', '1'), ('b', '2'); INSERT INTO t2 (id, v) VALUES ('a', '3');"
        ),
        &[usual("t1", "t1", "v"), usual("t2", "t2", "v")],
        &[],
    );
    // The plugin read every key from the first one's table.
    let found = at.client.ask("get @@t2.a a zz b @@t1.b a\r\nmn\r\n").expect("an answer");
    assert_eq!(found, "VALUE @@t2.a 0 1");
    let mut rest = Vec::new();
    while rest.last().is_none_or(|line| line != "MN") {
        rest.push(at.client.ask("").expect("an answer"));
    }
    assert_eq!(
        rest,
        ["3", "VALUE a 0 1", "1", "VALUE b 0 1", "2", "VALUE @@t1.b 0 1", "2", "VALUE a 0 1", "1", "END", "MN"]
    );
}

#[test]
fn whole_numbers_keep_their_bounds_as_values_and_as_keys() {
    let mut at = Moved::new(
        "numbers",
        &format!(
            "CREATE TABLE t (id VARCHAR(32), n INT, v VARCHAR(99), {USUAL}); \
             CREATE TABLE tiny (id VARCHAR(9) PRIMARY KEY, v TINYINT); CREATE TABLE big (id INT PRIMARY KEY, v BIGINT); \
             CREATE TABLE huge (id BIGINT UNSIGNED PRIMARY KEY, v BIGINT UNSIGNED NOT NULL);"
        ),
        &[
            usual("t", "t", "n,v"),
            ["tiny", "tiny", "id", "v", "", "", "", "PRIMARY"],
            ["big", "big", "id", "v", "0", "0", "0", "PRIMARY"],
            ["huge", "huge", "id", "v", "0", "0", "0", "PRIMARY"],
        ],
        &[],
    );
    at.gets("@@t", "numbers/t");
    for value in ["-2147483648|Ost", "2147483647|Ost"] {
        at.stores("set", "a", value);
        at.gets("a", value);
    }
    // The plugin stored another number instead of what does not fit.
    let refused = at.store("set", "a", 0, "2147483648|Ost");
    assert!(
        refused.contains("column n holds whole numbers from -2147483648 to 2147483647, not \"2147483648\""),
        "{refused}"
    );
    at.gets("a", "2147483647|Ost");
    // Its incr of such a value lost the other column.
    at.asks("incr a 10", "CLIENT_ERROR cannot increment or decrement non-numeric value");
    at.gets("a", "2147483647|Ost");
    for (table, values) in [
        ("tiny", &["-128", "127"][..]),
        ("big", &["-9223372036854775808", "9223372036854775807"]),
        ("huge", &["0", "18446744073709551615"]),
    ] {
        let key = format!("@@{table}.7");
        for value in values {
            at.stores("set", &key, value);
            at.gets(&key, value);
        }
        let beyond = at.store("set", &key, 0, "99999999999999999999");
        assert!(beyond.contains("holds whole numbers from"), "{beyond}");
    }
    let refused = at.store("append", "@@big.7", 0, " abc");
    assert!(refused.contains("column v holds whole numbers"), "{refused}");
    at.stores("set", "@@huge.7", "543");
    at.asks("incr @@huge.7 10", "553");
    at.asks("decr @@huge.7 600", "0");
    assert_eq!(at.sql("SELECT v FROM huge"), "0");
    for key in ["@@big.-2147483648", "@@big.2147483647", "@@huge.18446744073709551615"] {
        at.stores("add", key, "5");
        at.gets(key, "5");
    }
    // The plugin found the row of the least key.
    at.misses("@@big.2147483648");
    let refused = at.store("add", "@@big.2147483648", 0, "8");
    assert!(refused.contains("column id holds whole numbers from"), "{refused}");
    // It counted text as 0.
    at.sql("INSERT INTO t (id, n, v) VALUES ('w', NULL, 'word')");
    at.asks("decr w 20", "CLIENT_ERROR cannot increment or decrement non-numeric value");
}

#[test]
fn one_table_is_read_by_any_of_its_unique_columns_and_shows_them() {
    let mut at = Moved::new(
        "columns",
        "CREATE TABLE t (a VARCHAR(32), b VARCHAR(512), d VARCHAR(700), f INT, c BIGINT UNSIGNED, e INT, PRIMARY KEY (a), \
         UNIQUE i2 (b), UNIQUE i3 (d)); INSERT INTO t (a, b, d) VALUES ('O', 'Olpe', 'Mitte'), ('K', 'Kiel', 'West');",
        &[
            ["one", "t", "a", "b,d", "f", "c", "e", "PRIMARY"],
            ["two", "t", "b", "a, b", "f", "c", "e", "i2"],
            ["three", "t", "d", "a,b", "f", "c", "e", "i3"],
        ],
        &[],
    );
    at.gets("@@one.O", "Olpe|Mitte");
    at.gets("@@two.Kiel", "K|Kiel");
    at.gets("@@three.West", "K|Kiel");
    at.stores("set", "@@two.Essen", "E|Essen");
    at.gets("@@two.Essen", "E|Essen");
    assert_eq!(at.sql("SELECT a, b, IFNULL(d, 'none') FROM t WHERE a = 'E'"), "E\tEssen\tnone");
    let refused = at.store("set", "@@two.Essen", 0, "E|Emden");
    assert!(refused.contains("column b is of the key and is not to become \"Emden\""), "{refused}");
    // A row that another unique index has already is refused, and none is changed.
    let refused = at.store("set", "@@three.Altstadt", 0, "E|Hafen");
    assert!(refused.starts_with("SERVER_ERROR ") && refused.contains("Duplicate entry"), "{refused}");
    assert_eq!(at.sql("SELECT COUNT(*) FROM t WHERE b = 'Hafen' OR d = 'Altstadt'"), "0");
    at.misses("@@three.Altstadt");
}

#[test]
fn expiry_flags_and_cas_stand_in_their_columns() {
    let mut at = Moved::new(
        "moments",
        &format!(
            "CREATE TABLE t (id VARCHAR(32), v VARCHAR(99), {USUAL}); \
             INSERT INTO t VALUES ('old', 'x', 0, 2, UNIX_TIMESTAMP() - 60), ('null', 'x', NULL, NULL, NULL);"
        ),
        &[usual("t", "t", "v"), usual("again", "t", "v")],
        &[],
    );
    for key in ["old", "@@again.old"] {
        at.misses(key);
    }
    at.gets("null", "x");
    assert_eq!(at.store("set", "gone", -60, "x"), "STORED");
    at.misses("gone");
    assert_eq!(at.store("add", "soon", 100, "x"), "STORED");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let second: u64 = at.sql("SELECT e FROM t WHERE id = 'soon'").parse().expect("a number");
    assert!((now + 60..=now + 100).contains(&second), "{second} for {now} and 100");
    assert_eq!(at.client.ask("get soon\r\n").expect("an answer"), "VALUE soon 3 1");
    at.reconnect();
    // From 30 days on it is a moment, and this one was in 1970.
    assert_eq!(at.store("add", "past", 2_592_001, "x"), "STORED");
    at.misses("past");
    assert_eq!(at.store("set", "last", 2_147_483_647, "x"), "STORED");
    at.gets("last", "x");
    // A later second has no place in the protocol's 32 bits.
    assert_eq!(at.store("set", "beyond", 2_147_483_648, "x"), "STORED");
    at.misses("beyond");
    // The plugin's add failed over an expired row.
    assert_eq!(at.store("add", "old", 0, "new"), "STORED");
    at.gets("old", "new");
    let uniques = "SELECT COUNT(DISTINCT c) FROM t WHERE c > 2";
    assert_eq!(at.sql(uniques), "3", "soon, last and old");
    let Got::Value(_, Some(unique)) = at.client.get("gets", "old").expect("an answer") else { panic!("it is there") };
    at.sql("UPDATE t SET v = 'sql' WHERE id = 'old'");
    // The plugin did not notice that.
    assert_eq!(at.client.ask(&format!("cas old 0 0 1 {unique}\r\ny\r\n")).expect("an answer"), "EXISTS");
    let Got::Value(_, Some(unique)) = at.client.get("gets", "old").expect("an answer") else { panic!("it is there") };
    assert_eq!(at.client.ask(&format!("cas old 0 0 1 {unique}\r\ny\r\n")).expect("an answer"), "STORED");
}

#[test]
fn what_the_table_does_not_take_is_refused_and_changes_nothing() {
    let mut at = Moved::new(
        "refusals",
        "CREATE TABLE p (id VARCHAR(32) PRIMARY KEY, v VARCHAR(99)); INSERT INTO p VALUES ('Dd', 'Hessen'), ('Hh', 'Holstein'); \
         CREATE TABLE t (id VARCHAR(32), p VARCHAR(32), v VARCHAR(9), UNIQUE i (id), FOREIGN KEY (p) REFERENCES p (id)); \
         CREATE TABLE u (k VARCHAR(9) PRIMARY KEY, id VARCHAR(9) UNIQUE, v TEXT); INSERT INTO u VALUES ('a', 'b', 'there'); \
         CREATE TABLE g (id VARCHAR(9) PRIMARY KEY, v INT, twice INT AS (v + v) VIRTUAL); \
         CREATE TABLE log (said VARCHAR(99)); CREATE TRIGGER tr AFTER INSERT ON g FOR EACH ROW INSERT INTO log VALUES (NEW.id);",
        &[
            ["p", "p", "id", "v", "0", "0", "0", "PRIMARY"],
            ["t", "t", "id", "p,v", "0", "0", "0", "i"],
            ["u", "u", "id", "v", "0", "0", "0", "id"],
            ["g", "g", "id", "v", "0", "0", "0", "PRIMARY"],
        ],
        &[],
    );
    at.stores("set", "@@t.E", "Dd|Essen");
    let refused = at.store("set", "@@t.E", 0, "Xx|Essen");
    assert!(refused.starts_with("SERVER_ERROR ") && refused.contains("foreign key"), "{refused}");
    at.gets("@@t.E", "Dd|Essen");
    let refused = at.client.ask("delete @@p.Dd\r\n").expect("an answer");
    assert!(refused.starts_with("SERVER_ERROR ") && refused.contains("foreign key"), "{refused}");
    at.asks("delete @@p.Hh", "DELETED");
    let refused = at.store("set", "@@t.E", 0, "Dd|Oberhausen");
    assert!(refused.contains("column v holds up to 9 characters, not 10"), "{refused}");
    // A column that is not mapped, takes no NULL and has no default: rows are changed and not added.
    at.stores("replace", "@@u.b", "changed");
    let refused = at.store("add", "@@u.c", 0, "new");
    assert!(refused.contains("k of table u is not mapped, takes no NULL and has no default"), "{refused}");
    // The plugin took no table with a generated column at all, and knew no triggers.
    at.stores("set", "@@g.Stark", "21");
    assert_eq!(at.sql("SELECT twice, said FROM g, log WHERE id = said"), "42\tStark");
}

#[test]
fn ranges_are_asked_for_as_before() {
    let mut at = Moved::new(
        "ranges",
        &format!(
            "CREATE TABLE t (id VARCHAR(32), v VARCHAR(99), {USUAL}); \
             INSERT INTO t (id, v) VALUES ('B', '1'), ('C', '2'), ('D', '3'), ('H', '4'), ('M', '5');"
        ),
        &[usual("t", "t", "v")],
        &[],
    );
    for (range, keys) in [
        ("@>B", "CDHM"),
        ("@>=B", "BCDHM"),
        ("@<M", "BCDH"),
        ("@<=M", "BCDHM"),
        ("@>B@<M", "CDH"),
        ("@>=B@<=M", "BCDHM"),
    ] {
        let mut line = at.client.ask(&format!("get {range}\r\n")).expect("an answer");
        let mut found = String::new();
        while line != "END" {
            found.push_str(line.strip_prefix("VALUE ").and_then(|line| line.strip_suffix(" 0 1")).unwrap_or_default());
            line = at.client.ask("").expect("an answer");
        }
        assert_eq!(found, keys, "{range}");
    }
}

#[test]
fn each_command_keeps_its_policy() {
    let schema = "policies";
    MARIADB.sql(&format!(
        "CREATE DATABASE {schema}; USE {schema}; CREATE TABLE t (id VARCHAR(32), v VARCHAR(99), {USUAL}); INSERT INTO t (id, v) VALUES ('d', 'row');"
    ));
    let serving = |policies| Moved::serving(schema, &import(schema, &[usual("t", "t", "v")], &[], policies));
    // Only what is in memory is read, and writes go by it.
    let mut at = serving(["cache_only", "innodb_only", "innodb_only", "disabled"]);
    at.misses("d");
    at.stores("set", "g", "Gossen");
    assert_eq!(at.sql("SELECT v FROM t WHERE id = 'g'"), "Gossen");
    at.asks("flush_all", "SERVER_ERROR the policy of pool t disables this command");
    drop(at);
    // Reads and writes in memory alone.
    let mut at = serving(["cache_only", "cache_only", "innodb_only", "cache_only"]);
    at.stores("add", "e", "Essen");
    at.gets("e", "Essen");
    assert_eq!(at.sql("SELECT COUNT(*) FROM t WHERE id = 'e'"), "0");
    at.asks("flush_all", "OK");
    at.misses("e");
    assert_eq!(at.sql("SELECT COUNT(*) FROM t"), "2");
    drop(at);
    // Everywhere; a delete leaves no copy, as the plugin's did.
    let mut at = serving(["caching", "caching", "innodb_only", "caching"]);
    at.gets("d", "row");
    at.stores("add", "h", "Hof");
    at.asks("delete h", "DELETED");
    at.misses("h");
    at.asks("flush_all", "OK");
    at.misses("d");
    assert_eq!(at.sql("SELECT COUNT(*) FROM t"), "0");
    drop(at);
    let mut at = serving(["caching", "disabled", "disabled", "disabled"]);
    at.sql("INSERT INTO t (id, v) VALUES ('d', 'row')");
    at.gets("d", "row");
    assert_eq!(at.store("add", "g", 0, "x"), "SERVER_ERROR the policy of pool t disables this command");
    at.asks("delete d", "SERVER_ERROR the policy of pool t disables this command");
    assert_eq!(at.sql("SELECT COUNT(*) FROM t"), "1");
}

#[test]
fn a_table_that_is_altered_is_served_on_as_it_is_now() {
    let mut at = Moved::new(
        "altered",
        &format!(
            "CREATE TABLE t (id VARCHAR(32), n INT, v VARCHAR(99), {USUAL}); INSERT INTO t (id, n, v) VALUES ('d', 1, 'City');"
        ),
        &[usual("t", "t", "n,v")],
        &[],
    );
    at.gets("d", "1|City");
    at.sql("ALTER TABLE t ADD COLUMN more INT DEFAULT 20");
    at.stores("set", "f", "7|West");
    assert_eq!(at.sql("SELECT n, more FROM t WHERE id = 'f'"), "7\t20");
    for (kind, value) in
        [("VARCHAR(20)", "five|Ost"), ("BIGINT", "-9223372036854775808|Ost"), ("SMALLINT", "-32768|Ost")]
    {
        at.sql(&format!("DELETE FROM t WHERE id = 'e'; ALTER TABLE t MODIFY n {kind}"));
        at.gets("d", "1|City");
        at.stores("set", "f", "8|West");
        at.gets("f", "8|West");
        // What does not fit the table as it was seen last has it seen again.
        eventually("it is seen as it is", || at.store("set", "e", 0, value) == "STORED");
        at.gets("e", value);
    }
    at.sql("ALTER TABLE t DROP COLUMN v");
    let Got::Refused(why) = at.client.get("get", "d").expect("an answer") else { panic!("it has lost a column") };
    assert!(why.starts_with("SERVER_ERROR ") && why.contains("'v'"), "{why}");
    at.sql("ALTER TABLE t ADD COLUMN v VARCHAR(99) DEFAULT 'back'");
    let back = Got::Value("1|back".to_owned(), None);
    eventually("it is served again", || at.client.get("get", "d").expect("an answer") == back);
}

#[test]
fn mappings_that_do_not_fit_are_one_sentence_each() {
    let schema = "errors";
    MARIADB.sql(&format!(
        "CREATE DATABASE {schema} CHARACTER SET utf8mb4; USE {schema}; \
         CREATE TABLE t (id VARCHAR(32), v VARCHAR(99), {USUAL}); CREATE VIEW w AS SELECT * FROM t; \
         CREATE TABLE parts (id VARCHAR(32), v VARCHAR(99), {USUAL}) PARTITION BY KEY (id); \
         CREATE TABLE two (id VARCHAR(9), v INT, f INT, PRIMARY KEY (id, f), KEY i (id)); \
         CREATE TABLE odd (id VARCHAR(9) PRIMARY KEY, m DECIMAL(9,2), day DATE, e ENUM('a','b'), j JSON, x DOUBLE, g INT AS (1) STORED); \
         CREATE TABLE `Upper Case` (`Id` VARCHAR(300) CHARACTER SET latin1 PRIMARY KEY, `Value` VARCHAR(99) CHARACTER SET latin1);"
    ));
    let said = |container: [&str; 8]| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let text = import(schema, &[container], &[], INNODB_ONLY);
        let (fits, said) = Nuthatch::of(dir.path(), "errors", &text).check();
        assert!(!fits, "{text}\n{said}");
        said
    };
    for (container, sentence) in [
        (usual("m", "t9", "v"), "table t9: it does not exist in mysql://"),
        (["m", "t", "nokey", "v", "f", "c", "e", "PRIMARY"], "key column nokey does not exist, only id, v, f, c, e"),
        (usual("m", "t", "nothing"), "value column nothing does not exist, only id, v, f, c, e"),
        (["m", "t", "id", "v", "unknown", "c", "e", "PRIMARY"], "flags column unknown does not exist"),
        (usual("m", "t", "v,v"), "expected the name of a column, each once"),
        (usual("m", "t", "id"), "expected a value column that is none of the key's"),
        (usual("m", "w", "v"), "expected a unique index on id, which has none"),
        (["m", "two", "id", "v", "0", "0", "0", "PRIMARY"], "expected a unique index on id, which has none"),
        (
            ["m", "odd", "id", "m", "0", "0", "0", "PRIMARY"],
            "value column m holds type decimal, expected text, bytes or whole numbers",
        ),
        (["m", "odd", "id", "day", "0", "0", "0", "PRIMARY"], "value column day holds type date"),
        (["m", "odd", "id", "e", "0", "0", "0", "PRIMARY"], "value column e holds type enum"),
        (["m", "odd", "id", "x", "0", "0", "0", "PRIMARY"], "value column x holds type double"),
        (
            ["m", "odd", "id", "g", "0", "0", "0", "PRIMARY"],
            "value column g is generated by the database and cannot be written",
        ),
        (["m", "t", "id", "v", "v", "c", "e", "PRIMARY"], "column v is mapped twice"),
    ] {
        let said = said(container);
        assert!(said.contains(sentence), "{sentence}\n{said}");
    }
    let text = import(schema, &[usual("m", "t", "NULL"), usual("n", "t", "v")], &[], INNODB_ONLY);
    assert!(text.contains("# Left out: \"m\", whose key_columns or value_columns name no column.\n"), "{text}");
    assert!(!text.contains("[table.m]") && text.contains("pool = \"n\""), "{text}");
    // The plugin refused what is partitioned.
    let upper = ["Upper", "Upper Case", "Id", "Value", "0", "0", "0", "PRIMARY"];
    let json = ["json", "odd", "id", "j", "0", "0", "0", "PRIMARY"];
    let computed = ["computed", "odd", "id", "g", "0", "0", "0", "PRIMARY"];
    let all = [usual("parts", "parts", "v"), upper, json, computed];
    let text = import(schema, &all, &[], INNODB_ONLY);
    let computed = "[pool.computed]\n";
    assert!(text.contains(computed), "{text}");
    let mut at = Moved::serving(schema, &text.replace(computed, &format!("{computed}policy_set = \"disabled\"\n")));
    at.stores("set", "@@parts.a", "b");
    at.gets("@@parts.a", "b");
    at.stores("set", "@@Upper.ä", "Süd");
    at.gets("@@Upper.ä", "Süd");
    assert_eq!(at.sql("SELECT HEX(`Id`), LENGTH(`Value`) FROM `Upper Case`"), "E4\t3");
    assert!(at.store("set", "@@Upper.x", 0, "日本").starts_with("SERVER_ERROR "));
    // What the database computes is read by a pool that writes none.
    at.sql("INSERT INTO odd (id) VALUES ('r')");
    at.gets("@@computed.r", "1");
    assert!(at.store("set", "@@computed.r", 0, "2").starts_with("SERVER_ERROR "));
    // MariaDB's JSON is text.
    at.stores("set", "@@json.a", "{\"b\":1}");
    at.gets("@@json.a", "{\"b\":1}");
    let long = at.store("set", &"k".repeat(251), 0, "x");
    assert!(long.starts_with("CLIENT_ERROR"), "{long}");
}
