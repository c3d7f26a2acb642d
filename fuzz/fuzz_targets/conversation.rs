//! Bytes that choose well-formed commands of three protocols over several connections; every answer must be the model's.
#![no_main]

use std::sync::LazyLock;

use nuthatch_server::Running;
use nuthatch_testkit::Address;
use nuthatch_testkit::conversation::{Scope, fuzz};

static SERVER: LazyLock<(Running, Address)> = LazyLock::new(nuthatch_fuzz::start);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz(&SERVER.1, data, Scope { moves_clock: true, ..Scope::of_ours(400) });
});
