//! Reloads: what changes, for whom, and that nobody who is connected notices.

mod listeners;
mod pools;
mod process;
mod storm;

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use nuthatch_server::settings::{Address, ListenerSettings, PoolSettings, RouteSettings, Settings};
use nuthatch_server::{Reloaded, Running};

use crate::common::listener;

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("nuthatch-reload-{}-{name}", std::process::id()))
}

fn at(address: Address, pool: usize) -> ListenerSettings {
    ListenerSettings { address, ..listener(pool) }
}

fn tcp(address: SocketAddr, pool: usize) -> ListenerSettings {
    at(Address::Tcp(address), pool)
}

fn pools(names: &[&str]) -> Vec<PoolSettings> {
    names.iter().map(|name| PoolSettings { memory_bytes: 8 << 20, ..PoolSettings::named(name) }).collect()
}

fn route(prefix: &str, pool: usize) -> RouteSettings {
    RouteSettings { prefix: prefix.as_bytes().to_vec(), pool }
}

/// A reload that is known to be good.
#[track_caller]
fn reload(server: &Running, settings: &Settings) -> Reloaded {
    server.reload(settings).expect("a good reload")
}

fn nothing() -> Reloaded {
    Reloaded { changed: vec![], waiting: vec![], failed: vec![] }
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}
