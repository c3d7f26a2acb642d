//! One client of a server without sockets, threads or a running clock: requests go in as bytes, answers come out.
//!
//! Owns everything a worker's connection is served with: a pool, a listener, a session, an output. For what has to
//! repeat exactly, fuzzing ([`fuzz`](crate::fuzz)) and counting instructions (`bench/instructions`). No real client
//! comes this way, and nothing here reads a socket, starts a thread or ticks the clock.

use std::sync::Arc;

use crate::auth::Access;
use crate::clock::Clock;
use crate::conn::{Output, Pause, Session};
use crate::exec::Exec;
use crate::log::Log;
use crate::pool::{Handles, Pool, Routes};
use crate::settings::{Address, PoolSettings, Protocol, Settings};
use crate::shared::{Books, ConnectionInfo, Listener, Live, Peer, Shared};
use crate::tier::Tiers;

/// The seed of every loopback's hashes, so that runs repeat.
const HASH_SEED: u64 = 1;

/// One client, and the server it talks to.
pub struct Loopback {
    shared: Arc<Shared>,
    live: Arc<Live>,
    handles: Handles,
    from: ConnectionInfo,
    session: Session,
    output: Output,
}

impl Loopback {
    /// A client that has said nothing yet, of a server with one pool of `memory_bytes`.
    ///
    /// # Panics
    /// When the system does not give that much address space.
    pub fn new(memory_bytes: u64) -> Loopback {
        let pool = PoolSettings { memory_bytes, ..PoolSettings::named("default") };
        let settings = Settings { pools: vec![pool], workers: 1, debug_commands: true, ..Settings::default() };
        let books = Arc::<Books>::default();
        let (clock, log) = (Clock::new(), Log::new(settings.verbosity));
        let pool = match Pool::new(&settings.pools[0], 1, HASH_SEED, b':', &books, &clock, &log) {
            Ok(pool) => Arc::new(pool),
            Err(error) => panic!("expected to make a pool of {memory_bytes} bytes: {error}"),
        };
        let listener = Arc::new(Listener {
            name: "loopback".to_owned(),
            address: Address::Unix { path: "loopback".into(), mode: 0 },
            protocol: Protocol::Auto,
            access: Access::Open,
            pool: pool.number,
            own_pool: Arc::clone(&pool),
            site: None,
            tls: None,
            counters: books.listeners.open(),
            fd: 3,
        });
        let live = Live {
            settings: Arc::new(settings),
            pools: vec![pool],
            leaving: Vec::new(),
            routes: Routes::default(),
            tiers: Tiers::default(),
            listeners: vec![Arc::clone(&listener)],
        };
        let mut handles = Handles::default();
        handles.follow(&live);
        let shared = Arc::new(Shared::new(live, books, Arc::default(), clock, log));
        shared.clock.pause();
        let live = shared.live();
        let from = ConnectionInfo::new(0, 4, Peer::Unix, listener, shared.clock.now());
        Loopback { shared, live, handles, from, session: Session::new(&Access::Open, false), output: Output::default() }
    }

    /// Executes what `input` begins with, as a connection does with what it has read: how many bytes are done with, and
    /// why it stopped. `turns` is counted down by the requests that were executed.
    #[inline]
    pub(crate) fn step(&mut self, input: &[u8], turns: &mut u32) -> (usize, Pause) {
        let mut exec = Exec::new(&self.shared, &self.live, &mut self.handles, 0, &mut self.output, &self.from);
        self.session.run(&mut exec, input, turns)
    }

    /// Takes the answers so far.
    pub(crate) fn take_answers(&mut self) -> Vec<u8> {
        let answers = self.output.flatten();
        self.output.clear();
        answers
    }

    /// Whether the client watches by now, and will be told nothing else.
    pub(crate) fn is_watching(&self) -> bool {
        self.session.watcher().is_some()
    }

    /// Executes `requests`, which are whole, and forgets the answers as if they had been sent. Answers how many bytes they
    /// had.
    ///
    /// # Panics
    /// When something is left of the requests, or their answers are more than a connection executes before it sends.
    pub fn run(&mut self, requests: &[u8]) -> usize {
        self.execute(requests);
        let bytes = self.output.pending_bytes();
        self.output.clear();
        bytes
    }

    /// Executes `requests`, as [`run`](Loopback::run) does, and tells the answers.
    ///
    /// # Panics
    /// When something is left of the requests.
    pub fn answers(&mut self, requests: &[u8]) -> Vec<u8> {
        let (mut at, mut answers, mut turns) = (0, Vec::new(), u32::MAX);
        loop {
            let (used, pause) = self.step(&requests[at..], &mut turns);
            at += used;
            answers.append(&mut self.take_answers());
            if pause != Pause::Full {
                assert!(at == requests.len() && pause == Pause::Starved, "whole requests");
                return answers;
            }
        }
    }

    fn execute(&mut self, requests: &[u8]) {
        let mut turns = u32::MAX;
        let (used, pause) = self.step(requests, &mut turns);
        assert!(used == requests.len() && pause == Pause::Starved, "whole requests whose answers fit the output");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_socket_is_answered() {
        let mut client = Loopback::new(4 << 20);
        assert_eq!(client.run(b"set k 5 0 3\r\nabc\r\n"), b"STORED\r\n".len());
        assert_eq!(client.answers(b"get k\r\nget l\r\n"), b"VALUE k 5 3\r\nabc\r\nEND\r\nEND\r\n");
    }

    #[test]
    #[should_panic(expected = "whole requests")]
    fn half_a_request_is_refused() {
        Loopback::new(4 << 20).run(b"get k");
    }
}
