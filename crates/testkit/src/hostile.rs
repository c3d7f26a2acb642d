//! A whole connection under rubbish: any bytes, then proof that the server and its other connections noticed nothing.
//!
//! Called by a test for a short, repeatable while and by the fuzzer for long.

use crate::dice::Dice;
use crate::spawn::{Address, other_server};
use crate::wire::Conn;

/// A server that is sent rubbish, and a connection next to it that must not notice.
#[derive(Debug)]
pub struct Victim {
    address: Address,
    neighbour: Conn,
    rounds: u64,
}

impl Victim {
    /// A server that only this victim uses.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn new(address: &Address) -> Victim {
        let neighbour = Conn::try_open(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        Victim { address: address.clone(), neighbour, rounds: 0 }
    }

    /// Sends bytes over a connection of their own, says that no more will come and takes what is answered until the server
    /// closes; meanwhile the neighbour writes and reads.
    ///
    /// The first byte says into how many pieces the rest is cut. Commands whose very purpose would spoil the test (`shutdown`,
    /// `flush_all`, `debugtime`, binary flushes, memory limits) may be among them, so the neighbour accepts a lost item, but
    /// never a wrong one.
    ///
    /// # Panics
    /// When the server does not close in time, or the neighbour is answered wrongly or not at all.
    pub fn endure(&mut self, bytes: &[u8]) {
        self.rounds += 1;
        let (pieces, bytes) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first % 8, rest));
        let mut hostile = Conn::try_open(&self.address).expect("the server still listens");
        let mut sender = hostile.share();
        let sent = bytes.to_vec();
        let sending = std::thread::spawn(move || {
            let mut dice = Dice::seeded(u64::from(pieces));
            let mut rest = &sent[..];
            for _ in 0..pieces {
                let (piece, after) = rest.split_at(dice.usize(..=rest.len()));
                if sender.try_send(piece).is_err() {
                    return;
                }
                rest = after;
            }
            // The server may close at the first bad byte and refuse the rest.
            let _ = sender.try_send(rest);
            let _ = sender.try_finish_sending();
        });

        let (key, value) = (format!("neighbour{}", self.rounds % 7), format!("value {}", self.rounds));
        self.neighbour.send(format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\nmn\r\n", value.len()));
        self.neighbour.expect("STORED");
        let found = self.neighbour.line();
        if found != "END" {
            assert_eq!(found, format!("VALUE {key} 0 {}", value.len()), "the neighbour reads its own item");
            self.neighbour.expect(&value);
            self.neighbour.expect("END");
        }
        self.neighbour.expect("MN");

        // memcached finds that a watcher has left only when it has something to tell it.
        let may_stay = other_server().is_some() && bytes.windows(5).any(|word| word == b"watch");
        if let Err(error) = hostile.try_rest()
            && !may_stay
        {
            panic!("the server neither reads nor closes after {}: {error}", crate::wire::quoted(bytes));
        }
        drop(hostile);
        sending.join().expect("a send does not panic");
    }
}

/// Rubbish that resembles what a server understands: commands with their parts swapped, doubled, cut and overwritten.
pub fn rubbish(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![dice.u8(..)];
    for _ in 0..dice.usize(1..5) {
        let mut piece = corpus[dice.usize(..corpus.len())].clone();
        match dice.u8(..6) {
            0 => piece.truncate(dice.usize(..=piece.len())),
            1 if !piece.is_empty() => {
                let at = dice.usize(..piece.len());
                piece[at] = dice.u8(..);
            }
            2 => {
                let at = dice.usize(..=piece.len());
                let other = &corpus[dice.usize(..corpus.len())];
                let tail = piece.split_off(at);
                piece.extend(&other[..dice.usize(..=other.len())]);
                piece.extend(tail);
            }
            3 if !piece.is_empty() => {
                let from = dice.usize(..piece.len());
                let repeated = piece[from..].repeat(dice.usize(1..40));
                piece.extend(repeated);
            }
            _ => {}
        }
        bytes.extend(piece);
    }
    bytes
}

/// Beginnings for [`rubbish`]: every command in its plainest form, and what has hurt servers before.
pub fn corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = TEXT.iter().map(|text| text.to_vec()).collect();
    corpus.push([&b"get "[..], &b"k ".repeat(3000), b"\r\n"].concat());
    corpus.push(vec![b'x'; 3000]);
    corpus.push(vec![b' '; 5000]);
    for opcode in 0..=0x24 {
        for extras in [0, 4, 8, 20] {
            let frame = crate::wire::Frame::request(opcode).key("key").extras(vec![0; extras]).value("7");
            corpus.push(frame.bytes());
            corpus.push(crate::wire::Frame { key: Vec::new(), value: Vec::new(), ..frame }.bytes());
        }
    }
    // Lengths that contradict each other or the limits.
    for (key_bytes, extras_bytes, body_bytes) in
        [(3, 8, 2), (0, 0, u32::MAX), (250, 255, 1 << 31), (u16::MAX, 0, u32::from(u16::MAX))]
    {
        let mut frame = crate::wire::Frame::request(1).bytes();
        frame[2..4].copy_from_slice(&key_bytes.to_be_bytes());
        frame[4] = extras_bytes;
        frame[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        corpus.push(frame);
    }
    corpus
}

const TEXT: &[&[u8]] = &[
    b"get a b c\r\n",
    b"gets a\r\n",
    b"gat 100 a b\r\n",
    b"gats 0 a\r\n",
    b"set a 1 0 3\r\nabc\r\n",
    b"set a 1 0 3 noreply\r\nabc\r\n",
    b"add a 1 0 3\r\n123\r\n",
    b"replace a 1 0 3\r\n123\r\n",
    b"append a 1 0 3\r\n123\r\n",
    b"prepend a 1 0 3\r\n123\r\n",
    b"cas a 1 0 3 77\r\n123\r\n",
    b"set a 0 0 4294967295\r\n",
    b"set a 0 0 -1\r\n",
    b"set a 0 0 2000000\r\n",
    b"set a 99999999999 0 1\r\nx\r\n",
    b"delete a\r\n",
    b"delete a 0\r\n",
    b"incr a 5\r\n",
    b"decr a 18446744073709551615\r\n",
    b"incr a x\r\n",
    b"touch a 100\r\n",
    b"version\r\n",
    b"verbosity 0\r\n",
    b"stats\r\n",
    b"stats settings\r\n",
    b"stats items\r\n",
    b"stats slabs\r\n",
    b"stats sizes\r\n",
    b"stats conns\r\n",
    b"stats cachedump 1 10\r\n",
    b"stats detail dump\r\n",
    b"stats reset\r\n",
    b"mg a s v t f c h l k O1 q\r\n",
    b"mg YQ== b k v N30 R30 T30\r\n",
    b"ms a 3 T0 F1 c k O2\r\nabc\r\n",
    b"ms a 3 MA I C1 E5 q\r\nabc\r\n",
    b"md a I T30 q k\r\n",
    b"md a x\r\n",
    b"ma a N0 J5 D1 t c v\r\n",
    b"ma a MD\r\n",
    b"me a\r\n",
    b"mn\r\n",
    b"lru_crawler metadump all\r\n",
    b"lru_crawler mgdump all\r\n",
    b"lru_crawler crawl all\r\n",
    b"lru mode flat\r\n",
    b"lru mode\r\n",
    b"lru tune 10 25 0.1 2.0\r\n",
    b"slabs reassign 1 2\r\n",
    b"slabs reassign 999999 -7\r\n",
    b"slabs automove 1\r\n",
    b"watch fetchers mutations\r\n",
    b"cache_memlimit 64\r\n",
    b"flush_all 0\r\n",
    b"forget prefix key:\r\n",
    b"quit\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\r\n",
    b"\n\n\n",
    b" \r\n",
    b"\0\0\0\0\r\n",
    b"\x80\r\n",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_makes_the_same_rubbish() {
        let corpus = corpus();
        let make = |seed| rubbish(&mut Dice::seeded(seed), &corpus);
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }
}
