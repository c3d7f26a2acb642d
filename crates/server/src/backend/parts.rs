//! What a fleet behind a pool is made of: its own servers, and those of the other fleets that its settings name.
//!
//! Owns the settings of each part and the list that it has now. A list from a name server or etcd is unknown until it is
//! told; it then stays until another is. Nothing here connects to anyone.

use std::time::{Duration, Instant};

use nuthatch_fleet::client::{Client, Config, Error, OnDown, Role, ServerAddr, Servers, Shadow, Source, Ticks};
use nuthatch_fleet::membership::sources_are_fixed;
use nuthatch_fleet::placement::PlacementError;
use nuthatch_fleet::{FleetSettings, PlacementSettings, ServerSpec};

/// The fleet itself comes first.
#[derive(Clone)]
pub(crate) struct Parts(Vec<Part>);

#[derive(Clone)]
struct Part {
    role: PartRole,
    settings: FleetSettings,
    /// Since when it is what it is.
    since: Instant,
    /// `None` until every source of it has answered.
    list: Option<(Vec<ServerSpec>, Config)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PartRole {
    Own,
    Source(Role),
    /// Of so many keys in a hundred.
    Shadow(u8),
}

impl PartRole {
    fn is_migration(self) -> bool {
        matches!(self, PartRole::Source(Role::Migrate(_)))
    }
}

/// What the clients there are have to do for other parts to be in force.
pub(super) enum Step {
    Nothing,
    /// To take other servers on: which part, and which.
    Servers(Vec<(usize, Servers)>),
    /// To make room for others.
    Replace,
}

impl Parts {
    /// Of the fleet that `settings` describe, among `all`. Lists that cannot be known yet are those of `before`.
    pub(crate) fn of(
        settings: &FleetSettings,
        all: &[FleetSettings],
        before: Option<&Parts>,
    ) -> Result<Parts, PlacementError> {
        let time = if settings.migrate_for.is_zero() { Duration::MAX } else { settings.migrate_for };
        let others = [
            (PartRole::Source(Role::Warm), &settings.warm_from),
            (PartRole::Source(Role::Migrate(time)), &settings.migrate_from),
            (PartRole::Shadow(settings.shadow_percent), &settings.shadow),
        ];
        let others = others.into_iter().filter_map(|(role, name)| {
            let name = name.as_ref()?;
            Some((role, all.iter().find(|other| other.name == *name)?))
        });
        let parts = [(PartRole::Own, settings)].into_iter().chain(others).map(|(role, settings)| {
            let mut named = before.iter().flat_map(|parts| &parts.0).filter(|part| part.settings.name == settings.name);
            let known = named.clone().next().and_then(|part| part.list.as_ref());
            let known = known.map(|(servers, _)| servers.clone());
            let servers = sources_are_fixed(&settings.servers).or(known);
            // A migration goes on from when it was begun, also when it is given another time.
            let goes_on = |part: &&Part| part.role.is_migration() && role.is_migration();
            let since = named.find(goes_on).map_or_else(Instant::now, |part| part.since);
            let list = servers.map(|servers| with_config(settings, servers)).transpose()?;
            Ok(Part { role, settings: settings.clone(), since, list })
        });
        Ok(Parts(parts.collect::<Result<_, _>>()?))
    }

    /// The fleet's own settings.
    pub(super) fn settings(&self) -> &FleetSettings {
        &self.0[0].settings
    }

    /// The fleet's own servers, none while they are unknown.
    pub(super) fn servers(&self) -> Vec<ServerAddr> {
        self.0[0].list.as_ref().map(|(_, config)| config.servers.list.clone()).unwrap_or_default()
    }

    /// The parts whose lists are kept elsewhere.
    pub(super) fn listed_elsewhere(&self) -> impl Iterator<Item = (usize, &FleetSettings)> {
        let all = self.0.iter().map(|part| &part.settings).enumerate();
        all.filter(|(_, settings)| sources_are_fixed(&settings.servers).is_none())
    }

    /// What is to be put before the names of a part's counters.
    pub(super) fn prefix(&self, part: usize) -> String {
        match self.0.get(part) {
            Some(part) if part.role != PartRole::Own => format!("{}:", part.settings.name),
            _ => String::new(),
        }
    }

    /// Whether nothing would be different with `other`.
    pub(super) fn are_as(&self, other: &Parts) -> bool {
        let same = |(one, other): (&Part, &Part)| one.role == other.role && one.settings == other.settings;
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }

    /// What clients made of these have to do to be as `newer` say.
    pub(super) fn step_to(&self, newer: &Parts) -> Step {
        let but_servers = |settings: &FleetSettings| {
            let namespace = settings.placement.namespace.clone();
            let placement = PlacementSettings { namespace, ..PlacementSettings::default() };
            FleetSettings { servers: Vec::new(), placement, ..settings.clone() }
        };
        let keeps_clients = self.0.len() == newer.0.len()
            && self.0.iter().zip(&newer.0).all(|(one, other)| {
                one.role == other.role
                    && one.list.is_some() == other.list.is_some()
                    && but_servers(&one.settings) == but_servers(&other.settings)
            });
        if !keeps_clients {
            return Step::Replace;
        }
        let lists = newer.known().map(|(index, config)| (index, config.servers.clone()));
        Step::Servers(lists.collect())
    }

    /// Has part number `index` have these servers from now on.
    pub(super) fn take(&mut self, index: usize, servers: &[ServerSpec]) -> Result<Step, PlacementError> {
        let Some(part) = self.0.get_mut(index) else { return Ok(Step::Nothing) };
        if part.list.as_ref().is_some_and(|(before, _)| before == servers) {
            return Ok(Step::Nothing);
        }
        let list = with_config(&part.settings, servers.to_vec())?;
        let taken = list.1.servers.clone();
        let was_known = part.list.replace(list).is_some();
        Ok(if was_known { Step::Servers(vec![(index, taken)]) } else { Step::Replace })
    }

    /// The name of a fleet without whose list nothing can be asked.
    pub(super) fn lacks(&self) -> Option<&str> {
        // A shadow or a warm fleet may come later. One that keys are left in has what would be missed.
        let needs = |part: &Part| match part.role {
            PartRole::Own => true,
            role => role.is_migration() && part.migration_left() != Some(Duration::ZERO),
        };
        let lacking = self.0.iter().find(|part| part.list.is_none() && needs(part));
        lacking.map(|part| part.settings.name.as_str())
    }

    /// Whether another fleet has what this one lacks.
    pub(super) fn has_source(&self) -> bool {
        self.0.iter().any(|part| matches!(part.role, PartRole::Source(_)))
    }

    /// How long keys are still taken over from another fleet: zero when that is over. `None` where no end is set.
    pub(super) fn migration_left(&self) -> Option<Duration> {
        self.0.iter().find_map(Part::migration_left)
    }

    /// What clients are made of.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let parts = self.0.iter().map(|part| (part.role, part.list.as_ref().map(|(_, config)| config)));
        format!("{:?}", parts.collect::<Vec<_>>())
    }

    fn known(&self) -> impl Iterator<Item = (usize, &Config)> {
        self.0.iter().enumerate().filter_map(|(index, part)| Some((index, &part.list.as_ref()?.1)))
    }

    /// Clients of all parts whose lists are known, with their numbers, the fleet's own first. On a worker's runtime.
    pub(super) fn clients(&self) -> Result<Vec<(usize, Client)>, Error> {
        let mut clients = Vec::new();
        let mut own = None;
        let (mut source, mut shadow) = (None, None);
        for (index, config) in self.known() {
            let part = &self.0[index];
            let role = part.role;
            let left = part.migration_left();
            if left == Some(Duration::ZERO) {
                continue;
            }
            if role == PartRole::Own {
                own = Some(config.clone());
                continue;
            }
            let client = Client::new(config.clone())?;
            match role {
                PartRole::Source(role) => {
                    let role = left.map_or(role, Role::Migrate);
                    source = Some(Source { client: client.clone(), role });
                }
                PartRole::Shadow(percent) => {
                    shadow = Some(Shadow { client: client.clone(), share: f64::from(percent) / 100.0 });
                }
                PartRole::Own => {}
            }
            clients.push((index, client));
        }
        if let Some(own) = own {
            clients.insert(0, (0, Client::new(Config { source, shadow, ..own })?));
        }
        Ok(clients)
    }
}

impl Part {
    /// As [`Parts::migration_left`].
    fn migration_left(&self) -> Option<Duration> {
        match self.role {
            PartRole::Source(Role::Migrate(time)) if time != Duration::MAX => {
                Some(time.saturating_sub(self.since.elapsed()))
            }
            _ => None,
        }
    }
}

fn with_config(
    settings: &FleetSettings,
    servers: Vec<ServerSpec>,
) -> Result<(Vec<ServerSpec>, Config), PlacementError> {
    let config = Config::of(settings, &servers)?;
    // What to make of a server that is out is the tier's to say.
    let on_down = if let OnDown::Miss = config.on_down { OnDown::Error } else { config.on_down };
    Ok((servers, Config { on_down, ticks: Ticks::Caller, ..config }))
}
