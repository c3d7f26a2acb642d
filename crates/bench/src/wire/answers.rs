//! Answers, compared with what is expected and parsed if they are something else.

use nuthatch_proto::binary::{Opcode, Status};
use nuthatch_proto::client::reply::{self, Code, Reply};
use nuthatch_proto::client::{Step, binary};
use nuthatch_proto::push_u64;

use super::{Asked, Codec, Kind, Progress, Protocol, Reading, Tally};
use crate::keys::Keys;

impl Codec {
    /// Reads the next part of the answer to `asked` at the front of `buf`.
    pub(crate) fn read(&mut self, buf: &[u8], keys: &Keys, asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
        match (self.protocol, asked.kind) {
            (Protocol::Binary, _) => self.read_binary(buf, keys, asked, to),
            (_, Kind::Get) => self.read_get(buf, keys, asked, to),
            (_, Kind::Set) if buf.starts_with(b"STORED\r\n") => done_set(8, asked, to),
            (_, Kind::Set) if buf.starts_with(b"HD\r\n") => done_set(4, asked, to),
            (_, Kind::Set | Kind::Delete) => self.read_line(buf, asked, to),
        }
    }

    /// The answer to a set or a delete that is not the usual one.
    fn read_line(&mut self, buf: &[u8], asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
        let (reply, used) = match reply::parse(buf) {
            Step::Done { reply, used } => (reply, used),
            Step::NeedMore { need_bytes } => return Progress::Need(need_bytes),
            Step::Broken(why) => return Progress::Broken(why.to_string()),
        };
        let code = match reply {
            Reply::Meta(meta) => Some(meta.code),
            _ => None,
        };
        match (asked.kind, reply) {
            (_, Reply::Error(line)) => to.tally.error(line),
            (Kind::Set, Reply::Stored) => {}
            (Kind::Delete, Reply::Deleted) => to.tally.deleted += 1,
            (Kind::Delete, Reply::NotFound) => {}
            (Kind::Delete, _) if code == Some(Code::Hd) => to.tally.deleted += 1,
            (Kind::Delete, _) if code == Some(Code::Nf) => {}
            (Kind::Set, _) if code == Some(Code::Hd) => {}
            (Kind::Set, Reply::NotStored) => to.tally.error(b"NOT_STORED"),
            (Kind::Set, _) if code == Some(Code::Ns) => to.tally.error(b"NS"),
            (kind, _) => return surprise(kind, buf),
        }
        match asked.kind {
            Kind::Delete => to.tally.deletes += 1,
            _ => to.tally.sets += 1,
        }
        to.give_up(asked);
        to.tally.requests += 1;
        Progress::Done(used)
    }

    fn read_get(&mut self, buf: &[u8], keys: &Keys, asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
        let is_text = self.protocol == Protocol::Text;
        if asked.left > 0 {
            let id = to.ids[0];
            let value_bytes = keys.value_bytes(id) as usize;
            self.expect_header(keys, id, value_bytes, asked.width > 1);
            let start = self.scratch.len();
            if buf.starts_with(&self.scratch) {
                let used = start + value_bytes + 2;
                // A single text value is followed by END, which is taken along.
                let with_end = if is_text && asked.left == 1 { used + 5 } else { used };
                if buf.len() < with_end {
                    return Progress::Need(with_end);
                }
                if buf[used - 2..used] != *b"\r\n" {
                    return Progress::Broken(format!("a value of {value_bytes} bytes does not end in \\r\\n"));
                }
                self.verify(&buf[start..used - 2], keys, id, to.tally);
                to.hit(asked, value_bytes);
                if with_end > used && buf[used..with_end] == *b"END\r\n" {
                    return done_get(with_end, asked, to);
                }
                if !is_text && asked.width == 1 {
                    return done_get(used, asked, to);
                }
                return Progress::Part(used);
            }
        }
        let end: &[u8] = match (is_text, asked.width) {
            (true, _) => b"END\r\n",
            (false, 1) => b"EN\r\n",
            (false, _) => b"MN\r\n",
        };
        if buf.starts_with(end) {
            to.miss_rest(asked);
            return done_get(end.len(), asked, to);
        }
        self.read_get_parsed(buf, keys, asked, to)
    }

    /// A part of a retrieval's answer that is not the expected one: a key was skipped, a size is another, an error.
    fn read_get_parsed(&mut self, buf: &[u8], keys: &Keys, asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
        let (reply, used) = match reply::parse(buf) {
            Step::Done { reply, used } => (reply, used),
            Step::NeedMore { need_bytes } => return Progress::Need(need_bytes),
            Step::Broken(why) => return Progress::Broken(why.to_string()),
        };
        let (name, value) = match reply {
            Reply::Value(hit) => (Some(hit.key), hit.value),
            Reply::Meta(meta) if meta.code == Code::Va => (meta.flag(b'k'), meta.value),
            Reply::Meta(meta) if meta.code == Code::En && asked.width > 1 => return Progress::Part(used),
            Reply::Error(line) => {
                to.tally.error(line);
                // Of several meta gets the others are still answered, and the no-op at their end.
                if self.protocol == Protocol::Meta && asked.width > 1 {
                    return Progress::Part(used);
                }
                to.give_up(asked);
                return done_get(used, asked, to);
            }
            _ => return surprise(asked.kind, buf),
        };
        if let Some(name) = name {
            // Hits come in the order of the keys, so what stands before this one was not found.
            while asked.left > 0 {
                self.scratch.clear();
                keys.push_name(&mut self.scratch, to.ids[0]);
                if self.scratch == name {
                    break;
                }
                to.miss(asked);
            }
            if asked.left == 0 {
                return Progress::Broken(format!("the value of key {}, which was not asked for", name.escape_ascii()));
            }
        }
        let id = to.ids[0];
        self.verify(value, keys, id, to.tally);
        to.hit(asked, value.len());
        if self.protocol == Protocol::Meta && asked.width == 1 {
            return done_get(used, asked, to);
        }
        Progress::Part(used)
    }

    fn read_binary(&mut self, buf: &[u8], keys: &Keys, asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
        let (reply, used) = match binary::parse(buf) {
            Step::Done { reply, used } => (reply, used),
            Step::NeedMore { need_bytes } => return Progress::Need(need_bytes),
            Step::Broken(why) => return Progress::Broken(why.to_string()),
        };
        let is_noop = reply.header.opcode == Opcode::Noop.as_wire();
        let is_end = asked.kind != Kind::Get || asked.width == 1 || is_noop;
        match (asked.kind, reply.status) {
            (Kind::Get, Some(Status::Success)) if is_noop => to.miss_rest(asked),
            (Kind::Get, Some(Status::Success)) => {
                // The opaque is the key's number.
                while asked.left > 0 && to.ids[0] != reply.header.opaque {
                    to.miss(asked);
                }
                if asked.left == 0 {
                    return Progress::Broken(format!("an answer to {}, which was not asked", reply.header.opaque));
                }
                self.verify(reply.value, keys, reply.header.opaque, to.tally);
                to.hit(asked, reply.value.len());
            }
            (Kind::Get, Some(Status::KeyNotFound)) => {
                if asked.width == 1 {
                    to.miss(asked);
                }
            }
            (Kind::Set, Some(Status::Success)) | (Kind::Delete, Some(Status::KeyNotFound)) => {}
            (Kind::Delete, Some(Status::Success)) => to.tally.deleted += 1,
            (_, _) => {
                to.tally.error(reply.value);
                if is_end {
                    to.give_up(asked);
                }
            }
        }
        if !is_end {
            return Progress::Part(used);
        }
        match asked.kind {
            Kind::Get => return done_get(used, asked, to),
            Kind::Set => to.tally.sets += 1,
            Kind::Delete => to.tally.deletes += 1,
        }
        to.give_up(asked);
        to.tally.requests += 1;
        Progress::Done(used)
    }

    /// Puts the first line of a hit into the scratch buffer.
    #[inline]
    fn expect_header(&mut self, keys: &Keys, id: u32, value_bytes: usize, with_key: bool) {
        let line = &mut self.scratch;
        line.clear();
        if self.protocol == Protocol::Text {
            line.extend_from_slice(b"VALUE ");
            keys.push_name(line, id);
            line.extend_from_slice(b" 0 ");
            push_u64(line, value_bytes as u64);
        } else {
            line.extend_from_slice(b"VA ");
            push_u64(line, value_bytes as u64);
            if with_key {
                line.extend_from_slice(b" k");
                keys.push_name(line, id);
            }
        }
        line.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn verify(&mut self, value: &[u8], keys: &Keys, id: u32, tally: &mut Tally) {
        if !self.verify || value == keys.value(id) {
            return;
        }
        self.scratch.clear();
        keys.push_name(&mut self.scratch, id);
        let expected = keys.value(id);
        let why = match value.len() == expected.len() {
            false => format!("{} bytes came, expected {}", value.len(), expected.len()),
            true => {
                let at = value.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                format!("the value differs from what was stored from byte {at} of {} on", value.len())
            }
        };
        tally.wrong(&self.scratch, &why);
    }
}

impl Reading<'_> {
    fn miss(&mut self, asked: &mut Asked) {
        asked.left -= 1;
        if let (Some(id), Some(missed)) = (self.ids.pop_front(), self.missed.as_mut()) {
            missed.push(id);
        }
    }

    fn miss_rest(&mut self, asked: &mut Asked) {
        while asked.left > 0 {
            self.miss(asked);
        }
    }

    fn hit(&mut self, asked: &mut Asked, value_bytes: usize) {
        asked.left -= 1;
        self.ids.pop_front();
        self.tally.hits += 1;
        self.tally.hit_bytes += value_bytes as u64;
    }

    /// Answers that the request will not get: neither hits nor misses.
    fn give_up(&mut self, asked: &mut Asked) {
        self.ids.drain(..asked.left as usize);
        asked.left = 0;
    }
}

fn done_set(used: usize, asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
    to.ids.pop_front();
    asked.left = 0;
    to.tally.sets += 1;
    to.tally.requests += 1;
    Progress::Done(used)
}

fn done_get(used: usize, asked: &mut Asked, to: &mut Reading<'_>) -> Progress {
    to.tally.gets += u64::from(asked.width);
    to.tally.requests += 1;
    to.give_up(asked);
    Progress::Done(used)
}

#[cold]
fn surprise(kind: Kind, buf: &[u8]) -> Progress {
    let line = buf.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let shown = line[..line.len().min(80)].escape_ascii();
    let asked = match kind {
        Kind::Get => "get",
        Kind::Set => "set",
        Kind::Delete => "delete",
    };
    Progress::Broken(format!("{shown} is no answer to a {asked}"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;

    use nuthatch_proto::binary::Header;

    use super::*;
    use crate::amounts::Amounts;
    use crate::keys::{Names, Sizes};

    const PROTOCOLS: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];

    pub(in crate::wire) fn keys() -> Keys {
        let names = Names::Listed { bytes: b"k0k1k2k3".to_vec(), ends: vec![2, 4, 6, 8] };
        Keys::new(names, Sizes::Each(vec![5, 0, 12, 5]), Amounts::Fixed(0), 12, 1)
    }

    fn name(id: u32) -> String {
        format!("k{id}")
    }

    /// What a server answers to a get of keys of which those in `found` are there, with `value` each.
    fn hits(protocol: Protocol, asked: &[u32], found: &[u32], value: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let header = |opcode: Opcode, status: u16, extras: usize, body: usize, opaque: u32| {
            let (opcode, extras_bytes, body_bytes) = (opcode.as_wire(), extras as u8, (extras + body) as u32);
            Header { magic: 0x81, opcode, status, extras_bytes, body_bytes, opaque, ..Header::default() }.to_bytes()
        };
        for &id in asked {
            let (value, is_found) = (value(id), found.contains(&id));
            match protocol {
                Protocol::Text if is_found => {
                    out.extend_from_slice(format!("VALUE {} 0 {}\r\n", name(id), value.len()).as_bytes());
                    out.extend_from_slice(&value);
                    out.extend_from_slice(b"\r\n");
                }
                Protocol::Meta if is_found => {
                    let key = if asked.len() > 1 { format!(" k{}", name(id)) } else { String::new() };
                    out.extend_from_slice(format!("VA {}{key}\r\n", value.len()).as_bytes());
                    out.extend_from_slice(&value);
                    out.extend_from_slice(b"\r\n");
                }
                Protocol::Meta if asked.len() == 1 => out.extend_from_slice(b"EN\r\n"),
                Protocol::Binary if is_found => {
                    out.extend_from_slice(&header(Opcode::Get, 0, 4, value.len(), id));
                    out.extend_from_slice(&[0; 4]);
                    out.extend_from_slice(&value);
                }
                Protocol::Binary if asked.len() == 1 => {
                    out.extend_from_slice(&header(Opcode::Get, 1, 0, 9, id));
                    out.extend_from_slice(b"Not found");
                }
                _ => {}
            }
        }
        match protocol {
            Protocol::Text => out.extend_from_slice(b"END\r\n"),
            Protocol::Meta if asked.len() > 1 => out.extend_from_slice(b"MN\r\n"),
            Protocol::Binary if asked.len() > 1 => out.extend_from_slice(&header(Opcode::Noop, 0, 0, 0, 0)),
            _ => {}
        }
        out
    }

    struct Read {
        tally: Tally,
        missed: Vec<u32>,
        end: Progress,
    }

    /// Reads an answer that arrives in two pieces, cut at `cut`.
    fn read(protocol: Protocol, kind: Kind, ids: &[u32], bytes: &[u8], cut: usize) -> Read {
        let (keys, mut codec) = (keys(), Codec::new(protocol, true));
        let width = ids.len() as u32;
        let mut asked = Asked { kind, width, left: width, started_ns: 0 };
        // Another request stands behind this one and must be left alone.
        let mut queue: VecDeque<u32> = ids.iter().copied().chain([3]).collect();
        let (mut tally, mut missed, mut at) = (Tally::default(), Vec::new(), 0);
        let mut seen = cut;
        let end = loop {
            let mut to = Reading { ids: &mut queue, tally: &mut tally, missed: Some(&mut missed) };
            match codec.read(&bytes[at..seen], &keys, &mut asked, &mut to) {
                Progress::Need(need_bytes) if seen < bytes.len() => {
                    assert!(at + need_bytes > cut, "{}", bytes.escape_ascii());
                    seen = bytes.len();
                }
                Progress::Part(used) => at += used,
                Progress::Done(used) => {
                    assert_eq!((queue.len(), asked.left), (1, 0));
                    break Progress::Done(at + used);
                }
                end => break end,
            }
        };
        Read { tally, missed, end }
    }

    #[test]
    fn hits_and_misses_are_told_apart_wherever_the_answer_is_cut() {
        let all = keys();
        let cases: [(&[u32], &[u32]); 8] = [
            (&[0], &[0]),
            (&[0], &[]),
            (&[1], &[1]),
            (&[0, 1, 2], &[0, 1, 2]),
            (&[0, 1, 2], &[2]),
            (&[0, 1, 2], &[0, 2]),
            (&[2, 2, 0], &[2]),
            (&[0, 1, 2], &[]),
        ];
        for protocol in PROTOCOLS {
            for (asked, found) in cases {
                let bytes = hits(protocol, asked, found, |id| all.value(id).to_vec());
                for cut in 0..bytes.len() {
                    let read = read(protocol, Kind::Get, asked, &bytes, cut);
                    let missed: Vec<u32> = asked.iter().copied().filter(|id| !found.contains(id)).collect();
                    assert_eq!(read.end, Progress::Done(bytes.len()), "{protocol:?} {asked:?} {found:?} {cut}");
                    assert_eq!(read.missed, missed);
                    let hits = asked.len() - missed.len();
                    let hit_bytes =
                        asked.iter().filter(|id| found.contains(id)).map(|&id| all.value(id).len()).sum::<usize>();
                    let expected = Tally {
                        requests: 1,
                        gets: asked.len() as u64,
                        hits: hits as u64,
                        hit_bytes: hit_bytes as u64,
                        ..Tally::default()
                    };
                    assert_eq!(read.tally, expected, "{protocol:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_that_is_not_what_was_stored_is_counted_and_named() {
        let all = keys();
        for protocol in PROTOCOLS {
            let flipped = |id| {
                let mut value = all.value(id).to_vec();
                if let Some(byte) = value.get_mut(3) {
                    *byte ^= 1;
                }
                value
            };
            let seen = read(protocol, Kind::Get, &[0], &hits(protocol, &[0], &[0], flipped), 0).tally;
            assert_eq!((seen.hits, seen.wrong), (1, 1));
            assert_eq!(
                seen.first_problem.unwrap(),
                "key k0: the value differs from what was stored from byte 3 of 5 on"
            );
            let longer = |id| [all.value(id), b"x"].concat();
            let seen = read(protocol, Kind::Get, &[0, 1], &hits(protocol, &[0, 1], &[0, 1], longer), 0).tally;
            assert_eq!((seen.hits, seen.wrong), (2, 2), "{protocol:?}");
            assert_eq!(seen.first_problem.unwrap(), "key k0: 6 bytes came, expected 5");
        }
    }

    #[test]
    fn answers_to_sets_and_deletes_are_counted() {
        let done = |protocol, kind, bytes: &[u8]| {
            let read = read(protocol, kind, &[0], bytes, 1);
            assert_eq!(read.end, Progress::Done(bytes.len()), "{}", bytes.escape_ascii());
            (read.tally.sets, read.tally.deletes, read.tally.deleted, read.tally.errors)
        };
        for (protocol, kind, bytes, counts) in [
            (Protocol::Text, Kind::Set, &b"STORED\r\n"[..], (1, 0, 0, 0)),
            (Protocol::Text, Kind::Set, b"SERVER_ERROR object too large for cache\r\n", (1, 0, 0, 1)),
            (Protocol::Text, Kind::Delete, b"DELETED\r\n", (0, 1, 1, 0)),
            (Protocol::Text, Kind::Delete, b"NOT_FOUND\r\n", (0, 1, 0, 0)),
            (Protocol::Meta, Kind::Set, b"HD\r\n", (1, 0, 0, 0)),
            (Protocol::Meta, Kind::Set, b"NS\r\n", (1, 0, 0, 1)),
            (Protocol::Meta, Kind::Delete, b"HD\r\n", (0, 1, 1, 0)),
            (Protocol::Meta, Kind::Delete, b"NF\r\n", (0, 1, 0, 0)),
        ] {
            assert_eq!(done(protocol, kind, bytes), counts);
        }
        for (opcode, kind, status, counts) in [
            (Opcode::Set, Kind::Set, 0, (1, 0, 0, 0)),
            (Opcode::Set, Kind::Set, 3, (1, 0, 0, 1)),
            (Opcode::Delete, Kind::Delete, 0, (0, 1, 1, 0)),
            (Opcode::Delete, Kind::Delete, 1, (0, 1, 0, 0)),
        ] {
            let header = Header { magic: 0x81, opcode: opcode.as_wire(), status, ..Header::default() };
            assert_eq!(done(Protocol::Binary, kind, &header.to_bytes()), counts);
        }
    }

    #[test]
    fn an_error_in_a_get_is_neither_hit_nor_miss() {
        for (protocol, ids, bytes) in [
            (Protocol::Text, &[0][..], &b"SERVER_ERROR out of memory\r\n"[..]),
            (Protocol::Text, &[0, 1], b"SERVER_ERROR out of memory\r\n"),
            (Protocol::Meta, &[0], b"SERVER_ERROR out of memory\r\n"),
        ] {
            let read = read(protocol, Kind::Get, ids, bytes, 3);
            assert_eq!(read.end, Progress::Done(bytes.len()));
            assert_eq!((read.tally.errors, read.tally.hits, read.missed.len()), (1, 0, 0));
            assert_eq!(read.tally.first_problem.unwrap(), "the server answered SERVER_ERROR out of memory");
        }
    }

    #[test]
    fn what_is_no_answer_ends_the_run() {
        for (protocol, kind, bytes, why) in [
            (
                Protocol::Text,
                Kind::Get,
                &b"VALUE k9 0 1\r\nx\r\nEND\r\n"[..],
                "the value of key k9, which was not asked for",
            ),
            (Protocol::Text, Kind::Get, b"STORED\r\n", "STORED is no answer to a get"),
            (Protocol::Text, Kind::Set, b"HTTP/1.1 400\r\n", "HTTP/1.1 400 is no answer to a set"),
            (Protocol::Binary, Kind::Get, b"ERROR\r\n", "the server's frame does not begin with 0x81"),
        ] {
            assert_eq!(read(protocol, kind, &[0], bytes, 0).end, Progress::Broken(why.to_owned()));
        }
    }
}
