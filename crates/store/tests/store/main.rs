//! What the store promises those who use it. `miri.rs` is a program of its own because it is run under Miri, which has no time for
//! the rest.

mod common;

mod adaptation;
mod basics;
mod born_expired;
mod forget;
#[cfg(all(target_os = "linux", not(miri)))]
mod killed;
mod large_values;
mod model;
#[cfg(all(target_os = "linux", not(miri)))]
mod restart;
mod stress;
