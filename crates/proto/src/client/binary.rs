//! Binary requests out and answers in.

use super::{BadReply, BadRequest, Step, check_key};
use crate::binary::{BODY_BYTES_MAX, HEADER_BYTES, Header, MAGIC_REQUEST, MAGIC_RESPONSE, Opcode, Status};

/// What every request carries besides its command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Comes back with the answer.
    pub opaque: u32,
    /// The CAS unique that the item must have; 0: any.
    pub cas: u64,
}

/// Any request, with extras and value as given; the functions below know what each opcode wants.
pub fn request(
    out: &mut Vec<u8>,
    opcode: Opcode,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
    tag: Tag,
) -> Result<(), BadRequest> {
    if !key.is_empty() {
        check_key(key)?;
    }
    let body_bytes = extras.len() + key.len() + value.len();
    if body_bytes > BODY_BYTES_MAX as usize {
        return Err(BadRequest::ValueTooLong { value_bytes: value.len() });
    }
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: opcode.as_wire(),
        key_bytes: key.len() as u16,
        extras_bytes: extras.len() as u8,
        data_type: 0,
        status: 0,
        body_bytes: body_bytes as u32,
        opaque: tag.opaque,
        cas: tag.cas,
    };
    out.reserve(HEADER_BYTES + body_bytes);
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Ok(())
}

/// Get, getq, getk, getkq, delete, deleteq, and statistics: a key alone.
pub fn keyed(out: &mut Vec<u8>, opcode: Opcode, key: &[u8], tag: Tag) -> Result<(), BadRequest> {
    if opcode != Opcode::Stat {
        check_key(key)?;
    }
    request(out, opcode, &[], key, &[], tag)
}

/// Touch and the gets that touch: a key and an expiry time.
pub fn touch(out: &mut Vec<u8>, opcode: Opcode, key: &[u8], exptime: u32, tag: Tag) -> Result<(), BadRequest> {
    check_key(key)?;
    request(out, opcode, &exptime.to_be_bytes(), key, &[], tag)
}

/// Set, add, replace and their quiet forms.
pub fn store(
    out: &mut Vec<u8>,
    opcode: Opcode,
    key: &[u8],
    value: &[u8],
    (flags, exptime): (u32, u32),
    tag: Tag,
) -> Result<(), BadRequest> {
    check_key(key)?;
    let mut extras = [0; 8];
    extras[..4].copy_from_slice(&flags.to_be_bytes());
    extras[4..].copy_from_slice(&exptime.to_be_bytes());
    request(out, opcode, &extras, key, value, tag)
}

/// Append, prepend and their quiet forms.
pub fn join(out: &mut Vec<u8>, opcode: Opcode, key: &[u8], value: &[u8], tag: Tag) -> Result<(), BadRequest> {
    check_key(key)?;
    request(out, opcode, &[], key, value, tag)
}

/// Increment, decrement and their quiet forms; `initial` is what a missing item begins with and its expiry time.
pub fn arith(
    out: &mut Vec<u8>,
    opcode: Opcode,
    key: &[u8],
    delta: u64,
    initial: Option<(u64, u32)>,
    tag: Tag,
) -> Result<(), BadRequest> {
    check_key(key)?;
    let (initial, exptime) = initial.unwrap_or((0, crate::binary::EXPTIME_NO_CREATE));
    let mut extras = [0; 20];
    extras[..8].copy_from_slice(&delta.to_be_bytes());
    extras[8..16].copy_from_slice(&initial.to_be_bytes());
    extras[16..].copy_from_slice(&exptime.to_be_bytes());
    request(out, opcode, &extras, key, &[], tag)
}

/// No-op, version, quit, flush now, the list of mechanisms: a header alone.
pub fn bare(out: &mut Vec<u8>, opcode: Opcode, tag: Tag) {
    let header = Header { magic: MAGIC_REQUEST, opcode: opcode.as_wire(), opaque: tag.opaque, ..Header::default() };
    out.extend_from_slice(&header.to_bytes());
}

/// Authentication with the PLAIN mechanism.
pub fn sasl_plain(out: &mut Vec<u8>, user: &[u8], password: &[u8], tag: Tag) -> Result<(), BadRequest> {
    let challenge = [b"\0", user, b"\0", password].concat();
    request(out, Opcode::SaslAuth, &[], b"PLAIN", &challenge, tag)
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The header: opcode, opaque, CAS unique, and the status as a number.
    pub header: Header,
    /// The status, if it is a known one.
    pub status: Option<Status>,
    /// Extras: the flags of a hit.
    pub extras: &'a [u8],
    /// Key, where one is shown.
    pub key: &'a [u8],
    /// Value, number, version or text of an error.
    pub value: &'a [u8],
}

impl Reply<'_> {
    /// The flags of a hit.
    #[must_use]
    pub fn flags(&self) -> Option<u32> {
        self.extras.try_into().ok().map(u32::from_be_bytes)
    }

    /// The number after increment and decrement.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }
}

/// Reads the answer at the front of `buf`, whole.
#[must_use]
pub fn parse(buf: &[u8]) -> Step<Reply<'_>> {
    let Some(header) = Header::read(buf) else {
        if buf.first().is_some_and(|&magic| magic != MAGIC_RESPONSE) {
            return Step::Broken(BadReply::Magic);
        }
        return Step::NeedMore { need_bytes: HEADER_BYTES };
    };
    if header.magic != MAGIC_RESPONSE {
        return Step::Broken(BadReply::Magic);
    }
    if header.value_bytes().is_none() {
        return Step::Broken(BadReply::Lengths);
    }
    let used = HEADER_BYTES + header.body_bytes as usize;
    let Some(body) = buf.get(HEADER_BYTES..used) else { return Step::NeedMore { need_bytes: used } };
    let (extras, rest) = body.split_at(usize::from(header.extras_bytes));
    let (key, value) = rest.split_at(usize::from(header.key_bytes));
    Step::Done { reply: Reply { header, status: Status::from_wire(header.status), extras, key, value }, used }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{self, Arith, Command, Get, Parsed, SaslStep, Store, Verb};

    const TAG: Tag = Tag { opaque: 0xfeed_beef, cas: 12 };

    fn arrives(write: impl Fn(&mut Vec<u8>) -> Result<(), BadRequest>, command: Command<'_>, value: &[u8]) {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        let Parsed::Request(request) = binary::parse(&out) else { panic!("{out:x?}") };
        assert_eq!(request.command, command);
        assert_eq!((request.header.opaque, request.header.cas), (TAG.opaque, TAG.cas));
        assert_eq!(out[request.front_bytes..], *value);
        assert_eq!(request.value_bytes as usize, value.len());
    }

    #[test]
    fn every_command_arrives_as_it_was_meant() {
        let key = &b"\0any bytes\r\n"[..];
        arrives(|out| keyed(out, Opcode::GetKQ, key, TAG), Command::Get(Get { key, with_key: true, touch: None }), b"");
        arrives(|out| keyed(out, Opcode::Delete, key, TAG), Command::Delete { key }, b"");
        arrives(|out| keyed(out, Opcode::Stat, b"", TAG), Command::Stat { key: b"" }, b"");
        arrives(
            |out| touch(out, Opcode::Gat, key, 60, TAG),
            Command::Get(Get { key, with_key: false, touch: Some(60) }),
            b"",
        );
        arrives(|out| touch(out, Opcode::Touch, key, 60, TAG), Command::Touch { key, exptime: 60 }, b"");
        arrives(
            |out| store(out, Opcode::AddQ, key, b"value", (1, 2), TAG),
            Command::Store(Store { verb: Verb::Add, key, flags: 1, exptime: 2 }),
            b"value",
        );
        arrives(
            |out| join(out, Opcode::Append, key, b"value", TAG),
            Command::Store(Store { verb: Verb::Append, key, flags: 0, exptime: 0 }),
            b"value",
        );
        for initial in [None, Some((10, 0))] {
            arrives(
                |out| arith(out, Opcode::Decrement, key, 3, initial, TAG),
                Command::Arith(Arith { key, decrement: true, delta: 3, initial }),
                b"",
            );
        }
        arrives(
            |out| sasl_plain(out, b"user", b"pass", TAG),
            Command::Sasl { mechanism: b"PLAIN", step: SaslStep::Start },
            b"\0user\0pass",
        );
        let mut out = Vec::new();
        bare(&mut out, Opcode::Noop, TAG);
        assert!(matches!(binary::parse(&out), Parsed::Request(request) if request.command == Command::Noop));
    }

    #[test]
    fn what_cannot_be_sent_leaves_nothing_behind() {
        let mut out = Vec::new();
        assert_eq!(keyed(&mut out, Opcode::Get, b"", TAG), Err(BadRequest::KeyEmpty));
        let key = [b'k'; 251];
        assert_eq!(join(&mut out, Opcode::Append, &key, b"", TAG), Err(BadRequest::KeyTooLong { key_bytes: 251 }));
        assert!(out.is_empty());
    }

    #[test]
    fn answers_are_read_whole_or_waited_for() {
        let asked = Header { magic: MAGIC_REQUEST, opcode: Opcode::GetK.as_wire(), opaque: 5, ..Header::default() };
        let mut bytes = Vec::new();
        binary::reply::value_header(&mut bytes, &asked, b"key", 7, 5, 99);
        bytes.extend_from_slice(b"value");
        for cut in 0..bytes.len() {
            let Step::NeedMore { need_bytes } = parse(&bytes[..cut]) else { panic!() };
            assert!(need_bytes > cut && need_bytes <= bytes.len());
        }
        let used = bytes.len();
        bytes.push(0);
        let Step::Done { reply, used: taken } = parse(&bytes) else { panic!() };
        assert_eq!(taken, used);
        assert_eq!(
            (reply.status, reply.flags(), reply.key, reply.value),
            (Some(Status::Success), Some(7), &b"key"[..], &b"value"[..])
        );
        assert_eq!((reply.header.opaque, reply.header.cas), (5, 99));

        let mut bytes = Vec::new();
        binary::reply::number(&mut bytes, &asked, 42, 1);
        let Step::Done { reply, .. } = parse(&bytes) else { panic!() };
        assert_eq!((reply.number(), reply.flags()), (Some(42), None));

        let mut bytes = Vec::new();
        binary::reply::error(&mut bytes, &asked, Status::TooLarge);
        let Step::Done { reply, .. } = parse(&bytes) else { panic!() };
        assert_eq!((reply.status, reply.value), (Some(Status::TooLarge), &b"Too large."[..]));
    }

    #[test]
    fn what_is_no_answer_is_broken() {
        assert_eq!(parse(b"ERROR\r\n"), Step::Broken(BadReply::Magic));
        assert_eq!(parse(&[0x80; 24]), Step::Broken(BadReply::Magic));
        let header = Header { magic: MAGIC_RESPONSE, key_bytes: 9, body_bytes: 8, ..Header::default() };
        assert_eq!(parse(&header.to_bytes()), Step::Broken(BadReply::Lengths));
    }
}
