//! Any bytes over a whole connection; the connection next to it must not notice.
#![no_main]

use std::sync::{LazyLock, Mutex};

use nuthatch_server::Running;
use nuthatch_testkit::hostile::Victim;

static VICTIM: LazyLock<Mutex<(Running, Victim)>> = LazyLock::new(|| {
    let (server, address) = nuthatch_fuzz::start();
    let victim = Victim::new(&address);
    Mutex::new((server, victim))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| VICTIM.lock().expect("a panic ends the fuzzer").1.endure(data));
