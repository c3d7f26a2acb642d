//! Random conversations with a server in the text, meta and binary protocols, every answer compared with the model's.
//!
//! For tests only. A conversation is decided by its seed: the same seed says the same things, in the same pieces, over the same
//! connections. It finds what hand-written transcripts do not think of: state left over from one command in the next, one
//! protocol's view of another's item, an item that changes its unique without being written.
//!
//! | module | owns |
//! |---|---|
//! | this | the connections, the turns and what is remembered between them |
//! | `choose` | which keys, values, numbers and uniques are used |
//! | `text`, `meta`, `binary` | each protocol's commands: what is said, and from the model what is to be answered |
//! | `check` | comparing answers with what was expected, and the report of a failure |

mod binary;
mod check;
mod choose;
mod meta;
mod text;

use std::collections::HashMap;

use crate::dice::Dice;
use crate::model::{Model, Seconds, Version};
use crate::spawn::{Address, Clock};
use crate::wire::{Conn, Frame};

/// What a conversation may use.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// How many commands are sent.
    pub commands: usize,
    /// The server is a memcached-debug whose clock can be moved.
    pub moves_clock: bool,
    /// The server is no memcached.
    pub is_ours: bool,
    /// The server has what memcached 1.6.18 has not: `E`, the client's own unique, and `N` of `ms`.
    pub is_recent: bool,
    /// A key's unique is its own server's to give, and others give the same to others.
    pub has_servers: bool,
    /// Who reads an item is not always seen to: a copy may have been served.
    pub has_copies: bool,
}

impl Scope {
    /// Of one server that is ours and has a clock of its own.
    pub fn of_ours(commands: usize) -> Scope {
        Scope { commands, moves_clock: false, is_ours: true, is_recent: true, has_servers: false, has_copies: false }
    }
}

/// Holds the conversation that a seed decides.
///
/// # Panics
/// When an answer is not the model's, with the seed and the last things said.
pub fn hold(server: &Address, seed: u64, scope: Scope) {
    hold_by(server, Dice::seeded(seed), &format!("seed {seed}"), scope);
}

/// Holds the conversation that a fuzzer's bytes decide, on a server that nobody else uses; it begins with a flush.
///
/// # Panics
/// When an answer is not the model's, with the last things said.
pub fn fuzz(server: &Address, bytes: &[u8], scope: Scope) {
    let mut control = Conn::try_open(server).expect("the server listens");
    assert_eq!(control.ask("flush_all"), "OK");
    hold_by(server, Dice::bytes(bytes), "a fuzzer's bytes", scope);
}

fn hold_by(server: &Address, dice: Dice, origin: &str, scope: Scope) {
    let mut conversation = Conversation::open(server, dice, origin, scope);
    while conversation.said < scope.commands && !conversation.dice.is_used_up() {
        conversation.turn();
    }
}

/// One piece of an expected answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    /// The unique of a version, in decimal.
    Unique(Version),
    /// A whole binary frame; the version is that of its CAS field, `None` a field of 0.
    Frame(Frame, Option<Version>),
}

/// A key; one that is not text travels in base64 in the meta protocol and not at all in the text protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    bytes: Vec<u8>,
    is_text: bool,
}

struct Conversation<'a> {
    server: &'a Address,
    origin: &'a str,
    scope: Scope,
    dice: Dice,
    model: Model,
    now: Seconds,
    keys: Vec<Key>,
    /// The numbers by which the server calls versions, as far as it has said them.
    uniques: HashMap<Version, u64>,
    /// Versions whose number the client chose.
    own: HashMap<Version, u64>,
    /// Uniques that a key had earlier.
    former: HashMap<Vec<u8>, Vec<u64>>,
    text: Vec<Conn>,
    binary: Vec<Conn>,
    said: usize,
    /// What was sent last, for the report of a failure.
    history: Vec<String>,
    /// How many commands of this turn were chosen so far.
    chosen: usize,
    /// Until when the clock stands still, with a flush pending: its exact second is not every server's.
    pending_flush: Option<i64>,
    clock: Clock,
}

impl<'a> Conversation<'a> {
    fn open(server: &'a Address, dice: Dice, origin: &'a str, scope: Scope) -> Conversation<'a> {
        let connect = || Conn::try_open(server).unwrap_or_else(|error| panic!("cannot connect to {server}: {error}"));
        let mut text: Vec<_> = (0..3).map(|_| connect()).collect();
        if scope.moves_clock {
            assert_eq!(text[0].ask("debugtime p"), "OK", "the clock stops");
        }
        let now = text[0].stat("time").try_into().expect("a clock shows less than 2^63 seconds");
        let mut keys: Vec<_> = (0..10).map(|n| Key { bytes: format!("key{n}").into_bytes(), is_text: true }).collect();
        keys.push(Key { bytes: vec![b'k'; 250], is_text: true });
        keys.push(Key { bytes: "ключ".as_bytes().to_vec(), is_text: true });
        keys.push(Key { bytes: b"\0 a\r\n".to_vec(), is_text: false });
        keys.push(Key { bytes: vec![0xff; 180], is_text: false });
        Conversation {
            server,
            origin,
            scope,
            dice,
            model: Model::new(!scope.is_ours),
            now,
            keys,
            uniques: HashMap::new(),
            own: HashMap::new(),
            former: HashMap::new(),
            text,
            binary: (0..2).map(|_| connect()).collect(),
            said: 0,
            history: Vec::new(),
            chosen: 0,
            pending_flush: None,
            clock: Clock::default(),
        }
    }

    /// A few commands of one protocol in one go over one connection, and their answers.
    fn turn(&mut self) {
        if self.scope.moves_clock && self.dice.u8(..12) == 0 {
            self.move_clock();
        }
        let is_binary = self.dice.u8(..3) == 0;
        let mut request = Vec::new();
        let mut answer = Vec::new();
        for chosen in 0..self.dice.usize(1..=6) {
            self.chosen = chosen;
            let (said, parts) = match (is_binary, self.dice.u8(..2)) {
                (true, _) => self.binary_command(),
                (false, 0) => self.text_command(),
                (false, _) => self.meta_command(),
            };
            self.history.push(check::shortened(&said));
            request.extend(said);
            answer.extend(parts);
            self.said += 1;
        }
        if is_binary {
            // Quiet commands may have said nothing; a no-op tells where the answers end.
            let (said, parts) = self.binary_noop();
            request.extend(said);
            answer.extend(parts);
        }
        let chosen = self.dice.usize(..if is_binary { self.binary.len() } else { self.text.len() });
        let mut pieces = vec![request];
        while pieces.len() < 6 && self.dice.u8(..3) == 0 {
            let last = pieces.last_mut().expect("there is one at least");
            if last.len() < 2 {
                break;
            }
            let after = last.split_off(self.dice.usize(1..last.len()));
            pieces.push(after);
        }
        // From another thread: a server need not read on while it has answers that nobody takes.
        let mut sender = if is_binary { &self.binary } else { &self.text }[chosen].share();
        let sending = std::thread::spawn(move || pieces.iter().try_for_each(|piece| sender.try_send(piece)));
        for part in answer {
            self.expect(is_binary, chosen, &part);
        }
        if let Err(error) = sending.join().expect("a send does not panic") {
            self.fail(&format!("the server did not take all that was sent: {error}"));
        }
        // What wants no answer must be done before another connection looks, and memcached lets go of the items it sent only after
        // sending them; see `may_count`.
        let (said, parts) = if is_binary { self.binary_noop() } else { meta::noop() };
        let connection = if is_binary { &mut self.binary[chosen] } else { &mut self.text[chosen] };
        connection.send(said);
        for part in parts {
            self.expect(is_binary, chosen, &part);
        }
    }

    fn move_clock(&mut self) {
        let seconds = match self.pending_flush.take() {
            Some(at) => at - self.now + 1,
            None => self.dice.i64(1..30),
        };
        let mut control = Conn::try_open(self.server).expect("the server listens");
        assert_eq!(control.ask(format!("debugtime {}", self.clock.step(seconds))), "OK", "the clock moves");
        self.now += seconds;
        self.history.push(format!("(the clock moves by {seconds} seconds)"));
    }
}

/// The pieces of an answer as they are put together.
#[derive(Default)]
struct Answer {
    parts: Vec<Part>,
}

impl Answer {
    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if let Some(Part::Bytes(last)) = self.parts.last_mut() {
            last.extend(bytes);
        } else {
            self.parts.push(Part::Bytes(bytes.to_vec()));
        }
    }
}
