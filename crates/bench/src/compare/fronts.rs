//! A fleet of memcached servers for a measurement, and what stands before it: twemproxy, or a Nuthatch with the fleet behind its pool.
//!
//! Everything runs on loopback and is ended with its value. Both kinds place keys by the same ring and hash, so that neither is
//! measured for a cheaper one.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::contenders::{Contenders, Place, Server, Start, Who};
use crate::address::Address;
use crate::failure::Failure;
use crate::launch::{Launched, Scratch, free_port};

/// Servers of a fleet.
pub(super) const SERVERS: usize = 3;

/// The name of the fleet in either configuration file.
const FLEET: &str = "three";

/// Where Debian's package puts twemproxy, which is not on every user's path.
const TWEMPROXY: [&str; 2] = ["nutcracker", "/usr/sbin/nutcracker"];

/// memcached servers that keys are spread over. One may be ended and started again at its address.
pub(super) struct Fleet {
    servers: Vec<Option<Server>>,
    addresses: Vec<Address>,
    start: Start,
}

impl Fleet {
    pub(super) fn start(contenders: &Contenders, start: Start) -> Result<Fleet, Failure> {
        let servers =
            (0..SERVERS).map(|_| contenders.start(Who::Memcached, start)).collect::<Result<Vec<_>, Failure>>()?;
        let addresses = servers.iter().map(|server| server.launched.address.clone()).collect();
        Ok(Fleet { servers: servers.into_iter().map(Some).collect(), addresses, start })
    }

    /// Its first server, for a load that goes to it directly.
    pub(super) fn first(&self) -> Result<&Server, Failure> {
        self.servers[0].as_ref().ok_or_else(|| Failure::run("bench: expected the first server of the fleet to run"))
    }

    pub(super) fn kill_first(&mut self) {
        self.servers[0] = None;
    }

    /// Starts the first server again, empty, where it was.
    pub(super) fn revive_first(&mut self, contenders: &Contenders) -> Result<(), Failure> {
        self.servers[0] = Some(contenders.start_at(Who::Memcached, self.start, self.addresses[0].clone())?);
        Ok(())
    }
}

/// How what stands before a fleet treats it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// How long the tier's copies live; 0 in the router.
    pub(super) copies_seconds: u32,
    /// Whether keys of a server that is out go to another.
    pub(super) goes_on: bool,
}

/// Whether twemproxy is installed, and by which name it is run.
pub(super) fn twemproxy() -> Option<&'static str> {
    TWEMPROXY.into_iter().find(|program| {
        let mut asked = Command::new(program);
        asked.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    })
}

/// What stands before a fleet, running.
pub(super) struct Front {
    pub(super) server: Server,
}

impl Front {
    /// Starts `who`, which is twemproxy, the router or the tier.
    pub(super) fn start(
        contenders: &Contenders,
        who: Who,
        place: Place,
        fleet: &Fleet,
        ways: Ways,
    ) -> Result<Front, Failure> {
        let scratch = Scratch::new()?;
        let address = free_port()?;
        let file = scratch.path().join(file_name(who));
        fs::write(&file, configuration(who, &address, &fleet.addresses, ways))
            .map_err(|error| Failure::run(format!("bench: expected to write {}: {error}", file.display())))?;
        let program = match who {
            Who::Twemproxy => twemproxy().unwrap_or(TWEMPROXY[0]).to_owned(),
            _ => contenders.nuthatch().display().to_string(),
        };
        let Address::Tcp(stats) = free_port()? else { return Err(Failure::run("bench: expected a free TCP port")) };
        let stats_port = stats.rsplit(':').next().unwrap_or_default();
        let mut words = place.words();
        words.extend(command(who, &program, &file.display().to_string(), stats_port));
        let launched = Launched::start(words, address)?;
        Ok(Front { server: Server::new(launched, scratch) })
    }

    /// What the counter `name` of the pool stands at.
    pub(super) fn counter(&self, name: &str) -> Result<u64, Failure> {
        let address = self.server.launched.address.to_string();
        let failed =
            |error: &dyn std::fmt::Display| Failure::run(format!("bench: expected {name} from {address}: {error}"));
        let mut stream = TcpStream::connect(&address).map_err(|error| failed(&error))?;
        stream.write_all(b"stats pools\r\nquit\r\n").map_err(|error| failed(&error))?;
        let wanted = format!("STAT default:{name} ");
        for line in BufReader::new(stream).lines() {
            if let Some(number) = line.map_err(|error| failed(&error))?.strip_prefix(&wanted) {
                return number.trim_end().parse().map_err(|error: std::num::ParseIntError| failed(&error));
            }
        }
        Err(failed(&"`stats pools` does not show it"))
    }

    /// Keys answered by copies and keys asked for, since the start.
    pub(super) fn local(&self) -> Result<[u64; 2], Failure> {
        let hits = self.counter("tier_hits")?;
        Ok([hits, hits + self.counter("tier_fetches")? + self.counter("tier_coalesced")?])
    }
}

/// What the configuration file is called.
fn file_name(who: Who) -> &'static str {
    match who {
        Who::Twemproxy => "twemproxy.yml",
        Who::Router => "router.toml",
        _ => "tier.toml",
    }
}

fn command(who: Who, program: &str, file: &str, stats_port: &str) -> Vec<String> {
    let line = match who {
        Who::Twemproxy => {
            let pid_file = format!("{file}.pid");
            format!("{program} -c {file} -v 0 -o /dev/null -p {pid_file} -a 127.0.0.1 -s {stats_port}")
        }
        _ => format!("{program} serve --config {file}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// The command as the page shows it.
pub(super) fn shown(who: Who, place: Place) -> String {
    let program = if who == Who::Twemproxy { TWEMPROXY[0] } else { "nuthatch" };
    let mut words = place.words();
    words.extend(command(who, program, file_name(who), "PORT"));
    words.join(" ")
}

/// The configuration files as the page shows them.
pub(super) fn shown_files(who: &[Who], ways: impl Fn(Who) -> Ways) -> String {
    let tcp = |port: &str| Address::Tcp(format!("127.0.0.1:{port}"));
    let servers: Vec<Address> = (1..=SERVERS).map(|number| tcp(&format!("PORT{number}"))).collect();
    let mut text = String::new();
    for &who in who.iter().filter(|who| matches!(who, Who::Twemproxy | Who::Router | Who::Tier)) {
        let name = file_name(who);
        let _ = write!(text, "\n\n`{name}`:\n\n```{}\n", name.rsplit('.').next().unwrap_or_default());
        text += &configuration(who, &tcp("PORT"), &servers, ways(who));
        text += "```";
    }
    text
}

fn configuration(who: Who, address: &Address, servers: &[Address], ways: Ways) -> String {
    let Ways { copies_seconds, goes_on } = ways;
    if who == Who::Twemproxy {
        let servers: String = servers.iter().map(|server| format!("    - {server}:1\n")).collect();
        return format!(
            "{FLEET}:\n  listen: {address}\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 500\n  \
             auto_eject_hosts: {goes_on}\n  server_retry_timeout: 1000\n  server_failure_limit: 1\n  preconnect: true\n  \
             servers:\n{servers}"
        );
    }
    let servers = servers.iter().map(|server| format!("\"{server}\"")).collect::<Vec<_>>().join(", ");
    // Only meta tells how long items have to live, which copies must not outlive; without copies text is all that is needed.
    let protocol = if who == Who::Router { "text" } else { "meta" };
    let on_failure = if goes_on { "next" } else { "miss" };
    format!(
        "[server]\nworkers = 1\n\n[pool.default]\nbackend = \"{FLEET}\"\nttl_max = {copies_seconds}\n\n[fleet.{FLEET}]\n\
         servers = [{servers}]\ndistribution = \"twemproxy\"\nhash = \"fnv1a_64\"\nprotocol = \"{protocol}\"\n\
         connect_timeout = \"200ms\"\nread_timeout = \"500ms\"\ntimeout = \"500ms\"\nfailure_limit = 1\n\
         retry_timeout = \"1s\"\non_failure = \"{on_failure}\"\n\n[[listen]]\nmemcached = \"{address}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_described_alike_to_both() {
        let ways = Ways { copies_seconds: 5, goes_on: true };
        let text = shown_files(&[Who::Memcached, Who::Twemproxy, Who::Tier], |_| ways);
        assert!(text.contains("    - 127.0.0.1:PORT3:1\n") && text.contains("\"127.0.0.1:PORT3\"]"), "{text}");
        assert!(text.contains("auto_eject_hosts: true") && text.contains("on_failure = \"next\""), "{text}");
        assert_eq!(text.matches("fnv1a_64").count(), 2);
        assert_eq!(shown(Who::Tier, Place::Core(1)), "taskset -c 1 nuthatch serve --config tier.toml");
        assert!(shown(Who::Twemproxy, Place::Anywhere).starts_with("nutcracker -c twemproxy.yml "));
    }
}
