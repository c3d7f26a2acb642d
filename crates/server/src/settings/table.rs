//! `[table.NAME]`: the table of its keys, and what it has to be as a whole: a database, a key, a value, and a password that can be
//! read. Whether the real table is like that is seen when it is opened.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::{Uid, User};
use nuthatch_rows::{Commit, Database, Format};

use super::PoolSettings;
use super::draft::{Draft, PoolDraft};
use super::knob::{Action, Knob};
use super::problem::{Kind, Problem};

/// A SQL table that may stand behind a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Its mapping, with its name.
    pub rows: nuthatch_rows::Settings,
    /// `flush_all` deletes every row; otherwise it is refused.
    pub flush: bool,
    /// How many rows one range brings at most; 0: keys that look like ranges are none.
    pub range_max: u32,
    /// How many workers, the first of them, have connections of their own.
    pub lanes: usize,
    /// What stands between the table's name and a key, as in `@@NAME.KEY`.
    pub delimiter: String,
}

/// What a pool with a table behind it does with its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Copies are kept, filled on a miss and written through.
    #[default]
    Caching,
    /// No copies: every request goes to the table.
    Table,
    /// No table: the pool is one without a backend.
    Memory,
    /// Every request is refused.
    Disabled,
}

impl Policy {
    /// The words of the key `policy`.
    pub(super) const NAMES: &[&str] = &["caching", "table", "memory", "disabled"];

    /// Whether commands go to the backend.
    fn asks_backend(self) -> bool {
        matches!(self, Policy::Caching | Policy::Table)
    }

    pub(super) fn named(word: &str) -> Policy {
        match word {
            "table" => Policy::Table,
            "memory" => Policy::Memory,
            "disabled" => Policy::Disabled,
            _ => Policy::Caching,
        }
    }
}

/// Policies of single kinds of commands; `None` is the pool's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Of retrievals that do not touch.
    pub get: Option<Policy>,
    /// Of whatever stores, counts or touches.
    pub set: Option<Policy>,
    /// Of delete.
    pub delete: Option<Policy>,
    /// Of `flush_all`.
    pub flush: Option<Policy>,
}

/// A kind of commands that has a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A retrieval that does not touch.
    Get,
    /// Storing, counting, touching.
    Set,
    /// Deleting.
    Delete,
    /// Forgetting everything.
    Flush,
}

impl Act {
    /// All of them.
    pub const ALL: [Act; 4] = [Act::Get, Act::Set, Act::Delete, Act::Flush];
}

impl PoolSettings {
    /// What it does with its memory for commands of one kind.
    pub fn policy_of(&self, act: Act) -> Policy {
        let own = match act {
            Act::Get => self.policies.get,
            Act::Set => self.policies.set,
            Act::Delete => self.policies.delete,
            Act::Flush => self.policies.flush,
        };
        own.unwrap_or(self.policy)
    }

    /// Whether all kinds of commands have this policy.
    pub fn is_all(&self, policy: Policy) -> bool {
        Act::ALL.iter().all(|act| self.policy_of(*act) == policy)
    }

    /// Whether any command goes to the backend.
    pub fn asks_backend(&self) -> bool {
        Act::ALL.iter().any(|act| self.policy_of(*act).asks_backend())
    }
}

/// How long a row is remembered not to be there, unless it is said.
const MISS_TTL: Duration = Duration::from_millis(100);

/// One `[table.NAME]`.
pub(super) struct TableDraft {
    place: String,
    pub(super) key_places: Vec<(String, String)>,
    url: Option<String>,
    /// All but the database, and what depends on other keys.
    rows: nuthatch_rows::Settings,
    relaxed: bool,
    commit_within: Duration,
    reap: Duration,
    flush: bool,
    range_max: u32,
    lanes: usize,
    delimiter: String,
    password_file: Option<PathBuf>,
    password_env: Option<String>,
    ca: Option<PathBuf>,
}

const COLUMN: &str = "the name of a column";

fn name(place: &mut Option<String>, text: &str) -> bool {
    *place = Some(text.to_owned());
    !text.is_empty()
}

fn names(place: &mut Vec<String>, text: &str) -> Result<(), String> {
    if text.is_empty() || place.iter().any(|other| other == text) {
        return Err("the name of a column, each once".to_owned());
    }
    place.push(text.to_owned());
    Ok(())
}

/// `[table.NAME]`
pub(super) static KEYS: &[Knob<TableDraft>] = &[
    Knob::<TableDraft>::new(
        "url",
        "its database: sqlite:///PATH (created when absent), mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE; ?tls=verify encrypts, ?socket=PATH goes by a UNIX socket",
        Action::Text {
            expected: "sqlite:///PATH, mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE",
            set: |d, text| {
                d.url = Some(text.to_owned());
                Database::new(text).is_ok()
            },
        },
    ),
    Knob::<TableDraft>::new(
        "password_file",
        "the file whose first line is the database's password",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.password_file = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    ),
    Knob::<TableDraft>::new(
        "password_env",
        "the environment variable that holds the database's password",
        Action::Text { expected: "the name of a variable", set: |d, text| name(&mut d.password_env, text) },
    ),
    Knob::<TableDraft>::new(
        "ca",
        "certificates of those who vouch for the database's server, in PEM; those that browsers trust when left out",
        Action::Text {
            expected: "the path of a file",
            set: |d, text| {
                d.ca = Some(PathBuf::from(text));
                !text.is_empty()
            },
        },
    ),
    Knob::<TableDraft>::new(
        "table",
        "the table's name in its database, SCHEMA.TABLE outside the default schema; NAME when left out",
        Action::Text {
            expected: "the name of a table",
            set: |d, text| {
                text.clone_into(&mut d.rows.table);
                !text.is_empty()
            },
        },
    ),
    Knob::<TableDraft>::new(
        "key",
        "the column, or the columns, of the key; they need a unique index",
        Action::List { expected: COLUMN, add: |d, text| names(&mut d.rows.key, text) },
    ),
    Knob::<TableDraft>::new(
        "value",
        "the column, or the columns, of the value",
        Action::List { expected: COLUMN, add: |d, text| names(&mut d.rows.value, text) },
    ),
    Knob::<TableDraft>::new(
        "flags",
        "the column of clients' flags; without it they are not kept",
        Action::Text { expected: COLUMN, set: |d, text| name(&mut d.rows.flags, text) },
    ),
    Knob::<TableDraft>::new(
        "cas",
        "the column that every write gives a new number; without it equal content has an equal CAS unique",
        Action::Text { expected: COLUMN, set: |d, text| name(&mut d.rows.cas, text) },
    ),
    Knob::<TableDraft>::new(
        "expiry",
        "the column of the second, since 1970, in which a row expires; without it rows do not expire",
        Action::Text { expected: COLUMN, set: |d, text| name(&mut d.rows.expiry, text) },
    ),
    Knob::<TableDraft>::new(
        "format",
        "how several columns are one value: joined by the separator; plain, joined without escapes, where NULL is empty, as in MySQL's \
         InnoDB memcached plugin; or a JSON object",
        Action::Choice(&["joined", "plain", "json"], |d, word| {
            d.rows.format = match word {
                "json" => Format::Json,
                "plain" => Format::Plain,
                _ => Format::Joined,
            };
        }),
    )
    .default("joined"),
    Knob::<TableDraft>::new(
        "separator",
        "stands between columns: one ASCII character, no letter, digit or backslash, which a backslash before it makes a part of one, \
         and \\N is NULL; in a plain value any text",
        Action::Text {
            expected: "one character or more",
            set: |d, text| {
                text.clone_into(&mut d.rows.separator);
                !text.is_empty()
            },
        },
    )
    .default("|"),
    Knob::<TableDraft>::new(
        "readers",
        "connections that read, for workers that have none of their own, and ranges",
        Action::Integer { min: 1, max: 64, missing: None, set: |d, n| d.rows.readers = n as usize },
    )
    .default("2"),
    Knob::<TableDraft>::new(
        "lanes",
        "how many workers, the first of them, have connections of their own: one that reads, up to two that write; the others share the \
         table's, and so do all for SQLite and with commit = \"relaxed\"",
        Action::Integer { min: 0, max: 1024, missing: None, set: |d, n| d.lanes = n as usize },
    )
    .default("4"),
    Knob::<TableDraft>::new(
        "timeout",
        "how long a request may take in all; the database has half of it for a statement",
        Action::Time { min: Duration::from_millis(10), set: |d, time| d.rows.timeout = time },
    )
    .default("1s"),
    Knob::<TableDraft>::new(
        "gather",
        "where one connection writes: how long writes are waited for after a transaction of several; one that comes alone never waits",
        Action::Time { min: Duration::ZERO, set: |d, time| d.rows.gather = time },
    )
    .default("300us"),
    Knob::<TableDraft>::new(
        "commit",
        "durable answers a write after its commit; relaxed before, and may lose what it answered in the last commit_within",
        Action::Choice(&["durable", "relaxed"], |d, word| d.relaxed = word == "relaxed"),
    )
    .default("durable"),
    Knob::<TableDraft>::new(
        "commit_within",
        "with commit = \"relaxed\": how long a write may stay uncommitted",
        Action::Time { min: Duration::from_millis(1), set: |d, time| d.commit_within = time },
    )
    .default("20ms"),
    Knob::<TableDraft>::new(
        "reap",
        "how often some expired rows are deleted; 0 is never",
        Action::Time { min: Duration::ZERO, set: |d, time| d.reap = time },
    )
    .default("0"),
    Knob::<TableDraft>::new(
        "flush",
        "flush_all deletes every row of the table; otherwise it is refused",
        Action::Switch(|d, on| d.flush = on),
    )
    .default("false"),
    Knob::<TableDraft>::new(
        "range_max",
        "how many rows one range, such as get @>=A@<B, brings at most; 0 takes such keys as any others",
        Action::Integer { min: 0, max: 100_000, missing: None, set: |d, n| d.range_max = n as u32 },
    )
    .default("1000"),
    Knob::<TableDraft>::new(
        "delimiter",
        "stands between the table's name and a key where both are given, as in @@NAME.KEY",
        Action::Text {
            expected: "up to 16 ASCII characters, the first no letter, digit, - or _, and none a blank",
            set: |d, text| {
                text.clone_into(&mut d.delimiter);
                let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                text.len() <= 16
                    && text.bytes().all(|byte| byte.is_ascii_graphic())
                    && text.as_bytes().first().is_some_and(|first| !is_of_names(first))
            },
        },
    )
    .default("."),
];

impl TableDraft {
    /// A table that the file opens at `place`.
    pub(super) fn at(name: &str, place: String) -> TableDraft {
        TableDraft {
            place,
            key_places: Vec::new(),
            url: None,
            rows: nuthatch_rows::Settings::new(name, Database::unnamed(), name, &[], &[]),
            relaxed: false,
            commit_within: Duration::from_millis(20),
            reap: Duration::ZERO,
            flush: false,
            range_max: 1000,
            lanes: 4,
            delimiter: ".".to_owned(),
            password_file: None,
            password_env: None,
            ca: None,
        }
    }

    fn problem(&self, kind: Kind, key: &str, what: &str) -> Problem {
        let written = self.key_places.iter().find(|(name, _)| name == key);
        let place = written.map_or(&self.place, |(_, place)| place);
        Problem::new(kind, format!("{place}: table.{}.{key}: {what}", self.rows.name))
    }

    fn finish(&self) -> Result<TableSettings, Problem> {
        let missing = |key, what| Err(self.problem(Kind::Value, key, what));
        let Some(url) = &self.url else {
            return missing("url", "expected the URL of a database, such as \"sqlite:///var/lib/nuthatch/shop.db\"");
        };
        if self.rows.key.is_empty() {
            return missing("key", "expected the name of the key's column");
        }
        if self.rows.value.is_empty() {
            return missing("value", "expected the name of the value's column");
        }
        let mut database = Database::new(url).map_err(|error| self.problem(Kind::Value, "url", &error.to_string()))?;
        database.password = self.password()?;
        database.authorities.clone_from(&self.ca);
        let mut rows = nuthatch_rows::Settings { database, ..self.rows.clone() };
        if self.relaxed {
            rows.commit = Commit::Relaxed(self.commit_within);
        }
        rows.reap = Some(self.reap).filter(|every| !every.is_zero());
        if let Some(expected) = rows.bad_separator() {
            let what = format!("expected {expected}, not {:?}", rows.separator);
            return Err(self.problem(Kind::Combination, "separator", &what));
        }
        let (flush, range_max, lanes) = (self.flush, self.range_max, self.lanes);
        Ok(TableSettings { rows, flush, range_max, lanes, delimiter: self.delimiter.clone() })
    }

    fn password(&self) -> Result<Option<String>, Problem> {
        match (&self.password_file, &self.password_env) {
            (Some(_), Some(_)) => {
                Err(self.problem(Kind::Combination, "password_env", "expected this or password_file, not both"))
            }
            (Some(path), None) => {
                let text = fs::read_to_string(path).map_err(|error| {
                    let may_not = if error.kind() == ErrorKind::PermissionDenied { own_name() } else { String::new() };
                    let what = format!("expected a file with a password: {}: {error}{may_not}", path.display());
                    self.problem(Kind::System, "password_file", &what)
                })?;
                Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
            }
            (None, Some(name)) => match std::env::var(name) {
                Ok(password) => Ok(Some(password)),
                Err(_) => {
                    let what = format!("expected a password in the environment variable {name}, which is not set");
                    Err(self.problem(Kind::System, "password_env", &what))
                }
            },
            (None, None) => Ok(None),
        }
    }
}

/// As whom files are read: whoever a start as root became reads them at a reload.
fn own_name() -> String {
    let id = Uid::effective();
    let name = User::from_uid(id).ok().flatten().map_or_else(|| id.to_string(), |user| user.name);
    format!("; user {name} reads it, at each reload too, whoever -u gave up")
}

impl Draft {
    /// The tables, each checked by itself, and whether its pool writes it.
    pub(super) fn finish_tables(&self) -> Result<Vec<TableSettings>, Problem> {
        let finish = |table: &TableDraft| {
            let mut table = table.finish()?;
            let pool = self.pools.iter().find(|draft| draft.pool.backend.as_ref() == Some(&table.rows.name));
            // One that no pool has may get any.
            table.rows.writes = pool.is_none_or(|draft| draft.pool.policy_of(Act::Set).asks_backend());
            Ok(table)
        };
        self.tables.iter().map(finish).collect()
    }

    /// Whether `name` is a table's.
    pub(super) fn is_table(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.rows.name == name)
    }

    /// The names of all tables.
    pub(super) fn table_names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|table| table.rows.name.as_str())
    }

    /// What the policies make of the rest.
    pub(super) fn by_policy(&self, draft: &PoolDraft) -> PoolSettings {
        let mut pool = draft.pool.clone();
        let has_table = pool.backend.as_ref().is_some_and(|name| self.is_table(name));
        pool.miss_ttl = draft.miss_ttl.unwrap_or(if has_table { MISS_TTL } else { Duration::ZERO });
        if pool.is_all(Policy::Table) {
            pool.ttl_max_seconds = 0;
        }
        pool
    }

    /// Whether the pool's policy, and its table, go together with the rest.
    pub(super) fn check_policy(&self, draft: &PoolDraft) -> Result<(), Problem> {
        let pool = &draft.pool;
        let (at, what) = (&draft.place, &pool.name);
        let table = pool.backend.as_ref().filter(|name| self.is_table(name));
        if !pool.is_all(Policy::Caching) && table.is_none() {
            let key = match pool.policies {
                _ if pool.policy != Policy::Caching => "policy",
                Policies { get: Some(_), .. } => "policy_get",
                Policies { set: Some(_), .. } => "policy_set",
                Policies { delete: Some(_), .. } => "policy_delete",
                _ => "policy_flush",
            };
            return Err(Problem::combination(format!(
                "{at}: pool.{what}.{key}: expected only with a backend that is a table"
            )));
        }
        // Copies of one row in two pools would know nothing of each other.
        let other = self.pools.iter().find(|other| other.pool.name != pool.name && other.pool.backend == pool.backend);
        match (table, other) {
            (Some(table), Some(other)) => Err(Problem::combination(format!(
                "{at}: pool.{what}.backend: expected table {table} behind one pool, {} has it too",
                other.pool.name
            ))),
            _ => Ok(()),
        }
    }
}
