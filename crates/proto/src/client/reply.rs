//! Answers to text and meta requests.
//!
//! One parser reads them all, since an answer's first word says what it is. Values are borrowed from the buffer;
//! [`parse_line`] leaves them out, for clients that take large values off the stream piece by piece.

use super::{BadReply, Step};
use crate::num::{strict_u32, strict_u64};
use crate::scan::{self, Tokens};

/// A line longer than this has no end that is worth waiting for: the longest that memcached sends (a watcher's line with
/// an encoded key, a list of mechanisms) have a fraction of it.
pub const LINE_BYTES_MAX: usize = 8192;

/// An answer, or one part of an answer of several (values, statistics, dumps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `VALUE`: one hit of a retrieval.
    Value(Hit<'a>),
    /// `VA`, `HD`, `EN`, `NS`, `EX`, `NF`: a meta answer.
    Meta(Meta<'a>),
    /// `END` of a retrieval, of statistics or of a dump.
    End,
    /// `STORED`.
    Stored,
    /// `NOT_STORED`.
    NotStored,
    /// `EXISTS`.
    Exists,
    /// `NOT_FOUND`.
    NotFound,
    /// `DELETED`.
    Deleted,
    /// `TOUCHED`.
    Touched,
    /// `OK`.
    Ok,
    /// `RESET`.
    Reset,
    /// `MN`.
    Noop,
    /// The number after `incr` and `decr`.
    Number(u64),
    /// `VERSION`.
    Version(&'a [u8]),
    /// `STAT`.
    Stat {
        /// The counter's name.
        name: &'a [u8],
        /// What it stands at.
        value: &'a [u8],
    },
    /// `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`: the whole line.
    Error(&'a [u8]),
    /// Any other line: dumps, watchers, the words of rare commands.
    Other(&'a [u8]),
}

/// One hit of a retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The CAS unique, if it was asked for.
    pub cas: Option<u64>,
    /// The value; empty from [`parse_line`].
    pub value: &'a [u8],
}

/// A meta answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The first word.
    pub code: Code,
    flags: &'a [u8],
    /// The value, with [`Code::Va`]; empty from [`parse_line`].
    pub value: &'a [u8],
}

/// The first word of a meta answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A value follows.
    Va,
    /// Done, or found.
    Hd,
    /// Nothing found.
    En,
    /// Not stored.
    Ns,
    /// The CAS unique is another.
    Ex,
    /// Not found.
    Nf,
}

impl<'a> Meta<'a> {
    /// The flags as they came, letter and argument together, in order.
    pub fn flags(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Tokens::new(self.flags)
    }

    /// The argument of a flag, empty for a letter alone; `None` when it did not come.
    #[must_use]
    pub fn flag(&self, letter: u8) -> Option<&'a [u8]> {
        self.flags().find(|flag| flag[0] == letter).map(|flag| &flag[1..])
    }

    /// The argument of a flag as a number: `c`, `f`, `s`, `l`, `h`. `t` is -1 for what lives for ever, which is `None`.
    #[must_use]
    pub fn number(&self, letter: u8) -> Option<u64> {
        strict_u64(self.flag(letter)?)
    }
}

/// Reads the answer at the front of `buf`, with its value if it has one.
#[must_use]
pub fn parse(buf: &[u8]) -> Step<Reply<'_>> {
    let (mut reply, line_bytes, value_bytes) = match parse_line(buf) {
        Step::Done { reply: Line { reply, value_bytes }, used } => (reply, used, value_bytes),
        Step::NeedMore { need_bytes } => return Step::NeedMore { need_bytes },
        Step::Broken(why) => return Step::Broken(why),
    };
    let Some(value_bytes) = value_bytes else { return Step::Done { reply, used: line_bytes } };
    let value_end = line_bytes + value_bytes as usize;
    let used = value_end + 2;
    let Some(body) = buf.get(line_bytes..used) else { return Step::NeedMore { need_bytes: used } };
    let (body, end) = body.split_at(value_bytes as usize);
    if end != b"\r\n" {
        return Step::Broken(BadReply::ValueEnd);
    }
    match &mut reply {
        Reply::Value(hit) => hit.value = body,
        Reply::Meta(meta) => meta.value = body,
        _ => {}
    }
    Step::Done { reply, used }
}

/// A line of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The answer without its value.
    pub reply: Reply<'a>,
    /// Length of the value that follows the line, and after which `\r\n` comes.
    pub value_bytes: Option<u32>,
}

/// Reads the line at the front of `buf`; a value is left on the stream.
#[must_use]
pub fn parse_line(buf: &[u8]) -> Step<Line<'_>> {
    let Some(end) = scan::find(b'\n', buf) else {
        if buf.len() > LINE_BYTES_MAX {
            return Step::Broken(BadReply::LineTooLong);
        }
        return Step::NeedMore { need_bytes: buf.len() + 1 };
    };
    let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
    match read(line) {
        Some(reply) => Step::Done { reply, used: end + 1 },
        None => Step::Broken(BadReply::Line),
    }
}

fn read(line: &[u8]) -> Option<Line<'_>> {
    let mut tokens = Tokens::new(line);
    let word = tokens.next().unwrap_or_default();
    let reply = match word {
        b"VALUE" => return value_line(tokens),
        b"VA" => {
            let value_bytes = strict_u32(tokens.next()?)?;
            let reply = Reply::Meta(Meta { code: Code::Va, flags: tokens.rest(), value: b"" });
            return Some(Line { reply, value_bytes: Some(value_bytes) });
        }
        b"HD" => Reply::Meta(Meta { code: Code::Hd, flags: tokens.rest(), value: b"" }),
        b"EN" => Reply::Meta(Meta { code: Code::En, flags: tokens.rest(), value: b"" }),
        b"NS" => Reply::Meta(Meta { code: Code::Ns, flags: tokens.rest(), value: b"" }),
        b"EX" => Reply::Meta(Meta { code: Code::Ex, flags: tokens.rest(), value: b"" }),
        b"NF" => Reply::Meta(Meta { code: Code::Nf, flags: tokens.rest(), value: b"" }),
        b"END" => Reply::End,
        b"STORED" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"EXISTS" => Reply::Exists,
        b"NOT_FOUND" => Reply::NotFound,
        b"DELETED" => Reply::Deleted,
        b"TOUCHED" => Reply::Touched,
        b"OK" => Reply::Ok,
        b"RESET" => Reply::Reset,
        b"MN" => Reply::Noop,
        b"VERSION" => Reply::Version(tokens.rest()),
        b"STAT" => Reply::Stat { name: tokens.next()?, value: tokens.rest() },
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" | b"SERVER_ERROR:" => Reply::Error(line),
        [b'0'..=b'9', ..] => match strict_u64(word) {
            // A decremented number is padded with spaces, nothing else may follow it.
            Some(number) if tokens.rest().is_empty() => Reply::Number(number),
            _ => return None,
        },
        _ => Reply::Other(line),
    };
    Some(Line { reply, value_bytes: None })
}

/// `<key> <flags> <bytes> [<cas unique>]`.
fn value_line(mut tokens: Tokens<'_>) -> Option<Line<'_>> {
    let key = tokens.next()?;
    let flags = strict_u32(tokens.next()?)?;
    let value_bytes = strict_u32(tokens.next()?)?;
    let cas = match tokens.next() {
        Some(cas) => Some(strict_u64(cas)?),
        None => None,
    };
    Some(Line { reply: Reply::Value(Hit { key, flags, cas, value: b"" }), value_bytes: Some(value_bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WireError, ascii};

    fn reply(bytes: &[u8]) -> Reply<'_> {
        for cut in 0..bytes.len() {
            match parse(&bytes[..cut]) {
                Step::NeedMore { need_bytes } => assert!(need_bytes > cut && need_bytes <= bytes.len()),
                other => panic!("{}: {other:?}", bytes[..cut].escape_ascii()),
            }
        }
        match parse(bytes) {
            Step::Done { reply, used } => {
                assert_eq!(used, bytes.len());
                reply
            }
            other => panic!("{}: {other:?}", bytes.escape_ascii()),
        }
    }

    fn broken(bytes: &[u8], why: BadReply) {
        assert_eq!(parse(bytes), Step::Broken(why), "{}", bytes.escape_ascii());
    }

    #[test]
    fn what_the_server_encodes_the_client_reads() {
        let mut out = Vec::new();
        ascii::reply::value_header(&mut out, b"key", 7, 4, Some(u64::MAX));
        out.extend_from_slice(b"\r\n\r\n\r\n");
        assert_eq!(reply(&out), Reply::Value(Hit { key: b"key", flags: 7, cas: Some(u64::MAX), value: b"\r\n\r\n" }));
        out.clear();
        ascii::reply::value_header(&mut out, b"k", 0, 0, None);
        out.extend_from_slice(b"\r\n");
        assert_eq!(reply(&out), Reply::Value(Hit { key: b"k", flags: 0, cas: None, value: b"" }));
        for (wire, expected) in [
            (ascii::reply::STORED, Reply::Stored),
            (ascii::reply::NOT_STORED, Reply::NotStored),
            (ascii::reply::EXISTS, Reply::Exists),
            (ascii::reply::NOT_FOUND, Reply::NotFound),
            (ascii::reply::DELETED, Reply::Deleted),
            (ascii::reply::TOUCHED, Reply::Touched),
            (ascii::reply::OK, Reply::Ok),
            (ascii::reply::END, Reply::End),
            (ascii::reply::RESET, Reply::Reset),
            (crate::meta::reply::MN, Reply::Noop),
            (b"VERSION 1.6.45\r\n", Reply::Version(b"1.6.45")),
            (b"STAT threads 4\r\n", Reply::Stat { name: b"threads", value: b"4" }),
            (b"STAT empty \r\n", Reply::Stat { name: b"empty", value: b"" }),
            (b"18446744073709551615\r\n", Reply::Number(u64::MAX)),
            (b"9  \r\n", Reply::Number(9)),
            (b"key=a exp=-1\r\n", Reply::Other(b"key=a exp=-1")),
        ] {
            assert_eq!(reply(wire), expected);
        }
    }

    #[test]
    fn every_refusal_is_read_as_one() {
        for error in WireError::ALL {
            let text = error.text().as_bytes();
            let refusal = ["ERROR", "CLIENT_ERROR ", "SERVER_ERROR"].iter().any(|word| error.text().starts_with(word));
            let expected = if refusal { Reply::Error(text) } else { Reply::Other(text) };
            assert_eq!(reply(error.as_wire()), expected);
        }
    }

    #[test]
    fn meta_answers_carry_flags_and_values() {
        let Reply::Meta(meta) = reply(b"VA 5 t-1 c99 Oabc W kfoo\r\nvalue\r\n") else { panic!() };
        assert_eq!((meta.code, meta.value), (Code::Va, &b"value"[..]));
        assert_eq!((meta.number(b'c'), meta.number(b't'), meta.flag(b'O')), (Some(99), None, Some(&b"abc"[..])));
        assert_eq!((meta.flag(b'W'), meta.flag(b'Z')), (Some(&b""[..]), None));
        assert_eq!(meta.flags().count(), 5);
        for (word, code) in [("HD", Code::Hd), ("EN", Code::En), ("NS", Code::Ns), ("EX", Code::Ex), ("NF", Code::Nf)] {
            let line = format!("{word} O1\r\n");
            let Reply::Meta(meta) = reply(line.as_bytes()) else { panic!() };
            assert_eq!((meta.code, meta.flag(b'O'), meta.value), (code, Some(&b"1"[..]), &b""[..]));
        }
    }

    #[test]
    fn a_large_value_can_be_left_on_the_stream() {
        let Step::Done { reply: line, used } = parse_line(b"VALUE k 1 1000000000\r\n...") else { panic!() };
        assert_eq!((line.value_bytes, used), (Some(1_000_000_000), 22));
        let Step::NeedMore { need_bytes } = parse(b"VALUE k 1 1000000000\r\n...") else { panic!() };
        assert_eq!(need_bytes, 1_000_000_024);
    }

    #[test]
    fn what_is_no_answer_is_broken() {
        for line in [
            &b"VALUE\r\n"[..],
            b"VALUE k\r\n",
            b"VALUE k 0\r\n",
            b"VALUE k x 1\r\n",
            b"VALUE k 0 -1\r\n",
            b"VALUE k 0 4294967296\r\n",
            b"VALUE k 0 1 x\r\n",
            b"VA\r\n",
            b"VA x\r\n",
            b"STAT\r\n",
            b"18446744073709551616\r\n",
            b"1 2\r\n",
        ] {
            broken(line, BadReply::Line);
        }
        broken(b"VALUE k 0 2\r\nabc\r\n", BadReply::ValueEnd);
        broken(&[b'x'; LINE_BYTES_MAX + 1], BadReply::LineTooLong);
        assert!(matches!(parse(&[b'x'; LINE_BYTES_MAX]), Step::NeedMore { .. }));
    }
}
