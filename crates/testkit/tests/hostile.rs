//! No bytes that a client sends make the server end, hang, or answer somebody else's question.

use nuthatch_testkit::dice::Dice;
use nuthatch_testkit::hostile::{Victim, corpus, rubbish};
use nuthatch_testkit::{Launch, spawn};

#[test]
fn rubbish_ends_its_own_connection_at_most() {
    let corpus = corpus();
    for (unix, seeds) in [(false, 0..1500), (true, 10_000..11_500)] {
        let launch = Launch::memcached().workers(2);
        let mut server = if unix { launch.unix().start() } else { launch.start() };
        let mut victim = Victim::new(server.address());
        for seed in seeds {
            victim.endure(&rubbish(&mut Dice::seeded(seed), &corpus));
        }
        server.assert_alive();
    }
}

#[test]
fn every_beginning_cut_short_leaves_the_server_serving() {
    // memcached 1.6.18 itself is not asked for as much.
    let step = if spawn::other_server().is_some() { 29 } else { 7 };
    let mut server = Launch::memcached().workers(2).start();
    let mut victim = Victim::new(server.address());
    for beginning in corpus() {
        for end in (0..beginning.len().min(40)).step_by(step) {
            victim.endure(&[&[0], &beginning[..end]].concat());
        }
    }
    server.assert_alive();
}
