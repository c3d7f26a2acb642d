//! Binary requests: header, extras and key in, a [`Request`] that borrows the key out.

use super::header::{HEADER_BYTES, Header, MAGIC_REQUEST};
use super::opcode::Opcode;
use super::{BODY_BYTES_MAX, EXPTIME_NO_CREATE, Status};
use crate::KEY_BYTES_MAX;

/// What the front of a buffer holds.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// Header, extras and key are not all there: read until the buffer has this many bytes (never more than
    /// [`HEADER_BYTES`] + 20 + [`KEY_BYTES_MAX`]) and call again.
    Incomplete {
        /// Bytes needed from the front of the buffer.
        need_bytes: usize,
    },
    /// A request. Its value, if it has one, follows in the stream.
    Request(Request<'a>),
    /// Not a request that can be carried out.
    Refused(Refusal),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The header; answers repeat its opcode and opaque.
    pub header: Header,
    /// What is asked.
    pub command: Command<'a>,
    /// The usual answer (a miss for retrievals, success for the rest) is left out.
    pub quiet: bool,
    /// Bytes of header, extras and key, to be taken off the buffer (after the request is done with).
    pub front_bytes: usize,
    /// Bytes of the stream after those that are the request's value.
    pub value_bytes: u32,
}

/// Why a frame is not carried out and how the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The header, for the answer.
    pub header: Header,
    /// What to answer; `None`: nothing.
    pub status: Option<Status>,
    /// Bytes from the front of the header that belong to the frame and must be thrown away; more than the buffer holds
    /// means that the rest is still to come.
    pub swallow_bytes: usize,
    /// Close the connection, after the answer if there is one.
    pub close: bool,
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Get, and get-and-touch.
    Get(Get<'a>),
    /// Set, add, replace, append, prepend; the value follows.
    Store(Store<'a>),
    /// Delete; with a CAS unique in the header only if that is the item's.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Increment and decrement.
    Arith(Arith<'a>),
    /// Touch.
    Touch {
        /// The key.
        key: &'a [u8],
        /// New expiry time, seconds.
        exptime: u32,
    },
    /// Flush.
    Flush {
        /// Seconds from now, or UNIX time above 30 days; 0 is now.
        delay: u32,
    },
    /// Say goodbye: answer unless quiet, then close.
    Quit,
    /// Answer, and send what is buffered.
    Noop,
    /// The server's version.
    Version,
    /// Counters.
    Stat {
        /// Sub-command; empty for the general ones.
        key: &'a [u8],
    },
    /// Ways to authenticate; unknown to a server without authentication.
    SaslListMechs,
    /// Authenticate; the value that follows is the challenge or response. Unknown to a server without authentication.
    Sasl {
        /// Name of the mechanism.
        mechanism: &'a [u8],
        /// First step or a later one.
        step: SaslStep,
    },
}

/// First or later step of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SaslStep {
    /// Opcode 0x21.
    Start,
    /// Opcode 0x22.
    Continue,
}

/// A retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The answer shows the key.
    pub with_key: bool,
    /// Get-and-touch: the new expiry time, seconds.
    pub touch: Option<u32>,
}

/// A storage command. With a CAS unique in the header it stores only if that is the item's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// How to store.
    pub verb: Verb,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The client's flags; 0 for append and prepend.
    pub flags: u32,
    /// Expiry time, seconds; 0 for append and prepend. Above 30 days it is UNIX time.
    pub exptime: u32,
}

/// How a storage command stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Whatever was there.
    Set,
    /// If nothing was there.
    Add,
    /// If something was there.
    Replace,
    /// Behind what was there.
    Append,
    /// In front of what was there.
    Prepend,
}

/// Increment or decrement. With a CAS unique in the header it counts only if that is the item's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// Count down.
    pub decrement: bool,
    /// By how much.
    pub delta: u64,
    /// What a missing item begins with, and its expiry time; `None` when it is not to be made.
    pub initial: Option<(u64, u32)>,
}

/// Parses the frame at the front of `buf`. Looks at nothing after the key.
#[inline]
#[must_use]
pub fn parse(buf: &[u8]) -> Parsed<'_> {
    let Some(header) = Header::read(buf) else {
        // A first byte that opens no request is refused before anything is waited for.
        if buf.first().is_some_and(|&magic| magic != MAGIC_REQUEST) {
            return refuse_and_close(Header { magic: buf[0], ..Header::default() }, None);
        }
        return Parsed::Incomplete { need_bytes: HEADER_BYTES };
    };
    if let Err(refusal) = check(&header) {
        return refusal;
    }
    let Some(opcode) = Opcode::from_wire(header.opcode) else {
        return Parsed::Refused(Refusal {
            header,
            status: Some(Status::UnknownCommand),
            swallow_bytes: HEADER_BYTES + header.body_bytes as usize,
            close: false,
        });
    };
    let front_bytes = HEADER_BYTES + header.front_bytes();
    let value_bytes = header.value_bytes().unwrap_or(0);
    if !lengths_belong(opcode, &header, value_bytes) {
        return refuse_and_close(header, Some(Status::InvalidArguments));
    }
    let Some(front) = buf.get(HEADER_BYTES..front_bytes) else {
        return Parsed::Incomplete { need_bytes: front_bytes };
    };
    let (extras, key) = front.split_at(usize::from(header.extras_bytes));
    let command = command(opcode, Extras(extras), key);
    Parsed::Request(Request { header, command, quiet: opcode.quiet(), front_bytes, value_bytes })
}

/// What is wrong with a header whatever its opcode, in memcached's order.
#[inline]
fn check(header: &Header) -> Result<(), Parsed<'static>> {
    if header.magic != MAGIC_REQUEST {
        return Err(refuse_and_close(*header, None));
    }
    if header.value_bytes().is_none() {
        return Err(refuse_and_close(*header, Some(Status::UnknownCommand)));
    }
    if header.body_bytes > BODY_BYTES_MAX || usize::from(header.key_bytes) > KEY_BYTES_MAX {
        return Err(refuse_and_close(*header, Some(Status::InvalidArguments)));
    }
    Ok(())
}

#[cold]
fn refuse_and_close(header: Header, status: Option<Status>) -> Parsed<'static> {
    Parsed::Refused(Refusal { header, status, swallow_bytes: HEADER_BYTES, close: true })
}

/// Whether the opcode goes with extras, key and value of these lengths.
#[inline]
fn lengths_belong(opcode: Opcode, header: &Header, value_bytes: u32) -> bool {
    use Opcode as O;
    let (extras, key, value) = (header.extras_bytes, header.key_bytes > 0, value_bytes > 0);
    match opcode {
        O::Get | O::GetQ | O::GetK | O::GetKQ | O::Delete | O::DeleteQ => extras == 0 && key && !value,
        O::Touch | O::Gat | O::GatQ | O::GatK | O::GatKQ => extras == 4 && key && !value,
        O::Set | O::SetQ | O::Add | O::AddQ | O::Replace | O::ReplaceQ => extras == 8 && key,
        O::Append | O::AppendQ | O::Prepend | O::PrependQ => extras == 0 && key,
        O::Increment | O::IncrementQ | O::Decrement | O::DecrementQ => extras == 20 && key && !value,
        O::Flush | O::FlushQ => (extras == 0 || extras == 4) && !key && !value,
        O::Stat => extras == 0 && !value,
        O::SaslAuth | O::SaslStep => extras == 0 && key,
        O::Quit | O::QuitQ | O::Noop | O::Version | O::SaslListMechs => extras == 0 && !key && !value,
    }
}

fn command<'a>(opcode: Opcode, mut extras: Extras<'_>, key: &'a [u8]) -> Command<'a> {
    use Opcode as O;
    let store = |verb, flags, exptime| Command::Store(Store { verb, key, flags, exptime });
    match opcode {
        O::Get | O::GetQ => Command::Get(Get { key, with_key: false, touch: None }),
        O::GetK | O::GetKQ => Command::Get(Get { key, with_key: true, touch: None }),
        O::Gat | O::GatQ => Command::Get(Get { key, with_key: false, touch: Some(extras.u32()) }),
        O::GatK | O::GatKQ => Command::Get(Get { key, with_key: true, touch: Some(extras.u32()) }),
        O::Touch => Command::Touch { key, exptime: extras.u32() },
        O::Set | O::SetQ => store(Verb::Set, extras.u32(), extras.u32()),
        O::Add | O::AddQ => store(Verb::Add, extras.u32(), extras.u32()),
        O::Replace | O::ReplaceQ => store(Verb::Replace, extras.u32(), extras.u32()),
        O::Append | O::AppendQ => store(Verb::Append, 0, 0),
        O::Prepend | O::PrependQ => store(Verb::Prepend, 0, 0),
        O::Delete | O::DeleteQ => Command::Delete { key },
        O::Increment | O::IncrementQ | O::Decrement | O::DecrementQ => {
            let decrement = matches!(opcode, O::Decrement | O::DecrementQ);
            let (delta, initial, exptime) = (extras.u64(), extras.u64(), extras.u32());
            let initial = (exptime != EXPTIME_NO_CREATE).then_some((initial, exptime));
            Command::Arith(Arith { key, decrement, delta, initial })
        }
        O::Flush | O::FlushQ => Command::Flush { delay: extras.u32() },
        O::Quit | O::QuitQ => Command::Quit,
        O::Noop => Command::Noop,
        O::Version => Command::Version,
        O::Stat => Command::Stat { key },
        O::SaslListMechs => Command::SaslListMechs,
        O::SaslAuth => Command::Sasl { mechanism: key, step: SaslStep::Start },
        O::SaslStep => Command::Sasl { mechanism: key, step: SaslStep::Continue },
    }
}

/// Big-endian numbers one after the other; 0 where they are left out.
struct Extras<'a>(&'a [u8]);

impl Extras<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((&bytes, rest)) => {
                self.0 = rest;
                bytes
            }
            None => [0; N],
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let header = Header {
            magic: MAGIC_REQUEST,
            opcode,
            key_bytes: key.len() as u16,
            extras_bytes: extras.len() as u8,
            body_bytes: (extras.len() + key.len() + value.len()) as u32,
            opaque: 0xdead_beef,
            cas: 7,
            ..Header::default()
        };
        [&header.to_bytes()[..], extras, key, value].concat()
    }

    fn request(buf: &[u8]) -> Request<'_> {
        match parse(buf) {
            Parsed::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(buf: &[u8]) -> Refusal {
        match parse(buf) {
            Parsed::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    const EXTRAS_20: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 60];

    /// A frame of every opcode with the lengths that belong to it, and what it means.
    fn every_command() -> Vec<(Vec<u8>, Command<'static>)> {
        let key = &b"key"[..];
        let four = [0, 0, 0, 60];
        let eight = [0, 0, 0, 5, 0, 0, 0, 60];
        let get = |with_key, touch| Command::Get(Get { key, with_key, touch });
        let store = |verb| Command::Store(Store { verb, key, flags: 5, exptime: 60 });
        let join = |verb| Command::Store(Store { verb, key, flags: 0, exptime: 0 });
        let arith = |decrement| Command::Arith(Arith { key, decrement, delta: 5, initial: Some((9, 60)) });
        Opcode::ALL
            .iter()
            .map(|&opcode| {
                use Opcode as O;
                let (extras, key, value, command): (&[u8], &[u8], &[u8], Command<'static>) = match opcode {
                    O::Get | O::GetQ => (&[], key, b"", get(false, None)),
                    O::GetK | O::GetKQ => (&[], key, b"", get(true, None)),
                    O::Gat | O::GatQ => (&four, key, b"", get(false, Some(60))),
                    O::GatK | O::GatKQ => (&four, key, b"", get(true, Some(60))),
                    O::Touch => (&four, key, b"", Command::Touch { key, exptime: 60 }),
                    O::Set | O::SetQ => (&eight, key, b"value", store(Verb::Set)),
                    O::Add | O::AddQ => (&eight, key, b"value", store(Verb::Add)),
                    O::Replace | O::ReplaceQ => (&eight, key, b"", store(Verb::Replace)),
                    O::Append | O::AppendQ => (&[], key, b"value", join(Verb::Append)),
                    O::Prepend | O::PrependQ => (&[], key, b"value", join(Verb::Prepend)),
                    O::Delete | O::DeleteQ => (&[], key, b"", Command::Delete { key }),
                    O::Increment | O::IncrementQ => (&EXTRAS_20, key, b"", arith(false)),
                    O::Decrement | O::DecrementQ => (&EXTRAS_20, key, b"", arith(true)),
                    O::Flush => (&four, b"", b"", Command::Flush { delay: 60 }),
                    O::FlushQ => (&[], b"", b"", Command::Flush { delay: 0 }),
                    O::Quit | O::QuitQ => (&[], b"", b"", Command::Quit),
                    O::Noop => (&[], b"", b"", Command::Noop),
                    O::Version => (&[], b"", b"", Command::Version),
                    O::Stat => (&[], b"items", b"", Command::Stat { key: b"items" }),
                    O::SaslListMechs => (&[], b"", b"", Command::SaslListMechs),
                    O::SaslAuth => {
                        (&[], b"PLAIN", b"\0u\0p", Command::Sasl { mechanism: b"PLAIN", step: SaslStep::Start })
                    }
                    O::SaslStep => {
                        (&[], b"PLAIN", b"", Command::Sasl { mechanism: b"PLAIN", step: SaslStep::Continue })
                    }
                };
                (frame(opcode.as_wire(), extras, key, value), command)
            })
            .collect()
    }

    #[test]
    fn every_opcode_is_understood() {
        for (bytes, command) in every_command() {
            let request = request(&bytes);
            assert_eq!(request.command, command);
            assert_eq!(request.front_bytes + request.value_bytes as usize, bytes.len());
            assert_eq!((request.header.opaque, request.header.cas), (0xdead_beef, 7));
            assert_eq!(request.quiet, Opcode::from_wire(bytes[1]).unwrap().quiet());
        }
        let stat = frame(Opcode::Stat.as_wire(), &[], b"", b"");
        assert_eq!(request(&stat).command, Command::Stat { key: b"" });
    }

    #[test]
    fn a_frame_cut_anywhere_waits_for_what_it_needs_and_no_more() {
        for (bytes, command) in every_command() {
            let front_bytes = request(&bytes).front_bytes;
            for cut in 0..front_bytes {
                let Parsed::Incomplete { need_bytes } = parse(&bytes[..cut]) else { panic!() };
                assert!(need_bytes > cut && need_bytes <= front_bytes);
            }
            for cut in front_bytes..=bytes.len() {
                assert_eq!(request(&bytes[..cut]).command, command);
            }
        }
    }

    #[test]
    fn an_increment_that_may_not_create_has_no_initial_value() {
        let mut extras = EXTRAS_20;
        extras[16..].fill(0xff);
        let bytes = frame(Opcode::Increment.as_wire(), &extras, b"k", b"");
        let Command::Arith(arith) = request(&bytes).command else { panic!() };
        assert_eq!(arith, Arith { key: b"k", decrement: false, delta: 5, initial: None });
    }

    #[test]
    fn lengths_that_do_not_belong_to_the_opcode_close_the_connection() {
        for (bytes, _) in every_command() {
            let good = Header::read(&bytes).unwrap();
            let (extras, key) = (usize::from(good.extras_bytes), usize::from(good.key_bytes));
            // One byte of extras more and less; CVE-2020-10931 is 255 of them, CVE-2016-8704 to 8706 are too short bodies.
            for wrong in [extras + 1, extras.wrapping_sub(1), 21, 255] {
                if wrong > 255 || (wrong == 0 && matches!(bytes[1], 0x08 | 0x18)) {
                    continue;
                }
                let bytes = frame(good.opcode, &vec![0; wrong], &vec![b'k'; key], b"");
                let refusal = refusal(&bytes);
                assert_eq!((refusal.status, refusal.close), (Some(Status::InvalidArguments), true), "{good:?}");
            }
            let takes_both = [Opcode::Stat].map(Opcode::as_wire).contains(&good.opcode);
            if !takes_both {
                let other_key: &[u8] = if key == 0 { b"k" } else { b"" };
                let refusal = refusal(&frame(good.opcode, &vec![0; extras], other_key, b""));
                assert_eq!((refusal.status, refusal.close), (Some(Status::InvalidArguments), true), "{good:?}");
            }
            if good.value_bytes() == Some(0) && !matches!(bytes[1], 0x03 | 0x13 | 0x22) {
                let refusal = refusal(&frame(good.opcode, &vec![0; extras], &vec![b'k'; key], b"v"));
                assert_eq!((refusal.status, refusal.close), (Some(Status::InvalidArguments), true), "{good:?}");
            }
        }
    }

    #[test]
    fn a_body_shorter_than_its_parts_closes_the_connection() {
        for (key_bytes, extras_bytes, body_bytes) in [(1, 0, 0), (0, 1, 0), (3, 8, 10), (u16::MAX, 255, 65_789)] {
            let header =
                Header { magic: MAGIC_REQUEST, opcode: 1, key_bytes, extras_bytes, body_bytes, ..Header::default() };
            let refusal = refusal(&header.to_bytes());
            assert_eq!((refusal.status, refusal.close), (Some(Status::UnknownCommand), true));
        }
    }

    #[test]
    fn a_body_no_server_could_hold_closes_the_connection() {
        // CVE-2011-4971 and its kin: lengths that are negative as signed numbers.
        for body_bytes in [BODY_BYTES_MAX + 1, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX] {
            for opcode in [0x00, 0x01, 0x0e, 0x21, 0xee] {
                let header = Header {
                    magic: MAGIC_REQUEST,
                    opcode,
                    key_bytes: 1,
                    extras_bytes: 8,
                    body_bytes,
                    ..Header::default()
                };
                let refusal = refusal(&header.to_bytes());
                assert_eq!((refusal.status, refusal.close), (Some(Status::InvalidArguments), true));
            }
        }
        let header = Header { body_bytes: BODY_BYTES_MAX, ..Header::read(&every_command()[1].0).unwrap() };
        assert!(matches!(parse(&header.to_bytes()), Parsed::Incomplete { need_bytes: 35 }));
    }

    #[test]
    fn a_key_too_long_closes_the_connection_before_it_is_read() {
        let bytes = frame(0x00, &[], &[b'k'; KEY_BYTES_MAX + 1], b"");
        let refusal = refusal(&bytes[..HEADER_BYTES]);
        assert_eq!((refusal.status, refusal.close), (Some(Status::InvalidArguments), true));
        let bytes = frame(0x00, &[], &[b'k'; KEY_BYTES_MAX], b"");
        assert!(matches!(request(&bytes).command, Command::Get(_)));
    }

    #[test]
    fn an_unknown_opcode_is_answered_and_its_whole_body_swallowed() {
        for (opcode, extras, key, value) in
            [(0x30, &b"extra"[..], &b"key"[..], &b"value"[..]), (0x1b, &[0, 0, 0, 1], b"", b""), (0x1b, b"", b"", b"")]
        {
            let bytes = frame(opcode, extras, key, value);
            let refusal = refusal(&bytes[..HEADER_BYTES]);
            assert_eq!(refusal.status, Some(Status::UnknownCommand));
            assert_eq!((refusal.swallow_bytes, refusal.close), (bytes.len(), false));
            assert_eq!(refusal.header.opaque, 0xdead_beef);
        }
    }

    #[test]
    fn what_does_not_begin_as_a_request_is_hung_up_on() {
        for buf in [&b"g"[..], b"get key\r\n", b"\x81", &[0x81; 24], &[0; 24]] {
            let refusal = refusal(buf);
            assert_eq!((refusal.status, refusal.close), (None, true));
        }
    }
}
