//! Databases on the network: encrypted, their certificate held against an authority, with a password from a file or from the
//! environment. What is wrong with one of these is one sentence.

use std::path::Path;
use std::process::Command;

use nuthatch_testkit::database::{Database, Engine};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::servers::{Got, Nuthatch, Wire};

/// An authority's certificate, and one that it gave a server on 127.0.0.1.
struct Certificates {
    authority: String,
    server: String,
    key: String,
}

fn certificates(authority: &str) -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, authority);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let server = params.signed_by(&key, &issuer).expect("a certificate");
    Certificates { authority, server: server.pem(), key: key.serialize_pem() }
}

const TABLE: &str = "CREATE TABLE birds (id VARCHAR(40) PRIMARY KEY, body TEXT, cas BIGINT NOT NULL DEFAULT 0)";

fn mariadb(tls: &Certificates) -> Database {
    let args = ["--ssl-cert={dir}/cert.pem", "--ssl-key={dir}/key.pem", "--skip-name-resolve"];
    let files = [("cert.pem", &*tls.server), ("key.pem", &*tls.key)];
    let database = Database::on_network(Engine::Mariadb, &args, &files);
    database.sql(&format!(
        "CREATE USER bird@'127.0.0.1' IDENTIFIED BY 'se cret' REQUIRE SSL; GRANT ALL ON test.* TO bird@'127.0.0.1'; {TABLE}"
    ));
    database
}

fn postgres(tls: &Certificates) -> Database {
    let args = [
        "-c",
        "ssl=on",
        "-c",
        "ssl_cert_file={dir}/cert.pem",
        "-c",
        "ssl_key_file={dir}/key.pem",
        "-c",
        "hba_file={dir}/hba",
    ];
    // None gets in by the network without TLS and a password.
    let hba = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
    let files = [("cert.pem", &*tls.server), ("key.pem", &*tls.key), ("hba", hba)];
    let database = Database::on_network(Engine::Postgres, &args, &files);
    database.sql(&format!(
        "CREATE USER bird PASSWORD 'se cret'; GRANT ALL ON SCHEMA public TO bird; {TABLE}; GRANT ALL ON birds TO bird"
    ));
    database
}

/// What `nuthatch check` says of a table with this URL and these further lines: whether it is well, and its last sentence.
fn check(dir: &Path, url: &str, lines: &str) -> (bool, String) {
    let config = dir.join("check.toml");
    let text = format!(
        "[pool.birds]\nmemory = \"16MiB\"\nbackend = \"birds\"\n\n[table.birds]\nurl = \"{url}\"\nkey = \"id\"\nvalue = \"body\"\n\
         {lines}\n\n[[listen]]\nmemcached = \"unix:{}/sock\"\npool = \"birds\"\n",
        dir.display()
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    let said = command.arg("check").arg(&config).env("BIRDS_PASSWORD", "se cret").env("BIRDS_WRONG", "secret").output();
    let said = said.expect("the program can be run");
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    (said.status.success(), errors.trim_end().to_owned())
}

/// Everything that can be right or wrong on the way to `database`, whose certificate is of `tls`'s authority; `why` are the
/// sentences for: no authority that is known, another authority, another host, a wrong password, no TLS.
fn every_way_in(database: &Database, scheme: &str, tls: &Certificates, why: [&str; 5]) {
    let dir: TempDir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("the directory is ours");
        path.display().to_string()
    };
    let (ca, other) = (file("ca.pem", &tls.authority), file("other.pem", &certificates("another").authority));
    let (right, wrong) = (file("right", "se cret\n"), file("wrong", "secret\n"));
    let port = database.port();
    let url = |host: &str, tls: &str| format!("{scheme}://bird@{host}:{port}/test?tls={tls}");
    let here = url("127.0.0.1", "verify");
    for password in [format!("password_file = \"{right}\""), "password_env = \"BIRDS_PASSWORD\"".to_owned()] {
        assert_eq!(
            check(dir.path(), &here, &format!("ca = \"{ca}\"\n{password}")),
            (true, String::new()),
            "{password}"
        );
    }
    let password = format!("password_file = \"{right}\"");
    let [unknown, foreign, host, refused, plain] = why;
    for (url, lines, why) in [
        (&here, password.clone(), unknown),
        (&here, format!("ca = \"{other}\"\n{password}"), foreign),
        (&url("localhost", "verify"), format!("ca = \"{ca}\"\n{password}"), host),
        (&here, format!("ca = \"{ca}\"\npassword_file = \"{wrong}\""), refused),
        (&here, format!("ca = \"{ca}\"\npassword_env = \"BIRDS_WRONG\""), refused),
        (&here, format!("ca = \"{ca}\""), refused),
        (&url("127.0.0.1", "off"), password.clone(), plain),
        (&here, format!("ca = \"{}/none.pem\"\n{password}", dir.path().display()), "none.pem: "),
        (&here, format!("ca = \"{right}\"\n{password}"), "right: "),
        (&here, "password_file = \"/none\"".to_owned(), "expected a file with a password: /none: No such file"),
        (&here, "password_env = \"BIRDS_NONE\"".to_owned(), "environment variable BIRDS_NONE, which is not set"),
    ] {
        let (is_well, said) = check(dir.path(), url, &lines);
        assert!(!is_well, "{lines}");
        assert!(said.contains(why) && !said.contains('\n') && !said.contains("se cret"), "{lines}: {said}");
    }
    // And not only the check gets in.
    let lines = format!("ca = \"{ca}\"\n{password}\n");
    let mut server = Nuthatch::with(dir.path(), "a", &here, "1h", &lines);
    server.start();
    let mut client = Wire::new(server.socket());
    assert_eq!(client.ask("set a 0 0 1\r\n1\r\n").expect("an answer"), "STORED");
    assert_eq!(client.get("get", "a").expect("an answer"), Got::Value("1".to_owned(), None));
    assert_eq!(database.sql("SELECT body FROM birds"), "1\n");
}

#[test]
fn mariadb_is_reached_with_tls_and_a_password() {
    let tls = certificates("ours");
    let database = mariadb(&tls);
    every_way_in(
        &database,
        "mysql",
        &tls,
        ["UnknownIssuer", "UnknownIssuer", "not valid for name", "Access denied for user", "Access denied for user"],
    );
}

#[test]
fn postgresql_is_reached_with_tls_and_a_password() {
    let tls = certificates("ours");
    let database = postgres(&tls);
    every_way_in(
        &database,
        "postgres",
        &tls,
        ["UnknownIssuer", "UnknownIssuer", "not valid for name", "password", "no pg_hba.conf entry"],
    );
}
