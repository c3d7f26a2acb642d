//! Cache-aside before MariaDB: accounts are read through memcached servers, and changed in the database.
//!
//! ```console
//! $ memcached -p 11311 &
//! $ mariadb -e "CREATE DATABASE shop; CREATE TABLE shop.accounts (id INT PRIMARY KEY, name VARCHAR(100));
//!     INSERT INTO shop.accounts VALUES (7, 'Ada')"
//! $ cargo run -p nuthatch-fleet --example aside_mariadb -- 'mysql://root@localhost/shop?socket=/run/mysqld/mysqld.sock' 127.0.0.1:11311
//! ```
//!
//! Here is the database's part; `aside_accounts.rs` is the cache's.

#[path = "aside_accounts.rs"]
mod accounts;

use std::process::ExitCode;

use accounts::Database;
use mysql_async::Pool;
use mysql_async::prelude::Queryable;

struct Mariadb(Pool);

impl Database for Mariadb {
    type Fault = mysql_async::Error;

    async fn open(url: &str) -> Result<Mariadb, Self::Fault> {
        Ok(Mariadb(Pool::from_url(url)?))
    }

    async fn read(&self, id: i32) -> Result<Option<String>, Self::Fault> {
        let mut conn = self.0.get_conn().await?;
        conn.exec_first("SELECT name FROM accounts WHERE id = ?", (id,)).await
    }

    async fn write(&self, id: i32, name: &str) -> Result<(), Self::Fault> {
        let mut conn = self.0.get_conn().await?;
        conn.exec_drop("UPDATE accounts SET name = ? WHERE id = ?", (name, id)).await
    }

    async fn close(self) -> Result<(), Self::Fault> {
        self.0.disconnect().await
    }
}

fn main() -> ExitCode {
    accounts::program::<Mariadb>("aside_mariadb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_everything_else_is_read_once() {
        let database = nuthatch_testkit::database::Database::mariadb(&[]);
        database.sql(
            "CREATE TABLE accounts (id INT PRIMARY KEY, name VARCHAR(100)); INSERT INTO accounts VALUES (7, 'Ada')",
        );
        accounts::check::<Mariadb>(database.url());
    }
}
