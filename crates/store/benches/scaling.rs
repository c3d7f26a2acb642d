//! What a second thread adds: one thread's rate of sets and of gets, then two threads' together, on two cores.
//!
//! `cargo bench -p nuthatch-store --bench scaling` prints the table; with `--check` it fails below the bars of 1.8.
//! The last column is how long a cache line takes from one core to the other and tells machines apart: writers of
//! one store hand over two or three lines an operation (a shard's lock, a bucket, the count of a segment's deaths), so where two
//! cores share no cache, as a virtual machine's may not for a while, that is what two of them wait for.
//! Rounds alternate between one and two threads and the medians are compared, because machines drift.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use nuthatch_store::{Config, SetOptions, Store};

const KEYS: u64 = 200_000;
const ROUNDS: usize = 9;

struct Zipf {
    /// Cumulative probabilities, for a search by halves.
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(keys: u64) -> Zipf {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|c| *c /= sum);
        Zipf { cumulative }
    }

    fn key(&self, random: u64) -> u64 {
        let at = (random >> 11) as f64 / (1u64 << 53) as f64;
        self.cumulative.partition_point(|&c| c < at) as u64
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Set,
    Get,
}

/// Keeps this thread on one core: some kernels put both on the same one.
fn stay_on(core: usize) {
    let mut cores = CpuSet::new();
    let set = cores.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores));
    set.expect("a second core");
}

/// Operations a second of `threads` threads together, each with its own list of keys.
fn rate(store: &Arc<Store>, lists: &[Vec<[u8; 16]>], threads: usize, what: What) -> f64 {
    let barrier = Arc::new(Barrier::new(threads + 1));
    let value = [b'v'; 100];
    std::thread::scope(|scope| {
        let workers: Vec<_> = lists[..threads]
            .iter()
            .enumerate()
            .map(|(core, keys)| {
                let (store, barrier) = (Arc::clone(store), Arc::clone(&barrier));
                scope.spawn(move || {
                    stay_on(core);
                    let mut handle = store.handle();
                    let options = SetOptions::default();
                    barrier.wait();
                    let started = Instant::now();
                    let mut bytes = 0;
                    for key in keys {
                        match what {
                            What::Set => {
                                handle.set(key, &value, &options, 1);
                            }
                            What::Get => {
                                if let Some(hit) = handle.get(key, 1) {
                                    bytes += hit.value_whole().map_or(0, |value| value[99] as usize);
                                }
                            }
                        }
                    }
                    std::hint::black_box(bytes);
                    keys.len() as f64 / started.elapsed().as_secs_f64()
                })
            })
            .collect();
        barrier.wait();
        workers.into_iter().map(|worker| worker.join().expect("a thread of the benchmark")).sum()
    })
}

/// Nanoseconds until a cache line that one core wrote is there for the other, and back, by half.
fn handover_nanoseconds() -> f64 {
    const TURNS: u64 = 100_000;
    let turn = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for core in 0..2u64 {
            let turn = &turn;
            scope.spawn(move || {
                stay_on(core as usize);
                for at in (core..TURNS).step_by(2) {
                    while turn.load(Ordering::Acquire) != at {
                        std::hint::spin_loop();
                    }
                    turn.store(at + 1, Ordering::Release);
                }
            });
        }
    });
    started.elapsed().as_nanos() as f64 / TURNS as f64
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let check = std::env::args().any(|argument| argument == "--check");
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, operations) = if quick { (3, 20_000) } else { (ROUNDS, 2_000_000) };
    let zipf = Zipf::new(KEYS);
    let key = |thread: u64, key: u64| {
        let mut bytes = *b"key:............";
        bytes[4..12].copy_from_slice(&key.to_be_bytes());
        bytes[12] = thread as u8;
        bytes
    };
    let mut short = false;
    println!(
        "| operation | keys | one thread, Mop/s | two threads, Mop/s | ratio | handover, ns |\n|---|---|---|---|---|---|"
    );
    for what in [What::Set, What::Get] {
        for keys in ["disjoint", "zipf"] {
            let lists: Vec<Vec<_>> = (0..2u64)
                .map(|thread| {
                    let mut state = 0x9E37_79B9 + thread;
                    (0..operations)
                        .map(|_| {
                            let random = random(&mut state);
                            if keys == "zipf" { key(9, zipf.key(random)) } else { key(thread, random % KEYS) }
                        })
                        .collect()
                })
                .collect();
            let store = Store::new(Config { handles_hint: 2, ..Config::new(256 << 20) }).expect("256 MiB");
            let mut handle = store.handle();
            for list in &lists {
                for key in list {
                    handle.set(key, &[b'v'; 100], &SetOptions::default(), 1);
                }
            }
            let (mut one, mut two, mut handovers) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                one.push(rate(&store, &lists, 1, what));
                two.push(rate(&store, &lists, 2, what));
                handovers.push(handover_nanoseconds());
            }
            let (one, two, handover) = (median(one), median(two), median(handovers));
            println!("| {what:?} | {keys} | {:.2} | {:.2} | {:.2} | {handover:.0} |", one / 1e6, two / 1e6, two / one);
            short |= two / one < 1.8;
        }
    }
    if check && short {
        eprintln!("a second thread adds less than 0.8 of the first");
        std::process::exit(1);
    }
}
