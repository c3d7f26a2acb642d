//! SQLite, in this process, one connection for each thread.
//!
//! The file is in WAL mode with `synchronous=FULL`: a commit is on the disk before it is answered, and readers do not wait for
//! the writer. A file, or a table, that does not exist is created. Writers of other processes are waited for within the
//! timeout.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use crate::budget::Ticks;
use crate::cell::{Cell, Column, Kind};
use crate::error::Error;
use crate::layout::{Described, Layout, Row};
use crate::link::{Bounds, Dialect, Fault, Link};
use crate::settings::{Commit, Settings};
use crate::shared::Shared;
use crate::sql::{Quote, Statements};
use crate::watch::Unheard;

/// SQLite takes up to 32,766 parameters; statements of a few sizes are kept prepared.
const KEYS_MAX: usize = 64;
const PREPARED_MAX: usize = 256;

pub(crate) struct Sqlite {
    path: PathBuf,
    timeout: Duration,
    relaxed: bool,
    settings: Settings,
}

impl Sqlite {
    pub(crate) fn new(settings: &Settings) -> Sqlite {
        Sqlite {
            path: settings.database.path(),
            timeout: settings.timeout,
            relaxed: settings.commit != Commit::Durable,
            settings: settings.clone(),
        }
    }

    fn open(&self) -> Result<Connection, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        // Half of it: whoever waits for a lock is to be answered before the deadline of those who wait for him.
        connection.busy_timeout(self.timeout / 2)?;
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", if self.relaxed { "NORMAL" } else { "FULL" })?;
        connection.set_prepared_statement_cache_capacity(PREPARED_MAX);
        Ok(connection)
    }
}

#[async_trait]
impl Dialect for Sqlite {
    async fn connect(&self, _ticks: Option<&Arc<Ticks>>) -> Result<Box<dyn Link>, Error> {
        let place = self.path.display();
        if let Some(directory) = self.path.parent().filter(|directory| !directory.exists()) {
            fs::create_dir_all(directory)
                .map_err(|error| Error::Unreachable(format!("{}: cannot be created: {error}", directory.display())))?;
        }
        // Changing a file to WAL does not wait for others who do so at the same moment.
        let until = Instant::now() + self.timeout / 2;
        let connection = loop {
            match self.open() {
                Ok(connection) => break connection,
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(Error::Unreachable(format!("{place}: {error}"))),
            }
        };
        Ok(Box::new(SqliteLink { connection, layout: None, settings: self.settings.clone(), seen: None }))
    }

    fn shares_a_thread(&self) -> bool {
        false
    }

    fn upserts(&self, layout: &Layout) -> bool {
        // The conflict that is updated on is named, so other unique indexes refuse instead.
        layout.uninsertable.is_none() && layout.key.iter().all(|column| column.folds.is_none())
    }

    fn watch(&self, _shared: &Shared) -> Unheard {
        Unheard::Refused("SQLite tells its writer's connection".to_owned())
    }
}

struct SqliteLink {
    connection: Connection,
    layout: Option<(Arc<Layout>, Statements)>,
    settings: Settings,
    /// The last `data_version`.
    seen: Option<i64>,
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Int(number) => match i64::try_from(*number) {
                Ok(number) => ToSqlOutput::Owned(Value::Integer(number)),
                Err(error) => return Err(rusqlite::Error::ToSqlConversionFailure(Box::new(error))),
            },
            Cell::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// A cell on its way into a column: text columns are given text as long as it is some.
struct Bound<'a>(&'a Cell, bool);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self.0 {
            Cell::Bytes(bytes) if self.1 && std::str::from_utf8(bytes).is_ok() => {
                Ok(ToSqlOutput::Borrowed(ValueRef::Text(bytes)))
            }
            cell => cell.to_sql(),
        }
    }
}

impl SqliteLink {
    fn ready(&self) -> Result<(&Layout, &Statements), Fault> {
        let (layout, statements) = self.layout.as_ref().ok_or_else(|| Fault::Refused("no mapping yet".to_owned()))?;
        Ok((layout, statements))
    }

    fn rows(&self, text: &str, bound: &[Bound<'_>]) -> Result<Vec<Row>, Fault> {
        let (layout, _) = self.ready()?;
        let width = layout.columns().count();
        let mut statement = self.connection.prepare_cached(text).map_err(fault)?;
        let rows = statement
            .query_map(params_from_iter(bound), |row| {
                let cells = (0..width).map(|n| {
                    Ok(match row.get_ref(n)? {
                        ValueRef::Null => Cell::Null,
                        ValueRef::Integer(number) => Cell::Int(number.into()),
                        // Nothing here writes one, but any column of SQLite may hold one.
                        ValueRef::Real(number) => Cell::Bytes(number.to_string().into_bytes()),
                        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
                    })
                });
                cells.collect::<rusqlite::Result<Vec<Cell>>>()
            })
            .map_err(fault)?;
        rows.map(|cells| cells.map(|cells| layout.row(cells)).map_err(fault)).collect()
    }

    fn execute(&self, text: &str, bound: &[Bound<'_>]) -> Result<usize, Fault> {
        let mut statement = self.connection.prepare_cached(text).map_err(fault)?;
        statement.execute(params_from_iter(bound)).map_err(fault)
    }

    /// One statement for each row: there is no round trip to be saved.
    fn each(&self, text: &str, rows: &[Row], keys_last: bool) -> Result<(), Fault> {
        let (layout, _) = self.ready()?;
        let texts: Vec<bool> = layout.columns().map(is_text).collect();
        for row in rows {
            let cells: Vec<_> = layout.cells(row).collect();
            let mut bound: Vec<Bound<'_>> = cells.iter().zip(&texts).map(|(cell, text)| Bound(cell, *text)).collect();
            if keys_last {
                bound.rotate_left(layout.key.len());
            }
            self.execute(text, &bound)?;
        }
        Ok(())
    }

    fn unlocked(&self, text: &str) -> Result<(), Fault> {
        self.connection.execute_batch(text).map_err(fault)
    }

    fn create(&self) -> Result<(), Fault> {
        let settings = &self.settings;
        let text = |name: &String| format!("{} TEXT", Quote::Double.name(name));
        let number = |name: &String| format!("{} INTEGER NOT NULL DEFAULT 0", Quote::Double.name(name));
        let mut columns: Vec<String> = settings.key.iter().map(|name| format!("{} NOT NULL", text(name))).collect();
        columns.extend(settings.value.iter().filter(|name| !settings.key.contains(name)).map(text));
        columns.extend(settings.flags.iter().chain(&settings.cas).chain(&settings.expiry).map(number));
        let keys: Vec<String> = settings.key.iter().map(|name| Quote::Double.name(name)).collect();
        let table: Vec<String> = settings.table.splitn(2, '.').map(|part| Quote::Double.name(part)).collect();
        self.unlocked(&format!(
            "CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({})) WITHOUT ROWID",
            table.join("."),
            columns.join(", "),
            keys.join(", ")
        ))
    }

    fn columns(&self) -> Result<Vec<Column>, rusqlite::Error> {
        let (schema, table) = self.names();
        let mut statement = self.connection.prepare(
            "SELECT name, type, \"notnull\", dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?1, ?2)",
        )?;
        let rows = statement.query_map([&table, &schema], |row| {
            let (name, declared): (String, String) = (row.get(0)?, row.get(1)?);
            let (not_null, has_default, key): (bool, bool, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let hidden: i64 = row.get(5)?;
            Ok((name, declared, not_null, has_default, key, hidden))
        })?;
        let mut columns = Vec::new();
        for row in rows {
            let (name, declared, not_null, has_default, key, hidden) = row?;
            let row_id = key > 0 && declared.eq_ignore_ascii_case("INTEGER");
            columns.push(Column {
                kind: kind(&declared),
                nullable: !not_null && key == 0,
                fills_itself: has_default || hidden != 0 || row_id,
                // 2 is a virtual column, 3 a stored one.
                generated: hidden >= 2,
                folds: None,
                name,
            });
        }
        Ok(columns)
    }

    fn names(&self) -> (String, String) {
        match self.settings.table.split_once('.') {
            Some((schema, table)) => (schema.to_owned(), table.to_owned()),
            None => ("main".to_owned(), self.settings.table.clone()),
        }
    }

    fn indexes(&self, columns: &mut [Column]) -> Result<(Vec<Vec<String>>, bool), rusqlite::Error> {
        let (schema, table) = self.names();
        let (mut unique, mut further) = (Vec::new(), false);
        let mut list =
            self.connection.prepare("SELECT name, partial FROM pragma_index_list(?1, ?2) WHERE \"unique\"")?;
        let indexes: Vec<(String, bool)> =
            list.query_map([&table, &schema], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        for (index, partial) in indexes {
            let mut parts = self.connection.prepare("SELECT name, coll FROM pragma_index_xinfo(?1, ?2) WHERE key")?;
            let parts: Vec<(Option<String>, Option<String>)> =
                parts.query_map([&index, &schema], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
            let names: Option<Vec<String>> = parts.iter().map(|(name, _)| name.clone()).collect();
            match names.filter(|_| !partial) {
                None => further = true,
                Some(names) => {
                    for (name, collation) in &parts {
                        let folds = collation.clone().filter(|collation| !collation.eq_ignore_ascii_case("BINARY"));
                        if let Some(column) = columns.iter_mut().find(|column| Some(&column.name) == name.as_ref()) {
                            column.folds = folds.or(column.folds.take());
                        }
                    }
                    unique.push(names);
                }
            }
        }
        // The row's number needs no index of its own.
        let mut keys =
            self.connection.prepare("SELECT name FROM pragma_table_xinfo(?1, ?2) WHERE pk > 0 ORDER BY pk")?;
        let keys: Vec<String> = keys.query_map([&table, &schema], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let known: HashSet<&Vec<String>> = unique.iter().collect();
        if !keys.is_empty() && !known.contains(&keys) {
            unique.push(keys);
        }
        Ok((unique, further))
    }
}

#[async_trait]
impl Link for SqliteLink {
    async fn describe(&mut self) -> Result<Described, Fault> {
        self.create()?;
        let mut columns = self.columns().map_err(fault)?;
        let (unique, further_unique) = self.indexes(&mut columns).map_err(fault)?;
        Ok(Described { columns, unique, further_unique })
    }

    fn prepare(&mut self, layout: &Arc<Layout>) {
        self.layout = Some((Arc::clone(layout), Statements::new(Quote::Double, layout)));
    }

    async fn check(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn read(&mut self, keys: &[Vec<Cell>], _lock: bool) -> Result<Vec<Row>, Fault> {
        let (layout, statements) = self.ready()?;
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_MAX) {
            let bound: Vec<Bound<'_>> = bind_keys(layout, keys);
            rows.append(&mut self.rows(&statements.select(keys.len(), false), &bound)?);
        }
        Ok(rows)
    }

    async fn range(&mut self, bounds: &Bounds) -> Result<Vec<Row>, Fault> {
        let (layout, statements) = self.ready()?;
        let (now, limit) = (Cell::Int(bounds.now.into()), Cell::Int(bounds.limit.into()));
        let text = layout.key.first().is_some_and(is_text);
        let mut bound: Vec<Bound<'_>> =
            [&bounds.from, &bounds.to].into_iter().flatten().map(|(cell, _)| Bound(cell, text)).collect();
        if layout.expiry.is_some() {
            bound.push(Bound(&now, false));
        }
        bound.push(Bound(&limit, false));
        let inclusive = |bound: &Option<(Cell, bool)>| bound.as_ref().map(|(_, inclusive)| *inclusive);
        self.rows(&statements.range(inclusive(&bounds.from), inclusive(&bounds.to)), &bound)
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        // The write lock at once: what is read in the transaction stays so.
        self.execute("BEGIN IMMEDIATE", &[]).map(drop)
    }

    async fn insert(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let (_, statements) = self.ready()?;
        self.each(&statements.insert(1), rows, false)
    }

    async fn update(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let (_, statements) = self.ready()?;
        self.each(&statements.update(), rows, true)
    }

    async fn upsert(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let (_, statements) = self.ready()?;
        let text = statements.upsert(1);
        if rows.len() == 1 {
            return self.each(&text, rows, false);
        }
        self.begin().await?;
        let done = self.each(&text, rows, false).and_then(|()| self.execute("COMMIT", &[]).map(drop));
        if done.is_err() && !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK", &[]);
        }
        done
    }

    async fn delete(&mut self, keys: &[Vec<Cell>]) -> Result<(), Fault> {
        let (layout, statements) = self.ready()?;
        for keys in keys.chunks(KEYS_MAX) {
            self.execute(&statements.delete(keys.len()), &bind_keys(layout, keys))?;
        }
        Ok(())
    }

    async fn purge(&mut self, limit: u32, expired_by: Option<i64>) -> Result<u64, Fault> {
        let (_, statements) = self.ready()?;
        let (now, limit) = (expired_by.map(|now| Cell::Int(now.into())), Cell::Int(limit.into()));
        let bound: Vec<Bound<'_>> = now.iter().chain([&limit]).map(|cell| Bound(cell, false)).collect();
        self.execute(&statements.purge(expired_by.is_some()), &bound).map(|rows| rows as u64)
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        self.execute("COMMIT", &[]).map(drop)
    }

    async fn rollback(&mut self) -> Result<(), Fault> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.execute("ROLLBACK", &[]).map(drop)
    }

    async fn mark(&mut self) -> Result<(), Fault> {
        self.execute("SAVEPOINT nuthatch", &[]).map(drop)
    }

    async fn back_to_mark(&mut self) -> Result<(), Fault> {
        self.execute("ROLLBACK TO nuthatch", &[]).map(drop)
    }

    async fn foreign_change(&mut self) -> Result<bool, Fault> {
        let mut statement = self.connection.prepare_cached("PRAGMA data_version").map_err(fault)?;
        let version: i64 = statement.query_row([], |row| row.get(0)).map_err(fault)?;
        // What happened before this connection was first asked is not known.
        Ok(self.seen.replace(version) != Some(version))
    }
}

fn bind_keys<'a>(layout: &Layout, keys: &'a [Vec<Cell>]) -> Vec<Bound<'a>> {
    let texts: Vec<bool> = layout.key.iter().map(is_text).collect();
    keys.iter().flat_map(|key| key.iter().zip(texts.clone())).map(|(cell, text)| Bound(cell, text)).collect()
}

fn is_text(column: &Column) -> bool {
    matches!(column.kind, Kind::Text { .. })
}

/// What a declared type means, by SQLite's rules of affinity ("Datatypes In SQLite", 3.1).
fn kind(declared: &str) -> Kind {
    let upper = declared.to_ascii_uppercase();
    if upper.contains("INT") {
        return Kind::signed(64);
    }
    if ["CHAR", "CLOB", "TEXT"].iter().any(|word| upper.contains(word)) {
        // SQLite itself takes any length; one that is declared is meant.
        let chars_max = upper.split_once('(').and_then(|(_, rest)| rest.split(')').next()?.trim().parse().ok());
        return Kind::Text { chars_max, bytes_max: None, padded: false, zero_bytes: true, any_bytes: true };
    }
    if upper.is_empty() || upper.contains("BLOB") {
        return Kind::Binary { bytes_max: None, fixed: false };
    }
    Kind::Other(declared.to_owned())
}

fn fault(error: rusqlite::Error) -> Fault {
    let why = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => match error.sqlite_error().map(|error| error.extended_code) {
            Some(rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY | rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE) => {
                Fault::Conflict(why)
            }
            _ => Fault::Row(why),
        },
        Some(ErrorCode::TooBig | ErrorCode::TypeMismatch) => Fault::Row(why),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Fault::Refused(format!("{why}: another program keeps it locked"))
        }
        Some(
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen,
        ) => Fault::Lost(why),
        _ => match error {
            rusqlite::Error::ToSqlConversionFailure(_) => Fault::Row(why),
            _ => Fault::Refused(why),
        },
    }
}
