//! A database read through memcached servers: read once however many ask, and never stored when it is no longer true.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nuthatch_fleet::aside::{Aside, AsideSettings, ChangeError};
use nuthatch_fleet::client::{Client, Config, Modulo, OnDown, ServerAddr, Servers};
use nuthatch_testkit::dice::Dice;
use nuthatch_testkit::{Launch, Spawned};
use tokio::sync::Notify;

/// As many processes as wanted before the same servers.
fn asides<const N: usize>(running: &[Spawned], settings: AsideSettings) -> [Arc<Aside>; N] {
    let list: Vec<ServerAddr> = running.iter().map(|server| ServerAddr::tcp("127.0.0.1", server.port())).collect();
    std::array::from_fn(|_| {
        let config = Config {
            timeout: Duration::from_secs(10),
            on_down: OnDown::Error,
            ..Config::new(Servers::new(list.clone(), Modulo::of))
        };
        Arc::new(Aside::new(Client::new(config).expect("a runtime"), settings))
    })
}

fn patient() -> AsideSettings {
    AsideSettings { patience: Duration::from_secs(30), lease_seconds: 60, ..AsideSettings::default() }
}

fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

fn text(text: &str) -> Result<Option<Vec<u8>>, Infallible> {
    Ok(Some(text.as_bytes().to_vec()))
}

#[test]
fn however_many_miss_a_row_the_database_is_read_once() {
    let running = [Launch::real_memcached().start(), Launch::real_memcached().start()];
    run(async {
        let asides: [_; 3] = asides(&running, patient());
        let loads = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for n in 0..90 {
            let (aside, loads) = (Arc::clone(&asides[n % 3]), Arc::clone(&loads));
            tasks.push(tokio::spawn(async move {
                let load = || async {
                    loads.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    text("nuthatch")
                };
                aside.get(b"bird", load).await
            }));
        }
        for task in tasks {
            assert_eq!(task.await.expect("no panic"), Ok(Some("nuthatch".into())));
        }
        assert_eq!(loads.load(Ordering::Relaxed), 1);
        let stats = asides.iter().map(|aside| aside.stats());
        let all = stats.reduce(|mut all, one| {
            (all.hits, all.shared) = (all.hits + one.hits, all.shared + one.shared);
            all
        });
        assert!(all.is_some_and(|all| all.hits + all.shared == 89), "{all:?}");
    });
}

#[test]
fn what_was_read_before_a_change_is_not_stored_after_it() {
    let running = [Launch::real_memcached().start()];
    run(async {
        let [reader, writer] = asides(&running, patient());
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
            let reader = Arc::clone(&reader);
            tokio::spawn(async move {
                let load = || async {
                    begun.notify_one();
                    go_on.notified().await;
                    text("old")
                };
                reader.get(b"bird", load).await
            })
        };
        begun.notified().await;
        writer.change(b"bird", || async { Ok::<_, Infallible>(()) }).await.expect("it is made");
        go_on.notify_one();
        assert_eq!(slow.await.expect("no panic"), Ok(Some("old".into())), "it began before the change");
        assert_eq!(reader.stats().spoiled, 1);
        assert_eq!(reader.get(b"bird", || async { text("new") }).await, Ok(Some("new".into())));
        assert_eq!(writer.get(b"bird", || async { text("unread") }).await, Ok(Some("new".into())));
    });
}

/// A database of numbered versions, and what is known to be written.
#[derive(Default)]
struct Versions {
    rows: Mutex<HashMap<usize, u64>>,
    /// The least that a read which begins now may see.
    told: Mutex<HashMap<usize, u64>>,
}

#[test]
fn racing_readers_never_see_less_than_what_was_changed_before() {
    const KEYS: usize = 3;
    let running = [Launch::real_memcached().start(), Launch::real_memcached().start()];
    run(async {
        let asides: [_; 3] = asides(&running, patient());
        let database = Arc::new(Versions::default());
        let mut tasks = Vec::new();
        // Each key has one writer.
        for key in 0..KEYS {
            let (aside, database) = (Arc::clone(&asides[key % 3]), Arc::clone(&database));
            tasks.push(tokio::spawn(async move {
                let mut dice = Dice::seeded(key as u64);
                for version in 1..=60 {
                    let (before, behind) = (dice.usize(..2000) as u64, dice.usize(..2000) as u64);
                    let write = || async {
                        tokio::time::sleep(Duration::from_micros(before)).await;
                        database.rows.lock().unwrap().insert(key, version);
                        tokio::time::sleep(Duration::from_micros(behind)).await;
                        Ok::<_, Infallible>(())
                    };
                    aside.change(format!("bird{key}").as_bytes(), write).await.expect("it is made");
                    database.told.lock().unwrap().insert(key, version);
                    tokio::time::sleep(Duration::from_millis(dice.usize(..6) as u64)).await;
                }
            }));
        }
        for reader in 0..12 {
            let (aside, database) = (Arc::clone(&asides[reader % 3]), Arc::clone(&database));
            tasks.push(tokio::spawn(async move {
                let mut dice = Dice::seeded(100 + reader as u64);
                for _ in 0..150 {
                    let key = dice.usize(..KEYS);
                    let least = database.told.lock().unwrap().get(&key).copied().unwrap_or(0);
                    let (before, behind) = (dice.usize(..1500) as u64, dice.usize(..3000) as u64);
                    let load = || async {
                        tokio::time::sleep(Duration::from_micros(before)).await;
                        let version = database.rows.lock().unwrap().get(&key).copied();
                        // The answer of the database is on its way.
                        tokio::time::sleep(Duration::from_micros(behind)).await;
                        Ok::<_, Infallible>(version.map(|version| version.to_string().into_bytes()))
                    };
                    let seen = aside.get(format!("bird{key}").as_bytes(), load).await.expect("the database answers");
                    let seen = seen.map_or(0, |seen| std::str::from_utf8(&seen).unwrap().parse::<u64>().unwrap());
                    assert!(seen >= least, "bird{key}: version {seen} was read after {least} was made");
                }
            }));
        }
        for task in tasks {
            task.await.expect("no stale read");
        }
        let spoiled: u64 = asides.iter().map(|aside| aside.stats().spoiled).sum();
        let hits: u64 = asides.iter().map(|aside| aside.stats().hits).sum();
        assert!(spoiled > 0 && hits > 0, "the race was run: {spoiled} spoiled, {hits} hits");
    });
}

#[test]
fn a_read_that_fails_leaves_the_next_nothing_to_wait_for() {
    let running = [Launch::real_memcached().start()];
    run(async {
        let [one, other] = asides(&running, patient());
        assert_eq!(one.get(b"bird", || async { Err("the database is down") }).await, Err("the database is down"));
        assert_eq!(
            other.get(b"bird", || async { Ok::<_, &str>(Some(b"nuthatch".to_vec())) }).await,
            Ok(Some("nuthatch".into()))
        );
        let failed = one.change(b"bird", || async { Err::<(), _>("the row is locked") }).await;
        assert_eq!(failed, Err(ChangeError::Write("the row is locked")));
        assert_eq!(other.get(b"bird", || async { Ok::<_, &str>(None) }).await, Ok(None), "forgotten all the same");
    });
}

#[test]
fn that_there_is_no_row_is_remembered_if_wanted_and_empty_is_not_absent() {
    let running = [Launch::real_memcached().start()];
    run(async {
        let [forgetful] = asides(&running, patient());
        let [aside] = asides(&running, AsideSettings { absent_seconds: 60, ..patient() });
        assert_eq!(forgetful.get(b"none", || async { Ok::<_, Infallible>(None) }).await, Ok(None));
        assert_eq!(aside.get(b"none", || async { Ok::<_, Infallible>(None) }).await, Ok(None));
        assert_eq!(aside.get(b"none", || async { text("unread") }).await, Ok(None));
        aside.forget(b"none").await.expect("it is forgotten");
        assert_eq!(aside.get(b"none", || async { text("") }).await, Ok(Some("".into())));
        assert_eq!(aside.get(b"none", || async { text("unread") }).await, Ok(Some("".into())));
        assert_eq!((forgetful.stats().loads, aside.stats().loads), (1, 2));
    });
}

#[test]
fn without_the_cache_reads_go_on_and_changes_say_so() {
    let running = [Launch::real_memcached().start()];
    run(async {
        let [aside] =
            asides(&running, AsideSettings { patience: Duration::from_millis(50), ..AsideSettings::default() });
        drop(running);
        assert_eq!(aside.get(b"bird", || async { text("nuthatch") }).await, Ok(Some("nuthatch".into())));
        let changed = aside.change(b"bird", || async { Ok::<_, Infallible>(7) }).await;
        let Err(ChangeError::Forget { made: 7, error }) = changed else { panic!("{changed:?}") };
        assert!(error.to_string().contains("127.0.0.1:"), "{error}");
    });
}

#[test]
fn one_who_dies_with_a_lease_holds_nobody_up_for_longer_than_the_patience() {
    let running = [Launch::real_memcached().start()];
    run(async {
        let [dies, waits] = asides(&running, AsideSettings { patience: Duration::from_millis(30), ..patient() });
        let begun = Notify::new();
        let reading = dies.get(b"bird", || async {
            begun.notify_one();
            std::future::pending::<Result<Option<Vec<u8>>, Infallible>>().await
        });
        tokio::select! {
            _ = reading => panic!("it never ends"),
            () = begun.notified() => {}
        }
        assert_eq!(waits.get(b"bird", || async { text("nuthatch") }).await, Ok(Some("nuthatch".into())));
        assert_eq!(waits.stats().loads, 1);
    });
}
