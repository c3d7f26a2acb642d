//! Ages: whether main is full of what nobody asks for any more, because the workload has changed.
//!
//! Owns the sample by which this is found out, and the verdict. When the mean size of what is stored and of what main held
//! are far apart, either the workload has changed, and main is in the way, or large items that are asked for once pass
//! by small ones that are asked for all the time (or the other way round), and main is what the cache is for. Sizes
//! alone do not tell: hits are taken from a sample of main's items, and looked for again when an eighth of a cacheful has been
//! stored. If none was hit, while some of what is of the new size was, main is *left behind*: it is emptied first, until it
//! was passed once. Without the latter nobody knows what is asked for: a night of stores that nobody reads, or a stream
//! between requests so few that they miss the sample, would empty main for what nobody wants.
//!
//! What never happens here: an item is moved or dropped.

use std::sync::atomic::AtomicBool;

use crate::{
    index::{Hash, Place},
    log::Census,
    segment::Queue,
    store::Store,
    sync::{Mutex, Ordering},
};

/// Items of main that are watched at most, and segments that they are taken from. Walking over them is what a verdict
/// costs the store that happens to evict then, which bounds it whatever the store's size.
const SAMPLE_ITEMS: usize = 4096;
const SAMPLE_SEGMENTS: usize = 64;

/// The sample is looked at again when one part in this many of all segments has been stored.
const LOOK_SHARE: usize = 8;

/// Of the items of the new size that left probation meanwhile, one in this many has to have been hit, or what is stored now is
/// asked for no more than main. After a change to what has twenty times the store's size it is one in thirty.
const HIT_SHARE: u64 = 64;

/// Cachefuls for which nobody looks again after a verdict: twice as many after each, until the sizes agree.
const PATIENCE_MAX: u64 = 64;

/// How main stands to what is stored. Moments are counted in segments of probation that were sealed.
enum State {
    /// Nobody looks before that moment.
    Left { until: u64 },
    /// This sample is looked at at that moment. Meanwhile so many items of the new size left probation, and so many of them
    /// had been hit.
    Watched { sample: Vec<(Hash, Place)>, until: u64, left: u64, hit: u64 },
    /// So many of main's segments are to be passed yet.
    Behind { segments: usize },
}

/// See the module.
pub(crate) struct Age {
    judgement: Mutex<Judgement>,
    /// What the judgement is, for those who only ask.
    is_left_behind: AtomicBool,
}

struct Judgement {
    state: State,
    patience: u64,
}

impl Judgement {
    const fn new() -> Judgement {
        Judgement { state: State::Left { until: 0 }, patience: 1 }
    }

    /// Nobody looks again for a while.
    fn rest(&mut self, sealed: u64, held: usize) {
        self.state = State::Left { until: sealed + self.patience * held as u64 };
        self.patience = (2 * self.patience).min(PATIENCE_MAX);
    }
}

impl Age {
    pub(crate) fn new() -> Age {
        Age { judgement: Mutex::new(Judgement::new()), is_left_behind: AtomicBool::new(false) }
    }

    /// Whether main is full of what nobody asks for any more.
    #[inline]
    pub(crate) fn is_left_behind(&self) -> bool {
        self.is_left_behind.load(Ordering::Relaxed)
    }
}

impl Store {
    /// Notes how main stands to what is stored. Called before a segment is chosen to be emptied.
    pub(crate) fn heed_age(&self, census: &Census) {
        let age = &self.age;
        let Some(is_of_one_size) = self.policy.is_of_one_size() else { return };
        if age.is_left_behind() {
            return;
        }
        let [_, main] = census.sealed;
        let sealed = self.policy.sealed_segments();
        let mut judgement = age.judgement.lock();
        if is_of_one_size {
            *judgement = Judgement::new();
            return;
        }
        match &judgement.state {
            State::Left { until } | State::Watched { until, .. } if sealed < *until => {}
            State::Left { .. } => {
                let until = sealed + (census.held / LOOK_SHARE) as u64;
                judgement.state = State::Watched { sample: self.sample(main), until, left: 0, hit: 0 };
            }
            State::Watched { sample, left, hit, .. } => {
                let is_wanted = sample.iter().any(|(hash, place)| self.was_hit(*hash, *place));
                if is_wanted || *hit * HIT_SHARE < *left {
                    judgement.rest(sealed, census.held);
                } else {
                    judgement.state = State::Behind { segments: main };
                    age.is_left_behind.store(true, Ordering::Relaxed);
                }
            }
            State::Behind { .. } => {}
        }
    }

    /// Notes that a segment of probation was emptied: how many items were found in it that are of one size with what is stored
    /// now, and how many of them had been hit.
    pub(crate) fn probation_passed(&self, items: u64, hits: u64) {
        if let State::Watched { left, hit, .. } = &mut self.age.judgement.lock().state {
            *left += items;
            *hit += hits;
        }
    }

    /// Notes that a segment of main was emptied.
    pub(crate) fn main_passed(&self) {
        if !self.age.is_left_behind() {
            return;
        }
        let mut judgement = self.age.judgement.lock();
        match &mut judgement.state {
            State::Behind { segments } if *segments > 1 => *segments -= 1,
            State::Behind { .. } => {
                self.policy.forget_main();
                judgement.rest(self.policy.sealed_segments(), self.log.held());
                self.age.is_left_behind.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Some of main's items that were hit, whose hits are taken from them. None, where none were hit since main was passed: as
    /// good as a sample of which none is hit again, because what else is asked for decides.
    fn sample(&self, main: usize) -> Vec<(Hash, Place)> {
        let mut sample = Vec::with_capacity(SAMPLE_ITEMS);
        for _ in 0..main.min(SAMPLE_SEGMENTS) {
            let Some(id) = self.log.claim_oldest(Queue::Main) else { break };
            self.each_record(id, |place, record| {
                let hash = self.hash(record.key());
                let mut shard = self.index.lock(hash);
                if sample.len() < SAMPLE_ITEMS
                    && let Some(entry) = shard.find(hash, |candidate| candidate == place)
                    && entry.rank > 0
                {
                    shard.replace(entry, place, 0);
                    sample.push((hash, place));
                }
            });
            self.put_back(id);
            if sample.len() == SAMPLE_ITEMS {
                break;
            }
        }
        sample
    }

    fn was_hit(&self, hash: Hash, place: Place) -> bool {
        let shard = self.index.lock(hash);
        shard.find(hash, |candidate| candidate == place).is_some_and(|entry| entry.rank > 0)
    }
}
