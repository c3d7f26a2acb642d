//! The client for a fleet of memcached servers: one value that answers for all of them.
//!
//! ```
//! use nuthatch_fleet::client::{Client, Config, Modulo, ServerAddr, Servers, Want};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), nuthatch_fleet::client::Error> {
//! # let running: Vec<_> = (0..2).map(|_| nuthatch_testkit::Launch::real_memcached().start()).collect();
//! # let port = |server: usize| running[server].port();
//! let list = vec![ServerAddr::tcp("127.0.0.1", port(0)), ServerAddr::tcp("127.0.0.1", port(1))];
//! let fleet = Client::new(Config::new(Servers::new(list, Modulo::of)))?;
//! fleet.set(b"bird", b"nuthatch", 0, 60).await?;
//! let item = fleet.get(b"bird", Want::VALUE).await?.expect("it was just stored");
//! assert_eq!(item.value, b"nuthatch"[..]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is cheap to clone and used by as many tasks as there are. Their requests share one connection to each
//! server, are sent together, and are answered in turn. What is never true: a call outlives its time limit by more than a
//! tick; a value belongs to another key; a slow server holds up the keys of others; a connection is used again after an
//! answer that was none.
//!
//! | module | owns |
//! |---|---|
//! | `config`, `request`, `error`, `counters` | what is said to a client and by it |
//! | `ops` | the calls, as programs make them |
//! | `inner` | what clones share: the list of servers, which may change, and the time |
//! | `single` | a call at the server of its key: which, second tries, the keys of several servers |
//! | `routed` | several copies, other fleets: what stands between a call and one server, where anything does |
//! | `server` | a server's links, a list of servers |
//! | `health` | whether a server is asked |
//! | `link`, `driver` | one connection: who waits on it, and its socket |
//! | `wire`, `keys` | the protocols' bytes, and whether an answer belongs to its request |

mod clock;
mod config;
mod counters;
mod driver;
mod error;
mod health;
mod inner;
mod keys;
mod link;
mod ops;
mod place;
mod request;
mod routed;
mod server;
mod single;
mod wire;

#[cfg(any(test, feature = "fuzz"))]
pub use wire::fuzz;

pub use crate::Protocol;
pub use config::{Config, OnDown, Place, ReadFrom, Role, ServerAddr, Servers, Shadow, Source, Ticks};
pub use counters::{LATENCY_BUCKETS, ServerStats};
pub use error::Error;
pub use health::ServerState;
pub use ops::Client;
pub use place::Modulo;
pub use request::{
    Arith, Forget, Found, Item, Marks, MetaAnswer, MetaCode, MetaRequest, Receiver, Store, Ttl, Verb, Want, Word,
    Write, Written,
};
