//! A server that misbehaves on demand: a proxy in front of a real one, for tests of clients.
//!
//! It passes bytes on until it is told otherwise, and then does to what the server answers what networks, operators and
//! bugs do. Existing connections are struck as well as new ones. It knows just enough of the protocols to answer with
//! another key.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::spawn::Address;

/// What happens to answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Connections are refused, and existing ones end.
    Refuse,
    /// Connections are made, and nothing is ever answered: as when the machine behind a half-open connection is gone.
    Hang,
    /// Answers come so much later.
    Delay(Duration),
    /// Something else is answered.
    Garbage,
    /// Values are answered as another key's.
    OtherKey,
    /// The connection ends in the middle of what is answered.
    Cut,
    /// The connection ends after each answer.
    CloseEach,
    /// Answers come byte by byte, one each time.
    Slow(Duration),
}

/// The proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct Faulty {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fault: Fault,
    upstream: Address,
    /// Only connections on which the client has sent these bytes are struck; all, if there are none.
    only: &'static [u8],
    /// Both ends of every connection, to end them by.
    open: Vec<(TcpStream, Upstream)>,
    accepts: bool,
}

#[derive(Debug)]
enum Upstream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Faulty {
    /// A proxy on a port of its own that behaves, so far.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn before(upstream: &Address) -> Faulty {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port can be listened on");
        let address = listener.local_addr().expect("a listener has an address");
        let state =
            State { fault: Fault::None, upstream: upstream.clone(), only: b"", open: Vec::new(), accepts: true };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        let accepting = Some(accept(shared.clone(), listener));
        Faulty { shared, address, accepting }
    }

    /// Strikes only connections on which the client has sent these bytes, in one piece. To be said before there are any.
    #[must_use]
    pub fn striking(self, only: &'static [u8]) -> Faulty {
        self.shared.lock().only = only;
        self
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        Address::Tcp(self.address.port())
    }

    /// Misbehaves from now on, or no longer.
    ///
    /// # Panics
    /// When its port cannot be listened on again after [`Fault::Refuse`].
    pub fn set(&mut self, fault: Fault) {
        self.shared.lock().fault = fault;
        if fault == Fault::Refuse {
            self.stop_listening();
            self.end_connections();
        } else if self.accepting.is_none() {
            // A client that happened to connect from this port is given time to end.
            let deadline = Instant::now() + Duration::from_secs(20);
            let listener = loop {
                match TcpListener::bind(self.address) {
                    Ok(listener) => break listener,
                    Err(error) => {
                        assert!(Instant::now() < deadline, "cannot listen on {} again: {error}", self.address)
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            self.shared.lock().accepts = true;
            self.accepting = Some(accept(self.shared.clone(), listener));
        }
    }

    /// Leads to another server from now on; all connections end, as when the server was restarted.
    pub fn lead_to(&self, upstream: &Address) {
        self.shared.lock().upstream = upstream.clone();
        self.end_connections();
    }

    /// Ends all connections.
    pub fn end_connections(&self) {
        for (client, upstream) in self.shared.lock().open.drain(..) {
            end(&client, &upstream);
        }
    }

    fn stop_listening(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.lock().accepts = false;
        // The thread waits in accept(), which only a connection ends.
        drop(TcpStream::connect(self.address));
        accepting.join().expect("the proxy accepts without panicking");
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.stop_listening();
        self.end_connections();
    }
}

fn end(client: &TcpStream, upstream: &Upstream) {
    // Ended already when the other side was first.
    let _ = client.shutdown(Shutdown::Both);
    let _ = match upstream {
        Upstream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        Upstream::Unix(stream) => stream.shutdown(Shutdown::Both),
    };
}

fn accept(shared: Arc<Shared>, listener: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut state = shared.lock();
            if !state.accepts {
                return;
            }
            // Without the server behind it a connection ends at once, as a proxy's does.
            let Ok(client) = client else { continue };
            let Ok(upstream) = connect(&state.upstream) else { continue };
            let Ok(pair) = client.try_clone().and_then(|client| Ok((client, upstream.try_clone()?))) else { continue };
            state.open.push(pair);
            drop(state);
            serve(shared.clone(), client, upstream);
        }
    })
}

fn connect(address: &Address) -> io::Result<Upstream> {
    match address {
        Address::Tcp(port) => {
            let stream = TcpStream::connect(("127.0.0.1", *port))?;
            stream.set_nodelay(true)?;
            Ok(Upstream::Tcp(stream))
        }
        Address::Unix(path) => Ok(Upstream::Unix(UnixStream::connect(path)?)),
    }
}

impl Upstream {
    fn try_clone(&self) -> io::Result<Upstream> {
        match self {
            Upstream::Tcp(stream) => stream.try_clone().map(Upstream::Tcp),
            Upstream::Unix(stream) => stream.try_clone().map(Upstream::Unix),
        }
    }
}

impl Read for Upstream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Upstream::Tcp(stream) => stream.read(buffer),
            Upstream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Upstream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Upstream::Tcp(stream) => stream.write(bytes),
            Upstream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Two threads, which end when either side does.
fn serve(shared: Arc<Shared>, client: TcpStream, upstream: Upstream) {
    let _ = client.set_nodelay(true);
    let (Ok(mut from_client), Ok(mut to_server)) = (client.try_clone(), upstream.try_clone()) else { return };
    let only = shared.lock().only;
    let is_struck = Arc::new(AtomicBool::new(only.is_empty()));
    let strikes = is_struck.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(bytes @ 1..) = from_client.read(&mut buffer) {
            if !only.is_empty() && buffer[..bytes].windows(only.len()).any(|window| window == only) {
                strikes.store(true, Ordering::Relaxed);
            }
            if to_server.write_all(&buffer[..bytes]).is_err() {
                break;
            }
        }
        end(&from_client, &to_server);
    });
    std::thread::spawn(move || {
        let (mut client, mut upstream) = (client, upstream);
        let mut buffer = [0; 16 << 10];
        while let Ok(bytes @ 1..) = upstream.read(&mut buffer) {
            let fault = if is_struck.load(Ordering::Relaxed) { shared.lock().fault } else { Fault::None };
            if answer(&mut client, fault, &mut buffer[..bytes]).is_err() {
                break;
            }
        }
        end(&client, &upstream);
    });
}

/// Passes answers on in the way of the fault; an error ends the connection.
fn answer(client: &mut TcpStream, fault: Fault, bytes: &mut [u8]) -> io::Result<()> {
    let enough = || Err(io::ErrorKind::ConnectionAborted.into());
    match fault {
        Fault::None => client.write_all(bytes),
        Fault::Hang => Ok(()),
        Fault::Refuse => enough(),
        Fault::Delay(time) => {
            std::thread::sleep(time);
            client.write_all(bytes)
        }
        Fault::Garbage => client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        Fault::OtherKey => {
            rename(bytes);
            client.write_all(bytes)
        }
        Fault::Cut => {
            client.write_all(&bytes[..bytes.len() / 2])?;
            enough()
        }
        Fault::CloseEach => {
            client.write_all(bytes)?;
            enough()
        }
        Fault::Slow(time) => bytes.chunks(1).try_for_each(|byte| {
            std::thread::sleep(time);
            client.write_all(byte)
        }),
    }
}

/// Changes the key in front of each value: `VALUE key`, ` kkey` of a meta answer, the key of a binary one.
fn rename(bytes: &mut [u8]) {
    if bytes.first() == Some(&0x81) {
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + 24) {
            let (key_bytes, extras_bytes) = (usize::from(u16::from_be_bytes([header[2], header[3]])), header[4]);
            let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
            if key_bytes > 0
                && let Some(first) = bytes.get_mut(at + 24 + usize::from(extras_bytes))
            {
                *first ^= 1;
            }
            at += 24 + body_bytes;
        }
        return;
    }
    for start in 0..bytes.len() {
        let key_at = match &bytes[start..] {
            [b'V', b'A', b'L', b'U', b'E', b' ', _, ..] => start + 6,
            [b' ', b'k', b'a'..=b'z', ..]
                if bytes[..start].rsplit(|&byte| byte == b'\n').next().is_some_and(is_meta) =>
            {
                start + 2
            }
            _ => continue,
        };
        bytes[key_at] ^= 1;
    }
}

fn is_meta(line: &[u8]) -> bool {
    line.starts_with(b"VA ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        rename(&mut bytes);
        bytes
    }

    #[test]
    fn another_key_is_answered_in_every_protocol() {
        assert_eq!(renamed(b"VALUE bird 0 2\r\nhi\r\nEND\r\n"), b"VALUE cird 0 2\r\nhi\r\nEND\r\n");
        assert_eq!(renamed(b"VA 2 f0 kbird\r\nhi\r\nVA 1 kb\r\n1\r\n"), b"VA 2 f0 kcird\r\nhi\r\nVA 1 kc\r\n1\r\n");
        let mut frame = vec![0; 24];
        (frame[0], frame[3], frame[4], frame[11]) = (0x81, 4, 4, 10);
        frame.extend_from_slice(b"\0\0\0\0birdhi");
        let two = [frame.clone(), frame].concat();
        let two = renamed(&two);
        assert_eq!((&two[28..34], &two[62..68]), (&b"cirdhi"[..], &b"cirdhi"[..]));
        assert_eq!(renamed(b"STORED\r\n"), b"STORED\r\n");
    }
}
