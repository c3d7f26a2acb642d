//! An etcd of a test's own, asked over its HTTP gateway.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::free_port;

/// How long it may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd with its data in a directory that goes with it.
#[derive(Debug)]
pub struct Etcd {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// When it cannot be run (`scripts/install-test-deps.sh` installs it), or does not answer.
    pub fn start() -> Etcd {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let (port, peers) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
        let clients = format!("http://127.0.0.1:{port}");
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients, "--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers, "--initial-cluster", &format!("default={peers}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run etcd: {error}; scripts/install-test-deps.sh installs it"));
        let etcd = Etcd { child, port, _dir: dir };
        let deadline = Instant::now() + PATIENCE;
        while etcd.post("/v3/kv/range", "{\"key\":\"eA==\"}").is_err() {
            assert!(Instant::now() < deadline, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        etcd
    }

    /// Where it is spoken to: `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stores a key.
    ///
    /// # Panics
    /// When it does not take it.
    pub fn put(&self, key: &str, value: &str) {
        let request = format!("{{\"key\":\"{}\",\"value\":\"{}\"}}", in_base64(key), in_base64(value));
        self.post("/v3/kv/put", &request).expect("etcd takes a key");
    }

    /// Deletes a key.
    ///
    /// # Panics
    /// When it does not.
    pub fn delete(&self, key: &str) {
        let request = format!("{{\"key\":\"{}\"}}", in_base64(key));
        self.post("/v3/kv/deleterange", &request).expect("etcd deletes a key");
    }

    /// Ends it, as a machine does that stops.
    pub fn stop(&mut self) {
        // Ours, and its data is thrown away.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// An error unless the answer says that all is well.
    fn post(&self, path: &str, body: &str) -> io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 200 ") { Ok(()) } else { Err(io::Error::other(answer)) }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn in_base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut coded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            coded.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    coded
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_padded() {
        for (text, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(super::in_base64(text), coded);
        }
    }
}
