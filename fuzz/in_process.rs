//! A server in the fuzzer's own process, so that what its code does guides the fuzzer.

use nuthatch_server::settings::{ListenerSettings, Protocol, Settings};
use nuthatch_server::{Running, Server, settings};
use nuthatch_testkit::Address;

/// Starts a server with two workers on a TCP port of its own, its clock in the fuzzer's hands.
///
/// # Panics
/// When it does not start.
pub fn start() -> (Running, Address) {
    let address = settings::Address::Tcp("127.0.0.1:0".parse().expect("an address"));
    let listener = ListenerSettings {
        address,
        protocol: Protocol::Auto,
        pool: 0,
        tag: None,
        tls: None,
        required: true,
        http: None,
    };
    let settings = Settings { listeners: vec![listener], debug_commands: true, workers: 2, ..Settings::default() };
    let server = Server::start(settings).expect("the server starts");
    let settings::Address::Tcp(address) = server.addresses()[0] else { unreachable!("it listens by TCP") };
    (server, Address::Tcp(address.port()))
}
