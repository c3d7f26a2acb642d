//! What must hold of lanes, on databases that have them.

use std::future::{Future, poll_fn};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nuthatch_rows::{Answered, Done, Error, Mode, Op};

use crate::common::{World, apply, open, store, value, wait};

/// An event loop as Nuthatch's workers have it, without timers.
fn event_loop() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_io().build().expect("an event loop")
}

fn count(key: &[u8]) -> Op {
    Op::Arith { key: key.into(), delta: 1, down: false, compare: None, initial: Some((1, None)), touch: None }
}

/// Changes that are made on event loops of their own, two of them and the table's thread at once, lose nothing either, share
/// commits, and are made in the order of their key's.
pub(crate) fn lanes_lose_nothing_and_keep_the_order_of_a_key(world: &World) {
    let settings = world.full();
    let table = open(&settings);
    let work = |name: char| {
        event_loop().block_on(async {
            let lane = table.lane().expect("a database over the network");
            let append = |n: u8| store(&[name as u8], Mode::Append, &[b'a' + n]);
            wait_all((0..1).map(|_| lane.apply(Op::set(&[name as u8], b"-")))).await;
            for _ in 0..5 {
                let numbers = (0..40).map(|n| lane.apply(count(format!("n{}", n % 8).as_bytes())));
                let letters = (0..10).map(|n| lane.apply(append(n)));
                let rows = (0..40).map(|n| lane.apply(Op::set(format!("{name}{n}").as_bytes(), b"value")));
                wait_all(numbers.chain(letters).chain(rows).collect::<Vec<_>>()).await;
            }
            assert_eq!(lane.waiting(), 0);
            let keys = |n: u32| vec![format!("{name}{n}").into_bytes(), b"absent".to_vec()];
            let reads: Vec<_> = (0..40).map(|n| lane.get_many(keys(n))).collect();
            for read in reads {
                let found = read.await.expect("an answer");
                assert!(found[0].as_ref().is_some_and(|item| item.value == b"value") && found[1].is_none());
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work('x'));
        scope.spawn(|| work('y'));
        for n in 0..40 {
            let counted = wait(table.apply(count(format!("n{}", n % 8).as_bytes())));
            assert!(matches!(counted, Ok(Done::Counted { .. })), "{counted:?}");
        }
    });
    for n in 0..8 {
        assert_eq!(value(&table, format!("n{n}").as_bytes()).as_deref(), Some("55"), "n{n}");
    }
    for name in ["x", "y"] {
        assert_eq!(value(&table, name.as_bytes()).unwrap(), format!("-{}", "abcdefghij".repeat(5)));
        assert_eq!(value(&table, format!("{name}39").as_bytes()).as_deref(), Some("value"));
    }
    let stats = table.stats();
    assert_eq!((stats.changes_committed, stats.failed), (942, 0));
    assert!(stats.commits < 300, "{} commits for 942 changes", stats.commits);
    // Six, the thread's, those that read, and the one that looked at the mapping.
    assert!(stats.connected <= 10, "{} connections", stats.connected);
    assert!(stats.lookups < 60, "{} statements for 80 requests and 10 keys", stats.lookups);
}

async fn wait_all(answers: impl IntoIterator<Item = Answered<Done>>) {
    for answer in answers {
        let done = answer.await;
        assert!(matches!(done, Ok(Done::Stored { .. } | Done::Counted { .. })), "{done:?}");
    }
}

/// A statement that takes too long is given up on by whoever ticks, and what comes next is done.
pub(crate) fn a_lane_is_not_held_up_by_a_row_that_others_keep_locked(world: &World) {
    let settings = world.full();
    let table = open(&settings);
    apply(&table, Op::set(b"a", b"1"));
    let name = &settings.table;
    let sleep = if world.quote == '`' { "SLEEP(2)" } else { "pg_sleep(2)" };
    let (locked, is_locked) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            locked.send(()).expect("someone waits");
            (world.sql)(&format!("BEGIN; SELECT id FROM {name} FOR UPDATE; SELECT {sleep}; ROLLBACK"));
        });
        is_locked.recv().expect("it says so");
        event_loop().block_on(async {
            let lane = table.lane().expect("a database over the network");
            let began = Instant::now();
            // Until it is locked, there is nothing that takes long.
            let refused = loop {
                let mut changed = std::pin::pin!(lane.apply(count(b"a")));
                let done = poll_fn(|context| {
                    context.waker().wake_by_ref();
                    lane.tick(
                        Instant::now()
                            + if began.elapsed() > Duration::from_millis(300) {
                                Duration::from_secs(3600)
                            } else {
                                Duration::ZERO
                            },
                    );
                    changed.as_mut().poll(context)
                });
                if let Err(refused) = done.await {
                    break refused;
                }
                assert!(began.elapsed() < Duration::from_secs(20), "nobody is told");
            };
            assert!(matches!(refused, Error::Overdue(_) | Error::Unknown(_)), "{refused:?}");
            wait_all([lane.apply(Op::set(b"b", b"2"))]).await;
        });
    });
    assert_eq!(value(&table, b"b").as_deref(), Some("2"));
}

/// What was asked of a lane whose event loop ends is answered with that, and so is what is asked afterwards.
pub(crate) fn a_lane_whose_event_loop_ends_says_so(world: &World) {
    let table = open(&world.full());
    let (lane, under_way) = event_loop().block_on(async {
        let lane = table.lane().expect("a database over the network");
        let under_way = lane.apply(Op::set(b"a", b"1"));
        (lane, under_way)
    });
    assert!(matches!(wait(under_way), Err(Error::Unknown(_))));
    assert!(lane.is_over() && wait(lane.apply(Op::set(b"a", b"2"))).is_err());
    assert!(wait(lane.get_many(vec![b"a".to_vec()])).is_err());
    apply(&table, Op::set(b"a", b"3"));
}

/// A table that has become narrower refuses as a mapping does, not as the database, and one that has become wider takes what fits.
pub(crate) fn a_lane_asks_a_table_that_was_altered_once_more(world: &World) {
    let name = world.fresh();
    let bin = world.binary_collation();
    (world.sql)(&format!("CREATE TABLE {name} (id VARCHAR(20) {bin} NOT NULL PRIMARY KEY, body VARCHAR(20))"));
    let settings = world.settings(&name, &["id"], &["body"]);
    let [narrower, wider] = [(); 2].map(|()| open(&settings));
    let alter = |width: u32| {
        let column = if world.quote == '`' { "MODIFY body" } else { "ALTER COLUMN body TYPE" };
        (world.sql)(&format!("ALTER TABLE {name} {column} VARCHAR({width})"));
    };
    event_loop().block_on(async {
        let lane = narrower.lane().expect("a database over the network");
        assert!(matches!(lane.apply(Op::set(b"a", b"first")).await, Ok(Done::Stored { .. })));
        alter(5);
        let why = "value of \"a\" for table birds: column body holds up to 5 characters, not 6".to_owned();
        assert_eq!(lane.apply(Op::set(b"a", b"123456")).await, Err(Error::Client(why)));
        alter(30);
        let lane = wider.lane().expect("a database over the network");
        let long = lane.apply(Op::set(b"a", b"longer than it was at first")).await;
        assert!(matches!(long, Ok(Done::Stored { as_sent: true, .. })), "{long:?}");
    });
    assert_eq!(value(&narrower, b"a").as_deref(), Some("longer than it was at first"));
}

/// One test for each of the above.
#[macro_export]
macro_rules! for_databases_with_lanes {
    ($world:expr => $($name:ident)*) => {
        $(#[test]
        fn $name() {
            lanes::$name($world);
        })*
    };
    ($world:expr) => {
        for_databases_with_lanes! { $world =>
            lanes_lose_nothing_and_keep_the_order_of_a_key
            a_lane_is_not_held_up_by_a_row_that_others_keep_locked
            a_lane_whose_event_loop_ends_says_so
            a_lane_asks_a_table_that_was_altered_once_more
        }
    };
}
