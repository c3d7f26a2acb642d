//! Commands of the binary protocol, and the answers they are to have.

use super::{Conversation, Part};
use crate::model::{Compare, Counted, Item, Mode, Store, Stored};
use crate::wire::Frame;

impl Conversation<'_> {
    pub(super) fn binary_noop(&mut self) -> (Vec<u8>, Vec<Part>) {
        let opaque = self.dice.u32(..);
        let answer = Frame { magic: 0x81, opcode: 0x0a, opaque, ..Frame::default() };
        (Frame::request(0x0a).opaque(opaque).bytes(), vec![Part::Frame(answer, None)])
    }

    pub(super) fn binary_command(&mut self) -> (Vec<u8>, Vec<Part>) {
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
        let store = Store { mode, flags, exptime, compare, ..Store::set(&key.bytes, &value) };
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
                let store = Store { exptime: i64::from(exptime), ..Store::set(&key.bytes, &value) };
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
