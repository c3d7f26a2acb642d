//! Servers started for a measurement and ended with it.
//!
//! They listen on loopback or a UNIX socket alone, on a port that was free a moment before, and are gone when the value is
//! dropped. A server is ready when it answers, which is polled for, not slept for.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(20);
/// Short beside a start, which takes milliseconds.
const POLL: Duration = Duration::from_micros(100);

/// A running server.
pub(crate) struct Launched {
    child: Child,
    /// Where it answers.
    pub(crate) address: Address,
    /// From the start to the first answer.
    pub(crate) started_in: Duration,
}

impl Launched {
    /// Starts `command`, which has to listen on `address`, and waits for its first answer.
    pub(crate) fn start(command: Vec<String>, address: Address) -> Result<Launched, Failure> {
        let shown = command.join(" ");
        let began = Instant::now();
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| Failure::run(format!("bench: expected to run `{shown}`: {error}")))?;
        let mut server = Launched { child, address, started_in: Duration::ZERO };
        while !answers(&server.address) {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Failure::run(format!("bench: `{shown}` ended with {status} instead of serving")));
            }
            if began.elapsed() > PATIENCE {
                return Err(Failure::run(format!("bench: `{shown}` did not answer at {}", server.address)));
            }
            thread::sleep(POLL);
        }
        server.started_in = began.elapsed();
        Ok(server)
    }

    /// Its process: of a command behind `chrt` or `taskset` too, since those become what they start.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Address::Unix(path) = &self.address {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a server answers there. A connection alone proves little: the kernel takes it before anyone accepts. Any answer
/// will do, a refusal too, since not all that is measured is a memcached. Those that speak HTTP wait for an empty line, which
/// some others do not bear, so it is said to those alone that do not answer without it.
fn answers(address: &Address) -> bool {
    const PATIENCE: Option<Duration> = Some(Duration::from_millis(100));
    fn ask(mut stream: impl Read + Write, question: &[u8]) -> bool {
        stream.write_all(question).is_ok() && stream.read(&mut [0; 64]).is_ok_and(|received| received > 0)
    }
    [b"version\r\n".as_slice(), b"version\r\n\r\n"].into_iter().any(|question| match address {
        Address::Tcp(text) => TcpStream::connect(text)
            .is_ok_and(|stream| stream.set_read_timeout(PATIENCE).is_ok() && ask(stream, question)),
        Address::Unix(path) => UnixStream::connect(path)
            .is_ok_and(|stream| stream.set_read_timeout(PATIENCE).is_ok() && ask(stream, question)),
    })
}

/// A TCP address of this machine that nobody listens on.
pub(crate) fn free_port() -> Result<Address, Failure> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::run(format!("bench: expected a free port on 127.0.0.1: {error}")))?;
    Ok(Address::Tcp(port.to_string()))
}

/// A directory for sockets and configuration files that goes with the value.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nuthatch-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)
            .map_err(|error| Failure::run(format!("bench: expected to make {}: {error}", path.display())))?;
        Ok(Scratch { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A place for a socket that is not there yet.
    pub(crate) fn socket(&self, name: &str) -> Address {
        Address::Unix(self.path.join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The words that make a memcached, or what takes its place, listen on `address`.
pub(crate) fn listen_words(address: &Address) -> Vec<String> {
    match address {
        Address::Tcp(text) => {
            let (host, port) = text.rsplit_once(':').unwrap_or((text, "11211"));
            ["-l", host, "-p", port].map(str::to_owned).to_vec()
        }
        Address::Unix(path) => vec!["-s".to_owned(), path.display().to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_serve_is_said_with_its_command() {
        let address = free_port().unwrap();
        let failure = Launched::start(vec!["false".to_owned()], address.clone()).err().unwrap();
        assert_eq!(failure.to_string(), "bench: `false` ended with exit status: 1 instead of serving");
        let failure = Launched::start(vec!["/no/such/program".to_owned()], address).err().unwrap();
        assert!(failure.to_string().starts_with("bench: expected to run `/no/such/program`: "));
    }

    #[test]
    fn a_listener_s_words_are_memcached_s() {
        assert_eq!(listen_words(&Address::Tcp("127.0.0.1:7".to_owned())), ["-l", "127.0.0.1", "-p", "7"]);
        assert_eq!(listen_words(&Address::Unix("/s".into())), ["-s", "/s"]);
    }

    #[test]
    fn a_scratch_directory_goes_with_its_value() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path.clone();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
