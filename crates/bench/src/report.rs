//! The result of a run, for people and as JSON.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::load::latencies;
use crate::process::Usage;
use crate::settings::Settings;
use crate::wire::Tally;

/// What was measured, before it is worked out.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) unsent: u64,
    pub(crate) own_cpu_ns: u64,
    pub(crate) server: Option<(Usage, Usage)>,
}

impl Measured {
    pub(crate) fn new(began_ns: u64) -> Measured {
        Measured {
            tally: Tally::default(),
            latencies: latencies(),
            began_ns,
            ended_ns: began_ns,
            unsent: 0,
            own_cpu_ns: 0,
            server: None,
        }
    }
}

/// The result of a run. Times are in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was run.
    pub run: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Requests answered.
    pub requests: u64,
    /// Requests in a second.
    pub requests_per_second: f64,
    /// Keys asked for, stored or deleted: more than requests where a get has several.
    pub keys: u64,
    /// How long requests took.
    pub latency_us: Latency,
    /// Keys asked for by gets.
    pub gets: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys found of those asked for, 0 to 1; null without gets.
    pub hit_ratio: Option<f64>,
    /// Keys set.
    pub sets: u64,
    /// Keys deleted, found or not.
    pub deletes: u64,
    /// Answers that were errors.
    pub errors: u64,
    /// Values that were not what had been stored (`--verify`).
    pub wrong: u64,
    /// Requests of an open loop that were due and could not be sent in time.
    pub unsent: u64,
    /// The first error or wrong value.
    pub first_problem: Option<String>,
    /// CPU time of this program for each request.
    pub load_cpu_us_per_request: f64,
    /// The server's use of CPU and memory, with `--server-pid`.
    pub server: Option<Server>,
}

/// How long requests took, in microseconds: from sending, or in an open loop from when they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// Half took no longer.
    pub p50: f64,
    /// 90 % took no longer.
    pub p90: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// 99.9 % took no longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub(crate) fn of(latencies: &Histogram<u64>) -> Latency {
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        let mean = latencies.mean() / 1e3;
        Latency { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: latencies.max() as f64 / 1e3 }
    }
}

/// What the server used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Server {
    /// CPU time for each request.
    pub cpu_us_per_request: f64,
    /// CPU time for each key.
    pub cpu_us_per_key: f64,
    /// Cores it kept busy.
    pub cores: f64,
    /// Resident memory after the run.
    pub resident_bytes: u64,
}

impl Report {
    pub(crate) fn new(settings: &Settings, measured: &Measured) -> Report {
        let tally = &measured.tally;
        let seconds = (measured.ended_ns - measured.began_ns) as f64 / 1e9;
        let per = |amount: f64, count: u64| if count == 0 { 0.0 } else { amount / count as f64 };
        let server = measured.server.map(|(before, after)| {
            let cpu_ns = after.cpu_ns.saturating_sub(before.cpu_ns) as f64;
            Server {
                cpu_us_per_request: per(cpu_ns / 1e3, tally.requests),
                cpu_us_per_key: per(cpu_ns / 1e3, tally.keys()),
                cores: cpu_ns / 1e9 / seconds.max(1e-9),
                resident_bytes: after.resident_bytes,
            }
        });
        Report {
            run: settings.describe(),
            seconds,
            requests: tally.requests,
            requests_per_second: tally.requests as f64 / seconds.max(1e-9),
            keys: tally.keys(),
            latency_us: Latency::of(&measured.latencies),
            gets: tally.gets,
            hits: tally.hits,
            hit_ratio: (tally.gets > 0).then(|| tally.hits as f64 / tally.gets as f64),
            sets: tally.sets,
            deletes: tally.deletes,
            errors: tally.errors,
            wrong: tally.wrong,
            unsent: measured.unsent,
            first_problem: tally.first_problem.clone(),
            load_cpu_us_per_request: per(measured.own_cpu_ns as f64 / 1e3, tally.requests),
            server,
        }
    }

    /// Whether every answer was right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && self.wrong == 0
    }

    /// The result as people read it.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.run);
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<12}{value}");
        };
        let keys = if self.keys == self.requests {
            String::new()
        } else {
            format!(", {:.0} keys/s", self.keys as f64 / self.seconds.max(1e-9))
        };
        row(
            "requests",
            format!("{} in {:.2} s, {:.0} requests/s{keys}", self.requests, self.seconds, self.requests_per_second),
        );
        let Latency { mean, p50, p90, p99, p999, max } = self.latency_us;
        row(
            "latency",
            format!("mean {mean:.1} us, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1}"),
        );
        if let Some(ratio) = self.hit_ratio {
            row("hits", format!("{:.2} % ({} of {} keys)", ratio * 100.0, self.hits, self.gets));
        }
        row("errors", self.errors.to_string());
        if self.wrong > 0 {
            row("wrong", format!("{} values were not what had been stored", self.wrong));
        }
        if let Some(problem) = &self.first_problem {
            row("first", problem.clone());
        }
        if self.unsent > 0 {
            row(
                "unsent",
                format!("{} requests were due and could not be sent: the server is slower than the rate", self.unsent),
            );
        }
        if let Some(server) = self.server {
            let key = match self.keys == self.requests {
                true => String::new(),
                false => format!(", {:.2} us per key", server.cpu_us_per_key),
            };
            row(
                "server",
                format!(
                    "{:.2} us of CPU per request{key}, {:.2} cores busy, {:.1} MiB resident",
                    server.cpu_us_per_request,
                    server.cores,
                    server.resident_bytes as f64 / 1048576.0
                ),
            );
        }
        row("this client", format!("{:.2} us of CPU per request", self.load_cpu_us_per_request));
        text
    }
}
