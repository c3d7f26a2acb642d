//! What the two examples of cache-aside share: accounts that are read through memcached servers, whatever database they are in.
//!
//! However many processes miss an account, the database is asked once. A change is committed first and forgotten then, and what
//! another process read before it is not stored after it. What SQL changes without telling is seen after `ttl_seconds`.

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use nuthatch_fleet::aside::{Aside, AsideSettings};
use nuthatch_fleet::client::{Client, Config, OnDown, Servers};
use nuthatch_fleet::{Placement, PlacementSettings, ServerSpec};

/// Where accounts are kept.
pub(crate) trait Database: Sized {
    /// Why it does not do what it is asked.
    type Fault: Error + 'static;

    async fn open(place: &str) -> Result<Self, Self::Fault>;

    /// An account's name; `None`: there is no such account.
    async fn read(&self, id: i32) -> Result<Option<String>, Self::Fault>;

    /// Commits an account's new name.
    async fn write(&self, id: i32, name: &str) -> Result<(), Self::Fault>;

    async fn close(self) -> Result<(), Self::Fault>;
}

struct Shop<D> {
    database: D,
    accounts: Aside,
}

impl<D: Database> Shop<D> {
    async fn name(&self, id: i32) -> Result<Option<String>, Box<dyn Error>> {
        let read = || async move { Ok::<_, D::Fault>(self.database.read(id).await?.map(String::into_bytes)) };
        let name = self.accounts.get(format!("account:{id}").as_bytes(), read).await?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    async fn rename(&self, id: i32, name: &str) -> Result<(), Box<dyn Error>> {
        let write = || self.database.write(id, name);
        self.accounts.change(format!("account:{id}").as_bytes(), write).await.map_err(|error| error.to_string().into())
    }
}

/// Reads an account, renames it and reads it again.
pub(crate) async fn run<D: Database>(words: &[String]) -> Result<String, Box<dyn Error>> {
    let [place, servers @ ..] = words else { return Err("expected where the database is, and servers".into()) };
    let accounts = Aside::new(connect(servers)?, AsideSettings::default());
    let shop = Shop { database: D::open(place).await?, accounts };
    let before = shop.name(7).await?;
    shop.rename(7, "Grace").await?;
    let after = shop.name(7).await?;
    let told = format!("{before:?}, and then {after:?}; {:?}", shop.accounts.stats());
    shop.database.close().await?;
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

/// The whole program: its words are where the database is, and memcached servers.
pub(crate) fn program<D: Database>(name: &str) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let fails = |error: &dyn Display| {
        eprintln!("{name}: {error}");
        ExitCode::FAILURE
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => match runtime.block_on(run::<D>(&words)) {
            Ok(told) => {
                println!("{told}");
                ExitCode::SUCCESS
            }
            Err(error) => fails(&error),
        },
        Err(error) => fails(&error),
    }
}

/// A change is seen, and everything else is read from the database at `place` once.
#[cfg(test)]
pub(crate) fn check<D: Database>(place: String) {
    let server = nuthatch_testkit::Launch::real_memcached().start();
    let words = [place, server.address().to_string()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an event loop");
    let told = runtime.block_on(run::<D>(&words)).expect("an account");
    assert!(told.starts_with("Some(\"Ada\"), and then Some(\"Grace\")") && told.contains("loads: 2"), "{told}");
    let told = runtime.block_on(run::<D>(&words)).expect("an account");
    assert!(told.starts_with("Some(\"Grace\"), and then") && told.contains("hits: 1"), "{told}");
}
