//! What a get costs what stands before a fleet, what a local copy costs beside a plain pool's item, and which keys move when a
//! server joins.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use super::Settings;
use super::contenders::{Contenders, Start, Who};
use super::cpu::{server_us, timed};
use super::fronts::{self, Fleet, Front, Ways};
use super::measure::{Bench, Rounds, pick, take_turns};
use super::write::{Bar, Row, Table};
use crate::failure::Failure;
use crate::launch::Scratch;
use crate::report::Report;

/// Names and flags of the loads.
const LOADS: [(&str, &str); 2] =
    [("get, 50 connections, 16 in one send", "-m 0:1 -c 50 -d 16"), ("get, 50 connections", "-m 0:1 -c 50")];

/// What the router may cost, beside twemproxy, where requests come together.
const ROUTER_BAR: f64 = 0.75;
/// What a local copy may cost, beside an item of a plain pool.
const LOCAL_BAR: f64 = 1.15;
/// How many times a tenth of the keys may move when one of ten servers joins.
const MOVED_BAR: f64 = 1.3;

/// The part of gets that copies are to answer.
const LOCAL_RATIO: f64 = 0.9;
/// A copy's life while that part is sought: it ends up to a second early, so that a few of them fit into a run.
const COPIES_SECONDS: u32 = 2;
/// For as long as nothing expires during a run.
const COPIES_SECONDS_LONG: u32 = 3600;
/// Keys stored before that part is sought, few enough that copies of all of them have room.
const KEYS: u32 = 300_000;
/// How often the number of keys is corrected by what was hit.
const CORRECTIONS: usize = 3;
/// Keys where each is to have a copy.
const KEYS_COPIED: u32 = 10_000;

const KEYS_PLACED: u32 = 20_000;

/// Who stands before the fleet here.
pub(super) fn who_fronts(bench: &Bench) -> Vec<Who> {
    let has_twemproxy = fronts::twemproxy().is_some();
    if !has_twemproxy {
        bench.say("fleet: twemproxy left out, it is not installed");
    }
    has_twemproxy.then_some(Who::Twemproxy).into_iter().chain([Who::Router, Who::Tier]).collect()
}

fn ways(who: Who) -> Ways {
    Ways { copies_seconds: if who == Who::Tier { COPIES_SECONDS } else { 0 }, goes_on: false }
}

/// One run of a load.
struct Run {
    report: Report,
    /// The part of the keys that copies answered.
    local: f64,
}

/// CPU time for each get: of a memcached that is asked directly, of twemproxy, of the router and of the tier.
pub(super) fn cpu(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    let who: Vec<Who> = [Who::Memcached].into_iter().chain(who_fronts(bench)).collect();
    let start = Start::on_one_core();
    let mut table = Table::new(
        "CPU per get before a fleet",
        &format!(
            "Microseconds of CPU time for each get, values of 100 bytes, keys of 24: of a memcached that is asked directly, and of \
             what stands before a fleet of {} such, without what those spend. The router keeps no copies; the tier's live for \
             {COPIES_SECONDS} s, and there are as many keys as make it answer {:.0} % of the gets by itself. Everything shares one \
             core and nobody interrupts another.{}",
            fronts::SERVERS,
            LOCAL_RATIO * 100.0,
            fronts::shown_files(&who, ways)
        ),
        who.clone(),
    );
    table.compared = (Who::Router, Who::Twemproxy);
    table.command(contenders.shown(Who::Memcached, start));
    for &who in &who[1..] {
        table.command(fronts::shown(who, start.place));
    }
    for (name, load) in LOADS {
        bench.say(&format!("fleet: {name}"));
        let flags = timed(settings, load);
        let mut keys = (KEYS / settings.shrink).max(100) / 3;
        let runs = take_turns(&who, settings.rounds, |who| {
            let fleet = Fleet::start(contenders, start)?;
            if who == Who::Memcached {
                return Ok(Run { report: bench.load(fleet.first()?, start.place, &flags)?, local: 0.0 });
            }
            let front = Front::start(contenders, who, start.place, &fleet, ways(who))?;
            match who {
                Who::Tier => partly_local(settings, bench, &front, load, &mut keys),
                _ => Ok(Run { report: bench.load(&front.server, start.place, &flags)?, local: 0.0 }),
            }
        })?;
        table.load(start.place, &flags, false);
        table.load(start.place, &tier_flags(settings, load, keys), false);
        let mut row = Row::new(name, 2, pick(&runs, |run| server_us(&run.report, false)));
        row.bar = load.contains("-d 16").then_some(Bar::AtMost(ROUTER_BAR));
        table.rows.push(row);
        let tier: Vec<Rounds<Run>> = runs.into_iter().filter(|runs| runs.who == Who::Tier).collect();
        table.rows.push(Row::new(&format!("{name}: answered by copies"), 3, pick(&tier, |run| run.local)));
    }
    Ok(Some(table))
}

/// The load of a tier: longer than a copy's life, and without storing what is stored.
fn tier_flags(settings: &Settings, load: &str, keys: u32) -> String {
    let seconds = settings.seconds.max(f64::from(COPIES_SECONDS) / f64::from(settings.shrink));
    format!("{load} -k {keys} --preload no -T {seconds} -q")
}

/// Loads a tier with as many keys as make its copies answer [`LOCAL_RATIO`] of the gets, which depends on how fast it is: `keys` is
/// what to begin with and becomes what was found.
fn partly_local(settings: &Settings, bench: &Bench, front: &Front, load: &str, keys: &mut u32) -> Result<Run, Failure> {
    let place = Start::on_one_core().place;
    let keys_max = (KEYS / settings.shrink).max(100);
    bench.load(&front.server, place, &format!("-m 1:0 -n {keys_max} -k {keys_max} -o sequential -d 64 -c 4 -q"))?;
    for attempt in 0.. {
        let [hits, asked] = front.local()?;
        let report = bench.load(&front.server, place, &tier_flags(settings, load, *keys))?;
        let [hits_after, asked_after] = front.local()?;
        let local = (hits_after - hits) as f64 / (asked_after - asked).max(1) as f64;
        if attempt == CORRECTIONS {
            return Ok(Run { report, local });
        }
        // A key that is asked for n times in a copy's life is answered by the copy n times for each fetch.
        let sought = LOCAL_RATIO / (1.0 - LOCAL_RATIO);
        let local = local.clamp(0.01, 0.999);
        *keys = ((f64::from(*keys) * local / (1.0 - local) / sought) as u32).clamp(10, keys_max);
    }
    unreachable!("the last attempt returns")
}

/// A get that a local copy answers, beside a get of a pool without a backend.
pub(super) fn local(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    let who = vec![Who::Nuthatch, Who::Tier];
    let start = Start::on_one_core();
    let keys = (KEYS_COPIED / settings.shrink).max(100);
    let ways = Ways { copies_seconds: COPIES_SECONDS_LONG, goes_on: false };
    let mut table = Table::new(
        "A local copy beside a plain pool's item",
        "Microseconds of the server's CPU time for each get, as above: of a pool without a backend, and of a tier that has a copy of \
         every item and asks its fleet for nothing.",
        who.clone(),
    );
    table.compared = (Who::Tier, Who::Nuthatch);
    table.command(contenders.shown(Who::Nuthatch, start));
    table.command(fronts::shown(Who::Tier, start.place));
    for (name, load) in LOADS {
        bench.say(&format!("fleet: a local {name}"));
        let fill = format!("-m 1:0 -n {keys} -k {keys} -o sequential -c 1 -q");
        let read = format!("-m 0:1 -n {} -k {keys} --preload no -o sequential -c 1 -q", keys * 2);
        let flags = timed(settings, &format!("{load} -k {keys} --preload no"));
        let runs = take_turns(&who, settings.rounds, |who| {
            // The read makes the copies that the fleet's news of the fill took away.
            let load = |server: &_| {
                bench.load(server, start.place, &fill)?;
                bench.load(server, start.place, &read)?;
                Ok(())
            };
            if who == Who::Nuthatch {
                let server = contenders.start(who, start)?;
                load(&server)?;
                return Ok(Run { report: bench.load(&server, start.place, &flags)?, local: 1.0 });
            }
            let fleet = Fleet::start(contenders, start)?;
            let front = Front::start(contenders, who, start.place, &fleet, ways)?;
            load(&front.server)?;
            let [hits, asked] = front.local()?;
            let report = bench.load(&front.server, start.place, &flags)?;
            let [hits_after, asked_after] = front.local()?;
            Ok(Run { report, local: (hits_after - hits) as f64 / (asked_after - asked).max(1) as f64 })
        })?;
        for flags in [&fill, &read, &flags] {
            table.load(start.place, flags, false);
        }
        let mut row = Row::new(name, 2, pick(&runs, |run| server_us(&run.report, false)));
        row.bar = Some(Bar::AtMost(LOCAL_BAR));
        table.rows.push(row);
        let tier: Vec<Rounds<Run>> = runs.into_iter().filter(|runs| runs.who == Who::Tier).collect();
        table.rows.push(Row::new(&format!("{name}: answered by copies"), 3, pick(&tier, |run| run.local)));
    }
    Ok(Some(table))
}

/// Which part of the keys lives elsewhere after one of ten servers joined.
pub(super) fn moved(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    bench.say("fleet: keys that move when a server joins");
    let count = (KEYS_PLACED / settings.shrink).max(1000);
    let mut table = Table::new(
        "Keys that move when the tenth of ten servers joins",
        &format!("Part of {count} keys that another server has then, as `nuthatch ring` says. Least is a tenth."),
        vec![Who::Nuthatch, Who::Ideal],
    );
    table.compared = (Who::Nuthatch, Who::Ideal);
    let keys: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
    let scratch = Scratch::new()?;
    for distribution in
        ["ketama_weighted", "ketama", "twemproxy", "dalli", "pymemcache", "rendezvous", "jump", "modula"]
    {
        let place = |servers: u32| -> Result<BTreeMap<String, String>, Failure> {
            let file = scratch.path().join(format!("{servers}.toml"));
            let list: Vec<String> = (1..=servers).map(|number| format!("\"10.0.0.{number}:11211\"")).collect();
            let text = format!("[fleet.many]\nservers = [{}]\ndistribution = \"{distribution}\"\n", list.join(", "));
            fs::write(&file, text)
                .map_err(|error| Failure::run(format!("bench: expected to write {}: {error}", file.display())))?;
            let mut command = Command::new(contenders.nuthatch());
            let output = command.args(["ring", "--config"]).arg(&file).args(&keys).output().map_err(|error| {
                Failure::run(format!("bench: expected to run `nuthatch ring --config {}`: {error}", file.display()))
            })?;
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            let placed: BTreeMap<String, String> = lines
                .lines()
                .filter_map(|line| {
                    let mut words = line.split_whitespace().map(str::to_owned);
                    Some((words.next()?, words.next()?))
                })
                .collect();
            if placed.len() != keys.len() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Failure::run(format!(
                    "bench: expected a server of each key from `nuthatch ring` for {distribution}: {said}"
                )));
            }
            Ok(placed)
        };
        let (nine, ten) = (place(9)?, place(10)?);
        let moved = nine.iter().filter(|(key, server)| ten[*key] != **server).count() as f64 / f64::from(count);
        let samples =
            [(Who::Nuthatch, moved), (Who::Ideal, 0.1)].map(|(who, part)| Rounds { who, rounds: vec![part] }).to_vec();
        let mut row = Row::new(distribution, 4, samples);
        // modula moves nearly everything; it is there for clients that have it.
        row.bar = (distribution != "modula").then_some(Bar::AtMost(MOVED_BAR));
        table.rows.push(row);
    }
    table.command("nuthatch ring --config FILE key:0 key:1 ...".to_owned());
    Ok(Some(table))
}
