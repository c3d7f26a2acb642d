//! The configuration tables of MySQL's InnoDB memcached plugin, turned into Nuthatch's settings.
//!
//! Shapes: the plugin's `scripts/innodb_memcached_config.sql`, whose `containers` rows are mappings, whose first `cache_policies`
//! row was the whole server's policy, and whose `config_options` hold the separator.

use std::fmt::Write as _;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::mysql;
use crate::budget::Budget;
use crate::drive::Drive;
use crate::error::Error;
use crate::link::Fault;
use crate::settings::{Database, Engine, Settings};

struct Container {
    name: String,
    schema: String,
    table: String,
    key: String,
    value: String,
    others: [Option<String>; 3],
}

/// Of get, set, delete and flush, in the plugin's words.
type Policies = (String, String, String, String);

/// What the plugin's word for a policy is here.
fn policy(word: &str) -> &'static str {
    match word {
        "innodb_only" => "table",
        "cache_only" => "memory",
        "disabled" => "disabled",
        _ => "caching",
    }
}

/// The TOML of every mapping that an existing `innodb_memcache.containers` table has, a pool and a table each.
///
/// # Errors
/// When the database is none of MySQL's, cannot be reached or has no such table.
pub fn import(database: &Database) -> Result<String, Error> {
    if database.engine() != Engine::Mysql {
        return Err(Error::Settings(format!(
            "{database}: expected mysql://USER@HOST/DATABASE, where the plugin's tables are"
        )));
    }
    let settings = Settings::new("import", database.clone(), "innodb_memcache.containers", &["name"], &["name"]);
    let opts = Opts::from(mysql::opts(&settings)?);
    let away = |why: String| Error::Unreachable(format!("{database}: {why}"));
    let (drive, budget) = (Drive::new().map_err(away)?, Budget::new(Duration::from_secs(10), None));
    let read = drive.wait(budget.within(async {
        let mut conn = Conn::new(opts).await.map_err(mysql::fault)?;
        let containers: Vec<mysql_async::Row> = conn
            .query(
                "SELECT name, db_schema, db_table, key_columns, value_columns, flags, cas_column, expire_time_column \
                 FROM innodb_memcache.containers ORDER BY name = 'default' DESC, name",
            )
            .await
            .map_err(mysql::fault)?;
        // Either may be missing in old installations; what they hold has defaults.
        let policies: Option<Policies> = conn
            .query_first(
                "SELECT get_policy, set_policy, delete_policy, flush_policy FROM innodb_memcache.cache_policies",
            )
            .await
            .unwrap_or_default();
        let separator: Option<String> = conn
            .query_first("SELECT value FROM innodb_memcache.config_options WHERE name = 'separator'")
            .await
            .unwrap_or_default();
        Ok((containers, policies, separator))
    }));
    let (containers, policies, separator) = read.map_err(|fault| match fault {
        Fault::Row(why) | Fault::Conflict(why) | Fault::Refused(why) => Error::Refused(format!("{database}: {why}")),
        Fault::Overdue(why) | Fault::Lost(why) | Fault::Unready(why) => away(why),
    })?;
    let mut text = String::from("# Written by `nuthatch rows import` from innodb_memcache.containers.\n");
    for row in &containers {
        let column = |n: usize| row.get::<Option<String>, usize>(n).flatten().unwrap_or_default();
        // The plugin's sign for a column that there is not.
        let other = |n: usize| Some(column(n)).filter(|name| !name.is_empty() && name != "0");
        let container = Container {
            name: column(0),
            schema: column(1),
            table: column(2),
            key: column(3),
            value: column(4),
            others: [other(5), other(6), other(7)],
        };
        container.write(&mut text, database, policies.as_ref(), separator.as_deref());
    }
    Ok(text)
}

impl Container {
    fn write(&self, text: &mut String, database: &Database, policies: Option<&Policies>, separator: Option<&str>) {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        // Names of tables of the file are letters, digits, - and _.
        let name: String = self
            .name
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
            .collect();
        let get = policies.map_or("caching", |(get, ..)| policy(get));
        let mut others = String::new();
        if let Some((_, set, delete, flush)) = policies {
            for (key, word) in [("set", set), ("delete", delete), ("flush", flush)] {
                if policy(word) != get {
                    let _ = writeln!(others, "policy_{key} = {}", quoted(policy(word)));
                }
            }
        }
        let values: Vec<String> =
            self.value.split(['|', ',', ';', ' ']).filter(|name| !name.is_empty()).map(quoted).collect();
        let _ = write!(
            text,
            "\n[pool.{name}]\nbackend = {}\npolicy = {}\n{others}\n[table.{name}]\nurl = {}\ntable = {}\nkey = {}\nvalue = [{}]\n",
            quoted(&name),
            quoted(get),
            quoted(&database.with_database(&self.schema)),
            quoted(&self.table),
            quoted(&self.key),
            values.join(", "),
        );
        for (key, column) in ["flags", "cas", "expiry"].iter().zip(&self.others) {
            if let Some(column) = column {
                let _ = writeln!(text, "{key} = {}", quoted(column));
            }
        }
        if let Some(separator) = separator.filter(|separator| *separator != "|") {
            let _ = writeln!(text, "separator = {}", quoted(separator));
        }
    }
}
