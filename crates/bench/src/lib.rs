//! `nuthatch bench`: a load generator for any memcached-compatible server, and the measurements made with it.
//!
//! Owns the load's connections, clocks and statistics. It knows servers by their address and, where CPU time is asked for,
//! by their process id: nothing here links to Nuthatch's own server, so what is measured is what any client sees.
//!
//! | command | what |
//! |---|---|
//! | `bench` | closed or open loop: throughput, latency, CPU time per request |
//! | `bench replay` | a recorded trace: hit ratio by request and by byte |
//! | `bench cache-set-get-delete` | a Drupal site's cache, over TCP beside a UNIX socket |
//! | `bench compare` | Nuthatch beside a memcached, all measures, written down with their commands |
#![forbid(unsafe_code)]

mod address;
mod amounts;
mod bins;
mod compare;
mod failure;
mod flags;
mod keys;
mod launch;
mod load;
mod pipe;
mod process;
mod progress;
mod replay;
mod report;
mod settings;
mod trace;
mod wire;

use std::ffi::OsString;
use std::io::{self, Write};

pub use bins::{Column, Table};
pub use failure::Failure;
pub use replay::Replayed;
pub use report::{Latency, Report, Server};

/// Runs `nuthatch bench` with the words after `bench`. What it finds out goes to standard output.
///
/// # Errors
/// One sentence and an exit status: 2 for what is not understood, 1 when the server could not be measured or answered wrongly.
pub fn run(args: Vec<OsString>) -> Result<(), Failure> {
    match args.split_first() {
        Some((verb, rest)) if verb == "replay" => replay(rest),
        Some((verb, rest)) if verb == "cache-set-get-delete" => cache_set_get_delete(rest),
        Some((verb, rest)) if verb == "compare" => compare(rest),
        _ => load(args),
    }
}

fn load(args: Vec<OsString>) -> Result<(), Failure> {
    let Some(settings) = settings::Settings::parse(args)? else { return print(&help()) };
    let report = load::run(&settings)?;
    print(&if settings.json { json(&report) } else { report.text() })?;
    if report.is_clean() {
        return Ok(());
    }
    let problem = report.first_problem.unwrap_or_default();
    Err(Failure::run(format!("bench: {} errors, {} wrong values; the first: {problem}", report.errors, report.wrong)))
}

fn replay(args: &[OsString]) -> Result<(), Failure> {
    let Some(settings) = replay::parse(args.iter().cloned())? else { return print(&help_replay()) };
    let replayed = replay::run(&settings)?;
    print(&if settings.json() { json(&replayed) } else { replayed.text() })?;
    if replayed.wrong == 0 {
        return Ok(());
    }
    let problem = replayed.first_problem.unwrap_or_default();
    Err(Failure::run(format!("bench: {} wrong values; the first: {problem}", replayed.wrong)))
}

fn cache_set_get_delete(args: &[OsString]) -> Result<(), Failure> {
    let Some(settings) = bins::parse(args.iter().cloned())? else { return print(&help_bins()) };
    let table = bins::run(&settings)?;
    print(&if settings.json() { json(&table) } else { table.text() })
}

fn compare(args: &[OsString]) -> Result<(), Failure> {
    let Some(settings) = compare::parse(args.iter().cloned())? else { return print(&help_compare()) };
    print(&compare::run(&settings)?)
}

/// `nuthatch help bench`
#[must_use]
pub fn help() -> String {
    format!(
        "Usage: nuthatch bench [FLAGS]\n       nuthatch bench replay TRACE [FLAGS]\n\
         \x20      nuthatch bench cache-set-get-delete [FLAGS]\n       nuthatch bench compare [FLAGS]\n\n\
         Loads a memcached-compatible server and prints throughput, latency and hits. Without flags: 50 connections to\n\
         127.0.0.1:11211 for 10 seconds, one set for ten gets, 100000 keys with values of 100 bytes.\n\n{}\n\
         The exit status is 1 if an answer was an error or a value was wrong. The other commands have a --help\n\
         of their own.\n",
        flags::help(settings::FLAGS)
    )
}

fn help_replay() -> String {
    format!(
        "Usage: nuthatch bench replay TRACE [FLAGS]\n\n\
         Replays recorded requests and prints the hit ratio by request and by byte. A request is a get, a miss is answered with a set.\n\
         TRACE is a file of lines `key,size` or `key,size,ttl` called *.csv, or of little-endian u32 pairs (key id, size); either may\n\
         be compressed with zstd.\n\n{}",
        flags::help(replay::FLAGS)
    )
}

fn help_bins() -> String {
    format!(
        "Usage: nuthatch bench cache-set-get-delete [FLAGS]\n\n\
         What a Drupal site does to its cache: 10,000 sets, gets and deletes over five bins, one after the other on one connection.\n\
         Without servers to measure it starts two of its own, one on TCP and one on a UNIX socket.\n\n{}",
        flags::help(bins::FLAGS)
    )
}

fn help_compare() -> String {
    format!(
        "Usage: nuthatch bench compare [FLAGS]\n\n\
         Measures Nuthatch beside a memcached on this machine, in turns: CPU time per request, throughput, latency, items held,\n\
         memory, misses on traces, start. Writes a page with the commands and pictures. It starts and ends all servers itself, on\n\
         loopback, and takes about half an hour.\n\n{}",
        flags::help(compare::FLAGS)
    )
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("a report has nothing that JSON cannot hold") + "\n"
}

/// A reader that has gone away, as `head` does, is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("bench: expected to write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
