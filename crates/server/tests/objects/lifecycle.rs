//! Starting and ending.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use crate::common::{Client, address, settings, start};
use nuthatch_server::Server;
use nuthatch_server::settings::{Address, Settings};

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("nuthatch-lifecycle-{}-{name}", std::process::id()))
}

#[test]
fn a_stop_finishes_the_answers_in_flight() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let value = "x".repeat(1_000_000);
    client.ask(format!("set big 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    let mut idle = Client::connect(&server);
    idle.ask("mn\r\n", "MN\r\n");
    client.send("get big big big big big big big big\r\n");
    client.expect("VALUE big 0 1000000\r\n");
    server.stop();
    idle.expect_close();
    let block = format!("{value}\r\nVALUE big 0 1000000\r\n");
    for _ in 0..7 {
        client.expect(&block);
    }
    client.expect(format!("{value}\r\nEND\r\n"));
    client.expect_close();
    server.wait();
    assert!(server.is_finished());
}

#[test]
fn a_stopped_server_listens_no_more() {
    let server = start(settings());
    let address = address(&server, 0);
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn shutdown_ends_the_server_when_it_is_allowed() {
    for command in ["shutdown\r\n", "shutdown graceful\r\n"] {
        let server = start(Settings { shutdown_enabled: true, ..settings() });
        let mut client = Client::connect(&server);
        client.ask("shutdown now\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
        client.send(command);
        client.expect_close();
        server.wait();
    }
}

#[test]
fn a_unix_socket_has_its_mode_and_goes_with_the_server() {
    let path = scratch("socket");
    let mut unix = settings();
    unix.listeners[0].address = Address::Unix { path: path.clone(), mode: 0o600 };
    let server = start(unix);
    assert_eq!(std::fs::metadata(&path).expect("the socket").permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("connected");
    stream.write_all(b"set a 0 0 1\r\n1\r\nget a\r\nquit\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_start_that_cannot_succeed_says_why_in_a_sentence() {
    let server = start(settings());
    let mut taken = settings();
    taken.listeners[0].address = Address::Tcp(address(&server, 0));
    let error = Server::start(taken.clone()).expect_err("the port is in use").to_string();
    assert!(error.starts_with(&format!("cannot listen on {}: ", address(&server, 0))), "{error}");
    taken.listeners[0].required = false;
    drop(start(taken));

    let missing = Settings { auth_file: Some("/nonexistent/passwords".into()), ..settings() };
    let error = Server::start(missing).expect_err("no such file").to_string();
    assert!(error.starts_with("credentials file /nonexistent/passwords: "), "{error}");

    let mut tiny = settings();
    tiny.pools[0].memory_bytes = 1000;
    let error = Server::start(tiny).expect_err("too little memory").to_string();
    assert!(error.starts_with("pool default: "), "{error}");
}
