//! What forgetting takes, and what it costs others: `cargo bench -p nuthatch-store --bench forget`.
//!
//! For a thousand and for a million items of one prefix, beside as many of another: how long one call takes; what a get
//! of an item of the other prefix takes before anything was forgotten, while the watermark is in the table (the item is older:
//! its prefixes are looked up), and after the sweep; what a set takes then, of the forgotten prefix and of another; and how
//! many bytes come back in how many calls of `maintain`.

use std::{hint::black_box, time::Instant};

use nuthatch_store::{Config, Handle, SetOptions, Store};

fn main() {
    for count in [1_000u64, 1_000_000] {
        let store = Store::new(Config::new(1 << 30)).unwrap();
        let mut handle = store.handle();
        let names = |prefix: &'static str| move |n: u64| format!("{prefix}:node:{n}");
        let (gone, kept) = (names("page"), names("menu"));
        for n in 0..count {
            for name in [gone(n), kept(n)] {
                handle.set(name.as_bytes(), &[7; 100], &SetOptions::default(), 1);
            }
        }
        println!("{count} items of 100 bytes to be forgotten, {count} to be kept");
        let kept_names: Vec<String> = (0..200_000).map(|n| kept(n * 7919 % count)).collect();
        let get = |handle: &mut Handle, what: &str| {
            let begin = Instant::now();
            let hits = kept_names.iter().filter(|name| black_box(handle.get(name.as_bytes(), 1)).is_some()).count();
            assert_eq!(hits, kept_names.len());
            println!("  get, {what}: {:.0} ns", begin.elapsed().as_nanos() as f64 / hits as f64);
        };
        let set = |handle: &mut Handle, prefix: &str, what: &str| {
            let keys: Vec<String> = (0..200_000).map(|n| format!("{prefix}:new:{}", n % 20_000)).collect();
            let begin = Instant::now();
            for key in &keys {
                handle.set(key.as_bytes(), &[7; 100], &SetOptions::default(), 1);
            }
            println!("  set, {what}: {:.0} ns", begin.elapsed().as_nanos() as f64 / keys.len() as f64);
        };
        get(&mut handle, "nothing forgotten");
        set(&mut handle, "list", "nothing forgotten");
        let bytes = store.stats().bytes;
        let begin = Instant::now();
        store.forget_prefix(b"page:").unwrap();
        println!("  forget: {} ns, with what the first one touches", begin.elapsed().as_nanos());
        let begin = Instant::now();
        for _ in 0..1000 {
            black_box(store.forget_prefix(b"page:").unwrap());
        }
        println!("  forget again, mean of 1000: {} ns", begin.elapsed().as_nanos() / 1000);
        assert!(handle.get(gone(1).as_bytes(), 1).is_none());
        get(&mut handle, "the watermark in the table");
        set(&mut handle, "list", "of another prefix meanwhile");
        set(&mut handle, "page", "of this prefix meanwhile");
        let mut calls = 0;
        let begin = Instant::now();
        while store.stats().forget_marks > 0 {
            calls += 1;
            // Segments that are open are sealed in two minutes.
            handle.maintain(1 + calls * 10);
        }
        let (stats, seconds) = (store.stats(), begin.elapsed().as_secs_f64());
        println!(
            "  swept in {calls} calls of {:.1} ms each: {} items, {} KiB of {} given back",
            seconds * 1e3 / f64::from(calls),
            stats.forgotten,
            (bytes - stats.bytes.min(bytes)) >> 10,
            bytes >> 10
        );
        get(&mut handle, "after the sweep");
    }
}
