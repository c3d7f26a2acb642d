//! Cache-aside before PostgreSQL: accounts are read through memcached servers, and changed in the database.
//!
//! ```console
//! $ memcached -p 11311 &
//! $ createdb shop && psql shop -c "CREATE TABLE accounts (id int PRIMARY KEY, name text); INSERT INTO accounts VALUES (7, 'Ada')"
//! $ cargo run -p nuthatch-fleet --example aside_postgres -- 'host=/run/postgresql dbname=shop user=postgres' 127.0.0.1:11311
//! ```
//!
//! Here is the database's part; `aside_accounts.rs` is the cache's.

#[path = "aside_accounts.rs"]
mod accounts;

use std::process::ExitCode;

use accounts::Database;
use tokio_postgres::{Client, NoTls};

struct Postgres(Client);

impl Database for Postgres {
    type Fault = tokio_postgres::Error;

    async fn open(place: &str) -> Result<Postgres, Self::Fault> {
        let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
        // Does the connection's input and output; whoever asks is told how it ended.
        tokio::spawn(connection);
        Ok(Postgres(client))
    }

    async fn read(&self, id: i32) -> Result<Option<String>, Self::Fault> {
        let row = self.0.query_opt("SELECT name FROM accounts WHERE id = $1", &[&id]).await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    async fn write(&self, id: i32, name: &str) -> Result<(), Self::Fault> {
        self.0.execute("UPDATE accounts SET name = $1 WHERE id = $2", &[&name, &id]).await.map(drop)
    }

    async fn close(self) -> Result<(), Self::Fault> {
        Ok(())
    }
}

fn main() -> ExitCode {
    accounts::program::<Postgres>("aside_postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_everything_else_is_read_once() {
        let database = nuthatch_testkit::database::Database::postgres(&[]);
        database.sql("CREATE TABLE accounts (id int PRIMARY KEY, name text); INSERT INTO accounts VALUES (7, 'Ada')");
        accounts::check::<Postgres>(format!("host={} dbname=test user=root", database.dir().display()));
    }
}
