//! What a lookup takes: `cargo bench -p nuthatch-fleet`. Prints nanoseconds a key for each distribution, over ten servers and over a
//! hundred, with keys of 24 bytes that are all in the processor's cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nuthatch_fleet::{Distribution, Hash, Placement, PlacementSettings, ServerSpec};

fn main() {
    let keys: Vec<Vec<u8>> = (0..1024).map(|n| format!("user:{:012}:profile", n * 7919).into_bytes()).collect();
    println!("{:18} {:14} {:>10} {:>10}   ns a key", "distribution", "hash", "10", "100");
    let chosen =
        [(Distribution::Ketama, Hash::Md5), (Distribution::Ketama, Hash::Murmur3), (Distribution::Modula, Hash::Crc)];
    let rows = Distribution::ALL.into_iter().map(|distribution| (distribution, None));
    for (distribution, hash) in rows.chain(chosen.map(|(distribution, hash)| (distribution, Some(hash)))) {
        let settings = PlacementSettings { distribution, hash, ..PlacementSettings::default() };
        let times = [10, 100].map(|count| {
            let servers: Vec<ServerSpec> = (0..count).map(|n| ServerSpec::new(&format!("10.0.0.{n}"), 11211)).collect();
            let placement = Placement::new(&settings, &servers).expect("the list is right");
            per_key(&placement, &keys)
        });
        let hash = settings.key_hash().map_or("its own", Hash::name);
        println!("{:18} {hash:14} {:>10.1} {:>10.1}", distribution.name(), times[0], times[1]);
    }
}

/// The least of a few rounds, in nanoseconds.
fn per_key(placement: &Placement, keys: &[Vec<u8>]) -> f64 {
    let mut least = f64::INFINITY;
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        let began = Instant::now();
        for key in keys {
            black_box(placement.server_of(black_box(key)));
        }
        least = least.min(began.elapsed().as_nanos() as f64 / keys.len() as f64);
    }
    least
}
