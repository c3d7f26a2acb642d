//! Certificates and keys: who is let in, files that change while the server runs, files that cannot be used.

use std::io::Read;

use nuthatch_server::Server;
use nuthatch_server::settings::{
    Address, ClientCertificate, KeyFormat, ListenerSettings, Protocol, Settings, TlsSettings,
};

use crate::common::tls::{Authority, VERSIONS, beside, connect, over, write};
use crate::common::{Client, address, eventually, listener, own_address, settings, start};

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
    // Without authorities, as memcached starts too, no certificate is good.
    for (rule, without) in [(ClientCertificate::Required, false), (ClientCertificate::Optional, true)] {
        let server = start(authority.settings(TlsSettings { client_certificate: rule, ..authority.tls() }));
        for version in VERSIONS {
            let mut nobody = connect(&server, &authority.client(&[version], None));
            if without {
                nobody.ask("mn\r\n", "MN\r\n")
            } else {
                nobody.expect_refusal();
            }
            connect(&server, &authority.client(&[version], Some(&good))).expect_refusal();
        }
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
fn a_key_is_what_it_is_whatever_its_first_line_calls_it() {
    let authority = Authority::new();
    let key = std::fs::read_to_string(authority.file("server.key")).expect("a key");
    for name in ["RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        write(&authority.file("server.key"), &key.replace("PRIVATE KEY", name));
        let server = start(authority.settings(authority.tls()));
        connect(&server, &authority.any_client()).ask("mn\r\n", "MN\r\n");
    }
}
