//! Pools with something behind them: a backend that does what the test says, fleets of memcached servers, SQL tables.

#[path = "../common/mod.rs"]
mod common;

mod backed;
mod faults;
mod fleet;
mod forget;
mod parts;
mod proxied;
mod rows;

use common::{Client, eventually};

/// What the pool `tiered` counts.
#[track_caller]
fn count(client: &mut Client, counter: &str) -> u64 {
    client.stat("stats pools", &format!("tiered:{counter}")).parse().expect("a number")
}

/// Waits until the pool `tiered` is told what others change.
#[track_caller]
fn follow(client: &mut Client) {
    eventually(|| client.stat("stats pools", "tiered:tier_stream").starts_with("following"));
}
