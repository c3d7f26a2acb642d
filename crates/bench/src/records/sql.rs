//! One connection to a database and the three statements on its table of records, each a transaction of its own: prepared once, or
//! sent as a text each time.
//!
//! The drivers are those made for each database. SQLite runs within the call, on the thread that all clients share: it has one
//! writer at a time in any case, and so they do not wait for each other's locks.

use std::fmt::Display;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::{BINARY, table_of};
use crate::failure::Failure;

/// How long SQLite waits for another process.
const PATIENCE: Duration = Duration::from_secs(20);

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Prepared,
    Text,
}

pub(super) struct Sql {
    driver: Driver,
    table: &'static str,
    by: By,
    /// Insert, update and read.
    texts: [String; 3],
}

enum Driver {
    Sqlite(rusqlite::Connection),
    Mysql(Box<mysql_async::Conn>, Option<[mysql_async::Statement; 3]>),
    Postgres(tokio_postgres::Client, Option<[tokio_postgres::Statement; 3]>),
}

fn failed(error: impl Display) -> Failure {
    Failure::run(format!("bench: expected the database to do as it was asked: {error}"))
}

/// What PostgreSQL said; its driver says `db error`.
fn said(error: tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Sql {
    pub(super) async fn connect(url: &str, table: &'static str, by: By) -> Result<Sql, Failure> {
        let unreachable = |error: &dyn Display| Failure::run(format!("bench: {url}: {error}"));
        let driver = match url.split_once("://") {
            Some(("sqlite", path)) => {
                let connection = rusqlite::Connection::open(path).map_err(|error| unreachable(&error))?;
                connection.busy_timeout(PATIENCE).map_err(|error| unreachable(&error))?;
                Driver::Sqlite(connection)
            }
            Some(("mysql", _)) => {
                let conn = mysql_async::Conn::from_url(url).await.map_err(|error| unreachable(&error))?;
                Driver::Mysql(Box::new(conn), None)
            }
            Some(("postgres", _)) => {
                // A socket is a host to this driver.
                let url = match url.contains("?socket=") {
                    true => url.replacen("?socket=", "?host=", 1).replacen("@localhost/", "@/", 1),
                    false => url.to_owned(),
                };
                let connected = tokio_postgres::connect(&url, NoTls).await;
                let (client, connection) = connected.map_err(|error| unreachable(&said(error)))?;
                tokio::spawn(connection);
                Driver::Postgres(client, None)
            }
            _ => return Err(unreachable(&"expected sqlite:///PATH, mysql://... or postgres://...")),
        };
        // The body first, then the key.
        let [one, two] = if let Driver::Postgres(..) = driver { ["$1", "$2"] } else { ["?", "?"] };
        let texts = [
            format!("INSERT INTO {table} (body, id) VALUES ({one}, {two})"),
            format!("UPDATE {table} SET body = {one} WHERE id = {two}"),
            format!("SELECT body FROM {table} WHERE id = {one}"),
        ];
        Ok(Sql { driver, table, by, texts })
    }

    /// Makes the table anew.
    pub(super) async fn make(&mut self) -> Result<(), Failure> {
        let collation = if let Driver::Mysql(..) = self.driver { BINARY } else { "" };
        for text in [format!("DROP TABLE IF EXISTS {}", self.table), table_of(self.table, collation)] {
            match &mut self.driver {
                Driver::Sqlite(connection) => connection.execute_batch(&text).map_err(failed)?,
                Driver::Mysql(conn, _) => conn.query_drop(text).await.map_err(failed)?,
                Driver::Postgres(client, _) => {
                    client.batch_execute(&text).await.map_err(|error| failed(said(error)))?
                }
            }
        }
        Ok(())
    }

    /// Prepares the statements. SQLite's are prepared when they are first used, and kept.
    pub(super) async fn prepare(&mut self) -> Result<(), Failure> {
        let [insert, update, read] = &self.texts;
        match &mut self.driver {
            _ if self.by == By::Text => {}
            Driver::Sqlite(_) => {}
            Driver::Mysql(conn, prepared) => {
                let (insert, update) = (conn.prep(insert.as_str()).await, conn.prep(update.as_str()).await);
                let read = conn.prep(read.as_str()).await.map_err(failed)?;
                *prepared = Some([insert.map_err(failed)?, update.map_err(failed)?, read]);
            }
            Driver::Postgres(client, prepared) => {
                let (insert, update) = (client.prepare(insert).await, client.prepare(update).await);
                let read = client.prepare(read).await.map_err(said).map_err(failed)?;
                let (insert, update) = (insert.map_err(said), update.map_err(said));
                *prepared = Some([insert.map_err(failed)?, update.map_err(failed)?, read]);
            }
        }
        Ok(())
    }

    pub(super) async fn insert(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        self.write(0, key, value).await
    }

    pub(super) async fn update(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        self.write(1, key, value).await
    }

    async fn write(&mut self, which: usize, key: &str, value: &str) -> Result<(), Failure> {
        let text = match self.by {
            By::Prepared => String::new(),
            By::Text => self.filled(which, &[value, key]),
        };
        let rows = match &mut self.driver {
            Driver::Sqlite(connection) if self.by == By::Text => connection.execute(&text, []).map_err(failed)? as u64,
            Driver::Mysql(conn, None) => {
                conn.query_drop(text).await.map_err(failed)?;
                conn.affected_rows()
            }
            Driver::Postgres(client, None) => {
                let answers = client.simple_query(&text).await.map_err(said).map_err(failed)?;
                answers
                    .iter()
                    .map(|answer| if let SimpleQueryMessage::CommandComplete(rows) = answer { *rows } else { 0 })
                    .sum()
            }
            Driver::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&self.texts[which]).map_err(failed)?;
                statement.execute((value, key)).map_err(failed)? as u64
            }
            Driver::Mysql(conn, Some(prepared)) => {
                conn.exec_drop(&prepared[which], (value, key)).await.map_err(failed)?;
                conn.affected_rows()
            }
            Driver::Postgres(client, Some(prepared)) => {
                client.execute(&prepared[which], &[&value, &key]).await.map_err(said).map_err(failed)?
            }
        };
        if rows == 1 { Ok(()) } else { Err(failed(format_args!("{rows} rows were written of {key}"))) }
    }

    /// A statement with its values in it: digits and dashes, which need no escaping.
    fn filled(&self, which: usize, values: &[&str]) -> String {
        let mark = if let Driver::Postgres(..) = self.driver { "$" } else { "?" };
        let mut parts = self.texts[which].split(mark);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (value, part) in values.iter().zip(parts) {
            // Behind a dollar stands the parameter's number.
            let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
            text.extend(["'", value, "'", rest]);
        }
        text
    }

    pub(super) async fn read(&mut self, key: &str) -> Result<String, Failure> {
        let text = match self.by {
            By::Prepared => String::new(),
            By::Text => self.filled(2, &[key]),
        };
        let found = match &mut self.driver {
            Driver::Sqlite(connection) if self.by == By::Text => {
                Some(connection.query_row(&text, [], |row| row.get(0)).map_err(failed)?)
            }
            Driver::Mysql(conn, None) => conn.query_first(text).await.map_err(failed)?,
            Driver::Postgres(client, None) => {
                let answers = client.simple_query(&text).await.map_err(said).map_err(failed)?;
                answers.iter().find_map(|answer| match answer {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                })
            }
            Driver::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&self.texts[2]).map_err(failed)?;
                Some(statement.query_row([key], |row| row.get(0)).map_err(failed)?)
            }
            Driver::Mysql(conn, Some([_, _, read])) => conn.exec_first(&*read, (key,)).await.map_err(failed)?,
            Driver::Postgres(client, Some([_, _, read])) => {
                let row = client.query_opt(&*read, &[&key]).await.map_err(said).map_err(failed)?;
                row.map(|row| row.try_get(0)).transpose().map_err(failed)?
            }
        };
        found.ok_or_else(|| failed(format_args!("{key} has no row")))
    }
}
