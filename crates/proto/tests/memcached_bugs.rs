//! Bugs that memcached has had and that a codec can have, each replayed against ours through its public face.
//!
//! Named by CVE, or by memcached's commit where there is none. Those of the server and the store are tested there.

use nuthatch_proto::ascii::{self, KeyStep, Parsed, Refusal, Request, auth};
use nuthatch_proto::binary::{self, HEADER_BYTES, Header, MAGIC_REQUEST, Opcode, Status};
use nuthatch_proto::{KEY_BYTES_MAX, LINE_BYTES_MAX, WireError, udp};

fn refusal(line: &[u8]) -> Refusal {
    match ascii::parse(line) {
        Parsed::Refused(refusal) => refusal,
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

fn frame(opcode: u8, extras_bytes: u8, key_bytes: u16, body_bytes: u32) -> [u8; HEADER_BYTES] {
    Header { magic: MAGIC_REQUEST, opcode, extras_bytes, key_bytes, body_bytes, ..Header::default() }.to_bytes()
}

/// Refused from the header alone, with this status, and the connection closed.
fn closes(frame: &[u8], status: Status) {
    match binary::parse(frame) {
        binary::Parsed::Refused(refusal) => {
            assert_eq!((refusal.status, refusal.close), (Some(status), true), "{frame:x?}");
        }
        other => panic!("{frame:x?}: {other:?}"),
    }
}

#[test]
fn cve_2009_2415_lengths_do_not_wrap() {
    for bytes in ["2147483646", "2147483647", "2147483648", "4294967294", "4294967295", "4294967296", "-1", "-2"] {
        for command in ["set k 0 0", "append k 0 0", "cas k 0 0", "ms k"] {
            let refusal = refusal(format!("{command} {bytes} 1\r\n").as_bytes());
            assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::BadCommandLineFormat), 0));
        }
    }
}

#[test]
fn cve_2010_1152_an_endless_line_is_not_waited_for() {
    for start in [&b"set "[..], b"", b"mg ", b"delete ", b" get "] {
        let mut line = start.to_vec();
        line.resize(LINE_BYTES_MAX + 1, b'x');
        let refusal = refusal(&line);
        assert_eq!((refusal.error, refusal.close), (None, true));
    }
}

#[test]
fn cve_2011_4971_and_229cf41be_negative_bodies_close() {
    for body_bytes in [0x8000_0000, 0xffff_ffff, 0xffff_fff0, 0x7fff_ffff, (1 << 30) + 1] {
        for opcode in 0..=u8::MAX {
            closes(&frame(opcode, 0, 0, body_bytes), Status::InvalidArguments);
        }
    }
}

#[test]
fn cve_2016_8704_8705_8706_and_cve_2017_9951_bodies_shorter_than_their_parts_close() {
    for opcode in [Opcode::Append, Opcode::PrependQ, Opcode::Set, Opcode::AddQ, Opcode::SaslAuth, Opcode::SaslStep] {
        for (extras_bytes, key_bytes, body_bytes) in [(0, 250, 0), (0, 250, 249), (8, 250, 257), (8, 250, 0)] {
            closes(&frame(opcode.as_wire(), extras_bytes, key_bytes, body_bytes), Status::UnknownCommand);
        }
    }
    closes(&frame(Opcode::Set.as_wire(), 0, 3, 3), Status::InvalidArguments);
    closes(&frame(Opcode::Get.as_wire(), 0, 251, 251), Status::InvalidArguments);
}

#[test]
fn cve_2019_11596_lru_mode_without_an_argument_is_an_error() {
    for line in [&b"lru mode\r\n"[..], b"lru\r\n", b"lru tune\r\n", b"lru temp_ttl\r\n"] {
        assert_eq!(refusal(line).error, Some(WireError::Error));
    }
}

#[test]
fn cve_2020_10931_long_extras_close() {
    for extras_bytes in 21..=u8::MAX {
        for &opcode in Opcode::ALL {
            closes(&frame(opcode.as_wire(), extras_bytes, 1, 1 + u32::from(extras_bytes)), Status::InvalidArguments);
        }
    }
}

#[test]
fn cve_2020_22570_a_bad_meta_flag_has_words() {
    for command in ["mg k", "md k", "ms k 2"] {
        for byte in 0x21..=0xffu8 {
            let line = [command.as_bytes(), b" ", &[byte], b"\r\n"].concat();
            match ascii::parse(&line) {
                Parsed::Request { .. } => {}
                Parsed::Refused(refusal) => assert!(!refusal.reply().is_empty(), "{}", line.escape_ascii()),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn cve_2022_48571_messages_of_several_datagrams_are_dropped() {
    let datagram = [&udp::Header { request_id: 1, sequence: 0, total: 2 }.to_bytes()[..], b"get k\r\n"].concat();
    assert_eq!(udp::request(&datagram), None);
}

#[test]
fn cve_2023_46852_runs_of_spaces_are_one_separator() {
    for spaces in [1, 2, 100, 5000] {
        let line = format!("get {0}a{0}b{0}\r\n", " ".repeat(spaces));
        let Parsed::Request { request: Request::Get(get), .. } = ascii::parse(line.as_bytes()) else { panic!() };
        assert_eq!(get.keys.iter().collect::<Vec<_>>(), [b"a", b"b"]);
    }
}

#[test]
fn cve_2023_46853_a_bare_newline_loses_no_byte() {
    for (line, key) in [(&b"get k\n"[..], &b"k"[..]), (b"get kk\n", b"kk"), (b"get k\r\n", b"k")] {
        let Parsed::Request { request: Request::Get(get), line_bytes } = ascii::parse(line) else { panic!() };
        assert_eq!((get.keys.iter().next(), line_bytes), (Some(key), line.len()));
    }
}

#[test]
fn e8364b58b_a_line_of_spaces_is_an_error() {
    for line in [&b"    \r\n"[..], b"   \n", b"                                \r\n"] {
        assert_eq!(refusal(line).error, Some(WireError::Error));
    }
}

#[test]
fn commit_152ddb68f_an_over_long_opaque_is_refused_before_anything_is_touched() {
    let opaque = "O".repeat(33);
    for line in [format!("mg k {opaque} N30 v\r\n"), format!("md k {opaque}\r\n"), format!("ma k N0 {opaque}\r\n")] {
        let refusal = refusal(line.as_bytes());
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::OpaqueTooLong), 0));
    }
    let refusal = refusal(format!("ms k 10 {opaque}\r\n").as_bytes());
    assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::OpaqueTooLong), 12));
}

#[test]
fn af05c9302_and_9981d748f_nobody_floods_the_way_in() {
    let flood = b"\n".repeat(10_000);
    let auth::Parsed::Refused(refusal) = auth::parse(&flood) else { panic!() };
    assert_eq!((refusal.error, refusal.close), (None, true));
    for bytes in ["16385", "4294967295"] {
        let auth::Parsed::Refused(refusal) = auth::parse(format!("set k 0 0 {bytes}\r\n").as_bytes()) else { panic!() };
        assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::AuthTokenTooLong), 0));
    }
}

#[test]
fn commit_8b852b61f_an_endless_get_takes_bounded_memory() {
    let piece = b"key ".repeat(1024);
    let mut window = [&b"get "[..], &piece].concat();
    let Parsed::LongGet { mut keys, line_bytes } = ascii::parse(&window) else { panic!() };
    window.drain(..line_bytes);
    let mut seen = 0;
    for _ in 0..1000 {
        loop {
            match keys.next(&window) {
                KeyStep::Key { key, used } => {
                    assert_eq!(key, b"key");
                    seen += 1;
                    window.drain(..used);
                }
                KeyStep::NeedMore { used } => {
                    window.drain(..used);
                    break;
                }
                KeyStep::Finished { .. } => panic!("the line never ends"),
            }
        }
        assert!(window.len() <= KEY_BYTES_MAX + 1);
        window.extend_from_slice(&piece);
    }
    assert_eq!(seen, 1000 * 1024);
}
