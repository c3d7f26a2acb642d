//! `[table.NAME]`, and pools with a table behind them.

use std::time::Duration;

use nuthatch_rows::{Commit, Format};

use super::{File, file_problem};
use crate::settings::Policy;

const WHOLE: &str = r#"
[pool.accounts]
backend = "accounts"
policy = "table"
ttl_max = "1h"

[table.accounts]
url = "sqlite:///var/lib/nuthatch/shop.db"
table = "people"
key = ["shop", "id"]
value = "name"
flags = "flags"
cas = "cas"
expiry = "expires"
format = "json"
separator = ";"
gather = "200us"
commit = "relaxed"
commit_within = "50ms"
reap = "1m"
flush = true
"#;

#[test]
fn a_table_is_read_with_everything_that_can_be_said_of_it() {
    let settings = File::new("whole-table", WHOLE).load(&[]);
    let table = &settings.tables[0];
    let rows = &table.rows;
    assert_eq!((rows.name.as_str(), rows.table.as_str(), table.flush), ("accounts", "people", true));
    assert_eq!((&rows.key[..], &rows.value[..]), (&["shop".to_owned(), "id".to_owned()][..], &["name".to_owned()][..]));
    assert_eq!((rows.format, rows.separator.as_str()), (Format::Json, ";"));
    assert_eq!(rows.commit, Commit::Relaxed(Duration::from_millis(50)));
    assert_eq!(rows.reap, Some(Duration::from_secs(60)));
    assert!(rows.writes);
    let pool = &settings.pools[0];
    assert_eq!((pool.policy, pool.ttl_max_seconds), (Policy::Table, 0), "no copies, whatever their life would be");
}

#[test]
fn a_table_is_written_unless_the_policy_of_its_pool_keeps_writes_from_it() {
    for (line, writes) in [
        ("", true),
        ("policy = \"table\"", true),
        ("policy_delete = \"disabled\"", true),
        ("policy = \"disabled\"", false),
        ("policy_set = \"disabled\"", false),
        ("policy_set = \"memory\"", false),
    ] {
        let table = "[table.a]\nurl = \"sqlite:///a.db\"\nkey = \"k\"\nvalue = \"v\"\n";
        let text = format!("[pool.one]\nbackend = \"a\"\n{line}\n{table}");
        assert_eq!(File::new("writes", &text).load(&[]).tables[0].rows.writes, writes, "{line}");
    }
}

#[test]
fn a_table_that_lacks_something_is_one_sentence() {
    let table = "[table.a]\nurl = \"sqlite:///a.db\"\nkey = \"k\"\nvalue = \"v\"\n";
    for (name, text, sentence) in [
        (
            "no-url",
            "[table.a]\nkey = \"k\"\nvalue = \"v\"\n".to_owned(),
            "n.toml:1: table.a.url: expected the URL of a database",
        ),
        (
            "no-key",
            "[table.a]\nurl = \"sqlite:///a.db\"\n".to_owned(),
            "n.toml:1: table.a.key: expected the name of the key's column",
        ),
        (
            "bad-url",
            "[table.a]\nurl = \"oracle://h/d\"\n".to_owned(),
            "n.toml:2: table.a.url: expected sqlite:///PATH, mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE, not \"oracle://h/d\"",
        ),
        (
            "env",
            format!("{table}password_env = \"NUTHATCH_TEST_NOT_SET\"\n"),
            "n.toml:5: table.a.password_env: expected a password in the environment variable NUTHATCH_TEST_NOT_SET, which is not set",
        ),
        (
            "two-pools",
            format!("[pool.one]\nbackend = \"a\"\n[pool.two]\nbackend = \"a\"\n{table}"),
            "n.toml:1: pool.one.backend: expected table a behind one pool, two has it too",
        ),
        (
            "policy",
            "[pool.one]\npolicy = \"table\"\n".to_owned(),
            "n.toml:1: pool.one.policy: expected only with a backend that is a table",
        ),
    ] {
        let found = file_problem(name, &text);
        assert!(found.starts_with(sentence), "{found}\n{sentence}");
    }
}
