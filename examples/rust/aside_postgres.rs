//! Cache-aside before PostgreSQL: accounts are read through memcached servers, and changed in the database.
//!
//! ```console
//! $ memcached -p 11311 &
//! $ createdb shop && psql shop -c "CREATE TABLE accounts (id int PRIMARY KEY, name text); INSERT INTO accounts VALUES (7, 'Ada')"
//! $ cargo run -p nuthatch-fleet --example aside_postgres -- 'host=/run/postgresql dbname=shop user=postgres' 127.0.0.1:11311
//! ```
//!
//! However many processes miss an account, the database is asked once. A change is committed first and forgotten then, and what
//! another process read before it is not stored after it. What SQL changes without telling is seen after `ttl_seconds`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use nuthatch_fleet::aside::{Aside, AsideSettings};
use nuthatch_fleet::client::{Client, Config, OnDown, Servers};
use nuthatch_fleet::{Placement, PlacementSettings, ServerSpec};
use tokio_postgres::NoTls;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&words))) {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("aside_postgres: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[String]) -> Result<String, Box<dyn Error>> {
    let [place, servers @ ..] = words else { return Err("expected where the database is, and servers".into()) };
    let (database, connection) = tokio_postgres::connect(place, NoTls).await?;
    // Does the connection's input and output; whoever asks is told how it ended.
    tokio::spawn(connection);
    let shop = Shop { database, accounts: Aside::new(connect(servers)?, AsideSettings::default()) };
    let before = shop.name(7).await?;
    shop.rename(7, "Grace").await?;
    let after = shop.name(7).await?;
    Ok(format!("{before:?}, and then {after:?}; {:?}", shop.accounts.stats()))
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
    database: tokio_postgres::Client,
    accounts: Aside,
}

impl Shop {
    /// An account's name; `None`: there is no such account.
    async fn name(&self, id: i32) -> Result<Option<String>, Box<dyn Error>> {
        let read = || async move {
            let row = self.database.query_opt("SELECT name FROM accounts WHERE id = $1", &[&id]).await?;
            row.map(|row| row.try_get::<_, String>(0).map(String::into_bytes)).transpose()
        };
        let name = self.accounts.get(format!("account:{id}").as_bytes(), read).await?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    async fn rename(&self, id: i32, name: &str) -> Result<(), Box<dyn Error>> {
        let write =
            || async move { self.database.execute("UPDATE accounts SET name = $1 WHERE id = $2", &[&name, &id]).await };
        let rows =
            self.accounts.change(format!("account:{id}").as_bytes(), write).await.map_err(|error| error.to_string())?;
        if rows == 1 { Ok(()) } else { Err(format!("expected an account {id}").into()) }
    }
}

#[cfg(test)]
mod tests {
    use nuthatch_testkit::Launch;
    use nuthatch_testkit::database::Database;

    use super::*;

    #[test]
    fn a_change_is_seen_and_everything_else_is_read_once() {
        let database = Database::postgres(&[]);
        database.sql("CREATE TABLE accounts (id int PRIMARY KEY, name text); INSERT INTO accounts VALUES (7, 'Ada')");
        let server = Launch::real_memcached().start();
        let place = format!("host={} dbname=test user=root", database.dir().display());
        let words = [place, server.address().to_string()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = runtime.block_on(run(&words)).unwrap();
        assert!(told.starts_with("Some(\"Ada\"), and then Some(\"Grace\")") && told.contains("loads: 2"), "{told}");
        let told = runtime.block_on(run(&words)).unwrap();
        assert!(told.starts_with("Some(\"Grace\"), and then") && told.contains("hits: 1"), "{told}");
    }
}
