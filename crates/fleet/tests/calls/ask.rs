//! Gets whose answers are told to a receiver: each ticket once, with its own key's value, whatever becomes of the connection.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::real::{Fleet, HOUR, Hindered, block_on, until};
use nuthatch_fleet::client::{Client, Config, Error, Found, Protocol, Receiver, Want};
use nuthatch_testkit::Fault;

/// What was told, in the order it came.
#[derive(Default)]
struct Told(Mutex<Vec<(u64, Answer)>>);

type Answer = Result<Option<Vec<u8>>, String>;

impl Receiver for Told {
    fn take(&self, ticket: u64, answer: Result<Option<Found<'_>>, &Error>) -> Option<Waker> {
        let answer = answer.map(|found| found.map(|found| found.value.to_vec())).map_err(ToString::to_string);
        self.0.lock().unwrap().push((ticket, answer));
        None
    }
}

impl Told {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The answers, by their tickets.
    fn all(&self) -> Vec<(u64, Answer)> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        all.sort_by_key(|(ticket, _)| *ticket);
        all
    }
}

fn ask(client: &Client, told: &Arc<Told>, key: &str, ticket: u64) {
    let receiver = Arc::clone(told) as Arc<dyn Receiver>;
    client.ask(key.as_bytes(), Want::CAS, &receiver, ticket);
}

#[test]
fn keys_that_are_asked_for_together_share_requests_and_are_told_apart() {
    const KEYS: u64 = 300;
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        for namespace in ["", "ns:"] {
            block_on(async {
                let fleet = Fleet::start(3);
                let client =
                    Client::new(Config { namespace: namespace.into(), ..fleet.config(protocol) }).expect("a client");
                for number in (0..KEYS).filter(|number| number % 3 != 0) {
                    client.set(format!("k{number}").as_bytes(), number.to_string().as_bytes(), 0, 0).await.unwrap();
                }
                let requests = || client.counters().iter().map(|server| server.requests).sum::<u64>();
                let (before, told) = (requests(), Arc::<Told>::default());
                (0..KEYS).for_each(|number| ask(&client, &told, &format!("k{number}"), number));
                until("all are told", || told.count() as u64 >= KEYS).await;
                let expected = |number: u64| (!number.is_multiple_of(3)).then(|| number.to_string().into_bytes());
                let expected: Vec<_> = (0..KEYS).map(|number| (number, Ok(expected(number)))).collect();
                assert_eq!(told.all(), expected);
                assert!(requests() - before < KEYS / 10, "{} requests", requests() - before);
                assert!(client.counters().iter().all(|server| server.in_flight == 0));
            });
        }
    }
}

#[test]
fn what_was_under_way_when_the_connection_ended_is_asked_for_again() {
    block_on(async {
        let mut server = Hindered::start();
        let config = Config { failure_limit: 100_000, ..server.config() };
        let client = Client::new(config).unwrap();
        client.set(b"a", b"1", 0, 0).await.unwrap();
        server.faulty.set(Fault::CloseEach);
        let told = Arc::<Told>::default();
        let mut ticket = 0;
        let deadline = Instant::now() + Duration::from_secs(20);
        while client.counters()[0].losses < 5 {
            assert!(Instant::now() < deadline, "{:?}", client.counters());
            ask(&client, &told, "a", ticket);
            // Without a pause, so that the next is asked before the end of the connection is seen.
            while told.count() == 0 {
                assert!(Instant::now() < deadline, "{:?}", client.counters());
                tokio::task::yield_now().await;
            }
            // Twice in a row is an error, and no wrong value.
            let (of, answer) = told.all().remove(0);
            assert_eq!(of, ticket);
            match answer {
                Ok(value) => assert_eq!(value.as_deref(), Some(&b"1"[..])),
                Err(error) => assert!(error.contains("ended the connection"), "{error}"),
            }
            ticket += 1;
        }
    });
}

#[test]
fn a_deadline_is_told_at_its_tick_and_the_late_answer_to_nobody() {
    block_on(async {
        let mut server = Hindered::start();
        let client = Client::new(server.timeless()).unwrap();
        client.set(b"a", b"1", 0, 0).await.unwrap();
        server.faulty.set(Fault::Delay(Duration::from_millis(300)));
        let (start, told) = (Instant::now(), Arc::<Told>::default());
        ask(&client, &told, "a", 1);
        ask(&client, &told, "b", 2);
        until("they are sent", || client.counters()[0].bytes_out > 20).await;
        client.tick(start + HOUR / 2);
        assert_eq!(told.count(), 0);
        client.tick(start + 2 * HOUR);
        let all = told.all();
        assert_eq!(all.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1, 2]);
        assert!(all.iter().all(|(_, answer)| answer.as_ref().is_err_and(|error| error.contains("did not answer"))));
        until("the late answer has come", || client.counters()[0].in_flight == 0).await;
        assert_eq!(told.count(), 0);
        server.faulty.set(Fault::None);
        ask(&client, &told, "a", 3);
        until("it is told", || told.count() == 1).await;
        assert_eq!(told.all(), [(3, Ok(Some(b"1".to_vec())))]);
    });
}

#[test]
fn nobody_is_left_waiting_by_a_client_that_ends() {
    block_on(async {
        let mut server = Hindered::start();
        server.faulty.set(Fault::Hang);
        let client = Client::new(server.config()).unwrap();
        let told = Arc::<Told>::default();
        ask(&client, &told, "a", 1);
        until("it is sent", || client.counters()[0].bytes_out > 0).await;
        drop(client);
        let error = told.all().remove(0).1.unwrap_err();
        assert!(error.ends_with("is no longer asked by this client"), "{error}");
    });
}
