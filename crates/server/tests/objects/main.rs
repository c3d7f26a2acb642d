//! memcached's protocols, commands, counters and listeners, on servers that keep their items themselves. One program for all of
//! them, so that it is built once; what a server holds of its own is asked of that server, never of this process.

#[path = "../common/mod.rs"]
mod common;
mod neighbour;

mod binary;
mod commands;
mod conformance;
mod hostile;
mod lifecycle;
mod pools;
mod reload;
mod restart;
mod stats;
mod text;
mod tls;
mod watch;
