//! What a page from the cache costs a cache in front of a web site, beside nginx, Varnish and Squid, and what a page that many miss
//! together costs the web site.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

use super::Settings;
use super::contenders::{Contenders, Place, Server, Who};
use super::measure::{Bench, Rounds, pick, ratio, take_turns};
use super::origin::{Origin, SLOW};
use super::write::{Bar, Chart, Row, Summary, Table};
use crate::failure::Failure;
use crate::http::{Connection, Url};
use crate::launch::{Launched, Scratch, free_port};
use crate::process::Usage;

/// Bytes of the pages.
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

/// The one that the bars are for.
const BARRED_BYTES: usize = 10_000;

/// What a hit may cost beside each other's.
const BARS: [(Who, f64); 3] = [(Who::Nginx, 0.70), (Who::Varnish, 0.50), (Who::Squid, 0.27)];

/// Connections of the load, and clients that miss together.
const CONNECTIONS: usize = 50;

/// Files on this are in memory.
const TMPFS: &str = "/dev/shm";

/// The programs, where Debian puts them, and what their configuration files are called.
const PROGRAMS: [(Who, &[&str], &str); 3] = [
    (Who::Nginx, &["nginx", "/usr/sbin/nginx"], "nginx.conf"),
    (Who::Varnish, &["varnishd", "/usr/sbin/varnishd"], "default.vcl"),
    (Who::Squid, &["squid", "/usr/sbin/squid"], "squid.conf"),
];

/// The one of a program's names that can be run.
fn program(who: Who) -> Option<&'static str> {
    let (_, names, _) = PROGRAMS.iter().find(|(other, ..)| *other == who)?;
    names.iter().copied().find(|name| is_there(name, if who == Who::Varnish { "-V" } else { "-v" }))
}

fn is_there(program: &str, flag: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg(flag).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Who is installed, Nuthatch first.
fn who_is_there(bench: &Bench) -> Vec<Who> {
    let mut who = vec![Who::Nuthatch];
    for (other, ..) in PROGRAMS {
        match program(other) {
            Some(_) => who.push(other),
            None => bench.say(&format!("pages: {} left out, it is not installed", other.word())),
        }
    }
    who
}

/// A cache in front of `origin`.
struct Cache {
    server: Server,
    /// Where nginx keeps its pages.
    _pages: Option<tmpfs::Directory>,
}

impl Cache {
    fn start(contenders: &Contenders, who: Who, origin: SocketAddr) -> Result<Cache, Failure> {
        let scratch = Scratch::new()?;
        let address = free_port()?;
        let pages = (who == Who::Nginx).then(tmpfs::Directory::new).transpose()?;
        let pages_at = pages.as_ref().map_or(scratch.path(), tmpfs::Directory::path);
        let file = scratch.path().join(file_name(who));
        let text = configuration(who, &address.to_string(), &origin.to_string(), scratch.path(), pages_at);
        fs::write(&file, text)
            .map_err(|error| Failure::run(format!("bench: expected to write {}: {error}", file.display())))?;
        let program = match who {
            Who::Nuthatch => contenders.nuthatch().display().to_string(),
            _ => program(who).unwrap_or("").to_owned(),
        };
        let mut words = PLACE.words();
        words.extend(command(who, &program, &file.display().to_string(), &address.to_string(), scratch.path()));
        let launched = Launched::start(words, address)?;
        Ok(Cache { server: Server::new(launched, scratch), _pages: pages })
    }

    fn url(&self, path: &str) -> Result<Url, Failure> {
        Url::parse(&format!("http://{}{path}", self.server.launched.address)).map_err(Failure::run)
    }

    /// CPU time of the server so far, of all its processes.
    fn cpu_us(&self) -> Result<f64, Failure> {
        Ok(Usage::of_family(self.server.launched.pid())?.cpu_ns as f64 / 1e3)
    }
}

/// Everything shares one core, and nobody interrupts another.
const PLACE: Place = Place::Batch(0);

fn file_name(who: Who) -> &'static str {
    PROGRAMS.iter().find(|(other, ..)| *other == who).map_or("nuthatch.toml", |(_, _, name)| name)
}

fn command(who: Who, program: &str, file: &str, address: &str, scratch: &Path) -> Vec<String> {
    let place = scratch.display();
    let line = match who {
        Who::Nginx => format!("{program} -p {place} -c {file}"),
        // Its manager and the process that serves stay who started them, so that both can be measured.
        Who::Varnish => format!(
            "{program} -F -j none -n {place}/varnish -f {file} -a {address} -T none -s malloc,256m -p thread_pools=1"
        ),
        Who::Squid => format!("{program} -N -f {file}"),
        _ => format!("{program} serve --config {file}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

fn configuration(who: Who, address: &str, origin: &str, scratch: &Path, pages: &Path) -> String {
    let (place, pages) = (scratch.display(), pages.display());
    match who {
        Who::Nginx => format!(
            "daemon off;\nmaster_process off;\nworker_processes 1;\npid {place}/nginx.pid;\nerror_log {place}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000000;\n  \
             open_file_cache max=1000 inactive=1h;\n  open_file_cache_valid 1h;\n  \
             proxy_cache_path {pages}/cache keys_zone=pages:10m inactive=1h use_temp_path=off;\n  \
             client_body_temp_path {place}/body;\n  proxy_temp_path {pages}/temp;\n  fastcgi_temp_path {place}/fastcgi;\n  \
             uwsgi_temp_path {place}/uwsgi;\n  scgi_temp_path {place}/scgi;\n  \
             server {{\n    listen {address};\n    location / {{\n      proxy_pass http://{origin};\n      \
             proxy_cache pages;\n      proxy_cache_lock on;\n      proxy_http_version 1.1;\n      \
             proxy_set_header Connection \"\";\n      add_header X-Cache $upstream_cache_status;\n    }}\n  }}\n}}\n"
        ),
        Who::Varnish => {
            let (host, port) = origin.rsplit_once(':').unwrap_or((origin, "80"));
            format!("vcl 4.1;\n\nbackend default {{\n  .host = \"{host}\";\n  .port = \"{port}\";\n}}\n")
        }
        Who::Squid => {
            let (host, port) = origin.rsplit_once(':').unwrap_or((origin, "80"));
            format!(
                "http_port {address} accel defaultsite=bench vhost\n\
                 cache_peer {host} parent {port} 0 no-query originserver name=origin\n\
                 http_access allow all\ncache_mem 256 MB\nmaximum_object_size_in_memory 1 MB\nmemory_cache_mode always\n\
                 collapsed_forwarding on\naccess_log none\ncache_log /dev/null\ncache_store_log none\npid_filename none\n\
                 netdb_filename none\ncoredump_dir none\nshutdown_lifetime 0 seconds\nworkers 1\n"
            )
        }
        _ => format!(
            "[server]\nworkers = 1\n\n[pool.pages]\nmemory = \"256MiB\"\n\n[[listen]]\nhttp = \"{address}\"\npool = \"pages\"\n\
             origin = \"http://{origin}\"\n"
        ),
    }
}

/// The configuration files as the page shows them.
fn shown_files(who: &[Who]) -> String {
    let (place, pages) = (Path::new("DIRECTORY"), Path::new("/dev/shm/DIRECTORY"));
    let mut text = String::new();
    for &who in who {
        let file = configuration(who, "127.0.0.1:PORT", "127.0.0.1:ORIGIN", place, pages);
        text += &format!("\n\n`{}`:\n\n```\n{file}```", file_name(who));
    }
    text
}

fn commands(table: &mut Table, who: &[Who]) {
    for &who in who {
        let name = match who {
            Who::Nuthatch => "nuthatch",
            _ => program(who).and_then(|name| name.rsplit('/').next()).unwrap_or_default(),
        };
        let words = command(who, name, file_name(who), "127.0.0.1:PORT", Path::new("DIRECTORY"));
        table.command(format!("{} {}", PLACE.words().join(" "), words.join(" ")));
    }
}

/// One run of `wrk`.
#[derive(Clone, Copy)]
struct Run {
    cpu_us: f64,
    requests_per_second: f64,
}

/// The load, in words.
fn load(url: &str, seconds: f64) -> Vec<String> {
    let seconds = seconds.ceil().max(1.0);
    let mut words = PLACE.words();
    words.extend(format!("wrk -t1 -c{CONNECTIONS} -d{seconds}s {url}").split(' ').map(str::to_owned));
    words
}

/// CPU time of a page that is there, and how many a second there are where the load has its share of the core.
pub(super) fn pages(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    if !is_there("taskset", "--version") || wrk_is_missing() {
        bench.say("pages: left out, wrk is not installed");
        return Ok(None);
    }
    let who = who_is_there(bench);
    let origin = Origin::start()?;
    let mut table = Table::new(
        "Pages from the cache",
        &format!(
            "Microseconds of the server's CPU time for each page that is in the cache, and pages a second, by the length of their \
             bodies: {CONNECTIONS} connections that stay open, one worker, wrk on the same core and nobody interrupting another. \
             nginx has its cache on tmpfs and keeps its files open; no server writes an access log. Ratios of less than 1 are good \
             for microseconds, of more for pages a second.{}",
            shown_files(&who)
        ),
        who.clone(),
    );
    table.compared = (Who::Nuthatch, Who::Nginx);
    table.chart = Some(Chart { name: "pages", caption: ": microseconds of CPU time for each, less is better" });
    commands(&mut table, &who);
    for bytes in SIZES {
        let name = format!("{} kB", bytes / 1000);
        bench.say(&format!("pages: {name}"));
        let path = format!("/{bytes}/page");
        let mut seen = 0;
        let runs: Vec<Rounds<Run>> = take_turns(&who, settings.rounds, |who| {
            let cache = Cache::start(contenders, who, origin.address)?;
            let run = hits(&cache, &path, settings.seconds)?;
            // One to fill it. More would mean that it was not the cache that was measured.
            let asked = origin.asked(&path);
            if asked > seen + 2 {
                let name = who.word();
                return Err(Failure::run(format!(
                    "bench: expected {name} to serve {path} from its cache, the origin was asked {} times",
                    asked - seen
                )));
            }
            seen = asked;
            Ok(run)
        })?;
        table.command(load(&format!("http://127.0.0.1:PORT{path}"), settings.seconds).join(" "));
        let costs = pick(&runs, |run| run.cpu_us);
        if bytes == BARRED_BYTES {
            for (other, bar) in BARS {
                if let Some(ratio) = ratio(&costs, Who::Nuthatch, other) {
                    let name = format!("{name}: µs of nuthatch / {}", other.word());
                    table.summary.push(Summary { name, ratio, bar: Bar::AtMost(bar) });
                }
            }
        }
        table.rows.push(Row::new(&format!("{name}: µs of CPU for each"), 2, costs));
        let row = Row::new(&format!("{name}: pages/s"), 0, pick(&runs, |run| run.requests_per_second));
        table.rows.push(Row { charted: false, ..row });
    }
    Ok(Some(table))
}

/// `wrk -v` says its version and ends with 1.
fn wrk_is_missing() -> bool {
    let mut asked = Command::new("wrk");
    asked.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_err()
}

/// Fills the cache with a page, and has it asked for again and again.
fn hits(cache: &Cache, path: &str, seconds: f64) -> Result<Run, Failure> {
    let url = cache.url(path)?;
    let mut connection = Connection::open(&url).map_err(Failure::run)?;
    // Twice, so that the second comes out of the cache and everything that is done once is done.
    for _ in 0..2 {
        let answer = connection.get(&url).map_err(|error| Failure::run(format!("bench: {error}")))?;
        if answer.status != 200 {
            return Err(Failure::run(format!("bench: expected {url}, got status {}", answer.status)));
        }
    }
    let words = load(&url.to_string(), seconds);
    let before = cache.cpu_us()?;
    let output = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::run(format!("bench: expected to run `{}`: {error}", words.join(" "))))?;
    let after = cache.cpu_us()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (requests, requests_per_second) = understood(&said).ok_or_else(|| {
        Failure::run(format!("bench: expected answers to all requests of `{}`, it said: {said}", words.join(" ")))
    })?;
    Ok(Run { cpu_us: (after - before) / requests, requests_per_second })
}

/// Requests, and how many a second, of what `wrk` says; `None` if not all were answered as they should.
fn understood(said: &str) -> Option<(f64, f64)> {
    if said.contains("Non-2xx") || said.contains("Socket errors") {
        return None;
    }
    let requests = said.lines().find(|line| line.contains(" requests in "))?.split_whitespace().next()?.parse().ok()?;
    let rate = said.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?.trim().parse().ok()?;
    (requests > 0.0).then_some((requests, rate))
}

/// Requests to the origin for a page that many clients want and that is not there.
pub(super) fn together(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    let who = who_is_there(bench);
    let origin = Origin::start()?;
    let mut table = Table::new(
        "Pages that are missed together",
        "Requests that an origin gets which takes 0.3 s for a page, when so many clients ask for it within that time and it is not in \
         the cache. nginx has `proxy_cache_lock` and Squid `collapsed_forwarding` on, which by default they have not; the files are \
         those above.",
        who.clone(),
    );
    table.compared = (Who::Nuthatch, Who::Nginx);
    commands(&mut table, &who);
    for clients in [10, CONNECTIONS] {
        bench.say(&format!("pages: {clients} clients miss together"));
        let mut number = 0;
        let asked: Vec<Rounds<f64>> = take_turns(&who, settings.rounds, |who| {
            let cache = Cache::start(contenders, who, origin.address)?;
            number += 1;
            let path = format!("/10000/{number}/{clients}/{SLOW}");
            miss_together(&cache.url(&path)?, clients)?;
            Ok(origin.asked(&path) as f64)
        })?;
        let row = Row::new(&format!("{clients} clients"), 0, asked);
        table.rows.push(Row { bar: Some(Bar::AtMost(1.0)), ..row });
    }
    Ok(Some(table))
}

/// Has so many clients, all connected before, ask for one page.
fn miss_together(url: &Url, clients: usize) -> Result<(), Failure> {
    let barrier = Barrier::new(clients);
    let outcomes: Vec<Result<u16, String>> = thread::scope(|scope| {
        let ask = || {
            let connection = Connection::open(url);
            barrier.wait();
            connection?.get(url).map(|answer| answer.status)
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned())))
            .collect()
    });
    for outcome in outcomes {
        match outcome {
            Ok(200) => {}
            Ok(status) => return Err(Failure::run(format!("bench: expected {url}, got status {status}"))),
            Err(error) => return Err(Failure::run(format!("bench: {error}"))),
        }
    }
    Ok(())
}

/// A directory whose files are in memory.
mod tmpfs {
    use std::path::{Path, PathBuf};
    use std::{fs, process};

    use super::{Failure, TMPFS};

    pub(super) struct Directory(PathBuf);

    impl Directory {
        pub(super) fn new() -> Result<Directory, Failure> {
            use std::sync::atomic::{AtomicU32, Ordering};
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("nuthatch-bench-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = Path::new(TMPFS).join(name);
            fs::create_dir(&path)
                .and_then(|()| {
                    // nginx's worker is another user where it is started by root.
                    use std::os::unix::fs::PermissionsExt;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o777))
                })
                .map_err(|error| Failure::run(format!("bench: expected to make {}: {error}", path.display())))?;
            Ok(Directory(path))
        }

        pub(super) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_counts_only_if_all_is_well() {
        let said =
            "Running 1s test\n  400 requests in 1.00s, 4.07MB read\nRequests/sec:    398.85\nTransfer/sec: 4MB\n";
        assert_eq!(understood(said), Some((400.0, 398.85)));
        assert_eq!(understood(&format!("{said}  Non-2xx or 3xx responses: 3\n")), None);
        assert_eq!(understood("unable to connect"), None);
    }

    #[test]
    fn every_server_is_told_where_the_origin_is() {
        let text = shown_files(&[Who::Nuthatch, Who::Nginx, Who::Varnish, Who::Squid]);
        assert_eq!(text.matches("ORIGIN").count(), 4);
        for word in ["open_file_cache max", "access_log off", "/dev/shm/DIRECTORY/cache", "cache_mem 256 MB"] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn those_who_ask_together_are_counted_at_the_origin() {
        let origin = Origin::start().unwrap();
        let url = Url::parse(&format!("http://{}/5/x", origin.address)).unwrap();
        miss_together(&url, 4).unwrap();
        assert_eq!((origin.asked("/5/x"), origin.asked("/5/y")), (4, 0));
    }
}
