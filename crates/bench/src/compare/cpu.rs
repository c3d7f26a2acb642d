//! What requests cost the server, how fast and how promptly it answers them, and how soon after its start.

use std::thread::available_parallelism;

use super::Settings;
use super::contenders::{Contenders, Place, Start, Who};
use super::measure::{Bench, Rounds, Samples, in_turns, pick, words};
use super::write::{Bar, Chart, Row, Table};
use crate::bins;
use crate::failure::Failure;
use crate::report::Report;

/// Starts are short and vary: more of them than of other rounds.
const START_ROUNDS_FACTOR: usize = 4;

/// A load of the table of CPU times.
struct Load {
    name: &'static str,
    flags: &'static str,
    is_unix: bool,
    per_key: bool,
    /// At most this part of memcached's CPU time.
    bar: f64,
    /// At most this many times the bare loop's.
    limit: Option<f64>,
}

const LOADS: &[Load] = &[
    Load {
        name: "get, 1 connection",
        flags: "-m 0:1 -c 1",
        is_unix: false,
        per_key: false,
        bar: 0.85,
        limit: Some(1.10),
    },
    Load {
        name: "get, 50 connections",
        flags: "-m 0:1 -c 50",
        is_unix: false,
        per_key: false,
        bar: 0.92,
        limit: Some(1.10),
    },
    Load {
        name: "get, 50 connections, 16 in one send",
        flags: "-m 0:1 -c 50 -d 16",
        is_unix: false,
        per_key: false,
        bar: 0.70,
        limit: Some(1.35),
    },
    Load {
        name: "50-key get, 20 connections, per key",
        flags: "-m 0:1 -c 20 -w 50",
        is_unix: false,
        per_key: true,
        bar: 0.45,
        limit: None,
    },
    Load {
        name: "set, 50 connections, 16 in one send",
        flags: "-m 1:0 -c 50 -d 16",
        is_unix: false,
        per_key: false,
        bar: 0.80,
        limit: None,
    },
    Load {
        name: "1 set to 10 gets, 50 connections, TCP",
        flags: "-m 1:10 -c 50",
        is_unix: false,
        per_key: false,
        bar: 0.92,
        limit: None,
    },
    Load {
        name: "1 set to 10 gets, 50 connections, UNIX socket",
        flags: "-m 1:10 -c 50",
        is_unix: true,
        per_key: false,
        bar: 0.92,
        limit: None,
    },
];

/// Up to this version memcached writes once for each answer of a pipeline, and the bar for pipelined gets is another.
const LAST_WRITING_EACH: [u32; 3] = [1, 6, 18];
const PIPELINED_BAR_WRITING_EACH: f64 = 0.16;

fn bar(load: &Load, memcached_version: &str) -> f64 {
    let mut version = [u32::MAX; 3];
    for (to, part) in version.iter_mut().zip(memcached_version.split(['.', '-'])) {
        *to = part.parse().unwrap_or(u32::MAX);
    }
    let is_pipelined_get = load.flags.starts_with("-m 0:1") && load.flags.contains("-d 16");
    if is_pipelined_get && version <= LAST_WRITING_EACH { PIPELINED_BAR_WRITING_EACH } else { load.bar }
}

pub(super) fn timed(settings: &Settings, flags: &str) -> String {
    let warmup_ms = (settings.seconds * 1000.0 / 3.0).clamp(1.0, 1000.0);
    format!("{flags} -T {} --warmup {warmup_ms:.0}ms -q", settings.seconds)
}

pub(super) fn server_us(report: &Report, per_key: bool) -> f64 {
    report.server.map_or(f64::NAN, |server| if per_key { server.cpu_us_per_key } else { server.cpu_us_per_request })
}

/// Server CPU time for each request, server and load on one core.
pub(super) fn cpu(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    let who = contenders.all();
    let mut table = Table::new(
        "Server CPU per request",
        "Microseconds of the server's CPU time for each request, values of 100 bytes, keys of 24, one worker. Server and load \
         share one core and neither interrupts the other, which is what makes the figure repeat. The bare loop is a hash map behind \
         tokio, the bare calls are the same behind an epoll: a wait, a receive and a send for each request that comes alone.",
        who.clone(),
    );
    table.chart = Some(Chart { name: "cpu", caption: ": microseconds, less is better" });
    for load in LOADS {
        bench.say(&format!("cpu: {}", load.name));
        let start = Start { is_unix: load.is_unix, ..Start::on_one_core() };
        let flags = timed(settings, load.flags);
        let reports =
            in_turns(contenders, &who, start, settings.rounds, |server| bench.load(server, start.place, &flags))?;
        let mut row = Row::new(load.name, 2, pick(&reports, |report| server_us(report, load.per_key)));
        row.bar = Some(Bar::AtMost(bar(load, &contenders.memcached_version)));
        row.limit = load.limit;
        let least = (Who::Calls, Who::Memcached);
        let held = (load.limit.is_some() && who.contains(&least.0)).then(|| Row {
            name: format!("{}: {} / {}", load.name, least.0.word(), least.1.word()),
            compared: Some(least),
            charted: false,
            bar: None,
            limit: None,
            ..row.clone()
        });
        table.rows.extend([row].into_iter().chain(held));
        if load.name.ends_with("UNIX socket") || load.name == LOADS[0].name {
            table.servers(contenders, start);
        }
        table.load(start.place, &flags, start.is_unix);
    }
    Ok(Some(table))
}

fn two_cores(bench: &Bench, part: &str) -> bool {
    let enough = available_parallelism().is_ok_and(|cores| cores.get() >= 2);
    if !enough {
        bench.say(&format!("{part}: left out, it needs two cores"));
    }
    enough
}

/// Requests in a second and their 99th percentile, server and load on a core each, then two threads each.
pub(super) fn throughput(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    if !two_cores(bench, "throughput") {
        return Ok(None);
    }
    let who = contenders.both().to_vec();
    let mut table = Table::new(
        "Throughput",
        "Thousands of requests in a second, closed loop, and the 99th percentile of their latency in microseconds. First a \
         server with one worker on one core and the load on another, then both with two threads wherever the system puts them.",
        who.clone(),
    );
    for (workers, place, load_place) in [(1, Place::Core(0), Place::Core(1)), (2, Place::Anywhere, Place::Anywhere)] {
        let start = Start { place, workers, ..Start::on_one_core() };
        table.servers(contenders, start);
        for (name, flags) in [
            ("get, 50 connections", "-m 0:1 -c 50"),
            ("get, 50 connections, 16 in one send", "-m 0:1 -c 50 -d 16"),
            ("1 set to 10 gets, 50 connections", "-m 1:10 -c 50"),
        ] {
            let name = format!("{name}, {workers} worker{}", if workers == 1 { "" } else { "s" });
            bench.say(&format!("throughput: {name}"));
            let flags = timed(settings, &format!("{flags} -t {workers}"));
            let reports =
                in_turns(contenders, &who, start, settings.rounds, |server| bench.load(server, load_place, &flags))?;
            table.rows.push(Row::new(&name, 1, pick(&reports, |report| report.requests_per_second / 1e3)));
            table.rows.push(Row::new(&format!("{name}: p99"), 0, pick(&reports, |report| report.latency_us.p99)));
            table.load(load_place, &flags, false);
        }
    }
    Ok(Some(table))
}

/// Latency at seven tenths of what memcached can do, counted from when each request was due.
pub(super) fn latency(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    if !two_cores(bench, "latency") {
        return Ok(None);
    }
    let start = Start { place: Place::Core(0), ..Start::on_one_core() };
    let mix = "-m 1:10 -c 50";
    bench.say("latency: memcached's highest throughput");
    let closed = timed(settings, mix);
    let highest = in_turns(contenders, &[Who::Memcached], start, settings.rounds, |server| {
        bench.load(server, Place::Core(1), &closed)
    })?;
    let rate = (pick(&highest, |report| report.requests_per_second)[0].median() * 0.7).round();

    bench.say(&format!("latency: open loop at {rate} requests/s"));
    let open = timed(settings, &format!("{mix} -r {rate}"));
    let who = contenders.both().to_vec();
    let reports: Vec<Rounds<Report>> =
        in_turns(contenders, &who, start, settings.rounds, |server| bench.load(server, Place::Core(1), &open))?;
    let mut table = Table::new(
        "Latency at 70 % of memcached's highest throughput",
        &format!(
            "Microseconds, one set to ten gets over 50 connections at {rate} requests a second, whatever the server does: a \
             request counts from when it was due. Server and load on a core each."
        ),
        who,
    );
    type Quantile = fn(&Report) -> f64;
    let quantiles: [(&str, Quantile); 4] = [
        ("p50", |report| report.latency_us.p50),
        ("p90", |report| report.latency_us.p90),
        ("p99", |report| report.latency_us.p99),
        ("p99.9", |report| report.latency_us.p999),
    ];
    for (name, quantile) in quantiles {
        let mut row = Row::new(name, 1, pick(&reports, quantile));
        row.bar = (name == "p99").then_some(Bar::AtMost(1.0));
        table.rows.push(row);
    }
    table.servers(contenders, start);
    table.load(Place::Core(1), &closed, false);
    table.load(Place::Core(1), &open, false);
    Ok(Some(table))
}

/// From the start of the process to its first answer.
pub(super) fn start(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    bench.say("start: first answers");
    let start = Start { place: Place::Anywhere, ..Start::on_one_core() };
    let who = contenders.both().to_vec();
    let rounds = settings.rounds * START_ROUNDS_FACTOR;
    let samples =
        in_turns(contenders, &who, start, rounds, |server| Ok(server.launched.started_in.as_secs_f64() * 1e3))?;
    let mut table = Table::new("Start", "Milliseconds from the start of the process to its first answer.", who);
    let mut row = Row::new("start to first answer", 2, samples);
    row.bar = Some(Bar::AtMost(1.0));
    table.rows.push(row);
    table.servers(contenders, start);
    Ok(Some(table))
}

/// The Drupal table over both transports.
pub(super) fn drupal(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    bench.say("drupal: sets, gets and deletes over five bins");
    let entries = (2000 / settings.shrink).max(1);
    let flags = format!("cache-set-get-delete --entries {entries} --rounds {}", settings.rounds);
    let who = contenders.both().to_vec();
    let mut table = Table::new(
        "A Drupal site's cache",
        &format!(
            "Milliseconds for {} sets, gets and deletes over five bins, values of 1798 bytes, one after the other on one \
             connection, server and load on one core.",
            entries * 5
        ),
        who.clone(),
    );
    let mut rows = Vec::new();
    for (transport, is_unix) in [("TCP", false), ("UNIX socket", true)] {
        let start = Start { is_unix, ..Start::on_one_core() };
        let mut columns = Vec::new();
        for &who in &who {
            let server = contenders.start(who, start)?;
            let mut words = words(&server, &flags);
            // The table has no use for the process.
            words.truncate(words.len() - 2);
            columns.push((who, bench.run::<bins::Table>(start.place, &words)?.columns.remove(0)));
        }
        type Time = fn(&bins::Column) -> f64;
        let times: [(&str, Time); 3] = [
            ("sets", |column| column.sets_ms),
            ("gets", |column| column.gets_ms),
            ("deletes", |column| column.deletes_ms),
        ];
        for (name, time) in times {
            let samples =
                columns.iter().map(|(who, column)| Samples { who: *who, rounds: vec![time(column)] }).collect();
            rows.push(Row::new(&format!("{name}, {transport}"), 1, samples));
        }
        table.servers(contenders, start);
        let address = if is_unix { "SOCKET" } else { "127.0.0.1:PORT" };
        table.command(format!("{} nuthatch bench {flags} --server {address}", start.place.words().join(" ")));
    }
    table.rows = rows;
    Ok(Some(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pipelined_gets_have_another_bar_against_an_old_memcached() {
        let bars = |version| LOADS.iter().map(|load| bar(load, version)).collect::<Vec<f64>>();
        assert_eq!(bars("1.6.18"), [0.85, 0.92, 0.16, 0.45, 0.80, 0.92, 0.92]);
        assert_eq!(bars("1.6.45"), [0.85, 0.92, 0.70, 0.45, 0.80, 0.92, 0.92]);
        assert_eq!(bars("of unknown version"), bars("1.6.45"));
    }
}
