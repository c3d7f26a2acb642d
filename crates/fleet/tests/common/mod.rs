//! What the tests with real clients share: servers that say who they are, and twemproxy in front of them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nuthatch_fleet::{Distribution, Hash, PlacementSettings, ServerSpec};

/// A server that has every key: its value is the server's number.
pub(crate) struct Backend {
    port: u16,
}

impl Backend {
    /// Listens on a free port until the test's process ends.
    pub(crate) fn start(number: usize) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(stream, number));
            }
        });
        Backend { port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Answers every `get KEY`, until the client goes.
fn answer(stream: TcpStream, number: usize) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let _ = stream.set_nodelay(true);
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let key = line.strip_prefix(b"get ").unwrap_or_default().trim_ascii_end();
        let value = number.to_string();
        let mut reply = b"VALUE ".to_vec();
        reply.extend_from_slice(key);
        reply.extend_from_slice(format!(" 0 {}\r\n{value}\r\nEND\r\n", value.len()).as_bytes());
        if writer.write_all(&reply).is_err() {
            return;
        }
        line.clear();
    }
}

/// A port that nobody listens on.
pub(crate) fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// twemproxy with a pool for each case, each on a UNIX socket.
pub(crate) struct Nutcracker {
    child: Child,
    dir: tempfile::TempDir,
}

/// The keys of a pool in twemproxy's file, but for its listener.
pub(crate) fn nutcracker_pool(settings: &PlacementSettings, servers: &[ServerSpec]) -> String {
    let distribution = if settings.distribution == Distribution::Twemproxy { "ketama" } else { "modula" };
    let mut text = format!("  distribution: {distribution}\n  auto_eject_hosts: false\n  timeout: 20000\n");
    if let Some(hash) = settings.hash {
        // What libmemcached calls crc is crc32 there.
        let name = if hash == Hash::Crc { "crc32" } else { hash.name() };
        text.push_str(&format!("  hash: {name}\n"));
    }
    if let Some((open, close)) = settings.hash_tag {
        text.push_str(&format!("  hash_tag: \"{}{}\"\n", open as char, close as char));
    }
    text.push_str("  servers:\n");
    for server in servers {
        let name = server.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
        text.push_str(&format!("   - {}:{}:{}{name}\n", server.host, server.port, server.weight));
    }
    text
}

impl Nutcracker {
    pub(crate) fn start(pools: &[String]) -> Nutcracker {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut text = String::new();
        for (number, pool) in pools.iter().enumerate() {
            let socket = dir.path().join(format!("{number}.sock"));
            text.push_str(&format!("pool{number}:\n  listen: {}\n{pool}", socket.display()));
        }
        let file = dir.path().join("nutcracker.yml");
        std::fs::write(&file, text).expect("the file is written");
        let child = Command::new("nutcracker")
            .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()))
            .args(["-c", file.to_str().expect("a path in UTF-8"), "-a", "127.0.0.1", "-s", &closed_port().to_string()])
            .args(["-o", dir.path().join("log").to_str().expect("a path in UTF-8")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run nutcracker: {error}; scripts/install-test-deps.sh installs it"));
        Nutcracker { child, dir }
    }

    /// The number of the backend that answers each key through a pool.
    pub(crate) fn backends_of(&self, pool: usize, keys: &[Vec<u8>]) -> Vec<usize> {
        let path = self.dir.path().join(format!("{pool}.sock"));
        let deadline = Instant::now() + Duration::from_secs(20);
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => {
                    let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                    panic!("nutcracker does not listen: {error}\n{log}")
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time can be set");
        let mut writer = stream.try_clone().expect("a socket can be cloned");
        let mut lines = BufReader::new(stream);
        let mut backends = Vec::new();
        for keys in keys.chunks(100) {
            let request: Vec<u8> = keys.iter().flat_map(|key| [b"get ", &key[..], b"\r\n"].concat()).collect();
            writer.write_all(&request).expect("nutcracker reads");
            for _ in keys {
                let reply: Vec<String> = (0..3)
                    .map(|_| {
                        let mut line = Vec::new();
                        lines.read_until(b'\n', &mut line).expect("nutcracker answers");
                        String::from_utf8_lossy(&line).trim_end().to_owned()
                    })
                    .collect();
                assert!(reply[0].starts_with("VALUE ") && reply[2] == "END", "{reply:?}");
                backends.push(reply[1].parse().expect("a backend's number"));
            }
        }
        backends
    }
}

impl Drop for Nutcracker {
    fn drop(&mut self) {
        // Ours, and nothing is lost with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
