//! TLS: what is served, who is let in, what becomes of those who break it, and certificates that change.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::common::binary::frame;
use crate::common::tls::{Authority, ByteByByte, TlsClient, VERSIONS, beside, connect, over, write};
use crate::common::{Client, address, eventually, listener, own_address, settings, start};
use nuthatch_server::settings::{
    Address, Ciphers, ClientCertificate, KeyFormat, ListenerSettings, Loaded, Protocol, Settings, Sources, TlsSettings,
    TlsVersion,
};
use nuthatch_server::{Running, Server};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion};

/// A client that notices when the server stops serving others.
struct Neighbour(TlsClient);

impl Neighbour {
    fn of(server: &Running, authority: &Authority) -> Neighbour {
        let mut client = connect(server, &authority.any_client());
        client.ask("set neighbour 0 0 2\r\nok\r\n", "STORED\r\n");
        Neighbour(client)
    }

    #[track_caller]
    fn is_well(&mut self) {
        self.0.ask("get neighbour\r\n", "VALUE neighbour 0 2\r\nok\r\nEND\r\n");
    }
}

#[test]
fn every_protocol_is_spoken_over_either_version() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    for version in VERSIONS {
        let config = authority.client(&[version], None);
        let mut client = connect(&server, &config);
        client.ask(
            "set a 5 0 3\r\nabc\r\nget a absent\r\nmg a v\r\n",
            "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nVA 3\r\nabc\r\n",
        );
        assert_eq!(client.stream.conn.protocol_version(), Some(version.version));
        client.send("quit\r\n");
        client.expect_close_notify();
        let mut binary = connect(&server, &config);
        binary.send(frame(0x0a, "").bytes());
        assert_eq!(binary.take(24)[..4], [0x81, 0x0a, 0, 0], "a no-op is answered");
    }
    let mut beside = beside(&server);
    beside.ask("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n");
    assert_eq!((beside.number("ssl_handshake_errors"), beside.number("ssl_proto_errors")), (0, 0));
}

#[test]
fn large_values_pass_both_ways_whatever_the_size_of_a_piece() {
    let authority = Authority::new();
    for write_bytes in [1024, 16 * 1024, 3 << 20] {
        let mut wanted = authority.settings(TlsSettings { write_bytes, ..authority.tls() });
        wanted.pools[0].item_bytes_max = 4 << 20;
        let server = start(wanted);
        for version in VERSIONS {
            let mut client = connect(&server, &authority.client(&[version], None));
            for bytes in [1, 8_000, 20_000, 1 << 20, 3_000_001] {
                let value: String = (0..bytes).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
                client.ask(format!("set big 0 0 {bytes}\r\n{value}\r\n"), "STORED\r\n");
                client
                    .ask("get big absent big\r\n", format!("VALUE big 0 {bytes}\r\n{value}\r\n").repeat(2) + "END\r\n");
            }
        }
        let mut beside = beside(&server);
        assert_eq!(beside.number("ssl_proto_errors"), 0);
    }
}

#[test]
fn thousands_of_requests_may_be_on_their_way_at_once() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut client = connect(&server, &authority.any_client());
    let mut requests = String::new();
    let mut answers = String::new();
    for n in 0..5000 {
        requests += &format!("set key{n} 0 0 {}\r\n{n:0100}\r\n", 100);
        answers += "STORED\r\n";
    }
    for n in 0..5000 {
        requests += &format!("mg key{n} k v\r\n");
        answers += &format!("VA 100 kkey{n}\r\n{n:0100}\r\n");
    }
    client.ask(requests, answers);
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    for version in VERSIONS {
        let socket = ByteByByte(Client::connect(&server).stream);
        let mut client = over(&authority.client(&[version], None), socket);
        let value = "v".repeat(9_000);
        client.ask(format!("set slow 0 0 9000\r\n{value}\r\n"), "STORED\r\n");
        client.ask("get slow\r\n", format!("VALUE slow 0 9000\r\n{value}\r\nEND\r\n"));
    }
}

#[test]
fn other_listeners_of_the_same_server_stay_plain() {
    let authority = Authority::new();
    let path = authority.file("socket");
    let mut wanted = authority.settings(authority.tls());
    wanted.listeners.push(listener(0));
    wanted.listeners[2].address = Address::Unix { path: path.clone(), mode: 0o600 };
    let server = start(wanted);
    connect(&server, &authority.any_client()).ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    beside(&server).ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    let mut unix = UnixStream::connect(path).expect("connected");
    unix.write_all(b"get a\r\nquit\r\n").expect("sent");
    let mut answer = String::new();
    unix.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "VALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_closed() {
    let authority = Authority::new();
    let server = start(Settings { connections_max: 5, ..authority.settings(authority.tls()) });
    let mut neighbour = Neighbour::of(&server, &authority);
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
    let mut neighbour = Neighbour::of(&server, &authority);
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
    let mut neighbour = Neighbour::of(&server, &authority);
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
    let mut neighbour = Neighbour::of(&server, &authority);
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
    let mut neighbour = Neighbour::of(&server, &authority);
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
fn a_client_without_the_right_certificate_is_not_let_in() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (good, bad) = (authority.sign("web"), stranger.sign("web"));
    let with = |client_certificate| TlsSettings {
        client_ca: Some(authority.file("ca.pem")),
        client_certificate,
        ..authority.tls()
    };
    for (rule, without) in [(ClientCertificate::Required, false), (ClientCertificate::Optional, true)] {
        let server = start(authority.settings(with(rule)));
        let mut errors = 0;
        for version in VERSIONS {
            let mut neighbour = connect(&server, &authority.client(&[version], Some(&good)));
            neighbour.ask("mn\r\n", "MN\r\n");
            let mut nobody = connect(&server, &authority.client(&[version], None));
            if without {
                nobody.ask("mn\r\n", "MN\r\n");
            } else {
                errors += 1;
                nobody.expect_refusal();
            }
            errors += 1;
            connect(&server, &authority.client(&[version], Some(&bad))).expect_refusal();
            neighbour.ask("mn\r\n", "MN\r\n");
        }
        let mut beside = beside(&server);
        eventually(|| beside.number("ssl_handshake_errors") == errors);
    }
    // Who is not asked may show what it likes.
    let server = start(authority.settings(authority.tls()));
    connect(&server, &authority.client(&VERSIONS, Some(&bad))).ask("mn\r\n", "MN\r\n");
}

#[test]
fn refresh_certs_is_for_new_connections_and_a_broken_file_changes_nothing() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let config = authority.any_client();
    let mut old = connect(&server, &config);
    old.ask("debugtime 100\r\n", "OK\r\n");
    assert!(old.number("time_since_server_cert_refresh") >= 100);

    let second = authority.sign("localhost");
    authority.install("server", &second);
    let mut between = connect(&server, &config);
    between.ask("mn\r\n", "MN\r\n");
    assert!(!second.is_shown_to(&between), "nobody has asked for it yet");
    old.ask("refresh_certs\r\n", "OK\r\n");
    assert!(old.number("time_since_server_cert_refresh") < 100);
    let mut new = connect(&server, &config);
    new.ask("mn\r\n", "MN\r\n");
    assert!(second.is_shown_to(&new) && !second.is_shown_to(&old));

    let (pem, key) = (authority.file("server.pem"), authority.file("server.key"));
    let shown = |path: &std::path::Path| path.display().to_string();
    for (path, text, answer) in [
        (
            &pem,
            "nothing",
            format!(
                "Error loading the certificate chain: {} : expected certificates in PEM, found none\r\n",
                shown(&pem)
            ),
        ),
        (
            &key,
            "nothing",
            format!(
                "Error loading the key: {} : expected a private key in PEM without a password, found none\r\n",
                shown(&key)
            ),
        ),
        (
            &key,
            &authority.sign("localhost").key,
            format!(
                "Error validating the certificate: {} : expected the private key of the certificate in {}\r\n",
                shown(&key),
                shown(&pem)
            ),
        ),
    ] {
        write(path, text);
        old.ask("refresh_certs\r\n", answer);
        old.ask("refresh_certs noreply\r\nmn\r\n", "MN\r\n");
        let mut new = connect(&server, &config);
        new.ask("mn\r\n", "MN\r\n");
        assert!(second.is_shown_to(&new), "what was in force stays");
        authority.install("server", &second);
    }
    old.ask("refresh_certs\r\n", "OK\r\n");
    let plain = start(settings());
    Client::connect(&plain).ask("refresh_certs\r\n", "Error TLS not enabled\r\n");
}

#[test]
fn a_reload_reads_certificates_again() {
    let authority = Authority::new();
    let wanted = authority.settings(authority.tls());
    let server = start(wanted.clone());
    let config = authority.any_client();
    let mut old = connect(&server, &config);
    old.ask("mn\r\n", "MN\r\n");
    let second = authority.sign("localhost");
    authority.install("server", &second);
    let reloaded = server.reload(&wanted).expect("good files");
    assert_eq!(reloaded.changed, ["certificates: read again, for connections from now on"]);
    let mut new = connect(&server, &config);
    new.ask("mn\r\n", "MN\r\n");
    assert!(second.is_shown_to(&new));

    write(&authority.file("server.key"), "nothing");
    let mut larger = wanted;
    larger.pools[0].memory_bytes = 128 << 20;
    let reloaded = server.reload(&larger).expect("the rest is good");
    assert_eq!(
        reloaded.failed,
        [format!(
            "listener {}: TLS stays as it was: key file {}: expected a private key in PEM without a password, found none",
            address(&server, 0),
            authority.file("server.key").display()
        )]
    );
    assert_eq!(reloaded.changed.len(), 1, "{reloaded:?}");
    let mut newer = connect(&server, &config);
    assert_eq!(newer.number("limit_maxbytes"), 128 << 20, "it does not keep the rest from changing");
    assert!(second.is_shown_to(&newer));
    old.ask("mn\r\n", "MN\r\n");
}

#[test]
fn a_reload_gives_a_listener_tls_other_rules_and_takes_it_away() {
    let authority = Authority::new();
    let plain = Settings { listeners: vec![listener(0), listener(0)], ..settings() };
    let with = |tls| {
        let mut wanted = plain.clone();
        wanted.listeners[0].tls = tls;
        wanted
    };
    let server = start(plain.clone());
    let place = address(&server, 0);
    let config = authority.any_client();
    let mut was_plain = Client::connect(&server);
    was_plain.ask("refresh_certs\r\n", "Error TLS not enabled\r\n");
    was_plain.ask("debugtime 100\r\n", "OK\r\n");

    let reloaded = server.reload(&with(Some(authority.tls()))).expect("good files");
    assert_eq!(reloaded.changed, [format!("listener {place}: tls: plain to TLS for new connections")]);
    assert_eq!(address(&server, 0), place, "the socket stays");
    let mut had_tls = connect(&server, &config);
    had_tls.ask("mn\r\n", "MN\r\n");
    assert!(had_tls.number("time_since_server_cert_refresh") < 100);
    let mut clear = Client::connect(&server);
    clear.send("version\r\n");
    let mut answer = Vec::new();
    let _ = clear.stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"VERSION"), "it is not served in the clear any more");
    was_plain.ask("refresh_certs\r\n", "OK\r\n");

    let mutual = TlsSettings {
        client_ca: Some(authority.file("ca.pem")),
        client_certificate: ClientCertificate::Required,
        ..authority.tls()
    };
    let reloaded = server.reload(&with(Some(mutual.clone()))).expect("good files");
    let phrase = "tls: TLS to TLS, client certificate required for new connections";
    assert_eq!(reloaded.changed, [format!("listener {place}: {phrase}")]);
    connect(&server, &config).expect_refusal();
    let known = authority.client(&VERSIONS, Some(&authority.sign("client")));
    let mut had_mutual = connect(&server, &known);
    had_mutual.ask("mn\r\n", "MN\r\n");

    let cached = TlsSettings { session_cache: true, ..mutual };
    let reloaded = server.reload(&with(Some(cached))).expect("good files");
    assert_eq!(reloaded.changed, [format!("listener {place}: tls: other files or rules for new connections")]);

    let reloaded = server.reload(&plain).expect("nothing to read");
    let phrase = "tls: TLS, client certificate required to plain for new connections";
    assert_eq!(reloaded.changed, [format!("listener {place}: {phrase}")]);
    Client::connect(&server).ask("mn\r\n", "MN\r\n");
    was_plain.ask("refresh_certs\r\n", "Error TLS not enabled\r\n");
    had_tls.ask("mn\r\n", "MN\r\n");
    had_mutual.ask("mn\r\n", "MN\r\n");
}

#[test]
fn a_certificate_that_a_reload_cannot_use_holds_up_its_own_listener_alone() {
    let authority = Authority::new();
    let tls = || authority.tls();
    let broken = TlsSettings { certificate: authority.file("later.pem"), key: authority.file("later.key"), ..tls() };
    let places = [(); 4].map(|()| own_address());
    let at = |index: usize, tls| ListenerSettings { address: Address::Tcp(places[index]), tls, ..listener(0) };
    let first = Settings { listeners: vec![at(0, Some(tls())), at(1, None)], ..settings() };
    let server = start(first.clone());
    let config = authority.any_client();
    let connect_to = |index: usize| over(&config, Client::connect_to(places[index]).stream);
    // The first listener is to have another certificate, the second one at all; the third is new, and so is the fourth.
    let mut wanted = first.clone();
    wanted.listeners[0].tls = Some(broken.clone());
    wanted.listeners[0].protocol = Protocol::Ascii;
    wanted.listeners[1].tls = Some(broken.clone());
    wanted.listeners.extend([at(2, Some(broken.clone())), at(3, Some(tls()))]);

    let again = "certificates: read again, for connections from now on".to_owned();
    let protocol = format!("listener {}: protocol auto to ascii for new connections", places[0]);
    let opened = format!("listener {}: opened", places[3]);
    for changed in [vec![again.clone(), protocol, opened], vec![again]] {
        let reloaded = server.reload(&wanted).expect("the rest is good");
        let why = format!("certificate file {}: No such file or directory (os error 2)", broken.certificate.display());
        assert_eq!(
            reloaded.failed,
            [
                format!("listener {}: TLS stays as it was: {why}", places[0]),
                format!("listener {}: stays plain: {why}", places[1]),
                format!("listener {}: not opened: {why}", places[2]),
            ],
            "each time it is tried"
        );
        assert_eq!(reloaded.changed, changed);
        assert_eq!(server.addresses(), [0, 1, 3].map(|index| Address::Tcp(places[index])));
        connect_to(0).ask("mn\r\n", "MN\r\n");
        beside(&server).ask("mn\r\n", "MN\r\n");
        connect_to(3).ask("mn\r\n", "MN\r\n");
    }

    // What stays is in force as before: its files are read again when a client says so.
    let second = authority.sign("localhost");
    authority.install("server", &second);
    beside(&server).ask("refresh_certs\r\n", "OK\r\n");
    for index in [0, 3] {
        let mut client = connect_to(index);
        client.ask("mn\r\n", "MN\r\n");
        assert!(second.is_shown_to(&client));
    }

    let later = authority.sign("localhost");
    authority.install("later", &later);
    let reloaded = server.reload(&wanted).expect("good files");
    assert_eq!(reloaded.failed, <[String; 0]>::default());
    assert_eq!(server.addresses(), places.map(Address::Tcp));
    for index in 0..3 {
        let mut client = connect_to(index);
        client.ask("mn\r\n", "MN\r\n");
        assert!(later.is_shown_to(&client), "listener {index}");
    }
}

#[test]
fn files_that_cannot_be_used_stop_the_start_with_a_sentence() {
    let authority = Authority::new();
    authority.install("other", &authority.sign("localhost"));
    write(&authority.file("empty"), "");
    write(&authority.file("bad.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write(&authority.file("long"), &"x".repeat(1_100_000));
    let tls = || authority.tls();
    let file = |name| authority.file(name);
    let with_ca =
        |name| TlsSettings { client_ca: Some(file(name)), client_certificate: ClientCertificate::Required, ..tls() };
    for (wanted, sentence) in [
        (
            TlsSettings { certificate: file("absent"), ..tls() },
            "certificate file @absent: No such file or directory (os error 2)",
        ),
        (
            TlsSettings { certificate: file("empty"), ..tls() },
            "certificate file @empty: expected certificates in PEM, found none",
        ),
        (TlsSettings { certificate: file("long"), ..tls() }, "certificate file @long: expected at most 1 MiB"),
        (
            TlsSettings { certificate: file("bad.pem"), ..tls() },
            "certificate file @bad.pem: expected a certificate that can be read: BadEncoding",
        ),
        (TlsSettings { key: file("absent"), ..tls() }, "key file @absent: No such file or directory (os error 2)"),
        (
            TlsSettings { key: file("server.pem"), ..tls() },
            "key file @server.pem: expected a private key in PEM without a password, found none",
        ),
        (
            TlsSettings { key: file("other.key"), ..tls() },
            "key file @other.key: expected the private key of the certificate in @server.pem",
        ),
        (
            TlsSettings { key_format: KeyFormat::Der, ..tls() },
            "key file @server.key: expected a private key in DER without a password",
        ),
        (with_ca("absent"), "file of client authorities @absent: No such file or directory (os error 2)"),
        (with_ca("empty"), "file of client authorities @empty: expected certificates in PEM, found none"),
        (
            with_ca("bad.pem"),
            "file of client authorities @bad.pem: certificate 1: expected a certificate that can be read: BadEncoding",
        ),
    ] {
        let wanted = authority.settings(wanted);
        let sentence = sentence.replace('@', &format!("{}/", authority.folder.display()));
        let error = Server::start(wanted.clone()).expect_err("it does not start").to_string();
        assert_eq!(error, sentence);
    }
    let der = authority.settings(TlsSettings { key: file("server.der"), key_format: KeyFormat::Der, ..tls() });
    connect(&start(der), &authority.any_client()).ask("mn\r\n", "MN\r\n");
}

#[test]
fn a_stop_finishes_the_answers_and_says_that_it_closes() {
    let authority = Authority::new();
    // Now and then the socket is full when the end is to be announced.
    for _ in 0..20 {
        let server = start(authority.settings(authority.tls()));
        let config = authority.any_client();
        let mut idle = connect(&server, &config);
        idle.ask("mn\r\n", "MN\r\n");
        let mut reader = connect(&server, &config);
        let value = "x".repeat(1_000_000);
        reader.ask(format!("set big 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
        reader.send("get big big big big big big big big\r\n");
        reader.expect("VALUE big 0 1000000\r\n");
        server.stop();
        idle.expect_close_notify();
        let block = format!("{value}\r\nVALUE big 0 1000000\r\n");
        for _ in 0..7 {
            reader.expect(&block);
        }
        reader.expect(format!("{value}\r\nEND\r\n"));
        reader.expect_close_notify();
        server.wait();
    }
}

#[test]
fn a_client_that_quits_gets_what_was_encrypted_before() {
    let authority = Authority::new();
    // A piece is so large that the last one cannot be taken by the socket at once.
    let server = start(authority.settings(TlsSettings { write_bytes: 3 << 20, ..authority.tls() }));
    let mut beside = beside(&server);
    let value = "x".repeat(1_000_000);
    beside.ask(format!("set big 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    let mut client = connect(&server, &authority.any_client());
    client.ask("mn\r\n", "MN\r\n");
    let block = format!("VALUE big 0 1000000\r\n{value}\r\n");
    client.send(format!("{}quit\r\n", "get big\r\n".repeat(12)));
    eventually(|| {
        beside.send("stats conns\r\n");
        beside.read_until("END\r\n").contains("conn_mwrite")
    });
    for _ in 0..12 {
        client.expect(format!("{block}END\r\n"));
    }
    client.expect_close_notify();
}

#[test]
fn a_client_that_does_not_read_is_closed_in_time_and_holds_little_meanwhile() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::of(&server, &authority);
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

#[test]
fn sessions_go_on_where_they_may_and_nowhere_else() {
    let authority = Authority::new();
    let kind = |server: &Running, listener: usize, config: &Arc<rustls::ClientConfig>| {
        let mut client = over(config, Client::connect_to(address(server, listener)).stream);
        client.ask("mn\r\n", "MN\r\n");
        client.stream.conn.handshake_kind().expect("a handshake was done")
    };
    let cached = TlsSettings { session_cache: true, ..authority.tls() };
    let strict = TlsSettings {
        client_ca: Some(authority.file("ca.pem")),
        client_certificate: ClientCertificate::Optional,
        ..cached.clone()
    };
    let mut wanted = authority.settings(cached.clone());
    wanted.listeners.push(authority.listener(cached));
    wanted.listeners.push(authority.listener(strict));
    wanted.reported.tls.session_cache = true;
    for version in VERSIONS {
        let server = start(wanted.clone());
        let mut beside = beside(&server);
        let config = authority.client(&[version], None);
        assert_eq!(kind(&server, 0, &config), HandshakeKind::Full);
        assert_eq!(beside.number("ssl_new_sessions"), 1);
        assert_eq!(kind(&server, 0, &config), HandshakeKind::Resumed);
        assert_eq!(kind(&server, 2, &config), HandshakeKind::Resumed, "a listener with the same rules");
        assert_eq!(beside.number("ssl_new_sessions"), 1);
        assert_eq!(kind(&server, 3, &config), HandshakeKind::Full, "other rules for certificates");
        beside.ask("refresh_certs\r\n", "OK\r\n");
        assert_eq!(kind(&server, 0, &config), HandshakeKind::Full, "files may say now who is not let in any more");
        let mut more = wanted.clone();
        more.listeners.push(wanted.listeners[0].clone());
        server.reload(&more).expect("good files");
        assert_eq!(kind(&server, 0, &config), HandshakeKind::Full, "a reload reads them as well");
        assert_eq!(kind(&server, 4, &config), HandshakeKind::Resumed, "a listener that came later with the same rules");

        let server = start(authority.settings(authority.tls()));
        let config = authority.client(&[version], None);
        for _ in 0..2 {
            assert_eq!(kind(&server, 0, &config), HandshakeKind::Full, "only with a cache of sessions");
        }
        let mut beside = crate::common::tls::beside(&server);
        beside.send("stats\r\n");
        assert!(!beside.read_until("END\r\n").contains("ssl_new_sessions"));
    }
}

#[test]
fn versions_and_suites_are_those_that_were_asked_for() {
    let authority = Authority::new();
    let server = start(authority.settings(TlsSettings { min_version: TlsVersion::Tls13, ..authority.tls() }));
    connect(&server, &authority.client(&[&TLS12], None)).expect_refusal();
    let mut client = connect(&server, &authority.client(&VERSIONS, None));
    client.ask("mn\r\n", "MN\r\n");
    assert_eq!(client.stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));

    let suites =
        vec![CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    let ciphers = Some(Ciphers { given: String::new(), suites: suites.clone(), passed_over: Vec::new() });
    let server = start(authority.settings(TlsSettings { ciphers, ..authority.tls() }));
    for (version, suite) in [(&TLS13, suites[0]), (&TLS12, suites[1])] {
        let mut client = connect(&server, &authority.client(&[version], None));
        client.ask("mn\r\n", "MN\r\n");
        assert_eq!(client.stream.conn.negotiated_cipher_suite().map(|chosen| chosen.suite()), Some(suite));
    }
}

#[test]
fn stats_settings_show_what_the_command_line_asked_for() {
    let authority = Authority::new();
    let shown = |name: &str| authority.file(name).display().to_string();
    let options = format!(
        "ssl_chain_cert={},ssl_key={},ssl_ca_cert={},ssl_verify_mode=1,ssl_ciphers=HIGH,ssl_wbuf_size=64,ssl_kernel_tls",
        shown("server.pem"),
        shown("server.key"),
        shown("ca.pem")
    );
    let args = ["-Z", "-l", "127.0.0.1:0,notls:127.0.0.1:0", "-o", &options];
    let sources = Sources { args: args.iter().map(OsString::from).collect(), ..Sources::default() };
    let Ok(Loaded::Serve(wanted, _)) = sources.load() else { panic!("a good command line") };
    let server = start(*wanted);
    let mut client = connect(&server, &authority.any_client());
    for (name, value) in [
        ("ssl_enabled", "yes"),
        ("ssl_chain_cert", &shown("server.pem")),
        ("ssl_key", &shown("server.key")),
        ("ssl_verify_mode", "1"),
        ("ssl_keyformat", "1"),
        ("ssl_ciphers", "HIGH"),
        ("ssl_ca_cert", &shown("ca.pem")),
        ("ssl_wbuf_size", "65536"),
        ("ssl_session_cache", "no"),
        ("ssl_kernel_tls", "yes"),
        ("ssl_min_version", "tlsv1.2"),
    ] {
        assert_eq!(client.stat("stats settings", name), value, "{name}");
    }
    assert_eq!(beside(&server).stat("stats settings", "ssl_enabled"), "yes");
    let plain = start(settings());
    let mut client = Client::connect(&plain);
    assert_eq!(client.stat("stats settings", "ssl_enabled"), "no");
    client.send("stats\r\n");
    assert!(!client.read_until("END\r\n").contains("ssl_"), "counters of TLS only where there is some");
}

#[test]
fn a_watcher_and_a_dump_are_served_as_well() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let config = authority.any_client();
    let mut watcher = connect(&server, &config);
    watcher.ask("watch mutations\r\n", "OK\r\n");
    let mut client = connect(&server, &config);
    let sets: String = (0..3000).map(|n| format!("set key{n} 0 0 1 noreply\r\n1\r\n")).collect();
    client.ask(sets + "mn\r\n", "MN\r\n");
    assert!(watcher.read_until("\n").contains("key=key0"), "the first of them is told");
    client.send("lru_crawler metadump all\r\n");
    client.expect("OK\r\n");
    assert_eq!(client.read_until("END\r\n").lines().count(), 3001);
}

#[test]
fn keys_are_changed_when_the_client_asks() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut client = connect(&server, &authority.client(&[&TLS13], None));
    for n in 0..20 {
        client.ask(format!("set a 0 0 2\r\n{n:02}\r\n"), "STORED\r\n");
        client.stream.conn.refresh_traffic_keys().expect("TLS 1.3");
        client.ask("get a\r\n", format!("VALUE a 0 2\r\n{n:02}\r\nEND\r\n"));
    }
}

#[test]
fn a_pipe_of_tcp_that_breaks_is_only_its_own_loss() {
    let authority = Authority::new();
    let server = start(authority.settings(authority.tls()));
    let mut neighbour = Neighbour::of(&server, &authority);
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
