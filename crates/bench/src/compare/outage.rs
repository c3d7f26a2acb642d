//! One server of a fleet killed under load and started again: what those who ask what stands before the fleet see of it.

use std::thread;
use std::time::{Duration, Instant};

use super::Settings;
use super::contenders::{Contenders, Place, Start, Who};
use super::fleet::who_fronts;
use super::fronts::{self, Fleet, Front, Ways};
use super::measure::{Bench, Rounds, pick, words};
use super::write::{Chart, Course, Row, Table};
use crate::failure::Failure;
use crate::report::Report;

/// The load runs in so many slices, each of so many seconds.
const SLICES: u32 = 20;
const SLICE_SECONDS: f64 = 0.4;
/// Before which of them the server is killed, and started again.
const KILLED: u32 = 5;
const REVIVED: u32 = 12;
const KEYS: u32 = 20_000;
/// Gets in a second; what was not found is stored, as an application does.
const RATE: u32 = 4000;

fn ways(who: Who) -> Ways {
    Ways { copies_seconds: if who == Who::Tier { 5 } else { 0 }, goes_on: true }
}

/// What was seen in one outage.
struct Seen {
    errors: f64,
    slowest_ms: f64,
    hit_ratio: f64,
    /// When, in seconds, and which part of the gets were hits, slice by slice.
    course: Vec<[f64; 2]>,
}

/// Errors, the slowest answer and the hit ratio over time.
pub(super) fn outage(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    let who = who_fronts(bench);
    let start = Start { place: Place::Anywhere, ..Start::on_one_core() };
    let slice_seconds = (SLICE_SECONDS / f64::from(settings.shrink)).max(0.05);
    let keys = (KEYS / settings.shrink).max(200);
    let seconds = |slices: u32| f64::from(slices) * slice_seconds;
    let mut table = Table::new(
        "A server of three killed and started again",
        &format!(
            "{RATE} gets a second of {keys} keys, popular ones more often (zipf), each miss answered by a set, over 20 connections \
             to what stands before the fleet. After {:.1} s one of three memcached servers is killed with SIGKILL, after {:.1} s it is \
             started again, empty. Errors are the part of all requests; the slowest answer is in milliseconds, from when its \
             request was due.{}",
            seconds(KILLED),
            seconds(REVIVED),
            fronts::shown_files(&who, ways)
        ),
        who.clone(),
    );
    table.compared = (Who::Router, Who::Twemproxy);
    table.chart = Some(Chart { name: "outage", caption: ": hit ratio over seconds" });
    table.command(contenders.shown(Who::Memcached, start));
    let fill = format!("-m 1:0 -n {keys} -k {keys} -o sequential -c 4 -q");
    let load = format!("-m 0:1 -c 20 -k {keys} -o zipf -r {RATE} --fill-misses --preload no -T {slice_seconds} -q");
    let mut all = Vec::new();
    for &who in &who {
        bench.say(&format!("fleet: a server killed behind {}", contenders.name(who)));
        table.command(fronts::shown(who, start.place));
        let fleet = Fleet::start(contenders, start)?;
        let front = Front::start(contenders, who, start.place, &fleet, ways(who))?;
        bench.load(&front.server, start.place, &fill)?;
        all.push(Rounds { who, rounds: vec![one(contenders, bench, fleet, &front, &load, seconds)?] });
    }
    table.load(start.place, &fill, false);
    table.load(start.place, &format!("{load} --seed 0.."), false);
    table.rows.push(Row::new("errors", 4, pick(&all, |seen| seen.errors)));
    table.rows.push(Row::new("slowest answer", 1, pick(&all, |seen| seen.slowest_ms)));
    table.rows.push(Row::new("hit ratio", 4, pick(&all, |seen| seen.hit_ratio)));
    table.course = Some(Course {
        lines: all.iter().map(|seen| (seen.who, seen.rounds[0].course.clone())).collect(),
        marks: vec![(seconds(KILLED), "killed"), (seconds(REVIVED), "started again")],
    });
    Ok(Some(table))
}

/// Runs the load while a thread ends a server and starts it again.
fn one(
    contenders: &Contenders,
    bench: &Bench,
    mut fleet: Fleet,
    front: &Front,
    load: &str,
    seconds: impl Fn(u32) -> f64,
) -> Result<Seen, Failure> {
    let began = Instant::now();
    let (killed, revived, end) = (seconds(KILLED), seconds(REVIVED), seconds(SLICES));
    let until = move |seconds: f64| thread::sleep(Duration::from_secs_f64(seconds).saturating_sub(began.elapsed()));
    thread::scope(|scope| {
        let outage = scope.spawn(|| {
            until(killed);
            fleet.kill_first();
            until(revived);
            fleet.revive_first(contenders)
        });
        let (mut requests, mut errors, mut gets, mut hits, mut slowest_us) = (0, 0, 0, 0, 0.0_f64);
        let (mut course, mut seed) = (Vec::new(), 0);
        while began.elapsed().as_secs_f64() < end {
            let at = began.elapsed().as_secs_f64() + seconds(1) / 2.0;
            // Errors are what is measured here: only a load that could not go on is a failure.
            let report: Report = bench.run(Place::Anywhere, &words(&front.server, &format!("{load} --seed {seed}")))?;
            requests += report.requests;
            errors += report.errors;
            gets += report.gets;
            hits += report.hits;
            slowest_us = slowest_us.max(report.latency_us.max);
            course.push([at, report.hit_ratio.unwrap_or(0.0)]);
            seed += 1;
        }
        outage.join().map_err(|_| Failure::run("bench: expected the thread that kills a server to end well"))??;
        let part = |some: u64, all: u64| some as f64 / all.max(1) as f64;
        Ok(Seen { errors: part(errors, requests), slowest_ms: slowest_us / 1e3, hit_ratio: part(hits, gets), course })
    })
}
