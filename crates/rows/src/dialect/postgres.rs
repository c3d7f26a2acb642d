//! PostgreSQL, and what speaks its protocol (CockroachDB, YugabyteDB).
//!
//! Any number of rows is one statement with one parameter for each column, an array: `unnest` makes rows of them again. So one
//! prepared statement serves every size; a plain set of one row has its own, which is cheaper to run. Rows that are
//! to be changed are locked by `SELECT ... FOR UPDATE` first.
//!
//! Errors by their class: "PostgreSQL Error Codes", appendix A of its manual.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustls::ClientConfig;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::authorities;
use crate::budget::{Budget, Ticks};
use crate::cell::{Cell, Column, Kind};
use crate::error::Error;
use crate::layout::{Described, Layout, Row};
use crate::link::{Bounds, Dialect, Fault, Link};
use crate::settings::{Settings, Tls};
use crate::shared::Shared;
use crate::sql::Quote;
use crate::watch::Unheard;

pub(crate) struct Postgres {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    settings: Settings,
    budget: Duration,
}

impl Postgres {
    pub(crate) fn new(settings: &Settings) -> Result<Postgres, Error> {
        let budget = settings.timeout / 2;
        let (mut config, tls) = config(settings)?;
        // The server gives up a moment before this side does.
        let millis = budget.as_millis().saturating_sub(20).max(1);
        config.options(format!("-c statement_timeout={millis} -c lock_timeout={millis}"));
        Ok(Postgres { config, tls, settings: settings.clone(), budget })
    }
}

/// How to connect, without a session's settings.
pub(crate) fn config(settings: &Settings) -> Result<(Config, Option<MakeRustlsConnect>), Error> {
    let database = &settings.database;
    let mut config = Config::new();
    match database.parameter("socket") {
        Some(directory) => config.host_path(directory),
        None => config.host(database.host()),
    };
    config.port(database.port().unwrap_or(5432)).dbname(database.database()).application_name("nuthatch");
    if !database.user().is_empty() {
        config.user(database.user());
    }
    if let Some(password) = database.secret() {
        config.password(password);
    }
    let tls = match database.tls()? {
        Tls::Off => {
            config.ssl_mode(SslMode::Disable);
            None
        }
        Tls::Verified => {
            config.ssl_mode(SslMode::Require);
            Some(match &database.authorities {
                None => MakeRustlsConnect::with_webpki_roots(),
                Some(path) => {
                    let roots = authorities::read(path)?;
                    MakeRustlsConnect::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
                }
            })
        }
    };
    Ok((config, tls))
}

#[async_trait]
impl Dialect for Postgres {
    async fn connect(&self, ticks: Option<&Arc<Ticks>>) -> Result<Box<dyn Link>, Error> {
        let away = |why: String| Error::Unreachable(format!("{}: cannot connect: {why}", self.settings.database));
        let budget = Budget::new(self.budget, ticks);
        let client = budget.within(async {
            // The connection's own task does all input and output, whenever the event loop runs.
            Ok(match &self.tls {
                None => {
                    let (client, connection) = self.config.connect(NoTls).await.map_err(fault)?;
                    tokio::spawn(connection);
                    client
                }
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await.map_err(fault)?;
                    tokio::spawn(connection);
                    client
                }
            })
        });
        let client = client.await.map_err(|fault| away(fault.why()))?;
        let settings = self.settings.clone();
        Ok(Box::new(PostgresLink { client, budget, settings, prepared: HashMap::new(), layout: None }))
    }

    fn shares_a_thread(&self) -> bool {
        true
    }

    fn upserts(&self, layout: &Layout) -> bool {
        // The index that is updated on is named, so other unique indexes refuse instead.
        layout.uninsertable.is_none() && layout.key.iter().all(|column| column.folds.is_none())
    }

    fn watch(&self, shared: &Shared) -> Unheard {
        super::notify::watch(shared, &self.config, self.tls.as_ref())
    }
}

struct PostgresLink {
    client: Client,
    budget: Budget,
    settings: Settings,
    prepared: HashMap<Arc<str>, Statement>,
    layout: Option<(Arc<Layout>, Arc<Texts>)>,
}

/// The statements on one table.
struct Texts {
    select: [Arc<str>; 2],
    insert: Arc<str>,
    update: Arc<str>,
    upsert: Arc<str>,
    upsert_one: Arc<str>,
    delete: Arc<str>,
    ranges: [Arc<str>; 9],
    purge: [Arc<str>; 2],
}

impl Texts {
    fn new(layout: &Layout) -> Texts {
        let quote = Quote::Double;
        let table = quote.table(layout);
        let names: Vec<String> = layout.columns().map(|column| quote.name(&column.name)).collect();
        let keys = &names[..layout.key.len()];
        // What is read is widened to the three types that a cell has.
        let read: Vec<String> =
            layout.columns().map(|column| format!("t.{}::{}", quote.name(&column.name), wide(column))).collect();
        let read = read.join(", ");
        let arrays = |count: usize| -> Vec<String> {
            layout
                .columns()
                .take(count)
                .enumerate()
                .map(|(n, column)| format!("${}::{}[]", n + 1, wide(column)))
                .collect()
        };
        let new: Vec<String> = (0..names.len()).map(|n| format!("c{n}")).collect();
        let same: Vec<String> = layout
            .key
            .iter()
            .enumerate()
            .map(|(n, column)| format!("t.{} = n.c{n}::{}", quote.name(&column.name), narrow(column)))
            .collect();
        let same = same.join(" AND ");
        let key_rows = format!("unnest({}) AS n({})", arrays(keys.len()).join(", "), new[..keys.len()].join(", "));
        let all_rows = format!("unnest({}) AS n({})", arrays(names.len()).join(", "), new.join(", "));
        let (from, condition) = match &layout.key[..] {
            [column] => {
                let array = format!("$1::{}[]", wide(column));
                (format!("{table} AS t"), format!("t.{} = ANY({array}::{}[])", keys[0], narrow(column)))
            }
            _ => (format!("{key_rows} JOIN {table} AS t ON {same}"), "true".to_owned()),
        };
        let select = |lock: &str| Arc::from(format!("SELECT {read} FROM {from} WHERE {condition}{lock}"));
        let delete = match &layout.key[..] {
            [_] => format!("DELETE FROM {table} AS t WHERE {condition}"),
            _ => format!("DELETE FROM {table} AS t USING {key_rows} WHERE {same}"),
        };
        let into = format!("INSERT INTO {table} ({})", names.join(", "));
        let insert = format!("{into} SELECT {} FROM {all_rows}", new.join(", "));
        let one = layout.columns().enumerate().map(|(n, column)| format!("${}::{}", n + 1, wide(column)));
        let insert_one = format!("{into} VALUES ({})", one.collect::<Vec<_>>().join(", "));
        let set = |value: &dyn Fn(usize) -> String| {
            let set = (keys.len()..names.len()).map(|n| format!("{} = {}", names[n], value(n)));
            set.collect::<Vec<_>>().join(", ")
        };
        // What is changed has the column's own type, as in an insert's assignment.
        let types: Vec<&str> = layout.columns().map(narrow).collect();
        let update = set(&|n| format!("n.c{n}::{}", types[n]));
        let upsert =
            format!("ON CONFLICT ({}) DO UPDATE SET {}", keys.join(", "), set(&|n| format!("excluded.{}", names[n])));
        let expiry = layout.expiry.as_ref().map(|column| quote.name(&column.name));
        let range = |n: usize| {
            let bound = |sign: usize, less: &str, parameter: &str| {
                let sign = if sign == 1 { format!("{less}=") } else { less.to_owned() };
                format!("t.{} {sign} {parameter}::{}::{}", keys[0], wide(&layout.key[0]), narrow(&layout.key[0]))
            };
            let (mut conditions, mut next) = (Vec::new(), 0);
            for (sign, less) in [(n / 3, ">"), (n % 3, "<")] {
                if sign > 0 {
                    next += 1;
                    conditions.push(bound(sign - 1, less, &format!("${next}")));
                }
            }
            if let Some(expiry) = &expiry {
                next += 1;
                conditions.push(format!("(t.{expiry} IS NULL OR t.{expiry} = 0 OR t.{expiry} > ${next}::int8)"));
            }
            let condition = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
            Arc::from(format!(
                "SELECT {read} FROM {table} AS t WHERE {condition} ORDER BY t.{} LIMIT ${}::int8",
                keys[0],
                next + 1
            ))
        };
        let purge = |condition: String, limit: &str| {
            let rows = format!("SELECT ctid FROM {table}{condition} LIMIT {limit}::int8");
            Arc::from(format!("DELETE FROM {table} WHERE ctid = ANY(ARRAY({rows}))"))
        };
        let expired = expiry.as_ref().map(|expiry| format!(" WHERE {expiry} <> 0 AND {expiry} <= $1::int8"));
        Texts {
            select: [select(""), select(" FOR UPDATE OF t")],
            upsert: Arc::from(format!("{insert} {upsert}")),
            upsert_one: Arc::from(format!("{insert_one} {upsert}")),
            insert: Arc::from(insert),
            update: Arc::from(format!("UPDATE {table} AS t SET {update} FROM {all_rows} WHERE {same}")),
            delete: Arc::from(delete),
            ranges: std::array::from_fn(range),
            purge: [purge(String::new(), "$1"), purge(expired.unwrap_or_default(), "$2")],
        }
    }
}

/// The type that a cell of a column travels as.
fn wide(column: &Column) -> &'static str {
    match column.kind {
        Kind::Integer { .. } => "int8",
        Kind::Binary { .. } => "bytea",
        _ => "text",
    }
}

/// The type that a column is compared and changed as; one that an index on it serves. Lengths are the table's to check.
fn narrow(column: &Column) -> &'static str {
    match &column.kind {
        Kind::Integer { max, .. } if *max < 1 << 15 => "int2",
        Kind::Integer { max, .. } if *max < 1 << 31 => "int4",
        Kind::Text { padded: true, .. } => "bpchar",
        _ => wide(column),
    }
}

/// A parameter that is the cells of one column as an array.
fn parameter(column: &Column, cells: &[&Cell]) -> Box<dyn ToSql + Send + Sync> {
    match column.kind {
        Kind::Integer { .. } => Box::new(cells.iter().map(|cell| cell.number::<i64>()).collect::<Vec<_>>()),
        Kind::Binary { .. } => Box::new(cells.iter().map(|cell| bytes(cell)).collect::<Vec<_>>()),
        _ => Box::new(cells.iter().map(|cell| text(cell)).collect::<Vec<_>>()),
    }
}

/// A parameter that is one cell.
fn single(column: &Column, cell: &Cell) -> Box<dyn ToSql + Send + Sync> {
    match column.kind {
        Kind::Integer { .. } => Box::new(cell.number::<i64>()),
        Kind::Binary { .. } => Box::new(bytes(cell)),
        _ => Box::new(text(cell)),
    }
}

fn bytes(cell: &Cell) -> Option<Vec<u8>> {
    if let Cell::Bytes(bytes) = cell { Some(bytes.clone()) } else { None }
}

/// Columns of text have been given no cells but of text.
fn text(cell: &Cell) -> Option<String> {
    bytes(cell).and_then(|bytes| String::from_utf8(bytes).ok())
}

type Parameters = Vec<Box<dyn ToSql + Send + Sync>>;

impl PostgresLink {
    fn ready(&self) -> Result<(Arc<Layout>, Arc<Texts>), Fault> {
        self.layout.clone().ok_or_else(|| Fault::Refused("no mapping yet".to_owned()))
    }

    async fn statement(&mut self, text: &Arc<str>) -> Result<Statement, Fault> {
        if let Some(statement) = self.prepared.get(text) {
            return Ok(statement.clone());
        }
        let client = &self.client;
        let statement = self.budget.within(async { client.prepare(text).await.map_err(fault) }).await?;
        self.prepared.insert(Arc::clone(text), statement.clone());
        Ok(statement)
    }

    async fn rows(&mut self, layout: &Layout, text: &Arc<str>, parameters: &Parameters) -> Result<Vec<Row>, Fault> {
        let statement = self.statement(text).await?;
        let (client, borrowed) = (&self.client, borrow(parameters));
        let rows = self.budget.within(async { client.query(&statement, &borrowed).await.map_err(fault) }).await?;
        let columns: Vec<&Column> = layout.columns().collect();
        rows.iter()
            .map(|row| {
                let cells = columns.iter().enumerate().map(|(n, column)| cell(row, n, column));
                Ok(layout.row(cells.collect::<Result<_, _>>().map_err(fault)?))
            })
            .collect()
    }

    async fn execute(&mut self, text: &Arc<str>, parameters: &Parameters) -> Result<u64, Fault> {
        let statement = self.statement(text).await?;
        let (client, borrowed) = (&self.client, borrow(parameters));
        self.budget.within(async { client.execute(&statement, &borrowed).await.map_err(fault) }).await
    }

    async fn say(&mut self, text: &str) -> Result<(), Fault> {
        let client = &self.client;
        self.budget.within(async { client.batch_execute(text).await.map_err(fault) }).await
    }

    async fn write(&mut self, text: &Arc<str>, layout: &Layout, rows: &[Row]) -> Result<(), Fault> {
        let rows: Vec<Vec<Cow<'_, Cell>>> = rows.iter().map(|row| layout.cells(row).collect()).collect();
        let column = |(n, column): (usize, &Column)| {
            let cells: Vec<&Cell> = rows.iter().map(|row| row[n].as_ref()).collect();
            parameter(column, &cells)
        };
        let parameters = layout.columns().enumerate().map(column).collect();
        self.execute(text, &parameters).await.map(drop)
    }
}

fn borrow(parameters: &Parameters) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect()
}

fn keys(layout: &Layout, keys: &[Vec<Cell>]) -> Parameters {
    let column = |(n, column)| parameter(column, &keys.iter().map(|key| &key[n]).collect::<Vec<_>>());
    layout.key.iter().enumerate().map(column).collect()
}

fn cell(row: &tokio_postgres::Row, n: usize, column: &Column) -> Result<Cell, tokio_postgres::Error> {
    Ok(match column.kind {
        Kind::Integer { .. } => row.try_get::<_, Option<i64>>(n)?.map_or(Cell::Null, |number| Cell::Int(number.into())),
        Kind::Binary { .. } => row.try_get::<_, Option<Vec<u8>>>(n)?.map_or(Cell::Null, Cell::Bytes),
        _ => row.try_get::<_, Option<String>>(n)?.map_or(Cell::Null, |text| Cell::Bytes(text.into_bytes())),
    })
}

#[async_trait]
impl Link for PostgresLink {
    async fn describe(&mut self) -> Result<Described, Fault> {
        let parts = self.settings.table.splitn(2, '.').map(|part| Quote::Double.name(part));
        let table = parts.collect::<Vec<_>>().join(".");
        let client = &self.client;
        let table: [&(dyn ToSql + Sync); 1] = [&table];
        let (columns, indexes) = self.budget.within(async {
            // Before version 12 nothing was generated, and there was no word for it.
            let columns = client.query(
                "SELECT a.attname::text, t.typname::text, a.atttypmod, a.attnotnull, \
                 a.atthasdef OR a.attidentity <> '', c.collname::text, coalesce(c.collisdeterministic, true), \
                 a.attidentity = 'a' OR coalesce(to_jsonb(a) ->> 'attgenerated', '') <> '' \
                 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation \
                 WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                &table,
            );
            let columns = columns.await.map_err(fault)?;
            let indexes = client.query(
                "SELECT (i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid), \
                 ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k \
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k) \
                 FROM pg_index i WHERE i.indrelid = to_regclass($1::text) AND i.indisunique",
                &table,
            );
            Ok((columns, indexes.await.map_err(fault)?))
        }).await?;
        let columns = columns.iter().map(describe_column).collect::<Result<_, _>>().map_err(fault)?;
        let (mut unique, mut further_unique) = (Vec::new(), false);
        for index in &indexes {
            if index.try_get(0).map_err(fault)? {
                unique.push(index.try_get(1).map_err(fault)?);
            } else {
                further_unique = true;
            }
        }
        Ok(Described { columns, unique, further_unique })
    }

    fn prepare(&mut self, layout: &Arc<Layout>) {
        self.layout = Some((Arc::clone(layout), Arc::new(Texts::new(layout))));
    }

    async fn check(&mut self) -> Result<(), Fault> {
        self.say("").await
    }

    async fn read(&mut self, wanted: &[Vec<Cell>], lock: bool) -> Result<Vec<Row>, Fault> {
        let (layout, texts) = self.ready()?;
        self.rows(&layout, &texts.select[usize::from(lock)], &keys(&layout, wanted)).await
    }

    async fn range(&mut self, bounds: &Bounds) -> Result<Vec<Row>, Fault> {
        let (layout, texts) = self.ready()?;
        let sign =
            |bound: &Option<(Cell, bool)>| bound.as_ref().map_or(0, |(_, inclusive)| 1 + usize::from(*inclusive));
        let mut parameters: Parameters =
            [&bounds.from, &bounds.to].into_iter().flatten().map(|(cell, _)| single(&layout.key[0], cell)).collect();
        if layout.expiry.is_some() {
            parameters.push(Box::new(bounds.now));
        }
        parameters.push(Box::new(i64::from(bounds.limit)));
        self.rows(&layout, &texts.ranges[sign(&bounds.from) * 3 + sign(&bounds.to)], &parameters).await
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        self.say("BEGIN ISOLATION LEVEL READ COMMITTED").await
    }

    async fn insert(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let (layout, texts) = self.ready()?;
        self.write(&texts.insert, &layout, rows).await
    }

    async fn update(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let (layout, texts) = self.ready()?;
        self.write(&texts.update, &layout, rows).await
    }

    async fn upsert(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let (layout, texts) = self.ready()?;
        if let [row] = rows {
            let cells = layout.cells(row);
            let parameters = layout.columns().zip(cells).map(|(column, cell)| single(column, &cell)).collect();
            return self.execute(&texts.upsert_one, &parameters).await.map(drop);
        }
        self.write(&texts.upsert, &layout, rows).await
    }

    async fn delete(&mut self, gone: &[Vec<Cell>]) -> Result<(), Fault> {
        let (layout, texts) = self.ready()?;
        self.execute(&texts.delete, &keys(&layout, gone)).await.map(drop)
    }

    async fn purge(&mut self, limit: u32, expired_by: Option<i64>) -> Result<u64, Fault> {
        let (_, texts) = self.ready()?;
        let mut parameters: Parameters =
            expired_by.map(|now| Box::new(now) as Box<dyn ToSql + Send + Sync>).into_iter().collect();
        parameters.push(Box::new(i64::from(limit)));
        self.execute(&texts.purge[usize::from(expired_by.is_some())], &parameters).await
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        self.say("COMMIT").await
    }

    async fn rollback(&mut self) -> Result<(), Fault> {
        self.say("ROLLBACK").await
    }

    async fn session(&mut self) -> Result<Option<i64>, Fault> {
        let client = &self.client;
        let row =
            self.budget.within(async { client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(fault) }).await?;
        Ok(Some(row.try_get::<_, i32>(0).map_err(fault)?.into()))
    }

    async fn mark(&mut self) -> Result<(), Fault> {
        self.say("SAVEPOINT nuthatch").await
    }

    async fn back_to_mark(&mut self) -> Result<(), Fault> {
        self.say("ROLLBACK TO SAVEPOINT nuthatch").await
    }
}

fn describe_column(row: &tokio_postgres::Row) -> Result<Column, tokio_postgres::Error> {
    let (declared, modifier): (String, i32) = (row.try_get(1)?, row.try_get(2)?);
    // A length is kept with four bytes of header added.
    let chars_max = u64::try_from(modifier - 4).ok();
    let text =
        |chars_max, padded| Kind::Text { chars_max, bytes_max: None, padded, zero_bytes: false, any_bytes: false };
    let collation: Option<String> = row.try_get(5)?;
    Ok(Column {
        name: row.try_get(0)?,
        kind: match declared.as_str() {
            "int2" => Kind::signed(16),
            "int4" => Kind::signed(32),
            "int8" => Kind::signed(64),
            "text" => text(None, false),
            "varchar" => text(chars_max, false),
            "bpchar" => text(chars_max, true),
            "bytea" => Kind::Binary { bytes_max: None, fixed: false },
            _ => Kind::Other(declared),
        },
        nullable: !row.try_get::<_, bool>(3)?,
        fills_itself: row.try_get(4)?,
        generated: row.try_get(7)?,
        folds: collation.filter(|_| !row.try_get(6).unwrap_or(true)),
    })
}

/// What an error means to whoever wrote.
fn fault(error: tokio_postgres::Error) -> Fault {
    let Some(server) = error.as_db_error() else {
        let mut why = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            why = format!("{why}: {source}");
        }
        return if error.is_closed()
            || std::error::Error::source(&error).is_some_and(|source| source.is::<std::io::Error>())
        {
            Fault::Lost(why)
        } else {
            Fault::Refused(why)
        };
    };
    let why = format!("{} ({})", server.message(), server.code().code());
    match server.code().code() {
        "23505" | "40001" | "40P01" => Fault::Conflict(why),
        "57P01" | "57P02" | "57P03" | "57P04" | "57P05" => Fault::Lost(why),
        "57014" => Fault::Overdue(why),
        "55P03" => Fault::Refused(format!("{why}: others keep the row locked")),
        code if code.starts_with("22") || code.starts_with("23") => Fault::Row(why),
        "54000" | "44000" | "P0001" => Fault::Row(why),
        code if code.starts_with("08") => Fault::Lost(why),
        _ => Fault::Refused(why),
    }
}
