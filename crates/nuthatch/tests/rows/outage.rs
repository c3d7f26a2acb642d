//! The database is down: what is in memory is served for the rest of its life and its grace, whatever else is asked is answered with
//! the reason, and in time.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nuthatch_testkit::database::Database;

use crate::servers::{Got, Nuthatch, Wire, signal_all};

/// `timeout` of the table, as by default, and what a busy machine takes besides.
const DEADLINE: Duration = Duration::from_secs(1 + 4);

/// Asks what only the database can answer; rows that would be written begin with `name`.
fn refusals_in_time(client: &mut Wire, name: &str) {
    let set = format!("set {name}-set 0 0 1\r\nx\r\n");
    let add = format!("add {name}-added 0 0 1\r\nx\r\n");
    for request in [&set, &add, "incr n 1\r\n", "delete n\r\n", "touch n 10\r\n"] {
        let began = Instant::now();
        let answer = client.ask(request).expect("an answer");
        assert!(answer.starts_with("SERVER_ERROR ") && answer.contains("/test"), "{request:?}: {answer}");
        assert!(began.elapsed() < DEADLINE, "{request:?} was answered after {:?}", began.elapsed());
    }
    let began = Instant::now();
    let Got::Refused(answer) = client.get("get", "uncached").expect("an answer") else { panic!("it is not cached") };
    assert!(answer.starts_with("SERVER_ERROR ") && answer.contains("/test"), "{answer}");
    assert!(began.elapsed() < DEADLINE, "a read was answered after {:?}", began.elapsed());
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn an_outage(mut database: Database, scheme: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    database.sql("CREATE TABLE birds (id VARCHAR(40) PRIMARY KEY, body TEXT, cas BIGINT NOT NULL DEFAULT 0)");
    let mut server = Nuthatch::new(dir.path(), "a", &database.url());
    if scheme == "postgres" {
        database.sql(&server.triggers());
    }
    server.start();
    let mut client = Wire::new(server.socket());
    for (key, value) in [("n", "7"), ("kept", "old")] {
        assert_eq!(client.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())).expect("an answer"), "STORED");
    }
    let is_kept =
        |client: &mut Wire| client.get("get", "kept").is_ok_and(|got| got == Got::Value("old".to_owned(), None));
    // Once changes are heard of, nothing is forgotten but what changes.
    let follows = |client: &mut Wire| {
        client.stat("stats pools", "birds:tier_stream").is_ok_and(|state| state == "following") && is_kept(client)
    };
    // MariaDB tells twice of what was written while its log was opened: what is read between the two is forgotten again.
    eventually("changes are heard of, and a copy is there when the database is paused", || {
        if !follows(&mut client) {
            return false;
        }
        signal_all(&database, Signal::SIGSTOP);
        let is_there = is_kept(&mut client);
        if !is_there {
            signal_all(&database, Signal::SIGCONT);
        }
        is_there
    });
    refusals_in_time(&mut client, "paused");
    assert!(is_kept(&mut client));
    signal_all(&database, Signal::SIGCONT);
    eventually("it is found again", || client.ask("set n 0 0 1\r\n7\r\n").is_ok_and(|answer| answer == "STORED"));
    eventually("changes are heard of again", || follows(&mut client));

    database.kill();
    assert!(is_kept(&mut client));
    refusals_in_time(&mut client, "gone");
    assert!(is_kept(&mut client));
    database.start();
    eventually("it is found again", || client.ask("set again 0 0 1\r\n1\r\n").is_ok_and(|answer| answer == "STORED"));
    // Nothing was queued: what was refused did not happen later.
    assert_eq!(database.sql("SELECT id FROM birds WHERE id LIKE 'gone%'"), "");
    assert_eq!(database.sql("SELECT body FROM birds WHERE id = 'n'"), "7\n");
}

#[test]
fn an_outage_of_mariadb_is_told_in_time_and_copies_are_served() {
    an_outage(Database::mariadb(&["--log-bin", "--binlog-format=ROW"]), "mysql");
}

#[test]
fn an_outage_of_postgresql_is_told_in_time_and_copies_are_served() {
    an_outage(Database::postgres(&[]), "postgres");
}
