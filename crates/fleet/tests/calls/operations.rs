//! Every call, in every protocol, against real servers.

use crate::real::{Fleet, block_on};
use nuthatch_fleet::client::{
    Arith, Client, Error, MetaCode, MetaRequest, OnDown, Protocol, Store, Ttl, Verb, Want, Word, Write, Written,
};

const PROTOCOLS: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];

#[test]
fn every_operation_means_the_same_in_every_protocol() {
    let fleet = Fleet::start(2);
    for protocol in PROTOCOLS {
        block_on(async {
            let client = Client::new(fleet.config(protocol)).unwrap();
            client.flush_all(None).await.unwrap();
            let key = &b"key"[..];
            assert_eq!(client.get(key, Want::VALUE).await, Ok(None));
            client.set(key, b"value", 7, 0).await.unwrap();
            let item = client.get(key, Want::ALL).await.unwrap().unwrap();
            assert_eq!((&item.value[..], item.flags), (&b"value"[..], 7));
            assert_ne!(item.cas, 0);
            assert_eq!(item.ttl, if protocol == Protocol::Meta { Ttl::Forever } else { Ttl::Unknown });

            assert_eq!(client.add(key, b"other", 0, 0).await, Ok(false));
            assert_eq!(client.add(b"key2", b"", 0, 0).await, Ok(true));
            let replace = |key| Write::Store(Store { verb: Verb::Replace, key, value: b"mid", ..Store::default() });
            assert_eq!(client.write(replace(b"none")).await, Ok(Written::NotStored));
            assert!(matches!(client.write(replace(key)).await, Ok(Written::Done { .. })));
            for (verb, value) in [(Verb::Append, b">"), (Verb::Prepend, b"<")] {
                let join = |key| Write::Store(Store { verb, key, value, ..Store::default() });
                assert_eq!(client.write(join(b"none")).await, Ok(Written::NotStored));
                assert!(matches!(client.write(join(key)).await, Ok(Written::Done { .. })));
            }
            let item = client.get(key, Want::CAS).await.unwrap().unwrap();
            assert_eq!(item.value, b"<mid>"[..]);

            assert_eq!(client.cas(key, b"new", 0, 0, item.cas + 1).await, Ok(Written::Exists));
            assert_eq!(client.cas(b"none", b"new", 0, 0, 1).await, Ok(Written::NotFound));
            assert!(matches!(client.cas(key, b"new", 0, 0, item.cas).await, Ok(Written::Done { .. })));
            assert_eq!(client.get(key, Want::VALUE).await.unwrap().unwrap().value, b"new"[..]);

            assert_eq!(client.touch(b"none", 100).await, Ok(false));
            assert_eq!(client.touch(key, 100).await, Ok(true));
            let item = client.get_and_touch(key, 1000, Want::ALL).await.unwrap().unwrap();
            assert_eq!(item.value, b"new"[..]);
            if protocol == Protocol::Meta {
                assert!(matches!(item.ttl, Ttl::Seconds(999..=1000)), "{:?}", item.ttl);
            }
            assert_eq!(client.get_and_touch(b"none", 1000, Want::VALUE).await, Ok(None));

            assert_eq!(client.incr(b"none", 1).await, Ok(None));
            client.set(b"number", b"18446744073709551615", 0, 0).await.unwrap();
            assert_eq!(client.incr(b"number", 11).await, Ok(Some(10)));
            assert_eq!(client.decr(b"number", 3).await, Ok(Some(7)));
            assert_eq!(client.decr(b"number", 30).await, Ok(Some(0)));
            let refused = client.incr(key, 1).await.unwrap_err();
            assert!(matches!(refused, Error::Refused { .. }), "{refused}");
            assert!(refused.to_string().contains("on-numeric"), "{refused}");

            assert_eq!(client.delete(key).await, Ok(true));
            assert_eq!(client.delete(key).await, Ok(false));
            for (_, version) in client.version().await {
                assert!(version.unwrap().starts_with("1.6."));
            }
            for (_, stats) in client.stats(b"").await {
                assert!(stats.unwrap().iter().any(|(name, _)| name == "curr_items"));
            }
            client.flush_all(None).await.unwrap();
            assert_eq!(client.get(b"number", Want::VALUE).await, Ok(None));
        });
    }
}

#[test]
fn a_time_that_is_past_ends_an_item_in_every_protocol() {
    let fleet = Fleet::start(1);
    for protocol in PROTOCOLS {
        block_on(async {
            let client = Client::new(fleet.config(protocol)).unwrap();
            for time in [-1, i32::MIN, 1_432_250_000] {
                client.set(b"stored", b"value", 0, time).await.unwrap();
                for key in [&b"touched"[..], b"taken"] {
                    client.set(key, b"value", 0, 0).await.unwrap();
                }
                assert_eq!(client.touch(b"touched", time).await, Ok(true));
                client.get_and_touch(b"taken", time, Want::VALUE).await.unwrap();
                if protocol != Protocol::Text {
                    let initial = Some((5, time));
                    let counted = Write::Arith(Arith { key: b"counted", down: false, delta: 1, initial });
                    let counted = client.write(counted).await;
                    assert!(matches!(counted, Ok(Written::Number { value: 5, .. })), "{counted:?}");
                }
                for key in [&b"stored"[..], b"touched", b"taken", b"counted"] {
                    let found = client.get(key, Want::VALUE).await;
                    assert_eq!(found, Ok(None), "{protocol:?}, {time}: {}", key.escape_ascii());
                }
            }
        });
    }
}

#[test]
fn what_a_protocol_lacks_is_said_before_anything_is_sent() {
    let fleet = Fleet::start(1);
    block_on(async {
        let text = Client::new(fleet.config(Protocol::Text)).unwrap();
        let counted = Write::Arith(Arith { key: b"n", delta: 2, initial: Some((5, 0)), ..Arith::default() });
        for write in [counted, Write::Delete { key: b"n", cas: Some(1) }] {
            assert!(matches!(text.write(write).await, Err(Error::Unsupported { .. })));
        }
        for protocol in [Protocol::Meta, Protocol::Binary] {
            let client = Client::new(fleet.config(protocol)).unwrap();
            let _ = client.delete(b"n").await.unwrap();
            assert!(matches!(client.write(counted).await, Ok(Written::Number { value: 5, .. })));
            assert!(matches!(client.write(counted).await, Ok(Written::Number { value: 7, .. })));
            let cas = client.get(b"n", Want::CAS).await.unwrap().unwrap().cas;
            let delete = |cas| Write::Delete { key: b"n", cas: Some(cas) };
            assert_eq!(client.write(delete(cas + 1)).await, Ok(Written::Exists));
            assert!(matches!(client.write(delete(cas)).await, Ok(Written::Done { .. })));
        }
        let binary = Client::new(fleet.config(Protocol::Binary)).unwrap();
        let asked = MetaRequest { word: Word::Get, key: b"k", flags: b"v", value: b"" };
        assert!(matches!(binary.meta(asked).await, Err(Error::Unsupported { .. })));
    });
}

#[test]
fn answers_of_many_keys_stand_where_their_keys_stand() {
    let fleet = Fleet::start(3);
    for protocol in PROTOCOLS {
        block_on(async {
            let client = Client::new(fleet.config(protocol)).unwrap();
            let keys: Vec<String> = (0..500).map(|n| format!("many:{n}")).collect();
            for key in keys.iter().step_by(3) {
                client.set(key.as_bytes(), key.as_bytes(), 0, 0).await.unwrap();
            }
            let long = [b'k'; 251];
            let mut asked: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            asked.push(&long);
            asked.push(b"many:0");
            let answers = client.get_many(&asked, Want::CAS).await;
            assert_eq!(answers.len(), 502);
            for (n, key) in keys.iter().enumerate() {
                let value = answers[n].clone().unwrap().map(|item| item.value);
                assert_eq!(value.as_deref(), (n % 3 == 0).then_some(key.as_bytes()), "{key}");
            }
            assert!(matches!(answers[500], Err(Error::Request(_))));
            assert_eq!(answers[501].clone().unwrap().unwrap().value, b"many:0"[..]);
            // Long lists are split, and nothing is asked that need not be.
            let requests: u64 = client.counters().iter().map(|stats| stats.requests).sum();
            assert_eq!(requests, 167 + client.counters().iter().map(|_| 3).sum::<u64>());
        });
    }
}

#[test]
fn meta_commands_pass_through_with_their_flags() {
    let fleet = Fleet::start(2);
    for protocol in [Protocol::Text, Protocol::Meta] {
        block_on(async {
            let client = Client::new(fleet.config(protocol)).unwrap();
            client.flush_all(None).await.unwrap();
            let ask = async |word, key: &[u8], flags: &str, value: &[u8]| {
                let answer = client.meta(MetaRequest { word, key, flags: flags.as_bytes(), value }).await.unwrap();
                let flags = String::from_utf8(answer.flags.to_vec()).unwrap();
                (answer.code, flags, answer.value)
            };
            for key in [&b"key"[..], b"with space"] {
                let (code, flags, _) = ask(Word::Set, key, "F5 Oabc", b"value").await;
                assert_eq!((code, &flags[..]), (MetaCode::Hd, "Oabc"));
                let (code, flags, value) = ask(Word::Get, key, "f v s t", b"").await;
                assert_eq!((code, &flags[..], &value[..]), (MetaCode::Va, "f5 s5 t-1", &b"value"[..]));
                // memcached's `me` knows no base64.
                if key == b"key" {
                    let (code, flags, _) = ask(Word::Debug, key, "", b"").await;
                    assert_eq!(code, MetaCode::Me);
                    assert!(flags.starts_with("exp=-1 "), "{flags}");
                }
                let (code, ..) = ask(Word::Delete, key, "C1", b"").await;
                assert_eq!(code, MetaCode::Ex);
                let (code, ..) = ask(Word::Delete, key, "", b"").await;
                assert_eq!(code, MetaCode::Hd);
                let (code, ..) = ask(Word::Get, key, "v", b"").await;
                assert_eq!(code, MetaCode::En);
            }
            let (_, flags, _) = ask(Word::Set, b"key", "b k", b"").await;
            assert_eq!(flags, "k5 b".replace('5', "a2V5"));
            let (code, flags, value) = ask(Word::Arith, b"count", "N0 J5 v k", b"").await;
            assert_eq!((code, &flags[..], &value[..]), (MetaCode::Va, "kcount", &b"5"[..]));
            // memcached shows a key in base64 if it was stored so.
            let (_, flags, _) = ask(Word::Get, b"key", "k f", b"").await;
            assert_eq!(flags, "ka2V5 b f0");
            assert!(client.get(b"key", Want::VALUE).await.unwrap().is_some());
            let refused = client.meta(MetaRequest { word: Word::Get, key: b"key", flags: b"v v", value: b"" }).await;
            assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        });
    }
}

#[test]
fn writes_behind_are_all_there_after_a_flush_and_failures_are_counted() {
    let fleet = Fleet::start(2);
    for protocol in PROTOCOLS {
        block_on(async {
            // A bound that is reached, so that some of the writes have to wait for room.
            let config = nuthatch_fleet::client::Config { queue_bytes_max: 4096, ..fleet.config(protocol) };
            let client = Client::new(config).unwrap();
            client.flush_all(None).await.unwrap();
            let key = |n: usize| format!("behind:{n}");
            for n in 0..2000 {
                let key = key(n);
                let store = Store { key: key.as_bytes(), value: &[b'v'; 100], ..Store::default() };
                client.write_behind(Write::Store(store)).await.unwrap();
                if n == 1000 {
                    // Reads see what was written before them.
                    assert!(client.get(key.as_bytes(), Want::VALUE).await.unwrap().is_some());
                }
            }
            assert_eq!(client.flush().await, Ok(0));
            for n in 0..2000 {
                assert!(client.get(key(n).as_bytes(), Want::VALUE).await.unwrap().is_some());
            }
            // A condition that does not hold: servers are silent about it in the text protocol.
            let store = Store { verb: Verb::Add, key: b"behind:1", value: b"other", ..Store::default() };
            client.write_behind(Write::Store(store)).await.unwrap();
            client.write_behind(Write::Delete { key: b"behind:2", cas: None }).await.unwrap();
            let failures = client.flush().await.unwrap();
            assert_eq!(failures, u64::from(protocol != Protocol::Text));
            assert_eq!(client.get(b"behind:2", Want::VALUE).await, Ok(None));
            let counters = client.counters();
            assert_eq!(counters.iter().map(|stats| stats.quiet).sum::<u64>(), 2002);
            assert_eq!(counters.iter().map(|stats| stats.in_flight).sum::<u64>(), 0);
        });
    }
}

#[test]
fn large_values_and_long_queues_arrive_whole() {
    let fleet = Fleet::unix();
    for protocol in PROTOCOLS {
        block_on(async {
            let client = Client::new(fleet.config(protocol)).unwrap();
            let value: Vec<u8> = (0..900_000_u32).map(|n| (n / 7) as u8).collect();
            let tasks: Vec<_> = (0..40)
                .map(|n: usize| {
                    let (client, value) = (client.clone(), value.clone());
                    tokio::spawn(async move {
                        let (key, bytes) = (format!("large:{n}"), n * 20_000);
                        client.set(key.as_bytes(), &value[..bytes], 0, 0).await.unwrap();
                        for _ in 0..3 {
                            let item = client.get(key.as_bytes(), Want::VALUE).await.unwrap().unwrap();
                            assert!(item.value == value[..bytes], "{key}");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}

#[test]
fn values_beyond_the_bound_are_neither_sent_nor_taken() {
    let fleet = Fleet::start(1);
    block_on(async {
        let all = Client::new(fleet.config(Protocol::Text)).unwrap();
        all.set(b"large", &[b'v'; 20_000], 0, 0).await.unwrap();
        let config = nuthatch_fleet::client::Config { value_bytes_max: 1000, ..fleet.config(Protocol::Text) };
        let client = Client::new(config).unwrap();
        assert_eq!(
            client.set(b"large", &[b'v'; 1001], 0, 0).await.unwrap_err().to_string(),
            "the value has 1001 bytes, expected at most 1000"
        );
        let seen = client.get(b"large", Want::VALUE).await.unwrap_err().to_string();
        assert!(seen.contains("expected a value of at most 1000 bytes"), "{seen}");
    });
}

#[test]
fn a_client_needs_a_runtime_and_a_fleet_needs_servers() {
    let fleet = Fleet::start(1);
    assert_eq!(Client::new(fleet.config(Protocol::Text)).unwrap_err(), Error::NoRuntime);
    block_on(async {
        let config = fleet.config(Protocol::Text);
        let client = Client::new(config).unwrap();
        client.set_servers(&crate::real::servers(Vec::new()));
        assert_eq!(client.get(b"k", Want::VALUE).await, Err(Error::NoServers));
        let config = nuthatch_fleet::client::Config { on_down: OnDown::Miss, ..fleet.config(Protocol::Text) };
        let key = [b'k'; 251];
        let error = Client::new(config).unwrap().get(&key, Want::VALUE).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the key has 251 bytes, expected at most 250, or 187 if it must be sent in base64"
        );
    });
}

#[test]
fn a_namespace_is_in_front_of_every_key_and_is_never_shown() {
    let fleet = Fleet::start(2);
    for protocol in PROTOCOLS {
        block_on(async {
            let config = nuthatch_fleet::client::Config { namespace: b"ns:".to_vec(), ..fleet.config(protocol) };
            let client = Client::new(config).unwrap();
            client.flush_all(None).await.unwrap();
            client.set(b"bird", b"1", 0, 0).await.unwrap();
            let store = Store { key: b"behind", value: b"2", ..Store::default() };
            client.write_behind(Write::Store(store)).await.unwrap();
            assert_eq!(client.flush().await, Ok(0));
            for (key, value) in [("bird", "1"), ("behind", "2")] {
                let item = client.get(key.as_bytes(), Want::VALUE).await.unwrap().unwrap();
                assert_eq!(item.value, value.as_bytes());
            }
            // Placed by the key alone, so it is found on one of the two.
            let mut found = 0;
            for server in &fleet.servers {
                let list = crate::real::servers(vec![crate::real::addr(server.address())]);
                let direct = Client::new(nuthatch_fleet::client::Config::new(list)).unwrap();
                found += usize::from(direct.get(b"ns:bird", Want::VALUE).await.unwrap().is_some());
                assert_eq!(direct.get(b"bird", Want::VALUE).await, Ok(None));
            }
            assert_eq!(found, 1);
            let many = client.get_many(&[b"none", b"bird", &[b'k'; 248], &[b'k'; 247]], Want::VALUE).await;
            assert_eq!(many[1].clone().unwrap().unwrap().value, b"1"[..]);
            assert!(matches!(many[2], Err(Error::Request(_))));
            assert_eq!(many[3], Ok(None));
            assert_eq!(client.incr(b"bird", 1).await, Ok(Some(2)));
            if protocol != Protocol::Binary {
                for (key, flags, shown) in
                    [(&b"bird"[..], "k v", "kbird"), (b"bird", "b k", "kYmlyZA== b"), (b"a b", "k b", "kYSBi b")]
                {
                    let set_flags = flags.replace(" v", "");
                    let set = MetaRequest { word: Word::Set, key, flags: set_flags.as_bytes(), value: b"3" };
                    assert_eq!(client.meta(set).await.unwrap().flags, shown.as_bytes());
                    let get = MetaRequest { word: Word::Get, key, flags: flags.as_bytes(), value: b"" };
                    assert_eq!(client.meta(get).await.unwrap().flags, shown.as_bytes());
                }
                let debug = client.meta(MetaRequest { word: Word::Debug, key: b"bird", flags: b"", value: b"" }).await;
                assert!(debug.unwrap().flags.starts_with(b"exp="));
            }
            assert_eq!(client.delete(b"bird").await, Ok(true));
        });
    }
}
