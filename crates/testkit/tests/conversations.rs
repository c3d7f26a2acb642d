//! Random conversations in three protocols at once, every answer compared with a plain map's.

use nuthatch_testkit::conversation::{Scope, hold};
use nuthatch_testkit::{Launch, spawn};

/// Commands in each conversation.
const COMMANDS: usize = 4000;

fn converse(seed: u64, launch: Launch) {
    let is_ours = spawn::other_server().is_none();
    let mut launch = launch.args(["-m", "256"]);
    if !is_ours {
        // memcached's background thread holds on to items at times of its own, which shows in whether a number is counted in place.
        launch = launch.args(["-o", "no_lru_maintainer,no_lru_crawler"]);
    }
    let server = launch.start();
    let is_recent = spawn::moves_clock();
    hold(server.address(), seed, Scope { moves_clock: is_recent, is_ours, is_recent, ..Scope::of_ours(COMMANDS) });
}

#[test]
fn every_answer_is_the_models_over_tcp() {
    for seed in 0..24 {
        converse(seed, Launch::debug().workers(4));
    }
}

#[test]
fn every_answer_is_the_models_over_unix() {
    for seed in 100..116 {
        converse(seed, Launch::debug().unix().workers(1));
    }
}
