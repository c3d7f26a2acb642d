//! What a fleet behind a pool is made of: its own servers, and those of the other fleets that its settings name.
//!
//! Owns the settings of each part and the list that it has now. A list from a name server or etcd is unknown until it is
//! told; it then stays until another is. Nothing here connects to anyone.

use std::time::Duration;

use nuthatch_fleet::client::{Client, Config, Error, OnDown, Role, ServerAddr, Servers, Shadow, Source, Ticks};
use nuthatch_fleet::membership::sources_are_fixed;
use nuthatch_fleet::placement::PlacementError;
use nuthatch_fleet::{FleetSettings, PlacementSettings, ServerSpec};

/// Keys are taken over for as long as the settings say so.
const MIGRATION: Duration = Duration::MAX;

/// The fleet itself comes first.
#[derive(Clone)]
pub(crate) struct Parts(Vec<Part>);

#[derive(Clone)]
struct Part {
    role: PartRole,
    settings: FleetSettings,
    /// `None` until every source of it has answered.
    list: Option<(Vec<ServerSpec>, Config)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PartRole {
    Own,
    Source(Role),
    Shadow,
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
        let others = [
            (PartRole::Source(Role::Warm), &settings.warm_from),
            (PartRole::Source(Role::Migrate(MIGRATION)), &settings.migrate_from),
            (PartRole::Shadow, &settings.shadow),
        ];
        let others = others.into_iter().filter_map(|(role, name)| {
            let name = name.as_ref()?;
            Some((role, all.iter().find(|other| other.name == *name)?))
        });
        let parts = [(PartRole::Own, settings)].into_iter().chain(others).map(|(role, settings)| {
            let known = |parts: &Parts| {
                let part = parts.0.iter().find(|part| part.settings.name == settings.name)?;
                part.list.as_ref().map(|(servers, _)| servers.clone())
            };
            let servers = sources_are_fixed(&settings.servers).or_else(|| before.and_then(known));
            let list = servers.map(|servers| with_config(settings, servers)).transpose()?;
            Ok(Part { role, settings: settings.clone(), list })
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
        let needs = |role| matches!(role, PartRole::Own | PartRole::Source(Role::Migrate(_)));
        let lacking = self.0.iter().find(|part| part.list.is_none() && needs(part.role));
        lacking.map(|part| part.settings.name.as_str())
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
            let role = self.0[index].role;
            if role == PartRole::Own {
                own = Some(config.clone());
                continue;
            }
            let client = Client::new(config.clone())?;
            match role {
                PartRole::Source(role) => source = Some(Source { client: client.clone(), role }),
                _ => shadow = Some(Shadow { client: client.clone(), share: 1.0 }),
            }
            clients.push((index, client));
        }
        if let Some(own) = own {
            clients.insert(0, (0, Client::new(Config { source, shadow, ..own })?));
        }
        Ok(clients)
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
