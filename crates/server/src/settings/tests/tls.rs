//! `-Z`, the `ssl_*` options and the `tls` table of a listener.

use super::*;

#[test]
fn with_z_every_tcp_address_speaks_tls_unless_it_says_otherwise() {
    let tls = |args: &[&str]| -> Vec<(String, Option<ClientCertificate>)> {
        let settings = load(&[&["-Z", "-o", "ssl_chain_cert=/c,ssl_key=/k"], args].concat());
        let shown = |listener: &ListenerSettings| listener.tls.as_ref().map(|tls| tls.client_certificate);
        settings.listeners.iter().map(|listener| (listener.address.to_string(), shown(listener))).collect()
    };
    let address = |text: &str| text.to_owned();
    let (none, optional, required) =
        (Some(ClientCertificate::None), Some(ClientCertificate::Optional), Some(ClientCertificate::Required));
    assert_eq!(tls(&[]), [(address("127.0.0.1:11211"), none), (address("[::1]:11211"), none)]);
    assert_eq!(
        tls(&[
            "-o",
            "ssl_ca_cert=/a,ssl_verify_mode=1",
            "-l",
            "127.0.0.1:1,notls:127.0.0.1:2,btls:127.0.0.1:3,mtls:127.0.0.1:4"
        ]),
        [
            (address("127.0.0.1:1"), optional),
            (address("127.0.0.1:2"), None),
            (address("127.0.0.1:3"), none),
            (address("127.0.0.1:4"), required)
        ]
    );
    assert_eq!(
        tls(&["-l", "127.0.0.1", "-U", "5"]),
        [(address("127.0.0.1:5"), none), (address("udp:127.0.0.1:5"), None)]
    );
    assert_eq!(tls(&["-s", "/run/x"]), [(address("unix:/run/x"), None)]);
    assert!(load(&["-l", "notls:127.0.0.1:2"]).listeners[0].tls.is_none(), "taken without -Z as well");

    let tls = load(&[
        "-Z",
        "-o",
        "ssl_chain_cert=/c,ssl_keyformat=2,ssl_verify_mode=3,ssl_ca_cert=/a,ssl_min_version=3,ssl_session_cache,ssl_wbuf_size=64",
    ]);
    let reported = &tls.reported.tls;
    assert!(reported.enabled && reported.session_cache);
    assert_eq!((reported.verify_mode, reported.key_format, reported.write_bytes), (3, 2, 65536));
    let listener = tls.listeners[0].tls.clone().expect("TLS");
    assert_eq!(
        (listener.key.to_str(), listener.key_format),
        (Some("/c"), KeyFormat::Der),
        "the key is in the same file"
    );
    assert_eq!((listener.client_certificate, listener.min_version), (ClientCertificate::Required, TlsVersion::Tls13));
    assert_eq!((listener.write_bytes, listener.session_cache), (65536, true));
}

#[test]
fn tls_that_cannot_be_had_is_refused_in_a_sentence() {
    for (args, sentence) in [
        (&["-Z"][..], "-Z: expected -o ssl_chain_cert=FILE with it, the file of the server's certificate"),
        (&["-l", "mtls:127.0.0.1"], "-l: expected -Z with mtls:, in mtls:127.0.0.1"),
        (&["-l", "btls:127.0.0.1"], "-l: expected -Z with btls:, in btls:127.0.0.1"),
        (&["-Z", "-o", "ssl_chain_cert=/c", "-p", "0"], "-Z: expected a TCP port for it to act on, not -p 0"),
        (
            &["-Z", "-o", "ssl_chain_cert=/c,ssl_ciphers=AES256-SHA:RC4-MD5"],
            "-o ssl_ciphers: expected a list in which OpenSSL's name of a suite that is offered here stands, such as \
             ECDHE-RSA-AES256-GCM-SHA384, or HIGH, not AES256-SHA:RC4-MD5",
        ),
    ] {
        assert_eq!(problem(args), sentence);
    }
    for (args, sentence) in [
        (
            &["-o", "ssl_chain_cert=/c"][..],
            "-o ssl_…: these act only with -Z, without it clients are served in the clear",
        ),
        (
            &["-Z", "-o", "ssl_chain_cert=/c,ssl_min_version=0"],
            "-Z: TLS 1.2 is the oldest version spoken here, clients that know only older ones cannot connect",
        ),
        (
            &["-Z", "-o", "ssl_chain_cert=/c,ssl_ciphers=ECDHE-RSA-AES256-SHA:HIGH"],
            "-Z: ciphers passed over, they name nothing that is offered here: ECDHE-RSA-AES256-SHA",
        ),
        (
            &["-Z", "-o", "ssl_chain_cert=/c,ssl_verify_mode=1"],
            "127.0.0.1:11211: without -o ssl_ca_cert=FILE a client that shows a certificate is not let in",
        ),
        (
            &["-Z", "-o", "ssl_chain_cert=/c,ssl_verify_mode=2"],
            "127.0.0.1:11211: without -o ssl_ca_cert=FILE no client is let in, each has to show a certificate",
        ),
        (
            &["-Z", "-o", "ssl_chain_cert=/c", "-l", "mtls:127.0.0.1:4"],
            "127.0.0.1:4: without -o ssl_ca_cert=FILE no client is let in, each has to show a certificate",
        ),
        (&["-Z", "-o", "ssl_chain_cert=/c", "-U", "5"], "udp:127.0.0.1:5: UDP is not encrypted"),
    ] {
        let (_, notes) = try_load(args).unwrap();
        assert!(notes.iter().any(|note| note.always && note.text == sentence), "{notes:?}");
    }
}

#[test]
fn who_has_to_show_a_certificate_is_not_called_unprotected() {
    let notes =
        |address: &str| try_load(&["-Z", "-o", "ssl_chain_cert=/c,ssl_ca_cert=/a", "-l", address]).expect(address).1;
    assert_eq!(notes("mtls:0.0.0.0"), []);
    assert!(notes("0.0.0.0")[0].text.starts_with("0.0.0.0:11211: other machines can reach this"));
}

#[test]
fn a_listener_of_the_file_has_tls_of_its_own() {
    let file = "[[listen]]\nmemcached = \"127.0.0.1:1\"\n\n[[listen]]\nmemcached = \"127.0.0.1:2\"\n\
                [listen.tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\nmin_version = \"1.3\"\n";
    let settings = File::new("tls", file).load(&[]);
    assert_eq!(settings.listeners[0].tls, None);
    let tls = settings.listeners[1].tls.clone().expect("TLS");
    assert_eq!((tls.certificate.to_str(), tls.key.to_str()), (Some("/c"), Some("/k")));
    assert_eq!(tls.client_certificate, ClientCertificate::Required, "what else would client_ca be for");
    assert_eq!(tls.min_version, TlsVersion::Tls13);
    assert_eq!((settings.reported.tls.certificate, settings.reported.tls.verify_mode), (Some("/c".into()), 2));
    let both = File::new("tls-and-z", file).load(&["-Z", "-o", "ssl_chain_cert=/z"]);
    let certificates: Vec<_> =
        both.listeners.iter().map(|l| l.tls.as_ref().and_then(|tls| tls.certificate.to_str())).collect();
    assert_eq!(certificates, [Some("/z"), Some("/c")], "-Z is for those that say nothing themselves");

    for (name, text, sentence) in [
        (
            "none",
            "memcached = \"127.0.0.1:1\"\ntls = {}",
            "listen.tls: expected the key certificate with it, the file of the server's certificate",
        ),
        (
            "ca",
            "memcached = \"127.0.0.1:1\"\ntls = { certificate = \"/c\", client_certificate = \"required\" }",
            "listen.tls: expected the key client_ca with client_certificate, there is nothing to check client certificates against",
        ),
        (
            "unix",
            "memcached = \"unix:/run/x\"\ntls = { certificate = \"/c\" }",
            "listen.tls: expected only with a TCP address, not \"unix:/run/x\"",
        ),
        (
            "udp",
            "memcached = \"udp:127.0.0.1:1\"\ntls = { certificate = \"/c\" }",
            "listen.tls: expected only with a TCP address, not \"udp:127.0.0.1:1\"",
        ),
    ] {
        assert_eq!(
            file_problem(&format!("tls-{name}"), &format!("[[listen]]\n{text}\n")),
            format!("n.toml:1: {sentence}")
        );
    }
    assert_eq!(
        file_problem("tls-key", "[[listen]]\nmemcached = \"127.0.0.1:1\"\ntls = { cert = \"/c\" }\n"),
        "n.toml:3: listen.tls.cert: no such key, expected one of certificate, key, key_format, client_ca, client_certificate, \
         ciphers, min_version, session_cache, write_buffer"
    );
    assert_eq!(
        file_problem("tls-true", "[[listen]]\ntls = true\n"),
        "n.toml:2: listen.tls: expected a table, not true"
    );
}
