//! The flags of a meta command: one letter each, some with an argument behind it, in any order, none twice.

use crate::num::{strict_i32, strict_u32, strict_u64};
use crate::scan::Tokens;
use crate::{KEY_BYTES_MAX, WireError, base64};

/// Most tokens of a meta command line, the command and the key included.
const TOKENS_MAX: usize = 20;

/// Longest opaque token, its letter included.
const OPAQUE_BYTES_MAX: usize = 32;

/// Checked flags.
///
/// `P` and `L` are accepted anywhere and mean nothing (they are for proxies), but for the tags behind the `L` of a set
/// ([`crate::forget`]); so are flags that another meta command knows. Expiry times are as the client wrote them, in seconds: see [`Store::exptime`](crate::ascii::Store::exptime).
///
/// Only which letters were given is kept beside the tokens, and an argument is read when it is asked for: most requests
/// have none, and a small request is cheaper to hand on than a number is to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags<'a> {
    raw: &'a [u8],
    /// Bit n is the letter `A` + n.
    given: u64,
}

impl<'a> Flags<'a> {
    /// Parses the flags that follow the key (and length) of a command; `tokens_before` counts what stands before them.
    /// Checks the key too. `None`: ask [`Flags::blame`] what is wrong.
    #[inline]
    pub(super) fn parse_for(key_token: &[u8], raw: &'a [u8], tokens_before: usize) -> Option<Flags<'a>> {
        if key_token.len() > KEY_BYTES_MAX {
            return None;
        }
        let mut given = 0;
        let mut count = tokens_before;
        for token in Tokens::new(raw) {
            count += 1;
            let letter = token[0];
            if !letter.is_ascii_alphabetic() || given & bit(letter) != 0 {
                return None;
            }
            given |= bit(letter);
            if check_one(letter, &token[1..], key_token).is_err() {
                return None;
            }
        }
        (count <= TOKENS_MAX).then_some(Flags { raw, given })
    }

    /// Which error memcached would have answered: it looks for bytes that cannot be flags first, then at the key, then at
    /// the number of tokens, then at one flag after the other.
    #[cold]
    pub(super) fn blame(key_token: &[u8], raw: &[u8], tokens_before: usize) -> WireError {
        if Flags::unreadable(raw) || key_token.len() > KEY_BYTES_MAX {
            return WireError::BadCommandLineFormat;
        }
        if tokens_before + Tokens::new(raw).count() > TOKENS_MAX {
            return WireError::TooManyFlags;
        }
        let mut seen = [false; 256];
        let mut named = None;
        for token in Tokens::new(raw) {
            if std::mem::replace(&mut seen[usize::from(token[0])], true) {
                return WireError::DuplicateFlag;
            }
            match check_one(token[0], &token[1..], key_token) {
                // An unknown letter ends the matter; of bad arguments the last that has a name is named.
                Err(Bad::Letter) => return WireError::InvalidFlag,
                Err(Bad::Argument(error)) => named = Some(error),
                Err(Bad::Nameless) | Ok(()) => {}
            }
        }
        named.unwrap_or(WireError::BadCommandLineFormat)
    }

    /// Whether a flag's first byte is none that memcached can take for a flag, which it notices before all else.
    pub(crate) fn unreadable(raw: &[u8]) -> bool {
        Tokens::new(raw).any(|token| !matches!(token[0], b'A'..=b'z' | b'0'..=b'9'))
    }

    /// Whether the opaque, if there is one, is short enough. Checked after everything else.
    #[inline]
    pub(super) fn opaque_fits(&self) -> bool {
        self.token(b'O').is_none_or(|opaque| opaque.len() < OPAQUE_BYTES_MAX)
    }

    /// Whether `letter` was given.
    #[inline]
    #[must_use]
    pub const fn has(&self, letter: u8) -> bool {
        letter.is_ascii_alphabetic() && self.given & bit(letter) != 0
    }

    /// `q`: the answer of the common case is not wanted.
    #[must_use]
    pub const fn quiet(&self) -> bool {
        self.has(b'q')
    }

    /// `T`: the expiry time to set.
    #[must_use]
    pub fn ttl(&self) -> Option<i32> {
        strict_i32(self.token(b'T')?)
    }

    /// `N`: make the item if it is missing, with this expiry time.
    #[must_use]
    pub fn vivify(&self) -> Option<i32> {
        strict_i32(self.token(b'N')?)
    }

    /// `R`: recache when less time than this is left.
    #[must_use]
    pub fn recache(&self) -> Option<i32> {
        strict_i32(self.token(b'R')?)
    }

    /// `C`: the CAS unique that the item must have.
    #[must_use]
    pub fn compare(&self) -> Option<u64> {
        strict_u64(self.token(b'C')?)
    }

    /// `E`: the CAS unique that the item gets.
    #[must_use]
    pub fn new_cas(&self) -> Option<u64> {
        strict_u64(self.token(b'E')?)
    }

    /// `F`: the client's flags, 0 without it.
    #[must_use]
    pub fn client_flags(&self) -> u32 {
        self.token(b'F').and_then(strict_u32).unwrap_or(0)
    }

    /// `M`: its letter. A missing one is a space, which is no mode of any command and refused like one.
    pub(super) fn mode(&self) -> Option<u8> {
        self.token(b'M').map(|mode| mode.first().copied().unwrap_or(b' '))
    }

    pub(super) fn delta(&self) -> u64 {
        self.token(b'D').and_then(strict_u64).unwrap_or(1)
    }

    pub(super) fn initial(&self) -> u64 {
        self.token(b'J').and_then(strict_u64).unwrap_or(0)
    }

    /// The flags as they were sent, letter and argument together, in order.
    #[inline]
    pub fn tokens(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Tokens::new(self.raw)
    }

    /// The argument of `letter` as it was sent.
    #[must_use]
    #[inline]
    pub fn token(&self, letter: u8) -> Option<&'a [u8]> {
        if !self.has(letter) {
            return None;
        }
        self.tokens().find(|token| token[0] == letter).map(|token| &token[1..])
    }
}

/// What is wrong with one flag.
enum Bad {
    /// No such flag.
    Letter,
    /// Its argument is no such thing.
    Argument(WireError),
    /// Its argument is wrong, in a way that memcached has no words for.
    Nameless,
}

/// Checks one flag by itself.
#[inline]
fn check_one(letter: u8, argument: &[u8], key_token: &[u8]) -> Result<(), Bad> {
    let (good, bad) = match letter {
        b'v' | b'k' | b'q' | b's' | b't' | b'c' | b'f' | b'h' | b'l' | b'u' | b'x' | b'I' | b'O' | b'M' | b'P'
        | b'L' => return Ok(()),
        b'T' | b'N' | b'R' => (strict_i32(argument).is_some(), Bad::Argument(WireError::BadToken)),
        b'C' | b'E' => (strict_u64(argument).is_some(), Bad::Argument(WireError::BadToken)),
        b'F' => (strict_u32(argument).is_some(), Bad::Nameless),
        b'D' => (strict_u64(argument).is_some(), Bad::Argument(WireError::InvalidMetaDelta)),
        b'J' => (strict_u64(argument).is_some(), Bad::Argument(WireError::InvalidMetaInitial)),
        b'b' => (base64::is_valid(key_token), Bad::Argument(WireError::KeyDecoding)),
        _ => return Err(Bad::Letter),
    };
    if good { Ok(()) } else { Err(bad) }
}

#[inline]
const fn bit(letter: u8) -> u64 {
    1 << (letter - b'A')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(raw: &str) -> Result<Flags<'_>, WireError> {
        let raw = raw.as_bytes();
        Flags::parse_for(b"Zm9v", raw, 2).ok_or_else(|| Flags::blame(b"Zm9v", raw, 2))
    }

    #[test]
    fn every_flag_is_understood() {
        let all = flags("b c f h k l Oabc q s t u v x I").unwrap();
        for letter in b"bcfhklOqstuvxI" {
            assert!(all.has(*letter));
        }
        assert!(!all.has(b'T') && !all.has(b'!') && !all.has(0xff));
        assert!(all.quiet());
        assert_eq!(all.token(b'O'), Some(&b"abc"[..]));
        assert_eq!(all.token(b'T'), None);
        let all = flags("T-1 N2147483647 R30 C18446744073709551615 E5 F4294967295 MS D2 J3 P L").unwrap();
        assert_eq!((all.ttl(), all.vivify(), all.recache()), (Some(-1), Some(i32::MAX), Some(30)));
        assert_eq!((all.compare(), all.new_cas(), all.client_flags()), (Some(u64::MAX), Some(5), u32::MAX));
        assert_eq!((all.mode(), all.delta(), all.initial()), (Some(b'S'), 2, 3));
        let none = flags("").unwrap();
        assert_eq!((none.ttl(), none.vivify(), none.recache()), (None, None, None));
        assert_eq!((none.compare(), none.new_cas(), none.client_flags()), (None, None, 0));
        assert_eq!((none.mode(), none.delta(), none.initial()), (None, 1, 0));
    }

    #[test]
    fn the_order_of_the_request_is_kept() {
        let order = flags("v  t Oq k").unwrap();
        assert_eq!(order.tokens().collect::<Vec<_>>(), [&b"v"[..], b"t", b"Oq", b"k"]);
    }

    #[test]
    fn errors_are_memcacheds_in_memcacheds_order() {
        for (raw, error) in [
            ("v v", WireError::DuplicateFlag),
            ("T1 T2", WireError::DuplicateFlag),
            ("P P", WireError::DuplicateFlag),
            ("y", WireError::InvalidFlag),
            ("S100", WireError::InvalidFlag),
            ("5", WireError::InvalidFlag),
            ("[", WireError::InvalidFlag),
            ("Tx", WireError::BadToken),
            ("T", WireError::BadToken),
            ("N", WireError::BadToken),
            ("R1.5", WireError::BadToken),
            ("T2147483648", WireError::BadToken),
            ("T+1", WireError::BadToken),
            ("N9223372036854775808", WireError::BadToken),
            ("C-1", WireError::BadToken),
            ("E18446744073709551616", WireError::BadToken),
            ("Dx", WireError::InvalidMetaDelta),
            ("J-1", WireError::InvalidMetaInitial),
            ("Fx", WireError::BadCommandLineFormat),
            ("F4294967296", WireError::BadCommandLineFormat),
            ("Fx Tx", WireError::BadToken),
            ("Tx Fx", WireError::BadToken),
            ("Tx Dx", WireError::InvalidMetaDelta),
            ("Tx y", WireError::InvalidFlag),
            ("Tx v v", WireError::DuplicateFlag),
            ("!", WireError::BadCommandLineFormat),
            ("v v ~", WireError::BadCommandLineFormat),
            ("\u{e9}", WireError::BadCommandLineFormat),
            ("a b c d e f g h i j k l m n o p q r s t", WireError::TooManyFlags),
        ] {
            assert_eq!(flags(raw), Err(error), "{raw}");
        }
        let long = [b'k'; KEY_BYTES_MAX + 1];
        assert_eq!(Flags::parse_for(&long, b"v", 2), None);
        assert_eq!(Flags::blame(&long, b"v v", 2), WireError::BadCommandLineFormat);
        assert_eq!(Flags::parse_for(b"not base64", b"b", 2), None);
        assert_eq!(Flags::blame(b"not base64", b"b", 2), WireError::KeyDecoding);
    }
}
