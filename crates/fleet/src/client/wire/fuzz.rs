//! Fuzz body: what a server may answer, any bytes, to requests that were sent.
//!
//! Called by the fuzz target for long, and by the test below for a short, repeatable while. What it holds the reader to: no
//! panic; progress; lengths inside the buffer; the same answers however the stream is cut; no value but that of a key that
//! was asked for; the queue of keys in step with the requests.

use nuthatch_proto::client::reply::LINE_BYTES_MAX;

use super::{Read, encode, encode_quiet, read};
use crate::Protocol;
use crate::client::keys::KeyQueue;
use crate::client::request::{Answer, Arith, Forget, MetaRequest, Request, Store, Verb, Want, Word, Write};

const NAMESPACES: [&[u8]; 2] = [b"", b"n:"];

/// The requests that may be under way.
fn requests() -> Vec<Request<'static>> {
    let store = Store { key: b"bird", value: b"nuthatch", ..Store::default() };
    let meta = |word, flags: &'static [u8], value: &'static [u8]| {
        Request::Meta(MetaRequest { word, key: b"bird", flags, value })
    };
    vec![
        Request::Get { key: b"bird", want: Want::VALUE, touch: None },
        Request::Get { key: b"bird", want: Want::ALL, touch: Some(5) },
        Request::Many { keys: &[b"bird", b"tree", b"nut"], want: Want::CAS, touch: None },
        Request::Write(Write::Store(store)),
        Request::Write(Write::Store(Store { verb: Verb::Add, ..store })),
        Request::Write(Write::Store(Store { cas: Some(7), ..store })),
        Request::Write(Write::Delete { key: b"bird", cas: None }),
        Request::Write(Write::Arith(Arith { key: b"bird", delta: 1, ..Arith::default() })),
        Request::Write(Write::Touch { key: b"bird", exptime: 5 }),
        Request::Flush { delay: None },
        Request::Forget(Forget::Prefix(b"bird:")),
        Request::Version,
        Request::Stats { argument: b"" },
        Request::Barrier,
        meta(Word::Get, b"v f c", b""),
        meta(Word::Set, b"T0", b"nuthatch"),
        meta(Word::Delete, b"", b""),
        meta(Word::Arith, b"v b", b""),
        meta(Word::Debug, b"", b""),
    ]
}

/// The first byte is the protocol and the namespace, the next four name requests that are under way, and the rest is what
/// the server answers.
pub fn fuzz_answers(data: &[u8]) {
    let Some((head, stream)) = data.split_first_chunk::<5>() else { return };
    let protocol = [Protocol::Text, Protocol::Meta, Protocol::Binary][usize::from(head[0] % 3)];
    let namespace = NAMESPACES[usize::from(head[0] / 3 % 2)];
    let whole = answers((protocol, namespace), &head[1..], stream, stream.len().max(1));
    // A line that outgrows the limit is refused when its end has not come, and understood when it has.
    let longest_line = stream.split(|&byte| byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
    for step in [1, 7] {
        let cut = answers((protocol, namespace), &head[1..], stream, step);
        assert!(longest_line >= LINE_BYTES_MAX || cut == whole, "cut at {step}:\n{cut:#?}\n{whole:#?}");
    }
}

/// What is made of a stream that arrives `step` bytes at a time.
fn answers(spoken: (Protocol, &[u8]), wanted: &[u8], stream: &[u8], step: usize) -> Vec<String> {
    let (mut sent, mut keys, mut opaque) = (Vec::new(), KeyQueue::new("a:1".into()), 0);
    let all = requests();
    let mut under_way = Vec::new();
    for number in wanted {
        let request = &all[usize::from(*number) % all.len()];
        // A run of quiet writes comes before some of them.
        if number & 0x80 != 0 {
            let write = Write::Delete { key: b"tree", cas: None };
            if encode_quiet(spoken, &mut sent, opaque, &write).is_ok() {
                under_way.push((None, super::Expected::quiet(1, opaque + 1)));
                opaque += 2;
            }
        }
        // Not every protocol has every request.
        if let Ok(expected) = encode(spoken, &mut sent, &mut keys, opaque, request) {
            opaque += expected.opaques();
            under_way.push((Some(request), expected));
        }
    }
    let mut events = Vec::new();
    let (mut at, mut end) = (0, step.min(stream.len()));
    for (request, mut expected) in under_way {
        loop {
            let buf = &stream[at..end];
            match read(spoken.0, &mut expected, &mut keys, buf) {
                Read::More(need_bytes) => {
                    assert!(need_bytes > buf.len(), "{need_bytes} of {}", buf.len());
                    if end == stream.len() {
                        return events;
                    }
                    end = stream.len().min(end + step);
                }
                Read::Part(used) => {
                    assert!((1..=buf.len()).contains(&used));
                    at += used;
                }
                Read::Done(used, answer) => {
                    assert!((1..=buf.len()).contains(&used));
                    at += used;
                    expected.forget_keys(&mut keys);
                    if let Ok(answer) = &answer {
                        check(request, answer);
                    }
                    events.push(format!("{answer:?}"));
                    break;
                }
                Read::Broken(_) => {
                    events.push("broken".to_owned());
                    return events;
                }
            }
        }
    }
    assert!(keys.front().is_empty(), "no answer is missing, and {} is", keys.front().escape_ascii());
    events
}

/// Whether the answer is one to the request.
fn check(request: Option<&Request<'_>>, answer: &Answer) {
    let fits = match (request, answer) {
        (Some(Request::Get { .. }), Answer::Item(_))
        | (Some(Request::Write(_)), Answer::Written(_))
        | (Some(Request::Meta(_)), Answer::Meta(_))
        | (Some(Request::Version), Answer::Text(_))
        | (Some(Request::Stats { .. }), Answer::Stats(_))
        | (Some(Request::Flush { .. } | Request::Forget(_) | Request::Barrier) | None, Answer::Done) => true,
        (Some(Request::Many { keys, .. }), Answer::Items(items)) => items.len() == keys.len(),
        _ => false,
    };
    assert!(fits, "{request:?} was answered with {answer:?}");
}

/// Answers that exist, behind the bytes that name requests they could be to.
pub fn corpus() -> Vec<Vec<u8>> {
    let binary = |opcode: u8, status: u8, opaque: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let mut frame = vec![0x81, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, status, 0, 0, 0];
        frame.push((extras.len() + key.len() + value.len()) as u8);
        frame.extend_from_slice(&[0, 0, 0, opaque, 0, 0, 0, 0, 0, 0, 0, 9]);
        [&frame, extras, key, value].concat()
    };
    let found = |opaque, key: &[u8]| binary(0x0c, 0, opaque, b"\0\0\0\x05", key, b"hi");
    vec![
        b"\0\0\x02\x03\x04VALUE bird 5 2\r\nhi\r\nEND\r\nVALUE bird 0 1 9\r\n1\r\nVALUE nut 0 0 7\r\n\r\nEND\r\nSTORED\r\nNOT_STORED\r\n".to_vec(),
        b"\0\x05\x06\x07\x08EXISTS\r\nDELETED\r\n5\r\nTOUCHED\r\n".to_vec(),
        b"\0\x09\x0a\x0b\x0cOK\r\nOK\r\nVERSION 1.6.45\r\nSTAT a 1\r\nSTAT b 2\r\nEND\r\n".to_vec(),
        b"\0\x8d\x0e\x0f\x10VERSION 1.6.45\r\nVERSION 1.6.45\r\nVA 2 f5 c9 kbird\r\nhi\r\nHD kbird\r\nNF kbird\r\n".to_vec(),
        b"\0\0\0\0\0SERVER_ERROR out of memory\r\nEND\r\nERROR\r\nVALUE tree 0 2\r\nhi\r\nEND\r\n".to_vec(),
        b"\x01\x01\x02\x03\x04VA 2 f5 c9 t-1 kbird\r\nhi\r\nVA 1 f0 c1 kbird\r\n1\r\nEN\r\nVA 0 f0 c2 knut\r\n\r\nHD O4 c7\r\nNS O5\r\n".to_vec(),
        b"\x01\x0e\x11\x12\x13EN\r\nVA 1 kYmlyZA== b\r\n5\r\nME bird exp=-1 la=2 cas=1\r\n".to_vec(),
        b"\x04\0\x0e\x12\x10VA 2 f5 kn:bird\r\nhi\r\nVA 2 f5 c9 kn:bird\r\nhi\r\nEN\r\nHD kn:bird\r\n".to_vec(),
        [&b"\x02\0\x02\x03\x06"[..], &found(0, b"bird"), &binary(0x0c, 1, 1, b"", b"", b"Not found"), &found(2, b"tree")].concat(),
        [&b"\x02\x03\x07\x0a\x0b"[..], &binary(1, 0, 0, b"", b"", b""), &binary(5, 0, 1, b"", b"", &[0; 8])].concat(),
        [&b"\x05\x80\x0c\x0d\x09"[..], &binary(0x14, 1, 0, b"", b"", b"x"), &binary(0x0a, 0, 1, b"", b"", b"")].concat(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_testkit::dice::Dice;
    use nuthatch_testkit::hostile::rubbish;

    #[test]
    fn no_answer_breaks_the_reader_or_passes_for_another_request_s() {
        let corpus = corpus();
        fuzz_answers(b"");
        corpus.iter().for_each(|data| fuzz_answers(data));
        let mut dice = Dice::seeded(7);
        for _ in 0..10_000 {
            let mut data = rubbish(&mut dice, &corpus);
            // Rubbish begins with a byte of its own. What comes next is read as each protocol, after any requests.
            for at in 0..data.len().min(5) {
                data[at] = dice.u8(..);
            }
            for data in [&data[..], &data[1..]] {
                let outcome = std::panic::catch_unwind(|| fuzz_answers(data));
                assert!(outcome.is_ok(), "{}", data.escape_ascii());
            }
        }
    }

    #[test]
    fn the_corpus_is_understood_to_its_end() {
        for data in corpus() {
            let (head, stream) = data.split_first_chunk::<5>().expect("a head");
            let protocol = [Protocol::Text, Protocol::Meta, Protocol::Binary][usize::from(head[0] % 3)];
            let spoken = (protocol, NAMESPACES[usize::from(head[0] / 3 % 2)]);
            let events = answers(spoken, &head[1..], stream, stream.len());
            assert!(!events.is_empty(), "{}", data.escape_ascii());
        }
    }
}
