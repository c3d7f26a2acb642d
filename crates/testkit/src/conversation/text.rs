//! Commands of the text protocol, and the answers they are to have.

use std::fmt::Write as _;

use super::{Conversation, Part, meta};
use crate::model::{Compare, Counted, Mode, Store, Stored};

impl Conversation<'_> {
    pub(super) fn text_command(&mut self) -> (Vec<u8>, Vec<Part>) {
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
                // In memcached one with a delay brings back what the one before it had forgotten.
                let may_wait = self.scope.is_ours && self.scope.moves_clock && self.pending_flush.is_none();
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
            _ => meta::noop(),
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
        let store = Store { mode, flags, exptime, compare, ..Store::set(&key.bytes, &value) };
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
}
