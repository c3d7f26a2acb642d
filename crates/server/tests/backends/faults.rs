//! Bad times of a fleet behind a pool, with load running: no value is ever wrong, no call outlives its time, only keys of the
//! server that misbehaves are refused, and the counters say what happened.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{
    Client, PATIENCE, eventually, listener, records, server_at, settings, source, start, two_addresses,
};
use crate::{count, follow};
use nuthatch_fleet::membership::Source;
use nuthatch_fleet::{FleetSettings, Protocol, ServerSpec};
use nuthatch_server::settings::{PoolSettings, Settings};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::dice::Dice;
use nuthatch_testkit::name_server::A;
use nuthatch_testkit::{Address, Etcd, Fault, Faulty, Launch, NameServer, Spawned};

/// What an operation may take by the settings below, and as much again as a busy machine may need.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Clients that make up the load, each with keys of its own.
const CLIENTS: usize = 4;
const KEYS: usize = 40;

fn memcached() -> Spawned {
    Launch::real_memcached().args(["-t", "1", "-m", "64"]).start()
}

fn listed(address: &Address) -> Source {
    let Address::Tcp(port) = address else { panic!("it listens on TCP") };
    source(*port)
}

/// Times short enough for tests.
fn fleet(servers: Vec<Source>, protocol: Protocol) -> FleetSettings {
    FleetSettings {
        servers,
        protocol,
        connect_timeout: Duration::from_millis(500),
        read_timeout: Duration::from_millis(500),
        timeout: Duration::from_secs(1),
        failure_limit: 2,
        retry_timeout: Duration::from_millis(50),
        dead_timeout: Duration::from_millis(100),
        ..FleetSettings::named("shared")
    }
}

/// Listener 0 is a router before the fleet, listener 1 keeps copies for a second.
fn before(fleet: FleetSettings) -> Settings {
    let pool = |name, ttl_max_seconds| PoolSettings {
        backend: Some("shared".to_owned()),
        ttl_max_seconds,
        ..PoolSettings::named(name)
    };
    Settings {
        pools: vec![pool("router", 0), pool("tiered", 1)],
        fleets: vec![fleet],
        listeners: vec![listener(0), listener(1)],
        ..settings()
    }
}

/// What the load has seen.
#[derive(Default)]
struct Seen {
    stopped: AtomicBool,
    calls: AtomicU64,
    hits: AtomicU64,
    errors: AtomicU64,
}

/// Clients that write and read, and hold every answer against what they wrote.
struct Load {
    seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// `blames` is what every refusal has to begin with.
    fn start(server: &Running, blames: Vec<String>) -> Load {
        let seen = Arc::new(Seen::default());
        let thread = |number: usize| {
            let client = Client::connect_to(crate::common::address(server, number % 2));
            let (seen, blames) = (seen.clone(), blames.clone());
            std::thread::spawn(move || run(client, number, &seen, &blames))
        };
        let threads = (0..CLIENTS).map(thread).collect();
        Load { seen, threads }
    }

    fn count(&self, of: fn(&Seen) -> &AtomicU64) -> u64 {
        assert!(!self.threads.iter().any(JoinHandle::is_finished), "the load has ended");
        of(&self.seen).load(Ordering::Relaxed)
    }

    /// Waits for so many more.
    fn more(&self, of: fn(&Seen) -> &AtomicU64, count: u64) {
        let enough = self.count(of) + count;
        eventually(|| self.count(of) >= enough);
    }

    fn end(self) {
        self.seen.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("the load has seen nothing wrong");
        }
    }
}

/// One client. A write that was refused may have been carried out, or be so later; everything else is certain.
fn run(mut client: Client, number: usize, seen: &Seen, blames: &[String]) {
    let mut dice = Dice::seeded(number as u64);
    // By key: what may be read, the last that was stored first.
    let mut written: HashMap<String, Vec<String>> = HashMap::new();
    let mut count = 0_u64;
    while !seen.stopped.load(Ordering::Relaxed) {
        let key = format!("load:{number}:{}", dice.usize(..KEYS));
        let begun = Instant::now();
        let refused = |line: &str| {
            assert!(blames.iter().any(|blame| line.starts_with(blame.as_str())), "{line}");
            seen.errors.fetch_add(1, Ordering::Relaxed);
        };
        if dice.u8(..4) == 0 {
            count += 1;
            let value = format!("{key}={count}");
            client.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
            let answer = client.read_until("\r\n");
            let known = written.entry(key).or_default();
            if answer == "STORED\r\n" {
                // Older values that were stored are gone; those whose fate is unknown may still come.
                let stored = known.iter().position(|value| value.ends_with('!'));
                if let Some(stored) = stored {
                    known.remove(stored);
                }
                known.insert(0, format!("{value}!"));
            } else {
                refused(&answer);
                known.push(value);
            }
        } else {
            client.send(format!("get {key}\r\n"));
            let answer = client.read_until("\r\n");
            if let Some(header) = answer.strip_prefix("VALUE ") {
                let value = client.read_until("END\r\n");
                let value = value.strip_suffix("\r\nEND\r\n").expect("a value");
                assert_eq!(header.split(' ').next(), Some(key.as_str()));
                let known = written.get(&key).map(Vec::as_slice).unwrap_or_default();
                let is_known = known.iter().any(|known| known.trim_end_matches('!') == value);
                assert!(is_known, "{key} is {value}, expected one of {known:?}");
                seen.hits.fetch_add(1, Ordering::Relaxed);
            } else if answer != "END\r\n" {
                refused(&answer);
            }
        }
        let took = begun.elapsed();
        assert!(took < CALL_MAX, "a call took {took:?}");
        seen.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// What `stats fleet` says of a server of fleet `shared`.
fn told(client: &mut Client, server: &Address, counter: &str) -> String {
    client.stat("stats fleet", &format!("shared:{server}:{counter}"))
}

fn number(client: &mut Client, server: &Address, counter: &str) -> u64 {
    told(client, server, counter).parse().expect("a number")
}

#[test]
fn whatever_one_server_does_is_counted_costs_its_own_keys_only_and_ends_with_it() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let real: Vec<Spawned> = (0..3).map(|_| memcached()).collect();
        let mut faulty = Faulty::before(real[0].address());
        let at = faulty.address();
        // Down at the start.
        faulty.set(Fault::Refuse);
        let servers = vec![listed(&at), listed(real[1].address()), listed(real[2].address())];
        let server = start(before(fleet(servers, protocol)));
        let mut observer = Client::connect(&server);
        let load = Load::start(&server, vec![format!("SERVER_ERROR fleet shared: server {at} ")]);
        load.more(|seen| &seen.errors, 20);
        assert!(number(&mut observer, &at, "connect_errors") > 0 && number(&mut observer, &at, "ejections") > 0);
        assert_ne!(told(&mut observer, &at, "state"), "Up");
        let long = Duration::from_secs(5);
        for (fault, counters) in [
            (Fault::None, &["answers"][..]),
            // Dies under load.
            (Fault::Refuse, &["connect_errors"]),
            (Fault::Hang, &["silences", "timeouts"]),
            (Fault::Delay(long), &["silences", "timeouts"]),
            (Fault::Slow(Duration::from_millis(100)), &["silences", "timeouts", "losses"]),
            (Fault::Garbage, &["garbage"]),
            (Fault::OtherKey, &["garbage"]),
            (Fault::Cut, &["losses", "garbage"]),
            (Fault::CloseEach, &["connects"]),
        ] {
            let counted =
                |observer: &mut Client| -> u64 { counters.iter().map(|counter| number(observer, &at, counter)).sum() };
            let earlier = counted(&mut observer);
            faulty.set(fault);
            eventually(|| counted(&mut observer) > earlier);
            load.more(|seen| &seen.calls, 200);
            // The others' keys are served all the while.
            load.more(|seen| &seen.hits, 50);
            faulty.set(Fault::None);
            // One that comes back does so gradually, and then has all its keys again.
            let answers = number(&mut observer, &at, "answers");
            eventually(|| number(&mut observer, &at, "answers") > answers + 20);
        }
        // It is started again and has nothing: its keys are misses, and no error.
        let another = memcached();
        faulty.lead_to(another.address());
        let mut direct = Client::of_port(another.port());
        eventually(|| direct.number("curr_items") > 5);
        load.more(|seen| &seen.hits, 200);
        load.end();
        for other in &real[1..] {
            assert_eq!(number(&mut observer, other.address(), "ejections"), 0, "{protocol:?}");
        }
    }
}

#[test]
fn with_all_servers_down_everything_is_refused_in_time_and_comes_back() {
    let real = [memcached(), memcached()];
    let mut faulty = real.each_ref().map(|server| Faulty::before(server.address()));
    let at = faulty.each_ref().map(Faulty::address);
    let server = start(before(fleet(at.iter().map(listed).collect(), Protocol::Meta)));
    let blames = at.iter().map(|at| format!("SERVER_ERROR fleet shared: server {at} ")).collect();
    let load = Load::start(&server, blames);
    load.more(|seen| &seen.hits, 100);
    faulty.iter_mut().for_each(|faulty| faulty.set(Fault::Refuse));
    let mut observer = Client::connect(&server);
    eventually(|| at.iter().all(|at| told(&mut observer, at, "state") != "Up"));
    // A copy may be served until its second is over; a router has none.
    observer.send("set k 0 0 1\r\n1\r\n");
    let answer = observer.read_until("\r\n");
    assert!(answer.starts_with("SERVER_ERROR fleet shared: server "), "{answer}");
    load.more(|seen| &seen.errors, 100);
    faulty.iter_mut().for_each(|faulty| faulty.set(Fault::None));
    eventually(|| at.iter().all(|at| told(&mut observer, at, "state") == "Up"));
    load.more(|seen| &seen.hits, 100);
    load.end();
}

#[test]
fn a_watching_connection_that_hangs_costs_at_most_the_life_of_a_copy() {
    let real = memcached();
    let mut faulty = Faulty::before(real.address()).striking(b"watch ");
    let server = start(before(fleet(vec![listed(&faulty.address())], Protocol::Meta)));
    let mut client = Client::connect_to(crate::common::address(&server, 1));
    follow(&mut client);
    faulty.set(Fault::Hang);
    let mut direct = Client::of_port(real.port());
    for number in 0..3 {
        direct.ask(format!("set k 0 0 1\r\n{number}\r\n"), "STORED\r\n");
        let written = Instant::now();
        let expected = format!("VALUE k 0 1\r\n{number}\r\nEND\r\n");
        loop {
            client.send("get k\r\n");
            if client.read_until("END\r\n") == expected {
                break;
            }
            assert!(written.elapsed() < PATIENCE, "it is never seen");
        }
    }
    // What it did not hear of while it hung may be missing in what it keeps.
    let gaps = count(&mut client, "tier_gaps");
    faulty.set(Fault::None);
    faulty.end_connections();
    eventually(|| count(&mut client, "tier_gaps") > gaps);
    follow(&mut client);
}

/// A client of a server whose fleet's list is known by now.
fn observer(server: &Running) -> Client {
    let mut observer = Client::connect(server);
    eventually(|| {
        observer.send("set k 0 0 1\r\n1\r\n");
        observer.read_until("\r\n") == "STORED\r\n"
    });
    observer
}

/// One of the counters of the fleet.
fn counted(observer: &mut Client, counter: &str) -> u64 {
    observer.stat("stats fleet", &format!("shared:{counter}")).parse().expect("a number")
}

#[test]
fn an_etcd_that_goes_away_leaves_its_last_list_to_a_pool_under_load() {
    let real = [memcached(), memcached()];
    let mut etcd = Etcd::start();
    etcd.put("/caches/1", &real[0].address().to_string());
    let list = FleetSettings {
        refresh: Duration::from_millis(100),
        settle: Duration::ZERO,
        ..fleet(vec![Source::parse(&format!("etcd:{}/caches/", etcd.endpoint())).expect("a source")], Protocol::Meta)
    };
    let server = start(before(list));
    let mut observer = observer(&server);
    let load = Load::start(&server, Vec::new());
    load.more(|seen| &seen.hits, 100);
    let failures = counted(&mut observer, "list_failures");
    etcd.stop();
    eventually(|| counted(&mut observer, "list_failures") > failures);
    load.more(|seen| &seen.hits, 500);
    assert_eq!(counted(&mut observer, "list_changes"), 1);
    load.end();
}

#[test]
fn a_server_that_moves_and_a_name_server_that_fails_cost_a_pool_under_load_misses_alone() {
    let addresses = two_addresses();
    let servers = addresses.map(server_at);
    let names = NameServer::start();
    names.put("cache.example", A, records(&addresses[..1]));
    let list = FleetSettings {
        resolvers: vec![names.address()],
        refresh: Duration::from_millis(100),
        settle: Duration::ZERO,
        ..fleet(
            vec![Source::parse(&format!("dns:cache.example:{}", addresses[0].port())).expect("a source")],
            Protocol::Meta,
        )
    };
    let server = start(before(list));
    let mut observer = observer(&server);
    let load = Load::start(&server, Vec::new());
    load.more(|seen| &seen.hits, 200);
    names.put("cache.example", A, records(&addresses[1..]));
    let mut moved_to = Client::connect(&servers[1]);
    eventually(|| moved_to.number("curr_items") > 20);
    load.more(|seen| &seen.hits, 200);
    let failures = counted(&mut observer, "list_failures");
    names.clear();
    eventually(|| counted(&mut observer, "list_failures") > failures + 1);
    load.more(|seen| &seen.hits, 200);
    assert_eq!(counted(&mut observer, "list_changes"), 2);
    load.end();
}

#[test]
fn a_server_listed_twice_is_refused_and_one_that_weighs_nothing_is_asked_nothing() {
    let real = [memcached(), memcached()];
    let spec = |index: usize| ServerSpec::new("127.0.0.1", Spawned::port(&real[index]));
    let twice = vec![Source::Server(spec(0)), Source::Server(spec(0))];
    let error = Server::start(before(fleet(twice, Protocol::Text))).expect_err("it does not start").to_string();
    assert!(error.ends_with(&format!("{} is listed twice", real[0].address())), "{error}");
    let nothing = vec![Source::Server(spec(0).weighing(0)), Source::Server(spec(1))];
    let server = start(before(fleet(nothing, Protocol::Text)));
    let load = Load::start(&server, Vec::new());
    load.more(|seen| &seen.hits, 200);
    load.end();
    let mut direct = Client::of_port(real[0].port());
    assert_eq!(direct.number("cmd_set") + direct.number("cmd_get"), 0);
}
