//! Running loads as commands of their own, and collecting what they say.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use super::Settings;
use super::contenders::{Contenders, Place, Server, Start, Who};
use crate::bins::median;
use crate::failure::Failure;
use crate::report::Report;

/// Runs loads, says which, and remembers nothing.
pub(crate) struct Bench {
    program: PathBuf,
    quiet: bool,
}

impl Bench {
    pub(crate) fn new(settings: &Settings) -> Result<Bench, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::run(format!("bench: expected to find this program: {error}")))?;
        Ok(Bench { program, quiet: settings.quiet })
    }

    /// Says on standard error what is being done.
    pub(crate) fn say(&self, what: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{what}");
        }
    }

    /// Runs `nuthatch bench WORDS --json` on `place`. What it says of its result is passed on to standard error.
    pub(crate) fn run<T: DeserializeOwned>(&self, place: Place, words: &[String]) -> Result<T, Failure> {
        let mut command = place.words();
        command.push(self.program.display().to_string());
        command.push("bench".to_owned());
        command.extend_from_slice(words);
        command.push("--json".to_owned());
        let shown = command.join(" ");
        let output = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure::run(format!("bench: expected to run `{shown}`: {error}")))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let status = output.status;
            Failure::run(format!("bench: expected a result from `{shown}`, which ended with {status}: {error}"))
        })
    }

    /// Loads `server` from `place`.
    ///
    /// # Errors
    /// When it cannot be loaded, when a value was wrong, or when more than one request in a thousand was answered by an
    /// error. (memcached refuses a few writes for want of memory while it fills: it finds none to evict.)
    pub(crate) fn load(&self, server: &Server, place: Place, flags: &str) -> Result<Report, Failure> {
        let words = words(server, flags);
        let report: Report = self.run(place, &words)?;
        if report.wrong > 0 || report.errors * 1000 > report.requests {
            let (wrong, errors, requests) = (report.wrong, report.errors, report.requests);
            let shown = words.join(" ");
            return Err(Failure::run(format!(
                "bench: `nuthatch bench {shown}`: expected answers, got {errors} errors and {wrong} wrong values in {requests} requests"
            )));
        }
        Ok(report)
    }
}

/// The words of a load: its flags, and which server.
pub(crate) fn words(server: &Server, flags: &str) -> Vec<String> {
    let mut words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    words.extend(["--server".to_owned(), server.launched.address.to_string()]);
    words.extend(["--server-pid".to_owned(), server.launched.pid().to_string()]);
    words
}

/// What the rounds gave for one server.
#[derive(Clone, Debug)]
pub(crate) struct Rounds<T> {
    pub(crate) who: Who,
    pub(crate) rounds: Vec<T>,
}

/// One number for each round.
pub(crate) type Samples = Rounds<f64>;

impl Samples {
    pub(crate) fn median(&self) -> f64 {
        median(self.rounds.clone())
    }
}

/// One number out of the several that each round gave.
pub(crate) fn pick<T>(all: &[Rounds<T>], number: impl Fn(&T) -> f64) -> Vec<Samples> {
    all.iter().map(|one| Samples { who: one.who, rounds: one.rounds.iter().map(&number).collect() }).collect()
}

/// One load on each server in turns, `rounds` times, with a fresh server each time.
pub(crate) fn in_turns<T>(
    contenders: &Contenders,
    who: &[Who],
    start: Start,
    rounds: usize,
    mut measure: impl FnMut(&Server) -> Result<T, Failure>,
) -> Result<Vec<Rounds<T>>, Failure> {
    take_turns(who, rounds, |who| measure(&contenders.start(who, start)?))
}

/// One measurement of each in turns, `rounds` times. Each round begins with another, so that none is always measured on a machine
/// that has just been idle.
pub(crate) fn take_turns<T>(
    who: &[Who],
    rounds: usize,
    mut measure: impl FnMut(Who) -> Result<T, Failure>,
) -> Result<Vec<Rounds<T>>, Failure> {
    let mut all: Vec<Rounds<T>> = who.iter().map(|&who| Rounds { who, rounds: Vec::new() }).collect();
    for round in 0..rounds {
        for turn in 0..all.len() {
            let index = (round + turn) % all.len();
            let outcome = measure(all[index].who)?;
            all[index].rounds.push(outcome);
        }
    }
    Ok(all)
}

/// The median of the rounds' ratios of one server to another; `None` if either was not measured.
pub(crate) fn ratio(samples: &[Samples], who: Who, to: Who) -> Option<f64> {
    let find = |who| samples.iter().find(|samples| samples.who == who);
    let ratios: Vec<f64> = find(who)?.rounds.iter().zip(&find(to)?.rounds).map(|(a, b)| a / b).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The machine became twice as slow half-way: the medians of both would be off, the ratios are not.
        let samples = [
            Samples { who: Who::Memcached, rounds: vec![10.0, 20.0, 20.0] },
            Samples { who: Who::Nuthatch, rounds: vec![5.0, 10.0, 11.0] },
        ];
        assert_eq!(ratio(&samples, Who::Nuthatch, Who::Memcached), Some(0.5));
        assert_eq!(ratio(&samples, Who::Nuthatch, Who::Bare), None);
        assert_eq!(samples[0].median(), 20.0);
    }
}
