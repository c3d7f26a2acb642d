//! The configuration tables of MySQL's InnoDB memcached plugin, turned into Nuthatch's settings.
//!
//! Shapes: the plugin's `scripts/innodb_memcached_config.sql`, whose `containers` rows are mappings, whose first `cache_policies`
//! row was the whole server's policy, and whose `config_options` hold the separators.

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
    key: Vec<String>,
    value: Vec<String>,
    others: [Option<String>; 3],
}

/// What the plugin was told once for all of its mappings.
#[derive(Default)]
struct Options {
    policies: Option<Policies>,
    separator: Option<String>,
    delimiter: Option<String>,
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

/// The TOML of every mapping that an existing `innodb_memcache.containers` table has, a pool and a table each, and of a listener
/// whose keys are the default mapping's.
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
        let options: Vec<(String, Option<String>)> =
            conn.query("SELECT name, value FROM innodb_memcache.config_options").await.unwrap_or_default();
        let option =
            |wanted: &str| options.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.clone());
        let options = Options { policies, separator: option("separator"), delimiter: option("table_map_delimiter") };
        Ok((containers, options))
    }));
    let (containers, options) = read.map_err(|fault| match fault {
        Fault::Row(why) | Fault::Conflict(why) | Fault::Refused(why) => Error::Refused(format!("{database}: {why}")),
        Fault::Overdue(why) | Fault::Lost(why) | Fault::Unready(why) => away(why),
    })?;
    let containers = containers.iter().map(Container::read).collect::<Vec<_>>();
    write(&containers, &options, database)
}

fn write(containers: &[Container], options: &Options, database: &Database) -> Result<String, Error> {
    let mut text = String::from("# Written by `nuthatch rows import` from innodb_memcache.containers.\n");
    let mapped = |container: &&Container| !container.key.is_empty() && !container.value.is_empty();
    for container in containers.iter().filter(|container| !mapped(container)) {
        let name = quoted(&container.name);
        let _ = writeln!(text, "# Left out: {name}, whose key_columns or value_columns name no column.");
    }
    let delimiter = options.delimiter.as_deref().unwrap_or(".");
    let mut names: Vec<(String, &str)> = Vec::new();
    let mut tables = String::new();
    for container in containers.iter().filter(mapped) {
        if container.schema.contains('.') && container.table.contains('.') {
            return Err(Error::Refused(format!(
                "{database}: innodb_memcache.containers: {}: expected no dot in db_schema {} where db_table {} has one",
                quoted(&container.name),
                quoted(&container.schema),
                quoted(&container.table)
            )));
        }
        let name = container.toml_name();
        if let Some((_, other)) = names.iter().find(|(there, _)| *there == name) {
            return Err(Error::Refused(format!(
                "{database}: innodb_memcache.containers: {} and {} would both be called {name} here, rename one",
                quoted(other),
                quoted(&container.name)
            )));
        }
        if name != container.name {
            let _ = writeln!(
                text,
                "# Renamed: {} is {name} here, and its keys are @@{name}{delimiter}KEY.",
                quoted(&container.name)
            );
        }
        container.write(&mut tables, &name, database, options);
        names.push((name, &container.name));
    }
    // A mapping called default comes first, then those of the least names, as the plugin chose one for keys without a name.
    if let Some((first, _)) = names.first() {
        let _ = write!(text, "\n[[listen]]\nmemcached = \"127.0.0.1:11211\"\npool = {}\n", quoted(first));
    }
    Ok(text + &tables)
}

/// As a string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}

impl Container {
    fn read(row: &mysql_async::Row) -> Container {
        let column = |n: usize| row.get::<Option<String>, usize>(n).flatten().unwrap_or_default();
        // The plugin's sign for a column that there is not.
        let other = |n: usize| Some(column(n).trim().to_owned()).filter(|name| !name.is_empty() && name != "0");
        // The plugin took each of these for the end of a name.
        let names = |n: usize| -> Vec<String> {
            let text = column(n);
            let between = |letter: char| letter.is_whitespace() || matches!(letter, '|' | ',' | ';');
            text.split(between).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        Container {
            name: column(0),
            schema: column(1),
            table: column(2),
            key: names(3),
            value: names(4),
            others: [other(5), other(6), other(7)],
        }
    }

    /// Names of tables of the file are letters, digits, - and _.
    fn toml_name(&self) -> String {
        let kept = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        self.name.chars().map(|letter| if kept(letter) { letter } else { '_' }).collect()
    }

    fn write(&self, text: &mut String, name: &str, database: &Database, options: &Options) {
        let policies = options.policies.as_ref();
        let get = policies.map_or("caching", |(get, ..)| policy(get));
        let mut others = String::new();
        if let Some((_, set, delete, flush)) = policies {
            for (key, word) in [("set", set), ("delete", delete), ("flush", flush)] {
                if policy(word) != get {
                    let _ = writeln!(others, "policy_{key} = {}", quoted(policy(word)));
                }
            }
        }
        // A dot ends the schema's name, and only the first one does.
        let dotted = self.table.contains('.');
        let table = if dotted { format!("{}.{}", self.schema, self.table) } else { self.table.clone() };
        let list = |names: &[String]| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let key = if self.key.len() == 1 { quoted(&self.key[0]) } else { format!("[{}]", list(&self.key)) };
        let _ = write!(
            text,
            "\n[pool.{name}]\nbackend = {}\npolicy = {}\n{others}\n[table.{name}]\nurl = {}\ntable = {}\nkey = {key}\nvalue = [{}]\n",
            quoted(name),
            quoted(get),
            quoted(&database.with_database(&self.schema)),
            quoted(&table),
            list(&self.value),
        );
        for (key, column) in ["flags", "cas", "expiry"].iter().zip(&self.others) {
            if let Some(column) = column {
                let _ = writeln!(text, "{key} = {}", quoted(column));
            }
        }
        if self.value.len() > 1 {
            let _ = writeln!(text, "format = \"plain\"");
            if let Some(separator) = options.separator.as_deref().filter(|separator| *separator != "|") {
                let _ = writeln!(text, "separator = {}", quoted(separator));
            }
        }
        if let Some(delimiter) = options.delimiter.as_deref().filter(|delimiter| *delimiter != ".") {
            let _ = writeln!(text, "delimiter = {}", quoted(delimiter));
        }
        // Its flush_all deleted every row, unless its policy was another.
        if policies.is_some_and(|(.., flush)| matches!(policy(flush), "table" | "caching")) {
            let _ = writeln!(text, "flush = true");
        }
    }
}
