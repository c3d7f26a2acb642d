//! `nuthatch bench replay`: a recorded sequence of requests against a server, for its hit ratio.
//!
//! A request is a get; a miss is answered with a set, as an application would. Several gets go out together; a batch ends
//! before a key that it already asks for, and the sets for its misses go out before the next batch, so that no get overtakes
//! the set that it would have found. All on one connection, whose order the server keeps.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::failure::Failure;
use crate::flags::{Common, number};
use crate::keys::{Keys, Sizes};
use crate::pipe::{Lost, Pipe};
use crate::process::Usage;
use crate::progress::Progress;
use crate::settings::Stop;
use crate::trace::{Request, Trace};
use crate::wire::{Codec, Tally};

/// How long a server may take to answer a batch.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest batch: its gets, of up to 256 bytes each, must fit the socket's buffers while the server is busy answering them.
const DEPTH_MAX: usize = 256;

/// How a trace is replayed.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "nuthatch bench replay",
    about = "Replays recorded requests and prints the hit ratio by request and by byte. A request is a get, a miss is answered\n\
             with a set; the server should be empty before."
)]
pub(crate) struct Settings {
    /// the requests: *.csv of lines key,size or key,size,ttl, *.bin of little-endian u32 pairs, also with .zst
    trace: PathBuf,
    #[command(flatten)]
    common: Common,
    /// gets sent together; 1 replays strictly one after the other
    #[arg(short, long, value_name = "N", default_value = "16", value_parser = number::<usize>(1..=DEPTH_MAX))]
    depth: usize,
    /// stop after so many requests, such as 1000000
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    requests: Option<u64>,
    /// seconds an item lives where the trace does not say: such as 60, 5-86400, 5,60,3600, @FILE; 0: for ever
    #[arg(long = "ttl", value_name = "TIMES", default_value = "0", value_parser = Amounts::parse)]
    ttl_seconds: Amounts,
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replayed {
    /// The trace's file.
    pub trace: String,
    /// Requests made.
    pub requests: u64,
    /// Different keys in the trace.
    pub keys: u32,
    /// Requests answered with a value.
    pub hits: u64,
    /// Hits of all requests, 0 to 1.
    pub hit_ratio: f64,
    /// Bytes of values found, of the bytes asked for, 0 to 1.
    pub hit_ratio_bytes: f64,
    /// Sets that the server refused, such as values over its limit.
    pub refused: u64,
    /// Values that were not what had been stored (`--verify`).
    pub wrong: u64,
    /// The first refusal or wrong value.
    pub first_problem: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// The server's CPU time for each request, with `--server-pid`.
    pub server_cpu_us_per_request: Option<f64>,
    /// The server's resident memory afterwards, with `--server-pid`.
    pub server_resident_bytes: Option<u64>,
}

impl Replayed {
    /// The result as people read it.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}: {} requests for {} keys in {:.1} s, {:.0} requests/s\n\n\
             hit ratio   {:.4} of requests, {:.4} of bytes ({} hits)\n",
            self.trace,
            self.requests,
            self.keys,
            self.seconds,
            self.requests as f64 / self.seconds.max(1e-9),
            self.hit_ratio,
            self.hit_ratio_bytes,
            self.hits,
        );
        if self.refused > 0 {
            text += &format!("refused     {} sets\n", self.refused);
        }
        if self.wrong > 0 {
            text += &format!("wrong       {} values were not what had been stored\n", self.wrong);
        }
        if let Some(problem) = &self.first_problem {
            text += &format!("first       {problem}\n");
        }
        if let (Some(cpu), Some(resident)) = (self.server_cpu_us_per_request, self.server_resident_bytes) {
            text += &format!(
                "server      {cpu:.2} us of CPU per request, {:.1} MiB resident\n",
                resident as f64 / 1048576.0
            );
        }
        text
    }
}

impl Settings {
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }
}

/// Replays the trace.
pub(crate) fn run(settings: &Settings) -> Result<Replayed, Failure> {
    let (path, common) = (&settings.trace, &settings.common);
    let trace = Trace::read(path)?;
    let socket = common
        .server
        .connect()
        .map_err(|error| Failure::run(format!("bench: expected to connect to {}: {error}", common.server)))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))
        .and_then(|()| set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)))
        .map_err(|errno| Failure::run(format!("bench: expected to set a time limit: {errno}")))?;

    let requests_max = settings.requests.and_then(|count| usize::try_from(count).ok());
    let count = requests_max.unwrap_or(usize::MAX).min(trace.requests.len());
    let requests = &trace.requests[..count];
    let keys = Keys::new(
        trace.names,
        Sizes::Each(vec![0; trace.keys as usize]),
        settings.ttl_seconds.clone(),
        trace.value_bytes_max,
        common.seed,
    );
    let mut replay = Replay {
        pipe: Pipe::new(socket),
        codec: Codec::new(common.protocol, common.verify),
        last: vec![0; trace.keys as usize],
        keys,
        tally: Tally::default(),
        missed: Vec::with_capacity(DEPTH_MAX),
    };
    let before = common.server_pid.map(Usage::of).transpose()?;
    let mut progress = Progress::new(common.quiet || common.json, Stop::Requests(count as u64));
    let began = Instant::now();
    replay
        .through(requests, settings.depth, &mut progress)
        .map_err(|lost| Failure::run(format!("bench: {}: {lost}", common.server)))?;
    progress.finish();
    let seconds = began.elapsed().as_secs_f64();
    let after = common.server_pid.map(Usage::of).transpose()?;

    let asked_bytes: u64 = requests.iter().map(|request| u64::from(request.value_bytes)).sum();
    let tally = replay.tally;
    let cpu_ns = before.zip(after).map(|(before, after)| after.cpu_ns.saturating_sub(before.cpu_ns));
    Ok(Replayed {
        trace: path.display().to_string(),
        requests: tally.gets,
        keys: trace.keys,
        hits: tally.hits,
        hit_ratio: tally.hits as f64 / (tally.gets as f64).max(1.0),
        hit_ratio_bytes: tally.hit_bytes as f64 / (asked_bytes as f64).max(1.0),
        refused: tally.errors,
        wrong: tally.wrong,
        first_problem: tally.first_problem,
        seconds,
        server_cpu_us_per_request: cpu_ns.map(|ns| ns as f64 / 1e3 / (tally.gets as f64).max(1.0)),
        server_resident_bytes: after.map(|usage| usage.resident_bytes),
    })
}

struct Replay {
    pipe: Pipe,
    codec: Codec,
    keys: Keys,
    /// Which request asked for a key last, counted from 1.
    last: Vec<usize>,
    tally: Tally,
    missed: Vec<u32>,
}

impl Replay {
    fn through(&mut self, requests: &[Request], depth: usize, progress: &mut Progress) -> Result<(), Lost> {
        let mut next = 0;
        let mut shown = Instant::now();
        while next < requests.len() || !self.missed.is_empty() {
            while let Some(id) = self.missed.pop() {
                let Request { value_bytes, ttl_seconds, .. } = requests[self.last[id as usize] - 1];
                self.keys.set_value_bytes(id, value_bytes);
                let ttl_seconds = ttl_seconds.unwrap_or_else(|| self.keys.ttl_seconds(id));
                self.pipe.set(&self.codec, &self.keys, id, ttl_seconds, 0);
            }
            next = self.ask(requests, next, depth);
            self.pipe.send(true)?;
            while self.pipe.in_flight() > 0 {
                self.pipe.receive(true)?;
                self.pipe.answers(&mut self.codec, &self.keys, &mut self.tally, Some(&mut self.missed), |_| {})?;
            }
            // Misses are stored in the order they were met.
            self.missed.reverse();
            if shown.elapsed() >= Duration::from_secs(1) {
                progress.running(next as u64);
                shown = Instant::now();
            }
        }
        Ok(())
    }

    /// Queues gets from `first` on, up to `depth` and before a key that is among them already. Where the next batch begins.
    fn ask(&mut self, requests: &[Request], first: usize, depth: usize) -> usize {
        let end = requests.len().min(first + depth);
        for (index, request) in requests.iter().enumerate().take(end).skip(first) {
            let last = &mut self.last[request.id as usize];
            if *last > first {
                return index;
            }
            *last = index + 1;
            self.pipe.get(&self.codec, &self.keys, &[request.id], 0);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::flags::{self, Asked};

    #[test]
    fn a_replay_needs_exactly_one_trace() {
        let read = |words: &[&str]| flags::parse::<Settings>(words.iter().map(OsString::from));
        assert!(matches!(read(&["file", "-d1"]), Ok(Asked::Run(Settings { depth: 1, .. }))));
        for (words, sentence) in [
            (&[][..], "bench: expected TRACE after `nuthatch bench replay`, whose --help says what it is"),
            (&["a", "b"], "bench: \"b\": expected no more words, `nuthatch bench replay --help` says which there are"),
            (&["a", "-d", "257"], "bench: --depth 257: expected a number from 1 to 256"),
        ] {
            assert_eq!(read(words).err().unwrap().to_string(), sentence);
        }
        flags::tests::help_teaches_every_flag::<Settings>(&["file"]);
    }
}
