//! Who is at the door: what a connection's requests have in common, and what passes between the service that answers
//! them and the wire that carries them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::guard::Refusal;

/// A client's connection.
#[derive(Debug)]
pub struct Client {
    /// Where it is; none over a UNIX socket.
    pub address: Option<IpAddr>,
    /// Does it speak TLS with us?
    pub is_tls: bool,
    /// The port it came in by, where the site's name has none.
    pub port: u16,
    /// Requests that were begun to be answered.
    requests: AtomicU64,
    /// What is known of one request besides what it says, by its number.
    noted: Mutex<Option<(u64, Noted)>>,
    /// Heads of answers that come before the answer (103), to be sent before anything else.
    early: Mutex<Vec<u8>>,
    upgrade: AtomicU8,
    /// Answers under way.
    answers: AtomicUsize,
}

/// An answer under way: from a request's head to its answer's last byte.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Client>);

impl Answering {
    pub(crate) fn begin(client: &Arc<Client>) -> Answering {
        client.answers.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(client))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the guard has found out about a request.
#[derive(Clone, Copy, Debug)]
enum Noted {
    /// It was refused before it was one. What stands in its place says nothing.
    Refused(Refusal),
    /// It asks for another protocol, and nothing more is read before that is answered.
    Upgrading,
}

/// What a request is, before anyone looks at what it says.
pub(crate) enum Begun {
    Plain,
    Refused(Refusal),
    Upgrading(Upgrading),
}

/// A wish to speak another protocol, which is answered in any case: dropped, it is denied.
pub(crate) struct Upgrading(Arc<Client>);

impl Upgrading {
    /// It is spoken from now on.
    pub(crate) fn grant(self) {
        self.0.upgrade.store(GRANTED, Ordering::Release);
    }
}

impl Drop for Upgrading {
    fn drop(&mut self) {
        // Unless it is granted.
        let _ = self.0.upgrade.compare_exchange(OPEN, DENIED, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// What [`Client`] knows of a wish for another protocol.
const OPEN: u8 = 0;
const GRANTED: u8 = 1;
const DENIED: u8 = 2;

/// What became of a client's wish to speak another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    /// Not known yet.
    Open,
    /// It is spoken from now on.
    Granted,
    /// It is not.
    Denied,
}

impl Client {
    /// A client that has not said anything.
    pub fn new(address: Option<IpAddr>, is_tls: bool, port: u16) -> Client {
        Client {
            address,
            is_tls,
            port,
            requests: AtomicU64::new(0),
            noted: Mutex::new(None),
            early: Mutex::default(),
            upgrade: AtomicU8::new(OPEN),
            answers: AtomicUsize::new(0),
        }
    }

    /// Are answers under way?
    pub fn is_busy(&self) -> bool {
        self.answers.load(Ordering::Relaxed) > 0
    }

    /// Stands for a request that was refused; it is the only one that is ever refused, and the last.
    pub const REFUSED: &'static [u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

    /// Request number `number`, counted from 0, is [`Client::REFUSED`], because of `why`.
    pub fn refuse(&self, number: u64, why: Refusal) {
        *self.noted() = Some((number, Noted::Refused(why)));
    }

    /// Request number `number` asks for another protocol. It is answered before another is begun.
    pub fn ask_for_upgrade(&self, number: u64) {
        *self.noted() = Some((number, Noted::Upgrading));
    }

    fn noted(&self) -> MutexGuard<'_, Option<(u64, Noted)>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request of HTTP/1 in: what was noted of it.
    pub(crate) fn begin_request(self: &Arc<Client>) -> Begun {
        let number = self.count_request();
        let mut noted = self.noted();
        match *noted {
            Some((of, what)) if of == number => {
                *noted = None;
                match what {
                    Noted::Refused(why) => Begun::Refused(why),
                    Noted::Upgrading => Begun::Upgrading(Upgrading(Arc::clone(self))),
                }
            }
            _ => Begun::Plain,
        }
    }

    /// Counts a request of HTTP/1 that is answered: its number.
    pub(crate) fn count_request(&self) -> u64 {
        // One task has all of a connection's requests.
        let number = self.requests.load(Ordering::Relaxed);
        self.requests.store(number + 1, Ordering::Relaxed);
        number
    }

    /// Requests of HTTP/1 that were begun to be answered.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Has the wire send a head before the answer that is being made.
    pub(crate) fn send_early(&self, head: &[u8]) {
        self.early.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(head);
    }

    /// What is to be sent before anything else, if it is there.
    pub fn take_early(&self) -> Option<Vec<u8>> {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        (!early.is_empty()).then(|| std::mem::take(&mut *early))
    }

    /// What became of the wish to speak another protocol; once it is known, it is told once.
    pub fn take_upgrade(&self) -> Upgrade {
        match self.upgrade.swap(OPEN, Ordering::AcqRel) {
            GRANTED => Upgrade::Granted,
            DENIED => Upgrade::Denied,
            _ => Upgrade::Open,
        }
    }
}
