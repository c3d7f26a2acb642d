//! Bad input and bad times: each gets its answer, and the connection next to it notices nothing.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::binary::frame;
use crate::common::{Client, address, eventually, listener, settings, start};
use crate::neighbour::Neighbour;
use nuthatch_server::settings::{Address, Settings};

#[test]
fn malformed_binary_frames_are_refused_and_closed() {
    let server = start(settings());
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let header = |opcode: u8, key: u16, extras: u8, body: u32| {
        let mut bytes = vec![0x80, opcode];
        bytes.extend(key.to_be_bytes());
        bytes.extend([extras, 0, 0, 0]);
        bytes.extend(body.to_be_bytes());
        bytes.extend([0; 12]);
        bytes
    };
    let frames = [
        // CVE-2011-4971 and what followed it: a body of 4 GiB less one.
        header(0x01, 1, 8, u32::MAX),
        header(0x00, 250, 0, 0x8000_0000),
        // CVE-2016-8704: append with a key longer than the body.
        header(0x0e, 250, 0, 0),
        header(0x19, 0xffff, 0, 10),
        // CVE-2016-8705: update with extras and key longer than the body.
        header(0x01, 200, 8, 100),
        header(0x03, 250, 8, 0),
        // CVE-2016-8706: SASL with a key longer than the body.
        header(0x21, 200, 0, 1),
        // CVE-2020-10931: extras longer than any command has.
        header(0x05, 1, 255, 300),
        // CVE-2017-9951: a get with extras that are no key.
        header(0x00, 250, 255, 255),
        // Keys that do not exist and keys that are too long.
        header(0x00, 0, 0, 0),
        header(0x00, 251, 0, 251),
        // A get with a value.
        header(0x00, 1, 0, 1_000_000),
        // An answer where a request belongs.
        [vec![0x81], vec![0; 23]].concat(),
    ];
    for bytes in frames {
        let mut client = Client::connect(&server);
        client.call(&frame(0x0a, ""));
        client.send(&bytes);
        let mut rest = Vec::new();
        // Closed, whether or not with an answer; a reset is what closing with unread bytes looks like.
        let _ = client.stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest[0] == 0x81, "{bytes:?} was answered {rest:?}");
        neighbour.is_well();
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let server = start(settings());
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut client = Client::connect(&server);
        let mut bytes: Vec<u8> = (0..random() % 3000).map(|_| random() as u8).collect();
        if round % 2 == 0 && !bytes.is_empty() {
            bytes[0] = 0x80;
        }
        // The server may hang up at any byte of it.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let _ = client.stream.read_to_end(&mut Vec::new());
    }
    neighbour.is_well();
}

#[test]
fn a_client_that_vanishes_within_a_value_changes_nothing() {
    let server = start(settings());
    let mut neighbour = Neighbour::new(Client::connect(&server));
    for value_bytes in [100, 500_000] {
        let mut client = Client::connect(&server);
        client.ask("set key 0 0 3\r\nold\r\n", "STORED\r\n");
        client.send(format!("set key 0 0 {value_bytes}\r\nthe beginning of it"));
        drop(client);
        eventually(|| neighbour.0.number("curr_connections") == 1);
        neighbour.0.ask("get key\r\n", "VALUE key 0 3\r\nold\r\nEND\r\n");
    }
}

#[test]
fn a_client_that_never_reads_is_served_no_further_and_closed_in_the_end() {
    let server = start(settings());
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let value = "x".repeat(500_000);
    neighbour.0.ask(format!("set big 0 0 500000\r\n{value}\r\n"), "STORED\r\n");
    let mut deaf = Client::connect(&server);
    deaf.stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    // 10 GB of answers. The server stops reading long before that, and so these writes stop.
    let flood = "get big big big big big big big big big big\r\n".repeat(2000);
    let _ = deaf.stream.write_all(flood.as_bytes());
    neighbour.is_well();
    assert!(neighbour.0.number("bytes_written") < 100_000_000);
    assert_eq!(neighbour.0.stat("stats pools", "default:store_no_memory"), "0");
    // The clock is moved again and again: the connection may reach its standstill after the first time.
    eventually(|| {
        neighbour.0.ask("debugtime 40\r\n", "OK\r\n");
        neighbour.0.number("curr_connections") == 1
    });
    assert_eq!(neighbour.0.stat("stats listeners", &format!("{}:stall_kicks", address(&server, 0))), "1");
}

#[test]
fn clients_that_do_not_read_cannot_keep_a_full_store_from_taking_writes() {
    let mut small = settings();
    small.pools[0].memory_bytes = 8 << 20;
    let server = start(small);
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let value = "x".repeat(900_000);
    let mut deaf = Vec::new();
    // Nine such values fill the store.
    for n in 0..9 {
        neighbour.0.ask(format!("set key{n} 0 0 900000\r\n{value}\r\n"), "STORED\r\n");
        let mut client = Client::connect(&server);
        // More than the sockets' buffers take, so that the last values wait in the store.
        client.send(format!("get{}\r\n", format!(" key{n}").repeat(12)));
        deaf.push(client);
    }
    eventually(|| {
        neighbour.0.send("stats conns\r\n");
        neighbour.0.read_until("END\r\n").matches("conn_mwrite").count() == deaf.len()
    });
    let mut store = || {
        neighbour.0.send(format!("set other 0 0 900000\r\n{value}\r\n"));
        neighbour.0.read_until("\r\n")
    };
    assert_eq!(store(), "SERVER_ERROR out of memory storing object\r\n");
    eventually(|| store() == "STORED\r\n");
}

#[test]
fn a_value_that_stops_arriving_does_not_hold_its_memory_for_ever() {
    let server = start(settings());
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let mut client = Client::connect(&server);
    client.send("set big 0 0 500000\r\nonly this much");
    eventually(|| {
        neighbour.0.send("stats conns\r\n");
        neighbour.0.read_until("END\r\n").contains("conn_nread")
    });
    neighbour.0.ask("debugtime 100\r\n", "OK\r\n");
    client.expect_close();
    neighbour.is_well();
}

#[test]
fn one_connection_too_many_is_told_so_and_closed() {
    let server = start(Settings { connections_max: 3, ..settings() });
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    let mut refused = Client::connect(&server);
    refused.expect("ERROR Too many open connections\r\n");
    refused.expect_close();
    assert_eq!(clients[0].number("rejected_connections"), 1);
    assert_eq!(clients[0].number("curr_connections"), 3);
    drop(clients.pop());
    eventually(|| clients[0].number("curr_connections") == 2);
    Client::connect(&server).ask("mn\r\n", "MN\r\n");
}

#[test]
fn without_maxconns_fast_one_too_many_waits_for_its_turn() {
    let server = start(Settings { connections_max: 1, connections_max_fast: false, ..settings() });
    let mut first = Client::connect(&server);
    first.ask("mn\r\n", "MN\r\n");
    let mut second = Client::connect(&server);
    second.send("mn\r\n");
    eventually(|| first.number("listen_disabled_num") == 1);
    assert_eq!(first.number("accepting_conns"), 0);
    drop(first);
    second.expect("MN\r\n");
}

#[test]
fn an_idle_connection_is_closed_when_idling_is_limited() {
    let server = start(Settings { idle_timeout_seconds: 10, ..settings() });
    let mut idle = Client::connect(&server);
    idle.ask("mn\r\n", "MN\r\n");
    let mut busy = Client::connect(&server);
    busy.ask("debugtime 11\r\n", "OK\r\n");
    busy.ask("mn\r\n", "MN\r\n");
    idle.expect_close();
    eventually(|| busy.number("idle_kicks") == 1);
}

#[test]
fn requests_that_do_not_arrive_whole_share_one_budget() {
    let mut limited = settings();
    limited.buffers.read_bytes_max = 64 * 1024;
    let server = start(limited);
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let mut clients: Vec<_> = (0..60).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        // 6 KB each, of a value of 8,000 that does not come.
        client.send(format!("set key 0 0 8000\r\n{}", "x".repeat(6000)));
    }
    eventually(|| neighbour.0.number("read_buf_oom") > 0);
    neighbour.is_well();
    eventually(|| neighbour.0.number("curr_connections") < 20);
}

#[test]
fn authentication_over_text_survives_floods() {
    let file = std::env::temp_dir().join(format!("nuthatch-auth-file-{}", std::process::id()));
    std::fs::write(&file, "anna:secret\n").expect("a password file");
    let server = start(Settings { auth_file: Some(file.clone()), ..settings() });
    let mut client = Client::connect(&server);
    client.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask("mg key\r\n".repeat(3), "CLIENT_ERROR unauthenticated\r\n".repeat(3));
    client.ask("set a 0 0 10\r\nanna wrong\r\n", "CLIENT_ERROR authentication failure\r\n");
    client.ask("set a 0 0 4\r\nanna\r\n", "CLIENT_ERROR bad authentication token format\r\n");
    client.ask("set a 0 0 11\r\nanna secret\r\n", "STORED\r\n");
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    assert_eq!((client.number("auth_cmds"), client.number("auth_errors")), (2, 1));
    let mut giant = Client::connect(&server);
    giant.ask("set a 0 0 2000000000\r\n", "CLIENT_ERROR auth token too long\r\n");
    giant.ask("set a 0 0 11\r\nanna secret\r\n", "STORED\r\n");
    let mut empty = Client::connect(&server);
    empty.send("\n".repeat(5000));
    empty.expect_close();
    let mut endless = Client::connect(&server);
    endless.send("x".repeat(5000));
    endless.expect_close();
    let mut binary = Client::connect(&server);
    binary.send(frame(0x00, "a").bytes());
    binary.stream.shutdown(std::net::Shutdown::Write).expect("shut down");
    binary.expect_close();
    std::fs::remove_file(file).expect("the password file");
}

#[test]
fn a_dump_for_a_client_that_does_not_read_waits_and_a_watcher_that_left_is_forgotten() {
    let server = start(settings());
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let mut batch = String::new();
    for n in 0..50_000 {
        batch += &format!("set key-{n:0>100} 0 0 1 noreply\r\nx\r\n");
    }
    neighbour.0.send(batch);
    neighbour.is_well();
    let mut deaf = Client::connect(&server);
    deaf.send("lru_crawler metadump all\r\n");
    let mut watcher = Client::connect(&server);
    watcher.ask("watch fetchers mutations\r\n", "OK\r\n");
    neighbour.is_well();
    drop(watcher);
    eventually(|| neighbour.0.number("log_watchers") == 0);
    neighbour.is_well();
    // The dump goes on where it waited, to the end.
    deaf.expect("OK\r\n");
    let dump = deaf.read_until("END\r\n");
    assert_eq!(dump.lines().filter(|line| line.starts_with("key=")).count(), 50_001);
    deaf.ask("mn\r\n", "MN\r\n");
}

#[test]
fn datagrams_that_are_no_request_are_dropped_without_a_word() {
    let udp = Address::Udp("127.0.0.1:0".parse().expect("an address"));
    let mut listeners = vec![listener(0), listener(0)];
    listeners[1].address = udp;
    let server = start(Settings { listeners, ..settings() });
    let mut neighbour = Neighbour::new(Client::connect(&server));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address(&server, 1)).expect("connected");
    socket.set_read_timeout(Some(crate::common::PATIENCE)).expect("a timeout");
    let bad: [&[u8]; 5] = [
        b"",
        b"short",
        // CVE-2022-48571: one part of several.
        b"\0\x01\0\0\0\x02\0\0get neighbour\r\n",
        b"\0\x01\0\x01\0\0\0\0get neighbour\r\n",
        b"\0\x01\0\0\0\x01\0\0watch fetchers\r\n",
    ];
    for datagram in bad {
        socket.send(datagram).expect("sent");
    }
    socket.send(b"\x12\x34\0\0\0\x01\0\0get neighbour\r\n").expect("sent");
    let mut answer = [0; 2000];
    let bytes = socket.recv(&mut answer).expect("an answer");
    assert_eq!(&answer[..bytes], b"\x12\x34\0\0\0\x01\0\0VALUE neighbour 0 2\r\nok\r\nEND\r\n");
    assert_eq!(neighbour.0.number("log_watchers"), 0);

    // An answer of several datagrams, which may come in any order.
    let value = "v".repeat(5000);
    neighbour.0.ask(format!("set big 0 0 5000\r\n{value}\r\n"), "STORED\r\n");
    socket.send(b"\x00\x07\0\0\0\x01\0\0get big\r\n").expect("sent");
    let mut parts = std::collections::BTreeMap::new();
    for _ in 0..4 {
        let bytes = socket.recv(&mut answer).expect("a part");
        assert!(bytes <= 1400);
        assert_eq!((answer[..2].to_vec(), answer[4..6].to_vec()), (vec![0, 7], vec![0, 4]));
        parts.insert(answer[3], answer[8..bytes].to_vec());
    }
    let whole: Vec<u8> = parts.into_values().flatten().collect();
    assert_eq!(whole, format!("VALUE big 0 5000\r\n{value}\r\nEND\r\n").into_bytes());
}
