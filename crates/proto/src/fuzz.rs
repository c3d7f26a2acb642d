//! Fuzz bodies: ordinary functions that take any bytes and panic when a codec breaks a promise.
//!
//! Called by the fuzz targets for long, and by the unit tests below for a short, repeatable while. What they hold the
//! codecs to: no panic; progress; lengths inside the buffer; limits kept; the same requests and answers however the
//! stream is cut; and what was understood means the same when it is encoded and parsed again.

use crate::ascii::{self, KeyStep, KeysContinuation, Request};
use crate::client::text::StoreOptions;
use crate::client::{self, Step};
use crate::meta::KEY_SCRATCH;
use crate::{KEY_BYTES_MAX, LINE_BYTES_MAX, WireError, binary, udp};

/// Text and meta commands, and the way in for those who must authenticate.
pub fn fuzz_ascii(data: &[u8]) {
    let whole = ascii_events(data, data.len().max(1));
    // A line that outgrows the limit is refused when its end has not arrived, and understood when it has.
    let longest_line = data.split(|&byte| byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
    for step in [1, 7] {
        let cut = ascii_events(data, step);
        assert!(longest_line >= LINE_BYTES_MAX || cut == whole, "cut at {step}:\n{cut:#?}\n{whole:#?}");
    }
    match ascii::auth::parse(data) {
        ascii::auth::Parsed::Incomplete => {
            assert!(data.len() <= LINE_BYTES_MAX + ascii::auth::TOKEN_BYTES_MAX + 2 || data.contains(&b'\n'));
        }
        ascii::auth::Parsed::Credentials { user, password, used } => {
            assert!(user.len() + password.len() < used && used <= data.len());
        }
        ascii::auth::Parsed::Refused(refusal) => assert!((1..=data.len()).contains(&refusal.line_bytes)),
    }
    let key = &data[..data.len().min(187)];
    if !key.is_empty() {
        let mut coded = Vec::new();
        crate::base64_encode(&mut coded, key);
        assert_eq!(crate::base64_decode(&coded, &mut KEY_SCRATCH.clone()), Some(key));
    }
}

/// What a server makes of a stream that arrives `step` bytes at a time.
fn ascii_events(stream: &[u8], step: usize) -> Vec<String> {
    let mut events = Vec::new();
    let (mut at, mut end) = (0, 0);
    loop {
        match ascii::parse(&stream[at..end]) {
            ascii::Parsed::Incomplete => {
                assert!(end - at <= LINE_BYTES_MAX);
                if end == stream.len() {
                    return events;
                }
                end = stream.len().min(end + step);
            }
            ascii::Parsed::Request { request, line_bytes } => {
                assert!((2..=end - at).contains(&line_bytes));
                check_request(&request);
                let body_bytes = match &request {
                    Request::Store(store) => store.body_bytes(),
                    Request::MetaSet(set) => set.body_bytes(),
                    _ => 0,
                };
                events.push(event(&request));
                at += line_bytes + body_bytes as usize;
            }
            ascii::Parsed::LongGet { mut keys, line_bytes } => {
                at += line_bytes;
                if !follow(&mut keys, stream, &mut at, &mut end, step, &mut events) {
                    return events;
                }
            }
            ascii::Parsed::Refused(refusal) => {
                assert!((1..=end - at).contains(&refusal.line_bytes));
                assert!(refusal.reply().is_empty() || refusal.reply().ends_with(b"\r\n"));
                events.push(format!("{:?} {} {}", refusal.error, refusal.noreply, refusal.close));
                if refusal.close {
                    return events;
                }
                at += refusal.line_bytes + refusal.swallow_bytes as usize;
            }
        }
        if at > stream.len() {
            return events;
        }
        end = end.max(at);
    }
}

/// Follows a long retrieval to its end; `false` when the stream ends first.
fn follow(
    keys: &mut KeysContinuation,
    stream: &[u8],
    at: &mut usize,
    end: &mut usize,
    step: usize,
    events: &mut Vec<String>,
) -> bool {
    loop {
        match keys.next(&stream[*at..*end]) {
            KeyStep::Key { key, used } => {
                assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && key.len() <= used && used <= *end - *at);
                *at += used;
            }
            KeyStep::NeedMore { used } => {
                *at += used;
                assert!(*at <= *end && *end - *at <= KEY_BYTES_MAX + 1);
                if *end == stream.len() {
                    return false;
                }
                *end = stream.len().min(*end + step);
            }
            KeyStep::Finished { used, error } => {
                assert!((1..=*end - *at).contains(&used));
                events.push(format!("long get {error:?}"));
                *at += used;
                return true;
            }
        }
    }
}

fn event(request: &Request<'_>) -> String {
    match request {
        Request::Get(get) => format!("{:?} {} {:?}", get.keys.iter().collect::<Vec<_>>(), get.with_cas, get.touch),
        other => format!("{other:?}"),
    }
}

/// Keys inside their limits, and the same request again after encoding it.
fn check_request(request: &Request<'_>) {
    let mut scratch = KEY_SCRATCH;
    let mut again = Vec::new();
    let encoded = match request {
        Request::Get(get) => {
            let keys: Vec<&[u8]> = get.keys.iter().collect();
            assert!(!keys.is_empty());
            keys.iter().for_each(|key| check_key(key));
            match (get.touch, get.with_cas) {
                (None, false) => client::text::get(&mut again, &keys),
                (None, true) => client::text::gets(&mut again, &keys),
                (Some(exptime), false) => client::text::gat(&mut again, exptime, &keys),
                (Some(exptime), true) => client::text::gats(&mut again, exptime, &keys),
            }
        }
        Request::Store(store) => {
            check_key(store.key);
            assert!(store.value_bytes <= crate::VALUE_BYTES_MAX);
            let options =
                StoreOptions { flags: store.flags, exptime: store.exptime, cas: store.cas, noreply: store.noreply };
            let value = vec![b'v'; store.value_bytes.min(1000) as usize];
            let encoded = client::text::store(&mut again, store.verb, store.key, &value, options);
            if encoded.is_ok() {
                let ascii::Parsed::Request { request: Request::Store(got), line_bytes } = ascii::parse(&again) else {
                    panic!("{}", again.escape_ascii())
                };
                assert_eq!(got, ascii::Store { value_bytes: value.len() as u32, ..*store });
                assert_eq!(again[line_bytes..].len(), value.len() + 2);
            }
            return;
        }
        Request::Delete(delete) => {
            check_key(delete.key);
            client::text::delete(&mut again, delete.key, delete.noreply)
        }
        Request::Arith(arith) if arith.decrement => {
            check_key(arith.key);
            client::text::decr(&mut again, arith.key, arith.delta, arith.noreply)
        }
        Request::Arith(arith) => {
            check_key(arith.key);
            client::text::incr(&mut again, arith.key, arith.delta, arith.noreply)
        }
        Request::Touch(touch) => {
            check_key(touch.key);
            client::text::touch(&mut again, touch.key, touch.exptime, touch.noreply)
        }
        Request::MetaGet(meta) | Request::MetaDelete(meta) => return check_meta(meta),
        Request::MetaSet(set) => return check_meta(&set.meta),
        Request::MetaArith(arith) => return check_meta(&arith.meta),
        Request::MetaDebug(debug) => return check_key(debug.key(&mut scratch)),
        _ => return,
    };
    if encoded.is_ok() {
        let ascii::Parsed::Request { request: got, line_bytes } = ascii::parse(&again) else {
            panic!("{}", again.escape_ascii())
        };
        assert_eq!((event(&got), line_bytes), (event(request), again.len()));
    }
}

fn check_meta(meta: &crate::meta::Meta<'_>) {
    check_key(meta.key_token());
    check_key(meta.key(&mut KEY_SCRATCH.clone()));
    assert!(meta.flags.tokens().count() <= 18);
    assert!(meta.flags.token(b'O').is_none_or(|opaque| opaque.len() < 32));
    let mut out = Vec::new();
    crate::meta::reply::hit(&mut out, meta, &Default::default(), Default::default());
    // Key, opaque and a handful of numbers: what a server must have room for.
    assert!(out.len() < 512 && out.ends_with(b"\r\n"));
    if !meta.flags.has(b'v') {
        assert!(matches!(client::reply::parse(&out), Step::Done { used, .. } if used == out.len()));
    }
}

fn check_key(key: &[u8]) {
    assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
}

/// Binary requests.
pub fn fuzz_binary(data: &[u8]) {
    let whole = binary_events(data, data.len().max(1));
    for step in [1, 5] {
        assert_eq!(binary_events(data, step), whole, "cut at {step}");
    }
}

fn binary_events(stream: &[u8], step: usize) -> Vec<String> {
    let mut events = Vec::new();
    let (mut at, mut end) = (0, 0);
    loop {
        match binary::parse(&stream[at..end]) {
            binary::Parsed::Incomplete { need_bytes } => {
                assert!(need_bytes > end - at);
                assert!(need_bytes <= binary::HEADER_BYTES + binary::EXTRAS_BYTES_MAX + KEY_BYTES_MAX);
                if end == stream.len() {
                    return events;
                }
                end = stream.len().min(end + step);
            }
            binary::Parsed::Request(request) => {
                assert!((binary::HEADER_BYTES..=end - at).contains(&request.front_bytes));
                assert!(request.value_bytes <= binary::BODY_BYTES_MAX);
                events.push(format!("{:?} {}", request.command, request.quiet));
                at += request.front_bytes + request.value_bytes as usize;
            }
            binary::Parsed::Refused(refusal) => {
                events.push(format!("{:?} {}", refusal.status, refusal.close));
                if refusal.close {
                    return events;
                }
                assert!(refusal.swallow_bytes >= binary::HEADER_BYTES);
                at += refusal.swallow_bytes;
            }
        }
        if at > stream.len() {
            return events;
        }
        end = end.max(at);
    }
}

/// Datagrams, as a server and as a client see them.
pub fn fuzz_udp(data: &[u8]) {
    if let Some((id, payload)) = udp::request(data) {
        assert!(!payload.is_empty() && payload.len() + udp::HEADER_BYTES == data.len());
        // The place in a message of one is not looked at.
        assert_eq!((id.to_be_bytes(), [0, 1]), ([data[0], data[1]], [data[4], data[5]]));
    }
    let mut assembly = udp::Assembly::new(data.first().copied().unwrap_or(0).into(), 64);
    for datagram in data.chunks(13) {
        if let Some(whole) = assembly.push(datagram) {
            assert!(whole.len() <= 64);
        }
    }
    let mut assembly = udp::Assembly::new(7, data.len());
    let mut whole = None;
    for (header, payload) in udp::split(7, data).into_iter().flatten() {
        whole = assembly.push(&[&header[..], payload].concat());
    }
    assert_eq!(whole.unwrap_or_default(), data);
}

/// What servers answer, as a client reads it.
pub fn fuzz_replies(data: &[u8]) {
    let whole = reply_events(data, data.len().max(1));
    let longest_line = data.split(|&byte| byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
    for step in [1, 7] {
        assert!(longest_line >= client::reply::LINE_BYTES_MAX || reply_events(data, step) == whole, "cut at {step}");
    }
    let mut rest = data;
    loop {
        match client::binary::parse(rest) {
            Step::NeedMore { need_bytes } => break assert!(need_bytes > rest.len()),
            Step::Done { reply, used } => {
                assert_eq!(binary::HEADER_BYTES + reply.extras.len() + reply.key.len() + reply.value.len(), used);
                rest = &rest[used..];
            }
            Step::Broken(_) => break,
        }
    }
}

fn reply_events(stream: &[u8], step: usize) -> Vec<String> {
    let mut events = Vec::new();
    let (mut at, mut end) = (0, 0);
    loop {
        match client::reply::parse(&stream[at..end]) {
            Step::NeedMore { need_bytes } => {
                assert!(need_bytes > end - at);
                if end == stream.len() {
                    return events;
                }
                end = stream.len().min(end + step);
            }
            Step::Done { reply, used } => {
                assert!((1..=end - at).contains(&used));
                events.push(format!("{reply:?}"));
                at += used;
            }
            Step::Broken(why) => {
                events.push(format!("{why:?}"));
                return events;
            }
        }
    }
}

/// Beginnings that make a fuzzer's life easier: every command, every answer, and what has hurt memcached before.
#[must_use]
pub fn corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = TEXT.iter().map(|text| text.to_vec()).collect();
    corpus.push(format!("get {}\r\n", "key ".repeat(1000)).into_bytes());
    corpus.push(format!("gats 10 {}{}\r\nmn\r\n", "key ".repeat(1000), "k".repeat(300)).into_bytes());
    corpus.push(TEXT.concat());
    corpus.extend(WireError::ALL.iter().map(|error| error.as_wire().to_vec()));
    let mut frames = Vec::new();
    for &opcode in binary::Opcode::ALL {
        for extras_bytes in [0, 4, 8, 20] {
            let mut frame = Vec::new();
            let tag = client::binary::Tag { opaque: 1, cas: 2 };
            client::binary::request(&mut frame, opcode, &[0; 20][..extras_bytes], b"key", b"", tag).unwrap_or(());
            frames.extend_from_slice(&frame);
            corpus.push(frame);
        }
        client::binary::bare(&mut frames, opcode, client::binary::Tag::default());
    }
    corpus.push(frames);
    corpus
}

const TEXT: &[&[u8]] = &[
    b"get a\r\n",
    b"get a bb ccc\n",
    b"gets a\r\n",
    b"gat 10 a b\r\n",
    b"gats -1 a\r\n",
    b"set k 1 2 3\r\nabc\r\n",
    b"set k 1 2 3 noreply\r\nabc\r\n",
    b"add k 4294967295 -1 0\r\n\r\n",
    b"replace k 0 0 1\r\nx\r\n",
    b"append k 0 0 1\r\nx\r\n",
    b"prepend k 0 0 1\r\nx\r\n",
    b"cas k 0 0 2 18446744073709551615\r\nhi\r\n",
    b"set k x 0 5\r\nhello\r\n",
    b"set k 0 0 -1\r\n",
    b"set k 0 0 2147483647\r\n",
    b"delete k 0 noreply\r\n",
    b"incr k 18446744073709551615\r\n",
    b"decr k 1 noreply\r\n",
    b"touch k 60\r\n",
    b"mg Zm9v b v k t c f h l s u q O123 T30 N30 R10\r\n",
    b"ms k 2 T0 F5 I C3 E4 ME k O9\r\nhi\r\n",
    b"ms k 2 S\r\nhi\r\n",
    b"md k q I T30 x C5\r\n",
    b"ma k N0 J5 D2 MD v t c\r\n",
    b"mn\r\n",
    b"me k\r\n",
    b"flush_all 10 noreply\r\n",
    b"forget prefix a:b: noreply\r\n",
    b"forget tag t\r\n",
    b"ms key 2 La,b,,c T5\r\nhi\r\n",
    b"version\r\n",
    b"quit\r\n",
    b"verbosity 1\r\n",
    b"stats\r\n",
    b"stats cachedump 1 10\r\n",
    b"stats detail on\r\n",
    b"cache_memlimit 64\r\n",
    b"shutdown graceful\r\n",
    b"slabs reassign 1 2\r\n",
    b"slabs automove ratio 0.5\r\n",
    b"lru tune 10 20 0.1 2.0\r\n",
    b"lru mode\r\n",
    b"lru_crawler metadump all\r\n",
    b"lru_crawler crawl 1,2,3\r\n",
    b"watch fetchers mutations\r\n",
    b"extstore item_size 5\r\n",
    b"refresh_certs\r\n",
    b"debugtime -5\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"     \r\n",
    b"\r\n\r\n\n\n",
    b"VALUE k 1 3 5\r\nabc\r\nEND\r\n",
    b"VA 2 t-1 W\r\nhi\r\n",
    b"HD kfoo O1\r\nEN\r\nNF\r\nEX\r\nNS\r\n",
    b"STORED\r\nSTAT a b\r\n123\r\n",
    b"\0\x07\0\0\0\x01\0\0get k\r\n",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*, so that every run of the tests tries the same bytes.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }

        fn below(&mut self, bound: usize) -> usize {
            (self.next() % bound.max(1) as u64) as usize
        }
    }

    /// Two seeds spliced, then bent in a few places with bytes that mean something.
    fn mutant(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
        const TELLING: &[u8] = b"\r\n \0\x80\xff-+0199bkqvTNO\t";
        let mut data = corpus[random.below(corpus.len())].clone();
        data.truncate(random.below(data.len() + 1).max(random.below(data.len() + 1)));
        data.extend_from_slice(&corpus[random.below(corpus.len())]);
        for _ in 0..random.below(6) {
            let at = random.below(data.len());
            match random.below(4) {
                0 => data.insert(at, TELLING[random.below(TELLING.len())]),
                1 if !data.is_empty() => drop(data.remove(at)),
                2 if !data.is_empty() => data[at] = random.next() as u8,
                _ if !data.is_empty() => data[at] = TELLING[random.below(TELLING.len())],
                _ => {}
            }
        }
        data
    }

    fn run(body: fn(&[u8]), seed: u64) {
        let corpus = corpus();
        body(b"");
        corpus.iter().for_each(|data| body(data));
        let mut random = Random(seed);
        for _ in 0..10_000 {
            let data = mutant(&mut random, &corpus);
            let outcome = std::panic::catch_unwind(|| body(&data));
            assert!(outcome.is_ok(), "{}", data.escape_ascii());
        }
    }

    #[test]
    fn no_text_breaks_the_text_parser() {
        run(fuzz_ascii, 1);
    }

    #[test]
    fn no_bytes_break_the_binary_parser() {
        run(fuzz_binary, 2);
    }

    #[test]
    fn no_datagram_breaks_the_framing() {
        run(fuzz_udp, 3);
    }

    #[test]
    fn no_answer_breaks_the_client() {
        run(fuzz_replies, 4);
    }

    #[test]
    fn a_stream_of_every_command_cut_once_at_any_place_gives_the_same_requests() {
        let stream = TEXT[..25].concat();
        let whole = ascii_events(&stream, stream.len());
        assert_eq!(whole.len(), 25, "{whole:#?}");
        for cut in 1..stream.len() {
            // The first piece has `cut` bytes, the second the rest (and no piece is longer than what is left).
            assert_eq!(ascii_events(&stream, cut), whole, "cut at {cut}");
        }
    }
}
