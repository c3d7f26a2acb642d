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
//! | `bench records` | records in a database: through Nuthatch, beside a cache, and directly |
//! | `bench pages` | readers of a web site: JMeter's table |
//! | `bench compare` | Nuthatch beside a memcached, all measures, written down with their commands |
#![forbid(unsafe_code)]

mod address;
mod amounts;
mod bins;
mod compare;
mod failure;
mod flags;
mod http;
mod keys;
mod launch;
mod load;
mod pages;
mod pipe;
mod process;
mod progress;
mod records;
mod replay;
mod report;
mod settings;
mod trace;
mod wire;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;
use flags::Asked;

pub use bins::{Column, Table};
pub use failure::Failure;
pub use pages::PagesTable;
pub use records::{Records, Way};
pub use replay::Replayed;
pub use report::{Latency, Report, Server};

/// Runs `nuthatch bench` with the words after `bench`. What it finds out goes to standard output.
///
/// # Errors
/// One sentence and an exit status: 2 for what is not understood, 1 when the server could not be measured or answered wrongly.
pub fn run(args: Vec<OsString>) -> Result<(), Failure> {
    match args.split_first() {
        Some((verb, rest)) if verb == "replay" => with(rest, replay),
        Some((verb, rest)) if verb == "cache-set-get-delete" => with(rest, cache_set_get_delete),
        Some((verb, rest)) if verb == "records" => with(rest, records),
        Some((verb, rest)) if verb == "pages" => with(rest, pages),
        Some((verb, rest)) if verb == "compare" => with(rest, compare),
        _ => load(&args),
    }
}

fn load(args: &[OsString]) -> Result<(), Failure> {
    let settings = match settings::Settings::parse(args.iter().cloned())? {
        Asked::Run(settings) => settings,
        Asked::Help(text) => return print(&text),
    };
    let report = load::run(&settings)?;
    print(&if settings.common.json { json(&report) } else { report.text() })?;
    if report.is_clean() {
        return Ok(());
    }
    let problem = report.first_problem.unwrap_or_default();
    Err(Failure::run(format!("bench: {} errors, {} wrong values; the first: {problem}", report.errors, report.wrong)))
}

fn replay(settings: &replay::Settings) -> Result<(), Failure> {
    let replayed = replay::run(settings)?;
    print(&if settings.json() { json(&replayed) } else { replayed.text() })?;
    if replayed.wrong == 0 {
        return Ok(());
    }
    let problem = replayed.first_problem.unwrap_or_default();
    Err(Failure::run(format!("bench: {} wrong values; the first: {problem}", replayed.wrong)))
}

fn cache_set_get_delete(settings: &bins::Settings) -> Result<(), Failure> {
    let table = bins::run(settings)?;
    print(&if settings.json() { json(&table) } else { table.text() })
}

fn records(settings: &records::Settings) -> Result<(), Failure> {
    let records = records::run(settings)?;
    print(&if settings.json() { json(&records) } else { records.text() })
}

fn pages(settings: &pages::Settings) -> Result<(), Failure> {
    let table = pages::run(settings)?;
    print(&if settings.json() { json(&table) } else { table.text() })?;
    match &table.first_problem {
        None => Ok(()),
        Some(problem) => Err(Failure::run(format!(
            "bench: {} of {} pages failed; the first: {problem}",
            table.errors, table.samples
        ))),
    }
}

fn compare(settings: &compare::Settings) -> Result<(), Failure> {
    print(&compare::run(settings)?)
}

/// Does `work` as the words after a command say, or prints the command's help.
fn with<T: Parser>(args: &[OsString], work: fn(&T) -> Result<(), Failure>) -> Result<(), Failure> {
    match flags::parse(args.iter().cloned())? {
        Asked::Run(settings) => work(&settings),
        Asked::Help(text) => print(&text),
    }
}

/// `nuthatch help bench`
#[must_use]
pub fn help() -> String {
    flags::help::<settings::Settings>()
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
