//! The server: workers, listeners, command execution, pools, configuration, counters.
//!
//! [`Server::start`] takes [`settings::Settings`] and returns a [`Running`] server. The program uses it, and so can any
//! test. A request flows one way: bytes, [`conn`](self) session, codec, exec, store, codec, bytes.
#![forbid(unsafe_code)]

mod accept;
mod auth;
pub mod backend;
mod backends;
mod clock;
mod conn;
mod control;
pub mod counters;
mod crew;
mod doors;
mod exec;
pub mod fuzz;
mod http;
mod listen;
mod log;
pub mod loopback;
mod memory_file;
mod per_worker;
mod pool;
mod prefix;
mod reload;
mod server;
pub mod settings;
mod shared;
mod tier;
mod tls;
mod udp;
mod watch;
mod worker;

pub use auth::CredentialsError;
pub use http::sites::AccessLogError;
pub use listen::BindError;
pub use memory_file::MemoryFileError;
pub use server::{Prepared, Reloaded, Running, Server, StartError};
pub use tls::TlsError;
