//! The servers to try for a key, one after the other.

use super::score::{jump, mixed};
use super::{Method, Placement, Set};

/// How often Dalli hashes a key anew, the first hash included.
const DALLI_TRIES: u32 = 20;

/// How often a key is led elsewhere from a server that was tried, before it goes along the list.
const JUMP_TRIES: u32 = 64;

/// See [`Placement::candidates`].
#[derive(Debug)]
pub struct Candidates<'a> {
    placement: &'a Placement,
    key: &'a [u8],
    /// Those that were given, and those that are out.
    seen: Set,
    at: At,
}

/// How far it is.
#[derive(Debug)]
enum At {
    /// The next place of the ring or of the turns, from which the remaining ones follow.
    Place(usize),
    /// The next try.
    Try(u32),
    /// The hash from which the next is found.
    Hash(u64),
}

impl<'a> Candidates<'a> {
    pub(super) fn new(placement: &'a Placement, key: &'a [u8]) -> Candidates<'a> {
        let at = match &placement.method {
            Method::One => At::Place(0),
            Method::Modula(hash, turns) => At::Place(placement.hash32(*hash, key) as usize % turns.len()),
            Method::Ring(hash, ring) => At::Place(ring.at_or_after(placement.hash32(*hash, key))),
            Method::Dalli(_) | Method::Pymemcache(_) => At::Try(0),
            Method::Jump | Method::Weighted(_) => At::Hash(placement.hash64(key)),
        };
        // Where those that are out were left out of the table, they do not come up; `modula` keeps them as libmemcached does.
        let seen = match &placement.method {
            Method::Dalli(_) | Method::Jump => placement.out,
            _ => Set::default(),
        };
        Candidates { placement, key, seen, at }
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let (placement, seen) = (self.placement, &self.seen);
        let found = match (&placement.method, &mut self.at) {
            (Method::One, _) => {
                placement.order.first().map(|index| usize::from(*index)).filter(|index| !seen.has(*index))
            }
            (Method::Modula(_, turns), At::Place(place)) => next_in(turns, place, seen),
            (Method::Ring(_, ring), At::Place(place)) => ring.next(place, seen),
            (Method::Dalli(ring), At::Try(tries)) => {
                let mut found = None;
                while found.is_none() && *tries < DALLI_TRIES {
                    let hash = placement.with_hashed(self.key, |key| dalli_hash(*tries, key));
                    *tries += 1;
                    found = Some(ring.owner(ring.at_or_before(hash))).filter(|owner| !seen.has(*owner));
                }
                found
            }
            (Method::Pymemcache(scores), _) => {
                placement.with_hashed(self.key, |key| scores.best(key, seen)).map(|(server, _)| server)
            }
            (Method::Weighted(scores), At::Hash(hash)) => scores.best(*hash, seen).map(|(server, _)| server),
            (Method::Jump, At::Hash(hash)) => {
                let mut place = jump(*hash, placement.order.len());
                for _ in 0..JUMP_TRIES {
                    if !seen.has(usize::from(placement.order[place])) {
                        break;
                    }
                    *hash = mixed(*hash);
                    place = jump(*hash, placement.order.len());
                }
                next_in(&placement.order, &mut place, seen)
            }
            _ => None,
        };
        found.inspect(|server| self.seen.insert(*server))
    }
}

/// The first from `place` on, round and round, that is not in `seen`; `place` is moved behind it.
fn next_in(turns: &[u16], place: &mut usize, seen: &Set) -> Option<usize> {
    for _ in 0..turns.len() {
        let server = usize::from(turns[*place]);
        *place = if *place + 1 == turns.len() { 0 } else { *place + 1 };
        if !seen.has(server) {
            return Some(server);
        }
    }
    None
}

/// The CRC-32 of the key, then of `"0KEY"`, `"1KEY"` and so on.
fn dalli_hash(tries: u32, key: &[u8]) -> u32 {
    let Some(number) = tries.checked_sub(1) else { return crc32fast::hash(key) };
    let mut hasher = crc32fast::Hasher::new();
    if number >= 10 {
        hasher.update(&[b'0' + (number / 10) as u8]);
    }
    hasher.update(&[b'0' + (number % 10) as u8]);
    hasher.update(key);
    hasher.finalize()
}
