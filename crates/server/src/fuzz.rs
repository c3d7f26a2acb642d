//! Fuzz body for a whole connection: session, execution and store together, without a socket or a thread.
//!
//! An ordinary function that takes any bytes and panics when a promise is broken. Called by the fuzz target for long and
//! by the unit test below for a short, repeatable while.

use crate::conn::Pause;
use crate::loopback::Loopback;

/// Bytes a connection may leave behind as not yet understood: a line, and a value that is waited for.
const STARVED_BYTES_MAX: usize = nuthatch_proto::LINE_BYTES_MAX + 9 * 1024;

/// What a client that sends `data` is answered: no panic, no endless loop, no more kept than may be, and the same answers
/// however the bytes are cut. The first byte says how.
pub fn fuzz_connection(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let whole = answers(stream, usize::MAX);
    let pieces = answers(stream, usize::from(cut) + 1);
    // A line that outgrows the limit is refused when its end has not arrived, and understood when it has. Dumps want to
    // stand alone in what arrives. What counts bytes, calls or processor time is not the same twice.
    let has_long_line = stream.split(|&byte| byte == b'\n').any(|line| line.len() > nuthatch_proto::LINE_BYTES_MAX);
    let is_repeatable = [&whole, &pieces].iter().all(|answers| {
        [&b"STAT "[..], b"\x81\x10\0\0\0", b"cannot pipeline"].iter().all(|what| !contains(answers, what))
    });
    if is_repeatable && !has_long_line {
        assert!(whole == pieces, "whole:\n{}\ncut:\n{}", whole.escape_ascii(), pieces.escape_ascii());
    }
}

fn contains(answers: &[u8], what: &[u8]) -> bool {
    answers.windows(what.len()).any(|window| window == what)
}

/// The answers to `stream` when it arrives `step` bytes at a time, on a server of its own.
fn answers(stream: &[u8], step: usize) -> Vec<u8> {
    let mut client = Loopback::new(4 << 20);
    let mut replies = Vec::new();
    let mut input = Vec::new();
    for piece in stream.chunks(step.min(stream.len()).max(1)) {
        input.extend_from_slice(piece);
        loop {
            let mut turns = 20;
            let (used, pause) = client.step(&input, &mut turns);
            input.drain(..used);
            replies.append(&mut client.take_answers());
            if client.is_watching() {
                return replies;
            }
            match pause {
                Pause::Starved => break,
                Pause::Close | Pause::Fault => return replies,
                Pause::Turn => assert_eq!(turns, 0, "a turn ends when its requests are used up"),
                Pause::Waiting => panic!("nothing waits where no pool has a backend"),
                Pause::Full => assert!(!replies.is_empty()),
            }
        }
        assert!(input.len() <= STARVED_BYTES_MAX, "{} bytes are kept", input.len());
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What clients say, to be cut up and mixed.
    const PHRASES: &[&[u8]] = &[
        b"get ",
        b"gets ",
        b"gat 10 ",
        b"set ",
        b"add ",
        b"cas ",
        b"append ",
        b"incr ",
        b"decr ",
        b"delete ",
        b"touch ",
        b"mg ",
        b"ms ",
        b"md ",
        b"ma ",
        b"me ",
        b"mn\r\n",
        b"key",
        b"k",
        b" 0 0 5\r\nhello\r\n",
        b" 0 0 1\r\n7\r\n",
        b" 5 T60 c\r\nhello\r\n",
        b" 2 MA s\r\nxx\r\n",
        b" v k q s t f c\r\n",
        b" v N30 R20\r\n",
        b" I T30\r\n",
        b"\r\n",
        b" ",
        b"\n",
        b" 5\r\n",
        b" noreply\r\n",
        b" 0 0 20000\r\n",
        b"flush_all\r\n",
        b"forget prefix k:\r\nforget tag t\r\n",
        b"ms k:1 2 Lt,u\r\nhi\r\n",
        b"version\r\n",
        b"quit\r\n",
        b"stats\r\n",
        b"stats items\r\n",
        b"lru_crawler metadump all\r\n",
        b"watch\r\n",
        b"debugtime 5\r\n",
        b"GET / HTTP/1.1",
        b"verbosity 0\r\n",
        b"cache_memlimit 64\r\n",
        b"slabs automove 1\r\n",
        b"\x80\x00\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0key",
        b"\x80\x01\0\x03\x08\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0keyhello",
        b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x80",
        b"\0",
    ];

    #[test]
    fn mixed_phrases_are_answered_the_same_however_they_are_cut() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % below
        };
        for _ in 0..2_000 {
            let mut data = vec![random(40) as u8];
            for _ in 0..random(40) {
                data.extend_from_slice(PHRASES[random(PHRASES.len())]);
                if random(20) == 0 {
                    data.push(random(256) as u8);
                }
            }
            fuzz_connection(&data);
        }
    }
}
