//! How long a start takes that finds a memory file full: `cargo bench -p nuthatch-store --bench restore [MEGABYTES]`.
//!
//! The file lies in `/dev/shm`, so that what is measured is the reading and not a disk.

use std::{fs::File, time::Instant};

use nuthatch_store::{Config, MemoryFile, SetOptions, Store};

fn main() {
    let megabytes: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1024);
    let path = std::path::PathBuf::from(format!("/dev/shm/nuthatch-restore-{}", std::process::id()));
    for value_bytes in [40, 100, 1000, 10_000] {
        let open = || {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
            Store::open(Config::new(megabytes << 20), MemoryFile { file, boot: None }, 1, &mut |_| {}).unwrap()
        };
        let (store, _) = open();
        let mut handle = store.handle();
        let value = vec![7; value_bytes];
        let mut stored = 0u64;
        while store.stats().evictions == 0 {
            for _ in 0..1000 {
                stored += 1;
                handle.set(format!("key-{stored}").as_bytes(), &value, &SetOptions::default(), 1);
            }
        }
        drop(handle);
        store.close(1).unwrap();
        let items = store.stats().items;
        drop(store);
        let start = Instant::now();
        let (store, restored) = open();
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(restored.items, items);
        println!(
            "values of {value_bytes:5} bytes: {items:9} items, {:5} MiB, found in {seconds:.2} s: {:.0} ns an item",
            restored.bytes >> 20,
            seconds * 1e9 / items as f64
        );
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}
