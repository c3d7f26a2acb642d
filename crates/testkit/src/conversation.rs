//! Random conversations with a server in the text, meta and binary protocols, every answer compared with the model's.
//!
//! For tests only. A conversation is decided by its seed: the same seed says the same things, in the same pieces, over the same
//! connections. It finds what hand-written transcripts do not think of: state left over from one command in the next, one
//! protocol's view of another's item, an item that changes its unique without being written.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::dice::Dice;
use crate::model::{Compare, Counted, Item, Mode, Model, Seconds, Store, Stored, Version};
use crate::spawn::Address;
use crate::wire::{Conn, Frame, quoted};

/// What a conversation may use.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// How many commands are sent.
    pub commands: usize,
    /// The server is a memcached-debug whose clock can be moved.
    pub moves_clock: bool,
    /// The server has what memcached 1.6.18 has not: `E`, the client's own unique, and `N` of `ms`.
    pub is_recent: bool,
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
            model: Model::new(!scope.is_recent),
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
            self.history.push(shortened(&said));
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
        let (said, parts) = if is_binary { self.binary_noop() } else { meta_noop() };
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
        assert_eq!(control.ask(format!("debugtime {seconds}")), "OK", "the clock moves");
        self.now += seconds;
        self.history.push(format!("(the clock moves by {seconds} seconds)"));
    }

    // ---- comparing -----------------------------------------------------------------------------------------------------------

    fn expect(&mut self, is_binary: bool, chosen: usize, part: &Part) {
        let connection = if is_binary { &mut self.binary[chosen] } else { &mut self.text[chosen] };
        match part {
            Part::Bytes(expected) => match connection.try_exactly(expected.len()) {
                Ok(got) if got == *expected => {}
                Ok(got) => self.fail(&format!("expected {} and got {}", quoted(expected), quoted(&got))),
                Err(why) => self.fail(&format!("expected {} and {why}", quoted(expected))),
            },
            Part::Unique(version) => match connection.try_number() {
                Ok(number) => self.learn(*version, number, "a line"),
                Err(why) => self.fail(&format!("expected a unique and {why}")),
            },
            Part::Frame(expected, version) => {
                let mut got = match connection.try_frame() {
                    Ok(got) => got,
                    Err(why) => self.fail(&format!("expected {expected:?} and {why}")),
                };
                if let Some(version) = version {
                    let cas = std::mem::take(&mut got.cas);
                    self.learn(*version, cas, &format!("{got:?}"));
                }
                if got != *expected {
                    self.fail(&format!("expected {expected:?} and got {got:?}"));
                }
            }
        }
    }

    /// A version is called by one number, and no two versions by the same, but those whose number the client chose.
    fn learn(&mut self, version: Version, number: u64, told_by: &str) {
        let known = self.own.get(&version).or_else(|| self.uniques.get(&version)).copied();
        match known {
            Some(known) if known != number => {
                self.fail(&format!(
                    "an item that was not written changed its unique from {known} to {number}, told by {told_by}"
                ));
            }
            Some(_) => {}
            None if number == 0 => self.fail(&format!("{version:?} has 0 for a unique, told by {told_by}")),
            None => {
                if let Some(other) = self.uniques.iter().find(|(_, other)| **other == number) {
                    self.fail(&format!(
                        "{version:?} has the unique {number} that {:?} had, told by {told_by}",
                        other.0
                    ));
                }
                self.uniques.insert(version, number);
            }
        }
    }

    fn fail(&self, sentence: &str) -> ! {
        let mut told = String::new();
        for line in &self.history[self.history.len().saturating_sub(60)..] {
            writeln!(told, "  {line}").expect("a String takes all");
        }
        let holders = self
            .keys
            .iter()
            .filter_map(|key| Some((quoted(&key.bytes[..key.bytes.len().min(8)]), self.model.held(&key.bytes)?)));
        for (key, item) in holders {
            writeln!(told, "  model: {key} {:?} expiry {:?} {}", item.version, item.expiry, shortened(&item.value))
                .expect("a String takes all");
        }
        panic!("{}, {} commands: {sentence}\nsaid last:\n{told}", self.origin, self.said);
    }

    // ---- choosing ------------------------------------------------------------------------------------------------------------

    fn key(&mut self, text_only: bool) -> Key {
        loop {
            let key = &self.keys[self.dice.usize(..self.keys.len())];
            if key.is_text || !text_only {
                return key.clone();
            }
        }
    }

    /// A key to count at. How long a number may be, spaces behind it included, is not said anywhere.
    fn counted_key(&mut self, text_only: bool) -> Key {
        for _ in 0..10 {
            let key = self.key(text_only);
            let held = self.model.peek(&key.bytes, self.now);
            if held.is_none_or(|item| item.value.len() <= 20 || crate::model::number(&item.value).is_none()) {
                return key;
            }
        }
        // Spent dice throw the same key for ever.
        Key { bytes: b"counter".to_vec(), is_text: true }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.dice.u8(..20) {
            0..8 => (self.dice.u64(..) >> self.dice.u32(2..64)).to_string().into_bytes(),
            8 if self.scope.is_recent => u64::MAX.to_string().into_bytes(),
            9 => Vec::new(),
            10 => b"VALUE key0 0 1\r\nEND\r\n".to_vec(),
            11 => self.bytes(4000..20_000),
            12 if self.dice.u8(..4) == 0 => self.bytes(100_000..900_000),
            _ => self.bytes(1..300),
        }
    }

    /// Keeps append and prepend below the item limit, beyond which the answers are not the model's.
    fn fitting(&mut self, mode: Mode, key: &Key, value: Vec<u8>) -> Vec<u8> {
        let there = self.model.peek(&key.bytes, self.now).map_or(0, |item| item.value.len());
        let fits = !matches!(mode, Mode::Append | Mode::Prepend) || there + value.len() < 900_000;
        if fits { value } else { b"5".to_vec() }
    }

    fn bytes(&mut self, count: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; self.dice.usize(count)];
        self.dice.fill(&mut bytes);
        // The first byte is no digit, so that the value is no number by chance.
        bytes[0] |= 0x80;
        bytes
    }

    fn exptime(&mut self) -> i64 {
        match self.dice.u8(..12) {
            0..6 => 0,
            // Short lives only where the clock stands still between two moves.
            6 | 7 if !self.scope.moves_clock => 3000,
            6 | 7 => self.dice.i64(1..60),
            8 => 60 * 60 * 24 * 30,
            9 => self.now + self.dice.i64(1000..100_000),
            10 => self.now - self.dice.i64(1..100_000),
            _ => -1,
        }
    }

    /// In the binary protocol an expiry has no sign: -1 is a moment in the year 2106.
    fn binary_exptime(&mut self) -> (u32, i64) {
        let exptime = self.exptime() as u32;
        (exptime, i64::from(exptime))
    }

    /// Times to live for the meta protocol.
    fn lives(&self) -> [i64; 4] {
        if self.scope.moves_clock { [0, 30, 300, 3000] } else { [0, 3000, 4000, 5000] }
    }

    fn delta(&mut self) -> u64 {
        match self.dice.u8(..5) {
            // memcached 1.6.18 looks for a minus sign in what follows a number of 2^63 or more in its memory, and may find one.
            _ if !self.scope.is_recent => self.dice.u64(..1 << 40),
            0 => u64::MAX,
            1 => self.dice.u64(..),
            _ => self.dice.u64(..200),
        }
    }

    /// A number to send as unique for a key, and how it compares with the item's.
    fn unique(&mut self, key: &Key) -> Option<(u64, Compare)> {
        let version = self.model.peek(&key.bytes, self.now).map(|item| item.version);
        let current =
            version.and_then(|version| self.own.get(&version).or_else(|| self.uniques.get(&version)).copied());
        match self.dice.u8(..4) {
            0 => Some((u64::MAX - self.dice.u64(..1000), Compare::Newer)),
            1 => {
                let former = self.former.get(&key.bytes)?;
                let number = former[self.dice.usize(..former.len())];
                // Only when it is known to be below.
                current.filter(|current| number < *current).map(|_| (number, Compare::Older))
            }
            _ => current.map(|number| (number, Compare::Same)),
        }
    }

    /// Remembers a key's unique before it is written, so that it can be sent out of date.
    fn retire(&mut self, key: &Key) {
        let Some(version) = self.model.peek(&key.bytes, self.now).map(|item| item.version) else { return };
        if let Some(number) = self.own.get(&version).or_else(|| self.uniques.get(&version)) {
            let former = self.former.entry(key.bytes.clone()).or_default();
            if !former.contains(number) {
                former.push(*number);
            }
        }
    }

    /// memcached stores a counted number anew while an answer that shows the item waits to be sent, and forgets its marks.
    fn may_count(&self) -> bool {
        self.scope.is_recent || self.chosen == 0
    }

    fn one_in(&mut self, of: u8) -> bool {
        self.dice.u8(..of) == 0
    }

    // ---- text ----------------------------------------------------------------------------------------------------------------

    fn text_command(&mut self) -> (Vec<u8>, Vec<Part>) {
        match self.dice.u8(..16) {
            0..5 => self.text_get(),
            5..11 => self.text_store(),
            11 => {
                let key = self.key(true);
                self.retire(&key);
                let done = self.model.delete(&key.bytes, Compare::None, self.now);
                self.text_simple(&[b"delete ", &key.bytes], if done.is_ok() { "DELETED" } else { "NOT_FOUND" })
            }
            12 => {
                let (key, exptime) = (self.key(true), self.exptime());
                let done = self.model.touch(&key.bytes, exptime, self.now);
                let line = format!(" {exptime}");
                self.text_simple(
                    &[b"touch ", &key.bytes, line.as_bytes()],
                    if done.is_some() { "TOUCHED" } else { "NOT_FOUND" },
                )
            }
            13 | 14 if self.may_count() => {
                let (key, delta, decrement) = (self.counted_key(true), self.delta(), self.dice.bool());
                self.retire(&key);
                let answer = match self.model.count(&key.bytes, delta, decrement, Compare::None, self.now) {
                    Counted::Yes(number, _) => number.to_string(),
                    Counted::NotFound => "NOT_FOUND".to_owned(),
                    _ => "CLIENT_ERROR cannot increment or decrement non-numeric value".to_owned(),
                };
                let (verb, line) = (if decrement { "decr " } else { "incr " }, format!(" {delta}"));
                self.text_simple(&[verb.as_bytes(), &key.bytes, line.as_bytes()], &answer)
            }
            _ if self.one_in(4) => {
                let may_wait = self.scope.moves_clock && self.pending_flush.is_none();
                let delay = if may_wait && self.dice.bool() { self.dice.i64(2..20) } else { 0 };
                // Each flush replaces the one before.
                self.pending_flush = (delay > 0).then_some(self.now + delay);
                for key in self.keys.clone() {
                    self.retire(&key);
                }
                self.model.flush(delay, self.now);
                let line = if delay == 0 { String::new() } else { format!(" {delay}") };
                self.text_simple(&[b"flush_all", line.as_bytes()], "OK")
            }
            _ => meta_noop(),
        }
    }

    /// A command whose answer is one line, sometimes not wanted.
    fn text_simple(&mut self, words: &[&[u8]], answer: &str) -> (Vec<u8>, Vec<Part>) {
        let noreply = self.one_in(6);
        let said = [&words.concat()[..], if noreply { b" noreply" } else { b"" }, b"\r\n"].concat();
        // An error is told even to those who want no answer: not here, where memcached tells it nobody.
        let parts = if noreply { Vec::new() } else { vec![Part::Bytes(format!("{answer}\r\n").into_bytes())] };
        (said, parts)
    }

    fn text_get(&mut self) -> (Vec<u8>, Vec<Part>) {
        let (uniques, touch) = (self.dice.bool(), self.one_in(4));
        // Only get and gets may have lines of any length.
        let count = if !touch && self.one_in(30) { 200 } else { self.dice.usize(1..6) };
        let mut said = match (uniques, touch) {
            (false, false) => b"get".to_vec(),
            (true, false) => b"gets".to_vec(),
            (false, true) => b"gat".to_vec(),
            (true, true) => b"gats".to_vec(),
        };
        let exptime = self.exptime();
        if touch {
            said.extend(format!(" {exptime}").bytes());
        }
        let (mut parts, mut shown_bytes) = (Vec::new(), 0);
        for _ in 0..count {
            // Two hundred times the largest value proves no more than a few times, and takes its room in memory.
            if shown_bytes > 4 << 20 {
                break;
            }
            let key = self.key(true);
            said.push(b' ');
            said.extend(&key.bytes);
            let found = if touch {
                self.model.touch(&key.bytes, exptime, self.now)
            } else {
                self.model.get(&key.bytes, self.now)
            };
            let Some(item) = found else { continue };
            shown_bytes += item.value.len();
            let mut line = [b"VALUE ", &key.bytes[..], b" "].concat();
            line.extend(format!("{} {}", item.flags, item.value.len()).bytes());
            if uniques {
                line.push(b' ');
                parts.push(Part::Bytes(line));
                parts.push(Part::Unique(item.version));
                line = Vec::new();
            }
            line.extend(b"\r\n");
            line.extend(&item.value);
            line.extend(b"\r\n");
            parts.push(Part::Bytes(line));
        }
        said.extend(b"\r\n");
        parts.push(Part::Bytes(b"END\r\n".to_vec()));
        (said, parts)
    }

    fn text_store(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(true);
        let (value, exptime) = (self.value(), self.exptime());
        let flags = if self.dice.bool() { 0 } else { self.dice.u32(..) };
        let unique = if self.one_in(3) { self.unique(&key) } else { None };
        let mode = match (unique, self.dice.u8(..8)) {
            (Some(_), _) | (_, 0..3) => Mode::Set,
            (_, 3) => Mode::Add,
            (_, 4) => Mode::Replace,
            (_, 5 | 6) => Mode::Append,
            _ => Mode::Prepend,
        };
        let value = self.fitting(mode, &key, value);
        let verb = match (mode, unique) {
            (_, Some(_)) => "cas",
            (Mode::Set, _) => "set",
            (Mode::Add, _) => "add",
            (Mode::Replace, _) => "replace",
            (Mode::Append, _) => "append",
            (Mode::Prepend, _) => "prepend",
        };
        self.retire(&key);
        let compare = unique.map_or(Compare::None, |(_, compare)| compare);
        let store = Store {
            mode,
            key: &key.bytes,
            value: &value,
            flags,
            exptime,
            compare,
            stale_if_older: false,
            vivify: None,
        };
        let answer = match self.model.store(&store, self.now) {
            Stored::Yes(_) => "STORED",
            Stored::NotStored => "NOT_STORED",
            Stored::Exists => "EXISTS",
            Stored::NotFound => "NOT_FOUND",
        };
        let mut line = format!(" {flags} {exptime} {}", value.len());
        if let Some((number, _)) = unique {
            write!(line, " {number}").expect("a String takes all");
        }
        let (mut said, parts) = self.text_simple(&[verb.as_bytes(), b" ", &key.bytes, line.as_bytes()], answer);
        said.extend(&value);
        said.extend(b"\r\n");
        (said, parts)
    }

    // ---- meta ----------------------------------------------------------------------------------------------------------------

    fn meta_command(&mut self) -> (Vec<u8>, Vec<Part>) {
        match self.dice.u8(..12) {
            0..5 => self.meta_get(),
            5..9 => self.meta_set(),
            9 | 10 if self.may_count() => self.meta_arithmetic(),
            _ => self.meta_delete(),
        }
    }

    /// `O`, `k`, `q` and the like in random order after the flags that a command needs.
    fn shuffled(&mut self, key: &Key, mut flags: Vec<String>) -> Vec<String> {
        if !key.is_text {
            flags.push("b".to_owned());
        }
        // memcached 1.6.18 shows a base64 key as it is when another protocol stored the item.
        if (key.is_text || self.scope.is_recent) && self.one_in(4) {
            flags.push("k".to_owned());
        }
        if self.one_in(4) {
            let opaque = self.dice.u32(..);
            flags.push(format!("O{opaque}"));
        }
        self.dice.shuffle(&mut flags);
        flags
    }

    fn meta_line(&self, verb: &str, key: &Key, size: Option<usize>, flags: &[String]) -> Vec<u8> {
        let mut line = [verb.as_bytes(), b" ", &wire_key(key)].concat();
        if let Some(size) = size {
            line.extend(format!(" {size}").bytes());
        }
        for flag in flags {
            line.push(b' ');
            line.extend(flag.bytes());
        }
        line.extend(b"\r\n");
        line
    }

    /// What `O` and `k` give back, in the order they were sent in.
    fn echoed(key: &Key, flag: &str, parts: &mut Answer) {
        match flag.as_bytes()[0] {
            b'O' => parts.text(&format!(" {flag}")),
            b'k' => {
                parts.bytes(b" k");
                parts.bytes(&wire_key(key));
                if !key.is_text {
                    parts.bytes(b" b");
                }
            }
            _ => {}
        }
    }

    fn meta_get(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(false);
        let mut flags = Vec::new();
        for (flag, one_in) in [("v", 2), ("f", 3), ("c", 3), ("s", 3), ("t", 3), ("h", 3), ("q", 6)] {
            if self.one_in(one_in) && (flag != "t" || self.scope.moves_clock) {
                flags.push(flag.to_owned());
            }
        }
        // A time to live in the past has no length that `t` could tell.
        let alive = self.lives();
        // `T` together with `N` or `R` means in memcached what their order happens to make of it.
        let (touch, vivify, recache) = match self.dice.u8(..8) {
            0 | 1 => (true, false, false),
            2 => (false, true, true),
            3 => (false, true, false),
            4 => (false, false, true),
            _ => (false, false, false),
        };
        let ttl = |dice: &mut Dice| alive[dice.usize(..alive.len())];
        let touch = touch.then(|| ttl(&mut self.dice));
        let vivify = vivify.then(|| ttl(&mut self.dice));
        let recache = recache.then(|| if self.dice.bool() { self.dice.i64(1..60) } else { 50_000 });
        flags.extend(touch.map(|ttl| format!("T{ttl}")));
        flags.extend(vivify.map(|ttl| format!("N{ttl}")));
        flags.extend(recache.map(|ttl| format!("R{ttl}")));
        let flags = self.shuffled(&key, flags);
        let said = self.meta_line("mg", &key, None, &flags);

        let now = self.now;
        let created = self.model.peek(&key.bytes, now).is_none() && vivify.is_some();
        if created {
            self.model.vivify(&key.bytes, 0, now);
        }
        let quiet = flags.iter().any(|flag| flag == "q");
        let mut answer = Answer::default();
        let Some(item) = self.model.peek(&key.bytes, now) else {
            if quiet {
                return (said, Vec::new());
            }
            answer.text("EN");
            for flag in &flags {
                Self::echoed(&key, flag, &mut answer);
            }
            answer.bytes(b"\r\n");
            return (said, answer.parts);
        };
        let shows_value = flags.iter().any(|flag| flag == "v");
        answer.text(&if shows_value { format!("VA {}", item.value.len()) } else { "HD".to_owned() });
        let mut won = false;
        // One flag after the other, as they stand: `t` before `T` tells the old time to live.
        for flag in &flags {
            let ttl = |flag: &str| flag[1..].parse::<i64>().expect("made here");
            match flag.as_bytes()[0] {
                b'T' => item.expiry = crate::model::moment(ttl(flag), now),
                b'N' if created => {
                    item.expiry = crate::model::moment(ttl(flag), now);
                    won = true;
                }
                b'R' if !item.win_sent && !created => {
                    won |= item.expiry.is_some_and(|expiry| expiry < now + ttl(flag));
                }
                b's' => answer.text(&format!(" s{}", item.value.len())),
                b't' => answer.text(&item.expiry.map_or(" t-1".to_owned(), |expiry| format!(" t{}", expiry - now))),
                b'c' => {
                    answer.text(" c");
                    answer.parts.push(Part::Unique(item.version));
                }
                b'f' => answer.text(&format!(" f{}", item.flags)),
                b'h' => answer.text(if item.fetched { " h1" } else { " h0" }),
                _ => Self::echoed(&key, flag, &mut answer),
            }
        }
        if item.win_sent {
            answer.text(" Z");
        }
        if item.stale {
            answer.text(" X");
            won |= !item.win_sent;
        }
        if won {
            answer.text(" W");
            item.win_sent = true;
        }
        answer.bytes(b"\r\n");
        if shows_value {
            answer.bytes(&item.value);
            answer.bytes(b"\r\n");
        }
        item.fetched = true;
        (said, answer.parts)
    }

    fn meta_set(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(false);
        let value = self.value();
        let mut flags = Vec::new();
        let client_flags = if self.dice.bool() { self.dice.u32(..) } else { 0 };
        if client_flags != 0 {
            flags.push(format!("F{client_flags}"));
        }
        let exptime = self.exptime();
        if exptime != 0 {
            flags.push(format!("T{exptime}"));
        }
        let mode = match self.dice.u8(..8) {
            0..4 => Mode::Set,
            4 => Mode::Add,
            5 => Mode::Replace,
            6 => Mode::Append,
            _ => Mode::Prepend,
        };
        let value = self.fitting(mode, &key, value);
        let letter = match mode {
            Mode::Set => 'S',
            Mode::Add => 'E',
            Mode::Replace => 'R',
            Mode::Append => 'A',
            Mode::Prepend => 'P',
        };
        if mode != Mode::Set || self.one_in(4) {
            flags.push(format!("M{letter}"));
        }
        let unique = if mode != Mode::Add && self.one_in(3) { self.unique(&key) } else { None };
        let mut stale_if_older = false;
        if let Some((number, _)) = unique {
            flags.push(format!("C{number}"));
            stale_if_older = self.one_in(2);
            if stale_if_older {
                flags.push("I".to_owned());
            }
        }
        let vivify = (self.scope.is_recent && matches!(mode, Mode::Append | Mode::Prepend) && self.one_in(2))
            .then(|| self.exptime());
        flags.extend(vivify.map(|exptime| format!("N{exptime}")));
        let own = (self.scope.is_recent && self.one_in(4)).then(|| self.own_unique());
        flags.extend(own.map(|number| format!("E{number}")));
        if self.one_in(6) {
            flags.push("q".to_owned());
        }
        if self.one_in(3) {
            flags.push("c".to_owned());
        }
        let flags = self.shuffled(&key, flags);
        let mut said = self.meta_line("ms", &key, Some(value.len()), &flags);
        said.extend(&value);
        said.extend(b"\r\n");

        self.retire(&key);
        let compare = unique.map_or(Compare::None, |(_, compare)| compare);
        let store = Store {
            mode,
            key: &key.bytes,
            value: &value,
            flags: client_flags,
            exptime,
            compare,
            stale_if_older,
            vivify,
        };
        let done = self.model.store(&store, self.now);
        let mut answer = Answer::default();
        answer.text(match done {
            Stored::Yes(_) => "HD",
            Stored::NotStored => "NS",
            Stored::Exists => "EX",
            Stored::NotFound => "NF",
        });
        for flag in &flags {
            match (flag.as_str(), done) {
                ("c", Stored::Yes(version)) => {
                    answer.text(" c");
                    answer.parts.push(Part::Unique(version));
                }
                // memcached tells a number that no item has; nobody can use it.
                ("c", _) => answer.text(" c0"),
                _ => Self::echoed(&key, flag, &mut answer),
            }
        }
        answer.bytes(b"\r\n");
        if let (Stored::Yes(version), Some(number)) = (done, own) {
            self.own.insert(version, number);
        }
        let quiet = matches!(done, Stored::Yes(_)) && flags.iter().any(|flag| flag == "q");
        (said, if quiet { Vec::new() } else { answer.parts })
    }

    fn own_unique(&mut self) -> u64 {
        // Rising, and far above any a server counts, so that older stays older.
        (1 << 62) + (self.said as u64) * 16 + self.dice.u64(..16)
    }

    fn meta_delete(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(false);
        let mut flags = Vec::new();
        let unique = if self.one_in(3) { self.unique(&key) } else { None };
        flags.extend(unique.map(|(number, _)| format!("C{number}")));
        let invalidate = self.dice.bool();
        let exptime = (invalidate && self.dice.bool()).then(|| self.lives()[self.dice.usize(..4)]);
        if invalidate {
            flags.push("I".to_owned());
            flags.extend(exptime.map(|exptime| format!("T{exptime}")));
        }
        if self.one_in(6) {
            flags.push("q".to_owned());
        }
        let flags = self.shuffled(&key, flags);
        let said = self.meta_line("md", &key, None, &flags);

        self.retire(&key);
        let compare = unique.map_or(Compare::None, |(_, compare)| compare);
        let done = if invalidate {
            self.model.invalidate(&key.bytes, compare, exptime, self.now)
        } else {
            self.model.delete(&key.bytes, compare, self.now)
        };
        let mut answer = Answer::default();
        answer.text(match done {
            Ok(()) => "HD",
            Err(true) => "EX",
            Err(false) => "NF",
        });
        for flag in &flags {
            Self::echoed(&key, flag, &mut answer);
        }
        answer.bytes(b"\r\n");
        let quiet = done.is_ok() && flags.iter().any(|flag| flag == "q");
        (said, if quiet { Vec::new() } else { answer.parts })
    }

    fn meta_arithmetic(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.counted_key(false);
        let mut flags = Vec::new();
        let decrement = self.dice.bool();
        if decrement || self.one_in(3) {
            let letter = match (decrement, self.dice.bool()) {
                (true, true) => "MD",
                (true, false) => "M-",
                (false, true) => "MI",
                (false, false) => "M+",
            };
            flags.push(letter.to_owned());
        }
        let delta = if self.one_in(3) { 1 } else { self.delta() };
        if delta != 1 {
            flags.push(format!("D{delta}"));
        }
        // Which of the two errors comes first, when both the unique and the value are wrong, is nobody's concern.
        let is_number =
            self.model.peek(&key.bytes, self.now).is_some_and(|item| crate::model::number(&item.value).is_some());
        let unique = if is_number && self.one_in(4) { self.unique(&key) } else { None };
        flags.extend(unique.map(|(number, _)| format!("C{number}")));
        let vivify = self.one_in(2).then(|| self.lives()[self.dice.usize(..4)]);
        let mut initial = 0;
        if let Some(exptime) = vivify {
            flags.push(format!("N{exptime}"));
            if self.dice.bool() {
                initial = self.delta();
                flags.push(format!("J{initial}"));
            }
        }
        // memcached 1.6.18 loses it when the number outgrew its place. `N` and `T` on a miss: the last one counts, and nobody's does.
        let touch =
            (self.scope.is_recent && vivify.is_none() && self.one_in(4)).then(|| self.lives()[self.dice.usize(..4)]);
        flags.extend(touch.map(|exptime: i64| format!("T{exptime}")));
        for (flag, one_in) in [("v", 2), ("c", 3), ("t", 3), ("q", 6)] {
            // What a quiet command that creates says is not the same in every memcached.
            let unsure = flag == "q" && vivify.is_some() || flag == "t" && !self.scope.moves_clock;
            if self.one_in(one_in) && !unsure {
                flags.push(flag.to_owned());
            }
        }
        let flags = self.shuffled(&key, flags);
        let said = self.meta_line("ma", &key, None, &flags);

        self.retire(&key);
        let now = self.now;
        let compare = unique.map_or(Compare::None, |(_, compare)| compare);
        let done = self.model.count(&key.bytes, delta, decrement, compare, now);
        let mut answer = Answer::default();
        let (number, version, created) = match (done, vivify) {
            (Counted::Yes(number, version), _) => (number, version, false),
            (Counted::NotFound, Some(_)) => {
                let value = initial.to_string().into_bytes();
                let (flags, compare) = (0, Compare::None);
                let store = Store {
                    mode: Mode::Set,
                    key: &key.bytes,
                    value: &value,
                    flags,
                    exptime: 0,
                    compare,
                    stale_if_older: false,
                    vivify: None,
                };
                let Stored::Yes(version) = self.model.store(&store, now) else { unreachable!("a plain set stores") };
                (initial, version, true)
            }
            (Counted::NonNumeric, _) => {
                answer.text("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
                return (said, answer.parts);
            }
            (Counted::NotFound | Counted::Exists, _) => {
                answer.text(if done == Counted::Exists { "EX" } else { "NF" });
                for flag in &flags {
                    Self::echoed(&key, flag, &mut answer);
                }
                answer.bytes(b"\r\n");
                return (said, answer.parts);
            }
        };
        let shown = number.to_string();
        let shows_value = flags.iter().any(|flag| flag == "v");
        answer.text(&if shows_value { format!("VA {}", shown.len()) } else { "HD".to_owned() });
        let item = self.model.peek(&key.bytes, now).expect("it was just counted");
        for flag in &flags {
            match flag.as_bytes()[0] {
                b'T' => item.expiry = crate::model::moment(flag[1..].parse().expect("made here"), now),
                b'N' if created => item.expiry = crate::model::moment(flag[1..].parse().expect("made here"), now),
                b't' => answer.text(&item.expiry.map_or(" t-1".to_owned(), |expiry| format!(" t{}", expiry - now))),
                b'c' => {
                    answer.text(" c");
                    answer.parts.push(Part::Unique(version));
                }
                _ => Self::echoed(&key, flag, &mut answer),
            }
        }
        answer.bytes(b"\r\n");
        if shows_value {
            answer.text(&shown);
            answer.bytes(b"\r\n");
        }
        let quiet = flags.iter().any(|flag| flag == "q");
        (said, if quiet { Vec::new() } else { answer.parts })
    }

    // ---- binary --------------------------------------------------------------------------------------------------------------

    fn binary_noop(&mut self) -> (Vec<u8>, Vec<Part>) {
        let opaque = self.dice.u32(..);
        let answer = Frame { magic: 0x81, opcode: 0x0a, opaque, ..Frame::default() };
        (Frame::request(0x0a).opaque(opaque).bytes(), vec![Part::Frame(answer, None)])
    }

    fn binary_command(&mut self) -> (Vec<u8>, Vec<Part>) {
        match self.dice.u8(..12) {
            0..4 => self.binary_get(),
            4..9 => self.binary_store(),
            9 => self.binary_delete(),
            10 if self.may_count() => self.binary_count(),
            _ => self.binary_noop(),
        }
    }

    fn binary_get(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(false);
        let (sent, exptime) = self.binary_exptime();
        let opcode = [0x00, 0x09, 0x0c, 0x0d, 0x1c, 0x1d, 0x1e, 0x23, 0x24][self.dice.usize(..9)];
        let touches = opcode >= 0x1c;
        let quiet = matches!(opcode, 0x09 | 0x0d | 0x1e | 0x24);
        let with_key = matches!(opcode, 0x0c | 0x0d | 0x23 | 0x24);
        let opaque = self.dice.u32(..);
        let mut request = Frame::request(opcode).key(&key.bytes).opaque(opaque);
        if touches {
            request = request.extras(sent.to_be_bytes());
        }
        let found: Option<Item> = if touches {
            self.model.touch(&key.bytes, exptime, self.now)
        } else {
            self.model.get(&key.bytes, self.now)
        };
        let mut answer = Frame { magic: 0x81, opcode, opaque, ..Frame::default() };
        if with_key {
            answer.key = key.bytes;
        }
        let parts = match found {
            Some(item) => {
                answer.extras = item.flags.to_be_bytes().to_vec();
                if opcode != 0x1c {
                    answer.value = item.value;
                }
                vec![Part::Frame(answer, Some(item.version))]
            }
            None if quiet => Vec::new(),
            None => {
                answer.status = 1;
                if !with_key {
                    answer.value = b"Not found".to_vec();
                }
                vec![Part::Frame(answer, None)]
            }
        };
        (request.bytes(), parts)
    }

    fn binary_store(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(false);
        let (value, flags) = (self.value(), self.dice.u32(..));
        let (sent, exptime) = self.binary_exptime();
        let mode = match self.dice.u8(..7) {
            0..3 => Mode::Set,
            3 => Mode::Add,
            4 => Mode::Replace,
            5 => Mode::Append,
            _ => Mode::Prepend,
        };
        let value = self.fitting(mode, &key, value);
        let (plain, quiet_one) = match mode {
            Mode::Set => (0x01, 0x11),
            Mode::Add => (0x02, 0x12),
            Mode::Replace => (0x03, 0x13),
            Mode::Append => (0x0e, 0x19),
            Mode::Prepend => (0x0f, 0x1a),
        };
        let quiet = self.one_in(3);
        let opcode = if quiet { quiet_one } else { plain };
        let unique = if mode != Mode::Add && self.one_in(3) { self.unique(&key) } else { None };
        let opaque = self.dice.u32(..);
        let mut request = Frame::request(opcode).key(&key.bytes).value(&value).opaque(opaque);
        if !matches!(mode, Mode::Append | Mode::Prepend) {
            request = request.extras([flags.to_be_bytes(), sent.to_be_bytes()].concat());
        }
        if let Some((number, _)) = unique {
            request = request.cas(number);
        }
        self.retire(&key);
        let compare = unique.map_or(Compare::None, |(_, compare)| compare);
        let store = Store {
            mode,
            key: &key.bytes,
            value: &value,
            flags,
            exptime,
            compare,
            stale_if_older: false,
            vivify: None,
        };
        let mut answer = Frame { magic: 0x81, opcode, opaque, ..Frame::default() };
        let parts = match self.model.store(&store, self.now) {
            Stored::Yes(_) if quiet => Vec::new(),
            Stored::Yes(version) => vec![Part::Frame(answer, Some(version))],
            refused => {
                let (status, text) = match (refused, mode) {
                    (Stored::Exists, _) | (_, Mode::Add) => (2, "Data exists for key."),
                    (Stored::NotFound, _) | (_, Mode::Replace) => (1, "Not found"),
                    _ => (5, "Not stored."),
                };
                (answer.status, answer.value) = (status, text.as_bytes().to_vec());
                vec![Part::Frame(answer, None)]
            }
        };
        (request.bytes(), parts)
    }

    fn binary_delete(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.key(false);
        let quiet = self.one_in(3);
        let opcode = if quiet { 0x14 } else { 0x04 };
        let unique = if self.one_in(3) { self.unique(&key) } else { None };
        let opaque = self.dice.u32(..);
        let mut request = Frame::request(opcode).key(&key.bytes).opaque(opaque);
        if let Some((number, _)) = unique {
            request = request.cas(number);
        }
        self.retire(&key);
        let mut answer = Frame { magic: 0x81, opcode, opaque, ..Frame::default() };
        let parts = match self.model.delete(&key.bytes, unique.map_or(Compare::None, |(_, compare)| compare), self.now)
        {
            Ok(()) if quiet => Vec::new(),
            Ok(()) => vec![Part::Frame(answer, None)],
            Err(exists) => {
                (answer.status, answer.value) =
                    if exists { (2, b"Data exists for key.".to_vec()) } else { (1, b"Not found".to_vec()) };
                vec![Part::Frame(answer, None)]
            }
        };
        (request.bytes(), parts)
    }

    fn binary_count(&mut self) -> (Vec<u8>, Vec<Part>) {
        let key = self.counted_key(false);
        let (delta, initial, decrement, quiet) = (self.delta(), self.delta(), self.dice.bool(), self.one_in(3));
        let opcode = match (decrement, quiet) {
            (false, false) => 0x05,
            (false, true) => 0x15,
            (true, false) => 0x06,
            (true, true) => 0x16,
        };
        // All ones: do not create.
        let exptime: u32 = [u32::MAX, 0, 300][self.dice.usize(..3)];
        let opaque = self.dice.u32(..);
        let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
        let request = Frame::request(opcode).key(&key.bytes).extras(extras).opaque(opaque);
        self.retire(&key);
        let mut answer = Frame { magic: 0x81, opcode, opaque, ..Frame::default() };
        let done = self.model.count(&key.bytes, delta, decrement, Compare::None, self.now);
        let (number, version) = match done {
            Counted::Yes(number, version) => (number, version),
            Counted::NotFound if exptime != u32::MAX => {
                let value = initial.to_string().into_bytes();
                let (flags, compare, exptime) = (0, Compare::None, i64::from(exptime));
                let mode = Mode::Set;
                let store = Store {
                    mode,
                    key: &key.bytes,
                    value: &value,
                    flags,
                    exptime,
                    compare,
                    stale_if_older: false,
                    vivify: None,
                };
                let Stored::Yes(version) = self.model.store(&store, self.now) else {
                    unreachable!("a plain set stores")
                };
                (initial, version)
            }
            refused => {
                (answer.status, answer.value) = match refused {
                    Counted::NonNumeric => (6, b"Non-numeric server-side value for incr or decr".to_vec()),
                    _ => (1, b"Not found".to_vec()),
                };
                return (request.bytes(), vec![Part::Frame(answer, None)]);
            }
        };
        if quiet {
            return (request.bytes(), Vec::new());
        }
        answer.value = number.to_be_bytes().to_vec();
        (request.bytes(), vec![Part::Frame(answer, Some(version))])
    }
}

/// The pieces of an answer as they are put together.
#[derive(Default)]
struct Answer {
    parts: Vec<Part>,
}

impl Answer {
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(Part::Bytes(last)) = self.parts.last_mut() {
            last.extend(bytes);
        } else {
            self.parts.push(Part::Bytes(bytes.to_vec()));
        }
    }
}

fn meta_noop() -> (Vec<u8>, Vec<Part>) {
    (b"mn\r\n".to_vec(), vec![Part::Bytes(b"MN\r\n".to_vec())])
}

/// Bytes as the report of a failure shows them: by their beginning, but a command's line whole.
fn shortened(bytes: &[u8]) -> String {
    const SHOWN: usize = 110;
    let is_line = bytes.first().is_some_and(u8::is_ascii_lowercase);
    let line = bytes.iter().position(|byte| *byte == b'\n').filter(|_| is_line).map_or(0, |at| at + 1);
    let shown = bytes.len().min(line + SHOWN);
    if shown == bytes.len() { quoted(bytes) } else { format!("{} … {} bytes", quoted(&bytes[..shown]), bytes.len()) }
}

/// A key as the meta protocol writes it.
fn wire_key(key: &Key) -> Vec<u8> {
    if key.is_text { key.bytes.clone() } else { base64(&key.bytes).into_bytes() }
}

/// Base64 as RFC 4648 section 4 has it, padding included.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_rfc_4648s() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
