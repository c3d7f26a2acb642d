//! `nuthatch bench compare`: Nuthatch beside a memcached, everything measured in turns on the same machine, written down with
//! the commands that did it.
//!
//! Every load is a `nuthatch bench` of its own, so that each figure can be had again by typing its command. Servers take turns
//! within each round; a ratio is the median of the rounds' ratios, so that a machine that slows down half-way slows both.

mod charts;
mod contenders;
mod cpu;
mod items;
mod measure;
mod reference;
mod traces;
mod write;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::flags::{self, Asked, Flag, number, seconds};
use contenders::Contenders;
use measure::Bench;
use write::Table;

/// What is compared and how thoroughly.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    memcached: String,
    bare: Option<PathBuf>,
    traces: Option<PathBuf>,
    out: PathBuf,
    rounds: usize,
    seconds: f64,
    /// Divides the sizes of what is not bounded by time, for tests of the comparison itself.
    shrink: u32,
    only: Vec<String>,
    quiet: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            memcached: "memcached".to_owned(),
            bare: None,
            traces: None,
            out: PathBuf::from("bench/results"),
            rounds: 5,
            seconds: 3.0,
            shrink: 1,
            only: Vec::new(),
            quiet: false,
        }
    }
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
];

struct Part {
    name: &'static str,
    run: fn(&Settings, &Contenders, &mut Bench) -> Result<Option<Table>, Failure>,
}

/// Every flag of `nuthatch bench compare`.
pub(crate) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        short: None,
        long: "memcached",
        value: "PROGRAM",
        default: "memcached",
        advice: "the memcached to compare with",
        apply: |to, text| {
            to.memcached = text.to_owned();
            Ok(())
        },
    },
    Flag {
        short: None,
        long: "bare",
        value: "PROGRAM",
        default: "",
        advice: "the bare loop (bench/bare), for the distance to the limit",
        apply: |to, text| {
            to.bare = Some(text.into());
            Ok(())
        },
    },
    Flag {
        short: None,
        long: "traces",
        value: "DIRECTORY",
        default: "",
        advice: "traces to replay: *.bin, *.csv, also with .zst",
        apply: |to, text| {
            to.traces = Some(text.into());
            Ok(())
        },
    },
    Flag {
        short: None,
        long: "out",
        value: "DIRECTORY",
        default: "bench/results",
        advice: "where results and pictures are written",
        apply: |to, text| {
            to.out = text.into();
            Ok(())
        },
    },
    Flag {
        short: None,
        long: "rounds",
        value: "N",
        default: "5",
        advice: "how often each load is run",
        apply: |to, text| number(text, 1..=100).map(|rounds| to.rounds = rounds),
    },
    Flag {
        short: None,
        long: "seconds",
        value: "TIME",
        default: "3",
        advice: "how long each load is run",
        apply: |to, text| match seconds(text)? {
            time if time > 0.0 => {
                to.seconds = time;
                Ok(())
            }
            _ => Err("expected a time above 0".to_owned()),
        },
    },
    Flag {
        short: None,
        long: "shrink",
        value: "N",
        default: "1",
        advice: "make what is filled and replayed N times smaller, to try the comparison itself",
        apply: |to, text| number(text, 1..=1000).map(|shrink| to.shrink = shrink),
    },
    Flag {
        short: None,
        long: "only",
        value: "PARTS",
        default: "all",
        advice: "some of cpu,throughput,latency,items,traces,change,expiry,start,drupal,reference",
        apply: |to, text| {
            to.only = text.split(',').map(str::to_owned).collect();
            match to.only.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
                Some(name) => Err(format!("{name:?} is no part, expected some of {}", part_names().join(","))),
                None => Ok(()),
            }
        },
    },
    Flag {
        short: Some('q'),
        long: "quiet",
        value: "",
        default: "",
        advice: "do not say what is being measured",
        apply: |to, _| {
            to.quiet = true;
            Ok(())
        },
    },
];

fn part_names() -> Vec<&'static str> {
    PARTS.iter().map(|part| part.name).collect()
}

/// From the words after the command; `None` when help was asked for.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Settings>, Failure> {
    let mut settings = Settings::default();
    let asked = flags::parse(FLAGS, &mut settings, args, |_, _| Err("expected flags alone".to_owned()))?;
    Ok((asked == Asked::Run).then_some(settings))
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
    use super::*;

    fn read(words: &[&str]) -> Result<Settings, String> {
        parse(words.iter().map(OsString::from)).map(Option::unwrap).map_err(|failure| failure.to_string())
    }

    #[test]
    fn parts_are_chosen_by_name() {
        assert_eq!(read(&["--only", "cpu,traces"]).unwrap().only, ["cpu", "traces"]);
        assert_eq!(
            read(&["--only", "cpus"]).unwrap_err(),
            "bench: --only cpus: \"cpus\" is no part, expected some of \
             cpu,throughput,latency,items,traces,change,expiry,start,drupal,reference"
        );
        let advice = FLAGS.iter().find(|flag| flag.long == "only").unwrap().advice;
        assert!(advice.ends_with(&part_names().join(",")), "help names every part");
    }
}
