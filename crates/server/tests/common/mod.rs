//! Servers in the test's own process, and plain clients for them.
#![allow(dead_code, reason = "each test program uses its own part of this")]

pub(crate) mod binary;
pub(crate) mod scripted;
pub(crate) mod tls;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nuthatch_fleet::ServerSpec;
use nuthatch_fleet::membership::Source;
use nuthatch_server::settings::{Address, ListenerSettings, Protocol, Settings};
use nuthatch_server::{Running, Server};

/// How long a test waits for an answer that never comes before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A TCP listener on a port that the system chooses.
pub(crate) fn listener(pool: usize) -> ListenerSettings {
    let address = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
    ListenerSettings { address, protocol: Protocol::Auto, pool, tag: None, tls: None, http: None, required: true }
}

/// An address that no other test and no other process of this machine uses: the process id is part of it.
pub(crate) fn own_address() -> SocketAddr {
    static PORTS: AtomicU16 = AtomicU16::new(21_000);
    let id = std::process::id();
    let octets = [127, 1 + (id >> 14 & 0x7f) as u8, (id >> 7 & 0x7f) as u8, 1 + (id & 0x7f) as u8];
    (octets, PORTS.fetch_add(1, Ordering::Relaxed)).into()
}

/// How a fleet's list has the server on a port of this machine.
pub(crate) fn source(port: u16) -> Source {
    Source::Server(ServerSpec::new("127.0.0.1", port))
}

/// Two addresses with one port.
pub(crate) fn two_addresses() -> [SocketAddr; 2] {
    let one = own_address();
    let IpAddr::V4(ip) = one.ip() else { panic!("127.0.0.0/8 is IPv4") };
    let [first, second, third, last] = ip.octets();
    [one, ([first, second ^ 0x80, third, last], one.port()).into()]
}

/// A server that listens at `address`.
pub(crate) fn server_at(address: SocketAddr) -> Running {
    start(Settings {
        listeners: vec![ListenerSettings { address: Address::Tcp(address), ..listener(0) }],
        ..settings()
    })
}

/// What a name server has to say for a name to have these addresses.
pub(crate) fn records(addresses: &[SocketAddr]) -> Vec<Vec<u8>> {
    let octets = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    addresses.iter().map(octets).collect()
}

/// memcached's defaults on a free port, with the clock in the tests' hands.
pub(crate) fn settings() -> Settings {
    Settings { listeners: vec![listener(0)], debug_commands: true, workers: 2, ..Settings::default() }
}

/// Starts a server that is known to start.
pub(crate) fn start(settings: Settings) -> Running {
    Server::start(settings).expect("the server starts")
}

/// The address of listener number `index`.
pub(crate) fn address(server: &Running, index: usize) -> SocketAddr {
    match server.addresses()[index] {
        Address::Tcp(address) | Address::Udp(address) => address,
        Address::Unix { .. } => panic!("listener {index} is a UNIX socket"),
    }
}

/// A client that sends bytes and expects bytes.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
}

impl Client {
    pub(crate) fn connect(server: &Running) -> Client {
        Client::connect_to(address(server, 0))
    }

    /// A client of what listens on a port of this machine.
    pub(crate) fn of_port(port: u16) -> Client {
        Client::connect_to(([127, 0, 0, 1], port).into())
    }

    pub(crate) fn connect_to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client { stream }
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads exactly `expected`.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        let mut have = 0;
        while have < got.len() {
            match self.stream.read(&mut got[have..]) {
                Ok(0) => panic!("closed after {:?}", String::from_utf8_lossy(&got[..have])),
                Ok(bytes) => have += bytes,
                Err(error) => panic!(
                    "{error} after {:?}, expecting {:?}",
                    String::from_utf8_lossy(&got[..have.min(500)]),
                    String::from_utf8_lossy(&expected[..expected.len().min(500)])
                ),
            }
        }
        assert!(got == expected, "got {:?}", String::from_utf8_lossy(&got[..got.len().min(2000)]));
    }

    /// Sends `request` and reads exactly `expected`.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(expected);
    }

    /// Reads exactly `bytes` bytes.
    #[track_caller]
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.stream.read_exact(&mut taken).expect("the server answers");
        taken
    }

    /// Reads up to and including `end`.
    #[track_caller]
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        let mut got = Vec::new();
        while !got.ends_with(end.as_bytes()) {
            let mut byte = [0];
            match self.stream.read(&mut byte) {
                Ok(1) => got.push(byte[0]),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&got)),
            }
        }
        String::from_utf8(got).expect("text")
    }

    /// Expects that the server closes, without another byte.
    #[track_caller]
    pub(crate) fn expect_close(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "unexpected {:?}", String::from_utf8_lossy(&rest)),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}, expecting the server to close"),
        }
    }

    /// One number of `stats` or a sub-command.
    #[track_caller]
    pub(crate) fn stat(&mut self, command: &str, name: &str) -> String {
        self.send(format!("{command}\r\n"));
        let all = self.read_until("END\r\n");
        let prefix = format!("STAT {name} ");
        let line = all.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {name} in {all}")).to_owned()
    }

    #[track_caller]
    pub(crate) fn number(&mut self, name: &str) -> u64 {
        self.stat("stats", name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
    }
}

/// Waits until `condition` holds; tests wait for conditions, never for a time.
#[track_caller]
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "it does not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}
