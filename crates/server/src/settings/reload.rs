//! What a reload may change while the server runs, and what has to wait for a restart, setting by setting. Pools and
//! listeners are compared by the server with what it has: what is there decides what can be done.

use super::Settings;

/// A running server's settings, and newer ones from the same sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// What to run with from now on: the newer values where they can change in a running server, the older ones elsewhere.
    pub settings: Settings,
    /// What changed besides pools and listeners, one phrase each, such as `idle_timeout: 0 to 60`.
    pub changed: Vec<String>,
    /// What was asked for and waits for a restart, likewise.
    pub waiting: Vec<String>,
}

impl Settings {
    /// Compares these settings with `newer` ones. Files of users are read again by every reload, whether their path changed or not.
    pub fn diff(&self, newer: &Settings) -> Reload {
        let mut reload = Reload { settings: newer.clone(), changed: Vec::new(), waiting: Vec::new() };
        macro_rules! said {
            ($($name:literal: $($field:ident).+;)+) => {$(
                if self.$($field).+ != newer.$($field).+ {
                    reload.changed.push(format!("{}: {:?} to {:?}", $name, self.$($field).+, newer.$($field).+));
                }
            )+};
        }
        macro_rules! fixed {
            ($($name:literal: $($field:ident).+;)+) => {$(
                if self.$($field).+ != newer.$($field).+ {
                    reload.waiting.push(format!("{}: {:?} to {:?}", $name, self.$($field).+, newer.$($field).+));
                    reload.settings.$($field).+.clone_from(&self.$($field).+);
                }
            )+};
        }
        said! {
            "workers": workers;
            "connections_max": connections_max;
            "connections_max_fast": connections_max_fast;
            "backlog": backlog;
            "requests_per_event": requests_per_event;
            "idle_timeout": idle_timeout_seconds;
            "buffers_max": buffers.read_bytes_max;
            "watcher_buffer": buffers.watcher_log_bytes;
            "verbosity": verbosity;
            "cas": cas_enabled;
            "flush_all": flush_enabled;
            "dump": dump_enabled;
            "watch": watch_enabled;
            "shutdown": shutdown_enabled;
            "debug_commands": debug_commands;
            "stats_detail": detail_enabled;
            "prefix_delimiter": prefix_delimiter;
            "auth_file": auth_file;
            "sasl_file": sasl_file;
        }
        fixed! {
            "hash_seed": hash_seed;
            "user": process.user;
            "pid_file": process.pid_file;
            "daemonize": process.daemonize;
            "core_dumps": process.core_dumps;
            "lock_memory": process.lock_memory;
        }
        for fleet in &newer.fleets {
            match self.fleets.iter().find(|older| older.name == fleet.name) {
                Some(older) if older == fleet => {}
                Some(_) => reload.changed.push(format!("fleet.{}: changed", fleet.name)),
                None => reload.changed.push(format!("fleet.{}: added", fleet.name)),
            }
        }
        for older in self.fleets.iter().filter(|older| newer.fleets.iter().all(|fleet| fleet.name != older.name)) {
            reload.changed.push(format!("fleet.{}: removed", older.name));
        }
        for table in &newer.tables {
            match self.tables.iter().find(|older| older.rows.name == table.rows.name) {
                Some(older) if older == table => {}
                Some(_) => reload.changed.push(format!("table.{}: changed", table.rows.name)),
                None => reload.changed.push(format!("table.{}: added", table.rows.name)),
            }
        }
        let is_there = |name: &str| newer.tables.iter().any(|table| table.rows.name == name);
        for older in self.tables.iter().filter(|older| !is_there(&older.rows.name)) {
            reload.changed.push(format!("table.{}: removed", older.rows.name));
        }
        if self.named_routes() != newer.named_routes() {
            reload.changed.push("routes".to_owned());
        }
        reload
    }

    /// Prefixes, and the names of their pools, whose places may differ from one file to the next.
    fn named_routes(&self) -> Vec<(&[u8], &str)> {
        self.routes.iter().map(|route| (&route.prefix[..], self.pools[route.pool].name.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::draft::Draft;
    use super::super::keys;
    use super::super::knob::{Action, OnReload};
    use super::super::{FleetSettings, PoolSettings, RouteSettings};
    use super::*;

    #[test]
    fn every_key_of_the_server_is_applied_or_named_as_its_table_says() {
        for knob in keys::SERVER {
            let candidates: Vec<String> = match &knob.action {
                Action::Switch(_) => vec!["true".to_owned(), "false".to_owned()],
                Action::Integer { min, .. } => vec![min.to_string(), (min + 1).to_string()],
                Action::Size { min, .. } => vec![min.to_string(), (min + 1).to_string()],
                _ => vec!["7".to_owned()],
            };
            let older = Settings::default();
            let other = candidates.iter().find_map(|value| {
                let mut draft = Draft::default();
                assert!(knob.set(&mut draft, Some(value)), "{} = {value}", knob.name);
                (draft.settings != older).then_some(draft.settings)
            });
            let newer = other.unwrap_or_else(|| panic!("{} changes nothing", knob.name));
            let reload = older.diff(&newer);
            let (named, unnamed) = match knob.reload {
                OnReload::Restart => (&reload.waiting, &reload.changed),
                _ => (&reload.changed, &reload.waiting),
            };
            assert!(named[0].starts_with(&format!("{}: ", knob.name)) && named.len() == 1, "{}: {reload:?}", knob.name);
            assert!(unnamed.is_empty(), "{}: {reload:?}", knob.name);
            assert_eq!(reload.settings == newer, knob.reload != OnReload::Restart, "{}", knob.name);
            assert_eq!(reload.settings == older, knob.reload == OnReload::Restart, "{}", knob.name);
        }
    }

    #[test]
    fn the_same_settings_change_nothing() {
        let settings = Settings::default();
        let reload = settings.diff(&settings);
        assert_eq!(reload, Reload { settings: settings.clone(), changed: vec![], waiting: vec![] });
    }

    #[test]
    fn fleets_are_compared_by_their_names() {
        let with = |fleets: Vec<FleetSettings>| Settings { fleets, ..Settings::default() };
        let (one, other) = (FleetSettings::named("one"), FleetSettings::named("other"));
        let changed = FleetSettings { replicas: 1, ..one.clone() };
        let older = with(vec![one.clone(), other.clone()]);
        assert!(older.diff(&with(vec![other.clone(), one.clone()])).changed.is_empty());
        assert_eq!(older.diff(&with(vec![changed, other])).changed, ["fleet.one: changed"]);
        assert_eq!(with(vec![]).diff(&with(vec![one.clone()])).changed, ["fleet.one: added"]);
        assert_eq!(with(vec![one]).diff(&with(vec![])).changed, ["fleet.one: removed"]);
    }

    #[test]
    fn routes_are_compared_by_the_names_of_their_pools() {
        let with_pools = |names: [&str; 2], pool| {
            let pools = names.map(PoolSettings::named).to_vec();
            Settings { pools, routes: vec![RouteSettings { prefix: b"page:".to_vec(), pool }], ..Settings::default() }
        };
        let older = with_pools(["default", "pages"], 1);
        assert!(older.diff(&with_pools(["pages", "default"], 0)).changed.is_empty());
        assert_eq!(older.diff(&with_pools(["pages", "default"], 1)).changed, ["routes"]);
    }
}
