//! The hot paths that are counted: what each does, how it is prepared, and how often.
//!
//! Each path is checked to do what its name says before it is counted. Keys are 24 bytes and values 100, of a thousand
//! items in a store that is far from full, unless the name says otherwise. Nothing here depends on time or chance.

use std::hint::black_box;
use std::sync::Arc;

use nuthatch_server::loopback::Loopback;
use nuthatch_store::{
    ArithOptions, ArithOutcome, Config, DeleteOptions, DeleteOutcome, Handle, SetOptions, SetOutcome, Store,
};

const KEYS: usize = 1000;
const VALUE: [u8; 100] = [b'v'; 100];
const MEMORY_BYTES: usize = 64 << 20;
/// Room for some ten thousand items.
const SMALL_MEMORY_BYTES: usize = 2 << 20;
/// The store's second. None passes.
const NOW: u32 = 10;
/// Calls of each path: enough that what happens once in some hundred, such as the opening of a segment, counts as it
/// should, and a number that the thousand keys divide.
const CALLS: usize = 4000;
/// Gets that arrive together.
const DEPTH: usize = 16;
/// Keys of a wide get.
const WIDTH: usize = 50;

/// One path.
pub(crate) struct Path {
    /// What the record calls it.
    pub(crate) name: &'static str,
    /// Operations of one call.
    width: usize,
    /// Prepares, then counts.
    run: fn(),
}

impl Path {
    /// Instructions of one operation, where all calls together took `total`.
    pub(crate) fn each(&self, total: u64) -> f64 {
        total as f64 / (CALLS * self.width) as f64
    }
}

/// Every path, in the order they are run.
pub(crate) const PATHS: &[Path] = &[
    Path { name: "store: get, hit", width: 1, run: store_get_hit },
    Path { name: "store: get, miss", width: 1, run: store_get_miss },
    Path { name: "store: set over an item", width: 1, run: store_set_over },
    Path { name: "store: set of a new item", width: 1, run: store_set_new },
    Path { name: "store: set of a new item when full", width: 1, run: store_set_full },
    Path { name: "store: delete and set", width: 1, run: store_delete_set },
    Path { name: "store: increment", width: 1, run: store_increment },
    Path { name: "text: get", width: 1, run: text_get },
    Path { name: "text: get, 16 pipelined, each", width: DEPTH, run: text_get_pipelined },
    Path { name: "text: get of 50 keys, each", width: WIDTH, run: text_get_wide },
    Path { name: "text: set", width: 1, run: text_set },
    Path { name: "meta: get", width: 1, run: meta_get },
    Path { name: "binary: get", width: 1, run: binary_get },
];

/// Runs every path.
pub(crate) fn run() {
    for path in PATHS {
        (path.run)();
    }
}

/// The function at whose start callgrind writes down what was counted since it was last here.
pub(crate) const MARK: &str = "mark_for_callgrind";

#[inline(never)]
fn mark_for_callgrind() {
    black_box(());
}

/// Counts [`CALLS`] calls of `operation`, which is told the number of each.
fn count(mut operation: impl FnMut(usize)) {
    // What is only done the first time is not what a busy server does.
    for call in 0..KEYS {
        operation(call);
    }
    mark_for_callgrind();
    for call in KEYS..KEYS + CALLS {
        operation(call);
    }
    mark_for_callgrind();
}

fn key(number: usize) -> [u8; 24] {
    let mut key = *b"key:00000000000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev().take(20) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn keys(numbers: std::ops::Range<usize>) -> Vec<[u8; 24]> {
    numbers.map(key).collect()
}

fn store(memory_bytes: usize) -> (Arc<Store>, Handle) {
    let store = Store::new(Config::new(memory_bytes)).expect("address space for a small store");
    let handle = store.handle();
    (store, handle)
}

fn set(handle: &mut Handle, key: &[u8]) {
    let outcome = handle.set(key, &VALUE, &SetOptions::default(), NOW);
    assert!(matches!(outcome, SetOutcome::Stored { .. }), "{outcome:?}");
}

fn filled() -> (Arc<Store>, Handle, Vec<[u8; 24]>) {
    let (store, mut handle) = store(MEMORY_BYTES);
    let keys = keys(0..KEYS);
    keys.iter().for_each(|key| set(&mut handle, key));
    (store, handle, keys)
}

fn store_get_hit() {
    let (_store, mut handle, keys) = filled();
    count(|call| {
        let hit = handle.get(&keys[call % KEYS], NOW).expect("it was stored");
        black_box(hit.value_whole());
    });
}

fn store_get_miss() {
    let (_store, mut handle, _) = filled();
    let absent = keys(KEYS..2 * KEYS);
    count(|call| assert!(handle.get(&absent[call % KEYS], NOW).is_none()));
}

fn store_set_over() {
    let (store, mut handle, keys) = filled();
    count(|call| set(&mut handle, &keys[call % KEYS]));
    assert_eq!(store.stats().items, KEYS as u64);
}

fn store_set_new() {
    let (store, mut handle) = store(MEMORY_BYTES);
    let keys = keys(0..KEYS + CALLS);
    count(|call| set(&mut handle, &keys[call]));
    assert_eq!(store.stats().items, (KEYS + CALLS) as u64);
}

fn store_set_full() {
    let (store, mut handle) = store(SMALL_MEMORY_BYTES);
    let keys = keys(0..20_000 + KEYS + CALLS);
    let (filling, counted) = keys.split_at(20_000);
    filling.iter().for_each(|key| set(&mut handle, key));
    let before = store.stats().evictions;
    assert!(before > 0, "20000 items are more than fit");
    count(|call| set(&mut handle, &counted[call]));
    assert!(store.stats().evictions > before + CALLS as u64 / 2);
}

fn store_delete_set() {
    let (_store, mut handle, keys) = filled();
    count(|call| {
        let key = &keys[call % KEYS];
        assert_eq!(handle.delete(key, &DeleteOptions::default(), NOW), DeleteOutcome::Deleted);
        set(&mut handle, key);
    });
}

fn store_increment() {
    let (_store, mut handle) = store(MEMORY_BYTES);
    let keys = keys(0..KEYS);
    for key in &keys {
        handle.set(key, b"1000000", &SetOptions::default(), NOW);
    }
    let by_one = ArithOptions { delta: 1, ..ArithOptions::default() };
    count(|call| {
        let outcome = handle.arith(&keys[call % KEYS], &by_one, NOW);
        assert!(matches!(outcome, ArithOutcome::Value { .. }), "{outcome:?}");
    });
}

/// A client whose server holds the thousand items, each flagged 5.
fn client() -> Loopback {
    let mut client = Loopback::new(MEMORY_BYTES as u64);
    for number in 0..KEYS {
        assert_eq!(client.answers(&text_set_request(number)), b"STORED\r\n");
    }
    client
}

fn name(number: usize) -> String {
    String::from_utf8_lossy(&key(number)).into_owned()
}

fn text_set_request(number: usize) -> Vec<u8> {
    [format!("set {} 5 0 100\r\n", name(number)).as_bytes(), &VALUE, b"\r\n"].concat()
}

fn shown(number: usize) -> Vec<u8> {
    [format!("VALUE {} 5 100\r\n", name(number)).as_bytes(), &VALUE, b"\r\n"].concat()
}

/// Checks the answer to each request and counts the requests in turn.
fn count_answered(mut client: Loopback, requests: &[Vec<u8>], answer: impl Fn(usize) -> Vec<u8>) {
    for (number, request) in requests.iter().enumerate() {
        let (got, expected) = (client.answers(request), answer(number));
        assert!(got == expected, "{} answered {}", request.escape_ascii(), got.escape_ascii());
    }
    count(|call| {
        black_box(client.run(&requests[call % requests.len()]));
    });
}

fn text_get() {
    let requests: Vec<_> = (0..KEYS).map(|number| format!("get {}\r\n", name(number)).into_bytes()).collect();
    count_answered(client(), &requests, |number| [&shown(number)[..], b"END\r\n"].concat());
}

fn text_get_pipelined() {
    let batch = |first: usize| (first..first + DEPTH).map(|number| number % KEYS);
    let requests: Vec<_> = (0..KEYS)
        .map(|first| batch(first).flat_map(|number| format!("get {}\r\n", name(number)).into_bytes()).collect())
        .collect();
    count_answered(client(), &requests, |first| {
        batch(first).flat_map(|number| [&shown(number)[..], b"END\r\n"].concat()).collect()
    });
}

fn text_get_wide() {
    let batch = |first: usize| (first..first + WIDTH).map(|number| number % KEYS);
    let requests: Vec<_> = (0..KEYS)
        .map(|first| format!("get {}\r\n", batch(first).map(name).collect::<Vec<_>>().join(" ")).into_bytes())
        .collect();
    count_answered(client(), &requests, |first| {
        batch(first).flat_map(shown).chain(b"END\r\n".iter().copied()).collect()
    });
}

fn text_set() {
    let requests: Vec<_> = (0..KEYS).map(text_set_request).collect();
    count_answered(client(), &requests, |_| b"STORED\r\n".to_vec());
}

fn meta_get() {
    let requests: Vec<_> = (0..KEYS).map(|number| format!("mg {} v f\r\n", name(number)).into_bytes()).collect();
    count_answered(client(), &requests, |_| [&b"VA 100 f5\r\n"[..], &VALUE, b"\r\n"].concat());
}

fn binary_get() {
    const MAGIC_REQUEST: u8 = 0x80;
    const MAGIC_ANSWER: u8 = 0x81;
    const SET: u8 = 1;
    // Magic, opcode, length of key, length of extras, type, status, length of all that follows, opaque, CAS unique.
    let header = |magic, opcode, key: usize, extras: u8, body: usize| {
        let mut header = vec![magic, opcode, 0, key as u8, extras, 0, 0, 0];
        header.extend_from_slice(&(body as u32).to_be_bytes());
        header.extend_from_slice(&[0; 12]);
        header
    };
    let flags_and_expiry = [0, 0, 0, 5, 0, 0, 0, 0];
    let mut client = Loopback::new(MEMORY_BYTES as u64);
    for number in 0..KEYS {
        let front = header(MAGIC_REQUEST, SET, 24, 8, 8 + 24 + VALUE.len());
        client.run(&[&front[..], &flags_and_expiry, &key(number), &VALUE].concat());
    }
    let requests: Vec<_> =
        (0..KEYS).map(|number| [&header(MAGIC_REQUEST, 0, 24, 0, 24)[..], &key(number)].concat()).collect();
    for (number, request) in requests.iter().enumerate() {
        let mut answer = client.answers(request);
        // The CAS unique.
        answer[16..24].fill(0);
        let front = header(MAGIC_ANSWER, 0, 0, 4, 4 + VALUE.len());
        assert!(answer == [&front[..], &flags_and_expiry[..4], &VALUE].concat(), "{number}: {}", answer.escape_ascii());
    }
    count(|call| {
        black_box(client.run(&requests[call % KEYS]));
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_path_does_what_its_name_says() {
        super::run();
    }
}
