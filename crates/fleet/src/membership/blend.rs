//! One list of what several sources say, which changes only when a change has lasted. Time is passed in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::placement::ServerSpec;

/// A list that goes on changing is used after this many times the settling time, whatever it is then.
const PATIENCE: u32 = 10;

/// What is known, and what is in force.
#[derive(Debug)]
pub(super) struct Blend {
    /// Each source's last list.
    known: Vec<Option<Vec<ServerSpec>>>,
    in_force: Option<Arc<Vec<ServerSpec>>>,
    waiting: Option<Waiting>,
    settle: Duration,
}

/// A list that is to be used when it has lasted.
#[derive(Debug)]
struct Waiting {
    list: Vec<ServerSpec>,
    /// Since when it has been as it is.
    since: Instant,
    /// Since when it has not been the one in force.
    first: Instant,
}

impl Blend {
    pub(super) fn new(sources: usize, settle: Duration) -> Blend {
        Blend { known: vec![None; sources], in_force: None, waiting: None, settle }
    }

    /// Takes a source's list. True when a change that was waiting is taken back by it.
    pub(super) fn learn(&mut self, source: usize, list: Vec<ServerSpec>, now: Instant) -> bool {
        self.known[source] = Some(list);
        let Some(blended) = self.blended() else { return false };
        match (&self.in_force, &mut self.waiting) {
            (Some(in_force), waiting) if **in_force == blended => return waiting.take().is_some(),
            (Some(_), Some(waiting)) if waiting.list == blended => {}
            (Some(_), Some(waiting)) => (waiting.list, waiting.since) = (blended, now),
            (Some(_), None) => self.waiting = Some(Waiting { list: blended, since: now, first: now }),
            (None, _) => self.in_force = Some(Arc::new(blended)),
        }
        self.settle(now);
        false
    }

    /// When the list that waits is to be put in force.
    pub(super) fn due(&self) -> Option<Instant> {
        let waiting = self.waiting.as_ref()?;
        Some((waiting.since + self.settle).min(waiting.first + self.settle * PATIENCE))
    }

    /// Puts the list that waits in force if it is due.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.due().is_some_and(|due| due <= now)
            && let Some(waiting) = self.waiting.take()
        {
            self.in_force = Some(Arc::new(waiting.list));
        }
    }

    /// The list in force; `None` until every source was heard.
    pub(super) fn in_force(&self) -> Option<Arc<Vec<ServerSpec>>> {
        self.in_force.clone()
    }

    /// What all sources say together, in their order; of a server that two name, what the first says counts.
    fn blended(&self) -> Option<Vec<ServerSpec>> {
        let mut blended: Vec<ServerSpec> = Vec::new();
        for list in &self.known {
            for server in list.as_ref()? {
                if blended.iter().all(|other| !other.is_same_server(server)) {
                    blended.push(server.clone());
                }
            }
        }
        Some(blended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);

    fn list(names: &str) -> Vec<ServerSpec> {
        names.chars().map(|name| ServerSpec::new(&name.to_string(), 1)).collect()
    }

    fn in_force(blend: &Blend) -> String {
        blend.in_force().map_or("none".to_owned(), |list| list.iter().map(|server| server.host.as_str()).collect())
    }

    #[test]
    fn no_list_is_used_before_every_source_was_heard_and_then_at_once() {
        let (mut blend, now) = (Blend::new(2, SETTLE), Instant::now());
        blend.learn(1, list("ca"), now);
        assert_eq!(in_force(&blend), "none");
        blend.learn(0, list("ab"), now);
        assert_eq!(in_force(&blend), "abc", "in the order of the sources, each server once");
    }

    #[test]
    fn a_change_is_used_when_it_has_lasted() {
        let (mut blend, start) = (Blend::new(1, SETTLE), Instant::now());
        blend.learn(0, list("ab"), start);
        assert!(!blend.learn(0, list("abc"), start));
        assert_eq!((in_force(&blend).as_str(), blend.due()), ("ab", Some(start + SETTLE)));
        // The same again does not begin it anew; another does.
        blend.learn(0, list("abc"), start + SETTLE / 2);
        assert_eq!(blend.due(), Some(start + SETTLE));
        blend.learn(0, list("abd"), start + SETTLE / 2);
        assert_eq!(blend.due(), Some(start + SETTLE / 2 + SETTLE));
        blend.settle(start + SETTLE);
        assert_eq!(in_force(&blend), "ab");
        blend.settle(start + SETTLE / 2 + SETTLE);
        assert_eq!((in_force(&blend).as_str(), blend.due()), ("abd", None));
    }

    #[test]
    fn what_comes_and_goes_is_not_used_and_counts_as_a_flap() {
        let (mut blend, mut now) = (Blend::new(1, SETTLE), Instant::now());
        blend.learn(0, list("ab"), now);
        for _ in 0..50 {
            now += SETTLE / 3;
            assert!(!blend.learn(0, list("a"), now));
            now += SETTLE / 3;
            assert!(blend.learn(0, list("ab"), now));
            assert_eq!((in_force(&blend).as_str(), blend.due()), ("ab", None));
        }
    }

    #[test]
    fn what_never_rests_is_used_after_ten_times_the_wait() {
        let (mut blend, start) = (Blend::new(1, SETTLE), Instant::now());
        blend.learn(0, list("a"), start);
        let mut now = start;
        for round in 0.. {
            now += SETTLE / 2;
            blend.learn(0, list(["b", "c"][round % 2]), now);
            if in_force(&blend) != "a" {
                break;
            }
            assert!(now <= start + SETTLE * PATIENCE + SETTLE);
        }
        assert!(now >= start + SETTLE * PATIENCE);
    }

    #[test]
    fn without_a_wait_a_change_is_used_at_once() {
        let (mut blend, now) = (Blend::new(1, Duration::ZERO), Instant::now());
        blend.learn(0, list("a"), now);
        blend.learn(0, list("b"), now);
        assert_eq!(in_force(&blend), "b");
    }
}
