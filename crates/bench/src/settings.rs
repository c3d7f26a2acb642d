//! What `nuthatch bench` can be told.

use std::ffi::OsString;
use std::path::Path;

use crate::address::Address;
use crate::amounts::Amounts;
use crate::failure::Failure;
use crate::flags::{self, Asked, Flag, number, seconds};
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
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// The server.
    pub(crate) server: Address,
    /// What it is spoken to in.
    pub(crate) protocol: Protocol,
    /// Connections, all threads together.
    pub(crate) connections: u32,
    /// Threads.
    pub(crate) threads: u32,
    /// Requests in flight on a connection.
    pub(crate) depth: u32,
    /// Keys of one get.
    pub(crate) width: u32,
    /// Weights of sets, gets and deletes.
    pub(crate) mix: [u32; 3],
    /// How many keys there are.
    pub(crate) keys: u32,
    /// Lengths of keys.
    pub(crate) key_bytes: Amounts,
    /// Lengths of values.
    pub(crate) value_bytes: Amounts,
    /// Lifetimes, 0 for ever.
    pub(crate) ttl_seconds: Amounts,
    /// In which order keys are chosen.
    pub(crate) order: Order,
    /// Whether every key is stored first; `None`: if there are gets.
    pub(crate) preload: Option<bool>,
    /// Whether keys that a get did not find are stored.
    pub(crate) fill_misses: bool,
    /// Requests in a second, all connections together; `None`: the next when the last is answered.
    pub(crate) rate: Option<f64>,
    /// Whether the requests of a fixed rate come at random times, as from many independent clients.
    pub(crate) poisson: bool,
    /// When the run is over.
    pub(crate) stop: Stop,
    /// Seconds of load before anything is counted.
    pub(crate) warmup_seconds: f64,
    /// Seconds without any answer after which the server counts as stuck.
    pub(crate) timeout_seconds: f64,
    /// Decides keys, values and their order.
    pub(crate) seed: u64,
    /// Whether values are compared with what was stored.
    pub(crate) verify: bool,
    /// The server's process, for its CPU time and memory.
    pub(crate) server_pid: Option<u32>,
    /// Whether the result is printed as JSON.
    pub(crate) json: bool,
    /// Whether progress is never shown.
    pub(crate) quiet: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            server: Address::Tcp("127.0.0.1:11211".to_owned()),
            protocol: Protocol::Text,
            connections: 50,
            threads: 1,
            depth: 1,
            width: 1,
            mix: [1, 10, 0],
            keys: 100_000,
            key_bytes: Amounts::Fixed(24),
            value_bytes: Amounts::Fixed(100),
            ttl_seconds: Amounts::Fixed(0),
            order: Order::Uniform,
            preload: None,
            fill_misses: false,
            rate: None,
            poisson: false,
            stop: Stop::Seconds(10.0),
            warmup_seconds: 0.0,
            timeout_seconds: 20.0,
            seed: 1,
            verify: false,
            server_pid: None,
            json: false,
            quiet: false,
        }
    }
}

impl Settings {
    /// From the words after `bench`; `None` when help was asked for.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Settings>, Failure> {
        let mut settings = Settings::default();
        let asked = flags::parse(FLAGS, &mut settings, args, |_, _| {
            Err("expected flags, or first of all replay or cache-set-get-delete".to_owned())
        })?;
        if asked == Asked::Help {
            return Ok(None);
        }
        settings.check().map_err(|problem| Failure::usage(format!("bench: {problem}")))?;
        Ok(Some(settings))
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
        let protocol = match self.protocol {
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
            self.server,
            self.depth,
            plural(self.threads, "thread"),
            self.keys,
            self.key_bytes,
            self.value_bytes,
        )
    }
}

/// Every flag of `nuthatch bench`.
pub(crate) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        short: Some('s'),
        long: "server",
        value: "ADDRESS",
        default: "127.0.0.1:11211",
        advice: "HOST:PORT, or the path of a UNIX socket",
        apply: |to, text| Address::parse(text).map(|server| to.server = server),
    },
    Flag {
        short: Some('p'),
        long: "protocol",
        value: "NAME",
        default: "text",
        advice: "text, meta or binary",
        apply: |to, text| protocol(text).map(|protocol| to.protocol = protocol),
    },
    Flag {
        short: Some('c'),
        long: "connections",
        value: "N",
        default: "50",
        advice: "connections, all threads together",
        apply: |to, text| number(text, 1..=60_000).map(|count| to.connections = count),
    },
    Flag {
        short: Some('t'),
        long: "threads",
        value: "N",
        default: "1",
        advice: "threads, each with its part of the connections",
        apply: |to, text| number(text, 1..=1024).map(|count| to.threads = count),
    },
    Flag {
        short: Some('d'),
        long: "depth",
        value: "N",
        default: "1",
        advice: "requests in flight on a connection, sent together",
        apply: |to, text| number(text, 1..=10_000).map(|depth| to.depth = depth),
    },
    Flag {
        short: Some('w'),
        long: "width",
        value: "N",
        default: "1",
        advice: "keys of one get",
        apply: |to, text| number(text, 1..=1000).map(|width| to.width = width),
    },
    Flag {
        short: Some('m'),
        long: "mix",
        value: "SETS:GETS[:DELETES]",
        default: "1:10",
        advice: "how often each is asked for; 0:1 is gets alone",
        apply: |to, text| mix(text).map(|mix| to.mix = mix),
    },
    Flag {
        short: Some('k'),
        long: "keys",
        value: "N",
        default: "100000",
        advice: "how many keys there are",
        apply: |to, text| number(text, 1..=u32::MAX).map(|count| to.keys = count),
    },
    Flag {
        short: None,
        long: "key-bytes",
        value: "SIZES",
        default: "24",
        advice: "length of keys: 24, 16-64, 20,30,40, or @FILE, a trace or one in each line",
        apply: |to, text| sizes(text, Trace::key_sizes).map(|sizes| to.key_bytes = sizes),
    },
    Flag {
        short: Some('v'),
        long: "value-bytes",
        value: "SIZES",
        default: "100",
        advice: "length of values, as above; a key keeps its length",
        apply: |to, text| sizes(text, Trace::value_sizes).map(|sizes| to.value_bytes = sizes),
    },
    Flag {
        short: None,
        long: "ttl",
        value: "TIMES",
        default: "0",
        advice: "seconds an item lives, as above; 0: for ever",
        apply: |to, text| Amounts::parse(text).map(|times| to.ttl_seconds = times),
    },
    Flag {
        short: Some('o'),
        long: "order",
        value: "ORDER",
        default: "uniform",
        advice: "how keys are chosen: uniform, zipf, zipf:EXPONENT (0.99) or sequential",
        apply: |to, text| order(text).map(|order| to.order = order),
    },
    Flag {
        short: None,
        long: "preload",
        value: "yes|no",
        default: "yes if there are gets",
        advice: "store every key before the run",
        apply: |to, text| yes_no(text).map(|preload| to.preload = Some(preload)),
    },
    Flag {
        short: None,
        long: "fill-misses",
        value: "",
        default: "",
        advice: "store what a get did not find, as an application does",
        apply: |to, _| {
            to.fill_misses = true;
            Ok(())
        },
    },
    Flag {
        short: Some('r'),
        long: "rate",
        value: "N",
        default: "",
        advice: "requests in a second whatever the server does; latency counts from when each was due",
        apply: |to, text| number(text, 0.001..=1e8).map(|rate: f64| to.rate = Some(rate)),
    },
    Flag {
        short: None,
        long: "poisson",
        value: "",
        default: "",
        advice: "with --rate: at random times instead of even ones",
        apply: |to, _| {
            to.poisson = true;
            Ok(())
        },
    },
    Flag {
        short: Some('T'),
        long: "duration",
        value: "TIME",
        default: "10s",
        advice: "how long, such as 10, 500ms or 2m",
        apply: |to, text| match seconds(text)? {
            time if time > 0.0 => {
                to.stop = Stop::Seconds(time);
                Ok(())
            }
            _ => Err("expected a time above 0".to_owned()),
        },
    },
    Flag {
        short: Some('n'),
        long: "requests",
        value: "N",
        default: "",
        advice: "how many requests, instead of a duration",
        apply: |to, text| number(text, 1..=u64::MAX).map(|count| to.stop = Stop::Requests(count)),
    },
    Flag {
        short: None,
        long: "warmup",
        value: "TIME",
        default: "0",
        advice: "load before anything is counted",
        apply: |to, text| seconds(text).map(|time| to.warmup_seconds = time),
    },
    Flag {
        short: None,
        long: "timeout",
        value: "TIME",
        default: "20s",
        advice: "without any answer for this long the server counts as stuck",
        apply: |to, text| match seconds(text)? {
            time if time >= 0.01 => {
                to.timeout_seconds = time;
                Ok(())
            }
            _ => Err("expected a time of at least 10ms".to_owned()),
        },
    },
    Flag {
        short: None,
        long: "seed",
        value: "N",
        default: "1",
        advice: "decides keys, values and their order",
        apply: |to, text| number(text, 0..=u64::MAX).map(|seed| to.seed = seed),
    },
    Flag {
        short: None,
        long: "verify",
        value: "",
        default: "",
        advice: "compare every value with what was stored, byte for byte",
        apply: |to, _| {
            to.verify = true;
            Ok(())
        },
    },
    Flag {
        short: None,
        long: "server-pid",
        value: "PID",
        default: "",
        advice: "the server's process, to tell its CPU time and memory",
        apply: |to, text| number(text, 1..=u32::MAX).map(|pid| to.server_pid = Some(pid)),
    },
    Flag {
        short: None,
        long: "json",
        value: "",
        default: "",
        advice: "print the result as JSON",
        apply: |to, _| {
            to.json = true;
            Ok(())
        },
    },
    Flag {
        short: Some('q'),
        long: "quiet",
        value: "",
        default: "",
        advice: "show no progress",
        apply: |to, _| {
            to.quiet = true;
            Ok(())
        },
    },
];

pub(crate) fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "text" => Ok(Protocol::Text),
        "meta" => Ok(Protocol::Meta),
        "binary" => Ok(Protocol::Binary),
        _ => Err("expected text, meta or binary".to_owned()),
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

fn mix(text: &str) -> Result<[u32; 3], String> {
    let expected = || "expected weights SETS:GETS or SETS:GETS:DELETES, not all of them 0".to_owned();
    let weights: Vec<u32> =
        text.split(':').map(|word| number(word, 0..=1_000_000)).collect::<Result<_, _>>().map_err(|_| expected())?;
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
    use super::*;

    fn read(line: &str) -> Result<Settings, String> {
        match Settings::parse(line.split_whitespace().map(OsString::from)) {
            Ok(settings) => Ok(settings.expect("help was not asked for")),
            Err(failure) => {
                assert_eq!(failure.status(), 2);
                Err(failure.to_string())
            }
        }
    }

    #[test]
    fn every_flag_changes_the_settings() {
        let values = [
            ("--server", "/s"),
            ("--protocol", "meta"),
            ("--connections", "3"),
            ("--threads", "2"),
            ("--depth", "4"),
            ("--width", "5"),
            ("--mix", "1:2:3"),
            ("--keys", "77"),
            ("--key-bytes", "20-30"),
            ("--value-bytes", "7,8"),
            ("--ttl", "60"),
            ("--order", "zipf:1.2"),
            ("--preload", "no"),
            ("--fill-misses", ""),
            ("--rate", "12.5"),
            ("--poisson", "--rate=1"),
            ("--duration", "2m"),
            ("--requests", "9"),
            ("--warmup", "1s"),
            ("--seed", "8"),
            ("--verify", ""),
            ("--server-pid", "1"),
            ("--json", ""),
            ("--quiet", ""),
            ("--timeout", "1s"),
        ];
        assert_eq!(values.len(), FLAGS.len());
        for flag in FLAGS {
            let name = format!("--{}", flag.long);
            let (_, value) = values.iter().find(|(long, _)| *long == name).expect(flag.long);
            assert_ne!(read(&format!("{name} {value}")).unwrap(), Settings::default(), "{name}");
            assert!(flag.advice.len() < 100 && flag.default.len() < 30);
        }
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
            ("replai", "bench: \"replai\": expected flags, or first of all replay or cache-set-get-delete"),
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
