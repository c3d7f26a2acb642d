//! Base64 (RFC 4648 section 4, padded), which carries binary keys through the text protocol.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Marks a byte that is not of the alphabet.
const NONE: u8 = 0xff;

const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut i = 0;
    while i < ALPHABET.len() {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values
};

/// Appends `bytes` in base64.
pub fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let (groups, tail) = bytes.as_chunks::<3>();
    for &[a, b, c] in groups {
        out.extend_from_slice(&quad(a, b, c));
    }
    match *tail {
        [a] => {
            let [w, x, ..] = quad(a, 0, 0);
            out.extend_from_slice(&[w, x, b'=', b'=']);
        }
        [a, b] => {
            let [w, x, y, _] = quad(a, b, 0);
            out.extend_from_slice(&[w, x, y, b'=']);
        }
        _ => {}
    }
}

fn quad(a: u8, b: u8, c: u8) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, a, b, c]);
    [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift) as usize & 63])
}

/// Decodes `text` into the front of `out` and returns the bytes written. `None` when it is not padded base64, decodes to
/// nothing or does not fit `out`.
pub fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let (groups, []) = text.as_chunks::<4>() else { return None };
    let (&last, whole) = groups.split_last()?;
    let mut at = 0;
    for &[w, x, y, z] in whole {
        let [a, b, c] = triple(w, x, y, z)?;
        out.get_mut(at..at + 3)?.copy_from_slice(&[a, b, c]);
        at += 3;
    }
    let (last, count) = match last {
        [w, x, b'=', b'='] => (triple(w, x, b'A', b'A')?, 1),
        [w, x, y, b'='] => (triple(w, x, y, b'A')?, 2),
        [w, x, y, z] => (triple(w, x, y, z)?, 3),
    };
    out.get_mut(at..at + count)?.copy_from_slice(&last[..count]);
    Some(&out[..at + count])
}

/// Whether `text` decodes.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    let (groups, []) = text.as_chunks::<4>() else { return false };
    let Some((last, whole)) = groups.split_last() else { return false };
    let coded = |bytes: &[u8]| bytes.iter().all(|&byte| VALUES[usize::from(byte)] != NONE);
    let last = match &last[..] {
        [w @ .., b'=', b'='] | [w @ .., b'='] => w,
        whole => whole,
    };
    coded(whole.as_flattened()) && coded(last)
}

fn triple(w: u8, x: u8, y: u8, z: u8) -> Option<[u8; 3]> {
    let values = [w, x, y, z].map(|byte| VALUES[usize::from(byte)]);
    if values.contains(&NONE) {
        return None;
    }
    let bits = values.iter().fold(0u32, |bits, &value| bits << 6 | u32::from(value));
    let [_, a, b, c] = bits.to_be_bytes();
    Some([a, b, c])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4648_vectors_go_both_ways() {
        for (plain, coded) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(&mut out, plain.as_bytes());
            assert_eq!(out, coded.as_bytes());
            assert_eq!(decode(coded.as_bytes(), &mut [0; 8]), Some(plain.as_bytes()));
            assert!(is_valid(coded.as_bytes()));
        }
    }

    #[test]
    fn every_byte_survives() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        encode(&mut text, &bytes);
        assert_eq!(decode(&text, &mut [0; 256]), Some(&bytes[..]));
    }

    #[test]
    fn what_is_not_padded_base64_is_refused() {
        for bad in ["", "Z", "Zg", "Zg=", "====", "Z===", "Zg==Zg==", "Zm9v!", "Zm9\n", "Zm=v", "\u{e9}m9v"] {
            assert_eq!(decode(bad.as_bytes(), &mut [0; 16]), None, "{bad:?}");
            assert!(!is_valid(bad.as_bytes()), "{bad:?}");
        }
        assert_eq!(decode(b"Zm9vYmFy", &mut [0; 5]), None);
    }
}
