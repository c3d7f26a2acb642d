//! Ports for programs that cannot choose one themselves and say which.
//!
//! A port that the system gives to whoever asks for any may be given to somebody else before the program has it: to a
//! listener of another test, or to a connection. These are below those, and a process gives none twice.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Below the ports that systems give to listeners and connections (Linux: 32768 and above).
const PORTS: Range<u16> = 10_000..32_000;

static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port of 127.0.0.1 on which nobody listens.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many in a row.
///
/// # Panics
/// When there are none.
pub fn free_ports(in_a_row: u16) -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    // Other processes look as well.
    let start = PORTS.start + (RandomState::new().hash_one(0) % (PORTS.len() as u64 / 2)) as u16;
    for first in (start..PORTS.end - in_a_row).step_by(usize::from(in_a_row)) {
        let ports = first..first + in_a_row;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if ports.clone().all(|port| !given.contains(&port) && is_free(port)) {
            given.extend(ports);
            return first;
        }
    }
    panic!("no {in_a_row} ports in a row are free above {start}");
}
