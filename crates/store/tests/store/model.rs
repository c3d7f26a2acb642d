//! Random operations against a plain map with the same meaning: no phantom, stale, torn or duplicate value.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use nuthatch_store::{
    ArithOptions, ArithOutcome, Config, DeleteOptions, DeleteOutcome, Handle, MemoryFile, NEVER, SetMode, SetOptions,
    SetOutcome, Store, Tags,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Set {
        key: u8,
        bytes: usize,
        seed: u8,
        ttl: Option<u32>,
        mode: u8,
    },
    Cas {
        key: u8,
        bytes: usize,
        seed: u8,
        right: bool,
    },
    Get {
        key: u8,
    },
    Delete {
        key: u8,
    },
    Touch {
        key: u8,
        ttl: Option<u32>,
    },
    Arith {
        key: u8,
        delta: u64,
        down: bool,
        initial: bool,
    },
    Number {
        key: u8,
        number: u64,
    },
    Reserve {
        key: u8,
        bytes: usize,
        seed: u8,
        commit: bool,
    },
    Invalidate {
        key: u8,
    },
    Pass {
        seconds: u32,
    },
    Flush,
    ForgetPrefix {
        prefix: usize,
    },
    ForgetTag {
        tag: u8,
    },
    Maintain,
    /// Only where there is a memory file.
    Restart {
        end: End,
    },
}

/// How the server before a restart ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    /// The store is dropped and not closed.
    Dropped,
    /// Not one instruction runs any more, with a value on its way into memory.
    Killed,
}

#[derive(Clone, Debug)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    expiry: u32,
    stale: bool,
    cas: Option<u64>,
    /// Bit n is tag n.
    tags: u8,
}

/// Keys begin with one of these, and a prefix is forgotten.
const PREFIXES: [&str; 4] = ["", "a:", "a:b:", "c:"];
const TAGS: u8 = 3;

fn key_of(key: u8) -> Vec<u8> {
    format!("{}key-{key}", PREFIXES[usize::from(key) % PREFIXES.len()]).into_bytes()
}

/// The tags of an item, from its value's seed: most have none.
fn tags_of(store: &Store, seed: u8) -> (u8, Tags) {
    let mask = if seed.is_multiple_of(2) { 0 } else { seed >> 1 & ((1 << TAGS) - 1) };
    let names: Vec<[u8; 1]> = (0..TAGS).filter(|tag| mask >> tag & 1 == 1).map(|tag| [tag]).collect();
    (mask, store.tags(names.iter().map(|name| &name[..])).unwrap())
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..200, 2 => 200usize..20_000, 1 => 20_000usize..150_000]
}

fn ttl() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![2 => Just(None), 2 => (1u32..70).prop_map(Some), 1 => (70u32..100_000).prop_map(Some)]
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u8..24;
    prop_oneof![
        8 => (key.clone(), bytes(), any::<u8>(), ttl(), 0u8..5)
            .prop_map(|(key, bytes, seed, ttl, mode)| Op::Set { key, bytes, seed, ttl, mode }),
        2 => (key.clone(), bytes(), any::<u8>(), any::<bool>())
            .prop_map(|(key, bytes, seed, right)| Op::Cas { key, bytes, seed, right }),
        8 => key.clone().prop_map(|key| Op::Get { key }),
        2 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key.clone(), ttl()).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        2 => (key.clone(), any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(key, delta, down, initial)| Op::Arith { key, delta, down, initial }),
        1 => (key.clone(), any::<u64>()).prop_map(|(key, number)| Op::Number { key, number }),
        2 => (key.clone(), bytes(), any::<u8>(), any::<bool>())
            .prop_map(|(key, bytes, seed, commit)| Op::Reserve { key, bytes, seed, commit }),
        1 => key.prop_map(|key| Op::Invalidate { key }),
        1 => (1u32..90).prop_map(|seconds| Op::Pass { seconds }),
        1 => Just(Op::Maintain),
        1 => Just(Op::Flush),
        1 => (1..PREFIXES.len()).prop_map(|prefix| Op::ForgetPrefix { prefix }),
        1 => (0..TAGS).prop_map(|tag| Op::ForgetTag { tag }),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Closed), Just(End::Dropped), Just(End::Killed)]
}

fn value_of(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// What memcached takes for a number: what C's strtoull reads, up to the end or a blank.
fn number_in(value: &[u8]) -> Option<u64> {
    let text: String = value.iter().map(|&byte| char::from(byte)).collect();
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let text = text.trim_start_matches(blank);
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let behind = text[digits.len()..].chars().next();
    if behind.is_some_and(|c| !blank(c)) { None } else { digits.parse().ok() }
}

struct Checked {
    handles: Vec<Handle>,
    turn: usize,
    map: HashMap<Vec<u8>, Item>,
    now: u32,
    /// CAS uniques that were given: none is given for another item, or another value, ever.
    given: HashSet<u64>,
    /// The memory file, if there is one.
    file: Option<PathBuf>,
}

/// Large enough that nothing is evicted, small enough that segments are emptied and used again.
fn config_of_the_store() -> Config {
    Config { handles_hint: 2, ..Config::new(8 << 20) }
}

fn open(path: &Path, now: u32) -> (Vec<Handle>, nuthatch_store::Restored) {
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    // Another seed each time, as the server does.
    let config = Config { hash_seed: u64::from(now) * 77, ..config_of_the_store() };
    let (store, restored) = Store::open(config, MemoryFile { file, boot: Some(7) }, now, &mut |_| {}).unwrap();
    (vec![store.handle(), store.handle()], restored)
}

impl Checked {
    fn new(handles: Vec<Handle>, file: Option<PathBuf>) -> Checked {
        Checked { handles, turn: 0, map: HashMap::new(), now: 1000, given: HashSet::new(), file }
    }

    fn restart(&mut self, end: End) {
        let Some(path) = self.file.clone() else { return };
        let now = self.now;
        let store = self.handle().store().clone();
        match end {
            End::Closed => {
                self.handles.clear();
                store.close(now).unwrap();
            }
            End::Dropped => self.handles.clear(),
            End::Killed => {
                let mut long = self.handle().reserve(&key_of(3), 300_000, 0, NEVER, now).unwrap();
                long.write(&[1; 100_000]);
                let mut short = self.handle().reserve(&key_of(4), 3000, 0, now + 50, now).unwrap();
                short.write(&[2; 3000]);
                std::mem::forget((std::mem::take(&mut self.handles), long, short));
            }
        }
        drop(store);
        let restored;
        (self.handles, restored) = open(&path, now);
        let live = self.map.values().filter(|item| item.expiry > now).count() as u64;
        assert_eq!(restored.items, live, "{restored:?}");
        assert_eq!((restored.unfinished, restored.damaged, restored.evicted), (0, 0, 0), "{restored:?}");
        assert_eq!(restored.emptied, None);
        for key in 0..24u8 {
            self.step(Op::Get { key });
        }
    }

    fn handle(&mut self) -> &mut Handle {
        self.turn = (self.turn + 1) % self.handles.len();
        &mut self.handles[self.turn]
    }

    fn live(&self, key: &[u8]) -> Option<&Item> {
        self.map.get(key).filter(|item| item.expiry > self.now)
    }

    fn step(&mut self, op: Op) {
        let now = self.now;
        let expiry_of = |ttl: Option<u32>| ttl.map_or(NEVER, |ttl| now + ttl);
        match op {
            Op::Set { key, bytes, seed, ttl, mode } => {
                let key = key_of(key);
                let value = value_of(bytes, seed);
                let mode = [SetMode::Set, SetMode::Add, SetMode::Replace, SetMode::Append, SetMode::Prepend]
                    [usize::from(mode)];
                let options =
                    SetOptions { mode, flags: u32::from(seed), expiry: expiry_of(ttl), ..SetOptions::default() };
                let present = self.live(&key).cloned();
                let (mask, tags) = tags_of(self.handle().store(), seed);
                let outcome = self.handle().set_tagged(&key, &value, &options, &tags, now);
                let stored = match (mode, &present) {
                    (SetMode::Set, _) | (SetMode::Add, None) | (SetMode::Replace, Some(_)) => Some(Item {
                        value,
                        flags: options.flags,
                        expiry: options.expiry,
                        stale: false,
                        cas: None,
                        tags: mask,
                    }),
                    (SetMode::Append, Some(old)) => {
                        Some(Item { value: [&old.value[..], &value].concat(), stale: false, cas: None, ..old.clone() })
                    }
                    (SetMode::Prepend, Some(old)) => {
                        Some(Item { value: [&value[..], &old.value].concat(), stale: false, cas: None, ..old.clone() })
                    }
                    _ => None,
                };
                match stored {
                    Some(item) if item.value.len() + key.len() + 50 > 1 << 20 => {
                        let extends = matches!(mode, SetMode::Append | SetMode::Prepend);
                        assert_eq!(outcome, if extends { SetOutcome::NotStored } else { SetOutcome::TooLarge });
                    }
                    Some(item) => {
                        assert_eq!(outcome, SetOutcome::Stored { cas: 0 });
                        self.map.insert(key, item);
                    }
                    None => assert_eq!(outcome, SetOutcome::NotStored),
                }
            }
            Op::Cas { key, bytes, seed, right } => {
                let key = key_of(key);
                let Some(cas) = self.handle().get(&key, now).map(|hit| hit.cas()) else {
                    assert!(self.live(&key).is_none());
                    return;
                };
                let value = value_of(bytes, seed);
                let options = SetOptions { compare: Some(if right { cas } else { cas ^ 1 }), ..SetOptions::default() };
                let outcome = self.handle().set(&key, &value, &options, now);
                if right {
                    assert_eq!(outcome, SetOutcome::Stored { cas: 0 });
                    self.map.insert(key, Item { value, flags: 0, expiry: NEVER, stale: false, cas: None, tags: 0 });
                } else {
                    assert_eq!(outcome, SetOutcome::Exists);
                }
            }
            Op::Get { key } => {
                let key = key_of(key);
                let wanted = self.live(&key).cloned();
                let hit = self.handle().get(&key, now);
                match (&hit, &wanted) {
                    (None, None) => {}
                    (Some(hit), Some(wanted)) => {
                        assert_eq!(hit.key(), key);
                        assert_eq!(hit.value().collect::<Vec<_>>().concat(), wanted.value);
                        assert_eq!(hit.flags(), wanted.flags);
                        assert_eq!(hit.expiry(), wanted.expiry);
                        assert_eq!(hit.stale(), wanted.stale);
                        let cas = hit.cas();
                        if let Some(wanted) = wanted.cas {
                            assert_eq!(cas, wanted, "a CAS unique changes only when the item does");
                        }
                    }
                    (hit, wanted) => panic!("found {} where {} was due", hit.is_some(), wanted.is_some()),
                }
                let cas = hit.as_ref().map(|hit| hit.cas());
                drop(hit);
                if let (Some(cas), Some(Item { cas: None, .. })) = (cas, wanted) {
                    assert!(self.given.insert(cas), "a CAS unique is given twice");
                }
                if let Some(item) = self.map.get_mut(&key) {
                    item.cas = cas;
                }
            }
            Op::Delete { key } => {
                let key = key_of(key);
                let present = self.live(&key).is_some();
                let outcome = self.handle().delete(&key, &DeleteOptions::default(), now);
                assert_eq!(outcome, if present { DeleteOutcome::Deleted } else { DeleteOutcome::NotFound });
                self.map.remove(&key);
            }
            Op::Touch { key, ttl } => {
                let key = key_of(key);
                let expiry = expiry_of(ttl);
                let present = self.live(&key).is_some();
                assert_eq!(self.handle().touch(&key, expiry, now), present);
                if present {
                    self.map.get_mut(&key).unwrap().expiry = expiry;
                }
            }
            Op::Number { key, number } => {
                let key = key_of(key);
                let value = number.to_string().into_bytes();
                self.handle().set(&key, &value, &SetOptions::default(), now);
                self.map.insert(key, Item { value, flags: 0, expiry: NEVER, stale: false, cas: None, tags: 0 });
            }
            Op::Arith { key, delta, down, initial } => {
                let key = key_of(key);
                let options = ArithOptions {
                    decrement: down,
                    delta,
                    initial: initial.then_some((5, NEVER)),
                    ..ArithOptions::default()
                };
                let wanted = self.live(&key).cloned();
                let outcome = self.handle().arith(&key, &options, now);
                match wanted {
                    None if initial => {
                        assert!(matches!(outcome, ArithOutcome::Value { value: 5, created: true, .. }));
                        let item =
                            Item { value: b"5".to_vec(), flags: 0, expiry: NEVER, stale: false, cas: None, tags: 0 };
                        self.map.insert(key, item);
                    }
                    None => assert_eq!(outcome, ArithOutcome::NotFound),
                    Some(item) => {
                        let Some(number) = number_in(&item.value) else {
                            assert_eq!(outcome, ArithOutcome::NonNumeric);
                            return;
                        };
                        let result = if down { number.saturating_sub(delta) } else { number.wrapping_add(delta) };
                        assert!(
                            matches!(outcome, ArithOutcome::Value { value, .. } if value == result),
                            "{number} by {delta}: {outcome:?}"
                        );
                        let mut value = result.to_string().into_bytes();
                        value.resize(value.len().max(item.value.len()), b' ');
                        self.map.insert(key, Item { value, cas: None, ..item });
                    }
                }
            }
            Op::Reserve { key, bytes, seed, commit } => {
                let key = key_of(key);
                let value = value_of(bytes, seed);
                let (mask, tags) = tags_of(self.handle().store(), seed);
                let mut reservation = self.handle().reserve_tagged(&key, bytes, 3, NEVER, &tags, now).unwrap();
                let mut from = 0;
                while from < value.len() {
                    let upto = value.len().min(from + 1 + usize::from(seed) * 40);
                    from += reservation.write(&value[from..upto]);
                }
                if commit {
                    let outcome = self.handle().commit(reservation, &SetOptions::default(), now);
                    assert_eq!(outcome, SetOutcome::Stored { cas: 0 });
                    self.map.insert(key, Item { value, flags: 3, expiry: NEVER, stale: false, cas: None, tags: mask });
                }
            }
            Op::Invalidate { key } => {
                let key = key_of(key);
                let present = self.live(&key).is_some();
                let options = DeleteOptions { invalidate: true, ..DeleteOptions::default() };
                let outcome = self.handle().delete(&key, &options, now);
                assert_eq!(outcome, if present { DeleteOutcome::Deleted } else { DeleteOutcome::NotFound });
                if present {
                    let item = self.map.get_mut(&key).unwrap();
                    item.stale = true;
                    item.cas = None;
                }
            }
            Op::Pass { seconds } => self.now += seconds,
            Op::Maintain => self.handle().maintain(now),
            Op::Restart { end } => self.restart(end),
            Op::Flush => {
                self.handle().store().flush(now);
                self.map.clear();
            }
            Op::ForgetPrefix { prefix } => {
                let prefix = PREFIXES[prefix].as_bytes();
                self.handle().store().forget_prefix(prefix).unwrap();
                self.map.retain(|key, _| !key.starts_with(prefix));
            }
            Op::ForgetTag { tag } => {
                self.handle().store().forget_tag(&[tag]).unwrap();
                self.map.retain(|_, item| item.tags >> tag & 1 == 0);
            }
        }
    }

    fn finish(&mut self) {
        let now = self.now;
        self.handle().maintain(now);
        for key in 0..24u8 {
            self.step(Op::Get { key });
        }
        // Everything visible is in the map; what is counted and not visible has expired a little while ago.
        let stats = self.handle().store().stats();
        assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
        let live = self.map.values().filter(|item| item.expiry > now).count() as u64;
        assert!(stats.items >= live, "{} counted, {live} live", stats.items);
        assert_eq!(stats.evictions, 0, "everything fits, so nothing is evicted");
        // What was forgotten and not given back yet is found here as well.
        for key in 0..24u8 {
            self.handle().delete(&key_of(key), &DeleteOptions::default(), now);
        }
        assert_eq!(self.handle().store().stats().items, 0);
        assert_eq!(self.handle().store().stats().bytes, 0);
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(if cfg!(miri) { 2 } else { 192 }),
        failure_persistence: None,
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_store_answers_as_a_plain_map_would(ops in prop::collection::vec(op(), 1..if cfg!(miri) { 30 } else { 400 })) {
        let store = Store::new(config_of_the_store()).unwrap();
        let mut checked = Checked::new(vec![store.handle(), store.handle()], None);
        drop(store);
        for op in ops {
            checked.step(op);
        }
        checked.finish();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files; see `restore_tests`")]
    fn and_goes_on_as_one_over_restarts(
        ops in prop::collection::vec(prop_oneof![30 => op(), 1 => end().prop_map(|end| Op::Restart { end })], 1..400)
    ) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("memory");
        let mut checked = Checked::new(open(&path, 1000).0, Some(path));
        for op in ops {
            checked.step(op);
        }
        checked.restart(End::Closed);
        checked.finish();
    }
}
