//! Where a key lives: pure functions of the list of servers, the distribution, the hash and the key.
//!
//! Nothing here opens a connection, looks up a name or knows the time.

mod distribution;
mod hash;
pub(crate) mod spec;

pub use distribution::Distribution;
pub use hash::Hash;
pub use spec::ServerSpec;
