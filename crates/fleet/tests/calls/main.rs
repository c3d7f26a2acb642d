//! What a client's calls mean and where they go, against real servers. What is measured while servers misbehave is in `faults.rs`.

#[path = "../real/mod.rs"]
mod real;

mod aside;
mod ask;
mod membership;
mod operations;
mod routes;
