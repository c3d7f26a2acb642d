//! The simplest place for keys, for fleets whose placement nobody else has to agree with.

use std::sync::Arc;

use super::config::{Place, ServerAddr, Servers};

impl Servers {
    /// A list, and where keys live in a list of that length.
    pub fn new(list: Vec<ServerAddr>, place: impl FnOnce(usize) -> Arc<dyn Place>) -> Servers {
        let place = place(list.len());
        Servers { list, place }
    }
}

/// A hash of the key modulo the number of servers. Every change of the list moves nearly all keys.
#[derive(Clone, Copy, Debug)]
pub struct Modulo {
    servers: usize,
}

impl Modulo {
    /// Keys among `servers` servers.
    #[must_use]
    pub fn of(servers: usize) -> Arc<dyn Place> {
        Arc::new(Modulo { servers })
    }
}

impl Place for Modulo {
    fn first(&self, key: &[u8]) -> usize {
        let hash = key.iter().fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash as usize % self.servers.max(1)
    }

    fn order(&self, key: &[u8], visit: &mut dyn FnMut(usize) -> bool) {
        let first = self.first(key);
        for step in 0..self.servers {
            if !visit((first + step) % self.servers) {
                return;
            }
        }
    }
}
