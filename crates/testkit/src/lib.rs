//! Spawned servers, raw connections, transcripts and a reference model: what the workspace's tests share.
//!
//! Used by tests, and [`database`] by `nuthatch bench` too; no server has any of it. Everything speaks to a real server over a real socket, so each
//! test can also be run against another memcached: `NUTHATCH_TEST_SERVER=/usr/bin/memcached cargo test -p nuthatch-testkit`.
//!
//! ```no_run
//! use nuthatch_testkit::Launch;
//!
//! let server = Launch::memcached().args(["-I", "2m"]).start();
//! let mut client = server.connect();
//! client.send_line("set bird 0 0 8");
//! client.send_line("nuthatch");
//! client.expect("STORED");
//! ```
#![forbid(unsafe_code)]

pub mod conversation;
pub mod database;
pub mod dice;
pub mod etcd;
pub mod faulty;
pub mod galera;
pub mod hostile;
pub mod model;
pub mod name_server;
pub mod origin;
pub mod ports;
pub mod program;
pub mod spawn;
pub mod transcript;
pub mod wire;

pub use etcd::Etcd;
pub use faulty::{Fault, Faulty};
pub use name_server::NameServer;
pub use spawn::{Address, Exit, Launch, Signal, Spawned};
pub use transcript::Transcript;
pub use wire::Conn;
