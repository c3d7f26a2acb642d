//! The binary protocol against a server in this process.

use std::io::Write;

use crate::common::binary::frame;
use crate::common::{Client, settings, start};

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const DECREMENT: u8 = 0x06;
const QUIT: u8 = 0x07;
const FLUSH: u8 = 0x08;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;
const PREPEND: u8 = 0x0f;
const STAT: u8 = 0x10;
const SETQ: u8 = 0x11;
const ADDQ: u8 = 0x12;
const DELETEQ: u8 = 0x14;
const TOUCH: u8 = 0x1c;
const GAT: u8 = 0x1d;
const SASL_LIST: u8 = 0x20;
const SASL_AUTH: u8 = 0x21;
const GATKQ: u8 = 0x24;

/// Flags and exptime of a storage request.
fn stored(flags: u32, exptime: u32) -> Vec<u8> {
    [flags.to_be_bytes(), exptime.to_be_bytes()].concat()
}

/// Delta, initial value and exptime of a counting request.
fn counted(delta: u64, initial: u64, exptime: u32) -> Vec<u8> {
    [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat()
}

#[test]
fn storage_modes_and_cas() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let set = client.call(&frame(SET, "bird").extras(stored(5, 0)).value("nuthatch"));
    assert_eq!((set.status, set.opaque, set.opcode), (0, 0xdead_beef, SET));
    assert_ne!(set.cas, 0);
    let get = client.call(&frame(GET, "bird"));
    assert_eq!((get.status, get.cas, get.text().as_str()), (0, set.cas, "nuthatch"));
    assert_eq!((get.extras, get.key.len()), (5u32.to_be_bytes().to_vec(), 0));
    assert_eq!(client.call(&frame(GETK, "bird")).key, b"bird");

    assert_eq!(client.call(&frame(ADD, "bird").extras(stored(0, 0)).value("x")).status, 2);
    assert_eq!(client.call(&frame(REPLACE, "crow").extras(stored(0, 0)).value("x")).status, 1);
    assert_eq!(client.call(&frame(APPEND, "crow").value("x")).status, 5);
    assert_eq!(client.call(&frame(PREPEND, "crow").value("x")).status, 5);

    let wrong = frame(SET, "bird").extras(stored(0, 0)).value("x").cas(set.cas + 1);
    assert_eq!(client.call(&wrong).status, 2);
    let absent = frame(SET, "crow").extras(stored(0, 0)).value("x").cas(1);
    assert_eq!(client.call(&absent).status, 1);
    let right = client.call(&frame(SET, "bird").extras(stored(0, 0)).value("b").cas(set.cas));
    assert_eq!(right.status, 0);
    assert_eq!(client.call(&frame(APPEND, "bird").value("c").cas(set.cas)).status, 2);
    assert_eq!(client.call(&frame(APPEND, "bird").value("c")).status, 0);
    assert_eq!(client.call(&frame(PREPEND, "bird").value("a")).status, 0);
    assert_eq!(client.call(&frame(GET, "bird")).text(), "abc");

    assert_eq!(client.call(&frame(DELETE, "bird").cas(1)).status, 2);
    assert_eq!(client.call(&frame(DELETE, "bird")).status, 0);
    let miss = client.call(&frame(GET, "bird"));
    assert_eq!((miss.status, miss.text().as_str()), (1, "Not found"));
    let miss = client.call(&frame(GETK, "bird"));
    assert_eq!((miss.status, &miss.key[..], miss.value.len()), (1, &b"bird"[..], 0));
}

#[test]
fn quiet_requests_are_answered_only_when_something_is_out_of_the_ordinary() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.send(frame(SETQ, "a").extras(stored(0, 0)).value("1").bytes());
    client.send(frame(GETQ, "none").bytes());
    client.send(frame(GETKQ, "none").bytes());
    client.send(frame(GATKQ, "none").extras(0u32.to_be_bytes()).bytes());
    client.send(frame(ADDQ, "a").extras(stored(0, 0)).value("2").bytes());
    assert_eq!(client.answer().status, 2, "the failed add is the first to be answered");
    client.send(frame(GETKQ, "a").bytes());
    let hit = client.answer();
    assert_eq!((hit.status, &hit.key[..], hit.text().as_str()), (0, &b"a"[..], "1"));
    client.send(frame(DELETEQ, "a").bytes());
    client.send(frame(DELETEQ, "a").bytes());
    assert_eq!(client.answer().status, 1, "the second delete finds nothing");
    assert_eq!(client.call(&frame(NOOP, "")).opcode, NOOP);
}

#[test]
fn counting_creates_wraps_and_stops_at_zero() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let number = |value: &[u8]| u64::from_be_bytes(value.try_into().expect("8 bytes"));
    assert_eq!(client.call(&frame(INCREMENT, "n").extras(counted(1, 0, u32::MAX))).status, 1);
    let made = client.call(&frame(INCREMENT, "n").extras(counted(1, 10, 0)));
    assert_eq!((made.status, number(&made.value)), (0, 10));
    assert_eq!(number(&client.call(&frame(INCREMENT, "n").extras(counted(5, 0, 0))).value), 15);
    assert_eq!(number(&client.call(&frame(DECREMENT, "n").extras(counted(50, 0, 0))).value), 0);
    assert_eq!(number(&client.call(&frame(INCREMENT, "n").extras(counted(u64::MAX, 0, 0))).value), u64::MAX);
    assert_eq!(number(&client.call(&frame(INCREMENT, "n").extras(counted(2, 0, 0))).value), 1);
    assert_eq!(client.call(&frame(SET, "t").extras(stored(0, 0)).value("text")).status, 0);
    assert_eq!(client.call(&frame(INCREMENT, "t").extras(counted(1, 0, 0))).status, 6);
}

#[test]
fn touch_and_gat_move_the_expiry() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let mut operator = Client::connect(&server);
    assert_eq!(client.call(&frame(TOUCH, "a").extras(10u32.to_be_bytes())).status, 1);
    client.call(&frame(SET, "a").extras(stored(7, 10)).value("x"));
    let touched = client.call(&frame(TOUCH, "a").extras(100u32.to_be_bytes()));
    assert_eq!((touched.status, touched.extras, touched.value.len()), (0, 7u32.to_be_bytes().to_vec(), 0));
    operator.ask("debugtime 50\r\n", "OK\r\n");
    assert_eq!(client.call(&frame(GAT, "a").extras(1u32.to_be_bytes())).text(), "x");
    operator.ask("debugtime 5\r\n", "OK\r\n");
    assert_eq!(client.call(&frame(GET, "a")).status, 1);
}

#[test]
fn a_large_value_goes_both_ways() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let value: Vec<u8> = (0..900_000u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(client.call(&frame(SET, "big").extras(stored(0, 0)).value(&value)).status, 0);
    assert_eq!(client.call(&frame(GET, "big")).value, value);
    let too_large = vec![b'x'; 2_000_000];
    assert_eq!(client.call(&frame(SET, "big").extras(stored(0, 0)).value(&too_large)).status, 3);
    assert_eq!(client.call(&frame(GET, "big")).status, 1, "the refused set left no stale value");
}

#[test]
fn version_stat_flush_and_quit() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    assert_eq!(client.call(&frame(VERSION, "")).text(), "1.6.45");
    client.call(&frame(SET, "a").extras(stored(0, 0)).value("x"));
    client.send(frame(STAT, "").bytes());
    let mut names = Vec::new();
    loop {
        let stat = client.answer();
        if stat.key.is_empty() {
            break;
        }
        names.push(String::from_utf8(stat.key).expect("text"));
    }
    assert_eq!(names[0], "pid");
    assert!(names.contains(&"curr_items".to_owned()));
    assert_eq!(client.call(&frame(STAT, "nonsense")).status, 1);
    assert!(client.call(&frame(STAT, "reset")).key.is_empty());
    assert_eq!(client.call(&frame(FLUSH, "")).status, 0);
    assert_eq!(client.call(&frame(GET, "a")).status, 1);
    assert_eq!(client.call(&frame(0x1b, "").extras([0, 0, 0, 1])).status, 0x81, "memcached knows no verbosity either");
    assert_eq!(client.call(&frame(SASL_LIST, "")).status, 0x81, "without -S there is nothing to authenticate to");
    assert_eq!(client.call(&frame(0x77, "whatever").value("some body")).status, 0x81);
    assert_eq!(client.call(&frame(QUIT, "")).status, 0);
    client.expect_close();
}

#[test]
fn sasl_lets_in_who_knows_the_password_and_nobody_after_a_failed_attempt() {
    let file = std::env::temp_dir().join(format!("nuthatch-sasl-{}", std::process::id()));
    std::fs::File::create(&file).and_then(|mut file| file.write_all(b"anna:secret\n")).expect("a password file");
    let server = start(nuthatch_server::settings::Settings { sasl_file: Some(file.clone()), ..settings() });
    let mut client = Client::connect(&server);
    assert_eq!(client.call(&frame(SASL_LIST, "")).text(), "PLAIN");
    assert_eq!(client.call(&frame(VERSION, "")).status, 0);
    assert_eq!(client.call(&frame(SASL_AUTH, "PLAIN").value("\0anna\0wrong")).status, 0x20);
    assert_eq!(client.call(&frame(SASL_AUTH, "PLAIN").value("\0anna\0secret")).text(), "Authenticated");
    assert_eq!(client.call(&frame(SET, "a").extras(stored(0, 0)).value("x")).status, 0);
    // CVE-2013-7239: a failed attempt must not leave an earlier one in force.
    assert_eq!(client.call(&frame(SASL_AUTH, "PLAIN").value("\0anna\0wrong")).status, 0x20);
    assert_eq!(client.call(&frame(GET, "a")).status, 0x20);
    client.expect_close();
    let mut stranger = Client::connect(&server);
    assert_eq!(stranger.call(&frame(GET, "a")).status, 0x20);
    stranger.expect_close();
    let mut text = Client::connect(&server);
    text.send("get a\r\n");
    text.expect_close();
    std::fs::remove_file(file).expect("the password file");
}

#[test]
fn reserved_keys_forget_by_increment_and_delete_quiet_or_not() {
    let mut settings = settings();
    settings.pools[0].reserved_keys = true;
    let server = start(settings);
    let mut client = Client::connect(&server);
    let mut numbers = Vec::new();
    for (opcode, is_quiet) in [(INCREMENT, false), (DELETE, false), (DELETEQ, true), (INCREMENT, false)] {
        client.call(&frame(SET, "bin:a").extras(stored(0, 0)).value("1"));
        assert_eq!(client.call(&frame(GET, "bin:a")).status, 0);
        let extras = if opcode == INCREMENT { counted(1, 0, 0) } else { Vec::new() };
        let forget = frame(opcode, "nuthatch:forget:prefix:bin:").extras(extras);
        if is_quiet {
            client.send(forget.bytes());
        } else {
            let answer = client.call(&forget);
            assert_eq!(answer.status, 0);
            if opcode == INCREMENT {
                numbers.push(u64::from_be_bytes(answer.value.try_into().unwrap()));
            }
        }
        assert_eq!(client.call(&frame(GET, "bin:a")).status, 1);
    }
    assert!(numbers[0] < numbers[1], "it rises: {numbers:?}");
    assert_eq!(client.call(&frame(DELETE, "nuthatch:forget:prefix:bin")).status, 1);
}
