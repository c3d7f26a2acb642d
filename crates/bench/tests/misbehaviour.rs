//! The load generator against servers that stall, fall silent, close, or answer with something else: played by a thread of the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use nuthatch_bench::Report;
use nuthatch_testkit::spawn::nuthatch_binary;

/// A server of one connection, answering each `get` with what `answer` says to its number; `None` closes.
fn server(mut answer: impl FnMut(u32) -> Option<&'static [u8]> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut count, mut buf) = (0, [0; 4096]);
        while let Ok(received @ 1..) = stream.read(&mut buf) {
            for _ in buf[..received].iter().filter(|&&byte| byte == b'\n') {
                count += 1;
                let Some(bytes) = answer(count) else { return };
                if !send(&mut stream, bytes) {
                    return;
                }
            }
        }
    });
    place
}

fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

fn bench(place: &str, line: &str) -> Output {
    let fixed = ["bench", "-s", place, "-c", "1", "-m", "0:1", "--preload", "no", "--json"];
    Command::new(nuthatch_binary()).args(fixed).args(line.split_whitespace()).output().expect("the program runs")
}

fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const MISS: Option<&[u8]> = Some(b"END\r\n");

/// A stall holds up one request of a closed loop. In an open loop it holds up all that were due meanwhile, and they say so.
#[test]
fn a_stall_is_felt_by_every_request_it_held_up() {
    let stall = |number| {
        if number == 50 {
            thread::sleep(Duration::from_millis(200));
        }
        MISS
    };
    let latencies = |line: &str| {
        let output = bench(&server(stall), line);
        let report: Report = serde_json::from_slice(&output.stdout).expect("a result");
        assert_eq!((report.requests, report.gets, report.hits), (200, 200, 0));
        report.latency_us
    };
    let closed = latencies("-n 200");
    assert!(closed.max > 190_000.0 && closed.p90 < 100_000.0, "{closed:?}");
    // 1000 requests in a second: of 200, a hundred and more were due in those 200 ms.
    let open = latencies("-n 200 -r 1000");
    assert!(open.max > 190_000.0 && open.p90 > 100_000.0, "{open:?}");
}

#[test]
fn a_rate_that_the_server_cannot_keep_is_told_with_what_was_not_sent() {
    let slow = |_| {
        thread::sleep(Duration::from_millis(20));
        MISS
    };
    let output = bench(&server(slow), "-T 100ms -r 10000");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a result");
    assert!(report.unsent > 500 && report.requests < 500, "{report:?}");
    // About a thousand were due: all of them were answered or are accounted for.
    assert!((900..=1100).contains(&(report.requests + report.unsent)), "{report:?}");
}

#[test]
fn a_server_that_falls_silent_is_given_up_on() {
    for line in ["-n 10", "-n 10 -d 200 -v 1000", "-n 10 -r 1000"] {
        let silent = |number| Some(if number > 3 { &b""[..] } else { b"END\r\n" });
        let said = sentence(&bench(&server(silent), &format!("{line} --timeout 100ms")));
        let known = [
            "nuthatch: bench: connection 1 of 1: the server did not answer in time\n",
            "nuthatch: bench: no answer came within 0.1 s\n",
        ];
        assert!(known.contains(&said.as_str()), "{line}: {said}");
    }
}

#[test]
fn a_server_that_closes_or_answers_nonsense_ends_the_run_with_a_sentence() {
    let closing = |number| if number > 3 { None } else { MISS };
    for line in ["-n 10", "-n 10 -r 1000"] {
        let said = sentence(&bench(&server(closing), line));
        assert_eq!(said, "nuthatch: bench: connection 1 of 1: the server closed the connection\n");
    }
    let other = |_| Some(&b"HTTP/1.1 400 Bad Request\r\n"[..]);
    assert_eq!(
        sentence(&bench(&server(other), "-n 10")),
        "nuthatch: bench: connection 1 of 1: HTTP/1.1 400 Bad Request is no answer to a get\n"
    );
    let chatty = |_| Some(&b"END\r\nEND\r\n"[..]);
    assert_eq!(
        sentence(&bench(&server(chatty), "-n 10")),
        "nuthatch: bench: connection 1 of 1: the server sent more than it was asked for\n"
    );
}

#[test]
fn errors_are_counted_and_the_first_is_shown() {
    let failing = |number| Some(if number % 2 == 0 { &b"SERVER_ERROR out of memory\r\n"[..] } else { b"END\r\n" });
    let output = bench(&server(failing), "-n 10");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!((report.requests, report.errors, report.hits), (10, 5, 0));
    assert_eq!(
        sentence(&output),
        "nuthatch: bench: 5 errors, 0 wrong values; the first: the server answered SERVER_ERROR out of memory\n"
    );
}
