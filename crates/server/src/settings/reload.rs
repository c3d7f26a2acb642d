//! What a reload may change while the server runs, and what has to wait for a restart.

use super::{PoolSettings, Settings};

/// A running server's settings, and newer ones from the same sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// What to run with from now on: the newer values where they can change in a running server, the older ones elsewhere.
    pub settings: Settings,
    /// What changed, one phrase each, such as `pool.default.memory: 64 MiB to 128 MiB`.
    pub changed: Vec<String>,
    /// What was asked for and waits for a restart, likewise.
    pub waiting: Vec<String>,
}

impl Settings {
    /// Compares these settings with `newer` ones. Files of users are read again by every reload, whether their path changed or not.
    pub fn diff(&self, newer: &Settings) -> Reload {
        let mut reload = Reload { settings: self.clone(), changed: Vec::new(), waiting: Vec::new() };
        let now = &mut reload.settings;
        macro_rules! live {
            ($($name:literal: $($field:ident).+;)+) => {$(
                if self.$($field).+ != newer.$($field).+ {
                    reload.changed.push(format!("{}: {:?} to {:?}", $name, self.$($field).+, newer.$($field).+));
                    now.$($field).+.clone_from(&newer.$($field).+);
                }
            )+};
        }
        macro_rules! fixed {
            ($($name:literal: $($field:ident).+;)+) => {$(
                if self.$($field).+ != newer.$($field).+ {
                    reload.waiting.push(format!("{}: {:?} to {:?}", $name, self.$($field).+, newer.$($field).+));
                }
            )+};
        }
        live! {
            "connections_max": connections_max;
            "connections_max_fast": connections_max_fast;
            "requests_per_event": requests_per_event;
            "idle_timeout": idle_timeout_seconds;
            "verbosity": verbosity;
            "flush_all": flush_enabled;
            "dump": dump_enabled;
            "watch": watch_enabled;
            "shutdown": shutdown_enabled;
            "buffers_max": buffers.read_bytes_max;
        }
        fixed! {
            "workers": workers;
            "backlog": backlog;
            "cas": cas_enabled;
            "stats_detail": detail_enabled;
            "prefix_delimiter": prefix_delimiter;
            "debug_commands": debug_commands;
            "auth_file": auth_file;
            "sasl_file": sasl_file;
            "watcher_buffer": buffers.watcher_log_bytes;
            "hash_seed": hash_seed;
            "user": process.user;
            "pid_file": process.pid_file;
            "daemonize": process.daemonize;
            "core_dumps": process.core_dumps;
            "lock_memory": process.lock_memory;
        }
        if names(&self.pools) == names(&newer.pools) {
            for (index, (pool, other)) in self.pools.iter().zip(&newer.pools).enumerate() {
                if pool.memory_bytes != other.memory_bytes && pool.item_bytes_max as u64 <= other.memory_bytes / 2 {
                    let (from, to) = (super::Bytes(pool.memory_bytes), super::Bytes(other.memory_bytes));
                    reload.changed.push(format!("pool.{}.memory: {from} to {to}", pool.name));
                    now.pools[index].memory_bytes = other.memory_bytes;
                }
                let rest = PoolSettings { memory_bytes: now.pools[index].memory_bytes, ..pool.clone() };
                if rest != *other {
                    reload.waiting.push(format!("pool.{}", pool.name));
                }
            }
            // Routes name pools by index, so they can follow only while the pools are the same.
            if self.routes != newer.routes {
                reload.changed.push("routes".to_owned());
                now.routes.clone_from(&newer.routes);
            }
        } else {
            reload.waiting.push(format!("pools: {} to {}", names(&self.pools), names(&newer.pools)));
        }
        if self.listeners != newer.listeners {
            reload.waiting.push("listeners".to_owned());
        }
        reload
    }
}

fn names(pools: &[PoolSettings]) -> String {
    pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::{MIB, RouteSettings};
    use super::*;

    #[test]
    fn a_reload_applies_what_can_change_and_names_what_cannot() {
        let older = Settings::default();
        let mut newer = older.clone();
        newer.pools[0].memory_bytes = 128 * MIB;
        newer.idle_timeout_seconds = 9;
        newer.workers = 8;
        newer.listeners.truncate(1);
        newer.routes.push(RouteSettings { prefix: b"page:".to_vec(), pool: 0 });
        let reload = older.diff(&newer);
        assert_eq!(reload.settings.pools[0].memory_bytes, 128 * MIB);
        assert_eq!(reload.settings.idle_timeout_seconds, 9);
        assert_eq!(reload.settings.routes, newer.routes);
        assert_eq!(reload.settings.workers, older.workers);
        assert_eq!(reload.settings.listeners, older.listeners);
        assert_eq!(reload.changed, ["idle_timeout: 0 to 9", "pool.default.memory: 64 MiB to 128 MiB", "routes"]);
        assert_eq!(reload.waiting, ["workers: 4 to 8", "listeners"]);
    }

    #[test]
    fn the_same_settings_change_nothing() {
        let settings = Settings::default();
        let reload = settings.diff(&settings);
        assert_eq!(reload, Reload { settings: settings.clone(), changed: vec![], waiting: vec![] });
    }

    #[test]
    fn memory_below_twice_the_item_limit_waits_for_a_restart() {
        let older = Settings::default();
        let mut newer = older.clone();
        newer.pools[0].memory_bytes = MIB;
        newer.pools[0].item_bytes_max = MIB as usize / 2;
        let reload = older.diff(&newer);
        assert_eq!(reload.settings.pools[0], older.pools[0]);
        assert_eq!(reload.waiting, ["pool.default"]);
    }

    #[test]
    fn other_pools_wait_for_a_restart_and_their_routes_with_them() {
        let older = Settings::default();
        let mut newer = older.clone();
        newer.pools.push(PoolSettings::named("pages"));
        newer.routes.push(RouteSettings { prefix: b"page:".to_vec(), pool: 1 });
        let reload = older.diff(&newer);
        assert_eq!(reload.settings, older);
        assert_eq!(reload.waiting, ["pools: default to default, pages"]);
    }
}
