//! A report that many processes want and that takes long to make: it is made once and shared by a fleet of memcached servers.
//!
//! ```console
//! $ memcached -p 11311 & memcached -p 11312 &
//! $ cargo run -p nuthatch-fleet --example shared_report -- 127.0.0.1:11311 "127.0.0.1:11312 weight=2"
//! ```
//!
//! The arguments are servers, written as in a Nuthatch's configuration file. Keys are placed as php-memcached does it with
//! `OPT_LIBKETAMA_COMPATIBLE`, so PHP finds the report too. Run it twice: the second time the report is there.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use nuthatch_fleet::client::{Client, Config, OnDown, Servers, Want};
use nuthatch_fleet::{Placement, PlacementSettings, ServerSpec};

/// How long a report is good, in seconds.
const REPORT_SECONDS: i32 = 60;
/// How long one who makes it may take before another may try, in seconds.
const LOCK_SECONDS: i32 = 10;
/// How often those who wait look whether it is there.
const LOOK: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&servers)));
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("shared_report: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(servers: &[String]) -> Result<String, Box<dyn Error>> {
    let fleet = connect(servers)?;
    let made = report(&fleet, "report:birds", || "three nuthatches, one treecreeper".to_owned()).await?;
    Ok(format!("{} ({})", made.text, if made.here { "made here" } else { "from the fleet" }))
}

/// A client for the servers. One serves all tasks of a runtime; no connection is opened before it is needed.
fn connect(servers: &[String]) -> Result<Client, Box<dyn Error>> {
    let servers: Vec<ServerSpec> = servers
        .iter()
        .map(|text| ServerSpec::parse(text).map_err(|expected| format!("expected {expected}, not {text}")))
        .collect::<Result<_, _>>()?;
    if servers.is_empty() {
        return Err("expected servers, as in `shared_report 127.0.0.1:11211 127.0.0.1:11212`".into());
    }
    let placement = Placement::new(&PlacementSettings::default(), &servers)?;
    Ok(Client::new(Config {
        // A cache that is slow is of no use: nobody waits longer than this, whatever the servers do.
        timeout: Duration::from_millis(500),
        // Keys of a server that is down are misses, so that the program goes on without it.
        on_down: OnDown::Miss,
        ..Config::new(Servers::from(placement))
    })?)
}

struct Report {
    text: String,
    /// Whether this process made it.
    here: bool,
}

/// The report of that key: from the fleet, or made by `make` and stored. However many ask, one of them makes it: whose `add` of the
/// lock was stored.
async fn report(fleet: &Client, key: &str, make: impl FnOnce() -> String) -> Result<Report, Box<dyn Error>> {
    let lock = format!("lock:{key}");
    // One who died while making it holds the others up for no longer than its lock lives.
    for _ in 0..LOCK_SECONDS as u128 * 1000 / LOOK.as_millis() + 1 {
        if let Some(item) = fleet.get(key.as_bytes(), Want::VALUE).await? {
            return Ok(Report { text: String::from_utf8_lossy(&item.value).into_owned(), here: false });
        }
        if fleet.add(lock.as_bytes(), b"", 0, LOCK_SECONDS).await? {
            let text = make();
            fleet.set(key.as_bytes(), text.as_bytes(), 0, REPORT_SECONDS).await?;
            fleet.delete(lock.as_bytes()).await?;
            return Ok(Report { text, here: true });
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(format!("expected {key} to be made by the holder of {lock} within {LOCK_SECONDS} s").into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use nuthatch_testkit::Launch;

    use super::*;

    #[test]
    fn a_report_that_twenty_want_is_made_once() {
        let running: Vec<_> = (0..2).map(|_| Launch::real_memcached().start()).collect();
        let servers: Vec<String> = running.iter().map(|server| server.address().to_string()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fleet = connect(&servers).unwrap();
            let made = Cell::new(0);
            let wanted = (0..20).map(|_| {
                report(&fleet, "report:test", || {
                    made.set(made.get() + 1);
                    "text".to_owned()
                })
            });
            for report in futures_util::future::join_all(wanted).await {
                assert_eq!(report.unwrap().text, "text");
            }
            assert_eq!(made.get(), 1);
            assert!(run(&servers).await.unwrap().ends_with("(made here)"));
            assert!(run(&servers).await.unwrap().ends_with("(from the fleet)"));
        });
    }

    #[test]
    fn servers_that_are_none_are_told_in_a_sentence() {
        let said = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            connect(&words).err().unwrap().to_string()
        };
        assert!(said(&[]).starts_with("expected servers, as in"));
        assert!(said(&["here:none"]).starts_with("expected "));
    }
}
