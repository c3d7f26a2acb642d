//! Copies, other fleets, and lists of servers that change: what is asked of more than one server.

use std::time::{Duration, Instant};

use crate::real::{Fleet, HOUR, addr, block_on, memcached, servers, until};
use nuthatch_fleet::client::{
    Arith, Client, Config, Item, Protocol, ReadFrom, Role, ServerAddr, ServerState, Servers, Shadow, Source, Store,
    Ttl, Verb, Want, Write, Written,
};
use nuthatch_fleet::placement::Placement;
use nuthatch_fleet::{Distribution, FleetSettings, OnFailure, PlacementSettings, ServerSpec};
use nuthatch_testkit::{Fault, Faulty};

/// A client of one of a fleet's servers alone.
fn alone(fleet: &Fleet, server: usize) -> Client {
    let list = servers(vec![addr(fleet.servers[server].address())]);
    Client::new(Config { protocol: Protocol::Meta, ..Config::new(list) }).unwrap()
}

async fn value(client: &Client, key: &str) -> Option<String> {
    let item = client.get(key.as_bytes(), Want::ALL).await.unwrap();
    item.map(|item| String::from_utf8(item.value.to_vec()).unwrap())
}

async fn set(client: &Client, key: &str, value: &str) {
    client.set(key.as_bytes(), value.as_bytes(), 3, 1000).await.unwrap();
}

/// A key whose own server is this one of so many.
fn key_of(server: usize, count: usize) -> String {
    let place = nuthatch_fleet::client::Modulo::of(count);
    (0..).map(|n| format!("key:{n}")).find(|key| place.first(key.as_bytes()) == server).unwrap()
}

#[test]
fn every_copy_is_written_and_a_missing_one_is_put_back() {
    let fleet = Fleet::start(3);
    for read_from in [ReadFrom::First, ReadFrom::Nearest] {
        block_on(async {
            let config = Config { replicas: 1, read_from, ..fleet.config(Protocol::Meta) };
            let client = Client::new(config).unwrap();
            let (first, second, third) = (alone(&fleet, 0), alone(&fleet, 1), alone(&fleet, 2));
            client.flush_all(None).await.unwrap();
            let key = &*key_of(0, 3);
            set(&client, key, "one").await;
            for copy in [&first, &second] {
                assert_eq!(value(copy, key).await.as_deref(), Some("one"));
            }
            assert_eq!(value(&third, key).await, None);

            // One copy is lost: the other is read, and puts it back with the time it has left. The read of the lost one
            // comes first either way until it has been seen to be lost.
            first.flush_all(None).await.unwrap();
            assert_eq!(value(&client, key).await.as_deref(), Some("one"));
            if read_from == ReadFrom::First {
                let deadline = Instant::now() + Duration::from_secs(20);
                let item = loop {
                    if let Some(item) = first.get(key.as_bytes(), Want::ALL).await.unwrap() {
                        break item;
                    }
                    assert!(Instant::now() < deadline, "the copy is not put back");
                };
                assert_eq!((&item.value[..], item.flags), (&b"one"[..], 3));
                assert!(matches!(item.ttl, Ttl::Seconds(900..=1000)), "{:?}", item.ttl);
            }

            set(&client, key, "two").await;
            assert_eq!(value(&first, key).await.as_deref(), Some("two"));
            assert!(client.delete(key.as_bytes()).await.unwrap());
            assert!(!client.delete(key.as_bytes()).await.unwrap());
            for copy in [&first, &second] {
                assert_eq!(value(copy, key).await, None);
            }

            // What depends on what is there is the first server's to decide, and no other copy is out of date after it.
            assert!(client.add(key.as_bytes(), b"5", 0, 0).await.unwrap());
            assert!(!client.add(key.as_bytes(), b"6", 0, 0).await.unwrap());
            assert_eq!(value(&second, key).await.as_deref(), Some("5"));
            assert_eq!(client.incr(key.as_bytes(), 2).await.unwrap(), Some(7));
            assert_eq!((value(&first, key).await.as_deref(), value(&second, key).await), (Some("7"), None));
            let cas = client.get(key.as_bytes(), Want::CAS).await.unwrap().unwrap().cas;
            assert!(matches!(client.cas(key.as_bytes(), b"8", 0, 0, cas).await, Ok(Written::Done { .. })));
            assert_eq!(client.cas(key.as_bytes(), b"9", 0, 0, cas).await, Ok(Written::Exists));
            for copy in [&first, &second] {
                assert_eq!(value(copy, key).await.as_deref(), Some("8"));
            }
            let many = client.get_many(&[key.as_bytes(), b"none"], Want::VALUE).await;
            assert_eq!(many[0].clone().unwrap().unwrap().value, b"8"[..]);
            assert_eq!(many[1], Ok(None));
        });
    }
}

#[test]
fn copies_are_read_while_a_server_fails_and_while_it_is_down() {
    let fleet = Fleet::start(2);
    block_on(async {
        let mut faulty = Faulty::before(fleet.servers[0].address());
        let list = servers(vec![addr(&faulty.address()), addr(fleet.servers[1].address())]);
        let config = Config {
            replicas: 1,
            read_timeout: Duration::from_millis(50),
            timeout: Duration::from_secs(2),
            failure_limit: 3,
            retry_timeout: HOUR,
            dead_timeout: HOUR,
            ..Config::new(list)
        };
        let client = Client::new(config).unwrap();
        let key = &*key_of(0, 2);
        set(&client, key, "held").await;
        faulty.set(Fault::Hang);
        for _ in 0..20 {
            assert_eq!(value(&client, key).await.as_deref(), Some("held"));
        }
        assert_eq!(client.counters()[0].state, ServerState::Down);
        assert_eq!(client.counters()[0].silences, 3);
        // Writes go to those that are up.
        set(&client, key, "newer").await;
        assert_eq!(value(&client, key).await.as_deref(), Some("newer"));
        assert_eq!(value(&alone(&fleet, 0), key).await.as_deref(), Some("held"));
    });
}

#[test]
fn a_cold_fleet_is_filled_from_a_warm_one() {
    let (cold, warm) = (Fleet::start(2), Fleet::start(3));
    block_on(async {
        let warm = Client::new(warm.config(Protocol::Meta)).unwrap();
        let source = Some(Source { client: warm.clone(), role: Role::Warm });
        let client = Client::new(Config { source, ..cold.config(Protocol::Meta) }).unwrap();
        let plain = Client::new(cold.config(Protocol::Meta)).unwrap();
        set(&warm, "bird", "nuthatch").await;
        warm.set(b"ever", b"green", 0, 0).await.unwrap();
        assert_eq!(value(&client, "bird").await.as_deref(), Some("nuthatch"));
        assert_eq!(value(&client, "ever").await.as_deref(), Some("green"));
        assert_eq!(value(&client, "none").await, None);
        // The answer does not wait for the fill, but what comes after it on the same connection does.
        assert!(client.incr(b"bird", 1).await.unwrap_err().server().is_some());
        let item = plain.get(b"bird", Want::ALL).await.unwrap().unwrap();
        assert_eq!((item.flags, &item.value[..]), (3, &b"nuthatch"[..]));
        assert!(matches!(item.ttl, Ttl::Seconds(900..=1000)), "{:?}", item.ttl);
        // With a CAS unique it is this fleet's.
        set(&warm, "unique", "v").await;
        let cas = client.get(b"unique", Want::CAS).await.unwrap().unwrap().cas;
        assert!(matches!(client.cas(b"unique", b"w", 0, 0, cas).await, Ok(Written::Done { .. })));
        // Stores stay here, deletes go to both.
        set(&client, "bird", "creeper").await;
        assert_eq!(value(&warm, "bird").await.as_deref(), Some("nuthatch"));
        assert!(client.delete(b"bird").await.unwrap());
        assert_eq!((value(&warm, "bird").await, value(&client, "bird").await), (None, None));
        let many = client.get_many(&[b"none", b"ever", b"unique"], Want::VALUE).await;
        let many: Vec<Option<Item>> = many.into_iter().map(Result::unwrap).collect();
        assert_eq!(many[0], None);
        assert_eq!(
            (&many[1].as_ref().unwrap().value[..], &many[2].as_ref().unwrap().value[..]),
            (&b"green"[..], &b"w"[..])
        );
    });
}

#[test]
fn servers_are_added_without_a_miss() {
    let fleet = Fleet::start(4);
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        block_on(async {
            let list =
                |count: usize| servers(fleet.servers[..count].iter().map(|server| addr(server.address())).collect());
            Client::new(Config::new(list(4))).unwrap().flush_all(None).await.unwrap();
            let client = Client::new(Config { protocol, ..Config::new(list(2)) }).unwrap();
            let keys: Vec<String> = (0..300).map(|n| format!("moved:{n}")).collect();
            for key in &keys {
                client.set(key.as_bytes(), b"10", 0, 1000).await.unwrap();
            }
            let connected = |client: &Client| client.counters().iter().map(|stats| stats.connects).collect::<Vec<_>>();
            assert_eq!(connected(&client), [1, 1]);
            client.migrate(&list(4), HOUR).unwrap();
            for (n, key) in keys.iter().enumerate().take(250) {
                let key = key.as_bytes();
                match n % 5 {
                    0 => assert_eq!(client.get(key, Want::CAS).await.unwrap().unwrap().value, b"10"[..]),
                    1 => assert_eq!(client.incr(key, 1).await.unwrap(), Some(11)),
                    2 => assert!(client.delete(key).await.unwrap()),
                    3 => client.set(key, b"new", 0, 0).await.unwrap(),
                    _ => assert!(!client.add(key, b"add", 0, 0).await.unwrap()),
                }
            }
            assert_eq!(&connected(&client)[..2], [1, 1], "servers that stay keep their connections");
            let check = async |client: &Client, until: usize| {
                let asked: Vec<&[u8]> = keys[..until].iter().map(|key| key.as_bytes()).collect();
                for (n, answer) in client.get_many(&asked, Want::VALUE).await.into_iter().enumerate() {
                    let expected = match n % 5 {
                        _ if n >= 250 => Some("10"),
                        0 | 4 => Some("10"),
                        1 => Some("11"),
                        2 => None,
                        _ => Some("new"),
                    };
                    let value = answer.unwrap().map(|item| item.value);
                    assert_eq!(value.as_deref(), expected.map(str::as_bytes), "{}", keys[n]);
                }
            };
            check(&client, 290).await;
            // When the time is over nothing is asked of the old places, and all that was used has moved.
            until("what was brought over is stored", || client.counters().iter().all(|stats| stats.in_flight == 0))
                .await;
            client.tick(Instant::now() + 2 * HOUR);
            let requests = client.counters().iter().map(|stats| stats.requests).sum::<u64>();
            check(&client, 290).await;
            let asked = client.counters().iter().map(|stats| stats.requests).sum::<u64>() - requests;
            assert!(asked <= 12, "{asked} requests for 290 keys of 4 servers");
            let left: Vec<&[u8]> = keys[290..].iter().map(|key| key.as_bytes()).collect();
            let misses = client.get_many(&left, Want::VALUE).await.into_iter().filter(|item| item == &Ok(None)).count();
            assert!(misses > 0, "what was not used has not moved");
        });
    }
}

#[test]
fn a_deleted_item_is_not_brought_over_by_a_reader_that_passed_the_delete() {
    let fleet = Fleet::start(2);
    block_on(async {
        let old = alone(&fleet, 0);
        let source = Some(Source { client: old.clone(), role: Role::Migrate(HOUR) });
        let list = servers(vec![addr(fleet.servers[1].address())]);
        let client = Client::new(Config { source, ..Config::new(list) }).unwrap();
        for round in 0..200 {
            let key = format!("raced:{round}");
            set(&old, &key, "old").await;
            let readers: Vec<_> = (0..8)
                .map(|n| {
                    let (client, key) = (client.clone(), key.clone());
                    tokio::spawn(async move {
                        for _ in 0..n {
                            tokio::task::yield_now().await;
                        }
                        client.get(key.as_bytes(), Want::VALUE).await.unwrap();
                    })
                })
                .collect();
            for _ in 0..round % 12 {
                tokio::task::yield_now().await;
            }
            assert!(client.delete(key.as_bytes()).await.unwrap(), "{key} was there");
            for reader in readers {
                reader.await.unwrap();
            }
            assert_eq!(value(&client, &key).await, None, "{key} was deleted");
        }
    });
}

#[test]
fn a_shadow_gets_its_share_and_nobody_waits_for_it() {
    let (fleet, shadowed) = (Fleet::start(2), Fleet::start(1));
    block_on(async {
        let mut faulty = Faulty::before(shadowed.servers[0].address());
        let shadow = |share| {
            let client = Client::new(Config::new(servers(vec![addr(&faulty.address())]))).unwrap();
            Some(Shadow { client, share })
        };
        let direct = alone(&shadowed, 0);
        for (share, expected) in [(0.0, 0..=0), (0.5, 60..=140), (1.0, 200..=200)] {
            direct.flush_all(None).await.unwrap();
            let config = Config { shadow: shadow(share), ..fleet.config(Protocol::Text) };
            let client = Client::new(config.clone()).unwrap();
            for n in 0..200 {
                set(&client, &format!("shadow:{n}"), "v").await;
            }
            let shadow = config.shadow.unwrap().client;
            until("the shadow has answered", || shadow.counters()[0].in_flight == 0).await;
            let mut found = 0;
            for n in 0..200 {
                found += usize::from(value(&direct, &format!("shadow:{n}")).await.is_some());
            }
            assert!(expected.contains(&found), "{found} of 200 keys with a share of {share}");
        }
        let config = Config { shadow: shadow(1.0), ..fleet.config(Protocol::Text) };
        let client = Client::new(config).unwrap();
        faulty.set(Fault::Hang);
        let start = Instant::now();
        for n in 0..50 {
            assert_eq!(value(&client, &format!("shadow:{n}")).await.as_deref(), Some("v"));
        }
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}: a read waits for the shadow", start.elapsed());
    });
}

#[test]
fn only_keys_that_must_move_move_and_a_server_that_goes_answers_what_it_was_asked() {
    let fleet = Fleet::start(4);
    block_on(async {
        let specs: Vec<ServerSpec> =
            fleet.servers.iter().map(|server| ServerSpec::new("127.0.0.1", server.port())).collect();
        let settings = PlacementSettings { distribution: Distribution::KetamaWeighted, ..PlacementSettings::default() };
        let placed = |specs: &[ServerSpec]| Servers::from(Placement::new(&settings, specs).unwrap());
        let connections = || fleet.servers[3].connect().stat("curr_connections");
        let before = connections();
        let client = Client::new(Config::new(placed(&specs))).unwrap();
        let keys: Vec<String> = (0..400).map(|n| format!("ring:{n}")).collect();
        for key in &keys {
            set(&client, key, key).await;
        }
        // A call is under way on the server that goes.
        let gone = placed(&specs).place;
        let leaving = keys.iter().find(|key| gone.first(key.as_bytes()) == 3).unwrap();
        let mut call = std::pin::pin!(client.get(leaving.as_bytes(), Want::VALUE));
        let waits = std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending()));
        assert!(waits.await);
        client.set_servers(&placed(&specs[..3]));
        assert_eq!(call.await.unwrap().unwrap().value, leaving.as_bytes());
        let mut moved = 0;
        for key in &keys {
            match value(&client, key).await {
                Some(value) => assert_eq!(value, *key),
                None => {
                    assert_eq!(gone.first(key.as_bytes()), 3, "{key} moved without need");
                    moved += 1;
                }
            }
        }
        assert!((50..150).contains(&moved), "{moved} of 400 keys were on one of four servers");
        assert!(client.counters().iter().all(|stats| stats.connects == 1));
        until("the connection to the server that left is closed", || connections() == before).await;
    });
}

#[test]
fn a_fleets_settings_make_a_client() {
    let fleet = Fleet::start(3);
    block_on(async {
        let spec = |server: usize| ServerSpec::new("127.0.0.1", fleet.servers[server].port());
        let settings = FleetSettings {
            on_failure: OnFailure::Spare,
            spare: vec![spec(2)],
            protocol: Protocol::Meta,
            replicas: 1,
            ..FleetSettings::named("shared")
        };
        let config = Config::of(&settings, &[spec(0), spec(1)]).unwrap();
        assert_eq!((config.dead_timeout, config.replicas), (settings.retry_timeout, 1));
        let client = Client::new(config).unwrap();
        set(&client, "bird", "nuthatch").await;
        assert_eq!(value(&client, "bird").await.as_deref(), Some("nuthatch"));
        assert_eq!(client.counters().len(), 3);
        assert!(Config::of(&settings, &[]).is_err());
        let write = Write::Store(Store { verb: Verb::Append, key: b"bird", value: b"!", ..Store::default() });
        assert!(matches!(client.write(write).await, Ok(Written::Done { .. })));
        let arith = Write::Arith(Arith { key: b"n", delta: 1, initial: Some((1, 0)), ..Arith::default() });
        assert!(matches!(client.write(arith).await, Ok(Written::Number { value: 1, .. })));
    });
}

#[test]
fn a_server_started_again_is_asked_without_an_error_in_between() {
    block_on(async {
        let first = memcached();
        let faulty = Faulty::before(first.address());
        let client = Client::new(Config::new(servers(vec![addr(&faulty.address())]))).unwrap();
        set(&client, "k", "v").await;
        for _ in 0..20 {
            let next = memcached();
            faulty.lead_to(next.address());
            assert_eq!(value(&client, "k").await, None);
        }
        let stats = &client.counters()[0];
        assert_eq!((stats.ejections, stats.connects), (0, 21));
    });
}

#[test]
fn with_ejection_keys_live_where_they_would_without_the_server_also_those_of_others() {
    let fleet = Fleet::start(3);
    block_on(async {
        let mut faulty = Faulty::before(fleet.servers[1].address());
        let addresses = [fleet.servers[0].address(), &faulty.address(), fleet.servers[2].address()].map(|address| {
            let ServerAddr::Tcp { port, .. } = addr(address) else { panic!("it listens on TCP") };
            port
        });
        let weights = [1, 2, 9];
        let specs: Vec<ServerSpec> = addresses
            .iter()
            .zip(weights)
            .map(|(port, weight)| ServerSpec::new("127.0.0.1", *port).weighing(weight))
            .collect();
        let settings = FleetSettings {
            failure_limit: 1,
            auto_eject: true,
            timeout: Duration::from_secs(10),
            retry_timeout: Duration::from_millis(20),
            dead_timeout: Duration::from_millis(40),
            ..FleetSettings::named("shared")
        };
        let config = Config { ramp: Duration::ZERO, ..Config::of(&settings, &specs).unwrap() };
        let client = Client::new(config).unwrap();
        let all = Placement::new(&settings.placement, &specs).unwrap();
        let without = all.without(&[1].into_iter().collect());
        let keys: Vec<String> = (0..500).map(|n| format!("key:{n}")).collect();
        // Weights make more keys move than the server had; else there would be nothing to see here.
        let moved = |key: &&String| {
            all.server_of(key.as_bytes()) != 1 && without.server_of(key.as_bytes()) != all.server_of(key.as_bytes())
        };
        let moves = keys.iter().filter(moved).count();
        assert!(moves > 0, "no key of another server moves");

        faulty.set(Fault::Refuse);
        let direct = [0, 1, 2].map(|server| alone(&fleet, server));
        for placement in [&without, &all] {
            // A key is asked for before the server is out, and the tick that sees it comes within a few milliseconds.
            let deadline = Instant::now() + Duration::from_secs(20);
            'again: loop {
                for server in &direct {
                    server.flush_all(None).await.unwrap();
                }
                for key in &keys {
                    // What is on its way back may fail once more.
                    let _ = client.set(key.as_bytes(), b"1", 0, 0).await;
                }
                for key in &keys {
                    let server = placement.server_of(key.as_bytes());
                    if value(&direct[server], key).await.is_none() {
                        assert!(Instant::now() < deadline, "{key} is not on server {server}");
                        continue 'again;
                    }
                }
                break;
            }
            faulty.set(Fault::None);
        }
    });
}

#[test]
fn a_migration_ends_by_itself_and_has_counted_what_it_brought_over() {
    let (from, to) = (Fleet::start(1), Fleet::start(1));
    block_on(async {
        let old = Client::new(from.config(Protocol::Meta)).unwrap();
        set(&old, "a", "1").await;
        set(&old, "b", "1").await;
        let source = Some(Source { client: old.clone(), role: Role::Migrate(HOUR) });
        let config = Config { source, ticks: nuthatch_fleet::client::Ticks::Caller, ..to.config(Protocol::Meta) };
        let client = Client::new(config).unwrap();
        let start = Instant::now();
        assert_eq!(value(&client, "a").await.as_deref(), Some("1"));
        assert_eq!(value(&client, "none").await, None);
        assert_eq!(client.brought_over(), 1);
        client.tick(start + HOUR - Duration::from_secs(60));
        assert_eq!(value(&client, "b").await.as_deref(), Some("1"));
        client.tick(start + 2 * HOUR);
        set(&old, "c", "1").await;
        assert_eq!(value(&client, "c").await, None);
        assert_eq!(client.brought_over(), 2);
    });
}
