//! Every order in which readers, writers and changes from outside can meet at one key, tried out: the proof of
//! [`flights`](super::flights), as a test.
//!
//! A *world* is a backend's value, the local copy, the flight table and some actors, each a list of steps that happen one
//! at a time. From every state each actor that can go on does, in turn, until nobody can; what comes after a state does not
//! depend on the way to it, so each is left once. A value is the number of the write that made it, in the order the backend
//! took them, so that "older" is "less".

use std::collections::HashSet;

use super::flights::{Joined, Table};

const KEY: &[u8] = b"k";

/// What an actor does, step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Look for a copy, join, have the backend read, land.
    Reader,
    /// Begin, have the backend store, end and leave a copy.
    Setter,
    /// Begin, have the backend store, end and leave none: delete, touch, increment, a write whose fate is unknown.
    Changer,
    /// Someone else's write at the backend, and later the news of it.
    Outsider,
    /// As an outsider, but all that is known is that something may have changed.
    Gap,
    /// A reader whose fetch is given up.
    Deserter,
}

#[derive(Debug, Clone)]
struct Actor {
    role: Role,
    step: u32,
    /// The number of the fetch it leads.
    leads: Option<u64>,
    waits: bool,
    /// The newest value that was known here when it began.
    least: u32,
    /// What the backend said or was told.
    value: u32,
    answered: bool,
}

/// A table is not copied but made again by the same steps, so a world is the steps that led to it.
#[derive(Debug)]
struct World {
    backend: u32,
    writes: u32,
    copy: Option<u32>,
    /// The newest value that a client of this server wrote and was answered, or was shown, or the news of which arrived.
    known: u32,
    table: Table<usize>,
    actors: Vec<Actor>,
}

impl World {
    fn new(roles: &[Role]) -> World {
        let actor = |&role| Actor { role, step: 0, leads: None, waits: false, least: 0, value: 0, answered: false };
        World {
            backend: 0,
            writes: 0,
            copy: None,
            known: 0,
            table: Table::default(),
            actors: roles.iter().map(actor).collect(),
        }
    }

    fn can_go_on(&self, number: usize) -> bool {
        let actor = &self.actors[number];
        !actor.answered && !actor.waits
    }

    fn answer(&mut self, number: usize, value: Option<u32>) {
        let actor = &mut self.actors[number];
        assert!(!actor.answered, "{actor:?} is answered twice");
        (actor.answered, actor.waits) = (true, false);
        if let Some(value) = value {
            assert!(value >= actor.least, "{actor:?} is answered {value}, older than what was known before");
            self.known = self.known.max(value);
        }
    }

    fn land(&mut self, number: usize, value: Option<u32>) {
        let fetch = self.actors[number].leads.expect("who lands a fetch leads it");
        let landed = self.table.land(KEY, fetch);
        let value = value.map(|value| match self.copy {
            _ if landed.may_keep => *self.copy.insert(value),
            Some(copy) => copy,
            None => {
                self.table.show(KEY, value.into());
                value
            }
        });
        for waiter in landed.waiters {
            self.answer(waiter, value);
        }
        self.answer(number, value);
    }

    fn store(&mut self, number: usize) {
        self.writes += 1;
        self.backend = self.writes;
        self.actors[number].value = self.writes;
    }

    /// One step of actor `number`.
    fn go_on(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        let (role, step) = (actor.role, actor.step);
        actor.step += 1;
        match (role, step) {
            (Role::Reader | Role::Deserter, 0) => {
                actor.least = self.known;
                if let Some(copy) = self.copy {
                    self.answer(number, Some(copy));
                }
            }
            (Role::Reader | Role::Deserter, 1) => match self.table.join(KEY, || number) {
                Joined::Leads(fetch) => self.actors[number].leads = Some(fetch),
                Joined::Waits => self.actors[number].waits = true,
            },
            (Role::Reader, 2) => actor.value = self.backend,
            (Role::Reader, _) => {
                let value = actor.value;
                self.land(number, Some(value));
            }
            (Role::Deserter, _) => self.land(number, None),
            (Role::Setter | Role::Changer, 0) => {
                self.table.begin_write(KEY);
                self.copy = None;
            }
            (Role::Setter | Role::Changer, 1) => self.store(number),
            (Role::Setter | Role::Changer, _) => {
                let value = actor.value;
                let (may_keep, _) = self.table.end_write(KEY);
                if may_keep && role == Role::Setter {
                    self.copy = Some(value);
                }
                self.known = self.known.max(value);
                self.actors[number].answered = true;
            }
            (Role::Outsider | Role::Gap, 0) => self.store(number),
            (Role::Outsider | Role::Gap, _) => {
                let value = actor.value;
                if role == Role::Gap {
                    self.table.invalidate_all();
                } else {
                    self.table.invalidate(KEY);
                }
                self.copy = None;
                self.known = self.known.max(value);
                self.actors[number].answered = true;
            }
        }
    }

    /// Nobody can go on: what must hold then.
    fn check_end(&mut self) {
        for actor in &self.actors {
            assert!(actor.answered, "{actor:?} is lost");
        }
        if let Some(copy) = self.copy {
            assert_eq!(copy, self.backend, "the copy that is left is not what the backend has");
        }
        assert!(self.table.is_empty(), "something is left of flights that are over");
    }
}

/// Goes on from every state in every way; how many states there are.
fn explore(roles: &[Role]) -> usize {
    let mut states = HashSet::new();
    let mut paths: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let mut world = World::new(roles);
        path.iter().for_each(|number| world.go_on(*number));
        if !states.insert(format!("{world:?}")) {
            continue;
        }
        let mut ended = true;
        for number in (0..roles.len()).filter(|number| world.can_go_on(*number)) {
            ended = false;
            paths.push([&path[..], &[number]].concat());
        }
        if ended {
            world.check_end();
        }
    }
    states.len()
}

#[test]
fn no_order_of_readers_writers_and_changes_leaves_an_older_copy_or_loses_anyone() {
    use Role::{Changer, Deserter, Gap, Outsider, Reader, Setter};
    let mut states = 0;
    for roles in [
        &[Reader, Reader, Reader][..],
        &[Reader, Setter, Reader],
        &[Reader, Changer, Reader],
        &[Reader, Outsider, Reader],
        &[Reader, Gap, Reader],
        &[Reader, Setter, Setter],
        &[Reader, Setter, Changer],
        &[Reader, Setter, Outsider],
        &[Reader, Changer, Outsider],
        &[Setter, Setter, Outsider],
        &[Setter, Gap, Reader],
        &[Setter, Setter, Setter],
        &[Deserter, Reader, Setter],
        &[Deserter, Reader, Outsider],
        &[Reader, Reader, Setter, Outsider],
        &[Reader, Setter, Changer, Outsider],
        &[Reader, Deserter, Reader, Gap],
        // Two fetches under way, of which the one that began first reads last.
        &[Reader, Reader, Reader, Outsider, Outsider],
    ] {
        states += explore(roles);
    }
    assert!(states > 100_000, "{states} states were tried");
}
