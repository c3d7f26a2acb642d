//! Rendezvous hashing: every server has a score for the key, and the highest wins. A server that goes moves only its own keys.

use xxhash_rust::xxh3::xxh3_64;

use super::Set;
use super::murmur3::Murmur3;
use super::spec::ServerSpec;

/// One server of the list.
#[derive(Clone, Debug)]
struct Scored<S> {
    index: usize,
    label: String,
    /// What its label comes to.
    start: S,
    weight: f64,
}

/// Scores of pymemcache's `RendezvousHash`: `murmur3_32("LABEL-KEY")`, where LABEL is `HOST:PORT` or the path of a UNIX socket. A
/// weight does nothing there, and of two servers with one score the label that sorts last wins.
#[derive(Clone, Debug)]
pub(super) struct Pymemcache(Vec<Scored<Murmur3>>);

/// Our own scores. With `h` the XXH3 of the key and `s` that of the label (`HOST:PORT`, path or name), `x` is splitmix64's finaliser
/// of `h ^ s`, `u = (x / 2^11 + 0.5) / 2^53`, and the score `-weight / ln u` (Mosharaf Chowdhury and others' weighted rendezvous, as in
/// draft-ietf-bess-weighted-hrw). Of two servers with one score the label that sorts last wins.
#[derive(Clone, Debug)]
pub(super) struct Weighted(Vec<Scored<u64>>);

impl Pymemcache {
    pub(super) fn new<'s>(servers: impl Iterator<Item = (u16, &'s ServerSpec)>) -> Pymemcache {
        Pymemcache(scored(servers, ServerSpec::label, |label| Murmur3::new(0).and(label.as_bytes()).and(b"-")))
    }

    /// The server with the highest score of those not in `seen`, and its score.
    pub(super) fn best(&self, key: &[u8], seen: &Set) -> Option<(usize, u32)> {
        best(&self.0, seen, |server| server.start.and(key).finish())
    }
}

impl Weighted {
    pub(super) fn new<'s>(servers: impl Iterator<Item = (u16, &'s ServerSpec)>) -> Weighted {
        Weighted(scored(servers, ServerSpec::label_or_name, |label| xxh3_64(label.as_bytes())))
    }

    /// The server with the highest score of those not in `seen`, for a key of which `hash` is the XXH3, and its score.
    pub(super) fn best(&self, hash: u64, seen: &Set) -> Option<(usize, f64)> {
        best(&self.0, seen, |server| {
            let uniform = ((mixed(hash ^ server.start) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            -server.weight / uniform.ln()
        })
    }
}

fn scored<'s, S>(
    servers: impl Iterator<Item = (u16, &'s ServerSpec)>,
    label: impl Fn(&ServerSpec) -> String,
    start: impl Fn(&str) -> S,
) -> Vec<Scored<S>> {
    let mut scored: Vec<Scored<S>> = servers
        .map(|(index, server)| {
            let label = label(server);
            Scored { index: usize::from(index), start: start(&label), label, weight: f64::from(server.weight) }
        })
        .collect();
    // The first of equal scores is then the one whose label sorts last.
    scored.sort_by(|one, other| other.label.cmp(&one.label));
    scored
}

#[inline]
fn best<S, V: PartialOrd + Copy>(
    servers: &[Scored<S>],
    seen: &Set,
    score: impl Fn(&Scored<S>) -> V,
) -> Option<(usize, V)> {
    let mut best: Option<(usize, V)> = None;
    for server in servers {
        let score = score(server);
        if best.is_none_or(|(_, highest)| score > highest) && !seen.has(server.index) {
            best = Some((server.index, score));
        }
    }
    best
}

/// The finaliser of splitmix64 (Steele, Lea and Flood, 2014).
pub(super) fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The bucket of `buckets` that a key with this hash lives in (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm",
/// 2014), as memcached's proxy has it.
pub(super) fn jump(mut hash: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0i64, 0i64);
    while next < buckets as i64 {
        bucket = next;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1i64 << 31) as f64 / ((hash >> 33) + 1) as f64)) as i64;
    }
    bucket as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_moves_a_key_only_into_the_new_bucket() {
        for key in 0..2000u64 {
            let hash = xxh3_64(&key.to_le_bytes());
            let mut lived = 0;
            for buckets in 1..64 {
                let lives = jump(hash, buckets);
                assert!(lives == lived || lives == buckets - 1, "{key} of {buckets}");
                lived = lives;
            }
        }
    }

    #[test]
    fn jump_gives_the_known_answers() {
        // From the implementation that comes with the paper, as its ports test it.
        for (hash, buckets, expected) in
            [(1, 1, 0), (42, 57, 43), (0xdead_10cc, 1, 0), (0xdead_10cc, 666, 361), (256, 1024, 520), (0, 12345, 0)]
        {
            assert_eq!(jump(hash, buckets), expected, "{hash} of {buckets}");
        }
    }

    #[test]
    fn equal_scores_go_to_the_label_that_sorts_last() {
        let servers = [ServerSpec::new("a", 1), ServerSpec::new("b", 1)];
        let scored =
            scored(servers.iter().enumerate().map(|(index, server)| (index as u16, server)), ServerSpec::label, |_| ());
        assert_eq!(best(&scored, &Set::default(), |_| 5), Some((1, 5)));
    }
}
