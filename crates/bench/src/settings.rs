//! What `nuthatch bench` can be told.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser;

use crate::amounts::Amounts;
use crate::failure::Failure;
use crate::flags::{self, Asked, Common, number, seconds, some_seconds};
use crate::keys::{Names, Order};
use crate::trace::Trace;
use crate::wire::Protocol;

/// Longest key there is in any protocol.
const KEY_BYTES_MAX: u32 = nuthatch_proto::KEY_BYTES_MAX as u32;
/// No memcached takes larger values (`-I` ends at 1 GiB).
const VALUE_BYTES_MAX: u32 = 1 << 30;
/// Begins every key, so that a look into the server tells whose they are.
const KEY_PREFIX: &[u8] = b"key:";

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stop {
    /// After this many seconds.
    Seconds(f64),
    /// After this many requests.
    Requests(u64),
}

/// Everything that decides what a run does.
#[derive(Parser, Clone, Debug, PartialEq)]
#[command(
    name = "nuthatch bench",
    override_usage = "nuthatch bench [FLAGS]\n       nuthatch bench replay TRACE [FLAGS]\n       \
                      nuthatch bench cache-set-get-delete [FLAGS]\n       nuthatch bench pages [FLAGS] URL...\n       nuthatch bench compare [FLAGS]",
    about = "Loads a memcached-compatible server and prints throughput, latency and hits. Without flags: 50 connections to\n\
             127.0.0.1:11211 for 10 seconds, one set for ten gets, 100000 keys with values of 100 bytes.",
    after_help = "The exit status is 1 if an answer was an error or a value was wrong. The other commands have a --help\n\
                  of their own."
)]
pub(crate) struct Settings {
    #[command(flatten)]
    pub(crate) common: Common,
    /// connections, all threads together
    #[arg(short, long, value_name = "N", default_value = "50", value_parser = number::<u32>(1..=60_000))]
    pub(crate) connections: u32,
    /// threads, each with its part of the connections
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=1024))]
    pub(crate) threads: u32,
    /// requests in flight on a connection, sent together
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=10_000))]
    pub(crate) depth: u32,
    /// keys of one get
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=1000))]
    pub(crate) width: u32,
    /// how often each is asked for, such as 1:3:1; 0:1 is gets alone
    #[arg(short, long, value_name = "SETS:GETS[:DELETES]", default_value = "1:10", value_parser = mix)]
    pub(crate) mix: [u32; 3],
    /// how many keys there are
    #[arg(short, long, value_name = "N", default_value = "100000", value_parser = number::<u32>(1..=u32::MAX))]
    pub(crate) keys: u32,
    /// bytes of a key: 24, 16-64, 20,30,40, or @FILE, a trace or one in each line
    #[arg(long, value_name = "SIZES", default_value = "24", value_parser = |text: &str| sizes(text, Trace::key_sizes))]
    pub(crate) key_bytes: Amounts,
    /// bytes of a value, as above, such as 50-2000; a key keeps its length
    #[arg(
        short, long, value_name = "SIZES", default_value = "100",
        value_parser = |text: &str| sizes(text, Trace::value_sizes)
    )]
    pub(crate) value_bytes: Amounts,
    /// seconds an item lives, as above, such as 5,60,3600; 0: for ever
    #[arg(long = "ttl", value_name = "TIMES", default_value = "0", value_parser = Amounts::parse)]
    pub(crate) ttl_seconds: Amounts,
    /// how keys are chosen: uniform, sequential, zipf (0.99) or another exponent such as zipf:1.2
    #[arg(short, long, value_name = "ORDER", default_value = "uniform", value_parser = order)]
    pub(crate) order: Order,
    /// store every key before the run, such as no; left out: if there are gets
    #[arg(long, value_name = "yes|no", value_parser = yes_no)]
    pub(crate) preload: Option<bool>,
    /// store what a get did not find, as an application does
    #[arg(long)]
    pub(crate) fill_misses: bool,
    /// requests in a second, such as 5000, whatever the server does; latency counts from when each was due
    #[arg(short, long, value_name = "N", value_parser = number::<f64>(0.001..=1e8))]
    pub(crate) rate: Option<f64>,
    /// with --rate: at random times, as from many independent clients, instead of even ones
    #[arg(long)]
    pub(crate) poisson: bool,
    /// how long the run is, such as 500ms or 2m
    #[arg(short = 'T', long, value_name = "TIME", default_value = "10s", value_parser = some_seconds)]
    duration: f64,
    /// how many requests, such as 1000000, instead of a duration
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    requests: Option<u64>,
    /// load before anything is counted, such as 1s
    #[arg(long = "warmup", value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub(crate) warmup_seconds: f64,
    /// without any answer for this long, such as 500ms, the server counts as stuck
    #[arg(long = "timeout", value_name = "TIME", default_value = "20s", value_parser = timeout)]
    pub(crate) timeout_seconds: f64,
}

impl Settings {
    /// From the words after `bench`.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked<Settings>, Failure> {
        let asked = flags::parse::<Settings>(args)?;
        if let Asked::Run(settings) = &asked {
            settings.check().map_err(|problem| Failure::usage(format!("bench: {problem}")))?;
        }
        Ok(asked)
    }

    /// When the run is over.
    pub(crate) fn stop(&self) -> Stop {
        self.requests.map_or(Stop::Seconds(self.duration), Stop::Requests)
    }

    fn check(&self) -> Result<(), String> {
        let digits = self.keys.saturating_sub(1).checked_ilog10().unwrap_or(0) + 1;
        let needed = KEY_PREFIX.len() as u32 + digits;
        if self.key_bytes.min() < needed || self.key_bytes.max() > KEY_BYTES_MAX {
            return Err(format!(
                "--key-bytes {}: expected {needed} to {KEY_BYTES_MAX} for {} keys",
                self.key_bytes, self.keys
            ));
        }
        if self.value_bytes.max() > VALUE_BYTES_MAX {
            return Err(format!("--value-bytes {}: expected at most {VALUE_BYTES_MAX}", self.value_bytes));
        }
        if self.threads > self.connections {
            return Err(format!(
                "--threads {}: expected at most one for each of the {} connections",
                self.threads, self.connections
            ));
        }
        if self.poisson && self.rate.is_none() {
            return Err("--poisson: expected --rate beside it".to_owned());
        }
        Ok(())
    }

    /// How keys are called.
    pub(crate) fn names(&self) -> Names {
        Names::Numbered { prefix: KEY_PREFIX.to_vec(), key_bytes: self.key_bytes.clone() }
    }

    /// Whether every key is stored before the run.
    pub(crate) fn preloads(&self) -> bool {
        self.preload.unwrap_or(self.mix[1] > 0)
    }

    /// The run in a line or two, as a heading of its result.
    pub(crate) fn describe(&self) -> String {
        let total: u32 = self.mix.iter().sum();
        let share = |weight: u32| f64::from(weight) * 100.0 / f64::from(total);
        let mut parts = Vec::new();
        for (weight, name) in self.mix.iter().zip(["set", "get", "delete"]) {
            if *weight > 0 {
                let wide =
                    if name == "get" && self.width > 1 { format!(" of {} keys", self.width) } else { String::new() };
                parts.push(format!("{:.3} % {name}{wide}", share(*weight)).replace(".000", ""));
            }
        }
        let order = match self.order {
            Order::Uniform => "uniform".to_owned(),
            Order::Zipf(exponent) => format!("Zipf {exponent}"),
            Order::Sequential => "sequential".to_owned(),
        };
        let protocol = match self.common.protocol {
            Protocol::Text => "text",
            Protocol::Meta => "meta",
            Protocol::Binary => "binary",
        };
        let pace = match self.rate {
            None => "closed loop".to_owned(),
            Some(rate) => format!("open loop, {rate} requests/s{}", if self.poisson { " at random times" } else { "" }),
        };
        let plural = |count: u32, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
        format!(
            "{}, {protocol}, {} on {}, {} in flight on each, {}, {pace}\n{} keys of {} bytes ({order}), values of {} bytes",
            parts.join(", "),
            plural(self.connections, "connection"),
            self.common.server,
            self.depth,
            plural(self.threads, "thread"),
            self.keys,
            self.key_bytes,
            self.value_bytes,
        )
    }
}

/// Amounts, or the sizes of what is in a trace.
fn sizes(text: &str, of: fn(&Trace) -> Vec<u32>) -> Result<Amounts, String> {
    match text.strip_prefix('@').map(Path::new) {
        Some(path) if Trace::is_named_like_one(path) => {
            Trace::read(path).map(|trace| Amounts::List(of(&trace))).map_err(|failure| failure.to_string())
        }
        _ => Amounts::parse(text),
    }
}

fn yes_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("expected yes or no".to_owned()),
    }
}

fn timeout(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        time if time >= 0.01 => Ok(time),
        _ => Err("expected a time of at least 10ms".to_owned()),
    }
}

fn mix(text: &str) -> Result<[u32; 3], String> {
    let expected = || "expected weights SETS:GETS or SETS:GETS:DELETES, not all of them 0".to_owned();
    let weights: Vec<u32> =
        text.split(':').map(number(0..=1_000_000)).collect::<Result<_, _>>().map_err(|_| expected())?;
    match weights[..] {
        [sets, gets] if sets + gets > 0 => Ok([sets, gets, 0]),
        [sets, gets, deletes] if sets + gets + deletes > 0 => Ok([sets, gets, deletes]),
        _ => Err(expected()),
    }
}

fn order(text: &str) -> Result<Order, String> {
    match text {
        "uniform" => Ok(Order::Uniform),
        "sequential" => Ok(Order::Sequential),
        "zipf" => Ok(Order::Zipf(0.99)),
        _ => match text.strip_prefix("zipf:").map(str::parse) {
            Some(Ok(exponent)) if (0.0..=10.0).contains(&exponent) => Ok(Order::Zipf(exponent)),
            _ => Err("expected uniform, sequential, zipf or zipf:EXPONENT with an exponent of 0 to 10".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn read(line: &str) -> Result<Settings, String> {
        match Settings::parse(line.split_whitespace().map(OsString::from)) {
            Ok(Asked::Run(settings)) => Ok(settings),
            Ok(Asked::Help(_)) => panic!("help was not asked for"),
            Err(failure) => {
                assert_eq!(failure.status(), 2);
                Err(failure.to_string())
            }
        }
    }

    #[test]
    fn every_flag_changes_the_settings() {
        let lines = [
            "--server /s",
            "--protocol meta",
            "--connections 3",
            "--threads 2",
            "--depth 4",
            "--width 5",
            "--mix 1:2:3",
            "--keys 77",
            "--key-bytes 20-30",
            "--value-bytes 7,8",
            "--ttl 60",
            "--order zipf:1.2",
            "--preload no",
            "--fill-misses",
            "--rate 12.5",
            "--poisson --rate 1",
            "--duration 2m",
            "--requests 9",
            "--warmup 1s",
            "--seed 8",
            "--verify",
            "--server-pid 1",
            "--json",
            "--quiet",
            "--timeout 1s",
        ];
        let plain = read("").unwrap();
        for line in lines {
            assert_ne!(read(line).unwrap(), plain, "{line}");
        }
        for flag in Settings::command().get_arguments() {
            let long = flag.get_long().unwrap();
            assert!(lines.iter().any(|line| line.split(' ').next() == Some(&format!("--{long}"))), "{long}");
        }
        flags::tests::help_teaches_every_flag::<Settings>(&[]);
    }

    #[test]
    fn a_run_ends_by_time_unless_told_a_number() {
        assert_eq!(read("-T 2m").unwrap().stop(), Stop::Seconds(120.0));
        assert_eq!(read("-n 7 -T 2m").unwrap().stop(), Stop::Requests(7));
    }

    #[test]
    fn what_does_not_fit_is_said_in_one_sentence() {
        for (line, sentence) in [
            ("--keys 1000000 --key-bytes 8", "bench: --key-bytes 8: expected 10 to 250 for 1000000 keys"),
            ("--key-bytes 24-251", "bench: --key-bytes 24 to 251: expected 9 to 250 for 100000 keys"),
            ("-c 2 -t 3", "bench: --threads 3: expected at most one for each of the 2 connections"),
            ("--poisson", "bench: --poisson: expected --rate beside it"),
            ("-m 0:0", "bench: --mix 0:0: expected weights SETS:GETS or SETS:GETS:DELETES, not all of them 0"),
            ("-T 0", "bench: --duration 0: expected a time above 0"),
            (
                "-o zipf:x",
                "bench: --order zipf:x: expected uniform, sequential, zipf or zipf:EXPONENT with an exponent of 0 to 10",
            ),
            ("replai", "bench: \"replai\": expected no more words, `nuthatch bench --help` says which there are"),
        ] {
            assert_eq!(read(line).unwrap_err(), sentence);
        }
        assert_eq!(read("--keys 10 --key-bytes 5").unwrap().keys, 10, "one digit is enough for ten keys");
    }

    #[test]
    fn sizes_may_come_from_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sizes.csv");
        std::fs::write(&path, "long-enough-key,10\nanother-longer-key,30\nlong-enough-key,50\n").unwrap();
        let settings = read(&format!("-v @{0} --key-bytes @{0}", path.display())).unwrap();
        assert_eq!(settings.value_bytes, Amounts::List(vec![10, 30]), "a key counts once");
        assert_eq!(settings.key_bytes, Amounts::List(vec![15, 18]));
        let sentence = read("-v @/no/such.csv").unwrap_err();
        assert!(
            sentence.starts_with("bench: --value-bytes @/no/such.csv: bench: /no/such.csv: expected to read a trace")
        );
    }

    #[test]
    fn a_run_says_what_it_is() {
        let settings = read("-m 1:3 -c 1 -d 16 -v 10-20 -o zipf -s 127.0.0.1:7").unwrap();
        assert_eq!(
            settings.describe(),
            "25 % set, 75 % get, text, 1 connection on 127.0.0.1:7, 16 in flight on each, 1 thread, closed loop\n\
             100000 keys of 24 bytes (Zipf 0.99), values of 10 to 20 bytes"
        );
    }
}
