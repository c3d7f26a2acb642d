//! Certificates and their keys, as the program reads them: when a file is checked, at the start, and by SIGHUP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use nuthatch_testkit::origin::{Gate, Origin};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Place, Reloading, ask, text, wait_until};

/// A certificate for this machine and its key, in one file.
fn certificate() -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    made.cert.pem() + &made.signing_key.serialize_pem()
}

#[test]
fn check_reads_the_certificates_that_a_file_names() {
    let place = Place::new();
    let config = place.file(
        "n.toml",
        "[[listen]]\nmemcached = \"127.0.0.1:11311\"\ntls = { certificate = \"server.pem\", client_ca = \"server.pem\" }\n",
    );
    let output = place.run("nuthatch", &["check", config.to_str().unwrap()]);
    assert_eq!(text(&output.stderr), "nuthatch: certificate file server.pem: No such file or directory (os error 2)\n");
    assert_eq!(output.status.code(), Some(1));
    place.file("server.pem", &certificate());
    let output = place.run("nuthatch", &["check", config.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let line = "  listening  tcp 127.0.0.1:11311  auto    pool default, TLS, client certificate required\n";
    assert!(text(&output.stdout).contains(line), "{output:?}");
}

#[test]
fn check_reads_the_authorities_that_origins_are_to_be_of() {
    let place = Place::new();
    let listen = "[[listen]]\nhttp = \"127.0.0.1:0\"\norigin = \"site\"\n";
    let file = format!("{listen}[origin.site]\nservers = \"https://127.0.0.1\"\ntls_ca = \"ca.pem\"\n");
    place.file("n.toml", &file);
    let output = place.run("nuthatch", &["check", "n.toml"]);
    let why = "file of origins' authorities ca.pem: No such file or directory (os error 2)";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    assert_ne!(output.status.code(), Some(0));
    place.file("ca.pem", &certificate());
    let output = place.run("nuthatch", &["check", "n.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    place.file("n.toml", &file.replace("tls_ca = \"ca.pem\"", "tls_without_verification = true"));
    let output = place.run("nuthatch", &["check", "n.toml"]);
    assert!(text(&output.stdout).contains("tls_without_verification: whoever is between"), "{}", text(&output.stdout));
}

#[test]
fn a_hangup_reads_certificates_again_and_keeps_the_old_ones_when_they_are_broken() {
    let place = Place::new();
    place.file("server.pem", &certificate());
    let flags = ["-Z", "-o", "ssl_chain_cert=server.pem", "-p", "-1", "-l", "127.0.0.1"];
    let mut server = Reloading::start_in(place, "memcached", "", &flags);
    assert_eq!(server.reload(""), ["certificates: read again, for connections from now on"]);
    server.place.file("server.pem", "nothing");
    let why = "certificate file server.pem: expected certificates in PEM, found none";
    let said = server.reload("[server]\nidle_timeout = 90\n");
    let stays = format!("listener 127.0.0.1:{}: TLS stays as it was: {why}", server.place.port());
    assert_eq!(said, ["idle_timeout: 0 to 90".to_owned(), stays]);
    server.serving.signal(Signal::SIGTERM);
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_key_that_is_roots_alone_is_read_before_root_is_given_up() {
    if !Uid::effective().is_root() {
        // There is nobody to become who may do less.
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    place.file("server.pem", &certificate());
    fs::set_permissions(place.path("server.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let listen = "[[listen]]\nmemcached = \"127.0.0.1:0\"\n";
    let with_tls = format!("{listen}tls = {{ certificate = \"server.pem\" }}\n");
    let mut server = Reloading::start_in(place, "nuthatch", &with_tls, &["-u", "nobody"]);
    let listener = format!("listener 127.0.0.1:{}", server.place.port());
    let why = "certificate file server.pem: Permission denied (os error 13)";
    assert_eq!(server.reload(&with_tls), [format!("{listener}: TLS stays as it was: {why}")]);
    assert_eq!(server.reload(listen), [format!("{listener}: tls: TLS to plain for new connections")]);
    assert!(ask(&mut server.place.connect(), "version").starts_with("VERSION "));
    assert_eq!(server.reload(&with_tls), [format!("{listener}: stays plain: {why}")]);
    assert!(ask(&mut server.place.connect(), "version").starts_with("VERSION "));
}

/// A reader of pages over TLS.
struct Reader(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Reader {
    /// One of the server at `port`, if that shows the certificate in `pem`.
    fn connect(port: u16, pem: &str) -> Option<Reader> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket).ok()?;
        }
        Some(Reader(BufReader::new(StreamOwned::new(session, socket))))
    }

    fn send(&mut self, target: &str) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// The body of the next answer.
    fn body(&mut self) -> String {
        let mut bytes = 0;
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "closed before an answer");
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                bytes = length.trim().parse().unwrap();
            }
            if line == "\r\n" {
                let mut body = vec![0; bytes];
                self.0.read_exact(&mut body).unwrap();
                return String::from_utf8(body).unwrap();
            }
        }
    }

    fn get(&mut self, target: &str) -> String {
        self.send(target);
        self.body()
    }
}

#[test]
fn a_hangup_changes_the_certificate_of_a_page_listener_for_who_comes_and_leaves_who_is_there() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request, answer| {
        if request.target == "/slow" {
            held.wait();
        }
        answer.reply("200 OK", &["Cache-Control: max-age=60"], &request.target);
    });
    let [first, second, third] = [certificate(), certificate(), certificate()];
    let place = Place::new();
    place.file("server.pem", &first);
    let file = format!(
        "[[listen]]\nhttp = \"127.0.0.1:0\"\norigin = \"{}\"\ntls = {{ certificate = \"server.pem\" }}\n",
        origin.url()
    );
    let mut server = Reloading::start_in(place, "nuthatch", &file, &[]);
    let port = server.place.port();
    let mut early = Reader::connect(port, &first).expect("the certificate that is there");
    let mut waiting = Reader::connect(port, &first).expect("the same");
    assert_eq!(early.get("/page"), "/page");
    waiting.send("/slow");
    wait_until("the origin is asked", || origin.count_of("/slow") == 1);

    server.place.file("server.pem", &second);
    assert_eq!(server.reload(&file), ["certificates: read again, for connections from now on"]);
    assert_eq!(Reader::connect(port, &second).expect("the new certificate").get("/page"), "/page");
    assert!(Reader::connect(port, &first).is_none(), "nobody is shown the old one");
    gate.open();
    assert_eq!(waiting.body(), "/slow", "what was asked for before is answered");
    for reader in [&mut early, &mut waiting] {
        assert_eq!(reader.get("/page"), "/page", "and so is what is asked for on the connections of before");
    }

    let key = third.split_once("-----BEGIN PRIVATE").map(|(_, key)| format!("-----BEGIN PRIVATE{key}")).unwrap();
    let chain = first.split_once("-----BEGIN PRIVATE").map(|(chain, _)| chain).unwrap();
    for (broken, why) in [
        ("nothing".to_owned(), "certificate file server.pem: expected certificates in PEM, found none"),
        (format!("{chain}{key}"), "key file server.pem: expected the private key of the certificate in server.pem"),
    ] {
        server.place.file("server.pem", &broken);
        assert_eq!(server.reload(&file), [format!("listener 127.0.0.1:{port}: TLS stays as it was: {why}")]);
        assert_eq!(Reader::connect(port, &second).expect("the one before").get("/page"), "/page");
        assert_eq!(early.get("/page"), "/page");
    }
}
