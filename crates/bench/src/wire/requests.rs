//! Requests, spelled into a connection's buffer.

use nuthatch_proto::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, Opcode};
use nuthatch_proto::push_u64;

use super::{Codec, Protocol};
use crate::keys::Keys;

impl Codec {
    /// Appends a retrieval of `ids`.
    pub(crate) fn get(&self, out: &mut Vec<u8>, keys: &Keys, ids: &[u32]) {
        match self.protocol {
            Protocol::Text => {
                out.extend_from_slice(b"get");
                for &id in ids {
                    out.push(b' ');
                    keys.push_name(out, id);
                }
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Meta if ids.len() == 1 => {
                out.extend_from_slice(b"mg ");
                keys.push_name(out, ids[0]);
                out.extend_from_slice(b" v\r\n");
            }
            Protocol::Meta => {
                for &id in ids {
                    out.extend_from_slice(b"mg ");
                    keys.push_name(out, id);
                    out.extend_from_slice(b" k q v\r\n");
                }
                out.extend_from_slice(b"mn\r\n");
            }
            Protocol::Binary if ids.len() == 1 => {
                frame(out, Opcode::Get, ids[0], &[], |out| keys.push_name(out, ids[0]), b"")
            }
            Protocol::Binary => {
                for &id in ids {
                    frame(out, Opcode::GetQ, id, &[], |out| keys.push_name(out, id), b"");
                }
                frame(out, Opcode::Noop, 0, &[], |_| {}, b"");
            }
        }
    }

    /// Appends a set of the key to `value`.
    pub(crate) fn set(&self, out: &mut Vec<u8>, keys: &Keys, id: u32, ttl_seconds: u32, value: &[u8]) {
        match self.protocol {
            Protocol::Text => {
                out.extend_from_slice(b"set ");
                keys.push_name(out, id);
                out.extend_from_slice(b" 0 ");
                push_u64(out, u64::from(ttl_seconds));
                out.push(b' ');
                push_u64(out, value.len() as u64);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Meta => {
                out.extend_from_slice(b"ms ");
                keys.push_name(out, id);
                out.push(b' ');
                push_u64(out, value.len() as u64);
                if ttl_seconds > 0 {
                    out.extend_from_slice(b" T");
                    push_u64(out, u64::from(ttl_seconds));
                }
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Binary => {
                let mut extras = [0; 8];
                extras[4..].copy_from_slice(&ttl_seconds.to_be_bytes());
                frame(out, Opcode::Set, id, &extras, |out| keys.push_name(out, id), value);
            }
        }
    }

    /// Appends a deletion.
    pub(crate) fn delete(&self, out: &mut Vec<u8>, keys: &Keys, id: u32) {
        match self.protocol {
            Protocol::Text | Protocol::Meta => {
                let word: &[u8] = if self.protocol == Protocol::Text { b"delete " } else { b"md " };
                out.extend_from_slice(word);
                keys.push_name(out, id);
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Binary => frame(out, Opcode::Delete, id, &[], |out| keys.push_name(out, id), b""),
        }
    }
}

/// A binary request whose opaque is the key's number.
fn frame(out: &mut Vec<u8>, opcode: Opcode, opaque: u32, extras: &[u8], name: impl Fn(&mut Vec<u8>), value: &[u8]) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    out.extend_from_slice(extras);
    let name_start = out.len();
    name(out);
    let key_bytes = out.len() - name_start;
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: opcode.as_wire(),
        key_bytes: key_bytes as u16,
        extras_bytes: extras.len() as u8,
        body_bytes: (extras.len() + key_bytes + value.len()) as u32,
        opaque,
        ..Header::default()
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use nuthatch_proto::client::binary::{self, Tag};
    use nuthatch_proto::client::{meta, text};

    use super::*;
    use crate::wire::answers::tests::keys;

    #[test]
    fn requests_are_those_of_a_careful_client() {
        let keys = keys();
        let tag = |opaque| Tag { opaque, cas: 0 };
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        let value = keys.value(0).to_vec();
        let codec = Codec::new(Protocol::Text, false);
        codec.get(&mut sent, &keys, &[0, 2]);
        codec.set(&mut sent, &keys, 0, 60, &value);
        codec.delete(&mut sent, &keys, 3);
        text::get(&mut expected, &[b"k0", b"k2"]).unwrap();
        expected.extend_from_slice(b"set k0 0 60 5\r\n");
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\ndelete k3\r\n");
        assert_eq!(sent.escape_ascii().to_string(), expected.escape_ascii().to_string());

        (sent, expected) = (Vec::new(), Vec::new());
        let codec = Codec::new(Protocol::Meta, false);
        codec.get(&mut sent, &keys, &[0]);
        codec.get(&mut sent, &keys, &[1, 2]);
        codec.set(&mut sent, &keys, 0, 60, &value);
        codec.set(&mut sent, &keys, 0, 0, &value);
        codec.delete(&mut sent, &keys, 3);
        let flags = [meta::Flag::Letter(b'k'), meta::Flag::Letter(b'q'), meta::Flag::Letter(b'v')];
        meta::get(&mut expected, b"k0", &flags[2..]).unwrap();
        meta::get(&mut expected, b"k1", &flags).unwrap();
        meta::get(&mut expected, b"k2", &flags).unwrap();
        expected.extend_from_slice(meta::NOOP);
        meta::set(&mut expected, b"k0", &value, &[meta::Flag::Unsigned(b'T', 60)]).unwrap();
        meta::set(&mut expected, b"k0", &value, &[]).unwrap();
        meta::delete(&mut expected, b"k3", &[]).unwrap();
        assert_eq!(sent.escape_ascii().to_string(), expected.escape_ascii().to_string());

        (sent, expected) = (Vec::new(), Vec::new());
        let codec = Codec::new(Protocol::Binary, false);
        codec.get(&mut sent, &keys, &[0]);
        codec.get(&mut sent, &keys, &[1, 2]);
        codec.set(&mut sent, &keys, 0, 60, &value);
        codec.delete(&mut sent, &keys, 3);
        binary::keyed(&mut expected, Opcode::Get, b"k0", tag(0)).unwrap();
        binary::keyed(&mut expected, Opcode::GetQ, b"k1", tag(1)).unwrap();
        binary::keyed(&mut expected, Opcode::GetQ, b"k2", tag(2)).unwrap();
        binary::bare(&mut expected, Opcode::Noop, tag(0));
        binary::store(&mut expected, Opcode::Set, b"k0", &value, (0, 60), tag(0)).unwrap();
        binary::keyed(&mut expected, Opcode::Delete, b"k3", tag(3)).unwrap();
        assert_eq!(sent, expected);
    }
}
