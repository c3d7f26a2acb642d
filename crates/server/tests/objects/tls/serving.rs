//! What is served over TLS, and with which versions, suites and sessions: all that is served without.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nuthatch_server::Running;
use nuthatch_server::settings::{Address, Ciphers, ClientCertificate, Loaded, Sources, TlsSettings, TlsVersion};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion};

use crate::common::binary::frame;
use crate::common::tls::{Authority, ByteByByte, VERSIONS, beside, connect, over};
use crate::common::{Client, address, eventually, listener, settings, start};

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
        let mut beside = self::beside(&server);
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
