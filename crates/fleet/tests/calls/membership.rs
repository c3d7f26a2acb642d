//! Lists that a name server keeps are followed, and stay when it goes. The name server is the tests' own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use nuthatch_fleet::membership::{Log, Members, Source, once};
use nuthatch_fleet::{FleetSettings, ServerSpec};
use nuthatch_testkit::NameServer;
use nuthatch_testkit::name_server::{A, AAAA, SRV};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(20);

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> Vec<u8> {
    let mut record = [priority, weight, port].map(u16::to_be_bytes).concat();
    for label in target.split('.') {
        record.push(label.len() as u8);
        record.extend(label.as_bytes());
    }
    record.push(0);
    record
}

fn settings(sources: &[&str], server: &NameServer) -> FleetSettings {
    FleetSettings {
        servers: sources.iter().map(|text| Source::parse(text).unwrap()).collect(),
        resolvers: vec![server.address()],
        refresh: Duration::from_millis(100),
        settle: Duration::ZERO,
        ..FleetSettings::named("shared")
    }
}

fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    (Arc::new(move |line: &str| kept.lock().expect("nobody panics").push(line.to_owned())), lines)
}

/// Waits until the list is `expected`.
async fn becomes(lists: &mut watch::Receiver<Arc<Vec<ServerSpec>>>, expected: &[&str]) {
    let shown = |list: &[ServerSpec]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let is_so = tokio::time::timeout(PATIENCE, lists.wait_for(|list| shown(list) == expected)).await.is_ok();
    assert!(is_so, "expected {expected:?}, the list is {:?}", shown(&lists.borrow()));
}

/// Waits until a line of the log contains `part`.
async fn says(lines: &Mutex<Vec<String>>, part: &str) {
    let said = async {
        while !lines.lock().expect("nobody panics").iter().any(|line| line.contains(part)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, said).await.is_ok(), "{part} is not said: {lines:?}");
}

#[tokio::test]
async fn addresses_of_a_name_are_servers_in_their_own_order() {
    let server = NameServer::start();
    server.put("cache.example", A, vec![vec![10, 0, 0, 9], vec![10, 0, 0, 10]]);
    let v6 = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec();
    server.put("cache.example", AAAA, vec![v6]);
    let settings = settings(&["10.0.0.1", "dns:cache.example:11311"], &server);
    let list = once(&settings).await.unwrap();
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    assert_eq!(list, ["10.0.0.1:11211", "10.0.0.9:11311", "10.0.0.10:11311", "[2001:db8::7]:11311"]);
}

#[tokio::test]
async fn targets_of_a_service_are_servers_with_weights() {
    let server = NameServer::start();
    let name = "_memcached._tcp.example";
    server.put(
        name,
        SRV,
        vec![srv(5, 3, 11311, "b.example"), srv(5, 1, 11211, "a.example"), srv(9, 1, 1, "c.example")],
    );
    let list = once(&settings(&["srv:_memcached._tcp.example"], &server)).await.unwrap();
    let expected = [ServerSpec::new("a.example", 11211), ServerSpec::new("b.example", 11311).weighing(3)];
    assert_eq!(list, expected);
}

#[tokio::test]
async fn a_list_follows_its_name_and_stays_when_the_name_goes() {
    let server = NameServer::start();
    server.put("cache.example", A, vec![vec![10, 0, 0, 1], vec![10, 0, 0, 2]]);
    let (log, lines) = log();
    let members = Members::follow(&settings(&["dns:cache.example"], &server), log);
    let mut lists = members.lists();
    becomes(&mut lists, &["10.0.0.1:11211", "10.0.0.2:11211"]).await;
    server.put("cache.example", A, vec![vec![10, 0, 0, 3], vec![10, 0, 0, 1], vec![10, 0, 0, 2]]);
    becomes(&mut lists, &["10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211"]).await;
    says(&lines, "fleet shared: 3 servers instead of 2: 10.0.0.1:11211, 10.0.0.2:11211, 10.0.0.3:11211").await;
    assert_eq!((members.counters().changes(), members.counters().failures()), (2, 0));

    server.clear();
    says(&lines, "fleet shared: dns:cache.example:11211: expected a list of servers: ").await;
    assert!(lines.lock().unwrap().last().unwrap().ends_with("; its last list stays"), "{lines:?}");
    assert!(members.counters().failures() > 0);
    assert_eq!(lists.borrow().len(), 3);
    server.put("cache.example", A, vec![vec![10, 0, 0, 2]]);
    becomes(&mut lists, &["10.0.0.2:11211"]).await;
    says(&lines, "fleet shared: dns:cache.example:11211 answers again").await;

    // A name server that says nothing at all changes nothing either.
    server.silence();
    let failures = members.counters().failures();
    let more = async {
        while members.counters().failures() == failures {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE * 2, more).await.is_ok(), "a silent name server is a failure");
    assert_eq!(lists.borrow().len(), 1);
}

#[tokio::test]
async fn the_servers_of_the_file_are_there_at_once() {
    let server = NameServer::start();
    let members = Members::follow(&settings(&["a:1", "b:1 weight=2"], &server), log().0);
    assert_eq!(**members.lists().borrow(), [ServerSpec::new("a", 1), ServerSpec::new("b", 1).weighing(2)]);
}

#[tokio::test]
async fn what_cannot_be_asked_is_a_sentence() {
    let server = NameServer::start();
    let etcd = format!("etcd:http://127.0.0.1:{}/p", server.address().port());
    let error = once(&settings(&[&etcd], &server)).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("{etcd}: expected a list of servers: Connection refused")), "{error}");
    let error = once(&settings(&["dns:nowhere.example"], &server)).await.unwrap_err().to_string();
    assert!(error.starts_with("dns:nowhere.example:11211: expected a list of servers: "), "{error}");
}
