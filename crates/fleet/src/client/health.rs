//! Whether a server is asked: up, down, or coming back.
//!
//! ```text
//!          failure_limit failures in a row            pause over: probe sent
//!   up ───────────────────────────────────▶ down ─────────────────────────────▶ probing
//!    ▲                                       ▲ ▲      probe failed, pause doubled   │
//!    │                                       │ └────────────────────────────────────┤
//!    │            a failure                  │                                      │ probe answered
//!    └── ramp over ────────── returning ─────┘◀─────────────────────────────────────┘
//! ```
//!
//! A pure state machine over times that are passed in; [`Health`] puts it behind a lock, with the one number that every
//! request looks at beside it. What becomes of a down server's keys is decided elsewhere.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// All of a server's keys, as [`Health::share`] counts them.
pub(super) const SHARE_ALL: u32 = 256;

/// The least share of a server that is coming back.
const SHARE_FIRST: u32 = SHARE_ALL / 16;

/// When servers are given up and taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) failure_limit: u32,
    pub(super) retry_us: u64,
    pub(super) dead_us: u64,
    pub(super) ramp_us: u64,
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerState {
    /// It is asked.
    #[default]
    Up,
    /// It is not asked.
    Down,
    /// It is asked one thing, to see whether it answers.
    Probing,
    /// It is asked for a growing share of its keys.
    Returning,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    state: ServerState,
    failures: u32,
    /// How often in a row it went down without having been up again.
    downs: u32,
    /// Down: when the pause is over. Returning: when it began.
    at_us: u64,
    ejections: u64,
    probes: u64,
}

impl Standing {
    /// A connection failed. `jitter` is between 0 and 1.
    fn failed(&mut self, rules: &Rules, now_us: u64, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        match self.state {
            ServerState::Down => return,
            ServerState::Up if self.failures < rules.failure_limit => return,
            ServerState::Up | ServerState::Returning => self.ejections += 1,
            ServerState::Probing => {}
        }
        let doubled = rules.retry_us.saturating_mul(1 << self.downs.min(20));
        let pause = doubled.min(rules.dead_us.max(rules.retry_us));
        self.downs = self.downs.saturating_add(1);
        self.state = ServerState::Down;
        self.at_us = now_us + (pause as f64 * (0.75 + jitter / 2.0)) as u64;
    }

    /// A connection brought answers.
    fn answered(&mut self, rules: &Rules, now_us: u64) {
        self.failures = 0;
        if self.state == ServerState::Probing {
            self.state = ServerState::Returning;
            self.at_us = now_us;
            self.tick(rules, now_us);
        }
    }

    /// Time has passed. True: the server is to be probed now.
    fn tick(&mut self, rules: &Rules, now_us: u64) -> bool {
        match self.state {
            ServerState::Down if now_us >= self.at_us => {
                self.state = ServerState::Probing;
                self.probes += 1;
                return true;
            }
            // Another thread's look at the clock may have come first, and been later.
            ServerState::Returning if now_us.saturating_sub(self.at_us) >= rules.ramp_us => {
                self.state = ServerState::Up;
                self.downs = 0;
                self.failures = 0;
            }
            _ => {}
        }
        false
    }

    fn share(&self, rules: &Rules, now_us: u64) -> u32 {
        match self.state {
            ServerState::Up => SHARE_ALL,
            ServerState::Down | ServerState::Probing => 0,
            ServerState::Returning => {
                let grown =
                    now_us.saturating_sub(self.at_us).saturating_mul(u64::from(SHARE_ALL)) / rules.ramp_us.max(1);
                (grown as u32).clamp(SHARE_FIRST, SHARE_ALL)
            }
        }
    }
}

/// A server's standing, for all threads.
#[derive(Debug)]
pub(super) struct Health {
    rules: Rules,
    share: AtomicU32,
    /// Not 0 while an answer would change anything; what every batch of answers looks at.
    troubled: AtomicU32,
    standing: Mutex<Standing>,
    /// Requests that were not sent because the server was down.
    pub(super) refused: AtomicU64,
}

/// What counters show of a server's standing.
#[derive(Clone, Copy, Debug)]
pub(super) struct HealthCounts {
    pub(super) state: ServerState,
    pub(super) ejections: u64,
    pub(super) probes: u64,
    pub(super) refused: u64,
}

impl Health {
    pub(super) fn new(rules: Rules) -> Health {
        Health {
            rules,
            share: AtomicU32::new(SHARE_ALL),
            troubled: AtomicU32::new(0),
            standing: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// How much of its keys the server is asked for, of [`SHARE_ALL`].
    #[inline]
    pub(super) fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self, now_us: u64) {
        self.change(now_us, |standing, rules| standing.failed(rules, now_us, fastrand::f64()));
    }

    #[inline]
    pub(super) fn answered(&self, now_us: u64) {
        if self.troubled.load(Ordering::Relaxed) != 0 {
            self.change(now_us, |standing, rules| standing.answered(rules, now_us));
        }
    }

    /// True: the server is to be probed now.
    pub(super) fn tick(&self, now_us: u64) -> bool {
        self.troubled.load(Ordering::Relaxed) != 0
            && self.change(now_us, |standing, rules| standing.tick(rules, now_us))
    }

    /// Whether time has to pass for it.
    pub(super) fn waits(&self) -> bool {
        self.share() != SHARE_ALL
    }

    pub(super) fn counts(&self) -> HealthCounts {
        let standing = *self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        HealthCounts {
            state: standing.state,
            ejections: standing.ejections,
            probes: standing.probes,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn change<T>(&self, now_us: u64, change: impl FnOnce(&mut Standing, &Rules) -> T) -> T {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut standing, &self.rules);
        self.share.store(standing.share(&self.rules, now_us), Ordering::Relaxed);
        let troubled = standing.state != ServerState::Up || standing.failures != 0;
        self.troubled.store(u32::from(troubled), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { failure_limit: 3, retry_us: 1000, dead_us: 5000, ramp_us: 1600 };

    fn down() -> Standing {
        let mut standing = Standing::default();
        (0..3).for_each(|_| standing.failed(&RULES, 0, 0.5));
        assert_eq!((standing.state, standing.at_us), (ServerState::Down, 1000));
        standing
    }

    #[test]
    fn a_server_is_down_after_so_many_failures_in_a_row() {
        let mut standing = Standing::default();
        standing.failed(&RULES, 0, 0.5);
        standing.failed(&RULES, 0, 0.5);
        standing.answered(&RULES, 0);
        standing.failed(&RULES, 0, 0.5);
        standing.failed(&RULES, 0, 0.5);
        assert_eq!((standing.state, standing.share(&RULES, 0)), (ServerState::Up, SHARE_ALL));
        standing.failed(&RULES, 0, 0.5);
        assert_eq!((standing.state, standing.share(&RULES, 0), standing.ejections), (ServerState::Down, 0, 1));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_differ_between_clients() {
        let mut standing = down();
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let now = standing.at_us;
            assert!(!standing.tick(&RULES, now - 1));
            assert!(standing.tick(&RULES, now));
            assert!(!standing.tick(&RULES, now + 9999), "one probe at a time");
            standing.failed(&RULES, now, 0.5);
            pauses.push(standing.at_us - now);
        }
        assert_eq!(pauses, [2000, 4000, 5000, 5000, 5000]);
        assert_eq!((standing.ejections, standing.probes), (1, 5));
        let pause = |jitter| {
            let mut standing = Standing::default();
            (0..3).for_each(|_| standing.failed(&RULES, 0, jitter));
            standing.at_us
        };
        assert_eq!((pause(0.0), pause(1.0)), (750, 1250));
    }

    #[test]
    fn a_server_that_is_back_gets_its_keys_gradually() {
        let mut standing = down();
        assert!(standing.tick(&RULES, 1000));
        standing.answered(&RULES, 1000);
        let shares: Vec<u32> = [1000, 1100, 1400, 1800, 2599].map(|now| standing.share(&RULES, now)).to_vec();
        assert_eq!(shares, [16, 16, 64, 128, 255]);
        assert!(!standing.tick(&RULES, 2600));
        assert_eq!((standing.state, standing.downs), (ServerState::Up, 0));
    }

    #[test]
    fn a_failure_while_returning_is_down_again_and_for_longer() {
        let mut standing = down();
        standing.tick(&RULES, 1000);
        standing.answered(&RULES, 1000);
        standing.failed(&RULES, 1100, 0.5);
        assert_eq!((standing.state, standing.at_us, standing.ejections), (ServerState::Down, 3100, 2));
    }

    #[test]
    fn a_tick_that_looked_at_the_clock_before_the_answer_ends_no_ramp() {
        let mut standing = down();
        assert!(standing.tick(&RULES, 1000));
        standing.answered(&RULES, 1005);
        assert!(!standing.tick(&RULES, 1000));
        assert_eq!((standing.state, standing.share(&RULES, 1000)), (ServerState::Returning, SHARE_FIRST));
    }

    #[test]
    fn without_a_ramp_a_probe_brings_all_keys_back() {
        let rules = Rules { ramp_us: 0, ..RULES };
        let mut standing = down();
        standing.tick(&rules, 1000);
        standing.answered(&rules, 1000);
        assert_eq!((standing.state, standing.share(&rules, 1000)), (ServerState::Up, SHARE_ALL));
    }
}
