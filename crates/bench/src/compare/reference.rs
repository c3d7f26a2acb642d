//! Points of reference: the servers seen by somebody else's load generator, and another kind of cache beside them.

use std::process::{Command, Stdio};

use super::Settings;
use super::contenders::{Contenders, Place, Server, Start, Who};
use super::cpu::{server_us, timed};
use super::measure::{Bench, Samples, in_turns, pick};
use super::write::{Row, Table};
use crate::address::Address;
use crate::failure::Failure;
use crate::process::Usage;

/// Requests of each of `memcslap`'s threads, and how many of them.
const SLAP_REQUESTS: u32 = 20_000;
const SLAP_THREADS: u32 = 4;

const REDIS_REQUESTS: u32 = 500_000;

/// The server's CPU time for each request of another program, in microseconds.
fn driven(server: &Server, place: Place, words: &str, requests: u32) -> Result<f64, Failure> {
    let mut command = place.words();
    command.extend(words.split(' ').map(str::to_owned));
    let before = Usage::of(server.launched.pid())?;
    let status = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| Failure::run(format!("bench: expected to run `{}`: {error}", command.join(" "))))?;
    if !status.success() {
        return Err(Failure::run(format!("bench: `{}` ended with {status}", command.join(" "))));
    }
    let after = Usage::of(server.launched.pid())?;
    Ok(after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e3 / f64::from(requests))
}

/// Whether a program is installed.
fn is_there(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// `memcslap` on both servers; the usual loads on both and on Redis, which has its own generator.
pub(super) fn reference(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    let start = Start::on_one_core();
    let (has_slap, has_redis) = (is_there("memcslap"), is_there("redis-benchmark") && is_there("redis-server"));
    let mut who = contenders.both().to_vec();
    who.extend(has_redis.then_some(Who::Redis));
    let mut table = Table::new(
        "Points of reference",
        "Microseconds of the server's CPU time for each request, server and load on one core. memcslap is libmemcached's load \
         generator; the keys that it stores before its gets are in its figure. redis-server is loaded by redis-benchmark with \
         requests of the same shape.",
        who,
    );
    table.servers(contenders, start);
    if has_slap {
        let each = (SLAP_REQUESTS / settings.shrink).max(1);
        for test in ["set", "get"] {
            bench.say(&format!("reference: memcslap {test}"));
            let words = |address: &str| {
                format!(
                    "memcslap --servers={address} --test={test} --concurrency={SLAP_THREADS} --execute-number={each}"
                )
            };
            let samples = in_turns(contenders, &contenders.both(), start, settings.rounds, |server| {
                driven(server, start.place, &words(&server.launched.address.to_string()), each * SLAP_THREADS)
            })?;
            table.rows.push(Row::new(&format!("memcslap {test}, {SLAP_THREADS} threads"), 2, samples));
            table.command(format!("{} {}", start.place.words().join(" "), words("127.0.0.1:PORT")));
        }
    } else {
        bench.say("reference: memcslap left out, it is not installed");
    }
    if !has_redis {
        bench.say("reference: redis-server left out, it is not installed");
    }
    for (name, flags, redis) in [
        ("get, 50 connections", "-m 0:1 -c 50", "-t get -P 1"),
        ("get, 50 connections, 16 in one send", "-m 0:1 -c 50 -d 16", "-t get -P 16"),
        ("set, 50 connections, 16 in one send", "-m 1:0 -c 50 -d 16", "-t set -P 16"),
    ] {
        bench.say(&format!("reference: {name}"));
        let flags = timed(settings, flags);
        let reports = in_turns(contenders, &contenders.both(), start, settings.rounds, |server| {
            bench.load(server, start.place, &flags)
        })?;
        let mut samples = pick(&reports, |report| server_us(report, false));
        table.load(start.place, &flags, false);
        if has_redis {
            let requests = (REDIS_REQUESTS / settings.shrink).max(1);
            samples.extend(redis_samples(settings, contenders, start, redis, requests)?);
            table.command(format!("{} {}", start.place.words().join(" "), redis_words("PORT", redis, requests)));
        }
        table.rows.push(Row::new(name, 2, samples));
    }
    Ok(Some(table))
}

fn redis_words(port: &str, shape: &str, requests: u32) -> String {
    format!("redis-benchmark -h 127.0.0.1 -p {port} {shape} -n {requests} -c 50 -d 100 -r 100000 -q")
}

fn redis_samples(
    settings: &Settings,
    contenders: &Contenders,
    start: Start,
    shape: &str,
    requests: u32,
) -> Result<Vec<Samples>, Failure> {
    in_turns(contenders, &[Who::Redis], start, settings.rounds, |server| {
        let Address::Tcp(address) = &server.launched.address else {
            return Err(Failure::run("bench: expected redis-server on TCP"));
        };
        let port = address.rsplit(':').next().unwrap_or_default();
        // So that gets find something.
        driven(server, start.place, &redis_words(port, "-t set -P 16", requests), requests)?;
        driven(server, start.place, &redis_words(port, shape, requests), requests)
    })
}
