//! Placements as a client uses them: those of [`crate::placement`], and the simplest, for fleets that nobody else asks.

use std::sync::Arc;

use super::config::{Config, OnDown, Place, ServerAddr, Servers};
use crate::placement::{Placement, PlacementError, Set};
use crate::{FleetSettings, OnFailure, ServerSpec};

impl Place for Placement {
    fn first(&self, key: &[u8]) -> usize {
        self.server_of(key)
    }

    fn order(&self, key: &[u8], visit: &mut dyn FnMut(usize) -> bool) {
        for server in self.candidates(key) {
            if !visit(server) {
                return;
            }
        }
    }

    fn without(&self, out: &Set) -> Option<Arc<dyn Place>> {
        Some(Arc::new(Placement::without(self, out)))
    }
}

impl From<&ServerSpec> for ServerAddr {
    fn from(server: &ServerSpec) -> ServerAddr {
        match server.is_unix() {
            true => ServerAddr::unix(&server.host),
            false => ServerAddr::tcp(&server.host, server.port),
        }
    }
}

impl From<Placement> for Servers {
    fn from(placement: Placement) -> Servers {
        let list = placement.servers().iter().map(ServerAddr::from).collect();
        Servers { list, place: Arc::new(placement) }
    }
}

impl Config {
    /// What a fleet's settings say, for the servers that are in its list now. Other fleets that they name are the
    /// caller's to add, who has their clients.
    ///
    /// # Errors
    /// When the servers, or the spare ones, cannot be placed.
    pub fn of(settings: &FleetSettings, servers: &[ServerSpec]) -> Result<Config, PlacementError> {
        let placed = |servers| Placement::new(&settings.placement, servers).map(Servers::from);
        let on_down = match settings.on_failure {
            _ if settings.auto_eject => OnDown::Eject,
            OnFailure::Next => OnDown::Next,
            OnFailure::Miss => OnDown::Miss,
            OnFailure::Spare => OnDown::Spare {
                servers: placed(&settings.spare)?,
                ttl_seconds_max: u32::try_from(settings.spare_ttl.as_secs()).unwrap_or(u32::MAX),
            },
        };
        let dead_timeout = if settings.dead_timeout.is_zero() { settings.retry_timeout } else { settings.dead_timeout };
        Ok(Config {
            protocol: settings.protocol,
            namespace: settings.placement.namespace.clone(),
            connections: settings.connections,
            connect_timeout: settings.connect_timeout,
            read_timeout: settings.read_timeout,
            timeout: settings.timeout,
            failure_limit: settings.failure_limit,
            retry_timeout: settings.retry_timeout,
            dead_timeout,
            on_down,
            replicas: settings.replicas,
            ..Config::new(placed(servers)?)
        })
    }
}

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
