//! Cache-aside before MariaDB: accounts are read through memcached servers, and changed in the database.
//!
//! ```console
//! $ memcached -p 11311 &
//! $ mariadb -e "CREATE DATABASE shop; CREATE TABLE shop.accounts (id INT PRIMARY KEY, name VARCHAR(100));
//!     INSERT INTO shop.accounts VALUES (7, 'Ada')"
//! $ cargo run -p nuthatch-fleet --example aside_mariadb -- 'mysql://root@localhost/shop?socket=/run/mysqld/mysqld.sock' 127.0.0.1:11311
//! ```
//!
//! However many processes miss an account, the database is asked once. A change is committed first and forgotten then, and what
//! another process read before it is not stored after it. What SQL changes without telling is seen after `ttl_seconds`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use mysql_async::Pool;
use mysql_async::prelude::Queryable;
use nuthatch_fleet::aside::{Aside, AsideSettings};
use nuthatch_fleet::client::{Client, Config, OnDown, Servers};
use nuthatch_fleet::{Placement, PlacementSettings, ServerSpec};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&words))) {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("aside_mariadb: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[String]) -> Result<String, Box<dyn Error>> {
    let [url, servers @ ..] = words else { return Err("expected a database's URL and servers".into()) };
    let shop =
        Shop { database: Pool::from_url(url)?, accounts: Aside::new(connect(servers)?, AsideSettings::default()) };
    let before = shop.name(7).await?;
    shop.rename(7, "Grace").await?;
    let after = shop.name(7).await?;
    let told = format!("{before:?}, and then {after:?}; {:?}", shop.accounts.stats());
    shop.database.disconnect().await?;
    Ok(told)
}

fn connect(servers: &[String]) -> Result<Client, Box<dyn Error>> {
    let parsed = servers.iter().map(|text| ServerSpec::parse(text).map_err(|expected| format!("expected {expected}")));
    let placement = Placement::new(&PlacementSettings::default(), &parsed.collect::<Result<Vec<_>, _>>()?)?;
    // A server that is down is no reason to wait: its accounts are read from the database.
    let config =
        Config { timeout: Duration::from_millis(500), on_down: OnDown::Error, ..Config::new(Servers::from(placement)) };
    Ok(Client::new(config)?)
}

struct Shop {
    database: Pool,
    accounts: Aside,
}

impl Shop {
    /// An account's name; `None`: there is no such account.
    async fn name(&self, id: u32) -> Result<Option<String>, Box<dyn Error>> {
        let read = || async move {
            let mut conn = self.database.get_conn().await?;
            let name: Option<String> = conn.exec_first("SELECT name FROM accounts WHERE id = ?", (id,)).await?;
            Ok::<_, mysql_async::Error>(name.map(String::into_bytes))
        };
        let name = self.accounts.get(format!("account:{id}").as_bytes(), read).await?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    async fn rename(&self, id: u32, name: &str) -> Result<(), Box<dyn Error>> {
        let write = || async move {
            let mut conn = self.database.get_conn().await?;
            conn.exec_drop("UPDATE accounts SET name = ? WHERE id = ?", (name, id)).await
        };
        self.accounts.change(format!("account:{id}").as_bytes(), write).await.map_err(|error| error.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use nuthatch_testkit::Launch;
    use nuthatch_testkit::database::Database;

    use super::*;

    #[test]
    fn a_change_is_seen_and_everything_else_is_read_once() {
        let database = Database::mariadb(&[]);
        database.sql(
            "CREATE TABLE accounts (id INT PRIMARY KEY, name VARCHAR(100)); INSERT INTO accounts VALUES (7, 'Ada')",
        );
        let server = Launch::real_memcached().start();
        let words = [database.url(), server.address().to_string()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = runtime.block_on(run(&words)).unwrap();
        assert!(told.starts_with("Some(\"Ada\"), and then Some(\"Grace\")") && told.contains("loads: 2"), "{told}");
        let told = runtime.block_on(run(&words)).unwrap();
        assert!(told.starts_with("Some(\"Grace\"), and then") && told.contains("hits: 1"), "{told}");
    }
}
