//! Pools with something behind them: a backend that does what the test says, fleets of memcached servers, SQL tables.

#[path = "../common/mod.rs"]
mod common;
mod scripted;

mod backed;
mod faults;
mod fleet;
mod forget;
mod parts;
mod proxied;
mod rows;
