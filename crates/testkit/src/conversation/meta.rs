//! Commands of the meta protocol, and the answers they are to have.

use super::{Answer, Conversation, Key, Part};
use crate::dice::Dice;
use crate::model::{Compare, Counted, Mode, Store, Stored};

impl Conversation<'_> {
    pub(super) fn meta_command(&mut self) -> (Vec<u8>, Vec<Part>) {
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
        // memcached shows a base64 key as it is when another protocol, or `N` of `mg`, made the item.
        if (key.is_text || self.scope.is_ours) && self.one_in(4) {
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
            let is_sure = match flag {
                "t" => self.scope.moves_clock,
                "h" => !self.scope.has_copies,
                _ => true,
            };
            if self.one_in(one_in) && is_sure {
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
                let Stored::Yes(version) = self.model.store(&Store::set(&key.bytes, &value), now) else {
                    unreachable!("a plain set stores")
                };
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
}

pub(super) fn noop() -> (Vec<u8>, Vec<Part>) {
    (b"mn\r\n".to_vec(), vec![Part::Bytes(b"MN\r\n".to_vec())])
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
