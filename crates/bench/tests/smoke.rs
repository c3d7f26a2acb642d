//! Every mode of `nuthatch bench` for a moment, against a server of its own, with the result checked: hits counted, bytes verified.

use std::process::{Command, Output};

use nuthatch_bench::{PagesTable, Replayed, Report, Table};
use nuthatch_testkit::origin::Origin;
use nuthatch_testkit::spawn::nuthatch_binary;
use nuthatch_testkit::{Address, Launch, Spawned};

fn bench(words: &[&str]) -> Output {
    Command::new(nuthatch_binary()).arg("bench").args(words).output().expect("the program runs")
}

/// Where `server` listens, as the program takes it.
fn place(server: &Spawned) -> String {
    match server.address() {
        Address::Tcp(port) => format!("127.0.0.1:{port}"),
        Address::Unix(path) => path.display().to_string(),
    }
}

fn json<T: serde::de::DeserializeOwned>(output: &Output) -> T {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn load(server: &Spawned, line: &str) -> Report {
    let (place, pid) = (place(server), server.pid().to_string());
    let mut words = vec!["--json", "--verify", "--server", &place, "--server-pid", &pid];
    words.extend(line.split_whitespace());
    let report: Report = json(&bench(&words));
    assert_eq!((report.errors, report.wrong), (0, 0), "{line}: {:?}", report.first_problem);
    report
}

#[test]
fn every_protocol_and_transport_finds_what_was_stored() {
    for launch in [Launch::memcached(), Launch::memcached().unix()] {
        let server = launch.workers(2).start();
        for protocol in ["text", "meta", "binary"] {
            for shape in ["-c 3", "-c 1", "-c 3 -t 2 -d 5", "-c 2 -w 7 -d 2"] {
                let line = format!("-p {protocol} -n 400 -k 500 -v 0-3000 --key-bytes 16-40 {shape}");
                let report = load(&server, &line);
                assert_eq!((report.requests, report.unsent), (400, 0), "{line}");
                assert!(report.gets > 0 && report.sets > 0, "{line}");
                assert_eq!(report.hits, report.gets, "{line}: everything was stored before the run");
                assert!(report.latency_us.p50 > 0.0 && report.latency_us.max >= report.latency_us.p999, "{line}");
            }
        }
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_count() {
    let server = Launch::memcached().start();
    for shape in ["-c 3", "-c 4 -t 2 --poisson", "-c 2 -d 8 -w 3"] {
        let report = load(&server, &format!("-n 200 -r 2000 -k 100 {shape}"));
        assert_eq!((report.requests, report.unsent), (200, 0));
        // 200 requests at 2000 in a second are due over 0.1 s; a busy machine may take longer, never less than half.
        assert!(report.seconds > 0.05, "{shape}: {}", report.seconds);
    }
}

#[test]
fn misses_are_filled_when_asked_for() {
    let server = Launch::memcached().start();
    let report = load(&server, "-m 0:1 -n 3000 -k 50 -c 1 --preload no");
    assert_eq!((report.hits, report.sets), (0, 0));
    let report = load(&server, "-m 0:1 -n 3000 -k 50 -c 1 --preload no --fill-misses");
    assert!(report.sets >= 40 && report.sets <= 50, "{} of 50 keys were stored", report.sets);
    assert_eq!(report.hits + report.sets, report.gets);
}

#[test]
fn deletes_make_misses_and_zipf_makes_few_keys_popular() {
    let server = Launch::memcached().start();
    let report = load(&server, "-m 0:5:5 -n 4000 -k 1000 -o zipf:1.1 -c 2");
    assert!(report.deletes > 1500 && report.hits > 0 && report.hits < report.gets);
    assert_eq!(report.requests, report.gets + report.deletes);
}

#[test]
fn a_duration_and_a_warm_up_are_kept() {
    let server = Launch::memcached().start();
    let report = load(&server, "-T 200ms --warmup 50ms -k 100 -c 2");
    assert!(report.seconds >= 0.2 && report.seconds < 10.0, "{}", report.seconds);
    let server_used = report.server.expect("its process was named");
    assert!(server_used.cpu_us_per_request > 0.0 && server_used.resident_bytes > 1 << 20);
    assert!(report.load_cpu_us_per_request > 0.0);
}

#[test]
fn every_value_is_stored_in_sequence_with_its_lifetime() {
    let server = Launch::debug().start();
    server.stop_clock();
    load(&server, "-m 1:0 -o sequential -k 120 -n 120 -c 7 --ttl 10,1000");
    let mut control = server.connect();
    assert_eq!(control.stat("curr_items"), 120);
    server.move_clock(11);
    let report = load(&server, "-m 0:1 -o sequential -k 120 -n 120 -c 1 --preload no --ttl 10,1000");
    assert!(report.hits > 30 && report.hits < 90, "about half of the items have expired: {}", report.hits);
}

#[test]
fn wrong_values_are_errors_of_the_run() {
    let server = Launch::memcached().start();
    load(&server, "-k 20 -n 20 -v 50");
    let output =
        bench(&["-s", &place(&server), "-k", "20", "-n", "50", "-m", "0:1", "-v", "60", "--preload", "no", "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.starts_with("nuthatch: bench: 0 errors, 50 wrong values; the first: key key:0000000000000000000"),
        "{errors}"
    );
    assert!(errors.ends_with(": 50 bytes came, expected 60\n"), "{errors}");
}

#[test]
fn a_server_that_is_not_there_is_one_sentence() {
    let output = bench(&["-s", "/no/such/socket", "-n", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "nuthatch: bench: expected to connect to unix:/no/such/socket (connection 1): No such file or directory (os error 2)\n"
    );
}

#[test]
fn a_replay_counts_hits_by_request_and_by_byte() {
    let server = Launch::memcached().start();
    let trace = server.dir().join("trace.csv");
    // Hits: a, a, b of 100, 100 and 1000 bytes; the repeated keys are met within one batch and across batches.
    std::fs::write(&trace, "key,size\na,100\na,100\nb,1000\nc,10\nb,1000\nd,50\na,100\n").unwrap();
    for (depth, protocol) in [("1", "text"), ("16", "meta"), ("3", "binary")] {
        server.connect().ask("flush_all");
        let (trace, place) = (trace.display().to_string(), place(&server));
        let output = bench(&["replay", &trace, "-s", &place, "-d", depth, "-p", protocol, "--verify", "--json"]);
        let replayed: Replayed = json(&output);
        assert_eq!((replayed.requests, replayed.hits, replayed.keys), (7, 3, 4), "depth {depth}");
        assert!((replayed.hit_ratio - 3.0 / 7.0).abs() < 1e-9);
        assert!((replayed.hit_ratio_bytes - 1200.0 / 2360.0).abs() < 1e-9);
        assert_eq!((replayed.refused, replayed.wrong), (0, 0));
    }
}

#[test]
fn a_replay_goes_on_when_a_value_is_refused() {
    let server = Launch::memcached().args(["-I", "4k"]).start();
    let trace = server.dir().join("trace.csv");
    std::fs::write(&trace, "a,9000\nb,10\na,9000\nb,10\n").unwrap();
    let output = bench(&["replay", &trace.display().to_string(), "-s", &place(&server), "--json"]);
    let replayed: Replayed = json(&output);
    assert_eq!((replayed.hits, replayed.refused), (1, 2));
    assert!(replayed.first_problem.unwrap().contains("too large"));
}

#[test]
fn the_drupal_table_is_made_over_both_transports() {
    let table: Table = json(&bench(&["cache-set-get-delete", "--entries", "20", "--rounds", "2", "--json"]));
    assert_eq!((table.operations, table.columns.len()), (100, 2));
    assert_eq!(table.columns[1].server, "UNIX socket");
    for column in table.columns {
        assert!(column.sets_ms > 0.0 && column.gets_ms > 0.0 && column.deletes_ms > 0.0);
    }
}

/// Nuthatch under memcached's name takes memcached's part, so that the test needs no other server.
#[test]
fn the_comparison_measures_every_part_and_writes_it_down() {
    let dir = tempfile::tempdir().unwrap();
    let memcached = dir.path().join("memcached");
    std::os::unix::fs::symlink(nuthatch_binary(), &memcached).unwrap();
    let (traces, out) = (dir.path().join("traces"), dir.path().join("results"));
    std::fs::create_dir(&traces).unwrap();
    std::fs::write(traces.join("tiny.csv"), "a,1\nb,2\na,1\na,1\n").unwrap();
    let place = |path: &std::path::Path| path.display().to_string();
    let output = bench(&[
        "compare",
        "--memcached",
        &place(&memcached),
        "--traces",
        &place(&traces),
        "--out",
        &place(&out),
        "--rounds",
        "1",
        "--seconds",
        "50ms",
        "--shrink",
        "1000",
        "--quiet",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8_lossy(&output.stdout);
    for (row, figure) in [
        ("| get, 1 connection | ", None),
        ("| 1 set to 10 gets, 50 connections, UNIX socket | ", None),
        ("| key 24 + value 30 bytes | ", None),
        ("| tiny, 24 MiB | ", Some("0.5000 | 0.5000 | 1.000 | \u{2264} 1.00, met |")),
        ("| then 4000-byte values | ", Some("1.0000 | 1.0000 | 1.000 |")),
        ("| hit ratio of the day's data | ", Some("1.0000 | 1.0000 | 1.000 |")),
        ("| start to first answer | ", None),
        ("| gets, UNIX socket | ", None),
        ("| get, 50 connections: answered by copies | ", None),
        ("| rendezvous | ", None),
        ("| slowest answer | ", None),
        ("| insert, 1 client, 32 records | ", None),
        ("| read, 32 clients, 32 records: S3 rows / S1 objects | ", None),
    ] {
        let line = page.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no row {row}: {page}"));
        if let Some(figure) = figure {
            assert_eq!(line[row.len()..], *figure);
        }
    }
    for line in page.lines().filter(|line| line.contains("cache-set-get-delete --entries")) {
        assert!(!line.contains("--server-pid"), "a command that cannot be typed: {line}");
    }
    assert!(!page.contains(dir.path().to_str().unwrap()), "commands name no place of this machine");
    let mut written: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    written.sort();
    // Pages are measured where there is a wrk, rows where there are databases.
    written.retain(|name| name != "pages.svg" && !name.to_string_lossy().starts_with("rows-"));
    assert_eq!(written.len(), 5, "a page and four pictures: {written:?}");
    assert_eq!(written[1..], ["cpu.svg", "items.svg", "misses.svg", "outage.svg"]);
    let outage = std::fs::read_to_string(out.join("outage.svg")).unwrap();
    assert!(outage.contains("polyline class=\"router\"") && outage.contains("polyline class=\"tier\""), "{outage}");
    for word in ["router.toml", "tier.toml", "nuthatch router / twemproxy", "nuthatch tier / nuthatch"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    // A ring's points, rendezvous and jump hashing do not depend on the machine.
    let row = page.lines().find(|line| line.starts_with("| rendezvous | ")).unwrap();
    assert!(row.ends_with(", met |"), "{row}");
}

#[test]
fn help_tells_of_every_mode() {
    let help = |words: &[&str]| String::from_utf8_lossy(&bench(words).stdout).into_owned();
    assert!(help(&["--help"]).contains("--server-pid <PID>"));
    assert!(help(&["replay", "--help"]).contains("Usage: nuthatch bench replay [OPTIONS] <TRACE>"));
    assert!(help(&["cache-set-get-delete", "-h"]).contains("--entries <N>"));
}

#[test]
fn readers_of_a_site_are_told_of_in_jmeters_table() {
    let origin = Origin::start(|request, answer| {
        let status = if request.target.starts_with("/none") { "404 Not Found" } else { "200 OK" };
        answer.reply(status, &[], "page".repeat(256));
    });
    let pages = [format!("{}/a", origin.url()), format!("{}/b?c", origin.url())];
    let words = ["pages", "-t", "3", "-n", "5", "-p", "2", "--ramp-up", "10ms", &pages[0], &pages[1]];
    let table: PagesTable = json(&bench(&[&words[..], &["--json"]].concat()));
    assert_eq!((table.samples, table.errors, table.first_problem), (30, 0, None));
    assert!(table.min_ms > 0.0 && table.min_ms <= table.median_ms && table.p90_ms <= table.max_ms);
    assert!(table.kb_per_second >= table.throughput, "each page has 1 kB and a head");
    assert_eq!((origin.count(), origin.connections()), (30, 3));
    assert!(origin.requests().iter().any(|request| request.target == "/b?c"), "pages are chosen by chance");

    let gone = format!("{}/none", origin.url());
    let output = bench(&["pages", "-t", "1", "-n", "4", &gone]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("100.0 %"), "{output:?}");
    let said = format!("nuthatch: bench: 4 of 4 pages failed; the first: {gone}: status 404\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), said);
}
