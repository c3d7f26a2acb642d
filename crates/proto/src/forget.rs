//! Forgetting a prefix or a tag: how it is said in each protocol.
//!
//! Owns the names of the reserved keys, and the form in which a meta set carries tags. None of this is memcached's; each form
//! was chosen so that memcached does no harm with it:
//!
//! | form | who can send it | memcached answers |
//! |---|---|---|
//! | `forget prefix\|tag <name> [noreply]` | who writes command lines | `ERROR` |
//! | `delete`, `incr`, `md`, `ma` of [`RESERVED`] and what follows it; the same by the binary protocol | every client | `NOT_FOUND` |
//! | `ms <key> <length> L<tag>,<tag>…` | who speaks meta commands | as if the `L` were not there, which it leaves to proxies |

use crate::{KEY_BYTES_MAX, meta::Flags};

/// What the reserved keys begin with.
pub const RESERVED: &[u8] = b"nuthatch:forget:";

/// The most tags of an item.
pub const TAGS_MAX: usize = 8;

/// The longest tag, in bytes.
pub const TAG_BYTES_MAX: usize = KEY_BYTES_MAX;

/// What is to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget<'a> {
    /// Every item whose key begins with this.
    Prefix(&'a [u8]),
    /// Every item that was stored with this tag.
    Tag(&'a [u8]),
}

impl<'a> Forget<'a> {
    /// What a reserved key stands for: `nuthatch:forget:prefix:` or `nuthatch:forget:tag:` and a name. `None`: it is a key
    /// like any other.
    #[inline]
    #[must_use]
    pub fn of_reserved_key(key: &'a [u8]) -> Option<Forget<'a>> {
        let rest = key.strip_prefix(RESERVED)?;
        let colon = rest.iter().position(|&byte| byte == b':')?;
        Forget::named(&rest[..colon], &rest[colon + 1..])
    }

    /// By the word of the command. `None`: there is no such word, or the name is empty.
    #[must_use]
    pub fn named(word: &[u8], name: &'a [u8]) -> Option<Forget<'a>> {
        match word {
            _ if name.is_empty() => None,
            b"prefix" => Some(Forget::Prefix(name)),
            b"tag" => Some(Forget::Tag(name)),
            _ => None,
        }
    }

    /// The word of the command: `prefix` or `tag`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Forget::Prefix(_) => "prefix",
            Forget::Tag(_) => "tag",
        }
    }

    /// The prefix or the tag.
    #[must_use]
    pub const fn name(&self) -> &'a [u8] {
        match self {
            Forget::Prefix(name) | Forget::Tag(name) => name,
        }
    }
}

/// The tags that the flags of a meta set carry: what stands behind `L`, separated by commas. Empty ones do not count.
pub fn tags<'a>(flags: &Flags<'a>) -> impl Iterator<Item = &'a [u8]> {
    flags.token(b'L').unwrap_or_default().split(|&byte| byte == b',').filter(|tag| !tag.is_empty())
}

/// Are they no more, and no longer, than an item's can be?
pub(crate) fn tags_fit(flags: &Flags<'_>) -> bool {
    tags(flags).count() <= TAGS_MAX && tags(flags).all(|tag| tag.len() <= TAG_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WireError;
    use crate::ascii::Request;
    use crate::ascii::tests::{refusal, request};

    #[test]
    fn reserved_keys_name_a_prefix_or_a_tag() {
        for (key, meaning) in [
            ("nuthatch:forget:prefix:bin:", Some(Forget::Prefix(b"bin:"))),
            ("nuthatch:forget:prefix:a:b:", Some(Forget::Prefix(b"a:b:"))),
            ("nuthatch:forget:tag:user 7", Some(Forget::Tag(b"user 7"))),
            ("nuthatch:forget:tag:", None),
            ("nuthatch:forget:tag", None),
            ("nuthatch:forget:other:x", None),
            ("nuthatch:forget", None),
            ("bin:", None),
        ] {
            assert_eq!(Forget::of_reserved_key(key.as_bytes()), meaning, "{key}");
        }
    }

    #[test]
    fn tags_stand_behind_the_flag_that_memcached_leaves_to_proxies() {
        let of = |line: &'static [u8]| {
            let Request::MetaSet(set) = request(line) else { panic!() };
            tags(&set.meta.flags).collect::<Vec<_>>()
        };
        assert_eq!(of(b"ms k 1 T5 Lnews,user-7 q\r\n"), [&b"news"[..], b"user-7"]);
        assert_eq!(of(b"ms k 1 L,a,,b,\r\n"), [&b"a"[..], b"b"]);
        assert_eq!(of(b"ms k 1 L\r\n"), [b""; 0]);
        assert_eq!(of(b"ms k 1\r\n"), [b""; 0]);
        assert_eq!(of(b"ms k 1 L1,2,3,4,5,6,7,8\r\n").len(), 8);
        let long = format!("ms k 1 L{}\r\n", "t".repeat(251));
        for line in [&b"ms k 1 L1,2,3,4,5,6,7,8,9\r\n"[..], long.as_bytes()] {
            let refusal = refusal(line);
            assert_eq!((refusal.error, refusal.swallow_bytes), (Some(WireError::BadTags), 3));
        }
        // Elsewhere it stays a proxy's, whatever it says.
        assert!(matches!(request(b"mg k L1,2,3,4,5,6,7,8,9\r\n"), Request::MetaGet(_)));
    }
}
