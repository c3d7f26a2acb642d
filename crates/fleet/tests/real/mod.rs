//! Real memcached servers, and clients of them.
#![allow(dead_code, reason = "every test program uses some of it")]

use std::future::Future;
use std::time::{Duration, Instant};

use nuthatch_fleet::client::{Config, Modulo, Protocol, ServerAddr, Servers, Ticks};
use nuthatch_testkit::{Address, Faulty, Launch, Spawned};

/// Longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A memcached on a TCP port.
pub(crate) fn memcached() -> Spawned {
    Launch::real_memcached().args(["-t", "1"]).start()
}

/// A memcached behind a proxy that may misbehave.
pub(crate) struct Hindered {
    pub(crate) faulty: Faulty,
    _real: Spawned,
}

impl Hindered {
    pub(crate) fn start() -> Hindered {
        let real = memcached();
        let faulty = Faulty::before(real.address());
        Hindered { faulty, _real: real }
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(servers(vec![addr(&self.faulty.address())]))
    }

    /// With limits of an [`HOUR`], which passes when the test says so.
    pub(crate) fn timeless(&self) -> Config {
        let (timeout, read_timeout, connect_timeout) = (HOUR, HOUR, HOUR);
        Config { timeout, read_timeout, connect_timeout, ticks: Ticks::Caller, ..self.config() }
    }
}

/// Servers that end with the test.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Spawned>,
}

impl Fleet {
    /// So many memcached servers, on TCP ports.
    pub(crate) fn start(servers: usize) -> Fleet {
        Fleet { servers: (0..servers).map(|_| memcached()).collect() }
    }

    /// One memcached on a UNIX socket.
    pub(crate) fn unix() -> Fleet {
        Fleet { servers: vec![Launch::real_memcached().args(["-t", "1"]).unix().start()] }
    }

    pub(crate) fn config(&self, protocol: Protocol) -> Config {
        Config { protocol, ..Config::new(servers(self.servers.iter().map(|server| addr(server.address())).collect())) }
    }
}

pub(crate) fn addr(address: &Address) -> ServerAddr {
    match address {
        Address::Tcp(port) => ServerAddr::tcp("127.0.0.1", *port),
        Address::Unix(path) => ServerAddr::unix(path),
    }
}

pub(crate) fn servers(list: Vec<ServerAddr>) -> Servers {
    Servers::new(list, Modulo::of)
}

/// Runs a test's future on a runtime of one thread, as the server's workers have.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built").block_on(future)
}

/// Waits for a condition, for as long as a busy machine may need.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
