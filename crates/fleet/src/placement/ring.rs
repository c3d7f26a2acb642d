//! A ring of points, each of which belongs to a server, and how libmemcached, twemproxy and Dalli lay theirs out.

use sha1::{Digest, Sha1};

use super::hash::md5_words;
use super::spec::{PORT_DEFAULT, ServerSpec};
use super::{Hash, Set};

/// Points of a server of mean weight on a weighted ring, four to an MD5 digest.
const WEIGHTED_POINTS: f32 = 160.0;
/// Points of every server on a ring without weights.
const PLAIN_POINTS: u32 = 100;
/// Points of a server of mean weight on Dalli's ring.
const DALLI_POINTS: u64 = 160;

/// The points in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    points: Vec<u32>,
    /// Whose each is: an index into the list of servers.
    owners: Vec<u16>,
    /// Where in `points` those begin whose upper bits are the index: about one point shares them.
    starts: Vec<u32>,
    shift: u32,
}

/// How the labels are made whose digests are a server's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// `HOST-N`, and `HOST:PORT-N` where the port is not 11211.
    Libmemcached,
    /// `/HOST:PORT-N`
    Spy,
    /// `NAME-N`; without a name as libmemcached.
    Twemproxy,
}

impl Labels {
    /// What stands before the number.
    pub(super) fn stem(self, server: &ServerSpec) -> String {
        match (self, &server.name) {
            (Labels::Spy, _) => format!("/{}:{}-", server.host, server.port),
            (Labels::Twemproxy, Some(name)) => format!("{name}-"),
            // A UNIX socket has no port in twemproxy.
            (Labels::Twemproxy, None) if server.is_unix() => format!("{}-", server.host),
            _ if server.port == PORT_DEFAULT => format!("{}-", server.host),
            _ => format!("{}:{}-", server.host, server.port),
        }
    }
}

impl Ring {
    /// Of pairs of a point and its owner. Points of one value are their owners' in ascending order, and the first has them.
    fn new(mut pairs: Vec<(u32, u16)>) -> Ring {
        pairs.sort_unstable();
        let bits = (pairs.len().max(2) as u32).next_power_of_two().trailing_zeros();
        let shift = 32 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (index, (point, _)) in pairs.iter().enumerate() {
            let bucket = (point >> shift) as usize;
            while starts.len() <= bucket {
                starts.push(index as u32);
            }
        }
        starts.resize((1 << bits) + 1, pairs.len() as u32);
        let (points, owners) = pairs.into_iter().unzip();
        Ring { points, owners, starts, shift }
    }

    /// The ring of MD5 points in proportion to weights, of `servers` with their indices, `live` servers with `total` weight. All of it
    /// is done in 32-bit floats, as libmemcached's `update_continuum` and twemproxy's `ketama_update` do: the rounding decides.
    pub(super) fn weighted<'s>(servers: impl Iterator<Item = (u16, &'s ServerSpec)> + Clone, labels: Labels) -> Ring {
        let live = servers.clone().count() as f32;
        let total: u64 = servers.clone().map(|(_, server)| u64::from(server.weight)).sum();
        let mut pairs = Vec::new();
        for (index, server) in servers {
            let share = server.weight as f32 / total as f32;
            let digests = (share * WEIGHTED_POINTS / 4.0 * live + 0.000_000_000_1).floor() as u32;
            let stem = labels.stem(server);
            for number in 0..digests {
                pairs.extend(md5_words(format!("{stem}{number}").as_bytes()).map(|point| (point, index)));
            }
        }
        Ring::new(pairs)
    }

    /// The ring of a hundred points for each server by `hash`.
    pub(super) fn plain<'s>(servers: impl Iterator<Item = (u16, &'s ServerSpec)>, labels: Labels, hash: Hash) -> Ring {
        let mut pairs = Vec::new();
        for (index, server) in servers {
            let stem = labels.stem(server);
            pairs.extend((0..PLAIN_POINTS).map(|number| (hash.of(format!("{stem}{number}").as_bytes()), index)));
        }
        Ring::new(pairs)
    }

    /// Dalli's ring (`lib/dalli/ring.rb`).
    pub(super) fn dalli<'s>(servers: impl Iterator<Item = (u16, &'s ServerSpec)> + Clone) -> Ring {
        let live = servers.clone().count() as u64;
        let total: u64 = servers.clone().map(|(_, server)| u64::from(server.weight)).sum();
        let mut pairs = Vec::new();
        for (index, server) in servers {
            let label = server.label_or_name();
            // Ruby divides by a float and rounds down, which for numbers of this size is a division of whole numbers.
            for number in 0..live * DALLI_POINTS * u64::from(server.weight) / total {
                let digest: [u8; 20] = Sha1::digest(format!("{label}:{number}").as_bytes()).into();
                pairs.push((u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]), index));
            }
        }
        Ring::new(pairs)
    }

    /// The place of the first point that is not below `hash`, or the first of all.
    #[inline]
    pub(super) fn at_or_after(&self, hash: u32) -> usize {
        let mut place = self.starts[(hash >> self.shift) as usize] as usize;
        while self.points.get(place).is_some_and(|point| *point < hash) {
            place += 1;
        }
        if place == self.points.len() { 0 } else { place }
    }

    /// The place of the last point that is not above `hash`, or the last of all.
    #[inline]
    pub(super) fn at_or_before(&self, hash: u32) -> usize {
        let mut place = self.starts[(hash >> self.shift) as usize] as usize;
        while self.points.get(place).is_some_and(|point| *point <= hash) {
            place += 1;
        }
        if place == 0 { self.points.len() - 1 } else { place - 1 }
    }

    /// The server of the point at `place`.
    #[inline]
    pub(super) fn owner(&self, place: usize) -> usize {
        usize::from(self.owners[place])
    }

    /// The value of the point at `place`.
    pub(super) fn point(&self, place: usize) -> u32 {
        self.points[place]
    }

    /// How many points there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// The next server along the ring that is not in `seen`, from `place` on, which is moved behind it.
    pub(super) fn next(&self, place: &mut usize, seen: &Set) -> Option<usize> {
        for _ in 0..self.points.len() {
            let owner = self.owner(*place);
            *place = if *place + 1 == self.points.len() { 0 } else { *place + 1 };
            if !seen.has(owner) {
                return Some(owner);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_point_found_is_the_one_a_search_from_the_start_finds() {
        let mut pairs: Vec<(u32, u16)> = vec![(0, 3), (5, 1), (5, 0), (u32::MAX - 1, 2)];
        pairs.extend((0..500u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> (n % 30), (n % 7) as u16)));
        for pairs in [pairs.clone(), pairs[..1].to_vec(), pairs[..2].to_vec(), pairs[..4].to_vec()] {
            let ring = Ring::new(pairs.clone());
            let near = pairs.iter().flat_map(|(point, _)| [point.saturating_sub(1), *point, point.saturating_add(1)]);
            for hash in near.chain([0, 1, u32::MAX]) {
                let after = ring.points.iter().position(|point| *point >= hash).unwrap_or(0);
                let before = ring.points.iter().rposition(|point| *point <= hash).unwrap_or(ring.len() - 1);
                assert_eq!((ring.at_or_after(hash), ring.at_or_before(hash)), (after, before), "{hash}");
            }
        }
        let ring = Ring::new(vec![(5, 1), (5, 0)]);
        assert_eq!(ring.owner(ring.at_or_after(5)), 0, "of two servers with one point the first has it");
    }
}
