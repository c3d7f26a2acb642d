//! What is memcached's behaviour is a proxy's too: transcripts and random conversations through a pool before several
//! memcached 1.6.45, as a router and with copies. What has to differ is listed here, and asserted.

use std::path::Path;
use std::time::Duration;

use crate::common::{address, listener, source};
use nuthatch_fleet::{FleetSettings, Protocol};
use nuthatch_server::settings::{Loaded, Settings, Sources};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::conversation::{Scope, hold};
use nuthatch_testkit::spawn::Clock;
use nuthatch_testkit::transcript::{Difference, Stage, run_directory_on};
use nuthatch_testkit::wire::Conn;
use nuthatch_testkit::{Launch, Spawned, spawn};

/// A pool before three servers.
struct Proxied {
    server: Running,
    behind: Vec<Spawned>,
    clock: Clock,
}

/// What memcached's `flags` ask for, with `servers` behind the pool.
fn before(servers: &[Spawned], flags: &[String], ttl_max_seconds: u32) -> Settings {
    let (args, as_memcached) = (flags.iter().map(Into::into).collect(), true);
    let loaded = Sources { args, as_memcached, debug_commands: true, port_file: None, sasl_file: None }.load();
    let Ok(Loaded::Serve(settings, _)) = loaded else { panic!("{flags:?} start no server") };
    let mut settings = *settings;
    let servers = servers.iter().map(|server| source(server.port()));
    settings.fleets = vec![FleetSettings {
        servers: servers.collect(),
        protocol: Protocol::Meta,
        timeout: Duration::from_secs(20),
        read_timeout: Duration::from_secs(20),
        ..FleetSettings::named("shared")
    }];
    settings.listeners = vec![listener(0)];
    let pool = &mut settings.pools[0];
    (pool.backend, pool.ttl_max_seconds) = (Some("shared".to_owned()), ttl_max_seconds);
    settings
}

impl Proxied {
    fn start(flags: &[String], ttl_max_seconds: u32) -> Proxied {
        // Told of its own writes a host drops the copies that they left at a time of its own, and answers are then not the same
        // each time.
        let start = |_| {
            let launch = Launch::real_memcached_debug().expect("scripts/install-test-deps.sh builds it");
            let server = launch.args(["-t", "1", "-W", "-o", "no_lru_maintainer,no_lru_crawler"]).args(flags).start();
            server.stop_clock();
            server
        };
        let behind: Vec<Spawned> = (0..3).map(start).collect();
        let server = Server::start(before(&behind, flags, ttl_max_seconds)).expect("the server starts");
        let proxied = Proxied { server, behind, clock: Clock::default() };
        assert_eq!(proxied.connect().ask("debugtime p"), "OK");
        proxied
    }
}

impl Stage for Proxied {
    fn connect(&self) -> Conn {
        Conn::try_open(&spawn::Address::Tcp(address(&self.server, 0).port())).expect("the server listens")
    }

    fn move_clock(&self, seconds: u32) {
        self.behind.iter().for_each(|server| server.move_clock(seconds));
        let step = self.clock.step(i64::from(seconds));
        assert_eq!(self.connect().ask(format!("debugtime {step}")), "OK");
    }
}

/// Of a router.
const DIFFERENCES: &[Difference] = &[];

/// Of a tier, besides.
const DIFFERENCES_OF_COPIES: &[Difference] = &[
    Difference {
        name: "meta_debug_describes_an_item",
        said: "fetch=no",
        because: "the server of a key is not told that a copy of its item was read",
    },
    Difference {
        name: "meta_get_answers_flags_in_the_order_asked",
        said: "h0",
        because: "the server of a key is not told that a copy of its item was read",
    },
];

#[test]
fn transcripts_are_played_through_a_router_and_through_copies() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    for (ttl_max_seconds, more) in [(0, &[][..]), (5, DIFFERENCES_OF_COPIES)] {
        let differences = [DIFFERENCES, more].concat();
        run_directory_on(&directory, |flags| Box::new(Proxied::start(flags, ttl_max_seconds)), &differences);
    }
}

#[test]
fn conversations_go_through_several_memcached_as_with_one() {
    for ttl_max_seconds in [0, 5] {
        let proxied = Proxied::start(&["-m".to_owned(), "64".to_owned()], ttl_max_seconds);
        let at = spawn::Address::Tcp(address(&proxied.server, 0).port());
        for seed in 0..4 {
            assert_eq!(proxied.connect().ask("flush_all"), "OK");
            // The clocks stand still, and a flush takes what was stored in the same second only if it was stored before it.
            let scope =
                Scope { is_ours: false, has_servers: true, has_copies: ttl_max_seconds > 0, ..Scope::of_ours(2000) };
            hold(&at, seed, scope);
        }
    }
}
