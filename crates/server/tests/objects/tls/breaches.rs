//! Clients that break the rules of TLS or do their part of it slowly: what becomes of them, what they hold meanwhile, and that
//! the connection next to theirs notices nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use nuthatch_server::settings::Settings;

use crate::common::tls::{Authority, VERSIONS, beside, connect};
use crate::common::{Client, address, eventually, start};
use crate::neighbour::Neighbour;

#[test]
fn a_client_that_does_not_finish_its_handshake_is_closed() {
    let authority = Authority::new();
    let server = start(Settings { connections_max: 5, ..authority.settings(authority.tls()) });
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let mut beside = beside(&server);
    let mut silent = Client::connect(&server);
    let mut slow = Client::connect(&server);
    // A record of 512 bytes of which one is there.
    slow.send([0x16, 3, 1, 2, 0, 1]);
    eventually(|| beside.number("curr_connections") == 4);
    beside.ask("debugtime 2\r\n", "OK\r\n");
    // Whoever dribbles is not waited for any longer.
    slow.send([0]);
    neighbour.is_well();
    assert_eq!(beside.number("curr_connections"), 4, "they count as connections");
    beside.ask("debugtime 9\r\n", "OK\r\n");
    silent.expect_close();
    slow.expect_close();
    eventually(|| beside.number("curr_connections") == 2);
    assert_eq!(beside.number("ssl_handshake_errors"), 2);
    neighbour.is_well();
}

#[test]
fn clients_in_their_handshake_count_as_connections() {
    let authority = Authority::new();
    let server = start(Settings { connections_max: 2, ..authority.settings(authority.tls()) });
    let mut beside = beside(&server);
    let _silent = Client::connect(&server);
    eventually(|| beside.number("curr_connections") == 2);
    Client::connect(&server).expect("ERROR Too many open connections\r\n");
    assert_eq!(beside.number("rejected_connections"), 1);
}

#[test]
fn what_is_no_tls_is_closed_and_counted_and_nobody_else_notices() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let mut beside = beside(&server);
    let bad: [&[u8]; 8] = [
        b"get neighbour\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        &[0; 100],
        &[0xff; 20_000],
        // A handshake record with rubbish in it, one longer than there may be, an alert, data before any key.
        &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0],
        &[0x16, 3, 1, 0xff, 0xff, 0],
        &[0x17, 3, 3, 0, 3, b'm', b'n', b'\n'],
    ];
    for (index, bytes) in bad.iter().enumerate() {
        let mut client = Client::connect(&server);
        client.send(bytes);
        let mut rest = Vec::new();
        // An alert at most, and no answer in the clear.
        let _ = client.stream.read_to_end(&mut rest);
        assert!(rest.len() <= 7 && !rest.ends_with(b"\r\n"), "{index}: {rest:?}");
        eventually(|| beside.number("ssl_handshake_errors") == index as u64 + 1);
        neighbour.is_well();
    }

    // Leaving in the middle of the handshake is a failure, looking whether the port is open is none.
    let mut halfway = Client::connect(&server);
    halfway.send(&client_hello(&authority)[..50]);
    halfway.stream.shutdown(Shutdown::Write).expect("shut down");
    eventually(|| beside.number("ssl_handshake_errors") == bad.len() as u64 + 1);
    let closed = beside.number("total_connections");
    drop(Client::connect(&server));
    eventually(|| beside.number("total_connections") > closed && beside.number("curr_connections") == 2);
    assert_eq!(beside.number("ssl_handshake_errors"), bad.len() as u64 + 1);
    assert_eq!(beside.number("ssl_proto_errors"), 0);
}

/// The first bytes that a client sends.
fn client_hello(authority: &Authority) -> Vec<u8> {
    let name = "localhost".try_into().expect("a name");
    let mut connection = rustls::ClientConnection::new(authority.any_client(), name).expect("a client");
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).expect("a vector takes all");
    bytes
}

#[test]
fn a_damaged_hello_never_does_more_than_close_its_connection() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let hello = client_hello(&authority);
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = move |sides: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % sides
    };
    for _ in 0..300 {
        let mut damaged = hello.clone();
        for _ in 0..=roll(4) {
            let at = roll(damaged.len());
            damaged[at] = roll(256) as u8;
        }
        damaged.truncate(1 + roll(damaged.len()));
        let mut client = Client::connect(&server);
        // The server may have seen enough before it is all sent.
        let _ = client.stream.write_all(&damaged);
        let _ = client.stream.shutdown(Shutdown::Write);
        let _ = client.stream.read_to_end(&mut Vec::new());
    }
    neighbour.is_well();
    let mut beside = beside(&server);
    eventually(|| beside.number("curr_connections") == 2);
}

#[test]
fn a_handshake_in_crumbs_takes_bounded_memory_and_disturbs_nobody() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let mut beside = beside(&server);
    let before = beside.number("read_buf_bytes");
    // A hello of 60,000 bytes, a byte to a record.
    let crumb = |byte| [0x16, 3, 1, 0, 1, byte];
    let mut hello: Vec<u8> = [1, 0, 0xea, 0x60].into_iter().flat_map(crumb).collect();
    hello.extend((0..10_000).flat_map(|_| crumb(0)));
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.send(&hello);
    }
    eventually(|| beside.number("read_buf_bytes") >= before + 4 * hello.len() as u64);
    neighbour.is_well();
    assert!(beside.number("read_buf_bytes") < before + 4 * (100 << 10));
    for client in &mut clients {
        let _ = client.stream.write_all(&hello);
    }
    eventually(|| beside.number("ssl_handshake_errors") == 4);
    neighbour.is_well();
}

#[test]
fn whoever_breaks_the_rules_later_is_closed_and_counted() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let mut beside = beside(&server);
    let mut errors = 0;
    for version in VERSIONS {
        // Plain bytes, a record that was not encrypted with the keys, one that ends too early, one of another kind.
        let bad: [&[u8]; 4] = [
            b"get neighbour\r\n",
            &[
                0x17, 3, 3, 0, 40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8,
                9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
            ],
            &[0x17, 3, 3, 0, 40, 1, 2],
            &[0x18, 3, 3, 0, 3, 1, 0, 0],
        ];
        for bytes in bad {
            let mut client = connect(&server, &authority.client(&[version], None));
            client.ask("mn\r\n", "MN\r\n");
            // A value that is on its way is not stored.
            client.send("set half 0 0 100000\r\nxx");
            client.stream.sock.write_all(bytes).expect("sent");
            client.stream.sock.shutdown(Shutdown::Write).expect("shut down");
            errors += 1;
            eventually(|| beside.number("ssl_proto_errors") == errors);
            neighbour.is_well();
        }
    }
    beside.ask("get half\r\n", "END\r\n");
    eventually(|| beside.number("curr_connections") == 2);
    assert_eq!(beside.number("ssl_handshake_errors"), 0);
}

#[test]
fn a_pipe_of_tcp_that_breaks_is_only_its_own_loss() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let hello = client_hello(&authority);
    for bytes in [1, 5, 60, hello.len()] {
        let mut stream = TcpStream::connect(address(&server, 0)).expect("the server listens");
        stream.write_all(&hello[..bytes]).expect("sent");
        // Whatever the server has answered is not read: the kernel resets the connection.
        drop(stream);
    }
    let mut beside = beside(&server);
    eventually(|| beside.number("curr_connections") == 2);
    neighbour.is_well();
}

#[test]
fn a_client_that_does_not_read_is_closed_in_time_and_holds_little_meanwhile() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::new(connect(&server, &authority.any_client()));
    let value = "x".repeat(1_000_000);
    neighbour.0.ask(format!("set big 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    let before = neighbour.0.number("read_buf_bytes");
    let config = authority.any_client();
    let mut deaf: Vec<_> = (0..4).map(|_| connect(&server, &config)).collect();
    for client in &mut deaf {
        client.ask("mn\r\n", "MN\r\n");
        client.send("get big big big big big big big big\r\n");
    }
    eventually(|| {
        neighbour.0.send("stats conns\r\n");
        neighbour.0.read_until("END\r\n").matches("conn_mwrite").count() == 4
    });
    let held = neighbour.0.number("read_buf_bytes") - before;
    assert!(held > 0 && held < 4 * (64 << 10), "{held} bytes are held for four clients");
    neighbour.0.ask("debugtime 35\r\n", "OK\r\n");
    eventually(|| neighbour.0.number("curr_connections") == 1);
    neighbour.is_well();
}

#[test]
fn an_idle_connection_owns_no_buffer() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut beside = beside(&server);
    let before = beside.number("read_buf_bytes");
    let config = authority.any_client();
    let mut clients: Vec<_> = (0..50).map(|_| connect(&server, &config)).collect();
    let value = "x".repeat(100_000);
    for client in &mut clients {
        client.ask(format!("set a 0 0 100000\r\n{value}\r\n"), "STORED\r\n");
        client.ask("get a\r\n", format!("VALUE a 0 100000\r\n{value}\r\nEND\r\n"));
    }
    eventually(|| beside.number("read_buf_bytes") == before);
    // A record that has not arrived whole is kept, and counted.
    for client in &mut clients {
        client.stream.sock.write_all(&[0x17, 3, 3, 0x30, 0]).expect("sent");
        client.stream.sock.write_all(&[0; 6000]).expect("sent");
    }
    eventually(|| beside.number("read_buf_bytes") >= before + 50 * 6000);
    drop(clients);
    eventually(|| beside.number("read_buf_bytes") == before);
}

#[test]
fn requests_that_do_not_arrive_whole_share_the_budget_of_the_plain_ones() {
    let authority = Authority::new();
    let mut limited = authority.settings(authority.tls());
    limited.buffers.read_bytes_max = 64 * 1024;
    let server = start(limited);
    let mut beside = beside(&server);
    let config = authority.any_client();
    let mut clients: Vec<_> = (0..30).map(|_| connect(&server, &config)).collect();
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
        let _ = client.stream.sock.write_all(&[0x17, 3, 3, 0x30, 0]);
        let _ = client.stream.sock.write_all(&[0; 6000]);
    }
    eventually(|| beside.number("read_buf_oom") > 0);
    eventually(|| beside.number("curr_connections") < 15);
    beside.ask("mn\r\n", "MN\r\n");
}
