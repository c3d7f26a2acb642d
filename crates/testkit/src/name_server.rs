//! A small name server that answers with what the test put there, and falls silent when it is told to.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Addresses (RFC 1035, 3.4.1).
pub const A: u16 = 1;
/// IPv6 addresses (RFC 3596).
pub const AAAA: u16 = 28;
/// Services (RFC 2782).
pub const SRV: u16 = 33;

/// Answers for a name and a type: the records' data. A name it does not have does not exist.
type Zone = HashMap<(String, u16), Vec<Vec<u8>>>;

/// See the module. It ends with this value.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    zone: Mutex<Zone>,
    is_silent: AtomicBool,
    is_over: AtomicBool,
}

impl NameServer {
    /// One on a free port of this machine, with an empty zone.
    pub fn start() -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time limit");
        let address = socket.local_addr().expect("it is bound");
        let shared = Arc::<Shared>::default();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || serve(&socket, &shared)
        });
        NameServer { address, shared, thread: Some(thread) }
    }

    /// Where it is asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has `name` have these records of type `kind`.
    pub fn put(&self, name: &str, kind: u16, records: Vec<Vec<u8>>) {
        self.zone().insert((name.to_owned(), kind), records);
    }

    /// Forgets every name.
    pub fn clear(&self) {
        self.zone().clear();
    }

    /// Answers nothing any more.
    pub fn silence(&self) {
        self.shared.is_silent.store(true, Ordering::Relaxed);
    }

    fn zone(&self) -> std::sync::MutexGuard<'_, Zone> {
        self.shared.zone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 1500];
    while !shared.is_over.load(Ordering::Relaxed) {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
        if !shared.is_silent.load(Ordering::Relaxed) {
            let reply = reply(&buffer[..length], &shared.zone.lock().unwrap_or_else(PoisonError::into_inner));
            let _ = socket.send_to(&reply, peer);
        }
    }
}

/// The answer to a request of one question, which is echoed with the records.
fn reply(request: &[u8], zone: &Zone) -> Vec<u8> {
    let (mut at, mut labels) = (12, Vec::new());
    while request[at] != 0 {
        let end = at + 1 + usize::from(request[at]);
        // Resolvers may mix cases, to be harder to lie to.
        labels.push(String::from_utf8_lossy(&request[at + 1..end]).to_lowercase());
        at = end;
    }
    let kind = u16::from_be_bytes([request[at + 1], request[at + 2]]);
    let question = &request[12..at + 5];
    let name = labels.join(".");
    let exists = zone.keys().any(|(known, _)| *known == name);
    let none = Vec::new();
    let records = zone.get(&(name, kind)).unwrap_or(&none);
    let mut reply = request[..2].to_vec();
    // An authoritative response; 3 says that there is no such name.
    reply.extend([0x85, if exists { 0x80 } else { 0x83 }, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    reply.extend(question);
    for record in records {
        reply.extend([0xc0, 12]);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 60, 0, record.len() as u8]);
        reply.extend(record);
    }
    reply
}
