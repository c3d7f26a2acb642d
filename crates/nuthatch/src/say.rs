//! What the program prints: help, the greeting of `nuthatch serve`, the summary of `nuthatch check`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use nuthatch_server::Server;
use nuthatch_server::backend::table;
use nuthatch_server::settings::{
    Address, Bytes, ListenerSettings, Loaded, OWN_VERSION, Protocol, Settings, Sources, VERSION,
};

use crate::failure::Failure;
use crate::serve;

/// `nuthatch help`
pub(crate) const HELP: &str = "\
Nuthatch is a caching server: any memcached client can be pointed at it, web sites put behind it, and SQL tables read through it.

Usage: nuthatch COMMAND

  serve [FLAGS]      start the server; without flags, a memcached of 64 MiB on loopback, port 11211
  demo               start one with a page listener in front of a small wiki, and see a MISS and then a HIT
  bench [FLAGS]      load a memcached-compatible server and measure it
  check FILE         say whether a configuration file is right, and what it would start
  ring FLAGS KEY...  say on which server of a fleet keys live
  rows COMMAND       SQL tables: import a MySQL plugin's mappings, or print the triggers that tell of changes
  help [TOPIC]       serve, demo, bench, ring, rows: every flag; config: a sample file; memcached: taking a memcached's place
  version            print the version

Start one and talk to it:

  nuthatch serve &
  printf 'set greeting 0 60 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' | nc 127.0.0.1 11211

Further:

  nuthatch serve -m 1024 -l 10.0.0.5            1 GiB, reachable from the network
  nuthatch serve -s /run/cache.sock -a 0660     a UNIX socket instead
  nuthatch help config > nuthatch.toml          several pools and listeners come from a file
  nuthatch check nuthatch.toml
  nuthatch serve --config nuthatch.toml
";

/// `nuthatch help check`
pub(crate) const HELP_CHECK: &str = "\
Usage: nuthatch check FILE

Reads a configuration file as `nuthatch serve --config FILE` would, and the certificates it names, opens nothing, and prints what it
would start. The exit status is 0 when the file is right, 2 when it is not, 1 when it or a certificate cannot be read. `nuthatch help
config` prints a sample.
";

/// `nuthatch help memcached`
pub(crate) const HELP_MEMCACHED: &str = "\
Nuthatch takes every flag and -o option of memcached 1.6.45. Started under the name memcached it behaves as one:

  ln -s \"$(command -v nuthatch)\" /usr/local/bin/memcached
  memcached -m 1024 -p 11211 -u nobody -l 127.0.0.1

Under that name it prints nothing, -h and -V answer as scripts expect, and exit statuses are memcached's. Under the name
memcached-debug it has the debugtime command as well.

What differs: it listens on loopback unless -l says otherwise. Options that tune slabs, LRU queues or the hash table are accepted
and have nothing to act on; -v says which. ext_path and proxy_config are refused.
";

/// `-i`
pub(crate) const LICENSE: &str = concat!(
    "Nuthatch is licensed under either of the MIT licence or the Apache License 2.0, at your option.\n\n",
    include_str!("../../../LICENSE-MIT")
);

/// Prints `text`. A reader that has gone away, as `head` does, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system(format!("expected to write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// `nuthatch check FILE`
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let sources = Sources { args: vec!["--config".into(), path.into()], ..Sources::default() };
    let Loaded::Serve(settings, notes) = sources.load()? else { return Ok(()) };
    Server::prepare((*settings).clone()).map_err(serve::failure)?;
    let mut text = format!("{}: right\n\n", path.display());
    text.push_str(&summary(&settings, &settings.listeners));
    for note in &notes {
        let _ = writeln!(text, "\nnote: {}", note.text);
    }
    for sql in &settings.tables {
        let notes = table::check(sql).map_err(|error| Failure::system(format!("table.{}: {error}", sql.rows.name)))?;
        for note in notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
    }
    print(&text)
}

/// One screen that says what is listening where and how to try it. `listeners` have the addresses that were bound.
pub(crate) fn greeting(settings: &Settings, listeners: &[ListenerSettings]) -> String {
    let mut text = format!("Nuthatch {OWN_VERSION}, speaking memcached {VERSION}.\n\n");
    text.push_str(&summary(settings, listeners));
    let plain = |listener: &&ListenerSettings| listener.tls.is_none();
    let speaks_memcached = |listener: &&ListenerSettings| plain(listener) && listener.http.is_none();
    let mut spoken = listeners.iter().filter(speaks_memcached);
    if let Some(target) = spoken.find_map(|listener| netcat_target(&listener.address)) {
        let _ = write!(
            text,
            "\nTry it:\n  printf 'set greeting 0 60 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' | nc {target}\n"
        );
    }
    if let Some(target) = listeners.iter().filter(plain).find_map(curl_target) {
        let _ = write!(
            text,
            "\nA page, of which X-Cache says MISS and then HIT, and how it is forgotten:\n  curl -si http://{target}/ | head -12\n  curl -si -X PURGE http://{target}/\n"
        );
    }
    text.push_str("\nCtrl-C stops it. `nuthatch help` tells more.\n");
    text
}

/// Listeners, pools, routes and the rest in a few lines.
fn summary(settings: &Settings, listeners: &[ListenerSettings]) -> String {
    let mut text = String::new();
    let addresses: Vec<String> = listeners.iter().map(|listener| place(&listener.address)).collect();
    let width = addresses.iter().map(String::len).max().unwrap_or(0);
    for (listener, address) in listeners.iter().zip(&addresses) {
        let tag = listener.tag.as_ref().map_or(String::new(), |tag| format!(", tag {tag}"));
        let tls = listener.tls.as_ref().map_or(String::new(), |tls| format!(", {tls}"));
        let _ = writeln!(
            text,
            "  listening  {address:width$}  {:6}  pool {}{tag}{tls}",
            listener.protocol.word(),
            settings.pools[listener.pool].name
        );
    }
    for pool in &settings.pools {
        let kept = pool.file.as_ref().map_or(String::new(), |file| format!(", kept in {}", file.display()));
        let _ = writeln!(
            text,
            "  pool       {}: {}, items up to {}, {}{kept}",
            pool.name,
            Bytes(pool.memory_bytes),
            Bytes(pool.item_bytes_max as u64),
            if pool.evict { "evicting when full" } else { "refusing when full" }
        );
    }
    for fleet in &settings.fleets {
        let distribution = fleet.placement.distribution.name();
        let sources: Vec<String> = fleet.servers.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  fleet      {}: {distribution} over {}", fleet.name, sources.join(", "));
    }
    for sql in &settings.tables {
        let rows = &sql.rows;
        let (key, value) = (rows.key.join(", "), rows.value.join(", "));
        let _ = writeln!(text, "  table      {}: {key} to {value} of {} in {}", rows.name, rows.table, rows.database);
    }
    for route in &settings.routes {
        let prefix = String::from_utf8_lossy(&route.prefix);
        let _ = writeln!(text, "  route      keys beginning {prefix:?}: pool {}", settings.pools[route.pool].name);
    }
    let _ = writeln!(text, "  workers    {}, up to {} connections", settings.workers, settings.connections_max);
    text
}

fn place(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("tcp {address}"),
        Address::Udp(address) => format!("udp {address}"),
        Address::Unix { path, mode } => format!("unix {} (mode {mode:04o})", path.display()),
    }
}

/// What `curl` takes to reach a page listener.
fn curl_target(listener: &ListenerSettings) -> Option<String> {
    let target = netcat_target(&listener.address).filter(|_| listener.protocol == Protocol::Http)?;
    let (host, port) = target.split_once(' ').filter(|(host, _)| *host != "-U")?;
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// What `nc` takes to reach a listener.
fn netcat_target(address: &Address) -> Option<String> {
    match address {
        Address::Tcp(address) => {
            let ip = match address.ip() {
                ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
                ip if ip.is_unspecified() => "::1".to_owned(),
                ip => ip.to_string(),
            };
            Some(format!("{ip} {}", address.port()))
        }
        Address::Udp(_) => None,
        Address::Unix { path, .. } => Some(format!("-U {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_says_where_and_how_to_try_it() {
        let mut settings = Settings::default();
        settings.listeners.truncate(1);
        let text = greeting(&settings, &settings.listeners);
        for line in [
            "  listening  tcp 127.0.0.1:11211  auto    pool default",
            "  pool       default: 64 MiB, items up to 1 MiB, evicting when full",
            "  workers    4, up to 1024 connections",
            "| nc 127.0.0.1 11211",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.lines().count() < 24, "it is to fit on one screen");
    }

    #[test]
    fn the_transcript_of_the_readme_is_what_is_printed() {
        let settings = Settings::default();
        let printed = greeting(&settings, &settings.listeners);
        assert!(include_str!("../../../README.md").contains(&printed), "{printed}");
    }

    #[test]
    fn netcat_is_told_an_address_it_can_reach() {
        let tcp = |address: &str| netcat_target(&Address::Tcp(address.parse().unwrap())).unwrap();
        assert_eq!(tcp("0.0.0.0:5"), "127.0.0.1 5");
        assert_eq!(tcp("[::]:5"), "::1 5");
        assert_eq!(tcp("10.0.0.1:5"), "10.0.0.1 5");
        assert_eq!(netcat_target(&Address::Unix { path: "/run/x".into(), mode: 0o700 }).unwrap(), "-U /run/x");
    }
}
