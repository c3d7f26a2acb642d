//! A process that writes with several threads is killed at any moment, again and again; what the next one finds in the
//! memory file is for every key the last value that was answered, the one that was on its way, or for as many keys as
//! there were threads nothing: never a torn, phantom or outdated one.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use memmap2::MmapRaw;
use nuthatch_store::{
    Config, DeleteOptions, Emptied, Handle, MemoryFile, NEVER, Restored, SetOptions, SetOutcome, Store,
};

const NOW: u32 = 1_000_000;
const THREADS: u64 = 3;
/// Prefixes of keys. All of a group are one thread's keys.
const GROUPS: u64 = 20 * THREADS;
const DIRECTORY: &str = "NUTHATCH_KILLED_DIRECTORY";
const MEMORY: &str = "NUTHATCH_KILLED_MEMORY";

/// For each key the number of the last operation that was begun and of the last that was answered, in memory that
/// outlives the process as the store's does.
struct Journal {
    map: MmapRaw,
    keys: u64,
}

impl Journal {
    fn open(path: &Path, keys: u64) -> Journal {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(keys * 16).unwrap();
        Journal { map: MmapRaw::map_raw(&file).unwrap(), keys }
    }

    fn number(&self, at: u64) -> &AtomicU64 {
        assert!(at < 2 * self.keys);
        // SAFETY: inside the mapping (above), aligned, and used as atomics only.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(at as usize)) }
    }

    fn begun(&self, key: u64) -> &AtomicU64 {
        self.number(2 * key)
    }

    fn answered(&self, key: u64) -> &AtomicU64 {
        self.number(2 * key + 1)
    }

    fn sum(&self) -> u64 {
        (0..self.keys).map(|key| self.answered(key).load(Ordering::Relaxed)).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Delete,
    Touch,
    Set,
}

fn kind(operation: u64) -> Kind {
    match operation % 8 {
        0 => Kind::Delete,
        2 | 4 => Kind::Touch,
        _ => Kind::Set,
    }
}

/// The operation whose value a key has after `operation`; `None`: it has none.
fn value_after(mut operation: u64) -> Option<u64> {
    loop {
        match kind(operation) {
            Kind::Delete => return None,
            Kind::Set => return Some(operation),
            Kind::Touch => operation -= 1,
        }
    }
}

fn mixed(a: u64, b: u64) -> u64 {
    let mixed = (a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b).wrapping_mul(0xD1B5_4A32_D192_ED03);
    mixed ^ mixed >> 29
}

fn value_of(key: u64, operation: u64) -> Vec<u8> {
    let dice = mixed(key, operation);
    let bytes = match dice % 32 {
        0 => 20_000 + dice / 32 % 60_000,
        1..8 => dice / 32 % 4000,
        _ => dice / 32 % 200,
    };
    (0..bytes).map(|n| mixed(dice, n / 8).to_le_bytes()[n as usize % 8]).collect()
}

fn name_of(key: u64) -> Vec<u8> {
    format!("group-{}:key-{key}", key % GROUPS).into_bytes()
}

fn open(directory: &Path, memory_bytes: usize) -> (Arc<Store>, Restored) {
    let path = directory.join("memory");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    let config = Config { item_bytes_max: 200_000, ..Config::new(memory_bytes) };
    Store::open(config, MemoryFile { file, boot: Some(1) }, NOW, &mut |_| {}).unwrap()
}

/// Not a claim: what is killed. It runs only when told where.
#[test]
fn the_process_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let memory_bytes: usize = std::env::var(MEMORY).unwrap().parse().unwrap();
    let directory = Path::new(&directory);
    let journal = Journal::open(&directory.join("journal"), keys(memory_bytes));
    let (store, _) = open(directory, memory_bytes);
    println!("\nready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            // Two handles, so that a newer value often lies in an older segment than the one it replaces.
            let mut handles = [store.handle(), store.handle()];
            let journal = &journal;
            scope.spawn(move || {
                for round in 0.. {
                    let dice = mixed(round, thread);
                    let key = dice % (journal.keys / THREADS) * THREADS + thread;
                    let handle = &mut handles[(dice >> 40) as usize % 2];
                    if dice >> 44 & 255 == 0 {
                        forget(journal, handle, key % GROUPS);
                    } else {
                        operate(journal, handle, key);
                    }
                }
            });
        }
        let mut handle = store.handle();
        scope.spawn(move || {
            loop {
                handle.maintain(NOW);
                handle.get(&name_of(0), NOW);
            }
        });
    });
}

fn operate(journal: &Journal, handle: &mut Handle, key: u64) {
    let operation = journal.answered(key).load(Ordering::Relaxed) + 1;
    journal.begun(key).store(operation, Ordering::Release);
    let name = name_of(key);
    match kind(operation) {
        Kind::Delete => drop(handle.delete(&name, &DeleteOptions::default(), NOW)),
        Kind::Touch => drop(handle.touch(&name, NOW + 100 + operation as u32 % 1000, NOW)),
        Kind::Set if operation.is_multiple_of(3) => {
            // In pieces.
            let value = value_of(key, operation);
            let mut reservation = handle.reserve(&name, value.len(), 0, NEVER, NOW).unwrap();
            reservation.write(&value[..value.len() / 2]);
            reservation.write(&value[value.len() / 2..]);
            let done = handle.commit(reservation, &SetOptions::default(), NOW);
            assert_eq!(done, SetOutcome::Stored { cas: 0 });
        }
        Kind::Set => {
            let done = handle.set(&name, &value_of(key, operation), &SetOptions::default(), NOW);
            assert_eq!(done, SetOutcome::Stored { cas: 0 });
        }
    }
    journal.answered(key).store(operation, Ordering::Release);
}

/// To each key of the group it is what a deletion would be.
fn forget(journal: &Journal, handle: &Handle, group: u64) {
    let keys = || (group..journal.keys).step_by(GROUPS as usize);
    let deletion = |key| (journal.answered(key).load(Ordering::Relaxed) + 1).next_multiple_of(8);
    keys().for_each(|key| journal.begun(key).store(deletion(key), Ordering::Release));
    handle.store().forget_prefix(format!("group-{group}:").as_bytes()).unwrap();
    keys().for_each(|key| journal.answered(key).store(deletion(key), Ordering::Release));
}

fn keys(memory_bytes: usize) -> u64 {
    // About two kilobytes each: the larger store holds all of them, the smaller one a third.
    if memory_bytes > 8 << 20 { 3000 } else { 9000 }
}

fn kill_and_check(memory_bytes: usize, rounds: u64) {
    let evicts = memory_bytes <= 8 << 20;
    let keys = keys(memory_bytes);
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let directory = directory.path();
    let journal = Journal::open(&directory.join("journal"), keys);
    let mut found_in_flight = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_process_that_is_killed", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(MEMORY, memory_bytes.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ready = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "ready");
        assert!(ready, "the process ended before it began");
        let until = journal.sum() + 500 + mixed(round, memory_bytes as u64) % 40_000;
        while journal.sum() < until {
            assert!(child.try_wait().unwrap().is_none(), "the process ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let (store, restored) = open(directory, memory_bytes);
        assert_eq!((restored.damaged, restored.emptied), (0, None::<Emptied>), "{restored:?}");
        assert!(restored.unfinished <= THREADS + 1, "{restored:?}");
        let mut handle = store.handle();
        let mut lost = 0;
        let mut in_flight = 0;
        for key in 0..keys {
            let (begun, answered) =
                (journal.begun(key).load(Ordering::Relaxed), journal.answered(key).load(Ordering::Relaxed));
            // One more, or up to the next deletion, when its group was being forgotten.
            assert!(begun == answered || begun == answered + 1 || begun == (answered + 1).next_multiple_of(8));
            in_flight += u64::from(begun != answered);
            let found = handle.get(&name_of(key), NOW).map(|hit| hit.value().collect::<Vec<_>>().concat());
            let possible = [value_after(answered), value_after(begun)];
            match &found {
                Some(value) => {
                    let known = possible.iter().flatten().any(|&operation| *value == value_of(key, operation));
                    assert!(known, "key {key}, begun {begun}, answered {answered}: {} bytes of another", value.len());
                }
                None if possible.contains(&None) || evicts => {}
                None => lost += 1,
            }
            // From here on it is known what there is: nothing.
            handle.delete(&name_of(key), &DeleteOptions::default(), NOW);
            let deleted = (begun + 1).next_multiple_of(8);
            journal.begun(key).store(deleted, Ordering::Relaxed);
            journal.answered(key).store(deleted, Ordering::Relaxed);
            // And half of the keys begin with a value, so that what is killed next finds some.
            if mixed(key, round).is_multiple_of(2) {
                operate(&journal, &mut handle, key);
            }
        }
        assert!(lost <= THREADS + 1, "{lost} keys lost: {restored:?}");
        assert!(in_flight <= THREADS * (keys / GROUPS + 1), "{in_flight}");
        found_in_flight += in_flight;
        let stats = store.stats();
        assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
    }
    assert!(found_in_flight > 0, "no kill hit an operation");
}

#[test]
fn what_was_answered_survives_a_kill_and_nothing_else_appears() {
    kill_and_check(32 << 20, 12);
}

#[test]
fn nothing_outdated_appears_where_segments_are_used_again() {
    kill_and_check(6 << 20, 12);
}
