//! `nuthatch bench compare`: Nuthatch beside a memcached, everything measured in turns on the same machine, written down with
//! the commands that did it.
//!
//! Every load is a `nuthatch bench` of its own, so that each figure can be had again by typing its command. Servers take turns
//! within each round; a ratio is the median of the rounds' ratios, so that a machine that slows down half-way slows both.

mod charts;
mod contenders;
mod cpu;
mod fleet;
mod fronts;
mod items;
mod measure;
mod origin;
mod outage;
mod pages;
mod plot;
mod records;
mod reference;
mod traces;
mod write;

use std::path::PathBuf;

use clap::Parser;

use crate::failure::Failure;
use crate::flags::{number, some_seconds};
use contenders::Contenders;
use measure::Bench;
use write::Table;

/// What is compared and how thoroughly.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "nuthatch bench compare",
    about = "Measures Nuthatch beside a memcached on this machine, in turns: CPU time per request, throughput, latency, items\n\
             held, memory, misses on traces, start; what stands before a fleet; pages beside nginx, Varnish and Squid; rows of\n\
             databases. Writes a page with the commands and pictures. It starts and ends all servers itself, on loopback, and\n\
             takes more than an hour."
)]
pub(crate) struct Settings {
    /// the memcached to compare with
    #[arg(long, value_name = "PROGRAM", default_value = "memcached")]
    memcached: String,
    /// the bare loop (bench/bare), such as target/release/nuthatch-bare, for the distance to the limit
    #[arg(long, value_name = "PROGRAM")]
    bare: Option<PathBuf>,
    /// traces to replay: *.bin, *.csv, also with .zst, in a directory such as traces
    #[arg(long, value_name = "DIRECTORY")]
    traces: Option<PathBuf>,
    /// where results and pictures are written
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    out: PathBuf,
    /// how often each load is run
    #[arg(long, value_name = "N", default_value = "5", value_parser = number::<usize>(1..=100))]
    rounds: usize,
    /// how long each load is run, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = some_seconds)]
    seconds: f64,
    /// make what is filled and replayed N times smaller, to try the comparison itself
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=1000))]
    shrink: u32,
    /// of cpu,throughput,latency,items,traces,change,expiry,start,drupal,reference,fleet,pages,rows, such as cpu
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = part)]
    only: Vec<String>,
    /// databases of rows: some of sqlite,mariadb,postgres, such as sqlite; left out: those installed
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = records::engine)]
    databases: Vec<String>,
    /// measure rows with 100,000 records too, which takes hours where a commit takes milliseconds
    #[arg(long)]
    long: bool,
    /// do not say what is being measured
    #[arg(short, long)]
    quiet: bool,
}

/// The parts of the comparison, in the order they are run: their names and what they measure.
const PARTS: &[Part] = &[
    Part { name: "cpu", run: cpu::cpu },
    Part { name: "throughput", run: cpu::throughput },
    Part { name: "latency", run: cpu::latency },
    Part { name: "items", run: items::items },
    Part { name: "traces", run: traces::traces },
    Part { name: "change", run: items::change },
    Part { name: "expiry", run: items::expiry },
    Part { name: "start", run: cpu::start },
    Part { name: "drupal", run: cpu::drupal },
    Part { name: "reference", run: reference::reference },
    Part { name: "fleet", run: fleet::cpu },
    Part { name: "fleet", run: fleet::local },
    Part { name: "fleet", run: fleet::moved },
    Part { name: "fleet", run: outage::outage },
    Part { name: "pages", run: pages::pages },
    Part { name: "pages", run: pages::together },
    Part { name: "rows", run: records::sqlite },
    Part { name: "rows", run: records::mariadb },
    Part { name: "rows", run: records::postgres },
];

struct Part {
    name: &'static str,
    run: fn(&Settings, &Contenders, &mut Bench) -> Result<Option<Table>, Failure>,
}

/// The name of a part.
fn part(text: &str) -> Result<String, String> {
    match PARTS.iter().find(|part| part.name == text) {
        Some(part) => Ok(part.name.to_owned()),
        None => Err(format!("expected some of {}", part_names().join(","))),
    }
}

/// Each once: a part may have several tables.
fn part_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    names.dedup();
    names
}

/// Measures, and writes the results. Returns the page that was written.
pub(crate) fn run(settings: &Settings) -> Result<String, Failure> {
    let contenders = Contenders::find(settings)?;
    let mut bench = Bench::new(settings)?;
    let mut tables = Vec::new();
    for part in PARTS {
        if settings.only.is_empty() || settings.only.iter().any(|name| name == part.name) {
            tables.extend((part.run)(settings, &contenders, &mut bench)?);
        }
    }
    write::results(settings, &contenders, &tables)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::flags::{self, Asked};

    fn read(words: &[&str]) -> Result<Settings, String> {
        match flags::parse(words.iter().map(OsString::from)) {
            Ok(Asked::Run(settings)) => Ok(settings),
            Ok(Asked::Help(_)) => panic!("help was not asked for"),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[test]
    fn parts_are_chosen_by_name() {
        assert_eq!(read(&["--only", "cpu,traces"]).unwrap().only, ["cpu", "traces"]);
        assert_eq!(
            read(&["--only", "cpus"]).unwrap_err(),
            "bench: --only cpus: expected some of \
             cpu,throughput,latency,items,traces,change,expiry,start,drupal,reference,fleet,pages,rows"
        );
        let help = flags::help::<Settings>();
        assert!(help.contains(&part_names().join(",")), "help names every part");
        flags::tests::help_teaches_every_flag::<Settings>(&[]);
    }
}
