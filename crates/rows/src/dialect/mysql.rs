//! MySQL and MariaDB, and what speaks their protocol (Galera, TiDB, Vitess).
//!
//! Sessions are in strict mode, so that a value that does not fit is refused and not cut, and read what is committed. A row that
//! is to be changed is locked by `SELECT ... FOR UPDATE` first. Where the key's unique index is the table's only one, rows are
//! written with `INSERT ... ON DUPLICATE KEY UPDATE`; with further ones that could change another row, so it is not used.
//!
//! Errors by number: MySQL's "Server Error Message Reference", MariaDB's "MariaDB Error Codes".

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, SslOpts, Statement, Value};

use crate::authorities;
use crate::budget::{Budget, Ticks};
use crate::cell::{Cell, Column, Kind};
use crate::error::Error;
use crate::layout::{Described, Layout, Row};
use crate::link::{Bounds, Dialect, Fault, Link};
use crate::settings::{Settings, Tls};
use crate::shared::Shared;
use crate::sql::{Quote, Shape, Statements};
use crate::watch::Unheard;

/// Rows in one statement at most; each number of rows is a statement of its own, which stays prepared as long as its connection.
const ROWS_MAX: usize = 64;

pub(crate) struct Mysql {
    opts: Opts,
    settings: Settings,
    budget: Duration,
}

impl Mysql {
    pub(crate) fn new(settings: &Settings) -> Result<Mysql, Error> {
        let budget = settings.timeout / 2;
        // Statements are kept prepared here, where they are found without their texts.
        let opts = Opts::from(opts(settings)?.stmt_cache_size(0).setup(vec![
            "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')".to_owned(),
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!("SET SESSION innodb_lock_wait_timeout = {}", budget.as_secs().max(1)),
        ]));
        Ok(Mysql { opts, settings: settings.clone(), budget })
    }
}

/// How to connect, without a session's settings.
pub(crate) fn opts(settings: &Settings) -> Result<OptsBuilder, Error> {
    let database = &settings.database;
    let ssl = match database.tls()? {
        Tls::Off => None,
        Tls::Verified => {
            // The driver reads the file again, but says neither its name nor that nothing is in it.
            database.authorities.as_deref().map(authorities::read).transpose()?;
            let roots = database.authorities.iter().map(|path| path.clone().into()).collect();
            Some(SslOpts::default().with_disable_built_in_roots(database.authorities.is_some()).with_root_certs(roots))
        }
    };
    Ok(OptsBuilder::default()
        .ip_or_hostname(database.host())
        .tcp_port(database.port().unwrap_or(3306))
        .user(Some(database.user()).filter(|user| !user.is_empty()))
        .pass(database.secret())
        .db_name(Some(database.database()))
        .socket(database.parameter("socket"))
        .prefer_socket(false)
        // An update that changes nothing found its row all the same.
        .client_found_rows(true)
        .ssl_opts(ssl))
}

#[async_trait]
impl Dialect for Mysql {
    async fn connect(&self, ticks: Option<&Arc<Ticks>>) -> Result<Box<dyn Link>, Error> {
        let away = |why: String| Error::Unreachable(format!("{}: cannot connect: {why}", self.settings.database));
        let budget = Budget::new(self.budget, ticks);
        let opts = self.opts.clone();
        let conn = budget.within(async { Conn::new(opts).await.map_err(fault) }).await;
        let conn = conn.map_err(|fault| away(fault.why()))?;
        let settings = self.settings.clone();
        Ok(Box::new(MysqlLink { conn, budget, settings, prepared: HashMap::new(), layout: None }))
    }

    fn shares_a_thread(&self) -> bool {
        true
    }

    fn upserts(&self, layout: &Layout) -> bool {
        upserts(layout)
    }

    fn watch(&self, shared: &Shared) -> Unheard {
        super::binlog::watch(shared)
    }
}

fn upserts(layout: &Layout) -> bool {
    layout.sole_unique && layout.uninsertable.is_none() && layout.key.iter().all(|column| column.folds.is_none())
}

struct MysqlLink {
    conn: Conn,
    budget: Budget,
    settings: Settings,
    prepared: HashMap<Shape, Statement>,
    layout: Option<(Arc<Layout>, Statements)>,
}

impl MysqlLink {
    fn layout(&self) -> Result<Arc<Layout>, Fault> {
        let (layout, _) = self.layout.as_ref().ok_or_else(no_mapping)?;
        Ok(Arc::clone(layout))
    }

    async fn statement(&mut self, shape: Shape) -> Result<Statement, Fault> {
        if let Some(statement) = self.prepared.get(&shape) {
            return Ok(statement.clone());
        }
        let (_, statements) = self.layout.as_ref().ok_or_else(no_mapping)?;
        let (conn, text) = (&mut self.conn, statements.text(shape));
        let statement = self.budget.within(async { conn.prep(text).await.map_err(fault) }).await?;
        self.prepared.insert(shape, statement.clone());
        Ok(statement)
    }

    async fn rows(&mut self, shape: Shape, values: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let (layout, statement) = (self.layout()?, self.statement(shape).await?);
        let conn = &mut self.conn;
        let rows: Vec<mysql_async::Row> =
            self.budget.within(async { conn.exec(statement, Params::Positional(values)).await.map_err(fault) }).await?;
        Ok(rows.into_iter().map(|row| layout.row(row.unwrap().into_iter().map(cell).collect())).collect())
    }

    async fn execute(&mut self, shape: Shape, values: Vec<Value>) -> Result<u64, Fault> {
        let statement = self.statement(shape).await?;
        let conn = &mut self.conn;
        self.budget
            .within(async { conn.exec_drop(statement, Params::Positional(values)).await.map_err(fault) })
            .await?;
        Ok(self.conn.affected_rows())
    }

    async fn say(&mut self, text: &str) -> Result<(), Fault> {
        let conn = &mut self.conn;
        self.budget.within(async { conn.query_drop(text).await.map_err(fault) }).await
    }

    /// One statement for as many rows as it may hold.
    async fn chunks(&mut self, rows: &[Row], shape: impl Fn(usize) -> Shape) -> Result<(), Fault> {
        let layout = self.layout()?;
        for rows in rows.chunks(ROWS_MAX) {
            let cells = rows.iter().flat_map(|row| layout.cells(row));
            let values = cells.map(|cell| value(&cell)).collect();
            self.execute(shape(rows.len()), values).await?;
        }
        Ok(())
    }
}

fn no_mapping() -> Fault {
    Fault::Refused("no mapping yet".to_owned())
}

fn insert(rows: usize) -> Shape {
    Shape::Insert { rows }
}

fn upsert(rows: usize) -> Shape {
    Shape::Upsert { rows }
}

#[async_trait]
impl Link for MysqlLink {
    async fn describe(&mut self) -> Result<Described, Fault> {
        let (schema, table) = match self.settings.table.split_once('.') {
            Some((schema, table)) => (schema.to_owned(), table.to_owned()),
            None => (self.settings.database.database(), self.settings.table.clone()),
        };
        let conn = &mut self.conn;
        let (columns, indexes) = self
            .budget
            .within(async {
                let columns: Vec<ColumnRow> = conn
                    .exec(
                        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_OCTET_LENGTH, \
                     IS_NULLABLE = 'YES', COLUMN_DEFAULT IS NOT NULL OR EXTRA LIKE '%auto_increment%' OR \
                     EXTRA LIKE '%GENERATED%', EXTRA LIKE '%GENERATED%' AND EXTRA NOT LIKE '%DEFAULT_GENERATED%', \
                     COLLATION_NAME FROM information_schema.COLUMNS \
                     WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION",
                        (&schema, &table),
                    )
                    .await
                    .map_err(fault)?;
                let indexes: Vec<(String, Option<String>, Option<u64>)> = conn
                    .exec(
                        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS \
                     WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX",
                        (&schema, &table),
                    )
                    .await
                    .map_err(fault)?;
                Ok((columns, indexes))
            })
            .await?;
        let (mut unique, mut further_unique) = (Vec::new(), false);
        for index in indexes.chunk_by(|a, b| a.0 == b.0) {
            let whole = index.iter().map(|(_, name, part)| name.clone().filter(|_| part.is_none()));
            match whole.collect::<Option<Vec<String>>>() {
                Some(names) => unique.push(names),
                None => further_unique = true,
            }
        }
        Ok(Described { columns: columns.into_iter().map(column).collect(), unique, further_unique })
    }

    fn prepare(&mut self, layout: &Arc<Layout>) {
        self.layout = Some((Arc::clone(layout), Statements::new(Quote::Back, layout)));
    }

    async fn check(&mut self) -> Result<(), Fault> {
        let conn = &mut self.conn;
        self.budget.within(async { conn.ping().await.map_err(fault) }).await
    }

    async fn read(&mut self, keys: &[Vec<Cell>], lock: bool) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ROWS_MAX) {
            rows.append(&mut self.rows(Shape::Select { rows: keys.len(), lock }, values(keys)).await?);
        }
        Ok(rows)
    }

    async fn range(&mut self, bounds: &Bounds) -> Result<Vec<Row>, Fault> {
        let mut values: Vec<Value> =
            [&bounds.from, &bounds.to].into_iter().flatten().map(|(cell, _)| value(cell)).collect();
        if self.layout()?.expiry.is_some() {
            values.push(bounds.now.into());
        }
        values.push(bounds.limit.into());
        let inclusive = |bound: &Option<(Cell, bool)>| bound.as_ref().map(|(_, inclusive)| *inclusive);
        self.rows(Shape::Range { from: inclusive(&bounds.from), to: inclusive(&bounds.to) }, values).await
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        self.say("BEGIN").await
    }

    async fn insert(&mut self, rows: &[Row]) -> Result<(), Fault> {
        self.chunks(rows, insert).await
    }

    async fn update(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let layout = self.layout()?;
        if rows.len() > 1 && upserts(&layout) {
            return self.chunks(rows, upsert).await;
        }
        for row in rows {
            let mut values: Vec<Value> = layout.cells(row).map(|cell| value(&cell)).collect();
            values.rotate_left(layout.key.len());
            self.execute(Shape::Update, values).await?;
        }
        Ok(())
    }

    async fn upsert(&mut self, rows: &[Row]) -> Result<(), Fault> {
        if rows.len() <= ROWS_MAX {
            return self.chunks(rows, upsert).await;
        }
        self.begin().await?;
        match self.chunks(rows, upsert).await {
            Ok(()) => self.commit().await,
            Err(fault) => {
                if matches!(fault, Fault::Row(_) | Fault::Refused(_) | Fault::Conflict(_)) {
                    self.rollback().await?;
                }
                Err(fault)
            }
        }
    }

    async fn delete(&mut self, keys: &[Vec<Cell>]) -> Result<(), Fault> {
        for keys in keys.chunks(ROWS_MAX) {
            self.execute(Shape::Delete { rows: keys.len() }, values(keys)).await?;
        }
        Ok(())
    }

    async fn purge(&mut self, limit: u32, expired_by: Option<i64>) -> Result<u64, Fault> {
        let values = expired_by.map(Value::from).into_iter().chain([limit.into()]).collect();
        self.execute(Shape::Purge { expired: expired_by.is_some() }, values).await
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        self.say("COMMIT").await
    }

    async fn rollback(&mut self) -> Result<(), Fault> {
        self.say("ROLLBACK").await
    }

    async fn mark(&mut self) -> Result<(), Fault> {
        self.say("SAVEPOINT nuthatch").await
    }

    async fn back_to_mark(&mut self) -> Result<(), Fault> {
        self.say("ROLLBACK TO SAVEPOINT nuthatch").await
    }
}

pub(crate) fn values(keys: &[Vec<Cell>]) -> Vec<Value> {
    keys.iter().flatten().map(value).collect()
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::NULL,
        Cell::Int(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => Value::Int(number),
            (_, Ok(number)) => Value::UInt(number),
            _ => Value::Bytes(number.to_string().into_bytes()),
        },
        Cell::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

pub(crate) fn cell(value: Value) -> Cell {
    match value {
        Value::NULL => Cell::Null,
        Value::Int(number) => Cell::Int(number.into()),
        Value::UInt(number) => Cell::Int(number.into()),
        Value::Bytes(bytes) => Cell::Bytes(bytes),
        // Of columns that no mapping has.
        other => Cell::Bytes(other.as_sql(true).into_bytes()),
    }
}

type ColumnRow = (String, String, String, Option<u64>, Option<u64>, bool, bool, bool, Option<String>);

fn column(
    (name, data_type, column_type, chars, bytes, nullable, fills_itself, generated, collation): ColumnRow,
) -> Column {
    let unsigned = column_type.contains("unsigned");
    let integer = |bits| if unsigned { Kind::unsigned(bits) } else { Kind::signed(bits) };
    let text =
        |chars_max, bytes_max, padded| Kind::Text { chars_max, bytes_max, padded, zero_bytes: true, any_bytes: false };
    let kind = match data_type.as_str() {
        "tinyint" => integer(8),
        "smallint" => integer(16),
        "mediumint" => integer(24),
        "int" => integer(32),
        "bigint" => integer(64),
        "char" => text(chars, None, true),
        "varchar" => text(chars, None, false),
        "tinytext" | "text" | "mediumtext" | "longtext" => text(None, bytes, false),
        "binary" => Kind::Binary { bytes_max: bytes, fixed: true },
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
            Kind::Binary { bytes_max: bytes, fixed: false }
        }
        other => Kind::Other(other.to_owned()),
    };
    let folds = collation.filter(|collation| !collation.ends_with("_bin") && collation != "binary");
    Column { name, kind, nullable, fills_itself, generated, folds }
}

/// What an error means to whoever wrote.
pub(crate) fn fault(error: mysql_async::Error) -> Fault {
    let mysql_async::Error::Server(server) = &error else {
        // The driver says so once for each of its layers; what follows tells more.
        return Fault::Lost(error.to_string().replace("Input/output error: ", ""));
    };
    let why = format!("{} (error {})", server.message, server.code);
    match server.code {
        // A deadlock, a duplicate key, a record that changed since the last read.
        1213 | 1062 | 1586 | 1020 => Fault::Conflict(why),
        // The server stops, the connection was killed.
        1053 | 1077 | 1927 | 2006 | 2013 => Fault::Lost(why),
        // A Galera node that has lost the others refuses every statement before it begins.
        1047 => Fault::Unready(why),
        // Nulls, missing defaults, foreign keys, lengths, ranges, characters, checks, sizes.
        1048 | 1364 | 1216 | 1217 | 1451 | 1452 | 1406 | 1264 | 1265 | 1366 | 1292 | 1300 | 3819 | 4025 | 1644
        | 1118 | 1153 | 1267 | 1690 | 3988 => Fault::Row(why),
        1205 => Fault::Refused(format!("{why}: others keep the row locked")),
        _ => Fault::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;

    #[test]
    fn a_node_without_its_cluster_has_done_nothing() {
        let said = |code| fault(ServerError { code, message: "not now".to_owned(), state: "08S01".to_owned() }.into());
        assert!(matches!(said(1047), Fault::Unready(why) if why == "not now (error 1047)"));
        assert!(matches!(said(1053), Fault::Lost(_)));
    }
}
