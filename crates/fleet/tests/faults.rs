//! One fault at a time, with load running: no value is ever another key's, every call ends in its time, keys of other
//! servers notice nothing, and the counters say what happened. A program of its own: limits of some tens of milliseconds are held
//! here, which the tests of other things beside it would use up.

mod real;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nuthatch_fleet::client::{Client, Config, Modulo, OnDown, Protocol, ServerState, ServerStats, Want};
use nuthatch_testkit::{Fault, Faulty, Spawned};
use real::{HOUR, Hindered, addr, block_on, memcached, servers, until};

/// What the limits below allow a call, and ten times as much again for a machine that is busy with other things.
const CALL_MAX: Duration = Duration::from_millis(2500);

/// How many keys the load uses.
const KEYS: usize = 200;

/// Limits short enough for tests.
fn limits(config: Config) -> Config {
    Config {
        connect_timeout: Duration::from_millis(60),
        read_timeout: Duration::from_millis(60),
        timeout: Duration::from_millis(200),
        failure_limit: 2,
        retry_timeout: Duration::from_millis(30),
        dead_timeout: Duration::from_millis(120),
        ramp: Duration::from_millis(100),
        ..config
    }
}

/// Two servers that behave and one behind a proxy that may not.
struct Scene {
    real: Vec<Spawned>,
    faulty: Faulty,
    client: Client,
    load: Rc<Load>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// What the tasks that make up the load have seen.
#[derive(Default)]
struct Load {
    stopped: Cell<bool>,
    calls: Cell<u64>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    errors: RefCell<Vec<String>>,
    slowest: Cell<Duration>,
}

impl Scene {
    /// Must be called on a local set.
    async fn start(protocol: Protocol, change: impl FnOnce(Config) -> Config) -> Scene {
        let real: Vec<Spawned> = (0..3).map(|_| memcached()).collect();
        let faulty = Faulty::before(real[0].address());
        let list = vec![addr(&faulty.address()), addr(real[1].address()), addr(real[2].address())];
        let config = change(limits(Config { protocol, ..Config::new(servers(list)) }));
        let client = Client::new(config).unwrap();
        for key in (0..KEYS).map(|n| format!("load:{n}")) {
            client.set(key.as_bytes(), &value(&key, 1), 0, 0).await.unwrap();
        }
        let load = Rc::new(Load::default());
        let task = |task| {
            let (client, load) = (client.clone(), load.clone());
            let faulty = addr(&faulty.address()).to_string();
            tokio::task::spawn_local(async move { load.run(&client, task, &faulty).await })
        };
        let tasks = (0..12).map(task).collect();
        Scene { real, faulty, client, load, tasks }
    }

    /// What was counted about the server behind the proxy.
    fn counters(&self) -> ServerStats {
        self.client.counters().remove(0)
    }

    /// Waits until so many more calls have ended.
    async fn calls(&self, count: u64) {
        let enough = self.load.calls.get() + count;
        until("calls go on ending", || self.load.calls.get() >= enough || self.has_failed()).await;
        assert!(!self.has_failed(), "the load has ended");
    }

    /// Waits until the server behind the proxy has all its keys back, and they are hits again.
    async fn recovers(&mut self) {
        self.faulty.set(Fault::None);
        until("the server is up again", || self.counters().state == ServerState::Up).await;
        self.load.errors.borrow_mut().clear();
        let answers = self.counters().answers;
        until("the server is asked again", || self.counters().answers > answers + 100).await;
        let hits = self.load.hits.get();
        until("values are there again", || self.load.hits.get() > hits + 200).await;
    }

    /// Whether one of the tasks has seen what may not be.
    fn has_failed(&self) -> bool {
        self.tasks.iter().any(|task| task.is_finished())
    }

    async fn end(self) {
        self.load.stopped.set(true);
        for task in self.tasks {
            task.await.expect("no task has seen what may not be");
        }
        let slowest = self.load.slowest.get();
        assert!(slowest < CALL_MAX, "a call took {slowest:?}");
        for other in &self.client.counters()[1..] {
            let troubles = other.losses + other.garbage + other.silences + other.connect_errors + other.ejections;
            assert_eq!(troubles, 0, "a server that behaved is blamed: {other:?}");
        }
    }
}

impl Load {
    async fn run(&self, client: &Client, task: usize, faulty: &str) {
        let mut round = task;
        while !self.stopped.get() {
            round += 1;
            let keys: Vec<String> =
                (0..8).map(|n| format!("load:{}", (round * 5 + round / 4 + n * 7) % KEYS)).collect();
            let key = keys[0].as_bytes();
            match round % 4 {
                0 => self.note(faulty, client.set(key, &value(&keys[0], round), 0, 0)).await.map(drop),
                1 => {
                    let asked: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
                    let answers = self.timed(client.get_many(&asked, Want::VALUE)).await;
                    for (key, answer) in keys.iter().zip(answers) {
                        self.check(key, self.seen(faulty, answer).flatten());
                    }
                    None
                }
                _ => {
                    let item = self.note(faulty, client.get(key, Want::ALL)).await;
                    self.check(&keys[0], item.flatten());
                    None
                }
            };
            // Without it a refusal at once would keep the other tasks, and the test, from ever running.
            tokio::task::yield_now().await;
        }
    }

    async fn timed<T>(&self, call: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let answer = call.await;
        self.slowest.set(self.slowest.get().max(start.elapsed()));
        self.calls.set(self.calls.get() + 1);
        answer
    }

    async fn note<T>(
        &self,
        faulty: &str,
        call: impl Future<Output = Result<T, nuthatch_fleet::client::Error>>,
    ) -> Option<T> {
        let answer = self.timed(call).await;
        self.seen(faulty, answer)
    }

    fn seen<T>(&self, faulty: &str, answer: Result<T, nuthatch_fleet::client::Error>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                assert_eq!(error.server(), Some(faulty), "an error that names another server: {error}");
                let mut errors = self.errors.borrow_mut();
                if errors.len() < 10_000 {
                    errors.push(error.to_string());
                }
                None
            }
        }
    }

    fn check(&self, key: &str, item: Option<nuthatch_fleet::client::Item>) {
        let Some(item) = item else {
            self.misses.set(self.misses.get() + 1);
            return;
        };
        self.hits.set(self.hits.get() + 1);
        let text = String::from_utf8_lossy(&item.value);
        assert!(text.starts_with(&format!("{key}=")) && text.ends_with('.'), "{key} has the value {text}");
    }
}

/// A value that tells whose it is, and whether it is whole.
fn value(key: &str, round: usize) -> Vec<u8> {
    format!("{key}={}{}.", "v".repeat(round % 300), round).into_bytes()
}

/// Load, the fault, what it has to lead to, and the time after it.
fn strike(protocol: Protocol, fault: Fault, what: &str, happened: impl Fn(&ServerStats) -> bool, says: &str) {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let mut scene = Scene::start(protocol, |config| config).await;
        scene.calls(300).await;
        assert_eq!(scene.load.errors.borrow().len(), 0);
        scene.faulty.set(fault);
        until(what, || happened(&scene.counters())).await;
        scene.calls(100).await;
        let errors = scene.load.errors.borrow().clone();
        assert!(errors.iter().any(|error| error.contains(says)), "none of {errors:?} says {says:?}");
        scene.recovers().await;
        scene.end().await;
    }));
}

#[test]
fn a_server_that_refuses_connections_is_given_up_and_taken_back() {
    let happened = |stats: &ServerStats| stats.connect_errors > 0 && stats.ejections > 0 && stats.down > 0;
    strike(Protocol::Text, Fault::Refuse, "connections are refused", happened, "cannot be connected to");
}

#[test]
fn a_server_behind_a_half_open_connection_is_given_up_and_taken_back() {
    let happened = |stats: &ServerStats| stats.silences > 1 && stats.ejections > 0 && stats.probes > 0;
    for protocol in [Protocol::Text, Protocol::Binary] {
        strike(protocol, Fault::Hang, "silence is noticed", happened, "answered nothing within 60 ms");
    }
}

#[test]
fn a_server_that_answers_too_late_is_given_up_and_taken_back() {
    let fault = Fault::Delay(Duration::from_millis(150));
    let happened = |stats: &ServerStats| stats.silences > 0 && stats.ejections > 0;
    strike(Protocol::Meta, fault, "lateness is noticed", happened, "answered nothing within 60 ms");
}

#[test]
fn a_server_that_trickles_is_given_up_and_taken_back() {
    let happened = |stats: &ServerStats| stats.silences > 0 && stats.ejections > 0;
    strike(Protocol::Text, Fault::Slow(Duration::from_millis(5)), "trickling is noticed", happened, "answered nothing");
}

#[test]
fn garbage_ends_the_connection_and_is_shown() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let happened = |stats: &ServerStats| stats.garbage > 1 && stats.ejections > 0;
        strike(protocol, Fault::Garbage, "garbage is noticed", happened, "sent \"HTTP/1.1 400 Bad Request");
    }
}

#[test]
fn values_of_another_key_end_the_connection() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let happened = |stats: &ServerStats| stats.garbage > 1;
        let says = "expected the value of the key that was asked for";
        strike(protocol, Fault::OtherKey, "the other key is noticed", happened, says);
    }
}

#[test]
fn a_value_that_is_cut_is_never_shown() {
    for protocol in [Protocol::Text, Protocol::Binary] {
        let happened = |stats: &ServerStats| stats.losses > 1;
        strike(protocol, Fault::Cut, "the cut is noticed", happened, "ended the connection before it answered");
    }
}

#[test]
fn a_server_that_closes_after_each_answer_is_connected_to_again() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let mut scene = Scene::start(Protocol::Text, |config| Config { failure_limit: 1000, ..config }).await;
        scene.calls(300).await;
        scene.faulty.set(Fault::CloseEach);
        let hits = scene.load.hits.get();
        until("it is connected to again and again", || scene.counters().connects > 20).await;
        until("reads still find values", || scene.load.hits.get() > hits + 50).await;
        let stats = scene.counters();
        assert!(stats.losses + stats.closes > 10, "{stats:?}");
        scene.recovers().await;
        scene.end().await;
    }));
}

#[test]
fn a_server_that_is_merely_slow_fails_nobody() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let roomy =
            |config| Config { read_timeout: Duration::from_secs(5), timeout: Duration::from_secs(10), ..config };
        let mut scene = Scene::start(Protocol::Text, roomy).await;
        scene.calls(300).await;
        scene.faulty.set(Fault::Delay(Duration::from_millis(20)));
        let before = scene.client.counters();
        until("slow answers come", || scene.counters().answers > before[0].answers + 50).await;
        assert_eq!(scene.load.errors.borrow().len(), 0);
        let after = scene.client.counters();
        let mean_us =
            |n: usize| (after[n].latency_us - before[n].latency_us) / (after[n].answers - before[n].answers).max(1);
        assert!(mean_us(0) >= 10_000, "{} us", mean_us(0));
        assert_eq!((after[0].ejections, after[0].silences), (0, 0));
        // The others' keys wait for nobody.
        assert!(mean_us(1).max(mean_us(2)) < mean_us(0), "{} us and {} us", mean_us(1), mean_us(2));
        scene.recovers().await;
        scene.end().await;
    }));
}

#[test]
fn a_server_that_comes_back_empty_is_misses_and_no_errors() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let mut scene = Scene::start(Protocol::Meta, |config| config).await;
        scene.calls(300).await;
        let empty = memcached();
        scene.faulty.lead_to(empty.address());
        scene.real[0] = empty;
        let misses = scene.load.misses.get();
        scene.calls(100).await;
        until("its keys are misses", || scene.load.misses.get() > misses).await;
        scene.recovers().await;
        let stats = scene.counters();
        assert!(stats.connects >= 2 && stats.ejections == 0 && stats.garbage == 0, "{stats:?}");
        scene.end().await;
    }));
}

#[test]
fn a_server_at_another_address_keeps_its_place_and_the_others_their_connections() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let scene = Scene::start(Protocol::Text, |config| config).await;
        scene.calls(300).await;
        let moved = Faulty::before(scene.real[0].address());
        let list = vec![addr(&moved.address()), addr(scene.real[1].address()), addr(scene.real[2].address())];
        scene.client.set_servers(&servers(list));
        until("the new address is asked", || scene.counters().answers > 50).await;
        // What it held is held still, and those that stayed were not connected to again.
        scene.calls(300).await;
        assert_eq!(scene.load.misses.get(), 0);
        assert!(scene.client.counters()[1..].iter().all(|stats| stats.connects == 1));
        assert_eq!(scene.load.errors.borrow().len(), 0);
        scene.end().await;
    }));
}

#[test]
fn keys_of_a_server_that_is_down_are_misses_where_that_is_wanted() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let mut scene = Scene::start(Protocol::Text, |config| Config { on_down: OnDown::Miss, ..config }).await;
        scene.calls(300).await;
        scene.faulty.set(Fault::Refuse);
        until("it is down", || scene.counters().ejections > 0).await;
        let place = Modulo::of(3);
        let key = (0..).map(|n| format!("load:{n}")).find(|key| place.first(key.as_bytes()) == 0).unwrap();
        until("reads are misses", || scene.counters().down > 10).await;
        let write = scene.client.set(key.as_bytes(), b"v", 0, 0).await;
        assert!(write.is_err() || scene.counters().state != ServerState::Down, "{write:?}");
        scene.recovers().await;
        scene.end().await;
    }));
}

#[test]
fn keys_of_a_server_that_is_down_go_to_the_next_and_come_back() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let mut scene = Scene::start(Protocol::Binary, |config| Config { on_down: OnDown::Next, ..config }).await;
        scene.calls(300).await;
        scene.faulty.set(Fault::Hang);
        until("it is down", || scene.counters().ejections > 0).await;
        // What was under way then has failed with it, and its tasks have yet to say so: each has its turn in that time.
        scene.calls(100).await;
        scene.load.errors.borrow_mut().clear();
        let hits = scene.load.hits.get();
        until("its keys are found elsewhere", || scene.load.hits.get() > hits + 1000).await;
        assert_eq!(scene.load.errors.borrow().len(), 0, "nothing fails while another server has the keys");
        scene.recovers().await;
        scene.end().await;
    }));
}

#[test]
fn keys_of_a_server_that_is_down_live_shortly_on_a_spare_one() {
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let spare = memcached();
        let on_down = OnDown::Spare { servers: servers(vec![addr(spare.address())]), ttl_seconds_max: 5 };
        let mut scene = Scene::start(Protocol::Meta, |config| Config { on_down, ..config }).await;
        scene.calls(300).await;
        scene.faulty.set(Fault::Hang);
        until("the spare server is asked", || scene.client.counters()[3].answers > 200).await;
        let mut found = 0;
        let direct =
            Client::new(Config { protocol: Protocol::Meta, ..Config::new(servers(vec![addr(spare.address())])) });
        let direct = direct.unwrap();
        for n in 0..KEYS {
            if let Some(item) = direct.get(format!("load:{n}").as_bytes(), Want::ALL).await.unwrap() {
                assert!(matches!(item.ttl, nuthatch_fleet::client::Ttl::Seconds(0..=5)), "{:?}", item.ttl);
                found += 1;
            }
        }
        assert!(found > 0, "no key was kept by the spare server");
        scene.recovers().await;
        scene.end().await;
    }));
}

#[test]
fn a_call_ends_with_the_tick_of_its_deadline_whatever_the_server_does() {
    block_on(async {
        let mut server = Hindered::start();
        server.faulty.set(Fault::Hang);
        let client = Client::new(server.timeless()).unwrap();
        let start = Instant::now();
        let (get, ticks) = tokio::join!(client.get(b"key", Want::VALUE), async {
            until("the request is under way", || client.counters()[0].bytes_out > 0).await;
            client.tick(start + HOUR - Duration::from_secs(1));
            assert_eq!(client.counters()[0].silences, 0);
            client.tick(start + 2 * HOUR);
            client.counters()[0].timeouts
        });
        let error = get.unwrap_err().to_string();
        assert!(error.ends_with("did not answer within the 3600000 ms of an operation"), "{error}");
        // The connection is given up when a second tick finds it as it was.
        assert_eq!(client.counters()[0].silences, 0);
        client.tick(start + 2 * HOUR);
        assert_eq!(client.counters()[0].silences, 1);
        assert_eq!(ticks, 1);
    });
}

#[test]
fn more_requests_than_may_wait_are_refused_at_once() {
    block_on(async {
        let mut server = Hindered::start();
        server.faulty.set(Fault::Hang);
        let config = Config { queue_requests_max: 10, ..limits(server.config()) };
        let client = Client::new(config).unwrap();
        let calls: Vec<_> = (0..15)
            .map(|n| {
                let client = client.clone();
                tokio::spawn(async move { client.get(format!("k{n}").as_bytes(), Want::VALUE).await })
            })
            .collect();
        let mut busy = 0;
        for call in calls {
            let error = call.await.unwrap().unwrap_err().to_string();
            busy += usize::from(error.ends_with("has all the requests waiting that may wait for it"));
        }
        assert_eq!((busy, client.counters()[0].busy), (5, 5));
    });
}

#[test]
fn a_call_that_is_given_up_leaves_its_answer_to_nobody() {
    block_on(async {
        let real = memcached();
        let client = Client::new(Config::new(servers(vec![addr(real.address())]))).unwrap();
        client.set(b"a", b"1", 0, 0).await.unwrap();
        client.set(b"b", b"2", 0, 0).await.unwrap();
        for _ in 0..100 {
            let given_up = tokio::time::timeout(Duration::ZERO, client.get(b"a", Want::VALUE)).await;
            assert!(given_up.is_err() || given_up.is_ok_and(|item| item.unwrap().unwrap().value == b"1"[..]));
            assert_eq!(client.get(b"b", Want::VALUE).await.unwrap().unwrap().value, b"2"[..]);
        }
        assert_eq!(client.counters()[0].in_flight, 0);
    });
}
