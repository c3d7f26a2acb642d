//! How much fits, and what happens to memory when the workload changes or data expires.

use super::Settings;
use super::contenders::{Contenders, Place, Server, Start};
use super::measure::{Bench, in_turns, pick};
use super::write::{Bar, Chart, Row, Table};
use crate::failure::Failure;

/// Key and value lengths, and at least how many times memcached's number of items.
const SIZES: [(u32, u32, f64); 4] = [(24, 30, 1.60), (24, 100, 1.33), (40, 300, 1.30), (40, 1500, 1.15)];
const MEMORY_MIB: u32 = 256;

/// No item costs less than this besides its key and value, on any server worth comparing: so this many sets fill the memory.
const OVERHEAD_BYTES_MIN: u64 = 8;
const FILL_FACTOR: f64 = 1.4;

/// Memory for the parts about change and expiry.
const MEMORY_MIB_CHANGE: u32 = 64;
/// What memcached spends on an item besides key and value, generously; working sets are sized to fit either server.
const OVERHEAD_BYTES_MAX: u64 = 100;

/// With tests' small sizes, no server can do with less.
const MEMORY_MIB_MIN: u32 = 8;

fn memory_mib(full: u32, settings: &Settings) -> u32 {
    (full / settings.shrink).max(MEMORY_MIB_MIN)
}

/// Items found again after more were stored than fit, and the memory used then.
pub(super) fn items(settings: &Settings, contenders: &Contenders, bench: &mut Bench) -> Result<Option<Table>, Failure> {
    let who = contenders.both().to_vec();
    let memory_mib = memory_mib(MEMORY_MIB, settings);
    let start = Start { place: Place::Anywhere, memory_mib, is_unix: true, ..Start::on_one_core() };
    let mut table = Table::new(
        "Items held",
        &format!(
            "Items found again, for each MiB of `-m {memory_mib}`, after {FILL_FACTOR} times what could fit was stored, and the \
             resident memory in MiB then. Every key that was stored is asked for."
        ),
        who.clone(),
    );
    table.chart = Some(Chart { name: "items", caption: " in a MiB of memory, more is better" });
    table.servers(contenders, start);
    let mut resident = Vec::new();
    for (key_bytes, value_bytes, bar) in SIZES {
        let name = format!("key {key_bytes} + value {value_bytes} bytes");
        bench.say(&format!("items: {name}"));
        let each = u64::from(key_bytes + value_bytes) + OVERHEAD_BYTES_MIN;
        let count = (u64::from(memory_mib) << 20) as f64 / each as f64 * FILL_FACTOR;
        // A multiple of connections and width, so that the gets meet every key once.
        let count = (count as u64).next_multiple_of(200);
        let size = format!("-k {count} --key-bytes {key_bytes} -v {value_bytes} -o sequential -c 4 -q");
        let fill = format!("-m 1:0 -n {count} -d 64 {size}");
        let find = format!("-m 0:1 -n {} -w 50 --preload no {size}", count / 50);
        let reports = in_turns(contenders, &who, start, 1, |server| {
            bench.load(server, Place::Anywhere, &fill)?;
            bench.load(server, Place::Anywhere, &find)
        })?;
        let mut row = Row::new(&name, 0, pick(&reports, |report| report.hits as f64 / f64::from(memory_mib)));
        row.bar = Some(Bar::AtLeast(bar));
        table.rows.push(row);
        let mut row = Row::new(
            &format!("resident, {name}"),
            1,
            pick(&reports, |report| report.server.map_or(f64::NAN, |server| server.resident_bytes as f64 / 1048576.0)),
        );
        row.bar = Some(Bar::AtMost(1.0));
        row.charted = false;
        resident.push(row);
        table.load(Place::Anywhere, &fill, true);
        table.load(Place::Anywhere, &find, true);
    }
    table.rows.extend(resident);
    Ok(Some(table))
}

/// Keys of a working set that fits `part` of the memory on either server.
fn keys(memory_mib: u32, part: f64, key_bytes: u64, value_bytes: u64) -> u64 {
    let each = (key_bytes + value_bytes + OVERHEAD_BYTES_MAX) as f64 * 1.15;
    ((u64::from(memory_mib) << 20) as f64 * part / each) as u64
}

/// Small items, then large ones, then small ones again.
pub(super) fn change(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    bench.say("change: small items, large items, small items again");
    let who = contenders.both().to_vec();
    let memory_mib = memory_mib(MEMORY_MIB_CHANGE, settings);
    let start = Start { place: Place::Anywhere, memory_mib, is_unix: true, ..Start::on_one_core() };
    let mut table = Table::new(
        "A workload that changes",
        &format!(
            "Hit ratio at `-m {memory_mib}` after one cache-full of sets, over and over, of a working set that fits 60 % of \
             the memory: of small values, then of large ones, then of small ones again."
        ),
        who.clone(),
    );
    // Keys of another length are other keys.
    let mut phases = Vec::new();
    for (name, key_bytes, value_bytes) in
        [("50-byte values", 24, 50), ("then 4000-byte values", 25, 4000), ("then 50-byte values again", 26, 50)]
    {
        let count = keys(memory_mib, 0.6, key_bytes, value_bytes);
        let full = (u64::from(memory_mib) << 20) / (key_bytes + value_bytes);
        let size = format!("-k {count} --key-bytes {key_bytes} -v {value_bytes} -c 4 -q");
        let fill = format!("-m 1:0 -n {full} -o sequential -d 16 {size}");
        let find = format!("-m 0:1 -n {count} --preload no -o sequential -d 16 {size}");
        phases.push((name, fill, find));
    }
    let ratios = in_turns(contenders, &who, start, 1, |server| {
        let mut ratios = Vec::new();
        for (_, fill, find) in &phases {
            bench.load(server, Place::Anywhere, fill)?;
            ratios.push(bench.load(server, Place::Anywhere, find)?.hit_ratio.unwrap_or(0.0));
        }
        Ok(ratios)
    })?;
    table.servers(contenders, start);
    for (index, (name, fill, find)) in phases.iter().enumerate() {
        table.rows.push(Row::new(name, 4, pick(&ratios, |ratios| ratios[index])));
        table.load(Place::Anywhere, fill, true);
        table.load(Place::Anywhere, find, true);
    }
    Ok(Some(table))
}

/// Data that lives for a day beside a stream of data that lives for five seconds.
pub(super) fn expiry(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    bench.say("expiry: a day's data beside a stream that expires");
    let memory_mib = memory_mib(MEMORY_MIB_CHANGE, settings);
    let start = Start { place: Place::Anywhere, memory_mib, is_unix: true, ..Start::on_one_core() };
    let (key_bytes, value_bytes, ttl_seconds) = (24, 500, 5);
    let live = keys(memory_mib, 0.6, key_bytes, value_bytes);
    let stream_alive = keys(memory_mib, 0.15, key_bytes, value_bytes);
    let rate = (stream_alive / ttl_seconds).max(1);
    let seconds = 24.0 / f64::from(settings.shrink);
    let store = format!("-m 1:0 -n {live} -k {live} --ttl 86400 -o sequential -v {value_bytes} -c 4 -q");
    let stream = format!(
        "-m 1:0 -r {rate} -T {seconds} -k 10000000 --key-bytes 25 --ttl {ttl_seconds} -o sequential -v {value_bytes} -c 1 -q"
    );
    let find = format!("-m 0:1 -n {live} -k {live} --preload no -o sequential -v {value_bytes} -c 4 -q");
    let who = contenders.both().to_vec();
    let all = |server: &Server| {
        bench.load(server, Place::Anywhere, &store)?;
        bench.load(server, Place::Anywhere, &stream)?;
        bench.load(server, Place::Anywhere, &find)
    };
    let reports = in_turns(contenders, &who, start, 1, all)?;
    let mut table = Table::new(
        "Expired data beside live data",
        &format!(
            "What is found at `-m {memory_mib}` of data that lives for a day and takes up 60 % of the memory, after {seconds} s of \
             {rate} sets a second that each live for {ttl_seconds} s: never more than 15 % of the memory alive at once, {:.0} % \
             in all.",
            15.0 * seconds / ttl_seconds as f64
        ),
        who,
    );
    table.rows.push(Row::new(
        "hit ratio of the day's data",
        4,
        pick(&reports, |report| report.hit_ratio.unwrap_or(0.0)),
    ));
    table.servers(contenders, start);
    for flags in [&store, &stream, &find] {
        table.load(Place::Anywhere, flags, true);
    }
    Ok(Some(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_sets_fit_the_memory() {
        let count = keys(64, 0.6, 24, 50);
        assert!(count > 100_000 && count * (24 + 50 + 100) < 64 << 20, "{count}");
        let settings = Settings { shrink: 100, ..crate::flags::tests::defaults() };
        assert_eq!(
            (memory_mib(256, &settings), memory_mib(256, &crate::flags::tests::defaults::<Settings>())),
            (8, 256)
        );
    }
}
