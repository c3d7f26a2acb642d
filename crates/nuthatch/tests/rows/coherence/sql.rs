//! Writing rows past Nuthatch, by the databases' own drivers, and reading what is there in the end.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, NoTls};

/// Longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the rows are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// A socket of MariaDB's.
    Mariadb(PathBuf),
    /// The directory of PostgreSQL's socket.
    Postgres(PathBuf),
}

enum Link {
    Sqlite(rusqlite::Connection),
    Mariadb(Conn),
    Postgres(Client),
}

/// A connection, made again when it was lost.
pub(crate) struct Sql {
    place: Place,
    runtime: Runtime,
    link: Option<Link>,
}

impl Sql {
    pub(crate) fn new(place: &Place) -> Sql {
        let runtime = Builder::new_current_thread().enable_all().build().expect("an event loop");
        Sql { place: place.clone(), runtime, link: None }
    }

    /// Writes a row, or takes it away. After an error it is not known whether that was done.
    pub(crate) fn put(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        self.with(async |link| match (link, value) {
            (Link::Sqlite(sqlite), Some(value)) => sqlite
                .execute(
                    "INSERT INTO birds (id, body) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET body = ?2",
                    [key, value],
                )
                .map(drop)
                .map_err(|error| error.to_string()),
            (Link::Sqlite(sqlite), None) => {
                sqlite.execute("DELETE FROM birds WHERE id = ?1", [key]).map(drop).map_err(|error| error.to_string())
            }
            (Link::Mariadb(conn), Some(value)) => conn
                .exec_drop(
                    "INSERT INTO birds (id, body) VALUES (?, ?) ON DUPLICATE KEY UPDATE body = VALUES(body)",
                    (key, value),
                )
                .await
                .map_err(|error| error.to_string()),
            (Link::Mariadb(conn), None) => {
                conn.exec_drop("DELETE FROM birds WHERE id = ?", (key,)).await.map_err(|error| error.to_string())
            }
            (Link::Postgres(client), Some(value)) => client
                .execute(
                    "INSERT INTO birds (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                    &[&key, &value],
                )
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
            (Link::Postgres(client), None) => client
                .execute("DELETE FROM birds WHERE id = $1", &[&key])
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
        })
    }

    /// What a row holds.
    pub(crate) fn get(&mut self, key: &str) -> Result<Option<String>, String> {
        self.with(async |link| match link {
            Link::Sqlite(sqlite) => {
                let found =
                    sqlite.query_row("SELECT CAST(body AS TEXT) FROM birds WHERE id = ?1", [key], |row| row.get(0));
                match found {
                    Ok(body) => Ok(Some(body)),
                    Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Link::Mariadb(conn) => {
                conn.exec_first("SELECT body FROM birds WHERE id = ?", (key,)).await.map_err(|error| error.to_string())
            }
            Link::Postgres(client) => {
                let row = client.query_opt("SELECT body FROM birds WHERE id = $1", &[&key]).await;
                row.map(|row| row.map(|row| row.get(0))).map_err(|error| error.to_string())
            }
        })
    }

    fn with<T>(&mut self, ask: impl AsyncFnOnce(&mut Link) -> Result<T, String>) -> Result<T, String> {
        let Sql { place, runtime, link } = self;
        let asked = runtime.block_on(async {
            let asked = async {
                if link.is_none() {
                    *link = Some(connect(place).await?);
                }
                ask(link.as_mut().expect("it was just made")).await
            };
            tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        });
        if asked.is_err() {
            *link = None;
        }
        asked
    }
}

async fn connect(place: &Place) -> Result<Link, String> {
    Ok(match place {
        Place::Sqlite(path) => {
            let sqlite = rusqlite::Connection::open(path).map_err(|error| error.to_string())?;
            sqlite.busy_timeout(PATIENCE).map_err(|error| error.to_string())?;
            Link::Sqlite(sqlite)
        }
        Place::Mariadb(socket) => {
            let opts = OptsBuilder::default()
                .socket(Some(socket.display().to_string()))
                .user(Some("root"))
                .db_name(Some("test"));
            Link::Mariadb(Conn::new(opts).await.map_err(|error| error.to_string())?)
        }
        Place::Postgres(dir) => {
            let mut config = Config::new();
            config.host_path(dir).user("root").dbname("test");
            let (client, connection) = config.connect(NoTls).await.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            Link::Postgres(client)
        }
    })
}
